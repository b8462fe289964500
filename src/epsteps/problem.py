"""The problem as public facts: what is minimised, over which records, and the constants that follow."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from epsteps import _validate
from epsteps.domain import Ball, checked_norm
from epsteps.losses import Loss

# A state-dependent sensitivity is rounded up by this much, far above its rounding error.
_OUTWARD = 1 + 1e-12


@dataclass(frozen=True)
class Problem:
    """Minimise ``F(x) = mean loss(u_i'x, y_i) + ridge/2 |x|²`` over n records with d features.

    Everything here is public and declared. Two datasets are neighbours when one record is replaced, so n
    is public; this adjacency holds for every guarantee of the library.

    Parameters
    ----------
    loss : Loss
        ``Logistic()`` or ``Squared()``.
    domain : Ball
        The set that each record's features are projected into.
    ridge : float
        Strength of the ridge; it is the strong convexity ``mu``. (The paper's λ is ridge/2.)
    n, d : int
        Number of records and of features.
    intercept : bool
        Adds a coordinate that is 1 in every record, last in x. It is regularised like the others and enlarges
        the sensitivity.
    smoothness : float, optional
        A smoothness constant L that is publicly known or was bought with privacy budget; never computed from data.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20)
    >>> problem.mu, round(problem.L, 9), problem.sensitivity(1)
    (0.02, 5.02, 40.0)
    """

    loss: Loss
    domain: Ball
    ridge: float = field(kw_only=True)
    n: int = field(kw_only=True)
    d: int = field(kw_only=True)
    intercept: bool = field(default=False, kw_only=True)
    smoothness: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if _validate.number("ridge", self.ridge) < 0:
            raise ValueError(f"ridge must not be negative, got {self.ridge!r}.")
        _validate.integer("n", self.n, low=2)
        _validate.integer("d", self.d)
        if not isinstance(self.intercept, bool):
            raise TypeError(f"intercept must be True or False, got {self.intercept!r}.")
        if self.smoothness is not None and _validate.positive("smoothness", self.smoothness) < self.ridge:
            raise ValueError(f"smoothness must be at least ridge={self.ridge!r}, got {self.smoothness!r}.")

    @property
    def dimension(self) -> int:
        """Length of x: the features, and the intercept if there is one."""
        return self.d + self.intercept

    @property
    def mu(self) -> float:
        """Strong convexity of F."""
        return self.ridge

    @property
    def L(self) -> float:
        """Smoothness of F: declared, or curvature x (largest L2 norm of a record)² + ridge."""
        if self.smoothness is not None:
            return self.smoothness
        return self.loss.curvature * self.record_size(2) ** 2 + self.ridge

    @property
    def start_gap(self) -> float:
        """A public bound on F(0) - F*."""
        return self.loss.value_at_zero

    def record_size(self, norm: float) -> float:
        """Largest norm of a record's features, the intercept's 1 included."""
        size = self.domain.size(norm, self.d)
        if not self.intercept:
            return size
        return float(np.linalg.norm([size, 1.0], ord=norm))

    def sensitivity(self, norm: float = 1) -> float:
        """Bound how far ONE record's gradient moves, at any x, when the record is replaced.

        Formal guarantee: ``|∇f(x; r) - ∇f(x; r')|_norm <= sensitivity(norm)`` for all x and all records r, r' of the
        domain. Twice the largest gradient norm, slope x record size; the ridge cancels. Infinite for losses
        without a largest slope.
        """
        return 2 * self.loss.slope * self.record_size(checked_norm(norm))

    def sensitivity_at(self, x: np.ndarray, norm: float = 1) -> np.ndarray:
        """Bound how far one record's gradient at the public point x moves when the record is replaced.

        Formal guarantee: as ``sensitivity``, for this x; one value per column of x. It depends on x and the domain
        only, so that scaling the noise by it costs nothing once x is public (paper, Prop. 3.1). For the logistic
        loss over the L1 ball of radius C it is 2Cσ(C|x|_inf).
        """
        bound = 2 * self.slope_at(x) * self.record_size(checked_norm(norm)) * _OUTWARD
        return np.minimum(bound, self.sensitivity(norm))

    def slope_at(self, x: np.ndarray) -> np.ndarray:
        """Bound the absolute derivative of any record's loss at the public point x; one value per column of x."""
        x = np.asarray(x, dtype=float)
        reach = self.domain.reach(x[: self.d])
        if self.intercept:
            reach = reach + np.abs(x[self.d])
        return self.loss.slope_at(reach * _OUTWARD)

    def typical_sensitivity(self, norm: float = 1) -> float:
        """Return ``sensitivity`` where it is finite, and otherwise the value that error predictions assume."""
        if self.has_bounded_sensitivity:
            return self.sensitivity(norm)
        return 2 * self.loss.typical_slope * self.record_size(checked_norm(norm))

    @property
    def gradient_radius(self) -> float:
        """L2 radius of a ball that holds every record's gradient, up to the ridge's common part.

        Where slopes have no bound it is the typical one: it serves predictions, never privacy.
        """
        return self.loss.typical_slope * self.record_size(2)

    @property
    def has_bounded_sensitivity(self) -> bool:
        """Whether one sensitivity holds at every x."""
        return math.isfinite(self.loss.slope)

    def same_records(self, other: "Problem") -> bool:
        """Whether both problems describe the same records and objective, whatever L they assume."""
        return replace(self, smoothness=None) == replace(other, smoothness=None)
