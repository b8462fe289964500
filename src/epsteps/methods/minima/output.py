"""Output perturbation: the exact minimum plus noise. It needs no smooth loss, only bounded slopes and a ridge."""

from epsteps.budgets.conversions import gaussian_mu
from epsteps.problem import validate

# Far above the rounding error of the formulas.
_OUTWARD = 1 + 1e-12


def minimum_sensitivity(gradient_size: float, n: int, ridge: float) -> float:
    """Return how far the minimum moves, in the L2 norm, when a record is replaced; rounded up.

    Formal guarantee: 2 S/(n ridge), where S is the largest L2 norm of one record's gradient: by strong monotonicity at
    the other minimum (Chaudhuri, Monteleoni, Sarwate 2011).
    """
    validate.positive("gradient_size", gradient_size)
    validate.integer("n", n)
    return 2 * gradient_size / (n * validate.positive("ridge", ridge)) * _OUTWARD


def ball_scale(sensitivity: float, epsilon: float) -> float:
    """Return the scale s of noise with density ~ exp(-|z|_2/s) that is epsilon-private, rounded up."""
    return validate.positive("sensitivity", sensitivity) / validate.positive("epsilon", epsilon) * _OUTWARD


def ball_energy(scale: float, d: int) -> float:
    """Return E|z|² of that noise in d dimensions: |z| is Gamma(d), so d (d + 1) s²."""
    return validate.integer("d", d) * (d + 1) * validate.positive("scale", scale) ** 2


def gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the standard deviation of Gaussian noise that is (epsilon, delta)-private, rounded up."""
    return validate.positive("sensitivity", sensitivity) / gaussian_mu(epsilon, delta) * _OUTWARD
