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

    def short_words(self, count: int) -> np.ndarray:
        """Return words of fair bits, as few as are worth drawing: 32 from the operating system, which counts them."""
        if self.generator is not None:
            return self.words(count)
        return np.frombuffer(os.urandom(4 * count), dtype=np.uint32)

    def more(self, count: int) -> int:
        """Return an integer of ``count`` fair bits, to extend a number that is known too coarsely."""
        size = -(-count // 8)
        raw = os.urandom(size) if self._refining is None else self._refining.bytes(size)
        return int.from_bytes(raw, "little") >> (8 * size - count)


class Again(Bits):
    """Words that were drawn, once more, and after them those of the stream that they are from."""

    def __init__(self, bits: Bits, *drawn: np.ndarray) -> None:
        self.seed, self.generator, self._bits = bits.seed, bits.generator, bits
        self._drawn = np.concatenate([words.reshape(-1) for words in drawn])

    def words(self, count: int) -> np.ndarray:
        """Return words of 64 fair bits."""
        known, self._drawn = self._drawn[:count], self._drawn[count:]
        return known if len(known) == count else np.concatenate([known, self._bits.words(count - len(known))])

    def more(self, count: int) -> int:
        """Return an integer of ``count`` fair bits."""
        return self._bits.more(count)


def public_generator(seed: int) -> np.random.Generator:
    """Return a generator whose seed is public, for simulations after everything is published: it protects nothing."""
    return np.random.default_rng(np.random.SeedSequence(seed))


def secret_bytes(count: int) -> bytes:
    """Return bytes that nobody can guess, such as those of a token."""
    return os.urandom(count)
