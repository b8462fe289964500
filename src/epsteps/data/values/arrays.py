"""Features and targets of any kind as arrays: numbers where their type says so, and otherwise cell by cell."""

from contextlib import suppress
from typing import Any

import numpy as np
from scipy.sparse import issparse

from epsteps.data.values import frames
from epsteps.data.values.rows import cell_matrix, is_list
from epsteps.data.values.scalars import number_of, quietly, text_of
from epsteps.data.values.sparse import canonical

NUMERIC = "biuf"
_CELLS = "OUST"
_PLAIN = {float, int, bool}
# Stands for a label that is no text, in an array of texts: a code point that no text has (Unicode, section 23.7).
NO_TEXT = "\uffff"
# Characters of a label that are read, so that a long one takes no memory.
_LABEL = 256


def matrix(values: Any, name: str = "X") -> Any:
    """Return features as an array or, if they are sparse, in CSR: in their own type if it is numeric or cannot be.

    Whoever calls refuses by shape and type what is still no numeric matrix. The array cannot be written to, and is that
    of the caller if it has numbers already.
    """
    entries = values if issparse(values) else frames.sparse_matrix(values)
    if entries is not None:
        return canonical(entries)
    if is_list(values):
        return numbers(cell_matrix(name, values))
    if (columns := frames.columns_of(values)) is not None:
        return _of_columns(columns, values)
    array = _plain(values)
    return numbers(array) if array.dtype.kind == "O" else array


def column(values: Any) -> np.ndarray:
    """Return targets as an array, of objects where no type is declared; it cannot be written to."""
    if is_list(values):
        return np.fromiter(values, dtype=object, count=len(values))
    array = frames.array_of(values)
    return _plain(values if array is None else array)


def numbers(array: np.ndarray) -> np.ndarray:
    """Return cells as float64: NaN for what is missing or no number, an infinity for what is too large."""
    kind = array.dtype.kind
    with quietly():
        if kind in NUMERIC:
            return array.astype(np.float64)
        if kind == "c":
            return np.where(np.imag(array) == 0, np.real(array), np.nan).astype(np.float64)
        if kind in _CELLS:
            return _numbers_of(array.ravel().tolist()).reshape(array.shape)
    return np.full(array.shape, np.nan)


def _numbers_of(cells: list[Any]) -> np.ndarray:
    """Return cells as numbers, fast where all of them are Python's own."""
    with suppress(Exception):  # an integer that no float holds, or a type that has no hash
        if set(map(type, cells)) <= _PLAIN:
            return np.fromiter(cells, dtype=np.float64, count=len(cells))
    return np.fromiter(map(number_of, cells), dtype=np.float64, count=len(cells))


def texts(array: np.ndarray) -> np.ndarray:
    """Return cells as text, long ones cut; what is no text becomes one that is no label."""
    with quietly():
        found = [NO_TEXT if text is None else text[:_LABEL] for text in map(text_of, array.ravel().tolist())]
    return np.array(found, dtype=str).reshape(array.shape)


def _plain(values: Any) -> np.ndarray:
    """Return an array that cannot be written to, long doubles as doubles; a masked cell is a missing one."""
    if isinstance(values, np.ma.MaskedArray):
        return _of_masked(values)
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.itemsize > 8:
        return numbers(array)
    view = array.view()
    view.flags.writeable = False
    return view


def _of_masked(values: np.ma.MaskedArray) -> np.ndarray:
    mask, data = np.ma.getmaskarray(values), np.ma.getdata(values)
    if data.dtype.kind in NUMERIC:
        return np.where(mask, np.nan, numbers(data))
    cells = data.astype(object)
    cells[mask] = None
    return cells


def _of_columns(columns: list[Any], frame: Any) -> np.ndarray:
    """Return a data frame as a matrix: float32 if all columns are, in its own array if it has one, or else float64."""
    kinds = {frames.kind_of(column) for column in columns}
    if len(kinds) == 1 and isinstance(kind := kinds.pop(), np.dtype) and kind.kind in NUMERIC and kind.itemsize <= 8:
        return _plain(frame)
    found = np.empty((len(frame) if columns else 0, len(columns)))
    for place, column in enumerate(columns):
        found[:, place] = numbers(frames.numeric_array(column))
    return found
