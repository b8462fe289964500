"""Bounds of columns that nobody knows, bought with privacy budget and written into the schema with what they cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.budgets import Budget, Expense
from epsteps.data.rows import Rows
from epsteps.ledger.books import Account
from epsteps.methods.places import HIGH, LOW, NORM, BoundsPlan, apart, edges_of, places_on, plan_bounds
from epsteps.problem import validate
from epsteps.running.run import run
from epsteps.tables.columns import Column, Numeric, Unbounded, numbers, places_grid
from epsteps.tables.files import columns_of, hint
from epsteps.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class Bounds:
    """What was bought: ranges of columns, the schema that has them, and the plan that they came from.

    ``ranges`` has that of each column of which an end was bought. ``radius`` holds the norms of most of
    the records, where it was asked for. A seeded purchase is an experiment: nothing in it is private.
    """

    plan: BoundsPlan
    schema: Schema
    ranges: dict[str, tuple[float, float]]
    radius: float | None
    seeded: bool

    @property
    def expense(self) -> Expense:
        """What was bought and its cost, as a later plan of steps lists it."""
        return self.plan.expense

    @property
    def spent(self) -> Budget:
        """What it cost."""
        return self.plan.spending()

    def to_dict(self) -> dict[str, Any]:
        """Return ranges, radius and cost as plain values."""
        found = {name: {LOW: low, HIGH: high} for name, (low, high) in self.ranges.items()}
        return {"ranges": found, "radius": self.radius, "spent": self.spent.to_dict(), "private": not self.seeded}

    def __str__(self) -> str:
        private = "NOT PRIVATE: a seed makes the noise repeatable" if self.seeded else f"bought with {self.spent}"
        lines = [f"Bounds, {private}"]
        for name, ends in self.ranges.items():
            lines.append("  {}: from {:g} to {:g}".format(name, *ends))
        return "\n".join([*lines, *([] if self.radius is None else [f"  {NORM}: {self.radius:g}"])])


def bounds_plan(
    schema: Schema,
    n: int,
    budget: Budget,
    *,
    columns: Sequence[str] | None = None,
    quantiles: tuple[float, float] | None = None,
    norm: float | None = None,
) -> BoundsPlan:
    """Plan to buy bounds: everything is decided by the schema and the number of records, and can be approved.

    Parameters are those of ``buy_bounds``.
    """
    chosen = _chosen(schema, columns)
    if quantiles is not None:
        low, high = (validate.number("quantiles", share) for share in quantiles)
        if not 0 < low < high < 1:
            raise ValueError(f"quantiles must be two shares with 0 < low < high < 1, got {quantiles!r}.")
    grids = {name: places_grid(column) for name, column in chosen.items()}
    for name, edges in grids.items():
        if len(edges) < 3:
            raise ValueError(
                f"column {name!r} cannot have a narrower range: no edge of the public grid is inside. Leave it out."
            )
    ends = [(name, side) for name, column in chosen.items() for side in _wanted(column)]
    if norm is not None:
        if norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {norm!r}.")
        if NORM in schema.columns:
            raise ValueError(f"no column may have the name {NORM!r} where the norm is bought: rename it.")
        if not _normed(schema):
            raise ValueError("the schema has no feature that is a number: there is no norm of them to buy.")
        grids[NORM] = edges_of("number", 0.0, None)
        ends.append((NORM, HIGH))
    if not ends:
        raise ValueError(
            "there is nothing to buy: the schema has no column of unknown range. Name columns whose declared range is "
            "to be made narrower, columns=[...], or ask for norm=2."
        )
    return plan_bounds(budget, n, grids, ends, quantiles, norm=0 if norm is None else int(norm))


def buy_bounds(
    schema: Schema,
    data: Any,
    budget: Budget | BoundsPlan,
    *,
    columns: Sequence[str] | None = None,
    quantiles: tuple[float, float] | None = None,
    norm: float | None = None,
    ledger: Account | None = None,
    seed: int | None = None,
    checkpoint: str | Path | None = None,
    engine: str = "auto",
    on_step: Callable[[int], None] | None = None,
) -> Bounds:
    """Buy ranges of columns that nobody knows, for a part of the budget, and return the schema that has them.

    Each end is a quantile on a public grid, chosen by exact counts with exact noise. Columns of unknown range
    (``Unbounded``) get one; a declared range may be made narrower.

    Formal guarantee: without ``seed``, everything that is returned is private as ``plan.spending()`` says when one row
    of the table is replaced; the number of rows is public. A record is encoded by itself as places on public grids,
    whatever its cells hold.

    Parameters
    ----------
    schema : Schema
        The declared columns, the target among them.
    data : table
        As for ``Schema.encode``; or the path of a .csv or .parquet file.
    budget : Budget or BoundsPlan
        What may be spent; or a plan that was approved, as ``epsteps.bounds_plan`` makes it: then ``columns``,
        ``quantiles`` and ``norm`` are those of the plan.
    columns : sequence of str, optional
        The columns whose range is bought: by default all of unknown range. An end of a declared range is looked for
        inside it; one that is 0 is kept.
    quantiles : pair of shares, optional
        The shares of the records below the low and the high end. By default a hundredth is left out on each side, or
        as many as noise needs: then no empty cell beyond the records is likely to be chosen.
    norm : 1 or 2, optional
        Buy a radius that most of the records lie within, too: a quantile of the norms of all features that are numbers,
        in their own units, what is missing as 0.
    ledger, seed, checkpoint, on_step
        As for :func:`epsteps.run`.
    engine : str
        As for :class:`epsteps.Rows`.
    """
    asked = {"columns": columns, "quantiles": quantiles, "norm": norm}
    approved: Any = budget if hasattr(budget, "conversation") else None
    if approved is not None and any(value is not None for value in asked.values()):
        raise ValueError("columns, quantiles and norm are those of the plan: leave them out.")
    table = table_of(schema, data)
    plan: BoundsPlan = approved or bounds_plan(schema, len(next(iter(table.values()))), budget, **asked)  # pyright: ignore[reportArgumentType]
    _require_fitting(plan, schema)
    rows = Rows(plan.problem, encode(plan, schema, table), np.zeros(plan.problem.n), engine=engine)
    result = run(plan, rows, seed=seed, ledger=ledger, checkpoint=checkpoint, on_step=on_step)
    return _bought(plan, schema, result.path[0].tolist(), result.seeded)


def table_of(schema: Schema, data: Any, *, delimiter: str = ",") -> dict[str, np.ndarray]:
    """Return the declared columns of a table, or of a file; raise where there is none, or no row."""
    if hasattr(data, "execute"):
        raise TypeError(
            "bounds and descriptions are bought where the table is, by its holder; what can be posted to a data "
            "holder's service is a fit, or the evaluation of a model."
        )
    if isinstance(data, str | Path):
        return schema.load(data, delimiter=delimiter)
    table = columns_of(data, list(schema.columns))
    if not len(next(iter(table.values()))):
        raise ValueError("the table has no rows.")
    return table


def encode(plan: BoundsPlan, schema: Schema, table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the place of each cell on its column's grid, as a share of the cells: of each record by itself."""
    values = [_norms(plan, schema, table) if name == NORM else numbers(table[name]) for name in plan.names]
    shares = [places_on(edges, column) / (len(edges) - 1) for edges, column in zip(plan.grids, values, strict=True)]
    return np.column_stack(shares)


def _norms(plan: BoundsPlan, schema: Schema, table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the norm of each record's numbers; what is missing counts as 0. Columns are added up one by one."""
    total = np.zeros(plan.problem.n)
    with np.errstate(over="ignore"):
        for name in _normed(schema):
            size = np.abs(np.nan_to_num(numbers(table[name]), nan=0.0, posinf=np.inf, neginf=-np.inf))
            total += size if plan.norm == 1 else size * size
        return total if plan.norm == 1 else np.sqrt(total)


def _normed(schema: Schema) -> list[str]:
    return [name for name, column in schema.features.items() if column.classes is None]


def _chosen(schema: Schema, columns: Sequence[str] | None) -> dict[str, Numeric | Unbounded]:
    """Return the columns whose range is bought, or raise for names that are none."""
    if columns is None:
        return {name: column for name, column in schema.columns.items() if isinstance(column, Unbounded)}
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got {columns!r}.")
    chosen: dict[str, Numeric | Unbounded] = {}
    for name in columns:
        column: Column | None = schema.columns.get(name)
        if column is None:
            raise ValueError(f"there is no column {name!r} in the schema{hint(name, schema.columns)}")
        if not isinstance(column, Numeric | Unbounded):
            raise ValueError(f"column {name!r} has categories, and no range to buy. Leave it out.")
        if column.transformed:
            raise ValueError(
                f"column {name!r} has a transform, a clip or bins, which are declared for the range that it has: buy "
                "the range of the column without them, and declare them then."
            )
        chosen[name] = column
    return chosen


def _wanted(column: Numeric | Unbounded) -> list[str]:
    """Return the ends that are bought: those that are unknown; of a declared range those that are not 0."""
    ends = {LOW: column.low, HIGH: column.high}
    if isinstance(column, Unbounded):
        return [side for side, end in ends.items() if end is None]
    return [side for side, end in ends.items() if end != 0]


def _require_fitting(plan: BoundsPlan, schema: Schema) -> None:
    """Raise for a plan of other columns than the schema's, or of other grids."""
    for name, edges in zip(plan.names, plan.grids, strict=True):
        known = schema.columns.get(name)
        fits = isinstance(known, Numeric | Unbounded) and places_grid(known) == edges
        if name != NORM and not fits:
            raise ValueError(f"the plan is for another column {name!r} than the schema declares. Make it anew.")


def _bought(plan: BoundsPlan, schema: Schema, cells: Sequence[float], seeded: bool) -> Bounds:
    """Return what published cells say of the columns: post-processing."""
    found, ranges, known = plan.ranges(cells), {}, schema.columns
    _, radius = found.pop(NORM, (None, None))
    for name, (low, high) in found.items():
        column: Any = known[name]
        edges = places_grid(column)
        low, high = apart(edges, column.low if low is None else low, column.high if high is None else high)
        number = Numeric(low, high, column.missing)  # pyright: ignore[reportArgumentType]
        known[name], ranges[name] = number, (number.low, number.high)
    spent = (*schema.bought, plan.expense)
    bounded = Schema(known, schema.target, schema.interactions, schema.person, bought=spent)
    return Bounds(plan, bounded, ranges, radius, seeded)
