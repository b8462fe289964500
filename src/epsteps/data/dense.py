"""The reference engine: NumPy, in blocks that stay in the processor's cache, one pass over memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from epsteps.data.chunks import Chunk
from epsteps.data.engine import ArrayEngine, map_parts
from epsteps.data.slopes import Slopes, outer, side_by_side, stacked, steepest
from epsteps.problem import grid
from epsteps.problem.grid import Points

# Bytes that a block of records and its margins may take: about half of a core's second-level cache.
_BLOCK_BYTES = 2**19

_Term = Callable[[np.ndarray, Slopes], np.ndarray]


class Stored(NamedTuple):
    """Features, row by row, and the records' slopes."""

    features: np.ndarray
    slopes: Slopes


class DenseEngine(ArrayEngine, name="numpy"):
    """Sums over records in memory by NumPy.

    Whatever the records' kind, means are computed in float64. Of exact sums every product and every partial sum is an
    integer that a double holds exactly, so that BLAS may add in any order.
    """

    def _stored(self, features: np.ndarray, targets: np.ndarray, units: np.ndarray, *, exact: bool) -> Any:
        features = np.ascontiguousarray(features)
        targets = np.ascontiguousarray(targets, dtype=np.float32 if exact else float)
        return Stored(features, Slopes(self._problem.loss, targets, steepest(self._problem.clip, features, units)))

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        outputs = self._problem.loss.outputs
        points = side_by_side(x, outputs)

        def gradient(block: np.ndarray, slopes: Slopes) -> np.ndarray:
            return block.T @ slopes.derivative(block @ points)

        return stacked(self._mean(gradient, points, np.zeros(points.shape), rows), outputs, x.shape)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        points = side_by_side(x, self._problem.loss.outputs)

        def loss(block: np.ndarray, slopes: Slopes) -> np.ndarray:
            return slopes.total(block @ points).reshape(x.shape[1:])

        return self._mean(loss, points, np.zeros(x.shape[1:]))

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        points = side_by_side(x, self._problem.loss.outputs)

        def hessian(block: np.ndarray, slopes: Slopes) -> np.ndarray:
            return outer(slopes.second(block @ points), lambda weights: block.T @ (block * weights[:, None]))

        return self._mean(hessian, points, np.zeros((len(x), len(x))))

    def _mean(self, term: _Term, points: np.ndarray, zero: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Sum ``term`` over blocks of records, and divide by their number."""
        features, slopes = _taken(self._floats, rows)
        columns = 1 if points.ndim == 1 else points.shape[1]
        size = max(64, _BLOCK_BYTES // (8 * (features.shape[1] + 2 * columns)))

        def part(start: int, stop: int) -> np.ndarray:
            total = zero
            for i in range(start, stop, size):
                block = slice(i, min(i + size, stop))
                total = total + term(features[block].astype(float, copy=False), slopes[block])
            return total

        parts = map_parts(part, len(features), work=columns)
        return sum(parts, start=zero) / len(features)

    def _exact_sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        features, slopes = _taken(self._integers, rows)
        coefficients = side_by_side(points.coefficients, slopes.loss.outputs)
        d, columns = coefficients.shape
        size = min(grid.ROWS_PER_DOUBLE, max(512, _BLOCK_BYTES // (8 * (d + 3 * columns))))

        def part(start: int, stop: int) -> np.ndarray:
            total = np.zeros((d, columns), dtype=np.int64)
            for i in range(start, stop, size):
                end = min(i + size, stop)
                block = features[i:end].astype(float)
                total += (block.T @ slopes[i:end].levels(block @ coefficients, points)).astype(np.int64)
            return total

        parts = map_parts(part, len(features), work=columns, largest=grid.ROWS_PER_INT64)
        return stacked(grid.total(parts, len(features)), slopes.loss.outputs, points.coefficients.shape)

    def _chunk(self, rows: slice | np.ndarray) -> Chunk:
        stored = self._integers
        return Chunk(stored.features[rows], stored.slopes.targets[rows])


def _taken(stored: Stored, rows: np.ndarray | None) -> tuple[np.ndarray, Slopes]:
    """Return these rows, or all records."""
    if rows is None:
        return stored.features, stored.slopes
    return np.take(stored.features, rows, axis=0), stored.slopes[rows]
