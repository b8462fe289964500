"""An audit as a picture: what each step claims, and what it was caught spending."""

from pathlib import Path

import numpy as np

from epsteps.auditing.report import Audit
from epsteps.problem.extras import require

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_CLAIMED, _LOWER, _ABOVE = "#0072B2", "#009E73", "#D55E00"


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
    claimed, found = (np.array([getattr(step, name) for step in audit.steps]) for name in ("claimed", "lower_bound"))
    above = found > claimed
    steps.step(np.append(t, t[-1] + 1) - 0.5, np.append(claimed, claimed[-1]), where="post", color=_CLAIMED, lw=1.8)
    steps.plot([], [], color=_CLAIMED, lw=1.8, label="claimed")
    for chosen, colour, label in ((~above, _LOWER, "lower bound"), (above, _ABOVE, "lower bound above the claim")):
        if np.any(chosen):
            steps.bar(t[chosen], found[chosen], color=colour, alpha=0.75, width=0.7, label=label)
    steps.set_ylim(0, 1.25 * max(claimed.max(), found.max()))
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
