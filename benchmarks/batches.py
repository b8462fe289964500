"""What a private step on m of n records costs: `python benchmarks/batches.py [--quick] [--out FILE]`.

A private ``es.run`` draws an exactly uniform secret subset and exact noise from the operating system's bits, adds
integers, and holds every request against what was charged. The plain loop draws with NumPy's generator and adds floats.
Gaussian noise is not accounted for on samples, so that its steps read all of n records, here few of them and many.

Ways take turns in one process with one thread; the process's CPU time of each one's best round counts, so that other
load on the machine disturbs less. Engines are measured in processes of their own: where numba is imported, noise and
subsets are compiled for every engine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import machine
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import expit

import epsteps as es

N, D, M = 100_000, 20, 1000
RIDGE, STEP = 0.1, 0.5
ENGINES = ("fast", "numpy")
HEADERS = ("case", "way", "us a step", "times the plain loop")


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (n, D)), rng.choice([-1.0, 1.0], n)


def plain(X: np.ndarray, y: np.ndarray, m: int, steps: int, *, laplace: bool, shuffle: bool) -> Callable[[], object]:
    """Return the loop that one would write, labels folded into the records."""
    Z, rng, n = X * y[:, None], np.random.default_rng(1), len(y)
    noise = rng.laplace if laplace else rng.normal

    def loop() -> np.ndarray:
        x = np.zeros(D)
        for _ in range(steps):
            batch = Z[rng.choice(n, m, replace=False, shuffle=shuffle)] if m < n else Z
            gradient = RIDGE * x - expit(-(batch @ x)) @ batch / m
            x = x - STEP * (gradient + noise(scale=1e-3, size=D))
        return x

    return loop


def cases(engine: str, steps: int) -> dict[tuple[str, int], dict[str, Callable[[], object]]]:
    """Return the ways of each case, and its steps; the first way is what the others are compared with."""
    found = {}
    for n, m, noise in ((N, M, "laplace"), (N, M, "linf"), (M, M, "gaussian"), (N, N, "gaussian")):
        count = steps if m == M else max(10, steps // 10)
        problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=RIDGE, n=n, d=D)
        budget = es.Concentrated(1.0) if noise == "gaussian" else es.Pure(1.0)
        X, y = data(n)
        records = es.Rows(problem, X, y, engine=engine)
        ways = {"plain": plain(X, y, m, count, laplace=noise != "gaussian", shuffle=True)}
        if m < n:
            ways["plain, shuffle=False"] = plain(X, y, m, count, laplace=noise != "gaussian", shuffle=False)
        for method in (es.nesterov, es.gd):
            plan = es.plan(problem, budget, method, iterations=count, mechanism=noise, batch=m)
            ways[f"{engine} engine, {method.__name__}"] = partial(es.run, plan, records)
        found[f"{m} of {n}, {noise}", count] = ways
    return found


def measured(engine: str, steps: int, seconds: float) -> list[list]:
    """Return the table of one engine."""
    rows = []
    for (case, count), ways in cases(engine, steps).items():
        found = machine.race(ways, seconds, time.process_time)
        base = found["plain"]
        rows += [[case, way, 1e6 * best / count, best / base] for way, best in found.items()]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each case and engine")
    parser.add_argument("--out", type=Path, help="file for the figures, JSON")
    parser.add_argument("--engine", choices=ENGINES, help="measure one engine, and print JSON")
    options = parser.parse_args()
    steps, seconds = (100, min(options.seconds, 2.0)) if options.quick else (1000, options.seconds)
    if options.engine:
        print(json.dumps(measured(options.engine, steps, seconds)))
        return
    rows = []
    for engine in ENGINES:
        command = [
            sys.executable,
            __file__,
            "--engine",
            engine,
            "--seconds",
            str(seconds),
            *["--quick"] * options.quick,
        ]
        rows += json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    table = Table(*HEADERS)
    for case, way, us, ratio in rows:
        table.add_row(case, way, f"{us:.1f}", f"{ratio:.2f}")
    Console().print(table)
    if options.out is not None:
        content = machine.facts() | {"rows": [dict(zip(HEADERS, row, strict=True)) for row in rows]}
        options.out.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
