"""Plans whose releases are not a sequence of steps, and the choice among all methods."""

from epsteps.plans.choice import plan
from epsteps.plans.curvature import CurvaturePlan, plan_curvature, prefers_descent
from epsteps.plans.objective import ObjectivePlan
from epsteps.plans.output import OutputPlan, plan_output
from epsteps.plans.perturbing import plan_objective
from epsteps.plans.published import Item, PublishedPlan
from epsteps.plans.statistics import StatisticsPlan, plan_statistics

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
