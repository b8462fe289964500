"""How much Gaussian noise a tilted minimum needs, with the corners that certify it."""

import math
from dataclasses import dataclass

from scipy.optimize import root_scalar

from epsteps.budgets.conversions import gaussian_mu
from epsteps.budgets.corners import GAUSSIAN, Corners, composed
from epsteps.methods.minima.saturations import Saturation
from epsteps.problem import validate

# Relative to a plain Gaussian mechanism: an objective that needs a smaller mu has no use.
_SMALLEST = math.exp(-12)
_MOST_ROUNDS = 50


@dataclass(frozen=True)
class Calibrated:
    """The scale mu = 2 S/sigma of the noise, the corners that were used, and the mu of Gaussian noise on the output."""

    mu: float
    corners: Corners
    mu_out: float = 0.0

    @property
    def cost(self) -> Corners:
        """What a ledger is charged: the minimum and the noise on the output together."""
        alone = self.corners.scaled(self.mu)
        return composed([alone, GAUSSIAN.scaled(self.mu_out)]) if self.mu_out > 0 else alone


def calibrated(epsilon: float, delta: float, kappa: float, saturation: Saturation, mu_out: float = 0.0) -> Calibrated:
    """Return the largest mu for which the minimum of ``n F(x) + b'x``, b Gaussian, is (epsilon, delta)-private.

    Formal guarantee: as that of ``Corners``; mu is rounded down and delta evaluated again. Noise on the output, or
    another release, takes ``mu_out``. Every choice of corners is valid, so the best ones are taken for this mu.

    >>> from epsteps.methods.minima.saturations import Sigmoid
    >>> round(calibrated(1.0, 1e-5, kappa=1.0, saturation=Sigmoid()).mu, 6)
    0.250768
    """
    found = calibrated_or_none(epsilon, delta, kappa, saturation, mu_out)
    if found is None:
        raise ValueError(_refusal(epsilon, delta, kappa, saturation, mu_out))
    return found


def calibrated_or_none(
    epsilon: float, delta: float, kappa: float, saturation: Saturation, mu_out: float = 0.0
) -> Calibrated | None:
    """Return what ``calibrated`` does, or None where the ridge is too small for any noise."""
    validate.positive("kappa", kappa)
    if validate.number("mu_out", mu_out) < 0:
        raise ValueError(f"mu_out must not be negative, got {mu_out!r}.")
    plain = gaussian_mu(epsilon, delta)
    if mu_out >= plain:
        raise ValueError(f"mu_out must be below {plain:.6g}, all that epsilon and delta allow, got {mu_out!r}.")
    best = Calibrated(_SMALLEST * plain, saturation.corners(kappa, _SMALLEST * plain, epsilon, mu_out), mu_out)
    if best.corners.delta(best.mu, epsilon, mu_out) > delta:
        return None
    # The best corners at one mu allow a larger mu, and so on: it only rises, and soon stops.
    for _ in range(_MOST_ROUNDS):
        corners = saturation.corners(kappa, best.mu, epsilon, mu_out)
        found = Calibrated(corners.mu(epsilon, delta, mu_out), corners, mu_out)
        if found.mu <= best.mu * (1 + 1e-10):
            break
        best = found
    return best


def _refusal(epsilon: float, delta: float, kappa: float, saturation: Saturation, mu_out: float) -> str:
    """Say which ridge would do."""
    mu = _SMALLEST * gaussian_mu(epsilon, delta)

    def excess(log_kappa: float) -> float:
        corners = saturation.corners(math.exp(log_kappa), mu, epsilon, mu_out)
        return corners.delta(mu, epsilon, mu_out) - delta

    low = math.log(kappa)
    while excess(low) > 0:
        low -= 1.0
        if low < math.log(kappa) - 60:
            return (
                f"no ridge is enough for epsilon={epsilon!r}, delta={delta!r} with mu_out={mu_out!r}: take less of it."
            )
    limit = math.exp(root_scalar(excess, bracket=(low, math.log(kappa)), xtol=1e-9).root)
    return (
        f"the ridge is too small for epsilon={epsilon!r}, delta={delta!r}: kappa must be below {limit:.6g}, "
        f"got {kappa:.6g}. Multiply the ridge by more than {kappa / limit:.6g}."
    )
