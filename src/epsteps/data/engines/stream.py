"""Records that do not fit in memory: any engine, given one block of them after the other.

Float means are combined by weight; exact sums are sums of integers, so that blocks make no difference at all.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from epsteps.data.engines import threads
from epsteps.problem import grid
from epsteps.problem.grid import Points

# Numbers in a block. A few blocks exist at a time, each as read, as converted and as an engine holds it.
BLOCK = 2**20
# Blocks that are read and converted by other threads while one is computed with.
_AHEAD = 2

# A block of raw features and targets, read when it is called: by a thread, if that helps.
Block = Callable[[], tuple[np.ndarray, np.ndarray]]
# Makes an engine of raw features and targets.
Build = Callable[[np.ndarray, np.ndarray], Any]


class Reader(Protocol):
    """What can be read in blocks."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of records and features."""
        ...

    def blocks(self, size: int, rows: np.ndarray | None = None) -> Iterator[Block]:
        """Yield all records, or these rows in any order, in blocks of at most ``size``."""
        ...


class StreamEngine:
    """Float means over records that are read anew for every call."""

    def __init__(self, build: Build, reader: Reader) -> None:
        self._build, self._reader = build, reader

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        return self._mean(lambda engine: engine.mean_gradient(x), rows)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        return self._mean(lambda engine: engine.mean_loss(x))

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        return self._mean(lambda engine: engine.hessian(x))

    def _mean(self, term: Callable[[Any], np.ndarray], rows: np.ndarray | None = None) -> np.ndarray:
        total, count = np.zeros(()), 0
        for size, engine in _built(self._build, self._reader, rows):
            total = total + size * term(engine)
            count += size
        return total / count


class StreamSums:
    """Exact sums over records that are read anew for every call."""

    def __init__(self, build: Build, reader: Reader) -> None:
        self._build, self._reader = build, reader

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows, for each point: integers."""
        return self._total(lambda sums: sums.gradient(points), rows)

    def second_moment(self) -> np.ndarray:
        """Return the sum of u u' over all records: integers."""
        return self._total(lambda sums: sums.second_moment())

    def _total(self, term: Callable[[Any], np.ndarray], rows: np.ndarray | None = None) -> np.ndarray:
        parts: list[np.ndarray] = []
        count = room = 0
        for size, sums in _built(self._build, self._reader, rows):
            if size > room:
                parts.append(term(sums))
                room = grid.ROWS_PER_INT64
            else:
                parts[-1] = parts[-1] + term(sums)
            room, count = room - size, count + size
        return grid.total(parts, count)


def row_blocks(count: int, width: int) -> list[slice]:
    """Return slices of records with so many numbers each, of which a block has at most 2^20 (or is one record)."""
    size = max(1, BLOCK // width)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def block_rows(d: int) -> int:
    """Return how many records make a block: few enough for sums in 64 bits."""
    return max(1, min(BLOCK // d, grid.ROWS_PER_INT64))


def _built(build: Build, reader: Reader, rows: np.ndarray | None) -> Iterator[tuple[int, Any]]:
    """Yield an engine for each block and its number of records; the next ones are built meanwhile."""

    def built(block: Block) -> tuple[int, Any]:
        features, targets = block()
        return len(targets), build(features, targets)

    pending = deque()
    for block in reader.blocks(block_rows(reader.shape[1]), rows):
        pending.append(threads._pool().submit(built, block))
        if len(pending) > _AHEAD:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
