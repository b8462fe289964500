"""Curvature first: what each release may move by, what its noise is, and how near the minimum the path ends."""

import dataclasses
import importlib
import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.plans import survives_json
from laws.releases import neighbours_publish_the_same, noise, published, reading
from scipy.stats import norm

import epsteps as es
from epsteps.budgets import Budget, Epsilon, Rho
from epsteps.data import encoding
from epsteps.methods.curvature import (
    MATRIX_STEPS,
    MatrixNoise,
    Model,
    Moments,
    Whitening,
    covariance,
    decode_moments,
    definite,
    divide,
    matrix_noise,
    whitening_of,
)
from epsteps.methods.curvature.plan import plan_curvature
from epsteps.methods.curvature.sums import ColumnMeans, SecondMoment, column_means
from epsteps.noise import Source
from epsteps.problem.grid import STEPS

DOMAINS = {
    "box": es.Box(0, 1),
    "ranges": es.Box((-2.0, 0.0, 1.0, 0.0, 0.0), (1.0, 3.0, 1.5, 1.0, 1.0), one_hot=[(3, 5)]),
    "categories": es.Box(one_hot=[(0, 2), (2, 5)]),
    "cube": es.Ball(2.0, norm=np.inf),
    "l1": es.Ball(0.7, norm=1),
    "l2": es.Ball(1.3),
}
BUDGETS = (es.Pure(1.0), es.Concentrated(0.05), es.Approximate(1.0, 1e-5))
KINDS = (Epsilon, Rho)
D = 5


def problem_of(domain, n=300, d=D, **facts) -> es.Problem:
    return es.Problem(es.Logistic(), domain, **({"ridge": 0.1} | facts), n=n, d=d)


def budget_of(kind: type, amount: float = 1.0) -> Budget:
    return es.Pure(amount) if kind is Epsilon else es.Concentrated(amount)


def extreme_rows(n=300, d=D) -> np.ndarray:
    """Return records of all kinds: corners, axes, mild ones, huge ones, and what no number is."""
    rng = np.random.default_rng(0)
    kinds = [
        np.array(list(itertools.product((-1.0, 1.0), repeat=d))) * 4,
        np.concatenate([np.eye(d), -np.eye(d), np.zeros((1, d))]) * 4,
        rng.uniform(-3, 3, (100, d)),
        rng.standard_normal((50, d)) * 1e200,
        rng.choice([np.nan, np.inf, -np.inf, 0.0, 1.0], (50, d)),
    ]
    found = np.concatenate(kinds)
    return np.concatenate([found, rng.uniform(-1, 1, (n - len(found), d))])


def blocks_of(problem: es.Problem) -> np.ndarray:
    rows = es.Rows(problem, extreme_rows(), np.ones(problem.n))
    return np.concatenate([features for features, _ in rows.blocks()])


def integers_of(problem: es.Problem, rows: np.ndarray) -> np.ndarray:
    """Return records as sums read them."""
    return encoding.integers(problem, rows).astype(float)


def whitened(request: SecondMoment, rows: np.ndarray) -> np.ndarray:
    """Return the vectors, with their constant, that records add the outer products of: read off the sums of each."""
    sums = [request.block(row[None, :], np.ones(1)) for row in integers_of(request.problem, rows)]
    vectors = np.array([each[-1] / np.sqrt(each[-1, -1]) for each in sums])
    assert np.array_equal(np.einsum("ij,ik->ijk", vectors, vectors), sums)
    return vectors


def size_of(request: ColumnMeans, moved: np.ndarray) -> np.ndarray:
    """Return the norm, in which the noise is paid for, of each column."""
    mechanism, problem = request.statistic.mechanism, request.statistic.problem
    shape = mechanism.shape(problem)
    return shape.gauge(moved)


@pytest.mark.parametrize(("name", "kind"), list(itertools.product(DOMAINS, KINDS)))
def test_no_record_moves_a_moment_by_more_than_its_noise_is_scaled_for(name, kind):
    problem = problem_of(DOMAINS[name])
    plan = es.plan(problem, budget_of(kind), "curvature")
    features = integers_of(problem, extreme_rows())
    requests = column_means(problem, plan.columns, plan.statistics)
    assert len(requests) == 1 + (name != "categories")
    for request in requests:
        integers = request.encode(features)
        assert np.all(integers == np.rint(integers))
        moved = (integers[:, None] - integers[None]).reshape(-1, integers.shape[1]).T.astype(float)
        allowed = STEPS * request.statistic.problem.sensitivity(request.statistic.mechanism.norm)
        largest = size_of(request, moved).max()
        # A category's corners differ by 2 of its unit, a ball's squares by 2 of theirs.
        assert 0.4 * allowed < largest <= allowed


@pytest.mark.parametrize("name", DOMAINS)
def test_no_record_moves_the_second_moment_by_more_than_its_noise_is_scaled_for(name):
    problem = problem_of(DOMAINS[name])
    whitening = Whitening(np.array([0, 2, 4]), np.array([0.1, -0.2, 0.3]), np.array([2.0, 30.0, 2.0]), 2.0)
    a = whitened(SecondMoment(problem, whitening, Epsilon, 1.0), extreme_rows())
    assert np.all(a == np.rint(a))
    nuclear, frobenius = [], []
    for u, v in itertools.combinations(np.unique(a, axis=0)[::5], 2):
        values = np.linalg.eigvalsh(np.outer(u, u) - np.outer(v, v))
        nuclear.append(np.abs(values).sum())
        frobenius.append(np.sqrt(np.sum(values**2)))
    assert np.all(np.einsum("ij,ij->i", a, a) <= MATRIX_STEPS**2)
    assert 0.25 * MATRIX_STEPS**2 < max(nuclear) <= 2 * MATRIX_STEPS**2 * (1 + 1e-12)
    assert max(frobenius) <= np.sqrt(2) * MATRIX_STEPS**2 * (1 + 1e-12)


def test_two_records_can_use_all_of_the_second_moments_sensitivity():
    """The noise cannot be scaled for less: records at a cosine of -1/3 are orthogonal with their constant."""
    problem = problem_of(es.Box(-1, 1), n=2, d=2)
    whitening = Whitening(np.arange(2), np.zeros(2), np.full(2, 10.0), 1.0)
    angle = np.arccos(-1 / 3)
    rows = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    u, v = whitened(SecondMoment(problem, whitening, Epsilon, 1.0), rows)
    values = np.linalg.eigvalsh(np.outer(u, u) - np.outer(v, v))
    assert 1.99 * MATRIX_STEPS**2 < np.abs(values).sum() <= 2 * MATRIX_STEPS**2
    assert 1.99 * MATRIX_STEPS**4 < np.sum(values**2) <= 2 * MATRIX_STEPS**4


def has_unit_variance(ratios: np.ndarray) -> bool:
    return bool(0.6 < np.mean(ratios**2) < 1.6)


@pytest.mark.parametrize(("name", "kind"), list(itertools.product(DOMAINS, KINDS)))
def test_moments_are_those_of_the_records_and_their_noise_is_as_declared(name, kind):
    """200 draws: a scale that is wrong by 1.5 is rejected, a true one with probability below 1e-4."""
    problem = problem_of(DOMAINS[name])
    plan = es.plan(problem, budget_of(kind, 3.0), "curvature")
    data = es.Rows(problem, extreme_rows(), np.ones(problem.n))
    z = (blocks_of(problem) - plan.columns.centre) / plan.columns.half
    squares = z[:, plan.columns.numeric] ** 2
    exact = (z, squares if isinstance(DOMAINS[name], es.Ball) and DOMAINS[name].norm < 3 else 2 * squares - 1)
    for request, values in zip(column_means(problem, plan.columns, plan.statistics), exact, strict=False):
        sums = reading(request, data)
        assert published(request, sums, np.zeros_like(sums)) == pytest.approx(values.mean(axis=0), abs=4 / STEPS)
        draws = np.array([published(request, 0 * sums, noise(request, Source(seed))) for seed in range(200)])
        ratios = draws / request.statistic.deviations
        assert np.abs(ratios.mean(axis=0)).max() < 5 / np.sqrt(200)
        assert has_unit_variance(ratios)
        assert not has_unit_variance(ratios * 1.5)
        assert not has_unit_variance(ratios / 1.5)


@pytest.mark.parametrize("name", DOMAINS)
def test_moments_are_decoded_as_they_were_released_and_held_in_their_ranges(name):
    """Without noise: the records' own means and variances, where a category's column varies by p (1 - p)."""
    problem = problem_of(DOMAINS[name])
    plan = es.plan(problem, es.Pure(1.0), "curvature")
    columns, features = plan.columns, blocks_of(problem)
    requests = column_means(problem, columns, plan.statistics)
    sums = [reading(request, es.Rows(problem, extreme_rows(), np.ones(problem.n))) for request in requests]
    exact = tuple(published(request, each, 0 * each) for request, each in zip(requests, sums, strict=True))
    found = decode_moments(columns, exact, tuple(np.zeros(len(each)) for each in exact))
    assert found.mean == pytest.approx(features.mean(axis=0), abs=1e-5)
    assert found.variance[columns.numeric] == pytest.approx(features.var(axis=0)[columns.numeric], abs=1e-4)
    held = np.setdiff1d(np.arange(D), columns.numeric)
    assert found.variance[held] == pytest.approx((found.mean * (1 - found.mean))[held])
    least = columns.centre - columns.half * np.isin(np.arange(D), columns.numeric)
    rng = np.random.default_rng(2)
    for _ in range(20):
        released, noises = ([scale * rng.standard_normal(len(each)) for each in exact] for scale in (30.0, 0.2))
        found = decode_moments(columns, tuple(released), tuple(map(np.abs, noises)))
        assert np.all(found.mean >= least)
        assert np.all(found.mean <= columns.centre + columns.half)
        assert np.all(found.variance >= found.variance_noise / 2)
        assert np.all(found.variance <= np.maximum(columns.half**2, found.variance_noise / 2))


def test_the_noise_of_a_variance_is_that_of_its_square_and_its_mean():
    """2000 seeded draws of both, whose deviation is within 10 %: with a chance below 1e-6 to fail."""
    columns, rng = es.plan(problem_of(es.Box(0, 4)), es.Pure(1.0), "curvature").columns, np.random.default_rng(3)
    mean, square, noise = np.full(D, 0.5), np.full(D, 0.1), (np.linspace(0, 0.02, D), np.full(D, 0.01))
    draws = [
        decode_moments(
            columns, (mean + noise[0] * rng.standard_normal(D), square + noise[1] * rng.standard_normal(D)), noise
        )
        for _ in range(2000)
    ]
    expected = decode_moments(columns, (mean, square), noise)
    assert np.std([draw.variance for draw in draws], axis=0) == pytest.approx(expected.variance_noise, rel=0.1)
    assert np.std([draw.mean for draw in draws], axis=0) == pytest.approx(expected.mean_noise, rel=0.1)


@pytest.mark.parametrize("name", DOMAINS)
def test_no_direction_varies_by_more_than_the_columns_allow(name):
    """Half of the records at one corner, half at the opposite one, reach it in a box without categories."""
    columns = es.plan(problem_of(DOMAINS[name]), es.Pure(1.0), "curvature").columns
    largest = np.linalg.eigvalsh(np.cov(blocks_of(problem_of(DOMAINS[name])).T, bias=True)).max()
    assert largest <= columns.largest_variance
    if name in ("box", "cube"):
        assert np.linalg.norm(columns.half) ** 2 == pytest.approx(columns.largest_variance)


def test_limits_of_what_is_released_are_where_they_say():
    """2^30 records with Gaussian noise, and units between 1e-20 and 1e20."""
    es.plan(problem_of(es.Box(0, 1), n=2**30), es.Concentrated(1.0), "curvature")
    with pytest.raises(ValueError, match=r"at most 2\^30 records with Gaussian noise, got n=1073741825"):
        es.plan(problem_of(es.Box(0, 1), n=2**30 + 1), es.Concentrated(1.0), "curvature")
    es.plan(problem_of(es.Box(0, 1), n=2**30 + 1), es.Pure(1.0), "curvature")
    for size in (1e-21, 1e21):
        with pytest.raises(ValueError, match="Declare them in other units"):
            es.plan(problem_of(es.Box(0, size)), es.Pure(1.0), "curvature")


@pytest.mark.parametrize("kind", KINDS)
def test_second_moment_is_that_of_the_records_and_its_noise_is_as_declared(kind):
    """100 draws of 15 and 6 entries: scales wrong by 1.5 are rejected, true ones with probability below 1e-4."""
    problem = problem_of(es.Box(0, 1))
    whitening = Whitening(np.arange(D), np.full(D, 0.4), np.linspace(0.5, 2, D), 1.5)
    request = SecondMoment(problem, whitening, kind, 0.7)
    sums = reading(request, es.Rows(problem, extreme_rows(), np.ones(problem.n)))
    a = (blocks_of(problem) - whitening.mean) * whitening.weights
    a *= np.minimum(1, np.sqrt(1.5) / np.linalg.norm(a, axis=1))[:, None]
    a = np.column_stack([a, np.full(len(a), np.sqrt(0.5))])
    assert published(request, sums, 0 * sums) == pytest.approx(a.T @ a / problem.n, abs=1e-4)
    draws = np.array([published(request, 0 * sums, noise(request, Source(seed))) for seed in range(100)])
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    known = matrix_noise(kind, D + 1, whitening.whole, problem.n, 0.7)
    lower = np.tril_indices(D + 1, -1)
    for entries, deviation in ((draws[:, *lower], known.off), (np.diagonal(draws, axis1=1, axis2=2), known.diagonal)):
        assert has_unit_variance(entries / deviation)
        assert not has_unit_variance(entries / deviation * 1.5)
        assert not has_unit_variance(entries / deviation / 1.5)
        assert np.abs(entries.mean()) < 5 * deviation / np.sqrt(entries.size)


@pytest.mark.parametrize(("kind", "intercept"), list(itertools.product(KINDS, (False, True))))
def test_neighbours_change_nothing_but_the_releases(kind, intercept):
    problem = problem_of(DOMAINS["ranges"], n=300, intercept=intercept)
    plan = es.plan(problem, budget_of(kind, 40.0), "curvature")
    X, y = extreme_rows(), np.where(np.arange(300) % 3, 1.0, -1.0)
    rows = es.Rows(problem, X, y)
    extras = es.run(plan, rows, seed=1).extras
    spent = plan.divide(_moments_of(plan, extras))
    costs = [*(statistic.cost for statistic in plan.statistics), spent.curvature, *spent.gradients]
    assert sum(costs) <= plan.moments + plan.rest
    others = []
    for row, label in (([9.0, -9.0, 9.0, 1.0, 0.0], -1.0), ([np.nan] * D, np.nan), ([-9.0, 9.0, 0.0, 0.0, 1.0], 1.0)):
        other, labels = X.copy(), y.copy()
        other[17], labels[17] = row, label
        others.append(es.Rows(problem, other, labels))
    moved = list(neighbours_publish_the_same(plan, rows, others))
    assert any(np.any(change) for _, change in moved)
    for (request, change), cost in zip(moved, 3 * costs, strict=True):
        assert _loss(request, change.astype(float)) <= cost * (1 + 1e-9)


def _moments_of(plan: es.CurvaturePlan, extras) -> Moments:
    released = tuple(extras[name] for name in ("released_means", "released_squares") if name in extras)
    return decode_moments(plan.columns, released, tuple(statistic.deviations for statistic in plan.statistics))


def _loss(request, moved: np.ndarray) -> float:
    """Return the cost of a change of a request's sums; a gradient's own tests cover that of a gradient."""
    if isinstance(request, ColumnMeans):
        size = float(size_of(request, moved[:, None])[0]) / (request.statistic.scale * STEPS)
        return float(request.statistic.mechanism.kind.amount_of(size))
    if isinstance(request, SecondMoment):
        if request.kind is Epsilon:
            return np.abs(np.linalg.eigvalsh(moved)).sum() / (2 * MATRIX_STEPS**2 / request.cost)
        return np.sum(moved**2) * request.cost / MATRIX_STEPS**4 / 2
    return 0.0


@pytest.mark.parametrize(("name", "amount"), list(itertools.product(DOMAINS, (0.02, 60.0))))
def test_every_domain_is_solved_with_much_noise_and_with_little(name, amount):
    """With much noise no column, or only some, has a covariance; the path stays where the minimum must lie."""
    problem = problem_of(DOMAINS[name], intercept=True)
    plan = es.plan(problem, es.Pure(amount), "curvature")
    data = es.Rows(problem, extreme_rows(), np.where(np.arange(300) % 3, 1.0, -1.0))
    run = es.run(plan, data, seed=2)
    path, extras = run.path, run.extras
    assert path.shape == (4, D + 1)
    assert np.linalg.norm(path, axis=1).max() <= np.sqrt(2 * problem.start_gap / plan.ridge) * (1 + 1e-12)
    assert extras["covariance"].shape == (D, D)
    if amount > 1:
        assert data.value(path[-1]) < data.value(path[0])


@pytest.mark.parametrize(("name", "budget"), list(itertools.product(DOMAINS, BUDGETS)))
def test_plan_certifies_its_budget_and_reads_back(name, budget):
    plan = es.plan(problem_of(DOMAINS[name], intercept=True), budget, "curvature")
    assert 0.99 * budget.amount < plan.spent <= budget.amount
    survives_json(plan)
    assert "curvature first" in str(plan)
    assert sum(charge.cost.amount for charge in plan.charges) <= (plan.moments + plan.rest) * (1 + 1e-12)
    changed = json.loads(plan.to_json())
    changed["moments"] *= 0.5
    with pytest.raises(ValueError, match="the plan was changed"):
        es.CurvaturePlan.from_json(json.dumps(changed))
    with pytest.raises(es.OverspentError, match="Make the plan anew"):
        dataclasses.replace(plan, rest=plan.rest * 1.1)


@given(st.integers(0, 2**32), st.floats(-4, 4), st.sampled_from(BUDGETS))
def test_costs_never_add_up_to_more_than_the_rest(seed, size, budget):
    plan = es.plan(problem_of(DOMAINS["ranges"], n=10_000), budget, "curvature")
    rng = np.random.default_rng(seed)
    moments = Moments(*(10.0**size * rng.exponential(size=(4, D)) ** 3))
    division = plan.divide(moments)
    assert division.curvature + sum(division.gradients) <= plan.rest
    assert min(division.curvature, *division.gradients) > 0
    if plan.noise.kind is Rho:
        assert division == plan.expected


@pytest.mark.parametrize("loss", [es.Logistic(), es.Squared(1.0)])
def test_model_is_that_of_gaussian_records(loss):
    """Against a mean over 2^18 Gaussian records in pairs m ± z; the labels' part is constant."""
    rng = np.random.default_rng(1)
    root, mean, x = rng.standard_normal((4, 4)) / 2, rng.standard_normal(4), rng.standard_normal(4)
    z = rng.standard_normal((2**17, 4)) @ root.T
    u = mean + np.concatenate([z, -z])
    model = Model(loss, mean, root @ root.T, ridge=0.1)
    sampled = u.T @ (loss.derivative(u @ x, 1.0) - loss.derivative(0.0, 1.0)) / len(u) + 0.1 * x
    # 2^17 pairs leave an error of about 0.003.
    assert model.gradient(x) == pytest.approx(sampled, abs=0.02)
    target = rng.standard_normal(4) * 0.1
    found = model.minimum(np.zeros(4), target)
    assert model.gradient(found) - model.gradient(np.zeros(4)) == pytest.approx(-target, abs=1e-9)


def correlated(problem: es.Problem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features with uniform marginals whose correlation falls as 0.6^|i-j|, and signs of a linear function."""
    rng = np.random.default_rng(seed)
    place = np.arange(problem.d)
    root = np.linalg.cholesky(0.6 ** np.abs(place[:, None] - place))
    X = norm.cdf(rng.standard_normal((problem.n, problem.d)) @ root.T)
    return X, np.where(X @ rng.standard_normal(problem.d) + 0.3 > 0, 1.0, -1.0)


def excess_and_limit(problem: es.Problem, y, X, plan: es.CurvaturePlan, seeds) -> tuple[np.ndarray, float]:
    """Return F(x) - F* of each seed, and the error of one gradient at the minimum with the whole budget."""
    data = es.Rows(problem, X, y)
    best = np.zeros(problem.dimension)
    for _ in range(50):
        best = best - np.linalg.solve(data.hessian(best), data.gradient(best))
    covariance, units = plan.noise.covariance(problem)
    full = covariance.matrix * np.outer(units, units)
    bounded = problem.has_bounded_sensitivity
    sensitivity = problem.sensitivity(plan.noise.norm) if bounded else problem.sensitivity_at(best, plan.noise.norm)
    scale = sensitivity / (plan.moments + plan.rest) / problem.n
    limit = 0.5 * scale**2 * np.trace(np.linalg.solve(data.hessian(best), full))
    last = np.array([es.run(plan, data, seed=seed).x for seed in seeds])
    return data.value(last.T) - data.value(best), limit


@pytest.mark.parametrize("intercept", [False, True])
def test_correlated_records_are_solved_within_three_times_the_limit(intercept):
    """The paper's kind of problem, smaller; about 1.9 is typical, and steps of descent leave 50 and more."""
    problem = problem_of(es.Box(0, 1), n=40_000, d=8, ridge=0.02, intercept=intercept)
    X, y = correlated(problem, 5)
    plan = es.plan(problem, es.Pure(2.0), "curvature")
    excess, limit = excess_and_limit(problem, y, X, plan, range(10))
    assert 0.5 * limit < excess.mean() < 3 * limit


def test_least_squares_are_solved():
    problem = es.Problem(es.Squared(1.0), es.Box(-1, 1), ridge=0.02, n=40_000, d=6)
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (problem.n, 6)) @ np.linalg.qr(rng.standard_normal((6, 6)))[0] / 2
    y = X @ rng.standard_normal(6) / 2 + 0.1 * rng.standard_normal(problem.n)
    plan = es.plan(problem, es.Pure(2.0), "curvature")
    excess, limit = excess_and_limit(problem, y, X, plan, range(8))
    assert excess.mean() < 3 * limit


@pytest.mark.parametrize("budget", BUDGETS)
def test_more_budget_is_never_guessed_to_be_worse(budget):
    """An (epsilon, delta) budget may be spent as a pure one, so that it is at least as good."""
    problem = problem_of(es.Box(0, 1), n=100_000, d=20, ridge=0.02)
    errors = [
        es.plan(problem, dataclasses.replace(budget, **{_size(budget): e}), "curvature").utility.expected
        for e in (0.2, 1.0, 5.0)
    ]
    assert errors[0] >= errors[1] >= errors[2]
    if isinstance(budget, es.Approximate):
        assert (
            es.plan(problem, budget, "curvature").utility.expected
            <= es.plan(problem, es.Pure(budget.epsilon), "curvature").utility.expected
        )


def _size(budget) -> str:
    return "rho" if isinstance(budget, es.Concentrated) else "epsilon"


def test_what_is_not_covered_is_refused():
    with pytest.raises(TypeError, match=r"a model for Logistic\(\) and Squared\(\), got SmoothedHinge.*Use a plan of"):
        es.plan(es.Problem(es.SmoothedHinge(), es.Box(0, 1), ridge=0.1, n=100, d=3), es.Pure(1.0), "curvature")
    with pytest.raises(ValueError, match=r"use clip=None, got 0\.5"):
        es.plan(problem_of(es.Box(0, 1), clip=0.5), es.Pure(1.0), "curvature")
    with pytest.raises(ValueError, match=r"does not cover gaussian noise\. Use mechanism='auto'"):
        es.plan(problem_of(es.Box(0, 1)), es.Pure(1.0), "curvature", mechanism="gaussian")


def test_whether_descent_is_expected_to_be_better_does_not_depend_on_the_targets_unit():
    """Noise and start both grow with the square of the bound, where no ridge is added."""
    every = set()
    for epsilon in (0.002, 0.02, 0.1, 1.0, 10.0):
        found = set()
        for bound in (1e-3, 0.03, 0.5):
            problem = es.Problem(es.Squared(bound), es.Box(0, 1), ridge=0.5, n=20_000, d=20)
            plans = [es.plan(problem, es.Pure(epsilon), method) for method in ("curvature", "descent")]
            found.add(min(plans, key=lambda plan: plan.utility.expected).method)
        assert len(found) == 1
        every |= found
    assert every == {"nesterov", "curvature first"}


def test_the_expected_error_holds_the_bias_of_more_ridge():
    """Of the same plan, it is larger where less ridge was asked for."""
    plan = es.plan(problem_of(es.Box(0, 1), n=3000), es.Pure(0.3), "curvature")
    assert plan.ridge >= 0.1
    other = dataclasses.replace(plan, problem=problem_of(es.Box(0, 1), n=3000, ridge=0.02))
    assert other.utility.expected > plan.utility.expected


@pytest.mark.parametrize("kind", KINDS)
def test_points_are_shortened_to_where_the_first_gradient_allows_them(kind):
    """ridge/2 |x|² + g'x, less one deviation of the noise along x, is at most 0; no longer multiple of x has that."""
    plan, rng = es.plan(problem_of(es.Box(0, 1)), budget_of(kind, 0.5), "curvature"), np.random.default_rng(4)
    kinds = set()
    for _ in range(60):
        x, gradient = (
            rng.standard_normal(D) * 10 ** rng.uniform(-2, 1),
            rng.standard_normal(D) * 10 ** rng.uniform(-3, 1),
        )
        noise = plan.noise_at(np.zeros(D), 0.2)

        def worth(point, gradient=gradient, noise=noise):
            return gradient @ point - np.sqrt(point @ noise @ point) + plan.ridge / 2 * (point @ point)

        found = plan.held(x, gradient, 0.2)
        inside = x * min(1.0, plan.radius / np.linalg.norm(x))
        share = float(found @ inside / (inside @ inside))
        assert found == pytest.approx(share * inside)
        assert worth(found) <= 1e-9
        if share < 1 - 1e-9:
            assert worth((share + 0.01) * inside) > 0
        kinds.add("all" if share > 1 - 1e-9 else "part" if share > 0 else "none")
    assert kinds >= {"all", "none"}


@pytest.mark.parametrize(("kind", "power"), [(Epsilon, 1.0), (Rho, 0.5)])
def test_the_curvature_gets_more_than_a_tenth_only_where_a_tenth_would_not_do(kind, power):
    """The error of the Hessian falls as share^-power: it is 0.12, or what a tenth buys, or 0.7 for up to 0.3 of all."""
    kinds = set()
    for n in np.geomspace(1e2, 1e7, 60).astype(int):
        moments = Moments(np.zeros(D), np.ones(D), np.full(D, 0.1), np.full(D, 0.1))
        found = divide(moments, kind, 0.25, 1e-3, int(n), 0.02, 0.002)
        share = found.curvature / 0.02
        tenth = found.error * (share / 0.1) ** power
        if tenth <= 0.12:
            assert 0.04 <= share <= 0.1 + 1e-12
            assert found.error <= 0.12 + 1e-12
        elif tenth <= 0.75:
            assert share == pytest.approx(0.1)
        elif share > 0.1 + 1e-12:
            assert share <= 0.3
            assert found.error == pytest.approx(0.7)
        else:
            assert tenth / 3**power > 0.7
        kinds.add(share > 0.1 + 1e-12)
    assert kinds == {False, True}


def combined(rng, noise: float, unit: float = 1.0, mean_noise: float = 0.1):
    """Return records in a box of this half-width, and what their moments and their whitened second moment say of them.

    The released means are off by their noise; nothing else is.
    """
    columns = es.plan(problem_of(es.Box(-unit, unit)), es.Pure(1.0), "curvature").columns
    records = unit * np.clip(rng.standard_normal((400, D)) @ rng.standard_normal((D, D)) / 8, -1, 1)
    mean = records.mean(axis=0) + unit * mean_noise * rng.standard_normal(D)
    spread = records.var(axis=0)
    moments = Moments(mean, spread, np.full(D, unit * mean_noise), 0.02 * spread)
    whitening = Whitening(np.arange(D), mean, 1 / np.sqrt(spread), 4.0 * D)
    a = np.column_stack([(records - mean) * whitening.weights, np.full(400, whitening.constant)])
    k = D + 1
    known = MatrixNoise(k, noise, noise, np.sqrt(2 * k) * noise)
    return records, covariance(columns, moments, whitening, a.T @ a / 400, known, 0.25), known


def test_without_noise_the_covariance_and_the_mean_are_those_of_the_records():
    """The constant coordinate's products mend a mean that was released with noise."""
    for seed in range(5):
        records, found, _ = combined(np.random.default_rng(seed), noise=1e-9)
        assert found.mean == pytest.approx(records.mean(axis=0), abs=1e-6)
        assert found.covariance == pytest.approx(np.cov(records.T, bias=True), abs=1e-6)


@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0])
def test_the_covariance_does_not_depend_on_the_columns_units(noise):
    for seed in range(5):
        one, thousand = (combined(np.random.default_rng(seed), noise, unit)[1] for unit in (1.0, 1024.0))
        assert thousand.mean == pytest.approx(1024 * one.mean)
        assert thousand.covariance == pytest.approx(1024**2 * one.covariance)


@pytest.mark.parametrize("noise", [0.1, 0.25])
def test_no_eigenvalue_is_believed_far_below_the_noises_largest(noise):
    """Whitened: half of the noise's edge where all the correlations are kept, and more where noise is large."""
    for seed in range(5):
        records, found, known = combined(np.random.default_rng(seed), noise)
        scale = 1 / records.std(axis=0)
        least = np.linalg.eigvalsh(found.covariance * np.outer(scale, scale)).min()
        assert least >= 0.4 * known.edge


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_plan_divides_all_of_the_budget(kind):
    """Shares of the second moment and of every gradient: with that of the moments they are 100 %, but for rounding."""
    plan = es.plan(problem_of(es.Box(0, 1), n=100_000), budget_of(kind), "curvature")
    shares = [float(number) for number in re.findall(r"([\d.-]+)%", plan.facts["Division"])]
    assert len(shares) == 1 + len(plan.expected.gradients)
    assert min(shares) > 0
    assert sum(shares) + 100 * plan.moments / (plan.moments + plan.rest) == pytest.approx(100, abs=0.3)


def test_descent_is_expected_to_be_better_where_noise_hides_the_curvature():
    hidden, seen = problem_of(es.Box(0, 1), n=20_000, d=50), problem_of(es.Box(0, 1), n=100_000, d=20)
    for problem, epsilon, best in ((hidden, 0.1, "descent"), (seen, 1.0, "curvature")):
        plans = {name: es.plan(problem, es.Pure(epsilon), name) for name in ("curvature", "descent")}
        assert min(plans, key=lambda name: plans[name].utility.expected) == best


def hostile_matrix(k: int, largest: float, seed: int) -> np.ndarray:
    """Return a symmetric matrix whose entries are of every size up to the largest."""
    rng = np.random.default_rng(seed)
    entries = rng.choice([-1.0, 1.0], (k, k)) * 10.0 ** rng.uniform(-3, np.log10(largest), (k, k))
    return np.tril(entries) + np.tril(entries, -1).T


def hostile(rng, d: int, size: float) -> np.ndarray:
    """Return numbers that noise could make: all huge, one huge, all equal, or none."""
    kinds = (rng.standard_normal(d), np.eye(1, d, int(rng.integers(d)))[0], np.ones(d), np.zeros(d))
    return size * kinds[int(rng.integers(4))] * rng.choice([-1.0, 1.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("d", [1, 2, 5, 60, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("loss", "kind"), list(itertools.product((es.Logistic(), es.Squared(1e3)), KINDS)))
def test_whatever_is_released_the_path_is_finite_and_stays_where_the_minimum_may_lie(loss, kind, d):
    """Everything after the releases, with numbers of every size in their place: no exception and no warning."""
    domain = es.Box(-np.linspace(1e-3, 2, d), np.full(d, 50.0))
    for seed, size in enumerate((0.0, 1e-9, 1.0, 1e6, 1e40) if d < 300 else (1e6,)):
        rng = np.random.default_rng(seed)
        problem = es.Problem(loss, domain, ridge=1e-6, n=10**6, d=d, intercept=bool(seed % 2))
        plan = es.plan(problem, budget_of(kind, 300.0), "curvature")
        released = tuple(hostile(rng, d, size) for _ in plan.statistics)
        moments = decode_moments(plan.columns, released, tuple(s.deviations for s in plan.statistics))
        division = plan.divide(moments)
        assert division.curvature + sum(division.gradients) <= plan.rest
        whitening = whitening_of(moments, kind, plan.curvature, plan.ridge, problem.n, division.curvature)
        found = noise = None
        if whitening is not None:
            found = hostile_matrix(len(whitening.columns) + 1, max(size, 1e-2), seed)
            noise = whitening.noise(kind, problem.n, division.curvature)
        spread = covariance(plan.columns, moments, whitening, found, noise, plan.curvature)
        assert np.linalg.eigvalsh(spread.covariance)[0] >= -1e-9 * plan.columns.largest_variance
        model, path, gradients = plan.model(spread), [np.zeros(problem.dimension)], []
        for _ in division.gradients:
            gradients.append(hostile(rng, problem.dimension, size))
            model, x = plan.following(model, division.gradients, path, gradients)
            assert np.all(np.isfinite(x))
            assert np.linalg.norm(x) <= plan.radius * (1 + 1e-9)
            first = plan.possible(path[0], gradients[0])
            granted = np.sqrt(x @ plan.noise_at(path[0], division.gradients[0]) @ x)
            least = first @ x + plan.ridge / 2 * x @ x - granted
            assert least <= 1e-9 * (abs(first @ x) + granted)
            path.append(x)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(20))
def test_a_model_is_finite_whatever_it_is_corrected_by(seed):
    """Changes of gradients that no convex function has, in tiny steps and in large ones."""
    rng = np.random.default_rng(seed)
    d = 8
    root = rng.standard_normal((d, d))
    model = Model(es.Logistic(), rng.standard_normal(d), root @ root.T, 1e-6, radius=1e3, largest=1e3)
    points = [hostile(rng, d, 10.0 ** rng.uniform(-160, 3)) for _ in range(4)]
    for before, after in itertools.pairwise(points):
        change = hostile(rng, d, 10.0 ** rng.uniform(-200, 100))
        model = model.corrected(before, after, change, 10.0 ** rng.uniform(-30, 30) * np.eye(d))
        assert np.abs(model.correction).max() <= 6e3
        found = model.minimum(after, hostile(rng, d, 10.0 ** rng.uniform(-100, 60)))
        assert np.all(np.isfinite(found))
        assert np.linalg.norm(found) <= 2e3 * (1 + 1e-9)


@pytest.mark.filterwarnings("error")
def test_uniform_features_in_fifty_dimensions_are_solved_and_not_worse_than_no_model():
    """The Hessian became indefinite here, and half of the runs ended in an error."""
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=1e-3, n=50_000, d=50)
    rng = np.random.default_rng(0)
    X, w = rng.uniform(0, 1, (problem.n, 50)), rng.standard_normal(50)
    data = es.Rows(problem, X, np.where((X - 0.5) @ w + 0.3 * rng.standard_normal(problem.n) > 0, 1.0, -1.0))
    plan = es.plan(problem, es.Pure(1.0), "curvature")
    values = [data.value(es.run(plan, data, seed=seed).x) for seed in (0, 2, 3)]
    assert max(values) < 0.8 * np.log(2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("d", "n", "amount"), [(20, 1000, 0.1), (60, 1000, 0.5), (100, 500, 1.0)])
def test_where_noise_hides_everything_the_path_stays_at_0(d, n, amount):
    """Noise alone would cost more than the model 0 does: without the rule runs ended at up to 12 times its error."""
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=1e-3, n=n, d=d)
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (n, d))
    data = es.Rows(problem, X, np.where((X - 0.5) @ rng.standard_normal(d) > 0, 1.0, -1.0))
    for seed in range(3):
        x = es.run(es.plan(problem, es.Pure(amount), "curvature"), data, seed=seed).x
        assert data.value(x) <= 1.02 * np.log(2)


@pytest.mark.parametrize(
    "budget", [es.Pure(1e-9), es.Pure(1e9), es.Concentrated(1e-40), es.Concentrated(1e30)], ids=str
)
def test_a_budget_whose_noise_cannot_be_drawn_is_refused_with_the_plan(budget):
    problem = problem_of(es.Box(0, 1))
    with pytest.raises(ValueError, match="does not fit the integers that the curvature method releases"):
        plan_curvature(problem, budget)
    if budget.amount < 1e14:
        assert es.plan(problem, budget, release="iterates").method != "curvature first"


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize(
    "budget", [es.Pure(2e-6), es.Pure(1e6), es.Concentrated(1e-13), es.Concentrated(1e12)], ids=str
)
def test_all_noise_of_a_plan_can_be_drawn(name, budget):
    problem = problem_of(DOMAINS[name])
    plan = es.plan(problem, budget, "curvature")
    assert np.all(np.isfinite(es.run(plan, es.Rows(problem, extreme_rows(), np.ones(300)), seed=0).path))


def test_units_whose_squares_are_no_numbers_are_refused_with_the_plan():
    for domain in (es.Box(0, 1e30), es.Ball(1e-30)):
        with pytest.raises(ValueError, match="Declare them in other units"):
            es.plan(problem_of(domain), es.Pure(1.0), "curvature")


def test_a_declared_smoothness_grows_with_the_ridge():
    """It could be below the ridge that noise makes worth its bias, which no problem has."""
    plan = es.plan(problem_of(es.Box(0, 1), n=10, ridge=1e-3, smoothness=0.01), es.Pure(0.1), "curvature")
    assert plan.ridge > 0.01
    smoothness = plan.minimised.L
    assert smoothness == pytest.approx(0.01 + plan.ridge - 1e-3)


def test_an_approximate_budget_in_pure_noise_is_charged_the_sum_of_epsilons():
    """Costs that follow released numbers compose by their sum alone; numerical composition needs them fixed."""
    problem = problem_of(es.Box(0, 1), n=100_000)
    plan = es.plan(problem, es.Approximate(1.0, 1e-5), "curvature", mechanism="hull")
    assert plan.spending(3).amount == pytest.approx(3 * (plan.moments + plan.rest))
    assert plan.spending().delta == 1e-5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("length", [1e-140, 1e-6, 1.0])
def test_a_change_that_no_smooth_function_has_corrects_nothing(length):
    model = Model(es.Logistic(), np.zeros(2), np.eye(2), 0.1, radius=10.0, largest=2.0)
    before, after = np.array([0.5, 0.0]), np.array([0.5 + length, 0.0])
    steep, mild = (np.array([slope * (after[0] - before[0]), 0.0]) for slope in (1e6, 0.5))
    assert model.corrected(before, after, steep, 1e-300 * np.eye(2)) is model
    if length == 1.0:
        assert model.corrected(before, after, mild, 1e-300 * np.eye(2)) is not model


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("loss", [es.Logistic(), es.Squared(2.0)])
def test_a_released_gradient_counts_as_no_longer_than_a_gradient_can_be(loss):
    problem = es.Problem(loss, es.Box(0, 1), ridge=0.1, n=1000, d=4)
    plan, x = es.plan(problem, es.Pure(1.0), "curvature"), np.array([1.0, -2.0, 0.0, 0.5])
    largest = float(problem.gradient_size(problem.slope_at(x), 2))
    for size in (1e3, 1e200):
        found = plan.possible(x, np.full(4, size)) - plan.ridge * x
        assert found == pytest.approx(np.full(4, largest / 2), rel=1e-2)
        assert np.linalg.norm(found) == pytest.approx(largest)
    inside = plan.ridge * x + np.full(4, 0.1)
    assert plan.possible(x, inside) == pytest.approx(inside)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("budget", [es.Pure(0.01), es.Concentrated(1e-7), es.Approximate(0.01, 1e-6)], ids=str)
def test_where_nothing_can_be_learnt_the_default_is_hardly_worse_than_0(budget):
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=1e-3, n=500, d=20)
    plan = es.plan(problem, budget, release="iterates")
    rng = np.random.default_rng(2)
    data = es.Rows(problem, rng.uniform(0, 1, (500, 20)), np.where(rng.random(500) < 0.5, 1.0, -1.0))
    for seed in range(3):
        assert data.value(es.run(plan, data, seed=seed).x) < 1.02 * np.log(2)


def heavy_tails(kind: str, n: int, d: int) -> np.ndarray:
    """Return records in [0, 1]^d, a few of which are far out: in any column, in all of them at once, or rarely."""
    rng = np.random.default_rng(0)
    if kind == "any":
        return np.minimum(np.exp(2 * rng.standard_normal((n, d))) / 400, 1.0)
    if kind == "all":
        return np.minimum(np.exp(1.5 * rng.standard_normal((n, 1)) + 0.5 * rng.standard_normal((n, d))) / 200, 1.0)
    return np.where(rng.random((n, d)) < 0.01, 1.0, 0.05 * rng.random((n, d)))


@pytest.mark.parametrize(("kind", "epsilon"), [("any", 20.0), ("all", 20.0), ("rare", 5.0)])
def test_heavy_tails_lead_no_step_too_far(kind, epsilon):
    """Shortened records lose most of such columns' variance: steps went two to ten times too far, and ended above 0."""
    problem = es.Problem(es.Squared(1.0), es.Box(0, 1), ridge=1e-4, n=20_000, d=8)
    X, rng = heavy_tails(kind, problem.n, problem.d), np.random.default_rng(1)
    y = np.clip(X @ rng.standard_normal(8) + 0.1 * rng.standard_normal(problem.n), -1, 1)
    excess, _ = excess_and_limit(problem, y, X, es.plan(problem, es.Pure(epsilon), "curvature"), range(6))
    data = es.Rows(problem, X, y)
    best = np.linalg.solve(data.hessian(np.zeros(8)), -data.gradient(np.zeros(8)))
    assert excess.mean() < 0.1 * (data.value(np.zeros(8)) - data.value(best))


HOSTILE = ("uniform", "collinear", "constant", "rare", "far out", "empty")


def hostile_design(kind: str, n: int, d: int, rng) -> tuple[es.Box, np.ndarray]:
    """Return a domain and records in it that leave moments without an inverse, or make them say little."""
    X = rng.uniform(0, 1, (n, d))
    if kind == "collinear":
        X = np.repeat(X[:, : 1 + d // 10], 11, axis=1)[:, :d]
    elif kind == "constant":
        X[:, rng.random(d) < 0.8] = 0.37
    elif kind == "rare":
        chosen = np.minimum(rng.geometric(0.5, n) - 1, d - 1)  # categories that nearly nobody has
        return es.Box(one_hot=[(0, d)]), np.eye(d)[chosen]
    elif kind == "far out":
        X = np.where(rng.random((n, d)) < 1 / n, 1.0, 0.0)
    elif kind == "empty":
        X = np.zeros((n, d))
    return es.Box(0, 1), X


def hostile_run(seed: int, largest: int) -> None:
    """Run curvature first on a design, size, ridge, loss and budget that the seed draws: nothing may surface."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.choice([2, 30, 400, 5000])), int(rng.choice([2, 5, 20, 60, 150, 300]))
    domain, X = hostile_design(str(rng.choice(HOSTILE)), n, min(d, largest), rng)
    loss, ridge = (es.Logistic(), es.Squared(1.0))[seed % 2], float(rng.choice([1e-9, 1e-6, 1e-3, 1.0, 1e6, 1e12]))
    problem = es.Problem(loss, domain, ridge=ridge, n=n, d=X.shape[1], intercept=bool(rng.integers(2)))
    amount = float(10 ** rng.uniform(-4, 3))
    budget = (es.Pure(amount), es.Approximate(amount, 1e-5), es.Concentrated(amount**2 / 2))[seed % 3]
    targets = np.ones(n) if rng.random() < 0.3 else np.where(rng.random(n) < 0.5, 1.0, -1.0)
    run = es.run(es.plan(problem, budget, "curvature"), es.Rows(problem, X, targets), seed=seed)
    assert np.all(np.isfinite(run.path))
    assert np.linalg.norm(run.path, axis=1).max() <= run.plan.radius * (1 + 1e-9)


@pytest.mark.filterwarnings("error")
def test_hostile_designs_end_no_run():
    for seed in range(36):
        hostile_run(seed, largest=60)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_thousand_hostile_designs_end_no_run():
    for seed in range(1000):
        hostile_run(seed, largest=300)


def test_eigenvalues_that_do_not_converge_are_replaced_by_larger_ones(monkeypatch):
    """LAPACK has failed on matrices that were released, and an exception after the charge would tell so."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((6, 6))
    matrix = matrix + matrix.T

    def diverges(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(importlib.import_module(definite.__module__), "eigh", diverges)
    monkeypatch.setattr(np.linalg, "eigh", diverges)
    found = definite(matrix, 0.1)
    assert np.linalg.eigvalsh(found.matrix - matrix).min() >= -1e-9
    assert np.linalg.eigvalsh(found.matrix).min() >= 0.1


def test_a_corrected_model_changes_as_the_gradients_did():
    """Without noise the secant equation holds: the model's gradient changes by what was released."""
    model = Model(es.Squared(1.0), np.zeros(2), np.diag([1.0, 2.0]), 0.1, radius=10.0, largest=10.0)
    before, after = np.zeros(2), np.array([1.0, -0.5])
    change = np.array([[2.0, 0.3], [0.3, 1.5]]) @ after
    corrected = model.corrected(before, after, change, 1e-300 * np.eye(2))
    np.testing.assert_allclose(corrected.gradient(after) - corrected.gradient(before), change, rtol=1e-9)


def test_repetitions_may_release_matrices_of_other_sizes():
    # Whether there is a second moment, and of which columns, depends on the moments that were released before.
    n, d = 600, 6
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (n, d)) * np.geomspace(1, 0.03, d), np.where(rng.random(n) < 0.5, 1, -1)
    problem = es.Problem(es.Logistic(), es.Box(-1, 1), ridge=1e-3, n=n, d=d)
    plan, rows = es.plan(problem, es.Pure(1.5), "curvature"), es.Rows(problem, X, y)
    together = es.run(plan, rows, seed=1, repetitions=12)
    missing = np.isnan(together.extras["released_second_moment"]).all(axis=(0, 1))
    assert 0 < missing.sum() < 12
    assert together.path.shape == (4, d, 12)
    assert np.all(np.isfinite(together.path))
    first = es.run(plan, rows, seed=1)
    assert np.array_equal(first.path, together.path[..., 0])
    assert ("released_second_moment" in first.extras) == (not missing[0])
