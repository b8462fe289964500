"""Lower confidence bounds on what releases cost that add noise to integers: minima, moments, single gradients."""

import math

import numpy as np

from epsteps.auditing import confidence as intervals
from epsteps.auditing.laws import Gaussians, Vectors
from epsteps.auditing.parts import Part, parts_of
from epsteps.auditing.report import Audit, StepBound
from epsteps.budgets import Approximate
from epsteps.budgets.conversions import gaussian_epsilon
from epsteps.methods import CurvaturePlan, OutputPlan, StatisticsPlan
from epsteps.noise import Source

# Runs on each dataset; less where several releases are audited.
_RUNS, _RUNS_OF_EACH = {"mu": 4000, "epsilon": 1000}, 1000


def audit_additive(
    plan: OutputPlan | StatisticsPlan | CurvaturePlan, repetitions: int | None, confidence: float, seed: int
) -> Audit:
    """Bound from below what each release costs, and all of them together.

    Each is made many times on two datasets and told apart by the likelihood ratio of its noise, or for a Wishart matrix
    by a trace whose law is known. How often that errs bounds the distance of the datasets in scales of the noise.
    """
    parts = parts_of(plan)
    runs = repetitions or (_RUNS[parts[0].law.unit] if len(parts) == 1 else _RUNS_OF_EACH)
    steps, independence = [], 1.0
    for number, part in enumerate(parts):
        samples = [_sample(part, which, runs, Source(2 * seed + which).at_step(number)) for which in (0, 1)]
        errors = part.law.confused(samples[0], samples[1], part.away)
        bound = part.law.nearest(errors, runs, (1 - confidence) / len(parts)) / part.records
        wrong = sum(errors)
        steps.append(StepBound(part.claimed, bound, part.records, 2 * runs - wrong, wrong, 2 * runs))
        independence = min(independence, len(parts) * _independence(part, samples[0]))
    unit, claimed, total = _together(plan, parts, [step.lower_bound for step in steps])
    return Audit(
        plan=plan,
        unit=unit,
        step_unit=parts[0].law.unit,
        claimed=claimed,
        lower_bound=total,
        steps=tuple(steps),
        share=min(part.share for part in parts),
        independence=min(1.0, independence),
        repetitions=runs,
        confidence=confidence,
        seed=seed,
        assumptions=_assumptions(plan, parts),
    )


def _sample(part: Part, which: int, runs: int, source: Source) -> np.ndarray:
    """Return the release on one dataset, one run in each column."""
    return np.stack([part.draw(which, source) for _ in range(runs)], axis=1)


def _together(
    plan: OutputPlan | StatisticsPlan | CurvaturePlan, parts: list[Part], bounds: list[float]
) -> tuple[str, float, float]:
    """Return the unit of the whole, what the plan claims in it, and the lower bound."""
    if parts[0].law.unit == "epsilon":
        claimed = plan.moments + plan.rest if isinstance(plan, CurvaturePlan) else plan.cost
        return "epsilon", claimed, math.fsum(bounds)
    mu = math.hypot(*bounds)
    if isinstance(plan.budget, Approximate):
        epsilon = gaussian_epsilon(mu, plan.budget.delta) if mu > 0 else 0.0
        return f"epsilon at delta = {plan.budget.delta:g}", plan.spending().amount, epsilon
    return "rho", plan.spending().amount, mu**2 / 2


def _independence(part: Part, sample: np.ndarray) -> float:
    """Return a p-value for noise whose coordinates have independent signs, where its law says so."""
    law = part.law
    if isinstance(law, Gaussians) or (
        isinstance(law, Vectors) and law.attack.mechanism.shape(law.attack.problem).stretches
    ):
        return intervals.independence(sample)
    return 1.0


def _assumptions(plan: OutputPlan | StatisticsPlan | CurvaturePlan, parts: list[Part]) -> tuple[str, ...]:
    found = ["runs are independent", "group privacy: k records cost k times what one does"]
    if parts[0].law.unit == "mu":
        found.append("noise is Gaussian, so that rho and (epsilon, delta) follow from the mu that is bounded")
    else:
        found.append("noise is of its law, so that epsilon follows from how well outputs are told apart")
    if isinstance(plan, OutputPlan):
        found.append("privacy depends on n through n times the ridge only")
    if isinstance(plan, CurvaturePlan):
        found.append("releases are independent, and cost what the plan's division for evenly spread features says")
        found.append("the run makes no other releases, which epsteps.testing.replay checks")
    return tuple(found)
