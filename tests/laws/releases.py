"""What a request reads, draws and publishes, taken apart as only the loop does otherwise."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import epsteps as es
from epsteps.noise import Source
from epsteps.running import taps
from epsteps.running.run import Reader


def asked(plan: es.Plan):
    """Return the first request of a plan's conversation."""
    return next(plan.conversation())


def reading(request, rows: es.Rows, draw: dict[str, np.ndarray] | None = None) -> np.ndarray:
    """Return what a request reads of the records, UNPROTECTED."""
    return request.read(Reader(rows), {} if draw is None else draw)


def noise(request, source: Source) -> np.ndarray:
    """Return the noise of a request."""
    return request.draw(source)["noise"]


def published(request, read: np.ndarray, added: np.ndarray) -> np.ndarray:
    """Return the answer to a request that read this, with this noise."""
    return request.publish(read, {"noise": added})


class Frozen:
    """What requests read: recorded on one dataset, and given again, whatever the records, on another.

    ``moved`` then holds every request with how far the other dataset's reading is from the recorded one.
    """

    def __init__(self) -> None:
        self.recorded: list[np.ndarray] = []
        self.moved: list[tuple[object, np.ndarray]] = []
        self.place: int | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is read."""
        with taps.listening(self):
            yield

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Give again what was recorded."""
        self.place, self.moved = 0, []
        with taps.listening(self):
            yield

    def source(self, source: Source) -> Source:
        return source

    def reading(self, request, records, draw: dict[str, np.ndarray]) -> np.ndarray:
        found = request.read(records, draw)
        if self.place is None:
            self.recorded.append(found)
            return found.copy()
        value = self.recorded[self.place]
        self.moved.append((request, found - value))
        self.place += 1
        return value.copy()


def neighbours_publish_the_same(
    plan: es.Plan, rows: es.Rows, others: list[es.Rows]
) -> Iterator[tuple[object, np.ndarray]]:
    """Check that neighbours change nothing but what requests read, and yield each request with what they move it by.

    With readings and draws as they were, the path, the extras and the requests are the same to the last bit.
    """
    frozen = Frozen()
    with frozen.recording():
        first = es.run(plan, rows, seed=1, arithmetic="exact")
    for other in others:
        with frozen.replaying():
            again = es.run(plan, other, seed=1, arithmetic="exact")
        np.testing.assert_array_equal(first.path, again.path)
        assert first.extras.keys() == again.extras.keys()
        for name, value in first.extras.items():
            np.testing.assert_array_equal(value, again.extras[name])
        assert len(frozen.moved) == len(frozen.recorded)
        yield from frozen.moved
