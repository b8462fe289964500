"""Where dask workers find records: blocks of arrays, partitions of frames, row groups of Parquet files.

Records keep their order, and are cut by position: never sorted, grouped or divided by value.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.data import parquet, values
from epsteps.data.cluster.parts import PURPOSE
from epsteps.data.cluster.workers import Arrays, Partition, PartitionError, Refused, unreadable
from epsteps.data.encoding import declared_targets
from epsteps.problem.problem import Problem
from epsteps.problem.validate import require

# Numbers in a partition of a Parquet file: it is read, projected and kept by one worker.
_NUMBERS = 2**25


def partitions(problem: Problem, X: Any, y: Any, columns: Sequence[str] | None, client: Any) -> list[Partition]:
    """Return where the records are, once their declared structure fits the problem."""
    if isinstance(X, str | Path):
        parts = _parquet(problem, str(X), y, columns, client)
    elif isinstance(X, require("dask.array", "dask", PURPOSE).Array):
        if columns is not None:
            raise ValueError("columns are for Parquet files and dask dataframes: an array has none. Leave them out.")
        parts = _arrays(problem, X, y)
    elif hasattr(X, "npartitions") and hasattr(X, "columns"):
        parts = _frame(problem, X, y, columns, client)
    else:
        raise TypeError(
            f"X must be a Parquet path, a dask array or a dask dataframe for the dask engine, got {type(X).__name__}. "
            "Use dask.array.from_array(X), or another engine."
        )
    count = sum(partition.rows for partition in parts)
    if count != problem.n:
        raise ValueError(f"X must have the problem's n = {problem.n} rows, got {count}.")
    return [partition for partition in parts if partition.rows > 0]


def _arrays(problem: Problem, X: Any, y: Any) -> list[Partition]:
    array = require("dask.array", "dask", PURPOSE)
    if X.ndim != 2 or X.shape[1] != problem.d:
        raise ValueError(f"X must have the problem's shape (n, d) = ({problem.n}, {problem.d}), got {X.shape}.")
    if np.isnan(X.shape[0]):
        raise ValueError("X must know its number of rows. Use X.compute_chunk_sizes() before.")
    if X.dtype.kind not in "biuf":
        raise TypeError(f"X must be numeric, got dtype {X.dtype}. Encode text columns before.")
    targets: Any = y if isinstance(y, array.Array) else declared_targets(problem, values.column(y))
    if targets.shape != X.shape[:1]:
        raise ValueError(f"y must have one value for each of the {X.shape[0]} rows of X, got shape {targets.shape}.")
    problem.loss.encode(np.empty(0, dtype=targets.dtype))  # raises for the wrong kind
    chunks = (X.chunks[0],)
    targets = targets.rechunk(chunks) if isinstance(y, array.Array) else array.from_array(targets, chunks=chunks)
    blocks = zip(X.rechunk({1: -1}).to_delayed()[:, 0], targets.to_delayed(), strict=True)
    return [Partition(rows, from_arrays, pair) for rows, pair in zip(X.chunks[0], blocks, strict=True)]


def _frame(problem: Problem, X: Any, y: Any, columns: Sequence[str] | None, client: Any) -> list[Partition]:
    delayed = require("dask", "dask", PURPOSE).delayed
    columns = _columns(problem, list(X.columns), y, columns)
    frame = X[[*columns, y]]
    _, targets = from_frame(columns, y, frame._meta)
    problem.loss.encode(targets)  # raises for the wrong kind
    blocks = frame.to_delayed()
    try:
        counts = client.gather(client.compute([delayed(len, pure=False)(block) for block in blocks]))
    except Exception as error:
        raise unreadable(error) from None
    read = partial(from_frame, columns, y)
    return [Partition(rows, read, (block,)) for rows, block in zip(counts, blocks, strict=True)]


def _parquet(problem: Problem, path: str, y: Any, columns: Sequence[str] | None, client: Any) -> list[Partition]:
    files = client.submit(partial(footers, path), pure=False).result()
    if isinstance(files, Refused):
        raise files.error
    kinds = files[0][1]
    columns = _columns(problem, list(kinds), y, columns)
    for file, others, _ in files:
        for name in (*columns, y):
            if others.get(name) != kinds[name]:
                raise ValueError(f"{file} must have a column {name!r} of the same kind as {files[0][0]}.")
    for name in columns:
        if kinds[name] != "f":
            raise ValueError(f"{path}: column {name!r} is not numeric. Encode text columns as numbers.")
    problem.loss.encode(np.empty(0, dtype=kinds[y]))  # raises for the wrong kind
    share = -(-problem.n // max(1, sum(client.nthreads().values())))
    most = max(1, min(share, _NUMBERS // problem.d))
    return [
        Partition(rows, partial(from_parquet, file, groups, columns, y))
        for file, _, counts in files
        for groups, rows in _ranges(counts, most)
    ]


def _columns(problem: Problem, names: list[str], target: Any, columns: Sequence[str] | None) -> list[str]:
    """Return the feature columns: those asked for, or all but the target."""
    if not isinstance(target, str):
        raise TypeError(f"y must be the name of the target's column, got {type(target).__name__}.")
    columns = [name for name in names if name != target] if columns is None else list(columns)
    for name in (*columns, target):
        if name not in names:
            raise ValueError(f"X has no column {name!r}; it has {', '.join(map(str, names))}.")
    if len({*columns, target}) <= len(columns):
        raise ValueError(f"columns must be different ones, and none of them the target {target!r}.")
    if len(columns) != problem.d:
        raise ValueError(
            f"X must have the problem's d = {problem.d} feature columns, got {len(columns)}. Use columns=."
        )
    return columns


def _ranges(counts: list[int], most: int) -> list[tuple[list[int], int]]:
    """Return runs of row groups with about ``most`` rows, and their numbers of rows."""
    ranges: list[tuple[list[int], int]] = []
    for group, rows in enumerate(counts):
        if ranges and ranges[-1][1] + rows <= most:
            ranges[-1] = ([*ranges[-1][0], group], ranges[-1][1] + rows)
        else:
            ranges.append(([group], rows))
    return ranges


def from_arrays(features: np.ndarray, targets: np.ndarray) -> Arrays:
    """Return a block of features and one of targets."""
    return np.asarray(features), np.asarray(targets)


def from_frame(columns: Sequence[str], target: str, frame: Any) -> Arrays:
    """Return a pandas frame's feature columns and target; missing values become NaN."""
    for name in columns:
        if not _is_numeric(frame[name].dtype):
            raise PartitionError(
                f"column {name!r} must be numeric, got {frame[name].dtype}. Encode text columns before."
            )
    single = {str(frame[name].dtype).lower() for name in columns} <= {"float32"}  # nothing is stored wider than it came
    features = np.empty((len(frame), len(columns)), dtype=np.float32 if single else np.float64)
    for j, name in enumerate(columns):
        features[:, j] = frame[name].to_numpy(dtype=features.dtype, na_value=np.nan)
    if _is_numeric(frame[target].dtype):
        return features, frame[target].to_numpy(dtype=float, na_value=np.nan)
    return features, values.texts(values.column(frame[target]))


def _is_numeric(dtype: Any) -> bool:
    return dtype.kind in "biuf"


def from_parquet(path: str, groups: Sequence[int], columns: Sequence[str], target: str) -> Arrays:
    """Return these row groups' feature columns and target; missing values become NaN."""
    return parquet.ParquetReader(Path(path), target, columns).read_groups(groups)


def footers(path: str) -> list[tuple[str, dict[str, str], list[int]]] | Refused:
    """Return each file's path, kinds of columns and rows per row group, from the ends of the files alone."""
    place = Path(path)
    files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
    files = [file for file in files if not file.name.startswith((".", "_"))]
    if not files or not all(file.is_file() for file in files):
        return Refused(
            FileNotFoundError(f"there is no Parquet file at {path} for a worker to read: give a path they share.")
        )
    require("pyarrow.parquet", "parquet", "reading .parquet files")
    described = []
    for file in files:
        try:
            with parquet.opened(file) as opened:
                kinds = {field.name: parquet.kind_of(field.type) for field in opened.schema_arrow}
                described.append((str(file), kinds, parquet.row_groups(opened)))
        except Exception:
            return Refused(OSError(f"{file} is not a Parquet file that a worker can read."))
    return described
