"""Records in arrays."""

from collections.abc import Iterator

import numpy as np

from epsteps.data import engines
from epsteps.data.engines import Engine, Sums, encoding, stream
from epsteps.data.sources.check import Check, count, require_features, require_targets
from epsteps.problem.problem import Problem


class MemoryRecords:
    """Features and targets in memory."""

    def __init__(self, problem: Problem, features: np.ndarray, targets: np.ndarray, name: str) -> None:
        require_features(problem, features.shape, features.dtype)
        require_targets(problem, targets.shape, targets.dtype)
        self._problem, self._features, self._targets, self._name = problem, features, targets, name

    def engine(self) -> Engine:
        """Return float means over the records."""
        return engines.make_engine(self._name, self._problem, self._features, self._encoded())

    def sums(self) -> Sums:
        """Return exact sums over the records."""
        return engines.make_sums(self._name, self._problem, self._features, self._encoded())

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all records in order, UNPROTECTED: features in the domain, with the intercept, and encoded targets."""
        for block in stream.row_blocks(self._problem.n, self._problem.width):
            yield encoding.revealed(self._problem, self._features[block], self._targets[block])

    def check(self) -> Check:
        """Count what would be projected."""
        return count(self._problem, self._features, self._targets)

    def _encoded(self) -> np.ndarray:
        return self._problem.loss.encode(self._targets)
