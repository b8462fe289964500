"""Discrete Laplace noise, exactly: the noise of the L1 norm."""

import sys
from functools import partial

import numpy as np

from epsteps.noise.bits import Again, Bits
from epsteps.noise.reals import HIGH_BITS, LOG_ULPS, Ball, Uniform, certain_floor, decide, low_part, split
from epsteps.noise.samplers import SAMPLERS, Sampler, Uniforms
from epsteps.problem.grid import wrapped
from epsteps.problem.shapes import L1


def discrete_laplace(bits: Bits, scales: np.ndarray, widen: float = 1.0) -> np.ndarray:
    """Return integers with P(k) ~ exp(-|k|/t), modulo 2^64, one for each scale t of a vector.

    The difference of two independent geometric variables, for which P(k) = (1-q) q^k with q = e^(-1/t).
    """
    both = np.concatenate([scales, scales])
    reduced, shift = split(both)
    words = words_for(bits, shift[: len(scales)], 2).swapaxes(0, 1)
    words = words.reshape(len(words), len(both))
    first, second = geometric(bits, words, both, reduced, shift, widen).reshape(2, -1)
    return first - second


def words_for(bits: Bits, shift: np.ndarray, count: int) -> np.ndarray:
    """Return the words of so many vectors of geometric variables: one for each, or two where there are low parts."""
    large = bool(shift.any())
    return bits.words(count * (1 + large) * len(shift)).reshape(count, 1 + large, -1)


def geometric(
    bits: Bits, words: np.ndarray, scales: np.ndarray, reduced: np.ndarray, shift: np.ndarray, widen: float
) -> np.ndarray:
    """Return ⌊tE⌋ for exponential variables E, modulo 2^64."""
    high, refined, low = _parts(bits, words, scales, reduced, shift, widen)
    for i, exact in refined.items():
        high[i] = wrapped(exact)
    return (high << shift) + low


def whole_geometric(
    bits: Bits, words: np.ndarray, scales: np.ndarray, reduced: np.ndarray, shift: np.ndarray, widen: float
) -> list[int]:
    """Return the same variables before they are reduced: for what adds or compares them."""
    high, refined, low = _parts(bits, words, scales, reduced, shift, widen)
    parts = zip(high.tolist(), low.tolist(), shift.tolist(), strict=True)
    return [(refined.get(i, top) << s) + bottom for i, (top, bottom, s) in enumerate(parts)]


def one_sided(bits: Bits, scale: float, count: int) -> np.ndarray:
    """Return so many independent integers k >= 0 with P(k) ~ exp(-k/t), whole: int64, or Python's if one is larger."""
    scales = np.full(count, scale)
    reduced, shift = split(scales)
    whole = whole_geometric(bits, words_for(bits, shift, 1)[0], scales, reduced, shift, 1.0)
    return np.array(whole, dtype=np.int64 if max(whole) < 2**62 else object)


def _parts(
    bits: Bits, words: np.ndarray, scales: np.ndarray, reduced: np.ndarray, shift: np.ndarray, widen: float
) -> tuple[np.ndarray, dict[int, int], np.ndarray]:
    """Return high parts, those of them that were decided apart, and low parts of ⌊tE⌋.

    The high part ⌊tE/2^s⌋ and the low s bits l are independent, as q^(2^s h + l) is a product, and the low part has
    P(l) ~ e^(-l/t): a uniform l is accepted if -t ln U > l.
    """
    high, refined = _high_part(bits, words[0], reduced, widen)
    if len(words) == 1:
        return high, refined, np.zeros_like(high)

    def excess(i: int, position: Uniform, threshold: Uniform) -> Ball:
        return Ball.exact(float(scales[i])) * threshold.exponential() - Ball.exact(position.leading(int(shift[i])))

    # l/t < 2^-26 wherever there is a low part: the law is flat there.
    return high, refined, low_part(bits, words[1], shift, False, excess, widen)


def _high_part(bits: Bits, words: np.ndarray, scales: np.ndarray, widen: float) -> tuple[np.ndarray, dict[int, int]]:
    """Return ⌊-t ln U⌋ for t < 2^27 and U in [w, w + 1] 2^-64; those that float64 leaves open apart.

    Error of x = -t ln(float(w) 2^-64): rounding w moves ln by at most 2^-52, the bits to come by ln((w+1)/w) <= 1/w,
    and numpy's logarithm by LOG_ULPS 2^-52 of itself. The product and the two sums with the tolerance add 2^-53 of
    their results each, and the tolerance is itself rounded five times; 2^-51 and LOG_ULPS + 8 leave room for all that.
    """
    with np.errstate(all="ignore"):
        w = words.astype(np.float64)
        exponential = -np.log(w * 2.0**-64)
        error = 2.0**-51 + 1 / w + (LOG_ULPS + 8) * 2.0**-52 * exponential
        result, open_at = certain_floor(scales * exponential, widen * scales * error, least=0)
    refined = {}
    for i in open_at.tolist():
        refined[i] = decide(partial(_exact_geometric, float(scales[i]), Uniform(bits, int(words[i]), 64)))
    return result, refined


def _exact_geometric(scale: float, uniform: Uniform) -> int:
    return (Ball.exact(scale) * uniform.exponential()).floor(least=0)


def float_laplace(uniform: Uniforms, shape: L1, form: tuple[int, ...]) -> np.ndarray:
    """Return independent Laplace draws of scale 1, by inversion in float64: not exact."""
    u = uniform(form) - 0.5
    return -np.sign(u) * np.log1p(-2 * np.abs(u))


def _integers(bits: Bits, shape: L1, scales: np.ndarray) -> np.ndarray:
    return quick_laplace(bits, scales.reshape(-1)).reshape(scales.shape)


def quick_laplace(bits: Bits, scales: np.ndarray) -> np.ndarray:
    """Return what ``discrete_laplace`` does, compiled where numba is there already."""
    if "numba" not in sys.modules:
        return discrete_laplace(bits, scales)
    from epsteps.noise import _compiled

    large = 1 + bool(len(scales) and scales.max() >= 2.0**HIGH_BITS)
    words = bits.words(2 * large * len(scales)).reshape(2, large, -1)
    found = np.empty(len(scales), np.int64)
    return found if _compiled.laplace(words, scales, found) else discrete_laplace(Again(bits, words), scales)


SAMPLERS[L1] = Sampler(_integers, float_laplace)
