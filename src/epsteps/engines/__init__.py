"""Engines: one gradient oracle each; the plan, the loop, the noise and the guarantee do not depend on which."""

from importlib.util import find_spec
from typing import Protocol

import numpy as np

from epsteps.engines.dense import DenseEngine
from epsteps.engines.fast import FastEngine
from epsteps.losses import Loss

NAMES = ("auto", "numpy", "fast")
# Numbers in the records from which compiled kernels are worth the seconds that compiling them takes once.
_WORTH_COMPILING = 1_000_000


class Engine(Protocol):
    """What the loop asks of an engine. ``x`` is a vector, or a matrix with one point per column."""

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows."""
        ...

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records."""
        ...

    def second_moment(self) -> np.ndarray:
        """Return the mean of u u' over all records."""
        ...


def make_engine(name: str, loss: Loss, features: np.ndarray, targets: np.ndarray) -> Engine:
    """Return the named engine; "auto" is the compiled one for large records where numba is installed."""
    if name == "auto":
        name = "fast" if features.size >= _WORTH_COMPILING and find_spec("numba") is not None else "numpy"
    return {"numpy": DenseEngine, "fast": FastEngine}[name](loss, features, targets)


__all__ = ["NAMES", "DenseEngine", "Engine", "FastEngine", "make_engine"]
