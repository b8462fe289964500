"""``epsteps compare`` and ``epsteps reproduce``: the paper's six algorithms side by side, and its four figures."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

import epsteps as es
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.cli.plan import with_target

if TYPE_CHECKING:
    from epsteps.paper.compare import Outcome
    from epsteps.paper.own_table import TableSettings
    from epsteps.paper.sweep import Curve, Sweep

EngineName = Literal["auto", "numpy", "fast", "gpu", "dask"]

_FIGURES = ("fig1", "fig2", "fig3", "fig4")
_FEATURES, _RIDGE = 20, 0.02


def compare(
    n: int = Option(100_000, help="Number of synthetic records."),
    d: int = Option(20, help="Number of synthetic features."),
    epsilon: float = Option(1.0, help="Privacy budget of each run: pure epsilon unless --delta."),
    delta: common.Delta = None,
    iterations: int = Option(200, "--iterations", "--T", help="Steps; the -opt variants choose up to as many."),
    batch: common.Batch = None,
    c: common.StepFactor = 1.0,
    repetitions: int | None = Option(
        None, help="Independent runs of each algorithm.  [default: 20; with --schema 5]", show_default=False
    ),
    seed: int = Option(1, help="Seed of data and noise."),
    start: str = Option("ten", help="Start: ten (every coordinate 10, as in the paper), zero, or a number."),
    start_gap: float | None = Option(
        None, help="Guess of F(x_0) - F*: by default 10 as in the paper, or the public bound when starting at zero."
    ),
    ridge: float | None = Option(
        None,
        help="F = mean loss + ridge/2 |x|^2 (the paper's lambda is half).  [default: 0.02; with --schema 0.0001]",
        show_default=False,
    ),
    data: Path | None = Option(None, help="Records from a .npz, .csv or .parquet file instead of synthetic ones."),
    target: str | None = Option(None, help="Column of the target in the file; the last one by default."),
    schema: Path | None = Option(
        None, help="What is declared of the file's columns, a .toml file: compares everything."
    ),
    epsilons: str = Option("0.1,0.5,1,2", help="With --schema: privacy budgets, with commas."),
    held_out: float = Option(0.2, help="With --schema: the share of the records that models are scored on."),
    tuned: bool = Option(
        False, "--tuned", help="With --schema: also clipped DP-GD, tuned on the answer, which no private fit knows."
    ),
    delimiter: common.Delimiter = "comma",
    loss: common.LossName = Option("logistic", help="Loss, for a file."),
    loss_shape: common.LossShape = None,
    classes: common.Classes = None,
    target_bound: common.TargetBound = 1.0,
    radius: float | None = Option(None, help="Public bound on a record's norm; required with --data."),
    norm: common.Norm = "inf",
    engine: EngineName = Option("auto", help="What computes gradients; dask takes a .parquet file."),
    scheduler: str | None = Option(None, help="Existing dask cluster, tcp://...; a local one otherwise."),
    out: Path = Option(Path("results"), help="Folder for compare.csv, compare.json and compare.png."),
    force: bool = Option(False, "--force", help="Replace files of these names that are not of a comparison."),
    json: bool = Option(False, "--json", help="Print the summary as JSON instead of a table."),
) -> None:
    """Compare the six private algorithms of the paper: table, curves and picture of the gap to the optimum.

    With --data and --schema everything that is at hand, over epsilon, on your own table: the paper's six, epsteps'
    final model and everything published, diffprivlib if it is installed, and a fit without privacy.

    An experiment: seeded, and measured on the records. Nothing that it prints is private.
    """
    from epsteps.paper import compare as experiment
    from epsteps.paper import own_table
    from epsteps.problem import limits

    _require_own(out, force)
    if schema is not None:
        settings = own_table.TableSettings(
            epsilons=_numbers(epsilons),
            delta=delta,
            iterations=iterations,
            repetitions=5 if repetitions is None else repetitions,
            ridge=1e-4 if ridge is None else ridge,
            held_out=held_out,
            tuned=tuned,
            seed=seed,
        )
        _compare_table(data, schema, target, common.DELIMITERS[delimiter], settings, out, json)
        return
    repetitions = 20 if repetitions is None else repetitions
    ridge = 0.02 if ridge is None else ridge
    if data is None:
        if engine == "dask":
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
        problem = common.make_problem(
            loss, target_bound, radius, norm, classes=classes, loss_shape=loss_shape, ridge=ridge, n=rows, d=columns
        )
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
    plans = experiment.plans(problem, settings)
    work = (plan.iterations + len(experiment.measured_iterations(plan.iterations)) for _, plan in plans)
    with common.progress_bar("compare", sum(work)) as advance:
        records = es.Rows(problem, features, targets, engine=engine, scheduler=scheduler)
        outcomes = experiment.compare(plans, records, settings, on_step=advance)
    paths = experiment.write(out, outcomes, problem, settings)
    if json:
        common.print_json(experiment.summary(outcomes, problem, settings))
        return
    Console().print(_table(outcomes))
    typer.echo("Expected: from public numbers, for a start at 0 on typical records.")
    typer.echo("A seeded experiment, measured on the records: nothing here is private.")
    common.say(f"Wrote {', '.join(map(str, paths))}")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        raise ValueError(f"--epsilons must be positive numbers with commas, such as 0.1,1; got {text!r}.") from None


def _compare_table(
    data: Path | None,
    schema: Path,
    target: str | None,
    delimiter: str,
    settings: TableSettings,
    out: Path,
    json: bool,
) -> None:
    """Compare everything on a table that a schema declares."""
    from epsteps.paper import own_table

    if data is None:
        raise ValueError("--schema needs --data: name the .csv or .parquet file that it declares.")
    declared = with_target(es.Schema.read(schema), target)
    typer.secho(
        f"NOT PRIVATE: this experiment reads the records of {common.shown(str(data))} again and again, without "
        "protection. Whatever it prints and writes is as secret as they are.",
        fg="red",
        bold=True,
        err=True,
    )
    table = own_table.OwnTable.of(declared, declared.load(data, delimiter=delimiter), settings)
    total = len(own_table.contenders(settings)) * len(settings.epsilons)
    with common.progress_bar("compare", total) as advance:
        cells = own_table.compare_table(table, settings, advance)
    paths = own_table.write_table(out, cells, table, settings)
    told = own_table.table_summary(cells, table, settings)
    if json:
        common.print_json(told)
        return
    common.print_table(_score_table(told))
    for method, note in dict.fromkeys((cell.method, cell.note) for cell in cells if cell.left_out):
        typer.echo(f"{method} was {common.shown(note)}.")
    typer.echo(
        f"{told['score']} on {told['held_out_records']} records that were held out: {told['not_private']:.4f} without "
        f"privacy, {told['constant_model']:.4f} of a constant. In brackets: excess risk on the records of the fit."
    )
    typer.echo("A seeded experiment, measured on the records: nothing here is private.")
    typer.echo(f"Wrote {', '.join(map(str, paths))}")


def _score_table(told: dict[str, Any]) -> Table:
    """Return a line for each method, with its score and excess at every epsilon."""
    epsilons = told["settings"]["epsilons"]
    table = common.make_table("method", *(f">epsilon {epsilon:g}" for epsilon in epsilons))
    for method in dict.fromkeys(entry["method"] for entry in told["results"]):
        entries = [entry for entry in told["results"] if entry["method"] == method]
        table.add_row(method, *map(_score, entries))
    return table


def _score(entry: dict[str, Any]) -> str:
    if entry["score"] is None:
        return "–"
    error = "" if entry["score_standard_error"] is None else f" ± {entry['score_standard_error']:.1g}"
    excess = "–" if entry["excess_mean"] is None else f"{entry['excess_mean']:.2g}"
    return f"{entry['score']:.4f}{error} ({excess})"


def _require_own(out: Path, force: bool) -> None:
    """Refuse to replace files, except those of an earlier comparison."""
    from epsteps.paper import compare as experiment

    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out must be a folder, got the file {out}.")
    for path in experiment.paths(out):
        files.require_free([path], force or experiment.is_own(path))


def _table_or_path(path: Path, target: str | None, engine: EngineName) -> tuple[Any, Any, tuple[int, int]]:
    """Return features, target and shape; for dask only the file's name, since its workers read it."""
    from epsteps.data.parquet import ParquetReader
    from epsteps.data.sources import read_table

    if engine != "dask":
        features, targets = read_table(path, target)
        return features, targets, features.shape
    if target is None:
        raise ValueError("--target is required with --engine dask: name the column of the target.")
    return path, target, ParquetReader(path, target).shape


def _table(outcomes: list[Outcome]) -> Table:
    headings = (">T used", ">ε certified", ">gap F(x_T) - F*", ">± standard error", ">expected")
    table = common.make_table("algorithm", *headings)
    for outcome in outcomes:
        table.add_row(
            outcome.algorithm,
            str(outcome.plan.iterations),
            f"{outcome.plan.spent:.9f}",
            f"{outcome.gap[-1]:.3e}",
            f"{outcome.standard_error[-1]:.1e}",
            f"{outcome.plan.utility.expected:.1e}",
        )
    return table


def _start(text: str) -> float:
    named = {"zero": 0.0, "ten": 10.0}
    try:
        return named[text] if text in named else float(text)
    except ValueError:
        raise ValueError(f"--start must be zero, ten or a number, got {text!r}.") from None


def reproduce(
    figures: list[str] | None = Argument(None, help="fig1, fig2, fig3, fig4 or all (the default)."),
    as_published: bool = Option(False, "--as-published", help="What the authors' code did, errors included."),
    c: list[float] = Option([0.1, 1.0], "--c", help="Step factors; may be repeated."),
    m: list[int] = Option([], "--m", help="Batches; by default 100000 for fig3 and 1000 for fig4."),
    T: list[int] = Option([100, 200, 500, 1000], "--T", help="Numbers of iterations; may be repeated."),
    repetitions: int = Option(20, help="Runs of each configuration."),
    seed: int = Option(1, help="Seed of the noise; the records are the authors'."),
    quick: bool = Option(
        False, "--quick", help="Fewer records, iterations and runs: a look in seconds, which checks no conclusion."
    ),
    out: Path = Option(Path("results/reproduce"), help="Folder for figures, CSV files and the report."),
    force: common.Force = False,
) -> None:
    """Reproduce the figures of the paper, with a report that checks its conclusions (unless --quick).

    Without --as-published: correct noise and formulas, with the paper's L and with the right one. An experiment:
    nothing that it prints is private.
    """
    from epsteps.paper import quadratic_demo, report
    from epsteps.paper.statements import RECORDS, too_small
    from epsteps.paper.sweep import PAPER_L, PUBLISHED, RIGHT_L, Sweep, draw_all

    begin = time.perf_counter()
    wanted = _wanted(figures)
    files.require_free([out / name for name in ("report.md", "report.html")], force)
    out.mkdir(parents=True, exist_ok=True)
    document = report.start_report(as_published)
    if {"fig1", "fig2"} & wanted:
        quadratic_demo.write_csv(out)
        for path in quadratic_demo.draw(out, published=as_published):
            if path.suffix == ".png" and path.name[:4] in wanted:
                report.add_pictures(document, f"Figure {path.name[3]}", [path])
    n = 10_000 if quick else RECORDS
    batches = m or [batch for name, batch in (("fig3", n), ("fig4", n // 100)) if name in wanted]
    sweep = Sweep(
        variants=(PUBLISHED,) if as_published else (PAPER_L, RIGHT_L),
        batches=tuple(batches),
        step_factors=tuple(sorted(set(c))),
        horizons=tuple(sorted({min(value, 60) if quick else value for value in T})),
        repetitions=min(repetitions, 4) if quick else repetitions,
        seed=seed,
    )
    if batches and {"fig3", "fig4"} & wanted:
        curves = _sweep(sweep, n, out)
        reasons = too_small(sweep, n)
        report.add_sweep(document, curves, draw_all(out, curves), reasons)
        _print_spending(curves, as_published)
        if reasons:
            typer.echo(f"The paper's conclusions were not checked: {'; '.join(reasons)}. {report.HOW_TO_JUDGE}")
    report.add_settings(document, sweep, time.perf_counter() - begin)
    paths = document.write(out)
    typer.echo(
        f"Wrote {', '.join(map(str, paths))} and the figures beside them, in {time.perf_counter() - begin:.0f} s."
    )


def _sweep(sweep: Sweep, n: int, out: Path) -> list[Curve]:
    """Run the sweep behind a progress bar, writing each curve as it comes."""
    from epsteps.paper import compare as experiment
    from epsteps.paper.published import paper_smoothness, published_data, true_smoothness
    from epsteps.paper.sweep import PAPER_L, PUBLISHED, RIGHT_L, csv_files, planned, run_sweep

    problem = experiment.paper_problem(n, _FEATURES, _RIDGE)
    X, y = published_data(n, _FEATURES)
    paper_L = replace(problem, smoothness=paper_smoothness(X, _RIDGE))
    right_L = replace(problem, smoothness=true_smoothness(X, _RIDGE))
    plans = planned(sweep, {PUBLISHED: paper_L, PAPER_L: paper_L, RIGHT_L: right_L})
    data = es.Rows(problem, X, y)
    lowest = float(data.value(experiment.minimiser(data)))
    total = sum(2 * plan.iterations + 1 for _, plan in plans)
    curves = []
    with common.progress_bar("sweep", total) as advance, csv_files(out) as tables:
        for curve in run_sweep(plans, data, lowest, sweep, advance):
            tables.add(curve)
            curves.append(curve)
    return curves


def _print_spending(curves: list[Curve], as_published: bool) -> None:
    spent = [curve.spent for curve in curves]
    text = f"epsilon really spent: {min(spent):.4f} to {max(spent):.4f}"
    if as_published:
        text += " where 1 was claimed: the published code draws 1/√2 of the noise (docs/errata.md#p1)"
    Console().print(text + ".")


def _wanted(figures: list[str] | None) -> set[str]:
    names = set(figures or ["all"])
    unknown = names - {*_FIGURES, "all"}
    if unknown:
        raise ValueError(f"figures must be fig1, fig2, fig3, fig4 or all, got {', '.join(sorted(unknown))}.")
    return set(_FIGURES) if "all" in names else names
