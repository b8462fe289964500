"""The public set that every record's features are projected into: the source of all sensitivities."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from epsteps.problem.levels import NORMS
from epsteps.problem.shapes import Body, Hull
from epsteps.problem.validate import Kinds


class Recipe(Protocol):
    """What a domain's ``integers`` compute with, as numbers for the compiled kernel of this name."""

    @property
    def kernel(self) -> str:
        """The kernel's name; where there is none of this name, the domain's ``integers`` are asked."""
        ...


class Clipping(NamedTuple):
    """How integers follow from features that are clipped column by column: what ``Box.integers`` computes with.

    ``ends`` has five numbers for each column: a feature is held between ``ends[0]`` and ``ends[1]``, multiplied by
    ``ends[2]``, rounded, and held between ``ends[3]`` and ``ends[4]``. Indicators of ``one_hot`` are shared as well.
    """

    ends: np.ndarray
    one_hot: tuple[tuple[int, int], ...] = ()
    kernel = "clip"


class Shortening(NamedTuple):
    """How integers follow from features whose rows are shortened: what ``Ball.integers`` computes with.

    Features are held within ``largest``, and their lengths (roots of sums of squares, or sums of sizes) within
    ``allowed``. They are multiplied by ``scale`` and rounded so that squares, or sizes, add up to ``limit`` at most.
    """

    squares: bool
    largest: float
    allowed: float
    scale: float
    limit: float
    kernel = "shorten"


class Domain(ABC):
    """What the library asks of a domain: five members, and abilities. A record's values never raise: they are moved.

    Every sensitivity follows from ``size``, ``units`` and ``reach``, and every private sum from ``integers``: the
    guarantee rests on them, and nothing checks that records keep what a domain promises.

    ``name`` is what a class of domains is called in JSON, as for losses; classes derived from it do not inherit it.
    """

    kinds: ClassVar["Kinds[Domain]"] = Kinds("domain")
    # Ranges of columns with the indicators of one category each: not negative, and together at most 1.
    one_hot: tuple[tuple[int, int], ...] = ()
    # Columns of such ranges that hold a number, beside the indicator that it is missing.
    numbers: tuple[int, ...] = ()
    # Whether records lie around 0, so that nothing is ever taken off their features.
    is_centred: ClassVar[bool] = False

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        super().__init_subclass__()
        if name is not None:
            Domain.kinds.add(name, cls)

    @property
    def categories(self) -> tuple[tuple[int, int], ...]:
        """Ranges of columns that are the levels of one category each: of a complete record, one of them is 1."""
        return self.one_hot

    @abstractmethod
    def units(self, d: int) -> np.ndarray:
        """Return the largest absolute value of each column."""

    @abstractmethod
    def size(self, norm: float, d: int) -> float:
        """Return the largest ``norm`` (1, 2 or infinity) of a record's d features."""

    @abstractmethod
    def reach(self, x: np.ndarray) -> np.ndarray:
        """Return sup |u'x| over the domain, for each column of x."""

    @abstractmethod
    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return finite rows inside the domain; NaN counts as 0."""

    @abstractmethod
    def integers(self, rows: np.ndarray, steps: int) -> np.ndarray:
        """Return the projected rows in units of 1/steps of each column's largest value, exactly inside the domain."""

    def recipe(self, d: int, steps: int) -> Recipe | None:
        """Return what ``integers`` computes with, for compiled code that gives the same integers; None for none.

        It counts for the class that defines it: what is derived from it may compute other integers.
        """
        return None

    def require(self, d: int) -> None:  # noqa: B027 - most domains hold records of any length
        """Raise unless records of d features can lie in the domain."""

    def body(self, d: int) -> Body | None:
        """Return a body, in ``units``, that holds c u for |c| <= 1 and u in the domain.

        None if there is none: noise is then that of a norm.
        """
        return None

    def hull(self, d: int) -> Hull | None:
        """Return a smaller body than ``body`` that there is noise for; None if there is none."""
        return None

    def even_moments(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of each column if records were spread evenly: for predictions.

        This default is that of columns that are spread over their ranges around 0.
        """
        return np.zeros(d), self.units(d) ** 2 / 3

    def outside(self, rows: np.ndarray) -> np.ndarray:
        """Mark the rows that ``project`` would move. Reads data: for its holder's eyes."""
        rows = np.asarray(rows, dtype=float)
        with np.errstate(invalid="ignore", over="ignore"):
            moved = np.abs(self.project(rows) - rows)
        return ~np.all(moved <= 1e-12 * self.units(rows.shape[1]), axis=1)

    def project_entries(self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray, d: int) -> np.ndarray:
        """Return what ``project`` does to sparse rows, of which row i holds entries[starts[i]:starts[i+1]]."""
        raise self._lacks("project_entries", "sparse records", "pass dense records")

    def integer_entries(
        self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray, d: int, steps: int
    ) -> np.ndarray:
        """Return what ``integers`` does to sparse rows."""
        raise self._lacks("integer_entries", "sparse records", "pass dense records")

    def outside_entries(self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Mark the sparse rows that ``project_entries`` would move. Reads data: for its holder's eyes."""
        raise self._lacks("outside_entries", "sparse records", "pass dense records")

    def columns(self, d: int) -> "Columns":
        """Return its columns in units in which they are alike: for released moments of the curvature method."""
        raise TypeError(
            f"the curvature method is written for a Ball or a Box, got the domain {self!r}, which has no columns."
        )

    def largest_square(self, centre: Sequence[int], weights: Sequence[int], steps: int) -> int:
        """Return the largest sum of (weight (u - centre))² over its records u, in integers: exact.

        Records are those of ``integers``: the largest value of a column is ``steps``. For sufficient statistics.
        """
        raise TypeError(
            f"domain must be a Ball or a Box for sufficient statistics, got {type(self).__name__}, "
            "which has no largest_square."
        )

    def _lacks(self, member: str, what: str, remedy: str) -> ValueError:
        return ValueError(f"{type(self).__name__} does not cover {what}, for it has no {member}: {remedy}.")


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a domain, without the intercept's: u = centre + half z, with z in ``domain``.

    Columns of a category are not shifted, and their half is 1; ``numeric`` lists the others. Of their squares,
    factor z² - offset is released, which lies in the domain ``squares``. ``clipped`` says that each of the others may
    be anything in [-1, 1], whatever the rest of a record is.
    """

    domain: Domain
    centre: np.ndarray
    half: np.ndarray
    squares: Domain
    factor: int
    offset: int
    clipped: bool = False

    @property
    def d(self) -> int:
        """Number of columns."""
        return len(self.centre)

    @property
    def categories(self) -> tuple[tuple[int, int], ...]:
        """Ranges of columns that encode one category each."""
        return self.domain.one_hot

    @cached_property
    def numeric(self) -> np.ndarray:
        """The columns outside of categories."""
        marks = np.ones(self.d, dtype=bool)
        for start, stop in self.categories:
            marks[start:stop] = False
        return np.flatnonzero(marks)

    @property
    def largest_variance(self) -> float:
        """No direction of length 1 has a larger variance than this."""
        return float(np.sum(self.half**2))

    def integers(self, features: np.ndarray, units: np.ndarray, steps: int) -> np.ndarray:
        """Return z of records that are integers, ``steps`` of which are one unit: integers, which are floats.

        They lie inside ``steps`` times ``domain``, exactly, if the records lie inside their own: where no column is
        moved, these are those; and columns that are clipped each by itself stay in [-1, 1].
        """
        scale, shift = units / self.half, self.centre / self.half * steps
        if np.all(scale == 1) and not np.any(shift):
            return features
        if not self.clipped:
            return self.domain.integers((features * (units / steps) - self.centre) / self.half, steps)
        z = features * scale
        z -= shift
        np.rint(z, out=z)
        return np.clip(z, -steps, steps, out=z)


def checked_norm(norm: float) -> float:
    """Return ``norm`` if it is 1, 2 or infinity, or raise."""
    if norm not in NORMS:
        raise ValueError(f"norm must be 1, 2 or numpy.inf, got {norm!r}.")
    return norm


def owners(starts: np.ndarray) -> np.ndarray:
    """Return the row of each entry of sparse rows."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def sum_in_order(values: np.ndarray) -> np.ndarray:
    """Return the sum of each row, one value after the other: zeros between them change no bit of it."""
    count, d = values.shape
    if d * 4 > count:
        return np.bincount(np.tile(np.arange(count), d), weights=values.T.reshape(-1), minlength=count)
    total = values[:, 0].copy()
    for column in values.T[1:]:
        total += column
    return total
