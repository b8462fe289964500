"""Books: the checked entries of a ledger, sorted by dataset, and what they amount to."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from epsteps.budgets import Concentrated
from epsteps.ledger.accountants import Tally, tally
from epsteps.ledger.amounts import round_down, round_up
from epsteps.ledger.chain import Entry
from epsteps.ledger.errors import BudgetExceededError, LedgerError
from epsteps.ledger.terms import Cost, Terms, load_terms


@dataclass(frozen=True)
class Book:
    """One dataset: its terms and its charges, in order."""

    name: str
    terms: Terms
    charges: tuple[Entry, ...] = ()

    @property
    def budget(self) -> Cost:
        """The whole budget."""
        return self.terms.budget

    @property
    def unit(self) -> str:
        """What amounts are counted in: "epsilon" or "rho"."""
        return "rho" if isinstance(self.budget, Concentrated) else "epsilon"

    @property
    def tally(self) -> Tally:
        """What the charges amount to."""
        return tally(self.terms, [entry.cost for entry in self.charges])

    @property
    def spent(self) -> float:
        """Epsilon or rho, rounded up."""
        return round_up(self.tally.spent, self.terms.amounts)

    @property
    def remaining(self) -> float:
        """Epsilon or rho, rounded down."""
        found = self.tally
        return round_down(found.limit - found.spent, self.terms.amounts)

    def require_room(self, cost: Cost) -> None:
        """Refuse a cost that does not fit."""
        after = tally(self.terms, [*(entry.cost for entry in self.charges), cost])
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
