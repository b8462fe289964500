"""The loss for three or more declared classes: one margin, and one block of coefficients, for each."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp, softmax

from epsteps.problem import levels, saturations
from epsteps.problem.losses import SLOPE_SHARE, Labels, Loss, different
from epsteps.problem.rounding import up
from epsteps.problem.saturations import Saturation


@dataclass(frozen=True)
class Softmax(Loss, name="Softmax", proved=True):
    """Multinomial logistic loss ``ln(sum_k exp(m_k)) - m_y`` for three or more declared classes.

    x consists of one block of coefficients after the other, a block for each class; the margins are the blocks'. With
    p = softmax(m), a record's gradient is (p - e_y) in the classes times u in the features. The loss does not change
    when all blocks move together: the ridge alone keeps them at sum 0. A label that equals no class counts as the
    first one.

    >>> Softmax(classes=("a", "b", "c")).encode(np.array(["c", "a", "?", "b"]))
    array([2., 0., 0., 1.])
    """

    classes: tuple[object, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", different(self.classes, 3))

    @property
    def targets(self) -> Labels:
        """The classes."""
        return Labels(self.classes)

    @property
    def outputs(self) -> int:
        """Return the number of classes."""
        return len(self.classes)

    @property
    def slope(self) -> float:
        """Return sup |p_k - e_y| = 1, of each derivative."""
        return 1.0

    @property
    def curvature(self) -> float:
        """Return 1/2, the largest eigenvalue of diag(p) - pp' (Böhning 1992)."""
        return 0.5

    @property
    def value_at_zero(self) -> float:
        """Return ln k."""
        return math.log(self.outputs)

    @property
    def saturation(self) -> Saturation:
        """Its own: that of k classes."""
        return saturations.Softmax(len(self.classes))

    def joint_slope(self, norm: float) -> float:
        """Bound the norm of p - e_y where its entry y is at least -1: 2, √2, or 1 for the norms 1, 2 and infinity.

        The other entries are not negative and add up to what entry y lacks.
        """
        return 2 ** (1 / norm)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return the largest 1 - p_y, σ(2 reach + ln(k - 1)): class y at -reach, all others at reach."""
        return np.minimum(up(expit(2 * reach + math.log(self.outputs - 1)), SLOPE_SHARE), 1.0)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the losses; margins have the classes along their second axis."""
        own = np.take_along_axis(margin, target.astype(int), axis=1)
        return (logsumexp(margin, axis=1) - own[:, 0]).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return p - e_y, with the classes along the second axis."""
        return softmax(margin, axis=1) - (levels.places_like(margin) == target)

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return diag(p) - pp' for each record, for margins at one point."""
        p = softmax(margin, axis=1)
        return p[:, :, None] * (np.eye(self.outputs) - p[:, None, :])

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivatives as integers, the same on every machine, whose positive part is at most the bound."""
        return levels.softmax(margin, target, bound)
