"""Shapes of noise that adds up to 0 over the classes: for objectives whose gradients do, as those of softmax loss.

A record's gradient is (p - e_y) in the classes times u in the features, and p - e_y adds up to 0. So gradients lie in
the space V of vectors whose blocks, one for each class, add up to 0. If a tilt lies in V, too, then the minimum does:
what all classes share is 0 whatever the records, and needs no noise (docs/proofs.md, section 14). With a = 1 - p_y the
class part has |p - e_y|_1 = 2a and |p - e_y|_2 <= √2 a; it is a times a point of the polytope of all e_j - e_k, whose
gauge on V is |z|_1/2.

All of it is for tilts alone. Sums of gradients in integers do not add up to 0 exactly, and noise in V would not hide
what they add up to.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from epsteps.problem import validate
from epsteps.problem.rounding import up
from epsteps.problem.shapes import RULES, Covariance, Ellipsoid, Rule, Shape, Spherical

if TYPE_CHECKING:
    from epsteps.problem.problem import Problem

# What counts as 0 of a sum over the classes, relative to the whole and in scales of the noise: rounding makes less.
_ROUNDED, _NOTHING = 1e-6, 1e-9


@dataclass(frozen=True, eq=False)
class BalancedCovariance:
    """Covariance (I - J/k) x C, for k classes, the matrix J of ones, and the covariance C of one block."""

    classes: int
    block: Covariance

    @property
    def variances(self) -> np.ndarray:
        """Diagonal of the covariance."""
        return (1 - 1 / self.classes) * np.tile(self.block.variances, self.classes)

    @property
    def matrix(self) -> np.ndarray:
        """The covariance in full."""
        return np.kron(np.eye(self.classes) - 1 / self.classes, self.block.matrix)

    def trace(self, units: np.ndarray) -> float:
        """Return the trace when coordinates are stretched by these units, the same for every class."""
        return (self.classes - 1) * self.block.trace(self._first(units))

    def weighed(self, units: np.ndarray, spread: np.ndarray, mean: np.ndarray) -> float:
        """Return tr(H⁻¹ Σ) of the stretched covariance, for H = diag(spread) + mean mean' in each of k - 1 blocks."""
        return (self.classes - 1) * self.block.weighed(*map(self._first, (units, spread, mean)))

    def along(self, v: np.ndarray) -> float:
        """Return v'Σv."""
        blocks = v.reshape(self.classes, -1)
        return math.fsum(map(self.block.along, blocks)) - self.block.along(blocks.sum(axis=0)) / self.classes

    def root_trace(self, units: np.ndarray) -> float:
        """Return a lower bound on tr Σ^(1/2): that of a block, for each of k - 1."""
        return (self.classes - 1) * self.block.root_trace(self._first(units))

    def _first(self, vector: np.ndarray) -> np.ndarray:
        return vector[: len(vector) // self.classes]


@dataclass(frozen=True)
class Balanced(Shape):
    """A norm on V, the vectors of ``classes`` blocks of ``size`` coordinates whose sum is 0."""

    classes: int
    size: int

    def __post_init__(self) -> None:
        validate.integer("classes", self.classes, low=2)
        validate.integer("size", self.size)

    @property
    def d(self) -> int:
        """Number of coordinates, of all classes."""
        return self.classes * self.size

    @property
    def free(self) -> int:
        """Dimension of V."""
        return (self.classes - 1) * self.size

    @property
    def coarsest(self) -> float:
        """The largest scale of integer noise: sums over the classes fit 62 bits."""
        return super().coarsest / self.classes

    def shadow(self, z: np.ndarray) -> np.ndarray:
        """Return the projection on V."""
        blocks = z.reshape(self.classes, self.size, *z.shape[1:])
        return (blocks - blocks.mean(axis=0)).reshape(z.shape)

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """Return |z|; infinite for what does not lie in V, up to rounding errors: the noise does not hide it."""
        blocks = np.asarray(z, dtype=float).reshape(self.classes, self.size, *z.shape[1:])
        shared = np.abs(blocks.sum(axis=0)).max(axis=0) > _ROUNDED * np.abs(z).max(axis=0) + _NOTHING
        return np.where(shared, np.inf, self.within(blocks))

    @abstractmethod
    def within(self, blocks: np.ndarray) -> np.ndarray:
        """Return |z| of z in V, given with the classes along the first axis and the features along the second."""


@dataclass(frozen=True)
class BalancedBlocks(Balanced):
    """The largest over the blocks of features of half the sum of their absolute values, for all classes together.

    Records lie in a body whose ``blocks`` of coordinates have absolute values that add up to at most 1: a column alone,
    or the indicators of a category. Times (p - e_y) a record has the gauge a at most.

    >>> BalancedBlocks(3, 2, blocks=((0,), (1,))).gauge(np.array([1.0, 0.5, -1.0, 0.5, 0.0, -1.0]))
    array(1.)
    """

    blocks: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if sorted(column for block in self.blocks for column in block) != list(range(self.size)):
            raise ValueError(f"blocks must list the features 0, 1, ... once each, got {self.blocks!r}.")

    def within(self, blocks: np.ndarray) -> np.ndarray:
        """Return the largest sum of a block."""
        features = np.abs(blocks).sum(axis=0) / 2
        return np.max([features[list(block)].sum(axis=0) for block in self.blocks], axis=0)

    @property
    def cube(self) -> float:
        """The largest gauge of a vector of the cube that lies in V: k/2 for each feature of a block.

        It is that of the difference of two points of a Voronoi cell, too: in one of the lattice of integers that add up
        to 0, positive entries add up to at most k/4. Such a cell is what the law of an integer vector fills.
        """
        return self.classes / 2 * max(len(block) for block in self.blocks)

    @cached_property
    def covariance(self) -> BalancedCovariance:
        """That of noise with density ~ exp(-|z|) on V: a uniform point, times a Gamma(D + 1) radius, D = dim V.

        For a block of m features their shares of the radius, and what is left, are Dirichlet(k - 1, ..., k - 1, 1).
        """
        degree, own = self.classes - 1, np.empty(self.size)
        for block in self.blocks:
            total = degree * len(block) + 1
            share = degree * (degree + 1) / (total * (total + 1))
            own[list(block)] = (self.free + 1) * (self.free + 2) * share * _spread(self.classes) / degree
        return BalancedCovariance(self.classes, Covariance(own))


class BalancedL1(Balanced):
    """The L1 norm on V: density ~ exp(-|z|_1), independent over the features."""

    norm: ClassVar[float | str] = 1

    def within(self, blocks: np.ndarray) -> np.ndarray:
        """Return the sum of the absolute values."""
        return np.abs(blocks).sum(axis=(0, 1))

    @property
    def cube(self) -> float:
        """The largest norm of a vector of the cube."""
        return float(self.d)

    @property
    def halves(self) -> BalancedBlocks:
        """The shape of half this norm."""
        return BalancedBlocks(self.classes, self.size, (tuple(range(self.size)),))

    @cached_property
    def covariance(self) -> BalancedCovariance:
        """A quarter of that of half the norm."""
        return BalancedCovariance(self.classes, Covariance(self.halves.covariance.block.own / 4))


class BalancedL2(Balanced):
    """The Euclidean norm on V: density ~ exp(-|z|_2) there.

    The integers add up to 0, and are within a step √d of a vector of this law, as is asked of a tilt.
    """

    rounded: ClassVar[bool] = True
    norm: ClassVar[float | str] = 2

    def within(self, blocks: np.ndarray) -> np.ndarray:
        """Return the root of the sum of squares."""
        return np.sqrt(np.square(blocks).sum(axis=(0, 1)))

    @property
    def cube(self) -> float:
        """The largest norm of a vector of the cube."""
        return math.sqrt(self.d)

    @cached_property
    def covariance(self) -> BalancedCovariance:
        """That of D = dim V coordinates, D + 1 along each."""
        return BalancedCovariance(self.classes, Covariance(np.full(self.size, self.free + 1.0)))


class BalancedSphere(BalancedL2):
    """The Euclidean norm on V: standard Gaussian noise there. Its integers are as near as those of ``BalancedL2``."""

    gaussian: ClassVar[bool] = True

    @cached_property
    def covariance(self) -> BalancedCovariance:
        """The projection on V."""
        return BalancedCovariance(self.classes, Spherical(self.size).covariance)


@dataclass(frozen=True)
class BalancedEllipsoid(Balanced):
    """The norm √(z'(I x Σ)⁻¹z) on V for the covariance Σ of one class's ellipsoid, and Gaussian noise of that shape.

    If Σ/2 holds a body of records, (p - e_y) u has at most the norm a: |p - e_y|_2² <= 2a², and u'Σ⁻¹u <= 1/2.
    """

    ellipsoid: Ellipsoid
    gaussian: ClassVar[bool] = True
    rounded: ClassVar[bool] = True

    @classmethod
    def around(cls, classes: int, ellipsoid: Ellipsoid) -> "BalancedEllipsoid":
        """Return that of records within an ellipsoid."""
        root = up(math.sqrt(2))
        larger = Ellipsoid(ellipsoid.hull, tuple(root * s for s in ellipsoid.scales), root * ellipsoid.common)
        return cls(classes, ellipsoid.d, larger)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ellipsoid.d != self.size:
            raise ValueError(f"ellipsoid must have {self.size} coordinates, got {self.ellipsoid!r}.")

    def within(self, blocks: np.ndarray) -> np.ndarray:
        """Return the root of the sum of the classes' squares."""
        return np.sqrt(sum(np.square(self.ellipsoid.gauge(block)) for block in blocks))

    @property
    def cube(self) -> float:
        """A bound on the gauge of a vector of the cube."""
        return math.sqrt(self.classes) * self.ellipsoid.cube

    @cached_property
    def covariance(self) -> BalancedCovariance:
        """That of the ellipsoid, in each of k - 1 blocks."""
        return BalancedCovariance(self.classes, self.ellipsoid.covariance)


def _spread(classes: int) -> float:
    """Return E|z|_2² of a point that is uniform where |z|_1/2 = 1 on the vectors of k entries that add up to 0.

    With a positive entries, of which there are C(k,a) C(k-2,a-1) shares, these and the others are uniform on simplices.
    """
    ups = range(1, classes)
    weights = [math.comb(classes, a) * math.comb(classes - 2, a - 1) for a in ups]
    squares = [2 / (a + 1) + 2 / (classes - a + 1) for a in ups]
    return math.fsum(w / sum(weights) * square for w, square in zip(weights, squares, strict=True))


def _usual(kind: type[Balanced]) -> Rule:
    def fit(problem: "Problem") -> Balanced | None:
        return kind(problem.loss.outputs, problem.width) if problem.loss.is_balanced else None

    return Rule((kind,), fit, tilts=True)


def _blocks(problem: "Problem") -> BalancedBlocks | None:
    if not problem.loss.is_balanced or problem.record_body is None:
        return None
    return BalancedBlocks(problem.loss.outputs, problem.width, problem.record_body.repeated(1).blocks)


def _ellipsoid(problem: "Problem") -> BalancedEllipsoid | None:
    if not problem.loss.is_balanced or problem.record_body is None:
        return None
    spread, _ = problem.guessed_curvature
    importance = (problem.units**2 / spread)[: problem.width]
    return BalancedEllipsoid.around(problem.loss.outputs, problem.record_body.ellipsoid(importance))


RULES["balanced laplace"] = _usual(BalancedL1)
RULES["balanced l2"] = _usual(BalancedL2)
RULES["balanced blocks"] = Rule((BalancedBlocks,), _blocks, tilts=True)
RULES["balanced gaussian"] = _usual(BalancedSphere)
RULES["balanced ellipsoid"] = Rule((BalancedEllipsoid,), _ellipsoid, tilts=True)
