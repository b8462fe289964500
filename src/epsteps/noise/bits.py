"""Fair bits: from the operating system or, for experiments, from a seeded generator."""

import os

import numpy as np


class Bits:
    """A stream of fair bits; the samplers are the same code whichever kind it is.

    The operating system's bits leave no state in the process, so that forked workers never share them.
    """

    def __init__(self, seed: int | None = None, step: int | None = None) -> None:
        self.seed = seed
        key = () if step is None else (step,)
        self.generator = None if seed is None else np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        # Refinements have a stream of their own: how many there are does not change the words of later draws.
        self._refining = None if self.generator is None else self.generator.spawn(1)[0]

    def words(self, count: int) -> np.ndarray:
        """Return words of 64 fair bits."""
        if self.generator is not None:
            return self.generator.integers(2**64, size=count, dtype=np.uint64)
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def more(self, count: int) -> int:
        """Return an integer of ``count`` fair bits, to extend a number that is known too coarsely."""
        size = -(-count // 8)
        raw = os.urandom(size) if self._refining is None else self._refining.bytes(size)
        return int.from_bytes(raw, "little") >> (8 * size - count)
