"""The paper's six algorithms side by side on one problem: gap to the optimum over the iterations.

An experiment: it evaluates the objective on the records and repeats under a seed, so that nothing it prints is private.
It leaves behind a CSV of the curves, a JSON of everything, and a picture.
"""

import csv
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy.optimize import minimize

import epsteps as es
from epsteps.bounds.steps import Method
from epsteps.budgets import Budget, Epsilon
from epsteps.methods import figures
from epsteps.problem.sampling import Sampling
from epsteps.problem.validate import require

# The method of each algorithm, and how it splits the budget. The -opt variants also choose T.
ALGORITHMS: dict[str, tuple[Method, str]] = {
    "DP-GD": (es.gd, "uniform"),
    "DP-HB": (es.heavy_ball, "uniform"),
    "DP-NAG": (es.nesterov, "uniform"),
    "DP-MASG": (es.multistage, "uniform"),
    "DP-NAG-opt": (es.nesterov, "optimal"),
    "DP-MASG-opt": (es.multistage, "optimal"),
}

_HEADINGS = ["algorithm", "iteration", "gap_mean", "gap_standard_error"]
# Those of a comparison on a table of one's own (``own_table``).
TABLE_HEADINGS = ["method", "epsilon", "runs", "excess_mean", "excess_standard_error", "score", "score_standard_error"]
TABLE_HEADINGS += ["note"]
WHY_NOT_PRIVATE = "a seeded experiment that evaluates the objective on the records"
# Columns of one product F(x): enough to keep the processor busy, few enough to stay in its cache.
_COLUMNS = 100


@dataclass(frozen=True)
class Settings:
    """Options of a comparison; the defaults are the paper's."""

    epsilon: float = 1.0
    delta: float | None = None
    iterations: int = 200
    batch: int | None = None
    c: float = 1.0
    repetitions: int = 20
    start: float = 10.0
    start_gap: float = 10.0
    seed: int = 1

    @property
    def budget(self) -> es.Pure | es.Approximate:
        """What each run may spend."""
        return es.Pure(self.epsilon) if self.delta is None else es.Approximate(self.epsilon, self.delta)


@dataclass(frozen=True)
class Outcome:
    """One algorithm's result: the gap F(x_t) - F* at some iterations, mean and standard error over the runs."""

    algorithm: str
    plan: es.StepsPlan = field(repr=False)
    iterations: np.ndarray = field(repr=False)
    gap: np.ndarray = field(repr=False)
    standard_error: np.ndarray = field(repr=False)
    seconds: float


def paper_problem(n: int, d: int, ridge: float = 0.02) -> es.Problem:
    """Return the paper's problem: logistic regression over the unit cube."""
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=ridge, n=n, d=d)


def paper_data(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the paper's synthetic records: X uniform on [0, 1], y = sign(Xw) for a normal w."""
    rng = np.random.default_rng([seed, 0])
    X = rng.random((n, d))
    return X, np.where(X @ rng.standard_normal(d) >= 0, 1, -1)


def plan_of(
    algorithm: str, problem: es.Problem, budget: Budget, T: int, *, noise: str, batch: int | None, c: float, gap: float
) -> es.StepsPlan:
    """Return the plan of one algorithm; the -opt variants choose their number of steps up to T. ``gap`` is guessed."""
    method, allocation = ALGORITHMS[algorithm]
    return es.plan(
        problem,
        budget,
        method,
        allocation=allocation,
        iterations="auto" if allocation == "optimal" else T,
        max_iterations=T,
        batch=batch,
        mechanism=noise,
        start_gap=gap,
        c=c,
    )


def plans(problem: es.Problem, settings: Settings) -> list[tuple[str, es.StepsPlan]]:
    """Return the six plans, with the paper's noise, independent over coordinates, or its Gaussian counterpart."""
    sampling = Sampling(problem.n, settings.batch or problem.n)
    noise = "laplace" if settings.budget.kind(sampling) is Epsilon else "gaussian"
    options = {"noise": noise, "batch": settings.batch, "c": settings.c, "gap": settings.start_gap}
    return [(name, plan_of(name, problem, settings.budget, settings.iterations, **options)) for name in ALGORITHMS]


def compare(
    planned: list[tuple[str, es.StepsPlan]],
    data: es.Rows,
    settings: Settings,
    on_step: Callable[[int], None] = lambda _: None,
) -> list[Outcome]:
    """Run every plan, repeated, and measure its gap at up to 101 iterates; ``on_step`` hears of each one, and step."""
    lowest = float(data.value(minimiser(data)))
    outcomes = []
    for number, (name, plan) in enumerate(planned):
        begin = time.perf_counter()
        run = seeded_run(plan, data, [settings.seed, 1, number], settings.repetitions, settings.start, on_step)
        seconds = time.perf_counter() - begin
        measured = measured_iterations(plan.iterations)
        gaps = values(data, run.path[measured], on_step, columns=1) - lowest
        error = gaps.std(axis=1, ddof=1) / np.sqrt(gaps.shape[1]) if gaps.shape[1] > 1 else np.full(len(gaps), np.nan)
        outcomes.append(Outcome(name, plan, measured, gaps.mean(axis=1), error, seconds))
    return outcomes


def seeded_run(
    plan: es.StepsPlan, data: es.Rows, seeds: list[int], repetitions: int, start: float, on_step: Callable[[int], None]
) -> es.Run:
    """Return repeated runs whose noise follows from these seeds; ``on_step`` hears of each step."""
    seed = int(np.random.SeedSequence(seeds).generate_state(1)[0])
    return es.run(plan, data, seed=seed, repetitions=repetitions, start=start, on_step=lambda _: on_step(1))


def values(
    data: es.Rows, path: np.ndarray, on_step: Callable[[int], None] = lambda _: None, columns: int = _COLUMNS
) -> np.ndarray:
    """Return F at every iterate of every run, (T+1, runs), with about so many columns to a product."""
    count, d, runs = path.shape
    size = max(1, columns // runs)
    objective = np.empty((count, runs))
    for start in range(0, count, size):
        block = path[start : start + size]
        points = block.transpose(1, 0, 2).reshape(d, -1)
        objective[start : start + size] = data.value(points).reshape(len(block), runs)
        on_step(len(block))
    return objective


def measured_iterations(T: int) -> np.ndarray:
    """Return the iterations at which the gap is measured: all up to 100, evenly spaced ones of more."""
    return np.unique(np.linspace(0, T, min(T, 100) + 1).round().astype(int))


def minimiser(data: es.Rows) -> np.ndarray:
    """Return the exact minimiser of F, UNPROTECTED: the yardstick of an experiment."""
    dimension = data.problem.dimension
    minimum = minimize(
        lambda x: (float(data.value(x)), data.gradient(x)),
        np.zeros(dimension),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 10_000, "gtol": 1e-11, "ftol": 0.0, "maxcor": 30},
    )
    if np.linalg.norm(data.gradient(minimum.x)) > 1e-7:
        raise RuntimeError(f"the yardstick did not converge: {minimum.message}")
    return minimum.x


def summary(outcomes: list[Outcome], problem: es.Problem, settings: Settings) -> dict[str, Any]:
    """Return settings, versions and final numbers as plain data."""
    return {
        "private": False,
        "why_not_private": WHY_NOT_PRIVATE,
        "problem": repr(problem),
        "settings": asdict(settings),
        "versions": versions(),
        "python": platform.python_version(),
        "algorithms": [_final(outcome) for outcome in outcomes],
    }


def versions() -> dict[str, str]:
    """Return the versions of what computes numbers."""
    return {"epsteps": es.__version__, "numpy": np.__version__, "scipy": scipy.__version__}


def _final(outcome: Outcome) -> dict[str, Any]:
    error = float(outcome.standard_error[-1])
    return {
        "algorithm": outcome.algorithm,
        "iterations": outcome.plan.iterations,
        "epsilon_certified": outcome.plan.spent,
        "gap": float(outcome.gap[-1]),
        "standard_error": None if np.isnan(error) else error,
        "predicted_error": outcome.plan.error,
        "utility": outcome.plan.utility.to_dict(),
        "seconds": outcome.seconds,
    }


def write(out: Path, outcomes: list[Outcome], problem: es.Problem, settings: Settings) -> list[Path]:
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
                return next(csv.reader(file), None) in (_HEADINGS, TABLE_HEADINGS)
        beside = json.loads(path.with_suffix(".json").read_text())
        if not isinstance(beside, dict) or beside.get("why_not_private") != WHY_NOT_PRIVATE:
            return False
        return path.suffix == ".json" or path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    except (OSError, ValueError, csv.Error):
        return False


def plot(path: Path, outcomes: list[Outcome], problem: es.Problem, settings: Settings) -> None:
    """Draw the gap over the iterations, one line per algorithm, with a band of one standard error."""
    figure_class = require("matplotlib.figure", "plots", "drawing the comparison").Figure
    figure = figure_class(figsize=(8.6, 5), layout="constrained")
    axes = figure.subplots()
    ends = []
    for outcome in outcomes:
        style, t = figures.STYLES[outcome.algorithm], outcome.iterations
        axes.plot(t, outcome.gap, **style.line())
        axes.plot(t[-1], outcome.gap[-1], style.marker, color=style.colour, ms=5, clip_on=False)
        low = np.maximum(outcome.gap - outcome.standard_error, outcome.gap / 10)
        axes.fill_between(t, low, outcome.gap + outcome.standard_error, color=style.colour, alpha=0.2, lw=0)
        ends.append((t[-1], outcome.gap[-1], outcome.algorithm, style.colour))
    axes.set_yscale("log")
    axes.set_xlabel("iteration t")
    axes.set_ylabel("F(x_t) - F*, mean of the runs ± standard error")
    batch = "" if settings.batch is None else f", batch {settings.batch}"
    axes.set_title(
        f"{settings.budget}, n = {problem.n}, d = {problem.d}{batch}, step {settings.c:g}/L, "
        f"{settings.repetitions} runs",
        fontsize=11,
    )
    axes.set_xlim(right=max(end[0] for end in ends))
    figures.plain(axes)
    figures.readable(axes.yaxis)
    figures.label_ends(axes, ends)
    figure.savefig(path, dpi=150)
