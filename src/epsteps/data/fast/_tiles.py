"""Kernels for one point: records in tiles, in which a vector holds one feature of several records.

A tile is stored feature by feature, so that both passes over it, for margins and for slopes times records, read memory
in order. The blocks are small: the processor then reads the next one while it still multiplies.
"""

import numpy as np
from numba.core import cgutils

from epsteps.data.fast import _slopes
from epsteps.data.fast._lanes import F64, LINE, VERSION, WIDTH, Register, Value, building_block, count, inner, kernel
from epsteps.data.fast._lanes import statement as _statement
from epsteps.problem.grid import ROWS_PER_DOUBLE

# Bytes of the tiles in a block, whose slopes are computed together.
_BLOCK_BYTES = 6 * 2**10
# Bytes of a tile that the processor still reads ahead of while it multiplies: smaller tiles need more additions.
_GOOD_TILE = 2**13
_MANY_FEATURES = 128


def tile_size(d: int, lanes: int, itemsize: int) -> int:
    """Return the number of records in a tile: 8 or 4 vectors with that many lanes.

    With many features no tile stays in the first-level cache, and large ones are best again.
    """
    return lanes * (8 if 8 * lanes * d * itemsize <= _GOOD_TILE or d > _MANY_FEATURES else 4)


def _margins(vectors: int):
    """Return an intrinsic: write the margins of a tile's records, computed in the kind of numbers that x has."""

    def write(b, tiles, x, d, margins) -> None:
        kind, together = x.kind, 8 // vectors
        totals = [[Register(b, kind, 0) for _ in range(vectors)] for _ in range(together)]

        def add(j: Value, totals: list[Register]) -> None:
            place, weight = b.mul(j, count(vectors * kind.lanes)), x.spread(j)
            for q, total in enumerate(totals):
                total.set(tiles.load(b.add(place, count(q * kind.lanes)), kind).times(weight, total.get()))

        whole = b.and_(d, count(-together))
        with cgutils.for_range_slice(b, count(0), whole, count(together)) as (j, _):
            for i in range(together):
                add(b.add(j, count(i)), totals[i])
        with cgutils.for_range_slice(b, whole, d, count(1)) as (j, _):
            add(j, totals[0])
        for q in range(vectors):
            total = totals[0][q].get()
            for more in totals[1:]:
                total = total + more[q].get()
            margins.store(q * kind.lanes, total)

    @building_block
    def block(typing, tiles, at_tiles, x, zero, d, margins, at_margins):
        return _statement(write, tiles, at_tiles, x, zero, d, margins, at_margins)

    return block


def _gradient(vectors: int):
    """Return an intrinsic: add a tile's records times their slopes to the gradient's lanes, which are float64."""

    def write(b, tiles, d, slopes, gradient) -> None:
        kind = slopes.kind
        factors = [slopes.load(q * kind.lanes) for q in range(vectors)]
        with cgutils.for_range(b, d) as loop:
            place, into = b.mul(loop.index, count(vectors * kind.lanes)), b.mul(loop.index, count(kind.lanes))
            parts = [tiles.load(b.add(place, count(q * kind.lanes)), kind) for q in range(vectors)]
            chains = [parts[0] * factors[0], parts[1] * factors[1]]
            for q in range(2, vectors):
                chains[q % 2] = parts[q].times(factors[q], chains[q % 2])
            if vectors == 4:  # half of the next tile: larger tiles are so many lines that it does not pay
                ahead = b.add(b.mul(d, count(vectors * kind.lanes)), b.mul(loop.index, count(64 // tiles.kind.size)))
                tiles.prefetch(ahead)
            total = (chains[0] + chains[1]).to(F64)
            gradient.store(into, gradient.load(into, total.kind) + total)

    @building_block
    def block(typing, tiles, at_tiles, d, slopes, at_slopes, gradient, zero):
        return _statement(write, tiles, at_tiles, d, slopes, at_slopes, gradient, zero)

    return block


_margins_8, _margins_4 = _margins(8), _margins(4)
_gradient_8, _gradient_4 = _gradient(8), _gradient(4)


@inner
def _margins_of(tiles, start, stop, size, x, lanes, margins):
    """Write the margins of tiles start to stop."""
    d = len(x)
    for tile in range(start, stop):
        if size == 8 * lanes:
            _margins_8(tiles, tile * size * d, x, 0, d, margins, (tile - start) * size)
        else:
            _margins_4(tiles, tile * size * d, x, 0, d, margins, (tile - start) * size)


@inner
def _add_gradients(tiles, start, stop, size, d, lanes, slopes, gradient):
    """Add tiles start to stop times their slopes."""
    for tile in range(start, stop):
        if size == 8 * lanes:
            _gradient_8(tiles, tile * size * d, d, slopes, (tile - start) * size, gradient, 0)
        else:
            _gradient_4(tiles, tile * size * d, d, slopes, (tile - start) * size, gradient, 0)


@kernel
def means(tiles, size, negated, x, loss, what, edges, filled, gradients, totals, version=VERSION):
    """Add the sums over tiles between each two edges, of ``size`` records each, to a gradient (d) and a loss.

    Tiles and targets are flat; they hold ``filled`` records, and others that do not count after them. All parts are
    computed in one call where there is one thread: Python in between would find the caches full of records.
    """
    for i in range(len(totals)):
        _means(tiles, size, negated, x, loss, what, edges[i], edges[i + 1], filled, gradients[i], totals[i : i + 1])


@inner
def _means(tiles, size, negated, x, loss, what, first, last, filled, gradient, total):
    """Add the sums over tiles first to last to the gradient (d) and the loss (1)."""
    lanes, wide, d = WIDTH // x.itemsize, 2 * WIDTH // negated.itemsize, len(x)
    block = max(1, _BLOCK_BYTES // (size * tiles.itemsize * d))
    margins, parts, totals = np.empty(block * size, x.dtype), np.zeros(d * lanes), np.zeros(wide)
    sums, factors = np.zeros(wide, negated.dtype), np.ones(wide, negated.dtype)
    for start in range(first, last, block):
        stop = min(start + block, last)
        number, empty = (stop - start) * size, max(0, filled - start * size)
        _margins_of(tiles, start, stop, size, x, lanes, margins)
        for i in range(empty, number):
            margins[i] = _slopes.FILLER
        _slopes.slopes_of_records(loss, what, margins, negated, start * size, sums, factors, wide, number // wide)
        if what != _slopes.SLOPE:
            _slopes.empty_totals(sums, factors, totals)
        if what != _slopes.VALUE:
            for i in range(empty, number):
                margins[i] = 0
            _add_gradients(tiles, start, stop, size, d, lanes, margins, parts)
    gradient += parts.reshape(d, lanes).sum(axis=1)
    total[0] += totals.sum()


@kernel
def sums(tiles, size, targets, x, step, scale, loss, first, last, gradient, version=VERSION):
    """Add the exact sums over tiles first to last, of ``size`` records each, to the gradient (d, int64).

    Tiles and targets are float32, x is float64, and all hold integers (zeros after the records).
    """
    lanes, d = WIDTH // x.itemsize, len(x)
    block = max(1, _BLOCK_BYTES // (size * tiles.itemsize * d))
    margins, parts = np.empty(block * size), np.zeros(d * lanes)
    pending = 0
    for start in range(first, last, block):
        stop = min(start + block, last)
        number = (stop - start) * size
        _margins_of(tiles, start, stop, size, x, lanes, margins)
        _slopes.levels_of_records(loss, margins, targets, start * size, step, scale, number)
        if pending + number > ROWS_PER_DOUBLE:
            _empty(parts, lanes, gradient)
            pending = 0
        pending += number
        _add_gradients(tiles, start, stop, size, d, lanes, margins, parts)
    _empty(parts, lanes, gradient)


@inner
def _empty(parts, lanes, into):
    """Move exact integers from the gradient's lanes to int64."""
    for j in range(len(into)):
        for q in range(lanes):
            into[j] += np.int64(parts[j * lanes + q])
            parts[j * lanes + q] = 0.0


# Numbers that are rearranged at a time: they stay in a core's second-level cache.
_CHUNK = 2**16


class Layouts:
    """Features in one layout, and in the second one as well from when both have been asked for."""

    def __init__(self, features: np.ndarray, tile_size: int) -> None:
        self.n, self.d = features.shape
        self.tile_size = tile_size
        self.tile_count = -(-self.n // tile_size)
        self._given: np.ndarray | None = np.ascontiguousarray(features)
        self._rows: np.ndarray | None = None
        self._tiles: np.ndarray | None = None

    def rows(self) -> np.ndarray:
        """Return the features, n x d."""
        if self._rows is None:
            self._rows = self._given if self._given is not None else self._from_tiles()
        return self._rows

    def tiles(self) -> np.ndarray:
        """Return the tiles, number of tiles x d x records in a tile; the last is filled up with zeros."""
        if self._tiles is None:
            rows = self.rows() if self._given is None else self._given
            self._tiles, self._given = self._from_rows(rows), None
        return self._tiles

    def _from_rows(self, rows: np.ndarray) -> np.ndarray:
        size, whole = self.tile_size, self.n // self.tile_size
        tiles = aligned((self.tile_count, self.d, size), rows.dtype)
        step = max(1, _CHUNK // (size * self.d))
        for i in range(0, whole, step):
            block = rows[i * size : min(i + step, whole) * size]
            tiles[i : i + len(block) // size] = block.reshape(-1, size, self.d).transpose(0, 2, 1)
        if whole < self.tile_count:
            tiles[whole] = 0
            tiles[whole, :, : self.n - whole * size] = rows[whole * size :].T
        return tiles

    def _from_tiles(self) -> np.ndarray:
        tiles, size = self.tiles(), self.tile_size
        rows = np.empty((self.n, self.d), dtype=tiles.dtype)
        step = max(1, _CHUNK // (size * self.d))
        for i in range(0, self.tile_count, step):
            block = tiles[i : i + step].transpose(0, 2, 1).reshape(-1, self.d)
            rows[i * size : (i + step) * size] = block[: self.n - i * size]
        return rows

    def filled_up(self, values: np.ndarray, dtype: np.dtype, filler: float) -> np.ndarray:
        """Return a number for each record, and the filler for those that fill up the last tile."""
        result = aligned((self.tile_count * self.tile_size,), dtype)
        result[: self.n], result[self.n :] = values, filler
        return result


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array that begins with a line of the cache: vectors that straddle two lines take twice as long."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + LINE, dtype=np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)
