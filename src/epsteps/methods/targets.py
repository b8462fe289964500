"""Planning backwards: the smallest budget, or number of records, whose plan promises a given error."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from epsteps.bounds.steps import Method, nesterov
from epsteps.budgets import Approximate, Pure
from epsteps.methods.steps import plan_steps
from epsteps.problem import validate
from epsteps.problem.problem import Problem

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
