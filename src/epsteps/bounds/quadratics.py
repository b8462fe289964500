"""Quadratics: rates, stationary variances and the error itself, exactly, for any steps.

On F(x) = ½ (x - x*)'Q(x - x*) + F* every method is a linear recursion along each eigenvector of Q, eigenvalue lam:

    x+ = p1 x + p2 x_previous - alpha noise,   p1 = 1 + beta - alpha lam (1 + gamma),  p2 = alpha lam gamma - beta

(distances to x*; p1 = 1 - alpha lam, p2 = 0 at a restart). Nothing here is a bound unless its docstring says so.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.bounds.steps import Steps
from epsteps.problem import validate

MethodLike = str | Callable[..., Steps]
Spectrum = np.ndarray | Sequence[float]


def method_name(method: MethodLike, options: tuple[str, ...] = ("gd", "heavy_ball", "nesterov")) -> str:
    """Return the name of a method given as a function or by its name, if it is one of ``options``."""
    name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
    return validate.choice("method", name, options)


def rate(method: MethodLike, mu: float, L: float, alpha: float, beta: float = 0.0) -> float:
    """Return the linear rate on quadratics with spectrum in [mu, L]: |x_t - x*| falls like rate^t, or t rate^t.

    Exact: the spectral radius of the recursion. It is quasi-convex in the eigenvalue, so that the worst one is mu or L.
    At 1 or above the method does not converge. The paper (theorem on quadratic heavy ball) and its code give Nesterov's
    eigenvalues for heavy ball, a rate that is too small.

    >>> round(rate("heavy_ball", mu=1, L=25, alpha=1 / 9, beta=4 / 9), 10)
    0.6666666667
    """
    name = _check(method, alpha, beta)
    if not 0 <= validate.number("mu", mu) <= validate.number("L", L):
        raise ValueError(f"mu must lie between 0 and L={L!r}, got {mu!r}.")
    return float(np.max(_radius(name, np.array([mu, L], dtype=float), alpha, beta)))


def stationary_variance(
    method: MethodLike, lam: np.ndarray | float, alpha: float, beta: float, variance: float
) -> np.ndarray | float:
    """Return the variance of x along each eigenvalue lam after many steps, under noise of this variance per direction.

    Exact: the discrete Lyapunov equation, solved by hand. The stationary error is half the sum of lam times this; the
    paper's L times the sum of the variances is at least twice that. Refuses where the method does not converge.

    >>> round(stationary_variance("heavy_ball", 0.1, alpha=1, beta=0.5, variance=1), 8)
    10.34482759
    """
    name, lam = _check(method, alpha, beta), _eigenvalues("lam", lam)
    if np.any(lam == 0) or np.any(_radius(name, lam, alpha, beta) >= 1):
        raise ValueError(
            f"there is no stationary variance: {name} with {alpha=}, {beta=} does not converge along all of {lam=}."
        )
    keep = 1 - alpha * lam if name == "nesterov" else np.ones_like(lam)
    stretch = 2 + 2 * beta - alpha * lam * (1 + 2 * beta if name == "nesterov" else 1)
    result = alpha * variance * (1 + beta * keep) / ((1 - beta * keep) * lam * stretch)
    return result if result.ndim else float(result)


def exact_quadratic(
    steps: Steps, spectrum: Spectrum, counts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the error after all steps, exactly: transfer g (one per eigenvalue) and weights A (one per step).

    ``E F(x_T) - F* = ½ sum_i lam_i g_i² (x_0 - x*)_i² + ½ sum_t A_t var_t`` for a quadratic with this spectrum
    (eigenvalues with multiplicity), a start at rest (x_{-1} = x_0), and noise with mean 0 given the past and variance
    var_t in every coordinate (2 b_t² for Laplace noise of scale b_t). Proof: the recursion, unrolled backwards.
    ``counts`` are what squared distances along the eigenvectors count in the noise's weights, if not their eigenvalues.

    >>> g, A = exact_quadratic(Steps([0.5, 0.5], [0, 0], [0, 0], [False, False]), [1.0])
    >>> g.tolist(), A.tolist()
    ([0.25], [0.0625, 0.25])
    """
    lam = np.atleast_1d(_eigenvalues("spectrum", spectrum))
    first, second = coefficients(steps, lam)
    weights, counts = np.empty(len(steps)), lam if counts is None else counts
    r1, r2 = np.ones_like(lam), np.zeros_like(lam)
    for t in range(len(steps) - 1, -1, -1):
        weights[t] = np.sum(counts * (steps.alpha[t] * r1) ** 2)
        r1, r2 = r1 * first[t] + r2, r1 * second[t]
    return r1 + r2, weights


def exact_by_horizon(
    steps: Steps, spectrum: Spectrum, counts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``exact_quadratic`` of the first T steps for every T: transfers (T, eigenvalues) and weights (T, T).

    Row T-1 is for T steps; weights beyond the diagonal are 0. The responses to the start and to the noise of every step
    travel forward together, in O(T² eigenvalues) time and O(T (T + eigenvalues)) memory.
    """
    lam = np.atleast_1d(_eigenvalues("spectrum", spectrum))
    count, (first, second) = len(steps), coefficients(steps, lam)
    counts = lam if counts is None else counts
    transfers, weights = np.empty((count, len(lam))), np.zeros((count, count))
    start, start_before = np.ones_like(lam), np.ones_like(lam)
    now, before = np.zeros((2, count, len(lam)))  # row t: the response to a unit of noise in step t
    for t in range(count):
        start, start_before = first[t] * start + second[t] * start_before, start
        transfers[t] = start
        before[:t] *= second[t]
        before[:t] += first[t] * now[:t]
        before[t] = -steps.alpha[t]
        now, before = before, now
        weights[t, : t + 1] = now[: t + 1] ** 2 @ counts
    return transfers, weights


def impulse_response(first: np.ndarray, second: np.ndarray, count: int) -> np.ndarray:
    """Return h_0 = 1, h_1, ... of x+ = first x + second x_previous along each eigenvalue, one row each.

    By doubling: h_{s+m} = h_m h_s + second h_{m-1} h_{s-1}.

    >>> impulse_response(np.array([0.5]), np.array([0.25]), 4).ravel().tolist()
    [1.0, 0.5, 0.5, 0.375]
    """
    response = np.empty((max(count, 2), len(first)))
    response[0], response[1], known = 1.0, first, 2
    while known < count:
        m, more = known - 1, min(known - 1, count - known)
        response[known : known + more] = (
            response[m] * response[1 : more + 1] + second * response[m - 1] * response[:more]
        )
        known += more
    return response[:count]


def heavy_ball_quadratic(
    spectrum: Spectrum, alpha: float, beta: float, T: int, start_gap: float, variance: float
) -> float:
    """Bound E F(x_T) - F* of heavy ball on a quadratic (upper; the noise term is the limit for large T).

    ``(1 + (1 + rho) T)² rho^(2T) (F(x_0) - F*) + ½ sum_i lam_i Var_i``, rho the ``rate`` on the spectrum and Var_i the
    ``stationary_variance``, for rho < 1, x_{-1} = x_0 and noise with mean 0 and covariance ⪯ variance·I given the past.
    Proof: the impulse response h has |h_j| <= (j + 1) rho^j, and beta <= rho², so that |h_T - beta h_{T-1}| is at most
    (1 + (1 + rho) T) rho^T; and alpha² variance sum_{j<T} h_j² grows to Var_i. The paper has Nesterov's rho, a factor
    T in place of 1 + (1 + rho) T (too small from T = 1 on), and L sum_i Var_i for the noise.
    """
    lam = np.atleast_1d(_eigenvalues("spectrum", spectrum))
    validate.integer("T", T)
    rho = rate("heavy_ball", float(lam.min()), float(lam.max()), alpha, beta)
    if rho >= 1:
        raise ValueError(
            f"heavy ball does not converge on this spectrum: its rate is {rho:.6g} for alpha={alpha!r}, beta={beta!r}. "
            f"Use eigenvalues > 0 and alpha < 2 (1 + beta)/{lam.max():.6g}."
        )
    noise = float(np.sum(lam * stationary_variance("heavy_ball", lam, alpha, beta, variance)) / 2)
    return (1 + (1 + rho) * T) ** 2 * rho ** (2 * T) * start_gap + noise


@dataclass(frozen=True, eq=False)
class ExactError:
    """E F(x_T) - F* on quadratics with this spectrum, for a start whose gap has these shares along the eigenvectors.

    No bound but the error itself where the assumption holds; for other objectives a prediction, which has been closer
    to the truth than the theorems. Privacy never depends on it. A spectrum of k eigenvalues stands for any number of
    dimensions: noise power is spread evenly over it, and so is the gap of the start unless
    ``start_shares`` tell otherwise.
    """

    steps: Steps
    spectrum: np.ndarray
    start_shares: np.ndarray | None = None

    def __post_init__(self) -> None:
        spectrum = np.array(self.spectrum, dtype=float)
        if spectrum.ndim != 1 or len(spectrum) == 0 or not np.all(np.isfinite(spectrum)) or np.any(spectrum <= 0):
            raise ValueError("spectrum must be a sequence of positive eigenvalues.")
        object.__setattr__(self, "spectrum", spectrum)

    @cached_property
    def _shares(self) -> np.ndarray:
        shares = np.array(np.ones_like(self.spectrum) if self.start_shares is None else self.start_shares, dtype=float)
        valid = shares.shape == self.spectrum.shape and np.all(np.isfinite(shares)) and np.all(shares >= 0)
        if not valid or not shares.any():
            raise ValueError(f"start_shares must be {len(self.spectrum)} numbers, one per eigenvalue, none negative.")
        return shares / shares.sum()

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def _by_horizon(self) -> tuple[np.ndarray, np.ndarray]:
        transfers, weights = exact_by_horizon(self.steps, self.spectrum)
        return transfers**2 @ self._shares, weights / len(self.spectrum)

    @cached_property
    def _final(self) -> tuple[float, np.ndarray]:
        transfer, weights = exact_quadratic(self.steps, self.spectrum)
        return float(transfer**2 @ self._shares), weights / len(self.spectrum)

    @property
    def weights(self) -> np.ndarray:
        """What multiplies each step's half noise power after all steps."""
        return self._final[1]

    def error(self, start_gap: float, power: np.ndarray | float) -> float:
        """Return the error after all steps."""
        return float(self._final[0] * start_gap + np.sum(self.weights * power))

    def start_errors(self, start_gap: float) -> np.ndarray:
        """Return what is left of the start after T steps, for every T."""
        return self._by_horizon[0] * start_gap

    def weight_sums(self, exponent: float) -> np.ndarray:
        """Return ``sum_t weights_{T,t}**exponent``, for every T."""
        return np.sum(self._by_horizon[1] ** exponent, axis=1)

    def log_weight_rows(self) -> Iterator[np.ndarray]:
        """Yield the logarithms of the T weights, for T = 1, 2, ..."""
        for T, row in enumerate(self._by_horizon[1], start=1):
            yield np.log(np.maximum(row[:T], np.finfo(float).tiny))


def coefficients(steps: Steps, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return p1 and p2 of x+ = p1 x + p2 x_previous, each (steps, eigenvalues)."""
    beta = np.where(steps.restart, 0.0, steps.beta)[:, None]
    gamma = np.where(steps.restart, 0.0, steps.gamma)[:, None]
    slope = steps.alpha[:, None] * lam
    return 1 + beta - slope * (1 + gamma), slope * gamma - beta


def _radius(name: str, lam: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """Return the larger modulus of the roots of z² - trace z + product along each eigenvalue."""
    keep = 1 - alpha * lam
    nesterov = name == "nesterov"
    trace, product = ((1 + beta) * keep, beta * keep) if nesterov else (beta + keep, beta * np.ones_like(lam))
    root = np.sqrt((trace**2 - 4 * product).astype(complex))
    return np.maximum(abs(trace + root), abs(trace - root)) / 2


def _check(method: MethodLike, alpha: float, beta: float) -> str:
    name = method_name(method)
    validate.positive("alpha", alpha)
    if not 0 <= validate.number("beta", beta) < 1:
        raise ValueError(f"beta must lie in [0, 1), got {beta!r}.")
    if name == "gd" and beta != 0:
        raise ValueError(f"gradient descent has no momentum, got beta={beta!r}. Use beta=0, heavy_ball or nesterov.")
    return name


def _eigenvalues(name: str, values: Spectrum | float) -> np.ndarray:
    lam = np.asarray(values, dtype=float)
    if lam.size == 0 or lam.ndim > 1 or not np.all(np.isfinite(lam)) or np.any(lam < 0):
        raise ValueError(f"{name} must be finite eigenvalues >= 0, got {values!r}.")
    return lam
