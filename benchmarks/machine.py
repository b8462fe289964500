"""What a measurement was made on: written beside every result."""

import datetime
import importlib.metadata
import os
import platform
import resource
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
