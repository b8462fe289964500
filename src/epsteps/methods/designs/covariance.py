"""From a noisy second moment of whitened records to their mean and covariance: shrunk where noise dominates."""

from dataclasses import dataclass

import numpy as np

from epsteps.methods.designs.columns import Columns
from epsteps.methods.designs.definite import definite
from epsteps.methods.designs.matrix_noise import MatrixNoise
from epsteps.methods.designs.moments import Moments
from epsteps.methods.designs.whitening import Whitening

# Shortened records lose at most this share of their second moment, or the loss is not made up for.
_LARGEST_CORRECTION = 1.5
# Eigenvalues are not believed below this share of the noise's largest, and grow by what exceeds _TOLERATED of it.
_FLOOR, _TOLERATED = 0.5, 0.1
# Columns without a released covariance count as if they varied more: smaller steps, where little is known.
_CAUTION = 4.0


@dataclass(frozen=True, eq=False)
class Spread:
    """Mean and covariance of the columns."""

    mean: np.ndarray
    covariance: np.ndarray


def prior(columns: Columns, moments: Moments) -> np.ndarray:
    """Return the covariance that means and variances suggest: -p_i p_j within a category, 0 elsewhere."""
    found = np.diag(moments.variance)
    for start, stop in columns.categories:
        p = np.maximum(moments.mean[start:stop], 1e-4)
        p = p / max(p.sum(), 1.0)
        found[start:stop, start:stop] = np.diag(moments.variance[start:stop]) - np.outer(p, p) + np.diag(p * p)
    return found


def covariance(
    columns: Columns,
    moments: Moments,
    whitening: Whitening | None,
    released: np.ndarray | None,
    noise: MatrixNoise | None,
    curvature: float,
) -> Spread:
    """Return the mean and the covariance that the released numbers say together.

    ``released`` is the noisy second moment of the whitened records with their constant coordinate, and ``curvature``
    what the covariance will be multiplied by. Whatever was released, means stay within the domain, and variances within
    what it allows.
    """
    start = prior(columns, moments)
    if whitening is None or released is None or noise is None:
        return _possible(columns, moments.mean, start + np.diag((_CAUTION - 1) * moments.variance))
    mean, inner = _refined(moments, whitening, released, noise)
    chosen, weights = whitening.columns, whitening.weights
    scale = np.outer(weights, weights)
    block = _denoised(inner, start[np.ix_(chosen, chosen)] * scale, moments, whitening, noise, curvature) / scale
    rest = np.setdiff1d(np.arange(columns.d), chosen)
    found = start
    found[rest, rest] *= _CAUTION
    found[np.ix_(rest, chosen)] = found[np.ix_(chosen, rest)].T * 0
    found[np.ix_(chosen, rest)] = 0.0
    found[np.ix_(chosen, chosen)] = block
    return _possible(columns, mean, found)


def _refined(
    moments: Moments, whitening: Whitening, released: np.ndarray, noise: MatrixNoise
) -> tuple[np.ndarray, np.ndarray]:
    """Return means that use the constant coordinate's products, and the second moment about them."""
    k, chosen = len(whitening.columns), whitening.columns
    old = np.square(whitening.weights * moments.mean_noise[chosen])
    new = np.square(noise.off / whitening.constant)
    shift = released[:k, k] / whitening.constant * old / (old + new)
    mean = moments.mean.copy()
    mean[chosen] += shift / whitening.weights
    return mean, released[:k, :k] - np.outer(shift, shift)


def _denoised(
    inner: np.ndarray,
    start: np.ndarray,
    moments: Moments,
    whitening: Whitening,
    noise: MatrixNoise,
    curvature: float,
) -> np.ndarray:
    """Return the whitened covariance: its off-diagonal part shrunk toward the prior as James and Stein do."""
    k, weights, chosen = len(inner), whitening.weights, whitening.columns
    known, known_noise = np.diag(start), weights**2 * moments.variance_noise[chosen]
    own = np.diag(inner)
    stretch = np.clip(known.sum() / max(own.sum(), 1e-9), 1.0, _LARGEST_CORRECTION)
    change = stretch * inner - start
    np.fill_diagonal(change, 0.0)
    kept = max(0.0, 1 - k * (k - 1) * noise.off**2 / max(float(np.sum(change**2)), 1e-300))
    found = start + kept * change
    share = (noise.diagonal / np.hypot(noise.diagonal, known_noise)) ** 2  # by precision: what is known gets this much
    diagonal = (1 - share) * np.maximum(own, 0) + share * known
    np.fill_diagonal(found, np.maximum(diagonal, 0.3 * np.minimum(known, known_noise)))
    error = curvature * noise.edge * kept
    more = max(0.0, error - _TOLERATED) / curvature
    return definite(found, _FLOOR * error / curvature).matrix + more * np.eye(k)


def _possible(columns: Columns, mean: np.ndarray, found: np.ndarray) -> Spread:
    """Return the mean within the domain's ranges, and the covariance with eigenvalues that it may have."""
    inside = np.clip(mean, columns.centre - columns.half, columns.centre + columns.half)
    return Spread(inside, definite(found, 0.0, columns.largest_variance).matrix)
