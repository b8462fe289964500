"""scikit-learn of any supported version: how input is read, and what estimators say of themselves."""

from typing import Any

import numpy as np

from epsteps._extras import require

_validation = require("sklearn.utils.validation", "sklearn", "an estimator for scikit-learn")


def features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as an array or a CSR matrix of numbers, or raise if its structure is wrong.

    Values are nobody's business: NaN and infinity pass, and are projected later. With ``reset`` the estimator remembers
    the number of columns and their names; without, they must be the same.
    """
    options = {"accept_sparse": "csr", "ensure_min_samples": 2 if reset else 1, "reset": reset}
    if hasattr(_validation, "validate_data"):
        return _validation.validate_data(estimator, X, ensure_all_finite=False, **options)
    return estimator._validate_data(X, force_all_finite=False, **options)  # scikit-learn before 1.6


def targets(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """Return y as one value for each row of X, of whatever kind, or raise if its structure is wrong."""
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    y = _validation.column_or_1d(y, warn=True)
    _validation.check_consistent_length(X, y)
    return y


def require_fitted(estimator: Any) -> None:
    """Raise scikit-learn's error unless the estimator is fitted."""
    _validation.check_is_fitted(estimator)
