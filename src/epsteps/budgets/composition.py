"""Composition of pure-DP steps at delta > 0, through their privacy losses: sums of non-negative numbers alone.

A step that is e-DP is dominated by randomised response, whose loss is e with probability 1/(1 + exp(-e)), else -e. The
loss L of all of them is the sum, and delta at epsilon is E max(0, 1 - exp(epsilon - L)). Convolution by a Fourier
transform has rounding errors of 1e-16 of the largest probability, which hides deltas below that. Here probabilities
are shifted, multiplied and added, all of them positive, so that the smallest is as accurate as the largest.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from epsteps.problem.rounding import up

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
