"""Chunks of records on a card: products and sums there, numbers of single records on the host, in threads.

A loss is asked by NumPy on the host, so that every loss works and slopes have the same bits as with any other engine.
What travels is one float64 for each record and output, there and back. Each thread has its own stream of the card's
work and takes one chunk after the other: while one waits for a copy, others compute.
"""

import threading
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, TypeVar

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from epsteps.data import chunks
from epsteps.data.chunks import LIMB, Block, Chunk, Elementwise, combined
from epsteps.data.engine import SelfTestError, allowed, map_parts
from epsteps.data.gpu.operations import exact_product
from epsteps.data.gpu.records import Records
from epsteps.data.slopes import Slopes, outer, side_by_side, stacked
from epsteps.problem import grid
from epsteps.problem.grid import ROWS_PER_DOUBLE, STEPS, Points
from epsteps.problem.losses import Loss

Result = TypeVar("Result")

# Records of a chunk: enough for a card to be busy, few enough for each of many threads to have some.
_ROWS = 2**20
# Numbers of a chunk in float64 with what is computed from it, chunks that are there at a time, and bytes for each
# number: copies in float64 of records, their squares, and products.
_NUMBERS, _AT_ONCE, _BYTES = 2**26, 16, 32
# Share of a card's memory that all of these may take.
_SHARE = 0.1
# Records that NumPy computes with at a time: many, as threads wait for each other before each of its calls.
_TOGETHER = 2**18
# Bits of a float, the first not counted, up to which it is a sum of two doubles.
_TWO_DOUBLES = 63

_own = threading.local()
_room = threading.BoundedSemaphore(_AT_ONCE)


class CardChunk(Chunk):
    """Up to 2^20 records: features (d, records) on a device, in float32, and their targets on the host.

    Integers that are added there are split in runs of 2^13 records, whose sums a double holds exactly; the sums of runs
    are added in int64. ``steepest`` are the largest slopes of records whose gradients are not clipped.
    """

    def __init__(self, features: torch.Tensor, targets: np.ndarray, steepest: np.ndarray | None = None) -> None:
        super().__init__(features, targets)  # pyright: ignore[reportArgumentType]
        self._on_card: torch.Tensor = features
        self.steepest = steepest

    @cached_property
    def features(self) -> np.ndarray:
        """The records' integers in float64, on the host: of few records only, as others add them in doubles."""
        if len(self) > chunks.LARGEST:
            raise TypeError("a chunk on a card has more records than doubles add exactly: use its apply.")
        return _host(self._on_card.T).astype(float)

    def products(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the records' products with each column of integers: exact where their sums are below 2^53."""
        return _host(self._products(coefficients).T)

    def gather(self, numbers: np.ndarray) -> np.ndarray:
        """Return the sum of number x record for each column of integers within 2^20: exact, in int64."""
        return _host(exact_product(self._doubles, _transposed(numbers, self._on_card.device)))

    def margins(self, limbs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return margins, a column for each output: doubles are combined on the card, by the same operations."""
        if weights.dtype != np.float64:
            return self.each(lambda products, _: combined(products, weights), self.products(limbs))
        products = self._products(limbs).unflatten(0, (-1, len(weights)))
        margins = products[:, 0] * float(weights[0])
        for limb in range(1, len(weights)):
            margins = margins + products[:, limb] * float(weights[limb])  # one operation each: nothing is fused
        return _host(margins.T)

    def each(self, function: Elementwise, margins: np.ndarray) -> np.ndarray:
        """Return what a function makes of every record's margins and target, a few records at a time."""
        starts = range(0, max(len(self), 1), _TOGETHER)
        pieces = [function(margins[i : i + _TOGETHER], self.targets[i : i + _TOGETHER]) for i in starts]
        if len(pieces) == 1:
            return pieces[0]
        kind, shape = pieces[0].dtype, (len(self), *pieces[0].shape[1:])
        result = _pinned(shape, self._on_card.device).numpy() if kind == np.float64 else np.empty(shape, kind)
        return np.concatenate(pieces, out=result)

    def gather_fixed(self, shares: np.ndarray, count: int) -> np.ndarray:
        """Return the sum of share x record in fixed point; numbers are split into limbs on the card."""
        outputs, device = shares.shape[1], self._on_card.device
        if shares.dtype == np.float64:
            limbs = _limbs(_transposed(shares, device), None, count)
        elif np.finfo(shares.dtype).nmant <= _TWO_DOUBLES:
            halves = _transposed(self.each(_halves, shares), device)
            limbs = _limbs(halves[:outputs], halves[outputs:], count)
        else:
            return super().gather_fixed(shares, count)
        return _host(exact_product(self._doubles, limbs))

    def apply(self, block: Block) -> np.ndarray:
        """Return the sum of a block function, of a few records at a time on the host."""
        features, size = _host(self._on_card.T), chunks.size_of(len(self._on_card), allowed())
        total: Any = 0
        for i in range(0, len(self), size):
            total = total + block(features[i : i + size].astype(float), self.targets[i : i + size])
        return total

    def squares(self) -> np.ndarray:
        """Return the sums of each column's squares, exact."""
        return _host(self._on_card.long().square().sum(dim=1))

    def moment(self) -> np.ndarray:
        """Return the matrix of sums of products of columns, exact."""
        return _host(exact_product(self._doubles, self._doubles))

    def scaled(self, factors: np.ndarray, most: int) -> torch.Tensor:
        """Return the records with each column multiplied, rounded and clipped: integers within ``most``, there."""
        return torch.round(self._doubles * _device(factors, self._on_card.device)[:, None]).clamp(-most, most)

    def row_sums(self, factors: np.ndarray, most: int, norm: int) -> np.ndarray:
        """Return each scaled record's sum of squares (norm 2) or sizes (1), exact below 2^53; added up there."""
        scaled = self.scaled(factors, most)
        return _host((scaled.square() if norm == 2 else scaled.abs()).sum(dim=0))

    @cached_property
    def halves(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Integers within 2^10 and within 2^9, there: the first times 2^10 plus the second are the records."""
        high = torch.round(self._doubles * 2.0**-10)
        return high, self._doubles - high * 2.0**10

    @staticmethod
    def weighted_products(left: torch.Tensor, weights: np.ndarray, right: torch.Tensor) -> np.ndarray:
        """Return the matrix of sums of weight x product, for records as ``scaled`` or ``halves`` return them."""
        return _host(exact_product(left, right * _device(weights, right.device)))

    def added(self, numbers: np.ndarray) -> np.ndarray:
        """Return the sum of number x record for each column of any numbers, in float64."""
        return _host(self._doubles @ _device(numbers, self._on_card.device))

    def outer(self, weights: np.ndarray) -> np.ndarray:
        """Return the matrix of sums of weight x product, in float64."""
        return _host((self._doubles * _device(weights, self._on_card.device)) @ self._doubles.T)

    @cached_property
    def _doubles(self) -> torch.Tensor:
        return self._on_card.double()

    def _products(self, coefficients: np.ndarray) -> torch.Tensor:
        return _transposed(coefficients, self._on_card.device) @ self._doubles


def _halves(shares: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Return numbers as doubles, and what these lack in further columns: together they are the numbers."""
    high = shares.astype(float)
    return np.concatenate([high, (shares - high).astype(float)], axis=1)


def _limbs(high: torch.Tensor, low: torch.Tensor | None, count: int) -> torch.Tensor:
    """Return the limbs of numbers (k, records), which are sums of two doubles if ``low`` is given: (k count, records).

    Every operation but the rounding is exact, so that limbs are those of the numbers in any float that holds them.
    """
    limbs = []
    for _ in range(count):
        high = high * LIMB
        limb = torch.round(high)
        high = high - limb
        if low is not None:
            low = low * LIMB
            # Where a double lies in the middle between integers, what it lacks decides.
            above = ((high == 0.5) & (low > 0)).double() - ((high == -0.5) & (low < 0)).double()
            limb, high = limb + above, high - above
            total = high + low
            high, low = total, low - (total - high)
        limbs.append(limb)
    return torch.stack(limbs, dim=1).flatten(0, 1)


def over(records: Records, work: Callable[[CardChunk], Result], rows: np.ndarray | None, columns: int) -> list[Result]:
    """Return what ``work`` makes of chunks of all records in order, or of these rows: arrays on the host.

    ``columns`` is how many numbers of each record it computes with besides.
    """

    def mapped(chunk: Callable[[int, int], CardChunk], count: int) -> list[Result]:
        part = _on_own_stream(lambda start, stop: work(chunk(start, stop)), records.device)
        size = _size(records.device, records.d + 2 * columns, count)
        return map_parts(part, count, work=records.d, largest=size)

    if rows is not None:
        return mapped(lambda start, stop: _taken(records, rows[start:stop]), len(rows))
    results, first = [], 0
    for block in records.blocks():
        results += mapped(lambda start, stop: _between(records, block, first, start, stop), block.count)  # noqa: B023
        first += block.count
    return results


def host_chunk(records: Records, rows: np.ndarray) -> Chunk:
    """Return a few records on the host."""
    taken = _taken(records, rows)
    return Chunk(_host(taken._on_card.T), taken.targets)


def _taken(records: Records, rows: np.ndarray) -> CardChunk:
    features = records.take(rows).features[:, : len(rows)]
    return CardChunk(features, records.targets[rows], None if records.steepest is None else records.steepest[rows])


def _between(records: Records, block: Any, first: int, start: int, stop: int) -> CardChunk:
    """Return some records of a block, whose first record has this number."""
    part = slice(first + start, first + stop)
    steepest = None if records.steepest is None else records.steepest[part]
    return CardChunk(block.features[:, start:stop], records.targets[part], steepest)


def _size(device: torch.device, width: int, count: int) -> int:
    """Return how many of so many records make a chunk: from the card's memory and public sizes.

    Of many, as many chunks are made as can be there at a time, or a multiple of that, so that all threads have some.
    """
    numbers = _NUMBERS
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        numbers = min(numbers, int(_SHARE * memory) // (_AT_ONCE * _BYTES))
    parts = max(1, -(-count // min(_ROWS, max(ROWS_PER_DOUBLE, numbers // width))))
    if count >= _AT_ONCE * _TOGETHER:
        parts = -(-parts // _AT_ONCE) * _AT_ONCE
    return max(1, -(-count // parts))


def _on_own_stream(part: Callable[[int, int], Result], device: torch.device) -> Callable[[int, int], Result]:
    """Return a part that runs on its thread's own stream of the card, after all that was queued before this call.

    What it returns must be on the host: then its work on the card is done.
    """
    if device.type != "cuda":
        return part
    before = torch.cuda.current_stream(device).record_event()

    def apart(start: int, stop: int) -> Result:
        stream = _stream(device)
        with _room, torch.cuda.stream(stream):
            stream.wait_event(before)
            return part(start, stop)

    return apart


def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return this thread's stream of a card."""
    streams = vars(_own).setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    return streams[device]


def _pinned(shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return memory of the host for float64 that a card copies from and to at full speed; torch keeps it for later."""
    return torch.empty(shape, dtype=torch.float64, pin_memory=device.type == "cuda")


def _host(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array in C order; its thread sleeps meanwhile."""
    tensor = tensor.contiguous()
    if tensor.device.type != "cuda":
        return tensor.numpy()
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copy.copy_(tensor, non_blocking=True)
    done = torch.cuda.Event(blocking=True)
    done.record(torch.cuda.current_stream(tensor.device))
    done.synchronize()
    return copy.numpy()


def _device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return numbers in float64 on the device; the array must live until something there was waited for."""
    numbers = np.require(array, dtype=np.float64, requirements=["C", "W"])
    return torch.from_numpy(numbers).to(device, non_blocking=True)


def _transposed(array: np.ndarray, device: torch.device) -> torch.Tensor:
    return _device(array, device).T.contiguous()


@cache
def require_exact(device: torch.device) -> None:
    """Raise unless chunks on this device add as 64-bit integers do, numbers as large as they may be and mostly odd."""
    count, d = 2 * ROWS_PER_DOUBLE + 37, 5
    row, column = np.arange(count)[:, None], np.arange(d)
    integers = STEPS - 1 - 2 * ((row + column) % 11) - np.where(row % 16 == 0, (row * 7919 + column) % STEPS, 0)
    numbers, coefficients = STEPS - 1 - 2 * (row % 7) - column[:2], 2 ** (27 + column[:, None] // 2) - 1 - column[:2]
    chunk = CardChunk(torch.from_numpy(integers.T.astype(np.float32)).to(device), np.zeros(count, dtype=np.float32))
    pairs = (
        (chunk.gather(numbers.astype(float)), integers.T @ numbers),
        (chunk.products(coefficients.astype(float)), integers @ coefficients),
        (chunk.squares(), np.sum(integers * integers, axis=0)),
        (chunk.row_sums(np.ones(d), STEPS, 2), np.sum(integers * integers, axis=1)),
        (chunk.row_sums(np.ones(d), STEPS, 1), np.sum(np.abs(integers), axis=1)),
    )
    if not all(np.array_equal(found, expected) for found, expected in pairs):
        raise SelfTestError(
            "the 'gpu' engine does not add integers exactly on this machine: it is not used for private sums. Please "
            "report it, and use engine='numpy'."
        )


# Numbers that NumPy computes with at a time: they stay in a core's second-level cache.
_PIECE = 2**14

_Function = Callable[[Slopes, np.ndarray], np.ndarray]


def gradient(records: Records, loss: Loss, x: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Return the sum of slope x record for each column of x."""
    points = _columns(x, loss)

    def term(chunk: CardChunk) -> np.ndarray:
        return chunk.added(_by_pieces(chunk, loss, chunk.products(points), Slopes.derivative))

    return stacked(_total(records, term, rows, points), loss.outputs, x.shape)


def loss(records: Records, loss: Loss, x: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Return the sum of the losses for each column of x."""
    points = _columns(x, loss)
    return _total(records, lambda chunk: _slopes(chunk, loss).total(chunk.products(points)), rows, points)


def hessian(records: Records, loss: Loss, x: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Return the sum of the losses' second derivatives x u u' at one point."""
    points = _columns(x, loss)

    def term(chunk: CardChunk) -> np.ndarray:
        margins = chunk.products(points)
        return outer(_slopes(chunk, loss).second(margins if loss.outputs > 1 else margins[:, 0]), chunk.outer)

    return _total(records, term, rows, points)


def exact_gradient(records: Records, loss: Loss, points: Points, rows: np.ndarray | None) -> np.ndarray:
    """Return the exact sum of level x record, one column for each point."""
    coefficients = side_by_side(points.coefficients, loss.outputs)

    def term(chunk: CardChunk) -> np.ndarray:
        products = chunk.products(coefficients)
        return chunk.gather(_by_pieces(chunk, loss, products, lambda slopes, piece: slopes.levels(piece, points)))

    parts = over(records, term, rows, 3 * coefficients.shape[1])
    sums = grid.total(parts, records.count if rows is None else len(rows))
    return stacked(sums, loss.outputs, points.coefficients.shape)


def _columns(x: np.ndarray, loss: Loss) -> np.ndarray:
    """Return points as columns, of which each output of the loss has one."""
    return side_by_side(x.reshape(len(x), -1), loss.outputs)


def _slopes(chunk: CardChunk, loss: Loss) -> Slopes:
    return Slopes(loss, chunk.targets, chunk.steepest)


def _by_pieces(chunk: CardChunk, loss: Loss, margins: np.ndarray, function: _Function) -> np.ndarray:
    """Return what a function makes of slopes and margins, of a few records at a time."""
    if len(chunk) == 0:
        return margins
    slopes, size = _slopes(chunk, loss), max(256, _PIECE // margins.shape[1])
    starts = range(0, len(chunk), size)
    return np.concatenate([function(slopes[i : i + size], margins[i : i + size]) for i in starts])


def _total(
    records: Records, term: Callable[[CardChunk], np.ndarray], rows: np.ndarray | None, points: np.ndarray
) -> np.ndarray:
    """Add what a term makes of chunks, in their order."""
    return np.sum(over(records, term, rows, 3 * points.shape[1]), axis=0)
