"""Engines: they add up records. The plan, the loop, the noise and the guarantee do not depend on which one does.

An engine gives float means for experiments and for solvers that nobody calls private, and exact integer sums, which
private runs are made of. Each is prepared when it is first asked for. A class derived from ``ArrayEngine`` that
declares a name can be asked for by this name: an engine is one file.
"""

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import pairwise
from operator import methodcaller
from typing import Any, ClassVar, Self

import numpy as np
from threadpoolctl import ThreadpoolController

from epsteps.bounds.steps import Steps
from epsteps.data import chunks, encoding
from epsteps.data.chunks import Chunk, Result, Sized, Term
from epsteps.problem import levels
from epsteps.problem.ball import Ball
from epsteps.problem.grid import ROWS_PER_DOUBLE, STEPS, Grid, Points
from epsteps.problem.losses import Logistic, Loss, Squared
from epsteps.problem.problem import Problem

# Numbers in the records from which compiled kernels are worth the seconds that compiling them takes once.
_WORTH_COMPILING = 1_000_000
# Records of the test before private sums: enough for the sums to pass 2^53 twice over.
_ROWS = 2 * ROWS_PER_DOUBLE + 37
# Features and points of that test. Few and many, one point or several: engines have kernels of their own for each.
_SHAPES = ((3, 1), (3, 5), (100, 1))
# Sums are taken over this many parts of the records, so that results do not depend on the number of threads.
PARTS = 8
# Chunks that a part of an exact sum has at most, so that who watches sees long passes move.
_CHUNKS = 64
# Records up to which chunks may keep something from one pass to the next: a few numbers of each, some 100 MB.
_KEPT_RECORDS = 2**22
# Numbers up to which chunks are kept themselves, as doubles: 16 MB.
_KEPT_NUMBERS = 2**21
# Margins below which starting threads costs more than it saves.
_WORTH_THREADS = 1_000_000
# Margins below which BLAS uses no threads of its own, which would spin while they wait.
_WORTH_LIMITING = 5_000
_NAMED: dict[str, type["ArrayEngine"]] = {}
# What a thread knows of itself: those of the pool that they are of it.
_thread = threading.local()


class Engine(ABC):
    """What computes sums over records, wherever they are. ``x`` is a vector, or a matrix with one point per column.

    A loss with several outputs has one block of coefficients for each, below each other in x. Exact sums are int64, or
    Python's integers where 64 bits could overflow.
    """

    @abstractmethod
    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; each clipped, if that is declared."""

    @abstractmethod
    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""

    @abstractmethod
    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point; clipping does not change it."""

    @abstractmethod
    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of slope x record over all records, or over these rows; one column per point."""

    @abstractmethod
    def total(self, term: Term, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of a term over chunks of the prepared records, or of these rows."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all prepared records in order, UNPROTECTED: real features with the intercept, and encoded targets."""

    @abstractmethod
    def prepare(self) -> None:
        """Prepare the exact sums: an engine that does not add exactly, or records that cannot be read, raise here."""

    def expect(self, passes: int) -> None:  # noqa: B027 -- an engine that keeps records in one way has no use for it
        """Be told that about so many exact sums over all records will follow: it may choose how they are kept."""

    def descends(self, size: int) -> bool:
        """Tell whether ``descend`` serves steps that read so many records."""
        return False

    def descend(
        self, steps: Steps, first: int, subsets: np.ndarray, noise: np.ndarray, ridge: float, paths: np.ndarray
    ) -> None:
        """Write the iterates that follow number ``first`` on each path, in floats."""
        raise NotImplementedError(f"{type(self).__name__} has no descents of its own.")


class ArrayEngine(Engine):
    """An engine over records in memory: raw features, and targets as the loss encodes them.

    A derived class computes with what its ``_stored`` makes of features: those in the domain for float means, in
    float64 or float32, and those on the grid for exact sums, which are integers in float32. ``class Mine(ArrayEngine,
    name="mine")`` is the engine of ``Rows(..., engine="mine")``.
    """

    name: ClassVar[str]
    # Whether it computes losses with several margins per record.
    several_outputs: ClassVar[bool] = True
    # Whether several of them, over blocks of records, may compute at the same time, each in a thread.
    in_threads: ClassVar[bool] = True
    _projected: ClassVar[Callable[..., Any]] = staticmethod(encoding.projected)
    _rounded: ClassVar[Callable[..., Any]] = staticmethod(encoding.integers)

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if name is not None:
            cls.name = name
            _NAMED[name] = cls

    def __init__(self, problem: Problem, features: Any, targets: np.ndarray) -> None:
        if features.ndim != 2 or targets.shape != features.shape[:1]:
            raise ValueError(f"features and targets must fit, got shapes {features.shape} and {targets.shape}.")
        self._problem, self._raw, self._count = problem, (features, targets), len(targets)

    @abstractmethod
    def _stored(self, features: Any, targets: np.ndarray, units: np.ndarray, *, exact: bool) -> Any:
        """Return records as this engine computes with them. ``units`` are the real sizes of the features' units."""

    @abstractmethod
    def _exact_sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return what ``sums`` does."""

    @abstractmethod
    def _chunk(self, rows: slice | np.ndarray) -> Chunk:
        """Return a few prepared records."""

    @classmethod
    def of_prepared(cls, problem: Problem, integers: np.ndarray, targets: np.ndarray) -> Self:
        """Return an engine over records that were prepared before, for exact sums: it prepares and copies nothing.

        ``integers`` are what ``_rounded`` returned, row by row in float32, and encoded targets are float32 too.
        """
        engine = cls(problem, integers, targets)
        engine._integers = engine._stored(integers, targets, _real_units(problem), exact=True)
        del engine._raw
        return engine

    @cached_property
    def _floats(self) -> Any:
        """The records for float means."""
        features, targets = self._raw
        projected = self._projected(self._problem, features)
        return self._stored(projected, targets, np.ones(self._problem.width), exact=False)

    @cached_property
    def _integers(self) -> Any:
        """The records for exact sums."""
        features, targets = self._raw
        return self._stored(self._rounded(self._problem, features), targets, _real_units(self._problem), exact=True)

    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of slope x record over all records, or over these rows; one column per point."""
        self.prepare()
        return self._exact_sums(points, rows)

    def total(self, term: Term, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of a term over chunks of the prepared records, or of these rows."""
        self.prepare()
        count, width = len(self) if rows is None else len(rows), self._problem.width
        size = self._chunk_size(term)

        def part(start: int, stop: int) -> Any:
            total: Any = 0
            for i in range(start, stop, size):
                between = slice(i, min(i + size, stop))
                total = total + term(self._kept(between) if rows is None else self._chunk(rows[between]))
            return total

        most = chunks.ROWS_PER_INT64
        return chunks.added(each_part(part, count, work=width, largest=min(most, _CHUNKS * size)), count, most)

    def _kept(self, between: slice) -> Chunk:
        """Return some records that lie side by side, with what is kept of them from one pass to the next.

        Of few records that is all: a pass then begins where the last one made doubles of its integers.
        """
        place, few = (between.start, between.stop), len(self) * self._problem.width <= _KEPT_NUMBERS
        chunk = self._chunks_kept.get(place) if few else None
        if chunk is None:
            chunk = self._chunk(between)
            if len(self) <= _KEPT_RECORDS:
                chunk.memory = self._memories.setdefault(place, {})
            if few:
                self._chunks_kept[place] = chunk
        return chunk

    @cached_property
    def _chunks_kept(self) -> dict[tuple[int, int], Chunk]:
        """Chunks of few records, by where they begin and end."""
        return {}

    @cached_property
    def _memories(self) -> dict[tuple[int, int], dict[Any, Any]]:
        """What chunks of all records keep from one pass to the next, by where they begin and end."""
        return {}

    def _chunk_size(self, term: Term) -> int:
        """Return how many records a term gets at a time."""
        return chunks.size_of(self._problem.width + 3 * self._problem.loss.outputs, allowed())

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all prepared records in order, UNPROTECTED: real features with the intercept, and encoded targets."""
        self.prepare()
        units, size = _real_units(self._problem), chunks.size_of(self._problem.width, 1)
        for start in range(0, len(self), size):
            chunk = self._chunk(slice(start, min(start + size, len(self))))
            yield chunk.features * units, chunk.targets.astype(float)

    def __len__(self) -> int:
        return self._count

    def prepare(self) -> None:
        """Round the records to the grid, once the engine has passed its test."""
        require_exact(type(self), self.name)
        _ = self._integers

    def only(self, *, exact: bool) -> Self:
        """Prepare exact sums, or else float means, and let go of the raw records: the other cannot be asked for."""
        if exact:
            self.prepare()
        else:
            _ = self._floats
        del self._raw
        return self


def _real_units(problem: Problem) -> np.ndarray:
    """Return the real size of one step of the grid, for each column."""
    return Grid(problem).units[: problem.width] / STEPS


def kernel_of(loss: Loss) -> str | None:
    """Return the name of the compiled code that serves a loss, or None if there is none: then NumPy asks the loss.

    A loss declares it in its own class. What it inherits does not count: it may compute something else than the class
    that it is derived from. Kernels hold each slope to its bound, so that a loss which declares less does without.
    """
    declared = vars(type(loss)).get("kernel")
    return declared if all(loss.joint_slope(norm) >= 1 for norm in levels.NORMS) else None


def kernel_targets(kernel: str | None, targets: np.ndarray) -> np.ndarray:
    """Return targets as kernels take them: for the logistic one -1 and 1 alone, so that its slopes keep their bound."""
    return np.where(targets > 0, 1.0, -1.0) if kernel == "logistic" else targets


def names() -> tuple[str, ...]:
    """Return the names that ``Rows`` takes for an engine."""
    return ("auto", *_NAMED, "dask")


def require_outputs(name: str, loss: Loss) -> None:
    """Raise if the named engine does not compute a loss with so many margins per record."""
    if loss.outputs > 1 and name in _NAMED and not _NAMED[name].several_outputs:
        raise ValueError(
            f"engine={name!r} computes one margin per record, {type(loss).__name__} has {loss.outputs}. "
            "Use engine='auto' or 'numpy'."
        )


def chosen(name: str, loss: Loss, numbers: int) -> type[ArrayEngine]:
    """Return the engine that a name stands for.

    "auto" is the compiled one for many numbers, where numba is there and the loss has one margin per record.
    """
    require_outputs(name, loss)
    if name == "auto":
        worth = loss.outputs == 1 and numbers >= _WORTH_COMPILING
        name = "fast" if worth and find_spec("numba") is not None else "numpy"
    return _NAMED[name]


class SelfTestError(RuntimeError):
    """An engine does not add integers exactly on this machine."""


@cache
@chunks.watching(None)
def require_exact(make: Callable[[Problem, np.ndarray, np.ndarray], ArrayEngine], name: str) -> None:
    """Raise unless the engine's sums over synthetic records are those that were added in 64-bit integers.

    Most records are nearly as large as they may be, have odd numbers for features and pull the same way, so that an
    accumulator which rounds, or which is not emptied in time, shows. Sums over all records and over given rows are
    tried, and what terms are made of: sums over the largest chunk that the engine hands out.
    """
    every = np.arange(_ROWS) * 7919 % _ROWS  # each record once, in another order
    for loss in (Logistic(), Squared()):
        for d, columns in _SHAPES:
            problem, integers, targets, x = _synthetic(loss, d, columns)
            points = Grid(problem).points(x, 1.0)
            engine, expected = (
                make(problem, integers / np.float32(STEPS), targets),
                _expected(loss, integers, targets, points),
            )
            sums = (np.array_equal(engine._exact_sums(points, rows), expected) for rows in (None, every))
            if not (all(sums) and _adds_chunks(engine, integers)):
                raise SelfTestError(
                    f"the {name!r} engine does not add integers exactly on this machine: it is not used for private "
                    "sums. Please report it, and use engine='numpy'."
                )


def _synthetic(loss: Loss, d: int, columns: int) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """Return a problem, records on its grid and points of no one: fixed numbers, a few spread over the whole range."""
    problem = Problem(loss, Ball(1, norm=math.inf), ridge=0.0, n=_ROWS, d=d)
    index, column = np.arange(_ROWS)[:, None], np.arange(d)
    spread = (index * 7919 + column * 104_729) % (2 * STEPS) - STEPS
    features = np.where(index % 16 == 0, spread, STEPS - 1 - 2 * ((index + column) % 11))
    targets = np.where(index[:, 0] % 5 == 0, 1, -1)
    x = np.linspace(1.0, 2.0, d * columns).reshape(d, columns) * (3 / d)  # margins where slopes are neither 0 nor 1
    return problem, features.astype(np.float32), targets.astype(np.float32), x


def _expected(loss: Loss, features: np.ndarray, targets: np.ndarray, points: Points) -> np.ndarray:
    """Return the sums in int64, which holds all of them."""
    u = features.astype(np.int64)
    margins = (u @ points.coefficients.astype(np.int64)).astype(float)
    slopes = loss.levels(margins * points.step, targets[:, None], points.bound)
    return u.T @ slopes.astype(np.int64)


def _adds_chunks(engine: ArrayEngine, integers: np.ndarray) -> bool:
    """Tell whether a chunk of as many records as a term gets at a time adds up its records' products in int64."""
    size = min(engine._chunk_size(methodcaller("moment")), len(integers))
    chunk, u, column = (
        engine._chunk(slice(0, size)),
        integers[:size].astype(np.int64),
        integers[:size, :1].astype(float),
    )
    moment = u.T @ u
    gathered = (chunk.gather(column), chunk.gather_fixed(column / chunks.LIMB, 1))
    return (
        all(np.array_equal(found, moment[:, :1]) for found in gathered)
        and np.array_equal(chunk.squares(), np.diag(moment))
        and np.array_equal(chunk.moment(), moment)
        and np.array_equal(chunk.row_sums(np.ones(u.shape[1]), STEPS, 2), np.sum(u * u, axis=1))
    )


def map_parts(part: Callable[[int, int], Result], count: int, *, work: int, largest: int | None = None) -> list[Result]:
    """Return ``part(start, stop)`` for parts of the records, as ``each_part`` yields them."""
    return [result for _, result in each_part(part, count, work=work, largest=largest)]


def each_part(
    part: Callable[[int, int], Result], count: int, *, work: int, largest: int | None = None
) -> Sized[Result]:
    """Yield the size and ``part(start, stop)`` of each part of the records, in threads where ``work`` per record pays.

    No part is larger than ``largest``. BLAS keeps to one thread: its own would spin, or wait for each other. A thread
    of the pool takes all parts itself: if every one of them waited for others, none would be left to compute.
    """
    worth = count * work >= _WORTH_THREADS
    number = max(PARTS if worth else 1, -(-count // largest) if largest else 1)
    edges = [0, count] if number == 1 else np.linspace(0, count, number + 1).astype(int).tolist()
    sizes = [stop - start for start, stop in pairwise(edges)]
    small = count * work < _WORTH_LIMITING or getattr(_thread, "is_of_pool", False)
    run = pool().map if worth and not small and allowed() > 1 else map

    def parts() -> Sized[Result]:
        with nullcontext() if small else one_blas_thread():
            yield from zip(sizes, run(part, edges[:-1], edges[1:]), strict=True)

    return chunks.heard(parts(), count)


def allowed() -> int:
    """Return the cores this process may use, or what OMP_NUM_THREADS or NUMBA_NUM_THREADS allow of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")]
    return min([cores, *(int(limit) for limit in limits if limit.isdigit() and int(limit) > 0)])


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Return a context in which BLAS starts no threads, wherever it is called from."""
    limited = [(library, threads) for library in _blas() if (threads := library.get_num_threads()) != 1]
    for library, _ in limited:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, threads in limited:
            library.set_num_threads(threads)


@cache
def _blas() -> list[Any]:
    """Return what controls each BLAS library: asking them all is quicker than ``threadpoolctl`` in every pass."""
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


@cache
def pool() -> ThreadPoolExecutor:
    """Return the threads that all engines share."""
    return ThreadPoolExecutor(allowed(), thread_name_prefix="epsteps", initializer=_join)


def _join() -> None:
    _thread.is_of_pool = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # threads do not survive a fork
