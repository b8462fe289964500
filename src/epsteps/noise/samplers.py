"""Samplers, registered for the shapes whose noise they draw; and checks of what they are asked for.

The checks are made from public numbers, before anything is drawn.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from epsteps.budgets.mechanisms import Mechanism
from epsteps.noise.bits import Bits
from epsteps.noise.uniform import quick_subsets, uniform_subset
from epsteps.problem import validate
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import RULES, Shape

LARGEST = 2.0**62
_TINY = 5e-324

# Draws uniform numbers of the open interval (0, 1) of an array's form.
Uniforms = Callable[[tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class Sampler:
    """How noise of one kind of shape is drawn.

    ``integers(bits, shape, scales)`` returns exact noise, one integer for each entry of an array of checked scales.
    ``floats(uniform, shape, form)`` returns noise of scale 1 and the same law in float64, up to rounding, for
    experiments: it is not private. The coordinates of a vector lie along the last axis but one of its form; each index
    of the other axes has a vector of its own.
    """

    integers: Callable[[Bits, Any, np.ndarray], np.ndarray]
    floats: Callable[[Uniforms, Any, tuple[int, ...]], np.ndarray] | None = None


# By the very class of a shape: one that is derived from another has a sampler of its own, or none.
SAMPLERS: dict[type[Shape], Sampler] = {}


def sampler_of(shape: Shape) -> Sampler:
    """Return the sampler that is registered for a shape."""
    if type(shape) not in SAMPLERS:
        raise TypeError(f"there is no sampler for {type(shape).__name__}. Register one in epsteps.noise.SAMPLERS.")
    return SAMPLERS[type(shape)]


def checked_shape(mechanism: Mechanism, form: tuple[int, ...], body: Shape | None) -> Shape:
    """Return the shape of a mechanism's noise in an array of this form, or raise if the body is no shape of it."""
    name = mechanism.name
    rule = RULES[name if name in RULES else validate.choice("mechanism", name, tuple(RULES))]
    kinds = rule.kinds
    if body is None and kinds[0].norm != Shape.norm and not rule.tilts:
        body = kinds[0](max((1, *form[:1])))  # pyright: ignore[reportCallIssue]
    if type(body) in kinds and body is not None and body.independent:
        return body
    if len(form) not in (1, 2):
        raise ValueError(f"shape must be (d,) or (d, columns) for {name!r} noise, got {form}.")
    if body is None or type(body) not in kinds or body.array != form[: len(body.array)]:
        wanted, *others = (kind.__name__ for kind in kinds)
        remark = "".join(f" A {other} fits as well." for other in others)
        raise ValueError(f"body must be a {wanted} of {form[0]} coordinates for {name!r} noise, got {body!r}.{remark}")
    return body


def checked_scale(scale: np.ndarray | float, least: float = 0.0, name: str = "scale") -> np.ndarray:
    """Return scales as float64, never below what was asked for, or raise."""
    numbers = np.asarray(scale)
    if numbers.dtype == np.float64 and ((numbers >= (least or _TINY)) & (numbers <= LARGEST)).all():
        return numbers
    if numbers.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a number or an array of numbers, got {scale!r}.")
    usable = (numbers > 0) & (numbers >= least) & (numbers <= LARGEST)
    if not np.all(usable):
        value = numbers[~usable].flat[0]
        limits = f"at least {least:.6g} and at most 2**62" if least else "positive and at most 2**62"
        raise ValueError(f"{name} must be {limits}, got {value}. Choose integer units in which the noise fits.")
    scales = numbers.astype(np.float64)
    below = scales.astype(np.int64) < numbers if numbers.dtype.kind in "iu" else scales < numbers
    return np.where(below, np.nextafter(scales, np.inf), scales)


def each_column(scales: np.ndarray) -> np.ndarray:
    """Return the one scale that each column has, or raise."""
    columns = as_columns(scales)
    if columns.strides[0] and np.any(columns != columns[0]):  # else one scale, broadcast
        raise ValueError(f"scale must be one number for each column of noise of a body, got {scales!r}.")
    return columns[0]


def as_columns(array: np.ndarray) -> np.ndarray:
    """Return an array of the form (d,) or (d, R) as a matrix."""
    return array.reshape(array.shape[0], math.prod(array.shape[1:]))


def by_column(draw: Callable[[Any], np.ndarray], scales: Any, form: tuple[int, ...]) -> np.ndarray:
    """Return an array whose columns are drawn one after the other, each with its scale or its scales."""
    columns = [draw(t) for t in scales]
    if len(columns) == 1:
        return columns[0].reshape(form)
    return np.stack(columns, axis=-1).reshape(form) if columns else np.empty(form, np.int64)


def checked_ball(d: int, t: float, least: float = 1.0) -> float:
    """Return the scale of a norm's noise in d dimensions, or raise.

    The radius is about td, with standard deviation t√d: below the limit it leaves 62 bits with a probability too small
    for a float. It would then be reduced modulo 2^64 like any other noise.
    """
    scale = t if isinstance(t, float) and least <= t <= LARGEST else float(checked_scale(t, least))
    largest = LARGEST / (2 * (d + 40 * math.sqrt(d) + 800))
    if scale >= largest:
        raise ValueError(f"scale must be below {largest:.6g} in {d} dimensions, got {scale!r}. Choose coarser units.")
    return scale


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
        What is "balanced" adds up to 0 over the classes of its ``body``, and takes one scale for each column.

        Formal guarantee: "laplace" has P(k) ~ exp(-|k|/scale), "gaussian" is the ideal Gaussian rounded to the nearest
        integer, both modulo 2^64 and for exactly this scale (integers beyond 2^53 are rounded up to a float). Added
        modulo 2^64 to an integer vector of sensitivity Δ they are Δ_1/scale-DP and Δ_2/scale-Gaussian-DP. For the
        shapes of a ``body`` see ``shaped``; "ellipsoid" is gauge(Δ)/scale-Gaussian-DP.
        """
        body, scales = checked_shape(mechanism, shape, body), checked_scale(scale)
        if scales.size == 1 and scales.ndim <= len(shape):  # what np.broadcast_to does, in a fifth of its time
            scales = np.ndarray(shape, np.float64, scales, strides=(0,) * len(shape))
        elif scales.shape != shape:
            scales = np.broadcast_to(scales, shape)
        return sampler_of(body).integers(self._bits, body, scales)

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

    def geometric(self, scale: float, count: int) -> np.ndarray:
        """Return so many independent integers k >= 0, exactly of the law P(k) ~ exp(-k/scale): for a choice.

        Formal guarantee: if candidates have integer scores that neighbours move by at most Δ each, publishing which of
        them has the largest score with such noise, and no score, is 2Δ/scale-DP; ties go by a public order. It is no
        noise to be added to what is published: whatever is, would show that the sum is not smaller. Draws are whole,
        not modulo 2^64, as they are compared: Python's integers where one does not fit.
        """
        from epsteps.noise.laplace import one_sided  # which registers its sampler here

        return one_sided(self._bits, float(checked_scale(scale)), validate.integer("count", count))

    def words(self, count: int) -> np.ndarray:
        """Return so many words of 64 fair bits, as uint64: for a choice whose chances are whole parts of 2^(64 count).

        Formal guarantee: they are uniform and independent. What a choice with them costs, its request proves.
        """
        return self._bits.words(validate.integer("count", count))

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
