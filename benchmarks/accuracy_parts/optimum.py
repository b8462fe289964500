"""The objective and its exact minimiser, by Newton's method: the yardstick, NOT private."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

import epsteps as es
from epsteps.auditing.experiments import minimiser

TOLERANCE = 1e-12  # of the gradient's norm


@dataclass(frozen=True, eq=False)
class Objective:
    """F(x) = mean loss + ridge/2 |x|² on given records."""

    loss: es.Logistic | es.Squared
    ridge: float
    X: np.ndarray
    y: np.ndarray

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return F at x, or at each column."""
        targets = self.y if x.ndim == 1 else self.y[:, None]
        return self.loss.total(self.X @ x, targets) / len(self.y) + self.ridge / 2 * np.sum(x**2, axis=0)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient at x."""
        return self.X.T @ self.loss.derivative(self.X @ x, self.y) / len(self.y) + self.ridge * x

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the matrix of second derivatives at x."""
        weights = np.ones(len(self.y))
        if isinstance(self.loss, es.Logistic):
            weights = 0.25 / np.cosh(0.5 * np.clip(self.X @ x, -600, 600)) ** 2
        return (self.X * (weights / len(self.y))[:, None]).T @ self.X + self.ridge * np.eye(self.X.shape[1])

    @cached_property
    def minimiser(self) -> np.ndarray:
        """The x with a gradient of norm at most 1e-12."""
        x = np.zeros(self.X.shape[1])
        for _ in range(100):
            gradient = self.gradient(x)
            if np.linalg.norm(gradient) <= TOLERANCE:
                return x
            step = np.linalg.solve(self.hessian(x), gradient)
            x = x - self._length(x, step, float(gradient @ step)) * step
        raise RuntimeError(f"Newton's method did not converge: |x| = {np.linalg.norm(x):.1e} after 100 steps.")

    def _length(self, x: np.ndarray, step: np.ndarray, decrement: float) -> float:
        """Return the longest of 1, 1/2, 1/4, ... that decreases F enough; near the minimum, where F rounds, 1."""
        length, here = 1.0, self.value(x)
        while decrement > 1e-9 and self.value(x - length * step) > here - 0.25 * length * decrement:
            length /= 2
        return length

    @cached_property
    def lowest(self) -> float:
        """F at the minimiser."""
        return float(self.value(self.minimiser))

    def excess(self, x: np.ndarray) -> np.ndarray:
        """Return F(x) - F* for each column."""
        return self.value(x) - self.lowest


@dataclass(frozen=True, eq=False)
class SoftmaxObjective:
    """The same for softmax loss, by the library's own floats and Newton steps."""

    rows: es.Rows

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the matrix of second derivatives at x."""
        return self.rows.hessian(x)

    @cached_property
    def minimiser(self) -> np.ndarray:
        """The x where F is least."""
        return minimiser(self.rows)

    @cached_property
    def lowest(self) -> float:
        """F at the minimiser."""
        return float(self.rows.value(self.minimiser))

    def excess(self, x: np.ndarray) -> np.ndarray:
        """Return F(x) - F* for each column."""
        return self.rows.value(x) - self.lowest
