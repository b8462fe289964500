"""Output perturbation: how far the minimum moves, what the noise is, what a plan certifies."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from laws.plans import survives_json
from laws.releases import asked, noise, reading
from scipy import stats

import epsteps as es
from epsteps.methods import minima
from epsteps.noise import Source

# Statistical tests accept at p > 1e-4: on right code they would fail for one seed in ten thousand. Seeds are fixed.
LEVEL = 1e-4
BUDGETS = (es.Pure(0.7), es.Approximate(0.7, 1e-6), es.Concentrated(0.02))
LOSSES = {
    "logistic": es.Logistic(),
    "capped": es.CappedLogistic(),
    "hinge": es.SmoothedHinge(width=0.3),
    "pseudo-huber": es.PseudoHuber(bound=2.0, c=0.5),
    "sharp pseudo-huber": es.PseudoHuber(bound=2.0, c=0.5, power=8),
    "softmax": es.Softmax(classes=(0, 1, 2)),
}


def problem_of(loss="logistic", n=40, **facts):
    return es.Problem(LOSSES[loss], es.Ball(1.5), **({"ridge": 0.2, "n": n, "d": 3, "intercept": True} | facts))


def records_of(loss, rng, n):
    X = rng.normal(size=(n, 3))
    if loss == "softmax":
        return X, rng.integers(3, size=n)
    return X, rng.normal(size=n) if loss == "pseudo-huber" else rng.choice([-1.0, 1.0], n)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_plan_spends_its_budget_and_survives_json(loss, budget):
    plan = es.plan(problem_of(loss), budget, "output")
    assert budget.amount * (1 - 1e-6) < plan.spent <= budget.amount
    survives_json(plan)
    changed = json.loads(plan.to_json())
    for factor, error in ((0.5, es.OverspentError), (2.0, es.PlanFormatError)):
        with pytest.raises(error):
            es.OutputPlan.from_json(json.dumps(changed | {"scale": factor * plan.scale}))
    with pytest.raises(es.OverspentError, match="Make the plan anew"):
        replace(plan, scale=plan.scale * (1 - 1e-5))
    with pytest.raises(es.OverspentError, match="Make the plan anew"):
        replace(plan, tolerance=plan.tolerance * 10)
    with pytest.raises(es.OverspentError, match="Make the plan anew"):
        replace(plan, ridge=plan.ridge * (1 - 1e-5), problem=replace(plan.problem, ridge=plan.ridge / 2))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_point_of_the_grid_is_near_the_minimum(loss):
    rng = np.random.default_rng(0)
    problem = problem_of(loss, n=300)
    plan = es.plan(problem, es.Pure(1.0), "output")
    minimised = replace(problem, ridge=plan.ridge)
    X, targets = records_of(loss, rng, 300)
    rows = es.Rows(minimised, X, targets)
    x = reading(asked(plan), es.Rows(problem, X, targets)).astype(float) * plan.step
    assert np.linalg.norm(300 * rows.gradient(x)) <= plan.tolerance
    assert plan.sensitivity < 1.01 * minima.minimum_sensitivity(problem.sensitivity(2) / 2, 300, plan.ridge)


@pytest.mark.parametrize("loss", ["logistic", "pseudo-huber", "softmax"])
def test_no_replaced_record_moves_the_minimum_by_more_than_the_sensitivity(loss):
    """Records of every kind, NaN and infinite ones too, and pairs that pull in opposite directions."""
    rng = np.random.default_rng(1)
    problem = problem_of(loss, n=4, ridge=2.0)
    plan = es.plan(problem, es.Pure(50.0), "output")
    request, largest = asked(plan), 0.0
    odd = np.array([np.nan, np.inf, -1e300, 1e9, 0.0])
    for trial in range(25):
        X, targets = records_of(loss, rng, 5)
        X[3:] = 1e6 * np.array([1.0, 1.0, 1.0]) if trial % 2 else rng.choice(odd, (2, 3))
        if trial % 4 == 3:
            X[4] = -X[3]
        targets[3:] = (0, 1) if loss == "softmax" else (-1, 1) if trial % 3 else (1, 1)
        first = reading(request, es.Rows(problem, X[:4], targets[:4]))
        second = reading(request, es.Rows(problem, X[[0, 1, 2, 4]], targets[[0, 1, 2, 4]]))
        largest = max(largest, float(np.linalg.norm((first - second).astype(float))) * plan.step)
    assert 0.3 * plan.sensitivity < largest <= plan.sensitivity


@pytest.mark.parametrize("mechanism", ["l2", "gaussian"])
def test_noise_has_the_planned_scale_and_no_other(mechanism):
    plan = es.plan(problem_of(), es.Approximate(0.7, 1e-6), "output", mechanism=mechanism)
    request, source = asked(plan), Source(2)
    draws = np.array([noise(request, source).astype(float) for _ in range(600)]) * plan.step / plan.scale
    lengths = np.linalg.norm(draws, axis=1)
    cdf = stats.gamma(plan.problem.dimension).cdf if mechanism == "l2" else stats.chi(plan.problem.dimension).cdf
    assert stats.kstest(lengths, cdf).pvalue > LEVEL
    assert stats.kstest(lengths * 1.25, cdf).pvalue < LEVEL
    assert stats.kstest(lengths / 1.25, cdf).pvalue < LEVEL


def test_two_scales_are_those_computed_by_hand():
    """n = 1e5, |u|² <= 20, ridge 0.02, d = 20, epsilon 1: E|z|² = 0.0084, and sigma = 0.016684 at delta = 1e-5."""
    problem = es.Problem(es.Logistic(), es.Ball(math.sqrt(20)), ridge=0.02, n=100_000, d=20)
    plan = es.plan(problem, es.Pure(1.0), "output")
    assert plan.ridge == 0.02
    assert minima.ball_energy(plan.scale, 20) == pytest.approx(0.0084, rel=1e-3)
    gaussian = es.plan(problem, es.Approximate(1.0, 1e-5), "output", mechanism="gaussian")
    assert gaussian.scale == pytest.approx(0.01668389187, rel=1e-3)


def test_more_ridge_is_taken_where_noise_is_large_and_pays():
    rng = np.random.default_rng(3)
    problem = es.Problem(es.Logistic(), es.Ball(1.5), ridge=1e-4, n=2000, d=3)
    plan = es.plan(problem, es.Pure(0.5), "output")
    assert plan.ridge > 10 * problem.ridge
    X = rng.normal(size=(2000, 3))
    rows = es.Rows(problem, X, np.where(X @ [1.0, 2.0, -1.0] + rng.logistic(size=2000) > 0, 1, -1))
    as_given = replace(plan, ridge=1e-4, scale=plan.scale * plan.ridge / 1e-4)
    losses = [
        np.mean([float(rows.value(es.run(each, rows, seed=seed).x)) for seed in range(20)]) for each in (plan, as_given)
    ]
    assert losses[0] < math.log(2) < losses[1]


def test_what_it_does_not_cover_is_refused():
    with pytest.raises(ValueError, match="bounded slope"):
        es.plan(es.Problem(es.Squared(), es.Ball(1), ridge=0.1, n=10, d=2), es.Pure(1.0), "output")
    with pytest.raises(ValueError, match="clipped gradients"):
        es.plan(problem_of(clip=0.5), es.Pure(1.0), "output")
    with pytest.raises(ValueError, match="does not cover Gaussian noise"):
        es.plan(problem_of(), es.Pure(1.0), "output", mechanism="gaussian")
    with pytest.raises(ValueError, match="at least the problem's"):
        replace(es.plan(problem_of(), es.Pure(1.0), "output"), ridge=0.1)
