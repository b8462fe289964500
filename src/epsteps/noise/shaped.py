"""Noise vectors shaped like a body, P(z) ~ exp(-f(z)/t), where adding D changes f by at most the gauge of D; exactly.

f is the largest over the parts of the body. On the hull it is the range of (0, z_1, ..., z_k), the gauge itself. On a
block it is m_1 + ... + m_k where each integer is m or -1 - m with m >= 0: the points with a sum of at most r are then
2^k times the ways to place k bars among r stars, whatever r is, which is not so for |z|_1.

As in ``knorm`` a radius r is drawn first, with P(r) ~ N(r) e^(-r/t) for the number N(r) of points with f <= r, and then
a uniform one of these, part by part: P(z) ~ sum of e^(-r/t) over r >= f(z), which is ~ e^(-f(z)/t).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from scipy.special import gammaincinv

from epsteps.noise import knorm
from epsteps.noise.bits import Bits
from epsteps.noise.knorm import WORDS, Tape, integer_radius
from epsteps.noise.reals import Uniform
from epsteps.noise.samplers import SAMPLERS, Sampler, Uniforms, by_column, checked_ball, each_column
from epsteps.noise.uniform import ordered_below, uniform_below
from epsteps.problem.grid import wrapped
from epsteps.problem.shapes import Body

_UNIT = 1024  # offsets are counted in fractions of this
_PATIENCE = 4.0  # at the smallest scale a radius is accepted once in about e^4 times


def shaped(bits: Bits, parts: "Parts", scale: float, widen: float = 1.0) -> np.ndarray:
    """Return integers with P(z) ~ exp(-f(z)/t), modulo 2^64; f is the gauge where the body is a hull or a cube."""
    if parts.is_cube:
        return knorm.linf(bits, parts.d, scale, widen)
    if not parts.blocks:
        return knorm.hull(bits, parts.d, scale / 2, widen)
    return points(bits, parts, parts.radius(bits, scale, widen), widen)


@lru_cache(maxsize=64)
def parts_of(body: Body) -> "Parts":
    """Return the columns of a body, blocks of one size together."""
    sizes = sorted({len(block) for block in body.blocks})
    blocks = tuple(np.array([block for block in body.blocks if len(block) == size]) for size in sizes)
    return Parts(body.d, np.array(body.hull, dtype=int), blocks)


@dataclass(frozen=True, eq=False)
class Parts:
    """A hull of k columns, and for each size of blocks an array with a row of columns for each block.

    Up to a constant, N(r) = H(r) × product of (r + 1)...(r + k) over the blocks, of degree d, where H(r) =
    ((r + 1)^(k+1) - r^(k+1))/(k + 1) is the mean of (r + s)^k over 0 <= s <= 1: between (r + 1/2)^k and (r + 1)^k.
    """

    d: int
    hull: np.ndarray
    blocks: tuple[np.ndarray, ...]

    @cached_property
    def is_cube(self) -> bool:
        """Whether all coordinates are blocks of their own."""
        return not len(self.hull) and all(rows.shape[1] == 1 for rows in self.blocks)

    @cached_property
    def _sums(self) -> int:
        """The sum of the offsets i of all factors r + i of the blocks."""
        return sum(len(rows) * rows.shape[1] * (rows.shape[1] + 1) // 2 for rows in self.blocks)

    @cached_property
    def offset(self) -> int:
        """The offset a, times 1024: not below the mean of all offsets (1 for those of the hull).

        Hence N(r) <= (r + a)^d, as a geometric mean is at most the arithmetic one.
        """
        return -(-_UNIT * (len(self.hull) + self._sums) // self.d)

    @cached_property
    def spread(self) -> tuple[int, int]:
        """The sums of a - i and of (a - i)² over all offsets (i = 1/2 for the hull), times 1024 and 1024²."""
        a, half = self.offset, _UNIT // 2
        mean = self.d * a - _UNIT * self._sums - half * len(self.hull)
        square = len(self.hull) * (a - half) ** 2
        for rows in self.blocks:
            square += len(rows) * sum((a - _UNIT * i) ** 2 for i in range(1, rows.shape[1] + 1))
        return mean, square

    @cached_property
    def least_scale(self) -> float:
        """The scale from which radii are accepted often enough: (r + a) is about td."""
        return max(1.0, float(np.sqrt(self.spread[1] / (2 * _PATIENCE))) / (_UNIT * self.d))

    def radius(self, bits: Bits, scale: float, widen: float = 1.0) -> int:
        """Return r with P(r) ~ N(r) e^(-r/t): from (r + a)^d e^(-r/t), accepted with probability N(r)/(r + a)^d."""
        shift = -(-self.offset // _UNIT) - 1
        while True:
            tape = Tape(bits, bits.words(WORDS))
            r = integer_radius(tape, self.d, self.offset / _UNIT - shift, scale, widen) - shift
            if r >= 0 and self._is_accepted(tape.next(), r):
                return r

    def _is_accepted(self, uniform: Uniform, r: int) -> bool:
        """With x = (i - a)/(r + a) >= -1/2, ln(1 + x) >= x - x²: N/(r + a)^d >= 1 - sum of (x² - x), mostly enough."""
        base, (mean, square) = _UNIT * r + self.offset, self.spread
        if base >= 2 * self.offset and uniform.is_below(base**2 - mean * base - square, base**2):
            return True
        k = len(self.hull)
        points = ((r + 1) ** (k + 1) - r ** (k + 1)) * _UNIT**self.d
        for rows in self.blocks:
            for i in range(1, rows.shape[1] + 1):
                points *= (r + i) ** len(rows)
        return uniform.is_below(points, (k + 1) * base**self.d)


def points(bits: Bits, parts: Parts, r: int, widen: float = 1.0) -> np.ndarray:
    """Return a uniform one of the points with f <= r, modulo 2^64."""
    z = np.empty(parts.d, np.int64)
    if len(parts.hull):
        z[parts.hull] = _hull_point(bits, len(parts.hull), r, widen)
    for rows in parts.blocks:
        z[rows] = _block_points(bits, rows.shape, r, widen)
    return z


def _block_points(bits: Bits, shape: tuple[int, int], r: int, widen: float) -> np.ndarray:
    """Return uniform points with m_1 + ... + m_k <= r, one in each row, and signs."""
    m = simplices(bits, shape, r, widen)
    signs = np.unpackbits(bits.words(-(-m.size // 64)).view(np.uint8))[: m.size].reshape(shape)
    return m ^ -signs.astype(np.int64)  # -1 - m where the sign is set


def simplices(bits: Bits, shape: tuple[int, int], r: int, widen: float) -> np.ndarray:
    """Return uniform m_1, ..., m_k >= 0 with a sum of at most r, modulo 2^64, in each row."""
    m = whole_simplices(bits, shape, r, widen)
    return m if m.dtype == np.int64 else np.vectorize(wrapped, otypes=[np.int64])(m)


def whole_simplices(bits: Bits, shape: tuple[int, int], r: int, widen: float = 1.0) -> np.ndarray:
    """Return the same before they are reduced: as Python integers where int64 does not hold them all.

    They are the gaps between k of r + k places. Places that coincide are drawn again, one by one: how often that
    happens tells next to nothing about the radius.
    """
    count, k = shape
    places = ordered_below(bits, bits.words(2 * count * k).reshape(2, -1), r + k, widen).reshape(shape)
    places.sort(axis=1)
    for row in np.flatnonzero((places[:, 1:] == places[:, :-1]).any(axis=1)):
        places[row] = distinct(bits, places[row], r + k)
    return np.diff(places, axis=1, prepend=-1) - 1


def distinct(bits: Bits, places: np.ndarray, bound: int) -> np.ndarray:
    """Return a uniform subset, which begins with the values that are there."""
    size, found = len(places), np.unique(places)
    while len(found) < size:
        fresh = ordered_below(bits, bits.words(2 * (size - len(found))).reshape(2, -1), bound)
        found = np.unique(np.concatenate([found, fresh]))
    return found


def _hull_point(bits: Bits, k: int, r: int, widen: float) -> np.ndarray:
    """Return a uniform z of range(0, z_1, ..., z_k) <= r: z_j = w_j - w_0 for one w in {0, ..., r}^(k+1) with a zero.

    If w_i is the first zero, the entries before it are uniform on 1, ..., r and those after it on 0, ..., r.
    """
    first, words = _first_zero(bits, k, r), bits.words(2 * (k + 1)).reshape(2, -1)
    w = np.zeros(k + 1, np.int64)
    w[:first] = uniform_below(bits, words[:, :first], r, widen) + 1
    w[first + 1 :] = uniform_below(bits, words[:, first + 1 :], r + 1, widen)
    return w[1:] - w[0]


def _first_zero(bits: Bits, k: int, r: int) -> int:
    """Return i = 0, ..., k with P(i) ~ r^i (r + 1)^(k-i): a uniform i is accepted with (1 - 1/(r+1))^i >= 1 - i/(r+1).

    At the radii of a large scale t about one in 2t is not.
    """
    while True:
        words = bits.words(3)
        i, uniform = int(uniform_below(bits, words[:2, None], k + 1)[0]), Uniform(bits, int(words[2]), 64)
        if uniform.is_below(r + 1 - i, r + 1) or uniform.is_below(r**i, (r + 1) ** i):
            return i


def float_shaped(uniform: Uniforms, shape: Body, form: tuple[int, ...]) -> np.ndarray:
    """Return vectors of density ~ exp(-gauge(z)): a Gamma(d + 1) radius times a uniform point; not exact."""
    *others, d, columns = form
    z, parts = np.empty(form), parts_of(shape)
    if len(parts.hull):
        z[..., parts.hull, :] = _float_hull_points(uniform, len(parts.hull), (*others, columns))
    for rows in parts.blocks:
        z[..., rows, :] = _float_block_points(uniform, rows.shape, (*others, columns))
    return z * gammaincinv(d + 1, uniform((*others, 1, columns)))


def _float_hull_points(uniform: Uniforms, k: int, others: tuple[int, ...]) -> np.ndarray:
    """Return z_j = w_j - w_0 for uniform w_0, ..., w_k of which a random one is 0."""
    w = uniform((*others[:-1], k + 1, others[-1]))
    zero = np.floor((k + 1) * uniform((*others[:-1], 1, others[-1]))).astype(np.int64)
    np.put_along_axis(w, np.minimum(zero, k), 0.0, axis=-2)
    return w[..., 1:, :] - w[..., :1, :]


def _float_block_points(uniform: Uniforms, shape: tuple[int, int], others: tuple[int, ...]) -> np.ndarray:
    """Return uniform points of cross-polytopes: k of k + 1 exponentials over the sum of all, with signs."""
    count, k = shape
    signed = 2 * uniform((*others[:-1], count, k + 1, others[-1])) - 1
    exponential = -np.log(np.abs(signed))
    shares = exponential / exponential.sum(axis=-2, keepdims=True)
    return np.sign(signed[..., :k, :]) * shares[..., :k, :]


def _integers(bits: Bits, shape: Body, scales: np.ndarray) -> np.ndarray:
    """Return noise of one scale for each column, as fine as radii are accepted often enough."""
    parts = parts_of(shape)
    scale = partial(checked_ball, shape.d, least=parts.least_scale)
    return by_column(lambda t: shaped(bits, parts, scale(t)), each_column(scales).tolist(), scales.shape)


SAMPLERS[Body] = Sampler(_integers, float_shaped)
