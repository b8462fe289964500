"""Releases on parts of a dataset that have no record in common: one charge for all, the largest of their prices."""

from collections.abc import Sequence

import numpy as np

from epsteps.budgets import Budget
from epsteps.budgets.budget import Price
from epsteps.ledger.books import Account
from epsteps.noise.bits import public_generator
from epsteps.problem import validate


def split(n: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the records of a fit, and of those held out, by a rule that is public: n, share and seed.

    Each record is in one part. Which one follows from its place alone, so that replacing a record changes one part and
    leaves the other as it is.

    >>> split(5, 0.4, seed=7)
    (array([1, 3, 4]), array([0, 2]))
    """
    if not 0 < validate.number("hold_out", share) < 1:
        raise ValueError(f"hold_out must lie between 0 and 1, got {share!r}.")
    count = round(share * validate.integer("n", n, low=4))
    count = min(max(count, 2), n - 2)
    order = public_generator(validate.integer("split_seed", seed, low=0)).permutation(n)
    return np.sort(order[count:]), np.sort(order[:count])


def price_of_parts(prices: Sequence[Budget]) -> Budget:
    """Return what releases on parts without a record in common cost together: the largest of their prices.

    They must be of one kind, with one delta: others are not compared.
    """
    if len({(type(price), price.delta) for price in prices}) != 1:
        listed = " and ".join(map(str, prices))
        raise TypeError(f"parts must be paid for by one kind of budget, with one delta, got {listed}.")
    return max(prices, key=lambda price: price.amount)


class Disjoint:
    """The account of parts of one dataset without a record in common: each part may be charged once.

    Formal guarantee: let release i read part i alone and what was published before, and be private as price i says.
    Replacing a record changes one part, so that all releases but one are the same functions of what was published: all
    together are private as the price of that part says, hence as the largest. That is what is charged, once, and before
    the first part is read. A part that asks for more than it was opened with is refused, and so is one that asks twice.
    Whoever reads the parts must have divided the records (``split``), in the same process: this class counts charges,
    and sees no records.

    Parameters
    ----------
    account : account
        That of the whole dataset.
    prices : sequence of Budget
        One for each part, of one kind and with one delta.
    note : str
        What the ledger says.
    """

    def __init__(self, account: Account, prices: Sequence[Budget], note: str) -> None:
        self.price, self._account, self._prices, self._note = price_of_parts(prices), account, tuple(prices), note
        self._left, self._charged = set(range(len(self._prices))), False

    def __repr__(self) -> str:
        return f"Disjoint({self._account!r}, {self.price})"

    def part(self, number: int) -> Account:
        """Return the account of one part."""
        return _Part(self, number)

    def _spend(self, number: int, cost: Price) -> None:
        allowed = self._prices[number]
        if number not in self._left:
            raise ValueError(f"part {number} was charged already: a second release of it needs a charge of its own.")
        if type(cost) is not type(allowed) or cost.amount > allowed.amount or cost.delta != allowed.delta:  # pyright: ignore
            raise ValueError(f"part {number} was opened for {allowed}, and is asked for {cost}.")
        if not self._charged:
            self._account.charge(self.price, note=self._note)
            self._charged = True
        self._left.remove(number)


class _Part:
    def __init__(self, whole: Disjoint, number: int) -> None:
        self._whole, self._number = whole, number

    def __repr__(self) -> str:
        return f"part {self._number} of {self._whole!r}"

    def charge(self, cost: Price, *, note: str = "", key: str | None = None) -> None:
        """Take the price off the part's; the whole dataset is charged with the first."""
        if key is not None:
            raise ValueError("parts of a dataset are charged in one process: leave checkpoint out.")
        self._whole._spend(self._number, cost)
