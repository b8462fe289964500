"""Dense records in memory: a private fit, from raw arrays to the model, beside scikit-learn's that is not private.

Features are multiples of 2^-20 in [-1, 1], so that the rounding of records changes none of them, and every way
minimises the same function but for the tilt. scikit-learn gets the ridge of the plan, and the tolerance that the plan
asks of its own solver; the gradients that both reach are computed in float64 afterwards.
"""

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import epsteps as es
from epsteps.auditing.worst_case import counted
from epsteps.methods.minimum import Minimised
from epsteps.noise import Source
from epsteps.running import taps
from fits_parts.child import measured
from fits_parts.sheet import Sheet, megabytes, verdict
from fits_parts.watch import alternated, fitted

SHAPES = ((100_000, 20), (1_000_000, 20), (1_000_000, 100), (200_000, 1000))
QUICK_SHAPES = ((20_000, 20), (5_000, 100))
BUDGET, RIDGE = es.Pure(1.0), 1e-3
RELEASES = {"final": "final", "everything": "iterates"}
TIMES = ("first, CPU s", "again, CPU s", "again, wall s", "memory, MB", "of scikit-learn", "bar")
COLUMNS = ("threads", "fit", *TIMES, "gradient over n")
# Rows drawn at a time.
_ROWS = 100_000
PEER = "scikit-learn, tightest"


def write(folder: str, n: int, d: int, kind: str) -> dict:
    """Write features of this kind and labels that a logistic model draws."""
    rng = np.random.default_rng([n, d])
    weights = 4 * rng.standard_normal(d) / np.sqrt(d)
    X = np.lib.format.open_memmap(Path(folder, "X.npy"), "w+", kind, (n, d))
    y = np.empty(n, dtype=np.int64)
    for start in range(0, n, _ROWS):
        part = rng.integers(-(2**20), 2**20, (min(_ROWS, n - start), d), endpoint=True) / 2**20
        X[start : start + _ROWS] = part
        y[start : start + _ROWS] = np.where(rng.random(len(part)) < expit(part @ weights), 1, -1)
    np.save(Path(folder, "y.npy"), y)
    return {}


def read(folder: str) -> tuple[np.ndarray, np.ndarray]:
    return np.load(Path(folder, "X.npy")), np.load(Path(folder, "y.npy"))


def problem_of(n: int, d: int) -> es.Problem:
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=RIDGE, n=n, d=d)


class Minima:
    """Listens to a run: which minimum was asked for, what was drawn, what was found."""

    def __init__(self) -> None:
        self.heard: tuple[Any, Any, Any] | None = None

    def source(self, source: Source) -> Source:
        """Return the source as it is."""
        return source

    def reading(self, request: Any, records: Any, draw: Any) -> np.ndarray:
        """Return what is read, and remember it."""
        found = request.read(records, draw)
        self.heard = (request, draw, found)
        return found

    def gradient(self, X: np.ndarray, y: np.ndarray) -> float:
        """Return the norm of the objective's gradient, tilt included, over n, at the minimum that was found last."""
        if self.heard is None or not hasattr(self.heard[0], "goal"):
            return np.nan
        request, draw, found = self.heard
        x = found.astype(float) * request.goal.step
        return gradient_norm(X, y, request.goal.objective, x, np.asarray(request.tilt_of(draw), dtype=float))


def gradient_norm(X: np.ndarray, y: np.ndarray, objective: Any, x: np.ndarray, tilt: np.ndarray | float = 0.0) -> float:
    """Return that of an objective over n, its weights and its caps on slopes included."""
    total = tilt + len(y) * objective.ridge * x
    for start in range(0, len(y), _ROWS):  # float32 records become float64 part by part
        labels = y[start : start + _ROWS]
        weights, part, caps = counted(objective, X[start : start + _ROWS].astype(float))
        slopes = objective.loss.derivative(part @ x, labels, *([] if caps is None else [caps]))
        total = total + part.T @ (weights * slopes)
    return float(np.linalg.norm(total)) / len(y)


def ours(folder: str, release: str, engine: str, estimator: bool = False) -> dict:
    """Fit twice with the library: by a plan and its run, or by the estimator."""
    X, y = read(folder)
    problem = problem_of(*X.shape)
    common: dict[str, Any] = {"release": release, "engine": engine}
    model = es.PrivateLogisticRegression  # scikit-learn is imported here, before the clock starts

    def fit() -> object:
        if estimator:
            declared = {"row_norm": 1.0, "norm": np.inf, "ridge": RIDGE, "intercept": False, "classes": (-1, 1)}
            return model(1.0, **declared, **common).fit(X, y)
        plan = es.plan(problem, BUDGET, release=release)
        return es.run(plan, es.Rows(problem, X, y, engine=engine), anyway=True)

    minima = Minima()
    with taps.listening(minima):
        _, costs = fitted(fit)
    return costs | {"gradient": minima.gradient(X, y)}


def peer(folder: str, tol: float, ridge: float, kind: str | None = None) -> dict:
    """Fit twice with scikit-learn, without privacy; records of another kind are converted beforehand."""
    from sklearn.linear_model import LogisticRegression

    X, y = read(folder)
    X = X if kind is None else X.astype(kind)
    options: dict[str, Any] = {"C": 1 / (len(y) * ridge), "tol": tol, "max_iter": 10_000, "fit_intercept": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where floats end before the tolerance
        model, costs = fitted(lambda: LogisticRegression(solver="lbfgs", **options).fit(X, y))
    objective = Minimised(problem_of(*X.shape), ridge)
    return costs | {"gradient": gradient_norm(X, y, objective, model.coef_[0].astype(float))}


def ways(folder: str, plan: Any, engines: tuple[str, ...], threads: int, kind: str | None = None) -> dict:
    """Return every way to fit the records of a folder, each in a process of its own."""
    minimum = plan.of_the_minimum
    tightest, call = minimum.tolerance / plan.problem.n / np.sqrt(plan.problem.d), partial(measured, threads=threads)
    found = {
        f"{name}, {engine}": partial(call, "dense:ours", folder=folder, release=release, engine=engine)
        for name, release in RELEASES.items()
        for engine in engines
    }
    through = {"folder": folder, "release": "final", "engine": engines[0], "estimator": True}
    found[f"final, {engines[0]}, estimator"] = partial(call, "dense:ours", **through)
    asked = {"folder": folder, "ridge": minimum.ridge, "kind": kind}
    found[PEER] = partial(call, "dense:peer", tol=float(tightest), **asked)
    found["scikit-learn, its tol 1e-4"] = partial(call, "dense:peer", tol=1e-4, **asked)
    return found


def bar_of(shape: tuple[int, int], name: str) -> float | None:
    """Return how many times scikit-learn's seconds a fit may take."""
    if name.startswith("scikit"):
        return None
    return 3.0 if "numpy" in name else 0.5 if shape == (1_000_000, 20) else 1.0


def measure(shapes: Sequence[tuple[int, int]], threads: Sequence[int], rounds: int) -> Iterator[Sheet]:
    """Yield a table for each shape of records, with so many threads each."""
    for n, d in shapes:
        plan: Any = es.plan(problem_of(n, d), BUDGET, release="final")
        sheet = Sheet(f"Dense records: {n} x {d} beside scikit-learn's lbfgs", COLUMNS)
        with tempfile.TemporaryDirectory() as folder:
            measured("dense:write", folder=folder, n=n, d=d, kind="<f8")
            for count in threads:
                found = alternated(ways(folder, plan, ("fast", "numpy"), count), rounds)
                for name, costs in found.items():
                    add(sheet, (n, d), count, name, costs, found[PEER])
        sheet.notes = [
            f"The plan's solver stops at a gradient of {plan.of_the_minimum.tolerance / n:.1e} n. Where that of "
            "scikit-learn is above it, scikit-learn has stopped for lack of progress, and gets no nearer.",
            "Ratios are of CPU seconds with one thread, of wall seconds with two; of second fits, from raw arrays.",
        ]
        yield sheet


def add(sheet: Sheet, shape: tuple[int, int], threads: int, name: str, costs: dict, least: dict) -> None:
    """Add what a way to fit costs, or why it refuses."""
    if "refused" in costs:
        return sheet.add(threads, name, costs["refused"])
    clock = "cpu" if threads == 1 else "wall"
    ratio, bar = costs[clock] / least.get(clock, np.nan), bar_of(shape, name)
    checked = "" if bar is None else verdict(ratio, bar)
    gradient = "" if np.isnan(costs["gradient"]) else f"{costs['gradient']:.1e}"
    seconds = (costs["first"], costs["cpu"], costs["wall"], megabytes(costs["grown"]))
    return sheet.add(threads, name, *seconds, ratio, checked, gradient)
