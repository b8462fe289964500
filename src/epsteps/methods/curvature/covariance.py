"""The covariance of the columns: how records are made comparable, what noise their second moment gets, what it says.

Everything here sees released numbers and public ones. A matrix with noise may have no inverse, or a negative one. One
whose eigenvalues are held between public bounds, which those of the true matrix keep, always has; and holding them
moves it nearer to the true one. Off the diagonal it is shrunk where noise dominates.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from epsteps.budgets import Cost, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.problem.domain import Columns, Domain
from epsteps.problem.losses import Logistic
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.sampling import FULL


@dataclass(frozen=True)
class Statistic:
    """A mean over records of vectors in ``domain``, released with noise: what noise, what it costs, how large it is.

    The vectors are those of a problem whose records they are, with slopes of at most 1: sensitivities, bodies and
    mechanisms are that problem's.
    """

    problem: Problem
    mechanism: Mechanism
    cost: float

    @property
    def scale(self) -> float:
        """The scale of the noise on the sum."""
        sensitivity = self.problem.sensitivity(self.mechanism.norm)
        return up(float(self.mechanism.scales(sensitivity, np.array(self.cost), FULL)))

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviation of the noise on each entry of the mean."""
        covariance, units = self.mechanism.covariance(self.problem)
        return np.sqrt(covariance.variances) * units * self.scale / self.problem.n


def statistics_of(columns: Columns, n: int, kind: type[Cost], cost: float) -> tuple[Statistic, ...]:
    """Return the releases of the means, and of the squares where columns are numeric, for this cost together.

    Noise of a norm grows with the number of entries, and shares in proportion to it leave all of them equally exact.
    """
    numeric = len(columns.numeric)
    parts = [(columns.domain, columns.d), (columns.squares, numeric)][: 1 + bool(numeric)]
    total = columns.d + numeric
    return tuple(_statistic(domain, n, d, kind, cost * d / total) for domain, d in parts)


def _statistic(domain: Domain, n: int, d: int, kind: type[Cost], cost: float) -> Statistic:
    problem = Problem(Logistic(), domain, ridge=0.0, n=n, d=d)
    return Statistic(problem, mechanisms.smallest(problem, kind), cost)


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and variances of the columns in their own units, and the standard deviations of the noise in them."""

    mean: np.ndarray
    variance: np.ndarray
    mean_noise: np.ndarray
    variance_noise: np.ndarray


def decode_moments(columns: Columns, released: tuple[np.ndarray, ...], noise: tuple[np.ndarray, ...]) -> Moments:
    """Return what released means (and squares) say, held in their ranges.

    A column of a category has the variance p (1 - p). None is believed to vary less than half of the noise in it.
    """
    mean, mean_noise = np.clip(released[0], -1.0, 1.0), noise[0]
    for start, stop in columns.categories:
        mean[start:stop] = np.clip(mean[start:stop], 0.0, 1.0)
    variance, variance_noise = mean * (1 - mean), np.array(mean_noise)
    numeric = columns.numeric
    if len(numeric):
        square, square_noise = (released[1] + columns.offset) / columns.factor, noise[1] / columns.factor
        variance[numeric] = np.clip(square - mean[numeric] ** 2, 0.0, 1.0)
        variance_noise[numeric] = np.hypot(square_noise, 2 * np.abs(mean[numeric]) * mean_noise[numeric])
    variance = np.maximum(variance, variance_noise / 2)
    half = columns.half
    return Moments(columns.centre + half * mean, half**2 * variance, half * mean_noise, half**2 * variance_noise)


# The largest eigenvalue of a difference of two Wishart(k + 1, c) matrices is about this many times k c: the right end
# of the free convolution of a Marchenko-Pastur law of ratio 1 with its mirror image.
_WISHART_EDGE = 3.33

# The longest record whose second moment is released is this many steps: 2^20 numbers' products of them add up to less
# than 2^53, which doubles hold.
MATRIX_STEPS = 2**16
# And so many of them add up within 62 bits.
MATRIX_ROWS = 2**30
# A record may be so many times longer than the mean square before it is shortened: as much as the noise allows.
_SHORTEST, _LONGEST = 1.5, 5.0
# The relative error of the Hessian that is aimed at when records may be longer; up to which all columns are taken, or
# otherwise one by one.
_AIM, USABLE, _PARTIAL = 0.15, 0.75, 0.5
_LEAST_COLUMNS = 3
# A constant coordinate, whose products with the others are their means, has this share of the squared length.
CONSTANT = 1 / 3
# Of what shortened records lose of a column's variance, up to this many times what is left is made up for.
_LARGEST_CORRECTION = 4.0
# Eigenvalues are not believed below this share of the noise's largest, and grow by what exceeds _TOLERATED of it.
_FLOOR, _TOLERATED = 0.5, 0.1
# Columns without a released covariance count as if they varied more: smaller steps, where little is known.
_CAUTION = 4.0


@dataclass(frozen=True)
class MatrixNoise:
    """Symmetric noise on a mean of outer products of k numbers: ``scale`` is its parameter for the mean.

    For pure privacy it is c of W - W', two Wishart(k + 1, c I) matrices; else the standard deviation on the diagonal of
    a Gaussian matrix, √2 times that off the diagonal.
    """

    k: int
    scale: float
    off: float
    edge: float

    @property
    def diagonal(self) -> float:
        """Standard deviation of a diagonal entry."""
        return math.sqrt(2) * self.off


def matrix_noise(kind: type[Cost], k: int, length: float, n: int, cost: float) -> MatrixNoise:
    """Return the noise for a mean of n outer products of vectors whose squared length is at most ``length``.

    Formal guarantee: replacing a vector moves the sum by at most 2 length in the nuclear norm and √2 length in
    Frobenius'. The density of W - W' changes by at most the nuclear norm over 2c, so that c = length/epsilon is
    epsilon-DP; Gaussian noise of Frobenius' geometry with standard deviation s is rho-zCDP with rho = length²/s².
    """
    if kind.is_pure:
        scale = length / (n * cost)
        return MatrixNoise(k, scale, math.sqrt(2 * (k + 1)) * scale, _WISHART_EDGE * k * scale)
    scale = length / (n * math.sqrt(cost))
    return MatrixNoise(k, scale, scale / math.sqrt(2), math.sqrt(2 * k) * scale)


@dataclass(frozen=True, eq=False)
class Whitening:
    """Each record is (u - mean) x weights on these columns, shortened to a squared length of at most ``length``.

    A constant coordinate √(length/3) is added, so that second moments hold means, too.
    """

    columns: np.ndarray
    mean: np.ndarray
    weights: np.ndarray
    length: float

    @property
    def constant(self) -> float:
        """The constant coordinate."""
        return float(np.sqrt(CONSTANT * self.length))

    @property
    def whole(self) -> float:
        """Largest squared length with the constant coordinate."""
        return (1 + CONSTANT) * self.length

    def noise(self, kind: type[Cost], n: int, cost: float) -> MatrixNoise:
        """Return the noise of the second moment's release."""
        return matrix_noise(kind, len(self.columns) + 1, self.whole, n, cost)


def spreads(variance: np.ndarray, curvature: float, ridge: float) -> np.ndarray:
    """Return the variances of the columns once they are divided by the Hessian's diagonal."""
    return variance / (curvature * variance + ridge)


def error_of(kind: type[Cost], k: int, spread: float, curvature: float, n: int, cost: float) -> float:
    """Return the predicted error of the Hessian, relative to itself, for k columns of this spread together."""
    length = (1 + CONSTANT) * _SHORTEST * spread
    return curvature * matrix_noise(kind, k, length, n, cost).edge


def whitening_of(
    moments: Moments, kind: type[Cost], curvature: float, ridge: float, n: int, cost: float
) -> Whitening | None:
    """Choose columns, weights and the longest record: all columns if noise allows, else those of the largest spread.

    None if not even three columns can be had at this cost, of so many.
    """
    spread = spreads(moments.variance, curvature, ridge)
    order = np.argsort(-spread, kind="stable")
    sums = np.cumsum(spread[order])
    errors = np.array([error_of(kind, k, float(total), curvature, n, cost) for k, total in enumerate(sums, start=1)])
    k = len(order) if errors[-1] <= USABLE else int(np.sum(errors <= _PARTIAL))
    if k < min(_LEAST_COLUMNS, len(order)):
        return None
    chosen = np.sort(order[:k])
    total = float(spread[chosen].sum())
    factor = np.clip(_SHORTEST * _AIM / error_of(kind, k, total, curvature, n, cost), _SHORTEST, _LONGEST)
    weights = 1 / np.sqrt(curvature * moments.variance[chosen] + ridge)
    return Whitening(chosen, moments.mean[chosen], weights, float(factor) * total)


@dataclass(frozen=True, eq=False)
class Definite:
    """A matrix by its eigenvalues, and the eigenvectors as columns."""

    values: np.ndarray
    vectors: np.ndarray

    @property
    def matrix(self) -> np.ndarray:
        """The matrix in full."""
        return (self.vectors * self.values) @ self.vectors.T

    @property
    def inverse(self) -> np.ndarray:
        """The inverse in full; finite where no eigenvalue is 0."""
        return (self.vectors / self.values) @ self.vectors.T

    def solved(self, b: np.ndarray) -> np.ndarray:
        """Return the solution of matrix @ x = b; finite where no eigenvalue is 0."""
        return self.vectors @ ((self.vectors.T @ b) / self.values)


@dataclass(frozen=True, eq=False)
class Factored:
    """A positive definite matrix by its Cholesky factor, as SciPy has it."""

    factor: tuple[np.ndarray, bool]

    @property
    def inverse(self) -> np.ndarray:
        """The inverse in full."""
        return self.solved(np.eye(len(self.factor[0])))

    def solved(self, b: np.ndarray) -> np.ndarray:
        """Return the solution of matrix @ x = b."""
        return cho_solve(self.factor, b, check_finite=False)


def steep(matrix: np.ndarray, least: float) -> Definite | Factored:
    """Return a finite symmetric matrix with its eigenvalues held above a positive number; most are so as they are.

    Two Cholesky factors, the first of which tells that, take a fraction of the time of eigenvalues.
    """
    if is_positive(matrix - least * np.eye(len(matrix))):
        with suppress(np.linalg.LinAlgError):
            return Factored(cho_factor(matrix, check_finite=False))
    return definite(matrix, least)


def is_positive(matrix: np.ndarray) -> bool:
    """Whether a symmetric matrix has a Cholesky factor: no eigenvalue of it is negative, to rounding."""
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def definite(matrix: np.ndarray, least: float, largest: float = np.inf) -> Definite:
    """Return a finite symmetric matrix with its eigenvalues held between these.

    LAPACK's fast algorithm may fail to converge, which would be an exception after the charge, and its plain one too.
    The row sums of absolute values then stand for them: as a diagonal they are no flatter than the matrix (Gershgorin).
    """
    for eigen in (np.linalg.eigh, partial(eigh, driver="ev", check_finite=False)):
        with suppress(np.linalg.LinAlgError):
            values, vectors = eigen(matrix)
            return Definite(np.clip(values, least, largest), vectors)
    return Definite(np.clip(np.abs(matrix).sum(axis=0), least, largest), np.eye(len(matrix)))


def held(x: np.ndarray, radius: float) -> np.ndarray:
    """Return x, shortened to this length if it is longer."""
    largest = float(np.max(np.abs(x), initial=0.0))
    if largest == 0.0:
        return x
    size = largest * float(np.linalg.norm(x / largest))  # of large numbers, too, without overflow
    return x if size <= radius else x / largest * (largest * (radius / size))


@dataclass(frozen=True, eq=False)
class Spread:
    """Mean and covariance of the columns."""

    mean: np.ndarray
    covariance: np.ndarray


def prior(columns: Columns, moments: Moments) -> np.ndarray:
    """Return the covariance that means and variances suggest: -p_i p_j within a category, 0 elsewhere."""
    covariance = np.diag(moments.variance)
    for start, stop in columns.categories:
        p = np.maximum(moments.mean[start:stop], 1e-4)
        p = p / max(p.sum(), 1.0)
        covariance[start:stop, start:stop] = np.diag(moments.variance[start:stop]) - np.outer(p, p) + np.diag(p * p)
    return covariance


def covariance(
    columns: Columns,
    moments: Moments,
    whitening: Whitening | None,
    released: np.ndarray | None,
    noise: MatrixNoise | None,
    curvature: float,
) -> Spread:
    """Return the mean and the covariance that the released numbers say together.

    ``released`` is the noisy second moment of the whitened records with their constant coordinate, and ``curvature``
    what the covariance will be multiplied by. Whatever was released, means stay within the domain, and variances within
    what it allows.
    """
    start = prior(columns, moments)
    if whitening is None or released is None or noise is None:
        return _possible(columns, moments.mean, start + np.diag((_CAUTION - 1) * moments.variance))
    mean, inner = _refined(moments, whitening, released, noise)
    chosen, weights = whitening.columns, whitening.weights
    scale = np.outer(weights, weights)
    block = _denoised(inner, start[np.ix_(chosen, chosen)] * scale, moments, whitening, noise, curvature) / scale
    others = np.setdiff1d(np.arange(columns.d), chosen)
    start[others, others] *= _CAUTION
    start[np.ix_(others, chosen)] = start[np.ix_(chosen, others)].T * 0
    start[np.ix_(chosen, others)] = 0.0
    start[np.ix_(chosen, chosen)] = block
    return _possible(columns, mean, start)


def _refined(
    moments: Moments, whitening: Whitening, released: np.ndarray, noise: MatrixNoise
) -> tuple[np.ndarray, np.ndarray]:
    """Return means that use the constant coordinate's products, and the second moment about them."""
    k, chosen = len(whitening.columns), whitening.columns
    old = np.square(whitening.weights * moments.mean_noise[chosen])
    new = np.square(noise.off / whitening.constant)
    shift = released[:k, k] / whitening.constant * old / (old + new)
    mean = moments.mean.copy()
    mean[chosen] += shift / whitening.weights
    return mean, released[:k, :k] - np.outer(shift, shift)


def _denoised(
    inner: np.ndarray,
    start: np.ndarray,
    moments: Moments,
    whitening: Whitening,
    noise: MatrixNoise,
    curvature: float,
) -> np.ndarray:
    """Return the whitened covariance: its off-diagonal part shrunk toward the prior as James and Stein do.

    Shortened records vary less than records do, and those columns by far the most whose tails are heavy. A Hessian that
    is too flat there leads every step too far, and more so each time. So each column is stretched to the variance that
    its squares, which are not shortened, say that it has; correlations stay as they were released.
    """
    k, weights, chosen = len(inner), whitening.weights, whitening.columns
    known, known_noise = np.diag(start), weights**2 * moments.variance_noise[chosen]
    own = np.diag(inner)
    lost = np.clip(known / np.maximum(own, noise.diagonal), 1.0, _LARGEST_CORRECTION)
    change = inner * np.sqrt(np.outer(lost, lost)) - start
    np.fill_diagonal(change, 0.0)
    power = noise.off**2 * float(np.sum(lost) ** 2 - np.sum(lost**2))
    kept = max(0.0, 1 - power / max(float(np.sum(change**2)), 1e-300))
    shrunk = start + kept * change
    share = (noise.diagonal / np.hypot(noise.diagonal, known_noise)) ** 2  # by precision: what is known gets this much
    diagonal = (1 - share) * np.maximum(own * lost, 0) + share * known
    np.fill_diagonal(shrunk, np.maximum(diagonal, 0.3 * np.minimum(known, known_noise)))
    error = curvature * noise.edge * kept * float(np.mean(lost))
    excess = max(0.0, error - _TOLERATED) / curvature
    return definite(shrunk, _FLOOR * error / curvature).matrix + excess * np.eye(k)


def _possible(columns: Columns, mean: np.ndarray, matrix: np.ndarray) -> Spread:
    """Return the mean within the domain's ranges, and the covariance with eigenvalues that it may have."""
    inside = np.clip(mean, columns.centre - columns.half, columns.centre + columns.half)
    return Spread(inside, definite(matrix, 0.0, columns.largest_variance).matrix)
