"""Golden files: what the library answers to fixed questions, written down once and compared ever after.

``python tests/golden/write.py`` computes every answer and writes it; ``... write.py paths plans`` writes these parts
alone. ``tests/test_golden.py`` computes the same answers by the same functions and compares. Only public names are
used, so that the files outlive any change of the inner modules. A deliberate change of an answer is written by this
file, and has its own line in the changelog.
"""

import base64
import contextlib
import hashlib
import inspect
import itertools
import json
import math
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special

import epsteps as es

HERE = Path(__file__).parent
N, SEED = 240, 7


# --- the machine ------------------------------------------------------------------------------------------------------


@cache
def fingerprint() -> str:
    """Return a digest of what this machine computes in floats: equal digests let paths be compared bit for bit."""
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((N, 5)), rng.standard_normal(N)
    S = A.T @ A
    positive = np.abs(b) + 1e-3
    arrays = [S, A @ A[:7].T, A.T @ b, np.linalg.solve(S, A[:5]), np.linalg.cholesky(S), *np.linalg.eigh(S)]
    arrays += [scipy.linalg.cho_solve(scipy.linalg.cho_factor(S), A[0]), np.linalg.svd(A)[1], np.linalg.norm(A, axis=1)]
    functions = (np.exp, np.expm1, np.tanh, np.sinh, np.arctan, np.cbrt, scipy.special.ndtr)
    arrays += [function(values) for function in functions for values in (b, positive, b[:3])]
    functions = (np.log, np.log1p, np.log2, np.sqrt, scipy.special.gammaln, lambda x: x**0.3, lambda x: x**-1.7)
    arrays += [function(values) for function in functions for values in (positive, positive[:3])]
    arrays += [scipy.special.ndtri(scipy.special.ndtr(b)), np.array([np.sum(b), np.mean(A), np.logaddexp(b, 0).sum()])]
    arrays += [np.array([f(float(x)) for x in positive for f in (math.exp, math.log, math.lgamma, math.erf, math.sin)])]
    return hashlib.sha256(b"".join(np.ascontiguousarray(a, dtype=float).tobytes() for a in arrays)).hexdigest()


# --- how answers are written ------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w])")


def encoded(value: Any) -> Any:
    """Return an answer as JSON that keeps every bit: arrays as base64 of their doubles, floats as hexadecimal text."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        data = np.ascontiguousarray(value, dtype="<f8").tobytes()
        return {"shape": list(value.shape), "doubles": base64.b64encode(data).decode()}
    if isinstance(value, np.ndarray):
        return [encoded(item) for item in value.tolist()]
    if isinstance(value, bool | str | int | None):
        return value
    if isinstance(value, float | np.floating):
        return {"hex": float(value).hex()}
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, dict):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    return repr(value)


def texts(value: str) -> dict[str, str]:
    """Return digests of a text: of all of it, and of all but its numbers, which another machine may round otherwise."""
    words = _NUMBER.sub("#", value)
    return {"whole": hashlib.sha256(value.encode()).hexdigest()[:14], "words": _short(words)}


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:14]


def differences(expected: Any, found: Any, *, exact: bool, where: str = "answer") -> Iterator[str]:
    """Yield how two encoded answers differ: in any bit, or on another machine by more than its roundings."""
    if isinstance(expected, dict) and isinstance(found, dict) and set(expected) == set(found):
        if set(expected) == {"shape", "doubles"}:
            yield from _array_differences(expected, found, exact, where)
        elif set(expected) == {"hex"}:
            one, other = float.fromhex(expected["hex"]), float.fromhex(found["hex"])
            if expected != found and (exact or not _close(one, other)):
                yield f"{where}: {one!r} became {other!r}"
        elif set(expected) == {"whole", "words"}:
            if expected["words" if not exact else "whole"] != found["words" if not exact else "whole"]:
                yield f"{where}: another text"
        else:
            for key in expected:
                yield from differences(expected[key], found[key], exact=exact, where=f"{where}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, exact=exact, where=f"{where}[{place}]")
    elif isinstance(expected, str) and isinstance(found, str):
        yield from text_differences(expected, found, exact=exact, where=where)
    elif expected != found or type(expected) is not type(found):
        yield f"{where}: {str(expected)[:200]} became {str(found)[:200]}"


def _close(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, rtol=1e-6, atol=1e-9 * float(np.max(np.abs(one), initial=0)), equal_nan=True))


def _array_differences(expected: dict, found: dict, exact: bool, where: str) -> Iterator[str]:
    if expected["shape"] != found["shape"]:
        yield f"{where}: shape {expected['shape']} became {found['shape']}"
    elif expected["doubles"] != found["doubles"]:
        one, other = (np.frombuffer(base64.b64decode(item["doubles"])) for item in (expected, found))
        if exact or not _close(one, other):
            with np.errstate(invalid="ignore"):
                place = int(np.argmax(one.view(np.int64) != other.view(np.int64)))
            yield f"{where}: first at {place}, {one[place]!r} became {other[place]!r}"


def text_differences(expected: str, found: str, *, exact: bool, where: str) -> Iterator[str]:
    """Yield how two texts differ; on another machine their numbers may differ by a unit in the last place."""
    if expected == found:
        return
    if not exact and _NUMBER.sub("#", expected) == _NUMBER.sub("#", found):
        pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(found), strict=True)
        wrong = [(a, b) for a, b in pairs if not _rounded(a, b)]
        if wrong:
            yield f"{where}: {wrong[0][0]} became {wrong[0][1]}"
        return
    lines = itertools.zip_longest(expected.splitlines(), found.splitlines())
    one, other = next(((a, b) for a, b in lines if a != b), ("...", "... (ends of lines)"))
    yield f"{where}: {one!r} became {other!r}"


def _rounded(one: str, other: str) -> bool:
    """Return whether two numbers differ by roundings, or a unit in the last place that the first is written with."""
    first, second = Decimal(one), Decimal(other)  # which also hold a colour, such as #1e2228
    return abs(first - second) <= Decimal("1e-6") * abs(first) + Decimal("1.01").scaleb(first.as_tuple().exponent)


def refused(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the kind and the text of what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return call()
        except Exception as error:
            return {"raises": type(error).__name__, "text": _stable(str(error))}


def _stable(text: str) -> str:
    """Return a text without what changes from place to place: folders, addresses, inner modules, dates, hashes."""
    if FOLDER.path is not None:
        text = text.replace(str(FOLDER.path), "FOLDER")
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"\bepsteps(?:\.\w+)+\.(\w+)", r"\1", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)
    return re.sub(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:[\d.]+(?:Z|\+00:00)?)?", "TIME", text)


class _Folder:
    """The folder of the files that questions need."""

    path: Path | None = None

    @contextlib.contextmanager
    def opened(self, path: Path | None = None) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as temporary:
            self.path = Path(path or temporary).resolve()
            yield self.path


FOLDER = _Folder()


# --- problems, records, sources ---------------------------------------------------------------------------------------

LOSSES = {
    "logistic": es.Logistic(),
    "hinge": es.SmoothedHinge(),
    "squared": es.Squared(),
    "huber": es.PseudoHuber(),
    "softmax": es.Softmax((0, 1, 2)),
    "logistic text": es.Logistic(("no", "yes")),
    "squared wide": es.Squared(bound=3.0),
    "huber wide": es.PseudoHuber(2.0, c=0.3),
}
DOMAINS = {
    "box": (es.Box(0, 1), 3),
    "ball l2": (es.Ball(1.5), 3),
    "ball l1": (es.Ball(0.8, norm=1), 3),
    "cube": (es.Ball(1, norm=math.inf), 2),
    "box uneven": (es.Box((0, -3, 0.5), (2, 5, 0.75)), 3),
    "one hot": (es.Box(0, 2, one_hot=[(1, 3)]), 4),
}
BUDGETS = {"pure": es.Pure(1.5), "concentrated": es.Concentrated(0.3), "approximate": es.Approximate(1.2, 1e-6)}
EXTREMES = {
    repr(budget): budget
    for amount in (1e-7, 0.02, 40.0, 1e7, 1e13)
    for budget in (es.Pure(amount), es.Concentrated(amount), es.Approximate(amount, 1e-5))
}
STEPS = {
    "gd": es.gd,
    "heavy_ball": es.heavy_ball,
    "nesterov": es.nesterov,
    "multistage": es.multistage,
    "restarted_nesterov": es.restarted_nesterov,
}
NAMED = ("descent", "objective", "sequential", "output", "statistics", "curvature")
METHODS = (*STEPS, *NAMED, "auto final", "auto iterates")
SOURCES = ("numpy", "fast", "sparse", "npy", "parquet", "gpu")
MECHANISMS = ("laplace", "l2", "linf", "hull", "blocks", "gaussian", "ellipsoid")


@cache
def records(loss: Any, domain: Any, d: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Return records, some of which lie outside the domain, and targets that depend on them."""
    rng = np.random.default_rng([n, d])
    X = rng.uniform(-0.4, 1.3, (n, d)) * np.where(rng.random((n, 1)) < 0.1, 4.0, 1.0)
    score = X[:, 0] - X[:, -1] + 0.3 * rng.standard_normal(n)
    classes = getattr(loss, "classes", None)
    y = score if classes is None else np.array(classes)[np.digitize(score, [0.0, 0.5][: len(classes) - 1])]
    return X, y


def problem_of(loss: str, domain: str, **facts: Any) -> es.Problem:
    """Return a small problem."""
    features, d = DOMAINS[domain]
    return es.Problem(LOSSES[loss], features, **({"ridge": 0.1, "n": N, "d": d} | facts))


def rows_of(problem: es.Problem, source: str) -> es.Rows:
    """Return its records through a source."""
    X, y = records(problem.loss, problem.domain, problem.d, problem.n)
    engine = source if source in ("numpy", "fast", "gpu") else "auto"
    if source == "sparse":
        import scipy.sparse

        return es.Rows(problem, scipy.sparse.csr_array(np.where(X < 0.2, 0.0, X)), y, engine=engine)
    if source in ("npy", "parquet"):
        folder = FOLDER.path
        assert folder is not None
        path = folder / f"{problem.d} {problem.n} {type(problem.loss).__name__} {y.dtype.kind}.{source}"
        if source == "npy":
            np.save(path, X)
            return es.Rows(problem, np.load(path, mmap_mode="r"), y)
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(problem.d)} | {"y": y}), path, row_group_size=160)
        return es.Rows(problem, path, "y")
    return es.Rows(problem, X, y, engine=engine)


@contextlib.contextmanager
def small_machine() -> Iterator[None]:
    """Stream few records in several blocks, and let torch compute without a card.

    These three inner names are the only ones here. They are looked for in all modules, so that they may move.
    """
    import_module("epsteps.estimators")
    wanted: dict[str, Callable[[Any], Any]] = {"KEPT": lambda _: 0, "BLOCK": lambda _: 600}
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401

        problem = problem_of("logistic", "box")
        refused(lambda: rows_of(problem, "gpu").prepare())  # imports the engine, whether or not there is a card
        wanted["find_device"] = lambda found: lambda device=None: found(device or "cpu")
    before = []
    for name, changed in wanted.items():
        modules = [m for key, m in list(sys.modules.items()) if key.startswith("epsteps.") and hasattr(m, name)]
        if name == "BLOCK":  # that of streams, in numbers; another module counts directions in blocks
            modules = [module for module in modules if module.BLOCK == 2**20]
        if not modules:
            raise AssertionError(f"no module of epsteps has {name}: say here what is called so now.")
        replacement = changed(getattr(modules[0], name))
        for module in modules:
            before.append((module, name, getattr(module, name)))
            setattr(module, name, replacement)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


# --- plans and paths --------------------------------------------------------------------------------------------------


@cache
def _planned(method: str, budget: str, problem: es.Problem, options: tuple[tuple[str, Any], ...]) -> Any:
    """Return a plan, or the exception that refuses it: some refusals take as long as a plan."""
    keywords, money = dict(options), (BUDGETS | EXTREMES)[budget]
    name, _, release = method.partition(" ")
    try:
        return es.plan(problem, money, STEPS.get(name, name), **({"release": release} if release else {}), **keywords)
    except Exception as error:
        return error


def _question(
    method: str,
    budget: str,
    loss: str,
    domain: str,
    source: str = "numpy",
    facts: Any = None,
    plan: Any = None,
    **run: Any,
) -> dict[str, Any]:
    """Return one question: how to plan, and how to run it."""
    few = {"max_iterations": 4} if method in (*STEPS, "descent") and "iterations" not in (plan or {}) else {}
    if method == "heavy_ball" and (source, domain) != ("numpy", "box"):  # it often has no bound to choose by
        few = {"iterations": 4, "allocation": "uniform"}
    options = few | (plan or {})
    return {
        "method": method,
        "budget": budget,
        "loss": loss,
        "domain": domain,
        "source": source,
        "facts": facts or {},
        "plan": options,
        "run": {"seed": SEED, "arithmetic": "exact"} | run,
    }


def _named(question: dict[str, Any]) -> str:
    parts = [question[key] for key in ("method", "budget", "source", "loss", "domain")]
    run = {key: value for key, value in question["run"].items() if (key, value) not in _USUAL}
    return " | ".join([*parts, *(str(part) for part in (question["facts"], question["plan"], run) if part)])


_USUAL = [("seed", SEED), ("arithmetic", "exact")]


def questions() -> dict[str, dict[str, Any]]:
    """Return every question that is asked of plans and runs, by its name."""
    asked = list(itertools.chain(_of_engines(), _of_losses(), _of_mechanisms(), _of_options(), _drawn()))
    return {_named(question): question for question in asked}


def _of_engines() -> Iterator[dict[str, Any]]:
    """Every method with every budget through every source: once with what most know, once with what comes next."""
    losses, domains = itertools.cycle(list(LOSSES)[:5]), itertools.cycle(DOMAINS)
    usual = itertools.cycle(["box", "ball l2", "cube"])
    for method, budget, source in itertools.product(METHODS, BUDGETS, SOURCES):
        if method.startswith("auto") and source not in ("numpy", "fast"):  # it is one of the others
            continue
        loss = "squared" if method == "statistics" else "logistic"
        yield _question(method, budget, loss, next(usual), source)
        run = {"repetitions": 2} if source == "numpy" else {}
        if source in ("numpy", "gpu"):
            yield _question(method, budget, next(losses), next(domains), source, **run)


def _of_losses() -> Iterator[dict[str, Any]]:
    """Every method with every loss, and with every domain."""
    budgets = itertools.cycle(BUDGETS)
    for method, loss in itertools.product(METHODS, LOSSES):
        yield _question(method, next(budgets), loss, "box", facts={"intercept": True})
    for method, domain in itertools.product(METHODS, DOMAINS):
        yield _question(method, next(budgets), "squared" if method == "statistics" else "logistic", domain)


def _of_mechanisms() -> Iterator[dict[str, Any]]:
    """Every noise with every budget, in steps and in the methods that have a choice of it."""
    domains = itertools.cycle(["box", "ball l2", "cube", "ball l1"])
    for method, budget, mechanism in itertools.product(("nesterov", *NAMED), BUDGETS, (*MECHANISMS, "wishart")):
        loss = "squared" if method == "statistics" else "logistic"
        yield _question(method, budget, loss, next(domains), plan={"mechanism": mechanism})


_OPTIONS: tuple[dict[str, Any], ...] = (
    {"iterations": 1},
    {"iterations": 9},
    {"batch": 50},
    {"batch": 1, "iterations": 3},
    {"allocation": "uniform"},
    {"sensitivity": "state"},
    {"sensitivity": "global"},
    {"objective": "exact", "spectrum": (0.3, 0.5, 1.0), "start_shares": (1.0, 1.0, 1.0)},
    {"start_gap": 0.5},
    {"c": 0.7},
    {"shares": (0.5, 0.5)},
    {"speed": 3},
)
_RUNS: tuple[dict[str, Any], ...] = (
    {"repetitions": 3},
    {"start": 0.5},
    {"arithmetic": "float"},
    {"arithmetic": "float", "repetitions": 4},
    {"arithmetic": "auto"},
    {"arithmetic": "float", "seed": None},
    {"seed": 1234567},
    {"seed": -1},
)
_FACTS: tuple[dict[str, Any], ...] = (
    {"ridge": 0.0},
    {"ridge": 1e-3},
    {"ridge": 5.0, "intercept": True},
    {"smoothness": 6.0},
    {"clip": 0.05},
    {"clip": 2.0, "intercept": True},
    {"n": 2},
)


def _of_options() -> Iterator[dict[str, Any]]:
    """Every option of a plan, of a run and of a problem, one at a time."""
    for method, budget in (("gd", "pure"), ("nesterov", "approximate"), ("multistage", "concentrated")):
        for options in _OPTIONS:
            yield _question(method, budget, "logistic", "box", plan=options)
    for method in NAMED:
        for options in _OPTIONS[:3] + _OPTIONS[-2:]:
            yield _question(method, "approximate", "squared", "box", plan=options)
    for method in ("gd", "nesterov", *NAMED):
        loss = "squared" if method == "statistics" else "logistic"
        for options in _RUNS:
            yield _question(method, "pure", loss, "box", **options)
        for facts in _FACTS:
            yield _question(method, "pure", loss, "cube", facts=facts)
    for source, batch in itertools.product(SOURCES, (None, 40)):
        plan = {"iterations": 5} | ({} if batch is None else {"batch": batch})
        yield _question("nesterov", "pure", "logistic", "cube", source, plan=plan, arithmetic="float")
        yield _question("nesterov", "pure", "logistic", "cube", source, plan=plan, repetitions=2)


def _drawn() -> Iterator[dict[str, Any]]:
    """All axes at once, at random."""
    rng = np.random.default_rng(11)

    def one(values: Any) -> Any:
        return list(values)[int(rng.integers(len(values)))]

    for _ in range(50):
        method = one(METHODS)
        options = {"mechanism": one(MECHANISMS)} if rng.random() < 0.3 else {}
        if method in STEPS and rng.random() < 0.3:
            options["batch"] = 30
        facts = {"ridge": one((0.2, 1e-3, 5.0)), "n": one((12, 40, N)), "intercept": bool(rng.random() < 0.5)}
        yield _question(method, one(BUDGETS | EXTREMES), one(LOSSES), one(DOMAINS), one(SOURCES[:4]), facts, options)


def plan_of(question: dict[str, Any]) -> Any:
    """Return the plan of a question."""
    problem = problem_of(question["loss"], question["domain"], **question["facts"])
    plan = _planned(question["method"], question["budget"], problem, tuple(question["plan"].items()))
    if isinstance(plan, Exception):
        raise plan
    return plan


def plan_answer(question: dict[str, Any]) -> Any:
    """Return what a plan says: its JSON and its page as digests, and what it spends in numbers."""

    def answer() -> Any:
        plan = plan_of(question)
        money = [repr(plan.spending(count)) for count in (1, 3)]
        return {
            "json": texts(plan.to_json()),
            "page": texts(str(plan)),
            "method": plan.method,
            "spent": encoded(float(plan.spent)),
            "spending": money,
            "error": encoded(plan.error),
        }

    return refused(answer)


def path_answer(question: dict[str, Any]) -> Any:
    """Return what a run publishes, or why it is refused."""

    def answer() -> Any:
        plan = plan_of(question)
        run = es.run(plan, rows_of(plan.problem, question["source"]), **question["run"], anyway=True)
        return {"path": encoded(run.path), "seeded": run.seeded, "spent": encoded(float(run.spent))} | (
            {"extras": encoded(run.extras)} if run.extras else {}
        )

    return refused(answer)


WHOLE = {
    "steps-gd-pure": ("gd", "pure", "logistic", "box"),
    "steps-nesterov-approximate": ("nesterov", "approximate", "squared", "ball l2"),
    "steps-multistage-concentrated": ("multistage", "concentrated", "huber", "cube"),
    "steps-restarted-softmax": ("restarted_nesterov", "pure", "softmax", "ball l1"),
    "descent-one-hot": ("descent", "pure", "hinge", "one hot"),
    "objective-pure": ("objective", "pure", "logistic text", "box"),
    "objective-approximate": ("objective", "approximate", "squared wide", "box uneven"),
    "sequential-concentrated": ("sequential", "concentrated", "softmax", "ball l2"),
    "output-pure": ("output", "pure", "huber wide", "ball l2"),
    "statistics-pure": ("statistics", "pure", "squared", "box"),
    "statistics-approximate": ("statistics", "approximate", "squared", "ball l2"),
    "curvature-pure": ("curvature", "pure", "logistic", "box"),
    "curvature-concentrated": ("curvature", "concentrated", "squared", "cube"),
}


def whole_plan(name: str) -> Any:
    """Return a plan that is written down as a whole."""
    return plan_of(_question(*WHOLE[name], facts={"intercept": True}))


# --- other numbers ----------------------------------------------------------------------------------------------------


def _smoothness() -> Iterator[tuple[str, Callable[[], Any]]]:
    def bought(budget: str, domain: str, source: str) -> Any:
        estimate = es.estimate_smoothness(rows_of(problem_of("logistic", domain), source), BUDGETS[budget], seed=SEED)
        return {"L": encoded(estimate.L), "expense": _stable(repr(estimate.expense)), "seeded": estimate.seeded}

    for budget, domain, source in itertools.product(BUDGETS, ("box", "ball l2"), ("numpy", "sparse", "npy")):
        yield f"smoothness | {budget} | {domain} | {source}", lambda b=budget, d=domain, s=source: bought(b, d, s)

    def used(budget: str) -> Any:
        rows = rows_of(problem_of("logistic", "box"), "numpy")
        estimate = es.estimate_smoothness(rows, BUDGETS[budget], seed=SEED)
        money = {"pure": es.Pure(3.0), "concentrated": es.Concentrated(0.7)}[budget]
        plan = es.plan(estimate.problem, money, es.gd, iterations=4, expenses=(estimate.expense,))
        return {
            "json": texts(plan.to_json()),
            "page": texts(str(plan)),
            "path": encoded(es.run(plan, rows, seed=1).path),
        }

    yield "smoothness | used by a plan | pure", lambda: used("pure")
    yield "smoothness | used by a plan | concentrated", lambda: used("concentrated")


def _targets() -> Iterator[tuple[str, Callable[[], Any]]]:
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=math.inf), ridge=0.02, n=100_000, d=5)
    for name, options in {
        "pure": {},
        "approximate": {"delta": 1e-6},
        "gd": {"method": es.gd, "max_iterations": 60, "error": 5.0},
        "multistage": {"method": es.multistage, "max_iterations": 60, "error": 2.0},
        "far": {"max_iterations": 1},
        "batch": {"iterations": 20, "batch": 5000, "error": 3.0},
    }.items():
        steps = {"method": es.nesterov, "proved": True, "error": 0.2}
        usual = steps | ({} if "iterations" in options else {"max_iterations": 100}) | options
        yield f"required_epsilon | {name}", lambda o=usual: encoded(es.required_epsilon(problem, **o))
        yield f"required_n | {name}", lambda o=usual: encoded(es.required_n(problem, **o))
    for name, options in {
        "recommended": {"error": 0.01, "release": "final"},
        "useful": {"verdict": "useful", "delta": 1e-6, "release": "final"},
        "iterates": {"error": 0.01, "release": "iterates"},
    }.items():
        yield f"required_epsilon | {name}", lambda o=options: encoded(es.required_epsilon(problem, **o))
        yield f"required_n | {name}", lambda o=options: encoded(es.required_n(problem, **o))


def _checks() -> Iterator[tuple[str, Callable[[], Any]]]:
    for loss, domain in itertools.product(("logistic", "squared", "softmax"), DOMAINS):
        problem = problem_of(loss, domain)
        data = records(problem.loss, problem.domain, problem.d)
        yield f"check | {loss} | {domain}", lambda p=problem, r=data: _stable(str(es.check(p, *r)))

        def readings(p: es.Problem = problem) -> Any:
            rows, x = rows_of(p, "numpy"), np.linspace(-1, 1, p.dimension)
            names = {"gradient": rows.gradient, "value": rows.value, "hessian": rows.hessian}
            return {"second_moment": encoded(rows.second_moment())} | {
                k: encoded(np.asarray(f(x))) for k, f in names.items()
            }

        yield f"readings | {loss} | {domain}", readings
    for loss, domain in itertools.product(LOSSES, DOMAINS):
        problem = problem_of(loss, domain, intercept=True)
        names = ("L", "mu", "dimension", "units")
        yield (
            f"problem | {loss} | {domain}",
            lambda p=problem, n=names: {
                "repr": _stable(repr(p)),
                "numbers": {name: encoded(getattr(p, name)) for name in n},
                "sizes": [encoded(float(p.record_size(norm))) for norm in (1, 2, math.inf)],
            },
        )


def _estimators() -> Iterator[tuple[str, Callable[[], Any]]]:
    X, _ = records(es.Logistic(), es.Box(0, 1), 3)
    y = X[:, 0] - X[:, 2]
    two, three = (y > 0).astype(int), np.digitize(y, [-0.3, 0.3])
    logistic, svc, ridge, huber = (
        es.PrivateLogisticRegression,
        es.PrivateLinearSVC,
        es.PrivateRidge,
        es.PrivateHuberRegressor,
    )
    models = {
        "logistic": (logistic(bounds=(0, 1), classes=(0, 1), random_state=SEED), two),
        "logistic norm": (logistic(row_norm=1.0, classes=(0, 1), random_state=SEED), two),
        "logistic delta": (logistic(classes=(0, 1), bounds=(0, 1), delta=1e-6, random_state=SEED), two),
        "logistic iterates": (logistic(classes=(0, 1), bounds=(0, 1), release="iterates", random_state=SEED), two),
        "logistic descent": (
            logistic(classes=(0, 1), bounds=(0, 1), method="descent", iterations=3, random_state=SEED),
            two,
        ),
        "logistic curvature": (logistic(classes=(0, 1), bounds=(0, 1), method="curvature", random_state=SEED), two),
        "logistic uneven": (
            logistic(classes=(0, 1), bounds=([0, -1, 0.5], [1, 1, 6]), one_hot=[(0, 1)], random_state=SEED),
            two,
        ),
        "softmax": (logistic(bounds=(0, 1), classes=(0, 1, 2), random_state=SEED), three),
        "text": (logistic(bounds=(0, 1), classes=("no", "yes"), random_state=SEED), np.array(["no", "yes"])[two]),
        "svc": (svc(classes=(0, 1), bounds=(0, 1), random_state=SEED), two),
        "ridge": (ridge(bounds=(0, 1), target_bounds=(-2, 2), random_state=SEED), y),
        "ridge delta": (ridge(bounds=(0, 1), target_bounds=(-2, 2), delta=1e-6, random_state=SEED), y),
        "ridge statistics": (ridge(bounds=(0, 1), target_bounds=(-2, 2), method="statistics", random_state=SEED), y),
        "ridge output": (ridge(bounds=(0, 1), target_bounds=(-2, 2), method="output", random_state=SEED), y),
        "huber": (huber(bounds=(0, 1), target_bounds=(-2, 2), random_state=SEED), y),
        "wrong bounds": (logistic(bounds=(1, 0), classes=(0, 1), random_state=SEED), two),
        "wrong epsilon": (ridge(epsilon=-1.0, row_norm=1.0, target_bounds=(-1, 1), random_state=SEED), y),
        "wrong method": (huber(method="statistics", row_norm=1.0, target_bounds=(-1, 1), random_state=SEED), y),
        "search logistic": (
            es.PrivateSearch(
                logistic(bounds=(0, 1), classes=(0, 1)), {"ridge": [1e-3, 1.0]}, epsilon=3.0, random_state=SEED
            ),
            two,
        ),
        "search ridge": (
            es.PrivateSearch(
                ridge(bounds=(0, 1), target_bounds=(-1, 1)),
                {"ridge": [1e-2, 1.0]},
                epsilon=9.0,
                trials=2,
                random_state=SEED,
            ),
            y,
        ),
    }

    def fitted(name: str) -> Any:
        model, targets = models[name]
        model = model.fit(X, targets)
        answer: dict[str, Any] = {"predict": encoded(np.asarray(model.predict(X[:20])))}
        for attribute in ("coef_", "intercept_", "best_params_", "certificate_", "classes_", "n_features_in_"):
            if hasattr(model, attribute):
                answer[attribute] = json.loads(_stable(json.dumps(encoded(getattr(model, attribute)))))
        for method in ("predict_proba", "decision_function"):
            if hasattr(model, method):
                answer[method] = encoded(getattr(model, method)(X[:10]))
        if not name.startswith("search"):
            answer["scores"] = _stable(str(es.unprotected_scores(model, X, targets)))
        answer["plan"] = texts(_stable(str(model.plan(N, 3))))
        return answer

    for name in models:
        yield f"estimator | {name}", lambda n=name: fitted(n)


def _audits() -> Iterator[tuple[str, Callable[[], Any]]]:
    cases = [("gd", "pure"), ("nesterov", "approximate"), ("objective", "pure")]
    cases += [("statistics", "concentrated"), ("curvature", "pure")]

    def audited(method: str, budget: str) -> Any:
        plan = {"iterations": 2} if method in STEPS else {}
        loss = "squared" if method == "statistics" else "logistic"
        return encoded(
            es.audit(plan_of(_question(method, budget, loss, "cube", plan=plan)), repetitions=15, seed=3).to_dict()
        )

    for method, budget in cases:
        yield f"audit | {method} | {budget}", lambda m=method, b=budget: audited(m, b)


class _Stop(Exception):
    """An interruption."""


def _checkpoints() -> Iterator[tuple[str, Callable[[], Any]]]:
    def resumed(method: str, options: dict[str, Any]) -> Any:
        folder = FOLDER.path
        assert folder is not None
        question = _question(method, "pure", "logistic", "box", plan={"iterations": 6} | options, repetitions=2)
        plan, file = plan_of(question), folder / f"{method} {len(options)}.run"
        rows, heard = rows_of(plan.problem, "numpy"), []

        def interrupt(t: int) -> None:
            heard.append(t)
            if t == 3:
                raise _Stop

        with contextlib.suppress(_Stop):
            es.run(plan, rows, **question["run"], checkpoint=file, on_step=interrupt, anyway=True)
        run = es.run(plan, rows, **question["run"], checkpoint=file, on_step=heard.append, anyway=True)
        return {"path": encoded(run.path), "heard": heard}

    for method, options in (("multistage", {}), ("nesterov", {"batch": 50})):
        yield f"checkpoint | {method} | {options}", lambda m=method, o=options: resumed(m, o)


def _ledgers() -> Iterator[tuple[str, Callable[[], Any]]]:
    def spent(composition: str) -> Any:
        folder = FOLDER.path
        assert folder is not None
        ledger = es.Ledger(folder / f"{composition}.db")
        ledger.create("people", es.Approximate(3.0, 1e-5), composition=composition, note="golden")
        answer: list[Any] = []
        for method, budget in (
            ("nesterov", "pure"),
            ("objective", "approximate"),
            ("curvature", "concentrated"),
            ("gd", "pure"),
        ):
            plan = plan_of(_question(method, budget, "logistic", "box"))
            rows = rows_of(plan.problem, "numpy")
            answer.append(
                refused(lambda p=plan, r=rows: [es.run(p, r, seed=1, ledger=ledger.account("people")), None][1])
            )
            answer.append([encoded(ledger.spent("people")), encoded(ledger.remaining("people"))])
        # The order of the cells is that of the file's format; what is dated is not compared.
        answer += [_stable(json.dumps(entry.to_dict(), sort_keys=True)) for entry in ledger.entries()]
        return answer

    for composition in ("adaptive", "numerical", "plain", "simple"):
        yield f"ledger | {composition}", lambda c=composition: spent(c)


@cache
def numbers() -> dict[str, Callable[[], Any]]:
    """Return every other question by its name."""
    parts = (_smoothness, _targets, _checks, _estimators, _audits, _checkpoints, _ledgers)
    return dict(itertools.chain.from_iterable(part() for part in parts))


# --- the command line -------------------------------------------------------------------------------------------------

_SCHEMA = """target = "y"

[columns.age]
type = "numeric"
low = 18
high = 90

[columns.income]
type = "numeric"
low = 0
high = 200000
missing = true

[columns.job]
type = "category"
values = ["clerk", "nurse", "driver"]

[columns.y]
"""
_TARGETS = {
    "two": 'type = "category"\nvalues = ["well", "ill"]\n',
    "three": 'type = "category"\nvalues = ["low", "mid", "high"]\n',
    "number": 'type = "numeric"\nlow = 0\nhigh = 100\n',
}
_COMMANDS = ("audit", "compare", "fit", "plan", "predict", "reproduce", "ledger", "schema")
_SUBCOMMANDS = [("ledger", name) for name in ("create", "show", "history", "verify", "export")]
_SUBCOMMANDS += [("schema", name) for name in ("draft", "show", "check")]


def _table(kind: str, seed: int = 5) -> str:
    rng = np.random.default_rng(seed)
    lines = ["age,income,job,y"]
    for _ in range(400):
        age, income, job = rng.integers(15, 95), rng.integers(0, 210_000), rng.choice(["clerk", "nurse", "driver", "?"])
        score = (age - 54) / 18 - income / 100_000 + rng.integers(-10, 10) / 10 + 0.9
        y = {
            "two": "ill" if score > 0 else "well",
            "three": "low" if score < -0.7 else "mid" if score < 0.7 else "high",
            "number": round(50 + 12 * float(score), 1),
        }[kind]
        lines.append(f"{age},{income if rng.random() > 0.1 else ''},{job},{y}")
    return "\n".join(lines) + "\n"


def _files(folder: Path) -> None:
    (folder / "test.csv").write_text(_table("two", seed=6))
    for kind, target in _TARGETS.items():
        (folder / f"{kind}.csv").write_text(_table(kind))
        (folder / f"{kind}.toml").write_text(_SCHEMA + target)


_FIT = "fit {f}/%s.csv --schema {f}/%s.toml --epsilon 2 --seed 7 --yes --out {f}/%s"
COMMANDS: dict[str, str] = {
    "version": "--version",
    "help": "--help",
    **{f"help-{name}": f"{name} --help" for name in _COMMANDS},
    **{f"help-{a}-{b}": f"{a} {b} --help" for a, b in _SUBCOMMANDS},
    "plan": "plan --n 10000 --d 4 --method nesterov",
    "plan-delta": "plan --n 10000 --d 4 --epsilon 0.5 --delta 1e-6 --method multistage --T 8",
    "plan-rho-json": "plan --n 5000 --d 3 --method nesterov --rho 0.1 --T 4 --json",
    "plan-batch": "plan --n 100000 --d 3 --batch 2000 --T 6 --loss squared --target-bound 2 --norm 2 --intercept "
    "--method nesterov",
    "plan-uniform": "plan --n 10000 --d 4 --allocation uniform --T 5 --method gd --c 0.5",
    "plan-target": "plan --n 100000 --d 4 --release final --target-error 0.2 --max-iterations 100",
    "plan-out": "plan --n 10000 --d 4 --T 3 --method restarted-nesterov --out {f}/plan.json",
    "fit-same-table": _FIT % ("two", "two", "same") + " --test {f}/two.csv",
    "plan-refused": "plan --n 0 --d 4",
    "plan-option": "plan --n 10 --d 4 --colour red",
    "schema-show": "schema show {f}/two.toml",
    "schema-check": "schema check {f}/two.csv --schema {f}/two.toml",
    "schema-draft": "schema draft {f}/number.csv --target y",
    "schema-missing": "schema show {f}/none.toml",
    "ledger-create": "ledger create {f}/budget.db people --epsilon 5 --note why",
    "fit-two": _FIT % ("two", "two", "two") + " --test {f}/test.csv --ledger {f}/budget.db --dataset people",
    "fit-three": _FIT % ("three", "three", "three") + " --delta 1e-6 --release iterates",
    "fit-number": _FIT % ("number", "number", "number"),
    "fit-statistics": _FIT % ("number", "number", "statistics") + " --method statistics",
    "fit-curvature": _FIT % ("two", "two", "curvature") + " --method curvature --release iterates --json",
    "fit-twice": _FIT % ("two", "two", "two"),
    "fit-overdrawn": _FIT % ("two", "two", "other") + " --epsilon 4 --ledger {f}/budget.db --dataset people",
    "predict-two": "predict {f}/two {f}/two.csv --proba",
    "predict-three": "predict {f}/three {f}/three.csv",
    "predict-number": "predict {f}/number {f}/number.csv",
    "predict-missing": "predict {f}/none {f}/number.csv",
    "ledger-show": "ledger show {f}/budget.db",
    "ledger-show-json": "ledger show {f}/budget.db --json",
    "ledger-history": "ledger history {f}/budget.db people",
    "ledger-verify": "ledger verify {f}/budget.db",
    "ledger-export": "ledger export {f}/budget.db",
    "audit-json": "audit --d 2 --method nesterov --T 2 --delta 1e-5 --repetitions 60 --json",
    "audit-plan": "audit {f}/plan.json --repetitions 60",
}
# Files that these commands leave behind, of which digests are kept; of the first model, the whole.
LEFT = [
    f"{kind}/{file}"
    for kind in ("two", "three", "number", "statistics", "curvature")
    for file in ("model.json", "report.html")
]
LEFT += ["plan.json"]


@cache
def command_answers(folder: Path) -> dict[str, Any]:
    """Run all commands, one after the other, and return what each says and what they leave behind."""
    from typer.testing import CliRunner

    from epsteps.cli import app

    _files(folder)
    runner = CliRunner(env={"COLUMNS": "110", "TERMINAL_WIDTH": "110", "NO_COLOR": "1"})
    answers: dict[str, Any] = {}
    for name, line in COMMANDS.items():
        arguments = [part.format(f=folder) for part in line.split()]
        result = runner.invoke(app, arguments, terminal_width=110)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        said = [f"$ epsteps {line.replace('{f}', 'FOLDER')}", f"exit code {result.exit_code}", "", result.output]
        answers[f"{name}.txt"] = _trimmed(_stable("\n".join(said)), name)
    for file in LEFT:
        text = _stable((folder / file).read_text())
        answers[file] = texts(text)
        if file in ("two/model.json",):
            answers["model.json"] = text
        if file == "two/report.html":
            answers["report.html"] = text
    return answers


def _trimmed(text: str, name: str) -> str:
    """Return a text in lines without blanks at their ends; of predictions the first lines and a digest of all."""
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if not name.startswith(("predict-", "fit-curvature")):
        return text
    digest = texts(text)
    return "\n".join([*text.splitlines()[:25], f"... words {digest['words']}"]) + "\n"


# --- signatures -------------------------------------------------------------------------------------------------------


def signatures() -> str:
    """Return the public names with their parameters and defaults, and the public members of classes; no annotations."""
    lines: list[str] = []
    for module in ("epsteps", "epsteps.estimators", "epsteps.testing", "epsteps.bounds", "epsteps.budgets"):
        found = import_module(module)
        for name in found.__all__:
            value = getattr(found, name)
            lines += [f"{module}.{name}{text}" for text in _described(value)]
    return "\n".join(sorted(set(lines))) + "\n"


def _described(value: Any) -> Iterator[str]:
    if not isinstance(value, type):
        yield _signature(value) if callable(value) else f": {type(value).__name__}"
        return
    bases = [base.__name__ for base in value.__mro__[1:] if issubclass(base, Exception)]
    yield _signature(value) + (f" is {bases[0]}" if bases else "")
    fields = getattr(value, "__dataclass_fields__", {})
    for name in sorted({*dir(value), *fields}):
        if name.startswith("_"):
            continue
        owner = next((base for base in value.__mro__ if name in vars(base) or name in fields), None)
        if owner is None or not owner.__module__.startswith("epsteps"):
            continue
        member = inspect.getattr_static(value, name, None)
        if name in fields:
            yield f".{name}: field"
        elif isinstance(member, staticmethod | classmethod):
            yield f".{name}{_signature(member.__func__)} of the class"
        elif inspect.isfunction(member):
            yield f".{name}{_signature(member)}"
        else:
            yield f".{name}: attribute"


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(?)"
    parameters = [_bare(parameter) for parameter in signature.parameters.values()]
    return _stable(str(inspect.Signature(parameters)))


class _Ellipsis:
    """A default that is not written out, since it is no plain value."""

    def __repr__(self) -> str:
        return "..."


def _bare(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter without its annotation, and with a default that reads the same everywhere."""
    if " at 0x" in (text := _stable(repr(parameter.default))) or len(text) > 100:
        parameter = parameter.replace(default=_Ellipsis())
    return parameter.replace(annotation=inspect.Parameter.empty)


# --- files ------------------------------------------------------------------------------------------------------------


def _write_table(name: str, answers: dict[str, Any]) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in answers.items()]
    (HERE / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read(name: str) -> Any:
    """Return a golden file: a table, or a text."""
    text = (HERE / name).read_text()
    return json.loads(text) if name in TABLES else text


TABLES = ("paths.json", "plans.json", "numbers.json", "files.json", "machine.json")


def write_paths() -> None:
    """Write what runs publish."""
    _write_table("paths.json", {name: path_answer(question) for name, question in questions().items()})


def plan_questions() -> dict[str, dict[str, Any]]:
    """Return the questions whose plans differ: one of each."""
    different: dict[str, dict[str, Any]] = {}
    for question in questions().values():
        run = {"seed": SEED, "arithmetic": "exact"}
        changed = question | {"source": "numpy", "run": run}
        different.setdefault(_named(changed), changed)
    return different


def write_plans() -> None:
    """Write what plans say: digests of all, and some as a whole."""
    _write_table("plans.json", {name: plan_answer(question) for name, question in plan_questions().items()})
    (HERE / "plans").mkdir(exist_ok=True)
    for name in WHOLE:
        plan = whole_plan(name)
        (HERE / "plans" / f"{name}.json").write_text(plan.to_json())
        (HERE / "plans" / f"{name}.txt").write_text(str(plan))


def write_numbers() -> None:
    """Write bought constants, targets, checks, estimators, audits, resumed runs and ledgers."""
    _write_table("numbers.json", {name: refused(call) for name, call in numbers().items()})


def write_commands() -> None:
    """Write what the command line says, and digests of the files that it leaves."""
    assert FOLDER.path is not None
    (HERE / "cli").mkdir(exist_ok=True)
    answers = command_answers(FOLDER.path)
    for name, answer in answers.items():
        if isinstance(answer, str):
            (HERE / "cli" / name).write_text(answer)
    _write_table("files.json", {name: answer for name, answer in answers.items() if not isinstance(answer, str)})


def write_signatures() -> None:
    """Write the public signatures."""
    (HERE / "signatures.txt").write_text(signatures())


PARTS = {
    "paths": write_paths,
    "plans": write_plans,
    "numbers": write_numbers,
    "cli": write_commands,
    "signatures": write_signatures,
}


def main(parts: list[str]) -> None:
    """Write these parts, or all."""
    stored = read("machine.json")["floats"] if (HERE / "machine.json").exists() else fingerprint()
    if parts and stored != fingerprint():
        raise SystemExit("This machine rounds otherwise than the one that wrote the other parts: write all of them.")
    with FOLDER.opened(), small_machine():
        for part in parts or PARTS:
            PARTS[part]()
    _write_table("machine.json", {"floats": fingerprint()})


if __name__ == "__main__":
    main(sys.argv[1:])
