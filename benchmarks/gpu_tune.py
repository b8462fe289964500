"""What `python benchmarks/gpu.py` compares with the NumPy engine (`--check`), and which shapes it tries (`--tune`)."""

from functools import partial
from typing import Any

import numpy as np
from gpu import LOGISTIC, attempt, milliseconds, on_grid, points_of, problem_of, records

import epsteps as es
from epsteps.data.dense import DenseEngine
from epsteps.data.engine import require_exact
from epsteps.data.gpu import TorchEngine, launch
from epsteps.data.gpu import batched_launch as batched
from epsteps.problem.grid import Grid, Points

CHECKED = ((7, 3), (1003, 1), (20_011, 20), (40_003, 65), (9001, 130), (3001, 1000))

# What is tried: tiles of records, points, warps, and whether a thread holds whole records.
_LOCAL = [(32 * warps, C, warps, True) for warps in (1, 2, 4, 8) for C in (1, 2, 4)]
_WIDE = [(512, 1, 4, False), (256, 1, 2, False), (128, 1, 1, False), (128, 1, 2, False)]
_SPLIT = [(32, 1, 4, True), (32, 1, 8, True), (32, 1, 16, True), (32, 1, 4, False), (64, 1, 4, False)]
_PAIRS = [(32, 2, 4, True), (32, 2, 8, True)]
TUNED = (
    (
        20_000_000,
        20,
        (
            ("exact", 1, _LOCAL[::3] + _WIDE),
            ("exact", 20, [shape for shape in _LOCAL if shape[1] < 4]),
        ),
    ),
    (5_000_000, 100, (("exact", 1, _SPLIT), ("exact", 20, _SPLIT[:3] + _PAIRS))),
)
# For many points: records and features, and tiles of records and features with warps.
_BATCHED = (
    (10_000_000, 10, "gradient", [(32, 16, 1), (64, 16, 2), (64, 16, 4)]),
    (10_000_000, 20, "gradient", [(32, 32, 1), (64, 32, 2), (64, 32, 4)]),
    (5_000_000, 50, "gradient", [(32, 64, 2), (64, 64, 4), (32, 64, 4)]),
    (5_000_000, 100, "gradient", [(32, 128, 2), (32, 128, 4), (64, 128, 4)]),
    (1_000_000, 1000, "slopes", [(64, 64, 4), (128, 64, 4), (128, 32, 4)]),
    (1_000_000, 1000, "gradient", [(32, 128, 4), (64, 64, 4), (32, 256, 8)]),
    (1_000_000, 1000, "loss", [(128, 64, 4), (64, 64, 4)]),
)


def check() -> dict[str, Any]:
    """Compare with the NumPy engine on ragged shapes, whole and in blocks."""
    rng, failures, compared, fewest = np.random.default_rng(0), [], 0, batched.FEWEST
    batched.FEWEST = 0  # or the kernels for many points would not be tried on few records
    for loss in (LOGISTIC, es.Squared(bound=1.5)):
        for n, d in CHECKED:
            problem = es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=d)
            X, y = rng.uniform(-1.2, 1.2, (n, d)), loss.encode(rng.choice([-1.0, 1.0], n))
            grid, reference = Grid(problem), DenseEngine(problem, X, y)
            for memory in (None, 16_000 * (d + 1)):
                engine = TorchEngine(problem, X, y, memory=memory)
                for columns in (1, 2, 5, 20) + (70,) * (d == 20):
                    x, rows = points_of(d, columns), rng.permutation(n)[: n // 2 + 1]
                    points = grid.points(x * np.geomspace(1e-40, 1e3, columns)[::-1], 1.0)
                    wrong = differences(reference, engine, x, points, rows)
                    compared += 1
                    failures += [f"{type(loss).__name__} {n}x{d} {memory=} {columns=}: {what}" for what in wrong]
    failures += end_to_end()
    batched.FEWEST = fewest
    failures += overflowing() + end_to_end()
    require_exact(TorchEngine, "gpu")
    print("\n".join(failures) or f"check: {compared} cases agree", flush=True)
    return {"cases": compared, "failures": failures}


def differences(reference: Any, found: Any, x: np.ndarray, points: Points, rows: np.ndarray) -> list[str]:
    """Return what differs between two engines."""

    def far(what: str, *arguments: Any) -> bool:
        a, b = (getattr(engine, what)(*arguments) for engine in (reference, found))
        return not np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(a)

    wrong = [what for what in ("mean_gradient", "mean_loss") if far(what, x)]
    wrong += ["mean_gradient of a subset"] * far("mean_gradient", x, rows) + ["hessian"] * far("hessian", x[:, 0])
    for name, arguments in (("sum", (points,)), ("sum of a subset", (points, rows))):
        if not np.array_equal(*(engine.sums(*arguments) for engine in (reference, found))):
            wrong.append(name)
    return wrong


def overflowing(n: int = 5_000_011) -> list[str]:
    """Sum records as large as they may be: more than one int64 and many doubles can hold."""
    problem = es.Problem(LOGISTIC, es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=3)
    features, y = np.ones((n, 3), dtype=np.float32), np.where(np.arange(n) % 1000 == 0, 1.0, -1.0)
    points = Grid(problem).points(np.array([[30.0], [0.3], [0.1]]), 1.0)
    same = np.array_equal(*(make(problem, features, y).sums(points) for make in (DenseEngine, TorchEngine)))
    return [] if same else ["a sum beyond 64 bits"]


def end_to_end(n: int = 20_011, d: int = 20) -> list[str]:
    """Compare what a user calls: the objective, its gradient, private sums, and the path of a seeded run."""
    rng, wrong = np.random.default_rng(1), []
    for loss in (LOGISTIC, es.Squared(bound=1.5)):
        problem = es.Problem(loss, es.Ball(1, norm=2), ridge=0.1, n=n, d=d, intercept=True)
        X, y = rng.uniform(-1, 1, (n, d)), rng.choice([-1, 1], n)
        card, reference = (es.Rows(problem, X, y, engine=name) for name in ("gpu", "numpy"))
        for columns in (1, 20):
            x = points_of(problem.dimension, columns)
            for what in ("gradient", "value"):
                a, b = (getattr(data, what)(x) for data in (reference, card))
                wrong += [] if np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(a) else [f"Rows.{what}, {columns=}"]
            points = Grid(problem).points(x, 1.0)
            wrong += [] if np.array_equal(reference.sums(points), card.sums(points)) else [f"Rows.sums, {columns=}"]
        for batch in (None, 1000):
            plan = es.plan(problem, es.Pure(1.0), es.multistage, iterations=20, batch=batch)
            a, b = (es.run(plan, data, seed=1, repetitions=3, arithmetic="exact").path for data in (reference, card))
            wrong += [] if np.array_equal(a, b) else [f"a seeded run, {batch=}"]
    return wrong


def tune() -> dict[str, Any]:
    """Try shapes of programs, put the fastest into the kernels' table, and return them."""
    results: dict[str, Any] = {}
    for n, d, sums in TUNED:
        block, x = records(n, d), points_of(d, 20)
        for what, columns, shapes in sums:
            if what == "exact" and float(block.features.max()) <= 1:
                on_grid(block)
            at = Grid(problem_of(d)).points(x[:, :columns], 1.0) if what == "exact" else x[:, :columns]
            found = sorted(
                (taken, shape)
                for B, C, warps, scalar in shapes
                for each in (4, 8, 16)
                for shape in [launch.Shape(B, C, warps, each, scalar)]
                for taken in [attempt(partial(milliseconds, partial(getattr(launch, what), block, at, 0, shape), 3))]
                if isinstance(taken, float)
            )
            results[f"{what}, {d} features, {columns} points"] = [(t, *s) for t, s in found[:4]]
            print(what, n, d, columns, "; ".join(f"{t:.3f} ms {tuple(s)}" for t, s in found[:5]), flush=True)
            if found:
                D, best = launch.padded(d), found[0][1]
                launch._SHAPES[what][columns > 1][min(D, 256)] = best._replace(B=best.B * D // min(D, 256))
    return results | tune_batched()


def tune_batched() -> dict[str, Any]:
    """Try shapes for 20 points, put the fastest into their table, and return them."""
    results: dict[str, Any] = {}
    for n, d, what, shapes in _BATCHED:
        block, x = records(n, d), points_of(d, 20)
        call = partial(batched.loss if what == "loss" else batched.gradient, block, x, 0)
        table, key = batched.SHAPES[what], min(launch.padded(d), 256)
        least, found = table[key].least, []
        for B, F, warps in shapes:
            for stages in (1, 2, 3):
                for each in (4, 8, 24):
                    table[key] = shape = batched.Shape(least, B, F, warps, stages, each)
                    taken = attempt(partial(milliseconds, call, 3))
                    found += [(taken, shape)] if isinstance(taken, float) else []
        found.sort()
        table[key] = found[0][1]
        results[f"{what}, {d} features, 20 points"] = [(t, *s) for t, s in found[:4]]
        print(what, n, d, 20, "; ".join(f"{t:.3f} ms {tuple(s)}" for t, s in found[:5]), flush=True)
    return results
