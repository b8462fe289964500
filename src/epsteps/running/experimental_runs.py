"""Seeded runs in floats: fast, for experiments, and not private (Mironov 2012)."""

from collections.abc import Callable

import numpy as np

from epsteps.data.engine import Engine
from epsteps.data.rows import Rows
from epsteps.noise import Source
from epsteps.plans.planning import Plan
from epsteps.running.oracles import Draw

# Bytes of noise and subsets that are drawn at a time: few enough for the third-level cache, enough steps for threads.
_BLOCK_BYTES = 2**22


class FloatDraws:
    """The draws of a run, from one seeded stream and for many steps at once: noise of scale 1, and subsets.

    They depend on the plan, the seed and the number of repetitions, not on the engine. Steps ask in their order.
    """

    def __init__(self, plan: Plan, source: Source, copies: int) -> None:
        self._plan, self._source, self._copies = plan, source, copies
        numbers = copies * (plan.problem.dimension + (0 if plan.sampling.is_full else plan.batch))
        self.steps = max(1, _BLOCK_BYTES // (8 * numbers))
        self._block = Draw(np.empty(0), None)

    def block(self, first: int) -> Draw:
        """Draw for the next steps: noise (steps, d, repetitions), subsets (repetitions, steps, m)."""
        plan, count = self._plan, min(self.steps, self._plan.iterations - first)
        noise = self._noise(count)
        if plan.sampling.is_full:
            return Draw(noise, None)
        subsets = self._source.subsets(plan.sampling, self._copies * count)
        return Draw(noise, subsets.reshape(self._copies, count, plan.batch))

    def _noise(self, count: int) -> np.ndarray:
        plan, d = self._plan, self._plan.problem.dimension
        if plan.mechanism.name in ("laplace", "gaussian"):
            return self._source.draw(plan.mechanism, 1.0, (count, d, self._copies))
        vectors = self._source.draw(plan.mechanism, 1.0, (d, count * self._copies), plan.shape)
        units = np.ones(d) if plan.shape is None else plan.problem.units
        return np.moveaxis((units[:, None] * vectors).reshape(d, count, self._copies), 0, 1)

    def at_step(self, t: int) -> Draw:
        """Return the draw of one step."""
        place = t % self.steps
        if place == 0:
            self._block = self.block(t)
        noise, subsets = self._block.noise, self._block.subsets
        return Draw(noise[place], None if subsets is None else subsets[:, place])


class FloatOracle:
    """A step's gradient with noise, both in floats."""

    def __init__(self, plan: Plan, data: Rows, draws: FloatDraws, t: int, x: np.ndarray) -> None:
        self._plan, self._data, self._draws, self._t, self._x = plan, data, draws, t, x

    def draw(self) -> Draw:
        """Draw what the step will add."""
        drawn = self._draws.at_step(self._t)
        return Draw(self._plan.scale_at(self._t, self._x) * drawn.noise, drawn.subsets)

    def gradient(self, draw: Draw) -> np.ndarray:
        """Return the gradient at x with the drawn noise."""
        # The ridge is the plan's.
        rest = (self._plan.problem.ridge - self._data.problem.ridge) * self._x + draw.noise
        if draw.subsets is None:
            return self._data.gradient(self._x) + rest
        columns = [self._data.gradient(point, rows) for point, rows in zip(self._x.T, draw.subsets, strict=True)]
        return np.stack(columns, axis=1) + rest


def compiled_engine(plan: Plan, data: Rows) -> Engine | None:
    """Return the engine that runs all steps in compiled code, if one does: drawn records, and scales known ahead."""
    known = plan.sensitivity == "global" and not plan.sampling.is_full
    return data.descent(plan.batch) if known else None


def compiled_path(
    plan: Plan, engine: Engine, draws: FloatDraws, x: np.ndarray, on_step: Callable[[int], None]
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
