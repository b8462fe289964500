"""Run: executes a plan on private records, and decides nothing."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from epsteps.data.rows import Rows
from epsteps.ledger.accounts import Account
from epsteps.noise import Source
from epsteps.plans.plan import Plan, Published
from epsteps.problem import limits, validate
from epsteps.running import floats, taps
from epsteps.running.checkpoint import Checkpoint
from epsteps.running.loop import Answers, Meter, Reader, converse

ARITHMETICS = ("auto", "exact", "float")


@dataclass(frozen=True, eq=False)
class Run:
    """What a run publishes: the iterates, the plan they came from, and whether they are private at all.

    ``path`` has T+1 iterates of length d, with a trailing axis for repetitions; of a release of minima it has one row
    for each, and of several their mean as the last. ``extras`` are other numbers that were published. A seeded run is
    an experiment: its noise can be drawn again, so that nothing in it is private.
    """

    plan: Plan
    path: np.ndarray
    seeded: bool
    extras: dict[str, np.ndarray] = field(default_factory=dict)

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
    arithmetic: str = "auto",
    ledger: Account | None = None,
    checkpoint: str | Path | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Run:
    """Execute a plan on records: the one function that reads private data.

    Formal guarantee: without ``seed``, publishing the whole path is private as ``plan.spending()`` says for
    replace-one neighbours, with ``repetitions`` as ``plan.spending(repetitions)`` says. Sums and noise are exact
    integers, so that nothing is lost to rounding.

    Parameters
    ----------
    seed : int, optional
        Makes the run repeatable and NOT private: for experiments.
    repetitions : int, optional
        Independent runs as one matrix product; the path gets a trailing axis. Each one is a release of its own.
    start : array or number, optional
        x_0 of a plan of steps, chosen without looking at the data; 0 by default.
    arithmetic : "auto", "exact" or "float"
        "exact" computes in integers, as every private run does; "float" is for experiments, many times faster, and
        takes a seed. "auto" is "float" for seeded runs and "exact" for all others.
    ledger : optional
        Account that is charged before noise is drawn.
    checkpoint : path, optional
        File from which an interrupted run goes on: call again with the same arguments and records. It holds the noise
        of the answer in progress, so keep it as secret as the records. Not for runs in floats, which a seed repeats.
    on_step : callable, optional
        Called with the number of answers so far, which are steps of a plan of steps, for a progress bar (there are
        ``plan.requests`` in a run); by compiled experiments for many at once.
    """
    if not plan.problem.same_records(data.problem):
        raise ValueError(f"the plan is for {plan.problem}, but the records are for {data.problem}.")
    if (plan.problem.loss, plan.problem.clip) != (data.problem.loss, data.problem.clip):
        data = data.restated(plan.problem)
    copies = 1 if repetitions is None else validate.integer("repetitions", repetitions)
    limits.require_path(plan.problem, plan.points, copies)
    plan.require_affordable()
    plan.require_options(start=start, arithmetic=arithmetic)
    x = _start(start, plan.problem.dimension, copies)
    source = taps.open_source(None if seed is None else validate.integer("seed", seed, low=0))
    exact, on_step = _is_exact(plan, arithmetic, source, checkpoint), on_step or (lambda _: None)
    reader = Reader(data)
    if exact:
        plan.require_executable()
        for kind in plan.reads:
            kind.prepare(reader)
    with _checkpoint(checkpoint, plan, x, seed, arithmetic) as saved:
        if ledger is not None:
            key = {} if saved is None else {"key": saved.key}
            ledger.charge(plan.spending(copies), note=plan.note(copies), **key)
        if exact:
            published = converse(plan, Answers(reader, Meter(plan.allowance, copies), source, saved, on_step), x)
        else:
            published = floats.experiment(plan, data, source, x, on_step)  # pyright: ignore[reportArgumentType]
    if repetitions is None:
        published = Published(published.path[..., 0], {name: v[..., 0] for name, v in published.extras.items()})
    return Run(plan, published.path, source.seeded, published.extras)


def _is_exact(plan: Plan, arithmetic: str, source: Source, checkpoint: str | Path | None) -> bool:
    """Whether answers are integers with integer noise; floats are for experiments with steps only."""
    if validate.choice("arithmetic", arithmetic, ARITHMETICS) == "float" and not source.seeded:
        raise ValueError("arithmetic='float' is not private, and takes a seed. Use 'exact', or seed=... to experiment.")
    exact = arithmetic == "exact" or not source.seeded or not plan.has_floats
    if checkpoint is not None and not exact:
        raise ValueError("checkpoint is for exact runs, not for experiments in floats. Leave it out, or use 'exact'.")
    return exact


def _checkpoint(
    path: str | Path | None, plan: Plan, x: np.ndarray, seed: int | None, arithmetic: str
) -> AbstractContextManager[Checkpoint | None]:
    """Open the file of the run that these facts define, if there is to be one."""
    if path is None:
        return nullcontext()
    return Checkpoint(path, {"plan": plan.to_json(), "start": x.tolist(), "seed": seed, "arithmetic": arithmetic})


def _start(start: np.ndarray | float | None, dimension: int, copies: int) -> np.ndarray:
    """Return x_0, one column per repetition."""
    x = np.asarray(0.0 if start is None else start, dtype=float)
    if x.shape not in ((), (dimension,)) or not np.all(np.isfinite(x)):
        raise ValueError(f"start must be a finite number or a vector of length {dimension}, got shape {x.shape}.")
    return np.tile(np.broadcast_to(x, (dimension,))[:, None], (1, copies))
