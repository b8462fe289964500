"""Raw features to what engines compute with: projected numbers for experiments, integers for private sums."""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from epsteps.data import values
from epsteps.data.chunks import Sized, heard
from epsteps.problem.grid import STEPS
from epsteps.problem.problem import Problem

# Numbers that are converted at a time: about what a core's second-level cache holds.
_BLOCK = 2**17


@np.errstate(all="ignore")  # a warning would tell something about a record
def projected(problem: Problem, features: np.ndarray) -> np.ndarray:
    """Return features in the domain, with the intercept's column.

    Features in float32 stay in float32, others become float64.
    """
    result = np.ones((len(features), problem.width), dtype=_float_kind(features.dtype))
    for block in _blocks(len(features), problem.d):
        result[block, : problem.d] = problem.domain.project(np.ascontiguousarray(features[block]))
    return result


def declared_targets(problem: Problem, targets: np.ndarray) -> np.ndarray:
    """Return targets of no declared type, Python's objects, cell by cell as what the loss takes: numbers, or text."""
    if targets.dtype.kind != "O":
        return targets
    return values.numbers(targets) if _takes_numbers(problem) else values.texts(targets)


def _takes_numbers(problem: Problem) -> bool:
    try:
        problem.loss.encode(np.empty(0))
    except (TypeError, ValueError):
        return False
    return True


@np.errstate(all="ignore")
def integers(problem: Problem, features: np.ndarray) -> np.ndarray:
    """Return features on the grid, with the intercept's column: integers in float32, exactly inside the domain.

    They depend on each row's values alone, not on how many rows there are or how they lie in memory; zeros have no
    sign.
    """
    result = np.empty((len(features), problem.width), dtype=np.float32)
    result[:, problem.d :] = STEPS
    for block in _blocks(len(features), problem.d):
        whole = problem.domain.integers(np.ascontiguousarray(features[block]), STEPS)
        np.add(whole, 0.0, out=result[block, : problem.d], casting="same_kind")
    return result


@np.errstate(all="ignore")
def projected_sparse(problem: Problem, features: csr_array) -> csr_array:
    """Return what ``projected`` does, as a sparse matrix with the same places, without the intercept's column."""
    result = np.empty(features.nnz, dtype=_float_kind(features.dtype))
    for part, starts in _entry_blocks(features.indptr):
        result[part] = problem.domain.project_entries(features.data[part], features.indices[part], starts, problem.d)
    return _with_data(features, result)


@np.errstate(all="ignore")
def integers_sparse(problem: Problem, features: csr_array) -> csr_array:
    """Return what ``integers`` does, as a sparse matrix with the same places, without the intercept's column."""
    result = np.empty(features.nnz, dtype=np.float32)
    for part, starts in _entry_blocks(features.indptr):
        entries, columns = features.data[part], features.indices[part]
        result[part] = problem.domain.integer_entries(entries, columns, starts, problem.d, STEPS)
    return _with_data(features, result)


def _float_kind(kind: np.dtype) -> type:
    return np.float32 if kind == np.float32 else np.float64


def _with_data(matrix: csr_array, data: np.ndarray) -> csr_array:
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _blocks(count: int, d: int) -> Iterator[slice]:
    size = max(1, _BLOCK // d)
    return (block for _, block in heard(((size, slice(i, i + size)) for i in range(0, count, size)), count))


def _entry_blocks(indptr: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Return the entries of a few rows at a time, and where among them each row starts."""
    count = len(indptr) - 1

    def sized() -> Sized[tuple[slice, np.ndarray]]:
        row = 0
        while row < count:
            stop = int(np.searchsorted(indptr, indptr[row] + _BLOCK, side="right")) - 1
            stop = min(max(stop, row + 1), row + _BLOCK, count)
            yield stop - row, (slice(int(indptr[row]), int(indptr[stop])), indptr[row : stop + 1] - indptr[row])
            row = stop

    return (block for _, block in heard(sized(), count))
