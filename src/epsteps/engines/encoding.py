"""Raw features to what engines compute with: projected numbers for experiments, integers for private sums."""

import numpy as np

from epsteps.grid import STEPS
from epsteps.problem import Problem

# Numbers that are converted at a time, to bound memory.
_BLOCK = 2**20


def projected(problem: Problem, features: np.ndarray) -> np.ndarray:
    """Return features in the domain, with the intercept's column.

    Features in float32 stay in float32, others become float64.
    """
    kind = np.float32 if features.dtype == np.float32 else np.float64
    result = np.ones((len(features), problem.dimension), dtype=kind)
    for block in _blocks(len(features), problem.d):
        result[block, : problem.d] = problem.domain.project(features[block])
    return result


def integers(problem: Problem, features: np.ndarray) -> np.ndarray:
    """Return features on the grid, with the intercept's column: integers in float32, exactly inside the domain."""
    result = np.full((len(features), problem.dimension), STEPS, dtype=np.float32)
    for block in _blocks(len(features), problem.d):
        result[block, : problem.d] = problem.domain.integers(features[block], STEPS)
    return result


def _blocks(count: int, d: int) -> list[slice]:
    size = max(1, _BLOCK // d)
    return [slice(start, start + size) for start in range(0, count, size)]
