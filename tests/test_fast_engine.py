"""The compiled engine computes what the reference does, on every shape, and hands over what it has no kernel for."""

import sys
import warnings
from operator import methodcaller

import numpy as np
import pytest

pytest.importorskip("numba", reason="the fast engine needs numba: pip install 'epsteps[fast]'")

import epsteps as es
from epsteps.data.dense import DenseEngine
from epsteps.data.fast import FastEngine, _slopes
from epsteps.noise import Source, _compiled, uniform
from epsteps.problem.grid import STEPS, Grid, Points
from epsteps.problem.sampling import Sampling
from epsteps.running import floats

LOSSES = [es.Logistic(), es.Squared()]


def problem_of(loss, X):
    """Return a problem about these records, which lie in its domain."""
    return es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.1, n=max(2, len(X)), d=X.shape[1])


def engines(loss, n, d, seed=0):
    """Return both engines on the same records, and points of which some have margins up to 1000."""
    rng = np.random.default_rng([n, d, seed])
    X = rng.uniform(-1, 1, (n, d))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return FastEngine(problem_of(loss, X), X, y), DenseEngine(problem_of(loss, X), X, y), rng


def points(rng, d, columns):
    """Return columns that grow from tiny to margins of about ±1000."""
    return rng.standard_normal((d, columns)) * np.geomspace(1e-3, 1e3 / np.sqrt(d), columns)


def assert_close(found, expected, relative=1e-12):
    """Compare each column with its own largest entry, up to the reference's rounding of slopes that are almost 0."""
    assert found.shape == expected.shape
    assert np.all(np.abs(found - expected) <= relative * np.max(np.abs(expected), axis=0) + 1e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=["logistic", "squared"])
@pytest.mark.parametrize("d", [1, 3, 4, 20, 21, 65, 130, 600])
@pytest.mark.parametrize("n", [1, 7, 333, 4_999])
def test_it_equals_the_reference(loss, n, d):
    fast, dense, rng = engines(loss, n, d)
    subset = rng.integers(0, n, 123)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for columns in (1, 2, 3, 5, 20, 33):
            x = points(rng, d, columns)
            gradient, value = fast.mean_gradient_and_loss(x)
            for found in (gradient, fast.mean_gradient(x)):
                assert_close(found, dense.mean_gradient(x))
            for found in (value, fast.mean_loss(x)):
                np.testing.assert_allclose(found, dense.mean_loss(x), rtol=1e-12, atol=1e-15)
            assert_close(fast.mean_gradient(x, subset), dense.mean_gradient(x, subset))
        vector = x[:, -1]
        assert_close(fast.mean_gradient(vector), dense.mean_gradient(vector))
        assert_close(fast.mean_gradient(vector, subset), dense.mean_gradient(vector, subset))
        assert float(fast.mean_loss(vector)) == pytest.approx(float(dense.mean_loss(vector)), rel=1e-12, abs=1e-15)
    np.testing.assert_array_equal(fast.hessian(vector), dense.hessian(vector))


def test_many_records_are_summed_in_parts():
    fast, dense, rng = engines(es.Logistic(), 400_003, 9)
    for x in (rng.standard_normal(9), rng.standard_normal((9, 6))):
        assert_close(fast.mean_gradient(x), dense.mean_gradient(x))
        np.testing.assert_allclose(fast.mean_loss(x), dense.mean_loss(x), rtol=1e-12)


def test_slopes_of_confident_predictions_keep_their_digits():
    """The slope at a margin of 40 is exp(-40), not the rounding error of 1 - 1."""
    fast = FastEngine(problem_of(es.Logistic(), np.ones((5, 4))), np.ones((5, 4)), np.ones(5))
    np.testing.assert_allclose(fast.mean_gradient(np.full(4, 10.0)), -np.exp(-40.0), rtol=1e-13)
    np.testing.assert_allclose(fast.mean_gradient(np.full((4, 3), 10.0)), -np.exp(-40.0), rtol=1e-13)


def test_a_descent_agrees():
    """Nesterov's steps, 200 of them: differences do not grow along the path."""
    fast, dense, _ = engines(es.Logistic(), 1001, 5)
    paths = []
    for engine in (fast, dense):
        x = previous = np.full((5, 7), 3.0)
        for _ in range(200):
            ahead = x + 0.8 * (x - previous)
            x, previous = ahead - 0.5 * (engine.mean_gradient(ahead) + 0.02 * ahead), x
        paths.append(x)
    np.testing.assert_allclose(paths[0], paths[1], rtol=1e-9)


@pytest.mark.parametrize("columns", [1, 20])
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, columns):
    fast, _, rng = engines(es.Logistic(), 250_000, 20)
    x = rng.standard_normal((20, columns))
    both = fast.mean_gradient_and_loss(x)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for found, expected in zip(fast.mean_gradient_and_loss(x), both, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_loss_without_kernels_goes_to_the_reference():
    class Shifted(es.Logistic):
        def derivative(self, margin, target):
            return super().derivative(margin - 1, target)

        def total(self, margin, target):
            return super().total(margin - 1, target)

    fast, dense, rng = engines(Shifted(), 100, 3)
    x = rng.standard_normal((3, 5))
    np.testing.assert_array_equal(fast.mean_gradient(x), dense.mean_gradient(x))
    np.testing.assert_array_equal(fast.mean_loss(x), dense.mean_loss(x))
    np.testing.assert_array_equal(fast.mean_gradient_and_loss(x)[1], dense.mean_loss(x))


@pytest.mark.parametrize("loss", LOSSES, ids=["logistic", "squared"])
@pytest.mark.parametrize("columns", [1, 5])
def test_nan_is_not_hidden(loss, columns):
    fast, _, _ = engines(loss, 50, 4)
    x = np.full((4, columns), np.nan)
    assert np.all(np.isnan(fast.mean_gradient(x)))
    assert np.all(np.isnan(fast.mean_loss(x)))


@pytest.mark.parametrize("columns", [1, 5])
@pytest.mark.parametrize("row", [-51, 50])
def test_rows_that_do_not_exist_are_refused(columns, row):
    fast, _, _ = engines(es.Logistic(), 50, 4)
    with pytest.raises(IndexError):
        fast.mean_gradient(np.ones((4, columns)), np.array([0, row]))


def test_shapes_that_do_not_fit_are_refused():
    fast, _, _ = engines(es.Logistic(), 50, 4)
    with pytest.raises(ValueError, match=r"x must have length 4 \(or that many rows\), got shape \(3,\)"):
        fast.mean_gradient(np.ones(3))
    with pytest.raises(ValueError, match="features and targets must fit"):
        FastEngine(problem_of(es.Logistic(), np.ones((5, 2))), np.ones((5, 2)), np.ones(4))


def assert_rounded(found, expected, loss, X, y, x):
    """Compare with the size of products in the margins, and of records' gradients: rounding errors do not cancel."""
    sizes = np.abs(loss.derivative(X @ x, y[:, None])) + np.abs(X) @ np.abs(x)
    assert np.all(np.abs(found - expected) <= 1e-5 * (np.abs(X).T @ sizes) / len(y))


@pytest.mark.parametrize("loss", LOSSES, ids=["logistic", "squared"])
@pytest.mark.parametrize("d", [1, 3, 20, 39, 65, 130, 600])
@pytest.mark.parametrize("n", [1, 7, 333, 4_999])
def test_float32_records_give_the_same_to_their_own_precision(loss, n, d):
    rng = np.random.default_rng([n, d])
    X = rng.uniform(-1, 1, (n, d)).astype(np.float32)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    fast, dense = FastEngine(problem_of(loss, X), X, y), DenseEngine(problem_of(loss, X), X, y)
    subset = rng.integers(0, n, 123)
    for columns in (1, 2, 3, 5, 20, 33):
        x = rng.standard_normal((d, columns)) * np.geomspace(1e-2, 5 / np.sqrt(d), columns)
        gradient, value = fast.mean_gradient_and_loss(x)
        for found in (gradient, fast.mean_gradient(x)):
            assert_rounded(found, dense.mean_gradient(x), loss, X, y, x)
        for found in (value, fast.mean_loss(x)):
            np.testing.assert_allclose(found, dense.mean_loss(x), rtol=1e-5, atol=1e-6)
        assert_rounded(fast.mean_gradient(x, subset), dense.mean_gradient(x, subset), loss, X[subset], y[subset], x)
    assert gradient.dtype == value.dtype == np.float64


def test_float32_sums_do_not_lose_digits_with_many_records():
    """All records pull the same way: a float32 total over them would be wrong in the fourth digit."""
    X = np.full((1_000_003, 3), 0.1, dtype=np.float32)
    fast = FastEngine(problem_of(es.Squared(), X), X, np.full(len(X), -1.0))
    np.testing.assert_allclose(fast.mean_gradient(np.zeros(3)), np.full(3, 0.1), rtol=1e-6)
    np.testing.assert_allclose(fast.mean_gradient(np.zeros((3, 5))), np.full((3, 5), 0.1), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_records_are_kept_once_until_both_layouts_are_needed(dtype):
    X = np.random.default_rng(0).uniform(-1, 1, (1001, 5)).astype(dtype)
    problem = problem_of(es.Logistic(), X)
    fast = FastEngine(problem, X, np.ones(1001))
    before = fast.mean_gradient(np.ones(5), np.arange(1001))
    layouts = FastEngine(problem, X, np.ones(1001))._floats.layouts
    layouts.tiles()
    assert layouts._given is None
    assert layouts._rows is None
    np.testing.assert_array_equal(layouts.rows(), X)
    assert_close(fast.mean_gradient(np.ones(5)), before, 1e-6)


@pytest.mark.parametrize("loss", [*LOSSES, es.Squared(bound=3.0)], ids=["logistic", "squared", "wide"])
@pytest.mark.parametrize("d", [1, 2, 4, 8, 20, 33, 64, 130, 600])
def test_exact_sums_are_those_of_the_reference(loss, d):
    n = 9_001
    rng = np.random.default_rng(d)
    problem = es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=d)
    grid, features = Grid(problem), rng.integers(-STEPS, STEPS + 1, (n, d)) / STEPS
    targets = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    fast, dense = FastEngine(problem, features, targets), DenseEngine(problem, features, targets)
    subset = rng.permutation(n)[:1234]
    for columns in (1, 2, 3, 5, 20, 33):
        x = rng.standard_normal((d, columns)) * np.geomspace(1e-6, 1e3, columns)
        points = grid.points(x, rng.uniform(0.3, 2.0, columns))
        for rows in (None, subset, subset[:0]):
            found = fast.sums(points, rows)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, dense.sums(points, rows))
    np.testing.assert_array_equal(fast.total(methodcaller("moment")), dense.total(methodcaller("moment")))


def test_exact_sums_leave_other_losses_to_the_reference_and_refuse_wrong_shapes():
    class Shifted(es.Logistic):
        def levels(self, margin, target, bound):
            return super().levels(margin - 1, target, bound)

    problem = es.Problem(Shifted(), es.Ball(1, norm=np.inf), ridge=0.1, n=100, d=3)
    rng = np.random.default_rng(0)
    features, targets = rng.uniform(-1, 1, (100, 3)), np.ones(100)
    fast, points = FastEngine(problem, features, targets), Grid(problem).points(rng.standard_normal((3, 4)), 1.0)
    np.testing.assert_array_equal(fast.sums(points), DenseEngine(problem, features, targets).sums(points))
    with pytest.raises(ValueError, match="points must have 3 coordinates, got 2"):
        fast.sums(Points(points.coefficients[:2], points.step, points.bound))
    with pytest.raises(ValueError, match="features and targets must fit"):
        FastEngine(problem, features, targets[:4])
    plain = FastEngine(es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=100, d=3), features, targets)
    with pytest.raises(IndexError):
        plain.sums(points.column(0), np.array([0, 100]))


@pytest.mark.parametrize("columns", [1, 6])
def test_exact_sums_do_not_depend_on_the_number_of_threads(monkeypatch, columns):
    rng = np.random.default_rng(3)
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=300_001, d=20)
    engine = FastEngine(problem, rng.uniform(-1, 1, (300_001, 20)), rng.choice([-1.0, 1.0], 300_001))
    points = Grid(problem).points(rng.standard_normal((20, columns)), 1.0)
    expected = engine.sums(points)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    np.testing.assert_array_equal(engine.sums(points), expected)


def test_the_exponential_is_accurate():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.linspace(-700, 700, 100_000), rng.normal(scale=1e-3, size=1000), [0.0, -0.0, 1, -1]])
    exact = np.exp(values.astype(np.longdouble))
    results = np.empty_like(values)
    _slopes.exponentials(values, results)
    assert float(np.max(np.abs(results / exact - 1))) <= 1e-13


def test_the_exponential_is_sane_beyond():
    values = np.array([-np.inf, -1e6, -709.0, np.nan])
    results = np.empty_like(values)
    _slopes.exponentials(values, results)
    assert np.all((results[:3] > 0) & (results[:3] < 1e-307))
    assert np.isnan(results[3])


def test_rows_take_the_engine_that_is_named_and_a_whole_run_agrees():
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=3000, d=7, intercept=True)
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-1.5, 1.5, (3000, 7)), rng.choice([-1, 1], 3000)
    for batch in (None, 100):
        plan = es.plan(problem, es.Pure(1.0), es.multistage, iterations=120, batch=batch)
        paths = [
            es.run(plan, es.Rows(problem, X, y, engine=name), seed=1, repetitions=4).path for name in ("numpy", "fast")
        ]
        np.testing.assert_allclose(paths[0], paths[1], rtol=1e-9, atol=1e-12)
        assert not np.array_equal(*paths)


@pytest.mark.parametrize(("n", "m"), [(8, 3), (8, 8), (1, 1), (64, 40), (1000, 999), (100_000, 300), (10**9, 20)])
def test_compiled_subsets_are_those_of_numpy(monkeypatch, n, m):
    compiled = Source(3).subsets(Sampling(n, m), 50)
    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.setattr(uniform, "find_spec", lambda _: None)
    np.testing.assert_array_equal(Source(3).subsets(Sampling(n, m), 50), compiled)


def test_compiled_subsets_of_more_than_32_bits_are_those_of_numpy():
    """Uncompiled, as it is compiled: the bits of so many values take no memory until they are touched."""
    n, words = 2**32 + 12345, np.random.default_rng(4).integers(2**64, size=(5, 20), dtype=np.uint64)
    found = np.empty((5, 20), np.int64)
    _compiled._subsets(words, n, found)
    np.testing.assert_array_equal(found, uniform.floyd(words, n))


METHODS = [es.gd, es.heavy_ball, es.nesterov, es.multistage]
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def by_hand(engine, steps, subsets, noise, ridge, x):
    """The library's loop over steps, with an engine's gradients."""
    path = [x]
    for t, (alpha, beta, gamma, restart) in enumerate(steps):
        drift = np.zeros_like(x) if t == 0 or restart else path[t] - path[t - 1]
        point = path[t] + gamma * drift
        gradient = engine.mean_gradient(point, subsets[t]) + ridge * point + noise[t]
        path.append(path[t] + beta * drift - alpha * gradient)
    return np.array(path)


@pytest.mark.parametrize("loss", LOSSES, ids=["logistic", "squared"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("d", "m"), [(1, 1), (5, 67), (50, 300)])
def test_compiled_steps_are_those_of_the_loop(loss, method, dtype, d, m):
    rng, T, R = np.random.default_rng(d), 150, 3
    X, y = rng.uniform(-1, 1, (500, d)).astype(dtype), rng.choice([-1.0, 1.0], 500)
    fast, dense = FastEngine(problem_of(loss, X), X, y), DenseEngine(problem_of(loss, X), X, y)
    steps, start = method(0.1, 0.1 + d, T), rng.standard_normal((R, d))
    assert steps.restart.any() == (method is es.multistage)
    subsets = np.stack([Source(r).subsets(Sampling(500, m), T) for r in range(R)])
    noise = 0.1 * rng.standard_normal((T, d, R))
    paths = np.full((R, T + 1, d), np.nan)
    paths[:, 0] = start
    for first in range(0, T, 60):
        part = slice(first, first + 60)
        fast.descend(steps, first, subsets[:, part], noise[part], 0.1, paths)
    for r in range(R):
        loop = by_hand(fast, steps, subsets[r], noise[:, :, r], 0.1, start[r])
        np.testing.assert_allclose(paths[r], loop, **CLOSE)
        if dtype is np.float64:
            np.testing.assert_allclose(
                paths[r], by_hand(dense, steps, subsets[r], noise[:, :, r], 0.1, start[r]), **CLOSE
            )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("repetitions", [None, 3])
def test_a_compiled_run_is_that_of_the_loop(monkeypatch, method, dtype, repetitions):
    """With the same engine; the reference sees the same draws, and differs by float32's rounding where that is used."""
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=2000, d=7, intercept=True)
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-1.5, 1.5, (2000, 7)).astype(dtype), rng.choice([-1, 1], 2000)
    plan = es.plan(problem, es.Pure(30.0), method, iterations=150, batch=67, allocation="uniform")
    monkeypatch.setattr(floats, "_BLOCK_BYTES", 8 * (8 + 67) * (repetitions or 1) * 40)
    paths, heard = {}, []
    for name in ("fast", "numpy"):
        data = es.Rows(problem, X, y, engine=name)
        assert (floats.compiled_engine(plan, data) is not None) == (name == "fast")
        heard.clear()
        run = es.run(plan, data, seed=4, repetitions=repetitions, start=2.0, on_step=heard.append)
        assert heard == list(range(1, 151))
        paths[name] = run.path
    monkeypatch.setattr(FastEngine, "descends", lambda self, size: False)
    loop = es.run(plan, es.Rows(problem, X, y, engine="fast"), seed=4, repetitions=repetitions, start=2.0).path
    assert loop.shape == ((151, 8) if repetitions is None else (151, 8, 3))
    np.testing.assert_allclose(paths["fast"], loop, **CLOSE)
    np.testing.assert_allclose(paths["fast"], paths["numpy"], **(CLOSE if dtype is np.float64 else {"atol": 1e-4}))


def test_what_compiled_steps_do_not_serve_goes_through_the_loop():
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=50, d=4)
    squared = es.Problem(es.Squared(), es.Ball(1, norm=np.inf), ridge=0.1, n=50, d=4)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (50, 4)), rng.choice([-1, 1], 50)
    for which, batch, options in ((problem, None, {}), (squared, 9, {}), (problem, 9, {"sensitivity": "state"})):
        plan = es.plan(which, es.Pure(1.0), es.nesterov, iterations=20, batch=batch, **options)
        runs = [es.Rows(which, X, y, engine=name) for name in ("fast", "numpy")]
        assert floats.compiled_engine(plan, runs[0]) is None
        np.testing.assert_allclose(*(es.run(plan, data, seed=1).path for data in runs), **CLOSE)
    fast, _, _ = engines(es.Logistic(), 1000, 3001)
    assert fast.descends(999)
    assert not fast.descends(1000)


def test_descents_that_do_not_fit_are_refused():
    fast, _, _ = engines(es.Logistic(), 50, 4)
    steps, noise, paths = es.gd(0.1, 1.0, 10), np.zeros((10, 4, 1)), np.zeros((1, 11, 4))
    rows = np.zeros((1, 10, 3), dtype=np.int64)
    for given in ((rows[:, :9], noise, paths), (rows, noise[:, :3], paths), (rows, noise, paths[:, :10])):
        with pytest.raises(ValueError, match="subsets, noise and paths do not fit"):
            fast.descend(steps, 0, given[0], given[1], 0.1, given[2])
    for first in (-1, 1):
        with pytest.raises(ValueError, match="there are 10 steps"):
            fast.descend(steps, first, rows, noise, 0.1, paths)
    for row in (-1, 50):
        with pytest.raises(IndexError):
            fast.descend(steps, 0, rows + row, noise, 0.1, paths)


def test_repetitions_of_a_compiled_run_do_not_depend_on_the_number_of_threads(monkeypatch):
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=5000, d=20)
    rng = np.random.default_rng(1)
    data = es.Rows(problem, rng.uniform(-1, 1, (5000, 20)), rng.choice([-1, 1], 5000), engine="fast")
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=100, batch=300)
    expected = es.run(plan, data, seed=1, repetitions=11).path
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    np.testing.assert_array_equal(es.run(plan, data, seed=1, repetitions=11).path, expected)


def test_a_run_of_many_steps_reads_tiles_from_the_first_and_gives_the_same_integers():
    few, reference, rng = engines(es.Logistic(), 500, 7)
    many, _, _ = engines(es.Logistic(), 500, 7)
    at = Grid(few._problem).points(points(rng, 7, 1), 1.0)
    few.expect(3)
    many.expect(1000)
    assert np.array_equal(few.sums(at), reference.sums(at))
    assert np.array_equal(many.sums(at), reference.sums(at))
    assert few._in_place
    assert not many._in_place
