"""What an audit found: the claim, the lower bound, and what the bound rests on."""

from dataclasses import asdict, dataclass
from typing import Any

from epsteps.planning import Plan

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
    share : float
        How much of the declared sensitivity the audited pair of records attains: no more than that can be found.
    independence : float
        p-value for noise that is independent over steps and coordinates.
    """

    plan: Plan
    unit: str
    claimed: float
    lower_bound: float
    steps: tuple[StepBound, ...]
    share: float
    independence: float
    repetitions: int
    confidence: float
    seed: int

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
                f"{self.plan.mechanism.unit} >= {step.lower_bound:.6g}, but claims {step.claimed:.6g}"
            )
        if self.independence < _INDEPENDENCE_LEVEL:
            found.append(f"the noise is not independent over steps or coordinates (p = {self.independence:.1e})")
        return tuple(found)

    @property
    def consistent(self) -> bool:
        """Whether nothing was found that contradicts the claim."""
        return not self.violations

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the lower bound rests on besides the counts."""
        found = ["repetitions are independent", "group privacy: k records cost k times what one does"]
        if self.plan.mechanism.unit == "rho":
            found.append("noise is Gaussian, so that rho and (epsilon, delta) follow from the mu that is bounded")
        elif self.plan.mechanism.name == "laplace":
            found.append(
                "noise is independent over coordinates and steps, so that losses add up (its signs are tested)"
            )
        else:
            found.append("noise is of its norm's law, so that epsilon follows from how well outputs are told apart")
            found.append("noise is independent over steps, so that losses add up (its signs are tested)")
        if not self.plan.sampling.is_full:
            found.append("subsets are uniform, fresh and secret: amplification is computed, not measured")
        if self.plan.expenses:
            found.append("expenses before the steps are not audited")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        plan = self.plan
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
            "plan": {"method": plan.method, "iterations": plan.iterations, "mechanism": plan.mechanism.name},
            "steps": [asdict(step) for step in self.steps],
        }

    def __str__(self) -> str:
        verdict = "consistent with the claim" if self.consistent else "VIOLATED: " + "; ".join(self.violations)
        lines = [
            f"Audit of {self.plan.method}, {self.plan.iterations} steps, {self.plan.mechanism.name} noise: {verdict}",
            f"  claimed      {self.unit} = {self.claimed:.6g}",
            f"  lower bound  {self.unit} >= {self.lower_bound:.6g} ({self.confidence:.3g} confidence, "
            f"{self.repetitions} runs on each dataset)",
            f"  the audited records attain {self.share:.1%} of the declared sensitivity",
            *(f"  assumes: {line}" for line in self.assumptions),
        ]
        return "\n".join(lines)
