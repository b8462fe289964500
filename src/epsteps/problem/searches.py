"""Searches along a line for public numbers: SciPy's, without wrappers that take several times as long as they do."""

from collections.abc import Callable

from scipy.optimize import brentq, fminbound

_ROUNDING = 4 * 2.0**-52


def root(function: Callable[[float], float], low: float, high: float, xtol: float, rtol: float = _ROUNDING) -> float:
    """Return where a function changes its sign between two points."""
    return brentq(function, low, high, xtol=xtol, rtol=rtol, disp=False)  # pyright: ignore


def minimum(function: Callable[[float], float], low: float, high: float, xtol: float) -> float:
    """Return where a function is smallest between two points."""
    return float(fminbound(function, low, high, xtol=xtol))  # pyright: ignore[reportArgumentType]
