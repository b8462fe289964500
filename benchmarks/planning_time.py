"""CPU time of plans of every method, best of some: `PYTHONPATH=src python benchmarks/planning_time.py`, for any tree.

Run two trees alternately to compare them: on a shared machine single runs differ by more than the trees do.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import epsteps as es
from epsteps.budgets import Budget

LOGISTIC = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
SQUARED = es.Problem(es.Squared(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
DELTA = es.Approximate(1.0, 1e-6)
PLANS: dict[str, Callable[[], object]] = {
    "nesterov": lambda: es.plan(LOGISTIC, es.Pure(1.0), es.nesterov),
    "nesterov, exact error": lambda: es.plan(LOGISTIC, es.Pure(1.0), es.nesterov, objective="exact"),
    "nesterov, batch": lambda: es.plan(LOGISTIC, es.Pure(1.0), es.nesterov, batch=1000, max_iterations=300),
    "nesterov, delta": lambda: es.plan(LOGISTIC, DELTA, es.nesterov),
    "final": lambda: es.plan(LOGISTIC, es.Pure(1.0), release="final"),
    "final, delta": lambda: es.plan(LOGISTIC, DELTA, release="final"),
    "iterates": lambda: es.plan(LOGISTIC, es.Pure(1.0), release="iterates"),
    "final, squared loss": lambda: es.plan(SQUARED, es.Pure(1.0), release="final"),
    "200 steps as JSON": lambda: es.plan(LOGISTIC, es.Pure(1.0), es.nesterov, iterations=200).to_json(),
}
# Problems whose recommended plan is timed, with either budget: one small, two of the size of real tables, one wide.
SIZES = {"200 x 3": (200, 3), "20 640 x 8": (20_640, 8), "45 222 x 105": (45_222, 105), "60 000 x 1000": (60_000, 1000)}
LOSSES = {
    "logistic": es.Logistic(),
    "squared": es.Squared(),
    "pseudo-Huber": es.PseudoHuber(1.0, c=0.2),
    "hinge": es.SmoothedHinge(),
    "softmax": es.Softmax(tuple(range(7))),
}


def recommended(loss: es.Loss, n: int, d: int, budget: Budget) -> Callable[[], object]:
    """Return what plans a final model, each time for one record more: no number is remembered from the last time."""
    problem = es.Problem(loss, es.Box(0, 1), ridge=1e-4, n=n, d=d, intercept=True)
    more = count(n)
    return lambda: es.plan(replace(problem, n=next(more)), budget, release="final")


def milliseconds(make: Callable[[], object], repeats: int = 9) -> float:
    """Return the shortest of some times, after one that is not counted."""
    make()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        make()
        times.append(time.process_time() - begin)
    return 1e3 * min(times)


if __name__ == "__main__":
    print(es.__file__)
    for name, make in PLANS.items():
        print(f"{name:<24} {milliseconds(make):8.2f} ms")
    print("final, by loss and size; pure, and with a delta")
    for kind, loss in LOSSES.items():
        for size, (n, d) in SIZES.items():
            pure, delta = (milliseconds(recommended(loss, n, d, budget)) for budget in (es.Pure(1.0), DELTA))
            print(f"{kind + ', ' + size:<32} {pure:8.2f} ms {delta:8.2f} ms")
