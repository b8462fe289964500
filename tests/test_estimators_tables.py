"""Estimators of declared tables: what must be declared, frames in and out, files, and what stands around a fit."""

import dataclasses
import json
from functools import cache
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_matrix import Watched
from typer.testing import CliRunner

import epsteps as es
from epsteps import Schema, tables
from epsteps.budgets.conversions import gaussian_epsilon
from epsteps.data.values import key_of
from epsteps.tables.report import page

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
)
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

COLUMNS = {
    "age": es.Numeric(0, 100, bins=[30, 60]),
    "income": es.Numeric(0, 1e6, missing=True, transform="log1p"),
    "hours": es.Numeric(0, 99, clip=(10, 60)),
    "job": es.Category(["clerk", "nurse", "smith"], missing=True),
    "ill": es.Category(["no", "yes"]),
    "grade": es.Category([1, 2, 3]),
    "score": es.Numeric(-10, 30),
}
TARGETS = {"logistic": "ill", "softmax": "grade", "svc": "ill", "ridge": "score", "huber": "score"}
KINDS = {
    "logistic": es.PrivateLogisticRegression,
    "softmax": es.PrivateLogisticRegression,
    "svc": es.PrivateLinearSVC,
    "ridge": es.PrivateRidge,
    "huber": es.PrivateHuberRegressor,
}
MAKERS = {"dict": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame}


def schema_for(name: str, target: str | None = None) -> es.Schema:
    """Return the declared features with one target, and with interactions."""
    columns = {key: COLUMNS[key] for key in ("age", "income", "hours", "job", TARGETS[name])}
    return es.Schema(columns, target, interactions=[("hours", "job"), ("income", "hours")])


@cache
def people(n: int = 600) -> dict[str, list]:
    """Return a table with empty cells and numbers outside their ranges."""
    rng = np.random.default_rng(0)
    age, hours = rng.integers(10, 110, n), rng.uniform(-5, 120, n)
    income = [None if u < 0.1 else float(v) for u, v in zip(rng.random(n), np.exp(rng.normal(9, 2, n)), strict=True)]
    job = rng.choice(["clerk", "nurse", "smith", "pope", ""], n).tolist()
    signal = (age - 60) / 30 + np.array([each == "nurse" for each in job]) + 0.3 * rng.standard_normal(n)
    return {
        "name": [f"person {i}" for i in range(n)],
        "job": job,
        "ill": np.where(signal > 0, "yes", "no").tolist(),
        "grade": np.digitize(signal, [-0.5, 0.7]).astype(int).__add__(1).tolist(),
        "hours": hours.tolist(),
        "score": (10 + 8 * signal).tolist(),
        "income": income,
        "age": age.tolist(),
    }


@cache
def fitted(name: str):
    quick = {"svc": {"method": "output"}, "huber": {"method": "output"}, "ridge": {"method": "statistics"}}.get(
        name, {}
    )
    return KINDS[name](50.0, schema=schema_for(name), anyway=True, **quick).fit(pd.DataFrame(people()), TARGETS[name])


# --- what must be declared -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (es.PrivateLogisticRegression(bounds=(0, 1)), r"classes are not declared.*pass classes="),
        (es.PrivateLinearSVC(bounds=(0, 1)), r"classes are not declared.*pass classes="),
        (
            es.PrivateLogisticRegression(classes=("no", "yes")),
            r"nothing is declared of the columns.*bounds=\(low, high\)",
        ),
        (es.PrivateRidge(target_bounds=(0, 1)), r"nothing is declared of the columns"),
        (es.PrivateRidge(bounds=(0, 1)), r"range of the targets is not declared.*target_bounds=\(low, high\)"),
        (es.PrivateHuberRegressor(bounds=(0, 1)), r"range of the targets is not declared"),
        (es.PrivateLogisticRegression(norm=1, classes=(0, 1)), "norm goes with row_norm"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, es.PrivateRidge) else None,
)
def test_what_is_not_declared_is_refused_before_the_charge(model, message):
    """These fits gave constants, majorities or targets clipped to [-1, 1], for a whole epsilon and without a word."""
    X = pd.DataFrame({"age": [20.0, 50.0, 70.0] * 20, "income": [1e3, 5e4, 2e4] * 20})
    y = pd.Series(["no", "yes", "no"] * 20) if hasattr(model, "classes") else X["income"]
    account = Watched(_Free())
    with pytest.raises(ValueError, match=message):
        model.set_params(ledger=account, anyway=True).fit(X, y)
    assert not account.charged
    with pytest.raises(ValueError, match=message):
        model.plan(60, 2)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bounds": (0, 1)}, "schema declares what bounds would"),
        ({"row_norm": 1.0}, "schema declares what row_norm would"),
        ({"one_hot": [(0, 2)]}, "schema declares what one_hot would"),
        ({"classes": ("no", "yes")}, "schema declares what classes would"),
        ({"intercept": False}, "goes with an intercept"),
    ],
)
def test_a_schema_declares_alone(parameters, message):
    with pytest.raises(ValueError, match=message):
        es.PrivateLogisticRegression(schema=schema_for("logistic"), **parameters).fit(people(), "ill")


@pytest.mark.parametrize(
    ("model", "table", "y", "message"),
    [
        (KINDS["logistic"](schema=schema_for("logistic")), people(), None, "declares no target"),
        (KINDS["logistic"](schema=schema_for("logistic")), people(), "sick", "not among the columns"),
        (KINDS["logistic"](schema=schema_for("logistic", "ill")), people(), "age", "schema's target is 'ill'"),
        (KINDS["ridge"](schema=schema_for("logistic")), people(), "ill", "declared as a category: use PrivateLog"),
        (KINDS["logistic"](schema=schema_for("ridge")), people(), "score", "declared as a number: use PrivateRidge"),
        (
            KINDS["logistic"](schema=schema_for("logistic")),
            {key: cells for key, cells in people().items() if key != "job"},
            "ill",
            "no column 'job'",
        ),
        (KINDS["logistic"](schema=schema_for("logistic", "ill")), people(), ["no"] * 3, "each of the 600 rows"),
        (KINDS["logistic"](schema=schema_for("logistic", "ill")), np.zeros((5, 4)), None, "has no names"),
        (KINDS["logistic"](bounds=(0, 1), classes=("no", "yes")), np.zeros((5, 4)), "ill", "y is the name 'ill'"),
    ],
)
def test_structure_is_refused_by_name(model, table, y, message):
    with pytest.raises(ValueError, match=message):
        model.fit(table, y)
    assert not hasattr(model, "schema_")


def test_a_schema_must_be_one():
    with pytest.raises(TypeError, match="schema must be a Schema"):
        es.PrivateRidge(schema="people.toml").fit(people(), "score")


def test_a_refused_fit_leaves_the_model_as_it_was():
    model = clone(fitted("logistic")).set_params(random_state=1).fit(people(), "ill")
    before = model.predict(people())
    with pytest.raises(ValueError, match="no column"):
        model.set_params(schema=es.Schema({"size": es.Numeric(0, 1), "ill": COLUMNS["ill"]})).fit(people(), "ill")
    np.testing.assert_array_equal(model.predict(people()), before)


# --- tables in, predictions out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_tables_of_every_kind_give_the_same_model_and_predictions(name):
    models = []
    for make in MAKERS.values():
        model = KINDS[name](schema=schema_for(name), random_state=2).fit(make(people()), TARGETS[name])
        shuffled = make({key: people()[key] for key in reversed(list(people()))})
        without = make({key: people()[key] for key in ("hours", "job", "income", "age")})
        for table in (shuffled, without):
            np.testing.assert_array_equal(model.predict(table), model.predict(make(people())))
        models.append(model)
    for other in models[1:]:
        np.testing.assert_array_equal(other.coef_, models[0].coef_)
    by_hand = KINDS[name](schema=schema_for(name, TARGETS[name]), random_state=2)
    np.testing.assert_array_equal(by_hand.fit(people(), people()[TARGETS[name]]).coef_, models[0].coef_)
    np.testing.assert_array_equal(by_hand.fit(people()).coef_, models[0].coef_)
    assert by_hand.score(people()) == models[0].score(pd.DataFrame(people()), TARGETS[name])
    assert es.unprotected_scores(by_hand, people(), TARGETS[name]).n == 600
    assert by_hand.plan(600).problem.d == by_hand.schema.d
    assert str(clone(by_hand).plan(600)) == str(by_hand.plan_)


@pytest.mark.parametrize("name", KINDS)
def test_the_model_of_a_table_is_that_of_the_command_line(name):
    """The same plan, run on what the schema makes of the table."""
    model = fitted(name)
    assert model.plan_.problem == dataclasses.replace(
        tables.problem_of(model.schema_, 600, model.ridge), loss=model.plan_.problem.loss
    )
    assert "job=nurse" in model.summary()
    assert "log1p(income)" in model.summary()
    assert list(model.feature_names_in_) == ["age", "income", "hours", "job"]


@pytest.mark.parametrize("name", KINDS)
def test_no_cell_of_a_table_raises(name):
    odd = ["", None, "?", float("nan"), float("inf"), -1e308, "yes", 3, True, "1e400", [1], b"x"]
    table = {key: [odd[(i * 7 + j) % len(odd)] for i in range(60)] for j, key in enumerate(people())}
    model = KINDS[name](schema=schema_for(name), anyway=True)
    model.fit(table, TARGETS[name])
    assert np.all(np.isfinite(np.asarray(model.score(table))))
    assert model.check(table, TARGETS[name]).targets_outside > 0


def test_labels_that_are_not_declared_count_as_the_first_class_and_are_wrong():
    table = dict(people())
    odd = ["maybe" if i < 50 else label for i, label in enumerate(table["ill"])]
    as_first = ["no" if i < 50 else label for i, label in enumerate(table["ill"])]
    model = es.PrivateLogisticRegression(schema=schema_for("logistic"), random_state=1)
    one, other = (clone(model).fit(table | {"ill": labels}, "ill") for labels in (odd, as_first))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert es.unprotected_scores(one, table | {"ill": odd}, "ill").targets_outside == 50
    assert es.unprotected_scores(one, table | {"ill": odd}, "ill").scores["accuracy"] <= 1 - 50 / 600


@pytest.mark.parametrize("name", ["logistic", "ridge"])
def test_searches_take_tables(name):
    model = KINDS[name](schema=schema_for(name, TARGETS[name]), anyway=True)
    search = es.PrivateSearch(model, {"ridge": [1e-2, 1.0]}, epsilon=30.0, trials=2).fit(people(), TARGETS[name])
    assert search.predict(people()).shape == (600,)
    assert search.score(people()) == search.best_estimator_.score(people())
    assert search.plan(600).plans[0].problem.d == model.schema.d
    with pytest.raises(ValueError, match="best of several trials"):
        search.best_estimator_.save("nowhere")


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_saved_models_predict_the_same_bits(name, tmp_path):
    model, table = fitted(name), pd.DataFrame(people())
    loaded = es.load(model.save(tmp_path / "model"))
    assert type(loaded) is type(model)
    assert loaded.certificate_ == model.certificate_
    assert loaded.summary() == model.summary()
    for method in ("predict", "decision_function", "predict_proba"):
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(loaded, method)(table), getattr(model, method)(table))
    assert clone(loaded).get_params()["schema"] == model.schema_
    with pytest.raises(FileExistsError, match="force=True"):
        model.save(tmp_path / "model")


def test_the_folder_is_that_of_the_command_line(tmp_path):
    model, command = fitted("logistic"), import_module("epsteps.cli").app
    folder = model.save(tmp_path / "model")
    content = json.loads((folder / "model.json").read_text())
    assert (folder / "report.html").read_text() == page(content)
    assert model.card(tmp_path / "card.html").read_text() == page(content)
    pd.DataFrame(people()).to_csv(tmp_path / "people.csv", index=False)
    told = CliRunner().invoke(command, ["predict", str(folder), str(tmp_path / "people.csv")])
    assert told.stdout.split()[1:] == model.predict(people()).tolist()
    assert es.PrivateLogisticRegression.load(folder).predict(people()).tolist() == model.predict(people()).tolist()
    with pytest.raises(TypeError, match="holds a PrivateLogisticRegression"):
        es.PrivateRidge.load(folder)
    svc = fitted("svc").save(tmp_path / "svc")
    refused = CliRunner().invoke(command, ["predict", str(svc), str(tmp_path / "people.csv"), "--proba"])
    assert refused.exit_code != 0


@pytest.mark.parametrize(
    "parameters",
    [
        {"bounds": ([0, -1, 5], [1, 1, 6]), "classes": ("no", "yes")},
        {"row_norm": 2.0, "norm": np.inf, "classes": np.array(["no", "yes"])},
        {"domain": es.Box(0, 1), "classes": ("yes", "no"), "method": es.nesterov, "iterations": 3},
        {"bounds": (0, 1), "one_hot": [(0, 2)], "classes": ("no", "yes"), "intervals": 0.9, "epsilon": 50.0},
    ],
)
def test_models_without_a_schema_are_saved_too(parameters, tmp_path):
    X = np.random.default_rng(0).uniform(-1, 7, (300, 3))
    y = np.where(X[:, 0] > 0.5, "yes", "no")
    model = es.PrivateLogisticRegression(**parameters, anyway=True).fit(X, y)
    loaded = es.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.certificate_ == model.certificate_
    assert loaded.summary() == model.summary()
    assert str(loaded.plan(300, 3)) == str(model.plan_)
    with pytest.raises(ValueError, match="fit with schema"):
        model.card(tmp_path / "card.html")
    with pytest.raises(ValueError, match=r"epsteps\.load"):
        tables.load_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["estimator"].update(name="os.system"), "is not known"),
        (lambda content: content["points"][-1][0].pop(), "points"),
        (
            lambda content: content["estimator"]["parameters"].update(classes=["a", "b", "c"]),
            "other columns or targets",
        ),
        (lambda content: content.update(spent=0.1), "its spent is not that of its plan"),
        (lambda content: content.pop("plan"), "not a complete model"),
    ],
)
def test_changed_files_are_refused(change, message, tmp_path):
    X = np.random.default_rng(0).uniform(0, 1, (300, 3))
    model = es.PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), anyway=True).fit(X, X[:, 0] > 0.5)
    file = model.save(tmp_path / "model") / "model.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        es.load(tmp_path / "model")


# --- what stands around a fit ----------------------------------------------------------------------------------------


class _Free:
    """An account that takes everything."""

    def charge(self, cost, **options):
        pass


def plain(**parameters):
    return es.PrivateLogisticRegression(**{"bounds": (0, 1), "classes": (0, 1), "anyway": True} | parameters)


@cache
def records(n: int = 200):
    X = np.random.default_rng(0).uniform(0, 1, (n, 3))
    return X, (X[:, 0] > 0.5).astype(int)


def test_fits_without_a_ledger_are_counted_whichever_estimator_makes_them():
    first = plain(epsilon=0.25).fit(*records()).certificate_
    others = [
        plain(epsilon=0.5),
        clone(plain(epsilon=0.5)),
        plain(epsilon=0.5, delta=1e-6, method="descent", iterations=2),
    ]
    for k, model in enumerate(others, start=1):
        told = model.fit(*records()).certificate_
        assert told["without_ledger"]["fits"] == first["without_ledger"]["fits"] + k
    paid = sum(model.certificate_["spent"] for model in others)
    together = told["without_ledger"]["epsilon"] - first["without_ledger"]["epsilon"]
    assert together == pytest.approx(paid, rel=1e-9)
    assert told["without_ledger"]["delta"] == pytest.approx(first["without_ledger"]["delta"] + 1e-6)
    assert "public knowledge" in told["assumptions"][0]
    with pytest.raises(ValueError, match="mechanism"):
        plain(mechanism="nothing").fit(*records())
    search = es.PrivateSearch(plain(), {"ridge": [1.0]}, epsilon=0.5, trials=5).fit(*records())
    assert search.certificate_["without_ledger"]["fits"] == told["without_ledger"]["fits"] + 1  # trials are secret
    assert plain(ledger=_Free()).fit(*records()).certificate_["without_ledger"] is None
    assert plain(random_state=1).fit(*records()).certificate_["without_ledger"] is None


LOOPS = {
    "cross_val_score": lambda model, X, y: cross_val_score(model, X, y, cv=2),
    "cross_val_score in processes": lambda model, X, y: cross_val_score(model, X, y, cv=2, n_jobs=2),
    "cross_validate": lambda model, X, y: cross_validate(model, X, y, cv=2, error_score="raise"),
    "cross_val_predict": lambda model, X, y: cross_val_predict(model, X, y, cv=2),
    "learning_curve": lambda model, X, y: learning_curve(model, X, y, cv=2, train_sizes=[0.5]),
    "permutation_test_score": lambda model, X, y: permutation_test_score(model, X, y, cv=2, n_permutations=1),
    "GridSearchCV": lambda model, X, y: GridSearchCV(model, {"ridge": [0.1, 1.0]}, cv=2).fit(X, y),
    "CalibratedClassifierCV": lambda model, X, y: CalibratedClassifierCV(model, cv=2).fit(X, y),
    "a loop around a pipeline": lambda model, X, y: cross_val_score(make_pipeline(Normalizer(), model), X, y, cv=2),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "processes" in name else name for name in LOOPS]
)
def test_loops_of_scikit_learn_are_refused_with_the_way_out(name, tmp_path):
    with pytest.raises(ValueError, match="To choose parameters use PrivateSearch"):
        LOOPS[name](plain(), *records())
    if name in ("cross_val_score", "cross_val_score in processes"):
        ledger = es.Ledger(tmp_path / "budget.db")
        ledger.create("people", es.Pure(3.0))
        LOOPS[name](plain(ledger=ledger.account("people")), *records())
        assert ledger.spent("people") == pytest.approx(2.0)  # each fold was charged
        assert len(ledger.history("people")) == 2
    if name == "cross_validate":
        assert len(LOOPS[name](plain(random_state=1), *records())["test_score"]) == 2


def test_a_loop_with_a_ledger_says_whose_scores_are_not_protected():
    found = cross_validate(plain(ledger=_Free()), *records(), cv=2, return_estimator=True)
    assert any("sklearn.model_selection" in each for each in found["estimator"][0].certificate_["assumptions"])


@pytest.mark.parametrize(
    ("steps", "learned"),
    [
        ([StandardScaler()], "StandardScaler"),
        ([Normalizer(), PCA(2)], "PCA"),
        ([FeatureUnion([("a", Normalizer()), ("b", StandardScaler())])], "StandardScaler"),
        ([ColumnTransformer([("a", StandardScaler(), [0]), ("b", "passthrough", [1])])], "StandardScaler"),
        ([Pipeline([("a", PCA(2)), ("b", Normalizer())])], "PCA"),
    ],
)
@pytest.mark.parametrize("ledger", [None, _Free()])
def test_transformers_that_were_fitted_to_the_records_are_refused(steps, learned, ledger):
    X, y = records()
    with pytest.raises(ValueError, match=f"{learned} before PrivateLogisticRegression in a pipeline is fitted"):
        make_pipeline(*steps, plain(ledger=ledger)).fit(X, y)
    with pytest.raises(ValueError, match=learned):
        make_pipeline(*steps, make_pipeline(Normalizer(), plain(ledger=ledger))).fit(X, y)
    make_pipeline(*steps, plain(random_state=0)).fit(X, y)  # an experiment


def test_transformers_that_learn_nothing_are_named():
    X, y = records()
    scaler = FrozenEstimator(StandardScaler().fit(X))  # stands for one of public records
    steps = [FunctionTransformer(np.sqrt), scaler, ColumnTransformer([("a", Normalizer(), [0, 1, 2])])]
    told = make_pipeline(*steps, plain()).fit(X, y)[-1].certificate_["assumptions"]
    assert "FunctionTransformer acts on each record by itself" in told
    assert "Normalizer acts on each record by itself" in told
    assert "FrozenEstimator(StandardScaler) was fitted to public records" in told
    table = pd.DataFrame(people())
    schema = schema_for("logistic", "ill")
    model = es.PrivateLogisticRegression(domain=schema.domain(), classes=("no", "yes"), anyway=True)
    alone = make_pipeline(schema, model).fit(table, table["ill"])[-1].certificate_["assumptions"]
    assert len(alone) == len(plain().fit(X, y).certificate_["assumptions"])


def test_targets_that_are_transformed_by_the_records_are_refused():
    X, _ = records()
    model = es.PrivateRidge(bounds=(0, 1), target_bounds=(-3, 3), anyway=True)
    with pytest.raises(ValueError, match=r"called by sklearn\.compose"):
        TransformedTargetRegressor(model, transformer=StandardScaler()).fit(X, X[:, 0])


# --- several records of one person -----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 10])
@pytest.mark.parametrize("budget", [es.Pure(1.0), es.Pure(0.1), es.Concentrated(0.3), es.Approximate(1.0, 1e-6)])
def test_so_many_records_cost_the_budget_of_a_person_and_not_more(budget, k):
    share = budget.per_record(k)
    group = share.of_group(k)
    assert group.amount <= budget.amount
    assert group.amount == pytest.approx(budget.amount, rel=1e-9)
    assert group.delta <= budget.delta
    assert group.delta == pytest.approx(budget.delta, rel=1e-9)
    assert (share == budget) == (k == 1)


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("mu", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_groups_of_gaussian_releases_keep_the_bound(mu, delta, k):
    """Noise that is mu-Gaussian-private for a record is k mu-Gaussian-private for k, exactly: bounds must cover it."""
    budget = es.Approximate(gaussian_epsilon(mu, delta), delta)
    if delta * sum(np.exp(i * budget.epsilon) for i in range(k)) < 1:
        group = budget.of_group(k)
        assert gaussian_epsilon(k * mu, group.delta) <= group.epsilon
    else:  # the bound is no promise at all, and is not written as one
        with pytest.raises(ValueError, match=f"promises nothing to a person with {k} records"):
            budget.of_group(k)
    rho = es.Concentrated(mu**2 / 2).of_group(k).rho
    assert rho == pytest.approx((k * mu) ** 2 / 2)


def test_groups_of_randomised_responses_cost_what_is_said():
    """Each of k bits tells the truth with odds e^epsilon: all of them together do with odds e^(k epsilon)."""
    epsilon, k = 0.4, 3
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))
    largest = (truth / (1 - truth)) ** k
    assert np.log(largest) <= es.Pure(epsilon).of_group(k).epsilon
    assert np.log(largest) > es.Pure(epsilon).of_group(k - 1).epsilon


def test_groups_without_a_rule_are_refused():
    with pytest.raises(ValueError, match="promises nothing to a person"):
        es.Approximate(5.0, 0.1).of_group(10)
    with pytest.raises(ValueError, match="no delta"):
        es.Approximate(2000.0, 1e-6).per_record(3)
    with pytest.raises((ValueError, TypeError), match="per_person"):
        plain(per_person=0).fit(*records())


ids = st.sampled_from(["ann", "bob", "eve", "", None, 1, "1"])


@settings(max_examples=200, deadline=None)
@given(st.lists(ids, min_size=1, max_size=12), st.integers(1, 3))
def test_tables_of_neighbours_differ_in_so_many_records_at_most(owners, k):
    """One person's records are replaced, in their places, by those of somebody else."""
    schema = es.Schema({"age": es.Numeric(0, 100)}, person="who")
    for person in set(owners):
        key = key_of(person)
        others = ["zoe" if key_of(each) == key else each for each in owners]
        before, after = (schema.kept({"who": who}, k) for who in (owners, others))
        np.testing.assert_array_equal(before, after)
        theirs = np.array([key_of(each) == key for each in owners])
        assert np.sum(before & theirs) == min(k, np.sum(theirs))


def test_records_beyond_a_persons_share_count_as_nothing():
    table = dict(people())
    who = [f"p{i % 200}" for i in range(600)]  # three each
    schema = es.Schema(schema_for("logistic").columns, "ill", person="who")
    model = es.PrivateLogisticRegression(schema=schema, per_person=2, random_state=1)
    one = clone(model).fit(table | {"who": who})
    changed = {key: [*cells[:400], *cells[:200]] for key, cells in table.items()}
    np.testing.assert_array_equal(clone(model).fit(changed | {"who": who}).coef_, one.coef_)
    np.testing.assert_array_equal(one.predict(table), one.predict(table | {"who": who}))  # no person is needed
    with pytest.raises(ValueError, match="no column 'who'"):
        clone(model).fit(table)
    assert Schema.from_toml(schema.to_toml()) == schema == Schema.from_dict(schema.to_dict())
    with pytest.raises(ValueError, match="people with one record"):
        es.PrivateSearch(model.set_params(random_state=None), {"ridge": [0.1]}).fit(table | {"who": who})


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_person_is_promised_and_charged_the_whole_budget(delta, tmp_path):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Pure(1.0) if delta == 0 else es.Approximate(1.0, 1e-5))
    model = plain(epsilon=0.6, delta=delta, per_person=3, ledger=ledger.account("people")).fit(*records())
    certificate = model.certificate_
    assert model.plan_.budget.amount == pytest.approx(0.2)
    assert certificate["spent"] <= certificate["epsilon"] == 0.6
    assert certificate["spent"] == pytest.approx(0.6, rel=1e-3)
    assert "all records of one person, 3 at most" in certificate["guarantee"]
    assert "nobody has more than 3 of these records" in certificate["assumptions"]
    assert ledger.spent("people") == pytest.approx(0.6, rel=1e-3)
    assert "a person with 3 records" in ledger.history("people")[-1].note
    loaded = es.load(model.set_params(ledger=None).save(tmp_path / "model"))
    assert loaded.certificate_ == certificate
    file = tmp_path / "model" / "model.json"
    file.write_text(file.read_text().replace('"epsilon": 0.6', '"epsilon": 0.5'))
    with pytest.raises(ValueError, match="another budget"):
        es.load(tmp_path / "model")


def test_the_command_line_fits_for_persons(tmp_path):
    schema = es.Schema(schema_for("logistic").columns, "ill", person="who")
    (tmp_path / "people.toml").write_text(schema.to_toml())
    table = pd.DataFrame(people() | {"who": [f"p{i % 300}" for i in range(600)]})
    table.to_csv(tmp_path / "people.csv", index=False)
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Pure(5.0))
    options = ["--schema", tmp_path / "people.toml", "--epsilon", "4", "--per-person", "2", "--yes", "--anyway"]
    options += [
        "--method",
        "output",
        "--out",
        tmp_path / "model",
        "--ledger",
        tmp_path / "budget.db",
        "--dataset",
        "people",
    ]
    told = CliRunner().invoke(
        import_module("epsteps.cli").app, list(map(str, ["fit", tmp_path / "people.csv", *options]))
    )
    assert told.exit_code == 0, told.output
    assert "those beyond 2 count as nothing" in told.output
    assert "all records of one person, 2 at most" in told.output
    assert ledger.spent("people") == pytest.approx(4.0, rel=1e-3)
    loaded = es.load(tmp_path / "model")
    assert loaded.plan_.budget.amount == pytest.approx(2.0)
    assert loaded.certificate_["epsilon"] == 4.0
    file = tmp_path / "model" / "model.json"
    content = json.loads(file.read_text())
    content["person"]["epsilon"] = 3.0
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="budget that a person is said to have"):
        tables.load_model(tmp_path / "model")
