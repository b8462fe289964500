"""One cell: what a plan predicts of its excess risk, beside the mean over seeded runs on a real table."""

import hashlib
import json
import os
import time
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import epsteps as es
from epsteps.auditing.experiments import minimiser
from truth_parts import tables
from truth_parts.tables import Table

EPSILONS = (0.05, 0.25, 1.0, 4.0, 10.0)
DELTA = 1e-5
PAPER_RIDGE, RIDGE = 0.02, 0.002
BUDGETS: dict[str, Callable[[float], Any]] = {
    "pure": es.Pure,
    "approximate": lambda epsilon: es.Approximate(epsilon, DELTA),
    "concentrated": lambda epsilon: es.Concentrated(epsilon**2 / 2),  # what Pure(epsilon) implies
}
METHODS: dict[str, dict[str, Any]] = {
    "auto final": {"release": "final"},
    "auto iterates": {"release": "iterates"},
    "objective": {"method": "objective"},
    "output": {"method": "output"},
    "statistics": {"method": "statistics"},
    "sequential": {"method": "sequential"},
    "curvature": {"method": "curvature"},
    "descent": {"method": "descent"},
    "nesterov (paper)": {"method": es.nesterov},
}
LOSSES: dict[str, tuple[str, Callable[[Table], es.Loss]]] = {
    "logistic": ("labels", lambda _: es.Logistic()),
    "hinge": ("labels", lambda _: es.SmoothedHinge()),
    "softmax": ("classes", lambda table: es.Softmax(tuple(np.unique(table.y).tolist()))),
    "squared": ("range", lambda _: es.Squared(1.0)),
    "huber": ("range", lambda _: es.PseudoHuber(c=0.4, bound=1.0)),
}
LARGEST = 1e100
MEASURED = ("measured", "se", "median", "runs", "seconds", "after")
# Runs are added until the mean is known to this share of it, or to so many times the runs that were asked for.
PRECISION, MOST = 0.15, 5
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, eq=False)
class Case:
    """A table and a loss: a problem as somebody would declare it, its records, and the exact minimum."""

    table: Table
    loss: str

    @cached_property
    def problem(self) -> es.Problem:
        """The public facts; with an intercept, but for the paper's problem."""
        is_paper, table = self.table.name == "paper", self.table
        ridge, shape = PAPER_RIDGE if is_paper else RIDGE, {"n": len(table.y), "d": table.encoding.d}
        return es.Problem(LOSSES[self.loss][1](table), table.box, ridge=ridge, **shape, intercept=not is_paper)

    @cached_property
    def rows(self) -> es.Rows:
        """The records."""
        return es.Rows(self.problem, self.table.X, self.table.y)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What every cell of the case says: sizes, what x = 0 costs, the minimum's length and its curvatures."""
        x, problem = self.minimum, self.problem
        spectrum = np.quantile(np.linalg.eigvalsh(self.rows.hessian(x)), QUANTILES)
        return {
            "set": self.table.name,
            "n": problem.n,
            "d": problem.d,
            "dimension": problem.dimension,
            "ridge": problem.ridge,
            "loss": self.loss,
            "zero": float(self.rows.value(np.zeros_like(x))) - self.lowest,
            "length": float(np.linalg.norm(x)),
            "spectrum": spectrum.tolist(),
        }

    @cached_property
    def minimum(self) -> np.ndarray:
        """Where F is least."""
        return minimiser(self.rows)

    @cached_property
    def lowest(self) -> float:
        """The least value of F."""
        return float(self.rows.value(self.minimum))


@lru_cache(maxsize=2)
def case_of(path: Path, loss: str) -> Case:
    """Return the case; a process keeps the last ones."""
    return Case(tables.load(path), loss)


def measure(options: Namespace) -> None:
    """Plan every cell that the options ask for, and measure those whose plan the file has no numbers of."""
    known = {_key(cell): cell for cell in read(options.out)} if options.out.exists() else {}
    end = time.monotonic() + 60 * options.minutes
    jobs = list(_jobs(options))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print(f"{len(jobs)} rows of cells")
    with ProcessPoolExecutor(options.jobs, initializer=os.nice, initargs=(10,)) as pool:
        running = [pool.submit(_run, job, job.known(known), options.runs, end) for job in jobs]
        for done, future in enumerate(as_completed(running), start=1):
            with options.out.open("a") as file:
                file.writelines(json.dumps(cell) + "\n" for cell in future.result())
            if done % 20 == 0 or done == len(jobs):
                print(f"{done} of {len(jobs)}", flush=True)


def read(path: Path) -> list[dict]:
    """Return the cells of a file; of those that were written several times, the last."""
    return list({_key(cell): cell for cell in map(json.loads, path.read_text().splitlines())}.values())


@dataclass(frozen=True)
class Job:
    """All methods on one case, with one budget."""

    path: Path
    loss: str
    budget: str
    epsilon: float
    methods: tuple[str, ...]

    def key(self, method: str) -> tuple[Any, ...]:
        """Return what names a cell."""
        return (self.path.stem, self.loss, method, self.budget, self.epsilon)

    def known(self, cells: dict[tuple[Any, ...], dict]) -> dict[tuple[Any, ...], dict]:
        """Return those of these cells that are the job's."""
        return {key: cells[key] for method in self.methods if (key := self.key(method)) in cells}


def _key(cell: dict) -> tuple[Any, ...]:
    return tuple(cell[name] for name in ("set", "loss", "method", "budget", "epsilon"))


def _jobs(options: Namespace) -> Iterator[Job]:
    """Yield all jobs, those of one case one after the other: a process that has its records keeps them."""
    wanted = options.sets and {name for word in options.sets for name in (tables.TUNED if word == "tuned" else [word])}
    for path in sorted(options.data.glob("*.npz"), key=lambda path: path.stat().st_size):
        if wanted and path.stem not in wanted:
            continue
        with np.load(path) as stored:
            kind = str(stored["kind"])
        for loss in options.losses or LOSSES:
            if LOSSES[loss][0] == kind:
                for epsilon in options.epsilons:
                    for budget in options.budgets:
                        yield Job(path, loss, budget, epsilon, tuple(options.methods))


def _run(job: Job, known: dict, runs: int, end: float) -> list[dict]:
    """Return the cells of a job; a plan that another method made already, or that was run before, is not run again."""
    case, cells = case_of(job.path, job.loss), []
    made = {
        (cell["digest"], cell["runs"]): {name: cell[name] for name in MEASURED}
        for cell in known.values()
        if "digest" in cell
    }
    for method in job.methods:
        cell = case.facts | {"method": method, "budget": job.budget, "epsilon": job.epsilon}
        try:
            plan = es.plan(case.problem, BUDGETS[job.budget](job.epsilon), **METHODS[method])
        except (ValueError, TypeError, es.NoBoundError) as refusal:
            cells.append(cell | {"refused": str(refusal)})
            continue
        key = (digest(plan), runs)
        if key not in made:
            if time.monotonic() > end:
                continue
            made[key] = measured(case, plan, runs, zlib.crc32(repr(job.key(method)).encode()) % 2**31)
        cells.append(cell | {"plan": plan.method, "digest": key[0], **predicted(plan), **made[key]})
    return cells


def digest(plan: es.Plan) -> str:
    """Return a hash of what the plan executes, whatever it predicts."""
    content = json.loads(plan.to_json())
    for told in ("certificate", "utility"):
        content.pop(told, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def predicted(plan: es.Plan) -> dict[str, Any]:
    """Return what the plan says: the expected excess, its bound, and the verdict."""
    utility = getattr(plan, "utility", None)
    if utility is None:
        return {"predicted": plan.guessed_error, "bound": getattr(plan, "error", None), "verdict": None}
    return {"predicted": utility.expected, "bound": utility.bound, "verdict": utility.verdict}


def points(plan: es.Plan, rows: es.Rows, runs: int, seed: int) -> tuple[np.ndarray, list[float | None]]:
    """Return what seeded runs publish last, one column each, and what each expects by what it published.

    Steps, whose points say nothing more, are run all at once, in floats.
    """
    if plan.has_floats:
        return es.run(plan, rows, seed=seed, repetitions=runs).x, [plan.utility.expected] * runs
    made = [es.run(plan, rows, seed=seed + run) for run in range(runs)]
    return np.stack([run.x for run in made], axis=1), [run.utility.expected for run in made]


def measured(case: Case, plan: es.Plan, runs: int, seed: int) -> dict[str, Any]:
    """Return mean, standard error and median of F(x) - F* over seeded runs, F being the problem as declared.

    ``after`` has what each run expects by what it published; None where that says nothing more.
    """
    begin, excess, after = time.perf_counter(), np.zeros(0), []
    while len(excess) < MOST * runs and not (len(excess) and _se(excess) <= PRECISION * np.mean(excess)):
        x, expected = points(plan, case.rows, runs, seed + len(excess))
        with np.errstate(over="ignore"):  # of fits that diverged
            excess = np.append(excess, np.minimum(case.rows.value(x) - case.lowest, LARGEST))
        after += expected
    return {
        "measured": float(np.mean(excess)),
        "se": _se(excess),
        "median": float(np.median(excess)),
        "runs": runs,
        "seconds": round(time.perf_counter() - begin, 3),
        "after": None if all(each == plan.utility.expected for each in after) else after,
    }


def _se(excess: np.ndarray) -> float:
    return float(np.std(excess, ddof=1) / np.sqrt(len(excess)))
