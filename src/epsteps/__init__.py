"""epsteps: differentially private convex optimisation, planned in public and run in private."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from epsteps import bounds, budgets
from epsteps.auditing import Audit, Calibration, Coverage, audit, calibration, coverage
from epsteps.bounds import NoBoundError
from epsteps.bounds.steps import Steps, gd, heavy_ball, multistage, nesterov, restarted_nesterov
from epsteps.budgets import Approximate, Concentrated, Expense, Pure
from epsteps.data.rows import Rows, check
from epsteps.ledger import BudgetExceededError, Ledger, LedgerError
from epsteps.methods import CurvaturePlan, IntervalPlan, ObjectivePlan, OutputPlan, StatisticsPlan, StepsPlan, plan
from epsteps.methods.bought import SmoothnessEstimate
from epsteps.methods.choice import UnreachableError, required_epsilon, required_n
from epsteps.methods.description import DescriptionPlan
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
from epsteps.tables import (
    Bounds,
    Category,
    Description,
    Numeric,
    Schema,
    Unbounded,
    bounds_plan,
    buy_bounds,
    describe,
    description_plan,
)

if TYPE_CHECKING:
    from epsteps.estimators import (
        PrivateHuberRegressor,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
        PrivateSearch,
        evaluate,
    )
    from epsteps.service.client import connect

_ESTIMATORS = (
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSearch",
    "evaluate",
)


def __getattr__(name: str) -> Any:
    """Return an estimator, or ``connect``, when it is asked for: plans and runs do not wait for their imports."""
    if name in _ESTIMATORS:
        return getattr(import_module("epsteps.estimators"), name)
    if name == "connect":
        return import_module("epsteps.service.client").connect
    raise AttributeError(f"module 'epsteps' has no attribute {name!r}")


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
    "gd",
    "heavy_ball",
    "multistage",
    "nesterov",
    "plan",
    "required_epsilon",
    "required_n",
    "restarted_nesterov",
    "run",
]
__version__ = "0.1.0"
