"""``epsteps plan`` and ``epsteps audit``: what a run would do and spend, and whether it really spends no more."""

import functools
import json as json_module
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

import epsteps as es
from epsteps import auditing
from epsteps.budgets import Budget
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.cli.common import make_budget, make_problem, method_named
from epsteps.methods.choice import METHODS

PlanMethod = Literal[
    "nesterov", "gd", "heavy-ball", "multistage", "restarted-nesterov",
    "auto", "adaptive", "objective", "output", "statistics", "sequential", "curvature", "descent",
]  # fmt: skip
# What the options of steps say where nothing is asked of them.
_DEFAULTS = {
    "allocation": "optimal",
    "iterations": "auto",
    "max_iterations": 1000,
    "batch": None,
    "mechanism": "auto",
    "objective": "bound",
    "c": 1.0,
    "start_gap": 10.0,
}
# Longer plans are shown by as many of their steps, evenly spread.
_SHOWN = 20
_REPORT, _PICTURE = "report.json", "audit.png"


def plan(
    n: Annotated[int, Option(help="Number of records (public).")],
    d: common.Features,
    epsilon: float = Option(1.0, help="Privacy budget, for one record replaced: pure epsilon unless --delta."),
    delta: common.Delta = None,
    rho: common.Rho = None,
    target_error: float | None = Option(
        None, help="Ignore --epsilon (or --rho) and find the smallest one whose plan is expected to have this error."
    ),
    target_verdict: Literal["useful", "marginal"] | None = Option(
        None, help="Find the smallest one whose plan has this verdict, or a better one."
    ),
    target_width: float | None = Option(
        None, help="Find the smallest one whose intervals are guessed to be within this of each coefficient."
    ),
    proved: bool = Option(False, "--proved", help="With --target-error: ask for the error that is proved."),
    loss: common.Loss = "logistic",
    target_bound: common.TargetBound = 1.0,
    radius: float = Option(1.0, help="Public bound on a record's norm; records are projected."),
    norm: common.Norm = "inf",
    ridge: common.Ridge = 0.02,
    intercept: common.Intercept = False,
    smoothness: float | None = Option(None, help="A publicly known smoothness constant L."),
    method: PlanMethod | None = Option(
        None,
        help="Steps of the paper, or a method that makes its own choices; auto is the most accurate one.  "
        "[default: nesterov, or auto with --release, --intervals or a target]",
        show_default=False,
    ),
    release: Literal["final", "iterates"] | None = Option(
        None, help="Publish the model alone, or every point on the way."
    ),
    allocation: Literal["optimal", "uniform"] = Option("optimal", help="How epsilon is split over the steps."),
    iterations: str = Option("auto", "--iterations", "--T", help="Number of steps, or auto: the best bound."),
    max_iterations: int = Option(1000, help="Largest number of steps that auto may choose."),
    batch: common.Batch = None,
    mechanism: Literal["auto", "laplace", "l2", "linf", "blocks", "hull", "gaussian", "ellipsoid"] = Option(
        "auto", help="Noise; auto is what the budget is made for."
    ),
    objective: Literal["bound", "exact", "typical"] = Option(
        "bound", help="Predict the error by the proven bound, or exactly on an assumed quadratic or a typical problem."
    ),
    intervals: common.Intervals = None,
    robust: common.Robust = False,
    c: common.StepFactor = 1.0,
    start_gap: float = Option(10.0, help="Public guess of F(x_0) - F*; never affects privacy."),
    json: bool = Option(False, "--json", help="Print the plan as JSON instead of a table."),
    out: Path | None = Option(None, help="Also write the plan's JSON to this file."),
    force: common.Force = False,
) -> None:
    """Print what a private run would do and spend, from public numbers alone: no data is read."""
    files.require_free([out], force)
    facts = {"ridge": ridge, "n": n, "d": d, "intercept": intercept, "smoothness": smoothness}
    problem = make_problem(loss, target_bound, radius, norm, **facts)
    options = {
        "allocation": allocation,
        "iterations": iterations if iterations == "auto" else _whole("iterations", iterations),
        "max_iterations": max_iterations,
        "batch": batch,
        "mechanism": mechanism,
        "objective": objective,
        "c": c,
        "start_gap": start_gap,
    }
    target: dict[str, Any] = {"error": target_error, "verdict": target_verdict, "width": target_width}
    is_target = any(wanted is not None for wanted in target.values())
    if method is None:
        method = "auto" if is_target or release is not None or intervals is not None else "nesterov"
    chosen = _chosen(method, release, options) | common.inference(intervals, robust)
    if target_width is not None:
        target["level"] = chosen.setdefault("intervals", 0.95)
    if is_target:
        amount = es.required_epsilon(problem, **target, proved=proved, delta=delta, rho=rho is not None, **chosen)
        epsilon, rho = (amount, None) if rho is None else (epsilon, amount)
    elif proved:
        raise ValueError("--proved goes with --target-error: add it, or leave --proved out.")
    planned = es.plan(problem, make_budget(epsilon, delta, rho), **chosen)
    if out is not None:
        files.write(out, planned.to_json() + "\n", force=force)
    typer.echo(planned.to_json() if json else str(planned))


def _chosen(method: str, release: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return a method and its options as ``epsteps.plan`` takes them; methods of their own get what was asked for."""
    if method in METHODS or method == "auto":
        asked = {name: value for name, value in options.items() if value != _DEFAULTS[name]}
        return {"method": method, "release": release, **asked}
    if release == "final":
        raise ValueError(f"--method {method} publishes every step: leave --release out, or use --method auto.")
    return {"method": method_named(cast(Any, method)), **options}


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--{name} must be a whole number or auto, got {text!r}.") from None


def audit(
    plan: Path | None = Argument(None, help="A plan's JSON, as epsteps plan writes it; or use the options."),
    epsilon: float = Option(1.0, help="Privacy budget: pure epsilon unless --delta."),
    delta: common.Delta = None,
    rho: common.Rho = None,
    n: int = Option(100_000, help="Number of records that the plan is for; the audit itself needs few."),
    d: common.Features = 5,
    loss: common.Loss = "logistic",
    target_bound: common.TargetBound = 1.0,
    radius: float = Option(1.0, help="Public bound on a record's norm."),
    norm: common.Norm = "inf",
    ridge: common.Ridge = 0.02,
    intercept: common.Intercept = False,
    method: common.MethodOption = "nesterov",
    iterations: int = Option(30, "--iterations", "--T", help="Number of steps."),
    batch: common.Batch = None,
    repetitions: int | None = Option(None, help="Runs on each dataset; by default enough for a close bound."),
    confidence: float = Option(0.95, help="Probability that right code is not accused."),
    seed: int = Option(1, help="Seed of the audit's noise."),
    json: bool = Option(False, "--json", help="Print the result as JSON instead of a table."),
    out: Path | None = Option(None, help="Folder for report.json and audit.png."),
    force: common.Force = False,
) -> None:
    """Bound from below what a plan spends when it is executed; the exit code is 1 if that exceeds its claim.

    The plan is run on records made up for the audit: no data is read.
    """
    paths = [] if out is None else [out / _REPORT, out / _PICTURE]
    files.require_free(paths, force)
    if plan is not None:
        planned = es.StepsPlan.from_json(plan.read_text())
    else:
        problem = make_problem(loss, target_bound, radius, norm, ridge=ridge, n=n, d=d, intercept=intercept)
        planned = _audited_plan(problem, make_budget(epsilon, delta, rho), method, iterations, batch)
    with common.progress_bar("audit", auditing.work(planned)) as advance:
        result = es.audit(planned, repetitions=repetitions, confidence=confidence, seed=seed, on_step=advance)
    if paths:
        files.write(paths[0], json_module.dumps(result.to_dict(), indent=1) + "\n", force=force)
        auditing.draw(paths[1], result)
    if json:
        common.print_json(result.to_dict())
    else:
        Console().print(_steps_table(result))
        typer.echo(str(result))
        if paths:
            typer.echo(f"Wrote {', '.join(map(str, paths))}")
    if not result.consistent:
        typer.echo(f"Error: the audit refutes the plan's claim: {'; '.join(result.violations)}.", err=True)
        raise typer.Exit(1)


def _audited_plan(
    problem: es.Problem, budget: Budget, method: common.MethodName, iterations: int, batch: int | None
) -> es.StepsPlan:
    """Return the plan with the best known split: an even one where no theorem weighs the steps."""
    make = functools.partial(es.plan, problem, budget, method_named(method), iterations=iterations, batch=batch)
    try:
        return make()
    except es.NoBoundError:
        return make(allocation="uniform")


def _steps_table(result: es.Audit) -> Table:
    unit = result.step_unit
    table = common.make_table(
        ">step", f">{unit} claimed", ">lower bound", ">share", ">records", ">hits", ">misses", ">of"
    )
    count = len(result.steps)
    shown = range(count) if count <= _SHOWN else sorted({round(i * (count - 1) / (_SHOWN - 1)) for i in range(_SHOWN)})
    for t in shown:
        step = result.steps[t]
        table.add_row(
            str(t + 1),
            f"{step.claimed:.6f}",
            f"{step.lower_bound:.6f}",
            f"{step.lower_bound / step.claimed:.1%}",
            *(str(value) for value in (step.records, step.hits, step.misses, step.trials)),
        )
    return table
