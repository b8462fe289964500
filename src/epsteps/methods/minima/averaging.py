"""Several minima of the same objective, released one after another, and their mean."""

import numpy as np

from epsteps.problem import validate


def averaging_weights(costs: np.ndarray) -> np.ndarray:
    """Return the weights of the mean with the smallest variance: proportional to costs², and adding up to 1.

    ``costs`` are the epsilons of pure releases, or the mus of Gaussian ones: a variance falls with the square of
    either. The mean is post-processing, so it costs nothing.

    >>> averaging_weights([0.1, 0.3])
    array([0.1, 0.9])
    """
    squares = np.array([validate.positive("costs", cost) for cost in costs]) ** 2
    return squares / squares.sum()


def averaging_loss(costs: np.ndarray, total: float) -> float:
    """Return how many times the mean's variance exceeds that of one release with the cost ``total``; first order.

    >>> round(averaging_loss([0.1, 0.2, 0.7], total=1.0), 9)
    1.851851852
    """
    return float(total**2 / np.sum(np.square(costs)))
