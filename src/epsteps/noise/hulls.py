"""Noise shaped like the exact hull of records with one-hot blocks; exactly.

As in ``shaped`` an integer is m or -1 - m with m >= 0, and then up or down. For integers z let A(z) be the largest sum
of m over the ups of a part, B(z) the largest over the downs, and s(z) the largest m of a signed coordinate. With
q = e^(-1/t) the law is

    P(z) ~ sum of q^(λ+μ) over the integers λ >= A(z), μ >= B(z) with λ + μ >= s(z),

which without signed coordinates is ~ q^(A(z) + B(z)).

A change D of gauge a costs at most a/t. Proof: with g = A + B there are n - g + 1 pairs with λ + μ = n >= g, so that
P(z) is ~ F(g, s) = sum of (n - g + 1) q^n over n >= max(g, s), which falls in g and in s, and F(g + a, s + a) =
q^a F(g, s). For integers z and D, what z + D has above 0 is at most what z has plus what D has above 0; likewise below.
So A grows by at most the largest P_b of D, B by the largest Q_b, g by their sum, and s by the largest |D_s|: both by at
most a, and P(z + D) >= q^a P(z).

Sampling: a part of k coordinates has C(k,j) C(λ+j, j) C(μ+k-j, k-j) points with j ups within the levels λ, μ. A signed
coordinate has 2(λ+μ+1), twice (λ + 1) + μ, which is written as if it were up or down. The numbers of ups are drawn
first, with weights ~ J! (d-J)! times the product of C(k,j)² over the parts, where J is their sum; then λ and μ as sums
of J + 1 and of d - J + 1 geometric variables, whose laws are ~ (λ+1)...(λ+J) q^λ/J! and so on, with the same
normaliser for every J. The ratio of what is wanted to what is proposed is the product of (λ+1)...(λ+j) over the parts,
over (λ+1)...(λ+J), and the same for μ: at most 1, and for large t nearly so. All are drawn again where it rejects.
Given the levels and the ups, the coordinates are uniform.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import accumulate

import numpy as np
from scipy.special import gammaincinv, gammaln

from epsteps.noise.bits import Bits
from epsteps.noise.laplace import whole_geometric, words_for
from epsteps.noise.reals import Uniform, split
from epsteps.noise.samplers import SAMPLERS, Sampler, Uniforms, by_column, checked_ball, each_column
from epsteps.noise.shaped import simplices
from epsteps.noise.uniform import uniform_below
from epsteps.problem.grid import wrapped
from epsteps.problem.shapes import Hull

_PATIENCE = 4.0  # at the smallest scale levels are accepted once in about e^4 times


def hull_noise(bits: Bits, layout: "Layout", scale: float, widen: float = 1.0) -> np.ndarray:
    """Return integers with the law above, modulo 2^64."""
    while True:
        signs = layout.signs(bits)
        found = _geometrics(bits, scale, layout.d + 2, widen)
        ups = signs.up.total + 1
        above, below = sum(found[:ups]), sum(found[ups:])
        if is_accepted(Uniform(bits, int(bits.words(1)[0]), 64), signs, above, below):
            return points(bits, layout, signs, above, below, widen)


def is_accepted(uniform: Uniform, signs: "Signs", above: int, below: int) -> bool:
    """Accept with the exact ratio, a product of factors 1 - x: at least 1 - sum of x, which is mostly enough.

    In increasing order the offsets n_1, n_2, ... of the numerator have n_i <= i, and (λ + n_i)/(λ + i) is at least
    1 - (i - n_i)/(λ + 1). A signed coordinate has λ + 1 up, and μ down.
    """
    whole = (above + 1) * (below + 1)
    missing = signs.up.missing(1) * (below + 1) + signs.down.missing(0) * (above + 1)
    if uniform.is_below(whole - missing, whole):
        return True
    first, second = signs.up.fraction(above, 1), signs.down.fraction(below, 0)
    return uniform.is_below(first[0] * second[0], first[1] * second[1])


def points(bits: Bits, layout: "Layout", signs: "Signs", above: int, below: int, widen: float = 1.0) -> np.ndarray:
    """Return a uniform one of the points with these signs within the levels, modulo 2^64."""
    z = np.empty(layout.d, np.int64)
    for half, level, mask in ((signs.up, above, 0), (signs.down, below, -1)):
        for j, columns in half.columns.items():
            z[columns] = simplices(bits, (len(columns) // j, j), level, widen).reshape(-1) ^ mask
    if len(layout.signed):
        size, words = above + below + 1, bits.words(2 * len(layout.signed)).reshape(2, -1)
        z[layout.signed] = uniform_below(bits, words, 2 * size, widen) - np.array([wrapped(size)])
    return z


def _geometrics(bits: Bits, scale: float, count: int, widen: float) -> list[int]:
    """Return independent integers with P(k) ~ e^(-k/t), whole: their sums are compared before anything is reduced."""
    scales = np.broadcast_to(np.float64(scale), (count,))
    reduced, shift = split(scales)
    return whole_geometric(bits, words_for(bits, shift, 1)[0], scales, reduced, shift, widen)


@dataclass(frozen=True, eq=False)
class Half:
    """The coordinates of one sign: for each j the columns of parts with j of them, one part after the other.

    ``signed`` is the number of signed coordinates that are counted on this side.
    """

    columns: dict[int, np.ndarray]
    signed: int

    @property
    def total(self) -> int:
        """How many there are."""
        return self.signed + sum(len(columns) for columns in self.columns.values())

    def missing(self, offset: int) -> int:
        """Return the sum of 1, ..., J less that of 1, ..., j for each part, and less ``offset`` per signed one."""
        held = sum(len(columns) * (j + 1) // 2 for j, columns in self.columns.items())
        return self.total * (self.total + 1) // 2 - held - offset * self.signed

    def fraction(self, level: int, offset: int) -> tuple[int, int]:
        """Return the product of (level+1)...(level+j) over the parts, and (level+1)...(level+J)."""
        held = (level + offset) ** self.signed
        for j, columns in self.columns.items():
            held *= _rising(level, j) ** (len(columns) // j)
        return held, _rising(level, self.total)


@dataclass(frozen=True, eq=False)
class Signs:
    """Which coordinates are up, and which are down."""

    up: Half
    down: Half


@lru_cache(maxsize=16)
def layout_of(hull: Hull) -> "Layout":
    """Return the columns of a hull, parts of one together."""
    singles = [part[0] for part in hull.parts if len(part) == 1]
    blocks = tuple(np.array(part) for part in hull.parts if len(part) > 1)
    return Layout(hull.d, blocks, np.array(singles, dtype=int), np.array(hull.signed, dtype=int))


@dataclass(frozen=True, eq=False)
class Layout:
    """The columns of each block, those of parts of one, and the signed ones; how many of them are up.

    Groups are the blocks, of which each has weights C(k,j)², and last all others together, with weights C(k,j).
    """

    d: int
    blocks: tuple[np.ndarray, ...]
    singles: np.ndarray
    signed: np.ndarray

    @cached_property
    def least_scale(self) -> float:
        """The scale from which levels are accepted often enough: both are about td/2."""
        alone = len(self.singles) + len(self.signed)
        held = sum(len(block) ** 2 for block in self.blocks) + alone
        return max(1.0, (self.d**2 - held) / (2 * _PATIENCE * self.d))

    @cached_property
    def shares(self) -> np.ndarray:
        """The probabilities of J = 0, ..., d ups, before any are rejected, as floats."""
        return np.diff([count / self._totals[-1] for count in self._totals], prepend=0.0)

    def signs(self, bits: Bits) -> Signs:
        """Return random signs, with the weights by which they are proposed."""
        order, counts = self._shuffled(bits), self._ups(bits)
        up: dict[int, list[np.ndarray]] = {}
        down: dict[int, list[np.ndarray]] = {}
        start = 0
        for block, j in zip(self.blocks, counts, strict=False):
            stop = start + len(block)
            for half, columns in ((up, order[start : start + j]), (down, order[start + j : stop])):
                if len(columns):
                    half.setdefault(len(columns), []).append(columns)
            start = stop
        alone = start + counts[-1]
        return Signs(self._half(up, order[start:alone]), self._half(down, order[alone:]))

    def _half(self, parts: dict[int, list[np.ndarray]], alone: np.ndarray) -> Half:
        singles = alone[~self._is_signed[alone]]
        if len(singles):
            parts.setdefault(1, []).append(singles)
        return Half({j: np.concatenate(columns) for j, columns in parts.items()}, len(alone) - len(singles))

    def _shuffled(self, bits: Bits) -> np.ndarray:
        """Return the columns, group after group, each group in uniform order: that of random words without a tie."""
        while True:
            words = bits.words(self.d)
            order = np.lexsort((words, self._groups))
            words = words[order]
            if not np.any(words[1:] == words[:-1]):
                return self._columns[order]

    def _ups(self, bits: Bits) -> list[int]:
        """Return how many are up in each group."""
        uniforms = [Uniform(bits, word, 64) for word in bits.words(len(self.blocks) + 1).tolist()]
        left, found = index(uniforms[-1], self._totals), []
        for block, rest, uniform in zip(self.blocks, self._rests, uniforms, strict=False):
            least = max(0, left - len(rest) + 1)
            weights = _squares(len(block))[least : left + 1]
            j = least + index(uniform, list(accumulate(w * rest[left - least - i] for i, w in enumerate(weights))))
            found.append(j)
            left -= j
        return [*found, left]

    @cached_property
    def _rests(self) -> list[list[int]]:
        """For each block the weights of 0, 1, ... ups in all groups after it, together."""
        alone = self.d - sum(len(block) for block in self.blocks)
        rests = [[math.comb(alone, j) for j in range(alone + 1)]]
        for block in self.blocks[:0:-1]:
            rests.append(_product(rests[-1], _squares(len(block))))
        return rests[::-1]

    @cached_property
    def _totals(self) -> list[int]:
        """The weights of J = 0, ..., d ups, added up."""
        whole = _product(self._rests[0], _squares(len(self.blocks[0]))) if self.blocks else self._rests[0]
        factorials = list(accumulate(range(1, self.d + 1), int.__mul__, initial=1))
        return list(accumulate(w * factorials[j] * factorials[self.d - j] for j, w in enumerate(whole)))

    @cached_property
    def _columns(self) -> np.ndarray:
        return np.concatenate([*self.blocks, self.singles, self.signed])

    @cached_property
    def _groups(self) -> np.ndarray:
        sizes = [len(block) for block in self.blocks]
        return np.repeat(np.arange(len(sizes) + 1), [*sizes, self.d - sum(sizes)])

    @cached_property
    def _is_signed(self) -> np.ndarray:
        return np.isin(np.arange(self.d), self.signed)


def index(uniform: Uniform, totals: Sequence[int]) -> int:
    """Return i with a probability ~ its weight, for the sums of all weights; bits are drawn until it is certain."""
    known = 64
    while True:
        first, whole = uniform.leading(known), totals[-1]
        low = bisect_right(totals, first * whole >> known)
        if (first + 1) * whole <= totals[low] << known:
            return low
        known *= 2


@lru_cache(maxsize=64)
def _squares(k: int) -> list[int]:
    return [math.comb(k, j) ** 2 for j in range(k + 1)]


def _product(first: list[int], second: list[int]) -> list[int]:
    found = [0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            found[i + j] += a * b
    return found


def _rising(level: int, count: int) -> int:
    return math.prod(range(level + 1, level + count + 1))


def float_hull(uniform: Uniforms, shape: Hull, form: tuple[int, ...]) -> np.ndarray:
    """Return vectors with the law above at a large scale, not exact: levels first, then each part on its own."""
    *others, d, columns = form
    each = (*others, 1, columns)
    totals = np.cumsum(layout_of(shape).shares)
    ups = np.searchsorted(totals[:-1], uniform(each), side="right")
    above, below = gammaincinv(ups + 1, uniform(each)), gammaincinv(d - ups + 1, uniform(each))
    z = np.empty(form)
    for size in {len(part) for part in shape.parts}:
        rows = np.array([part for part in shape.parts if len(part) == size])
        z[..., rows, :] = _float_part_points(uniform, rows.shape, above, below)
    if shape.signed:
        z[..., shape.signed, :] = (2 * uniform((*others, len(shape.signed), columns)) - 1) * (above + below)
    return z


def _float_part_points(uniform: Uniforms, shape: tuple[int, int], above: np.ndarray, below: np.ndarray) -> np.ndarray:
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


def _integers(bits: Bits, shape: Hull, scales: np.ndarray) -> np.ndarray:
    """Return noise of one scale for each column, as fine as levels are accepted often enough."""
    layout = layout_of(shape)
    scale = partial(checked_ball, shape.d, least=layout.least_scale)
    return by_column(lambda t: hull_noise(bits, layout, scale(t)), each_column(scales).tolist(), scales.shape)


SAMPLERS[Hull] = Sampler(_integers, float_hull)
