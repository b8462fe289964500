"""The request for a minimum: of which objective, how near a solver must come to it, and with which noise."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from epsteps.budgets import Cost, Epsilon, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods import minima
from epsteps.plans.plan import Aim
from epsteps.plans.requests import Draw, Records, Request
from epsteps.problem import limits, validate
from epsteps.problem.grid import added
from epsteps.problem.losses import Loss
from epsteps.problem.problem import Problem, restated
from epsteps.problem.rounding import up
from epsteps.problem.saturations import Saturation
from epsteps.problem.weighting import Measure, Weighting

if TYPE_CHECKING:
    from epsteps.noise import Source


# Rounding errors that plans leave room for, in units of a slope's size: 256 of a sum over a block of records, 54 of a
# tree of such sums, 20 of a loss's derivative, and six others.
SLOPE_ROUNDINGS = 256 + 54 + 20 + 6
# More of them where records have weights: a slope's product with its share, and the sum's quotient by the mean; and, of
# a margin, the product with what shortens its record.
WEIGHT_ROUNDINGS = 2
# Rounding unit of the long doubles that plans are made for: 64 bits.
LONG = 2.0**-63
# Noise on an output has at least so many bits.
LEAST_BITS = 20


@dataclass(frozen=True)
class Minimised:
    """``n F(x) = sum of v_i loss(s_i u_i'x, y_i) + n ridge/2 |x|²``, and every public number that bounds it.

    Without a weighting v and s are 1; with one, they are the weights and shortenings that it gives long records. Where
    it holds slopes, each record's loss has a cap of its own, and bounds on gradients and second derivatives are those
    of the loss, whose cap is the least, times the weighting's (docs/proofs.md, Theorem 13.5).

    Plans take from here the sensitivity, kappa and radius that their noise is scaled by; the solver and its certificate
    take from here the loss, the weighting and the ridge. So noise cannot be scaled for one function while the minimum
    of another is read, as of clipped gradients, which are the gradient of nothing. What has no such bounds is refused
    here, and nowhere else: a clip, a loss whose constants are not proved, as nothing holds slopes in a solver, a slope
    without a largest value, a ridge that is missing or below the problem's. The ridge acts on every coordinate, an
    intercept's and each output's included. A declared ``smoothness`` is dropped: it may be wrong, and ``L`` is certain.

    Parameters
    ----------
    problem : Problem
        The public facts, as declared.
    ridge : float
        Ridge of the objective that is minimised, at least the problem's.
    weighting : Weighting, optional
        What long records count; by default every record counts 1, as it is.
    """

    problem: Problem
    ridge: float
    weighting: Weighting | None = None

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
        if self.weighting is not None and self.weighting.held:
            self._require_held(self.weighting)

    def _require_held(self, weighting: Weighting) -> None:
        """Raise unless slopes can be held record by record."""
        if self.loss.uncapped is None:
            raise ValueError(f"slopes of {type(self.loss).__name__} cannot be held record by record: use weights.")
        if weighting.radius > self.problem.record_size(weighting.norm):
            raise ValueError(
                f"slopes are held within a radius of records, which are at most "
                f"{self.problem.record_size(weighting.norm)!r} long, got {weighting.radius!r}."
            )

    @property
    def steepest(self) -> Loss:
        """The loss whose slope, curvature and value at 0 bound those of every record: without a cap if each has one."""
        held = self.weighting is not None and self.weighting.held
        return self.loss.uncapped or self.loss if held else self.loss

    @cached_property
    def stated(self) -> Problem:
        """The objective as a problem: with this ridge, and the smoothness of the domain, which is certain.

        Weights are no part of a problem: where there are any, what is asked of it must be asked of this object.
        """
        return restated(self.problem, ridge=self.ridge, smoothness=None)

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

    @cached_property
    def measure(self) -> Measure | None:
        """How records are measured for their weights; None where they have none."""
        return None if self.weighting is None else self.weighting.measure(self.problem)

    @property
    def mean(self) -> float:
        """What shares of weights are divided by: 1 without a weighting. No record counts more than 1/mean."""
        return 1.0 if self.weighting is None else self.weighting.mean

    @property
    def square(self) -> float:
        """The largest v |s u|_2² of a record."""
        return self.problem.record_size(2) ** 2 if self.weighting is None else self.weighting.square(self.problem)

    @property
    def L(self) -> float:
        """Smoothness of F: curvature x largest v |s u|_2² + ridge. Never a declared one."""
        return self.loss.curvature * self.square + self.ridge

    @property
    def trace(self) -> float:
        """Bound the trace of F's second derivatives: total curvature x largest v |s u|_2², and d ridges."""
        return self.loss.total_curvature * self.square + self.dimension * self.ridge

    @property
    def gradient_size(self) -> float:
        """Largest L2 norm of one record's loss gradient, at any x, its weight included."""
        if self.weighting is None:
            return float(self.problem.gradient_size(self.loss.slope, 2))
        return up(self.loss.slope * self.loss.joint_slope(2) * self.weighting.length(self.problem))

    @property
    def saturation(self) -> Saturation:
        """How the loss's slope saturates."""
        return saturation_of(self.loss)

    @property
    def kappa(self) -> float:
        """What one record weighs against the ridge: v |s u|_2²/(n ridge), rounded up."""
        if self.weighting is None:
            return minima.record_weight(self.problem.record_size(2), self.n, self.ridge)
        return up(self.square / (self.n * self.ridge))

    @property
    def minimum_sensitivity(self) -> float:
        """How far the exact minimum moves, in the L2 norm, when a record is replaced."""
        return minima.minimum_sensitivity(self.gradient_size, self.n, self.ridge)

    def sensitivity(self, norm: float | str) -> float:
        """Bound how far the sum's gradient moves, at any x, when a record is replaced.

        Weights bound it in their own norm alone: noise of another one is refused.
        """
        if self.weighting is None:
            return self.problem.sensitivity(norm)
        if norm != self.weighting.norm:
            fitting = {1: "'laplace'", 2: "'l2' or 'gaussian'"}[self.weighting.norm]
            raise ValueError(
                f"weights by the L{self.weighting.norm} norm bound gradients in that norm, and noise of the norm "
                f"{norm!r} would not protect them. Use mechanism {fitting}, or the other weighting."
            )
        return up(2 * self.loss.slope * self.loss.joint_slope(self.weighting.norm) * self.weighting.size(self.problem))

    def radius(self, tolerance: float) -> float:
        """Return how far a point may be from the minimum where the sum's gradient is at most ``tolerance``."""
        return minima.minimum_radius(tolerance, self.n, self.ridge)

    def reach(self, tilt: float) -> float:
        """Bound |x| wherever ``G(x) = n F(x) + b'x`` is at most G(0), its minimum included, for |b| <= ``tilt``.

        Losses are not negative, and at 0 at most v, their weights included. So n ridge |x|²/2 <= n v + tilt |x|, which
        makes |x| at most √(2v/ridge) + 2 tilt/(n ridge). And |x - x*| <= |∇G(0)|/(n ridge) for both x and 0, by strong
        convexity. The smaller of the two bounds, rounded up.
        """
        pull = self.n * self.ridge
        by_value = math.sqrt(2 * self.steepest.value_at_zero / self.ridge / self.mean) + 2 * tilt / pull
        return 1.01 * min(by_value, 2 * (self.n * self.gradient_size + tilt) / pull)

    def require_same_records(self, other: Problem) -> None:
        """Raise unless the records are those of the objective. Their slopes are its own loss's, and unclipped."""
        if not self.problem.same_records(other):
            raise ValueError(f"the minimum is that of {self.stated}, but the records are for {other}.")


def saturation_of(loss: Loss) -> Saturation:
    """Return how the slope of a loss saturates, or raise if objective perturbation does not cover it."""
    if loss.saturation is None:
        raise ValueError(
            "objective perturbation covers Logistic, Softmax, PseudoHuber and SmoothedHinge, got "
            f"{type(loss).__name__}, which has no saturation. Use method='statistics' for Squared, or method='descent'."
        )
    return loss.saturation


def rounding(
    objective: Minimised,
    point_size: float,
    tilt_size: float,
    unit: float,
    slope: float = SLOPE_ROUNDINGS,
    margin: float | None = None,
) -> float:
    """Bound the L2 norm of the rounding error of ``n ∇F(x) + b`` in floats of this unit, for these sizes of x and b.

    ``slope`` and ``margin`` are how many units of |slope| and of |u| |x| a record's slope and margin are off by, each
    by itself. Plans leave room for a solver that adds in floats: for 336 and width + 2, by the usual bounds on sums and
    inner products (Higham 2002, sections 3.1 and 4.2). That of ``running.passes`` adds exactly, and needs fewer. An
    error of a margin is one of the slope, times the curvature; softmax's sum over the classes counts besides. The
    ridge's term is rounded four times, the tilt twice. 1.01 covers what is of second order, and that of the norms given
    here. A record with a weight v and a shortening s has errors of at most 1/mean of what it had without, as v mean and
    s are at most 1, and ``WEIGHT_ROUNDINGS`` more.
    """
    problem, loss = objective.stated, objective.steepest
    margin = problem.width + 2 if margin is None else margin
    if objective.weighting is not None:
        slope, margin = slope + WEIGHT_ROUNDINGS, margin + WEIGHT_ROUNDINGS
    size, classes = problem.record_size(2), loss.outputs if loss.outputs > 1 else 0
    slopes = loss.slope * (slope + classes) + loss.curvature * margin * size * point_size
    terms = problem.n * (size / objective.mean) * slopes * math.sqrt(loss.outputs)
    return 1.01 * unit * (terms + 4 * problem.n * problem.ridge * point_size + 2 * tilt_size)


def tilt_length(objective: Minimised, noise: Mechanism, scale: float) -> float:
    """Return a length that a tilt of this scale does not exceed, but with a probability below 1e-300.

    The length of a norm's noise is at most a Gamma(d + 2) variable in twice the cube of its units (in the L2 ball where
    it is that of a usual norm), which passes d + 42 + 40√(d + 2) + 800 with a probability below e^-790 (Chernoff). A
    Gaussian vector is at most the root of its trace times |z| long, for a standard z, and |z| passes √d + 38 with one
    below e^-700.
    """
    d, problem = objective.dimension, objective.problem
    if not noise.kind.is_pure:
        return math.sqrt(2 * float(noise.half_power(scale, problem))) * (math.sqrt(d) + 40)
    gauge = scale * (d + 42 + 40 * math.sqrt(d + 2) + 800)
    return gauge if noise.shape(problem).stretches else 2 * gauge * float(np.linalg.norm(problem.units))


def grid_step(objective: Minimised, tolerance: float, scale: float, bits: int, tilt: float) -> float:
    """Return the real size of an output's integer: a power of two, in which noise of this scale has so many bits.

    Fewer, down to 20, where long doubles would not hold points as far out as such a tilt leads; and more, so that
    rounding a point to the grid changes the sum's gradient by at most an eighth of the tolerance.
    """
    finest = tolerance / (4 * objective.n * objective.L * math.sqrt(objective.dimension))
    coarsest = min(8.1 * LONG * objective.reach(tilt), math.ldexp(scale, -LEAST_BITS))
    return math.ldexp(1.0, math.frexp(min(finest, max(math.ldexp(scale, -bits), coarsest)))[1] - 1)


def least_tolerance(objective: Minimised, tilt: float, steps_per_tolerance: float = 0.0) -> float:
    """Return a tolerance from which on ``Goal.require_reachable`` accepts a plan's precision.

    ``steps_per_tolerance`` is by how much a grid may be finer than the tolerance asks for: step >= tolerance over it.
    """
    reach = objective.reach(tilt)
    finest = 8 * objective.n * objective.L * math.sqrt(objective.dimension)
    # Nine, not eight: what rounding the tolerance itself takes away.
    return max(9 * rounding(objective, reach, tilt, LONG), 4.1 * LONG * reach * max(finest, steps_per_tolerance))


@dataclass(frozen=True)
class Goal:
    """What a solver must find: a point of a grid where the sum's gradient is surely below a tolerance.

    All numbers are public. The solver reads records, and decides nothing.

    Parameters
    ----------
    objective : Minimised
        What is minimised, but for the tilt.
    step : float
        Size of the grid, a power of two.
    tolerance : float
        Norm of the sum's gradient, tilt included, that counts as a minimum.
    scale : float
        Noise on the point that is found.
    slack : float
        How far the tilt that is used may be from the theorem's.
    tilt : float
        How long it may be.
    """

    objective: Minimised
    step: float
    tolerance: float
    scale: float
    slack: float = 0.0
    tilt: float = 0.0

    @cached_property
    def reach(self) -> float:
        """Length of the longest point that the solver may look at."""
        return self.objective.reach(self.tilt)

    @cached_property
    def smoothness(self) -> float:
        """Smoothness of the sum, rounded up."""
        return up(self.objective.n * self.objective.L, 1e-9)

    def require_reachable(self, unit: float | None = None) -> None:
        """Raise unless the solver is certain to end, whatever the records; ``unit`` is that of this machine's floats.

        Theorem. Write G(x) = n F(x) + b'x, m = n ridge, M = n L and T for the tolerance. If |b| <= ``tilt``, the step h
        is at most T/(4M√d), the reach R at most h/(4 unit), rounding errors at most T/8 wherever |x| <= R, and the
        slack at most T/16, then gradient descent on the grid from 0, x' = x - ĝ(x)/M rounded, meets a point where the
        certificate |ĝ| + rounding + slack <= T holds, after at most (4M/3m) ln(M (G(0) - G*)/(2δ²)) + 1 steps.

        Proof. Let |g| > 2δ with δ = 21T/64 where G <= G(0): there |x| and |x - x*| are at most R/1.01. Long doubles
        hold the grid's points exactly. Errors of ĝ are at most T/8, as those of long doubles are within ``rounding``,
        and others are used where they are, which is below 0.2 |g|; so |ĝ|/M and |x - ĝ/M| are at most 1.2 R/1.01, and
        the quotient and the difference are rounded by 0.3 h together. With the grid's h√d/2, x' is off by 0.8 h√d, as
        if the gradient were off by 0.2 T, and by δ together with its own error. By smoothness G(x') <= G(x) - (|g|² -
        δ²)/2M. That is a decrease by 3|g|²/8M, which is at least 3m/4M of G - G* by strong convexity; so x' stays where
        G <= G(0), which ``reach`` bounds, and G - G* falls geometrically. As |g| > 2δ needs G - G* > 2δ²/M, it ends in
        time; and then |ĝ| + T/8 + T/16 <= 2δ + 2T/8 + T/16 = 31T/32. (docs/proofs.md, section 8, has every step.)

        The tilt is longer than is assumed with a probability below 1e-300 that does not depend on the records. The
        certificate holds then, too, but the solver may never end.
        """
        unit = max(float(np.finfo(np.longdouble).eps), LONG) if unit is None else unit  # solvers are no finer
        self._require_moderate()
        d, error = self.objective.dimension, rounding(self.objective, self.reach, self.tilt, unit)
        coarse = 4 * self.smoothness * self.step * math.sqrt(d) > self.tolerance * (1 + 1e-8)
        if coarse or 16 * self.slack > self.tolerance:
            raise ValueError(
                f"a grid of {self.step:.3g}, or a tilt that is known to {self.slack:.3g}, is too coarse for the "
                f"plan's tolerance of {self.tolerance:.3g}. Make the plan anew."
            )
        if 8 * error > self.tolerance or 4 * unit * self.reach > self.step:
            raise ValueError(
                f"floats of this machine are too coarse for the plan: rounding may reach {error:.3g} at its tolerance "
                f"of {self.tolerance:.3g}. Make the plan anew, take a larger ridge, or use a machine whose long "
                "doubles are longer."
            )
        if self.scale / self.step * (d + 40 * math.sqrt(d) + 800) > 2.0**61:
            raise ValueError(
                f"noise of scale {self.scale:.3g} on a grid of {self.step:.3g} does not fit into 64 bits. "
                f"Use a larger ridge than {self.objective.ridge:.3g}, or a larger epsilon."
            )
        self._require_kept_kind()

    def _require_moderate(self) -> None:
        """Raise where numbers could overflow or vanish."""
        problem, loss = self.objective.stated, self.objective.steepest
        numbers = {
            "the largest norm of a record": problem.record_size(2),
            "the largest weight times it": problem.record_size(2) / self.objective.mean,
            "the loss's slope": loss.slope,
            "the loss's curvature": loss.curvature,
            "the loss at 0": loss.value_at_zero,
            "ridge": problem.ridge,
            "tolerance": self.tolerance,
            "the step of the grid": self.step,
            "the size of a solution": self.reach,
        }
        limits.require_moderate(numbers)

    def _require_kept_kind(self) -> None:
        """Raise if the loss computes with fewer digits than its margins have: its errors would not be bounded."""
        loss = self.objective.loss
        margins = np.linspace(-3, 3, 7, dtype=np.longdouble)
        # A target as losses encode it: a sign or a number, or the place of a class.
        points, target = margins, np.ones(len(margins))
        if loss.outputs > 1:
            points, target = np.outer(margins, np.arange(loss.outputs)), target[:, None]
        kind = loss.derivative(points, target).dtype
        if kind != np.longdouble:
            raise ValueError(f"{type(loss).__name__}.derivative must keep the kind of its margins, got {kind}.")


@dataclass(frozen=True, eq=False)
class Tilt:
    """Noise on the objective itself: b'x is added to the sum, b an integer multiple of ``step`` in its law's units."""

    mechanism: Mechanism
    scale: float
    step: float

    def units(self, problem: Problem) -> np.ndarray:
        """Return the real size of a step along each coordinate: noise of a body is in the domain's units."""
        return self.step * self.mechanism.units(problem)


@dataclass(frozen=True, eq=False)
class Minimum(Request):
    """The minimum on a grid of a goal's objective, of whose integers noise is added to each.

    What is minimised, what the noise is scaled by and when the solver stops come from one place, ``goal``.

    Formal guarantee, without a tilt: replacing a record moves the exact minimum by at most 2 S/(n ridge), and the point
    that is found is within tolerance/(n ridge) of it. With a tilt, that costs what the Jacobian of x -> b adds to its
    noise (``minima``), the tilt's cells are counted, and noise on the point hides how far it is from the minimum.
    """

    has_slopes: ClassVar[bool] = False

    goal: Goal
    noise: Mechanism
    tilt: Tilt | None = None

    def __post_init__(self) -> None:
        mechanisms.require_fit(self.noise, self.problem)
        if self.tilt is not None:
            mechanisms.require_fit(self.tilt.mechanism, self.problem, tilts=True)
            # Noise of a norm in which weights bound nothing is refused.
            self.goal.objective.sensitivity(self.tilt.mechanism.norm)

    @property
    def problem(self) -> Problem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The objective without its own ridge, which records are read for."""
        return self.goal.objective.problem

    @cached_property
    def sensitivity(self) -> float:
        """How far a replaced record moves the point that is found, in the L2 norm, if nothing is tilted; rounded up."""
        return moved(self.goal.objective, self.goal.tolerance)

    @property
    def output_cost(self) -> float:
        """Epsilon of the noise on the point: it hides the tolerance where a tilt protects the minimum."""
        return up(2 * self.goal.objective.radius(self.goal.tolerance) / self.goal.scale)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """Without a tilt that of the noise on the point. With one, in all if it is pure; if Gaussian, of each apart."""
        if self.tilt is None:
            return (self.noise.kind.of_ratio(up(self.sensitivity / self.goal.scale)),)
        objective, noise = self.goal.objective, self.tilt.mechanism
        ratio, output = objective.sensitivity(noise.norm) / self.tilt.scale, self.output_cost
        if not noise.kind.is_pure:
            return noise.kind.of_ratio(up(ratio)), Epsilon(output)
        cells = noise.cell(self.problem) * self.tilt.step / self.tilt.scale
        return (Epsilon(up(minima.total_epsilon(ratio, objective.kappa, objective.saturation) + cells + output)),)

    @staticmethod
    def prepare(records: Records) -> None:
        """Round the records."""
        records.prepare()

    def draw(self, source: "Source") -> Draw:
        """Draw the tilt, if there is one, and then the noise on the point, in integers."""
        size, drawn = (self.problem.dimension,), {}
        if self.tilt is not None:
            scale, shape = self.tilt.scale / self.tilt.step, self.tilt.mechanism.shape(self.problem)
            drawn["tilt"] = source.integers(self.tilt.mechanism, scale, size, shape)
        return drawn | {"noise": source.integers(self.noise, self.goal.scale / self.goal.step, size)}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the minimum as integers: a point of the grid whose gradient is below the tolerance."""
        return records.minimum(self.goal, self.tilt_of(draw))

    def tilt_of(self, draw: Draw) -> np.ndarray:
        """Return the drawn tilt in real units, in long doubles: its rounding counts as theirs."""
        if self.tilt is None:
            return np.zeros(self.problem.dimension, dtype=np.longdouble)
        return draw["tilt"].astype(np.longdouble) * self.tilt.units(self.problem)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the noisy integers in real units."""
        return added(reading, draw["noise"]).astype(float) * self.goal.step


def moved(objective: Minimised, tolerance: float) -> float:
    """Bound how far a replaced record moves the point that a solver finds, in the L2 norm; rounded up."""
    return up(objective.minimum_sensitivity + 2 * objective.radius(tolerance))


def power_of_two(scale: float, bits: int) -> float:
    """Return the power of two in which noise of this scale has about so many bits."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - bits)


class OfMinimum:
    """What plans share that publish minima of their problem with a ridge: which objective, and which noise."""

    reads = (Minimum,)

    problem: Problem
    mechanism: str
    ridge: float

    @cached_property
    def noise(self) -> Mechanism:
        """The noise of the tilt, or of the point where nothing is tilted."""
        return mechanisms.named(self.mechanism)

    @cached_property
    def objective(self) -> Minimised:
        """What is minimised, but for a tilt: the solver's function, and the bounds that noise is scaled by.

        A plan with a weighting returns another one here: all that is released and charged follows.
        """
        return Minimised(self.problem, self.ridge)

    @property
    def minimised(self) -> Problem:
        """The objective as a problem. Its smoothness is that of the domain, which is certain."""
        if self.objective.weighting is not None:
            raise ValueError("an objective with weights is no problem of its own: ask the plan's objective.")
        return self.objective.stated

    def aim(self, extras: dict[str, np.ndarray]) -> Aim:
        """Return what is minimised, but for a tilt: what intervals are for."""
        return Aim(self.objective.stated, self.objective.weighting)
