"""Whole fits on a card are those of the reference, bit by bit: every release, every loss. On the CPU, by torch."""

from dataclasses import replace
from operator import methodcaller

import numpy as np
import pytest
from conftest import small_problem

import epsteps as es
from epsteps.data import chunks
from epsteps.data.chunks import Blocks, Chunk
from epsteps.data.dense import DenseEngine
from epsteps.data.engine import SelfTestError
from epsteps.data.gpu import TorchEngine
from epsteps.methods.choice import METHODS
from epsteps.problem.grid import ROWS_PER_DOUBLE, STEPS, Grid
from epsteps.problem.weighting import Weighting
from epsteps.running.passes import FINE, LONG, MIDDLE, ROUGH, Bends, Curvature, Digits, Slopes

torch = pytest.importorskip("torch")
from epsteps.data.gpu import cards  # noqa: E402
from epsteps.data.gpu import records as card  # noqa: E402


class Outside(es.PseudoHuber):
    """A loss that no engine has code for."""


MINIMA = {"adaptive", "objective", "output", "sequential"}
# What each loss can be released by, besides steps.
RELEASES = {
    es.Logistic(): MINIMA | {"curvature", "descent"},
    es.CappedLogistic(cap=0.3): MINIMA | {"descent"},
    es.HalfExponential(): MINIMA | {"descent"},
    es.SmoothedHinge(width=0.3): MINIMA | {"descent"},
    es.PseudoHuber(1.5, c=0.2): MINIMA | {"descent"},
    es.PseudoHuber(1.5, c=0.2, power=8): MINIMA | {"descent"},
    es.Softmax(("a", "b", "c")): MINIMA | {"descent"},
    es.Squared(1.5): {"adaptive", "objective", "sequential", "statistics", "curvature", "descent"},
}
HOSTED = [es.CappedLogistic(cap=0.3), es.SmoothedHinge(width=0.3), Outside(1.5), es.Softmax(("a", "b", "c"))]
every_loss = pytest.mark.parametrize("loss", RELEASES, ids=lambda loss: type(loss).__name__)
hosted_losses = pytest.mark.parametrize("loss", HOSTED, ids=lambda loss: type(loss).__name__)


def records(loss, n, d, **facts):
    """Return a problem, raw features, some outside the domain, and raw targets."""
    rng = np.random.default_rng([n, d])
    problem = es.Problem(loss, es.Ball(1.0), ridge=0.01, n=n, d=d, intercept=True, **facts)
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    margins = X @ rng.standard_normal(d) * np.sqrt(d)
    if loss.outputs > 1:
        return problem, X, np.array(loss.classes)[np.digitize(margins, [-0.5, 0.5])]
    if isinstance(loss.targets.extremes[0], float):
        return problem, X, margins + 0.1 * rng.standard_normal(n)
    return problem, X, np.where(margins + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0)


@pytest.fixture
def without_a_card(monkeypatch):
    found = card.find_device
    monkeypatch.setattr(card, "find_device", lambda device=None: found(device or "cpu"))


@pytest.fixture(params=["at once", "in many chunks and blocks"])
def chunked(request, monkeypatch):
    """Take records at once, or a few at a time from the host; returns which."""
    if request.param != "at once":
        monkeypatch.setattr(cards, "_ROWS", 97)
        monkeypatch.setattr(cards, "_TOGETHER", 31)
        monkeypatch.setattr(card, "_free", lambda device: 4 * 4 * 5 * 128)
    return request.param != "at once"


def assert_same(found, expected):
    np.testing.assert_array_equal(found.path, expected.path)
    assert found.extras.keys() == expected.extras.keys()
    for name, value in expected.extras.items():
        np.testing.assert_array_equal(found.extras[name], value)


@every_loss
@pytest.mark.usefixtures("without_a_card", "chunked")
def test_every_release_publishes_what_the_reference_does(loss):
    problem, X, y = records(loss, 203, 3)
    executed = set()
    for method in [*METHODS, es.nesterov]:
        options = {"iterations": 4} if method is es.nesterov else {}
        try:
            plan = es.plan(problem, es.Pure(3.0), method, **options)
        except (TypeError, ValueError):
            continue
        found, expected = (
            es.run(plan, es.Rows(problem, X, y, engine=name), seed=1, arithmetic="exact", repetitions=2)
            for name in ("gpu", "numpy")
        )
        assert_same(found, expected)
        executed.add(method)
    assert executed == RELEASES[loss] | {es.nesterov}


@every_loss
@pytest.mark.usefixtures("without_a_card")
@pytest.mark.parametrize(("n", "d"), [(2 * ROWS_PER_DOUBLE, 2), (2 * ROWS_PER_DOUBLE + 1, 3), (400, 130)])
def test_fits_at_the_borders_of_exact_sums(loss, n, d):
    problem, X, y = records(loss, n, d)
    plan = es.plan(problem, es.Pure(3.0), "objective")
    found, expected = (es.run(plan, es.Rows(problem, X, y, engine=name), seed=2) for name in ("gpu", "numpy"))
    assert_same(found, expected)


@pytest.mark.usefixtures("without_a_card")
def test_batches_and_the_smoothness_are_those_of_the_reference():
    problem, X, y = records(es.Softmax(("a", "b", "c")), 500, 3)
    card_rows, usual = (es.Rows(problem, X, y, engine=name) for name in ("gpu", "numpy"))
    plan = es.plan(problem, es.Pure(3.0), es.gd, iterations=3, batch=50)
    assert_same(*(es.run(plan, data, seed=1, arithmetic="exact") for data in (card_rows, usual)))
    assert es.estimate_smoothness(card_rows, es.Pure(0.1), seed=1) == es.estimate_smoothness(
        usual, es.Pure(0.1), seed=1
    )


def terms_of(problem):
    """Return terms of every kind at a point."""
    loss, x = problem.loss, np.random.default_rng(0).standard_normal(problem.dimension)
    factors = np.full(problem.width, 2.0**-10)
    yield from (Slopes(loss, Digits.of(x, problem, fine), fine.limbs) for fine in (ROUGH, FINE, LONG))
    yield from (Bends(loss, Digits.of(x, problem, ROUGH), each) for each in (None, factors))
    yield Curvature(loss, Digits.of(x, problem, MIDDLE))
    sizes, lengths = (Weighting(norm, 0.4, 0.7).measure(problem) for norm in (1, 2))
    yield Slopes(loss, Digits.of(x, problem, FINE), FINE.limbs, sizes)
    yield Slopes(loss, Digits.of(x, problem, LONG), LONG.limbs, lengths)
    yield Bends(loss, Digits.of(x, problem, ROUGH), factors, lengths)
    if loss.uncapped is not None:  # a cap for each record
        capped = replace(problem, loss=loss.uncapped.capped(0.3))
        held = Weighting(2, 0.6 * problem.record_size(2), held=True).measure(capped)
        yield Slopes(capped.loss, Digits.of(x, problem, LONG), LONG.limbs, held)
        yield Bends(capped.loss, Digits.of(x, problem, ROUGH), factors, held)
        yield Curvature(capped.loss, Digits.of(x, problem, MIDDLE), held)
    yield methodcaller("squares")
    yield Blocks(lambda features, targets: (features.T @ features).astype(np.int64))


@every_loss
def test_totals_of_terms_are_those_of_the_reference(loss, chunked):
    # At once, more records than a double adds; in chunks, enough for many of them.
    problem, X, y = records(loss, 901 if chunked or loss.outputs > 1 else ROWS_PER_DOUBLE + 3, 3)
    if not np.isfinite(loss.slope):
        return  # it has no minimum to search for
    rows = np.random.default_rng(1).permutation(problem.n)[:611]
    found, expected = TorchEngine(problem, X, loss.encode(y), _device="cpu"), DenseEngine(problem, X, loss.encode(y))
    for term in terms_of(problem):
        for subset in (None, rows, rows[:1]):
            sums = found.total(term, subset)
            assert sums.dtype == np.int64
            np.testing.assert_array_equal(sums, expected.total(term, subset))


def test_accumulators_of_chunks_are_emptied_in_time():
    """All records as large as they may be, more than a double adds."""
    n = 3 * ROWS_PER_DOUBLE + 11
    problem = small_problem(n=n, d=2)
    engines = [make(problem, np.ones((n, 2)), -np.ones(n)) for make in (on_cpu, DenseEngine)]
    for term in (methodcaller("gather", np.full((n, 1), STEPS - 1.0)), methodcaller("squares")):
        assert int(engines[0].total(term).max()) > 2**53
    for term in terms_of(problem):
        np.testing.assert_array_equal(*(engine.total(term) for engine in engines))


def on_cpu(*records, **options):
    return TorchEngine(*records, **options, _device="cpu")


@hosted_losses
@pytest.mark.parametrize("clip", [None, 0.4])
@pytest.mark.usefixtures("chunked")
def test_losses_without_code_for_the_card_have_the_reference_s_sums_and_means(loss, clip):
    problem, X, y = records(loss, 801, 4, clip=clip)
    found, expected = (make(problem, X, loss.encode(y)) for make in (on_cpu, DenseEngine))
    rng = np.random.default_rng(0)
    rows, x = rng.permutation(801)[:99], rng.standard_normal((problem.dimension, 3))
    points = Grid(problem).points(x, [0.5, 1.0, 2.0])
    for subset in (None, rows, rows[:0]):
        np.testing.assert_array_equal(found.sums(points, subset), expected.sums(points, subset))
    for subset in (None, rows):
        np.testing.assert_allclose(
            found.mean_gradient(x, subset), expected.mean_gradient(x, subset), rtol=1e-5, atol=1e-6
        )
    np.testing.assert_allclose(found.mean_loss(x), expected.mean_loss(x), rtol=1e-6)
    np.testing.assert_allclose(found.mean_loss(x[:, 0]), expected.mean_loss(x[:, 0]), rtol=1e-6)
    np.testing.assert_allclose(found.hessian(x[:, 0]), expected.hessian(x[:, 0]), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", [np.longdouble, np.float64, np.float32])
def test_limbs_are_those_of_the_reference_where_doubles_see_a_tie(kind):
    rng, count = np.random.default_rng(0), 6400
    nearly = rng.choice([-1, 0, 1], (count, 3)) * np.longdouble(2) ** rng.integers(-63, -41, (count, 3))
    shares = (rng.integers(-(2**20), 2**20, (count, 3)) + 0.5) / np.array([2**20, 2**21, 2**40]) + nearly
    shares = np.clip(shares, -1, 1).astype(kind)
    one, targets = np.eye(64, dtype=np.float32), np.zeros(64, dtype=np.float32)
    for some in np.split(shares, count // 64):
        for limbs in (1, 2, 3):
            found = cards.CardChunk(torch.from_numpy(one), targets).gather_fixed(some, limbs)
            np.testing.assert_array_equal(found, Chunk(one, targets).gather_fixed(some, limbs))


@pytest.mark.parametrize("wrong", ["rounds", "is not emptied in time"])
def test_a_device_that_does_not_add_exactly_is_refused(wrong, monkeypatch):
    def sums(left, right):
        kind = torch.float32 if wrong == "rounds" else torch.float64
        return (left.to(kind) @ right.to(kind).T).long()

    cards.require_exact.__wrapped__(torch.device("cpu"))
    monkeypatch.setattr(cards, "exact_product", sums)
    with pytest.raises(SelfTestError, match="'gpu' engine does not add integers exactly"):
        cards.require_exact.__wrapped__(torch.device("cpu"))


def test_a_large_chunk_does_not_give_its_records_to_what_adds_in_doubles():
    count = chunks.LARGEST + 1
    chunk = cards.CardChunk(torch.zeros((2, count)), np.zeros(count, dtype=np.float32))
    with pytest.raises(TypeError, match="more records than doubles add exactly"):
        _ = chunk.features
