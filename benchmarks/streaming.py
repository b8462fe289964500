"""Training from memory, a memory map and Parquet: `python benchmarks/streaming.py --gigabytes 12`.

It writes files of that size into a temporary folder, which it removes, and trains in a process of its own each, so that
the largest resident set (mapped pages included) is that of one source. The operating system's cache of files is warm
where the files fit it. A source "+cache" keeps what is prepared in a file: the first pass writes it, steps read it.
Records in memory need three times their size: leave them out with `--sources memmap memmap+cache`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from machine import peak_memory
from rich.console import Console
from rich.table import Table

import epsteps as es

D = 20
STREAMED = ("memmap", "memmap+cache", "parquet", "parquet+cache")
LOGISTIC = ("descent", "curvature", "smoothness", "objective", "sequential", "output")
# Rows written at a time, which is also the size of a Parquet row group.
ROWS = 1_000_000
# Disk that stays free.
SPARE = 5e9


def problem_of(n: int) -> es.Problem:
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=n, d=D)


def blocks(n: int):
    """Yield features in float32 and labels, in blocks."""
    weights = np.random.default_rng(0).standard_normal(D)
    for start in range(0, n, ROWS):
        rng = np.random.default_rng([1, start])
        X = rng.random((min(ROWS, n - start), D), dtype=np.float32)
        yield X, np.where((X - 0.5) @ weights > 0, 1, -1).astype(np.int8)


def write_npy(folder: Path, n: int) -> None:
    with (folder / "X.npy").open("wb") as X, (folder / "y.npy").open("wb") as y:
        for file, kind, shape in ((X, "<f4", (n, D)), (y, "|i1", (n,))):
            np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
        for features, labels in blocks(n):
            features.tofile(X)
            labels.tofile(y)


def write_parquet(folder: Path, n: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(D)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.int8())])
    # Random digits do not compress, and a dictionary of them would only slow reading down.
    with pq.ParquetWriter(folder / "table.parquet", schema, compression="none", use_dictionary=False) as writer:
        for features, labels in blocks(n):
            writer.write_table(pa.table([*features.T, labels], schema=schema))


def rows_of(source: str, folder: Path, problem: es.Problem) -> es.Rows:
    """Return the records; a source whose name ends in "+cache" keeps what is prepared in a file."""
    kind, _, cached = source.partition("+")
    cache = folder if cached else None
    if kind == "parquet":
        return es.Rows(problem, folder / "table.parquet", "label", cache=cache)
    if kind == "memmap":
        return es.Rows(problem, np.load(folder / "X.npy", mmap_mode="r"), folder / "y.npy", cache=cache)
    return es.Rows(problem, np.load(folder / "X.npy"), np.load(folder / "y.npy"))


def train(source: str, folder: Path, n: int, steps: int) -> dict[str, float]:
    """Return the seconds of the first pass and of a step, and the largest resident set."""
    problem = problem_of(n)
    data = rows_of(source, folder, problem)
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=steps)
    begin = time.perf_counter()
    data.prepare()
    first = time.perf_counter() - begin
    marks, used = [], []

    def mark(_: int) -> None:
        marks.append(time.perf_counter())
        used.append(time.process_time())

    es.run(plan, data, on_step=mark, anyway=True)
    exact, cpu = ((times[-1] - times[0]) / (steps - 1) for times in (marks, used))
    data.gradient(np.zeros(D))  # whatever is made once is made now
    begin = time.perf_counter()
    data.gradient(np.ones(D))
    means = time.perf_counter() - begin
    return {"first": first, "exact": exact, "cpu": cpu, "float": means, "rss": peak_memory()}


def release(source: str, folder: Path, n: int, steps: int) -> dict[str, dict[str, float]]:
    """Return the seconds of every release, and the largest resident set after it; each private, and not seeded."""
    found = {}
    for loss, names in ((es.Logistic(), LOGISTIC), (es.Squared(bound=1.0), ("statistics",))):
        problem = replace(problem_of(n), loss=loss)
        data = rows_of(source, folder, problem)
        data.prepare()
        for name in names:
            begin, used = time.perf_counter(), time.process_time()
            if name == "smoothness":
                es.estimate_smoothness(data, es.Pure(1.0))
            else:
                options = {"iterations": steps} if name == "descent" else {}
                es.run(es.plan(problem, es.Pure(1.0), name, **options), data, anyway=True)
            seconds, cpu = time.perf_counter() - begin, time.process_time() - used
            found[name] = {"seconds": seconds, "cpu": cpu, "rss": peak_memory()}
        data.close()
    return found


def measure(what: str, source: str, gigabytes: float, steps: int, where: Path | None) -> dict[str, Any]:
    """Return what a process of its own finds, with files that are removed after it."""
    n, kind = int(gigabytes * 1e9 / (4 * D)), source.partition("+")[0]
    with tempfile.TemporaryDirectory(dir=where) as folder:
        room = gigabytes * (2.2e9 if kind != source else 1.1e9) + SPARE
        if shutil.disk_usage(folder).free < room:
            raise SystemExit(f"{folder} has no room for {gigabytes} GB as {source}.")
        {"parquet": write_parquet}.get(kind, write_npy)(Path(folder), n)
        command = [sys.executable, __file__, "--child", what, source, folder, str(n), str(steps)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the features in float32")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--sources", nargs="*", default=["memory", *STREAMED])
    parser.add_argument("--releases", nargs="*", default=["memmap+cache"], help="sources for every release")
    parser.add_argument("--folder", type=Path, help="where temporary folders are made")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, source, folder, n, steps = options.child
        return print(json.dumps({"train": train, "release": release}[what](source, Path(folder), int(n), int(steps))))
    size, console = options.gigabytes, Console()
    table = Table("source", "first pass, s", "exact step, s", "GB/s", "CPU s", "float gradient, s", "peak RSS, MB")
    table.title = f"{size:g} GB of float32, d = {D}"
    for source in options.sources:
        found = measure("train", source, size, options.steps, options.folder)
        exact = [f"{found['exact']:.2f}", f"{size / found['exact']:.2f}", f"{found['cpu']:.2f}"]
        table.add_row(source, f"{found['first']:.1f}", *exact, f"{found['float']:.2f}", f"{found['rss'] / 1e6:.0f}")
    console.print(table)
    table = Table("source", "release", "s", "CPU s", "peak RSS so far, MB", title="after the first pass")
    for source in options.releases:
        for name, found in measure("release", source, size, options.steps, options.folder).items():
            table.add_row(source, name, f"{found['seconds']:.1f}", f"{found['cpu']:.1f}", f"{found['rss'] / 1e6:.0f}")
    if options.releases:
        console.print(table)


if __name__ == "__main__":
    main()
