"""A schema as TOML or as plain values: made to be edited by people, with errors that tell them what to do."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from epsteps.tables.columns import Category, Column, Label, Numeric
from epsteps.tables.files import hint

DRAFTED = "drafted_from_data"
_KINDS: dict[str, tuple[type[Column], tuple[str, ...]]] = {
    "numeric": (Numeric, ("low", "high")),
    "category": (Category, ("values",)),
}
_LINE = 100


def to_dict(columns: Mapping[str, Column], target: str | None) -> dict[str, Any]:
    """Return the declaration as values that JSON can hold. The order of the columns is part of it."""
    described = {name: column.described() for name, column in columns.items()}
    return ({} if target is None else {"target": target}) | {"columns": described}


def from_dict(values: Any) -> tuple[dict[str, Column], str | None]:
    """Return columns and target from such values, or raise with what is wrong with them."""
    if not isinstance(values, Mapping):
        raise TypeError(f"a schema must be a table with columns, got {values!r}.")
    _require_keys("the schema", values, ("columns",), ("target", DRAFTED))
    _refuse_draft(values.get(DRAFTED, False))
    columns = values["columns"]
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a table with one entry for each column, got {columns!r}.")
    return {name: _column(name, column) for name, column in columns.items()}, values.get("target")


def to_toml(columns: Mapping[str, Column], target: str | None) -> str:
    """Return the declaration as TOML."""
    lines = [] if target is None else [target_line(target), ""]
    for name, column in columns.items():
        lines += [heading(name), *lines_of(column), ""]
    return "\n".join(lines)


def from_toml(text: str) -> tuple[dict[str, Column], str | None]:
    """Return columns and target from TOML, or raise with what is wrong with it."""
    try:
        values = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one, and Python refuses integers of thousands of digits itself
        raise ValueError(f"the schema is not valid TOML: {error}.") from None
    except RecursionError:
        raise ValueError("the schema is not valid TOML that this program reads: it is nested too deeply.") from None
    return from_dict(values)


def target_line(target: str) -> str:
    """Return the line that names the target."""
    return f"target = {_quoted(target)}"


def heading(name: str) -> str:
    """Return the line that begins a column."""
    return f"[columns.{name if re.fullmatch('[A-Za-z0-9_-]+', name) else _quoted(name)}]"


def lines_of(column: Column) -> list[str]:
    """Return the lines below it."""
    return [f"{key} = {_written(value)}" for key, value in column.described().items()]


def _column(name: Any, values: Any) -> Column:
    where = f"column {name!r}"
    if not isinstance(values, Mapping):
        raise TypeError(f"{where} must be a table with a type, got {values!r}.")
    kind = values.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        options = " or ".join(map(repr, _KINDS))
        guess = hint(kind, _KINDS) if isinstance(kind, str) else "."
        got = f"got {kind!r}" if "type" in values else "and there is none"
        raise ValueError(f"{where}: type must be {options}, {got}{guess}")
    make, required = _KINDS[kind]
    _require_keys(where, values, ("type", *required), ("missing",))
    try:
        return make(**{key: value for key, value in values.items() if key != "type"})
    except (ValueError, TypeError) as error:
        raise type(error)(f"{where}: {error}") from None
    except OverflowError as error:
        raise ValueError(f"{where}: a number is too large: {error}.") from None


def _require_keys(where: str, values: Mapping[Any, Any], required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    allowed = (*required, *optional)
    for key in values:
        if key not in allowed:
            known = ", ".join(key for key in allowed if key != DRAFTED)
            raise ValueError(f"{where} has an unknown key {key!r}{hint(str(key), allowed)} It may have {known}.")
    for key in required:
        if key not in values:
            raise ValueError(f"{where} has no {key}: add it.")


def _refuse_draft(drafted: Any) -> None:
    if drafted is not False:
        raise ValueError(
            f"this schema was drafted from the data ({DRAFTED} = {json.dumps(drafted, default=str)}): its ranges and "
            f"categories tell about the records, and a guarantee needs public ones. Replace each by what is known "
            f"without this data, then remove the line {DRAFTED}, or set it to false."
        )


def _written(value: Any) -> str:
    if isinstance(value, list):
        items = [_written(item) for item in value]
        line = f"[{', '.join(items)}]"
        return line if len(line) <= _LINE else "[\n" + "".join(f"    {item},\n" for item in items) + "]"
    return _scalar(value)


def _scalar(value: Label) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    return str(int(value)) if abs(value) < 2**53 and value == int(value) else repr(value)


def _quoted(text: str) -> str:
    """Return TOML's basic string: JSON's, but for one character that TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
