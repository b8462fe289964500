"""How far a published model may be from the minimum without noise: measured, or proved.

Let g be the mean slope at the target x0, and H the mean Hessian between it and the published x. Then x - x0 equals
-H⁻¹(g + b/n) + o. The laws of the tilt b and of the noise o on the output are known; H is what has to be found out.
*Measured* distances draw it from what was released; *proved* ones need no more than that it is at least the ridge.
Where gradients were published, not minima, the noise e of one of them takes the place of the tilt: at a public point y
y - x0 equals H⁻¹(y's released gradient - e - g).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.random import Generator

from epsteps.budgets.mechanisms import Mechanism
from epsteps.plans.requests import Gradient
from epsteps.problem import levels
from epsteps.problem.problem import Problem

if TYPE_CHECKING:
    from numpy.random import Generator

# Draws of the tilt of a mean's gradient, one in each row, from a generator whose seed is public.
Tilts = Callable[[Generator, int], np.ndarray]


def noise_of(draw: Callable[..., np.ndarray], noise: Mechanism, problem: Problem, scale: float) -> Tilts:
    """Return draws of a mechanism's noise on a gradient of the problem, or on a point of its grid."""

    def drawn(_: Generator, count: int) -> np.ndarray:
        numbers = draw(noise, scale, (problem.dimension, count), noise.shape(problem))
        return (numbers * noise.units(problem)[:, None]).T

    return drawn


def ball_draws(scales: Iterable[float], dimension: int, generator: Generator, count: int) -> np.ndarray:
    """Return sums of noise of density ~ exp(-|z|_2/scale): a Gamma(D) radius times a uniform direction."""
    total = np.zeros((count, dimension))
    for scale in scales:
        directions = generator.standard_normal((count, dimension))
        radii = scale * generator.gamma(dimension, size=count)
        total += directions * (radii / np.linalg.norm(directions, axis=1))[:, None]
    return total


def symmetric(noise: str, k: int, generator: Generator, count: int) -> np.ndarray:
    """Return draws of the noise on a matrix of k rows, "wishart" or "gaussian", of scale 1: as ``Released`` has it."""
    if noise == "gaussian":
        whole = generator.standard_normal((count, k, k))
        above = np.triu(whole, 1) / np.sqrt(2)
        return above + above.transpose(0, 2, 1) + whole * np.eye(k)
    first, second = generator.standard_normal((2, count, k + 1, k))
    return first.transpose(0, 2, 1) @ first - second.transpose(0, 2, 1) @ second


@dataclass(frozen=True, eq=False)
class Released:
    """Published and public numbers, and draws of the noise in them.

    Draws are made with a generator whose seed is public, which is handed over: they are no protection, and never come
    from the source that protects.

    Parameters
    ----------
    x : (D,) array
        The published model.
    n : int
        Number of records.
    ridge : float
        Of the objective that was minimised: the plan's.
    tilts : function of a generator and a count
        Draws of b/n, the tilt of the mean: (count, D).
    output_scale : float
        Scale t of the noise on the output, whose density is proportional to exp(-|z|_2/t).
    slack : float
        How far from the minimum the solver may have stopped.
    likelihood : bool
        Whether the loss is minus a log-likelihood, so that its slopes have the covariance H - ridge if the model holds.
    T : (D, k) array, optional
        H(x) >= T A T' + ridge at the published x, A being the mean of the records' a a'. It is no equation where
        records were shortened, or count as 0. None where no curvature was bought.
    matrix : (k, k) array, optional
        A with its noise.
    noise : "wishart" or "gaussian"
        Law of that noise: the difference of two Wishart matrices of k + 1 degrees of freedom, times ``scale``; or
        independent Gaussian entries of deviation ``scale`` on the diagonal, and scale/√2 off it.
    scale : float
        Of the noise in the mean.
    largest : float
        Where nothing was released of it, no phi is larger than this: slopes have at most the covariance
        largest (H - ridge), if the model holds.
    earlier : tuple of functions like ``tilts``
        Draws of the tilts of other minima, whose mean with this one is the model: each times its weight, as ``tilts``.
    moves : function like ``tilts``, optional
        Draws of more noise on the output.
    gradient, shift : (D,) arrays, optional
        A gradient that was published in the place of a minimum, whose noise the tilts are, and x less its point.
    bound : function of a generator, directions and a level, optional
        Half-widths for the sample's minimum, where they are proved otherwise than by tilts and the ridge.
    dispersion : (array, array), optional
        A released phi, such that slopes have the covariance phi (H - ridge), and the scale of its Laplace noise
        (deviation of its Gaussian noise, if ``noise`` is "gaussian"). There is one; or one for each coefficient, whose
        variance is phi times what H says of it, its correlations with others being those that H says.
    """

    x: np.ndarray
    n: int
    ridge: float
    tilts: Tilts
    output_scale: float
    slack: float
    likelihood: bool
    T: np.ndarray | None = None
    matrix: np.ndarray | None = None
    noise: str = "wishart"
    scale: float = 0.0
    largest: float = 1.0
    earlier: tuple[Tilts, ...] = ()
    moves: Tilts | None = None
    gradient: np.ndarray | None = None
    shift: np.ndarray | None = None
    bound: Callable[[Generator, np.ndarray, float], np.ndarray] | None = None
    dispersion: tuple[np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        if self.noise not in ("wishart", "gaussian"):
            raise ValueError(f"noise must be 'wishart' or 'gaussian', got {self.noise!r}.")
        if not (self.ridge > 0 and self.n > 0):
            raise ValueError(f"ridge and n must be positive, got {self.ridge!r} and {self.n!r}.")
        if self.matrix is None or self.T is None:
            return
        k = len(self.matrix)
        if self.matrix.shape != (k, k) or self.T.shape != (self.dimension, k):
            raise ValueError(
                f"T {self.T.shape} and matrix {self.matrix.shape} do not fit {self.dimension} coefficients."
            )
        if not (np.all(np.isfinite(self.matrix)) and np.all(np.isfinite(self.T)) and 0 < self.scale < np.inf):
            raise ValueError("matrix, T and scale must be finite, and scale positive.")

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return len(self.x)

    @property
    def has_sampling(self) -> bool:
        """Whether it is known how far the sample's minimum is from the population's."""
        return self.likelihood or self.dispersion is not None

    def matrices(self, generator: Generator, count: int) -> np.ndarray:
        """Return draws of the noise in the matrix."""
        k = 0 if self.matrix is None else len(self.matrix)
        return self.scale * symmetric(self.noise, k, generator, count)

    @property
    def entry_variance(self) -> float:
        """Variance of the noise in an entry of the matrix off its diagonal; on it, it is twice that."""
        k = 0 if self.matrix is None else len(self.matrix)
        return self.scale**2 * (0.5 if self.noise == "gaussian" else 2 * (k + 1))

    def along(self, generator: Generator, count: int) -> np.ndarray:
        """Return draws of v'Ev, E the noise in the matrix and v a vector of length 1: all have the same law."""
        k = 0 if self.matrix is None else len(self.matrix)
        if self.noise == "gaussian":
            return self.scale * generator.standard_normal(count)
        first, second = generator.chisquare(k + 1, (2, count))
        return self.scale * (first - second)

    def outputs(self, generator: Generator, count: int) -> np.ndarray:
        """Return draws of the noise on the output."""
        drawn = ball_draws([self.output_scale], self.dimension, generator, count)
        return drawn if self.moves is None else drawn + self.moves(generator, count)

    def known(self, directions: np.ndarray) -> np.ndarray:
        """Return how far c'(x - x0) may be from 0 by what was published, whatever H: with a gradient g, c'H⁻¹g.

        2 ridge H⁻¹ - 1 has no eigenvalue beyond 1. So 2 ridge c'H⁻¹g is within |c||g| of c'g.
        """
        if self.gradient is None or self.shift is None:
            return np.zeros(len(directions))
        half, lengths = self.gradient / (2 * self.ridge), np.linalg.norm(directions, axis=1)
        return np.abs(directions @ (self.shift + half)) + lengths * np.linalg.norm(half)

    def dispersions(self, generator: Generator, count: int) -> np.ndarray:
        """Return what phi may be, a row each: released numbers less their noise, given that this is positive."""
        if self.dispersion is None:
            return np.full((count, 1), self.largest)
        law = self._dispersion_law
        return law.isf(generator.random((count, np.size(self.dispersion[0]))) * law.sf(0.0))

    def most_dispersion(self, beta: float) -> float:
        """Return what no phi exceeds but with a probability of at most beta."""
        if self.dispersion is None:
            return self.largest
        return max(float(np.max(self._dispersion_law.isf(beta / np.size(self.dispersion[0])))), 0.0)

    @property
    def _dispersion_law(self) -> Any:
        """The law of the released phi less its noise."""
        return (scipy.stats.norm if self.noise == "gaussian" else scipy.stats.laplace)(*(self.dispersion or (1.0, 0.0)))


# Distances are measured where a matrix with a direction of no curvature would pass with at most this probability.
GATE = 0.05
# How many distances and numbers are drawn; matrices are fewer, the fewer the larger they are.
_DISTANCES, _NUMBERS = 16_000, 20_000
# Matrices are drawn in so many rounds at most, half of what is wanted being enough.
_ROUNDS = 20
# Share of the failure probability of a proved distance that the released dispersion may fail with.
_DISPERSION = 0.1


def upper(draws: np.ndarray, beta: float) -> np.ndarray:
    """Return what one more draw of the same law exceeds with a probability of at most beta, along the first axis.

    The order statistic at ⌈(1 - beta)(m + 1)⌉ of m draws: exact for every m and every law, by exchangeability, the
    randomness of the draws included.
    """
    place = int(np.ceil((1 - beta) * (len(draws) + 1))) - 1
    if place >= len(draws):
        raise ValueError(f"{len(draws)} draws are too few for a probability of {beta:g}.")
    return np.partition(draws, place, axis=0)[place]


@dataclass(frozen=True, eq=False)
class Gate:
    """Whether the released matrix shows curvature in every direction, so that distances can be measured.

    If A has a direction v of length 1 with v'Av = a, the least eigenvalue of the released matrix A + E is at most
    a + v'Ev, and the law of v'Ev is known, the same for all v. So a matrix with a direction of no curvature passes with
    a probability of at most ``GATE``.

    Parameters
    ----------
    least : float
        The least eigenvalue of the released matrix.
    threshold : float
        What it must exceed.
    along : array
        Draws of v'Ev, sorted.
    """

    least: float
    threshold: float
    along: np.ndarray

    @property
    def is_open(self) -> bool:
        """Whether distances can be measured."""
        return self.least > self.threshold

    def chances(self, least: np.ndarray) -> np.ndarray:
        """Bound the probability to pass of matrices with these least eigenvalues; positive."""
        below = np.searchsorted(self.along, self.threshold - least)
        return np.maximum(len(self.along) - below, 1) / len(self.along)


def gate_of(released: Released, generator: "Generator") -> Gate:
    """Return the gate that a released matrix passes or not."""
    along = np.sort(released.along(generator, _NUMBERS))
    return Gate(float(np.linalg.eigvalsh(_bought(released)[1])[0]), float(upper(along, GATE)), along)


@dataclass(frozen=True, eq=False)
class Distances:
    """Draws of x - x0, a row each: what noise makes of it, and what sampling adds."""

    privacy: np.ndarray
    sampling: np.ndarray

    def half_widths(self, directions: np.ndarray, level: float, sampled: bool) -> np.ndarray:
        """Return the quantile of |c'(x - x0)| for each direction c, a row each."""
        distances = self.privacy + self.sampling if sampled else self.privacy
        return upper(np.abs(distances @ directions.T), 1 - level)


def measured(released: Released, gate: Gate, generator: "Generator") -> Distances | None:
    """Return draws of x - x0, where the gate is open; None where hardly any matrix that fits is positive.

    A is what the released matrix is expected to come from (``centre``), less noise, of which the law is known: matrices
    of that law are taken off, and those after which no positive matrix is left are drawn again. But distances are
    measured only where the gate is open, which favours matrices that noise has made larger: so A counts by the inverse
    of its chance to pass, which is its law given that it did.
    """
    T, A = _bought(released)[0], _matrices(released, gate, generator)
    if A is None:
        return None
    each, D = -(-_DISTANCES // len(A)), released.dimension
    count = len(A) * each
    tilts = released.tilts(generator, count).reshape(len(A), each, D)
    roots = T @ np.linalg.cholesky(A)
    scores = generator.standard_normal((len(A), each, A.shape[1])) @ roots.transpose(0, 2, 1)
    sides = np.concatenate([tilts, scores], axis=1).transpose(0, 2, 1)
    both = np.linalg.solve(T @ A @ T.T + released.ridge * np.eye(D), sides).transpose(0, 2, 1)
    privacy = both[:, :each].reshape(count, D) + released.outputs(generator, count)
    factors = np.sqrt(released.dispersions(generator, count) / released.n)
    return Distances(privacy, both[:, each:].reshape(count, D) * factors)


def centre(released: Released) -> np.ndarray:
    """Return the mean of A given the released matrix: that matrix, with its eigenvalues nearer to each other.

    Noise drives eigenvalues apart, and taking off noise that is drawn again drives them apart once more: from the
    released matrix itself the least ones would come out too small, and distances many times too large. Where no
    direction is preferred, the mean of A given A + E has the eigenvectors of A + E and eigenvalues
    l_i - 2 v sum_j 1/(l_i - l_j), v the variance of an entry off the diagonal (Bun, Allez, Bouchaud and Potters 2016;
    for many columns). Less new noise it has about the eigenvalues of A. Differences below √v are not resolved.
    """
    values, vectors = np.linalg.eigh(_bought(released)[1])
    apart, variance = values[:, None] - values, released.entry_variance
    closer = np.sort(values - 2 * variance * np.sum(apart / (apart**2 + variance), axis=1))
    return (vectors * closer) @ vectors.T


def _matrices(released: Released, gate: Gate, generator: "Generator") -> np.ndarray | None:
    """Return positive matrices that A may be, given that the gate is open; None if they are too rare to be drawn."""
    matrix = centre(released)
    wanted = _how_many(len(matrix))
    found, least = [], []
    for _ in range(_ROUNDS):
        drawn = matrix - released.matrices(generator, wanted)
        values = np.linalg.eigvalsh(drawn)[:, 0]
        found.append(drawn[values > 0])
        least.append(values[values > 0])
        if sum(map(len, found)) >= wanted // 2:
            return np.concatenate(found)[_resampled(1 / gate.chances(np.concatenate(least)), wanted, generator)]
    return None


def _resampled(weights: np.ndarray, count: int, generator: "Generator") -> np.ndarray:
    """Return places, each as often as its weight says, but for rounding up or down."""
    sums = np.cumsum(weights)
    places = np.searchsorted(sums, (np.arange(count) + generator.random()) * (sums[-1] / count))
    return np.minimum(places, len(weights) - 1)


def _how_many(k: int) -> int:
    return int(np.clip(20_000 // k, 400, 4000))


def _bought(released: Released) -> tuple[np.ndarray, np.ndarray]:
    """Return T and the released matrix, or raise."""
    if released.T is None or released.matrix is None:
        raise ValueError("no curvature was bought: there is nothing to measure. Plan with intervals=0.95.")
    return released.T, released.matrix


def proved(
    released: Released, generator: "Generator", directions: np.ndarray, level: float, sampled: bool
) -> np.ndarray:
    """Return half-widths that |c'(x - x0)| exceeds with a probability of at most 1 - level, for each direction c.

    For the sample's minimum it is a theorem, for every loss and whatever the records: |c'H⁻¹b| is at most
    (|c'b| + |c||b|)/(2 ridge) for every H >= ridge, and H may depend on b. Of the mean of several minima it is the sum
    of what holds for each. What sampling adds rests on two assumptions: the score is Gaussian, and its covariance is at
    most phi (H - ridge). Then c'H⁻¹ score has at most the variance phi |c|²/(4 n ridge).
    """
    if released.bound is not None:
        return released.bound(generator, directions, level)
    beta = failing = 1 - level
    lengths, bounds = np.linalg.norm(directions, axis=1), np.zeros((_DISTANCES, len(directions)))
    for draws in (released.tilts, *released.earlier):
        tilts = draws(generator, _DISTANCES)
        bounds += np.abs(tilts @ directions.T) + np.outer(np.linalg.norm(tilts, axis=1), lengths)
    bounds = bounds / (2 * released.ridge) + np.abs(released.outputs(generator, _DISTANCES) @ directions.T)
    if sampled:
        if released.dispersion is not None:
            failing = (1 - _DISPERSION) * beta
        phi = released.most_dispersion(_DISPERSION * beta)
        deviations = lengths * np.sqrt(phi / (4 * released.n * released.ridge))
        bounds += np.abs(generator.standard_normal(bounds.shape)) * deviations
    return upper(bounds, failing) + released.slack * lengths + released.known(directions)


# What intervals from a published gradient follow from, in words.
BASIS = "the last published gradient, the law of its noise and the ridge, and are wide"
# Slopes are off by this many of their steps at most, by rounding.
_ROUNDED = 2.0


def require_gradients(problem: Problem, is_full: bool = True) -> None:
    """Raise unless a gradient of the problem, of all records or not, tells how far its minimum is at most."""
    instead = "use method='objective', with intervals=0.95"
    reason = None
    if problem.clip is not None:
        reason = (
            f"clipped gradients are those of no function, which has no minimum to cover. Leave clip out, and {instead}"
        )
    elif not problem.loss.proved:
        reason = (
            f"nobody proved that this loss is convex, which all widths rest on. Use one of the library's, or {instead}"
        )
    elif not is_full:
        reason = f"each gradient is of a secret sample, and its error has no known law. Leave batch out, or {instead}"
    elif problem.ridge <= 0:
        reason = f"without a ridge a gradient does not tell how far the minimum is. Declare a ridge, or {instead}"
    if reason is not None:
        raise ValueError(f"there are no intervals: {reason}.")


def released_gradient(
    draw: Callable[..., np.ndarray], request: Gradient, gradient: np.ndarray, x: np.ndarray
) -> Released:
    """Return what intervals for a minimum are computed from: the model x, and a gradient as it was asked for.

    The gradient at y with noise e equals H (y - x0) + e, H the mean Hessian between y and the minimum x0. Rounding of
    the slopes adds at most so many steps of their bound, times the longest record.
    """
    problem, loss = request.problem, request.problem.loss
    step = float(np.max(request.bound)) / levels.STEPS
    return Released(
        x=x,
        n=problem.n,
        ridge=problem.ridge,
        tilts=noise_of(draw, request.mechanism, problem, float(np.max(request.scale)) / problem.n),
        output_scale=0.0,
        slack=_ROUNDED * step * loss.joint_slope(2) * problem.record_size(2) / problem.ridge,
        likelihood=loss.is_likelihood,
        gradient=gradient,
        shift=x - np.reshape(request.x, -1),
    )
