"""A first draft of a schema, read from the data: not private, and refused until a person has replaced what it found."""

from pathlib import Path
from typing import Any

import numpy as np

from epsteps.data.values import shown
from epsteps.tables import cells, notation
from epsteps.tables.columns import Category, Column, Numeric, checked_text
from epsteps.tables.files import read_columns
from epsteps.tables.frames import columns_of, hint, names_of

# A column is numeric if so many of its cells are numbers.
_NUMERIC_SHARE = 0.9
_MOST_CATEGORIES = 100
# Texts that often stand for a missing value.
_MISSING = {"", "?", "-", "na", "n/a", "nan", "null", "none", "missing", "."}
_WARNING = f"""\
# DRAFT, READ FROM THE DATA: NOT PRIVATE, AND NOT READY FOR USE.
#
# Every range and every category below was found in the records, so that this file tells about them. A guarantee holds
# only if they are public knowledge: the questions of a form, a codebook, the laws of nature. Replace each of them by
# what you would have written without this data (ages from 0 to 120, not from 17 to 90), delete the columns that you do
# not need, and then remove this line:
{notation.DRAFTED} = true
"""


def draft(source: Any, *, target: str | None = None, delimiter: str = ",") -> str:
    """Return TOML that a person can make a schema of: ranges and categories as they were found. NOT private.

    ``source`` is the path of a .csv or .parquet file, or a table. ``Schema.from_toml`` refuses the draft as long as it
    says ``drafted_from_data = true``.
    """
    if isinstance(source, str | Path):
        table = read_columns(source, delimiter=delimiter)
    else:
        table = columns_of(source, [str(name) for name in names_of(source) or []])
    if not table:
        raise ValueError("there is no table with named columns to draft a schema of.")
    if target is not None and target not in table:
        raise ValueError(f"there is no column {target!r} for the target{hint(target, table)}")
    lines = [_WARNING, '# target = "the column to predict"' if target is None else notation.target_line(target), ""]
    for name, column in table.items():
        lines += [*_drafted(checked_text("a column's name", name), column, name == target), ""]
    return "\n".join(lines)


def _drafted(name: str, column: np.ndarray, is_target: bool) -> list[str]:
    """Return the lines of a column, or a remark why it is left out."""
    blank = _blank(column)
    found, missing = column[~blank], bool(blank.any()) and not is_target
    values = cells.numbers(found)
    known = values[np.isfinite(values)]
    keys = _distinct(found)
    if len(keys) < 2:
        return [f"# {notation.heading(name)} left out: it has fewer than two different values."]
    if len(keys) > 2 and len(known) >= _NUMERIC_SHARE * len(found) and known.min() < known.max():
        missing |= len(known) < len(found) and not is_target
        return _lines(name, Numeric(float(known.min()), float(known.max()), missing), "range")
    if len(keys) > _MOST_CATEGORIES:
        return [f"# {notation.heading(name)} left out: it has {len(keys)} different values, too many for categories."]
    return _lines(name, Category(keys, missing), "categories")


def _lines(name: str, column: Column, what: str) -> list[str]:
    return [f"{notation.heading(name)}  # {what} READ FROM THE DATA: replace", *notation.lines_of(column)]


def _distinct(column: np.ndarray) -> list[Any]:
    """Return the different values in order: all numbers, or all text."""
    keys = {cells.key_of(cell): cell for cell in reversed(column.tolist())}
    keys.pop(None, None)
    if {shown(cell).strip().lower() for cell in keys.values()} == set(cells.WORDS):
        return [False, True]
    found = sorted(key for key in keys if isinstance(key, float) and np.isfinite(key))
    if len(found) == len(keys):
        return [int(key) if key.is_integer() and abs(key) < 2**53 else key for key in found]
    return sorted(shown(cell).strip() for cell in keys.values())


def _blank(column: np.ndarray) -> np.ndarray:
    """Mark the cells that are empty, or a text that says so."""
    words = [isinstance(cell, str) and cell.strip().lower() in _MISSING for cell in column.tolist()]
    return cells.empty(column) | np.array(words, dtype=bool)
