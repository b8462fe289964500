"""Books: the checked entries of a ledger, sorted by dataset, what they amount to, and how datasets may be named."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from epsteps.budgets import Budget
from epsteps.budgets.budget import Price, Tally, round_down, round_up
from epsteps.ledger.chain import Entry, LedgerError, Terms, load_terms

# Letters and marks that print nothing (Unicode's Default_Ignorable_Code_Point, and the empty braille cell), of those
# that count as printable.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


class BudgetExceededError(ValueError):
    """The charge does not fit into what remains of the dataset's budget; it was not made."""


@dataclass(frozen=True)
class Book:
    """One dataset: its terms and its charges, in order."""

    name: str
    terms: Terms
    charges: tuple[Entry, ...] = ()

    @property
    def budget(self) -> Budget:
        """The whole budget."""
        return self.terms.budget

    @property
    def unit(self) -> str:
        """What amounts are counted in, such as "epsilon" or "rho"."""
        return self.budget.unit

    @property
    def tally(self) -> Tally:
        """What the charges amount to."""
        return self.terms.tally([entry.cost for entry in self.charges])

    @property
    def spent(self) -> float:
        """Epsilon or rho, rounded up."""
        return round_up(self.tally.spent, self.terms.amounts)

    @property
    def remaining(self) -> float:
        """Epsilon or rho, rounded down."""
        tally = self.tally
        return round_down(tally.limit - tally.spent, self.terms.amounts)

    def require_room(self, cost: Price) -> None:
        """Refuse a cost that does not fit."""
        after = self.terms.tally([*(entry.cost for entry in self.charges), cost])
        if after.fits:
            return
        remaining = f"{self.unit} = {self.remaining!r} of {self.budget.amount!r}"
        remedy = f"Plan with {self.unit} of at most that, or stop here: a spent budget does not come back"
        if after.delta > after.delta_limit:
            left = max(after.delta_limit - self.tally.delta, Fraction(0))
            remaining += f" and delta = {round_down(left, self.terms.amounts)!r} for the deltas of charges"
            remedy = "Plan with a smaller delta, or with Pure(epsilon)"
        raise BudgetExceededError(f"{cost!r} does not fit: dataset {self.name!r} has {remaining} left. {remedy}.")


def open_books(entries: Sequence[Entry]) -> dict[str, Book]:
    """Sort checked entries by dataset, and refuse what no ledger would have written."""
    terms: dict[str, Terms] = {}
    charges: dict[str, list[Entry]] = {}
    keys: set[str] = set()
    for entry in entries:
        _require_readable(entry)
        known = entry.dataset in terms
        if known == (entry.action == "create") or entry.key in keys:
            raise LedgerError(f"the ledger cannot be trusted: entry {entry.seq} contradicts an earlier one.")
        if entry.key is not None:
            keys.add(entry.key)
        if known:
            charges[entry.dataset].append(entry)
        else:
            terms[entry.dataset], charges[entry.dataset] = load_terms(entry.terms), []
    return {name: Book(name, terms[name], tuple(charges[name])) for name in terms}


def _require_readable(entry: Entry) -> None:
    try:
        entry.cost  # noqa: B018
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"the ledger cannot be trusted: entry {entry.seq} has unknown terms.") from error


def find(books: dict[str, Book], name: str) -> Book:
    """Return the book of this dataset, or say which there are."""
    if name not in books:
        known = ", ".join(map(repr, list(books)[:5])) or "none"
        raise ValueError(f"the ledger has no dataset {name!r}; it has {known}. Make it with Ledger.create.")
    return books[name]


def require_plain(name: str) -> None:
    """Refuse a new name that has a second spelling: with spaces around it, composed otherwise, or not printable.

    Two names that people cannot tell apart would be two budgets for the same records.
    """
    plain = unicodedata.normalize("NFC", name).strip()
    if not plain.isprintable():
        raise ValueError(f"name must have printable characters only, got {name!a}.")
    if name != plain:
        raise ValueError(
            f"name must be composed (Unicode NFC) and have no spaces around it, got {name!a}. Use {plain!a} instead."
        )


def require_new(name: str, books: Mapping[str, Book]) -> None:
    """Refuse a name that exists, or that looks like one that does."""
    if name in books:
        raise ValueError(f"dataset {name!r} exists, with {books[name].budget}: a budget is declared once.")
    for other, book in books.items():
        if _look(other) == _look(name):
            raise ValueError(
                f"dataset {name!a} looks like {other!a}, which exists, with {book.budget}: a budget is "
                "declared once. Use a name that is easily told from it."
            )


def _look(name: str) -> str:
    """Return what names have in common that look alike: compatibility forms, capitals, spaces and invisible marks."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    visible = "".join(character for character in text if character.isprintable() or character.isspace())
    return " ".join(_INVISIBLE.sub("", visible).split())


class Account(Protocol):
    """The account of a dataset, such as ``Ledger.account``."""

    def charge(self, cost: Price, *, note: str, key: str | None = None) -> object:
        """Reserve the cost, or raise; the charge stands whatever happens afterwards.

        A second charge with the same ``key`` is the first one again: an interrupted run that goes on pays once.
        """
        ...


class OfPerson:
    """An account that is charged what all records of one person cost, in the place of one record.

    All else of the account is as it was: whatever it remembers of a charge can be asked here.
    """

    def __init__(self, account: Account, records: int) -> None:
        self._account, self._records = account, records

    def charge(self, cost: Any, *, note: str = "", key: str | None = None) -> object:
        """Charge the account for a person, or raise."""
        note = f"{note}; for a person with {self._records} records or fewer"
        return self._account.charge(cost.of_group(self._records), note=note, **({} if key is None else {"key": key}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._account, name)
