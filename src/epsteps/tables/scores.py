"""Scores of models on records that were not fitted: computed here once, for tables and for estimators."""

from typing import Any

import numpy as np

from epsteps.tables.files import columns_of
from epsteps.tables.model import Model

NOTE = (
    "The guarantee covers the records of the fit. The records that the model was scored on were read without "
    "protection: if they are private too, so are these scores."
)
_TINY = 1e-15


def of_classes(
    places: np.ndarray, right: np.ndarray, margins: np.ndarray, probabilities: np.ndarray | None
) -> dict[str, float]:
    """Return accuracy, logarithmic loss and, of two classes that both occur, the area under the ROC curve.

    ``places`` are those of the true classes, ``right`` says which predictions are; margins of two classes are those of
    the second. Without probabilities there is no logarithmic loss.
    """
    scores = {"accuracy": float(np.mean(right))}
    if probabilities is not None:
        likely = np.maximum(probabilities[np.arange(len(places)), places], _TINY)
        scores["log_loss"] = float(-np.mean(np.log(likely)))
    if margins.ndim == 1 and 0 < np.sum(places) < len(places):
        second, first = margins[places == 1], np.sort(margins[places == 0])
        below, not_above = (np.searchsorted(first, second, side=side).sum() for side in ("left", "right"))
        scores["roc_auc"] = float(below + not_above) / (2 * len(first) * len(second))
    return scores


def of_numbers(truth: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return R², mean absolute error and root mean squared error."""
    residuals = truth - predictions
    return {
        "r2": r_squared(truth, predictions),
        "mean_absolute_error": float(np.mean(np.abs(residuals))),
        "root_mean_squared_error": float(np.sqrt(np.mean(residuals**2))),
    }


def r_squared(truth: np.ndarray, predictions: np.ndarray, weights: Any = None) -> float:
    """Return R², of targets that are all the same 1 if they are predicted exactly and else 0, as scikit-learn does."""
    weights = np.ones(len(truth)) if weights is None else np.asarray(weights, dtype=float)
    left = float(np.sum(weights * (truth - predictions) ** 2))
    spread = float(np.sum(weights * (truth - np.average(truth, weights=weights)) ** 2))
    if spread == 0:
        return float(left == 0)
    return 1 - left / spread


def score(model: Model, table: Any) -> dict[str, Any]:
    """Return scores of a model on a table with its target, UNPROTECTED for these records, and a note that says so.

    A label that is not declared counts as wrong in accuracy and as the first class elsewhere; a number outside its
    range as the nearest end. A score that floats do not hold is not finite.
    """
    with np.errstate(all="ignore"):
        truth, predictions = model.schema.encode_target(table), model.predict(table)
        if model.classes is None:
            scores = of_numbers(model.schema.decode_target(truth), predictions)
        else:
            name = str(model.schema.target)
            known = ~model.schema.target_column.unknown(columns_of(table, [name])[name])
            places = np.select([truth == label for label in model.classes], np.arange(len(model.classes)))
            right = (predictions == truth) & known
            scores = of_classes(places, right, model.margins(table), model.probabilities(table))
    return {"records": len(predictions), **scores, "note": NOTE}
