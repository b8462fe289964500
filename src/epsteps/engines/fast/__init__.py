"""The compiled engine: kernels that numba compiles on first use."""

from epsteps.engines.fast.engine import FastEngine
from epsteps.engines.fast.sums import FastSums

__all__ = ["FastEngine", "FastSums"]
