"""How records are made comparable before their second moment is released: chosen from released moments alone."""

from dataclasses import dataclass

import numpy as np

from epsteps.budgets import Cost
from epsteps.methods.designs.matrix_noise import MatrixNoise, matrix_noise
from epsteps.methods.designs.moments import Moments

# A record may be so many times longer than the mean square before it is shortened: as much as the noise allows.
_SHORTEST, _LONGEST = 1.5, 5.0
# The relative error of the Hessian that is aimed at when records may be longer; up to which all columns are taken, or
# otherwise one by one.
_AIM, USABLE, _PARTIAL = 0.15, 0.75, 0.5
_LEAST_COLUMNS = 3
# A constant coordinate, whose products with the others are their means, has this share of the squared length.
CONSTANT = 1 / 3


@dataclass(frozen=True, eq=False)
class Whitening:
    """Each record is (u - mean) x weights on these columns, shortened to a squared length of at most ``length``.

    A constant coordinate √(length/3) is added, so that second moments hold means, too.
    """

    columns: np.ndarray
    mean: np.ndarray
    weights: np.ndarray
    length: float

    @property
    def constant(self) -> float:
        """The constant coordinate."""
        return float(np.sqrt(CONSTANT * self.length))

    @property
    def whole(self) -> float:
        """Largest squared length with the constant coordinate."""
        return (1 + CONSTANT) * self.length

    def noise(self, kind: type[Cost], n: int, cost: float) -> MatrixNoise:
        """Return the noise of the second moment's release."""
        return matrix_noise(kind, len(self.columns) + 1, self.whole, n, cost)


def spreads(variance: np.ndarray, curvature: float, ridge: float) -> np.ndarray:
    """Return the variances of the columns once they are divided by the Hessian's diagonal."""
    return variance / (curvature * variance + ridge)


def error_of(kind: type[Cost], k: int, spread: float, curvature: float, n: int, cost: float) -> float:
    """Return the predicted error of the Hessian, relative to itself, for k columns of this spread together."""
    length = (1 + CONSTANT) * _SHORTEST * spread
    return curvature * matrix_noise(kind, k, length, n, cost).edge


def whitening_of(
    moments: Moments, kind: type[Cost], curvature: float, ridge: float, n: int, cost: float
) -> Whitening | None:
    """Choose columns, weights and the longest record: all columns if noise allows, else those of the largest spread.

    None if not even three columns can be had at this cost, of so many.
    """
    spread = spreads(moments.variance, curvature, ridge)
    order = np.argsort(-spread, kind="stable")
    sums = np.cumsum(spread[order])
    errors = np.array([error_of(kind, k, float(total), curvature, n, cost) for k, total in enumerate(sums, start=1)])
    k = len(order) if errors[-1] <= USABLE else int(np.sum(errors <= _PARTIAL))
    if k < min(_LEAST_COLUMNS, len(order)):
        return None
    chosen = np.sort(order[:k])
    total = float(spread[chosen].sum())
    factor = np.clip(_SHORTEST * _AIM / error_of(kind, k, total, curvature, n, cost), _SHORTEST, _LONGEST)
    weights = 1 / np.sqrt(curvature * moments.variance[chosen] + ridge)
    return Whitening(chosen, moments.mean[chosen], weights, float(factor) * total)
