"""Budgets and costs as text: canonical, so that it can be hashed, and exact, so that it reads back bit for bit."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from epsteps.budgets import Approximate, Concentrated, Pure
from epsteps.budgets.corners import Corners
from epsteps.ledger.amounts import AMOUNTS
from epsteps.problem import validate

Cost = Pure | Concentrated | Approximate | Corners

_KINDS: dict[str, type[Pure] | type[Concentrated] | type[Approximate] | type[Corners]] = {
    "pure": Pure,
    "concentrated": Concentrated,
    "approximate": Approximate,
    "corners": Corners,
}
ADJACENCY = "replace-one"
COMPOSITIONS = ("adaptive", "plain", "numerical")


@dataclass(frozen=True)
class Terms:
    """What a dataset was created with: its whole budget, how charges compose under it, and what floats stand for."""

    budget: Cost
    composition: str = "adaptive"
    amounts: str = "decimal"

    def __post_init__(self) -> None:
        checked("budget", self.budget)
        if isinstance(self.budget, Corners):
            raise TypeError(
                f"budget must be Pure, Concentrated or Approximate, got {self.budget!r}. "
                "Corners are the price of a release."
            )
        validate.choice("composition", self.composition, COMPOSITIONS)
        validate.choice("amounts", self.amounts, AMOUNTS)
        if self.composition != "adaptive" and not isinstance(self.budget, Approximate):
            raise ValueError(
                f"composition={self.composition!r} is for Approximate(epsilon, delta), got {self.budget!r}: "
                "its charges simply add up. Leave composition out."
            )


def checked(name: str, cost: Any) -> Cost:
    """Return the cost if it is one of the library's budgets, or raise."""
    if type(cost) not in _KINDS.values():
        raise TypeError(
            f"{name} must be Pure(epsilon), Concentrated(rho), Approximate(epsilon, delta) or Corners, got {cost!r}."
        )
    return cost


def dump_cost(cost: Cost) -> str:
    """Return the cost as text."""
    return json.dumps(_fields(cost), sort_keys=True)


@lru_cache(maxsize=4096)
def load_cost(text: str) -> Cost:
    """Read a cost; floats have the shortest digits that give the same float again."""
    fields = json.loads(text)
    return _KINDS[fields.pop("kind")](**fields)


def dump_terms(terms: Terms) -> str:
    """Return the terms as text."""
    described = {"adjacency": ADJACENCY, "amounts": terms.amounts, "composition": terms.composition}
    return json.dumps(_fields(terms.budget) | described, sort_keys=True)


@lru_cache(maxsize=4096)
def load_terms(text: str) -> Terms:
    """Read terms, and refuse another adjacency than the library's; terms without a word on amounts are old ones."""
    fields = json.loads(text)
    validate.choice("adjacency", fields.pop("adjacency"), (ADJACENCY,))
    composition, amounts = fields.pop("composition"), fields.pop("amounts", "binary")
    return Terms(_KINDS[fields.pop("kind")](**fields), composition, amounts)


def _fields(cost: Cost) -> dict[str, Any]:
    kind = next(kind for kind, budget in _KINDS.items() if type(cost) is budget)
    return {"kind": kind} | vars(cost)
