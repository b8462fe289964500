"""Gaussian noise that is shaped like the gradients of features in [0, 1]: less along the diagonal's complement."""

import math
from typing import NamedTuple

import numpy as np

from epsteps.problem import validate


class BoxVariances(NamedTuple):
    """Variances of the noise along (1, ..., 1) and across it."""

    along: float
    across: float


def box_variances(d: int, curvature_along: float = 1.0, curvature_across: float = 1.0) -> BoxVariances:
    """Return the variances, at mu = 1, that make the noise seen through these public guesses of the curvature smallest.

    Formal guarantee: for features in [0, 1]^d and slopes of at most 1, every difference v of two gradients has
    v' Sigma⁻¹ v <= 1; divide by mu² for another mu. So ``Corners`` hold for linear models. For softmax, each class
    takes the same covariance.

    >>> [round(value, 9) for value in box_variances(2)]
    [8.0, 3.313708499]
    """
    validate.integer("d", d)
    validate.positive("curvature_along", curvature_along)
    validate.positive("curvature_across", curvature_across)
    stretch = 1 + math.sqrt(1 + (d - 1) * curvature_along / curvature_across)
    # The vertices of the differences are twice the indicators of k coordinates.
    k = np.arange(1, d + 1)
    largest = float(np.max(k - k**2 / d * (1 - 1 / stretch))) * (1 + 1e-12)
    return BoxVariances(4 * stretch * largest, 4 * largest)
