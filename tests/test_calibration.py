"""Predicted against measured: the experiment plans the same method at other budgets, and measures what it should."""

import numpy as np
import pytest

import epsteps as es
from epsteps.auditing.experiments import minimiser, with_amount

needs_utility = pytest.mark.skipif(not hasattr(es.Plan, "utility"), reason="plans have no utility yet")
PROBLEM = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.01, n=5000, d=4)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    X = rng.random((5000, 4))
    return es.Rows(PROBLEM, X, np.where(X @ [3.0, -2.0, 1.0, -1.0] + rng.logistic(size=5000) > 0.5, 1, -1))


@pytest.mark.parametrize(
    "loss",
    [
        es.Logistic(),
        es.CappedLogistic(),
        es.SmoothedHinge(),
        es.Softmax((0, 1, 2)),
        es.Squared(1.0),
        es.PseudoHuber(c=0.3, bound=1.0),
        es.PseudoHuber(c=0.3, bound=1.0, power=8),
    ],
)
def test_the_exact_minimum_has_no_gradient(loss):
    rng = np.random.default_rng(1)
    problem = es.Problem(loss, es.Box(0, 1), ridge=1e-4, n=300, d=5, intercept=True)
    X = rng.random((300, 5))
    y = rng.integers(3, size=300) if loss.outputs > 1 else np.where(X[:, 0] > X[:, 1] + 0.3 * rng.random(300), 1, -1)
    rows = es.Rows(problem, X, y)
    x = minimiser(rows)
    assert np.linalg.norm(rows.gradient(x)) < 1e-9
    nearby = x[:, None] + 1e-3 * rng.standard_normal((problem.dimension, 20))
    assert np.all(rows.value(nearby) > rows.value(x))


@pytest.mark.parametrize("budget", [es.Pure(0.5), es.Approximate(0.5, 1e-6), es.Concentrated(0.5)])
def test_a_budget_of_another_amount_is_of_the_same_kind(budget):
    other = with_amount(budget, 2.0)
    assert other.amount == 2.0
    assert (type(other), other.delta) == (type(budget), budget.delta)


def test_a_plan_with_options_needs_its_planner(rows):
    plan = es.plan(PROBLEM, es.Pure(1.0), "objective", mechanism="laplace")
    with pytest.raises(ValueError, match="planner="):
        es.calibration(plan, rows, runs=2)


def test_records_of_another_problem_are_refused(rows):
    plan = es.plan(es.Problem(es.Logistic(), es.Box(0, 2), ridge=0.01, n=5000, d=4), es.Pure(1.0), "objective")
    with pytest.raises(ValueError, match="records are for"):
        es.calibration(plan, rows)


@needs_utility
@pytest.mark.parametrize("method", ["objective", "descent", es.nesterov])
def test_measured_numbers_are_those_of_runs_at_each_budget(rows, method):
    plan = es.plan(PROBLEM, es.Pure(1.0), method)
    found = es.calibration(plan, rows, runs=8, epsilons=(0.5, 1.0, 4.0))
    assert [point.amount for point in found.points] == [0.5, 1.0, 4.0]
    measured = [point.measured for point in found.points]
    assert measured == sorted(measured, reverse=True)
    predicted = [point.predicted for point in found.points]
    assert predicted == sorted(predicted, reverse=True)
    assert found.points[1].predicted == plan.utility.expected
    assert "An experiment" in str(found)
    assert len(found.to_dict()["points"]) == 3


@needs_utility
def test_the_recommended_plan_is_predicted_within_a_factor_of_three_and_drawn(rows, tmp_path):
    plan = es.plan(PROBLEM, es.Pure(1.0), release="final")
    found = es.calibration(plan, rows, runs=20)
    assert len(found.points) == 5
    assert found.within(3.0) == 1.0
    pytest.importorskip("matplotlib")
    found.plot(tmp_path / "calibration.png")
    assert (tmp_path / "calibration.png").stat().st_size > 1000
