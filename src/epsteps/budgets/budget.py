"""What every budget offers: what may be spent, in which currencies, and what costs amount to together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets.costs import BY_UNIT, Cost
from epsteps.budgets.mechanisms import Mechanism
from epsteps.budgets.prices import Price, Tally
from epsteps.problem import validate
from epsteps.problem.kinds import Kinds
from epsteps.problem.rounding import up
from epsteps.problem.sampling import Sampling


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

        ``amounts`` says what number a float stands for: see ``epsteps.budgets.prices``. Unless the composition says
        otherwise, it must hold for prices that are chosen by earlier releases.
        """
        raise NotImplementedError

    def allocate(
        self, weights: np.ndarray | None, T: int, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the costs of T steps: best for these error weights, or even ones if None; less what is reserved."""
        self.require(mechanism)
        available = _left(self.capacity(mechanism.kind) - reserved, mechanism)
        return np.full(T, available / T) if weights is None else mechanism.split(weights, available, sampling)

    def noise_by_horizon(
        self, prediction: Prediction, allocation: str, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return ``sum weights_t scale_t²`` after T steps, for every T; sensitivity 1."""
        self.require(mechanism)
        available = _left(self.capacity(mechanism.kind) - reserved, mechanism)
        return mechanism.noise_by_horizon(prediction, available, allocation, sampling)

    def require(self, mechanism: Mechanism) -> None:
        """Refuse steps of a mechanism whose costs are in no currency that the budget is made for."""
        if mechanism.kind not in self.kinds:
            raise ValueError(
                f"{self} does not cover {mechanism.name} noise. Use mechanism='auto', or an Approximate budget."
            )


def _left(available: float, mechanism: Mechanism) -> float:
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
