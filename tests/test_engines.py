"""An engine is one class: it has a name, is tested before it sums private records, and serves every source."""

import dataclasses

import numpy as np
import pytest
from conftest import records, small_problem

import epsteps as es
from epsteps.data import engine, sources, stream
from epsteps.data.chunks import Chunk
from epsteps.data.engine import ArrayEngine, kernel_of
from epsteps.data.slopes import Slopes
from epsteps.problem.grid import STEPS, Grid


@pytest.fixture
def toy(monkeypatch):
    """Add an engine that computes one record after the other, in Python's integers, and forget it afterwards."""
    monkeypatch.setattr(engine, "_NAMED", dict(engine._NAMED))

    class Toy(ArrayEngine, name="toy"):
        def _stored(self, features, targets, units, *, exact):
            return features, Slopes(self._problem.loss, targets.astype(np.float32 if exact else float))

        def _records(self, stored, rows=None):
            features, slopes = stored
            for i in range(len(features)) if rows is None else rows:
                yield features[[i]].astype(float), slopes[[i]]

        def mean_gradient(self, x, rows=None):
            terms = [u.T @ slope.derivative(u @ x) for u, slope in self._records(self._floats, rows)]
            return sum(terms) / len(terms)

        def mean_loss(self, x):
            return sum(slope.total(u @ x) for u, slope in self._records(self._floats)) / len(self._floats[0])

        def hessian(self, x):
            terms = [u.T @ (u * slope.second(u @ x)[:, None]) for u, slope in self._records(self._floats)]
            return sum(terms) / len(terms)

        def _exact_sums(self, points, rows=None):
            total = np.zeros(points.coefficients.shape, dtype=np.int64)
            for u, slope in self._records(self._integers, rows):
                total += (u.T @ slope.levels(u @ points.coefficients, points)).astype(np.int64)
            return total

        def _chunk(self, rows):
            features, slopes = self._integers
            return Chunk(features[rows], slopes.targets[rows])

    monkeypatch.setattr(engine, "_ROWS", 1000)  # one record after the other takes its time
    engine.require_exact.cache_clear()
    yield Toy
    engine.require_exact.cache_clear()


@pytest.mark.parametrize("loss", [es.Logistic(), es.Squared(bound=1.5), es.SmoothedHinge()], ids=lambda loss: str(loss))
def test_an_engine_is_one_class(toy, loss):
    """A private fit is the reference's bit for bit, and the floats are its floats."""
    problem = es.Problem(loss, es.Ball(1, norm=2), ridge=0.1, n=60, d=3, intercept=True)
    X, y = records(problem)
    ours, reference = (es.Rows(problem, X, y, engine=name) for name in ("toy", "numpy"))
    for method, options in ((es.gd, {}), (es.nesterov, {"batch": 20})):
        plan = es.plan(problem, es.Pure(2.0), method, iterations=8, **options)
        paths = [es.run(plan, rows, seed=5, arithmetic="exact").path for rows in (ours, reference)]
        np.testing.assert_array_equal(*paths)
    if np.isfinite(loss.slope):
        plan = es.plan(problem, es.Pure(2.0), "objective")
        np.testing.assert_array_equal(*(es.run(plan, rows, seed=5).path for rows in (ours, reference)))
    x = np.array([0.3, -0.2, 0.5, 0.1])
    for what in ("gradient", "value", "hessian"):
        np.testing.assert_allclose(getattr(ours, what)(x), getattr(reference, what)(x), rtol=1e-12)
    np.testing.assert_array_equal(ours.second_moment(), reference.second_moment())
    assert ours.descent(20) is None


def test_a_new_engine_serves_files_too(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "KEPT", 0)
    monkeypatch.setattr(stream, "BLOCK", 30)
    problem = small_problem(n=60)
    X, y = records(problem)
    np.save(tmp_path / "X.npy", X)
    points = Grid(problem).points(np.ones((3, 2)), 1.0)
    found, expected = es.Rows(problem, tmp_path / "X.npy", y, engine="toy"), es.Rows(problem, X, y)
    np.testing.assert_array_equal(found.sums(points), expected.sums(points))
    np.testing.assert_allclose(found.gradient(np.ones(3)), expected.gradient(np.ones(3)), rtol=1e-12)


def test_names_are_known_while_their_classes_are(toy):
    assert engine.names() == ("auto", "numpy", "fast", "gpu", "toy", "dask")
    with pytest.raises(ValueError, match=r"engine must be one of 'auto', 'numpy', 'fast', 'gpu', 'toy', 'dask'"):
        es.Rows(small_problem(n=4), np.zeros((4, 3)), np.ones(4), engine="warp")


class Declared(es.Logistic, kernel="logistic"):
    """A loss from outside that declares the logistic kernel, and encodes targets that are no signs."""

    def encode(self, y):
        return np.where(np.isnan(y), np.nan, 50.0 * y)


def test_a_kernel_is_declared_and_not_inherited():
    class Derived(es.Logistic):
        pass

    class Gentle(Declared, kernel="logistic"):
        def joint_slope(self, norm):
            return 0.5

    assert (kernel_of(es.Logistic()), kernel_of(es.Squared())) == ("logistic", "squared")
    assert kernel_of(Declared()) == "logistic"
    for loss in (
        Derived(),
        es.CappedLogistic(),
        es.HalfExponential(),
        es.SmoothedHinge(),
        es.PseudoHuber(),
        es.PseudoHuber(power=8),
        es.Softmax(),
        Gentle(),
    ):
        assert kernel_of(loss) is None


@pytest.mark.parametrize("name", ["fast", "gpu"])
@pytest.mark.parametrize("columns", [1, 5])
def test_whatever_a_loss_encodes_its_kernel_holds_slopes_to_their_bound(name, columns, monkeypatch):
    pytest.importorskip({"fast": "numba", "gpu": "torch"}[name])
    kind = engine._NAMED[name]
    problem = dataclasses.replace(small_problem(n=2, d=1), loss=Declared())
    for labels in ([1.0, -1.0], [7.0, np.nan], [0.0, -3.0]):
        options = {} if name == "fast" else {"_device": "cpu"}
        made = kind(problem, np.array([[1.0], [0.0]]), Declared().encode(np.array(labels)), **options)
        found = made._exact_sums(Grid(problem).points(np.full((1, columns), -0.2), 1.0))
        assert found.shape == (1, columns)
        assert np.all(np.abs(found) <= STEPS * STEPS)
