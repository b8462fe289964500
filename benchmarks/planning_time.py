"""Time plans of every method, best of some: `PYTHONPATH=src python benchmarks/planning_time.py`, for any tree.

Run two trees alternately to compare them: on a shared machine single runs differ by more than the trees do.
"""

import time
from collections.abc import Callable

import epsteps as es

LOGISTIC = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
SQUARED = es.Problem(es.Squared(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
DELTA = es.Approximate(1.0, 1e-6)
PLANS: dict[str, Callable[[], object]] = {
    "nesterov": lambda: es.plan(LOGISTIC, es.Pure(1.0)),
    "nesterov, exact error": lambda: es.plan(LOGISTIC, es.Pure(1.0), objective="exact"),
    "nesterov, batch": lambda: es.plan(LOGISTIC, es.Pure(1.0), batch=1000, max_iterations=300),
    "nesterov, delta": lambda: es.plan(LOGISTIC, DELTA),
    "final": lambda: es.plan(LOGISTIC, es.Pure(1.0), release="final"),
    "final, delta": lambda: es.plan(LOGISTIC, DELTA, release="final"),
    "iterates": lambda: es.plan(LOGISTIC, es.Pure(1.0), release="iterates"),
    "final, squared loss": lambda: es.plan(SQUARED, es.Pure(1.0), release="final"),
    "200 steps as JSON": lambda: es.plan(LOGISTIC, es.Pure(1.0), iterations=200).to_json(),
}


def milliseconds(make: Callable[[], object], repeats: int = 15) -> float:
    """Return the shortest of some times, after one that is not counted."""
    make()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        make()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


if __name__ == "__main__":
    print(es.__file__)
    for name, make in PLANS.items():
        print(f"{name:<24} {milliseconds(make):8.2f} ms")
