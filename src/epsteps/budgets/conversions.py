"""From concentrated and Gaussian privacy to (epsilon, delta), and back.

A composition of Gaussian mechanisms with rhos that sum to rho is exactly mu-Gaussian-DP with mu² = 2 rho
(Dong, Roth, Su 2022), hence exactly (epsilon, delta)-private on a known curve. The textbook's conversion of zCDP is
valid too, and worse: at delta = 1e-5 by 2.45 times in the variance for epsilon = 0.1, 1.73 for 1, 1.40 for 5.
"""

import math
import sys
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, ndtr

from epsteps.problem import validate
from epsteps.problem.rounding import down, root_between, up

_SMALL_MU = 0.5
_FAR = 1e100  # from there on ln δ < -s²/2 is below that of any float
_HALF_LOG = math.log(2 * math.pi) / 2
# Gauss and Legendre on [0, 1]: 64 nodes integrate e^(-su - u²/2) (1 - e^(-mu u)) to rounding error.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta of a mu-Gaussian-DP mechanism at this epsilon, accurate in all its digits but a few.

    Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2), written without cancellation. Any real epsilon is allowed; at mu = 0 nothing is
    released, and max(0, 1 - e^ε) is left.

    >>> round(gaussian_delta(mu=1, epsilon=1), 10)
    0.1269367375
    """
    if mu == 0:
        return -math.expm1(min(epsilon, 0.0))
    if epsilon < 0:  # the mechanism and its mirror image have the same curve
        return -math.expm1(epsilon) + math.exp(epsilon) * gaussian_delta(mu, -epsilon)
    return math.exp(min(_log_delta(mu, epsilon)[0], 0.0))


def _log_delta(mu: float, epsilon: float) -> tuple[float, float]:
    """Return ln δ and a bound on its error, for positive mu and an epsilon of at least 0.

    With s = ε/μ - μ/2 and Gaussian density φ, φ(s) = e^ε φ(s + μ), so that δ = φ(s) (M(s) - M(s + μ)) for Mills' ratio
    M. The difference is the integral of e^(-su - u²/2) (1 - e^(-μu)) over u > 0, all of it positive: for small mu by
    Gauss and Legendre up to where the rest is below 1e-17 of it, for others, where 1% or more is left of M(s), from
    the scaled error function. Both are good to 1e-12; s is off by rounding of its terms, and ln φ by |s| times that.
    """
    s = epsilon / mu - mu / 2
    if s > _FAR:
        return -math.inf, 0.0
    terms = epsilon / mu + mu / 2
    error = 1e-11 + 2.0**-50 * (1 + abs(s)) * (1 + terms)
    if mu < _SMALL_MU:
        end = math.sqrt(s * s + 84) - s if s < 0 else 84 / (math.sqrt(s * s + 84) + s)
        u = end * _NODES
        # The sum as a ufunc's, which starts sooner than NumPy's: planning takes hundreds of them.
        integral = end * float(np.add.reduce(_WEIGHTS * np.exp(-u * (s + u / 2)) * -np.expm1(-mu * u)))
        return -s * s / 2 - _HALF_LOG + math.log(integral), error
    if s < 0:  # Φ(-s) is at least 1/2, and M would overflow
        far = math.exp(-s * s / 2 - _HALF_LOG) * _mills(s + mu)
        return math.log(max(float(ndtr(-s)) - far, sys.float_info.min)), error
    ratio = _mills(s)  # where s is 2^52 times mu, rounding leaves nothing of the difference
    return -s * s / 2 - _HALF_LOG + math.log(max(ratio - _mills(s + mu), 2.0**-52 * ratio)), error


def _mills(s: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(s / math.sqrt(2)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu with which a Gaussian-DP mechanism is (epsilon, delta)-private, rounded down.

    >>> round(gaussian_mu(epsilon=1, delta=1e-5), 8)
    0.26805112
    """
    return _gaussian_mu(validate.positive("epsilon", epsilon), checked_delta(delta))


@lru_cache(maxsize=64)  # every round of a calibration asks for the same
def _gaussian_mu(epsilon: float, delta: float) -> float:
    def excess(log_mu: float) -> float:
        log_delta, error = _log_delta(math.exp(log_mu), epsilon)
        return log_delta + error - math.log(delta)

    # The textbook's rho is enough (so its mu is too small); at mu = 2 (√(2 ln(1/δ) + 2ε) + ...) delta is near 1.
    low = 0.5 * math.log(2 * zcdp_rho(epsilon, delta)) - 1e-12
    high = low + 0.5
    while excess(high) < 0:
        high += 0.5
    if excess(low) > 0:  # where rounding hides what is gained over the textbook
        return down(math.exp(low))
    root = root_between(excess, low, high, xtol=1e-13)
    return math.exp(_moved(excess, root, -1e-13)) * (1 - 2.0**-50)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which a mu-Gaussian-DP mechanism is (epsilon, delta)-private, rounded up."""
    checked_delta(delta)
    if mu == 0:
        return 0.0
    textbook = up(zcdp_epsilon(mu**2 / 2, delta))

    def excess(epsilon: float) -> float:
        log_delta, error = _log_delta(mu, epsilon)
        return log_delta + error - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    if not excess(textbook) < 0:  # where rounding hides what is gained over the textbook
        return textbook
    root = root_between(excess, 0.0, textbook, xtol=1e-13 * textbook, rtol=1e-13)
    return min(_moved(excess, root, 1e-13 * textbook), textbook)


def _moved(excess: Callable[[float], float], start: float, step: float) -> float:
    """Return the start, moved in ever larger steps to where nothing is in excess."""
    while excess(start) > 0:
        start, step = start + step, 2 * step
    return start


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
    if not 0 < validate.number("delta", delta) < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta!r}. For delta = 0 use Pure(epsilon).")
    return float(delta)
