"""What the library asks of a loss."""

from typing import Protocol

import numpy as np


class Loss(Protocol):
    """What the library asks of a loss.

    Margins and targets have one record per row. A loss with several outputs gets its margins along the second axis,
    where targets have a single entry, and returns one derivative for each.
    """

    @property
    def outputs(self) -> int:
        """Number of margins of a record: 1, or one for each class."""
        ...

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
        """Largest second derivative in the margin; of several, the largest eigenvalue of their matrix."""
        ...

    @property
    def value_at_zero(self) -> float:
        """Largest loss of a record at margin 0: a public bound on F(0) - F*, as the loss is not negative."""
        ...

    def joint_slope(self, norm: float) -> float:
        """Bound the norm (1, 2 or infinity) of a record's derivatives together where each is at most 1: 1 for one."""
        ...

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Bound each absolute derivative over all targets and all margins within ``reach`` of 0."""
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

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the second derivative in the margin; a matrix for each record where there are several margins."""
        ...

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, in steps of bound/2^20 and never beyond the bound: for private sums.

        Several derivatives of a record keep within ``joint_slope`` together, too.
        """
        ...
