"""Convex bodies that hold every record's gradient, in units in which a record's largest entry is 1.

Noise that is shaped like the body of possible changes is smaller than noise shaped like a cube or a cross-polytope
around it: that is the whole use of them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Covariance:
    """Covariance diag(own) + common 1 1' on the hull's coordinates."""

    own: np.ndarray
    hull: tuple[int, ...] = ()
    common: float = 0.0

    @property
    def variances(self) -> np.ndarray:
        """Diagonal of the covariance."""
        variances = self.own.copy()
        variances[list(self.hull)] += self.common
        return variances

    @property
    def matrix(self) -> np.ndarray:
        """The covariance in full."""
        found = np.diag(self.own)
        found[np.ix_(self.hull, self.hull)] += self.common
        return found

    def trace(self, units: np.ndarray) -> float:
        """Return the trace when coordinates are stretched by these units."""
        return float(np.sum(self.own * units**2) + self.common * np.sum(units[list(self.hull)] ** 2))

    def weighed(self, units: np.ndarray, spread: np.ndarray, mean: np.ndarray) -> float:
        """Return tr(H⁻¹ Σ) of the stretched covariance, for H = diag(spread) + mean mean' (Sherman and Morrison)."""
        inverse, hull = 1 / spread, list(self.hull)
        tilt = inverse * mean
        straight = np.sum(self.own * units**2 * inverse) + self.common * np.sum(inverse[hull] * units[hull] ** 2)
        bent = np.sum(self.own * units**2 * tilt**2) + self.common * np.sum(tilt[hull] * units[hull]) ** 2
        return float(straight - bent / (1 + tilt @ mean))


@dataclass(frozen=True)
class Body:
    """The product of a hull and of blocks: a symmetric convex body C in d dimensions, and its gauge |z|_C.

    ``hull`` lists coordinates that lie in [0, 1] for every record: c u for |c| <= 1 and u in [0, 1]^k fills the set
    where the range of (0, z_1, ..., z_k) is at most 1. Each of ``blocks`` lists coordinates whose absolute values add
    up to at most 1: a single coordinate of either sign, or the indicators of one category. A record's gradient with a
    slope of at most 1 lies in C, and two of them differ by an element of 2C.

    >>> Body(hull=(0, 1), blocks=((2, 3),)).gauge(np.array([1.0, -0.5, 0.3, -0.4]))
    np.float64(1.5)
    """

    hull: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        listed = [*self.hull, *(column for block in self.blocks for column in block)]
        if not listed or sorted(listed) != list(range(len(listed))) or not all(self.blocks):
            raise ValueError(f"hull and blocks must list the coordinates 0, 1, ... once each, got {self!r}.")

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return len(self.hull) + sum(len(block) for block in self.blocks)

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return |z|_C of a vector, or of each column: the factor by which C must be stretched to reach z."""
        size = np.zeros(z.shape[1:])
        if self.hull:
            part = z[list(self.hull)]
            size = np.maximum(part.max(axis=0), 0) - np.minimum(part.min(axis=0), 0)
        if self.blocks:
            sums = np.zeros((len(self.blocks), *z.shape[1:]))
            np.add.at(sums, self._owners, np.abs(z[self._columns]))
            size = np.maximum(size, sums.max(axis=0))
        return size

    @property
    def cube(self) -> float:
        """The largest gauge of a vector of the cube [-1, 1]^d."""
        return float(max([2 * bool(self.hull), *(len(block) for block in self.blocks)]))

    @cached_property
    def covariance(self) -> "Covariance":
        """That of noise with density ~ exp(-|z|_C): a point that is uniform on C, times a Gamma(d + 1) radius.

        On a block of k coordinates a uniform point has E z_j² = 2/((k + 1)(k + 2)); on a hull of k, (k + 3)/(6(k + 1)),
        half of which two coordinates share: they are the sides of a cube less one and the same.
        """
        uniform = np.empty(self.d)
        k = len(self.hull)
        uniform[list(self.hull)] = (k + 3) / (6 * (k + 1))
        sizes = np.array([len(block) for block in self.blocks])[self._owners] if self.blocks else np.zeros(0)
        uniform[self._columns] = 2 / ((sizes + 1) * (sizes + 2))
        variances = (self.d + 1) * (self.d + 2) * uniform
        common = variances[self.hull[0]] / 2 if self.hull else 0.0
        variances[list(self.hull)] -= common
        return Covariance(variances, self.hull, float(common))

    @property
    def variances(self) -> np.ndarray:
        """Variance of each coordinate of that noise."""
        return self.covariance.variances

    def repeated(self, count: int) -> "Body":
        """Return a body of so many copies side by side, in which a hull's coordinates stand alone."""
        parts = (*((column,) for column in self.hull), *self.blocks)
        return Body((), tuple(tuple(c + copy * self.d for c in part) for copy in range(count) for part in parts))

    def ellipsoid(self, importance: np.ndarray) -> "Ellipsoid":
        """Return an ellipsoid around C, for Gaussian noise: small where noise is important, by these public weights.

        Each part has its own. A block of k coordinates lies in the unit ball. A hull of k lies in the ellipsoid of
        M (r J + I - J), where J projects on (1, ..., 1), and M is the largest j - j²/k (1 - 1/r) over the vertices 1_S
        with j = |S| coordinates. Features that are never negative have most of their curvature, about 1 + 3k times the
        rest, along (1, ..., 1), where noise does little harm: r = 1 + √(1 + (k - 1)(1 + 3k)). Stretched by 1/w with
        weights w that add up to 1, the parts hold C together, and w ~ √trace makes the sum of the traces smallest.
        """
        parts = [*([self.hull] if self.hull else []), *self.blocks]
        traces = np.array([np.sum(importance[list(part)]) for part in parts])
        k, ratio, inner = len(self.hull), 1.0, 1.0
        if self.hull:
            along, j = 1 + 3 * k, np.arange(1, k + 1)
            ratio = 1 + np.sqrt(1 + (k - 1) * along)
            inner = np.max(j - j**2 / k * (1 - 1 / ratio))
            traces[0] *= inner * (1 + (ratio / along - 1) / k)
        stretch = np.sqrt(traces).sum() / np.sqrt(traces)
        variances = np.empty(self.d)
        for part, factor in zip(parts, stretch, strict=True):
            variances[list(part)] = factor
        common = 0.0
        if self.hull:
            variances[list(self.hull)] *= inner
            common = float(stretch[0] * inner * (ratio - 1) / k)
        return Ellipsoid(self.hull, tuple(np.sqrt(variances).tolist()), float(np.sqrt(common)))

    @cached_property
    def _columns(self) -> np.ndarray:
        return np.array([column for block in self.blocks for column in block], dtype=int)

    @cached_property
    def _owners(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.blocks)), [len(block) for block in self.blocks])


@dataclass(frozen=True)
class Ellipsoid:
    """The ellipsoid of the covariance diag(scales²) + common² 1 1' on the hull's coordinates, and its norm."""

    hull: tuple[int, ...]
    scales: tuple[float, ...]
    common: float

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return len(self.scales)

    @property
    def cube(self) -> float:
        """A bound on the gauge of a vector of the cube [-1, 1]^d."""
        return float(np.sqrt(np.sum(np.square(self.scales) ** -1)))

    @property
    def covariance(self) -> "Covariance":
        """That of Gaussian noise shaped like the ellipsoid."""
        return Covariance(np.square(self.scales), self.hull, self.common**2)

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return √(z'Σ⁻¹z) of a vector, or of each column (by the formula of Sherman and Morrison)."""
        inverse = 1 / np.square(self.scales)
        whole = np.tensordot(inverse, z**2, axes=1)
        if not self.hull:
            return np.sqrt(whole)
        part = inverse[list(self.hull)]
        mean = np.tensordot(part, z[list(self.hull)], axes=1)
        return np.sqrt(whole - self.common**2 * mean**2 / (1 + self.common**2 * part.sum()))
