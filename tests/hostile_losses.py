"""Losses that somebody might write: what the library must hold although they do not."""

import numpy as np


class Unbounded:
    """A loss that breaks its word: slopes up to 10 where 1 is declared, and NaN where a margin is large.

    All else is what the library asks of a loss.
    """

    outputs = 1
    slope = 1.0
    typical_slope = 1.0
    curvature = 1.0
    value_at_zero = 0.5
    bound = 1.0

    def __repr__(self) -> str:
        return "Unbounded()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unbounded)

    def __hash__(self) -> int:
        return hash(Unbounded)

    def joint_slope(self, norm: float) -> float:
        return 1.0

    def slope_at(self, reach: np.ndarray) -> np.ndarray:
        return np.ones_like(reach)

    def encode(self, y: np.ndarray) -> np.ndarray:
        return np.clip(np.nan_to_num(np.asarray(y, dtype=float)), -1, 1)

    def outside(self, y: np.ndarray) -> int:
        return 0

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        return 0.5 * np.square(np.clip(margin - target, -10, 10)).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        return np.where(np.abs(margin) > 50, np.nan, np.clip(10 * (margin - target), -10, 10))

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        return np.ones(margin.shape)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        return np.rint(self.derivative(margin, target) / bound * 2**20)
