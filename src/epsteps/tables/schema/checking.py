"""The data holder's own look at a table: how many of its cells are outside what was declared."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from epsteps.data.values import shown
from epsteps.tables.schema import cells
from epsteps.tables.schema.columns import Column, Numeric

_EXAMPLES = 3


@dataclass(frozen=True)
class ColumnCheck:
    """Counts in a column: cells that are empty, not what was declared, or beyond the range. Not for publication."""

    name: str
    empty: int
    unknown: int
    below: int
    above: int
    examples: tuple[str, ...]

    @property
    def outside(self) -> int:
        """How many cells the schema would change into something else, empty ones apart."""
        return self.unknown + self.below + self.above


@dataclass(frozen=True)
class SchemaCheck:
    """Counts in all declared columns: for the data holder's own eyes, not for publication."""

    rows: int
    columns: tuple[ColumnCheck, ...]

    @property
    def any(self) -> bool:
        """Whether any cell that is not empty is outside what was declared."""
        return any(column.outside for column in self.columns)

    def __str__(self) -> str:
        lines = [f"{self.rows} rows"]
        for column in self.columns:
            counts = {"empty": column.empty, "unknown": column.unknown, "below": column.below, "above": column.above}
            found = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
            examples = f" ({', '.join(map(repr, column.examples))})" if column.examples else ""
            lines.append(f"  {column.name}: {found or 'all as declared'}{examples}")
        return "\n".join(lines)


def check_column(name: str, declared: Column, column: np.ndarray) -> ColumnCheck:
    """Count what of a column is outside what was declared; examples are the most frequent unknown values."""
    empty = cells.empty(column)
    if isinstance(declared, Numeric):
        values = cells.numbers(column)
        unknown = np.isnan(values) & ~empty
        below, above = int(np.sum(values < declared.low)), int(np.sum(values > declared.high))
    else:
        unknown, below, above = declared.unknown(column) & ~empty, 0, 0
    common = Counter(map(shown, column[unknown].tolist())).most_common(_EXAMPLES)
    return ColumnCheck(name, int(empty.sum()), int(unknown.sum()), below, above, tuple(text for text, _ in common))
