"""What an audit found: the claim, the lower bound, and what the bound rests on; as values, as a text, as a picture."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.methods import figures
from epsteps.plans.plan import Plan
from epsteps.problem.validate import require

# Right code fails the test of independence once in a million audits.
_INDEPENDENCE_LEVEL = 1e-6
_CLAIMED, _LOWER, _ABOVE = figures.BLUE, figures.GOOD, figures.BAD


@dataclass(frozen=True)
class StepBound:
    """One step: its claimed cost, the lower bound on it, and the counts behind that.

    ``hits`` of ``trials`` outputs fell where their own dataset puts them, ``misses`` where the other one would.
    """

    claimed: float
    lower_bound: float
    records: int
    hits: int
    misses: int
    trials: int


@dataclass(frozen=True, eq=False)
class Audit:
    """A lower confidence bound on what a plan spends, beside what it claims. Made by :func:`epsteps.audit`.

    Parameters
    ----------
    unit : str
        What ``claimed`` and ``lower_bound`` are: epsilon, rho, or epsilon at a delta.
    step_unit : str
        What the bounds of steps are: epsilon, rho or mu.
    assumptions : tuple of str
        What the lower bound rests on besides the counts.
    share : float
        How much of the declared sensitivity the audited pair of records attains: no more than that can be found.
    independence : float
        p-value for noise that is independent over steps and coordinates.
    """

    plan: Plan
    unit: str
    step_unit: str
    claimed: float
    lower_bound: float
    steps: tuple[StepBound, ...]
    share: float
    independence: float
    repetitions: int
    confidence: float
    seed: int
    assumptions: tuple[str, ...]

    @property
    def violations(self) -> tuple[str, ...]:
        """What the audit refutes, in sentences; empty for a plan that is executed as claimed."""
        refuted = []
        if self.lower_bound > self.claimed:
            refuted.append(f"the run spends {self.unit} >= {self.lower_bound:.6g}, but claims {self.claimed:.6g}")
        above = [t for t, step in enumerate(self.steps) if step.lower_bound > step.claimed]
        if above:
            worst = max(above, key=lambda t: self.steps[t].lower_bound / self.steps[t].claimed)
            step = self.steps[worst]
            refuted.append(
                f"{len(above)} of {len(self.steps)} steps cost more than claimed; step {worst + 1} costs "
                f"{self.step_unit} >= {step.lower_bound:.6g}, but claims {step.claimed:.6g}"
            )
        if self.independence < _INDEPENDENCE_LEVEL:
            refuted.append(f"the noise is not independent over steps or coordinates (p = {self.independence:.1e})")
        return tuple(refuted)

    @property
    def noise(self) -> str:
        """Name of the noise."""
        mechanism = getattr(self.plan, "mechanism", self.plan.charges[0].noise)
        return getattr(mechanism, "name", mechanism)

    @property
    def consistent(self) -> bool:
        """Whether nothing was found that contradicts the claim."""
        return not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "unit": self.unit,
            "claimed": self.claimed,
            "lower_bound": self.lower_bound,
            "consistent": self.consistent,
            "violations": list(self.violations),
            "confidence": self.confidence,
            "repetitions": self.repetitions,
            "seed": self.seed,
            "sensitivity_share": self.share,
            "independence_pvalue": self.independence,
            "assumptions": list(self.assumptions),
            "plan": {"method": self.plan.method, "iterations": len(self.steps), "mechanism": self.noise},
            "steps": [asdict(step) for step in self.steps],
        }

    def __str__(self) -> str:
        verdict = "consistent with the claim" if self.consistent else "VIOLATED: " + "; ".join(self.violations)
        lines = [
            f"Audit of {self.plan.method}, {len(self.steps)} {'steps' if self.plan.has_floats else 'releases'}, "
            f"{self.noise} noise: {verdict}",
            f"  claimed      {self.unit} = {self.claimed:.6g}",
            f"  lower bound  {self.unit} >= {self.lower_bound:.6g} ({self.confidence:.3g} confidence, "
            f"{self.repetitions} runs on each dataset)",
            f"  the audited records attain {self.share:.1%} of the declared sensitivity",
            *(f"  assumes: {line}" for line in self.assumptions),
        ]
        return "\n".join(lines)


def draw(path: Path, audit: Audit) -> None:
    """Draw claim and lower bound, of the whole run and of each step; what exceeds its claim is red."""
    figure = require("matplotlib.figure", "plots", "drawing the audit").Figure(figsize=(9, 4.5), layout="constrained")
    total, steps = figure.subplots(1, 2, width_ratios=(1, 4))
    total.bar(
        ["claimed", "lower\nbound"], [audit.claimed, audit.lower_bound], color=[_CLAIMED, _colour(audit)], width=0.6
    )
    for position, value in enumerate((audit.claimed, audit.lower_bound)):
        total.text(position, value, f"{value:.3g}", ha="center", va="bottom")
    total.set_ylim(0, 1.15 * max(audit.claimed, audit.lower_bound))
    total.set_ylabel(audit.unit)
    total.set_title("whole run", fontsize=11)

    t = np.arange(1, len(audit.steps) + 1)
    claimed, lower = (np.array([getattr(step, name) for step in audit.steps]) for name in ("claimed", "lower_bound"))
    above = lower > claimed
    steps.step(np.append(t, t[-1] + 1) - 0.5, np.append(claimed, claimed[-1]), where="post", color=_CLAIMED, lw=1.8)
    steps.plot([], [], color=_CLAIMED, lw=1.8, label="claimed")
    for chosen, colour, label in ((~above, _LOWER, "lower bound"), (above, _ABOVE, "lower bound above the claim")):
        if np.any(chosen):
            steps.bar(t[chosen], lower[chosen], color=colour, alpha=0.75, width=0.7, label=label)
    steps.set_ylim(0, 1.25 * max(claimed.max(), lower.max()))
    steps.set_xlabel("step")
    steps.xaxis.get_major_locator().set_params(integer=True)
    steps.set_ylabel(f"{audit.step_unit} of the step")
    plan = audit.plan
    steps.set_title("each step", fontsize=11)
    figure.suptitle(
        f"{plan.method}, {plan.budget}: audit at {audit.confidence:.3g} confidence, {audit.repetitions} runs on each "
        "dataset",
        fontsize=11,
    )
    steps.legend(frameon=False, loc="upper left", ncols=3)
    for axes in (total, steps):
        axes.grid(alpha=0.3, axis="y")
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=150)


def _colour(audit: Audit) -> str:
    return _ABOVE if audit.lower_bound > audit.claimed else _LOWER
