"""Every combination of what can be declared, planned and run, generated from the library's own names.

An axis is a declaration, an option of a plan or of a run, or a source, with the values that it is tried at. Losses,
budgets, methods, mechanisms and engines are found in the library. What it has besides, and this file does not know, is
found by ``without_an_axis``: a new option has no place here until somebody has thought it through.
"""

import dataclasses
import inspect
import itertools
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import scipy.sparse
from hostile_losses import Unbounded

import epsteps as es
from epsteps import tables
from epsteps.budgets import mechanisms
from epsteps.data import engine as engines
from epsteps.methods import choice
from epsteps.methods.evaluation import plan_evaluation

_EXPORTED = {name: getattr(es, name) for name in es.__all__}


def _classes(*members: str) -> list[type]:
    """Return the library's public classes that have all of these members; what others derive theirs from is none."""
    classes = [found for found in _EXPORTED.values() if isinstance(found, type) and not inspect.isabstract(found)]
    return [found for found in classes if all(hasattr(found, member) for member in members)]


def _functions(*parameters: str) -> list[FunctionType]:
    """Return the library's public functions whose signature begins so."""
    functions = [found for found in _EXPORTED.values() if isinstance(found, FunctionType)]
    return [found for found in functions if tuple(inspect.signature(found).parameters)[: len(parameters)] == parameters]


def _as_declared_and_changed(kind: type) -> Iterator[Any]:
    """Yield a loss as it comes, and with every number of its declaration changed."""
    usual = kind()
    yield usual
    values = {field.name: getattr(usual, field.name) for field in dataclasses.fields(kind)}
    numbers = {name: 0.3 * value for name, value in values.items() if isinstance(value, float)}
    numbers |= {name: 4 * value for name, value in values.items() if type(value) is int}
    if numbers:
        yield kind(**numbers)


LOSSES = [loss for kind in _classes("derivative", "encode") for loss in _as_declared_and_changed(kind)] + [Unbounded()]
STEPS = _functions("mu", "L", "T")
# Methods with what they publish; None is what the method stands for by itself.
METHODS = [
    *((method, None) for method in (*STEPS, *choice.METHODS)),
    *(("auto", release) for release in choice.RELEASES),
]
CLIPS = (None, 0.05, 2.0)
BUDGETS = {
    es.Pure: lambda amount: es.Pure(amount),
    es.Concentrated: lambda amount: es.Concentrated(amount**2 / 8),
    es.Approximate: lambda amount: es.Approximate(amount, 1e-6),
}
# Units other than 1, columns of either sign and of one, categories; each with a number of features that fits it.
DOMAINS = {
    es.Ball: [(es.Ball(0.8, norm=1), 3), (es.Ball(3.0), 2), (es.Ball(7.0), 1), (es.Ball(0.2, norm=math.inf), 3)],
    es.Box: [
        (es.Box(0, 1), 3),
        (es.Box(0, 10), 2),
        (es.Box((0, -3, 0.5), (2, 5, 0.75)), 3),
        (es.Box(-4, -1), 2),
        (es.Box(0, 2, one_hot=[(1, 3)]), 4),
        (es.Box(-1, 6, one_hot=[(0, 2), (2, 5)]), 6),
    ],
}
# Further fields of a problem; None is not declared.
FACTS = {"ridge": (0.2, 1e-3, 5.0, 0.0), "n": (12, 2, 40), "intercept": (False, True), "smoothness": (None, 6.0)}
# With so few records 150 is worth sizes that are chosen with half the noise, and far more any others.
AMOUNTS = (1.0, 0.02, 40.0, 150.0, 1e-7, 1e7, 1e13)
# At most one option besides the mechanism is changed at a time. Those of every method:
OPTIONS: dict[str, tuple[Any, ...]] = {
    "iterations": (1, 4),
    "max_iterations": (3,),
    "batch": (5, 1),
    "allocation": ("uniform",),
    "sensitivity": ("state", "global"),
    "objective": ("exact",),
    "spectrum": ((0.3, 1.0),),
    "start_shares": ((1.0,) * 40,),
    "start_gap": (0.5,),
    "c": (0.7,),
    "expenses": ((es.Expense("L", 0.001, "epsilon"),), (es.Expense("L", 0.001, "rho"),)),
    "shares": ((0.5, 0.5),),
    "intervals": (0.95, True),
    "robust": (True,),
}
SURFACES: dict[str, tuple[Any, ...]] = {
    "repetitions": (1, 3),
    "start": (4.0, -30.0),
    "arithmetic": ("exact",),
    "checkpoint": (True,),
    "on_step": (lambda _: None,),
    "on_read": (lambda _: None,),
    "seed": (3,),
}
# Those that methods have which are no steps.
_EVERYWHERE = ("repetitions", "arithmetic", "checkpoint", "on_step", "on_read", "seed")
# What every combination sets by itself.
_GIVEN = {"problem", "budget", "method", "mechanism", "plan", "data", "ledger", "loss", "domain", "d", "clip", "anyway"}
SOURCES = {
    "numpy": "numpy",
    "auto": "auto",
    "fast": "fast",
    "gpu": "gpu",
    "dask": "dask",
    "sparse": "auto",
    "streamed": "numpy",
    "kept": "numpy",
}
# Those that are read in blocks: prepared for every pass, or once, and then kept in a file.
IN_BLOCKS = ("streamed", "kept")
# What records are given by; their sources set all of it, but for columns and validate, which are about structure.
_OF_ROWS = {"problem", "X", "y", "engine", "scheduler", "cache", "columns", "validate"}
# Where dask workers are, if there are any.
SCHEDULER: Any = None
RECORDS = ("mild", "ends", "zeros", "equal", "one class", "holes", "vast")


@dataclass(frozen=True)
class Combination:
    """One combination: public facts, a plan's options, and how it is run."""

    method: Any
    release: str | None
    loss: Any
    domain: Any
    d: int
    clip: float | None
    facts: dict[str, Any]
    budget: Any
    options: dict[str, Any]
    source: str
    surface: dict[str, Any]
    records: str
    seed: int

    def __str__(self) -> str:
        method = self.method if isinstance(self.method, str) else self.method.__name__
        parts = (self.release, self.loss, self.domain, f"d={self.d}", f"clip={self.clip}", self.facts, self.budget)
        return " | ".join(map(str, (method, *parts, self.options, self.source, self.surface, self.records, self.seed)))

    def problem(self) -> es.Problem:
        """Return the public facts, or raise if they are refused."""
        return es.Problem(self.loss, self.domain, d=self.d, clip=self.clip, **self.facts)


def drawn(method: Any, release: str | None, draws: int, seed: int, sources: tuple[str, ...]) -> Iterator[Combination]:
    """Yield, for a method, so many combinations of all else with each loss and each clip."""
    rng = np.random.default_rng([seed, METHODS.index((method, release))])
    for loss, clip, _ in itertools.product(LOSSES, CLIPS, range(draws)):
        yield _drawn(method, release, loss, clip, rng, sources)


def _drawn(
    method: Any,
    release: str | None,
    loss: Any,
    clip: float | None,
    rng: np.random.Generator,
    sources: tuple[str, ...],
) -> Combination:
    def one(values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    def changed(table: dict[str, tuple[Any, ...]], likely: tuple[str, ...]) -> dict[str, Any]:
        """Return no change, or one: mostly of what is likely to be there."""
        name = one([name for name in table if name in likely] or [None]) if rng.random() < 0.9 else one(list(table))
        return {name: one(table[name])} if name is not None and rng.random() < 0.6 else {}

    known = () if method == "auto" else choice.options_of(method)
    domain, d = one(one(list(DOMAINS.values())))
    few = {"max_iterations": 4} if method in (*STEPS, "descent") else {}
    names = mechanisms.TILTS if method in ("objective", "sequential") else mechanisms.NAMES
    noise = {"mechanism": one(names)} if rng.random() < 0.4 else {}
    return Combination(
        method=method,
        release=release,
        loss=loss,
        domain=domain,
        d=d,
        clip=clip,
        facts={name: one(values) if rng.random() < 0.5 else values[0] for name, values in FACTS.items()},
        budget=one(list(BUDGETS.values()))(one(AMOUNTS)),
        options=few | noise | changed(OPTIONS, known),
        source=one(sources),
        surface=changed(SURFACES, tuple(SURFACES) if isinstance(method, FunctionType) else _EVERYWHERE),
        records=one(RECORDS),
        seed=int(rng.integers(2**31)),
    )


def without_an_axis() -> list[str]:
    """Return what the library offers and no combination has: nothing, while all of it has a place here."""
    parameters = set(inspect.signature(es.run).parameters)
    parameters = parameters.union(*(choice.options_of(method) for method in (*STEPS, *choice.METHODS)))
    fields = {field.name for field in dataclasses.fields(es.Problem)}
    missing = [f"option {name}" for name in parameters - _GIVEN - set(OPTIONS) - set(SURFACES)]
    missing += [f"fact {name}" for name in fields - _GIVEN - set(FACTS)]
    missing += [f"budget {kind.__name__}" for kind in _classes("allocate", "spending") if kind not in BUDGETS]
    missing += [f"domain {kind.__name__}" for kind in _classes("project", "reach") if kind not in DOMAINS]
    missing += [f"option {name} of Rows" for name in inspect.signature(es.Rows).parameters if name not in _OF_ROWS]
    missing += [f"engine {name}" for name in engines.names() if name not in SOURCES]
    for kind, made in PLANNED.items():
        decided = plan_evaluation if kind == "evaluation" else made  # which hands its options on
        listed = set(inspect.signature(decided).parameters) - _GIVEN_BY_TABLES
        missing += [f"option {name} of {kind}" for name in listed - set(TABLE_OPTIONS[kind])]
    return missing


def covered(method: Any, epsilon: float) -> Any:
    """Return a pure budget, or one of rho for the method whose noise is Gaussian alone."""
    return es.Concentrated(epsilon**2 / 8) if method == "clipped" else es.Pure(epsilon)


def sources_here() -> tuple[str, ...]:
    """Return the sources that are installed; dask, whose workers take seconds to start, is not among them."""
    needed = {"fast": "numba", "gpu": "torch"}
    return tuple(name for name in SOURCES if name != "dask" and find_spec(needed.get(name, "numpy")))


def datasets(problem: es.Problem, kind: str, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield neighbours: records of this kind, one of which is replaced by its opposite, and by what is no record."""
    rng = np.random.default_rng(seed)
    far = 1e6 * rng.choice([-1.0, 1.0], (problem.n, problem.d))
    X = problem.domain.project(far)
    labels = list(getattr(problem.loss, "classes", (-problem_bound(problem), problem_bound(problem))))
    y = rng.choice(np.array(labels, dtype=float), problem.n)
    if kind == "mild":
        X = X * rng.random(X.shape)
    elif kind == "zeros":
        X = np.zeros_like(X)
    elif kind == "equal":
        X, y = np.tile(X[:1], (problem.n, 1)), np.full(problem.n, y[0])
    elif kind == "one class":
        y = np.full(problem.n, float(labels[-1]))
    elif kind == "holes":
        X = np.where(rng.random(X.shape) < 0.5, np.nan, X)
    elif kind == "vast":
        X, y = far * 1e300, y * 1e300
    place = int(rng.integers(problem.n))
    X[place], y[place] = problem.domain.project(far[place : place + 1])[0], labels[0]
    # Gradients differ most between opposite records, and squares between those at right angles.
    turned = rng.choice([-1.0, 1.0], problem.d) if rng.random() < 0.5 else -np.ones(problem.d)
    other_end = problem.domain.project(turned * far[place : place + 1])[0]
    for row, label in ((other_end, labels[-1]), (np.full(problem.d, np.inf), np.nan)):
        other, targets = X.copy(), y.copy()
        other[place], targets[place] = row, label
        yield (X, y), (other, targets)


def problem_bound(problem: es.Problem) -> float:
    """Return the declared bound of the targets."""
    return float(getattr(problem.loss, "bound", 1.0))


def rows_of(source: str, problem: es.Problem, X: np.ndarray, y: np.ndarray, folder: Path) -> es.Rows:
    """Return the records through this source; those that are streamed lie in a file of the folder."""
    if source == "dask":
        return _in_workers(problem, X, y)
    if source == "sparse":
        X = scipy.sparse.csr_array(X)
    elif source in IN_BLOCKS:
        file = folder / f"{uuid.uuid4().hex}.npy"  # a replay reads the first records again
        np.save(file, X)
        X = np.load(file, mmap_mode="r")
    return es.Rows(problem, X, y, engine=SOURCES[source], cache=folder if source == "kept" else None)


def _in_workers(problem: es.Problem, X: np.ndarray, y: np.ndarray) -> es.Rows:
    """Return the records in dask workers, from where none is brought: a replay of a minimum reads these here."""
    import dask.array as da

    there = da.from_array(X, chunks=(max(len(X) // 2, 1), -1)), da.from_array(y, chunks=max(len(y) // 2, 1))
    rows = es.Rows(problem, *there, engine="dask", scheduler=SCHEDULER)
    rows.blocks = es.Rows(problem, X, y, engine="numpy").blocks
    return rows


# --- what comes before and after a model, of tables ------------------------------------------------------------------

PLANNED = {"bounds": es.bounds_plan, "description": es.description_plan, "evaluation": es.evaluation_plan}
TABLE_OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "bounds": {"columns": (["a"], ["a", "b"]), "quantiles": ((0.1, 0.9), (0.5, 0.999)), "norm": (1, 2)},
    "description": {
        "statistics": (["means"], ["counts", "histograms"], ["quantiles", "correlations"]),
        "quantiles": ((0.5,), (0.001, 0.999)),
        "bins": (3,),
        "level": (None, 0.5),
        "target": ("population",),
    },
    "evaluation": {"buckets": (2, 5), "error_bound": (0.5, 1e9)},
}
# What a table, a schema or a model sets by itself.
_GIVEN_BY_TABLES = {"schema", "problem", "n", "x", "budget", "probabilities", "unit"}
# Columns that tables have and nobody expects, of so many rows.
COLUMNS = {
    "mild": lambda rng, n: rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, 7.0),
    "zeros": lambda rng, n: np.zeros(n),
    "missing": lambda rng, n: np.full(n, np.nan),
    "heavy": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "integers": lambda rng, n: rng.integers(-3, 90, n),
    "years": lambda rng, n: rng.integers(1850, 2030, n),
    "vast": lambda rng, n: rng.choice([np.inf, -np.inf, 1e308, -1e308, 5e-324], n),
    "dates": lambda rng, n: np.array(["2020-01-31"] * n, dtype=object),
    "odd": lambda rng, n: np.array([["x", None, "", b"\xff", "1e5", "NaN"][i] for i in rng.integers(0, 6, n)], object),
}
# Of a category: both kinds, one that is empty, and values that were not declared.
LABELS = {
    "both": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "one": lambda rng, n: np.ones(n),
    "unknown": lambda rng, n: np.array(["?"] * n, dtype=object),
}
TARGETS = {
    "two classes": es.Category([0, 1]),
    "three classes": es.Category([0, 1, 5]),
    "numbers": es.Numeric(-2, 2),
}
# The cells of the record that replaces another: a, b, the category, and the target.
REPLACED = ((np.inf, -np.inf, "?", np.nan), (-1e300, 0.0, 1.0, 1.0), (None, "x", 0.0, -5.0), (3.0, 1e9, 1.0, 0.0))


@dataclass(frozen=True)
class TableCombination:
    """One of what comes before or after a model: a plan's kind and options, the table's columns, and its source."""

    kind: str
    columns: tuple[str, str, str]
    target: str
    known: str
    n: int
    budget: Any
    options: dict[str, Any]
    source: str
    seed: int

    def schema(self) -> es.Schema:
        """Return what is declared: ranges that are unknown where they are bought."""
        kinds = {"integers": "integer", "years": "year"}
        if self.kind == "bounds" and not self.options.get("columns"):
            ends = {"both": {}, "low": {"low": 0.0}, "high": {"high": 100.0}}[self.known]
            a, b = (es.Unbounded(**ends, kind=kinds.get(name, "number")) for name in self.columns[:2])
        else:
            a, b = es.Numeric(-5, 5, missing=self.known == "low"), es.Numeric(0, 1e6)
        target = TARGETS[self.target]
        return es.Schema({"a": a, "b": b, "c": es.Category([0, 1]), "y": target}, target="y")

    def table(self) -> dict[str, np.ndarray]:
        """Return the table."""
        rng = np.random.default_rng(self.seed)
        a, b, labels = self.columns
        targets = np.array([0.0, 1.0, 5.0])[rng.integers(0, 3, self.n)]
        return {
            "a": COLUMNS[a](rng, self.n),
            "b": COLUMNS[b](rng, self.n),
            "c": LABELS[labels](rng, self.n),
            "y": targets,
        }

    def plan(self) -> Any:
        """Return the plan, or raise where it is refused."""
        schema = self.schema()
        subject = published(self.target) if self.kind == "evaluation" else schema
        return PLANNED[self.kind](subject, self.n, self.budget, **self.options)

    def encoded(self, plan: Any, table: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the records as the library's own functions encode them for a plan."""
        schema = self.schema()
        if self.kind == "bounds":
            return tables.bounds.encode(plan, schema, table), np.zeros(self.n)
        if self.kind == "description":
            return schema.plain().encode(table), np.zeros(self.n)
        schema = published(self.target).schema
        return schema.encode(table), schema.encode_target(table)

    def neighbours(self) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
        """Yield the table, and with a record replaced by what is far, or no number at all."""
        table, place = self.table(), self.seed % self.n
        for cells in REPLACED:
            other = {name: column.astype(object) for name, column in table.items()}
            for column, cell in zip(other.values(), cells, strict=True):
                column[place] = cell
            yield table, other


_MODELS: dict[str, Any] = {}


def published(target: str) -> Any:
    """Return a published model of such a target, from a table of its own."""
    if target not in _MODELS:
        made = TableCombination("description", ("mild", "integers", "both"), target, "both", 300, None, {}, "numpy", 1)
        schema = made.schema()
        plan = es.plan(tables.problem_of(schema, 300, 0.1), es.Pure(5.0), method="output")
        _MODELS[target] = tables.fit_model(plan, schema, made.table(), seed=1, anyway=True)
    return _MODELS[target]


def drawn_tables(kind: str, draws: int, seed: int, sources: tuple[str, ...]) -> Iterator[TableCombination]:
    """Yield so many combinations of all else, with each hostile column."""
    rng = np.random.default_rng([seed, list(PLANNED).index(kind)])

    def one(values: Any) -> Any:
        return list(values)[int(rng.integers(len(values)))]

    for column, _ in itertools.product(COLUMNS, range(draws)):
        name = one(TABLE_OPTIONS[kind])
        yield TableCombination(
            kind,
            (column, one(COLUMNS), one(LABELS)),
            one(TARGETS),
            one(("both", "low", "high")),
            one((1, 2, 40, 300)),
            one(list(BUDGETS.values()))(one(AMOUNTS)),
            {name: one(TABLE_OPTIONS[kind][name])} if rng.random() < 0.5 else {},
            one(sources),
            int(rng.integers(2**31)),
        )
