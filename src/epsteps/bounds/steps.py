"""First-order methods as data: four arrays that the one loop of the library executes.

With drift ``v = x - x_previous``, every method is

    x+ = x + beta v - alpha (∇F(x + gamma v) + noise)

gradient descent has beta = gamma = 0, Polyak's heavy ball gamma = 0, Nesterov's method gamma = beta, and
multistage Nesterov shrinks alpha from stage to stage and restarts (v = 0) at the first step of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from epsteps.problem import validate

_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Steps:
    """A method, step by step: step size, momentum, extrapolation, and whether the drift restarts at 0.

    >>> len(nesterov(mu=1, L=20, T=5))
    5
    """

    alpha: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    restart: np.ndarray

    def __post_init__(self) -> None:
        for name, kind in (("alpha", float), ("beta", float), ("gamma", float), ("restart", bool)):
            values = np.array(getattr(self, name), dtype=kind)
            if values.ndim != 1 or len(values) != np.size(self.alpha) or not np.all(np.isfinite(values)):
                raise ValueError(f"{name} must be a finite array with one entry per step.")
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        if len(self) < 1:
            raise ValueError("a method needs at least one step, got 0.")
        if np.any(self.alpha <= 0):
            raise ValueError(f"alpha must be positive, got {self.alpha.min()!r}.")
        if np.any(self.beta < 0) or np.any(self.beta >= 1):
            raise ValueError(f"beta must lie in [0, 1), got {self.beta.min()!r} to {self.beta.max()!r}.")

    def __len__(self) -> int:
        return len(self.alpha)

    def __iter__(self) -> Iterator[tuple[float, float, float, bool]]:
        return zip(self.alpha, self.beta, self.gamma, self.restart, strict=True)


class Method(Protocol):
    """A method: public constants in, ``Steps`` out."""

    __name__: str

    def __call__(self, mu: float, L: float, T: int, *, c: float = 1.0) -> Steps:
        """Return the T steps for an objective in S(mu, L), the step size scaled by c."""
        ...


def nesterov_momentum(alpha: np.ndarray | float, mu: float) -> np.ndarray:
    """Return Nesterov's momentum (1 - √(alpha mu))/(1 + √(alpha mu))."""
    root = np.sqrt(np.asarray(alpha) * mu)
    return (1 - root) / (1 + root)


def gd(mu: float, L: float, T: int, *, c: float = 1.0) -> Steps:
    """Gradient descent with step c/L, 0 < c < 2.

    >>> gd(mu=1, L=20, T=3).alpha
    array([0.05, 0.05, 0.05])
    """
    _check(mu, L, T, c)
    if c >= 2:
        raise ValueError(f"gradient descent diverges for c >= 2 (step c/L), got c={c!r}.")
    return _constant(T, c / L, 0.0, 0.0)


def heavy_ball(mu: float, L: float, T: int, *, c: float = 1.0) -> Steps:
    """Polyak's heavy ball with step alpha = c/L and momentum (1 - √(alpha mu))².

    That momentum gives the smallest rate on quadratics, 1 - √(alpha mu), for every alpha up to Polyak's own
    4/(√L + √mu)². (The paper uses Nesterov's momentum, which is not optimal here.)
    """
    _check(mu, L, T, c, strongly_convex="heavy_ball")
    alpha = c / L
    largest = 4 / (np.sqrt(L) + np.sqrt(mu)) ** 2
    if alpha > largest * (1 + _TOLERANCE):
        raise ValueError(
            f"heavy_ball needs a step c/L of at most 4/(√L + √mu)² = {largest:.6g}, got {alpha:.6g}. "
            f"Use c <= {largest * L:.6g}."
        )
    return _constant(T, alpha, (1 - np.sqrt(alpha * mu)) ** 2, 0.0)


def nesterov(mu: float, L: float, T: int, *, c: float = 1.0) -> Steps:
    """Nesterov's accelerated gradient with step alpha = c/L, 0 < c <= 1, for strongly convex objectives."""
    _check(mu, L, T, c, strongly_convex="nesterov", largest_c=1.0)
    alpha = c / L
    beta = float(nesterov_momentum(alpha, mu))
    return _constant(T, alpha, beta, beta)


def multistage(mu: float, L: float, T: int, *, c: float = 1.0) -> Steps:
    """Multistage accelerated gradient (Aybat et al. 2019), 0 < c <= 1: Nesterov in stages, each restarted.

    Stage 1 has ⌈√(κ/c) ln κ⌉ steps of size c/L, stage k >= 2 has 2^k ⌈√(κ/c) ln 8⌉ steps of size c/(4^k L).
    Lengths scale with c, without which the stages do not contract when c is small (the paper scales only the step).

    >>> int(np.flatnonzero(multistage(mu=1, L=20, T=300).restart)[0])
    14
    """
    _check(mu, L, T, c, strongly_convex="multistage", largest_c=1.0)
    stretch = np.sqrt(L / mu / c)
    alpha, restart = np.empty(T), np.zeros(T, dtype=bool)
    start, stage = 0, 1
    while start < T:
        length = max(1, int(np.ceil(stretch * np.log(L / mu))))
        if stage > 1:
            length = 2**stage * int(np.ceil(stretch * np.log(8)))
        alpha[start : start + length] = c / L / (4.0**stage if stage > 1 else 1.0)
        restart[start] = stage > 1
        start, stage = start + length, stage + 1
    beta = nesterov_momentum(alpha, mu)
    return Steps(alpha, beta, beta, restart)


def restarted_nesterov(mu: float, L: float, T: int, *, c: float = 1.0) -> Steps:
    """Nesterov's method for an unknown strong convexity of at least mu: restarts on a grid of guesses, 0 < c <= 1.

    Stage k assumes mu_k = max(mu, L/4^k) and lasts ⌈√(L/(c mu_k)) ln 8⌉ steps, the last stage until the end. The step
    size is c/L throughout. If the true constant is mu_j, stages up to j contract at its rate and later ones lose a
    constant factor; every step is paid for like any other.

    >>> np.flatnonzero(restarted_nesterov(mu=0.01, L=1, T=100).restart).tolist()
    [5, 14, 31]
    """
    _check(mu, L, T, c, strongly_convex="restarted_nesterov", largest_c=1.0)
    beta, restart = np.empty(T), np.zeros(T, dtype=bool)
    start, guess = 0, L
    while start < T:
        guess = max(mu, guess / 4)
        length = T if guess == mu else int(np.ceil(np.sqrt(L / (c * guess)) * np.log(8)))
        beta[start : start + length] = nesterov_momentum(c / L, guess)
        restart[start] = start > 0
        start += length
    return Steps(np.full(T, c / L), beta, beta, restart)


def _constant(T: int, alpha: float, beta: float, gamma: float) -> Steps:
    return Steps(np.full(T, alpha), np.full(T, beta), np.full(T, gamma), np.zeros(T, dtype=bool))


def _check(mu, L, T, c, *, strongly_convex: str = "", largest_c: float = np.inf) -> None:
    validate.integer("T", T)
    validate.positive("L", L)
    validate.positive("c", c)
    if validate.number("mu", mu) < 0 or mu > L:
        raise ValueError(f"mu must lie between 0 and L={L!r}, got {mu!r}.")
    if strongly_convex and mu == 0:
        raise ValueError(f"{strongly_convex} needs strong convexity, got mu={mu!r}. Use ridge > 0, or gd.")
    if c > largest_c:
        raise ValueError(f"{strongly_convex} needs a step of at most {largest_c:g}/L, got c={c!r} (step c/L).")
