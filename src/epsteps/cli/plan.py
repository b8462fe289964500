"""``epsteps plan`` and ``epsteps audit``: what a run would do and spend, and whether it really spends no more."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

import epsteps as es
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.cli.common import make_budget, make_problem, method_named

if TYPE_CHECKING:
    from rich.table import Table

    from epsteps.budgets import Budget

# What the options of steps say where nothing is asked of them.
_AUTO = "auto"
# Ridges where none is declared: of the paper, and of epsteps fit, whose features are scaled to [0, 1].
_RIDGE, _SCALED_RIDGE = 0.02, 1e-4
# Longer plans are shown by as many of their steps, evenly spread.
_SHOWN = 20
_REPORT, _PICTURE = "report.json", "audit.png"
# Steps of an audited plan that has steps, where nothing else is asked for.
_AUDITED = 30


def plan(
    n: Annotated[int, Option(help="Number of records (public).")],
    schema: Path | None = Option(
        None, help="A table's schema, a .toml file: it declares loss, domain and features, as for epsteps fit."
    ),
    target: str | None = Option(None, help="With --schema: the column to predict, if the schema does not name it."),
    d: int | None = Option(None, help="Number of features, where there is no --schema."),
    epsilon: float = Option(1.0, help="Privacy budget, for one record replaced: pure epsilon unless --delta."),
    delta: common.Delta = None,
    rho: common.Rho = None,
    target_error: float | None = Option(
        None,
        help="Ignore --epsilon (or --rho): find the smallest one that is expected to have this error, with a margin.",
    ),
    target_verdict: Literal["useful", "marginal"] | None = Option(
        None, help="Find the smallest one whose plan has this verdict, or a better one."
    ),
    target_width: float | None = Option(
        None, help="Find the smallest one whose intervals are guessed to be within this of each coefficient."
    ),
    proved: bool = Option(False, "--proved", help="With --target-error: ask for the error that is proved."),
    release: common.Release = None,
    method: common.Method_ = None,
    intervals: common.Intervals = None,
    robust: common.Robust = False,
    loss: common.LossName | None = Option(
        None, help="Loss of the linear model.  [default: logistic, or that of the schema]", show_default=False
    ),
    loss_shape: common.LossShape = None,
    classes: common.Classes = None,
    target_bound: float | None = Option(
        None,
        help="Squared loss and pseudo-huber: targets lie within this bound of 0.  [default: 1]",
        show_default=False,
    ),
    radius: float | None = Option(
        None, help="Public bound on a record's norm; records are projected.  [default: 1]", show_default=False
    ),
    norm: common.NormName | None = Option(None, help="Norm of that bound.  [default: inf]", show_default=False),
    ridge: float | None = Option(
        None,
        help="Ridge: F = mean loss + ridge/2 |x|^2.  "
        f"[default: {_RIDGE}; with --schema {_SCALED_RIDGE}, as for epsteps fit]",
        show_default=False,
    ),
    intercept: common.Intercept = False,
    smoothness: float | None = Option(None, help="A publicly known smoothness constant L."),
    allocation: Literal["optimal", "uniform"] | None = Option(
        None, help="How epsilon is split over the steps.  [default: optimal]", show_default=False
    ),
    iterations: str | None = Option(
        None,
        "--iterations",
        "--T",
        help="Number of steps, or auto: the best bound.  [default: auto]",
        show_default=False,
    ),
    max_iterations: int | None = Option(
        None, help="Largest number of steps that auto may choose.  [default: 1000]", show_default=False
    ),
    batch: common.Batch = None,
    mechanism: Literal["auto", "laplace", "l2", "linf", "blocks", "hull", "gaussian", "ellipsoid"] | None = Option(
        None, help="Noise; auto is what the budget is made for.  [default: auto]", show_default=False
    ),
    objective: Literal["bound", "exact", "typical"] | None = Option(
        None,
        help="Predict the error by the proven bound, or exactly on an assumed quadratic or a typical problem.  "
        "[default: bound]",
        show_default=False,
    ),
    c: float | None = Option(None, help="The step size is c/L.  [default: 1]", show_default=False),
    start_gap: float | None = Option(
        None, help="Public guess of F(x_0) - F*; never affects privacy.  [default: 10]", show_default=False
    ),
    json: bool = Option(False, "--json", help="Print the plan as JSON instead of a table."),
    out: Path | None = Option(None, help="Also write the plan's JSON to this file."),
    force: common.Force = False,
) -> None:
    """Print what a private run would do and spend, from public numbers alone: no data is read.

    With --schema the plan is that of epsteps fit for a table of so many rows.
    """
    files.require_free([out], force)
    of_schema = {"--loss": loss, "--loss-shape": loss_shape, "--classes": classes, "--target-bound": target_bound}
    of_schema |= {"--radius": radius, "--norm": norm, "--d": d, "--intercept": intercept or None}
    if schema is not None:
        problem = _problem_of(schema, target, n, ridge, smoothness, of_schema)
    elif d is None:
        raise ValueError("the features are not declared: add --schema (a .toml file) or --d (their number).")
    elif target is not None:
        raise ValueError(f"--target is a column of a schema: add --schema, or leave it out, got {target!r}.")
    else:
        facts = {"ridge": _RIDGE if ridge is None else ridge, "n": n, "d": d, "intercept": intercept}
        declared = (loss or "logistic", 1.0 if target_bound is None else target_bound)
        ball = (1.0 if radius is None else radius, norm or "inf")
        shape: dict[str, Any] = {"classes": classes, "loss_shape": loss_shape}
        problem = make_problem(*declared, *ball, **shape, **facts, smoothness=smoothness)
    wanted: dict[str, Any] = {"error": target_error, "verdict": target_verdict, "width": target_width}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if len(wanted) > 1:
        raise ValueError(f"{' and '.join(f'--target-{name}' for name in wanted)} do not go together: name one of them.")
    common.require_published(method, release, is_said=intervals is not None or target_width is not None)
    options = {
        "allocation": allocation,
        "iterations": iterations if iterations in (None, _AUTO) else _whole("iterations", iterations),
        "max_iterations": max_iterations,
        "batch": batch,
        "mechanism": mechanism,
        "objective": objective,
        "c": c,
        "start_gap": start_gap,
    }
    asked: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    asked |= {"method": method_named(method), "release": release, **common.inference(intervals, robust)}
    if target_width is not None:
        wanted["level"] = asked.setdefault("intervals", 0.95)
    if wanted:
        amount = es.required_epsilon(problem, **wanted, proved=proved, delta=delta, rho=rho is not None, **asked)
        epsilon, rho = (amount, None) if rho is None else (epsilon, amount)
    elif proved:
        raise ValueError("--proved goes with --target-error: add it, or leave --proved out.")
    planned = es.plan(problem, make_budget(epsilon, delta, rho), **asked)
    if out is not None:
        files.write(out, planned.to_json() + "\n", force=force)
    if json:
        typer.echo(planned.to_json())
    elif out is None or not common.is_quiet():
        typer.echo(str(planned))


def _problem_of(
    path: Path, target: str | None, n: int, ridge: float | None, smoothness: float | None, others: dict[str, Any]
) -> es.Problem:
    """Return the problem of a schema's target, as ``epsteps fit`` would: a file of the schema is all that is read."""
    from dataclasses import replace

    from epsteps import tables

    declared = [option for option, value in others.items() if value is not None]
    if declared:
        raise ValueError(f"the schema declares what {declared[0]} would say: leave one of them out.")
    schema = with_target(tables.Schema.read(path), target)
    problem = tables.problem_of(schema, n, _SCALED_RIDGE if ridge is None else ridge)
    return problem if smoothness is None else replace(problem, smoothness=smoothness)


def with_target(declared: es.Schema, target: str | None) -> es.Schema:
    """Return the schema with its target, or raise if none is named, or two."""
    if target is None:
        if declared.target is None:
            raise ValueError("no target: name the column to predict with --target, or in the schema, target = ...")
        return declared
    if declared.target not in (None, target):
        raise ValueError(
            f"--target is {target!r}, but the schema's target is {declared.target!r}: leave --target out, or remove "
            "the target from the schema, which makes that column a feature."
        )
    return declared.with_target(target)


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--{name} must be a whole number or auto, got {text!r}.") from None


def audit(
    plan: Path | None = Argument(
        None, metavar="PLAN", help="A plan's JSON of any method, as epsteps plan writes it; or use options."
    ),
    epsilon: float = Option(1.0, help="Privacy budget: pure epsilon unless --delta."),
    delta: common.Delta = None,
    rho: common.Rho = None,
    n: int = Option(100_000, help="Number of records that the plan is for; the audit itself needs few."),
    d: common.Features = 5,
    release: common.Release = None,
    method: common.Method_ = None,
    intervals: common.Intervals = None,
    robust: common.Robust = False,
    loss: common.Loss = "logistic",
    loss_shape: common.LossShape = None,
    classes: common.Classes = None,
    target_bound: common.TargetBound = 1.0,
    radius: float = Option(1.0, help="Public bound on a record's norm."),
    norm: common.Norm = "inf",
    ridge: common.Ridge = 0.02,
    intercept: common.Intercept = False,
    iterations: int | None = Option(
        None,
        "--iterations",
        "--T",
        help="Number of steps.  [default: 30, of methods that have steps]",
        show_default=False,
    ),
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
    from epsteps import auditing

    paths = [] if out is None else [out / _REPORT, out / _PICTURE]
    files.require_free(paths, force)
    if plan is not None:
        planned = es.Plan.from_json(plan.read_text(encoding="utf-8"))
    else:
        common.require_published(method, release, is_said=intervals is not None)
        facts: dict[str, Any] = {"ridge": ridge, "n": n, "d": d, "intercept": intercept}
        problem = make_problem(loss, target_bound, radius, norm, classes=classes, loss_shape=loss_shape, **facts)
        asked: dict[str, Any] = {"release": release, **common.inference(intervals, robust)}
        asked |= {
            name: value for name, value in {"iterations": iterations, "batch": batch}.items() if value is not None
        }
        planned = _audited_plan(problem, make_budget(epsilon, delta, rho), method, asked)
    with common.progress_bar("audit", auditing.work(planned)) as advance:
        result = es.audit(planned, repetitions=repetitions, confidence=confidence, seed=seed, on_step=advance)
    if paths:
        files.write(paths[0], json_module.dumps(result.to_dict(), indent=1) + "\n", force=force)
        auditing.draw(paths[1], result)
    if json:
        common.print_json(result.to_dict())
    else:
        common.print_table(_steps_table(result))
        typer.echo(str(result))
        if paths:
            common.say(f"Wrote {', '.join(map(str, paths))}")
    if not result.consistent:
        typer.echo(f"Error: the audit refutes the plan's claim: {'; '.join(result.violations)}.", err=True)
        raise typer.Exit(1)


def _audited_plan(
    problem: es.Problem, budget: Budget, method: common.AnyMethod | None, asked: dict[str, Any]
) -> es.Plan:
    """Return the plan with the best known split: of steps, an even one where no theorem weighs them."""
    named = method_named(method)
    if callable(named) or named == "descent":
        asked.setdefault("iterations", _AUDITED)
    try:
        return es.plan(problem, budget, named, **asked)
    except es.NoBoundError:
        return es.plan(problem, budget, named, **asked, allocation="uniform")


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
