"""Targets narrower than declared, or with long tails: `python benchmarks/tails.py --data FOLDER --packages FOLDER`.

The design tables of regression, with their targets multiplied or bent, and the excess risk of pure final models: of the
adaptive plan, whose slopes go by bought sizes, over that of "objective", whose slopes go by the declared range.
"""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from accuracy_parts.tables import Sources, of_role
from accuracy_parts.tasks import Task
from threadpoolctl import threadpool_limits

import epsteps as es


def narrowed(share: float, y: np.ndarray) -> np.ndarray:
    return share * y


def bent(steepness: float, y: np.ndarray) -> np.ndarray:
    return np.expm1(steepness * y) / np.expm1(steepness)


def stretched(steepness: float, y: np.ndarray) -> np.ndarray:
    return np.sinh(steepness * y) / np.sinh(steepness)


SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as they are": partial(narrowed, 1.0),
    "half as wide": partial(narrowed, 0.5),
    "a quarter as wide": partial(narrowed, 0.25),
    "sinh 4y": partial(stretched, 4.0),
    "e^4y": partial(bent, 4.0),
    "e^7y": partial(bent, 7.0),
}


def excess(task: Task, epsilon: float, method: str, runs: int) -> float:
    """Return the mean excess risk of so many fits."""
    plan = es.plan(task.problem, es.Pure(epsilon), method)
    fits = [es.run(plan, task.rows, seed=seed, anyway=True).x for seed in range(runs)]
    return float(task.objective.excess(np.stack(fits, axis=1)).mean())


def ratios(cell: tuple[str, str, list[float], int, Sources]) -> tuple[str, str, list[float]]:
    """Return the adaptive plan's excess over the other's, for each epsilon, of one table in one shape."""
    threadpool_limits(1)
    name, shape, epsilons, runs, sources = cell
    task = next(table for table in of_role("design") if table.name == name).task(sources)
    task = replace(task, y=SHAPES[shape](task.y), y_test=SHAPES[shape](task.y_test))
    found = [[excess(task, epsilon, method, runs) for epsilon in epsilons] for method in ("adaptive", "objective")]
    return name, shape, (np.array(found[0]) / found[1]).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.2, 0.5, 1.0, 2.0, 8.0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    names = [table.name for table in of_role("design") if table.kind == "regression"]
    sources = Sources(options.data, options.packages)
    cells = [(name, shape, options.epsilon, options.runs, sources) for shape, name in product(SHAPES, names)]
    print("| table | targets |", " | ".join(f"ε = {epsilon:g}" for epsilon in options.epsilon), "|")
    print("| --- | --- |", " --- |" * len(options.epsilon))
    by_shape: dict[str, list[float]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for name, shape, found in pool.map(ratios, cells):
            print(f"| {name} | {shape} |", " | ".join(f"{ratio:.2f}" for ratio in found), "|", flush=True)
            by_shape.setdefault(shape, []).extend(found)
    for shape, found in by_shape.items():
        print(f"{shape}: {np.exp(np.mean(np.log(found))):.2f} in the geometric mean, {max(found):.2f} at most")


if __name__ == "__main__":
    main()
