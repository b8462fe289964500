"""Where records come from: arrays, sparse matrices, .npy and Parquet files, dask. All look the same inside.

A source has the declared shape and kinds, or is not made at all: structure is checked when it is opened, before
anything is charged. Values are nobody's business until an engine projects them.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.sparse import issparse

from epsteps.data import cluster, encoding, engine, mapped, stream, values
from epsteps.data.engine import ArrayEngine, Engine
from epsteps.data.mapped import ArrayReader, MappedReader, open_npy
from epsteps.data.parquet import ParquetReader
from epsteps.data.sparse import SparseEngine
from epsteps.data.stream import StreamEngine
from epsteps.problem.problem import Problem

# Numbers up to which records of files are kept in memory: 64 MB as integers for private sums, 128 MB in float64.
KEPT = 2**24


@dataclass(frozen=True)
class Check:
    """What would be projected: counts of a data holder's own look at the records, not for publication."""

    rows_outside: int
    not_a_number: int
    infinite: int
    targets_outside: int

    @property
    def any(self) -> bool:
        """Whether any record would be changed."""
        return any(astuple(self))

    def __add__(self, other: "Check") -> "Check":
        return Check(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        return (
            f"{self.rows_outside} rows outside the domain ({self.not_a_number} values are NaN, {self.infinite} "
            f"infinite), {self.targets_outside} targets outside those declared"
        )


class Records(Protocol):
    """Raw records that fit a problem."""

    def engine(self) -> Engine:
        """Return the engine over the records, always the same: what it prepares is prepared once."""
        ...

    def restated(self, problem: Problem) -> "Records":
        """Return the same records for another loss of the same targets."""
        ...

    def check(self) -> Check:
        """Count what would be projected."""
        ...

    def close(self) -> None:
        """End what was started for the records."""


class ReadRecords(Records):
    """What a reader reads in blocks; few records are kept in memory, many of a file are read for every step."""

    def __init__(
        self, problem: Problem, reader: ArrayReader | ParquetReader, name: str, cache: str | PathLike[str] | None = None
    ) -> None:
        _require_structure(problem, reader.shape, reader.feature_kind, reader.target_shape, reader.target_kind)
        self._problem, self._reader, self._name = problem, reader, name
        self._folder = mapped.folder_of(cache)

    def engine(self) -> Engine:
        """Return the named engine over the records, or over one block of them after the other."""
        return self._engine

    @cached_property
    def _engine(self) -> Engine:
        if self._numbers > KEPT and not self._reader.in_memory:
            return self._stream
        problem, blocks = self._problem, [block() for block in self._reader.blocks(self._problem.n)]
        features, targets = blocks[0] if len(blocks) == 1 else map(np.concatenate, zip(*blocks, strict=True))
        return self._kind(problem, features, problem.loss.encode(targets))

    def restated(self, problem: Problem) -> "ReadRecords":
        """Return the same records for another loss of the same targets."""
        return ReadRecords(problem, self._reader, self._name, self._folder)

    @cached_property
    def _stream(self) -> StreamEngine:
        keep = None if self._folder is None else partial(mapped.keep, self._folder, self._problem)
        return StreamEngine(self._problem, self._reader, self._kind, keep)

    @property
    def _numbers(self) -> int:
        return self._problem.n * self._problem.d

    @property
    def _kind(self) -> type[ArrayEngine]:
        return engine.chosen(self._name, self._problem.loss, self._numbers)

    def check(self) -> Check:
        """Count what would be projected."""
        blocks = self._reader.blocks(stream.block_rows(self._problem.d))
        return sum((_counted(self._problem, *block()) for block in blocks), start=Check(0, 0, 0, 0))

    def close(self) -> None:
        """Let go of the file of prepared records."""
        if "_stream" in vars(self):
            self._stream.close()


class SparseRecords(Records):
    """Sparse features, as CSR with sorted columns and no duplicates, and targets in memory."""

    def __init__(self, problem: Problem, features: Any, targets: np.ndarray, name: str) -> None:
        if name not in ("auto", "numpy"):
            raise ValueError(f"sparse records are computed with SciPy, not {name!r}. Use engine='auto'.")
        _require_structure(problem, features.shape, features.dtype, targets.shape, targets.dtype)
        self._problem, self._features, self._targets = problem, values.canonical(features), targets

    def engine(self) -> Engine:
        """Return the engine over sparse records."""
        return self._engine

    @cached_property
    def _engine(self) -> Engine:
        return SparseEngine(self._problem, self._features, self._problem.loss.encode(self._targets))

    def restated(self, problem: Problem) -> "SparseRecords":
        """Return the same records for another loss of the same targets."""
        return SparseRecords(problem, self._features, self._targets, "auto")

    def check(self) -> Check:
        """Count what would be projected."""
        entries, domain = self._features.data, self._problem.domain
        return Check(
            rows_outside=int(domain.outside_entries(entries, self._features.indices, self._features.indptr).sum()),
            not_a_number=int(np.isnan(entries).sum()),
            infinite=int(np.isinf(entries).sum()),
            targets_outside=self._problem.loss.outside(self._targets),
        )


def open_records(
    problem: Problem,
    X: Any,
    y: Any,
    columns: Sequence[str] | None = None,
    name: str = "auto",
    scheduler: Any = None,
    cache: str | PathLike[str] | None = None,
) -> Records:
    """Return the records of whatever X and y are, or raise if they do not have the problem's structure.

    ``name`` is the engine that will compute with them, ``cache`` a folder for a file of those that are streamed.
    """
    engine.require_outputs(name, problem.loss)
    if name == "dask":
        if cache is not None:
            raise ValueError("cache is for records that this process reads: dask workers keep theirs. Leave it out.")
        return cluster.open_records(problem, X, y, scheduler=scheduler, columns=columns)
    if scheduler is not None:
        raise ValueError(f"scheduler is for engine='dask', got engine={name!r}. Leave it out.")
    if isinstance(X, str | PathLike):
        path = Path(X)
        if path.suffix.lower() == ".parquet" or path.is_dir():
            return ReadRecords(problem, ParquetReader(path, y, columns), name, cache)
        X = open_npy("X", path)
    if columns is not None:
        raise ValueError("columns are for Parquet files: X is none. Leave them out.")
    targets = open_npy("y", Path(y)) if isinstance(y, str | PathLike) else y
    if not isinstance(targets, np.memmap):
        targets = encoding.declared_targets(problem, values.column(targets))
    if isinstance(X, np.memmap):
        return ReadRecords(problem, MappedReader(X, targets), name, cache)
    features, targets = values.matrix(X), np.asarray(targets)
    if issparse(features):
        return SparseRecords(problem, features, targets, name)
    return ReadRecords(problem, ArrayReader(features, targets), name, cache)


@np.errstate(all="ignore")  # a warning would tell something about a record
def _counted(problem: Problem, features: np.ndarray, targets: np.ndarray) -> Check:
    """Count what would be projected of these records."""
    features = values.matrix(features)
    return Check(
        rows_outside=int(problem.domain.outside(features).sum()),
        not_a_number=int(np.isnan(features).sum()),
        infinite=int(np.isinf(features).sum()),
        targets_outside=problem.loss.outside(targets),
    )


def _require_structure(
    problem: Problem, shape: tuple[int, ...], kind: np.dtype, target_shape: tuple[int, ...], target_kind: np.dtype
) -> None:
    """Raise unless features are numbers in the declared shape, and targets of a kind that the loss takes."""
    if kind.kind not in "biuf":
        raise TypeError(f"X must be numeric, got dtype {kind}. Encode text columns before.")
    if shape != (problem.n, problem.d):
        raise ValueError(f"X must have the problem's shape (n, d) = ({problem.n}, {problem.d}), got {shape}.")
    if target_shape != (problem.n,):
        raise ValueError(f"y must have the problem's shape (n,) = ({problem.n},), got {target_shape}.")
    problem.loss.encode(np.empty(0, dtype=target_kind))
