"""Audits of plans of steps, executed by ``epsteps.run`` on two datasets, at a point where they are held still.

Privacy does not depend on n, on step sizes or on the start, which are public. So the audited plan has few records, all
of them the worst pair's, with the plan's own noise on their sum; its steps are so small that every one of them is taken
where that pair is worst. By group privacy a step that is epsilon-DP is k epsilon-DP where k records are replaced: k is
chosen such that the noise hides the difference about as often as not, which tells most about its scale.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from threadpoolctl import threadpool_limits

from epsteps.auditing import attacks as intervals
from epsteps.auditing.attacks import Attack
from epsteps.auditing.report import Audit, StepBound
from epsteps.auditing.worst_case import Pair, noise_norm, worst_pair
from epsteps.bounds.steps import Steps
from epsteps.budgets import Concentrated, Cost, Pure
from epsteps.budgets.conversions import gaussian_epsilon
from epsteps.data.rows import Rows
from epsteps.methods import StepsPlan
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import Shape
from epsteps.running.run import Run, run

# Steps share trials whose numbers of records are so many times apart; more records than the last would take too long.
_RATIO = 3.0
_MOST_RECORDS = 2**14
# Records of which a sampled step reads its subset.
_MOST_TO_SAMPLE = 2**12
# The point moves by so little that slopes change by this share of their bound.
_STILL = 1e-3
# Noise values of a step on each dataset, over coordinates and repetitions, unless told otherwise.
_POOLED, _POOLED_SAMPLED = 10_000, 4000
_LEAST, _GAUSSIAN = 500, 4000
# Noise of other norms is drawn as a whole, more slowly.
_VECTORS = 1000


def audit_steps(
    plan: StepsPlan, repetitions: int | None, confidence: float, seed: int, on_step: Callable[[int], None]
) -> Audit:
    """Bound from below what each step costs, and all of them together."""
    design = Design(plan)
    repetitions = repetitions or design.enough
    measured = {}
    for index, records in enumerate(design.trials):
        # Trials draw different noise: their seeds differ.
        own = 1000 * seed + index
        measured[records] = measure(design, records, repetitions, own, lambda _: on_step(1))
    steps, total = (_pooled if design.pools else _told_apart)(design, measured, 1 - confidence)
    composed = plan.budget.delta > 0
    return Audit(
        plan=plan,
        unit=design.kind.either("sum of the steps' epsilons", f"epsilon at delta = {plan.budget.delta:g}")
        if composed
        else design.kind.unit,
        step_unit=design.kind.unit,
        # Earlier expenses are not audited.
        claimed=math.fsum(plan.costs) if composed and design.kind.is_pure else plan.spending().amount,
        lower_bound=total,
        steps=steps,
        share=design.pair.share,
        independence=_independence(design, measured),
        repetitions=repetitions,
        confidence=confidence,
        seed=seed,
        assumptions=_assumptions(design),
    )


@dataclass(frozen=True, eq=False)
class Cell:
    """What is bounded at once: the coordinates of one step that move alike, with so many records replaced."""

    step: int
    coordinates: np.ndarray
    records: int


@dataclass(frozen=True, eq=False)
class Design:
    """Which pair, how many records for which step: decided from the plan alone, before anything is drawn."""

    plan: StepsPlan

    @cached_property
    def pair(self) -> Pair:
        """The worst pair."""
        return worst_pair(self.plan)

    @cached_property
    def scales(self) -> np.ndarray:
        """Real noise scale of each step on a sum of gradients, at the pair's point."""
        x = self.pair.x[:, None]
        return (
            np.array([float(np.max(self.plan.scale_at(t, x))) for t in range(self.plan.iterations)]) * self.plan.batch
        )

    @cached_property
    def attack(self) -> Attack:
        """How outputs on the two datasets are told apart."""
        return Attack.on(self.plan.mechanism, self.plan.problem, self.pair.difference)

    @property
    def kind(self) -> type[Cost]:
        """What the steps cost."""
        return self.plan.mechanism.kind

    @property
    def pools(self) -> bool:
        """Whether coordinates of the noise are independent, so that each is a trial, and pure, so that losses add."""
        return self.attack.shape.independent and self.kind.is_pure

    @property
    def enough(self) -> int:
        """How many runs give bounds within about a tenth of the truth."""
        if not self.pools:
            return self.kind.either(_VECTORS, _GAUSSIAN)
        pooled = _POOLED if self.plan.sampling.is_full else _POOLED_SAMPLED
        return max(_LEAST, math.ceil(pooled / self.plan.problem.dimension))

    @cached_property
    def groups(self) -> list[np.ndarray]:
        """Coordinates that are tested at once: those with equal and independent noise, and otherwise all of them."""
        if self.pools:
            return self.pair.groups()
        return [np.arange(self.plan.problem.dimension)]

    @cached_property
    def cells(self) -> list[Cell]:
        """Every step and group, each with its number of records."""
        sizes = [self._moved(group) for group in self.groups]
        wanted = self.attack.distance * self.scales[:, None] / np.array(sizes)[None, :]
        first = wanted.min()
        power = np.rint(np.log(wanted / first) / math.log(_RATIO))
        records = np.clip(np.rint(first * _RATIO**power), 1, _MOST_RECORDS).astype(int)
        return [
            Cell(t, group, int(k)) for t, row in enumerate(records) for group, k in zip(self.groups, row, strict=True)
        ]

    @cached_property
    def path_records(self) -> int | None:
        """Records replaced in the test of the whole path, which Gaussian noise allows; None for pure noise.

        (Of many small pure losses the sum concentrates far below its maximum: a test of the path would see little.)
        """
        if self.kind.is_pure:
            return None
        per_record = self._moved(self.groups[0]) * math.sqrt(np.sum(self.scales**-2.0))
        return int(np.clip(round(self.attack.distance / per_record), 1, _MOST_RECORDS))

    def _moved(self, group: np.ndarray) -> float:
        difference = self.pair.difference
        if self.pools:
            return float(np.abs(difference[group]).max())
        return float(noise_norm(self.plan.mechanism, self.plan.problem, difference))

    @cached_property
    def trials(self) -> dict[int, int]:
        """How many steps are executed for each number of records: up to the last that is measured with it."""
        trials = {} if self.path_records is None else {self.path_records: self.plan.iterations}
        for cell in self.cells:
            trials[cell.records] = max(trials.get(cell.records, 0), cell.step + 1)
        return dict(sorted(trials.items()))

    @property
    def work(self) -> int:
        """Number of steps that the audit executes."""
        return 2 * sum(self.trials.values())


@dataclass(frozen=True, eq=False)
class Measured:
    """Released sums of a trial on both datasets, less the first one's true sum, in scales: (steps, d, repetitions).

    Noise with a shape is in its units besides.
    """

    first: np.ndarray
    second: np.ndarray
    distance: np.ndarray


def measure(design: Design, records: int, repetitions: int, seed: int, on_step: Callable[[int], None]) -> Measured:
    """Execute one trial on both datasets."""
    steps = design.trials[records]
    plan = audited_plan(design, records, steps)
    pair, n = design.pair, plan.problem.n
    replaced = np.arange(n) < (records if plan.sampling.is_full else n)
    scales = design.scales[:steps, None] * design.attack.units
    centre, samples = plan.batch * pair.gradients[:, 0], []
    for which in (0, 1):
        index = np.where(replaced, which, 0)
        data = Rows(plan.problem, pair.features[index], pair.targets[index], engine="numpy")
        # Many small products: threads of BLAS would wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            result = run(
                plan,
                data,
                seed=2 * seed + which,
                repetitions=repetitions,
                start=pair.x,
                arithmetic="exact",
                on_step=on_step,
            )
        samples.append((plan.batch * released_gradients(plan, result) - centre[None, :, None]) / scales[:, :, None])
    return Measured(*samples, distance=records * pair.difference[None, :] / scales)


def audited_plan(design: Design, records: int, steps: int) -> StepsPlan:
    """Return the plan's first steps for so many records: the same noise on a sum of gradients, tiny step sizes."""
    plan = design.plan
    if plan.sampling.is_full:
        n = batch = max(records, 2)
    else:
        batch = records
        n = max(2, batch + 1, min(round(batch / plan.sampling.fraction), max(2 * batch, _MOST_TO_SAMPLE)))
    problem = replace(plan.problem, n=n)
    scales = plan.scales[:steps] * plan.batch / batch
    costs = plan.mechanism.costs(plan.sensitivity_bound, scales, Sampling(n, batch))
    enough = 2 * float(np.sum(costs))
    return replace(
        plan,
        problem=problem,
        budget=plan.mechanism.kind.either(Pure, Concentrated)(enough),
        steps=_tiny(plan, design.pair, scales),
        scales=scales,
        batch=batch,
        # What the plan predicts is not audited: whatever is computed at once will do.
        objective="exact",
        spectrum=np.ones(1),
        start_shares=None,
        expenses=(),
    )


def _tiny(plan: StepsPlan, pair: Pair, scales: np.ndarray) -> Steps:
    """Return the first steps with sizes so small that the run stays where it starts."""
    count, problem = len(scales), plan.problem
    alpha, beta = plan.steps.alpha[:count], plan.steps.beta[:count]
    slope = float(np.max(plan.slope_at(pair.x[:, None])))
    typical = 5 * scales * math.sqrt(problem.dimension) + problem.ridge * np.linalg.norm(pair.x) + slope
    moved = np.sum(alpha * typical) / (1 - beta.max())
    allowed = _STILL * slope / (problem.loss.curvature * problem.record_size(2) ** 2) * problem.record_size(2)
    factor = min(1.0, allowed / moved)
    return Steps(alpha * factor, beta, plan.steps.gamma[:count], plan.steps.restart[:count])


def released_gradients(plan: StepsPlan, result: Run) -> np.ndarray:
    """Return the noisy gradients that a published path consists of, without the ridge's part: (T, d, repetitions)."""
    path, steps = result.path, plan.steps
    gradients = np.empty((len(steps), *path.shape[1:]))
    for t, (alpha, beta, gamma, restart) in enumerate(steps):
        drift = np.zeros_like(path[t]) if restart or t == 0 else path[t] - path[t - 1]
        point = path[t] + gamma * drift
        gradients[t] = (path[t] - path[t + 1] + beta * drift) / alpha - plan.problem.ridge * point
    return gradients


def _pooled(design: Design, measured: dict[int, Measured], level: float) -> tuple[tuple[StepBound, ...], float]:
    """Bound each coordinate's loss per record; coordinates add up to the step, and steps to the whole."""
    plan, cells = design.plan, design.cells
    losses, counts = np.zeros(plan.iterations), np.zeros((plan.iterations, 4), dtype=int)
    for cell in cells:
        hits, misses, trials = _tails(design, cell, measured[cell.records])
        per_record = intervals.log_ratio(hits, misses, trials, level / len(cells)) / cell.records
        # Where coordinates move by a little less than the largest of them, they lose as much less.
        sizes = np.abs(design.pair.difference[cell.coordinates])
        losses[cell.step] += sizes.sum() / sizes.max() * per_record
        counts[cell.step] += (0, hits, misses, trials)
        counts[cell.step, 0] = max(counts[cell.step, 0], cell.records)
    bounds = plan.sampling.amplified_epsilon(losses)
    steps = _step_bounds(plan, bounds, counts)
    return steps, math.fsum(bounds)


def _tails(design: Design, cell: Cell, trial: Measured) -> tuple[int, int, int]:
    """Count outputs beyond each dataset's centre, away from the other: there Laplace's ratio is largest.

    ``hits`` came from the dataset itself, ``misses`` from the other one.
    """
    j, t = cell.coordinates, cell.step
    sign = np.sign(design.pair.difference[j])[:, None]
    first, second = sign * trial.first[t, j], sign * trial.second[t, j]
    centre = np.abs(trial.distance[t, j])[:, None]
    hits = np.sum(first < 0) + np.sum(second > centre)
    misses = np.sum(second < 0) + np.sum(first > centre)
    return int(hits), int(misses), 2 * first.size


def _told_apart(design: Design, measured: dict[int, Measured], level: float) -> tuple[tuple[StepBound, ...], float]:
    """Bound each step's loss per record by how well the test of its noise tells the datasets apart.

    Of Gaussian noise the whole path is tested besides, with half of the level.
    """
    plan, kind = design.plan, design.kind
    own = kind.either(level, level / 2)
    ratios, counts = np.zeros(plan.iterations), np.zeros((plan.iterations, 4), dtype=int)
    for cell in design.cells:
        errors, trials = _confused(design, measured[cell.records], slice(cell.step, cell.step + 1))
        ratios[cell.step] = design.attack.nearest(errors, trials, own / plan.iterations) / cell.records
        counts[cell.step] = (cell.records, 2 * trials - sum(errors), sum(errors), 2 * trials)
    bounds = plan.sampling.amplified_epsilon(np.asarray(kind.amount_of(ratios)))
    steps, records = _step_bounds(plan, bounds, counts), design.path_records
    if records is None:
        return steps, math.fsum(bounds)
    mu = design.attack.nearest(*_confused(design, measured[records], slice(None)), own) / records
    return steps, gaussian_total(mu, plan.budget.delta)


def gaussian_total(mu: float, delta: float) -> float:
    """Return the epsilon at a delta of Gaussian noise with this mu, or its rho where there is no delta."""
    if delta == 0:
        return mu**2 / 2
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def _confused(design: Design, trial: Measured, part: slice) -> tuple[tuple[int, int], int]:
    """Count the runs on each dataset that the likelihood ratio of these steps takes for the other's, of how many."""
    scores = [
        sum(design.attack.scores(output, away) for output, away in zip(sample[part], trial.distance[part], strict=True))
        for sample in (trial.first, trial.second)
    ]
    least = design.attack.doubt(trial.distance[part])
    first, second = (np.asarray(score) for score in scores)
    return (int(np.sum(first < least)), int(np.sum(second > -least))), len(first)


def _step_bounds(plan: StepsPlan, bounds: np.ndarray, counts: np.ndarray) -> tuple[StepBound, ...]:
    rows = zip(plan.costs, bounds, counts.tolist(), strict=True)
    return tuple(StepBound(float(cost), float(bound), *numbers) for cost, bound, numbers in rows)


def _independence(design: Design, measured: dict[int, Measured]) -> float:
    """Return a p-value for noise that is independent over steps and coordinates, from the longest trial."""
    longest = max(design.trials, key=lambda records: design.trials[records])
    return independence(measured[longest].first, design.attack.shape)


def independence(sample: np.ndarray, shape: Shape) -> float:
    """Return a p-value for noise of this shape, (releases, d, runs), that is independent over releases and coordinates.

    Where the shape correlates coordinates, it is independent over the releases only.
    """
    releases, d, runs = sample.shape
    over_releases = intervals.independence(sample.reshape(releases, -1))
    covariance = shape.covariance.matrix
    if np.any(covariance != np.diag(np.diag(covariance))):
        return over_releases
    over_coordinates = intervals.independence(sample.transpose(1, 0, 2).reshape(d, releases * runs))
    return min(1.0, 2 * min(over_releases, over_coordinates))


def _assumptions(design: Design) -> tuple[str, ...]:
    """Return what the lower bound rests on besides the counts."""
    assumptions = ["repetitions are independent", "group privacy: k records cost k times what one does"]
    if not design.kind.is_pure:
        assumptions.append("noise is Gaussian, so that rho and (epsilon, delta) follow from the mu that is bounded")
    elif design.pools:
        assumptions.append(
            "noise is independent over coordinates and steps, so that losses add up (its signs are tested)"
        )
    else:
        assumptions.append("noise is of its norm's law, so that epsilon follows from how well outputs are told apart")
        assumptions.append("noise is independent over steps, so that losses add up (its signs are tested)")
    if not design.plan.sampling.is_full:
        assumptions.append("subsets are uniform, fresh and secret: amplification is computed, not measured")
    if design.plan.expenses:
        assumptions.append("expenses before the steps are not audited")
    return tuple(assumptions)
