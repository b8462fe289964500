"""A model of F for Gaussian records: its gradient and Hessian from the mean and the covariance alone.

For u ~ N(m, C) and v = u'x, Stein's lemma gives E[h(v) u] = E[h(v)] m + E[h'(v)] C x. The labels enter a gradient of
these losses only through a constant, which a released gradient supplies.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from epsteps.budgets import Cost
from epsteps.methods.curvature.covariance import (
    MATRIX_ROWS,
    MATRIX_STEPS,
    USABLE,
    Definite,
    Factored,
    Moments,
    Statistic,
    error_of,
    held,
    is_positive,
    spreads,
    steep,
)
from epsteps.problem.grid import STEPS
from epsteps.problem.limits import LARGEST_UNIT
from epsteps.problem.losses import Loss, Surrogate
from epsteps.problem.rounding import down

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
            "Use a plan of steps, such as epsteps.plan(problem, budget, epsteps.nesterov)."
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


# Shares of the curvature: as much as a relative error of _AIM takes, within limits. Where noise is too large for that,
# more of it if all columns are then usable, at _BARELY.
_AIM = 0.12
LEAST_SHARE, _MOST, _EXTENDED, _BARELY = 0.04, 0.10, 0.30, 0.7
# Shares of the gradients where only some columns have a known covariance.
_CAUTIOUS = (0.15, 0.3, 0.55)
_GAUSSIAN_STEPS = 4
# Points that units and the ridge allow have finite fourth powers from this ridge on.
_LEAST_RIDGE = 1e-40
# Noise of all samplers fits integers below this, divided by about the dimension, and is drawn quickly above it.
_LARGEST_SCALE = 2.0**60


@dataclass(frozen=True)
class Division:
    """Costs of the curvature's release and of each gradient, and the error of the Hessian that is expected."""

    curvature: float
    gradients: tuple[float, ...]
    error: float


def divide(
    moments: Moments, kind: type[Cost], curvature: float, ridge: float, n: int, total: float, spent: float
) -> Division:
    """Divide what is left of ``total`` once the moments' release has ``spent`` its part.

    The costs add up to at most the rest, whatever the moments are. A step at a relative error q of the Hessian leaves
    q² of the error before it, so that the gradients' costs fall geometrically, backwards from the last.
    """
    spread = float(spreads(moments.variance, curvature, ridge).sum())
    need = error_of(kind, len(moments.mean), spread, curvature, n, total)
    power = kind.power
    share = float(np.clip((need / _AIM) ** (1 / power), LEAST_SHARE, _MOST))
    if need / share**power > USABLE and (need / _BARELY) ** (1 / power) <= _EXTENDED:
        share = (need / _BARELY) ** (1 / power)
    error = need / share**power
    if error > USABLE:
        share, error = _MOST, need / _MOST**power
    parts = np.array(_parts(kind, error))
    left = down(total - spent - share * total)
    return Division(share * total, tuple((left * parts / parts.sum()).tolist()), error)


def _parts(kind: type[Cost], error: float) -> tuple[float, ...]:
    """Return what the gradients' costs are proportional to."""
    if not kind.is_pure:
        ratio = min(0.2 + 0.5 * error, 0.5)
        return tuple(ratio**power for power in reversed(range(_GAUSSIAN_STEPS)))
    if error > USABLE:
        return _CAUTIOUS
    ratio = min(0.2 + 0.6 * error, 0.4)
    return (ratio**2, ratio, 1.0)


# Shares of the curvature, and ratios of the gradients' costs, that predictions choose among: those of ``divide``.
_SHARES, _RATIOS = (LEAST_SHARE, 0.06, _MOST, 0.17, _EXTENDED), (0.2, 0.3, 0.4)
# The relative error of the Hessian of records that are not Gaussian: of 0.08, 0.15, 0.2, 0.25 and 0.3 the one with
# which most predictions were right to a factor of 2 on ijcnn1, bank and fair.
_MISMATCH = 0.2


def needed_error(variance: np.ndarray, kind: type[Cost], curvature: float, ridge: float, n: int, total: float) -> float:
    """Return the error of a Hessian that the whole budget were spent on, for columns of these variances."""
    spread = float(spreads(variance, curvature, ridge).sum())
    return error_of(kind, len(variance), spread, curvature, n, total)


def predicted_excess(need: float, kind: type[Cost], limit: float, start_gap: float, left: float) -> float:
    """Return the error after the last gradient: each adds noise of limit/share^k, k = 2 or 1, and q² stays of the rest.

    ``need`` and ``limit`` are the Hessian's error, and the error of one gradient, for the whole budget, of which this
    share is ``left``. q is typically a quarter of the largest error of the Hessian, and at least what remains without
    any noise, as records are not Gaussian. The budget is divided in the best of a few ways, so that the prediction
    falls wherever ``need`` and ``limit`` do.
    """
    steps, best = kind.either(3, _GAUSSIAN_STEPS), start_gap
    for share in (each for each in _SHARES if each < left):
        q = min(max(need / share**kind.power / 4, _MISMATCH), 1.0)
        for ratio in _RATIOS:
            parts = [ratio**power for power in reversed(range(steps))]
            noise = 0.0
            for part in parts:
                cost = (left - share) * part / sum(parts)
                noise = limit / cost ** (2 * kind.power) + q**2 * noise
            best = min(best, noise + start_gap * q ** (2 * steps))
    return best


class UndrawableError(ValueError):
    """The budget is so small, or so large, that its noise does not fit the released integers."""


def require_drawable(n: int, statistics: tuple[Statistic, ...], kind: type[Cost], total: float, ridge: float) -> None:
    """Raise if noise would be too long for 64-bit integers, or shorter than these: before anything is charged.

    Gaussian noise is known modulo 2^64: what it is added to must fit that, too.

    The limits are within those of every sampler. Gradients follow the moments: their integers are 2^20 times finer, and
    become coarser where noise is long.
    """
    matrix = MATRIX_STEPS**2 / (LEAST_SHARE * total) ** kind.power
    fits = matrix <= _LARGEST_SCALE and _LEAST_RIDGE <= ridge <= LARGEST_UNIT**2
    for statistic in statistics:
        d, scale = statistic.problem.d, statistic.scale * STEPS
        fits = fits and d <= scale <= _LARGEST_SCALE / (d + 40 * math.sqrt(d) + 800)
    if not kind.is_pure and n > MATRIX_ROWS:
        raise UndrawableError(
            f"the curvature method adds up at most 2^30 records with Gaussian noise, got n={n}. Use method='descent'."
        )
    if not fits or not np.isfinite(total):
        raise UndrawableError(
            f"noise of {kind.unit} = {total:g} does not fit the integers that the curvature method releases. "
            "Use a budget that is neither tiny nor huge, or method='descent'."
        )
