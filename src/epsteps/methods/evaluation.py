"""What is bought after the model: counts and sums from which scores of a published model on private records follow.

The model is public, so that what it predicts for a record is a function of that record alone. Of labels one histogram
is released: records by their class and the bucket of their score, or of several classes by the class that is predicted.
Accuracy, confusion matrix, the area under the ROC curve, calibration and a bounded logarithmic loss follow from it, at
one price. Of numbers four sums are released, from which R² and the mean errors follow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import ndtri, softmax

from epsteps.budgets import Budget, Cost, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.plans.plan import Charge, Conversation, Plan, Published
from epsteps.plans.requests import Draw, Records, Sum
from epsteps.plans.utility import HopelessError
from epsteps.problem import validate
from epsteps.problem.grid import Grid, added
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.sampling import FULL
from epsteps.problem.shapes import L1

if TYPE_CHECKING:
    from epsteps.noise import Source

# Probabilities below this count as this in the logarithmic loss, which is unbounded otherwise.
FLOOR = 0.01
LARGEST_LOSS = -math.log(FLOOR)
# What a number from 0 to 1 is in released integers.
STEPS = 2**20
# Cells of the scores that buckets are placed by, over so many guessed deviations around their guessed mean.
_FINE, _REACH = 64, 5.0
# What placing the buckets gets of the budget, where the records are so many deviations of a whole budget's noise on a
# count that noise moves them little; and the loss, of several classes, which has a sum of its own.
_PLACING, _WORTH_PLACING, _LOSS_SHARE = 0.1, 1000.0, 0.2
# Buckets are as many as balance noise, which grows with their number, and what they hide of the order of scores.
_BALANCE, _MOST, _MOST_OF_SEVERAL, LARGEST_BUCKETS = 0.15, 64, 10, 1024
# Sizes of errors that their bound is chosen from, each √2 times the one before; how many deviations of the noise are
# clearly some records beyond; and how many deviations of a whole budget's noise on a count the records must be.
_SIZES, _BEYOND, _WORTH_BOUNDING = 24, 3.0, 300.0
# Below so many deviations of the noise the records tell nothing: an accuracy could as well be 0 as 1.
_HOPE = 4.0


class Tally(Sum):
    """A sum over the records of integers that a public model makes of each, with integer noise.

    Formal guarantee: the model is public, so that each record is encoded by itself. The noise is scaled by
    ``sensitivity``, how far a replaced record can move the sum in the mechanism's norm, whatever records hold: Laplace
    noise is then epsilon-DP and rounded Gaussian noise rho-zCDP, exactly, for the cost.

    Margins are exact sums of integers at the point of the grid nearest to x (``Grid.points``): finite, and the same on
    every engine.
    """

    problem: Problem
    x: np.ndarray
    mechanism: Mechanism
    cost: float
    what: ClassVar[str]

    def __post_init__(self) -> None:
        if np.shape(self.x) != (self.problem.dimension,):
            raise ValueError(f"x must have the length {self.problem.dimension}, got the shape {np.shape(self.x)}.")
        validate.positive("cost", self.cost)

    @property
    def size(self) -> int:
        """Number of integers."""
        raise NotImplementedError

    @property
    def sensitivity(self) -> float:
        """How far a replaced record moves the integers, in the mechanism's norm."""
        raise NotImplementedError

    def encode(self, chunk: Any) -> np.ndarray:
        """Return the sum of a chunk's integers, UNPROTECTED."""
        raise NotImplementedError

    @cached_property
    def scale(self) -> float:
        """Scale of the noise on each integer."""
        return up(float(self.mechanism.scales(self.sensitivity, np.array(self.cost), FULL)), 1e-12)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale, computed from what will be drawn."""
        return (self.mechanism.kind(float(self.mechanism.costs(self.sensitivity, np.array(self.scale), FULL))),)

    @property
    def charge(self) -> Charge:
        """What is paid for it, and with which noise."""
        return Charge(self.what, self.mechanism.kind(self.cost), self.scale, self.mechanism.name)

    def draw(self, source: "Source") -> Draw:
        """Draw what is added to the integers. Sees no records."""
        return {"noise": source.integers(self.mechanism, self.scale, (self.size,))}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the integers, UNPROTECTED."""
        return records.tally(self.encode)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the integers with their noise."""
        return added(reading, draw["noise"]).astype(float)

    def encode_margins(self, chunk: Any) -> np.ndarray:
        """Return each record's margins, UNPROTECTED: one column for each output."""
        point = Grid(self.problem).points(np.asarray(self.x, dtype=float)[:, None], 1.0)
        coefficients = point.coefficients.reshape(self.problem.loss.outputs, self.problem.width).T
        return chunk.products(np.ascontiguousarray(coefficients)) * point.step[0]


class Counts(Tally):
    """How many records are in each cell of a public partition.

    Formal guarantee: as ``Tally``. A record is in one cell, so that replacing it moves two counts by 1 each: 2 in the
    L1 norm, √2 in the L2 norm.
    """

    @property
    def sensitivity(self) -> float:
        """Return 2, or √2 rounded up."""
        return 2.0 if self.mechanism.norm == 1 else up(math.sqrt(2))

    def encode_places(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED: a function of that record alone."""
        raise NotImplementedError

    def encode(self, chunk: Any) -> np.ndarray:
        """Return how many records of a chunk are in each cell, UNPROTECTED."""
        return np.bincount(self.encode_places(chunk), minlength=self.size).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Scores(Counts):
    """How many records have a score, of two classes the margin, in each bucket: from one edge to the next.

    A bucket holds its upper edge. ``by_class`` counts the records of the first class, then those of the second.
    """

    problem: Problem
    x: np.ndarray
    mechanism: Mechanism
    cost: float
    edges: np.ndarray
    by_class: bool

    @property
    def what(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What is bought, in words."""
        return f"records by {'class and ' * self.by_class}score"

    @property
    def size(self) -> int:
        """Number of cells."""
        return (len(self.edges) + 1) * (1 + self.by_class)

    def encode_places(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED: labels are -1 and 1."""
        buckets = np.searchsorted(self.edges, self.encode_margins(chunk)[:, 0], side="left")
        return buckets + (len(self.edges) + 1) * (chunk.targets > 0) if self.by_class else buckets


@dataclass(frozen=True, eq=False)
class Confusion(Counts):
    """How many records of each class are predicted as each class, with a probability in each bucket.

    Cells go by class, then by what is predicted (the first among equals), then by the bucket of its probability: equal
    parts of [1/classes, 1].
    """

    problem: Problem
    x: np.ndarray
    mechanism: Mechanism
    cost: float
    buckets: int
    what = "records by class and prediction"

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.problem.loss.outputs

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.classes**2 * self.buckets

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode_places(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED."""
        margins = self.encode_margins(chunk)
        likely = softmax(margins, axis=1).max(axis=1)
        relative = (likely * self.classes - 1) / (self.classes - 1) * self.buckets
        buckets = np.clip(relative, 0, self.buckets - 1).astype(np.int64)
        return (chunk.targets.astype(np.int64) * self.classes + margins.argmax(axis=1)) * self.buckets + buckets


@dataclass(frozen=True, eq=False)
class Losses(Tally):
    """The sum of the records' logarithmic losses, of probabilities held at ``FLOOR`` or above, in integers.

    Formal guarantee: as ``Tally``. A record's loss is an integer from 0 to 2^20, whatever it is: one moves the sum by
    at most that.
    """

    problem: Problem
    x: np.ndarray
    mechanism: Mechanism
    cost: float
    what = "sum of logarithmic losses"

    @property
    def size(self) -> int:
        """One sum."""
        return 1

    @property
    def sensitivity(self) -> float:
        """The largest loss."""
        return float(STEPS)

    @np.errstate(all="ignore")
    def encode(self, chunk: Any) -> np.ndarray:
        """Return the sum over a chunk, UNPROTECTED."""
        likely = softmax(self.encode_margins(chunk), axis=1)[np.arange(len(chunk)), chunk.targets.astype(np.int64)]
        losses = np.clip(-np.log(np.maximum(likely, FLOOR)) / LARGEST_LOSS, 0.0, 1.0)
        return np.rint(losses * STEPS).astype(np.int64).sum(keepdims=True)


@dataclass(frozen=True, eq=False)
class ErrorSizes(Counts):
    """How many records have an error whose size lies from one edge of a public grid to the next.

    An error is the prediction, held within the declared range, less the target. A cell holds its upper edge.
    """

    problem: Problem
    x: np.ndarray
    mechanism: Mechanism
    cost: float
    edges: np.ndarray
    what = "records by size of their error"

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.edges) + 1

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode_places(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED."""
        largest = self.problem.loss.targets.largest
        predictions = np.clip(self.encode_margins(chunk)[:, 0], -largest, largest)
        return np.searchsorted(self.edges, np.abs(predictions - chunk.targets), side="left")


@dataclass(frozen=True, eq=False)
class Errors(Tally):
    """Sums over the records of (e/c)², |e|/c, (t + 1)/2 and t², in integers of 2^-20, for an error e and a target t.

    Targets t are in units of the declared range's half. An error is the prediction, held within the range, less the
    target, held within ``bound`` c.

    Formal guarantee: as ``Tally``. Each of the four is an integer from 0 to 2^20, whatever a record holds: one moves
    them by at most 4 x 2^20 in the L1 norm and 2 x 2^20 in the L2 norm.
    """

    problem: Problem
    x: np.ndarray
    mechanism: Mechanism
    cost: float
    bound: float
    what = "sums of errors and targets"

    @property
    def size(self) -> int:
        """Four sums."""
        return 4

    @property
    def sensitivity(self) -> float:
        """Return how far a record moves all of them."""
        return float((4 if self.mechanism.norm == 1 else 2) * STEPS)

    @np.errstate(all="ignore")
    def encode(self, chunk: Any) -> np.ndarray:
        """Return the sums over a chunk, UNPROTECTED."""
        largest = self.problem.loss.targets.largest
        targets = np.clip(chunk.targets / largest, -1.0, 1.0)
        predictions = np.clip(self.encode_margins(chunk)[:, 0] / largest, -1.0, 1.0)
        errors = np.minimum(np.abs(predictions - targets) * (largest / self.bound), 1.0)
        shares = np.stack([errors**2, errors, (targets + 1) / 2, targets**2])
        return np.rint(np.clip(shares, 0.0, 1.0) * STEPS).astype(np.int64).sum(axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationPlan(Plan):
    """Scores of a published model on private records, decided: what is counted, at which price, with which noise.

    Of two classes, records are counted by class and by the bucket of their margin; 0, where the prediction changes, is
    an edge. Where ``placing`` is not 0, that share of the budget first buys a histogram of the margins alone, on a fine
    public grid, and the edges are then at its quantiles. Of several classes, records are counted by class, prediction
    and its probability, and a share buys the sum of the logarithmic losses. Of numbers four sums are bought at once, of
    errors that are held within ``bound``, or, where ``placing`` is not 0, within what that share of the budget bought
    before: errors are mostly far smaller than the declared range, and noise is scaled by what they may be.

    Formal guarantee: each release is private as its request proves (``Counts``, ``Losses``, ``Errors``), and costs are
    fixed beforehand, so that they add up although edges depend on what was released before. What is computed from the
    published counts and sums costs nothing more.

    Parameters
    ----------
    problem : Problem
        How the records are read: that of the model's fit, with the number of records that it is evaluated on.
    budget : Budget
        What may be spent.
    x : tuple of float
        The published model, in the units of the problem's domain.
    mechanism : str
        "laplace" or "gaussian".
    probabilities : bool
        Whether margins are log-odds, so that there are probabilities.
    buckets : int
        Of the scores; 0 where targets are numbers.
    placing : float
        The share of the budget that places the buckets, or the bound of the errors.
    bound : float
        What errors are held within, where targets are numbers, in the problem's units.
    unit : float
        What 1 of the problem's targets is in the target's own unit.
    """

    reads = (Scores, Confusion, Losses, ErrorSizes, Errors)
    method = "evaluation"

    problem: Problem
    budget: Budget
    x: tuple[float, ...]
    mechanism: str
    probabilities: bool
    buckets: int
    placing: float
    bound: float
    unit: float = 1.0

    def __post_init__(self) -> None:
        validate.choice("mechanism", self.mechanism, ("laplace", "gaussian"))
        point = np.array(self.x, dtype=float)
        if point.shape != (self.problem.dimension,) or not np.all(np.isfinite(point)):
            raise ValueError(f"x must be {self.problem.dimension} finite numbers, the published model.")
        if not isinstance(self.probabilities, bool):
            raise TypeError(f"probabilities must be True or False, got {self.probabilities!r}.")
        low = 0 if not self.classes else 1 if self.classes > 2 else 2
        validate.integer("buckets", self.buckets, low=low, high=LARGEST_BUCKETS if low else 0)
        if not 0 <= validate.number("placing", self.placing) < 1 or (self.placing and self.classes > 2):
            raise ValueError(f"placing must lie in [0, 1), and be 0 for several classes, got {self.placing!r}.")
        for name in ("bound", "unit"):
            validate.positive(name, getattr(self, name))
        super().__post_init__()

    @property
    def classes(self) -> int:
        """Number of classes; 0 where targets are numbers."""
        return len(getattr(self.problem.loss.targets, "classes", ()))

    @property
    def noise(self) -> Mechanism:
        """The law of the noise."""
        return mechanisms.named(self.mechanism)

    @cached_property
    def prices(self) -> tuple[float, ...]:
        """What each release costs, in the mechanism's currency."""
        total = down(self.budget.capacity(self.noise.kind), 1e-9)
        if self.classes > 2:
            return ((1 - _LOSS_SHARE) * total, _LOSS_SHARE * total)
        return (self.placing * total, (1 - self.placing) * total) if self.placing else (total,)

    @cached_property
    def asked(self) -> tuple[Tally, ...]:
        """The releases, in order; of buckets that are placed by the first of them, as they would be without it."""
        given = (self.problem, np.array(self.x, dtype=float), self.noise)
        if self.classes == 2:
            placing = [Scores(*given, price, self.fine_edges, False) for price in self.prices[:-1]]
            return (*placing, Scores(*given, self.prices[-1], self.guessed_edges, True))
        if self.classes:
            return (Confusion(*given, self.prices[0], self.buckets), Losses(*given, self.prices[1]))
        sizes = [ErrorSizes(*given, price, self.size_edges) for price in self.prices[:-1]]
        return (*sizes, Errors(*given, self.prices[-1], self.bound))

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        return [request.charge for request in self.asked]

    @cached_property
    def _guess(self) -> tuple[float, float]:
        """Mean and deviation of the margins, if records were spread evenly: public numbers."""
        d, x = self.problem.d, np.array(self.x, dtype=float)
        mean, variance = self.problem.domain.even_moments(d)
        with np.errstate(all="ignore"):
            middle = float(x[:d] @ mean + x[d:].sum())
            spread = float(np.sqrt(np.sum(x[:d] ** 2 * variance)))
        middle = middle if math.isfinite(middle) else 0.0
        return middle, max(spread if math.isfinite(spread) else 0.0, 1e-6 * (1 + abs(middle)))

    @property
    def spread(self) -> float:
        """The guessed deviation of the margins."""
        return self._guess[1]

    @property
    def margins(self) -> tuple[float, float]:
        """What margins lie within for every record of the domain, of one output; a little more, for rounding."""
        d, x = self.problem.d, np.array(self.x, dtype=float)
        reach = 1.001 * float(self.problem.domain.reach(x[:d, None])[0]) + 1e-6
        middle = float(x[d:].sum())
        return (middle - reach, middle + reach) if math.isfinite(reach) else (-math.inf, math.inf)

    @property
    def fine_edges(self) -> np.ndarray:
        """The public grid of margins that buckets are placed by."""
        middle, spread = self._guess
        return middle + spread * np.linspace(-_REACH, _REACH, _FINE - 1)

    @property
    def guessed_edges(self) -> np.ndarray:
        """Edges at the quantiles of margins that are spread as they are guessed to be."""
        middle, spread = self._guess
        return _with_zero(middle + spread * ndtri(np.arange(1, self.buckets) / self.buckets))

    def placed_edges(self, counts: np.ndarray) -> np.ndarray:
        """Return edges at the quantiles of the published histogram; where it is empty, those that are guessed."""
        n = self.problem.n
        below = np.clip(np.cumsum(counts + (n - counts.sum()) / len(counts)), 0.0, n)
        # Noise makes the sums fall here and there: the middle between their rising bounds does not.
        rising = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2
        if not np.any(counts):
            return self.guessed_edges
        shares = np.arange(1, self.buckets) / self.buckets * n
        edges = self.fine_edges
        ends = np.concatenate([[2 * edges[0] - edges[1]], edges, [2 * edges[-1] - edges[-2]]])
        return _with_zero(np.interp(shares, np.append(0.0, rising), ends))

    @property
    def size_edges(self) -> np.ndarray:
        """The public grid of errors that their bound is chosen from, the smallest first."""
        return self.bound * 2.0 ** (-np.arange(_SIZES, 0, -1) / 2)

    def placed_bound(self, counts: np.ndarray) -> float:
        """Return twice the smallest size that noise alone could tell from what no error is beyond; or the bound."""
        beyond = np.cumsum(counts[::-1])[::-1][1:]
        noise = _BEYOND * self._deviation_of(self.asked[0]) * np.sqrt(np.arange(_SIZES, 0, -1))
        # From the largest size down, as far as there is nothing to see beyond.
        clear = np.flatnonzero(beyond > noise)
        edges = self.size_edges
        smallest = 0 if not len(clear) else clear[-1] + 1
        return float(min(2 * edges[smallest], self.bound)) if smallest < len(edges) else self.bound

    def conversation(self) -> Conversation:
        """Publish the counts with their edges, or the sums; the path is the model, which is public."""
        extras = {}
        if self.classes == 2:
            *placing, labelled = self.asked
            edges = labelled.edges  # pyright: ignore[reportAttributeAccessIssue]
            for request in placing:
                edges = self.placed_edges((yield request))
            counts = yield Scores(self.problem, labelled.x, self.noise, self.prices[-1], edges, True)
            extras = {"edges": edges, "counts": counts}
        elif self.classes:
            for name, request in zip(("counts", "losses"), self.asked, strict=True):
                extras[name] = yield request
        else:
            *sizes, sums = self.asked
            bound = self.bound
            for request in sizes:
                bound = self.placed_bound((yield request))
            extras["sums"] = yield Errors(self.problem, sums.x, self.noise, self.prices[-1], bound)
            extras["bound"] = np.array([bound])
        return Published(np.array(self.x, dtype=float)[None, :], extras)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on each count or sum, in integers."""
        return self._deviation_of(self.asked[0 if self.classes > 2 else -1])

    @staticmethod
    def _deviation_of(request: Tally) -> float:
        return request.scale * request.mechanism.kind.either(math.sqrt(2), 1.0)

    def require_hope(self) -> None:
        """Raise where the noise is so much that no score would be told: by public numbers."""
        unit = 1 if self.classes else STEPS
        if self.problem.n * unit < _HOPE * self.deviation:
            raise HopelessError(
                f"nothing would be learned: the noise on each number is about {self.deviation / unit:.3g} records, of "
                f"{self.problem.n}. Nothing was charged. Use more records, a larger budget than {self.budget}, or "
                "anyway=True."
            )

    def require_executable(self) -> None:
        """Raise unless the noise can be drawn."""
        if max(request.scale for request in self.asked) > L1(1).coarsest:
            raise ValueError(f"noise of {self.budget} does not fit the integers of counts. Use a larger budget.")

    def note(self, runs: int) -> str:
        """Return what a ledger says."""
        return f"evaluation of a published model on {self.problem.n} records"

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        problem = self.problem
        told = f"{self.classes} classes, {self.buckets} buckets of scores" if self.classes else "targets are numbers"
        if self.placing:
            told += f", {'placed' if self.classes else 'errors bounded'} by {100 * self.placing:g} % of the budget"
        noise = self.deviation / (1 if self.classes else STEPS)
        return {
            "Records": f"n = {problem.n}, d = {problem.d}; records in {problem.domain}",
            "Evaluates": f"a published model of {problem.dimension} numbers; {told}",
            "Noise": f"{self.mechanism}, a standard deviation of {noise:.3g} records on each number",
        }


def _with_zero(edges: np.ndarray) -> np.ndarray:
    """Return distinct edges in order, the nearest to 0 moved there: predictions change at an edge."""
    edges = edges.copy()
    edges[np.argmin(np.abs(edges))] = 0.0
    return np.unique(edges)


def plan_evaluation(
    problem: Problem,
    budget: Budget,
    x: Sequence[float] | np.ndarray,
    *,
    probabilities: bool = True,
    buckets: int | None = None,
    error_bound: float | None = None,
    unit: float = 1.0,
) -> EvaluationPlan:
    """Decide how a published model is evaluated, from public numbers alone.

    Parameters
    ----------
    problem, budget
        How records are read, with the number of those that it is evaluated on; and what may be spent.
    x : sequence of float
        The published model, in the units of the problem's domain.
    probabilities : bool
        Whether margins are log-odds.
    buckets : int, optional
        Of the scores; by default as many as balance noise and what buckets hide. Two are the confusion matrix alone, of
        the least noise.
    error_bound : float, optional
        Errors are held within this, in the target's own unit; by default within what a share of the budget buys, or the
        declared range's width. The smaller, the less noise, and what is told is of errors held within it.
    unit : float
        What 1 of the problem's targets is in the target's own unit.
    """
    if not hasattr(budget, "kinds"):  # targets, perhaps, which no message shows
        raise TypeError(
            f"budget must be Pure(epsilon), Concentrated(rho) or Approximate(epsilon, delta), not of type "
            f"{type(budget).__name__}. Scores that cost nothing, and protect nobody: epsteps.unprotected_scores."
        )
    noise = _quieter(budget)
    classes = len(getattr(problem.loss.targets, "classes", ()))
    width = 2 * problem.loss.targets.largest
    bound = width if error_bound is None else validate.positive("error_bound", error_bound) / unit
    if not classes and bound > width:
        bound = width
    if not classes and buckets is not None:
        raise ValueError(f"buckets are for classes, and the targets are numbers. Leave it out, got {buckets!r}.")
    if classes and error_bound is not None:
        raise ValueError(f"error_bound is for targets that are numbers. Leave it out, got {error_bound!r}.")
    relative = problem.n / _histogram_deviation(budget, noise)
    if classes and buckets is None:
        balanced = (_BALANCE * relative) ** (2 / 3)
        most, least = (_MOST, 2) if classes == 2 else (_MOST_OF_SEVERAL, 1)
        buckets = int(min(max(balanced / (1 if classes == 2 else classes), least), most))
    if classes == 2:
        worth = (buckets or 0) > 2 and relative >= _WORTH_PLACING
    else:
        worth = not classes and error_bound is None and relative >= _WORTH_BOUNDING
    placing = _PLACING if worth else 0.0
    point = tuple(np.asarray(x, dtype=float).ravel().tolist())
    return EvaluationPlan(problem, budget, point, noise.name, probabilities, buckets or 0, placing, bound, float(unit))


def _quieter(budget: Budget) -> Mechanism:
    """Return the noise that is smaller on a histogram at this price, among those that the budget pays for."""
    known = [noise for noise in map(mechanisms.named, ("laplace", "gaussian")) if noise.kind in budget.kinds]
    return min(known, key=lambda noise: _histogram_deviation(budget, noise))


def _histogram_deviation(budget: Budget, noise: Mechanism) -> float:
    """Return the standard deviation of noise on the counts of a histogram that has the whole budget."""
    return noise.kind.either(2 * math.sqrt(2), math.sqrt(2)) / noise.kind(budget.capacity(noise.kind)).ratio
