"""Methods as data: the recursion they stand for, where they converge, and the step sizes they refuse."""

from itertools import pairwise

import numpy as np
import pytest
from conftest import records, small_problem
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

import epsteps as es

METHODS = (es.gd, es.heavy_ball, es.nesterov, es.multistage)


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_every_method_reaches_scikit_learns_optimum(method):
    problem = small_problem(n=300, d=4, ridge=0.5)
    X, y = records(problem)
    T = 20_000 if method is es.multistage else 400
    # So large a budget leaves noise of scale 1e-12 and below.
    plan = es.plan(problem, es.Pure(1e14), method, iterations=T, allocation="uniform")
    found = es.run(plan, es.Rows(problem, X, y), seed=0).x
    model = LogisticRegression(C=1 / (problem.n * problem.ridge), fit_intercept=False, tol=1e-12, max_iter=10_000)
    expected = model.fit(X, y).coef_[0]
    np.testing.assert_allclose(found, expected, atol=1e-5 if method is es.multistage else 1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_squared_loss_reaches_scikit_learns_ridge_regression(method):
    problem = es.Problem(es.Squared(), es.Ball(1), ridge=0.5, n=300, d=4)
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (300, 4))
    y = np.clip(X @ [1, -1, 0.5, 0] + 0.1 * rng.standard_normal(300), -1, 1)
    T = 10_000 if method is es.multistage else 200
    plan = es.plan(problem, es.Pure(1e14), method, iterations=T, allocation="uniform")
    assert plan.sensitivity == "state"
    found = es.run(plan, es.Rows(problem, X, y), seed=0).x
    expected = Ridge(alpha=problem.n * problem.ridge, fit_intercept=False).fit(X, y).coef_
    np.testing.assert_allclose(found, expected, atol=1e-6)


@given(st.floats(0.01, 0.9), st.floats(0.05, 1.0), st.integers(0, 10**6))
def test_heavy_ball_is_gradient_descent_on_smoothed_gradients(mu, c, seed):
    """x_t = x_{t-1} - alpha/(1-beta) u_t with u_t = beta u_{t-1} + (1-beta) g(x_{t-1})."""
    problem = small_problem(n=20, d=2, ridge=mu)
    rows = es.Rows(problem, *records(problem, seed))
    steps = es.heavy_ball(problem.mu, problem.L, 30, c=c)
    plan = es.plan(problem, es.Pure(1e14), es.heavy_ball, iterations=30, allocation="uniform", c=c)
    path = es.run(plan, rows, seed=0, start=1.0).path
    x, smoothed = np.ones(2), np.zeros(2)
    for t, (alpha, beta, _, _) in enumerate(steps):
        smoothed = beta * smoothed + (1 - beta) * rows.gradient(x)
        x = x - alpha / (1 - beta) * smoothed
        np.testing.assert_allclose(x, path[t + 1], atol=1e-8)


@given(st.floats(1e-4, 1.0), st.floats(0.01, 1.0))
def test_heavy_balls_momentum_is_the_best_on_quadratics(mu, c):
    """Its slowest root over the spectrum [mu, 1] is 1 - √(alpha mu); other momenta are not faster."""
    alpha = c

    def radius(beta):
        roots = [np.abs(np.roots([1, -(1 + beta - alpha * lam), beta])).max() for lam in (mu, 1.0)]
        return max(roots)

    best = radius(float(es.heavy_ball(mu, 1.0, 1, c=c).beta[0]))
    assert best == pytest.approx(1 - np.sqrt(alpha * mu), abs=1e-6)
    assert all(best <= radius(beta) + 1e-6 for beta in np.linspace(0, 0.99, 34))


@given(st.sampled_from(METHODS), st.floats(0.01, 1.0), st.floats(0.05, 1.0), st.integers(1, 300), st.integers(1, 300))
def test_a_shorter_run_begins_the_longer_one(method, mu, c, short, long):
    """The search for the best number of steps relies on it."""
    short, long = sorted((short, long))
    first, second = method(mu, 1.0, short, c=c), method(mu, 1.0, long, c=c)
    for name in ("alpha", "beta", "gamma", "restart"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name)[:short])


@given(st.floats(0.001, 0.5), st.floats(0.05, 1.0))
def test_every_later_stage_contracts(mu, c):
    """The factor 2 of a restart is more than won back over a stage, for every c."""
    steps = es.multistage(mu, 1.0, 5000, c=c)
    bound = es.bounds.multistage(steps, mu, 1.0)
    starts = np.flatnonzero(steps.restart)
    for begin, end in pairwise(starts):
        assert np.prod(bound.contraction[begin:end]) < 0.3


def test_the_papers_stage_lengths_do_not_contract_when_c_is_small():
    kappa, c = 255.0, 0.1
    length = 4 * np.ceil(np.sqrt(kappa) * np.log(8))
    assert 2 * (1 - np.sqrt(c / 16 / kappa)) ** length > 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: es.nesterov(0.1, 1.0, 0), "T must be at least 1, got 0"),
        (lambda: es.nesterov(0.1, 1.0, 5, c=0), "c must be positive, got 0"),
        (lambda: es.gd(0.1, 1.0, 5, c=-1.0), "c must be positive, got -1.0"),
        (lambda: es.nesterov(0.1, 1.0, 5, c=1.01), r"nesterov needs a step of at most 1/L, got c=1\.01"),
        (lambda: es.multistage(0.1, 1.0, 5, c=1.5), r"multistage needs a step of at most 1/L, got c=1\.5"),
        (lambda: es.gd(0.1, 1.0, 5, c=2.0), r"gradient descent diverges for c >= 2"),
        (lambda: es.heavy_ball(0.1, 1.0, 5, c=3.0), r"heavy_ball needs a step .* at most .* Use c <= 2\.3"),
        (lambda: es.nesterov(0.0, 1.0, 5), r"nesterov needs strong convexity, got mu=0\.0\. Use ridge > 0, or gd"),
        (lambda: es.heavy_ball(0, 1.0, 5), "heavy_ball needs strong convexity"),
        (lambda: es.multistage(0, 1.0, 5), "multistage needs strong convexity"),
        (lambda: es.nesterov(2.0, 1.0, 5), r"mu must lie between 0 and L=1\.0, got 2\.0"),
        (lambda: es.Steps([0.1], [1.0], [0.0], [False]), r"beta must lie in \[0, 1\)"),
        (lambda: es.Steps([-0.1], [0.0], [0.0], [False]), "alpha must be positive"),
        (lambda: es.Steps([0.1, 0.1], [0.0], [0.0], [False]), "beta must be a finite array with one entry per step"),
        (lambda: es.Steps([], [], [], []), "at least one step"),
    ],
)
def test_bad_steps_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
