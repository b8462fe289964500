"""Columns of CSV and Parquet files, the declared ones only. What a cell holds never raises."""

import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.data import parquet
from epsteps.problem import validate
from epsteps.problem.extras import MissingExtraError, require
from epsteps.tables import cells
from epsteps.tables.frames import array_of, places_of

DELIMITERS = (",", ";", "\t")
_ROWS = 2**16
# The largest field that Python's csv takes; its default of 2^17 characters would make a long text an error.
_FIELD = 2**31 - 1
# A part of a file: for each column that was asked for, its cells.
_Part = list[np.ndarray]


def read_columns(
    path: str | Path, names: Sequence[str] | None = None, *, numeric: Collection[str] = (), delimiter: str = ","
) -> dict[str, np.ndarray]:
    """Return columns of a .csv or .parquet file, or of a folder of .parquet files in the order of their names.

    A .csv is UTF-8 text, with or without a byte-order mark, whose first line names the columns; the cells stay texts.
    It is read by pyarrow where that is installed, and otherwise by Python's csv: the result is the same.

    Parameters
    ----------
    path : path
        The file.
    names : sequence of str, optional
        The columns to read; by default all that have a name.
    numeric : collection of str
        Columns of a .csv that are read as numbers: NaN for what is none.
    delimiter : ",", ";" or tab
        What stands between the fields of a .csv.
    """
    validate.choice("delimiter", delimiter, DELIMITERS)
    path = Path(path)
    if path.suffix.lower() == ".csv":
        return _read_csv(_existing(path), names, numeric, delimiter)
    if path.suffix.lower() == ".parquet" or path.is_dir():
        return _read_parquet(path, names)
    raise ValueError(f"cannot read {path}: its ending must be .csv or .parquet.")


def _read_csv(
    path: Path, names: Sequence[str] | None, numeric: Collection[str], delimiter: str
) -> dict[str, np.ndarray]:
    listed = _header(path, delimiter)
    names = [name for name in listed if name] if names is None else names
    _require_delimiter(path, listed, names, delimiter)
    places = places_of(listed, names, str(path))
    parse = [_Numbers() if name in numeric else _Texts() for name in names]
    try:
        parts = list(_parts_by_arrow(path, delimiter, len(listed), places, parse))
    except (MissingExtraError, ValueError):  # what pyarrow cannot read, the other reader reads, or says why it cannot
        parts = None
    if parts is None:  # outside the exception: pyarrow's quotes the line, and would go along with the other's
        parts = list(_parts_by_csv(path, delimiter, len(listed), places, parse))
    if not parts:
        raise ValueError(f"{path} has no rows below its header.")
    return {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}


class _Numbers:
    """Reads cells as numbers."""

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return cells.parsed(texts)


class _Texts:
    """Keeps cells as they are, and one copy of equal ones."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        known = (self._known.setdefault(text, text) for text in texts)
        return np.fromiter(known, dtype=object, count=len(texts))


def _header(path: Path, delimiter: str) -> list[str]:
    with _opened(path, delimiter) as rows:
        names = [name.strip() for name in next(rows, [])]
    if not any(names):
        raise ValueError(f"{path} is empty: its first line must name the columns.")
    return names


def _require_delimiter(path: Path, listed: Sequence[str], names: Sequence[str], delimiter: str) -> None:
    """Raise if the header holds no name that was asked for, and another delimiter."""
    for other in DELIMITERS:
        if other != delimiter and len(listed) == 1 and other in listed[0] and listed[0] not in names:
            raise ValueError(f"{path} has one column {listed[0]!r}: declare that the delimiter is {other!r}.")


@contextmanager
def _opened(path: Path, delimiter: str) -> Iterator[Iterator[list[str]]]:
    limit = csv.field_size_limit(_FIELD)
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            yield csv.reader(file, delimiter=delimiter)
    except csv.Error as error:
        raise ValueError(f"{path} is not a whole CSV file: {error}.") from None
    finally:
        csv.field_size_limit(limit)


def _parts_by_csv(path: Path, delimiter: str, width: int, places: list[int], parse: list[Any]) -> Iterator[_Part]:
    first = 1
    with _opened(path, delimiter) as rows:
        next(rows)
        while lines := list(islice(rows, _ROWS)):
            part = [row for row in lines if row]
            for number, row in enumerate(part, start=first):
                if len(row) != width:
                    raise ValueError(f"{path}, row {number}: {len(row)} fields, but the header names {width} columns.")
            first += len(part)
            if part:
                columns = list(zip(*part, strict=True))
                yield [read(columns[place]) for place, read in zip(places, parse, strict=True)]


def _parts_by_arrow(path: Path, delimiter: str, width: int, places: list[int], parse: list[Any]) -> Iterator[_Part]:
    arrow: Any = require("pyarrow", "parquet", "reading .csv files fast")
    arrow_csv: Any = require("pyarrow.csv", "parquet", "reading .csv files fast")
    keys = [str(place) for place in range(width)]
    wanted = [keys[place] for place in places]
    batches = arrow_csv.open_csv(
        path,
        read_options=arrow_csv.ReadOptions(column_names=keys, skip_rows_after_names=1, block_size=2**22),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=wanted, column_types=dict.fromkeys(wanted, arrow.string()), strings_can_be_null=False
        ),
    )
    for batch in batches:
        if batch.num_rows:
            columns = [batch.column(place).dictionary_encode() for place in range(len(wanted))]
            yield [
                read(column.dictionary.to_pylist())[column.indices.to_numpy()]
                for column, read in zip(columns, parse, strict=True)
            ]


def _read_parquet(path: Path, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    paths = sorted(path.glob("*.parquet")) if path.is_dir() else [_existing(path)]
    if not paths:
        raise FileNotFoundError(f"there is no .parquet file in {path}.")
    tables = [_parquet_columns(file, names) for file in paths]
    names = list(tables[0]) if names is None else names
    columns = {name: np.concatenate([_kept(table[name]) for table in tables]) for name in names}
    if not columns or not len(columns[names[0]]):
        raise ValueError(f"{path} has no rows.")
    return columns


def _parquet_columns(path: Path, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    with parquet.opened(path) as file:
        listed = list(file.schema_arrow.names)
    names = listed if names is None else names
    places_of(listed, names, str(path))
    table = parquet.table_of(path, names)
    return {name: array_of(table.column(name), name) for name in names}


def _kept(column: np.ndarray) -> np.ndarray:
    """Return the cells in an array whose type the cells of another file cannot change."""
    return column.astype(np.float64) if column.dtype.kind in "iuf" else column.astype(object)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    return path
