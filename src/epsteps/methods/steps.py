"""The paper's methods: gradient steps with noise, and the split of the budget over them with the smallest bound."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from epsteps import bounds
from epsteps.bounds import Bound, ExactError, NoBoundError, Prediction
from epsteps.bounds.steps import Method, Steps, gd, heavy_ball, nesterov
from epsteps.budgets import Budget, Expense, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods.intervals.posterior import BASIS, released_gradient, require_gradients
from epsteps.methods.intervals.table import Intervals, intervals_for
from epsteps.plans import notation
from epsteps.plans.notation import problem_fact
from epsteps.plans.plan import Charge, Conversation, Plan, Published
from epsteps.plans.requests import Gradient, Gradients
from epsteps.plans.utility import Typical, TypicalError, Utility, clip_bias, ridge_bias
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.sampling import Sampling
from epsteps.problem.validate import MissingExtraError

ALLOCATIONS = ("optimal", "uniform")
OBJECTIVES = ("bound", "exact", "typical")
SENSITIVITIES = ("global", "state")
_TEXTS = ("method", "allocation", "sensitivity", "objective")
# Methods all of whose steps are alike: what T of them leave is known for every T from one impulse response.
_EVEN = (gd, heavy_ball, nesterov)
# Steps that are followed to see whether a plan can be better than another.
_FEW = 64
# Rows of the table on a plan's page.
_ROWS = 10


@dataclass(frozen=True, eq=False, repr=False)
class StepsPlan(Plan):
    """A private run, decided: steps, noise scales, and the certificate that follows from them.

    Made by :func:`plan`.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    method : str
        Name of the method, for people.
    steps : Steps
        What the loop executes.
    scales : array of length T
        Noise scale of each step at the planned ``sensitivity_bound``.
    batch : int
        Records per step, m.
    mechanism : Mechanism
        The noise.
    allocation : str
        How the budget was split, for people.
    sensitivity : "global" or "state"
        Whether a step's noise has the planned scale, or that scale times the sensitivity at the step's public point
        over ``sensitivity_bound``. The cost of the step is the same.
    objective : "bound", "exact" or "typical"
        What steps and split were chosen by, and ``error`` says: the proven bound, or the exact error on a quadratic of
        the assumed ``spectrum``; of "typical", that on a typical problem with these numbers, ``utility`` tells.
    spectrum, start_shares : arrays, optional
        Eigenvalues for "exact", a logarithmic grid on [mu, L] by default, and how the gap of the start is spread over
        them, evenly by default.
    start_gap : float
        F(x_0) - F* that ``error`` assumes.
    expenses : tuple of Expense
        What the same budget paid for before.
    declared_ridge : float, optional
        The ridge that was asked for, where the problem's is larger on purpose.
    """

    tag: ClassVar[str | None] = None
    reads = (Gradient,)
    has_floats = True
    writers: ClassVar = {
        "mechanism": lambda mechanism: mechanism.name,
        "expenses": lambda expenses: [vars(expense) for expense in expenses],
        "steps": lambda steps: {name: array.tolist() for name, array in vars(steps).items()},
    }
    readers: ClassVar = {
        "mechanism": mechanisms.named,
        "spectrum": notation.array,
        "start_shares": notation.array,
        "expenses": lambda content: tuple(Expense(**expense) for expense in content),
        "steps": lambda content: Steps(**content),
        "scales": notation.array,
    }

    problem: Problem
    budget: Budget
    mechanism: Mechanism
    method: str
    batch: int
    allocation: str
    sensitivity: str
    objective: str
    start_gap: float
    spectrum: np.ndarray | None
    start_shares: np.ndarray | None
    expenses: tuple[Expense, ...]
    steps: Steps
    scales: np.ndarray
    declared_ridge: float | None = None

    def __post_init__(self) -> None:
        if not all(str(getattr(self, name)).isprintable() for name in _TEXTS):
            raise ValueError(f"not a plan: {', '.join(_TEXTS)} must be printable text.")
        limits.require_path(self.problem, len(self.steps))
        scales = np.array(self.scales, dtype=float)
        if scales.shape != (len(self.steps),):
            raise ValueError(f"scales must have one entry for each of the {len(self.steps)} steps, got {scales.shape}.")
        if not (np.all(np.isfinite(scales)) and np.all(scales > 0)):
            raise ValueError(f"scales must be positive and finite, got {scales.min()!r} to {scales.max()!r}.")
        scales.flags.writeable = False
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "expenses", tuple(self.expenses))
        validate.choice("sensitivity", self.sensitivity, SENSITIVITIES)
        validate.choice("objective", self.objective, OBJECTIVES)
        validate.positive("start_gap", self.start_gap)
        if self.declared_ridge is not None and not 0 <= validate.number("declared_ridge", self.declared_ridge) <= (
            self.problem.ridge
        ):
            raise ValueError(f"declared_ridge must be at most the problem's, got {self.declared_ridge!r}.")
        for name in ("spectrum", "start_shares"):
            if (values := getattr(self, name)) is not None and not np.all(np.isfinite(values)):
                raise ValueError(f"{name} must hold finite numbers, got {values!r}.")
        if self.mechanism != mechanisms.named(self.mechanism.name):
            raise ValueError(
                f"mechanism must be the library's own, got {self.mechanism!r}: its sampler is chosen by name."
            )
        mechanisms.require_fit(self.mechanism, self.problem)
        for expense in self.expenses:
            if expense.kind is not self.mechanism.kind:
                raise ValueError(f"{expense} was paid in {expense.unit}, but the steps cost {self.mechanism.unit}.")
        if self.sensitivity == "global" and not self.problem.has_bounded_sensitivity:
            raise ValueError(
                f"{type(self.problem.loss).__name__} has no bounded gradient: use sensitivity='state', got 'global'."
            )
        self.budget.require(self.mechanism)
        super().__post_init__()

    @property
    def iterations(self) -> int:
        """Number of steps, T."""
        return len(self.steps)

    @property
    def sampling(self) -> Sampling:
        """Which records a step reads: the run draws from this object, the certificate computes with it."""
        return Sampling(self.problem.n, self.batch)

    @property
    def sensitivity_bound(self) -> float:
        """Sensitivity of one record's gradient that the planned scales are for."""
        return self.problem.typical_sensitivity(self.mechanism.norm)

    @cached_property
    def costs(self) -> np.ndarray:
        """Cost of each step, computed from its scale: epsilon for pure noise, rho for Gaussian noise."""
        return self.mechanism.costs(self.sensitivity_bound, self.scales, self.sampling)

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what the steps of so many runs cost together: computed from the scales and rounded up."""
        return self.budget.spending(np.tile(self.costs, repetitions), self.mechanism.kind)

    @cached_property
    def spent(self) -> float:
        """Epsilon (or rho, for a budget of rho) of the expenses and one run. Never above the budget.

        It holds for a plan that depends on what the expenses bought.
        """
        expenses = [expense.cost for expense in self.expenses]
        return self.budget.spending(self.costs, self.mechanism.kind, expenses).amount

    @cached_property
    def bound(self) -> Bound | None:
        """The convergence theorem for these steps, if one is known (heavy ball's needs ``epsteps[theory]``)."""
        try:
            return bounds.for_steps(self.steps, self.problem.mu, self.problem.L)
        except (NoBoundError, MissingExtraError):
            return None

    @cached_property
    def error(self) -> float | None:
        """Predicted E F(x_T) - F* for a start within ``start_gap``.

        With ``objective="bound"`` it is proved (None where no theorem covers the steps), under
        ``sensitivity="state"`` while the sensitivity at the points visited stays below ``sensitivity_bound``. With
        "exact" it is the error on the assumed quadratic. With "typical" there is none: ``utility`` says what is
        expected, and no certificate hangs on it.
        """
        predictions = {"bound": lambda: self.bound, "exact": self._exact, "typical": lambda: None}
        prediction = predictions[self.objective]()
        return None if prediction is None else prediction.error(self.start_gap, self._power)

    @property
    def _power(self) -> np.ndarray:
        """Half the noise power of each step, that of sampling included."""
        power = self.mechanism.half_power(self.scales, self.problem)
        return power + self.sampling.variance(self.problem.gradient_radius) / 2

    @cached_property
    def declared(self) -> Problem:
        """The problem with the ridge that was asked for."""
        return self.problem if self.declared_ridge is None else self.problem.with_ridge(self.declared_ridge)

    @cached_property
    def _typical(self) -> TypicalError:
        return TypicalError(self.steps, Typical(self.declared), self.mechanism, self.problem.ridge, self.problem.L)

    def worth(self) -> Utility:
        """Return what the last iterate is expected to be worth, for a start at 0.

        Proved: the theorem's bound from F(0) - F* <= ``problem.start_gap``, and that on what a larger ridge costs
        (``utility.ridge_bias``). Nothing is where gradients are clipped, or have no bound.
        """
        typical, problem = Typical(self.declared), self.problem
        # Noise that is scaled at each point grows where a slope has no bound; where it has one it is never larger.
        power = self._power if self.problem.has_bounded_sensitivity else self._typical.fed(self._power)
        expected = self._typical.error(self.start_gap, power) + self.substitution
        bound = None
        # A certificate takes long to find, and "exact" is for steps that no theorem covers.
        if self.objective != "exact" and math.isfinite(problem.loss.slope) and problem.clip is None and self.bound:
            bound = self.bound.error(problem.start_gap, self._power) + ridge_bias(self.declared, problem.ridge)
        return typical.utility(expected, bound)

    @property
    def proved_error(self) -> float | None:
        """The proved error from ``start_gap``, which falls with the budget where the bound has chosen the steps."""
        return self.error if self.objective == "bound" else self.utility.bound

    @property
    def substitution(self) -> float:
        """What clipping the gradients of squared loss is expected to cost."""
        problem = self.problem
        if not problem.loss.has_statistics or problem.clip is None:
            return 0.0
        return clip_bias(problem.loss.targets.largest, problem.clip / problem.record_size(2))

    def _exact(self) -> ExactError:
        return ExactError(self.steps, assumed_spectrum(self.problem, self.spectrum), self.start_shares)

    def scale_at(self, t: int, point: np.ndarray) -> np.ndarray | float:
        """Return the noise scale that step t (from 0) uses at its public point, one for each column."""
        if self.sensitivity == "global":
            return float(self.scales[t])
        return self.scales[t] / self.sensitivity_bound * self.problem.sensitivity_at(point, self.mechanism.norm)

    def slope_at(self, point: np.ndarray) -> np.ndarray | float:
        """Return the largest slope of any record's loss that a step's noise is scaled for, one for each column."""
        known = self.sensitivity == "global" and math.isfinite(self.problem.loss.slope)
        return self.problem.loss.slope if known else self.problem.slope_at(point)

    @property
    def charges(self) -> list[Charge]:
        """A charge for each step."""
        steps = enumerate(zip(self.costs.tolist(), self.scales.tolist(), strict=True), start=1)
        kind, noise = self.mechanism.kind, self.mechanism.name
        return [Charge(f"step {t}", kind(cost), scale, noise) for t, (cost, scale) in steps]

    @property
    def points(self) -> int:
        """Every step publishes a point."""
        return self.iterations

    @property
    def extent(self) -> str:
        """How many steps there are."""
        return f"{self.iterations} steps"

    @property
    def title(self) -> str:
        """The first line of the plan's page."""
        return f"{self.method}, {self.iterations} steps, {self.allocation} split of the budget"

    def conversation(self) -> Conversation:
        """Return the steps from 0."""
        return self._descend(np.zeros((self.problem.dimension, 1)))

    def conversations(self, start: np.ndarray) -> list[Conversation]:
        """Return the steps of all runs at once: each column is a run."""
        return [self._descend(start)]

    def _descend(self, x: np.ndarray) -> Conversation:
        """Publish x_0, ..., x_T, for each column of x: the one recursion of all the paper's methods."""
        steps, path = self.steps, np.empty((self.iterations + 1, *x.shape))
        path[0] = x
        for t in range(self.iterations):
            drift = np.zeros_like(x) if t == 0 or steps.restart[t] else path[t] - path[t - 1]
            gradient = yield self._request(t, path[t] + steps.gamma[t] * drift)
            path[t + 1] = path[t] + steps.beta[t] * drift - steps.alpha[t] * gradient
        return Published(path)

    def intervals(
        self,
        path: np.ndarray,
        extras: dict[str, np.ndarray],
        draw: Callable[..., np.ndarray],
        generator: Generator,
        **asked: Any,
    ) -> Intervals:
        """Return intervals for the minimum, from the last gradient and its noise: see ``Run.intervals``.

        The path tells every gradient: it is what a step moved by.
        """
        require_gradients(self.problem, self.sampling.is_full)
        if len(path) != self.iterations + 1:
            raise ValueError(
                f"there are no intervals without the last step, and of {self.iterations + 1} points here are "
                f"{len(path)}. Ask the run itself, or use method='objective', with intervals=0.95."
            )
        t, steps = self.iterations - 1, self.steps
        drift = np.zeros_like(path[t]) if t == 0 or steps.restart[t] else path[t] - path[t - 1]
        request = self._request(t, (path[t] + steps.gamma[t] * drift)[:, None])
        gradient = (path[t] + steps.beta[t] * drift - path[t + 1]) / steps.alpha[t]
        released = released_gradient(draw, request, gradient, path[-1])
        asked |= {"asked_ridge": self.declared.ridge, "basis": BASIS}
        return intervals_for(self.problem, released, generator, **asked)

    def _request(self, t: int, point: np.ndarray) -> Gradient:
        return self._gradients.request(point, self.scale_at(t, point) * self.batch, self.slope_at(point), t)

    @cached_property
    def _gradients(self) -> Gradients:
        """What the steps ask for; their scales are known beforehand unless they depend on points."""
        slope, known = self.problem.loss.slope, {}
        if self.sensitivity == "global" and isinstance(slope, float) and math.isfinite(slope):
            known = {"scales": self.scales * self.batch, "bound": slope}
        return Gradients(self.problem, self.mechanism, self.sampling, **known)

    def require_executable(self) -> None:
        """Raise unless the noise of every step can be drawn: a budget of next to nothing has none."""
        self._request(int(np.argmax(self.scales)), np.zeros((self.problem.dimension, 1))).require_drawable()

    def certificate(self) -> dict[str, Any]:
        """Return what follows from the plan: what a data holder approves."""
        return {
            "adjacency": "replace one record",
            "iterations": self.iterations,
            "sensitivity_bound": self.sensitivity_bound,
            "unit": self.mechanism.unit,
            "spent": self.spent,
            "error": self.error,
            "costs": self.costs.tolist(),
        }

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        problem, reading = self.problem, "reads all records"
        if not self.sampling.is_full:
            reading = f"reads {self.batch} of {problem.n} records, drawn afresh without replacement and kept secret"
        noise = f"{self.mechanism.name.capitalize()}, for a sensitivity of {self.sensitivity_bound:g} / {self.batch}"
        if self.sensitivity == "state":
            noise += ", rescaled by the sensitivity at each step's public point"
        return {
            "Problem": f"{problem_fact(problem, problem.ridge)}; mu = {problem.mu:.6g}, L = {problem.L:.6g}",
            "Each step": reading,
            "Noise": noise,
            "Error": self._error_fact(),
        }

    def _error_fact(self) -> str:
        if self.objective == "typical":
            return "steps and their shares are those of the smallest error on a typical problem"
        if self.error is None:
            return "no theorem at hand covers these steps; the guarantee does not depend on one"
        if self.objective == "exact":
            return f"E F(x_T) - F* = {self.error:.6g} on the assumed quadratic, if F(x_0) - F* = {self.start_gap:g}"
        text = f"E F(x_T) - F* <= {self.error:.6g}, if F(x_0) - F* <= {self.start_gap:g}"
        if self.sensitivity == "state" and not self.problem.has_bounded_sensitivity:
            text += " and predictions stay in the declared range of the target"
        return text

    def table(self) -> tuple[list[str], list[list[str]]]:
        """List the expenses, the first and last step, every restart, and evenly spaced steps between."""
        total = sum(expense.cost for expense in self.expenses) + self.costs.sum()
        header = ["step", "step size", "momentum", self.mechanism.unit, "share", "noise scale", ""]
        rows = []
        for expense in self.expenses:
            rows.append(["before", "", "", f"{expense.cost:.6g}", f"{expense.cost / total:.2%}", "", expense.note])
        spaced = np.linspace(0, self.iterations - 1, min(_ROWS, self.iterations)).round().astype(int)
        for t in np.union1d(spaced, np.flatnonzero(self.steps.restart)):
            sizes = [f"{self.steps.alpha[t]:.6g}", f"{self.steps.beta[t]:.4f}", f"{self.costs[t]:.6g}"]
            share, scale = f"{self.costs[t] / total:.2%}", f"{self.scales[t]:.6g}"
            rows.append([f"{t + 1}", *sizes, share, scale, "restart" * bool(self.steps.restart[t])])
        return header, [*rows, ["total", "", "", f"{total:.6g}", f"{1:.2%}", "", ""]]


def assumed_spectrum(problem: Problem, spectrum: np.ndarray | None) -> np.ndarray:
    """Return the declared eigenvalues, or a logarithmic grid on [mu, L]."""
    if spectrum is not None:
        return np.asarray(spectrum, dtype=float)
    if problem.mu <= 0:
        raise NoBoundError("the default spectrum needs strong convexity (mu > 0): pass spectrum=..., or use ridge > 0.")
    return np.geomspace(problem.mu, problem.L, 40)


def plan_steps(
    problem: Problem,
    budget: Budget,
    method: Method = nesterov,
    declared: Problem | None = None,
    *,
    allocation: str = "optimal",
    iterations: int | str = "auto",
    max_iterations: int = 1000,
    batch: int | None = None,
    mechanism: str = "auto",
    sensitivity: str = "auto",
    objective: str = "bound",
    spectrum: Sequence[float] | np.ndarray | None = None,
    start_shares: Sequence[float] | np.ndarray | None = None,
    start_gap: float = 10.0,
    c: float = 1.0,
    expenses: Sequence[Expense] = (),
) -> "StepsPlan":
    """Decide the steps of a private run from public numbers alone.

    Parameters
    ----------
    problem, budget, method
        What is solved, what may be spent (``Pure``, ``Concentrated`` or ``Approximate``), and how: ``gd``,
        ``heavy_ball``, ``nesterov`` or ``multistage``.
    declared : Problem, optional
        The problem as it was asked for, where the ridge of this one is larger on purpose.
    allocation : "optimal" or "uniform"
        Split the budget so that the predicted error is smallest, or evenly.
    iterations : int or "auto"
        Number of steps, or the one up to ``max_iterations`` with the smallest predicted error.
    batch : int, optional
        Records per step, drawn afresh without replacement; all by default (which is always more accurate).
    mechanism : "auto", "laplace", "l2", "linf", "hull", "blocks", "gaussian" or "ellipsoid"
        The noise; "auto" is the one with the smallest public trace among those that the budget is made for.
    sensitivity : "auto", "global" or "state"
        Scale the noise for all x, or for the public point of each step; "auto" is global where that is finite.
    objective : "bound", "exact" or "typical"
        What error is predicted by: the proven bound, or the exact error on a quadratic, which often chooses better and
        proves nothing: of the assumed ``spectrum``, or of a typical problem with these public numbers. ``error`` falls
        with the budget and with n for what was chosen by it. ``utility.expected`` is the error on a typical problem of
        the steps that are executed: it falls with both where "typical" has chosen their number, or you have, and may
        rise where the bound has, as the paper's T grows with the budget faster than a typical problem asks for.
    spectrum : sequence, optional
        Public guess of the eigenvalues of F for "exact"; a logarithmic grid on [mu, L] by default.
    start_shares : sequence, optional
        Public guess of how F(x_0) - F* is spread over those eigenvalues; evenly by default.
    start_gap : float
        A public guess of F(x_0) - F*; it decides iterations and the predicted error, never privacy.
        ``problem.start_gap`` bounds it for a start at 0.
    c : float
        The step size is c/L.
    expenses : sequence of Expense
        What the same budget has paid for, such as a private estimate of L; the steps get the rest. The problem may
        depend on it: the certificate adds expenses up with the steps such that it holds for every outcome.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20)
    >>> p = es.plan(problem, es.Pure(1.0), es.nesterov, mechanism="laplace")
    >>> p.iterations, p.spent <= 1.0
    (120, True)
    """
    if iterations != "auto":
        limits.require_path(problem, _checked_horizon(iterations))
    validate.choice("allocation", allocation, ALLOCATIONS)
    validate.choice("mechanism", mechanism, ("auto", *mechanisms.NAMES))
    validate.choice("sensitivity", sensitivity, ("auto", *SENSITIVITIES))
    validate.choice("objective", objective, OBJECTIVES)
    validate.positive("start_gap", start_gap)
    if batch is not None:
        validate.integer("batch", batch, high=problem.n, remedy="The batch cannot exceed the n records.")
    sampling = Sampling(problem.n, problem.n if batch is None else batch)
    if sensitivity == "auto":
        sensitivity = "global" if problem.has_bounded_sensitivity else "state"
    auto = mechanism == "auto"
    noise = mechanisms.smallest(problem, budget.kind(sampling)) if auto else mechanisms.named(mechanism)
    reserved = up(float(sum(expense.cost for expense in expenses)))
    eigenvalues, shares = (None if array is None else np.asarray(array, float) for array in (spectrum, start_shares))
    chosen = _Choice(
        problem, budget, method, noise, sampling, allocation, objective, eigenvalues, shares, start_gap, c, reserved,
        Typical(declared or problem),
    )  # fmt: skip
    T = chosen.best_horizon(max_iterations)[0] if iterations == "auto" else _checked_horizon(iterations)
    limits.require_path(problem, T)
    steps = method(problem.mu, problem.L, T, c=c)
    return StepsPlan(
        problem=problem,
        budget=budget,
        method=method.__name__,
        steps=steps,
        scales=chosen.scales(steps),
        batch=sampling.m,
        mechanism=noise,
        allocation=allocation,
        sensitivity=sensitivity,
        objective=objective,
        spectrum=eigenvalues,
        start_shares=shares,
        start_gap=float(start_gap),
        expenses=tuple(expenses),
        declared_ridge=None if declared is None else declared.ridge,
    )


def typical_error(problem: Problem, typical: Typical, budget: Budget, noise: Mechanism, longest: int) -> float:
    """Return the error of Nesterov's method on a typical problem, with the best number of steps up to ``longest``."""
    sampling = Sampling(problem.n, problem.n)
    choice = _Choice(
        problem, budget, nesterov, noise, sampling, "optimal", "typical", None, None, 1.0, 1.0, 0.0, typical
    )
    return choice.best_horizon(longest)[1]


def is_beyond(
    problem: Problem, typical: Typical, budget: Budget, noise: Mechanism, ridges: Sequence[float], limit: float
) -> bool:
    """Whether ``typical_error`` is surely above a limit with each of these ridges, for any number of steps: quick.

    False where it is not known. A few steps are followed. After more of them noise costs no less, as the budget is
    split as is best, and what the start leaves is bounded.
    """
    sampling, sensitivity = Sampling(problem.n, problem.n), problem.typical_sensitivity(noise.norm)
    for stated in map(problem.with_ridge, ridges):
        ridge, L = stated.ridge, stated.L
        prediction = TypicalError(nesterov(ridge, L, _FEW), typical, noise, ridge, L)
        power = float(noise.half_power(sensitivity, stated))  # shapes of noise may depend on the ridge
        costs = power * budget.noise_by_horizon(prediction, "optimal", noise, sampling)
        least = min(np.min(prediction.start_errors(1.0) + costs), costs[-1] + prediction.least_start_error())
        if not least > limit:
            return False
    return True


@dataclass(frozen=True)
class _Choice:
    """The arguments of one call of ``plan_steps``, and what follows from them."""

    problem: Problem
    budget: Budget
    method: Method
    mechanism: Mechanism
    sampling: Sampling
    allocation: str
    objective: str
    spectrum: np.ndarray | None
    start_shares: np.ndarray | None
    start_gap: float
    c: float
    reserved: float
    typical: Typical

    @property
    def sensitivity(self) -> float:
        return self.problem.typical_sensitivity(self.mechanism.norm)

    def scales(self, steps: Steps) -> np.ndarray:
        weights = None if self.allocation == "uniform" else self._prediction(steps).weights
        costs = self.budget.allocate(weights, len(steps), self.mechanism, self.sampling, self.reserved)
        return up(self.mechanism.scales(self.sensitivity, costs, self.sampling))

    def best_horizon(self, max_iterations: int) -> tuple[int, float]:
        """Return the T whose error is smallest, and that error: all T at once, as their steps begin the longest's."""
        longest = validate.integer("max_iterations", max_iterations)
        every = self.objective == "exact" or (self.objective == "typical" and self.method not in _EVEN)
        limits.require_horizon(longest, squared=every or not self.sampling.is_full)
        prediction = self._prediction(self.method(self.problem.mu, self.problem.L, longest, c=self.c))
        noise = self.budget.noise_by_horizon(prediction, self.allocation, self.mechanism, self.sampling, self.reserved)
        noise = noise * self.mechanism.half_power(self.sensitivity, self.problem)
        noise += prediction.weight_sums(1.0) * self.sampling.variance(self.problem.gradient_radius) / 2
        errors = prediction.start_errors(self.start_gap) + noise
        return int(np.argmin(errors)) + 1, float(np.min(errors))

    def _prediction(self, steps: Steps) -> Prediction:
        if self.objective == "exact":
            return ExactError(steps, assumed_spectrum(self.problem, self.spectrum), self.start_shares)
        if self.objective == "typical":
            return TypicalError(steps, self.typical, self.mechanism, self.problem.ridge, self.problem.L)
        try:
            return bounds.for_steps(steps, self.problem.mu, self.problem.L)
        except NoBoundError as error:
            raise NoBoundError(
                f"{error} Without a bound neither the number of iterations nor the split can be chosen by it: pass "
                f"objective='exact', or iterations=<a number> and allocation='uniform' (here: {self.method.__name__})."
            ) from None


def _checked_horizon(T: int | str) -> int:
    if isinstance(T, str):
        raise ValueError(f"iterations must be a whole number or 'auto', got {T!r}.")
    return validate.integer("iterations", T)
