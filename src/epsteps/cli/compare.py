"""``epsteps compare``: the six algorithms of the paper side by side."""

import json as json_module
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

import epsteps as es
from epsteps.cli import files
from epsteps.cli.common import EngineName, LossName, NormName, clean_errors, make_problem, progress_bar
from epsteps.data.sources.parquet import ParquetReader
from epsteps.data.tables import read_table
from epsteps.paper import compare as experiment
from epsteps.paper import outputs
from epsteps.problem import limits


@clean_errors
def compare(
    n: int = typer.Option(100_000, help="Number of synthetic records."),
    d: int = typer.Option(20, help="Number of synthetic features."),
    epsilon: float = typer.Option(1.0, help="Privacy budget of each run: pure epsilon unless --delta."),
    delta: float | None = typer.Option(None, help="Makes the budget (epsilon, delta), with Gaussian noise."),
    iterations: int = typer.Option(200, "--iterations", "--T", help="Steps; the -opt variants choose up to as many."),
    batch: int | None = typer.Option(None, "--batch", "--m", help="Records per step; all by default."),
    c: float = typer.Option(1.0, help="The step size is c/L."),
    repetitions: int = typer.Option(20, help="Independent runs of each algorithm."),
    seed: int = typer.Option(1, help="Seed of data and noise."),
    start: str = typer.Option("ten", help="Start: ten (every coordinate 10, as in the paper), zero, or a number."),
    start_gap: float | None = typer.Option(
        None,
        help="Guess of F(x_0) - F*: by default 10 as in the paper, or the public bound when starting at zero.",
    ),
    ridge: float = typer.Option(0.02, help="Ridge: F = mean loss + ridge/2 |x|^2 (the paper's lambda is half)."),
    data: Path | None = typer.Option(
        None, help="Records from a .npz, .csv or .parquet file instead of synthetic ones."
    ),
    target: str | None = typer.Option(None, help="Column of the target in the file; the last one by default."),
    loss: LossName = typer.Option(LossName.logistic, help="Loss, for a file."),
    classes: str = typer.Option("-1,1", help="The two declared labels of the target, for a file."),
    target_bound: float = typer.Option(1.0, help="Squared loss: targets lie within this bound of 0."),
    radius: float | None = typer.Option(None, help="Public bound on a record's norm; required with --data."),
    norm: NormName = typer.Option(NormName.inf, help="Norm of that bound."),
    engine: EngineName = typer.Option(EngineName.auto, help="What computes gradients; dask takes a .parquet file."),
    scheduler: str | None = typer.Option(None, help="Existing dask cluster, tcp://...; a local one otherwise."),
    out: Path = typer.Option(Path("results"), help="Folder for compare.csv, compare.json and compare.png."),
    force: bool = typer.Option(False, "--force", help="Replace files of these names that are not of a comparison."),
    json: bool = typer.Option(False, "--json", help="Print the summary as JSON instead of a table."),
) -> None:
    """Compare the six private algorithms of the paper: table, curves and picture of the gap to the optimum.

    An experiment: seeded, and measured on the records. Nothing that it prints is private.
    """
    _require_free(out, force)
    if data is None:
        if engine == EngineName.dask:
            raise ValueError("--engine dask needs --data with a .parquet file that the workers read.")
        problem = experiment.paper_problem(n, d, ridge)
        limits.require_records(problem)
        features, targets = experiment.paper_data(n, d, seed)
    else:
        if radius is None:
            raise ValueError(
                "--radius is required with --data: declare a public bound on the records, e.g. --radius 1."
            )
        features, targets, (rows, columns) = _table_or_path(data, target, engine)
        problem = make_problem(loss, target_bound, radius, norm, classes=classes, ridge=ridge, n=rows, d=columns)
    x0 = _start(start)
    gap = start_gap if start_gap is not None else (problem.start_gap if x0 == 0 else 10.0)
    settings = experiment.Settings(
        epsilon=epsilon,
        delta=delta,
        iterations=iterations,
        batch=batch,
        c=c,
        repetitions=repetitions,
        start=x0,
        start_gap=gap,
        seed=seed,
    )
    outcomes = _run(problem, partial(es.Rows, problem, features, targets, engine=engine, scheduler=scheduler), settings)
    paths = outputs.write_all(out, outcomes, problem, settings)
    if json:
        typer.echo(json_module.dumps(outputs.summary(outcomes, problem, settings), indent=1))
        return
    Console().print(_table(outcomes))
    typer.echo("A seeded experiment, measured on the records: nothing here is private.")
    typer.echo(f"Wrote {', '.join(map(str, paths))}")


def _require_free(out: Path, force: bool) -> None:
    """Refuse to replace files, except those of an earlier comparison."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out must be a folder, got the file {out}.")
    for path in outputs.paths(out):
        files.require_free([path], force or outputs.is_own(path))


def _table_or_path(path: Path, target: str | None, engine: EngineName) -> tuple[Any, Any, tuple[int, int]]:
    """Return features, target and shape; for dask only the file's name, since its workers read it."""
    if engine != EngineName.dask:
        features, targets = read_table(path, target)
        return features, targets, features.shape
    if target is None:
        raise ValueError("--target is required with --engine dask: name the column of the target.")
    return path, target, ParquetReader(path, target).shape


def _run(problem: es.Problem, rows: Callable[[], es.Rows], settings: experiment.Settings) -> list[experiment.Outcome]:
    """Run the comparison behind a progress bar (on a terminal only)."""
    planned = experiment.plans(problem, settings)
    work = (plan.iterations + len(experiment.measured_iterations(plan.iterations)) for _, plan in planned)
    with progress_bar("compare", sum(work)) as advance:
        records = rows()
        return experiment.compare(planned, records, settings, on_step=lambda: advance(1))


def _table(outcomes: list[experiment.Outcome]) -> Table:
    table = Table()
    table.add_column("algorithm")
    for heading in ("T used", "ε certified", "gap F(x_T) - F*", "± standard error", "seconds"):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        table.add_row(
            outcome.algorithm,
            str(outcome.plan.iterations),
            f"{outcome.plan.spent:.9f}",
            f"{outcome.gap[-1]:.3e}",
            f"{outcome.standard_error[-1]:.1e}",
            f"{outcome.seconds:.2f}",
        )
    return table


def _start(text: str) -> float:
    named = {"zero": 0.0, "ten": 10.0}
    try:
        return named[text] if text in named else float(text)
    except ValueError:
        raise ValueError(f"--start must be zero, ten or a number, got {text!r}.") from None
