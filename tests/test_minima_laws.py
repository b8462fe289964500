"""Minima released once: what is claimed against exact densities of neighbouring datasets, and the algebra around it.

Attacks search for the worst neighbours; they may fall short of a claim, but must never exceed it.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from epsteps.budgets import gaussian_delta, gaussian_mu
from epsteps.budgets.corners import GAUSSIAN, Corners, _delta_up, composed
from epsteps.methods import minima
from epsteps.problem.losses import POWERS
from epsteps.problem.saturations import Capped, CappedSoftmax, Exponential, Flat, PseudoHuber, Sigmoid, Softmax

SATURATIONS = [
    Sigmoid(),
    Sigmoid(3.0),
    Capped(0.7),
    Capped(0.35),
    Exponential(),
    *map(PseudoHuber, POWERS),
    Flat(1, 0.5),
    Flat(2),
    Softmax(2),
    Softmax(5),
]
NAMES = [str(saturation) for saturation in SATURATIONS]
LOGISTIC = (lambda margin: -expit(-margin), lambda margin: expit(margin) * expit(-margin))
HALF_EXPONENTIAL = (lambda m: -np.exp(-np.maximum(m, 0)), lambda m: np.exp(-np.maximum(m, 0)) * (m > 0))
HUBER = (lambda r: np.clip(r, -1, 1), lambda r: 1.0 * (np.abs(r) < 1))


def pseudo_huber(p):
    """Return the slope and the curvature of pseudo-Huber loss of this power."""
    return lambda r: r / (1 + np.abs(r) ** p) ** (1 / p), lambda r: (1 + np.abs(r) ** p) ** (-1 - 1 / p)


def capped(c):
    """Return the slope and the curvature of logistic loss whose slope is at most c."""
    return lambda m: -np.minimum(expit(-m), c), lambda m: expit(m) * expit(-m) * (expit(-m) < c)


def tilted(loss, kappa, x, records, counts, offsets):
    """Return the gradient and the log-determinant of n F at the points x, for n ridge = 1/kappa."""
    margins = x @ records.T - offsets
    slopes, curves = counts * loss[0](margins), counts * loss[1](margins)
    d = x.shape[1]
    hessians = np.eye(d) / kappa + np.einsum("pr,ri,rj->pij", curves, records, records)
    return x / kappa + slopes @ records, np.linalg.slogdet(hessians)[1]


def log_ratio(loss, kappa, noise, x, pair, offsets, common):
    """Return the log-ratio of the densities of two neighbours at x, for noise with density ~ exp(-noise |b|_2/2).

    ``common`` is the gradient of all that they share: anything, as the centre of the ridge may be any public point.
    """
    values = []
    for record, offset in zip(pair, offsets, strict=True):
        gradient, log_det = tilted(loss, kappa, x[None], record[None], np.ones(1), np.array([offset]))
        values.append(log_det[0] - noise / 2 * np.linalg.norm(common + gradient[0] - x / kappa))
    return values[0] - values[1]


def strongest(ratio, starts, evaluations):
    """Return the largest value found from the best of the starting points."""
    values = np.array([ratio(start) for start in starts])
    best = values.max()
    for start in starts[np.argsort(values)[-2:]]:
        options = {"maxfev": evaluations, "adaptive": True, "xatol": 1e-9, "fatol": 1e-12}
        best = max(best, -minimize(lambda p: -ratio(p), start, method="Nelder-Mead", options=options).fun)
    return best


def unit(angle):
    return np.array([math.cos(angle), math.sin(angle)])


@pytest.mark.parametrize(("noise", "kappa"), [(1.0, 0.5), (1.0, 2.0), (0.1, 2.0), (5.0, 0.5)])
def test_no_pair_of_logistic_neighbours_in_two_dimensions_exceeds_the_claim(noise, kappa):
    """The worst pair: nearly opposite records that are both far on their wrong side."""
    rng = np.random.default_rng(0)

    def ratio(p):
        x = 300 * np.tanh(p[0]) * unit(0.0)
        return log_ratio(LOGISTIC, kappa, noise, x, [unit(p[1]), unit(p[2])], (0.0, 0.0), 10 * p[3] * unit(p[4]))

    starts = rng.normal(size=(800, 5)) * [1, 2, 2, 3, 2]
    claim = minima.total_epsilon(noise, kappa, Sigmoid())
    found = strongest(ratio, starts, 1200)
    assert 0.98 * claim < found <= claim * (1 + 1e-9)


@pytest.mark.parametrize(("noise", "kappa"), [(1.0, 0.5), (0.1, 2.0), (3.0, 40.0)])
def test_no_pair_of_logistic_neighbours_in_one_dimension_exceeds_the_claim(noise, kappa):
    rng = np.random.default_rng(1)
    claim = minima.total_epsilon(noise, kappa, Sigmoid())

    def ratio(p):
        return log_ratio(LOGISTIC, kappa, noise, p[:1], np.clip(p[1:3], -1, 1)[:, None], (0.0, 0.0), p[3:])

    found = strongest(ratio, rng.normal(size=(500, 4)) * [6, 2, 2, 5], 400)
    assert 0.4 * claim < found <= claim * (1 + 1e-9)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(
    ("power", "noise", "kappa"),
    [
        *((2, 1.0, 0.3), (2, 1.0, 0.4), (2, 1.0, 1.0), (2, 0.1, 2.0), (2, 5.0, 20.0)),
        *((4, 1.0, 0.2), (4, 1.0, 1.0), (8, 1.0, 0.05), (8, 1.0, 0.12), (8, 1.0, 1.0), (8, 0.2, 2.0)),
    ],
)
def test_pseudo_huber_neighbours_reach_the_claim_and_no_more(d, power, noise, kappa):
    """Targets are free, so that both records may have any slope: one feature is enough for the worst pair."""
    rng = np.random.default_rng(2)
    claim = minima.total_epsilon(noise, kappa, PseudoHuber(power))

    def ratio(p):
        pair = np.stack([p[:d], p[d : 2 * d]])
        pair /= np.maximum(np.linalg.norm(pair, axis=1, keepdims=True), 1.0)
        offsets, common = 5 * p[2 * d : 2 * d + 2], 10 * p[2 * d + 2 :]
        return log_ratio(pseudo_huber(power), kappa, noise, np.zeros(d), pair, offsets, common)

    found = strongest(ratio, rng.normal(size=(400, 3 * d + 2)) * 3, 800)
    assert 0.98 * claim < found <= claim * (1 + 1e-9)


@pytest.mark.parametrize(
    ("c", "kappa", "reached"), [(0.35, 1.0, 1.2050), (0.35, 0.5, 1.1077), (0.5, 1.0, 1.2231), (0.5, 0.5, 1.1178)]
)
def test_a_cap_of_at_most_a_half_costs_exactly_what_two_records_show(c, kappa, reached):
    """n = 2 and d = 1: opposite records, of which one is just on the curved side of its kink, the other on its line.

    The second record of both datasets pulls by c. The charge of a sigmoid, or none at a = 1, would be too little.
    """
    x, pair = np.array([math.log(1 / c - 1) + 1e-12]), np.array([[1.0], [-1.0]])
    found = log_ratio(capped(c), kappa, 1 / c, x, pair, (0.0, 0.0), np.array([c]))
    claim = minima.total_epsilon(1.0, kappa, Capped(c))
    assert found == pytest.approx(claim, rel=1e-9)
    assert found <= claim
    assert round(found, 4) == reached
    assert claim == pytest.approx(1 + math.log1p(kappa * c * (1 - c)), rel=1e-11)
    assert minima.total_epsilon(1.0, kappa, Sigmoid()) < found - 0.1
    beyond = log_ratio(capped(c), kappa, 1 / c, x - 1e-9, pair, (0.0, 0.0), np.array([c]))
    assert beyond <= 1 + 1e-6  # on the line there is no Jacobian


@pytest.mark.parametrize(
    ("loss", "slope", "saturation"),
    [*((capped(c), c, Capped(c)) for c in (0.15, 0.35, 0.5, 0.7)), (HALF_EXPONENTIAL, 1.0, Exponential())],
    ids=["0.15", "0.35", "0.5", "0.7", "half exponential"],
)
@pytest.mark.parametrize(("noise", "kappa"), [(1.0, 0.5), (0.1, 2.0), (5.0, 20.0)])
def test_capped_neighbours_nearly_reach_the_claim_and_no_more(loss, slope, saturation, noise, kappa):
    """In one dimension, with any common gradient. Above a half both cannot be extreme at once: some is given away."""
    claim = minima.total_epsilon(noise, kappa, saturation)

    def ratio(p):
        return log_ratio(loss, kappa, noise / slope, p[:1], np.clip(p[1:3], -1, 1)[:, None], (0.0, 0.0), p[3:])

    starts = np.random.default_rng(6).normal(size=(600, 4)) * [2, 2, 2, 5]
    found = strongest(ratio, starts, 300)
    assert (0.9 if slope != 0.7 else 0.5) * claim < found <= claim * (1 + 1e-9)


@pytest.mark.parametrize("saturation", [Sigmoid(2.0), Capped(0.2), Capped(0.5), Capped(0.8), Exponential(), Softmax(4)])
def test_charges_are_concave_and_have_their_derivatives(saturation):
    a = np.linspace(0, 1, 401)
    for kappa in np.geomspace(1e-3, 1e4, 15):
        values, slopes = np.array([saturation._charge(kappa, share) for share in a]).T
        assert np.all(np.diff(values, 2) <= 1e-14 * np.abs(values).max())
        middle = np.array([saturation._charge(kappa, share)[1] for share in (a[1:] + a[:-1]) / 2])
        differences = np.diff(values) / np.diff(a)
        assert np.all(slopes[1:] <= differences * (1 + 1e-9) + 1e-9)
        assert np.all(differences <= slopes[:-1] + 1e-9 * np.abs(slopes[:-1]) + 1e-9)
        assert np.median(np.abs(differences - middle)) <= 1e-3 * np.abs(slopes).max()


def test_a_cap_of_1_saturates_as_a_sigmoid_and_others_are_told_apart():
    for kappa, share in itertools.product((1e-3, 0.5, 30.0), (0.0, 0.3, 0.9, 1.0)):
        assert Capped(1.0)._charge(kappa, share) == Sigmoid()._charge(kappa, share)
        assert Capped(1.0).corners_at(kappa, share) == Sigmoid().corners_at(kappa, share)
        for cap in (0.1, 0.5, 0.9):  # J(1) is never free
            assert Capped(cap)._charge(kappa, 1.0)[0] == pytest.approx(math.log1p(kappa * cap * (1 - cap)), rel=1e-14)
    assert Capped(0.5) != Capped(1.0)
    assert hash(Capped(0.5)) != hash(Capped(1.0))
    assert repr(Capped(0.5)) == "Capped(cap=0.5)"
    for cap, message in (
        (0.0, "cap must be positive"),
        (1.5, "cap must be at most 1"),
        (math.nan, "cap must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            Capped(cap)


def exact_delta(loss, kappa, sigma, epsilon, pair, offsets, centre, points):
    """Return the exact delta of two neighbours by quadrature, in 1 or 2 dimensions; the ridge is centred far away."""
    d = len(centre)
    axis = np.linspace(-1, 1, points) * kappa * (8 * sigma + 2)
    x = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    log_densities = []
    for record, offset in zip(pair, offsets, strict=True):
        shifted = np.array([offset - record @ centre])
        gradient, log_det = tilted(loss, kappa, x, record[None], np.ones(1), shifted)
        log_densities.append(
            log_det - np.sum(gradient**2, axis=1) / (2 * sigma**2) - d / 2 * math.log(2 * math.pi * sigma**2)
        )
    cell = (axis[1] - axis[0]) ** d
    densities = np.exp(log_densities)
    assert densities.sum(axis=1) * cell == pytest.approx([1, 1], abs=1e-3)
    return float(np.maximum(densities[0] - math.exp(epsilon) * densities[1], 0).sum() * cell)


@pytest.mark.parametrize(("epsilon", "delta", "kappa"), [(1.0, 1e-3, 0.1), (8.0, 1e-4, 2.0)])
def test_gaussian_claims_are_nearly_reached_and_a_wrong_scale_is_seen(epsilon, delta, kappa):
    """Opposite records, both saturated by a far-away centre, are as bad as a Gaussian mechanism of the same mu."""
    tilt = 0.02
    pair = [np.array([-math.sin(tilt), math.cos(tilt)]), np.array([-math.sin(tilt), -math.cos(tilt)])]
    mu = minima.calibrated(epsilon, delta, kappa, Sigmoid()).mu

    def attack(mu):
        return exact_delta(LOGISTIC, kappa, 2 / mu, epsilon, pair, (0, 0), np.array([1000.0, 0.0]), 401)

    assert 0.9 * delta < attack(mu) <= delta
    assert attack(1.05 * mu) > delta


def test_a_tilted_minimum_is_not_a_gaussian_mechanism_yet_within_its_claim():
    """The Jacobian alone makes delta many times that of a Gaussian mechanism with the same mu."""
    rng = np.random.default_rng(3)
    epsilon, delta, kappa = 0.1, 1e-3, 0.3
    mu = minima.calibrated(epsilon, delta, kappa, Sigmoid()).mu
    angles, sizes = rng.uniform(0, 2 * math.pi, (30, 2)), rng.exponential(30, 30)
    found = [
        exact_delta(LOGISTIC, kappa, 2 / mu, epsilon, [unit(a), unit(b)], (0, 0), size * unit(0.0), 141)
        for (a, b), size in zip(angles, sizes, strict=True)
    ]
    assert 10 * gaussian_delta(mu, epsilon) < max(found) <= delta


@pytest.mark.parametrize(
    ("loss", "slope", "saturation"),
    [
        (HUBER, 1.0, Flat(2)),
        *((pseudo_huber(power), 1.0, PseudoHuber(power)) for power in POWERS),
        (capped(0.35), 0.35, Capped(0.35)),
        (HALF_EXPONENTIAL, 1.0, Exponential()),
    ],
)
@pytest.mark.parametrize(("epsilon", "kappa"), [(1.0, 0.05), (0.5, 0.02)])
def test_no_pair_exceeds_a_gaussian_claim_in_one_dimension(loss, slope, saturation, epsilon, kappa):
    rng = np.random.default_rng(4)
    delta = 1e-3
    mu = minima.calibrated(epsilon, delta, kappa, saturation).mu

    def attack(p, mu):
        pair = np.clip(p[:2], -1, 1)[:, None]
        return exact_delta(loss, kappa, 2 * slope / mu, epsilon, pair, 3 * p[2:], np.zeros(1), 1501)

    draws = np.concatenate([rng.normal(size=(200, 4)) * 3, [[1, 1, 1e3, -1e3], [-1, 1, 1e3, 1e3]]])
    found = [attack(draw, mu) for draw in draws]
    assert 0.2 * delta < max(found) <= delta
    # Where the slack of the claim is used up, the same draws see it.
    assert max(attack(draw, 2 * mu) for draw in draws) > delta


def test_deltas_are_never_rounded_down():
    """dδ/dμ = φ(ε/μ - μ/2), so that an integral without cancellation gives delta to 12 digits."""
    plain = Corners((1,), (1.0,), (0.0,))
    for epsilon, z in itertools.product((1e-7, 1e-5, 1e-3, 0.1, 1.0, 8.0), (1.0, 3.0, 5.0, 7.0)):
        mu = epsilon / z

        def density(t, mu=mu, epsilon=epsilon):
            return mu * math.exp(-((epsilon / (mu * t) - mu * t / 2) ** 2) / 2) / math.sqrt(2 * math.pi)

        exact = quad(density, 0, 1, epsabs=0, epsrel=1e-12, limit=200, points=[0.8, 0.95])[0]
        found = plain.delta(mu, epsilon)
        assert exact * (1 - 1e-11) <= found <= exact * (1 + 1e-9 + 1e-12 * z**4 / epsilon)


def test_deltas_are_numbers_and_fall_with_epsilon_however_far_apart_mu_and_epsilon_are():
    for mu in 10.0 ** np.linspace(-12, 12, 25):
        epsilons = 10.0 ** np.linspace(-20, 40, 61)
        found = np.array([gaussian_delta(mu, epsilon) for epsilon in (*-epsilons[::-1], *epsilons)])
        assert np.all((found >= 0) & (found <= 1))
        assert np.all(np.diff(found) <= 1e-12 * found[:-1])


def test_no_corners_delta_is_below_that_of_sixty_digits():
    """Not by one unit in the last place: neither the sum over corners, nor any of its terms before the sum's factor."""
    rng = np.random.default_rng(7)
    with mpmath.workdps(60):
        for _ in range(400):
            mu, shift = 10.0 ** rng.uniform(-3, 1.5), rng.choice([0.0, 10.0 ** rng.uniform(-4, 1)])
            epsilon = max(rng.uniform(-4, 10) * mu + shift, 0.0)
            left, scale = mpmath.mpf(epsilon) - mpmath.mpf(shift), mpmath.mpf(mu)
            far, near = mpmath.ncdf(-left / scale - scale / 2), mpmath.ncdf(-left / scale + scale / 2)
            exact = near - mpmath.exp(left) * far
            assert exact <= _delta_up(mu, epsilon, shift) <= exact * (1 + 1e-6) + 1e-300
            assert exact <= Corners((1,), (1.0,), (shift,)).delta(mu, epsilon)
            assert max(1 - mpmath.exp(left), 0) <= Corners((1,), (0.0,), (shift,)).delta(mu, epsilon)


@pytest.mark.parametrize("saturation", SATURATIONS, ids=NAMES)
def test_pure_noise_is_the_inverse_of_its_cost(saturation):
    for epsilon, part in itertools.product((1e-3, 0.1, 1.0, 8.0), (1e-4, 0.1, 0.5, 0.9, 0.999)):
        kappa = part * minima.kappa_limit(epsilon, saturation)
        noise = minima.noise_epsilon(epsilon, kappa, saturation)
        assert epsilon * (1 - 1e-9) <= minima.total_epsilon(noise, kappa, saturation) <= epsilon
        assert minima.total_epsilon(noise * (1 + 1e-6), kappa, saturation) > epsilon
        assert noise <= epsilon
    with pytest.raises(ValueError, match=r"Multiply the ridge by more than 1\.01"):
        minima.noise_epsilon(1.0, 1.01 * minima.kappa_limit(1.0, saturation), saturation)


@pytest.mark.parametrize("saturation", SATURATIONS, ids=NAMES)
def test_pure_costs_grow_with_the_noise_and_the_record(saturation):
    noises, kappas = np.geomspace(1e-3, 20, 12), np.geomspace(1e-3, 100, 12)
    totals = np.array([[minima.total_epsilon(noise, kappa, saturation) for kappa in kappas] for noise in noises])
    assert np.all(np.diff(totals, axis=0) > 0)
    assert np.all(np.diff(totals, axis=1) >= 0)
    assert np.all(totals >= noises[:, None])


@pytest.mark.parametrize("pull", [0.0, 0.05, 0.5, 3.0])
@pytest.mark.parametrize("kappa", [1e-3, 0.4, 1.2, 30.0, 1e4])
def test_largest_charges_are_those_of_a_fine_grid(pull, kappa):
    a = np.linspace(0, 1, 200_001)
    curves = {
        Sigmoid(2.0): 2 * a * (1 - a),
        Capped(0.4): 0.4 * a * (1 - 0.4 * a),
        Exponential(): a,
        PseudoHuber(): (1 - a**2) ** 1.5,
        PseudoHuber(4): (1 - a**4) ** 1.25,
        PseudoHuber(8): (1 - a**8) ** 1.125,
        Flat(1, 0.3): 0.3 + 0 * a,
    }
    for saturation, curve in curves.items():
        expected = np.max(np.log1p(kappa * curve) + pull * a)
        found = saturation.largest(kappa, pull)
        assert expected * (1 - 1e-12) <= found <= expected * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("saturation", [Sigmoid(2.0), Capped(0.4), Exponential(), Softmax(4), CappedSoftmax(4, 0.6)])
def test_charges_of_many_weights_are_those_of_each(saturation):
    kappa = np.array([1e-6, 0.4, 30.0, 1e9])
    for a in (0.0, 0.3, 0.8, 1.0):
        each = [saturation._charge(weight, a)[0] for weight in kappa.tolist()]
        np.testing.assert_allclose(saturation.charges(kappa, a), each, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("saturation", [*map(PseudoHuber, POWERS), Flat(2, 0.7), Sigmoid(), Exponential()])
def test_no_charge_is_above_the_largest(saturation):
    """Where the largest is that of a grid, so is this: a quick answer, at pulls around those that need no summit."""
    for kappa in (1e-3, 0.2, 0.5, 2.0, 50.0):
        for pull in (np.array([0.0, 0.5, 0.9, 0.99, 1.01, 1.5]) * min(1.5 * kappa, (2 * kappa) ** (2 / 3))).tolist():
            grid = [float(saturation.charges(np.array(kappa), a)) + pull * a for a in np.linspace(0, 1, 2001).tolist()]
            assert max(grid) * (1 - 1e-12) <= saturation.largest(kappa, pull) <= max(grid) * (1 + 1e-4) + 1e-9


@pytest.mark.parametrize("pull", [1e-6, 0.5, 50.0])
@pytest.mark.parametrize("kappa", [1e10, 1e25, 1e60])
def test_huge_weights_of_a_record_are_charged(pull, kappa):
    """Near a = 1 no float tells a from 1, and the charge of pseudo-Huber loss still has its summit there."""
    for p in POWERS:
        c = np.exp(np.linspace(-np.log(kappa) / 2, 0, 100_001))
        expected = np.max(np.log1p(kappa * c ** (p + 1)) + pull * (-np.expm1(p * np.log(c))) ** (1 / p))
        assert expected * (1 - 1e-12) <= PseudoHuber(p).largest(kappa, pull) <= expected * (1 + 1e-6)
    for saturation in (Sigmoid(), Capped(0.3), Exponential(), Softmax(3)):
        charges = [saturation._charge(kappa, a)[0] + pull * a for a in np.linspace(0, 1, 1001)]
        assert saturation.largest(kappa, pull) >= max(charges) * (1 - 1e-12)


@pytest.mark.parametrize("kappa", [1e-3, 0.4, 30.0, 1e6])
@pytest.mark.parametrize("p", POWERS)
def test_the_roof_of_pseudo_huber_touches_its_charge(kappa, p):
    """The third corner of the first list is theta (1 - |a|) at a = 0."""
    corners, _ = PseudoHuber(p)._lists(kappa)
    theta = max(corners.shifts)
    t = np.geomspace(1e-9, 1, 400_001)
    with np.errstate(divide="ignore"):
        gaps = theta * t - np.log1p(kappa * (-np.expm1(p * np.log1p(-t))) ** (1 + 1 / p))
    assert len(corners.ratios) == 3
    assert 0 <= gaps.min() <= 1e-8 * theta


def chances(rng, classes, count):
    """Random probabilities from all over the simplex, its edges included; the first class is the true one."""
    concentration = 10 ** rng.uniform(-2, 1, (count, 1))
    weights = rng.gamma(np.broadcast_to(concentration, (count, classes))) + 1e-300
    return weights / weights.sum(axis=1, keepdims=True)


def log_determinants(p, kappa):
    moments = np.einsum("ij,jk->ijk", p, np.eye(p.shape[1])) - p[:, :, None] * p[:, None, :]
    return np.linalg.slogdet(np.eye(p.shape[1]) + kappa * moments)[1]


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kappa", [0.05, 1.0, 30.0])
def test_softmax_charges_are_determinants(classes, kappa):
    """Below every tangent, and touching it where the other classes share their chance evenly."""
    p = chances(np.random.default_rng(5), classes, 4000)
    for tangent in (0.3, 0.7, 1.0):
        corners = Corners(*Softmax(classes).corners_at(kappa, tangent))
        full, none = corners.shifts[0], corners.shifts[-1]
        a = 1 - p[:, 0]
        assert np.all(log_determinants(p, kappa) <= none + a * (full - none) + 1e-12)
        even = np.array([[1 - tangent] + [tangent / (classes - 1)] * (classes - 1)])
        assert log_determinants(even, kappa)[0] == pytest.approx(none + tangent * (full - none), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("saturation", SATURATIONS, ids=NAMES)
def test_gaussian_calibration_is_certified_and_not_wasteful(saturation):
    for epsilon, delta, part in itertools.product((0.1, 2.0), (1e-9, 1e-3), (0.01, 0.3)):
        kappa = part * minima.kappa_limit(epsilon, saturation)
        found = minima.calibrated(epsilon, delta, kappa, saturation)
        assert found.corners.delta(found.mu, epsilon) <= delta
        assert found.corners.scaled(found.mu).delta(1.0, epsilon) == pytest.approx(delta, rel=1e-6)
        assert found.mu <= gaussian_mu(epsilon, delta) * (1 + 1e-9)
        larger = 1.001 * found.mu
        assert minima.best_corners(saturation, kappa, larger, epsilon).delta(larger, epsilon) > delta
        assert minima.calibrated(epsilon, delta, 1.1 * kappa, saturation).mu <= found.mu * (1 + 1e-6)


@pytest.mark.parametrize("saturation", SATURATIONS, ids=NAMES)
def test_the_best_corners_are_of_those_that_are_known(saturation):
    """They depend on what they cost, and no tangent of many costs less: lists that are left out are none too many."""
    tangents = [1.0, *(1 - np.geomspace(1e-6, 0.5, 40)).tolist(), *np.linspace(0.5, 1.0, 30).tolist()]
    for kappa, mu, epsilon in itertools.product((0.01, 0.5, 3.0), (1e-6, 0.1, 0.5), (0.3, 2.0)):

        def delta(corners, mu=mu, epsilon=epsilon):
            return Corners(*corners).delta(mu, epsilon)

        chosen = saturation.corners(kappa, delta)
        assert Corners(*chosen) == minima.best_corners(saturation, kappa, mu, epsilon)
        known = [saturation.corners_at(kappa, at) for at in tangents] if hasattr(saturation, "corners_at") else [chosen]
        assert delta(chosen) <= min(map(delta, known)) * (1 + 1e-9)
        for factor in (0.5, 0.999, 1.0, 1.001, 2.0):
            limit = factor * delta(chosen)
            assert not (saturation.exceeds(kappa, delta, limit) and factor >= 1)
            assert saturation.exceeds(kappa, delta, limit) or factor > 0.9 or limit == 0


@pytest.mark.parametrize("saturation", SATURATIONS, ids=NAMES)
def test_a_mu_that_is_beyond_is_not_allowed(saturation):
    """What is said without calibration is what calibration says, but for a hair on either side."""
    for kappa, epsilon, delta in itertools.product((0.01, 0.2), (0.5, 4.0), (1e-5, 1e-9)):
        found = minima.calibrated(epsilon, delta, kappa, saturation)
        assert not minima.is_beyond(found.mu, epsilon, delta, kappa, saturation)
        assert minima.is_beyond(1.01 * found.mu, epsilon, delta, kappa, saturation)


def test_what_no_noise_protects_is_refused():
    for saturation in (Sigmoid(), Capped(0.5), Exponential(), *map(PseudoHuber, POWERS), Flat(2), Softmax(4)):
        assert minima.calibrated(0.5, 1e-5, 50.0, saturation) is None
        assert minima.calibrated(0.5, 1e-5, 0.01, saturation).mu > 0
    with pytest.raises(ValueError, match="ridge must be positive"):
        minima.record_weight(1.0, 100, 0.0)
    with pytest.raises(ValueError, match="tangent must lie between 0 and 1"):
        Sigmoid().corners_at(1.0, 1.5)


def test_what_is_remembered_is_what_would_be_computed():
    """Answers are kept by their arguments: no saturation is taken for another one."""
    kinds = [
        Sigmoid(),
        Sigmoid(0.5),
        Exponential(),
        *map(PseudoHuber, POWERS),
        Flat(1),
        Flat(2),
        Softmax(3),
        Softmax(4),
    ]
    kinds += [Capped(0.5), Capped(0.1), CappedSoftmax(3, 0.5), CappedSoftmax(3, 0.1), CappedSoftmax(4, 0.5)]
    assert len(set(kinds)) == len(kinds)
    questions = [(minima.total_epsilon, (0.8, 0.7)), (minima.noise_epsilon, (1.0, 0.7)), (minima.kappa_limit, (1.0,))]
    questions += [(minima.calibrated, (1.0, 1e-5, 0.7)), (minima.is_beyond, (0.2, 1.0, 1e-5, 0.7))]
    for _ in range(2):
        for (function, numbers), kind in itertools.product(questions, kinds):
            assert function(*numbers, kind) == function.__wrapped__(*numbers, kind)


def test_epsilon_is_the_inverse_of_delta():
    corners = Corners(*Sigmoid().corners_at(0.3, 0.9))
    for mu, delta in itertools.product((0.01, 0.3, 4.0), (1e-12, 1e-5, 0.01)):
        epsilon = corners.epsilon(mu, delta)
        assert delta * (1 - 1e-6) <= corners.delta(mu, epsilon) <= delta
    assert corners.epsilon(1e-6, 0.9) == 0.0
    # Where rounding leaves the root short of delta, it is moved, and hardly.
    for mu, delta in (
        (1.2677509352914451e-06, 2.7935322892220383e-159),
        (2.2640423846258687e-06, 4.351388129289129e-46),
    ):
        epsilon = GAUSSIAN.epsilon(mu, delta)
        assert GAUSSIAN.delta(mu, epsilon) <= delta < GAUSSIAN.delta(mu, epsilon * (1 - 1e-6))


def test_composition_multiplies_the_lists():
    """Against the plain product; equal releases, which are grouped, and different ones."""
    first = Corners(*Sigmoid().corners_at(0.3, 0.8)).scaled(0.2)
    second = Corners(*Softmax(3).corners_at(0.1, 1.0)).scaled(0.1)
    for releases in ([first, second], [first] * 4, [second, first, second]):
        lists = [list(zip(r.multiplicities, r.ratios, r.shifts, strict=True)) for r in releases]
        expected = math.fsum(
            math.prod(m for m, _, _ in chosen)
            * GAUSSIAN.delta(math.hypot(*(r for _, r, _ in chosen)), 0.9 - math.fsum(e for _, _, e in chosen))
            for chosen in itertools.product(*lists)
        )
        assert composed(releases).delta(1.0, 0.9) == pytest.approx(min(expected, 1.0), rel=1e-9)
    with pytest.raises(ValueError, match="corners together, more than"):
        composed([first.scaled(1 + i / 10) for i in range(10)])


@pytest.mark.parametrize(("kappa", "mu"), [(0.1, 0.3), (0.01, 0.03), (1.0, 0.1), (2.0, 2.0)])
def test_renyi_bounds_the_largest_corner(kappa, mu):
    """Exact moments of the largest of four losses of two gradients at several angles, by quadrature."""
    corners = Corners(*Sigmoid().corners_at(kappa, 0.9))
    orders = np.array([1.1, 2.0, 8.0, 30.0])
    axis = np.linspace(-9, 9 + 30 * mu, 901)
    b = np.stack(np.meshgrid(axis, np.linspace(-9, 9, 301), indexing="ij"), axis=-1)
    cell = (axis[1] - axis[0]) * 18 / 300
    shifts = np.array(corners.shifts)
    for angle in (0.0, 0.5, 1.5, math.pi):
        old, new = mu / 2 * unit(0.0), mu / 2 * -unit(angle)
        changes = np.stack([old - new, old, -new, 0 * new])
        losses = np.sum(changes**2, axis=1) / 2 + b @ changes.T + shifts[[0, 1, 2, 3]]
        exponents = (orders[:, None, None] - 1) * losses.max(axis=-1) - np.sum(b**2, axis=-1) / 2
        exact = (logsumexp(exponents, axis=(1, 2)) + math.log(cell / (2 * math.pi))) / (orders - 1)
        assert np.all(exact <= corners.renyi(orders, mu) * (1 + 1e-6))
    terms = (orders[:, None] - 1) * (shifts + orders[:, None] * (np.array(corners.ratios) * mu) ** 2 / 2)
    assert np.all(corners.renyi(orders, mu) <= logsumexp(terms, axis=1) / (orders - 1) * (1 + 1e-9))
    assert GAUSSIAN.renyi(orders, mu) == pytest.approx(orders * mu**2 / 2, rel=1e-9)


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
@pytest.mark.parametrize(
    "corners",
    [Corners((2, 1, 3), (1.0, 0.5, 0.0), (0.1, 0.0, 0.02)), Corners((1, 1), (1.0, 0.0), (0.0, 0.02))],
    ids=["continuous", "at an atom"],
)
def test_renyi_is_the_best_bound_of_its_kind(corners, mu):
    """c + sum of E (X_v - c)_+ for X_v = exp((alpha - 1) loss_v), by quadrature: at the best c, and at no other."""
    z = np.linspace(-12, 12 + 8 * mu, 20_001)
    weights = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    levels = [*np.linspace(-0.2, 0.2 + 3 * mu, 400), *corners.shifts]
    for alpha in (1.5, 3.0, 9.0):
        losses = [
            shift + (ratio * mu) ** 2 / 2 + ratio * mu * z
            for ratio, shift in zip(corners.ratios, corners.shifts, strict=True)
        ]
        powers = list(zip(corners.multiplicities, (np.exp((alpha - 1) * loss) for loss in losses), strict=True))
        bounds = [
            c + sum(count * float(weights @ np.maximum(power - c, 0)) for count, power in powers)
            for c in np.exp((alpha - 1) * np.array(levels))
        ]
        found = math.exp((alpha - 1) * float(corners.renyi(alpha, mu)))
        assert min(bounds) * (1 - 1e-4) <= found <= min(bounds) * (1 + 1e-6)


def test_corners_of_two_signs_cover_records_at_every_angle():
    """Slopes of either sign: u - u' twice and u + u' twice, whose squares add up to four records'."""
    for kappa, mu, epsilon in itertools.product((1e-9, 0.1, 1.0), (1e-3, 0.1, 1.0), (0.0, 0.05, 1.0)):
        corners = minima.best_corners(Flat(2), kappa, mu, epsilon)
        (shift,) = set(corners.shifts)
        assert shift >= math.log1p(kappa) * (1 - 1e-15)
        for angle in np.linspace(0, math.pi / 2, 19):
            every = [2 * gaussian_delta(mu * ratio, epsilon - shift) for ratio in (math.cos(angle), math.sin(angle))]
            assert min(sum(every), 1.0) * (1 - 1e-12) <= corners.delta(mu, epsilon)


def test_softmax_of_two_classes_has_the_corners_of_a_sigmoid_of_twice_the_sharpness():
    """ln det(I + kappa (diag p - pp')) = ln(1 + 2 kappa a (1 - a)) for two classes."""
    for kappa, tangent, mu, epsilon in itertools.product((0.1, 2.0), (0.6, 1.0), (0.1, 1.0), (0.0, 0.5, 2.0)):
        two, one = (Corners(*each.corners_at(kappa, tangent)) for each in (Softmax(2), Sigmoid(2.0)))
        assert two.delta(mu, epsilon) == pytest.approx(one.delta(mu, epsilon), rel=1e-12)


def test_what_noise_is_scaled_by_is_rounded_up_in_fractions():
    """Not one unit in the last place below the formula, for numbers of every size."""
    rng = np.random.default_rng(8)
    for _ in range(300):
        a, b = (float(number) for number in 10.0 ** rng.uniform(-6, 6, 2))
        n, x, y = int(10 ** rng.uniform(0, 12)), Fraction(a), Fraction(b)
        assert Fraction(minima.minimum_sensitivity(a, n, b)) >= 2 * x / (n * y)
        assert Fraction(minima.minimum_radius(a, n, b)) >= x / (n * y)
        assert Fraction(minima.record_weight(a, n, b)) >= x**2 / (n * y)
        assert Fraction(minima.output_scale(a, b)) >= 2 * x / y


def test_corners_that_no_noise_changes_are_refused():
    with pytest.raises(ValueError, match="ratios must not all be 0"):
        Corners((1, 2), (0.0, 0.0), (0.0, 0.1)).mu(1.0, 1e-6)


@pytest.mark.parametrize("fields", [((1,), (1.0, 1.0), (0.0,)), ((), (), ()), ((1,), (-1.0,), (0.0,))])
def test_corners_are_checked(fields):
    with pytest.raises(ValueError, match="must"):
        Corners(*fields)
    with pytest.raises(ValueError, match="ratios and shifts must not be negative"):
        Corners((1,), (1.0,), (-0.1,))
    with pytest.raises(ValueError, match="alpha must be above 1"):
        GAUSSIAN.renyi(1.0)


def test_output_noise_of_a_wrong_radius_is_seen():
    """Density of two points that are 2 radius apart: the ratio is epsilon_out, and no less."""
    radius = minima.minimum_radius(1e-3, 1000, 0.1)
    scale = minima.output_scale(radius, 0.05)
    assert 2 * 1e-3 / (1000 * 0.1) / scale == pytest.approx(0.05, rel=1e-9)
    assert 2 * 1e-3 / (1000 * 0.1) / scale <= 0.05


@pytest.mark.parametrize("kappa", [1e-3, 0.4, 30.0, 1e6])
@pytest.mark.parametrize("p", POWERS)
def test_the_roof_of_pseudo_huber_is_not_below_its_summit_in_fifty_digits(kappa, p):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(50):

        def ratio(t):
            return mpmath.log1p(mpmath.mpf(kappa) * (1 - (1 - t) ** p) ** (1 + mpmath.mpf(1) / p)) / t

        nearest = max(np.geomspace(1e-6, 1, 4001), key=lambda t: ratio(mpmath.mpf(float(t))))
        low, high = mpmath.mpf(float(nearest)) * 0.99, min(mpmath.mpf(float(nearest)) * 1.01, mpmath.mpf(1))
        for _ in range(120):  # the ratio has one summit, so that thirds without it are left out
            third = (high - low) / 3
            low, high = (low + third, high) if ratio(low + third) < ratio(high - third) else (low, high - third)
        assert mpmath.mpf(PseudoHuber(p)._roof(kappa)) >= ratio((low + high) / 2)


@pytest.mark.parametrize("d", [1, 2, 7, 30])
def test_noise_on_the_output_adds_no_more_than_its_part_whatever_the_hessian(d):
    random, n, epsilon, waste = np.random.default_rng(d), 50, 0.01, 1e-3
    quotients = []
    for case in range(40):
        ridge = 10.0 ** random.uniform(-6, 0)
        rotation = np.linalg.qr(random.standard_normal((d, d)))[0]
        loss = 10.0 ** random.uniform(-4, 1, d) * (random.random(d) < (1.0 if case % 2 else 0.3))
        root = rotation @ np.diag(10.0 ** random.uniform(-2, 2, d)) @ rotation.T
        if case == 0:  # what Cauchy and Schwarz leave nothing of: a tilt of the shape of the Hessian, and no slack
            loss, root = np.ones(d), np.eye(d)
        turn = np.linalg.qr(random.standard_normal((d, d)))[0]
        hessian = turn @ np.diag(loss + ridge) @ turn.T
        trace = float(np.trace(hessian)) * (1.0 if case == 0 else 1 + random.random())
        tolerance = minima.gradient_tolerance(float(np.trace(root)), d, epsilon, ridge, trace, waste)
        scale = minima.output_scale(minima.minimum_radius(tolerance, n, ridge), epsilon)
        output = minima.ball_energy(scale, d) / d * float(np.trace(hessian)) / 2
        tilt = float(np.trace(root @ root @ np.linalg.inv(hessian))) / (2 * n**2)
        quotients.append(output / tilt / waste)
    assert max(quotients) <= 1 + 1e-9
    assert quotients[0] == pytest.approx(1, rel=1e-6)
    with pytest.raises(ValueError, match="at most trace/d"):
        minima.gradient_tolerance(1.0, d, epsilon, 1.0, 0.9 * d)
