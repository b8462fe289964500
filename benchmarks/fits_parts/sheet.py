"""A table of results, for the terminal and for Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass
class Sheet:
    """A title, columns, rows of text, and what a reader must know besides."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        """Add a row: floats in three digits; where there are too few cells the last ones stay empty."""
        texts = [f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells]
        self.rows.append(texts + [""] * (len(self.columns) - len(texts)))

    def show(self, console: Console) -> None:
        """Print the table."""
        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)
        for note in self.notes:
            console.print(note, style="dim", markup=False)

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return "\n\n".join([f"## {self.title}", text, *self.notes]) + "\n"


def megabytes(count: float) -> str:
    """Return bytes in whole megabytes."""
    return f"{count / 1e6:.0f}"


def verdict(value: float, bar: float) -> str:
    """Return a bar, and whether a value is below it."""
    return f"{'meets' if value <= bar else 'MISSES'} {bar:.3g}"
