"""Subsets and vectors of noise, compiled. Importing this module needs numba.

``subsets`` is Floyd's algorithm, ``mark`` and ``marked`` find the distinct ones of values. ``laplace``, ``gaussian``,
``linf``, ``radius`` and ``below`` repeat the lines of samplers, on the same words and with the same bounds on errors.
Where these leave an integer or a comparison open they say so, and the sampler decides.
"""

import math
from typing import Any

import numba
import numpy as np

from epsteps.noise.reals import FLAT, HIGH_BITS, LOG_ULPS, SQUEEZE, THRESHOLD_BITS

_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(32)
_ONE, _SIX, _LAST = np.uint64(1), np.uint64(6), np.uint64(63)
# The top six bits of a power of two times this, a sequence of de Bruijn, say which power it is.
_DE_BRUIJN, _TOP = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
_PLACES = np.empty(64, np.int64)
_PLACES[[(int(_DE_BRUIJN) << place) % 2**64 >> 58 for place in range(64)]] = range(64)
_THRESHOLD, _LAST_THRESHOLD = np.uint64(64 - THRESHOLD_BITS), np.uint64(2**THRESHOLD_BITS - 1)
_EPS = 2.0**-52
_LOG_ERROR = (LOG_ULPS + 8) * _EPS
_SIGN, _ALL = np.uint64(2**63), np.uint64(2**64 - 1)


def compiled(function: Any) -> Any:
    """Return a function compiled by numba, and kept on disk where there is a place for it."""
    try:
        return numba.njit(function, cache=True, nogil=True)
    except RuntimeError:  # no writable place
        return numba.njit(function, nogil=True)


@compiled
def _high_half(word, bound):
    """Return the high word of a product of 64-bit integers, by halves; no partial sum reaches 2^64."""
    b0, b1, w0, w1 = bound & _LOW, bound >> _HALF, word & _LOW, word >> _HALF
    cross = w1 * b0 + ((w0 * b0) >> _HALF)
    other = w0 * b1 + (cross & _LOW)
    return w1 * b1 + (cross >> _HALF) + (other >> _HALF)


@compiled
def _place(word):
    """Return which is the lowest bit that is set."""
    return _PLACES[((word & (~word + _ONE)) * _DE_BRUIJN) >> _TOP]


def _subsets(words, of, found):
    """Write a subset of 0, ..., n - 1 for each row of words: the same that ``uniform.floyd`` returns.

    All values of a row come first, in a loop that the compiler vectorises. Then a bit for each value says whether it is
    taken; only the bits that were set are cleared again.
    """
    count, size = words.shape
    first, taken, values = of - size, np.zeros(of // 64 + 1, np.uint64), np.empty(size, np.uint64)
    for row in range(count):
        for i in range(size):
            values[i] = _high_half(words[row, i], np.uint64(first + i + 1))
        for i in range(size):
            if taken[values[i] >> _SIX] >> (values[i] & _LAST) & _ONE:
                values[i] = np.uint64(first + i)
            taken[values[i] >> _SIX] |= _ONE << (values[i] & _LAST)
            found[row, i] = values[i]
        for i in range(size):
            taken[values[i] >> _SIX] = 0


def _mark(words, start, of, lift, open_from, taken, missing):
    """Set a bit for the value that each word stands for, until no more are missing; return where, and what still is.

    A value is the high half of a word, shifted by ``lift``, times n. At a word whose low half leaves its value open,
    which is from ``open_from`` on, the loop stops as well.
    """
    bound = np.uint64(of)
    for i in range(start, len(words)):
        word = np.uint64(words[i]) << lift
        value = _high_half(word, bound)
        if missing == 0 or word * bound >= open_from:
            return i, missing
        bit = _ONE << (value & _LAST)
        if not taken[value >> _SIX] & bit:
            taken[value >> _SIX] |= bit
            missing -= 1
    return len(words), missing


def _marked(taken, found):
    """Write the values whose bits are set, in increasing order; ``found`` has room for two more.

    Most words have two bits at most. These are written in any case, and counted if they are set: without branches.
    """
    count = 0
    for word in range(len(taken)):
        left = taken[word]
        for _ in range(2):
            found[count] = 64 * word + _place(left)
            count += left != 0
            left &= left - _ONE
        while left:
            found[count] = 64 * word + _place(left)
            count += 1
            left &= left - _ONE


subsets, mark, marked = compiled(_subsets), compiled(_mark), compiled(_marked)


@compiled
def _low_is_open(word, shift):
    """Return whether the threshold of a low part has to be looked at, where the law is flat."""
    return shift > 0 and word >> _THRESHOLD >= _LAST_THRESHOLD


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


@compiled
def below(words, bound, found):
    """Write ⌊bU⌋ for numbers U of two words each, as ``uniform.uniform_below`` does; False if one is open."""
    for i in range(len(found)):
        high, low = _high_half(words[0, i], bound), words[0, i] * bound
        second = _high_half(words[1, i], bound)
        low += second
        if low == _ALL:
            return False
        found[i] = np.int64(high + _ONE if low < second else high)
    return True


@compiled
def radius(words, power, offset, scale):
    """Return the radius and the count of ``knorm.quick_radius``, in doubles; the count is 0 where it is open."""
    a, slope, read, x, error = (9.0 * power - 3) / 9, 1 / math.sqrt(9.0 * power - 3), 0, 0.0, math.inf
    while error == math.inf:
        if read + 3 >= len(words):
            return np.int64(0), 0
        u, v = np.int64(words[read, 0] ^ _SIGN) * 2.0**-63, np.int64(words[read + 1, 0] ^ _SIGN) * 2.0**-63
        s = u * u + v * v
        read += 2
        if s <= 1 + 2.0**-30:
            if not 2.0**-40 < s < 1 - 2.0**-30:
                return np.int64(0), 0
            log = -math.log(s)
            g = math.sqrt(2 * log / s)
            x = u * g
            error = abs(x) * (0.5 * (4 * _EPS + 2.0**-60 / math.sqrt(s)) * (1 + 1 / log) + 16 * _EPS) + 2.0**-62 * g
    root, w = 1 + slope * x, np.float64(words[read + 1, 0])
    spare = 1 - np.float64(words[read, 0]) * 2.0**-64 - SQUEEZE * x**4 / a
    if min(root - 0.5, spare) <= 2.0**-20 or error >= 2.0**-24 or w == 0:
        return np.int64(0), 0
    gamma = a * root * root * root
    error = 3 * (slope * (error + 2 * _EPS * abs(x)) + 0.5 * _EPS * root) / root + 2 * _EPS
    exponential = -math.log(w * 2.0**-64)
    y = scale * gamma - offset
    total, later = y + scale * exponential, 2 * _EPS + 1 / w + _LOG_ERROR * exponential
    tolerance = (1 + 1e-6) * (scale * ((error + 2 * _EPS) * gamma + later) + 2 * _EPS)
    low = math.floor(total - tolerance)
    if low != math.floor(total + tolerance) or not 0 <= low < 2.0**62 or not y + tolerance < low:
        return np.int64(0), 0
    return np.int64(low), read + 2


@compiled
def linf(words, count, scale, found):
    """Write a vector of ``knorm.linf``, of which the first ``count`` words are for the radius; False if it is open."""
    r, read = radius(words[:count].reshape(-1, 2), len(found), 0.5, scale)
    if read == 0 or not below(words[count:].reshape(2, -1), np.uint64(2 * r + 1), found):
        return False
    for i in range(len(found)):
        found[i] -= r
    return True
