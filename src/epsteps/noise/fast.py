"""Float64 before decimals: which integers the first 64 bits already settle, and how large scales stay fast.

The one assumption about the platform: numpy's float64 ``log`` is off by at most ``LOG_ULPS`` units in the last place
(glibc and numpy's own loops stay below 1). Sums, products, quotients and square roots are those of IEEE 754.

Noise of a large scale is drawn in two parts. The high part is the noise divided by 2^shift and rounded down, where the
shift brings the scale below 2^27, so that float64 nearly always settles it. The low part is the position inside a cell
of 2^shift integers, on which the law is almost flat: a uniform position is rejected with probability below 2^-16.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.reals import Ball, Uniform, decide

LOG_ULPS = 8
FLAT = 2.0**-16

_HIGH_BITS = 27
_THRESHOLD_BITS = 16


def split(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``scales / 2^shift`` (exact, below 2^27, and from 2^26 on where the shift is not 0) and the shift."""
    if scales.strides == (0,) and len(scales) > 1:  # one scale, broadcast
        reduced, shift = split(scales[:1])
        return np.broadcast_to(reduced, scales.shape), np.broadcast_to(shift, scales.shape)
    shift = np.maximum(np.frexp(scales)[1].astype(np.int64) - _HIGH_BITS, 0)
    return np.ldexp(scales, -shift), shift


def certain_floor(x: np.ndarray, tolerance: np.ndarray, least: float = -np.inf) -> tuple[np.ndarray, np.ndarray]:
    """Return the integer part of numbers of at least ``least``, and the positions where the tolerance leaves it open.

    Tolerances must cover the rounding of ``x ± tolerance``.
    """
    low, high = np.floor(np.maximum(x - tolerance, least)), np.floor(x + tolerance)
    is_open = ~(low == high)  # also where a logarithm overflowed
    return np.where(is_open, 0, low).astype(np.int64), np.flatnonzero(is_open)


def low_part(
    bits: Bits,
    words: np.ndarray,
    shift: np.ndarray,
    steep: np.ndarray | bool,
    excess: Callable[[int, Uniform, Uniform], Ball],
    widen: float = 1.0,
) -> np.ndarray:
    """Return positions inside cells of 2^shift integers: uniform ones, of which some are rejected.

    The low bits of a word are the position, its top 16 the threshold: both are numbers with more bits to come. Position
    i is accepted if ``excess(i, position, threshold)`` is positive, which it must be for thresholds below 1 - ``FLAT``
    unless ``steep``: only one threshold in 2^16 has to be looked at. ``widen`` lets tests look at more of them.
    """
    positions = (words & ((np.uint64(1) << shift.astype(np.uint64)) - np.uint64(1))).astype(np.int64)
    thresholds = words >> np.uint64(64 - _THRESHOLD_BITS)
    unseen = max(0, 2**_THRESHOLD_BITS - int(widen))
    for i in np.flatnonzero((shift > 0) & ((thresholds >= unseen) | steep)).tolist():
        width = int(shift[i])
        position = Uniform(bits, int(positions[i]), width)
        threshold = Uniform(bits, int(thresholds[i]), _THRESHOLD_BITS)
        while not decide(partial(_is_accepted, excess, i, position, threshold)):
            position, threshold = Uniform(bits), Uniform(bits)
        positions[i] = position.leading(width)
    return positions


def _is_accepted(excess: Callable, i: int, position: Uniform, threshold: Uniform) -> bool:
    return excess(i, position, threshold).is_positive()
