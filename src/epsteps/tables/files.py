"""Columns of CSV and Parquet files, the declared ones only.

What a cell holds never raises. A file that is no whole .csv does, when it is opened: before anything is charged, and
with the number of the line alone.
"""

import codecs
import csv
import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from epsteps.data import parquet, values
from epsteps.problem import validate
from epsteps.problem.validate import MissingExtraError, require
from epsteps.tables.columns import parsed

DELIMITERS = (",", ";", "\t")
# Encodings by their names here, and for Python: Latin-1 is mostly what Windows makes of it.
ENCODINGS = {"utf-8": "utf-8-sig", "latin-1": "cp1252"}
# What begins a file that is text of another kind.
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_BLOCK = 2**22
_ROWS = 2**16
# The largest field that Python's csv takes; its default of 2^17 characters would make a long text an error.
_FIELD = 2**31 - 1
# A part of a file: for each column that was asked for, its cells.
_Part = list[np.ndarray]


class _Form(NamedTuple):
    """How a .csv is written."""

    delimiter: str
    encoding: str


def read_columns(
    path: str | Path,
    names: Sequence[str] | None = None,
    *,
    numeric: Collection[str] = (),
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> dict[str, np.ndarray]:
    """Return columns of a .csv or .parquet file, or of a folder of .parquet files in the order of their names.

    A .csv is text whose first line names the columns; the cells stay texts. It is read by pyarrow where that is
    installed, and otherwise by Python's csv: the result is the same. A file that is no whole .csv is refused with the
    line where that shows and nothing of what stands there: bytes that are no text of the encoding, a quote that is
    never closed, too many fields or too few.

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
    encoding : "utf-8" or "latin-1"
        How a .csv writes letters: UTF-8, with or without a byte-order mark, or as older spreadsheets do.
    """
    validate.choice("delimiter", delimiter, DELIMITERS)
    validate.choice("encoding", encoding, tuple(ENCODINGS))
    path = Path(path)
    if path.suffix.lower() == ".csv":
        form = _Form(delimiter, encoding)
        _require_text(_existing(path), form)
        return _read_csv(path, names, numeric, form)
    if path.suffix.lower() == ".parquet" or path.is_dir():
        return _read_parquet(path, names)
    raise ValueError(f"cannot read {path}: its ending must be .csv or .parquet.")


def _read_csv(path: Path, names: Sequence[str] | None, numeric: Collection[str], form: _Form) -> dict[str, np.ndarray]:
    listed = _header(path, form)
    _require_delimiter(path, listed, names or (), form.delimiter)
    names = [name for name in listed if name] if names is None else names
    places = places_of(listed, names, str(path))
    parse = [_Numbers() if name in numeric else _Texts() for name in names]
    try:
        parts = list(_parts_by_arrow(path, form, len(listed), places, parse))
    except (MissingExtraError, ValueError):  # what pyarrow cannot read, the other reader reads, or says why it cannot
        parts = None
    if parts is None:  # outside the exception: pyarrow's quotes the line, and would go along with the other's
        parts = list(_parts_by_csv(path, form, len(listed), places, parse))
    if not parts:
        raise ValueError(f"{path} has no rows below its header.")
    return {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}


class _Numbers:
    """Reads cells as numbers."""

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return parsed(texts)


class _Texts:
    """Keeps cells as they are, and one copy of equal ones."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        known = (self._known.setdefault(text, text) for text in texts)
        return np.fromiter(known, dtype=object, count=len(texts))


def _require_text(path: Path, form: _Form) -> None:
    """Raise with the line of the first bytes that are no text, and of a quote that is never closed."""
    quotes, line = 0, 1
    decoder = codecs.getincrementaldecoder(ENCODINGS[form.encoding])()
    with path.open("rb") as file:
        if (kind := _MARKS.get(file.read(2))) is not None:
            raise ValueError(f"{path} is {kind} text: save it as UTF-8.")
        file.seek(0)
        block = None
        while block != b"":
            block = file.read(_BLOCK)
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                remedy = "save it as UTF-8"
                if form.encoding == "utf-8":
                    remedy += ", or declare encoding='latin-1' if it comes from an older spreadsheet"
                raise ValueError(f"{path}, line {line}: this is no {form.encoding.upper()} text: {remedy}.") from None
            quotes, line = quotes + block.count(b'"'), line + block.count(b"\n")
    if quotes % 2 and (opened := _unclosed(path, form)) is not None:
        raise ValueError(f"{path}, line {opened}: a quote is opened here and never closed: close or remove it.")


def _unclosed(path: Path, form: _Form) -> int | None:
    """Return the line of the quote that is open at the end of the file, if there is one.

    The last row is the one that it is in. It is read once more, by a reader that minds.
    """
    with path.open(newline="", encoding=ENCODINGS[form.encoding]) as file:
        lines = list(file)
    with _opened(path, form) as rows:
        first = last = 1
        for _ in rows:
            first, last = last, rows.line_num + 1
    try:
        list(csv.reader(lines[first - 1 :], delimiter=form.delimiter, strict=True))
    except csv.Error as error:
        return first if "unexpected end" in str(error) else None
    return None


def _header(path: Path, form: _Form) -> list[str]:
    with _opened(path, form) as rows:
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
def _opened(path: Path, form: _Form) -> Iterator[Any]:
    limit = csv.field_size_limit(_FIELD)
    try:
        with path.open(newline="", encoding=ENCODINGS[form.encoding], errors="replace") as file:
            yield csv.reader(file, delimiter=form.delimiter)
    except csv.Error as error:
        raise ValueError(f"{path} is not a whole CSV file: {error}.") from None
    finally:
        csv.field_size_limit(limit)


def _parts_by_csv(path: Path, form: _Form, width: int, places: list[int], parse: list[Any]) -> Iterator[_Part]:
    first = 1
    with _opened(path, form) as rows:
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


def _parts_by_arrow(path: Path, form: _Form, width: int, places: list[int], parse: list[Any]) -> Iterator[_Part]:
    arrow: Any = require("pyarrow", "parquet", "reading .csv files fast")
    arrow_csv: Any = require("pyarrow.csv", "parquet", "reading .csv files fast")
    keys = [str(place) for place in range(width)]
    wanted = [keys[place] for place in places]
    batches = arrow_csv.open_csv(
        path,
        read_options=arrow_csv.ReadOptions(
            column_names=keys,
            skip_rows_after_names=1,
            block_size=2**22,
            encoding=ENCODINGS[form.encoding].removesuffix("-sig"),
        ),
        parse_options=arrow_csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True),
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


def columns_of(frame: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return these columns of a table, each as a one-dimensional array, all of the same length."""
    if isinstance(frame, str | Path):
        raise TypeError(f"a table is needed, got the path {str(frame)!r}: read the file with load first.")
    if hasattr(type(frame), "collect") or hasattr(type(frame), "compute"):
        raise TypeError(f"{type(frame).__name__} is not in memory yet: call its collect() or compute() first.")
    if (listed := names_of(frame)) is None:
        return _of_array(frame, names)
    if not isinstance(frame, Mapping) and hasattr(type(frame), "column_names"):  # pyarrow
        found = {name: frame.column(place) for name, place in zip(names, places_of(listed, names), strict=True)}
    else:
        places_of(listed, names)
        found = {name: frame[name] for name in names}
    return _same_length({name: array_of(column, name) for name, column in found.items()})


def names_of(frame: Any) -> list[Any] | None:
    """Return the names of a table's columns; None if it has none."""
    if isinstance(frame, Mapping):
        return list(frame)
    for attribute in ("column_names", "columns"):
        if hasattr(type(frame), attribute):  # of the type, since pandas has an attribute for each column
            return list(getattr(frame, attribute))
    fields = getattr(getattr(frame, "dtype", None), "names", None)
    return None if fields is None else list(fields)


def places_of(listed: Sequence[Any], names: Iterable[str], where: str = "the table") -> list[int]:
    """Return where the names stand in the list, or raise if one is not there, or more than once."""
    places = []
    for name in names:
        if listed.count(name) > 1:
            raise ValueError(f"{where} has {listed.count(name)} columns {name!r}: rename all but one of them.")
        if name not in listed:
            raise ValueError(f"{where} has no column {name!r}{hint(name, listed)} It has {_shortened(listed)}.")
        places.append(listed.index(name))
    return places


def hint(name: str, options: Iterable[Any]) -> str:
    """Return the end of a sentence about a wrong name: the most similar right one."""
    texts = [option for option in options if isinstance(option, str)]
    folded = {text.strip().casefold(): text for text in texts}
    close = difflib.get_close_matches(name.strip().casefold(), folded, n=1)
    return f"; did you mean {folded[close[0]]!r}?" if close else "."


def array_of(column: Any, name: str = "the column") -> np.ndarray:
    """Return a column as a one-dimensional array; lists, cell by cell, so that no cell changes another's type."""
    array = values.column(column)
    if array.ndim != 1:
        raise ValueError(f"{name!r} must have one dimension, got shape {array.shape}.")
    return array


def _of_array(frame: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    if hasattr(frame, "tocsr"):
        raise TypeError("a sparse matrix holds numbers that need no schema: pass it to Rows, or make it dense.")
    array = values.cell_matrix("the table", frame) if values.is_list(frame) else values.column(frame)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(
            f"a table without names must have the {len(names)} declared columns, in their order, got shape "
            f"{array.shape}. Pass a data frame or a dict of columns, or declare the columns that there are."
        )
    return _same_length({name: array_of(array[:, place], name) for place, name in enumerate(names)})


def _same_length(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns must have the same length, got {sorted(lengths)}.")
    if lengths == {0}:
        raise ValueError("the table has no rows.")
    return columns


def _shortened(listed: Sequence[Any], most: int = 20) -> str:
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(map(repr, listed[:most])) + more if listed else "none"
