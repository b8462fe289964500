"""Noise mechanisms: the norm whose sensitivity they need, the loss of a step, and the power of their noise."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class Laplace:
    """Independent Laplace noise of density ``exp(-|w|/b)/(2b)`` on each coordinate: variance 2b².

    Formal guarantee: added to a value of L1 sensitivity s it has privacy loss at most s/b (Dwork et al. 2006). The
    paper's published code draws scale b/√2 instead, and so spends √2 times its epsilon or more.
    """

    name: ClassVar[str] = "laplace"
    norm: ClassVar[float] = 1

    def loss(self, sensitivity: float, scales: np.ndarray) -> np.ndarray:
        """Return the privacy loss of noise of these scales on a value of this sensitivity."""
        return sensitivity / np.asarray(scales, dtype=float)

    def scale(self, sensitivity: float, losses: np.ndarray) -> np.ndarray:
        """Return the scales at which noise has these privacy losses."""
        return sensitivity / np.asarray(losses, dtype=float)

    def half_power(self, scales: np.ndarray, d: int) -> np.ndarray:
        """Return half of E|w|² in d dimensions: d b²."""
        return d * np.asarray(scales, dtype=float) ** 2
