"""From concentrated and Gaussian privacy to (epsilon, delta), and back.

A composition of Gaussian mechanisms with rhos that sum to rho is exactly mu-Gaussian-DP with mu² = 2 rho
(Dong, Roth, Su 2022), hence exactly (epsilon, delta)-private on a known curve. The textbook's conversion of zCDP is
valid too, and worse: at delta = 1e-5 by 2.45 times in the variance for epsilon = 0.1, 1.73 for 1, 1.40 for 5.
"""

import math

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import log_ndtr

from epsteps import _validate


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta of a mu-Gaussian-DP mechanism at this epsilon: exact.

    Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2), in logarithms so that tiny deltas keep their digits. Any real epsilon is
    allowed; at mu = 0 nothing is released, and max(0, 1 - e^ε) is left.

    >>> round(gaussian_delta(mu=1, epsilon=1), 10)
    0.1269367375
    """
    if mu == 0:
        return -math.expm1(min(epsilon, 0.0))
    first = log_ndtr(-epsilon / mu + mu / 2)
    if first == -math.inf:
        return 0.0
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(-np.exp(first) * np.expm1(min(second - first, 0.0)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu with which a Gaussian-DP mechanism is (epsilon, delta)-private, rounded down.

    >>> round(gaussian_mu(epsilon=1, delta=1e-5), 8)
    0.26805112
    """
    _validate.positive("epsilon", epsilon)
    checked_delta(delta)

    def excess(log_mu: float) -> float:
        return math.log(max(gaussian_delta(math.exp(log_mu), epsilon), 1e-320)) - math.log(delta)

    # The textbook's rho is enough (so its mu is too small); at mu = 2 (√(2 ln(1/δ) + 2ε) + ...) delta is near 1.
    low = 0.5 * math.log(2 * zcdp_rho(epsilon, delta))
    high = low + 0.5
    while excess(high) < 0:
        high += 0.5
    return math.exp(root_scalar(excess, bracket=(low, high), xtol=1e-13).root) * (1 - 1e-11)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which a mu-Gaussian-DP mechanism is (epsilon, delta)-private, rounded up."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = zcdp_epsilon(mu**2 / 2, delta)
    found = root_scalar(
        lambda epsilon: math.log(max(gaussian_delta(mu, epsilon), 1e-320)) - math.log(delta),
        bracket=(0.0, high),
        xtol=1e-13 * high,
    )
    return found.root * (1 + 1e-10)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the textbook's rho that implies (epsilon, delta): (√(ln(1/δ) + ε) - √ln(1/δ))².

    >>> round(zcdp_rho(epsilon=1, delta=1e-5), 11)
    0.02081993834
    """
    log = math.log(1 / checked_delta(delta))
    # Written without cancellation: ε/(√(log + ε) + √log).
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the textbook's epsilon of rho-zCDP at this delta: ρ + 2 √(ρ ln(1/δ)).

    >>> round(zcdp_epsilon(rho=0.05, delta=1e-6), 9)
    1.712258136
    """
    return rho + 2 * math.sqrt(rho * math.log(1 / checked_delta(delta)))


def checked_delta(delta: float) -> float:
    """Return delta if it lies strictly between 0 and 1, or raise."""
    if not 0 < _validate.number("delta", delta) < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta!r}. For delta = 0 use Pure(epsilon).")
    return float(delta)
