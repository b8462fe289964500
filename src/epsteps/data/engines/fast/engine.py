"""The compiled engine: gradient and loss in one pass over memory, with kernels that numba compiles on first use."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from epsteps.bounds.steps import Steps
from epsteps.data.engines import dense, threads
from epsteps.problem import extras
from epsteps.problem.losses import Logistic, Loss, Squared

# Features above which BLAS takes the products for many points. Measured: kernels ahead at 400, a tie at 1000.
LARGE_D = 512
# Points below which each gets a pass of its own, as a vector of columns would be half empty.
FEW_COLUMNS = 3
# Features for which float32 records are best multiplied in float64: half as many of them in a tile, and no sums to
# convert. Measured: float32 ahead at 20 and at 300, float64 at 100.
_WIDEN = range(40, 129)
# Rows in a block of a subset, and bytes of records and margins in a tile for many points (first-level cache).
ROWS_BLOCK = 64
_TILE_BYTES = 12 * 2**10
# Multiplications below which parts and threads cost more than they save.
_WORTH_PARTS = 3_000_000
ALL = np.empty(0, dtype=np.int64)


class FastEngine:
    """Mean gradient and loss of a linear model over records in memory (float64 or float32).

    It computes what ``DenseEngine`` does, for the logistic and the squared loss, by compiled kernels, and hands
    everything else to it, clipped gradients too. Records in float32 are multiplied in float32 (or better), tiles of
    them summed in float64. Needs numba.
    """

    def __init__(self, loss: Loss, features: np.ndarray, targets: np.ndarray, *, clip: float | None = None) -> None:
        extras.require("numba", "fast", "The fast engine")
        from epsteps.data.engines.fast import _columns, _descent, _layouts, _rows, _slopes, _tiles

        check_shapes(features, targets)
        self._columns, self._rows, self._tiles, self._slopes = _columns, _rows, _tiles, _slopes
        self._descent = _descent
        self._loss, self._targets = loss, np.ascontiguousarray(targets, dtype=float)
        self._kind, self._clip = loss_kind(loss) if clip is None else None, clip
        d = features.shape[1]
        stored = np.dtype(np.float32 if features.dtype == np.float32 else np.float64)
        self._dtype = np.dtype(np.float64) if d in _WIDEN else stored
        self._lanes = 32 // self._dtype.itemsize
        self._layouts = _layouts.Layouts(
            features.astype(stored, copy=False), _tiles.tile_size(d, self._lanes, stored.itemsize)
        )
        self._negated = self._layouts.filled_up(-self._targets, stored, -_slopes.FILLER)

    @cached_property
    def _dense(self) -> dense.DenseEngine:
        return dense.DenseEngine(self._loss, self._layouts.rows(), self._targets, clip=self._clip)

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        if not self._compiled(x, rows):
            return self._dense.mean_gradient(x, rows)
        return self._means(x, self._slopes.SLOPE, rows)[0]

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        if not self._compiled(x):
            return self._dense.mean_loss(x)
        return self._means(x, self._slopes.VALUE)[1]

    def mean_gradient_and_loss(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both, in one pass over the records and with one exponential for both."""
        if not self._compiled(x):
            return self._dense.mean_gradient(x), self._dense.mean_loss(x)
        return self._means(x, self._slopes.BOTH)

    def descends(self, size: int) -> bool:
        """Whether ``descend`` serves steps that read so many records; larger ones do better with threads of their own.

        The steps of a run follow each other, so that its threads are those of its repetitions.
        """
        return self._kind is not None and size > 0 and size * self._layouts.d < _WORTH_PARTS

    def descend(
        self, steps: Steps, first: int, subsets: np.ndarray, noise: np.ndarray, ridge: float, paths: np.ndarray
    ) -> None:
        """Write the iterates that follow number ``first`` on each path, in one compiled call for each repetition.

        ``paths`` has the shape (repetitions, T + 1, d) and ends known at ``first``. ``subsets``, of the shape
        (repetitions, steps, m), says which records each of the next steps reads, ``noise``, of the shape (steps, d,
        repetitions), what it adds to their mean gradient.
        """
        layouts, (copies, count, size) = self._layouts, subsets.shape
        if paths.shape != (copies, len(steps) + 1, layouts.d) or noise.shape != (count, layouts.d, copies):
            raise ValueError(f"subsets, noise and paths do not fit: {subsets.shape}, {noise.shape}, {paths.shape}.")
        if not 0 <= first <= len(steps) - count:
            raise ValueError(f"there are {len(steps)} steps, but {count} after step {first} were asked for.")
        features, negated = layouts.rows().reshape(-1), self._negated[: layouts.n]

        def part(start: int, stop: int) -> None:
            for r in range(start, stop):
                self._descent.descend(
                    features,
                    negated,
                    np.ascontiguousarray(subsets[r], dtype=np.int64).reshape(-1),
                    size,
                    steps.alpha,
                    steps.beta,
                    steps.gamma,
                    steps.restart,
                    np.ascontiguousarray(noise[:, :, r]),
                    ridge,
                    self._kind,
                    ROWS_BLOCK,
                    padded(np.zeros(layouts.d), self._lanes, self._dtype),
                    np.zeros(layouts.d),
                    paths[r],
                    first,
                )

        if copies == 1:
            part(0, 1)
        else:
            threads.map_parts(part, copies, work=count * size * layouts.d, largest=1)

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        return self._dense.hessian(x)

    def _compiled(self, x: np.ndarray, rows: np.ndarray | None = None) -> bool:
        """Whether the kernels serve these points; what they read must lie in memory, so that shapes are checked."""
        d = self._layouts.d
        if x.ndim not in (1, 2) or len(x) != d:
            raise ValueError(f"x must have length {d} (or that many rows), got shape {x.shape}.")
        few = x.ndim == 1 or x.shape[1] < FEW_COLUMNS
        return self._kind is not None and (few or d <= LARGE_D) and (rows is None or len(rows) > 0)

    def _means(self, x: np.ndarray, what: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return mean gradients and losses (one of them is zero when ``what`` does not ask for it)."""
        if x.ndim == 1:
            return self._at_point(x, what, rows)
        if x.shape[1] >= FEW_COLUMNS:
            return self._at_columns(x, what, rows)
        gradients, losses = zip(*(self._at_point(point, what, rows) for point in x.T), strict=True)
        return np.stack(gradients, axis=1), np.array(losses)

    def _at_point(self, x: np.ndarray, what: int, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        if rows is not None:
            return self._at_point_of_rows(x, what, rows)
        layouts, point = self._layouts, np.ascontiguousarray(x, dtype=self._dtype)
        tiles, size = layouts.tiles().reshape(-1), layouts.tile_size

        parts = threads.PARTS if layouts.n * layouts.d >= _WORTH_PARTS else 1
        edges = np.linspace(0, layouts.tile_count, parts + 1).astype(np.int64)
        gradients, totals = np.zeros((parts, layouts.d)), np.zeros(parts)

        def part(start: int, stop: int) -> None:
            self._tiles.means(
                tiles,
                size,
                self._negated,
                point,
                self._kind,
                what,
                edges[start : stop + 1],
                layouts.n,
                gradients[start:stop],
                totals[start:stop],
            )

        if parts == 1 or threads.allowed() == 1:
            part(0, parts)
        else:
            threads.map_parts(part, parts, work=layouts.n * layouts.d)
        return gradients.sum(axis=0) / layouts.n, totals.sum() / layouts.n

    def _at_point_of_rows(self, x: np.ndarray, what: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        layouts, point = self._layouts, padded(x, self._lanes, self._dtype)
        features, rows = layouts.rows().reshape(-1), np.ascontiguousarray(rows, dtype=np.int64)
        negated = self._negated[: layouts.n]

        def part(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            gradient, total = np.zeros(layouts.d), np.zeros(1)
            self._rows.means(features, negated, rows, point, self._kind, what, start, stop, ROWS_BLOCK, gradient, total)
            return gradient, total

        gradient, total = _sums(part, len(rows), layouts.d)
        return gradient / len(rows), total[0] / len(rows)

    def _at_columns(self, x: np.ndarray, what: int, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        layouts, wanted = self._layouts, x.shape[1]
        features, negated = layouts.rows(), self._negated[: layouts.n]
        points = padded(x.T, 32 // features.itemsize, features.dtype).T.copy()
        if rows is not None:
            features, negated = np.take(features, rows, axis=0), np.take(negated, rows)
        count, tile = len(negated), columns_tile(len(x), points.shape[1], features.itemsize)

        def part(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            gradient, totals = np.zeros(points.shape), np.zeros(points.shape[1])
            self._columns.means(
                features.reshape(-1), negated, points, self._kind, what, start, stop, tile, gradient, totals
            )
            return gradient, totals

        gradient, totals = _sums(part, count, points.size)
        return gradient[:, :wanted] / count, totals[:wanted] / count


def check_shapes(features: np.ndarray, targets: np.ndarray) -> None:
    """Raise unless there is one target for each record: the kernels do not look."""
    if features.ndim != 2 or targets.shape != features.shape[:1]:
        raise ValueError(f"features and targets must fit, got shapes {features.shape} and {targets.shape}.")


def loss_kind(loss: Loss) -> int | None:
    """Return the kernels' number of a loss, or None: a class derived from it may compute something else."""
    from epsteps.data.engines.fast import _slopes

    return {Logistic: _slopes.LOGISTIC, Squared: _slopes.SQUARED}.get(type(loss))


def padded(x: np.ndarray, lanes: int, dtype: Any) -> np.ndarray:
    """Return x with zeros after it, up to whole vectors."""
    result = np.zeros((-(-len(x) // lanes) * lanes, *x.shape[1:]), dtype=dtype)
    result[: len(x)] = x
    return result


def columns_tile(d: int, width: int, itemsize: int) -> int:
    """Return how many records make a tile for many points.

    Losses are gathered as a product of that many factors in (1, 2], which must not overflow float32.
    """
    group = 6 * 32 // itemsize
    return min(96, max(16, _TILE_BYTES // (itemsize * (d + min(width, group))) // 4 * 4))


def _sums(
    part: Callable[[int, int], tuple[np.ndarray, np.ndarray]], count: int, work: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sum gradients and losses over parts of the records, in threads where that pays."""
    parts = sum_parts(part, count, work)
    if len(parts) == 1:
        return parts[0]
    gradients, totals = zip(*parts, strict=True)
    return np.sum(gradients, axis=0), np.sum(totals, axis=0)


def sum_parts(part: Callable[[int, int], Any], count: int, work: int, largest: int | None = None) -> list[Any]:
    """Return ``part`` of all that is counted at once if that is little, with ``work`` multiplications each."""
    if count * work < _WORTH_PARTS:
        return [part(0, count)]
    return threads.map_parts(part, count, work=work, largest=largest)
