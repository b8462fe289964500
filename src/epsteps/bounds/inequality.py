"""The matrix inequality behind a certificate, written down once: X0, X and the step of the method."""

from typing import NamedTuple

import numpy as np


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
