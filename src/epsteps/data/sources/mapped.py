"""Records in .npy files and memory maps: copied in blocks, and the pages given back after each."""

import mmap
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from epsteps.data.engines.stream import Block
from epsteps.data.sources.stamp import Stamp
from epsteps.data.tables import whole_numpy_file

# Bytes that single rows may bring into memory before their pages are given back, and what one of them may bring.
_WINDOW, _AROUND = 2**25, 2**16


def open_npy(name: str, path: Path) -> np.memmap:
    """Return the array of a .npy file as a read-only map, or raise."""
    Stamp.of(path)
    if path.suffix.lower() != ".npy":
        raise ValueError(f"{name} cannot be read from {path}: records come from .npy or .parquet files.")
    with whole_numpy_file(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.memmap):
        array.close()
        raise ValueError(f"{path} is not a .npy file but an archive of several.")
    return array


class MappedReader:
    """Features in a memory map; targets in another one or in memory."""

    def __init__(self, features: np.memmap, targets: np.ndarray) -> None:
        self._features, self._targets = features, targets
        self.shape = features.shape
        self.feature_kind, self.target_kind = features.dtype, targets.dtype
        self.target_shape = targets.shape
        self._stamps = [Stamp.of(path) for array in (features, targets) if (path := _path(array)) is not None]

    def blocks(self, size: int, rows: np.ndarray | None = None) -> Iterator[Block]:
        """Yield all records, or these rows in order, in blocks of at most ``size``."""
        rows = None if rows is None else np.sort(rows)
        for start in range(0, self.shape[0] if rows is None else len(rows), size):
            if rows is None:
                yield partial(self._slice, slice(start, start + size))
            else:
                yield partial(self._rows, rows[start : start + size])

    def _slice(self, block: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return neighbouring rows."""
        self._require_same()
        return _copied(self._features, block), _copied(self._targets, block)

    def _rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return single rows. The system maps some pages around each, so that only a few are read at a time."""
        self._require_same()
        places = 1 if self._features.flags.c_contiguous else self.shape[1]
        at_once = max(1, _WINDOW // (places * _AROUND + self.shape[1] * self._features.itemsize))
        features = np.empty((len(rows), self.shape[1]), dtype=self.feature_kind)
        for start in range(0, len(rows), at_once):
            features[start : start + at_once] = _copied(self._features, rows[start : start + at_once])
        return features, _copied(self._targets, rows)

    def _require_same(self) -> None:
        """Raise if a file changed: reading a map beyond the end of its file would end the process."""
        for stamp in self._stamps:
            stamp.require_same()


def _path(array: np.ndarray) -> Path | None:
    """Return the file of a read-only map, if it has a name."""
    if isinstance(array, np.memmap) and array.mode == "r" and array.filename is not None:
        return Path(array.filename)
    return None


def _copied(array: np.ndarray, index: slice | np.ndarray) -> np.ndarray:
    """Return a copy of these rows; a map's pages leave memory again, unless they hold changes of this process."""
    copy = np.array(array[index], subok=False)
    if isinstance(array, np.memmap) and array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # pyright: ignore[reportAttributeAccessIssue]
    return copy
