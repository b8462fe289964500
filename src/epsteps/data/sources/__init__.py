"""Where records come from: arrays, sparse matrices, .npy and Parquet files. One file each; all look the same inside.

A source has the declared shape and kinds, or is not made at all: structure is checked when it is opened, before
anything is charged. Values are nobody's business until an engine projects them.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.sparse import issparse

from epsteps.data import values
from epsteps.data.engines import Engine, Sums, cluster, require_outputs
from epsteps.data.engines.encoding import declared_targets
from epsteps.data.sources.check import Check
from epsteps.data.sources.mapped import MappedReader, open_npy
from epsteps.data.sources.memory import MemoryRecords
from epsteps.data.sources.parquet import ParquetReader
from epsteps.data.sources.sparse import SparseRecords
from epsteps.data.sources.streamed import StreamedRecords
from epsteps.problem.problem import Problem


class Records(Protocol):
    """Raw records that fit a problem."""

    def engine(self) -> Engine:
        """Return float means over the records."""
        ...

    def sums(self) -> Sums:
        """Return exact sums over the records."""
        ...

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all records in order, UNPROTECTED: features in the domain, with the intercept, and encoded targets."""
        ...

    def check(self) -> Check:
        """Count what would be projected."""
        ...


def open_records(
    problem: Problem,
    X: Any,
    y: Any,
    columns: Sequence[str] | None = None,
    engine: str = "auto",
    scheduler: Any = None,
) -> Records:
    """Return the records of whatever X and y are, or raise if they do not have the problem's structure."""
    require_outputs(engine, problem.loss)
    if engine == "dask":
        return cluster.open_records(problem, X, y, scheduler=scheduler, columns=columns)
    if scheduler is not None:
        raise ValueError(f"scheduler is for engine='dask', got engine={engine!r}. Leave it out.")
    if isinstance(X, str | PathLike):
        path = Path(X)
        if path.suffix.lower() == ".parquet" or path.is_dir():
            return StreamedRecords(problem, ParquetReader(path, y, columns), engine)
        X = open_npy("X", path)
    if columns is not None:
        raise ValueError("columns are for Parquet files: X is none. Leave them out.")
    targets = open_npy("y", Path(y)) if isinstance(y, str | PathLike) else y
    if not isinstance(targets, np.memmap):
        targets = declared_targets(problem, values.column(targets))
    if isinstance(X, np.memmap):
        return StreamedRecords(problem, MappedReader(X, targets), engine)
    features = values.matrix(X)
    make = SparseRecords if issparse(features) else MemoryRecords
    return make(problem, features, np.asarray(targets), engine)


__all__ = ["Check", "Records", "open_records"]
