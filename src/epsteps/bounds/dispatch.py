"""Which theorem covers given steps: a method is data, so its theorem follows from the data."""

import numpy as np

from epsteps.bounds import stages, theorems
from epsteps.bounds.recursion import Bound, NoBoundError
from epsteps.bounds.steps import Steps


def for_steps(steps: Steps, mu: float, L: float) -> Bound:
    """Return the bound of the theorem that covers these steps, or raise ``NoBoundError``.

    Heavy ball's, and that of Nesterov's method with another momentum, comes from a certificate that is searched for,
    which needs ``epsteps[theory]``.
    """
    if not np.any(steps.beta):
        return theorems.gd(steps, mu, L)
    if not np.any(steps.gamma):
        return stages.heavy_ball(steps, mu, L)
    try:
        return theorems.multistage(steps, mu, L)
    except NoBoundError:
        if mu <= 0 or not np.array_equal(steps.gamma, steps.beta):
            raise
        return stages.nesterov_any_momentum(steps, mu, L)
