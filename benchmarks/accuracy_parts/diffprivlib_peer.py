"""A peer: diffprivlib (IBM), in an environment of its own, since it needs an older scikit-learn than this project.

Its logistic regression is objective perturbation (Chaudhuri, Monteleoni, Sarwate 2011) with noise shaped like an L2
ball; its linear regression is the functional mechanism. Records, norms and ranges are declared as for our methods.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from accuracy_parts.tasks import Task

REQUIREMENTS = ("diffprivlib==0.6.6", "scikit-learn==1.7.2")
TYPICAL_LENGTH = 3.0  # a guess of the solution's norm, in the rule for the ridge
WORKER = Path(__file__).with_name("diffprivlib_worker.py")


def environment(requirements: Sequence[str] = REQUIREMENTS) -> Path:
    """Return the interpreter that has diffprivlib, or others, made on first use in the user's cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = base / "epsteps-benchmarks" / "-".join(requirements).replace("==", "")
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *requirements], check=True)
        (folder / "ready").touch()
    return python


def fit(task: Task, epsilon: float, ridge: float, seeds: Sequence[int]) -> np.ndarray:
    """Return one model per seed, as columns."""
    return worked(WORKER, "coefficients.npy", task, epsilon, ridge, seeds)


def worked(worker: Path, answer: str, task: Task, epsilon: float, ridge: float, seeds: Sequence[int]) -> np.ndarray:
    """Return the array that a worker writes, in diffprivlib's environment, when it is given records and settings."""
    encoding = task.encoding
    settings = {
        "kind": "logistic" if task.is_classification else "squared",
        "epsilon": epsilon,
        "data_norm": encoding.largest(2) * (1 + 1e-6),  # float32 records must not be clipped
        "C": 1 / (task.n * ridge),
        "low": encoding.low,
        "high": encoding.high,
        "seeds": list(seeds),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "X.npy", task.X)
        np.save(folder / "y.npy", task.y)
        (folder / "settings.json").write_text(json.dumps(settings))
        subprocess.run([str(environment()), str(worker), name], check=True)
        return np.load(folder / answer)


def ridge_by_rule(task: Task, epsilon: float) -> float:
    """Return the ridge that our methods' public rule gives for diffprivlib's noise.

    It minimises ridge'/2 r² + E|η|²/(2 ridge') for a solution of norm r = 3, and is at least the task's. The noise on
    a sum of gradients has a Gamma(d) norm of scale s = 2 data_norm/epsilon, so that E|η|² = d(d + 1)(s/n)².
    """
    size = 2 * task.encoding.largest(2) / (task.n * epsilon)
    return max(task.ridge, float(np.sqrt(task.d * (task.d + 1)) * size / TYPICAL_LENGTH))
