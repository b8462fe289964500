"""Sufficient statistics of least squares, released together: second moments, products with the targets, an eigenvalue.

Records have features of L2 norm at most ``size`` and targets of at most ``bound``. The sums over them get Gaussian
noise: a symmetric matrix with standard deviation ``moments`` on the diagonal and ``moments``/√2 off it, a vector with
``products``, and, if it is released too, the smallest eigenvalue with ``eigenvalue``.
"""

import math
from dataclasses import dataclass

from epsteps.problem import validate

# Far above the rounding error of the formulas.
_OUTWARD = 1 + 1e-12


@dataclass(frozen=True)
class StatisticsScales:
    """Standard deviations of the noise; an infinite one stands for a statistic that is not released."""

    moments: float
    products: float
    eigenvalue: float = math.inf

    def __post_init__(self) -> None:
        for name in ("moments", "products", "eigenvalue"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}.")


def statistics_mu(size: float, bound: float, scales: StatisticsScales) -> float:
    """Return the mu with which the statistics together are Gaussian-DP: exact, rounded up.

    Formal guarantee: replacing (u, y) by (v, w) changes the matrix by uu' - vv', whose Frobenius norm has the square
    |u|⁴ + |v|⁴ - 2 (u'v)² and whose operator norm bounds the eigenvalue's change (Weyl); and the vector by yu - wv,
    at most bound² (|u|² + |v|² + 2 |u'v|) squared. All grow with |u| and |v| for a fixed u'v, so both are ``size``.
    For u'v = c size² what is left is A (1 - c²) + Q (1 + c), largest at c = min(Q/2A, 1). Adding up the separate
    sensitivities gives up to a third more.
    """
    A, Q = _parts(validate.positive("size", size), validate.positive("bound", bound), scales)
    return math.sqrt(_together(A, Q)) * _OUTWARD


def statistics_scales(
    mu: float, size: float, bound: float, product_share: float = 0.5, eigenvalue_share: float = 0.0
) -> StatisticsScales:
    """Return scales with which the statistics are together mu-Gaussian-DP, rounded up and checked again.

    Parameters
    ----------
    mu : float
        For example ``epsteps.budgets.gaussian_mu(epsilon, delta)``.
    size, bound : float
        The largest L2 norm of a record's features, and its largest target.
    product_share : float
        How much of the budget the vector of products gets, in (0, 1).
    eigenvalue_share : float
        The part of the matrix's budget for its smallest eigenvalue, in [0, 1); 0 if that is not released.
    """
    validate.positive("mu", mu)
    if not 0 < validate.number("product_share", product_share) < 1:
        raise ValueError(f"product_share must lie between 0 and 1, got {product_share!r}.")
    if not 0 <= validate.number("eigenvalue_share", eigenvalue_share) < 1:
        raise ValueError(f"eigenvalue_share must be at least 0 and below 1, got {eigenvalue_share!r}.")
    unit = mu**2 / _together(1 - product_share, product_share)
    A, Q = unit * (1 - product_share), unit * product_share
    size, bound = validate.positive("size", size), validate.positive("bound", bound)
    scales = StatisticsScales(
        moments=size**2 * math.sqrt(2 / (A * (1 - eigenvalue_share))) * (1 + 1e-11),
        products=size * bound * math.sqrt(2 / Q) * (1 + 1e-11),
        eigenvalue=size**2 / math.sqrt(A * eigenvalue_share) * (1 + 1e-11) if eigenvalue_share else math.inf,
    )
    if statistics_mu(size, bound, scales) > mu:
        raise ArithmeticError(f"the scales for mu={mu!r} were not found: {scales!r} exceed it.")
    return scales


def adaptive_ridge(scale: float, d: int, noisy_eigenvalue: float) -> float:
    """Return the ridge to add to noisy moments: max(0, scale √(2d) - the released smallest eigenvalue).

    The first term is about the norm of the noise; it matters for the error, not for privacy (AdaSSP, Wang 2018).
    """
    validate.positive("scale", scale)
    return max(0.0, scale * math.sqrt(2 * validate.integer("d", d)) - noisy_eigenvalue)


def _parts(size: float, bound: float, scales: StatisticsScales) -> tuple[float, float]:
    """Return the squared mu of the matrix (with its eigenvalue) and half the largest one of the vector."""
    A = size**4 * (2 / scales.moments**2 + 1 / scales.eigenvalue**2)
    return A, 2 * size**2 * bound**2 / scales.products**2


def _together(A: float, Q: float) -> float:
    """Return the maximum of A (1 - c²) + Q (1 + c) over c in [0, 1]."""
    return A + Q + Q * Q / (4 * A) if Q <= 2 * A else 2 * Q
