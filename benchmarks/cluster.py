"""What a pass over records in dask workers costs, a model of it, and what the model says of a large cluster.

`python benchmarks/cluster.py` (some minutes; one and two worker processes on this machine). Times are CPU times, the
least of all rounds: of this process, in which client and scheduler are, and of the fullest worker. A busy machine
changes these less than those of the clock.
"""

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table

import epsteps as es
from epsteps.data import cluster, engine
from epsteps.data.cluster import parts
from epsteps.data.cluster.workers import FAN
from epsteps.data.engine import ArrayEngine
from epsteps.methods.bought import SmoothnessPlan
from epsteps.problem.grid import Grid
from epsteps.running.passes import Digits, Slopes

D = 20
# Tasks of passes that cost nothing but themselves, and numbers of their answers.
TASKS, NUMBERS = (1, 8, 32, 128), (2**14, 2**17, 2**20)
# Bytes of a question about one point of D coordinates, and of its answer: of no weight but where workers are many.
QUESTION, ANSWER = 2_000, 8 * D


@dataclass(frozen=True)
class Model:
    """Seconds of a pass: ``n d c / W + (fixed + task x tasks(W)) + depth(W) x (hop + latency) + bytes / bandwidth``."""

    fixed: float
    task: float
    hop: float
    latency: float
    bandwidth: float

    def seconds(self, n: float, d: int, workers: int, c: float, answer: float = ANSWER) -> dict[str, float]:
        """Return the terms: records, client and scheduler, levels of the tree, bytes of questions and answers."""
        tasks, depth = tree(workers)
        sent = workers * QUESTION + answer * (FAN * (depth - 1) + parts._FEW)
        return {
            "records": n * d * c / workers,
            "client": self.fixed + self.task * tasks,
            "tree": depth * (self.hop + self.latency),
            "bytes": sent / self.bandwidth,
        }


def tree(answers: int) -> tuple[int, int]:
    """Return the tasks of a pass with so many answers, and how many follow one another."""
    tasks, depth = answers, 1
    while answers > parts._FEW:
        answers = -(-answers // FAN)
        tasks, depth = tasks + answers, depth + 1
    return tasks, depth


@contextmanager
def cluster_of(workers: int) -> Iterator[Client]:
    """Start workers as epsteps does: one thread each, and memory that is kept."""
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None}),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", env={"OMP_NUM_THREADS": "1"}
        ) as started,
        Client(started, set_as_default=False) as client,
    ):
        yield client


def problem_of(n: int, d: int = D) -> es.Problem:
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=n, d=d)


def opened(client: Client, rows: int, count: int, name: str = "numpy") -> cluster.ClusterEngine:
    """Return records in ``count`` partitions, made by the workers themselves, once they are prepared."""
    X = da.random.default_rng(0).uniform(-1, 1, (count * rows, D), chunks=(rows, D))
    y = da.where(X.sum(axis=1) > 0, 1, -1)
    found = cluster.open_records(problem_of(count * rows), X, y, scheduler=client, engine=name).engine()
    found.prepare()
    return found


class Cost(NamedTuple):
    """Seconds of a pass, the least of all rounds: by the clock, of this process's CPU, and of the fullest worker's."""

    clock: float
    client: float
    worker: float


def cost(client: Client, call: Callable[[], object], rounds: int) -> Cost:
    """Return what a call costs, less what it costs a worker to be asked for its time."""
    call()
    found, asking = [], []
    for _ in range(rounds):
        idle, before = client.run(time.process_time), client.run(time.process_time)
        begin, clock = time.process_time(), time.perf_counter()
        call()
        clock, here = time.perf_counter() - clock, time.process_time() - begin
        after = client.run(time.process_time)
        found.append((clock, here, max(after[worker] - before[worker] for worker in before)))
        asking.append(max(before[worker] - idle[worker] for worker in before))
    least = Cost(*np.min(found, axis=0).tolist())
    return least._replace(worker=max(0.0, least.worker - min(asking)))


def apart(owners: dict[int, str | None], counts: list[int], threads: dict[str, int]) -> list[parts.Thread]:
    """Keep each partition by itself, as if it were in a thread of its own: a pass has as many tasks."""
    return [parts.Thread(worker, [i], counts[i]) for i, worker in owners.items()]


class Zeros:
    """A term of so many numbers."""

    def __init__(self, numbers: int) -> None:
        self.numbers = numbers

    def __call__(self, chunk: object) -> np.ndarray:
        """Return zeros, whatever the records."""
        return np.zeros(self.numbers, dtype=np.int64)


def overhead(client: Client, rounds: int, latency: float, bandwidth: float) -> tuple[Model, Table]:
    """Return what passes cost that add up next to nothing, with 1 to 128 tasks, and the model fitted to that."""
    columns = ("parts", "tasks", "levels", "clock ms", "worker ms", "client ms", "model ms")
    table = Table(*columns, title="A pass over 10 records a part")
    found, points = [], Grid(problem_of(10)).points(np.full((D, 1), 0.05), 1.0)
    for count in TASKS:
        with mock.patch.object(parts, "shared", apart):
            there = opened(client, 10, count)
        found.append(cost(client, lambda there=there: there.sums(points), rounds))
        there.close()
    tasks, here = np.array([tree(count)[0] for count in TASKS]), np.array([each.client for each in found])
    task, fixed = np.polyfit(tasks, here, 1, w=1 / here)
    for count, each, modelled in zip(TASKS, found, fixed + task * tasks, strict=True):
        times = (each.clock, each.worker, each.client, modelled)
        table.add_row(str(count), *map(str, tree(count)), *(f"{1e3 * seconds:.1f}" for seconds in times))
    return Model(fixed, task, found[0].worker, latency, bandwidth), table


def constants(rows: int, rounds: int) -> tuple[dict[str, float], Table]:
    """Return CPU seconds per number of the records, one thread of this process, for each kind of pass."""
    problem, rng = problem_of(rows), np.random.default_rng(0)
    X = rng.uniform(-1, 1, (rows, D))
    y = np.where(X.sum(axis=1) > 0, 1.0, -1.0)
    points, x = Grid(problem).points(np.full((D, 1), 0.05), 1.0), np.full(D, 0.05)
    slopes = Slopes(problem.loss, Digits.of(x, Grid(problem).units, 1, np.dtype(float)))
    table, found = Table("engine", "pass", "ps a number", title=f"{rows} x {D} in this process, one thread"), {}
    names = [name for name in ("numpy", "fast") if name == "numpy" or engine.find_spec("numba")]
    for name in names:
        here: ArrayEngine = engine.chosen(name, problem.loss, X.size)(problem, X, y)
        calls = {"step": lambda here=here: here.sums(points), "search": lambda here=here: here.total(slopes)}
        for what, call in calls.items():
            found[f"{name}, {what}"] = least(call, rounds) / X.size
            table.add_row(name, what, f"{1e12 * found[f'{name}, {what}']:.0f}")
    return found, table


def check(clients: dict[int, Client], rounds: int) -> Table:
    """Compare passes with the model: CPU seconds of the client, then of the fullest worker.

    A pass over next to nothing, and a worker's share of the records in this process, are timed in turns with the whole.
    """
    columns = ("records", "workers", "empty ms", "share ms", "predicted ms", "found ms", "error", "clock ms")
    table = Table(*columns, title="The model, checked")
    points = Grid(problem_of(2)).points(np.full((D, 1), 0.05), 1.0)
    for n in (20_000, 200_000, 1_000_000):
        for workers, client in clients.items():
            there, empty, share = opened(client, n // 8, 8), opened(client, 10, 8), n // workers
            X = np.random.default_rng(0).uniform(-1, 1, (share, D)).astype(np.float32)
            here: ArrayEngine = engine.chosen("numpy", es.Logistic(), 1)(problem_of(share), X, np.ones(share))
            whole, nothing, local = [], [], []
            for _ in range(rounds):
                whole.append(cost(client, lambda there=there: there.sums(points), 2))
                nothing.append(cost(client, lambda empty=empty: empty.sums(points), 2))
                local.append(least(lambda here=here: here.sums(points), 2))
            found, overhead = Cost(*np.min(whole, axis=0).tolist()), Cost(*np.min(nothing, axis=0).tolist())
            predicted, total = overhead.client + overhead.worker + min(local), found.client + found.worker
            numbers = (overhead.client + overhead.worker, min(local), predicted, total)
            written = (*(f"{1e3 * each:.1f}" for each in numbers), f"{100 * (predicted / total - 1):+.0f} %")
            table.add_row(f"{n} x {D}", str(workers), *written, f"{1e3 * found.clock:.1f}")
            there.close()
            empty.close()
    return table


def least(call: Callable[[], object], rounds: int) -> float:
    """Return CPU seconds of a call in this process, the least of all rounds."""
    call()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def large_answers(client: Client, rounds: int) -> Table:
    """Time passes whose answers are large: they are added by workers, and one comes here."""
    table = Table("answer MB", "clock ms", "client ms", "worker ms", title="Eight parts with large answers")
    with mock.patch.object(parts, "shared", apart):
        there = opened(client, 10, 8)
    for numbers in NUMBERS:
        found = cost(client, lambda numbers=numbers: there.total(Zeros(numbers)), rounds)
        table.add_row(f"{8e-6 * numbers:.1f}", *(f"{1e3 * each:.0f}" for each in found))
    there.close()
    return table


def passes(n: int) -> tuple[dict[str, Counter], Table]:
    """Count the passes of every release over n records, and those over a sample of them."""
    problem, rng = problem_of(n), np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, D))
    rows = es.Rows(problem, X, np.where(X @ rng.standard_normal(D) + 0.5 * rng.standard_normal(n) > 0, 1, -1))
    plans = {name: es.plan(problem, es.Pure(1.0), name) for name in ("objective", "output", "sequential", "curvature")}
    plans["descent"] = es.plan(problem, es.Pure(1.0), "descent")
    plans["smoothness"] = SmoothnessPlan(problem, es.Pure(1.0), 0.999)
    table, found = Table("release", "passes", "over a sample", title=f"Passes over {n} x {D}, epsilon = 1"), {}
    for name, plan in plans.items():
        count = found[name] = Counter()
        with mock.patch.multiple(
            es.Rows, **{what: counted(what, count) for what in ("sums", "total", "second_moment")}
        ):
            es.run(plan, rows, seed=0, arithmetic="exact")
        table.add_row(name, str(count["all"]), str(count["sample"]))
    return found, table


def counted(what: str, count: Counter) -> Callable:
    ask = getattr(es.Rows, what)

    def asked(self: es.Rows, *args: object) -> np.ndarray:
        count["sample" if len(args) == 2 and args[1] is not None else "all"] += 1
        return ask(self, *args)

    return asked


def roof() -> float:
    """Return CPU seconds per number of an exact step by the compiled engine, as `benchmarks/roofline.py` found them."""
    results = json.loads((Path(__file__).parent / "results" / "roofline.json").read_text())
    (milliseconds,) = (
        row["ms"]
        for row in results["rows"]
        if (row["case"], row["way"]) == ("1000000 x 20 float32", "fast engine, exact")
    )
    return milliseconds * 1e-3 / 2e7


def extrapolated(model: Model, constants: dict[str, float], count: dict[str, Counter]) -> Table:
    """Return what the model says of clusters that are not here."""
    title = f"Seconds of a pass ({1e3 * model.latency:g} ms, {model.bandwidth / 1e9:g} GB/s), and minutes of a fit"
    columns = ("records", "workers", "GB each", "records", "client", "tree", "bytes", "pass", "best W", "objective")
    table = Table(*columns, title=title)
    c = roof()
    search = constants["fast, search" if "fast, search" in constants else "numpy, search"]
    for n, d, workers in ((1e8, 20, 10), (1e9, 20, 100), (1e10, 100, 1000), (1e11, 20, 1000), (1e11, 100, 1000)):
        terms = model.seconds(n, d, workers, c)
        best = math.sqrt(n * d * c / (model.task * FAN / (FAN - 1)))
        whole = count["objective"]["all"] * sum(model.seconds(n, d, workers, search).values())
        sample = count["objective"]["sample"] * sum(model.seconds(n / 16, d, workers, search).values())
        seconds = (f"{each:.2g}" for each in (*terms.values(), sum(terms.values())))
        size = f"{n * (d + 1) * 4e-9 / workers:.1f}"
        table.add_row(f"{n:.0e} x {d}", str(workers), size, *seconds, f"{best:.0f}", f"{(whole + sample) / 60:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--latency", type=float, default=2e-4, help="seconds of a message on the network; an assumption"
    )
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes per second; an assumption: 10 Gbit/s")
    options, console = parser.parse_args(), Console(width=120)
    found, table = constants(1_000_000, max(3, options.rounds // 5))
    console.print(table)
    with cluster_of(1) as one, cluster_of(2) as two:
        model, table = overhead(two, options.rounds, options.latency, options.bandwidth)
        console.print(table)
        console.print(
            f"client and scheduler: {1e3 * model.fixed:.1f} ms + {1e3 * model.task:.2f} ms a task; "
            f"worker: {1e3 * model.hop:.1f} ms for one"
        )
        console.print(check({1: one, 2: two}, options.rounds))
        console.print(large_answers(two, max(3, options.rounds // 5)))
    count, table = passes(100_000)
    console.print(table)
    console.print(extrapolated(model, found, count))


if __name__ == "__main__":
    main()
