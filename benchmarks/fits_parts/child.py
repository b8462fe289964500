"""One measurement in a process of its own: neither memory nor caches of another one are in it.

`python -m fits_parts.child FILE:FUNCTION ARGUMENTS` calls a function of this folder with arguments in JSON, and prints
what it returns, or why the library refuses, in JSON.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

# Seconds after which a measurement is given up; the command sets it.
limit = 900.0
_THREADS = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"))


def measured(work: str, threads: int = 1, **arguments: Any) -> dict:
    """Return what ``file:function`` returns in a process with so many threads, or why it refuses."""
    begin = time.perf_counter()
    found = _measured(work, threads, arguments)
    told = ", ".join(str(value) for key, value in arguments.items() if key != "folder")
    print(f"{time.perf_counter() - begin:7.1f} s  {work} {told}", file=sys.stderr)
    return found


def _measured(work: str, threads: int, arguments: dict[str, Any]) -> dict:
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | dict.fromkeys(_THREADS, str(threads)) | {"PYTHONPATH": os.pathsep.join(paths).strip(":")}
    command = [sys.executable, "-m", "fits_parts.child", work, json.dumps(arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **streams) as process:
        try:
            output, errors = process.communicate(timeout=limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            if isinstance(error, subprocess.TimeoutExpired):
                return {"refused": f"not done after {limit:g} s"}
            raise
    if process.returncode:
        return {"refused": (errors.strip().splitlines() or [f"ended with {process.returncode}"])[-1]}
    return json.loads(output.splitlines()[-1])


def main() -> None:
    file, _, function = sys.argv[1].partition(":")
    work = getattr(importlib.import_module(f"fits_parts.{file}"), function)
    try:
        found = work(**json.loads(sys.argv[2]))
    except Exception as error:  # what the library refuses is a row of a table
        traceback.print_exc()
        found = {"refused": f"{type(error).__name__}: {error}"}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
