"""Intervals: their laws against quadrature, proved widths against every Hessian, and coverage on populations.

Coverage is tested on releases that are simulated here, from finite populations whose minima are computed and not
estimated. Everything is seeded. Where a coordinate's coverage is 0.95, a test of it fails with a probability of 1e-3.
"""

import json
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from epsteps.methods.intervals import posterior
from epsteps.methods.intervals.posterior import Released
from epsteps.methods.intervals.table import intervals_of


def gaussian_tilts(scale, D):
    return lambda generator, count: scale * generator.standard_normal((count, D))


def make(x=(0.5, -1.0), **changes):
    x = np.array(x, dtype=float)
    facts = {
        "n": 1000, "ridge": 0.01, "tilts": gaussian_tilts(0.01, len(x)), "output_scale": 1e-9, "slack": 0.0,
        "likelihood": True,
    }  # fmt: skip
    return Released(x=x, **{**facts, **changes})


def measurable(k=3, size=1.0, scale=0.01, noise="wishart", **changes):
    return make(np.arange(k), T=np.eye(k), matrix=size * np.eye(k), scale=scale, noise=noise, **changes)


# -------------------------------------------------------------------------------------------------------------- laws
def test_an_order_statistic_is_exceeded_as_rarely_as_it_says():
    """Of m + 1 exchangeable draws the last is above the i-th of the others with probability 1 - i/(m + 1)."""
    generator = np.random.default_rng(1)
    draws = generator.exponential(size=(20_000, 40))
    quantiles = posterior.upper(draws[:, :39].T, 0.1)
    assert stats.binomtest(int(np.sum(draws[:, 39] > quantiles)), 20_000, 0.1).pvalue > 1e-3
    with pytest.raises(ValueError, match="too few"):
        posterior.upper(draws[0], 0.01)


@pytest.mark.parametrize("noise", ["wishart", "gaussian"])
def test_noise_that_is_taken_off_has_the_law_of_noise_that_was_added(noise):
    """Deviations 2 c √(k+1) on the diagonal of a Wishart difference, √2 less off it; s and s/√2 of a Gaussian."""
    released, generator = measurable(4, scale=0.3, noise=noise), np.random.default_rng(2)
    E = released.matrices(generator, 40_000)
    diagonal = 0.3 * (2 * np.sqrt(5) if noise == "wishart" else 1)
    np.testing.assert_array_equal(E, E.transpose(0, 2, 1))
    np.testing.assert_allclose(E.std(axis=0), diagonal * np.where(np.eye(4), 1, np.sqrt(0.5)), rtol=0.03)
    v = np.array([0.5, -0.5, 0.1, 0.7])
    v /= np.linalg.norm(v)
    along = np.einsum("i,nij,j->n", v, E, v)
    assert stats.ks_2samp(along, released.along(generator, 40_000)).pvalue > 1e-3


@pytest.mark.parametrize("value", [-0.3, 0.05, 1.0])
def test_a_dispersion_is_drawn_and_never_a_floor(value):
    """The released number less its Laplace noise, given that this is positive."""
    draws = make(dispersion=(np.array([value]), np.array([0.1]))).dispersions(np.random.default_rng(3), 20_000)[:, 0]
    law = stats.laplace(value, 0.1)
    assert stats.kstest(draws, lambda phi: 1 - law.sf(phi) / law.sf(0)).pvalue > 1e-3
    assert draws.min() > 0
    assert len(np.unique(draws)) == len(draws)


def half_width_by_quadrature(weights, deviations):
    """Return w such that the mixture of N(0, deviation²) lies within ±w with probability 0.95."""
    mean = np.sum(weights)
    return brentq(lambda w: np.sum(weights * (2 * ndtr(w / deviations) - 1)) / mean - 0.95, 0, 1e6)


def test_one_dimension_against_quadrature():
    """The difference of two χ² of 2 degrees is a Laplace variable of scale 2. Eight half-widths vary by 8 % each."""
    released = make([0.0], T=np.eye(1), matrix=np.array([[0.5]]), scale=0.1, tilts=gaussian_tilts(0.02, 1))
    law, a = stats.laplace(scale=0.2), np.linspace(1e-5, 5, 100_001)
    found, expected = [], []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        gate = posterior.gate_of(released, generator)
        assert gate.threshold == pytest.approx(law.isf(posterior.GATE), rel=0.1)
        weights, deviations = law.pdf(0.5 - a) / law.sf(gate.threshold - a), (0.02, np.hypot(0.02, np.sqrt(a / 1000)))
        expected.append([half_width_by_quadrature(weights, each / (a + 0.01)) for each in deviations])
        distances = posterior.measured(released, gate, generator)
        found.append([distances.half_widths(np.eye(1), 0.95, sampled)[0] for sampled in (False, True)])
    np.testing.assert_allclose(np.mean(found, axis=0), np.mean(expected, axis=0), rtol=0.08)


def test_two_dimensions_against_quadrature():
    """A grid over (a11, a12, a22), of which positive matrices count by their density over their chance to pass."""
    matrix = np.array([[0.5, 0.2], [0.2, 0.3]])
    released = make(T=np.eye(2), matrix=matrix, scale=0.08, noise="gaussian", tilts=gaussian_tilts(0.02, 2))
    generator = np.random.default_rng(5)
    gate = posterior.gate_of(released, generator)
    # The eigenvalues 0.4 ± s differ by 2 s, and each is moved toward the other by 2 v 2 s/(4 s² + v), v = 0.08²/2.
    s, v = np.hypot(0.1, 0.2), 0.08**2 / 2
    nearer = 1 - 4 * v / (4 * s**2 + v)
    centre = posterior.centre(released)
    np.testing.assert_allclose(centre, 0.4 * np.eye(2) + nearer * (matrix - 0.4 * np.eye(2)), rtol=1e-12)
    steps = np.linspace(-4.5, 4.5, 91)
    a, c, b = np.meshgrid(
        centre[0, 0] + 0.08 * steps,
        centre[0, 1] + 0.08 / np.sqrt(2) * steps,
        centre[1, 1] + 0.08 * steps,
        indexing="ij",
    )
    u, w, v = np.meshgrid(steps, steps, steps, indexing="ij")
    least = (a + b) / 2 - np.hypot((a - b) / 2, c)
    keep = least > 0
    weights = np.exp(-(u**2 + v**2 + w**2) / 2)[keep] / stats.norm.sf((gate.threshold - least[keep]) / 0.08)
    a, b, c = a[keep] + 0.01, b[keep] + 0.01, c[keep]
    first = np.hypot(b, c) / (a * b - c**2)  # the length of H⁻¹'s first row
    found = [posterior.measured(released, gate, generator).half_widths(np.eye(2), 0.95, False)[0] for _ in range(6)]
    assert np.mean(found) == pytest.approx(half_width_by_quadrature(weights, 0.02 * first), rel=0.05)


@pytest.mark.parametrize("noise", ["wishart", "gaussian"])
def test_noise_drives_eigenvalues_apart_and_the_centre_takes_that_back(noise):
    """The released matrix less new noise has a least eigenvalue that is too small; its centre half as much."""
    generator, k = np.random.default_rng(9), 30
    released = measurable(k, scale=0.05 if noise == "gaussian" else 0.005, noise=noise)
    A = np.diag(np.linspace(1, 2, k))
    again, found = [], []
    for E, other in zip(*released.matrices(generator, 40).reshape(2, 20, k, k), strict=True):
        noisy = replace(released, matrix=A + E)
        again.append(np.linalg.eigvalsh(noisy.matrix - other)[[0, -1]])
        found.append(np.linalg.eigvalsh(posterior.centre(noisy) - other)[[0, -1]])
        assert np.trace(posterior.centre(noisy)) == pytest.approx(np.trace(noisy.matrix))
    errors = [np.abs(np.mean(each, axis=0) - [1, 2]) for each in (again, found)]
    assert np.all(errors[1] < 0.6 * errors[0])


@pytest.mark.parametrize("noise", ["wishart", "gaussian"])
def test_a_direction_without_curvature_hardly_passes_the_gate(noise):
    """Whatever the other directions have; and enough curvature always passes."""
    generator = np.random.default_rng(6)
    for size in (0.3, 100.0):
        released = measurable(4, scale=0.1, noise=noise)
        E = released.matrices(generator, 1500)
        threshold = posterior.gate_of(released, generator).threshold
        passed = np.linalg.eigvalsh(np.diag([size, size, size, 0.0]) + E)[:, 0] > threshold
        assert stats.binomtest(int(passed.sum()), 1500, posterior.GATE, alternative="greater").pvalue > 1e-3
    assert posterior.gate_of(measurable(4, 100.0, 0.1, noise), generator).is_open


# ------------------------------------------------------------------------------------------------------ proved widths
def hessians(generator, D, ridge, count):
    """Draw matrices H >= ridge of every kind: the ridge, plus parts of any rank and size."""
    for _ in range(count):
        rank = generator.integers(1, D + 1)
        part = generator.standard_normal((D, rank)) * np.exp(generator.uniform(-6, 6, rank))
        yield ridge * np.eye(D) + part @ part.T


def fixed_tilt(b):
    return lambda generator, count: np.tile(b, (count, 1))


def test_no_hessian_exceeds_what_the_ridge_proves_and_one_attains_it():
    """|row'H⁻¹b| <= (|row'b| + |row||b|)/(2 ridge) for every H >= ridge: one that is ridge midway attains it."""
    generator = np.random.default_rng(7)
    for _ in range(20):
        b, row = generator.standard_normal((2, 4))
        width = posterior.proved(make(np.zeros(4), tilts=fixed_tilt(b)), generator, row[None], 0.95, sampled=False)[0]
        reached = [abs(row @ np.linalg.solve(H, b)) for H in hessians(generator, 4, 0.01, 50)]
        assert max(reached) <= width
        v = b / np.linalg.norm(b) + np.sign(b @ row) * row / np.linalg.norm(row)
        attaining = np.outer(v, v) / (v @ v) / 0.01  # the limit of inverses: 1/ridge along v, 0 across
        assert abs(row @ attaining @ b) == pytest.approx(width, rel=1e-4)


def test_what_sampling_adds_is_never_more_than_is_proved():
    """c'H⁻¹(H - ridge)H⁻¹c <= |c|²/(4 ridge), which H = 2 ridge attains; and a larger dispersion counts."""
    generator = np.random.default_rng(8)
    c = np.array([1.0, -2.0, 0.5])
    released = make(np.zeros(3), tilts=fixed_tilt(np.zeros(3)), ridge=0.3)
    deviation = posterior.proved(released, generator, c[None], 0.95, sampled=True)[0] / 1.959964
    reached = []
    for H in (*hessians(generator, 3, 0.3, 500), 0.6 * np.eye(3)):
        forward = np.linalg.solve(H, c)
        reached.append(np.sqrt(forward @ (H - 0.3 * np.eye(3)) @ forward / 1000))
    assert max(reached) == pytest.approx(deviation, rel=0.03)
    more = posterior.proved(replace(released, dispersion=(4.0, 0.1)), generator, c[None], 0.95, sampled=True)[0]
    assert more > 2 * 1.959964 * deviation


# ----------------------------------------------------------------------------------------------- coverage, and bugs
@dataclass(frozen=True)
class Cell:
    """Uniform columns that follow one another with correlation rho; ``tilt`` and ``noise`` are scales on the sum."""

    d: int
    rho: float
    n: int
    ridge: float
    tilt: float
    noise: float
    replications: int = 200


CELLS = {
    "plain": Cell(3, 0.6, 4000, 0.01, 12.0, 2.5, 120),
    "correlated": Cell(2, 0.9, 20_000, 0.0005, 3.0, 100.0, 300),
    "hidden": Cell(3, 0.99, 4000, 0.02, 12.0, 10.0, 60),
}


@cache
def simulated(name):
    """Return (released, distance from the sample's minimum, from the population's) of each replication."""
    cell, generator = CELLS[name], np.random.default_rng(11)
    z = generator.standard_normal((600, cell.d))
    for j in range(1, cell.d):
        z[:, j] = cell.rho * z[:, j - 1] + np.sqrt(1 - cell.rho**2) * z[:, j]
    U = 2 * ndtr(z) - 1
    chance = expit(U @ np.linspace(-1, 1, cell.d))
    target = minimum(U, np.ones(600), chance, cell.ridge, 0.0)
    found = []
    for _ in range(cell.replications):
        counts = generator.multinomial(cell.n, np.full(600, 1 / 600)).astype(float)
        positive = generator.binomial(counts.astype(int), chance).astype(float)
        b = cube_tilts(cell, generator, 1)[0]
        sample = minimum(U, counts, positive, cell.ridge, 0.0)
        x = minimum(U, counts, positive, cell.ridge, b)
        p = expit(U @ x)
        A = (U.T * (counts * p * (1 - p) / cell.n)) @ U
        released = Released(
            x=x, n=cell.n, ridge=cell.ridge, tilts=lambda g, count: cube_tilts(cell, g, count), output_scale=1e-9,
            slack=0.0, likelihood=True, T=np.eye(cell.d), matrix=A,
            scale=cell.noise / cell.n,
        )  # fmt: skip
        released = replace(released, matrix=A + released.matrices(generator, 1)[0])
        found.append((released, np.abs(x - sample), np.abs(x - target)))
    return found


def cube_tilts(cell, generator, count):
    """Return tilts of the mean: a Gamma(d + 1) radius times a uniform point of the cube."""
    radii = cell.tilt / cell.n * generator.gamma(cell.d + 1, size=(count, 1))
    return radii * generator.uniform(-1, 1, (count, cell.d))


def minimum(U, counts, positive, ridge, b):
    n, x = counts.sum(), np.zeros(U.shape[1])
    for _ in range(30):
        p = expit(U @ x)
        gradient = (U.T @ (counts * p - positive)) / n + ridge * x + b
        H = (U.T * (counts * p * (1 - p) / n)) @ U + ridge * np.eye(len(x))
        x = x - np.linalg.solve(H, gradient)
    assert np.linalg.norm(gradient) < 1e-9
    return x


def covered(name, plant=lambda released: released, target="sample"):
    """Return whether each coordinate is covered, for each replication whose interval is measured, and of the others."""
    hits = {"measured": [], "provable": []}
    for seed, (released, from_sample, from_population) in enumerate(simulated(name)):
        planted = plant(released)
        names = [f"x{j}" for j in range(len(planted.x))]
        found = intervals_of(planted, np.random.default_rng(seed), names=names, target=target)
        distance = from_population if target == "population" else from_sample
        hits[found.kind].append(distance <= (found.high - found.low) / 2)
    return np.array(hits["measured"]), np.array(hits["provable"])


def is_covering(hits):
    """Whether 0.95 is possible for each coordinate, at an error rate of 1e-3 for all of them."""
    replications, coordinates = hits.shape
    return bool(np.all(hits.sum(axis=0) >= stats.binom.ppf(1e-3 / coordinates, replications, 0.95)))


@pytest.mark.parametrize("target", ["population", "sample"])
def test_measured_intervals_cover(target):
    measured, others = covered("plain", target=target)
    assert len(others) == 0
    assert is_covering(measured)
    assert measured.mean() < 0.995  # they are not merely wide


def test_measured_intervals_cover_although_they_are_given_only_where_the_gate_is_open():
    """Curvature along one direction is a third of its noise: the gate favours noise that makes it larger."""
    measured, others = covered("correlated")
    assert 20 <= len(measured) <= 150
    assert is_covering(measured)
    assert is_covering(others)


def test_where_curvature_is_hidden_intervals_are_proved_and_cover():
    measured, others = covered("hidden")
    assert len(measured) <= stats.binom.isf(1e-3, 60, posterior.GATE)
    assert is_covering(others)


def no_tilt(released):
    return replace(released, tilts=lambda generator, count: 1e-9 * released.tilts(generator, count))


def half_tilt(released):
    return replace(released, tilts=lambda generator, count: 0.5 * released.tilts(generator, count))


def wrong_ridge(released):
    return replace(released, ridge=10 * released.ridge)


def curvature_twice(released):
    return replace(released, matrix=2 * released.matrix)


def small_noise(released):
    return replace(released, scale=released.scale / 5)


def floor(released):
    """Eigenvalues held above half of the noise's edge, as if they were known, in the place of what they may be."""
    k = len(released.matrix)
    values, vectors = np.linalg.eigh(released.matrix)
    held = (vectors * np.maximum(values, 3.33 * k * released.scale / 2)) @ vectors.T
    return replace(released, matrix=held, scale=1e-9 * released.scale)


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (no_tilt, "plain"), (half_tilt, "plain"), (wrong_ridge, "plain"), (curvature_twice, "plain"),
        (small_noise, "correlated"), (floor, "correlated"),
    ],
)  # fmt: skip
def test_a_planted_bug_is_found(plant, name):
    assert not is_covering(covered(name, plant)[0])


# ------------------------------------------------------------------------------------------------------------- tables
NAMES = ["age", "hours", "red", "green", "blue", "intercept"]


def table(released=None, **options):
    released = measurable(6, 1.0, 0.001) if released is None else released
    options = {"names": NAMES, "categories": [(2, 5)], "intercept": True, "asked_ridge": 1e-6, **options}
    return intervals_of(released, np.random.default_rng(0), **options)


def test_a_table_reads_as_people_know_it():
    found = table()
    text = str(found)
    assert found.kind == "measured"
    assert all(len(line) <= 80 for line in text.splitlines())
    assert all(name in text for name in (*NAMES, "coef", "std err", "[0.025", "0.975]", "privacy", "measured"))
    assert "ridge 0.01 (yours: 1e-06)" in text
    np.testing.assert_allclose(found.coef, np.arange(6))
    np.testing.assert_allclose(found.coef + 1.959964 * found.stderr, found.high, rtol=1e-6)
    np.testing.assert_allclose(found.coef - found.low, found.high - found.coef)
    assert json.loads(json.dumps(found.to_dict()))["kind"] == "measured"


def test_the_share_of_privacy_is_that_of_the_noise():
    """Tilts of deviation 0.01 through H = 1.01 against a score of deviation 1/√1000: 0.0001 to 0.001."""
    assert table().privacy == pytest.approx(np.full(6, 1 / 11), rel=0.15)
    assert np.all(table(target="sample").privacy == 1)


def test_without_a_purchase_the_table_says_at_most():
    found = table(make(np.zeros(6)))
    assert (found.kind, "at most" in str(found), "no curvature was bought" in str(found)) == ("provable", True, True)
    hidden = table(measurable(6, 0.0, 0.1))
    assert (hidden.kind, "does not exceed its noise" in str(hidden).replace("\n  ", " ")) == ("provable", True)
    assert np.all(found.high > table().high - 10)


def test_levels_are_against_the_mean_of_their_category():
    found = table(contrasts="levels")
    np.testing.assert_allclose(found.coef, [0, 1, 2 - 3, 3 - 3, 4 - 3, 5 + 3], atol=1e-12)
    assert "mean of its category" in str(found).replace("\n  ", " ")


def test_contrasts_of_ones_own():
    rows = np.array([[0, 0, 1, -1, 0, 0], [1, 1, 0, 0, 0, 0.0]])
    named = table(contrasts={"red - green": rows[0], "both": rows[1]})
    plain = table(contrasts=rows)
    assert named.names == ("red - green", "both")
    np.testing.assert_array_equal(named.high, plain.high)
    assert table().high[2] - table().low[2] < named.high[0] - named.low[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0.999}, "level"), ({"target": "truth"}, "target"), ({"contrasts": "pairs"}, "contrasts"),
        ({"contrasts": np.ones((2, 5))}, "rows of 6"), ({"contrasts": np.zeros((1, 6))}, "none of them all 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for(options, message):
    with pytest.raises(ValueError, match=message):
        table(**options)


def test_a_loss_that_is_no_likelihood_needs_a_dispersion():
    released = measurable(6, 1.0, 0.001, likelihood=False)
    with pytest.raises(ValueError, match="target='sample'"):
        table(released)
    wide, narrow = (table(replace(released, dispersion=(phi, 0.01))) for phi in (4.0, 0.25))
    sampling = [np.sqrt(1 - each.privacy) * each.stderr for each in (wide, narrow)]
    np.testing.assert_allclose(sampling[0] / sampling[1], 4.0, rtol=0.2)
    assert table(released, target="sample").kind == "measured"


def test_a_dispersion_of_each_coefficient_is_that_of_its_own_variance():
    """Between coefficients correlations stay: a contrast of two has the variance of their difference."""
    phi = np.array([0.25, 1.0, 4.0, 9.0, 1.0, 1.0])
    tilts = gaussian_tilts(1e-9, 6)
    rows = np.vstack([np.eye(6), [1, 0, -1, 0, 0, 0]])
    released = [measurable(6, 1.0, 0.001, tilts=tilts, dispersion=(it, 1e-3 * it)) for it in (np.ones(1), phi)]
    one, each = (table(it, contrasts=rows) for it in released)
    expected = np.append(np.sqrt(phi), np.sqrt((0.25 + 4.0) / 2))
    np.testing.assert_allclose(each.stderr / one.stderr, expected, rtol=0.04)
    assert "for each coefficient" in str(each).replace("\n  ", " ")
    assert "one released factor" in str(one).replace("\n  ", " ")


@pytest.mark.parametrize(
    "changes",
    [{"noise": "laplace"}, {"ridge": 0.0}, {"scale": 0.0}, {"matrix": np.full((3, 3), np.nan)}, {"T": np.eye(2)}],
)
def test_what_is_no_release_is_refused(changes):
    with pytest.raises(ValueError, match=r"must be|do not fit"):
        replace(measurable(3), **changes)


def test_a_table_is_drawn():
    figure = pytest.importorskip("matplotlib.figure")
    for found in (table(), table(make(np.zeros(6)))):
        axes = found.plot()
        assert [label.get_text() for label in axes.get_yticklabels()] == NAMES
        own = figure.Figure().subplots()
        assert found.plot(own) is own


def test_a_matrix_that_passes_although_hardly_any_fits_gives_proved_intervals_and_raises_nothing():
    k = 40
    released = Released(
        x=np.zeros(k),
        n=1000,
        ridge=0.01,
        tilts=lambda generator, count: generator.standard_normal((count, k)) * 1e-3,
        output_scale=1e-9,
        slack=0.0,
        likelihood=True,
        T=np.eye(k),
        matrix=np.eye(k),
        scale=1 / 24,
    )
    gate = posterior.gate_of(released, np.random.default_rng(1))
    assert gate.is_open
    assert posterior.measured(released, gate, np.random.default_rng(1)) is None
    found = intervals_of(released, np.random.default_rng(1), names=[f"x{j}" for j in range(k)])
    assert found.kind == "provable"
    assert "At most" in str(found)
