"""Whole fits on a card: `python benchmarks/gpu.py --fits` (minutes), with `--check` against the NumPy engine first.

For each shape: preparing records and copying them over, single passes of the solver by their precision and by the size
of a card's chunks, and whole fits: the first one, one of the same records raw again, and one of records on the card.
"""

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

import epsteps as es
from epsteps.data.chunks import Blocks
from epsteps.data.gpu import TorchEngine, cards
from epsteps.data.gpu import records as card
from epsteps.methods.choice import METHODS
from epsteps.problem.grid import STEPS, Grid
from epsteps.running.passes import FINE, LONG, MIDDLE, ROUGH, Bends, Digits, Slopes

SHAPES = ((10_000_000, 20), (2_000_000, 100))
QUICK_SHAPES = ((100_000, 20),)
BUDGET = es.Pure(1.0)
# Seconds that a fit of records on the card may take.
BARS = {"final": 1.0, "iterates": 2.0}
CHUNKS = (2**16, 2**17, 2**18, 2**19, 2**20)
CHECKED = ((20_011, 5), (401, 130))
LOSSES = (es.Logistic(), es.SmoothedHinge(), es.PseudoHuber(1.5), es.Softmax((0, 1, 2)), es.Squared(1.5))

Row = tuple[str, float | str]


def seconds(f: Callable[[], Any], rounds: int = 1) -> float:
    """Return the median time of a call, until the card is idle."""
    times = []
    for _ in range(rounds):
        _idle()
        begin = time.perf_counter()
        f()
        _idle()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def problem_of(n: int, d: int, loss: es.Loss = LOSSES[0]) -> es.Problem:
    return es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.02, n=n, d=d, intercept=True)


def drawn(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features in float32 and labels that depend on them."""
    rng = np.random.default_rng([n, d])
    X = rng.random((n, d), dtype=np.float32) * 2 - 1
    margins = X @ (rng.standard_normal(d) * 3 / np.sqrt(d)).astype(np.float32)
    return X, np.where(margins + rng.standard_normal(n, dtype=np.float32) > 0, 1.0, -1.0)


def parts(problem: es.Problem, X: np.ndarray, y: np.ndarray) -> list[Row]:
    """Time what a fit consists of."""
    loss, targets = problem.loss, problem.loss.encode(y)
    engine = TorchEngine(problem, X, targets)
    engine._rounded(problem, X[:1000])  # compiles
    rows: list[Row] = [("encode targets", seconds(lambda: loss.encode(y)))]
    rows.append(("prepare on the host", seconds(lambda: engine._rounded(problem, X), 3)))
    units = Grid(problem).units[: problem.width] / STEPS
    integers = [engine._rounded(problem, X)]
    rows.append(("copy to the card", seconds(lambda: engine._stored(integers[0], targets, units, exact=True), 3)))
    integers.clear()
    engine.prepare()
    x = np.random.default_rng(0).standard_normal(problem.dimension) / np.sqrt(problem.dimension)
    terms: dict[str, Any] = {
        f"pass, {name}": Slopes(loss, Digits.of(x, problem, precision), precision.limbs)
        for name, precision in (("rough", ROUGH), ("middle", MIDDLE), ("fine", FINE), ("long doubles", LONG))
    }
    rough = Digits.of(x, problem, ROUGH)
    sample = np.arange(0, problem.n, 16)
    rows += [(name, seconds(lambda term=term: engine.total(term), 5)) for name, term in terms.items()]
    rows.append(("pass, middle, of 1/16", seconds(lambda: engine.total(terms["pass, middle"], sample), 5)))
    bends = Bends(loss, rough, np.full(problem.width, 2.0**-10))
    rows.append(("rough Hessian of 1/16", seconds(lambda: engine.total(bends, sample), 5)))
    rows.append(("copy records back", seconds(lambda: engine.total(Blocks(_nothing)), 3)))
    usual = cards._ROWS
    for size in CHUNKS:
        cards._ROWS = size
        rows.append((f"pass, middle, chunks of {size}", seconds(lambda: engine.total(terms["pass, middle"]), 5)))
    cards._ROWS = usual
    return [*rows, *pieces(engine, terms["pass, middle"])]


def pieces(engine: TorchEngine, term: Slopes) -> list[Row]:
    """Time what a pass consists of: the card alone, copies of a float64 of each record, and the loss alone."""
    records, point = engine._integers, term.point

    def over(work: Callable[[cards.CardChunk], Any]) -> float:
        return seconds(lambda: cards.over(records, work, None, 8), 5)

    ones = np.ones((records.count, 1))

    def products(chunk: cards.CardChunk) -> np.ndarray:
        return cards._host(chunk._products(point.limbs)[:, :1])

    def gather(chunk: cards.CardChunk) -> np.ndarray:
        share = torch.full((1, len(chunk)), 0.3, dtype=torch.float64, device=records.device)
        return cards._host(cards.exact_product(chunk._doubles, cards._limbs(share, None, term.limbs)))

    return [
        ("of it, convert and multiply", over(products)),
        ("of it, convert, split and add", over(gather)),
        ("of it, margins and their copy", over(lambda chunk: chunk.margins(point.limbs, point.weights))),
        ("of it, the loss", over(lambda chunk: chunk.each(term._shares, ones[: len(chunk)]))),
    ]


def fits(problem: es.Problem, X: np.ndarray, y: np.ndarray, engine: str = "gpu") -> list[Row]:
    """Time whole fits."""
    rows: list[Row] = []
    for release, bar in BARS.items():
        plan = es.plan(problem, BUDGET, release=release)

        def fit(plan: es.Plan = plan) -> es.Rows:
            data = es.Rows(problem, X, y, engine=engine)
            es.run(plan, data, anyway=True)
            return data

        rows.append((f"{release} ({type(plan).__name__}), first", seconds(fit)))
        rows.append((f"{release}, again from raw records", seconds(fit)))
        data = fit()
        taken = seconds(lambda plan=plan, data=data: es.run(plan, data, anyway=True), 3)
        rows.append((f"{release}, records on the card", taken))
        rows.append((f"{release}, of its bar of {bar:g} s", taken / bar))
    return rows


def check() -> dict[str, Any]:
    """Compare seeded runs with the NumPy engine: every release and loss, records whole and in blocks, bit by bit."""
    failures, compared, free = [], 0, card._free
    for n, d in CHECKED:
        for loss in LOSSES:
            problem, (X, y) = problem_of(n, d, loss), drawn(n, d)
            y = np.digitize(X[:, 0], [-0.3, 0.3]) if loss.outputs > 1 else y
            for method in (*METHODS, es.nesterov):
                try:
                    plan = es.plan(problem, BUDGET, method, **({"iterations": 5} if method is es.nesterov else {}))
                except (TypeError, ValueError):
                    continue  # the method is not for the loss
                expected = es.run(plan, es.Rows(problem, X, y, engine="numpy"), seed=1, arithmetic="exact")
                for memory in (None, 16 * (d + 2) * 4096):
                    card._free = free if memory is None else lambda device, memory=memory: memory
                    found = es.run(plan, es.Rows(problem, X, y, engine="gpu"), seed=1, arithmetic="exact")
                    card._free = free
                    compared += 1
                    if not np.array_equal(found.path, expected.path):
                        failures.append(f"{type(loss).__name__} {n}x{d} {method} {memory=}")
    print("\n".join(failures) or f"check of fits: {compared} runs agree", flush=True)
    return {"cases": compared, "failures": failures}


def measure(quick: bool = False) -> dict[str, dict[str, float | str]]:
    """Print and return one table for each shape."""
    found = {}
    if find_spec("numba") is None:
        print("numba is not installed: records are prepared by NumPy, in one thread", flush=True)
    for n, d in QUICK_SHAPES if quick else SHAPES:
        problem, (X, y) = problem_of(n, d), drawn(n, d)
        rows = parts(problem, X, y) + fits(problem, X, y)
        print(f"\n{n} x {d}, seconds", *(f"{name:<40} {value:10.4f}" for name, value in rows), sep="\n", flush=True)
        found[f"fits, {n} x {d}"] = dict(rows)
    return found


def _nothing(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.zeros(1, dtype=np.int64)


def _idle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
