"""Records in files: read in blocks for every step where they are many, and once where they are few."""

from collections.abc import Iterator

import numpy as np

from epsteps.data import engines
from epsteps.data.engines import Engine, Sums, encoding, stream
from epsteps.data.sources.check import Check, count, require_features, require_targets
from epsteps.data.sources.mapped import MappedReader
from epsteps.data.sources.memory import MemoryRecords
from epsteps.data.sources.parquet import ParquetReader
from epsteps.problem.problem import Problem

# Numbers up to which records are kept in memory: 64 MB as integers for private sums, 128 MB in float64.
KEPT = 2**24


class StreamedRecords:
    """What a reader reads in blocks."""

    def __init__(self, problem: Problem, reader: MappedReader | ParquetReader, name: str) -> None:
        require_features(problem, reader.shape, reader.feature_kind)
        require_targets(problem, reader.target_shape, reader.target_kind)
        self._problem, self._reader, self._name = problem, reader, name

    def engine(self) -> Engine:
        """Return float means over the records."""
        if self._are_few:
            return self._in_memory().engine()
        return engines.make_stream_engine(self._name, self._problem, self._reader)

    def sums(self) -> Sums:
        """Return exact sums over the records."""
        if self._are_few:
            return self._in_memory().sums()
        return engines.make_stream_sums(self._name, self._problem, self._reader)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all records in order, UNPROTECTED: features in the domain, with the intercept, and encoded targets."""
        size = stream.block_rows(self._problem.width)
        for block in self._reader.blocks(size):
            yield encoding.revealed(self._problem, *block())

    def check(self) -> Check:
        """Count what would be projected."""
        blocks = self._reader.blocks(stream.block_rows(self._problem.d))
        return sum((count(self._problem, *block()) for block in blocks), start=Check(0, 0, 0, 0))

    @property
    def _are_few(self) -> bool:
        return self._problem.n * self._problem.d <= KEPT

    def _in_memory(self) -> MemoryRecords:
        parts = [block() for block in self._reader.blocks(self._problem.n)]
        features, targets = zip(*parts, strict=True)
        return MemoryRecords(self._problem, np.concatenate(features), np.concatenate(targets), self._name)
