"""Cost of a private run against records, features, steps and repetitions: `python benchmarks/scaling.py --out FOLDER`.

Straight lines are expected: the slope of the last decade is printed for each (1 is proportional). One measurement is
the best of several, all of them interleaved, on all threads that the machine allows.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
from machine import facts
from rich.console import Console
from rich.table import Table

import epsteps as es
from epsteps.paper.compare import paper_data, paper_problem
from epsteps.problem.grid import Grid

mpl.use("Agg")
from matplotlib import pyplot as plt

ROUNDS = 5
ENGINES = ("numpy", "fast")
Curve = tuple[list[int], dict[str, list[float]]]


def best(actions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return each action's best time in ms, the actions taking turns."""
    found = dict.fromkeys(actions, np.inf)
    for _ in range(ROUNDS + 1):  # the first round compiles
        for name, action in actions.items():
            begin = time.perf_counter()
            action()
            found[name] = min(found[name], 1e3 * (time.perf_counter() - begin))
    return found


def gradients(sizes: list[int], shape: Callable[[int], tuple[int, int]]) -> Curve:
    """Time one gradient at one point, exact and in floats, for records of these shapes."""
    curves = {f"{engine} {kind}": [] for engine in ENGINES for kind in ("exact", "float")}
    for size in sizes:
        n, d = shape(size)
        problem = paper_problem(n, d)
        X, y = paper_data(n, d, seed=1)
        x = np.full((d, 1), 0.1)
        points = Grid(problem).points(x, 1.0)
        actions = {}
        for engine in ENGINES:
            data = es.Rows(problem, X, y, engine=engine)
            actions[f"{engine} exact"] = partial(data.sums, points)
            actions[f"{engine} float"] = partial(data.gradient, x)
        for name, ms in best(actions).items():
            curves[name].append(ms)
    return sizes, curves


def runs(sizes: list[int], options: Callable[[int], tuple[int, dict]]) -> Curve:
    """Time whole runs on 20 000 records, private (exact) and as an experiment (float)."""
    problem = paper_problem(20_000, 20)
    X, y = paper_data(20_000, 20, seed=1)
    curves = {f"{engine} {kind}": [] for engine in ENGINES for kind in ("exact", "float")}
    for size in sizes:
        T, extra = options(size)
        plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=T)
        actions = {}
        for engine in ENGINES:
            data = es.Rows(problem, X, y, engine=engine)
            for kind in ("exact", "float"):
                actions[f"{engine} {kind}"] = partial(es.run, plan, data, seed=1, arithmetic=kind, **extra)
        for name, ms in best(actions).items():
            curves[name].append(ms)
    return sizes, curves


def slope(sizes: list[int], times: list[float]) -> float:
    """Return the exponent of growth over the last decade."""
    last = [i for i, size in enumerate(sizes) if size >= sizes[-1] / 10]
    return float(np.polyfit(np.log([sizes[i] for i in last]), np.log([times[i] for i in last]), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for scaling.json and scaling.png")
    out = parser.parse_args().out
    curves = {
        "records n (one gradient, d = 20)": gradients(
            [3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000], lambda n: (n, 20)
        ),
        "features d (one gradient, n = 50 000)": gradients([5, 10, 20, 50, 100, 200, 500, 1000], lambda d: (50_000, d)),
        "steps T (one run, n = 20 000)": runs([10, 20, 50, 100, 200], lambda T: (T, {})),
        "repetitions R (T = 20, n = 20 000)": runs([1, 2, 5, 10, 20, 50], lambda R: (20, {"repetitions": R})),
    }
    table = Table("against", "engine", "largest, ms", "slope of the last decade", title="Cost and how it grows")
    for name, (sizes, lines) in curves.items():
        for engine, times in lines.items():
            table.add_row(name, engine, f"{times[-1]:.2f} at {sizes[-1]}", f"{slope(sizes, times):.2f}")
    Console().print(table)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "scaling.json").write_text(json.dumps({"machine": facts(), "curves": curves}, indent=1) + "\n")
        draw(curves, out / "scaling.png")


def draw(curves: dict[str, Curve], path: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), constrained_layout=True)
    for axis, (name, (sizes, lines)) in zip(axes.flat, curves.items(), strict=True):
        for engine, times in lines.items():
            axis.loglog(sizes, times, marker="o", markersize=3, label=engine)
        axis.set_xlabel(name)
        axis.set_ylabel("ms")
        axis.grid(alpha=0.3)
    axes[0, 0].legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
