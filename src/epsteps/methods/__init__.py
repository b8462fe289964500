"""Plans whose releases are not a sequence of steps, and the choice among all methods."""

from epsteps.methods.choice import plan
from epsteps.methods.curvature import CurvaturePlan, plan_curvature, prefers_descent
from epsteps.methods.objective import ObjectivePlan
from epsteps.methods.output import OutputPlan, plan_output
from epsteps.methods.perturbing import plan_objective
from epsteps.methods.statistics import StatisticsPlan, plan_statistics
from epsteps.plans.published import Item, PublishedPlan

__all__ = [
    "CurvaturePlan",
    "Item",
    "ObjectivePlan",
    "OutputPlan",
    "PublishedPlan",
    "StatisticsPlan",
    "plan",
    "plan_curvature",
    "plan_objective",
    "plan_output",
    "plan_statistics",
    "prefers_descent",
]
