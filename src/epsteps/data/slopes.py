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
from epsteps.problem.levels import Limits
from epsteps.problem.losses import Loss

# Numbers whose squares are added at a time: they stay in a core's second-level cache.
_BLOCK = 2**15
# What is rounded toward privacy is moved by more than its rounding error.
_EPS = 2.0**-52
INWARD = 1 - 2.0**-49
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
        return self.loss.total(margins, _along(self.targets, margins))

    def second(self, margins: np.ndarray) -> np.ndarray:
        """Return the second derivatives at one point; clipping does not change them."""
        return self.loss.second(margins, _along(self.targets, margins))

    def derivative(self, margins: np.ndarray) -> np.ndarray:
        """Return the slopes, clipped."""
        apart = self._by_output(margins)
        slopes = self.loss.derivative(apart, _along(self.targets, apart))
        if self.steepest is not None:
            most = _along(self.steepest, apart)
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
        slopes = self._limits.held(_asked(self.loss, margins, _along(self.targets, margins), points.bound))
        if self.steepest is not None:
            with np.errstate(all="ignore"):
                most = np.floor(_along(self.steepest, margins) * (levels.STEPS / points.bound) * INWARD)
            limit = _shortened if self.loss.outputs > 1 else _within
            slopes = limit(slopes, np.nan_to_num(most, nan=0.0))
        return slopes.reshape(products.shape)

    @property
    def _limits(self) -> Limits:
        return levels.limits_of(self.loss.outputs, *(float(self.loss.joint_slope(norm)) for norm in levels.NORMS))

    def _by_output(self, margins: np.ndarray) -> np.ndarray:
        outputs = self.loss.outputs
        return margins if outputs == 1 else margins.reshape(len(margins), outputs, -1)


def _asked(loss: Loss, margins: np.ndarray, targets: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Return what a loss answers, in numbers: 0 for records about which it raises, or answers something else.

    Records are then asked about in ever smaller parts, so that one of them does not change what others add.
    """
    try:
        with np.errstate(all="ignore"):  # a warning would tell something about a record
            answer = np.asarray(loss.levels(margins, targets, bound))
        if answer.shape == margins.shape and answer.dtype.kind in "fiub":
            return answer
    except Exception:  # which records make a loss raise is not for others to know
        answer = None
    if len(margins) <= 1:
        return np.zeros(margins.shape)
    half = len(margins) // 2
    parts = ((margins[:half], targets[:half]), (margins[half:], targets[half:]))
    return np.concatenate([_asked(loss, *part, bound).astype(float) for part in parts])


def _along(values: np.ndarray, margins: np.ndarray) -> np.ndarray:
    return values.reshape(-1, *[1] * (margins.ndim - 1))


def _within(slopes: np.ndarray, most: np.ndarray) -> np.ndarray:
    return np.clip(slopes, -most, most)


def _shortened(slopes: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return levels whose L2 norm is at most ``most``; where one was minus the sum of the others, it stays that.

    Entries are multiplied and rounded toward 0; the only negative one of several then becomes minus the sum of the
    others, unless that would make it longer.
    """
    size = np.sqrt(np.sum(slopes * slopes, axis=1, keepdims=True))
    share = np.minimum(1.0, most / np.maximum(size, 1.0) * INWARD)
    kept = np.where(size <= most, slopes, np.trunc(slopes * share))
    alone = np.sum(slopes < 0, axis=1, keepdims=True) == 1
    others = np.where(slopes > 0, kept, 0.0).sum(axis=1, keepdims=True)
    return np.where(alone & (slopes < 0), np.maximum(kept, -others), kept)


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
