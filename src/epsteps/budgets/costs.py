"""Costs as values: what a release costs, in which currency, and how costs of one currency add up.

The classes are the currencies: ``mechanism.kind`` is one of them, a budget lists those that it is made for, and what a
method needs to know of one is an attribute here. ``unit`` is its name for people and for JSON; nothing compares it.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from epsteps.budgets.conversions import gaussian_epsilon
from epsteps.problem import validate
from epsteps.problem.rounding import up

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """What a release costs. ``ratio`` is sensitivity over scale, the size of its noise without units.

    ``power`` is how the scale of noise falls with the amount: as amount^-power. Written here for costs that are the
    ratio itself, of which amount²/2 is the rho.
    """

    amount: float
    unit: ClassVar[str]
    # The name of the ratio of noise that costs this: epsilon, or mu.
    ratio_unit: ClassVar[str] = "mu"
    power: ClassVar[float] = 1.0
    is_pure: ClassVar[bool] = False

    def __post_init__(self) -> None:
        validate.number(self.unit, self.amount)

    @classmethod
    def either(cls, pure: T, gaussian: T) -> T:
        """Return what holds for noise of this currency: pure noise, or Gaussian."""
        return pure if cls.is_pure else gaussian

    @staticmethod
    def amount_of(ratio: np.ndarray | float) -> np.ndarray | float:
        """Return what noise costs of which the sensitivity is so many scales."""
        return ratio

    @classmethod
    def of_ratio(cls, ratio: float) -> "Cost":
        """Return what one release with noise of this ratio costs, as people say it: epsilon, or mu if Gaussian."""
        return cls(ratio)

    @property
    def ratio(self) -> float:
        """Sensitivity over scale of noise that costs this much."""
        return self.amount

    @property
    def additive(self) -> float:
        """What adds up over releases."""
        return self.amount

    def repeated(self, times: int) -> "Cost":
        """Return what so many releases of this cost amount to together, rounded up."""
        return type(self)(up(self.amount * times))

    @property
    def pure(self) -> float | None:
        """The pure epsilon that this is, if it is one."""
        return None

    @property
    def rho(self) -> float:
        """The rho of concentrated privacy that this is, rounded up (Bun, Steinke 2016)."""
        return up(self.amount**2 / 2)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this is at a delta above 0, rounded up: exact for Gaussian noise."""
        return gaussian_epsilon(self.ratio, delta)


@dataclass(frozen=True)
class Epsilon(Cost):
    """Pure epsilon, which noise of a norm costs."""

    unit: ClassVar[str] = "epsilon"
    ratio_unit: ClassVar[str] = "epsilon"
    is_pure: ClassVar[bool] = True

    @property
    def pure(self) -> float:
        """Epsilon."""
        return self.amount

    def epsilon(self, delta: float) -> float:
        """Return epsilon, whatever delta."""
        return self.amount


@dataclass(frozen=True)
class Rho(Cost):
    """Rho of zero-concentrated privacy, which Gaussian noise costs; rhos of a composition add up."""

    unit: ClassVar[str] = "rho"
    power: ClassVar[float] = 0.5

    @staticmethod
    def amount_of(ratio: np.ndarray | float) -> np.ndarray | float:
        """Return ratio²/2."""
        return ratio**2 / 2

    @classmethod
    def of_ratio(cls, ratio: float) -> "Cost":
        """Return the mu of Gaussian privacy."""
        return Mu(ratio)

    @property
    def ratio(self) -> float:
        """Sensitivity over standard deviation: the mu of Gaussian privacy."""
        return math.sqrt(2 * self.amount)

    @property
    def rho(self) -> float:
        """Rho."""
        return self.amount


@dataclass(frozen=True)
class Mu(Cost):
    """The mu of Gaussian privacy (Dong, Roth, Su 2022), sensitivity over standard deviation: squares add up."""

    unit: ClassVar[str] = "mu"

    @property
    def additive(self) -> float:
        """mu²."""
        return self.amount**2

    def repeated(self, times: int) -> "Mu":
        """Return √times mu, rounded up."""
        return Mu(up(self.amount * math.sqrt(times)))


@dataclass(frozen=True)
class Certified(Cost):
    """Epsilon of a release that is (epsilon, delta)-private at its plan's delta, as its own plan certifies.

    Of such a release nothing else is known beforehand, as its noise may depend on what was published before.
    """

    unit: ClassVar[str] = "epsilon with delta"
    ratio_unit: ClassVar[str] = "epsilon"

    @property
    def rho(self) -> float:
        """Raise: such a release has no rho."""
        raise ValueError("a release that is certified for one delta has no rho.")

    def epsilon(self, delta: float) -> float:
        """Return epsilon: the plan's delta is the only one that it is for."""
        return self.amount


# The currencies that expenses of a plan are paid in, by the name that JSON has for them.
BY_UNIT: dict[str, type[Cost]] = {kind.unit: kind for kind in (Epsilon, Rho)}
