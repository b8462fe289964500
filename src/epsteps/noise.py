"""The only module that draws protective randomness: the noise of a step, and its secret subset of the records.

Without a seed every bit comes from the operating system. With one, everything repeats, which is for experiments:
results of it are marked, and are not private.

Known limit: noise is computed in float64 by inversion, which is not exactly the real-valued law (Mironov 2012).
"""

import os
import random

import numpy as np
from scipy.special import ndtri

from epsteps.mechanisms import Mechanism
from epsteps.sampling import Sampling


class Source:
    """A source of protective randomness, from the operating system or, for experiments, from a seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._generator = None if seed is None else np.random.default_rng(seed)
        self._system = random.SystemRandom()

    @property
    def seeded(self) -> bool:
        """Whether the draws repeat, so that nothing protected by them is private."""
        return self._generator is not None

    def laplace(self, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return independent Laplace draws of this scale (variance 2 scale²)."""
        u = self._uniform(shape) - 0.5
        return -np.asarray(scale) * np.sign(u) * np.log1p(-2 * np.abs(u))

    def gaussian(self, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return independent Gaussian draws of this standard deviation."""
        return np.asarray(scale) * ndtri(self._uniform(shape))

    def draw(self, mechanism: Mechanism, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return independent draws of the mechanism's noise."""
        return {"laplace": self.laplace, "gaussian": self.gaussian}[mechanism.name](scale, shape)

    def subset(self, sampling: Sampling) -> np.ndarray:
        """Return the records that a step reads, uniform among all subsets of their size."""
        if self._generator is not None:
            return self._generator.choice(sampling.n, size=sampling.m, replace=False, shuffle=False)
        return np.array(self._system.sample(range(sampling.n), sampling.m))

    def _uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return uniform draws on the open interval (0, 1): 52 random bits, and half a step more."""
        if self._generator is not None:
            bits = self._generator.integers(2**52, size=shape, dtype=np.uint64)
        else:
            count = int(np.prod(shape))
            bits = (np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(12)).reshape(shape)
        return (bits + 0.5) * 2.0**-52
