"""What a call costs, and what many cost at their best. It imports nothing that a peer's own environment lacks."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import peak_memory

# What ``fitted`` says of fits, in order.
NUMBERS = ("cpu", "wall", "grown", "peak", "first", "first wall")
# Whose largest value counts, where the smallest of all rounds counts of everything else.
LARGEST = ("grown", "peak")
_PEAK = Path("/proc/self/clear_refs")


def watched(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what the call returns, its CPU and wall seconds, and what memory was resident: grown by, and at most."""
    gc.collect()
    if _PEAK.exists():
        _PEAK.write_text("5")  # the kernel then counts the largest resident set from now on
    before, wall, cpu = peak_memory(), time.perf_counter(), time.process_time()
    answer = call()
    cpu, wall, peak = time.process_time() - cpu, time.perf_counter() - wall, peak_memory()
    return answer, {"cpu": cpu, "wall": wall, "grown": peak - before, "peak": peak}


def fitted(fit: Callable[[], Any], again: int = 1) -> tuple[Any, dict[str, float]]:
    """Return what the last fit returns, and the costs of the first one and the best of those that follow."""
    _, first = watched(fit)
    later = [watched(fit) for _ in range(again)]
    costs = smallest([cost for _, cost in later])
    memory = {key: max(first[key], costs[key]) for key in LARGEST}
    return later[-1][0], costs | {"first": first["cpu"], "first wall": first["wall"]} | memory


def smallest(costs: list[dict[str, float]]) -> dict[str, float]:
    """Return the best of each number: the smallest, but of memory the largest."""
    return {key: (max if key in LARGEST else min)(cost[key] for cost in costs) for key in costs[0]}


def alternated(ways: dict[str, Callable[[], dict]], rounds: int) -> dict[str, dict]:
    """Return the best numbers of each way over rounds in which all take turns: a busy machine is busy for all."""
    found: dict[str, dict] = {}
    for number in range(rounds):
        for name, way in ways.items():
            if number == 0:
                found[name] = way()
            elif "refused" not in found[name]:
                found[name] = smallest([found[name], way()])
    return found
