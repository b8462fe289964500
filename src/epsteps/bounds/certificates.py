"""Certificates: bounds for heavy ball and Nesterov from a small semidefinite program, checked in floating point.

With ξ = (x_t - x*, x_{t-1} - x*) and g the gradient where the method takes it, a step is ξ+ = A ξ + B (g + noise),
A = [[1 + beta, -beta], [1, 0]], B = [-alpha, 0] (the paper has +alpha: wrong). Let P ⪰ 0 and c, c0 >= 0 satisfy

    c0 X0 + c X - [A B]' P [A B] + rho² diag(P, 0) ⪰ 0

where, for v = (ξ, g) and every F in S(mu, L), v'X0 v <= 0 (the gradient is cocoercive) and, without noise,
F(x_{t+1}) - F* <= rho² (F(x_t) - F*) - v'X v. Then V_t = E[ξ'P ξ + c (F(x_t) - F*)] obeys
V_{t+1} <= rho² V_t + alpha² (P11 + c L/2) E|w_t|². After Hu & Lessard 2017 and Can et al. 2019.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from epsteps.bounds.prediction import Bound, NoBoundError
from epsteps.bounds.quadratics import MethodLike, method_name, rate
from epsteps.problem import validate
from epsteps.problem.validate import require

_MARGIN = 1e-9  # the program is solved with this much to spare, in units where L = 1
_ROUNDING = 64 * np.finfo(float).eps  # above the relative error of the matrices below and of their eigenvalues
_TINY = np.finfo(float).tiny
_RATES = 17  # rates tried at first, and again around the best of them


class Setting(NamedTuple):
    """A method with constant steps, and the class S(mu, L)."""

    method: str
    alpha: float
    beta: float
    mu: float
    L: float

    def scaled(self) -> "Setting":
        """Return the same setting in units where L = 1."""
        return Setting(self.method, self.alpha * self.L, self.beta, self.mu / self.L, 1.0)


def left_side(
    matrices: tuple[np.ndarray, np.ndarray, np.ndarray], rho: float, P: np.ndarray, c: float, c0: float
) -> np.ndarray:
    """Return c0 X0 + c X - [A B]' P [A B] + rho² diag(P, 0), which must be positive semidefinite."""
    X0, X, step = matrices
    left = c0 * X0 + c * X - step.T @ P @ step
    left[:2, :2] += rho**2 * P
    return left


def matrices_of(setting: Setting, rho: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X0, X and [A B] for v = (x_t - x*, x_{t-1} - x*, gradient)."""
    name, alpha, b, mu, L = setting
    drift, away = np.array([b, -b]), np.array([1 + b, -b])  # from x_t, from x*, to where Nesterov takes the gradient
    look = np.array([1.0, 0.0]) if name == "heavy_ball" else away
    X0 = np.block([[2 * mu * L * np.outer(look, look), -(mu + L) * look[:, None]], [-(mu + L) * look, 2]])
    descent = alpha * (2 - L * alpha)
    if name == "heavy_ball":
        across = -(1 - L * alpha) * drift
        X = np.block([[-L * np.outer(drift, drift), across[:, None]], [across, descent]])
        X += (1 - rho**2) * np.array([[mu, 0, -1], [0, 0, 0], [-1, 0, 0]])
    else:
        X = np.zeros((3, 3))
        for weight, u in ((rho**2, drift), (1 - rho**2, away)):
            X += weight * np.block([[mu * np.outer(u, u), -u[:, None]], [-u, descent]])
    return X0, X / 2, np.array([[1 + b, -b, -alpha], [1, 0, 0]])


@dataclass(frozen=True, eq=False)
class Certificate:
    """A solution of the matrix inequality: a proof that V_t falls by rho² per step, up to noise, on all of S(mu, L).

    Nothing rests on the solver that found it: ``slack`` recomputes the smallest eigenvalue of the left side, and
    ``holds`` whether everything that has to be positive is so by more than rounding.
    """

    rho: float
    P: np.ndarray
    c: float
    c0: float
    method: str
    alpha: float
    beta: float
    mu: float
    L: float

    def __post_init__(self) -> None:
        P = np.array(self.P, dtype=float)
        if P.shape != (2, 2) or P[0, 1] != P[1, 0]:
            raise ValueError(f"P must be a symmetric 2x2 matrix, got {self.P!r}.")
        P.flags.writeable = False
        object.__setattr__(self, "P", P)

    @property
    def slack(self) -> float:
        """The smallest eigenvalue of the left side of the inequality."""
        setting = Setting(self.method, self.alpha, self.beta, self.mu, self.L)
        return float(
            np.linalg.eigvalsh(left_side(matrices_of(setting, self.rho), self.rho, self.P, self.c, self.c0))[0]
        )

    @property
    def holds(self) -> bool:
        """Whether the certificate is a proof, rounding included (checked in units where L = 1)."""
        scaled = Setting(self.method, self.alpha, self.beta, self.mu, self.L).scaled()
        unit = Certificate(self.rho, self.P / self.L, self.c, self.c0 * self.L, *scaled)
        X0, X, step = matrices = matrices_of(scaled, self.rho)
        norm = np.linalg.norm
        size = unit.c0 * norm(X0) + unit.c * (1 + norm(X)) + (1 + norm(step) ** 2) * norm(unit.P)
        smallest = np.linalg.eigvalsh(left_side(matrices, self.rho, unit.P, unit.c, unit.c0))[0]
        (p11, p12), (_, p22) = unit.P
        signs = 0 < unit.rho < 1 and min(unit.c, unit.c0, p11, p22) >= 0
        psd = p11 * p22 * (1 - _ROUNDING) >= p12**2
        return bool(signs and psd and unit.den > _MARGIN * (unit.c + p11) and smallest >= _ROUNDING * size)

    @property
    def den(self) -> float:
        """How much V_t is at least, per unit of F(x_t) - F*: c + 2 |P|/(L P22), by the Schur complement."""
        (p11, p12), (_, p22) = self.P
        return float(self.c + 2 / self.L * (p11 - p12**2 / p22 if p22 > 0 else p11))

    @property
    def R(self) -> float:
        """The gain: what a step with noise power E|w|² adds to V/den, per unit of that power."""
        return float(self.alpha**2 * (self.P[0, 0] + self.c * self.L / 2) / self.den)

    def start_value(self, distance_squared: float, gap: float) -> float:
        """Return V_0 for |x_0 - x*|² and F(x_0) - F*, starting at rest (x_{-1} = x_0)."""
        return float(self.P.sum() * distance_squared + self.c * gap)

    def bound(self, T: int) -> Bound:
        """Return the bound of T steps: V/den contracts by rho² and gains 2R; at the start |x_0 - x*|² <= 2 E_0/mu."""
        start_factor = self.start_value(2 / self.mu, 1.0) / self.den
        return Bound(np.full(T, self.rho**2), np.full(T, 2 * self.R), start_factor)

    def error(self, T: int, trace: float, distance_squared: float, gap: float) -> float:
        """Bound E F(x_T) - F* under noise of power E|w_t|² <= trace in every step (upper, not tight).

        ``rho^(2T) V_0/den + (1 - rho^(2T))/(1 - rho²) R trace``. The paper has V_0/c, valid but looser, and a factor
        d too many in the noise term.
        """
        decay = self.rho ** (2 * T)
        start = self.start_value(distance_squared, gap) / self.den
        return decay * start + (1 - decay) / (1 - self.rho**2) * self.R * trace


def certificate(
    method: MethodLike, alpha: float, beta: float, mu: float, L: float, rho: float | None = None
) -> Certificate:
    """Return a certificate for heavy ball or Nesterov with constant steps: at rate rho, or at the smallest there is.

    Of all certificates at a rate it has the largest slack, for c + tr P/L = 1. The smallest rate is found by bisection
    above the rate on quadratics, which no certificate can beat. Raises ``NoBoundError`` where there is none: heavy ball
    has none at alpha = 1/L beyond beta ≈ ½, hence none at the paper's own settings, where its proposition is empty.
    (Exact up to a margin of 1e-9 in the inequality: about 1e-5 in rho for L/mu up to 10⁴.)

    >>> round(certificate("heavy_ball", alpha=1, beta=0.2, mu=0.1, L=1).rho, 4)
    0.876
    """
    setting = _checked(method, alpha, beta, mu, L)
    low = rate(setting.method, mu, L, alpha, beta)
    tried = 1 - 1e-6 * (1 - low) if rho is None else validate.number("rho", rho)
    best = _widest(setting, tried) if low < 1 and 0 < tried < 1 else None
    if best is None:
        values = f"{setting.method} with {alpha=}, {beta=}, {mu=}, {L=}" + (f" at {rho=}" if rho is not None else "")
        raise NoBoundError(f"no certificate exists for these parameters: {values}. Try a smaller alpha or beta.")
    while rho is None and best.rho - low > 1e-7 * (1 - low):
        middle = (low + best.rho) / 2
        attempt = _widest(setting, middle)
        low, best = (middle, best) if attempt is None else (low, attempt)
    return best


def best_certificate(
    method: MethodLike,
    alpha: float,
    beta: float,
    mu: float,
    L: float,
    T: int,
    trace: float,
    distance_squared: float,
    gap: float,
) -> Certificate:
    """Return the certificate with the smallest ``error(T, trace, distance_squared, gap)``.

    At a given rate that is a semidefinite program: scaled to den >= 1, a convex set since den is concave, the error is
    linear in P and c. Rates are scanned between the smallest certified one and 1.
    """
    setting = _checked(method, alpha, beta, mu, L)
    validate.integer("T", T)
    for name, value in (("trace", trace), ("distance_squared", distance_squared), ("gap", gap)):
        if validate.number(name, value) < 0:
            raise ValueError(f"{name} must not be negative, got {value!r}.")

    def cost(rho: float) -> np.ndarray:
        decay = rho ** (2 * T)
        start = decay * np.array([distance_squared, 2 * distance_squared, distance_squared, gap / L])
        return start + (1 - decay) / (1 - rho**2) * alpha**2 * trace * np.array([1, 0, 0, 0.5])

    return _best_over_rates(setting, cost, lambda candidate: candidate.error(T, trace, distance_squared, gap))


@lru_cache(maxsize=1024)
def lasting_certificate(method: str, alpha: float, beta: float, mu: float, L: float) -> Certificate:
    """Return the certificate with the smallest R/(1 - rho^(2/3))³.

    The error ends up in proportion to that when pure epsilon is split optimally over many steps; it depends neither on
    start and noise nor on T. Where these are known, ``best_certificate`` gives a smaller bound.
    """
    setting = _checked(method, alpha, beta, mu, L)
    cost = np.array([1, 0, 0, 0.5]) + 1e-3 * np.array([2, 4, 2, mu / L])  # R; among equals, a small start_factor
    return _best_over_rates(setting, lambda _: cost, lambda proof: proof.R / (1 - proof.rho ** (2 / 3)) ** 3)


def _checked(method: MethodLike, alpha: float, beta: float, mu: float, L: float) -> Setting:
    name = method_name(method, ("heavy_ball", "nesterov"))
    if validate.positive("mu", mu) > validate.positive("L", L):
        raise ValueError(f"mu must be at most L={L!r}, got {mu!r}.")
    return Setting(name, float(alpha), float(beta), float(mu), float(L))


def _best_over_rates(
    setting: Setting, cost: Callable[[float], np.ndarray], score: Callable[[Certificate], float]
) -> Certificate:
    """Minimise cost(rho)·(P11, P12, P22, c)/den at rates on a grid, refined twice; return the smallest score."""
    best = smallest = certificate(*setting)
    fractions = np.geomspace(1e-3, 1, _RATES)  # of 1 - rho
    for _ in range(3):
        for rho in (1 - fractions * (1 - smallest.rho)).tolist():
            candidate = _cheapest(setting, rho, cost(rho))
            best = best if candidate is None else min(best, candidate, key=score)
        centre, ratio = (1 - best.rho) / (1 - smallest.rho), fractions[1] / fractions[0]
        fractions = np.geomspace(centre / ratio, min(1, centre * ratio), _RATES)
    return best


def _widest(setting: Setting, rho: float) -> Certificate | None:
    """Return the certificate at rate rho with the largest slack, or None."""
    left, quadratic = _program(setting, rho)
    left[5] = -np.eye(3)  # the sixth variable is the slack
    return _minimise(setting, rho, [0, 0, 0, 0, 0, -1], [1, 0, 1, 1, 0, 0], left, quadratic)


def _cheapest(setting: Setting, rho: float, cost: np.ndarray) -> Certificate | None:
    """Return the certificate at rate rho with the smallest cost·(P11, P12, P22, c)/den, P in units of L, or None."""
    left, quadratic = _program(setting, rho)
    quadratic[5, 0, 0] = -1  # the sixth variable s is at most |P|/P22, where [[P11 - s, P12], [P12, P22]] is psd
    return _minimise(setting, rho, [*cost / max(np.max(cost), _TINY), 0, 0], [0, 0, 0, 1, 0, 2], left, quadratic)


def _program(setting: Setting, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the left side and P for each of six variables P11, P12, P22, c, c0 and a free one, with L = 1."""
    scaled = setting.scaled()
    left, quadratic, matrices = np.zeros((6, 3, 3)), np.zeros((6, 2, 2)), matrices_of(scaled, rho)
    for k, (p11, p12, p22, c, c0) in enumerate(np.eye(5)):
        quadratic[k] = [[p11, p12], [p12, p22]]
        left[k] = left_side(matrices, rho, quadratic[k], c, c0)
    return left, quadratic


def _minimise(setting: Setting, rho: float, cost, equal, left: np.ndarray, quadratic: np.ndarray) -> Certificate | None:
    """Minimise cost·z for equal·z = 1, left·z ⪰ 0, quadratic·z ⪰ 0, z >= 0 but for P; return z if it ``holds``."""
    clarabel = require("clarabel", "theory", "a certificate")
    rows, rhs = [np.array([equal]), -np.eye(6)[3:]], [np.ones(1), np.zeros(3)]
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(3)]
    for matrices in (left, quadratic):
        j, i = np.tril_indices(matrices.shape[1])  # the upper triangle, column by column
        rows.append(-(matrices[:, i, j] * np.where(i == j, 1, np.sqrt(2))).T)
        rhs.append(np.where(i == j, -_MARGIN, 0.0))
        cones.append(clarabel.PSDTriangleConeT(matrices.shape[1]))
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = _MARGIN
    nothing, conic = scipy.sparse.csc_matrix((6, 6)), scipy.sparse.csc_matrix(np.concatenate(rows))
    solver = clarabel.DefaultSolver(nothing, np.array(cost, float), conic, np.concatenate(rhs), cones, options)
    p11, p12, p22, c, c0, _ = solver.solve().x
    proof = Certificate(rho, setting.L * np.array([[p11, p12], [p12, p22]]), c, c0 / setting.L, *setting)
    return proof if proof.holds else None
