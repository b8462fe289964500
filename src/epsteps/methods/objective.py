"""The plan of objective perturbation: a model that minimises a tilted objective, and nothing else, is published."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from epsteps.budgets import Approximate, Budget, Cost, Epsilon, Rho, mechanisms
from epsteps.budgets.conversions import gaussian_mu
from epsteps.budgets.corners import GAUSSIAN, Corners, composed
from epsteps.budgets.mechanisms import KNorm, Mechanism
from epsteps.methods import minima
from epsteps.methods.minimum import (
    LEAST_BITS,
    LONG,
    Goal,
    Minimised,
    Minimum,
    OfMinimum,
    Tilt,
    grid_step,
    least_tolerance,
    power_of_two,
    rounding,
    saturation_of,
    tilt_length,
)
from epsteps.plans import covariances
from epsteps.plans.page import problem_fact
from epsteps.plans.plan import Charge, Conversation, OverspentError, Plan, Published
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.sampling import Sampling
from epsteps.problem.saturations import Saturation

# Bits of the integers that the tilt and the noise on the output are drawn in.
TILT_BITS, _OUTPUT_BITS = 36, 28
# What predictions assume of the solution's norm. Never privacy.
SOLUTION_NORM = 3.0
_OUTPUT = KNorm("l2")


@dataclass(frozen=True, eq=False, repr=False)
class ObjectivePlan(OfMinimum, Plan):
    """Objective perturbation, decided: the published x nearly minimises ``n F(x) + b'x`` for a drawn tilt b.

    Only the minimum is published, never the solver's iterates, their number or its time. Of several releases, each with
    its own tilt, the last model is the mean of all, weighted by their precision.

    Formal guarantee: b has the mechanism's law, and costs as ``methods.minima`` says, the Jacobian of x -> b included
    (Chaudhuri, Monteleoni, Sarwate 2011, with the joint bound of that module). What the noise is scaled by and what is
    minimised come from one place, ``objective``. The solver stops where the gradient is below the public ``tolerance``,
    rounding errors included, so that its point is within tolerance/(n ridge) of the exact minimum, by strong convexity;
    noise of density ~ exp(-|z|_2/output_scale) hides the difference (Iyengar et al. 2019). That it gets there, whatever
    the records, is decided before they are read (``methods.minimum.Goal``). The drawn tilt is an integer multiple of a
    tiny step. Spread evenly over its cell it is the continuous tilt of the theorem, at a cost that is counted, and the
    solver's tolerance covers the distance.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    mechanism : str
        Name of the tilt's noise.
    ridge : float
        Ridge of the objective that is minimised, at least the problem's: more of it where noise is large.
    scales, output_scales : tuples of float
        Noise of each release: of the tilt of the sum, and of the output.
    tolerance : float
        Norm of the sum's gradient, tilt included, below which the solver stops.
    """

    problem: Problem
    budget: Budget
    mechanism: str
    ridge: float
    scales: tuple[float, ...]
    output_scales: tuple[float, ...]
    tolerance: float

    def __post_init__(self) -> None:
        saturation_of(self.problem.loss)
        Minimised(self.problem, self.ridge)
        limits.require_solvable(self.problem)
        validate.positive("tolerance", self.tolerance)
        for name in ("scales", "output_scales"):
            object.__setattr__(self, name, tuple(validate.positive(name, scale) for scale in getattr(self, name)))
        if not len(self.scales) == len(self.output_scales) > 0:
            raise ValueError("scales and output_scales must have one entry for each release, and at least one.")
        mechanisms.require_fit(self.noise, self.problem)
        super().__post_init__()

    @property
    def method(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name of the method, for people."""
        return "objective perturbation" if len(self.scales) == 1 else "sequential objective perturbation"

    @property
    def saturation(self) -> Saturation:
        """How the loss's slope saturates."""
        return self.objective.saturation

    @property
    def kappa(self) -> float:
        """What one record weighs against the ridge."""
        return self.objective.kappa

    @property
    def tilt_steps(self) -> tuple[float, ...]:
        """Real size of one integer of each tilt, in the mechanism's units: a power of two."""
        return tuple(power_of_two(scale, TILT_BITS) for scale in self.scales)

    @property
    def output_steps(self) -> tuple[float, ...]:
        """Real size of one integer of each output: a power of two, small enough for rounding to keep the tolerance."""
        return tuple(
            grid_step(self.objective, self.tolerance, scale, _OUTPUT_BITS, tilt)
            for scale, tilt in zip(self.output_scales, self.tilt_lengths, strict=True)
        )

    @property
    def tilt_lengths(self) -> tuple[float, ...]:
        """How long each tilt is at most, but with a probability below 1e-300."""
        return tuple(tilt_length(self.objective, self.noise, scale) for scale in self.scales)

    @cached_property
    def goals(self) -> tuple[Goal, ...]:
        """What the solver must find for each release."""
        return tuple(
            Goal(self.objective, step, self.tolerance, output, self.tilt_slack, tilt)
            for step, output, tilt in zip(self.output_steps, self.output_scales, self.tilt_lengths, strict=True)
        )

    @cached_property
    def minima(self) -> tuple[Minimum, ...]:
        """The releases, as they are asked for."""
        tilts = (Tilt(self.noise, *sizes) for sizes in zip(self.scales, self.tilt_steps, strict=True))
        return tuple(Minimum(goal, _OUTPUT, tilt) for goal, tilt in zip(self.goals, tilts, strict=True))

    def require_executable(self, unit: float | None = None) -> None:
        """Raise unless the solver is certain to meet its tolerance, whatever the records; by public numbers alone.

        In floats of this unit, by default the longest of this machine.
        """
        for goal in self.goals:
            goal.require_reachable(unit)

    @property
    def tilt_slack(self) -> float:
        """How far the tilt that is used may be from the theorem's, in the L2 norm."""
        return up(max(self.tilt_steps) * float(np.linalg.norm(self.noise.units(self.problem))))

    @cached_property
    def output_costs(self) -> tuple[float, ...]:
        """Epsilon of the noise on each output."""
        return tuple(request.output_cost for request in self.minima)

    @cached_property
    def costs(self) -> tuple[float, ...]:
        """Cost of each release: epsilon where the noise is pure; for Gaussian tilts the mu of each, output apart."""
        return tuple(request.costs[0].amount for request in self.minima)

    @cached_property
    def corners(self) -> Corners:
        """The Gaussian releases together, outputs apart: what they are composed by."""
        if not self.budget.delta:
            raise ValueError(f"Gaussian tilts need an Approximate budget, got {self.budget!r}.")
        left = self.budget.amount - math.fsum(self.output_costs)
        return composed_corners(self.kappa, self.saturation, left, self.costs)

    @property
    def cost(self) -> Budget | Corners:
        """What a ledger may be charged instead of ``spending()``: the corners, which compose better."""
        if self.is_pure:
            return self.spending()
        outputs = up(math.fsum(self.output_costs))
        shifts = tuple(shift + outputs for shift in self.corners.shifts)
        return Corners(self.corners.multiplicities, self.corners.ratios, shifts)

    @property
    def of_the_minimum(self) -> "ObjectivePlan":
        """The plan of what is tilted alone, for audits: this one, unless it releases more."""
        return self

    @property
    def is_pure(self) -> bool:
        """Whether the tilts are pure; Gaussian ones are composed by their corners."""
        return self.noise.kind.is_pure

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        if self.is_pure:
            return self.budget.of(Epsilon(up(math.fsum(self.costs) * repetitions)))
        epsilon = self.corners.epsilon(1.0, self.budget.delta) + up(math.fsum(self.output_costs))
        return Approximate(epsilon * repetitions, self.budget.delta * repetitions)

    @property
    def weights(self) -> np.ndarray:
        """What each published minimum counts in their mean: its precision."""
        precision = np.array(self.scales) ** -2.0
        return precision / precision.sum()

    @cached_property
    def error(self) -> float:
        """A bound on the expected excess of the minimised objective at the last model: E|b|²/(2 n² ridge)."""
        energy = 2 * self.noise.half_power(np.array(self.scales), self.problem)
        return float(np.sum(self.weights**2 * energy)) / (2 * self.problem.n**2 * self.ridge)

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        return [
            Charge(
                f"minimum of tilted objective {number}", request.costs[0], scale, f"tilt: {self.mechanism}; output: l2"
            )
            for number, (request, scale) in enumerate(zip(self.minima, self.scales, strict=True), start=1)
        ]

    @property
    def allowance(self) -> list[Cost]:
        """What the tilts and the outputs cost."""
        return [cost for request in self.minima for cost in request.costs]

    def conversation(self) -> Conversation:
        """Publish the minima, one row each; of several, their weighted mean follows as the last."""
        models = []
        for request in self.minima:
            models.append((yield request))
        if len(models) > 1:
            models.append(self.weights @ np.array(models))
        return Published(np.array(models))

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.ridge),
            "Published": "the minima, each once; the solver's iterates, their number and its time stay private",
            "Solver": f"stops where the gradient of the sum is below {self.tolerance:.3g}; noise of scale "
            f"{max(self.output_scales):.3g} on the model covers the rest, at epsilon {sum(self.output_costs):.3g}",
            "Error": f"E F(x) - F* <= {self.error:.6g} for the objective that is minimised",
        }

    @property
    def guessed_error(self) -> float:
        """A public guess of the excess risk: what the noise costs through the guessed curvature, and the ridge."""
        noise = [mechanisms.risk(self.noise, scale, self.minimised) for scale in self.scales]
        bias = (self.ridge - self.problem.ridge) * SOLUTION_NORM**2 / 2
        return float(np.sum(self.weights**2 * noise)) + bias

    def noise_covariance(self, curvature: np.ndarray) -> np.ndarray:
        """Return the covariance of the noise in the last published point, if F has this curvature: a guess."""
        squares, problem = self.weights**2, self.problem
        tilt = float(np.sqrt(squares @ np.square(self.scales)))
        outputs = float(squares @ np.square(self.output_scales)) * (problem.dimension + 1)
        noise = covariances.of_noise(self.noise, tilt / problem.n, problem)
        return covariances.through(curvature, noise) + outputs * np.eye(problem.dimension)


def composed_corners(
    kappa: float, saturation: Saturation, epsilon: float, mus: Sequence[float], later: float = 0.0
) -> Corners:
    """Return the corners of Gaussian tilts with these mus together: the best for their total at this epsilon.

    ``later`` is the mu of Gaussian releases that follow them, and may depend on what they published.
    """
    best = minima.best_corners(saturation, kappa, math.hypot(*mus, later), max(epsilon, 1e-9))
    return composed([*(best.scaled(mu) for mu in mus), *([GAUSSIAN.scaled(later)] if later else [])])


# Share of a release's epsilon that hides the solver's tolerance.
_OUTPUT_SHARE = 0.005
# How much of the predicted error the noise on the output may add: little, and no less than rounding allows.
_WASTE, _MOST_WASTE = 1e-4, 1e-2
# What predictions assume of the size of the solution, for rounding errors. Never privacy.
_SOLUTION_SIZE = 10.0
# What scales are multiplied by until the certificate holds: hardly ever more than the first.
_GROWTHS = (1.0, 1 + 1e-6, 1 + 1e-5, 1 + 1e-4, 1 + 1e-3)
# From which share of the targets' bound on pseudo-Huber loss, in the place of squared loss, grows slowly.
HUBER_SHARE = 0.4


def plan_objective(
    problem: Problem, budget: Budget, *, mechanism: str = "auto", shares: Sequence[float] = (1.0,)
) -> ObjectivePlan:
    """Plan the release of a tilted objective's minimum, or of several with these shares of the budget.

    "auto" takes the noise whose public trace E|b|² is smallest. Under (epsilon, delta) a pure release is a candidate
    too: in few dimensions it often needs less noise than a Gaussian one. In the place of squared loss, whose slope has
    no bound, pseudo-Huber loss is minimised: nearly the same where residuals are small.
    """
    limits.require_solvable(problem)
    problem = replace(problem, loss=problem.loss.stand_in(HUBER_SHARE))
    if not all(share > 0 for share in shares) or not math.isclose(math.fsum(shares), 1.0, rel_tol=1e-9):
        raise ValueError(f"shares must be positive and add up to 1, got {tuple(shares)!r}.")
    noises = candidates(problem, budget, mechanism)
    plans = [planned(ObjectivePlan, problem, budget, noise, tuple(shares)) for noise in noises]
    best = min(plans, key=lambda plan: plan.guessed_error)
    best.require_executable(LONG)
    return best


def candidates(problem: Problem, budget: Budget, mechanism: str) -> list[Mechanism]:
    """Return the noise of this name; of "auto" the best pure one, and the best Gaussian one where there is a delta."""
    validate.choice("mechanism", mechanism, ("auto", *mechanisms.NAMES))
    if mechanism != "auto":
        return [mechanisms.named(mechanism)]
    return [mechanisms.smallest(problem, kind) for kind in ((Epsilon, Rho) if budget.delta else (Epsilon,))]


def minimax_ridge(problem: Problem, budget: Budget, noise: Mechanism) -> float:
    """Return the ridge, at least the problem's, that balances its bias against noise of the whole budget.

    For a solution of norm r the bias is at most ridge r²/2, and the noise costs at most E|w|²/(2 ridge): together least
    at √E|w|²/r. The norm is guessed, from nothing private.
    """
    total = budget.capacity(noise.kind)
    full = Sampling(problem.n, problem.n)
    scale = float(noise.scales(problem.typical_sensitivity(noise.norm), np.array(total), full))
    return max(problem.ridge, math.sqrt(2 * float(noise.half_power(scale, problem))) / SOLUTION_NORM)


P = TypeVar("P", bound=ObjectivePlan)


def planned(
    kind: type[P],
    problem: Problem,
    budget: Budget,
    noise: Mechanism,
    shares: tuple[float, ...],
    later: float = 0.0,
    **others: Any,
) -> P:
    """Plan tilts with this noise and these shares of the budget, as a plan of this kind with ``others`` for fields.

    Of a pure budget the shares may leave something; what Gaussian releases take that follow is their mu, ``later``.
    """
    mechanisms.require_fit(noise, problem)
    if noise.kind.is_pure:
        costs = [share * down(budget.capacity(Epsilon), 1e-9) for share in shares]
        ridge, scales = _pure_scales(problem, noise, costs)
    elif budget.delta:
        costs = [share * budget.amount for share in shares]
        ridge, scales = _gaussian_scales(problem, noise, budget, shares, later)
    else:
        raise ValueError(f"{budget} does not cover {noise.name} noise on an objective. Use mechanism='auto'.")
    outputs = [_OUTPUT_SHARE * cost for cost in costs]
    minimised = Minimised(problem, ridge)
    tolerance = _tolerance(minimised, noise, scales, outputs)
    radius = minimised.radius(tolerance)
    for growth in _GROWTHS:
        try:
            return kind(
                problem=problem,
                budget=budget,
                mechanism=noise.name,
                ridge=ridge,
                scales=tuple(growth * scale for scale in scales),
                output_scales=tuple(minima.output_scale(radius, output) * (1 + 1e-9) for output in outputs),
                tolerance=tolerance,
                **others,
            )
        except OverspentError:  # corners are chosen again for the certificate, which is what counts
            if growth == _GROWTHS[-1]:
                raise
    raise AssertionError  # the loop returns or raises


def _pure_scales(problem: Problem, noise: Mechanism, costs: Sequence[float]) -> tuple[float, list[float]]:
    """Return the ridge that pays, and the scale of each tilt."""
    bounds = _least_ridge(problem)
    saturation, sensitivity, least = bounds.saturation, bounds.sensitivity(noise.norm), bounds.ridge
    size = problem.record_size(2)
    energy = 2 * float(noise.half_power(sensitivity, problem))
    cells = noise.cell(problem) * 2.0**-TILT_BITS
    tilts = [down((1 - _OUTPUT_SHARE) * cost - cells, 1e-9) for cost in costs]
    ridge = minima.paying_ridge(least, problem.n, size, max(tilts), saturation, energy, SOLUTION_NORM).ridge
    # A small share must be able to pay the Jacobian, too. That it clearly can is quickly seen.
    for tilt in tilts:
        if saturation.largest(up(1.01 * size**2 / (problem.n * ridge), 1e-6), 0.0) >= tilt:
            ridge = max(ridge, 1.01 * size**2 / (problem.n * minima.kappa_limit(tilt, saturation)))
    kappa = minima.record_weight(size, problem.n, ridge)
    return ridge, [up(sensitivity / minima.noise_epsilon(tilt, kappa, saturation)) for tilt in tilts]


def _gaussian_scales(
    problem: Problem, noise: Mechanism, budget: Budget, shares: tuple[float, ...], later: float
) -> tuple[float, list[float]]:
    """Return the ridge that pays, and the scale of each Gaussian tilt; shares are of mu²."""
    bounds = _least_ridge(problem)
    sensitivity, least = bounds.sensitivity(noise.norm), bounds.ridge
    energy = 2 * float(noise.half_power(sensitivity / problem.n, problem))
    # A larger ridge costs bias, and helps twice: noise is divided by it, and one record weighs less against it.
    tilts = _GaussianTilts(problem, budget, shares, later, least, energy)
    best = min(tilts.candidates())
    return best.ridge, [sensitivity / (best.mu * math.sqrt(share)) * (1 + 1e-9) for share in shares]


class _Candidate(NamedTuple):
    """A ridge with the total mu of its tilts, and the risk that is predicted for them."""

    risk: float
    ridge: float
    mu: float


@dataclass(frozen=True)
class _GaussianTilts:
    """What Gaussian tilts of these shares are predicted to cost, by the ridge: least, least 1.25, least 1.25², ..."""

    problem: Problem
    budget: Budget
    shares: tuple[float, ...]
    later: float
    least: float
    energy: float

    def candidates(self) -> list[_Candidate]:
        """Return ridges with their mus, the best one among them: others are left out that bounds prove to be worse.

        No tilt has a larger mu than a plain Gaussian mechanism. From the ridge that would be best with that, which is
        too small, the search goes up as long as the bias alone is not worse, and then down.
        """
        ridges = [self.least]
        while self.least_risk(ridges[-1] * 1.25) < self.least_risk(ridges[-1]):
            ridges.append(ridges[-1] * 1.25)
        found: list[_Candidate] = []
        ridge = ridges.pop()
        while not found or self.bias(ridge) < min(found).risk:
            self._try(ridge, found)
            ridge *= 1.25
        while ridges and self.least_risk(ridges[-1]) < min(found).risk:
            self._try(ridges.pop(), found)
        return found

    def bias(self, ridge: float) -> float:
        """Return what more ridge costs, for a solution of the norm that is guessed."""
        return (ridge - self.least) * SOLUTION_NORM**2 / 2

    def least_risk(self, ridge: float) -> float:
        """Bound the risk from below: that with the noise of a plain Gaussian mechanism."""
        return self.bias(ridge) + self.energy / (2 * self._most**2 * ridge)

    @cached_property
    def epsilon(self) -> float:
        """What the tilts may cost together."""
        return down(self.budget.amount * (1 - _OUTPUT_SHARE), 1e-9)

    @cached_property
    def _most(self) -> float:
        return up(gaussian_mu(self.epsilon, self.budget.delta), 1e-6)

    def _try(self, ridge: float, found: list[_Candidate]) -> None:
        minimised = Minimised(self.problem, ridge)
        if found and (left := min(found).risk - self.bias(ridge)) > 0:
            needed = math.sqrt(self.energy / (2 * ridge * left))
            if minima.is_beyond(
                down(needed, 1e-6), self.epsilon, self.budget.delta, minimised.kappa, minimised.saturation
            ):
                return
        mu = _largest_mu(minimised, self.budget, self.shares, self.later)
        if mu > 0:
            found.append(_Candidate(self.bias(ridge) + self.energy / (2 * mu**2 * ridge), ridge, mu))


def _least_ridge(problem: Problem) -> Minimised:
    """Return the objective with the least ridge that it may have, or raise if it has no minimum to protect."""
    saturation_of(problem.loss)
    return Minimised(problem, max(problem.ridge, 1e-12))


def _largest_mu(minimised: Minimised, budget: Budget, shares: tuple[float, ...], later: float) -> float:
    """Return the largest total mu of tilts with these shares; 0 if all else alone costs more than epsilon."""
    saturation, epsilon = minimised.saturation, down(budget.amount * (1 - _OUTPUT_SHARE), 1e-9)
    kappa = minimised.kappa
    single = minima.calibrated(epsilon, budget.delta, kappa, saturation)
    if single is None:
        return 0.0
    if len(shares) == 1 and not later:
        return single.mu
    corners = partial(composed_corners, kappa, saturation, epsilon, later=later)
    return _shared_mu(single.mu, shares, corners, epsilon, budget.delta)


def _shared_mu(
    most: float,
    shares: tuple[float, ...],
    corners: Callable[[Sequence[float]], Corners],
    epsilon: float,
    delta: float,
) -> float:
    """Return the largest total mu, at most that of a single release, that is (epsilon, delta)-private when shared."""

    def excess(mu: float) -> float:
        return corners([mu * math.sqrt(share) for share in shares]).delta(1.0, epsilon) - delta

    low, high = most * 1e-3, most
    if excess(low) > 0:
        return 0.0
    while high / low > 1 + 1e-7:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    return low


def _tolerance(minimised: Minimised, noise: Mechanism, scales: Sequence[float], outputs: Sequence[float]) -> float:
    """Return the gradient norm at which the solver stops: as small as pays, and as large as precision needs."""
    problem, scale, output = minimised.problem, max(scales), max(outputs)
    energy = 2 * float(noise.half_power(scale, problem))
    wanted, most = (
        minima.gradient_tolerance(energy, minimised.dimension, output, minimised.ridge, minimised.L, waste)
        for waste in (_WASTE, _MOST_WASTE)
    )
    cell = scale * 2.0**-35 * float(np.linalg.norm(np.maximum(problem.units, 1.0)))
    usual = 2 * rounding(minimised, _SOLUTION_SIZE, 0.0, 2.0**-52)
    # The noise on the output is 2 tolerance/(n ridge output), and its integers are as fine as its least bits ask for.
    finest = 2.0**LEAST_BITS * output * minimised.n * minimised.ridge
    # A scale may still grow a little until the certificate holds.
    needed = least_tolerance(minimised, 1.01 * tilt_length(minimised, noise, scale), finest)
    return max(wanted, min(usual, most), needed, 8 * cell)
