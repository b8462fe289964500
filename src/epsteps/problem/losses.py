"""Losses of a linear model: value and derivative in the margin, and their public constants.

A loss sees a record through its margin ``u'x`` (one for each class, where there are many) and its target. What the
guarantee needs of it are two constants, the steepest slope and the largest curvature, and the slope's certified bound
when margins are known to stay within a reach. What further methods ask of a loss are abilities that it has or has not.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import scipy

from epsteps.problem import levels, saturations, validate
from epsteps.problem.memory import NUMBERS, remembered
from epsteps.problem.rounding import up
from epsteps.problem.saturations import Saturation
from epsteps.problem.validate import Kinds

# Targets are kept in float32, and so are margins of classes: bounds and widths keep away from where it ends.
SIZES = (1e-30, 1e30)
# A slope's bound is rounded up by this much: a few units in the last place.
SLOPE_SHARE = 2.0**-50
# How sharply pseudo-Huber loss may turn: powers of two, as squares and square roots are the same on every machine.
POWERS = (2, 4, 8)
# Residuals are held here, in units of c, where a loss is computed that is a line long before.
_LARGEST_RATIO = 1e6
# The deviation of typical residuals over the targets' bound, for which predictions are right; and sizes of normal ones
# that are as likely as each other.
TYPICAL_RESIDUAL = 0.2
_RESIDUALS = TYPICAL_RESIDUAL * scipy.special.ndtri((np.arange(16) + 16.5) / 32)


class Targets(Protocol):
    """What targets are declared to be. Two declarations that are equal describe the same targets."""

    @property
    def largest(self) -> float:
        """The largest absolute target; 1 for labels, which have no unit."""
        ...

    @property
    def extremes(self) -> np.ndarray:
        """Two targets, as a data holder writes them, at which the slopes of a loss are furthest apart."""
        ...

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return numeric targets, those outside the declaration mapped inside."""
        ...

    def outside(self, y: np.ndarray) -> int:
        """Count the targets that ``encode`` would change. Reads data: for its holder's eyes."""
        ...


@dataclass(frozen=True)
class Labels:
    """Labels among declared classes: -1 and 1 for two of them, their places 0, 1, ... for more.

    A label that equals no class counts as the first one.

    >>> Labels(("no", "yes")).encode(np.array(["yes", "no", "maybe"]))
    array([ 1., -1., -1.])
    """

    classes: tuple[object, ...]

    @property
    def largest(self) -> float:
        """Return 1: labels have no unit."""
        return 1.0

    @property
    def extremes(self) -> np.ndarray:
        """The first two classes."""
        return np.array(self.classes[:2])

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return labels as numbers."""
        self._require_kind(y)
        if len(self.classes) == 2:
            return np.where(y == self.classes[1], 1.0, -1.0)
        places = np.zeros(y.shape)
        for place, label in enumerate(self.classes):
            places[y == label] = place
        return places

    def outside(self, y: np.ndarray) -> int:
        """Count the labels that are none of the classes. Reads data: for its holder's eyes."""
        self._require_kind(y)
        return int(np.sum(np.all([y != label for label in self.classes], axis=0)))

    def _require_kind(self, y: np.ndarray) -> None:
        _require_kind(y, text=isinstance(self.classes[1], str))


@dataclass(frozen=True)
class Range:
    """Numbers within [-bound, bound]; those outside are clipped, and NaN becomes 0."""

    bound: float

    @property
    def largest(self) -> float:
        """The largest absolute target."""
        return self.bound

    @property
    def extremes(self) -> np.ndarray:
        """The two ends of the range."""
        return np.array([-self.bound, self.bound])

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, y: np.ndarray) -> np.ndarray:
        """Clip targets into the range."""
        _require_kind(y, text=False)
        return np.clip(np.nan_to_num(y.astype(float), nan=0.0), -self.bound, self.bound)

    @np.errstate(all="ignore")
    def outside(self, y: np.ndarray) -> int:
        """Count the targets outside the range, NaN included. Reads data: for its holder's eyes."""
        _require_kind(y, text=False)
        return int(np.sum(~(np.abs(y.astype(float)) <= self.bound)))


def different(classes: Sequence[object], fewest: int, most: float = math.inf) -> tuple[object, ...]:
    """Return declared classes if they are different, and all text or none, or raise."""
    classes = tuple(classes)
    if not fewest <= len(classes) <= most or len(set(classes)) < len(classes):
        wanted = "two" if most == fewest else f"{fewest} or more"
        raise ValueError(f"classes must be {wanted} different labels, got {classes!r}.")
    if len({isinstance(label, str) for label in classes}) > 1:
        raise ValueError(f"classes must be all text or all numbers, got {classes!r}.")
    return classes


def _require_kind(y: np.ndarray, *, text: bool) -> None:
    kinds, wanted = ("U", "text") if text else ("biuf", "numeric")
    if y.dtype.kind not in kinds:
        raise TypeError(f"y must be {wanted}, got dtype {y.dtype}. Convert it before.")


class Surrogate(NamedTuple):
    """What a model of F needs of a loss whose derivative is a function of the margin plus a function of the target.

    ``curvature`` is the second derivative at a typical margin. ``slopes`` returns that function of the margin and its
    derivative; it is None where the function is the margin itself, so that the model is exact.
    """

    curvature: float
    slopes: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None


class Loss(ABC):
    """What the library asks of a loss: seven members, and abilities.

    Margins and targets have one record per row. A loss with several outputs gets its margins along the second axis,
    where targets have a single entry, and returns one derivative for each. Engines hold slopes within ``slope``,
    ``slope_at`` and ``joint_slope`` whatever a loss answers, so that no loss can break the guarantee of a private sum;
    what it answers for one record must not depend on others.

    A class of losses says three things about itself, which classes derived from it do not inherit:

    Parameters
    ----------
    name : str, optional
        What it is called in JSON. The class must be a dataclass, whose fields are written. Without a name, plans with
        such a loss cannot be written.
    kernel : str, optional
        The formula that compiled engines know it by.
    proved : bool
        That it is convex and not negative, that its derivative is Lipschitz with the constant ``curvature``, and has a
        derivative itself at all margins but finitely many (docs/proofs.md, section 12); that its constants hold for all
        margins, and that its derivative keeps the precision of its margins and is off by at most 20 rounding units of
        ``slope``. The minimum of an objective is read from a solver, in which nothing holds slopes: methods that
        publish one take such losses alone, and a class outside of the library cannot say it.
    """

    kinds: ClassVar["Kinds[Loss]"] = Kinds("loss")
    kernel: ClassVar[str | None] = None
    proved: ClassVar[bool] = False
    # Whether it is minus the logarithm of a likelihood: if that model holds, slopes vary as much as the loss is curved.
    is_likelihood: ClassVar[bool] = False
    # Whether the sums of products of features and targets are all that its minimum depends on: least squares.
    has_statistics: ClassVar[bool] = False
    # Whether a record's derivatives add up to 0 over the outputs, at all margins: gradients then lie in a subspace.
    is_balanced: ClassVar[bool] = False

    def __init_subclass__(cls, *, name: str | None = None, kernel: str | None = None, proved: bool = False) -> None:
        super().__init_subclass__()
        if proved and not cls.__module__.startswith("epsteps."):
            raise ValueError(f"proved=True is for losses whose proofs are the library's, got {cls.__qualname__}.")
        if {"kernel", "proved"} & vars(cls).keys():
            raise TypeError(f"kernel and proved belong to the class statement: class {cls.__name__}(Loss, kernel=...).")
        cls.kernel, cls.proved = kernel, proved
        if name is not None:
            Loss.kinds.add(name, cls)

    @property
    @abstractmethod
    def targets(self) -> Targets:
        """What targets are declared to be: labels, or a range."""

    @property
    @abstractmethod
    def slope(self) -> float:
        """Largest absolute derivative over all margins and targets (``inf`` when there is none)."""

    @property
    @abstractmethod
    def curvature(self) -> float:
        """Largest second derivative in the margin; of several, the largest eigenvalue of their matrix."""

    @property
    def total_curvature(self) -> float:
        """Bound the trace of the second derivatives in the margins: one output's is the curvature."""
        return self.outputs * self.curvature

    @property
    @abstractmethod
    def value_at_zero(self) -> float:
        """Largest loss of a record at margin 0: a public bound on F(0) - F*, as the loss is not negative."""

    @abstractmethod
    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the records' losses, along the first axis."""

    @abstractmethod
    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the derivative of each record's loss in its margin."""

    @abstractmethod
    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the second derivative in the margin; a matrix for each record where there are several margins.

        At a margin where the derivative has none, that of its steeper side.
        """

    def bends(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the second derivative of each record's loss in each of its margins alone."""
        second = self.second(margin, target)
        return second if self.outputs == 1 else np.einsum("ikk->ik", second)

    def bend_shares(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return each record's second derivative over ``curvature``, never beyond [0, 1]: for private sums.

        For losses with one output. As with ``levels``, a loss whose own is the same on every machine overrides it.
        """
        return levels.share(self.second(margin, target) / self.curvature)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Bound each absolute derivative over all targets and all margins within ``reach`` of 0: by ``slope``."""
        return np.full(np.shape(reach), self.slope)

    @property
    def outputs(self) -> int:
        """Number of margins of a record: 1, or one for each class."""
        return 1

    def joint_slope(self, norm: float) -> float:
        """Bound the norm (1, 2 or infinity) of a record's derivatives together where each is at most 1: 1 for one."""
        return 1.0

    @property
    def typical_slope(self) -> float:
        """The slope that error predictions assume: finite, and never used for privacy."""
        return self.slope

    @property
    def typical_curvature(self) -> float:
        """The mean second derivative that error predictions assume near a minimum: half of the largest."""
        return self.curvature / 2

    @property
    def typical_value(self) -> float:
        """The mean loss at margin 0 that error predictions assume: at most ``value_at_zero``."""
        return self.value_at_zero

    @property
    def typical_dispersion(self) -> float:
        """Variance of a record's slope over the mean second derivative near a minimum, as predictions assume it."""
        return 1.0

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, in steps of bound/2^20 and never beyond the bound: for private sums.

        Several derivatives of a record keep within ``joint_slope`` together, too. The integers of this default depend
        on how a machine rounds the derivative; a loss whose own are the same on every machine overrides it.
        """
        return levels.rounded(self.derivative(margin, target), bound)

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return numeric targets, those outside the declaration mapped inside."""
        return self.targets.encode(y)

    def outside(self, y: np.ndarray) -> int:
        """Count the targets that ``encode`` would change. Reads data: for its holder's eyes."""
        return self.targets.outside(y)

    @property
    def saturation(self) -> Saturation | None:
        """How the slope saturates, which objective perturbation charges for; None if that does not cover the loss."""
        return None

    @property
    def surrogate(self) -> Surrogate | None:
        """What the curvature method models F by; None if that does not cover the loss."""
        return None

    def capped(self, cap: float) -> "Loss | None":
        """Return the loss with its slope capped at this share of the largest; None where there is no such loss."""
        return self if cap == 1 else None

    @property
    def uncapped(self) -> "Loss | None":
        """The loss without its cap, where slopes can be held record by record; None where there is no such loss."""
        return None

    def stand_in(self, share: float, power: int = 2) -> "Loss":
        """Return a loss with a bounded slope to take the place of this one: itself, if it has a largest slope.

        ``share`` is the share of the targets' bound from which on residuals count less than in this loss, and ``power``
        how sharply that begins.
        """
        return self


@dataclass(frozen=True)
class TwoClasses(Loss):
    """A loss of two declared classes, encoded as z = -1 and z = +1; a label that equals neither counts as the first."""

    classes: tuple[object, object] = (-1, 1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", different(self.classes, 2, 2))

    @property
    def targets(self) -> Labels:
        """The two classes."""
        return Labels(self.classes)


@dataclass(frozen=True)
class Logistic(TwoClasses, name="Logistic", kernel="logistic", proved=True):
    """Logistic loss ``ln(1 + exp(-z m))`` for two declared classes, encoded as z = -1 and z = +1.

    A label that equals neither class counts as the first one.

    >>> Logistic(classes=("no", "yes")).encode(np.array(["yes", "no", "maybe"]))
    array([ 1., -1., -1.])
    """

    is_likelihood: ClassVar[bool] = True

    @property
    def slope(self) -> float:
        """Return sup σ(-z m) = 1."""
        return 1.0

    @property
    def curvature(self) -> float:
        """Return sup σ(m) σ(-m) = 1/4."""
        return 0.25

    @property
    def value_at_zero(self) -> float:
        """Return ln 2."""
        return math.log(2)

    @property
    def saturation(self) -> Saturation:
        """That of a sigmoid."""
        return saturations.Sigmoid()

    @property
    def surrogate(self) -> Surrogate:
        """The curvature is 1/4 at margin 0, and less away from it."""
        return Surrogate(0.2, self._slopes)

    @staticmethod
    def _slopes(margin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return tanh(m/2)/2, which is the derivative but for -z/2, and its own derivative."""
        slope = 0.5 * np.tanh(margin / 2)
        return slope, 0.25 - slope**2

    def capped(self, cap: float) -> "Loss":
        """Return the loss whose slope stops at the cap."""
        return self if cap == 1 else CappedLogistic(self.classes, cap)

    @property
    def uncapped(self) -> "Loss":
        """Itself."""
        return self

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return σ(reach): the slope is σ(-z m), and z m >= -reach."""
        return scipy.special.expit(reach)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of ln(1 + exp(-z m)) = ln(1 + exp(-|m|)) + (|m| - z m)/2.

        The first terms are summed as the logarithm of a product: its factors lie in (1, 2], so that 512 of them cannot
        overflow, and one logarithm serves them all.
        """
        size = np.abs(margin)
        total = 0.5 * (size - target * margin).sum(axis=0)
        factors = 1.0 + np.exp(-size)
        for start in range(0, len(factors), 512):
            total = total + np.log(np.prod(factors[start : start + 512], axis=0))
        return total

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return -z σ(-z m), written as (tanh(m/2) - z)/2: one vectorised function, no overflow."""
        return 0.5 * (np.tanh(0.5 * margin) - target)

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return σ(m) σ(-m)."""
        return scipy.special.expit(margin) * scipy.special.expit(-margin)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, the same on every machine."""
        return levels.logistic(margin, target, bound)

    def bend_shares(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return 4 σ(m) σ(-m), the same on every machine."""
        return levels.sigmoid_bend(margin)


@dataclass(frozen=True)
class CappedLogistic(TwoClasses, name="CappedLogistic", proved=True):
    """Logistic loss whose slope is capped: ``ln(1 + exp(-z m))`` where that falls by at most the cap, and then a line.

    The noise that protects its minimum is smaller by the cap. What that costs is a bias: records that are far on their
    wrong side pull no more than those at the kink, where z m = ln((1 - cap)/cap). The derivative is continuous, the
    second derivative jumps at the kink. A label that equals neither class counts as the first one.

    Parameters
    ----------
    classes : pair of labels
        The declared classes, encoded as z = -1 and z = +1.
    cap : float
        The largest slope, at most 1, with which it is the logistic loss.

    >>> loss = CappedLogistic(cap=0.2)
    >>> loss.slope, round(loss.curvature, 6)
    (0.2, 0.16)
    """

    cap: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "cap", validate.positive("cap", self.cap))
        if not SIZES[0] <= self.cap <= 1:
            raise ValueError(f"cap must lie between {SIZES[0]:g} and 1, the slope of logistic loss, got {self.cap!r}.")

    @property
    def slope(self) -> float:
        """Return the cap."""
        return self.cap

    @property
    def curvature(self) -> float:
        """Return 1/4, that at margin 0, or for a cap below 1/2 that at the kink."""
        return 0.25 if self.cap >= 0.5 else self.cap * (1 - self.cap)

    @property
    def value_at_zero(self) -> float:
        """Return ln 2, or for a cap below 1/2, where the line reaches margin 0, the cap's binary entropy."""
        c = min(self.cap, 0.5)
        return -c * math.log(c) - (1 - c) * math.log1p(-c)

    @property
    def typical_curvature(self) -> float:
        """Return the logistic loss's, or half of the largest: few records are beyond the kink of a cap above 1/2."""
        return min(0.125, self.curvature / 2)

    @property
    def typical_dispersion(self) -> float:
        """Return the fourth root of the cap: slopes that are capped vary less than the loss is curved."""
        return self.cap**0.25

    @property
    def saturation(self) -> Saturation:
        """That of a sigmoid that is cut off before its curvature is gone."""
        return saturations.Capped(self.cap)

    @property
    def uncapped(self) -> "Loss":
        """The logistic loss."""
        return Logistic(self.classes)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return σ(reach) or the cap: the slope is σ(-z m) below it, and z m >= -reach."""
        return np.minimum(up(scipy.special.expit(reach), SLOPE_SHARE), self.cap)

    def total(self, margin: np.ndarray, target: np.ndarray, cap: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of the losses: what is beyond the kink adds the cap times how far.

        Here and below ``cap`` is each record's own, in the place of the loss's.
        """
        cap = np.asarray(self.cap if cap is None else cap)
        agreed = target * margin
        held = np.maximum(agreed, _kink(cap))
        return np.sum(np.logaddexp(0, -held) + cap * (held - agreed), axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray, cap: np.ndarray | None = None) -> np.ndarray:
        """Return -z min(σ(-z m), cap)."""
        return -target * np.minimum(scipy.special.expit(-target * margin), self.cap if cap is None else cap)

    def second(self, margin: np.ndarray, target: np.ndarray, cap: np.ndarray | None = None) -> np.ndarray:
        """Return σ(m) σ(-m) up to the kink, and 0 beyond."""
        slope = scipy.special.expit(-target * margin)
        return np.where(slope <= (self.cap if cap is None else cap), slope * scipy.special.expit(target * margin), 0)

    def bends(self, margin: np.ndarray, target: np.ndarray, cap: np.ndarray | None = None) -> np.ndarray:
        """Return the second derivative."""
        return self.second(margin, target, cap)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, the same on every machine."""
        return levels.capped_logistic(margin, target, self.cap, bound)

    def bend_shares(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the second derivative over the largest, the same on every machine."""
        return levels.capped_logistic_bend(margin, target, self.cap, self.curvature)


def _kink(cap: np.ndarray) -> np.ndarray:
    """Return the z m up to which a loss with this cap is a line."""
    with np.errstate(divide="ignore"):
        return np.where(cap < 1, np.log1p(-np.minimum(cap, 1.0)) - np.log(cap), -np.inf)


@dataclass(frozen=True)
class HalfExponential(TwoClasses, name="HalfExponential", proved=True):
    """The loss ``exp(-z m)`` of records on their right side, and ``1 - z m`` of others.

    Of all convex losses with slopes of at most 1 whose minimum over the population is at the logarithm of the classes'
    odds, as that of the logistic loss is, it has the largest expected curvature. The derivative is continuous, the
    second derivative jumps at 0. A label that equals neither class counts as the first one.

    >>> HalfExponential().total(np.array([0.0, -2.0]), np.ones(2))
    np.float64(4.0)
    """

    @property
    def slope(self) -> float:
        """Return 1, that of the line."""
        return 1.0

    @property
    def curvature(self) -> float:
        """Return 1, that beside the line."""
        return 1.0

    @property
    def value_at_zero(self) -> float:
        """Return 1."""
        return 1.0

    @property
    def typical_curvature(self) -> float:
        """Return 1.6 times the logistic loss's: on real tables it was 1.3 to 1.6 times, and 2 times at margin 0."""
        return 0.2

    @property
    def typical_dispersion(self) -> float:
        """Return 6/5: with the chance p of the likelier class it is 1/p."""
        return 1.2

    @property
    def saturation(self) -> Saturation:
        """Its own: the curvature is the slope."""
        return saturations.Exponential()

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the losses."""
        agreed = target * margin
        held = np.maximum(agreed, 0)
        return (np.exp(-held) + (held - agreed)).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return -z min(exp(-z m), 1)."""
        return -target * np.exp(-np.maximum(target * margin, 0))

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return exp(-z m) on the right side, margin 0 included, and 0 on the other."""
        agreed = target * margin
        return np.where(agreed >= 0, np.exp(-np.maximum(agreed, 0)), 0)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, the same on every machine."""
        return levels.half_exponential(margin, target, bound)

    def bend_shares(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the second derivative, whose largest is 1: the same on every machine."""
        return levels.half_exponential_bend(margin, target)


@dataclass(frozen=True)
class SmoothedHinge(TwoClasses, name="SmoothedHinge", proved=True):
    """Hinge loss with a smooth corner, ``w ln(1 + exp((1 - z m)/w))``: of a support vector machine that has a gradient.

    It lies between the hinge ``max(0, 1 - z m)`` and that plus w ln 2 (Lee, Mangasarian 2001). A label that equals
    neither class counts as the first one.

    Parameters
    ----------
    classes : pair of labels
        The declared classes, encoded as z = -1 and z = +1.
    width : float
        The corner's width w. The narrower, the closer to the hinge, and the larger the curvature 1/(4w).

    >>> loss = SmoothedHinge(width=0.5)
    >>> loss.slope, loss.curvature
    (1.0, 0.5)
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", validate.size("width", self.width, *SIZES))

    @property
    def slope(self) -> float:
        """Return sup σ((1 - z m)/w) = 1."""
        return 1.0

    @property
    def curvature(self) -> float:
        """Return 1/(4w)."""
        return 0.25 / self.width

    @property
    def value_at_zero(self) -> float:
        """Return w ln(1 + exp(1/w))."""
        return float(self.width * np.logaddexp(0, 1 / self.width))

    @property
    def saturation(self) -> Saturation:
        """That of a sigmoid, in margins that are divided by the width."""
        return saturations.Sigmoid(sharpness=1 / self.width)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return σ((1 + reach)/w): the slope is σ((1 - z m)/w), and z m >= -reach."""
        return np.minimum(up(scipy.special.expit((1 + reach) / self.width), SLOPE_SHARE), 1.0)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the losses."""
        return self.width * np.logaddexp(0, (1 - target * margin) / self.width).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return -z σ((1 - z m)/w)."""
        return -target * scipy.special.expit((1 - target * margin) / self.width)

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return σ(t) σ(-t)/w with t = (1 - z m)/w."""
        distance = (1 - target * margin) / self.width
        return scipy.special.expit(distance) * scipy.special.expit(-distance) / self.width

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, the same on every machine."""
        return levels.smoothed_hinge(margin, target, self.width, bound)

    @np.errstate(all="ignore")
    def bend_shares(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return 4 σ(t) σ(-t) with |t| = |m - z|/w, the same on every machine."""
        return levels.sigmoid_bend((margin - target) / self.width)


@dataclass(frozen=True)
class Squared(Loss, name="Squared", kernel="squared", proved=True):
    """Squared loss ``(m - y)²/2`` for targets declared to lie in [-bound, bound].

    Its slope has no bound over all margins, so a plan with it scales the noise of each step by the
    sensitivity at that step's public point (``Problem.sensitivity_at``).

    >>> Squared(bound=2.0).encode(np.array([0.5, 7.0, np.nan]))
    array([0.5, 2. , 0. ])
    """

    has_statistics: ClassVar[bool] = True

    bound: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", validate.size("bound", self.bound, *SIZES))

    @property
    def targets(self) -> Range:
        """The declared range."""
        return Range(self.bound)

    @property
    def slope(self) -> float:
        """Return infinity: residuals have no bound over all margins."""
        return math.inf

    @property
    def curvature(self) -> float:
        """Return 1."""
        return 1.0

    @property
    def typical_slope(self) -> float:
        """Return the slope when predictions stay in the declared range of the targets."""
        return 2 * self.bound

    @property
    def value_at_zero(self) -> float:
        """Return bound²/2."""
        return self.bound**2 / 2

    @property
    def typical_curvature(self) -> float:
        """Return 1: the loss is quadratic."""
        return 1.0

    @property
    def typical_value(self) -> float:
        """Return a third of the largest: targets are spread evenly over their range."""
        return self.value_at_zero / 3

    @property
    def typical_dispersion(self) -> float:
        """Return the variance of residuals, taken to be half of the targets'."""
        return self.typical_value

    @property
    def surrogate(self) -> Surrogate:
        """The derivative is the margin minus the target: the model is exact."""
        return Surrogate(1.0)

    def stand_in(self, share: float, power: int = 2) -> "PseudoHuber":
        """Return pseudo-Huber loss, nearly the same where residuals are small against this share of the bound."""
        return PseudoHuber(self.bound, share * self.bound, power)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return reach + bound, the largest residual."""
        return reach + self.bound

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return half the sum of squared residuals."""
        return 0.5 * np.square(margin - target).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the residual."""
        return margin - target

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return 1."""
        return np.ones(margin.shape)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the residual as integers, the same on every machine."""
        return levels.residual(margin, target, bound)


@dataclass(frozen=True)
class PseudoHuber(Loss, name="PseudoHuber", proved=True):
    """Pseudo-Huber loss of the residual r = m - y, for targets in [-bound, bound]: of slope r/(1 + |r/c|^p)^(1/p).

    Squared where residuals are small against c, absolute where they are large, so that its slope has a bound over all
    margins: c. With the power p = 2 it is ``c² (sqrt(1 + (r/c)²) - 1)`` (Charbonnier et al. 1997). The larger the
    power, the sharper it turns, and the nearer it is to Huber's loss (1964), which is squared up to c: its slope falls
    short of a residual below c by a share of about (r/c)^p/p.

    Parameters
    ----------
    bound : float
        Targets are declared to lie in [-bound, bound].
    c : float
        The residual around which the loss turns from squared to absolute, and the largest slope.
    power : 2, 4 or 8
        How sharply it turns.

    >>> loss = PseudoHuber(bound=5.0, c=0.1)
    >>> loss.slope, loss.curvature
    (0.1, 1.0)
    """

    bound: float = 1.0
    c: float = 1.0
    power: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", validate.size("bound", self.bound, *SIZES))
        object.__setattr__(self, "c", validate.size("c", self.c, *SIZES))
        if validate.integer("power", self.power) not in POWERS:
            raise ValueError(f"power must be one of {', '.join(map(str, POWERS))}, got {self.power!r}.")

    @property
    def targets(self) -> Range:
        """The declared range."""
        return Range(self.bound)

    @property
    def slope(self) -> float:
        """Return c."""
        return self.c

    @property
    def curvature(self) -> float:
        """Return 1."""
        return 1.0

    @property
    def value_at_zero(self) -> float:
        """Return the loss of the residual ``bound``, rounded up."""
        return up(float(self._value(np.array(self.bound))), 1e-13)

    @property
    def typical_curvature(self) -> float:
        """Return the mean over residuals whose deviation is a fifth of the bound, as in real tables."""
        return self._mean_curvature(self.bound, self.c, self.power)

    @staticmethod
    @remembered(NUMBERS)
    def _mean_curvature(bound: float, c: float, power: int) -> float:
        return float(np.mean(_turned(_RESIDUALS * bound / c, power) ** (-1.0 - power)))

    @property
    def typical_value(self) -> float:
        """Return the mean loss at 0 of targets that are spread evenly over their range."""
        return float(np.mean(self._value(self.bound * (np.arange(32) + 0.5) / 32)))

    @property
    def typical_dispersion(self) -> float:
        """Return the variance of residuals, taken to be half of the targets'."""
        return self.typical_value

    @property
    def saturation(self) -> Saturation:
        """Its own: slopes have both signs."""
        return saturations.PseudoHuber(self.power)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return the slope of the largest residual, reach + bound."""
        return np.minimum(up(self.c / _turned(self.c / (reach + self.bound), self.power), SLOPE_SHARE), self.c)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the losses."""
        return self._value(np.abs(margin - target)).sum(axis=0)

    def _value(self, size: np.ndarray) -> np.ndarray:
        """Return the loss of residuals of this size.

        It is r²/2 F(1/p, 2/p; 1 + 2/p; -|r/c|^p), with Gauss's hypergeometric function, as an integral of the slope;
        for p = 2 that is r²/(1 + sqrt(1 + (r/c)²)): no difference of nearly equal numbers.
        """
        if self.power == 2:
            return size * (size / (1 + np.hypot(1, size / self.c)))
        part = 1 / self.power
        # So far out the loss is a line, but for a constant.
        ratio = np.minimum(size / self.c, _LARGEST_RATIO)
        shape = scipy.special.hyp2f1(part, 2 * part, 1 + 2 * part, -(ratio**self.power))
        beyond = size - ratio * self.c
        return ratio * self.c * (ratio * self.c / 2) * shape + beyond * self.c

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return r/(1 + |r/c|^p)^(1/p), never more than c."""
        ratio = (margin - target) / self.c
        return self.c * (ratio / _turned(ratio, self.power))

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return (1 + |r/c|^p)^(-1 - 1/p)."""
        return _turned((margin - target) / self.c, self.power) ** (-1 - self.power)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers, the same on every machine."""
        return levels.pseudo_huber(margin, target, self.c, self.power, bound)

    def bend_shares(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the second derivative, whose largest is 1: the same on every machine."""
        return levels.pseudo_huber_bend(margin, target, self.c, self.power)


def _turned(ratio: np.ndarray, power: int) -> np.ndarray:
    """Return (1 + |t|^p)^(1/p) for a power of two: the larger of 1 and |t|, times a root of 1 to 2."""
    if power == 2:
        return np.hypot(1, ratio)
    size = np.abs(ratio)
    largest = np.maximum(size, 1)
    smaller = np.minimum(size, 1) / largest
    for _ in range(power.bit_length() - 1):
        smaller = smaller * smaller
    root = 1 + smaller
    for _ in range(power.bit_length() - 1):
        root = np.sqrt(root)
    return largest * root


@dataclass(frozen=True)
class Softmax(Loss, name="Softmax", proved=True):
    """Multinomial logistic loss ``ln(sum_k exp(m_k)) - m_y`` for three or more declared classes.

    x consists of one block of coefficients after the other, a block for each class; the margins are the blocks'. With
    p = softmax(m), a record's gradient is (p - e_y) in the classes times u in the features. The loss does not change
    when all blocks move together: the ridge alone keeps them at sum 0. A label that equals no class counts as the
    first one.

    >>> Softmax(classes=("a", "b", "c")).encode(np.array(["c", "a", "?", "b"]))
    array([2., 0., 0., 1.])
    """

    is_likelihood: ClassVar[bool] = True
    is_balanced: ClassVar[bool] = True

    classes: tuple[object, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", different(self.classes, 3))

    @property
    def targets(self) -> Labels:
        """The classes."""
        return Labels(self.classes)

    @property
    def outputs(self) -> int:
        """Return the number of classes."""
        return len(self.classes)

    @property
    def slope(self) -> float:
        """Return sup |p_k - e_y| = 1, of each derivative."""
        return 1.0

    @property
    def curvature(self) -> float:
        """Return 1/2, the largest eigenvalue of diag(p) - pp' (Böhning 1992)."""
        return 0.5

    @property
    def total_curvature(self) -> float:
        """Return 1 - 1/k, the largest 1 - p'p: the trace of diag(p) - pp'."""
        return 1 - 1 / self.outputs

    @property
    def value_at_zero(self) -> float:
        """Return ln k."""
        return math.log(self.outputs)

    @property
    def typical_curvature(self) -> float:
        """Return half of 1/k, which is the curvature where all classes are equally probable."""
        return 0.5 / self.outputs

    @property
    def saturation(self) -> Saturation:
        """Its own: that of k classes."""
        return saturations.Softmax(len(self.classes))

    def capped(self, cap: float) -> "Loss":
        """Return the loss whose slopes stop at the cap."""
        return self if cap == 1 else CappedSoftmax(self.classes, cap)

    @property
    def uncapped(self) -> "Loss":
        """Itself."""
        return self

    def joint_slope(self, norm: float) -> float:
        """Bound the norm of p - e_y where its entry y is at least -1: 2, √2, or 1 for the norms 1, 2 and infinity.

        The other entries are not negative and add up to what entry y lacks.
        """
        return 2 ** (1 / norm)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return the largest 1 - p_y, σ(2 reach + ln(k - 1)): class y at -reach, all others at reach."""
        return np.minimum(up(scipy.special.expit(2 * reach + math.log(self.outputs - 1)), SLOPE_SHARE), 1.0)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the losses; margins have the classes along their second axis."""
        own = np.take_along_axis(margin, target.astype(int), axis=1)
        return (scipy.special.logsumexp(margin, axis=1) - own[:, 0]).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return p - e_y, with the classes along the second axis."""
        return scipy.special.softmax(margin, axis=1) - (levels.places_like(margin) == target)

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return diag(p) - pp' for each record, for margins at one point."""
        p = scipy.special.softmax(margin, axis=1)
        return p[:, :, None] * (np.eye(self.outputs) - p[:, None, :])

    def bends(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return p (1 - p)."""
        p = scipy.special.softmax(margin, axis=1)
        return p * (1 - p)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivatives as integers, the same on every machine, whose positive part is at most the bound."""
        return levels.softmax(margin, target, bound)


@dataclass(frozen=True)
class CappedSoftmax(Softmax, name="CappedSoftmax", proved=True):
    """Multinomial logistic loss whose slopes are capped: that of 1 - p_y <= cap, and then it grows slower.

    With t = m_y - ln(sum of exp(m_j) over the other classes) softmax loss is ln(1 + exp(-t)), and this one is the
    capped logistic loss of t: a line in t where 1 - p_y = σ(-t) would pass the cap. Among the other classes it bends
    there, too: with their own chances r, r_y = 0, its gradient is cap (r - e_y) and its Hessian cap (diag(r) - rr').

    Parameters
    ----------
    classes : tuple of labels
        The declared classes, three or more.
    cap : float
        The largest slope, at most 1, with which it is softmax loss.
    """

    is_likelihood: ClassVar[bool] = False

    cap: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "cap", validate.positive("cap", self.cap))
        if not SIZES[0] <= self.cap <= 1:
            raise ValueError(f"cap must lie between {SIZES[0]:g} and 1, the slope of softmax loss, got {self.cap!r}.")

    @property
    def slope(self) -> float:
        """Return the cap."""
        return self.cap

    @property
    def value_at_zero(self) -> float:
        """Return ln k, or less where the line reaches margin 0: where 1 - 1/k is beyond the cap."""
        zero = np.zeros((1, self.outputs, 1))
        return up(float(self.total(zero, np.zeros((1, 1, 1)))[0]), 1e-12)

    @property
    def typical_dispersion(self) -> float:
        """Return the fourth root of the cap: slopes that are capped vary less than the loss is curved."""
        return self.cap**0.25

    @property
    def saturation(self) -> Saturation:
        """That of k classes, cut off at the cap."""
        return saturations.CappedSoftmax(len(self.classes), self.cap)

    def capped(self, cap: float) -> "Loss":
        """Return the loss with this share of its own cap."""
        return self if cap == 1 else CappedSoftmax(self.classes, cap * self.cap)

    @property
    def uncapped(self) -> "Loss":
        """Softmax loss."""
        return Softmax(self.classes)

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        """Return the largest 1 - p_y, or the cap."""
        return np.minimum(super().slope_at(reach), self.cap)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the sum of the losses: what is beyond the kink adds the cap times how far."""
        own = levels.places_like(margin) == target
        others = scipy.special.logsumexp(np.where(own, -np.inf, margin), axis=1)
        t = np.take_along_axis(margin, target.astype(int), axis=1)[:, 0] - others
        held = np.maximum(t, math.log1p(-self.cap) - math.log(self.cap) if self.cap < 1 else -math.inf)
        return np.logaddexp(0, -held).sum(axis=0) + self.cap * (held - t).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray, cap: np.ndarray | None = None) -> np.ndarray:
        """Return p - e_y, or cap (r - e_y) where 1 - p_y passes the cap.

        Here and below ``cap`` is each record's own, a column, in the place of the loss's.
        """
        chances, missing = self._others(margin, target)
        cap = self._cap(cap, missing)
        share = cap / np.maximum(missing, cap)  # what a slope is multiplied by: 1, or what leaves the cap of 1 - p_y
        return np.where(levels.places_like(margin) == target, -np.minimum(missing, cap), chances * share)

    def second(self, margin: np.ndarray, target: np.ndarray, cap: np.ndarray | None = None) -> np.ndarray:
        """Return diag(p) - pp' for each record, or cap (diag(r) - rr') where 1 - p_y passes the cap."""
        chances, missing = self._others(margin, target)
        cap = self._cap(cap, missing)
        inside = super().second(margin, target)
        r = chances / np.where(missing > 0, missing, 1)
        beyond = cap[..., None] * r[:, :, None] * (np.eye(self.outputs) - r[:, None, :])
        return np.where((missing <= cap)[:, :, None], inside, beyond)

    def bends(self, margin: np.ndarray, target: np.ndarray, cap: np.ndarray | None = None) -> np.ndarray:
        """Return p (1 - p), or cap r (1 - r)."""
        chances, missing = self._others(margin, target)
        cap = self._cap(cap, missing)
        r = chances / np.where(missing > 0, missing, 1)
        return np.where(missing <= cap, super().bends(margin, target), cap * r * (1 - r))

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        """Return the derivative as integers: as a machine rounds it."""
        return levels.rounded(self.derivative(margin, target), bound)

    @staticmethod
    def _others(margin: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the chances of the classes but the target's, which is 0, and their sum 1 - p_y."""
        chances = np.where(levels.places_like(margin) == target, 0, scipy.special.softmax(margin, axis=1))
        return chances, chances.sum(axis=1, keepdims=True)

    def _cap(self, cap: np.ndarray | None, missing: np.ndarray) -> np.ndarray:
        """Return the caps of the records, or the loss's own, in the kind of their slopes."""
        return np.asarray(self.cap if cap is None else cap, dtype=missing.dtype)
