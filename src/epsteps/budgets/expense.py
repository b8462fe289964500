"""What was bought with budget before a plan: a line of expense."""

from dataclasses import dataclass

from epsteps.problem import validate


@dataclass(frozen=True)
class Expense:
    """A private release that the same budget pays for: what it was, and its cost in a mechanism's unit."""

    note: str
    cost: float
    unit: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", validate.positive("cost", self.cost))
        validate.choice("unit", self.unit, ("epsilon", "rho"))
