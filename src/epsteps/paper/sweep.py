"""The sweep behind figures 3 and 4: six algorithms over step sizes, batches and numbers of iterations.

Curves are handed on one by one, so that the memory needed is that of one configuration. They are left behind as CSV,
with a summary, and as pictures. An experiment: seeded, measured on the records, with L computed from them; nothing in
it is private.
"""

import csv
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import epsteps as es
from epsteps.methods import figures
from epsteps.paper.compare import ALGORITHMS, seeded_run, values
from epsteps.paper.published import START, Key, corrected_plan, published_curves, published_plan
from epsteps.problem.validate import require

PUBLISHED = "as published"
PAPER_L = "corrected, the paper's L"
RIGHT_L = "corrected, the right L"

CURVES = "fig3_fig4_curves.csv"
SUMMARY = "fig3_fig4_summary.csv"


@dataclass(frozen=True)
class Sweep:
    """What is swept; the defaults are the paper's."""

    variants: tuple[str, ...] = (PAPER_L, RIGHT_L)
    batches: tuple[int, ...] = (100_000, 1000)
    step_factors: tuple[float, ...] = (0.1, 1.0)
    horizons: tuple[int, ...] = (100, 200, 500, 1000)
    epsilon: float = 1.0
    repetitions: int = 20
    seed: int = 1

    def configurations(self) -> list["Configuration"]:
        """Return every combination, in the order of the figures."""
        return [
            Configuration(variant, m, c, algorithm, T)
            for variant in self.variants
            for m in self.batches
            for c in self.step_factors
            for algorithm in ALGORITHMS
            for T in self.horizons
        ]


@dataclass(frozen=True)
class Configuration:
    """One line of one panel."""

    variant: str
    m: int
    c: float
    algorithm: str
    T: int

    @property
    def key(self) -> Key:
        """What identifies a line of the paper's figures, whatever the variant."""
        return self.m, self.c, self.algorithm, self.T

    def plan(self, problem: es.Problem, epsilon: float) -> es.StepsPlan:
        """Return the plan that this line follows."""
        make = published_plan if self.variant == PUBLISHED else corrected_plan
        return make(self.algorithm, problem, T=self.T, m=self.m, c=self.c, epsilon=epsilon)


@dataclass(frozen=True)
class Curve:
    """A configuration's result: the gap F(x_t) - F* for t = 0..T', mean and standard error over the runs."""

    configuration: Configuration
    iterations: int
    spent: float
    gap: np.ndarray = field(repr=False)
    standard_error: np.ndarray = field(repr=False)
    seconds: float

    @property
    def final(self) -> float:
        """The mean gap of the last iterate."""
        return float(self.gap[-1])


def planned(sweep: Sweep, problems: dict[str, es.Problem]) -> list[tuple[Configuration, es.StepsPlan]]:
    """Return every configuration with its plan; ``problems`` declares the L of each variant."""
    return [
        (configuration, configuration.plan(problems[configuration.variant], sweep.epsilon))
        for configuration in sweep.configurations()
    ]


def run_sweep(
    plans: list[tuple[Configuration, es.StepsPlan]],
    data: es.Rows,
    lowest: float,
    sweep: Sweep,
    on_step: Callable[[int], None] = lambda _: None,
) -> Iterator[Curve]:
    """Yield one curve after the other; ``on_step`` hears how many iterates were run or measured."""
    for number, (configuration, plan) in enumerate(plans):
        begin = time.perf_counter()
        run = seeded_run(plan, data, [sweep.seed, 2, number], sweep.repetitions, START, on_step)
        gaps = values(data, run.path, on_step) - lowest
        error = gaps.std(axis=1, ddof=min(1, sweep.repetitions - 1)) / np.sqrt(sweep.repetitions)
        yield Curve(configuration, plan.iterations, plan.spent, gaps.mean(axis=1), error, time.perf_counter() - begin)


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
        key = Configuration.__dataclass_fields__
        self._curves.writerow([*key, "iteration", "gap_mean", "gap_standard_error"])
        self._summary.writerow([*key, "iterations", "epsilon_spent", "final_gap", "standard_error", "seconds"])

    def add(self, curve: Curve) -> None:
        """Write one curve."""
        key = asdict(curve.configuration).values()
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


def _draw(path: Path, title: str, curves: list[Curve], theirs: dict[Key, tuple[np.ndarray, np.ndarray]]) -> Path:
    """Draw 2 x 3 panels, one per algorithm, one line per T, all on the same axes; their own curves dashed."""
    figure = require("matplotlib.figure", "plots", "drawing figures").Figure(figsize=(12, 6.8), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    panels: dict[str, Any] = dict(zip(ALGORITHMS, np.ravel(axes), strict=True))
    ends: dict[str, dict[int, tuple[float, list[int]]]] = {name: {} for name in panels}  # lines that end together
    horizons = sorted({curve.configuration.T for curve in curves})
    for curve in sorted(curves, key=lambda curve: -curve.configuration.T):
        name, T = curve.configuration.algorithm, curve.configuration.T
        panel, colour = panels[name], figures.STYLES[name].colour
        colour = figures.shade(colour, 1 - horizons.index(T) / max(len(horizons) - 1, 1))
        if curve.configuration.key in theirs:
            panel.plot(*theirs[curve.configuration.key], color="black", lw=0.9, ls=(0, (3, 2)), zorder=3)
        t = np.arange(len(curve.gap))
        panel.plot(t, curve.gap, color=colour, lw=1.6)
        low = np.maximum(curve.gap - curve.standard_error, curve.gap / 10)
        panel.fill_between(t, low, curve.gap + curve.standard_error, color=colour, alpha=0.25, lw=0)
        panel.plot(t[-1], curve.gap[-1], "o", color=colour, ms=4)
        ends[name].setdefault(len(t) - 1, (curve.final, []))[1].append(T)
    for name, panel in panels.items():
        panel.set_yscale("log")
        panel.set_title(name, fontsize=11)
        figures.plain(panel)
    for panel in axes[1]:
        panel.set_xlabel("iteration t")
    for panel in axes[:, 0]:
        panel.set_ylabel("F(x_t) - F* ± standard error")
    figure.suptitle(title, fontsize=13)
    axes[0, 0].set_xlim(right=1.22 * horizons[-1])  # labels stand inside
    figures.readable(axes[0, 0].yaxis)
    for name, panel in panels.items():
        figures.label_ends(panel, [(t, gap, _horizons(Ts), figures.BLACK) for t, (gap, Ts) in ends[name].items()])
    for ending in ("png", "pdf"):
        figure.savefig(path.with_name(f"{path.name}.{ending}"), dpi=130)
    return path.with_name(f"{path.name}.png")


def _horizons(Ts: list[int]) -> str:
    return "T = " + ", ".join(map(str, sorted(Ts)))
