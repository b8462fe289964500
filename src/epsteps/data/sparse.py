"""Sparse records: gradients from the stored entries alone, by SciPy; the intercept has no stored column."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from epsteps.data import encoding
from epsteps.data.chunks import RUN, Blocks, SparseChunk, Term, size_of
from epsteps.data.engine import ArrayEngine, allowed, map_parts, require_exact
from epsteps.data.slopes import Slopes, outer, side_by_side, stacked, steepest_sparse
from epsteps.problem import grid
from epsteps.problem.grid import STEPS, Points
from epsteps.problem.problem import Problem

# Coordinates above which a matrix of all their products is refused.
_LARGEST_MOMENT = 20_000
# Bytes of a sum above which there is one at a time, not one for each part of the records.
_LARGE_SUM = 2**24

_Term = Callable[[csr_array, Slopes], np.ndarray]


class SparseEngine(ArrayEngine):
    """Sums over sparse records (CSR with sorted columns and no duplicates, without the intercept's column).

    Whatever the records' kind, means are computed in float64. Of exact sums every product and every partial sum is an
    integer that a double holds exactly, so that any order will do.
    """

    name = "sparse"
    _projected = staticmethod(encoding.projected_sparse)
    _rounded = staticmethod(encoding.integers_sparse)

    def _stored(self, features: csr_array, targets: np.ndarray, units: np.ndarray, *, exact: bool) -> Any:
        one = (float(STEPS) if exact else 1.0) if self._problem.intercept else None
        most = steepest_sparse(self._problem.clip, features, one, units)
        slopes = Slopes(self._problem.loss, targets.astype(np.float32 if exact else float), most)
        return _SparseRows(features, slopes, one)

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        data = self._floats.taken(rows)
        points = side_by_side(x.reshape(len(x), -1), data.outputs)

        def gradient(block: csr_array, slopes: Slopes) -> np.ndarray:
            return data.gather(block, slopes.derivative(data.margins(block, points)))

        mean = np.sum(data.parts(gradient, np.zeros(points.shape)), axis=0) / len(data)
        return stacked(mean, data.outputs, x.shape).reshape(x.shape)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        data, columns = self._floats, x.reshape(len(x), -1)
        points = side_by_side(columns, data.outputs)

        def loss(block: csr_array, slopes: Slopes) -> np.ndarray:
            return slopes.total(data.margins(block, points))

        return (np.sum(data.parts(loss, np.zeros(columns.shape[1])), axis=0) / len(data)).reshape(x.shape[1:])

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point: a dense matrix."""
        data = self._floats
        points = side_by_side(x, data.outputs)
        _require_few("the Hessian", len(x))

        def hessian(block: csr_array, slopes: Slopes) -> np.ndarray:
            second = slopes.second(data.margins(block, points))
            return outer(second, lambda weights: data.weighted_products(block, weights))

        return np.sum(data.parts(hessian, np.zeros((len(x), len(x)))), axis=0) / len(data)

    def prepare(self) -> None:
        """Round the records to the grid, once sums over synthetic records in CSR have passed the test."""
        require_exact(_of_dense, self.name)
        _ = self._integers

    def _exact_sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        data = self._integers.taken(rows)
        coefficients = side_by_side(points.coefficients, data.outputs)

        def gradient(block: csr_array, slopes: Slopes) -> np.ndarray:
            return data.gather(block, slopes.levels(data.margins(block, coefficients), points)).astype(np.int64)

        zero = np.zeros(coefficients.shape, dtype=np.int64)
        return stacked(grid.total(data.parts(gradient, zero), len(data)), data.outputs, points.coefficients.shape)

    def _chunk_size(self, term: Term) -> int:
        if isinstance(term, Blocks):  # its chunks become dense
            return super()._chunk_size(term)
        return min(RUN, size_of(self._integers.entries * self._problem.loss.outputs, allowed()))

    def _chunk(self, rows: slice | np.ndarray) -> SparseChunk:
        return self._integers.chunk(rows)


def _of_dense(problem: Problem, features: np.ndarray, targets: np.ndarray) -> SparseEngine:
    """Return the engine over dense records, for the test that every engine has to pass."""
    return SparseEngine(problem, csr_array(features), targets)


def _require_few(what: str, d: int) -> None:
    if d > _LARGEST_MOMENT:
        raise ValueError(
            f"{what} of {d} features is a dense matrix of {d} x {d} numbers; it is computed for up to "
            f"{_LARGEST_MOMENT} features."
        )


class _SparseRows:
    """Rows in CSR with their slopes, in blocks; ``one`` is the intercept's value in every row, None without one."""

    def __init__(self, features: csr_array, slopes: Slopes, one: float | None) -> None:
        self._features: Any = features  # SciPy does not say what shape is
        self._slopes, self._one = slopes, one

    def __len__(self) -> int:
        return len(self._slopes)

    @property
    def outputs(self) -> int:
        """Number of margins of a row."""
        return self._slopes.loss.outputs

    @property
    def entries(self) -> int:
        """Stored entries of a row, about."""
        return 1 + self._features.nnz // len(self)

    def taken(self, rows: np.ndarray | None) -> "_SparseRows":
        """Return these rows, or all of them."""
        if rows is None:
            return self
        return _SparseRows(self._features[rows], self._slopes[rows], self._one)

    def chunk(self, rows: slice | np.ndarray) -> SparseChunk:
        """Return a few of the rows."""
        return SparseChunk(self._features[rows], self._slopes.targets[rows], self._one)

    def margins(self, block: csr_array, points: np.ndarray) -> np.ndarray:
        """Return the block's margins at each column."""
        if self._one is None:
            return block @ points
        return block @ points[:-1] + self._one * points[-1]

    def gather(self, block: csr_array, slopes: np.ndarray) -> np.ndarray:
        """Return the block's sum of slope x record for each column."""
        gathered = block.T @ slopes
        if self._one is None:
            return gathered
        return np.concatenate([gathered, self._one * slopes.sum(axis=0, keepdims=True)])

    def parts(self, term: _Term, zero: np.ndarray) -> list[np.ndarray]:
        """Return sums of ``term`` over parts of the rows, each small enough for integers of 64 bits."""

        def part(start: int, stop: int) -> np.ndarray:
            total = zero.copy()
            for i in range(start, stop, grid.ROWS_PER_DOUBLE):
                end = min(i + grid.ROWS_PER_DOUBLE, stop)
                total += term(self._block(i, end), self._slopes[i:end])
            return total

        count = len(self)
        if zero.nbytes > _LARGE_SUM:
            edges = [*range(0, count, grid.ROWS_PER_INT64), count]
            return list(map(part, edges[:-1], edges[1:]))
        return map_parts(part, count, work=self.entries * zero.shape[-1], largest=grid.ROWS_PER_INT64)

    def weighted_products(self, block: Any, weights: np.ndarray) -> np.ndarray:
        """Return the block's sum of weight x u u', the intercept's products included: a dense matrix."""
        products = (block.T @ block.multiply(weights[:, None])).toarray()
        if self._one is None:
            return products
        sums = self._one * (block.T @ weights)[:, None]
        return np.block([[products, sums], [sums.T, np.full((1, 1), self._one**2 * weights.sum())]])

    def _block(self, start: int, stop: int) -> Any:
        """Return a few rows in float64; their places are not copied."""
        matrix = self._features
        first, last = int(matrix.indptr[start]), int(matrix.indptr[stop])
        data = matrix.data[first:last].astype(float)
        places = matrix.indices[first:last], matrix.indptr[start : stop + 1] - first
        return csr_array((data, *places), shape=(stop - start, matrix.shape[1]))
