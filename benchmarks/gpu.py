"""The gpu engine on a CUDA card against one read of the same records: `python benchmarks/gpu.py` (about five minutes).

``--check`` compares with the NumPy engine first: floats to 1e-5, private sums and runs number by number. ``--tune``
tries other shapes of the kernels' programs and uses the fastest. ``--fits`` measures whole fits and their parts
instead, and checks them if ``--check`` is there. ``--out FOLDER`` writes gpu.json and gpu.md. What fails is printed,
and the rest goes on. Records are drawn on the card.
"""

import argparse
import gc
import json
import platform
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import epsteps as es
from epsteps.data.gpu import TorchEngine
from epsteps.data.gpu import operations as ops
from epsteps.data.gpu.records import FEATURE_MAJOR, Block
from epsteps.paper.compare import minimiser, paper_problem
from epsteps.paper.published import paper_smoothness, published_data
from epsteps.paper.sweep import PAPER_L, Sweep, planned, run_sweep
from epsteps.problem.grid import STEPS, Grid, total

# Records, features, and how many times one read a gradient may take.
SINGLE = ((200_000_000, 20, 1.10), (50_000_000, 100, 1.10), (4_000_000, 1000, 1.25))
# Records, features, and points, which must be ten times faster than one by one with torch.
BATCHED = ((10_000_000, 20, 20), (5_000_000, 100, 20), (1_000_000, 1000, 20))
LOGISTIC = es.Logistic()


def milliseconds(f: Callable[[], Any], repeats: int = 9) -> float:
    """Return the median time between two events on the card, host work in between included."""
    for _ in range(2):
        f()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        f()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def records(n: int, d: int) -> Block:
    """Return records uniform on [-1, 1] with labels by chance, on the card."""
    torch.manual_seed(n + d)
    shape = (d, n) if d <= FEATURE_MAJOR else (n, d)
    features = torch.rand(shape, device="cuda").mul_(2).sub_(1)
    labels = torch.randint(0, 2, (n,), device="cuda").float().mul_(2).sub_(1)
    return Block(features if d <= FEATURE_MAJOR else features.T, labels, n)


def on_grid(block: Block) -> Block:
    """Turn the records into integers, in place."""
    block.features.mul_(STEPS).round_()
    return block


def problem_of(d: int) -> es.Problem:
    return es.Problem(LOGISTIC, es.Ball(1, norm=np.inf), ridge=0.1, n=10, d=d)


def points_of(d: int, columns: int) -> np.ndarray:
    return np.random.default_rng(d).standard_normal((d, columns)) / np.sqrt(d)


def eager(X: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (-y * torch.sigmoid(-y * (X @ x))) @ X


compiled = torch.compile(eager)


def by_torch(block: Block, x: np.ndarray, read: float) -> dict[str, Any]:
    """Time what one would write with torch, on records that lie row by row."""
    rows, at = block.features.T.contiguous(), torch.tensor(x[:, 0], device="cuda", dtype=torch.float32)
    return {
        "eager": milliseconds(lambda: eager(rows, block.targets, at), 5) / read,
        "compile": attempt(lambda: milliseconds(lambda: compiled(rows, block.targets, at), 5) / read),
    }


def single(n: int, d: int, target: float) -> dict[str, Any]:
    """Time one gradient, the loss and the exact sum against one read of features and targets."""
    block, x = records(n, d), points_of(d, 1)
    engine = TorchEngine._on_device(problem_of(d), block)
    stored = block.features if d <= FEATURE_MAJOR else block.features.T
    read = milliseconds(lambda: (stored.max(), block.targets.max()))
    row: dict[str, Any] = {"records": n, "features": d, "read_ms": read, "TB_per_s": 4 * n * (d + 1) / read / 1e9}
    row["features_alone_ms"] = milliseconds(lambda: stored.max())
    row["target"] = target
    row["gradient"] = milliseconds(lambda: engine.mean_gradient(x)) / read
    row["loss"] = milliseconds(lambda: engine.mean_loss(x)) / read
    found = engine.mean_gradient(x)
    exact = ops.gradient(block, torch.tensor(x, device="cuda"), 0).cpu().numpy() / n
    row["relative_error"] = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    row["repeats"] = bool(np.array_equal(found, engine.mean_gradient(x)))
    row |= by_torch(block, x, read)
    sums = TorchEngine._on_device(problem_of(d), on_grid(block)).sums
    points = Grid(problem_of(d)).points(x, 1.0)
    row["exact"] = milliseconds(lambda: sums(points)) / read
    plain = ops.exact_gradient(block, ops.Target.of(points, 0, block.features.device), 0)
    row["exact_agrees"] = bool(np.array_equal(sums(points), total(plain, n)))
    return row


def batched(n: int, d: int, columns: int) -> dict[str, Any]:
    """Time many gradients in one call against as many single ones by torch."""
    block, x = records(n, d), points_of(d, columns)
    engine = TorchEngine._on_device(problem_of(d), block)
    rows, at = block.features.T.contiguous(), torch.tensor(x, device="cuda", dtype=torch.float32).T.contiguous()
    one = milliseconds(lambda: [eager(rows, block.targets, column) for column in at])
    row: dict[str, Any] = {"records": n, "features": d, "points": columns, "eager_ms": one}
    row["gradient_ms"] = milliseconds(lambda: engine.mean_gradient(x))
    row["times_faster"], row["target"] = one / row["gradient_ms"], 10
    row["loss_ms"] = milliseconds(lambda: engine.mean_loss(x))
    exact = ops.gradient(block, torch.tensor(x, device="cuda"), 0).cpu().numpy() / n
    row["relative_error"] = float(np.linalg.norm(engine.mean_gradient(x) - exact) / np.linalg.norm(exact))
    sums = TorchEngine._on_device(problem_of(d), on_grid(block)).sums
    points = Grid(problem_of(d)).points(x, 1.0)
    row["exact_ms"] = milliseconds(lambda: sums(points))
    return row


def figure3() -> dict[str, Any]:
    """Run the configurations of figure 3 that read all records, 20 repetitions, F at every iterate."""
    X, y = published_data()
    n, d = X.shape
    problem = paper_problem(n, d)
    sweep = Sweep(variants=(PAPER_L,), batches=(n,))
    plans = planned(sweep, {PAPER_L: replace(problem, smoothness=paper_smoothness(X))})
    data = {name: es.Rows(problem, X, y, engine=name) for name in ("gpu", "numpy")}
    lowest = float(data["numpy"].value(minimiser(data["numpy"])))
    list(run_sweep(plans[:1], data["gpu"], lowest, sweep))
    begin = time.perf_counter()
    curves = list(run_sweep(plans, data["gpu"], lowest, sweep))
    seconds = time.perf_counter() - begin
    (reference,) = run_sweep(plans[:1], data["numpy"], lowest, sweep)
    iterates = sum(curve.iterations for curve in curves) * sweep.repetitions
    return {
        "configurations": len(curves),
        "repetitions_x_iterates": iterates,
        "seconds": seconds,
        "ms_per_repetition_x_iterate": 1e3 * seconds / iterates,
        "largest_difference_to_numpy": float(np.max(np.abs(curves[0].gap / reference.gap - 1))),
    }


def streamed(n: int = 20_000_000, d: int = 20) -> dict[str, Any]:
    """Time a gradient whose records stay in host memory, in blocks of at most 200 MB on the card."""
    X = np.random.default_rng(0).random((n, d), dtype=np.float32)
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    blocks, whole = (TorchEngine(problem_of(d), X, y, memory=memory) for memory in (200 * 2**20, None))
    x = points_of(d, 1)
    taken = milliseconds(lambda: blocks.mean_gradient(x), 3)
    found, expected = blocks.mean_gradient(x), whole.mean_gradient(x)
    error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    return {"records": n, "features": d, "ms": taken, "GB_per_s": X.nbytes / taken / 1e6, "relative_error": error}


def attempt(f: Callable[[], Any]) -> Any:
    """Return what f does, or what it raises in words."""
    try:
        return f()
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error)[:200]}"


def section(name: str, f: Callable[..., Any], *arguments: Any) -> Any:
    """Run one part, print it, and go on if it fails."""
    begin = time.perf_counter()
    try:
        found = f(*arguments)
    except Exception:
        found = {"failed": traceback.format_exc()[-1500:]}
    gc.collect()
    torch.cuda.empty_cache()
    print(f"{name} ({time.perf_counter() - begin:.0f} s): {json.dumps(found, default=str)}", flush=True)
    return found


def machine() -> dict[str, Any]:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    versions["triton"] = attempt(lambda: __import__("triton").__version__)
    properties = torch.cuda.get_device_properties(0)
    return {
        "card": properties.name,
        "GiB": round(properties.total_memory / 2**30),
        "cuda": torch.version.cuda,
        **versions,
    }


def markdown(results: dict[str, Any]) -> str:
    """Write every part as a table of its numbers."""
    lines = ["# The gpu engine", "", "Times in multiples of one read of features and targets, or as the unit says.", ""]
    for name, found in results.items():
        found = found if isinstance(found, dict) else {"": found}
        lines += [f"## {name}", "", "| what | value |", "| --- | --- |"]
        lines += [
            f"| {key} | {value:.4g} |" if isinstance(value, float) else f"| {key} | {value} |"
            for key, value in found.items()
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the NumPy engine first")
    parser.add_argument("--tune", action="store_true", help="try shapes of programs, and use the fastest")
    parser.add_argument("--fits", action="store_true", help="measure whole fits instead")
    parser.add_argument("--out", type=Path, help="folder for gpu.json and gpu.md")
    options = parser.parse_args()
    results = {"machine": section("machine", machine)}
    results |= of_fits(options.check) if options.fits else of_kernels(options.check, options.tune)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "gpu.json").write_text(json.dumps(results, indent=2, default=str))
        (options.out / "gpu.md").write_text(markdown(results))


def of_fits(check: bool) -> dict[str, Any]:
    """Measure whole fits."""
    import gpu_fits

    results = {"check of fits": section("check of fits", gpu_fits.check)} if check else {}
    return results | section("fits", gpu_fits.measure)


def of_kernels(check: bool, tune: bool) -> dict[str, Any]:
    """Measure single gradients and sums."""
    import gpu_tune  # which imports this file

    results: dict[str, Any] = {}
    if check:
        results["check"] = section("check", gpu_tune.check)
    if tune:
        results["tune"] = section("tune", gpu_tune.tune)
    for n, d, target in SINGLE:
        results[f"one gradient, {n} x {d}"] = section(f"one gradient, {n} x {d}", single, n, d, target)
    for n, d, columns in BATCHED:
        results[f"batched, {n} x {d}"] = section(f"batched, {n} x {d}", batched, n, d, columns)
    results["streamed"] = section("streamed", streamed)
    results["figure 3"] = section("figure 3", figure3)
    return results


if __name__ == "__main__":
    main()
