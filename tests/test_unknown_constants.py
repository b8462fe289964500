"""What the paper assumes known: L bought from the budget, and restarts for an unknown strong convexity."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from conftest import records, small_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import epsteps as es
from epsteps.testing import replay


def true_smoothness(problem, X):
    return problem.loss.curvature * np.linalg.eigvalsh(X.T @ X / problem.n)[-1] + problem.ridge


@pytest.mark.parametrize("budget", [es.Pure(0.05), es.Concentrated(0.001)])
def test_the_estimate_is_above_the_truth_with_its_confidence(budget):
    """Over 400 seeds about 40 fall below at confidence 0.9; more than 70 or less than 15 would be a wrong scale."""
    problem = small_problem(n=2000, d=4)
    X, y = records(problem)
    rows, truth = es.Rows(problem, X, y), true_smoothness(problem, X)
    found = [es.estimate_smoothness(rows, budget, confidence=0.9, seed=seed).L for seed in range(400)]
    assert 15 < sum(truth > L for L in found) < 70
    assert np.median(found) < problem.L / 2
    assert max(found) <= problem.L * (1 + 1e-12)


@pytest.mark.parametrize(("budget", "law"), [(es.Pure(0.5), stats.laplace), (es.Concentrated(0.1), stats.norm)])
def test_noise_of_the_estimate_follows_its_law_and_no_other(budget, law):
    """The sensitivity is 4/n in the cube of four dimensions. Accepted at p > 1e-4 over 2000 fixed seeds."""
    problem = small_problem(n=2000, d=4)
    X, y = records(problem)
    rows, truth = es.Rows(problem, X, y), true_smoothness(problem, X)
    scale = 4 / 2000 / (0.5 if isinstance(budget, es.Pure) else np.sqrt(2 * 0.1))
    median = [es.estimate_smoothness(rows, budget, confidence=0.5, seed=seed).L for seed in range(2000)]
    noise = (np.array(median) - truth) / problem.loss.curvature / scale
    assert stats.kstest(noise, law.cdf).pvalue > 1e-4
    assert stats.kstest(noise, law(scale=2 / 3).cdf).pvalue < 1e-4
    assert stats.kstest(noise, law(scale=3 / 2).cdf).pvalue < 1e-4


@given(st.integers(0, 10**6), st.booleans())
def test_neighbours_move_the_eigenvalue_by_at_most_the_sensitivity(seed, intercept):
    rng = np.random.default_rng(seed)
    problem = es.Problem(es.Logistic(), es.Ball(2.0), ridge=0.1, n=5, d=3, intercept=intercept)
    X = 3 * rng.standard_normal((5, 3))
    other = X.copy()
    other[0] = rng.choice([0.0, 5.0]) * rng.standard_normal(3)
    tops = [np.linalg.eigvalsh(es.Rows(problem, Z, np.ones(5)).second_moment())[-1] for Z in (X, other)]
    assert abs(tops[0] - tops[1]) <= problem.record_size(2) ** 2 / problem.n * (1 + 1e-12)


def test_the_sensitivity_of_the_eigenvalue_is_attained():
    problem = es.Problem(es.Logistic(), es.Ball(2.0), ridge=0.1, n=3, d=2)
    X = np.array([[2.0, 0], [0, 0], [0, 0]])
    tops = [np.linalg.eigvalsh(es.Rows(problem, Z, np.ones(3)).second_moment())[-1] for Z in (X, 0 * X)]
    assert tops[0] - tops[1] == pytest.approx(4 / 3)


def test_the_estimate_is_a_line_of_expense_in_the_plan():
    problem = small_problem(n=20_000, d=6)
    X, y = records(problem)
    rows = es.Rows(problem, X, y)
    estimate = es.estimate_smoothness(rows, es.Pure(0.05), seed=1)
    assert estimate.seeded
    plan = es.plan(estimate.problem, es.Pure(1.0), es.nesterov, expenses=[estimate.expense])
    assert plan.spent <= 1.0
    assert plan.costs.sum() == pytest.approx(0.95)
    assert "smoothness constant L" in str(plan)
    assert es.Plan.from_json(plan.to_json()) == plan
    assert plan.error < es.plan(problem, es.Pure(1.0), es.nesterov).error
    run = es.run(plan, rows, seed=2)
    assert run.spent == pytest.approx(0.95)
    without = es.plan(estimate.problem, es.Pure(1.0), es.nesterov)
    with pytest.raises(es.OverspentError, match="more than its budget"):
        replace(without, expenses=plan.expenses)


def test_a_gaussian_plan_takes_an_expense_in_rho():
    problem = small_problem(n=20_000, d=6)
    rows = es.Rows(problem, *records(problem))
    estimate = es.estimate_smoothness(rows, es.Concentrated(1e-3), seed=1)
    for budget in (es.Approximate(1.0, 1e-6), es.Concentrated(0.03)):
        plan = es.plan(estimate.problem, budget, es.nesterov, expenses=[estimate.expense])
        assert plan.spent <= budget.amount
        assert plan.spent > budget.amount * (1 - 1e-6)
    with pytest.raises(ValueError, match="was paid in rho, but the steps cost epsilon"):
        es.plan(estimate.problem, es.Pure(1.0), es.nesterov, expenses=[estimate.expense])


def test_expenses_cannot_take_everything(paper):
    with pytest.raises(ValueError, match="nothing is left for the steps"):
        es.plan(paper, es.Pure(1.0), es.nesterov, expenses=[es.Expense("too much", 1.0, "epsilon")])
    with pytest.raises(ValueError, match="nothing is left for the steps"):
        es.plan(
            paper,
            es.Approximate(1.0, 1e-6),
            es.nesterov,
            mechanism="laplace",
            expenses=[es.Expense("too much", 2.0, "epsilon")],
        )


def test_the_estimate_is_charged_before_noise_is_drawn():
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))

    class Full:
        def charge(self, cost, *, note):
            raise ValueError(f"no budget for {note}: {cost}")

    with pytest.raises(ValueError, match=r"no budget for smoothness: pure epsilon = 0\.1"):
        es.estimate_smoothness(rows, es.Pure(0.1), ledger=Full())
    assert not es.estimate_smoothness(rows, es.Pure(0.1)).seeded


def test_bad_estimates_are_refused():
    rows = es.Rows(small_problem(), *records(small_problem()))
    with pytest.raises(ValueError, match=r"confidence must lie in \[0\.5, 1\), got 1"):
        es.estimate_smoothness(rows, es.Pure(0.1), confidence=1)
    with pytest.raises(TypeError, match="budget must be Pure"):
        es.estimate_smoothness(rows, es.Approximate(1.0, 1e-6))


@settings(max_examples=40)
@given(st.floats(0.02, 0.9), st.floats(0.2, 1.0), st.integers(1, 120), st.integers(0, 10**6))
def test_restarts_stay_below_their_bound_on_quadratics(mu, c, T, seed):
    """Momenta for larger guesses of mu are covered by certificates, joined at the restarts."""
    steps = es.restarted_nesterov(mu, 1.0, T, c=c)
    rng = np.random.default_rng(seed)
    spectrum = np.append(rng.uniform(mu, 1, 3), [mu, 1.0])
    transfer, exact = es.bounds.exact_quadratic(steps, spectrum)
    bound = es.bounds.for_steps(steps, mu, 1.0)
    gap = spectrum / 2 * rng.standard_normal(5) ** 2
    variances = rng.exponential(1, T)
    error = np.sum(transfer**2 * gap) + np.sum(exact * variances) / 2
    assert error <= bound.error(gap.sum(), len(spectrum) * variances / 2) * (1 + 1e-9)


def test_restarts_help_when_the_strong_convexity_is_larger_than_declared():
    """Noise-free on a quadratic of constant 0.1, declared 0.001: after 60 steps the restarted method is far ahead."""
    spectrum = np.geomspace(0.1, 1, 10)
    gaps = [
        np.mean(es.bounds.exact_quadratic(method(0.001, 1.0, 60), spectrum)[0] ** 2)
        for method in (es.nesterov, es.restarted_nesterov)
    ]
    assert gaps[1] < gaps[0] / 100


def test_the_price_of_the_constant_counts_every_rounding_in_full():
    """One record's move, one step of rounding, and both errors of the eigenvalue, none of them rounded down."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=1000, d=3)
    X, y = np.zeros((1000, 3)), np.ones(1000)

    def fit(data, account):
        return es.estimate_smoothness(es.Rows(problem, *data), es.Pure(1.0), ledger=account)

    draws = [event for event in replay(fit, (X, y), (X, y)).events if event.kind == "draw of integers"]
    error = Fraction(16 * 3, 2**52)  # of a computed eigenvalue, relative to the largest record's square
    assert Fraction(float(draws[0].facts[1])) >= 2**20 + 1 + 2 * error * 1000 * 2**20
