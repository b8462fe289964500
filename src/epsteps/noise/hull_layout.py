"""Which coordinates of a hull are up and which are down: how the signs of ``hull_noise`` are drawn."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.reals import Uniform
from epsteps.problem.hulls import Hull

_PATIENCE = 4.0  # at the smallest scale levels are accepted once in about e^4 times


@dataclass(frozen=True, eq=False)
class Half:
    """The coordinates of one sign: for each j the columns of parts with j of them, one part after the other.

    ``signed`` is the number of signed coordinates that are counted on this side.
    """

    columns: dict[int, np.ndarray]
    signed: int

    @property
    def total(self) -> int:
        """How many there are."""
        return self.signed + sum(len(columns) for columns in self.columns.values())

    def missing(self, offset: int) -> int:
        """Return the sum of 1, ..., J less that of 1, ..., j for each part, and less ``offset`` per signed one."""
        held = sum(len(columns) * (j + 1) // 2 for j, columns in self.columns.items())
        return self.total * (self.total + 1) // 2 - held - offset * self.signed

    def fraction(self, level: int, offset: int) -> tuple[int, int]:
        """Return the product of (level+1)...(level+j) over the parts, and (level+1)...(level+J)."""
        held = (level + offset) ** self.signed
        for j, columns in self.columns.items():
            held *= _rising(level, j) ** (len(columns) // j)
        return held, _rising(level, self.total)


@dataclass(frozen=True, eq=False)
class Signs:
    """Which coordinates are up, and which are down."""

    up: Half
    down: Half


@lru_cache(maxsize=16)
def layout_of(hull: Hull) -> "Layout":
    """Return the columns of a hull, parts of one together."""
    singles = [part[0] for part in hull.parts if len(part) == 1]
    blocks = tuple(np.array(part) for part in hull.parts if len(part) > 1)
    return Layout(hull.d, blocks, np.array(singles, dtype=int), np.array(hull.signed, dtype=int))


@dataclass(frozen=True, eq=False)
class Layout:
    """The columns of each block, those of parts of one, and the signed ones; how many of them are up.

    Groups are the blocks, of which each has weights C(k,j)², and last all others together, with weights C(k,j).
    """

    d: int
    blocks: tuple[np.ndarray, ...]
    singles: np.ndarray
    signed: np.ndarray

    @cached_property
    def least_scale(self) -> float:
        """The scale from which levels are accepted often enough: both are about td/2."""
        alone = len(self.singles) + len(self.signed)
        held = sum(len(block) ** 2 for block in self.blocks) + alone
        return max(1.0, (self.d**2 - held) / (2 * _PATIENCE * self.d))

    @cached_property
    def shares(self) -> np.ndarray:
        """The probabilities of J = 0, ..., d ups, before any are rejected, as floats."""
        return np.diff([count / self._totals[-1] for count in self._totals], prepend=0.0)

    def signs(self, bits: Bits) -> Signs:
        """Return random signs, with the weights by which they are proposed."""
        order, counts = self._shuffled(bits), self._ups(bits)
        up: dict[int, list[np.ndarray]] = {}
        down: dict[int, list[np.ndarray]] = {}
        start = 0
        for block, j in zip(self.blocks, counts, strict=False):
            stop = start + len(block)
            for half, columns in ((up, order[start : start + j]), (down, order[start + j : stop])):
                if len(columns):
                    half.setdefault(len(columns), []).append(columns)
            start = stop
        alone = start + counts[-1]
        return Signs(self._half(up, order[start:alone]), self._half(down, order[alone:]))

    def _half(self, parts: dict[int, list[np.ndarray]], alone: np.ndarray) -> Half:
        singles = alone[~self._is_signed[alone]]
        if len(singles):
            parts.setdefault(1, []).append(singles)
        return Half({j: np.concatenate(columns) for j, columns in parts.items()}, len(alone) - len(singles))

    def _shuffled(self, bits: Bits) -> np.ndarray:
        """Return the columns, group after group, each group in uniform order: that of random words without a tie."""
        while True:
            words = bits.words(self.d)
            order = np.lexsort((words, self._groups))
            words = words[order]
            if not np.any(words[1:] == words[:-1]):
                return self._columns[order]

    def _ups(self, bits: Bits) -> list[int]:
        """Return how many are up in each group."""
        uniforms = [Uniform(bits, word, 64) for word in bits.words(len(self.blocks) + 1).tolist()]
        left, found = _index(uniforms[-1], self._totals), []
        for block, rest, uniform in zip(self.blocks, self._rests, uniforms, strict=False):
            least = max(0, left - len(rest) + 1)
            weights = _squares(len(block))[least : left + 1]
            j = least + _index(uniform, list(accumulate(w * rest[left - least - i] for i, w in enumerate(weights))))
            found.append(j)
            left -= j
        return [*found, left]

    @cached_property
    def _rests(self) -> list[list[int]]:
        """For each block the weights of 0, 1, ... ups in all groups after it, together."""
        alone = self.d - sum(len(block) for block in self.blocks)
        rests = [[math.comb(alone, j) for j in range(alone + 1)]]
        for block in self.blocks[:0:-1]:
            rests.append(_product(rests[-1], _squares(len(block))))
        return rests[::-1]

    @cached_property
    def _totals(self) -> list[int]:
        """The weights of J = 0, ..., d ups, added up."""
        whole = _product(self._rests[0], _squares(len(self.blocks[0]))) if self.blocks else self._rests[0]
        factorials = list(accumulate(range(1, self.d + 1), int.__mul__, initial=1))
        return list(accumulate(w * factorials[j] * factorials[self.d - j] for j, w in enumerate(whole)))

    @cached_property
    def _columns(self) -> np.ndarray:
        return np.concatenate([*self.blocks, self.singles, self.signed])

    @cached_property
    def _groups(self) -> np.ndarray:
        sizes = [len(block) for block in self.blocks]
        return np.repeat(np.arange(len(sizes) + 1), [*sizes, self.d - sum(sizes)])

    @cached_property
    def _is_signed(self) -> np.ndarray:
        return np.isin(np.arange(self.d), self.signed)


def _index(uniform: Uniform, totals: Sequence[int]) -> int:
    """Return i with a probability ~ its weight, for the sums of all weights; bits are drawn until it is certain."""
    known = 64
    while True:
        first, whole = uniform.leading(known), totals[-1]
        low = bisect_right(totals, first * whole >> known)
        if (first + 1) * whole <= totals[low] << known:
            return low
        known *= 2


@lru_cache(maxsize=64)
def _squares(k: int) -> list[int]:
    return [math.comb(k, j) ** 2 for j in range(k + 1)]


def _product(first: list[int], second: list[int]) -> list[int]:
    found = [0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            found[i + j] += a * b
    return found


def _rising(level: int, count: int) -> int:
    return math.prod(range(level + 1, level + count + 1))
