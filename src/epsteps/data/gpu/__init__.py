"""The engine of a card: torch, with kernels of Triton's. torch is imported when an engine is made, not before."""

from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from epsteps.data import chunks
from epsteps.data.chunks import Chunk, Term
from epsteps.data.engine import ArrayEngine, kernel_of, kernel_targets, require_exact
from epsteps.data.fast import FastEngine
from epsteps.data.slopes import steepest
from epsteps.problem import grid, validate
from epsteps.problem.grid import Points
from epsteps.problem.problem import Problem

# Numbers of a record and output that a solver's term computes with.
_TERM_COLUMNS = 8


class TorchEngine(ArrayEngine, name="gpu"):
    """Sums over records on a card, by torch.

    Gradients of the logistic and the squared loss are computed there. On a CUDA card the kernels are Triton's; where
    that is missing, for shapes they are not made for, clipped gradients and Hessians, plain torch operations. Of other
    losses, and for solvers and other sums, the card multiplies and adds, and NumPy computes what depends on a single
    record, on the host and in threads.

    Float means are computed from float32 records, with sums in float32 within a tile and in float64 above, in an order
    that repeats. Of exact sums every product and every partial sum is an integer that a double, or an int64, holds
    exactly, so that neither the order of a card's programs nor the blocks change them. Noise is not drawn there.
    Records that do not fit the card are copied to it block by block, for every call.

    Parameters
    ----------
    problem : Problem
    features, targets : arrays of shapes (n, d) and (n,)
    memory : int, optional
        Bytes that the records may take on the card; most of what is free by default.
    """

    in_threads = False

    def __init__(
        self,
        problem: Problem,
        features: np.ndarray,
        targets: np.ndarray,
        *,
        memory: int | None = None,
        _device: Any = None,
    ) -> None:
        records = require_torch()
        super().__init__(problem, features, targets)
        self._device, self._memory = records.find_device(_device), memory
        self._kind = records.kind_of(problem.loss)

    @classmethod
    def _on_device(cls, problem: Problem, block: Any) -> "TorchEngine":
        """Return the engine for a block that is on its device already: as means, or as sums if it is on the grid."""
        records = require_torch()
        engine = cls.__new__(cls)
        engine._problem, engine._device, engine._count = problem, block.features.device, block.count
        engine._kind = records.kind_of(problem.loss)
        engine._floats = engine._integers = records.Records.from_block(block)
        return engine

    @staticmethod
    def _rounded(problem: Problem, features: np.ndarray) -> np.ndarray:
        """Return records on the grid, by compiled code where numba is there."""
        return (FastEngine if find_spec("numba") else ArrayEngine)._rounded(problem, features)

    def _stored(self, features: np.ndarray, targets: np.ndarray, units: np.ndarray, *, exact: bool) -> Any:
        most = steepest(self._problem.clip, features, units)
        targets = kernel_targets(kernel_of(self._problem.loss), targets)
        return require_torch().Records(features, targets, self._device, self._memory, most)

    def prepare(self) -> None:
        """Round the records to the grid and copy them to the card, once it has passed its tests."""
        from epsteps.data.gpu import cards

        cards.require_exact(self._device)
        require_exact(_made_on(self._device), self.name)
        _ = self._integers

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        return self._mean("gradient", x, rows).reshape(x.shape)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        return self._mean("loss", x).reshape(x.shape[1:])

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        return self._mean("hessian", x)

    def _mean(self, what: str, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        records, dimension = self._floats, self._problem.dimension
        if x.ndim not in (1, 2) or len(x) != dimension:
            raise ValueError(f"x must have length {dimension} (or that many rows), got shape {x.shape}.")
        count = records.count if rows is None else len(rows)
        if self._kind is None:
            from epsteps.data.gpu import cards

            return getattr(cards, what)(records, self._problem.loss, np.asarray(x, dtype=float), rows) / count
        columns = np.asarray(x, dtype=float).reshape(len(x), -1)
        total: Any = 0.0
        for block in _blocks(records, rows):
            total = total + self._sum(what, columns, block)
        return total.cpu().numpy() / count

    def _sum(self, what: str, x: np.ndarray, block: Any) -> Any:
        """Return a block's sum as a tensor, so that the next block is on its way before this one is done."""
        launch = kernels_for(self._device, len(x))
        if launch is not None and what != "hessian" and (what == "loss" or not self._floats.clipped):
            return getattr(launch, what)(block, x, self._kind)
        import torch  # pyright: ignore[reportMissingImports]

        from epsteps.data.gpu import operations as ops

        return getattr(ops, what)(block, torch.tensor(x, device=self._device), self._kind)

    def _exact_sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        records = self._integers
        if self._kind is None:
            from epsteps.data.gpu import cards

            return cards.exact_gradient(records, self._problem.loss, points, rows)
        parts = [part for block in _blocks(records, rows) for part in self._parts(points, block)]
        return grid.total(parts, records.count if rows is None else len(rows), grid.ROWS_PER_INT64)

    def total(self, term: Term, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact sum of a term over chunks of the prepared records, or of these rows."""
        self.prepare()
        from epsteps.data.gpu import cards

        parts = cards.over(self._integers, term, rows, _TERM_COLUMNS * self._problem.loss.outputs)
        return grid.total(parts, self._integers.count if rows is None else len(rows), chunks.ROWS_PER_INT64)

    def _chunk(self, rows: slice | np.ndarray) -> Chunk:
        from epsteps.data.gpu import cards

        return cards.host_chunk(self._integers, np.arange(self._integers.count)[rows])

    def _parts(self, points: Points, block: Any) -> Iterator[np.ndarray]:
        """Yield int64 sums over at most 2^22 of the block's records."""
        launch = kernels_for(self._device, len(points.coefficients))
        if launch is not None and not self._integers.clipped:
            yield from launch.exact(block, points, self._kind)
            return
        from epsteps.data.gpu import operations as ops

        target = ops.Target.of(points, self._kind, self._device)
        yield from ops.exact_gradient(block, target, self._kind)


def _blocks(records: Any, rows: np.ndarray | None) -> Iterable[Any]:
    """Return all records block by block, or these rows as one block."""
    return records.blocks() if rows is None else [records.take(rows)]


@cache
def _made_on(device: Any) -> Any:
    """Return what makes engines on a device: the same for the same, so that it is tested once."""
    return partial(TorchEngine, _device=device)


def require_torch() -> Any:
    """Return the module of records on a device, or say which extra brings torch."""
    validate.require("torch", "gpu", "The gpu engine")
    from epsteps.data.gpu import records

    return records


def kernels_for(device: Any, d: int) -> Any:
    """Return the module that launches Triton's kernels, or None where plain torch operations serve."""
    launch = _launches() if device.type == "cuda" else None
    return launch if launch is not None and launch.serves(d) else None


@cache
def _launches() -> Any:
    try:
        from epsteps.data.gpu import launch
    except ImportError:
        return None
    return launch
