"""Whether a solver will reach its tolerance, whatever the records: from public numbers, before anything is charged."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods.minimised import Minimised
from epsteps.problem import limits
from epsteps.problem.rounding import up

# Records whose gradients are added in floats in any order; the sums of such blocks are added in a binary tree.
BLOCK = 256
# Rounding errors besides, in units of a slope's size: 54 levels of the tree (up to 2^53 blocks), at most 20 of a loss's
# derivative and its product with the record, and the last two additions.
_OTHERS = 80
# Rounding unit of the long doubles that plans are made for: 64 bits.
LONG = 2.0**-63
# Noise on an output has at least so many bits.
LEAST_BITS = 20


def rounding(objective: Minimised, point_size: float, tilt_size: float, unit: float) -> float:
    """Bound the L2 norm of the rounding error of ``n ∇F(x) + b`` in floats of this unit, for these sizes of x and b.

    Formal guarantee, of sums as ``releases.certified`` takes them. A sum or inner product of k terms is off by at most
    k u/(1 - k u) times the sum of their sizes in whatever order, and a sum in a tree of depth k likewise, where u is
    half of ``unit`` (Higham 2002, sections 3.1 and 4.2). So a margin of ``width`` products, of a point that was itself
    rounded, is off by (width + 2) units of |u| |x|, and the slope by as much times the curvature; 20 units of a slope
    cover its own formula (a sum over the classes counts besides), 256 the sum over a block and 54 the tree. The ridge's
    term is rounded four times, the tilt twice. 1.01 covers what is of second order, and that of the norms given here.
    """
    problem, loss = objective.stated, objective.loss
    size, classes = problem.record_size(2), loss.outputs if loss.outputs > 1 else 0
    slopes = loss.slope * (BLOCK + _OTHERS + classes) + loss.curvature * (problem.width + 2) * size * point_size
    terms = problem.n * size * slopes * math.sqrt(loss.outputs)
    return 1.01 * unit * (terms + 4 * problem.n * problem.ridge * point_size + 2 * tilt_size)


def tilt_length(objective: Minimised, noise: Mechanism, scale: float) -> float:
    """Return a length that a tilt of this scale does not exceed, but with a probability below 1e-300.

    The length of a norm's noise is at most a Gamma(d + 2) variable in twice the cube of its units (in the L2 ball where
    it is that of a usual norm), which passes d + 42 + 40√(d + 2) + 800 with a probability below e^-790 (Chernoff). A
    Gaussian vector is at most the root of its trace times |z| long, for a standard z, and |z| passes √d + 38 with one
    below e^-700.
    """
    d, problem = objective.dimension, objective.problem
    if not noise.kind.is_pure:
        return math.sqrt(2 * float(noise.half_power(scale, problem))) * (math.sqrt(d) + 40)
    gauge = scale * (d + 42 + 40 * math.sqrt(d + 2) + 800)
    return gauge if noise.shape(problem).stretches else 2 * gauge * float(np.linalg.norm(problem.units))


def grid_step(objective: Minimised, tolerance: float, scale: float, bits: int, tilt: float) -> float:
    """Return the real size of an output's integer: a power of two, in which noise of this scale has so many bits.

    Fewer, down to 20, where long doubles would not hold points as far out as such a tilt leads; and more, so that
    rounding a point to the grid changes the sum's gradient by at most an eighth of the tolerance.
    """
    finest = tolerance / (4 * objective.n * objective.L * math.sqrt(objective.dimension))
    coarsest = min(8.1 * LONG * objective.reach(tilt), math.ldexp(scale, -LEAST_BITS))
    return math.ldexp(1.0, math.frexp(min(finest, max(math.ldexp(scale, -bits), coarsest)))[1] - 1)


def least_tolerance(objective: Minimised, tilt: float, steps_per_tolerance: float = 0.0) -> float:
    """Return a tolerance from which on ``Goal.require_reachable`` accepts a plan's precision.

    ``steps_per_tolerance`` is by how much a grid may be finer than the tolerance asks for: step >= tolerance over it.
    """
    reach = objective.reach(tilt)
    finest = 8 * objective.n * objective.L * math.sqrt(objective.dimension)
    # Nine, not eight: what rounding the tolerance itself takes away.
    return max(9 * rounding(objective, reach, tilt, LONG), 4.1 * LONG * reach * max(finest, steps_per_tolerance))


@dataclass(frozen=True)
class Goal:
    """What a solver must find: a point of a grid where the sum's gradient is surely below a tolerance.

    All numbers are public. The solver reads records, and decides nothing.

    Parameters
    ----------
    objective : Minimised
        What is minimised, but for the tilt.
    step : float
        Size of the grid, a power of two.
    tolerance : float
        Norm of the sum's gradient, tilt included, that counts as a minimum.
    scale : float
        Noise on the point that is found.
    slack : float
        How far the tilt that is used may be from the theorem's.
    tilt : float
        How long it may be.
    """

    objective: Minimised
    step: float
    tolerance: float
    scale: float
    slack: float = 0.0
    tilt: float = 0.0

    @cached_property
    def reach(self) -> float:
        """Length of the longest point that the solver may look at."""
        return self.objective.reach(self.tilt)

    @cached_property
    def smoothness(self) -> float:
        """Smoothness of the sum, rounded up."""
        return up(self.objective.n * self.objective.L, 1e-9)

    def require_reachable(self, unit: float | None = None) -> None:
        """Raise unless the solver is certain to end, whatever the records; ``unit`` is that of this machine's floats.

        Theorem. Write G(x) = n F(x) + b'x, m = n ridge, M = n L and T for the tolerance. If |b| <= ``tilt``, the step h
        is at most T/(4M√d), the reach R at most h/(4 unit), rounding errors at most T/8 wherever |x| <= R, and the
        slack at most T/16, then gradient descent on the grid from 0, x' = x - ĝ(x)/M rounded, meets a point where the
        certificate |ĝ| + rounding + slack <= T holds, after at most (4M/3m) ln(M (G(0) - G*)/(2δ²)) + 1 steps.

        Proof. Let |g| > 2δ with δ = 9T/32 where G <= G(0): there |x| and |x - x*| are at most R/1.01. Long doubles hold
        the grid's points exactly. Errors of ĝ are at most 5T/64, as ``rounding`` counts more than 8/5 of them, which is
        below 0.14 |g|; so |ĝ|/M and |x - ĝ/M| are at most 1.14 R/1.01, and the quotient and the difference are rounded
        by 0.29 h together. With the grid's h√d/2, x' is off by 0.79 h√d, as if the gradient were off by 0.2 T, and by δ
        together with its own error. By smoothness G(x') <= G(x) - (|g|² - δ²)/2M. That is a decrease by 3|g|²/8M, which
        is at least 3m/4M of G - G* by strong convexity; so x' stays where G <= G(0), which ``reach`` bounds, and G - G*
        falls geometrically. As |g| > 2δ needs G - G* > 2δ²/M, it ends in time; and then |ĝ| + T/8 + T/16 <= 2δ + 2T/8 +
        T/16 = 7T/8. (docs/proofs.md, section 8, has every step.)

        The tilt is longer than is assumed with a probability below 1e-300 that does not depend on the records. The
        certificate holds then, too, but the solver may never end.
        """
        unit = float(np.finfo(np.longdouble).eps) if unit is None else unit
        self._require_moderate()
        d, error = self.objective.dimension, rounding(self.objective, self.reach, self.tilt, unit)
        coarse = 4 * self.smoothness * self.step * math.sqrt(d) > self.tolerance * (1 + 1e-8)
        if coarse or 16 * self.slack > self.tolerance:
            raise ValueError(
                f"a grid of {self.step:.3g}, or a tilt that is known to {self.slack:.3g}, is too coarse for the "
                f"plan's tolerance of {self.tolerance:.3g}. Make the plan anew."
            )
        if 8 * error > self.tolerance or 4 * unit * self.reach > self.step:
            raise ValueError(
                f"floats of this machine are too coarse for the plan: rounding may reach {error:.3g} at its tolerance "
                f"of {self.tolerance:.3g}. Make the plan anew, take a larger ridge, or use a machine whose long "
                "doubles are longer."
            )
        if self.scale / self.step * (d + 40 * math.sqrt(d) + 800) > 2.0**61:
            raise ValueError(
                f"noise of scale {self.scale:.3g} on a grid of {self.step:.3g} does not fit into 64 bits. "
                f"Use a larger ridge than {self.objective.ridge:.3g}, or a larger epsilon."
            )
        self._require_kept_kind()

    def _require_moderate(self) -> None:
        """Raise where numbers could overflow or vanish."""
        problem, loss = self.objective.stated, self.objective.loss
        numbers = {
            "the largest norm of a record": problem.record_size(2),
            "the loss's slope": loss.slope,
            "the loss's curvature": loss.curvature,
            "the loss at 0": loss.value_at_zero,
            "ridge": problem.ridge,
            "tolerance": self.tolerance,
            "the step of the grid": self.step,
            "the size of a solution": self.reach,
        }
        limits.require_moderate(numbers)

    def _require_kept_kind(self) -> None:
        """Raise if the loss computes with fewer digits than its margins have: its errors would not be bounded."""
        loss = self.objective.loss
        margins = np.linspace(-3, 3, 7, dtype=np.longdouble)
        # A target as losses encode it: a sign or a number, or the place of a class.
        points, target = margins, np.ones(len(margins))
        if loss.outputs > 1:
            points, target = np.outer(margins, np.arange(loss.outputs)), target[:, None]
        kind = loss.derivative(points, target).dtype
        if kind != np.longdouble:
            raise ValueError(f"{type(loss).__name__}.derivative must keep the kind of its margins, got {kind}.")
