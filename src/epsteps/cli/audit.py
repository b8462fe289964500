"""``epsteps audit``: attack a plan's runs, and hold what they are caught spending against what it claims."""

import json as json_module
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

import epsteps as es
from epsteps.auditing import Design, picture
from epsteps.cli import files
from epsteps.cli.common import LossName, MethodName, NormName, clean_errors, make_budget, make_problem, progress_bar

# Longer plans are shown by as many of their steps, evenly spread.
_SHOWN = 20
_REPORT, _PICTURE = "report.json", "audit.png"


@clean_errors
def audit(
    plan: Path | None = typer.Argument(None, help="A plan's JSON, as epsteps plan writes it; or use the options."),
    epsilon: float = typer.Option(1.0, help="Privacy budget: pure epsilon unless --delta."),
    delta: float | None = typer.Option(None, help="Makes the budget (epsilon, delta), with Gaussian noise."),
    rho: float | None = typer.Option(None, help="A budget of rho (zero-concentrated privacy) instead of epsilon."),
    n: int = typer.Option(100_000, help="Number of records that the plan is for; the audit itself needs few."),
    d: int = typer.Option(5, help="Number of features."),
    loss: LossName = typer.Option(LossName.logistic, help="Loss of the linear model."),
    target_bound: float = typer.Option(1.0, help="Squared loss: targets lie within this bound of 0."),
    radius: float = typer.Option(1.0, help="Public bound on a record's norm."),
    norm: NormName = typer.Option(NormName.inf, help="Norm of that bound."),
    ridge: float = typer.Option(0.02, help="Ridge: F = mean loss + ridge/2 |x|^2."),
    intercept: bool = typer.Option(False, "--intercept", help="Add an intercept."),
    method: MethodName = typer.Option(MethodName.nesterov, help="Optimisation method."),
    iterations: int = typer.Option(30, "--iterations", "--T", help="Number of steps."),
    batch: int | None = typer.Option(None, "--batch", "--m", help="Records per step; all by default."),
    repetitions: int | None = typer.Option(None, help="Runs on each dataset; by default enough for a close bound."),
    confidence: float = typer.Option(0.95, help="Probability that right code is not accused."),
    seed: int = typer.Option(1, help="Seed of the audit's noise."),
    json: bool = typer.Option(False, "--json", help="Print the result as JSON instead of a table."),
    out: Path | None = typer.Option(None, help="Folder for report.json and audit.png."),
    force: bool = files.FORCE,
) -> None:
    """Bound from below what a plan spends when it is executed; the exit code is 1 if that exceeds its claim.

    The plan is run on records made up for the audit: no data is read.
    """
    if out is not None:
        files.require_free([out / name for name in (_REPORT, _PICTURE)], force)
    if plan is not None:
        planned = es.Plan.from_json(plan.read_text())
    else:
        problem = make_problem(loss, target_bound, radius, norm, ridge=ridge, n=n, d=d, intercept=intercept)
        planned = _plan(problem, make_budget(epsilon, delta, rho), method, iterations, batch)
    with progress_bar("audit", Design(planned).work) as advance:
        found = es.audit(planned, repetitions=repetitions, confidence=confidence, seed=seed, on_step=advance)
    if out is not None:
        files.write(out / _REPORT, json_module.dumps(found.to_dict(), indent=1) + "\n", force=force)
        picture.draw(out / _PICTURE, found)
    if json:
        typer.echo(json_module.dumps(found.to_dict(), indent=1))
    else:
        Console().print(_table(found))
        typer.echo(str(found))
        if out is not None:
            typer.echo(f"Wrote {out / _REPORT}, {out / _PICTURE}")
    if not found.consistent:
        typer.echo(f"Error: the audit refutes the plan's claim: {'; '.join(found.violations)}.", err=True)
        raise typer.Exit(1)


def _plan(problem: es.Problem, budget, method: MethodName, iterations: int, batch: int | None) -> es.Plan:
    """Return the plan with the best known split: an even one where no theorem weighs the steps."""
    try:
        return es.plan(problem, budget, method.function, iterations=iterations, batch=batch)
    except es.NoBoundError:
        return es.plan(problem, budget, method.function, iterations=iterations, batch=batch, allocation="uniform")


def _table(found: es.Audit) -> Table:
    unit = found.step_unit
    table = Table()
    for heading in ("step", f"{unit} claimed", "lower bound", "share", "records", "hits", "misses", "of"):
        table.add_column(heading, justify="right")
    count = len(found.steps)
    shown = range(count) if count <= _SHOWN else sorted({round(i * (count - 1) / (_SHOWN - 1)) for i in range(_SHOWN)})
    for t in shown:
        step = found.steps[t]
        table.add_row(
            str(t + 1),
            f"{step.claimed:.6f}",
            f"{step.lower_bound:.6f}",
            f"{step.lower_bound / step.claimed:.1%}",
            *(str(value) for value in (step.records, step.hits, step.misses, step.trials)),
        )
    return table
