"""Noise that adds up to 0 over the classes, for tilts (``problem.balanced``).

Blocks: integers z that add up to 0 over the k classes have exactly P(z) ~ exp(-|z|/t), where |z| is the largest over
the blocks of the sum of s_f over their features f, and s_f is what the positive entries of feature f add up to. As in
``shaped`` a radius r is drawn first, and then a uniform one of the points with |z| <= r.

Sampling: a feature with s > 0 and a given set of a positive entries has C(s-1, a-1) C(s+k-a-1, k-a-1) points, as both
the positive entries and the others, of which some may be 0, are compositions of s. With s = 0 there is one. Proposed is
an s that is the sum of k - 1 numbers >= 0, in C(s+k-2, k-2) ways. So a block of m features is proposed as a block of
(k - 1) m coordinates of ``shaped`` without their signs, and r by the law of such blocks. Then a set of a classes is
proposed for each feature, with weight C(k-2, a-1), so that a has the weight C(k, a) C(k-2, a-1); and all is accepted
with the product over the features of

    (s - 1)...(s - a + 1) (s + 1)...(s + k - a - 1) / ((s + 1)...(s + k - 2)),

which is at most 1, and for large t nearly so. Where s = 0 the set of the first class alone, which has weight 1, is
accepted, and no other. Given s and the set, both compositions are uniform. So a point of a feature comes with
C(s+k-2, k-2) times the weight and the ratio, over the number of its compositions: this is 1 for every point. All is
drawn again where it is rejected.

Gaussian and L2 noise: if g is a Gaussian vector, g less its mean over the classes is one in the space V. Of g, rounded
to integers, the sum over the classes is taken off: its k-th part, rounded down, from all, and 1 more from the first
few, as many as are left over. This is within √k in each feature of the projection of g: √k/2 is rounding, and as much
is left over, as the square for e classes is e (1 - e/k) <= k/4. The projection is the tilt of the theorem, and that the
draw is so near to it is all that is used of the draw.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
from scipy.special import gammaincinv

from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import float_ellipsoid, float_gaussian, quick_gaussian
from epsteps.noise.hulls import index
from epsteps.noise.knorm import l2
from epsteps.noise.reals import Uniform
from epsteps.noise.samplers import (
    SAMPLERS,
    Sampler,
    Uniforms,
    by_column,
    checked_ball,
    checked_scale,
    each_column,
    sampler_of,
)
from epsteps.noise.shaped import Parts, distinct, whole_simplices
from epsteps.noise.uniform import ordered_below
from epsteps.problem.balanced import (
    Balanced,
    BalancedBlocks,
    BalancedEllipsoid,
    BalancedL1,
    BalancedL2,
    BalancedSphere,
)
from epsteps.problem.grid import wrapped


def blocks_noise(bits: Bits, layout: "Layout", scale: float, widen: float = 1.0) -> np.ndarray:
    """Return integers with the law above, modulo 2^64: one row for each feature, one column for each class."""
    while True:
        sums = layout.sums(bits, layout.parts.radius(bits, scale, widen), widen)
        order, counts = _orders(bits, layout.size, layout.classes), layout.counts(bits)
        if is_accepted(Uniform(bits, int(bits.words(1)[0]), 64), layout.classes, sums, counts, order[:, 0]):
            z = np.zeros((layout.size, layout.classes), np.int64)
            for row, s, a, classes in zip(z, sums, counts, order, strict=True):
                if s:
                    row[classes] = _entries(bits, s, a, layout.classes)
            return z


def is_accepted(uniform: Uniform, k: int, sums: list[int], counts: list[int], first: np.ndarray) -> bool:
    """Accept with the exact ratio, a product of factors 1 - x: at least 1 - sum of x, which is mostly enough.

    In the order of their size the factors s + n_i above have n_i <= i, and (s + n_i)/(s + i) >= 1 - (i - n_i)/(s + 1).
    """
    if any(s < a and (s, a, place) != (0, 1, 0) for s, a, place in zip(sums, counts, first.tolist(), strict=True)):
        return False
    missing = [_triangle(k - 2) - _triangle(k - a - 1) + _triangle(a - 1) for a in counts]
    lost = sum((m << 64) // (s + 1) + 1 for s, m in zip(sums, missing, strict=True))
    if uniform.is_below((1 << 64) - lost, 1 << 64):
        return True
    held = whole = 1
    for s, a in zip(sums, counts, strict=True):
        if s:
            held *= math.prod(range(s - a + 1, s)) * math.prod(range(s + 1, s + k - a))
            whole *= math.prod(range(s + 1, s + k - 1))
    return uniform.is_below(held, whole)


@lru_cache(maxsize=16)
def layout_of(shape: BalancedBlocks) -> "Layout":
    """Return how the sums of a shape's features are drawn: blocks of one size together."""
    degree, sizes = shape.classes - 1, sorted({len(block) for block in shape.blocks})
    features = tuple(np.array([block for block in shape.blocks if len(block) == size]) for size in sizes)
    columns = tuple((rows[:, :, None] * degree + np.arange(degree)).reshape(len(rows), -1) for rows in features)
    return Layout(shape.classes, shape.size, features, Parts(shape.free, np.empty(0, int), columns))


@dataclass(frozen=True, eq=False)
class Layout:
    """The features of each block, blocks of one size in one array; and the blocks of ``shaped`` that are proposed."""

    classes: int
    size: int
    features: tuple[np.ndarray, ...]
    parts: Parts

    def sums(self, bits: Bits, r: int, widen: float) -> list[int]:
        """Return what the positive entries of each feature add up to, as is proposed within this radius."""
        sums: list[int] = [0] * self.size
        for rows in self.features:
            m = whole_simplices(bits, (len(rows), rows.shape[1] * (self.classes - 1)), r, widen)
            found = m.reshape(rows.size, self.classes - 1).sum(axis=1)
            for feature, s in zip(rows.reshape(-1).tolist(), found.tolist(), strict=True):
                sums[feature] = s
        return sums

    def counts(self, bits: Bits) -> list[int]:
        """Return how many entries of each feature are proposed to be positive."""
        return [1 + index(Uniform(bits, word, 64), self._totals) for word in bits.words(self.size).tolist()]

    @cached_property
    def _totals(self) -> list[int]:
        """The weights of 1, 2, ... positive entries, added up."""
        k = self.classes
        return list(accumulate(math.comb(k, a) * math.comb(k - 2, a - 1) for a in range(1, k)))


def _orders(bits: Bits, rows: int, classes: int) -> np.ndarray:
    """Return the classes in uniform order, in each row: that of random words without a tie."""
    while True:
        words = bits.words(rows * classes).reshape(rows, classes)
        order = np.argsort(words, axis=1)
        ranked = np.take_along_axis(words, order, axis=1)
        if not np.any(ranked[:, 1:] == ranked[:, :-1]):
            return order


def _entries(bits: Bits, s: int, a: int, classes: int) -> list[int]:
    """Return a positive entries that add up to s, and others of at most 0 that add up to -s, both uniform; wrapped."""
    above = [1 + m for m in _composition(bits, s - a, a)]
    below = [-m for m in _composition(bits, s, classes - a)]
    return [wrapped(entry) for entry in (*above, *below)]


def _composition(bits: Bits, total: int, parts: int) -> list[int]:
    """Return so many numbers >= 0 that add up to the total, uniformly: the gaps between one fewer places."""
    bound, count = total + parts - 1, parts - 1
    places = ordered_below(bits, bits.words(2 * count).reshape(2, -1), bound) if count else np.empty(0, np.int64)
    found = sorted(set(places.tolist()))
    if len(found) < count:
        found = distinct(bits, places, bound).tolist()
    return [after - before - 1 for before, after in zip([-1, *found], [*found, bound], strict=True)]


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def balanced(z: np.ndarray, classes: int) -> np.ndarray:
    """Return integers, one block after the other, that add up to 0 over the classes, as said above."""
    blocks = z.reshape(classes, -1)
    whole, left = np.divmod(blocks.sum(axis=0), classes)
    return (blocks - whole - (np.arange(classes)[:, None] < left)).reshape(-1)


def _checked(shape: Balanced, scales: np.ndarray, least: float) -> list[float]:
    """Return the scale of each column, or raise if it is too fine or too coarse."""
    columns = each_column(checked_scale(scales, least)).tolist()
    for t in columns:
        checked_ball(shape.d, t * shape.classes)
    return columns


def _blocks(bits: Bits, shape: BalancedBlocks, scales: np.ndarray) -> np.ndarray:
    layout = layout_of(shape)
    columns = _checked(shape, scales, layout.parts.least_scale)
    return by_column(lambda t: blocks_noise(bits, layout, t).T.reshape(-1), columns, scales.shape)


def _l1(bits: Bits, shape: BalancedL1, scales: np.ndarray) -> np.ndarray:
    """Half of the norm is the sum of s_f: noise of half the scale."""
    return _blocks(bits, shape.halves, scales / 2)


def _l2(bits: Bits, shape: BalancedL2, scales: np.ndarray) -> np.ndarray:
    def draw(t: float) -> np.ndarray:
        return balanced(l2(bits, shape.d, t, free=shape.free), shape.classes)

    return by_column(draw, _checked(shape, scales, 1.0), scales.shape)


def _sphere(bits: Bits, shape: BalancedSphere, scales: np.ndarray) -> np.ndarray:
    def draw(t: float) -> np.ndarray:
        return balanced(quick_gaussian(bits, np.full(shape.d, t)), shape.classes)

    return by_column(draw, _checked(shape, scales, 1.0), scales.shape)


def _ellipsoid(bits: Bits, shape: BalancedEllipsoid, scales: np.ndarray) -> np.ndarray:
    inner = shape.ellipsoid

    def draw(t: float) -> np.ndarray:
        copies = sampler_of(inner).integers(bits, inner, np.full((shape.size, shape.classes), t))
        return balanced(copies.T.reshape(-1), shape.classes)

    return by_column(draw, _checked(shape, scales, 1.0), scales.shape)


def float_blocks(uniform: Uniforms, shape: BalancedBlocks, form: tuple[int, ...]) -> np.ndarray:
    """Return vectors of density ~ exp(-|z|): a Gamma(D + 1) radius times a uniform point; not exact."""
    (*others, _, columns), k, size = form, shape.classes, shape.size
    sums = -np.log(uniform((*others, k - 1, size, columns))).sum(axis=-3)
    for block in shape.blocks:
        rest = -np.log(uniform((*others, 1, columns)))
        sums[..., list(block), :] /= sums[..., list(block), :].sum(axis=-2, keepdims=True) + rest
    sums *= gammaincinv(shape.free + 1, uniform((*others, 1, columns)))
    totals = layout_of(shape)._totals
    counts = 1 + np.searchsorted(np.array(totals[:-1]) / totals[-1], uniform((*others, size, columns)), side="right")
    order = np.argsort(np.argsort(uniform((*others, k, size, columns)), axis=-3), axis=-3)
    is_up, each = order < counts[..., None, :, :], -np.log(uniform((*others, k, size, columns)))
    up, down = np.where(is_up, each, 0.0), np.where(is_up, 0.0, each)
    z = sums[..., None, :, :] * (up / up.sum(axis=-3, keepdims=True) - down / down.sum(axis=-3, keepdims=True))
    return z.reshape(form)


def float_l1(uniform: Uniforms, shape: BalancedL1, form: tuple[int, ...]) -> np.ndarray:
    """Return vectors of density ~ exp(-|z|_1): half of noise of half the norm."""
    return float_blocks(uniform, shape.halves, form) / 2


def float_sphere(uniform: Uniforms, shape: BalancedSphere, form: tuple[int, ...]) -> np.ndarray:
    """Return Gaussian vectors less their mean over the classes."""
    return _centred(float_gaussian(uniform, shape, form), shape)


def float_l2(uniform: Uniforms, shape: BalancedL2, form: tuple[int, ...]) -> np.ndarray:
    """Return vectors of density ~ exp(-|z|_2): such Gaussians of a random variance."""
    *others, _, columns = form
    z = _centred(float_gaussian(uniform, shape, form), shape)
    return z * np.sqrt(2 * gammaincinv((shape.free + 1) / 2, uniform((*others, 1, columns))))


def float_ellipsoid_blocks(uniform: Uniforms, shape: BalancedEllipsoid, form: tuple[int, ...]) -> np.ndarray:
    """Return Gaussian vectors of the ellipsoid in each class, less their mean over the classes."""
    *others, _, columns = form
    z = float_ellipsoid(uniform, shape.ellipsoid, (*others, shape.classes, shape.size, columns))
    return _centred(z.reshape(form), shape)


def _centred(z: np.ndarray, shape: Balanced) -> np.ndarray:
    blocks = z.reshape(*z.shape[:-2], shape.classes, shape.size, z.shape[-1])
    return (blocks - blocks.mean(axis=-3, keepdims=True)).reshape(z.shape)


SAMPLERS[BalancedBlocks] = Sampler(_blocks, float_blocks)
SAMPLERS[BalancedL1] = Sampler(_l1, float_l1)
SAMPLERS[BalancedL2] = Sampler(_l2, float_l2)
SAMPLERS[BalancedSphere] = Sampler(_sphere, float_sphere)
SAMPLERS[BalancedEllipsoid] = Sampler(_ellipsoid, float_ellipsoid_blocks)
