"""Floyd's algorithm, compiled: importing this module needs numba."""

import numba
import numpy as np

_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(32)
_ONE, _SIX, _LAST = np.uint64(1), np.uint64(6), np.uint64(63)


def _subsets(words, of, found):
    """Write a subset of 0, ..., n - 1 for each row of words: the same that ``uniform.floyd`` returns.

    All values of a row come first, in a loop that the compiler vectorises. Then a bit for each value says whether it is
    taken; only the bits that were set are cleared again.
    """
    count, size = words.shape
    first, taken, values = of - size, np.zeros(of // 64 + 1, np.uint64), np.empty(size, np.uint64)
    for row in range(count):
        for i in range(size):
            word, bound = words[row, i], np.uint64(first + i + 1)
            b0, b1, w0, w1 = bound & _LOW, bound >> _HALF, word & _LOW, word >> _HALF
            cross = w1 * b0 + ((w0 * b0) >> _HALF)
            other = w0 * b1 + (cross & _LOW)
            values[i] = w1 * b1 + (cross >> _HALF) + (other >> _HALF)
        for i in range(size):
            if taken[values[i] >> _SIX] >> (values[i] & _LAST) & _ONE:
                values[i] = np.uint64(first + i)
            taken[values[i] >> _SIX] |= _ONE << (values[i] & _LAST)
            found[row, i] = values[i]
        for i in range(size):
            taken[values[i] >> _SIX] = 0


try:
    subsets = numba.njit(_subsets, cache=True, nogil=True)
except RuntimeError:  # no writable place
    subsets = numba.njit(_subsets, nogil=True)
