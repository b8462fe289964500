"""Gaussian noise: zero-concentrated privacy per step, over all records."""

from dataclasses import dataclass

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets.costs import Cost, Rho
from epsteps.budgets.mechanisms.weights import checked_weights
from epsteps.problem import validate
from epsteps.problem.bodies import Covariance, Ellipsoid
from epsteps.problem.problem import BODY, Problem
from epsteps.problem.sampling import Sampling

NAMES = ("gaussian", "ellipsoid")


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise: of standard deviation σ on each coordinate, or shaped like an ellipsoid.

    "ellipsoid" has the covariance σ²Σ, in the domain's units, where z'Σ⁻¹z <= 1 holds the body that gradients of the
    domain fill (``Body.ellipsoid``): less noise than a ball needs around the same body.

    Formal guarantee: added to a value of sensitivity s (in L2, or in √z'Σ⁻¹z) it is ρ-zCDP with ρ = s²/(2σ²) (Bun,
    Steinke 2016), and composed steps are exactly √(2 sum ρ)-Gaussian-DP (Dong, Roth, Su 2022). The variance falls as
    1/ρ, so that steps with error weights a_t are best given ρ_t ~ a_t^(1/2). Sampling is refused: no closed form is
    known for samples of fixed size.
    """

    name: str = "gaussian"

    def __post_init__(self) -> None:
        validate.choice("name", self.name, NAMES)

    @property
    def norm(self) -> float | str:
        """Norm in which the sensitivity is needed."""
        return 2 if self.name == "gaussian" else BODY

    @property
    def kind(self) -> type[Cost]:
        """Costs are rhos of concentrated privacy."""
        return Rho

    @property
    def unit(self) -> str:
        """The name of the costs."""
        return self.kind.unit

    def shape(self, problem: Problem) -> Ellipsoid | None:
        """Return the ellipsoid that the noise is shaped like, if it has one."""
        if self.name == "gaussian" or problem.hull is None:
            return None
        spread, _ = problem.guessed_curvature
        return problem.hull.ellipsoid(problem.units**2 / spread)

    def covers(self, problem: Problem) -> bool:
        """Whether there is such noise for the problem: an L2 ball is its own ellipsoid, "gaussian" fits it."""
        return self.name == "gaussian" or problem.hull is not None

    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the rho of each step."""
        self._require_full(sampling)
        return 0.5 * (sensitivity / (sampling.m * np.asarray(scales, dtype=float))) ** 2

    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the standard deviation at which each step has its rho."""
        self._require_full(sampling)
        return sensitivity / (sampling.m * np.sqrt(2 * np.asarray(costs, dtype=float)))

    def half_power(self, scales: np.ndarray | float, problem: Problem) -> np.ndarray:
        """Return half of E|w|²: d σ²/2 for independent noise."""
        covariance, units = self.covariance(problem)
        return 0.5 * covariance.trace(units) * np.asarray(scales, dtype=float) ** 2

    def covariance(self, problem: Problem) -> tuple[Covariance, np.ndarray]:
        """Return the covariance of noise of scale 1, and the units that it is in."""
        shape = self.shape(problem)
        if shape is not None:
            return shape.covariance, problem.units
        return Covariance(np.ones(problem.dimension)), np.ones(problem.dimension)

    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the best rhos, proportional to √weights."""
        weights = checked_weights(weights)
        self._require_full(sampling)
        shares = np.sqrt(weights / weights.max())
        return total * shares / shares.sum()

    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t σ_t²`` after T steps, for every T; sensitivity 1."""
        self._require_full(sampling)
        if allocation == "uniform":
            noise = prediction.weight_sums(1.0) * np.arange(1, len(prediction) + 1)
        else:
            noise = prediction.weight_sums(1 / 2) ** 2
        return noise / (2 * total * sampling.m**2)

    @staticmethod
    def _require_full(sampling: Sampling) -> None:
        if not sampling.is_full:
            raise ValueError(
                f"Gaussian noise reads all n={sampling.n} records, got batch={sampling.m}: its amplification by "
                "sampling without replacement is not accounted for. Use batch=None, or mechanism='laplace'."
            )
