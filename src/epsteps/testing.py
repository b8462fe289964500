"""For tests of private code: a fit is recorded on one dataset and replayed on a neighbour, its releases frozen.

If all that a fit publishes passes through noise, then on a neighbouring dataset, with noise such that the releases are
the same, everything else must be the same too: the draws, their scales, the charges, warnings, and the result to the
last bit. What differs has seen the records without protection. (The idea is dp-recorder's: Cebere et al. 2026.) And
where a release reads the records, the two datasets must differ by no more than its noise was paid for.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from epsteps import mechanisms
from epsteps.auditing.comparing import first_difference, short
from epsteps.budgets import Budget
from epsteps.grid import Release
from epsteps.noise import Source
from epsteps.records import Rows
from epsteps.sampling import Sampling

_DRAWS = ("integers", "linf", "hull", "l2", "laplace", "gaussian", "subset")
_ROUNDING = 1 + 1e-9


class ReplayError(AssertionError):
    """A fit treats neighbouring datasets differently, beyond its noise."""


@dataclass(frozen=True)
class Reader:
    """A method through which a release reads records, and what of its result noise is added to.

    ``statistic(owner, result)`` is in the units of the noise drawn just before.
    """

    owner: type
    method: str
    statistic: Callable[[Any, Any], np.ndarray]


def _eigenvalue(rows: Rows, moment: np.ndarray) -> np.ndarray:
    """Return the largest eigenvalue as ``estimate_smoothness`` releases it: in 2^-20 of what one record can move."""
    problem = rows.problem
    return np.linalg.eigvalsh(moment)[-1:] / (problem.record_size(2) ** 2 / problem.n / 2**20)


READERS = (
    Reader(Release, "rounded", lambda _, sums: sums),
    Reader(Rows, "second_moment", _eigenvalue),
)


@dataclass(frozen=True, eq=False)
class Event:
    """Something that a fit did: what must be the same on a neighbour, and the value that is frozen."""

    kind: str
    facts: tuple[Any, ...]
    value: Any

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(short(fact) for fact in self.facts)}"


@dataclass(frozen=True, eq=False)
class Replay:
    """What was compared: the events of the fit, and the privacy loss of each release between these two datasets.

    ``losses`` has one row per release and one column per repetition; ``result`` is the fit's on the first dataset.
    """

    events: tuple[Event, ...]
    losses: np.ndarray
    charges: tuple[Budget, ...]
    result: Any


class _Tape:
    """The events of one run: written by the first, followed by the second."""

    def __init__(self, recorded: Sequence[Event] | None = None) -> None:
        self.events: list[Event] = []
        self.losses: list[np.ndarray] = []
        self._recorded = recorded

    def charge(self, cost: Budget, *, note: str, key: str | None = None) -> None:
        """Note a charge; the tape is the account of the fit."""
        self.follow("charge", (cost, note), lambda: None)

    def follow(self, kind: str, facts: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """Return a new value when recording, the recorded one when replaying."""
        event = Event(kind, facts, compute()) if self._recorded is None else self.expect(kind, facts)
        self.events.append(event)
        return np.copy(event.value) if isinstance(event.value, np.ndarray) else event.value

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

    def read(self, reader: Reader, owner: Any, compute: Callable[[], Any]) -> Any:
        """Note a reading of the records; when replaying, measure how far it moved and return the recorded one."""
        place = len(self.events)
        value = self.follow("reading by", (reader.method,), compute)
        if self._recorded is not None:
            moved = np.asarray(reader.statistic(owner, compute()) - reader.statistic(owner, value))
            self.losses.append(_loss(moved.astype(float), self.events[:place]))
        return value


def replay(
    fit: Callable[[Any, Any], Any],
    data: Any,
    neighbour: Any,
    *,
    costs: np.ndarray | None = None,
    readers: Sequence[Reader] = READERS,
) -> Replay:
    """Run a fit on ``data``, then on ``neighbour`` with its releases frozen, and raise unless all else is the same.

    Raises :class:`ReplayError`, with the first difference, if draws (kind, scale, shape, order), charges, warnings,
    exceptions or results differ; if noise is drawn or records are read before anything is charged; or if a release
    moves by more than its cost, or all of them by more than was charged.

    Parameters
    ----------
    fit : callable
        ``fit(data, account)`` publishes its return value and charges ``account``; unseeded, or in exact arithmetic.
    data, neighbour
        What ``fit`` is called with: datasets that differ in one record.
    costs : array, optional
        The declared cost of each release, in the mechanism's unit, in order.
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
    losses = np.array(second.losses) if second.losses else np.zeros((0, 1))
    charges = tuple(event.facts[0] for event in first.events if event.kind == "charge")
    if outcome["exception"] == "none":
        _check_charges(first.events)
        _check_losses(losses, costs, charges, first.events)
    return Replay(tuple(first.events), losses, charges, outcome["result"])


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
    def draw(self: Source, *args: Any, **options: Any) -> Any:
        return tape.follow(f"draw of {name}", (*args, *options.values()), lambda: original(self, *args, **options))

    return draw


def _taped_read(tape: _Tape, reader: Reader, original: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, *args: Any, **options: Any) -> Any:
        return tape.read(reader, self, lambda: original(self, *args, **options))

    return read


def _loss(moved: np.ndarray, before: Sequence[Event]) -> np.ndarray:
    """Return the privacy loss of a release that moved so far, for each repetition, from the draws before it."""
    noise = next((event for event in reversed(before) if event.kind == "draw of integers"), None)
    if noise is None:
        raise ReplayError("records are read by a release for which no noise was drawn.")
    mechanism, scale, shape = noise.facts
    ratio = (moved / np.broadcast_to(scale, shape)).reshape(shape[0], -1)
    size = np.linalg.norm(ratio, ord=mechanism.norm, axis=0)
    if mechanism.unit == "rho":
        return size**2 / 2
    samplings = [event.facts[0] for event in before[before.index(noise) :] if event.kind == "draw of subset"]
    return (samplings[0] if samplings else Sampling(1, 1)).amplified_epsilon(size)


def _check_charges(events: Sequence[Event]) -> None:
    kinds = [event.kind for event in events]
    if "charge" not in kinds:
        raise ReplayError("the fit charged nothing to its account.")
    if kinds[0] != "charge":
        raise ReplayError(f"{events[0]} happened before anything was charged.")


def _check_losses(
    losses: np.ndarray, costs: np.ndarray | None, charges: Sequence[Budget], events: Sequence[Event]
) -> None:
    """Raise if a release moved by more than its cost, or all of them by more than what was charged."""
    if costs is not None:
        if len(costs) != len(losses):
            raise ReplayError(f"{len(costs)} releases were declared, but {len(losses)} were made.")
        for index, (row, cost) in enumerate(zip(losses, costs, strict=True)):
            if row.max() > cost * _ROUNDING:
                raise ReplayError(
                    f"release {index} moved by {row.max():.6g} of its noise, but is declared as {cost:.6g}."
                )
    names = {event.facts[0].name for event in events if event.kind == "draw of integers"}
    if len(charges) == 1 and len(names) == 1 and np.any(losses):
        spent = charges[0].spending(losses.ravel(), mechanisms.named(names.pop())).amount
        if spent > charges[0].amount * _ROUNDING:
            raise ReplayError(f"the releases moved by {spent:.6g} together, but only {charges[0]} was charged.")
