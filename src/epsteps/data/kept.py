"""Prepared records in a file, for those that do not fit in memory: written once, and mapped at every pass after.

Whoever reads the file reads the records. It has no name, or loses it at once, where the system can do that (all but
Windows): its owner alone may open it, nobody finds it, and it is gone when it is closed or the process ends, however.
"""

import mmap
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import IO

import numpy as np

from epsteps.data.mapped import MappedReader
from epsteps.problem.problem import Problem

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
