"""What a fit shows, but for the noisy numbers: the same for any records of the same shape."""

import contextlib
import io
import traceback
import warnings
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from epsteps import Run
from epsteps.estimators import PrivateHuberRegressor, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge, callers

N, D = 40, 3
MODELS = {
    "logistic": PrivateLogisticRegression(row_norm=1.0, classes=(0, 1), anyway=True),
    "bounds": PrivateLogisticRegression(classes=(0, 1), bounds=([0, -1, 5], [1, 1, 6]), one_hot=[(0, 1)], anyway=True),
    "softmax": PrivateLogisticRegression(row_norm=1.0, classes=(0, 1, 2), anyway=True),
    "steps": PrivateLogisticRegression(
        classes=(0, 1), bounds=(0, 1), release="iterates", method="descent", iterations=3, anyway=True
    ),
    "gaussian": PrivateLogisticRegression(
        classes=(0, 1), bounds=(0, 1), delta=1e-5, method="descent", iterations=3, anyway=True
    ),
    "svc": PrivateLinearSVC(row_norm=1.0, classes=(0, 1), anyway=True),
    "ridge": PrivateRidge(bounds=(0, 1), target_bounds=(-1, 1), anyway=True),
    "huber": PrivateHuberRegressor(row_norm=1.0, target_bounds=(0, 10), anyway=True),
    "text": PrivateLogisticRegression(row_norm=1.0, classes=("no", "yes"), anyway=True),
    "intervals": PrivateLogisticRegression(
        50.0, classes=(0, 1), bounds=(0, 1), intervals=0.95, robust=True, anyway=True
    ),
}
SPARSE = ("logistic", "ridge")

values = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324]),
    st.floats(allow_nan=True, allow_infinity=True),
)
rows = st.lists(values, min_size=D, max_size=D)
numbers = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 7.0, -1.0, np.nan, np.inf, -np.inf, 1e308]), st.floats())
texts = st.sampled_from(["no", "yes", "maybe", "", "No"])
odd_objects = st.sampled_from(["no", "yes", "maybe", None, float("nan"), 3, ("yes",)])


def ordinary() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 1, (N, D)), rng.integers(0, 2, N).astype(float)


def with_constant_column() -> tuple[np.ndarray, np.ndarray]:
    X, y = ordinary()
    X[:, 1] = 1.0
    return X, y


def with_one_class() -> tuple[np.ndarray, np.ndarray]:
    X, y = ordinary()
    return X, np.ones_like(y)


def with_equal_rows() -> tuple[np.ndarray, np.ndarray]:
    X, y = ordinary()
    return np.zeros_like(X), np.zeros_like(y)


STARTS = (ordinary, with_constant_column, with_one_class, with_equal_rows)


def seen(model, X, y) -> dict[str, object]:
    """Return everything that a fit shows, but for the values of the published numbers."""
    model = clone(model)
    output, errors = io.StringIO(), io.StringIO()
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        patch.object(callers, "_uncounted", callers.Uncounted()),  # every fit is the first of its process
    ):
        warnings.simplefilter("always")
        try:
            failure = None
            model.fit(X, y)
            print(model, getattr(model, "plan_", None), getattr(model, "certificate_", None))
            _ = getattr(model, "confint_", None)
        except Exception:
            failure = traceback.format_exc()
    shown = {name: shape_of(value) for name, value in vars(model).items()}
    return shown | {
        "failure": failure,
        "warnings": [str(warning.message) for warning in caught],
        "printed": output.getvalue() + errors.getvalue(),
    }


def shape_of(value: object) -> object:
    """Return an array's shape and type, and whether all of it is finite; the text of everything else.

    Of a run, all that was published has a shape.
    """
    if isinstance(value, Run):
        return {name: shape_of(array) for name, array in {"path": value.path, **value.extras}.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.shape, value.dtype, bool(np.all(np.isfinite(value))) if value.dtype.kind == "f" else value.tolist()
    return str(value)


@cache
def usual(name: str) -> dict[str, object]:
    X, y = ordinary()
    return seen(MODELS[name], X, as_labels(name, y))


def as_labels(name: str, y: np.ndarray) -> np.ndarray:
    return np.array(["no", "yes"], dtype=object)[y.astype(int)] if name == "text" else y


@pytest.mark.parametrize("name", MODELS)
def test_ordinary_records_are_fitted_in_silence(name):
    shown = usual(name)
    assert shown["failure"] is None
    assert shown["warnings"] == []
    assert {"coef_", "intercept_", "plan_", "certificate_", "n_iter_", "path_"} < set(shown)


@pytest.mark.parametrize("name", MODELS)
def test_no_record_changes_what_is_seen(name):
    """One record is replaced by anything: unseen labels, huge values, NaN, infinity, the end of a constant column."""

    @settings(max_examples=12)
    @given(
        start=st.sampled_from(STARTS),
        place=st.integers(0, N - 1),
        row=rows,
        label=st.one_of(texts, odd_objects) if name == "text" else numbers,
    )
    def check(start, place, row, label):
        X, y = start()
        X[place], y = row, as_labels(name, y)
        y[place] = label
        assert seen(MODELS[name], X, y) == usual(name)

    check()


@pytest.mark.parametrize("name", SPARSE)
def test_no_sparse_record_changes_what_is_seen(name):
    @settings(max_examples=8)
    @given(start=st.sampled_from(STARTS), place=st.integers(0, N - 1), row=rows, label=numbers)
    def check(start, place, row, label):
        X, y = start()
        X[place], y[place] = row, label
        assert seen(MODELS[name], sparse.csr_array(X), y) == usual(name)

    check()


def test_the_watch_sees_what_other_estimators_tell():
    """A classifier that infers its classes tells of a third label, of a single one, and of a NaN."""
    X, y = ordinary()
    plain = seen(LogisticRegression(), X, y)
    third, one, missing = y.copy(), np.zeros(N), X.copy()
    third[0] = 2.0
    missing[0, 0] = np.nan
    assert seen(LogisticRegression(), X, third)["coef_"] != plain["coef_"]
    assert seen(LogisticRegression(), X, one)["failure"] is not None
    assert seen(LogisticRegression(), missing, y)["failure"] is not None


@pytest.mark.parametrize("name", ["logistic", "huber"])
def test_predictions_are_made_for_any_row(name):
    X, y = ordinary()
    model = clone(MODELS[name]).fit(X, y)
    wild = np.array([[np.nan, np.inf, -np.inf], [1e308, -1e308, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.predict(wild).shape == (2,)
        assert np.all(np.isfinite(model.predict(wild)))
