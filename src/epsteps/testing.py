"""For tests of private code: a fit is recorded on one dataset and replayed on a neighbour, its releases frozen.

If all that a fit publishes passes through noise, then on a neighbouring dataset, with noise such that the releases are
the same, everything else must be the same too: the draws, their scales, the charges, warnings, and the result to the
last bit. What differs has seen the records without protection. (The idea is dp-recorder's: Cebere et al. 2026.) And
where a release reads the records, the two datasets must differ by no more than its noise was paid for.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from unittest.mock import patch

import numpy as np

from epsteps.auditing.comparing import first_difference
from epsteps.auditing.readers import READERS, Event, Reader, Reading, ReplayError, Spent, additive, noise_loss
from epsteps.budgets import Budget, Concentrated, mechanisms
from epsteps.noise import Source

__all__ = [
    "READERS",
    "Event",
    "Reader",
    "Reading",
    "Replay",
    "ReplayError",
    "Spent",
    "additive",
    "noise_loss",
    "replay",
]

_DRAWS = (*("integers", "shaped", "draw", "subset", "subsets"),)
_ROUNDING = 1 + 1e-9
_USUAL = {"epsilon": "laplace", "rho": "gaussian"}


@dataclass(frozen=True, eq=False)
class Replay:
    """What was compared: the events of the fit, and the privacy loss of each release between these two datasets.

    ``losses`` has one row per release and one column per repetition; ``spent`` is what they are together, in the unit
    of what was charged (NaN where there were several charges, or losses in several units). ``result`` is the fit's on
    the first dataset.
    """

    events: tuple[Event, ...]
    losses: np.ndarray
    charges: tuple[Budget, ...]
    result: Any
    spent: float


class _Tape:
    """The events of one run: written by the first, followed by the second."""

    def __init__(self, recorded: Sequence[Event] | None = None) -> None:
        self.events: list[Event] = []
        self.losses: list[Spent] = []
        self._recorded = recorded
        self._busy = False

    def charge(self, cost: Budget, *, note: str, key: str | None = None) -> None:
        """Note a charge; the tape is the account of the fit."""
        self.follow("charge", (cost, note), lambda: None)

    def follow(self, kind: str, facts: tuple[Any, ...], compute: Callable[[], Any], call: tuple[Any, ...] = ()) -> Any:
        """Return a new value when recording, the recorded one when replaying; a part of another event is none."""
        if self._busy:
            return compute()
        event = self._recording(kind, facts, compute, call) if self._recorded is None else self.expect(kind, facts)
        self.events.append(event)
        return np.copy(event.value) if isinstance(event.value, np.ndarray) else event.value

    def _recording(self, kind: str, facts: tuple[Any, ...], compute: Callable[[], Any], call: tuple[Any, ...]) -> Event:
        self._busy = True
        try:
            return Event(kind, facts, compute(), call)
        finally:
            self._busy = False

    def expect(self, kind: str, facts: tuple[Any, ...]) -> Event:
        """Return the recorded event at this place, or raise if it is another."""
        assert self._recorded is not None
        place, found = len(self.events), Event(kind, facts, None)
        if place >= len(self._recorded):
            raise ReplayError(f"event {place} happens on the neighbour only: {found}.")
        event = self._recorded[place]
        difference = first_difference((event.kind, event.facts), (kind, facts))
        if difference is not None:
            raise ReplayError(f"event {place} differs on the neighbour: {event} became {found} ({difference}).")
        return event

    def read(self, reader: Reader, call: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """Note a reading of the records; when replaying, measure how far it moved and return the recorded one."""
        busy, before = self._busy, self.events
        drawn = self._since_the_last_reading()
        value = self.follow("reading by", (reader.method,), compute, call)
        if self._recorded is not None and not busy:
            first = before[-1].call
            self._busy = True
            self.losses.append(reader.loss(Reading(value, compute, first, call, drawn)))
            self._busy = False
        return value

    def _since_the_last_reading(self) -> tuple[Event, ...]:
        later = takewhile(lambda event: event.kind != "reading by", reversed(self.events))
        return tuple(later)[::-1]


def replay(
    fit: Callable[[Any, Any], Any],
    data: Any,
    neighbour: Any,
    *,
    costs: Sequence[float] | np.ndarray | Callable[[Any], Sequence[float] | np.ndarray] | None = None,
    readers: Sequence[Reader] = READERS,
) -> Replay:
    """Run a fit on ``data``, then on ``neighbour`` with its releases frozen, and raise unless all else is the same.

    Raises :class:`ReplayError`, with the first difference, if draws (kind, scale, shape, order), charges, warnings,
    exceptions or results differ; if noise is drawn or records are read before anything is charged; if a release moves
    by more than its cost, or all of them by more than was charged; or if the costs add up to more than that.

    Parameters
    ----------
    fit : callable
        ``fit(data, account)`` publishes its return value and charges ``account``; unseeded, or in exact arithmetic.
    data, neighbour
        What ``fit`` is called with: datasets that differ in one record.
    costs : array or callable, optional
        The declared cost of each release, in the mechanism's unit, in order; or a function of the fit's result, where
        costs are published with it.
    readers : sequence of Reader
        The methods through which releases read records.
    """
    first = _Tape()
    outcome = _outcome(fit, data, first, readers)
    second = _Tape(first.events)
    again = _outcome(fit, neighbour, second, readers)
    difference = first_difference(outcome, again)
    if difference is not None:
        control = first_difference(outcome, _outcome(fit, data, _Tape(first.events), readers))
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
    return Replay(tuple(first.events), losses, charges, outcome["result"], spent)


def _outcome(fit: Callable[[Any, Any], Any], data: Any, tape: _Tape, readers: Sequence[Reader]) -> dict[str, Any]:
    """Return all that a fit lets its caller see."""
    result, error = None, "none"
    with _taped(tape, readers), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = fit(data, tape)
        except ReplayError:
            raise
        except Exception as raised:  # whatever it is, the neighbour must raise the same
            error = f"{type(raised).__name__}: {raised}"
    heard = [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    return {"exception": error, "warnings": heard, "result": result}


@contextmanager
def _taped(tape: _Tape, readers: Sequence[Reader]) -> Iterator[None]:
    """Let every draw and every reading go through the tape."""
    with ExitStack() as stack:
        for name in _DRAWS:
            stack.enter_context(patch.object(Source, name, _taped_draw(tape, name, getattr(Source, name))))
        for reader in readers:
            original = getattr(reader.owner, reader.method)
            stack.enter_context(patch.object(reader.owner, reader.method, _taped_read(tape, reader, original)))
        yield


def _taped_draw(tape: _Tape, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def draw(self: Source, *args: Any, **options: Any) -> Any:
        given = signature.bind(self, *args, **options)
        given.apply_defaults()
        facts = tuple(given.arguments.values())[1:]
        return tape.follow(f"draw of {name}", facts, lambda: original(self, *args, **options))

    return draw


def _taped_read(tape: _Tape, reader: Reader, original: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, *args: Any, **options: Any) -> Any:
        return tape.read(reader, (self, *args, *options.values()), lambda: original(self, *args, **options))

    return read


def _check_charges(events: Sequence[Event]) -> None:
    kinds = [event.kind for event in events]
    if "charge" not in kinds:
        raise ReplayError("the fit charged nothing to its account.")
    if kinds[0] != "charge":
        raise ReplayError(f"{events[0]} happened before anything was charged.")


def _check_losses(
    losses: Sequence[Spent], costs: Sequence[float] | np.ndarray | None, charges: Sequence[Budget]
) -> float:
    """Return what the losses are together.

    Raises if a release moved by more than its cost, or all of them, or their costs, by more than what was charged.
    """
    if costs is not None:
        if len(costs) != len(losses):
            raise ReplayError(f"{len(costs)} releases were declared, but {len(losses)} were made.")
        for index, (loss, cost) in enumerate(zip(losses, costs, strict=True)):
            largest = loss.amounts.max()
            if largest > cost * _ROUNDING:
                raise ReplayError(
                    f"release {index} moved by {largest:.6g} of its noise, but is declared as {cost:.6g}."
                )
    units = {loss.unit for loss in losses}
    if len(charges) != 1 or len(units) != 1:
        return math.nan
    unit = units.pop()
    if costs is not None:
        _checked_together("the releases are declared as", charges[0], np.asarray(costs, dtype=float), unit)
    moved = np.concatenate([loss.amounts for loss in losses])
    return _checked_together("the releases moved by", charges[0], moved, unit)


def _checked_together(what: str, charge: Budget, amounts: np.ndarray, unit: str) -> float:
    spent = _together(charge, amounts, unit) if np.any(amounts) else 0.0
    if spent > charge.amount * _ROUNDING:
        raise ReplayError(f"{what} {spent:.6g} together, but only {charge} was charged.")
    return spent


def _together(charge: Budget, moved: np.ndarray, unit: str) -> float:
    """Return what these losses are together, in the unit of what was charged."""
    if isinstance(charge, Concentrated) and unit == "epsilon":
        return math.fsum(moved) ** 2 / 2
    return charge.spending(moved, mechanisms.named(_USUAL[unit])).amount
