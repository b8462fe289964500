"""scikit-learn of any supported version: how input is read, and what estimators say of themselves."""

from typing import Any

import numpy as np

from epsteps.data import values
from epsteps.problem.validate import require

_validation = require("sklearn.utils.validation", "sklearn", "an estimator for scikit-learn")
_NEW = hasattr(_validation, "validate_data")  # scikit-learn 1.6


def features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as an array or a CSR matrix of numbers, or raise if its structure is wrong.

    Values are nobody's business: NaN and infinity pass, and are projected later. They are converted before scikit-learn
    sees them, which would quote them. With ``reset`` the estimator remembers the number of columns and their names;
    without, they must be the same.
    """
    found = values.matrix(X)
    _require_kind("X", found)
    if found.ndim != 2:
        raise ValueError(
            f"X must be an array of two dimensions, one row for each record, got shape {found.shape}. Reshape your "
            "data: X.reshape(-1, 1) if it has a single column, X.reshape(1, -1) if it is a single record."
        )
    finite = "ensure_all_finite" if _NEW else "force_all_finite"
    options = {"accept_sparse": "csr", "ensure_min_samples": 2 if reset else 1, finite: False}
    found = _validation.check_array(found, estimator=estimator, input_name="X", **options)
    named = X if hasattr(X, "columns") or hasattr(X, "__dataframe__") else found
    if _NEW:
        _validation.validate_data(estimator, named, reset=reset, skip_check_array=True)
    else:
        estimator._check_feature_names(named, reset=reset)
        estimator._check_n_features(found, reset=reset)
    return found


def targets(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """Return y as one value for each row of X, of whatever kind, or raise if its structure is wrong."""
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    y = values.column(y)
    _require_kind("y", y)
    y = _validation.column_or_1d(y, warn=True)
    _validation.check_consistent_length(X, y)
    return y


def _require_kind(name: str, array: Any) -> None:
    """Raise if an array's type is one that no estimator takes; scikit-learn's own error quotes complex numbers."""
    kind = array.dtype.kind
    if kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {array.dtype}. Convert it before.")
    if kind not in ("biuf" if name == "X" else "biufOUST"):
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}. Encode text columns before.")


def require_fitted(estimator: Any) -> None:
    """Raise scikit-learn's error unless the estimator is fitted."""
    _validation.check_is_fitted(estimator)
