"""Plans whose releases are not a sequence of steps, and the choice among all methods."""

from epsteps.plans.choice import plan
from epsteps.plans.objective import ObjectivePlan
from epsteps.plans.perturbing import plan_objective
from epsteps.plans.published import Item, PublishedPlan

__all__ = ["Item", "ObjectivePlan", "PublishedPlan", "plan", "plan_objective"]
