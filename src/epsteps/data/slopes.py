"""The slopes of records at given margins: of any loss, and shortened where gradients are declared to be clipped.

A record's gradient is slope x record, so that its L2 norm is the slope's size times the record's: clipping it to a
public norm C (Abadi et al. 2016) is a limit of C/|u| on the slope, known before any step. No gradient of a single
record is ever formed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from epsteps.problem import levels
from epsteps.problem.domain import owners
from epsteps.problem.grid import Points
from epsteps.problem.levels import along
from epsteps.problem.losses import Loss

# Numbers whose squares are added at a time: they stay in a core's second-level cache.
_BLOCK = 2**15
# The rounding unit of doubles.
_EPS = 2.0**-52
# Added to sizes relative to the largest unit: entries whose squares vanish are below.
_VANISHING = 2.0**-480


@dataclass(frozen=True, eq=False)
class Slopes:
    """Loss and targets of records, and the largest slope of each where gradients are clipped.

    Margins come as (records,) or (records, points); those of a loss with k outputs as (records, k x points), all points
    of one output after those of another.
    """

    loss: Loss
    targets: np.ndarray
    steepest: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, part: slice | np.ndarray) -> "Slopes":
        return Slopes(self.loss, self.targets[part], None if self.steepest is None else self.steepest[part])

    def total(self, margins: np.ndarray) -> np.ndarray:
        """Return the sum of the losses."""
        margins = self._by_output(margins)
        return self.loss.total(margins, along(self.targets, margins))

    def second(self, margins: np.ndarray) -> np.ndarray:
        """Return the second derivatives at one point; clipping does not change them."""
        return self.loss.second(margins, along(self.targets, margins))

    def derivative(self, margins: np.ndarray) -> np.ndarray:
        """Return the slopes, clipped."""
        apart = self._by_output(margins)
        slopes = self.loss.derivative(apart, along(self.targets, apart))
        if self.steepest is not None:
            most = along(self.steepest, apart)
            size = np.abs(slopes) if self.loss.outputs == 1 else np.linalg.norm(slopes, axis=1, keepdims=True)
            slopes = slopes * (most / np.maximum(size, most))
        return slopes.reshape(margins.shape)

    def levels(self, products: np.ndarray, points: Points) -> np.ndarray:
        """Return the slopes as integers, clipped, given the products of the records' integers with the points'.

        Formal guarantee: whatever the loss answers, levels are integers of at most 2^20, those of a record keep within
        the loss's declared ``joint_slope`` together, and their L2 norm, in steps of bound/2^20, is at most the record's
        steepest slope. What the loss answers for one record must not depend on others: that alone is taken for granted.
        """
        margins = self._by_output(products) * points.step
        slopes = levels.of_records(self.loss, margins, self.targets, points.bound, self.steepest)
        return slopes.reshape(products.shape)

    def _by_output(self, margins: np.ndarray) -> np.ndarray:
        outputs = self.loss.outputs
        return margins if outputs == 1 else margins.reshape(len(margins), outputs, -1)


def steepest(clip: float | None, features: np.ndarray, units: np.ndarray) -> np.ndarray | None:
    """Return the largest slope of each record whose gradient is not clipped, rounded down; None without clipping.

    Entries are in ``units``. They are added in the order of their columns, so that zeros between them change nothing,
    and neither does how the records are divided.
    """
    if clip is None:
        return None
    size, squares, relative = max(1, _BLOCK // features.shape[1]), np.empty(len(features)), units / units.max()
    for start in range(0, len(features), size):
        block = features[start : start + size].astype(float) * relative
        squares[start : start + size] = np.add.accumulate(block * block, axis=1)[:, -1]
    return _largest(clip, squares, units)


def steepest_sparse(clip: float | None, features: csr_array, one: float | None, units: np.ndarray) -> np.ndarray | None:
    """Return what ``steepest`` does, for sparse records and the intercept's value in every one of them."""
    if clip is None:
        return None
    relative = units / units.max()
    entries = features.data.astype(float) * relative[features.indices]
    squares = np.bincount(owners(features.indptr), entries * entries, minlength=len(features.indptr) - 1)
    if one is not None:
        last = one * relative[-1]
        squares = squares + last * last
    return _largest(clip, squares, units)


def _largest(clip: float, squares: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return clip/|u|, rounded down, from the sums of squares in the largest unit."""
    upward = 1 + (len(units) + 16) * _EPS
    with np.errstate(all="ignore"):
        return clip / ((np.sqrt(squares) * upward + _VANISHING) * units.max())


def side_by_side(x: np.ndarray, outputs: int) -> np.ndarray:
    """Return points whose blocks, one for each output, lie below each other as columns: (k D, ...) to (D, k ...)."""
    if outputs == 1:
        return x
    blocks = x.reshape(outputs, len(x) // outputs, -1)
    return np.moveaxis(blocks, 0, 1).reshape(len(x) // outputs, -1)


def stacked(sums: np.ndarray, outputs: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return what ``side_by_side`` did in the shape that it had."""
    if outputs == 1:
        return sums
    return np.moveaxis(sums.reshape(len(sums), outputs, -1), 1, 0).reshape(shape)


def outer(second: np.ndarray, product: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the sum of second x u u', given that sum for one number of each record; blocks where they are matrices."""
    if second.ndim == 1:
        return product(second)
    outputs = second.shape[1]
    lower = [[product(second[:, a, b]) for b in range(a + 1)] for a in range(outputs)]
    return np.block([[lower[max(a, b)][min(a, b)] for b in range(outputs)] for a in range(outputs)])
