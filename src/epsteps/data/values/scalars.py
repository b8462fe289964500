"""One cell as a number, as text, or as a key: whatever object it is, nothing in it raises."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

Key = float | str
WORDS = {"true": 1.0, "false": 0.0}


@contextmanager
def quietly() -> Iterator[None]:
    """Silence warnings, for whole columns whatever they hold: one would tell something about a record."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def number_of(cell: Any) -> float:
    """Return a cell as a number: NaN where it is none, an infinity where it is too large for a float."""
    if type(cell) is float:
        return cell
    try:
        return _number(cell)
    except Exception:  # whatever the methods of an object in a cell raise
        return math.nan


def text_of(cell: Any) -> str | None:
    """Return a cell's text, and None where it is no text."""
    try:
        if isinstance(cell, str):
            return str.__str__(cell)
        return bytes.decode(cell, errors="replace") if isinstance(cell, bytes) else None
    except Exception:
        return None


def key_of(cell: Any) -> Key | None:
    """Return what a cell is looked up by: a number if it is one, or else its text; None if it is missing."""
    value = number_of(cell)
    if not math.isnan(value):
        return value
    text = (text_of(cell) or "").strip()
    return None if not text or _reads_as_nan(text) else text


def is_empty(cell: Any) -> bool:
    """Tell whether a cell holds nothing: None, NaN and the like, or blank text."""
    text = text_of(cell)
    if text is not None:
        return not text.strip()
    try:
        if isinstance(cell, Real | Decimal):
            return math.isnan(number_of(cell))
    except Exception:
        return False
    return cell is None or shown(cell) in ("<NA>", "NaT")


def shown(cell: Any) -> str:
    """Return a cell as its holder would read it; what cannot be written is the name of its type."""
    try:
        return str.__str__(str(cell))
    except Exception:
        return type(cell).__name__


def parsed(text: str) -> float:
    """Return a text as a number: NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return WORDS.get(text.strip().lower(), math.nan)


def _number(cell: Any) -> float:
    if isinstance(cell, str | bytes):
        text = text_of(cell)
        return math.nan if text is None else parsed(text)
    if isinstance(cell, complex | np.complexfloating):
        cell = cell.real if cell.imag == 0 else math.nan
    if not isinstance(cell, Real | Decimal | np.bool_) or isinstance(cell, np.timedelta64):
        return math.nan
    try:
        return float(cell)
    except OverflowError:
        return _infinity(cell)


def _infinity(cell: Any) -> float:
    return math.inf if cell > 0 else -math.inf


def _reads_as_nan(text: str) -> bool:
    try:
        return math.isnan(float(text))
    except ValueError:
        return False
