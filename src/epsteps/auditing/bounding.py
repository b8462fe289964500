"""Lower confidence bounds on what a plan spends when it is executed."""

import math
from collections.abc import Callable

import numpy as np

from epsteps.auditing import confidence as intervals
from epsteps.auditing.additive import audit_additive
from epsteps.auditing.measuring import Cell, Design, Measured, measure
from epsteps.auditing.releasing import audit_objective
from epsteps.auditing.report import Audit, StepBound
from epsteps.budgets import Approximate
from epsteps.budgets.conversions import gaussian_epsilon
from epsteps.methods import CurvaturePlan, ObjectivePlan, OutputPlan, StatisticsPlan, StepsPlan
from epsteps.problem import validate

# Noise values of a step on each dataset, over coordinates and repetitions, unless told otherwise.
_POOLED, _POOLED_SAMPLED = 10_000, 4000
_LEAST, _GAUSSIAN = 500, 4000
# Noise of other norms is drawn as a whole, more slowly.
_VECTORS = 1000


def audit(
    plan: StepsPlan,
    *,
    repetitions: int | None = None,
    confidence: float = 0.95,
    seed: int = 1,
    on_step: Callable[[int], None] | None = None,
) -> Audit:
    """Bound from below what a plan really spends when it is executed, by attacking its runs.

    Formal guarantee: if the assumptions that the result lists hold, then with the given confidence (over the noise)
    neither ``lower_bound`` nor any step's bound exceeds what the executed steps spend. So a bound above the claim shows
    an error in the code; one below it proves nothing, as no audit can.

    Each step is run many times on two datasets in which all records differ as much as the domain allows, and the
    outputs are told apart by a threshold that was fixed before. The counts bound the probabilities (Clopper, Pearson
    1934), their ratio bounds the step's loss (Jagielski, Ullman, Oprea 2020), and steps add up. Of Gaussian noise the
    whole path is tested at once (Nasr et al. 2023). Of noise of another norm a step's errors are compared with those of
    the ideal noise: how far apart the datasets must be, to be told apart so well.

    Parameters
    ----------
    plan : Plan or another that ``epsteps.plan`` returns
        What is audited; its problem may have any n, none of its records are needed. Of a tilted objective the minima on
        two datasets are told apart by their exact likelihood ratio (``epsteps.auditing.crowds``). Other releases, those
        of curvature first among them, are audited one by one (``epsteps.auditing.parts``).
    repetitions : int, optional
        Runs on each dataset. By default as many as give 10000 noise values per step (4000 where records are sampled),
        4000 for Gaussian noise, and 1000 for noise of a norm of the whole vector or matrix and for minima.
    confidence : float
        Probability that all bounds hold together.
    seed : int
        Makes the audit repeatable.
    on_step : callable, optional
        Called after each executed step, for a progress bar; there are ``Design(plan).work`` of them.
    """
    if not 0 < validate.number("confidence", confidence) < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}.")
    validate.integer("seed", seed, low=0)
    if repetitions is not None:
        validate.integer("repetitions", repetitions)
    if isinstance(plan, ObjectivePlan):
        return audit_objective(plan, repetitions, confidence, seed)
    if isinstance(plan, OutputPlan | StatisticsPlan | CurvaturePlan):
        return audit_additive(plan, repetitions, confidence, seed)
    if not isinstance(plan, StepsPlan):
        raise TypeError(
            f"plan must come from epsteps.plan, got {type(plan).__name__}. Check others by epsteps.testing.replay."
        )
    repetitions = repetitions or _enough(plan)
    design = Design(plan)
    measured = {}
    for index, records in enumerate(design.trials):
        # Trials draw different noise: their seeds differ.
        own = 1000 * seed + index
        measured[records] = measure(design, records, repetitions, own, lambda _: on_step(1) if on_step else None)
    bound = {"laplace": _laplace, "gaussian": _gaussian, "ellipsoid": _gaussian}.get(plan.mechanism.name, _vectors)
    steps, total = bound(design, measured, 1 - confidence)
    return Audit(
        plan=plan,
        unit=_unit(plan),
        step_unit=plan.mechanism.unit,
        claimed=_claimed(plan),
        lower_bound=total,
        steps=steps,
        share=design.pair.share,
        independence=_independence(design, measured),
        repetitions=repetitions,
        confidence=confidence,
        seed=seed,
        assumptions=_assumptions(plan),
    )


def _enough(plan: StepsPlan) -> int:
    """Return how many runs give bounds within about a tenth of the truth."""
    if plan.mechanism.name != "laplace":
        return _GAUSSIAN if plan.mechanism.unit == "rho" else _VECTORS
    pooled = _POOLED if plan.sampling.is_full else _POOLED_SAMPLED
    return max(_LEAST, math.ceil(pooled / plan.problem.dimension))


def _laplace(design: Design, measured: dict[int, Measured], level: float) -> tuple[tuple[StepBound, ...], float]:
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


def _vectors(design: Design, measured: dict[int, Measured], level: float) -> tuple[tuple[StepBound, ...], float]:
    """Bound each step's loss per record by how well the test of its noise tells the datasets apart."""
    plan = design.plan
    losses, counts = np.zeros(plan.iterations), np.zeros((plan.iterations, 4), dtype=int)
    for cell in design.cells:
        errors, trials = _confused(design, measured[cell.records], slice(cell.step, cell.step + 1))
        losses[cell.step] = design.attack.nearest(sum(errors), 2 * trials, level / plan.iterations) / cell.records
        counts[cell.step] = (cell.records, 2 * trials - sum(errors), sum(errors), 2 * trials)
    bounds = plan.sampling.amplified_epsilon(losses)
    return _step_bounds(plan, bounds, counts), math.fsum(bounds)


def _gaussian(design: Design, measured: dict[int, Measured], level: float) -> tuple[tuple[StepBound, ...], float]:
    """Bound the mu of the whole path, and that of each step, per record: half of the level for each."""
    plan = design.plan
    rhos, counts = np.zeros(plan.iterations), np.zeros((plan.iterations, 4), dtype=int)
    for cell in design.cells:
        errors, trials = _confused(design, measured[cell.records], slice(cell.step, cell.step + 1))
        mu = intervals.gaussian_mu(errors, trials, level / 2 / plan.iterations) / cell.records
        rhos[cell.step] = mu**2 / 2
        counts[cell.step] = (cell.records, 2 * trials - sum(errors), sum(errors), 2 * trials)
    records = design.path_records or 1
    mu = intervals.gaussian_mu(*_confused(design, measured[records], slice(None)), level / 2) / records
    steps = _step_bounds(plan, rhos, counts)
    if isinstance(plan.budget, Approximate):
        return steps, gaussian_epsilon(mu, plan.budget.delta) if mu > 0 else 0.0
    return steps, mu**2 / 2


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
    """Return a p-value for noise that is independent over steps and coordinates, from the longest trial.

    Noise with a shape of its own is independent over the steps only.
    """
    sample = measured[max(design.trials, key=lambda records: design.trials[records])].first
    steps, d, repetitions = sample.shape
    over_steps = intervals.independence(sample.reshape(steps, -1))
    if design.plan.mechanism.name in ("hull", "blocks", "ellipsoid"):
        return over_steps
    over_coordinates = intervals.independence(sample.transpose(1, 0, 2).reshape(d, steps * repetitions))
    return min(1.0, 2 * min(over_steps, over_coordinates))


def _assumptions(plan: StepsPlan) -> tuple[str, ...]:
    """Return what the lower bound rests on besides the counts."""
    found = ["repetitions are independent", "group privacy: k records cost k times what one does"]
    if plan.mechanism.unit == "rho":
        found.append("noise is Gaussian, so that rho and (epsilon, delta) follow from the mu that is bounded")
    elif plan.mechanism.name == "laplace":
        found.append("noise is independent over coordinates and steps, so that losses add up (its signs are tested)")
    else:
        found.append("noise is of its norm's law, so that epsilon follows from how well outputs are told apart")
        found.append("noise is independent over steps, so that losses add up (its signs are tested)")
    if not plan.sampling.is_full:
        found.append("subsets are uniform, fresh and secret: amplification is computed, not measured")
    if plan.expenses:
        found.append("expenses before the steps are not audited")
    return tuple(found)


def _unit(plan: StepsPlan) -> str:
    if not isinstance(plan.budget, Approximate):
        return plan.mechanism.unit
    return f"epsilon at delta = {plan.budget.delta:g}" if plan.mechanism.unit == "rho" else "sum of the steps' epsilons"


def _claimed(plan: StepsPlan) -> float:
    """Return what the steps are said to spend, in the audit's unit; earlier expenses are not audited."""
    if isinstance(plan.budget, Approximate) and plan.mechanism.unit == "epsilon":
        return math.fsum(plan.costs)
    return plan.spending().amount
