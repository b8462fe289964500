"""The plan of objective perturbation: a model that minimises a tilted objective, and nothing else, is published."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.random import Generator

from epsteps.budgets import Approximate, Budget, Cost, Epsilon, Rho, mechanisms
from epsteps.budgets.conversions import gaussian_mu
from epsteps.budgets.corners import GAUSSIAN, Corners, composed
from epsteps.budgets.mechanisms import KNorm, Mechanism
from epsteps.methods import minima
from epsteps.methods.intervals.posterior import Released, Tilts, ball_draws, noise_of
from epsteps.methods.intervals.table import Intervals, intervals_for
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
from epsteps.plans import notation
from epsteps.plans.notation import problem_fact
from epsteps.plans.plan import Aim, Charge, Conversation, OverspentError, Plan, Published
from epsteps.plans.utility import Parts, Typical, Utility, held_bias, least_of, ridge_bias, ridges
from epsteps.problem import limits, validate
from epsteps.problem.losses import POWERS, Loss, PseudoHuber, Squared
from epsteps.problem.memory import PROBLEMS, remembered
from epsteps.problem.problem import Problem, restated
from epsteps.problem.rounding import down, up
from epsteps.problem.saturations import Saturation
from epsteps.problem.weighting import Weighting

# Bits of the integers that the tilt and the noise on the output are drawn in.
TILT_BITS, _OUTPUT_BITS = 36, 28
_OUTPUT = KNorm("l2")


def _plans_from(contents: Sequence[dict[str, Any]]) -> tuple["ObjectivePlan", ...]:
    """Read the plans of earlier minima, and check what each certifies."""
    return tuple(ObjectivePlan.from_json(json.dumps(content)) for content in contents)


@dataclass(frozen=True, eq=False, repr=False)
class ObjectivePlan(OfMinimum, Plan):
    """Objective perturbation, decided: the published x nearly minimises ``n F(x) + b'x`` for a drawn tilt b.

    Only the minimum is published, never the solver's iterates, their number or its time. Of several releases, each with
    its own tilt, the last model is the mean of all, weighted by their precision. Minima of ``earlier`` plans, each with
    a ridge and a tolerance of its own, are published before, and are no part of the model.

    Formal guarantee: b has the mechanism's law, and costs as ``methods.minima`` says, the Jacobian of x -> b included
    (Chaudhuri, Monteleoni, Sarwate 2011, with the joint bound of that module). What the noise is scaled by and what is
    minimised come from one place, ``objective``. The solver stops where the gradient is below the public ``tolerance``,
    rounding errors included, so that its point is within tolerance/(n ridge) of the exact minimum, by strong convexity;
    noise of density ~ exp(-|z|_2/output_scale) hides the difference (Iyengar et al. 2019). That it gets there, whatever
    the records, is decided before they are read (``methods.minimum.Goal``). The drawn tilt is an integer multiple of a
    tiny step. Spread evenly over its cell it is the continuous tilt of the theorem, at a cost that is counted, and the
    solver's tolerance covers the distance. Earlier minima are pure: their epsilons are added, whatever the later noise.

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
    instead_of : str
        Name of the loss that was declared, where the problem's takes its place.
    earlier : tuple of ObjectivePlan
        Plans of pure minima that are published before, from the same records.
    """

    readers: ClassVar = {"earlier": _plans_from}
    writers: ClassVar = {"earlier": lambda plans: [notation.written(plan) for plan in plans]}

    # Of intervals, where none is asked for.
    usual_level = 0.95

    problem: Problem
    budget: Budget
    mechanism: str
    ridge: float
    scales: tuple[float, ...]
    output_scales: tuple[float, ...]
    tolerance: float
    instead_of: str = ""
    earlier: tuple["ObjectivePlan", ...] = ()

    def __post_init__(self) -> None:
        saturation_of(self.problem.loss)
        self.objective  # noqa: B018 - it refuses what has no minimum to protect
        limits.require_solvable(self.problem)
        validate.positive("tolerance", self.tolerance)
        if not isinstance(self.instead_of, str):
            raise TypeError(f"instead_of must be the name of a loss, or '', got {self.instead_of!r}.")
        for name in ("scales", "output_scales"):
            object.__setattr__(self, name, tuple(validate.positive(name, scale) for scale in getattr(self, name)))
        if not len(self.scales) == len(self.output_scales) > 0:
            raise ValueError("scales and output_scales must have one entry for each release, and at least one.")
        mechanisms.require_fit(self.noise, self.problem, tilts=True)
        for plan in self.earlier:
            if plan.earlier or not plan.is_pure or not plan.problem.same_records(self.problem):
                raise ValueError("earlier minima must be pure, with none before them, and of the same records.")
        super().__post_init__()

    @property
    def method(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name of the method, for people."""
        several = len(self.scales) > 1 or self.earlier
        return "sequential objective perturbation" if several else "objective perturbation"

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
    def minima(self) -> tuple[Minimum, ...]:
        """The releases, as they are asked for, earlier ones first."""
        tilts = (Tilt(self.noise, *sizes) for sizes in zip(self.scales, self.tilt_steps, strict=True))
        goals = (
            Goal(self.objective, step, self.tolerance, output, self.tilt_slack, tilt)
            for step, output, tilt in zip(self.output_steps, self.output_scales, self.tilt_lengths, strict=True)
        )
        own = (Minimum(goal, _OUTPUT, tilt) for goal, tilt in zip(goals, tilts, strict=True))
        return (*(request for plan in self.earlier for request in plan.minima), *own)

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What the solver must find for each release."""
        return tuple(request.goal for request in self.minima)

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
        """The Gaussian releases together, what is pure apart: what they are composed by."""
        if not self.budget.delta:
            raise ValueError(f"Gaussian tilts need an Approximate budget, got {self.budget!r}.")
        mus = self.costs[-len(self.scales) :]
        return composed_corners(self.kappa, self.saturation, self.budget.amount - self.pure_cost, mus)

    @cached_property
    def pure_cost(self) -> float:
        """Epsilon of all that is pure where the tilts are Gaussian: earlier minima, and noise on the outputs."""
        return up(math.fsum(request.costs[-1].amount for request in self.minima))

    @property
    def cost(self) -> Budget | Corners:
        """What a ledger may be charged instead of ``spending()``: the corners, which compose better."""
        if self.is_pure:
            return self.spending()
        shifts = tuple(shift + self.pure_cost for shift in self.corners.shifts)
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
        epsilon = self.corners.epsilon(1.0, self.budget.delta) + self.pure_cost
        return Approximate(epsilon * repetitions, self.budget.delta * repetitions)

    @property
    def weights(self) -> np.ndarray:
        """What each published minimum counts in their mean: its precision."""
        return _weights(self.scales)

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        requests, tilts = self.minima, [request.tilt for request in self.minima if request.tilt is not None]
        return [
            Charge(
                f"minimum of tilted objective {number}",
                request.costs[0],
                tilt.scale,
                f"tilt: {tilt.mechanism.name}; output: l2",
            )
            for number, (request, tilt) in enumerate(zip(requests, tilts, strict=True), start=1)
        ]

    @property
    def allowance(self) -> list[Cost]:
        """What the tilts and the outputs cost."""
        return [cost for request in self.minima for cost in request.costs]

    def conversation(self) -> Conversation:
        """Publish the minima, one row each; of several for one model, their weighted mean follows as the last."""
        models = []
        for request in self.minima:
            models.append((yield request))
        if len(self.scales) > 1:
            models.append(self.weights @ np.array(models[-len(self.scales) :]))
        return Published(np.array(models))

    def released(self, x: np.ndarray, extras: dict[str, np.ndarray], *tilts: Tilts) -> Released:
        """Return what intervals are computed from: the published model alone, and the laws of its noise.

        There are draws of each minimum's tilt, times what it counts in their mean.
        """
        outputs = self.weights * self.output_scales
        return Released(
            x=x,
            n=self.problem.n,
            ridge=self.ridge,
            tilts=tilts[-1],
            earlier=tilts[:-1],
            output_scale=float(outputs[-1]),
            moves=partial(ball_draws, outputs[:-1], self.problem.dimension) if len(outputs) > 1 else None,
            slack=self.objective.radius(self.tolerance),
            likelihood=self.problem.loss.is_likelihood,
        )

    def aim(self, extras: dict[str, np.ndarray]) -> Aim:
        """Return what is minimised, but for a tilt, and the tilts: what intervals are for."""
        sizes = (self.weights * self.scales).tolist()
        return super().aim(extras)._replace(tilts=tuple((self.noise, size) for size in sizes))

    @property
    def changes(self) -> list[str]:
        """In what else than the ridge the minimised objective differs from the declared one, in words."""
        name = type(self.problem.loss).__name__
        return [f"{name} loss in the place of {self.instead_of}"] if self.instead_of else []

    def intervals(
        self,
        path: np.ndarray,
        extras: dict[str, np.ndarray],
        draw: Callable[..., np.ndarray],
        generator: Generator,
        *,
        level: float | None = None,
        changes: Sequence[str] | None = None,
        **asked: Any,
    ) -> Intervals:
        """Return intervals for a published model's coefficients, from published numbers alone: see ``Run.intervals``.

        Of several minima of one ridge, whose mean is the model, they are for the minimum without noise of all.
        ``changes`` take the place of the plan's own.
        """
        sizes = self.weights * self.scales / self.problem.n
        tilts = (noise_of(draw, self.noise, self.problem, size) for size in sizes.tolist())
        released = self.released(path[-1], extras, *tilts)
        asked |= {"asked_ridge": self.problem.ridge, "changes": self.changes if changes is None else changes}
        level = self.usual_level if level is None else level
        return intervals_for(self.problem, released, generator, level=level, **asked)

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        published, watched, count = "the minima, each once", "", len(self.minima)
        if count > 1:
            model = "and their weighted mean, which is the model" if len(self.scales) > 1 else "the last is the model"
            published = f"{count} minima, each once, {model}"
            watched = "; where others watch it, use method='curvature' or 'descent'"
        stops = ", then ".join(f"{tolerance:.3g}" for tolerance in dict.fromkeys(goal.tolerance for goal in self.goals))
        first = "".join(f"; minimum {k} has ridge {plan.ridge:g}" for k, plan in enumerate(self.earlier, start=1))
        return {
            "Problem": problem_fact(self.problem, self.ridge),
            "Published": f"{published}{first}; the solver's iterates, their number and its time stay private{watched}",
            "Solver": f"stops where the gradient of the sum is below {stops}; noise of scale "
            f"{max(goal.scale for goal in self.goals):.3g} on the model covers the rest, at epsilon "
            f"{sum(self.output_costs):.3g}",
        }

    @cached_property
    def predicted(self) -> float:
        """Predicted E F(x) - F* of the declared objective: what the tilts and the larger ridge cost.

        What noise on the output adds is by far less, and not counted.
        """
        return self._sought.predicted(self)

    @cached_property
    def _sought(self) -> "Sought":
        return Sought.of(self.problem, self.instead_of)

    @property
    def proved_excess(self) -> float | None:
        """A bound on E F(x) - F* of the declared objective; none where another loss is minimised in its place.

        With the ridge r' that is minimised, tilt b and the solver's rest e, |e| <= tolerance, the gradient of F' is
        (e - b)/n at the point that noise z is added to. So F' there is at most |e - b|²/(2 n² r') above F'*, by strong
        convexity, and z of mean 0 adds at most L' E|z|²/2. F' at a mean of points is at most the mean of F'. What the
        larger ridge costs is bounded in ``utility.ridge_bias``.
        """
        if self.instead_of:
            return None
        powers = 2 * self.noise.half_power(np.array(self.scales), self.problem)
        tilted = (np.sqrt(powers) + self.tolerance) ** 2 / (2 * self.problem.n**2 * self.ridge)
        noisy = [self.objective.L * minima.ball_energy(s, self.problem.dimension) / 2 for s in self.output_scales]
        return float(self.weights @ (tilted + noisy)) + ridge_bias(self.problem, self.ridge)

    def worth(self) -> Utility:
        """Return what the model is expected to be worth."""
        return self._sought.typical.utility(self.predicted, self.proved_excess)

    def utility_after(self, path: np.ndarray, extras: Mapping[str, np.ndarray]) -> Utility:
        """Return what the model of a run that published this is expected to be worth, by its length, too."""
        return self.utility.after(self._sought.parts(self), path[-1], self.problem.loss.outputs)


@dataclass(frozen=True)
class Sought:
    """What is to be minimised but for the ridge, and what that is predicted to cost in the objective as declared.

    A loss that takes the place of another bends h times as much near the minimum. So a ridge r and a tilt b move its
    minimum as r/h and b/h move that of the declared loss, from which it is a little apart even without them: what a
    larger ridge leaves of that is what it leaves of the model.

    Parameters
    ----------
    problem : Problem
        What is minimised, with the declared ridge.
    typical : Typical
        The typical problem of the loss that was declared.
    lost : float
        What the minimum is expected to cost in the declared objective, without noise and a larger ridge.
    weighting : Weighting, optional
        What long records count.
    power : float
        What noise costs more than the typical problem has it.
    firm : float
        The least ridge that may be chosen.
    """

    problem: Problem
    typical: Typical
    lost: float = 0.0
    weighting: Weighting | None = None
    power: float = 1.0
    firm: float = 0.0

    @classmethod
    def of(cls, problem: Problem, instead_of: str) -> "Sought":
        """Return that of a problem whose loss takes the place of squared loss, or of none."""
        return cls.of_losses(problem, [problem.loss], instead_of)[0]

    @classmethod
    def of_losses(cls, problem: Problem, losses: Sequence[Loss], instead_of: str) -> list["Sought"]:
        """Return those of several losses of the same targets, any of which takes the place of squared loss, or none."""
        stated = [problem if loss == problem.loss else restated(problem, loss=loss) for loss in losses]
        if not instead_of:
            return [cls(each, Typical(each)) for each in stated]
        bound = problem.loss.targets.largest
        typical = Typical(restated(problem, loss=Squared(bound)))
        return [cls(each, typical, unknown_bias(bound, cast(PseudoHuber, each.loss))) for each in stated]

    def minimised(self, ridge: float) -> Minimised:
        """Return what is minimised with this ridge."""
        return Minimised(self.problem, ridge, self.weighting)

    @cached_property
    def least(self) -> Minimised:
        """The objective with the least ridge that it may have; it raises if that has no minimum to protect."""
        saturation_of(self.problem.loss)
        return self.minimised(max(self.problem.ridge, 1e-12))

    @cached_property
    def bend(self) -> float:
        """How much the loss bends, over that of the one that was declared."""
        return self.problem.loss.typical_curvature / self.typical.problem.loss.typical_curvature

    @cached_property
    def ridges(self) -> np.ndarray:
        """The ridges to choose among: they pull every loss by the same steps, and depend on no budget and no n."""
        pulls = ridges(self.typical.problem)
        return np.unique(np.maximum(self.bend * pulls, max(pulls[0], self.firm)))

    def predicted(self, plan: ObjectivePlan) -> float:
        """Return what a plan's tilts and its larger ridge are predicted to cost."""
        square = float(plan.weights**2 @ np.square(plan.scales))
        return float(self.bias(plan.ridge) + square * self.noise(plan.noise, plan.ridge))

    def parts(self, plan: ObjectivePlan) -> Parts:
        """Return what is predicted in parts, with the length of the model that goes with it."""
        square, pull = float(plan.weights**2 @ np.square(plan.scales)), plan.ridge / self.bend
        return Parts(
            pulled=float(self.typical.bias(pull)),
            noise=square * float(self.noise(plan.noise, plan.ridge)),
            other=self.lost * float(self.typical.kept(pull)),
            length=self.typical.length(square * self._power(plan.noise), pull),
        )

    def bias(self, larger: np.ndarray | float) -> np.ndarray:
        """Return what a ridge, or each of several, costs without noise."""
        pull = np.asarray(larger) / self.bend
        bias = self.typical.bias(pull)
        return bias + self.lost * self.typical.kept(pull) if self.lost else bias

    def noise(self, noise: Mechanism, larger: np.ndarray | float) -> np.ndarray:
        """Return what noise of scale 1 on the sum costs with a ridge, or with each of several."""
        return self.typical.noise(self._power(noise), np.asarray(larger) / self.bend)

    def _power(self, noise: Mechanism) -> np.ndarray:
        return self.power * self.typical.gradient_power(noise) / (self.problem.n * self.bend) ** 2


def unknown_bias(bound: float, loss: PseudoHuber) -> float:
    """Return what holding slopes is expected to cost where residuals are as likely small as large."""
    return math.fsum(held_bias(size * bound, loss.c, loss.power) for size in UNKNOWN) / len(UNKNOWN)


@np.errstate(all="ignore")  # budgets may be tiny or huge
def least_costs(offers: Sequence[tuple[Sought, Mechanism]], budget: Budget) -> list[float]:
    """Bound from below what tilts for the whole budget are predicted to cost.

    The Jacobian is counted for pure tilts alone, from below. All offers are about one typical problem, along whose
    entries they are added up together. Losses that bend alike share what does not depend on the noise.
    """
    typical = offers[0][0].typical
    curvature, pulls = typical.curvature, ridges(typical.problem)
    bends, places = np.unique([sought.bend for sought, _ in offers], return_inverse=True)
    larger = (np.maximum(np.outer(bends, pulls), pulls[0]) / bends[:, None])[..., None]
    left = (larger - typical.problem.ridge) / (curvature + larger)
    bias, kept = left**2 @ typical.gains, (1 - left) ** 2 @ typical.gains / typical.trivial
    damped = (curvature + typical.problem.ridge) / (2 * (curvature + larger) ** 2)
    noisy = {noise: damped @ typical.gradient_power(noise) for noise in {noise for _, noise in offers}}
    most = {noise: _most(noise, budget) for noise in noisy}
    sizes = [sought.least.sensitivity(noise.norm) / (sought.problem.n * sought.bend) for sought, noise in offers]
    lost, powers = (np.array([getattr(sought, name) for sought, _ in offers]) for name in ("lost", "power"))
    energy = np.array([noisy[noise][place] for (_, noise), place in zip(offers, places.tolist(), strict=True)])
    paid = np.array([[most[noise]] for _, noise in offers]) * np.ones(len(pulls))
    pure: dict[Saturation, list[int]] = {}
    for place, (sought, noise) in enumerate(offers):
        if noise.kind.is_pure:
            pure.setdefault(sought.least.saturation, []).append(place)
    for saturation, alike in pure.items():
        weights = np.array([[offers[place][0].least.kappa * offers[place][0].least.ridge] for place in alike])
        ridge = np.array(bends[places[alike], None] * larger[places[alike], :, 0])
        paid[alike] = _most_noise(saturation, paid[alike], down(weights / ridge, 1e-6))
    costs = bias[places] + lost[:, None] * kept[places] + (powers * np.square(sizes))[:, None] * energy / paid**2
    costs[paid == 0] = math.inf
    return (costs.min(axis=1) * (1 - 1e-9)).tolist()


def _most_noise(saturation: Saturation, epsilon: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    """Bound the epsilon of the noise of pure tilts that cost so much, from above; where none is left in a row, that.

    With noise u a tilt costs at least u/2 + J(a) + u a/2, for every a in [0, 1].
    """
    most = epsilon
    for a in _CHARGED:
        most = np.minimum(most, (epsilon - saturation.charges(kappa, a)) * (2 / (1 + a)))
    is_left = most > 0
    return np.where(is_left | ~np.any(is_left, axis=1, keepdims=True), np.where(is_left, up(most, 1e-6), epsilon), 0.0)


def _most(noise: Mechanism, budget: Budget) -> float:
    """Return the epsilon, or the mu, of a tilt for the whole budget if its Jacobian were free."""
    return budget.capacity(Epsilon) if noise.kind.is_pure else up(gaussian_mu(budget.amount, budget.delta), 1e-6)


def composed_corners(
    kappa: float, saturation: Saturation, epsilon: float, mus: Sequence[float], later: float = 0.0
) -> Corners:
    """Return the corners of Gaussian tilts with these mus together: the best for their total at this epsilon.

    ``later`` is the mu of Gaussian releases that follow them, and may depend on what they published.
    """
    best = minima.best_corners(saturation, kappa, math.hypot(*mus, later), max(epsilon, 1e-9))
    return composed([*(best.scaled(mu) for mu in mus), *([GAUSSIAN.scaled(later)] if later else [])])


# Share of a release's epsilon that hides the solver's tolerance, and of its predicted error that this may add. As the
# tolerance grows with the first and with the root of the second, and a share of epsilon costs twice as much of the
# error, equal shares lose least. Where rounding needs more of the error, it may have this much.
SPARED, _MOST_WASTE = 0.005, 1e-2
# What predictions assume of the size of the solution, for rounding errors. Never privacy.
_SOLUTION_SIZE = 10.0
# What scales are multiplied by until the certificate holds: hardly ever more than the first.
_GROWTHS = (1.0, 1 + 1e-6, 1 + 1e-5, 1 + 1e-4, 1 + 1e-3)
# Shares of slopes at which the Jacobian of a pure tilt is charged where its cost is bounded from below.
_CHARGED = (0.0, 0.5, 0.8)
# Residuals where nothing is known of them, over those that predictions for targets of a bound are right for: a sharp
# loss that is held too low costs much.
UNKNOWN = (0.5, 1.5)
# Shares of the targets' bound from which on pseudo-Huber loss, in the place of squared loss, grows slowly.
HELD_SHARES = (0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.1, 1.6, 2.2, 3.2, 4.5, 6.4, 9.0, 12.8)


def plan_objective(
    problem: Problem,
    budget: Budget,
    *,
    mechanism: str = "auto",
    shares: Sequence[float] = (1.0,),
    earlier: tuple[ObjectivePlan, ...] = (),
    spared: float = SPARED,
) -> ObjectivePlan:
    """Plan the release of a tilted objective's minimum, or of several with these shares of what earlier ones leave.

    "auto" takes the noise whose public trace E|b|² is smallest. Under (epsilon, delta) a pure release is a candidate
    too: in few dimensions it often needs less noise than a Gaussian one. In the place of squared loss, whose slope has
    no bound, pseudo-Huber loss is minimised: nearly the same where residuals are small against its own largest slope.
    Noise grows with that slope, and what is lost by the other loss falls: the plan is that of the least sum.
    """
    limits.require_solvable(problem)
    if not all(share > 0 for share in shares) or not math.isclose(math.fsum(shares), 1.0, rel_tol=1e-9):
        raise ValueError(f"shares must be positive and add up to 1, got {tuple(shares)!r}.")
    plans = _improving(problem, budget, mechanism, tuple(shares), earlier=earlier, spared=spared)
    *_, (best, _) = plans  # with no limit there is one: the last is the best
    best.require_executable(LONG)
    return best


@remembered(PROBLEMS)
def is_expected(problem: Problem, budget: Budget, most: float) -> bool:
    """Whether the plan of one minimum is predicted to cost this or less: it is not made where it cannot be."""
    limits.require_solvable(problem)
    plans = _improving(problem, budget, "auto", (1.0,), limit=math.nextafter(most, math.inf))
    return any(predicted <= most for _, predicted in plans)


def _improving(
    problem: Problem,
    budget: Budget,
    mechanism: str,
    shares: tuple[float, ...],
    *,
    limit: float = math.inf,
    **fields: Any,
) -> Iterator[tuple[ObjectivePlan, float]]:
    """Yield plans that are predicted to cost less than a limit, each less than the one before, and what they cost."""
    losses, instead_of = stand_ins(problem)
    sought = Sought.of_losses(problem, losses, instead_of)
    for noise in candidates(sought[0].problem, budget, mechanism):
        least = least_costs([(each, noise) for each in sought], budget) if len(sought) > 1 else [0.0]
        for place in np.argsort(least, kind="stable"):
            if least[place] < limit:
                asked = {"limit": limit, "instead_of": instead_of} | fields
                found = planned(ObjectivePlan, sought[place], budget, noise, shares, **asked)
                if found is not None:
                    limit = sought[place].predicted(found)
                    yield found, limit


def stand_ins(problem: Problem) -> tuple[list[Loss], str]:
    """Return losses that can be minimised, and the name of the problem's own where they take its place, if they do."""
    losses = list(dict.fromkeys(problem.loss.stand_in(share, power) for power in POWERS for share in HELD_SHARES))
    return losses, "" if problem.loss in losses else type(problem.loss).__name__


def candidates(problem: Problem, budget: Budget, mechanism: str) -> list[Mechanism]:
    """Return the noise of this name; of "auto" the best pure one, and the best Gaussian one where there is a delta."""
    validate.choice("mechanism", mechanism, ("auto", *mechanisms.TILTS))
    if mechanism != "auto":
        return [mechanisms.named(mechanism)]
    return [mechanisms.smallest(problem, kind, tilts=True) for kind in ((Epsilon, Rho) if budget.delta else (Epsilon,))]


@dataclass(frozen=True)
class _Offer:
    """A ridge, and the tilts that the budget allows with it."""

    ridge: float
    scales: tuple[float, ...]


P = TypeVar("P", bound=ObjectivePlan)


def planned(
    kind: type[P],
    sought: Sought,
    budget: Budget,
    noise: Mechanism,
    shares: tuple[float, ...],
    *,
    limit: float = math.inf,
    later: float = 0.0,
    earlier: tuple[ObjectivePlan, ...] = (),
    spared: float = SPARED,
    **fields: Any,
) -> P | None:
    """Return the plan of this kind with this noise; None if noise and ridge are predicted to cost a limit or more.

    Of a pure budget the shares may leave something; what Gaussian releases take that follow is their mu, ``later``.
    What earlier minima cost is taken off before, and the share ``spared`` hides the solver's tolerance.
    """
    mechanisms.require_fit(noise, sought.problem, tilts=True)
    spent = math.fsum(cost for plan in earlier for cost in plan.costs)
    if noise.kind.is_pure:
        costs = [share * down(budget.capacity(Epsilon) - spent, 1e-9) for share in shares]
        offer = _PureTilts(sought, noise, tuple((1 - spared) * cost for cost in costs)).best(limit)
    elif budget.delta:
        costs = [share * (budget.amount - spent) for share in shares]
        tilts = Approximate(down((budget.amount - spent) * (1 - spared), 1e-9), budget.delta)
        offer = _GaussianTilts(sought, noise, tilts, shares, later).best(limit)
    else:
        raise ValueError(f"{budget} does not cover {noise.name} noise on an objective. Use mechanism='auto'.")
    if offer is None:
        return None
    outputs = [spared * cost for cost in costs]
    minimised = sought.minimised(offer.ridge)
    tolerance = _tolerance(minimised, noise, offer.scales, outputs, spared)
    radius = minimised.radius(tolerance)
    for growth in _GROWTHS:
        try:
            return kind(
                problem=sought.problem,
                budget=budget,
                mechanism=noise.name,
                ridge=offer.ridge,
                scales=tuple(growth * scale for scale in offer.scales),
                output_scales=tuple(minima.output_scale(radius, output) * (1 + 1e-9) for output in outputs),
                tolerance=tolerance,
                earlier=earlier,
                **fields,
            )
        except OverspentError:  # corners are chosen again for the certificate, which is what counts
            if growth == _GROWTHS[-1]:
                raise
    raise AssertionError  # the loop returns or raises


@dataclass(frozen=True)
class _Predicted:
    """What tilts of scale 1 are predicted to cost at each ridge that may be chosen, and the bias of that ridge.

    A larger ridge costs bias, and helps twice: noise is divided by it, and one record weighs less against it.
    """

    sought: Sought
    noise: Mechanism

    @property
    def problem(self) -> Problem:
        """What is minimised, with its own ridge."""
        return self.sought.problem

    @cached_property
    def ridges(self) -> np.ndarray:
        """The ridges to choose among."""
        return self.sought.ridges

    @cached_property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The bias at each of them, and what noise of scale 1 costs."""
        return self.sought.bias(self.ridges), self.sought.noise(self.noise, self.ridges)

    @cached_property
    def sensitivity(self) -> float:
        """How far a record moves the sum's gradient, in the norm of the noise."""
        return self.sought.least.sensitivity(self.noise.norm)

    def minimised(self, place: int) -> Minimised:
        """Return what is minimised with this ridge."""
        return self.sought.minimised(float(self.ridges[place]))


def _squares(numbers: Sequence[float]) -> float:
    return math.fsum(each**2 for each in numbers)


@dataclass(frozen=True)
class _PureTilts(_Predicted):
    """Pure tilts that cost so much each, the cells that they are drawn in included."""

    costs: tuple[float, ...]

    @cached_property
    def tilts(self) -> list[float]:
        """What each tilt may cost, its Jacobian included."""
        cells = self.noise.cell(self.problem) * 2.0**-TILT_BITS
        return [down(cost - cells, 1e-9) for cost in self.costs]

    def best(self, limit: float) -> _Offer | None:
        """Return the ridge whose tilts are predicted to cost least; None if that is no less than a finite limit."""
        bias, unit = self.parts
        energy = unit * self.sensitivity**2

        def value(place: int, least: float) -> float | None:
            minimised = self.minimised(place)
            if self._is_beyond(minimised, least - float(bias[place]), float(energy[place])):
                return None
            inner = self._allowed(minimised)
            return None if inner is None else float(bias[place] + energy[place] / _squares(inner))

        place, _ = least_of(self._bounds(bias, energy), value, least=limit)
        if place < 0 and math.isfinite(limit):
            return None
        ridge = float(self.ridges[place]) if place >= 0 else self._needed()
        inner = self._allowed(self.sought.minimised(ridge))
        assert inner is not None
        return _Offer(ridge, tuple(up(self.sensitivity / each) for each in inner))

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def _bounds(self, bias: np.ndarray, energy: np.ndarray) -> np.ndarray:
        """Return what tilts cost at least at each ridge; infinite where their Jacobians cost more than they may."""
        least, tilts = self.sought.least, np.array(self.tilts)[:, None] * np.ones(len(self.ridges))
        kappa = down(least.kappa * least.ridge / self.ridges, 1e-6)
        squares = np.sum(_most_noise(least.saturation, tilts, kappa) ** 2, axis=0)
        return np.where(squares > 0, bias + energy / squares, math.inf)

    def _is_beyond(self, minimised: Minimised, left: float, energy: float) -> bool:
        """Whether a single tilt surely costs more than is left, once its Jacobian is paid: quick, or False."""
        if len(self.tilts) > 1 or not math.isfinite(left) or left <= 0:
            return False
        needed = down(math.sqrt(energy / left), 1e-6)
        return minima.total_epsilon(needed, minimised.kappa, minimised.saturation) > up(self.tilts[0], 1e-6)

    def _allowed(self, minimised: Minimised) -> list[float] | None:
        """Return the epsilon of each tilt's noise; None where a Jacobian alone costs more."""
        kappa, saturation = minimised.kappa, minimised.saturation
        if saturation.largest(up(1.01 * kappa, 1e-6), 0.0) >= min(self.tilts):
            return None
        return [minima.noise_epsilon(tilt, kappa, saturation) for tilt in self.tilts]

    def _needed(self) -> float:
        """Return a ridge at which the smallest tilt pays its Jacobian: larger than all that are chosen among."""
        least = self.sought.least
        return 1.1 * least.kappa * least.ridge / minima.kappa_limit(min(self.tilts), least.saturation)


@dataclass(frozen=True)
class _GaussianTilts(_Predicted):
    """Gaussian tilts whose mu² have these shares, (epsilon, delta)-private together with what follows them."""

    budget: Budget
    shares: tuple[float, ...]
    later: float

    def best(self, limit: float) -> _Offer | None:
        """Return the ridge whose tilts are predicted to cost least; None if that is no less than a finite limit.

        No tilt has a larger mu than a plain Gaussian mechanism: that bounds the cost at each ridge from below.
        """
        bias, unit = self.parts
        energy = unit * self.sensitivity**2
        epsilon, delta = self.budget.amount, self.budget.delta
        most = up(gaussian_mu(epsilon, delta), 1e-6)
        found: dict[int, float] = {}

        def value(place: int, least: float) -> float | None:
            minimised = self.minimised(place)
            if math.isfinite(least) and (left := least - float(bias[place])) > 0:
                needed = down(math.sqrt(float(energy[place]) / left), 1e-6)
                kappa, saturation = minimised.kappa, minimised.saturation
                if minima.is_beyond(needed, epsilon, delta, kappa, saturation):
                    return None
            mu = found[place] = _largest_mu(minimised, self.budget, self.shares, self.later)
            return float(bias[place] + energy[place] / mu**2) if mu > 0 else None

        bounds = bias + energy / most**2
        weights = self.sought.least.kappa * self.sought.least.ridge / self.ridges
        light = int(np.argmax(weights <= epsilon / self.problem.loss.curvature))
        place, _ = least_of(bounds, value, first=max(light, int(np.argmin(bounds))), least=limit)
        if place >= 0:
            return self._offer(float(self.ridges[place]), found[place])
        if math.isfinite(limit):
            return None
        ridge, mu = float(self.ridges[-1]), 0.0
        while not mu:
            ridge *= 4
            mu = _largest_mu(self.sought.minimised(ridge), self.budget, self.shares, self.later)
        return self._offer(ridge, mu)

    def _offer(self, ridge: float, mu: float) -> _Offer:
        return _Offer(ridge, tuple(self.sensitivity / (mu * math.sqrt(share)) * (1 + 1e-9) for share in self.shares))


def _largest_mu(minimised: Minimised, budget: Budget, shares: tuple[float, ...], later: float) -> float:
    """Return the largest total mu of tilts with these shares; 0 if all else alone costs more than epsilon."""
    saturation, kappa, epsilon = minimised.saturation, minimised.kappa, budget.amount
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


def _tolerance(
    minimised: Minimised, noise: Mechanism, scales: Sequence[float], outputs: Sequence[float], waste: float
) -> float:
    """Return the gradient norm at which the solver stops: as small as pays, and as large as precision needs.

    What is lost is counted in the mean of the releases: their noise on the outputs against their tilts.
    """
    problem, scale, output = minimised.problem, max(scales), max(outputs)
    covariance, units = noise.covariance(problem)
    weights = _weights(scales)
    root = covariance.root_trace(units) * math.sqrt(weights**2 @ np.square(scales))
    joint = 1 / math.sqrt(weights**2 @ np.square(outputs) ** -1)
    wanted, most = (
        minima.gradient_tolerance(root, minimised.dimension, joint, minimised.ridge, minimised.trace, part)
        for part in (waste, max(waste, _MOST_WASTE))
    )
    cell = scale * 2.0**-35 * float(np.linalg.norm(np.maximum(problem.units, 1.0)))
    usual = 2 * rounding(minimised, _SOLUTION_SIZE, 0.0, 2.0**-52)
    # The noise on the output is 2 tolerance/(n ridge output), and its integers are as fine as its least bits ask for.
    finest = 2.0**LEAST_BITS * output * minimised.n * minimised.ridge
    # A scale may still grow a little until the certificate holds.
    needed = least_tolerance(minimised, 1.01 * tilt_length(minimised, noise, scale), finest)
    return max(wanted, min(usual, most), needed, 8 * cell)


def _weights(scales: Sequence[float]) -> np.ndarray:
    """Return what each of several minima counts in their mean: its precision."""
    precision = np.array(scales) ** -2.0
    return precision / precision.sum()
