"""Clipped gradients: what clipping every record's gradient by hand gives, and never longer, to the last integer."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from conftest import ENGINES
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import epsteps as es
from epsteps.data import encoding, sources, stream
from epsteps.data.dense import DenseEngine
from epsteps.data.slopes import steepest
from epsteps.problem.grid import STEPS, Grid
from epsteps.problem.losses import PseudoHuber, SmoothedHinge, Softmax

LOSSES = [
    es.Logistic(),
    es.CappedLogistic(cap=0.7),
    es.Squared(bound=1.5),
    PseudoHuber(bound=1.5, c=0.6),
    SmoothedHinge(width=0.2),
    Softmax((-1, 0, 1, 2)),
]
BALLS = [es.Ball(0.7, norm=np.inf), es.Ball(2.5, norm=2), es.Ball(3e-4, norm=1)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def problem_of(loss, ball, clip, n=60, d=4, intercept=True):
    return es.Problem(loss, ball, ridge=0.1, n=n, d=d, intercept=intercept, clip=clip)


def records_of(problem, rng):
    """Return records of all lengths, empty ones, and some that are no numbers."""
    X = rng.standard_normal((problem.n, problem.d)) * rng.choice([0, 1e-4, 1, 100], (problem.n, 1))
    X[rng.random(X.shape) < 0.2] = 0
    X[rng.random(X.shape) < 0.02] = np.nan
    return X, rng.integers(-1, 3, problem.n).astype(float)


def gradients_by_hand(problem, X, y, x):
    """Return every record's loss gradient at one point, shortened one by one."""
    loss, u = problem.loss, encoding.projected(problem, X)
    found = []
    for row, target in zip(u, loss.encode(y), strict=True):
        margin = x.reshape(loss.outputs, -1) @ row
        slope = (
            loss.derivative(margin[None], np.array([[target]]))[0]
            if loss.outputs > 1
            else loss.derivative(margin, target)
        )
        gradient = np.outer(slope, row).ravel()
        found.append(gradient * min(1.0, problem.clip / max(np.linalg.norm(gradient), 1e-300)))
    return np.array(found)


@each_loss
@pytest.mark.parametrize("ball", BALLS, ids=repr)
@pytest.mark.parametrize("clip", [1e-4, 0.3, 50.0])
def test_the_mean_of_clipped_gradients_is_that_computed_one_by_one(loss, ball, clip):
    rng = np.random.default_rng(0)
    problem = problem_of(loss, ball, clip)
    X, y = records_of(problem, rng)
    x = rng.standard_normal((problem.dimension, 2)) * 3
    expected = np.stack([gradients_by_hand(problem, X, y, column).mean(axis=0) for column in x.T], axis=1)
    for features in (X, sparse.csr_array(X)):
        rows = es.Rows(problem, features, y)
        np.testing.assert_allclose(rows.gradient(x) - 0.1 * x, expected, rtol=1e-9, atol=1e-12 * clip)
        some = np.array([3, 5, 3])
        found = rows.gradient(x[:, 0], some) - 0.1 * x[:, 0]
        alone = gradients_by_hand(problem, X[some], y[some], x[:, 0]).mean(axis=0)
        np.testing.assert_allclose(found, alone, rtol=1e-9, atol=1e-12 * clip)


@each_loss
@pytest.mark.parametrize("ball", BALLS, ids=repr)
def test_integer_sums_are_close_to_the_clipped_gradients(loss, ball):
    """Within a step of the slope for each record: the grid's error, no other bias."""
    rng = np.random.default_rng(1)
    clip = 0.4 * ball.radius
    problem = problem_of(loss, ball, clip, n=500, intercept=False)
    X, y = records_of(problem, rng)
    x = rng.standard_normal((problem.dimension, 1))
    grid, bound = Grid(problem), float(np.max(problem.slope_at(x)))
    found = es.Rows(problem, X, y).sums(grid.points(x, bound)) * grid.gradient_step(bound)
    expected = gradients_by_hand(problem, X, y, x[:, 0]).sum(axis=0)
    assert np.any(np.linalg.norm(gradients_by_hand(replace(problem, clip=1e9), X, y, x[:, 0]), axis=1) > clip)
    np.testing.assert_allclose(found[:, 0], expected, atol=500 * loss.outputs * 2 * bound * ball.radius / STEPS)


@each_loss
def test_a_wide_limit_changes_no_integer(loss):
    rng = np.random.default_rng(2)
    for ball in BALLS:
        problem = problem_of(loss, ball, 1e9)
        X, y = records_of(problem, rng)
        points = Grid(problem).points(rng.standard_normal((problem.dimension, 3)), 1.0)
        whole = es.Rows(replace(problem, clip=None), X, y).sums(points)
        np.testing.assert_array_equal(es.Rows(problem, X, y).sums(points), whole)


def length_squared(problem, integers, bound):
    """Return the exact squared length of an integer gradient in real units."""
    units = [Fraction(float(unit)) * Fraction(float(bound)) / STEPS**2 for unit in Grid(problem).units]
    return sum((int(value) * unit) ** 2 for value, unit in zip(integers, units, strict=True))


@each_loss
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_no_record_is_longer_than_the_limit_exactly(loss, seed):
    """In fractions, whatever the record, the point and the bound: neighbours differ by two such records."""
    rng = np.random.default_rng(seed)
    ball, clip = BALLS[rng.integers(3)], float(10.0 ** rng.uniform(-6, 2))
    problem = problem_of(loss, ball, clip, n=2, d=int(rng.integers(1, 9)), intercept=bool(rng.integers(2)))
    X, y = records_of(problem, rng)
    X = np.where(rng.random(X.shape) < 0.2, rng.choice([0, np.inf, -np.inf, 1e-310, 1e300], X.shape), X)
    x = rng.standard_normal((problem.dimension, 2)) * 10.0 ** rng.integers(-3, 60)
    points = Grid(problem).points(x, 10.0 ** rng.uniform(-3, 3, 2))
    rows = es.Rows(problem, X, y)
    alone = [rows.sums(points, np.array([i])) for i in range(2)]
    np.testing.assert_array_equal(rows.sums(points), alone[0] + alone[1])
    for record in alone:
        for column in range(2):
            assert length_squared(problem, record[:, column], points.bound[column]) <= Fraction(clip) ** 2


def test_records_without_length_or_slope_neither_warn_nor_count():
    """Zero rows have no limit, and zero slopes no direction: nothing is divided by them."""
    problem = problem_of(es.Squared(), BALLS[1], 0.5, n=3, intercept=False)
    rows = es.Rows(problem, np.zeros((3, 4)), np.array([0.0, 1.0, -1.0]))
    x = np.array([1.0, -2.0, 3.0, 0.0])
    np.testing.assert_array_equal(rows.gradient(x), 0.1 * x)
    assert not rows.sums(Grid(problem).points(x[:, None], 1.0)).any()


def test_the_limit_is_attained():
    """One step more would be too long: the limit costs no more than it must."""
    rng = np.random.default_rng(3)
    problem = problem_of(es.Squared(bound=1.0), BALLS[1], 0.01, n=300)
    X, y = records_of(problem, rng)
    points = Grid(problem).points(np.full((problem.dimension, 1), 5.0), 10.0)
    u = encoding.integers(problem, X).astype(np.int64)
    rows, clipped = es.Rows(problem, X, y), 0
    for i in range(300):
        level = int(rows.sums(points, np.array([i]))[-1, 0]) // STEPS  # the intercept's entry is the slope
        longer = (abs(level) + 1) * u[i]
        if length_squared(problem, longer, 10.0) > Fraction(problem.clip) ** 2:
            clipped += 1
    assert clipped > 250


@each_loss
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_and_sources_agree_bit_for_bit(tmp_path, loss, engine):
    if loss.outputs > 1 and engine != "numpy":
        pytest.skip("one margin per record")
    rng = np.random.default_rng(4)
    for ball in BALLS:
        problem = problem_of(loss, ball, 0.3 * ball.radius, n=9001, d=6)
        X, y = records_of(problem, rng)
        np.save(tmp_path / "X.npy", X)
        points = Grid(problem).points(rng.standard_normal((problem.dimension, 2)), [0.7, 3.0])
        expected = DenseEngine(problem, X, loss.encode(y)).sums(points)
        subset = rng.permutation(problem.n)[:500]
        some = DenseEngine(problem, X[subset], loss.encode(y[subset])).sums(points)
        for features in (X, np.asfortranarray(X), tmp_path / "X.npy", *([sparse.csr_array(X)] * (engine == "numpy"))):
            rows = es.Rows(problem, features, y, engine=engine)
            np.testing.assert_array_equal(rows.sums(points), expected)
            np.testing.assert_array_equal(rows.sums(points, subset), some)


def test_blocks_of_a_stream_change_no_integer(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "KEPT", 0)
    monkeypatch.setattr(stream, "BLOCK", 100)
    rng = np.random.default_rng(5)
    problem = problem_of(es.Squared(), BALLS[1], 0.2)
    X, y = records_of(problem, rng)
    np.save(tmp_path / "X.npy", X)
    points = Grid(problem).points(rng.standard_normal((problem.dimension, 2)), 2.0)
    found, memory = es.Rows(problem, tmp_path / "X.npy", y), es.Rows(problem, X, y)
    np.testing.assert_array_equal(found.sums(points), memory.sums(points))
    x = rng.standard_normal(problem.dimension)
    np.testing.assert_allclose(found.gradient(x), memory.gradient(x), rtol=1e-12)


def test_the_gpu_engine_clips_alike():
    """Its torch code, on the processor; a card is tried where there is one."""
    torch = pytest.importorskip("torch")
    from epsteps.data.gpu import TorchEngine

    rng = np.random.default_rng(6)
    for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        for loss in LOSSES[:2]:
            for ball in BALLS:
                problem = problem_of(loss, ball, 0.3 * ball.radius, n=9001, d=6)
                X, y = records_of(problem, rng)
                targets, subset = loss.encode(y), rng.permutation(9001)[:77]
                x = rng.standard_normal((problem.dimension, 2))
                points = Grid(problem).points(x, [0.7, 3.0])
                dense = DenseEngine(problem, X, targets)
                for memory in (None, 4 * 4 * 8 * 128):
                    engine = TorchEngine(problem, X, targets, memory=memory, _device=device)
                    for rows in (None, subset):
                        np.testing.assert_array_equal(engine._exact_sums(points, rows), dense.sums(points, rows))
                means = TorchEngine(problem, X.astype(np.float32), targets, _device=device)
                reference = DenseEngine(problem, X.astype(np.float32), targets)
                for rows in (None, subset):
                    expected = reference.mean_gradient(x, rows)
                    np.testing.assert_allclose(
                        means.mean_gradient(x, rows), expected, rtol=1e-6, atol=1e-6 * problem.clip
                    )


@given(st.integers(1, 40), st.integers(0, 10**6))
def test_the_steepest_slope_is_rounded_down_and_close(d, seed):
    rng = np.random.default_rng(seed)
    rows = (rng.integers(-STEPS, STEPS, (20, d)) * (rng.random((20, d)) < 0.5)).astype(np.float32)
    units, clip = 10.0 ** rng.uniform(-9, 9, d), float(10.0 ** rng.uniform(-9, 9))
    for most, row in zip(steepest(clip, rows, units), rows, strict=True):
        exact = sum((int(v) * Fraction(float(unit))) ** 2 for v, unit in zip(row, units, strict=True))
        share = exact * Fraction(float(most)) ** 2 / Fraction(clip) ** 2
        assert share <= 1
        assert share > 1 - 1e-12 or not row.any()
