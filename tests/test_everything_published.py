"""Everything published: what is chosen, by which shares, what its page says, and that publishing less is no worse."""

from dataclasses import replace

import numpy as np
import pytest
from test_utility import BUDGETS, planned, problems

import epsteps as es
from epsteps.methods import choice
from epsteps.methods.objective import plan_objective

LOGISTIC = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.002, n=20_000, d=10)


@pytest.mark.parametrize("budget", BUDGETS)
def test_publishing_less_is_never_expected_to_be_worse(budget):
    """By construction: a final model is chosen among all that everything published is, and one minimum for two."""
    methods = set()
    for problem in problems(6, 1):
        for epsilon in (0.003, 0.3, 30.0):
            plans = [es.plan(problem, BUDGETS[budget](epsilon), release=release) for release in choice.RELEASES]
            final, everything = (plan.utility.expected for plan in plans)
            assert final <= everything, (problem, epsilon)
            methods.add(plans[1].method)
    assert "sequential objective perturbation" in methods


def test_a_final_model_is_chosen_among_all_that_publish_more():
    """Where a budget of rho covers no Gaussian tilt, many steps are expected to be better than one minimum."""
    problem = es.Problem(es.SmoothedHinge(), es.Box(0, 1), ridge=1e-6, n=100_000, d=20)
    budget = es.Concentrated(0.1)
    chosen, minimum = es.plan(problem, budget, release="final"), es.plan(problem, budget, "objective")
    assert chosen.method == "nesterov"
    assert chosen.utility.expected < minimum.utility.expected


@pytest.mark.parametrize("budget", BUDGETS)
def test_no_other_share_of_the_first_minimum_is_expected_to_be_better(budget):
    """By more than a twentieth; nor other noise. Halves compose best where mu² adds, whatever the ridge."""
    for problem in (LOGISTIC, replace(LOGISTIC, loss=es.PseudoHuber(1.0, c=0.3)), replace(LOGISTIC, ridge=1e-6, d=3)):
        for epsilon in (0.05, 8.0):
            spent = BUDGETS[budget](epsilon)
            chosen = es.plan(problem, spent, "sequential")
            assert len(chosen.scales) == 2
            for first in (0.05, 0.1, 0.2, 0.35, 0.5):
                other = plan_objective(problem, spent, shares=(first, 1 - first))
                assert chosen.predicted <= other.predicted * 1.05


def test_two_minima_cost_little_more_than_one():
    """Where one record is light against the ridge: 1/(0.05² + 0.95²) = 1.105 for pure noise."""
    problem = replace(LOGISTIC, n=10**6)
    one, two = (es.plan(problem, es.Pure(1.0), name).utility.expected for name in ("objective", "sequential"))
    assert two / one == pytest.approx(1 / (0.05**2 + 0.95**2), rel=1e-3)


def test_named_shares_and_noise_are_taken_as_they_are():
    plan = es.plan(LOGISTIC, es.Approximate(1.0, 1e-6), "sequential", mechanism="gaussian", shares=(0.2, 0.3, 0.5))
    assert plan.mechanism == "gaussian"
    np.testing.assert_allclose(np.square(plan.scales) * (0.2, 0.3, 0.5) / plan.scales[0] ** 2, 0.2, rtol=1e-6)


def test_delta_never_makes_everything_published_worse():
    for problem in problems(7, 1):
        for epsilon in (0.1, 3.0):
            pure, delta = (planned(problem, BUDGETS[name](epsilon), "auto", "iterates") for name in ("pure", "delta"))
            assert delta.utility.expected <= pure.utility.expected * (1 + 1e-9)


def test_the_page_says_what_is_published_and_what_is_not():
    plan = es.plan(LOGISTIC, es.Pure(1.0), release="iterates")
    assert plan.method == "sequential objective perturbation"
    page = " ".join(str(plan).split())
    assert "2 minima, each once, and their weighted mean, which is the model" in page
    assert "the solver's iterates, their number and its time stay private" in page
    assert "where others watch it, use method='curvature' or 'descent'" in page
    assert "watch" not in str(es.plan(LOGISTIC, es.Pure(1.0), release="final"))


def test_a_table_of_noisy_slopes_is_not_modelled_by_default():
    """Gradients of squared loss have no bound: the noise at points that are yet unknown cannot be predicted."""
    assert "curvature" not in choice._candidates(replace(LOGISTIC, loss=es.Squared()), "iterates")
    assert "curvature" in choice._candidates(LOGISTIC, "iterates")


def test_what_one_method_refuses_another_may_cover():
    """A solver does not hold so many coordinates, and gradients are published then; none covers no budget at all."""
    large = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.1, n=1000, d=20_000)
    with pytest.raises(ValueError, match="coordinates for a solver"):
        es.plan(large, es.Pure(1.0), "objective")
    for release in choice.RELEASES:
        assert es.plan(large, es.Pure(1.0), release=release).method == "nesterov"


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_an_estimator_publishes_its_minima_and_their_mean(delta):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (3000, 3))
    y = X @ (3.0, -2.0, 1.0) + 0.3 * rng.standard_normal(3000) > 1
    model = es.PrivateLogisticRegression(2.0, delta=delta, bounds=(0, 1), release="iterates", random_state=1).fit(X, y)
    assert model.plan_.method == "sequential objective perturbation"
    assert model.path_.shape == (3, 4)
    np.testing.assert_allclose(model.plan_.weights @ model.path_[:2], model.path_[2])
    np.testing.assert_allclose(model.path_[2], [*model.coef_.ravel(), *np.atleast_1d(model.intercept_)])
    assert model.n_iter_ == 2
    assert not hasattr(model, "confint_")
    assert "No intervals: " in model.summary()
    assert model.score(X, y) > 0.75
