"""Private sums by compiled kernels: the same integers as ``DenseSums``, in one pass over memory."""

from functools import cached_property

import numpy as np

from epsteps.data.engines import threads
from epsteps.data.engines.dense_sums import DenseSums
from epsteps.data.engines.fast import engine as fast
from epsteps.problem import extras, grid, levels
from epsteps.problem.grid import Grid, Points
from epsteps.problem.losses import Logistic

_LANES = 4  # of float64


class FastSums:
    """Exact sums over records on a grid (float32 that holds integers). Needs numba.

    Records are converted to float64 as they are loaded, which costs nothing next to the multiplications; every
    product and partial sum is an integer that a double holds exactly, so that the order does not matter. Slopes repeat
    ``problem.levels`` instruction by instruction. Losses without a kernel, clipped gradients, and many points with many
    features, where BLAS is as fast, are left to ``DenseSums``.
    """

    def __init__(self, grid: Grid, features: np.ndarray, targets: np.ndarray) -> None:
        extras.require("numba", "fast", "The fast engine")
        from epsteps.data.engines.fast import _columns, _layouts, _rows, _tiles

        fast.check_shapes(features, targets)
        self._columns, self._rows, self._tiles = _columns, _rows, _tiles
        self._grid = grid
        self._kind = fast.loss_kind(grid.problem.loss) if grid.problem.clip is None else None
        self._logistic = type(grid.problem.loss) is Logistic
        features = features.astype(np.float32, copy=False)
        self._layouts = _layouts.Layouts(features, _tiles.tile_size(features.shape[1], _LANES, features.itemsize))
        self._targets = self._layouts.filled_up(targets, features.dtype, 0.0)

    @cached_property
    def _dense(self) -> DenseSums:
        return DenseSums(self._grid, self._layouts.rows(), self._targets[: self._layouts.n])

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows, for each point: integers."""
        d, columns = points.coefficients.shape
        if d != self._layouts.d:
            raise ValueError(f"points must have {self._layouts.d} coordinates, got {d}.")
        few = columns < fast.FEW_COLUMNS
        if self._kind is None or (rows is not None and len(rows) == 0) or not (few or d <= fast.LARGE_D):
            return self._dense.gradient(points, rows)
        scales = self._scales(points.bound)
        if not few:
            return self._at_columns(points, scales, rows)
        found = [self._at_point(points, scales, k, rows) for k in range(columns)]
        return found[0][:, None] if columns == 1 else np.stack(found, axis=1)

    def second_moment(self) -> np.ndarray:
        """Return the sum of u u' over all records: integers."""
        return self._dense.second_moment()

    def _scales(self, bound: np.ndarray) -> np.ndarray:
        """Return steps per unit of slope, rounded as in ``problem.levels``."""
        with np.errstate(all="ignore"):
            if self._logistic:
                return (np.float32(levels.STEPS) / bound.astype(np.float32)).astype(float)
            return levels.STEPS / bound

    def _at_point(self, points: Points, scales: np.ndarray, k: int, rows: np.ndarray | None) -> np.ndarray:
        layouts, step, scale = self._layouts, float(points.step[k]), float(scales[k])
        if rows is None:
            x, tiles, size = points.coefficients[:, k].copy(), layouts.tiles().reshape(-1), layouts.tile_size
            count, records, work = layouts.tile_count, layouts.n, size * layouts.d
            largest = grid.ROWS_PER_INT64 // size

            def part(start: int, stop: int) -> np.ndarray:
                found = np.zeros(layouts.d, dtype=np.int64)
                self._tiles.sums(tiles, size, self._targets, x, step, scale, self._kind, start, stop, found)
                return found

        else:
            x, features = fast.padded(points.coefficients[:, k], _LANES, float), layouts.rows().reshape(-1)
            targets, drawn = self._targets[: layouts.n], np.ascontiguousarray(rows, dtype=np.int64)
            count = records = len(drawn)
            work, largest, block = layouts.d, grid.ROWS_PER_INT64, fast.ROWS_BLOCK

            def part(start: int, stop: int) -> np.ndarray:
                found = np.zeros(layouts.d, dtype=np.int64)
                self._rows.sums(features, targets, drawn, x, step, scale, self._kind, start, stop, block, found)
                return found

        if records <= grid.ROWS_PER_INT64 and threads.allowed() == 1:
            return part(0, count)  # the parts do not change an exact sum
        parts = fast.sum_parts(part, count, work, largest)
        return parts[0] if len(parts) == 1 else grid.total(parts, records)

    def _at_columns(self, points: Points, scales: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        layouts, wanted = self._layouts, points.coefficients.shape[1]
        features, targets = layouts.rows(), self._targets[: layouts.n]
        if rows is not None:
            features, targets = np.take(features, rows, axis=0), np.take(targets, rows)
        x = fast.padded(points.coefficients.T, _LANES, float).T.copy()
        steps, factors = (fast.padded(values, _LANES, float) for values in (points.step, scales))
        tile = fast.columns_tile(len(x), x.shape[1], x.itemsize)

        def part(start: int, stop: int) -> np.ndarray:
            found = np.zeros(x.shape, dtype=np.int64)
            self._columns.sums(features.reshape(-1), targets, x, steps, factors, self._kind, start, stop, tile, found)
            return found

        parts = fast.sum_parts(part, len(features), x.size, grid.ROWS_PER_INT64)
        return grid.total(parts, len(features))[:, :wanted]
