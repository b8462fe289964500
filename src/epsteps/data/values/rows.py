"""Python's lists: their lengths are structure, their cells are not."""

from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

# These have a type for all that they hold, or are no rows.
_NO_LISTS = (str, bytes, bytearray, memoryview, array)


def is_list(values: Any) -> bool:
    """Tell whether this is a list, or something like it that declares no type of what it holds."""
    if isinstance(values, list | tuple):
        return True
    return isinstance(values, Sequence) and not isinstance(values, _NO_LISTS) and not hasattr(values, "__array__")


def cell_matrix(name: str, values: Sequence[Any]) -> np.ndarray:
    """Return a list of rows as a matrix of objects, or raise unless all rows have the same number of cells."""
    rows = [_cells(row) for row in values]
    if any(row is None for row in rows):
        raise ValueError(f"{name} must have two dimensions: a list of rows, each of them a list of cells.")
    lengths = sorted({len(row) for row in rows if row is not None})
    if len(lengths) > 1:
        raise ValueError(
            f"{name} must have rows of the same length, got some of {lengths[0]} and some of {lengths[-1]} cells."
        )
    width = lengths[0] if lengths else 0
    cells = (cell for row in rows if row is not None for cell in row)
    return np.fromiter(cells, dtype=object, count=len(rows) * width).reshape(len(rows), width)


def _cells(row: Any) -> Sequence[Any] | None:
    """Return the cells of a row; None if it is no row."""
    if type(row) in (list, tuple):
        return row
    if isinstance(row, np.ndarray):
        return row.tolist() if row.ndim == 1 else None
    try:
        if isinstance(row, Iterable) and not isinstance(row, Mapping | Set | str | bytes):
            return list(row)
    except Exception:  # what is in place of a row has methods of its own
        return None
    return None
