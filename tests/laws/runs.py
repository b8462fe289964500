"""What holds for every run of a plan, whatever its method: interruption, progress, repetitions, charges."""

import contextlib
from pathlib import Path

import numpy as np

import epsteps as es
from epsteps.noise import Source
from epsteps.running import taps


class Stop(Exception):
    """An interruption."""


class Account:
    """Takes every charge, and knows of it; one key is charged once."""

    def __init__(self) -> None:
        self.charges: list[es.budgets.Budget] = []
        self._keys: set[str] = set()

    def charge(self, cost, *, note: str, key: str | None = None) -> None:
        assert note
        if key is None or key not in self._keys:
            self.charges.append(cost)
        if key is not None:
            self._keys.add(key)


class Listener:
    """Hears every draw and every reading of a run, and stops it at one of the readings."""

    def __init__(self, stop: int | None = None) -> None:
        self.met: list[tuple[int, dict[str, bytes]]] = []
        self._stop = stop

    def source(self, source: Source) -> Source:
        return source

    def reading(self, request, records, draw: dict[str, np.ndarray]) -> np.ndarray:
        self.met.append((len(self.met), {name: str(value.tolist()).encode() for name, value in draw.items()}))
        if self._stop is not None and len(self.met) > self._stop:
            raise Stop
        return request.read(records, draw)


def same(first: es.Run, second: es.Run) -> None:
    """Check that two runs published the same, to the last bit."""
    np.testing.assert_array_equal(first.path, second.path)
    assert first.extras.keys() == second.extras.keys()
    for name, value in first.extras.items():
        np.testing.assert_array_equal(value, second.extras[name])


def resumes_after_every_answer(plan: es.Plan, rows: es.Rows, folder: Path, **options) -> None:
    """Check that a seeded run which stops after each of its answers publishes what one without stops does."""
    options = {"seed": 3, "arithmetic": "exact"} | options
    heard: list[int] = []
    whole = es.run(plan, rows, **options, on_step=heard.append, anyway=True)
    assert heard == list(range(1, len(heard) + 1))
    once = []
    for stop in heard:

        def interrupt(number: int, stop: int = stop) -> None:
            once.append(number)
            if number == stop:
                raise Stop

        with contextlib.suppress(Stop):
            es.run(plan, rows, **options, checkpoint=folder / "run", on_step=interrupt, anyway=True)
    same(es.run(plan, rows, **options, checkpoint=folder / "run", on_step=once.append, anyway=True), whole)
    assert once == heard  # every answer is heard of once, over all the parts


def resumes_within_every_answer(plan: es.Plan, rows: es.Rows, folder: Path, **options) -> None:
    """Check that an unseeded run which dies while it reads meets its records with the same noise when it goes on.

    It is charged once, and what is published in the end is published again by a run that finds everything done.
    """
    met: dict[int, list[dict[str, bytes]]] = {}
    account, last = Account(), None
    for stop in range(plan.requests * options.get("repetitions", 1) + 1):
        # The parts before have answered all but the one that they died in. How many there are may depend on the noise.
        listener = Listener(stop=min(stop, 1))
        with contextlib.suppress(Stop), taps.listening(listener):
            last = es.run(plan, rows, ledger=account, checkpoint=folder / "run", **options, anyway=True)
        for number, draw in listener.met:
            met.setdefault(max(stop - 1, 0) + number, []).append(draw)
        if last is not None:
            break
    assert last is not None
    for draws in met.values():
        assert len(draws) == 2
        assert draws[0] == draws[1]
    with taps.listening(nothing := Listener()):
        same(es.run(plan, rows, ledger=account, checkpoint=folder / "run", **options, anyway=True), last)
    assert nothing.met == []
    assert [cost.amount for cost in account.charges] == [plan.spending(last.repetitions).amount]
