"""How values enter: anything array-like becomes numbers or text, and nothing that a cell holds surfaces.

A declared type is structure, and may be refused: the dtype of an array, the type of a data frame's column. Python's
lists and arrays of objects declare none. Their cells are converted one by one: what is no number is missing, NaN.
No cell raises, warns, or changes what becomes of another one. Nothing here writes to what it is given.
"""

import math
import warnings
from array import array as TypedArray
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array, issparse

from epsteps.problem.validate import require

Key = float | str
WORDS = {"true": 1.0, "false": 0.0}
# These have a type for all that they hold, or are no rows.
_NO_LISTS = (str, bytes, bytearray, memoryview, TypedArray)
NUMERIC = "biuf"
_CELLS = "OUST"
_PLAIN = {float, int, bool}
# Stands for a label that is no text, in an array of texts: a code point that no text has (Unicode, section 23.7).
NO_TEXT = "\uffff"
# Characters of a label that are read, so that a long one takes no memory.
_LABEL = 256


# Features and targets of any kind as arrays: numbers where their type says so, and otherwise cell by cell.


def matrix(values: Any, name: str = "X") -> Any:
    """Return features as an array or, if they are sparse, in CSR: in their own type if it is numeric or cannot be.

    Whoever calls refuses by shape and type what is still no numeric matrix. The array cannot be written to, and is that
    of the caller if it has numbers already.
    """
    entries = values if issparse(values) else sparse_matrix(values)
    if entries is not None:
        return canonical(entries)
    if is_list(values):
        return numbers(cell_matrix(name, values))
    if (columns := columns_of(values)) is not None:
        return _of_columns(columns, values)
    array = _plain(values)
    return numbers(array) if array.dtype.kind == "O" else array


def column(values: Any) -> np.ndarray:
    """Return targets as an array, of objects where no type is declared; it cannot be written to."""
    if is_list(values):
        return np.fromiter(values, dtype=object, count=len(values))
    array = array_of(values)
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
        labels = [NO_TEXT if text is None else text[:_LABEL] for text in map(text_of, array.ravel().tolist())]
    return np.array(labels, dtype=str).reshape(array.shape)


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
    kinds = {kind_of(column) for column in columns}
    if len(kinds) == 1 and isinstance(kind := kinds.pop(), np.dtype) and kind.kind in NUMERIC and kind.itemsize <= 8:
        return _plain(frame)
    features = np.empty((len(frame) if columns else 0, len(columns)))
    for place, column in enumerate(columns):
        features[:, place] = numbers(numeric_array(column))
    return features


# One cell as a number, as text, or as a key: whatever object it is, nothing in it raises.


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


# Python's lists: their lengths are structure, their cells are not.


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


# Columns of pandas, polars and pyarrow: their types are declared, and decide what becomes of them.


def columns_of(frame: Any) -> list[Any] | None:
    """Return the columns of a data frame, None if it is none."""
    library = _library(frame)
    if library == "pandas" and getattr(frame, "ndim", 0) == 2:
        return [frame.iloc[:, place] for place in range(frame.shape[1])]
    if library == "polars" and hasattr(type(frame), "get_columns"):
        return list(frame.get_columns())
    if library == "pyarrow" and hasattr(type(frame), "column_names"):
        return list(frame.columns)
    return None


def sparse_matrix(frame: Any) -> Any:
    """Return a pandas frame of sparse columns of numbers around 0 as a sparse matrix, None if it is none."""
    if _library(frame) != "pandas" or getattr(frame, "ndim", 0) != 2 or frame.shape[1] == 0:
        return None
    kinds = list(frame.dtypes)
    if all(getattr(kind, "fill_value", None) == 0 and kind.subtype.kind in "biuf" for kind in kinds):
        return frame.sparse.to_coo()
    return None


def kind_of(column: Any) -> Any:
    """Return the declared type of a column."""
    return column.dtype if hasattr(column, "dtype") else column.type


def numeric_array(column: Any) -> np.ndarray:
    """Return a column as numbers or as objects, or raise if its declared type has no numbers."""
    if not _may_hold_numbers(column):
        name = getattr(column, "name", None)
        which = "a column" if name is None else f"column {name!r}"
        raise TypeError(f"X must be numeric, got {which} of type {kind_of(column)}. Encode it before.")
    array = array_of(column)
    assert array is not None
    return array


def array_of(column: Any) -> np.ndarray | None:
    """Return a column as an array, None if it is no column of these libraries.

    Numbers are numbers, whether some are missing or not; texts and all that has no type of NumPy's are objects.
    """
    library = _library(column)
    if library == "pyarrow" and hasattr(type(column), "type"):
        return of_arrow(column)
    if library == "polars" and hasattr(type(column), "to_list"):
        return _of_polars(column)
    if library == "pandas" and hasattr(type(column), "dtype") and getattr(column, "ndim", 0) == 1:
        return _of_pandas(column)
    return None


def of_arrow(column: Any) -> np.ndarray:
    """Return a column of pyarrow as an array; bytes that are no text are replaced, not reported."""
    arrow: Any = require("pyarrow", "parquet", "a table of pyarrow's")
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
        return _of_bytes(column.cast(arrow.large_binary(), safe=False))
    try:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    except Exception:  # types that NumPy has no word for, or cells that Python has none for
        return np.fromiter(map(_as_python, column), dtype=object, count=len(column))


def _of_bytes(column: Any) -> np.ndarray:
    """Return texts, and one copy of equal ones; what is missing is None."""
    encoded = column.dictionary_encode()
    known = [None if cell is None else cell.decode(errors="replace") for cell in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    return np.fromiter([*known, None], dtype=object, count=len(known) + 1)[places]


def _as_python(cell: Any) -> Any:
    try:
        return cell.as_py()
    except Exception:
        return None


def _of_polars(column: Any) -> np.ndarray:
    if str(column.dtype).startswith("Decimal") or column.dtype.is_nested():
        return np.fromiter(column.to_list(), dtype=object, count=len(column))
    return np.asarray(column.to_numpy())


def _of_pandas(column: Any) -> np.ndarray:
    kind = column.dtype
    if isinstance(kind, np.dtype) or kind.kind in "Mm":
        return np.asarray(column)
    if kind.kind in "biuf":
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if hasattr(column.array, "__arrow_array__") and (hasattr(kind, "pyarrow_dtype") or hasattr(kind, "storage")):
        return of_arrow(column.array.__arrow_array__())
    return column.to_numpy(dtype=object)


def _may_hold_numbers(column: Any) -> bool:
    """Tell from a column's declared type whether its cells are numbers, or may be anything."""
    kind, library = kind_of(column), _library(column)
    if library == "pandas":
        if isinstance(kind, np.dtype):
            return kind.kind in "biufO"
        return kind.kind in "biuf" or kind.name == "category" or kind.type is Decimal
    if library == "polars":
        return kind.is_numeric() or str(kind) in ("Boolean", "Null", "Object")
    types = require("pyarrow", "parquet", "a table of pyarrow's").types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def _library(values: Any) -> str | None:
    """Return which library an object is of, by its type and those that it inherits from."""
    for base in type(values).__mro__:
        if (name := str(base.__module__).partition(".")[0]) in ("pandas", "polars", "pyarrow"):
            return name
    return None


# Sparse matrices in one form: CSR with sorted columns, and one entry for each place.


def canonical(matrix: Any) -> csr_array:
    """Return a sparse matrix as CSR whose indices are sound, sorted and unique.

    Entries that share a place are added up one after the other, in the order in which they are stored: what becomes of
    a row depends on that row alone, and is what ``toarray`` makes of it. The caller's matrix is not touched; its arrays
    are shared where nothing is to be done, and cannot be written to through the result.
    """
    if len(matrix.shape) != 2:
        raise ValueError(f"X must have two dimensions, got shape {matrix.shape}.")
    if matrix.dtype.kind not in "biufc":
        raise TypeError(f"X must be numeric, got dtype {matrix.dtype}. Encode text columns before.")
    if matrix.format in ("csr", "csc"):
        compressed: Any = csr_array(matrix) if matrix.format == "csr" else csc_array(matrix)
        _require_sound(compressed)
        rows_of_entries: Any = compressed if matrix.format == "csr" else csr_array(compressed)
        if not rows_of_entries.has_canonical_format:
            rows = np.repeat(np.arange(rows_of_entries.shape[0]), np.diff(rows_of_entries.indptr))
            rows_of_entries = _added_up(rows, rows_of_entries.indices, rows_of_entries.data, rows_of_entries.shape)
    else:
        entries = matrix.tocoo(copy=False)
        _require_inside(entries)
        rows_of_entries = _added_up(entries.row, entries.col, entries.data, entries.shape)
    return _sealed(rows_of_entries)


def _require_sound(matrix: Any) -> None:
    reason = None
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        reason = str(error)
    if reason is not None:
        raise ValueError(f"X is not a sound sparse matrix: {reason}.")


def _require_inside(entries: Any) -> None:
    for places, size, what in ((entries.row, entries.shape[0], "row"), (entries.col, entries.shape[1], "column")):
        if len(places) and not 0 <= places.min() <= places.max() < size:
            raise ValueError(f"X is not a sound sparse matrix: {what} indices must lie in 0..{size - 1}.")


@np.errstate(all="ignore")  # a warning would tell something about a record
def _added_up(rows: np.ndarray, columns: np.ndarray, data: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """Return entries as CSR. The order is stable: SciPy's own is not, and one row would decide for all others."""
    if shape[0] * shape[1] < 2**63:  # one number for each place is sorted much faster
        order = np.argsort(rows.astype(np.int64) * shape[1] + columns, kind="stable")
    else:
        order = np.lexsort((columns, rows))
    rows, columns, data = rows[order], columns[order], data[order]
    first = np.ones(len(data), dtype=bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    sums = np.zeros(np.count_nonzero(first), dtype=data.dtype)
    np.add.at(sums, np.cumsum(first) - 1, data)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=shape[0]))])
    return csr_array((sums, columns[first], starts), shape=shape)


def _sealed(matrix: Any) -> csr_array:
    """Return the matrix with arrays that cannot be written to; long doubles as doubles."""
    data = matrix.data
    if data.dtype.kind == "f" and data.itemsize > 8:
        with np.errstate(all="ignore"):
            data = data.astype(float)
    sealed = csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    for name in ("data", "indices", "indptr"):
        view = getattr(sealed, name).view()
        view.flags.writeable = False
        setattr(sealed, name, view)
    sealed.has_canonical_format = True
    return sealed
