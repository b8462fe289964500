"""Time per repetition and iterate of the paper's sweep, three ways: `python benchmarks/sweep.py` (about a minute).

Every way computes the gradient and F at every iterate of R = 20 runs on n = 100 000 records with d = 20 features. The
ways take turns in one process, and each one's best round counts, so that other load on the machine hurts them alike.
"""

import os
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from threadpoolctl import threadpool_limits

import epsteps as es
from epsteps.data.dense import DenseEngine
from epsteps.data.fast import FastEngine
from epsteps.paper.compare import paper_data

N, D, R, T, M = 100_000, 20, 20, 10, 1000
ROUNDS = 7
STEP = 0.5
TEXTBOOK, FUSED = "a textbook NumPy", "c' FastEngine, fused"

Step = Callable[[np.ndarray, list[np.ndarray] | None], tuple[np.ndarray, np.ndarray]]


def textbook(X: np.ndarray, y: np.ndarray) -> Step:
    """One run at a time, as the formulas are written."""

    def step(x: np.ndarray, rows: list[np.ndarray] | None) -> tuple[np.ndarray, np.ndarray]:
        gradient, value = np.empty(x.shape), np.empty(x.shape[1])
        for r in range(x.shape[1]):
            Z, z = (X, y) if rows is None else (X[rows[r]], y[rows[r]])
            gradient[:, r] = -(Z.T @ (z * expit(-z * (Z @ x[:, r])))) / len(z)
            value[r] = np.mean(np.logaddexp(0, -y * (X @ x[:, r])))
        return gradient, value

    return step


def batched(engine: DenseEngine | FastEngine) -> Step:
    """All runs in one call for the full gradient, one call each for subsets of their own."""

    def step(x: np.ndarray, rows: list[np.ndarray] | None) -> tuple[np.ndarray, np.ndarray]:
        if rows is None:
            return engine.mean_gradient(x), engine.mean_loss(x)
        columns = [engine.mean_gradient(point, subset) for point, subset in zip(x.T, rows, strict=True)]
        return np.stack(columns, axis=1), engine.mean_loss(x)

    return step


def fused(engine: FastEngine) -> Step:
    """Gradient and F in one pass, where the method takes both at the same points."""
    return lambda x, _: engine.mean_gradient_and_loss(x)


def sweep(step: Step, draws: list[list[np.ndarray]] | None) -> tuple[float, np.ndarray]:
    """Descend from all runs' starts; return milliseconds per (repetition x iterate) and the values."""
    x = 0.1 * np.random.default_rng(0).standard_normal((D, R))
    values, begin = [], time.perf_counter()
    for t in range(T):
        gradient, value = step(x, None if draws is None else draws[t])
        x = x - STEP * gradient
        values.append(value)
    return 1e3 * (time.perf_counter() - begin) / (R * T), np.array(values)


def race(ways: dict[str, Step], draws: list[list[np.ndarray]] | None) -> dict[str, float]:
    """Return each way's best time; all must find the same values."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    reference = None
    for _ in range(ROUNDS):
        for name, step in ways.items():
            milliseconds, values = sweep(step, draws)
            reference = values if reference is None else reference
            np.testing.assert_allclose(values, reference, rtol=1e-11)
            times[name].append(milliseconds)
    return {name: min(found) for name, found in times.items()}


def main() -> None:
    X, labels = paper_data(N, D, seed=1)
    y = labels.astype(float)
    rng = np.random.default_rng(2)
    draws = [[rng.choice(N, M, replace=False) for _ in range(R)] for _ in range(T)]
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=N, d=D)
    dense, fast = DenseEngine(problem, X, y), FastEngine(problem, X, y)
    ways = {TEXTBOOK: textbook(X, y), "b DenseEngine": batched(dense), "c FastEngine": batched(fast)}
    times: dict[tuple[str, int], tuple[float, float | None]] = {}
    for threads in (1, 2):
        os.environ["OMP_NUM_THREADS"] = str(threads)
        with threadpool_limits(threads):
            full, small = race({**ways, FUSED: fused(fast)}, None), race(ways, draws)
        times |= {(name, threads): (full[name], small.get(name)) for name in full}
    Console().print(table(times))


def table(times: dict[tuple[str, int], tuple[float, float | None]]) -> Table:
    """Show times and ratios to the textbook's better time: BLAS threads that spin hurt it on a busy machine."""
    result = Table("ms per (repetition x iterate)", "threads", "m = n", "ratio", f"m = {M}", "ratio", title="Sweep")
    best = [min(found for found in (times[TEXTBOOK, 1][i], times[TEXTBOOK, 2][i]) if found) for i in (0, 1)]
    for (name, threads), found in times.items():
        cells = [(f"{ms:.3f}", f"{base / ms:.1f}") if ms else ("", "") for ms, base in zip(found, best, strict=True)]
        result.add_row(name, str(threads), *cells[0], *cells[1])
    return result


if __name__ == "__main__":
    main()
