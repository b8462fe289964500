"""Which theorem covers given steps: a method is data, so its theorem follows from the data."""

import numpy as np

from epsteps.bounds import certificates, theorems
from epsteps.bounds.recursion import Bound
from epsteps.methods import Steps


def for_steps(steps: Steps, mu: float, L: float) -> Bound:
    """Return the bound of the theorem that covers these steps, or raise ``NoBoundError``.

    Heavy ball's comes from a certificate that is searched for, which needs ``epsteps[theory]``.
    """
    if np.any(steps.gamma):
        return theorems.multistage(steps, mu, L)
    if np.any(steps.beta):
        return certificates.heavy_ball(steps, mu, L)
    return theorems.gd(steps, mu, L)
