"""The gpu engine's private sums: exact integers, the same as the reference's bit for bit."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from epsteps.data.engines.gpu.engine import kernels_for, require_torch
from epsteps.data.engines.slopes import steepest
from epsteps.problem import grid
from epsteps.problem.grid import STEPS, Grid, Points


class TorchSums:
    """Exact sums over records on a grid (float32 that holds integers), on a card.

    Every product and every partial sum is an integer that a double, or an int64, holds exactly, so that neither the
    order of a card's programs nor the blocks change them. Noise is not drawn there.

    Parameters
    ----------
    grid : Grid
    features, targets : arrays of shapes (n, d) and (n,)
    memory : int, optional
        Bytes that the records may take on the card; most of what is free by default.
    """

    def __init__(
        self, grid: Grid, features: np.ndarray, targets: np.ndarray, *, memory: int | None = None, _device: Any = None
    ) -> None:
        torch_records = require_torch()
        device = torch_records.find_device(_device)
        self._kind = torch_records.kind_of(grid.problem.loss)
        most = steepest(grid.problem.clip, features, grid.units[: features.shape[-1]] / STEPS)
        self._records = torch_records.Records(features, targets, device, memory, most)

    @classmethod
    def _on_device(cls, grid: Grid, block: Any) -> "TorchSums":
        """Return the sums for a block that is on its device already."""
        torch_records = require_torch()
        sums = cls.__new__(cls)
        sums._kind = torch_records.kind_of(grid.problem.loss)
        sums._records = torch_records.Records.from_block(block)
        return sums

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows, for each point: integers."""
        blocks = self._records.blocks() if rows is None else [self._records.take(rows)]
        parts = [part for block in blocks for part in self._parts(points, block)]
        return grid.total(parts, self._records.count if rows is None else len(rows))

    def second_moment(self) -> np.ndarray:
        """Return the sum of u u' over all records: integers."""
        from epsteps.data.engines.gpu import operations as ops

        parts = [part for block in self._records.blocks() for part in ops.exact_second_moment(block)]
        return grid.total(parts, self._records.count)

    def _parts(self, points: Points, block: Any) -> Iterator[np.ndarray]:
        """Yield int64 sums over at most 2^22 of the block's records."""
        launch = kernels_for(self._records.device, len(points.coefficients))
        if launch is not None and not self._records.clipped:
            yield from launch.exact(block, points, self._kind)
            return
        from epsteps.data.engines.gpu import operations as ops

        target = ops.Target.of(points, self._kind, self._records.device)
        yield from ops.exact_gradient(block, target, self._kind)
