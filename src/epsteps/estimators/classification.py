"""Classifiers: classes are declared, never read off the labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_expit, log_softmax
from sklearn.base import ClassifierMixin

from epsteps.data import values
from epsteps.estimators import _scikit
from epsteps.estimators.base import PrivateLinearModel, with_common_parameters
from epsteps.estimators.summaries import Telling
from epsteps.problem.losses import Logistic, Loss, SmoothedHinge, Softmax
from epsteps.tables.columns import Column
from epsteps.tables.model import likeliest, of_classes, probabilities
from epsteps.tables.schema import Schema


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """What classifiers share: declared classes, and labels that are none of them."""

    classes: Sequence[Any] | None = None
    _most: ClassVar[int] = 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._count() != 2
        tags.classifier_tags.poor_score = True  # on the few hundred records that scikit-learn tries
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """Return the same for scikit-learn before 1.6."""
        return {"binary_only": self._count() == 2, "poor_score": True}

    def _count(self) -> int:
        """Return the number of declared classes; 0 if there are none."""
        if isinstance(self.schema, Schema):
            return 0 if self.schema.target is None else len(self.schema.target_column.classes or ())
        return 0 if self.classes is None else int(np.size(self.classes))

    def _telling(self) -> Telling:
        """Return the order of the sorted classes, of which the second of two has the positive margins."""
        self.classes_, order = np.unique(np.array(self._labels()), return_index=True)
        return Telling(order) if len(order) > 2 else Telling(np.zeros(1, dtype=int), 1.0 if order[0] == 0 else -1.0)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return each row's margin: for the second of two classes, or one for each of more."""
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> np.ndarray:
        """Return each row's class."""
        places = likeliest(self.decision_function(X))  # raises unless it is fitted
        return self.classes_[places]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the part of the labels that is predicted, without privacy for these records."""
        return float(np.average(self._gains(X, _scikit.targets(self, X, y)), weights=sample_weight))

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def _gains(self, X: Any, y: np.ndarray) -> np.ndarray:
        """Return what each record adds to the score of a search: 1 if its label is predicted."""
        return (self.predict(X) == self.comparable(y)).astype(np.int64)

    def _scores(self, X: Any, y: np.ndarray) -> dict[str, float]:
        """Return what ``unprotected_scores`` says of labels; one of no class counts as the first, but for accuracy."""
        labels = self.comparable(y)
        places = np.searchsorted(self.classes_, np.where(np.isin(labels, self.classes_), labels, self._labels()[0]))
        likely = getattr(self, "predict_proba", lambda X: None)(X)
        return of_classes(places, self._gains(X, y), self.decision_function(X), likely)

    def _labels(self) -> tuple[Any, ...]:
        """Return the declared classes, or raise: nothing is read off y."""
        if (schema := self._schema()) is not None:
            self._require_schema_alone(classes=None)
            if (classes := schema.target_column.classes) is None:
                raise ValueError(
                    f"the target {schema.target!r} is declared as a number: use PrivateRidge, or declare a Category."
                )
            return classes
        if self.classes is None:
            raise ValueError(
                "the classes are not declared, and are not read off y: pass classes=(0, 1), or the labels as they "
                "stand in y, such as classes=('no', 'yes')."
            )
        if isinstance(self.classes, str) or np.ndim(self.classes) != 1:
            raise ValueError(f"classes must be a sequence of labels, such as (0, 1), got {self.classes!r}.")
        return tuple(np.asarray(self.classes).tolist())

    def _nothing(self) -> Any:
        return self._labels()[0]

    def comparable(self, y: np.ndarray) -> np.ndarray:
        """Return the labels as the loss takes them; those of no class stay so."""
        if (schema := self._schema()) is not None:
            return declared_labels(schema.target_column, self._labels(), y)
        return comparable_labels(self._labels(), y)


@with_common_parameters
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(PrivateClassifier):
    """Logistic regression with differential privacy: of two classes, or of more in one run by the softmax loss.

    >>> import numpy as np
    >>> from epsteps.estimators import PrivateLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (20_000, 3))
    >>> y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> model = PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), classes=("no", "yes")).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), bool(model.certificate_["spent"] <= 1.0)
    (True, True)

    Parameters
    ----------
    classes : sequence of labels
        Declared, all text or all numbers; required without a schema. A label that is none of them counts as the first,
        and is never reported: ``check`` counts such labels for the data holder.
    """

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return each row's probability of each class, in the order of ``classes_``."""
        return probabilities(self.decision_function(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of ``predict_proba``."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            return np.column_stack([log_expit(-margins), log_expit(margins)])
        return log_softmax(margins, axis=1)

    def loss(self) -> Loss:
        """Return the loss of the declared classes."""
        classes = self._labels()
        return Softmax(classes) if len(classes) > 2 else Logistic(classes)  # pyright: ignore[reportArgumentType]


@with_common_parameters
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(PrivateClassifier):
    """Linear support vector machine with differential privacy, of two classes: the hinge with a smooth corner.

    Parameters
    ----------
    classes : pair of labels
        Declared, both text or both numbers; required without a schema. A label that is neither counts as the first, and
        is never reported: ``check`` counts such labels for the data holder.
    width : float
        Width of the hinge's corner; the narrower, the closer to the hinge, and the more noise.
    """

    width: float = 0.5

    def loss(self) -> Loss:
        """Return the loss of the declared classes."""
        return SmoothedHinge(self._labels(), self.width)  # pyright: ignore[reportArgumentType]


def declared_labels(column: Column, classes: tuple[Any, ...], y: np.ndarray) -> np.ndarray:
    """Return labels as a schema reads them from cells of any kind; what is not declared is none of the classes."""
    labels, unknown = column.encode_target(y), column.unknown(y)
    if isinstance(classes[0], str):
        return np.where(unknown, values.NO_TEXT, labels)
    return np.where(unknown, np.nan, labels.astype(float))


def comparable_labels(classes: tuple[Any, ...], y: np.ndarray) -> np.ndarray:
    """Return labels in an array of the classes' kind, or raise if the array's type can hold none of them.

    Labels in an array of Python's objects, where anything may be, are taken one by one: as text if the classes are, or
    else as numbers.
    """
    is_text = isinstance(classes[0], str)
    kinds, wanted = ("OUT", "text") if is_text else ("Obiuf", "numbers")
    if y.dtype.kind not in kinds:
        raise TypeError(
            f"y must hold {wanted}, as the declared classes {classes!r} do, got dtype {y.dtype}. "
            "Declare classes=... as they are in y, or convert y."
        )
    if y.dtype.kind in "Ubiuf":
        return y
    return values.texts(y) if is_text else values.numbers(y)
