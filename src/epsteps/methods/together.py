"""Ends of ranges that are chosen together: one exponential mechanism for all columns, of exactly its law.

A replaced record moves every column's scores by at most 1. So it moves the largest of their distances by at most 1,
however many columns there are, and a choice among all lists of cells, one of each column, by that distance costs what a
choice of one cell costs. Chosen one by one, each column needs room for its own rare failure; chosen together they need
it once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from epsteps.methods.bought import Selection, scores
from epsteps.plans.requests import Draw, Records
from epsteps.problem import validate
from epsteps.problem.grid import STEPS
from epsteps.problem.problem import Problem

if TYPE_CHECKING:
    from epsteps.noise import Source

# More cells than this are not told apart by the integers of a record, with room to spare.
MOST_CELLS = 2**16
# So many columns are chosen together at most: what is computed grows with their square.
MOST_TOGETHER = 64
# Shares are so many parts of this: a product with a count is then exact.
PARTS = 2**20
# Distances beyond so many scales, besides the logarithm of the number of lists, count as equal: e^-30 of the chances.
_BEYOND = 30.0
# The smallest weight has so many bits, so that rounding it to an integer changes it by no more than that.
_BITS = 128
# The scale is larger than what is paid for by this share, which covers what rounding changes.
_SLACK = Decimal(1) + Decimal(2) ** -40
# No scale is smaller, whatever is paid: at this one the nearest list is missed with a chance of e^-64, about.
_FINEST = 2.0**-6
# Noise of this scale leaves distances of as many records as a problem may have room.
_COARSEST = 2.0**52


@dataclass(frozen=True, eq=False)
class ColumnEnds(Selection):
    """Ends of several columns' ranges, chosen together: cells of quantiles, for records that are places on grids.

    Cells of a column are numbered from the largest numbers to the smallest; what is missing is in none. The target is T
    = max(1, the integer part of share K), for the K records whose place is known. The distance of a cell is that of T
    from [B + 1, U], B and U being the known records below it and up to its upper end. The distance of a list of cells,
    one for each end, is the largest of theirs. Published is one list, with chances ~ exp(-distance/scale).

    Formal guarantee: 2/scale-DP (``docs/proofs.md``, theorem 15.4). A replaced record moves every cell's distance by at
    most 1, whether it is known before and after or becomes missing (``PlaceQuantile``), and so the largest of them.
    Chances are whole numbers of 2^-m: a weight is e^-(distance/s), rounded down to an integer of 128 bits or more, and
    a fair integer of m bits, drawn before anything is read, decides. What both roundings change is less than what s
    exceeds the scale by.

    Parameters
    ----------
    problem : Problem
        That of ``places.place_problem``.
    columns, places : tuples of int
        Which column each end is of, and the number of that column's cells.
    epsilon : float
        The price of all.
    shares : tuple of float
        The share of the known records below each end.
    labels : tuple of str
        What is bought, in words.
    """

    noise: ClassVar[str] = "choice"

    problem: Problem
    columns: tuple[int, ...]
    places: tuple[int, ...]
    epsilon: float
    shares: tuple[float, ...]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        validate.positive("epsilon", self.epsilon)
        counts = {len(self.columns), len(self.places), len(self.shares), len(self.labels)}
        if counts not in [{count} for count in range(1, MOST_TOGETHER + 1)]:
            raise ValueError(f"1 to {MOST_TOGETHER} ends are chosen together, each with cells, a share and a label.")
        for column, places, share in zip(self.columns, self.places, self.shares, strict=True):
            validate.integer("places", places, low=2, high=MOST_CELLS)
            if not 0 <= column < self.problem.d:
                raise ValueError(f"column must be one of {self.problem.d}, got {column!r}.")
            if not 0 < validate.number("share", share) < 1:
                raise ValueError(f"share must lie in (0, 1), got {share!r}.")

    @property
    def what(self) -> str:
        """What is bought, in words."""
        return ", ".join(self.labels)

    def require_drawable(self) -> None:
        """Raise unless distances in scales are told apart by what a double holds."""
        if self.scale > _COARSEST:
            raise ValueError(f"a choice for epsilon = {self.epsilon:.3g} is pure noise. Use a larger budget.")

    def among(self, problem: Problem) -> "ColumnEnds":
        """Return the same choice among other records, as audits make it."""
        return replace(self, problem=problem)

    @cached_property
    def _lists(self) -> int:
        """How many lists of cells there are."""
        return math.prod(self.places)

    @property
    def _divisor(self) -> float:
        """What distances are divided by in fact: more than is paid for where the budget is vast."""
        return max(self.scale, _FINEST)

    @cached_property
    def farthest(self) -> int:
        """The distance beyond which all are equal."""
        return min(self.problem.n, math.ceil(self._divisor * (math.log(self._lists) + _BEYOND)))

    @cached_property
    def _weight_bits(self) -> int:
        return _BITS + math.ceil(self.farthest / self._divisor / math.log(2)) + 1

    @cached_property
    def words(self) -> int:
        """How many words of 64 bits decide: enough for a list of the smallest weight to have 2^128 of their values."""
        return -(-(self._weight_bits + self._lists.bit_length()) // 64)

    def draw(self, source: "Source") -> Draw:
        """Draw the bits that decide. Sees no records."""
        return {"words": source.words(self.words)}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the distance of every cell of every end, one after the other, UNPROTECTED."""
        counts = np.split(records.tally(self.encode).astype(np.int64), np.cumsum([c + 1 for c in self.places])[:-1])
        return np.concatenate([self._distances(end, each[:-1]) for end, each in enumerate(counts)])

    def _distances(self, end: int, counts: np.ndarray) -> np.ndarray:
        return np.minimum(-scores(counts, self.target_of(end, int(counts.sum())), least=1), self.farthest)

    def target_of(self, end: int, known: int) -> int:
        """Return which of so many known records is asked for: exact, and one more at most for one record more."""
        return target_of(self.shares[end], known)

    def encode(self, chunk: Any) -> np.ndarray:
        """Return how many records of a chunk are in each cell and, last, how many in none, of each end, UNPROTECTED."""
        return chunk.apply(self._encode_counts)

    def _encode_counts(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        ends = range(len(self.columns))
        counts = [np.bincount(self.encode_cells(end, features), minlength=self.places[end] + 1) for end in ends]
        return np.concatenate(counts).astype(np.int64)

    def encode_cells(self, end: int, features: np.ndarray) -> np.ndarray:
        """Return the places that records were made of: they are integers, far apart on the grid of the records."""
        return np.rint(features[:, self.columns[end]] * (self.places[end] / STEPS)).astype(np.int64)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the numbers of the chosen cells."""
        number = sum(int(word) << (64 * place) for place, word in enumerate(draw["words"]))
        distances = np.split(reading, np.cumsum(self.places)[:-1])
        levels = np.unique(reading).tolist()
        return np.array(chosen(distances, levels, self.weights(levels), number, 64 * len(draw["words"])), dtype=float)

    def weights(self, distances: Sequence[int]) -> list[int]:
        """Return what a list of each of these distances weighs: whole numbers, those of the farthest of 128 bits."""
        bits = self._weight_bits
        context = Context(prec=bits // 3 + 20)
        scale = context.multiply(Decimal(self._divisor), _SLACK)
        whole = Decimal(2**bits)
        return [int(context.multiply(whole, context.exp(context.divide(Decimal(-each), scale)))) for each in distances]


def target_of(share: float, known: int) -> int:
    """Return which of so many known records is at a share: exact, and one more at most for one record more."""
    return max(min(max(round(share * PARTS), 1), PARTS - 1) * known // PARTS, 1)


def chosen(
    distances: Sequence[np.ndarray], levels: Sequence[int], weights: Sequence[int], number: int, bits: int
) -> list[int]:
    """Return the list of cells that a fair number of so many bits decides for, each with its weight's share.

    Lists are in the order of their distance; of one distance, by the first column that has it, and then by their cells.

    Parameters
    ----------
    distances : sequence of arrays
        That of each cell, for each end.
    levels, weights : sequences of int
        All distances that occur, increasing, and what a list of each weighs.
    number, bits : int
        A number below 2^bits.
    """
    within = [np.searchsorted(np.sort(each), levels, side="right").tolist() for each in distances]
    lists = [math.prod(counts) for counts in zip(*within, strict=True)]
    below = [0, *lists[:-1]]
    masses = [weight * (up_to - before) for weight, up_to, before in zip(weights, lists, below, strict=True)]
    place = number * sum(masses) >> bits
    level = 0
    while place >= masses[level]:
        place -= masses[level]
        level += 1
    return _listed(distances, levels[level], place // weights[level])


def _listed(distances: Sequence[np.ndarray], level: int, place: int) -> list[int]:
    """Return the list of this distance at a place among all of it: the largest distance is a cell's of some column."""
    nearer = [np.flatnonzero(each < level).tolist() for each in distances]
    at = [np.flatnonzero(each == level).tolist() for each in distances]
    up_to = [np.flatnonzero(each <= level).tolist() for each in distances]
    first = 0
    while place >= (count := math.prod(map(len, _allowed(nearer, at, up_to, first)))):
        place, first = place - count, first + 1
    cells = []
    for choices in reversed(_allowed(nearer, at, up_to, first)):
        place, digit = divmod(place, len(choices))
        cells.append(choices[digit])
    return cells[::-1]


def _allowed(nearer: list[Any], at: list[Any], up_to: list[Any], first: int) -> list[list[int]]:
    """Return the cells of each column in lists of a distance that is first that of one column: nearer before it."""
    return [*nearer[:first], at[first], *up_to[first + 1 :]]
