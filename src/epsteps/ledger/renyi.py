"""Charges at delta > 0 whose prices may depend on earlier releases: Rényi accounts of fixed orders.

Someone who sees the releases may choose the next price by them, so that the ledger is a privacy filter. The sharpest
numerical composition is proven only for prices fixed in advance; what is used here holds for any choice.

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
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from epsteps.budgets.corners import Corners

# Shares of delta: for the deltas of charges, and for the tails of the accounts. Together 1, exactly in binary.
CHARGES_SHARE = 1 / 4
_TAIL_SHARES = (1 / 2, 1 / 8, 1 / 8)
# The first order is best for many small charges. The higher ones are for a few large pure charges among them.
_ORDER_FACTORS = (1, 2, 4)
# Far above the rounding error of the formulas below.
_OUTWARD = 1 + 1e-9


@dataclass(frozen=True)
class RenyiAccount:
    """An account of one order: what its charges add up to, plus ``tail``, is their epsilon; rounded up."""

    order: float
    tail: float

    def epsilon(self, epsilons: Counter[float], rhos: Counter[float], corners: Counter[Corners]) -> float:
        """Return the epsilon of these charges at the account's part of delta."""
        pure = math.fsum(count * pure_divergence(epsilon, self.order) for epsilon, count in epsilons.items())
        concentrated = math.fsum(count * rho for rho, count in rhos.items()) * self.order
        cornered = math.fsum(count * _corner_divergence(each, self.order) for each, count in corners.items())
        return (pure + concentrated + cornered + self.tail) * _OUTWARD


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
