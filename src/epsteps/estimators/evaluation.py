"""Scores of a fitted model, and what they say about whom."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from epsteps.estimators import _scikit

_SAME = (
    "NOT private: these are the records of the fit, and a score of them is a new, unprotected release about them. It "
    "is also too good: the model was fitted to them. Keep it to yourself, or score on other records."
)
_OTHER = (
    "The model's guarantee covers the records of the fit. It does not cover those that it was scored on: if they are "
    "private too, so is the score."
)


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model on n records, and a note on their privacy that belongs beside them.

    ``targets_outside`` counts the labels or targets that are outside the declaration: labels of no declared class can
    only be predicted wrongly.
    """

    scores: dict[str, float]
    n: int
    targets_outside: int
    same_records: bool
    note: str

    def __str__(self) -> str:
        lines = [f"{name:<24} {value:.6g}" for name, value in self.scores.items()]
        lines += [f"{'records':<24} {self.n}", f"{'targets outside':<24} {self.targets_outside}", self.note]
        return "\n".join(lines)


def evaluate(model: Any, X: Any, y: Any, *, same_records: bool = False) -> Evaluation:
    """Score a fitted model on records, without privacy for these.

    Classifiers get accuracy, logarithmic loss (where they have probabilities) and, of two classes, the area under the
    ROC curve; regressors R², mean absolute error and root mean squared error. A label of no declared class counts as
    the first one, as in a fit, but for accuracy, where it counts as wrong; a target outside the declared range as its
    nearest end, and one that is missing as its middle.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this package.
    X, y
        Records that were not in the fit.
    same_records : bool
        Say True if they were: the result then says that its scores are not private.
    """
    if not isinstance(same_records, bool):
        raise TypeError(f"same_records must be True or False, got {same_records!r}.")
    _scikit.require_fitted(model)
    values = _scikit.targets(model, X, y)
    with np.errstate(all="ignore"):
        scores = model._scores(X, values)
    outside = model.loss().outside(model.comparable(values))
    return Evaluation(scores, len(values), outside, same_records, _SAME if same_records else _OTHER)
