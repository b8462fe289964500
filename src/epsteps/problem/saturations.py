"""How the slope of a loss saturates: all that the privacy of a tilted minimum needs of a loss besides its constants.

A record's gradient is a times an extreme one, for a share a in [0, 1] (two-sided losses: of either sign). Replacing the
record multiplies the Jacobian of x -> b by at most e^J(a), where kappa = sup_u sum_j u_j²/(n ridge_j) measures one
record against the ridge. Slopes that are extreme where the curvature is gone have J = 0 where a = 1: that is why the
Jacobian is often free; where slopes are capped it is not. The usual bound charges max J besides (Chaudhuri, Monteleoni,
Sarwate 2011; Kifer et al. 2012).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

import numpy as np

from epsteps.problem import validate
from epsteps.problem.rounding import lowest_between, root_between, up

# Tangents that are tried before the best one is polished, from the end where the slope is extreme.
_TANGENTS = (1.0, *(1 - np.geomspace(1e-6, 0.5, 40)).tolist())
# By how much a list's delta must be below what bounds others from below, for these to be left out: far above rounding.
_CLEARLY = 1e-9
# Tangents that are nearer are not told apart where all of them are to be excluded.
_FINEST = 1e-4


class CornerList(NamedTuple):
    """Gaussian privacy losses whose largest bounds that of a release, as ``budgets.corners.Corners`` takes them."""

    multiplicities: tuple[int, ...]
    ratios: tuple[float, ...]
    shifts: tuple[float, ...]


# What a list costs: the delta of its corners at some noise and epsilon.
Delta = Callable[[CornerList], float]


class Saturation(Protocol):
    """What pure and Gaussian privacy ask of a loss."""

    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J(a) for each kappa, as floats have it."""
        ...

    def largest(self, kappa: float, pull: float) -> float:
        """Return the maximum over a in [0, 1] of J(a) + pull a."""
        ...

    def corners(self, kappa: float, delta: Delta) -> CornerList:
        """Return valid corners of the loss: of all that are known, those with the smallest delta.

        A delta is not negative, and larger shifts do not make it smaller.
        """
        ...

    def exceeds(self, kappa: float, delta: Delta, limit: float) -> bool:
        """Whether all these corners surely have a delta above the limit; False where that is not known."""
        ...


class Concave(ABC):
    """Losses whose J is concave; with the corners of those that have one output, and one sign of slopes for a label."""

    @abstractmethod
    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J(a) for each kappa, as floats have it."""

    def largest(self, kappa: float, pull: float) -> float:
        """Return the maximum of the concave J(a) + pull a; it is at a = 1 if J falls by at most the pull there."""
        return _largest_concave(lambda a: self._charge(kappa, a), pull)

    def corners(self, kappa: float, delta: Delta) -> CornerList:
        """Return the corners for the best tangent of J."""
        return _best_tangent(lambda a: self.corners_at(kappa, a), delta)

    def exceeds(self, kappa: float, delta: Delta, limit: float) -> bool:
        """Whether the corners of every tangent that is tried have a delta above the limit."""
        return _tangents_exceed(lambda a: self.corners_at(kappa, a), delta, limit)

    def corners_at(self, kappa: float, tangent: float) -> CornerList:
        """Return the four corners for the tangent of J at this share, any of [0, 1]; 1 is best for small kappa."""
        full, none = _ends(*self._charge(kappa, tangent), tangent)
        return CornerList((1, 1, 1, 1), (1.0, 0.5, 0.5, 0.0), (full, full, none, none))

    @abstractmethod
    def _charge(self, kappa: float, a: float) -> tuple[float, float]:
        """Return J and its derivative."""


@dataclass(frozen=True)
class Sigmoid(Concave):
    """Logistic loss (sharpness 1), and the softplus hinge tau ln(1 + e^((1 - m)/tau)) (sharpness 1/tau).

    J(a) = ln(1 + kappa sharpness a (1 - a)): the slope a is that of a sigmoid.
    """

    sharpness: float = 1.0

    def __post_init__(self) -> None:
        validate.positive("sharpness", self.sharpness)

    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J(a) for each kappa."""
        return np.log1p(kappa * (self.sharpness * a * (1 - a)))

    def _charge(self, kappa: float, a: float) -> tuple[float, float]:
        bend = kappa * self.sharpness
        return math.log1p(bend * a * (1 - a)), bend * (1 - 2 * a) / (1 + bend * a * (1 - a))


@dataclass(frozen=True)
class Capped(Concave):
    """Logistic loss with slopes of at most ``cap``, a line where they would be larger: their share a is of the cap.

    J(a) = ln(1 + kappa cap a (1 - cap a)), where it is curved; on the line a = 1 and the curvature is 0, but as near
    to it as one likes it is cap (1 - cap). So J(1) is charged, and free for a cap of 1 alone, which is ``Sigmoid``.
    """

    cap: float

    def __post_init__(self) -> None:
        if validate.positive("cap", self.cap) > 1:
            raise ValueError(f"cap must be at most 1, got {self.cap!r}.")

    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J(a) for each kappa."""
        return np.log1p(kappa * (self.cap * a * (1 - self.cap * a)))

    def _charge(self, kappa: float, a: float) -> tuple[float, float]:
        bend, slope = kappa * self.cap, self.cap * a
        return math.log1p(bend * a * (1 - slope)), bend * (1 - 2 * slope) / (1 + bend * a * (1 - slope))


@dataclass(frozen=True)
class Exponential(Concave):
    """Half-exponential loss, e^-m and 1 - m: J(a) = ln(1 + kappa a), as the curvature is the slope; never free."""

    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J(a) for each kappa."""
        return np.log1p(kappa * a)

    def _charge(self, kappa: float, a: float) -> tuple[float, float]:
        return math.log1p(kappa * a), kappa / (1 + kappa * a)


@dataclass(frozen=True)
class PseudoHuber:
    """Pseudo-Huber loss, with slopes a c of both signs, a = t/(1 + t^p)^(1/p) for a residual of t c and a power p.

    J(a) = ln(1 + kappa (1 - a^p)^(1 + 1/p)), as 1 - a^p = 1/(1 + t^p). At the largest slope there is no curvature left.
    """

    power: int = 2

    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J(a) for each kappa."""
        return np.log1p(kappa * (1 - a**self.power) ** (1 + 1 / self.power))

    def largest(self, kappa: float, pull: float) -> float:
        """Return the maximum of J(a) + pull a.

        -J' rises from 0 at a = 0 and falls back to 0 at a = 1, with one summit: where c, c^p = 1 - a^p, solves
        p c^p - 1 + kappa c^(p + 1) (p - c^p) = 0. So the maximum is at a = 1 or where -J' first reaches the pull. All
        of it is computed in ln c: where kappa is huge, the summit is so near a = 1 that no float a tells it from 1.

        Without a pull the maximum is J(0). And -J' = (p + 1) kappa a^(p - 1) c/(1 + kappa c^(p + 1)) is below
        (p + 1) kappa (1 - 1/p)^(1 - 1/p) p^(-1/p), as a^(p - 1) c is largest where c^p = 1/p, and below
        (p kappa)^(p/(p + 1)), as c/(1 + kappa c^(p + 1)) is largest where p kappa c^(p + 1) = 1: a pull above either
        needs no summit.
        """
        p = self.power
        if pull == 0:
            return up(math.log1p(kappa), 1e-13)
        steepest = (p + 1) * kappa * (1 - 1 / p) ** (1 - 1 / p) * p ** (-1 / p)
        if up(min(steepest, (p * kappa) ** (p / (p + 1))), 1e-9) <= pull:
            return pull

        def share(log_c: float) -> float:
            return (-math.expm1(p * log_c)) ** (1 / p)

        def descent(log_c: float) -> float:
            c = math.exp(log_c)
            return (p + 1) * kappa * share(log_c) ** (p - 1) * c / (1 + kappa * c ** (p + 1))

        summit = self._summit(kappa)
        if up(descent(summit)) <= pull:
            return pull
        log_c = _root(lambda log_c: descent(log_c) - pull, summit, 0.0)
        inside = math.log1p(kappa * math.exp((p + 1) * log_c)) + pull * share(log_c)
        return max(pull, up(inside, 1e-13))

    def corners(self, kappa: float, delta: Delta) -> CornerList:
        """Return the better of two lists: J below a roof theta (1 - |a|), or below its largest value."""
        return min(self._lists(kappa), key=delta)

    def exceeds(self, kappa: float, delta: Delta, limit: float) -> bool:
        """Whether both lists have a delta above the limit."""
        return all(delta(corners) > limit for corners in self._lists(kappa))

    def _lists(self, kappa: float) -> tuple[CornerList, CornerList]:
        roof = CornerList((2, 2, 2), (1.0, math.sqrt(0.5), 0.5), (0.0, 0.0, self._roof(kappa)))
        return roof, _two_sided(math.log1p(kappa))

    @lru_cache(maxsize=256)  # noqa: B019 - noise is calibrated by many pulls at one kappa; there are few powers
    def _summit(self, kappa: float) -> float:
        """Return ln c where -J' is largest."""
        p = self.power

        def rising(log_c: float) -> float:
            c = math.exp(log_c)
            return p * c**p - 1 + kappa * c ** (p + 1) * (p - c**p)

        # There kappa c^(p + 1) is at most 1/(4 2^(p + 1)) and p c^p at most 1/2, so that the polynomial is negative.
        low = math.log(min(0.5 * (4 * kappa) ** (-1 / (p + 1)), 0.5))
        return _root(rising, low, 0.0)

    @lru_cache(maxsize=256)  # noqa: B019
    def _roof(self, kappa: float) -> float:
        """Return theta = max over a of J(a)/(1 - a), rounded up.

        In t = 1 - a, the elasticity of J(t) is a product of decreasing functions, 1 + 1/p at t = 0 and 0 at t = 1: so
        J/t has one summit, where the elasticity is 1.
        """
        p = self.power

        def left(t: float) -> float:  # 1 - a^p
            return -math.expm1(p * math.log1p(-t)) if t < 1 else 1.0

        def rising(log_t: float) -> float:
            t = math.exp(log_t)
            bend = kappa * left(t) ** (1 + 1 / p)
            elasticity = (p + 1) * t * (1 - t) ** (p - 1) / left(t)
            return elasticity * bend / (1 + bend) - math.log1p(bend)

        # There kappa (1 - a^p)^(1 + 1/p) is at most 1e-3, as 1 - a^p is at most p t.
        low = min((1e-3 / kappa) ** (p / (p + 1)) / p, 1e-3)
        t = math.exp(_root(rising, math.log(low), 0.0))
        return up(math.log1p(kappa * left(t) ** (1 + 1 / p)) / t)


@dataclass(frozen=True)
class Flat:
    """Losses of which no more than the largest curvature is known: J = ln(1 + curvature kappa) is never free.

    It holds for every convex loss of one margin. ``sides`` is 1 if slopes have one sign for each label, else 2: Huber
    loss has ``sides=2`` and curvature 1; a hinge with a quadratic ramp of width h has ``sides=1`` and curvature 1/h.
    """

    sides: int
    curvature: float = 1.0

    def __post_init__(self) -> None:
        validate.integer("sides", self.sides, low=1, high=2)
        validate.positive("curvature", self.curvature)

    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J for each kappa: the same for all a."""
        return np.log1p(self.curvature * kappa)

    def largest(self, kappa: float, pull: float) -> float:
        """Return J + pull."""
        return math.log1p(self.curvature * kappa) + pull

    def corners(self, kappa: float, delta: Delta) -> CornerList:
        """Return the only list there is."""
        charge = math.log1p(self.curvature * kappa)
        return _two_sided(charge) if self.sides == 2 else CornerList((1, 2, 1), (1.0, 0.5, 0.0), (charge,) * 3)

    def exceeds(self, kappa: float, delta: Delta, limit: float) -> bool:
        """Whether the list has a delta above the limit."""
        return delta(self.corners(kappa, delta)) > limit


@dataclass(frozen=True)
class Softmax(Concave):
    """Softmax loss of k classes, with one ridge for all of them (it may differ between features).

    J(a) = (k - 2) ln(1 + kappa a/(k - 1)) + ln(1 + kappa k a (1 - a)/(k - 1)) for a = 1 - p of the true class: the
    largest ln det(I + kappa (diag p - pp')), at equal chances of the other classes. The corners are for noise whose
    covariance is the same for every class.
    """

    classes: int

    def __post_init__(self) -> None:
        validate.integer("classes", self.classes, low=2)

    def corners_at(self, kappa: float, tangent: float) -> CornerList:
        """Return the corners for the tangent of J at this share: pairs of one label and opposite features are worst."""
        full, none = _ends(*self._charge(kappa, tangent), tangent)
        others = self.classes - 1
        terms = [
            (others, 1.0, full),
            (others * (others - 1), math.sqrt(0.75), full),
            (others, 0.5, full),
            (others, 0.5, none),
            (1, 0.0, none),
        ]
        counts, ratios, shifts = zip(*(term for term in terms if term[0] > 0), strict=True)
        return CornerList(counts, ratios, shifts)

    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J(a) for each kappa."""
        each = kappa * (a / (self.classes - 1))
        return (self.classes - 2) * np.log1p(each) + np.log1p(each * (self.classes * (1 - a)))

    def _charge(self, kappa: float, a: float) -> tuple[float, float]:
        k = self.classes
        each, bend = kappa / (k - 1), kappa * k / (k - 1)
        value = (k - 2) * math.log1p(each * a) + math.log1p(bend * a * (1 - a))
        return value, (k - 2) * each / (1 + each * a) + bend * (1 - 2 * a) / (1 + bend * a * (1 - a))


@dataclass(frozen=True)
class CappedSoftmax(Softmax):
    """Softmax loss with slopes of at most ``cap``: their share a is of the cap, and J(a) is softmax's at cap a.

    Beyond the cap a = 1, and the other classes bend the loss: ln det(I + kappa cap (diag r - rr')) is at most
    (k - 2) ln(1 + kappa cap/(k - 1)), and so below J(1). As near to the kink as one likes the loss bends as softmax's.
    """

    cap: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if validate.positive("cap", self.cap) > 1:
            raise ValueError(f"cap must be at most 1, got {self.cap!r}.")

    def charges(self, kappa: np.ndarray, a: float) -> np.ndarray:
        """Return J(a) for each kappa."""
        return super().charges(kappa, self.cap * a)

    def _charge(self, kappa: float, a: float) -> tuple[float, float]:
        value, slope = super()._charge(kappa, self.cap * a)
        return value, self.cap * slope


def _largest_concave(charge: Callable[[float], tuple[float, float]], pull: float) -> float:
    """Return the maximum of J(a) + pull a over [0, 1], for a concave J given with its derivative."""
    end, slope = charge(1.0)
    if slope + pull >= 0:
        return end + pull
    a = _root(lambda a: charge(a)[1] + pull, 0.0, 1.0)
    # An error of the root counts as its square: what is left is rounding.
    return up(charge(a)[0] + pull * a, 1e-13)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return root_between(function, low, high, xtol=1e-13)


def _ends(value: float, slope: float, at: float) -> tuple[float, float]:
    """Return the tangent's values at a = 1 and a = 0, given J and J' at its point of contact."""
    if not 0 <= at <= 1:
        raise ValueError(f"tangent must lie between 0 and 1, got {at!r}.")
    return max(value + (1 - at) * slope, 0.0), max(value - at * slope, 0.0)


def _best_tangent(list_at: Callable[[float], CornerList], delta: Delta) -> CornerList:
    """Return the list with the smallest delta; every tangent is valid, so that the search need not be exact."""

    @cache
    def cost(tangent: float) -> float:
        return delta(list_at(tangent))

    best = _cheapest([list_at(tangent) for tangent in _TANGENTS], delta)
    start = _TANGENTS[best]
    if cost(start) == 0:
        return list_at(start)
    low, high = _TANGENTS[min(best + 1, len(_TANGENTS) - 1)], _TANGENTS[max(best - 1, 0)]
    polished = lowest_between(cost, low, high, xtol=1e-9)
    return list_at(min(start, polished, key=cost))


def _tangents_exceed(list_at: Callable[[float], CornerList], delta: Delta, limit: float) -> bool:
    """Whether the lists of all tangents from the first to the last surely have a delta above the limit.

    Tangents between two have shifts of at least the smaller of either's: intervals are halved until that is enough.
    """
    pairs = [(_TANGENTS[-1], _TANGENTS[0])]
    while pairs:
        low, high = pairs.pop()
        if delta(_below(list_at(low), list_at(high))) > limit:
            continue
        middle = (low + high) / 2
        if high - low < _FINEST or delta(list_at(middle)) <= limit:
            return False
        pairs += [(low, middle), (middle, high)]
    return True


def _cheapest(lists: Sequence[CornerList], delta: Delta) -> int:
    """Return the place of the first list with the smallest delta, for lists whose shifts rise or fall with the place.

    Those between two places are at least the smaller of either's shifts, and so is their delta: most are left out.
    """
    last = len(lists) - 1
    costs = {0: delta(lists[0]), last: delta(lists[last])}
    pairs = [(0.0, 0, last)]  # the lowest bound comes first
    while pairs and costs[0] > 0:
        bound, low, high = heappop(pairs)
        if bound > (1 + _CLEARLY) * min(costs.values()):
            break
        middle = (low + high) // 2
        costs[middle] = delta(lists[middle])
        for one, other in ((low, middle), (middle, high)):
            if other - one > 1:
                heappush(pairs, (delta(_below(lists[one], lists[other])), one, other))
    return min(costs, key=lambda place: (costs[place], place))


def _below(one: CornerList, other: CornerList) -> CornerList:
    return one._replace(shifts=tuple(map(min, one.shifts, other.shifts)))


def _two_sided(charge: float) -> CornerList:
    """Return the corners of slopes of both signs: |u + u'|² + |u - u'|² is at most four records' squares."""
    return CornerList((2, 2), (1.0, math.sqrt(0.5)), (charge, charge))
