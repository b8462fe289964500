"""What the best of a random number of trials costs, against enumerated laws; and searches under every budget."""

import math

import numpy as np
import pytest
from scipy import stats

import epsteps as es
from epsteps.budgets import selection as costs
from epsteps.budgets.conversions import gaussian_delta
from epsteps.budgets.selection import SHARES, Selection, poisson_renyi, renyi_epsilon
from epsteps.noise import Source

ETAS = (0.0, 0.25, 0.5, 1.0)
ERROR_RATE = 1e-5
ORDERS = 1 + np.geomspace(1e-3, 3e3, 400)


def weights(selection, most=4000):
    """Return P(K = k), k = 1, 2, ..., by its definition: computed here, term by term."""
    gamma, eta = 1 / selection.odds, selection.eta
    logs, log = [], 0.0
    for k in range(1, most + 1):
        log += math.log(1 - gamma)
        if k > 1:
            log += math.log((k - 1 + eta) / k)
        logs.append(log)
    found = np.exp(logs)
    return found / found.sum()


@pytest.mark.parametrize("eta", ETAS)
def test_the_law_of_the_number_is_that_of_its_definition(eta):
    for trials in (2, 3, 20):
        selection = Selection(trials, eta)
        chances = weights(selection)
        k = np.arange(1, len(chances) + 1)
        assert selection.mean == pytest.approx(chances @ k, rel=1e-6)
        assert selection.mean >= trials * (1 - 1e-12)
        for x in (0.0, 0.3, 0.9, 1.0):
            assert float(selection.generating(x)) == pytest.approx(chances @ x**k, abs=1e-9)
        assert selection.missed(4) == pytest.approx(chances @ 0.75**k, abs=1e-9)


@pytest.mark.parametrize("eta", ETAS)
def test_numbers_are_drawn_exactly_from_the_law_and_from_no_other(eta):
    """Fails by chance once in 10^5; laws of another eta or gamma are rejected."""
    search = pytest.importorskip("epsteps.estimators.search")
    selection, source, runs = Selection(4, eta), Source(3), 2500
    if eta == 1:
        drawn = [1 + sum(1 for _ in search._further(selection, source)) for _ in range(runs)]
    else:
        drawn = [search.number_of_trials(selection, source) for _ in range(runs)]
    counts = np.bincount(np.minimum(drawn, 12), minlength=13)[1:]

    def pvalue(law):
        chances = weights(law)
        expected = np.append(chances[:11], chances[11:].sum())
        return stats.chisquare(counts, runs * expected / expected.sum()).pvalue

    assert pvalue(selection) > ERROR_RATE
    assert pvalue(Selection(4, 1.0 if eta < 0.5 else 0.0)) < ERROR_RATE
    assert pvalue(Selection(8, eta)) < ERROR_RATE


# --- the theorem, by enumeration ------------------------------------------------------------------------------------


def divergences(one, other, orders=ORDERS):
    """Return the larger Rényi divergence of two discrete laws, of both directions, at each order."""
    with np.errstate(divide="ignore"):
        logs = np.log(one), np.log(other)
    found = []
    for p, q in (logs, logs[::-1]):
        terms = orders[:, None] * p[None, :] + (1 - orders[:, None]) * q[None, :]
        top = terms.max(axis=1, keepdims=True)
        found.append((top[:, 0] + np.log(np.sum(np.exp(terms - top), axis=1))) / (orders - 1))
    return np.maximum(*found)


def rho_of(one, other):
    """Return the rho of a pair of laws: the largest divergence per order, and a little more for those between."""
    fine = 1 + np.geomspace(1e-5, 1e5, 4000)
    largest = np.max(np.abs(np.log(one) - np.log(other)))
    return 1.01 * float(max(np.max(divergences(one, other, fine) / fine), largest / fine[-1]))


def pairs(seed):
    """Yield pairs of laws of one trial, outcomes from the worst to the best: some are rare, and some change much."""
    rng = np.random.default_rng(seed)
    for ratio in (0.1, 0.5, 2.0):
        for rare, better in ((1e-9, 1e-3), (1e-4, 1e-2), (1e-3, 1e-7), (1e-2, 1e-2)):
            one = np.array([0.0, rare, better])
            other = one * np.exp([0.0, ratio, -ratio])
            one[0], other[0] = 1 - one.sum(), 1 - other.sum()
            yield one, other
    for _ in range(20):
        one = rng.dirichlet(np.full(4, 0.3)) + 1e-12
        other = one * np.exp(rng.normal(0, 0.5, 4))
        yield one / one.sum(), other / other.sum()


def hockey_stick(one, other, epsilon):
    return max(float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0))) for a, b in ((one, other), (other, one)))


def selections_cost_what_they_are_said_to(seed):
    """Rényi costs, rhos, and (epsilon, delta) of the best trial, each against its enumerated law."""
    tightest = 0.0
    for eta in ETAS:
        for trials in (2, 30, 10**4, 10**7):
            selection = Selection(trials, eta)
            for one, other in pairs(seed):
                first, second = (np.maximum(selection.law(law), 1e-300) for law in (one, other))
                found, rho = divergences(first, second), rho_of(one, other)
                claimed = selection.renyi(rho, ORDERS)
                assert np.all(found <= claimed + 1e-9), f"{selection}: {np.max(found - claimed):.3g} too much"
                assert np.all(found <= selection.selected_rho(rho) * ORDERS + 1e-9), f"{selection}: rho is too small"
                for delta in (1e-3, 1e-6):
                    epsilon = selection.selected_epsilon(rho, delta)
                    assert hockey_stick(first, second, epsilon) <= delta * (1 + 1e-6), f"{selection} at {delta}"
                largest = np.max(np.abs(np.log(one) - np.log(other)))
                pure = selection.cost(es.Pure(largest)).amount
                moved = float(np.max(np.abs(np.log(first) - np.log(second))))
                assert moved <= pure * (1 + 1e-6) + 1e-9
                tightest = max(tightest, moved / pure)
    assert tightest > 0.9, tightest


def test_selections_cost_what_they_are_said_to():
    selections_cost_what_they_are_said_to(seed=1)


def costs_are_those_of_the_theorem(seed):
    """The theorem's formula, written here once more, at the best of many orders for the choice."""
    for trials, eta, rho in ((10, 1.0, 0.01), (20, 0.0, 0.3), (5, 0.5, 3.0)):
        selection = Selection(trials, eta)
        gamma, mean = 1 / selection.odds, weights(selection) @ np.arange(1, 4001)
        inner = np.geomspace(1, 1e4, 4000)
        choice = np.min((1 + eta) * ((1 - 1 / inner) * rho * inner + math.log(1 / gamma) / inner))
        wanted = rho * ORDERS + choice + math.log(mean) / (ORDERS - 1)
        np.testing.assert_allclose(selection.renyi(rho, ORDERS), wanted, rtol=1e-4)
        for delta in (1e-4, 1e-8):
            by_hand = np.min(wanted + np.log(1 - 1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1))
            assert selection.selected_epsilon(rho, delta) == pytest.approx(by_hand, rel=2e-3)


def test_costs_are_those_of_the_theorem():
    costs_are_those_of_the_theorem(seed=1)


def test_a_conversion_holds_for_gaussian_noise():
    """What a Gaussian has in Rényi terms is converted to no less than its exact epsilon, and to little more."""
    for mu, delta in ((0.3, 1e-6), (2.0, 1e-4)):
        epsilon = renyi_epsilon(costs._ORDERS, mu**2 / 2 * costs._ORDERS, delta)
        exact = es.budgets.gaussian_epsilon(mu, delta) if hasattr(es.budgets, "gaussian_epsilon") else None
        assert gaussian_delta(mu, epsilon) <= delta
        assert gaussian_delta(mu, 0.7 * epsilon) > delta
        assert exact is None or epsilon >= exact


@pytest.mark.parametrize("mean", [0.5, 3.0, 40.0])
def test_poisson_numbers_cost_what_they_are_said_to(mean):
    """The best of a Poisson number of trials, or a constant where there is none, by its enumerated law."""
    for one, other in pairs(2):
        laws = []
        for law in (one, other):
            below = np.append(0.0, np.cumsum(law))
            laws.append(np.maximum(np.append(math.exp(-mean), np.diff(np.exp(mean * (below - 1)))), 1e-300))
        found = divergences(*laws)
        trial = divergences(one, other)
        for place in range(0, len(ORDERS), 40):
            claimed = poisson_renyi(
                mean, ORDERS[place], trial[place], lambda e, one=one, other=other: hockey_stick(one, other, e)
            )
            assert found[place] <= claimed + 1e-9
    with pytest.raises(ValueError, match="order must be above 1"):
        poisson_renyi(1.0, 1.0, 0.1, lambda e: 0.0)


# --- budgets --------------------------------------------------------------------------------------------------------

BUDGETS = (es.Pure(1.0), es.Pure(1e-4), es.Concentrated(0.5), es.Concentrated(8.0), es.Approximate(1.0, 1e-6))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("eta", ETAS)
def test_shares_are_the_largest_that_the_budget_covers(budget, eta):
    for trials in (1, 10, 10**6):
        selection = Selection(trials, eta)
        kinds = (False,) if isinstance(budget, es.Pure) else (False, True)
        for gaussian in kinds:
            share = selection.trial(budget, gaussian=gaussian)
            assert selection.cost(share, budget).amount <= budget.amount
            more = type(share)(share.amount * (1 + 1e-6))
            assert selection.cost(more, budget).amount > budget.amount
            assert type(selection.cost(share, budget)) is type(budget)


def test_what_no_theorem_covers_is_refused():
    with pytest.raises(TypeError, match="does not cover Gaussian noise"):
        Selection(3).trial(es.Pure(1.0), gaussian=True)
    with pytest.raises(TypeError, match="no other cost of a selection"):
        Selection(3).cost(es.Concentrated(1.0), es.Pure(1.0))
    for eta in (-0.5, 1.5, 0.1, math.nan):
        with pytest.raises((ValueError, TypeError), match="eta"):
            Selection(3, eta)
    assert Selection(3, 3 / SHARES).eta == 3 / SHARES


# --- searches -------------------------------------------------------------------------------------------------------

pytest.importorskip("sklearn")
from epsteps.estimators import PrivateLogisticRegression, PrivateRidge  # noqa: E402
from epsteps.estimators.search import PrivateSearch, Shared, make_trial, models_of  # noqa: E402

GRID = {"ridge": [1e-3, 1.0]}


def records(n, d=3):
    X = np.random.default_rng(0).uniform(0, 1, (n, d))
    return X, (X[:, 0] > X[:, 1]).astype(int)


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("budget", [es.Approximate(1.0, 1e-6), es.Concentrated(0.1)], ids=str)
def test_a_search_charges_the_budget_that_it_is_given(budget, eta, tmp_path):
    ledger = es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", budget)
    X, y = records(300)
    model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), anyway=True)
    search = PrivateSearch(model, GRID, budget=budget, eta=eta, trials=2, ledger=ledger.account("people")).fit(X, y)
    assert 0.99 * budget.amount < search.certificate_["spent"] <= budget.amount
    assert search.certificate_["delta"] == budget.delta
    (entry,) = ledger.history("people")
    assert type(entry.cost) is type(budget)
    assert search.plan_.spent.amount <= budget.amount


def test_trials_are_of_the_noise_that_serves_better():
    """Minima of few columns are best served by pure trials, and moments of many by Gaussian ones."""
    model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), method="objective")
    few = PrivateSearch(model, GRID, budget=es.Approximate(1.0, 1e-6), trials=3)
    assert isinstance(few.plan(5000, 3).share, es.Pure)
    model = PrivateRidge(bounds=(0, 1), target_bounds=(-1, 1), method="statistics")
    many = PrivateSearch(model, GRID, budget=es.Approximate(4.0, 1e-5), trials=3).plan(50_000, 100)
    assert isinstance(many.share, es.Concentrated)
    assert "gaussian scale" in str(many)


def test_gaussian_trials_have_the_noise_that_is_paid_for():
    """The score's noise, of 200 trials, against its law and against half of its deviation (error rate 1e-4)."""
    options = {"method": es.gd, "iterations": 1, "mechanism": "gaussian"}
    model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), anyway=True, **options)
    search = PrivateSearch(model, {"ridge": [0.1]}, budget=es.Concentrated(0.2), trials=3)
    plan = search.plan(60, 3)
    assert isinstance(plan.share, es.Concentrated)
    rho = plan.unit**2 / (2 * plan.scale**2)
    assert rho == pytest.approx(plan.share.rho, rel=1e-9)
    assert rho <= plan.share.rho
    X, y = records(60)
    models, source = models_of(model, plan.candidates, plan.share), Source(5)
    noise = []
    for _ in range(200):
        found = make_trial(plan, models, source, Shared(X[:48], y[:48]), (X[48:], y[48:]))
        noise.append(found.score - found.outcome[1]._gains(X[48:], y[48:]).sum())
    assert stats.kstest(noise, stats.norm(scale=plan.scale).cdf).pvalue > 1e-4
    assert stats.kstest(noise, stats.norm(scale=plan.scale / 2).cdf).pvalue < 1e-4


# --- bugs planted on purpose ----------------------------------------------------------------------------------------


def choice_forgotten(patch):
    patch.setattr(Selection, "_choice", lambda self, rho: 0.0)


def gamma_inverted(patch):
    def choice(self, rho):
        log = math.log(1 / self.odds)
        order = max(1.0, math.sqrt(abs(log) / rho))
        return (1 + self.eta) * (rho * (order - 1) + log / order)

    patch.setattr(Selection, "_choice", choice)


def mean_forgotten(patch):
    right = Selection._choice
    patch.setattr(Selection, "renyi", lambda self, rho, orders: rho * orders + right(self, rho))


def delta_forgotten(patch):
    patch.setattr(costs, "renyi_epsilon", lambda orders, found, delta: float(np.min(found)))


def factor_of_the_choice_forgotten(patch):
    patch.setattr(Selection, "factor", 1.0)


@pytest.mark.parametrize(
    ("bug", "check"),
    [
        (choice_forgotten, selections_cost_what_they_are_said_to),
        (gamma_inverted, selections_cost_what_they_are_said_to),
        (mean_forgotten, costs_are_those_of_the_theorem),
        (delta_forgotten, costs_are_those_of_the_theorem),
        (factor_of_the_choice_forgotten, selections_cost_what_they_are_said_to),
    ],
    ids=lambda value: value.__name__,
)
def test_planted_bugs_are_found(bug, check, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        check(seed=1)
