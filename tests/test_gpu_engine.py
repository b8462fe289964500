"""The gpu engine computes what the reference does. Its torch code is tested on the CPU, its kernels where a card is."""

import subprocess
import sys
from operator import methodcaller

import numpy as np
import pytest
from conftest import small_problem

import epsteps as es
from epsteps.data.dense import DenseEngine
from epsteps.data.engine import require_exact
from epsteps.data.gpu import TorchEngine
from epsteps.problem import levels, validate
from epsteps.problem.grid import ROWS_PER_DOUBLE, STEPS, Grid

torch = pytest.importorskip("torch")

LOSSES = [es.Logistic(), es.Squared(bound=1.5)]
SHAPES = [(1003, 1), (7, 3), (1003, 20), (301, 65), (301, 130)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card"))]
both_losses = pytest.mark.parametrize("loss", LOSSES, ids=["logistic", "squared"])
both_devices = pytest.mark.parametrize("device", DEVICES)


def records(loss, n, d, seed=0):
    """Return a problem, raw features and encoded targets."""
    rng = np.random.default_rng([n, d, seed])
    problem = es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=d)
    X, y = rng.uniform(-1.3, 1.3, (n, d)), rng.choice([-1.0, 1.0], n)
    y = y if isinstance(loss, es.Logistic) else rng.uniform(-2, 2, n)
    return problem, X, loss.encode(y)


def tiny(d):
    """Return a budget of bytes that makes several blocks of a thousand records."""
    return 4 * 4 * (d + 1) * 128


def assert_near(found, expected):
    assert found.shape == expected.shape
    assert found.dtype == np.float64
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


@both_devices
@both_losses
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_means_are_those_of_the_reference(device, loss, n, d):
    rng = np.random.default_rng([n, d])
    problem, features, targets = records(loss, n, d)
    reference = DenseEngine(problem, features, targets)
    rows = rng.permutation(n)[: n // 2 + 1]
    for memory in (None, tiny(d)):
        engine = TorchEngine(problem, features, targets, memory=memory, _device=device)
        for shape in ((d,), (d, 1), (d, 2), (d, 5), (d, 20)):
            x = rng.standard_normal(shape) / np.sqrt(d)
            assert_near(engine.mean_gradient(x), reference.mean_gradient(x))
            assert_near(engine.mean_gradient(x, rows), reference.mean_gradient(x, rows))
            assert_near(np.asarray(engine.mean_loss(x)), np.asarray(reference.mean_loss(x)))
        assert_near(engine.hessian(x[:, 0]), reference.hessian(x[:, 0]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card")
@both_losses
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_means_at_many_points_are_those_of_the_reference(loss, n, d, monkeypatch):
    """The kernels for many points, which serve from some millions of numbers on."""
    launch = pytest.importorskip("epsteps.data.gpu.batched_launch")
    monkeypatch.setattr(launch, "FEWEST", 0)
    problem, features, targets = records(loss, n, d)
    reference, engine = DenseEngine(problem, features, targets), TorchEngine(problem, features, targets)
    for columns in (8, 20, 33, 70):
        x = np.random.default_rng(columns).standard_normal((d, columns)) / np.sqrt(d)
        assert_near(engine.mean_gradient(x), reference.mean_gradient(x))
        assert_near(engine.mean_loss(x), reference.mean_loss(x))


@both_devices
@both_losses
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_sums_are_the_integers_of_the_reference(device, loss, n, d):
    rng = np.random.default_rng([n, d])
    problem, features, targets = records(loss, n, d)
    grid = Grid(problem)
    reference = DenseEngine(problem, features, targets)
    rows = rng.permutation(n)[: n // 2 + 1]
    for memory in (None, tiny(d)):
        engine = TorchEngine(problem, features, targets, memory=memory, _device=device)
        for columns in (1, 2, 5, 20):
            x = rng.standard_normal((d, columns)) * np.geomspace(1e3, 1e-40, columns)
            points = grid.points(x, np.linspace(0.5, 1.0, columns))
            found = engine._exact_sums(points)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, reference.sums(points))
            np.testing.assert_array_equal(engine._exact_sums(points, rows), reference.sums(points, rows))
        np.testing.assert_array_equal(engine.total(methodcaller("moment")), reference.total(methodcaller("moment")))


@both_devices
def test_accumulators_are_emptied_in_time(device):
    """All records as large as they may be: doubles, and blocks of them, must not take them all."""
    n = 3 * ROWS_PER_DOUBLE + 11
    problem = small_problem(n=n, d=3)
    features, targets = np.ones((n, 3)), np.where(np.arange(n) % 1000 == 0, 1.0, -1.0)
    points = Grid(problem).points(np.array([[30.0], [0.3], [0.1]]), 1.0)
    expected = DenseEngine(problem, features, targets).sums(points)
    assert int(expected.max()) > 2**53
    for memory in (None, tiny(3)):
        engine = TorchEngine(problem, features, targets, memory=memory, _device=device)
        np.testing.assert_array_equal(engine._exact_sums(points), expected)


def test_sums_of_many_records_keep_all_their_digits(monkeypatch):
    """More records than an int64 takes, with a limit that a test can reach."""
    from epsteps.data.gpu import operations as ops

    monkeypatch.setattr(ops.grid, "ROWS_PER_INT64", 2 * ROWS_PER_DOUBLE)
    monkeypatch.setattr(ops, "_CHUNK", 1)
    n = 5 * ROWS_PER_DOUBLE + 3
    problem, features, targets = records(es.Logistic(), n, 2)
    points = Grid(problem).points(np.array([[0.5], [-1.0]]), 1.0)
    found = TorchEngine(problem, features, targets, _device="cpu")._exact_sums(points)
    assert found.dtype == object
    np.testing.assert_array_equal(found, DenseEngine(problem, features, targets)._exact_sums(points))


@both_devices
def test_levels_repeat_the_reference_bit_by_bit(device):
    from epsteps.data.gpu import operations as ops

    rng = np.random.default_rng(0)
    margin = np.concatenate([rng.standard_normal(100_000) * 8, [0.0, -0.0, 1e-45, -1e-45, 24, 1e300, -1e300]])
    for z in (-1.0, 1.0):
        label = np.full(margin.shape, z)
        for bound in (1.0, 0.7):
            scale = np.float32(STEPS) / np.float32(bound)
            tensors = (torch.from_numpy(array).to(device) for array in (margin, label, np.array([float(scale)])))
            found = ops.logistic_levels(*tensors).cpu().numpy()
            np.testing.assert_array_equal(found, levels.logistic(margin, label, bound))


@both_devices
def test_the_engine_passes_the_test_that_comes_before_private_sums(device):
    require_exact(lambda *records: TorchEngine(*records, _device=device), "gpu")


@pytest.mark.parametrize("memory", [None, tiny(4)])
def test_records_that_may_not_be_written_are_read_without_a_warning(memory):
    problem, features, targets = records(es.Logistic(), 500, 4)
    for array in (features, targets):
        array.flags.writeable = False
    rows = np.arange(100)
    rows.flags.writeable = False
    x = np.ones(4)
    engine = TorchEngine(problem, features, targets, memory=memory, _device="cpu")
    assert_near(engine.mean_gradient(x, rows), DenseEngine(problem, features, targets).mean_gradient(x, rows))


def test_float_sums_repeat():
    problem, features, targets = records(es.Logistic(), 5000, 20)
    engine = TorchEngine(problem, features, targets, _device="cpu")
    x = np.random.default_rng(0).standard_normal((20, 3))
    np.testing.assert_array_equal(engine.mean_gradient(x), engine.mean_gradient(x))


def test_shapes_that_do_not_fit_are_refused():
    problem, features, targets = records(es.Logistic(), 50, 4)
    with pytest.raises(ValueError, match="must fit"):
        TorchEngine(problem, features, targets[1:], _device="cpu")
    with pytest.raises(ValueError, match="length 4"):
        TorchEngine(problem, features, targets, _device="cpu").mean_gradient(np.ones(5))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA card")
def test_without_a_card_one_line_says_so_and_nothing_runs_elsewhere():
    problem = small_problem(n=50, d=3)
    data = es.Rows(problem, np.zeros((50, 3)), np.ones(50), engine="gpu")
    points = Grid(problem).points(np.zeros((3, 1)), 1.0)
    for call in (lambda: data.gradient(np.zeros(3)), lambda: data.sums(points)):
        with pytest.raises(OSError, match="needs a CUDA card") as error:
            call()
        assert "\n" not in str(error.value)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    problem, features, targets = records(es.Logistic(), 50, 4)
    with pytest.raises(validate.MissingExtraError, match=r"The gpu engine needs torch.*epsteps\[gpu\]"):
        TorchEngine(problem, features, targets)


def test_importing_the_library_does_not_import_torch():
    code = "import sys, epsteps; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
