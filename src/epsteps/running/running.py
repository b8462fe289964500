"""The one loop: executes a plan on private records, and decides nothing."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from epsteps.data.rows import Rows
from epsteps.ledger.accounts import Account
from epsteps.methods import PublishedPlan
from epsteps.noise import Source
from epsteps.plans.planning import Plan
from epsteps.problem import memory, validate
from epsteps.running import releases
from epsteps.running.checkpoints import Checkpoint
from epsteps.running.experimental_runs import FloatDraws, FloatOracle, compiled_engine, compiled_path
from epsteps.running.oracles import Draw, ExactOracle, Oracle

ARITHMETICS = ("auto", "exact", "float")


@dataclass(frozen=True, eq=False)
class Run:
    """What a run publishes: the iterates, the plan they came from, and whether they are private at all.

    ``path`` has T+1 iterates of length d, with a trailing axis for repetitions; of a release of minima it has one row
    for each, and of several their mean as the last. ``extras`` are other numbers that were published. A seeded run is
    an experiment: its noise can be drawn again, so that nothing in it is private.
    """

    plan: Plan | PublishedPlan
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
    plan: Plan | PublishedPlan,
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
        x_0, chosen without looking at the data; 0 by default.
    arithmetic : "auto", "exact" or "float"
        "exact" computes in integers, as every private run does; "float" is for experiments, many times faster, and
        takes a seed. "auto" is "float" for seeded runs and "exact" for all others.
    ledger : optional
        Account that is charged before noise is drawn.
    checkpoint : path, optional
        File from which an interrupted run goes on: call again with the same arguments and records. It holds the noise
        of the step in progress, so keep it as secret as the records. Not for runs in floats, which a seed repeats.
    on_step : callable, optional
        Called with the number of finished steps, for a progress bar; by compiled experiments for many steps at once.
    """
    if not plan.problem.same_records(data.problem):
        raise ValueError(f"the plan is for {plan.problem}, but the records are for {data.problem}.")
    if (plan.problem.loss, plan.problem.clip) != (data.problem.loss, data.problem.clip):
        data = data.restated(plan.problem)
    copies = 1 if repetitions is None else validate.integer("repetitions", repetitions)
    memory.require_path(plan.problem, plan.iterations if isinstance(plan, Plan) else 1, copies)
    x = _start(start, plan.problem.dimension, copies)
    source = Source(None if seed is None else validate.integer("seed", seed, low=0))
    on_step = on_step or (lambda _: None)
    if not isinstance(plan, Plan):
        _refuse_options(plan, start=start, checkpoint=checkpoint, arithmetic=arithmetic)
        return _published(plan, data, source, repetitions, ledger)
    if exact := _is_exact(arithmetic, source, checkpoint):
        data.prepare()
    with _checkpoint(checkpoint, plan, x, seed, arithmetic) as saved:
        if ledger is not None:
            _charge(ledger, plan, copies, saved)
        if exact:
            path = _descend(plan, partial(ExactOracle, plan, data, source), x, saved, on_step)
        else:
            path = _experiment(plan, data, FloatDraws(plan, source, copies), x, on_step)
    return Run(plan, path if repetitions is not None else path[:, :, 0], source.seeded)


def _refuse_options(plan: PublishedPlan, **options: object) -> None:
    for name, value in options.items():
        if value not in (None, "auto", "exact"):
            raise ValueError(f"{name} is for plans of steps, not for {plan.method}. Leave it out, got {value!r}.")


def _published(plan: PublishedPlan, data: Rows, source: Source, repetitions: int | None, ledger: Account | None) -> Run:
    """Execute a plan whose releases are not steps."""
    copies = repetitions or 1
    releases.prepare(plan, data)
    if ledger is not None:
        ledger.charge(plan.spending(copies), note=f"{plan.method}, {len(plan.items)} release(s), {copies} run(s)")
    found = [releases.publish(plan, data, source) for _ in range(copies)]
    paths = np.stack([path for path, _ in found], axis=-1)
    extras = {name: np.stack([more[name] for _, more in found], axis=-1) for name in found[0][1]}
    if repetitions is None:
        paths, extras = paths[..., 0], {name: values[..., 0] for name, values in extras.items()}
    return Run(plan, paths, source.seeded, extras)


def _is_exact(arithmetic: str, source: Source, checkpoint: str | Path | None) -> bool:
    """Whether noisy gradients are integers; floats are for experiments only."""
    if validate.choice("arithmetic", arithmetic, ARITHMETICS) == "float" and not source.seeded:
        raise ValueError("arithmetic='float' is not private, and takes a seed. Use 'exact', or seed=... to experiment.")
    exact = arithmetic == "exact" or not source.seeded
    if checkpoint is not None and not exact:
        raise ValueError("checkpoint is for exact runs, not for experiments in floats. Leave it out, or use 'exact'.")
    return exact


def _checkpoint(
    path: str | Path | None, plan: Plan, x: np.ndarray, seed: int | None, arithmetic: str
) -> AbstractContextManager[Checkpoint | None]:
    """Open the file of the run that these facts define, if there is to be one."""
    if path is None:
        return nullcontext()
    facts = {"plan": plan.to_json(), "start": x.tolist(), "seed": seed, "arithmetic": arithmetic}
    return Checkpoint(path, facts)


def _charge(ledger: Account, plan: Plan, copies: int, saved: Checkpoint | None) -> None:
    note = f"{plan.method}, {plan.iterations} steps, {copies} run(s)"
    if saved is None:
        ledger.charge(plan.spending(copies), note=note)
    else:
        ledger.charge(plan.spending(copies), note=note, key=saved.key)


def _experiment(plan: Plan, data: Rows, draws: FloatDraws, x: np.ndarray, on_step: Callable[[int], None]) -> np.ndarray:
    """Return the path of a seeded run in floats, from the loop or from its compiled double."""
    if (engine := compiled_engine(plan, data)) is not None:
        return compiled_path(plan, engine, draws, x, on_step)
    return _descend(plan, partial(FloatOracle, plan, data, draws), x, None, on_step)


def _descend(
    plan: Plan,
    oracle: Callable[[int, np.ndarray], Oracle],
    x: np.ndarray,
    saved: Checkpoint | None,
    on_step: Callable[[int], None],
) -> np.ndarray:
    """Return the path x_0, ..., x_T; with a checkpoint, from where it stands.

    An iterate is heard of, and records are read for the next step, only once both the iterate and that step's draw are
    in the checkpoint.
    """
    path = np.empty((plan.iterations + 1, *x.shape))
    done = saved.iterates() if saved is not None else []
    path[: max(len(done), 1)] = done or x
    first = max(len(done) - 1, 0)
    for t in range(first, plan.iterations):
        drift = np.zeros_like(x) if t == 0 or plan.steps.restart[t] else path[t] - path[t - 1]
        step = oracle(t, path[t] + plan.steps.gamma[t] * drift)
        draw = saved.pending(t) if saved is not None else None
        if draw is None:
            draw = step.draw()
            _publish(t, path[t], draw, saved, on_step)
        path[t + 1] = path[t] + plan.steps.beta[t] * drift - plan.steps.alpha[t] * step.gradient(draw)
    if first < plan.iterations:
        _publish(plan.iterations, path[-1], None, saved, on_step)
    return path


def _publish(
    t: int, x: np.ndarray, draw: Draw | None, saved: Checkpoint | None, on_step: Callable[[int], None]
) -> None:
    """Make x_t and the draw of its step durable, then tell of it."""
    if saved is not None:
        saved.commit(t, x, draw)
    if t > 0:
        on_step(t)


def _start(start: np.ndarray | float | None, dimension: int, copies: int) -> np.ndarray:
    """Return x_0, one column per repetition."""
    x = np.asarray(0.0 if start is None else start, dtype=float)
    if x.shape not in ((), (dimension,)) or not np.all(np.isfinite(x)):
        raise ValueError(f"start must be a finite number or a vector of length {dimension}, got shape {x.shape}.")
    return np.tile(np.broadcast_to(x, (dimension,))[:, None], (1, copies))
