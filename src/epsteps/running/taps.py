"""The one place where tests listen to a run: its draws and its readings.

Nothing listens but within ``listening``, in whose ``with`` block every source is opened by the listener, and every
reading of records goes through it. That is how a fit is replayed on a neighbouring dataset (``epsteps.testing``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import numpy as np

from epsteps.noise import Source
from epsteps.plans.requests import Draw, Records, Request


class Tap(Protocol):
    """A listener."""

    def source(self, source: Source) -> Source:
        """Return the source that a run draws from in the place of this one."""
        ...

    def reading(self, request: Request, records: Records, draw: Draw) -> np.ndarray:
        """Return what a request reads, or what it read before."""
        ...


_TAP: ContextVar[Tap | None] = ContextVar("epsteps_tap", default=None)


@contextmanager
def listening(tap: Tap) -> Iterator[None]:
    """Let a listener hear every draw and every reading."""
    token = _TAP.set(tap)
    try:
        yield
    finally:
        _TAP.reset(token)


def open_source(seed: int | None) -> Source:
    """Return where a private computation draws from: the operating system, or a seed for experiments."""
    source, tap = Source(seed), _TAP.get()
    return source if tap is None else tap.source(source)


def reading(request: Request, records: Records, draw: Draw) -> np.ndarray:
    """Return what a request reads."""
    tap = _TAP.get()
    return request.read(records, draw) if tap is None else tap.reading(request, records, draw)
