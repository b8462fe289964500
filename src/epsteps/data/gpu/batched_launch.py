"""Launches of the float kernels for many points: where they serve, and which shape of program."""

from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from epsteps.data.gpu import batched as kernels
from epsteps.data.gpu.records import FEATURE_MAJOR, Block

# Numbers in the records from which these kernels serve: on 2 million, in figure 3, they were not faster.
FEWEST = 2**24
# Points that are taken at a time, so that partial sums stay small.
_MOST = 64
# Tiles that a float32 accumulator takes.
_TILES = 256
# Bytes of slopes that are kept between two reads of the records.
_SLOPES = 2**28


class Shape(NamedTuple):
    """From how many points on; a program's tile of records and features, its warps, loads ahead; programs per unit."""

    least: int
    B: int
    F: int
    warps: int
    stages: int
    each: int


# The fastest of those tried on an H200, by features: a power of two.
SHAPES: dict[str, dict[int, Shape]] = {
    "gradient": {
        16: Shape(12, 32, 16, 1, 2, 24),
        32: Shape(8, 32, 32, 1, 2, 24),
        64: Shape(6, 64, 64, 4, 1, 24),
        128: Shape(8, 64, 128, 4, 1, 8),
        256: Shape(6, 32, 128, 4, 3, 4),
    },
    "slopes": {256: Shape(6, 128, 64, 4, 3, 0)},
    "loss": {
        16: Shape(24, 128, 16, 4, 1, 32),
        32: Shape(16, 64, 32, 4, 1, 32),
        64: Shape(8, 64, 32, 4, 1, 32),
        128: Shape(2, 128, 64, 4, 1, 4),
        256: Shape(2, 128, 64, 4, 3, 32),
    },
}


def serves(what: str, block: Block, columns: int) -> bool:
    """Whether these kernels are the faster ones."""
    return block.features.numel() >= FEWEST and columns >= _shape(what, len(block.features)).least


def gradient(block: Block, x: np.ndarray, kind: int) -> torch.Tensor:
    """Return the sum of slope x record for each column of x."""
    return _in_batches(_in_one_read if len(x) <= FEATURE_MAJOR else _in_two_reads, block, x, kind)[: len(x)]


def loss(block: Block, x: np.ndarray, kind: int) -> torch.Tensor:
    """Return the sum of the losses for each column of x."""
    return _in_batches(_losses, block, x, kind)


def padded(d: int) -> int:
    """Return the features of a tile: a power of two."""
    return max(16, 1 << (d - 1).bit_length())


def programs_for(device: torch.device, stored: int, rows: int, each: int) -> int:
    """Return how many programs share the records: a fixed number per processor, fewer for few records."""
    most = torch.cuda.get_device_properties(device).multi_processor_count * each
    return max(1, min(most, -(-stored // rows)))


def _shape(what: str, d: int) -> Shape:
    return SHAPES[what][min(padded(d), 256)]


def _in_batches(f: Any, block: Block, x: np.ndarray, kind: int) -> torch.Tensor:
    parts = [x[:, start : start + _MOST] for start in range(0, x.shape[1], _MOST)]
    return torch.cat([f(block, part, *_points(part, block), kind)[..., : part.shape[1]] for part in parts], dim=-1)


def _points(x: np.ndarray, block: Block) -> tuple[torch.Tensor, int]:
    """Return the points on the card, padded by zeros, and how many a program takes."""
    d, columns = x.shape
    R = min(32, padded(columns))
    theta = np.zeros((padded(d), -(-columns // R) * R), dtype=np.float32)
    theta[:d, :columns] = x
    return torch.from_numpy(theta).to(block.features.device), R


def _runs(device: torch.device, stored: int, shape: Shape) -> tuple[int, int]:
    """Return how many programs share the records, and how many tiles each takes: not too many for float32."""
    programs = programs_for(device, stored, shape.B, shape.each)
    tiles = min(-(-stored // (shape.B * programs)), _TILES)
    return -(-stored // (shape.B * tiles)), tiles


def _quads(block: Block) -> int:
    """Return a quarter of the larger stride, which is a multiple of four."""
    return max(block.features.stride()) // 4


def _in_one_read(block: Block, x: np.ndarray, theta: torch.Tensor, R: int, kind: int) -> torch.Tensor:
    d, stored, (D, width), shape = len(x), block.features.shape[1], theta.shape, _shape("gradient", len(x))
    programs, tiles = _runs(theta.device, stored, shape)
    out = torch.empty((programs, D, width), dtype=torch.float32, device=theta.device)
    with torch.cuda.device(theta.device):
        kernel: Any = kernels.gradients
        kernel[(programs * (width // R),)](
            block.features, block.targets, theta, out, stored, _quads(block), width // R, tiles,
            d, D, shape.B, R, kind, shape.stages, num_warps=shape.warps,
        )  # fmt: skip
    return out.sum(dim=0, dtype=torch.float64)


def _in_two_reads(block: Block, x: np.ndarray, theta: torch.Tensor, R: int, kind: int) -> torch.Tensor:
    d, stored, (D, width), device = len(x), block.features.shape[1], theta.shape, theta.device
    first, second = _shape("slopes", d), _shape("gradient", d)
    total = torch.zeros((D, width), dtype=torch.float64, device=device)
    size = min(stored, _SLOPES // (4 * width))
    slopes = torch.empty((size, width), dtype=torch.float32, device=device)
    for start in range(0, stored, size):
        stop = min(start + size, stored)
        at = start, stop, _quads(block), width // R
        programs, tiles = _runs(device, stop - start, second)
        out = torch.empty((programs, D, width), dtype=torch.float32, device=device)
        with torch.cuda.device(device):
            kernel: Any = kernels.slopes
            kernel[(-(-(stop - start) // first.B) * (width // R),)](
                block.features, block.targets, theta, slopes, *at, d, first.F, first.B, R, kind, first.stages,
                num_warps=first.warps,
            )  # fmt: skip
            kernel = kernels.products
            kernel[(programs * (width // R) * (D // second.F),)](
                block.features, slopes, out, *at, tiles, d, D, second.F, second.B, R, second.stages,
                num_warps=second.warps,
            )  # fmt: skip
        total += out.sum(dim=0, dtype=torch.float64)
    return total


def _losses(block: Block, x: np.ndarray, theta: torch.Tensor, R: int, kind: int) -> torch.Tensor:
    d, stored, width, shape = len(x), block.features.shape[1], theta.shape[1], _shape("loss", len(x))
    programs, tiles = _runs(theta.device, stored, shape)
    out = torch.empty((programs, width), dtype=torch.float32, device=theta.device)
    with torch.cuda.device(theta.device):
        kernel: Any = kernels.losses
        kernel[(programs * (width // R),)](
            block.features, block.targets, theta, out, stored, block.count, _quads(block), width // R, tiles,
            d, shape.F, shape.B, R, kind, d <= FEATURE_MAJOR, shape.stages, num_warps=shape.warps,
        )  # fmt: skip
    return out.sum(dim=0, dtype=torch.float64)
