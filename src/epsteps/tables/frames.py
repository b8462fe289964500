"""Tables of pandas, polars, pyarrow and NumPy as columns of cells. Structure raises, what cells hold does not."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.data import values


def columns_of(frame: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return these columns of a table, each as a one-dimensional array, all of the same length."""
    if isinstance(frame, str | Path):
        raise TypeError(f"a table is needed, got the path {str(frame)!r}: read the file with load first.")
    if hasattr(type(frame), "collect") or hasattr(type(frame), "compute"):
        raise TypeError(f"{type(frame).__name__} is not in memory yet: call its collect() or compute() first.")
    if (listed := names_of(frame)) is None:
        return _of_array(frame, names)
    if not isinstance(frame, Mapping) and hasattr(type(frame), "column_names"):  # pyarrow
        found = {name: frame.column(place) for name, place in zip(names, places_of(listed, names), strict=True)}
    else:
        places_of(listed, names)
        found = {name: frame[name] for name in names}
    return _same_length({name: array_of(column, name) for name, column in found.items()})


def names_of(frame: Any) -> list[Any] | None:
    """Return the names of a table's columns; None if it has none."""
    if isinstance(frame, Mapping):
        return list(frame)
    for attribute in ("column_names", "columns"):
        if hasattr(type(frame), attribute):  # of the type, since pandas has an attribute for each column
            return list(getattr(frame, attribute))
    fields = getattr(getattr(frame, "dtype", None), "names", None)
    return None if fields is None else list(fields)


def places_of(listed: Sequence[Any], names: Iterable[str], where: str = "the table") -> list[int]:
    """Return where the names stand in the list, or raise if one is not there, or more than once."""
    places = []
    for name in names:
        if listed.count(name) > 1:
            raise ValueError(f"{where} has {listed.count(name)} columns {name!r}: rename all but one of them.")
        if name not in listed:
            raise ValueError(f"{where} has no column {name!r}{hint(name, listed)} It has {_shortened(listed)}.")
        places.append(listed.index(name))
    return places


def hint(name: str, options: Iterable[Any]) -> str:
    """Return the end of a sentence about a wrong name: the most similar right one."""
    texts = [option for option in options if isinstance(option, str)]
    folded = {text.strip().casefold(): text for text in texts}
    close = difflib.get_close_matches(name.strip().casefold(), folded, n=1)
    return f"; did you mean {folded[close[0]]!r}?" if close else "."


def array_of(column: Any, name: str = "the column") -> np.ndarray:
    """Return a column as a one-dimensional array; lists, cell by cell, so that no cell changes another's type."""
    array = values.column(column)
    if array.ndim != 1:
        raise ValueError(f"{name!r} must have one dimension, got shape {array.shape}.")
    return array


def _of_array(frame: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    if hasattr(frame, "tocsr"):
        raise TypeError("a sparse matrix holds numbers that need no schema: pass it to Rows, or make it dense.")
    array = values.cell_matrix("the table", frame) if values.is_list(frame) else values.column(frame)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(
            f"a table without names must have the {len(names)} declared columns, in their order, got shape "
            f"{array.shape}. Pass a data frame or a dict of columns, or declare the columns that there are."
        )
    return _same_length({name: array_of(array[:, place], name) for place, name in enumerate(names)})


def _same_length(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns must have the same length, got {sorted(lengths)}.")
    if lengths == {0}:
        raise ValueError("the table has no rows.")
    return columns


def _shortened(listed: Sequence[Any], most: int = 20) -> str:
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(map(repr, listed[:most])) + more if listed else "none"
