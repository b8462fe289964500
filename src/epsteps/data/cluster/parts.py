"""Questions to the records in the memory of dask workers: asked once in a pass, they come back as one sum."""

import atexit
import math
import os
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from epsteps.data.chunks import heard, watched
from epsteps.data.cluster.workers import (
    FAN,
    Partition,
    PartitionError,
    Question,
    Runs,
    answer,
    hold,
    make_part,
    trouble,
    unreadable,
)
from epsteps.data.engine import SelfTestError, allowed
from epsteps.problem.problem import Problem
from epsteps.problem.validate import MissingExtraError, require

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
# Answers that the client adds itself. More are added by workers first, in a tree of few levels.
_FEW = 2
# Bytes of a question, in all tasks together, from which it is sent once and handed on between workers.
_LARGE = 2**20


@dataclass(frozen=True, eq=False)
class Held:
    """A part that a worker holds, and the partitions that it is made of."""

    future: Any
    partitions: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Piece:
    """A part, how many of its records are asked for, and which; None stands for all."""

    part: Any
    count: int
    rows: np.ndarray | Runs | None


@dataclass(eq=False)
class Thread:
    """A worker's thread, the partitions that it keeps, and their number of records."""

    worker: str | None
    partitions: list[int] = field(default_factory=list)
    rows: int = 0


def shared(owners: dict[int, str | None], counts: Sequence[int], threads: dict[str, int]) -> list[Thread]:
    """Return what each thread keeps: the partitions that its worker has made, up to its share of the records.

    What is more goes to those that have less, once: afterwards every pass takes as long as the fullest of them.
    """
    all_threads = [Thread(worker) for worker, count in threads.items() for _ in range(count)] or [Thread(None)]
    by_worker = defaultdict(list)
    for thread in all_threads:
        by_worker[thread.worker].append(thread)
    share, surplus = sum(counts[i] for i in owners) / len(all_threads), []

    def give(i: int, among: list[Thread], most: float) -> bool:
        least = min(among, key=lambda thread: thread.rows)
        if least.rows > most:
            return False
        least.partitions.append(i)
        least.rows += counts[i]
        return True

    for i, worker in owners.items():
        if worker not in by_worker or not give(i, by_worker[worker], share - counts[i] / 2):
            surplus.append(i)
    for i in surplus:
        give(i, all_threads, math.inf)
    return [thread for thread in all_threads if thread.partitions]


class Parts:
    """The parts of a problem's records, each a task that dask can run again from its source, and questions to them.

    A part of exact sums is all that one thread of a worker holds, so that a pass has a task for each of these, however
    many partitions there are. One of float means, which depend on the order of sums, is a partition.
    """

    def __init__(
        self, problem: Problem, partitions: Sequence[Partition], name: str, client: Any, *, exact: bool
    ) -> None:
        self._counts = [partition.rows for partition in partitions]
        if sum(self._counts) != problem.n:
            raise ValueError(f"partitions must have the problem's n = {problem.n} rows, got {sum(self._counts)}.")
        self._client, self._partitions, self._exact = client, list(partitions), exact
        self._make = partial(make_part, problem, name, exact)
        self._held: list[Held] = []
        self._persist(self._load, _lost())

    def ask(
        self, what: str, add: Callable, arguments: tuple, rows: np.ndarray | None, *, weighted: bool = False
    ) -> np.ndarray:
        """Return the sum, by ``add``, of what every part's engines answer."""
        if not self._partitions:
            raise RuntimeError("these records are closed. Open them again.")
        question, chosen = Question(what, add, weighted, _pickled(arguments)), self._by_partition(rows)

        def once() -> np.ndarray:
            self._load()
            pieces = self._pieces(chosen)
            with _without_size_warnings():
                sent = [self._sent(question, len(pieces))] * len(pieces)
                answers = self._client.map(answer, [p.part for p in pieces], sent, [p.rows for p in pieces], pure=False)
            return self._reduced(answers, [piece.count for piece in pieces], add)

        return self._persist(once, (*_lost(), PartitionError))

    def close(self) -> None:
        """Let the workers forget these records."""
        self._held, self._partitions = [], []

    def _load(self) -> None:
        """Have workers make the parts that are not there, from their sources; what cannot be made raises."""
        there = {i for held in self._held for i in held.partitions}
        lost = [i for i in range(len(self._partitions)) if i not in there]
        if not lost:
            return
        made = self._made(lost)
        self._follow(list(made.values()), [self._counts[i] for i in lost])
        for error in self._client.gather(self._client.map(trouble, list(made.values()), pure=False)):
            if error is not None:
                raise error
        new = self._joined(made) if self._exact else [Held(future, (i,)) for i, future in made.items()]
        self._held = sorted(self._held + new, key=lambda held: held.partitions)

    def _made(self, indices: Sequence[int]) -> dict[int, Any]:
        """Return tasks of workers that read and prepare these partitions."""
        dask = require("dask", "dask", PURPOSE)
        tasks = []
        for i in indices:
            partition = self._partitions[i]
            make = partial(self._make, i, partition.rows, partition.read)
            tasks.append(dask.delayed(make, pure=False, traverse=False)(*partition.blocks))
        with _without_size_warnings():
            return dict(zip(indices, self._client.compute(tasks), strict=True))

    def _joined(self, made: dict[int, Any]) -> list[Held]:
        """Return the partitions that each thread of a worker keeps, as one part that stays there."""
        places = self._client.who_has(list(made.values()))
        owners = {i: next(iter(places.get(future.key, ())), None) for i, future in made.items()}
        joined = []
        for thread in shared(owners, self._counts, self._client.nthreads()):
            options = {"workers": [thread.worker], "allow_other_workers": True} if thread.worker else {}
            future = self._client.submit(hold, [made[i] for i in thread.partitions], pure=False, **options)
            joined.append(Held(future, tuple(thread.partitions)))
        return joined

    def _by_partition(self, rows: np.ndarray | None) -> list[np.ndarray] | None:
        """Return which rows of which partition are asked for, in their order; None stands for all."""
        if rows is None:
            return None
        rows, edges = np.asarray(rows), np.cumsum([0, *self._counts])
        if np.any((rows < 0) | (rows >= edges[-1])):
            raise IndexError(f"rows must be between 0 and {edges[-1] - 1}.")
        if np.all(rows[1:] >= rows[:-1]):
            cuts = np.searchsorted(rows, edges)
        else:
            owner = np.searchsorted(edges, rows, side="right")
            order = np.argsort(owner, kind="stable")
            rows, cuts = rows[order], np.searchsorted(owner[order], np.arange(1, len(edges) + 1))
        return [rows[cuts[i] : cuts[i + 1]] - edges[i] for i in range(len(self._counts))]

    def _pieces(self, chosen: list[np.ndarray] | None) -> list[Piece]:
        """Return the parts that are asked; if there is nothing to ask for, one of them for nothing."""
        pieces = []
        for held in self._held:
            counts = [self._counts[i] for i in held.partitions]
            if chosen is None:
                pieces.append(Piece(held.future, sum(counts), None))
            else:
                before = np.cumsum([0, *counts[:-1]])
                rows = [chosen[i] + offset for i, offset in zip(held.partitions, before, strict=True)]
                own = np.concatenate(rows)
                pieces.append(Piece(held.future, len(own), Runs.of(own)))
        return [piece for piece in pieces if piece.count] or pieces[:1]

    def _sent(self, question: Question, tasks: int) -> Any:
        """Return what goes into every task: the question, or a task that holds it if it is large."""
        if len(question.arguments) * tasks < _LARGE:
            return question
        return self._client.submit(partial(_itself, question), pure=False)

    def _reduced(self, answers: list[Any], counts: list[int], add: Callable) -> np.ndarray:
        """Add the answers, in workers first if there are more than a few."""
        asked = answers, counts
        while len(answers) > _FEW:
            starts = range(0, len(answers), FAN)
            groups = [answers[i : i + FAN] for i in starts]
            counts = [sum(counts[i : i + FAN]) for i in starts]
            answers = self._client.map(add, groups, counts, pure=False)
        self._follow(*asked)
        return add(self._client.gather(answers), sum(counts))

    def _follow(self, tasks: list[Any], counts: Sequence[int]) -> None:
        """Where someone watches, wait for each of these tasks, whether it succeeds or not."""
        if not watched():
            return
        sizes = {task.key: count for task, count in zip(tasks, counts, strict=True)}
        done = require("distributed", "dask", PURPOSE).as_completed(tasks, loop=self._client.loop)
        for _ in heard(((sizes[task.key], None) for task in done), sum(counts)):
            pass

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
            self._forget(index)

    def _forget(self, index: int | None) -> None:
        """Let go of parts that are lost, and of the one with this partition: a task that failed is not run again."""
        self._held = [
            held
            for held in self._held
            if held.future.status in ("pending", "finished") and index not in held.partitions
        ]

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


def _pickled(arguments: tuple) -> bytes:
    """Return arguments as bytes, once for all tasks; what is defined in a script or a notebook goes with its code."""
    return require("distributed.protocol.pickle", "dask", PURPOSE).dumps(arguments)


def _itself(question: Question) -> Question:
    return question


def _without_size_warnings() -> Any:
    """Return a context in which targets and points may be part of what dask is sent, however large."""
    return require("dask", "dask", PURPOSE).config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})


def _lost() -> tuple[type[Exception], ...]:
    """Return what dask raises when workers, or what they held, are gone."""
    distributed = require("distributed", "dask", PURPOSE)
    closed = require("distributed.comm.core", "dask", PURPOSE).CommClosedError
    return distributed.CancelledError, distributed.KilledWorker, closed
