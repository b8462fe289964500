"""The public set that every record's features are projected into: the source of all sensitivities."""

import math
from dataclasses import dataclass

import numpy as np

from epsteps import _validate

_NORMS = (1, 2, math.inf)
_LARGEST = 1e150  # entries are clipped here before a norm is taken, so that squares stay finite


def checked_norm(norm: float) -> float:
    """Return ``norm`` if it is 1, 2 or infinity, or raise."""
    if norm not in _NORMS:
        raise ValueError(f"norm must be 1, 2 or numpy.inf, got {norm!r}.")
    return norm


@dataclass(frozen=True)
class Ball:
    """All vectors whose ``norm`` (1, 2 or infinity) is at most ``radius``.

    Declared from public knowledge, never measured on the data. The unit cube [-1, 1]^d is
    ``Ball(1, norm=np.inf)``.

    >>> Ball(1, norm=np.inf).size(1, d=20)
    20.0
    """

    radius: float
    norm: float = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", _validate.positive("radius", self.radius))
        object.__setattr__(self, "norm", checked_norm(self.norm))

    def size(self, norm: float, d: int) -> float:
        """Return the largest ``norm`` of a vector of the ball in d dimensions."""
        gap = 1 / checked_norm(norm) - 1 / self.norm
        return self.radius * d ** max(gap, 0.0)

    def reach(self, x: np.ndarray) -> np.ndarray:
        """Return sup |u'x| over the ball, for each column of x: radius times the dual norm."""
        dual = {1: math.inf, 2: 2, math.inf: 1}[self.norm]
        return self.radius * np.linalg.norm(x, ord=dual, axis=0)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return finite rows inside the ball: cube rows clipped, others shortened; NaN becomes 0.

        Every row gets the same operations, and rounding is toward the inside.
        """
        rows = np.nan_to_num(np.asarray(rows, dtype=float), nan=0.0)
        if self.norm == math.inf:
            return np.clip(rows, -self.radius, self.radius)
        rows = np.clip(rows, -_LARGEST, _LARGEST)
        allowed = self.radius * (1 - (rows.shape[1] + 8) * np.finfo(float).eps)
        lengths = np.linalg.norm(rows, ord=self.norm, axis=1, keepdims=True)
        return rows * (allowed / np.maximum(lengths, allowed))

    def outside(self, rows: np.ndarray) -> np.ndarray:
        """Mark the rows that ``project`` would move. Reads data: for its holder's eyes."""
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(np.asarray(rows, dtype=float), ord=self.norm, axis=1)
        return ~(lengths <= self.radius * (1 + 1e-12))
