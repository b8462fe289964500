"""Minima released once: tilted objectives, and noise on the output. Public mathematics only.

Every guarantee is for neighbours that differ in one replaced record, with n public and a positive ridge on every
coordinate. How the slope of a loss saturates comes from ``problem.saturations``; all functions take plain public
numbers.

A solver stops at a point whose gradient of ``n F + b'x`` has an L2 norm of at most ``tolerance``, a public number that
is fixed before the data are opened. That point is within a radius of the exact minimum, whatever the data and the
solver; noise on the output hides where. If rounding keeps a solver from the tolerance, it must go on in higher
precision: a tolerance that depends on the data would be a leak.
"""

import math
from functools import cache
from typing import NamedTuple

from epsteps.budgets.conversions import gaussian_mu
from epsteps.budgets.corners import Corners, deltas
from epsteps.problem import validate
from epsteps.problem.memory import NUMBERS, remembered
from epsteps.problem.rounding import down, root_between, up
from epsteps.problem.saturations import Saturation

# Beyond this logarithm a float overflows.
_LARGEST_LOG = 700.0
# Relative to a plain Gaussian mechanism: an objective that needs a smaller mu has no use.
_SMALLEST = math.exp(-12)
_MOST_ROUNDS = 50
# What a search leaves out is worse by at least this share: far more than what is computed is off by.
_MARGIN = 1e-6


def record_weight(record_size: float, n: int, ridge: float) -> float:
    """Return kappa = size²/(n ridge), what one record weighs against the ridge, rounded up; size in the L2 norm.

    With a ridge for each coordinate, kappa is the largest sum_j u_j²/(n ridge_j) over the domain, and every ridge must
    be positive, the intercept's too.

    >>> round(record_weight(record_size=20**0.5, n=100_000, ridge=0.02), 9)
    0.01
    """
    validate.positive("record_size", record_size)
    validate.integer("n", n)
    validate.positive("ridge", ridge, "Without a ridge a tilted objective may have no minimum.")
    return up(record_size**2 / (n * ridge))


@remembered(NUMBERS)
def total_epsilon(noise_epsilon: float, kappa: float, saturation: Saturation) -> float:
    """Return the epsilon of releasing the minimum of ``n F(x) + b'x``, rounded up.

    Formal guarantee: b has density ~ exp(-noise_epsilon |b|_K), where K is twice a symmetric body that holds every
    record's gradient. At the released x the densities of neighbours differ by at most
    e^(noise_epsilon (|q|_K + |q'|_K)) in the noise and e^J(a) in the Jacobian, for the old and the new record's
    gradients q and q'; these norms are at most a/2 and 1/2, with the same a as in J. So the cost is
    noise_epsilon/2 + max over a of (J(a) + noise_epsilon a/2). A convex penalty or constraint that is public does not
    change it. The minimum must be exact; ``output_scale`` is for one that is not.

    >>> from epsteps.problem.saturations import Sigmoid
    >>> total_epsilon(1.0, kappa=0.5, saturation=Sigmoid()), round(total_epsilon(1.0, 2.0, Sigmoid()), 9)
    (1.0, 1.201304673)
    """
    if validate.number("noise_epsilon", noise_epsilon) < 0:
        raise ValueError(f"noise_epsilon must not be negative, got {noise_epsilon!r}.")
    validate.positive("kappa", kappa)
    half = noise_epsilon / 2
    largest = saturation.largest(kappa, half)
    return float(noise_epsilon) if largest == half else up(half + largest)


@remembered(NUMBERS)
def noise_epsilon(epsilon: float, kappa: float, saturation: Saturation) -> float:
    """Return the largest epsilon of the noise with which a release costs at most epsilon; rounded down, checked again.

    >>> from epsteps.problem.saturations import Sigmoid
    >>> noise_epsilon(1.0, kappa=0.01, saturation=Sigmoid()), round(noise_epsilon(1.0, 2.0, Sigmoid()), 9)
    (1.0, 0.757331661)
    """
    validate.positive("epsilon", epsilon)

    @cache
    def excess(noise: float) -> float:
        return total_epsilon(noise, kappa, saturation) - epsilon

    if excess(epsilon) <= 0:
        return float(epsilon)
    if excess(0.0) >= 0:
        limit = kappa_limit(epsilon, saturation)
        raise ValueError(
            f"the ridge is too small for epsilon={epsilon!r}: kappa must be below {limit:.6g}, got {kappa:.6g}. "
            f"Multiply the ridge by more than {kappa / limit:.6g}."
        )
    noise = root_between(excess, 0.0, epsilon, xtol=1e-14 * epsilon)
    while excess(noise) > 0:
        noise = down(noise, 1e-11)
    return noise


@remembered(NUMBERS)
def kappa_limit(epsilon: float, saturation: Saturation) -> float:
    """Return the kappa from which on the Jacobian alone costs epsilon: the ridge must keep kappa below it.

    >>> from epsteps.problem.saturations import Sigmoid
    >>> round(kappa_limit(0.1, Sigmoid()), 10)
    0.4206836723
    """
    validate.positive("epsilon", epsilon)

    def excess(log_kappa: float) -> float:
        return saturation.largest(math.exp(log_kappa), 0.0) - epsilon

    low = high = 0.0
    while excess(low) > 0:
        low -= 8.0
    while excess(high) < 0:
        high += 8.0
        if high > _LARGEST_LOG:
            return math.inf
    return math.exp(root_between(excess, low, high, xtol=1e-13)) if low < high else 1.0


class Calibrated(NamedTuple):
    """The scale mu = 2 S/sigma of the noise, and the corners that certify it."""

    mu: float
    corners: Corners


def best_corners(saturation: Saturation, kappa: float, mu: float, epsilon: float) -> Corners:
    """Return valid corners of a loss: of all that are known, those with the smallest delta at this mu and epsilon."""
    return Corners(*saturation.corners(kappa, deltas(mu, epsilon)))


@remembered(NUMBERS)
def calibrated(epsilon: float, delta: float, kappa: float, saturation: Saturation) -> Calibrated | None:
    """Return the largest mu for which the minimum of ``n F(x) + b'x``, b Gaussian, is (epsilon, delta)-private.

    Formal guarantee: as that of ``Corners``; mu is rounded down and delta evaluated again. Every choice of corners is
    valid, so the best ones are taken for this mu. None where the ridge is too small for any noise.

    >>> from epsteps.problem.saturations import Sigmoid
    >>> round(calibrated(1.0, 1e-5, kappa=1.0, saturation=Sigmoid()).mu, 6)
    0.250768
    """
    validate.positive("kappa", kappa)
    least = _SMALLEST * gaussian_mu(epsilon, delta)
    corners = best_corners(saturation, kappa, least, epsilon)
    if corners.delta(least, epsilon) > delta:
        return None
    best = Calibrated(least, corners)
    # The best corners at one mu allow a larger mu, and so on: it only rises, and soon stops.
    for _ in range(_MOST_ROUNDS):
        larger = Calibrated(corners.mu(epsilon, delta), corners)
        if larger.mu <= best.mu * (1 + 1e-10):
            break
        best = larger
        corners = best_corners(saturation, kappa, best.mu, epsilon)
    return best


@remembered(NUMBERS)
def is_beyond(mu: float, epsilon: float, delta: float, kappa: float, saturation: Saturation) -> bool:
    """Whether ``calibrated`` surely allows no mu as large as this one: quick, and False where it does not know."""
    return saturation.exceeds(kappa, deltas(mu, epsilon), up(delta, _MARGIN))


def gradient_tolerance(
    tilt_root: float, d: int, epsilon_out: float, ridge: float, trace: float, waste: float = 1e-3
) -> float:
    """Return the norm of the gradient at which a solver may stop.

    tilt_root √(waste/(d + 1)) epsilon_out ridge/(2 trace): the noise on the output then adds at most the part ``waste``
    of what the tilt costs in the objective, both to second order, for every Hessian H of F with tr H <= ``trace``.

    The noise z has density ~ exp(-|z|_2/s), s = 2 tolerance/(n ridge epsilon_out). It has no direction, and E|z|² = d
    (d + 1) s², so that it costs E z'Hz/2 = (d + 1) s² tr H/2. A tilt of covariance C moves the minimum by H⁻¹b/n and
    costs tr(C H⁻¹)/(2 n²). As (tr C^½)² = (tr C^½H^-½ H^½)² <= tr(C H⁻¹) tr H, by Cauchy and Schwarz, the quotient of
    the two is at most (d + 1) n² s² (tr H)²/(tr C^½)².

    Parameters
    ----------
    tilt_root : float
        tr C^½ for the covariance C of the tilt, or less: √(d E|b|²) where it has no direction. Public.
    d : int
        Number of coordinates of b.
    epsilon_out : float
        What the noise on the output may cost.
    ridge, trace : float
        Strong convexity of F, and a bound on the trace of its second derivatives.
    waste : float
        The part that may be lost.
    """
    validate.integer("d", d)
    for name, value in (("tilt_root", tilt_root), ("epsilon_out", epsilon_out), ("waste", waste)):
        validate.positive(name, value)
    if not 0 < d * validate.number("ridge", ridge) <= validate.number("trace", trace) * (1 + 1e-12):
        raise ValueError(f"ridge must be positive and at most trace/d, for trace={trace!r}, got {ridge!r}.")
    return tilt_root * math.sqrt(waste / (d + 1)) * epsilon_out * ridge / (2 * trace)


def minimum_radius(tolerance: float, n: int, ridge: float) -> float:
    """Return how far such a point may be from the exact minimum, in the L2 norm, rounded up: tolerance/(n ridge)."""
    validate.integer("n", n)
    return up(validate.positive("tolerance", tolerance) / (n * validate.positive("ridge", ridge)))


def output_scale(radius: float, epsilon_out: float) -> float:
    """Return the scale s of output noise with density ~ exp(-|z|_2/s), rounded up: 2 radius/epsilon_out.

    Formal guarantee: given the exact minimum, any two laws of the released point differ by at most e^epsilon_out, so
    that the release costs epsilon_out more, in pure privacy and at any delta.
    """
    return up(2 * validate.positive("radius", radius) / validate.positive("epsilon_out", epsilon_out))


def minimum_sensitivity(gradient_size: float, n: int, ridge: float) -> float:
    """Return how far the minimum moves, in the L2 norm, when a record is replaced; rounded up.

    Formal guarantee: 2 S/(n ridge), where S is the largest L2 norm of one record's gradient: by strong monotonicity at
    the other minimum (Chaudhuri, Monteleoni, Sarwate 2011). It needs no smooth loss, only bounded slopes and a ridge.
    """
    validate.positive("gradient_size", gradient_size)
    validate.integer("n", n)
    return up(2 * gradient_size / (n * validate.positive("ridge", ridge)))


def ball_energy(scale: float, d: int) -> float:
    """Return E|z|² of noise with density ~ exp(-|z|_2/scale) in d dimensions: |z| is Gamma(d), so d (d + 1) scale²."""
    return validate.integer("d", d) * (d + 1) * validate.positive("scale", scale) ** 2
