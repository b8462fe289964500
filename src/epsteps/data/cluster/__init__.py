"""The dask engine: records stay in the memory of workers, points go to them, sums come back.

A part of the records lives in a task that dask can run again from its source, so that a worker may be lost at any
moment: its parts are read again elsewhere, and the sums are the same. Of exact sums that holds to the last bit, however
the records are divided.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np

from epsteps.data import engine as engines
from epsteps.data.chunks import ROWS_PER_INT64, Term
from epsteps.data.cluster import sources, workers
from epsteps.data.cluster.parts import Connection, Parts, connect, require_workers
from epsteps.data.cluster.workers import Partition, PartitionError
from epsteps.data.engine import Engine
from epsteps.problem import grid, validate
from epsteps.problem.grid import Points
from epsteps.problem.problem import Problem

__all__ = ["ClusterEngine", "ClusterRecords", "PartitionError", "connect", "open_records"]


class ClusterEngine(Engine):
    """Sums over partitions of the records that dask workers hold: exact ones are the same however they are divided.

    ``name`` is the engine that computes in a worker. The connection lives as long as this object does. The workers read
    the records when means, and again when sums, are first asked for.
    """

    def __init__(self, problem: Problem, partitions: Sequence[Partition], name: str, connection: Connection) -> None:
        self._problem, self._partitions, self._name, self._connection = problem, partitions, name, connection

    @cached_property
    def _floats(self) -> Parts:
        """The parts for float means."""
        return Parts(self._problem, self._partitions, self._name, self._connection.client, exact=False)

    @cached_property
    def _integers(self) -> Parts:
        """The parts for exact sums."""
        return Parts(self._problem, self._partitions, self._name, self._connection.client, exact=True)

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        return self._mean("mean_gradient", x, rows)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        return self._mean("mean_loss", x)

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        return self._mean("hessian", x)

    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of slope x record over all records, or over these rows; one column per point."""
        return self._integers.ask("sums", grid.total, (points,), rows)

    def total(self, term: Term, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of a term over chunks of the prepared records, or of these rows."""
        return self._integers.ask("total", partial(grid.total, most=ROWS_PER_INT64), (term,), rows)

    def blocks(self) -> NoReturn:
        """Refuse: the records stay in the workers."""
        raise ValueError(
            "records in dask workers are not brought here. Read them in this process: engine='auto' with a path or an "
            "array."
        )

    def prepare(self) -> None:
        """Have the workers read the records, round them and test their engines."""
        _ = self._integers

    def close(self) -> None:
        """Let the workers forget these records."""
        for prepared in ("_floats", "_integers"):
            if prepared in vars(self):
                getattr(self, prepared).close()

    def _mean(self, what: str, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        total = self._floats.ask(what, workers.add, (x,), rows, weighted=True)
        return total / (self._problem.n if rows is None else len(rows))


class ClusterRecords:
    """Records in dask workers: what ``open_records`` returns."""

    def __init__(self, problem: Problem, partitions: Sequence[Partition], name: str, connection: Connection) -> None:
        self._engine = ClusterEngine(problem, partitions, name, connection)
        self._partitions, self._name, self._connection = partitions, name, connection

    def engine(self) -> ClusterEngine:
        """Return the engine over the records."""
        return self._engine

    def restated(self, problem: Problem) -> "ClusterRecords":
        """Return the same records for another loss of the same targets, in the same workers."""
        return ClusterRecords(problem, self._partitions, self._name, self._connection)

    def check(self) -> NoReturn:
        """Refuse: what would be projected is counted where the records are, by their holder."""
        raise ValueError("records in dask workers are not counted from here. Leave out validate=True and check a part.")

    def close(self) -> None:
        """Let the workers forget the records, and end the workers if they were started for them."""
        self._engine.close()
        self._connection.close()


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
    validate.choice("engine", engine, tuple(name for name in engines.names() if name != "dask"))
    connection = connect(scheduler)
    try:
        require_workers(connection.client)
        partitions = sources.partitions(problem, X, y, columns, connection.client)
    except BaseException:
        connection.close()
        raise
    return ClusterRecords(problem, partitions, engine, connection)
