"""How good fitted models are: excess risk on the records, and the test split's scores. One number per column of x."""

import numpy as np
from scipy.stats import rankdata

from accuracy_parts.tasks import Task


def scores(task: Task, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return every score of every column."""
    found = {"excess": task.objective.excess(x)}
    if task.loss.outputs > 1:
        return found | {"accuracy": guessed(task, x)}
    margins = task.X_test @ x
    return found | (classified(margins, task.y_test) if task.is_classification else regressed(margins, task.y_test))


def classified(margins: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return accuracy, area under the ROC curve (NaN when there is one class), mean log loss."""
    right = np.mean((margins >= 0) == (y > 0)[:, None], axis=0)
    losses = np.mean(np.logaddexp(0.0, -y[:, None] * margins), axis=0)
    return {"accuracy": right, "auc": area(margins, y > 0), "log_loss": losses}


def guessed(task: Task, x: np.ndarray) -> np.ndarray:
    """Return the share of test records whose class has the largest of several margins."""
    blocks = x.reshape(task.loss.outputs, task.d, -1)
    margins = np.einsum("nd,cdk->nck", task.X_test, blocks, optimize=True)
    return np.mean(np.argmax(margins, axis=1) == task.y_test[:, None], axis=0)


def area(margins: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return the probability that a positive record ranks above a negative one, ties counted half."""
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return np.full(margins.shape[1], np.nan)
    ranks = np.stack([rankdata(column) for column in margins.T], axis=1)
    return (ranks[positive].sum(axis=0) - ones * (ones + 1) / 2) / (ones * zeros)


def regressed(predictions: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return R² and the root of the mean squared error."""
    mse = np.mean((predictions - y[:, None]) ** 2, axis=0)
    return {"r2": 1 - mse / np.var(y), "rmse": np.sqrt(mse)}
