"""How far a gradient that is summed in floats may be off, from public numbers."""

import math

import numpy as np

from epsteps.problem import Problem

# Records whose gradients are added in floats one after the other; sums of such blocks are added pairwise.
BLOCK = 256
# Rounding errors besides: of the loss's derivative, the pairwise sums and the products, all generously.
_OTHERS = 80


def rounding(problem: Problem, point_size: float, tilt_size: float, unit: float) -> float:
    """Bound the L2 norm of the rounding error of ``n ∇F(x) + tilt`` in floats of this rounding unit, |x| = point_size.

    A margin of ``width`` products is off by at most that many units times |u| |x|, a slope by as much times the
    curvature, and a sum of 256 records by as many units times their sizes (Higham 2002, chapter 3).
    """
    size = problem.record_size(2)
    slopes = problem.loss.slope * (BLOCK + _OTHERS) + problem.loss.curvature * (problem.width + 2) * size * point_size
    records = problem.n * size * slopes * math.sqrt(problem.loss.outputs)
    return 1.01 * unit * (records + 4 * problem.n * problem.ridge * point_size + 2 * tilt_size)


def worst_rounding(problem: Problem, scale: float, unit: float) -> float:
    """Bound that error at the minimum of ``n F(x) + tilt'x``, for a tilt of this scale.

    The minimum is within (n gradient size + |tilt|)/(n ridge) of 0, and the tilt is longer than is assumed here with a
    probability below 1e-300.
    """
    d, n = problem.dimension, problem.n
    tilt = scale * (d + 40 * math.sqrt(d) + 800) * float(np.linalg.norm(np.maximum(problem.units, 1.0)))
    reach = (n * float(problem.gradient_size(problem.loss.slope, 2)) + tilt) / (n * problem.ridge)
    return rounding(problem, reach, tilt, unit)
