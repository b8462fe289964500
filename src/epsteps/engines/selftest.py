"""Before an engine sums private records, it must get a sum right whose integers Python has added one by one."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from epsteps.domain import Ball
from epsteps.grid import ROWS_PER_DOUBLE, STEPS, Grid
from epsteps.losses import Logistic, Loss, Squared
from epsteps.problem import Problem

_ROWS = ROWS_PER_DOUBLE + 37


class SelfTestError(RuntimeError):
    """An engine does not add integers exactly on this machine."""


@cache
def require_exact(make: Callable, name: str) -> None:
    """Raise unless the engine's sums over synthetic records are the integers they should be.

    Most records are as large as they may be and pull the same way, so that an accumulator which rounds, or which is
    not emptied in time, shows.
    """
    for loss in (Logistic(), Squared()):
        for columns in (1, 5):
            grid, features, targets, x = _records(loss, columns)
            points = grid.points(x, 1.0)
            if not np.array_equal(
                make(grid, features, targets).gradient(points), _expected(loss, features, targets, points)
            ):
                raise SelfTestError(
                    f"the {name!r} engine does not add integers exactly on this machine: it is not used for private "
                    "sums. Please report it, and use engine='numpy'."
                )


def _records(loss: Loss, columns: int) -> tuple[Grid, np.ndarray, np.ndarray, np.ndarray]:
    """Return a grid, records and points of no one: fixed numbers, a few of them spread over the whole range."""
    grid = Grid(Problem(loss, Ball(1, norm=math.inf), ridge=0.0, n=_ROWS, d=3))
    index = np.arange(_ROWS)[:, None]
    features = np.where(index % 16 == 0, (index * 7919 + np.arange(3) * 104_729) % (2 * STEPS) - STEPS, STEPS)
    targets = np.where(index[:, 0] % 5 == 0, 1, -1)
    x = np.linspace(-1.0, 2.0, 3 * columns).reshape(3, columns)
    return grid, features.astype(np.float32), targets.astype(np.float32), x


def _expected(loss: Loss, features: np.ndarray, targets: np.ndarray, points) -> np.ndarray:
    margins = features.astype(object) @ points.coefficients.astype(np.int64).astype(object)
    slopes = loss.levels(margins.astype(float) * points.step, targets[:, None], points.bound)
    return (features.astype(np.int64).astype(object).T @ slopes.astype(np.int64).astype(object)).astype(np.int64)
