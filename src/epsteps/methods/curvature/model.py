"""A model of F for Gaussian records: its gradient and Hessian from the mean and the covariance alone.

For u ~ N(m, C) and v = u'x, Stein's lemma gives E[h(v) u] = E[h(v)] m + E[h'(v)] C x. The labels enter a gradient of
these losses only through a constant, which a released gradient supplies.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from epsteps.methods.curvature.covariance import Definite, Factored, held, is_positive, steep
from epsteps.problem.losses import Loss, Surrogate

_NODES, _WEIGHTS = hermegauss(41)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_STEPS, _HALVINGS = 30, 20
# A change that is smaller along the step than this share of the model's own is not believed.
_LEAST_CURVATURE = 0.1


def surrogate_of(loss: Loss) -> Surrogate:
    """Return what a model of F needs of a loss, or raise if the curvature method does not cover it."""
    if loss.surrogate is None:
        raise TypeError(
            f"the curvature method has a model for Logistic() and Squared(), got {loss!r}. "
            "Use a plan of steps, such as epsteps.plan(problem, budget)."
        )
    return loss.surrogate


def typical_curvature(loss: Loss) -> float:
    """Return the curvature of the loss at a typical margin: what a covariance is multiplied by in the Hessian."""
    return surrogate_of(loss).curvature


@dataclass(frozen=True, eq=False)
class Model:
    """F for Gaussian records of this mean and covariance, up to a linear function.

    ``correction`` is added to the Hessian: what released gradients say about it beyond that (``corrected``).
    ``largest`` is a public bound on F's curvature, and ``radius`` on how far from 0 its minimum lies. Whatever finite
    numbers were released, everything here is finite: the Hessian counts as no flatter than the ridge, points stay
    within twice the radius, and a correction that F could not show is not made.
    """

    loss: Loss
    mean: np.ndarray
    covariance: np.ndarray
    ridge: float
    correction: np.ndarray | float = 0.0
    radius: float = np.inf
    largest: float = np.inf

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient at x without the labels' part."""
        return self.derivatives(x)[0]

    def derivatives(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and Hessian at x."""
        m, spread = self.mean, self.covariance @ x
        extra = self.ridge * np.eye(len(x)) + self.correction
        slopes_at = surrogate_of(self.loss).slopes
        if slopes_at is None:
            hessian = self.covariance + np.outer(m, m) + extra
            return hessian @ x, hessian
        size = max(float(spread @ x), 1e-12)
        v = m @ x + np.sqrt(size) * _NODES
        slope, bend_at = slopes_at(v)
        weights = bend_at * _WEIGHTS
        flat, tilt, bend = weights.sum(), weights @ _NODES / np.sqrt(size), weights @ (_NODES**2 - 1) / size
        gradient = (slope @ _WEIGHTS) * m + flat * spread + extra @ x
        directions = np.stack([m, spread])
        core = np.array([[flat, tilt], [tilt, bend]])
        return gradient, flat * self.covariance + extra + directions.T @ (core @ directions)

    def curvature(self, x: np.ndarray) -> Definite | Factored:
        """Return the Hessian at x, nowhere flatter than the ridge, which F is not."""
        return steep(self.derivatives(x)[1], self.ridge)

    def noise_cost(self, x: np.ndarray, noise: np.ndarray) -> float:
        """Return how far above its minimum F is expected where a gradient at x with noise of this covariance leads."""
        return float(np.sum(self.curvature(x).inverse * noise)) / 2

    def minimum(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Minimise the model, corrected by a linear function so that it has this gradient at x.

        By Newton's method from x, with steps halved until the gradient shrinks. If it stops early the result is less
        accurate, and no less private.
        """
        own, hessian = self.derivatives(x)
        correction = gradient - own
        residual = gradient
        for _ in range(_STEPS):
            step, size = steep(hessian, self.ridge).solved(residual), np.linalg.norm(residual)
            for halving in range(_HALVINGS):
                trial = held(x - 0.5**halving * step, 2 * self.radius)
                own, curvature = self.derivatives(trial)
                if np.linalg.norm(own + correction) <= (1 - 0.1 * 0.5**halving) * size:
                    break
            else:
                return x
            x, hessian, residual = trial, curvature, own + correction
            if np.linalg.norm(residual) < 1e-12:
                break
        return x

    def corrected(self, before: np.ndarray, after: np.ndarray, change: np.ndarray, noise: np.ndarray) -> "Model":
        """Return a model whose gradient changes from one point to the other as released gradients did.

        By the formula of Broyden, Fletcher, Goldfarb and Shanno, for a change that is shrunk toward the model's own as
        James and Stein do: ``noise`` is a covariance that the noise in it rarely exceeds. Where the change is all
        noise, is one that no function of this curvature has, or leaves no positive Hessian, the model stays as it is.
        """
        step, own = after - before, self.gradient(after) - self.gradient(before)
        inverse = self.curvature(after).inverse
        surprise = change - own
        kept = max(0.0, 1 - float(np.sum(inverse * noise)) / max(float(surprise @ inverse @ surprise), 1e-300))
        seen = own + kept * surprise
        if not step @ seen > _LEAST_CURVATURE * (step @ own) > 0:
            return self
        if not (self._is_possible(step, seen) and self._is_possible(step, own)):
            return self
        update = np.outer(seen, seen) / (step @ seen) - np.outer(own, own) / (step @ own)
        if not is_positive(self.derivatives(after)[1] + update):
            return self
        return replace(self, correction=self.correction + update)

    def _is_possible(self, step: np.ndarray, change: np.ndarray) -> bool:
        """Whether a convex function of this largest curvature L can have it: |change|² <= L step'change (Nesterov)."""
        return bool(change @ change <= self.largest * (step @ change))
