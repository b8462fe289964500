"""The reference engine: NumPy, in blocks that stay in the processor's cache, one pass over memory."""

from collections.abc import Iterator

import numpy as np

from epsteps.losses import Loss

# Bytes that a block of records and its margins may take: about half of a core's second-level cache.
_BLOCK_BYTES = 2**19


class DenseEngine:
    """Mean gradient and loss of a linear model over records in memory (row-major float64)."""

    def __init__(self, loss: Loss, features: np.ndarray, targets: np.ndarray) -> None:
        self._loss = loss
        self._features = np.ascontiguousarray(features, dtype=float)
        self._targets = np.ascontiguousarray(targets, dtype=float)

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        features, targets = self._features, self._targets
        if rows is not None:
            features, targets = np.take(features, rows, axis=0), np.take(targets, rows)
        total = np.zeros(x.shape)
        for block, target in self._blocks(features, targets, x):
            total += block.T @ self._loss.derivative(block @ x, target)
        return total / len(features)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        total = np.zeros(x.shape[1:])
        for block, target in self._blocks(self._features, self._targets, x):
            total += self._loss.value(block @ x, target).sum(axis=0)
        return total / len(self._features)

    @staticmethod
    def _blocks(features, targets, x) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        columns = 1 if x.ndim == 1 else x.shape[1]
        size = max(64, _BLOCK_BYTES // (8 * (features.shape[1] + 2 * columns)))
        targets = targets if x.ndim == 1 else targets[:, None]
        for start in range(0, len(features), size):
            yield features[start : start + size], targets[start : start + size]
