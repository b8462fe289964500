"""A peer: AdaSSP, linear regression from noisy sufficient statistics with an adaptive ridge (Wang, UAI 2018, Alg. 2).

Private by (epsilon, delta) for a record that is added or removed, a weaker promise than replace-one, which favours it
by up to a factor 2 in the noise. The task's ridge is public and is added to the second moment.
"""

import numpy as np

from accuracy_parts.tasks import Task

FAILURE = 0.05  # the paper's probability that the adaptive ridge is too small


def fit(task: Task, epsilon: float, delta: float, rng: np.random.Generator) -> np.ndarray:
    """Return one model."""
    size, log_delta = task.encoding.largest(2), np.log(6 / delta)
    bound = np.sqrt(2 * task.loss.value_at_zero)  # of the targets: a loss at 0 is at most bound²/2
    sigma = np.sqrt(log_delta) / (epsilon / 3)
    moment = task.X.T @ task.X + task.n * task.ridge * np.eye(task.d)
    lowest = np.linalg.eigvalsh(moment)[0] + size**2 * (sigma * rng.standard_normal() - log_delta / (epsilon / 3))
    wanted = np.sqrt(task.d * np.log(2 * task.d**2 / FAILURE)) * sigma * size**2
    upper = np.triu(rng.standard_normal((task.d, task.d)))
    moment += sigma * size**2 * (upper + np.triu(upper, 1).T)
    response = task.X.T @ task.y + sigma * size * bound * rng.standard_normal(task.d)
    return np.linalg.solve(moment + max(0.0, wanted - max(lowest, 0.0)) * np.eye(task.d), response)
