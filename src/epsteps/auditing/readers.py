"""Where releases read records, and what a reading costs between two datasets: for ``epsteps.testing.replay``."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from epsteps.auditing.comparing import short
from epsteps.budgets.costs import Epsilon, Rho
from epsteps.data.records import Rows
from epsteps.methods import ObjectivePlan, OutputPlan
from epsteps.methods.minima import minimum_radius
from epsteps.noise import Source
from epsteps.noise.samplers import checked_shape
from epsteps.problem.grid import Release
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import Shape
from epsteps.running.releases.moments import StatisticRelease
from epsteps.running.releases.objective import TiltedMinimum
from epsteps.running.releases.output import NoisyMinimum
from epsteps.running.releases.second_moment import SecondMomentRelease
from epsteps.running.releases.statistics import NoisyMoments

_ROUNDING = 1 + 1e-9


class ReplayError(AssertionError):
    """A fit treats neighbouring datasets differently, beyond its noise."""


@dataclass(frozen=True, eq=False)
class Event:
    """Something that a fit did: what must be the same on a neighbour, and the value that is frozen.

    ``call`` is what a reading was called with: its owner, then the arguments. It may differ on a neighbour.
    """

    kind: str
    facts: tuple[Any, ...]
    value: Any
    call: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(short(fact) for fact in self.facts)}"


class Spent(NamedTuple):
    """The privacy loss of a reading, one for each repetition, in its unit: "epsilon" or "rho"."""

    unit: str
    amounts: np.ndarray


@dataclass(frozen=True, eq=False)
class Reading:
    """One reading of the records: its frozen result, and how to make it again on the neighbour.

    ``first`` and ``second`` are what it was called with on the dataset and on its neighbour: the owner, then the
    arguments. ``draws`` are those made since the reading before.
    """

    value: Any
    again: Callable[[], Any]
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    draws: tuple[Event, ...]

    def noises(self, count: int) -> list[Event]:
        """Return the draws of integer noise that protect this reading, or raise unless there are so many."""
        found = [draw for draw in self.draws if draw.kind in _LOSSES]
        if len(found) != count:
            raise ReplayError(
                f"records are read by a release for which noise was drawn {len(found)} times, not {count}: "
                f"{', '.join(map(str, found)) or 'no noise was drawn'}."
            )
        return found


@dataclass(frozen=True)
class Reader:
    """A method through which a release reads records, and the privacy loss of what it reads."""

    owner: type
    method: str
    loss: Callable[[Reading], Spent]


def additive(statistic: Callable[[Any, Any], np.ndarray]) -> Callable[[Reading], Spent]:
    """Return the loss of a reading to which one draw of integer noise is added.

    ``statistic(owner, result)`` is what the noise is added to, in the noise's units.
    """

    def loss(reading: Reading) -> Spent:
        owner, (noise,) = reading.second[0], reading.noises(1)
        moved = np.asarray(statistic(owner, reading.again()) - statistic(owner, reading.value)).astype(float)
        unit, sizes = noise_loss(moved, noise)
        samplings = [draw.facts[0] for draw in reading.draws if draw.kind == "draw of subset"]
        return Spent(unit, (samplings[0] if samplings else Sampling(1, 1)).amplified_epsilon(sizes))

    return loss


def noise_loss(moved: np.ndarray, noise: Event) -> Spent:
    """Return what it costs to move by so much under this noise, in integers, for each column."""
    return _LOSSES[noise.kind](moved, **dict(zip(_PARAMETERS[noise.kind], noise.facts, strict=True)))


def _integers(moved: np.ndarray, mechanism: Any, scale: Any, shape: tuple[int, ...], body: Any) -> Spent:
    """Noise of a shape costs the gauge of what moved, in scales; Gaussian noise half its square."""
    gauge = checked_shape(mechanism, shape, body).gauge
    columns = np.broadcast_to(moved.reshape(shape[0], -1), (shape[0], int(np.prod(shape[1:]))))
    size = np.atleast_1d(gauge(columns / np.broadcast_to(scale, shape).reshape(columns.shape)))
    return Spent(mechanism.unit, mechanism.kind.amount_of(size))


def _shaped(moved: np.ndarray, shape: Shape, t: Any) -> Spent:
    """One draw of a shape, likewise."""
    kind, size = Rho if shape.gaussian else Epsilon, np.atleast_1d(shape.gauge(moved.reshape(shape.array) / t))
    return Spent(kind.unit, np.asarray(kind.amount_of(size)))


_LOSSES: dict[str, Callable[..., Spent]] = {"draw of integers": _integers, "draw of shaped": _shaped}


# Taken now: while a fit is taped, the methods are others.
_PARAMETERS = {
    kind: list(inspect.signature(getattr(Source, kind.removeprefix("draw of "))).parameters)[1:] for kind in _LOSSES
}


def tilted_minimum(reading: Reading) -> Spent:
    """Return the loss of releasing the minimum x of a tilted objective, at the x that was released.

    The tilts that lead to x differ by the gradients, in the tilt's norm, and their densities by the Jacobians besides;
    the noise on the output hides where the solver stopped. For Gaussian tilts the loss is that of the tilt, and the
    Jacobian must stay within what the plan's kappa allows: its corners take account of both.

    Whether the tilt that these gradients ask for does lead to x is tried on the neighbour: else they are not those of
    what the solver minimises, and the loss is that of another release.
    """
    release: TiltedMinimum = reading.second[0]
    plan, tilt, output = release.plan, *reading.noises(2)
    data, other = reading.first[1], reading.second[1]
    size = _tilt_size(plan, release.number, tilt)
    pull = tilt.value.astype(float) * size
    _check_solver(plan, data, pull, reading.value.astype(float) * release.step)
    _check_solver(plan, other, pull, reading.again().astype(float) * release.step)
    x = reading.value.astype(float) * release.step
    hidden = _output_loss(plan, release, output)
    moved = plan.problem.n * (other.gradient(x) - data.gradient(x)) / size
    # In long doubles: where noise is very small, what moved is more of its integers than 64 bits hold.
    _check_gradient(release, other, tilt.value - np.rint(moved).astype(np.longdouble), x, size)
    unit, sizes = noise_loss(moved, tilt)
    jacobian = abs(_log_volume(plan, other, x) - _log_volume(plan, data, x))
    if unit == "rho":
        allowed = plan.saturation.largest(plan.kappa, 0.0)
        if jacobian > allowed * _ROUNDING + 1e-9:
            raise ReplayError(f"the Jacobian moved by {jacobian:.6g}, but the plan allows for {allowed:.6g}.")
        return Spent("rho", sizes)
    return Spent("epsilon", sizes + jacobian + hidden)


def _tilt_size(plan: ObjectivePlan, number: int, tilt: Event) -> np.ndarray:
    """Return the real size of an integer of the tilt, by what was drawn: noise with a shape is in the domain's units.

    The release says so itself, but is not asked: it is what is judged.
    """
    body = dict(zip(_PARAMETERS[tilt.kind], tilt.facts, strict=True))["body"]
    return plan.tilt_steps[number] * (np.ones(plan.problem.dimension) if body.stretches else plan.problem.units)


def _log_volume(plan: ObjectivePlan, data: Rows, x: np.ndarray) -> float:
    """Return ln det of the minimised objective's second derivatives, those of the sum."""
    more = (plan.ridge - data.problem.ridge) * np.eye(len(x))
    return float(np.linalg.slogdet(plan.problem.n * (data.hessian(x) + more))[1])


def _check_solver(plan: ObjectivePlan | OutputPlan, data: Rows, tilt: np.ndarray | float, x: np.ndarray) -> None:
    """Raise if the solver stopped before its tolerance."""
    gradient = plan.problem.n * (data.gradient(x) + (plan.ridge - data.problem.ridge) * x) + tilt
    if np.linalg.norm(gradient) > plan.tolerance + _gradient_error(plan):
        raise ReplayError(
            f"the solver stopped at a gradient of {np.linalg.norm(gradient):.6g}, above its {plan.tolerance:.6g}."
        )


def _check_gradient(release: TiltedMinimum, data: Rows, tilt: np.ndarray, x: np.ndarray, size: np.ndarray) -> None:
    """Raise unless this tilt, in integers of this size, leads the release to x: to within the reach of two solvers.

    At x the gradient is below the tolerance, but for the tilt's rounding to integers; where the release stops, too.
    """
    plan = release.plan
    off = float(np.linalg.norm(release.minimum(data, tilt).astype(float) * release.step - x))
    rounding = float(np.linalg.norm(size)) / 2 + 2 * _gradient_error(plan)
    allowed = minimum_radius(2 * plan.tolerance + rounding, plan.problem.n, plan.ridge)
    if off > allowed * _ROUNDING:
        raise ReplayError(
            f"the gradient that scales the noise is not that of what is read: its tilt leads {off:.6g} away from the "
            f"minimum, more than the solver's {allowed:.6g}."
        )


def _gradient_error(plan: ObjectivePlan | OutputPlan) -> float:
    """Return what a gradient of the sum may be off by, as doubles round it."""
    return 1e-9 * plan.problem.n * plan.problem.record_size(2)


def _output_loss(plan: ObjectivePlan, release: TiltedMinimum, output: Event) -> float:
    """Return the loss of the noise on the output between any two points within the solver's reach, or raise."""
    moved = np.zeros(plan.problem.dimension)
    moved[0] = 2 * minimum_radius(plan.tolerance, plan.problem.n, plan.ridge) / release.step
    loss = float(noise_loss(moved, output).amounts[0])
    allowed = plan.output_costs[release.number]
    if loss > allowed * _ROUNDING:
        raise ReplayError(f"the noise on the output costs {loss:.6g}, but is declared as {allowed:.6g}.")
    return loss


def noisy_minimum(reading: Reading) -> Spent:
    """Return the loss of releasing a minimum with noise on it: how far it moved, if the solver reached its tolerance.

    A solver that stops early would move it by what the noise is not scaled for.
    """
    release: NoisyMinimum = reading.second[0]
    for data, found in ((reading.first[1], reading.value), (reading.second[1], reading.again())):
        _check_solver(release.plan, data, 0.0, found.astype(float) * release.plan.step)
    return additive(lambda _, minimum: minimum)(reading)


def _eigenvalue(rows: Rows, moment: np.ndarray) -> np.ndarray:
    """Return the largest eigenvalue as ``estimate_smoothness`` releases it: whole 2^-20 of what one record can move."""
    problem = rows.problem
    return np.floor(np.linalg.eigvalsh(moment)[-1:] / (problem.record_size(2) ** 2 / problem.n / 2**20) + 0.5)


READERS: Sequence[Reader] = (
    Reader(Release, "rounded", additive(lambda _, sums: sums)),
    Reader(Rows, "second_moment", additive(_eigenvalue)),
    Reader(TiltedMinimum, "minimum", tilted_minimum),
    Reader(NoisyMinimum, "minimum", noisy_minimum),
    Reader(NoisyMoments, "moments", additive(lambda _, matrix: matrix)),
    Reader(StatisticRelease, "sums", additive(lambda _, sums: sums)),
    Reader(SecondMomentRelease, "sums", additive(lambda _, matrix: matrix)),
)
