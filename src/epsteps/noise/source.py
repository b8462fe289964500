"""Where a run draws from: exact integer noise, subsets of the records, and float64 noise for experiments."""

import numpy as np
from scipy.special import ndtri

from epsteps import _validate
from epsteps.mechanisms import Mechanism
from epsteps.noise import knorm
from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import rounded_gaussian
from epsteps.noise.laplace import discrete_laplace
from epsteps.noise.uniform import quick_subsets, uniform_subset
from epsteps.sampling import Sampling

_LARGEST = 2.0**62
_SAMPLERS = {"laplace": discrete_laplace, "gaussian": rounded_gaussian}


class Source:
    """A source of protective randomness, from the operating system or, for experiments, from a seed."""

    def __init__(self, seed: int | None = None, step: int | None = None) -> None:
        self._bits = Bits(seed, step)

    @property
    def seeded(self) -> bool:
        """Whether the draws repeat, so that nothing protected by them is private.

        The samplers are the same: only their bits come from a seeded generator.
        """
        return self._bits.generator is not None

    def at_step(self, t: int) -> "Source":
        """Return the source of step t: itself, or one of its own per step where seeded, so that a run can resume."""
        return Source(self._bits.seed, t) if self.seeded else self

    def integers(self, mechanism: Mechanism, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return exact integer noise as int64, independent over the entries; scales are in integer units.

        Formal guarantee: "laplace" has P(k) ~ exp(-|k|/scale), "gaussian" is the ideal Gaussian rounded to the nearest
        integer, both modulo 2^64 and for exactly this scale (integers beyond 2^53 are rounded up to a float). Added
        modulo 2^64 to an integer vector of sensitivity Δ they are Δ_1/scale-DP and Δ_2/scale-Gaussian-DP.
        """
        name = _validate.choice("mechanism", mechanism.name, tuple(_SAMPLERS))
        scales = np.broadcast_to(_checked_scale(scale), shape).reshape(-1)
        return _SAMPLERS[name](self._bits, scales).reshape(shape)

    def linf(self, d: int, t: float) -> np.ndarray:
        """Return exact integer noise with P(z) ~ exp(-max|z_j|/t); sensitivity Δ in this norm costs Δ/t."""
        return knorm.linf(self._bits, *_checked_ball(d, t))

    def hull(self, d: int, t: float) -> np.ndarray:
        """Return exact integer noise with P(z) ~ exp(-range(0, z_1, ..., z_d)/(2t))."""
        return knorm.hull(self._bits, *_checked_ball(d, t))

    def l2(self, d: int, t: float) -> np.ndarray:
        """Return the ideal noise of density ~ exp(-|z|_2/t), each coordinate rounded to the nearest integer."""
        return knorm.l2(self._bits, *_checked_ball(d, t))

    def subset(self, sampling: Sampling) -> np.ndarray:
        """Return the records that a step reads, uniform among all subsets of their size, in increasing order."""
        return uniform_subset(self._bits, sampling.m, sampling.n)

    def subsets(self, sampling: Sampling, count: int) -> np.ndarray:
        """Return records for so many steps of an experiment, one row each, in no particular order.

        Uniform up to 2^-64 per draw, many times faster than ``subset``, and for seeded sources only.
        """
        if not self.seeded:
            raise ValueError("subsets are for experiments, and take a seed. Private steps draw theirs with subset.")
        return quick_subsets(self._bits, count, sampling.m, sampling.n)

    def laplace(self, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return independent Laplace draws of this scale (variance 2 scale²), by inversion in float64: not exact."""
        u = self._uniform(shape) - 0.5
        return -np.asarray(scale) * np.sign(u) * np.log1p(-2 * np.abs(u))

    def gaussian(self, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return independent Gaussian draws of this standard deviation, by inversion in float64: not exact."""
        return np.asarray(scale) * ndtri(self._uniform(shape))

    def draw(self, mechanism: Mechanism, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return independent draws of the mechanism's noise in float64: not exact."""
        return {"laplace": self.laplace, "gaussian": self.gaussian}[mechanism.name](scale, shape)

    def _uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return uniform draws on the open interval (0, 1): 52 random bits, and half a step more."""
        if self._bits.generator is not None:
            bits = self._bits.generator.integers(2**52, size=shape, dtype=np.uint64)
        else:
            bits = (self._bits.words(int(np.prod(shape))) >> np.uint64(12)).reshape(shape)
        return (bits + 0.5) * 2.0**-52


def _checked_scale(scale: np.ndarray | float, least: float = 0.0) -> np.ndarray:
    """Return scales as float64, never below what was asked for, or raise."""
    given = np.asarray(scale)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"scale must be a number or an array of numbers, got {scale!r}.")
    usable = (given > 0) & (given >= least) & (given <= _LARGEST)
    if not np.all(usable):
        value = given[~usable].flat[0]
        limits = f"at least {least:g} and at most 2**62" if least else "positive and at most 2**62"
        raise ValueError(f"scale must be {limits}, got {value}. Choose integer units in which the noise fits.")
    scales = given.astype(np.float64)
    below = scales.astype(np.int64) < given if given.dtype.kind in "iu" else scales < given
    return np.where(below, np.nextafter(scales, np.inf), scales)


def _checked_ball(d: int, t: float) -> tuple[int, float]:
    """Return the dimension and scale of a norm's noise, or raise: from public numbers, before anything is drawn.

    The radius is about td, with standard deviation t√d: below the limit it leaves 62 bits with a probability too small
    for a float. It would then be reduced modulo 2^64 like any other noise.
    """
    d = _validate.integer("d", d)
    checked = float(_checked_scale(_validate.number("scale", t), least=1.0))
    largest = _LARGEST / (2 * (d + 40 * np.sqrt(d) + 800))
    if checked >= largest:
        raise ValueError(f"scale must be below {largest:.6g} in {d} dimensions, got {t!r}. Choose coarser units.")
    return d, checked
