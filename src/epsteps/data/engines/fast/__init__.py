"""The compiled engine: kernels that numba compiles on first use."""

from epsteps.data.engines.fast.engine import FastEngine
from epsteps.data.engines.fast.sums import FastSums

__all__ = ["FastEngine", "FastSums"]
