"""Parts of the records in the memory of dask workers: read where they are kept, they answer with sums alone."""

import atexit
import os
import pickle
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from epsteps.data import engine as engines
from epsteps.data.engine import Engine, SelfTestError, allowed
from epsteps.problem.extras import MissingExtraError, require
from epsteps.problem.problem import Problem

# How long a scheduler may take to answer, and its first worker to be there.
_SECONDS = 20


class Connection:
    """A client of a dask scheduler; what was started for it ends when it is closed, collected, or Python exits."""

    def __init__(self, client: Any, *started: Any) -> None:
        self.client = client
        self._finalizer = weakref.finalize(self, _close, started)
        self._finalizer.atexit = False
        atexit.register(self._finalizer)  # after distributed's own, so that it runs before: nothing is lost then

    def close(self) -> None:
        """End what was started for this connection; a client that existed before stays."""
        self._finalizer()
        atexit.unregister(self._finalizer)


def _close(started: tuple[Any, ...]) -> None:
    for each in started:
        each.close()


def connect(scheduler: Any = None) -> Connection:
    """Return a connection to this scheduler (an address or a client), the current client's, or one started here."""
    distributed = require("distributed", "dask", PURPOSE)
    if isinstance(scheduler, distributed.Client):
        return Connection(scheduler)
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError):
            raise OSError(
                f"no dask scheduler answers at {scheduler!r}. Start one (`dask scheduler` prints its address), or "
                "leave scheduler out for workers on this machine."
            ) from None
        return Connection(client, client)
    try:
        return Connection(distributed.get_client())
    except ValueError:  # there is none
        workers = _local_workers(distributed)
        client = distributed.Client(workers, set_as_default=False)
        return Connection(client, client, workers)


def _local_workers(distributed: Any) -> Any:
    """Return one worker process per core, and leave this process's environment as it is."""
    config = require("dask", "dask", PURPOSE).config
    before, changed = set(os.environ), {*config.get("distributed.nanny.pre-spawn-environ"), "PYTHONHASHSEED"}
    # By default dask has workers return memory to the system at once, which makes sums by NumPy four times slower.
    with config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None}):
        workers = distributed.LocalCluster(
            n_workers=allowed(),
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any port: the usual one may be taken
            scheduler_kwargs={"dashboard": False},
            env={"OMP_NUM_THREADS": "1"},
        )
    for name in changed - before:  # dask limits the workers' threads here too
        os.environ.pop(name, None)
    return workers


def require_workers(client: Any) -> None:
    """Raise unless a worker is there, or comes soon."""
    if client.asynchronous:
        raise TypeError("the dask client must not be asynchronous. Use Client(..., asynchronous=False).")
    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError:
        raise OSError("the dask scheduler has no workers. Start some with `dask worker` and its address.") from None


PURPOSE = "The dask engine"
# How often a question is put to the workers before giving up on them.
_ATTEMPTS = 3
# Answers that the client adds itself; of more, workers add this many at a time first.
_FEW = 32
# Bytes of points from which they are sent once, instead of with every task.
_LARGE = 2**16

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Partition:
    """Where a worker finds ``rows`` consecutive records: ``read(*blocks)`` returns features and targets there.

    ``blocks`` are dask's delayed objects, which ``read`` gets computed.
    """

    rows: int
    read: Callable[..., Arrays]
    blocks: tuple[Any, ...] = ()


class PartitionError(ValueError):
    """A part of the records does not have the declared structure, or could not be read; it never quotes a record."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index

    def __reduce__(self) -> tuple:
        return PartitionError, (str(self), self.index)


class Part:
    """An engine over the records of one partition, in the memory of a worker."""

    def __init__(self, rows: int, engine: Engine, size: int) -> None:
        self.rows, self.engine, self._size = rows, engine, size

    def __sizeof__(self) -> int:
        return self._size  # dask leaves large objects where they are, and moves the small ones to them


class Refused:
    """Stands for a part that could not be made, and says why.

    It is a value and not an exception: of a task that raises, dask logs the arguments, records included.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error


@np.errstate(all="ignore")  # a warning would tell something about a record
def make_part(
    problem: Problem, name: str, exact: bool, index: int, rows: int, read: Callable[..., Arrays], *blocks: Any
) -> Part | Refused:
    """Return the engine's exact sums, or else its float means, over the records that ``read`` finds."""
    try:
        features, targets = read(*blocks)
        if features.shape != (rows, problem.d) or targets.shape != (rows,):
            raise PartitionError(
                f"partition {index} must have {rows} rows of {problem.d} features and a target each, got shapes "
                f"{features.shape} and {targets.shape}. Declare the chunks or columns as they are.",
                index,
            )
        engine = engines.chosen(name, problem.loss, features.size)(problem, features, problem.loss.encode(targets))
        return Part(rows, engine.only(exact=exact), size=4 * rows * (problem.dimension + 1))
    except (PartitionError, MissingExtraError, SelfTestError) as error:
        return Refused(error)
    except Exception as error:  # a reader's own words may quote a record: its kind has to do
        return Refused(unreadable(error, index))


def unreadable(error: BaseException, index: int | None = None) -> PartitionError:
    """Return an error that says which part could not be read, and no more of why than the kind of the error."""
    which = "a partition" if index is None else f"partition {index}"
    return PartitionError(
        f"{which} of the records could not be read by a worker ({type(error).__name__}). Read it there by itself to "
        "see why; every worker needs the files, epsteps and what its engine imports.",
        index,
    )


def trouble(part: Part | Refused) -> Exception | None:
    """Return why there is no part, if there is none."""
    return part.error if isinstance(part, Refused) else None


@np.errstate(all="ignore")
def weighted_mean(what: str, part: Part | Refused, arguments: tuple, rows: np.ndarray | None) -> np.ndarray:
    """Return a part's mean times its number of records."""
    if isinstance(part, Refused):
        raise part.error
    chosen = () if rows is None else (rows,)
    return getattr(part.engine, what)(*arguments, *chosen) * (part.rows if rows is None else len(rows))


@np.errstate(all="ignore")
def exact_sum(what: str, part: Part | Refused, arguments: tuple, rows: np.ndarray | None) -> np.ndarray:
    """Return a part's exact sum. The engine is tested in this process, to which dask may have moved the part."""
    if isinstance(part, Refused):
        raise part.error
    chosen = () if rows is None else (rows,)
    return getattr(part.engine, what)(*arguments, *chosen)


def add(parts: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Add float sums of ``count`` records in all."""
    return np.sum(parts, axis=0)


class Parts:
    """The parts of a problem's records, each a task that dask can run again from its source, and questions to them."""

    def __init__(
        self, problem: Problem, partitions: Sequence[Partition], name: str, client: Any, *, exact: bool
    ) -> None:
        counts = [partition.rows for partition in partitions]
        if sum(counts) != problem.n:
            raise ValueError(f"partitions must have the problem's n = {problem.n} rows, got {sum(counts)}.")
        self._client, self._partitions = client, list(partitions)
        self._make = partial(make_part, problem, name, exact)
        self._edges = np.cumsum([0, *counts])
        self._futures: list[Any] = [None] * len(counts)
        self._load(range(len(counts)))
        self._persist(self._require_loaded, _lost())

    def ask(self, answer: Callable, add: Callable, arguments: tuple, rows: np.ndarray | None) -> np.ndarray:
        """Return the sum, by ``add``, of every part's ``answer``."""
        if not self._futures:
            raise RuntimeError("these records are closed. Open them again.")
        pieces = self._pieces(rows)
        counts = [self._partitions[i].rows if local is None else len(local) for i, local in pieces]

        def once() -> np.ndarray:
            parts, locals_ = [self._futures[i] for i, _ in pieces], [local for _, local in pieces]
            with _without_size_warnings():
                asked = self._client.map(answer, parts, [self._sent(arguments)] * len(parts), locals_, pure=False)
            return self._reduced(asked, counts, add)

        return self._persist(once, (*_lost(), PartitionError))

    def close(self) -> None:
        """Let the workers forget these records."""
        self._futures = []

    def _load(self, indices: Sequence[int]) -> None:
        """Have workers make these parts from their sources."""
        dask = require("dask", "dask", PURPOSE)
        tasks = []
        for i in indices:
            self._futures[i] = None  # a task that failed must be forgotten before dask runs its sources again
            partition = self._partitions[i]
            make = partial(self._make, i, partition.rows, partition.read)
            tasks.append(dask.delayed(make, pure=False, traverse=False)(*partition.blocks))
        with _without_size_warnings():
            futures = self._client.compute(tasks)
        for i, future in zip(indices, futures, strict=True):
            self._futures[i] = future

    def _require_loaded(self) -> None:
        for error in self._client.gather(self._client.map(trouble, self._futures, pure=False)):
            if error is not None:
                raise error

    def _pieces(self, rows: np.ndarray | None) -> list[tuple[int, np.ndarray | None]]:
        """Return which rows of which part are asked for, in their order; None stands for all."""
        if rows is None:
            return [(i, None) for i in range(len(self._partitions))]
        rows = np.asarray(rows)
        if np.any((rows < 0) | (rows >= self._edges[-1])):
            raise IndexError(f"rows must be between 0 and {self._edges[-1] - 1}.")
        owner = np.searchsorted(self._edges, rows, side="right") - 1
        return [(int(i), rows[owner == i] - self._edges[i]) for i in np.unique(owner)] or [(0, rows)]

    def _sent(self, arguments: tuple) -> Any:
        """Return what goes into every task: the arguments, or a task that holds them if they are large."""
        if len(pickle.dumps(arguments)) < _LARGE:
            return arguments
        return self._client.submit(partial(tuple, arguments), pure=False)

    def _reduced(self, futures: list[Any], counts: list[int], add: Callable) -> np.ndarray:
        """Add the answers, in workers first if there are many."""
        while len(futures) > _FEW:
            starts = range(0, len(futures), _FEW)
            groups = [futures[i : i + _FEW] for i in starts]
            counts = [sum(counts[i : i + _FEW]) for i in starts]
            futures = self._client.map(add, groups, counts, pure=False)
        return add(self._client.gather(futures), sum(counts))

    def _persist(self, work: Callable[[], Any], passing: tuple[type[Exception], ...]) -> Any:
        """Return what ``work`` does, tried again after errors that pass when lost parts are made again."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return work()
            except passing as error:
                if attempt == _ATTEMPTS or self._client.status != "running":
                    raise self._final(error) from None
                index = getattr(error, "index", None)
            except (PartitionError, MissingExtraError, SelfTestError):
                raise
            except Exception as error:
                raise self._final(error) from None
            gone = {i for i, future in enumerate(self._futures) if future.status not in ("pending", "finished")}
            self._load(sorted(gone if index is None else gone | {index}))

    def _final(self, error: Exception) -> Exception:
        """Return what the caller gets to see of an error."""
        if isinstance(error, PartitionError):
            return error
        if self._client.status != "running":
            return OSError("the connection to the dask scheduler was lost. Connect and open the records again.")
        if isinstance(error, _lost()):
            return OSError(
                f"dask lost its workers {_ATTEMPTS} times ({type(error).__name__}). See that they have memory."
            )
        return unreadable(error)


def _without_size_warnings() -> Any:
    """Return a context in which targets and points may be part of what dask is sent, however large."""
    return require("dask", "dask", PURPOSE).config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})


def _lost() -> tuple[type[Exception], ...]:
    """Return what dask raises when workers, or what they held, are gone."""
    distributed = require("distributed", "dask", PURPOSE)
    closed = require("distributed.comm.core", "dask", PURPOSE).CommClosedError
    return distributed.CancelledError, distributed.KilledWorker, closed
