"""Chunks of prepared records for compiled passes: integers in float32, multiplied in float64 as they are loaded.

Every product and every sum below is an integer that a double holds exactly, or such an integer times a power of two:
the compiler may reorder and fuse them, and gives what NumPy does.
"""

from typing import Any

import numba
import numpy as np

from epsteps.data.chunks import LIMB, Chunk, in_runs

_compiled = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


# Rows that are added together.
_ROWS = 4


class FastChunk(Chunk):
    """At most 2^16 dense records, row by row, in float32."""

    _features: np.ndarray

    def margins(self, limbs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return what ``Chunk.margins`` does; compiled for one output, and for doubles."""
        count = len(weights)
        if limbs.shape[1] != count or count > len(_MARGINS) or weights.dtype != np.float64:
            return super().margins(limbs, weights)
        margins = np.empty((len(self), 1))
        _MARGINS[count - 1](self._features, np.ascontiguousarray(limbs.T), weights, margins[:, 0])
        return margins

    def gather_fixed(self, shares: np.ndarray, count: int) -> np.ndarray:
        """Return what ``Chunk.gather_fixed`` does; compiled for one output, and for doubles."""
        if shares.shape[1] != 1 or count > len(_GATHERS) or shares.dtype != np.float64:
            return super().gather_fixed(shares, count)
        shares = np.ascontiguousarray(shares[:, 0])

        def part(run: slice) -> np.ndarray:
            sums = np.zeros((count, self._features.shape[1]))
            _GATHERS[count - 1](self._features[run], shares[run], sums)
            return sums.T

        return in_runs(part, len(self))

    def row_sums(self, factors: np.ndarray, most: int, norm: int) -> np.ndarray:
        """Return what ``Chunk.row_sums`` does; compiled."""
        sums = np.empty(len(self))
        (_squares_of_rows if norm == 2 else _sizes_of_rows)(self._features, factors, float(most), sums)
        return sums


@_compiled
def _scaled(entry: Any, factor: float, most: float) -> float:
    return min(max(np.rint(np.float64(entry) * factor), -most), most)


@_compiled
def _squares_of_rows(features: Any, factors: Any, most: float, sums: Any) -> None:
    for i in range(len(features)):
        total = 0.0
        for j in range(features.shape[1]):
            t = _scaled(features[i, j], factors[j], most)
            total += t * t
        sums[i] = total


@_compiled
def _sizes_of_rows(features: Any, factors: Any, most: float, sums: Any) -> None:
    for i in range(len(features)):
        total = 0.0
        for j in range(features.shape[1]):
            total += abs(_scaled(features[i, j], factors[j], most))
        sums[i] = total


@_compiled
def _margins_1(features: Any, limbs: Any, weights: Any, margins: Any) -> None:
    for i in range(len(features)):
        high = 0.0
        for j in range(features.shape[1]):
            high += np.float64(features[i, j]) * limbs[0, j]
        margins[i] = high * weights[0]


@_compiled
def _margins_2(features: Any, limbs: Any, weights: Any, margins: Any) -> None:
    for i in range(len(features)):
        high = low = 0.0
        for j in range(features.shape[1]):
            u = np.float64(features[i, j])
            high += u * limbs[0, j]
            low += u * limbs[1, j]
        margins[i] = high * weights[0] + low * weights[1]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _in_order(high: float, middle: float, low: float) -> float:
    """Return the sum, rounded as NumPy rounds it: the one place where the order matters."""
    return (high + middle) + low


@_compiled
def _margins_3(features: Any, limbs: Any, weights: Any, margins: Any) -> None:
    for i in range(len(features)):
        high = middle = low = 0.0
        for j in range(features.shape[1]):
            u = np.float64(features[i, j])
            high += u * limbs[0, j]
            middle += u * limbs[1, j]
            low += u * limbs[2, j]
        margins[i] = _in_order(high * weights[0], middle * weights[1], low * weights[2])


@_compiled
def _split(shares: Any, first: int, limbs: Any) -> None:
    """Write the limbs of four numbers, most significant first."""
    for r in range(_ROWS):
        left = shares[first + r]
        for place in range(limbs.shape[1]):
            left *= LIMB
            limbs[r, place] = np.rint(left)
            left -= limbs[r, place]


@_compiled
def _four(features: Any, i: int, j: int) -> tuple[float, float, float, float]:
    """Return the column's numbers in four rows."""
    return (
        np.float64(features[i, j]),
        np.float64(features[i + 1, j]),
        np.float64(features[i + 2, j]),
        np.float64(features[i + 3, j]),
    )


@_compiled
def _gather_rest(features: Any, shares: Any, sums: Any) -> None:
    """Add the last rows, fewer than four."""
    for i in range(len(features) // _ROWS * _ROWS, len(features)):
        left = shares[i]
        for place in range(len(sums)):
            left *= LIMB
            limb = np.rint(left)
            left -= limb
            for j in range(features.shape[1]):
                sums[place, j] += limb * features[i, j]


@_compiled
def _gather_1(features: Any, shares: Any, sums: Any) -> None:
    limbs, high = np.empty((_ROWS, 1)), sums[0]
    for i in range(0, len(features) // _ROWS * _ROWS, _ROWS):
        _split(shares, i, limbs)
        a, b, c, d = limbs[0, 0], limbs[1, 0], limbs[2, 0], limbs[3, 0]
        for j in range(features.shape[1]):
            p, q, r, s = _four(features, i, j)
            high[j] += a * p + b * q + c * r + d * s
    _gather_rest(features, shares, sums)


@_compiled
def _gather_2(features: Any, shares: Any, sums: Any) -> None:
    limbs, high, low = np.empty((_ROWS, 2)), sums[0], sums[1]
    for i in range(0, len(features) // _ROWS * _ROWS, _ROWS):
        _split(shares, i, limbs)
        a, b, c, d = limbs[0, 0], limbs[1, 0], limbs[2, 0], limbs[3, 0]
        e, f, g, h = limbs[0, 1], limbs[1, 1], limbs[2, 1], limbs[3, 1]
        for j in range(features.shape[1]):
            p, q, r, s = _four(features, i, j)
            high[j] += a * p + b * q + c * r + d * s
            low[j] += e * p + f * q + g * r + h * s
    _gather_rest(features, shares, sums)


@_compiled
def _gather_3(features: Any, shares: Any, sums: Any) -> None:
    limbs, high, middle, low = np.empty((_ROWS, 3)), sums[0], sums[1], sums[2]
    for i in range(0, len(features) // _ROWS * _ROWS, _ROWS):
        _split(shares, i, limbs)
        a, b, c, d = limbs[0, 0], limbs[1, 0], limbs[2, 0], limbs[3, 0]
        e, f, g, h = limbs[0, 1], limbs[1, 1], limbs[2, 1], limbs[3, 1]
        k, m, n, o = limbs[0, 2], limbs[1, 2], limbs[2, 2], limbs[3, 2]
        for j in range(features.shape[1]):
            p, q, r, s = _four(features, i, j)
            high[j] += a * p + b * q + c * r + d * s
            middle[j] += e * p + f * q + g * r + h * s
            low[j] += k * p + m * q + n * r + o * s
    _gather_rest(features, shares, sums)


_MARGINS = (_margins_1, _margins_2, _margins_3)
_GATHERS = (_gather_1, _gather_2, _gather_3)
