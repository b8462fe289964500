"""Training from memory, a memory map and Parquet: `python benchmarks/streaming.py --gigabytes 12`.

It writes files of that size into a temporary folder, which it removes, and trains in a process of its own each, so that
the largest resident set (mapped pages included) is that of one source. The operating system's cache of files is warm
where the files fit it. Records in memory need three times their size: leave them out with `--sources memmap parquet`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import peak_memory
from rich.console import Console
from rich.table import Table

import epsteps as es

D = 20
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


def train(source: str, folder: Path, n: int, steps: int) -> None:
    """Train, and print the seconds of a step and the largest resident set: runs in a process of its own."""
    problem = problem_of(n)
    if source == "parquet":
        data = es.Rows(problem, folder / "table.parquet", "label")
    elif source == "memmap":
        data = es.Rows(problem, np.load(folder / "X.npy", mmap_mode="r"), folder / "y.npy")
    else:
        data = es.Rows(problem, np.load(folder / "X.npy"), np.load(folder / "y.npy"))
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=steps)
    marks = [time.perf_counter()]
    es.run(plan, data, on_step=lambda _: marks.append(time.perf_counter()))
    exact = (marks[-1] - marks[1]) / max(1, steps - 1)
    data.gradient(np.zeros(D))  # whatever is made once is made now
    begin = time.perf_counter()
    data.gradient(np.ones(D))
    answer = {
        "exact": exact,
        "float": time.perf_counter() - begin,
        "rss": peak_memory(),
    }
    print(json.dumps(answer))


def measure(source: str, gigabytes: float, steps: int, folder: Path) -> dict:
    n = int(gigabytes * 1e9 / (4 * D))
    if shutil.disk_usage(folder).free < gigabytes * 1.1e9 + SPARE:
        raise SystemExit(f"{folder} has no room for {gigabytes} GB.")
    {"parquet": write_parquet}.get(source, write_npy)(folder, n)
    command = [sys.executable, __file__, "--child", source, str(folder), str(n), str(steps)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for file in folder.iterdir():
        file.unlink()
    return json.loads(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the features in float32")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--sources", nargs="+", default=["memory", "memmap", "parquet"])
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        source, folder, n, steps = options.child
        return train(source, Path(folder), int(n), int(steps))
    table = Table("source", "exact step, s", "GB/s", "float gradient, s", "GB/s", "peak RSS, MB")
    table.title = f"{options.gigabytes:g} GB of float32, d = {D}"
    for source in options.sources:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found = measure(source, options.gigabytes, options.steps, Path(folder))
        speeds = [
            f"{value:.{digits}f}"
            for name in ("exact", "float")
            for value, digits in ((found[name], 2), (options.gigabytes / found[name], 2))
        ]
        table.add_row(source, *speeds, f"{found['rss'] / 1e6:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
