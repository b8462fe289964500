"""What a comparison leaves behind: a CSV of the curves, a JSON of everything, a picture."""

import csv
import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import epsteps as es
from epsteps.paper.compare import Outcome, Settings
from epsteps.problem.extras import require

# Okabe and Ito's palette, which colour-blind readers can tell apart; -opt variants are dashed too.
_COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00")

_HEADINGS = ["algorithm", "iteration", "gap_mean", "gap_standard_error"]
_WHY_NOT_PRIVATE = "a seeded experiment that evaluates the objective on the records"


def summary(outcomes: list[Outcome], problem: es.Problem, settings: Settings) -> dict[str, Any]:
    """Return settings, versions and final numbers as plain data."""
    return {
        "private": False,
        "why_not_private": _WHY_NOT_PRIVATE,
        "problem": repr(problem),
        "settings": asdict(settings),
        "versions": {"epsteps": es.__version__, "numpy": np.__version__, "scipy": scipy.__version__},
        "python": platform.python_version(),
        "algorithms": [_final(outcome) for outcome in outcomes],
    }


def _final(outcome: Outcome) -> dict[str, Any]:
    error = float(outcome.standard_error[-1])
    return {
        "algorithm": outcome.algorithm,
        "iterations": outcome.plan.iterations,
        "epsilon_certified": outcome.plan.spent,
        "gap": float(outcome.gap[-1]),
        "standard_error": None if np.isnan(error) else error,
        "predicted_error": outcome.plan.error,
        "seconds": outcome.seconds,
    }


def write_all(out: Path, outcomes: list[Outcome], problem: es.Problem, settings: Settings) -> list[Path]:
    """Write compare.csv, compare.json and compare.png into a folder, and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    table, document, picture = paths(out)
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_HEADINGS)
        for outcome in outcomes:
            curve = np.column_stack([outcome.gap, outcome.standard_error]).tolist()
            writer.writerows([outcome.algorithm, t, *row] for t, row in zip(outcome.iterations, curve, strict=True))
    document.write_text(json.dumps(summary(outcomes, problem, settings), indent=1) + "\n")
    plot(picture, outcomes, problem, settings)
    return paths(out)


def paths(out: Path) -> list[Path]:
    """Return where the curves, the summary and the picture are written."""
    return [out / f"compare.{ending}" for ending in ("csv", "json", "png")]


def is_own(path: Path) -> bool:
    """Whether this file was written by a comparison: known by its headings, its keys, or the summary beside it."""
    try:
        if path.suffix == ".csv":
            with path.open(newline="") as file:
                return next(csv.reader(file), None) == _HEADINGS
        found = json.loads(path.with_suffix(".json").read_text())
        if not isinstance(found, dict) or found.get("why_not_private") != _WHY_NOT_PRIVATE:
            return False
        return path.suffix == ".json" or path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    except (OSError, ValueError, csv.Error):
        return False


def plot(path: Path, outcomes: list[Outcome], problem: es.Problem, settings: Settings) -> None:
    """Draw the gap over the iterations, one line per algorithm, with a band of one standard error."""
    figure_class = require("matplotlib.figure", "plots", "drawing the comparison").Figure
    figure = figure_class(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for outcome, colour in zip(outcomes, _COLOURS, strict=False):
        t = outcome.iterations
        style = "--" if outcome.plan.allocation == "optimal" else "-"
        axes.plot(t, outcome.gap, style, color=colour, lw=1.8, label=f"{outcome.algorithm} (T = {t[-1]})")
        axes.plot(t[-1], outcome.gap[-1], "o", color=colour, ms=5)
        low = np.maximum(outcome.gap - outcome.standard_error, outcome.gap / 10)
        axes.fill_between(t, low, outcome.gap + outcome.standard_error, color=colour, alpha=0.15, lw=0)
    axes.set_yscale("log")
    axes.set_xlabel("iteration t")
    axes.set_ylabel("F(x_t) - F*, mean of the runs")
    batch = "" if settings.batch is None else f", batch {settings.batch}"
    axes.set_title(
        f"{settings.budget}, n = {problem.n}, d = {problem.d}{batch}, step {settings.c:g}/L, "
        f"{settings.repetitions} runs",
        fontsize=11,
    )
    axes.grid(alpha=0.3, which="major")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
