"""An audit's runs: a plan executed by ``epsteps.run`` on two datasets, at a point where it is held still.

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

from epsteps.auditing.attacks import Attack
from epsteps.auditing.worst_case import Pair, noise_norm, worst_pair
from epsteps.bounds.steps import Steps
from epsteps.budgets import Concentrated, Pure
from epsteps.data.rows import Rows
from epsteps.methods import StepsPlan
from epsteps.problem.sampling import Sampling
from epsteps.running.run import Run, run

# Steps share trials whose numbers of records are so many times apart; more records than the last would take too long.
_RATIO = 3.0
_MOST_RECORDS = 2**14
# Records of which a sampled step reads its subset.
_MOST_TO_SAMPLE = 2**12
# The point moves by so little that slopes change by this share of their bound.
_STILL = 1e-3


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
        return Attack(self.plan.mechanism, self.plan.problem, self.pair.difference)

    @cached_property
    def groups(self) -> list[np.ndarray]:
        """Coordinates that are tested at once: those with equal and independent noise, and otherwise all of them."""
        if self.plan.mechanism.name == "laplace":
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
        if self.plan.mechanism.unit != "rho":
            return None
        per_record = self._moved(self.groups[0]) * math.sqrt(np.sum(self.scales**-2.0))
        return int(np.clip(round(self.attack.distance / per_record), 1, _MOST_RECORDS))

    def _moved(self, group: np.ndarray) -> float:
        difference = self.pair.difference
        if self.plan.mechanism.name == "laplace":
            return float(np.abs(difference[group]).max())
        return float(noise_norm(self.plan.mechanism, self.plan.problem, difference))

    @cached_property
    def trials(self) -> dict[int, int]:
        """How many steps are executed for each number of records: up to the last that is measured with it."""
        found = {} if self.path_records is None else {self.path_records: self.plan.iterations}
        for cell in self.cells:
            found[cell.records] = max(found.get(cell.records, 0), cell.step + 1)
        return dict(sorted(found.items()))

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
    centre, found = plan.batch * pair.gradients[:, 0], []
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
        found.append((plan.batch * released_gradients(plan, result) - centre[None, :, None]) / scales[:, :, None])
    return Measured(*found, distance=records * pair.difference[None, :] / scales)


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
        budget=Concentrated(enough) if plan.mechanism.unit == "rho" else Pure(enough),
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
    found = np.empty((len(steps), *path.shape[1:]))
    for t, (alpha, beta, gamma, restart) in enumerate(steps):
        drift = np.zeros_like(path[t]) if restart or t == 0 else path[t] - path[t - 1]
        point = path[t] + gamma * drift
        found[t] = (path[t] - path[t + 1] + beta * drift) / alpha - plan.problem.ridge * point
    return found
