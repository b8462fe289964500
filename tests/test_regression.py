"""Least squares by a loss with a bounded slope: where slopes are held, and what that is expected to cost."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

import epsteps as es
from epsteps.estimators import PrivateRidge
from epsteps.methods.objective import unknown_bias
from epsteps.plans.utility import Typical, clip_bias, held_bias
from epsteps.problem.losses import POWERS

PROBLEMS = {
    "box": es.Problem(es.Squared(1.0), es.Box(0, 1), ridge=0.002, n=5000, d=10, intercept=True),
    "wide targets": es.Problem(es.Squared(40.0), es.Box(-1, 1), ridge=0.002, n=14_000, d=58),
    "ball": es.Problem(es.Squared(0.5), es.Ball(1), ridge=0.01, n=3000, d=20),
}
BUDGETS = {"pure": es.Pure, "delta": lambda epsilon: es.Approximate(epsilon, 1e-5)}
EPSILONS = np.geomspace(0.01, 50, 6).tolist()
SIZES = np.geomspace(300, 3e6, 4).astype(int).tolist()
# Certificates may ask for noise that is larger by as much than a choice thought.
SLACK = 1 + 1e-5


def share(plan):
    """Return the largest slope over the targets' bound."""
    return plan.problem.loss.c / plan.problem.loss.bound


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_slopes_are_held_less_and_the_error_falls_with_the_budget_and_the_records(problem, budget):
    grown = [es.plan(problem, budget(epsilon), "objective") for epsilon in EPSILONS]
    counted = [es.plan(replace(problem, n=n), budget(1.0), "objective") for n in SIZES]
    for plans in (grown, counted):
        for less, more in pairwise(plans):
            # Where a Jacobian, or other noise, begins to pay, the best share may fall by one step of its grid.
            assert share(more) > 0.69 * share(less)
            assert more.utility.expected <= SLACK * less.utility.expected
        assert share(plans[0]) < 0.3 < 0.7 < share(plans[-1])


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_no_other_share_of_the_bound_is_expected_to_do_better(budget):
    """A plan of a declared pseudo-Huber loss has the same noise; what it is expected to cost here is computed anew."""
    problem = PROBLEMS["box"]
    for epsilon in (0.1, 1.0, 10.0):
        chosen = es.plan(problem, budget(epsilon), "objective")
        typical = Typical(problem)
        for held, turn in product((0.05, 0.2, 0.8, 3.2), POWERS):
            loss = es.PseudoHuber(1.0, c=held, power=turn)
            other = es.plan(replace(problem, loss=loss), budget(epsilon), "objective")
            pull, bend = other.ridge / loss.typical_curvature, loss.typical_curvature
            power = typical.gradient_power(other.noise) * (other.scales[0] / problem.n / bend) ** 2
            lost = unknown_bias(1.0, loss)
            cost = typical.bias(pull) + typical.noise(power, pull) + lost * typical.kept(pull)
            # Ridges of the two are not the same grid: one step of it.
            assert chosen.utility.expected <= 1.02 * cost


def test_statistics_are_chosen_only_where_they_are_expected_to_do_better():
    methods = set()
    for n in (500, 10_000, 10**10):
        problem = replace(PROBLEMS["box"], n=n)
        auto, adaptive, objective, statistics = (
            es.plan(problem, es.Pure(1.0), method).utility.expected
            for method in ("auto", "adaptive", "objective", "statistics")
        )
        assert auto == min(adaptive, objective, statistics)
        methods.add(auto < statistics)
    assert methods == {True, False}


def test_what_a_plan_says_is_about_the_declared_loss():
    """The model 0 is that of least squares, and what is lost by the other loss is counted, times the bound squared."""
    for bound in (1.0, 30.0):
        problem = replace(PROBLEMS["box"], loss=es.Squared(bound))
        plan = es.plan(problem, es.Pure(1e4), "objective")
        assert plan.instead_of == "Squared"
        assert plan.utility.trivial == Typical(problem).trivial
        assert plan.utility.expected >= unknown_bias(bound, plan.problem.loss) > 0
        small = es.plan(replace(problem, loss=es.Squared(1.0)), es.Pure(1e4), "objective")
        assert plan.utility.expected == pytest.approx(bound**2 * small.utility.expected, rel=1e-6)
        assert plan.utility.bound is None
    again = es.Plan.from_json(plan.to_json())
    assert again.utility.expected == plan.utility.expected


def test_held_slopes_cost_less_the_later_they_are_held():
    shares = np.geomspace(0.01, 100, 50)
    costs = np.array([held_bias(2.0, 2.0 * share) for share in shares])
    assert np.all(np.diff(costs) < 0)
    assert held_bias(2.0, 1e6) < 1e-20
    # Far out the loss is off by the fourth power of a residual, and its slope by the third.
    assert costs[-1] / costs[-2] == pytest.approx((shares[-2] / shares[-1]) ** 4, rel=0.01)
    sharper = np.array([[held_bias(2.0, 2.0 * share, power) for share in shares] for power in POWERS])
    assert np.all(np.diff(sharper, axis=1) < 0)
    assert np.all(np.diff(sharper[:, shares >= 1], axis=0) < 0)


@pytest.mark.parametrize("d", [1, 2])
def test_few_columns_have_predictions_of_every_method(d):
    """One column without an intercept is all there is of the records' mean: nothing is divided by what is left."""
    for domain, method in product((es.Box(0, 1), es.Box(-1, 1)), ("adaptive", "objective", "statistics", "auto")):
        problem = es.Problem(es.Squared(1.0), domain, ridge=0.001, n=10_000, d=d)
        made = es.plan(problem, es.Pure(1.0), method, **({"release": "final"} if method == "auto" else {}))
        assert 0 < made.utility.expected < made.utility.trivial
        assert made.method != "sufficient statistics" or method == "statistics"


def test_clipped_steps_are_expected_to_lose_what_their_share_costs():
    for clip in (0.1, 0.4):
        problem = replace(PROBLEMS["ball"], clip=clip * 0.5)
        plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=5)
        assert plan.substitution == pytest.approx(clip_bias(0.5, clip * 0.5))


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_more_budget_makes_skewed_regression_better(delta):
    """Residuals are skewed and vary with a column, so that slopes that are held cost something."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 1, (6000, 3))
    y = np.clip(-0.6 + 0.8 * X[:, 0] + 0.4 * X[:, 1] * rng.exponential(1, 6000), -1, 1)
    problem = es.Problem(es.Squared(1.0), es.Box(0, 1), ridge=0.001, n=6000, d=3, intercept=True)
    rows = es.Rows(problem, X, y)
    A = np.hstack([X, np.ones((6000, 1))])
    best = np.linalg.solve(A.T @ A / 6000 + 0.001 * np.eye(4), A.T @ y / 6000)
    errors = []
    for epsilon in (0.25, 1.0, 4.0, 16.0):
        budget = es.Pure(epsilon) if delta is None else es.Approximate(epsilon, delta)
        plan = es.plan(problem, budget, release="final")
        models = [es.run(plan, rows, seed=seed).x for seed in range(4)]
        errors.append(np.mean([rows.value(x) - rows.value(best) for x in models]))
    for less, more in pairwise(errors):
        assert more < 0.7 * less
    assert errors[-1] < 1e-4


def test_the_estimator_gets_near_least_squares():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (20_000, 3))
    y = 20 + 30 * X[:, 0] + rng.normal(0, 5, 20_000)
    scores = []
    for epsilon in (0.1, 1.0, 10.0):
        model = PrivateRidge(epsilon=epsilon, bounds=(0, 1), target_bounds=(0, 100), ridge=1e-4, random_state=1)
        scores.append(model.fit(X, y).score(X, y))
    A = np.hstack([X, np.ones((20_000, 1))])
    fitted = 1 - np.var(y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) / np.var(y)
    assert scores[0] > 0.3
    assert abs(scores[-1] - fitted) < 0.002
