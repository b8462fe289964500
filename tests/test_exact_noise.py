"""Exact noise: every sampler has its ideal law and no other, float64 never decides wrongly, nothing is truncated."""

import decimal
import itertools
import math
import os
from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from epsteps.budgets.mechanisms import named
from epsteps.noise import Source, added, gaussian, hulls, knorm
from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import Gaussians, rounded_gaussian, rounded_product, tilted_gaussian
from epsteps.noise.hulls import layout_of
from epsteps.noise.knorm import SQUEEZE, WORDS, Tape, gamma, integer_radius
from epsteps.noise.laplace import discrete_laplace, geometric, whole_geometric
from epsteps.noise.reals import FLAT, LOG_ULPS, Ball, Point, Uniform, decide, split
from epsteps.noise.shaped import parts_of, shaped
from epsteps.noise.uniform import uniform_below, uniform_subset
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import L1, L2, Body, Hull, Nuclear, Spherical

# Every statistical test accepts at p > 1e-4: on right code it would fail for one seed in ten thousand. Seeds are fixed.
LEVEL = 1e-4
FACTORS = (1, 2 / 3, 3 / 2)
SCALES = (0.3, 3.0, 50.5, 2.0**20, 2.0**26, 2.0**36 + 5, 2.0**50)

KNORMS = {"linf": knorm.linf, "hull": knorm.hull, "l2": knorm.l2}


def parts(d):
    """Half of the coordinates are a hull, the others blocks of five."""
    blocks = np.array_split(np.arange(d // 2, d), max(d // 10, 1))
    return parts_of(Body(tuple(range(d // 2)), tuple(tuple(map(int, block)) for block in blocks)))


def tilted(bits, scale, widen):
    return tilted_gaussian(bits, np.full((150, 2), scale), np.array([scale, 3 * scale]), np.linspace(-1, 1, 150), widen)


def chi_squared(counts, probabilities):
    """Return the p-value, neighbouring cells pooled until each expects ten draws or more."""
    expected = probabilities / probabilities.sum() * counts.sum()
    cell = np.floor(np.cumsum(expected) / 10).astype(int)
    cell = np.minimum(cell, cell[-1] - 1)
    keep = np.bincount(cell, expected) > 0
    return stats.chisquare(np.bincount(cell, counts)[keep], np.bincount(cell, expected)[keep]).pvalue


def only_the_right_scale(pvalue):
    """Assert that a law is accepted, and rejected at two thirds and three halves of its scale."""
    right, *wrong = (pvalue(factor) for factor in FACTORS)
    assert right > LEVEL
    assert max(wrong) < LEVEL


def laplace_cdf(k, t):
    q = np.exp(-1 / t)
    low, high = np.minimum(k, 0), np.maximum(k, 0)
    return np.where(k < 0, np.exp(low / t) / (1 + q), 1 - np.exp(-(high + 1) / t) / (1 + q))


def gaussian_cdf(k, sigma):
    return stats.norm.cdf((k + 0.5) / sigma)


SCALAR = {"laplace": (discrete_laplace, laplace_cdf), "gaussian": (rounded_gaussian, gaussian_cdf)}


def scalar_pvalue(sample, cdf, scale, factor):
    """Return the p-value in cells of a twentieth of the scale, with both tails."""
    edges = np.unique(np.round(np.linspace(-5, 5, 201) * scale).astype(np.int64))
    probabilities = np.diff(np.concatenate([[0], cdf(edges, factor * scale), [1]]))
    counts = np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1)
    return chi_squared(counts, probabilities)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SCALAR)
def test_each_coordinate_has_its_law(name, scale):
    sample = Source(1).integers(named(name), scale, (100_000,))
    assert sample.dtype == np.int64
    only_the_right_scale(lambda factor: scalar_pvalue(sample, SCALAR[name][1], scale, factor))


@pytest.mark.parametrize("name", SCALAR)
def test_scales_may_differ_between_coordinates(name):
    scales = np.array([[2.0], [700.0], [2.0**33]])
    sample = Source(2).integers(named(name), scales, (3, 40_000))
    for row, scale in zip(sample, scales.ravel(), strict=True):
        only_the_right_scale(lambda factor, row=row, scale=scale: scalar_pvalue(row, SCALAR[name][1], scale, factor))


def test_a_coarse_cut_leaves_the_law_alone():
    """High and low parts, cut where the law is far from flat: nearly every position has to be accepted or rejected."""
    count, scale, shift = 2500, 5.0, 3
    arrays = np.full(count, scale), np.full(count, scale / 2**shift), np.full(count, shift)
    bits = Bits(30)
    gaussian = rounded_product(bits, *arrays[1:], lambda _: Ball.exact(scale))
    only_the_right_scale(lambda factor: scalar_pvalue(gaussian, gaussian_cdf, scale, factor))
    first, second = (geometric(bits, bits.words(2 * count).reshape(2, -1), *arrays, 2.0**16) for _ in range(2))
    only_the_right_scale(lambda factor: scalar_pvalue(first - second, laplace_cdf, scale, factor))


@pytest.mark.parametrize("scale", [3.0, 2.0**40, 2.0**62])
def test_whole_geometric_variables_are_those_before_reduction(scale):
    """At scale 2^62 about one in seven passes 63 bits: it is not reduced before it is added to others."""
    scales = np.full(300, scale)
    reduced, shift = split(scales)
    words = Bits(31).words(600).reshape(2, -1)[: 1 + bool(shift.any())]
    whole = whole_geometric(Bits(32), words, scales, reduced, shift, 1.0)
    found = geometric(Bits(32), words, scales, reduced, shift, 1.0)
    assert [(integer + 2**63) % 2**64 - 2**63 for integer in whole] == found.tolist()
    assert (max(whole) >= 2**63) == (scale == 2.0**62)
    assert min(whole) >= 0


def test_levels_of_a_hull_are_sums_of_whole_numbers(monkeypatch):
    """They are compared with each other before the noise is reduced: none of them is negative at any scale."""
    seen = []

    def accepted(uniform, signs, above, below):
        seen.append((above, below))
        return True

    monkeypatch.setattr(hulls, "is_accepted", accepted)
    layout = layout_of(Hull(((0, 1, 2), (3, 4)), (5,)))
    for seed in range(50):
        assert hulls.hull_noise(Bits(seed), layout, 2.0**61).dtype == np.int64
    assert min(min(levels) for levels in seen) >= 0
    assert max(max(levels) for levels in seen) > 2**64


def test_noise_is_added_modulo_what_it_is_known_modulo():
    """Python's integers or int64, the sum is the same: that of the whole noise, of which 64 bits are kept."""
    integers = np.array([[2**62, -(2**62)], [5, -1]])
    noise = np.array([[2**63 - 1, -(2**63)], [2**63 - 1, 0]])
    wanted = [
        [(a + b + 2**63) % 2**64 - 2**63 for a, b in zip(*pair, strict=True)]
        for pair in zip(integers.tolist(), noise.tolist(), strict=True)
    ]
    for kinds in itertools.product((np.int64, object), repeat=2):
        found = added(integers.astype(kinds[0]), noise.astype(kinds[1]))
        assert found.dtype == np.int64
        assert found.tolist() == wanted
    assert added(np.array([2**70 + 3], dtype=object), np.array([1])).tolist() == [4]


@pytest.mark.parametrize("lowest", [0, 10, 18, 26])
@pytest.mark.parametrize("name", SCALAR)
def test_low_bits_are_uniform(name, lowest):
    """At scale 2^50 the low part has 24 bits: bits inside it, across its edge and above it."""
    sample = Source(3).integers(named(name), 2.0**50, (100_000,))
    assert stats.chisquare(np.bincount((sample >> lowest) & 1023, minlength=1024)).pvalue > LEVEL


def norm(kind, z):
    if kind == "linf":
        return np.abs(z).max(axis=-1)
    return (np.maximum(z.max(axis=-1), 0) - np.minimum(z.min(axis=-1), 0)) / 2


@pytest.mark.parametrize(("kind", "d", "t"), [("linf", 2, 1.5), ("hull", 2, 1.2), ("linf", 3, 1.0), ("hull", 3, 1.0)])
def test_integer_vectors_have_their_law(kind, d, t):
    """All probabilities of all points, up to a radius that no draw reaches."""
    bits, side = Bits(4), np.arange(-45, 46)
    sample = np.array([KNORMS[kind](bits, d, t) for _ in range(4000)])
    norms = norm(kind, np.stack(np.meshgrid(*[side] * d, indexing="ij"), axis=-1)).ravel()
    codes = np.ravel_multi_index(tuple(sample.T + 45), (91,) * d)
    counts = np.bincount(codes, minlength=91**d)
    order = np.argsort(norms, kind="stable")[::-1]
    only_the_right_scale(lambda factor: chi_squared(counts[order], np.exp(-norms / (factor * t))[order]))


@pytest.mark.parametrize("d", [1, 2])
def test_rounded_l2_vectors_have_their_law(d):
    """In one dimension the rounded Laplace law; in two the marginal, a mixture of Gaussians, summed numerically."""
    t, bits = 1.3, Bits(5)
    sample = np.array([knorm.l2(bits, d, t)[0] for _ in range(5000)])
    quantiles = stats.gamma((d + 1) / 2).ppf((np.arange(4000) + 0.5) / 4000)
    k = np.arange(-60, 61)

    def pvalue(factor):
        sigma = factor * t * np.sqrt(2 * quantiles)
        upper, lower = (stats.norm.cdf((k[:, None] + shift) / sigma).mean(axis=1) for shift in (0.5, -0.5))
        return chi_squared(np.bincount(sample + 60, minlength=121), upper - lower)

    only_the_right_scale(pvalue)


@pytest.mark.parametrize("t", [2.0**20, 2.0**36])
@pytest.mark.parametrize("d", [3, 20])
@pytest.mark.parametrize("kind", KNORMS)
def test_norms_of_large_vectors_have_their_law(kind, d, t):
    """At large scales the norm is a Gamma(d) variable, up to rounding; directions are spread over all of them."""
    bits = Bits(6)
    sample = np.array([KNORMS[kind](bits, d, t) for _ in range(1000)], dtype=float)
    norms = np.sqrt(np.square(sample).sum(axis=1)) if kind == "l2" else norm(kind, sample)
    only_the_right_scale(lambda factor: stats.kstest(norms, stats.gamma(d, scale=factor * t).cdf).pvalue)
    signs = (sample > 0) @ (1 << np.arange(d)) if d == 3 else sample[:, 0] > 0
    if kind != "hull":
        assert stats.chisquare(np.unique(signs, return_counts=True)[1]).pvalue > LEVEL
    if kind == "l2" and d == 3:  # Archimedes: a coordinate of a uniform direction in space is uniform
        assert stats.kstest(sample[:, 0] / norms, stats.uniform(-1, 2).cdf).pvalue > LEVEL


@pytest.mark.parametrize(
    ("power", "offset", "t"), [(1, 0.5, 0.7), (1, 1.0, 2.0), (3, 0.5, 1.7), (5, 1.0, 3.3), (40, 1.0, 0.7)]
)
def test_integer_radii_have_their_law(power, offset, t):
    bits, r = Bits(7), np.arange(400)
    sample = [integer_radius(Tape(bits, bits.words(WORDS)), power, offset, t) for _ in range(4000)]
    counts = np.bincount(sample, minlength=400)

    def pvalue(factor):
        log = power * np.log(r + offset) - r / (factor * t)
        return chi_squared(counts, np.exp(log - log.max()))

    only_the_right_scale(pvalue)


@pytest.mark.parametrize("twice_shape", [2, 3, 21])
def test_gamma_variables_have_their_law(twice_shape):
    bits = Bits(8)
    tapes = (Tape(bits, bits.words(WORDS)) for _ in range(4000))
    sample = [float(decide(lambda tape=tape: (tape.rewind(), gamma(tape, twice_shape))[1]).midpoint) for tape in tapes]
    only_the_right_scale(lambda factor: stats.kstest(sample, stats.gamma(twice_shape / 2, scale=factor).cdf).pvalue)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("bound", [1, 2, 7, 960, 3 * 2**40 + 1, 2**63 + 12345])
def test_uniform_integers_are_uniform(bound, rows):
    bits = Bits(9)
    sample = uniform_below(bits, bits.words(20_000 * rows).reshape(rows, -1), bound).view(np.uint64)
    assert int(sample.max()) < bound
    cells = min(bound, 64)
    codes = np.array([int(k) * cells // bound for k in sample])
    assert cells == 1 or stats.chisquare(np.bincount(codes, minlength=cells)).pvalue > LEVEL


@pytest.mark.parametrize(("n", "m"), [(7, 3), (8, 4), (8, 6), (7, 7), (40, 2), (1, 1)])
@pytest.mark.parametrize("seed", [10, None])
def test_subsets_are_uniform(n, m, seed):
    source, sampling = Source(seed), Sampling(n=n, m=m)
    subsets = {subset: i for i, subset in enumerate(itertools.combinations(range(n), m))}
    codes = [subsets[tuple(source.subset(sampling).tolist())] for _ in range(40 * len(subsets))]
    counts = np.bincount(codes, minlength=len(subsets))
    assert len(subsets) == 1 or stats.chisquare(counts).pvalue > LEVEL


@pytest.mark.parametrize(("n", "m"), [(100_000, 1000), (100_000, 40_000), (100_000, 99_000)])
def test_large_subsets_have_no_repetitions(n, m):
    subset = Source(11).subset(Sampling(n=n, m=m))
    assert len(subset) == m
    assert np.all(np.diff(subset) > 0)
    assert 0 <= subset[0] <= subset[-1] < n
    assert stats.kstest(subset / n, "uniform").pvalue > LEVEL


def vector(scale):
    return np.full(300, scale)


SLOW = {
    "laplace 2^20": (lambda bits, widen: discrete_laplace(bits, vector(2.0**20), widen), 2.0**26),
    "laplace 2^36": (lambda bits, widen: discrete_laplace(bits, vector(2.0**36), widen), 2.0**20),
    "laplace 2^62": (lambda bits, widen: discrete_laplace(bits, vector(2.0**62), widen), 2.0**20),
    "gaussian 0.7": (lambda bits, widen: rounded_gaussian(bits, vector(0.7), widen), 2.0**45),
    "gaussian 2^20": (lambda bits, widen: rounded_gaussian(bits, vector(2.0**20), widen), 2.0**27),
    "gaussian 2^36": (lambda bits, widen: rounded_gaussian(bits, vector(2.0**36), widen), 2.0**20),
    "gaussian 2^62": (lambda bits, widen: rounded_gaussian(bits, vector(2.0**62), widen), 2.0**20),
    "linf": (lambda bits, widen: knorm.linf(bits, 300, 2.0**30, widen), 2.0**70),
    "hull": (lambda bits, widen: knorm.hull(bits, 300, 2.0**30, widen), 2.0**70),
    "l2": (lambda bits, widen: knorm.l2(bits, 300, 2.0**30, widen), 2.0**20),
    "l2 with scales": (lambda bits, widen: knorm.l2(bits, 300, np.geomspace(1, 2.0**40, 300), widen), 2.0**22),
    "shaped": (lambda bits, widen: shaped(bits, parts(300), 2.0**30, widen), 2.0**70),
    "tilted 0.7": (lambda bits, widen: tilted(bits, 0.7, widen).ravel(), 2.0**45),
    "tilted 2^20": (lambda bits, widen: tilted(bits, 2.0**20, widen).ravel(), 2.0**26),
    "tilted 2^36": (lambda bits, widen: tilted(bits, 2.0**36, widen).ravel(), 2.0**20),
}


@pytest.mark.parametrize("sampler", SLOW)
def test_the_slow_path_gives_the_same_integers(sampler, monkeypatch):
    questions = []
    leading = Uniform.leading
    monkeypatch.setattr(Uniform, "leading", lambda self, count: questions.append(count) or leading(self, count))
    draw, widen = SLOW[sampler]
    fast = draw(Bits(12), 1.0)
    asked = len(questions)
    np.testing.assert_array_equal(draw(Bits(12), widen), fast)
    assert asked < 50
    assert len(questions) > 200


VECTORS = KNORMS | {"shaped": lambda bits, d, t: shaped(bits, parts(d), t)}


@pytest.mark.parametrize("sampler", VECTORS)
def test_starting_at_another_precision_gives_the_same_integers(sampler, monkeypatch):
    """With six digits hardly anything is certain at first; every question is asked again until it is."""
    expected = VECTORS[sampler](Bits(13), 30, 2.0**20)
    monkeypatch.setattr(decide, "__defaults__", (6,))
    np.testing.assert_array_equal(VECTORS[sampler](Bits(13), 30, 2.0**20), expected)


def test_open_words_are_split_in_the_right_proportion():
    """A word that straddles a boundary: the bits to come decide, with the exact probabilities."""
    bits = Bits(14)
    for rows in (1, 2):
        thirds = uniform_below(bits, np.full((rows, 3000), 2**64 // 3, np.uint64), 3)
        assert stats.binomtest(int((thirds == 0).sum()), 3000, 1 / 3).pvalue > LEVEL
    with decimal.localcontext(decimal.Context(prec=60)):
        boundary = 2**64 * Decimal(-1).exp()
    word, share = int(boundary), float(boundary % 1)
    bits.words = lambda count: np.full(
        count, word, np.uint64
    )  # both geometric variables are 1 with probability `share`
    noise = discrete_laplace(bits, np.ones(3000))
    expected = 3000 * np.array([share * (1 - share), share**2 + (1 - share) ** 2, share * (1 - share)])
    assert stats.chisquare(np.bincount(noise + 1, minlength=3), expected).pvalue > LEVEL


def awkward_words(rng, count):
    """Words near 0, near both ends of the signed range, and anywhere."""
    sizes = 2.0 ** rng.uniform(0, 63, count)
    signed = np.where(rng.random(count) < 0.5, sizes, -sizes).astype(np.int64)
    ends = rng.choice(np.array([0, 1, 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 2], np.uint64), count)
    kind = rng.integers(3, size=count)
    return np.choose(kind, [signed.view(np.uint64), ends, rng.integers(2**64, size=count, dtype=np.uint64)])


class Given(Bits):
    """Words that a test chose. The next bits are all zeros or all ones; only what follows them is random again."""

    def __init__(self, words, last):
        super().__init__(0)
        self._given, self._last = words, last

    def words(self, count):
        return np.resize(self._given, count)

    def more(self, count):
        return self._last * (2**count - 1) if count < 64 else super().more(count)


@pytest.mark.parametrize("last", [0, 1])
def test_float64_gaussians_keep_their_error_bounds(last):
    """Also for points at the edge of the disc and near its centre, and whatever the later bits are."""
    rng = np.random.default_rng(15)
    u = awkward_words(rng, 1400)
    cosine = np.sqrt(np.maximum(1 - np.square(u.view(np.int64) * 2.0**-63), 0)) * 2.0**63
    near_edge = (cosine * (1 - 2.0 ** -rng.uniform(30, 53, 1400))).astype(np.int64).view(np.uint64)
    v = np.where(rng.random(1400) < 0.3, near_edge, awkward_words(rng, 1400))
    drawn = 2 * (int(1.2733 * 500 + 4 * np.sqrt(500)) + 8)  # the words of a draw of 1000
    z = Gaussians(Given(np.concatenate([u[: drawn // 2], v[: drawn // 2]]), last), 1000, 1.0)
    certain = np.flatnonzero(np.isfinite(z.errors))
    assert len(certain) > 500
    for i in certain.tolist():
        exact = decide(lambda i=i: z.exact(i))
        assert abs(Decimal(float(z.values[i])) - exact.midpoint) <= Decimal(float(z.errors[i])) + exact.radius


def test_gaussians_at_the_edge_and_near_the_centre_are_left_open():
    """There float64's bound is not proved: 1 - s below 2^-44, or s below 2^-80."""
    for log, is_open in ((-40, False), (-45, True), (-48, True), (-52, True)):
        edge = int(math.sqrt(1 - 2.0**log) * 2**63)
        z = Gaussians(Given(np.repeat(np.array([edge, 1], np.uint64), 13), 0), 2, 1.0)  # 13 points are drawn for a pair
        assert np.all(np.isinf(z.errors)) == is_open
    for log, is_open in ((-39, False), (-41, True), (-60, True)):
        z = Gaussians(Given(np.full(26, 2 ** (63 + log), np.uint64), 0), 2, 1.0)
        assert np.all(np.isinf(z.errors)) == is_open


class Awkward(Given):
    """Awkward words without an end, so that no two numbers are made of the same ones."""

    def __init__(self, seed, last):
        super().__init__(np.empty(0, np.uint64), last)
        self._awkward = np.random.default_rng(seed)

    def words(self, count):
        return awkward_words(self._awkward, count)


GAUSSIAN = {
    "alone": lambda bits, scale: rounded_gaussian(bits, np.full(300, scale)),
    "small common part": lambda bits, scale: tilted_gaussian(
        bits, np.full((3, 100), scale), np.full(100, scale / 64), np.array([1.0, -0.3, 2.0**-20])
    ),
    "large common part": lambda bits, scale: tilted_gaussian(
        bits, np.full((3, 100), scale), np.full(100, scale * 2.0**20), np.array([1.0, -0.3, 2.0**-20])
    ),
}


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("law", GAUSSIAN)
def test_float64_keeps_its_error_bounds_before_it_rounds_a_gaussian(law, last, monkeypatch):
    """Every term and every rounding of ⌊σz + m + 1/2⌋ is in its tolerance, whether an integer is near or not."""
    looked, exact = [], {}

    def open_everywhere(x, tolerance):
        looked[:] = [x, tolerance]
        return np.zeros(len(x), np.int64), np.arange(len(x))

    def exact_high(sigma, means, z, i, shift):
        exact[i] = (sigma(i) * z.exact(i) + means.exact(i) + Ball.exact(0.5)) * Ball.exact(2.0**-shift)
        return exact[i].floor()

    monkeypatch.setattr(gaussian, "certain_floor", open_everywhere)
    monkeypatch.setattr(gaussian, "_exact_high", exact_high)
    for scale in (1.0, 3e5, 2.0**36 + 5):
        GAUSSIAN[law](Awkward(31, last), scale)
        certain = np.flatnonzero(np.isfinite(looked[1]))
        assert len(certain) > 50
        with decimal.localcontext(decimal.Context(prec=60)):
            for i in certain.tolist():
                x, tolerance = (Decimal(float(found[i])) for found in looked)
                assert abs(x - exact[i].midpoint) <= tolerance + exact[i].radius


@pytest.mark.parametrize("scale", [1.0, 3e5, 2.0**27 - 1])
@pytest.mark.parametrize("last", [0, 1])
def test_float64_never_decides_a_geometric_variable_wrongly(scale, last):
    """Words as near as they come to a boundary: whatever the later bits are, a settled integer is the right one."""
    k = np.unique((scale * np.random.default_rng(16).uniform(0, 20, 150)).astype(np.int64))
    with decimal.localcontext(decimal.Context(prec=60)):
        boundaries = [int(2**64 * (-Decimal(int(j)) / Decimal(scale)).exp()) for j in k]
    words = [min(max(b + step, 0), 2**64 - 1) for b in boundaries for step in (-4000, -1, 0, 1, 4000)]
    found = discrete_laplace(Given(np.array(words, np.uint64), last), np.full(len(words), scale))
    assert np.all(found == 0)  # both geometric variables read the same words
    uniforms = [Uniform(Given([], last), word, 64) for word in words]
    exact = [decide(lambda u=u: (Ball.exact(scale) * u.exponential()).floor(least=0)) for u in uniforms]
    one_sided = discrete_laplace(Halves(words, last), np.full(len(words), scale))
    np.testing.assert_array_equal(one_sided, exact)


class Halves(Given):
    """The given words, then as many of an exponential variable near 0."""

    def words(self, count):
        rest = np.full(count - len(self._given), 2**64 - 2**20, np.uint64)
        return np.concatenate([np.array(self._given, np.uint64), rest])


OPERATIONS = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a / b,
    "logarithm": lambda a, _: a.ln(),
    "root": lambda a, _: a.sqrt(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_keep_every_number_of_their_operands(operation):
    """All pairs of ends of two intervals, from tiny to nearly too wide, at six digits and at sixty."""
    rng, wide = np.random.default_rng(31), decimal.Context(prec=60)
    signs = (1,) if operation in ("logarithm", "root") else (1, -1)
    for _ in range(300):
        middles = [int(rng.choice(signs)) * Decimal(float(10 ** rng.uniform(-6, 6))) for _ in range(2)]
        radii = [abs(m) * Decimal(float(10 ** rng.uniform(-12, -0.31))) for m in middles]
        found = decide(lambda m=middles, r=radii: OPERATIONS[operation](Ball(m[0], r[0]), Ball(m[1], r[1])), 6)
        with decimal.localcontext(wide):
            for first, second in itertools.product((-1, 1), repeat=2):
                exact = OPERATIONS[operation](middles[0] + first * radii[0], middles[1] + second * radii[1])
                assert abs(exact - found.midpoint) <= found.radius


def test_the_shortcut_of_the_gamma_variable_is_allowed():
    """Its bound lies below the acceptance probability, for every shape that is used."""
    y = np.linspace(-0.5, 3, 2001)
    for a in (2 / 3, 1.0, 5 / 3, 10.0, 1e4):
        log_acceptance = a * (4.5 * y**2 + 1 - (1 + y) ** 3 + 3 * np.log1p(y))
        assert np.all(1 - SQUEEZE * (9 * a * y**2) ** 2 / a <= np.exp(log_acceptance) + 1e-12)


@pytest.mark.parametrize("bound", [1, 3, 2**32 + 1, 2**61 - 1, 2**64 - 1])
def test_uniform_integers_are_the_integer_part_of_a_product(bound):
    words = np.random.default_rng(32).integers(2**64, size=(2, 3000), dtype=np.uint64)
    one = [bound * int(w) >> 64 for w in words[0]]
    two = [bound * (int(v) << 64 | int(w)) >> 128 for v, w in words.T]
    np.testing.assert_array_equal(uniform_below(Bits(0), words, bound).view(np.uint64), np.array(two, np.uint64))
    settled = np.array([bound * (int(w) + 1) - 1 >> 64 for w in words[0]], np.uint64) == np.array(one, np.uint64)
    found = uniform_below(Bits(0), words[:1], bound).view(np.uint64)
    np.testing.assert_array_equal(found[settled], np.array(one, np.uint64)[settled])


def test_balls_contain_the_truth():
    """Against the same numbers at a much higher precision."""
    bits = Bits(17)
    for _ in range(150):
        point = Point(Uniform(bits), Uniform(bits))
        if not decide(point.is_inside):
            continue
        number = Uniform(bits)

        def formula(point=point, number=number):
            x = point.gaussian(1)
            return (x * x / number.ball() + Ball.exact(0.1)).sqrt() - number.exponential() * x

        coarse, fine = decide(formula, 15), decide(formula, 80)
        assert abs(coarse.midpoint - fine.midpoint) <= coarse.radius
        assert coarse.radius < Decimal("1e-6")
        assert fine.radius < Decimal("1e-60")


def test_numpys_logarithm_is_as_accurate_as_assumed():
    rng = np.random.default_rng(18)
    near_one = 1 - rng.integers(1, 2**20, 1500) * 2.0**-53
    x = np.concatenate([rng.random(1500), near_one, 2.0 ** -rng.uniform(0, 80, 1500)])
    with decimal.localcontext(decimal.Context(prec=40)):
        for argument, value in zip(x.tolist(), np.log(x).tolist(), strict=True):
            exact = Decimal(argument).ln()
            assert abs(Decimal(value) - exact) <= LOG_ULPS // 2 * Decimal(float(np.spacing(abs(float(exact)))))


def test_the_callers_decimal_context_does_not_matter():
    def draws():
        vectors = [KNORMS[kind](Bits(19), 5, 1000.5) for kind in KNORMS]
        return np.concatenate([*vectors, *(SLOW[name][0](Bits(19), SLOW[name][1])[:20] for name in SLOW)])

    expected = draws()
    strange = decimal.Context(
        prec=3,
        rounding=decimal.ROUND_FLOOR,
        Emin=-2,
        Emax=2,
        traps=[decimal.Inexact, decimal.Rounded, decimal.FloatOperation, decimal.Subnormal],
    )
    with decimal.localcontext(strange):
        np.testing.assert_array_equal(draws(), expected)
        assert decimal.getcontext().prec == 3


@pytest.mark.parametrize("t", [5.0, 2.0**20])
def test_laplace_noise_agrees_with_opendp(t):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    theirs = np.array(dp.m.make_laplace(*space, scale=t)([0] * 20_000))
    ours = Source().integers(named("laplace"), t, (20_000,))

    def pvalue(factor):
        edges = np.unique(np.round(np.linspace(-3, 3, 61) * t).astype(np.int64))
        table = [np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (ours, factor * theirs)]
        return stats.chi2_contingency(table).pvalue

    only_the_right_scale(pvalue)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # pytest's own threads, from 3.12 on
def test_forked_workers_draw_different_noise():
    source = Source()
    source.integers(named("laplace"), 2.0**40, (4,))
    noise = []
    for _ in range(2):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, source.integers(named("laplace"), 2.0**40, (4,)).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        noise.append(np.frombuffer(os.read(read, 32), np.int64))
        os.close(read)
        os.close(write)
    assert not np.any(noise[0] == noise[1])


def draws_of(source):
    integers = [source.integers(named(name), 2.0**40, (5, 3)).ravel() for name in SCALAR]
    cube, hull = Body((), tuple((column,) for column in range(5))), Body(tuple(range(5)), ())
    return np.concatenate([*integers, *(source.shaped(shape, 2.0**40) for shape in (cube, hull, L2(5)))])


def test_seeds_repeat_and_the_operating_system_does_not():
    np.testing.assert_array_equal(draws_of(Source(20)), draws_of(Source(20)))
    assert not np.any(draws_of(Source(20)) == draws_of(Source(21)))
    assert not np.any(draws_of(Source()) == draws_of(Source()))


def test_refinements_do_not_change_later_draws():
    bits, other = Bits(22), Bits(22)
    other.more(1000)
    np.testing.assert_array_equal(bits.words(5), other.words(5))


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_float64_draws_have_the_law_of_their_scale(law):
    """Those of experiments: seeded ones repeat, and there is one scale for each column."""
    scales, cdf = np.array([0.2, 3.0]), getattr(stats, {"laplace": "laplace", "gaussian": "norm"}[law]).cdf
    sample, again = (Source(32).draw(named(law), scales, (2000, 2)) for _ in range(2))
    np.testing.assert_array_equal(sample, again)
    for column, scale in zip(sample.T, scales, strict=True):
        only_the_right_scale(lambda factor, x=column, t=scale: stats.kstest(x / (t * factor), cdf).pvalue)
    first, second = (Source().draw(named(law), scales, (50, 2)) for _ in range(2))
    assert not np.any(first == second)


def test_only_flat_cells_are_left_unlooked_at(monkeypatch):
    """Positions below the threshold are taken as they are if the exponent is at most FLAT on the whole cell."""
    seen = []

    def low_part(bits, words, shift, steep, excess, widen):
        seen.append(steep)
        return np.zeros(len(shift), np.int64)

    monkeypatch.setattr(gaussian, "low_part", low_part)
    for sigma in (2.0**8, 2.0**14, 2.0**15, 2.0**16, 2.0**17, 2.0**26):
        arrays = np.full(2000, sigma), np.full(2000, 3)
        high = gaussian.rounded_product(Bits(33), *arrays, lambda _, s=sigma: Ball.exact(8 * s)) >> 3
        # In cells, where the standard deviation is sigma: x² - n² between a cell's two ends, over 2 sigma².
        exponents = (2 * np.maximum(np.abs(high + 0.5) - 0.5, 0) + 1) / (2 * sigma**2)
        assert np.all(exponents[~seen[-1]] <= FLAT)
    assert np.all(seen[0])
    assert not np.any(seen[-1])


def test_the_largest_wishart_noise_is_drawn():
    assert Source(34).shaped(Nuclear(1), 2.0**60).shape == (1, 1)
    with pytest.raises(ValueError, match=r"scale must be at most 2\*\*60, got 1\.1529215046068472e\+18"):
        Source(34).shaped(Nuclear(1), math.nextafter(2.0**60, math.inf))


def test_a_common_part_of_scale_zero_is_none():
    """Entries are the same integers as where the weights leave the common part out, column by column."""
    for scale in (0.7, 3.0, 2.0**20):
        absent = gaussian.tilted(Bits(30), scale, np.array([0.0, 0.0]), (50, 2))
        np.testing.assert_array_equal(
            absent, gaussian.tilted(Bits(30), scale, np.array([2.0**30, 5.0]), (50, 2), weights=0.0)
        )
        mixed = gaussian.tilted(Bits(30), scale, np.array([0.0, 2.0**30]), (50, 2))
        np.testing.assert_array_equal(mixed[:, 0], absent[:, 0])
        assert np.all(mixed[:, 1] != absent[:, 1])


@pytest.mark.parametrize("name", SCALAR)
def test_no_noise_is_too_large_or_too_small_to_be_drawn(name):
    """The largest scale wraps around, which a scale eight bits smaller does not; the smallest ones give zeros."""
    largest = Source(23).integers(named(name), 2.0**62, (2000,))
    assert np.any(largest > 2**62)
    assert np.any(largest < -(2**62))
    assert np.all(Source(23).integers(named(name), np.array([1e-3, 5e-324]), (100, 2)) == 0)
    assert Source(23).integers(named(name), 1.0, ()).shape == ()
    assert Source(23).integers(named(name), 1.0, (0,)).shape == (0,)


@pytest.mark.parametrize("word", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("last", [0, 1])
def test_no_word_is_refused(word, last):
    for scale in (0.1, 2.0**20, 2.0**62):
        bits = Given(np.array([word], np.uint64), last)
        assert discrete_laplace(bits, np.full(3, scale)).shape == (3,)


def test_a_huge_radius_wraps_around():
    bits = Bits(24)
    huge = uniform_below(bits, bits.words(2000).reshape(2, -1), 5 * 2**70)
    assert stats.kstest(huge / 2.0**64 + 0.5, "uniform").pvalue > LEVEL


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("scale", [0, 0.0, -0.0, -4, np.nan, np.inf, -np.inf, 2.0**62 * 1.01, 2**63, [1.0, 0.0]])
def test_unusable_scales_are_refused(name, scale):
    with pytest.raises(ValueError, match=r"scale must be positive and at most 2\*\*62, got .*Choose integer units"):
        Source(25).integers(named(name), scale, (2,))


@pytest.mark.parametrize("scale", ["1", None, True, 1j])
def test_scales_that_are_no_numbers_are_refused(scale):
    with pytest.raises(TypeError, match="scale must be a number"):
        Source(25).integers(named("laplace"), scale, (2,))


BALLS = {
    "linf": lambda d: Body((), tuple((column,) for column in range(d))),
    "hull": lambda d: Body(tuple(range(d)), ()),
    "l2": L2,
}


@pytest.mark.parametrize(
    ("d", "t", "message"),
    [
        (3, 0.99, "scale must be at least 1 and at most"),
        (3, 0.0, "scale must be positive and at most"),
        (3, -2.0, "scale must be positive and at most"),
        (3, np.nan, "scale must be positive and at most"),
        (3, np.inf, "scale must be positive and at most"),
        (3, 2.0**62, r"scale must be below 2\.\d+e\+15 in 3 dimensions, got 4\.6\d+e\+18"),
        (10**6, 2.0**42, r"scale must be below 2\.\d+e\+12 in 1000000 dimensions"),
    ],
)
@pytest.mark.parametrize("kind", BALLS)
def test_unusable_balls_are_refused(kind, d, t, message):
    with pytest.raises(ValueError, match=message):
        Source(26).shaped(BALLS[kind](d), t)


@pytest.mark.parametrize("kind", [L1, L2, Spherical])
@pytest.mark.parametrize(("d", "error", "message"), [(0, ValueError, "at least 1, got 0"), (2.5, TypeError, "2.5")])
def test_norms_of_no_coordinates_are_refused(kind, d, error, message):
    with pytest.raises(error, match=rf"d must be .*{message}"):
        kind(d)


def test_the_largest_ball_is_drawn():
    for kind in BALLS:
        for d in (1, 20, 5000):
            largest = 2.0**62 / (2 * (d + 40 * np.sqrt(d) + 800)) * (1 - 1e-9)
            assert Source(27).shaped(BALLS[kind](d), largest).shape == (d,)


def test_unknown_mechanisms_are_refused():
    class Cauchy:
        name = "cauchy"

    with pytest.raises(ValueError, match=r"mechanism must be one of 'laplace', .*'ellipsoid', .*got 'cauchy'"):
        Source(28).integers(Cauchy(), 1.0, (2,))  # pyright: ignore


def test_subsets_of_any_share_come_from_the_same_function():
    assert len(uniform_subset(Bits(29), 0, 5)) == 0


@pytest.mark.parametrize("bound", [2**64 - 1, 2**64, 2**64 + 1])
def test_uniform_integers_are_drawn_on_both_sides_of_a_word(bound):
    """Half of them have the top bit, with a chance of error below 1e-8."""
    words = Bits(40).words(2 * 4000).reshape(2, -1)
    found = uniform_below(Bits(41), words, bound)
    assert abs(np.mean(found < 0) - 0.5) < 0.05
