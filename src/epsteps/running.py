"""The one loop: executes a plan on private records, and decides nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from epsteps import _validate
from epsteps.budgets import Budget
from epsteps.noise import Source
from epsteps.planning import Plan
from epsteps.records import Rows


class Account(Protocol):
    """What is charged before noise is drawn."""

    def charge(self, cost: Budget, *, note: str) -> None:
        """Reserve the cost, or raise; the charge stands whatever happens afterwards."""
        ...


@dataclass(frozen=True, eq=False)
class Run:
    """What a run publishes: the iterates, the plan they came from, and whether they are private at all.

    ``path`` has T+1 iterates of length d, with a trailing axis for repetitions. A seeded run is an experiment: its
    noise can be drawn again, so that nothing in it is private.
    """

    plan: Plan
    path: np.ndarray
    seeded: bool

    @property
    def x(self) -> np.ndarray:
        """The last iterate."""
        return self.path[-1]

    @property
    def repetitions(self) -> int:
        """Number of independent runs."""
        return 1 if self.path.ndim == 2 else self.path.shape[2]

    @property
    def spent(self) -> float:
        """Epsilon (or rho) of everything published here: the steps of each repetition (not the plan's expenses)."""
        return self.plan.spending(self.repetitions).amount


def run(
    plan: Plan,
    data: Rows,
    *,
    seed: int | None = None,
    repetitions: int | None = None,
    start: np.ndarray | float | None = None,
    ledger: Account | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Run:
    """Execute a plan on records: the one function that reads private data.

    Formal guarantee: without ``seed``, publishing the whole path is private as ``plan.spending()`` says for
    replace-one neighbours, with ``repetitions`` as ``plan.spending(repetitions)`` says, up to the limits of floating
    point that ``epsteps.noise`` states.

    Parameters
    ----------
    seed : int, optional
        Makes the run repeatable and NOT private: for experiments.
    repetitions : int, optional
        Independent runs as one matrix product; the path gets a trailing axis. Each one is a release of its own.
    start : array or number, optional
        x_0, chosen without looking at the data; 0 by default.
    ledger : optional
        Account that is charged before noise is drawn.
    on_step : callable, optional
        Called with the number of finished steps, for a progress bar.
    """
    if not plan.problem.same_records(data.problem):
        raise ValueError(f"the plan is for {plan.problem}, but the records are for {data.problem}.")
    copies = 1 if repetitions is None else _validate.integer("repetitions", repetitions)
    x = _start(start, plan.problem.dimension, copies)
    source = Source(None if seed is None else _validate.integer("seed", seed, low=0))
    if ledger is not None:
        note = f"{plan.method}, {plan.iterations} steps, {copies} run(s)"
        ledger.charge(plan.spending(copies), note=note)

    path = np.empty((plan.iterations + 1, *x.shape))
    path[0] = previous = x
    for t, (alpha, beta, gamma, restart) in enumerate(plan.steps):
        drift = np.zeros_like(x) if restart else x - previous
        gradient = _noisy_gradient(plan, t, data, x + gamma * drift, source)
        x, previous = x + beta * drift - alpha * gradient, x
        path[t + 1] = x
        if on_step is not None:
            on_step(t + 1)
    return Run(plan, path if repetitions is not None else path[:, :, 0], source.seeded)


def _noisy_gradient(plan: Plan, t: int, data: Rows, points: np.ndarray, source: Source) -> np.ndarray:
    """Return the gradient at each column plus that step's noise; each column draws its own subset."""
    if plan.sampling.is_full:
        gradient = data.gradient(points)
    else:
        columns = [data.gradient(point, source.subset(plan.sampling)) for point in points.T]
        gradient = np.stack(columns, axis=1)
    return gradient + source.draw(plan.mechanism, plan.scale_at(t, points), points.shape)


def _start(start: np.ndarray | float | None, dimension: int, copies: int) -> np.ndarray:
    """Return x_0, one column per repetition."""
    x = np.asarray(0.0 if start is None else start, dtype=float)
    if x.shape not in ((), (dimension,)) or not np.all(np.isfinite(x)):
        raise ValueError(f"start must be a finite number or a vector of length {dimension}, got shape {x.shape}.")
    return np.tile(np.broadcast_to(x, (dimension,))[:, None], (1, copies))
