"""Where records come from: arrays, sparse matrices, .npy, .csv and Parquet files, dask. All look the same inside.

A source has the declared shape and kinds, or is not made at all: structure is checked when it is opened, before
anything is charged. Values are nobody's business until an engine projects them.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.sparse import issparse

from epsteps.data import cluster, encoding, engine, mapped, parquet, stream, values
from epsteps.data.engine import ArrayEngine, Engine
from epsteps.data.mapped import ArrayReader, MappedReader, open_npy, whole_numpy_file
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


def read_table(path: Path, target: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return (X, y) from a file; ``target`` names the column of y (the last one by default).

    An .npz holds arrays X and y (or X_train and y_train). A .csv has a header line and numbers below it; an empty field
    is a missing value. A .parquet has numeric columns.
    """
    readers = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"cannot read {path}: its ending must be one of {', '.join(readers)}.")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    return reader(path, target)


def _read_npz(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    pairs = (("X", target or "y"), ("X_train", target or "y_train"))
    with whole_numpy_file(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        for features, labels in pairs:
            if features in arrays and labels in arrays:
                return arrays[features], arrays[labels]
        names = ", ".join(map(repr, arrays))
    raise ValueError(f"{path} must hold arrays X and y (or X_train and y_train), got {names}.")


def _read_csv(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        names = [name.strip() for name in next(rows, [])]
        table = [_numbers(path, names, number, row) for number, row in enumerate(rows, start=2) if row]
    return _columns(path, names, np.array(table, dtype=float).reshape(len(table), len(names)), target)


def _numbers(path: Path, names: list[str], line: int, row: list[str]) -> list[float]:
    if len(row) != len(names):
        raise ValueError(f"{path}, line {line}: {len(row)} fields, but the header names {len(names)} columns.")
    try:
        return [float(field) if field.strip() else math.nan for field in row]
    except ValueError:
        pass  # its words quote the field, and must not go along with ours
    raise ValueError(f"{path}, line {line}: a field is no number. Encode text columns as numbers.")


def _read_parquet(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    table = parquet.table_of(path)
    for field in table.schema:
        if parquet.kind_of(field.type) != "f":
            raise ValueError(f"{path}: column {field.name!r} is not numeric. Encode text columns as numbers.")
    columns = [values.numbers(values.column(column)) for column in table.itercolumns()]
    return _columns(path, table.column_names, np.column_stack(columns), target)


def _columns(path: Path, names: list[str], table: np.ndarray, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    if len(table) == 0 or len(names) < 2:
        raise ValueError(f"{path} needs rows, and at least one feature beside the target.")
    if target is not None and target not in names:
        raise ValueError(f"{path} has no column {target!r}; it has {', '.join(names)}.")
    index = len(names) - 1 if target is None else names.index(target)
    return np.delete(table, index, axis=1), table[:, index]
