"""Objective perturbation: its plan, its noise, its solver, and the error that it reaches."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from conftest import records
from laws.plans import survives_json
from scipy import stats
from scipy.sparse import csr_array

import epsteps as es
from epsteps.running.passes import FINE, certified_gradient

LEVEL = 1e-4
BUDGETS = (es.Pure(1.0), es.Approximate(1.0, 1e-6), es.Concentrated(0.5))
BOX = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.05, n=4000, d=4)


def positive_records(problem, seed=0):
    """Return records in the unit box, with noisy labels of both kinds."""
    X, y = records(problem, seed)
    return np.abs(X), y


def minimum(rows, x=None):
    """Return the minimum without privacy, by Newton's method."""
    x = np.zeros(rows.problem.dimension) if x is None else x
    for _ in range(50):
        x = x - np.linalg.solve(rows.hessian(x), rows.gradient(x))
    assert np.linalg.norm(rows.gradient(x)) < 1e-9
    return x


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize(
    "domain", [es.Box(0, 1), es.Box(-1, 1, one_hot=[(1, 4)]), es.Ball(1), es.Ball(2, norm=1)], ids=str
)
def test_a_plan_spends_its_budget_and_hardly_less(budget, domain):
    problem = es.Problem(es.Logistic(), domain, ridge=0.05, n=4000, d=5, intercept=True)
    for method in ("objective", "sequential"):
        plan = es.plan(problem, budget, method)
        assert 0.999 * budget.amount < plan.spent <= budget.amount
        survives_json(plan)
        assert f"spends {plan.spent:.12g}" in str(plan)


def test_a_plan_that_spends_more_or_was_edited_is_refused():
    plan = es.plan(BOX, es.Pure(1.0), "objective")
    for field, factor in (("scales", 0.999), ("output_scales", 0.9)):
        smaller = tuple(factor * scale for scale in getattr(plan, field))
        with pytest.raises(es.OverspentError, match="more than its budget"):
            replace(plan, **{field: smaller})
    with pytest.raises(es.OverspentError):
        replace(plan, tolerance=plan.tolerance * 1.1)
    content = json.loads(plan.to_json())
    content["scales"] = [content["scales"][0] * 1.5]
    with pytest.raises(ValueError, match="the plan was changed: its 'release 1' says"):
        es.ObjectivePlan.from_json(json.dumps(content))
    content["kind"] = "Plan"
    with pytest.raises(ValueError, match="not a plan of the kind ObjectivePlan"):
        es.ObjectivePlan.from_json(json.dumps(content))


@pytest.mark.parametrize("mechanism", ["laplace", "l2", "linf", "hull", "gaussian", "ellipsoid"])
def test_the_tilt_follows_its_law_and_no_other(mechanism):
    """The minimum says which tilt it had, up to the output's noise; its norm over the scale has a known law.

    Kolmogorov and Smirnov's test at level 1e-4; a scale 1.5 times too large or too small is rejected.
    """
    budget = es.Approximate(1.0, 1e-6) if mechanism in ("gaussian", "ellipsoid") else es.Pure(1.0)
    plan = es.plan(BOX, budget, "objective", mechanism=mechanism)
    rows = es.Rows(BOX, *positive_records(BOX))
    x = es.run(plan, rows, seed=1, repetitions=150).x
    tilt = -BOX.n * (rows.gradient(x) + (plan.ridge - BOX.ridge) * x)
    shape = plan.noise.shape(BOX)
    law = stats.chi(BOX.d) if plan.noise.kind is es.budgets.Rho else stats.gamma(BOX.d)
    size = shape.gauge(tilt) / plan.scales[0]
    assert stats.kstest(size, law.cdf).pvalue > LEVEL
    assert stats.kstest(size * 1.5, law.cdf).pvalue < LEVEL
    assert stats.kstest(size / 1.5, law.cdf).pvalue < LEVEL


def test_the_error_is_that_of_one_noisy_gradient_with_the_whole_budget():
    """E F(x) - F* over E ½ w'H⁻¹w, the same noise through the curvature: 1, up to 2% and five standard errors."""
    problem = replace(BOX, n=20_000)
    rows = es.Rows(problem, *positive_records(problem))
    best = minimum(rows)
    for budget in (es.Pure(1.0), es.Approximate(2.0, 1e-6)):
        plan = es.plan(problem, budget, "objective")
        covariance, units = plan.noise.covariance(problem)
        full = covariance.matrix
        full = np.outer(units, units) * full * plan.scales[0] ** 2 / problem.n**2
        limit = 0.5 * np.trace(np.linalg.solve(rows.hessian(best), full))
        gaps = rows.value(es.run(plan, rows, seed=2, repetitions=100).x) - rows.value(best)
        assert abs(gaps.mean() / limit - 1) < 0.02 + 5 * gaps.std() / 10 / limit
        # The plan's own prediction holds, too.
        assert gaps.mean() < plan.utility.bound * 1.2


def test_several_minima_are_published_and_their_weighted_mean_is_the_model():
    plan = es.plan(BOX, es.Pure(1.0), "sequential", shares=(0.1, 0.2, 0.7))
    rows = es.Rows(BOX, *positive_records(BOX))
    run = es.run(plan, rows, seed=1)
    assert run.path.shape == (4, 4)
    np.testing.assert_allclose(plan.weights, np.array([0.01, 0.04, 0.49]) / 0.54, rtol=1e-6)
    np.testing.assert_allclose(run.x, plan.weights @ run.path[:3])
    paths = es.run(plan, rows, seed=3, repetitions=120).path
    gaps = np.array([rows.value(points) for points in paths]) - rows.value(minimum(rows))
    one = rows.value(es.run(es.plan(BOX, es.Pure(1.0), "objective"), rows, seed=4, repetitions=120).x)
    one = one - rows.value(minimum(rows))
    # Theory: 1/0.7² = 2.04 for the last, 1/0.54 = 1.85 for the mean; the standard error of each is about 0.25.
    assert 1.3 < gaps[2].mean() / one.mean() < 3.0
    assert 1.1 < gaps[3].mean() / one.mean() < 2.8


LOSSES = (
    es.Logistic(),
    es.CappedLogistic(cap=0.3),
    es.HalfExponential(),
    es.SmoothedHinge(width=0.3),
    es.PseudoHuber(bound=0.8, c=0.4),
    es.PseudoHuber(bound=0.8, c=0.4, power=8),
    es.Softmax(classes=(-1, 0, 1)),
)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("budget", [es.Pure(1e4), es.Approximate(1e3, 1e-6)], ids=str)
def test_every_covered_loss_finds_its_minimum_when_privacy_is_cheap(loss, budget):
    problem = es.Problem(loss, es.Box(-1, 1), ridge=0.05, n=500, d=3, intercept=True)
    rows = es.Rows(problem, *records(problem))
    found = es.run(es.plan(problem, budget, release="final"), rows, seed=1).x
    best = minimum(rows)
    assert rows.value(found) - rows.value(best) < 1e-4
    assert np.any(found != best)


def test_squared_loss_is_replaced_by_one_with_a_bounded_slope():
    problem = es.Problem(es.Squared(2.0), es.Box(-1, 1), ridge=0.05, n=2000, d=3)
    X, y = records(problem)
    plan = es.plan(problem, es.Pure(100.0), "objective")
    assert isinstance(plan.problem.loss, es.PseudoHuber)
    assert plan.problem.loss.targets == problem.loss.targets
    robust = es.Rows(plan.problem, X, 0.3 * y)
    found = es.run(plan, es.Rows(problem, X, 0.3 * y), seed=1).x
    assert robust.value(found) - robust.value(minimum(robust)) < 1e-5


@pytest.mark.parametrize("source", ["float32", "sparse", "memmap"])
def test_records_of_every_kind_lead_within_the_tolerance(source, tmp_path):
    """Rows of float32 outside a ball are projected with a float32's rounding in engines; the solver gets there."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.05, n=3000, d=3)
    X, y = records(problem)
    X = (3 * X).astype(np.float32)
    plan = es.plan(problem, es.Pure(1.0), "objective")
    given = {"float32": X, "sparse": csr_array(X), "memmap": tmp_path / "X.npy"}[source]
    np.save(tmp_path / "X.npy", X)
    found = es.run(plan, es.Rows(problem, given, y), seed=1).x
    usual = es.run(plan, es.Rows(problem, X.astype(float), y), seed=1).x
    assert np.linalg.norm(found - usual) < 4 * plan.tolerance / (problem.n * plan.ridge)


def test_clipped_gradients_have_no_minimum_and_are_refused_in_every_way():
    """Noise for clipped gradients does not protect the minimum of the loss: log-ratios were 5 at epsilon 1."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.5, n=1000, d=1)
    clipped = replace(problem, clip=0.1)
    for options in ({"method": "objective"}, {"method": "sequential"}, {"method": "output"}, {"release": "final"}):
        for budget in (es.Pure(1.0), es.Approximate(1.0, 1e-6)):
            with pytest.raises(ValueError, match=r"clipped gradients have no minimum.*method='descent', got clip=0\.1"):
                es.plan(clipped, budget, **options)
    with pytest.raises(ValueError, match="clipped gradients"):
        es.plan(replace(clipped, loss=es.Squared()), es.Pure(1.0), "objective")
    for method in ("objective", "output"):
        plan = es.plan(problem, es.Pure(1.0), method)
        with pytest.raises(ValueError, match="clipped gradients"):
            replace(plan, problem=clipped)
        content = json.loads(plan.to_json())
        content["problem"]["clip"] = 0.1
        with pytest.raises(ValueError, match="clipped gradients"):
            type(plan).from_json(json.dumps(content))
        # Records that were opened for clipped gradients are read as the plan says.
        X, y = records(problem)
        assert es.run(plan, es.Rows(clipped, X, y), seed=1).x == es.run(plan, es.Rows(problem, X, y), seed=1).x


@pytest.mark.parametrize("method", ["objective", "output"])
def test_what_scales_the_noise_bounds_what_is_read(method):
    """One object has both: its sensitivity bounds its own gradients, and the solver minimises no other function."""
    for loss in LOSSES:
        problem = es.Problem(loss, es.Box(-1, 1), ridge=0.05, n=60, d=2, intercept=True)
        plan = es.plan(problem, es.Pure(1.0), method)
        norm = plan.noise.norm if method == "objective" else 2
        if method == "objective":
            assert plan.costs[0] >= plan.objective.sensitivity(norm) / plan.scales[0]
        else:
            assert plan.cost >= plan.objective.minimum_sensitivity / plan.scale
        found, none = [], np.zeros(problem.dimension)
        for far in (1.0, -1.0):
            for label in (-1, 1):
                rows = es.Rows(problem, np.full((60, 2), far), np.full(60, label))
                for x in (none, none + 9.0, 9.0 * (-1.0) ** np.arange(problem.dimension)):
                    sums = certified_gradient(rows, plan.objective, x, none, FINE).gradient.astype(float)
                    found.append((sums - 60 * plan.ridge * x) / 60)
        sizes = [np.linalg.norm(a - b) for a in found for b in found]
        assert 0.5 * plan.objective.sensitivity(2) < max(sizes) <= plan.objective.sensitivity(2)


def test_a_declared_smoothness_decides_nothing_that_must_be_certain():
    """It may be wrong, and below a ridge that planning raised: the solver has its own."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=1e-4, n=400, d=3)
    X, y = records(problem)
    for budget in (es.Pure(0.01), es.Approximate(0.01, 1e-6)):
        for method in ("objective", "output"):
            certain = es.plan(problem, budget, method)
            plan = es.plan(replace(problem, smoothness=2e-4), budget, method)
            assert plan.ridge == certain.ridge > 2e-4
            assert replace(plan, problem=problem) == certain
            assert math.isclose(plan.objective.L, 0.25 + plan.ridge)
            run = es.run(plan, es.Rows(problem, X, y), seed=1)
            np.testing.assert_array_equal(run.path, es.run(certain, es.Rows(problem, X, y), seed=1).path)


def test_what_objective_perturbation_does_not_cover_is_refused():
    plan = es.plan(BOX, es.Pure(1.0), "objective")
    with pytest.raises(ValueError, match="covers Logistic, Softmax, PseudoHuber and SmoothedHinge, got Squared"):
        replace(plan, problem=replace(BOX, loss=es.Squared()))
    with pytest.raises(
        ValueError, match=r"publishes the final model alone.*Use release='final', or method='sequential'"
    ):
        es.plan(BOX, es.Pure(1.0), "objective", release="iterates")
    with pytest.raises(ValueError, match="does not cover gaussian noise on an objective"):
        es.plan(BOX, es.Concentrated(0.5), "objective", mechanism="gaussian")
    with pytest.raises(ValueError, match="shares must be positive and add up to 1"):
        es.plan(BOX, es.Pure(1.0), "objective", shares=(0.5, 0.2))
    rows = es.Rows(BOX, *positive_records(BOX))
    for options in ({"arithmetic": "float"}, {"start": 1.0}, {"start": np.ones(4)}):
        with pytest.raises(ValueError, match="is for plans of steps"):
            es.run(plan, rows, **options, anyway=True)


def test_a_ledger_is_charged_before_and_a_run_without_a_seed_is_private(tmp_path):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Pure(1.5))
    plan, rows = es.plan(BOX, es.Pure(1.0), release="final"), es.Rows(BOX, *positive_records(BOX))
    first = es.run(plan, rows, ledger=ledger.account("people"), anyway=True)
    assert not first.seeded
    assert first.spent == plan.spent
    with pytest.raises(es.BudgetExceededError):
        es.run(plan, rows, ledger=ledger.account("people"), anyway=True)
    assert np.any(es.run(plan, rows, anyway=True).x != first.x)
