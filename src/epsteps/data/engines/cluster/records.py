"""Records in dask workers, opened from where the workers can read them."""

from collections.abc import Sequence
from typing import Any, NoReturn

from epsteps.data import engines
from epsteps.data.engines.cluster import sources
from epsteps.data.engines.cluster.connection import Connection, connect, require_workers
from epsteps.data.engines.cluster.engine import ClusterEngine, ClusterSums
from epsteps.data.engines.cluster.parts import Partition
from epsteps.problem import validate
from epsteps.problem.problem import Problem


class ClusterRecords:
    """Records in dask workers: what ``open_records`` returns."""

    def __init__(self, problem: Problem, partitions: Sequence[Partition], engine: str, connection: Connection) -> None:
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

    def blocks(self) -> NoReturn:
        """Refuse: the records stay in the workers."""
        raise ValueError(
            "records in dask workers are not brought here, which this release needs. Read them in this process: "
            "engine='auto' with a path or an array."
        )

    def close(self) -> None:
        """Let the workers forget the records, and end the workers if they were started for them."""
        for made in (self._engine, self._sums):
            if made is not None:
                made.close()
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
    validate.choice("engine", engine, tuple(name for name in engines.NAMES if name != "dask"))
    connection = connect(scheduler)
    try:
        require_workers(connection.client)
        found = sources.partitions(problem, X, y, columns, connection.client)
    except BaseException:
        connection.close()
        raise
    return ClusterRecords(problem, found, engine, connection)
