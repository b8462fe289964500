"""Releases: private numbers and models that are not the path of a plan's steps, one file each."""

import numpy as np

from epsteps.data.rows import Rows
from epsteps.methods import CurvaturePlan, ObjectivePlan, OutputPlan, PublishedPlan, StatisticsPlan
from epsteps.noise import Source
from epsteps.running.releases import curvature, objective, output, statistics


def prepare(plan: PublishedPlan, data: Rows) -> None:
    """Read the records once: what cannot be read, or computed here, fails before anything is charged."""
    if isinstance(plan, ObjectivePlan | OutputPlan):
        plan.require_reachable()
        plan.objective.require_same_records(data.problem)
        next(iter(data.blocks()))  # records in dask workers raise
        data.value(np.zeros(plan.problem.dimension))
    elif isinstance(plan, StatisticsPlan):
        statistics.require_readable(data)
    else:
        data.prepare()


def publish(plan: PublishedPlan, data: Rows, source: Source) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the published points, one row each, and what else was published."""
    if isinstance(plan, ObjectivePlan):
        return objective.release_objective(plan, data, source), {}
    if isinstance(plan, OutputPlan):
        return output.release_output(plan, data, source), {}
    if isinstance(plan, StatisticsPlan):
        return statistics.release_statistics(plan, data, source)
    if isinstance(plan, CurvaturePlan):
        return curvature.release_curvature(plan, data, source)
    raise TypeError(f"plan must come from epsteps.plan, got {type(plan).__name__}.")


__all__ = ["prepare", "publish"]
