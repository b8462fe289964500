"""The kinds of budgets: pure epsilon, whose epsilons add; rho, whose rhos add; and (epsilon, delta).

Pure steps compose by adaptive basic composition, those of zero-concentrated privacy as Bun and Steinke (2016) say.
Under (epsilon, delta) Gaussian noise is accounted for exactly, and pure noise by numerical composition.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from epsteps.budgets import filters
from epsteps.budgets.budget import Budget, Parts, Price, Tally, exact, exact_total, require_parts, total
from epsteps.budgets.conversions import checked_delta, composed_epsilon, gaussian_epsilon, gaussian_mu
from epsteps.budgets.costs import Cost, Epsilon, Rho
from epsteps.problem import validate
from epsteps.problem.rounding import root_between, up
from epsteps.problem.sampling import FULL, Sampling

# Laws of noise are imported where they are used: who opens a ledger does not wait for them.
if TYPE_CHECKING:
    from epsteps.bounds import Prediction
    from epsteps.budgets.mechanisms import KNorm, Mechanism


def _gaussian() -> "Mechanism":
    """Return Gaussian noise."""
    from epsteps.budgets.mechanisms import Gaussian

    return Gaussian()


def _laplace() -> "KNorm":
    """Return Laplace noise."""
    from epsteps.budgets.mechanisms import LAPLACE

    return LAPLACE


@dataclass(frozen=True)
class Pure(Budget):
    """A budget of pure epsilon-differential privacy, spent through noise of a norm, such as Laplace noise.

    The noise variance of a step falls as 1/epsilon_t², so that the best split of full-batch steps with error weights
    a_t is epsilon_t ~ a_t^(1/3).

    >>> Pure(1.0).split([1.0, 8.0, 27.0])
    array([0.16666667, 0.33333333, 0.5       ])
    """

    epsilon: float

    delta = 0.0
    kinds = (Epsilon,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validate.positive("epsilon", self.epsilon))

    def __str__(self) -> str:
        return f"pure epsilon = {self.epsilon:g}"

    @property
    def amount(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def of_group(self, count: int) -> "Pure":
        """Return k epsilon: each of k replaced records changes every probability by a factor of at most e^epsilon."""
        k = validate.integer("count", count)
        return self if k == 1 else Pure(math.nextafter(k * self.epsilon, math.inf))

    def per_record(self, count: int) -> "Pure":
        """Return epsilon/k, rounded down."""
        k = validate.integer("count", count)
        share = self.epsilon / k
        while Pure(share).of_group(k).epsilon > self.epsilon:
            share = math.nextafter(share, 0.0)
        return Pure(share)

    def capacity(self, kind: type[Cost]) -> float:
        """Return epsilon, of which no Gaussian noise can be had."""
        return self.epsilon if kind is Epsilon else 0.0

    def of(self, cost: Cost) -> "Pure":
        """Return a pure cost as a budget."""
        if cost.pure is None:
            raise ValueError(f"{self!r} does not cover Gaussian noise. Use mechanism='auto', or an Approximate budget.")
        return Pure(cost.pure)

    def split(self, weights: np.ndarray, n: int | None = None, m: int | None = None) -> np.ndarray:
        """Return the epsilons, one per step, that make ``sum weights_t scale_t²`` smallest.

        Exact: in closed form for full batches, by the convex dual when each step samples m of n records.
        """
        if (n is None) != (m is None):
            raise ValueError(f"n and m go together: got n={n!r}, m={m!r}.")
        sampling = FULL if n is None or m is None else Sampling(n, m)
        return _laplace().split(weights, self.epsilon, sampling)

    @property
    def parts(self) -> Parts:
        """Return the epsilon."""
        return Parts(epsilon=self.epsilon)

    def tally(self, prices: Sequence[Price], composition: str, amounts: str) -> Tally:
        """Add up epsilons, which also holds for prices chosen by earlier releases (Rogers et al. 2016)."""
        require_parts(self, prices, {"epsilon"}, "Plan with Pure(epsilon), or use a dataset with another budget")
        counts = Counter(prices).items()
        spent = sum((count * exact(price.parts.epsilon or 0.0, amounts) for price, count in counts), Fraction(0))
        return Tally(spent, exact(self.epsilon, amounts))


def epsilon_of(sensitivity: float, scale: float, n: int, m: int) -> float:
    """Return the epsilon of one step: m of n gradients of this sensitivity averaged, noise of this scale.

    >>> round(epsilon_of(40, 0.0575, n=100_000, m=1000), 9)
    0.009999996
    """
    validate.positive("sensitivity", sensitivity)
    validate.positive("scale", scale)
    return float(_laplace().costs(sensitivity, np.array(scale), Sampling(n, m)))


def base_epsilon(epsilon: float, n: int, m: int) -> float:
    """Return the loss on its subset that a step may have if it is to cost ``epsilon``."""
    return float(Sampling(n, m).base_epsilon(validate.positive("epsilon", epsilon)))


def required_scale(sensitivity: float, epsilon: float, n: int, m: int) -> float:
    """Return the Laplace scale with which one step costs ``epsilon``."""
    validate.positive("sensitivity", sensitivity)
    validate.positive("epsilon", epsilon)
    return float(_laplace().scales(sensitivity, np.array(epsilon), Sampling(n, m)))


@dataclass(frozen=True)
class Concentrated(Budget):
    """A budget of rho-zero-concentrated differential privacy, spent through Gaussian noise.

    The noise variance of a step falls as 1/rho_t, so that the best split of steps with error weights a_t is
    rho_t ~ a_t^(1/2).

    >>> Concentrated(0.5).split([1.0, 4.0, 4.0])
    array([0.1, 0.2, 0.2])
    """

    rho: float

    delta = 0.0
    kinds = (Rho,)
    unit = "rho"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", validate.positive("rho", self.rho))

    def __str__(self) -> str:
        return f"rho = {self.rho:g} (zero-concentrated)"

    @property
    def amount(self) -> float:
        """Return rho."""
        return self.rho

    def of_group(self, count: int) -> "Concentrated":
        """Return k² rho (Bun, Steinke 2016, proposition 1.9)."""
        k = validate.integer("count", count)
        return self if k == 1 else Concentrated(up(k * k * self.rho, 1e-15))

    def per_record(self, count: int) -> "Concentrated":
        """Return rho/k², rounded down."""
        k = validate.integer("count", count)
        return self if k == 1 else Concentrated(self.rho / (k * k) * (1 - 1e-14))

    def capacity(self, kind: type[Cost]) -> float:
        """Return rho, or the mu or the pure epsilon √(2 rho) that has it."""
        return self.rho if kind is Rho else math.sqrt(2 * self.rho)

    def of(self, cost: Cost) -> "Concentrated":
        """Return the cost's rho as a budget."""
        return Concentrated(cost.rho)

    def split(self, weights: np.ndarray) -> np.ndarray:
        """Return the rhos, one per step, that make ``sum weights_t variance_t`` smallest."""
        return _gaussian().split(weights, self.rho, FULL)

    @property
    def parts(self) -> Parts:
        """Return the rho."""
        return Parts(rho=self.rho)

    def tally(self, prices: Sequence[Price], composition: str, amounts: str) -> Tally:
        """Add up rhos, where a pure price counts epsilon²/2 (Bun, Steinke 2016).

        It also holds for prices chosen by earlier releases (Feldman, Zrnic 2021).
        """
        remedy = "Plan with Concentrated(rho), or use an Approximate dataset"
        require_parts(self, prices, {"epsilon", "rho"}, remedy)
        parts = [price.parts for price in prices]
        epsilons = Counter(part.epsilon for part in parts if part.epsilon is not None)
        halves = sum((count * exact(epsilon, amounts) ** 2 / 2 for epsilon, count in epsilons.items()), Fraction(0))
        rhos = exact_total((part.rho for part in parts if part.rho is not None), amounts)
        return Tally(halves + rhos, exact(self.rho, amounts))


def _growth(epsilon: float, count: int) -> float:
    """Return the sum of e^(i epsilon) over i < count, infinity where floats do not hold it."""
    return math.inf if count * epsilon > 700 else math.expm1(count * epsilon) / math.expm1(epsilon)


# Certificates are rounded up, so what may be spent is rounded down by more than that.
_INWARD = 1 - 1e-8


@dataclass(frozen=True)
class Approximate(Budget):
    """A budget of (epsilon, delta)-differential privacy.

    Gaussian noise is accounted for exactly: steps whose rhos sum to rho are √(2 rho)-Gaussian-DP. Pure noise, which
    samples may amplify, is composed numerically from the pure epsilon of each step.

    A plan may depend on what was bought before it (``expenses``). Its rhos may: given what was bought, the steps are
    √(2 rho)-Gaussian-DP for the rho that is left, however it is split, and such parts compose (Dong, Roth, Su 2022).
    Numerically composed epsilons may not: splits differ in their whole curve of (epsilon, delta), of which the plan
    fixes one point. There the expenses are added to the epsilon of the steps, which holds for any plan that is
    (epsilon, delta)-private whatever was bought: see ``spending``.

    >>> round(Approximate(1.0, 1e-5).rho, 6)
    0.035926
    """

    epsilon: float
    delta: float

    kinds = (Epsilon, Rho)
    compositions = ("adaptive", "plain", "numerical")

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validate.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", checked_delta(self.delta))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"

    @property
    def amount(self) -> float:
        """Return epsilon, at the declared delta."""
        return self.epsilon

    @property
    def rho(self) -> float:
        """Rhos of Gaussian steps may sum to this much."""
        return gaussian_mu(self.epsilon, self.delta) ** 2 / 2

    def kind(self, sampling: Sampling) -> type[Cost]:
        """Return rhos for full batches, and epsilons, whose amplification is known, for samples."""
        return Rho if sampling.is_full else Epsilon

    def of_group(self, count: int) -> "Approximate":
        """Return k epsilon, and delta times the sum of e^(i epsilon) over i < k.

        Replaced one after the other, P_0(S) <= e^epsilon P_1(S) + delta <= ... <= e^(k epsilon) P_k(S) + the sum of
        e^(i epsilon) delta (Vadhan 2017, lemma 2.2).
        """
        k = validate.integer("count", count)
        if k == 1:
            return self
        delta = up(self.delta * _growth(self.epsilon, k), 1e-13)
        if not delta < 1:
            raise ValueError(f"{self} promises nothing to a person with {k} records: plan with a smaller delta.")
        return Approximate(math.nextafter(k * self.epsilon, math.inf), delta)

    def per_record(self, count: int) -> "Approximate":
        """Return the epsilon and delta of one record, rounded down."""
        k = validate.integer("count", count)
        if k == 1:
            return self
        epsilon = Pure(self.epsilon).per_record(k).epsilon
        delta = self.delta / _growth(epsilon, k) * (1 - 1e-12)
        if not delta > 1e-300:
            raise ValueError(f"{self} leaves one of {k} records of a person no delta: take a smaller epsilon.")
        return Approximate(epsilon, delta)

    def capacity(self, kind: type[Cost]) -> float:
        """Return the epsilon, or the rho or mu of Gaussian noise that has it at this delta."""
        if kind is Epsilon:
            return self.epsilon
        return self.rho if kind is Rho else gaussian_mu(self.epsilon, self.delta)

    def of(self, cost: Cost) -> "Approximate":
        """Return the cost's epsilon at this delta as a budget."""
        return Approximate(cost.epsilon(self.delta), self.delta)

    def split(self, weights: np.ndarray) -> np.ndarray:
        """Return the rhos of Gaussian steps, one per step, that make ``sum weights_t variance_t`` smallest."""
        return _gaussian().split(weights, self.rho, FULL)

    def allocate(
        self, weights: np.ndarray | None, T: int, mechanism: "Mechanism", sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the costs of T steps, in the mechanism's unit."""
        if mechanism.kind is Rho:
            return Concentrated(self.rho * _INWARD).allocate(weights, T, mechanism, sampling, reserved)
        # Composed many times, a step of pure epsilon_t counts nearly as rho_t = epsilon_t²/2: so it is split as that.
        shape = np.ones(T) if weights is None else np.sqrt(_gaussian().split(weights, 1.0, FULL))
        return shape * self._without(reserved)._stretch(shape)

    def _without(self, reserved: float) -> "Approximate":
        """Return what expenses of this epsilon leave."""
        left = (self.epsilon - reserved) * _INWARD if reserved else self.epsilon
        if left <= 0:
            raise ValueError(f"nothing is left for the steps: the expenses take epsilon = {reserved:.6g}.")
        return Approximate(left, self.delta)

    def _stretch(self, shape: np.ndarray) -> float:
        """Return the largest factor (to 1e-4) with which epsilons of this shape are covered."""

        def excess(log_factor: float) -> float:
            return composed_epsilon(shape * math.exp(log_factor), self.delta) - self.epsilon

        # The sum of the epsilons may always be spent; Gaussian noise of the same variance tells where to look beyond.
        low = math.log(self.epsilon / shape.sum()) - 1e-9
        high = max(low, 0.5 * math.log(2 * self.rho / np.sum(shape**2))) + 0.1
        while excess(high) <= 0:
            high += 0.5
        root = root_between(excess, low, high, xtol=1e-4)
        while excess(root) > 0:
            root -= 1e-4
        return math.exp(root) * _INWARD

    def noise_by_horizon(
        self,
        prediction: "Prediction",
        allocation: str,
        mechanism: "Mechanism",
        sampling: Sampling,
        reserved: float = 0.0,
    ) -> np.ndarray:
        """Return the noise of the split, for every number of steps: exact for Gaussian noise.

        For pure noise it is an estimate that only serves to choose the number of steps: epsilon_t² counts as
        2 rho_t, and amplification as perfect.
        """
        if mechanism.kind is Rho:
            return Concentrated(self.rho).noise_by_horizon(prediction, allocation, mechanism, sampling, reserved)
        left = Concentrated(self._without(reserved).rho)
        return left.noise_by_horizon(prediction, allocation, _gaussian(), Sampling(sampling.n, sampling.n))

    def spending(
        self, costs: np.ndarray, kind: type[Cost], expenses: Sequence[float] | np.ndarray = ()
    ) -> "Approximate":
        """Return the epsilon of expenses, and of steps that were planned after them, at the declared delta: rounded up.

        Formal guarantee: let the expenses be e-DP with outcome o, and the steps (ε, δ)-DP for every o. For neighbours
        P(S) = ∫ P(do) P(S_o|o) <= ∫ P(do) min(1, e^ε P'(S_o|o)) + δ <= e^(e + ε) P'(S) + δ, however the steps depend
        on o. Gaussian expenses are √(2 rho)-Gaussian-DP, and so are the steps for every o: their rhos add.
        """
        if kind not in self.kinds:  # each release that is certified for a delta has that chance of its own
            raise ValueError(f"costs in {kind.unit} do not compose to one delta: {self} covers one such release.")
        if kind is Rho:
            epsilon = gaussian_epsilon(up(math.sqrt(2 * total(expenses, costs)), 2.0**-50), self.delta)
        else:
            epsilon = composed_epsilon(np.asarray(costs, dtype=float), self.delta)
            if len(expenses):
                epsilon = total(expenses, [epsilon])
        return Approximate(max(epsilon, 1e-12), self.delta)

    @property
    def parts(self) -> Parts:
        """Return a pure epsilon, except for a chance of delta (Kairouz, Oh, Viswanath 2015)."""
        return Parts(epsilon=self.epsilon, delta=self.delta)

    def tally(self, prices: Sequence[Price], composition: str, amounts: str) -> Tally:
        """Compose prices of every kind by the rule of this name: see ``epsteps.budgets.filters``."""
        return filters.tally(self, prices, composition, amounts)
