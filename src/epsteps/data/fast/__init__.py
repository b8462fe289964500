"""The compiled engine: gradient and loss in one pass over memory, with kernels that numba compiles on first use."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import numpy as np

from epsteps.bounds.steps import Steps
from epsteps.data.chunks import Blocks, Chunk, Term, size_of
from epsteps.data.dense import DenseEngine
from epsteps.data.engine import PARTS, allowed, kernel_of, kernel_targets, map_parts
from epsteps.data.slopes import Slopes, steepest
from epsteps.problem import grid, levels, validate
from epsteps.problem.grid import Points
from epsteps.problem.problem import Problem

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
# Chunks may have so many times as many records as where they are converted to doubles. Measured: flat from 1 to 8.
_NARROWER = 4
# Passes over all records that read them row by row, as they lie: to make tiles takes as long as 40 to 100 of them save.
# Where more are expected, tiles are made for the first.
_PASSES_IN_PLACE = 64
# Multiplications below which parts and threads cost more than they save.
_WORTH_PARTS = 3_000_000
# Between these float32 neither overflows nor vanishes.
_USUAL = (1e-30, 1e30)


class FastEngine(DenseEngine, name="fast"):
    """Sums over records in memory by compiled kernels. It needs numba.

    It computes what ``DenseEngine`` does, for the logistic and the squared loss, and leaves everything else to it:
    clipped gradients, Hessians, and many points with many features, where BLAS is as fast. For means, records in
    float32 are multiplied in float32 (or better), and tiles of them summed in float64. For exact sums, records are
    converted to float64 as they are loaded, which costs nothing next to the multiplications; every product and partial
    sum is an integer that a double holds exactly, so that the order does not matter. Slopes repeat ``problem.levels``
    instruction by instruction.
    """

    several_outputs = False

    def __init__(self, problem: Problem, features: np.ndarray, targets: np.ndarray) -> None:
        validate.require("numba", "fast", "The fast engine")
        from epsteps.data.fast import _chunks, _columns, _rows, _slopes, _tiles

        super().__init__(problem, features, targets)
        self._passes, self._expected, self._is_given = 0, 0, False
        self._columns, self._rows, self._tiles, self._slopes = _columns, _rows, _tiles, _slopes
        self._chunks = _chunks
        self._kernel = kernel_of(problem.loss) if problem.clip is None else None
        kinds = {"logistic": _slopes.LOGISTIC, "squared": _slopes.SQUARED}
        self._kind = None if self._kernel is None else kinds.get(self._kernel)

    @staticmethod
    def _rounded(problem: Problem, features: np.ndarray) -> np.ndarray:
        from epsteps.data.fast import _prepare

        return _prepare.integers(problem, features)

    @classmethod
    def of_prepared(cls, problem: Problem, integers: np.ndarray, targets: np.ndarray) -> Self:
        """Return an engine over records that were prepared before, for exact sums: it prepares and copies nothing."""
        engine = super().of_prepared(problem, integers, targets)
        engine._is_given = True
        return engine

    def _stored(self, features: np.ndarray, targets: np.ndarray, units: np.ndarray, *, exact: bool) -> Any:
        return _Stored(self._problem, features, kernel_targets(self._kernel, targets), units, exact=exact)

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        if not self._compiled(x, rows):
            return super().mean_gradient(x, rows)
        return self._means(x, self._slopes.SLOPE, rows)[0]

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        if not self._compiled(x):
            return super().mean_loss(x)
        return self._means(x, self._slopes.VALUE)[1]

    def mean_gradient_and_loss(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both, in one pass over the records and with one exponential for both."""
        if not self._compiled(x):
            return super().mean_gradient(x), super().mean_loss(x)
        return self._means(x, self._slopes.BOTH)

    def descends(self, size: int) -> bool:
        """Whether ``descend`` serves steps that read so many records; larger ones do better with threads of their own.

        The steps of a run follow each other, so that its threads are those of its repetitions.
        """
        return self._kind is not None and size > 0 and size * self._problem.width < _WORTH_PARTS

    def descend(
        self, steps: Steps, first: int, subsets: np.ndarray, noise: np.ndarray, ridge: float, paths: np.ndarray
    ) -> None:
        """Write the iterates that follow number ``first`` on each path, in one compiled call for each repetition.

        ``paths`` has the shape (repetitions, T + 1, d) and ends known at ``first``. ``subsets``, of the shape
        (repetitions, steps, m), says which records each of the next steps reads, ``noise``, of the shape (steps, d,
        repetitions), what it adds to their mean gradient.
        """
        layouts, (copies, count, size) = self._floats.layouts, subsets.shape
        if paths.shape != (copies, len(steps) + 1, layouts.d) or noise.shape != (count, layouts.d, copies):
            raise ValueError(f"subsets, noise and paths do not fit: {subsets.shape}, {noise.shape}, {paths.shape}.")
        if not 0 <= first <= len(steps) - count:
            raise ValueError(f"there are {len(steps)} steps, but {count} after step {first} were asked for.")
        features, negated = layouts.rows().reshape(-1), self._floats.numbers[: layouts.n]
        factors = steps.alpha, steps.beta, steps.gamma, steps.restart

        def part(start: int, stop: int) -> None:
            for r in range(start, stop):
                rows = np.ascontiguousarray(subsets[r], dtype=np.int64).reshape(-1)
                drawn, settings = np.ascontiguousarray(noise[:, :, r]), (ridge, self._kind, ROWS_BLOCK)
                point = padded(np.zeros(layouts.d), self._floats.lanes, self._floats.kind)
                memory = point, np.zeros(layouts.d), paths[r]
                self._rows.descend(features, negated, rows, size, *factors, drawn, *settings, *memory, first)

        if copies == 1:
            part(0, 1)
        else:
            map_parts(part, copies, work=count * size * layouts.d, largest=1)

    def _compiled(self, x: np.ndarray, rows: np.ndarray | None = None) -> bool:
        """Whether the kernels serve these points; what they read must lie in memory, so that shapes are checked."""
        d = self._problem.width
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
        layouts, negated = self._floats.layouts, self._floats.numbers
        point = np.ascontiguousarray(x, dtype=self._floats.kind)
        tiles, size, n = layouts.tiles().reshape(-1), layouts.tile_size, layouts.n
        parts = PARTS if n * layouts.d >= _WORTH_PARTS else 1
        edges = np.linspace(0, layouts.tile_count, parts + 1).astype(np.int64)
        gradients, totals = np.zeros((parts, layouts.d)), np.zeros(parts)

        def part(start: int, stop: int) -> None:
            between, into = edges[start : stop + 1], (gradients[start:stop], totals[start:stop])
            self._tiles.means(tiles, size, negated, point, self._kind, what, between, n, *into)

        if parts == 1 or allowed() == 1:
            part(0, parts)
        else:
            map_parts(part, parts, work=n * layouts.d)
        return gradients.sum(axis=0) / n, totals.sum() / n

    def _at_point_of_rows(self, x: np.ndarray, what: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        stored = self._floats
        layouts, point = stored.layouts, padded(x, stored.lanes, stored.kind)
        features, rows = layouts.rows().reshape(-1), np.ascontiguousarray(rows, dtype=np.int64)
        negated = stored.numbers[: layouts.n]

        def part(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
            gradient, total = np.zeros(layouts.d), np.zeros(1)
            self._rows.means(features, negated, rows, point, self._kind, what, start, stop, ROWS_BLOCK, gradient, total)
            return gradient, total

        gradient, total = _summed(part, len(rows), layouts.d)
        return gradient / len(rows), total[0] / len(rows)

    def _at_columns(self, x: np.ndarray, what: int, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        layouts, wanted = self._floats.layouts, x.shape[1]
        features, negated = layouts.rows(), self._floats.numbers[: layouts.n]
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

        gradient, totals = _summed(part, count, points.size)
        return gradient[:, :wanted] / count, totals[:wanted] / count

    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of slope x record over all records, or over these rows; one column per point."""
        self._passes += rows is None
        return super().sums(points, rows)

    def expect(self, passes: int) -> None:
        """Be told that about so many exact sums over all records will follow."""
        self._expected = passes

    @property
    def _in_place(self) -> bool:
        """Whether all records are read row by row: tiles are faster, but have to be made.

        Sums that nobody asked for, as the test before private sums does, are those of tiles.
        """
        return self._is_given or (0 < self._passes <= _PASSES_IN_PLACE and self._expected <= _PASSES_IN_PLACE)

    def _exact_sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        d, columns = points.coefficients.shape
        if d != self._problem.width:
            raise ValueError(f"points must have {self._problem.width} coordinates, got {d}.")
        few = columns < FEW_COLUMNS
        if self._kind is None or (rows is not None and len(rows) == 0) or not (few or d <= LARGE_D):
            return super()._exact_sums(points, rows)
        scales = self._scales(points.bound)
        if columns == 1 and rows is not None and len(rows) * d < _WORTH_PARTS:
            return self._exact_of_rows(points, float(scales[0]), rows)
        if not few:
            return self._exact_at_columns(points, scales, rows)
        sums = [self._exact_at_point(points, scales, k, rows) for k in range(columns)]
        return sums[0][:, None] if columns == 1 else np.stack(sums, axis=1)

    def _chunk_size(self, term: Term) -> int:
        if isinstance(term, Blocks):
            return super()._chunk_size(term)
        return size_of(-(-self._problem.width // _NARROWER), allowed())

    def _chunk(self, rows: slice | np.ndarray) -> Chunk:
        stored = self._integers
        return self._chunks.FastChunk(stored.features[rows], stored.slopes.targets[rows])

    def _scales(self, bound: np.ndarray) -> np.ndarray:
        """Return steps per unit of slope, rounded as in ``problem.levels``."""
        if len(bound) == 1 and _USUAL[0] < bound[0] < _USUAL[1]:
            kind = np.float32 if self._kernel == "logistic" else float
            return np.array([kind(levels.STEPS) / kind(bound[0])], dtype=float)
        with np.errstate(all="ignore"):
            if self._kernel == "logistic":
                return (np.float32(levels.STEPS) / bound.astype(np.float32)).astype(float)
            return levels.STEPS / bound

    def _exact_at_point(self, points: Points, scales: np.ndarray, k: int, rows: np.ndarray | None) -> np.ndarray:
        stored, layouts, step, scale = self._integers, self._integers.layouts, float(points.step[k]), float(scales[k])
        if rows is None and not self._in_place:
            x, tiles, size = points.coefficients[:, k].copy(), layouts.tiles().reshape(-1), layouts.tile_size
            count, records, work = layouts.tile_count, layouts.n, size * layouts.d
            largest = grid.ROWS_PER_INT64 // size

            def part(start: int, stop: int) -> np.ndarray:
                sums = np.zeros(layouts.d, dtype=np.int64)
                self._tiles.sums(tiles, size, stored.numbers, x, step, scale, self._kind, start, stop, sums)
                return sums

        else:
            x, features = padded(points.coefficients[:, k], stored.lanes, stored.kind), layouts.rows().reshape(-1)
            targets = stored.numbers[: layouts.n]
            drawn = np.ascontiguousarray(() if rows is None else rows, dtype=np.int64)  # none stand for all
            count = records = layouts.n if rows is None else len(drawn)
            work, largest, block = layouts.d, grid.ROWS_PER_INT64, ROWS_BLOCK

            def part(start: int, stop: int) -> np.ndarray:
                sums = np.zeros(layouts.d, dtype=np.int64)
                self._rows.sums(features, targets, drawn, x, step, scale, self._kind, start, stop, block, sums)
                return sums

        if records <= grid.ROWS_PER_INT64 and allowed() == 1:
            return part(0, count)  # the parts do not change an exact sum
        parts = sum_parts(part, count, work, largest)
        return parts[0] if len(parts) == 1 else grid.total(parts, records)

    def _exact_of_rows(self, points: Points, scale: float, rows: np.ndarray) -> np.ndarray:
        """Return the sum at one point over few rows, in one call of a kernel."""
        stored, rows, sums = (
            self._integers,
            np.ascontiguousarray(rows, dtype=np.int64),
            np.zeros(points.coefficients.shape, np.int64),
        )
        x, step = padded(points.coefficients[:, 0], stored.lanes, stored.kind), float(points.step[0])
        features, targets = stored.by_row
        self._rows.sums(features, targets, rows, x, step, scale, self._kind, 0, len(rows), ROWS_BLOCK, sums[:, 0])
        return sums

    def _exact_at_columns(self, points: Points, scales: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        stored, layouts, wanted = self._integers, self._integers.layouts, points.coefficients.shape[1]
        features, targets = layouts.rows(), stored.numbers[: layouts.n]
        if rows is not None:
            features, targets = np.take(features, rows, axis=0), np.take(targets, rows)
        x = padded(points.coefficients.T, stored.lanes, stored.kind).T.copy()
        steps, factors = (padded(values, stored.lanes, stored.kind) for values in (points.step, scales))
        tile = columns_tile(len(x), x.shape[1], x.itemsize)

        def part(start: int, stop: int) -> np.ndarray:
            sums = np.zeros(x.shape, dtype=np.int64)
            self._columns.sums(features.reshape(-1), targets, x, steps, factors, self._kind, start, stop, tile, sums)
            return sums

        parts = sum_parts(part, len(features), x.size, grid.ROWS_PER_INT64)
        return grid.total(parts, len(features))[:, :wanted]


class _Stored:
    """Records as the kernels read them, and as the reference does for what is left to it.

    ``numbers`` has one number for each record, filled up to whole tiles: its target, negated for float means. ``kind``
    is what products are computed in, in vectors with ``lanes`` numbers each.
    """

    def __init__(
        self, problem: Problem, features: np.ndarray, targets: np.ndarray, units: np.ndarray, *, exact: bool
    ) -> None:
        from epsteps.data.fast import _slopes, _tiles

        self._problem, self._units = problem, units
        self._targets = np.ascontiguousarray(targets, dtype=np.float32 if exact else float)
        d = features.shape[1]
        self.kind = np.dtype(np.float64) if exact or d in _WIDEN else features.dtype
        self.lanes = 32 // self.kind.itemsize
        self.layouts = _tiles.Layouts(features, _tiles.tile_size(d, self.lanes, features.itemsize))
        numbers, filler = (self._targets, 0.0) if exact else (-self._targets, -_slopes.FILLER)
        self.numbers = self.layouts.filled_up(numbers, features.dtype, filler)

    @property
    def features(self) -> np.ndarray:
        """Features, row by row."""
        return self.layouts.rows()

    @cached_property
    def by_row(self) -> tuple[np.ndarray, np.ndarray]:
        """Features row by row, as one vector, and one number for each row."""
        return self.layouts.rows().reshape(-1), self.numbers[: self.layouts.n]

    @cached_property
    def slopes(self) -> Slopes:
        """The records' slopes, for the reference."""
        return Slopes(self._problem.loss, self._targets, steepest(self._problem.clip, self.features, self._units))


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


def _summed(
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
    return map_parts(part, count, work=work, largest=largest)
