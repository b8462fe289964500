"""Two peers for linear regression: AdaSSP (Wang, UAI 2018, Alg. 2) and its boosting (Tang et al., SaTML 2024, Alg. 1).

AdaSSP solves noisy sufficient statistics with an adaptive ridge. Both are private by (epsilon, delta) for a record that
is added or removed, a weaker promise than replace-one, which favours them by up to a factor 2 in the noise. The task's
ridge is public and is added to the second moment.
"""

import numpy as np

from accuracy_parts.tasks import Task
from epsteps.budgets.conversions import gaussian_mu

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


ROUNDS = 100  # the paper's default, as is a bound on the residuals that equals the targets'


def boosted(task: Task, epsilon: float, delta: float, rng: np.random.Generator) -> np.ndarray:
    """Return one model: the noisy second moment is bought once, each round buys the residuals' response again.

    Second moment, least eigenvalue and all rounds together each have a third of mu². Residuals are clipped to the
    targets' bound. As in AdaSSP, the ridge makes up for what the noise may have taken from the least eigenvalue.
    """
    size, bound = task.encoding.largest(2), np.sqrt(2 * task.loss.value_at_zero)
    sigma = np.sqrt(3) / gaussian_mu(epsilon, delta)
    moment = task.X.T @ task.X + task.n * task.ridge * np.eye(task.d)
    lowest = max(np.linalg.eigvalsh(moment)[0] + size**2 * sigma * rng.standard_normal(), 0.0)
    upper = np.triu(rng.standard_normal((task.d, task.d)))
    moment += sigma * size**2 * (upper + np.triu(upper, 1).T)
    wanted = np.sqrt(task.d * np.log(2 * task.d**2 / FAILURE)) * sigma * size**2
    inverse = np.linalg.inv(moment + max(0.0, wanted - lowest) * np.eye(task.d))
    x = np.zeros(task.d)
    for _ in range(ROUNDS):
        residuals = np.clip(task.y - task.X @ x, -bound, bound)
        noise = np.sqrt(ROUNDS) * sigma * size * bound * rng.standard_normal(task.d)
        x = x + inverse @ (task.X.T @ residuals - task.n * task.ridge * x + noise)
    return x
