"""How large the noise of a released second moment is, entry by entry and as a matrix."""

import math
from dataclasses import dataclass

from epsteps.budgets import Cost

# The largest eigenvalue of a difference of two Wishart(k + 1, c) matrices is about this many times k c: the right end
# of the free convolution of a Marchenko-Pastur law of ratio 1 with its mirror image.
_WISHART_EDGE = 3.33

# The longest record whose second moment is released is this many steps: 2^20 numbers' products of them add up to less
# than 2^53, which doubles hold.
MATRIX_STEPS = 2**16
# And so many of them add up within 62 bits.
MATRIX_ROWS = 2**30


@dataclass(frozen=True)
class MatrixNoise:
    """Symmetric noise on a mean of outer products of k numbers: ``scale`` is its parameter for the mean.

    For pure privacy it is c of W - W', two Wishart(k + 1, c I) matrices; else the standard deviation on the diagonal of
    a Gaussian matrix, √2 times that off the diagonal.
    """

    k: int
    scale: float
    off: float
    edge: float

    @property
    def diagonal(self) -> float:
        """Standard deviation of a diagonal entry."""
        return math.sqrt(2) * self.off


def matrix_noise(kind: type[Cost], k: int, length: float, n: int, cost: float) -> MatrixNoise:
    """Return the noise for a mean of n outer products of vectors whose squared length is at most ``length``.

    Formal guarantee: replacing a vector moves the sum by at most 2 length in the nuclear norm and √2 length in
    Frobenius'. The density of W - W' changes by at most the nuclear norm over 2c, so that c = length/epsilon is
    epsilon-DP; Gaussian noise of Frobenius' geometry with standard deviation s is rho-zCDP with rho = length²/s².
    """
    if kind.is_pure:
        scale = length / (n * cost)
        return MatrixNoise(k, scale, math.sqrt(2 * (k + 1)) * scale, _WISHART_EDGE * k * scale)
    scale = length / (n * math.sqrt(cost))
    return MatrixNoise(k, scale, scale / math.sqrt(2), math.sqrt(2 * k) * scale)
