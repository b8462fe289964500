"""Sparse records like texts: rows of 70 words, columns by a power law. They never become dense."""

import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse

import epsteps as es
from fits_parts.child import measured
from fits_parts.dense import BUDGET
from fits_parts.sheet import Sheet, megabytes, verdict
from fits_parts.watch import alternated, fitted

N, D, ENTRIES = 8_000, 8_315, 70
SECONDS, MEGABYTES = 3.0, 300.0


def write(folder: str, n: int, d: int, entries: int) -> dict:
    """Write a matrix in CSR with rows of norm 1, and labels that a linear model draws."""
    rng = np.random.default_rng([n, d, entries])
    popular = -np.log(np.arange(1, d + 1))
    # The largest of log weights plus Gumbel noise are a sample without replacement.
    keys = (popular + rng.gumbel(size=d) for _ in range(n))
    columns = np.stack([np.sort(np.argpartition(-key, entries)[:entries]) for key in keys])
    values = rng.lognormal(sigma=0.5, size=columns.shape)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    X = sparse.csr_array((values.ravel(), columns.ravel(), np.arange(0, n * entries + 1, entries)), shape=(n, d))
    margins = X @ rng.standard_normal(d)
    sparse.save_npz(Path(folder, "X.npz"), X)
    np.save(Path(folder, "y.npy"), np.where(margins + 0.3 * rng.standard_normal(n) > 0, 1, -1))
    return {}


def ours(folder: str, release: str) -> dict:
    """Fit twice with the library."""
    X, y = sparse.load_npz(Path(folder, "X.npz")), np.load(Path(folder, "y.npy"))
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=1e-4, n=X.shape[0], d=X.shape[1])
    return fitted(lambda: es.run(es.plan(problem, BUDGET, release=release), es.Rows(problem, X, y), anyway=True))[1]


def measure(quick: bool, rounds: int) -> Sheet:
    """Measure a final fit, and one with everything published."""
    n, d = (1_000, 800) if quick else (N, D)
    columns = ("fit", "first, CPU s", "again, CPU s", "again, wall s", "bar, s", "peak, MB", "bar, MB", "grown by, MB")
    sheet = Sheet(f"Sparse records: {n} x {d}, {ENTRIES} entries a row", columns)
    with tempfile.TemporaryDirectory() as folder:
        measured("sparse:write", folder=folder, n=n, d=d, entries=ENTRIES)
        names = ("final", "iterates")
        ways = {name: lambda name=name: measured("sparse:ours", folder=folder, release=name) for name in names}
        for name, costs in alternated(ways, rounds).items():
            if "refused" in costs:
                sheet.add(name, costs["refused"])
                continue
            bars = (
                (verdict(costs["first"], SECONDS), verdict(costs["peak"] / 1e6, MEGABYTES))
                if name == "final"
                else ("",) * 2
            )
            sheet.add(
                *(name, costs["first"], costs["cpu"], costs["wall"], bars[0], megabytes(costs["peak"]), bars[1]),
                megabytes(costs["grown"]),
            )
    sheet.notes.append("The peak is that of the whole process, the interpreter and its libraries included.")
    return sheet
