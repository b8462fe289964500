"""Means and exact sums of losses that a card has no code for: products and sums there, slopes by NumPy on the host."""

from collections.abc import Callable

import numpy as np

from epsteps.data.gpu.cards import CardChunk, over
from epsteps.data.gpu.records import Records
from epsteps.data.slopes import Slopes, outer, side_by_side, stacked
from epsteps.problem import grid
from epsteps.problem.grid import Points
from epsteps.problem.losses import Loss

# Numbers that NumPy computes with at a time: they stay in a core's second-level cache.
_PIECE = 2**14

_Function = Callable[[Slopes, np.ndarray], np.ndarray]


def gradient(records: Records, loss: Loss, x: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Return the sum of slope x record for each column of x."""
    points = _columns(x, loss)

    def term(chunk: CardChunk) -> np.ndarray:
        return chunk.added(_by_pieces(chunk, loss, chunk.products(points), Slopes.derivative))

    return stacked(_total(records, term, rows, points), loss.outputs, x.shape)


def loss(records: Records, loss: Loss, x: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Return the sum of the losses for each column of x."""
    points = _columns(x, loss)
    return _total(records, lambda chunk: _slopes(chunk, loss).total(chunk.products(points)), rows, points)


def hessian(records: Records, loss: Loss, x: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Return the sum of the losses' second derivatives x u u' at one point."""
    points = _columns(x, loss)

    def term(chunk: CardChunk) -> np.ndarray:
        margins = chunk.products(points)
        return outer(_slopes(chunk, loss).second(margins if loss.outputs > 1 else margins[:, 0]), chunk.outer)

    return _total(records, term, rows, points)


def exact_gradient(records: Records, loss: Loss, points: Points, rows: np.ndarray | None) -> np.ndarray:
    """Return the exact sum of level x record, one column for each point."""
    coefficients = side_by_side(points.coefficients, loss.outputs)

    def term(chunk: CardChunk) -> np.ndarray:
        products = chunk.products(coefficients)
        return chunk.gather(_by_pieces(chunk, loss, products, lambda slopes, piece: slopes.levels(piece, points)))

    parts = over(records, term, rows, 3 * coefficients.shape[1])
    sums = grid.total(parts, records.count if rows is None else len(rows))
    return stacked(sums, loss.outputs, points.coefficients.shape)


def _columns(x: np.ndarray, loss: Loss) -> np.ndarray:
    """Return points as columns, of which each output of the loss has one."""
    return side_by_side(x.reshape(len(x), -1), loss.outputs)


def _slopes(chunk: CardChunk, loss: Loss) -> Slopes:
    return Slopes(loss, chunk.targets, chunk.steepest)


def _by_pieces(chunk: CardChunk, loss: Loss, margins: np.ndarray, function: _Function) -> np.ndarray:
    """Return what a function makes of slopes and margins, of a few records at a time."""
    if len(chunk) == 0:
        return margins
    slopes, size = _slopes(chunk, loss), max(256, _PIECE // margins.shape[1])
    starts = range(0, len(chunk), size)
    return np.concatenate([function(slopes[i : i + size], margins[i : i + size]) for i in starts])


def _total(
    records: Records, term: Callable[[CardChunk], np.ndarray], rows: np.ndarray | None, points: np.ndarray
) -> np.ndarray:
    """Add what a term makes of chunks, in their order."""
    return np.sum(over(records, term, rows, 3 * points.shape[1]), axis=0)
