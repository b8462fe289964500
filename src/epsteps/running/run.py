"""Run: executes a plan on private records, and decides nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from epsteps.budgets import Concentrated, Cost, Pure
from epsteps.budgets.mechanisms import Mechanism
from epsteps.data.chunks import Blocks, watching
from epsteps.data.rows import Rows
from epsteps.ledger.books import Account
from epsteps.methods.bought import SmoothnessEstimate, SmoothnessPlan
from epsteps.methods.intervals.table import Contrasts, Intervals
from epsteps.noise import Source
from epsteps.noise.bits import public_generator
from epsteps.plans.plan import Conversation, OverspentError, Plan, Published
from epsteps.plans.requests import Draw, Request
from epsteps.plans.utility import Utility
from epsteps.problem import limits, validate
from epsteps.problem.grid import Points
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.shapes import Shape
from epsteps.running import floats, taps
from epsteps.running.checkpoint import Checkpoint
from epsteps.running.solver import Start, Tilted, grid_minimum

ARITHMETICS = ("auto", "exact", "float")


@dataclass(frozen=True, eq=False)
class Run:
    """What a run publishes: the iterates, the plan they came from, and whether they are private at all.

    ``path`` has T+1 iterates of length d, with a trailing axis for repetitions; of a release of minima it has one row
    for each, and of several for one model their mean as the last. ``extras`` are other numbers that were published. A
    seeded run is an experiment: its noise can be drawn again, so that nothing in it is private.
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

    @property
    def utility(self) -> Utility:
        """What the model is expected to be worth, by public and published numbers; ``plan.utility`` is of before.

        What was bought and the length of the model make it sharper. Nothing is spent, and no record is read.
        """
        if self.path.ndim != 2:
            raise ValueError(f"utility is that of one run, and here are {self.repetitions}. Leave repetitions out.")
        return self.plan.utility_after(self.path, self.extras)

    def intervals(
        self,
        level: float | None = None,
        target: str | None = None,
        contrasts: Contrasts = None,
        *,
        names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> Intervals:
        """Return intervals for the coefficients of a minimum, or for contrasts: computed from what was published.

        They are measured where the plan bought curvature (``intervals=0.95``) and what was released of it supports
        them, and otherwise upper bounds that are proved: from the ridge alone and the law of the noise on a minimum, or
        on the last gradient where all were published. Nothing is spent, and no record is read. Where nothing is proved,
        it raises ``ValueError`` and says what to use.

        Parameters
        ----------
        level : float, optional
            From 0.5 to 0.99; the plan's, or 0.95.
        target : "population" or "sample", optional
            The minimum that the interval is for: that of the population, by default where the model or a bought
            dispersion says how samples vary; or that of the records, from which noise alone separates the model.
        contrasts : "levels", matrix or mapping, optional
            What is asked for in the place of coefficients: each level of a category against the mean of its category's
            levels; rows of a matrix; or rows by their names.
        names : sequence of str, optional
            The coefficients' names, the intercept's last.
        seed : int
            Public seed of the draws that the widths are quantiles of. They protect nothing.
        """
        if self.path.ndim != 2:
            raise ValueError(f"intervals are for one run, and here are {self.repetitions}. Leave repetitions out.")
        generator = public_generator(validate.integer("seed", seed, low=0))
        asked = {"level": level, "target": target, "contrasts": contrasts, "names": names}
        return self.plan.intervals(self.path, self.extras, partial(drawn_publicly, generator), generator, **asked)


def drawn_publicly(
    generator: Generator, mechanism: Mechanism, scale: float, shape: tuple[int, ...], body: Shape
) -> np.ndarray:
    """Return noise of a known law from a generator whose seed is public: for simulations. It protects nothing."""
    return Source(int(generator.integers(2**63))).draw(mechanism, scale, shape, body)


class Remote(Protocol):
    """Records that somebody else keeps, who executes plans on them: such as those of ``epsteps.connect``."""

    def execute(self, plan: Plan, **options: Any) -> Run:
        """Have a plan executed, and return what it publishes; refuse options that are for records at hand."""
        ...


def run(
    plan: Plan,
    data: Rows | Remote,
    *,
    seed: int | None = None,
    repetitions: int | None = None,
    start: np.ndarray | float | None = None,
    arithmetic: str = "auto",
    ledger: Account | None = None,
    checkpoint: str | Path | None = None,
    on_step: Callable[[int], None] | None = None,
    on_read: Callable[[float], None] | None = None,
    anyway: bool = False,
) -> Run:
    """Execute a plan on records: the one function that reads private data.

    Formal guarantee: without ``seed``, publishing the whole path is private as ``plan.spending()`` says for
    replace-one neighbours, with ``repetitions`` as ``plan.spending(repetitions)`` says. Sums and noise are exact
    integers, so that nothing is lost to rounding.

    Parameters
    ----------
    data : Rows, or records of a service
        The records; of a service (``epsteps.connect``) the plan is sent to their holder, who keeps the ledger.
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
    on_read : callable, optional
        Called with the share, above 0 and up to 1, of the records that the present pass over them has read, for a
        second bar: one answer may take many passes, and one pass long. It hears of passes that last a tenth of a second
        or more, in blocks from files, by dask workers, or in parts of memory; in the thread of the run, and about ten
        times a second. How many passes a solver makes depends on the records, and so does the time that they take:
        show the share to who may see the clock, and keep no account of it. What ``on_read`` or ``on_step`` raise ends
        the run; what was charged stays charged.
    anyway : bool
        Run a plan whose verdict is "noise", too (``plan.utility``). Otherwise it is refused with ``HopelessError``, by
        public numbers and before anything is charged, unless a seed makes it an experiment.
    """
    if not isinstance(data, Rows):
        options = {"seed": seed, "repetitions": repetitions, "start": start, "arithmetic": arithmetic, "ledger": ledger}
        return data.execute(plan, **options, checkpoint=checkpoint, on_step=on_step, on_read=on_read, anyway=anyway)
    if not plan.problem.same_records(data.problem):
        raise ValueError(f"the plan is for {plan.problem}, but the records are for {data.problem}.")
    if any(kind.has_slopes for kind in plan.reads):
        data = data.restated(plan.problem)
    copies = 1 if repetitions is None else validate.integer("repetitions", repetitions)
    limits.require_path(plan.problem, plan.points, copies)
    plan.require_affordable()
    plan.require_options(start=start, arithmetic=arithmetic)
    x = _start(start, plan.problem.dimension, copies)
    if seed is None and not anyway:
        plan.utility.require_hope()
    source = taps.open_source(None if seed is None else validate.integer("seed", seed, low=0))
    exact, on_step = _is_exact(plan, arithmetic, source, checkpoint), on_step or (lambda _: None)
    reader = Reader(data)
    with nullcontext() if on_read is None else watching(on_read):
        if exact:
            plan.require_executable()
            data.expect(plan.requests)
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


def estimate_smoothness(
    data: Rows,
    budget: Pure | Concentrated,
    *,
    confidence: float = 0.999,
    seed: int | None = None,
    ledger: Account | None = None,
) -> SmoothnessEstimate:
    """Estimate L = curvature x λ_max(U'U/n) + ridge from the records, privately, from above.

    Formal guarantee: the largest eigenvalue of U'U/n moves by at most (largest record)²/n when a record is replaced,
    since uu' - vv' has its eigenvalues between -|v|² and |u|². It is computed from exact integer sums, released as an
    integer, and the sensitivity includes what the eigenvalue's rounding may add. Laplace noise of that sensitivity
    makes it epsilon-DP, Gaussian noise rho-zCDP. What follows is post-processing: with the given confidence the
    estimate is not below the true L, and it is never above the public one. Too small an L harms convergence, never
    privacy.

    Parameters
    ----------
    data : Rows
        The private records.
    budget : Pure or Concentrated
        The price. One hundredth of what the plan may spend is usually plenty. A plan in epsilon (Laplace noise) takes a
        Pure price, a plan in rho (Gaussian noise) a Concentrated one.
    confidence : float
        Probability that the estimate is large enough.
    seed, ledger
        As for :func:`epsteps.run`: a seeded estimate is not private; an account is charged before noise is drawn.
    """
    plan = SmoothnessPlan(data.problem, budget, confidence)
    bought = run(plan, data, seed=seed, ledger=ledger)
    return plan.estimate(float(bought.path[0, 0]), bought.seeded)


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


class Meter:
    """What a run may still ask for: at most what its plan was charged for, in each currency."""

    def __init__(self, allowance: Iterable[Cost], runs: int) -> None:
        self._left: Counter[str] = Counter()
        for cost in allowance:
            # Requests compute their costs anew: they differ from the plan's by rounding errors, far below this.
            self._left[cost.unit] += up(runs * cost.additive, 1e-9)  # pyright: ignore[reportArgumentType]

    def spend(self, costs: Iterable[Cost]) -> None:
        """Take costs off, or refuse them before anything is drawn or read."""
        for cost in costs:
            if not 0 <= cost.additive <= self._left[cost.unit]:
                raise OverspentError(
                    f"the method asks for {cost.unit} = {cost.amount:.6g}, which is more than is left of what its plan "
                    "was charged for. Its charges must list everything that its conversation asks for."
                )
            self._left[cost.unit] -= cost.additive  # pyright: ignore[reportArgumentType]


class Reader:
    """What requests may ask of the records. Everything that comes back is UNPROTECTED."""

    def __init__(self, data: Rows) -> None:
        self._data, self.problem = data, data.problem
        self._starts: dict[Any, Start] = {}

    def require(self, request: Request) -> None:
        """Raise unless the records are read as a request's sensitivity takes for granted."""
        problem = request.problem
        stated, actual = ((p.loss, p.clip) for p in (problem, self.problem))
        if not problem.same_records(self.problem) or (request.has_slopes and stated != actual):
            raise ValueError(f"the request is for {problem}, but the records are read as {self.problem}.")

    def prepare(self) -> None:
        """Read and round the records now: what cannot be read fails here."""
        self._data.prepare()

    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of slope x record, in integers, at points of the grid."""
        return self._data.sums(points, rows)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield features and targets of all records, in blocks."""
        return self._data.blocks()

    def second_moment(self) -> np.ndarray:
        """Return the mean of u u' over the records, from exact sums."""
        return self._data.second_moment()

    def minimum(self, goal, tilt: np.ndarray) -> np.ndarray:
        """Return a point of the goal's grid, as integers, where the tilted sum's gradient is below its tolerance."""
        start = self._starts.setdefault(goal.objective, Start(goal.objective, self._data))
        return grid_minimum(Tilted(goal.objective, self._data, tilt), goal, start)

    def total(self, block: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the exact sum of what ``block`` returns for the integers and targets of a few records at a time."""
        return self._data.total(Blocks(block))

    def tally(self, term: Callable[[Any], np.ndarray]) -> np.ndarray:
        """Return the exact sum of what a term returns for a chunk of records at a time: sparse ones stay sparse."""
        return self._data.total(term)


class Answers:
    """Answers to the requests of a run, each with noise of its own; with a checkpoint, from where that stands.

    An answer is heard of, and records are read for the next one, only once both the answer and what was drawn for the
    next are in the checkpoint.
    """

    def __init__(
        self,
        reader: Reader,
        meter: Meter,
        source: Source,
        saved: Checkpoint | None = None,
        on_step: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._reader, self._meter, self._source, self._saved, self._on_step = reader, meter, source, saved, on_step
        self._known = [] if saved is None else saved.answers()
        self._last: np.ndarray | None = None
        # What the records were last found to be read as, and whether that held for slopes: steps ask with the same.
        self._required: tuple[Problem | None, bool] = (None, False)
        self._count = 0

    def hold(self, conversation: Conversation) -> Published:
        """Answer a method until it has nothing more to ask, and return what it publishes."""
        reply = None
        while True:
            try:
                request = conversation.send(reply)  # pyright: ignore[reportArgumentType]
            except StopIteration as end:
                return end.value
            reply = self._answer(request)

    def finish(self) -> None:
        """Make the last answer durable."""
        if self._count > len(self._known):
            self._tell(None)

    def _answer(self, request: Request) -> np.ndarray:
        number, self._count = self._count, self._count + 1
        self._meter.spend(request.costs)
        problem, with_slopes = self._required
        if request.problem is not problem or request.has_slopes > with_slopes:
            self._reader.require(request)
            self._required = (request.problem, request.has_slopes)
        if number < len(self._known):
            if request.step is None and self._source.seeded:
                request.draw(self._source)  # so that later draws follow it as they did
            return self._known[number]
        draw = self._drawn(request, number)
        reading = taps.reading(request, self._reader, draw)
        self._last = request.publish(reading, draw)
        return self._last

    def _drawn(self, request: Request, number: int) -> Draw:
        """Return what protects an answer; it is durable, with the answer before it, when this returns."""
        pending = self._saved.pending(number) if self._saved is not None else None
        if pending is not None:
            if request.step is None and self._source.seeded:
                request.draw(self._source)
            return pending
        draw = request.draw(self._source if request.step is None else self._source.at_step(request.step))
        self._tell(draw, number)
        return draw

    def _tell(self, following: Draw | None, number: int | None = None) -> None:
        """Write the last answer and what the next one will add, then tell of the answer."""
        number = self._count if number is None else number
        if self._saved is not None:
            self._saved.commit(number, self._last, following)
        if number > 0:
            self._on_step(number)


def converse(plan: Plan, answers: Answers, start: np.ndarray) -> Published:
    """Hold the conversations of all runs, and return what they publish, with a trailing axis for runs."""
    published = [answers.hold(conversation) for conversation in plan.conversations(start)]
    answers.finish()
    return joined(published)


def joined(published: Sequence[Published]) -> Published:
    """Return what several conversations published as one, with a trailing axis; one that has it is as it is.

    What they publish may differ in shape, as it may depend on what was released before: other numbers are filled up
    with NaN, and a shorter path stays at its last point.
    """
    if len(published) == 1 and published[0].path.ndim == 3:
        return published[0]
    longest = max(len(run.path) for run in published)
    paths = [np.concatenate([run.path, np.repeat(run.path[-1:], longest - len(run.path), axis=0)]) for run in published]
    names = dict.fromkeys(name for run in published for name in run.extras)
    extras = {name: _stacked([run.extras.get(name) for run in published]) for name in names}
    return Published(np.stack(paths, axis=-1), extras)


def _stacked(arrays: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return arrays side by side along a last axis, filled up with NaN where one is smaller or missing."""
    known = [array for array in arrays if array is not None]
    if len(known) == len(arrays) and len({array.shape for array in known}) == 1:
        return np.stack(known, axis=-1)
    order = max(array.ndim for array in known)
    shapes = [(1,) * (order - array.ndim) + array.shape for array in known]
    result = np.full((*map(max, zip(*shapes, strict=True)), len(arrays)), np.nan)
    for place, array in enumerate(arrays):
        if array is not None:
            shape = (1,) * (order - array.ndim) + array.shape
            result[(*map(slice, shape), place)] = array.reshape(shape)
    return result
