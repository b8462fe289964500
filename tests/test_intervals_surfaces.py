"""Intervals where people meet them: estimators, tables, model files, reports and the command line.

Everything is computed from what was published. The one law that is sampled is seeded; it fails for right code with a
probability of 3e-3.
"""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.base import clone
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.cli import app
from epsteps.tables import Category, Numeric, Schema

N = 6000
# Columns: one whose range does not hold 0, so that it is shifted, one that is only scaled, and a category.
LOW, HIGH, ONE_HOT = [18.0, -2000.0, 0.0, 0.0, 0.0], [90.0, 5000.0, 1.0, 1.0, 1.0], [(2, 5)]
NAMES = ["age", "money", "a", "b", "c"]
ESTIMATORS = {
    "logistic": (es.PrivateLogisticRegression, {"classes": ("no", "yes")}),
    "turned": (es.PrivateLogisticRegression, {"classes": ("yes", "no")}),
    "softmax": (es.PrivateLogisticRegression, {"classes": ("no", "yes", "perhaps")}),
    "svc": (es.PrivateLinearSVC, {"classes": ("no", "yes")}),
    "ridge": (es.PrivateRidge, {"target_bounds": (10.0, 50.0)}),
    "huber": (es.PrivateHuberRegressor, {"target_bounds": (10.0, 50.0)}),
}


def records(name, n=N, seed=0):
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 3, n)
    X = np.column_stack([rng.uniform(18, 90, n), rng.uniform(-2000, 5000, n), np.eye(3)[level]])
    score = (X[:, 0] - 54) / 18 + X[:, 1] / 4000 + (level == 1) + rng.logistic(0, 1, n)
    if name in ("ridge", "huber"):
        return X, np.clip(30 + 3 * score, 10, 50)
    return X, np.where(score > 0, "yes", "no")


def fitted(name, X=None, y=None, **changes):
    kind, facts = ESTIMATORS[name]
    if X is None:
        X, y = records(name)
    options = {"bounds": (LOW, HIGH), "one_hot": ONE_HOT, "random_state": 3} | facts
    return kind(2.0, **(options | changes)).fit(X, y)


@pytest.mark.parametrize("intervals", [None, 0.9])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_tell_the_intervals_of_their_run_in_the_units_of_the_data(name, delta, intervals):
    model = fitted(name, delta=delta, intervals=intervals)
    if model.plan_.method == "clipped descent":
        with pytest.raises(ValueError, match="clipped descent gives no intervals"):
            model.confint()
        return
    found = model.confint()
    low, high = model.confint_.T
    told = np.concatenate([np.atleast_2d(model.coef_), np.reshape(model.intercept_, (-1, 1))], axis=1).ravel()
    np.testing.assert_allclose(found.coef, told, rtol=1e-9, atol=1e-12)
    assert np.all((low < told) & (told < high))
    assert found.level == (intervals or 0.95)
    assert (found.kind == "measured") == (intervals is not None and name != "softmax")
    # A coefficient is a scaled one over its column's unit, up to a sign: so is its interval.
    own, told = (intervals(target="sample") for intervals in (model.run_.intervals, model.confint))
    order = np.argsort(model.classes) if name == "softmax" else [0]
    half = 20.0 if name in ("ridge", "huber") else 1.0
    width = (own.high - own.low).reshape(len(order), 6)[order]
    told = (told.high - told.low).reshape(len(order), 6)
    np.testing.assert_allclose(told[:, :5], half * width[:, :5] / model.declared_.unit, rtol=1e-9)


def test_the_intercept_is_at_0_in_the_units_of_the_data():
    """Its interval is that of the model's value at a record of zeros, and not that of the scaled intercept."""
    model = fitted("ridge", intervals=True)
    x, declared = model.run_.x, model.declared_
    at_zero = np.append(-declared.shift / declared.unit, 1.0)
    own = model.run_.intervals(contrasts=at_zero[None, :])
    assert model.intercept_ == pytest.approx(30 + 20 * at_zero @ x)
    last = model.confint_[-1]
    assert last.mean() == pytest.approx(float(model.intercept_))
    assert np.diff(last)[0] == pytest.approx(20 * float(own.high[0] - own.low[0]), rel=1e-9)


def test_contrasts_levels_targets_and_names():
    pandas = pytest.importorskip("pandas")
    X, y = records("logistic")
    model = fitted("logistic", pandas.DataFrame(X, columns=NAMES), y, intervals=0.95)
    assert model.confint().names == (*NAMES, "intercept")
    levels = model.confint(contrasts="levels")
    assert levels.coef[2:5].sum() == pytest.approx(0, abs=1e-12)
    assert np.all((levels.high - levels.low)[2:5] < (model.confint_[2:5] @ [-1, 1]) / 3)
    one = model.confint(0.8, "sample", {"b - a": [0, 0, -1, 1, 0, 0]})
    assert one.names == ("b - a",)
    assert one.coef[0] == pytest.approx(model.coef_[0, 3] - model.coef_[0, 2])
    assert (one.level, one.target) == (0.8, "sample")
    with pytest.raises(ValueError, match="contrasts"):
        model.confint(contrasts=np.zeros((1, 6)))


def test_no_record_is_needed_after_the_fit():
    X, y = records("logistic")
    model = fitted("logistic", X, y, intervals=0.95)
    told = model.confint(0.9).to_dict()
    X[:], y[:] = np.nan, "no"
    del X, y
    copied = pickle.loads(pickle.dumps(model))
    assert copied.confint(0.9).to_dict() == told
    assert np.array_equal(copied.confint_, model.confint_)
    # Parameters that are set later do not change what was fitted.
    assert model.set_params(classes=("yes", "no"), intervals=None).confint(0.9).to_dict() == told
    assert not hasattr(clone(model), "confint_")
    with pytest.raises(ValueError, match="not fitted"):
        clone(model).confint()


def test_another_fit_has_other_intervals():
    model = fitted("logistic", intervals=0.95)
    first = model.confint_
    assert first is model.confint_
    X, y = records("logistic", seed=1)
    assert not np.array_equal(model.fit(X, y).confint_, first)


@pytest.mark.parametrize("intervals", [None, 0.95])
def test_a_summary_says_what_was_spent_and_what_it_is_worth(intervals):
    text = fitted("logistic", intervals=intervals, random_state=None).summary()
    for word in ("PrivateLogisticRegression", "Records:", "Spent:", "Worth:", "std err", "[0.025", "privacy", "x0"):
        assert word in text
    assert ("measured" in text) == (intervals is not None)
    assert ("At most: no curvature was bought" in text) == (intervals is None)
    assert "differential privacy with" in text
    assert max(map(len, text.splitlines())) <= 80


def test_other_methods_say_why_there_are_none():
    model = fitted("ridge", method="descent")  # which clips the gradients of squared loss
    assert "No intervals: there are no intervals: clipped gradients" in model.summary()
    assert not hasattr(model, "confint_")
    for ask in (model.confint, lambda: model.summary(level=0.9)):
        with pytest.raises(ValueError, match="use method='objective'"):
            ask()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"intervals": 1.5}, ValueError, "between 0.5 and 0.99"),
        ({"intervals": 0}, ValueError, "between 0.5 and 0.99"),
        ({"robust": True}, ValueError, "intervals=0.95"),
        ({"intervals": True, "method": "output"}, TypeError, "buys no intervals"),
        ({"intervals": True, "release": "iterates"}, TypeError, "buys no intervals"),
    ],
)
def test_what_cannot_be_bought_is_refused_before_data_is_read(changes, error, message):
    with pytest.raises(error, match=message):
        es.PrivateLogisticRegression(1.0, bounds=(0, 1), classes=(0, 1), **changes).plan(N, 3)


def test_robust_buys_a_dispersion_and_regression_has_it_anyway():
    assert (
        es.PrivateLogisticRegression(1.0, bounds=(0, 1), classes=(0, 1), intervals=True, robust=True)
        .plan(N, 3)
        .dispersion
        > 0
    )
    assert es.PrivateLogisticRegression(1.0, bounds=(0, 1), classes=(0, 1), intervals=True).plan(N, 3).dispersion == 0
    assert es.PrivateRidge(1.0, bounds=(0, 1), target_bounds=(-1, 1), intervals=True).plan(N, 3).dispersion > 0


def test_a_search_has_no_intervals():
    X, y = records("logistic")
    options = {"bounds": (LOW, HIGH), "classes": ("no", "yes")}
    with pytest.raises(ValueError, match="a search gives no intervals"):
        es.PrivateSearch(es.PrivateLogisticRegression(intervals=0.95, **options), {"ridge": [0.1]}).plan(N, 5)
    grid = {"ridge": [1e-3], "intervals": [0.9]}
    with pytest.raises(ValueError, match="intervals cannot be tuned"):
        es.PrivateSearch(es.PrivateLogisticRegression(**options), grid).plan(N, 5)
    search = es.PrivateSearch(
        es.PrivateLogisticRegression(**options), {"ridge": [1e-3]}, epsilon=3.0, trials=1, random_state=0
    ).fit(X, y)
    with pytest.raises(ValueError, match="best of several trials"):
        search.best_estimator_.confint()
    assert "No intervals: the model is the best of several trials" in search.best_estimator_.summary()


# ------------------------------------------------------------------------------------------------------------ a law
def minimum(X, y, ridge):
    """Return the minimum of the mean logistic loss with a ridge, and a constant as the last number: Newton's method."""
    U = np.column_stack([X, np.ones(len(X))])
    x = np.zeros(U.shape[1])
    for _ in range(30):
        p = expit(U @ x)
        gradient = U.T @ (p - y) / len(y) + ridge * x
        x = x - np.linalg.solve((U.T * (p * (1 - p))) @ U / len(y) + ridge * np.eye(len(x)), gradient)
    return x


def test_repeated_fits_cover_the_minimum_of_their_records():
    """Of 60 fits each coefficient is covered by 95 % as often as a binomial law allows, and not by a third of that."""
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 1, (4000, 2))
    y = (X @ [2.0, -1.0] - 0.5 + rng.logistic(0, 1, 4000) > 0).astype(int)
    covered, third, target = [], [], None
    for seed in range(60):
        model = es.PrivateLogisticRegression(1.0, bounds=(0, 1), classes=(0, 1), intervals=0.95, random_state=seed).fit(
            X, y
        )
        target = minimum(X, y, model.plan_.ridge) if target is None else target
        found = model.confint(target="sample")
        assert found.kind == "measured"
        distance, half = np.abs(found.coef - target), (found.high - found.low) / 2
        covered.append(distance <= half)
        third.append(distance <= half / 3)
    assert np.all(np.sum(covered, axis=0) >= stats.binom.ppf(1e-3, 60, 0.95))
    assert np.all(np.sum(third, axis=0) < stats.binom.ppf(1e-3, 60, 0.95))


# ----------------------------------------------------------------------------------------------------------- tables
TARGETS = {"two": Category(["no", "yes"]), "three": Category(["u", "v", "w"]), "number": Numeric(-50, 50)}


def schema_of(kind):
    columns = {"age": Numeric(18, 90), "job": Category(["x", "y", "z"]), "flag": Category([0, 1])}
    return Schema(columns | {"t": TARGETS[kind]}, target="t")


def table_of(kind, n=N):
    rng = np.random.default_rng(1)
    age, job, flag = rng.uniform(18, 90, n), rng.choice(["x", "y", "z"], n), rng.integers(0, 2, n)
    score = (age - 54) / 36 + 0.5 * (job == "z") - flag + rng.logistic(0, 0.5, n)
    targets = {
        "two": np.where(score > 0, "yes", "no"),
        "three": np.array(["u", "v", "w"])[np.digitize(score, [-0.5, 0.5])],
        "number": np.clip(20 * score, -50, 50),
    }
    return {"age": age, "job": job, "flag": flag, "t": targets[kind]}


def model_of(kind, budget, intervals, **options):
    schema = schema_of(kind)
    asked = {} if intervals is None else {"intervals": intervals}
    plan = es.plan(tables.problem_of(schema, N, 1e-4), budget, "objective", **asked, **options)
    return tables.fit_model(plan, schema, table_of(kind), seed=2)


@pytest.mark.parametrize("intervals", [None, 0.9])
@pytest.mark.parametrize("budget", [es.Pure(2.0), es.Approximate(2.0, 1e-6)], ids=lambda budget: type(budget).__name__)
@pytest.mark.parametrize("kind", TARGETS)
def test_a_model_file_gives_the_same_intervals_and_the_report_shows_them(kind, budget, intervals):
    model = model_of(kind, budget, intervals)
    content = json.loads(json.dumps(tables.model_to_dict(model), allow_nan=False))
    again = tables.model_from_dict(content)
    for asked in ({}, {"level": 0.8, "target": "sample"}, {"contrasts": np.eye(len(model.terms.names))[:2]}):
        assert again.intervals(**asked).to_dict() == model.intervals(**asked).to_dict()
    effects = [entry["effect"] for entry in content["coefficients"]]
    np.testing.assert_allclose(model.intervals().coef, effects, rtol=1e-9, atol=1e-12)
    shown = content["intervals"]
    measured = intervals is not None and kind != "three"
    assert (shown["kind"], shown["target"]) == (("measured", "population") if measured else ("provable", "sample"))
    assert [row["name"] for row in shown["rows"]] == list(model.terms.names)
    assert all(row["low"] < row["coef"] < row["high"] for row in shown["rows"])
    page = tables.page(content)
    assert ("<p>\nMeasured" in page or "<p>Measured" in page) == measured
    assert ("At most:" in page) == (not measured)
    assert page.count('class="span"') == page.count("<circle cx=") == len(shown["rows"])
    assert f'value="{shown["rows"][0]["high"]!r}"' in page
    if kind != "three":
        assert sum(row["coef"] for row in shown["rows"][1:4]) == pytest.approx(0, abs=1e-9)


def test_scaled_targets_and_centred_classes_are_told_with_their_noise():
    number = model_of("number", es.Pure(2.0), 0.95)
    own = es.Run(number.plan, number.points[:, 0], True, dict(number.besides)).intervals()
    assert number.intervals().high - number.intervals().low == pytest.approx(50 * (own.high - own.low), rel=1e-9)
    three = model_of("three", es.Pure(2.0), None)
    assert three.intervals().coef.reshape(3, -1).sum(axis=0) == pytest.approx(0, abs=1e-9)


def test_files_of_before_are_read_and_changed_ones_refused():
    content = tables.model_to_dict(model_of("two", es.Pure(2.0), None))
    former = {name: value for name, value in content.items() if name not in ("besides", "intervals", "signature")}
    assert tables.model_from_dict(former).intervals().kind == "provable"
    bought = tables.model_to_dict(model_of("two", es.Pure(2.0), 0.95))
    for besides in ({}, {"sizes": [1.0]}, bought["besides"] | {"more": [1.0]}, bought["besides"] | {"sizes": None}):
        with pytest.raises(tables.ModelFormatError):
            tables.model_from_dict(bought | {"besides": besides})


@pytest.mark.parametrize("size", [0.0, 1e-320, -1e150, 1e150])
def test_whatever_was_released_is_written(size):
    """Once a model is paid for, no number of it may raise or warn."""
    model = model_of("number", es.Pure(2.0), 0.95)
    besides = {name: np.full_like(values, size) for name, values in model.besides.items()}
    content = tables.model_to_dict(replace(model, besides=besides))
    assert tables.page(json.loads(json.dumps(content, allow_nan=False))).endswith("</html>\n")


# ----------------------------------------------------------------------------------------------------- command line
def test_the_command_line_buys_and_prints_intervals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(schema_of("two").to_toml())
    table = table_of("two")
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")

    def said(*arguments, code=0):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == code, done.output
        return done.output

    fit = ["fit", "t.csv", "--schema", "s.toml", "--epsilon", "2", "--yes"]
    assert "for the curvature" in said(*fit, "--intervals", "0.9", "--robust", "--out", "bought")
    said(*fit, "--out", "free")
    bought = said("intervals", "bought")
    assert "0.9 intervals for the population's minimum: measured" in bought
    assert "job=y" in bought
    other = said("intervals", "bought/model.json", "--level", "0.8", "--target", "sample", "--contrasts", "levels")
    assert "0.8 intervals for the sample's minimum: measured" in other
    assert ": at most" in said("intervals", "free")
    found = json.loads(said("intervals", "free", "--json"))
    assert found == tables.load_model("free").intervals().to_dict()
    assert "Measured: each interval covers" in (tmp_path / "bought" / "report.html").read_text()
    assert "level must be between" in said("intervals", "free", "--level", "2", code=2)
    assert "buys no intervals" in said(*fit, "--intervals", "0.9", "--method", "output", "--out", "none", code=2)
    planned = said("plan", "--n", "100000", "--d", "5", "--intervals", "0.95", "--intercept")
    assert "objective perturbation with intervals" in planned
    assert "--intervals 0.95" in said("plan", "--n", "100000", "--d", "5", "--method", "objective", "--robust", code=2)


# ---------------------------------------------------------------------------------------------------- planned backwards
def problem_of(loss=None, n=20_000, d=5):
    return es.Problem(loss or es.Logistic((0, 1)), es.Box(0, 1), ridge=1e-4, n=n, d=d, intercept=True)


@pytest.mark.parametrize("budget", [es.Pure(1.0), es.Approximate(1.0, 1e-6)], ids=lambda budget: type(budget).__name__)
@pytest.mark.parametrize(
    "loss",
    [
        es.Logistic((0, 1)),
        es.CappedLogistic((0, 1)),
        es.HalfExponential((0, 1)),
        es.SmoothedHinge((0, 1)),
        es.PseudoHuber(1.0),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_widths_are_guessed_to_a_factor_of_2_for_even_columns(loss, budget):
    problem = problem_of(loss)
    plan = es.plan(problem, budget, release="final", intervals=0.95)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (problem.n, problem.d))
    score = (X - 0.5) @ [1.0, -1.0, 0.5, 0.2, 0.0] + rng.logistic(0, 1, problem.n)
    y = np.clip(score / 4, -1, 1) if isinstance(loss, es.PseudoHuber) else (score > 0).astype(int)
    found = es.run(plan, es.Rows(problem, X, y), seed=1).intervals()
    assert found.kind == "measured"
    assert 0.5 < plan.guessed_half_width / np.max((found.high - found.low)[:5] / 2) < 2


def test_the_budget_and_the_records_that_a_width_takes():
    problem = problem_of()
    epsilon = es.required_epsilon(problem, width=0.3, level=0.9)
    reached = es.plan(problem, es.Pure(epsilon), release="final", intervals=0.9)
    assert 0.29 < reached.guessed_half_width <= 0.3
    assert es.required_epsilon(problem, width=0.2, level=0.9) > epsilon
    n = es.required_n(problem, width=0.3, epsilon=epsilon, level=0.9)
    assert n == pytest.approx(problem.n, rel=0.15)  # ridges are chosen in steps, and widths jump with them
    assert es.plan(replace(problem, n=n), es.Pure(epsilon), release="final", intervals=0.9).guessed_half_width <= 0.3
    with pytest.raises(es.UnreachableError, match=r"half-width 0\.001: with epsilon"):
        es.required_epsilon(problem, width=0.001)
    with pytest.raises(es.UnreachableError, match="no epsilon"):
        es.required_epsilon(problem_of(es.Softmax((0, 1, 2))), width=0.3)
    for wrong in ({"width": 0.1, "error": 0.1}, {"width": -1.0}, {"width": 0.1, "proved": True}):
        with pytest.raises(ValueError, match="width"):
            es.required_epsilon(problem, **wrong)
    done = CliRunner().invoke(app, ["plan", "--n", "20000", "--d", "5", "--target-width", "0.3", "--ridge", "1e-4"])
    assert done.exit_code == 0, done.output
    assert "objective perturbation with intervals" in done.output


def test_a_plan_that_takes_missing_numbers_for_categories_is_refused_before_it_is_charged(tmp_path):
    """As plans of before do, and such as were not made for the schema's domain."""
    schema = Schema({"age": Numeric(0, 100, missing=True), "y": Category(["no", "yes"])}, target="y")
    table = {"age": np.linspace(0, 100, 5000), "y": np.array(["no", "yes"] * 2500)}
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Pure(5.0))
    problem = tables.problem_of(schema, 5000, ridge=0.01)
    former = es.Problem(problem.loss, es.Box(0, 1, one_hot=[(0, 2)]), ridge=0.01, n=5000, d=2, intercept=True)
    plan = es.plan(former, es.Pure(2.0), release="final", intervals=0.95)
    assert plan.mode == "measured"
    with pytest.raises(ValueError, match="takes numbers that have missing=True for categories"):
        tables.fit_model(plan, schema, table, ledger=ledger.account("people"))
    assert ledger.spent("people") == 0
    # Without curvature the plan of before is as good as one of now, and so is its model's file.
    free = es.plan(former, es.Pure(2.0), release="final")
    model = tables.model_from_dict(tables.model_to_dict(tables.fit_model(free, schema, table, seed=1)))
    assert model.intervals(target="sample").kind == "provable"
