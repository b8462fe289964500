"""The service: overhead of a step over loopback, throughput of several analysts, and kills of its processes.

    python benchmarks/service.py [--n 100000] [--d 20] [--steps 200] [--analysts 8] [--seconds 60] [--kills 200]
        [--charges 0] [--folder /dev/shm]

A step over the wire is compared with the same step on records at hand, one after the other. Times of day are those of
whatever the machine does besides; CPU seconds of client, server and worker are told as well.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from service_kit import OPEN, Served, make_site
from test_service_processes import Analyst, busy, check

import epsteps as es
from epsteps.budgets import Epsilon, mechanisms
from epsteps.noise import Source
from epsteps.plans.requests import Gradient
from epsteps.running.run import Reader

COST = 0.01


def wide(n: int, d: int) -> tuple[dict[str, np.ndarray], str]:
    """Return a table of n records with d numeric columns, and its schema."""
    names, rng = [f"x{place}" for place in range(d)], np.random.default_rng(0)
    columns = "".join(f'[columns.{name}]\ntype = "numeric"\nlow = 0\nhigh = 1\n' for name in names)
    features = rng.uniform(size=(n, d)).round(4)
    targets = rng.uniform(size=n) < 1 / (1 + np.exp(-8 * (features[:, 0] - 0.5)))
    table = dict(zip(names, features.T, strict=True)) | {"y": targets.astype(float)}
    return table, f'target = "y"\n{columns}[columns.y]\ntype = "category"\nvalues = [0, 1]\n'


def cpu(process: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overhead(folder: Path, n: int, d: int, steps: int, charges: int) -> None:
    """Print what a step takes over the wire, after so many charges of others, and on records at hand."""
    records, declared = wide(n, d)
    site = make_site(folder, es.Pure(1e6), records=records, declared=declared)
    for _ in range(charges):
        site.ledger.charge("people", es.Pure(COST))
    served = Served(site).start().wait(300)
    try:
        people = site.people()
        problem = people.problem()
        session = people.session(problem, es.Pure(1e5))
        rows = es.Rows(problem, people.schema.encode(records), people.schema.encode_target(records))
        reader, noise = Reader(rows), mechanisms.smallest(problem, Epsilon)
        reader.prepare()
        x, remote, local = np.zeros(problem.dimension), [], []
        session.gradient(x, COST)
        before = cpu(served.process.pid), cpu(served.worker()), time.process_time()
        for _ in range(steps):
            begun = time.perf_counter()
            x = np.clip(session.gradient(x, COST), -1, 1)
            remote.append(time.perf_counter() - begun)
        after = cpu(served.process.pid), cpu(served.worker()), time.process_time()
        for _ in range(steps):
            begun = time.perf_counter()
            asked = Gradient.at(problem, noise, x, COST)
            draw = asked.draw(Source())
            asked.publish(asked.read(reader, draw), draw)
            local.append(time.perf_counter() - begun)
    finally:
        site.close()
        served.kill()
    spent = [1e3 * (b - a) / steps for a, b in zip(before, after, strict=True)]
    p50, p95 = (1e3 * np.quantile(remote, q) for q in (0.5, 0.95))
    here = 1e3 * statistics.median(local)
    print(f"step, n = {n}, d = {d}, {steps} steps after {charges} charges, no clock:")
    print(f"  over the wire   p50 {p50:7.2f} ms   p95 {p95:7.2f} ms")
    print(f"  at hand         p50 {here:7.2f} ms")
    print(f"  overhead        p50 {p50 - here:7.2f} ms")
    print(f"  CPU a step      server {spent[0]:.2f} ms, worker {spent[1]:.2f} ms, client {spent[2]:.2f} ms")


def throughput(folder: Path, count: int, seconds: float, kills: int) -> None:
    """Print how many answers analysts get, with so many kills spread over the time, and check all of them."""
    site = make_site(folder, es.Pure(1e6), policy=OPEN | {"limits": {"rate": 1000.0}})
    served = Served(site).start().wait()
    stop = threading.Event()
    analysts = [Analyst(site, number, stop) for number in range(count)]
    for analyst in analysts:
        analyst.start()
    begun, rng = time.monotonic(), random.Random(0)
    for number in range(kills):
        busy(analysts, 2 * number + 2)
        time.sleep(rng.uniform(0.0, 0.1))
        if number % 3 == 1:
            served.kill()
            served.start()
        else:
            served.kill_worker()
        with suppress(TimeoutError):
            served.wait()
    time.sleep(max(0.0, seconds - (time.monotonic() - begun)))
    stop.set()
    for analyst in analysts:
        analyst.join(300)
    passed = time.monotonic() - begun
    served.wait()
    served.kill()
    time.sleep(1.0)
    answered = check(site, analysts)
    print(f"{count} analysts, {passed:.0f} s, {kills} kills: {answered} answers ({answered / passed:.1f} a second);")
    print("  nothing overspent, every acknowledged answer there, one draw a charge, the chain verifies")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"n": 100_000, "d": 20, "steps": 200, "analysts": 8, "kills": 0, "charges": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--folder", help="where ledger and store lie: a disk, or memory to leave the disk out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        overhead(Path(folder) / "step", options.n, options.d, options.steps, options.charges)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        throughput(Path(folder) / "analysts", options.analysts, options.seconds, options.kills)


if __name__ == "__main__":
    main()
