"""Releases: private numbers and models that are not the path of a plan's steps, one file each."""

import numpy as np

from epsteps.noise import Source
from epsteps.plans import ObjectivePlan, PublishedPlan
from epsteps.records import Rows
from epsteps.releases.objective import release_objective, require_precision


def prepare(plan: PublishedPlan, data: Rows) -> None:
    """Read the records once: what cannot be read, or computed here, fails before anything is charged."""
    if isinstance(plan, ObjectivePlan):
        require_precision(plan)
        data.value(np.zeros(plan.problem.dimension))
    else:
        data.prepare()


def publish(plan: PublishedPlan, data: Rows, source: Source) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the published points, one row each, and what else was published."""
    if isinstance(plan, ObjectivePlan):
        return release_objective(plan, data, source), {}
    raise TypeError(f"plan must come from epsteps.plan, got {type(plan).__name__}.")


__all__ = ["prepare", "publish"]
