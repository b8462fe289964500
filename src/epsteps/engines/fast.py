"""The compiled engine: gradient and loss in one pass over memory, with kernels that numba compiles on first use."""

from collections.abc import Callable
from typing import Any

import numpy as np

from epsteps import _extras
from epsteps.engines import dense, threads
from epsteps.losses import Logistic, Loss, Squared

# Features above which BLAS takes the products. Measured: kernels ahead at 400, a tie at 1000 with 60 points or more.
_LARGE_D = 512
# Bytes of records and margins in a tile: they stay in a core's first-level cache.
_TILE_BYTES = 12 * 2**10
# Points below which each gets a pass of its own, as a vector of columns would be half empty.
_FEW_COLUMNS = 3
# Sums are taken over this many parts of the records, so that results do not depend on the number of threads.
_PARTS = 8
# Multiplications below which starting threads costs more than it saves.
_WORTH_PARTS = 3_000_000
_ALL = np.empty(0, dtype=np.int64)


class FastEngine:
    """Mean gradient and loss of a linear model over records in memory (row-major float64).

    It computes what ``DenseEngine`` does, for the logistic and the squared loss with up to 512 features by compiled
    kernels, and hands everything else to it. Needs numba.
    """

    def __init__(self, loss: Loss, features: np.ndarray, targets: np.ndarray) -> None:
        _extras.require("numba", "fast", "The fast engine")
        from epsteps.engines import _kernels

        self._kernels: Any = _kernels
        self._features = np.ascontiguousarray(features, dtype=float)
        targets = np.ascontiguousarray(targets, dtype=float)
        if self._features.ndim != 2 or targets.shape != self._features.shape[:1]:
            raise ValueError(f"features and targets must fit, got shapes {self._features.shape} and {targets.shape}.")
        self._dense = dense.DenseEngine(loss, self._features, targets)
        self._negated = -targets
        self._kind = {Logistic: _kernels.LOGISTIC, Squared: _kernels.SQUARED}.get(type(loss))

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        if not self._compiled(x):
            return self._dense.mean_gradient(x, rows)
        return self._means(x, self._kernels.SLOPE, rows)[0]

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        if not self._compiled(x):
            return self._dense.mean_loss(x)
        return self._means(x, self._kernels.VALUE)[1]

    def mean_gradient_and_loss(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both, in one pass over the records and with one exponential for both."""
        if not self._compiled(x):
            return self._dense.mean_gradient(x), self._dense.mean_loss(x)
        return self._means(x, self._kernels.BOTH)

    def second_moment(self) -> np.ndarray:
        """Return the mean of u u' over the records' features."""
        return self._dense.second_moment()

    def _compiled(self, x: np.ndarray) -> bool:
        """Whether the kernels serve these points; what they read must lie in memory, so that shapes are checked."""
        d = self._features.shape[1]
        if x.ndim not in (1, 2) or len(x) != d:
            raise ValueError(f"x must have length {d} (or that many rows), got shape {x.shape}.")
        return self._kind is not None and 0 < d <= _LARGE_D

    def _means(self, x: np.ndarray, what: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return mean gradients and losses (one of them is zero when ``what`` does not ask for it)."""
        x = np.asarray(x, dtype=float)
        long_enough = len(x) >= self._kernels.LANES
        if x.ndim == 1 and long_enough:
            return self._at_point(x, what, rows)
        points = x.reshape(len(x), -1)
        if points.shape[1] < _FEW_COLUMNS and long_enough:
            gradients, losses = zip(*(self._at_point(point, what, rows) for point in points.T), strict=True)
            return np.stack(gradients, axis=1), np.array(losses)
        gradient, loss = self._at_columns(points, what, rows)
        return gradient.reshape(x.shape), loss.reshape(x.shape[1:])

    def _at_point(self, x: np.ndarray, what: int, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the means at one point: the lanes of a vector are features, then records."""
        lanes, d = self._kernels.LANES, len(x)
        whole, left = d // lanes * lanes, d % lanes
        padded = np.zeros(whole + lanes)
        padded[:whole], padded[whole + lanes - left :] = x[:whole], x[whole:]
        rows = _ALL if rows is None else np.ascontiguousarray(rows, dtype=np.int64)
        count, tile = len(rows) or len(self._negated), _tile(d + 3)

        def part(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            gradient, totals = np.zeros(whole + lanes), np.zeros(lanes)
            self._kernels.records(
                self._features.reshape(-1),
                self._negated,
                rows,
                padded,
                d,
                self._kind,
                what,
                start,
                stop,
                tile,
                gradient,
                totals,
            )
            return gradient, totals

        gradient, totals = _sums(part, count, d)
        return np.concatenate((gradient[:whole], gradient[whole + lanes - left :])) / count, totals.sum() / count

    def _at_columns(self, x: np.ndarray, what: int, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the means at each column: the lanes of a vector are columns."""
        d, wanted = x.shape
        width = -(-wanted // self._kernels.LANES) * self._kernels.LANES
        padded = np.zeros((d, width))
        padded[:, :wanted] = x
        features, negated = self._features, self._negated
        if rows is not None:
            features, negated = np.take(features, rows, axis=0), np.take(negated, rows)
        count, tile = len(negated), _tile(d + min(width, self._kernels.GROUP))

        def part(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            gradient, totals = np.zeros((d, width)), np.zeros(width)
            self._kernels.columns(
                features.reshape(-1), negated, padded, self._kind, what, start, stop, tile, gradient, totals
            )
            return gradient, totals

        gradient, totals = _sums(part, count, d * width)
        return gradient[:, :wanted] / count, totals[:wanted] / count


def _tile(doubles: int) -> int:
    """Return how many records, with so many doubles each, make a tile."""
    return min(512, max(16, _TILE_BYTES // (8 * doubles) // 4 * 4))


def _sums(
    part: Callable[[int, int], tuple[np.ndarray, np.ndarray]], count: int, work: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sum gradients and losses over parts of the records, in threads where that pays."""
    if count * work < _WORTH_PARTS:
        return part(0, count)
    edges = np.linspace(0, count, _PARTS + 1).astype(int).tolist()
    run = map if threads.allowed() == 1 else threads._pool().map
    gradients, totals = zip(*run(part, edges[:-1], edges[1:]), strict=True)
    return np.sum(gradients, axis=0), np.sum(totals, axis=0)
