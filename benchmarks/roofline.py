"""How close the engines come to what this machine can do: `python benchmarks/roofline.py [--quick] [--out FOLDER]`.

First the machine: how fast it reads memory, multiplies and adds, and computes sigmoids. Then one gradient of the
logistic loss in each engine, beside plain NumPy, scikit-learn and torch, many points at once, and a subsampled run.
All ways of a table take turns in one process and each one's best round counts; with one thread it is the process's CPU
time that is compared, so that other load on the machine disturbs less. Ratios below 1.2 are ties.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import machine
import numba
import numpy as np
import peers
from numba.core import cgutils
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from threadpoolctl import threadpool_limits

import epsteps as es
from epsteps.data.dense import DenseEngine
from epsteps.data.fast import FastEngine, _lanes, _slopes, _tiles
from epsteps.noise import Source
from epsteps.problem.grid import Grid
from epsteps.running.floats import FloatDraws

SHAPES, QUICK_SHAPES = ((1_000_000, 20), (1_000_000, 100), (200_000, 1000)), ((100_000, 20), (30_000, 100))
BATCH_SHAPE, R = (100_000, 20), 20
RUN_SHAPE, M, T = (100_000, 20), 1000, 1000
HEADERS = ("case", "way", "ms", "of its roof", "times naive NumPy")

Row = tuple[str, str, float, float | None, float | None]


@numba.njit(fastmath=True)
def read(values):
    """Read everything once."""
    total = values.dtype.type(0)
    for i in range(len(values)):
        total += values[i]
    return total


@_lanes.building_block
def _multiply(typing, numbers, at, count):
    """Ten chains of multiply-adds: more than the multipliers' latency times their number."""

    def write(b, numbers, count) -> None:
        chains = [_lanes.Register(b, numbers.kind, float(i)) for i in range(10)]
        factor = numbers.load(0)
        with cgutils.for_range(b, count):
            for chain in chains:
                chain.set(chain.get().times(factor, factor))
        for chain in chains:
            numbers.store(0, chain.get())

    return _lanes.statement(write, numbers, at, count)


@numba.njit
def multiply(numbers, count):
    """Do 10 x count multiply-adds of whole vectors."""
    _multiply(numbers, 0, count)


@numba.njit(error_model="numpy")
def sigmoids(margins, negated, totals, factors, repetitions):
    """Replace margins, which stay in the first-level cache, by slopes."""
    lanes = len(totals)
    for _ in range(repetitions):
        _slopes.slopes_of_records(0, _slopes.SLOPE, margins, negated, 0, totals, factors, lanes, len(margins) // lanes)


def race(ways: dict[str, Callable[[], object]], seconds: float, threads: int) -> dict[str, float]:
    """Return each way's best time in milliseconds."""
    clock = time.process_time if threads == 1 else time.perf_counter
    return {name: 1e3 * found for name, found in machine.race(ways, seconds, clock).items()}


def measured_rates(seconds: float) -> dict[str, float]:
    """Return GB/s, GFLOP/s and nanoseconds per sigmoid of one thread."""
    found, count = {}, 20_000
    ways: dict[str, Callable[[], object]] = {}
    for dtype in (np.float64, np.float32):
        name, big = dtype.__name__, np.ones(2**27 // np.dtype(dtype).itemsize, dtype)
        lanes = 32 // big.itemsize
        numbers = np.full(lanes, 0.5, dtype)
        margins, negated = (_tiles.aligned((512,), np.dtype(dtype)) for _ in range(2))
        margins[:], negated[:] = np.linspace(-3, 3, 512), 1
        totals, factors = np.zeros(2 * lanes, dtype), np.ones(2 * lanes, dtype)
        ways[f"read GB/s {name}"] = lambda big=big: read(big)
        ways[f"FMA GFLOP/s {name}"] = lambda numbers=numbers: multiply(numbers, count)
        ways[f"sigmoid ns {name}"] = lambda a=(margins, negated, totals, factors): sigmoids(*a, 100)
    for name, ms in race(ways, seconds, 1).items():
        lanes = 4 if name.endswith("64") else 8
        value = {"read": 2**27 / ms / 1e6, "FMA": 20 * count * lanes / ms / 1e6, "sigm": ms * 1e6 / 51_200}
        found[name] = value[name.split()[0][:4]]
    return found


def data(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.random((n, d), dtype=np.float32) * 2 - 1
    return X, rng.choice([-1.0, 1.0], n), rng.standard_normal(d) / np.sqrt(d)


def naive(X: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the mean gradient as the formula is written."""
    return -(X.T @ (y * expit(-y * (X @ x)))) / len(y)


def gradients(n: int, d: int, seconds: float, threads: int) -> list[Row]:
    """Compare one gradient at one point, in float64, float32 and exact integers."""
    X32, y, x = data(n, d)
    rows: list[Row] = []
    for dtype in (np.float64, np.float32):
        X, z, point = X32.astype(dtype), y.astype(dtype), x.astype(dtype)
        problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=d)
        dense, fast = DenseEngine(problem, X, y), FastEngine(problem, X, y)
        flat = X.reshape(-1)
        ways: dict[str, Callable[[], object]] = {
            "read": lambda flat=flat: read(flat),
            "naive NumPy": lambda X=X, z=z, point=point: naive(X, z, point),
            "numpy engine": lambda dense=dense: dense.mean_gradient(x),
            "fast engine": lambda fast=fast: fast.mean_gradient(x),
            **peers.gradients(X, z, point, threads),
        }
        if dtype is np.float32:
            points, few = Grid(problem).points(x[:, None], 1.0), FastEngine(problem, X, y)
            fast.expect(1000)
            ways["numpy engine, exact"] = partial(dense.sums, points)
            ways["fast engine, exact, of many steps"] = partial(fast.sums, points)
            ways["fast engine, exact, of few"] = partial(few.sums, points)
        found = race(ways, seconds, threads)
        roof, base = found.pop("read"), found["naive NumPy"]
        case = f"{n} x {d} {dtype.__name__}"
        rows += [(case, name, ms, roof / ms, base / ms) for name, ms in found.items()]
    return rows


def batched(rates: dict[str, float], seconds: float, threads: int) -> list[Row]:
    """Compare R points at once, per point; the roof is 4nd flops and n sigmoids at the measured rates."""
    n, d = BATCH_SHAPE
    X32, y, _ = data(n, d)
    x = 0.3 * np.random.default_rng(1).standard_normal((d, R))
    rows: list[Row] = []
    for dtype in (np.float64, np.float32):
        X, z, points32 = X32.astype(dtype), y.astype(dtype), x.astype(dtype)
        problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=d)
        dense, fast = DenseEngine(problem, X, y), FastEngine(problem, X, y)
        ways: dict[str, Callable[[], object]] = {
            "naive NumPy": lambda X=X, z=z, points=points32: [naive(X, z, point) for point in points.T],
            "numpy engine": lambda dense=dense: dense.mean_gradient(x),
            "fast engine": lambda fast=fast: fast.mean_gradient(x),
        }
        if dtype is np.float32:
            points = Grid(problem).points(x, 1.0)
            ways["numpy engine, exact"] = partial(dense.sums, points)
            ways["fast engine, exact"] = partial(fast.sums, points)
        name = dtype.__name__
        bound = (4 * n * d / rates[f"FMA GFLOP/s {name}"] + n * rates[f"sigmoid ns {name}"]) / 1e6 / threads
        found = {way: ms / R for way, ms in race(ways, seconds, threads).items()}
        base = found["naive NumPy"]
        rows += [(f"{n} x {d} {name}, R = {R}", way, ms, bound / ms, base / ms) for way, ms in found.items()]
    return rows


def all_draws(draws: FloatDraws, steps: int) -> None:
    for first in range(0, steps, draws.steps):
        draws.block(first)


def subsampled(steps: int, seconds: float, threads: int) -> list[Row]:
    """Compare whole runs with m of n records per step: naive, the engines in the same loop, and ``es.run``.

    A seeded ``es.run`` does more than the naive loop: it accelerates, restarts, keeps the path, and has the same draws
    in every engine.
    """
    n, d = RUN_SHAPE
    X32, y, _ = data(n, d)
    X = X32.astype(float)
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=d)
    grid, rng = Grid(problem), np.random.default_rng(2)
    fast = FastEngine(problem, X, y)
    plan = es.plan(problem, es.Pure(1.0), es.multistage, iterations=steps, batch=M)
    records, records32, slow = (
        es.Rows(problem, features, y, engine=name) for features, name in ((X, "fast"), (X32, "fast"), (X, "numpy"))
    )
    draws = partial(FloatDraws, plan, copies=1)
    drawn = rng.choice(n, M, replace=False)
    start, points = np.zeros(d), grid.points(np.zeros((d, 1)), 1.0)

    def loop(gradient: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[], object]:
        def run() -> np.ndarray:
            x = np.zeros(d)
            for _ in range(steps):
                rows = rng.choice(n, M, replace=False)
                x = x - 0.5 * (gradient(x, rows) + 0.1 * x + rng.laplace(scale=1e-3, size=d))
            return x

        return run

    def exact(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        at = grid.points(x[:, None], 1.0)
        return (fast.sums(at, rows) * grid.gradient_step(at.bound))[:, 0] / M

    calls = {
        "naive NumPy": loop(lambda x, rows: naive(X[rows], y[rows], x)),
        "the loop with the fast engine": loop(fast.mean_gradient),
        "the loop with exact sums": loop(exact),
        "es.run, seeded, fast engine": lambda: es.run(plan, records, seed=1),
        "es.run, seeded, fast engine, float32": lambda: es.run(plan, records32, seed=1),
        "es.run, seeded, numpy engine": lambda: es.run(plan, slow, seed=1),
        "es.run, private": lambda: es.run(plan, records, anyway=True),
        "only the draws of a seeded es.run": lambda: all_draws(draws(source=Source(1)), steps),
        "only the draws, naive": lambda: [rng.choice(n, M, replace=False) for _ in range(steps)],
        "only the gradients, fast": lambda: [fast.mean_gradient(start, drawn) for _ in range(steps)],
        "only the gradients, exact": lambda: [fast.sums(points, drawn) for _ in range(steps)],
    }
    found = race(calls, seconds, threads)
    base = found["naive NumPy"]
    case = f"{steps} steps, {M} of {n} x {d}"
    return [(case, name, ms, None, base / ms) for name, ms in found.items()]


def markdown(facts: dict[str, object], rates: dict[str, float], rows: list[Row]) -> str:
    lines = ["# Engines beside the machine's limits", "", *(f"- {key}: {value}" for key, value in facts.items())]
    lines += [f"- {name}: {value:.3g}" for name, value in rates.items()]
    lines += ["", "| " + " | ".join(HEADERS) + " |", "|" + " --- |" * len(HEADERS)]
    return "\n".join([*lines, *("| " + " | ".join(cells(row)) + " |" for row in rows)]) + "\n"


def cells(row: Row) -> list[str]:
    case, way, ms, share, ratio = row
    return [case, way, f"{ms:.3f}", "" if share is None else f"{share:.2f}", "" if ratio is None else f"{ratio:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, which stay in the third-level cache")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each table of ways")
    parser.add_argument("--out", type=Path, help="folder for roofline.json and roofline.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    seconds = min(options.seconds, 2.0) if options.quick else options.seconds
    facts: dict[str, object] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "processor": cpu_name(),
        "threads": options.threads,
        "compared": "CPU time" if options.threads == 1 else "wall time",
        "versions": ", ".join(f"{name} {version(name)}" for name in installed()),
    }
    rows: list[Row] = []
    with threadpool_limits(options.threads):
        rates = measured_rates(seconds)
        for shape in QUICK_SHAPES if options.quick else SHAPES:
            rows += gradients(*shape, seconds, options.threads)
        rows += batched(rates, seconds, options.threads)
        rows += subsampled(T // 10 if options.quick else T, seconds, options.threads)
    table = Table(*HEADERS, title=", ".join(f"{name} {value:.3g}" for name, value in rates.items()))
    for row in rows:
        table.add_row(*cells(row))
    Console().print(table)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "roofline.md").write_text(markdown(facts, rates, rows))
        content = facts | {"rates": rates, "rows": [dict(zip(HEADERS, row, strict=True)) for row in rows]}
        (options.out / "roofline.json").write_text(json.dumps(content, indent=1))


def installed() -> list[str]:
    """Return the libraries that take part."""
    modules = {"numpy": "numpy", "scipy": "scipy", "numba": "numba", "scikit-learn": "sklearn", "torch": "torch"}
    return [name for name, module in modules.items() if find_spec(module) is not None]


def cpu_name() -> str:
    """Return what the compiler calls the processor."""
    from llvmlite import binding

    return binding.get_host_cpu_name()


if __name__ == "__main__":
    main()
