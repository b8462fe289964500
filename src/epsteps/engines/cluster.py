"""The dask engine: records stay in the memory of workers, points go to them, sums come back.

A part of the records lives in a task that dask can run again from its source, so that a worker may be lost at any
moment: its parts are read again elsewhere, and the sums are the same. Of exact sums that holds to the last bit, however
the records are divided.
"""

import atexit
import os
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from epsteps import _validate, engines, grid
from epsteps._extras import require
from epsteps.engines import cluster_parts, cluster_sources, threads
from epsteps.engines.cluster_parts import Partition, PartitionError, Parts
from epsteps.grid import Points
from epsteps.problem import Problem

# How long a scheduler may take to answer, and its first worker to be there.
_SECONDS = 20


class ClusterEngine:
    """Float means over partitions of the records that dask workers hold.

    ``engine`` is what computes in a worker. ``keep`` is an object that lives as long as this one does.
    """

    def __init__(
        self, problem: Problem, partitions: Sequence[Partition], engine: str, client: Any, keep: object = None
    ) -> None:
        self._parts = Parts(problem, partitions, cluster_parts.make_means, engine, client)
        self._n, self._keep = problem.n, keep

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        return self._mean("mean_gradient", (x,), rows)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        return self._mean("mean_loss", (x,))

    def second_moment(self) -> np.ndarray:
        """Return the mean of u u' over all records."""
        return self._mean("second_moment", ())

    def close(self) -> None:
        """Let the workers forget these records."""
        self._parts.close()

    def _mean(self, what: str, arguments: tuple, rows: np.ndarray | None = None) -> np.ndarray:
        answer = partial(cluster_parts.weighted_mean, what)
        return self._parts.ask(answer, cluster_parts.add, arguments, rows) / (self._n if rows is None else len(rows))


class ClusterSums:
    """Exact sums over partitions of the records that dask workers hold: the same integers however they are divided.

    ``engine`` and ``keep`` are as in ``ClusterEngine``.
    """

    def __init__(
        self, problem: Problem, partitions: Sequence[Partition], engine: str, client: Any, keep: object = None
    ) -> None:
        self._parts = Parts(problem, partitions, cluster_parts.make_sums, engine, client)
        self._keep = keep

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows, for each point: integers."""
        return self._sum("gradient", (points,), rows)

    def second_moment(self) -> np.ndarray:
        """Return the sum of u u' over all records: integers."""
        return self._sum("second_moment", ())

    def close(self) -> None:
        """Let the workers forget these records."""
        self._parts.close()

    def _sum(self, what: str, arguments: tuple, rows: np.ndarray | None = None) -> np.ndarray:
        return self._parts.ask(partial(cluster_parts.exact_sum, what), grid.total, arguments, rows)


class ClusterRecords:
    """Records in dask workers: what ``open_records`` returns."""

    def __init__(
        self, problem: Problem, partitions: Sequence[Partition], engine: str, connection: "Connection"
    ) -> None:
        self._arguments = problem, partitions, engine, connection.client, connection
        self._connection = connection
        self._engine: ClusterEngine | None = None
        self._sums: ClusterSums | None = None

    @property
    def count(self) -> int:
        """Number of records."""
        return self._arguments[0].n

    def engine(self) -> ClusterEngine:
        """Return the float means; the first call has the workers read the records."""
        if self._engine is None:
            self._engine = ClusterEngine(*self._arguments)
        return self._engine

    def sums(self) -> ClusterSums:
        """Return the exact sums; the first call has the workers read the records."""
        if self._sums is None:
            self._sums = ClusterSums(*self._arguments)
        return self._sums

    def check(self) -> NoReturn:
        """Refuse: what would be projected is counted where the records are, by their holder."""
        raise ValueError("records in dask workers are not counted from here. Leave out validate=True and check a part.")

    def close(self) -> None:
        """Let the workers forget the records, and end the workers if they were started for them."""
        for made in (self._engine, self._sums):
            if made is not None:
                made.close()
        self._connection.close()


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
    distributed = require("distributed", "dask", cluster_parts.PURPOSE)
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
    config = require("dask", "dask", cluster_parts.PURPOSE).config
    before, changed = set(os.environ), {*config.get("distributed.nanny.pre-spawn-environ"), "PYTHONHASHSEED"}
    # By default dask has workers return memory to the system at once, which makes sums by NumPy four times slower.
    with config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None}):
        workers = distributed.LocalCluster(
            n_workers=threads.allowed(),
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any port: the usual one may be taken
            scheduler_kwargs={"dashboard": False},
            env={"OMP_NUM_THREADS": "1"},
        )
    for name in changed - before:  # dask limits the workers' threads here too
        os.environ.pop(name, None)
    return workers


def open_records(
    problem: Problem,
    X: Any,
    y: Any,
    *,
    scheduler: Any = None,
    engine: str = "auto",
    columns: Sequence[str] | None = None,
) -> ClusterRecords:
    """Return records that dask workers read and keep; structure that does not fit the problem raises here.

    Parameters
    ----------
    problem : Problem
        The public facts that the records must fit.
    X : path, dask array of shape (n, d), or dask dataframe
        Features: a Parquet file or a folder of them that every worker can read, blocks of rows, or columns.
    y : str or array of shape (n,)
        The target's column, or for an array of features a dask or NumPy array of targets.
    scheduler : str or distributed.Client, optional
        Address of a scheduler. Without it the current client is used, and where there is none workers are started on
        this machine: one process per core, which end when the records are closed or collected. (A script that starts
        processes does so under ``if __name__ == "__main__":``.)
    engine : str
        What computes in each worker.
    columns : sequence of str, optional
        The feature columns of a file or dataframe; all but the target by default.
    """
    _validate.choice("engine", engine, tuple(name for name in engines.NAMES if name != "dask"))
    connection = connect(scheduler)
    try:
        _require_workers(connection.client)
        found = cluster_sources.partitions(problem, X, y, columns, connection.client)
    except BaseException:
        connection.close()
        raise
    return ClusterRecords(problem, found, engine, connection)


def _require_workers(client: Any) -> None:
    if client.asynchronous:
        raise TypeError("the dask client must not be asynchronous. Use Client(..., asynchronous=False).")
    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError:
        raise OSError("the dask scheduler has no workers. Start some with `dask worker` and its address.") from None


__all__ = [
    "ClusterEngine",
    "ClusterRecords",
    "ClusterSums",
    "Connection",
    "Partition",
    "PartitionError",
    "connect",
    "open_records",
]
