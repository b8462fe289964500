"""Records in a sparse matrix of SciPy."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from epsteps.data import engines, values
from epsteps.data.engines import Engine, Sums, encoding, stream
from epsteps.data.sources.check import Check, require_features, require_targets
from epsteps.problem.problem import Problem


class SparseRecords:
    """Sparse features, as CSR with sorted columns and no duplicates, and targets in memory."""

    def __init__(self, problem: Problem, features: Any, targets: np.ndarray, name: str) -> None:
        if name not in ("auto", "numpy"):
            raise ValueError(f"sparse records are computed with SciPy, not {name!r}. Use engine='auto'.")
        require_features(problem, features.shape, features.dtype)
        require_targets(problem, targets.shape, targets.dtype)
        self._problem, self._features, self._targets = problem, values.canonical(features), targets

    def engine(self) -> Engine:
        """Return float means over the records."""
        return engines.make_sparse_engine(self._problem, self._features, self._problem.loss.encode(self._targets))

    def sums(self) -> Sums:
        """Return exact sums over the records."""
        return engines.make_sparse_sums(self._problem, self._features, self._problem.loss.encode(self._targets))

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all records in order, UNPROTECTED and dense: features in the domain, the intercept, encoded targets."""
        matrix: Any = self._features
        for block in stream.row_blocks(self._problem.n, self._problem.width):
            yield encoding.revealed(self._problem, matrix[block].toarray(), self._targets[block])

    def check(self) -> Check:
        """Count what would be projected."""
        entries = self._features.data
        return Check(
            rows_outside=int(
                self._problem.domain.outside_entries(entries, self._features.indices, self._features.indptr).sum()
            ),
            not_a_number=int(np.isnan(entries).sum()),
            infinite=int(np.isinf(entries).sum()),
            targets_outside=self._problem.loss.outside(self._targets),
        )
