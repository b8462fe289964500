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

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.fast import split, wrapped
from epsteps.noise.hull_layout import Layout, Signs
from epsteps.noise.laplace import whole_geometric, words_for
from epsteps.noise.reals import Uniform
from epsteps.noise.shaped import distinct
from epsteps.noise.uniform import ordered_below, uniform_below


def hull_noise(bits: Bits, layout: Layout, scale: float, widen: float = 1.0) -> np.ndarray:
    """Return integers with the law above, modulo 2^64."""
    while True:
        signs = layout.signs(bits)
        found = _geometrics(bits, scale, layout.d + 2, widen)
        ups = signs.up.total + 1
        above, below = sum(found[:ups]), sum(found[ups:])
        if is_accepted(Uniform(bits, int(bits.words(1)[0]), 64), signs, above, below):
            return points(bits, layout, signs, above, below, widen)


def is_accepted(uniform: Uniform, signs: Signs, above: int, below: int) -> bool:
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


def points(bits: Bits, layout: Layout, signs: Signs, above: int, below: int, widen: float = 1.0) -> np.ndarray:
    """Return a uniform one of the points with these signs within the levels, modulo 2^64."""
    z = np.empty(layout.d, np.int64)
    for half, level, mask in ((signs.up, above, 0), (signs.down, below, -1)):
        for j, columns in half.columns.items():
            z[columns] = _simplices(bits, (len(columns) // j, j), level, widen).reshape(-1) ^ mask
    if len(layout.signed):
        size, words = above + below + 1, bits.words(2 * len(layout.signed)).reshape(2, -1)
        z[layout.signed] = uniform_below(bits, words, 2 * size, widen) - np.array([wrapped(size)])
    return z


def _geometrics(bits: Bits, scale: float, count: int, widen: float) -> list[int]:
    """Return independent integers with P(k) ~ e^(-k/t), whole: their sums are compared before anything is reduced."""
    scales = np.broadcast_to(np.float64(scale), (count,))
    reduced, shift = split(scales)
    return whole_geometric(bits, words_for(bits, shift, 1)[0], scales, reduced, shift, widen)


def _simplices(bits: Bits, shape: tuple[int, int], level: int, widen: float) -> np.ndarray:
    """Return uniform m_1, ..., m_j >= 0 with a sum within the level, modulo 2^64, in each row: as ``shaped`` does."""
    j = shape[1]
    places = ordered_below(bits, bits.words(2 * shape[0] * j).reshape(2, -1), level + j, widen).reshape(shape)
    places.sort(axis=1)
    for row in np.flatnonzero((places[:, 1:] == places[:, :-1]).any(axis=1)):
        places[row] = distinct(bits, places[row], level + j)
    m = np.diff(places, axis=1, prepend=-1) - 1
    return m if m.dtype == np.int64 else np.vectorize(wrapped, otypes=[np.int64])(m)
