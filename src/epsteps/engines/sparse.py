"""Sparse records: gradients from the stored entries alone, by SciPy; the intercept has no stored column."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from epsteps import grid
from epsteps.engines import threads
from epsteps.grid import STEPS, Grid, Points
from epsteps.losses import Loss

# Features above which a matrix of all their products is refused.
_LARGEST_MOMENT = 20_000
# Bytes of a sum above which there is one at a time, not one for each part of the records.
_LARGE_SUM = 2**24

_Term = Callable[[csr_array, np.ndarray], np.ndarray]


class SparseEngine:
    """Mean gradient and loss of a linear model over sparse records (CSR, float64 or float32).

    Whatever the records' kind, everything is computed in float64.
    """

    def __init__(self, loss: Loss, features: csr_array, targets: np.ndarray, *, intercept: bool) -> None:
        self._loss, self._rows = loss, _SparseRows(features, targets.astype(float), 1.0 if intercept else None)

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        data, points = self._rows.taken(rows), x.reshape(len(x), -1)

        def gradient(block: csr_array, target: np.ndarray) -> np.ndarray:
            return data.gather(block, self._loss.derivative(data.margins(block, points), target))

        return (np.sum(data.parts(gradient, np.zeros(points.shape)), axis=0) / len(data)).reshape(x.shape)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        data, points = self._rows, x.reshape(len(x), -1)

        def loss(block: csr_array, target: np.ndarray) -> np.ndarray:
            return self._loss.total(data.margins(block, points), target)

        return (np.sum(data.parts(loss, np.zeros(points.shape[1])), axis=0) / len(data)).reshape(x.shape[1:])

    def second_moment(self) -> np.ndarray:
        """Return the mean of u u' over the records' features: a dense matrix."""
        return np.sum(self._rows.products(np.float64), axis=0) / len(self._rows)


class SparseSums:
    """Exact sums over sparse records on a grid (CSR in float32 that holds integers).

    Every product and every partial sum is an integer that a double holds exactly, so that any order will do.
    """

    def __init__(self, grid: Grid, features: csr_array, targets: np.ndarray) -> None:
        one = float(STEPS) if grid.problem.intercept else None
        self._loss, self._rows = grid.problem.loss, _SparseRows(features, targets.astype(np.float32), one)

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows, for each point: integers."""
        data = self._rows.taken(rows)

        def gradient(block: csr_array, target: np.ndarray) -> np.ndarray:
            margins = data.margins(block, points.coefficients) * points.step
            levels = self._loss.levels(margins, target, points.bound)
            return data.gather(block, levels.astype(float)).astype(np.int64)

        zero = np.zeros(points.coefficients.shape, dtype=np.int64)
        return grid.total(data.parts(gradient, zero), len(data))

    def second_moment(self) -> np.ndarray:
        """Return the sum of u u' over all records: a dense matrix of integers."""
        return grid.total(self._rows.products(np.int64), len(self._rows))


def sums_of_dense(grid: Grid, features: np.ndarray, targets: np.ndarray) -> SparseSums:
    """Return the sparse sums over dense integers, for the test that every engine has to pass."""
    return SparseSums(grid, csr_array(features), targets)


class _SparseRows:
    """Rows in CSR with their targets, in blocks; ``one`` is the intercept's value in every row, None without one."""

    def __init__(self, features: csr_array, targets: np.ndarray, one: float | None) -> None:
        self._features: Any = features  # SciPy does not say what shape is
        self._targets, self._one = targets, one

    def __len__(self) -> int:
        return len(self._targets)

    def taken(self, rows: np.ndarray | None) -> "_SparseRows":
        """Return these rows, or all of them."""
        if rows is None:
            return self
        return _SparseRows(self._features[rows], self._targets[rows], self._one)

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
            found = zero.copy()
            for i in range(start, stop, grid.ROWS_PER_DOUBLE):
                end = min(i + grid.ROWS_PER_DOUBLE, stop)
                found += term(self._block(i, end), self._targets[i:end, None])
            return found

        count = len(self)
        if zero.nbytes > _LARGE_SUM:
            edges = [*range(0, count, grid.ROWS_PER_INT64), count]
            return list(map(part, edges[:-1], edges[1:]))
        entries = 1 + self._features.nnz // count
        return threads.map_parts(part, count, work=entries * zero.shape[-1], largest=grid.ROWS_PER_INT64)

    def products(self, kind: type) -> list[np.ndarray]:
        """Return sums of u u' over parts of the rows."""
        d = self._features.shape[1]
        if d > _LARGEST_MOMENT:
            raise ValueError(
                f"the second moment of {d} features is a dense matrix of {d} x {d} numbers; it is computed for up to "
                f"{_LARGEST_MOMENT} features."
            )
        return [self._products(start, kind) for start in range(0, len(self), grid.ROWS_PER_INT64)]

    def _products(self, start: int, kind: type) -> np.ndarray:
        """Return the sum over the rows that follow ``start`` and fit 64 bits, the intercept's products included."""
        d, one = self._features.shape[1], self._one
        found = np.zeros((d + (one is not None),) * 2, dtype=kind)
        last = min(start + grid.ROWS_PER_INT64, len(self))
        for i in range(start, last, grid.ROWS_PER_DOUBLE):
            block = self._block(i, min(i + grid.ROWS_PER_DOUBLE, last))
            product = (block.T @ block).tocoo()
            found[product.row, product.col] += product.data.astype(kind)
            if one is not None:
                sums = (one * block.sum(axis=0)).astype(kind)
                found[:d, d] += sums
                found[d, :d] += sums
                found[d, d] += kind(one * one * block.shape[0])
        return found

    def _block(self, start: int, stop: int) -> Any:
        """Return a few rows in float64; their places are not copied."""
        matrix = self._features
        first, last = int(matrix.indptr[start]), int(matrix.indptr[stop])
        data = matrix.data[first:last].astype(float)
        places = matrix.indices[first:last], matrix.indptr[start : stop + 1] - first
        return csr_array((data, *places), shape=(stop - start, matrix.shape[1]))
