"""The choice among all methods: by what is published, the budget and the problem, from public numbers alone."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any, Literal, Unpack, cast, overload

from epsteps.bounds.steps import Method, nesterov
from epsteps.budgets import Approximate, Budget, Concentrated, Epsilon, Pure, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods import options as options_module
from epsteps.methods.adaptive import AdaptivePlan, plan_adaptive
from epsteps.methods.clipped import is_clippable, plan_clipped
from epsteps.methods.curvature.plan import plan_curvature
from epsteps.methods.intervals.plan import plan_intervals
from epsteps.methods.objective import ObjectivePlan, is_expected, plan_objective, stand_ins
from epsteps.methods.options import METHODS, PlanOptions, StepsOptions
from epsteps.methods.options import RELEASES as RELEASES
from epsteps.methods.output import plan_output
from epsteps.methods.regression import plan_regression
from epsteps.methods.statistics import plan_statistics
from epsteps.methods.steps import StepsPlan, is_beyond, plan_steps, typical_error
from epsteps.plans.plan import Plan
from epsteps.plans.utility import VERDICTS, Typical, ridges
from epsteps.problem import limits, validate
from epsteps.problem.memory import PROBLEMS, remembered
from epsteps.problem.problem import Problem, restated
from epsteps.problem.sampling import Sampling

# The largest budget that is planned: far beyond any that promises something, and far below where floats end.
_LARGEST_AMOUNT = 1e14
# Ridges that descent chooses among: each so many times the one before, up to a few times the curvature.
_RIDGE_STEP, _LARGEST_RIDGE = 4.0, 4.0
# Descent on squared loss holds slopes within this share of the targets' bound.
_CLIP_SHARE = 0.4
# What the first of two minima gets of epsilon: the less, the better the second, which is the model; and what of that
# hides the solver's tolerance, so that it is soon found.
_FIRST, _FIRST_SPARED = 0.01, 0.3


@overload
def plan(
    problem: Problem,
    budget: Budget,
    method: Method | Literal["descent"],
    *,
    release: Literal["iterates"] | None = None,
    **options: Unpack[StepsOptions],
) -> StepsPlan: ...


@overload
def plan(
    problem: Problem,
    budget: Budget,
    method: str | None = None,
    *,
    release: str | None = None,
    **options: Unpack[PlanOptions],
) -> Plan: ...


def plan(
    problem: Problem,
    budget: Budget,
    method: Method | str | None = None,
    *,
    release: str | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Decide a private run from public numbers alone.

    Parameters
    ----------
    problem, budget
        What is solved, and what may be spent: ``Pure``, ``Concentrated`` or ``Approximate``.
    method : callable or str, optional
        ``gd``, ``heavy_ball``, ``nesterov``, ``multistage`` or ``restarted_nesterov`` for the steps of the paper, which
        are all published. Or the name of a method that makes its own choices: "adaptive" (objective perturbation
        fitted to bought sizes of the records), "objective" (without such), "output" (noise on the minimum),
        "statistics" (noisy sufficient statistics, for squared loss); "sequential" (two tilted minima, both published),
        "curvature" (a private second moment, then three gradients), "descent" (Nesterov's method with noise of the
        domain's shape, scaled at each point), "clipped" (steps with Gaussian noise and a clip that follows the sizes of
        gradients, for classes and squared loss); or "auto", the most accurate one for the release, which is meant where
        no method is named.
    release : "final" or "iterates", optional
        What is published: the last model alone, or every point that is released along the way. The less, the more
        accurate: "auto" chooses among more methods for the former. What stays private then is on the plan's page: of
        minima, the solver that found them. Where others watch the computation itself, name "curvature" or "descent".
        One of method and release must be given: which of them is right, nobody but the caller knows.
    **options
        Those of the method. The paper's steps and "descent" take ``allocation``, ``iterations``, ``max_iterations``,
        ``batch``, ``mechanism``, ``sensitivity``, ``objective``, ``spectrum``, ``start_shares``, ``start_gap``, ``c``
        and ``expenses`` (``methods.steps.plan_steps`` explains each); the others ``mechanism``, but for "adaptive";
        "objective" and "sequential" also ``shares``, of the budget, one for each minimum. "objective" takes
        ``intervals=0.95``, which buys what measured intervals for the coefficients need, and ``robust=True`` with it;
        no other method does, so that "auto" is then "objective". Others give upper bounds, for nothing
        (``Run.intervals``).

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
    >>> es.plan(problem, es.Pure(1.0), release="final").method
    'adaptive objective perturbation'
    """
    options_module.require_inputs("plan", problem, budget)
    _require_askable("plan", method, release, options)
    if budget.amount > _LARGEST_AMOUNT:
        raise ValueError(f"a plan may spend at most {_LARGEST_AMOUNT:g}, got {budget}: so much promises nothing.")
    if callable(method):
        return plan_steps(problem, budget, method, **cast(StepsOptions, options))
    if method is None or method == "auto":
        return _chosen(problem, budget, release or "final", dict(options))
    return _PLANNERS[method](problem, budget, **options)


def _require_askable(function: str, method: Any, release: str | None, options: Mapping[str, Any]) -> None:
    """Raise in the words of the function that was called, unless it can plan by these: before any plan is tried."""
    options_module.require_spelt(function, options, method, options_of)
    options_module.require_method(function, method, release, options)
    if not (method is None or method == "auto"):
        options_module.require_options_of(method, options, options_of)


def options_of(method: Method | str) -> tuple[str, ...]:
    """Return the names of the options that ``plan`` takes for a method."""
    planner = plan_steps if callable(method) else _PLANNERS[method]
    parameters = signature(_PASSED_ON.get(planner, planner)).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind == Parameter.KEYWORD_ONLY)


def _chosen(problem: Problem, budget: Budget, release: str, options: dict[str, Any]) -> Plan:
    """Return the plan that "auto" stands for.

    Of the methods that cover the problem and take these options it is the one whose model is expected to be best. What
    only methods take that publish more than is asked for is refused.
    """
    every = _candidates(problem, release)
    names = [name for name in every if set(options) <= set(options_of(name))]
    if not any(METHODS[name] == METHODS[every[0]] for name in names):
        raise options_module.no_method_for(release, options, options_of)
    plans: list[Plan] = []
    refusals: list[ValueError] = []
    for name in names:
        try:
            if plans and not options and name in _WORSE and _WORSE[name](problem, budget, min(map(_expected, plans))):
                continue
            plans.append(_PLANNERS[name](problem, budget, **options))
        except ValueError as refusal:  # of one method: the others may still cover the problem
            refusals.append(refusal)
    if not plans:
        raise refusals[0]
    return min(plans, key=_expected)


def _expected(plan: Plan) -> float:
    """Return the excess that a plan is expected to have; infinity where none is predicted."""
    return math.inf if plan.utility.expected is None else plan.utility.expected


def _candidates(problem: Problem, release: str) -> list[str]:
    """Return the methods that cover a problem and publish no more than this.

    A final model is chosen among all of them: publishing less is then never expected to be worse. Two minima are left
    out there, as one of the same family with the whole budget is better.
    """
    loss, room, is_clipped = problem.loss, _has_room_for_moments(problem), problem.clip is not None
    # Where slopes have no bound, the noise of gradients at points that no plan knows yet cannot be predicted.
    is_modelled = loss.proved and loss.surrogate is not None and math.isfinite(loss.slope) and not is_clipped and room
    everything = ["curvature", "descent"] if is_modelled else ["descent"]
    if not loss.proved:
        return everything
    if is_clippable(loss) and not is_clipped:
        everything = [*everything, "clipped"]
    if is_clipped:  # there is no minimum, and what is declared for a final model alone is refused
        return ["objective"] if release == "final" else everything
    if release == "iterates":
        return ["sequential", *everything]
    adaptive = ["adaptive"] if loss.saturation is not None or loss.has_statistics else []
    return [*adaptive, "objective", *(["statistics"] if loss.has_statistics and room else []), *everything]


def _plan_adaptive(problem: Problem, budget: Budget) -> AdaptivePlan:
    """Plan a minimum that is chosen by bought sizes of the records; of squared loss, by those of its residuals too."""
    return (plan_regression if problem.loss.has_statistics else plan_adaptive)(problem, budget)


def _has_room_for_moments(problem: Problem) -> bool:
    return problem.d <= limits.LARGEST_MOMENTS


def _plan_sequential(
    problem: Problem, budget: Budget, *, mechanism: str = "auto", shares: Sequence[float] | None = None
) -> ObjectivePlan:
    """Plan two tilted minima, both published: a first one for little, and the model for the rest.

    The first is pure and has a ridge of its own, as so little buys little without it. With shares, so many minima of
    one ridge are published, and their mean is the model.
    """
    if shares is not None:
        return plan_objective(problem, budget, mechanism=mechanism, shares=shares)
    named = mechanism in mechanisms.NAMES and mechanisms.named(mechanism).kind.is_pure
    little = Pure(_FIRST * budget.capacity(Epsilon))
    first = plan_objective(problem, little, mechanism=mechanism if named else "auto", spared=_FIRST_SPARED)
    return plan_objective(problem, budget, mechanism=mechanism, earlier=(first,))


def _plan_descent(problem: Problem, budget: Budget, **options: Any) -> Plan:
    """Plan the paper's accelerated method, repaired: start at 0, shaped noise, sensitivity at each step's point.

    Steps, split and ridge are those of the smallest error on a typical problem, which is nearer than the bound. The
    gradients of squared loss, which have no bound of their own, are clipped.
    """
    problem, noise = _descended(problem, budget)
    steps, typical = _checked_steps(options), Typical(problem)

    def predicted(ridge: float) -> float:
        return typical_error(problem.with_ridge(ridge), typical, budget, noise, steps)

    ridge = min(ridges(problem, _RIDGE_STEP, _LARGEST_RIDGE).tolist(), key=predicted)
    chosen = {
        "sensitivity": "state",
        "objective": "typical",
        "start_gap": problem.start_gap,
        "mechanism": noise.name,
    } | options
    return plan_steps(problem.with_ridge(ridge), budget, nesterov, problem, **chosen)


def _descended(problem: Problem, budget: Budget) -> tuple[Problem, Mechanism]:
    """Return what descent minimises, gradients of squared loss clipped, and its noise."""
    if problem.loss.has_statistics and problem.clip is None:
        problem = restated(problem, clip=_CLIP_SHARE * problem.loss.targets.largest * problem.record_size(2))
    return problem, mechanisms.smallest(problem, budget.kind(Sampling(problem.n, problem.n)))


@remembered(PROBLEMS)
def _is_descent_worse(problem: Problem, budget: Budget, limit: float) -> bool:
    """Whether descent is surely expected to be twice as far from the minimum as this: quick, or False."""
    problem, noise = _descended(problem, budget)
    every = ridges(problem, _RIDGE_STEP, _LARGEST_RIDGE).tolist()
    return is_beyond(problem, Typical(problem), budget, noise, every, 2 * limit)


def _is_objective_worse(problem: Problem, budget: Budget, limit: float) -> bool:
    """Whether one minimum is surely expected to be farther from the declared one than this: quick, or False.

    Where the declared loss itself is minimised, what is proved may be below what is predicted, and is not known yet.
    """
    return problem.loss not in stand_ins(problem)[0] and not is_expected(problem, budget, limit)


# What can be told of a method before it is planned: that it is worse than another one.
_WORSE = {"descent": _is_descent_worse, "objective": _is_objective_worse}


def _checked_steps(options: dict[str, Any]) -> int:
    """Return the largest number of steps that options of a plan of steps allow."""
    iterations = options.get("iterations", "auto")
    if isinstance(iterations, str):
        return validate.integer("max_iterations", options.get("max_iterations", 1000))
    return validate.integer("iterations", iterations)


def _plan_objective(
    problem: Problem,
    budget: Budget,
    *,
    mechanism: str = "auto",
    shares: Sequence[float] | None = None,
    intervals: float | bool | None = None,
    robust: bool = False,
) -> Plan:
    """Plan one tilted minimum or several; or one with what intervals of this level for its coefficients take."""
    if intervals is None or intervals is False:
        if robust:
            raise ValueError("robust=True is for intervals: pass intervals=0.95 with it.")
        return plan_objective(problem, budget, mechanism=mechanism, shares=(1.0,) if shares is None else shares)
    if shares is not None:
        raise ValueError(f"intervals are for one minimum: leave shares out, got {shares!r}.")
    level = 0.95 if intervals is True else validate.number("intervals", intervals)
    return plan_intervals(problem, budget, mechanism=mechanism, level=level, robust=robust)


_PLANNERS = {
    "adaptive": _plan_adaptive,
    "objective": _plan_objective,
    "output": plan_output,
    "statistics": plan_statistics,
    "curvature": plan_curvature,
    "sequential": _plan_sequential,
    "descent": _plan_descent,
    "clipped": plan_clipped,
}
# Planners that pass their options on, and to whom.
_PASSED_ON: dict[Callable[..., Any], Callable[..., Any]] = {_plan_descent: plan_steps}


_LARGEST_EPSILON = 1e9
_LARGEST_N = 10**15
# Answers are the smallest to this share.
_PRECISION = 1e-6
# So many times less than an error is asked for, where targets are classes or numbers: on the tables that predictions
# may be tuned on (benchmarks/truth.py) 95 and 90 of 100 cells then are at most a quarter above the error.
_MARGIN_OF_CLASSES, _MARGIN_OF_NUMBERS = 1.5, 3.0


class UnreachableError(ValueError):
    """No finite budget or number of records promises the error."""


def required_epsilon(
    problem: Problem,
    *,
    error: float | None = None,
    verdict: str | None = None,
    width: float | None = None,
    level: float = 0.95,
    proved: bool = False,
    margin: float | None = None,
    delta: float | None = None,
    rho: bool = False,
    method: Method | str | None = None,
    release: str | None = None,
    **options: Unpack[PlanOptions],
) -> float:
    """Return the smallest epsilon (to 1e-6) whose plan is expected to reach an error, a verdict or a width.

    Parameters
    ----------
    problem : Problem
        What is solved.
    error : float, optional
        The excess E F(x) - F* to be reached: ``plan(...).utility.expected <= error / margin``.
    verdict : "useful" or "marginal", optional
        Instead of an error: the verdict to be reached, or a better one.
    width, level : float, optional
        Instead of both: half of the widest interval of this level for a column's coefficient, in the units of the
        problem, by a plan that buys curvature. It is a guess for columns that fill their ranges evenly and do not go
        together (``plan.guessed_half_width``): others have wider intervals, or none that can be measured.
        ``epsteps.coverage`` simulates columns of your own. As ridges are chosen in steps, a width may be reached by
        a tenth less.
    proved : bool
        Ask for the bound that is proved, ``utility.bound`` (of steps whose number is chosen by it, ``plan.error``), in
        the place of the error that is expected. Where the recommended plan has none, "objective" takes its place, or
        "sequential" where everything is published.
    margin : float, optional
        Ask for so many times less than the error. What is expected is about as often below what will be measured as
        above it: with 1, every third table misses the error. By default it is 1.5 where targets are classes, and 3
        where they are numbers, of which public facts tell less: few miss it then (see ``docs/inference.md``).
    delta : float, optional
        Makes the budget (epsilon, delta) instead of pure.
    rho : bool
        Look for the smallest rho of zero-concentrated privacy in the place of epsilon.
    method, release, **options
        As for :func:`epsteps.plan`: one of method and release must be given; a width names its method by itself.

    Raises ``UnreachableError`` where no finite budget reaches it.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(-1, 1), ridge=0.02, n=100_000, d=20)
    >>> epsilon = es.required_epsilon(problem, error=0.05, release="final")
    >>> es.plan(problem, es.Pure(epsilon), release="final").utility.expected <= 0.05
    True
    """
    if rho and delta is not None:
        raise ValueError(f"a budget of rho has no delta. Leave one of them out, got delta={delta!r}.")
    goal = _goal("required_epsilon", problem, error, verdict, width, level, proved, margin, method, release, options)

    def reached(amount: float) -> float:
        if rho:
            return goal.distance(problem, Concentrated(amount))
        return goal.distance(problem, Pure(amount) if delta is None else Approximate(amount, delta))

    low, high = _bracket(reached, 1.0, 0.0, _LARGEST_EPSILON, "rho" if rho else "epsilon", goal)
    while high > low * (1 + _PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _is_reached(reached, middle) else (middle, high)
    return high


def required_n(
    problem: Problem,
    *,
    error: float | None = None,
    verdict: str | None = None,
    width: float | None = None,
    level: float = 0.95,
    proved: bool = False,
    margin: float | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    rho: float | None = None,
    method: Method | str | None = None,
    release: str | None = None,
    **options: Unpack[PlanOptions],
) -> int:
    """Return the smallest number of records whose plan at this epsilon (and delta, or rho) is expected to reach it.

    As :func:`required_epsilon`, to 1e-6 of the answer. The problem's own n is ignored. A fixed ``batch`` leaves a
    sampling error that no number of records removes.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(-1, 1), ridge=0.02, n=2, d=20)
    >>> n = es.required_n(problem, error=0.05, release="final")
    >>> es.plan(replace(problem, n=n), es.Pure(1.0), release="final").utility.expected <= 0.05
    True
    """
    budget: Budget = Pure(epsilon) if delta is None else Approximate(epsilon, delta)
    if rho is not None:
        budget = Concentrated(rho)
    goal = _goal("required_n", problem, error, verdict, width, level, proved, margin, method, release, options)

    def reached(n: float) -> float:
        return goal.distance(replace(problem, n=int(n)), budget)

    smallest = max(2, options.get("batch") or 2)
    if _is_reached(reached, smallest):
        return smallest
    low, high = _bracket(reached, 64.0 * smallest, smallest, _LARGEST_N, "n", goal)
    low, high = int(low), int(high)
    while high - low > max(1, _PRECISION * low):
        middle = int(math.sqrt(low * high)) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if _is_reached(reached, middle) else (middle, high)
    return high


def _goal(function: str, problem: Problem, *asked: Any) -> "_Goal":
    """Return what is asked of a function, or raise in its words if that cannot be asked."""
    options_module.require_inputs(function, problem, budgeted=False)
    *_, method, release, _ = asked
    goal = _Goal(*asked)
    _require_askable(function, method, release, goal.bought)
    goal.require_effort(problem)
    return goal


@dataclass(frozen=True)
class _Goal:
    """What a plan is to reach: an error, expected or proved, a verdict, or intervals of a width."""

    error: float | None
    verdict: str | None
    width: float | None
    level: float
    proved: bool
    margin: float | None
    method: Method | str | None
    release: str | None
    options: dict[str, Any]

    def __post_init__(self) -> None:
        if sum(wanted is not None for wanted in (self.error, self.verdict, self.width)) != 1:
            raise ValueError("say what is to be reached: error=..., verdict='useful' or width=..., and one of them.")
        if self.verdict is not None:
            validate.choice("verdict", self.verdict, VERDICTS[:2])
        else:
            validate.positive("error" if self.width is None else "width", self.limit)
        if self.margin is not None:
            validate.positive("margin", self.margin)
        if (self.proved or self.error is None) and self.margin not in (None, 1):
            raise ValueError(f"a margin is for an error that is expected. Leave it out, got {self.margin!r}.")
        if self.proved and self.error is None:
            raise ValueError("verdicts and widths are about what is expected. Use proved=True with error=...")

    @property
    def bought(self) -> dict[str, Any]:
        """The options of a plan: a width takes intervals."""
        return self.options | ({} if self.width is None else {"intervals": self.level})

    @property
    def limit(self) -> float | None:
        """The number that is to be reached, where it is one."""
        return self.error if self.width is None else self.width

    def require_effort(self, problem: Problem) -> None:
        """Raise for an error that the model 0 is expected to have: no data is needed for it."""
        trivial = Typical(problem).trivial
        if self.error is not None and not self.proved and self.error >= trivial:
            raise ValueError(
                f"the model 0, for which no data is needed, is expected to have an error of about {trivial:.3g}: ask "
                f"for less, got {self.error!r}."
            )

    def distance(self, problem: Problem, budget: Budget) -> float:
        """Return how far a plan is from the goal: none or negative where it is reached."""
        options = self.bought
        made = plan(problem, budget, cast(Any, self.method), release=self.release, **options)
        if self.limit is None:
            return made.utility.beyond(str(self.verdict))
        if self.width is not None:
            half = made.guessed_half_width
            return math.inf if half is None else half - self.width
        if self.proved and self.method in (None, "auto") and made.proved_error is None:
            made = plan(problem, budget, "objective" if self.release != "iterates" else "sequential", **options)
        promised = made.proved_error if self.proved else made.utility.expected
        if promised is None:
            raise UnreachableError(f"nothing is {'proved' if self.proved else 'predicted'} of {made.method} here.")
        return promised - self.limit / self._margin(problem)

    def _margin(self, problem: Problem) -> float:
        """Return how many times less than the limit is asked for: no less than it of what is proved."""
        if self.margin is not None or self.proved:
            return self.margin or 1.0
        return _MARGIN_OF_CLASSES if hasattr(problem.loss.targets, "classes") else _MARGIN_OF_NUMBERS

    def __str__(self) -> str:
        said = f"an error of {self.error!r}" if self.error is not None else f"the verdict {self.verdict!r}"
        if self.width is not None:
            said = f"intervals of half-width {self.width!r}"
        return f"{'promises' if self.proved else 'is expected to reach'} {said}"


def _bracket(
    reached: Callable[[float], float], start: float, smallest: float, largest: float, name: str, goal: _Goal
) -> tuple[float, float]:
    """Return (too small, large enough), the distance being decreasing; what is too small for a plan is too small."""
    high, distance = start, reached(start)
    if distance <= 0:
        low = high / 16
        while low > smallest and _is_reached(reached, low):
            low, high = low / 16, low
        return max(low, smallest), high
    while distance > 0:
        last, high = distance, min(16 * high, largest)
        try:
            distance = reached(high)
        except ValueError:  # there is no noise for so much
            high = largest
        if distance > 0 and high == largest:
            rest = ""
            if goal.limit is not None and math.isfinite(last):
                rest = f": with {name} = {high:g} it is still {last + goal.limit:.6g}"
            raise UnreachableError(
                f"no {name} {goal}{rest}. Ask for less, or choose another method; of a plan of steps, allow more of "
                "them (max_iterations)."
            )
    return high / 16, high


def _is_reached(reached: Callable[[float], float], amount: float) -> bool:
    try:
        return reached(amount) <= 0
    except ValueError:  # there is no noise for so little
        return False
