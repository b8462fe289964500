"""One measurement in a process of its own: neither memory nor caches of another one are in it.

`python -m fits_parts.child FILE:FUNCTION ARGUMENTS` calls a function of this folder with arguments in JSON, and prints
what it returns, or why the library refuses, in JSON.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_THREADS = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"))


def measured(work: str, threads: int = 1, **arguments: Any) -> dict:
    """Return what ``file:function`` returns in a process with so many threads, or why it refuses."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | dict.fromkeys(_THREADS, str(threads)) | {"PYTHONPATH": os.pathsep.join(paths).strip(":")}
    command = [sys.executable, "-m", "fits_parts.child", work, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"refused": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    file, _, function = sys.argv[1].partition(":")
    work = getattr(importlib.import_module(f"fits_parts.{file}"), function)
    print(json.dumps(work(**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
