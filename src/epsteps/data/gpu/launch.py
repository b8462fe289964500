"""Launches of the compiled kernels: which shape of program for which number of features and points."""

from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from epsteps.data.gpu import batched_launch as batched
from epsteps.data.gpu import kernels
from epsteps.data.gpu.batched_launch import padded, programs_for
from epsteps.data.gpu.operations import Target
from epsteps.data.gpu.records import Block
from epsteps.problem import grid
from epsteps.problem.grid import Points

# More features than this make a tile too large for registers.
_LARGEST_D = 4096
# Records that a float32 accumulator takes before it is added to a float64.
_TILES = 64


class Shape(NamedTuple):
    """A program's tile of records, its points and warps, how many run on a processor, and who holds what in a tile.

    Sums of integers are the same whatever the shape; float sums differ in their last digits.
    """

    B: int
    C: int
    warps: int
    each: int
    scalar: bool


# The fastest of those tried on an H200, for one point and for a few, by features: a power of two.
_SHAPES: dict[str, tuple[dict[int, Shape], dict[int, Shape]]] = {
    "gradient": (
        {
            16: Shape(512, 1, 4, 16, False),
            32: Shape(512, 1, 4, 16, False),
            64: Shape(128, 1, 4, 16, True),
            128: Shape(64, 1, 4, 8, False),
            256: Shape(16, 1, 2, 16, False),
        },
        {
            16: Shape(64, 2, 2, 8, True),
            32: Shape(512, 1, 4, 8, False),
            64: Shape(128, 1, 4, 8, True),
            128: Shape(32, 2, 2, 8, False),
            256: Shape(16, 2, 2, 8, False),
        },
    ),
    "loss": (
        {
            16: Shape(256, 1, 8, 8, True),
            32: Shape(256, 1, 8, 8, True),
            64: Shape(256, 1, 4, 8, False),
            128: Shape(64, 1, 4, 8, False),
            256: Shape(16, 1, 2, 8, False),
        },
        {
            16: Shape(128, 4, 4, 8, True),
            32: Shape(128, 4, 4, 8, True),
            64: Shape(256, 4, 8, 8, True),
            128: Shape(64, 4, 4, 8, True),
            256: Shape(8, 4, 2, 8, False),
        },
    ),
    "exact": (
        {
            16: Shape(256, 1, 8, 8, True),
            32: Shape(128, 1, 2, 16, False),
            64: Shape(256, 1, 8, 4, True),
            128: Shape(64, 1, 4, 4, False),
            256: Shape(4, 1, 2, 8, False),
        },
        {
            16: Shape(256, 2, 8, 4, True),
            32: Shape(256, 2, 8, 4, True),
            64: Shape(256, 1, 8, 4, True),
            128: Shape(32, 1, 4, 4, True),
            256: Shape(8, 1, 4, 4, False),
        },
    ),
}


def serves(d: int) -> bool:
    """Whether the kernels are made for this many features."""
    return d <= _LARGEST_D


def shape(what: str, d: int, columns: int) -> Shape:
    """Return the shape for a sum; above 256 features, the tile of records shrinks as they grow."""
    D = padded(d)
    found = _SHAPES[what][columns > 1][min(D, 256)]
    return found._replace(B=max(1, found.B * min(D, 256) // D))


def gradient(block: Block, x: np.ndarray, kind: int, found: Shape | None = None) -> torch.Tensor:
    """Return the sum of slope x record for each column of x."""
    if found is None and batched.serves("gradient", block, x.shape[1]):
        return batched.gradient(block, x, kind)
    return _launch("gradient", block, x, kind, found)[: len(x)]


def loss(block: Block, x: np.ndarray, kind: int, found: Shape | None = None) -> torch.Tensor:
    """Return the sum of the losses for each column of x."""
    if found is None and batched.serves("loss", block, x.shape[1]):
        return batched.loss(block, x, kind)
    return _launch("loss", block, x, kind, found)


def exact(block: Block, points: Points, kind: int, found: Shape | None = None) -> list[np.ndarray]:
    """Return int64 sums of level x record, each over at most 2^22 records."""
    d, columns = points.coefficients.shape
    B, C, warps, each, scalar = found or shape("exact", d, columns)
    D, groups, device = padded(d), -(-columns // C), block.features.device
    target = Target.of(points, kind, device, (D, groups * C))
    stored, parts = block.features.shape[1], []
    programs = programs_for(device, stored, B, each)
    # An accumulator takes one record per tile: a launch gives a program at most 2^13 tiles.
    span = programs * B * grid.ROWS_PER_DOUBLE
    for start in range(0, stored, span):
        stop = min(start + span, stored)
        out = torch.empty((programs, D, groups * C), dtype=torch.int64, device=device)
        with torch.cuda.device(device):
            kernel: Any = kernels.exact
            kernel[(programs * groups,)](
                block.features, block.targets, target.coefficients, target.step, target.scale, out, start, stop,
                *block.features.stride(), 0, groups, programs, d, D, B, C, kind, scalar, scalar,
                num_warps=warps, enable_fp_fusion=False,
            )  # fmt: skip
        rows = -(-(stop - start) // (programs * B)) * B
        together = max(1, grid.ROWS_PER_INT64 // rows)
        sums = [part.sum(dim=0) for part in out.split(together)]
        parts.extend(torch.stack(sums)[:, :d, :columns].cpu().numpy())
    return parts


def _launch(what: str, block: Block, x: np.ndarray, kind: int, found: Shape | None) -> torch.Tensor:
    d, columns = x.shape
    B, C, warps, each, scalar = found or shape(what, d, columns)
    D, groups, device, stored = padded(d), -(-columns // C), block.features.device, block.features.shape[1]
    programs = programs_for(device, stored, B, each)
    # Runs as long as allowed, and such that programs get the same number of them.
    runs = -(-stored // (B * programs * _TILES))
    tiles = -(-stored // (B * programs * runs))
    theta = np.zeros((D, groups * C), dtype=np.float32)
    theta[:d, :columns] = x
    size = (programs, groups * C) if what == "loss" else (programs, D, groups * C)
    out = torch.empty(size, dtype=torch.float64, device=device)
    kernel: Any = getattr(kernels, what)
    with torch.cuda.device(device):
        kernel[(programs * groups,)](
            block.features, block.targets, torch.from_numpy(theta).to(device), out, stored,
            *([block.count] if what == "loss" else []), *block.features.stride(), 0, groups, programs, tiles,
            d, D, B, C, kind, scalar, num_warps=warps,
        )  # fmt: skip
    return out.sum(dim=0)[..., :columns]
