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

    def integers(self, rows: np.ndarray, steps: int) -> np.ndarray:
        """Return the projected rows in units of radius/steps, as integers whose norm is at most ``steps``, exactly.

        Rounded to the nearest integer; where that leaves the ball, as few entries as it takes are rounded toward 0
        instead, those first that were rounded away from it most. All of it is decided within the row.
        """
        real = self.project(rows) * (steps / self.radius)
        if self.norm == math.inf:
            return np.clip(np.rint(real), -steps, steps)
        nearest, toward_zero = np.rint(real), np.trunc(real)
        size = _power_sum(nearest, self.norm)
        limit = steps**2 if self.norm == 2 else steps
        too_long = np.flatnonzero(size > limit)
        if len(too_long):
            near, zero = nearest[too_long], toward_zero[too_long]
            saved = _powers(near, self.norm) - _powers(zero, self.norm)
            order = np.argsort(np.abs(real[too_long]) - np.abs(near), axis=1, kind="stable")
            needed = (size[too_long] - limit)[:, None]
            before = np.cumsum(np.take_along_axis(saved, order, axis=1), axis=1) - np.take_along_axis(saved, order, 1)
            chosen = np.zeros(near.shape, dtype=bool)
            np.put_along_axis(chosen, order, before < needed, axis=1)
            nearest[too_long] = np.where(chosen, zero, near)
        nearest[_power_sum(nearest, self.norm) > limit] = 0.0  # cannot happen, and would not harm
        return nearest

    def outside(self, rows: np.ndarray) -> np.ndarray:
        """Mark the rows that ``project`` would move. Reads data: for its holder's eyes."""
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(np.asarray(rows, dtype=float), ord=self.norm, axis=1)
        return ~(lengths <= self.radius * (1 + 1e-12))


def _powers(rows: np.ndarray, norm: float) -> np.ndarray:
    """Return |entry|^norm of integer rows as integers."""
    entries = np.abs(rows).astype(np.int64)
    return entries * entries if norm == 2 else entries


def _power_sum(rows: np.ndarray, norm: float) -> np.ndarray:
    return _powers(rows, norm).sum(axis=1)
