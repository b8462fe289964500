"""``epsteps reproduce``: the paper's four figures, as published or as they should have been."""

import time
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

import epsteps as es
from epsteps.cli import files
from epsteps.cli.common import clean_errors, progress_bar
from epsteps.paper import quadratic_demo, report, sweep_outputs
from epsteps.paper.compare import minimiser, paper_problem
from epsteps.paper.published import paper_smoothness, published_data, true_smoothness
from epsteps.paper.sweep import PAPER_L, PUBLISHED, RIGHT_L, Curve, Sweep, planned, run_sweep

_FIGURES = ("fig1", "fig2", "fig3", "fig4")
_RECORDS, _FEATURES, _RIDGE = 100_000, 20, 0.02


@clean_errors
def reproduce(
    figures: list[str] = typer.Argument(None, help="fig1, fig2, fig3, fig4 or all (the default)."),
    as_published: bool = typer.Option(False, "--as-published", help="What the authors' code did, errors included."),
    c: list[float] = typer.Option([0.1, 1.0], "--c", help="Step factors; may be repeated."),
    m: list[int] = typer.Option([], "--m", help="Batches; by default 100000 for fig3 and 1000 for fig4."),
    T: list[int] = typer.Option([100, 200, 500, 1000], "--T", help="Numbers of iterations; may be repeated."),
    repetitions: int = typer.Option(20, help="Runs of each configuration."),
    seed: int = typer.Option(1, help="Seed of the noise; the records are the authors'."),
    quick: bool = typer.Option(False, "--quick", help="Fewer records, iterations and runs: a look in seconds."),
    out: Path = typer.Option(Path("results/reproduce"), help="Folder for figures, CSV files and the report."),
    force: bool = files.FORCE,
) -> None:
    """Reproduce the figures of the paper, with a report that checks its conclusions.

    Without --as-published: correct noise and formulas, with the paper's L and with the right one. An experiment:
    nothing that it prints is private.
    """
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
    n = 10_000 if quick else _RECORDS
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
        report.add_sweep(document, curves, sweep_outputs.draw_all(out, curves))
        _print_spending(curves, as_published)
    report.add_settings(document, sweep, time.perf_counter() - begin)
    paths = document.write(out)
    typer.echo(
        f"Wrote {', '.join(map(str, paths))} and the figures beside them, in {time.perf_counter() - begin:.0f} s."
    )


def _sweep(sweep: Sweep, n: int, out: Path) -> list[Curve]:
    """Run the sweep behind a progress bar, writing each curve as it comes."""
    problem = paper_problem(n, _FEATURES, _RIDGE)
    X, y = published_data(n, _FEATURES)
    paper_L = replace(problem, smoothness=paper_smoothness(X, _RIDGE))
    right_L = replace(problem, smoothness=true_smoothness(X, _RIDGE))
    plans = planned(sweep, {PUBLISHED: paper_L, PAPER_L: paper_L, RIGHT_L: right_L})
    data = es.Rows(problem, X, y)
    lowest = float(data.value(minimiser(data)))
    total = sum(2 * plan.iterations + 1 for _, plan in plans)
    curves = []
    with progress_bar("sweep", total) as advance, sweep_outputs.csv_files(out) as files:
        for curve in run_sweep(plans, data, lowest, sweep, advance):
            files.add(curve)
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
