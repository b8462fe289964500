"""Checks of public arguments: every message carries the name, the value and the remedy."""

import math
from numbers import Integral, Real
from typing import Any


def number(name: str, value: Any) -> float:
    """Return ``value`` as a finite float, or raise."""
    # The first test answers for floats, of which planning checks thousands: that of abstract classes is slow.
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}.")
    return float(value)


def positive(name: str, value: Any, remedy: str = "") -> float:
    """Return ``value`` as a positive finite float, or raise."""
    checked = number(name, value)
    if checked <= 0:
        raise ValueError(f"{name} must be positive, got {value!r}.{' ' + remedy if remedy else ''}")
    return checked


# Declared sizes lie between these: squares of records, their products with points, and sums over all records are then
# finite and far from where floats lose their digits.
SMALLEST, LARGEST = 1e-100, 1e100


def size(name: str, value: Any, smallest: float = SMALLEST, largest: float = LARGEST) -> float:
    """Return ``value`` as a positive float of a size that can be computed with, or raise."""
    checked = positive(name, value)
    if not smallest <= checked <= largest:
        raise ValueError(f"{name} must lie between {smallest:g} and {largest:g}, got {value!r}. Choose other units.")
    return checked


def written(value: int) -> str:
    """Return a number as text; Python refuses to write very long ones."""
    return str(value) if value < 10**30 else f"about 2**{value.bit_length() - 1}"


def integer(name: str, value: Any, low: int = 1, high: int | None = None, remedy: str = "") -> int:
    """Return ``value`` as an int between ``low`` and ``high``, or raise."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    checked = int(value)
    if checked < low or (high is not None and checked > high):
        limits = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} must be {limits}, got {value!r}.{' ' + remedy if remedy else ''}")
    return checked


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``options``, or raise with the list of them."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}.")
    return value
