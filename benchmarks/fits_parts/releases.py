"""Every kind of release, each as the problem and the plan that lead to it."""

from collections.abc import Callable

import numpy as np

import epsteps as es
from epsteps.methods.bought import SmoothnessPlan

BUDGET = es.Pure(1.0)
STEPS = 8
STEPS_NAME = f"{STEPS} exact steps"
_LOGISTIC = es.Logistic()
# For each release the loss, and what plans it.
RELEASES: dict[str, tuple[es.Loss, Callable[[es.Problem], es.Plan]]] = {
    STEPS_NAME: (_LOGISTIC, lambda problem: es.plan(problem, BUDGET, es.nesterov, iterations=STEPS)),
    "final": (_LOGISTIC, lambda problem: es.plan(problem, BUDGET, release="final")),
    "iterates": (_LOGISTIC, lambda problem: es.plan(problem, BUDGET, release="iterates")),
    "sequential": (_LOGISTIC, lambda problem: es.plan(problem, BUDGET, "sequential")),
    "output": (_LOGISTIC, lambda problem: es.plan(problem, BUDGET, "output")),
    "curvature": (_LOGISTIC, lambda problem: es.plan(problem, BUDGET, "curvature")),
    "statistics": (es.Squared(1.0), lambda problem: es.plan(problem, BUDGET, "statistics")),
    "smoothness": (_LOGISTIC, lambda problem: SmoothnessPlan(problem, BUDGET, 0.999)),
}


def planned(name: str, n: int, d: int) -> es.Plan:
    """Return the plan of a release for records in the unit cube around 0, whose targets are -1 and 1."""
    loss, plan = RELEASES[name]
    return plan(es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.02, n=n, d=d))
