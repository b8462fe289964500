"""Prices: what a ledger is charged for a release, as text knows it and as the parts that compose; sums are exact.

A person who declares 0.1 means one tenth, and ten of them are 1. The float 0.1 is slightly more than that, and ten of
those are above 1. So a ledger reads a float as the decimal that it is written with: the shortest that gives the same
float again, which is what was typed, what is stored, what is printed and what is hashed. Sums of decimals are exact.

Formal guarantee: charges are admitted only while their decimals compose to at most the decimal of the budget, which is
the number that was declared. What releases really cost is within rounding of that: a float x differs from its decimal D
by at most half a unit in its last place, so that x ≤ D / (1 - 2⁻⁵³) for normal numbers, from 2.3e-308 on. Should every
release cost its float rather than its decimal, then epsilons, rhos or deltas whose decimals add up to at most the
declared b add up to at most b / (1 - 2⁻⁵³), however many they are: an excess of 1.2e-16 of the budget (twice that where
pure epsilons are squared). That is no more than binary sums allow, since the float of b may itself lie that far above
b. Plans of steps do not use even that: their certificates are rounded up by a factor of 1 + 1e-13. Epsilons that the
ledger composes itself, in floats that are rounded up, are read in the same way.

Datasets from before this rule ("binary") keep theirs, by which they were admitted.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from epsteps.budgets.corners import Corners

AMOUNTS = ("decimal", "binary")


class Price:
    """What a release may be charged as. Every kind of budget is one, and so are corners, which are no budget.

    A kind is a frozen dataclass below this class. Ledgers know it by its ``tag``, the name of its class in small
    letters unless it says otherwise, and store its fields, which are plain numbers or tuples of them.
    """

    tag: ClassVar[str]
    tagged: ClassVar[dict[str, type["Price"]]] = {}
    # The rules by which charges compose under it; none for what is no budget.
    compositions: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "tag" not in vars(cls):
            cls.tag = cls.__name__.lower()
        Price.tagged[cls.tag] = cls

    @property
    def parts(self) -> "Parts":
        """What it consists of, for ledgers that compose it with other prices."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the tag and the fields."""
        return {"kind": self.tag} | {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]

    @staticmethod
    def from_dict(content: dict[str, Any]) -> "Price":
        """Read a price of any kind."""
        return Price.tagged[content["kind"]](**{name: value for name, value in content.items() if name != "kind"})


@dataclass(frozen=True)
class Parts:
    """A price as what composes: a pure epsilon, a rho or corners, all but for the chance ``delta``."""

    epsilon: float | None = None
    rho: float | None = None
    corners: "Corners | None" = None
    delta: float | None = None

    @property
    def names(self) -> set[str]:
        """The names of the parts that are there."""
        return {field.name for field in fields(self) if getattr(self, field.name) is not None}


@dataclass(frozen=True)
class Tally:
    """What prices amount to: epsilon or rho, exactly or rounded up; and the deltas of approximate prices."""

    spent: Fraction
    limit: Fraction
    delta: Fraction = Fraction(0)
    delta_limit: Fraction = Fraction(0)

    @property
    def fits(self) -> bool:
        """Whether the budget covers it."""
        return self.spent <= self.limit and self.delta <= self.delta_limit


def require_parts(budget: Price, prices: Sequence[Price], names: set[str], remedy: str) -> None:
    """Refuse prices with other parts than these: they promise less than the budget of the dataset."""
    for price in prices:
        if not price.parts.names <= names:
            raise TypeError(f"{price} cannot be charged to a dataset with {budget}: it promises less. {remedy}.")


@lru_cache(maxsize=4096)
def exact(value: float, amounts: str = "decimal") -> Fraction:
    """Return the number that a float stands for.

    >>> exact(0.1), exact(0.1, "binary") > exact(0.1)
    (Fraction(1, 10), True)
    """
    return Fraction(repr(float(value))) if amounts == "decimal" else Fraction(value)


def total(values: Iterable[float], amounts: str = "decimal") -> Fraction:
    """Return the exact sum; equal values, which are common, are added at once.

    >>> total([0.1] * 10) == 1, total([0.1] * 10, "binary") > 1
    (True, True)
    """
    return sum((count * exact(value, amounts) for value, count in Counter(values).items()), Fraction(0))


def round_up(value: Fraction, amounts: str = "decimal") -> float:
    """Return the smallest float that does not stand for less."""
    nearest = float(value)
    return nearest if exact(nearest, amounts) >= value else math.nextafter(nearest, math.inf)


def round_down(value: Fraction, amounts: str = "decimal") -> float:
    """Return the largest float that does not stand for more."""
    nearest = float(value)
    return nearest if exact(nearest, amounts) <= value else math.nextafter(nearest, -math.inf)
