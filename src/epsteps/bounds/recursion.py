"""What every theorem has in common: one step contracts the error and adds a multiple of its noise."""

from dataclasses import dataclass

import numpy as np


class NoBoundError(ValueError):
    """No theorem of the library covers these steps."""


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

    def decays(self) -> np.ndarray:
        """Return ``decay`` of the first T steps, for every T."""
        return np.cumprod(self.contraction)

    def weight_sums(self, exponent: float) -> np.ndarray:
        """Return ``sum_t weights_t**exponent`` of the first T steps, for every T, in O(T) operations."""
        sums, total = np.empty(len(self.gain)), 0.0
        steps = zip((self.contraction**exponent).tolist(), (self.gain**exponent).tolist(), strict=True)
        for t, (ratio, term) in enumerate(steps):
            total = ratio * total + term
            sums[t] = total
        return sums

    def first(self, T: int) -> "Bound":
        """Return the bound of the first T steps."""
        return Bound(self.contraction[:T], self.gain[:T], self.start_factor)
