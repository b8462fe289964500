"""Noise mechanisms: what a step of noise costs, in which unit, and how a total of that unit is best split over steps.

Costs of one mechanism add up over the steps: epsilons for noise of a norm, rhos of concentrated privacy for Gaussian
noise. What the sum means is the budget's business.
"""

from typing import Protocol

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets.costs import Cost
from epsteps.budgets.mechanisms import gaussian, knorm
from epsteps.budgets.mechanisms.gaussian import Gaussian
from epsteps.budgets.mechanisms.knorm import KNorm
from epsteps.problem import validate
from epsteps.problem.bodies import Body, Covariance, Ellipsoid
from epsteps.problem.hulls import Hull, HullCovariance
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling


class Mechanism(Protocol):
    """What planning asks of a mechanism. ``sensitivity`` is one record's, in the mechanism's norm."""

    @property
    def name(self) -> str:
        """Name, which also selects the sampler."""
        ...

    @property
    def norm(self) -> float | str:
        """Norm in which the sensitivity is needed: 1, 2 or "body"."""
        ...

    @property
    def kind(self) -> type[Cost]:
        """What costs are counted in."""
        ...

    @property
    def unit(self) -> str:
        """The name of that currency."""
        ...

    def shape(self, problem: Problem) -> Body | Hull | Ellipsoid | None:
        """Return what the noise is shaped like, in the domain's units; None for noise of a usual norm."""
        ...

    def covers(self, problem: Problem) -> bool:
        """Whether there is such noise for the problem."""
        ...

    def covariance(self, problem: Problem) -> tuple[Covariance | HullCovariance, np.ndarray]:
        """Return the covariance of noise of scale 1, and the units that it is in."""
        ...

    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the costs of steps with noise of these scales on a mean of the sampled gradients."""
        ...

    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the scales at which steps have these costs."""
        ...

    def half_power(self, scales: np.ndarray | float, problem: Problem) -> np.ndarray:
        """Return half of E|w|², in real units."""
        ...

    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the costs with this total that make ``sum weights_t half_power_t`` smallest."""
        ...

    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t scale_t²`` after T steps, for every T; sensitivity 1."""
        ...


NAMES = (*knorm.NAMES, *gaussian.NAMES)


def named(name: str) -> Mechanism:
    """Return the mechanism of this name."""
    validate.choice("mechanism", name, NAMES)
    return KNorm(name) if name in knorm.NAMES else Gaussian(name)


def require_fit(mechanism: Mechanism, problem: Problem) -> None:
    """Raise unless there is such noise for the problem."""
    if not mechanism.covers(problem):
        raise ValueError(f"mechanism {mechanism.name!r} does not fit {problem.domain}: use 'auto'.")


def smallest(problem: Problem, kind: type[Cost]) -> Mechanism:
    """Return the noise whose public trace is smallest at the same cost, among those paid in this currency.

    The trace is weighed by a public guess of the curvature: noise along a steep direction does little harm.
    """
    found = [named(name) for name in NAMES]
    fitting = [mechanism for mechanism in found if mechanism.kind is kind and mechanism.covers(problem)]
    risks = [risk(noise, problem.typical_sensitivity(noise.norm), problem) for noise in fitting]
    # The first within a hair: shapes that are the same but for rounding go by their plainest name.
    return next(noise for noise, size in zip(fitting, risks, strict=True) if size <= min(risks) * (1 + 1e-9))


def risk(noise: Mechanism, scale: float, problem: Problem) -> float:
    """Return a public guess of E ½ w'H⁻¹w, the error that noise of this scale on a sum of gradients leads to."""
    covariance, units = noise.covariance(problem)
    return 0.5 * (scale / problem.n) ** 2 * covariance.weighed(units, *problem.guessed_curvature)


__all__ = ["NAMES", "Gaussian", "KNorm", "Mechanism", "named", "require_fit", "risk", "smallest"]
