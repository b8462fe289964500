"""Kinds of columns: what is declared of them, how cells are read, and the features and targets that they become."""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from epsteps.data import values
from epsteps.data.values import WORDS, Key, is_empty, key_of, numbers, shown
from epsteps.data.values import parsed as parsed_text
from epsteps.methods.places import edges_of
from epsteps.problem import validate
from epsteps.problem.losses import Logistic, Softmax, Squared

Label = str | bool | int | float
# Guesses take a value to be missing in one record of ten, where that is declared.
_MISSING = 0.1
_EXAMPLES = 3
# Rising functions of one number, with public parameters or none.
TRANSFORMS: dict[str, Callable[[Any], Any]] = {"log1p": np.log1p}


@dataclass(frozen=True)
class ColumnCheck:
    """Counts in a column: cells that are empty, not what was declared, or beyond the range. Not for publication."""

    name: str
    empty: int
    unknown: int
    below: int
    above: int
    examples: tuple[str, ...]

    @property
    def outside(self) -> int:
        """How many cells the schema would change into something else, empty ones apart."""
        return self.unknown + self.below + self.above

    def __str__(self) -> str:
        counts = {"empty": self.empty, "unknown": self.unknown, "below": self.below, "above": self.above}
        listed = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        examples = f" ({', '.join(map(repr, self.examples))})" if self.examples else ""
        return f"{self.name}: {listed or 'all as declared'}{examples}"


@dataclass(frozen=True)
class Numeric:
    """A column of numbers in a declared range, scaled to [0, 1].

    A number beyond the range counts as its nearest end. What is missing or no number counts as ``low``, or, with
    ``missing=True``, gets an indicator of its own. The indicator costs no sensitivity: where it is 1 the number is 0.

    A transform is a function of one cell with public parameters, so that it costs no privacy. It is monotone, and what
    it makes of the range follows from its ends: [f(low), f(high)], which is scaled to [0, 1].

    Parameters
    ----------
    low, high : float
        The range, from public knowledge: never the smallest and largest value in the data.
    missing : bool
        Whether to add an indicator of missing values.
    transform : "log1p", optional
        The feature is log(1 + number), for which low must be above -1.
    clip : pair of float, optional
        A part of the range that the number is moved into, before it is transformed.
    bins : sequence of float
        Edges between low and high: the features are indicators of the bins, of which the first ends below the first
        edge and each begins at one, in the place of a number. Two bins take one feature, 1 for the second.

    >>> Numeric(0, 10, missing=True).encode(np.array([5, -3, np.nan, 1e300]))
    array([[0.5, 0. ],
           [0. , 0. ],
           [0. , 1. ],
           [1. , 0. ]])
    >>> Numeric(0, 99, bins=[18, 65]).encode(np.array([17, 18, 200]))
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """

    low: float
    high: float
    missing: bool = False
    transform: str | None = None
    clip: Sequence[float] | None = None
    bins: Sequence[float] = ()

    def __post_init__(self) -> None:
        low, high = validate.number("low", self.low), validate.number("high", self.high)
        if not low < high or not math.isfinite(high - low):
            raise ValueError(f"low must be below high, and high - low finite, got low={low:g}, high={high:g}.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        _require_flag(self.missing)
        object.__setattr__(self, "clip", None if self.clip is None else self._checked_clip())
        object.__setattr__(self, "bins", self._checked_bins())
        self._require_transform()

    def __repr__(self) -> str:
        declared = ("transform", self.transform), ("clip", self.clip), ("bins", self.bins)
        others = "".join(f", {name}={value!r}" for name, value in declared if value)
        return f"Numeric(low={self.low!r}, high={self.high!r}, missing={self.missing!r}{others})"

    def __str__(self) -> str:
        parts = [f"from {self.low:g} to {self.high:g}"]
        parts += [] if self.clip is None else [f"clipped to {self.clip[0]:g} to {self.clip[1]:g}"]
        parts += [] if self.transform is None else [self.transform]
        parts += [f"in bins at {', '.join(f'{edge:g}' for edge in self.bins)}"] * self.levels
        return ", ".join([*parts, *["or missing"] * self.missing])

    @property
    def width(self) -> int:
        """Number of features."""
        if not self.levels:
            return 2 if self.missing else 1
        return 1 if self._is_flag else len(self.bins) + 1 + self.missing

    def names(self, name: str) -> list[str]:
        """Return the features' names in a column of this name."""
        if self.levels:
            edges = [f"{edge:g}" for edge in self.bins]
            inner = [f"{low} <= {name} < {high}" for low, high in pairwise(edges)]
            listed = [f"{name} < {edges[0]}", *inner, f"{name} >= {edges[-1]}"]
        else:
            listed = [name if self.transform is None else f"{self.transform}({name})"]
        return listed[1:] if self._is_flag else listed + [f"{name} is missing"] * self.missing

    @property
    def levels(self) -> bool:
        """Whether the features are the levels of one category: those of bins are."""
        return len(self.bins) > 0

    @property
    def transformed(self) -> bool:
        """Whether the features are of something else than the number in its range."""
        return self.levels or self.transform is not None or self.clip is not None

    @property
    def plain(self) -> "Numeric":
        """The number in its range, whatever features are made of."""
        return Numeric(self.low, self.high, self.missing) if self.transformed else self

    @property
    def spans(self) -> list[float]:
        """How many units of the column, or of what its transform makes of it, each feature spans."""
        if self.levels:
            return [1.0] * self.width
        low, high = self._ends
        return [min(high - low, sys.float_info.max), 1.0][: self.width]

    @property
    def classes(self) -> None:
        """There are none: a target of this kind is a number."""
        return None

    @property
    def target_scale(self) -> tuple[float, float]:
        """Middle and half width of the range, in whose units a model predicts."""
        return self.low / 2 + self.high / 2, self.high / 2 - self.low / 2

    def loss(self) -> Squared:
        """Return the loss that fits a target of this kind."""
        return Squared(1.0)

    def described(self) -> dict[str, Any]:
        """Return the declaration as values that JSON and TOML can hold."""
        declared = {"missing": self.missing, "transform": self.transform}
        declared |= {name: list(getattr(self, name) or ()) for name in ("clip", "bins")}
        return {"type": "numeric", "low": self.low, "high": self.high} | {k: v for k, v in declared.items() if v}

    def check(self, name: str, column: np.ndarray) -> ColumnCheck:
        """Count the cells that are outside what is declared. Reads data: for its holder's eyes."""
        values = numbers(column)
        below, above = int(np.sum(values < self.low)), int(np.sum(values > self.high))
        return _checked(name, column, np.isnan(values), below, above)

    def unknown(self, column: np.ndarray) -> np.ndarray:
        """Mark the cells that are no numbers. Reads data: for its holder's eyes."""
        return np.isnan(numbers(column))

    def encode(self, column: np.ndarray) -> np.ndarray:
        """Return the features of each cell, in [0, 1] and with a sum of at most 1."""
        values = numbers(column)
        if self.levels:
            return self._encode_bins(values)
        features = [self._unit(values), np.isnan(values).astype(float)]
        return np.column_stack(features[: self.width])

    def _encode_bins(self, values: np.ndarray) -> np.ndarray:
        """Return the indicators of the bins; what is no number is in the first, or in one of its own."""
        unknown = np.isnan(values)
        places = np.searchsorted(np.array(self.bins), np.where(unknown, self.low, values), side="right")
        if self._is_flag:
            return (places == 1).astype(float)[:, None]
        places = np.where(unknown, len(self.bins) + 1, places) if self.missing else places
        features = np.zeros((len(values), self.width))
        features[np.arange(len(values)), places] = 1.0
        return features

    def encode_target(self, column: np.ndarray) -> np.ndarray:
        """Return the cells scaled to [-1, 1]; what is missing or no number is 0, the middle."""
        values = numbers(column)
        return np.where(np.isnan(values), 0.0, 2 * self._unit(values) - 1)

    def decode_target(self, column: np.ndarray) -> np.ndarray:
        """Return predictions of such targets in the column's own unit; those beyond the range become its ends."""
        unit = (np.clip(np.asarray(column, dtype=float), -1, 1) + 1) / 2
        return np.clip(self.low + unit * (self.high - self.low), self.low, self.high)

    def _unit(self, values: np.ndarray) -> np.ndarray:
        """Return what is made of the numbers in [0, 1]; NaN as 0. Rounded logarithms may leave it, and are held."""
        low, high = self._range
        known = np.clip(np.where(np.isnan(values), self.low, values), low, high)
        first, last = self._ends
        known = known if self.transform is None else TRANSFORMS[self.transform](known)
        return np.clip((known - first) / (last - first), 0.0, 1.0)

    @property
    def _range(self) -> tuple[float, float]:
        """What numbers are moved into before they are transformed."""
        return (self.low, self.high) if self.clip is None else (self.clip[0], self.clip[1])

    @property
    def _ends(self) -> tuple[float, float]:
        """What the transform makes of the range: that of its ends, for it is monotone."""
        low, high = self._range
        if self.transform is None:
            return low, high
        return float(TRANSFORMS[self.transform](low)), float(TRANSFORMS[self.transform](high))

    @property
    def _is_flag(self) -> bool:
        return len(self.bins) == 1 and not self.missing

    def _checked_clip(self) -> tuple[float, float]:
        if not isinstance(self.clip, list | tuple | np.ndarray) or len(self.clip) != 2:
            raise ValueError(f"clip must be a pair (low, high), got {self.clip!r}.")
        low, high = (validate.number("clip", end) for end in self.clip)
        if not self.low <= low < high <= self.high:
            raise ValueError(
                f"clip must be a pair (low, high) within {self.low:g} to {self.high:g}, the range, got {self.clip!r}."
            )
        return low, high

    def _checked_bins(self) -> tuple[float, ...]:
        if not isinstance(self.bins, list | tuple | np.ndarray):
            raise TypeError(f"bins must be a list of edges, got {self.bins!r}.")
        edges = tuple(validate.number("each of bins", edge) for edge in self.bins)
        if any(not one < other for one, other in pairwise((self.low, *edges, self.high))):
            raise ValueError(
                f"bins must be edges in increasing order between {self.low:g} and {self.high:g}, got {list(edges)!r}."
            )
        if edges and (self.transform is not None or self.clip is not None):
            raise ValueError("bins go without transform and clip, which would change nothing: leave those out.")
        return edges

    def _require_transform(self) -> None:
        if self.transform is None:
            return
        if not isinstance(self.transform, str) or self.transform not in TRANSFORMS:
            raise ValueError(f"transform must be {' or '.join(map(repr, TRANSFORMS))}, got {self.transform!r}.")
        low, high = self._range
        with np.errstate(all="ignore"):
            first, last = self._ends
        if not (math.isfinite(first) and math.isfinite(last) and first < last):
            raise ValueError(
                f"{self.transform} is not a finite, rising function from {low:g} to {high:g}: declare a range, or a "
                "clip, whose low end is above -1."
            )


@dataclass(frozen=True)
class Category:
    """A column of categories in a declared codebook: an indicator for each, in the codebook's order.

    Two categories take one feature, 1 for the second; more take one each. A cell that is in no category, or missing,
    has indicators of 0; with ``missing=True`` it counts as one more category. Numbers and their texts are the same:
    1, 1.0, "1", "01", and True; spaces around a text do not count.

    Parameters
    ----------
    values : sequence of text, or of numbers
        The codebook, from public knowledge: never the values found in the data.
    missing : bool
        Whether what is missing or not in the codebook is a category of its own.

    >>> Category(["red", "green", "blue"]).encode(np.array(["blue", " red", "pink"]))
    array([[0., 0., 1.],
           [1., 0., 0.],
           [0., 0., 0.]])
    """

    values: Sequence[Label]
    missing: bool = False

    def __post_init__(self) -> None:
        _require_flag(self.missing)
        object.__setattr__(self, "values", _checked_values(self.values, fewest=1 if self.missing else 2))

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.values[:5])) + (", ..." if len(self.values) > 5 else "")
        return f"{len(self.values)} values: {listed}" + (", or missing" if self.missing else "")

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 if self._is_flag else len(self.values) + self.missing

    def names(self, name: str) -> list[str]:
        """Return the features' names in a column of this name."""
        listed = [f"{name}={value}" for value in self.values]
        return listed[1:] if self._is_flag else listed + [f"{name} is missing"] * self.missing

    @property
    def spans(self) -> list[float]:
        """How many units each feature spans: an indicator is its own unit."""
        return [1.0] * self.width

    @property
    def levels(self) -> bool:
        """Whether the features are the levels of one category: they are."""
        return True

    @property
    def transformed(self) -> bool:
        """Whether the features are of something else than the column as it is: they are not."""
        return False

    @property
    def plain(self) -> "Category":
        """The column as it is."""
        return self

    @property
    def classes(self) -> tuple[Label, ...]:
        """The labels of a target of this kind, in their declared order."""
        return tuple(self.values)

    @property
    def target_scale(self) -> tuple[float, float]:
        """What margins are moved and multiplied by to be told: nothing."""
        return 0.0, 1.0

    def loss(self) -> Logistic | Softmax:
        """Return the loss that fits a target of this kind: logistic for two classes, softmax for more."""
        classes = self.classes
        return Logistic((classes[0], classes[1])) if len(classes) == 2 else Softmax(classes)

    def described(self) -> dict[str, Any]:
        """Return the declaration as values that JSON and TOML can hold."""
        return {"type": "category", "values": list(self.values)} | ({"missing": True} if self.missing else {})

    def check(self, name: str, column: np.ndarray) -> ColumnCheck:
        """Count the cells that are outside what is declared. Reads data: for its holder's eyes."""
        return _checked(name, column, self.unknown(column))

    def encode(self, column: np.ndarray) -> np.ndarray:
        """Return the features of each cell: at most one of them is 1, all others are 0."""
        found = places(column, self._codebook)
        if self._is_flag:
            return (found == 1).astype(float)[:, None]
        if self.missing:
            found = np.where(found < 0, len(self.values), found)
        features = np.zeros((len(column), self.width))
        known = np.flatnonzero(found >= 0)
        features[known, found[known]] = 1.0
        return features

    def encode_target(self, column: np.ndarray) -> np.ndarray:
        """Return each cell's label as it is declared; what is missing or not declared counts as the first."""
        return self._labels[np.maximum(places(column, self._codebook), 0)]

    def decode_target(self, column: np.ndarray) -> np.ndarray:
        """Return predicted labels: they are declared ones already."""
        return np.asarray(column)

    def unknown(self, column: np.ndarray) -> np.ndarray:
        """Mark the cells that are not in the codebook. Reads data: for its holder's eyes."""
        return places(column, self._codebook) < 0

    @property
    def _is_flag(self) -> bool:
        return len(self.values) == 2 and not self.missing

    @cached_property
    def _codebook(self) -> dict[Key, int]:
        return {key: place for place, value in enumerate(self.values) if (key := key_of(value)) is not None}

    @cached_property
    def _labels(self) -> np.ndarray:
        return np.array(self.values)


@dataclass(frozen=True)
class Unbounded:
    """A column of numbers whose range is not known: it is bought, with ``epsteps.buy_bounds``, or declared by hand.

    A schema with such columns is no declaration that anything can be fitted to: whatever needs the range raises.

    Parameters
    ----------
    low, high : float, optional
        An end that is publicly known, such as 0 for amounts: it is not bought, which leaves more for the other.
    kind : "number", "integer" or "year"
        Which public grid the range is looked for on: from a millionth to 10^12 of either sign, ten cells to a decade;
        the same from 1 for integers; or every year from 1800 to 2200.
    missing : bool
        As for ``Numeric``.

    >>> Unbounded(low=0, kind="integer").bounded(0, 64)
    Numeric(low=0.0, high=64.0, missing=False)
    """

    low: float | None = None
    high: float | None = None
    kind: str = "number"
    missing: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, validate.number(name, getattr(self, name)))
        if self.low is not None and self.high is not None:
            raise ValueError(f"low={self.low:g} and high={self.high:g} are both known: declare a numeric column.")
        _require_flag(self.missing)
        if len(places_grid(self)) < 3:
            raise ValueError(f"no grid of kind {self.kind!r} is within the known end of {self}.")

    def __str__(self) -> str:
        known = "" if self.low is None else f", from {self.low:g}"
        known += "" if self.high is None else f", up to {self.high:g}"
        return f"{self.kind} of unknown range{known}" + (", or missing" if self.missing else "")

    @property
    def width(self) -> int:
        """Number of features, once there are bounds."""
        return 2 if self.missing else 1

    def names(self, name: str) -> list[str]:
        """Return the features' names in a column of this name."""
        return [name, f"{name} is missing"][: self.width]

    @property
    def classes(self) -> None:
        """There are none."""
        return None

    @property
    def levels(self) -> bool:
        """Whether the features are the levels of one category: they are not."""
        return False

    @property
    def transformed(self) -> bool:
        """Whether the features are of something else than the column as it is: they are not."""
        return False

    @property
    def plain(self) -> "Unbounded":
        """The column as it is."""
        return self

    def bounded(self, low: float, high: float) -> Numeric:
        """Return the column with a range."""
        return Numeric(low, high, self.missing)

    def described(self) -> dict[str, Any]:
        """Return the declaration as values that JSON and TOML can hold."""
        known = {name: end for name, end in (("low", self.low), ("high", self.high)) if end is not None}
        return {"type": "unbounded", "kind": self.kind} | known | ({"missing": True} if self.missing else {})

    def check(self, name: str, column: np.ndarray) -> ColumnCheck:
        """Count the cells that are no numbers. Reads data: for its holder's eyes."""
        return _checked(name, column, self.unknown(column))

    def unknown(self, column: np.ndarray) -> np.ndarray:
        """Mark the cells that are no numbers. Reads data: for its holder's eyes."""
        return np.isnan(numbers(column))

    @property
    def spans(self) -> list[float]:
        """Raise: nothing is known of them."""
        raise _unbounded()

    @property
    def target_scale(self) -> tuple[float, float]:
        """Raise: nothing is known of it."""
        raise _unbounded()

    def loss(self) -> Squared:
        """Raise: a target without a range has no loss of a known slope."""
        raise _unbounded()

    def encode(self, column: np.ndarray) -> np.ndarray:
        """Raise, by what is declared, whatever the column holds."""
        raise _unbounded()

    def encode_target(self, column: np.ndarray) -> np.ndarray:
        """Raise, by what is declared, whatever the column holds."""
        raise _unbounded()

    def decode_target(self, column: np.ndarray) -> np.ndarray:
        """Raise, by what is declared."""
        raise _unbounded()


def _unbounded(what: str = "the column") -> ValueError:
    return ValueError(
        f"{what} has no range yet: buy one with epsteps.buy_bounds or epsteps schema bounds, or declare it as numeric, "
        "with low and high from public knowledge."
    )


def require_bounds(columns: "Iterable[tuple[str, Column]]") -> None:
    """Raise for columns without a range, by what is declared alone."""
    for name, column in columns:
        if isinstance(column, Unbounded):
            raise _unbounded(f"column {name!r}")


def places_grid(column: "Numeric | Unbounded") -> tuple[float, ...]:
    """Return the edges of the public grid that a column's range is bought on."""
    return edges_of(getattr(column, "kind", "number"), column.low, column.high)


Column = Numeric | Category | Unbounded


@dataclass(frozen=True)
class Product:
    """The interaction of two columns: each feature of one times each of the other.

    Features of a column are not negative, at most one of them is not 0, and that is at most 1. So the same holds of the
    products, and they count as one column in every norm of a record, however many there are.
    """

    names: tuple[str, str]
    columns: tuple[Column, Column]

    def __str__(self) -> str:
        return " * ".join(self.names)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.columns[0].width * self.columns[1].width

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        first, second = (column.names(name) for name, column in zip(self.names, self.columns, strict=True))
        return [f"{one} * {other}" for one in first for other in second]

    @property
    def spans(self) -> list[float]:
        """How many units of the product each feature spans, if both numbers are counted from their low ends."""
        first, second = (column.spans for column in self.columns)
        return [min(one * other, sys.float_info.max) for one in first for other in second]

    def encode(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the products of encoded cells, in the order of the names."""
        return (first[:, :, None] * second[:, None, :]).reshape(len(first), self.width)


def checked_text(name: str, text: Any) -> str:
    """Return a text without spaces around it, or raise if it is none, blank, or no Unicode."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be text, got {text!r}.")
    if not text.strip():
        raise ValueError(f"{name} must not be blank, got {text!r}.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be Unicode text, got {text!r}.") from None
    return text.strip()


def _checked_values(values: Any, fewest: int) -> tuple[Label, ...]:
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, list | tuple):
        raise TypeError(f"values must be a list, since their order counts, got {values!r}.")
    if len(values) < fewest:
        remedy = "one value tells nothing: leave the column out, or declare every class that a target may have."
        raise ValueError(f"values must be {fewest} or more, got {values!r}; {remedy}")
    if len({isinstance(value, str) for value in values}) > 1:
        raise ValueError(f"values must be all text or all numbers, got {values!r}.")
    checked = tuple(_checked_value(value) for value in values)
    seen: dict[Any, Label] = {}
    for value in checked:
        if (key := key_of(value)) in seen:
            raise ValueError(f"values must be different, but {seen[key]!r} and {value!r} are the same.")
        seen[key] = value
    return checked


def _checked_value(value: Any) -> Label:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        value = checked_text("each of values", value)
    elif not isinstance(value, bool):
        number = validate.number("each of values", value)
        if number != value:
            raise ValueError(f"each of values must be a number that float64 holds, got {value!r}; declare it as text.")
        value = int(number) if number.is_integer() else number
    if key_of(value) is None:
        raise ValueError(f"values must not hold {value!r}, which reads as a missing value: declare missing=True.")
    return value


def _checked(name: str, column: np.ndarray, unknown: np.ndarray, below: int = 0, above: int = 0) -> ColumnCheck:
    """Return the counts of a column; examples are the most frequent values that are not what was declared."""
    missing = empty(column)
    unknown = unknown & ~missing
    common = Counter(map(shown, column[unknown].tolist())).most_common(_EXAMPLES)
    return ColumnCheck(name, int(missing.sum()), int(unknown.sum()), below, above, tuple(text for text, _ in common))


def _require_flag(missing: Any) -> None:
    if not isinstance(missing, bool):
        raise TypeError(f"missing must be True or False, got {missing!r}.")


_NUMERIC, _ANY = "biuf", "OUST"


def parsed(texts: Sequence[str]) -> np.ndarray:
    """Return what ``numbers`` does to a column of texts, fast where all of them are numbers."""
    try:
        return np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
    except ValueError:
        return np.fromiter(map(parsed_text, texts), dtype=np.float64, count=len(texts))


def places(column: np.ndarray, codebook: Mapping[Key, int]) -> np.ndarray:
    """Return each cell's place in the codebook, and -1 for what is missing or not in it."""
    if column.dtype.kind in _NUMERIC + "c":
        return _places_of_numbers(numbers(column), codebook)
    if column.dtype.kind not in _ANY:
        return np.full(len(column), -1)
    # Only texts are remembered: True equals 1 and their places might not.
    known: dict[str, int] = {}
    found = np.empty(len(column), dtype=np.int64)
    with values.quietly():
        for i, cell in enumerate(column.tolist()):
            if type(cell) is not str:
                found[i] = _place(cell, codebook)
            elif cell in known:
                found[i] = known[cell]
            else:
                found[i] = known[cell] = _place(cell, codebook)
    return found


def empty(column: np.ndarray) -> np.ndarray:
    """Mark the cells that hold nothing: None, NaN and the like, or blank text."""
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind in "Mm":
        return np.isnat(column)
    if column.dtype.kind not in _ANY:
        return np.zeros(len(column), dtype=bool)
    with values.quietly():
        return np.fromiter(map(is_empty, column.tolist()), dtype=bool, count=len(column))


def _place(cell: Any, codebook: Mapping[Key, int]) -> int:
    key = key_of(cell)
    return -1 if key is None else codebook.get(key, -1)


def _places_of_numbers(cells: np.ndarray, codebook: Mapping[Key, int]) -> np.ndarray:
    keys = np.array(sorted(key for key in codebook if isinstance(key, float)), dtype=np.float64)
    if len(keys) == 0:
        return np.full(len(cells), -1)
    places = np.array([codebook[key] for key in keys.tolist()])
    nearest = np.minimum(np.searchsorted(keys, cells), len(keys) - 1)
    return np.where(keys[nearest] == cells, places[nearest], -1)


__all__ = ["WORDS", "Key", "empty", "key_of", "numbers", "parsed", "places"]
