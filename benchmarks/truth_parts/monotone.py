"""Whether predictions fall with epsilon and with n, and stay below their bounds: by plans alone, on dense grids."""

from argparse import Namespace
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import epsteps as es
from truth_parts.cells import BUDGETS, LOSSES, METHODS, Case, predicted
from truth_parts.tables import load

EPSILONS = np.geomspace(0.01, 20, 15).tolist()
RECORDS = np.geomspace(100, 1e6, 10).astype(int).tolist()
# Rounding, and searches that stop at a tolerance.
SLACK = 1e-6


def _row(path: Path, loss: str, method: str, budget: str) -> dict[str, Any] | None:
    """Return where the predictions of one row rise, or are above their bounds; None where the library refuses."""
    problem = Case(load(path), loss).problem
    try:
        along = {
            "epsilon": [_told(problem, budget, epsilon, method) for epsilon in EPSILONS],
            "n": [_told(replace(problem, n=n), budget, 1.0, method) for n in RECORDS],
        }
    except (ValueError, TypeError, es.NoBoundError):
        return None
    faults = []
    for (name, told), points in zip(along.items(), (EPSILONS, RECORDS), strict=True):
        known = [(point, *each) for point, each in zip(points, told, strict=True) if each[0] is not None]
        for (first, here, _), (second, there, _) in pairwise(known):
            if there > (1 + SLACK) * here:
                faults.append(f"rises from {here:.4g} to {there:.4g} between {name} {first:.4g} and {second:.4g}")
        faults += [
            f"{value:.4g} is above its bound {bound:.4g} at {name} {point:.4g}"
            for point, value, bound in known
            if bound is not None and value > (1 + SLACK) * bound
        ]
    return {"row": f"{path.stem}, {loss}, {method}, {budget}", "faults": faults}


def _told(problem: es.Problem, budget: str, epsilon: float, method: str) -> tuple[float | None, float | None]:
    told = predicted(es.plan(problem, BUDGETS[budget](epsilon), **METHODS[method]))
    return told["predicted"], told["bound"]


def check(options: Namespace) -> str:
    """Return how many rows are as they should be, and what is wrong with the others."""
    asked = []
    for path in sorted(options.data.glob("*.npz")):
        with np.load(path) as stored:
            kind = str(stored["kind"])
        if not options.sets or path.stem in options.sets:
            losses = [loss for loss in LOSSES if LOSSES[loss][0] == kind]
            asked += [(path, loss, method, budget) for loss in losses for method in METHODS for budget in BUDGETS]
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = [row for row in pool.map(_row, *zip(*asked, strict=True)) if row is not None]
    wrong = [row for row in rows if row["faults"]]
    lines = [
        f"{len(rows) - len(wrong)} of {len(rows)} rows (tables, losses, methods, budgets) fall with epsilon from "
        f"{EPSILONS[0]:g} to {EPSILONS[-1]:g} and with n from {RECORDS[0]} to {RECORDS[-1]}, below their bounds.",
        "",
        *(f"- {row['row']}: {row['faults'][0]}; {len(row['faults'])} in all" for row in wrong),
    ]
    return "\n".join(lines) + "\n"
