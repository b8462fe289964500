"""Before an engine sums private records, it must get sums right that were added in 64-bit integers."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from epsteps.problem.ball import Ball
from epsteps.problem.grid import ROWS_PER_DOUBLE, STEPS, Grid, Points
from epsteps.problem.losses import Logistic, Loss, Squared
from epsteps.problem.problem import Problem

# Enough for the sums to pass 2^53 several times over.
_ROWS = 5 * ROWS_PER_DOUBLE + 37
# Few and many features, and one point or several: engines have kernels of their own for each.
_SHAPES = ((3, 1), (3, 5), (100, 1))


class SelfTestError(RuntimeError):
    """An engine does not add integers exactly on this machine."""


@cache
def require_exact(make: Callable, name: str) -> None:
    """Raise unless the engine's sums over synthetic records are the integers they should be.

    Most records are nearly as large as they may be, have odd numbers for features and pull the same way, so that an
    accumulator which rounds, or which is not emptied in time, shows. Sums over all records and over given rows are
    tried.
    """
    every = np.arange(_ROWS) * 7919 % _ROWS  # each record once, in another order
    for loss in (Logistic(), Squared()):
        for d, columns in _SHAPES:
            grid, features, targets, x = _records(loss, d, columns)
            points = grid.points(x, 1.0)
            sums, expected = make(grid, features, targets), _expected(loss, features, targets, points)
            if not all(np.array_equal(sums.gradient(points, rows), expected) for rows in (None, every)):
                raise SelfTestError(
                    f"the {name!r} engine does not add integers exactly on this machine: it is not used for private "
                    "sums. Please report it, and use engine='numpy'."
                )


def _records(loss: Loss, d: int, columns: int) -> tuple[Grid, np.ndarray, np.ndarray, np.ndarray]:
    """Return a grid, records and points of no one: fixed numbers, a few of them spread over the whole range."""
    grid = Grid(Problem(loss, Ball(1, norm=math.inf), ridge=0.0, n=_ROWS, d=d))
    index, column = np.arange(_ROWS)[:, None], np.arange(d)
    spread = (index * 7919 + column * 104_729) % (2 * STEPS) - STEPS
    features = np.where(index % 16 == 0, spread, STEPS - 1 - 2 * ((index + column) % 11))
    targets = np.where(index[:, 0] % 5 == 0, 1, -1)
    x = np.linspace(1.0, 2.0, d * columns).reshape(d, columns) * (3 / d)  # margins where slopes are neither 0 nor 1
    return grid, features.astype(np.float32), targets.astype(np.float32), x


def _expected(loss: Loss, features: np.ndarray, targets: np.ndarray, points: Points) -> np.ndarray:
    """Return the sums in int64, which holds all of them."""
    u = features.astype(np.int64)
    margins = (u @ points.coefficients.astype(np.int64)).astype(float)
    slopes = loss.levels(margins * points.step, targets[:, None], points.bound)
    return u.T @ slopes.astype(np.int64)
