"""What a run would publish without noise, of records that may be opened: the minimum of its objective, UNPROTECTED."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtri

from epsteps.data.rows import Rows
from epsteps.noise import Source
from epsteps.plans.plan import Aim
from epsteps.problem.problem import Problem
from epsteps.problem.weighting import Weighting

# Draws of the tilt for the width that a known Hessian would give.
_TILTS = 4000
# Of the Newton decrement, which is about twice what F still lies above its minimum.
_DECREMENT = 1e-20
_NEWTON_STEPS = 200


def exact(aim: Aim, rows: Rows) -> "Rows | Weighed":
    """Return the objective of a run over these records: as ``Rows`` have it, or with weights for long ones."""
    rows = rows.restated(aim.problem)
    return rows if aim.weighting is None else Weighed(rows, aim.weighting)


@dataclass(frozen=True, eq=False)
class Weighed:
    """The mean of v loss(s u'x) and the ridge: value, gradient and Hessian, UNPROTECTED. For one output."""

    rows: Rows
    weighting: Weighting

    @property
    def problem(self) -> Problem:
        """The loss and the ridge."""
        return self.rows.problem

    @cached_property
    def records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shortened features s u, with the intercept's column, encoded targets, and weights v."""
        measure, parts = self.weighting.measure(self.problem), []
        steps = measure.most / float(self.problem.units.max())
        for features, targets in self.rows.blocks():
            lengths = np.abs(features * steps) ** self.weighting.norm
            shares = measure.shares(lengths.sum(axis=1))
            parts.append((features * shares.shortening[:, None], targets, shares.weights / self.weighting.mean))
        u, y, v = (np.concatenate(part) for part in zip(*parts, strict=True))
        return u, y, v

    def value(self, x: np.ndarray) -> float:
        """Return F at x."""
        u, y, v = self.records
        losses = self.problem.loss.total((u @ x)[None, :], y[None, :])
        return float(v @ losses) / len(y) + 0.5 * self.problem.ridge * float(x @ x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of F at x."""
        return self.scores(x).mean(axis=0) + self.problem.ridge * x

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Return each record's gradient."""
        u, y, v = self.records
        return u * (v * self.problem.loss.derivative(u @ x, y))[:, None]

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the Hessian of F at x."""
        u, y, v = self.records
        bends = v * self.problem.loss.second(u @ x, y)
        return (u.T * bends) @ u / len(y) + self.problem.ridge * np.eye(len(x))


def minimiser(objective: Any) -> np.ndarray:
    """Return the x at which F is least, up to rounding, of ``Rows`` or what is like them: UNPROTECTED."""
    x = np.zeros(objective.problem.dimension)
    here = float(objective.value(x))
    for _ in range(_NEWTON_STEPS):
        gradient = objective.gradient(x)
        hessian = objective.hessian(x)
        step = cho_solve(cho_factor(hessian + 1e-14 * np.trace(hessian) / len(x) * np.eye(len(x))), gradient)
        decrement = float(gradient @ step)
        length = 1.0
        while (there := float(objective.value(x - length * step))) > here - 0.25 * length * decrement:
            if length <= 1e-6:
                break
            length /= 2
        if there > here - 1e-16 * abs(here) or decrement <= _DECREMENT:
            return x - step if decrement <= 1e-8 else x
        x, here = x - length * step, there
    return x


def known_widths(
    aim: Aim, objective: "Rows | Weighed", x: np.ndarray, matrix: np.ndarray, level: float, seed: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return half the widths that the exact Hessian at x and the exact covariance of scores would give, UNPROTECTED.

    Of the population's and of the sample's minimum, as quantiles of |H⁻¹(b/n + score)| with b from the tilt's law; and
    those of usual intervals, without a tilt. They are NaN where nothing was tilted, or the loss has several outputs.
    """
    n, unknown = objective.problem.n, np.full(len(matrix), np.nan)
    if not aim.tilts or objective.problem.loss.outputs > 1:
        return {"population": unknown, "sample": unknown}, unknown
    inverse = np.linalg.inv(objective.hessian(x))
    tilts = matrix @ inverse @ tilts_of(aim, _TILTS, seed) / n
    spread = matrix @ inverse @ score_covariance(objective, x) @ inverse @ matrix.T / n
    deviation = np.sqrt(np.diag(spread))
    normal = np.random.default_rng([seed, 7]).standard_normal((len(matrix), _TILTS))
    both = np.abs(tilts + deviation[:, None] * normal)
    known = {"population": np.quantile(both, level, axis=1), "sample": np.quantile(np.abs(tilts), level, axis=1)}
    return known, deviation * float(ndtri((1 + level) / 2))


def tilts_of(aim: Aim, count: int, seed: int) -> np.ndarray:
    """Return draws of the tilt of the sum, one in each column; of the mean of several minima that of their mean."""
    problem, source = aim.problem, Source(seed)
    total = np.zeros((problem.dimension, count))
    for noise, scale in aim.tilts:
        shape, form = noise.shape(problem), total.shape
        drawn = source.draw(noise, 1.0, form) if shape.independent else source.draw(noise, 1.0, form, shape)
        total += scale * noise.units(problem)[:, None] * drawn
    return total


def score_covariance(objective: "Rows | Weighed", x: np.ndarray) -> np.ndarray:
    """Return the covariance of records' gradients at x, UNPROTECTED."""
    if isinstance(objective, Weighed):
        return np.cov(objective.scores(x).T, bias=True)
    problem, total, square = objective.problem, 0.0, 0.0
    for features, targets in objective.blocks():
        scores = features * problem.loss.derivative(features @ x, targets)[:, None]
        total, square = total + scores.sum(axis=0), square + scores.T @ scores
    mean = total / problem.n
    return square / problem.n - np.outer(mean, mean)
