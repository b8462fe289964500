"""What every budget offers: what may be spent, in which currencies, and what costs amount to together."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from epsteps.budgets.costs import BY_UNIT, Cost
from epsteps.problem import validate
from epsteps.problem.rounding import up
from epsteps.problem.sampling import Sampling
from epsteps.problem.validate import Kinds

if TYPE_CHECKING:
    from epsteps.bounds import Prediction
    from epsteps.budgets.corners import Corners
    from epsteps.budgets.mechanisms import Mechanism

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
        return {name for name, value in vars(self).items() if value is not None}


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
    for price in dict.fromkeys(prices):  # equal ones, which are common, are asked once
        if not price.parts.names <= names:
            raise TypeError(f"{price} cannot be charged to a dataset with {budget}: it promises less. {remedy}.")


@lru_cache(maxsize=4096)
def exact(value: float, amounts: str = "decimal") -> Fraction:
    """Return the number that a float stands for.

    >>> exact(0.1), exact(0.1, "binary") > exact(0.1)
    (Fraction(1, 10), True)
    """
    return Fraction(repr(float(value))) if amounts == "decimal" else Fraction(value)


def exact_total(values: Iterable[float], amounts: str = "decimal") -> Fraction:
    """Return the exact sum; equal values, which are common, are added at once.

    >>> exact_total([0.1] * 10) == 1, exact_total([0.1] * 10, "binary") > 1
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


class Budget(Price):
    """What may be spent. A kind of budget is a frozen dataclass below this class, in one file.

    It is known by its name to JSON from then on, and by its ``tag`` to ledgers. Costs are in a mechanism's currency,
    amounts in the budget's own.
    """

    named: ClassVar["Kinds[Budget]"] = Kinds("budget")
    # The currencies that the budget is made for.
    kinds: ClassVar[tuple[type[Cost], ...]]
    # What amounts are counted in, for people; and the rules by which a ledger may compose prices under the budget.
    unit: ClassVar[str] = "epsilon"
    compositions: ClassVar[tuple[str, ...]] = ("adaptive",)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Budget.named.add(cls.__name__, cls)

    @property
    def amount(self) -> float:
        """What may be spent: epsilon or rho."""
        raise NotImplementedError

    # The chance with which nothing is promised.
    delta: float

    def kind(self, sampling: Sampling) -> type[Cost]:
        """Return the currency that steps which read such samples are best paid in."""
        return self.kinds[0]

    def capacity(self, kind: type[Cost]) -> float:
        """Return how much of this currency may be spent on one release, or on several whose costs add up; 0 if none."""
        raise NotImplementedError

    def of(self, cost: Cost) -> Self:
        """Return what this cost amounts to, as a budget of the same kind; refused if it has none."""
        raise NotImplementedError

    def spending(self, costs: np.ndarray, kind: type[Cost], expenses: Sequence[float] | np.ndarray = ()) -> Self:
        """Return what steps of these costs amount to together, rounded up, as a budget of the same kind.

        ``expenses`` are costs of releases that the others may have been planned by. Written here for budgets in which
        the sum counts, whatever later costs depend on; epsilons add up before they become a rho.
        """
        return self.of(kind(total(expenses, costs)))

    def tally(self, prices: Sequence[Price], composition: str, amounts: str) -> Tally:
        """Return what prices that a ledger was charged, in this order, amount to; one that promises less is refused.

        ``amounts`` says what number a float stands for: see ``epsteps.budgets.budget``. Unless the composition says
        otherwise, it must hold for prices that are chosen by earlier releases.
        """
        raise NotImplementedError

    def of_group(self, count: int) -> Self:
        """Return what so many records of one person cost together, rounded up, if one costs this: group privacy.

        Formal guarantee: whoever replaces k records one after the other changes the law of what is published k times
        by what one record may. Each kind of budget says what that amounts to.
        """
        raise ValueError(
            f"{self} has no rule for several records of one person: use Pure, Concentrated or Approximate."
        )

    def per_record(self, count: int) -> Self:
        """Return the largest budget of one record with which so many of one person's cost at most this together."""
        raise ValueError(
            f"{self} has no rule for several records of one person: use Pure, Concentrated or Approximate."
        )

    def allocate(
        self, weights: np.ndarray | None, T: int, mechanism: "Mechanism", sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the costs of T steps: best for these error weights, or even ones if None; less what is reserved."""
        self.require(mechanism)
        available = _left(self.capacity(mechanism.kind) - reserved, mechanism)
        return np.full(T, available / T) if weights is None else mechanism.split(weights, available, sampling)

    def noise_by_horizon(
        self,
        prediction: "Prediction",
        allocation: str,
        mechanism: "Mechanism",
        sampling: Sampling,
        reserved: float = 0.0,
    ) -> np.ndarray:
        """Return ``sum weights_t scale_t²`` after T steps, for every T; sensitivity 1."""
        self.require(mechanism)
        available = _left(self.capacity(mechanism.kind) - reserved, mechanism)
        return mechanism.noise_by_horizon(prediction, available, allocation, sampling)

    def require(self, mechanism: "Mechanism") -> None:
        """Refuse steps of a mechanism whose costs are in no currency that the budget is made for."""
        if mechanism.kind not in self.kinds:
            raise ValueError(
                f"{self} does not cover {mechanism.name} noise. Use mechanism='auto', or an Approximate budget."
            )


def is_budget(value: object) -> bool:
    """Return whether this is a budget, of any kind."""
    return isinstance(value, Budget)


def _left(available: float, mechanism: "Mechanism") -> float:
    if available <= 0:
        raise ValueError(f"nothing is left for the steps: the expenses leave {mechanism.unit} = {available:.6g}.")
    return available


def total(*costs: Sequence[float] | np.ndarray) -> float:
    """Return the sum of all these costs, rounded up: by far more than the rounding error of a sum."""
    return up(math.fsum(np.concatenate([np.asarray(part, dtype=float) for part in costs])), 1e-13)


@dataclass(frozen=True)
class Expense:
    """A private release that the same budget pays for: what it was, and its cost in a mechanism's unit."""

    note: str
    cost: float
    unit: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", validate.positive("cost", self.cost))
        validate.choice("unit", self.unit, tuple(BY_UNIT))

    @property
    def kind(self) -> type[Cost]:
        """The currency that it was paid in."""
        return BY_UNIT[self.unit]
