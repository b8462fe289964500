"""The exact minimum of F on given records, by Newton's method: the yardstick of experiments, NOT private."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from epsteps.data.rows import Rows

# Of the Newton decrement, which is about twice what F still lies above its minimum.
_DECREMENT = 1e-20
_STEPS = 200


def minimiser(rows: Rows) -> np.ndarray:
    """Return the x at which F is least, up to rounding: UNPROTECTED, for experiments."""
    x = np.zeros(rows.problem.dimension)
    here = float(rows.value(x))
    for _ in range(_STEPS):
        gradient = rows.gradient(x)
        hessian = rows.hessian(x)
        step = cho_solve(cho_factor(hessian + 1e-14 * np.trace(hessian) / len(x) * np.eye(len(x))), gradient)
        decrement = float(gradient @ step)
        length = 1.0
        while (there := float(rows.value(x - length * step))) > here - 0.25 * length * decrement and length > 1e-6:
            length /= 2
        if there > here - 1e-16 * abs(here) or decrement <= _DECREMENT:
            return x - step if decrement <= 1e-8 else x
        x, here = x - length * step, there
    return x
