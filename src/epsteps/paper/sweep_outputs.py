"""Files of a sweep: the curves and their summary as CSV, and figures 3 and 4 as pictures."""

import csv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.paper.published import ALGORITHMS
from epsteps.paper.published_curves import Key, published_curves
from epsteps.paper.sweep import PUBLISHED, Curve
from epsteps.problem.extras import require

_COLOURS = {0: "#E69F00", 1: "#009E73", 2: "#0072B2", 3: "#D55E00", 4: "#CC79A7", 5: "#56B4E9"}
CURVES = "fig3_fig4_curves.csv"
SUMMARY = "fig3_fig4_summary.csv"


@contextmanager
def csv_files(out: Path) -> Iterator["CsvFiles"]:
    """Open the two CSV files, to be written curve by curve."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / CURVES).open("w", newline="") as curves, (out / SUMMARY).open("w", newline="") as summary:
        yield CsvFiles(csv.writer(curves), csv.writer(summary))


class CsvFiles:
    """Writers of the curves (a row per iteration) and of the summary (a row per configuration)."""

    def __init__(self, curves, summary) -> None:
        self._curves, self._summary = curves, summary
        key = ["variant", "m", "c", "algorithm", "T"]
        self._curves.writerow([*key, "iteration", "gap_mean", "gap_standard_error"])
        self._summary.writerow([*key, "iterations", "epsilon_spent", "final_gap", "standard_error", "seconds"])

    def add(self, curve: Curve) -> None:
        """Write one curve."""
        configuration = curve.configuration
        key = [configuration.variant, configuration.m, configuration.c, configuration.algorithm, configuration.T]
        rows = zip(curve.gap.tolist(), curve.standard_error.tolist(), strict=True)
        self._curves.writerows([*key, t, *row] for t, row in enumerate(rows))
        final = [curve.iterations, curve.spent, curve.final, float(curve.standard_error[-1]), f"{curve.seconds:.3f}"]
        self._summary.writerow([*key, *final])


def draw_all(out: Path, curves: list[Curve]) -> list[Path]:
    """Draw one picture per variant, batch and step factor; return the PNG paths (PDFs lie beside them)."""
    groups: dict[tuple[str, int, float], list[Curve]] = {}
    for curve in curves:
        configuration = curve.configuration
        groups.setdefault((configuration.variant, configuration.m, configuration.c), []).append(curve)
    batches = sorted({key[1] for key in groups}, reverse=True)
    variants = list(dict.fromkeys(key[0] for key in groups))
    paths = []
    for (variant, m, c), members in groups.items():
        figure = 3 if m == batches[0] else 4
        name = f"fig{figure}_m{m}_c{c:g}_{variants.index(variant) + 1}"
        title = f"{variant}: m = {m}, step {c:g}/L"
        theirs = published_curves() if variant == PUBLISHED else {}
        if any(curve.configuration.key in theirs for curve in members):
            title += " (dashed: the authors' own curves)"
        paths.append(_draw(out / name, title, members, theirs))
    return paths


def _draw(path: Path, title: str, curves: Iterable[Curve], theirs: dict[Key, tuple[np.ndarray, np.ndarray]]) -> Path:
    """Draw 2 x 3 panels, one per algorithm, one line per T, all on the same axes; their own curves dashed."""
    figure = require("matplotlib.figure", "plots", "drawing figures").Figure(figsize=(11, 6.5), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    panels: dict[str, Any] = dict(zip(ALGORITHMS, np.ravel(axes), strict=True))
    curves = list(curves)
    horizons = sorted({curve.configuration.T for curve in curves}, reverse=True)
    for curve in sorted(curves, key=lambda curve: -curve.configuration.T):
        panel, index = panels[curve.configuration.algorithm], horizons.index(curve.configuration.T)
        colour = _COLOURS[index % len(_COLOURS)]
        if curve.configuration.key in theirs:
            panel.plot(*theirs[curve.configuration.key], color="black", lw=0.9, ls=(0, (3, 2)), zorder=3)
        t = np.arange(len(curve.gap))
        panel.plot(t, curve.gap, color=colour, lw=1.6, label=f"T = {curve.configuration.T}")
        panel.plot(t[-1], curve.gap[-1], "o", color=colour, ms=4)
    for name, panel in panels.items():
        panel.set_yscale("log")
        panel.set_title(name, fontsize=11)
        panel.grid(alpha=0.3)
    for panel in axes[1]:
        panel.set_xlabel("iteration t")
    for panel in axes[:, 0]:
        panel.set_ylabel("F(x_t) - F*")
    handles, labels = panels[ALGORITHMS[0]].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(title, fontsize=13)
    for ending in ("png", "pdf"):
        figure.savefig(path.with_name(f"{path.name}.{ending}"), dpi=130)
    return path.with_name(f"{path.name}.png")
