"""The plan of sufficient statistics: least squares from second moments of the records, released once with noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from epsteps.budgets import Budget, Cost, Epsilon, Mu, Rho, mechanisms
from epsteps.methods.curvature import Definite, definite, held
from epsteps.methods.intervals.posterior import Released, symmetric, upper
from epsteps.methods.intervals.table import Intervals, intervals_for
from epsteps.plans.notation import problem_fact
from epsteps.plans.plan import Charge, Conversation, Plan, Published
from epsteps.plans.requests import Draw, Records, Sum
from epsteps.plans.utility import Typical, Utility
from epsteps.problem import levels, limits, validate
from epsteps.problem.grid import STEPS, added
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.shapes import Frobenius, Nuclear

if TYPE_CHECKING:
    from epsteps.noise import Source

WISHART, GAUSSIAN = "wishart", "gaussian"
# Noise of about so many bits is drawn quickly, and is still spread over billions of integers.
_NOISE_BITS = 36
_SUM_BITS = 62
# Products of integers within 2^21 are within 2^42: a double holds a sum of this many exactly.
_ROWS_PER_DOUBLE = 2**11
# Eigenvalues below this share of the noise's norm are not believed. Measured; the error is flat around it.
_FLOOR_SHARE = 0.55
# A weight of 1 is this many integers, so that weights are rounded to 2 %.
_WEIGHT_STEPS = 32
# Draws of the noise's norm, so many at once, and the largest matrix that it is drawn for.
_NORMS, _AT_ONCE, _LARGEST_NORM = 400, 50, 300
# What intervals follow from, in words.
_BASIS = "the released moments and the norm of their noise"
# What the constant and the target add to the squared length of the features. Measured; the error is flat around it.
_CONSTANT_SHARE, _TARGET_SHARE = 0.1, 0.25


@dataclass(frozen=True)
class Vectors:
    """The vector a = weights x (2^20, u - centre, y) of each record, for features u and a target y in 2^20 steps.

    Parameters
    ----------
    problem : Problem
        The public facts.
    centre : tuple of int
        What is taken off each feature, in steps; 0 where the domain is a ball.
    weights : tuple of int
        Of the constant, of each feature, and of the target.
    """

    problem: Problem
    centre: tuple[int, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        d = self.problem.d
        for name, length in (("centre", d), ("weights", d + 2)):
            values = getattr(self, name)
            if len(values) != length or not all(isinstance(value, int) for value in values):
                raise ValueError(f"{name} must be {length} integers, got {values!r}.")
        if min(self.weights) < 1 or max(self.weights) > 2**20:
            raise ValueError(f"weights must lie between 1 and 2**20, got {self.weights!r}.")
        if max(map(abs, self.centre)) > STEPS or (self.problem.domain.is_centred and any(self.centre)):
            raise ValueError(f"centre must lie within the domain, and be 0 in a ball, got {self.centre!r}.")

    @property
    def size(self) -> int:
        """Length of a vector."""
        return self.problem.d + 2

    @property
    def square(self) -> int:
        """The largest squared L2 norm of a vector, in integers: exact."""
        constant, *features, target = self.weights
        longest = self.problem.domain.largest_square(self.centre, features, STEPS)
        return longest + STEPS**2 * (constant**2 + target**2)

    @property
    def slopes(self) -> np.ndarray:
        """The matrix T for which a record's prediction is a'Tp, for the weighed model p; a is in units of 2^20.

        One row for each entry of a, one column for each coordinate of x.
        """
        d = self.problem.d
        slopes = np.zeros((d + 2, self.problem.width))
        weights = np.array(self.weights, dtype=float)
        slopes[1 : d + 1, :d] = np.eye(d)
        slopes[0, :d] = np.array(self.centre) / STEPS * weights[1:-1] / weights[0]
        slopes[0, d:] = 1.0
        return slopes

    @property
    def model_units(self) -> np.ndarray:
        """What the weighed model p is multiplied by, to give x."""
        constant, *features, _ = self.weights
        return np.append(features, [constant] * self.problem.intercept) / self.problem.units


def chosen_vectors(problem: Problem) -> Vectors:
    """Return vectors in which noise does little harm, from public numbers.

    Features are centred where they lie if they are spread evenly over the domain, and a feature of variance v there has
    the weight v^(-1/4): its share of the vectors' length is then balanced with the error that noise on it leads to.
    """
    mean, variance = problem.domain.even_moments(problem.d)
    units = problem.units[: problem.d]
    centre = np.rint(mean / units * STEPS).astype(int)
    relative = (variance / units**2) ** -0.25
    weights = np.maximum(np.rint(_WEIGHT_STEPS * relative / relative.min()), 1).astype(int)
    square = problem.domain.largest_square(centre.tolist(), weights.tolist(), STEPS) / STEPS**2
    constant, target = (max(1, round(math.sqrt(share * square))) for share in (_CONSTANT_SHARE, _TARGET_SHARE))
    if not problem.intercept and not centre.any():
        constant = 1  # nothing is put back
    return Vectors(problem, tuple(centre.tolist()), (constant, *weights.tolist(), target))


@dataclass(frozen=True, eq=False)
class SecondMoments(Sum):
    """The one release of a plan: the sum of aa' over the records' vectors, in integers, with noise."""

    plan: "StatisticsPlan"

    @property
    def problem(self) -> Problem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the records are read as."""
        return self.plan.problem

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of the noise on integers whose sensitivity is that of the vectors."""
        return (self.plan.price,)

    def draw(self, source: "Source") -> Draw:
        """Draw the noise, a symmetric matrix of Python's integers. Sees no records."""
        k = self.plan.vectors.size
        kind, shape = (Epsilon, Nuclear(k)) if self.plan.mechanism == WISHART else (Rho, Frobenius(k))
        noise = source.integers(mechanisms.of_matrices(kind), self.plan.scale / self.plan.step, shape.array, shape)
        return {"noise": noise.astype(object)}

    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sum over a few records, UNPROTECTED, before it is weighed."""
        vectors = self.encode(features[:, : self.plan.problem.d], targets)
        parts = [vectors[i : i + _ROWS_PER_DOUBLE] for i in range(0, len(vectors), _ROWS_PER_DOUBLE)]
        return np.sum([(part.T @ part).astype(np.int64) for part in parts], axis=0)

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the released integers before the noise: a symmetric matrix of Python's integers."""
        weights, shift = np.array(self.plan.weights, dtype=object), self.plan.shift
        return (super().read(records, draw).astype(object) * np.outer(weights, weights) + (1 << shift >> 1)) >> shift

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return records' vectors before they are weighed, UNPROTECTED: integers within 2^21, inside the domain.

        ``features`` are integers on the problem's grid. Every vector depends on its own record alone.
        """
        problem = self.plan.problem
        vectors = np.empty((len(targets), problem.d + 2))
        vectors[:, 0] = STEPS
        vectors[:, 1:-1] = features - np.array(self.plan.centre, dtype=float)
        vectors[:, -1] = levels.rounded(targets, problem.loss.targets.largest)
        return vectors

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return what is published: the noisy sum in units of 2^20 integers. The constant's square is public."""
        sums = added(reading, draw["noise"]).astype(float) * self.plan.step
        sums[0, 0] = float(self.plan.problem.n) * self.plan.weights[0] ** 2
        return sums


@dataclass(frozen=True, eq=False, repr=False)
class StatisticsPlan(Plan):
    """Noisy second moments of the vectors a = (1, features, target), decided: a model is then solved for.

    Everything that follows the noise is post-processing: the noisy matrix loses its negative eigenvalues, the features'
    part of it has its small eigenvalues e raised to √(e² + floor²), and the problem's ridge is added as it is. This
    replaces the released eigenvalue of AdaSSP (Wang 2018).

    Formal guarantee: vectors are ``weights x (1, u - centre, y)``, all public numbers but u and y, and are rounded to
    integers inside the declared domain; their largest squared length is ``Vectors.square``, R². Replacing one
    changes the sum of aa' by aa' - bb', of Frobenius norm √(|a|⁴ + |b|⁴ - 2 (a'b)²) <= √2 R² and of nuclear norm at
    most 2 R². "gaussian" adds a symmetric matrix with standard deviation ``scale`` on the diagonal and scale/√2 off it,
    which is √2 R²/scale-Gaussian-DP. "wishart" adds the difference of two Wishart matrices, which is R²/scale-DP
    (``Nuclear``). Sums are exact integers. Where they are rounded to coarser ones, each entry moves by at most one of
    those more, and that is counted.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    mechanism : str
        "gaussian" or "wishart".
    centre, weights : tuples of int
        As in ``Vectors``.
    scale : float
        Noise of the sum of aa', where a is in units of 2^20 integers.
    floor : float
        What small eigenvalues of the sum are raised to. It matters for the error, not for privacy.
    """

    reads = (SecondMoments,)
    method = "sufficient statistics"
    needs_besides = False

    problem: Problem
    budget: Budget
    mechanism: str
    centre: tuple[int, ...]
    weights: tuple[int, ...]
    scale: float
    floor: float

    def __post_init__(self) -> None:
        limits.require_moments(self.problem)
        require_squared(self.problem)
        validate.choice("mechanism", self.mechanism, (GAUSSIAN, WISHART))
        for name in ("scale", "floor"):
            validate.positive(name, getattr(self, name))
        super().__post_init__()

    @cached_property
    def vectors(self) -> Vectors:
        """What each record becomes."""
        return Vectors(self.problem, self.centre, self.weights)

    @property
    def shift(self) -> int:
        """Sums are released in multiples of 2^shift of their integers."""
        return shift_of(self.scale, self.vectors)

    @property
    def step(self) -> float:
        """Size of one released integer: a power of two."""
        return math.ldexp(1.0, self.shift) / STEPS**2

    @property
    def sensitivity(self) -> float:
        """How far one record moves the released integers: in the nuclear norm for "wishart", else in Frobenius's."""
        return released_sensitivity(self.vectors, self.mechanism, self.shift)

    @cached_property
    def price(self) -> Cost:
        """The cost: epsilon of Wishart noise, mu of Gaussian noise; rounded up."""
        ratio = up(self.sensitivity / (self.scale / self.step))
        return Epsilon(ratio / 2) if self.mechanism == WISHART else Mu(ratio)

    @property
    def cost(self) -> float:
        """The cost as a number."""
        return self.price.amount

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        return self.budget.of(self.price.repeated(repetitions))

    @property
    def largest_sum(self) -> float:
        """No eigenvalue of the sums is larger: n times the longest vector's square, in units of 2^20 integers."""
        return self.problem.n * (self.vectors.square / STEPS**2)

    @property
    def radius(self) -> float:
        """How far from 0 the model may lie: F(0) bounds ridge/2 |x|². Infinite without a ridge."""
        return math.sqrt(2 * self.problem.start_gap / self.problem.ridge) if self.problem.ridge > 0 else math.inf

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the diagonal of the sum; that off it is 1/√2 of it."""
        return deviation(self.mechanism, self.scale, self.vectors.size)

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        return [Charge("second moments", self.price, self.scale, self.mechanism)]

    def conversation(self) -> Conversation:
        """Publish the model, and the noisy sums over (1, features, target) in real units."""
        noisy = yield SecondMoments(self)
        return Published(solved(self, noisy)[None, :], {"moments": uncentred(self, noisy)})

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """Shape of the noisy moments."""
        return {"moments": (self.vectors.size, self.vectors.size)}

    def intervals(
        self,
        path: np.ndarray,
        extras: dict[str, np.ndarray],
        draw: Callable[..., np.ndarray],
        generator: Generator,
        **asked: Any,
    ) -> Intervals:
        """Return intervals for the minimum over these records, from the moments and the law of their noise.

        See ``Run.intervals``, and ``proved_widths`` for the proof.
        """
        reason = None
        if self.problem.ridge <= 0:
            reason = "without a ridge noisy moments do not tell how far the minimum is. Declare a ridge"
        elif self.vectors.size > _LARGEST_NORM:
            reason = f"the norm of noise on more than {_LARGEST_NORM} rows takes too long to draw. Use fewer columns"
        elif "moments" not in extras:
            reason = "they need the released moments, which a model's file of before has not. Ask the run itself"
        if reason is not None:
            raise ValueError(f"there are no intervals: {reason}, or use method='objective', with intervals=0.95.")
        d, moments = self.problem.dimension, extras["moments"]
        released = Released(
            x=path[-1],
            n=self.problem.n,
            ridge=self.problem.ridge,
            tilts=lambda _, count: np.zeros((count, d)),
            output_scale=0.0,
            slack=0.0,
            likelihood=False,
            bound=partial(proved_widths, self, path[-1], moments),
        )
        return intervals_for(self.problem, released, generator, basis=_BASIS, **asked)

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.problem.ridge),
            "Published": "noisy second moments of the centred, weighed records, and the model that is solved from them",
            "Solver": f"small eigenvalues of the sums are raised to about {self.floor:.3g}, in the noise's units",
        }

    def worth(self) -> Utility:
        """Return what the model is expected to be worth; nothing is proved.

        The gradient at the minimum is off by Nθ, for noise N on the moments and the residual's coefficients θ, the
        square of whose length is taken to be twice the target's; E Nθθ'N is about deviation²/2 |θ|². Small eigenvalues
        are raised to the floor, which costs bias and makes noise count less. Never more than the model 0.
        """
        typical, n = Typical(self.problem), self.problem.n
        units, slopes = self.vectors.model_units, self.vectors.slopes
        length = 2 * (self.problem.loss.targets.largest / self.vectors.weights[-1]) ** 2
        scale = (self.deviation / n) ** 2 / 2 * length
        constant = slopes[0]
        own = np.sum(slopes[1:] ** 2, axis=0)
        power = typical.power(
            scale * (own + constant**2) / units**2,
            lambda vector: scale * float(own @ (vector / units) ** 2 + (constant @ (vector / units)) ** 2),
        )
        floor = self.floor / n * typical.mean(units**-2.0)  # it is one of weighed coordinates
        raised = np.hypot(typical.curvature, floor) - typical.curvature
        return typical.utility(typical.raised(power, raised), None)


def proved_widths(
    plan: StatisticsPlan, x: np.ndarray, moments: np.ndarray, generator: Generator, directions: np.ndarray, level: float
) -> np.ndarray:
    """Return half-widths that hold for all directions c together with a probability of at least the level.

    The moments tell the gradient g of F at x, and H, which is constant, with noise: x - x0 = H⁻¹(g - e). Sums of the
    vectors a have noise N, and g has e = G N t/n, where a't is a record's residual at x and G turns sums over a into
    gradients. x depends on N, so that only |N| is used: |e| <= |G| |N| |t|/n, and H is at least the released one less
    |G|² |N|/n. It is at least the ridge, too, and at least any mean L of both; then |c'H⁻¹v|² <= c'L⁻¹c v'L⁻¹v.
    """
    problem, vectors = plan.problem, plan.vectors
    n, ridge, constants = problem.n, problem.ridge, int(problem.intercept)
    rows = np.append(np.arange(1, problem.d + 1), np.zeros(constants, dtype=int))
    residual = np.concatenate([x[problem.d :] if constants else np.zeros(1), x[: problem.d], [-1.0]])
    gradient = moments[rows] @ residual / n + ridge * x
    turned = vectors.slopes.T / vectors.model_units[:, None]
    weighed = vectors.slopes @ (x / vectors.model_units)
    weighed[-1] -= problem.loss.targets.largest / plan.weights[-1]
    most, length = _norm(plan, generator, 1 - level) / n, float(np.linalg.norm(turned, 2))
    lowered = moments[np.ix_(rows, rows)] / n - length**2 * most * np.eye(len(rows))
    least = float(np.linalg.eigvalsh(lowered)[0])
    share = 1.0 if least >= 0 else min(1.0, -ridge / (2 * least))
    values, parts = np.linalg.eigh(ridge * np.eye(len(rows)) + share * lowered)
    values = np.maximum(values, ridge * (1.0 if least >= 0 else 0.5))
    size = np.linalg.norm((parts.T @ gradient) / np.sqrt(values)) + length * most * np.linalg.norm(weighed) / np.sqrt(
        values[0]
    )
    return np.linalg.norm((directions @ parts) / np.sqrt(values), axis=1) * size


def _norm(plan: StatisticsPlan, generator: Generator, beta: float) -> float:
    """Return what the norm of the noise on the sums exceeds with a probability of at most beta.

    The constant's square is public, and has none. Rounding of the sums is far below a millionth of the noise.
    """
    k, norms = plan.vectors.size, []
    for _ in range(_NORMS // _AT_ONCE):
        drawn = symmetric(plan.mechanism, k, generator, _AT_ONCE)
        drawn[:, 0, 0] = 0.0
        norms.append(np.max(np.abs(np.linalg.eigvalsh(drawn)[:, [0, -1]]), axis=1))
    return 1.000001 * plan.scale * float(upper(np.concatenate(norms), beta))


def solved(plan: StatisticsPlan, noisy: np.ndarray) -> np.ndarray:
    """Return the model for noisy sums: post-processing.

    Sums of aa' have no negative eigenvalues, and none above n times the longest vector's square, so what is outside is
    noise: it is taken off. Small ones of the features' part are raised to the floor, as noise is what makes them so
    small. A model that is longer than F(0) and the ridge allow, and so worse than 0, is shortened to that length.
    Whatever finite numbers were released, the model is finite.
    """
    possible = definite(noisy, 0.0, plan.largest_sum).matrix
    slopes, units = plan.vectors.slopes, plan.vectors.model_units
    target = np.zeros(len(noisy))
    target[-1] = plan.problem.loss.targets.largest / plan.weights[-1]
    curvature = definite(slopes.T @ possible @ slopes, 0.0)
    raised = Definite(np.hypot(curvature.values, plan.floor), curvature.vectors).matrix
    ridge = np.diag(plan.problem.n * plan.problem.ridge * units**2)
    model = definite(raised + ridge, plan.floor).solved(slopes.T @ (possible @ target))
    return held(units * model, plan.radius)


def uncentred(plan: StatisticsPlan, noisy: np.ndarray) -> np.ndarray:
    """Return noisy sums of the products of 1, the features and the target, in their own units: post-processing."""
    problem, vectors = plan.problem, plan.vectors
    d = problem.d
    back = np.diag(
        np.concatenate([[1.0], problem.units[:d], [problem.loss.targets.largest]]) / np.array(vectors.weights)
    )
    back[1:-1, 0] = problem.units[:d] * np.array(plan.centre) / STEPS / vectors.weights[0]
    return back @ noisy @ back.T


def plan_statistics(problem: Problem, budget: Budget, *, mechanism: str = "auto") -> StatisticsPlan:
    """Plan the release of least squares' sufficient statistics.

    A budget in epsilon takes Wishart noise, which is pure. Under (epsilon, delta) "auto" takes the noise whose
    variance is smaller: Gaussian, but for few features.
    """
    limits.require_moments(problem)
    require_squared(problem)
    validate.choice("mechanism", mechanism, ("auto", GAUSSIAN, WISHART))
    vectors = chosen_vectors(problem)
    kinds = tuple(kind.either(WISHART, GAUSSIAN) for kind in budget.kinds) if mechanism == "auto" else (mechanism,)
    scales = {kind: _scale(vectors, budget, kind) for kind in kinds}
    best = min(kinds, key=lambda kind: deviation(kind, scales[kind], vectors.size))
    norm = deviation(best, scales[best], vectors.size) * math.sqrt(2 * vectors.size)
    return StatisticsPlan(
        problem, budget, best, vectors.centre, vectors.weights, scales[best], floor=_FLOOR_SHARE * norm
    )


def require_squared(problem: Problem) -> None:
    """Raise unless the problem is least squares."""
    if not problem.loss.has_statistics:
        raise ValueError(
            f"sufficient statistics are those of Squared, got {type(problem.loss).__name__}. "
            "Use method='objective' or method='output'."
        )
    if problem.clip is not None:
        raise ValueError(f"clip is for gradients, which are not taken here. Leave it out, got {problem.clip!r}.")
    limits.require_units(problem)


def deviation(mechanism: str, scale: float, size: int) -> float:
    """Return the diagonal's standard deviation: 2c √(k + 1) for the difference of two Wishart matrices."""
    return 2 * scale * math.sqrt(size + 1) if mechanism == WISHART else scale


def shift_of(scale: float, vectors: Vectors) -> int:
    """Return by how many bits the sums' integers are coarsened, for noise of this scale.

    Sums of all records then fit 62 bits: noise is known modulo 2^64, and is added modulo 2^64.
    """
    largest = vectors.problem.n * vectors.square
    return max(0, math.frexp(scale * STEPS**2)[1] - _NOISE_BITS, largest.bit_length() - _SUM_BITS)


def released_sensitivity(vectors: Vectors, mechanism: str, shift: int) -> float:
    """Return the norm of the change of released integers when a record is replaced, rounded up.

    Rounding moves each of the k² entries of a change by less than 1: by k in Frobenius's norm, k^(3/2) in the nuclear.
    """
    square, k = float(vectors.square) / 2.0**shift, vectors.size
    cells = 0.0 if shift == 0 else float(k)
    if mechanism == WISHART:
        return up(2 * square + cells * math.sqrt(k))
    return up(math.sqrt(2) * square + cells)


def _scale(vectors: Vectors, budget: Budget, mechanism: str) -> float:
    """Return the scale that spends the budget."""
    if not (capacity := budget.capacity(Epsilon if mechanism == WISHART else Mu)):
        raise ValueError(f"{budget!r} does not cover Gaussian noise. Use mechanism='auto', or an Approximate budget.")
    cost = down(capacity, 1e-9) * (2 if mechanism == WISHART else 1)
    rough = released_sensitivity(vectors, mechanism, 0) / STEPS**2 / cost
    shift = shift_of(rough, vectors) + 1  # no less than that of the scale itself, which its own rounding enters
    scale = up(released_sensitivity(vectors, mechanism, shift) * math.ldexp(1.0, shift) / STEPS**2 / cost)
    if shift_of(scale, vectors) > shift:  # the rounding to coarser integers alone costs more than the budget
        raise ValueError(f"{budget} is too small: its noise does not fit the released integers. Use a larger budget.")
    return scale
