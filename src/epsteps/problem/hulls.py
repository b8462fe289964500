"""The smallest convex body around the gradients of records with one-hot blocks, and the noise that is shaped like it.

Noise shaped like a product of bodies, one for each block, has to cover changes that no record makes: one category
against itself in every block at once, in all combinations of signs. A slope has one sign for the whole record.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln, roots_legendre


@dataclass(frozen=True, eq=False)
class HullCovariance:
    """Covariance diag(own) + extra_b within each part b + between_ab for coordinates of parts of the kinds a and b.

    ``parts`` numbers the part of each coordinate, and ``kinds`` the kind of each part.
    """

    own: np.ndarray
    parts: np.ndarray
    extra: np.ndarray
    kinds: np.ndarray
    between: np.ndarray

    @property
    def variances(self) -> np.ndarray:
        """Diagonal of the covariance."""
        return self.own + (self.extra + np.diag(self.between)[self.kinds])[self.parts]

    @property
    def matrix(self) -> np.ndarray:
        """The covariance in full."""
        kinds = self.kinds[self.parts]
        same = self.parts[:, None] == self.parts
        return np.diag(self.own) + same * self.extra[self.parts] + self.between[np.ix_(kinds, kinds)]

    def trace(self, units: np.ndarray) -> float:
        """Return the trace when coordinates are stretched by these units."""
        return float(np.sum(self.variances * units**2))

    def weighed(self, units: np.ndarray, spread: np.ndarray, mean: np.ndarray) -> float:
        """Return tr(H⁻¹ Σ) of the stretched covariance, for H = diag(spread) + mean mean' (Sherman and Morrison)."""
        tilt = mean / spread
        bent = self._along(units * tilt) / (1 + tilt @ mean)
        return float(np.sum(self.variances * units**2 / spread) - bent)

    def _along(self, v: np.ndarray) -> float:
        """Return v'Σv."""
        sums = np.bincount(self.parts, v, minlength=len(self.kinds))
        totals = np.bincount(self.kinds, sums, minlength=len(self.between))
        return float(self.own @ v**2 + self.extra @ sums**2 + totals @ self.between @ totals)


@dataclass(frozen=True)
class Hull:
    """The convex hull C of all c u with |c| <= 1, for records u of ``parts`` and ``signed`` coordinates; its gauge.

    Each of ``parts`` lists coordinates that are never negative and add up to at most 1: a single one in [0, 1], or the
    indicators of one category. Those of ``signed`` lie in [-1, 1]. If P_b and -Q_b are the sums of the positive and of
    the negative entries of z in part b, the gauge is

        |z|_C = max(max_b P_b + max_b Q_b, max_s |z_s|).

    Proof: z lies in rC if z = αu - βv for two records and α + β = r. Parts contain, with a vector, every smaller one
    that is not negative, so that u may as well hold the positive entries alone, and v the negative ones: all that is
    needed is α >= P_b, β >= Q_b, and α + β >= |z_s|.

    >>> Hull(parts=((0,), (1, 2)), signed=(3,)).gauge(np.array([1.0, -0.5, 0.3, -0.4]))
    np.float64(1.5)
    """

    parts: tuple[tuple[int, ...], ...]
    signed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        listed = [*(column for part in self.parts for column in part), *self.signed]
        if not self.parts or sorted(listed) != list(range(len(listed))) or not all(self.parts):
            raise ValueError(
                "parts and signed must list the coordinates 0, 1, ... once each, with a part or more, got "
                f"{self!r}. Without any part the hull is a cube: Body((), ((0,), (1,), ...))."
            )

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return sum(len(part) for part in self.parts) + len(self.signed)

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return |z|_C of a vector, or of each column: the factor by which C must be stretched to reach z."""
        listed = z[self._columns]
        above = np.add.reduceat(np.maximum(listed, 0), self._starts, axis=0).max(axis=0)
        below = np.add.reduceat(np.minimum(listed, 0), self._starts, axis=0).min(axis=0)
        size = above - below
        return np.maximum(size, np.abs(z[list(self.signed)]).max(axis=0)) if self.signed else size

    @property
    def cube(self) -> float:
        """The largest gauge of a vector of the cube [-1, 1]^d: two parts of opposite signs, or one part alone."""
        return float(sum(sorted(len(part) for part in self.parts)[-2:]))

    @cached_property
    def covariance(self) -> HullCovariance:
        """That of noise with density ~ the integral of e^(-λ-μ) over all levels λ, μ that leave room for z.

        There is room if λ >= P_b, μ >= Q_b and λ + μ >= |z_s|; without signed coordinates the density is ~ exp(-|z|_C).
        The sum r = λ + μ is a Gamma(d + 2) variable, the share p = λ/r is independent of it, and signed coordinates
        are uniform within r. Given the levels, parts are independent.
        """
        sizes = sorted({len(part) for part in self.parts})
        nodes, weights = roots_legendre(sum(len(part) for part in self.parts) // 2 + 2)
        p = (1 + nodes) / 2
        moments = [_PartMoments.given(size, p) for size in sizes]
        counts = [sum(len(part) == size for part in self.parts) for size in sizes]
        law = np.log(weights) + sum(n * part.volume for n, part in zip(counts, moments, strict=True))
        law = np.exp(law - law.max())
        law *= (self.d + 2) * (self.d + 3) / law.sum()
        means = np.array([part.mean for part in moments])
        between = np.zeros((len(sizes) + 1,) * 2)  # the last kind is that of signed coordinates
        between[:-1, :-1] = (means * law) @ means.T
        variances = np.array([law @ part.square for part in moments] + [law.sum() / 3])
        within = np.array([law @ part.product for part in moments] + [0.0])
        owners = self._owners
        kinds = np.array([*(sizes.index(len(part)) for part in self.parts), *[len(sizes)] * len(self.signed)])
        return HullCovariance(
            (variances - within)[kinds][owners], owners, (within - np.diag(between))[kinds], kinds, between
        )

    @property
    def variances(self) -> np.ndarray:
        """Variance of each coordinate of that noise."""
        return self.covariance.variances

    @cached_property
    def _columns(self) -> np.ndarray:
        return np.array([column for part in self.parts for column in part])

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum([0, *(len(part) for part in self.parts)])[:-1]

    @cached_property
    def _owners(self) -> np.ndarray:
        """The number of each coordinate's part; signed coordinates count as parts of their own."""
        owners = np.empty(self.d, dtype=int)
        for number, part in enumerate((*self.parts, *((column,) for column in self.signed))):
            owners[list(part)] = number
        return owners


@dataclass(frozen=True, eq=False)
class _PartMoments:
    """A part of k coordinates at the levels p and 1 - p, for each p of a rule.

    ``volume`` is the logarithm, up to a constant, of that of its points: the sum over j = 0, ..., k of the terms
    C(k,j)² p^j (1-p)^(k-j), those with j positive coordinates. These fill a simplex of size p, the others one of size
    1 - p. ``mean``, ``square`` and ``product`` are E z_c, E z_c² and E z_c z_c' for two different coordinates. Times
    the volume they are polynomials in p of degree k + 1 and k + 2, which a Gauss rule integrates exactly.
    """

    volume: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    product: np.ndarray

    @classmethod
    def given(cls, k: int, p: np.ndarray) -> "_PartMoments":
        j = np.arange(k + 1.0)[:, None]
        i, q = k - j, 1 - p
        terms = -2 * (gammaln(j + 1) + gammaln(i + 1)) + j * np.log(p) + i * np.log(q)
        largest = terms.max(axis=0)
        shares = np.exp(terms - largest)
        total = shares.sum(axis=0)
        shares /= total
        up, down = p / (j + 1), q / (i + 1)  # the mean of a positive coordinate, and of a negative one
        square = 2 / k * np.sum(shares * (j * up * p / (j + 2) + i * down * q / (i + 2)), axis=0)
        both = j * (j - 1) * up * p / (j + 2) + i * (i - 1) * down * q / (i + 2) - 2 * i * j * up * down
        product = np.sum(shares * both, axis=0) / max(k * (k - 1), 1)
        # A part of one has no two coordinates; its own square stands in, so that nothing is left over.
        mean = np.sum(shares * (j * up - i * down), axis=0) / k
        return cls(largest + np.log(total), mean, square, product if k > 1 else mean**2)
