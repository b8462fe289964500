"""The reference for private sums: exact integers by NumPy, in blocks that stay in the processor's cache."""

import numpy as np

from epsteps import grid
from epsteps.engines import threads
from epsteps.grid import Grid, Points

# Bytes that a block of records and its margins may take: about half of a core's second-level cache.
_BLOCK_BYTES = 2**19


class DenseSums:
    """Exact sums over records on a grid (row-major float32 that holds integers).

    Every product and every partial sum is an integer that a double holds exactly, so that BLAS may add in any order.
    """

    def __init__(self, grid: Grid, features: np.ndarray, targets: np.ndarray) -> None:
        self._loss = grid.problem.loss
        self._features = np.ascontiguousarray(features, dtype=np.float32)
        self._targets = np.ascontiguousarray(targets, dtype=np.float32)

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows, for each point: integers."""
        features, targets = self._features, self._targets
        if rows is not None:
            features, targets = np.take(features, rows, axis=0), np.take(targets, rows)
        d, columns = points.coefficients.shape
        size = min(grid.ROWS_PER_DOUBLE, max(64, _BLOCK_BYTES // (8 * (d + 3 * columns))))

        def part(start: int, stop: int) -> np.ndarray:
            found = np.zeros((d, columns), dtype=np.int64)
            for i in range(start, stop, size):
                block = features[i : min(i + size, stop)].astype(float)
                found += self._block(block, targets[i : min(i + size, stop)], points)
            return found

        parts = threads.map_parts(part, len(features), work=columns, largest=grid.ROWS_PER_INT64)
        return grid.total(parts, len(features))

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

    def _block(self, block: np.ndarray, targets: np.ndarray, points: Points) -> np.ndarray:
        margins = (block @ points.coefficients) * points.step
        levels = self._loss.levels(margins, targets[:, None], points.bound)
        return (block.T @ levels.astype(float)).astype(np.int64)
