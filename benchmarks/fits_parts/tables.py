"""Tables of a folder: a private fit by the estimator beside diffprivlib's, both with epsilon 1 and their defaults."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_parts import diffprivlib_peer
from accuracy_parts.encodings import unit_cube
from accuracy_parts.tasks import REAL_RIDGE, Task, file_task

import epsteps as es
from epsteps.problem.memory import forget
from fits_parts.child import measured
from fits_parts.sheet import Sheet, megabytes, verdict
from fits_parts.watch import NUMBERS, alternated, fitted, watched

MEDIAN, WORST = 1.0, 2.0
TIMER = Path(__file__).with_name("diffprivlib_timer.py")
# What is fitted where there is no folder: scikit-learn's own tables, scaled into the unit cube.
STAND_INS = ("load_breast_cancer", "load_diabetes")


def task_of(table: str) -> Task:
    """Return the records of a file, or of one of scikit-learn's own tables."""
    if table not in STAND_INS:
        return file_task(Path(table))
    import sklearn.datasets

    X, y = getattr(sklearn.datasets, table)(return_X_y=True)
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    y = 2 * (y - y.min()) / np.ptp(y) - 1
    loss = es.Logistic() if len(np.unique(y)) == 2 else es.Squared(1.0)
    return Task(table, None, loss, REAL_RIDGE, unit_cube(X.shape[1]), X, y, X, y)


def estimator_of(task: Task) -> Any:
    """Return the estimator with what is declared of the task."""
    encoding = task.encoding
    declared: dict[str, Any] = {"bounds": (encoding.low, encoding.high), "one_hot": encoding.one_hot}
    if task.is_classification:
        return es.PrivateLogisticRegression(1.0, classes=(-1, 1), **declared)
    return es.PrivateRidge(1.0, target_bounds=(-1, 1), **declared)


def ours(table: str) -> dict:
    """Fit with the library: once, three times more, and three times as if nothing had been planned before."""
    task = task_of(table)

    def fit() -> Any:
        return estimator_of(task).fit(task.X, task.y)

    costs, anew = fitted(fit, again=3)[1], []
    for _ in range(3):
        forget()
        anew.append(watched(fit)[1]["cpu"])
    return costs | {"anew": min(anew)}


def theirs(table: str) -> dict:
    """Fit with diffprivlib, in its environment: once, and three times more."""
    task = task_of(table)
    costs = diffprivlib_peer.worked(TIMER, "costs.npy", task, 1.0, task.ridge, [0])
    return dict(zip(NUMBERS, costs.tolist(), strict=True))


def measure(data: Path | None, quick: bool, rounds: int) -> Sheet:
    """Measure every table."""
    tables = list(STAND_INS) if data is None else sorted(str(path) for path in data.glob("*.npz"))
    peer = ("diffprivlib: first", "again", "MB")
    columns = ("table", "epsteps: first, CPU s", "again", "MB", *peer, "ratio", "bar", "planned anew", "ratio", "bar")
    sheet, ratios = Sheet("Tables: fits beside diffprivlib's", columns), []
    for table in tables[:2] if quick else tables:
        ways = {name: partial(measured, f"tables:{name}", table=table) for name in ("ours", "theirs")}
        found = alternated(ways, rounds)
        if refused := [f"{name}: {cost['refused']}" for name, cost in found.items() if "refused" in cost]:
            sheet.add(Path(table).stem, "; ".join(refused))
            continue
        ratios.append([found["ours"][what] / found["theirs"]["cpu"] for what in ("cpu", "anew")])
        seconds = [v for cost in found.values() for v in (cost["first"], cost["cpu"], megabytes(cost["grown"]))]
        again, anew = ratios[-1]
        bars = (again, verdict(again, WORST), found["ours"]["anew"], anew, verdict(anew, WORST))
        sheet.add(Path(table).stem, *seconds, *bars)
    for name, least, bar in (("median", np.median, MEDIAN), ("worst", np.max, WORST)) if ratios else ():
        again, anew = least(ratios, axis=0).tolist()
        sheet.add(name, *[""] * 6, again, verdict(again, bar), "", anew, verdict(anew, bar))
    sheet.notes.append("CPU seconds. Planned anew: a later fit of the process, of which planning remembers nothing.")
    return sheet
