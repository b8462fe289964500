"""Cells of a table as numbers or as keys of a codebook: nothing in them raises, and none depends on another.

Readers guess a column's type from all of its values, so that one odd value turns the numbers beside it into texts. Here
a number and its text are the same thing, 1 as well as 1.0, "1", "01" and True: what becomes of a cell depends on
that cell alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from epsteps.data import values
from epsteps.data.values import WORDS, Key, is_empty, key_of, numbers
from epsteps.data.values import parsed as parsed_text

_NUMERIC, _ANY = "biuf", "OUST"


def parsed(texts: Sequence[str]) -> np.ndarray:
    """Return what ``numbers`` does to a column of texts, fast where all of them are numbers."""
    try:
        return np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
    except ValueError:
        return np.fromiter(map(parsed_text, texts), dtype=np.float64, count=len(texts))


def places(column: np.ndarray, codebook: Mapping[Key, int]) -> np.ndarray:
    """Return each cell's place in the codebook, and -1 for what is missing or not in it."""
    if column.dtype.kind in _NUMERIC + "c":
        return _places_of_numbers(numbers(column), codebook)
    if column.dtype.kind not in _ANY:
        return np.full(len(column), -1)
    # Only texts are remembered: True equals 1 and their places might not.
    known: dict[str, int] = {}
    found = np.empty(len(column), dtype=np.int64)
    with values.quietly():
        for i, cell in enumerate(column.tolist()):
            if type(cell) is not str:
                found[i] = _place(cell, codebook)
            elif cell in known:
                found[i] = known[cell]
            else:
                found[i] = known[cell] = _place(cell, codebook)
    return found


def empty(column: np.ndarray) -> np.ndarray:
    """Mark the cells that hold nothing: None, NaN and the like, or blank text."""
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind in "Mm":
        return np.isnat(column)
    if column.dtype.kind not in _ANY:
        return np.zeros(len(column), dtype=bool)
    with values.quietly():
        return np.fromiter(map(is_empty, column.tolist()), dtype=bool, count=len(column))


def _place(cell: Any, codebook: Mapping[Key, int]) -> int:
    key = key_of(cell)
    return -1 if key is None else codebook.get(key, -1)


def _places_of_numbers(cells: np.ndarray, codebook: Mapping[Key, int]) -> np.ndarray:
    keys = np.array(sorted(key for key in codebook if isinstance(key, float)), dtype=np.float64)
    if len(keys) == 0:
        return np.full(len(cells), -1)
    places = np.array([codebook[key] for key in keys.tolist()])
    nearest = np.minimum(np.searchsorted(keys, cells), len(keys) - 1)
    return np.where(keys[nearest] == cells, places[nearest], -1)


__all__ = ["WORDS", "Key", "empty", "key_of", "numbers", "parsed", "places"]
