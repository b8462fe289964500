"""Records: where they come from, how their cells enter, and the engines that add them up.

The engines that can be asked for by name are imported here: importing one makes its name known.
"""

from epsteps.data import dense, fast, gpu

__all__ = ["dense", "fast", "gpu"]
