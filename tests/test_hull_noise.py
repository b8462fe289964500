"""The exact hull of records with one-hot blocks: its gauge, its noise, what a change costs, and the covariance."""

from fractions import Fraction
from itertools import product
from math import comb, factorial, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from test_shaped_noise import LEVEL, box, chi_squared, only_the_right_scale

import epsteps as es
from epsteps.budgets.costs import Epsilon
from epsteps.budgets.mechanisms import KNorm, named, smallest
from epsteps.noise import Source
from epsteps.noise.bits import Bits
from epsteps.noise.hulls import hull_noise, is_accepted, layout_of
from epsteps.noise.reals import Uniform
from epsteps.problem.shapes import Body, Hull

SMALL = {
    "a pair": Hull(((1, 0),)),
    "a single and a pair": Hull(((1,), (2, 0))),
    "two singles": Hull(((1,), (0,))),
    "three": Hull(((0, 2, 1),)),
    "two pairs": Hull(((0, 2), (3, 1))),
    "a single and a signed one": Hull(((1,),), (0,)),
    "a pair and a signed one": Hull(((0, 2),), (1,)),
    "a single and two signed ones": Hull(((1,),), (0, 2)),
    "two singles, a pair and a signed one": Hull(((3,), (0, 4), (2,)), (1,)),
}
TWENTY = Hull((*((j,) for j in range(8)), (8, 9, 10, 11, 12), (13, 14, 15), (16,), (17,), (18, 19)))
MIXED = Hull((*((j,) for j in range(8)), (8, 9, 10, 11, 12), (13, 14, 15), (18, 19)), (16, 17))
LARGE = Hull((*((j,) for j in range(40)), tuple(range(40, 100)), *((j, j + 1) for j in range(100, 200, 2))))


def levels(hull, z):
    """Return the largest sum above, the largest sum below, and the largest of the signed coordinates, or 0."""
    above = np.max([np.maximum(z[list(part)], 0).sum(axis=0) for part in hull.parts], axis=0)
    below = np.max([np.maximum(-1 - z[list(part)], 0).sum(axis=0) for part in hull.parts], axis=0)
    signed = [np.maximum(z[column], -1 - z[column]) for column in hull.signed]
    return above, below, np.max([0 * above, *signed], axis=0)


def number(hull, above, below):
    """Return how many points lie within two levels, as an exact integer."""
    found = (2 * (above + below + 1)) ** len(hull.signed)
    for k in map(len, hull.parts):
        found *= sum(comb(k, j) * comb(above + j, j) * comb(below + k - j, k - j) for j in range(k + 1))
    return found


def weights(hull, z, q):
    """Return the sum of q^(λ+μ) over all levels that have room for z: n - g + 1 pairs for each sum n from max(g, s)."""
    above, below, signed = levels(hull, z)
    least = np.maximum(above + below, signed)
    return q**least * ((least - above - below + 1) / (1 - q) + q / (1 - q) ** 2)


@pytest.mark.parametrize("name", SMALL)
def test_points_are_counted(name):
    hull, side = SMALL[name], 5 if SMALL[name].d > 4 else 7
    above, below, signed = levels(hull, box(hull.d, side))
    for first, second in product(range(side), repeat=2):
        if first + second < side:
            inside = (above <= first) & (below <= second) & (signed <= first + second)
            assert np.count_nonzero(inside) == number(hull, first, second)


@pytest.mark.parametrize("name", SMALL)
def test_vectors_have_their_law(name):
    """The probabilities of all points of a box, and of all others together."""
    hull, t, draws = SMALL[name], 1.2 if SMALL[name].d < 4 else 1.0, 2000
    side = {2: 40, 3: 25, 4: 13, 5: 8}[hull.d]
    source = Source(1)
    sample = np.array([source.shaped(hull, t) for _ in range(draws)]).T
    points = box(hull.d, side)
    inside = np.all(np.abs(sample) <= side, axis=0)
    codes = np.ravel_multi_index(tuple(sample[:, inside] + side), (2 * side + 1,) * hull.d)
    order = np.argsort(weights(hull, points, np.exp(-1 / t)), kind="stable")
    counts = np.append(np.count_nonzero(~inside), np.bincount(codes, minlength=points.shape[1])[order])
    room = np.array([[float(number(hull, above, below)) for below in range(120)] for above in range(120)])

    def pvalue(factor):
        q = np.exp(-1 / (factor * t))
        shares = weights(hull, points, q)[order] / (q ** np.arange(120) @ room @ q ** np.arange(120))
        return chi_squared(counts, np.append(max(0.0, 1 - shares.sum()), shares))

    only_the_right_scale(pvalue)


@pytest.mark.parametrize("name", SMALL)
def test_a_change_costs_its_gauge(name):
    """At q = 1/2, in integers: P(z + D) 2^gauge(D) >= P(z) for all z and D of a box."""
    hull = SMALL[name]
    z, changes = box(hull.d, 3 if hull.d > 3 else 6), box(hull.d, 1 if hull.d > 4 else 2)

    def scaled(points):  # P(z) is ~ 2^-m (m - g + 2) for m = max(g, s)
        above, below, signed = levels(hull, points)
        least = np.maximum(above + below, signed)
        return (least - above - below + 2) << (48 - least)

    before = scaled(z)
    for change, gauge in zip(changes.T, hull.gauge(changes), strict=True):
        assert np.all(scaled(z + change[:, None]) << gauge >= before)


@pytest.mark.parametrize("name", SMALL)
def test_a_change_costs_no_less(name):
    """Far out along D itself the loss is its gauge, or with signed coordinates as near to it as one likes."""
    hull, t = SMALL[name], 50.0
    changes = box(hull.d, 1)
    far = 400 * changes
    losses = np.log(weights(hull, far, np.exp(-1 / t)) / weights(hull, far + changes, np.exp(-1 / t)))
    gauge = hull.gauge(changes) / t
    assert np.all(losses <= gauge + 1e-9)
    assert np.all(losses >= 0.85 * gauge)
    if not hull.signed:
        np.testing.assert_allclose(losses, gauge, atol=1e-9)


def proposals(hull):
    """Return the weight of each vector of numbers of ups, by the definition; signed ones count as parts of one."""
    sizes = [*map(len, hull.parts), *[1] * len(hull.signed)]
    found = {}
    for ups in product(*(range(k + 1) for k in sizes)):
        each = [Fraction(comb(k, j), factorial(j) * factorial(k - j)) for k, j in zip(sizes, ups, strict=True)]
        found[ups] = prod(each) * factorial(sum(ups)) * factorial(hull.d - sum(ups))
    return found


@pytest.mark.parametrize("name", SMALL)
def test_ups_are_proposed_with_their_weights(name):
    hull, draws = SMALL[name], 3000
    expected = np.zeros(hull.d + 1)
    for ups, weight in proposals(hull).items():
        expected[sum(ups)] += float(weight)
    np.testing.assert_allclose(layout_of(hull).shares, expected / expected.sum(), rtol=1e-13)
    bits, counts = Bits(2), np.zeros((2, hull.d + 1), dtype=int)
    for _ in range(draws):
        signs = layout_of(hull).signs(bits)
        counts[0, signs.up.total] += 1
        counts[1, signs.down.total] += 1
        listed = [column for half in (signs.up, signs.down) for columns in half.columns.values() for column in columns]
        assert sorted([*listed, *hull.signed]) == list(range(hull.d))
    assert min(chi_squared(found, expected) for found in counts) > LEVEL


def exact_ratio(hull, ups, signed_up, above, below):
    """Return what the levels are accepted with, for numbers of ups in the parts."""
    downs = [len(part) - j for part, j in zip(hull.parts, ups, strict=True)]
    ratio = Fraction((above + 1) ** signed_up * below ** (len(hull.signed) - signed_up))
    for level, counts, more in ((above, ups, signed_up), (below, downs, len(hull.signed) - signed_up)):
        held = prod(level + i for j in counts for i in range(1, j + 1))
        ratio *= Fraction(held, prod(level + i for i in range(1, sum(counts) + more + 1)))
    return ratio


@pytest.mark.parametrize("hull", [*SMALL.values(), TWENTY, MIXED, LARGE])
def test_levels_are_accepted_with_the_exact_probability(hull):
    """Just below it, and not just above; it is at most 1, and near 1 for the levels of a large scale."""
    bits = Bits(3)
    for above, below in product((0, 1, 3, 40, 2**30, 2**70), repeat=2):
        signs = layout_of(hull).signs(bits)
        up = {c for columns in signs.up.columns.values() for c in columns.tolist()}
        ratio = exact_ratio(hull, [len(up.intersection(part)) for part in hull.parts], signs.up.signed, above, below)
        assert 0 <= ratio <= 1
        assert min(above, below) < 2**30 or ratio > 1 - 2.0**-12
        first = int(ratio * 2**4000)
        assert first == 0 or is_accepted(Uniform(bits, first - 1, 4000), signs, above, below)
        assert first == 2**4000 or not is_accepted(Uniform(bits, first + 1, 4000), signs, above, below)


@pytest.mark.parametrize("hull", [TWENTY, Hull((tuple(range(12)), tuple(range(12, 20))))])
def test_gauges_of_twenty_coordinates_have_their_law(hull):
    """P(A + B = r) is ~ q^r times the number of such points, counted by differences."""
    source, t, largest = Source(4), 3.0, 160
    sample = np.add(*levels(hull, np.array([source.shaped(hull, t) for _ in range(800)]).T)[:2])
    within = [[number(hull, a, b) if min(a, b) >= 0 else 0 for b in range(-1, largest)] for a in range(-1, largest)]
    exactly = np.diff(np.diff(np.array(within, dtype=object), axis=0), axis=1)
    points = [sum(exactly[a, r - a] for a in range(r + 1)) for r in range(largest)]
    counts = np.bincount(sample, minlength=largest)
    assert len(counts) == largest

    def pvalue(factor):
        logs = np.array([np.log(float(count)) for count in points]) - np.arange(largest) / (factor * t)
        return chi_squared(counts, np.exp(logs - logs.max()))

    only_the_right_scale(pvalue)


@pytest.mark.parametrize("hull", [TWENTY, LARGE])
@pytest.mark.parametrize("t", [2.0**20, 2.0**40])
def test_gauges_of_large_scales_are_gamma_variables(hull, t):
    source = Source(5)
    gauges = hull.gauge(np.array([source.shaped(hull, t) for _ in range(500)], dtype=float).T)
    only_the_right_scale(lambda factor: stats.kstest(gauges, stats.gamma(hull.d, scale=factor * t).cdf).pvalue)


def looks(hull, z):
    """Yield the gauge, single coordinates, and sums within parts and across."""
    yield hull.gauge(z)
    yield z[hull.parts[0][0]]
    yield z[list(max(hull.parts, key=len))].sum(axis=0)
    yield z.sum(axis=0)
    if hull.signed:
        yield z[hull.signed[0]]


@pytest.mark.parametrize("hull", [TWENTY, MIXED, LARGE])
def test_integers_and_floats_have_the_same_law(hull):
    t = 2.0**36
    exact = Source(6).integers(named("hull"), t, (hull.d, 600), hull).astype(float) / t
    floats = Source(7).draw(named("hull"), 1.0, (hull.d, 6000), hull)
    for ours, theirs in zip(looks(hull, exact), looks(hull, floats), strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > LEVEL
    gauges = hull.gauge(exact), hull.gauge(floats)
    only_the_right_scale(lambda factor: stats.ks_2samp(factor * gauges[0], gauges[1]).pvalue)


@pytest.mark.parametrize("hull", [*SMALL.values(), TWENTY, MIXED, LARGE])
def test_the_covariance_is_that_of_the_noise(hull):
    """Along coordinates and random directions: 4.5 standard errors are p = 7e-6 for each of at most seven."""
    draws, rng = 4000, np.random.default_rng(8)
    z = Source(9).draw(named("hull"), 1.0, (hull.d, draws), hull)
    within = np.zeros(hull.d)
    within[list(max(hull.parts, key=len))] = 1.0
    ends = np.zeros((2, hull.d))
    ends[0, hull.parts[0][0]] = ends[1, -1] = 1.0
    for v in (within, np.ones(hull.d), *ends, *rng.standard_normal((3, hull.d))):
        squares, expected = (v @ z) ** 2, v @ hull.covariance.matrix @ v
        error = squares.std() / np.sqrt(draws)
        assert abs(squares.mean() - expected) < 4.5 * error
        assert min(abs(squares.mean() - wrong * expected) for wrong in (4 / 9, 9 / 4)) > 4.5 * error


@pytest.mark.parametrize("hull", [*SMALL.values(), TWENTY, MIXED, LARGE])
def test_covariances_are_weighed_as_in_full(hull):
    rng = np.random.default_rng(10)
    units, spread, mean = rng.uniform(0.5, 2, (3, hull.d))
    covariance = hull.covariance
    full = covariance.matrix * np.outer(units, units)
    np.testing.assert_allclose(covariance.variances, np.diag(covariance.matrix))
    np.testing.assert_allclose(hull.variances, covariance.variances)
    assert covariance.trace(units) == pytest.approx(np.trace(full))
    curvature = np.diag(spread) + np.outer(mean, mean)
    assert covariance.weighed(units, spread, mean) == pytest.approx(np.trace(np.linalg.solve(curvature, full)))


@pytest.mark.parametrize("k", [1, 2, 7, 1000])
def test_known_hulls_have_the_covariance_of_their_bodies(k):
    """Parts of one are the hull of a cube, and one part alone is a cross-polytope."""
    columns = tuple(range(k))
    pairs = (Hull(tuple((j,) for j in columns)), Body(columns, ())), (Hull((columns,)), Body((), (columns,)))
    for hull, body in pairs:
        np.testing.assert_allclose(hull.covariance.matrix, body.covariance.matrix, rtol=1e-9, atol=1e-7)
        z = np.random.default_rng(k).standard_normal((k, 5))
        np.testing.assert_allclose(hull.gauge(z), body.gauge(z))


@st.composite
def boxes(draw):
    """A box of [0, 1] columns, signed columns and one-hot blocks."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    signed, free = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    low, start = [-1.0] * signed + [0.0] * (free + sum(sizes)), signed + free
    blocks = [(start + sum(sizes[:i]), start + sum(sizes[: i + 1])) for i in range(len(sizes))]
    return es.Box(low, 1.0, one_hot=blocks), len(low)


@given(boxes(), st.integers(0, 2**32 - 1))
def test_the_hull_holds_all_gradients_and_nothing_else(given_box, seed):
    """A record times a slope has a gauge of at most 1; any z is gauge(z) times a mean of such products."""
    (domain, d), rng = given_box, np.random.default_rng(seed)
    hull = domain.hull(d)
    assert isinstance(hull, Hull)
    records = domain.project(rng.uniform(-1.5, 1.5, (20, d)) * rng.integers(0, 2, (20, d)))
    assert np.all(hull.gauge((records * rng.uniform(-1, 1, (20, 1))).T) <= 1 + 1e-12)
    z = rng.standard_normal(d) * rng.integers(0, 2, d)
    size, signed = hull.gauge(z), list(hull.signed)
    up, down = np.maximum(z, 0), np.maximum(-z, 0)
    above = max(up[list(part)].sum() for part in hull.parts)
    shares = np.array([above, size - above])
    ends = np.array([up, down]) / np.maximum(shares, 1e-300)[:, None]
    ends[:, signed] = np.outer([1, -1], z[signed]) / max(size, 1e-300)
    assert not np.any(domain.outside(np.clip(ends, -1, 1)))
    np.testing.assert_allclose(ends, np.clip(ends, -1, 1), atol=1e-12)
    np.testing.assert_allclose(shares[0] * ends[0] - shares[1] * ends[1], z, atol=1e-12)
    body = domain.body(d)
    assert body.gauge(z) <= size * (1 + 1e-12)


@given(boxes())
def test_cubes_have_the_largest_gauge(given_box):
    domain, d = given_box
    hull = domain.hull(d)
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * min(d, 12), indexing="ij")).reshape(min(d, 12), -1)
    if d <= 12:
        assert hull.gauge(corners).max() == hull.cube


BLOCKS = es.Box([0, -1, 0, 0, 0, 0, 0], 1, one_hot=[(2, 4), (4, 7)])


def test_problems_have_the_hull_of_their_domain():
    def shapes(loss, domain, d, **more):
        problem = es.Problem(loss, domain, ridge=0.1, n=100, d=d, **more)
        return KNorm("hull").shape(problem), KNorm("blocks").shape(problem)

    product_body = Body((0,), ((2, 3), (4, 5, 6), (1,)))
    assert shapes(es.Logistic(), BLOCKS, 7) == (Hull(((0,), (2, 3), (4, 5, 6)), (1,)), product_body)
    exact, _ = shapes(es.Logistic(), BLOCKS, 7, intercept=True)
    assert exact == Hull(((0,), (2, 3), (4, 5, 6), (7,)), (1,))
    for loss, domain, d in (
        (es.Softmax((0, 1, 2)), BLOCKS, 7),
        (es.Logistic(), es.Box([0, 0, -1], 1), 3),
        (es.Logistic(), es.Box([0, 0, -1], 1, one_hot=[(0, 2)]), 3),
        (es.Logistic(), es.Ball(1, norm=1), 3),
        (es.Logistic(), es.Ball(1, norm=np.inf), 3),
    ):
        exact, blocks = shapes(loss, domain, d)
        assert exact == blocks
        assert isinstance(exact, Body)
    with pytest.raises(ValueError, match="mechanism 'hull' does not fit the L2 ball of radius 1: use 'auto'"):
        shapes(es.Logistic(), es.Ball(1), 3)


def test_the_hull_is_chosen_where_it_is_smaller():
    domain = es.Box(0, 1, one_hot=[(2, 8), (8, 12)])
    problem = es.Problem(es.Logistic(), domain, ridge=0.01, n=1000, d=12)
    assert smallest(problem, Epsilon).name == "hull"
    exact, blocks = (KNorm(name).half_power(1.0, problem) for name in ("hull", "blocks"))
    assert exact < blocks
    # Without blocks both are the same, and the plain name stands for it.
    assert smallest(es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.01, n=1000, d=4), Epsilon).name == "hull"


@pytest.mark.parametrize("name", ["hull", "blocks", "linf"])
def test_cells_of_a_tilt_are_charged(name):
    """Noise that is made of integers, and not rounded, protects a tilt up to a cell of them."""
    problem = es.Problem(es.Logistic(), BLOCKS, ridge=0.1, n=100, d=7)
    shape = KNorm(name).shape(problem)
    assert KNorm(name).cell(problem) == shape.cube > 0


@pytest.mark.parametrize("method", [es.gd, es.nesterov])
def test_runs_draw_the_noise_of_the_hull(method):
    problem = es.Problem(es.Logistic(), BLOCKS, ridge=0.1, n=200, d=7, intercept=True)
    rng = np.random.default_rng(11)
    data = es.Rows(problem, rng.uniform(-1, 1, (200, 7)), np.where(rng.uniform(size=200) < 0.5, 1, -1))
    plan = es.plan(problem, es.Pure(1.0), method, iterations=3, mechanism="hull")
    first, second = (es.run(plan, data, seed=12) for _ in range(2))
    np.testing.assert_array_equal(first.x, second.x)
    assert np.all(np.isfinite(first.x))
    shape = plan.mechanism.shape(problem)
    assert isinstance(shape, Hull)
    again = es.Plan.from_json(plan.to_json())
    assert again.mechanism.shape(again.problem) == shape


def test_more_precision_gives_the_same_integers(monkeypatch):
    questions = []
    leading = Uniform.leading
    monkeypatch.setattr(Uniform, "leading", lambda self, count: questions.append(count) or leading(self, count))
    fast = hull_noise(Bits(13), layout_of(MIXED), 2.0**30)
    asked = len(questions)
    np.testing.assert_array_equal(hull_noise(Bits(13), layout_of(MIXED), 2.0**30, 2.0**66), fast)
    assert len(questions) > asked + 10


def test_bits_of_the_operating_system_do_not_repeat():
    np.testing.assert_array_equal(Source(14).shaped(MIXED, 2.0**40), Source(14).shaped(MIXED, 2.0**40))
    assert not np.any(Source().shaped(MIXED, 2.0**40) == Source().shaped(MIXED, 2.0**40))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Hull((), (0, 1)), "Without any part the hull is a cube"),
        (lambda: Hull(((0,), (0, 1))), "once each"),
        (lambda: Hull(((0,), ())), "once each"),
        (lambda: Source(15).shaped(SMALL["a pair"], 0.5), "scale must be at least 1 and"),
        (lambda: Source(15).shaped(LARGE, 1.0), r"scale must be at least \d+\.\d+ and"),
        (lambda: Source(15).shaped(MIXED, 2.0**60), "scale must be below .* in 20 dimensions"),
        (lambda: Source(15).integers(named("blocks"), 5.0, (20,), MIXED), "body must be a Body of 20 coordinates"),
        (lambda: Source(15).integers(named("hull"), 5.0, (3,), MIXED), "A Hull fits as well"),
    ],
)
def test_unusable_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
