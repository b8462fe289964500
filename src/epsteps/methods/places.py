"""Quantiles of single columns on public grids of cells, and bounds of columns that are bought with them.

A column whose range nobody knows has no domain. But a public grid has one place for every number there is: a record is
then as many integers as it has columns, each the place of its cell on that column's grid, or the place of what is
missing. Such records lie in a box whatever a table holds, and all that is known of records in a box holds for them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from epsteps.budgets import Budget, Epsilon, Expense, Rho, mechanisms
from epsteps.methods.bought import Quantile, scores
from epsteps.methods.together import MOST_TOGETHER, ColumnEnds, target_of
from epsteps.plans.plan import Charge, Conversation, Plan, Published
from epsteps.problem import validate
from epsteps.problem.box import Box
from epsteps.problem.losses import Squared
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.sampling import FULL

LOW, HIGH = "low", "high"
# The name of the column that holds the norms of the records: no column of a table may have it.
NORM = "norm of a record"
# A share of the records is left out on each side, by default; and it is so many scales of the choice, at least, besides
# the logarithm of the number of lists of cells, so that none beyond the data is chosen but by a rare chance.
_TAIL, _MARGIN = 0.01, 4.0
# Where that is little, it may be more by this factor, as long as few records are left out.
_AMPLE = 1.6
# Where more than this would be left out, noise drowns the quantile.
_DROWNED = 0.35
# Where more than this is left out, an end is moved out to where that share of a normal column would be.
_FEW = 0.1
# No end is moved out further than this.
_FARTHEST = 10.0


class PlaceQuantile(Quantile):
    """A cell of a column's grid up to which about this share of the known records lies: a ``Quantile``.

    Cells are numbered from the largest numbers to the smallest; what is missing is in none. The target is T = max(1,
    the integer part of share K), for the K records whose place is known. The score of a cell is the distance of T from
    [B + 1, U], B and U being the records below it and up to its upper end: 0 for the cell of the T-th smallest alone.

    Formal guarantee: epsilon-DP, as proved for ``Quantile``. What it needs is that a replaced record moves every score
    by at most 1, also where it becomes known or missing. If the record has a place before and after, B moves by at most
    1, and T does not. If it becomes missing, B falls by 1 or not at all, and so does T, as the share is below 1: B - T
    moves by at most 1. So it is with U, and so with the distance of T from between the two. Published is the number of
    the cell.
    """

    column: int
    places: int

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return self.places

    @property
    def ends(self) -> np.ndarray:
        """The numbers of the cells: what they stand for is their plan's business."""
        return np.arange(self.places, dtype=float)

    @property
    def target(self) -> int:
        """The target where all records are known."""
        return self.target_of(self.problem.n)

    def target_of(self, known: int) -> int:
        """Return which of so many known records is asked for: exact, and one more at most for one record more."""
        return target_of(self.share, known)

    def read(self, records: Any, draw: Any) -> np.ndarray:
        """Return the scores of the cells, UNPROTECTED."""
        counts = records.tally(self.encode).astype(np.int64)[: self.places]
        return scores(counts, self.target_of(int(counts.sum())), least=1)

    def encode(self, chunk: Any) -> np.ndarray:
        """Return how many records of a chunk are in each cell and, last, how many in none, UNPROTECTED."""
        return chunk.apply(self._encode_counts)

    def _encode_counts(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.bincount(self.encode_cells(features), minlength=self.places + 1).astype(np.int64)

    def encode_places(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED."""
        return self.encode_cells(chunk.features)

    def encode_cells(self, features: np.ndarray) -> np.ndarray:
        """Return each record's cell, or the number of cells where it is missing: from that record alone."""
        raise NotImplementedError

    def examples(self) -> np.ndarray:
        """Return made-up records, one in each cell: for audits."""
        raise NotImplementedError


def place_problem(n: int, columns: int) -> Problem:
    """Return the problem of records that are places on so many grids, each divided by the number of its cells."""
    return Problem(Squared(1.0), Box(0.0, 1.0), ridge=1.0, n=n, d=columns)


@dataclass(frozen=True, eq=False, repr=False)
class BoundsPlan(Plan):
    """The purchase of ranges for columns, decided: which ends are bought, on which grid, for how much.

    Formal guarantee: ends are chosen together, so many at a time (``ColumnEnds``), each time for an epsilon. These are
    fixed beforehand, so that they compose as the budget composes releases that do not depend on each other; rhos of
    epsilon²/2 each add up under zCDP.

    Parameters
    ----------
    problem, budget
        That of ``place_problem``, and what may be spent.
    names : tuple of str
        The columns.
    grids : tuple of tuples of float
        The edges of each column's cells, the smallest first: a cell lies between two that follow each other, and the
        first and the last one hold all that is beyond. A number that stands twice, such as 0, is a cell of its own.
    ends : tuple of (int, "low" or "high")
        What is bought, in order: ends of these columns.
    epsilons : tuple of float
        What each choice costs.
    shares : tuple of float
        The share of the records below each end.
    together : int
        How many ends are chosen at a time; the last ones may be fewer.
    reaches : tuple of float
        What the distance of each end from the other one, or from the middle where both are bought, is multiplied by,
        1 or more: post-processing, by public numbers (``reach_of``). None at all is 1 for each.
    norm : int
        1 or 2 where the last column is that of the norms of the records; 0 where there is none.
    """

    reads = (ColumnEnds,)
    method = "bounds"
    needs_besides = False
    travels = False

    problem: Problem
    budget: Budget
    names: tuple[str, ...]
    grids: tuple[tuple[float, ...], ...]
    ends: tuple[tuple[int, str], ...]
    epsilons: tuple[float, ...]
    shares: tuple[float, ...]
    together: int
    norm: int = 0
    reaches: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.norm not in (0, 1, 2) or bool(self.norm) != (NORM in self.names):
            raise ValueError(f"norm must be 1 or 2 where a column {NORM!r} is bought, and else 0, got {self.norm!r}.")
        if not len(self.names) == len(self.grids) == self.problem.d:
            raise ValueError(f"there must be a name and a grid for each of the {self.problem.d} columns.")
        if not self.ends or len(self.ends) != len(self.shares):
            raise ValueError("there must be an end or more to buy, with a share for each.")
        validate.integer("together", self.together, high=MOST_TOGETHER)
        if len(self.epsilons) != -(-len(self.ends) // self.together):
            raise ValueError(f"there must be an epsilon for each choice of {self.together} ends.")
        for edges in self.grids:
            if len(edges) < 3 or edges[0] >= edges[-1] or np.any(np.diff(edges) < 0) or not np.all(np.isfinite(edges)):
                raise ValueError("a grid must be three finite numbers or more, none below the one before.")
        for _, side in self.ends:
            validate.choice("end", side, (LOW, HIGH))
        if self.reaches and len(self.reaches) != len(self.ends):
            raise ValueError(f"there must be a reach for each of the {len(self.ends)} ends, or none at all.")
        for reach in self.reaches:
            if not 1 <= validate.number("reach", reach) <= _FARTHEST:
                raise ValueError(f"a reach must lie in [1, {_FARTHEST:g}], got {reach!r}.")
        self.asked  # noqa: B018 - every request checks its own numbers
        super().__post_init__()

    @cached_property
    def asked(self) -> tuple[ColumnEnds, ...]:
        """The releases, as they are asked for."""
        starts = range(0, len(self.ends), self.together)
        parts = [slice(start, start + self.together) for start in starts]
        return tuple(self._asked(part, epsilon) for part, epsilon in zip(parts, self.epsilons, strict=True))

    def _asked(self, part: slice, epsilon: float) -> ColumnEnds:
        columns = tuple(column for column, _ in self.ends[part])
        places = tuple(len(self.grids[column]) - 1 for column in columns)
        return ColumnEnds(self.problem, columns, places, epsilon, self.shares[part], self._labels[part])

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(f"{side} {self.names[column]}" for column, side in self.ends)

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        return [request.charge for request in self.asked]

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together: no price depends on what was released before."""
        return composed(self.budget, list(self.epsilons) * repetitions)

    def require_executable(self) -> None:
        """Raise unless the noise can be drawn."""
        for request in self.asked:
            request.require_drawable()

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        counts = sorted({len(edges) - 1 for edges in self.grids})
        cells = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return {
            "Records": f"n = {self.problem.n}, columns: {', '.join(self.names)}",
            "Grids": f"public, {cells} cells for each column; what is missing is in none of them",
            "Published": f"{len(self.ends)} ends of ranges, each that of a cell which holds a quantile",
            "Quantiles": ", ".join(
                f"{label}: {share:.3g}" for label, share in zip(self._labels, self.shares, strict=True)
            ),
        }

    def note(self, runs: int) -> str:
        """Return what a ledger says."""
        return f"bounds of {', '.join(self.names)}, {runs} run(s)"

    def conversation(self) -> Conversation:
        """Publish the number of a cell for each end."""
        cells = []
        for request in self.asked:
            cells.append((yield request))
        return Published(np.concatenate(cells)[None])

    def ranges(self, cells: Sequence[float]) -> dict[str, tuple[float | None, float | None]]:
        """Return the bought ends of each column's range, from the published cells: None for what was not bought.

        A low end is the lower edge of its cell, and a high one the upper edge. Where noise has them cross they change
        places, and where both are the same number, as where all records are 0, the high one is the next edge. Then they
        are moved out by their reaches, not beyond the grid.
        """
        found: dict[int, dict[str, float]] = {}
        moved: dict[int, dict[str, float]] = {}
        for (column, side), cell, reach in zip(self.ends, cells, self.reaches or [1.0] * len(self.ends), strict=True):
            edges = self.grids[column]
            place = len(edges) - 2 - int(cell)  # counted from the smallest
            found.setdefault(column, {})[side] = edges[place] if side == LOW else edges[place + 1]
            moved.setdefault(column, {})[side] = reach
        return {
            self.names[column]: moved_out(self.grids[column], ends, moved[column]) for column, ends in found.items()
        }

    @property
    def expense(self) -> Expense:
        """What was bought and what it cost, as a later plan lists it: in rho where that is the budget's currency."""
        note = f"bounds of {', '.join(self.names)}"
        if Epsilon in self.budget.kinds:
            return Expense(note, up(math.fsum(self.epsilons), 1e-13), Epsilon.unit)
        return Expense(note, self.spent, Rho.unit)


def apart(edges: Sequence[float], low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Return two ends in order, and apart by an edge of the grid at least; an end that is None is nobody's business."""
    if low is None or high is None:
        return low, high
    low, high = min(low, high), max(low, high)
    if low < high:
        return low, high
    above = [edge for edge in edges if edge > low]
    return (low, above[0]) if above else (max(edge for edge in edges if edge < low), high)


def moved_out(
    edges: Sequence[float], ends: dict[str, float], reaches: dict[str, float]
) -> tuple[float | None, float | None]:
    """Return bought ends, apart, and each further from the other by its reach; one that was not bought is the grid's.

    Where both are bought they move from the middle between them. Ends on a grid of whole numbers stay whole.

    >>> moved_out((0.0, 0.0, 1.0, 2.0, 4.0, 8.0), {"high": 2.0}, {"high": 1.2})
    (None, 3.0)
    >>> moved_out((-10.5, -1.0, 1.0, 2.0, 10.5), {"low": -1.0, "high": 2.0}, {"low": 1.2, "high": 1.0})
    (-1.3, 2.0)
    """
    low, high = apart(edges, ends.get(LOW), ends.get(HIGH))
    half = 2 if len(ends) == 2 else 1
    width = ((edges[-1] if high is None else high) - (edges[0] if low is None else low)) / half
    steps = {side: float(f"{(reach - 1) * width:.2g}") for side, reach in reaches.items()}
    if all(float(edge).is_integer() for edge in edges):
        steps = {side: float(math.ceil(step)) for side, step in steps.items()}
    return (
        None if low is None else max(low - steps[LOW], edges[0]),
        None if high is None else min(high + steps[HIGH], edges[-1]),
    )


# Preferred numbers (ISO 3, R10): ten to a decade, at nearly equal ratios.
_PREFERRED = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)
# The decades of a grid for numbers and for integers; below the first, all numbers but 0 are in one cell.
_DECADES = {"number": range(-6, 12), "integer": range(12)}
_YEARS = range(1800, 2201)
KINDS = (*_DECADES, "year")


def edges_of(kind: str, low: float | None, high: float | None) -> tuple[float, ...]:
    """Return the edges of a public grid: geometric about 0 for numbers and integers, every year for years.

    A known end is an edge, and none lies beyond it. Zero is a cell of its own, where it is not outside.

    >>> edges_of("integer", 0, 20)
    (0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0)
    """
    if validate.choice("kind", kind, KINDS) == "year":
        edges = [float(year) for year in _YEARS]
    else:
        sizes = [float(f"{number}e{decade}") for decade in _DECADES[kind] for number in _PREFERRED]
        sizes.append(float(f"1e{_DECADES[kind].stop}"))
        if kind == "integer":
            sizes = sorted({float(math.floor(size)) for size in sizes})
        edges = [*(-size for size in reversed(sizes)), 0.0, 0.0, *sizes]
    inside = [edge for edge in edges if (low is None or edge > low) and (high is None or edge < high)]
    zeros = [0.0] if 0.0 in (low, high) else []  # the known end itself is the other one
    ends = [low, *(zeros * (low == 0)), *inside, *(zeros * (high == 0)), high]
    return tuple(float(edge) for edge in ends if edge is not None)


def places_on(edges: Sequence[float], values: np.ndarray) -> np.ndarray:
    """Return the cell of each number, counted from the largest, and the number of cells for NaN.

    A number that is an edge is in the cell nearer to 0; one beyond the grid is in its last cell. Of each number alone.
    """
    grid, cells = np.asarray(edges), len(edges) - 1
    known = np.where(np.isnan(values), 0.0, values)
    place = np.where(known > 0, np.searchsorted(grid, known, "left") - 1, np.searchsorted(grid, known, "right") - 1)
    if 0.0 in grid:  # which is a cell of its own, or the end of the one beside it
        place = np.where(known == 0, np.searchsorted(grid, 0.0, "left"), place)
    return np.where(np.isnan(values), cells, cells - 1 - np.clip(place, 0, cells - 1))


def composed(budget: Budget, epsilons: Sequence[float], rhos: Sequence[float] = ()) -> Budget:
    """Return what pure releases and Gaussian ones cost together, none of which depends on another: rounded up.

    Under (epsilon, delta), epsilons add up to what Gaussian releases amount to at that delta, which holds for any two
    releases of which one is pure; without Gaussian ones, pure ones are composed numerically.
    """
    pure, gaussian = np.asarray(epsilons, dtype=float), np.asarray(rhos, dtype=float)
    if Epsilon not in budget.kinds:
        return budget.spending(np.concatenate([up(pure**2 / 2), gaussian]), Rho)
    if not len(gaussian):
        # One alone costs its epsilon: what a delta takes off it would be taken off many of them but once.
        return budget.of(Epsilon(float(pure[0]))) if len(pure) == 1 else budget.spending(pure, Epsilon)
    spent = budget.spending(gaussian, Rho)
    return spent if not len(pure) else budget.of(Epsilon(up(math.fsum([spent.amount, *pure]), 1e-13)))


def even_epsilons(budget: Budget, count: int) -> float:
    """Return what each of so many pure releases may cost, so that ``composed`` stays within the budget."""
    if Epsilon not in budget.kinds:
        return down(math.sqrt(2 * budget.capacity(Rho) / count), 1e-9)
    if count == 1:
        return down(budget.capacity(Epsilon), 1e-9)
    return float(down(budget.allocate(None, count, mechanisms.named("laplace"), FULL)[0], 1e-9))


def needed_tail(n: int, epsilon: float, cells: Sequence[int], choices: int = 1) -> float:
    """Return the share of the records that ends chosen together must leave outside, each, of so many such choices.

    With n t records beyond an end, a list of cells with one beyond the records has a distance of n t, and is chosen
    with a chance of at most (number of lists) e^(-n t epsilon/2) (theorem 15.5), which is e^-4 over the number of
    choices; mostly far less, since most cells are not beyond.

    >>> round(needed_tail(10_000, 0.05, [100]), 4), round(needed_tail(10_000, 0.05, [100] * 8), 4)
    (0.0344, 0.1634)
    """
    return 2 * (sum(map(math.log, cells)) + math.log(choices) + _MARGIN) / (n * epsilon)


def tail_of(needed: float) -> float:
    """Return the share of the records that an end leaves outside: what a choice needs, and more where that is little.

    What noise needs falls as n epsilon grows, and so does what a model's own noise leaves to gain from records far out.

    >>> tail_of(1e-4), tail_of(0.03), tail_of(0.08), tail_of(0.2)
    (0.01, 0.048, 0.1, 0.2)
    """
    return max(_TAIL, needed, min(_AMPLE * needed, _FEW))


def reach_of(tail: float) -> float:
    """Return by how much an end is moved out that has this share of the records beyond it.

    What noise needs outside may be far more than clipping should cost a model. A range that is too narrow clips
    records for ever, one that is too wide is mended by what a model buys itself, in part. So the end of a tail of more
    than a tenth is moved to where a tenth of a half normal column would be beyond, from the column's other end.

    >>> round(reach_of(0.05), 3), round(reach_of(0.18), 3), round(reach_of(0.35), 3)
    (1.0, 1.227, 1.76)
    """
    return max(1.0, float(ndtri(1 - _FEW / 2) / ndtri(1 - tail / 2)))


def plan_bounds(
    budget: Budget,
    n: int,
    grids: dict[str, tuple[float, ...]],
    ends: Sequence[tuple[str, str]],
    quantiles: tuple[float, float] | None = None,
    norm: int = 0,
) -> BoundsPlan:
    """Plan to buy ends of columns, ("age", "high") and the like, for equal parts of the budget.

    Raises where noise would drown a quantile, and says what to do.
    """
    problem, names = place_problem(n, len(grids)), list(grids)
    cells = [len(grids[name]) - 1 for name, _ in ends]
    needed, together, each = divided(budget, n, cells)
    if quantiles is None and needed > _DROWNED:
        raise ValueError(
            f"{together} of the bounds would cost epsilon = {each:.3g}, and with {n} records its noise drowns any "
            f"quantile: that takes epsilon = {each * needed / _DROWNED:.3g}. Use a larger budget, buy fewer columns, "
            "or declare the ends that are known, such as low = 0."
        )
    tail = tail_of(needed)
    low, high = (tail, 1 - tail) if quantiles is None else quantiles
    return BoundsPlan(
        problem,
        budget,
        tuple(names),
        tuple(grids.values()),
        tuple((names.index(name), side) for name, side in ends),
        (each,) * -(-len(ends) // together),
        tuple(high if side == HIGH else low for _, side in ends),
        together,
        norm,
        (reach_of(tail),) * len(ends) if quantiles is None else (),
    )


def divided(budget: Budget, n: int, cells: Sequence[int]) -> tuple[float, int, float]:
    """Return the share of the records that is left outside, how many ends are chosen at a time, and for how much.

    The share is the smallest that any number at a time needs. Under pure budgets, where costs of choices add up, that
    is all of them; under zCDP, where squares of epsilons do, it is a few.
    """

    def tried(together: int) -> tuple[float, int, float]:
        choices = -(-len(cells) // together)
        each = even_epsilons(budget, choices)
        return needed_tail(n, each, sorted(cells)[-together:], choices), together, each

    return min(map(tried, range(1, min(len(cells), MOST_TOGETHER) + 1)))
