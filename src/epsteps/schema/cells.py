"""Cells of a table as numbers or as keys of a codebook: nothing in them raises, and none depends on another.

Readers guess a column's type from all of its values, so that one odd value turns the numbers beside it into texts. Here
a number and its text are the same thing, 1 as well as 1.0, "1", "01" and True: what becomes of a cell depends on
that cell alone.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

Key = float | str
_NUMERIC, _ANY = "biuf", "OUST"
WORDS = {"true": 1.0, "false": 0.0}


def numbers(column: np.ndarray) -> np.ndarray:
    """Return the cells as float64: NaN for what is missing or no number, an infinity for what is too large."""
    if column.dtype.kind in _NUMERIC:
        with np.errstate(all="ignore"):
            return column.astype(np.float64)
    if column.dtype.kind == "c":
        return np.where(np.imag(column) == 0, np.real(column), np.nan)
    if column.dtype.kind in _ANY:
        return np.fromiter(map(number_of, column.tolist()), dtype=np.float64, count=len(column))
    return np.full(len(column), np.nan)


def parsed(texts: Sequence[str]) -> np.ndarray:
    """Return what ``numbers`` does to a column of texts, fast where all of them are numbers."""
    try:
        return np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
    except ValueError:
        return np.fromiter(map(_parsed, texts), dtype=np.float64, count=len(texts))


def places(column: np.ndarray, codebook: Mapping[Key, int]) -> np.ndarray:
    """Return each cell's place in the codebook, and -1 for what is missing or not in it."""
    if column.dtype.kind in _NUMERIC + "c":
        return _places_of_numbers(numbers(column), codebook)
    if column.dtype.kind not in _ANY:
        return np.full(len(column), -1)
    # Only texts are remembered: True equals 1 and their places might not.
    known: dict[str, int] = {}
    found = np.empty(len(column), dtype=np.int64)
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
    return np.fromiter(map(_is_empty, column.tolist()), dtype=bool, count=len(column))


def number_of(cell: Any) -> float:
    """Return a cell as a number: NaN where it is none."""
    if type(cell) is float:
        return cell
    if isinstance(cell, str | bytes):
        return _parsed(_text(cell))
    if isinstance(cell, complex | np.complexfloating) and cell.imag == 0:
        return float(cell.real)
    if not isinstance(cell, Real | Decimal | np.bool_) or isinstance(cell, np.timedelta64):
        return math.nan
    try:
        return float(cell)
    except OverflowError:
        return _infinity(cell)
    except (TypeError, ValueError, ArithmeticError):
        return math.nan


def key_of(cell: Any) -> Key | None:
    """Return what a cell is looked up by: a number if it is one, or else its text; None if it is missing."""
    value = number_of(cell)
    if not math.isnan(value):
        return value
    if not isinstance(cell, str | bytes):
        return None
    text = _text(cell).strip()
    return None if not text or _reads_as_nan(text) else text


def _place(cell: Any, codebook: Mapping[Key, int]) -> int:
    key = key_of(cell)
    return -1 if key is None else codebook.get(key, -1)


def _places_of_numbers(values: np.ndarray, codebook: Mapping[Key, int]) -> np.ndarray:
    keys = np.array(sorted(key for key in codebook if isinstance(key, float)), dtype=np.float64)
    if len(keys) == 0:
        return np.full(len(values), -1)
    places = np.array([codebook[key] for key in keys.tolist()])
    nearest = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return np.where(keys[nearest] == values, places[nearest], -1)


def _parsed(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return WORDS.get(text.strip().lower(), math.nan)


def _infinity(cell: Any) -> float:
    return math.inf if cell > 0 else -math.inf


def _text(cell: str | bytes) -> str:
    return cell.decode(errors="replace") if isinstance(cell, bytes) else cell


def _reads_as_nan(text: str) -> bool:
    try:
        return math.isnan(float(text))
    except ValueError:
        return False


def _is_empty(cell: Any) -> bool:
    if isinstance(cell, str | bytes):
        return not cell.strip()
    if isinstance(cell, Real | Decimal):
        return math.isnan(number_of(cell))
    return cell is None or str(cell) in ("<NA>", "NaT")
