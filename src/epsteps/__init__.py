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
from epsteps.methods.evaluation import EvaluationPlan
from epsteps.methods.intervals.table import Intervals
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
from epsteps.tables import Category, Evaluation, Numeric, Schema, evaluate, evaluation_plan

if TYPE_CHECKING:
    from epsteps.estimators import (
        PrivateHuberRegressor,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
        PrivateSearch,
        fit_held_out,
        unprotected_scores,
    )
    from epsteps.service.client import connect

_ESTIMATORS = (
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSearch",
    "fit_held_out",
    "unprotected_scores",
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
    "UnreachableError",
    "Utility",
    "audit",
    "bounds",
    "budgets",
    "calibration",
    "check",
    "connect",
    "coverage",
    "estimate_smoothness",
    "evaluate",
    "evaluation_plan",
    "fit_held_out",
    "gd",
    "heavy_ball",
    "multistage",
    "nesterov",
    "plan",
    "required_epsilon",
    "required_n",
    "restarted_nesterov",
    "run",
    "unprotected_scores",
]
__version__ = "0.1.0"
