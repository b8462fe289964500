"""Records in two dask workers of this machine: every release beside the same one here, and while a worker dies."""

import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

import epsteps as es
from fits_parts.child import measured
from fits_parts.releases import RELEASES, STEPS, STEPS_NAME, planned
from fits_parts.sheet import Sheet

D, SEED = 20, 7


def timed(call: Callable[[], Any], rounds: int = 1) -> tuple[Any, float]:
    """Return what the call returns, and the shortest of its times."""
    seconds, answer = np.inf, None
    for _ in range(rounds):
        begin = time.perf_counter()
        answer = call()
        seconds = min(seconds, time.perf_counter() - begin)
    return answer, seconds


def release(name: str, n: int) -> dict:
    """Run a release here, in two workers, and once more while one of them is killed."""
    from epsteps.data import cluster

    rng = np.random.default_rng(n)
    X = rng.uniform(-1, 1, (n, D))
    y = np.where(X @ rng.standard_normal(D) + rng.standard_normal(n) > 0, 1, -1)
    connection = cluster.connect()
    try:
        return compared(planned(name, n, D), X, y, connection.client)
    finally:
        connection.close()


def compared(plan: es.Plan, X: np.ndarray, y: np.ndarray, client: Any) -> dict:
    """Return the seconds of one release, and whether its numbers are equal wherever it is computed."""
    import dask.array as da

    def run(rows: es.Rows) -> np.ndarray:
        return es.run(plan, rows, seed=SEED, arithmetic="exact").path

    near = es.Rows(plan.problem, X, y)
    here, local = timed(lambda: run(near), 3)
    half = -(-len(y) // 2)
    parts = da.from_array(X, chunks=(half, D)), da.from_array(y, chunks=half)
    rows = es.Rows(plan.problem, *parts, engine="dask", scheduler=client)
    there, seconds = timed(lambda: run(rows), 3)
    killer = threading.Timer(0.4 * seconds, kill, [next(iter(client.run(os.getpid).values()))])
    killer.start()
    survived, recovery = timed(lambda: run(rows), 3)
    killer.join()
    client.wait_for_workers(2)
    rows.close()
    equal = [bool(np.array_equal(here, other)) for other in (there, survived)]
    return {"local": local, "dask": seconds, "killed": recovery, "equal": equal}


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def measure(quick: bool) -> Sheet:
    """Measure every release on few records, where all is overhead, and on more."""
    columns = ("records", "release", "here, s", "two workers, s", "equal", "a worker killed, s", "equal", "overhead")
    sheet = Sheet("Two dask workers", columns)
    for n, name in product((2_000,) if quick else (2_000, 500_000), RELEASES):
        costs = measured("workers:release", threads=2, name=name, n=n)
        if "refused" in costs:
            sheet.add(f"{n} x {D}", name, costs["refused"])
            continue
        same = ["yes" if equal else "NO" for equal in costs["equal"]]
        each = 1e3 * (costs["dask"] - costs["local"]) / STEPS
        overhead = f"{each:.1f} ms a pass" if name == STEPS_NAME else ""
        sheet.add(f"{n} x {D}", name, costs["local"], costs["dask"], same[0], costs["killed"], same[1], overhead)
    sheet.notes.append(
        "Runs are seeded and exact; the shortest of three counts, so that records have been read and prepared before."
    )
    return sheet
