"""The releases of a plan that add noise to integers, each on two datasets that differ as much as the domain allows.

Privacy depends neither on n, which is public, nor on the points, costs and weights that a run derives from what it has
released. So each release is made on as few records as are replaced, at a point and with weights where they differ most.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from epsteps.auditing.attacks import Attack
from epsteps.auditing.crowds import Crowd, crowds_of
from epsteps.auditing.extremes import records_of, widest_matrices, widest_vectors
from epsteps.auditing.laws import Gaussians, Law, Traces, Vectors
from epsteps.auditing.worst_case import Stated, noise_norm, worst_pair
from epsteps.budgets import Epsilon
from epsteps.data.rows import Rows
from epsteps.methods import CurvaturePlan, OutputPlan, StatisticsPlan
from epsteps.methods.curvature import MATRIX_STEPS, Moments, Statistic, Whitening, whitening_of
from epsteps.methods.curvature.sums import ColumnMeans, SecondMoment, column_means
from epsteps.methods.minimum import Minimum
from epsteps.methods.statistics import WISHART, SecondMoments
from epsteps.noise import Source
from epsteps.plans.requests import Gradient
from epsteps.problem import grid
from epsteps.problem.sampling import Sampling
from epsteps.running.run import Reader

_MOST_RECORDS = 2**14
_FULL = Sampling(1, 1)
# Crowds that are tried: so many, of pairs that are so many places apart in the order of their shares.
_CROWDS, _SPREAD = 24, 8


@dataclass(frozen=True, eq=False)
class Part:
    """One release on two datasets: ``draw(which, source)`` makes it, less the first one's centre, as its law has it.

    ``claimed`` is what one record is said to cost, in the law's unit; ``share`` how much of it these records attain.
    """

    law: Law
    claimed: float
    records: int
    share: float
    away: np.ndarray
    draw: Callable[[int, Source], np.ndarray]


def parts_of(plan: OutputPlan | StatisticsPlan | CurvaturePlan) -> list[Part]:
    """Return what is audited of a plan, in the order of its releases."""
    if isinstance(plan, OutputPlan):
        return [_minimum(plan)]
    if isinstance(plan, StatisticsPlan):
        return [_sufficient(plan)]
    return [*_moments(plan), _second_moment(plan), *(_gradient(plan, cost) for cost in plan.expected.gradients)]


def _minimum(plan: OutputPlan) -> Part:
    """Return the minimum with noise: the crowd, of those tried, in which the pair moves it most."""
    crowd, found = max(
        ((crowd, _minima(crowd)) for crowd in islice(crowds_of(plan, _SPREAD), _CROWDS)), key=_moved_most
    )
    release = crowd.audited.minimum
    centre, other = (_point(release, minimum) for minimum in found)
    moved = other - centre

    def draw(which: int, source: Source) -> np.ndarray:
        return (release.publish(found[which], release.draw(source)) - centre) / plan.scale

    share = float(np.linalg.norm(moved)) / (crowd.replaced * plan.cost * plan.scale)
    law = Vectors(Attack(plan.noise, plan.problem, moved))
    return Part(law, plan.cost, crowd.replaced, share, moved / plan.scale, draw)


def _minima(crowd: Crowd[OutputPlan]) -> list[np.ndarray]:
    return [crowd.audited.minimum.read(Reader(crowd.rows(which)), {}) for which in (0, 1)]


def _point(release: Minimum, minimum: np.ndarray) -> np.ndarray:
    return release.publish(minimum, {"noise": np.zeros(len(minimum), dtype=int)})


def _moved_most(found: tuple[Crowd[OutputPlan], list[np.ndarray]]) -> float:
    crowd, (first, second) = found
    return float(np.linalg.norm((second - first).astype(float))) * crowd.audited.step


def _sufficient(plan: StatisticsPlan) -> Part:
    """Return second moments of the whole records: two of them nearly at right angles."""
    release = SecondMoments(plan)
    features, targets = records_of(plan.problem)
    vectors = release.encode(features, targets) * np.array(plan.weights, dtype=float)
    chosen = widest_matrices(vectors)

    def sums(which: int, records: int) -> np.ndarray:
        few = replace(plan.problem, n=records)
        index = np.full(records, chosen[which])
        rows = Rows(few, features[index], targets[index], engine="numpy")
        return SecondMoments(replace(plan, problem=few)).read(Reader(rows), {})

    law = Traces(len(plan.weights) + 1) if plan.mechanism == WISHART else Gaussians()
    return _matrix(release, law, plan.cost, plan.scale / plan.step, sums)


def _second_moment(plan: CurvaturePlan) -> Part:
    """Return the second moment of whitened records, shortened to what the longest of them reach."""
    whitening, cost, kind = _whitening(plan), plan.expected.curvature, plan.noise.kind
    features, targets = records_of(plan.problem)
    release = SecondMoment(plan.problem, whitening, kind, cost)
    chosen = widest_matrices(release.encode(features))

    def sums(which: int, records: int) -> np.ndarray:
        index = np.full(records, chosen[which])
        rows = Rows(replace(plan.problem, n=records), features[index], targets[index], engine="numpy")
        return replace(release, problem=rows.problem).read(Reader(rows), {})

    if kind is Epsilon:
        return _matrix(release, Traces(release.k + 1), cost, MATRIX_STEPS**2 / cost, sums)
    return _matrix(release, Gaussians(), math.sqrt(2 * cost), MATRIX_STEPS**2 / math.sqrt(cost), sums)


def _matrix(
    release: SecondMoments | SecondMoment,
    law: Traces | Gaussians,
    claimed: float,
    scale: float,
    sums: Callable[[int, int], np.ndarray],
) -> Part:
    """Return the release of a symmetric matrix of integers, ``sums(which, records)``, with noise of this scale."""
    one = (sums(1, 2) - sums(0, 2)).astype(float) / 2
    traces = isinstance(law, Traces)
    cost = float(np.linalg.norm(one, ord="nuc") / 2 if traces else np.linalg.norm(one)) / scale
    records = _group(law, cost)
    found = [sums(which, records) for which in (0, 1)]
    change = (found[1] - found[0]).astype(float)
    read = partial(_trace, _sign(change)) if traces else _entries

    def draw(which: int, source: Source) -> np.ndarray:
        return read((found[which] - found[0] + release.draw(source)["noise"]).astype(float)) / scale

    return Part(law, claimed, records, cost / claimed, read(change) / scale, draw)


def _trace(sign: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return np.atleast_1d(np.sum(sign * matrix) / 2)


def _entries(matrix: np.ndarray) -> np.ndarray:
    """Return the entries whose noise is independent, in scales of the diagonal's."""
    rows, columns = np.triu_indices(len(matrix))
    return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))


def _sign(change: np.ndarray) -> np.ndarray:
    """Return the sign of a difference of two outer products: its largest eigenvector's, less that of its smallest."""
    _, basis = np.linalg.eigh(change)
    return np.outer(basis[:, -1], basis[:, -1]) - np.outer(basis[:, 0], basis[:, 0])


def _whitening(plan: CurvaturePlan) -> Whitening:
    """Return that of features spread evenly; as if there were more records, where these are too few for any.

    Records may be no longer than the longest of those that are tried, so that these attain all that a record may.
    """
    mean, variance = plan.problem.domain.even_moments(plan.problem.d)
    moments, n = Moments(mean, variance, np.zeros_like(mean), np.zeros_like(mean)), plan.problem.n
    weigh, cost = partial(whitening_of, moments, plan.noise.kind, plan.curvature, plan.ridge), plan.expected.curvature
    while (found := weigh(n, cost)) is None:
        n *= 2
    features, _ = records_of(plan.problem)
    lengths = np.sum(((features[:, found.columns] - found.mean) * found.weights) ** 2, axis=1)
    return replace(found, length=min(found.length, float(lengths.max())))


def _moments(plan: CurvaturePlan) -> list[Part]:
    """Return means of the columns, and their squares."""
    return [_statistic(plan, release) for release in column_means(plan.problem, plan.columns, plan.statistics)]


def _statistic(plan: CurvaturePlan, release: ColumnMeans) -> Part:
    statistic: Statistic = release.statistic
    features, targets = records_of(plan.problem)
    encoded = release.encode(features).astype(float)
    chosen, wide = widest_vectors(encoded, partial(noise_norm, statistic.mechanism, statistic.problem))
    scale = statistic.scale * grid.STEPS
    law = Vectors(Attack(statistic.mechanism, statistic.problem, encoded[chosen[1]] - encoded[chosen[0]]))
    records = _group(law, wide / scale)
    few, sums = replace(plan.problem, n=records), []
    for place in chosen:
        rows = Rows(few, features[[place] * records], targets[[place] * records], engine="numpy")
        sums.append(release.read(Reader(rows), {}))

    def draw(which: int, source: Source) -> np.ndarray:
        return (sums[which] - sums[0] + release.draw(source)["noise"]).astype(float) / scale

    claimed = math.sqrt(2 * statistic.cost) if law.unit == "mu" else statistic.cost
    return Part(law, claimed, records, wide / scale / claimed, (sums[1] - sums[0]).astype(float) / scale, draw)


def _gradient(plan: CurvaturePlan, cost: float) -> Part:
    """Return a gradient, at the point where two records differ most in it."""
    problem, noise = plan.minimised, plan.noise
    pair = worst_pair(Stated(problem, noise, "state"))
    sensitivity = float(problem.sensitivity_at(pair.x, noise.norm))
    law = Vectors(Attack(noise, problem, pair.difference))
    scale = float(noise.scales(sensitivity, np.array(cost), _FULL)) * law.attack.units
    wide = float(noise_norm(noise, problem, pair.difference)) / float(np.max(scale / law.attack.units))
    records = _group(law, wide)
    few = replace(problem, n=records)
    rows = [
        Rows(few, pair.features[[which] * records], pair.targets[[which] * records], engine="numpy") for which in (0, 1)
    ]

    def draw(which: int, source: Source) -> np.ndarray:
        request = Gradient.at(few, noise, pair.x, cost)
        drawn = request.draw(source)
        found = request.publish(request.read(Reader(rows[which]), drawn), drawn) - problem.ridge * pair.x
        return records * (found - pair.gradients[:, 0]) / scale

    claimed = math.sqrt(2 * cost) if law.unit == "mu" else cost
    return Part(law, claimed, records, wide / claimed, records * pair.difference / scale, draw)


def _group(law: Law, cost: float) -> int:
    """Return how many records are replaced: as many as are told apart best, and the two that a problem has at least."""
    return int(np.clip(round(law.distance / cost), 2, _MOST_RECORDS))
