"""The standing benchmark: one line for one run, of the library's default or of a peer, in a file that is resumed.

A line is known by its table, epsilon, budget, delta, method, seed and commit, and is not measured again. The commit is
the last one that changed the library; peers do not depend on it and have a version of their own.
"""

import datetime
import json
import lzma
import subprocess
import time
import traceback
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import epsteps as es
from accuracy_parts import adassp_peer, cells, clipped_descent, diffprivlib_peer
from accuracy_parts.limits import limits
from accuracy_parts.scores import scores
from accuracy_parts.tables import KINDS, Sources, Table, of_role, roles, tables
from accuracy_parts.tasks import Task

PEERS = "peers-1"  # raise it to measure the peers again
EPSILONS = {"binary": (0.1, 0.5, 1.0, 2.0), "classes": (0.1, 0.5, 1.0, 2.0), "regression": (0.1, 0.5, 1, 2, 4, 8)}
BUDGETS = ("pure", "delta")
JUDGED = Path(__file__).parents[1] / "results" / "judged.jsonl"
LARGEST = 1e100  # of fits that diverged


@dataclass(frozen=True)
class Key:
    """What a line is known by."""

    set: str
    epsilon: float
    budget: str
    delta: float
    method: str
    seed: int
    commit: str


@dataclass(frozen=True)
class Fits:
    """One model per seed, as columns, what was chosen on the way, and why runs failed, by their place."""

    x: np.ndarray
    note: str = ""
    failed: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Asked:
    """What a method is asked for."""

    task: Task
    epsilon: float
    budget: str
    delta: float
    seeds: Sequence[int]

    @property
    def choosing(self) -> int:
        """The seed for choices, which does not depend on the runs that are asked for."""
        return zlib.crc32(f"{self.task.name} {self.epsilon:g} {self.budget} {self.delta:g}".encode())


def default(asked: Asked, release: str) -> Fits:
    """Return what `epsteps.plan` takes when it is given nothing but the problem, the budget and what is published."""
    budget = es.Pure(asked.epsilon) if asked.budget == "pure" else es.Approximate(asked.epsilon, asked.delta)
    plan = es.plan(asked.task.problem, budget, release=release)
    x, failed = np.full((asked.task.dimension, len(asked.seeds)), np.nan), []
    for place, seed in enumerate(asked.seeds):
        try:
            x[:, place] = es.run(plan, asked.task.rows, seed=seed, anyway=True).x
        except Exception:  # a crash is a result: it is counted
            failed.append((place, traceback.format_exc(limit=-2)))
    return Fits(x, plan.method, tuple(failed))


def diffprivlib(asked: Asked) -> Fits:
    """Return diffprivlib's models with the ridge of our public rule, without which it does far worse."""
    ridge = diffprivlib_peer.ridge_by_rule(asked.task, asked.epsilon)
    return Fits(diffprivlib_peer.fit(asked.task, asked.epsilon, ridge, asked.seeds), f"ridge {ridge:.2g}")


def tuned_descent(asked: Asked) -> Fits:
    """Return clipped DP-GD with the best of 78 candidates on the answer."""
    setting = clipped_descent.best_setting(asked.task, asked.epsilon, asked.delta, asked.choosing)
    return Fits(clipped_descent.fresh(asked.task, setting, asked.epsilon, asked.delta, asked.seeds), str(setting))


def regression(asked: Asked, fit: Callable[..., np.ndarray]) -> Fits:
    """Return models from noisy sufficient statistics."""
    rngs = map(np.random.default_rng, asked.seeds)
    return Fits(np.stack([fit(asked.task, asked.epsilon, asked.delta, rng) for rng in rngs], axis=1))


@dataclass(frozen=True)
class Method:
    """A method, the budgets and kinds of targets that it is measured for, and whether it is the library's."""

    fit: Callable[[Asked], Fits]
    budgets: tuple[str, ...]
    kinds: tuple[str, ...]
    is_ours: bool = False


METHODS = {
    "final": Method(lambda asked: default(asked, "final"), BUDGETS, KINDS, is_ours=True),
    "iterates": Method(lambda asked: default(asked, "iterates"), BUDGETS, KINDS, is_ours=True),
    "diffprivlib": Method(diffprivlib, ("pure",), ("binary",)),
    "dp-gd": Method(tuned_descent, ("delta",), KINDS),
    "adassp": Method(lambda asked: regression(asked, adassp_peer.fit), ("delta",), ("regression",)),
    "boosted-adassp": Method(lambda asked: regression(asked, adassp_peer.boosted), ("delta",), ("regression",)),
}


@dataclass(frozen=True)
class Published:
    """What others reached on a table at delta = 1/n², in percent of test records, and what is asked for."""

    set: str
    epsilon: float
    asked: float
    others: str


PUBLISHED = (
    Published("covertype7", 1.0, 67.7, "DP-SGD 67.7, DP-GD 66.2, AMP 64.3"),
    Published("adult", 0.1, 82.0, "DP-GD 80.9, DP-SGD 80.4, AMP 79.3"),
)


@lru_cache
def commit() -> str:
    """Return the last commit that changed the library; with what is not committed, its source's digest."""
    folder = Path(es.__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()

    found = git("log", "-1", "--format=%h", "--abbrev=9", "--", ".")
    return found if not git("status", "--porcelain", "--", ".") else f"{found}+{cells.library_digest()}"


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return all lines of files, the last of those that are the same run; of files that end in .xz, too."""
    lines = [json.loads(line) for path in paths if path.exists() for line in _text(path).splitlines()]
    return list({_key(line): line for line in lines}.values())


def _text(path: Path) -> str:
    return lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text()


def _key(line: dict[str, Any]) -> Key:
    return Key(**{name: line[name] for name in Key.__dataclass_fields__})


def measure(options: Namespace) -> Iterator[str]:
    """Measure what the file lacks of what the options ask for, and yield a line of text about each cell."""
    methods = options.methods or list(METHODS)
    sources = Sources(options.data, options.packages, _judged(options, methods) if "judge" in options.sets else None)
    known = {_key(line) for line in read([options.out])}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for table in _chosen(options.sets):
        bench = Bench(table, sources)
        for epsilon in options.epsilon or EPSILONS[table.kind]:
            for budget in options.budgets:
                for name in methods:
                    if table.kind not in METHODS[name].kinds or budget not in METHODS[name].budgets:
                        continue
                    lines = bench.lines(name, float(epsilon), budget, options, known)
                    yield from _append(options.out, lines)
    if "published" in options.sets:
        for published in PUBLISHED:
            yield from _append(options.out, _published(published, options, known, sources))


def _chosen(words: Sequence[str]) -> list[Table]:
    """Return tables by role or name; a judge is not to be had by its name."""
    if hidden := [word for word in words if roles().get(word) == "judge"]:
        raise SystemExit(f"{', '.join(hidden)}: judge tables are measured all together, once for a release.")
    if unknown := [word for word in words if word not in ("design", "judge", "published", *tables())]:
        raise SystemExit(f"no such table: {', '.join(unknown)}.")
    named = [tables()[word] for word in words if word in tables()]
    return [table for role in ("design", "judge") if role in words for table in of_role(role)] + named


def _judged(options: Namespace, methods: Sequence[str]) -> str:
    """Return for what judge tables are read: a release that is entered, or peers alone, which say nothing of ours."""
    if not any(METHODS[name].is_ours for name in methods):
        return PEERS
    enter_judgement(options)
    return options.release


def enter_judgement(options: Namespace) -> None:
    """Write down that a release is judged, or stop: it takes a release, committed source, and one judgement each."""
    if not options.release:
        raise SystemExit("judge tables are measured once for each release: say which with --release.")
    if "+" in commit():
        raise SystemExit("the library has changes that are not committed: no release.")
    earlier = [json.loads(line) for line in JUDGED.read_text().splitlines()] if JUDGED.exists() else []
    same = [entry for entry in earlier if entry["release"] == options.release]
    if any(entry["commit"] != commit() for entry in same):
        raise SystemExit(f"release {options.release} was judged at {same[0]['commit']} on {same[0]['date']}.")
    if not same:
        entry = {"release": options.release, "commit": commit(), "date": datetime.date.today().isoformat()}
        with JUDGED.open("a") as file:
            file.write(json.dumps(entry | {"runs": options.runs}) + "\n")


def _append(path: Path, lines: list[dict[str, Any]]) -> Iterator[str]:
    """Write the lines of a cell at once, and yield a text about them."""
    if not lines:
        return
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    first, name = lines[0], "excess" if "excess" in lines[0] else "accuracy"
    found = [line[name] for line in lines if line[name] is not None]
    mean = f"{np.mean(found):.3g}" if found else "no run ended"
    yield f"{first['set']} {first['epsilon']:g} {first['budget']} {first['method']}: {mean} ({first['note']})"


@dataclass(eq=False)
class Bench:
    """A table that is read when the first of its runs is missing."""

    table: Table
    sources: Sources
    task: Task | None = None

    def lines(
        self, name: str, epsilon: float, budget: str, options: Namespace, known: set[Key]
    ) -> list[dict[str, Any]]:
        """Return one line for each run that is not known."""
        delta = options.delta if budget == "delta" else 0.0
        version = commit() if METHODS[name].is_ours else PEERS
        keys = [
            Key(self.table.name, epsilon, budget, delta, name, seed, version)
            for seed in _seeds(self.table.name, name, epsilon, budget, options.runs)
        ]
        keys = [key for key in keys if key not in known]
        if not keys:
            return []
        if self.task is None:
            self.task = self.table.task(self.sources)
        begin = time.process_time()
        fits = METHODS[name].fit(Asked(self.task, epsilon, budget, delta, [key.seed for key in keys]))
        seconds = (time.process_time() - begin) / len(keys)
        facts = {"role": roles()[self.table.name], "kind": self.table.kind, **_facts(self.task, epsilon, options.delta)}
        facts |= {"note": fits.note, "seconds": round(seconds, 4)}
        found, failed = _scored(self.task, fits.x), dict(fits.failed)
        return [
            asdict(key)
            | facts
            | {score: _number(values[place]) for score, values in found.items()}
            | ({"failed": failed[place]} if place in failed else {})
            for place, key in enumerate(keys)
        ]


def _seeds(table: str, method: str, epsilon: float, budget: str, runs: int) -> list[int]:
    """Return one seed per run; more runs keep those that there are."""
    return [zlib.crc32(f"{table} {method} {epsilon:g} {budget} {run}".encode()) % 2**31 for run in range(runs)]


def _scored(task: Task, x: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(over="ignore", invalid="ignore"):
        found = scores(task, x)
    second = {"accuracy": found["accuracy"]} if task.is_classification else {"r2": found["r2"]}
    return {"excess": np.minimum(found["excess"], LARGEST)} | second


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@lru_cache(maxsize=64)
def _facts(task: Task, epsilon: float, delta: float) -> dict[str, Any]:
    """Return what all runs of a table at this epsilon are held against."""
    found = limits(task, epsilon, delta)
    return {
        "n": task.n,
        "d": task.d,
        "ridge": task.ridge,
        "zero": float(task.objective.excess(np.zeros((task.dimension, 1)))[0]),
        "limit_pure": found["best pure"],
        "limit_delta": found["best with delta"],
    }


def _published(published: Published, options: Namespace, known: set[Key], sources: Sources) -> list[dict[str, Any]]:
    """Return one line for each run of the estimator as anybody would call it, on all records, at delta = 1/n²."""
    table = tables()[published.set]
    task = table.task(sources, most=None)
    delta = 1 / task.n**2
    seeds = _seeds(table.name, "estimator", published.epsilon, "1/n²", options.runs)
    keys = [Key(table.name, published.epsilon, "delta", delta, "estimator", seed, commit()) for seed in seeds]
    classes = tuple(np.unique(task.y).tolist())
    lines = []
    for key in keys:
        if key in known:
            continue
        begin = time.process_time()
        model = es.PrivateLogisticRegression(
            published.epsilon,
            delta=delta,
            bounds=(task.encoding.low, task.encoding.high),
            one_hot=task.encoding.one_hot,
            classes=classes,
            random_state=key.seed,
        ).fit(task.X, task.y)
        facts = {"n": task.n, "d": task.d, "kind": table.kind, "role": "published", "note": model.plan_.method}
        seconds = round(time.process_time() - begin, 4)
        lines.append(
            asdict(key) | facts | {"accuracy": float(model.score(task.X_test, task.y_test)), "seconds": seconds}
        )
    return lines
