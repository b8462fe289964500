"""Sparse matrices in one form: CSR with sorted columns, and one entry for each place."""

from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array


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
        found: Any = compressed if matrix.format == "csr" else csr_array(compressed)
        if not found.has_canonical_format:
            rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
            found = _added_up(rows, found.indices, found.data, found.shape)
    else:
        entries = matrix.tocoo(copy=False)
        _require_inside(entries)
        found = _added_up(entries.row, entries.col, entries.data, entries.shape)
    return _sealed(found)


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
