"""Rounding to the safe side: numbers that a guarantee rests on are moved by far more than their rounding error."""

from typing import TypeVar

import numpy as np

Number = TypeVar("Number", float, np.ndarray, np.ndarray | float)

# What formulas of a few operations are moved by, relative to their value.
SHARE = 1e-12


def up(value: Number, share: float = SHARE) -> Number:
    """Return a positive number that is larger by this share."""
    return value * (1 + share)


def down(value: Number, share: float = SHARE) -> Number:
    """Return a positive number that is smaller by this share."""
    return value * (1 - share)
