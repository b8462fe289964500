"""How an audit tells outputs on two datasets apart: by the likelihood ratio of the noise that the plan names."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.auditing import confidence
from epsteps.budgets.mechanisms import Mechanism
from epsteps.noise import Source
from epsteps.problem.problem import Problem

# Distances of the two centres, in scales of the noise: for these, a lower bound is nearest to the truth.
_DISTANCE = {"laplace": 2.0, "gaussian": 3.0, "ellipsoid": 3.0}
# Noise of other norms is told apart with this error, at a distance that is found by drawing ideal noise.
_ERROR = 0.15
_DRAWS, _SEED = 2**16, 20_240_101
# Chance that the drawn ideal noise misleads about its own errors.
_LEVEL = 1e-7
# Ratios within this share of the largest one are no evidence: they are rounding.
_DOUBT = 1e-4


@dataclass(frozen=True, eq=False)
class Attack:
    """The test of one output: noise of a mechanism at one of two centres, which differ in the direction of ``change``.

    Vectors are in scales of the noise, and in its units if it has a shape.
    """

    mechanism: Mechanism
    problem: Problem
    change: np.ndarray

    @cached_property
    def units(self) -> np.ndarray:
        """Real size of a unit of each coordinate of noise of scale 1."""
        return self.mechanism.units(self.problem)

    @cached_property
    def distance(self) -> float:
        """How far the centres should be apart, in the noise's norm."""
        known = _DISTANCE.get(self.mechanism.name)
        return self._distance_with_error(_ERROR) if known is None else known

    def scores(self, outputs: np.ndarray, away: np.ndarray) -> np.ndarray:
        """Return the logarithms of the likelihood ratios (first over second) of outputs, the second centre is away."""
        if self.mechanism.unit == "rho":
            direction = self._precision @ away
            return away @ direction / 2 - direction @ outputs
        return self._norm(outputs - away[:, None]) - self._norm(outputs)

    def doubt(self, away: np.ndarray) -> float:
        """Return how large a score must be to count; several steps have one row each."""
        return 0.0 if self.mechanism.unit == "rho" else _DOUBT * float(np.max(self._norm(away.T)))

    def nearest(self, errors: int, trials: int, level: float) -> float:
        """Bound from below how far the centres are apart, given so many errors; wrong with chance ``level`` at most."""
        return self._distance_with_error(confidence.upper(errors, trials, level))

    def _distance_with_error(self, error: float) -> float:
        """Return the smallest distance at which ideal noise has at most this error, or less."""
        low, high = 0.0, 1.0
        while self._least_error(high) > error and high < 1e3:
            low, high = high, 2 * high
        for _ in range(14):
            middle = (low + high) / 2
            low, high = (middle, high) if self._least_error(middle) > error else (low, middle)
        return low

    def _least_error(self, distance: float) -> float:
        """Bound from below how often ideal noise at this distance is taken for the other's."""
        away = distance * self._direction
        count = int(np.sum(self.scores(self._ideal, away) < self.doubt(away[None, :])))
        return confidence.lower(count, _DRAWS, _LEVEL)

    @cached_property
    def _direction(self) -> np.ndarray:
        change = self.change / self.units
        return change / self._norm(change)

    @cached_property
    def _ideal(self) -> np.ndarray:
        """Float noise of scale 1, the same in every audit: it is compared with, and protects nothing."""
        shape = self.mechanism.shape(self.problem)
        return Source(_SEED).draw(self.mechanism, 1.0, (self.problem.dimension, _DRAWS), shape)

    @cached_property
    def _precision(self) -> np.ndarray:
        """The inverse of the covariance of noise of scale 1."""
        covariance, _ = self.mechanism.covariance(self.problem)
        return np.linalg.inv(covariance.matrix)

    def _norm(self, z: np.ndarray) -> np.ndarray:
        return self.mechanism.shape(self.problem).gauge(z)
