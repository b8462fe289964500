"""Records in arrays, .npy files and memory maps, and prepared ones that are kept in a private file.

Maps are copied in blocks, and the pages given back after each.
"""

import mmap
import os
import shutil
import tempfile
import tokenize
import weakref
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import IO
from zipfile import BadZipFile

import numpy as np

from epsteps.data.stream import Block
from epsteps.problem.problem import Problem

# Bytes that single rows may bring into memory before their pages are given back, and what one of them may bring: the
# system maps what lies around it, and caches of files consist of pieces of up to 2 MB (Linux).
_WINDOW, _AROUND = 2**26, 2**21
# What NumPy raises for .npy and .npz files that are not whole.
DAMAGED = (
    ValueError,
    TypeError,
    EOFError,
    KeyError,
    AttributeError,
    NotImplementedError,
    SyntaxError,
    BadZipFile,
    zlib.error,
    tokenize.TokenError,
)


@contextmanager
def whole_numpy_file(path: Path) -> Iterator[None]:
    """Turn what NumPy raises for a damaged .npy or .npz file into one line."""
    try:
        yield
    except DAMAGED as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} is not a whole file of NumPy's with numbers or text: {reason}") from None


@dataclass(frozen=True)
class Stamp:
    """Size and time of a file when it was opened."""

    path: Path
    size: int
    time: int

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        """Return the stamp of a file that is there, or raise."""
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}.")
        status = path.stat()
        return cls(path, status.st_size, status.st_mtime_ns)

    def require_same(self) -> None:
        """Raise if the file is another one by now."""
        if Stamp.of(self.path) != self:
            raise OSError(f"{self.path} has changed since it was opened: make new Rows of it.")


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


class ArrayReader:
    """Features and targets in memory."""

    in_memory = True

    def __init__(self, features: np.ndarray, targets: np.ndarray) -> None:
        self._features, self._targets = features, targets
        self.shape, self.target_shape = features.shape, targets.shape
        self.feature_kind, self.target_kind = features.dtype, targets.dtype

    def blocks(self, size: int, rows: np.ndarray | None = None) -> Iterator[Block]:
        """Yield all records, or these rows in order, in blocks of at most ``size``."""
        rows = None if rows is None else np.sort(rows, kind="stable")  # quick where they are sorted already
        for start in range(0, self.shape[0] if rows is None else len(rows), size):
            if rows is None:
                yield partial(self._slice, slice(start, start + size))
            else:
                yield partial(self._rows, rows[start : start + size])

    def forget(self, start: int, stop: int) -> None:
        """Do nothing: what is in memory stays there."""

    def _slice(self, block: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return neighbouring rows."""
        return self._features[block], self._targets[block]

    def _rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return single rows."""
        return self._features[rows], self._targets[rows]


class MappedReader(ArrayReader):
    """Features in a memory map; targets in another one or in memory."""

    in_memory = False

    def __init__(self, features: np.memmap, targets: np.ndarray) -> None:
        super().__init__(features, targets)
        self._stamps = [Stamp.of(path) for array in (features, targets) if (path := _path(array)) is not None]

    def _slice(self, block: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return neighbouring rows."""
        self._require_same()
        return _copied(self._features, block), _copied(self._targets, block)

    def _rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return single rows."""
        self._require_same()
        return _taken(self._features, rows), _taken(self._targets, rows)

    def forget(self, start: int, stop: int) -> None:
        """Let the system's own cache of files go of these rows, where they lie side by side in a file."""
        features, path = self._features, _path(self._features)
        if path is not None and isinstance(features, np.memmap) and features.flags.c_contiguous:
            size = features.strides[0]
            forget(path, features.offset + start * size, features.offset + stop * size)

    def _require_same(self) -> None:
        """Raise if a file changed: reading a map beyond the end of its file would end the process."""
        for stamp in self._stamps:
            stamp.require_same()


def forget(path: Path, start: int, stop: int) -> None:
    """Tell the system that it need not keep these bytes of a file in memory: a hint, which it may leave aside."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), start, stop - start, os.POSIX_FADV_DONTNEED)


def _path(array: np.ndarray) -> Path | None:
    """Return the file of a read-only map, if it has a name."""
    if isinstance(array, np.memmap) and array.mode == "r" and array.filename is not None:
        return Path(array.filename)
    return None


def _copied(array: np.ndarray, rows: slice) -> np.ndarray:
    """Return a copy of neighbouring rows."""
    copy = np.array(array[rows], subok=False)
    _give_back(array)
    return copy


def _taken(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return a copy of sorted rows, in parts that each bring a bounded piece of a map into memory.

    A run of neighbouring rows brings itself and what lies around it; where columns lie apart, each column does.
    """
    if len(rows) and not 0 <= rows[0] <= rows[-1] < len(array):
        raise IndexError("a row is not one of the records")
    columns, contiguous = int(np.prod(array.shape[1:])), array.flags.c_contiguous
    brought = np.full(len(rows), columns * array.itemsize)
    brought[np.diff(rows, prepend=-2) > 1] += _AROUND * (1 if contiguous else columns)
    edges = np.flatnonzero(np.diff(np.cumsum(brought) // _WINDOW)) + 1
    result = np.empty((len(rows), *array.shape[1:]), dtype=array.dtype)
    for start, stop in pairwise([0, *edges.tolist(), len(rows)]):
        if contiguous:  # of others NumPy would copy everything first
            np.take(array, rows[start:stop], axis=0, out=result[start:stop], mode="clip")
        else:
            result[start:stop] = array[rows[start:stop]]
        _give_back(array)
    return result


def _give_back(array: np.ndarray) -> None:
    """Let a map's pages leave memory again, unless they hold changes of this process."""
    if isinstance(array, np.memmap) and array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # pyright: ignore[reportAttributeAccessIssue]


_ITEM = np.dtype(np.float32)


def folder_of(cache: str | PathLike[str] | None) -> Path | None:
    """Return the folder in which a user allows a file of prepared records; raise if there is none."""
    if cache is None:
        return None
    if not Path(cache).is_dir():
        raise NotADirectoryError(f"cache must be a folder that is there, got {cache}.")
    return Path(cache).resolve()


class KeptReader(MappedReader):
    """Prepared records in two files without names: integers on the problem's grid, row by row, and encoded targets."""

    def __init__(self, files: tuple[IO[bytes], IO[bytes]], shape: tuple[int, int]) -> None:
        features = np.memmap(files[0], _ITEM, "r", shape=shape)
        super().__init__(features, np.memmap(files[1], _ITEM, "r", shape=shape[:1]))
        self._files = files
        for file in files:
            weakref.finalize(self, file.close)

    def _slice(self, block: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return neighbouring rows: not copied, but mapped by themselves, so that they leave memory with the arrays."""
        start, stop, width = block.start, min(block.stop, self.shape[0]), self.shape[1]
        integers = _mapped(self._files[0], start * width, stop * width)
        return integers.reshape(-1, width), _mapped(self._files[1], start, stop)


def keep(folder: Path, problem: Problem, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> KeptReader:
    """Write all prepared records of a problem to this folder, and return what reads them; the disk must have room."""
    needed, free = problem.n * (problem.width + 1) * _ITEM.itemsize, shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"the prepared records take {needed} bytes in {folder}, which has {free} free. "
            "Name a larger cache, or leave it out: records are then prepared at every pass."
        )
    with ExitStack() as opened:
        integers, targets = (opened.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(2))
        for block in blocks:
            for file, array in zip((integers, targets), block, strict=True):
                file.write(np.ascontiguousarray(array, dtype=_ITEM).data)
        integers.flush()
        targets.flush()
        reader = KeptReader((integers, targets), (problem.n, problem.width))
        opened.pop_all()
    return reader


def _mapped(file: IO[bytes], start: int, stop: int) -> np.ndarray:
    """Return the numbers from start to stop. They may be written to, as kernels demand, but that is never kept."""
    first = start * _ITEM.itemsize
    begin = first - first % mmap.ALLOCATIONGRANULARITY
    pages = mmap.mmap(file.fileno(), stop * _ITEM.itemsize - begin, access=mmap.ACCESS_COPY, offset=begin)
    return np.frombuffer(pages, _ITEM, offset=first - begin)
