"""Seeded runs in floats: fast, for experiments, and not private (Mironov 2012)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from epsteps.data.engine import Engine
from epsteps.data.rows import Rows
from epsteps.methods.steps import StepsPlan
from epsteps.noise import Source
from epsteps.plans.plan import Published

# Bytes of noise and subsets that are drawn at a time: few enough for the third-level cache, enough steps for threads.
_BLOCK_BYTES = 2**22


class _Block(NamedTuple):
    """Noise of scale 1, and subsets, or None where all records are read."""

    noise: np.ndarray
    subsets: np.ndarray | None


class FloatDraws:
    """The draws of a run, from one seeded stream and for many steps at once: noise of scale 1, and subsets.

    They depend on the plan, the seed and the number of repetitions, not on the engine. Steps ask in their order.
    """

    def __init__(self, plan: StepsPlan, source: Source, copies: int) -> None:
        self._plan, self._source, self._copies = plan, source, copies
        numbers = copies * (plan.problem.dimension + (0 if plan.sampling.is_full else plan.batch))
        self.steps = max(1, _BLOCK_BYTES // (8 * numbers))
        self._block = _Block(np.empty(0), None)

    def block(self, first: int) -> _Block:
        """Draw for the next steps: noise (steps, d, repetitions), subsets (repetitions, steps, m)."""
        plan, count = self._plan, min(self.steps, self._plan.iterations - first)
        noise = self._noise(count)
        if plan.sampling.is_full:
            return _Block(noise, None)
        subsets = self._source.subsets(plan.sampling, self._copies * count)
        return _Block(noise, subsets.reshape(self._copies, count, plan.batch))

    def _noise(self, count: int) -> np.ndarray:
        plan, d = self._plan, self._plan.problem.dimension
        shape = plan.mechanism.shape(plan.problem)
        if shape.independent:
            return self._source.draw(plan.mechanism, 1.0, (count, d, self._copies))
        vectors = self._source.draw(plan.mechanism, 1.0, (d, count * self._copies), shape)
        units = plan.mechanism.units(plan.problem)
        return np.moveaxis((units[:, None] * vectors).reshape(d, count, self._copies), 0, 1)

    def at_step(self, t: int) -> _Block:
        """Return the draw of one step."""
        place = t % self.steps
        if place == 0:
            self._block = self.block(t)
        noise, subsets = self._block.noise, self._block.subsets
        return _Block(noise[place], None if subsets is None else subsets[:, place])


def experiment(plan: StepsPlan, data: Rows, source: Source, x: np.ndarray, on_step: Callable[[int], None]) -> Published:
    """Return what a seeded run in floats publishes: from the method itself, or from its compiled double."""
    draws = FloatDraws(plan, source, x.shape[1])
    if (engine := compiled_engine(plan, data)) is not None:
        return Published(compiled_path(plan, engine, draws, x, on_step))
    (conversation,), reply, done = plan.conversations(x), None, 0
    while True:
        try:
            request = conversation.send(reply)  # pyright: ignore[reportArgumentType]
        except StopIteration as end:
            on_step(done)
            return end.value
        if done:
            on_step(done)
        reply = _gradient(plan, data, draws.at_step(done), done, request.x)  # pyright: ignore[reportAttributeAccessIssue]
        done += 1


def _gradient(plan: StepsPlan, data: Rows, drawn: _Block, t: int, x: np.ndarray) -> np.ndarray:
    """Return the gradient at x with noise, both in floats; the ridge is the plan's."""
    added = (plan.problem.ridge - data.problem.ridge) * x + plan.scale_at(t, x) * drawn.noise
    if drawn.subsets is None:
        return data.gradient(x) + added
    columns = [data.gradient(point, rows) for point, rows in zip(x.T, drawn.subsets, strict=True)]
    return np.stack(columns, axis=1) + added


def compiled_engine(plan: StepsPlan, data: Rows) -> Engine | None:
    """Return the engine that runs all steps in compiled code, if one does: drawn records, and scales known ahead."""
    known = plan.sensitivity == "global" and not plan.sampling.is_full
    return data.descent(plan.batch) if known else None


def compiled_path(
    plan: StepsPlan, engine: Engine, draws: FloatDraws, x: np.ndarray, on_step: Callable[[int], None]
) -> np.ndarray:
    """Return the path that the loop would, from the same draws; steps are heard of when a block of them is finished."""
    paths = np.empty((x.shape[1], plan.iterations + 1, len(x)))
    paths[:, 0] = x.T
    for first in range(0, plan.iterations, draws.steps):
        block = draws.block(first)
        assert block.subsets is not None
        after = first + len(block.noise)
        noise = plan.scales[first:after, None, None] * block.noise
        engine.descend(plan.steps, first, block.subsets, noise, plan.problem.ridge, paths)
        for t in range(first, after):
            on_step(t + 1)
    return np.ascontiguousarray(np.moveaxis(paths, 0, 2))
