"""Corners: the privacy of a minimum whose objective was tilted by Gaussian noise.

The released x minimises ``n F(x) + b'x`` for one Gaussian b. Given b, the privacy loss of a replaced record is bounded
by a convex function of how saturated the old and the new record's slopes are, which is largest at a corner, where each
slope is at one of its ends. There it is a plain Gaussian privacy loss plus a shift for the Jacobian. The release is not
Gaussian-DP: the loss is a maximum over corners. So it is composed by its corners, never by its mu.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast

import numpy as np
import scipy

from epsteps.budgets.budget import Parts, Price
from epsteps.budgets.conversions import checked_delta, gaussian_delta, gaussian_mu
from epsteps.problem import validate
from epsteps.problem.rounding import down, root_between, up

# What the corners themselves may be off by, and what a Gaussian delta may be off by, from rounding; both generously.
_ROUNDING = 2.0**-48
_MOST_CORNERS = 5_000


@dataclass(frozen=True)
class Corners(Price):
    """A list of Gaussian privacy losses whose largest bounds that of a release, at any scale mu of the noise.

    Formal guarantee: if, for all neighbours, the privacy loss is at most the largest of ``shifts[v]`` + the loss of a
    Gaussian mechanism with ``ratios[v] * mu`` (entry v counted ``multiplicities[v]`` times), the release is
    (epsilon, ``delta(mu, epsilon)``)-private. Here mu = 2 S/sigma, where S is the largest gradient of one record in
    the metric of the noise.

    >>> plain = Corners(multiplicities=(1,), ratios=(1,), shifts=(0,))
    >>> round(plain.delta(mu=1, epsilon=1), 10)
    0.1269367375
    """

    multiplicities: tuple[int, ...]
    ratios: tuple[float, ...]
    shifts: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("ratios", "shifts"):
            object.__setattr__(self, name, tuple(validate.number(name, value) for value in getattr(self, name)))
        counts = tuple(validate.integer("multiplicities", count) for count in self.multiplicities)
        object.__setattr__(self, "multiplicities", counts)
        if not len(self.multiplicities) == len(self.ratios) == len(self.shifts) > 0:
            raise ValueError(f"multiplicities, ratios and shifts must be equally many and at least one, got {self!r}.")
        if min(self.ratios) < 0 or min(self.shifts) < 0:
            raise ValueError(f"ratios and shifts must not be negative, got {self.ratios!r} and {self.shifts!r}.")

    def __str__(self) -> str:
        return f"{len(self.ratios)} Gaussian corners, mu up to {max(self.ratios):g}"

    def delta(self, mu: float, epsilon: float) -> float:
        """Return a delta at which the release is (epsilon, delta)-private, rounded up."""
        for name, value in (("mu", mu), ("epsilon", epsilon)):
            validate.number(name, value)
        return deltas(mu, epsilon)(self)

    def renyi(self, alpha: np.ndarray | float, mu: float = 1.0) -> np.ndarray:
        """Return a bound on the Rényi divergence of each order alpha > 1, for orders chosen in advance; rounded up.

        Formal guarantee: with X_v = exp((alpha - 1) loss_v) and any c >= 0, max X_v <= c + sum_v (X_v - c)_+, whose
        mean is known for Gaussian losses. At the best c = exp((alpha - 1) t), the corners exceed t with chances that
        add up to 1. c = 0 would be the plain sum, which for small mu charges ln(number of corners)/(alpha - 1).
        """
        orders = np.asarray(alpha, dtype=float)
        if not np.all(orders > 1):
            raise ValueError(f"alpha must be above 1, got {alpha!r}.")
        counts, shifts = np.array(self.multiplicities, dtype=float), np.array(self.shifts)
        mus = np.array(self.ratios) * validate.number("mu", mu)
        level = _level(counts, shifts, mus)
        chance_below = max(1 - float(counts @ _chances(shifts + mus**2 / 2 - level, mus)), 0.0) + 1e-14
        a = orders[..., None]
        exponents = (a - 1) * (shifts + a * mus**2 / 2)
        weights = counts * _chances(shifts + (a - 0.5) * mus**2 - level, mus)
        exponents = np.concatenate([exponents, (a - 1) * level], axis=-1)
        weights = np.concatenate([weights, np.full_like(a, chance_below)], axis=-1)
        moments = cast(np.ndarray, scipy.special.logsumexp(exponents, axis=-1, b=weights))
        return up(np.maximum(moments, 0.0) / (orders - 1))

    def mu(self, epsilon: float, delta: float) -> float:
        """Return the largest mu at which the release is (epsilon, delta)-private, rounded down and checked again."""
        if max(self.ratios) == 0:
            raise ValueError(f"ratios must not all be 0, got {self.ratios!r}: no mu changes these corners.")
        high = gaussian_mu(epsilon, delta) / max(self.ratios)
        low = math.exp(-12) * high
        if self.delta(low, epsilon) > delta:
            raise ValueError(
                f"these corners cannot be (epsilon={epsilon!r}, delta={delta!r})-private, however large the noise: "
                f"delta stays at {self.delta(0.0, epsilon):.3g}. Take a larger ridge."
            )

        @cache
        def excess(log_mu: float) -> float:
            return math.log(max(self.delta(math.exp(log_mu), epsilon), 1e-320)) - math.log(delta)

        while excess(math.log(high)) < 0:
            high *= 2
        largest = down(math.exp(root_between(excess, math.log(low), math.log(high), xtol=1e-13)), 1e-9)
        while self.delta(largest, epsilon) > delta:
            largest = down(largest, 1e-7)
        return largest

    def epsilon(self, mu: float, delta: float) -> float:
        """Return the smallest epsilon at which it is (epsilon, delta)-private, rounded up and checked again."""
        checked_delta(delta)
        if self.delta(mu, 0.0) <= delta:
            return 0.0
        high = 1.0
        while self.delta(mu, high) > delta:
            high *= 2

        def excess(epsilon: float) -> float:
            return math.log(max(self.delta(mu, epsilon), 1e-320)) - math.log(delta)

        smallest = up(root_between(excess, 0.0, high, xtol=1e-13 * high), 1e-10)
        while self.delta(mu, smallest) > delta:
            smallest = up(smallest, 1e-9)
        return smallest

    @property
    def amount(self) -> float:
        """Return the largest ratio: for corners that were scaled, the largest mu."""
        return max(self.ratios)

    @property
    def parts(self) -> Parts:
        """Return the corners themselves."""
        return Parts(corners=self)

    def scaled(self, mu: float) -> "Corners":
        """Return the corners of a release at this mu, as those of scale 1: what a ledger is charged."""
        validate.positive("mu", mu)
        return Corners(self.multiplicities, tuple(ratio * mu for ratio in self.ratios), self.shifts)


class Listed(Protocol):
    """Corners that need not be checked: those of a search, of which one is taken."""

    @property
    def multiplicities(self) -> tuple[int, ...]:
        """How often each counts."""
        ...

    @property
    def ratios(self) -> tuple[float, ...]:
        """What mu is multiplied by at each."""
        ...

    @property
    def shifts(self) -> tuple[float, ...]:
        """What is added to the loss at each."""
        ...


def deltas(mu: float, epsilon: float) -> Callable[[Listed], float]:
    """Return ``Corners.delta`` at this mu and epsilon, for many lists of corners, which often share some."""

    @cache
    def at(ratio: float, shift: float) -> float:
        return _delta_up(abs(ratio * mu), epsilon, shift)

    def delta(corners: Listed) -> float:
        parts = zip(corners.multiplicities, corners.ratios, corners.shifts, strict=True)
        return min(up(math.fsum([count * at(ratio, shift) for count, ratio, shift in parts]), _ROUNDING), 1.0)

    return delta


# A mechanism that is mu-Gaussian-DP.
GAUSSIAN = Corners((1,), (1.0,), (0.0,))


def composed(releases: Sequence[Corners]) -> Corners:
    """Return the corners of several releases together, each at its own scale.

    Formal guarantee: holds for adaptive releases whose corners, scales included, were fixed in advance. If a later
    ridge depends on earlier releases, use the corners of the smallest ridge that it may take.
    """
    repeated = Counter(releases)
    sizes = [math.comb(len(release.ratios) + times - 1, times) for release, times in repeated.items()]
    if math.prod(sizes) > _MOST_CORNERS:
        raise ValueError(
            f"{len(releases)} releases have {math.prod(sizes)} corners together, more than {_MOST_CORNERS}. "
            "Compose their (epsilon, delta) instead."
        )
    counts, ratios, shifts = [], [], []
    for chosen in itertools.product(*(_repeated(release, times) for release, times in repeated.items())):
        counts.append(math.prod(count for count, _, _ in chosen))
        ratios.append(math.sqrt(math.fsum(square for _, square, _ in chosen)))
        shifts.append(math.fsum(shift for _, _, shift in chosen))
    return Corners(tuple(counts), tuple(ratios), tuple(shifts))


def _repeated(release: Corners, times: int) -> list[tuple[int, float, float]]:
    """Return the corners of equal releases, each with a squared ratio; the order of the releases does not matter."""
    corners = list(zip(release.multiplicities, release.ratios, release.shifts, strict=True))
    combinations = []
    for chosen in itertools.combinations_with_replacement(range(len(corners)), times):
        orders = math.factorial(times) // math.prod(map(math.factorial, Counter(chosen).values()))
        count = orders * math.prod(corners[index][0] for index in chosen)
        square = math.fsum(corners[index][1] ** 2 for index in chosen)
        combinations.append((count, square, math.fsum(corners[index][2] for index in chosen)))
    return combinations


def _level(counts: np.ndarray, shifts: np.ndarray, mus: np.ndarray) -> float:
    """Return the smallest loss, from above, that corners exceed with chances that add up to at most 1."""
    if counts.sum() == 1:
        return float(min(shifts - 40 * mus)) - 1.0
    means = shifts + mus**2 / 2
    low, high = float(min(means - 40 * mus)) - 1.0, float(max(means + 40 * mus)) + 1e-9
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if counts @ _chances(means - middle, mus) > 1 else (low, middle)
    return high


def _chances(excess: np.ndarray, mus: np.ndarray) -> np.ndarray:
    """Return the chance that a Gaussian with these standard deviations, possibly 0, stays below its excess."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mus > 0, scipy.special.ndtr(excess / mus), excess > 0)


def _delta_up(mu: float, epsilon: float, shift: float) -> float:
    """Return a Gaussian delta at epsilon - shift, never too small: it increases in mu and decreases in epsilon.

    The two logarithms of the formula are each off by about the square of what they are taken at, if that is negative.
    """
    mu = up(mu, _ROUNDING)
    low = epsilon - shift - _ROUNDING * (abs(epsilon) + shift)
    if mu == 0:
        return gaussian_delta(0.0, low)
    tail = math.erfc((low / mu - mu / 2) / math.sqrt(2)) / 2
    depth = max(low / mu + mu / 2, 0.0)
    return gaussian_delta(mu, low) + (_ROUNDING * (1 + depth * depth) * tail if tail > 0 else 0.0)
