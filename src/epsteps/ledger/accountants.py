"""Composition: what charges amount to together, under the budget that their dataset declared.

All sums are exact, of what the floats in them stand for (``epsteps.ledger.amounts``), and are compared exactly.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from epsteps.budgets import Approximate, Concentrated, Pure, zcdp_epsilon
from epsteps.budgets.composition import composed_epsilon
from epsteps.budgets.corners import Corners, composed
from epsteps.ledger import renyi
from epsteps.ledger.amounts import exact, round_down, round_up, total
from epsteps.ledger.terms import Cost, Terms

# Candidates for the part of a free delta that pays for turning rho into epsilon.
_SPLITS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class Tally:
    """What charges amount to: epsilon or rho, exactly or rounded up; and the deltas of approximate charges."""

    spent: Fraction
    limit: Fraction
    delta: Fraction = Fraction(0)
    delta_limit: Fraction = Fraction(0)

    @property
    def fits(self) -> bool:
        """Whether the budget covers it."""
        return self.spent <= self.limit and self.delta <= self.delta_limit


def tally(terms: Terms, charges: Sequence[Cost]) -> Tally:
    """Return what these charges, in this order, amount to under the terms; a charge that they cannot hold is refused.

    Pure budgets add up epsilon, concentrated ones rho, where a pure charge counts epsilon²/2 (Bun, Steinke 2016); both
    hold for prices chosen by earlier releases (Rogers et al. 2016; Feldman, Zrnic 2021).
    """
    budget, amounts = terms.budget, terms.amounts
    limit = exact(budget.amount, amounts)
    if isinstance(budget, Pure):
        _require_kinds(budget, charges, (Pure,), "Plan with Pure(epsilon), or use a dataset with another budget")
        return Tally(total((charge.amount for charge in charges), amounts), limit)
    if isinstance(budget, Approximate):
        if terms.composition == "numerical":
            return _numerical(budget, charges, amounts)
        if terms.composition == "plain" or _takes_delta(budget, charges[:1], amounts):
            return _plain(budget, charges, amounts)
        return _adaptive(budget, charges, amounts)
    _require_kinds(budget, charges, (Pure, Concentrated), "Plan with Concentrated(rho), or use an Approximate dataset")
    squares = Counter(charge.epsilon for charge in charges if isinstance(charge, Pure))
    halves = sum((count * exact(epsilon, amounts) ** 2 / 2 for epsilon, count in squares.items()), Fraction(0))
    rhos = total((charge.rho for charge in charges if isinstance(charge, Concentrated)), amounts)
    return Tally(halves + rhos, limit)


def _takes_delta(budget: Approximate, first: Sequence[Cost], amounts: str) -> bool:
    """Whether the first charge shows that delta will be needed for the deltas of charges.

    That is, if its part of delta exceeds a quarter of its part of epsilon. Nothing was released before it, so that the
    choice of the rule does not depend on the data.
    """
    return any(
        isinstance(charge, Approximate)
        and exact(charge.delta, amounts) / exact(budget.delta, amounts)
        > Fraction(renyi.CHARGES_SHARE) * exact(charge.epsilon, amounts) / exact(budget.epsilon, amounts)
        for charge in first
    )


def _plain(budget: Approximate, charges: Sequence[Cost], amounts: str) -> Tally:
    """Add up epsilons and deltas, which also holds for prices chosen by earlier releases (Rogers et al. 2016)."""
    epsilons, rhos, corners, delta = _parts(charges, amounts)
    if rhos or corners:
        raise ValueError(
            f"charges of {'rho' if rhos else 'corners'} cannot be made to this dataset with {budget}: it adds up "
            "epsilons and deltas, as it was created to or as its first charge needed. Charge "
            "Approximate(epsilon, delta) instead, with epsilon from "
            f"{'epsteps.budgets.zcdp_epsilon(rho, delta)' if rhos else 'corners.epsilon(1.0, delta)'}."
        )
    return Tally(
        total(epsilons.elements(), amounts), exact(budget.epsilon, amounts), delta, exact(budget.delta, amounts)
    )


def _adaptive(budget: Approximate, charges: Sequence[Cost], amounts: str) -> Tally:
    """Compose charges whose prices may depend on earlier releases (proved in ``epsteps.ledger.renyi``).

    A quarter of delta is for the deltas of charges and the rest for Rényi accounts; the smallest of these and of the
    plain sum counts.
    """
    epsilons, rhos, corners, delta = _parts(charges, amounts)
    found = [account.epsilon(epsilons, rhos, corners) for account in renyi.accounts(budget.epsilon, budget.delta)]
    # Sums may overflow; such charges do not fit.
    candidates = [exact(epsilon, amounts) for epsilon in found if epsilon < sys.float_info.max]
    if not rhos and not corners:
        candidates.append(total(epsilons.elements(), amounts))
    limit = exact(budget.epsilon, amounts)
    spent = min(candidates, default=2 * limit)
    return Tally(spent, limit, delta, exact(budget.delta, amounts) * Fraction(renyi.CHARGES_SHARE))


def _numerical(budget: Approximate, charges: Sequence[Cost], amounts: str) -> Tally:
    """Compose charges whose prices were all fixed before the first release: sharper.

    Formal guarantee: an (epsilon_i, delta_i) charge is randomised response except with chance delta_i (Kairouz, Oh,
    Viswanath 2015), so that the sum of the delta_i is set aside and the epsilons are composed at what is left of delta.
    The sum of the rhos becomes one such charge, with a part of what is left for its own delta, and so do all corners
    together; every part is valid. That their releases may alternate with others is concurrent composition (Lyu 2022).
    """
    epsilons, rhos, corners, delta = _parts(charges, amounts)
    whole, costs = exact(budget.delta, amounts), list(epsilons.elements())
    groups = _groups(rhos, corners, amounts)
    candidates = [] if groups else [total(costs, amounts)]
    free = round_down(whole - delta, amounts)
    if free > 0 and charges:
        if not groups:
            candidates.append(exact(composed_epsilon(np.array(costs), free), amounts))
        for split in _SPLITS if groups else ():
            extra = [epsilon_at(free * split / len(groups)) * (1 + 1e-12) for epsilon_at in groups]
            candidates.append(total([*costs, *extra], amounts))
            rest = free * (1 - split) * (1 - 1e-12)
            candidates.append(exact(composed_epsilon(np.array([*costs, *extra]), rest), amounts))
    if not candidates:
        raise ValueError(
            f"these charges cannot go together under {budget}: approximate ones take delta = "
            f"{round_up(delta, amounts)!r}, and those of rho or corners need some of it to become epsilon. Plan with "
            "a smaller delta, or with Pure(epsilon)."
        )
    return Tally(min(candidates), exact(budget.epsilon, amounts), delta, whole)


def _groups(rhos: Counter[float], corners: Counter[Corners], amounts: str) -> list[Callable[[float], float]]:
    """Return, for the rhos together and for the corners together, what their epsilon is at a delta."""
    groups: list[Callable[[float], float]] = []
    if rhos:
        rho = round_up(total(rhos.elements(), amounts), amounts)
        groups.append(lambda delta: zcdp_epsilon(rho, delta))
    if corners:
        together = composed(list(corners.elements()))
        groups.append(lambda delta: together.epsilon(1.0, delta))
    return groups


def _parts(charges: Sequence[Cost], amounts: str) -> tuple[Counter[float], Counter[float], Counter[Corners], Fraction]:
    """Return the epsilons of pure and approximate charges, the rhos, the corners, and the sum of the deltas."""
    epsilons = Counter(charge.epsilon for charge in charges if isinstance(charge, Pure | Approximate))
    rhos = Counter(charge.rho for charge in charges if isinstance(charge, Concentrated))
    corners = Counter(charge for charge in charges if isinstance(charge, Corners))
    deltas = (charge.delta for charge in charges if isinstance(charge, Approximate))
    return epsilons, rhos, corners, total(deltas, amounts)


def _require_kinds(budget: Cost, charges: Sequence[Cost], kinds: tuple[type, ...], remedy: str) -> None:
    for charge in charges:
        if not isinstance(charge, kinds):
            raise TypeError(f"{charge} cannot be charged to a dataset with {budget}: it promises less. {remedy}.")
