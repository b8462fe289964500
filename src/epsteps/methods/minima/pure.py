"""Pure privacy of a tilted minimum: the noise's epsilon, and what the release costs with its Jacobian."""

import math

from scipy.optimize import root_scalar

from epsteps.methods.minima.saturations import Saturation
from epsteps.problem import validate

# Far above the rounding error of the formulas.
_OUTWARD = 1 + 1e-12
# Beyond this logarithm a float overflows.
_LARGEST_LOG = 700.0


def record_weight(record_size: float, n: int, ridge: float) -> float:
    """Return kappa = size²/(n ridge), what one record weighs against the ridge, rounded up; size in the L2 norm.

    With a ridge for each coordinate, kappa is the largest sum_j u_j²/(n ridge_j) over the domain, and every ridge must
    be positive, the intercept's too.

    >>> round(record_weight(record_size=20**0.5, n=100_000, ridge=0.02), 9)
    0.01
    """
    validate.positive("record_size", record_size)
    validate.integer("n", n)
    validate.positive("ridge", ridge, "Without a ridge a tilted objective may have no minimum.")
    return record_size**2 / (n * ridge) * _OUTWARD


def total_epsilon(noise_epsilon: float, kappa: float, saturation: Saturation) -> float:
    """Return the epsilon of releasing the minimum of ``n F(x) + b'x``, rounded up.

    Formal guarantee: b has density ~ exp(-noise_epsilon |b|_K), where K is twice a symmetric body that holds every
    record's gradient. At the released x the densities of neighbours differ by at most
    e^(noise_epsilon (|q|_K + |q'|_K)) in the noise and e^J(a) in the Jacobian, for the old and the new record's
    gradients q and q'; these norms are at most a/2 and 1/2, with the same a as in J. So the cost is
    noise_epsilon/2 + max over a of (J(a) + noise_epsilon a/2). A convex penalty or constraint that is public does not
    change it. The minimum must be exact; see ``epsteps.methods.minima.minimum`` for one that is not.

    >>> from epsteps.methods.minima.saturations import Sigmoid
    >>> total_epsilon(1.0, kappa=0.5, saturation=Sigmoid()), round(total_epsilon(1.0, 2.0, Sigmoid()), 9)
    (1.0, 1.201304673)
    """
    if validate.number("noise_epsilon", noise_epsilon) < 0:
        raise ValueError(f"noise_epsilon must not be negative, got {noise_epsilon!r}.")
    validate.positive("kappa", kappa)
    half = noise_epsilon / 2
    largest = saturation.largest(kappa, half)
    return float(noise_epsilon) if largest == half else (half + largest) * _OUTWARD


def noise_epsilon(epsilon: float, kappa: float, saturation: Saturation) -> float:
    """Return the largest epsilon of the noise with which a release costs at most epsilon; rounded down, checked again.

    >>> from epsteps.methods.minima.saturations import Sigmoid
    >>> noise_epsilon(1.0, kappa=0.01, saturation=Sigmoid()), round(noise_epsilon(1.0, 2.0, Sigmoid()), 9)
    (1.0, 0.757331661)
    """
    validate.positive("epsilon", epsilon)
    if total_epsilon(epsilon, kappa, saturation) <= epsilon:
        return float(epsilon)
    if total_epsilon(0.0, kappa, saturation) >= epsilon:
        limit = kappa_limit(epsilon, saturation)
        raise ValueError(
            f"the ridge is too small for epsilon={epsilon!r}: kappa must be below {limit:.6g}, got {kappa:.6g}. "
            f"Multiply the ridge by more than {kappa / limit:.6g}."
        )
    found = root_scalar(
        lambda noise: total_epsilon(noise, kappa, saturation) - epsilon, bracket=(0.0, epsilon), xtol=1e-14 * epsilon
    )
    result = found.root
    while total_epsilon(result, kappa, saturation) > epsilon:
        result *= 1 - 1e-11
    return result


def kappa_limit(epsilon: float, saturation: Saturation) -> float:
    """Return the kappa from which on the Jacobian alone costs epsilon: the ridge must keep kappa below it.

    >>> from epsteps.methods.minima.saturations import Sigmoid
    >>> round(kappa_limit(0.1, Sigmoid()), 10)
    0.4206836723
    """
    validate.positive("epsilon", epsilon)

    def excess(log_kappa: float) -> float:
        return saturation.largest(math.exp(log_kappa), 0.0) - epsilon

    low = high = 0.0
    while excess(low) > 0:
        low -= 8.0
    while excess(high) < 0:
        high += 8.0
        if high > _LARGEST_LOG:
            return math.inf
    return math.exp(root_scalar(excess, bracket=(low, high), xtol=1e-13).root) if low < high else 1.0
