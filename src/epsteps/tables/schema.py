"""A declaration of tabular data: what makes a bounded matrix of it without a look at the data; and its TOML."""

import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.budgets import Expense
from epsteps.data.values import shown
from epsteps.problem import validate
from epsteps.problem.box import Box
from epsteps.problem.losses import Logistic, Softmax, Squared
from epsteps.problem.validate import require
from epsteps.tables.columns import (
    WORDS,
    Category,
    Column,
    ColumnCheck,
    Label,
    Numeric,
    Product,
    Unbounded,
    checked_text,
    empty,
    key_of,
    numbers,
    require_bounds,
)
from epsteps.tables.files import array_of, columns_of, hint, names_of, read_columns

DRAFTED, BOUGHT = "drafted_from_data", "bought"


@dataclass(frozen=True)
class SchemaCheck:
    """Counts in all declared columns: for the data holder's own eyes, not for publication."""

    rows: int
    columns: tuple[ColumnCheck, ...]

    @property
    def any(self) -> bool:
        """Whether any cell that is not empty is outside what was declared."""
        return any(column.outside for column in self.columns)

    def __str__(self) -> str:
        return "\n".join([f"{self.rows} rows", *(f"  {column}" for column in self.columns)])


@dataclass(unsafe_hash=True, repr=False)
class Schema:
    """What is publicly known of a table's columns; it turns the table into features, and costs no privacy.

    Numbers are scaled by their declared range, categories become indicators in the order of their codebook, missing
    values may have an indicator of their own. Columns that are not declared are ignored. Nothing is learned from data.

    Tables are those of pandas, polars and pyarrow, dicts of columns, or two-dimensional arrays with exactly the
    declared columns, in their order. What a cell holds never raises, warns, or changes a shape or a type; a column
    that is not there does. Read files with ``load``: other readers guess types, dates above all, from all values of a
    column, so that one record may change what becomes of the others.

    Formal guarantee: the features of a record depend on that record's cells alone, and lie in ``domain()``.

    Parameters
    ----------
    columns : mapping of names to Numeric or Category
        The declared columns. Their order is that of the features.
    target : str, optional
        The one among them that is to be predicted; the others are features.
    interactions : sequence of pairs of names
        Products of two features' columns, as further features: of two numbers in units of their ranges, of a number
        for each level of a category, of levels of two categories. A number with itself is its square.
    person : str, optional
        A further column, no feature, that says whose record it is: for ``per_person`` of estimators; see ``kept``.
    bought : sequence of Expense
        What of it is not public knowledge but was bought with privacy budget (``epsteps.buy_bounds``), and its cost: a
        model that is fitted with the schema has cost that, too, and its certificate says so.

    A schema is a transformer of scikit-learn that learns nothing, and can stand before an estimator in a pipeline:
    ``fit`` reads nothing, and ``transform`` is ``encode``.

    >>> schema = Schema({"age": Numeric(0, 100), "job": Category(["a", "b", "c"]), "y": Category([0, 1])}, target="y")
    >>> schema.encode({"age": [50, "?"], "job": ["c", None]})
    array([[0.5, 0. , 0. , 1. ],
           [0. , 0. , 0. , 0. ]])
    >>> schema.names, schema.domain().size(1, schema.d)
    (('age', 'job=a', 'job=b', 'job=c'), 2.0)
    """

    _columns: tuple[tuple[str, Column], ...]
    target: str | None
    interactions: tuple[tuple[str, str], ...] = ()
    person: str | None = None
    bought: tuple[Expense, ...] = ()

    def __init__(
        self,
        columns: Mapping[str, Column],
        target: str | None = None,
        interactions: Sequence[Sequence[str]] = (),
        person: str | None = None,
        *,
        bought: Iterable[Expense] = (),
    ) -> None:
        object.__setattr__(self, "_columns", _checked_columns(columns))
        object.__setattr__(self, "bought", tuple(bought))
        object.__setattr__(self, "target", None if target is None else checked_text("target", target))
        self._require_target()
        object.__setattr__(self, "interactions", _checked_pairs(interactions, self.features, self.target))
        object.__setattr__(self, "person", None if person is None else checked_text("person", person))
        if self.person in self.columns:
            raise ValueError(f"person {self.person!r} says whose a record is, and must not be among the columns.")
        if not self.features:
            raise ValueError("a schema needs at least one column beside the target.")
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"two features would have the name {twice!r}: rename a column.")

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change what is declared; scikit-learn keeps notes of its own on the steps of a pipeline."""
        if not name.startswith("_") or name == "_columns":
            raise FrozenInstanceError(f"a schema does not change: make another one, instead of setting its {name}.")
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        pairs = f", interactions={list(self.interactions)!r}" if self.interactions else ""
        person = f", person={self.person!r}" if self.person is not None else ""
        bought = f", bought={self.bought!r}" if self.bought else ""
        return f"Schema({self.columns!r}, target={self.target!r}{pairs}{person}{bought})"

    def __str__(self) -> str:
        rows = [("column", "declared", "features")]
        for name, column in self._columns:
            rows.append((name, str(column), "target" if name == self.target else str(column.width)))
        rows += [(str(product), "interaction", str(product.width)) for product in self.products]
        rows += [] if self.person is None else [(self.person, "whose record it is", "person")]
        first, second = (max(len(row[i]) for row in rows) for i in range(2))
        lines = [f"{name:<{first}}  {declared:<{second}}  {count}" for name, declared, count in rows]
        return "\n".join([*lines, *(f"bought: {spent_on(expense)}" for expense in self.bought)])

    @property
    def columns(self) -> dict[str, Column]:
        """All declared columns."""
        return dict(self._columns)

    @cached_property
    def features(self) -> dict[str, Column]:
        """The declared columns without the target."""
        return {name: column for name, column in self._columns if name != self.target}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features, such as "age", "age is missing" and "job=clerk"."""
        names = [feature for name, column in self.features.items() for feature in column.names(name)]
        return (*names, *(feature for product in self.products for feature in product.features))

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The interactions with what is declared of their columns."""
        return tuple(Product(pair, (self.features[pair[0]], self.features[pair[1]])) for pair in self.interactions)

    @property
    def spans(self) -> list[float]:
        """How many units of its column each feature spans."""
        return [span for part in (*self.features.values(), *self.products) for span in part.spans]

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.names)

    def with_target(self, target: str | None) -> "Schema":
        """Return the same schema with this target; with None all columns are features."""
        return Schema(self.columns, target, self.interactions, self.person, bought=self.bought)

    def plain(self) -> "Schema":
        """Return what is declared of the columns as they are, all of them features: no transforms, no interactions."""
        return Schema({name: column.plain for name, column in self._columns}, bought=self.bought)

    def only(self, names: Sequence[str], target: str | None) -> "Schema":
        """Return what is declared of these columns and a target, with the interactions among the former."""
        listed = [name for name in names if name != target]
        pairs = [pair for pair in self.interactions if set(pair) <= set(listed)]
        names = [*listed, *([] if target is None else [target])]
        return Schema({name: self.columns[name] for name in names}, target, pairs, self.person, bought=self.bought)

    def domain(self) -> Box:
        """Return the set that all records lie in: [0, 1] in each feature, and at most 1 over all features of a column.

        A column counts as one in every norm of a record, however many categories it has, and so does an interaction.
        """
        require_bounds(self._columns)
        blocks = [(block, levels) for *block, levels in self._blocks if block[1] - block[0] > 1]
        numbers = [start for (start, _), levels in blocks if not levels]
        return Box(0.0, 1.0, one_hot=[block for block, _ in blocks], numbers=numbers)

    @property
    def categories(self) -> tuple[tuple[int, int], ...]:
        """Ranges of the features that are the levels of one category each."""
        return tuple((start, stop) for start, stop, levels in self._blocks if levels and stop - start > 1)

    @cached_property
    def _blocks(self) -> tuple[tuple[int, int, bool], ...]:
        """The features of each column, and of each interaction, and whether they are the levels of one category."""
        parts = [(column.width, column.levels) for column in self.features.values()]
        parts += [(product.width, False) for product in self.products]
        stops = np.cumsum([width for width, _ in parts]).tolist()
        return tuple((stop - width, stop, levels) for (width, levels), stop in zip(parts, stops, strict=True))

    def loss(self) -> Logistic | Softmax | Squared:
        """Return the loss that fits the target: logistic for two classes, softmax for more, squared for numbers."""
        return self.target_column.loss()

    @property
    def target_column(self) -> Column:
        """What is declared of the target."""
        if self.target is None:
            raise ValueError("the schema declares no target: name it, Schema(columns, target=...) or with_target(...).")
        return self.columns[self.target]

    def encode(self, frame: Any) -> np.ndarray:
        """Return the features of a table as a matrix of float64, one row for each of its rows."""
        require_bounds(self.features.items())
        table = columns_of(frame, list(self.features))
        features = np.empty((len(next(iter(table.values()))), self.d))
        parts: dict[str, np.ndarray] = {}
        for (name, column), (start, stop, _) in zip(self.features.items(), self._blocks, strict=False):
            parts[name] = features[:, start:stop]
            parts[name][:] = column.encode(table[name])
        for product, (start, stop, _) in zip(self.products, self._blocks[len(parts) :], strict=True):
            first, second = product.names
            features[:, start:stop] = product.encode(parts[first], parts[second])
        return features

    def fit(self, X: Any = None, y: Any = None) -> "Schema":
        """Return the schema as it is: nothing is read, and there is nothing to learn."""
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of a table: an array, or what ``set_output`` asked for."""
        return _in_container(self.encode(X), self.names, X, getattr(self, "_output", None))

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Return the features of a table, as ``transform`` does."""
        return self.transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the features' names, whatever the table's columns are called."""
        return np.array(self.names, dtype=object)

    def set_output(self, *, transform: str | None = None) -> "Schema":
        """Choose what ``transform`` returns: "default" (an array), "pandas" or "polars"; None changes nothing."""
        if transform is not None:
            validate.choice("transform", transform, OUTPUTS)
            self._output = transform
        return self

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns that become features."""
        return np.array(list(self.features), dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of the columns that become features."""
        return len(self.features)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return what the schema was made of, for scikit-learn."""
        declared = {"columns": self.columns, "target": self.target}
        return declared | {"interactions": self.interactions, "person": self.person, "bought": self.bought}

    def set_params(self, **parameters: Any) -> "Schema":
        """Refuse: what was declared stays so."""
        if parameters:
            raise TypeError(f"a schema does not change: make another one, got {', '.join(parameters)}.")
        return self

    def __sklearn_clone__(self) -> "Schema":
        """Return the schema with the same output: it has learned nothing that a clone would forget."""
        copy = Schema(self.columns, self.target, self.interactions, self.person, bought=self.bought)
        return copy.set_output(transform=getattr(self, "_output", None))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn that this is a transformer which needs no fit, and takes cells of any kind."""
        utils = require("sklearn.utils", "sklearn", "a pipeline")
        tags = utils.Tags(None, utils.TargetTags(required=False), transformer_tags=utils.TransformerTags())
        tags.requires_fit = False
        tags.input_tags = utils.InputTags(allow_nan=True, categorical=True, string=True)
        return tags

    def _get_tags(self) -> dict[str, Any]:
        """Return the same for scikit-learn before 1.6."""
        return {"requires_fit": False, "allow_nan": True}

    def encode_target(self, frame: Any) -> np.ndarray:
        """Return the target from a table, or from a column: declared labels, or numbers scaled to [-1, 1].

        A label that is not declared counts as the first one, a number that is missing as the middle of the range.
        """
        column, name = self.target_column, str(self.target)
        if names_of(frame) is not None:
            return column.encode_target(columns_of(frame, [name])[name])
        return column.encode_target(array_of(frame, name))

    def kept(self, frame: Any, per_person: int) -> np.ndarray:
        """Mark the first records of each person, up to so many; a fit counts the others as nothing, in their places.

        Formal guarantee: let two tables be neighbours if one person's records, however many, are replaced in their
        places by those of another, of whom there are no others in the table. The same places are then marked in both:
        the first of that person's, and those of everybody else, whose order has not changed. Records that are not
        marked are the same constant in both. So the tables differ in at most ``per_person`` records after this, and
        what is private for so many replaced records is private for the person. Records without a person, whose cell is
        missing, count as those of one; so do numbers that are the same float64, which can only leave more out.
        """
        if self.person is None:
            raise ValueError("the schema names no column of persons: Schema(..., person=...).")
        cells, seen = columns_of(frame, [self.person])[self.person], Counter[Any]()
        marked = np.zeros(len(cells), dtype=bool)
        for place, cell in enumerate(cells.tolist()):
            key = key_of(cell)
            marked[place] = seen[key] < per_person
            seen[key] += 1
        return marked

    def decode_target(self, predictions: Any) -> np.ndarray:
        """Return predictions as they would stand in the table: numbers scaled back, and within the declared range."""
        return self.target_column.decode_target(np.asarray(predictions))

    def load(self, path: str | Path, *, delimiter: str = ",", encoding: str = "utf-8") -> dict[str, np.ndarray]:
        """Return the declared columns of a .csv or .parquet file, the target included; see ``read_columns``."""
        return _load(path, self.columns, delimiter, encoding, self.person)

    def load_features(
        self, path: str | Path, *, delimiter: str = ",", encoding: str = "utf-8"
    ) -> dict[str, np.ndarray]:
        """Return the declared columns but the target, which the file need not have: to predict it."""
        return _load(path, self.features, delimiter, encoding)

    def check(self, frame: Any) -> SchemaCheck:
        """Count what of a table is outside what is declared. It reads without protection: for its holder's own eyes."""
        table = columns_of(frame, list(self.columns))
        checks = tuple(column.check(name, table[name]) for name, column in self._columns)
        return SchemaCheck(len(next(iter(table.values()))), checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as values that JSON can hold; the order of its columns is part of it."""
        person = {} if self.person is None else {"person": self.person}
        bought = {BOUGHT: [vars(expense) for expense in self.bought]} if self.bought else {}
        return to_dict(self.columns, self.target, self.interactions) | person | bought

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Schema":
        """Return the schema that ``to_dict`` wrote."""
        return Schema(*from_dict(values), bought=bought_from(values))

    def to_toml(self) -> str:
        """Return the schema as TOML."""
        person = "" if self.person is None else f"{person_line(self.person)}\n"
        declared = person + to_toml(self.columns, self.target, self.interactions)
        return "\n".join([declared, *map(_bought_lines, self.bought)])

    @staticmethod
    def from_toml(text: str) -> "Schema":
        """Return the schema that TOML declares. A draft that was read from data is refused."""
        return Schema.from_dict(parsed_toml(text))

    @staticmethod
    def read(path: str | Path) -> "Schema":
        """Return the schema in a TOML file. A draft that was read from data is refused."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no schema {path}: write one, or draft it with epsteps schema draft.")
        try:
            return Schema.from_toml(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8 text: save it as such.") from None
        except (ValueError, TypeError) as error:
            raise type(error)(f"{path}: {error}") from None

    def _require_target(self) -> None:
        if self.target is None:
            return
        if self.target not in self.columns:
            raise ValueError(f"target {self.target!r} is not among the columns{hint(self.target, self.columns)}")
        column = self.target_column
        if column.missing:
            rule = "as the first class" if column.classes else "as the middle of the range"
            raise ValueError(f"target {self.target!r} must not have missing=True: a missing one counts {rule}.")
        if column.transformed:
            raise ValueError(
                f"target {self.target!r} must not have a transform, a clip or bins, which are for features: "
                "predictions are in the column's own unit."
            )


OUTPUTS = ("default", "pandas", "polars")


def _in_container(features: np.ndarray, names: Sequence[str], frame: Any, output: str | None) -> Any:
    """Return features as what was asked for: of this schema, or by scikit-learn's configuration of this process."""
    if output is None and "sklearn" in sys.modules:
        output = sys.modules["sklearn"].get_config().get("transform_output")
    if output == "pandas":
        pandas = require("pandas", "sklearn", "set_output(transform='pandas')")
        index = frame.index if isinstance(frame, pandas.DataFrame) else None
        return pandas.DataFrame(features, index=index, columns=list(names), copy=False)
    if output == "polars":
        return require("polars", "sklearn", "set_output(transform='polars')").DataFrame(features, schema=list(names))
    return features


def _load(
    path: str | Path, columns: Mapping[str, Column], delimiter: str, encoding: str, person: str | None = None
) -> dict[str, np.ndarray]:
    numeric = [name for name, column in columns.items() if column.classes is None]
    names = [*columns, *([] if person is None else [person])]
    return read_columns(path, names, numeric=numeric, delimiter=delimiter, encoding=encoding)


def _checked_columns(columns: Any) -> tuple[tuple[str, Column], ...]:
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a dict from names to Numeric or Category, got {columns!r}.")
    for name, column in columns.items():
        if not isinstance(column, Numeric | Category | Unbounded):
            raise TypeError(f"column {name!r} must be Numeric, Category or Unbounded, got {column!r}.")
    names = [checked_text("a column's name", name) for name in columns]
    if len(set(names)) < len(names):
        raise ValueError(f"columns must have different names, got {names!r}.")
    return tuple(zip(names, columns.values(), strict=True))


def _checked_pairs(pairs: Any, features: Mapping[str, Column], target: str | None) -> tuple[tuple[str, str], ...]:
    """Return interactions, or raise if one is no pair of different features' columns, or there twice."""
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise TypeError(f"interactions must be a list of pairs of columns' names, got {pairs!r}.")
    found: list[tuple[str, str]] = []
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"an interaction is a pair of two columns' names, got {pair!r}.")
        first, second = (checked_text("a column's name", name) for name in pair)
        for name in (first, second):
            if name == target:
                raise ValueError(f"an interaction cannot hold the target {target!r}: leave it out.")
            if name not in features:
                raise ValueError(f"an interaction names {name!r}, which is no column{hint(name, features)}")
        if first == second and (features[first].levels or features[first].width > 1):
            raise ValueError(f"{first!r} with itself tells nothing: only a number without missing=True has a square.")
        if (first, second) in found or (second, first) in found:
            raise ValueError(f"the interaction of {first!r} and {second!r} is there twice: leave one out.")
        found.append((first, second))
    return tuple(found)


# A column is numeric if so many of its cells are numbers.
_NUMERIC_SHARE = 0.9
_MOST_CATEGORIES = 100
# Values that are all different say little in fewer rows than these, unless the column is named like an identifier.
_FEWEST_ROWS = 20
_IDENTIFIER = re.compile(r"(?i:(^|[ _.-])(id|uuid|guid|key|index)$)|[a-z]I[dD]$")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")
# Texts that often stand for a missing value.
_MISSING = {"", "?", "-", "na", "n/a", "nan", "null", "none", "missing", "."}
_WARNING = f"""\
# DRAFT, READ FROM THE DATA: NOT PRIVATE, AND NOT READY FOR USE.
#
# Every range and every category below was found in the records, so that this file tells about them. A guarantee holds
# only if they are public knowledge: the questions of a form, a codebook, the laws of nature. Replace each of them by
# what you would have written without this data (ages from 0 to 120, not from 17 to 90), delete the columns that you do
# not need, and then remove this line:
{DRAFTED} = true
"""


def draft(source: Any, *, target: str | None = None, delimiter: str = ",", encoding: str = "utf-8") -> str:
    """Return TOML that a person can make a schema of: ranges and categories as they were found. NOT private.

    ``source`` is the path of a .csv or .parquet file, or a table. ``Schema.from_toml`` refuses the draft as long as it
    says ``drafted_from_data = true``. Columns that no model can use are left out, with a remark why: names and numbers
    that tell rows apart, and numbers with decimal commas.
    """
    if isinstance(source, str | Path):
        table = read_columns(source, delimiter=delimiter, encoding=encoding)
    else:
        table = columns_of(source, [str(name) for name in names_of(source) or []])
    if not table:
        raise ValueError("there is no table with named columns to draft a schema of.")
    if target is not None and target not in table:
        raise ValueError(f"there is no column {target!r} for the target{hint(target, table)}")
    lines = [_WARNING, '# target = "the column to predict"' if target is None else target_line(target), ""]
    for name, column in table.items():
        lines += [*_drafted(checked_text("a column's name", name), column, name == target), ""]
    return "\n".join(lines)


def _drafted(name: str, column: np.ndarray, is_target: bool) -> list[str]:
    """Return the lines of a column, or a remark why it is left out."""
    blank = _blank(column)
    found, missing = column[~blank], bool(blank.any()) and not is_target
    values = numbers(found)
    known = values[np.isfinite(values)]
    keys = _distinct(found)
    if len(keys) < 2:
        return [f"# {heading(name)} left out: it has fewer than two different values."]
    if _has_decimal_commas(found):
        return [
            f"# {heading(name)} left out: its numbers have decimal commas. Write them with points in the table, as 3.5",
            "# (spreadsheets have a setting for that), and draft again.",
        ]
    if not is_target and _tells_rows_apart(name, found, known, len(keys)):
        return [
            f"# {heading(name)} left out: all its values are different, as names or numbers of rows are, of which",
            "# nothing can be learned. If it is a quantity after all, declare it: type, low and high.",
        ]
    if len(keys) > 2 and len(known) >= _NUMERIC_SHARE * len(found) and known.min() < known.max():
        missing |= len(known) < len(found) and not is_target
        return _lines(name, Numeric(float(known.min()), float(known.max()), missing), "range")
    if len(keys) > _MOST_CATEGORIES:
        return [f"# {heading(name)} left out: it has {len(keys)} different values, too many for categories."]
    return _lines(name, Category(keys, missing), "categories")


def _tells_rows_apart(name: str, found: np.ndarray, known: np.ndarray, different: int) -> bool:
    """Whether no two cells are the same, and they are texts or whole numbers: of a few rows, if the name says so."""
    if different < len(found) or (len(found) < _FEWEST_ROWS and not _IDENTIFIER.search(name)):
        return False
    return len(known) == 0 or (len(known) == len(found) and bool(np.all(known == np.round(known))))


def _has_decimal_commas(found: np.ndarray) -> bool:
    """Whether most cells are numbers as they are written with decimal commas, and some of them have one."""
    texts = [cell.strip() for cell in found.tolist() if isinstance(cell, str)]
    written = [text for text in texts if _DECIMAL_COMMA.fullmatch(text)]
    return len(written) >= _NUMERIC_SHARE * len(found) and any("," in text for text in written)


def _lines(name: str, column: Column, what: str) -> list[str]:
    return [f"{heading(name)}  # {what} READ FROM THE DATA: replace", *lines_of(column)]


def _distinct(column: np.ndarray) -> list[Any]:
    """Return the different values in order: all numbers, or all text."""
    keys = {key_of(cell): cell for cell in reversed(column.tolist())}
    keys.pop(None, None)
    if {shown(cell).strip().lower() for cell in keys.values()} == set(WORDS):
        return [False, True]
    found = sorted(key for key in keys if isinstance(key, float) and np.isfinite(key))
    if len(found) == len(keys):
        return [int(key) if key.is_integer() and abs(key) < 2**53 else key for key in found]
    return sorted(shown(cell).strip() for cell in keys.values())


def _blank(column: np.ndarray) -> np.ndarray:
    """Mark the cells that are empty, or a text that says so."""
    words = [isinstance(cell, str) and cell.strip().lower() in _MISSING for cell in column.tolist()]
    return empty(column) | np.array(words, dtype=bool)


# Of each kind of column: what must be declared, and what may be.
_KINDS: dict[str, tuple[type[Column], tuple[str, ...], tuple[str, ...]]] = {
    "numeric": (Numeric, ("low", "high"), ("missing", "transform", "clip", "bins")),
    "category": (Category, ("values",), ("missing",)),
    "unbounded": (Unbounded, (), ("kind", "low", "high", "missing")),
}
_LINE = 100


Pairs = Sequence[tuple[str, str]]


def to_dict(columns: Mapping[str, Column], target: str | None, interactions: Pairs = ()) -> dict[str, Any]:
    """Return the declaration as values that JSON can hold. The order of the columns is part of it."""
    described = {name: column.described() for name, column in columns.items()}
    pairs = {"interactions": [{"of": list(pair)} for pair in interactions]} if interactions else {}
    return ({} if target is None else {"target": target}) | {"columns": described} | pairs


def from_dict(values: Any) -> tuple[dict[str, Column], str | None, list[Any], str | None]:
    """Return columns, target, interactions and person from such values, or raise with what is wrong with them."""
    if not isinstance(values, Mapping):
        raise TypeError(f"a schema must be a table with columns, got {values!r}.")
    _require_keys("the schema", values, ("columns",), ("target", "interactions", "person", BOUGHT, DRAFTED))
    _refuse_draft(values.get(DRAFTED, False))
    columns = values["columns"]
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a table with one entry for each column, got {columns!r}.")
    pairs = [_pair(entry) for entry in _listed("interactions", values.get("interactions", []))]
    declared = {name: _column(name, column) for name, column in columns.items()}
    return declared, values.get("target"), pairs, values.get("person")


def _listed(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise TypeError(f"{name} must be a list of tables, [[{name}]], got {values!r}.")
    return values


def _pair(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        raise TypeError(f'each of interactions must be a table, such as of = ["age", "sex"], got {entry!r}.')
    _require_keys("an interaction", entry, ("of",), ())
    return entry["of"]


def to_toml(columns: Mapping[str, Column], target: str | None, interactions: Pairs = ()) -> str:
    """Return the declaration as TOML."""
    lines = [] if target is None else [target_line(target), ""]
    for name, column in columns.items():
        lines += [heading(name), *lines_of(column), ""]
    for pair in interactions:
        lines += ["[[interactions]]", f"of = {_written(list(pair))}", ""]
    return "\n".join(lines)


def bought_from(values: Mapping[str, Any]) -> tuple[Expense, ...]:
    """Return what was bought for a schema, or raise with what is wrong with it."""
    entries = values.get(BOUGHT, [])
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, Mapping) for entry in entries):
        raise TypeError(f"{BOUGHT} must be a list of tables with a note, a cost and a unit, got {entries!r}.")
    for entry in entries:
        _require_keys(f"each of {BOUGHT}", entry, ("note", "cost", "unit"), ())
    return tuple(Expense(checked_text("note", entry["note"]), entry["cost"], entry["unit"]) for entry in entries)


def spent_on(expense: Expense) -> str:
    """Return an expense in words."""
    return f"{expense.note}, for {expense.unit} = {expense.cost:.6g}"


def _bought_lines(expense: Expense) -> str:
    return "\n".join([f"[[{BOUGHT}]]", *(f"{key} = {_written(value)}" for key, value in vars(expense).items()), ""])


def parsed_toml(text: str) -> dict[str, Any]:
    """Return the values of TOML, or raise with what is wrong with it."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one, and Python refuses integers of thousands of digits itself
        raise ValueError(f"the schema is not valid TOML: {error}.") from None
    except RecursionError:
        raise ValueError("the schema is not valid TOML that this program reads: it is nested too deeply.") from None


def target_line(target: str) -> str:
    """Return the line that names the target."""
    return f"target = {_quoted(target)}"


def person_line(person: str) -> str:
    """Return the line that names the column of persons."""
    return f"person = {_quoted(person)}"


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
        *others, last = map(repr, _KINDS)
        options = f"{', '.join(others)} or {last}"
        guess = hint(kind, _KINDS) if isinstance(kind, str) else "."
        got = f"got {kind!r}" if "type" in values else "and there is none"
        raise ValueError(f"{where}: type must be {options}, {got}{guess}")
    make, required, optional = _KINDS[kind]
    _require_keys(where, values, ("type", *required), optional)
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
