"""Vectors of noise, compiled, where float64 leaves nothing open. Importing this module needs numba.

Each function repeats the lines of its sampler, ``laplace`` or ``gaussian``, on the same words, with the same bounds on
errors. Where they leave an integer or a comparison open it returns False, and the sampler decides.
"""

import math

import numpy as np

from epsteps.noise._floyd import compiled
from epsteps.noise.reals import FLAT, HIGH_BITS, LOG_ULPS, THRESHOLD_BITS

_ONE, _TOP, _LAST_THRESHOLD = np.uint64(1), np.uint64(64 - THRESHOLD_BITS), np.uint64(2**THRESHOLD_BITS - 1)
_LOG_ERROR = (LOG_ULPS + 8) * 2.0**-52


@compiled
def _low_is_open(word, shift):
    """Return whether the threshold of a low part has to be looked at, where the law is flat."""
    return shift > 0 and word >> _TOP >= _LAST_THRESHOLD


@compiled
def _low(word, shift):
    return np.int64(word & ((_ONE << np.uint64(shift)) - _ONE))


@compiled
def _split(scale):
    """Return what ``reals.split`` does."""
    shift = max(math.frexp(scale)[1] - HIGH_BITS, 0)
    return math.ldexp(scale, -shift), np.int64(shift)


@compiled
def laplace(words, scales, found):
    """Write the difference of two geometric variables for each scale; ``words`` is that of ``laplace.words_for``."""
    for i in range(len(found)):
        (reduced, shift), total = _split(scales[i]), np.int64(0)
        for which in range(2):
            w = np.float64(words[which, 0, i])
            if w == 0:
                return False
            exponential = -math.log(w * 2.0**-64)
            error = reduced * (2.0**-51 + 1 / w + _LOG_ERROR * exponential)
            x = reduced * exponential
            high = math.floor(max(x - error, 0.0))
            if high != math.floor(x + error):
                return False
            part = np.int64(high) << shift
            if words.shape[1] == 2:
                if _low_is_open(words[which, 1, i], shift):
                    return False
                part += _low(words[which, 1, i], shift)
            total += part if which == 0 else -part
        found[i] = total
    return True


@compiled
def _places(points, places):
    """Write which points lie in the disc, until there are enough; False if there are not, or any is at its edge."""
    count = 0
    for column in range(points.shape[1]):
        u, v = np.int64(points[0, column]) * 2.0**-63, np.int64(points[1, column]) * 2.0**-63
        s = u * u + v * v
        if abs(s - 1) < 2.0**-44:
            return False
        if s < 1 and count < len(places):
            places[count] = column
            count += 1
    return count == len(places)


@compiled
def gaussian(points, words, sigmas, found):
    """Write rounded Gaussians: of the points of the disc among ``points``, and low parts of ``words``."""
    places = np.empty((len(found) + 1) // 2, np.int64)
    if not _places(points, places):
        return False
    for i in range(len(found)):
        axis, column = i // len(places), places[i % len(places)]
        u, v = np.int64(points[axis, column]) * 2.0**-63, np.int64(points[1 - axis, column]) * 2.0**-63
        s = u * u + v * v
        if s < 2.0**-80:
            return False
        log = -math.log(s)
        g = math.sqrt(2 * log / s)
        (reduced, shift), z = _split(sigmas[i]), u * g
        error = abs(z) * (0.5 * (2.0**-50 + 2.0**-60 / math.sqrt(s)) * (1 + 1 / log) + _LOG_ERROR) + 2.0**-62 * g
        x = reduced * z + math.ldexp(0.5, -shift)
        tolerance = reduced * error + abs(x) * 2.0**-50
        high = math.floor(x - tolerance)
        if high != math.floor(x + tolerance):
            return False
        found[i] = np.int64(high) << shift
        if len(words):
            steep = (reduced * (abs(z) + error) + 1) / (reduced * reduced) > FLAT / 2
            if (steep and shift > 0) or _low_is_open(words[i], shift):
                return False
            found[i] += _low(words[i], shift)
    return True
