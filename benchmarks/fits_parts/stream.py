"""Records of a file larger than what may be resident: speed of exact steps, and every release."""

import inspect
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from streaming import SPARE, D, write_npy

import epsteps as es
from fits_parts.child import measured
from fits_parts.releases import RELEASES, STEPS_NAME, planned
from fits_parts.sheet import Sheet, megabytes, verdict
from fits_parts.watch import watched

RSS, SPEED = 1e9, 3.0
CACHES = "cache" in inspect.signature(es.Rows).parameters


def write(folder: str, n: int) -> dict:
    """Write the files of ``streaming``."""
    write_npy(Path(folder), n)
    return {}


def release(folder: str, name: str, n: int) -> dict:
    """Run a release from the files, with prepared blocks in a cache file if the library keeps such."""
    plan, marks = planned(name, n, D), []
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        options = {"cache": cache} if CACHES else {}
        rows = es.Rows(plan.problem, Path(folder, "X.npy"), Path(folder, "y.npy"), **options)
        clocks = time.perf_counter, time.process_time
        _, costs = watched(
            lambda: es.run(plan, rows, anyway=True, on_step=lambda _: marks.append([clock() for clock in clocks]))
        )
    if name == STEPS_NAME:
        wall, cpu = (np.array(marks[-1]) - marks[0]) / (len(marks) - 1)
        costs |= {"step": wall, "step cpu": cpu}
    return costs


def measure(gigabytes: float) -> Sheet:
    """Measure every release on files of this size, or of what there is room for."""
    columns = ("release", "CPU s", "wall s", "GB/s, wall", "GB/s, CPU", "bar, GB/s", "peak, MB", "bar, MB")
    with tempfile.TemporaryDirectory() as folder:
        room = (shutil.disk_usage(folder).free - SPARE) / (2.2e9 if CACHES else 1.1e9)
        size = min(gigabytes, room)
        sheet = Sheet(f"{size:g} GB of float32 in a file, d = {D}, all cores", columns)
        if size < gigabytes:
            sheet.notes.append(f"{gigabytes:g} GB were asked for; the disk has room for {size:.3g}.")
        if size <= 0:
            return sheet
        cores = len(os.sched_getaffinity(0))
        n = int(size * 1e9 / (4 * D))
        measured("stream:write", folder=folder, n=n)
        for name in RELEASES:
            add(sheet, name, size, measured("stream:release", cores, folder=folder, name=name, n=n))
    kept = "kept in a cache file" if CACHES else "made again in every pass: Rows has no cache"
    sheet.notes.append(
        f"Speeds are those of steps after the first, in bytes of the raw file. Prepared blocks are {kept}."
    )
    return sheet


def add(sheet: Sheet, name: str, size: float, costs: dict) -> None:
    """Add what a release costs, or why it is refused."""
    if "refused" in costs:
        return sheet.add(name, costs["refused"])
    speeds = ["", "", ""]
    if "step" in costs:
        wall, cpu = size / costs["step"], size / costs["step cpu"]
        speeds = [f"{wall:.2f}", f"{cpu:.2f}", f"{'meets' if wall >= SPEED else 'MISSES'} {SPEED:g}"]
    peak = costs["peak"]
    return sheet.add(name, costs["cpu"], costs["wall"], *speeds, megabytes(peak), verdict(peak / 1e6, RSS / 1e6))
