"""The reference engine: NumPy, in blocks that stay in the processor's cache, one pass over memory."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from epsteps.losses import Loss

# Bytes that a block of records and its margins may take: about half of a core's second-level cache.
_BLOCK_BYTES = 2**19
# Sums are taken over this many parts of the records, so that results do not depend on the number of threads.
_PARTS = 8
# Margins below which starting threads costs more than it saves.
_WORTH_THREADS = 1_000_000

_Term = Callable[[np.ndarray, np.ndarray], np.ndarray]


class DenseEngine:
    """Mean gradient and loss of a linear model over records in memory (row-major float64)."""

    def __init__(self, loss: Loss, features: np.ndarray, targets: np.ndarray) -> None:
        self._loss = loss
        self._features = np.ascontiguousarray(features, dtype=float)
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
                total = total + term(features[block], targets[block])
            return total

        edges = np.linspace(0, len(features), _PARTS + 1).astype(int).tolist()
        if len(features) * columns < _WORTH_THREADS or _threads() == 1:
            return sum(map(part, edges[:-1], edges[1:]), start=zero) / len(features)
        with _blas().limit(limits=1, user_api="blas"):  # threads inside threads would only wait for each other
            return sum(_pool().map(part, edges[:-1], edges[1:]), start=zero) / len(features)


def _threads() -> int:
    """Return the cores this process may use, or what OMP_NUM_THREADS allows of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads(), thread_name_prefix="epsteps")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
