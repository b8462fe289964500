"""The objective whose minimum a release reads: the one source of what noise is scaled by, and of what is minimised."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from epsteps.methods import minima
from epsteps.problem import validate
from epsteps.problem.losses import Loss
from epsteps.problem.problem import Problem
from epsteps.problem.saturations import Saturation


@dataclass(frozen=True)
class Minimised:
    """``n F(x) = sum of loss(u_i'x, y_i) + n ridge/2 |x|²``, and every public number that bounds it.

    Plans take from here the sensitivity, kappa and radius that their noise is scaled by; the solver and its certificate
    take from here the loss and the ridge. So noise cannot be scaled for one function while the minimum of another is
    read, as of clipped gradients, which are the gradient of nothing. What has no such bounds is refused here, and
    nowhere else: a clip, a loss whose constants are not proved, as nothing holds slopes in a solver, a slope without a
    largest value, a ridge that is missing or below the problem's. The ridge acts on every coordinate, an intercept's
    and each output's included. A declared ``smoothness`` is dropped: it may be wrong, and ``L`` is certain.

    Parameters
    ----------
    problem : Problem
        The public facts, as declared.
    ridge : float
        Ridge of the objective that is minimised, at least the problem's.
    """

    problem: Problem
    ridge: float

    def __post_init__(self) -> None:
        if self.problem.clip is not None:
            raise ValueError(
                f"clipped gradients have no minimum: noise that is scaled for them does not protect that of the loss. "
                f"Leave clip out, or use method='descent', got clip={self.problem.clip!r}."
            )
        if not self.problem.loss.proved:
            raise ValueError(
                f"a minimum is bounded for the library's own losses only, got {type(self.problem.loss).__name__}: "
                "engines hold the slopes of others, but no solver does. Use method='descent', or epsteps.nesterov."
            )
        if not math.isfinite(self.problem.loss.slope):
            raise ValueError(
                f"a minimum with noise needs a loss with a bounded slope, got {type(self.problem.loss).__name__}. "
                "Use method='statistics', or PseudoHuber."
            )
        validate.positive("ridge", self.ridge)
        if self.ridge < self.problem.ridge:
            raise ValueError(f"ridge must be at least the problem's {self.problem.ridge!r}, got {self.ridge!r}.")

    @cached_property
    def stated(self) -> Problem:
        """The objective as a problem: with this ridge, and the smoothness of the domain, which is certain."""
        return replace(self.problem, ridge=self.ridge, smoothness=None)

    @property
    def loss(self) -> Loss:
        """The loss whose slopes are added up: of every record, as it is."""
        return self.problem.loss

    @property
    def n(self) -> int:
        """Number of records."""
        return self.problem.n

    @property
    def dimension(self) -> int:
        """Length of x."""
        return self.problem.dimension

    @property
    def L(self) -> float:
        """Smoothness of F: curvature x (largest L2 norm of a record)² + ridge. Never a declared one."""
        return self.stated.L

    @property
    def gradient_size(self) -> float:
        """Largest L2 norm of one record's loss gradient, at any x."""
        return float(self.stated.gradient_size(self.loss.slope, 2))

    @property
    def saturation(self) -> Saturation:
        """How the loss's slope saturates."""
        return saturation_of(self.loss)

    @property
    def kappa(self) -> float:
        """What one record weighs against the ridge."""
        return minima.record_weight(self.problem.record_size(2), self.n, self.ridge)

    @property
    def minimum_sensitivity(self) -> float:
        """How far the exact minimum moves, in the L2 norm, when a record is replaced."""
        return minima.minimum_sensitivity(self.gradient_size, self.n, self.ridge)

    def sensitivity(self, norm: float | str) -> float:
        """Bound how far the sum's gradient moves, at any x, when a record is replaced."""
        return self.stated.sensitivity(norm)

    def radius(self, tolerance: float) -> float:
        """Return how far a point may be from the minimum where the sum's gradient is at most ``tolerance``."""
        return minima.minimum_radius(tolerance, self.n, self.ridge)

    def reach(self, tilt: float) -> float:
        """Bound |x| wherever ``G(x) = n F(x) + b'x`` is at most G(0), its minimum included, for |b| <= ``tilt``.

        Losses are not negative, and at 0 at most v. So n ridge |x|²/2 <= n v + tilt |x|, which makes |x| at most
        √(2v/ridge) + 2 tilt/(n ridge). And |x - x*| <= |∇G(0)|/(n ridge) for both x and 0, by strong convexity. The
        smaller of the two bounds, rounded up.
        """
        pull = self.n * self.ridge
        by_value = math.sqrt(2 * self.loss.value_at_zero / self.ridge) + 2 * tilt / pull
        return 1.01 * min(by_value, 2 * (self.n * self.gradient_size + tilt) / pull)

    def require_same_records(self, other: Problem) -> None:
        """Raise unless records of the other problem are read as this objective says: with this loss, unclipped."""
        if not self.problem.same_records(other) or other.loss != self.loss or other.clip is not None:
            raise ValueError(f"the minimum is that of {self.stated}, but the records are for {other}.")


def saturation_of(loss: Loss) -> Saturation:
    """Return how the slope of a loss saturates, or raise if objective perturbation does not cover it."""
    if loss.saturation is None:
        raise ValueError(
            "objective perturbation covers Logistic, Softmax, PseudoHuber and SmoothedHinge, got "
            f"{type(loss).__name__}, which has no saturation. Use method='statistics' for Squared, or method='descent'."
        )
    return loss.saturation
