"""The ledger: privacy budgets of datasets in a file, charged before noise is drawn."""

from epsteps.ledger.books import Book, BudgetExceededError
from epsteps.ledger.chain import Entry, LedgerError
from epsteps.ledger.ledger import Account, Ledger

__all__ = ["Account", "Book", "BudgetExceededError", "Entry", "Ledger", "LedgerError"]
