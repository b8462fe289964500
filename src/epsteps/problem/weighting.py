"""What long records count in the sum that is minimised: none pulls harder than a radius says.

They have weights, or their slopes are held: then a long record counts in full where its slope is small.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from epsteps.problem import validate
from epsteps.problem.grid import STEPS
from epsteps.problem.rounding import up

if TYPE_CHECKING:
    from epsteps.problem.problem import Problem

# Weights are integers over this: products of a weight and a shortening are exact.
_GRID = 2.0**20
# Bits of the integers that lengths are added up in: squares of no more, and sizes of so many.
_MOST_BITS = {1: 32, 2: 20}
# What rounding an entry to these integers changes at most: half of one, and what its product is off by.
_ROUNDED = 0.5 + 2.0**-19
# Five operations are rounded between a radius and a share, by at most 2^-53 of their value each.
_INWARD = 1 - 2.0**-50


class Shares(NamedTuple):
    """What each record counts, relative to a short one, and what it is multiplied by: both within [0, 1].

    ``caps`` are what its slopes are held at, where they are; None where the loss's own cap is every record's.
    """

    weights: np.ndarray
    shortening: np.ndarray
    caps: np.ndarray | None = None

    @property
    def pulls(self) -> np.ndarray:
        """What the slope of a record is multiplied by in the sum's gradient, which has the record as it is: exact."""
        return self.weights * self.shortening

    @property
    def bends(self) -> np.ndarray:
        """What the second derivative of a record is multiplied by in the sum's Hessian."""
        return self.pulls * self.shortening


@dataclass(frozen=True)
class Weighting:
    """A record s u counts with the weight v = min(1, radius/|s u|)/mean; s shortens it to 2 radius in the L2 norm.

    The sum that is minimised is ``sum of v_i loss(s_i u_i'x, y_i)``: s = min(1, 2 radius/|u|) shortens longer records
    for norm 2, for the sake of second derivatives, and is 1 for norm 1. Weights that depend on a record's features
    alone leave the minimum where it is if the model is right, and shortened records move it; so few should be longer.

    Formal guarantee, for every record of the domain, with S = radius/mean: |v s u| <= S in the weighting's norm,
    |s u|_2 <= 2 radius for norm 2, and hence v |s u|_2² <= ``square``. Weights are public functions of a single record:
    a replaced record changes its own weight and no other. All numbers here must be public, or bought with privacy
    budget: above all ``mean``, which must not be the records' own.

    **Held** slopes take the place of weights: every record counts 1, s = min(1, radius/|u|) shortens it to the radius,
    and where the loss has a cap c on slopes, this record's is min(1, c radius/|s u|), or c if that is more. A cap on
    all slopes keeps short records from what they may do: they pull no harder than c radius with a larger one. This is
    how gradient descent clips gradients, as a convex loss. Formal guarantee, with c_i for the cap of a record: c_i >=
    c, c_i |s u| <= c radius in the weighting's norm, and c_i |s u|_2² <= c ``square``. (docs/proofs.md, Theorem 13.5.)

    Parameters
    ----------
    norm : 1 or 2
        The norm of records, the intercept's 1 included: that of the noise.
    radius : float
        Length up to which records count in full, in the units of the problem's features.
    mean : float
        About the mean of min(1, radius/|s u|), within (0, 1]: weights are divided by it, so that the sum of the losses
        has about its old size against the ridge. Any number is valid; of held slopes it is 1.
    held : bool
        Hold slopes, and give no weights. The radius must be no longer than the longest record.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Ball(8), ridge=0.01, n=1000, d=5)
    >>> weighting = Weighting(norm=2, radius=1.5, mean=0.75)
    >>> round(weighting.size(problem), 9), round(weighting.square(problem), 9)
    (2.0, 6.0)
    """

    norm: int
    radius: float
    mean: float = 1.0
    held: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.held, bool):
            raise TypeError(f"held must be True or False, got {self.held!r}.")
        if isinstance(self.norm, bool) or self.norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {self.norm!r}.")
        if validate.size("mean", self.mean) > 1:
            raise ValueError(f"mean must be at most 1, as every share of a weight is, got {self.mean!r}.")
        if self.held and self.mean != 1:
            raise ValueError(f"records whose slopes are held count 1 each: leave mean out, got {self.mean!r}.")
        object.__setattr__(self, "norm", int(self.norm))
        object.__setattr__(self, "radius", validate.size("radius", self.radius))
        object.__setattr__(self, "mean", float(self.mean))

    def size(self, problem: "Problem") -> float:
        """Bound |v s u| in the weighting's own norm, rounded up: S, or less where no record is that long.

        Of held slopes it is the radius, which short records reach, too: bounds on gradients are the loss's cap times
        this.
        """
        if self.held:
            return up(self.radius)
        return up(min(self.radius, problem.record_size(self.norm)) / self.mean)

    def length(self, problem: "Problem") -> float:
        """Bound |v s u|_2, whatever the weighting's norm, or c_i |s u|_2/c; rounded up."""
        if self.held:
            return self.size(problem)
        return min(self.size(problem), up(problem.record_size(2) / self.mean))

    def square(self, problem: "Problem") -> float:
        """Bound v |s u|_2², or c_i |s u|_2²/c, rounded up.

        The latter is at most radius |s u| <= radius² for norm 2, and for norm 1 at most radius |s u|_2²/|s u|_1 <=
        radius u_max.

        For norm 2 it is at most |v s u| |s u| <= S min(2 radius, B), where B is the longest record's length; for norm 1
        at most |v u|_1 |u|_inf <= S u_max, where u_max is the largest entry of a record, and at most B²/mean.
        """
        longest = problem.record_size(2)
        if self.held:
            return up(self.radius * (self.radius if self.norm == 2 else float(problem.units.max())))
        if self.norm == 2:
            return up(self.size(problem) * min(2 * self.radius, longest))
        return up(min(self.size(problem) * float(problem.units.max()), longest**2 / self.mean))

    def measure(self, problem: "Problem") -> "Measure":
        """Return how records on the problem's grid are measured, and what weights follow."""
        units, width = problem.units[: problem.width], problem.width
        bits = min(_MOST_BITS[self.norm], (53 - max(width - 1, 1).bit_length()) // self.norm)
        largest = float(units.max())
        step = math.ldexp(largest, -bits)
        # Columns of the largest unit are multiplied by a power of two: integers remain what they are if it is no share.
        inexact = float(np.count_nonzero(units != largest) if 2**bits >= STEPS else width)
        slack = _ROUNDED * (inexact if self.norm == 1 else math.sqrt(inexact))
        factors = units / largest * math.ldexp(1 / STEPS, bits)
        radius, cap = self.radius / step * _INWARD, problem.loss.slope if self.held else None
        return Measure(self.norm, factors, 2**bits, slack, radius, cap)


@dataclass(frozen=True, eq=False)
class Measure:
    """Lengths of records, bounded from above by exact sums of integers: the same bits in every engine.

    A record's entries, in steps of the largest unit over ``most``, are rounded to integers t: ``factors`` times the
    integers of the problem's grid. Of t the engine adds up squares (norm 2) or sizes (norm 1), below 2^53, so that a
    double holds every partial sum. Then the record is at most √(sum of t²) + slack, or sum of |t| + slack, steps long.

    Proof. A factor is a quotient and a power of two, and is off by 2^-53 of itself; its product with an integer by as
    much again. Entries are at most 2^32 steps, so that t is off by at most 1/2 + 2^-20 where its column has a smaller
    unit than the largest, and otherwise by nothing (or by as much, where records have more than 2^13 entries: there 19
    bits must do). No entry exceeds ``most``: a factor is at most most/2^20, as quotients are rounded monotonically, and
    integers are within 2^20. So nothing is clipped. The triangle inequality adds up k such errors to √k or k of them,
    and ``slack`` has a margin of 2^-20 for its own rounding. QED

    A share floor(2^20 r/max(l, r))/2^20, for l the length in steps and r a radius in steps, moved inward by 2^-50, is
    at most min(1, radius/|u|): between them five operations are rounded (a root, a sum, two quotients and a product),
    by 2^-53 each, all of them as IEEE 754 demands and in this order. So share x |u| <= radius, and shortening x |u| <=
    2 radius, exactly. For norm 2 the weight is the share, or 1/2 where that is less: then weight x shortening x |u| <=
    radius by the second. Rows of any length have a share: nothing here is infinite or divides by 0.

    Held slopes, of a loss with the cap c: the shortening is the share, so that |s u| <= radius; and the record's cap is
    the share for c r in the place of r, one product more, or c where that is more. The share times |s u| <= |u| is at
    most c radius, and c |s u| is, too.

    Parameters
    ----------
    norm : 1 or 2
        That of the weighting.
    factors : array
        What the integers of each column are multiplied by before they are rounded.
    most : int
        The largest integer.
    slack : float
        What rounding all entries may take off a length.
    radius : float
        That of the weighting in steps, rounded down.
    cap : float, optional
        The loss's, where slopes are held.
    """

    norm: int
    factors: np.ndarray
    most: int
    slack: float
    radius: float
    cap: float | None = None

    def shares(self, sums: np.ndarray) -> Shares:
        """Return what records count whose t have these sums of squares, or of sizes."""
        lengths = (np.sqrt(sums) if self.norm == 2 else sums) + self.slack
        if self.cap is not None:
            caps = np.maximum(_share(self.cap * self.radius, lengths), self.cap) if self.cap < 1 else None
            return Shares(np.ones(len(lengths)), _share(self.radius, lengths), caps)
        if self.norm == 1:
            return Shares(_share(self.radius, lengths), np.ones(len(lengths)))
        return Shares(np.maximum(_share(self.radius, lengths), 0.5), _share(2 * self.radius, lengths))


def _share(radius: float, lengths: np.ndarray) -> np.ndarray:
    """Return min(1, radius/length), rounded down to the grid of shares."""
    return np.floor(radius / np.maximum(lengths, radius) * _GRID) / _GRID
