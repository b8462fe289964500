"""Parquet: the one place that opens such files, and records in a file or a folder of files, read in batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.data.mapped import Stamp, forget
from epsteps.data.stream import Block
from epsteps.problem.validate import require

# Bytes that all columns of a file may hold of what is not decoded yet.
_BUFFERS = 2**25
# Rows at a time when columns become rows: they stay in the processor's cache.
_TILE = 2048
# Characters of a label that are read, so that a long one takes no memory.
_LABEL = 256
_PURPOSE = "reading .parquet files"


def opened(path: Path, **options: Any) -> Any:
    """Return an open Parquet file of pyarrow's, or raise in one line if it is none."""
    parquet: Any = require("pyarrow.parquet", "parquet", _PURPOSE)
    with _one_line(ValueError, f"{path} is not a whole Parquet file"):
        return parquet.ParquetFile(path, **options)


def table_of(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Return a Parquet file, or these columns of it, as a table of pyarrow's; a file that is not whole raises."""
    with _one_line(ValueError, f"{path} is not a whole Parquet file"), opened(path) as file:
        return file.read(columns=None if columns is None else list(columns))


@contextmanager
def _one_line(kind: type[Exception], words: str) -> Iterator[None]:
    """Turn what pyarrow raises into an error of this kind in one line, which begins with these words."""
    arrow: Any = require("pyarrow", "parquet", _PURPOSE)
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise kind(f"{words}: {reason}") from None


def kind_of(declared: Any) -> str:
    """Return "f" for a column of numbers, "U" for one of text and "O" for any other."""
    types = require("pyarrow", "parquet", _PURPOSE).types
    kind = declared.value_type if types.is_dictionary(declared) else declared
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if any(holds(kind) for holds in numbers):
        return "f"
    return "U" if types.is_string(kind) or types.is_large_string(kind) else "O"


def row_groups(file: Any) -> list[int]:
    """Return the number of rows of each row group of an open file."""
    return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]


@dataclass(frozen=True)
class _File:
    """A file, and how many rows each of its row groups has."""

    stamp: Stamp
    groups: np.ndarray

    @property
    def rows(self) -> int:
        return int(self.groups.sum())

    def forget(self, start: int, stop: int) -> None:
        """Let the system's cache of files go of the row groups that end between these rows."""
        ends = np.concatenate(([0], np.cumsum(self.groups)))
        first, last = (ends[np.searchsorted(ends, max(0, row), side="right") - 1] for row in (start, stop))
        if first < last:
            size = self.stamp.size / self.rows
            forget(self.stamp.path, int(first * size), int(last * size))


class ParquetReader:
    """Feature columns and a target column of Parquet files.

    A missing number is NaN, a missing label the empty text. Columns of float32 alone stay float32, others become
    float64. Reading holds a page (usually 1 MB) of each column in memory, beside the batches.
    """

    in_memory = False

    def __init__(self, path: Path, target: Any, columns: Sequence[str] | None = None) -> None:
        require("pyarrow.parquet", "parquet", _PURPOSE)
        self._arrow: Any = require("pyarrow", "parquet", _PURPOSE)
        if not isinstance(target, str):
            raise TypeError(f"y must name the target column of {path}, got {type(target).__name__}.")
        if columns is not None and (isinstance(columns, str) or target in columns or len(set(columns)) < len(columns)):
            raise ValueError(f"columns must be a list of different names without the target {target!r}, got {columns}.")
        self._target, self._names, files = target, list(columns or []), _files(path)
        if columns is None:
            with opened(Stamp.of(files[0]).path) as first:
                self._names = [name for name in first.schema_arrow.names if name != target]
        self._files, kinds = [], set()
        for stamp in map(Stamp.of, files):
            with opened(stamp.path) as file:
                kinds.add(self._kinds(stamp.path, file.schema_arrow))
                self._files.append(_File(stamp, np.array(row_groups(file), dtype=np.int64)))
        if len({text for _, text in kinds}) > 1:
            raise TypeError(f"column {target!r} is text in some files of {path} and numeric in others.")
        self.shape = (sum(file.rows for file in self._files), len(self._names))
        self.target_shape = self.shape[:1]
        self.feature_kind = np.dtype(np.float32 if all(single for single, _ in kinds) else np.float64)
        self.target_kind = np.dtype("U1" if any(text for _, text in kinds) else np.float64)

    def blocks(self, size: int, rows: np.ndarray | None = None) -> Iterator[Block]:
        """Yield all records, or these rows in order, in blocks of at most ``size``."""
        rows = None if rows is None else np.sort(rows)
        first = 0
        for file in self._files:
            last = first + file.rows
            if rows is None:
                yield from self._blocks(file, size, None)
            elif len(here := _between(rows, first, last)):
                yield from self._blocks(file, size, here)
            first = last

    def forget(self, start: int, stop: int) -> None:
        """Let the system's cache of files go of these rows, once whole row groups of them were read."""
        for file in self._files:
            file.forget(start, stop)
            start, stop = start - file.rows, stop - file.rows

    def _blocks(self, file: _File, size: int, rows: np.ndarray | None) -> Iterator[Block]:
        """Yield a file's blocks; of its row groups only those that hold one of the rows."""
        groups = np.arange(len(file.groups))
        if rows is not None:
            ends = np.cumsum(file.groups)
            holding = np.searchsorted(ends, rows, side="right")
            groups, order = np.unique(holding, return_inverse=True)
            skipped = (ends - file.groups)[groups] - np.concatenate(([0], np.cumsum(file.groups[groups])[:-1]))
            rows = rows - skipped[order]
        position = 0
        for batch in self._batches(file, size, groups.tolist()):
            picked = None if rows is None else _between(rows, position, position + batch.num_rows)
            position += batch.num_rows
            if picked is None or len(picked):
                yield partial(self._arrays, batch, picked)
            if rows is not None and position > rows[-1]:
                return
        if position != file.rows:
            raise OSError(f"{file.stamp.path} has {position} rows where its footer promises others.")

    def read_groups(self, groups: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return features and targets of these row groups, of a single file."""
        (file,) = self._files
        parts = [self._arrays(batch, None) for batch in self._batches(file, 2**16, list(groups))]
        features, targets = zip(*parts, strict=True)
        return np.concatenate(features), np.concatenate(targets)

    def _batches(self, file: _File, size: int, groups: list[int]) -> Iterator[Any]:
        """Yield batches of row groups. A column holds little that is not decoded yet."""
        file.stamp.require_same()
        names = [*self._names, self._target]
        buffer = max(2**14, min(2**20, _BUFFERS // len(names)))
        place = file.stamp.path
        with (
            opened(place, pre_buffer=False, buffer_size=buffer) as whole,
            _one_line(OSError, f"cannot read {place}"),
        ):
            yield from whole.iter_batches(size, row_groups=groups, columns=names)

    def _kinds(self, path: Path, schema: Any) -> tuple[bool, bool]:
        """Return whether all features are float32 and whether the target is text, or raise."""
        for name in (*self._names, self._target):
            if schema.names.count(name) != 1:
                count = "no column" if name not in schema.names else "several columns"
                raise ValueError(f"{path} has {count} {name!r}; it has {', '.join(schema.names)}.")
        types = {name: _plain(schema.field(name).type) for name in (*self._names, self._target)}
        for name in self._names:
            if kind_of(types[name]) != "f":
                raise TypeError(
                    f"column {name!r} of {path} must be numeric, got {types[name]}. Encode it, or give columns."
                )
        target = types.pop(self._target)
        if kind_of(target) == "O":
            raise TypeError(f"target column {self._target!r} of {path} must be numeric or text, got {target}.")
        return all(kind == self._arrow.float32() for kind in types.values()), kind_of(target) == "U"

    def _arrays(self, batch: Any, picked: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch's features, row by row, and its targets."""
        if picked is not None:
            batch = batch.take(self._arrow.array(picked))
        columns = [self._numbers(batch, name, self.feature_kind) for name in self._names]
        features = np.empty((batch.num_rows, len(columns)), dtype=self.feature_kind)
        for start in range(0, batch.num_rows, _TILE):
            for j, column in enumerate(columns):
                features[start : start + _TILE, j] = column[start : start + _TILE]
        if self.target_kind.kind == "U":
            return features, self._labels(batch)
        return features, self._numbers(batch, self._target, self.target_kind)

    def _numbers(self, batch: Any, name: str, kind: np.dtype) -> np.ndarray:
        """Return a column in a float kind; nothing in it raises, and what is missing is NaN."""
        column = _decoded(batch.column(batch.schema.get_field_index(name)))
        return column.cast(self._arrow.from_numpy_dtype(kind), safe=False).to_numpy(zero_copy_only=False)

    def _labels(self, batch: Any) -> np.ndarray:
        """Return the targets as text. Bytes that are no text and long labels are cut or replaced, not reported."""
        column = _decoded(batch.column(batch.schema.get_field_index(self._target)))
        column = column.cast(self._arrow.large_binary(), safe=False).fill_null(b"").dictionary_encode()
        labels = [label.as_py()[: 4 * _LABEL].decode(errors="replace")[:_LABEL] for label in column.dictionary]
        return np.array(labels, dtype=str)[column.indices.to_numpy()]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.glob("*.parquet") if file.is_file())
    if not files:
        raise FileNotFoundError(f"there is no .parquet file in {path}.")
    return files


def _between(rows: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return those of the sorted rows that lie in [first, last), counted from first."""
    start, stop = np.searchsorted(rows, (first, last))
    return rows[start:stop] - first


def _plain(kind: Any) -> Any:
    """Return the type of a dictionary's values, or the type itself."""
    return getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
