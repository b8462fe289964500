"""The plan of a model with intervals: a tilted minimum first, then what its intervals are computed from."""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from epsteps.budgets import Budget, Cost, Epsilon
from epsteps.budgets.corners import Corners
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods.curvature import MATRIX_ROWS, Statistic
from epsteps.methods.intervals.posterior import Released, Tilts
from epsteps.methods.intervals.sums import Curvature, Dispersion, Frame, Layout, Mean, Means, Squares, statistic
from epsteps.methods.intervals.table import LEVELS
from epsteps.methods.minimum import LONG, Minimum
from epsteps.methods.objective import (
    ObjectivePlan,
    Sought,
    candidates,
    composed_corners,
    plan_objective,
    planned,
    stand_ins,
)
from epsteps.plans.plan import Charge, Conversation, Example, Published
from epsteps.problem import limits, validate
from epsteps.problem.box import Box
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up

# Share of the budget for the sizes, and for the dispersion where one is bought: one, or one for each coefficient.
_SIZES, _DISPERSION, _ROBUST = 0.03, 0.03, 0.06
# Share of the curvature: so much times what it takes to see all of it, but within these.
_LEAST, _MOST, _SLOPE = 0.05, 0.30, 0.7
# The largest eigenvalue of a difference of two Wishart(k + 1, c) matrices is about this many times k c.
_EDGE = 3.33
# What a record may count in a dispersion with levers, at least: so many times what records count on average.
_LEAST_CAP = 6.0
# The mean of s' is not believed to be less of its largest than this; with levers, less of what these are scaled to.
_LEAST_BEND, _LEAST_OF_LEVERS = 0.01, 0.25


class Headline(NamedTuple):
    """How large the noise of the curvature is against the curvature, r, at its share of the budget; and its rows k."""

    k: int
    share: float
    r: float


def headline(problem: Problem, kind: type[Cost], total: float) -> Headline:
    """Return the public rule's share of a budget of this total for the curvature, and the r that it leads to.

    r is the largest eigenvalue of the noise over the mean one of what is released, for records that are shortened to
    (1 + 3√(2/k)) times their mean square. Shares grow where noise is large: as its root if pure, in proportion to it if
    Gaussian.
    """
    k = Layout(problem).k
    length = 1 + 3 * math.sqrt(2 / k)
    whole = kind.either(_EDGE * k**2, math.sqrt(2) * k**1.5) * length / problem.n / total**kind.power
    share = min(max(_SLOPE * kind.either(math.sqrt(whole), whole), _LEAST), _MOST)
    return Headline(k, share, whole / share**kind.power)


def obstacle(problem: Problem) -> str | None:
    """Return why curvature cannot be bought whatever the budget, in words, or None."""
    if problem.loss.outputs > 1:
        return "the loss has several outputs"
    if problem.d > limits.LARGEST_MOMENTS:
        return f"there are more than {limits.LARGEST_MOMENTS} columns"
    if problem.n > MATRIX_ROWS:
        return "there are more than 2^30 records"
    try:
        limits.require_units(problem)
        layout = Layout(problem)
        layout.frame(layout.even())
    except (TypeError, ValueError):
        return "the domain's columns cannot be weighed"
    return None


@dataclass(frozen=True, eq=False, repr=False)
class IntervalPlan(ObjectivePlan):
    """A tilted minimum x, and at this published x what intervals for its coefficients are computed from.

    *Sizes* are means of s', s' z and s' z², s' the loss's second derivative at u'x and z the columns; *curvature* is
    the mean of a a' for records in a frame that follows from the sizes (``frame``), shortened to a public length;
    *dispersion*, where the loss is no likelihood or ``robust`` asks for it, is the mean of squared slopes beside that
    of s'. Where noise would drown the curvature (r > 1), or it is not released for such problems, nothing is bought: x
    has the whole budget, and its intervals are those that can be proved from the ridge ("provable").

    Formal guarantee: all costs are fixed in advance. Pure ones add up. Given x, Gaussian releases are together
    mu-Gaussian-DP with mu² = 2 (sum of their rhos), so that the certificate is that of the tilt's corners composed with
    one Gaussian mechanism. Frame and length follow from released numbers and public ones.

    Parameters
    ----------
    level : float
        The level of the intervals that are asked for, from 0.5 to 0.99: of what is printed, never of what is released.
    sizes, curvature, dispersion : float
        Cost of each release, in the currency of the tilt's noise; 0 where it is not made.
    robust : bool
        Whether the records say for each coefficient how much more slopes vary than the loss is curved, and no model:
        the dispersion is then that of every coefficient, bought whatever the loss.
    """

    reads = (Minimum, Mean)

    level: float = 0.95
    sizes: float = 0.0
    curvature: float = 0.0
    dispersion: float = 0.0
    robust: bool = False

    def __post_init__(self) -> None:
        if not LEVELS[0] <= validate.number("level", self.level) <= LEVELS[1]:
            raise ValueError(f"the level of intervals must be between {LEVELS[0]} and {LEVELS[1]}, got {self.level!r}.")
        if not isinstance(self.robust, bool):
            raise TypeError(f"robust must be True or False, got {self.robust!r}.")
        if (count := len(self.scales) + len(self.earlier)) != 1:
            raise ValueError(f"intervals are for one minimum, got {count}. Use method='objective'.")
        amounts = {name: validate.number(name, getattr(self, name)) for name in ("sizes", "curvature", "dispersion")}
        wanted = {"sizes", "curvature", *(["dispersion"] if self.buys_dispersion else [])}
        bought = {name for name, amount in amounts.items() if amount != 0}
        if min(amounts.values()) < 0 or bought not in (set(), wanted):
            raise ValueError(
                f"{', '.join(sorted(wanted))} must all be bought, each at a cost above 0, or none of them."
            )
        if bought:
            self._require_releasable()
        super().__post_init__()

    def _require_releasable(self) -> None:
        """Raise unless every release can be made, whatever was released before it: by public numbers alone."""
        if (reason := obstacle(self.problem)) is not None:
            raise ValueError(f"curvature is not released where {reason}. Leave intervals out.")
        for request in self._examples:
            request.require_drawable()

    @property
    def method(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name of the method, for people."""
        return "objective perturbation with intervals"

    @property
    def usual_level(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The level of intervals, where none is asked for."""
        return self.level

    @property
    def kind(self) -> type[Cost]:
        """The currency of what is released besides the minimum: that of its tilt's noise."""
        return self.noise.kind

    @property
    def buys_dispersion(self) -> bool:
        """Whether the dispersion is among what a measured interval needs."""
        return self.robust or not self.problem.loss.is_likelihood

    @property
    def mode(self) -> str:
        """How intervals are computed: "measured" where curvature is bought, and otherwise "provable"."""
        return "measured" if self.curvature else "provable"

    @cached_property
    def headline(self) -> Headline | None:
        """What the public rule says of the whole budget; None where curvature is not released for such a problem."""
        if obstacle(self.problem) is not None:
            return None
        return headline(self.problem, self.kind, self.budget.capacity(self.kind))

    @property
    def share(self) -> float:
        """Share of the budget that the curvature has."""
        return self.curvature / self.budget.capacity(self.kind)

    @property
    def r(self) -> float:
        """Noise of the curvature over the curvature, as the public rule has it; infinite where none is released."""
        return self.headline.r if self.headline is not None else math.inf

    @cached_property
    def layout(self) -> Layout:
        """What is public of the frame."""
        return Layout(self.problem)

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """The releases of the sizes."""
        return self.layout.statistics(self.kind, self.sizes)

    @cached_property
    def spread(self) -> Statistic:
        """The release of the dispersion: two means, or two for each coefficient."""
        count = 2 * self.problem.dimension if self.robust else 2
        return statistic(Box(-0.5, 0.5), self.problem.n, count, False, self.kind, self.dispersion)

    def sizes_at(self, x: np.ndarray) -> list[Mean]:
        """Return the requests for the sizes at the published model."""
        columns = self.layout.columns
        kinds = [*([Means] if self.layout.has_constant else []), *([Squares] if len(self.layout.numeric) else [])]
        return [kind(self.problem, x, each, columns) for kind, each in zip(kinds, self.statistics, strict=True)]

    def curvature_at(self, x: np.ndarray, frame: Frame) -> Curvature:
        """Return the request for the curvature at the published model."""
        if frame.k != self.layout.k:
            raise AssertionError(f"a frame of {frame.k} coordinates was planned as one of {self.layout.k}.")
        return Curvature(self.problem, x, frame, self.kind, self.curvature)

    def dispersion_at(self, x: np.ndarray, levers: np.ndarray | None = None) -> Dispersion:
        """Return the request for the dispersion at the published model; with levers, records count up to a cap.

        The noise of m means grows with the cap as m cap/(n epsilon), and what the cap cuts off falls with it: it is
        √(n epsilon/m). (With Gaussian noise, √m stands for m.)
        """
        if levers is None:
            return Dispersion(self.problem, x, self.spread)
        return Dispersion(self.problem, x, self.spread, levers, self._cap)

    @property
    def _cap(self) -> float:
        count = self.spread.problem.dimension
        paid = self.kind.either(self.dispersion / count, math.sqrt(2 * self.dispersion / count))
        return max(_LEAST_CAP, math.sqrt(self.problem.n * paid))

    def levers(self, frame: Frame, matrix: np.ndarray, noise: float) -> np.ndarray | None:
        """Return the rows of H⁻¹, each as long as lets records count 1 on average; None for one dispersion of all.

        They follow from the released curvature, of which no direction counts less than the noise along it: whatever
        was released, they are finite. A coefficient's variance is that of the slopes along its row.
        """
        if not self.robust:
            return None
        values, vectors = np.linalg.eigh(matrix)
        A = frame.T @ (vectors * np.maximum(values, noise)) @ vectors.T @ frame.T.T
        rows = np.linalg.inv(A + self.ridge * np.eye(len(A)))
        along = np.einsum("ij,jk,ik->i", rows, A, rows)
        return rows * np.sqrt(self.problem.loss.curvature / np.maximum(along, np.finfo(float).tiny))[:, None]

    def conversation(self) -> Conversation:
        """Publish the minimum, and then sizes, curvature and dispersion at it: as they were released."""
        x = yield self.minima[0]
        if self.mode == "provable":
            return Published(np.array([x]))
        parts = []
        for request in self.sizes_at(x):
            parts.append((yield request))
        extras = {"sizes": np.concatenate(parts)}
        request = self.curvature_at(x, self.frame(extras["sizes"]))
        extras["curvature"] = yield request
        if self.dispersion:
            levers = self.levers(request.frame, extras["curvature"], request.deviation)
            extras["dispersion"] = yield self.dispersion_at(x, levers)
        return Published(np.array([x]), extras)

    @property
    def guessed_half_width(self) -> float | None:
        """What half of the widest measured interval for a column's coefficient is guessed to be, for the population.

        A guess from public numbers, for columns that fill their ranges evenly and do not go together, and margins that
        are typical: narrow columns, or such as go together, have wider intervals. None where nothing is bought.
        """
        if self.mode == "provable":
            return None
        problem = self.problem
        covariance, units = self.noise.covariance(problem)
        noise = covariance.variances * (units * self.scales[0] / problem.n) ** 2
        mean, variance = problem.domain.even_moments(problem.d)
        constant = np.ones(int(problem.intercept))
        record = np.append(mean, constant)
        A = problem.loss.typical_curvature * (np.outer(record, record) + np.diag(np.append(variance, 0 * constant)))
        inverse = np.linalg.inv(A + self.ridge * np.eye(problem.dimension))
        sampling = problem.loss.typical_dispersion / problem.n * np.sum((inverse @ A) * inverse, axis=1)
        return float(ndtri((1 + self.level) / 2)) * math.sqrt(np.max((inverse**2 @ noise + sampling)[: problem.d]))

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """Shapes of sizes, curvature and dispersion, where they are released."""
        if self.mode == "provable":
            return {}
        sizes = sum(each.problem.dimension for each in self.statistics)
        shapes: dict[str, tuple[int, ...]] = {"sizes": (sizes,), "curvature": (self.layout.k, self.layout.k)}
        return shapes | ({"dispersion": (self.spread.problem.dimension,)} if self.dispersion else {})

    def frame(self, sizes: np.ndarray) -> Frame:
        """Return the frame that follows from released sizes."""
        return self.layout.frame(self.layout.sizes(sizes, self.statistics))

    def released(self, x: np.ndarray, extras: dict[str, np.ndarray], *tilts: Tilts) -> Released:
        """Return what intervals are computed from: the published model of one run, and what it published besides."""
        bought: dict[str, Any] = {}
        if self.mode == "measured":
            frame = self.frame(extras["sizes"])
            request = self.curvature_at(x, frame)
            noise = self.kind.either("wishart", "gaussian")
            scale = request.scale * request.unit
            bought = {"T": frame.T, "matrix": extras["curvature"], "scale": scale, "noise": noise}
        if self.dispersion:
            bought["dispersion"] = self._dispersion(extras["dispersion"])
        return replace(super().released(x, extras, *tilts), **bought)

    def _dispersion(self, published: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi, the mean of slope² over that of s', and the scale of its noise: Laplace's, or a deviation.

        There is one, or one for each coefficient. Pure noise of all means together is a cube's, for which Laplace noise
        of the same deviation stands.
        """
        loss, (square, bend) = self.problem.loss, np.split(published + 0.5, 2)
        deviation = float(self.spread.deviations[0])
        least = _LEAST_OF_LEVERS / self._cap if self.robust else _LEAST_BEND
        unit = loss.slope**2 / (loss.curvature * np.clip(bend, np.clip(deviation, least, 1.0), 1.0))
        return square * unit, deviation * unit / self.kind.either(math.sqrt(2), 1.0)

    @property
    def _later(self) -> tuple[float, ...]:
        return (self.sizes, self.curvature, self.dispersion)

    @cached_property
    def corners(self) -> Corners:
        """The Gaussian releases together, outputs apart: the tilt's corners, composed with all that follows it."""
        if not self.curvature:
            return super().corners
        left, later = self.budget.amount - math.fsum(self.output_costs), _mu(self._later)
        return composed_corners(self.kappa, self.saturation, left, self.costs, later)

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        if not self.is_pure:
            return super().spending(repetitions)
        return self.budget.of(Epsilon(up(math.fsum([*self.costs, *self._later]) * repetitions)))

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        charges = super().charges
        if not self.curvature:
            return charges
        return [*charges, *(request.charge for request in self._examples)]

    @property
    def allowance(self) -> list[Cost]:
        """What the minimum costs, and all that follows it."""
        return [*super().allowance, *(self.kind(amount) for amount in self._later if amount)]

    @property
    def points(self) -> int:
        """One model."""
        return 1

    @cached_property
    def _examples(self) -> list[Mean | Curvature]:
        """The requests after the minimum, at a model where records differ, as if they filled their domain evenly."""
        problem = self.problem
        x = 4.0 / (problem.units * problem.width)
        frame = self.layout.frame(self.layout.even())
        curvature = self.curvature_at(x, frame)
        spread = []
        if self.dispersion:
            spread = [self.dispersion_at(x, self.levers(frame, np.diag(frame.guess), curvature.deviation))]
        return [*self.sizes_at(x), curvature, *spread]

    def examples(self) -> list[Example]:
        """Return the requests of a run whose records fill their domain evenly."""
        first = Example(self.minima[0], self.minima[0].costs[0])
        if not self.curvature:
            return [first]
        costs = (charge.cost for charge in self.charges[1:])
        return [first, *(Example(request, cost) for request, cost in zip(self._examples, costs, strict=True))]

    @property
    def of_the_minimum(self) -> ObjectivePlan:
        """The plan of the minimum alone."""
        return ObjectivePlan(**{each.name: getattr(self, each.name) for each in fields(ObjectivePlan)})

    def certificate(self) -> dict[str, Any]:
        """Return what follows from the plan, which intervals it leads to among it."""
        return super().certificate() | {"intervals": self.mode}

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        published = "the minimum, once, and what is released at it; the solver's iterates and its time stay private"
        return super().facts | {"Published": published, "Intervals": self._said}

    @property
    def _said(self) -> str:
        level = f"{100 * self.level:g} %"
        if self.mode == "measured":
            later = math.fsum(self._later) / self.budget.capacity(self.kind)
            return (
                f"{level}, measured where what is released supports it: r = {self.r:.3g} with {self.layout.k} "
                f"coordinates; {self.share:.1%} of the budget for the curvature, {later:.1%} for all that is released "
                "after the model. No other method releases what measuring takes"
            )
        reason = obstacle(self.problem) or (
            f"noise would drown the curvature of {self.layout.k} coordinates at this n and budget: r = {self.r:.3g}"
        )
        return f"{level}, provable from the ridge alone, and nothing is bought for them: {reason}"


def _mu(rhos: tuple[float, ...]) -> float:
    """Return the mu of Gaussian releases of these rhos together, rounded up."""
    return up(math.sqrt(2 * math.fsum(rhos)))


def plan_intervals(
    problem: Problem,
    budget: Budget,
    *,
    mechanism: str = "auto",
    level: float = 0.95,
    robust: bool = False,
) -> IntervalPlan:
    """Plan the release of a tilted minimum, and of what intervals for its coefficients are computed from.

    The shares are those of a public rule (``headline``). In the place of squared loss pseudo-Huber loss is minimised,
    as without intervals.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.001, n=100_000, d=5, intercept=True)
    >>> plan = plan_intervals(problem, es.Pure(1.0))
    >>> plan.mode, round(plan.r, 3), round(plan.share, 3)
    ('measured', 0.066, 0.05)
    """
    limits.require_solvable(problem)
    _, instead_of = stand_ins(problem)
    if instead_of:
        problem = plan_objective(problem, budget, mechanism=mechanism).problem
    best = None
    for noise in candidates(problem, budget, mechanism):
        asked = {"level": level, "robust": robust, "instead_of": instead_of}
        limit = math.inf if best is None else best.predicted
        best = _planned(problem, budget, noise, limit, asked) or best
    assert best is not None
    best.require_executable(LONG)
    return best


def _planned(
    problem: Problem, budget: Budget, noise: Mechanism, limit: float, asked: dict[str, Any]
) -> IntervalPlan | None:
    """Return the plan with this noise; None if its noise and ridge are predicted to cost a finite limit or more."""
    sought = Sought.of(problem, asked["instead_of"])
    kind, capacity, found = noise.kind, budget.capacity(noise.kind), None
    if capacity > 0 and obstacle(problem) is None:
        found = headline(problem, kind, capacity)
    if found is None or found.r > 1:
        return planned(IntervalPlan, sought, budget, noise, (1.0,), limit=limit, **asked)
    dispersion = 0.0 if problem.loss.is_likelihood else _DISPERSION
    shares = {"sizes": _SIZES, "curvature": found.share, "dispersion": _ROBUST if asked["robust"] else dispersion}
    # Certificates are rounded up, so what may be spent is rounded down by more than that.
    bought: dict[str, Any] = {name: share * down(capacity, 1e-9) for name, share in shares.items()}
    left = (1 - math.fsum(shares.values()),) if kind.is_pure else (1.0,)
    later = 0.0 if kind.is_pure else _mu(tuple(bought.values()))
    return planned(IntervalPlan, sought, budget, noise, left, limit=limit, later=later, **asked, **bought)
