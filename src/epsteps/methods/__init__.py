"""The methods: each a kind of plan, what it asks for, and how it is chosen from public numbers."""

from epsteps.methods.choice import plan
from epsteps.methods.curvature.plan import CurvaturePlan, plan_curvature
from epsteps.methods.intervals.plan import IntervalPlan, plan_intervals
from epsteps.methods.objective import ObjectivePlan, plan_objective
from epsteps.methods.output import OutputPlan, plan_output
from epsteps.methods.statistics import StatisticsPlan, plan_statistics
from epsteps.methods.steps import StepsPlan, plan_steps

__all__ = [
    "CurvaturePlan",
    "IntervalPlan",
    "ObjectivePlan",
    "OutputPlan",
    "StatisticsPlan",
    "StepsPlan",
    "plan",
    "plan_curvature",
    "plan_intervals",
    "plan_objective",
    "plan_output",
    "plan_statistics",
    "plan_steps",
]
