"""From concentrated, Gaussian and composed pure privacy to (epsilon, delta), and back.

A composition of Gaussian mechanisms with rhos that sum to rho is exactly mu-Gaussian-DP with mu² = 2 rho
(Dong, Roth, Su 2022), hence exactly (epsilon, delta)-private on a known curve. The textbook's conversion of zCDP is
valid too, and worse: at delta = 1e-5 by 2.45 times in the variance for epsilon = 0.1, 1.73 for 1, 1.40 for 5.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import scipy

from epsteps.problem import validate
from epsteps.problem.rounding import down, root_between, up

_SMALL_MU = 0.5
_FAR = 1e100  # from there on ln δ < -s²/2 is below that of any float
_HALF_LOG = math.log(2 * math.pi) / 2


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
        nodes, weights = _legendre()
        u = end * nodes
        # The sum as a ufunc's, which starts sooner than NumPy's: planning takes hundreds of them.
        integral = end * float(np.add.reduce(weights * np.exp(-u * (s + u / 2)) * -np.expm1(-mu * u)))
        return -s * s / 2 - _HALF_LOG + math.log(integral), error
    if s < 0:  # Φ(-s) is at least 1/2, and M would overflow
        far = math.exp(-s * s / 2 - _HALF_LOG) * _mills(s + mu)
        return math.log(max(float(scipy.special.ndtr(-s)) - far, sys.float_info.min)), error
    ratio = _mills(s)  # where s is 2^52 times mu, rounding leaves nothing of the difference
    return -s * s / 2 - _HALF_LOG + math.log(max(ratio - _mills(s + mu), 2.0**-52 * ratio)), error


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on [0, 1]: 64 integrate e^(-su - u²/2) (1 - e^(-mu u)) to rounding error."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    return (nodes + 1) / 2, weights / 2


def _mills(s: float) -> float:
    return math.sqrt(math.pi / 2) * float(scipy.special.erfcx(s / math.sqrt(2)))


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


# Losses lie on a grid with so many points to a standard deviation of their sum, and more where there are many costs.
_FINENESS = 1024
_FINENESS_PER_ROOT = 32
# What the window leaves out is below this part of delta, and is counted as lost.
_LEFT_OUT = 1e-7
# Chances are positive, and come of fewer than 10^6 roundings each: their relative error is far below this.
_ROUNDING = 1e-8
# A loss is at most 10^6 steps: the share of a neighbour is off by less than this.
_SHARE_ROUNDING = 1e-9
# What underflows is below this, all together.
_UNDERFLOW = 1e-305
_SMALLEST_DELTA = 1e-298
# Above this nothing is promised, and nothing is worth computing.
_LARGEST_SUM = 1e5


def composed_epsilon(costs: np.ndarray, delta: float) -> float:
    """Return an epsilon, never too small, at which steps of these pure epsilons are together (epsilon, delta)-private.

    Formal guarantee: a step that is e-DP, whatever its mechanism, is dominated by randomised response with parameter e
    (Kairouz, Oh, Viswanath 2015), also if it is chosen by what earlier steps released, as long as its e is not. Given
    all but one of the losses, max(0, 1 - exp(epsilon - L)) increases in that one, l, and is convex in exp(-l). So
    delta only grows when a loss is rounded up, or when its probability is divided between two others such that the
    mean of exp(-l) stays (Jensen). By the latter losses get onto a grid, which costs less than rounding them up; what
    leaves the window of the grid is rounded up to its lowest loss, or to infinity. Rounding errors are relative to
    positive numbers, and delta is reduced by more than them.

    The sum of the epsilons always holds, so that the smaller of both is returned. Where the epsilons depend on earlier
    releases, only that sum holds.

    >>> round(composed_epsilon(np.full(100, 0.01), 1e-6), 3)
    0.392
    """
    costs = np.asarray(costs, dtype=float)
    if not np.all(np.isfinite(costs) & (costs >= 0)):
        raise ValueError(f"costs must be finite and not negative, got {costs!r}.")
    costs = costs[costs > 0]
    simple = up(math.fsum(costs))
    if len(costs) == 0 or not _SMALLEST_DELTA <= delta < 1 or not simple < _LARGEST_SUM:
        return simple
    return min(simple, _Losses.of(costs, delta).epsilon(delta))


@dataclass
class _Losses:
    """Probabilities of losses ``(lowest + i) step``, and of an infinite one; in all never below the real ones."""

    step: float
    lowest: int
    chances: np.ndarray
    lost: float

    @staticmethod
    def of(costs: np.ndarray, delta: float) -> "_Losses":
        """Return the sum of the losses of randomised responses, rounded up as above."""
        counts = Counter(costs.tolist())
        spread, total = math.sqrt(math.fsum(costs**2)), math.fsum(costs)
        step = spread / max(_FINENESS, _FINENESS_PER_ROOT * math.sqrt(len(counts)))
        # Losses within ±e around means e tanh(e/2) pass t more than that with chance exp(-t²/2spread²) (Hoeffding).
        negligible = _LEFT_OUT * delta
        reach = spread * math.sqrt(2 * math.log(1 / negligible))
        whole = total / step + len(counts)  # each cost is divided between neighbours, the upper one a step away
        highest = math.ceil(min((math.fsum(costs * np.tanh(costs / 2)) + reach) / step, whole)) + 2
        lowest = -math.ceil(min(reach / step, whole)) - 2
        losses = _Losses(step, lowest, np.zeros(highest - lowest + 1), _UNDERFLOW)
        # The most frequent cost comes first: its losses need no adding.
        for place, (cost, count) in enumerate(counts.most_common()):
            values, chances, beyond = _binomial(cost, count, negligible / len(counts))
            losses.lost += beyond
            losses._add(values, chances, alone=place == 0)
        return losses

    def _add(self, values: np.ndarray, chances: np.ndarray, *, alone: bool) -> None:
        """Add an independent loss with these values, each divided between its two neighbours on the grid."""
        below = np.floor(values / self.step)
        # The upper neighbour's share is rounded up by more than its error, and the lower one gets the rest.
        upper = np.expm1(below * self.step - values) / np.expm1(-self.step)
        upper = np.clip(upper + _SHARE_ROUNDING, 0.0, 1.0)
        size, sums = len(self.chances), np.zeros(len(self.chances))
        places = np.clip(np.concatenate([below, below + 1]), -size, size).astype(int)
        shares = np.concatenate([chances * (1 - upper), chances * upper])
        if alone:
            indices = np.maximum(places - self.lowest, 0)
            kept = indices < size
            self.lost += float(shares[~kept].sum())
            np.add.at(sums, indices[kept], shares[kept])
        else:
            for place, share in zip(places.tolist(), shares.tolist(), strict=True):
                self._add_shifted(sums, place, share)
        self.chances = sums

    def _add_shifted(self, sums: np.ndarray, shift: int, share: float) -> None:
        """Add share x the present chances, so many places higher; what leaves the window is rounded up."""
        size = len(sums)
        if shift >= 0:
            sums[shift:] += share * self.chances[: size - shift]
            self.lost += share * float(self.chances[size - shift :].sum())
        else:
            sums[:shift] += share * self.chances[-shift:]
            sums[0] += share * float(self.chances[:-shift].sum())

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon of at least 0 at which delta is not passed, rounded up.

        With u = exp(-step) the deltas at the grid's points are D_(j-1) = (1-u) P(L >= l_j) + u D_j, where an infinite
        loss counts in full, and between two points they are linear in exp(epsilon).
        """
        from scipy.signal import lfilter  # here: it takes half a second, which most that import this need not wait

        allowed = delta * (1 - _ROUNDING)
        above = np.cumsum(np.append(self.lost, self.chances[::-1]))[1:]  # P(L >= l_j), from the highest loss down
        inputs = np.append(self.lost, -math.expm1(-self.step) * above[:-1])
        deltas = lfilter([1.0], [1.0, -math.exp(-self.step)], inputs)
        passing = int(np.searchsorted(deltas, allowed, side="right"))
        if passing in (0, len(deltas)):
            return math.inf if passing == 0 else 0.0
        share = (deltas[passing] - allowed) / (deltas[passing] - deltas[passing - 1])
        low = (self.lowest + len(deltas) - 1 - passing) * self.step
        epsilon = low + math.log1p(min(share + _ROUNDING, 1.0) * math.expm1(self.step))
        return up(max(epsilon, 0.0))


def _binomial(cost: float, count: int, negligible: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the losses of so many equal steps, their chances, and the chance of those left out above.

    Rare losses are left out: the upper ones are lost, the lower ones are rounded up to the lowest one that is kept.
    """
    pluses = np.arange(count + 1)
    plus = -math.log1p(math.exp(-cost))
    gammaln = scipy.special.gammaln
    logs = gammaln(count + 1) - gammaln(pluses + 1) - gammaln(count - pluses + 1) + count * plus
    # Logarithms of at most count x (ln count + cost + 1) are rounded a few times each.
    error = 64 * 2.0**-52 * count * (math.log(count) + cost + 1)
    chances = np.exp(logs - cost * (count - pluses) + error)
    values = cost * (2 * pluses - count)
    if count == 1:
        return values, chances, 0.0
    from_top = np.cumsum(chances[::-1])[::-1]
    last = max(int(np.searchsorted(-from_top, -negligible)), 1)  # the first whose tail is negligible
    first = min(int(np.searchsorted(np.cumsum(chances), negligible)), last - 1)
    chances[first] += chances[:first].sum()
    beyond = float(from_top[last]) if last <= count else 0.0
    return values[first:last], chances[first:last], beyond
