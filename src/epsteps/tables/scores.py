"""Scores of a model on a table that was not fitted."""

from typing import Any

import numpy as np

from epsteps.tables.columns import Category
from epsteps.tables.frames import columns_of
from epsteps.tables.model import Model

NOTE = (
    "The guarantee covers the records of the fit. The records that the model was scored on were read without "
    "protection: if they are private too, so are these scores."
)
_TINY = 1e-15


def score(model: Model, table: Any) -> dict[str, Any]:
    """Return scores of a model on a table with its target, UNPROTECTED for these records, and a note that says so.

    Accuracy, logarithmic loss and, of two classes that both occur, the area under the ROC curve; of numbers R², mean
    absolute and root mean squared error. A label that is not declared counts as wrong in accuracy and as the first
    class elsewhere; a number outside its range as the nearest end. A score that floats do not hold is not finite.
    """
    with np.errstate(all="ignore"):
        return _scored(model, table)


def _scored(model: Model, table: Any) -> dict[str, Any]:
    found = _of_numbers(model, table) if model.classes is None else _of_classes(model, table)
    return {"records": len(model.margins(table)), **found, "note": NOTE}


def _of_classes(model: Model, table: Any) -> dict[str, float]:
    column, classes = model.schema.target_column, model.classes
    assert isinstance(column, Category)
    assert classes is not None
    truth, probabilities = model.schema.encode_target(table), model.probabilities(table)
    name = str(model.schema.target)
    known = ~column.unknown(columns_of(table, [name])[name])
    places = np.select([truth == label for label in classes], np.arange(len(classes)))
    likely = np.maximum(probabilities[np.arange(len(places)), places], _TINY)
    found = {
        "accuracy": float(np.mean((model.predict(table) == truth) & known)),
        "log_loss": float(-np.mean(np.log(likely))),
    }
    if len(classes) == 2 and 0 < np.sum(places) < len(places):
        margins = model.margins(table)[:, 0]
        second, first = margins[places == 1], np.sort(margins[places == 0])
        below, not_above = (np.searchsorted(first, second, side=side).sum() for side in ("left", "right"))
        found["roc_auc"] = float(below + not_above) / (2 * len(first) * len(second))
    return found


def _of_numbers(model: Model, table: Any) -> dict[str, float]:
    truth = model.schema.decode_target(model.schema.encode_target(table))
    residuals = truth - model.predict(table)
    spread = float(np.sum((truth - truth.mean()) ** 2))
    found = {
        "mean_absolute_error": float(np.mean(np.abs(residuals))),
        "root_mean_squared_error": float(np.sqrt(np.mean(residuals**2))),
    }
    return ({"r2": 1 - float(np.sum(residuals**2)) / spread} if spread > 0 else {}) | found
