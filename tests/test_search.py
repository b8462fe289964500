"""Private selection: the theorem by enumeration, loop and noise by their laws, and the search as people use it."""

import itertools
import math
import pickle
import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

import epsteps as es

pytest.importorskip("sklearn")
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from epsteps.budgets.selection import Selection
from epsteps.data.dense import DenseEngine
from epsteps.data.engine import ArrayEngine, require_exact
from epsteps.estimators import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge
from epsteps.estimators.search import PrivateSearch, Shared, Trial, best_of, make_trial, models_of
from epsteps.noise import Source
from epsteps.problem.sampling import Sampling

# A statistical test fails by chance with at most this probability; seeds are fixed, so that it does or does not.
ERROR_RATE = 1e-4
LOGISTIC = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), anyway=True)
RIDGE = PrivateRidge(bounds=(0, 1), target_bounds=(-2, 2), method="statistics", anyway=True)
HUBER = PrivateHuberRegressor(bounds=(0, 1), target_bounds=(-1, 1), anyway=True)
GRID = {"ridge": [1e-3, 1.0]}


def classification(n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(0, 1, (n, 3))
    return X, (X[:, 0] > X[:, 1]).astype(int)


def regression(n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    X, _ = classification(n)
    return X, X @ [1.0, -1.0, 0.5]


def log_ratio(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.max(np.abs(np.log(one) - np.log(other))))


# --- the theorem -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [[0.2, 0.5, 0.3], [0.5, 0.5], [0.9, 0.06, 0.04]])
def test_the_law_of_the_best_trial_is_that_of_all_sequences_of_trials(q):
    longest, trials = 8, 2
    found = np.zeros(len(q))
    for k in range(1, longest + 1):
        for outcomes in itertools.product(range(len(q)), repeat=k):
            found[max(outcomes)] += (1 / trials) * (1 - 1 / trials) ** (k - 1) * math.prod(q[o] for o in outcomes)
    law, tail = Selection(trials).law(np.array(q)), (1 - 1 / trials) ** longest
    assert np.all(law >= found - 1e-12)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert found.sum() == pytest.approx(1 - tail, abs=1e-12)


masses = st.lists(st.floats(-12, 0), min_size=2, max_size=6)


@given(masses, st.floats(0.01, 3), st.integers(1, 2**31), st.data())
def test_the_claim_is_never_exceeded(logs, epsilon, trials, data):
    changes = data.draw(st.lists(st.floats(-1, 1), min_size=len(logs), max_size=len(logs)))
    one = np.exp(logs) / np.exp(logs).sum()
    other = one * np.exp(epsilon / 2 * np.array(changes))
    other /= other.sum()
    paid = log_ratio(one, other)  # what one trial costs
    selection = Selection(trials)
    if paid > 0:
        claim = selection.cost(es.Pure(paid)).epsilon
        assert log_ratio(selection.law(one), selection.law(other)) <= claim * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_smaller_claims_are_exceeded(epsilon):
    """A rare outcome becomes likelier, and a better one, less rare, less likely: both help it to be published."""
    one = np.array([0, 1e-9, 1e-3])
    other = one * np.exp([0, epsilon, -epsilon])
    one[0], other[0] = 1 - one.sum(), 1 - other.sum()
    assert log_ratio(one, other) == pytest.approx(epsilon)
    selection = Selection(10**7)
    found = log_ratio(selection.law(one), selection.law(other))
    assert 2.99 * epsilon < found <= selection.cost(es.Pure(epsilon)).epsilon


@given(st.floats(1e-6, 1e6))
def test_costs_and_shares_round_toward_privacy(epsilon):
    selection = Selection(7)
    assert selection.cost(es.Pure(epsilon)).epsilon > 3 * epsilon
    share = selection.trial(es.Pure(epsilon))
    assert selection.cost(share).epsilon <= epsilon < 3.000001 * share.epsilon


def test_other_budgets_are_refused():
    with pytest.raises(TypeError, match="Pure"):
        Selection(3).cost(es.Approximate(1.0, 1e-6))
    with pytest.raises(ValueError, match="trials must be between 1"):
        Selection(0)


# --- the loop and the noise ------------------------------------------------------------------------------------------


def test_the_loop_draws_from_the_law():
    """Four outcomes, two of equal score; the best of a fixed number of trials with the same mean is told apart."""
    source, selection, runs = Source(1), Selection(3), 20_000
    scores, lengths = np.zeros(3), []

    def trial() -> Trial:
        lengths[-1] += 1
        outcome = int(source.subset(Sampling(4, 1))[0])
        return Trial(max(outcome - 1, 0), outcome)

    firsts = 0
    for _ in range(runs):
        lengths.append(0)
        best = best_of(selection, source, trial)
        scores[best.score] += 1
        firsts += best.outcome == 0
    q = np.array([0.5, 0.25, 0.25])
    assert stats.chisquare(scores, runs * selection.law(q)).pvalue > ERROR_RATE
    fixed = np.diff(np.append(0, np.cumsum(q) ** 3))
    assert stats.chisquare(scores, runs * fixed).pvalue < ERROR_RATE**2
    # Equal scores: each outcome as likely as in one trial.
    assert stats.binomtest(int(firsts), int(scores[0]), 0.5).pvalue > ERROR_RATE
    counts = np.bincount(np.minimum(lengths, 12), minlength=13)[1:]
    expected = stats.geom(1 / 3).pmf(np.arange(1, 13))
    expected[-1] = stats.geom(1 / 3).sf(11)
    assert stats.chisquare(counts, runs * expected).pvalue > ERROR_RATE


@pytest.mark.parametrize("model", [LOGISTIC, RIDGE], ids=["classifier", "regressor"])
def test_scores_have_the_noise_that_is_paid_for(model):
    X, y = classification(60) if is_classifier(model) else regression(60)
    search = PrivateSearch(model, {"ridge": [0.1]}, epsilon=1.5)
    plan = search.plan(60, 3)
    parts = (Shared(X[:48], y[:48]), (X[48:], y[48:]))
    models, source = models_of(model, plan.candidates, es.Pure(0.5)), Source(2)
    noise = []
    for _ in range(200):
        found = make_trial(plan, models, source, *parts)
        noise.append((found.score - found.outcome[1]._gains(*parts[1]).sum()) / plan.unit)
    # A discrete Laplace law in units of the score's steps, made continuous by a fraction of a step.
    jitter = np.random.default_rng(0).uniform(-0.5, 0.5, 200) / plan.unit
    scale = 1 / math.tanh(0.25) / 2 if plan.unit == 1 else 2.0  # a step of width 1 widens scale 2 a little
    assert plan.scale / plan.unit == pytest.approx(2.0)
    assert stats.kstest(np.abs(noise + jitter), stats.expon(scale=scale).cdf).pvalue > ERROR_RATE
    assert stats.kstest(np.abs(noise + jitter), stats.expon(scale=scale / 3).cdf).pvalue < ERROR_RATE**2


@cache
def scored(classifier: bool):
    """Return a model, the unit of its score, and records to score it on."""
    model, (X, y) = (LOGISTIC, classification(60)) if classifier else (RIDGE, regression(60))
    return (
        clone(model).set_params(random_state=0).fit(X, y),
        PrivateSearch(model, GRID).plan(60, 3).unit,
        X[:12],
        y[:12],
    )


odd = st.sampled_from([0.0, 1.0, -1.0, 0.5, 7.0, np.nan, np.inf, -np.inf, 1e308, -1e308])


@given(st.lists(odd, min_size=3, max_size=3), odd, st.integers(0, 11))
@pytest.mark.parametrize("model", [LOGISTIC, RIDGE], ids=["classifier", "regressor"])
def test_one_record_moves_the_score_by_one_unit_at_most(model, row, target, place):
    fitted, unit, X, y = scored(is_classifier(model))
    X, y = X.copy(), y.astype(float)
    before = fitted._gains(X, y)
    X[place], y[place] = row, target
    after = fitted._gains(X, y)
    assert before.dtype == after.dtype == np.int64
    assert after.min() >= 0
    assert after.max() <= unit
    assert np.all(np.delete(before, place) == np.delete(after, place))


# --- the search ------------------------------------------------------------------------------------------------------


def test_a_useful_candidate_is_found():
    """The useless one wins where the other is never tried (a chance of 1/21), and hardly ever else."""
    X, y = classification()
    grid = {"ridge": [1e-2, 1e6]}
    search = PrivateSearch(LOGISTIC, grid, epsilon=3.0, trials=20)
    found = [clone(search).set_params(random_state=seed).fit(X, y).best_params_["ridge"] for seed in range(10)]
    assert found.count(1e-2) >= 7


@pytest.fixture
def account(tmp_path):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Pure(1.0))
    return ledger.account("people")


def test_the_ledger_is_charged_once_for_the_whole_search(account):
    X, y = classification()
    search = PrivateSearch(LOGISTIC, GRID, epsilon=0.6, trials=4, ledger=account).fit(X, y)
    (entry,) = account.ledger.history("people")
    assert 0.59 < account.ledger.spent("people") <= 0.6
    assert entry.cost.epsilon == search.certificate_["spent"] == search.plan_.spent.epsilon
    again = clone(search)
    with pytest.raises(es.BudgetExceededError):
        again.fit(X, y)
    assert not hasattr(again, "best_estimator_")


class Witness:
    """An account that notes when it is charged."""

    def __init__(self, events: list) -> None:
        self.events = events

    def charge(self, cost, *, note, key=None) -> None:
        self.events.append("charge")


def test_fits_and_scores_never_share_a_record_and_come_after_the_charge(monkeypatch):
    """A trial costs the larger of fit and score, not their sum, only because the parts are disjoint."""
    X, y = classification(100)
    X[:, 2] = np.arange(100) / 100
    events: list = []

    def watched(plan, models, source, fitting, scoring):
        events.append([np.rint(part[0][:, 2] * 100).astype(int).tolist() for part in ((fitting.X,), scoring)])
        return make_trial(plan, models, source, fitting, scoring)

    monkeypatch.setattr("epsteps.estimators.search.make_trial", watched)
    search = PrivateSearch(LOGISTIC, GRID, trials=8, holdout=0.3, ledger=Witness(events), random_state=2).fit(X, y)
    assert events[0] == "charge"
    fitted, scored = events[1]
    assert len(scored) == 30
    assert sorted(fitted + scored) == list(range(100))
    assert len(events) > 2
    assert all(parts == events[1] for parts in events[1:])
    search.set_params(random_state=None).fit(X, y)
    assert events[-1][1] != scored  # the split is drawn, not read off the records or their order


@pytest.mark.parametrize(
    ("model", "grid", "times"),
    [
        (LOGISTIC, {"ridge": [1e-3, 0.1, 1.0], "method": ["objective", "output", es.gd]}, 1),
        (RIDGE, {"ridge": [1e-3, 1.0], "method": ["statistics", "objective"]}, 1),  # whose loss is another
        (LOGISTIC, {"bounds": [(0, 1), (0, 2), ([0, 0, 0], [1, 1, 1])], "ridge": [1e-3, 1.0]}, 2),
        (LOGISTIC, {"intercept": [False, True]}, 2),
        (HUBER, {"transition": [0.1, 0.3], "ridge": [1e-3, 1.0]}, 1),
    ],
    ids=["ridge and method", "regression", "bounds", "intercept", "loss"],
)
def test_records_are_prepared_once_for_all_candidates_that_read_them_alike(model, grid, times, monkeypatch):
    prepared, right = [], ArrayEngine._rounded
    monkeypatch.setattr(ArrayEngine, "_rounded", lambda *records: prepared.append(1) or right(*records[-2:]))
    X, y = classification(60) if is_classifier(model) else regression(60)
    search = PrivateSearch(clone(model).set_params(engine="numpy"), grid)
    plan, shared = search.plan(75, 3), Shared(X, y)
    share = plan.selection.trial(plan.budget)
    require_exact(DenseEngine, "numpy")
    prepared.clear()

    def fitted(seed):
        models = [model.set_params(random_state=seed) for model in models_of(search.estimator, plan.candidates, share)]
        return [model._fit(p, shared.rows(model, p.problem)) for model, p in zip(models, plan.plans, strict=True)]

    fitted(None)
    found = fitted(3)
    assert len(prepared) == times
    for model in found:
        np.testing.assert_array_equal(model.path_, clone(model).fit(X, y).path_)
    prepared.clear()
    search.fit(X, y)
    assert 1 <= len(prepared) <= times


def test_wrong_structure_is_not_charged(account):
    X, y = classification(100)
    apart = clone(LOGISTIC).set_params(bounds=(1, 2))
    with pytest.raises(ValueError, match="sparse"):
        PrivateSearch(apart, GRID, ledger=account).fit(sparse.csr_array(X), y)
    with pytest.raises(TypeError, match="classes"):
        PrivateSearch(LOGISTIC, GRID, ledger=account).fit(X, y.astype(str))
    assert account.ledger.history("people") == []


def test_the_certificate_is_the_searchs_and_nothing_tells_the_number_of_trials():
    X, y = classification(200)
    search = PrivateSearch(LOGISTIC, GRID, epsilon=1.0, trials=3).fit(X, y)
    certificate = search.certificate_
    assert 0.99 < certificate["spent"] <= certificate["epsilon"] == 1.0
    assert certificate["spent"] == pytest.approx(3 * certificate["trial"], rel=1e-9)
    assert not certificate["seeded"]
    assert "secret" in certificate["guarantee"]
    assert search.best_estimator_.certificate_ == certificate
    published = set(vars(search)) - set(search.get_params(deep=False))
    names = {"best_params_", "best_estimator_", "best_score_", "plan_", "certificate_", "n_features_in_"}
    assert published == names
    assert "none" in search.set_params(random_state=1).fit(X, y).certificate_["guarantee"]


def test_plans_are_made_before_the_data():
    plan = PrivateSearch(LOGISTIC, GRID, epsilon=1.0).plan(1000, 3)
    assert (plan.fitted, plan.held_out, plan.selection.trials) == (800, 200, 10)
    assert plan.spent.epsilon <= 1.0
    text = str(plan)
    assert "2 candidates" in text
    assert "10 on average" in text
    assert "0.0909" in text  # the chance that one of two candidates is not among 10 trials on average


def test_only_seeded_searches_repeat():
    X, y = classification(200)
    fits = [PrivateSearch(LOGISTIC, GRID, trials=2, random_state=5).fit(X, y).best_estimator_.coef_ for _ in range(2)]
    np.testing.assert_array_equal(*fits)
    fits = [PrivateSearch(LOGISTIC, GRID, trials=2).fit(X, y).best_estimator_.coef_ for _ in range(2)]
    assert not np.any(fits[0] == fits[1])


ODD_RECORDS = [(np.full(3, np.nan), 7), (np.full(3, 1e308), 0), (np.array([np.inf, -np.inf, 0]), -3)]


@pytest.mark.parametrize(
    "model",
    [LOGISTIC, RIDGE, PrivateHuberRegressor(bounds=(0, 1), target_bounds=(-1, 1))],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize(("row", "target"), ODD_RECORDS)
def test_no_record_shows(model, row, target):
    """A seeded search makes the same trials whatever the records are, and shows the same but for numbers."""
    X, y = classification(60) if is_classifier(model) else regression(60)
    search, shown = PrivateSearch(model, GRID, trials=3, random_state=4), []
    for replaced in range(2):
        X, y = X.copy(), y.copy()
        if replaced:
            X[:1], y[:1] = row, target
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = clone(search).fit(X, y)
        best = found.best_estimator_
        shown.append((sorted(vars(found)), str(found.plan_), found.certificate_, best.coef_.shape, best.coef_.dtype))
        assert np.all(np.isfinite(best.coef_))
    assert shown[0] == shown[1]


@pytest.mark.parametrize("model", [LOGISTIC, RIDGE], ids=["classifier", "regressor"])
def test_a_search_is_an_estimator_of_scikit_learn(model):
    X, y = classification(400) if is_classifier(model) else regression(400)
    search = PrivateSearch(model, GRID, epsilon=3.0, trials=2)
    assert is_classifier(search) == is_classifier(model)
    assert is_regressor(search) == is_regressor(model)
    with pytest.raises(NotFittedError):
        search.predict(X)
    assert clone(search).set_params(estimator__intercept=False).estimator.intercept is False
    search.fit(X, y)
    loaded = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(loaded.predict(X), search.predict(X))
    assert search.score(X, y) == search.best_estimator_.score(X, y)
    assert hasattr(search, "predict_proba") == is_classifier(model)
    pipeline = make_pipeline(FunctionTransformer(), clone(search)).fit(sparse.csr_array(X), y)
    assert pipeline.predict(X).shape == (400,)
    if is_classifier(model):
        np.testing.assert_array_equal(search.classes_, [0, 1])
        assert search.predict_proba(X).shape == (400, 2)
        assert search.decision_function(X).shape == (400,)


def test_names_of_columns_are_kept():
    pandas = pytest.importorskip("pandas")
    X, y = classification(200)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = PrivateSearch(LOGISTIC, GRID, trials=2).fit(frame, y)
        search.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        search.predict(frame[["b", "a", "c"]])


@pytest.mark.parametrize(
    ("model", "grid", "options", "message"),
    [
        (clone(LOGISTIC).set_params(delta=1e-6), GRID, {}, "delta=0"),
        (clone(LOGISTIC).set_params(random_state=1), GRID, {}, "give it to the search"),
        (LOGISTIC, {"epsilon": [1, 2]}, {}, "epsilon cannot be tuned"),
        (RIDGE, {"target_bounds": [(0, 1)]}, {}, "target_bounds cannot be tuned"),
        (LOGISTIC, [], {}, "at least one candidate"),
        (LOGISTIC, {"rigde": [1]}, {}, "rigde"),
        (LOGISTIC, GRID, {"holdout": 1.0}, "holdout must lie between 0 and 1"),
        (LOGISTIC, GRID, {"trials": 0}, "trials"),
        (LOGISTIC, GRID, {"epsilon": -1.0}, "epsilon must be positive"),
        (make_pipeline(FunctionTransformer(), LOGISTIC), GRID, {}, "private estimator"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_a_remedy(model, grid, options, message):
    X, y = classification(100)
    with pytest.raises((ValueError, TypeError), match=message):
        PrivateSearch(model, grid, **options).fit(X, y)
