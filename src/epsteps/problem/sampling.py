"""Which records a step reads: one object that the sampler draws from and the accountant computes with."""

from dataclasses import dataclass

import numpy as np

from epsteps.problem import validate

# Above this, e^u would come close to overflow; below, log1p(q expm1(u)) has no cancellation.
_LARGE = 300.0


@dataclass(frozen=True)
class Sampling:
    """A uniform subset of m of n records, drawn afresh without replacement at each step and kept secret.

    >>> float(Sampling(n=100_000, m=1000).base_epsilon(0.01))  # doctest: +ELLIPSIS
    0.69565239...
    """

    n: int
    m: int

    def __post_init__(self) -> None:
        validate.integer("n", self.n)
        validate.integer("m", self.m, high=self.n, remedy="The batch cannot exceed the n records.")

    @property
    def is_full(self) -> bool:
        """Whether every step reads all records."""
        return self.m == self.n

    @property
    def fraction(self) -> float:
        """The sampled fraction q = m/n."""
        return self.m / self.n

    def amplified_epsilon(self, base: np.ndarray | float) -> np.ndarray:
        """Return the epsilon of a step whose mechanism has loss ``base`` on its subset: ln(1 + q (e^base - 1)).

        Formal guarantee: holds for replace-one neighbours and a secret uniform subset without replacement (Balle,
        Barthe, Gaboardi 2018), and is tight.
        """
        base, q = np.asarray(base, dtype=float), self.fraction
        if self.is_full:
            return base
        small = np.minimum(base, _LARGE)
        large = np.maximum(base, _LARGE)
        return np.where(
            base < _LARGE,
            np.log1p(q * np.expm1(small)),
            large + np.log(q) + np.log1p((1 - q) / q * np.exp(-large)),
        )

    def base_epsilon(self, epsilon: np.ndarray | float) -> np.ndarray:
        """Return the inverse of ``amplified_epsilon``: the loss that the mechanism may have on its subset."""
        epsilon, q = np.asarray(epsilon, dtype=float), self.fraction
        if self.is_full:
            return epsilon
        small = np.minimum(epsilon, _LARGE)
        large = np.maximum(epsilon, _LARGE)
        return np.where(
            epsilon < _LARGE,
            np.log1p(np.expm1(small) / q),
            large - np.log(q) + np.log1p(-(1 - q) * np.exp(-large)),
        )

    def variance(self, radius: float) -> float:
        """Bound the total variance that sampling adds to a mean gradient: radius² (1/m) (n-m)/(n-1).

        Assumes that the records' gradients lie in an L2 ball of this radius; the finite-population formula, tight for
        gradients on the sphere with mean 0. The paper takes S1/2 for the radius, up to √d times too large.
        """
        return 0.0 if self.is_full else radius**2 / self.m * (self.n - self.m) / (self.n - 1)


# What is read where a sum, not a mean, is released: its sensitivity is that of one record.
FULL = Sampling(1, 1)
