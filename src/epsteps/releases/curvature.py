"""Curvature first, executed: noisy moments, a noisy second moment, then noisy gradients at points of a model."""

import numpy as np

from epsteps.designs import Model, Moments, Spread, covariance, decode_moments, whitening_of
from epsteps.noise import Source
from epsteps.oracles import noisy_gradient
from epsteps.plans.curvature_plan import CurvaturePlan
from epsteps.records import Rows
from epsteps.releases.moments import moment_releases
from epsteps.releases.second_moment import SecondMomentRelease

_Extras = dict[str, np.ndarray]


def release_curvature(plan: CurvaturePlan, data: Rows, source: Source) -> tuple[np.ndarray, _Extras]:
    """Return the path x_0 = 0, ..., x_T, one row each, and all other published numbers.

    Everything between the releases is computed from released and public numbers alone.
    """
    moments, published = _moments(plan, data, source)
    division = plan.divide(moments)
    spread, more = _spread(plan, moments, division.curvature, data, source)
    path, gradients = _path(plan, plan.model(spread), division.gradients, data, source)
    costs = np.array([division.curvature, *division.gradients])
    last = {"costs": costs, "gradients": gradients, "mean": spread.mean, "covariance": spread.covariance}
    return path, published | more | last


def _path(
    plan: CurvaturePlan, model: Model, costs: tuple[float, ...], data: Rows, source: Source
) -> tuple[np.ndarray, np.ndarray]:
    """Release a gradient for each cost, at the minimum of the model that those before it have corrected."""
    path, gradients = [np.zeros(plan.problem.dimension)], []
    for t, cost in enumerate(costs):
        gradients.append(noisy_gradient(plan.minimised, plan.noise, cost, path[t], data, source))
        if t > 0:
            noise = plan.noise_at(path[t - 1], costs[t - 1]) + plan.noise_at(path[t], cost)
            model = model.corrected(path[t - 1], path[t], gradients[t] - gradients[t - 1], noise)
        path.append(plan.held(model.minimum(path[t], gradients[t])))
    return np.array(path), np.array(gradients)


def _moments(plan: CurvaturePlan, data: Rows, source: Source) -> tuple[Moments, _Extras]:
    """Release means, and squares where columns are numeric."""
    released = []
    for release in moment_releases(plan.columns, plan.statistics):
        noise = release.noise(source)
        released.append(release.published(release.sums(data), noise))
    noises = tuple(statistic.deviations for statistic in plan.statistics)
    names = ("released_means", "released_squares")
    return decode_moments(plan.columns, tuple(released), noises), dict(zip(names, released, strict=False))


def _spread(plan: CurvaturePlan, moments: Moments, cost: float, data: Rows, source: Source) -> tuple[Spread, _Extras]:
    """Release the second moment of whitened records, if that is worth its cost."""
    n, curvature = plan.problem.n, plan.curvature
    whitening = whitening_of(moments, plan.noise.unit, curvature, plan.ridge, n, cost)
    if whitening is None:
        return covariance(plan.columns, moments, None, None, None, curvature), {}
    release = SecondMomentRelease(whitening, plan.noise.unit, n, cost)
    noise = release.noise(source)
    found = release.published(release.sums(data), noise)
    known = whitening.noise(plan.noise.unit, n, cost)
    return covariance(plan.columns, moments, whitening, found, known, curvature), {"released_second_moment": found}
