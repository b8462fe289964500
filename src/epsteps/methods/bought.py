"""What is bought of the records before a method chooses: L, sizes that most of them lie within, and their classes.

Public numbers are for the worst records that the declared domain allows, and real ones are better behaved. For a few
percent of epsilon the largest eigenvalue of their second moment is bought, from which L follows; or a quantile of their
norms or of their residuals, or the shares of the classes. What is then chosen follows from public and bought numbers.
The rule of ``price`` and ``quantile`` buys no quantile that noise would drown, and knows n and epsilon alone.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import ndtri

from epsteps.budgets import Budget, Cost, Epsilon, Expense, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.plans.notation import problem_fact
from epsteps.plans.plan import Charge, Conversation, Plan, Published
from epsteps.plans.requests import Draw, Records, Request, Sum
from epsteps.problem import limits, validate
from epsteps.problem.grid import STEPS, Grid, Points, added
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.sampling import FULL
from epsteps.problem.shapes import L1

if TYPE_CHECKING:
    from epsteps.noise import Source

# Radii are the largest record's norm over 2^(j/8), for so many j; residuals, which may be far below what the declared
# range of the targets allows, twice its half over 2^(j/4).
CELLS, _PER_HALF, _RESIDUALS_PER_HALF = 49, 8, 4
# Norms within this share above a radius count as below it: records of that very norm do so however they are rounded.
_SLACK = 2.0**-12
# Bits of a record's entry in the unit of its norm, at most; and of the sum of their powers, which a double holds.
_BITS, _SUM_BITS = 20, 52
# Noise of this scale leaves scores of as many records as a problem may have room within 62 bits.
_COARSEST = 2.0**52
# A quantile is worth so much n epsilon, and below the second is not believed: nothing is bought then.
_WORTH, _ENOUGH = 40.0, 24.0
# Each costs this share of epsilon or more, divided by their number, and all of them, with the classes at half the price
# of one, never more than that.
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.1
# The quantile is so far from the top, in scales of its noise, within these shares.
_MARGIN, _TOP, _BOTTOM = 16.0, 0.08, 0.4
# Of sizes that cover enough a smaller one is liked better: the j-th by j/(j + the first) of the most there is to like,
# in scales of the noise, and at most by this share of what tells one that covers no record from one that covers enough.
_SMALLER, _LIKED, _LIKED_AT_MOST = 15, 40.0, 0.5


def price(n: int, epsilon: float, norms: int) -> float:
    """Return the epsilon of each of so many quantiles, or 0 where they are not worth buying: from public numbers.

    With the shares of the classes for half of it, they cost at most a tenth of epsilon together.

    >>> price(30_000, 1.0, 1), price(1000, 1.0, 1), price(500, 0.1, 1)
    (0.01, 0.04, 0.0)
    """
    most = down(_MOST_SHARE * validate.positive("epsilon", epsilon) / (validate.integer("norms", norms) + 0.5))
    each = min(max(_WORTH / validate.integer("n", n), _LEAST_SHARE * epsilon / norms), most)
    return each if n * each >= _ENOUGH else 0.0


def quantile(n: int, epsilon: float) -> float:
    """Return the share of the records that a radius of this price should hold: lower where noise could reach the top.

    >>> quantile(30_000, 0.01), quantile(1000, 0.04)
    (0.92, 0.6)
    """
    return 1 - min(max(_MARGIN / (n * epsilon), _TOP), _BOTTOM)


class Selection(Sum):
    """A choice among cells, by scores that a replaced record moves by at most 1 each."""

    # How far replacing a record moves two scores from each other.
    apart: ClassVar[int] = 2
    epsilon: float
    # What decides, in a plan's table.
    noise: ClassVar[str]

    @property
    def what(self) -> str:
        """What is bought, in words."""
        raise NotImplementedError

    @property
    def scale(self) -> float:
        """What scores are divided by, or the scale of the noise on each."""
        return up(self.apart / self.epsilon)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of a choice of this scale."""
        return (Epsilon(self.apart / self.scale),)

    @property
    def charge(self) -> Charge:
        """What is paid for it, and what decides."""
        return Charge(self.what, Epsilon(self.epsilon), self.scale, self.noise)


class Quantile(Selection):
    """A size that about this share of the records lies within, of a public grid: the end of a chosen cell.

    A kind of size says where the cells end, and which cell a record is in (``encode_places``). Cells lie between ends
    that follow each other, the last one reaches down to 0, and the first holds whatever is larger. The score of a cell
    is -dist(T, [records below its lower end, records below its upper end]), T = share n rounded to an integer.
    Published is the upper end of the cell whose score is largest once each has a noise k >= 0 of its own, P(k) ~ exp(-k
    epsilon/apart); of equal ones the largest end.

    Formal guarantee: epsilon-DP. The distance is the largest of lower - T, T - upper and 0, so that a replaced record,
    which is in one cell, and so moves each count by at most 1, moves each score by at most 1, whatever records hold.
    Let D_j be these moves, integers, no two of which are more than ``apart`` from each other, and fix the noise of all
    cells but i. Cell i is published if k_i reaches some integer r (and 0, which it always does). With the moved scores,
    r + max D - D_i is enough: then i has max D more than it had at r, and no other has gained more, so that i wins as
    it did, ties included, as their order is the same. P(k >= r) is min(1, e^(-r/t)), t = apart/epsilon, so that this is
    at least e^(-(max D - D_i)/t) >= e^(-apart/t) = e^(-epsilon) times as likely as before; averaged over the other
    cells' noise, so is i. The neighbours may change places. What is published of scores and noise is the place of the
    largest alone.
    """

    share: float
    noise: ClassVar[str] = "geometric"

    def __post_init__(self) -> None:
        validate.positive("epsilon", self.epsilon)
        if not 0 < validate.number("share", self.share) < 1:
            raise ValueError(f"share must lie in (0, 1), got {self.share!r}.")

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return CELLS

    @property
    def ends(self) -> np.ndarray:
        """The upper ends of the cells, the largest first: public numbers."""
        raise NotImplementedError

    def encode_places(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED: a function of that record alone."""
        raise NotImplementedError

    def require_drawable(self) -> None:
        """Raise unless scores with noise fit 62 bits, but for draws that never happen."""
        _require_drawable(self.scale, self.epsilon, _COARSEST)

    @property
    def target(self) -> int:
        """How many records the size should hold."""
        return min(max(round(self.share * self.problem.n), 1), self.problem.n)

    def among(self, problem: Problem) -> Any:
        """Return the same choice among other records, as audits make it."""
        return replace(self, problem=problem)  # pyright: ignore[reportArgumentType] - every kind is a dataclass

    def draw(self, source: "Source") -> Draw:
        """Draw one number for each cell. Sees no records."""
        return {"noise": source.geometric(self.scale, self.cells)}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the scores of the cells, UNPROTECTED."""
        return scores(records.tally(self.encode).astype(np.int64), self.target)

    def encode(self, chunk: Any) -> np.ndarray:
        """Return how many records of a chunk are in each cell, UNPROTECTED."""
        return np.bincount(self.encode_places(chunk), minlength=self.cells).astype(np.int64)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the end of the cell: of equal cells the first, which is the largest."""
        return self.ends[[int(np.argmax(reading + draw["noise"]))]]


def scores(counts: np.ndarray, target: int, least: int = 0) -> np.ndarray:
    """Return how far each cell is from the target, from counts of the cells: 0 where that many are in it or below.

    With ``least`` = 1 fewer than that must be below it: the cell holds the record itself.
    """
    within = np.cumsum(counts[::-1])[::-1]
    below = np.append(within[1:], 0) + least
    return -np.maximum(np.maximum(below - target, target - within), 0)


class InOneUnit:
    """What norms of records are told by: entries as integers of one unit, so that sums of their squares are exact."""

    problem: Problem

    @cached_property
    def _most(self) -> int:
        """The largest entry in the norm's unit: sums of as many squares as a record has entries stay exact."""
        return 2 ** min(_BITS, (_SUM_BITS - self.problem.width.bit_length()) // 2)

    @property
    def _units(self) -> np.ndarray:
        return self.problem.units[: self.problem.width]

    @cached_property
    def _factors(self) -> np.ndarray:
        """What the records' integers are multiplied by before they are rounded: all then have one unit."""
        return self._units / self._units.max() * (self._most / STEPS)


@dataclass(frozen=True, eq=False)
class Radius(InOneUnit, Quantile):
    """A radius that about this share of the records' norms lies within: a ``Quantile``, epsilon-DP as proved there.

    Radii are largest/2^(j/8), j = 0, ..., 48.

    Parameters
    ----------
    problem : Problem
        How the records are read.
    norm : 1 or 2
        Of the whole record, in real units, the intercept's 1 included.
    epsilon : float
        The price.
    share : float
        The share of the records, in (0, 1): as ``quantile`` says.
    """

    problem: Problem
    norm: int
    epsilon: float
    share: float

    def __post_init__(self) -> None:
        if self.norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {self.norm!r}.")
        super().__post_init__()

    @property
    def what(self) -> str:
        """What is bought, in words."""
        return f"radius of the records (L{self.norm} norm)"

    @cached_property
    def radii(self) -> np.ndarray:
        """The upper ends of the cells, the longest first."""
        return self.problem.record_size(self.norm) * 2.0 ** (-np.arange(CELLS) / _PER_HALF)

    @property
    def ends(self) -> np.ndarray:
        """The radii."""
        return self.radii

    def encode_places(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED: its norm is a sum of integers, exact, and compared with integers."""
        powers = chunk.row_sums(self._factors, self._most, self.norm)
        return CELLS - 1 - np.searchsorted(self._ends, powers, side="left")

    @cached_property
    def _ends(self) -> np.ndarray:
        """The integers that sums of powers are compared with, the shortest first; the longest cell has no end."""
        ends = self.radii[:0:-1] * (self._most / self._units.max()) * (1 + _SLACK)
        return np.floor(ends**self.norm)


@dataclass(frozen=True, eq=False)
class Spread(Quantile):
    """A size that about this share of the residuals lies within, at a public point: a ``Quantile``, and so epsilon-DP.

    A record's residual is its target less its margin at ``x``, of a size |y - u'x|. At x = 0 these are the sizes of the
    targets themselves. Sizes end at 2 bound/2^(j/4), j = 0, ..., 48, for targets declared within [-bound, bound]: there
    are cells for ranges that are a thousand times too wide. Residuals beyond twice the bound, as of a point that is
    noise, are in the first cell.

    Margins are exact sums of integers at the point of the grid nearest to x (``Grid.points``), finite for every x, and
    a residual is one product and one difference of doubles: it is in the same cell on every engine. Nothing is raised
    whatever a record or x holds.

    Parameters
    ----------
    problem : Problem
        How the records are read; its targets are numbers.
    x : array
        A point that is public, or was published.
    epsilon : float
        The price.
    share : float
        The share of the records, in (0, 1).
    """

    problem: Problem
    x: np.ndarray
    epsilon: float
    share: float

    def __post_init__(self) -> None:
        if hasattr(self.problem.loss.targets, "classes"):
            raise TypeError(f"{type(self.problem.loss).__name__} has classes for targets, which have no residuals.")
        if np.shape(self.x) != (self.problem.dimension,):
            raise ValueError(f"x must have the length {self.problem.dimension}, got the shape {np.shape(self.x)}.")
        super().__post_init__()

    @property
    def what(self) -> str:
        """What is bought, in words."""
        return "size of the residuals" if np.any(self.x) else "size of the targets"

    @property
    def ends(self) -> np.ndarray:
        """The upper ends of the cells, the largest first."""
        return 2 * self.problem.loss.targets.largest * 2.0 ** (-np.arange(CELLS) / _RESIDUALS_PER_HALF)

    def encode_places(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED: by its exact margin at the point, and its target."""
        margins = chunk.margins(self._point.coefficients, self._point.step)[:, 0]
        return CELLS - 1 - np.searchsorted(self.ends[:0:-1], np.abs(margins - chunk.targets), side="left")

    @cached_property
    def _point(self) -> Points:
        return Grid(self.problem).points(np.asarray(self.x, dtype=float)[:, None], 1.0)


@dataclass(frozen=True, eq=False)
class Cover(Spread):
    """A size that this share of the residuals lies within, or hardly less: for half the noise of ``Spread``.

    A size that is too small costs more than one that is too large, and the two are kept apart by different means. The
    score of a cell is l_j - max(B_j - (n - T), 0), B_j being the records beyond its end. The integers l_j are public
    and grow with j: of ends that cover enough records the smaller ones are liked better, whatever the records are.

    Formal guarantee: that of ``Quantile``, with 1 for ``apart``. A record is in one cell before it is replaced and in
    one after, whatever it holds. If the later one is of larger sizes, each B_j grows by 1 or stays, and so each score
    falls by 1 or stays; if it is of smaller ones, each score grows by 1 or stays.
    """

    apart: ClassVar[int] = 1

    @cached_property
    def liked(self) -> np.ndarray:
        """What is added to the scores of the cells: integers, from public numbers alone."""
        most = int(min(_LIKED * self.scale, _LIKED_AT_MOST * self.target))
        places = np.arange(self.cells, dtype=object)
        return (most * places // (places + _SMALLER)).astype(np.int64)

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the scores of the cells, UNPROTECTED."""
        beyond = np.append(0, np.cumsum(records.tally(self.encode).astype(np.int64))[:-1])
        return self.liked - np.maximum(beyond - (self.problem.n - self.target), 0)


@dataclass(frozen=True, eq=False)
class ClassShares(Sum):
    """The shares of the classes among the records, with integer Laplace noise.

    Formal guarantee: epsilon-DP. Of two classes the second one's records are counted: a replaced record moves that by
    at most 1. Of more, each one's are: a replaced record moves two counts by at most 1 each.
    """

    problem: Problem
    epsilon: float

    def __post_init__(self) -> None:
        if not hasattr(self.problem.loss.targets, "classes"):
            raise TypeError(f"{type(self.problem.loss).__name__} has no classes whose shares could be bought.")
        validate.positive("epsilon", self.epsilon)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.problem.loss.targets.classes)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def sensitivity(self) -> int:
        """How far a replaced record moves the counts, in the L1 norm."""
        return min(2, len(self._places))

    @property
    def scale(self) -> float:
        """Scale of the noise on each count."""
        return up(self.sensitivity / self.epsilon)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale on counts of that sensitivity."""
        return (Epsilon(self.sensitivity / self.scale),)

    @property
    def charge(self) -> Charge:
        """What is paid for it, and with which noise."""
        return Charge("shares of the classes", Epsilon(self.epsilon), self.scale, "laplace")

    def require_drawable(self) -> None:
        """Raise unless the noise can be drawn."""
        _require_drawable(self.scale, self.epsilon, L1(1).coarsest)

    def draw(self, source: "Source") -> Draw:
        """Draw what is added to the counts. Sees no records."""
        return {"noise": source.integers(mechanisms.named("laplace"), self.scale, (len(self._places),))}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the counts, UNPROTECTED: of targets alone, so that sparse records stay sparse."""
        return records.tally(self.encode)

    def encode(self, chunk: Any) -> np.ndarray:
        """Return how many records of a chunk are of each class that is counted, UNPROTECTED."""
        return np.array([np.sum(chunk.targets == place) for place in self._places], dtype=np.int64)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return a share for each class, within [0, 1] and together 1: noisy counts, held within [0, n]."""
        n = self.problem.n
        counts = np.clip(added(reading, draw["noise"]), 0, n).astype(float)
        if self.classes == 2:
            return np.array([n - counts[0], counts[0]]) / n
        return counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))

    @property
    def _places(self) -> tuple[float, ...]:
        """The numbers that stand for the classes which are counted."""
        return (1.0,) if self.classes == 2 else tuple(map(float, range(self.classes)))


def _require_drawable(scale: float, epsilon: float, coarsest: float) -> None:
    if scale > coarsest:
        raise ValueError(f"noise of epsilon = {epsilon:.3g} does not fit the integers of counts. Use a larger budget.")


# The eigenvalue is released as a whole number of steps, so many of which one record can move it by.
_STEPS = 2**20
# The noise, pure and Gaussian, and the quantiles of it at a confidence, for a scale of 1.
_NOISES = (mechanisms.named("laplace"), mechanisms.named("gaussian"))
_QUANTILES = (lambda confidence: -math.log(2 * (1 - confidence)), ndtri)


@dataclass(frozen=True)
class SmoothnessEstimate:
    """A private upper estimate of L: the problem that declares it, and the line of expense for its plan."""

    problem: Problem
    expense: Expense
    seeded: bool

    @property
    def L(self) -> float:
        """The estimated smoothness constant."""
        return self.problem.L


@dataclass(frozen=True, eq=False)
class Eigenvalue(Request):
    """The largest eigenvalue of U'U/n, in whole steps, with noise.

    Formal guarantee: it moves by at most (largest record)²/n when a record is replaced, since uu' - vv' has its
    eigenvalues between -|v|² and |u|². It is computed from exact integer sums, and the sensitivity includes what the
    eigenvalue's own rounding may add.
    """

    problem: Problem
    mechanism: Mechanism
    scale: float

    @property
    def size(self) -> float:
        """Real size of a released integer."""
        return self.problem.record_size(2) ** 2 / self.problem.n / _STEPS

    @property
    def sensitivity(self) -> int:
        """How far a replaced record moves the released integer."""
        largest = self.problem.record_size(2) ** 2
        return _STEPS + 1 + math.ceil(2 * _eigenvalue_error(self.problem.dimension) * largest / self.size)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale on such an integer."""
        return (self.mechanism.kind(float(self.mechanism.costs(self.sensitivity, np.array(self.scale), FULL))),)

    @staticmethod
    def prepare(records: Records) -> None:
        """Round the records."""
        records.prepare()

    def draw(self, source: "Source") -> Draw:
        """Draw what is added, in integers."""
        return {"noise": source.integers(self.mechanism, self.scale, (1,))}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the eigenvalue in whole steps."""
        largest = np.linalg.eigvalsh(records.second_moment())[-1]
        return np.array([math.floor(largest / self.size + 0.5)], dtype=object)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the noisy eigenvalue."""
        return np.array([float(added(reading, draw["noise"])[0]) * self.size])


@dataclass(frozen=True, eq=False, repr=False)
class SmoothnessPlan(Plan):
    """An upper estimate of the smoothness constant, decided: Laplace noise makes it epsilon-DP, Gaussian rho-zCDP.

    Parameters
    ----------
    problem, budget
        The public facts, and the price.
    confidence : float
        Probability that the estimate is large enough.
    """

    reads = (Eigenvalue,)
    method = "smoothness"

    problem: Problem
    budget: Budget
    confidence: float

    def __post_init__(self) -> None:
        limits.require_eigenvalue(self.problem)
        if not 0.5 <= validate.number("confidence", self.confidence) < 1:
            raise ValueError(f"confidence must lie in [0.5, 1), got {self.confidence!r}.")
        if self.budget.delta:
            raise TypeError(f"budget must be Pure(epsilon) or Concentrated(rho), got {self.budget!r}.")
        super().__post_init__()

    @cached_property
    def eigenvalue(self) -> Eigenvalue:
        """The one release, as it is asked for."""
        noise = self.budget.kinds[0].either(*_NOISES)
        known = Eigenvalue(self.problem, noise, 1.0)
        return replace(known, scale=up(float(noise.scales(known.sensitivity, np.array(self.budget.amount), FULL))))

    @property
    def charges(self) -> list[Charge]:
        """The whole budget."""
        request = self.eigenvalue
        cost = request.mechanism.kind(self.budget.amount)
        return [
            Charge(
                "largest eigenvalue of the second moment", cost, request.scale * request.size, request.mechanism.name
            )
        ]

    def spending(self, repetitions: int = 1) -> Budget:
        """Return the budget for each run."""
        kind = self.budget.kinds[0]
        return self.budget if repetitions == 1 else self.budget.spending(np.full(repetitions, self.budget.amount), kind)

    def require_executable(self) -> None:
        """Raise unless the noise can be drawn."""
        if self.eigenvalue.scale > L1(1).coarsest:
            raise ValueError(f"noise of {self.budget} does not fit the integers of an eigenvalue. Use a larger budget.")

    def note(self, runs: int) -> str:
        """Return what a ledger says."""
        return self.method

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.problem.ridge),
            "Published": f"an estimate of L that is large enough with probability {self.confidence:g}",
        }

    def conversation(self) -> Conversation:
        """Publish the noisy eigenvalue, as the one row of a path."""
        eigenvalue = yield self.eigenvalue
        return Published(eigenvalue[None, :])

    def estimate(self, eigenvalue: float, seeded: bool) -> SmoothnessEstimate:
        """Return what a released eigenvalue says of L: post-processing."""
        problem, request = self.problem, self.eigenvalue
        slack = request.scale * request.size * float(request.mechanism.kind.either(*_QUANTILES)(self.confidence))
        bounded = float(np.clip(eigenvalue + slack, 0.0, problem.record_size(2) ** 2))
        smoothness = max(problem.loss.curvature * bounded + problem.ridge, 1e-12)
        expense = Expense("smoothness constant L", self.budget.amount, request.mechanism.unit)
        return SmoothnessEstimate(replace(problem, smoothness=smoothness), expense, seeded)


def _eigenvalue_error(d: int) -> float:
    """Bound the relative error of a symmetric matrix's largest computed eigenvalue.

    LAPACK's is backward stable: the error is a modest polynomial in d times the rounding unit. 16 d is generous.
    """
    return 16 * d * np.finfo(float).eps
