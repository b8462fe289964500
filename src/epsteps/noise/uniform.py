"""Uniform integers and uniform subsets, exactly; and many subsets at once for experiments."""

import sys
from importlib.util import find_spec

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.reals import Uniform
from epsteps.problem.grid import wrapped

_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
# Words from which numba is worth importing, where nothing else has imported it yet.
_WORTH_COMPILING = 10_000_000
# Up to here few short words leave a value below it open.
_SHORT = 2**24
# Up to so many integers of two words are quicker in Python's arithmetic.
_FEW = 100
# Marks for each value that is drawn, above which sorting the values is quicker than going through all marks.
_MARKS = 4096


def uniform_below(bits: Bits, words: np.ndarray, bound: int, widen: float = 1.0) -> np.ndarray:
    """Return ⌊bU⌋ for uniform numbers U: uniform on 0, ..., b - 1, modulo 2^64.

    A column of ``words``, one or two of 64 bits, or one of 32, has the first bits of a U. More are drawn where these
    leave the integer open: with probability b/2^64 for one word (b/2^32 if it is short), and about 2^-64 for two,
    whatever the bound. Nothing is rejected. So with two words the work does not tell the bound, which may be secret.
    """
    width = 8 * words.itemsize
    if len(words) == 2 and bound < 2**64 and widen == 1 and "numba" in sys.modules:
        from epsteps.noise import _compiled

        found = np.empty(words.shape[1], np.int64)
        if _compiled.below(words, np.uint64(bound), found):
            return found
    if bound >= 2**width or (len(words) == 2 and words.shape[1] <= _FEW and widen == 1):
        exact = _exact_floors(bits, words, bound)
        return np.array(exact if bound <= 2**63 else [wrapped(integer) for integer in exact], dtype=np.int64)
    if width == 32:
        product = words[0] * np.uint64(bound)
        high, low = product >> _HALF, product & _LOW
    else:
        high, low = _product(words[0], bound)
    room = bound  # bU is at most this far above the product, in units of 2^-width
    if len(words) == 2:
        second, _ = _product(words[1], bound)
        low += second
        high += low < second  # the carry
        room = 2
    result = high.view(np.int64)
    open_from = max(0, 2**width - room * int(widen) + 1)
    for i in np.flatnonzero(low >= np.uint64(open_from)) if open_from < 2**width else ():
        result[i] = wrapped(_exact_floor(_uniform(bits, words[:, i]), bound))
    return result


def ordered_below(bits: Bits, words: np.ndarray, bound: int, widen: float = 1.0) -> np.ndarray:
    """Return the same integers before they are reduced: as Python integers where int64 does not hold them all."""
    if bound <= 2**63:
        return uniform_below(bits, words, bound, widen)
    return np.array(_exact_floors(bits, words, bound), dtype=object)


def _exact_floors(bits: Bits, words: np.ndarray, bound: int) -> list[int]:
    """Return ⌊bU⌋ in Python's integers; those that the words leave open are decided from more bits."""
    width, prefixes = 8 * words.itemsize, words[0].tolist()
    for more in words[1:].tolist():
        prefixes = [prefix << width | word for prefix, word in zip(prefixes, more, strict=True)]
    known, last = width * len(words), bound - 1
    found = [prefix * bound >> known for prefix in prefixes]
    for i, (prefix, value) in enumerate(zip(prefixes, found, strict=True)):
        if prefix * bound + last >> known != value:
            found[i] = _exact_floor(Uniform(bits, prefix, known), bound)
    return found


def _uniform(bits: Bits, words: np.ndarray) -> Uniform:
    prefix, width = 0, 8 * words.itemsize
    for word in words.tolist():
        prefix = prefix << width | word
    return Uniform(bits, prefix, width * len(words))


def _product(words: np.ndarray, bounds: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two words of a product of 64-bit integers, by halves; no partial sum reaches 2^64."""
    bound = np.asarray(bounds, dtype=np.uint64)
    b0, b1 = bound & _LOW, bound >> _HALF
    w0, w1 = words & _LOW, words >> _HALF
    cross = w1 * b0 + ((w0 * b0) >> _HALF)
    other = w0 * b1 + (cross & _LOW)
    return w1 * b1 + (cross >> _HALF) + (other >> _HALF), words * bound


def _exact_floor(uniform: Uniform, bound: int) -> int:
    known = 64
    while True:
        first = uniform.leading(known)
        low, high = first * bound >> known, ((first + 1) * bound - 1) >> known
        if low == high:
            return low
        known *= 2


def uniform_subset(bits: Bits, size: int, of: int) -> np.ndarray:
    """Return a uniform subset of 0, ..., n - 1 in increasing order.

    The first distinct values of independent uniform draws. While some are missing, as many are drawn as are missing, so
    that there are never too many. How often values repeat is independent of which values they are. More than half of
    all values are drawn as the complement of the others. With numba and without it the subsets are the same.
    """
    if 2 * size > of:
        rest = np.ones(of, dtype=bool)
        rest[uniform_subset(bits, of - size, of)] = False
        return np.flatnonzero(rest)
    if of > _MARKS * size:
        return _sorted_subset(bits, size, of)
    if "numba" in sys.modules:
        return _marked_subset(bits, size, of)
    return _dense_subset(bits, size, of) if 16 * size > of else _sorted_subset(bits, size, of)


def _words(bits: Bits, count: int, of: int) -> np.ndarray:
    """Return words for values below n."""
    return bits.short_words(count) if of <= _SHORT else bits.words(count)


def _draws(bits: Bits, count: int, of: int) -> np.ndarray:
    """Return independent uniform values below n."""
    return uniform_below(bits, _words(bits, count, of)[None], of)


def _sorted_subset(bits: Bits, size: int, of: int) -> np.ndarray:
    found = np.empty(0, np.int32 if of <= 2**31 else np.int64)  # half as long, half the time
    while len(found) < size:
        fresh = _draws(bits, size - len(found), of)
        found = np.sort(np.concatenate([found, fresh.astype(found.dtype)]))
        first = np.empty(len(found), dtype=bool)
        first[:1] = True
        np.not_equal(found[1:], found[:-1], out=first[1:])
        found = found[first]
    return found.astype(np.int64)


def _marked_subset(bits: Bits, size: int, of: int) -> np.ndarray:
    """Return the subset by a bit for each value, compiled.

    The operating system's words are drawn with some to spare for values that repeat; those left over are dropped.
    """
    from epsteps.noise import _compiled

    taken, found, missing = np.zeros(of // 64 + 1, np.uint64), np.empty(size + 2, np.int64), size
    while missing:
        spare = 0 if bits.generator is not None else missing * size // of + 8
        words, at = _words(bits, missing + spare, of), 0
        lift = 64 - 8 * words.itemsize
        limits = np.uint64(lift), np.uint64(2**64 - (of << lift) + 1)
        while missing and at < len(words):
            at, missing = _compiled.mark(words, at, of, *limits, taken, missing)
            if missing and at < len(words):
                word, bit = divmod(_exact_floor(_uniform(bits, words[at : at + 1]), of), 64)
                missing -= not int(taken[word]) >> bit & 1
                taken[word] |= np.uint64(1 << bit)
                at += 1
    _compiled.marked(taken, found)
    return found[:size]


def _dense_subset(bits: Bits, size: int, of: int) -> np.ndarray:
    chosen, count = np.zeros(of, dtype=bool), 0
    while count < size:
        chosen[_draws(bits, size - count, of)] = True
        count = int(np.count_nonzero(chosen))
    return np.flatnonzero(chosen)


def quick_subsets(bits: Bits, count: int, size: int, of: int) -> np.ndarray:
    """Return so many subsets of 0, ..., n - 1, one in each row, in no particular order: for experiments only.

    Floyd's algorithm (Bentley and Floyd 1987) for j = n - m, ..., n - 1: a uniform value from 0, ..., j, or j itself if
    that value is taken. A value is the high half of a word times j + 1, so that its probability is off by up to 2^-64:
    nothing that an experiment could see, but not exactly uniform. Private runs draw with ``uniform_subset``.
    With numba and without it the subsets are the same.
    """
    words = bits.words(count * size).reshape(count, size)
    if "numba" not in sys.modules and (words.size < _WORTH_COMPILING or find_spec("numba") is None):
        return floyd(words, of)
    from epsteps.noise import _compiled

    found = np.empty((count, size), dtype=np.int64)
    _compiled.subsets(words, of, found)
    return found


def floyd(words: np.ndarray, of: int) -> np.ndarray:
    """Return the subsets that Floyd's algorithm makes of rows of words, all steps of it at once.

    A value is taken if it came up before, or if it is the j of an earlier step that had to take its j.
    """
    first = of - words.shape[1]
    last = np.arange(first, of)
    values = _product(words, last.astype(np.uint64) + np.uint64(1))[0].view(np.int64)
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    taken = np.zeros(words.shape, dtype=bool)
    np.put_along_axis(taken, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    rows, steps = np.nonzero(values >= first)
    earlier = values[rows, steps] - first
    for row, step, before in zip(rows.tolist(), steps.tolist(), earlier.tolist(), strict=True):
        if taken[row, before]:
            taken[row, step] = True
    return np.where(taken, last, values)
