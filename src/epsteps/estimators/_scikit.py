"""scikit-learn of any supported version: how input is read, and what estimators say of themselves."""

from typing import Any

import numpy as np

from epsteps.data import values
from epsteps.problem.validate import require
from epsteps.tables.files import columns_of, names_of
from epsteps.tables.schema import Schema

_validation = require("sklearn.utils.validation", "sklearn", "an estimator for scikit-learn")
_utils = require("sklearn.utils", "sklearn", "an estimator for scikit-learn")
_NEW = hasattr(_validation, "validate_data")  # scikit-learn 1.6


class Encoded(np.ndarray):
    """Features that a schema has made of a table, and makes no second time; parts of them are such, too."""


def schema_of(estimator: Any) -> Schema | None:
    """Return the schema that tables of an estimator, or of the one that it searches for, are read by."""
    estimator = getattr(estimator, "estimator", estimator)
    return vars(estimator).get("schema_", estimator.schema)  # a fitted one does not follow its parameters


def features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as an array or a CSR matrix of numbers, or raise if its structure is wrong.

    With a schema X is a table, which may have the target and further columns, in any order.

    Values are nobody's business: NaN and infinity pass, and are projected later. They are converted before scikit-learn
    sees them, which would quote them. With ``reset`` the estimator remembers the number of columns and their names;
    without, they must be the same.
    """
    if (schema := schema_of(estimator)) is not None:
        return _encoded(estimator, schema, X, reset)
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


def _encoded(estimator: Any, schema: Schema, X: Any, reset: bool) -> np.ndarray:
    """Return the features that a schema makes of a table; the columns that it has them from are those of the fit."""
    if isinstance(X, Encoded):
        return X
    found = schema.encode(X).view(Encoded)
    if reset:
        if len(found) < 2:
            raise ValueError(f"a fit needs 2 records or more, got {len(found)}.")
        estimator.feature_names_in_ = np.array(list(schema.features), dtype=object)
        estimator.n_features_in_ = len(schema.features)
    return found


def targets(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """Return y as one value for each row of X, of whatever kind, or raise if its structure is wrong.

    With a schema y may be the name of the target among the columns of X, or None for the one that it declares.
    """
    if (schema := schema_of(estimator)) is not None:
        return _declared_target(schema, X, y)
    if isinstance(y, str):
        raise ValueError(
            f"y is the name {y!r}, which only a declared table has: pass schema=Schema(...), or the column."
        )
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    y = values.column(y)
    _require_kind("y", y)
    y = _validation.column_or_1d(y, warn=True)
    _validation.check_consistent_length(X, y)
    return y


def records(estimator: Any, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """Return features and targets of a fit. A schema finds the target in the table; others are counted by the rows."""
    found = features(estimator, X, reset=True)
    return found, targets(estimator, found if schema_of(estimator) is None else X, y)


def _declared_target(schema: Schema, X: Any, y: Any) -> np.ndarray:
    name = schema.target
    if name is None:
        raise ValueError("the schema declares no target: name it, Schema(columns, target=...) or with_target(...).")
    if isinstance(y, str) and y != name:
        raise ValueError(f"y is {y!r}, but the schema's target is {name!r}: pass that, or schema.with_target({y!r}).")
    if y is not None and not isinstance(y, str):
        y = _validation.column_or_1d(values.column(y), warn=True)
        rows = len(next(iter(columns_of(X, list(schema.features)).values())))
        if len(y) != rows:
            raise ValueError(f"y must have one value for each of the {rows} rows of X, got {len(y)}.")
        return y
    if names_of(X) is None:
        raise ValueError(f"X has no names to find the target {name!r} by: pass a data frame, or the target as y.")
    return columns_of(X, [name])[name]


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


def needs_fit(transformer: Any) -> bool:
    """Tell whether a transformer learns from records: as its tags say, and if it has none, yes."""
    try:
        if _NEW:
            return bool(_utils.get_tags(transformer).requires_fit)
        return bool(transformer._get_tags()["requires_fit"])  # scikit-learn before 1.6
    except Exception:  # tags are somebody else's code
        return True


def is_frozen(transformer: Any) -> bool:
    """Tell whether a transformer is one that fitting leaves as it is."""
    return type(transformer).__module__.startswith("sklearn.frozen")
