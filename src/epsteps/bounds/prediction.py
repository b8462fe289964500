"""What every theorem has in common: one step contracts the error and adds a multiple of its noise."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class NoBoundError(ValueError):
    """No theorem of the library covers these steps."""


class Prediction(Protocol):
    """What planning asks of a bound or an exact error: its value after T steps, for every T up to ``len``.

    The error after T steps is ``start_errors[T-1] + sum_t weights_{T,t} P_t``, P_t being half the noise power of step t
    in all dimensions.
    """

    def __len__(self) -> int:
        """Return the largest T."""
        ...

    def start_errors(self, start_gap: float) -> np.ndarray:
        """Return the part of the error that comes from the start, for every T."""
        ...

    def weight_sums(self, exponent: float) -> np.ndarray:
        """Return ``sum_t weights_{T,t}**exponent``, for every T."""
        ...

    def log_weight_rows(self) -> Iterator[np.ndarray]:
        """Yield the logarithms of the T weights, for T = 1, 2, ..."""
        ...

    @property
    def weights(self) -> np.ndarray:
        """The weights of the largest T."""
        ...

    def error(self, start_gap: float, power: np.ndarray | float) -> float:
        """Return the error after all steps for half noise powers ``power``."""
        ...


@dataclass(frozen=True, eq=False)
class Bound:
    """The statement ``V_t <= contraction_t V_{t-1} + gain_t P_t`` and ``E_T <= V_T`` for t = 1..T.

    ``E_t`` is E F(x_t) - F*, ``V_0 <= start_factor E_0`` the theorem's own measure of the start, and
    ``P_t = E|w_t|²/2`` half the noise power of step t (d b_t² + σ_s²/2 for Laplace noise of scale b_t and sampling
    variance σ_s²). Unrolled it reads ``E_T <= decay V_0 + sum_t weights_t P_t``.
    """

    contraction: np.ndarray
    gain: np.ndarray
    start_factor: float = 1.0

    def __len__(self) -> int:
        return len(self.gain)

    @property
    def decay(self) -> float:
        """What multiplies V_0 after all steps."""
        return float(np.prod(self.contraction))

    @property
    def weights(self) -> np.ndarray:
        """What multiplies each step's noise power P_t."""
        later = np.append(self.contraction[:0:-1].cumprod()[::-1], 1.0)
        return self.gain * later

    def error(self, start_gap: float, power: np.ndarray | float) -> float:
        """Bound E F(x_T) - F* for F(x_0) - F* <= start_gap and half noise powers ``power``."""
        return float(self.decay * self.start_factor * start_gap + np.sum(self.weights * power))

    def start_errors(self, start_gap: float) -> np.ndarray:
        """Return ``decay V_0`` of the first T steps, for every T."""
        return np.cumprod(self.contraction) * self.start_factor * start_gap

    def weight_sums(self, exponent: float) -> np.ndarray:
        """Return ``sum_t weights_t**exponent`` of the first T steps, for every T, in O(T) operations."""
        sums, total = np.empty(len(self)), 0.0
        steps = zip((self.contraction**exponent).tolist(), (self.gain**exponent).tolist(), strict=True)
        for t, (ratio, term) in enumerate(steps):
            total = ratio * total + term
            sums[t] = total
        return sums

    def log_weight_rows(self) -> Iterator[np.ndarray]:
        """Yield the logarithms of the weights of the first T steps, for T = 1, 2, ..."""
        log_decays = np.cumsum(np.log(np.maximum(self.contraction, np.finfo(float).tiny)))
        relative = np.log(self.gain) - log_decays
        for T in range(1, len(self) + 1):
            yield relative[:T] + log_decays[T - 1]

    def first(self, T: int) -> "Bound":
        """Return the bound of the first T steps."""
        return Bound(self.contraction[:T], self.gain[:T], self.start_factor)
