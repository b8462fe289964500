"""A peer: DP-SGD as Opacus and TensorFlow Privacy run it: Poisson samples, clipped records, Gaussian noise.

The noise comes from numerical composition of privacy loss distributions (dp-accounting), for a record that is added
or removed: a weaker promise than replace-one, which favours the peer. So does the choice of its setting, the best of
GRID on the MEASURED excess risk.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import dp_accounting as accounting
import numpy as np

from accuracy_parts.tasks import Task
from epsteps.budgets.conversions import gaussian_mu

CHOOSING_RUNS = 3


@dataclass(frozen=True)
class Setting:
    """Steps and sampling rate; clipping norm over the largest record's; step size times the public smoothness."""

    steps: int
    sampled: float
    clip: float
    rate: float


GRID = tuple(
    Setting(steps, sampled, clip, rate)
    for (steps, sampled), clip, rate in product(
        ((100, 0.05), (300, 0.05), (1000, 0.05)), (0.5, 0.25, 0.1), (1.0, 4.0, 16.0)
    )
)
QUICK_GRID = tuple(Setting(300, 0.05, clip, rate) for clip, rate in product((0.5, 0.1), (1.0, 4.0)))


@lru_cache
def noise_multiplier(steps: int, sampled: float, epsilon: float, delta: float) -> float:
    """Return the least noise over clipping norm with which so many steps are (epsilon, delta)-private, to 0.1 %.

    It is sought near sampled √steps/mu, what mu-Gaussian-DP steps would need if sampling amplified perfectly.
    """
    near = sampled * np.sqrt(steps) / gaussian_mu(epsilon, delta)
    add_or_remove = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE

    def event(multiplier: float) -> accounting.DpEvent:
        one = accounting.PoissonSampledDpEvent(sampled, accounting.GaussianDpEvent(multiplier))
        return accounting.SelfComposedDpEvent(one, steps)

    return accounting.calibrate_dp_mechanism(
        lambda: accounting.pld.PLDAccountant(add_or_remove, value_discretization_interval=1e-3),
        event,
        epsilon,
        delta,
        accounting.ExplicitBracketInterval(0.9 * near, max(2 * near, 2.0)),
        tol=1e-3 * near,
    )


def best_setting(task: Task, epsilon: float, delta: float, seed: int, grid: tuple[Setting, ...]) -> Setting:
    """Return the setting with the smallest mean excess risk over a few runs of their own seeds."""
    seeds = [[seed, 9, run] for run in range(CHOOSING_RUNS)]
    errors = []
    for setting in grid:
        x = np.stack([descend(task, setting, epsilon, delta, np.random.default_rng(s)) for s in seeds], axis=1)
        errors.append(float(np.mean(task.objective.excess(x))))
    return grid[int(np.argmin(errors))]


def descend(task: Task, setting: Setting, epsilon: float, delta: float, rng: np.random.Generator) -> np.ndarray:
    """Return the last iterate of one run from 0."""
    largest, expected = task.encoding.largest(2), setting.sampled * task.n
    clip = setting.clip * largest
    rate = setting.rate / (task.loss.curvature * largest**2 + task.ridge)
    sigma = noise_multiplier(setting.steps, setting.sampled, epsilon, delta) * clip / expected
    limits = clip / np.maximum(np.linalg.norm(task.X, axis=1), 1e-12)
    x = np.zeros(task.d)
    for _ in range(setting.steps):
        rows = np.flatnonzero(rng.random(task.n, dtype=np.float32) < setting.sampled)
        X, limit = task.X[rows], limits[rows]
        slopes = np.clip(task.loss.derivative(X @ x, task.y[rows]), -limit, limit)
        x = x - rate * (slopes @ X / expected + task.ridge * x + sigma * rng.standard_normal(task.d))
        x = np.clip(x, -1e3, 1e3)  # a diverged run is a bad one, not an overflow
    return x
