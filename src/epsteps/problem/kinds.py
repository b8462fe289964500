"""Kinds of losses and domains by the names that plans are written with.

A class gives itself a name where it is defined. Names are not inherited: a class that was derived from another computes
something else, and would be read back as what it is not.
"""

from typing import Generic, TypeVar

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
