"""Shapes: norms and convex bodies that noise is drawn around, for vectors and for symmetric matrices.

Noise is a law and a shape. A shape's gauge measures how far a record moves what is released; over the scale of the
noise it is what the release costs. Bodies that hold every record's gradient are in units in which a record's largest
entry is 1: noise that is shaped like the body of possible changes is smaller than noise shaped like a cube or a
cross-polytope around it, and that is the whole use of them.

A new shape is a class here, with a line in ``RULES`` if it has a name, and a sampler in ``epsteps.noise``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import scipy

from epsteps.problem import validate

if TYPE_CHECKING:
    from epsteps.problem.problem import Problem

# The norm of noise that is shaped like a body, in units of each coordinate.
BODY = "body"


class Shape(ABC):
    """A norm |z|, and the one law of noise around it that there is a sampler for.

    The law has a density ~ exp(-|z|/scale), or one whose logarithm changes no faster: a change z of what is released
    costs epsilon = |z|/scale. Where ``gaussian`` it is Gaussian instead, and costs rho = (|z|/scale)²/2.
    """

    # Whether the noise is Gaussian.
    gaussian: ClassVar[bool] = False
    # Whether integer noise is the ideal noise, rounded: a function of the sum with noise, as rounding to integers is.
    rounded: ClassVar[bool] = False
    # Whether coordinates of the noise are independent, so that there is noise for arrays of any form.
    independent: ClassVar[bool] = False
    # The norm in which a problem states the sensitivity of this noise: 1, 2, or that of a body, in the domain's units.
    norm: ClassVar[float | str] = BODY

    @property
    @abstractmethod
    def d(self) -> int:
        """Number of coordinates."""

    @abstractmethod
    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return |z| of a vector, or of each column."""

    def shadow(self, z: np.ndarray) -> np.ndarray:
        """Return what of a vector, or of each column, lies in the space that the noise fills: here all of it."""
        return z

    def reach(self, sizes: np.ndarray) -> np.ndarray:
        """Return a bound on the gauge of any vector whose entries are no larger than these, or than each column's."""
        return self.gauge(sizes)

    @property
    @abstractmethod
    def cube(self) -> float:
        """A bound on the gauge of a vector of the cube [-1, 1]^d."""

    @cached_property
    @abstractmethod
    def covariance(self) -> "Covarying":
        """The covariance of noise of scale 1."""

    @property
    def array(self) -> tuple[int, ...]:
        """The form of the array that one draw fills."""
        return (self.d,)

    @property
    def variances(self) -> np.ndarray:
        """Variance of each coordinate of noise of scale 1."""
        return self.covariance.variances

    @property
    def stretches(self) -> bool:
        """Whether every coordinate may have a scale of its own: noise of a usual norm, in real units."""
        return self.norm != BODY

    @property
    def finest(self) -> float:
        """The smallest scale of integer noise; below it, samplers of bodies would reject nearly all that they draw."""
        return 1.0 if self.stretches or self.rounded else max(1.0, self.d / 8)

    @property
    def coarsest(self) -> float:
        """The largest scale of integer noise: its radius, about d scales and hardly ever much more, fits 62 bits."""
        return 2.0**62 if self.independent else 2.0**62 / (2 * (self.d + 40 * self.d**0.5 + 800))

    @property
    def cell(self) -> float:
        """The largest gauge of a cell of the integers, which their law fills; 0 where an ideal law was rounded."""
        return 0.0 if self.rounded else self.cube


class Covarying(Protocol):
    """What is asked of a covariance."""

    @property
    def variances(self) -> np.ndarray:
        """Diagonal of the covariance."""
        ...

    @property
    def matrix(self) -> np.ndarray:
        """The covariance in full."""
        ...

    def trace(self, units: np.ndarray) -> float:
        """Return the trace when coordinates are stretched by these units."""
        ...

    def weighed(self, units: np.ndarray, spread: np.ndarray, mean: np.ndarray) -> float:
        """Return tr(H⁻¹ Σ) of the stretched covariance, for H = diag(spread) + mean mean'."""
        ...

    def along(self, v: np.ndarray) -> float:
        """Return v'Σv."""
        ...

    def root_trace(self, units: np.ndarray) -> float:
        """Return a lower bound on tr Σ^(1/2), when coordinates are stretched by these units."""
        ...


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
        matrix = np.diag(self.own)
        matrix[np.ix_(self.hull, self.hull)] += self.common
        return matrix

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

    def along(self, v: np.ndarray) -> float:
        """Return v'Σv."""
        return float(self.own @ v**2 + self.common * np.sum(v[list(self.hull)]) ** 2)

    def root_trace(self, units: np.ndarray) -> float:
        """Return a lower bound on tr Σ^(1/2): that of its diagonal part, as roots of matrices are monotone.

        Where what is common is negative, the eigenvalues are still at least those of the diagonal part, the largest of
        the hull left out, as they interlace.
        """
        roots = np.sqrt(self.own) * units
        lost = max(roots[list(self.hull)], default=0.0) if self.common < 0 else 0.0
        return float(np.sum(roots) - lost)


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
        bent = self.along(units * tilt) / (1 + tilt @ mean)
        return float(np.sum(self.variances * units**2 / spread) - bent)

    def along(self, v: np.ndarray) -> float:
        """Return v'Σv."""
        sums = np.bincount(self.parts, v, minlength=len(self.kinds))
        totals = np.bincount(self.kinds, sums, minlength=len(self.between))
        return float(self.own @ v**2 + self.extra @ sums**2 + totals @ self.between @ totals)

    def root_trace(self, units: np.ndarray) -> float:
        """Return a lower bound on tr Σ^(1/2): that of what parts have by themselves, as roots of matrices are monotone.

        What is between parts is a sum of squares. A part of m coordinates has m - 1 times the eigenvalue own, and
        own + m extra, and is stretched by its smallest unit at least.
        """
        count, size = len(self.kinds), np.bincount(self.parts, minlength=len(self.kinds))
        own, least = np.full(count, np.inf), np.full(count, np.inf)
        np.minimum.at(own, self.parts, self.own)
        np.minimum.at(least, self.parts, units)
        roots = (size - 1) * np.sqrt(own) + np.sqrt(np.maximum(own + size * self.extra, 0.0))
        return float(np.sum(least * roots))


@dataclass(frozen=True)
class _Usual(Shape):
    """A usual norm of vectors with so many coordinates."""

    size: int

    def __post_init__(self) -> None:
        validate.integer("d", self.size)

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return self.size


class L1(_Usual):
    """The L1 norm: independent Laplace noise of variance 2 on each coordinate."""

    independent: ClassVar[bool] = True
    norm: ClassVar[float | str] = 1

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return the sum of the absolute values."""
        return np.linalg.norm(z, ord=1, axis=0)

    @property
    def cube(self) -> float:
        """The largest norm of a vector of the cube."""
        return float(self.d)

    @cached_property
    def covariance(self) -> Covariance:
        """That of Laplace noise."""
        return Covariance(np.full(self.d, 2.0))


class L2(_Usual):
    """The Euclidean norm: noise of density ~ exp(-|z|)."""

    rounded: ClassVar[bool] = True
    norm: ClassVar[float | str] = 2

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return the root of the sum of squares."""
        return np.linalg.norm(z, axis=0)

    @property
    def cube(self) -> float:
        """The largest norm of a vector of the cube."""
        return float(np.sqrt(self.d))

    @cached_property
    def covariance(self) -> Covariance:
        """A Gaussian vector of variances 2 Gamma((d + 1)/2) has this density: d + 1 on each coordinate."""
        return Covariance(np.full(self.d, self.d + 1.0))


class Spherical(L2):
    """The Euclidean norm: independent standard Gaussian noise on each coordinate."""

    gaussian: ClassVar[bool] = True
    independent: ClassVar[bool] = True

    @cached_property
    def covariance(self) -> Covariance:
        """The identity."""
        return Covariance(np.ones(self.d))


# The longest axis: the rounding of what noise along it is multiplied by is a share of 2^-51 of its length.
LONGEST_AXIS = 2.0**10


@dataclass(frozen=True)
class Elongated(Shape):
    """The norm √(z'Σ⁻¹z) of Σ = I + a a' for each output, in real units: Gaussian noise that is longer along an axis.

    Noise along a direction in which the loss bends strongly does little harm, and records that have most of their
    length in common are much shorter in this norm than in the Euclidean one.

    >>> Elongated((3.0, 0.0)).gauge(np.array([1.0, 1.0])) ** 2
    np.float64(1.1)
    """

    axis: tuple[float, ...]
    outputs: int = 1
    gaussian: ClassVar[bool] = True
    rounded: ClassVar[bool] = True
    norm: ClassVar[float | str] = 2

    def __post_init__(self) -> None:
        if not 0 < self.square <= LONGEST_AXIS**2:
            raise ValueError(f"an axis has a positive length of at most {LONGEST_AXIS:g}, got {self.square**0.5:g}.")

    @cached_property
    def square(self) -> float:
        """The squared length of the axis."""
        return float(np.sum(np.square(self.axis)))

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return self.outputs * len(self.axis)

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return √(z'Σ⁻¹z) of a vector, or of each column (Sherman and Morrison)."""
        blocks = z.reshape(self.outputs, len(self.axis), *z.shape[1:])
        along = np.tensordot(blocks, np.array(self.axis), axes=(1, 0))
        whole = np.sum(z**2, axis=0) - np.sum(along**2, axis=0) / (1 + self.square)
        return np.sqrt(np.maximum(whole, 0.0))

    def reach(self, sizes: np.ndarray) -> np.ndarray:
        """Return the Euclidean norm, which is no smaller, whatever the signs of the entries are."""
        return np.linalg.norm(sizes, axis=0)

    @property
    def cube(self) -> float:
        """A bound on the gauge of a vector of the cube."""
        return float(np.sqrt(self.d))

    @cached_property
    def covariance(self) -> "Covarying":
        """That of the noise."""
        return LongCovariance(np.array(self.axis), self.outputs)


@dataclass(frozen=True, eq=False)
class LongCovariance:
    """Covariance I + a a' of each of several outputs by itself."""

    axis: np.ndarray
    outputs: int

    @property
    def variances(self) -> np.ndarray:
        """Diagonal of the covariance."""
        return np.tile(1 + self.axis**2, self.outputs)

    @property
    def matrix(self) -> np.ndarray:
        """The covariance in full."""
        return np.kron(np.eye(self.outputs), np.eye(len(self.axis)) + np.outer(self.axis, self.axis))

    def trace(self, units: np.ndarray) -> float:
        """Return the trace when coordinates are stretched by these units."""
        return float(np.sum(self.variances * units**2))

    def weighed(self, units: np.ndarray, spread: np.ndarray, mean: np.ndarray) -> float:
        """Return tr(H⁻¹ Σ) of the stretched covariance, for H = diag(spread) + mean mean' (Sherman and Morrison)."""
        tilt = mean / spread
        return float(np.sum(self.variances * units**2 / spread) - self.along(units * tilt) / (1 + tilt @ mean))

    def along(self, v: np.ndarray) -> float:
        """Return v'Σv."""
        return float(v @ v + np.sum((v.reshape(self.outputs, -1) @ self.axis) ** 2))

    def root_trace(self, units: np.ndarray) -> float:
        """Return a lower bound on tr Σ^(1/2): that of the identity, as roots of matrices are monotone."""
        return float(np.sum(units))


@dataclass(frozen=True)
class Body(Shape):
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
        return self._d

    @cached_property
    def _d(self) -> int:
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
    def is_product(self) -> bool:
        """Whether it is a product of simpler bodies: it is, by definition."""
        return True

    def with_constant(self) -> "Body":
        """Return the body of records with one more coordinate that is always 1."""
        return Body((*self.hull, self.d), self.blocks)

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
class Ellipsoid(Shape):
    """The ellipsoid of the covariance diag(scales²) + common² 1 1' on the hull's coordinates, and its norm."""

    hull: tuple[int, ...]
    scales: tuple[float, ...]
    common: float
    gaussian: ClassVar[bool] = True
    rounded: ClassVar[bool] = True

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return len(self.scales)

    @property
    def cube(self) -> float:
        """A bound on the gauge of a vector of the cube [-1, 1]^d."""
        return float(np.sqrt(np.sum(np.square(self.scales) ** -1)))

    @cached_property
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


@dataclass(frozen=True)
class Hull(Shape):
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
        nodes, weights = scipy.special.roots_legendre(sum(len(part) for part in self.parts) // 2 + 2)
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
    def is_product(self) -> bool:
        """Whether it is a product of simpler bodies, and a ``Body``: where one part is all that is never negative."""
        return len(self.parts) == 1

    def with_constant(self) -> "Hull":
        """Return the hull of records with one more coordinate that is always 1."""
        return Hull((*self.parts, (self.d,)), self.signed)

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
        terms = -2 * (scipy.special.gammaln(j + 1) + scipy.special.gammaln(i + 1)) + j * np.log(p) + i * np.log(q)
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


@dataclass(frozen=True)
class _Symmetric(Shape):
    """A norm of symmetric matrices with k rows; coordinates are the entries of the upper triangle, row by row."""

    k: int
    rounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate.integer("k", self.k)

    @property
    def d(self) -> int:
        """Number of different entries."""
        return self.k * (self.k + 1) // 2

    @property
    def array(self) -> tuple[int, ...]:
        """A draw is a whole matrix."""
        return (self.k, self.k)

    def _diagonal(self, on: float, off: float) -> Covariance:
        """Return the covariance of uncorrelated entries with these variances on the diagonal and off it."""
        rows, columns = np.triu_indices(self.k)
        return Covariance(np.where(rows == columns, on, off))


class Nuclear(_Symmetric):
    """Half the nuclear norm of symmetric matrices: the difference of two Wishart matrices.

    Noise of scale c is a symmetric Z = W - W', for independent W, W' ~ Wishart(k + 1, c I). A Wishart matrix of k + 1
    degrees of freedom is the sum of as many outer products of N(0, c I) vectors.

    Formal guarantee: added to a symmetric integer matrix, a change Δ costs |Δ|_*/(2c), where |Δ|_* is the sum of the
    absolute eigenvalues. Proof: with k + 1 degrees of freedom, and with no other number, the determinant drops out of
    W's density p, which is ~ exp(-tr W/(2c)) on the positive semidefinite matrices. Adding A >= 0 stays among them, so
    p(W + A) >= e^(-tr A/(2c)) p(W). Averaged over W' the density f of Z has f(Z + A) >= e^(-tr A/(2c)) f(Z), and
    f(-Z) = f(Z) as W and W' may change places, which gives the same with Z and Z + A exchanged. Δ is a difference of
    two such A, whose traces add up to |Δ|_*. Rounding is post-processing.

    >>> Nuclear(2).gauge(np.array([[3.0, 0.0], [0.0, -1.0]]))
    np.float64(2.0)
    """

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return half the sum of the absolute eigenvalues of a matrix."""
        return np.abs(np.linalg.eigvalsh(z)).sum() / 2

    @property
    def cube(self) -> float:
        """A bound on the gauge of a matrix with entries of at most 1: √k/2 times Frobenius' norm of at most k."""
        return self.k**1.5 / 2

    @cached_property
    def covariance(self) -> Covariance:
        """Entries are uncorrelated; those of W have the variance k + 1 off the diagonal and 2(k + 1) on it."""
        return self._diagonal(4.0 * (self.k + 1), 2.0 * (self.k + 1))


@dataclass(frozen=True)
class Frobenius(_Symmetric):
    """Frobenius' norm of symmetric matrices: Gaussian entries, of variance 1 on the diagonal and 1/2 off it.

    Formal guarantee: a change Δ has Δ'Σ⁻¹Δ = |Δ|_F², as the square of an entry off the diagonal counts twice in both.

    ``lower`` says in which order a seeded source draws the entries: row by row of the lower triangle instead of the
    upper one. Both orders have been published, and so has the rounding of their scales off the diagonal: up for the
    upper triangle, and to the nearest float for the lower one, whose gauge is larger by that rounding.

    >>> Frobenius(2).gauge(np.array([[2.0, 2.0], [2.0, -2.0]]))
    np.float64(4.0)
    """

    lower: bool = False
    gaussian: ClassVar[bool] = True

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return the root of the sum of all squares of a matrix."""
        return np.linalg.norm(z, axis=(0, 1)) * (1 + 2.0**-52 * self.lower)

    @property
    def cube(self) -> float:
        """The largest gauge of a matrix with entries of at most 1."""
        return self.k * (1 + 2.0**-52 * self.lower)

    @cached_property
    def covariance(self) -> Covariance:
        """That of independent entries."""
        return self._diagonal(1.0, 0.5)


@dataclass(frozen=True)
class Rule:
    """How noise of a name is shaped: which kinds of shape it may have, and the one that a problem's gradients have.

    ``fit`` returns None where no such noise covers the problem. Without it the noise is no gradient's, but a matrix's.
    ``tilts`` says that the noise protects the minimum of an objective that it tilts, and no sum that it is added to.
    """

    kinds: tuple[type[Shape], ...]
    fit: "Callable[[Problem], Shape | None] | None" = None
    tilts: bool = False

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        return self.kinds[0].gaussian


def _ellipsoid(problem: "Problem") -> Ellipsoid | None:
    """Return an ellipsoid around the body of a problem; an L2 ball has no such body, and is its own ellipsoid."""
    if problem.hull is None:
        return None
    spread, _ = problem.guessed_curvature
    return problem.hull.ellipsoid(problem.units**2 / spread)


RULES: dict[str, Rule] = {
    "laplace": Rule((L1,), lambda problem: L1(problem.dimension)),
    "l2": Rule((L2,), lambda problem: L2(problem.dimension)),
    "linf": Rule((Body,), lambda problem: problem.cube),
    "hull": Rule((Body, Hull), lambda problem: problem.exact_hull),
    "blocks": Rule((Body,), lambda problem: problem.hull),
    "gaussian": Rule((Spherical,), lambda problem: Spherical(problem.dimension)),
    "ellipsoid": Rule((Ellipsoid,), _ellipsoid),
    "elongated": Rule((Elongated,)),
    "wishart": Rule((Nuclear,)),
    "gaussian matrix": Rule((Frobenius,)),
}
