"""Everything side by side on somebody's own table: the paper's six algorithms, ours, and peers, over epsilon.

An experiment: seeded, with the exact minimum and the scores of held-out records read off the table without protection.
Nothing that it prints or writes is private.
"""

import csv
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

import epsteps as es
from epsteps.budgets import Epsilon
from epsteps.budgets.conversions import gaussian_mu
from epsteps.methods import figures
from epsteps.paper.compare import ALGORITHMS, TABLE_HEADINGS, WHY_NOT_PRIVATE, minimiser, paths, plan_of, versions
from epsteps.problem.sampling import Sampling
from epsteps.problem.validate import require
from epsteps.tables.model import likeliest, of_classes, of_numbers, probabilities, problem_of
from epsteps.tables.schema import Schema

FINAL, ITERATES, PEER, TUNED = (
    *("epsteps, final model", "epsteps, everything published"),
    *("diffprivlib", "DP-GD, clipped, tuned on the answer"),
)
# Of the peer that needs one, where the budget has none.
_DELTA = 1e-5
# Steps, clipping norm over the largest record's, and step size times the smoothness: those that the peer may choose.
# Long steps go with short gradients.
_RATES = {1.0: (4, 8), 0.5: (1, 4, 16), 0.25: (8, 32), 0.1: (8, 32, 128), 0.05: (32,)}
_GRID = [(T, clip, float(rate)) for T in (10, 30, 300) for clip, rates in _RATES.items() for rate in rates]
_LARGEST = 1e6


@dataclass(frozen=True)
class TableSettings:
    """Options of a comparison on a table."""

    epsilons: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0)
    delta: float | None = None
    iterations: int = 200
    repetitions: int = 5
    ridge: float = 1e-4
    held_out: float = 0.2
    tuned: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.epsilons or not all(0 < epsilon < math.inf for epsilon in self.epsilons):
            raise ValueError(f"--epsilons must be positive numbers with commas, such as 0.1,1; got {self.epsilons}.")
        if not 0 < self.held_out < 1:
            raise ValueError(f"--held-out must be a share between 0 and 1, got {self.held_out}.")
        if self.repetitions < 1 or self.iterations < 1:
            raise ValueError(
                f"--repetitions and --iterations must be positive, got {self.repetitions} and {self.iterations}."
            )

    def budget(self, epsilon: float) -> es.Pure | es.Approximate:
        """Return what each run at this epsilon may spend."""
        return es.Pure(epsilon) if self.delta is None else es.Approximate(epsilon, self.delta)


@dataclass(frozen=True, eq=False)
class OwnTable:
    """A table, encoded by its schema: records to fit, and others to score on. UNPROTECTED."""

    schema: Schema
    problem: es.Problem
    X: np.ndarray
    y: np.ndarray
    test_X: np.ndarray
    test_y: np.ndarray

    @staticmethod
    def of(schema: Schema, table: Mapping[str, np.ndarray], settings: TableSettings) -> "OwnTable":
        """Return a table with its last records, in an order of chance, held out."""
        X, y = schema.encode(table), schema.encode_target(table)
        order = np.random.default_rng([settings.seed, 3]).permutation(len(X))
        count = round(settings.held_out * len(X))
        if not 0 < count < len(X):
            raise ValueError(
                f"--held-out {settings.held_out:g} of {len(X)} records leaves none to fit, or to score on."
            )
        train, test = order[count:], order[:count]
        return OwnTable(schema, problem_of(schema, len(train), settings.ridge), X[train], y[train], X[test], y[test])

    @cached_property
    def rows(self) -> es.Rows:
        """The records to fit."""
        return es.Rows(self.problem, self.X, self.y)

    @cached_property
    def targets(self) -> np.ndarray:
        """Their targets as the loss sees them."""
        return self.problem.loss.encode(self.y)

    @cached_property
    def design(self) -> np.ndarray:
        """Their features with a last column of ones, for the intercept."""
        return np.column_stack([self.X, np.ones(len(self.X))])

    @cached_property
    def minimum(self) -> np.ndarray:
        """The exact minimiser: what a fit without privacy gives, such as scikit-learn's with the same ridge."""
        return minimiser(self.rows)

    @property
    def score_name(self) -> str:
        """What held-out records are scored by."""
        return "R²" if self.schema.target_column.classes is None else "accuracy"

    def excess(self, x: np.ndarray) -> np.ndarray:
        """Return F(x) - F* of each column."""
        return np.atleast_1d(self.rows.value(x)) - float(self.rows.value(self.minimum))

    def score(self, x: np.ndarray) -> float:
        """Return the score of one model on the records that were held out."""
        points = x.reshape(self.problem.loss.outputs, self.problem.width)
        margins = self.test_X @ points[:, :-1].T + points[:, -1]
        classes = self.schema.target_column.classes
        if classes is None:
            truth, found = (self.schema.decode_target(values) for values in (self.test_y, margins[:, 0]))
            return of_numbers(truth, found)["r2"]
        margins = margins[:, 0] if len(points) == 1 else margins
        places = np.select([self.test_y == label for label in classes], np.arange(len(classes)))
        return of_classes(places, likeliest(margins) == places, margins, probabilities(margins))["accuracy"]

    @cached_property
    def constant(self) -> float:
        """The score of the best constant: the most frequent class, or the mean."""
        if self.schema.target_column.classes is None:
            truth, mean = self.schema.decode_target(self.test_y), self.schema.decode_target(np.array([self.y.mean()]))
            return of_numbers(truth, np.full(len(truth), mean[0]))["r2"]
        labels, counts = np.unique(self.y, return_counts=True)
        return float(np.mean(self.test_y == labels[counts.argmax()]))


@dataclass(frozen=True)
class Cell:
    """One method at one epsilon: excess and score of each run, or why there is none."""

    method: str
    epsilon: float
    excess: np.ndarray = field(repr=False)
    scores: np.ndarray = field(repr=False)
    note: str
    seconds: float

    @property
    def left_out(self) -> bool:
        """Whether there is no run, for the reason in the note."""
        return len(self.scores) == 0


# What a method is told: the table, settings, epsilon and seeds; and its answer: models as columns, and a note.
Fit = Callable[[OwnTable, TableSettings, float, Sequence[int]], tuple[np.ndarray, str]]


def _paper(
    table: OwnTable, settings: TableSettings, epsilon: float, seeds: Sequence[int], *, algorithm: str
) -> tuple[np.ndarray, str]:
    """Run an algorithm of the paper from 0, with the public L, and the public bound on how far 0 is."""
    problem, budget = table.problem, settings.budget(epsilon)
    noise = "laplace" if budget.kind(Sampling(problem.n, problem.n)) is Epsilon else "gaussian"
    plan = plan_of(
        algorithm, problem, budget, settings.iterations, noise=noise, batch=None, c=1.0, gap=problem.start_gap
    )
    run = es.run(plan, table.rows, seed=seeds[0], repetitions=len(seeds))
    return run.x.reshape(problem.dimension, -1), f"T = {plan.iterations}"


def _ours(
    table: OwnTable, settings: TableSettings, epsilon: float, seeds: Sequence[int], *, release: str
) -> tuple[np.ndarray, str]:
    """Run what epsteps chooses for a release."""
    plan = es.plan(table.problem, settings.budget(epsilon), "auto", release=release)
    runs = [es.run(plan, table.rows, seed=seed, anyway=True).x for seed in seeds]
    return np.stack(runs, axis=1), plan.method


def _diffprivlib(
    table: OwnTable, settings: TableSettings, epsilon: float, seeds: Sequence[int]
) -> tuple[np.ndarray, str]:
    """Fit diffprivlib's model with norms and ranges as declared, and the same ridge; its linear one has none."""
    try:
        from diffprivlib.models import LinearRegression, LogisticRegression  # pyright: ignore
    except ImportError as error:
        raise ValueError(f"it cannot be imported ({error})") from None
    problem, outputs = table.problem, table.problem.loss.outputs
    if outputs > 1:
        raise ValueError("it fits several classes one by one, and not the same objective")
    is_number = table.schema.target_column.classes is None
    options: dict[str, Any] = {"epsilon": epsilon, "fit_intercept": False}
    if is_number:
        options |= {"bounds_X": (0.0, 1.0), "bounds_y": (-1.0, 1.0)}
    else:
        norm = math.sqrt(problem.domain.size(2, problem.d) ** 2 + 1) * (1 + 1e-9)
        options |= {"data_norm": norm, "C": 1 / (problem.n * problem.ridge), "tol": 1e-7, "max_iter": 1000}
    found = []
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = (LinearRegression if is_number else LogisticRegression)(random_state=seed, **options)
            found.append(np.ravel(model.fit(table.design, table.targets).coef_))
    return np.stack(found, axis=1), "no ridge" if is_number else f"ridge {problem.ridge:g}"


def _tuned(table: OwnTable, settings: TableSettings, epsilon: float, seeds: Sequence[int]) -> tuple[np.ndarray, str]:
    """Descend with clipped gradients and Gaussian noise, at the setting that measures best on these very records.

    To choose it privately would cost more than is told here: what no private fit reaches that does not know it.
    """
    delta = settings.delta or _DELTA
    rng = np.random.default_rng([settings.seed, 4])
    measured = [float(table.excess(_descended(table, epsilon, delta, setting, rng))[0]) for setting in _GRID]
    T, clip, rate = best = _GRID[int(np.argmin(measured))]
    runs = [_descended(table, epsilon, delta, best, np.random.default_rng([seed, 5])) for seed in seeds]
    return np.stack(runs, axis=1), f"delta = {delta:g}, T = {T}, clip {clip:g}, rate {rate:g}/L"


def _descended(
    table: OwnTable, epsilon: float, delta: float, setting: tuple[int, float, float], rng: np.random.Generator
) -> np.ndarray:
    """Return the last point of clipped gradient descent from 0: T steps that are mu-Gaussian-DP together."""
    T, share, rate = setting
    problem = table.problem
    largest = problem.record_size(2)
    clip, size = share * largest, rate / (problem.loss.curvature * largest**2 + problem.ridge)
    sigma = 2 * clip / problem.n * math.sqrt(T) / gaussian_mu(epsilon, delta)
    design, norms = table.design, np.linalg.norm(table.design, axis=1)
    x = np.zeros((problem.loss.outputs, problem.width))
    for _ in range(T):
        slopes = problem.loss.derivative(design @ x.T, table.targets[:, None])
        lengths = np.linalg.norm(slopes, axis=1) * norms
        slopes = slopes * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[:, None]
        noise = sigma * rng.standard_normal(x.shape)
        x = np.clip(x - size * (slopes.T @ design / problem.n + problem.ridge * x + noise), -_LARGEST, _LARGEST)
    return x.ravel()


def contenders(settings: TableSettings) -> dict[str, Fit]:
    """Return what is compared, by its name."""
    found: dict[str, Fit] = {name: partial(_paper, algorithm=name) for name in ALGORITHMS}
    found |= {FINAL: partial(_ours, release="final"), ITERATES: partial(_ours, release="iterates"), PEER: _diffprivlib}
    return found | ({TUNED: _tuned} if settings.tuned else {})


def compare_table(
    table: OwnTable, settings: TableSettings, on_cell: Callable[[int], None] = lambda _: None
) -> list[Cell]:
    """Run every method at every epsilon; what cannot be run here is left out, with the reason."""
    cells = []
    for number, (name, fit) in enumerate(contenders(settings).items()):
        for place, epsilon in enumerate(settings.epsilons):
            words = np.random.SeedSequence([settings.seed, number, place]).generate_state(settings.repetitions)
            begin = time.perf_counter()
            try:
                with np.errstate(all="ignore"):
                    x, note = fit(table, settings, epsilon, [int(word) for word in words])
                    excess, scores = table.excess(x), np.array([table.score(column) for column in x.T])
            except (ValueError, ArithmeticError, RuntimeError) as error:
                excess, scores, note = np.array([]), np.array([]), f"left out: {' '.join(str(error).split())}"
            cells.append(Cell(name, epsilon, excess, scores, note, time.perf_counter() - begin))
            on_cell(1)
    return cells


def mean_and_error(values: np.ndarray) -> tuple[float | None, float | None]:
    """Return the mean over the runs and its standard error; None where there is none that is finite."""
    with np.errstate(all="ignore"):
        mean = float(np.mean(values)) if len(values) else math.nan
        error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return mean if math.isfinite(mean) else None, error if math.isfinite(error) else None


def table_summary(cells: list[Cell], table: OwnTable, settings: TableSettings) -> dict[str, Any]:
    """Return settings, versions and numbers as plain data."""
    results = []
    for cell in cells:
        row = (cell.method, cell.epsilon, len(cell.scores), *mean_and_error(cell.excess), *mean_and_error(cell.scores))
        results.append(dict(zip(TABLE_HEADINGS, (*row, cell.note), strict=True)) | {"seconds": cell.seconds})
    return {
        "private": False,
        "why_not_private": WHY_NOT_PRIVATE,
        "problem": repr(table.problem),
        "settings": asdict(settings),
        "versions": versions(),
        "score": table.score_name,
        "held_out_records": len(table.test_y),
        "not_private": table.score(table.minimum),
        "constant_model": table.constant,
        "excess_at_zero": float(table.excess(np.zeros(table.problem.dimension))[0]),
        "results": results,
    }


def write_table(out: Path, cells: list[Cell], table: OwnTable, settings: TableSettings) -> list[Path]:
    """Write compare.csv, compare.json and compare.png into a folder, and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    listed, document, picture = paths(out)
    told = table_summary(cells, table, settings)
    with listed.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(TABLE_HEADINGS)
        writer.writerows([entry[name] for name in TABLE_HEADINGS] for entry in told["results"])
    document.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    plot_table(picture, told)
    return [listed, document, picture]


def plot_table(path: Path, told: Mapping[str, Any]) -> None:
    """Draw excess risk and score over epsilon, one line per method, with standard errors."""
    figure_class = require("matplotlib.figure", "plots", "drawing the comparison").Figure
    figure = figure_class(figsize=(14, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    zero, epsilons = told["excess_at_zero"], told["settings"]["epsilons"]
    lines: dict[str, list[dict[str, Any]]] = {}
    for entry in told["results"]:
        if entry["score"] is not None and entry["excess_mean"] is not None:
            lines.setdefault(entry["method"], []).append(entry)
    for axes, value, error in ((left, *TABLE_HEADINGS[3:5]), (right, *TABLE_HEADINGS[5:7])):
        for name, entries in lines.items():
            across = [entry["epsilon"] for entry in entries]
            bars = [entry[error] or 0.0 for entry in entries]
            axes.errorbar(across, [entry[value] for entry in entries], bars, capsize=2, **figures.STYLES[name].marked())
        axes.set_xscale("log")
        axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("epsilon")
        figures.plain(axes)
    _finish_excess(left, lines, zero, epsilons)
    _finish_score(right, lines, told, epsilons)
    delta = told["settings"]["delta"]
    kind = "pure ε" if delta is None else f"ε with δ = {delta:g}"
    runs = told["settings"]["repetitions"]
    figure.suptitle(f"NOT PRIVATE: an experiment on the records ({kind}, means of {runs} runs ± standard error)")
    figure.savefig(path, dpi=130)


def _finish_excess(
    axes: Any, lines: Mapping[str, list[dict[str, Any]]], zero: float, epsilons: Sequence[float]
) -> None:
    found = [entry["excess_mean"] for entries in lines.values() for entry in entries if entry["excess_mean"] > 0]
    axes.axhline(zero, **figures.STYLES["constant model"].line())
    axes.set(yscale="log", ylabel="excess risk F(x) - F* on the records of the fit")
    axes.set_ylim(min([zero, *found]) / 1.5, min(max([zero, *found]), 100 * zero) * 1.5)
    figures.readable(axes.yaxis)
    ends = _ends(lines, "excess_mean")
    highest = axes.get_ylim()[1]
    ends = [end for end in ends if end[1] <= highest]
    figures.label_ends(axes, [*ends, (max(epsilons), zero, "the model 0", figures.STYLES["constant model"].colour)])


def _finish_score(
    axes: Any, lines: Mapping[str, list[dict[str, Any]]], told: Mapping[str, Any], epsilons: Sequence[float]
) -> None:
    best, constant = told["not_private"], told["constant_model"]
    for name, value in (("not private", best), ("constant model", constant)):
        axes.axhline(value, **figures.STYLES[name].line())
    span = max(best - constant, 1e-3)
    axes.set_ylabel(f"{told['score']} on {told['held_out_records']} records that were held out")
    axes.set_ylim(constant - 0.6 * span, best + 0.15 * span)  # what is far below a constant is in the table
    lowest = axes.get_ylim()[0]
    ends = [end for end in _ends(lines, "score") if end[1] >= lowest]
    more = [(name, value) for name, value in (("not private", best), ("constant model", constant))]
    ends += [(max(epsilons), value, name, figures.STYLES[name].colour) for name, value in more]
    figures.label_ends(axes, ends)


def _ends(lines: Mapping[str, list[dict[str, Any]]], value: str) -> list[tuple[float, float, str, str]]:
    return [
        (entries[-1]["epsilon"], entries[-1][value], name, figures.STYLES[name].colour)
        for name, entries in lines.items()
    ]
