"""Columns of pandas, polars and pyarrow: their types are declared, and decide what becomes of them."""

from decimal import Decimal
from typing import Any

import numpy as np

from epsteps.problem.extras import require


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
