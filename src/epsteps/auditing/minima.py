"""Audits of tilted minima, on datasets where a published minimum tells most: two records, and a crowd around them.

The crowd holds the minimum far out. Privacy does not depend on n beyond n times the ridge. So the audited plan has the
plan's own tilt, output noise, solver tolerance and product of n and ridge, and as many records as it takes to hold the
minimum where both records of the pair have nearly their largest slopes, although they point away from each other.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from epsteps.auditing import attacks as intervals
from epsteps.auditing.report import Audit, StepBound
from epsteps.auditing.steps import independence
from epsteps.auditing.worst_case import (
    Counted,
    counted,
    extreme_features,
    extreme_targets,
    far_point,
    loss_gradients,
    loss_hessian,
    noise_norm,
    with_intercept,
)
from epsteps.budgets.corners import GAUSSIAN, composed
from epsteps.data.rows import Rows
from epsteps.methods import ObjectivePlan, OutputPlan, minima
from epsteps.methods.minimum import Minimised
from epsteps.running.run import run

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
_RUNS = 1000
# Thresholds that are tried on the first runs, as shares of the scores, and how many runs these are.
_THRESHOLDS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_PILOT = 0.25


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
        return _restated(self.plan, int(self.counts.sum()) + self.replaced)

    def copies(self, which: int) -> np.ndarray:
        """Return how often one of the datasets has each record."""
        return np.concatenate([[self.replaced * (which == 0), self.replaced * (which == 1)], self.counts])

    def rows(self, which: int) -> Rows:
        """Return one of the datasets."""
        index = np.repeat(np.arange(len(self.features)), self.copies(which))
        return Rows(self.audited.problem, self.features[index], self.targets[index], engine="numpy")


def _restated(plan: _P, n: int) -> _P:
    """Return the plan for n records, and those before it, with the same noise and the same products of n and ridge."""
    ratio = plan.problem.n / n
    problem = replace(plan.problem, n=n, ridge=plan.problem.ridge * ratio)
    changed: dict[str, Any] = {
        "problem": problem,
        "ridge": plan.ridge * ratio,
        "tolerance": plan.tolerance * (1 - 1e-9),
    }
    if before := _earlier(plan):
        changed["earlier"] = tuple(_restated(each, n) for each in before)
    return replace(plan, **changed)


def _earlier(plan: ObjectivePlan | OutputPlan) -> tuple[ObjectivePlan, ...]:
    """Return the plans of minima that are published before."""
    return getattr(plan, "earlier", ())


def crowds_of(plan: _P, spread: int = 1) -> Iterator[Crowd[_P]]:
    """Yield datasets that differ much at their minima, by the share of the sensitivity; every ``spread``-th of them."""
    if missing := [name for name in ("objective", "noise", "ridge", "tolerance") if not hasattr(plan, name)]:
        raise TypeError(f"{plan.method} has no {', '.join(missing)}: minima of it are not audited. Use a replay.")
    replaced = _group(plan)
    candidates = sorted(_candidates(plan), key=lambda candidate: -candidate[0])
    for share, x, features, targets in candidates[: spread * _TRIES : spread]:
        crowd = _holding(plan.objective, x, features, targets, replaced)
        if crowd is not None and replaced + crowd[2].sum() > 1:  # no dataset has a single record
            others, labels, counts = crowd
            everyone, everything = np.concatenate([features, others]), np.concatenate([targets, labels])
            yield Crowd(plan, everyone, everything, counts, replaced, share)
    share, _, features, targets = max(_candidates(plan, still=True), key=lambda candidate: candidate[0])
    yield Crowd(plan, features, targets, np.zeros(0, dtype=int), max(replaced, 2), share)


def _group(plan: ObjectivePlan | OutputPlan) -> int:
    """Return how many records are replaced at once: about as many as are told apart half of the time."""
    costs = [charge.cost.amount for charge in plan.charges[len(_earlier(plan)) :]]
    wanted = plan.noise.kind.either(_LOSS, _MU) / float(np.median(costs))
    return max(1, min(round(wanted), _MOST_RECORDS // 4))


def _candidates(
    plan: ObjectivePlan | OutputPlan, still: bool = False
) -> Iterator[tuple[float, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield pairs of records at points, each with the share of the sensitivity that it attains there."""
    problem, labels = plan.problem, extreme_targets(plan.problem)
    ends = _ends(plan.objective)[:_ENDS]
    declared = plan.objective.sensitivity(plan.noise.norm)
    for pair in _pairs(ends):
        points = list(_points(plan.objective, pair, still))
        for targets in (labels[[0, 0]], labels[[0, 1]]):
            for x in points:
                gradients = _gradients(plan.objective, x, pair, targets)
                moved = float(noise_norm(plan.noise, problem, gradients[:, 1] - gradients[:, 0]))
                yield moved / declared, x, pair, targets


def _ends(objective: Minimised) -> np.ndarray:
    """Return records at the ends of the domain, or as long as they may be before they are shortened."""
    ends, weighting = extreme_features(objective.problem), objective.weighting
    if weighting is None:
        return ends
    lengths = np.linalg.norm(with_intercept(objective.problem, ends), ord=weighting.norm, axis=1)
    longest = weighting.radius if weighting.held else 1.9 * weighting.radius
    return ends * np.minimum(1, longest / lengths)[:, None]


def _gradients(objective: Minimised, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the gradient of each record's part of the sum, one in each column: its weight included."""
    weights, rows, caps = counted(objective, with_intercept(objective.problem, features))
    return loss_gradients(objective.problem, x, rows, objective.loss.encode(targets), caps) * weights


def _pairs(ends: np.ndarray) -> Iterator[np.ndarray]:
    """Yield two ends, straight and leaning toward a third one."""
    for i, j in product(range(len(ends)), repeat=2):
        if i <= j:
            yield ends[[i, j]]
            for lean, k in product(_LEANS, range(min(len(ends), 4))):
                yield (1 - lean) * ends[[i, j]] + lean * ends[k]


def _points(objective: Minimised, pair: np.ndarray, still: bool) -> Iterator[np.ndarray]:
    """Yield points where the pair has large margins, as far as the largest crowd can hold a minimum."""
    if still:
        yield np.zeros(objective.dimension)
        return
    farthest = np.sqrt(_PULL * _MOST_RECORDS / (objective.n * objective.ridge))
    for signs in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
        direction = far_point(objective.problem, pair, np.array(signs, dtype=float))
        length = float(np.linalg.norm(direction))
        yield from (margin * direction for margin in _MARGINS if margin * length <= farthest)


def _holding(
    objective: Minimised, x: np.ndarray, pair: np.ndarray, targets: np.ndarray, replaced: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the smallest crowd whose gradients balance the ridge and half of either dataset's at x, if one is small.

    What it is short of after rounding the counts moves the minimum by little.
    """
    problem = objective.problem
    pull = objective.n * objective.ridge * x + replaced * _gradients(objective, x, pair, targets).mean(axis=1)
    ends, labels = _ends(objective), extreme_targets(problem)
    scaled = problem.domain.project(np.concatenate([size * ends for size in _SIZES]))
    features = np.repeat(scaled, len(labels), axis=0)
    own = np.tile(labels, len(scaled))
    gradients = _gradients(objective, x, features, own)
    size = np.abs(gradients).max()
    balance = {"A_eq": gradients / size, "b_eq": -pull / size, "bounds": (0, None), "method": "highs"}
    from scipy.optimize import linprog

    solution = linprog(np.ones(len(features)), **balance)
    if not solution.success or solution.fun > _MOST_RECORDS - 2 * replaced:
        return None
    counts = np.rint(solution.x).astype(int)
    used = counts > 0
    return features[used], own[used], counts[used]


def log_ratio(crowd: Crowd[ObjectivePlan], number: int, x: np.ndarray) -> np.ndarray:
    """Return ln of the density of each minimum (a column of x) on the first dataset over that on the second, exactly.

    The density of x is that of the tilt that leads to it, times the Jacobian. Noise on the output is left out: it is
    far below the tilt's.
    """
    plan = crowd.audited
    shape = plan.noise.shape(plan.problem)
    # Noise on the output leads out of the space of the tilts, where these are 0.
    tilts = [shape.shadow(recovered_tilts(crowd, which, x)) for which in (0, 1)]
    sizes = [noise_norm(plan.noise, plan.problem, tilt) / plan.scales[number] for tilt in tilts]
    first, second = (np.asarray(plan.noise.kind.amount_of(size)) for size in sizes)
    return second - first + _log_volumes(crowd, 0, x) - _log_volumes(crowd, 1, x)


def recovered_tilts(crowd: Crowd[ObjectivePlan], which: int, x: np.ndarray) -> np.ndarray:
    """Return the tilts that lead to these minima on one of the datasets."""
    plan, objective = crowd.audited, crowd.audited.objective
    if objective.weighting is None:
        return -plan.problem.n * (crowd.rows(which).gradient(x) + (plan.ridge - plan.problem.ridge) * x)
    (weights, rows, caps), targets = _distinct(crowd)
    copies = weights * crowd.copies(which)
    pulls = [loss_gradients(plan.problem, point, rows, targets, caps) @ copies for point in x.T]
    return -np.stack(pulls, axis=1) - objective.n * objective.ridge * x


def _log_volumes(crowd: Crowd[ObjectivePlan], which: int, x: np.ndarray) -> np.ndarray:
    """Return ln det of the second derivatives at each column of x, from the distinct records and their counts."""
    plan, problem = crowd.audited, crowd.audited.problem
    (weights, rows, caps), targets = _distinct(crowd)
    ridge, copies = problem.n * plan.ridge * np.eye(problem.dimension), weights * crowd.copies(which)
    hessians = (ridge + loss_hessian(problem, point, rows, targets, copies, caps) for point in x.T)
    return np.array([float(np.linalg.slogdet(hessian)[1]) for hessian in hessians])


def _distinct(crowd: Crowd) -> tuple[Counted, np.ndarray]:
    """Return what each distinct record counts, the records as they are in the sum, and their targets."""
    problem = crowd.audited.problem
    rows = with_intercept(problem, problem.domain.project(crowd.features))
    return counted(crowd.audited.objective, rows), problem.loss.encode(crowd.targets)


@dataclass(frozen=True, eq=False)
class Scores:
    """Log likelihood ratios (first dataset over second) of minima that were released on either dataset."""

    first: np.ndarray
    second: np.ndarray

    def split(self) -> tuple["Scores", "Scores"]:
        """Return the runs that choose a threshold, and those that are then counted."""
        cut = max(1, int(_PILOT * len(self.first)))
        return Scores(self.first[:cut], self.second[:cut]), Scores(self.first[cut:], self.second[cut:])

    def tails(self, threshold: float) -> tuple[int, int, int]:
        """Count the scores beyond the threshold, from their own dataset and from the other, on both sides."""
        hits = np.sum(self.first >= threshold) + np.sum(self.second <= -threshold)
        misses = np.sum(self.second >= threshold) + np.sum(self.first <= -threshold)
        return int(hits), int(misses), 2 * len(self.first)

    def thresholds(self) -> np.ndarray:
        """Return candidates."""
        return np.quantile(np.concatenate([self.first, -self.second]), _THRESHOLDS)


def audit_tilted(
    plan: ObjectivePlan, repetitions: int | None, confidence: float, seed: int, on_step: Callable[[int], None]
) -> Audit:
    """Bound from below what each released minimum costs, and all of them together.

    Minima are released many times on two datasets, and told apart by their exact likelihood ratio, Jacobian included.
    Of pure tilts the counts beyond a threshold bound epsilon. Of Gaussian tilts they bound the mu whose corners, for as
    many equal records as were replaced, allow such counts. Minima that come before, for little, are released again by
    themselves, on datasets that differ in as many records as tell them apart.
    """
    runs, kind, level = repetitions or _RUNS, plan.noise.kind, (1 - confidence) / len(plan.minima)
    before = [_audited(part, runs, level, seed, on_step) for part in plan.earlier]
    own = _audited(plan, runs, level, seed, on_step)
    steps = [step for part in (*before, own) for step in part.steps]
    return Audit(
        plan=plan,
        unit=kind.either("epsilon", f"epsilon at delta = {plan.budget.delta:g}"),
        step_unit=kind.ratio_unit,
        claimed=math.fsum(plan.costs) if kind.is_pure else plan.spending().amount,
        lower_bound=tilted_total(plan, [step.lower_bound for step in steps]),
        steps=tuple(steps),
        share=own.crowd.share,
        independence=_independence(plan, own),
        repetitions=runs,
        confidence=confidence,
        seed=seed,
        assumptions=_assumptions(plan),
    )


class _Audited(NamedTuple):
    """Minima of a plan on the datasets of a crowd, one path for each, and what they say of its own releases."""

    crowd: Crowd[ObjectivePlan]
    paths: list[np.ndarray]
    steps: list[StepBound]


def _audited(plan: ObjectivePlan, runs: int, level: float, seed: int, on_step: Callable[[int], None]) -> _Audited:
    """Release the plan's minima on two datasets, and bound what its own cost: not those of plans before it."""
    crowd, paths = next(crowds_of(plan)), []
    for which in (0, 1):
        with threadpool_limits(limits=1, user_api="blas"):
            paths.append(run(crowd.audited, crowd.rows(which), seed=2 * seed + which, repetitions=runs).path)
        on_step(1)
    steps, first = [], len(plan.minima) - len(plan.scales)
    for number in range(len(plan.scales)):
        scores = Scores(*(log_ratio(crowd, number, path[first + number]) for path in paths))
        steps.append(_step(crowd, number, scores, level))
    return _Audited(crowd, paths, steps)


def _independence(plan: ObjectivePlan, found: _Audited) -> float:
    """Return a p-value for tilts that are independent over releases and, where their shape says so, coordinates."""
    tilts, path = [], iter(found.paths[0])
    for part in (*plan.earlier, plan):
        crowd = replace(found.crowd, plan=part)
        tilts += [recovered_tilts(crowd, 0, next(path)) for _ in part.scales]
    own = np.array(tilts[-len(plan.scales) :])
    value = independence(own, plan.noise.shape(plan.problem))
    if not plan.earlier:
        return value
    return min(1.0, 2 * min(value, intervals.independence(np.array(tilts).reshape(len(tilts), -1))))


def _step(crowd: Crowd[ObjectivePlan], number: int, scores: Scores, level: float) -> StepBound:
    """Bound one release: choose the threshold by the first runs, then count the others."""
    pilot, rest = scores.split()
    bound = crowd.plan.noise.kind.either(_epsilon, _mu)
    scale = len(rest.first) / len(pilot.first)

    def promise(threshold: float) -> float:
        hits, misses, trials = (round(scale * value) for value in pilot.tails(threshold))
        return bound(crowd, hits, misses, max(trials, hits), level)

    threshold = max(pilot.thresholds().tolist(), key=promise)
    hits, misses, trials = rest.tails(threshold)
    lower = bound(crowd, hits, misses, trials, level)
    claimed = crowd.plan.costs[len(crowd.plan.costs) - len(crowd.plan.scales) + number]
    return StepBound(claimed, lower, crowd.replaced, hits, misses, trials)


def _epsilon(crowd: Crowd[ObjectivePlan], hits: int, misses: int, trials: int, level: float) -> float:
    return intervals.log_ratio(hits, misses, trials, level) / crowd.replaced


def _mu(crowd: Crowd[ObjectivePlan], hits: int, misses: int, trials: int, level: float) -> float:
    """Return the smallest mu of one record's noise that allows an event to be so likely, and so unlikely.

    k equal records act as one of k times the gradient and curvature, so that ``Corners`` hold with k mu and k kappa.
    """
    p, q = intervals.lower(hits, trials, level / 2), intervals.upper(misses, trials, level / 2)
    k, plan = crowd.replaced, crowd.plan
    epsilons = np.linspace(0.0, max(math.log(max(p, 1e-300) / q), 0.0), 7)[:-1]
    # What the noise on the output may add to every loss.
    outputs = k * max(plan.output_costs[-len(plan.scales) :])

    def refuted(mu: float) -> bool:
        for epsilon in epsilons:
            corners = minima.best_corners(plan.saturation, k * plan.kappa, k * mu, epsilon)
            if p > math.exp(epsilon + outputs) * q + corners.delta(k * mu, epsilon):
                return True
        return False

    low, high = 0.0, 4 * max(plan.costs[-len(plan.scales) :])
    if len(epsilons) == 0 or p <= q or not refuted(1e-6 * high):
        return 0.0
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def tilted_total(plan: ObjectivePlan, bounds: list[float], later: Sequence[float] = ()) -> float:
    """Return what tilts of at least these costs are together, with later releases of noise that is added."""
    if plan.noise.kind.is_pure:
        return math.fsum([*bounds, *later])
    before = len(plan.minima) - len(plan.scales)
    mus = [mu for mu in bounds[before:] if mu > 0]
    corners = [minima.best_corners(plan.saturation, plan.kappa, mu, plan.budget.amount).scaled(mu) for mu in mus]
    if any(later):
        corners.append(GAUSSIAN.scaled(math.hypot(*later)))
    return math.fsum([*bounds[:before], composed(corners).epsilon(1.0, plan.budget.delta) if corners else 0.0])


def _assumptions(plan: ObjectivePlan) -> tuple[str, ...]:
    return (
        "runs are independent",
        "privacy depends on n through n times the ridge only",
        plan.noise.kind.either(
            "group privacy: k records cost k times what one does",
            "the tilt is Gaussian, so that epsilon at delta follows from the mu that is bounded",
        ),
        "the noise on the output is counted as it is planned, not measured",
    )
