"""For which public numbers released moments can be used and drawn: decided with the plan, so that no run fails."""

import math

import numpy as np

from epsteps.budgets import Cost
from epsteps.methods import designs
from epsteps.methods.designs import Statistic
from epsteps.problem.grid import STEPS
from epsteps.problem.problem import Problem

# Fourth powers of units, and of points that they and the ridge allow, are finite within these.
_LARGEST_UNIT, _LEAST_RIDGE = 1e20, 1e-40
# Noise of all samplers fits integers below this, divided by about the dimension, and is drawn quickly above it.
_LARGEST_SCALE = 2.0**60


def require_units(problem: Problem) -> None:
    """Raise for units in which squares of squares are no finite numbers."""
    numbers = [*problem.units, getattr(problem.loss, "bound", 1.0)]
    if min(numbers) < 1 / _LARGEST_UNIT or max(*numbers, problem.ridge) > _LARGEST_UNIT:
        raise ValueError(
            f"moments take features, targets and a ridge of at most {_LARGEST_UNIT:g}, and ranges of at least "
            f"{1 / _LARGEST_UNIT:g}, got {problem.domain}, {problem.loss!r} and ridge={problem.ridge!r}. "
            "Declare them in other units."
        )


def require_drawable(n: int, statistics: tuple[Statistic, ...], kind: type[Cost], total: float, ridge: float) -> None:
    """Raise if noise would be too long for 64-bit integers, or shorter than these: before anything is charged.

    Gaussian noise is known modulo 2^64: what it is added to must fit that, too.

    The limits are within those of every sampler. Gradients follow the moments: their integers are 2^20 times finer, and
    become coarser where noise is long.
    """
    matrix = designs.MATRIX_STEPS**2 / (designs.LEAST_SHARE * total) ** kind.power
    fits = matrix <= _LARGEST_SCALE and _LEAST_RIDGE <= ridge <= _LARGEST_UNIT**2
    for statistic in statistics:
        d, scale = statistic.problem.d, statistic.scale * STEPS
        fits = fits and d <= scale <= _LARGEST_SCALE / (d + 40 * math.sqrt(d) + 800)
    if not kind.is_pure and n > designs.MATRIX_ROWS:
        raise UndrawableError(
            f"the curvature method adds up at most 2^30 records with Gaussian noise, got n={n}. Use method='descent'."
        )
    if not fits or not np.isfinite(total):
        raise UndrawableError(
            f"noise of {kind.unit} = {total:g} does not fit the integers that the curvature method releases. "
            "Use a budget that is neither tiny nor huge, or method='descent'."
        )


class UndrawableError(ValueError):
    """The budget is so small, or so large, that its noise does not fit the released integers."""
