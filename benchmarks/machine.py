"""What a measurement was made on, written beside every result; and how ways to do the same are measured."""

import datetime
import importlib.metadata
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

PACKAGES = ("epsteps", "numpy", "scipy", "numba", "scikit-learn", "torch", "dask", "opacus", "opendp")


def facts() -> dict:
    """Return machine, versions and date."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def race(ways: dict[str, Callable[[], object]], seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """Return each way's best time in seconds: they take turns, after a first round that does not count."""
    best = dict.fromkeys(ways, float("inf"))
    for way in ways.values():
        way()
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or rounds < 5:
        for name, way in ways.items():
            start = clock()
            way()
            best[name] = min(best[name], clock() - start)
        rounds += 1
    return best


def peak_memory() -> int:
    """Return the bytes of this process's largest resident set."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says includes the process that started this one
        return 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    flags = {word for line in lines if line.startswith("flags") for word in line.split()}
    vectors = next((name for name in ("avx512f", "avx2") if name in flags), "")
    return " ".join([*(names[:1] or [platform.processor() or platform.machine()]), vectors]).strip()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
