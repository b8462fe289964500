"""A peer: gradient descent with clipped records and Gaussian noise, as DP-SGD libraries do it, at its best.

Full batches: at equal privacy they need the least noise, so that sampling could only save time. T steps with an
even split are exactly mu-Gaussian-DP, replace-one. Steps, clipping norm and step size are the best of GRID on the
MEASURED excess risk, which costs no privacy here and would in practice: this favours the peer.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from accuracy_parts.tasks import Task
from epsteps.budgets.conversions import gaussian_mu

CHOOSING_RUNS = 3


@dataclass(frozen=True)
class Setting:
    """Steps; clipping norm over the largest record's norm; step size times the public smoothness constant."""

    steps: int
    clip: float
    rate: float


GRID = tuple(
    Setting(*setting) for setting in product((10, 30, 100, 300), (1.0, 0.5, 0.25, 0.1), (1.0, 4.0, 16.0, 64.0))
)
QUICK_GRID = tuple(Setting(*setting) for setting in product((30, 100), (0.5, 0.1), (4.0, 16.0)))


def best_setting(task: Task, epsilon: float, delta: float, seed: int, grid: tuple[Setting, ...]) -> Setting:
    """Return the setting with the smallest mean excess risk over a few runs of their own seed."""
    rng, errors = np.random.default_rng([seed, 7]), {}
    for steps in sorted({setting.steps for setting in grid}):  # settings with equal steps run as one matrix
        some = [setting for setting in grid if setting.steps == steps]
        x = descend(task, [setting for setting in some for _ in range(CHOOSING_RUNS)], epsilon, delta, rng)
        excess = task.objective.excess(x).reshape(len(some), CHOOSING_RUNS).mean(axis=1)
        errors |= dict(zip(some, excess, strict=True))
    return min(errors, key=lambda setting: errors[setting])


def descend(task: Task, settings: list[Setting], epsilon: float, delta: float, rng: np.random.Generator) -> np.ndarray:
    """Return the last iterates of independent runs from 0, one column for each setting; their steps are equal."""
    (steps,) = {setting.steps for setting in settings}
    X, targets = task.X.astype(np.float32), task.y.astype(np.float32)[:, None]
    largest = task.encoding.largest(2)
    clips = largest * np.array([setting.clip for setting in settings])
    rates = np.array([setting.rate for setting in settings]) / (task.loss.curvature * largest**2 + task.ridge)
    sigmas = 2 * clips / task.n * np.sqrt(steps) / gaussian_mu(epsilon, delta)
    norms = np.maximum(np.linalg.norm(X, axis=1), np.float32(1e-12))[:, None]
    limits = clips.astype(np.float32) / norms
    x = np.zeros((task.d, len(settings)))
    for _ in range(steps):
        slopes = task.loss.derivative(X @ x.astype(np.float32), targets)
        gradient = X.T @ np.clip(slopes, -limits, limits, out=slopes) / task.n
        x = x - rates * (gradient + task.ridge * x + sigmas * rng.standard_normal(x.shape))
        x = np.clip(x, -1e3, 1e3)  # a diverged run is a bad one, not an overflow
    return x
