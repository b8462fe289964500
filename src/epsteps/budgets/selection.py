"""What the best of a random number of private trials costs: pure, in Rényi terms, and from there in rho and (ε, δ).

The number of trials K has a truncated negative binomial law (Papernot, Steinke 2022): for eta > -1 and 0 < gamma < 1,
P(K = k) ~ (1 - gamma)^k Π_{l<k} (l + eta)/(l + 1), k >= 1. With eta = 1 it is geometric, with eta = 0 logarithmic. The
smaller eta, the less the choice costs, and the more the number of trials varies around its mean.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.budgets.budget import Budget
from epsteps.budgets.conversions import checked_delta
from epsteps.budgets.kinds import Approximate, Concentrated, Pure
from epsteps.problem import validate
from epsteps.problem.rounding import down, up

# Shares of a whole that eta is written in, so that the number of trials is drawn exactly.
SHARES = 16
# Orders at which Rényi costs are tried: any is valid, and the best is used.
_ORDERS = 1 + np.geomspace(1e-3, 1e6, 2000)


@dataclass(frozen=True)
class Selection:
    """The best of K independent trials, K truncated negative binomial of this eta, with a mean of about ``trials``.

    gamma = 1/odds for the smallest integer ``odds`` with which the mean is not below ``trials``; of the geometric law,
    eta = 1, odds and trials are the same.

    Formal guarantee: let one trial, whatever it is and its score included, be private, draw its randomness afresh, and
    let K depend on nothing and stay secret. Publishing the trial with the largest score, the first among equals, and
    nothing else is

    - (2 + eta) epsilon-DP, if a trial is epsilon-DP (Liu, Talwar 2019; Papernot, Steinke 2022);
    - of Rényi cost e(λ) + (1 + eta) ((1 - 1/κ) e(κ) + ln(1/gamma)/κ) + ln(E K)/(λ - 1) at each order λ > 1, for any
      κ >= 1, if a trial is of cost e(λ) at each order (Papernot, Steinke 2022, theorem 2).

    Trials of equal scores are told apart by a uniform number each, which costs nothing: the first of them is as likely
    to be any as the one with the largest number is.

    Proof of the first, for the geometric law: let an outcome o have probability (or density) q(o) in one trial, and let
    u and v be the chances that a trial's score is at least that of o, and larger. Summed over K, with the first among
    equals taken, o is published with probability q(o) g / ((g + (1-g) u) (g + (1-g) v)), g = gamma. Neighbours change
    each of q(o), u and v by a factor of at most e^epsilon, in whatever direction, hence the fraction by at most
    e^(3 epsilon). No smaller constant holds for every g: some trials come as near to 3 as one likes when g is small.

    >>> str(Selection(trials=20).cost(Pure(0.25))), str(Selection(trials=20).trial(Pure(3.0)))
    ('pure epsilon = 0.75', 'pure epsilon = 1')
    >>> Selection(trials=20, eta=0.0).factor
    2.0
    """

    trials: int
    eta: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", validate.integer("trials", self.trials, high=2**31))
        eta = validate.number("eta", self.eta)
        if not 0 <= eta <= 1 or (eta * SHARES) % 1:
            raise ValueError(f"eta must be a multiple of 1/{SHARES} from 0 to 1, got {self.eta!r}.")
        object.__setattr__(self, "eta", eta)

    @property
    def factor(self) -> float:
        """What the best of them costs, in trials that are pure: 3 for the geometric law, 2 for the logarithmic one."""
        return 2 + self.eta

    @cached_property
    def odds(self) -> int:
        """1/gamma, an integer."""
        if self.eta == 1 or self.trials == 1:
            return self.trials
        low, high = self.trials, 2 * self.trials
        while _mean(self.eta, high) < self.trials:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _mean(self.eta, middle) < self.trials else (low, middle)
        return high

    @property
    def mean(self) -> float:
        """The mean number of trials."""
        return _mean(self.eta, self.odds)

    def cost(self, trial: Budget, budget: Budget | None = None) -> Budget:
        """Return what publishing the best trial costs, rounded up, if one costs ``trial``.

        A pure trial costs a pure epsilon. One of rho costs what the budget, which is then needed, counts: rho, or
        epsilon at its delta. Where the budget is not pure and the trial is, the epsilon of the former is converted.
        """
        if isinstance(trial, Pure):
            whole = Pure(math.nextafter(up(self.factor * trial.epsilon, 1e-15), math.inf))
            if isinstance(budget, Concentrated):
                return Concentrated(up(whole.epsilon**2 / 2))
            return whole if not isinstance(budget, Approximate) else Approximate(whole.epsilon, budget.delta)
        if isinstance(trial, Concentrated) and isinstance(budget, Concentrated):
            return Concentrated(self.selected_rho(trial.rho))
        if isinstance(trial, Concentrated) and isinstance(budget, Approximate):
            return Approximate(self.selected_epsilon(trial.rho, budget.delta), budget.delta)
        raise TypeError(
            f"trial must be Pure(epsilon), or Concentrated(rho) under a budget of rho or (epsilon, delta): no other "
            f"cost of a selection is proved here, got {trial!r} under {budget!r}. Use Pure(epsilon), which a ledger of "
            "any kind takes."
        )

    def trial(self, budget: Budget, *, gaussian: bool = False) -> Budget:
        """Return the most that one trial may cost: ``cost`` of it is at most the budget.

        It is a pure epsilon, or, for Gaussian noise under a budget that covers it, a rho.
        """
        if not gaussian:
            return self._largest(Pure, self._pure_share(budget), budget)
        if isinstance(budget, Concentrated | Approximate):
            return self._largest(Concentrated, self._gaussian_share(budget), budget)
        raise TypeError(f"{budget!r} does not cover Gaussian noise: use pure trials, Concentrated or Approximate.")

    def _largest(self, kind: Callable[[float], Budget], amount: float, budget: Budget) -> Budget:
        """Return the largest budget of this kind, near this amount, whose cost is covered."""
        shrinking = 2.0**-53
        while self.cost(kind(amount), budget).amount > budget.amount:
            amount, shrinking = amount * (1 - shrinking), 2 * shrinking
        return kind(amount)

    def _pure_share(self, budget: Budget) -> float:
        if isinstance(budget, Concentrated):
            return math.sqrt(2 * budget.rho) / self.factor
        if isinstance(budget, Pure | Approximate):
            return budget.epsilon / self.factor
        raise TypeError(
            f"budget must be Pure, Concentrated or Approximate, got {budget!r}. Use Pure(epsilon), which a ledger of "
            "any kind takes."
        )

    def _gaussian_share(self, budget: Budget) -> float:
        """Return about the largest rho that the budget covers, by bisection of its logarithm."""
        low, high = -80.0, math.log(budget.amount) + 5
        while high - low > 1e-13 * max(1.0, abs(low)):
            middle = (low + high) / 2
            fits = self.cost(Concentrated(math.exp(middle)), budget).amount <= budget.amount
            low, high = (middle, high) if fits else (low, middle)
        return math.exp(low)

    def _choice(self, rho: float) -> float:
        """Return (1 + eta) ((1 - 1/κ) rho κ + ln(1/gamma)/κ) at the best κ >= 1, for trials of cost rho λ."""
        log = math.log(self.odds)
        order = max(1.0, math.sqrt(log / rho))
        return up((1 + self.eta) * (rho * (order - 1) + log / order), 1e-12)

    def renyi(self, rho: float, orders: np.ndarray) -> np.ndarray:
        """Return the Rényi cost of the best trial at each order, if a trial's is rho x order (theorem 2)."""
        return rho * orders + self._choice(rho) + math.log(up(self.mean, 1e-12)) / (orders - 1)

    def selected_rho(self, rho: float) -> float:
        """Return a rho that the best of trials of this rho has, rounded up.

        Rényi costs rise with the order, so that for orders up to λ* = 1 + √(ln E K/rho) the cost at λ* holds, and
        beyond it the theorem's own, whose share of the order falls. So the cost at λ* is a rho for all orders.
        """
        return up(rho + 2 * math.sqrt(rho * math.log(up(self.mean, 1e-12))) + self._choice(rho), 1e-12)

    def selected_epsilon(self, rho: float, delta: float) -> float:
        """Return an epsilon that the best of trials of this rho has at a delta, rounded up: at the best order tried.

        A Rényi cost e at the order λ is e + ln(1 - 1/λ) - (ln δ + ln λ)/(λ - 1) at δ (Canonne, Kamath, Steinke 2020).
        """
        return renyi_epsilon(_ORDERS, self.renyi(rho, _ORDERS), delta)

    def missed(self, candidates: int) -> float:
        """Return the chance that one of so many candidates, each equally likely in each trial, is never tried.

        >>> round(Selection(trials=20).missed(5), 12)
        0.166666666667
        """
        return float(self.generating(1 - 1 / validate.integer("candidates", candidates)))

    def generating(self, x: np.ndarray | float) -> np.ndarray:
        """Return E x^K: the law's generating function on [0, 1]."""
        gamma = 1 / self.odds
        inner = gamma + (1 - gamma) * (1 - np.asarray(x, dtype=float))
        if self.odds == 1:
            return np.asarray(x, dtype=float)
        if self.eta == 0:
            return np.log(inner) / math.log(gamma)
        return (inner**-self.eta - 1) / (gamma**-self.eta - 1)

    def law(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the best trial's distribution, from that of one trial: outcomes from the worst to the best.

        >>> Selection(trials=2).law([0.5, 0.5])
        array([0.33333333, 0.66666667])
        """
        q = np.asarray(probabilities, dtype=float)
        if self.eta != 1:
            return np.diff(self.generating(np.append(0.0, np.minimum(np.cumsum(q), 1.0))))
        # The geometric law without cancellation.
        at_least = np.cumsum(q[::-1])[::-1]
        above = np.append(at_least[1:], 0.0)
        g = 1 / self.trials
        return q * g / ((g + (1 - g) * at_least) * (g + (1 - g) * above))


def _mean(eta: float, odds: int) -> float:
    """Return eta (1 - gamma)/(gamma (1 - gamma^eta)), or (1/gamma - 1)/ln(1/gamma) for eta = 0: gamma = 1/odds."""
    if odds == 1:
        return 1.0
    if eta == 0:
        return (odds - 1) / math.log(odds)
    return eta * (odds - 1) / -math.expm1(-eta * math.log(odds))


def renyi_epsilon(orders: np.ndarray, costs: np.ndarray, delta: float) -> float:
    """Return the smallest epsilon that Rényi costs have at a delta, rounded up; any order above 1 is valid."""
    log = math.log(checked_delta(delta))
    found = costs + np.log1p(-1 / orders) - (log + np.log(orders)) / (orders - 1)
    return up(max(float(np.min(found)), 0.0), 1e-10) + 1e-300


def poisson_renyi(mean: float, order: float, cost: float, close: Callable[[float], float]) -> float:
    """Return the Rényi cost at an order of the best of a Poisson number of trials (after Papernot, Steinke 2022).

    A trial has this cost at the order, and is (e, close(e))-DP for e = ln(1 + 1/(order - 1)). Where there is no trial,
    something is published that does not depend on the records. Their theorem 6 is cost + mean close(e) +
    ln(mean)/(λ - 1); here the outcome without a trial is counted besides, so that it holds for small means, too.
    """
    validate.positive("mean", mean)
    if order <= 1:
        raise ValueError(f"order must be above 1, got {order!r}.")
    near = down(math.log1p(1 / (order - 1)), 1e-12)
    best = (order - 1) * (cost + mean * close(near)) + math.log(mean)
    return up(float(np.logaddexp(-mean, best)) / (order - 1), 1e-12)
