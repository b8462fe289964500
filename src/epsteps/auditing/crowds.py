"""Datasets on which a published minimum tells most: two records, and a crowd that holds the minimum far out.

Privacy does not depend on n beyond n times the ridge. So the audited plan has the plan's own tilt, output noise, solver
tolerance and product of n and ridge, and as many records as it takes to hold the minimum where both records of the
pair have nearly their largest slopes, although they point away from each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Generic, TypeVar

import numpy as np
from scipy.optimize import linprog

from epsteps.auditing.worst_case import (
    extreme_features,
    extreme_targets,
    far_point,
    loss_hessian,
    noise_norm,
    record_gradients,
)
from epsteps.data.rows import Rows
from epsteps.methods import ObjectivePlan, OutputPlan
from epsteps.problem.problem import Problem

# Larger crowds would hold the minimum farther out, but take too long.
_MOST_RECORDS = 4096
_LEANS = (0.05, 0.1, 0.2, 0.35)
_MARGINS = (7.0, 5.0, 3.5, 2.5, 1.5)
_SIZES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.0)
# Epsilons of a group of so many together are told apart best.
_LOSS, _MU = 2.5, 3.0
# Candidates for which a crowd is sought, the best first, and ends of the domain that they are made of.
_TRIES, _ENDS = 200, 8
# A record of a crowd pulls at x by its slope, but along x by at most this: as it pulls, its slope falls.
_PULL = 0.3


_P = TypeVar("_P", ObjectivePlan, OutputPlan)


@dataclass(frozen=True, eq=False)
class Crowd(Generic[_P]):
    """Two datasets: ``counts`` copies of each record that they share, and ``replaced`` copies of either of the pair."""

    plan: _P
    features: np.ndarray
    targets: np.ndarray
    counts: np.ndarray
    replaced: int
    share: float

    @cached_property
    def audited(self) -> _P:
        """The plan for so many records, with the same noise, and the same product of n and ridge."""
        plan, n = self.plan, int(self.counts.sum()) + self.replaced
        ratio = plan.problem.n / n
        problem = replace(plan.problem, n=n, ridge=plan.problem.ridge * ratio)
        return replace(plan, problem=problem, ridge=plan.ridge * ratio, tolerance=plan.tolerance * (1 - 1e-9))

    def rows(self, which: int) -> Rows:
        """Return one of the datasets."""
        copies = np.concatenate([[self.replaced * (which == 0), self.replaced * (which == 1)], self.counts])
        index = np.repeat(np.arange(len(copies)), copies)
        return Rows(self.audited.problem, self.features[index], self.targets[index], engine="numpy")


def crowded(plan: ObjectivePlan) -> Crowd[ObjectivePlan]:
    """Return datasets that differ by the largest share of the sensitivity at their minima, among those tried."""
    return next(crowds_of(plan))


def crowds_of(plan: _P, spread: int = 1) -> Iterator[Crowd[_P]]:
    """Yield datasets that differ much at their minima, by the share of the sensitivity; every ``spread``-th of them."""
    problem = plan.minimised
    replaced = _group(plan)
    found = sorted(_candidates(plan), key=lambda candidate: -candidate[0])
    for share, x, features, targets in found[: spread * _TRIES : spread]:
        crowd = _holding(problem, x, features, targets, replaced)
        if crowd is not None:
            others, labels, counts = crowd
            everyone, everything = np.concatenate([features, others]), np.concatenate([targets, labels])
            yield Crowd(plan, everyone, everything, counts, replaced, share)
    share, _, features, targets = max(_candidates(plan, still=True), key=lambda candidate: candidate[0])
    yield Crowd(plan, features, targets, np.zeros(0, dtype=int), max(replaced, 2), share)


def _group(plan: ObjectivePlan | OutputPlan) -> int:
    """Return how many records are replaced at once: about as many as are told apart half of the time."""
    costs = plan.costs if isinstance(plan, ObjectivePlan) else plan.cost
    wanted = (_LOSS if plan.noise.unit == "epsilon" else _MU) / float(np.median(costs))
    return max(1, min(round(wanted), _MOST_RECORDS // 4))


def _candidates(
    plan: ObjectivePlan | OutputPlan, still: bool = False
) -> Iterator[tuple[float, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield pairs of records at points, each with the share of the sensitivity that it attains there."""
    problem, labels = plan.problem, extreme_targets(plan.problem)
    ends = extreme_features(problem)[:_ENDS]
    declared = problem.sensitivity(plan.noise.norm)
    for pair in _pairs(ends):
        for targets in (labels[[0, 0]], labels[[0, 1]]):
            for x in _points(plan.minimised, pair, still):
                gradients = record_gradients(problem, x, pair, targets)
                moved = float(noise_norm(plan.noise, problem, gradients[:, 1] - gradients[:, 0]))
                yield moved / declared, x, pair, targets


def _pairs(ends: np.ndarray) -> Iterator[np.ndarray]:
    """Yield two ends, straight and leaning toward a third one."""
    for i, j in product(range(len(ends)), repeat=2):
        if i <= j:
            yield ends[[i, j]]
            for lean, k in product(_LEANS, range(min(len(ends), 4))):
                yield (1 - lean) * ends[[i, j]] + lean * ends[k]


def _points(problem: Problem, pair: np.ndarray, still: bool) -> Iterator[np.ndarray]:
    """Yield points where the pair has large margins, as far as the largest crowd can hold a minimum."""
    if still:
        yield np.zeros(problem.dimension)
        return
    farthest = np.sqrt(_PULL * _MOST_RECORDS / (problem.n * problem.ridge))
    for signs in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
        direction = far_point(problem, pair, np.array(signs, dtype=float))
        length = float(np.linalg.norm(direction))
        yield from (margin * direction for margin in _MARGINS if margin * length <= farthest)


def _holding(
    problem: Problem, x: np.ndarray, pair: np.ndarray, targets: np.ndarray, replaced: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the smallest crowd whose gradients balance the ridge and half of either dataset's at x, if one is small.

    What it is short of after rounding the counts moves the minimum by little.
    """
    pull = problem.n * problem.ridge * x + replaced * record_gradients(problem, x, pair, targets).mean(axis=1)
    ends, labels = extreme_features(problem), extreme_targets(problem)
    scaled = problem.domain.project(np.concatenate([size * ends for size in _SIZES]))
    features = np.repeat(scaled, len(labels), axis=0)
    own = np.tile(labels, len(scaled))
    gradients = record_gradients(problem, x, features, own)
    size = np.abs(gradients).max()
    found = linprog(np.ones(len(features)), A_eq=gradients / size, b_eq=-pull / size, bounds=(0, None), method="highs")
    if not found.success or found.fun > _MOST_RECORDS - 2 * replaced:
        return None
    counts = np.rint(found.x).astype(int)
    used = counts > 0
    return features[used], own[used], counts[used]


def log_ratio(crowd: Crowd[ObjectivePlan], number: int, x: np.ndarray) -> np.ndarray:
    """Return ln of the density of each minimum (a column of x) on the first dataset over that on the second, exactly.

    The density of x is that of the tilt that leads to it, times the Jacobian. Noise on the output is left out: it is
    far below the tilt's.
    """
    plan = crowd.audited
    tilts = [recovered_tilts(crowd, which, x) for which in (0, 1)]
    sizes = [noise_norm(plan.noise, plan.problem, tilt) / plan.scales[number] for tilt in tilts]
    first, second = ((size**2 / 2 if plan.noise.unit == "rho" else size) for size in sizes)
    return second - first + _log_volumes(crowd, 0, x) - _log_volumes(crowd, 1, x)


def recovered_tilts(crowd: Crowd[ObjectivePlan], which: int, x: np.ndarray) -> np.ndarray:
    """Return the tilts that lead to these minima on one of the datasets."""
    plan, data = crowd.audited, crowd.rows(which)
    return -plan.problem.n * (data.gradient(x) + (plan.ridge - plan.problem.ridge) * x)


def _log_volumes(crowd: Crowd[ObjectivePlan], which: int, x: np.ndarray) -> np.ndarray:
    """Return ln det of the second derivatives at each column of x, from the distinct records and their counts."""
    plan = crowd.audited
    problem = plan.problem
    counts = np.concatenate([[crowd.replaced * (which == 0), crowd.replaced * (which == 1)], crowd.counts])
    rows = problem.domain.project(crowd.features)
    rows = np.column_stack([rows, np.ones(len(rows))]) if problem.intercept else rows
    targets, ridge = problem.loss.encode(crowd.targets), plan.problem.n * plan.ridge * np.eye(problem.dimension)
    hessians = (ridge + loss_hessian(problem, point, rows, targets, counts) for point in x.T)
    return np.array([float(np.linalg.slogdet(hessian)[1]) for hessian in hessians])
