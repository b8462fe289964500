"""Losses that somebody might write: what the library must hold although they do not."""

import numpy as np

from epsteps.problem.losses import Loss, Range


class Unbounded(Loss):
    """A loss that breaks its word: slopes up to 10 where 1 is declared, and NaN where a margin is large.

    All else is what the library asks of a loss.
    """

    targets = Range(1.0)
    slope = 1.0
    curvature = 1.0
    value_at_zero = 0.5

    def __repr__(self) -> str:
        return "Unbounded()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unbounded)

    def __hash__(self) -> int:
        return hash(Unbounded)

    def total(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        return 0.5 * np.square(np.clip(margin - target, -10, 10)).sum(axis=0)

    def derivative(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        return np.where(np.abs(margin) > 50, np.nan, np.clip(10 * (margin - target), -10, 10))

    def second(self, margin: np.ndarray, target: np.ndarray) -> np.ndarray:
        return np.ones(margin.shape)

    def levels(self, margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
        return np.rint(self.derivative(margin, target) / bound * 2**20)
