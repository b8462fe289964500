"""The estimators are scikit-learn's: its own checks, and what people do with estimators."""

import pickle
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from scipy import sparse

import epsteps as es

pytest.importorskip("sklearn")
from sklearn import metrics
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, validation

from epsteps.estimators import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    unprotected_scores,
)
from epsteps.tables.model import likeliest, of_classes, of_numbers, probabilities, r_squared

MODELS = {
    "logistic": PrivateLogisticRegression(row_norm=1.0, classes=(0, 1), anyway=True),
    "softmax": PrivateLogisticRegression(row_norm=1.0, classes=(0, 1, 2), anyway=True),
    "svc": PrivateLinearSVC(row_norm=1.0, classes=(0, 1), anyway=True),
    "ridge": PrivateRidge(row_norm=1.0, target_bounds=(-1, 1), anyway=True),
    "huber": PrivateHuberRegressor(row_norm=1.0, target_bounds=(-1, 1), anyway=True),
}
CLASSIFIERS = ("logistic", "softmax", "svc")

# Checks that a private estimator cannot pass, and why: one record would decide what is seen.
NOT_INFERRED = "classes are declared, not inferred from y"
VALUES_ARE_NOT_REPORTED = "a record's values never raise: they are projected"
EXPECTED = {
    name: {
        "check_classifiers_classes": f"{NOT_INFERRED}: text labels need classes=('one', ...)",
        "check_classifiers_regression_target": f"{NOT_INFERRED}: one label that is no class must not raise",
        "check_classifier_not_supporting_multiclass": f"{NOT_INFERRED}: a third label must not raise",
    }
    for name in CLASSIFIERS
} | {"ridge": {}, "huber": {}}
for expected in EXPECTED.values():
    expected["check_supervised_y_no_nan"] = VALUES_ARE_NOT_REPORTED
    expected["check_dtype_object"] = f"{VALUES_ARE_NOT_REPORTED}, and a cell that is no number counts as missing"
NUMBER = f"{NOT_INFERRED}: y has another number of labels than the three that are declared"
EXPECTED["softmax"] |= {
    "check_estimator_sparse_array": NUMBER,
    "check_estimator_sparse_matrix": NUMBER,
    "check_estimator_sparse_data": NUMBER,
    "check_classifiers_train": NUMBER,
}
# What noise decides: ten records with one label, which it hides, and margins of three classes for the two in y.
LUCK = {name: {"check_classifiers_one_label": "noise hides what ten records have in common"} for name in CLASSIFIERS}
LUCK["softmax"] |= {"check_decision_proba_consistency": NUMBER}


def sklearn_checks():
    for name, model in MODELS.items():
        if hasattr(estimator_checks, "estimator_checks_generator"):
            pairs = estimator_checks.estimator_checks_generator(model)
        else:
            pairs = estimator_checks.check_estimator(model, generate_only=True)  # scikit-learn before 1.6
        for number, (estimator, check) in enumerate(pairs):
            function = check.func.__name__
            marks = []
            if reason := EXPECTED[name].get(function):
                marks = [pytest.mark.xfail(reason=reason, strict=True)]
            elif reason := LUCK.get(name, {}).get(function):
                marks = [pytest.mark.skip(reason=reason)]  # whether it passes is chance: it could not fail
            yield pytest.param(estimator, check, id=f"{name}-{number}-{function}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(sklearn_checks()))
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def classification(n: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in [0, 1]^3, in multiples of 2^-10, and labels 0, 1 and 2."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 1025, (n, 3)) / 1024
    return X, np.argmax(X + 0.2 * rng.standard_normal((n, 3)), axis=1)


def regression(n: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return such rows, and targets in multiples of 2^-10, nearly all of them in [-1, 1]."""
    X, _ = classification(n, seed)
    noise = 0.1 * np.random.default_rng(seed + 1).standard_normal(n)
    return X, np.rint((X @ [1.0, -0.5, 0.0] - 0.25 + noise) * 1024) / 1024


def records_for(name: str, n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    X, y = classification(n) if name in CLASSIFIERS else regression(n)
    return X, (y > 0).astype(int) if name in ("logistic", "svc") else y


@cache
def fitted(name: str):
    """Return a model that was fitted in private."""
    X, y = records_for(name)
    return clone(MODELS[name]).set_params(row_norm=None, bounds=(0, 1)).fit(X, y)


def repeatable(name: str, **parameters):
    return clone(MODELS[name]).set_params(**({"bounds": (0, 1), "row_norm": None, "random_state": 3} | parameters))


def assert_same_model(one, other):
    for attribute in ("coef_", "intercept_", "path_"):
        np.testing.assert_allclose(getattr(one, attribute), getattr(other, attribute), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_fitted_models_survive_pickling_and_are_cloned_empty(name):
    model, (X, _) = fitted(name), records_for(name)
    loaded = pickle.loads(pickle.dumps(model))
    assert_same_model(loaded, model)
    assert str(loaded.plan_) == str(model.plan_)
    assert loaded.certificate_ == model.certificate_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


@pytest.mark.parametrize("name", MODELS)
def test_certificates_and_paths_say_what_was_published(name):
    model = fitted(name)
    certificate = model.certificate_
    assert 0.99 < certificate["spent"] <= certificate["epsilon"] == 1.0
    assert certificate["delta"] == 0.0
    assert not certificate["seeded"]
    assert "pure epsilon = 1" in certificate["guarantee"]
    assert "replaced" in certificate["adjacency"]
    assert model.n_iter_ == len(model.plan_.charges)
    np.testing.assert_array_equal(model.path_[-1], np.append(np.ravel(model.coef_), model.intercept_))
    assert "none" in repeatable(name).fit(*records_for(name)).certificate_["guarantee"]


def test_only_seeded_fits_repeat():
    X, y = records_for("logistic")
    assert_same_model(repeatable("logistic").fit(X, y), repeatable("logistic").fit(X, y))
    free = [repeatable("logistic", random_state=None).fit(X, y).coef_ for _ in range(2)]
    assert not np.any(free[0] == free[1])
    with pytest.raises(TypeError, match="random_state"):
        repeatable("logistic", random_state=np.random.RandomState(0)).fit(X, y)


@pytest.mark.parametrize("name", MODELS)
def test_the_plan_needs_no_data_and_is_the_one_of_the_fit(name):
    model = fitted(name)
    assert str(clone(model).plan(*records_for(name)[0].shape)) == str(model.plan_)
    assert model.plan_.problem.n == 4000


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.coo_array, sparse.csr_matrix])
def test_sparse_rows_give_the_same_model(name, kind):
    X, y = records_for(name, 300)
    X = np.where(X > 0.5, X, 0.0)
    bounds = ([-1.0, 0.0, 0.0], [1.0, 0.5, 2.0])
    dense, thin = (repeatable(name, bounds=bounds).fit(rows, y) for rows in (X, kind(X)))
    np.testing.assert_allclose(thin.coef_, dense.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(thin.predict(kind(X)), thin.predict(X), atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(name, library):
    frames = pytest.importorskip(library)
    X, y = records_for(name, 300)
    frame = frames.DataFrame({column: X[:, k] for k, column in enumerate("abc")})
    model = repeatable(name).fit(frame, frames.Series(y))
    assert_same_model(model, repeatable(name).fit(X, y))
    np.testing.assert_allclose(model.predict(frame), repeatable(name).fit(X, y).predict(X), atol=1e-12)
    assert unprotected_scores(model, frame, frames.Series(y)).n == 300
    if library == "polars" and not hasattr(validation, "validate_data"):
        return  # scikit-learn before 1.6 does not read the names of newer polars
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


@pytest.mark.parametrize("name", MODELS)
def test_pipelines_cross_validation_and_grids_of_experiments(name):
    """Seeded fits protect nobody: any loop may make them."""
    X, y = records_for(name)
    model = make_pipeline(FunctionTransformer(np.sqrt), repeatable(name, epsilon=50.0))
    assert np.all(cross_val_score(model, X, y, cv=3) > 0.5)
    search = GridSearchCV(repeatable(name), {"epsilon": [1e-4, 100.0]}, cv=2).fit(X, y)
    assert search.best_params_ == {"epsilon": 100.0}
    assert search.best_estimator_.certificate_["epsilon"] == 100.0
    assert search.best_estimator_.certificate_["without_ledger"] is None


def test_with_much_budget_models_are_those_without_privacy():
    """Noise of epsilon = 1000 on 4000 records is far below the tolerance; rows are scaled by 1/2 inside."""
    X, y = classification()
    n, ridge = len(X), 1e-3
    options = {"epsilon": 1000.0, "bounds": (-2, 2), "ridge": ridge}
    numbers = options | {"target_bounds": (-1, 1)}
    for labels, classes in (((y > 0).astype(int), (0, 1)), (y, (0, 1, 2))):
        model = PrivateLogisticRegression(**options, classes=classes).fit(X, labels)
        exact = LogisticRegression(C=1 / (n * ridge * 4), max_iter=1000, tol=1e-8).fit(X, labels)
        np.testing.assert_allclose(model.predict_proba(X), exact.predict_proba(X), atol=0.02)
    X, y = regression()
    model = PrivateRidge(**numbers).fit(X, y)
    exact = Ridge(alpha=n * ridge * 4).fit(X, y)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=0.02)
    robust = PrivateHuberRegressor(**numbers).fit(X, y)
    np.testing.assert_allclose(robust.predict(X), exact.predict(X), atol=0.05)
    X, y = records_for("svc")
    machine = PrivateLinearSVC(**options, classes=(0, 1)).fit(X, y)
    agreement = np.mean(machine.predict(X) == LogisticRegression().fit(X, y).predict(X))
    assert agreement > 0.95


@pytest.mark.parametrize("name", MODELS)
def test_units_of_columns_do_not_matter(name):
    """Columns in other units, with bounds in them, give the same model in those units: exactly, for powers of two."""
    X, y = records_for(name)
    plain = repeatable(name, bounds=(0, 1)).fit(X, y)
    factors = np.array([4.0, 0.25, 1024.0])
    other = repeatable(name, bounds=(np.zeros(3), factors)).fit(X * factors, y)
    np.testing.assert_allclose(other.coef_ * factors, plain.coef_, rtol=1e-12)
    moved = repeatable(name, bounds=(8, 9)).fit(X + 8, y)
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-9)
    for model, rows in ((other, X * factors), (moved, X + 8)):
        np.testing.assert_allclose(model.predict(rows), plain.predict(X), atol=1e-9)
        np.testing.assert_allclose(
            rows @ np.atleast_2d(model.coef_).T + model.intercept_,
            X @ np.atleast_2d(plain.coef_).T + plain.intercept_,
            atol=1e-9,
        )
    longer, unit = (
        repeatable(name, bounds=None, row_norm=4.0).fit(4 * X, y),
        repeatable(name, bounds=None, row_norm=1.0).fit(X, y),
    )
    np.testing.assert_allclose(4 * longer.coef_, unit.coef_, rtol=1e-12)


@pytest.mark.parametrize("name", ["ridge", "huber"])
def test_units_of_targets_do_not_matter(name):
    X, y = regression()
    plain = repeatable(name).fit(X, y)
    other = repeatable(name, target_bounds=(8 - 64, 8 + 64)).fit(X, 8 + 64 * y)
    np.testing.assert_allclose(other.coef_, 64 * plain.coef_, rtol=1e-9)
    np.testing.assert_allclose(other.predict(X), 8 + 64 * plain.predict(X), rtol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_rows_outside_are_projected_in_fit_and_in_prediction(name):
    X, y = records_for(name)
    wild = X.copy()
    wild[:4] = [[2, -1, 1e300], [np.inf, -np.inf, 1], [np.nan, 0, 0], [-0.5, 1.5, 0.5]]
    inside = X.copy()
    inside[:4] = [[1, 0, 1], [1, 0, 1], [0, 0, 0], [0, 1, 0.5]]
    one, other = (repeatable(name).fit(rows, y) for rows in (wild, inside))
    assert_same_model(one, other)
    np.testing.assert_array_equal(one.predict(wild), one.predict(inside))
    assert clone(one).check(wild, y).rows_outside == 4
    assert not clone(one).check(inside, y).rows_outside


@pytest.mark.parametrize("name", MODELS)
def test_fitted_models_do_not_follow_their_parameters(name):
    X, y = records_for(name)
    model = repeatable(name).fit(X, y)
    before = model.predict(X)
    model.set_params(bounds=None, row_norm=0.01, intercept=False)
    np.testing.assert_array_equal(model.predict(X), before)


def test_declared_order_of_classes_decides_only_about_unknown_labels():
    X, y = records_for("logistic")
    forward, backward = repeatable("logistic").fit(X, 1 - y), repeatable("logistic", classes=(1, 0)).fit(X, y)
    np.testing.assert_array_equal(backward.coef_, -forward.coef_)
    np.testing.assert_array_equal(backward.classes_, [0, 1])
    np.testing.assert_array_equal(backward.predict(X), 1 - forward.predict(X))
    unknown = np.where(np.arange(len(y)) < 50, 7, y)
    for classes in ((0, 1), (1, 0)):
        model = repeatable("logistic", classes=classes)
        assert_same_model(model.fit(X, unknown), clone(model).fit(X, np.where(unknown == 7, classes[0], y)))
        assert model.check(X, unknown).targets_outside == 50


def test_rows_of_the_softmax_follow_the_sorted_classes():
    X, y = classification()
    plain = repeatable("softmax").fit(X, y)
    names = np.array(["c", "a", "b"])
    named = repeatable("softmax", classes=names).fit(X, names[y])
    assert list(named.classes_) == ["a", "b", "c"]
    np.testing.assert_array_equal(named.coef_, plain.coef_[[1, 2, 0]])
    np.testing.assert_allclose(named.predict_proba(X), plain.predict_proba(X)[:, [1, 2, 0]], rtol=1e-12)
    np.testing.assert_array_equal(named.predict(X), names[plain.predict(X)])
    np.testing.assert_allclose(named.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize("kind", [object, "U5", "O-missing"])
def test_labels_may_be_text_in_any_array(kind):
    X, y = records_for("logistic")
    labels = np.array(["no", "yes"])[y].astype(object if kind == "O-missing" else kind)
    model = repeatable("logistic", classes=("no", "yes"))
    if kind == "O-missing":
        labels[:3] = [None, np.nan, ["yes"]]
        assert model.check(X, labels).targets_outside == 3
        y = np.where(np.arange(len(y)) < 3, 0, y)
    assert_same_model(model.fit(X, labels), repeatable("logistic").fit(X, y))
    assert set(model.predict(X)) == {"no", "yes"}


@pytest.mark.parametrize("kind", ["Int64", "Float64", "boolean"])
def test_missing_values_of_pandas_count_as_those_of_numpy(kind):
    pandas = pytest.importorskip("pandas")
    X, y = records_for("logistic", 200)
    X = (X > 0.5).astype(float)
    frame = pandas.DataFrame(X).astype(int).astype(kind)
    labels = pandas.Series(y).astype(kind)
    frame.iloc[0, 1], labels.iloc[1] = pandas.NA, pandas.NA
    X[0, 1], y[1] = np.nan, 0
    assert_same_model(repeatable("logistic").fit(frame, labels), repeatable("logistic").fit(X, y))
    targets = y.astype(float)
    targets[1] = np.nan
    assert_same_model(repeatable("huber").fit(frame, labels), repeatable("huber").fit(X, targets))
    assert_same_model(repeatable("huber").fit(X, labels.astype(object)), repeatable("huber").fit(X, targets))


@pytest.mark.parametrize("name", MODELS)
def test_without_an_intercept_there_is_none(name):
    X, y = records_for(name)
    model = repeatable(name, intercept=False, bounds=(4, 5)).fit(X + 4, y)
    assert not np.any(model.intercept_)
    margins = (X + 4) @ np.atleast_2d(model.coef_).T
    shown = model.decision_function(X + 4) if name in CLASSIFIERS else model.predict(X + 4)
    np.testing.assert_allclose(shown, np.squeeze(margins), atol=1e-9)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_probabilities_and_their_logarithms(name):
    X, _ = records_for(name)
    model = fitted(name)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))


def test_a_ledger_is_charged_and_refuses(tmp_path):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Pure(1.5))
    X, y = records_for("logistic")
    model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), ledger=ledger.account("people"), anyway=True)
    clone(model).fit(X, y)
    assert ledger.spent("people") == pytest.approx(1.0)
    with pytest.raises(es.BudgetExceededError):
        clone(model).fit(X, y)
    assert len(ledger.history("people")) == 1


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_methods_with_steps_publish_their_path(delta):
    X, y = records_for("logistic", 500)
    model = repeatable("logistic", delta=delta, release="iterates", method="descent", iterations=5).fit(X, y)
    assert model.n_iter_ == 5
    assert model.path_.shape == (6, 4)
    assert model.certificate_["delta"] == delta
    named = repeatable("logistic", delta=delta, method=es.nesterov, iterations=4, allocation="uniform", batch=100)
    if delta == 0:
        assert named.fit(X, y).plan_.batch == 100
        assert len(set(named.plan_.scales)) == 1


@pytest.mark.parametrize("name", MODELS)
def test_each_record_counts_once(name):
    """Weights would change the sensitivity: there are none."""
    X, y = records_for(name, 50)
    with pytest.raises(TypeError, match="sample_weight is not taken: noise"):
        clone(MODELS[name]).fit(X, y, sample_weight=np.ones(50))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"epsilon": -1.0}, ValueError, "epsilon must be positive"),
        ({"delta": 2.0}, ValueError, "delta"),
        ({"bounds": (0, 1), "row_norm": 1.0}, ValueError, "one of bounds, row_norm and domain"),
        ({"bounds": 3}, ValueError, "bounds must be a pair"),
        ({"bounds": (1, 0)}, ValueError, "low must be below high"),
        ({"bounds": ([0, 0], [1, 1])}, ValueError, "one entry for each of the d=3"),
        ({"one_hot": [(0, 2)]}, ValueError, "one_hot goes with bounds"),
        ({"bounds": (0, 1), "norm": 1}, ValueError, "norm goes with row_norm"),
        ({"domain": es.Box([0, 0], 1)}, ValueError, "d=3"),
        ({"classes": (0, 0)}, ValueError, "different labels"),
        ({"classes": "yes"}, ValueError, "sequence of labels"),
        ({"classes": ("no", "yes")}, TypeError, "y must hold text"),
        ({"iterations": 10}, ValueError, "methods with steps"),
        ({"allocation": "uniform", "batch": 10}, ValueError, "allocation and batch"),
        ({"method": "objective", "release": "iterates"}, ValueError, "final model alone"),
        ({"method": "magic"}, ValueError, "method must be one of"),
        ({"intercept": 1}, TypeError, "intercept"),
        ({"random_state": -1}, ValueError, "random_state"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters, error, message):
    X, y = records_for("logistic", 50)
    declared = {"classes": (0, 1)} | ({} if {"bounds", "domain", "one_hot"} & set(parameters) else {"row_norm": 1.0})
    with pytest.raises(error, match=message):
        PrivateLogisticRegression(**declared | parameters).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"target_bounds": (1, 0)}, "low < high"), ({"target_bounds": 3}, "pair"), ({"transition": -1.0}, "transition")],
)
def test_wrong_declarations_of_targets_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        PrivateHuberRegressor(**{"row_norm": 1.0, "target_bounds": (0, 1)} | parameters).fit(*regression(50))


def test_a_domain_of_the_library_is_taken_as_it_is():
    X, y = records_for("logistic")
    own = repeatable("logistic", bounds=None, domain=es.Box(0, 1)).fit(X, y)
    assert_same_model(own, repeatable("logistic").fit(X, y))
    assert own.plan_.problem.domain == es.Box(0, 1)


def test_one_hot_blocks_mean_less_noise():
    boxes = [
        PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), one_hot=blocks) for blocks in ((), [(0, 4), (4, 8)])
    ]
    without, blocks = (model.plan(1000, 8).utility.expected for model in boxes)
    assert blocks < without


def test_evaluations_say_whose_privacy_they_leave_out():
    X, y = records_for("logistic")
    model = fitted("logistic")
    honest, same = unprotected_scores(model, X, y), unprotected_scores(model, X, y, same_records=True)
    assert same.scores == honest.scores
    assert honest.scores["accuracy"] == model.score(X, y)
    assert {"log_loss", "roc_auc"} < set(honest.scores)
    assert "NOT private" in str(same)
    assert "NOT private" not in str(honest)
    odd = unprotected_scores(model, X, np.where(np.arange(len(y)) < 10, 5, y))
    assert odd.targets_outside == 10
    assert odd.scores["accuracy"] <= 1 - 10 / len(y)
    assert "roc_auc" not in unprotected_scores(model, X, np.zeros(len(y))).scores
    assert set(unprotected_scores(fitted("softmax"), *classification()).scores) == {"accuracy", "log_loss"}
    X, y = regression()
    assert unprotected_scores(fitted("ridge"), X, y).scores["r2"] == fitted("ridge").score(X, y)
    with pytest.raises(TypeError, match="same_records"):
        unprotected_scores(fitted("ridge"), X, y, same_records="yes")


def test_without_scikit_learn_the_error_tells_the_command():
    code = (
        "import sys; sys.modules['sklearn'] = None; import epsteps\n"
        "try: import epsteps.estimators\n"
        "except epsteps.MissingExtraError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'epsteps[sklearn]'" in found.stdout


def test_docstrings_list_every_parameter():
    for model in MODELS.values():
        for name in model.get_params():
            assert name in type(model).__doc__.partition("Attributes")[0]


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_labels_are_those_of_scikit_learn(classes):
    rng = np.random.default_rng(classes)
    places, margins = rng.integers(0, classes, 200), np.round(rng.normal(size=(200, classes)), 1)  # with ties
    margins = margins[:, 0] if classes == 2 else margins
    likely = probabilities(margins)
    scores = of_classes(places, likeliest(margins) == places, margins, likely)
    assert scores["accuracy"] == metrics.accuracy_score(places, likely.argmax(axis=1))
    assert scores["log_loss"] == pytest.approx(metrics.log_loss(places, likely), rel=1e-12)
    if classes == 2:
        assert scores["roc_auc"] == pytest.approx(metrics.roc_auc_score(places, margins), rel=1e-12)


def test_scores_of_numbers_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth, weights = rng.normal(size=100), rng.uniform(0, 1, 100)
    other = truth + rng.normal(size=100)
    scores = of_numbers(truth, other)
    assert scores["r2"] == pytest.approx(metrics.r2_score(truth, other), rel=1e-12)
    assert scores["mean_absolute_error"] == pytest.approx(metrics.mean_absolute_error(truth, other), rel=1e-12)
    squared = metrics.mean_squared_error(truth, other)
    assert scores["root_mean_squared_error"] == pytest.approx(np.sqrt(squared), rel=1e-12)
    expected = metrics.r2_score(truth, other, sample_weight=weights)
    assert r_squared(truth, other, weights) == pytest.approx(expected, rel=1e-12)
    same = np.ones(5)
    assert [r_squared(same, same), r_squared(same, same + 1)] == [1.0, 0.0]
