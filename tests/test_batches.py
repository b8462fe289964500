"""What makes steps on batches quick changes no integer and no law: compiled noise, short words, what steps share."""

import dataclasses
import itertools
import math
from decimal import Decimal

import numpy as np
import pytest
from conftest import records, small_problem
from scipy import stats

import epsteps as es
from epsteps.budgets import mechanisms
from epsteps.noise import Source, gaussian, knorm, laplace, uniform
from epsteps.noise.bits import Bits
from epsteps.noise.knorm import WORDS, Tape, quick_gamma, quick_radius
from epsteps.noise.reals import decide
from epsteps.noise.shaped import parts_of, shaped
from epsteps.plans.plan import Conversation, Published
from epsteps.plans.requests import Gradient, Gradients
from epsteps.problem.grid import Grid
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import L1, L2, Body, Spherical
from epsteps.running.run import Answers, Meter, Reader

LEVEL = 1e-9  # of tests on the operating system's bits, which have no seed to fix
LAWS = {
    "laplace": (laplace.quick_laplace, laplace.discrete_laplace),
    "gaussian": (gaussian.quick_gaussian, gaussian.rounded_gaussian),
}
SCALES = {
    "small": np.full(20, 3.0),
    "large": np.full(21, 2.0**36 * 1.1),
    "one for all": np.broadcast_to(5e10, (7,)),
    "mixed": np.geomspace(0.1, 2.0**61, 40),
    "none": np.empty(0),
}


class Edges(Bits):
    """A stream of words of which a share lies at the edges: 0, all bits, and around the half."""

    def __init__(self, seed: int, share: float) -> None:
        super().__init__(seed)
        rng = np.random.default_rng(seed)
        words = rng.integers(2**64, size=4000, dtype=np.uint64)
        edges = rng.choice(np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1], np.uint64), size=4000)
        self._stream, self._at = np.where(rng.random(4000) < share, edges, words), 0

    def words(self, count: int) -> np.ndarray:
        self._at += count
        return self._stream[self._at - count : self._at]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3])
def test_compiled_noise_is_that_of_the_sampler_and_reads_the_same_words(law, scales, share):
    """Where float64 leaves something open, as words at the edges do, the sampler decides from the same words."""
    pytest.importorskip("numba")
    quick, reference = LAWS[law]
    for seed in range(20):
        first, second = Edges(seed, share), Edges(seed, share)
        np.testing.assert_array_equal(quick(first, SCALES[scales]), reference(second, SCALES[scales]))
        np.testing.assert_array_equal(first.words(2), second.words(2))
        assert first.more(64) == second.more(64)


def without_numba(patch):
    for module in (uniform, laplace, gaussian, knorm):
        patch.setattr(module, "sys", type("Bare", (), {"modules": {}}))


def by_decimals(patch):
    """Leave nothing to floats, to compiled functions or to short cuts of integers."""
    without_numba(patch)
    patch.setattr(knorm, "_IS_IEEE", False)
    patch.setattr(uniform, "_FEW", 0)


def in_doubles(patch):
    """Let long doubles be doubles, as they are on some platforms."""
    patch.setattr(knorm, "_LONG", np.float64)
    patch.setattr(knorm, "_EPS", 2.0**-52)
    patch.setattr(knorm, "_constants", knorm._constants.__wrapped__)


WAYS = {"compiled": lambda patch: None, "long doubles": without_numba, "doubles": in_doubles}
RADII = list(itertools.product((1, 2, 20, 1000), (0.5, 1.0), (0.7, 1.0, 3.3, 2.0**20, 2.0**37 * 1.1, 2.0**50)))
BLOCKS = parts_of(Body((0, 1, 2), ((3,), (4, 5), (6, 7), (8, 9, 10, 11))))
SHAPES = {
    "linf": lambda bits, d, t: knorm.linf(bits, d, t),
    "hull": lambda bits, d, t: knorm.hull(bits, d, t),
    "l2": lambda bits, d, t: knorm.l2(bits, d, t),
    "blocks": lambda bits, d, t: shaped(bits, BLOCKS, t),
}


def exactly(tape, *law):
    return decide(lambda: knorm._integer_radius(tape, *law))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3])
def test_radii_are_those_that_decimals_tell(way, share, monkeypatch):
    """Floats tell them from the same numbers, or leave them open: words at the edges and large scales see to both."""
    pytest.importorskip("numba")
    if way == "doubles":
        without_numba(monkeypatch)
    WAYS[way](monkeypatch)
    for seed, law in itertools.product(range(10), RADII):
        first, second = (Edges(seed, share) for _ in range(2))
        quick, slow = (Tape(bits, bits.words(WORDS)) for bits in (first, second))
        assert knorm.integer_radius(quick, *law) == exactly(slow, *law)
        assert quick.next().leading(128) == slow.next().leading(128)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.02])
def test_vectors_of_a_body_are_those_of_decimals_bit_for_bit(way, shape, share, monkeypatch):
    """No integer changes, and neither do the words that are read, nor the bits that are drawn for refinements."""
    pytest.importorskip("numba")
    for seed, d, t in itertools.product(range(4), (1, 3, 20, 150), (2.0, 2.0**20, 2.0**37 * 1.1, 2.0**49)):
        first, second = Edges(seed, share), Edges(seed, share)
        with monkeypatch.context() as patch:
            if way == "doubles":
                without_numba(patch)
            WAYS[way](patch)
            found = SHAPES[shape](first, d, t)
        with monkeypatch.context() as patch:
            by_decimals(patch)
            np.testing.assert_array_equal(found, SHAPES[shape](second, d, t))
        np.testing.assert_array_equal(first.words(2), second.words(2))
        assert first.more(64) == second.more(64)


@pytest.mark.parametrize(("way", "most"), [("long doubles", 0.02), ("doubles", 0.1)])
def test_floats_tell_most_radii_of_a_step(way, most, monkeypatch):
    """And none that lies beyond their precision, or of which the error is said to be large."""
    pytest.importorskip("numba")
    from epsteps.noise import _compiled

    WAYS[way](monkeypatch)
    tapes = [Tape(Bits(seed), Bits(seed).words(WORDS)) for seed in range(400)]
    told = [quick_radius(tape, 20, 0.5, 2.0**37, 1.0) is not None for tape in tapes]
    assert np.mean(told) > 1 - most
    assert not any(quick_radius(tape, 20, 0.5, 2.0**37, 2.0**60) for tape in tapes)
    assert np.mean([_compiled.radius(tape.words, 20, 0.5, 2.0**37)[1] > 0 for tape in tapes]) > 0.9
    assert not any(_compiled.radius(tape.words, 20, 0.5, 2.0**50)[1] for tape in tapes)


@pytest.mark.parametrize("way", ["long doubles", "doubles"])
@pytest.mark.parametrize("twice_shape", [2, 3, 21, 2000])
def test_gamma_variables_in_floats_keep_their_error_bound(way, twice_shape, monkeypatch):
    """Whatever bits follow those that were seen; and the bound is not idle: some errors are near a tenth of it."""
    WAYS[way](monkeypatch)
    shares = []
    for seed in range(300):
        bits = Edges(seed, 0.05)
        tape = Tape(bits, bits.words(WORDS))
        found = quick_gamma(*tape.floats(), twice_shape)
        if found is None:
            continue
        exact = decide(lambda tape=tape: (tape.rewind(), knorm.gamma(tape, twice_shape))[1])
        value = sum(Decimal(float(part)) for part in (found[0], found[0] - type(found[0])(float(found[0]))))
        shares.append(abs(float(value / exact.midpoint - 1)) / found[1])
    assert len(shares) > 150
    assert 0.02 < max(shares) < 1


@pytest.mark.parametrize("law", LAWS)
def test_compiled_noise_decides_what_it_may_and_nothing_else(law):
    """Nearly all vectors of ordinary words are drawn by the compiled function, and none with a word at the edge."""
    pytest.importorskip("numba")
    from epsteps.noise import _compiled

    scales, found = SCALES["large"], np.empty(21, np.int64)
    points = gaussian._words_of_points(11)
    forms = {"laplace": [(2, 2, 21)], "gaussian": [(2, points // 2), (21,)]}[law]
    decided = []
    for seed in range(200):
        bits = Bits(seed)
        words = [bits.words(math.prod(form)).reshape(form) for form in forms]
        decided.append(getattr(_compiled, law)(*words, scales, found))
        words[0][..., 0] = 0
        words[-1][..., -1] = 2**64 - 1
        assert not getattr(_compiled, law)(*words, scales, found)
    assert sum(decided) > 190


@pytest.mark.parametrize("bound", [2, 3, 1000, 99_999, 2**24 - 3, 2**31 + 1, 2**32 - 5])
def test_short_words_are_the_first_bits_of_a_uniform_number(bound):
    """The integer is one that the word allows, and the one where it allows only one."""
    edges = np.arange(min(bound, 1000), dtype=np.uint64) * np.uint64(2**32 // bound)
    words = np.concatenate([edges, edges[1:] - np.uint64(1), Bits(1).words(1000) >> np.uint64(32)]).astype(np.uint32)
    found = uniform.uniform_below(Bits(2), words[None], bound)
    first = [word * bound >> 32 for word in words.tolist()]
    last = [((word + 1) * bound - 1) >> 32 for word in words.tolist()]
    assert all(a <= value <= b for a, value, b in zip(first, found.tolist(), last, strict=True))


def test_short_words_that_leave_an_integer_open_are_continued_by_fair_bits():
    """The first 32 bits of 1/3 are followed by more than the rest of them with probability 2/3."""
    found = uniform.uniform_below(Bits(3), np.full((1, 3000), 2**32 // 3, np.uint32), 3)
    assert set(found.tolist()) == {0, 1}
    assert stats.binomtest(int(found.sum()), 3000, 2 / 3).pvalue > 1e-4


@pytest.mark.parametrize("way", ["compiled", "long doubles"])
@pytest.mark.parametrize("count", [30, 300])
def test_two_words_that_leave_an_integer_open_are_continued_by_fair_bits(way, count, monkeypatch):
    """The same with 128 bits of 1/3, compiled and not, in Python's integers and in NumPy's."""
    pytest.importorskip("numba")
    WAYS[way](monkeypatch)
    words, bits = np.full((2, count), 2**64 // 3, np.uint64), Bits(4)
    found = np.concatenate([uniform.uniform_below(bits, words, 3) for _ in range(3000 // count)])
    assert set(found.tolist()) == {0, 1}
    assert stats.binomtest(int(found.sum()), 3000, 2 / 3).pvalue > 1e-4


MAKERS = ("_sorted_subset", "_marked_subset", "_dense_subset")


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(("size", "of"), [(2, 6), (3, 6), (1, 3)])
def test_subsets_from_the_operating_system_are_uniform(maker, size, of):
    pytest.importorskip("numba")
    counts = dict.fromkeys(itertools.combinations(range(of), size), 0)
    for _ in range(200 * len(counts)):
        counts[tuple(getattr(uniform, maker)(Bits(), size, of).tolist())] += 1
    assert stats.chisquare(list(counts.values())).pvalue > LEVEL


@pytest.mark.parametrize(("size", "of"), [(1000, 100_000), (400, 1000), (5, 17), (0, 1), (10, 2**25), (3, 3_000_000)])
def test_subsets_are_the_same_however_they_are_made(size, of):
    pytest.importorskip("numba")
    for seed in range(20):
        first, *others = (getattr(uniform, maker)(Bits(seed), size, of) for maker in MAKERS)
        assert all(np.array_equal(first, other) for other in others)
        private = uniform._marked_subset(Bits(), size, of)
        assert len(private) == size
        assert np.all(np.diff(private) > 0)
        assert np.all((private >= 0) & (private < of))


def test_a_value_that_a_short_word_leaves_open_is_decided_by_more_bits(monkeypatch):
    """Every word has the first bits of 1/3: the value is 0 or 1, and taken once if it comes up again."""
    pytest.importorskip("numba")
    monkeypatch.setattr(Bits, "short_words", lambda self, count: np.full(count, 2**32 // 3, np.uint32))
    found = [uniform._marked_subset(Bits(seed), 1, 3).tolist() for seed in range(300)]
    assert stats.binomtest(found.count([1]), 300, 2 / 3).pvalue > 1e-4
    assert [uniform._marked_subset(Bits(seed), 2, 3).tolist() for seed in range(20)] == [[0, 1]] * 20


PROBLEMS = {
    "cube": small_problem(n=10_000, d=7, intercept=True),
    "box": es.Problem(es.Logistic(), es.Box([-1e-3, 0, -5e4], [2e-3, 1, 1e4]), ridge=0.1, n=5_000_000, d=3),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("shape", [L1, L2, Spherical])
def test_releases_of_a_steady_bound_are_those_computed_afresh(name, shape):
    """Scales go up and down through many powers of two, some of them to the bit."""
    problem = PROBLEMS[name]
    body, shared = shape(problem.dimension), Grid(problem)
    scales = [*np.geomspace(1e-9, 1e9, 500), *np.geomspace(1e9, 1e-3, 90), *(2.0**k for k in range(-20, 20))]
    for scale in [*scales, *(x * (1 + 2.0**-52) for x in scales[-40:]), *(x * (1 - 2.0**-53) for x in scales[-40:])]:
        found, fresh = (grid.release(float(scale), 1.0, body) for grid in (shared, Grid(problem)))
        for part in ("shift", "step", "scale"):
            np.testing.assert_array_equal(getattr(found, part), getattr(fresh, part))
        other = shared.release(np.array([float(scale)]), np.array([1.0]), body)
        np.testing.assert_array_equal(found.shift, other.shift)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("size", [0.0, 1e-310, 1e-3, 1.0, 1e60, 1e80, 1e99, 1e101, 1e300, math.inf, math.nan])
def test_one_point_is_rounded_as_among_several(name, size):
    problem = PROBLEMS[name]
    x = np.where(np.arange(problem.dimension) % 2, 0.3, -1.0)[:, None] * size
    one, several = (Grid(problem).points(points, 0.7) for points in (x, np.hstack([x, np.ones_like(x)])))
    assert np.all(np.isfinite(one.coefficients))
    for part in ("coefficients", "step", "bound"):
        np.testing.assert_array_equal(getattr(one, part), getattr(several.column(0), part))


@pytest.mark.parametrize("name", ["laplace", "linf", "gaussian"])
def test_costs_that_were_foreseen_are_those_of_the_request(name):
    problem = small_problem(n=500)
    mechanism, sampling = mechanisms.named(name), Sampling(500, 500 if name == "gaussian" else 50)
    scales, x = np.geomspace(3.0, 900.0, 30), np.zeros((problem.dimension, 2))
    steps = Gradients(problem, mechanism, sampling, scales, 1.0)
    for t, scale in enumerate(scales.tolist()):
        for asked, bound in ((scale, 1.0), (2 * scale, 1.0), (scale, 0.5)):
            found = steps.request(x, asked, bound, t)
            alone = Gradient(problem, mechanism, x, asked, bound, sampling, t)
            assert [type(cost) for cost in found.costs] == [mechanism.kind] * 2
            assert [cost.amount for cost in found.costs] == pytest.approx(
                [cost.amount for cost in alone.costs], rel=1e-12
            )
            assert dataclasses.replace(found, scale=asked / 3).costs[0].amount > 2 * found.costs[0].amount


def test_scales_that_are_none_are_refused_with_all_steps():
    problem = small_problem(n=500)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        steps = Gradients(problem, mechanisms.named("laplace"), Sampling(500, 50), np.array([1.0, wrong]), 1.0)
        with pytest.raises(ValueError, match="scale must be positive and finite"):
            steps.request(np.zeros((3, 1)), 1.0, 1.0, 0)


def test_a_problem_that_changes_between_requests_is_looked_at_again():
    """The first request is for the records as they are read, and answered; the second takes clipping for granted."""
    problem = small_problem(n=200)
    clipped, x = dataclasses.replace(problem, clip=0.01), np.zeros((3, 1))
    mechanism, sampling = mechanisms.named("laplace"), Sampling(200, 20)
    answered = []

    def asks() -> Conversation:
        answered.append((yield Gradient(problem, mechanism, x, 1e3, 1.0, sampling, 0)))
        answered.append((yield Gradient(problem, mechanism, x, 1e3, 1.0, sampling, 1)))
        answered.append((yield Gradient(clipped, mechanism, x, 1e3, 1.0, sampling, 2)))
        return Published(x)

    reader = Reader(es.Rows(problem, *records(problem)))
    with pytest.raises(ValueError, match="but the records are read as"):
        Answers(reader, Meter([mechanism.kind(10.0)], 1), Source(1)).hold(asks())
    assert len(answered) == 2


@pytest.mark.parametrize("engine", ["numpy", "fast"])
@pytest.mark.parametrize("repetitions", [None, 2])
def test_seeded_exact_runs_on_batches_do_not_depend_on_what_is_compiled(engine, repetitions, monkeypatch):
    pytest.importorskip("numba")
    problem = small_problem(n=3000, d=5)
    rows = es.Rows(problem, *records(problem), engine=engine)
    for name in ("laplace", "linf"):
        plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=30, batch=100, mechanism=name)
        paths = [es.run(plan, rows, seed=5, arithmetic="exact", repetitions=repetitions).path]
        with monkeypatch.context() as patch:
            without_numba(patch)
            paths.append(es.run(plan, rows, seed=5, arithmetic="exact", repetitions=repetitions).path)
        np.testing.assert_array_equal(*paths)
