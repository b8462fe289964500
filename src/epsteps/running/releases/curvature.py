"""Curvature first, executed: noisy moments, a noisy second moment, then noisy gradients at points of a model."""

import numpy as np

from epsteps.data.rows import Rows
from epsteps.methods.curvature_plan import CurvaturePlan
from epsteps.methods.designs import Model, Moments, Spread, covariance, decode_moments, whitening_of
from epsteps.noise import Source
from epsteps.running.oracles import noisy_gradient
from epsteps.running.releases.moments import moment_releases
from epsteps.running.releases.second_moment import SecondMomentRelease

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
    for cost in costs:
        gradients.append(noisy_gradient(plan.minimised, plan.noise, cost, path[-1], data, source))
        model, x = following(plan, model, costs, path, gradients)
        path.append(x)
    return np.array(path), np.array(gradients)


def following(
    plan: CurvaturePlan, model: Model, costs: tuple[float, ...], path: list[np.ndarray], gradients: list[np.ndarray]
) -> tuple[Model, np.ndarray]:
    """Return the model that the last of the released gradients corrects, and its minimum: post-processing.

    It is finite, and no exception or warning, whatever finite numbers were released.
    """
    known = [plan.possible(x, gradient) for x, gradient in zip(path, gradients, strict=True)]
    x, cost = path[-1], costs[len(path) - 1]
    if len(path) > 1:
        noise = plan.noise_at(path[-2], costs[len(path) - 2]) + plan.noise_at(x, cost)
        model = model.corrected(path[-2], x, known[-1] - known[-2], plan.rarely * noise)
    if plan.is_followed(model, x, cost):
        x = model.minimum(x, known[-1])
    return model, plan.held(x, known[0], costs[0])


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
