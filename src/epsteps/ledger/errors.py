"""What a ledger refuses with."""


class LedgerError(OSError):
    """The ledger's file cannot be used: missing, locked, full, read-only, broken, or changed by hand.

    Nothing may be released after it: the charge is not known to be durable.
    """


class BudgetExceededError(ValueError):
    """The charge does not fit into what remains of the dataset's budget; it was not made."""
