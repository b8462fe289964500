"""Engines: one gradient oracle each; the plan, the loop, the noise and the guarantee do not depend on which."""

from typing import Protocol

import numpy as np

from epsteps.engines.dense import DenseEngine


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


__all__ = ["DenseEngine", "Engine"]
