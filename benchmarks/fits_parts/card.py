"""A card: fits from float32 arrays in host memory, beside scikit-learn on the same machine."""

import os
import tempfile
import time
from importlib.util import find_spec
from typing import Any

import numpy as np

import epsteps as es
from fits_parts.child import measured
from fits_parts.dense import BUDGET, PEER, problem_of, read, ways
from fits_parts.sheet import Sheet, megabytes, verdict
from fits_parts.watch import alternated

SHAPES, QUICK_SHAPES = ((10_000_000, 20), (2_000_000, 100)), ((200_000, 20),)
# Seconds after the copy that fits may take, by what they publish, and a final fit's share of scikit-learn's.
BARS, SHARE = {"final": 1.0, "everything": 2.0}, 1 / 3


def copy(folder: str) -> dict:
    """Copy the features to the card, twice: the second time nothing has to be set up."""
    import torch

    X, seconds = torch.from_numpy(read(folder)[0]), 0.0
    for _ in range(2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        there = X.cuda()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        del there
    return {"seconds": seconds}


def has_card() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def measure(quick: bool, rounds: int) -> Sheet:
    """Measure every shape, with all cores."""
    times = ("first, s", "again, s", "after the copy, s", "bar, s", "of scikit-learn", "bar")
    columns = ("records", "fit", *times, "host memory, MB", "gradient over n")
    sheet = Sheet("A card: private fits beside scikit-learn's lbfgs", columns)
    if not has_card():
        sheet.add("no card")
        return sheet
    for n, d in QUICK_SHAPES if quick else SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            measured("dense:write", folder=folder, n=n, d=d, kind="<f4")
            plan: Any = es.plan(problem_of(n, d), BUDGET, release="final")
            copied = measured("card:copy", folder=folder)["seconds"]
            sheet.add(f"{n} x {d}", "copy to the card", "", copied)
            found = alternated(ways(folder, plan, ("gpu",), len(os.sched_getaffinity(0)), "<f8"), rounds)
            for name, costs in found.items():
                add(sheet, f"{n} x {d}", name, costs, copied, found[PEER].get("wall", np.nan))
    sheet.notes.append("Wall seconds. Records are float32; scikit-learn gets them in float64, converted beforehand.")
    return sheet


def add(sheet: Sheet, shape: str, name: str, costs: dict, copied: float, least: float) -> None:
    """Add what a way to fit costs, or why it refuses."""
    if "refused" in costs:
        return sheet.add(shape, name, costs["refused"])
    gradient = "" if np.isnan(costs["gradient"]) else f"{costs['gradient']:.1e}"
    left, ratio, bars = costs["wall"] - copied, costs["wall"] / least, ["", ""]
    if "gpu" in name:
        bars[0] = verdict(left, BARS[name.partition(",")[0]])
        bars[1] = verdict(ratio, SHARE) if name.startswith("final") else ""
    cells = (costs["first wall"], costs["wall"], left if bars[0] else "", bars[0], ratio, bars[1])
    return sheet.add(shape, name, *cells, megabytes(costs["grown"]), gradient)
