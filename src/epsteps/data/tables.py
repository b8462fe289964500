"""Tables from files: features and target as arrays, from .npz, .csv or .parquet."""

import csv
import math
from pathlib import Path

import numpy as np

from epsteps.data import parquet, values
from epsteps.data.mapped import whole_numpy_file


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
