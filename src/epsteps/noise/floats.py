"""Noise in float64, for experiments: the same laws as those of the exact samplers, up to rounding, and not private.

Every function makes its draws of ``uniform``, which returns uniform numbers of the open interval (0, 1) of a shape.
The coordinates of a vector lie along the last axis but one; each index of the other axes has a vector of its own.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import gammaincinv, gammaln, ndtri

from epsteps.noise.hull_layout import layout_of
from epsteps.noise.shaped import parts_of
from epsteps.problem.bodies import Body, Ellipsoid
from epsteps.problem.hulls import Hull

Uniforms = Callable[[tuple[int, ...]], np.ndarray]


def laplace(uniform: Uniforms, shape: tuple[int, ...]) -> np.ndarray:
    """Return independent Laplace draws of scale 1, by inversion."""
    u = uniform(shape) - 0.5
    return -np.sign(u) * np.log1p(-2 * np.abs(u))


def gaussian(uniform: Uniforms, shape: tuple[int, ...]) -> np.ndarray:
    """Return independent standard Gaussians, by inversion."""
    return ndtri(uniform(shape))


def l2(uniform: Uniforms, shape: tuple[int, ...]) -> np.ndarray:
    """Return vectors of density ~ exp(-|z|_2): Gaussians of a random variance, as in ``knorm``."""
    *others, d, columns = shape
    return gaussian(uniform, shape) * np.sqrt(2 * gammaincinv((d + 1) / 2, uniform((*others, 1, columns))))


def ellipsoid(uniform: Uniforms, body: Ellipsoid, shape: tuple[int, ...]) -> np.ndarray:
    """Return Gaussian vectors with the covariance of the ellipsoid."""
    *others, _, columns = shape
    z = gaussian(uniform, shape) * np.array(body.scales)[:, None]
    z[..., list(body.hull), :] += body.common * gaussian(uniform, (*others, 1, columns))
    return z


def shaped(uniform: Uniforms, body: Body, shape: tuple[int, ...]) -> np.ndarray:
    """Return vectors of density ~ exp(-gauge(z)): a Gamma(d + 1) radius times a uniform point of the body."""
    *others, d, columns = shape
    z, parts = np.empty(shape), parts_of(body)
    if len(parts.hull):
        z[..., parts.hull, :] = _hull_points(uniform, len(parts.hull), (*others, columns))
    for rows in parts.blocks:
        z[..., rows, :] = _block_points(uniform, rows.shape, (*others, columns))
    return z * gammaincinv(d + 1, uniform((*others, 1, columns)))


def _hull_points(uniform: Uniforms, k: int, others: tuple[int, ...]) -> np.ndarray:
    """Return z_j = w_j - w_0 for uniform w_0, ..., w_k of which a random one is 0."""
    w = uniform((*others[:-1], k + 1, others[-1]))
    zero = np.floor((k + 1) * uniform((*others[:-1], 1, others[-1]))).astype(np.int64)
    np.put_along_axis(w, np.minimum(zero, k), 0.0, axis=-2)
    return w[..., 1:, :] - w[..., :1, :]


def _block_points(uniform: Uniforms, shape: tuple[int, int], others: tuple[int, ...]) -> np.ndarray:
    """Return uniform points of cross-polytopes: k of k + 1 exponentials over the sum of all, with signs."""
    count, k = shape
    signed = 2 * uniform((*others[:-1], count, k + 1, others[-1])) - 1
    exponential = -np.log(np.abs(signed))
    shares = exponential / exponential.sum(axis=-2, keepdims=True)
    return np.sign(signed[..., :k, :]) * shares[..., :k, :]


def hull(uniform: Uniforms, body: Hull, shape: tuple[int, ...]) -> np.ndarray:
    """Return vectors with the law of ``hull_noise`` at a large scale: levels first, then each part on its own."""
    *others, d, columns = shape
    each = (*others, 1, columns)
    totals = np.cumsum(layout_of(body).shares)
    ups = np.searchsorted(totals[:-1], uniform(each), side="right")
    above, below = gammaincinv(ups + 1, uniform(each)), gammaincinv(d - ups + 1, uniform(each))
    z = np.empty(shape)
    for size in {len(part) for part in body.parts}:
        rows = np.array([part for part in body.parts if len(part) == size])
        z[..., rows, :] = _part_points(uniform, rows.shape, above, below)
    if body.signed:
        z[..., body.signed, :] = (2 * uniform((*others, len(body.signed), columns)) - 1) * (above + below)
    return z


def _part_points(uniform: Uniforms, shape: tuple[int, int], above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return points of parts of k: j random coordinates of a simplex above, the others of a simplex below.

    P(j) ~ C(k,j)² above^j below^(k-j), and a coordinate is one of j exponentials over the sum of these and one more.
    """
    (count, k), (*others, _, columns) = shape, above.shape
    j = np.arange(k + 1)
    logs = j * np.log(above / below)[..., None] - 2 * (gammaln(j + 1) + gammaln(k - j + 1))
    totals = np.cumsum(np.exp(logs - logs.max(axis=-1, keepdims=True)), axis=-1)
    threshold = uniform((*others, count, columns)) * totals[..., -1]
    ups = np.sum(threshold[..., None] >= totals, axis=-1)[..., None, :]
    order = np.argsort(uniform((*others, count, k, columns)), axis=-2)
    is_up = np.argsort(order, axis=-2) < ups
    exponential, more = -np.log(uniform((*others, count, k, columns))), -np.log(uniform((*others, count, 2, columns)))
    up, down = np.where(is_up, exponential, 0.0), np.where(is_up, 0.0, exponential)
    sums = up.sum(axis=-2) + more[..., 0, :], down.sum(axis=-2) + more[..., 1, :]
    return up * (above / sums[0])[..., None, :] - down * (below / sums[1])[..., None, :]
