"""Pure noise: density ~ exp(-|w|/b) for a norm of the whole vector."""

from dataclasses import dataclass

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets.costs import Cost, Epsilon
from epsteps.budgets.mechanisms import subsampled
from epsteps.budgets.mechanisms.weights import checked_weights
from epsteps.problem import validate
from epsteps.problem.bodies import Body, Covariance
from epsteps.problem.hulls import Hull, HullCovariance
from epsteps.problem.problem import BODY, Problem
from epsteps.problem.sampling import Sampling

_NORMS: dict[str, float | str] = {"laplace": 1, "l2": 2, "linf": BODY, "hull": BODY, "blocks": BODY}
NAMES = tuple(_NORMS)


@dataclass(frozen=True)
class KNorm:
    """The K-norm mechanism (Hardt, Talwar 2010; Awan, Slavković 2021): density ~ exp(-|w|/b) for the norm |w|.

    "laplace" is the L1 norm, independent noise of variance 2b² on each coordinate; "l2" the Euclidean norm; "linf" the
    largest coordinate, "hull" the body that gradients of the declared domain fill, and "blocks" a product of simpler
    ones around that body, the last three in the domain's units.

    Formal guarantee: added to a value that neighbours move by at most s in that norm it has privacy loss at most s/b:
    |w - v| <= |w| + |v| by the triangle inequality, and shifted densities have the same normaliser. (Where a hull has
    signed coordinates besides one-hot blocks its density is another one, whose logarithm changes no faster.) On the
    mean of a secret sample the loss is amplified as ``Sampling`` says. The paper's published code draws Laplace noise
    of scale b/√2 instead, and so spends √2 times its epsilon or more.

    The variance falls as 1/epsilon², so that full-batch steps with error weights a_t are best given
    epsilon_t ~ a_t^(1/3).
    """

    name: str

    def __post_init__(self) -> None:
        validate.choice("name", self.name, NAMES)

    @property
    def norm(self) -> float | str:
        """Norm in which the sensitivity is needed."""
        return _NORMS[self.name]

    @property
    def kind(self) -> type[Cost]:
        """Costs are epsilons."""
        return Epsilon

    @property
    def unit(self) -> str:
        """The name of the costs."""
        return self.kind.unit

    def shape(self, problem: Problem) -> Body | Hull | None:
        """Return the body that the noise is shaped like, if it has one."""
        if self.name == "linf":
            return problem.cube
        if self.name == "blocks":
            return problem.hull
        return problem.exact_hull if self.name == "hull" else None

    def covers(self, problem: Problem) -> bool:
        """Whether there is such noise for the problem: an L2 ball has no hull of this kind, "l2" fits it."""
        return self.name not in ("hull", "blocks") or problem.hull is not None

    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the epsilon of each step."""
        return sampling.amplified_epsilon(sensitivity / (sampling.m * np.asarray(scales, dtype=float)))

    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the scale b at which each step has its epsilon."""
        return sensitivity / (sampling.m * sampling.base_epsilon(costs))

    def half_power(self, scales: np.ndarray | float, problem: Problem) -> np.ndarray:
        """Return half of E|w|²: d b² for Laplace noise, d (d + 1) b²/2 for the Euclidean norm."""
        covariance, units = self.covariance(problem)
        return 0.5 * covariance.trace(units) * np.asarray(scales, dtype=float) ** 2

    def covariance(self, problem: Problem) -> tuple[Covariance | HullCovariance, np.ndarray]:
        """Return the covariance of noise of scale 1, and the units that it is in."""
        d, shape = problem.dimension, self.shape(problem)
        if shape is not None:
            return shape.covariance, problem.units
        return Covariance(np.full(d, 2.0 if self.norm == 1 else d + 1.0)), np.ones(d)

    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the best epsilons: in closed form for full batches, by the convex dual when records are sampled."""
        weights = checked_weights(weights)
        if sampling.is_full:
            shares = np.cbrt(weights / weights.max())
            return total * shares / shares.sum()
        return subsampled.split(weights, total, sampling)

    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t b_t²`` after T steps, for every T; sensitivity 1."""
        if allocation == "uniform":
            T = np.arange(1, len(prediction) + 1)
            noise = prediction.weight_sums(1.0) / sampling.base_epsilon(total / T) ** 2
        elif sampling.is_full:
            noise = prediction.weight_sums(1 / 3) ** 3 / total**2
        else:
            noise = subsampled.noise_by_horizon(prediction, total, sampling)
        return noise / sampling.m**2
