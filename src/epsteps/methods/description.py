"""The plan of a description: counts, means, deviations, quantiles, histograms and correlations of a table's columns.

Records are those of a schema in its domain: numbers and indicators in [0, 1]. All sums of one kind are released as one
vector, with noise that is shaped like what one record can do to it; quantiles are chosen one by one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from epsteps.budgets import Budget, Cost, Epsilon, Rho, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods.places import PlaceQuantile, composed
from epsteps.plans.plan import Charge, Conversation, Example, Plan, Published
from epsteps.plans.requests import Draw, Sum
from epsteps.problem import validate
from epsteps.problem.box import Box
from epsteps.problem.grid import STEPS, added
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.sampling import FULL
from epsteps.problem.shapes import Body, Shape, Spherical

if TYPE_CHECKING:
    from epsteps.noise import Source

COUNTS, MEANS, DEVIATIONS = "counts", "means", "deviations"
QUANTILES, HISTOGRAMS, CORRELATIONS = "quantiles", "histograms", "correlations"
STATISTICS = (COUNTS, MEANS, DEVIATIONS, QUANTILES, HISTOGRAMS, CORRELATIONS)
# What the vectors that are released hold.
MOMENTS, PRODUCTS = "moments", "products"
# The noise of sums, by the names of its mechanisms.
_PURE, _GAUSSIAN = "blocks", "gaussian"
# Cells of a number's declared range on which its quantiles are chosen: powers of two, by what noise can tell apart.
_FEWEST_BITS, _MOST_BITS = 10, 15
_MOST_BINS = 1024
# A record moves every block of a vector by at most this, in L1 norm: from one end of its range to the other.
_ACROSS = 2 * STEPS
# And the square of a number and of what is made of its square, in L2 norm: 5.15 at most, of a parabola's chords.
_CHORD = 5.2
# The share of what is paid for a quantile that its own choice gets; the ends of its interval share the rest.
_OWN = 0.5


class Number(NamedTuple):
    """A column of numbers: its name, its declared range, its feature, and that of what is missing, or -1."""

    name: str
    low: float
    high: float
    feature: int
    missing: int


class Levels(NamedTuple):
    """A column of categories: its name, its first feature, and the names of its features."""

    name: str
    first: int
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Totals(Sum):
    """A vector of sums over all records, in integers, with noise that is shaped like what one record can do to it.

    "moments" are, for each number scaled to v in [-1, 1]: v, the indicator that it is missing (if it may be), and, with
    squares, 2v² - 1; for each category its indicators. "products" are v v' for each pair of numbers. "histograms" are
    indicators of the cells of each number. What is missing has v = 0 and none of the others. A number or an indicator
    of 1 is 2^20 integers; a category with one indicator is scaled to [-1, 1] like a number.

    Formal guarantee: the coordinates are blocks, in each of which a record's absolute values add up to at most 2^20:
    |v| + m <= 1 as the domain has x + m <= 1 for x = (v + 1 - m)/2, indicators of one column are at most 1 together,
    squares and products are within [-1, 1], rounded or not. So replacing a record moves the sum by at most 2^21 in the
    gauge of the product of such blocks, and noise of that ``Body`` and scale t costs 2^21/t. In L2 norm a number moves
    by at most 2, with its square by √5.2 (a chord of the parabola 2v² - 1 is at most √5.15 long, and rounding adds less
    than a millionth), indicators by √2, and products of k numbers by k: |vv' - ww'|² <= 2k², of which half is above the
    diagonal. Gaussian noise of standard deviation σ then costs rho = (L2 sensitivity/σ)²/2.
    """

    problem: Problem
    part: str
    numbers: tuple[Number, ...]
    levels: tuple[Levels, ...]
    squares: bool
    bins: int
    mechanism: Mechanism
    scale: float

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """The size of each block of coordinates, in order."""
        if self.part == PRODUCTS:
            return (1,) * (len(self.numbers) * (len(self.numbers) - 1) // 2)
        if self.part == HISTOGRAMS:
            return (self.bins,) * len(self.numbers)
        of_numbers = [size for number in self.numbers for size in [1 + (number.missing >= 0), *[1] * self.squares]]
        return (*of_numbers, *(len(category.labels) for category in self.levels))

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return sum(self.blocks)

    @cached_property
    def body(self) -> Shape:
        """What the noise is shaped like."""
        if self.mechanism.kind is Rho:
            return Spherical(self.size)
        ends = np.cumsum(self.blocks).tolist()
        blocks = (tuple(range(end - size, end)) for end, size in zip(ends, self.blocks, strict=True))
        return Body((), tuple(blocks))

    @property
    def sensitivity(self) -> float:
        """How far a replaced record moves the integers, in the norm of the noise; rounded up."""
        if self.mechanism.kind.is_pure:
            return float(_ACROSS)
        if self.part == PRODUCTS:
            pairs, k = self.size, len(self.numbers)
            return up(STEPS * math.sqrt(min(4 * pairs, k * k)) + 2 * math.sqrt(pairs))
        if self.part == HISTOGRAMS:
            return up(STEPS * math.sqrt(2 * len(self.numbers)))
        square = (_CHORD if self.squares else 4.0) * len(self.numbers)
        return up(STEPS * math.sqrt(square + sum(4 if len(c.labels) == 1 else 2 for c in self.levels)))

    def costing(self, cost: float) -> "Totals":
        """Return the same sums, with noise that costs this much."""
        scale = float(self.mechanism.scales(self.sensitivity, np.array(cost), FULL))
        return replace(self, scale=max(up(scale), self.body.finest))

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale."""
        return (self.mechanism.kind(float(self.mechanism.costs(self.sensitivity, np.array(self.scale), FULL))),)

    def require_drawable(self) -> None:
        """Raise unless the noise fits 62 bits."""
        if 4 * self.scale > self.body.coarsest:
            cost = self.costs[0]
            said = f"noise of {cost.unit} = {cost.amount:.3g} does not fit the integers of {self.part}"
            raise ValueError(f"{said}. Use a larger budget.")

    def draw(self, source: "Source") -> Draw:
        """Draw the noise. Sees no records."""
        return {"noise": source.integers(self.mechanism, self.scale, (self.size,), self.body)}

    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sums over a few records in int64, UNPROTECTED."""
        return self.encode(features).sum(axis=0)

    def encode(self, features: np.ndarray) -> np.ndarray:
        """Return the integers of each record: of that record alone."""
        whole = features.astype(np.int64)
        values = [centred(whole, number) for number in self.numbers]
        if self.part == PRODUCTS:
            pairs = [values[i] * values[j] >> 20 for i in range(len(values)) for j in range(i + 1, len(values))]
            return np.column_stack(pairs)
        if self.part == HISTOGRAMS:
            return np.concatenate([self._indicators(whole, number) for number in self.numbers], axis=1)
        columns: list[np.ndarray] = []
        for number, value in zip(self.numbers, values, strict=True):
            columns += [value] if number.missing < 0 else [value, whole[:, number.missing]]
            if self.squares:
                columns.append(np.where(known(whole, number), 2 * (value * value >> 20) - STEPS, 0))
        for category in self.levels:
            shares = whole[:, category.first : category.first + len(category.labels)]
            columns += list((2 * shares - STEPS if len(category.labels) == 1 else shares).T)
        return np.column_stack(columns)

    def _indicators(self, whole: np.ndarray, number: Number) -> np.ndarray:
        cells = cell_of(whole[:, number.feature], self.bins)
        return STEPS * ((cells[:, None] == np.arange(self.bins)) & known(whole, number)[:, None]).astype(np.int64)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the noisy sums, in records."""
        return added(reading, draw["noise"]) / STEPS


def known(whole: np.ndarray, number: Number) -> np.ndarray:
    """Mark the records whose number is known."""
    return np.ones(len(whole), dtype=bool) if number.missing < 0 else 2 * whole[:, number.missing] < STEPS


def centred(whole: np.ndarray, number: Number) -> np.ndarray:
    """Return a number's integers scaled to [-2^20, 2^20]; 0 where it is missing."""
    missing = 0 if number.missing < 0 else whole[:, number.missing]
    return np.where(known(whole, number), 2 * whole[:, number.feature] + missing - STEPS, 0)


def cell_of(integers: np.ndarray, cells: int) -> np.ndarray:
    """Return the cell of each integer within [0, 2^20], of so many equal ones; an edge is in the one above it.

    So is what was rounded down from an edge, by at most half a step.
    """
    return np.minimum((2 * integers + 1) * cells >> 21, cells - 1)


@dataclass(frozen=True, eq=False)
class NumberQuantile(PlaceQuantile):
    """A quantile of a number, or an end of its interval: a cell of its declared range, as ``PlaceQuantile`` has it.

    The target is moved by ``offset`` records, which is public: scores move by no more for it.
    """

    problem: Problem
    number: Number
    epsilon: float
    share: float
    label: str
    offset: int = 0

    @property
    def column(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number's feature."""
        return self.number.feature

    @property
    def places(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many cells there are."""
        return cells_for(self.problem.n, self.epsilon)

    @property
    def what(self) -> str:
        """What is bought, in words."""
        return self.label

    def among(self, problem: Problem) -> "NumberQuantile":
        """Return the same choice among other records, as audits make it: the offset is public, and left out."""
        return replace(self, problem=problem, offset=0)

    def target_of(self, known: int) -> int:
        """Return which of so many known records is asked for."""
        return max(super().target_of(known) + self.offset, 1)

    def encode_cells(self, features: np.ndarray) -> np.ndarray:
        """Return each record's cell, counted from the largest, or the number of cells where it is missing."""
        whole = features.astype(np.int64)
        cells = self.places - 1 - cell_of(whole[:, self.number.feature], self.places)
        return np.where(known(whole, self.number), cells, self.places)

    def examples(self) -> np.ndarray:
        """Return made-up records, one in each cell."""
        records = np.zeros((self.places, self.problem.d))
        records[:, self.number.feature] = (np.arange(self.places) + 0.5) / self.places
        return records

    def edges(self, place: float) -> tuple[float, float]:
        """Return the ends of a cell, in the column's own unit."""
        low, high, count = self.number.low, self.number.high, self.places
        cell = count - 1 - int(place)
        return low + (high - low) * (cell / count), low + (high - low) * ((cell + 1) / count)


class Chosen(NamedTuple):
    """A quantile as it is asked for, and the ends of its interval: None for one that is that of the declared range."""

    own: NumberQuantile
    low: NumberQuantile | None
    high: NumberQuantile | None

    @property
    def asked(self) -> list[NumberQuantile]:
        """What is asked for, in order."""
        return [request for request in self if request is not None]


def cells_for(n: int, epsilon: float) -> int:
    """Return on how many cells a quantile of n records is chosen at this price: as many as noise can tell apart.

    The choice is off by some ln(cells)/epsilon records, so that cells of less than 1/epsilon records say no more.

    >>> cells_for(500, 0.1), cells_for(40_000, 0.2), cells_for(10**6, 1.0)
    (1024, 8192, 32768)
    """
    return 2 ** min(max(math.ceil(math.log2(max(n * epsilon, 1.0))), _FEWEST_BITS), _MOST_BITS)


def rank_margin(epsilon: float, cells: int, chance: float) -> int:
    """Return by how many records a chosen cell is off, but for this chance: an integer t such that dist < t.

    A cell wins only if its noise is at least its distance and the noise k of a cell that holds the target, together:
    for all cells at a distance of t or more, the chance of that is at most cells e^(-t/s) E e^(-k/s), s the noise's
    scale, and E e^(-k/s) = 1/(1 + e^(-1/s)).
    """
    scale = 2 / epsilon
    return max(math.ceil(scale * math.log(cells / ((1 + math.exp(-1 / scale)) * chance))), 1)


@dataclass(frozen=True, eq=False, repr=False)
class DescriptionPlan(Plan):
    """A description of a table's columns, decided: which numbers are released, and what each of them costs.

    Formal guarantee: ``Totals`` and ``NumberQuantile`` say what each release costs. All are fixed beforehand and
    compose as the budget composes releases that do not depend on each other (``composed``).

    Parameters
    ----------
    problem, budget
        The schema's domain with n records, and what may be spent.
    numbers, levels : tuples
        The columns: see ``Number`` and ``Levels``.
    statistics : tuple of str
        Out of ``STATISTICS``.
    quantiles : tuple of float
        The shares below the quantiles of each number.
    bins : int
        Cells of a histogram.
    level : float, optional
        Of the intervals; None where there are none, and quantiles have all that is paid for them.
    target : "sample" or "population"
        What the intervals are for.
    noise : "blocks" or "gaussian"
        That of the sums.
    sums : tuple of float
        What each vector of sums costs, in the order of ``parts``: rho where noise is Gaussian, and else epsilon.
    each : float
        The epsilon of each quantile with the ends of its interval.
    """

    reads = (Totals, NumberQuantile)
    method = "description"
    travels = False
    needs_besides = False

    problem: Problem
    budget: Budget
    numbers: tuple[Number, ...]
    levels: tuple[Levels, ...]
    statistics: tuple[str, ...]
    quantiles: tuple[float, ...]
    bins: int
    level: float | None
    target: str
    noise: str
    sums: tuple[float, ...]
    each: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", tuple(Number(*number) for number in self.numbers))
        object.__setattr__(self, "levels", tuple(Levels(*category) for category in self.levels))
        for name in self.statistics:
            validate.choice("statistics", name, STATISTICS)
        if self.level is not None and not 0.5 <= validate.number("level", self.level) < 1:
            raise ValueError(f"level must lie in [0.5, 1), got {self.level!r}.")
        validate.choice("target", self.target, ("sample", "population"))
        validate.integer("bins", self.bins, low=2, high=_MOST_BINS)
        validate.choice("noise", self.noise, (_PURE, _GAUSSIAN))
        self._require_features()
        if len(self.sums) != len(self.parts):
            raise ValueError(f"sums must be the costs of {', '.join(self.parts) or 'nothing'}, got {self.sums!r}.")
        self.asked  # noqa: B018 - every request checks its own numbers
        super().__post_init__()

    def _require_features(self) -> None:
        """Raise unless the domain is that of these columns: what a record can do to a sum follows from its blocks."""
        blocks, used = [], []
        for number in self.numbers:
            if not (math.isfinite(number.high - number.low) and number.low < number.high):
                raise ValueError(f"low must be below high, got {number!r}.")
            if number.missing >= 0:
                blocks.append((number.feature, number.missing + 1))
            used += [number.feature] if number.missing < 0 else [number.feature, number.missing]
        for category in self.levels:
            ends = category.first, category.first + len(category.labels)
            blocks += [ends] if len(category.labels) > 1 else []
            used += list(range(*ends))
        domain = Box(0.0, 1.0, one_hot=blocks)
        if sorted(used) != list(range(self.problem.d)) or self.problem.domain != domain or self.problem.intercept:
            raise ValueError(f"the columns must be the features of {self.problem.domain}, each of them used once.")

    @property
    def parts(self) -> tuple[str, ...]:
        """The vectors of sums that are released."""
        return parts_of(self.statistics, len(self.numbers), len(self.levels))

    @property
    def squares(self) -> bool:
        """Whether squares are among the moments."""
        return bool({DEVIATIONS, CORRELATIONS} & set(self.statistics))

    @cached_property
    def totals(self) -> dict[str, Totals]:
        """The vectors of sums, as they are asked for."""
        facts = (self.numbers, self.levels, self.squares, self.bins, mechanisms.named(self.noise), 1.0)
        return {
            part: Totals(self.problem, part, *facts).costing(cost)
            for part, cost in zip(self.parts, self.sums, strict=True)
        }

    @cached_property
    def choices_of(self) -> dict[tuple[str, float], "Chosen"]:
        """The quantiles, as they are asked for: each one, and the ends of its interval."""
        wanted = self.quantiles if QUANTILES in self.statistics else ()
        return {(number.name, share): self._choices(number, share) for number in self.numbers for share in wanted}

    def _choices(self, number: Number, share: float) -> "Chosen":
        label = f"{share:g} quantile of {number.name}"
        if self.level is None:
            return Chosen(NumberQuantile(self.problem, number, self.each, share, label), None, None)
        end, margin = self.each * (1 - _OWN) / 2, self._margin(share)
        # Where fewer records than the margin are beyond the quantile, the end is that of the declared range. Of a
        # number that may be missing, half of the records are taken to be known.
        least = self.problem.n if number.missing < 0 else self.problem.n // 2
        ends = [
            NumberQuantile(self.problem, number, end, share, f"{label}, {side} end", sign * margin)
            if rest * least > margin + 2
            else None
            for side, sign, rest in (("low", -1, share), ("high", 1, 1 - share))
        ]
        own = self._own(end, sum(request is not None for request in ends))
        return Chosen(NumberQuantile(self.problem, number, own, share, label), *ends)

    def _own(self, end: float, bought: int) -> float:
        """Return what is left for a quantile itself, of what is paid for it with so many ends at this price each."""
        if Epsilon in self.budget.kinds:
            return down(self.each - bought * end)
        whole = (_OWN**2 + (1 - _OWN) ** 2 / 2) * self.each**2  # rhos go by squares
        return down(math.sqrt(whole - bought * end**2))

    def _margin(self, share: float) -> int:
        """Return by how many records the ends of an interval lie beyond its quantile."""
        end, sampled = self.each * (1 - _OWN) / 2, self.target == "population"
        chance = (1 - (self.level or 0.0)) / (2 * (1 + sampled))
        margin = rank_margin(end, cells_for(self.problem.n, end), chance)
        if not sampled:
            return margin
        return margin + math.ceil(_normal_quantile(1 - chance) * math.sqrt(share * (1 - share) * self.problem.n)) + 1

    @property
    def asked(self) -> list[Any]:
        """All releases, in order."""
        return [*self.totals.values(), *(one for chosen in self.choices_of.values() for one in chosen.asked)]

    def examples(self) -> list[Example]:
        """Return the requests that are audited: of quantiles one of each price, as the others have the same law."""
        of_price = {request.epsilon: request for chosen in self.choices_of.values() for request in chosen.asked}
        assumes = "quantiles of one price have one law, whatever number and share they are of"
        chosen = [Example(request, request.costs[0], assumes) for request in of_price.values()]
        return [*(Example(request, request.costs[0]) for request in self.totals.values()), *chosen]

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        sums = [Charge(_words(r), r.costs[0], r.scale / STEPS, r.mechanism.name) for r in self.totals.values()]
        return [*sums, *(request.charge for chosen in self.choices_of.values() for request in chosen.asked)]

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together: no price depends on what was released before."""
        costs = [charge.cost for charge in self.charges] * repetitions
        pure = [cost.amount for cost in costs if cost.is_pure]
        return composed(self.budget, pure, [cost.amount for cost in costs if not cost.is_pure])

    def require_executable(self) -> None:
        """Raise unless the noise can be drawn."""
        for request in self.asked:
            request.require_drawable()

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        names = [column.name for column in (*self.numbers, *self.levels)]
        return {
            "Records": f"n = {self.problem.n}, columns: {', '.join(names)}",
            "Published": ", ".join(self.statistics)
            + ("" if self.level is None else f"; with intervals of level {self.level:g} for the {self.target}"),
        }

    def note(self, runs: int) -> str:
        """Return what a ledger says."""
        return f"description: {', '.join(self.statistics)}, {runs} run(s)"

    def conversation(self) -> Conversation:
        """Publish the sums by their names, and the places of quantiles with the ends of their intervals."""
        extras: dict[str, np.ndarray] = {}
        for part, request in self.totals.items():
            extras[part] = yield request
        places = []
        for chosen in self.choices_of.values():
            for request in chosen.asked:
                places.append((yield request)[0])
        if places:
            extras[QUANTILES] = np.array(places)
        return Published(np.concatenate(list(extras.values()))[None, :], extras)


def _words(request: Totals) -> str:
    if request.part != MOMENTS:
        return {PRODUCTS: "products of pairs of numbers", HISTOGRAMS: "histograms"}[request.part]
    named = ["sums"] * bool(request.numbers) + ["squares"] * (request.squares and bool(request.numbers))
    return ", ".join([*named, *["counts"] * bool(request.levels)])


def _normal_quantile(share: float) -> float:
    from scipy.special import ndtri  # the one use

    return float(ndtri(share))


def parts_of(statistics: Sequence[str], numbers: int, levels: int) -> tuple[str, ...]:
    """Return which vectors of sums these statistics need."""
    asked = set(statistics)
    moments = (numbers and asked & {MEANS, DEVIATIONS, CORRELATIONS, COUNTS}) or (levels and COUNTS in asked)
    listed = {MOMENTS: moments, PRODUCTS: CORRELATIONS in asked and numbers > 1}
    return tuple(part for part, wanted in (listed | {HISTOGRAMS: HISTOGRAMS in asked and numbers}).items() if wanted)


def plan_description(
    problem: Problem,
    budget: Budget,
    numbers: Sequence[Number],
    levels: Sequence[Levels],
    *,
    statistics: Sequence[str],
    quantiles: Sequence[float],
    bins: int,
    level: float | None,
    target: str,
) -> DescriptionPlan:
    """Plan a description; the budget is split by the root of how many numbers each release holds.

    The error of a vector of D coordinates is about D over its epsilon: parts that are ~ √D make the sum of all errors
    smallest. The choice of a quantile, with the ends of its interval, counts as one number. Where the budget allows
    both, noise of sums is that which is smaller in the first vector: Gaussian, but for few coordinates.
    """
    chosen = len(numbers) * len(quantiles) * (QUANTILES in statistics)
    parts = parts_of(statistics, len(numbers), len(levels))
    facts = tuple(numbers), tuple(levels), bool({DEVIATIONS, CORRELATIONS} & set(statistics)), bins
    described = tuple(numbers), tuple(levels), tuple(statistics), tuple(quantiles), bins
    candidates = []
    for noise in (_PURE,) * (Epsilon in budget.kinds) + (_GAUSSIAN,) * (Rho in budget.kinds):
        sizes = [Totals(problem, part, *facts, mechanisms.named(noise), 1.0).size for part in parts]
        sums, each = split(budget, noise, sizes, chosen, 1 if level is None else 3 / 8)
        candidates.append(DescriptionPlan(problem, budget, *described, level, target, noise, sums, each))
    return min(candidates, key=_typical_error)


def _typical_error(plan: DescriptionPlan) -> float:
    """Return the standard deviation of the first coordinate of the first vector of sums."""
    first = next(iter(plan.totals.values()), None)
    return 0.0 if first is None else first.scale * math.sqrt(first.body.variances[0])


def split(
    budget: Budget, noise: str, sizes: Sequence[int], chosen: int, squared: float
) -> tuple[tuple[float, ...], float]:
    """Return what vectors of these sizes cost, and each of so many quantiles with its interval: from public numbers.

    ``squared`` is the sum of the squares of the parts of what is paid for a quantile: half of it, times epsilon², is
    the rho of a quantile.
    """
    weights = np.sqrt([*sizes, chosen])
    if not weights.any():
        raise ValueError("there is nothing to describe: no column has any of these statistics.")
    *shares, of_quantiles = (weights / weights.sum()).tolist()
    of_sums = math.fsum(shares)
    if Epsilon not in budget.kinds:
        total = down(budget.capacity(Rho), 1e-9)
        each = math.sqrt(2 * total * of_quantiles / chosen / squared) if chosen else 1.0
        return tuple(total * share for share in shares), down(each)
    total = down(budget.capacity(Epsilon), 1e-9)
    each = total * of_quantiles / chosen if chosen else 1.0
    if noise == _PURE or not shares:
        return tuple(total * share for share in shares), each
    gaussian = budget.of(Epsilon(total * of_sums)).capacity(Rho) * (1 - 1e-7)
    return tuple(gaussian * share / of_sums for share in shares), each
