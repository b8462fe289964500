"""Checks of public arguments, names of kinds and extras: every message has the name, the value and the remedy."""

import math
from importlib import import_module
from numbers import Integral, Real
from types import ModuleType
from typing import Any, Generic, TypeVar


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
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
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


class MissingExtraError(ImportError):
    """An optional part of epsteps was used without its dependency."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import ``module`` or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}, which is not installed: pip install 'epsteps[{extra}]'"
        ) from error


Kind = TypeVar("Kind")


class Kinds(Generic[Kind]):
    """The classes of losses, or of domains, that have a name."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._named: dict[str, type[Kind]] = {}

    def add(self, name: str, kind: type[Kind]) -> None:
        """Take a class in; refuse a name that another one has."""
        known = self._named.setdefault(name, kind)
        if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
            raise ValueError(f"there is a {self._what} of the name {name!r}: {known.__module__}.{known.__qualname__}.")
        self._named[name] = kind  # the same class, defined once more: its module was read again

    def named(self, name: str) -> type[Kind]:
        """Return the class of this name, or raise ``KeyError``."""
        return self._named[name]

    def name_of(self, value: Kind) -> str | None:
        """Return the name of a value's class, or None."""
        return next((name for name, kind in self._named.items() if type(value) is kind), None)
