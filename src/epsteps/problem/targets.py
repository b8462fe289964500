"""Targets as numbers: labels among declared classes, or values within a declared bound. Nothing in them raises.

A target outside what was declared is mapped inside, never reported.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

# Targets are kept in float32, and so are margins of classes: bounds and widths keep away from where it ends.
SIZES = (1e-30, 1e30)


class Targets(Protocol):
    """What targets are declared to be. Two declarations that are equal describe the same targets."""

    @property
    def largest(self) -> float:
        """The largest absolute target; 1 for labels, which have no unit."""
        ...

    @property
    def extremes(self) -> np.ndarray:
        """Two targets, as a data holder writes them, at which the slopes of a loss are furthest apart."""
        ...

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return numeric targets, those outside the declaration mapped inside."""
        ...

    def outside(self, y: np.ndarray) -> int:
        """Count the targets that ``encode`` would change. Reads data: for its holder's eyes."""
        ...


@dataclass(frozen=True)
class Labels:
    """Labels among declared classes: -1 and 1 for two of them, their places 0, 1, ... for more.

    A label that equals no class counts as the first one.

    >>> Labels(("no", "yes")).encode(np.array(["yes", "no", "maybe"]))
    array([ 1., -1., -1.])
    """

    classes: tuple[object, ...]

    @property
    def largest(self) -> float:
        """Return 1: labels have no unit."""
        return 1.0

    @property
    def extremes(self) -> np.ndarray:
        """The first two classes."""
        return np.array(self.classes[:2])

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return labels as numbers."""
        self._require_kind(y)
        if len(self.classes) == 2:
            return np.where(y == self.classes[1], 1.0, -1.0)
        places = np.zeros(y.shape)
        for place, label in enumerate(self.classes):
            places[y == label] = place
        return places

    def outside(self, y: np.ndarray) -> int:
        """Count the labels that are none of the classes. Reads data: for its holder's eyes."""
        self._require_kind(y)
        return int(np.sum(np.all([y != label for label in self.classes], axis=0)))

    def _require_kind(self, y: np.ndarray) -> None:
        _require_kind(y, text=isinstance(self.classes[1], str))


@dataclass(frozen=True)
class Range:
    """Numbers within [-bound, bound]; those outside are clipped, and NaN becomes 0."""

    bound: float

    @property
    def largest(self) -> float:
        """The largest absolute target."""
        return self.bound

    @property
    def extremes(self) -> np.ndarray:
        """The two ends of the range."""
        return np.array([-self.bound, self.bound])

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, y: np.ndarray) -> np.ndarray:
        """Clip targets into the range."""
        _require_kind(y, text=False)
        return np.clip(np.nan_to_num(y.astype(float), nan=0.0), -self.bound, self.bound)

    @np.errstate(all="ignore")
    def outside(self, y: np.ndarray) -> int:
        """Count the targets outside the range, NaN included. Reads data: for its holder's eyes."""
        _require_kind(y, text=False)
        return int(np.sum(~(np.abs(y.astype(float)) <= self.bound)))


def different(classes: Sequence[object], fewest: int, most: float = math.inf) -> tuple[object, ...]:
    """Return declared classes if they are different, and all text or none, or raise."""
    classes = tuple(classes)
    if not fewest <= len(classes) <= most or len(set(classes)) < len(classes):
        wanted = "two" if most == fewest else f"{fewest} or more"
        raise ValueError(f"classes must be {wanted} different labels, got {classes!r}.")
    if len({isinstance(label, str) for label in classes}) > 1:
        raise ValueError(f"classes must be all text or all numbers, got {classes!r}.")
    return classes


def _require_kind(y: np.ndarray, *, text: bool) -> None:
    kinds, wanted = ("U", "text") if text else ("biuf", "numeric")
    if y.dtype.kind not in kinds:
        raise TypeError(f"y must be {wanted}, got dtype {y.dtype}. Convert it before.")
