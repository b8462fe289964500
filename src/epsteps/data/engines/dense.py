"""The reference engine: NumPy, in blocks that stay in the processor's cache, one pass over memory."""

from collections.abc import Callable

import numpy as np

from epsteps.data.engines import threads
from epsteps.data.engines.slopes import Slopes, outer, side_by_side, stacked, steepest
from epsteps.problem.losses import Loss

# Bytes that a block of records and its margins may take: about half of a core's second-level cache.
_BLOCK_BYTES = 2**19

_Term = Callable[[np.ndarray, Slopes], np.ndarray]


class DenseEngine:
    """Mean gradient, loss and Hessian of a linear model over records in memory (row-major, float64 or float32).

    Whatever the records' kind, everything is computed in float64. ``clip`` is the norm that the records' gradients are
    clipped to, if any; losses and Hessians are those of the loss itself.
    """

    def __init__(self, loss: Loss, features: np.ndarray, targets: np.ndarray, *, clip: float | None = None) -> None:
        self._features = np.ascontiguousarray(features)
        most = steepest(clip, self._features, np.ones(features.shape[1]))
        self._slopes = Slopes(loss, np.ascontiguousarray(targets, dtype=float), most)

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        outputs = self._slopes.loss.outputs
        points = side_by_side(x, outputs)

        def gradient(block: np.ndarray, slopes: Slopes) -> np.ndarray:
            return block.T @ slopes.derivative(block @ points)

        return stacked(self._mean(gradient, points, np.zeros(points.shape), rows), outputs, x.shape)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        points = side_by_side(x, self._slopes.loss.outputs)

        def loss(block: np.ndarray, slopes: Slopes) -> np.ndarray:
            return slopes.total(block @ points).reshape(x.shape[1:])

        return self._mean(loss, points, np.zeros(x.shape[1:]))

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        points = side_by_side(x, self._slopes.loss.outputs)

        def hessian(block: np.ndarray, slopes: Slopes) -> np.ndarray:
            return outer(slopes.second(block @ points), lambda weights: block.T @ (block * weights[:, None]))

        return self._mean(hessian, points, np.zeros((len(x), len(x))))

    def _mean(self, term: _Term, points: np.ndarray, zero: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Sum ``term`` over blocks of records, and divide by their number."""
        features, slopes = self._features, self._slopes
        if rows is not None:
            features, slopes = np.take(features, rows, axis=0), slopes[rows]
        columns = 1 if points.ndim == 1 else points.shape[1]
        size = max(64, _BLOCK_BYTES // (8 * (features.shape[1] + 2 * columns)))

        def part(start: int, stop: int) -> np.ndarray:
            total = zero
            for i in range(start, stop, size):
                block = slice(i, min(i + size, stop))
                total = total + term(features[block].astype(float, copy=False), slopes[block])
            return total

        parts = threads.map_parts(part, len(features), work=columns)
        return sum(parts, start=zero) / len(features)
