"""The reference engine: NumPy, in blocks that stay in the processor's cache, one pass over memory."""

from collections.abc import Callable

import numpy as np

from epsteps.engines import threads
from epsteps.losses import Loss

# Bytes that a block of records and its margins may take: about half of a core's second-level cache.
_BLOCK_BYTES = 2**19

_Term = Callable[[np.ndarray, np.ndarray], np.ndarray]


class DenseEngine:
    """Mean gradient and loss of a linear model over records in memory (row-major, float64 or float32).

    Whatever the records' kind, everything is computed in float64.
    """

    def __init__(self, loss: Loss, features: np.ndarray, targets: np.ndarray) -> None:
        self._loss = loss
        self._features = np.ascontiguousarray(features)
        self._targets = np.ascontiguousarray(targets, dtype=float)

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""

        def gradient(block: np.ndarray, target: np.ndarray) -> np.ndarray:
            return block.T @ self._loss.derivative(block @ x, target)

        return self._mean(gradient, x, np.zeros(x.shape), rows)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""

        def loss(block: np.ndarray, target: np.ndarray) -> np.ndarray:
            return self._loss.total(block @ x, target)

        return self._mean(loss, x, np.zeros(x.shape[1:]))

    def second_moment(self) -> np.ndarray:
        """Return the mean of u u' over the records' features."""

        def moment(block: np.ndarray, _: np.ndarray) -> np.ndarray:
            return block.T @ block

        d = self._features.shape[1]
        return self._mean(moment, np.zeros(d), np.zeros((d, d)))

    def _mean(self, term: _Term, x: np.ndarray, zero: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Sum ``term`` over blocks of records, and divide by their number."""
        features, targets = self._features, self._targets
        if rows is not None:
            features, targets = np.take(features, rows, axis=0), np.take(targets, rows)
        columns = 1 if x.ndim == 1 else x.shape[1]
        targets = targets if x.ndim == 1 else targets[:, None]
        size = max(64, _BLOCK_BYTES // (8 * (features.shape[1] + 2 * columns)))

        def part(start: int, stop: int) -> np.ndarray:
            total = zero
            for i in range(start, stop, size):
                block = slice(i, min(i + size, stop))
                total = total + term(features[block].astype(float, copy=False), targets[block])
            return total

        parts = threads.map_parts(part, len(features), work=columns)
        return sum(parts, start=zero) / len(features)
