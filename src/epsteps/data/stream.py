"""Records that do not fit in memory: any engine, given one block of them after the other.

Float means are combined by weight; exact sums are sums of integers, so that blocks make no difference at all. Where the
user allows a file for them, prepared records are kept there: the first pass writes it, and the others read it alone.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from typing import Protocol

import numpy as np

from epsteps.data.chunks import ROWS_PER_INT64, Result, Sized, Term, added, heard
from epsteps.data.engine import PARTS, ArrayEngine, Engine, allowed, one_blas_thread, pool, require_exact
from epsteps.problem import grid
from epsteps.problem.grid import STEPS, Points
from epsteps.problem.problem import Problem

# Numbers in a block. A few blocks exist at a time, each as read, as converted and as an engine holds it.
BLOCK = 2**20
# Times as many are in a block of prepared records, which are neither converted nor copied.
_PREPARED = 4

# A block of features and targets, read when it is called: by a thread, if that helps.
Block = Callable[[], tuple[np.ndarray, np.ndarray]]
# All records as integers on the grid, row by row, and encoded targets: block by block, in order.
Prepared = Iterator[tuple[np.ndarray, np.ndarray]]
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

    def forget(self, start: int, stop: int) -> None:
        """Leave these records, which are not needed soon, to their disk: the system's memory is for others."""
        ...


class StreamEngine(Engine):
    """Sums over records that are read in blocks for every call; ``kind`` is the engine that computes with a block.

    ``keep`` stores prepared records and returns what reads them: then exact sums read these, from when they are
    prepared until ``close`` is called or the engine is collected.
    """

    def __init__(
        self,
        problem: Problem,
        reader: Reader,
        kind: type[ArrayEngine],
        keep: Callable[[Prepared], Reader] | None = None,
    ) -> None:
        self._problem, self._reader, self._kind, self._keep = problem, reader, kind, keep
        self._exact: Reader | None = None  # what exact sums read, once every record has been read

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

    def total(self, term: Term, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of a term over chunks of the prepared records, or of these rows."""
        return self._total(lambda engine: engine.total(term), rows, ROWS_PER_INT64)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all prepared records in order, UNPROTECTED: real features with the intercept, and encoded targets."""
        for block in self._exact_blocks(None):
            yield from self._exact_engine(block).blocks()

    def prepare(self) -> None:
        """Test the engine that computes with blocks, and read every record once: what cannot be read fails here.

        Where prepared records are kept, they are written now.
        """
        self._ready()

    def close(self) -> None:
        """Let go of prepared records that are kept: the next exact sum would prepare them again."""
        self._exact = None

    def _ready(self) -> Reader:
        """Return what exact sums read."""
        require_exact(_of_prepared(self._kind), self._kind.name)
        if self._exact is not None:
            return self._exact
        if self._keep is None:
            for _ in heard(_ahead(lambda block: (len(block()[1]), None), self._raw_blocks(None)), self._count(None)):
                pass
            self._exact = self._reader
        else:
            self._exact = self._keep(self._prepared())
        return self._exact

    def _prepared(self) -> Prepared:
        """Yield all records as integers and encoded targets; those that were written need no memory as they were."""

        def sized(block: Block) -> tuple[int, tuple[np.ndarray, np.ndarray]]:
            integers, targets = self._rounded(block)
            return len(targets), (integers, targets)

        start = 0
        for size, prepared in heard(_ahead(sized, self._raw_blocks(None)), self._count(None)):
            yield prepared
            self._reader.forget(start, start + size)
            start += size

    def _mean(self, term: _Term, rows: np.ndarray | None = None) -> np.ndarray:
        total, count = np.zeros(()), 0
        for size, part in heard(self._parts(term, self._raw_blocks(rows), self._float_engine), self._count(rows)):
            total = total + size * part
            count += size
        return total / count

    def _total(self, term: _Term, rows: np.ndarray | None = None, largest: int = grid.ROWS_PER_INT64) -> np.ndarray:
        count, parts = self._count(rows), self._parts(term, self._exact_blocks(rows), self._exact_engine)
        return added(heard(parts, count), count, largest)

    def _count(self, rows: np.ndarray | None) -> int:
        return self._reader.shape[0] if rows is None else len(rows)

    def _parts(
        self, term: _Term, blocks: Iterable[Block], engine_of: Callable[[Block], ArrayEngine]
    ) -> Sized[np.ndarray]:
        """Yield the number of records of each block, and the term; the next blocks are read meanwhile."""

        def part(engine: ArrayEngine) -> tuple[int, np.ndarray]:
            return len(engine), term(engine)

        if not self._kind.in_threads:
            yield from map(part, _ahead(engine_of, blocks))
        else:
            with one_blas_thread():
                yield from _ahead(lambda block: part(engine_of(block)), blocks)

    def _float_engine(self, block: Block) -> ArrayEngine:
        features, targets = block()
        return self._kind(self._problem, features, self._problem.loss.encode(targets)).only(exact=False)

    def _exact_engine(self, block: Block) -> ArrayEngine:
        return self._kind.of_prepared(self._problem, *(block() if self._keep else self._rounded(block)))

    def _rounded(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        features, targets = block()
        return self._kind._rounded(self._problem, features), self._problem.loss.encode(targets)

    def _raw_blocks(self, rows: np.ndarray | None) -> Iterator[Block]:
        return self._reader.blocks(block_rows(self._reader.shape[1]), rows)

    def _exact_blocks(self, rows: np.ndarray | None) -> Iterator[Block]:
        reader = self._ready()
        size = block_rows(reader.shape[1], _PREPARED if self._keep else 1)
        return reader.blocks(size, rows)


def _ahead(work: Callable[[Block], Result], blocks: Iterable[Block]) -> Generator[Result, None, None]:
    """Yield what threads make of each block, in order; a few are always on their way."""
    pending = deque()
    for block in blocks:
        pending.append(pool().submit(work, block))
        if len(pending) > min(allowed(), PARTS):
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


@cache
def _of_prepared(kind: type[ArrayEngine]) -> Callable[[Problem, np.ndarray, np.ndarray], ArrayEngine]:
    """Return what makes an engine of raw records on a grid of unit size as if they had been kept: for its test."""
    return lambda problem, features, targets: kind.of_prepared(problem, features * np.float32(STEPS), targets)


def block_rows(d: int, blocks: int = 1) -> int:
    """Return how many records make a block, or several blocks as one: few enough for sums in 64 bits."""
    return max(1, min(blocks * BLOCK // d, ROWS_PER_INT64))
