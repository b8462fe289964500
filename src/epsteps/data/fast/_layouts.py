"""Records in memory, row by row or in tiles: whichever the kernels ask for."""

import numpy as np

from epsteps.data.fast._lanes import LINE

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
