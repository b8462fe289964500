"""One cell is one method on one dataset at one epsilon, measured over some runs and kept in a file: runs are long."""

import hashlib
import json
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

import epsteps as es
from accuracy_parts import tasks
from accuracy_parts.limits import limits
from accuracy_parts.methods import Asked, Method
from accuracy_parts.scores import scores
from accuracy_parts.tasks import Task

VERSION = 1  # of what a cell's numbers mean; raise it to measure everything again


@dataclass(frozen=True)
class Dataset:
    """A task that is not loaded yet."""

    group: str
    data_seed: int | None
    loss: str
    load: Callable[[], Task]

    @property
    def name(self) -> str:
        """The group, and the seed of the records if they are drawn."""
        return self.group if self.data_seed is None else f"{self.group}-seed{self.data_seed}"


@dataclass(frozen=True)
class Key:
    """What a cell's numbers depend on, but for the library's version."""

    dataset: str
    method: str
    epsilon: float
    delta: float
    runs: int
    quick: bool
    version: int = VERSION

    def path(self, folder: Path) -> Path:
        """Return the cell's file."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]
        return folder / self.dataset / f"{self.method}-{self.epsilon:g}-{digest}.json"

    def seeds(self) -> list[int]:
        """Return one seed per run, different in every cell."""
        return [
            zlib.crc32(f"{self.dataset} {self.method} {self.epsilon} {run}".encode()) % 2**31
            for run in range(self.runs)
        ]


_paper_task = lru_cache(maxsize=1)(tasks.paper_task)  # one task at a time: cells come dataset by dataset
_file_task = lru_cache(maxsize=1)(tasks.file_task)


def paper_datasets(seeds: list[int]) -> list[Dataset]:
    """Return the paper's problem and its correlated versions, for each seed of the records."""
    return [
        Dataset(group, seed, "logistic", partial(_paper_task, group, seed))
        for group in tasks.CORRELATIONS
        for seed in seeds
    ]


def file_datasets(folder: Path) -> list[Dataset]:
    """Return every dataset of the folder."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as stored:
            loss = "logistic" if stored["y_train"].dtype.kind == "i" else "squared"
        found.append(Dataset(path.stem, None, loss, partial(_file_task, path)))
    return found


def measured(dataset: Dataset, method: Method, key: Key, folder: Path, again: bool) -> dict:
    """Return the cell, from its file if there is one."""
    path = key.path(folder)
    if path.exists() and not again:
        return json.loads(path.read_text())
    task = dataset.load()
    begin = time.perf_counter()
    fitted = method.fit(Asked(task, key.epsilon, key.delta, key.seeds(), key.quick))
    seconds = time.perf_counter() - begin
    cell = asdict(key) | {
        "group": dataset.group,
        "data_seed": dataset.data_seed,
        "source": library_digest(),
        "seconds": seconds,
        "note": fitted.note,
        "scores": {name: values.tolist() for name, values in scores(task, fitted.x).items()},
    }
    return _written(path, cell)


@lru_cache
def library_digest() -> str:
    """Return a hash of the library's source: cells say what they were measured with."""
    digest = hashlib.sha256()
    for path in sorted(Path(es.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def reference(dataset: Dataset, epsilon: float, delta: float, folder: Path) -> dict:
    """Return the optimum's scores and the limits at this epsilon, from their file if there is one."""
    path = Key(dataset.name, "reference", epsilon, delta, 0, False).path(folder)
    if path.exists():
        return json.loads(path.read_text())
    task = dataset.load()
    optimum = task.objective.minimiser
    found = {
        "dataset": dataset.name,
        "group": dataset.group,
        "epsilon": epsilon,
        "n": task.n,
        "d": task.d,
        "ridge": task.ridge,
        "lowest": task.objective.lowest,
        "length": float(np.linalg.norm(optimum)),
        "at_zero": float(task.objective.excess(np.zeros((task.d, 1)))[0]),
        "scores": {name: float(values[0]) for name, values in scores(task, optimum[:, None]).items()},
        "majority": float(max(np.mean(task.y_test > 0), np.mean(task.y_test <= 0))) if task.is_classification else None,
        "limits": limits(task, epsilon, delta),
    }
    return _written(path, found)


def _written(path: Path, content: dict) -> dict:
    """Write all of the file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=1) + "\n")
    unfinished.replace(path)
    return content
