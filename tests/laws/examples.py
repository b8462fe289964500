"""A small plan of every method under every kind of budget, and records that it can be run on."""

import inspect
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import epsteps as es
from epsteps.methods.choice import METHODS, options_of
from epsteps.methods.evaluation import plan_evaluation

_EXPORTED = [getattr(es, name) for name in es.__all__]
STEPS = [
    found
    for found in _EXPORTED
    if inspect.isfunction(found) and tuple(inspect.signature(found).parameters)[:3] == ("mu", "L", "T")
]
BUDGETS = {"pure": es.Pure(2.0), "concentrated": es.Concentrated(0.3), "approximate": es.Approximate(2.0, 1e-6)}
LOGISTIC = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.1, n=60, d=3, intercept=True)
LARGER = es.Problem(es.PseudoHuber(), es.Box(0, 1), ridge=0.1, n=3000, d=3, intercept=True)
LEAST_SQUARES = es.Problem(es.Squared(2.0), es.Box(0, 1), ridge=0.1, n=3000, d=3, intercept=True)
# What comes before and after a model: columns of unknown and of known range, and models of classes and of numbers.
UNKNOWN = es.Schema({"a": es.Unbounded(low=0), "b": es.Unbounded(kind="year", missing=True)})
KNOWN = es.Schema({"a": es.Numeric(0, 9, missing=True), "b": es.Category(["x", "y", "z"])})
CLASSES = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.1, n=2000, d=3, intercept=True)
SQUARED = es.Problem(es.Squared(2.0), es.Box(0, 1), ridge=0.1, n=60, d=3, intercept=True)


@cache
def plans() -> dict[str, es.Plan]:
    """Return a plan of a few answers for each method and budget, by their names."""
    found: dict[str, es.Plan] = {}
    for name, budget in BUDGETS.items():
        for method in STEPS:
            found[f"{method.__name__} {name}"] = es.plan(LOGISTIC, budget, method, iterations=4, allocation="uniform")
        if not isinstance(budget, es.Concentrated):  # whose Gaussian noise reads all records
            found[f"sampled {name}"] = es.plan(LOGISTIC, budget, es.gd, iterations=4, batch=9)
        found[f"at each point {name}"] = es.plan(SQUARED, budget, es.gd, iterations=4)
        for method in METHODS:
            options = {"max_iterations": 4} if "max_iterations" in options_of(method) else {}
            problem = SQUARED if method == "statistics" else LOGISTIC
            if method == "clipped":
                found |= clipped(name, budget)
                continue
            found[f"{method} {name}"] = es.plan(problem, budget, method, **options)
        adaptive: Any = es.plan(LARGER, budget, "adaptive")
        found[f"adaptive with radii {name}"] = adaptive
        found[f"weighted {name}"] = adaptive.chosen([0.3 * request.radii[0] for request in adaptive.purchases]).plan
        found[f"adaptive with residuals {name}"] = es.plan(LEAST_SQUARES, budget, "adaptive")
        found[f"intervals {name}"] = es.plan(LARGER, budget, "objective", intervals=0.95)
        found[f"intervals for few records {name}"] = es.plan(LOGISTIC, budget, "objective", intervals=0.9)
        found[f"bounds {name}"] = es.bounds_plan(UNKNOWN, 2000, budget)
        found[f"description {name}"] = es.description_plan(KNOWN, 2000, budget)
        for loss, problem in (("classes", CLASSES), ("numbers", LEAST_SQUARES)):
            found[f"evaluation of {loss} {name}"] = plan_evaluation(problem, budget, np.ones(problem.dimension))
    found["intervals Gaussian"] = es.plan(
        LARGER, BUDGETS["approximate"], "objective", intervals=0.95, mechanism="gaussian"
    )
    smoothness = es.Plan.kinds["SmoothnessPlan"]
    for name in ("pure", "concentrated"):
        found[f"smoothness {name}"] = smoothness(LOGISTIC, BUDGETS[name], 0.9)
    return found


def clipped(name: str, budget: Any) -> dict[str, es.Plan]:
    """Return plans of a few clipped steps: with two looks, with a blend, along a bought axis; of Gaussian noise."""
    if isinstance(budget, es.Pure):
        return {}
    plan: Any = es.plan(LOGISTIC, budget, "clipped")
    rho = 0.999 * plan.rho
    few = replace(plan, steps=(0.24 * rho,) * 4, looks=(0, 2), prices=(0.02 * rho, 0.02 * rho), middle=0.0)
    blended = replace(few, steps=(0.2 * rho,) * 4, blend=(0.035 * rho, 0.005 * rho))
    along = replace(few, steps=(0.3 * rho, 0.2 * rho, 0.2 * rho, 0.1 * rho), middle=0.16 * rho)
    return {f"clipped {name}": few, f"clipped and blended {name}": blended, f"clipped along an axis {name}": along}


def records(problem: es.Problem, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return records of the problem."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (problem.n, problem.d))
    return X, np.where(X @ rng.standard_normal(problem.d) + 0.3 * rng.standard_normal(problem.n) > 0, 1.0, -1.0)


def rows_for(plan: es.Plan, seed: int = 0) -> es.Rows:
    """Return records that a plan can be run on."""
    return es.Rows(plan.problem, *records(plan.problem, seed))
