"""What is charged before noise is drawn."""

from typing import Protocol

from epsteps.budgets.prices import Price


class Account(Protocol):
    """The account of a dataset, such as ``Ledger.account``."""

    def charge(self, cost: Price, *, note: str, key: str | None = None) -> object:
        """Reserve the cost, or raise; the charge stands whatever happens afterwards.

        A second charge with the same ``key`` is the first one again: an interrupted run that goes on pays once.
        """
        ...
