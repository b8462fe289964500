"""A private description of a table: counts, means, deviations, quantiles, histograms, correlations, with intervals."""

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.budgets import Budget
from epsteps.data.rows import Rows
from epsteps.ledger.books import Account
from epsteps.methods.description import (
    CORRELATIONS,
    COUNTS,
    DEVIATIONS,
    HISTOGRAMS,
    MEANS,
    MOMENTS,
    PRODUCTS,
    QUANTILES,
    STATISTICS,
    DescriptionPlan,
    Levels,
    Number,
    plan_description,
)
from epsteps.noise.bits import public_generator
from epsteps.problem import validate
from epsteps.problem.losses import Squared
from epsteps.problem.problem import Problem
from epsteps.running.run import drawn_publicly, run
from epsteps.tables.bounds import table_of
from epsteps.tables.columns import Numeric
from epsteps.tables.schema import Schema

# By default all but histograms, whose many counts take more of the budget than all others.
_USUAL = (COUNTS, MEANS, DEVIATIONS, QUANTILES, CORRELATIONS)
_QUARTILES = (0.25, 0.5, 0.75)
# Draws of the noise that intervals are quantiles of.
_DRAWS = 4000


@dataclass(frozen=True)
class Entry:
    """One number of a description, and the ends of its interval; None where there is none."""

    column: str
    statistic: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def words(self) -> str:
        """The number as people read it."""
        ends = "" if self.low is None or self.high is None else f"[{_shown(self.low)}, {_shown(self.high)}]"
        return f"{_shown(self.value)}  {ends}".rstrip()


def _shown(value: float) -> str:
    """Return four digits of a number, without an exponent where it is of a usual size."""
    return f"{float(f'{value:.4g}'):g}"


@dataclass(frozen=True, eq=False)
class Description:
    """What a description published, and what follows from it: a table of numbers with intervals, and a picture.

    Each interval holds its own number with the plan's level: that of the records (``target="sample"``), which noise
    alone hides, or that of the population that they are drawn from. Nothing is spent and no record is read here.
    """

    plan: DescriptionPlan
    released: dict[str, np.ndarray]
    seeded: bool

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All numbers, column by column."""
        with np.errstate(all="ignore"):
            return tuple(_entries(self.plan, self.released))

    def __getitem__(self, key: tuple[str, str]) -> Entry:
        """Return the number of a column: ``description["age", "mean"]``."""
        for entry in self.entries:
            if (entry.column, entry.statistic) == key:
                return entry
        listed = ", ".join(f"{entry.column!r}, {entry.statistic!r}" for entry in self.entries[:6])
        raise KeyError(f"there is no {key!r}; the first that there are: {listed}.")

    @property
    def correlations(self) -> tuple[tuple[str, ...], np.ndarray]:
        """The names of the numbers, and the matrix of their correlations; NaN where none were asked for."""
        names = tuple(number.name for number in self.plan.numbers)
        matrix = np.full((len(names), len(names)), np.nan)
        np.fill_diagonal(matrix, 1.0)
        for i, first in enumerate(names):
            for j in range(i + 1, len(names)):
                if CORRELATIONS in self.plan.statistics:
                    matrix[i, j] = matrix[j, i] = self[first, f"correlation with {names[j]}"].value
        return names, matrix

    @property
    def spent(self) -> Budget:
        """What it cost."""
        return self.plan.spending()

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, and what they cost, as plain values."""
        return {
            "private": not self.seeded,
            "records": self.plan.problem.n,
            "spent": self.spent.to_dict(),
            "level": self.plan.level,
            "target": self.plan.target,
            "entries": [asdict(entry) for entry in self.entries],
        }

    @property
    def _title(self) -> str:
        if self.seeded:
            return "NOT PRIVATE: a seed makes the noise repeatable"
        return f"{self.plan.problem.n} records, described with {self.spent}"

    @property
    def _note(self) -> str:
        plan = self.plan
        return "" if plan.level is None else f"Intervals: {plan.level:.0%} each, for the {plan.target}."

    def __str__(self) -> str:
        columns, statistics = ([getattr(e, name) for e in self.entries] for name in ("column", "statistic"))
        widths = [max(map(len, texts), default=0) for texts in (columns, statistics)]
        lines = [f"  {e.column:<{widths[0]}}  {e.statistic:<{widths[1]}}  {e.words}" for e in self.entries]
        return "\n".join([self._title, *lines, *([self._note] if self._note else [])])

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in (e.column, e.statistic, e.words)) + "</tr>"
            for e in self.entries
        )
        head = "<tr><th>column</th><th>statistic</th><th>value and interval</th></tr>"
        texts = (html.escape(text) for text in (self._title, self._note))
        return "<p>{}</p><table><thead>{}</thead><tbody>{}</tbody></table><p>{}</p>".format(
            *(next(texts), head, rows, next(texts))
        )

    def plot(self) -> Any:
        """Return a figure of matplotlib: shares of categories, quantiles and means of numbers, and correlations."""
        return _figure(self)


def _entries(plan: DescriptionPlan, released: dict[str, np.ndarray]) -> Iterator[Entry]:
    simulated = _Simulated(plan, released)
    chosen = _quantiles(plan, released)
    for place, number in enumerate(plan.numbers):
        yield from simulated.of_number(place)
        yield from (entry for entry in chosen if entry.column == number.name)
        yield from simulated.histogram(place)
        yield from simulated.correlations(place)
    for place in range(len(plan.levels)):
        yield from simulated.of_levels(place)


def _quantiles(plan: DescriptionPlan, released: dict[str, np.ndarray]) -> list[Entry]:
    places, entries = iter(released.get(QUANTILES, np.zeros(0)).tolist()), []
    for (name, share), chosen in plan.choices_of.items():
        number, middle = chosen.own.number, float(np.mean(chosen.own.edges(next(places))))
        ends: tuple[float, ...] = ()
        if plan.level is not None:
            low = number.low if chosen.low is None else chosen.low.edges(next(places))[0]
            high = number.high if chosen.high is None else chosen.high.edges(next(places))[1]
            ends = min(low, high), max(low, high)
        entries.append(Entry(name, f"{share:g} quantile", middle, *ends))
    return entries


class _Simulated:
    """Statistics at what was released, and at what it may have been: less draws of the noise, from a public seed.

    The records' own sums are the released ones less a noise whose law is known. So an interval for a number that sums
    make up is between quantiles of it at sums less draws of that law. For a sum itself, and where the number of known
    records is public for a mean, that is exact but for the draws; elsewhere it neglects how much a number bends over
    the width of the noise, and its coverage is measured.
    """

    def __init__(self, plan: DescriptionPlan, released: dict[str, np.ndarray]) -> None:
        self.plan, self.n = plan, plan.problem.n
        self._generator = public_generator(0)
        self._sums = {part: self._drawn(part, released[part]) for part in plan.totals}

    def _drawn(self, part: str, released: np.ndarray) -> np.ndarray:
        """Return the released sums, and below them what they may have been."""
        if self.plan.level is None:
            return released[None, :]
        request = self.plan.totals[part]
        form = (_DRAWS, request.size, 1)
        unit = request.scale / 2**20
        noise = drawn_publicly(self._generator, request.mechanism, unit, form, request.body)[..., 0]
        return np.concatenate([released[None, :], released - noise])

    @cached_property
    def _places(self) -> tuple[list[int], list[int]]:
        """Where the coordinates of each number, and of each category, begin."""
        starts, start = ([], []), 0
        for number in self.plan.numbers:
            starts[0].append(start)
            start += 1 + (number.missing >= 0) + self.plan.squares
        for category in self.plan.levels:
            starts[1].append(start)
            start += len(category.labels)
        return starts

    def _moments(self, place: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the sum of a number's v, how many are known, and the sum of v², one for each draw."""
        sums, start, number = self._sums[MOMENTS], self._places[0][place], self.plan.numbers[place]
        total, start = sums[:, start], start + 1
        count = np.full(len(sums), float(self.n))
        if number.missing >= 0:
            count, start = np.clip(self.n - sums[:, start], 0, self.n), start + 1
        squares = np.clip((sums[:, start] + count) / 2, 0, count) if self.plan.squares else None
        return total, count, squares

    def of_number(self, place: int) -> Iterator[Entry]:
        """Yield count, mean and deviation of a number."""
        if MOMENTS not in self._sums:
            return
        number, asked = self.plan.numbers[place], self.plan.statistics
        total, count, squares = self._moments(place)
        half, middle = (number.high - number.low) / 2, number.low / 2 + number.high / 2
        if COUNTS in asked and number.missing >= 0:
            yield self._entry(number.name, "missing", self.n - count, (0, self.n), self._sampled_count)
        mean = np.clip(total / np.maximum(count, 1), -1, 1)
        variance = None if squares is None else np.maximum(squares / np.maximum(count, 1) - mean**2, 0)
        if MEANS in asked:
            # Without squares the variance is at most (1 - mean)(1 + mean), that of numbers at both ends.
            spread = np.sqrt((1 - mean**2 if variance is None else variance) / np.maximum(count, 1))
            values = middle + half * mean
            yield self._entry(number.name, "mean", values, (number.low, number.high), lambda _: half * spread)
        if DEVIATIONS in asked and variance is not None:
            deviation = np.sqrt(variance)
            # (v - mean)² lies within [0, widest]: no variable there of this mean has a larger variance.
            widest = (1 + np.abs(mean)) ** 2
            spread = np.sqrt(np.maximum(widest - variance, 0) / np.maximum(count, 1)) / 2
            yield self._entry(number.name, "deviation", half * deviation, (0, half), lambda _: half * spread)

    def histogram(self, place: int) -> Iterator[Entry]:
        """Yield the counts of a number's cells."""
        if HISTOGRAMS not in self._sums:
            return
        number, bins = self.plan.numbers[place], self.plan.bins
        edges = number.low + (number.high - number.low) * (np.arange(bins + 1) / bins)
        for cell in range(bins):
            counts = self._sums[HISTOGRAMS][:, place * bins + cell]
            what = f"from {edges[cell]:.6g} to {edges[cell + 1]:.6g}"
            yield self._entry(number.name, what, counts, (0, self.n), self._sampled_count)

    def correlations(self, place: int) -> Iterator[Entry]:
        """Yield the correlations of a number with those after it: what is missing counts as the middle of its range."""
        if CORRELATIONS not in self.plan.statistics:
            return
        moments = [self._moments(other) for other in range(len(self.plan.numbers))]
        pairs = [(i, j) for i in range(len(moments)) for j in range(i + 1, len(moments))]
        for column, (i, j) in enumerate(pairs):
            if i == place:
                first, second = (self.plan.numbers[other].name for other in (i, j))
                values = _correlation(moments[i], moments[j], self._sums[PRODUCTS][:, column], self.n)
                yield self._entry(first, f"correlation with {second}", values, (-1, 1), None)

    def of_levels(self, place: int) -> Iterator[Entry]:
        """Yield the counts of a category's levels."""
        if COUNTS not in self.plan.statistics:
            return
        category, start = self.plan.levels[place], self._places[1][place]
        for offset, label in enumerate(category.labels):
            counts = self._sums[MOMENTS][:, start + offset]
            if len(category.labels) == 1:
                counts = (counts + self.n) / 2
            yield self._entry(category.name, f"count of {label}", counts, (0, self.n), self._sampled_count)

    def _sampled_count(self, counts: np.ndarray) -> np.ndarray:
        """Return the standard error of a count of this share of the population."""
        share = np.clip(counts / self.n, 0, 1)
        return np.sqrt(np.maximum(share * (1 - share), 1 / self.n) * self.n)

    def _entry(
        self,
        column: str,
        statistic: str,
        values: np.ndarray,
        within: tuple[float, float],
        error: Callable[[np.ndarray], np.ndarray] | None,
    ) -> Entry:
        """Return a number with the ends of its interval, which are held within what it may be."""
        plan, value = self.plan, float(values[0])
        if plan.level is None:
            return Entry(column, statistic, float(np.clip(value, *within)))
        if plan.target == "population":
            if error is None:
                return Entry(column, statistic, float(np.clip(value, *within)))
            values = values + error(values) * self._generator.standard_normal(len(values))
        rest = (1 - plan.level) / 2
        rest -= 2 * math.sqrt(rest * (1 - rest) / _DRAWS)  # draws err on the safe side, by two standard errors
        ends = np.quantile(values[1:], [max(rest, 0), 1 - max(rest, 0)], method="inverted_cdf")
        low, high = np.clip(np.nan_to_num(ends, nan=0.0), *within).tolist()
        return Entry(column, statistic, float(np.clip(value, *within)), low, high)


def _correlation(first: Any, second: Any, products: np.ndarray, n: int) -> np.ndarray:
    """Return correlations over all records, one for each draw; 0 where a number does not vary."""
    (total, _, squares), (other, _, others) = first, second
    covariance = products / n - total / n * other / n
    spread = np.sqrt(np.maximum(squares / n - (total / n) ** 2, 0) * np.maximum(others / n - (other / n) ** 2, 0))
    return np.clip(np.where(spread > 0, covariance / np.where(spread > 0, spread, 1.0), 0.0), -1, 1)


def description_plan(
    schema: Schema,
    n: int,
    budget: Budget,
    *,
    statistics: Sequence[str] | None = None,
    quantiles: Sequence[float] = _QUARTILES,
    bins: int = 20,
    level: float | None = 0.95,
    target: str = "sample",
) -> DescriptionPlan:
    """Plan a description: everything is decided by the schema and the number of records, and can be approved.

    Parameters are those of ``describe``.
    """
    whole = schema.plain()
    problem = Problem(Squared(1.0), whole.domain(), ridge=1.0, n=n, d=whole.d)
    asked = _USUAL if statistics is None else statistics
    if isinstance(asked, str) or not asked:
        raise TypeError(f"statistics must be a list out of {', '.join(STATISTICS)}, got {statistics!r}.")
    for share in quantiles:
        if not 0 < validate.number("quantiles", share) < 1:
            raise ValueError(f"quantiles must be shares in (0, 1), got {share!r}.")
    for name in asked:
        validate.choice("statistics", name, STATISTICS)
    listed = [name for name in STATISTICS if name in asked]
    shares = sorted({float(share) for share in quantiles})
    options = {"quantiles": shares, "bins": bins, "level": level, "target": target}
    return plan_description(problem, budget, *_columns(whole), statistics=listed, **options)


def _columns(schema: Schema) -> tuple[list[Number], list[Levels]]:
    """Return the columns with the places of their features."""
    numbers, levels, start = [], [], 0
    for name, column in schema.columns.items():
        if isinstance(column, Numeric):
            numbers.append(Number(name, column.low, column.high, start, start + 1 if column.missing else -1))
        else:
            labels = [str(value) for value in column.classes or ()] + ["missing"] * column.missing
            levels.append(Levels(name, start, tuple(labels[len(labels) - column.width :])))
        start += column.width
    return numbers, levels


def describe(
    schema: Schema,
    data: Any,
    budget: Budget | DescriptionPlan,
    *,
    statistics: Sequence[str] | None = None,
    quantiles: Sequence[float] = _QUARTILES,
    bins: int = 20,
    level: float | None = 0.95,
    target: str = "sample",
    ledger: Account | None = None,
    seed: int | None = None,
    checkpoint: str | Path | None = None,
    engine: str = "auto",
    on_step: Callable[[int], None] | None = None,
) -> Description:
    """Describe the columns of a table privately: a table of numbers with intervals, and a picture.

    Formal guarantee: without ``seed``, everything that is returned is private as ``plan.spending()`` says when one row
    of the table is replaced; the number of rows is public. A record is encoded by itself, within the declared ranges.

    Parameters
    ----------
    schema : Schema
        The declared columns: all of them are described as they are, the target among them. Numbers beyond their range
        count as its nearest end, and what is missing as its low end, unless the column has ``missing=True``.
    data : table
        As for ``Schema.encode``; or the path of a .csv or .parquet file.
    budget : Budget or DescriptionPlan
        What may be spent; or a plan that was approved, as ``epsteps.description_plan`` makes it.
    statistics : sequence of str, optional
        Out of "counts", "means", "deviations", "quantiles", "histograms" and "correlations"; by default all but
        histograms. The fewer, the more accurate: the budget is split over them by the root of how many numbers each
        releases.
    quantiles : sequence of float
        Shares below the quantiles of each number.
    bins : int
        Cells of a histogram.
    level : float, optional
        Of the intervals, 0.95 unless told; None buys none, and then quantiles are sharper.
    target : "sample" or "population"
        What the intervals are for: the records' own numbers, or those of the population that they are drawn from (for
        correlations there are none).
    ledger, seed, checkpoint, on_step
        As for :func:`epsteps.run`.
    engine : str
        As for :class:`epsteps.Rows`.
    """
    table = table_of(schema, data)
    plan: Any = budget
    if not hasattr(plan, "conversation"):  # and so it is no plan that was approved
        options = {"statistics": statistics, "quantiles": quantiles, "bins": bins, "level": level, "target": target}
        plan = description_plan(schema, len(next(iter(table.values()))), budget, **options)  # pyright: ignore[reportArgumentType]
    whole = schema.plain()
    if plan.problem.domain != whole.domain() or (plan.numbers, plan.levels) != tuple(map(tuple, _columns(whole))):
        raise ValueError("the plan is for other columns than those that the schema declares. Make it anew.")
    rows = Rows(plan.problem, whole.encode(table), np.zeros(plan.problem.n), engine=engine)
    result = run(plan, rows, seed=seed, ledger=ledger, checkpoint=checkpoint, on_step=on_step)
    return Description(plan, result.extras, result.seeded)


def _figure(description: Description) -> Any:
    plan = description.plan
    figure_class = validate.require("matplotlib.figure", "plots", "drawing a description").Figure
    panels = [*plan.numbers, *plan.levels] + [None] * (CORRELATIONS in plan.statistics and len(plan.numbers) > 1)
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = figure_class(figsize=(4 * columns, 2.6 * lines), layout="constrained")
    axes = np.ravel(figure.subplots(lines, columns, squeeze=False))
    for axis, panel in zip(axes, panels, strict=False):
        draw = partial(_draw_matrix, description) if panel is None else partial(_draw_column, description, panel.name)
        draw(axis)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    figure.suptitle(description._title, fontsize="medium")
    return figure


def _draw_column(description: Description, name: str, axis: Any) -> None:
    """Draw a column's numbers as points with their intervals; counts, where it has any, have the axis to themselves."""
    entries = [e for e in description.entries if e.column == name and not e.statistic.startswith("correlation")]
    counts = [e for e in entries if e.statistic.startswith(("count of", "from", "missing"))]
    values = [e for e in entries if e not in counts and e.statistic != "deviation"]
    shown = [e for e in counts if e.statistic != "missing"] or values
    for place, entry in enumerate(reversed(shown)):
        if entry.low is not None:
            axis.plot([entry.low, entry.high], [place, place], color="tab:blue", linewidth=2)
        axis.plot([entry.value], [place], "o", color="tab:blue", markersize=4)
    axis.set_yticks(range(len(shown)), [e.statistic.removeprefix("count of ") for e in reversed(shown)], fontsize=7)
    axis.set_title(name, fontsize="small")


def _draw_matrix(description: Description, axis: Any) -> None:
    names, matrix = description.correlations
    image = axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set_title("correlations", fontsize="small")
    axis.figure.colorbar(image, ax=axis)
