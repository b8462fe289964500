"""Losses for numeric targets, declared to lie in [-bound, bound]."""

import math
from dataclasses import dataclass

import numpy as np

from epsteps.problem import levels, validate
from epsteps.problem.losses import encoding

# A slope's bound is rounded up by this much: a few units in the last place.
_UPWARD = 1 + 2.0**-50


@dataclass(frozen=True)
class Squared:
    """Squared loss ``(m - y)²/2`` for targets declared to lie in [-bound, bound].

    Its slope has no bound over all margins, so a plan with it scales the noise of each step by the
    sensitivity at that step's public point (``Problem.sensitivity_at``).

    >>> Squared(bound=2.0).encode(np.array([0.5, 7.0, np.nan]))
    array([0.5, 2. , 0. ])
    """

    # The compiled code that engines have for it.
    kernel = "squared"

    bound: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", validate.size("bound", self.bound, *encoding.SIZES))

    @property
    def outputs(self) -> int:
        """Return 1."""
        return 1

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

    def joint_slope(self, norm: float) -> float:
        """Return 1: there is one derivative."""
        return 1.0

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return reach + bound, the largest residual."""
        return reach + self.bound

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Clip the targets into the declared range; NaN becomes 0."""
        return encoding.within(self.bound, y)

    def outside(self, y: np.ndarray) -> int:
        """Count the targets outside the declared range, NaN included."""
        return encoding.beyond(self.bound, y)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return half the sum of squared residuals."""
        return 0.5 * np.square(margin - target).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the residual."""
        return margin - target

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return 1."""
        return np.ones(margin.shape)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the residual as integers, in steps of bound/2^20 and never beyond the bound."""
        return levels.residual(margin, target, bound)


@dataclass(frozen=True)
class PseudoHuber:
    """Pseudo-Huber loss ``c² (sqrt(1 + (r/c)²) - 1)`` of the residual r = m - y, for targets in [-bound, bound].

    Squared where residuals are small against c, absolute where they are large (Charbonnier et al. 1997), so that its
    slope has a bound over all margins: c.

    Parameters
    ----------
    bound : float
        Targets are declared to lie in [-bound, bound].
    c : float
        The residual around which the loss turns from squared to absolute, and the largest slope.

    >>> loss = PseudoHuber(bound=5.0, c=0.1)
    >>> loss.slope, loss.curvature
    (0.1, 1.0)
    """

    bound: float = 1.0
    c: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", validate.size("bound", self.bound, *encoding.SIZES))
        object.__setattr__(self, "c", validate.size("c", self.c, *encoding.SIZES))

    @property
    def outputs(self) -> int:
        """Return 1."""
        return 1

    @property
    def slope(self) -> float:
        """Return c."""
        return self.c

    @property
    def curvature(self) -> float:
        """Return 1."""
        return 1.0

    @property
    def typical_slope(self) -> float:
        """Return the slope."""
        return self.slope

    @property
    def value_at_zero(self) -> float:
        """Return the loss of the residual ``bound``."""
        return float(self.total(np.zeros(1), np.full(1, self.bound)))

    def joint_slope(self, norm: float) -> float:
        """Return 1: there is one derivative."""
        return 1.0

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return the slope of the largest residual, reach + bound."""
        return np.minimum(self.c / np.hypot(1, self.c / (reach + self.bound)) * _UPWARD, self.c)

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Clip the targets into the declared range; NaN becomes 0."""
        return encoding.within(self.bound, y)

    def outside(self, y: np.ndarray) -> int:
        """Count the targets outside the declared range, NaN included."""
        return encoding.beyond(self.bound, y)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the losses, written as r²/(1 + sqrt(1 + (r/c)²)): no difference of nearly equal numbers."""
        size = np.abs(margin - target)
        return (size * (size / (1 + np.hypot(1, size / self.c)))).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return r/sqrt(1 + (r/c)²), never more than c."""
        ratio = (margin - target) / self.c
        return self.c * (ratio / np.hypot(1, ratio))

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return (1 + (r/c)²)^(-3/2)."""
        return np.hypot(1, (margin - target) / self.c) ** -3

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, in steps of bound/2^20 and never beyond the bound."""
        return levels.pseudo_huber(margin, target, self.c, bound)
