"""The gpu engine's float means: records on the card, one pass over its memory for each gradient."""

from functools import cache
from typing import Any

import numpy as np

from epsteps.data.engines.slopes import steepest
from epsteps.problem import extras
from epsteps.problem.losses import Loss


class TorchEngine:
    """Mean gradient, loss and Hessian of a linear model over records on a card (float32), by torch.

    On a CUDA card the kernels are Triton's; where that is missing, for shapes they are not made for, clipped gradients
    and Hessians, plain torch operations. Sums are in float32 within a tile and in float64 above, in an order that
    repeats. Records that do not fit the card are copied to it block by block, for every call.

    Parameters
    ----------
    loss : Logistic or Squared
    features, targets : arrays of shapes (n, d) and (n,)
    memory : int, optional
        Bytes that the records may take on the card; most of what is free by default.
    clip : float, optional
        The L2 norm that records' gradients are clipped to.
    """

    def __init__(
        self,
        loss: Loss,
        features: np.ndarray,
        targets: np.ndarray,
        *,
        memory: int | None = None,
        clip: float | None = None,
        _device: Any = None,
    ) -> None:
        torch_records = require_torch()
        device = torch_records.find_device(_device)
        self._kind = torch_records.kind_of(loss)
        most = steepest(clip, features, np.ones(features.shape[-1]))
        self._records = torch_records.Records(features, targets, device, memory, most)

    @classmethod
    def _on_device(cls, loss: Loss, block: Any) -> "TorchEngine":
        """Return the engine for a block that is on its device already."""
        torch_records = require_torch()
        engine = cls.__new__(cls)
        engine._kind, engine._records = torch_records.kind_of(loss), torch_records.Records.from_block(block)
        return engine

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        blocks = self._records.blocks() if rows is None else [self._records.take(rows)]
        return self._mean("gradient", x, blocks, self._records.count if rows is None else len(rows)).reshape(x.shape)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        return self._mean("loss", x, self._records.blocks(), self._records.count).reshape(x.shape[1:])

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        return self._mean("hessian", x, self._records.blocks(), self._records.count)

    def _mean(self, what: str, x: np.ndarray, blocks: Any, count: int) -> np.ndarray:
        if x.ndim not in (1, 2) or len(x) != self._records.d:
            raise ValueError(f"x must have length {self._records.d} (or that many rows), got shape {x.shape}.")
        columns = np.asarray(x, dtype=float).reshape(len(x), -1)
        total: Any = 0.0
        for block in blocks:
            total = total + self._sum(what, columns, block)
        return total.cpu().numpy() / count

    def _sum(self, what: str, x: np.ndarray, block: Any) -> Any:
        """Return a block's sum as a tensor, so that the next block is on its way before this one is done."""
        launch = kernels_for(self._records.device, len(x))
        if launch is not None and what != "hessian" and (what == "loss" or not self._records.clipped):
            return getattr(launch, what)(block, x, self._kind)
        import torch  # pyright: ignore[reportMissingImports]

        from epsteps.data.engines.gpu import operations as ops

        return getattr(ops, what)(block, torch.tensor(x, device=self._records.device), self._kind)


def require_torch() -> Any:
    """Return the module of records on a device, or say which extra brings torch."""
    extras.require("torch", "gpu", "The gpu engine")
    from epsteps.data.engines.gpu import records

    return records


def kernels_for(device: Any, d: int) -> Any:
    """Return the module that launches Triton's kernels, or None where plain torch operations serve."""
    launch = _launches() if device.type == "cuda" else None
    return launch if launch is not None and launch.serves(d) else None


@cache
def _launches() -> Any:
    try:
        from epsteps.data.engines.gpu import launch
    except ImportError:
        return None
    return launch
