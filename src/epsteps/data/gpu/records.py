"""Records for torch: on the card as a whole where they fit, else in host memory and copied over block by block."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from epsteps.data.engine import kernel_of, map_parts
from epsteps.problem.losses import Loss

LOGISTIC, SQUARED = 0, 1
# Up to here a feature's values lie side by side, above a record's: what lets a kernel read a tile at full speed.
FEATURE_MAJOR = 128
# Records are stored in multiples of this, with zeros at the end, so that the card loads four numbers at a time.
_MULTIPLE = 64
# Share of the card's free memory that records may take, and bytes that are copied to it at a time.
_SHARE = 0.8
_STAGE_BYTES = 2**26


class NoDeviceError(OSError):
    """The gpu engine was named where torch finds no card."""


def find_device(device: Any = None) -> torch.device:
    """Return the device that was asked for, or the card; nothing is computed elsewhere instead of there."""
    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    raise NoDeviceError(
        "the gpu engine needs a CUDA card, and torch finds none: use engine='auto', or install a CUDA build of torch."
    )


def kind_of(loss: Loss) -> int | None:
    """Return the number of a loss that has code for the card; None for others, whose slopes NumPy computes."""
    return {"logistic": LOGISTIC, "squared": SQUARED}.get(kernel_of(loss) or "")


@dataclass(frozen=True)
class Block:
    """Records on the device: features (d, stored) in either order, zero beyond ``count``, and targets (stored,).

    ``steepest`` (count,), in float64, has the largest slope of each record whose gradient is not clipped.
    """

    features: torch.Tensor
    targets: torch.Tensor
    count: int
    steepest: torch.Tensor | None = None


class Records:
    """Features and targets in float32, as blocks on the device; ``targets`` are on the host as well.

    Parameters
    ----------
    features, targets : arrays of shapes (n, d) and (n,)
    device : torch.device
    memory : int, optional
        Bytes that the records may take on the device; 80 % of what is free by default. Records that need more stay in
        host memory.
    steepest : array of shape (n,), optional
        The largest slope of each record whose gradient is not clipped.
    """

    def __init__(
        self,
        features: np.ndarray,
        targets: np.ndarray,
        device: torch.device,
        memory: int | None,
        steepest: np.ndarray | None = None,
    ) -> None:
        if features.ndim != 2 or targets.shape != features.shape[:1]:
            raise ValueError(f"features and targets must fit, got shapes {features.shape} and {targets.shape}.")
        self.count, self.d = features.shape
        self.device = device
        self.targets, self.steepest = np.ascontiguousarray(targets, dtype=np.float32), steepest
        self._host = features
        row = 4 * (self.d + 1)
        memory = _free(device) if memory is None else memory
        self._resident: Block | None = None
        if self.count * row <= memory:
            self._resident = self._upload(0, self.count)
            self._host = np.empty((0, self.d))  # what is on the card is not kept here
        # A block in use, the next one, and each as it was copied over: four times a block.
        self._size = max(_MULTIPLE, min(memory // (4 * row), 2**22) // _MULTIPLE * _MULTIPLE)

    @classmethod
    def from_block(cls, block: Block) -> "Records":
        """Return records that are on their device already."""
        records = cls.__new__(cls)
        records.d, records.count, records.device = len(block.features), block.count, block.features.device
        records._resident, records.steepest = block, None
        records.targets = block.targets[: block.count].cpu().numpy()
        return records

    @property
    def clipped(self) -> bool:
        """Whether gradients are clipped."""
        return self.steepest is not None

    def blocks(self) -> Iterator[Block]:
        """Yield all records, block by block; the next one is copied over while one is in use."""
        if self._resident is not None:
            yield self._resident
            return
        starts = range(0, self.count, self._size)
        if self.device.type != "cuda":
            yield from (self._upload(start, min(start + self._size, self.count)) for start in starts)
            return
        copying = torch.cuda.Stream(self.device)
        computing = torch.cuda.current_stream(self.device)
        waiting: Block | None = None
        for start in starts:
            with torch.cuda.stream(copying):
                block = self._upload(start, min(start + self._size, self.count))
            done = copying.record_event()
            if waiting is not None:
                yield waiting
                # One block in use, one on its way: the copy after this one waits until the first is free.
                copying.wait_event(computing.record_event())
            computing.wait_event(done)
            for tensor in (block.features, block.targets, block.steepest):
                if tensor is not None:
                    tensor.record_stream(computing)
            waiting = block
        if waiting is not None:
            yield waiting

    def take(self, rows: np.ndarray) -> Block:
        """Return these records as a block."""
        if self._resident is None:
            block = _uploaded(np.take(self._host, rows, axis=0), np.take(self.targets, rows), self.device)
            return self._limited(block, rows)
        index = torch.from_numpy(np.array(rows, dtype=np.int64)).to(self.device)
        block = _empty(self.d, len(index), self.device)
        block.features[:, : block.count] = self._resident.features[:, index]
        block.targets[: block.count] = self._resident.targets[index]
        return self._limited(block, rows)

    def _upload(self, start: int, stop: int) -> Block:
        part = slice(start, stop)
        return self._limited(_uploaded(self._host[part], self.targets[part], self.device), part)

    def _limited(self, block: Block, rows: slice | np.ndarray) -> Block:
        """Return the block with its records' steepest slopes, if there are any."""
        if self.steepest is None:
            return block
        return replace(block, steepest=torch.from_numpy(np.array(self.steepest[rows])).to(self.device))


def _free(device: torch.device) -> int:
    return int(_SHARE * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 2**62


def _empty(d: int, count: int, device: torch.device) -> Block:
    """Return a block of zeros, in the order that suits its number of features."""
    stored = -(-count // _MULTIPLE) * _MULTIPLE
    if d <= FEATURE_MAJOR:
        features = torch.zeros((d, stored), dtype=torch.float32, device=device)
    else:
        features = torch.zeros((stored, -(-d // 4) * 4), dtype=torch.float32, device=device)[:, :d].T
    return Block(features, torch.zeros(stored, dtype=torch.float32, device=device), count)


def _uploaded(features: np.ndarray, targets: np.ndarray, device: torch.device) -> Block:
    """Return a block of these records: copied through two pinned buffers in turn, and put in order on the device."""
    count, d = features.shape
    block = _empty(d, count, device)
    size = max(1, min(count, _STAGE_BYTES // (4 * (d + 1))))
    cuda = device.type == "cuda"
    stages = [torch.empty((size, d + 1), dtype=torch.float32, pin_memory=cuda) for _ in range(2)]
    free: list[Any] = [None, None]
    for number, start in enumerate(range(0, count, size)):
        stage, stop = stages[number % 2][: min(size, count - start)], min(start + size, count)
        if free[number % 2] is not None:
            free[number % 2].synchronize()
        _copy(stage.numpy(), features[start:stop], targets[start:stop])
        copied = stage.to(device, non_blocking=cuda)
        block.features[:, start:stop], block.targets[start:stop] = copied[:, :d].T, copied[:, d]
        if cuda:
            free[number % 2] = torch.cuda.current_stream(device).record_event()
    return block


def _copy(to: np.ndarray, features: np.ndarray, targets: np.ndarray) -> None:
    """Copy in threads, as one core does not keep up with the bus."""
    d = features.shape[1]

    def part(start: int, stop: int) -> None:
        np.copyto(to[start:stop, :d], features[start:stop], casting="same_kind")
        np.copyto(to[start:stop, d], targets[start:stop], casting="same_kind")

    map_parts(part, len(features), work=d)
