"""Several classes: the engines against one record at a time, and integers that no neighbour moves too far."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import logsumexp, softmax

import epsteps as es
from epsteps.data import encoding, sources, stream
from epsteps.data.engine import chosen
from epsteps.problem.grid import STEPS, Grid
from epsteps.problem.losses import Softmax

BALLS = [es.Ball(0.7, norm=np.inf), es.Ball(2.5, norm=2), es.Ball(1, norm=1)]
NAMES = ("a", "b", "c", "d")


def problem_of(ball, k=4, n=200, d=3, intercept=True):
    return es.Problem(Softmax(NAMES[:k]), ball, ridge=0.3, n=n, d=d, intercept=intercept)


def records_of(problem, rng):
    """Return records of which many lie outside the domain, and labels of which some are unknown."""
    X = rng.standard_normal((problem.n, problem.d)) * rng.choice([0, 0.01, 1, 100], (problem.n, 1))
    X[rng.random(X.shape) < 0.1] = 0
    X[rng.random(X.shape) < 0.02] = np.nan
    return X, rng.choice([*problem.loss.classes, "?"], problem.n)


@pytest.fixture(params=["memory", "sparse", "streamed"])
def opened(request, tmp_path, monkeypatch):
    """Return what makes Rows of a problem and its records, from each kind of source."""

    def make(problem, X, y):
        if request.param == "sparse":
            return es.Rows(problem, sparse.csr_array(X), y)
        if request.param == "streamed":
            monkeypatch.setattr(sources, "KEPT", 0)
            monkeypatch.setattr(stream, "BLOCK", 100)
            np.save(tmp_path / "X.npy", X)
            return es.Rows(problem, tmp_path / "X.npy", y)
        return es.Rows(problem, X, y)

    return make


@pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
@pytest.mark.parametrize("ball", BALLS, ids=repr)
def test_value_gradient_and_hessian_equal_their_definitions(opened, ball, intercept):
    rng = np.random.default_rng(0)
    problem = problem_of(ball, intercept=intercept)
    X, y = records_of(problem, rng)
    rows = opened(problem, X, y)
    U, labels = encoding.projected(problem, X), problem.loss.encode(y).astype(int)
    x = rng.standard_normal((problem.dimension, 3)) * 2
    value, gradient = np.zeros(3), np.zeros(x.shape)
    hessian = np.zeros((problem.dimension, problem.dimension))
    for u, label in zip(U, labels, strict=True):
        margin = x.reshape(4, -1, 3).transpose(0, 2, 1) @ u
        p, one = softmax(margin, axis=0), np.eye(4)[label]
        value += logsumexp(margin, axis=0) - margin[label]
        gradient += np.stack([np.kron(p[:, r] - one, u) for r in range(3)], axis=1)
        hessian += np.kron(np.diag(p[:, 0]) - np.outer(p[:, 0], p[:, 0]), np.outer(u, u))
    n, close = problem.n, {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(rows.value(x), value / n + 0.15 * np.sum(x**2, axis=0), **close)
    np.testing.assert_allclose(rows.gradient(x), gradient / n + 0.3 * x, **close)
    np.testing.assert_allclose(rows.gradient(x[:, 0]), gradient[:, 0] / n + 0.3 * x[:, 0], **close)
    np.testing.assert_allclose(rows.hessian(x[:, 0]), hessian / n + 0.3 * np.eye(problem.dimension), **close)
    assert float(rows.value(x[:, 0])) == pytest.approx(float(rows.value(x)[0]), rel=1e-12)
    subset = np.array([7, 3, 7])
    part = es.Rows(problem_of(ball, n=3, intercept=intercept), X[subset], y[subset])
    np.testing.assert_allclose(rows.gradient(x, subset), part.gradient(x), **close)
    assert rows.second_moment().shape == (problem.width, problem.width)


def by_hand(problem, X, y, points):
    """Return the sum with Python's integers, one class after the other."""
    u = encoding.integers(problem, X).astype(np.int64).astype(object)
    blocks = points.coefficients.astype(np.int64).astype(object).reshape(problem.loss.outputs, problem.width, -1)
    margins = np.stack([(u @ block).astype(float) for block in blocks], axis=1) * points.step
    levels = problem.loss.levels(margins, problem.loss.encode(y)[:, None, None], points.bound).astype(np.int64)
    return np.concatenate([u.T @ levels[:, k].astype(object) for k in range(problem.loss.outputs)])


@pytest.mark.parametrize("n", [7, 9001])
def test_sums_are_the_integers_they_should_be(opened, n):
    rng = np.random.default_rng(n)
    problem = problem_of(BALLS[n % 3], n=n)
    X, y = records_of(problem, rng)
    rows = opened(problem, X, y)
    for columns in (1, 3):
        x = rng.standard_normal((problem.dimension, columns)) * np.geomspace(1e-2, 10, columns)
        points = Grid(problem).points(x, rng.uniform(0.5, 1.0, columns))
        found = rows.sums(points)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, by_hand(problem, X, y, points))
        assert not found.reshape(4, problem.width, -1).sum(axis=0).any()  # the classes' gradients cancel
        subset = rng.permutation(n)[:5]
        np.testing.assert_array_equal(rows.sums(points, subset), by_hand(problem, X[subset], y[subset], points))
    wide = Grid(problem).points(x, 1.0)
    real = rows.sums(wide) * Grid(problem).gradient_step(1.0) / n + 0.3 * x
    np.testing.assert_allclose(real, rows.gradient(x), atol=3e-6)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_a_neighbour_moves_the_sum_by_no_more_than_declared(norm, seed):
    """One record replaced by anything, at any point: at most two records' gradients, in every norm."""
    rng = np.random.default_rng(seed)
    problem = problem_of(BALLS[rng.integers(3)], k=int(rng.integers(3, 5)), n=20, intercept=bool(rng.integers(2)))
    X, y = records_of(problem, rng)
    other, labels = X.copy(), y.copy()
    other[17] = rng.choice([0, np.nan, np.inf, 1e300, 1e-310, 1.0, -1.0], problem.d)
    labels[17] = rng.choice([*NAMES, "?"])
    x = rng.standard_normal((problem.dimension, 1)) * 10.0 ** rng.integers(-3, 90)
    bound = float(problem.slope_at(x)[0])
    grid = Grid(problem)
    points = grid.points(x, bound)
    moved = es.Rows(problem, X, y).sums(points) - es.Rows(problem, other, labels).sums(points)
    alone = [by_hand(problem, A[17:18], b[17:18], points) for A, b in ((X, y), (other, labels))]
    np.testing.assert_array_equal(moved, alone[0] - alone[1])
    real = (moved.astype(object)[:, 0] * grid.gradient_step(bound)[:, 0]).astype(float)
    assert np.linalg.norm(real, ord=norm) <= problem.sensitivity_at(x, norm)[0] * (1 + 1e-12)
    assert np.linalg.norm(real, ord=norm) <= 2 * problem.loss.joint_slope(norm) * problem.record_size(norm) * (
        1 + 1e-12
    )


def test_the_worst_neighbour_attains_the_sensitivity():
    """Both records of class 1, one the other's negative, at a point that is certain of class 0 for both."""
    problem = problem_of(es.Ball(1, norm=2), n=2, d=1)
    x = np.zeros((problem.dimension, 1))
    x[1] = 60.0  # the intercept of the first class
    grid, rest = Grid(problem), np.array([0.3])
    points = grid.points(x, 1.0)
    first, second = (es.Rows(problem, np.array([[u], rest]), np.array(["b", "a"])).sums(points) for u in (1.0, -1.0))
    real = (first - second)[:, 0] * grid.gradient_step(1.0)[:, 0]
    assert np.linalg.norm(real) == pytest.approx(2 * np.sqrt(2), rel=1e-5)
    assert int(np.abs(first - second).max()) == 2 * STEPS**2


def test_engines_with_one_margin_per_record_refuse():
    problem = problem_of(BALLS[0], n=3)
    with pytest.raises(ValueError, match=r"engine='fast' computes one margin per record, Softmax has 4\. Use"):
        es.Rows(problem, np.ones((3, 3)), np.array(["a", "b", "c"]), engine="fast")
    assert chosen("auto", problem.loss, 10**9).name == "numpy"
