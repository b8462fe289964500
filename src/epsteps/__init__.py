"""epsteps: differentially private convex optimisation, planned in public and run in private."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epsteps import bounds, budgets
    from epsteps.auditing import Audit, Calibration, Coverage, audit, calibration, coverage
    from epsteps.bounds import NoBoundError
    from epsteps.bounds.steps import Steps, gd, heavy_ball, multistage, nesterov, restarted_nesterov
    from epsteps.budgets import Approximate, Concentrated, Expense, Pure
    from epsteps.data.rows import Rows, check
    from epsteps.estimators import (
        PrivateHuberRegressor,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
        PrivateSearch,
        fit_held_out,
        load,
        unprotected_scores,
    )
    from epsteps.ledger import BudgetExceededError, Ledger, LedgerError
    from epsteps.methods import CurvaturePlan, IntervalPlan, ObjectivePlan, OutputPlan, StatisticsPlan, StepsPlan, plan
    from epsteps.methods.bought import SmoothnessEstimate
    from epsteps.methods.choice import UnreachableError, required_epsilon, required_n
    from epsteps.methods.description import DescriptionPlan
    from epsteps.methods.evaluation import EvaluationPlan
    from epsteps.methods.intervals.table import Intervals
    from epsteps.methods.places import BoundsPlan
    from epsteps.plans.notation import PlanFormatError
    from epsteps.plans.plan import Charge, OverspentError, Plan, Published
    from epsteps.plans.requests import Gradient, Sum
    from epsteps.plans.utility import HopelessError, Utility
    from epsteps.problem.ball import Ball
    from epsteps.problem.box import Box
    from epsteps.problem.domain import Domain
    from epsteps.problem.losses import (
        CappedLogistic,
        HalfExponential,
        Logistic,
        Loss,
        PseudoHuber,
        SmoothedHinge,
        Softmax,
        Squared,
    )
    from epsteps.problem.problem import Problem
    from epsteps.problem.validate import MissingExtraError
    from epsteps.running.checkpoint import CheckpointError
    from epsteps.running.run import Run, estimate_smoothness, run
    from epsteps.service.client import connect
    from epsteps.tables import (
        Bounds,
        Category,
        Description,
        Evaluation,
        Numeric,
        Schema,
        Unbounded,
        bounds_plan,
        buy_bounds,
        describe,
        description_plan,
        evaluate,
        evaluation_plan,
    )

__all__ = [
    "Approximate",
    "Audit",
    "Ball",
    "Bounds",
    "BoundsPlan",
    "Box",
    "BudgetExceededError",
    "Calibration",
    "CappedLogistic",
    "Category",
    "Charge",
    "CheckpointError",
    "Concentrated",
    "Coverage",
    "CurvaturePlan",
    "Description",
    "DescriptionPlan",
    "Domain",
    "Evaluation",
    "EvaluationPlan",
    "Expense",
    "Gradient",
    "HalfExponential",
    "HopelessError",
    "IntervalPlan",
    "Intervals",
    "Ledger",
    "LedgerError",
    "Logistic",
    "Loss",
    "MissingExtraError",
    "NoBoundError",
    "Numeric",
    "ObjectivePlan",
    "OutputPlan",
    "OverspentError",
    "Plan",
    "PlanFormatError",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSearch",
    "Problem",
    "PseudoHuber",
    "Published",
    "Pure",
    "Rows",
    "Run",
    "Schema",
    "SmoothedHinge",
    "SmoothnessEstimate",
    "Softmax",
    "Squared",
    "StatisticsPlan",
    "Steps",
    "StepsPlan",
    "Sum",
    "Unbounded",
    "UnreachableError",
    "Utility",
    "audit",
    "bounds",
    "bounds_plan",
    "budgets",
    "buy_bounds",
    "calibration",
    "check",
    "connect",
    "coverage",
    "describe",
    "description_plan",
    "estimate_smoothness",
    "evaluate",
    "evaluation_plan",
    "fit_held_out",
    "gd",
    "heavy_ball",
    "load",
    "multistage",
    "nesterov",
    "plan",
    "required_epsilon",
    "required_n",
    "restarted_nesterov",
    "run",
    "unprotected_scores",
]
__version__ = "0.5.0"

# Names whose rooms are quick to import, or stand at the end of a long way that few go: these are imported one by one.
_ALONE = {
    "epsteps.budgets": ("Approximate", "Concentrated", "Expense", "Pure"),
    "epsteps.estimators": (
        "PrivateHuberRegressor",
        "PrivateLinearSVC",
        "PrivateLogisticRegression",
        "PrivateRidge",
        "PrivateSearch",
        "fit_held_out",
        "load",
        "unprotected_scores",
    ),
    "epsteps.ledger": ("BudgetExceededError", "Ledger", "LedgerError"),
    "epsteps.problem.validate": ("MissingExtraError",),
    "epsteps.service.client": ("connect",),
}
# All others come together, when the first of them is asked for: what is read from JSON knows every kind then.
_TOGETHER = {
    "epsteps.auditing": ("Audit", "Calibration", "Coverage", "audit", "calibration", "coverage"),
    "epsteps.bounds": ("NoBoundError",),
    "epsteps.bounds.steps": ("Steps", "gd", "heavy_ball", "multistage", "nesterov", "restarted_nesterov"),
    "epsteps.data.rows": ("Rows", "check"),
    "epsteps.methods": (
        "CurvaturePlan",
        "IntervalPlan",
        "ObjectivePlan",
        "OutputPlan",
        "StatisticsPlan",
        "StepsPlan",
        "plan",
    ),
    "epsteps.methods.bought": ("SmoothnessEstimate",),
    "epsteps.methods.choice": ("UnreachableError", "required_epsilon", "required_n"),
    "epsteps.methods.description": ("DescriptionPlan",),
    "epsteps.methods.evaluation": ("EvaluationPlan",),
    "epsteps.methods.intervals.table": ("Intervals",),
    "epsteps.methods.places": ("BoundsPlan",),
    "epsteps.plans.notation": ("PlanFormatError",),
    "epsteps.plans.plan": ("Charge", "OverspentError", "Plan", "Published"),
    "epsteps.plans.requests": ("Gradient", "Sum"),
    "epsteps.plans.utility": ("HopelessError", "Utility"),
    "epsteps.problem.ball": ("Ball",),
    "epsteps.problem.box": ("Box",),
    "epsteps.problem.domain": ("Domain",),
    "epsteps.problem.losses": (
        "CappedLogistic",
        "HalfExponential",
        "Logistic",
        "Loss",
        "PseudoHuber",
        "SmoothedHinge",
        "Softmax",
        "Squared",
    ),
    "epsteps.problem.problem": ("Problem",),
    "epsteps.running.checkpoint": ("CheckpointError",),
    "epsteps.running.run": ("Run", "estimate_smoothness", "run"),
    "epsteps.tables": (
        "Bounds",
        "Category",
        "Description",
        "Evaluation",
        "Numeric",
        "Schema",
        "Unbounded",
        "bounds_plan",
        "buy_bounds",
        "describe",
        "description_plan",
        "evaluate",
        "evaluation_plan",
    ),
}
_ROOMS = (
    *("problem", "bounds", "budgets", "plans", "methods", "noise", "data", "ledger", "running", "auditing", "testing"),
    *("tables", "estimators", "service", "paper", "cli"),
)

if not TYPE_CHECKING:  # for a type checker every public name is there, and no other

    def __getattr__(name):
        """Import a public name, or a room, when it is first asked for: few need all of them, which takes a second."""
        if name in _ROOMS:
            return import_module(f"epsteps.{name}")
        for place, names in _ALONE.items():
            if name in names:
                globals()[name] = found = getattr(import_module(place), name)
                return found
        if name in __all__:
            for place, names in _TOGETHER.items():
                module = import_module(place)
                globals().update((public, getattr(module, public)) for public in names)
            return globals()[name]
        raise AttributeError(f"module 'epsteps' has no attribute {name!r}")

    def __dir__():
        """Return what there is, imported or not."""
        return sorted({*globals(), *__all__})
