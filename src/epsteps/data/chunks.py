"""A few prepared records at a time: what every pass over the records is made of, wherever they are kept.

Prepared records are integers within 2^20, on the problem's grid and exactly inside its domain, in float32. A pass adds
up what a *term* makes of each chunk: integers. Their sum is the same whatever engine, threads, workers or order.
Who watches hears of the share of the records that the present pass has read, and of nothing else.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array, hstack

from epsteps.problem import grid

# One more than the integers of a limb may be: their products with a record's are added exactly.
LIMB = float(2**20)
# Rows whose products with integers within 2^20 a double adds exactly: a run.
RUN = grid.ROWS_PER_DOUBLE
# Rows of a chunk: for fewer, calling NumPy costs more than computing, and terms may count on there being no more.
_FEWEST, LARGEST = 256, 2**16
# Bytes of a chunk in doubles: about half of a core's second-level cache for a few threads. Many would wait for each
# other before each call of NumPy, and take more at a time.
_BYTES, _FEW_THREADS, _BYTES_OF_MANY = 2**19, 4, 2**23

# What makes numbers of records from their margins and targets: of each from its own alone.
Elementwise = Callable[[np.ndarray, np.ndarray], np.ndarray]
# What adds up something over records: a function of their integers and targets.
Block = Callable[[np.ndarray, np.ndarray], np.ndarray]
Result = TypeVar("Result")
# Parts of a pass, each with its number of records.
Sized = Generator[tuple[int, Result], None, None]
# Seconds of a pass before it is heard of, and between one share of it and the next.
_SECONDS = 0.1
# What hears of passes; threads that compute parts of them have none.
_watcher: ContextVar[Callable[[float], None] | None] = ContextVar("watcher", default=None)


class Chunk:
    """At most 2^16 dense records, the intercept's column included, and their targets.

    A card's chunks have more. So a term that adds up by itself, from ``features``, is an ``apply``.
    """

    # What an engine keeps of these records from one pass to the next; None where it keeps nothing.
    memory: dict[Any, Any] | None = None

    def __init__(self, features: np.ndarray, targets: np.ndarray) -> None:
        self._features, self.targets = features, targets

    def kept(self, key: Any, make: Callable[[], Result]) -> Result:
        """Return what was made of these records with this key, now or in the last pass that asked for anything."""
        if self.memory is None:
            return make()
        found = self.memory.get(key)
        if found is None:
            found = make()
            self.memory.clear()
            self.memory[key] = found
        return found

    def __len__(self) -> int:
        return len(self.targets)

    @cached_property
    def features(self) -> np.ndarray:
        """The records' integers, dense, in float64."""
        return self._features.astype(float)

    def products(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the records' products with each column of integers: exact where their sums are below 2^53."""
        return self.features @ coefficients

    def gather(self, numbers: np.ndarray) -> np.ndarray:
        """Return the sum of number x record for each column of integers within 2^20: exact, in int64."""
        return in_runs(lambda run: self.features[run].T @ numbers[run], len(self))

    def margins(self, limbs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the records' margins at a point in fixed point, one column for each output.

        The columns of ``limbs`` are those of the first output, most significant first, then those of the next. Their
        products are exact; they are added in this order, in the kind of float of their weights.
        """
        return combined(self.products(limbs), weights)

    def each(self, function: Elementwise, margins: np.ndarray) -> np.ndarray:
        """Return what a function makes of every record's margins and target."""
        return function(margins, self.targets)

    def gather_fixed(self, shares: np.ndarray, count: int) -> np.ndarray:
        """Return the sum of share x record for numbers within [-1, 1] in fixed point of so many limbs of 20 bits each.

        There is a column for each limb of the first column's sum, most significant first, then those of the next.
        """
        limbs = np.empty((*shares.shape, count))
        left = shares * shares.dtype.type(LIMB)
        for limb in range(count):
            limbs[:, :, limb] = np.rint(left)
            if limb < count - 1:
                left -= limbs[:, :, limb]
                left *= shares.dtype.type(LIMB)
        return self.gather(limbs.reshape(len(self), -1))

    def apply(self, block: Block) -> np.ndarray:
        """Return the sum of a block function of at most 2^16 records' integers and targets."""
        return block(self.features, self.targets)

    def squares(self) -> np.ndarray:
        """Return the sums of each column's squares, exact."""
        return in_runs(lambda run: np.einsum("ij,ij->j", self.features[run], self.features[run]), len(self))

    def moment(self) -> np.ndarray:
        """Return the matrix of sums of products of columns, exact."""
        return in_runs(lambda run: self.features[run].T @ self.features[run], len(self))

    def scaled(self, factors: np.ndarray, most: int) -> Any:
        """Return the records with each column multiplied, rounded and clipped: integers within ``most``."""
        scaled = self.features * factors
        return np.clip(np.rint(scaled, out=scaled), -most, most, out=scaled)

    def row_sums(self, factors: np.ndarray, most: int, norm: int) -> np.ndarray:
        """Return, for each of the records as ``scaled`` returns them, the sum of its squares (norm 2) or sizes (1).

        It is exact where it is below 2^53, whatever the order.
        """
        scaled = self.scaled(factors, most)
        return np.einsum("ij,ij->i", scaled, scaled) if norm == 2 else np.abs(scaled).sum(axis=1)

    @cached_property
    def halves(self) -> tuple[Any, Any]:
        """Integers within 2^10 and within 2^9: the first times 2^10 plus the second are the records."""
        high = np.rint(self.features * 2.0**-10)
        return high, self.features - high * 2**10

    @staticmethod
    def weighted_products(left: Any, weights: np.ndarray, right: Any) -> np.ndarray:
        """Return the matrix of sums of weight x product, for records as ``scaled`` or ``halves`` return them."""
        return in_runs(lambda run: left[run].T @ (right[run] * weights[run, None]), len(weights))


class SparseChunk(Chunk):
    """At most 2^13 sparse records in CSR; ``one`` is the intercept's integer in every row, None without one."""

    def __init__(self, features: csr_array, targets: np.ndarray, one: float | None) -> None:
        super().__init__(features, targets)  # pyright: ignore[reportArgumentType]
        self._one = one
        self._rows: Any = csr_array((features.data.astype(float), features.indices, features.indptr), features.shape)

    @cached_property
    def features(self) -> np.ndarray:
        """The records' integers, made dense, in float64."""
        return _with_one(self._rows.toarray(), self._one, len(self))

    def products(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the records' products with each column of integers: exact where their sums are below 2^53."""
        if self._one is None:
            return self._rows @ coefficients
        return self._rows @ coefficients[:-1] + self._one * coefficients[-1]

    def gather(self, numbers: np.ndarray) -> np.ndarray:
        """Return the sum of number x record for each column of integers within 2^20: exact, in int64."""
        sums = self._rows.T @ numbers
        if self._one is not None:
            sums = np.concatenate([sums, self._one * numbers.sum(axis=0, keepdims=True)])
        return sums.astype(np.int64)

    def squares(self) -> np.ndarray:
        """Return the sums of each column's squares, exact."""
        entries, d = self._rows.data, self._rows.shape[1]
        sums = np.bincount(self._rows.indices, entries * entries, minlength=d)
        return np.append(sums, [] if self._one is None else len(self) * self._one**2).astype(np.int64)

    def moment(self) -> np.ndarray:
        """Return the matrix of sums of products of columns, exact and dense."""
        products = (self._rows.T @ self._rows).toarray()
        if self._one is not None:
            sums = self._one * self._rows.sum(axis=0)[:, None]
            products = np.block([[products, sums], [sums.T, np.full((1, 1), self._one**2 * len(self))]])
        return products.astype(np.int64)

    def scaled(self, factors: np.ndarray, most: int) -> Any:
        """Return the records with each column multiplied, rounded and clipped: integers within ``most``, sparse."""
        return self._like(self._scaled_entries(factors, most), self._scaled_one(factors, most))

    def row_sums(self, factors: np.ndarray, most: int, norm: int) -> np.ndarray:
        """Return each scaled record's sum of squares (norm 2) or sizes (1), exact below 2^53; nothing becomes dense."""
        entries, one = self._scaled_entries(factors, most), self._scaled_one(factors, most)
        sizes = entries * entries if norm == 2 else np.abs(entries)
        rows = csr_array((sizes, self._rows.indices, self._rows.indptr), self._rows.shape)
        return rows @ np.ones(self._rows.shape[1]) + (one * one if norm == 2 else one)

    def _scaled_entries(self, factors: np.ndarray, most: int) -> np.ndarray:
        return np.clip(np.rint(self._rows.data * factors[self._rows.indices]), -most, most)

    def _scaled_one(self, factors: np.ndarray, most: int) -> float:
        return min(float(np.rint((self._one or 0.0) * factors[-1])), float(most))

    @cached_property
    def halves(self) -> tuple[Any, Any]:
        """Integers within 2^10 and within 2^9, sparse: the first times 2^10 plus the second are the records."""
        high = np.rint(self._rows.data * 2.0**-10)
        one = 0.0 if self._one is None else np.rint(self._one * 2.0**-10)
        return self._like(high, one), self._like(self._rows.data - high * 2**10, (self._one or 0.0) - one * 2**10)

    def _like(self, entries: np.ndarray, one: float) -> Any:
        """Return a sparse matrix with other entries in the same places, and the intercept's column if there is one."""
        matrix = csr_array((entries, self._rows.indices, self._rows.indptr), self._rows.shape)
        if self._one is None:
            return matrix
        return hstack([matrix, np.full((len(self), 1), one)], format="csr")

    @staticmethod
    def weighted_products(left: Any, weights: np.ndarray, right: Any) -> np.ndarray:
        """Return the matrix of sums of weight x product, for records as ``scaled`` or ``halves`` return them."""
        return (left.T @ right.multiply(weights[:, None])).toarray().astype(np.int64)


# What a pass computes from a chunk: integers, of which the sum over 2^20 records fits 63 bits.
Term = Callable[[Chunk], np.ndarray]
# Rows whose terms are added in 64 bits.
ROWS_PER_INT64 = 2**20


@dataclass(frozen=True, eq=False)
class Blocks:
    """The term of a function of records' integers, dense and with the intercept, and their targets."""

    block: Block

    def __call__(self, chunk: Chunk) -> np.ndarray:
        """Return what the function makes of a chunk."""
        return chunk.apply(self.block)


class _Raised(BaseException):
    """What a watcher raised, on its way through engines that make others of exceptions."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def watching(on_read: Callable[[float], None] | None) -> Iterator[None]:
    """Tell ``on_read`` of the share that a pass has read: in the thread that asks for it, ten times a second at most.

    Passes that are over before that tell nothing, and nothing says how many there are. What ``on_read`` raises ends the
    pass, and leaves this context as it is. With None nobody is told.
    """

    def hear(share: float) -> None:
        try:
            on_read(share)  # pyright: ignore[reportOptionalCall]
        except Exception as error:
            raise _Raised(error) from error

    raised, token = None, _watcher.set(on_read and hear)
    try:
        yield
    except _Raised as stop:
        raised = stop.error
    finally:
        _watcher.reset(token)
    if raised is not None:
        raise raised


def watched() -> bool:
    """Tell whether anybody watches the passes of this thread."""
    return _watcher.get() is not None


def heard(parts: Sized[Result], count: int) -> Sized[Result]:
    """Return the parts of a pass over so many records; when a part has been taken, who watches hears of the share."""
    on_read = _watcher.get()
    return parts if on_read is None else _heard(on_read, parts, count)


def _heard(on_read: Callable[[float], None], parts: Sized[Result], count: int) -> Sized[Result]:
    begun, done = monotonic(), 0
    last = begun
    with closing(parts):  # also when the watcher raises: what runs in threads is not begun then
        while (part := _unwatched(next, parts, None)) is not None:
            yield part
            done, now = done + part[0], monotonic()
            if now - last >= _SECONDS or (done >= count and last > begun):
                last = now
                _unwatched(on_read, done / count if done < count else 1.0)


def _unwatched(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function does while nobody watches: passes inside a pass are its own business."""
    token = _watcher.set(None)
    try:
        return function(*arguments)
    finally:
        _watcher.reset(token)


def added(parts: Sized[np.ndarray], count: int, most: int) -> np.ndarray:
    """Return the exact sum of int64 sums over parts of ``count`` records, of which 64 bits hold ``most``."""
    sums: list[np.ndarray] = []
    room = 0
    for size, part in parts:
        if size > room or not sums:
            sums.append(part)
            room = most
        else:
            sums[-1] = sums[-1] + part
        room -= size
    return grid.total(sums, count, most)


def combined(products: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sums of weight x limb's product, one column for each output, in the kind of float of the weights."""
    products = products.reshape(len(products), -1, len(weights))
    margins = products[:, :, 0] * weights[0]
    for limb in range(1, len(weights)):
        margins += products[:, :, limb] * weights[limb]
    return margins


def in_runs(part: Callable[[slice], np.ndarray], count: int) -> np.ndarray:
    """Return the sum of ``part`` over runs of records, each of them exact in doubles, in int64."""
    if count <= RUN:
        return part(slice(0, count)).astype(np.int64)
    return np.sum([part(slice(i, i + RUN)).astype(np.int64) for i in range(0, count, RUN)], axis=0)


def size_of(width: int, threads: int) -> int:
    """Return how many records of this width make a chunk, where so many threads take one each."""
    size = _BYTES if threads <= _FEW_THREADS else _BYTES_OF_MANY
    return min(LARGEST, max(_FEWEST, size // (8 * width)))


def _with_one(features: np.ndarray, one: float | None, count: int) -> np.ndarray:
    return features if one is None else np.concatenate([features, np.full((count, 1), one)], axis=1)
