"""The ledger: the privacy budget of datasets, durable, charged before noise is drawn."""

from dataclasses import replace
from os import PathLike
from typing import Any

from epsteps.budgets import Budget
from epsteps.budgets.budget import Price
from epsteps.ledger import databases, store
from epsteps.ledger.books import Book, find, open_books, require_new, require_plain
from epsteps.ledger.chain import GENESIS, Entry, LedgerError, Terms, checked, dump_cost, dump_terms, follow

_LONGEST_NAME = 200
_LONGEST_NOTE = 2000


class Ledger:
    """A file that holds the privacy budgets of datasets, and every charge against them.

    A charge is on the disk before :meth:`charge` returns, it stands whatever happens afterwards, and one that does not
    fit is refused: sums are exact, of the decimals that were written (ten charges of 0.1 fit a budget of 1.0, and not
    the smallest one more), and any number of threads and processes may charge at once. Budgets are for
    neighbours that differ in one replaced record. The guarantee covers what was charged: a release that bypasses the
    ledger is not in it.

    Every entry carries a SHA-256 over its content and the entry before it. Each operation checks all of them, so that
    an entry that was edited, moved, inserted or deleted is refused with :class:`LedgerError`. A chain cannot tell who
    wrote it: someone with write access who knows this code can write another one, put back an older copy, or cut off
    the end and reset the counter of entries. To notice that, keep :meth:`head` elsewhere and pass it to :meth:`verify`.

    Parameters
    ----------
    path : path
        An SQLite file on a local disk (locks are not to be relied upon over a network), made by the first
        :meth:`create`, for its owner alone to read. What it means is settled here: ``path`` is then absolute, without
        symbolic links, and stays the same file wherever the process goes. A file with a second name (hard link) is
        refused.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._given = path
        self.path = databases.real_path(path)

    def __repr__(self) -> str:
        """Return what was given: certificates quote it, and tell nothing of the folders of this machine."""
        return f"Ledger({str(self._given)!r})"

    def create(self, name: str, budget: Budget, *, composition: str = "adaptive", note: str = "") -> Entry:
        """Declare a dataset and its whole budget, once and for all; makes the file if there is none.

        Parameters
        ----------
        name : str
            Up to 200 characters that can be printed, without spaces around them. A name that looks like that of an
            existing dataset is refused, since it would be a second budget for what people take to be the same
            records: one that differs only in capitals, in how letters are composed, or in what cannot be seen.
        budget : Pure, Concentrated or Approximate
            Pure takes pure charges and adds epsilon. Concentrated also takes pure ones, as rho = epsilon²/2.
            Approximate takes every kind.
        composition : "adaptive", "plain" or "numerical"
            For Approximate. "adaptive" and "plain" hold even if prices are chosen by what was released before. "plain"
            adds up epsilons and deltas, and takes no rho. "adaptive" is sharper for many charges and leaves a quarter
            of delta to the deltas of charges; it becomes "plain" if the first charge is Approximate with a larger part
            of delta than a quarter of its part of epsilon. "numerical" is sharper still, and holds only
            if all prices are fixed before the first release: not for plans that depend on a bought constant.
        note : str
            For people.
        """
        terms = Terms(budget, composition)
        _require_text("name", name, 1, _LONGEST_NAME)
        require_plain(name)
        _require_text("note", note, 0, _LONGEST_NOTE)

        def decide(entries: list[Entry]) -> Entry:
            require_new(name, open_books(entries))
            return follow(entries, "create", name, dump_terms(terms), note, None)

        return store.append(self.path, decide, create=True)

    def charge(self, name: str, cost: Price, *, note: str = "", key: str | None = None) -> Entry:
        """Charge a cost to a dataset, durably, or raise; there is no refund.

        Raises :class:`BudgetExceededError` if it does not fit, :class:`LedgerError` if the file cannot be used. After
        either, and after any other exception, release nothing.

        Parameters
        ----------
        name : str
            The dataset.
        cost : Pure, Concentrated, Approximate or Corners
            What the release promises; ``Corners`` are the list of a tilted minimum, ``ObjectivePlan.cost``.
        note : str
            For people.
        key : str, optional
            Makes the charge happen once: a second one with the same key, dataset and cost returns the first entry. Only
            for resuming the same release with the same noise; new noise is a new release and needs a new key.
        """
        price = checked("cost", cost)
        _require_text("name", name, 1, _LONGEST_NAME)
        _require_text("note", note, 0, _LONGEST_NOTE)
        if key is not None:
            _require_text("key", key, 1, _LONGEST_NAME)

        def decide(entries: list[Entry]) -> Entry:
            book = find(open_books(entries), name)
            paid = next((entry for entry in entries if key is not None and entry.key == key), None)
            if paid is not None:
                return _require_same(paid, name, price)
            book.require_room(price)
            return follow(entries, "charge", name, dump_cost(price), note, key)

        return store.append(self.path, decide)

    def receipt(self, entry: Entry) -> dict[str, Any]:
        """Return what is told of a charge beside a release: its entry, and the budget before and after it.

        Amounts are in ``unit``: all of the ``budget``, ``before`` this charge and ``after`` it (rounded up), what the
        ``release`` added, which under some compositions is less than its own cost, and what was ``left`` (rounded
        down). Later charges do not change it.
        """
        book = self.book(entry.dataset)
        before, after = (
            replace(book, charges=tuple(charge for charge in book.charges if charge.seq <= last))
            for last in (entry.seq - 1, entry.seq)
        )
        facts = {name: getattr(entry, name) for name in ("dataset", "seq", "time", "terms", "note", "hash")}
        amounts = {"before": before.spent, "after": after.spent, "release": after.spent - before.spent}
        declared = {"unit": book.unit, "allowed": str(book.budget), "budget": float(book.budget.amount)}
        return {"file": self.path.name, **facts, **declared, **amounts, "left": after.remaining}

    def books(self) -> list[Book]:
        """Return every dataset with its budget and its charges, in the order of their creation."""
        return list(open_books(store.read(self.path)).values())

    def book(self, name: str) -> Book:
        """Return one dataset with its budget and its charges."""
        return find(open_books(store.read(self.path)), name)

    def spent(self, name: str) -> float:
        """Return the epsilon (or rho) that was spent, rounded up.

        For an Approximate budget it is the epsilon of all charges together, at the declared delta.
        """
        return self.book(name).spent

    def remaining(self, name: str) -> float:
        """Return the epsilon (or rho) that remains: the budget minus what was spent, rounded down."""
        return self.book(name).remaining

    def history(self, name: str) -> list[Entry]:
        """Return the charges of a dataset, in order."""
        return list(self.book(name).charges)

    def entries(self) -> list[Entry]:
        """Return every entry of the ledger, in order: the creations of datasets, and the charges."""
        return store.read(self.path)

    def head(self) -> str:
        """Return the hash of the last entry: kept elsewhere, it shows later that nothing before it was changed."""
        entries = store.read(self.path)
        return entries[-1].hash if entries else GENESIS

    def verify(self, head: str | None = None) -> str:
        """Check every entry and every budget, and return the head; raise :class:`LedgerError` if anything is wrong.

        Parameters
        ----------
        head : str, optional
            A head that was kept: it must be the hash of an entry.
        """
        entries = store.read(self.path)
        for book in open_books(entries).values():
            if not book.tally.fits:
                raise LedgerError(
                    f"{self.path} cannot be trusted: dataset {book.name!r} spent more than {book.budget}."
                )
        hashes = [GENESIS, *(entry.hash for entry in entries)]
        if head is not None and head not in hashes:
            raise LedgerError(
                f"{self.path} cannot be trusted: no entry has the hash {head!r} that was kept. "
                "The ledger was cut off or replaced by another one."
            )
        return hashes[-1]

    def account(self, name: str) -> "Account":
        """Return the account of one dataset, for ``epsteps.run(..., ledger=account)``."""
        self.book(name)
        return Account(self, name)


class Account:
    """One dataset of a ledger: what a run charges before it draws noise."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.name = name

    def __repr__(self) -> str:
        return f"{self.ledger!r}.account({self.name!r})"

    def charge(self, cost: Price, *, note: str = "", key: str | None = None) -> Entry:
        """Charge the dataset, durably, or raise: see :meth:`Ledger.charge`."""
        return self.ledger.charge(self.name, cost, note=note, key=key)


def _require_same(paid: Entry, name: str, cost: Price) -> Entry:
    """Refuse a key that was used for something else."""
    if (paid.dataset, paid.action, paid.terms) != (name, "charge", dump_cost(cost)):
        raise ValueError(
            f"key {paid.key!r} was used for {paid.cost!r} on dataset {paid.dataset!r}, got {cost!r} on {name!r}. "
            "A new release needs a new key."
        )
    return paid


def _require_text(label: str, text: str, shortest: int, longest: int) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{label} must be text, got {text!r}.")
    if not shortest <= len(text) <= longest:
        raise ValueError(f"{label} must have {shortest} to {longest} characters, got {len(text)}.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{label} must be text that UTF-8 can write, got {text!r}.")
