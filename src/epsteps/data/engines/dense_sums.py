"""The reference for private sums: exact integers by NumPy, in blocks that stay in the processor's cache."""

import numpy as np

from epsteps.data.engines import threads
from epsteps.data.engines.slopes import Slopes, side_by_side, stacked, steepest
from epsteps.problem import grid
from epsteps.problem.grid import STEPS, Grid, Points

# Bytes that a block of records and its margins may take: about half of a core's second-level cache.
_BLOCK_BYTES = 2**19


class DenseSums:
    """Exact sums over records on a grid (row-major float32 that holds integers).

    Every product and every partial sum is an integer that a double holds exactly, so that BLAS may add in any order.
    """

    def __init__(self, grid: Grid, features: np.ndarray, targets: np.ndarray) -> None:
        problem, units = grid.problem, grid.units[: features.shape[1]] / STEPS
        self._features = np.ascontiguousarray(features, dtype=np.float32)
        most = steepest(problem.clip, self._features, units)
        self._slopes = Slopes(problem.loss, np.ascontiguousarray(targets, dtype=np.float32), most)

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows, for each point: integers."""
        features, slopes = self._features, self._slopes
        if rows is not None:
            features, slopes = np.take(features, rows, axis=0), slopes[rows]
        coefficients = side_by_side(points.coefficients, slopes.loss.outputs)
        d, columns = coefficients.shape
        size = min(grid.ROWS_PER_DOUBLE, max(64, _BLOCK_BYTES // (8 * (d + 3 * columns))))

        def part(start: int, stop: int) -> np.ndarray:
            found = np.zeros((d, columns), dtype=np.int64)
            for i in range(start, stop, size):
                end = min(i + size, stop)
                block = features[i:end].astype(float)
                found += (block.T @ slopes[i:end].levels(block @ coefficients, points)).astype(np.int64)
            return found

        parts = threads.map_parts(part, len(features), work=columns, largest=grid.ROWS_PER_INT64)
        return stacked(grid.total(parts, len(features)), slopes.loss.outputs, points.coefficients.shape)

    def second_moment(self) -> np.ndarray:
        """Return the sum of u u' over all records: integers."""
        features = self._features

        def part(start: int, stop: int) -> np.ndarray:
            found = np.zeros((features.shape[1],) * 2, dtype=np.int64)
            for i in range(start, stop, grid.ROWS_PER_DOUBLE):
                block = features[i : min(i + grid.ROWS_PER_DOUBLE, stop)].astype(float)
                found += (block.T @ block).astype(np.int64)
            return found

        parts = threads.map_parts(part, len(features), work=features.shape[1], largest=grid.ROWS_PER_INT64)
        return grid.total(parts, len(features))
