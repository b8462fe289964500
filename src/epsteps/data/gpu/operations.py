"""Sums over a block of records by plain torch operations in float64, on any device.

For the exact sums each operation is one of IEEE 754 on its own, as ``epsteps.problem.levels`` asks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from epsteps.data.gpu.records import LOGISTIC, Block
from epsteps.problem import grid, levels
from epsteps.problem.grid import Points
from epsteps.problem.levels import INWARD

# Numbers that are converted to float64 at a time.
_CHUNK = 2**24


@dataclass(frozen=True)
class Target:
    """Points of the grid as the device needs them: coefficients (d, R), and step and levels per slope (R,).

    ``scale`` are the levels per slope as the loss rounds them, ``exact_scale`` in float64.
    """

    coefficients: torch.Tensor
    step: torch.Tensor
    scale: torch.Tensor
    exact_scale: torch.Tensor

    @classmethod
    def of(cls, points: Points, kind: int, device: torch.device, shape: tuple[int, int] | None = None) -> "Target":
        """Return the points in float64, padded by zeros to ``shape``."""
        d, columns = points.coefficients.shape
        rows, width = shape or (d, columns)
        # The logistic levels are computed in float32, this division too.
        precision = np.float32 if kind == LOGISTIC else np.float64
        with np.errstate(all="ignore"):
            per_slope = precision(levels.STEPS) / points.bound.astype(precision)
            facts = points.step, per_slope, levels.STEPS / points.bound
        packed = np.zeros((rows + 3, width))
        packed[:d, :columns], packed[rows:, :columns] = points.coefficients, facts
        sent = torch.from_numpy(packed).to(device)
        return cls(sent[:rows], *sent[rows:])


def gradient(block: Block, x: torch.Tensor, kind: int) -> torch.Tensor:
    """Return the sum of slope x record for each column of x (float64)."""
    total = torch.zeros_like(x)
    for features, targets, steepest in _chunks(block, x.shape[1]):
        margin = x.T @ features
        slope = 0.5 * (torch.tanh(0.5 * margin) - targets) if kind == LOGISTIC else margin - targets
        if steepest is not None:
            slope = slope.clamp(-steepest, steepest)
        total += features @ slope.T
    return total


def loss(block: Block, x: torch.Tensor, kind: int) -> torch.Tensor:
    """Return the sum of the losses for each column of x (float64)."""
    total = torch.zeros_like(x[0])
    for features, targets, _ in _chunks(block, x.shape[1]):
        margin = x.T @ features
        if kind == LOGISTIC:
            size = margin.abs()
            value = torch.log1p(torch.exp(-size)) + 0.5 * (size - targets * margin)
        else:
            value = 0.5 * (margin - targets).square()
        total += value.sum(dim=1)
    return total


def hessian(block: Block, x: torch.Tensor, kind: int) -> torch.Tensor:
    """Return the sum of the losses' second derivatives x u u' at one point (float64)."""
    d = len(block.features)
    total = torch.zeros((d, d), dtype=torch.float64, device=block.features.device)
    for features, _, _ in _chunks(block, d):
        if kind == LOGISTIC:
            margin = (x.T @ features)[0]
            total += (features * (torch.sigmoid(margin) * torch.sigmoid(-margin))) @ features.T
        else:
            total += features @ features.T
    return total


def exact_gradient(block: Block, points: Target, kind: int) -> list[np.ndarray]:
    """Return int64 sums of level x record, each over at most 2^22 records."""

    def term(features: torch.Tensor, targets: torch.Tensor, steepest: torch.Tensor | None) -> torch.Tensor:
        margin = (points.coefficients.T @ features) * points.step[:, None]
        level = (logistic_levels if kind == LOGISTIC else residual_levels)(margin, targets, points.scale[:, None])
        level = level.double()
        if steepest is not None:
            most = torch.nan_to_num(torch.floor(steepest * points.exact_scale[:, None] * INWARD), nan=0.0)
            level = level.clamp(-most, most)
        return exact_product(features, level)

    return _parts(block, points.coefficients.shape[1], term)


def logistic_levels(margin: torch.Tensor, label: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Repeat ``levels.logistic``."""
    m, label = margin.float(), label.float()
    w = m.abs().clamp(max=float(levels.LARGEST_MARGIN))
    k = torch.floor(w * float(levels.LOG2_E) + 0.5)
    r = (w - k * float(levels.LN2_HIGH)) - k * float(levels.LN2_LOW)
    square = r * r
    c0, c1, c2, c3, c4, c5, c6 = map(float, levels.EXP_COEFFICIENTS)
    low = (c0 + r * c1) + (c2 + r * c3) * square
    high = (c4 + r * c5) + square * c6
    power = ((127 - k.int()) << 23).view(torch.float32)
    small = (low + high * (square * square)) * power
    small = small / (1.0 + small)
    share = torch.where(label * m > 0, small, 1.0 - small)
    steps = torch.floor(share * scale.float() + 0.5)
    return -label * steps.clamp(0.0, float(levels.STEPS))


def residual_levels(margin: torch.Tensor, target: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Repeat ``levels.residual``."""
    steps = torch.floor((margin - target) * scale + 0.5)
    return torch.nan_to_num(steps, nan=0.0).clamp(-float(levels.STEPS), float(levels.STEPS))


def _chunks(block: Block, columns: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """Yield features (d, rows) and targets in float64, and the steepest slopes where gradients are clipped."""
    size = max(grid.ROWS_PER_DOUBLE, _CHUNK // (len(block.features) + 2 * columns))
    size = min(size // grid.ROWS_PER_DOUBLE * grid.ROWS_PER_DOUBLE, grid.ROWS_PER_INT64)
    for start in range(0, block.count, size):
        stop = min(start + size, block.count)
        steepest = None if block.steepest is None else block.steepest[start:stop]
        yield block.features[:, start:stop].double(), block.targets[start:stop].double(), steepest


def _parts(block: Block, columns: int, term) -> list[np.ndarray]:
    """Add int64 terms of chunks, and begin anew before more than 2^22 records are in a sum."""
    parts, total, held = [], None, 0
    for features, targets, steepest in _chunks(block, columns):
        found, rows = term(features, targets, steepest), features.shape[1]
        if total is not None and held + rows > grid.ROWS_PER_INT64:
            parts.append(total.cpu().numpy())
            total, held = None, 0
        total, held = found if total is None else total + found, held + rows
    return parts if total is None else [*parts, total.cpu().numpy()]


def exact_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return left @ right.T of integers, (a, rows) and (b, rows), in doubles that take at most 2^13 rows each."""
    size = grid.ROWS_PER_DOUBLE
    whole = left.shape[1] // size * size
    rest = (left[:, whole:] @ right[:, whole:].T).long()
    if not whole:
        return rest
    first, second = (side[:, :whole].unflatten(1, (-1, size)).transpose(0, 1) for side in (left, right))
    return torch.bmm(first, second.transpose(1, 2)).long().sum(dim=0) + rest
