"""For tests of private code: a fit is recorded on one dataset and replayed on a neighbour, its releases frozen.

If all that a fit publishes passes through noise, then on a neighbouring dataset, with noise such that the releases are
the same, everything else must be the same too: the draws, their scales, the charges, warnings, and the result to the
last bit. What differs has seen the records without protection. (The idea is dp-recorder's: Cebere et al. 2026.) And
where a release reads the records, the two datasets must differ by no more than its noise was paid for. That is measured
by the noise as it was drawn, not by what the request says of itself.
"""

import copy
import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import singledispatch
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from epsteps.auditing.worst_case import Counted, counted, loss_gradients, loss_hessian
from epsteps.budgets import Budget, Cost, Epsilon, Rho
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods.minima import minimum_radius
from epsteps.methods.minimum import Minimised, Minimum
from epsteps.methods.together import ColumnEnds
from epsteps.noise import Source
from epsteps.noise.samplers import checked_shape
from epsteps.plans.requests import Draw, Gradient, Records, Request
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import Shape
from epsteps.running import taps

__all__ = ["Event", "Reading", "Replay", "ReplayError", "Spent", "loss_of", "noise_loss", "replay"]

_ROUNDING = 1 + 1e-9


class ReplayError(AssertionError):
    """A fit treats neighbouring datasets differently, beyond its noise."""


@dataclass(frozen=True, eq=False)
class Event:
    """Something that a fit did: what must be the same on a neighbour, and the value that is frozen.

    ``arguments`` are those of a draw, by name; ``records`` are those that a reading read.
    """

    kind: str
    facts: tuple[Any, ...]
    value: Any = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    records: Records | None = None

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(short(fact) for fact in self.facts)}"


class Spent(NamedTuple):
    """The privacy loss of a reading, one for each repetition, in its currency: Epsilon or Rho."""

    kind: type[Cost]
    amounts: np.ndarray


@dataclass(frozen=True, eq=False)
class Reading:
    """One reading of the records: what was read of the first dataset and then frozen, and how to read the neighbour.

    ``first`` and ``second`` are the records of the dataset and of its neighbour, ``draw`` the secrets that the answer
    is made with, and ``draws`` the events of drawing since the reading before.
    """

    value: np.ndarray
    first: Records
    second: Records
    draw: Draw
    draws: tuple[Event, ...]

    def noises(self, count: int) -> list[Event]:
        """Return the draws of integer noise that protect this reading, or raise unless there are so many."""
        noises = [draw for draw in self.draws if draw.kind in _LOSSES]
        if len(noises) != count:
            raise ReplayError(
                f"records are read by a release for which noise was drawn {len(noises)} times, not {count}: "
                f"{', '.join(map(str, noises)) or 'no noise was drawn'}."
            )
        return noises


@dataclass(frozen=True, eq=False)
class Replay:
    """What was compared: the events of the fit, and the privacy loss of each release between these two datasets.

    ``losses`` has one row per release and one column per repetition; ``spent`` is what they are together, in the unit
    of what was charged (NaN where there were several charges, or losses in several units). ``result`` is the fit's on
    the first dataset, and ``exception`` what it raised on both, in words: "none" if it raised nothing.
    """

    events: tuple[Event, ...]
    losses: np.ndarray
    charges: tuple[Budget, ...]
    result: Any
    spent: float
    exception: str


def replay(
    fit: Callable[[Any, Any], Any],
    data: Any,
    neighbour: Any,
    *,
    costs: Sequence[float] | np.ndarray | Callable[[Any], Sequence[float] | np.ndarray] | None = None,
) -> Replay:
    """Run a fit on ``data``, then on ``neighbour`` with its releases frozen, and raise unless all else is the same.

    Raises :class:`ReplayError`, with the first difference, if draws (kind, scale, shape, order), charges, warnings,
    exceptions or results differ; if noise is drawn or records are read before anything is charged; if a release moves
    by more than its request or its declared cost says, or all of them by more than was charged; or if the costs add up
    to more than that.

    Parameters
    ----------
    fit : callable
        ``fit(data, account)`` publishes its return value and charges ``account``; unseeded, or in exact arithmetic.
    data, neighbour
        What ``fit`` is called with: datasets that differ in one record.
    costs : array or callable, optional
        The declared cost of each release, in the mechanism's unit, in order; or a function of the fit's result, where
        costs are published with it.
    """
    first = _Tape()
    outcome = _outcome(fit, data, first)
    second = _Tape(first.events)
    again = _outcome(fit, neighbour, second)
    difference = first_difference(outcome, again)
    if difference is not None:
        control = first_difference(outcome, _outcome(fit, data, _Tape(first.events)))
        where = "a neighbour" if control is None else "the same data"
        raise ReplayError(f"with all releases frozen, the fit differs on {where}: {difference}.")
    if len(second.events) < len(first.events):
        raise ReplayError(
            f"event {len(second.events)} is missing on the neighbour: {first.events[len(second.events)]}."
        )
    charges = tuple(event.facts[0] for event in first.events if event.kind == "charge")
    spent = math.nan
    if outcome["exception"] == "none":
        _check_charges(first.events)
        spent = _check_losses(second.losses, costs(outcome["result"]) if callable(costs) else costs, charges)
    losses = np.array([loss.amounts for loss in second.losses]) if second.losses else np.zeros((0, 1))
    return Replay(tuple(first.events), losses, charges, outcome["result"], spent, outcome["exception"])


def _outcome(fit: Callable[[Any, Any], Any], data: Any, tape: "_Tape") -> dict[str, Any]:
    """Return all that a fit lets its caller see."""
    result, error = None, "none"
    with taps.listening(tape), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = fit(data, tape)
        except ReplayError:
            raise
        except Exception as raised:  # whatever it is, the neighbour must raise the same
            error = f"{type(raised).__name__}: {raised}"
    heard = [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    return {"exception": error, "warnings": heard, "result": result}


# Every public method of a source but the one that opens another, by what it is called with; taken now, as tests patch.
_DRAWS = {
    name: inspect.signature(method)
    for name, method in vars(Source).items()
    if inspect.isfunction(method) and not name.startswith("_") and name != "at_step"
}


class _Tape:
    """The events of one run: written by the first, followed by the second. It is the fit's account, and listens."""

    def __init__(self, recorded: Sequence[Event] | None = None) -> None:
        self.events: list[Event] = []
        self.losses: list[Spent] = []
        self._recorded = recorded

    def charge(self, cost: Budget, *, note: str, key: str | None = None) -> None:
        """Note a charge."""
        self._follow(Event("charge", (cost, note)), lambda: None)

    def source(self, source: Source, *place: str) -> Source:
        """Return the same source, every draw of which is noted, or repeated; ``place`` is the step that it is for.

        Draws that a draw consists of are made by the source itself, and not noted.
        """
        taped = copy.copy(source)
        for name in _DRAWS:
            setattr(taped, name, self._taped(source, name, place))
        taped.at_step = lambda t: self.source(source.at_step(t), f"step {t}")
        return taped

    def _taped(self, source: Source, name: str, place: tuple[str, ...]) -> Callable[..., np.ndarray]:
        def draw(*args: Any, **options: Any) -> np.ndarray:
            bound = _DRAWS[name].bind(source, *args, **options)
            bound.apply_defaults()
            arguments = dict(list(bound.arguments.items())[1:])
            event = Event(f"draw of {name}", (*arguments.values(), *place), None, arguments)
            return np.copy(self._follow(event, lambda: getattr(source, name)(*args, **options)).value)

        return draw

    def reading(self, request: Request, records: Records, draw: Draw) -> np.ndarray:
        """Note a reading of the records; when replaying, measure how far it moved and return the recorded one."""
        later = takewhile(lambda event: event.kind != "reading by", reversed(self.events))
        draws = tuple(later)[::-1]
        event = Event("reading by", (type(request).__name__,), records=records)
        recorded = self._follow(event, lambda: request.read(records, draw))
        if self._recorded is not None:
            assert recorded.records is not None
            loss = loss_of(request, Reading(recorded.value, recorded.records, records, draw, draws))
            _check_request(len(self.losses), request, loss)
            self.losses.append(loss)
        return np.copy(recorded.value)

    def _follow(self, event: Event, compute: Callable[[], Any]) -> Event:
        """Return the event with a new value when recording, the recorded one at its place when replaying."""
        if self._recorded is None:
            event = Event(event.kind, event.facts, compute(), event.arguments, event.records)
        else:
            event = self._expected(self._recorded, event)
        self.events.append(event)
        return event

    def _expected(self, recorded: Sequence[Event], event: Event) -> Event:
        """Return the recorded event at this place, or raise if it is another."""
        place = len(self.events)
        if place >= len(recorded):
            raise ReplayError(f"event {place} happens on the neighbour only: {event}.")
        before = recorded[place]
        difference = first_difference((before.kind, before.facts), (event.kind, event.facts))
        if difference is not None:
            raise ReplayError(f"event {place} differs on the neighbour: {before} became {event} ({difference}).")
        return before


def noise_loss(moved: np.ndarray, noise: Event) -> Spent:
    """Return what it costs to move by so much under a draw of noise, in integers, for each column."""
    return _LOSSES[noise.kind](np.asarray(moved).astype(float), **noise.arguments)


def _integers(moved: np.ndarray, mechanism: Mechanism, scale: Any, shape: tuple[int, ...], body: Any) -> Spent:
    """Noise of a shape costs the gauge of what moved, in scales; Gaussian noise half its square."""
    known, scales = checked_shape(mechanism, shape, body), np.broadcast_to(scale, shape)
    columns = (len(moved), -1) if known.array == shape[:1] else shape
    ratios = known.gauge(np.broadcast_to(moved, shape).reshape(columns) / scales.reshape(columns))
    return Spent(mechanism.kind, np.atleast_1d(mechanism.kind.amount_of(ratios)))


def _shaped(moved: np.ndarray, shape: Shape, t: Any) -> Spent:
    """One draw of a shape, likewise."""
    kind = Rho if shape.gaussian else Epsilon
    return Spent(kind, np.atleast_1d(kind.amount_of(shape.gauge(moved.reshape(shape.array) / t))))


def _geometric(moved: np.ndarray, scale: float, count: int) -> Spent:
    """Of scores with one-sided noise the largest is chosen: that costs how far they move apart, in scales."""
    if moved.shape != (count,):
        raise ReplayError(f"noise was drawn for {count} candidates, but {moved.size} scores were read.")
    return Spent(Epsilon, np.atleast_1d(np.ptp(moved) / scale))


_LOSSES: dict[str, Callable[..., Spent]] = {
    "draw of integers": _integers,
    "draw of shaped": _shaped,
    "draw of geometric": _geometric,
}


@singledispatch
def loss_of(request: Request, reading: Reading) -> Spent:
    """Return the privacy loss of a reading: what it costs to move as far as it did, under the noise that was drawn.

    One draw of integer noise is added to what is read. Kinds of requests of which that is not so are registered:
    ``@epsteps.testing.loss_of.register``.
    """
    return _additive(reading, request.read(reading.second, reading.draw) - reading.value)


@loss_of.register
def _(request: Gradient, reading: Reading) -> Spent:
    """Return the loss of a gradient: its sums are rounded before noise is added to them."""
    rounded = request._release.rounded
    return _additive(reading, rounded(request.read(reading.second, reading.draw)) - rounded(reading.value))


@loss_of.register
def _(request: ColumnEnds, reading: Reading) -> Spent:
    """Return the loss of a choice by distances: by how far the most are nearer, and the most farther, in scales."""
    words = [draw for draw in reading.draws if draw.kind == "draw of words"]
    if len(words) != 1 or not np.array_equal(words[0].value, reading.draw["words"]):
        raise ReplayError("the bits that decide are not those that were drawn for it, once.")
    (noise,) = words
    if len(noise.value) < request.words:
        raise ReplayError(f"a choice of so many needs {request.words} words, but {len(noise.value)} were drawn.")
    moved = request.read(reading.second, reading.draw) - reading.value
    return Spent(Epsilon, np.atleast_1d((max(moved.max(), 0) - min(moved.min(), 0)) / request.scale))


def _additive(reading: Reading, moved: np.ndarray) -> Spent:
    """Return the loss of moving by so much what one draw of noise is added to; a sample of the records amplifies it."""
    (noise,) = reading.noises(1)
    if not any(np.array_equal(noise.value, secret) for secret in reading.draw.values()):
        raise ReplayError("the noise that a release adds is not the noise that was drawn for it.")
    kind, amounts = noise_loss(moved, noise)
    samplings = [draw.arguments["sampling"] for draw in reading.draws if draw.kind == "draw of subset"]
    return Spent(kind, (samplings[0] if samplings else Sampling(1, 1)).amplified_epsilon(amounts))


@loss_of.register
def _(request: Minimum, reading: Reading) -> Spent:
    """Return the loss of a minimum. A solver that stops early would move it by what the noise is not scaled for."""
    again = request.read(reading.second, reading.draw)
    if request.tilt is None:
        for records, minimum in ((reading.first, reading.value), (reading.second, again)):
            _check_solver(request, records, 0.0, minimum)
        return _additive(reading, again - reading.value)
    return _tilted_minimum(request, reading, again)


def _tilted_minimum(request: Minimum, reading: Reading, again: np.ndarray) -> Spent:
    """Return the loss of releasing the minimum x of a tilted objective, at the x that was released.

    The tilts that lead to x differ by the gradients, in the tilt's norm, and their densities by the Jacobians besides;
    the noise on the output hides where the solver stopped. For Gaussian tilts the loss is that of the tilt, and the
    Jacobian must stay within what kappa allows: the plan's corners take account of both.

    Whether the tilt that these gradients ask for does lead to x is tried on the neighbour: else they are not those of
    what the solver minimises, and the loss is that of another release.
    """
    tilt, output = reading.noises(2)
    first, second, objective = reading.first, reading.second, request.goal.objective
    size = _tilt_size(request, tilt)
    pull = tilt.value.astype(float) * size
    _check_solver(request, first, pull, reading.value)
    _check_solver(request, second, pull, again)
    x = reading.value.astype(float) * request.goal.step
    hidden = _output_loss(request, output)
    moved = (_gradient(request, second, x) - _gradient(request, first, x)) / size
    # In long doubles: where noise is very small, what moved is more of its integers than 64 bits hold.
    _check_gradient(request, reading, tilt.value - np.rint(moved).astype(np.longdouble), x, size)
    kind, amounts = noise_loss(moved, tilt)
    jacobian = abs(_log_volume(request, second, x) - _log_volume(request, first, x))
    if kind is Epsilon:
        return Spent(kind, amounts + jacobian + hidden)
    allowed = objective.saturation.largest(objective.kappa, 0.0)
    if jacobian > allowed * _ROUNDING + 1e-9:
        raise ReplayError(f"the Jacobian moved by {jacobian:.6g}, but the plan allows for {allowed:.6g}.")
    return Spent(kind, amounts)


def _tilt_size(request: Minimum, tilt: Event) -> np.ndarray:
    """Return the real size of an integer of the tilt, by what was drawn: noise with a shape is in the domain's units.

    The request says so itself, but is not asked: it is what is judged.
    """
    assert request.tilt is not None
    problem = request.goal.objective.problem
    return request.tilt.step * (np.ones(problem.dimension) if tilt.arguments["body"].stretches else problem.units)


def _gradient(request: Minimum, records: Records, x: np.ndarray) -> np.ndarray:
    """Return the gradient of the sum, ridge included, computed here from the records as they are declared."""
    objective = request.goal.objective
    sums = []
    for rows, targets in records.blocks():
        weights, rows, caps = _checked(objective, rows)
        sums.append(np.sum(loss_gradients(objective.problem, x, rows, targets, caps) * weights, axis=1))
    return np.sum(sums, axis=0) + objective.n * objective.ridge * x


def _log_volume(request: Minimum, records: Records, x: np.ndarray) -> float:
    """Return ln det of the minimised objective's second derivatives, those of the sum."""
    objective = request.goal.objective
    sums = []
    for rows, targets in records.blocks():
        weights, rows, caps = _checked(objective, rows)
        sums.append(loss_hessian(objective.problem, x, rows, targets, weights, caps))
    return float(np.linalg.slogdet(np.sum(sums, axis=0) + objective.n * objective.ridge * np.eye(len(x)))[1])


def _checked(objective: Minimised, rows: np.ndarray) -> Counted:
    """Return what records count, and the records as they are in the sum; raise where that is more than is paid for.

    By lengths that are computed here: weights, or the records' own caps, are what makes the sensitivity.
    """
    records = counted(objective, rows)
    if (weighting := objective.weighting) is not None:
        lengths = np.linalg.norm(records.rows, ord=weighting.norm, axis=1)
        if weighting.held:
            slopes = objective.loss.slope if records.caps is None else records.caps
            most, longest = np.max(slopes * lengths) / objective.loss.slope, lengths.max()
        else:
            most = np.max(records.weights * lengths) * weighting.mean
            longest = lengths.max() / 2 if weighting.norm == 2 else 0.0
        if max(most, longest) > weighting.radius * _ROUNDING:
            raise ReplayError("a record counts more than the radius of the weighting allows.")
    return records


def _check_solver(request: Minimum, records: Records, tilt: np.ndarray | float, minimum: np.ndarray) -> None:
    """Raise if the solver stopped before its tolerance."""
    x = minimum.astype(float) * request.goal.step
    length = np.linalg.norm(_gradient(request, records, x) + tilt)
    if length > request.goal.tolerance + _gradient_error(request):
        raise ReplayError(f"the solver stopped at a gradient of {length:.6g}, above its {request.goal.tolerance:.6g}.")


def _check_gradient(request: Minimum, reading: Reading, tilt: np.ndarray, x: np.ndarray, size: np.ndarray) -> None:
    """Raise unless this tilt, in integers of this size, leads the release to x: to within the reach of two solvers.

    At x the gradient is below the tolerance, but for the tilt's rounding to integers; where the release stops, too.
    """
    goal = request.goal
    there = request.read(reading.second, {**reading.draw, "tilt": tilt}).astype(float) * goal.step
    off = float(np.linalg.norm(there - x))
    rounding = float(np.linalg.norm(size)) / 2 + 2 * _gradient_error(request)
    allowed = minimum_radius(2 * goal.tolerance + rounding, goal.objective.n, goal.objective.ridge)
    if off > allowed * _ROUNDING:
        raise ReplayError(
            f"the gradient that scales the noise is not that of what is read: its tilt leads {off:.6g} away from the "
            f"minimum, more than the solver's {allowed:.6g}."
        )


def _gradient_error(request: Minimum) -> float:
    """Return what a gradient of the sum may be off by, as doubles round it."""
    objective = request.goal.objective
    return 1e-9 * objective.n * objective.problem.record_size(2) / objective.mean


def _output_loss(request: Minimum, output: Event) -> float:
    """Return the loss of the noise on the output between any two points within the solver's reach, or raise."""
    goal = request.goal
    moved = np.zeros(goal.objective.dimension)
    moved[0] = 2 * minimum_radius(goal.tolerance, goal.objective.n, goal.objective.ridge) / goal.step
    loss = float(noise_loss(moved, output).amounts[0])
    if loss > request.output_cost * _ROUNDING:
        raise ReplayError(f"the noise on the output costs {loss:.6g}, but is declared as {request.output_cost:.6g}.")
    return loss


def _check_charges(events: Sequence[Event]) -> None:
    kinds = [event.kind for event in events]
    if "charge" not in kinds:
        raise ReplayError("the fit charged nothing to its account.")
    if kinds[0] != "charge":
        raise ReplayError(f"{events[0]} happened before anything was charged.")


def _check_request(number: int, request: Request, loss: Spent) -> None:
    """Raise if a release moved by more than its request says that it costs: one cost for each column, or for all."""
    stated = [cost.ratio for cost in request.noise_costs if cost.is_pure == loss.kind.is_pure]
    if not stated:
        raise ReplayError(f"release {number} moved in {loss.kind.unit}, but {type(request).__name__} costs none of it.")
    limits = np.asarray(loss.kind.amount_of(np.array(stated)))
    _check_moved(number, loss, limits if len(limits) == len(loss.amounts) else limits.max())


def _check_moved(number: int, loss: Spent, limits: np.ndarray | float) -> None:
    excess = loss.amounts - np.asarray(limits) * _ROUNDING
    if np.any(excess > 0):
        amount, limit = loss.amounts[excess.argmax()], np.broadcast_to(limits, excess.shape)[excess.argmax()]
        raise ReplayError(f"release {number} moved by {amount:.6g} of its noise, but is declared as {limit:.6g}.")


def _check_losses(
    losses: Sequence[Spent], costs: Sequence[float] | np.ndarray | None, charges: Sequence[Budget]
) -> float:
    """Return what the losses are together.

    Raises if a release moved by more than its cost, or all of them, or their costs, by more than what was charged.
    """
    if costs is not None:
        if len(costs) != len(losses):
            raise ReplayError(f"{len(costs)} releases were declared, but {len(losses)} were made.")
        for number, (loss, cost) in enumerate(zip(losses, costs, strict=True)):
            _check_moved(number, loss, float(cost))
    if len(charges) != 1 or not losses:
        return math.nan
    kinds = [loss.kind for loss in losses]
    if len(set(kinds)) > 1 and Epsilon in charges[0].kinds and not charges[0].delta:
        return math.nan
    if costs is not None:
        _checked_together("the releases are declared as", charges[0], [np.atleast_1d(cost) for cost in costs], kinds)
    return _checked_together("the releases moved by", charges[0], [loss.amounts for loss in losses], kinds)


def _checked_together(what: str, charge: Budget, amounts: Sequence[np.ndarray], kinds: Sequence[type[Cost]]) -> float:
    """Return what these amounts are together; of two kinds, the epsilons are added to what the others have at delta.

    Where rho was charged, a pure loss counts as the rho of epsilon²/2 that it is.
    """
    if Epsilon not in charge.kinds:
        pairs = list(zip(amounts, kinds, strict=True))
        amounts = [np.asarray(each, dtype=float) ** 2 / 2 if kind.is_pure else each for each, kind in pairs]
        kinds = [Rho] * len(pairs)
    spent, of_two = 0.0, len(set(kinds)) > 1
    for kind in dict.fromkeys(kinds):
        own = np.concatenate([each for each, of in zip(amounts, kinds, strict=True) if of is kind]).astype(float)
        if of_two and kind.is_pure:
            spent += float(np.sum(own))
        elif np.any(own):
            spent += charge.spending(own, kind).amount
    if spent > charge.amount * _ROUNDING:
        raise ReplayError(f"{what} {spent:.6g} together, but only {charge} was charged.")
    return spent


def first_difference(first: Any, second: Any, where: str = "") -> str | None:
    """Return where two results differ, in words, or None: by type, dtype, shape and every bit."""
    name = where or "the value"
    if type(first) is not type(second):
        return f"{name} is a {type(first).__name__}, then a {type(second).__name__}"
    if isinstance(first, np.ndarray):
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return f"{name} has dtype {first.dtype} and shape {first.shape}, then {second.dtype} and {second.shape}"
        same = np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
        return None if same else f"{name} is {short(first)}, then {short(second)}"
    if isinstance(first, dict | list | tuple) or is_dataclass(first):
        parts, others = _parts(first), _parts(second)
        if parts.keys() != others.keys():
            return f"{name} has {len(parts)} parts, then {len(others)}: {short(first)}, then {short(second)}"
        differences = (first_difference(parts[key], others[key], f"{where}.{key}".lstrip(".")) for key in parts)
        return next((difference for difference in differences if difference is not None), None)
    if type(first).__eq__ is object.__eq__ and hasattr(first, "__dict__"):
        return first_difference(vars(first), vars(second), where)
    return None if first == second or first != first else f"{name} is {short(first)}, then {short(second)}"


def _parts(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return {part.name: getattr(value, part.name) for part in fields(value)}


def short(value: Any) -> str:
    """Return a value in at most 100 characters."""
    text = " ".join(np.array2string(value, threshold=6).split()) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
