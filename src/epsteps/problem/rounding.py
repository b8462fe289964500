"""Public numbers: rounded to the safe side, by far more than their rounding error, and searched for along a line."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import scipy  # its parts are imported when they are first used: ledgers and plans need not wait for all of them

Number = TypeVar("Number", float, np.ndarray, np.ndarray | float)

# What formulas of a few operations are moved by, relative to their value.
SHARE = 1e-12


def up(value: Number, share: float = SHARE) -> Number:
    """Return a positive number that is larger by this share."""
    return value * (1 + share)


def down(value: Number, share: float = SHARE) -> Number:
    """Return a positive number that is smaller by this share."""
    return value * (1 - share)


_ROUNDING = 4 * 2.0**-52


def root_between(
    function: Callable[[float], float], low: float, high: float, xtol: float, rtol: float = _ROUNDING
) -> float:
    """Return where a function changes its sign between two points."""
    return scipy.optimize.brentq(function, low, high, xtol=xtol, rtol=rtol, disp=False)  # pyright: ignore


def lowest_between(function: Callable[[float], float], low: float, high: float, xtol: float) -> float:
    """Return where a function is smallest between two points."""
    return float(scipy.optimize.fminbound(function, low, high, xtol=xtol))  # pyright: ignore[reportArgumentType]
