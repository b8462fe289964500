"""The loop: charge, meter, draw, read, publish. It is all that ever meets records, and it decides nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from epsteps.budgets import Cost
from epsteps.data.rows import Rows
from epsteps.noise import Source
from epsteps.plans.plan import Conversation, OverspentError, Plan, Published
from epsteps.plans.requests import Draw, Request
from epsteps.problem.grid import Points
from epsteps.problem.problem import Problem
from epsteps.running import taps
from epsteps.running.checkpoint import Checkpoint
from epsteps.running.solver import Tilted, grid_minimum

# Costs are computed anew by each request: they differ from the plan's by rounding errors, far below this.
_ROUNDING = 1 + 1e-9


class Meter:
    """What a run may still ask for: at most what its plan was charged for, in each currency."""

    def __init__(self, allowance: Iterable[Cost], runs: int) -> None:
        self._left: Counter[str] = Counter()
        for cost in allowance:
            self._left[cost.unit] += runs * cost.additive * _ROUNDING  # pyright: ignore[reportArgumentType]

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

    def require(self, problem: Problem) -> None:
        """Raise unless the records are read as a request's sensitivity takes for granted."""
        stated, actual = ((p.loss, p.clip) for p in (problem, self.problem))
        if not problem.same_records(self.problem) or stated != actual:
            raise ValueError(f"the request is for {problem}, but the records are read as {self.problem}.")

    def prepare(self) -> None:
        """Read and round the records now: what cannot be read fails here."""
        self._data.prepare()

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return F at x."""
        return self._data.value(x)

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
        return grid_minimum(Tilted(goal.objective, self._data, tilt), goal)


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
        self._reader.require(request.problem)
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
    """Return what several conversations published as one, with a trailing axis; one that has it is as it is."""
    if len(published) == 1 and published[0].path.ndim == 3:
        return published[0]
    extras = {name: np.stack([run.extras[name] for run in published], axis=-1) for name in published[0].extras}
    return Published(np.stack([run.path for run in published], axis=-1), extras)
