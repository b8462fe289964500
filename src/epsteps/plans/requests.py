"""Requests: what a method asks for, as values. What a request reads and what bounds its sensitivity are one object.

A method sees the numbers that a request publishes, and nothing else. The loop (``running.run``) takes a request apart:
it holds ``costs`` against what the plan was charged for, lets ``draw`` choose the noise before any record is read, lets
``read`` compute what the noise protects, and sends back what ``publish`` makes of the two. The costs are computed from
the numbers that are then executed, never declared beside them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from epsteps.budgets import Cost
from epsteps.budgets.mechanisms import Mechanism
from epsteps.problem.grid import Grid, Points, Release
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.sampling import FULL, Sampling
from epsteps.problem.shapes import Shape

if TYPE_CHECKING:
    from epsteps.noise import Source

# The secrets of one answer, by name: its noise, and what else was drawn for it.
Draw = dict[str, np.ndarray]


class Records(Protocol):
    """What the loop lets a request ask of the records. Everything that comes back is UNPROTECTED."""

    problem: Problem

    def prepare(self) -> None:
        """Read and round the records now: what cannot be read fails here."""
        ...

    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of slope x record, in integers, at points of the grid."""
        ...

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield real features and targets of all records, in blocks: for tests and audits."""
        ...

    def total(self, block: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the exact sum of what ``block`` returns for the integers and targets of a few records at a time."""
        ...

    def tally(self, term: Callable[[Any], np.ndarray]) -> np.ndarray:
        """Return the exact sum of what a term returns for a chunk of records at a time: sparse ones stay sparse."""
        ...

    def second_moment(self) -> np.ndarray:
        """Return the mean of u u' over the records, from exact sums."""
        ...

    def minimum(self, goal: Any, tilt: np.ndarray) -> np.ndarray:
        """Return a point of the goal's grid, as integers, where the tilted sum's gradient is below its tolerance."""
        ...


class Request:
    """One question to the records. A kind of request is a frozen dataclass (with ``eq=False``) below this class."""

    # How the records must be read for the sensitivity to hold: domain, loss and clip.
    problem: Problem
    # Whether slopes are those of the engine, which has one loss, and not what the request itself makes of records.
    has_slopes: ClassVar[bool] = True
    # The number of a step whose draws are its own where a run is seeded; None where draws follow one another.
    step: int | None = None

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """What the answer costs, computed from what will be executed."""
        raise NotImplementedError

    @property
    def noise_costs(self) -> tuple[Cost, ...]:
        """What the noise by itself costs: the same, unless the answer is paid for as part of a whole."""
        return self.costs

    @staticmethod
    def prepare(records: Records) -> None:
        """Read the records as such requests will: what cannot be read fails here, before anything is charged."""
        raise NotImplementedError

    def draw(self, source: "Source") -> Draw:
        """Draw what protects the answer. Sees no records."""
        raise NotImplementedError

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return what the noise protects, UNPROTECTED: the one line that reads records."""
        raise NotImplementedError

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the answer."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Gradient(Request):
    """The gradient of F at public points, one for each column of ``x``, from an exact sum with integer noise.

    Formal guarantee: slopes are held below ``bound`` by the engine, so that replacing a record moves the sum by at most
    twice the gradient's size at that slope, exactly (``problem.grid``); the noise follows its law exactly. On a secret
    sample the loss is amplified as ``Sampling`` says.

    Parameters
    ----------
    problem, mechanism
        What is summed, and the noise.
    x : array
        One point, or one for each column.
    scale : float or array
        Real scale of the noise on the sum.
    bound : float or array
        The largest slope that the noise is scaled for.
    sampling : Sampling
        Which records are read.
    step : int, optional
        The number of the step.
    """

    problem: Problem
    mechanism: Mechanism
    x: np.ndarray
    scale: np.ndarray | float
    bound: np.ndarray | float
    sampling: Sampling
    step: int | None = None

    @classmethod
    def at(cls, problem: Problem, mechanism: Mechanism, x: np.ndarray, cost: float) -> "Gradient":
        """Ask for the gradient at one public point for this cost; the noise is scaled by the sensitivity there."""
        sensitivity = float(problem.sensitivity_at(x, mechanism.norm))
        scale = float(up(mechanism.scales(sensitivity, np.array(cost), FULL)))
        return cls(problem, mechanism, x, scale, problem.slope_at(x[:, None]), Sampling(problem.n, problem.n))

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of each column, from the scale and the sensitivity at the bound; refused where they are none."""
        amounts = _amounts(self.problem, self.mechanism, self.scale, self.bound, self.sampling)
        return tuple(map(self.mechanism.kind, np.broadcast_to(amounts, self._columns.shape[1:]).tolist()))

    def require_drawable(self) -> None:
        """Raise unless the noise fits 64-bit integers: at this cost, and at any public point.

        In integers its scale depends on the point through the rounding of a bound to a power of two alone.
        """
        if 4 * np.max(self._release.scale) > self._shape.coarsest:
            cost = self.costs[0]
            said = f"noise of {cost.unit} = {cost.amount:.3g} does not fit the integers of a gradient"
            raise ValueError(f"{said}. Use a larger budget.")

    @staticmethod
    def prepare(records: Records) -> None:
        """Round the records."""
        records.prepare()

    def draw(self, source: "Source") -> Draw:
        """Draw the noise, and the records that each column reads, if not all."""
        noise = source.integers(self.mechanism, self._release.scale, self._columns.shape, self._shape)
        if self.sampling.is_full:
            return {"noise": noise}
        subsets = [source.subset(self.sampling) for _ in range(noise.shape[1])]
        return {"noise": noise, "subsets": subsets[0][None] if len(subsets) == 1 else np.stack(subsets)}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the sum of gradients in integers."""
        points = self._grid.points(self._columns, self.bound)
        if "subsets" not in draw:
            return records.sums(points)
        if len(draw["subsets"]) == 1:
            return records.sums(points, draw["subsets"][0])
        columns = [records.sums(points.column(r), rows) for r, rows in enumerate(draw["subsets"])]
        return np.concatenate(columns, axis=1)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the gradient of F: the noisy mean, and the ridge."""
        mean = self._release.noisy(reading, draw["noise"]) / self.sampling.m
        return (mean + self.problem.ridge * self._columns).reshape(self.x.shape)

    @property
    def _columns(self) -> np.ndarray:
        return self.x.reshape(len(self.x), -1)

    @cached_property
    def _grid(self) -> Grid:
        return Grid(self.problem)

    @cached_property
    def _shape(self) -> Shape:
        return self.mechanism.shape(self.problem)

    @cached_property
    def _release(self) -> Release:
        return self._grid.release(self.scale, self.bound, self._shape)


def _amounts(
    problem: Problem,
    mechanism: Mechanism,
    scale: np.ndarray | float,
    bound: np.ndarray | float,
    sampling: Sampling,
) -> np.ndarray:
    """Return what noise of these scales on a sum of gradients costs."""
    if mechanism.rule.tilts:
        raise ValueError(f"{mechanism.name!r} noise is for tilts, and protects no sum of gradients.")
    if sampling.n != problem.n:
        raise ValueError(f"the request samples from n={sampling.n} records, but there are {problem.n}.")
    for name, value in (("scale", scale), ("bound", bound)):
        if not np.all((np.asarray(value) > 0) & np.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, got {value!r}.")
    sensitivity: Any = 2 * problem.gradient_size(bound, mechanism.norm)
    return mechanism.costs(sensitivity, np.asarray(scale, dtype=float) / sampling.m, sampling)


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradients that the steps of a plan ask for: what does not depend on their points is computed once.

    ``scales`` of steps whose slopes all have the same ``bound`` are known beforehand, and so are their costs. A step
    that then has another scale or bound costs what these are worth.
    """

    problem: Problem
    mechanism: Mechanism
    sampling: Sampling
    scales: np.ndarray | None = None
    bound: float = 1.0

    def request(self, x: np.ndarray, scale: np.ndarray | float, bound: np.ndarray | float, step: int) -> Gradient:
        """Return the request of a step."""
        request = Gradient(self.problem, self.mechanism, x, scale, bound, self.sampling, step)
        vars(request).update(self._shared)
        if self.scales is not None and (self.scales[step], self.bound) == (scale, bound):
            cost = self.mechanism.kind(float(self._amounts[step]))
            vars(request)["costs"] = (cost,) * request._columns.shape[1]
        return request

    @cached_property
    def _shared(self) -> dict[str, Any]:
        return {"_grid": Grid(self.problem), "_shape": self.mechanism.shape(self.problem)}

    @cached_property
    def _amounts(self) -> np.ndarray:
        return _amounts(self.problem, self.mechanism, self.scales, self.bound, self.sampling)  # pyright: ignore[reportArgumentType]


class Sum(Request):
    """A sum over the records of integers that each of them is encoded as, with integer noise.

    A kind of sum is a frozen dataclass below this class: it says how a block of records is encoded and added up
    (``block``), what bounds the sum's sensitivity, and which noise that costs what.
    """

    has_slopes: ClassVar[bool] = False

    @staticmethod
    def prepare(records: Records) -> None:
        """Round the records."""
        records.prepare()

    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sum over a few records in int64, UNPROTECTED; every record enters by itself.

        Features are the records' integers on the problem's grid (``Grid``), in float64 and with the intercept's column.
        There are at most 2^16 records at a time, in any order and wherever they are kept; the sum over 2^20 of them
        must fit 63 bits.
        """
        raise NotImplementedError

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the sum over all records in integers."""
        return records.total(self.block)
