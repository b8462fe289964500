"""Prices under an (epsilon, delta) budget: sums, numerical composition, and Rényi accounts of fixed orders.

Someone who sees the releases may choose the next price by them, so that the ledger is a privacy filter. The sharpest
numerical composition is proven only for prices fixed in advance; what is used unless asked otherwise holds for any.

Formal guarantee: at one fixed order alpha, conditional Rényi divergences add up, and a run that never exceeds the total
B is (alpha, B)-Rényi-private however prices were chosen (Feldman, Zrnic 2021; Lécuyer 2021). That is
(epsilon, delta_k)-privacy for epsilon = B + ln((alpha-1)/alpha) - (ln delta_k + ln alpha)/(alpha-1) (Canonne, Kamath,
Steinke 2020). Where any one of several accounts may admit a charge, cut each account's run off where that account is
exceeded: the outcomes that it admits are unchanged, so that together they break epsilon with at most the sum of the
delta_k. The delta_i of approximate charges are the chance that one of them is not epsilon_i-private (Kairouz, Oh,
Viswanath 2015); outside of that they are pure. If all prices are pure and add up to at most epsilon, nothing breaks it.
A minimum of a tilted objective is charged by its corners, whose bound on the divergence holds at every order.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from epsteps.budgets.budget import Price, Tally, exact, exact_total, round_down, round_up
from epsteps.budgets.composition import composed_epsilon
from epsteps.budgets.conversions import zcdp_epsilon
from epsteps.budgets.corners import Corners, composed
from epsteps.problem.rounding import down, up

if TYPE_CHECKING:
    from epsteps.budgets.kinds import Approximate

# Candidates for the part of a free delta that pays for turning rho into epsilon.
_SPLITS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9)
# Shares of delta: for the deltas of charges, and for the tails of the accounts. Together 1, exactly in binary.
CHARGES_SHARE = 1 / 4
_TAIL_SHARES = (1 / 2, 1 / 8, 1 / 8)
# The first order is best for many small charges. The higher ones are for a few large pure charges among them.
_ORDER_FACTORS = (1, 2, 4)


def tally(budget: "Approximate", prices: Sequence[Price], composition: str, amounts: str) -> Tally:
    """Return what these prices, in this order, amount to under the budget; refuse what the rule cannot hold."""
    gathered = Gathered(prices, amounts)
    if composition == "numerical":
        return _numerical(budget, gathered, amounts)
    if composition == "plain" or _takes_delta(budget, prices[:1], amounts):
        return _plain(budget, gathered, amounts)
    return _adaptive(budget, gathered, amounts)


class Gathered:
    """The parts of prices: how often there is which epsilon, rho and list of corners, and the sum of the deltas."""

    def __init__(self, prices: Sequence[Price], amounts: str) -> None:
        parts = [price.parts for price in prices]
        self.epsilons = Counter(part.epsilon for part in parts if part.epsilon is not None)
        self.rhos = Counter(part.rho for part in parts if part.rho is not None)
        self.corners = Counter(part.corners for part in parts if part.corners is not None)
        self.delta = exact_total((part.delta for part in parts if part.delta is not None), amounts)

    def groups(self, amounts: str) -> list[Callable[[float], float]]:
        """Return, for the rhos together and for the corners together, what their epsilon is at a delta."""
        groups: list[Callable[[float], float]] = []
        if self.rhos:
            rho = round_up(exact_total(self.rhos.elements(), amounts), amounts)
            groups.append(lambda delta: zcdp_epsilon(rho, delta))
        if self.corners:
            together = composed(list(self.corners.elements()))
            groups.append(lambda delta: together.epsilon(1.0, delta))
        return groups


def _takes_delta(budget: "Approximate", first: Sequence[Price], amounts: str) -> bool:
    """Whether the first price shows that delta will be needed for the deltas of prices.

    That is, if its part of delta exceeds a quarter of its part of epsilon. Nothing was released before it, so that the
    choice of the rule does not depend on the data.
    """
    return any(
        part.delta is not None
        and exact(part.delta, amounts) / exact(budget.delta, amounts)
        > Fraction(CHARGES_SHARE) * exact(part.epsilon or 0.0, amounts) / exact(budget.epsilon, amounts)
        for part in (price.parts for price in first)
    )


def _plain(budget: "Approximate", gathered: Gathered, amounts: str) -> Tally:
    """Add up epsilons and deltas, which also holds for prices chosen by earlier releases (Rogers et al. 2016)."""
    rhos = gathered.rhos
    if rhos or gathered.corners:
        raise ValueError(
            f"charges of {'rho' if rhos else 'corners'} cannot be made to this dataset with {budget}: it adds up "
            "epsilons and deltas, as it was created to or as its first charge needed. Charge "
            "Approximate(epsilon, delta) instead, with epsilon from "
            f"{'epsteps.budgets.zcdp_epsilon(rho, delta)' if rhos else 'corners.epsilon(1.0, delta)'}."
        )
    spent, limit = exact_total(gathered.epsilons.elements(), amounts), exact(budget.epsilon, amounts)
    return Tally(spent, limit, gathered.delta, exact(budget.delta, amounts))


def _adaptive(budget: "Approximate", gathered: Gathered, amounts: str) -> Tally:
    """Compose prices that may depend on earlier releases, as is proved above.

    A quarter of delta is for the deltas of prices and the rest for Rényi accounts; the smallest of these and of the
    plain sum counts.
    """
    epsilons = [account.epsilon(gathered) for account in accounts(budget.epsilon, budget.delta)]
    # Sums may overflow; such prices do not fit.
    candidates = [exact(epsilon, amounts) for epsilon in epsilons if epsilon < sys.float_info.max]
    if not gathered.rhos and not gathered.corners:
        candidates.append(exact_total(gathered.epsilons.elements(), amounts))
    limit = exact(budget.epsilon, amounts)
    share = exact(budget.delta, amounts) * Fraction(CHARGES_SHARE)
    return Tally(min(candidates, default=2 * limit), limit, gathered.delta, share)


def _numerical(budget: "Approximate", gathered: Gathered, amounts: str) -> Tally:
    """Compose prices that were all fixed before the first release: sharper.

    Formal guarantee: an (epsilon_i, delta_i) charge is randomised response except with chance delta_i (Kairouz, Oh,
    Viswanath 2015), so that the sum of the delta_i is set aside and the epsilons are composed at what is left of delta.
    The sum of the rhos becomes one such charge, with a part of what is left for its own delta, and so do all corners
    together; every part is valid. That their releases may alternate with others is concurrent composition (Lyu 2022).
    """
    whole, costs = exact(budget.delta, amounts), list(gathered.epsilons.elements())
    groups = gathered.groups(amounts)
    candidates = [] if groups else [exact_total(costs, amounts)]
    free = round_down(whole - gathered.delta, amounts)
    if free > 0 and (costs or groups):
        if not groups:
            candidates.append(exact(composed_epsilon(np.array(costs), free), amounts))
        for split in _SPLITS if groups else ():
            extra = [up(epsilon_at(free * split / len(groups))) for epsilon_at in groups]
            candidates.append(exact_total([*costs, *extra], amounts))
            left = down(free * (1 - split))
            candidates.append(exact(composed_epsilon(np.array([*costs, *extra]), left), amounts))
    if not candidates:
        raise ValueError(
            f"these charges cannot go together under {budget}: approximate ones take delta = "
            f"{round_up(gathered.delta, amounts)!r}, and those of rho or corners need some of it to become epsilon. "
            "Plan with a smaller delta, or with Pure(epsilon)."
        )
    return Tally(min(candidates), exact(budget.epsilon, amounts), gathered.delta, whole)


@dataclass(frozen=True)
class RenyiAccount:
    """An account of one order: what its prices add up to, plus ``tail``, is their epsilon; rounded up."""

    order: float
    tail: float

    def epsilon(self, gathered: Gathered) -> float:
        """Return the epsilon of these prices at the account's part of delta."""
        pure = math.fsum(count * pure_divergence(epsilon, self.order) for epsilon, count in gathered.epsilons.items())
        concentrated = math.fsum(count * rho for rho, count in gathered.rhos.items()) * self.order
        cornered = math.fsum(count * _corner_divergence(each, self.order) for each, count in gathered.corners.items())
        # Far above the rounding error of these formulas.
        return up(pure + concentrated + cornered + self.tail, 1e-9)


@lru_cache(maxsize=64)
def accounts(epsilon: float, delta: float) -> tuple[RenyiAccount, ...]:
    """Return the accounts of an (epsilon, delta) budget: they follow from the budget alone."""
    orders = np.geomspace(1.05, 1e6, 4001)
    best = orders[np.argmax((epsilon - _tail(orders, delta * _TAIL_SHARES[0])) / orders)]
    pairs = zip(best * np.array(_ORDER_FACTORS), _TAIL_SHARES, strict=True)
    return tuple(RenyiAccount(float(order), max(float(_tail(order, delta * share)), 0.0)) for order, share in pairs)


def pure_divergence(epsilon: float, order: float) -> float:
    """Return the largest Rényi divergence of an epsilon-private release: randomised response has it.

    (ln cosh((alpha - 1/2) ε) - ln cosh(ε/2)) / (alpha - 1), never above alpha ε²/2 nor ε.

    >>> round(pure_divergence(0.1, order=2), 8)
    0.00995858
    """
    return (_log_cosh((order - 0.5) * epsilon) - _log_cosh(epsilon / 2)) / (order - 1)


@lru_cache(maxsize=4096)
def _corner_divergence(corners: Corners, order: float) -> float:
    return float(corners.renyi(order))


def _tail(order: np.ndarray, delta: float) -> np.ndarray:
    """Return what epsilon exceeds the Rényi divergence by, at this delta."""
    return np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)


def _log_cosh(x: float) -> float:
    """Return ln cosh x without cancellation for small x, nor overflow for large x."""
    return math.log1p(2 * math.sinh(x / 2) ** 2) if x < 1 else x + math.log1p(math.exp(-2 * x)) - math.log(2)
