"""Empirical lower bounds on what a plan spends when it is executed, to be held against its certificate."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from epsteps.auditing.experiments import Calibration, Coverage, calibration, coverage
from epsteps.auditing.minima import audit_tilted, tilted_total
from epsteps.auditing.releases import audit_releases, examples_of
from epsteps.auditing.report import Audit, StepBound, draw
from epsteps.auditing.steps import Design, audit_steps
from epsteps.methods import ObjectivePlan
from epsteps.plans.plan import Example, Plan
from epsteps.problem import validate

__all__ = ["Audit", "Calibration", "Coverage", "StepBound", "audit", "calibration", "coverage", "draw", "work"]


def audit(
    plan: Plan,
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
    plan : Plan
        What is audited; its problem may have any n, none of its records are needed. Of a tilted objective the minima on
        two datasets are told apart by their exact likelihood ratio (``epsteps.auditing.minima``). Other plans, those
        from outside among them, are audited release by release (``epsteps.auditing.releases``).
    repetitions : int, optional
        Runs on each dataset. By default as many as give 10000 noise values per step (4000 where records are sampled),
        4000 for Gaussian noise, and 1000 for noise of a norm of the whole vector or matrix and for minima.
    confidence : float
        Probability that all bounds hold together.
    seed : int
        Makes the audit repeatable.
    on_step : callable, optional
        Called after each executed step or release, for a progress bar; there are ``auditing.work(plan)`` of them.
    """
    if not 0 < validate.number("confidence", confidence) < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}.")
    validate.integer("seed", seed, low=0)
    if repetitions is not None:
        validate.integer("repetitions", repetitions)
    if not hasattr(plan, "conversation"):
        raise TypeError(
            f"plan must come from epsteps.plan, got {type(plan).__name__}. Check others by epsteps.testing.replay."
        )
    arguments = repetitions, confidence, seed, on_step or (lambda _: None)
    if plan.has_floats:
        return audit_steps(plan, *arguments)  # pyright: ignore[reportArgumentType]
    examples = examples_of(plan)
    if not any(map(_is_tilted, examples)):
        return audit_releases(plan, examples, *arguments)
    later = [example for example in examples if not _is_tilted(example)]
    if not later:
        return audit_tilted(plan, *arguments)  # pyright: ignore[reportArgumentType]
    return _audit_both(plan, later, *arguments)  # pyright: ignore[reportArgumentType]


def _audit_both(
    plan: ObjectivePlan,
    later: list[Example],
    repetitions: int | None,
    confidence: float,
    seed: int,
    on_step: Callable[[int], None],
) -> Audit:
    """Audit tilted minima, and the releases besides them, each at its part of the chance of an error."""
    plans = _tilted(plan)
    arguments = repetitions, 1 - (1 - confidence) / (len(plans) + 1), seed, on_step
    audits = [*(audit_tilted(each, *arguments) for each in plans), audit_releases(plan, later, *arguments)]
    *tilted, rest = audits
    bounds = [step.lower_bound for step in rest.steps]
    if all(example.cost.is_pure for example in later):
        # Whatever the noise of the minima, they are certified for an epsilon by themselves, and epsilons add up.
        claimed, lower = rest.claimed, math.fsum([*(each.lower_bound for each in tilted), *bounds])
    else:
        (first,) = tilted
        claimed = plan.spending().amount
        lower = tilted_total(plan, [step.lower_bound for step in first.steps], bounds)
    return replace(
        rest,
        unit=tilted[-1].unit,
        claimed=claimed,
        lower_bound=lower,
        steps=tuple(step for each in audits for step in each.steps),
        share=min(each.share for each in audits),
        independence=min(1.0, len(audits) * min(each.independence for each in audits)),
        confidence=confidence,
        assumptions=tuple(dict.fromkeys(words for each in audits for words in each.assumptions)),
    )


def _tilted(plan: Any) -> tuple[ObjectivePlan, ...]:
    """Return the plans of the tilted minima that a plan releases, the last of which is the model."""
    return (*getattr(plan, "before_the_minimum", ()), plan.of_the_minimum)


def work(plan: Plan) -> int:
    """Return how many steps or releases an audit executes, for a progress bar."""
    if plan.has_floats:
        return Design(plan).work  # pyright: ignore[reportArgumentType]
    examples = examples_of(plan)
    tilted = _tilted(plan) if any(map(_is_tilted, examples)) else ()
    return 2 * sum(1 + len(each.earlier) for each in tilted) + sum(not _is_tilted(example) for example in examples)


def _is_tilted(example: Example) -> bool:
    """Whether a release is protected by noise on what is minimised, which its likelihood ratio must take account of."""
    return getattr(example.request, "tilt", None) is not None
