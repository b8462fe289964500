"""The engine of a card: torch, with kernels of Triton's. torch is imported when an engine is made, not before."""

from epsteps.data.engines.gpu.engine import TorchEngine
from epsteps.data.engines.gpu.sums import TorchSums

__all__ = ["TorchEngine", "TorchSums"]
