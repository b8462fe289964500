"""Lower confidence bounds on what a tilted objective's minimum costs when it is released."""

import math
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from epsteps.auditing import confidence as intervals
from epsteps.auditing.crowds import Crowd, crowded, log_ratio, recovered_tilts
from epsteps.auditing.report import Audit, StepBound
from epsteps.budgets import Approximate
from epsteps.budgets.corners import composed
from epsteps.methods import minima
from epsteps.methods.objective.plan import ObjectivePlan
from epsteps.running.run import run

_RUNS = 1000
# Thresholds that are tried on the first runs, as shares of the scores, and how many runs these are.
_THRESHOLDS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_PILOT = 0.25


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


def audit_objective(plan: ObjectivePlan, repetitions: int | None, confidence: float, seed: int) -> Audit:
    """Bound from below what each released minimum costs, and all of them together.

    Minima are released many times on two datasets, and told apart by their exact likelihood ratio, Jacobian included.
    Of pure tilts the counts beyond a threshold bound epsilon. Of Gaussian tilts they bound the mu whose corners, for as
    many equal records as were replaced, allow such counts.
    """
    crowd, runs = crowded(plan), repetitions or _RUNS
    found = []
    for which in (0, 1):
        with threadpool_limits(limits=1, user_api="blas"):
            found.append(run(crowd.audited, crowd.rows(which), seed=2 * seed + which, repetitions=runs).path)
    count = len(plan.scales)
    steps = []
    for number in range(count):
        scores = Scores(*(log_ratio(crowd, number, path[number]) for path in found))
        steps.append(_step(crowd, number, scores, (1 - confidence) / count))
    tilts = np.array([recovered_tilts(crowd, 0, found[0][number]) for number in range(count)])
    return Audit(
        plan=plan,
        unit=_unit(plan),
        step_unit=_step_unit(plan),
        claimed=plan.spending().amount if plan.noise.unit == "rho" else math.fsum(plan.costs),
        lower_bound=_total(plan, [step.lower_bound for step in steps]),
        steps=tuple(steps),
        share=crowd.share,
        independence=_independence(plan, tilts),
        repetitions=runs,
        confidence=confidence,
        seed=seed,
        assumptions=_assumptions(plan),
    )


def _step(crowd: Crowd[ObjectivePlan], number: int, scores: Scores, level: float) -> StepBound:
    """Bound one release: choose the threshold by the first runs, then count the others."""
    pilot, rest = scores.split()
    bound = _mu if crowd.plan.noise.unit == "rho" else _epsilon
    scale = len(rest.first) / len(pilot.first)

    def promise(threshold: float) -> float:
        hits, misses, trials = (round(scale * value) for value in pilot.tails(threshold))
        return bound(crowd, hits, misses, max(trials, hits), level)

    threshold = max(pilot.thresholds().tolist(), key=promise)
    hits, misses, trials = rest.tails(threshold)
    found = bound(crowd, hits, misses, trials, level)
    return StepBound(crowd.plan.costs[number], found, crowd.replaced, hits, misses, trials)


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
    outputs = k * max(plan.output_costs)

    def refuted(mu: float) -> bool:
        for epsilon in epsilons:
            corners = minima.best_corners(plan.saturation, k * plan.kappa, k * mu, epsilon)
            if p > math.exp(epsilon + outputs) * q + corners.delta(k * mu, epsilon):
                return True
        return False

    low, high = 0.0, 4 * max(plan.costs)
    if len(epsilons) == 0 or p <= q or not refuted(1e-6 * high):
        return 0.0
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _total(plan: ObjectivePlan, bounds: list[float]) -> float:
    if plan.noise.unit != "rho":
        return math.fsum(bounds)
    assert isinstance(plan.budget, Approximate)
    mus = [mu for mu in bounds if mu > 0]
    if not mus:
        return 0.0
    corners = [minima.best_corners(plan.saturation, plan.kappa, mu, plan.budget.epsilon).scaled(mu) for mu in mus]
    return composed(corners).epsilon(1.0, plan.budget.delta)


def _independence(plan: ObjectivePlan, tilts: np.ndarray) -> float:
    """Return a p-value for tilts, (releases, d, runs), that are independent over releases, and over coordinates."""
    releases, d, runs = tilts.shape
    over_releases = intervals.independence(tilts.reshape(releases, -1))
    if plan.mechanism in ("hull", "blocks", "ellipsoid"):
        return over_releases
    over_coordinates = intervals.independence(tilts.transpose(1, 0, 2).reshape(d, releases * runs))
    return min(1.0, 2 * min(over_releases, over_coordinates))


def _unit(plan: ObjectivePlan) -> str:
    if plan.noise.unit == "rho":
        assert isinstance(plan.budget, Approximate)
        return f"epsilon at delta = {plan.budget.delta:g}"
    return "epsilon"


def _step_unit(plan: ObjectivePlan) -> str:
    return "mu" if plan.noise.unit == "rho" else "epsilon"


def _assumptions(plan: ObjectivePlan) -> tuple[str, ...]:
    found = ["runs are independent", "privacy depends on n through n times the ridge only"]
    if plan.noise.unit == "rho":
        found.append("the tilt is Gaussian, so that epsilon at delta follows from the mu that is bounded")
    else:
        found.append("group privacy: k records cost k times what one does")
    found.append("the noise on the output is counted as it is planned, not measured")
    return tuple(found)
