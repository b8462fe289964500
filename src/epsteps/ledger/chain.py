"""Entries: budgets and prices as text that reads back bit for bit, in a chain of hashes.

The text is canonical, so that it can be hashed: each entry carries a SHA-256 of its content and of the entry before it.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from epsteps.budgets import Budget
from epsteps.budgets.budget import AMOUNTS, Price, Tally
from epsteps.problem import validate

# What the first entry follows.
GENESIS = "0" * 64
ACTIONS = ("create", "charge")
ADJACENCY = "replace-one"
COMPOSITIONS = ("adaptive", "plain", "numerical")


class LedgerError(OSError):
    """The ledger's file cannot be used: missing, locked, full, read-only, broken, or changed by hand.

    Nothing may be released after it: the charge is not known to be durable.
    """


@dataclass(frozen=True)
class Terms:
    """What a dataset was created with: its whole budget, how charges compose under it, and what floats stand for."""

    budget: Budget
    composition: str = "adaptive"
    amounts: str = "decimal"

    def __post_init__(self) -> None:
        checked("budget", self.budget)
        if not self.budget.compositions:
            raise TypeError(
                f"budget must be Pure, Concentrated or Approximate, got {self.budget!r}. "
                "Corners are the price of a release."
            )
        validate.choice("composition", self.composition, COMPOSITIONS)
        validate.choice("amounts", self.amounts, AMOUNTS)
        if self.composition not in self.budget.compositions:
            raise ValueError(
                f"composition={self.composition!r} is for Approximate(epsilon, delta), got {self.budget!r}: "
                "its charges simply add up. Leave composition out."
            )

    def tally(self, prices: Sequence[Price]) -> Tally:
        """Return what these prices, in this order, amount to; one that the budget cannot hold is refused."""
        return self.budget.tally(prices, self.composition, self.amounts)


def checked(name: str, price: Any) -> Any:
    """Return the price if it is of a kind that ledgers know, or raise."""
    if Price.tagged.get(getattr(price, "tag", "")) is not type(price):
        raise TypeError(
            f"{name} must be Pure(epsilon), Concentrated(rho), Approximate(epsilon, delta) or Corners, got {price!r}."
        )
    return price


def dump_cost(cost: Price) -> str:
    """Return the cost as text."""
    return json.dumps(cost.to_dict(), sort_keys=True)


@lru_cache(maxsize=4096)
def load_cost(text: str) -> Price:
    """Read a cost; floats have the shortest digits that give the same float again."""
    return Price.from_dict(json.loads(text))


def dump_terms(terms: Terms) -> str:
    """Return the terms as text."""
    described = {"adjacency": ADJACENCY, "amounts": terms.amounts, "composition": terms.composition}
    return json.dumps(terms.budget.to_dict() | described, sort_keys=True)


@lru_cache(maxsize=4096)
def load_terms(text: str) -> Terms:
    """Read terms, and refuse another adjacency than the library's; terms without a word on amounts are old ones."""
    content = json.loads(text)
    validate.choice("adjacency", content.pop("adjacency"), (ADJACENCY,))
    composition, amounts = content.pop("composition"), content.pop("amounts", "binary")
    return Terms(Price.from_dict(content), composition, amounts)  # pyright: ignore[reportArgumentType]


class Entry(NamedTuple):
    """One line of a ledger, as stored.

    ``terms`` is the budget of a dataset (``action`` "create") or the price of a release ("charge"), as text that reads
    back exactly; ``cost`` is the same as an object. The hash comes last: it covers all before it.
    """

    seq: int
    time: str
    action: str
    dataset: str
    terms: str
    note: str
    key: str | None
    previous: str
    hash: str

    @property
    def cost(self) -> Price:
        """The budget or the price."""
        return load_terms(self.terms).budget if self.action == "create" else load_cost(self.terms)

    def to_dict(self) -> dict[str, Any]:
        """Return the columns."""
        return self._asdict()


def digest(entry: Entry) -> str:
    """Return the SHA-256 of everything in the entry but its own hash."""
    return _digest(entry[:-1])


# Remembered by content, so that a process which charges again and again need not hash old entries again.
@lru_cache(maxsize=2**16)
def _digest(content: tuple[int | str | None, ...]) -> str:
    """Hash a JSON list, which no two contents share: numbers, texts and null stay apart."""
    return hashlib.sha256(json.dumps(content).encode("ascii")).hexdigest()


def follow(entries: Sequence[Entry], action: str, dataset: str, terms: str, note: str, key: str | None) -> Entry:
    """Return the entry that comes next.

    The numbers order the entries, not the clock: where it was set back, the time of the last entry is repeated.
    """
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    last = entries[-1] if entries else None
    time = max(now, last.time) if last else now
    previous = last.hash if last else GENESIS
    entry = Entry(len(entries) + 1, time, action, dataset, terms, note, key, previous, hash="")
    return entry._replace(hash=digest(entry))


def fault(entries: Sequence[Entry], issued: int, known: int = 0) -> str | None:
    """Say what is wrong with the chain, or None; ``issued`` is the last number that was ever given.

    The first ``known`` entries were found to be right before.
    """
    previous, time = (entries[known - 1].hash, entries[known - 1].time) if known else (GENESIS, "")
    for number, entry in enumerate(entries[known:], start=known + 1):
        if entry.seq != number:
            return f"entry {number} is missing"
        if not _is_unchanged(entry):
            return f"entry {number} was changed after it was written"
        if entry.previous != previous or entry.time < time or entry.action not in ACTIONS:
            return f"entry {number} does not follow from the one before it"
        previous, time = entry.hash, entry.time
    if issued != len(entries):
        return f"it has {len(entries)} entries, but {issued} were written: some were deleted from its end"
    return None


def _is_unchanged(entry: Entry) -> bool:
    try:
        return entry.hash == digest(entry)
    except TypeError:  # a column holds bytes, which no ledger wrote
        return False
