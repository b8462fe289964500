"""Checks of what samplers are asked for: from public numbers, before anything is drawn."""

import numpy as np

from epsteps.budgets.mechanisms import Mechanism
from epsteps.problem import validate
from epsteps.problem.bodies import Body, Ellipsoid
from epsteps.problem.hulls import Hull

_LARGEST = 2.0**62
_KINDS = {
    **{"laplace": (), "gaussian": (), "l2": (), "linf": (Body,)},
    **{"hull": (Body, Hull), "blocks": (Body,), "ellipsoid": (Ellipsoid,)},
}


def law(mechanism: Mechanism, shape: tuple[int, ...], body: Body | Hull | Ellipsoid | None) -> str:
    """Return the name of a law whose body, if it needs one, is there and has as many coordinates as its noise."""
    name = validate.choice("mechanism", mechanism.name, tuple(_KINDS))
    kinds = _KINDS[name]
    if name in ("laplace", "gaussian"):
        return name
    if len(shape) not in (1, 2):
        raise ValueError(f"shape must be (d,) or (d, columns) for {name!r} noise, got {shape}.")
    if kinds and (body is None or not isinstance(body, kinds) or body.d != shape[0]):
        wanted, *others = (kind.__name__ for kind in kinds)
        more = "".join(f" A {other} fits as well." for other in others)
        raise ValueError(f"body must be a {wanted} of {shape[0]} coordinates for {name!r} noise, got {body!r}.{more}")
    return name


def scale(given: np.ndarray | float, least: float = 0.0, name: str = "scale") -> np.ndarray:
    """Return scales as float64, never below what was asked for, or raise."""
    numbers = np.asarray(given)
    if numbers.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a number or an array of numbers, got {given!r}.")
    usable = (numbers > 0) & (numbers >= least) & (numbers <= _LARGEST)
    if not np.all(usable):
        value = numbers[~usable].flat[0]
        limits = f"at least {least:.6g} and at most 2**62" if least else "positive and at most 2**62"
        raise ValueError(f"{name} must be {limits}, got {value}. Choose integer units in which the noise fits.")
    scales = numbers.astype(np.float64)
    below = scales.astype(np.int64) < numbers if numbers.dtype.kind in "iu" else scales < numbers
    return np.where(below, np.nextafter(scales, np.inf), scales)


def each_column(scales: np.ndarray) -> np.ndarray:
    """Return the one scale that each column has, or raise."""
    if np.any(scales != scales[0]):
        raise ValueError(f"scale must be one number for each column of noise of a body, got {scales!r}.")
    return scales[0]


def ball(d: int, t: float, least: float = 1.0) -> tuple[int, float]:
    """Return the dimension and scale of a norm's noise, or raise.

    The radius is about td, with standard deviation t√d: below the limit it leaves 62 bits with a probability too small
    for a float. It would then be reduced modulo 2^64 like any other noise.
    """
    d = validate.integer("d", d)
    checked = float(scale(validate.number("scale", t), least))
    largest = _LARGEST / (2 * (d + 40 * np.sqrt(d) + 800))
    if checked >= largest:
        raise ValueError(f"scale must be below {largest:.6g} in {d} dimensions, got {t!r}. Choose coarser units.")
    return d, checked


def stretched_ball(d: int, t: np.ndarray | float) -> tuple[int, np.ndarray]:
    """Return the dimension and the scales of noise of a norm whose coordinates have scales of their own, or raise."""
    if np.ndim(t) == 0:
        checked, one = ball(d, t)  # pyright: ignore[reportArgumentType]
        return checked, np.broadcast_to(one, (checked,))
    scales = scale(t, least=1.0)
    if scales.shape != (d,):
        raise ValueError(f"scale must be one number or {d} of them, got an array of shape {scales.shape}.")
    ball(d, float(scales.max()))
    return d, scales


def tilt(
    scales: np.ndarray | float, common: np.ndarray | float, shape: tuple[int, ...], weights: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a matrix of scales, and vectors of common scales and weights, or raise."""
    if len(shape) not in (1, 2):
        raise ValueError(f"shape must be (d,) or (d, columns), got {shape}.")
    each = np.broadcast_to(scale(scales), shape).reshape(shape[0], int(np.prod(shape[1:])))
    present = np.asarray(common) != 0
    shared = np.where(present, scale(np.where(present, common, 1), name="common"), 0.0)
    factors = np.array(np.broadcast_to(np.asarray(weights, dtype=float), each.shape[:1]))
    if not np.all(np.abs(factors) <= 1):
        raise ValueError(f"weights must lie between -1 and 1, got {weights!r}. Scale common up and weights down.")
    return each, np.broadcast_to(shared, each.shape[1:]), factors


def wishart(k: int, c: float) -> tuple[int, float]:
    """Return the dimension and the scale of Wishart noise, or raise."""
    k = validate.integer("k", k)
    checked = float(scale(validate.positive("c", c), name="c"))
    if checked > 2.0**60:
        raise ValueError(f"c must be at most 2**60, got {c!r}. Choose coarser units.")
    return k, checked
