"""Where a run draws from: exact integer noise, subsets of the records, and float64 noise for experiments."""

import numpy as np

from epsteps.budgets.mechanisms import Mechanism
from epsteps.noise.bits import Bits
from epsteps.noise.samplers import checked_scale, checked_shape, sampler_of
from epsteps.noise.uniform import quick_subsets, uniform_subset
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import Shape


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

    def integers(
        self, mechanism: Mechanism, scale: np.ndarray | float, shape: tuple[int, ...], body: Shape | None = None
    ) -> np.ndarray:
        """Return exact integer noise as int64; scales are in integer units and broadcast to the shape, (d,) or (d, R).

        "linf", "hull" and "blocks" are shaped like their ``body``, and "ellipsoid" like its own. These take one scale
        for each column, "l2" takes any, and columns are independent. "laplace" and "gaussian" are independent over all
        entries and take any shape. "wishart" and "gaussian matrix" are symmetric matrices of their ``body``, of the
        shape (k, k) and of one scale; integers of the former are whole: Python's where int64 does not hold them all.

        Formal guarantee: "laplace" has P(k) ~ exp(-|k|/scale), "gaussian" is the ideal Gaussian rounded to the nearest
        integer, both modulo 2^64 and for exactly this scale (integers beyond 2^53 are rounded up to a float). Added
        modulo 2^64 to an integer vector of sensitivity Δ they are Δ_1/scale-DP and Δ_2/scale-Gaussian-DP. For the
        shapes of a ``body`` see ``shaped``; "ellipsoid" is gauge(Δ)/scale-Gaussian-DP.
        """
        body = checked_shape(mechanism, shape, body)
        return sampler_of(body).integers(self._bits, body, np.broadcast_to(checked_scale(scale), shape))

    def shaped(self, shape: Shape, t: np.ndarray | float) -> np.ndarray:
        """Return one draw of exact integer noise of this shape and scale: a vector, or a symmetric matrix.

        For a ``Body`` it has P(z) ~ exp(-f(z)/t), f as in ``noise.shaped``: the gauge, or nearly so. The law for a
        ``Hull`` is that of ``noise.hulls``, and its f the negative logarithm. That of ``L2`` is the ideal noise of
        density ~ exp(-|z/t|_2), each coordinate rounded to the nearest integer, for one t or one for each coordinate.

        Formal guarantee: f(z + Δ) <= f(z) + gauge(Δ) for integers z and Δ. So added modulo 2^64 to an integer vector
        that neighbours move by Δ it is gauge(Δ)/t-DP; where the shape is Gaussian, gauge(Δ)/t-Gaussian-DP.
        """
        if np.shape(t) not in ((), shape.array):
            raise ValueError(f"scale must be one number or {shape.d} of them, got an array of shape {np.shape(t)}.")
        return sampler_of(shape).integers(self._bits, shape, np.broadcast_to(checked_scale(t), shape.array))

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

    def draw(
        self, mechanism: Mechanism, scale: np.ndarray | float, shape: tuple[int, ...], body: Shape | None = None
    ) -> np.ndarray:
        """Return draws of the mechanism's noise in float64, not exact; arguments as in ``integers``.

        More axes may come before those of a vector and its columns: (..., d, R) has independent vectors along d.
        """
        body = checked_shape(mechanism, shape[-2:], body)
        draw = sampler_of(body).floats
        if draw is None:
            raise ValueError(f"there is no {mechanism.name!r} noise in floats. Draw integers.")
        noise = draw(self._uniform, body, shape if len(shape) > 1 else (*shape, 1))
        return np.asarray(scale) * noise.reshape(shape)

    def _uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return uniform draws on the open interval (0, 1): 52 random bits, and half a step more."""
        if self._bits.generator is not None:
            bits = self._bits.generator.integers(2**52, size=shape, dtype=np.uint64)
        else:
            bits = (self._bits.words(int(np.prod(shape))) >> np.uint64(12)).reshape(shape)
        return (bits + 0.5) * 2.0**-52
