"""Predicted against measured excess risk, on records that may be opened: an experiment, which protects nobody."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.auditing.optimum import minimiser
from epsteps.bounds.steps import gd, heavy_ball, multistage, nesterov, restarted_nesterov
from epsteps.budgets import Budget
from epsteps.data.rows import Rows
from epsteps.methods import choice
from epsteps.plans.plan import Plan
from epsteps.problem import validate
from epsteps.problem.validate import require
from epsteps.running.run import run

# What a plan's own budget is multiplied by, where no others are asked for.
_SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)
# Planners that a plan may have come from, besides the methods with names.
_STEPS = (nesterov, gd, heavy_ball, multistage, restarted_nesterov)
_EXPERIMENT = "An experiment: it reads the records without protection, and so do its numbers. Do not publish them."
# Excess of a fit that diverged.
_LARGEST = 1e100


@dataclass(frozen=True)
class CalibrationPoint:
    """One budget: what its plan predicts of E F(x) - F*, and what seeded runs measured, with the standard error.

    A plan that predicts nothing has NaN there.
    """

    amount: float
    predicted: float
    bound: float | None
    verdict: str
    measured: float
    stderr: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / max(self.measured, 1e-300)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted and measured excess risk of one method, budget by budget. Made by :func:`epsteps.calibration`.

    ``trivial`` is what x = 0 costs on these records, F(0) - F*: a fit that measures as much is worth nothing.
    """

    plan: Plan
    points: tuple[CalibrationPoint, ...]
    trivial: float
    runs: int
    seed: int

    @property
    def useful(self) -> tuple[CalibrationPoint, ...]:
        """The budgets at which neither prediction nor measurement is as bad as x = 0."""
        return tuple(point for point in self.points if max(point.predicted, point.measured) < self.trivial)

    def within(self, factor: float = 2.0) -> float:
        """Return the share of useful budgets whose prediction is off by at most this factor; NaN if there is none."""
        hits = [1 / factor <= point.ratio <= factor for point in self.useful]
        return float(np.mean(hits)) if hits else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        points = [asdict(point) | {"ratio": point.ratio} for point in self.points]
        facts = {"method": self.plan.method, "trivial": self.trivial, "runs": self.runs, "seed": self.seed}
        return facts | {"experiment": _EXPERIMENT, "points": points}

    def __str__(self) -> str:
        budget = self.plan.budget
        lines = [
            f"Calibration of {self.plan.method}, {self.runs} runs at each budget; x = 0 costs {self.trivial:.3g}",
            f"  {'budget':>10}  {'predicted':>10}  {'measured':>10}  {'std err':>9}  {'ratio':>6}  verdict",
        ]
        for point in self.points:
            mark = "*" if point.amount == budget.amount else " "
            lines.append(
                f" {mark}{point.amount:>10.4g}  {point.predicted:>10.3g}  {point.measured:>10.3g}  "
                f"{point.stderr:>9.2g}  {point.ratio:>6.2f}  {point.verdict}"
            )
        if self.useful:
            lines.append(f"  {self.within():.0%} of {len(self.useful)} useful budgets are predicted within a factor 2")
        return "\n".join([*lines, f"  (* the plan's own budget.) {_EXPERIMENT}"])

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw predicted and measured excess over the budget, and write the picture if a path is given."""
        figure = require("matplotlib.figure", "plots", "drawing a calibration").Figure((7, 4.5), layout="constrained")
        axes = figure.subplots()
        amounts = [point.amount for point in self.points]
        predicted, measured, errors = (
            np.array([getattr(point, name) for point in self.points]) for name in ("predicted", "measured", "stderr")
        )
        axes.fill_between(amounts, predicted / 2, 2 * predicted, color="#0072B2", alpha=0.15, label="within a factor 2")
        axes.plot(amounts, predicted, color="#0072B2", marker="o", label="predicted")
        axes.errorbar(amounts, measured, 2 * errors, color="#D55E00", marker="s", capsize=3, label="measured (2 se)")
        axes.axhline(self.trivial, color="black", lw=0.9, ls=":", label="x = 0")
        axes.set(xscale="log", yscale="log", xlabel=f"budget, {amount_name(self.plan.budget)}", ylabel="E F(x) - F*")
        axes.set_xticks(amounts, [f"{amount:g}" for amount in amounts])
        axes.set_xticks([], minor=True)
        axes.set_title(f"{self.plan.method}: {self.runs} seeded runs at each budget", fontsize=11)
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def calibration(
    plan: Plan,
    data: Rows,
    *,
    runs: int = 30,
    epsilons: Sequence[float] | None = None,
    planner: Callable[[Budget], Plan] | None = None,
    seed: int = 1,
) -> Calibration:
    """Compare what plans predict of their excess risk with what seeded runs measure, on records that may be opened.

    The method of the plan is planned again at each budget and run with seeds. F and its minimum are those of the
    problem that the records were declared with. Nothing of this is private: it is for public or synthetic records.

    Parameters
    ----------
    plan : Plan
        What is calibrated, at its own budget and at others.
    data : Rows
        The records, as for :func:`epsteps.run`.
    runs : int
        Seeded runs at each budget.
    epsilons : sequence of float, optional
        Other amounts of the plan's kind of budget: epsilons, or rhos of a Concentrated one. By default from a quarter
        to four times the plan's own.
    planner : callable, optional
        Returns the plan for a budget. It is needed for a plan that was made with options.
    seed : int
        Makes the experiment repeatable.
    """
    validate.integer("runs", runs, low=2)
    validate.integer("seed", seed, low=0)
    if not plan.problem.same_records(data.problem):
        raise ValueError(f"the plan is for {plan.problem}, but the records are for {data.problem}.")
    own = plan.budget.amount
    amounts = sorted({float(a) for a in epsilons} if epsilons is not None else {own * share for share in _SHARES})
    planner = planner or _planner_of(plan, data, alone=amounts == [own])
    x = minimiser(data)
    lowest = float(data.value(x))
    points = []
    for number, amount in enumerate(amounts):
        made = plan if amount == own else planner(with_amount(plan.budget, amount))
        excess = _excess(made, data, lowest, runs, seed + number * runs)
        error = float(np.std(excess, ddof=1) / np.sqrt(runs))
        told = made.utility
        predicted = float("nan") if told.expected is None else told.expected
        points.append(CalibrationPoint(amount, predicted, told.bound, told.verdict, float(np.mean(excess)), error))
    return Calibration(plan, tuple(points), float(data.value(np.zeros_like(x))) - lowest, runs, seed)


def _excess(plan: Plan, data: Rows, lowest: float, runs: int, seed: int) -> np.ndarray:
    """Return F(x) - F* of each seeded run; steps are run all at once, in floats."""
    if plan.has_floats:
        x = run(plan, data, seed=seed, repetitions=runs).x
    else:
        x = np.stack([run(plan, data, seed=seed + number).x for number in range(runs)], axis=1)
    with np.errstate(over="ignore"):
        return np.minimum(data.value(x) - lowest, _LARGEST)


def with_amount(budget: Budget, amount: float) -> Budget:
    """Return a budget of the same kind with another epsilon, or rho."""
    return replace(budget, **{amount_name(budget): amount})  # pyright: ignore[reportArgumentType]


def amount_name(budget: Budget) -> str:
    """Return the name of the field that is the budget's amount: the first that equals it."""
    names = (field.name for field in fields(budget))  # pyright: ignore[reportArgumentType]
    return next(name for name in names if getattr(budget, name) == budget.amount)


def _planner_of(plan: Plan, data: Rows, *, alone: bool) -> Callable[[Budget], Plan]:
    """Return the planner, without options, that makes this very plan from the problem of the records."""
    if alone:
        return lambda _: plan
    for planner in _planners(data):
        try:
            made = planner(plan.budget)
        except (ValueError, TypeError):
            continue
        if made == plan:
            return planner
    raise ValueError(
        f"no method makes this plan ({plan.method}) from the problem of the records without options. "
        "Pass planner=lambda budget: epsteps.plan(problem, budget, ...) with those that it was made with."
    )


def _planners(data: Rows) -> Iterator[Callable[[Budget], Plan]]:
    for method in (*choice.METHODS, *_STEPS):
        yield lambda budget, method=method: choice.plan(data.problem, budget, method)
