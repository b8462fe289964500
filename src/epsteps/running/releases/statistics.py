"""Sufficient statistics, executed: exact integer sums, noise, and the model that is solved from the two."""

from dataclasses import dataclass

import numpy as np

from epsteps.budgets import mechanisms
from epsteps.data.rows import Rows
from epsteps.methods.designs import Definite, definite, held
from epsteps.methods.statistics import WISHART, StatisticsPlan, squared
from epsteps.noise import Source, added
from epsteps.problem import levels
from epsteps.problem.grid import STEPS

# Products of integers within 2^21 are within 2^42: a double holds a sum of this many exactly.
_ROWS_PER_DOUBLE = 2**11


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """The one release of a plan: the sum of aa' over the records' vectors, in integers, with noise."""

    plan: StatisticsPlan

    def noise(self, source: Source) -> np.ndarray:
        """Draw the noise, a symmetric matrix of Python's integers. Sees no records."""
        plan, k = self.plan, self.plan.vectors.size
        scale = plan.scale / plan.step
        if plan.mechanism == WISHART:
            return source.wishart_difference(k, scale).astype(object)
        rows, columns = np.triu_indices(k)
        scales = np.where(rows == columns, scale, np.nextafter(scale * np.sqrt(0.5), np.inf))
        found = np.zeros((k, k), dtype=object)
        found[rows, columns] = source.integers(mechanisms.named("gaussian"), scales, (len(rows),)).astype(object)
        found[columns, rows] = found[rows, columns]
        return found

    def moments(self, data: Rows) -> np.ndarray:
        """Return the released integers before the noise, UNPROTECTED: a symmetric matrix of Python's integers."""
        plan, total = self.plan, 0
        for features, targets in data.blocks():
            vectors = self.vectors(features[:, : plan.problem.d], targets)
            part = np.zeros((vectors.shape[1],) * 2, dtype=np.int64)  # a block has at most 2^20 records
            for start in range(0, len(vectors), _ROWS_PER_DOUBLE):
                some = vectors[start : start + _ROWS_PER_DOUBLE]
                part += (some.T @ some).astype(np.int64)
            total = total + part.astype(object)
        weights = np.array(plan.weights, dtype=object)
        return (total * np.outer(weights, weights) + (1 << plan.shift >> 1)) >> plan.shift

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def vectors(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return records' vectors before they are weighed, UNPROTECTED: integers within 2^21, inside the domain.

        Every one depends on its own record alone.
        """
        problem = self.plan.problem
        found = np.empty((len(targets), problem.d + 2))
        found[:, 0] = STEPS
        found[:, 1:-1] = problem.domain.integers(features, STEPS) - np.array(self.plan.centre, dtype=float)
        found[:, -1] = levels.rounded(targets, squared(problem).bound)
        return found

    def noisy(self, moments: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return what is published: the noisy sum in units of 2^20 integers. The constant's square is public."""
        found = added(moments, noise).astype(float) * self.plan.step
        found[0, 0] = float(self.plan.problem.n) * self.plan.weights[0] ** 2
        return found


def require_readable(data: Rows) -> None:
    """Read every record once: what cannot be read, as records in dask workers, fails before anything is charged."""
    for _ in data.blocks():
        pass


def release_statistics(plan: StatisticsPlan, data: Rows, source: Source) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the model, as the one row of a path, and the noisy sums over (1, features, target) in real units."""
    release = NoisyMoments(plan)
    noise = release.noise(source)
    noisy = release.noisy(release.moments(data), noise)
    return solved(plan, noisy)[None, :], {"moments": uncentred(plan, noisy)}


def solved(plan: StatisticsPlan, noisy: np.ndarray) -> np.ndarray:
    """Return the model for noisy sums: post-processing.

    Sums of aa' have no negative eigenvalues, and none above n times the longest vector's square, so what is outside is
    noise: it is taken off. Small ones of the features' part are raised to the floor, as noise is what makes them so
    small. A model that is longer than F(0) and the ridge allow, and so worse than 0, is shortened to that length.
    Whatever finite numbers were released, the model is finite.
    """
    possible = definite(noisy, 0.0, plan.largest_sum).matrix
    slopes, units = plan.vectors.slopes, plan.vectors.model_units
    target = np.zeros(len(noisy))
    target[-1] = squared(plan.problem).bound / plan.weights[-1]
    curvature = definite(slopes.T @ possible @ slopes, 0.0)
    raised = Definite(np.hypot(curvature.values, plan.floor), curvature.vectors).matrix
    ridge = np.diag(plan.problem.n * plan.problem.ridge * units**2)
    found = definite(raised + ridge, plan.floor).solved(slopes.T @ (possible @ target))
    return held(units * found, plan.radius)


def uncentred(plan: StatisticsPlan, noisy: np.ndarray) -> np.ndarray:
    """Return noisy sums of the products of 1, the features and the target, in their own units: post-processing."""
    problem, vectors = plan.problem, plan.vectors
    d = problem.d
    back = np.diag(np.concatenate([[1.0], problem.units[:d], [squared(problem).bound]]) / np.array(vectors.weights))
    back[1:-1, 0] = problem.units[:d] * np.array(plan.centre) / STEPS / vectors.weights[0]
    return back @ noisy @ back.T
