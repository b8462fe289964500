"""Records that do not fit in memory: any engine, given one block of them after the other.

Float means are combined by weight; exact sums are sums of integers, so that blocks make no difference at all.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Protocol

import numpy as np

from epsteps.data.chunks import ROWS_PER_INT64, Term
from epsteps.data.engine import ArrayEngine, Engine, pool, require_exact
from epsteps.problem import grid
from epsteps.problem.grid import Points
from epsteps.problem.problem import Problem

# Numbers in a block. A few blocks exist at a time, each as read, as converted and as an engine holds it.
BLOCK = 2**20
# Blocks that are read and converted by other threads while one is computed with.
_AHEAD = 2

# A block of raw features and targets, read when it is called: by a thread, if that helps.
Block = Callable[[], tuple[np.ndarray, np.ndarray]]
_Term = Callable[[ArrayEngine], np.ndarray]


class Reader(Protocol):
    """What can be read in blocks."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of records and features."""
        ...

    def blocks(self, size: int, rows: np.ndarray | None = None) -> Iterator[Block]:
        """Yield all records, or these rows in any order, in blocks of at most ``size``."""
        ...


class StreamEngine(Engine):
    """Sums over records that are read anew for every call; ``kind`` is the engine that computes with a block."""

    def __init__(self, problem: Problem, reader: Reader, kind: type[ArrayEngine]) -> None:
        self._problem, self._reader, self._kind = problem, reader, kind

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        return self._mean(lambda engine: engine.mean_gradient(x), rows)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        return self._mean(lambda engine: engine.mean_loss(x))

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        return self._mean(lambda engine: engine.hessian(x))

    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of slope x record over all records, or over these rows; one column per point."""
        return self._total(lambda engine: engine.sums(points), rows)

    def second_moment(self) -> np.ndarray:
        """Return the exact sum of u u' over all records."""
        return self._total(lambda engine: engine.second_moment())

    def total(self, term: Term, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of a term over chunks of the prepared records, or of these rows."""
        return self._total(lambda engine: engine.total(term), rows, ROWS_PER_INT64)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all prepared records in order, UNPROTECTED: real features with the intercept, and encoded targets."""
        for _, engine in self._engines(None, exact=True):
            yield from engine.blocks()

    def prepare(self) -> None:
        """Test the engine that computes with blocks, and read every record once: what cannot be read fails here."""
        require_exact(self._kind, self._kind.name)
        _ = self._is_readable

    @cached_property
    def _is_readable(self) -> bool:
        """Whether every block can be read; what is damaged raises."""
        for block in self._reader.blocks(block_rows(self._reader.shape[1])):
            block()
        return True

    def _mean(self, term: _Term, rows: np.ndarray | None = None) -> np.ndarray:
        total, count = np.zeros(()), 0
        for size, engine in self._engines(rows, exact=False):
            total = total + size * term(engine)
            count += size
        return total / count

    def _total(self, term: _Term, rows: np.ndarray | None = None, largest: int = grid.ROWS_PER_INT64) -> np.ndarray:
        self.prepare()
        parts: list[np.ndarray] = []
        count = room = 0
        for size, engine in self._engines(rows, exact=True):
            if size > room:
                parts.append(term(engine))
                room = largest
            else:
                parts[-1] = parts[-1] + term(engine)
            room, count = room - size, count + size
        return grid.total(parts, count, largest)

    def _engines(self, rows: np.ndarray | None, *, exact: bool) -> Iterator[tuple[int, ArrayEngine]]:
        """Yield an engine for each block and its number of records; the next ones are prepared meanwhile."""

        def prepared(block: Block) -> tuple[int, ArrayEngine]:
            features, targets = block()
            engine = self._kind(self._problem, features, self._problem.loss.encode(targets))
            return len(targets), engine.only(exact=exact)

        pending = deque()
        for block in self._reader.blocks(block_rows(self._reader.shape[1]), rows):
            pending.append(pool().submit(prepared, block))
            if len(pending) > _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def block_rows(d: int) -> int:
    """Return how many records make a block: few enough for sums in 64 bits."""
    return max(1, min(BLOCK // d, ROWS_PER_INT64))
