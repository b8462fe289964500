"""Subsets, compiled: Floyd's algorithm, and the distinct ones of values. Importing this module needs numba."""

from typing import Any

import numba
import numpy as np

_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(32)
_ONE, _SIX, _LAST = np.uint64(1), np.uint64(6), np.uint64(63)
# The top six bits of a power of two times this, a sequence of de Bruijn, say which power it is.
_DE_BRUIJN, _TOP = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
_PLACES = np.empty(64, np.int64)
_PLACES[[(int(_DE_BRUIJN) << place) % 2**64 >> 58 for place in range(64)]] = range(64)


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
