"""What dask costs per iteration: `python benchmarks/cluster.py` (about a minute; one worker process per core)."""

import time
from collections.abc import Callable

import dask.array as da
import numpy as np
from distributed import Client
from rich.console import Console
from rich.table import Table

import epsteps as es
from epsteps.data import cluster
from epsteps.data.dense import DenseEngine
from epsteps.problem.grid import Grid

PARTS, D = 2, 20


def echo(part: object, x: np.ndarray) -> np.ndarray:
    return x


def timed(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, np.ndarray]:
    """Return milliseconds of each call, taken in turns so that a busy machine is busy for all of them."""
    times = {name: np.empty(rounds) for name in calls}
    for call in calls.values():
        call()
    for i in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name][i] = 1e3 * (time.perf_counter() - begin)
    return times


def measure(client: Client, rows: int, rounds: int) -> Table:
    """Time one gradient over two partitions of ``rows`` records."""
    n = PARTS * rows
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=n, d=D)
    X = da.random.default_rng(0).uniform(-1, 1, (n, D), chunks=(rows, D))
    y = da.where(X.sum(axis=1) > 0, 1, -1)
    begin = time.perf_counter()
    records = cluster.open_records(problem, X, y, scheduler=client, engine="numpy")
    there = records.engine()
    there.prepare()
    opened = time.perf_counter() - begin
    local = X.compute(scheduler="sync"), problem.loss.encode(y.compute(scheduler="sync"))
    here = DenseEngine(problem, *local)
    x = np.full((D, 1), 0.05)
    points = Grid(problem).points(x, 1.0)
    np.testing.assert_array_equal(there.sums(points), here.sums(points))
    held = client.scatter([0] * PARTS, hash=False)
    times = timed(
        {
            "exact sums, this process": lambda: here.sums(points),
            "exact sums, dask": lambda: there.sums(points),
            "float means, this process": lambda: here.mean_gradient(x[:, 0]),
            "float means, dask": lambda: there.mean_gradient(x[:, 0]),
            "dask alone: submit and gather": lambda: client.gather(
                [client.submit(echo, each, x, pure=False) for each in held]
            ),
        },
        rounds,
    )
    table = Table("gradient", "min ms", "median ms", title=f"{PARTS} x {rows} rows x {D}; opened in {opened:.2f} s")
    for name, found in times.items():
        table.add_row(name, f"{found.min():.2f}", f"{np.median(found):.2f}")
    return table


def main() -> None:
    console = Console()
    connection = cluster.connect()
    for rows, rounds in ((1_000, 100), (500_000, 30)):
        console.print(measure(connection.client, rows, rounds))
    connection.close()


if __name__ == "__main__":
    main()
