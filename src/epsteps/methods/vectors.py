"""A record of least squares as one vector (1, features, target): centred and weighed by public numbers, in integers.

The sum of such a vector's outer products holds every sufficient statistic. Features that lie in [0, 1] come out half as
long once 1/2 is taken off, and the constant lets it be put back.
"""

import math
from dataclasses import dataclass

import numpy as np

from epsteps.problem.grid import STEPS
from epsteps.problem.problem import Problem

# A weight of 1 is this many integers, so that weights are rounded to 2 %.
_WEIGHT_STEPS = 32
# What the constant and the target add to the squared length of the features. Measured; the error is flat around it.
_CONSTANT_SHARE, _TARGET_SHARE = 0.1, 0.25


@dataclass(frozen=True)
class Vectors:
    """The vector a = weights x (2^20, u - centre, y) of each record, for features u and a target y in 2^20 steps.

    Parameters
    ----------
    problem : Problem
        The public facts.
    centre : tuple of int
        What is taken off each feature, in steps; 0 where the domain is a ball.
    weights : tuple of int
        Of the constant, of each feature, and of the target.
    """

    problem: Problem
    centre: tuple[int, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        d = self.problem.d
        for name, length in (("centre", d), ("weights", d + 2)):
            values = getattr(self, name)
            if len(values) != length or not all(isinstance(value, int) for value in values):
                raise ValueError(f"{name} must be {length} integers, got {values!r}.")
        if min(self.weights) < 1 or max(self.weights) > 2**20:
            raise ValueError(f"weights must lie between 1 and 2**20, got {self.weights!r}.")
        if max(map(abs, self.centre)) > STEPS or (self.problem.domain.is_centred and any(self.centre)):
            raise ValueError(f"centre must lie within the domain, and be 0 in a ball, got {self.centre!r}.")

    @property
    def size(self) -> int:
        """Length of a vector."""
        return self.problem.d + 2

    @property
    def square(self) -> int:
        """The largest squared L2 norm of a vector, in integers: exact."""
        constant, *features, target = self.weights
        longest = self.problem.domain.largest_square(self.centre, features, STEPS)
        return longest + STEPS**2 * (constant**2 + target**2)

    @property
    def slopes(self) -> np.ndarray:
        """The matrix T for which a record's prediction is a'Tp, for the weighed model p; a is in units of 2^20.

        One row for each entry of a, one column for each coordinate of x.
        """
        d, weights = self.problem.d, np.array(self.weights, dtype=float)
        slopes = np.zeros((d + 2, self.problem.width))
        slopes[1 : d + 1, :d] = np.eye(d)
        slopes[0, :d] = np.array(self.centre) / STEPS * weights[1:-1] / weights[0]
        slopes[0, d:] = 1.0
        return slopes

    @property
    def model_units(self) -> np.ndarray:
        """What the weighed model p is multiplied by, to give x."""
        constant, *features, _ = self.weights
        return np.append(features, [constant] * self.problem.intercept) / self.problem.units


def chosen_vectors(problem: Problem) -> Vectors:
    """Return vectors in which noise does little harm, from public numbers.

    Features are centred where they lie if they are spread evenly over the domain, and a feature of variance v there has
    the weight v^(-1/4): its share of the vectors' length is then balanced with the error that noise on it leads to.
    """
    mean, variance = problem.domain.even_moments(problem.d)
    units = problem.units[: problem.d]
    centre = np.rint(mean / units * STEPS).astype(int)
    relative = (variance / units**2) ** -0.25
    weights = np.maximum(np.rint(_WEIGHT_STEPS * relative / relative.min()), 1).astype(int)
    square = problem.domain.largest_square(centre.tolist(), weights.tolist(), STEPS) / STEPS**2
    constant, target = (max(1, round(math.sqrt(share * square))) for share in (_CONSTANT_SHARE, _TARGET_SHARE))
    if not problem.intercept and not centre.any():
        constant = 1  # nothing is put back
    return Vectors(problem, tuple(centre.tolist()), (constant, *weights.tolist(), target))
