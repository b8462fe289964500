"""What dask workers do: they read partitions of the records, keep them in memory, and answer with sums alone."""

import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from epsteps.data import engine as engines
from epsteps.data.engine import Engine, SelfTestError
from epsteps.problem.problem import Problem
from epsteps.problem.validate import MissingExtraError

# Answers that a worker adds up at a time.
FAN = 16

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Partition:
    """Where a worker finds ``rows`` consecutive records: ``read(*blocks)`` returns features and targets there.

    ``blocks`` are dask's delayed objects, which ``read`` gets computed.
    """

    rows: int
    read: Callable[..., Arrays]
    blocks: tuple[Any, ...] = ()


class PartitionError(ValueError):
    """A part of the records does not have the declared structure, or could not be read; it never quotes a record."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index

    def __reduce__(self) -> tuple:
        return PartitionError, (str(self), self.index)


class Part:
    """Engines over the records of some partitions, one after another, in the memory of a worker."""

    def __init__(self, counts: list[int], engines: list[Engine], size: int) -> None:
        self.counts, self.engines, self._size = counts, engines, size

    def __sizeof__(self) -> int:
        return self._size  # dask leaves large objects where they are, and moves the small ones to them

    def pieces(self, rows: np.ndarray | None) -> list[tuple[Engine, tuple[np.ndarray, ...], int]]:
        """Return engines with those of their records that are asked for, () for all, and how many these are."""
        if rows is None:
            return [(engine, (), count) for engine, count in zip(self.engines, self.counts, strict=True)]
        pieces, low = [], 0
        for engine, count in zip(self.engines, self.counts, strict=True):
            own = rows if len(self.counts) == 1 else rows[(rows >= low) & (rows < low + count)] - low
            pieces.append((engine, (own,), len(own)))
            low += count
        return [piece for piece in pieces if piece[2]] or pieces[:1]


class Refused:
    """Stands for a part that could not be made, and says why.

    It is a value and not an exception: of a task that raises, dask logs the arguments, records included.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error


@np.errstate(all="ignore")  # a warning would tell something about a record
def make_part(
    problem: Problem, name: str, exact: bool, index: int, rows: int, read: Callable[..., Arrays], *blocks: Any
) -> Part | Refused:
    """Return the engine's exact sums, or else its float means, over the records that ``read`` finds."""
    try:
        features, targets = read(*blocks)
        if features.shape != (rows, problem.d) or targets.shape != (rows,):
            raise PartitionError(
                f"partition {index} must have {rows} rows of {problem.d} features and a target each, got shapes "
                f"{features.shape} and {targets.shape}. Declare the chunks or columns as they are.",
                index,
            )
        engine = engines.chosen(name, problem.loss, features.size)(problem, features, problem.loss.encode(targets))
        return Part([rows], [engine.only(exact=exact)], size=4 * rows * (problem.width + 1))
    except (PartitionError, MissingExtraError, SelfTestError) as error:
        return Refused(error)
    except Exception as error:  # a reader's own words may quote a record: its kind has to do
        return Refused(unreadable(error, index))


def unreadable(error: BaseException, index: int | None = None) -> PartitionError:
    """Return an error that says which part could not be read, and no more of why than the kind of the error."""
    which = "a partition" if index is None else f"partition {index}"
    return PartitionError(
        f"{which} of the records could not be read by a worker ({type(error).__name__}). Read it there by itself to "
        "see why; every worker needs the files, epsteps and what its engine imports.",
        index,
    )


def hold(parts: Sequence[Part | Refused]) -> Part | Refused:
    """Return parts as one, which answers a question in one task; or the first that could not be made."""
    counts, engines, size = [], [], 0
    for part in parts:
        if isinstance(part, Refused):
            return part
        counts, engines, size = counts + part.counts, engines + part.engines, size + sys.getsizeof(part)
    return Part(counts, engines, size)


def trouble(part: Part | Refused) -> Exception | None:
    """Return why there is no part, if there is none."""
    return part.error if isinstance(part, Refused) else None


@dataclass(frozen=True, eq=False)
class Runs:
    """Rows that lie side by side, as the first of each run and how many there are."""

    first: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> "Runs | np.ndarray":
        """Return rows as runs where these take less space."""
        starts = np.concatenate([[0], np.flatnonzero(np.diff(rows) != 1) + 1])
        return cls(rows[starts], np.diff(starts, append=len(rows))) if 2 * len(starts) < len(rows) else rows

    @property
    def rows(self) -> np.ndarray:
        """The rows themselves."""
        before = np.cumsum(self.length) - self.length
        return np.repeat(self.first - before, self.length) + np.arange(self.length.sum())


@dataclass(frozen=True, eq=False)
class Question:
    """What every part is asked: which answer of its engines, how answers are added, and the arguments, pickled.

    A mean is ``weighted``: it counts as often as it has records.
    """

    what: str
    add: Callable[[Sequence[np.ndarray], int], np.ndarray]
    weighted: bool
    arguments: bytes


@np.errstate(all="ignore")  # a warning would tell something about a record
def answer(part: Part | Refused, question: Question, rows: np.ndarray | Runs | None) -> np.ndarray:
    """Return a part's sum. Engines are tested in this process, to which dask may have moved the part."""
    if isinstance(part, Refused):
        raise part.error
    arguments, answers, total = pickle.loads(question.arguments), [], 0
    for engine, own, count in part.pieces(rows.rows if isinstance(rows, Runs) else rows):
        found = getattr(engine, question.what)(*arguments, *own)
        answers.append(found * count if question.weighted else found)
        total += count
        if len(answers) == FAN:  # no more of them are in memory at a time
            answers = [question.add(answers, total)]
    return question.add(answers, total)


def add(sums: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Add float sums of ``count`` records in all."""
    return np.sum(sums, axis=0)
