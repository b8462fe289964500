"""Private sums: the integers they should be, the same in every engine, and no more sensitive than declared."""

import math

import numpy as np
import pytest
from conftest import ENGINES, small_problem
from hypothesis import given
from hypothesis import strategies as st

import epsteps as es
from epsteps import levels
from epsteps.engines import DenseSums, encoding, selftest
from epsteps.grid import ROWS_PER_INT64, STEPS, Grid, total
from epsteps.losses import PseudoHuber, SmoothedHinge

LOSSES = [es.Logistic(), es.Squared(bound=1.5), PseudoHuber(bound=1.5, c=0.6), SmoothedHinge(width=0.2)]
NAMES = ["logistic", "squared", "pseudo-Huber", "smoothed hinge"]
BALLS = [es.Ball(0.7, norm=np.inf), es.Ball(2.5, norm=2), es.Ball(1, norm=1)]


def random_records(problem, rng):
    """Return records of which many lie outside the domain, on its border, or are no numbers at all."""
    X = rng.standard_normal((problem.n, problem.d)) * rng.choice([0.01, 1, 100], (problem.n, 1))
    X[rng.random(X.shape) < 0.02] = np.nan
    X[rng.random(X.shape) < 0.01] = np.inf
    labels = isinstance(problem.loss, es.Logistic | SmoothedHinge)
    y = rng.choice([-1.0, 1.0], problem.n) if labels else rng.uniform(-2, 2, problem.n)
    return X, y


def by_hand(problem, X, y, points):
    """Return the sum with Python's integers."""
    u = encoding.integers(problem, X).astype(np.int64).astype(object)
    margins = (u @ points.coefficients.astype(np.int64).astype(object)).astype(float) * points.step
    targets = problem.loss.encode(y).astype(np.float32)[:, None]
    return u.T @ problem.loss.levels(margins, targets, points.bound).astype(np.int64).astype(object)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("d", [1, 3, 20, 65, 130])
@pytest.mark.parametrize("n", [7, 1003])
def test_sums_are_the_integers_they_should_be(engine, loss, n, d):
    rng = np.random.default_rng([n, d])
    for ball in BALLS:
        problem = es.Problem(loss, ball, ridge=0.1, n=n, d=d, intercept=d % 2 == 0)
        X, y = random_records(problem, rng)
        data = es.Rows(problem, X, y, engine=engine)
        for columns in (1, 2, 5, 20):
            x = rng.standard_normal((problem.dimension, columns)) * np.geomspace(1e-3, 1e3, columns)
            points = Grid(problem).points(x, 1.0)
            np.testing.assert_array_equal(data.sums(points), by_hand(problem, X, y, points))
        subset = rng.permutation(n)[: n // 2 + 1]
        expected = by_hand(problem, X[subset], y[subset], points)
        np.testing.assert_array_equal(data.sums(points, subset), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_accumulators_are_emptied_in_time(engine):
    """All records as large as they may be: a double that takes all of them rounds, and must not."""
    n = 60_011
    problem = small_problem(n=n, d=3)
    X, y = np.random.default_rng(0).uniform(0.9, 1, (n, 3)), np.where(np.arange(n) % 1000 == 0, 1, -1)
    points = Grid(problem).points(np.array([[30.0], [0.3], [0.1]]), 1.0)
    expected = by_hand(problem, X, y, points)
    assert max(map(int, expected[:, 0])) > 2**53
    np.testing.assert_array_equal(es.Rows(problem, X, y, engine=engine).sums(points), expected)


def test_sums_beyond_64_bits_keep_all_their_digits():
    parts = [np.array([2**62 - 1, -(2**62) + 1, k], dtype=np.int64) for k in range(9)]
    expected = [9 * (2**62 - 1), -9 * (2**62 - 1), 36]
    assert total(parts, 9 * ROWS_PER_INT64).tolist() == expected
    assert total(parts[:1], ROWS_PER_INT64).dtype == np.int64


@given(st.sampled_from(BALLS), st.integers(1, 40), st.integers(0, 10_000), st.sampled_from([1e-3, 1.0, 1e200]))
def test_integer_rows_lie_in_the_ball_exactly_and_near_the_projected_row(ball, d, seed, size):
    rows = np.random.default_rng(seed).standard_normal((50, d)) * size
    found = ball.integers(rows, STEPS)
    norm = {1: lambda u: sum(map(abs, u)), 2: lambda u: sum(v * v for v in u), math.inf: lambda u: max(map(abs, u))}
    limit = STEPS**2 if ball.norm == 2 else STEPS
    assert all(norm[ball.norm]([int(v) for v in row]) <= limit for row in found)
    assert np.max(np.abs(found - ball.project(rows) * (STEPS / ball.radius))) <= 1


@given(st.integers(1, 5000), st.integers(0, 1000))
def test_margins_at_grid_points_are_exact(d, seed):
    """The worst case: every coordinate as large as the largest, in points and rows."""
    problem = small_problem(d=d)
    x = np.random.default_rng(seed).choice([-1, 1], (d, 1)) * 1.999999
    points = Grid(problem).points(x, 1.0)
    assert d * STEPS * int(np.max(np.abs(points.coefficients))) <= 2**53
    assert np.max(np.abs(points.coefficients[:, 0] * points.step * STEPS - x[:, 0])) <= 2.0 ** -(
        33 - math.ceil(math.log2(d))
    )


@pytest.mark.parametrize("bound", [0.5, 0.9, 1.0])
def test_logistic_levels_are_the_rounded_slopes(bound):
    margin = np.concatenate([np.linspace(-60, 60, 200_001), [1e30, -1e30, 0.0]])
    for z in (-1.0, 1.0):
        found = levels.logistic(margin, np.full(margin.shape, z), bound)
        exact = np.clip(-z / (1 + np.exp(np.clip(z * margin, -700, 700))) * (STEPS / bound), -STEPS, STEPS)
        assert np.max(np.abs(found - exact)) <= 0.5 + 0.2 / bound
        assert np.all(found == np.rint(found))
        assert np.all((-z * found >= 0) & (-z * found <= STEPS))


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_levels_never_pass_their_limit(loss):
    margin = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 1.0])[:, None]
    for target in (-1.0, 1.0):
        with np.errstate(all="ignore"):
            found = loss.levels(margin, np.full((6, 1), target), np.array([0.3]))
        assert np.all(np.abs(np.nan_to_num(found)) <= STEPS)
        assert not np.any(np.isnan(found[1:]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("norm", [1, 2])
@given(seed=st.integers(0, 10**6))
def test_a_neighbour_moves_the_sum_by_no_more_than_declared(engine, norm, seed):
    """One record replaced by anything, at any point: the integers move by one record's two contributions."""
    rng = np.random.default_rng(seed)
    ball, loss = BALLS[rng.integers(3)], LOSSES[rng.integers(4)]
    problem = es.Problem(loss, ball, ridge=0.1, n=60, d=int(rng.integers(1, 9)), intercept=bool(rng.integers(2)))
    X, y = random_records(problem, rng)
    other, labels = X.copy(), y.copy()
    other[17] = rng.choice([0, np.nan, np.inf, 1e300, 1e-310, 1.0], problem.d)
    labels[17] = rng.choice([-1.0, 1.0, np.nan, 1e9])
    x = rng.standard_normal((problem.dimension, 1)) * 10.0 ** rng.integers(-3, 100)
    bound = loss.slope if math.isfinite(loss.slope) else problem.slope_at(x)
    grid = Grid(problem)
    points = grid.points(x, bound)
    first, second = (es.Rows(problem, *pair, engine=engine).sums(points) for pair in ((X, y), (other, labels)))
    moved = np.abs((first - second).astype(object)[:, 0])
    real = moved * grid.gradient_step(1.0)[:, 0]
    assert np.linalg.norm(real.astype(float), ord=norm) <= 2 * problem.record_size(norm) * (1 + 1e-12)
    alone = [by_hand(problem, A[17:18], b[17:18], points) for A, b in ((X, y), (other, labels))]
    np.testing.assert_array_equal(first - second, alone[0] - alone[1])


def test_sums_are_close_to_the_real_gradient(paper):
    rng = np.random.default_rng(0)
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=20_000, d=20)
    X, y = rng.random((20_000, 20)), rng.choice([-1, 1], 20_000)
    data, grid = es.Rows(problem, X, y), Grid(problem)
    x = rng.standard_normal((20, 3))
    points = grid.points(x, 1.0)
    found = data.sums(points) * grid.gradient_step(1.0) / problem.n + problem.ridge * x
    np.testing.assert_allclose(found, data.gradient(x), atol=2e-8)


class Unflushed:
    """One double takes everything: the mistake that the engines' own test must see."""

    def __init__(self, grid, features, targets):
        self._loss, self._features, self._targets = grid.problem.loss, features.astype(float), targets

    def gradient(self, points, rows=None):
        u, y = (self._features, self._targets) if rows is None else (self._features[rows], self._targets[rows])
        slopes = self._loss.levels((u @ points.coefficients) * points.step, y[:, None], points.bound)
        return (u.T @ slopes.astype(float)).astype(np.int64)


class Sloppy(DenseSums):
    """Right for all records, wrong for given rows."""

    def gradient(self, points, rows=None):
        return super().gradient(points, rows) + (rows is not None)


@pytest.mark.parametrize("wrong", [Unflushed, Sloppy])
def test_an_engine_that_adds_wrongly_is_not_used(wrong):
    with pytest.raises(selftest.SelfTestError, match="the 'wrong' engine does not add integers exactly"):
        selftest.require_exact(wrong, "wrong")
    selftest.require_exact(DenseSums, "numpy")
