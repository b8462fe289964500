"""Losses of a linear model: value and derivative in the margin, and their public constants.

A loss sees a record through its margin ``u'x`` and its target. What the guarantee needs of it are two
constants, the steepest slope and the largest curvature, and the slope's certified bound when margins are
known to stay within a reach. A target outside what was declared is mapped inside, never reported.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from epsteps import _validate, levels


class Loss(Protocol):
    """What the library asks of a loss."""

    @property
    def slope(self) -> float:
        """Largest absolute derivative over all margins and targets (``inf`` when there is none)."""
        ...

    @property
    def typical_slope(self) -> float:
        """The slope that error predictions assume: finite, and never used for privacy."""
        ...

    @property
    def curvature(self) -> float:
        """Largest second derivative in the margin."""
        ...

    @property
    def value_at_zero(self) -> float:
        """Largest loss of a record at margin 0: a public bound on F(0) - F*, as the loss is not negative."""
        ...

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Bound the absolute derivative over all targets and all margins within ``reach`` of 0."""
        ...

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return numeric targets, those outside the declaration mapped inside."""
        ...

    def outside(self, y: np.ndarray) -> int:
        """Count the targets that ``encode`` would change. Reads data: for its holder's eyes."""
        ...

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the records' losses, along the first axis."""
        ...

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the derivative of each record's loss in its margin."""
        ...

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, in steps of bound/2^20 and never beyond the bound: for private sums."""
        ...


@dataclass(frozen=True)
class Logistic:
    """Logistic loss ``ln(1 + exp(-z m))`` for two declared classes, encoded as z = -1 and z = +1.

    A label that equals neither class counts as the first one.

    >>> Logistic(classes=("no", "yes")).encode(np.array(["yes", "no", "maybe"]))
    array([ 1., -1., -1.])
    """

    classes: tuple[object, object] = (-1, 1)

    def __post_init__(self) -> None:
        classes = tuple(self.classes)
        if len(classes) != 2 or classes[0] == classes[1]:
            raise ValueError(f"classes must be two different labels, got {self.classes!r}.")
        object.__setattr__(self, "classes", classes)

    @property
    def slope(self) -> float:
        """Return sup σ(-z m) = 1."""
        return 1.0

    @property
    def typical_slope(self) -> float:
        """Return the slope."""
        return self.slope

    @property
    def curvature(self) -> float:
        """Return sup σ(m) σ(-m) = 1/4."""
        return 0.25

    @property
    def value_at_zero(self) -> float:
        """Return ln 2."""
        return math.log(2)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return σ(reach): the slope is σ(-z m), and z m >= -reach."""
        return expit(reach)

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return +1 for the second class and -1 for everything else."""
        _require_kind("y", y, text=isinstance(self.classes[1], str))
        return np.where(y == self.classes[1], 1.0, -1.0)

    def outside(self, y: np.ndarray) -> int:
        """Count the labels that are neither class."""
        _require_kind("y", y, text=isinstance(self.classes[1], str))
        return int(np.sum((y != self.classes[0]) & (y != self.classes[1])))

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of ln(1 + exp(-z m)) = ln(1 + exp(-|m|)) + (|m| - z m)/2.

        The first terms are summed as the logarithm of a product: its factors lie in (1, 2], so that 512 of them cannot
        overflow, and one logarithm serves them all.
        """
        size = np.abs(margin)
        total = 0.5 * (size - target * margin).sum(axis=0)
        factors = 1.0 + np.exp(-size)
        for start in range(0, len(factors), 512):
            total = total + np.log(np.prod(factors[start : start + 512], axis=0))
        return total

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return -z σ(-z m), written as (tanh(m/2) - z)/2: one vectorised function, no overflow."""
        return 0.5 * (np.tanh(0.5 * margin) - target)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, in steps of bound/2^20 and never beyond the bound."""
        return levels.logistic(margin, target, bound)


@dataclass(frozen=True)
class Squared:
    """Squared loss ``(m - y)²/2`` for targets declared to lie in [-bound, bound].

    Its slope has no bound over all margins, so a plan with it scales the noise of each step by the
    sensitivity at that step's public point (``Problem.sensitivity_at``).

    >>> Squared(bound=2.0).encode(np.array([0.5, 7.0, np.nan]))
    array([0.5, 2. , 0. ])
    """

    bound: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _validate.positive("bound", self.bound))

    @property
    def slope(self) -> float:
        """Return infinity: residuals have no bound over all margins."""
        return math.inf

    @property
    def curvature(self) -> float:
        """Return 1."""
        return 1.0

    @property
    def typical_slope(self) -> float:
        """Return the slope when predictions stay in the declared range of the targets."""
        return 2 * self.bound

    @property
    def value_at_zero(self) -> float:
        """Return bound²/2."""
        return self.bound**2 / 2

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return reach + bound, the largest residual."""
        return reach + self.bound

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Clip the targets into the declared range; NaN becomes 0."""
        _require_kind("y", y, text=False)
        return np.clip(np.nan_to_num(y.astype(float), nan=0.0), -self.bound, self.bound)

    def outside(self, y: np.ndarray) -> int:
        """Count the targets outside the declared range, NaN included."""
        _require_kind("y", y, text=False)
        return int(np.sum(~(np.abs(y.astype(float)) <= self.bound)))

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return half the sum of squared residuals."""
        return 0.5 * np.square(margin - target).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the residual."""
        return margin - target

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the residual as integers, in steps of bound/2^20 and never beyond the bound."""
        return levels.residual(margin, target, bound)


def _require_kind(name: str, values: np.ndarray, *, text: bool) -> None:
    kinds, wanted = ("U", "text") if text else ("biuf", "numeric")
    if values.dtype.kind not in kinds:
        raise TypeError(f"{name} must be {wanted}, got dtype {values.dtype}. Convert it before.")
