"""Regressors: the range of the targets is declared, never read off them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from epsteps.data import values
from epsteps.estimators import _scikit
from epsteps.estimators.base import PrivateLinearModel, with_common_parameters
from epsteps.estimators.summaries import Telling
from epsteps.problem import validate
from epsteps.problem.losses import Loss, PseudoHuber, Squared
from epsteps.tables.model import of_numbers, r_squared


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """What regressors share: targets that are clipped into a declared range, and scaled to [-1, 1]."""

    target_bounds: tuple[float, float] | None = None
    _most: ClassVar[int] = 2**20

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on the few hundred records that scikit-learn tries
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """Return the same for scikit-learn before 1.6."""
        return {"poor_score": True}

    def _telling(self) -> Telling:
        """Return the targets' units."""
        middle, half = self._range()
        return Telling(0, half, middle)

    def predict(self, X: Any) -> np.ndarray:
        """Return each row's value, in the targets' units; with a schema, within the range that it declares."""
        found = self._margins(X)[:, 0]
        if self.schema_ is None:
            return found
        column = self.schema_.target_column
        middle, half = column.target_scale
        return np.clip(found, middle - half, middle + half)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R², without privacy for these records; targets outside the declared range count as in a fit."""
        targets = self.clipped(_scikit.targets(self, X, y))
        return r_squared(targets, self.predict(X), sample_weight)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def _gains(self, X: Any, y: np.ndarray) -> np.ndarray:
        """Return what each record adds to the score of a search: 1 less its squared error, in whole units."""
        middle, half = self._range()
        targets = self.comparable(y)
        error = np.clip((self.predict(X) - middle) / half, -1, 1) - np.clip(
            np.where(np.isnan(targets), 0.0, targets), -1, 1
        )
        return np.rint(self._most * (1 - (error / 2) ** 2)).astype(np.int64)

    def _scores(self, X: Any, y: np.ndarray) -> dict[str, float]:
        """Return what ``unprotected_scores`` says of targets; one outside the range counts as its nearest end."""
        return of_numbers(self.clipped(y), self.predict(X))

    def _range(self) -> tuple[float, float]:
        """Return the middle of the targets' range and half its width; without an intercept the middle is 0."""
        low, high = self._ends()
        if not self.intercept:
            return 0.0, max(abs(low), abs(high))
        return (low + high) / 2, (high - low) / 2

    def _unit(self) -> float:
        """Return half of the targets' range."""
        return self._range()[1]

    def _ends(self) -> tuple[float, float]:
        if (schema := self._schema()) is not None:
            self._require_schema_alone(target_bounds=None)
            if schema.target_column.classes is not None:
                raise ValueError(
                    f"the target {schema.target!r} is declared as a category: use PrivateLogisticRegression, or "
                    "declare it Numeric."
                )
            middle, half = schema.target_column.target_scale
            return middle - half, middle + half
        if self.target_bounds is None:
            raise ValueError(
                "the range of the targets is not declared, and is not read off y: pass target_bounds=(low, high), from "
                "public knowledge; targets outside are clipped to it."
            )
        if np.shape(self.target_bounds) != (2,):
            raise ValueError(f"target_bounds must be a pair (low, high), got {self.target_bounds!r}.")
        low, high = (validate.number("target_bounds", end) for end in self.target_bounds)
        if low >= high:
            raise ValueError(f"target_bounds must be a pair (low, high) with low < high, got {self.target_bounds!r}.")
        return low, high

    def _nothing(self) -> Any:
        return 0.0

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def comparable(self, y: np.ndarray) -> np.ndarray:
        """Return the targets in the scaled units that the loss takes; those outside the range stay so."""
        if y.dtype.kind not in "Obiuf" and self._schema() is None:
            raise TypeError(f"y must hold numbers, got dtype {y.dtype}. Convert it before.")
        middle, half = self._range()
        return (values.numbers(y) - middle) / half

    def clipped(self, y: np.ndarray) -> np.ndarray:
        """Return the targets as a fit counts them, in their own units: within the range, NaN as its middle."""
        middle, half = self._range()
        known = self.comparable(y)
        return np.clip(np.where(np.isnan(known), middle, values.numbers(y)), middle - half, middle + half)


@with_common_parameters
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(PrivateRegressor):
    """Least squares with a ridge and differential privacy.

    >>> import numpy as np
    >>> from epsteps.estimators import PrivateRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (20_000, 3))
    >>> y = 20 + 30 * X[:, 0] + rng.normal(0, 1, 20_000)
    >>> model = PrivateRidge(epsilon=1.0, bounds=(0, 1), target_bounds=(0, 100)).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True

    Parameters
    ----------
    target_bounds : pair (low, high)
        Range of the targets, publicly known, required without a schema; targets outside are clipped, and NaN counts as
        its middle. Without an intercept it is widened to [-m, m], for the larger end m.
    """

    def loss(self) -> Loss:
        """Return the loss of the scaled targets, whose range must be declared."""
        self._ends()
        return Squared(1.0)


@with_common_parameters
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(PrivateRegressor):
    """Robust regression with differential privacy: the pseudo-Huber loss, squared near 0 and linear beyond.

    Parameters
    ----------
    target_bounds : pair (low, high)
        Range of the targets, publicly known, required without a schema; targets outside are clipped, and NaN counts as
        its middle. Without an intercept it is widened to [-m, m], for the larger end m. The noise is that of
        ``transition``, however wide.
    transition : float, optional
        The residual around which the loss turns linear, in the targets' units; a tenth of their range by default.
    """

    transition: float | None = None

    def loss(self) -> Loss:
        """Return the loss of the scaled targets."""
        low, high = self._ends()
        transition = (high - low) / 10 if self.transition is None else validate.positive("transition", self.transition)
        return PseudoHuber(1.0, c=transition / self._range()[1])
