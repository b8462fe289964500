"""What another ridge than the chosen one costs: `python benchmarks/ridges.py --data FOLDER --packages FOLDER`.

Adaptive final models of the design tables: their excess risk with a multiple of the ridge that was chosen, over that
with the chosen one, with all else that was chosen as it is. Ridges below the declared one are left out.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from accuracy_parts.standing import BUDGETS, EPSILONS
from accuracy_parts.tables import Sources, of_role
from threadpoolctl import threadpool_limits

import epsteps as es
from epsteps.methods.adaptive import Chosen, best_of

MULTIPLES = (0.5, 0.64, 0.8, 1.0, 1.25, 1.56, 2.0)
DELTA = 1e-5


def with_ridge(plan: es.Plan, chosen: Chosen, multiple: float) -> es.Plan | None:
    """Return the plan of the minimum with so many times the chosen ridge; None if that is below the declared one."""
    ridge = multiple * chosen.plan.ridge
    if multiple == 1 or ridge < plan.problem.ridge:
        return chosen.plan if multiple == 1 else None
    sought = replace(chosen.choice.sought)
    vars(sought)["ridges"] = np.array([ridge])
    found = best_of([chosen.choice._replace(sought=sought)], plan._left)
    return None if found is None else found.plan


def ratios(cell: tuple[str, float, str, int, Sources]) -> tuple[str, float, str, list[float]]:
    """Return the excess at each multiple over that at the chosen ridge; NaN where there is no plan."""
    threadpool_limits(1)
    name, epsilon, kind, runs, sources = cell
    task = next(table for table in of_role("design") if table.name == name).task(sources)
    budget = es.Pure(epsilon) if kind == "pure" else es.Approximate(epsilon, DELTA)
    plan = es.plan(task.problem, budget, "adaptive")
    totals = np.zeros(len(MULTIPLES))
    for seed in range(runs):
        chosen = plan._chosen_by(es.run(plan, task.rows, seed=seed, anyway=True).extras)
        plans = [with_ridge(plan, chosen, multiple) for multiple in MULTIPLES]
        fits = [None if each is None else es.run(each, task.rows, seed=seed, anyway=True).x for each in plans]
        totals += [np.nan if x is None else float(task.objective.excess(x[:, None])[0]) for x in fits]
    return name, epsilon, kind, (totals / totals[MULTIPLES.index(1.0)]).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", default=["binary"], choices=["binary", "classes", "regression"])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    sources = Sources(options.data, options.packages)
    tables = [table for table in of_role("design") if table.kind in options.kinds]
    cells = [
        (table.name, float(epsilon), budget, options.runs, sources)
        for budget, table in product(BUDGETS, tables)
        for epsilon in EPSILONS[table.kind]
    ]
    print("| table | ε | budget |", " | ".join(f"{multiple:g} times" for multiple in MULTIPLES), "|")
    print("| --- | --- | --- |", " --- |" * len(MULTIPLES))
    found: dict[tuple[float, str], list[list[float]]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for name, epsilon, budget, row in pool.map(ratios, cells):
            print(f"| {name} | {epsilon:g} | {budget} |", " | ".join(f"{ratio:.2f}" for ratio in row), "|", flush=True)
            found.setdefault((epsilon, budget), []).append(row)
    for (epsilon, budget), rows in found.items():
        logs = np.log(rows)
        means = [np.exp(column[np.isfinite(column)].mean()) for column in logs.T]
        print(f"geometric mean at ε = {epsilon:g}, {budget}:", " ".join(f"{mean:.2f}" for mean in means))


if __name__ == "__main__":
    main()
