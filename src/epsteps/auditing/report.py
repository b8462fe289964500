"""What an audit found: the claim, the lower bound, and what the bound rests on."""

from dataclasses import asdict, dataclass
from typing import Any

from epsteps.plans.plan import Plan

# Right code fails the test of independence once in a million audits.
_INDEPENDENCE_LEVEL = 1e-6


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
        found = []
        if self.lower_bound > self.claimed:
            found.append(f"the run spends {self.unit} >= {self.lower_bound:.6g}, but claims {self.claimed:.6g}")
        above = [t for t, step in enumerate(self.steps) if step.lower_bound > step.claimed]
        if above:
            worst = max(above, key=lambda t: self.steps[t].lower_bound / self.steps[t].claimed)
            step = self.steps[worst]
            found.append(
                f"{len(above)} of {len(self.steps)} steps cost more than claimed; step {worst + 1} costs "
                f"{self.step_unit} >= {step.lower_bound:.6g}, but claims {step.claimed:.6g}"
            )
        if self.independence < _INDEPENDENCE_LEVEL:
            found.append(f"the noise is not independent over steps or coordinates (p = {self.independence:.1e})")
        return tuple(found)

    @property
    def noise(self) -> str:
        """Name of the noise."""
        mechanism = getattr(self.plan, "mechanism", "")
        return mechanism if isinstance(mechanism, str) else mechanism.name

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
