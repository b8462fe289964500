"""Checks of error weights before a budget is split by them."""

import numpy as np


def checked_weights(weights: np.ndarray) -> np.ndarray:
    """Return usable weights, or raise; a vanishing one counts as 1e-36 of the largest: every step gets a share."""
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 1 or len(weights) == 0:
        raise ValueError(f"weights must be a sequence with one entry per step, got shape {weights.shape}.")
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0) and weights.max() > 0):
        raise ValueError("weights must be finite, not negative and not all zero.")
    return np.maximum(weights, 1e-36 * weights.max())
