"""A minimum that is only nearly exact: how near it must be, what noise covers the rest, and which ridge pays.

A solver stops at a point whose gradient of ``n F + b'x`` has an L2 norm of at most ``tolerance``, a public number that
is fixed before the data are opened. That point is within a radius of the exact minimum, whatever the data and the
solver; noise on the output hides where. If rounding keeps a solver from the tolerance, it must go on in higher
precision: a tolerance that depends on the data would be a leak.
"""

import math
from typing import NamedTuple, cast

import numpy as np
from scipy.optimize import fminbound

from epsteps.methods.minima.pure import noise_epsilon, record_weight
from epsteps.methods.minima.saturations import Saturation
from epsteps.problem import validate

# Far above the rounding error of the formulas.
_OUTWARD = 1 + 1e-12


def gradient_tolerance(
    tilt_energy: float, d: int, epsilon_out: float, ridge: float, smoothness: float, waste: float = 1e-4
) -> float:
    """Return the norm of the gradient at which a solver may stop.

    √(waste E|b|²/(d (d + 1))) epsilon_out ridge/(2 smoothness): the noise on the output then adds at most the part
    ``waste`` of what the tilt b costs in the objective, both seen through the largest curvature.

    Parameters
    ----------
    tilt_energy : float
        E|b|², public.
    d : int
        Number of coordinates of b.
    epsilon_out : float
        What the noise on the output may cost.
    ridge, smoothness : float
        Strong convexity and smoothness of F.
    waste : float
        The part that may be lost.
    """
    validate.integer("d", d)
    for name, value in (("tilt_energy", tilt_energy), ("epsilon_out", epsilon_out), ("waste", waste)):
        validate.positive(name, value)
    if not 0 < validate.number("ridge", ridge) <= validate.number("smoothness", smoothness):
        raise ValueError(f"ridge must be positive and at most smoothness={smoothness!r}, got {ridge!r}.")
    return math.sqrt(waste * tilt_energy / (d * (d + 1))) * epsilon_out * ridge / (2 * smoothness)


def minimum_radius(tolerance: float, n: int, ridge: float) -> float:
    """Return how far such a point may be from the exact minimum, in the L2 norm, rounded up: tolerance/(n ridge)."""
    validate.integer("n", n)
    return validate.positive("tolerance", tolerance) / (n * validate.positive("ridge", ridge)) * _OUTWARD


def output_scale(radius: float, epsilon_out: float) -> float:
    """Return the scale s of output noise with density ~ exp(-|z|_2/s), rounded up: 2 radius/epsilon_out.

    Formal guarantee: given the exact minimum, any two laws of the released point differ by at most e^epsilon_out, so
    that the release costs epsilon_out more, in pure privacy and at any delta.
    """
    return 2 * validate.positive("radius", radius) / validate.positive("epsilon_out", epsilon_out) * _OUTWARD


def output_sigma(radius: float, mu_out: float) -> float:
    """Return the standard deviation of Gaussian output noise, rounded up; ``Corners.delta`` takes the same mu_out."""
    return 2 * validate.positive("radius", radius) / validate.positive("mu_out", mu_out) * _OUTWARD


class ChosenRidge(NamedTuple):
    """A ridge, and the excess risk that is predicted for it."""

    ridge: float
    risk: float


def paying_ridge(
    ridge: float,
    n: int,
    record_size: float,
    epsilon: float,
    saturation: Saturation,
    unit_energy: float,
    solution_norm: float = 3.0,
) -> ChosenRidge:
    """Return the ridge, at least the given one, that makes a public prediction of the excess risk smallest.

    (ridge' - ridge) solution_norm²/2 for the bias, and E|b|²/(2 n² ridge') for the noise, whose energy is
    ``unit_energy`` at epsilon 1 and falls with the square of the noise's epsilon. A larger ridge also makes the
    Jacobian cheaper. Only public numbers enter; the norm of the solution is a guess.
    """
    for name, value in (("unit_energy", unit_energy), ("solution_norm", solution_norm)):
        validate.positive(name, value)
    validate.positive("epsilon", epsilon)

    def risk(log_ridge: float) -> float:
        larger = math.exp(log_ridge)
        try:
            inner = noise_epsilon(epsilon, record_weight(record_size, n, larger), saturation)
        except ValueError:
            return math.inf  # the ridge is too small to allow any noise
        return (larger - ridge) * solution_norm**2 / 2 + unit_energy / (2 * n**2 * inner**2 * larger)

    start = math.log(validate.positive("ridge", ridge))
    # Beyond where the noise alone is best at the full epsilon, or the Jacobian is nearly gone, nothing improves.
    alone = math.sqrt(unit_energy) / (n * epsilon * solution_norm)
    light = record_size**2 / n * 100 * (1 + 1 / epsilon)
    grid = np.linspace(start, max(start, math.log(max(alone, light))) + 2.0, 161)
    risks = [risk(point) for point in grid]
    best = int(np.argmin(risks))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    with np.errstate(all="ignore"):  # where no noise is allowed the risk is infinite, and so are its differences
        polished = cast("float", fminbound(risk, low, high, xtol=1e-11))
    if risk(polished) < risks[best]:
        return ChosenRidge(math.exp(polished), risk(polished))
    return ChosenRidge(ridge if best == 0 else math.exp(grid[best]), risks[best])
