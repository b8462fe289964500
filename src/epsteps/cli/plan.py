"""``epsteps plan``: everything that is decided before the data is opened."""

from pathlib import Path

import typer

import epsteps as es
from epsteps.cli import files
from epsteps.cli.common import (
    AllocationName,
    LossName,
    MechanismName,
    MethodName,
    NormName,
    ObjectiveName,
    clean_errors,
    make_budget,
    make_problem,
)


@clean_errors
def plan(
    n: int = typer.Option(..., help="Number of records (public)."),
    d: int = typer.Option(..., help="Number of features."),
    epsilon: float = typer.Option(1.0, help="Privacy budget, for one record replaced: pure epsilon unless --delta."),
    delta: float | None = typer.Option(None, help="Makes the budget (epsilon, delta), with Gaussian noise."),
    rho: float | None = typer.Option(None, help="A budget of rho (zero-concentrated privacy) instead of epsilon."),
    target_error: float | None = typer.Option(
        None, help="Ignore --epsilon and find the smallest one whose plan promises this error."
    ),
    loss: LossName = typer.Option(LossName.logistic, help="Loss of the linear model."),
    target_bound: float = typer.Option(1.0, help="Squared loss: targets lie within this bound of 0."),
    radius: float = typer.Option(1.0, help="Public bound on a record's norm; records are projected."),
    norm: NormName = typer.Option(NormName.inf, help="Norm of that bound."),
    ridge: float = typer.Option(0.02, help="Ridge: F = mean loss + ridge/2 |x|^2."),
    intercept: bool = typer.Option(False, "--intercept", help="Add an intercept."),
    smoothness: float | None = typer.Option(None, help="A publicly known smoothness constant L."),
    method: MethodName = typer.Option(MethodName.nesterov, help="Optimisation method."),
    allocation: AllocationName = typer.Option(AllocationName.optimal, help="How epsilon is split over the steps."),
    iterations: str = typer.Option("auto", "--iterations", "--T", help="Number of steps, or auto: the best bound."),
    max_iterations: int = typer.Option(1000, help="Largest number of steps that auto may choose."),
    batch: int | None = typer.Option(None, "--batch", "--m", help="Records per step; all by default."),
    mechanism: MechanismName = typer.Option(MechanismName.auto, help="Noise; auto is what the budget is made for."),
    objective: ObjectiveName = typer.Option(
        ObjectiveName.bound, help="Predict the error by the proven bound, or exactly on an assumed quadratic."
    ),
    c: float = typer.Option(1.0, help="The step size is c/L."),
    start_gap: float = typer.Option(10.0, help="Public guess of F(x_0) - F*; never affects privacy."),
    json: bool = typer.Option(False, "--json", help="Print the plan as JSON instead of a table."),
    out: Path | None = typer.Option(None, help="Also write the plan's JSON to this file."),
    force: bool = files.FORCE,
) -> None:
    """Print what a private run would do and spend, from public numbers alone: no data is read."""
    if out is not None:
        files.require_free([out], force)
    problem = make_problem(
        loss, target_bound, radius, norm, ridge=ridge, n=n, d=d, intercept=intercept, smoothness=smoothness
    )
    options = {
        "allocation": allocation.value,
        "iterations": iterations if iterations == "auto" else _whole("iterations", iterations),
        "max_iterations": max_iterations,
        "batch": batch,
        "mechanism": mechanism.value,
        "objective": objective.value,
        "c": c,
        "start_gap": start_gap,
    }
    if target_error is not None:
        if rho is not None:
            raise ValueError("--target-error finds an epsilon, so that it does not go with --rho.")
        epsilon = es.required_epsilon(problem, error=target_error, delta=delta, method=method.function, **options)
    planned = es.plan(problem, make_budget(epsilon, delta, rho), method.function, **options)
    if out is not None:
        files.write(out, planned.to_json() + "\n", force=force)
    typer.echo(planned.to_json() if json else str(planned))


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--{name} must be a whole number or auto, got {text!r}.") from None
