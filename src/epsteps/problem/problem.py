"""The problem as public facts: what is minimised, over which records, and the constants that follow."""

import math
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from epsteps.problem import limits, validate
from epsteps.problem.domain import Domain, checked_norm
from epsteps.problem.levels import NORMS
from epsteps.problem.losses import Loss
from epsteps.problem.rounding import up
from epsteps.problem.shapes import BODY, Body, Hull

# A point that diverged is held here, and slopes at it: no margin or sensitivity is then infinite.
_LARGEST_POINT = 1e100
_SLOPES = (1e-120, 1e120)


@dataclass(frozen=True, eq=False)
class Extent:
    """What a domain says of records with d features, and with the intercept's 1 if there is one: computed once.

    Planning asks for the same a hundred times, of problems that differ in their loss and ridge alone.
    """

    domain: Domain
    d: int
    intercept: bool

    @cached_property
    def units(self) -> np.ndarray:
        """Largest absolute value of each entry of a record."""
        return np.append(self.domain.units(self.d), np.ones(int(self.intercept)))

    def require_sizes(self) -> None:
        """Raise unless floats hold all sizes of records in all their digits."""
        self._checked  # noqa: B018 - once

    @cached_property
    def _checked(self) -> bool:
        for unit in np.unique(self.units).tolist():
            validate.size("the largest value of each column", unit)
        limits.require_constants({f"the L{norm:g} norm of records": self.size(norm) ** 2 for norm in NORMS})
        return True

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each feature if records were spread evenly over the domain."""
        return self.domain.even_moments(self.d)

    @cached_property
    def body(self) -> Body | None:
        """A body that holds every record times a number of at most 1, in ``units``; None for records in an L2 ball."""
        body = self.domain.body(self.d)
        return body.with_constant() if body is not None and self.intercept else body

    @cached_property
    def hull(self) -> Hull | None:
        """The smallest body that holds them, where one is known that is smaller than ``body``."""
        hull = self.domain.hull(self.d)
        return hull.with_constant() if hull is not None and self.intercept else hull

    def repeated(self, outputs: int) -> Body | None:
        """Return the body of a record's products with so many numbers of at most 1."""
        if self.body is None or outputs == 1:
            return self.body
        if outputs not in self._repeated:
            self._repeated[outputs] = self.body.repeated(outputs)
        return self._repeated[outputs]

    def size(self, norm: float | str) -> float:
        """Return the largest norm of a record."""
        if norm not in self._sizes:
            order = checked_norm(float(norm))
            size = self.domain.size(order, self.d)
            self._sizes[norm] = float(np.linalg.norm([size, 1.0], ord=order)) if self.intercept else size
        return self._sizes[norm]

    @cached_property
    def _sizes(self) -> dict[float | str, float]:
        return {}

    @cached_property
    def _repeated(self) -> dict[int, Body]:
        return {}


@dataclass(frozen=True)
class Problem:
    """Minimise ``F(x) = mean loss(u_i'x, y_i) + ridge/2 |x|²`` over n records with d features.

    Everything here is public and declared. Two datasets are neighbours when one record is replaced, so n
    is public; this adjacency holds for every guarantee of the library.

    Parameters
    ----------
    loss : Loss
        ``Logistic()``, ``CappedLogistic()``, ``HalfExponential()``, ``Softmax()``, ``SmoothedHinge()``, ``Squared()``,
        ``PseudoHuber()``, or one of your own.
    domain : Domain
        The set that each record's features are projected into: a ``Ball``, a ``Box``, or one of your own.
    ridge : float
        Strength of the ridge; it is the strong convexity ``mu``. (The paper's λ is ridge/2.)
    n, d : int
        Number of records and of features.
    intercept : bool
        Adds a coordinate that is 1 in every record, last in x. It is regularised like the others and enlarges
        the sensitivity.
    smoothness : float, optional
        A smoothness constant L that is publicly known or was bought with privacy budget; never computed from data.
    clip : float, optional
        Shorten each record's gradient to this L2 norm (Abadi et al. 2016), for losses and domains whose own bound is
        large or missing. The gradients are then those of F where no record is clipped, and biased elsewhere: the path
        leads to a point that is no minimum of F.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20)
    >>> problem.mu, round(problem.L, 9), problem.sensitivity(1)
    (0.02, 5.02, 40.0)
    """

    loss: Loss
    domain: Domain
    ridge: float = field(kw_only=True)
    n: int = field(kw_only=True)
    d: int = field(kw_only=True)
    intercept: bool = field(default=False, kw_only=True)
    smoothness: float | None = field(default=None, kw_only=True)
    clip: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if validate.number("ridge", self.ridge) < 0:
            raise ValueError(f"ridge must not be negative, got {self.ridge!r}.")
        if self.ridge > 0:
            validate.size("ridge", self.ridge)
        validate.integer("n", self.n, low=2)
        for name, value, base in (("loss", self.loss, Loss), ("domain", self.domain, Domain)):
            if not isinstance(value, base):
                raise TypeError(f"{name} must be derived from {base.__module__}.{base.__name__}, got {value!r}.")
        self.domain.require(validate.integer("d", self.d))
        if not isinstance(self.intercept, bool):
            raise TypeError(f"intercept must be True or False, got {self.intercept!r}.")
        if self.smoothness is not None and validate.positive("smoothness", self.smoothness) < self.ridge:
            raise ValueError(f"smoothness must be at least ridge={self.ridge!r}, got {self.smoothness!r}.")
        if self.clip is not None:
            validate.size("clip", self.clip)
        validate.integer(f"{type(self.loss).__name__}.outputs", self.loss.outputs)
        limits.require_counts(self)
        self._require_loss()
        self._require_sizes()

    def _require_loss(self) -> None:
        """Refuse a loss whose declared constants are none: what it says is public, and decides all sensitivities."""
        loss, name = self.loss, f"{type(self.loss).__name__}."
        if loss.slope != math.inf:
            validate.size(name + "slope", loss.slope)
        for constant in ("typical_slope", "curvature", "value_at_zero"):
            validate.size(name + constant, getattr(loss, constant))
        for norm in NORMS:
            validate.size(f"{name}joint_slope({norm:g})", loss.joint_slope(norm))

    def _require_sizes(self) -> None:
        """Refuse declarations whose constants, together, floats do not hold in all their digits."""
        self._extent.require_sizes()
        sizes = {"L": self.L, "the largest value of a gradient": self.gradient_radius * self.n}
        sizes |= {f"the L{norm:g} sensitivity": self.typical_sensitivity(norm) * self.n for norm in NORMS}
        limits.require_constants(sizes)

    @property
    def width(self) -> int:
        """Length of a record: the features, and the intercept's 1 if there is one."""
        return self.d + self.intercept

    @property
    def dimension(self) -> int:
        """Length of x: that of a record, for each output of the loss."""
        return self.loss.outputs * self.width

    @property
    def coordinates(self) -> str:
        """The length of x in words."""
        width, outputs = validate.written(self.width), self.loss.outputs
        return validate.written(self.dimension) + (f" ({outputs} classes x {width})" if outputs > 1 else "")

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

    @cached_property
    def units(self) -> np.ndarray:
        """Largest absolute value of the record's entry at each coordinate of x; 1 for the intercept."""
        return np.tile(self._extent.units, self.loss.outputs)

    @cached_property
    def _extent(self) -> Extent:
        return Extent(self.domain, self.d, self.intercept)

    @property
    def record_body(self) -> Body | None:
        """A body that holds every record times a number of at most 1, in ``units``; None for records in an L2 ball."""
        return self._extent.body

    @property
    def hull(self) -> Body | None:
        """A body that holds every gradient of a slope of at most 1, in ``units``; None for records in an L2 ball."""
        return self._extent.repeated(self.loss.outputs)

    @property
    def exact_hull(self) -> Body | Hull | None:
        """The smallest body that holds them and that there is noise for: smaller than ``hull`` with one-hot blocks.

        It is ``hull`` for losses with several outputs, and where one block is all that is never negative.
        """
        exact = self._extent.hull
        return self.hull if exact is None or self.loss.outputs > 1 or exact.is_product else exact

    @cached_property
    def cube(self) -> Body:
        """The cube [-1, 1]^d around that body."""
        return Body((), tuple((column,) for column in range(self.dimension)))

    @cached_property
    def guessed_curvature(self) -> tuple[np.ndarray, np.ndarray]:
        """A public guess of F's curvature, diag(spread) + mean mean': features spread evenly over the domain.

        It weighs noise against noise in predictions, and never enters privacy.
        """
        mean, variance = self._extent.moments
        half = self.loss.curvature / 2
        ones = np.ones(int(self.intercept))
        mean, variance = np.append(mean, ones), np.append(variance, 0 * ones)
        spread = half * variance + max(self.ridge, 1e-6 * half)
        return np.tile(spread, self.loss.outputs), np.tile(np.sqrt(half) * mean, self.loss.outputs)

    def record_size(self, norm: float | str) -> float:
        """Largest norm of a record's features, the intercept's 1 included.

        "body" is the gauge of ``hull``, ``exact_hull`` or ``cube``, in which it is 1.
        """
        return 1.0 if norm == BODY else self._extent.size(norm)

    def sensitivity(self, norm: float | str = 1) -> float:
        """Bound how far ONE record's gradient moves, at any x, when the record is replaced.

        Formal guarantee: ``|∇f(x; r) - ∇f(x; r')|_norm <= sensitivity(norm)`` for all x and all records r, r' of the
        domain. Twice the largest gradient norm, slope x record size or ``clip``; the ridge cancels. Infinite for losses
        without a largest slope.
        """
        return 2 * float(self.gradient_size(self.loss.slope, norm))

    def gradient_size(self, slope: np.ndarray | float, norm: float | str) -> np.ndarray | float:
        """Bound the norm of a record's loss gradient where slopes are at most ``slope``."""
        size = slope * self.loss.joint_slope(math.inf if norm == BODY else float(norm)) * self.record_size(norm)
        if self.clip is None or norm == BODY:
            return size
        return np.minimum(size, self.clip * self.dimension ** max(1 / float(norm) - 1 / 2, 0.0))

    def sensitivity_at(self, x: np.ndarray, norm: float | str = 1) -> np.ndarray:
        """Bound how far one record's gradient at the public point x moves when the record is replaced.

        Formal guarantee: as ``sensitivity``, for this x; one value per column of x. It depends on x and the domain
        only, so that scaling the noise by it costs nothing once x is public (paper, Prop. 3.1). For the logistic
        loss over the L1 ball of radius C it is 2Cσ(C|x|_inf).
        """
        bound = up(2 * self.gradient_size(self.slope_at(x), norm))
        return np.minimum(bound, self.sensitivity(norm))

    def slope_at(self, x: np.ndarray) -> np.ndarray:
        """Bound the absolute derivative of any record's loss at the public point x; one value per column of x.

        It is never above the loss's ``slope``, and finite: a point that diverged is held at 1e100 and its slopes at
        1e120, by the engines too.
        """
        x = held_point(x)
        reaches = []
        for block in x.reshape(self.loss.outputs, self.width, *x.shape[1:]):
            reaches.append(self.domain.reach(block[: self.d]) + (np.abs(block[self.d]) if self.intercept else 0.0))
        slopes = np.asarray(self.loss.slope_at(up(np.max(reaches, axis=0))), dtype=float)
        smallest, largest = _SLOPES
        return np.clip(np.nan_to_num(slopes, nan=largest), smallest, min(self.loss.slope, largest))

    def typical_sensitivity(self, norm: float | str = 1) -> float:
        """Return ``sensitivity`` where it is finite, and otherwise the value that error predictions assume."""
        if self.has_bounded_sensitivity:
            return self.sensitivity(norm)
        return 2 * float(self.gradient_size(self.loss.typical_slope, norm))

    @property
    def gradient_radius(self) -> float:
        """L2 radius of a ball that holds every record's gradient, up to the ridge's common part.

        Where slopes have no bound it is the typical one: it serves predictions, never privacy.
        """
        return float(self.gradient_size(self.loss.typical_slope, 2))

    @property
    def has_bounded_sensitivity(self) -> bool:
        """Whether one sensitivity holds at every x."""
        return self.clip is not None or math.isfinite(self.loss.slope)

    def with_ridge(self, ridge: float) -> "Problem":
        """Return the problem with another ridge, and with a declared L that is moved by as much."""
        known = self.smoothness
        return restated(self, ridge=ridge, smoothness=None if known is None else known + ridge - self.ridge)

    def same_records(self, other: "Problem") -> bool:
        """Whether both problems describe the same records, whatever loss of their targets, ridge and L they assume."""
        mine, others = ((p.domain, p.n, p.d, p.intercept, p.loss.targets) for p in (self, other))
        return mine == others


def extent_of(problem: Problem) -> Extent:
    """Return what the domain says of a problem's records."""
    return problem._extent


def restated(problem: Problem, **changes: Any) -> Problem:
    """Return a problem with another loss, ridge, smoothness, clip or n; what its domain says is not asked again.

    All else is as of a problem that is made anew: ``dataclasses.replace`` is for other domains.
    """
    if others := changes.keys() & {"domain", "d", "intercept"}:
        raise TypeError(f"restated is for the same kind of records: use dataclasses.replace, got {sorted(others)}.")
    made = object.__new__(type(problem))
    declared = {each.name: getattr(problem, each.name) for each in fields(problem)}
    vars(made).update(declared | changes, _extent=extent_of(problem))
    made.__post_init__()
    return made


def held_point(x: np.ndarray) -> np.ndarray:
    """Return finite coordinates of at most 1e100 for any floats, NaN as 0: where gradients are computed instead."""
    return np.clip(np.nan_to_num(np.asarray(x, dtype=float)), -_LARGEST_POINT, _LARGEST_POINT)
