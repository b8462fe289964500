"""How far a published model may be from the minimum without noise: measured, or proved.

Let g be the mean slope at the target x0, and H the mean Hessian between it and the published x. Then x - x0 equals
-H⁻¹(g + b/n) + o. The laws of the tilt b and of the noise o on the output are known; H is what has to be found out.
*Measured* distances draw it from what was released; *proved* ones need no more than that it is at least the ridge.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from epsteps.methods.intervals.released import Released

if TYPE_CHECKING:
    from numpy.random import Generator

# Distances are measured where a matrix with a direction of no curvature would pass with at most this probability.
GATE = 0.05
# How many distances and numbers are drawn; matrices are fewer, the fewer the larger they are.
_DISTANCES, _NUMBERS = 16_000, 20_000
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


def measured(released: Released, gate: Gate, generator: "Generator") -> Distances:
    """Return draws of x - x0, where the gate is open.

    A is the released matrix less its noise, of which the law is known: matrices of that law are taken off, and those
    after which no positive matrix is left are drawn again. That is the law of A given what was released, for a flat
    prior on the positive matrices. But distances are measured only where the gate is open, which favours matrices that
    noise has made larger: so A counts by the inverse of its chance to pass, which is its law given that it did.
    """
    T, A = _bought(released)[0], _matrices(released, gate, generator)
    each, D = -(-_DISTANCES // len(A)), released.dimension
    count = len(A) * each
    tilts = released.tilts(generator, count).reshape(len(A), each, D)
    roots = T @ np.linalg.cholesky(A)
    scores = generator.standard_normal((len(A), each, A.shape[1])) @ roots.transpose(0, 2, 1)
    scores *= np.sqrt(released.dispersions(generator, count) / released.n).reshape(len(A), each, 1)
    sides = np.concatenate([tilts, scores], axis=1).transpose(0, 2, 1)
    both = np.linalg.solve(T @ A @ T.T + released.ridge * np.eye(D), sides).transpose(0, 2, 1)
    privacy = both[:, :each].reshape(count, D) + released.outputs(generator, count)
    return Distances(privacy, both[:, each:].reshape(count, D))


def _matrices(released: Released, gate: Gate, generator: "Generator") -> np.ndarray:
    """Return positive matrices that A may be, given that the gate is open."""
    matrix = _bought(released)[1]
    wanted = _how_many(len(matrix))
    found, least = [], []
    for _ in range(100):
        drawn = matrix - released.matrices(generator, wanted)
        values = np.linalg.eigvalsh(drawn)[:, 0]
        found.append(drawn[values > 0])
        least.append(values[values > 0])
        if sum(map(len, found)) >= wanted // 2:
            return np.concatenate(found)[_resampled(1 / gate.chances(np.concatenate(least)), wanted, generator)]
    raise ValueError("the released matrix cannot be measured: hardly any matrix that it may come from is positive.")


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
    (|c'b| + |c||b|)/(2 ridge) for every H >= ridge, and H may depend on b. What sampling adds rests on two assumptions:
    the score is Gaussian, and its covariance is at most phi (H - ridge). Then c'H⁻¹ score has at most the variance
    phi |c|²/(4 n ridge).
    """
    beta = failing = 1 - level
    lengths = np.linalg.norm(directions, axis=1)
    tilts = released.tilts(generator, _DISTANCES)
    bounds = np.abs(tilts @ directions.T) + np.outer(np.linalg.norm(tilts, axis=1), lengths)
    bounds = bounds / (2 * released.ridge) + np.abs(released.outputs(generator, _DISTANCES) @ directions.T)
    if sampled:
        if released.dispersion is not None:
            failing = (1 - _DISPERSION) * beta
        phi = released.most_dispersion(_DISPERSION * beta)
        deviations = lengths * np.sqrt(phi / (4 * released.n * released.ridge))
        bounds += np.abs(generator.standard_normal(bounds.shape)) * deviations
    return upper(bounds, failing) + released.slack * lengths
