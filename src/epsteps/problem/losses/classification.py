"""Losses for two declared classes, encoded as z = -1 and z = +1."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from epsteps.problem import levels, validate
from epsteps.problem.losses import encoding

# A slope's bound is rounded up by this much: a few units in the last place.
_UPWARD = 1 + 2.0**-50


@dataclass(frozen=True)
class Logistic:
    """Logistic loss ``ln(1 + exp(-z m))`` for two declared classes, encoded as z = -1 and z = +1.

    A label that equals neither class counts as the first one.

    >>> Logistic(classes=("no", "yes")).encode(np.array(["yes", "no", "maybe"]))
    array([ 1., -1., -1.])
    """

    # The compiled code that engines have for it.
    kernel = "logistic"

    classes: tuple[object, object] = (-1, 1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", encoding.different(self.classes, 2, 2))

    @property
    def outputs(self) -> int:
        """Return 1."""
        return 1

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

    def joint_slope(self, norm: float) -> float:
        """Return 1: there is one derivative."""
        return 1.0

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return σ(reach): the slope is σ(-z m), and z m >= -reach."""
        return expit(reach)

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return +1 for the second class and -1 for everything else."""
        return encoding.signs(self.classes, y)

    def outside(self, y: np.ndarray) -> int:
        """Count the labels that are neither class."""
        return encoding.unknown(self.classes, y)

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

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return σ(m) σ(-m)."""
        return expit(margin) * expit(-margin)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, in steps of bound/2^20 and never beyond the bound."""
        return levels.logistic(margin, target, bound)


@dataclass(frozen=True)
class SmoothedHinge:
    """Hinge loss with a smooth corner, ``w ln(1 + exp((1 - z m)/w))``: of a support vector machine that has a gradient.

    It lies between the hinge ``max(0, 1 - z m)`` and that plus w ln 2 (Lee, Mangasarian 2001). A label that equals
    neither class counts as the first one.

    Parameters
    ----------
    classes : pair of labels
        The declared classes, encoded as z = -1 and z = +1.
    width : float
        The corner's width w. The narrower, the closer to the hinge, and the larger the curvature 1/(4w).

    >>> loss = SmoothedHinge(width=0.5)
    >>> loss.slope, loss.curvature
    (1.0, 0.5)
    """

    classes: tuple[object, object] = (-1, 1)
    width: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", encoding.different(self.classes, 2, 2))
        object.__setattr__(self, "width", validate.size("width", self.width, *encoding.SIZES))

    @property
    def outputs(self) -> int:
        """Return 1."""
        return 1

    @property
    def slope(self) -> float:
        """Return sup σ((1 - z m)/w) = 1."""
        return 1.0

    @property
    def typical_slope(self) -> float:
        """Return the slope."""
        return self.slope

    @property
    def curvature(self) -> float:
        """Return 1/(4w)."""
        return 0.25 / self.width

    @property
    def value_at_zero(self) -> float:
        """Return w ln(1 + exp(1/w))."""
        return float(self.width * np.logaddexp(0, 1 / self.width))

    def joint_slope(self, norm: float) -> float:
        """Return 1: there is one derivative."""
        return 1.0

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return σ((1 + reach)/w): the slope is σ((1 - z m)/w), and z m >= -reach."""
        return np.minimum(expit((1 + reach) / self.width) * _UPWARD, 1.0)

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return +1 for the second class and -1 for everything else."""
        return encoding.signs(self.classes, y)

    def outside(self, y: np.ndarray) -> int:
        """Count the labels that are neither class."""
        return encoding.unknown(self.classes, y)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the losses."""
        return self.width * np.logaddexp(0, (1 - target * margin) / self.width).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return -z σ((1 - z m)/w)."""
        return -target * expit((1 - target * margin) / self.width)

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return σ(t) σ(-t)/w with t = (1 - z m)/w."""
        distance = (1 - target * margin) / self.width
        return expit(distance) * expit(-distance) / self.width

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, in steps of bound/2^20 and never beyond the bound."""
        return levels.smoothed_hinge(margin, target, self.width, bound)
