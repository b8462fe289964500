"""How far a published model may be from the minimum without noise: measured, or proved.

Let g be the mean slope at the target x0, and H the mean Hessian between it and the published x. Then x - x0 equals
-H⁻¹(g + b/n) + o. The laws of the tilt b and of the noise o on the output are known; H is what has to be found out.
*Measured* distances draw it from what was released; *proved* ones need no more than a lower bound of it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from epsteps.methods.intervals.released import Released

if TYPE_CHECKING:
    from numpy.random import Generator

# Distances are measured where a matrix with a direction of no curvature would pass with at most this probability.
GATE = 0.2
# How many distances and numbers are drawn; matrices are fewer, the fewer the larger they are.
_DISTANCES, _NUMBERS = 16_000, 20_000
# Shares of the failure probability of a proved distance: of the tilt and the score, of the matrix noise, of the lengths
# of the tilt and of the output's noise (each), and of the dispersion.
_QUANTILE, _EDGE, _LENGTH, _DISPERSION = 0.6, 0.2, 0.05, 0.1
# Lower bounds of the Hessian are made of these shares of the largest part of the released matrix that is possible.
_SHARES = (0.3, 0.6, 0.8, 0.9, 1.0)


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

    def half_widths(self, rows: np.ndarray, level: float, sampled: bool) -> np.ndarray:
        """Return the quantile of |row'(x - x0)| for each row."""
        distances = self.privacy + self.sampling if sampled else self.privacy
        return upper(np.abs(distances @ rows.T), 1 - level)


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


def proved(released: Released, generator: "Generator", rows: np.ndarray, level: float, sampled: bool) -> np.ndarray:
    """Return half-widths that |row'(x - x0)| exceeds with a probability of at most 1 - level, for each row.

    For the sample's minimum it is a theorem, whatever the records: for every loss by the ridge alone, and by a released
    matrix where the loss bounds how fast its curvature changes. What sampling adds rests on two assumptions: the score
    is Gaussian, and its covariance is at most phi (H - ridge).
    """
    beta = failing = 1 - level
    tilts = released.tilts(generator, _DISTANCES)
    bounds, variances = _by_ridge(released, rows, tilts)
    if released.matrix is not None and np.isfinite(released.bend):
        failing = _QUANTILE * beta
        better, smaller = _by_matrix(released, generator, rows, tilts, beta)
        bounds, variances = np.minimum(bounds, better), np.minimum(variances, smaller)
    elif released.dispersion is not None:
        failing = (1 - _DISPERSION) * beta
    bounds = bounds + np.abs(released.outputs(generator, _DISTANCES) @ rows.T)
    if sampled:
        variances = variances * released.most_dispersion(_DISPERSION * beta) / released.n
        bounds += np.abs(generator.standard_normal(bounds.shape)) * np.sqrt(variances)
    return upper(bounds, failing) + released.slack * np.linalg.norm(rows, axis=1)


def _by_ridge(released: Released, rows: np.ndarray, tilts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bound |row'H⁻¹b| for each tilt, and row'H⁻¹(H - ridge)H⁻¹row, by H >= ridge alone."""
    lengths = np.linalg.norm(rows, axis=1)
    bounds = np.abs(tilts @ rows.T) + np.outer(np.linalg.norm(tilts, axis=1), lengths)
    return bounds / (2 * released.ridge), lengths**2 / (4 * released.ridge)


def _by_matrix(
    released: Released, generator: "Generator", rows: np.ndarray, tilts: np.ndarray, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bound the same by H >= ridge + share T B T', B being the released matrix less the edge of its noise.

    B <= A with the probability that the edge has, and then all shares in [0, 1] hold at once, so that the best one may
    be taken for each tilt and row.
    """
    T, matrix = _bought(released)
    count = max(_how_many(len(matrix)), int(8 / (_EDGE * beta)))
    edge = upper(np.linalg.eigvalsh(released.matrices(generator, count))[:, -1], _EDGE * beta)
    inner = T @ (matrix - edge * np.eye(len(matrix))) @ T.T
    least = float(np.linalg.eigvalsh(inner)[0])
    between, there = _kept(
        released, generator, least, float(upper(np.linalg.norm(tilts, axis=1), _LENGTH * beta)), beta
    )
    bounds, variances = np.full((len(tilts), len(rows)), np.inf), np.full(len(rows), np.inf)
    for share in _SHARES:
        H = _lower(released.ridge, inner, least, share, between)
        forward = np.linalg.solve(H, rows.T)
        energies = np.einsum("ij,ji->i", tilts, np.linalg.solve(H, tilts.T))
        squares = np.einsum("ij,ji->i", rows, forward)
        bounds = np.minimum(bounds, 0.5 * np.abs(tilts @ forward) + 0.5 * np.sqrt(np.outer(energies, squares)))
        forward = np.linalg.solve(_lower(released.ridge, inner, least, share, there), rows.T)
        variances = np.minimum(variances, np.einsum("ij,ji->i", rows, forward))
    return bounds, variances


def _lower(ridge: float, inner: np.ndarray, least: float, share: float, kept: float) -> np.ndarray:
    """Return ridge + a part of inner: this share of what is kept, or of nearly the largest that leaves it positive."""
    largest = kept if kept * least >= -0.97 * ridge else 0.97 * ridge / -least
    return ridge * np.eye(len(inner)) + share * largest * inner


def _kept(released: Released, generator: "Generator", least: float, length: float, beta: float) -> tuple[float, float]:
    """Return which share of the curvature at the published x is left on the way to the sample's minimum, and there.

    No margin moves by more than R = record_size |x - x_n|, and s' by no more than the factor exp(bend R). What is left
    bounds |x - x_n|, and so R: the share that follows from R = record_size |b|/ridge is improved by itself.
    """
    unit = released.bend * released.record_size
    radii = np.linalg.norm(released.outputs(generator, _NUMBERS), axis=1)
    start = unit * (float(upper(radii, _LENGTH * beta)) + released.slack)
    share = reach = 0.0
    for _ in range(50):
        reach = max(unit * length / (released.ridge + share * max(least, 0.0)), 1e-12)
        share = float(np.exp(-start) * -np.expm1(-reach) / reach)
    return share, float(np.exp(-start - reach))
