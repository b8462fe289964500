"""The choice among all methods: by what is published, the budget and the problem, from public numbers alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, overload

import numpy as np

from epsteps.bounds.steps import Method, nesterov
from epsteps.budgets import Approximate, Budget, Pure, Rho, mechanisms
from epsteps.methods.curvature.plan import plan_curvature, prefers_descent
from epsteps.methods.intervals.plan import plan_intervals
from epsteps.methods.objective import HUBER_SHARE, minimax_ridge, plan_objective
from epsteps.methods.output import plan_output
from epsteps.methods.statistics import plan_statistics
from epsteps.methods.steps import StepsPlan, plan_steps
from epsteps.plans.plan import Plan
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling

RELEASES = ("final", "iterates")
# What each method publishes.
METHODS = {
    "objective": "final",
    "output": "final",
    "statistics": "final",
    "sequential": "iterates",
    "curvature": "iterates",
    "descent": "iterates",
}
# The largest budget that is planned: far beyond any that promises something, and far below where floats end.
_LARGEST_AMOUNT = 1e14
# What pseudo-Huber loss costs in squared loss, relative to the targets' bound: 0.0003 to 0.0007 on real data.
_HUBER_BIAS = 7e-4
# What the prediction for statistics, which assumes features without correlation, is multiplied by.
_HOPE = 5.0
# Shares of the budget of sequential releases: most goes to the last where epsilons add, and evenly where mu² does.
_PURE_SHARES, _GAUSSIAN_SHARES = (0.05, 0.1, 0.85), (1 / 3, 1 / 3, 1 / 3)


@overload
def plan(
    problem: Problem, budget: Budget, method: Method = ..., *, release: None = None, **options: Any
) -> StepsPlan: ...


@overload
def plan(
    problem: Problem, budget: Budget, method: Method | str | None = None, *, release: str | None = None, **options: Any
) -> Plan: ...


def plan(
    problem: Problem,
    budget: Budget,
    method: Method | str | None = None,
    *,
    release: str | None = None,
    **options: Any,
) -> Plan:
    """Decide a private run from public numbers alone.

    Parameters
    ----------
    problem, budget
        What is solved, and what may be spent: ``Pure``, ``Concentrated`` or ``Approximate``.
    method : callable or str, optional
        ``gd``, ``heavy_ball``, ``nesterov`` (the default), ``multistage`` or ``restarted_nesterov`` for the steps of
        the paper, with the options of ``methods.steps.plan_steps``. Or the name of a method that makes its own
        choices: "objective" (objective perturbation), "output" (noise on the minimum), "statistics" (noisy sufficient
        statistics, for squared loss); "sequential" (several tilted minima, all published), "curvature" (a private
        second moment, then three gradients), "descent" (Nesterov's method with noise of the domain's shape, scaled at
        each point); or "auto", which is the default where ``release`` is given. "objective" takes ``intervals=0.95``,
        which buys what intervals for the coefficients need, and ``robust=True`` with it.
    release : "final" or "iterates", optional
        What is published: the last model alone, or everything along the way. The less, the more accurate.
    **options
        Those of the method.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
    >>> es.plan(problem, es.Pure(1.0), release="final").method
    'objective perturbation'
    """
    if release is not None:
        validate.choice("release", release, RELEASES)
    if budget.amount > _LARGEST_AMOUNT:
        raise ValueError(f"a plan may spend at most {_LARGEST_AMOUNT:g}, got {budget}: so much promises nothing.")
    if method is None:
        method = nesterov if release is None else "auto"
    if callable(method):
        _require_known(options, method)
        return plan_steps(problem, budget, method, **options)
    validate.choice("method", method, ("auto", *METHODS))
    name, made = _chosen(problem, budget, release or "final") if method == "auto" else (method, None)
    if release == "iterates" and METHODS[name] == "final":
        raise ValueError(
            f"method={name!r} publishes the final model alone: its solver's iterates are not protected. "
            "Use release='final', or method='sequential'."
        )
    _require_known(options, name)
    return made if made and not options else _PLANNERS[name](problem, budget, **options)


def options_of(method: Method | str) -> tuple[str, ...]:
    """Return the names of the options that ``plan`` takes for a method."""
    planner = plan_steps if callable(method) else _PLANNERS[method]
    parameters = signature(_PASSED_ON.get(planner, planner)).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind == Parameter.KEYWORD_ONLY)


def _require_known(options: dict[str, Any], method: Method | str) -> None:
    """Raise unless the method has all of these options."""
    for option in options:
        if option not in (known := options_of(method)):
            name = method if isinstance(method, str) else method.__name__
            if option in ("intervals", "robust"):
                raise TypeError(f"method {name!r} gives no intervals: use method='objective' for them.")
            raise TypeError(f"method {name!r} has no option {option!r}: it takes {', '.join(known)}.")


def _chosen(problem: Problem, budget: Budget, release: str) -> tuple[str, Plan | None]:
    """Return the method that "auto" stands for, and its plan without options where the choice took one."""
    if release == "iterates":
        return _chosen_for_iterates(problem, budget), None
    if problem.loss.has_statistics and _has_room_for_moments(problem):
        return _chosen_for_squares(problem, budget)
    return ("objective" if problem.loss.proved else "descent"), None


def _chosen_for_iterates(problem: Problem, budget: Budget) -> str:
    """Return the method when everything is published: curvature first, unless noise drowns it.

    For squared loss with Gaussian noise clipped descent was better by far on real data, and for no other combination.
    """
    if problem.loss.has_statistics and not budget.kind(Sampling(problem.n, problem.n)).is_pure:
        return "descent"
    loss = problem.loss
    covered = loss.proved and loss.surrogate is not None and problem.clip is None and _has_room_for_moments(problem)
    return "curvature" if covered and not prefers_descent(problem, budget) else "descent"


def _chosen_for_squares(problem: Problem, budget: Budget) -> tuple[str, Plan]:
    """Return the method for squared loss: statistics lose more to noise, objectives to the loss in its place."""
    bias = _HUBER_BIAS * problem.loss.targets.largest**2
    tilted, noisy = plan_objective(problem, budget), plan_statistics(problem, budget)
    if tilted.guessed_error + bias < _HOPE * noisy.guessed_error:
        return "objective", tilted
    return "statistics", noisy


def _has_room_for_moments(problem: Problem) -> bool:
    return problem.d <= limits.LARGEST_MOMENTS


def _plan_sequential(problem: Problem, budget: Budget, **options: Any) -> Plan:
    chosen: dict[str, Any] = {"shares": _PURE_SHARES}
    if budget.delta:
        chosen = {"shares": _GAUSSIAN_SHARES, "mechanism": mechanisms.smallest(problem, Rho).name}
    return plan_objective(problem, budget, **(chosen | options))


def _plan_descent(problem: Problem, budget: Budget, **options: Any) -> Plan:
    """Plan the paper's accelerated method, repaired: start at 0, shaped noise, sensitivity at each step's point.

    Steps and split are chosen by the exact error on a quadratic, which on logistic problems is nearer than the bound.
    The gradients of squared loss, which have no bound of their own, are clipped.
    """
    if problem.loss.has_statistics and problem.clip is None:
        problem = replace(problem, clip=HUBER_SHARE * problem.loss.targets.largest * problem.record_size(2))
    noise = mechanisms.smallest(problem, budget.kind(Sampling(problem.n, problem.n)))
    ridge = minimax_ridge(problem, budget, noise)
    chosen = {
        "sensitivity": "state",
        "objective": "exact",
        "start_gap": problem.start_gap,
        "mechanism": noise.name,
    } | options
    return plan_steps(problem.with_ridge(ridge), budget, nesterov, **chosen)


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
    if not 0 < level < 1:
        raise ValueError(f"intervals must be a level between 0 and 1, or True for 0.95, got {intervals!r}.")
    return plan_intervals(problem, budget, mechanism=mechanism, level=level, robust=robust)


_PLANNERS = {
    "objective": _plan_objective,
    "output": plan_output,
    "statistics": plan_statistics,
    "curvature": plan_curvature,
    "sequential": _plan_sequential,
    "descent": _plan_descent,
}
# Planners that pass their options on, and to whom.
_PASSED_ON: dict[Callable[..., Any], Callable[..., Any]] = {_plan_sequential: plan_objective, _plan_descent: plan_steps}


_LARGEST_EPSILON = 1e9
_LARGEST_N = 10**15


class UnreachableError(ValueError):
    """No finite budget or number of records promises the error."""


def required_epsilon(
    problem: Problem, *, error: float, delta: float | None = None, method: Method = nesterov, **options: Any
) -> float:
    """Return the smallest epsilon (to 1e-6) whose plan promises the error: ``plan(...).error <= error``.

    The budget is ``Pure(epsilon)``, or ``Approximate(epsilon, delta)`` if a delta is given. ``options`` are those of
    :func:`epsteps.plan`. Raises ``UnreachableError`` when even without noise the steps allowed do not reach the error.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20)
    >>> round(es.required_epsilon(problem, error=0.11), 3)
    0.439
    """

    def promised(epsilon: float) -> float:
        return _promised(problem, epsilon, delta, method, options)

    validate.positive("error", error)
    low, high = _bracket(promised, error, 1.0, _LARGEST_EPSILON, "epsilon")
    while high > low * (1 + 1e-6):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if promised(middle) <= error else (middle, high)
    return high


def required_n(
    problem: Problem,
    *,
    error: float,
    epsilon: float = 1.0,
    delta: float | None = None,
    method: Method = nesterov,
    **options: Any,
) -> int:
    """Return the smallest number of records whose plan at this epsilon (and delta) promises the error.

    The problem's own n is ignored; L and mu do not depend on it. ``options`` are those of :func:`epsteps.plan`.
    A fixed ``batch`` leaves a sampling error that no number of records removes.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=2, d=20)
    >>> es.required_n(problem, error=0.11)
    43871
    """

    def promised(n: float) -> float:
        return _promised(replace(problem, n=int(n)), epsilon, delta, method, options)

    validate.positive("error", error)
    smallest = max(2, options.get("batch") or 2)
    if promised(smallest) <= error:
        return smallest
    low, high = _bracket(promised, error, 2.0 * smallest, _LARGEST_N, "n")
    low, high = max(int(low), smallest), int(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if promised(middle) <= error else (middle, high)
    return high


def _promised(problem: Problem, epsilon: float, delta: float | None, method: Method, options: dict[str, Any]) -> float:
    budget = Pure(epsilon) if delta is None else Approximate(epsilon, delta)
    promised = plan_steps(problem, budget, method, **options).error
    if promised is None:
        raise UnreachableError(f"no theorem covers {method.__name__} here, so that no plan with it promises an error.")
    return promised


def _bracket(
    promised: Callable[[float], float], error: float, start: float, largest: float, name: str
) -> tuple[float, float]:
    """Return (too small, large enough), the error being decreasing."""
    if promised(largest) > error:
        raise UnreachableError(
            f"no {name} promises an error of {error!r}: at {name} = {largest:g} the plan still promises only "
            f"{promised(largest):.6g}. Allow more iterations (max_iterations) or a larger error."
        )
    high = start
    while promised(high) > error:
        high *= 4
    low = high / 4
    while name == "epsilon" and promised(low) <= error:
        low, high = low / 4, low
    return low, high
