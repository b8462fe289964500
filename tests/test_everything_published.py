"""Everything published: what is chosen, by which shares, what its page says, and that publishing less is no worse."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from test_utility import BUDGETS, planned, problems

import epsteps as es
from epsteps.methods import choice
from epsteps.methods.objective import plan_objective
from epsteps.plans.plan import OverspentError, PlanFormatError

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
    assert chosen.method == "clipped descent"
    assert chosen.utility.expected < minimum.utility.expected


@pytest.mark.parametrize("budget", BUDGETS)
def test_no_shares_of_one_ridge_are_expected_to_be_better_than_a_first_minimum_for_little(budget):
    """A ridge of its own lets the first cost a hundredth; nothing else of the budget is lost to it."""
    for problem in (LOGISTIC, replace(LOGISTIC, loss=es.PseudoHuber(1.0, c=0.3)), replace(LOGISTIC, ridge=1e-6, d=3)):
        for epsilon in (0.05, 8.0):
            spent = BUDGETS[budget](epsilon)
            chosen = es.plan(problem, spent, "sequential")
            assert len(chosen.minima) == 2
            for first in (0.05, 0.1, 0.2, 0.35, 0.5):
                other = plan_objective(problem, spent, shares=(first, 1 - first))
                assert chosen.predicted <= other.predicted
            alone = plan_objective(problem, spent)
            assert chosen.predicted <= 1.04 * alone.predicted
            assert chosen.earlier[0].ridge >= chosen.ridge


def test_two_minima_cost_little_more_than_one():
    """Where one record is light against the ridge: 1/0.99² = 1.02 for pure noise."""
    problem = replace(LOGISTIC, n=10**6)
    one, two = (es.plan(problem, es.Pure(1.0), name).utility.expected for name in ("objective", "sequential"))
    assert two / one == pytest.approx(0.99**-2, rel=1e-3)


@pytest.mark.parametrize("budget", BUDGETS)
def test_an_earlier_minimum_is_charged_beside_the_model(budget):
    """Its epsilon is added, to that of a pure tilt and to every corner of a Gaussian one; less would be overspent."""
    for epsilon, mechanism in ((0.5, "auto"), (3.0, "gaussian" if budget == "delta" else "laplace")):
        plan = es.plan(LOGISTIC, BUDGETS[budget](epsilon), "sequential", mechanism=mechanism)
        (first,) = plan.earlier
        alone = replace(plan, earlier=())
        assert plan.spent <= plan.budget.amount <= plan.spent * (1 + 1e-5)
        assert first.spent == pytest.approx(choice._FIRST * plan.budget.capacity(es.budgets.Epsilon), rel=1e-6)
        if budget == "rho":
            assert plan.spent == pytest.approx((math.fsum(plan.costs)) ** 2 / 2, rel=1e-9)
        else:
            assert plan.spent == pytest.approx(first.spent + alone.spent, rel=1e-6)
        assert [charge.cost.amount for charge in plan.charges] == [*first.costs, *alone.costs]
        assert len(plan.goals) == plan.requests == 2
        assert {goal.objective.ridge for goal in plan.goals} == {first.ridge, plan.ridge}
        with pytest.raises(OverspentError, match="more than its budget"):
            replace(plan, earlier=(first, first))


def test_a_ledger_is_charged_for_an_earlier_minimum_in_every_corner():
    plan = es.plan(LOGISTIC, es.Approximate(1.0, 1e-6), "sequential", mechanism="gaussian")
    alone, (first,) = replace(plan, earlier=()), plan.earlier
    np.testing.assert_allclose(plan.cost.shifts, np.array(alone.cost.shifts) + first.spent, rtol=1e-2, atol=1e-9)
    assert min(plan.cost.shifts) >= first.spent
    assert plan.cost.epsilon(1.0, 1e-6) == pytest.approx(plan.spent, rel=1e-9)


def test_an_earlier_minimum_survives_json_and_a_forged_one_is_refused():
    plan = es.plan(LOGISTIC, es.Approximate(1.0, 1e-6), "sequential", mechanism="gaussian")
    assert es.Plan.from_json(plan.to_json()) == plan
    content = json.loads(plan.to_json())
    assert es.Plan.from_json(json.dumps(content | {"earlier": content["earlier"]})) == plan
    old = json.loads(replace(plan, earlier=()).to_json())
    del old["earlier"]
    assert es.Plan.from_json(json.dumps(old)) == replace(plan, earlier=())
    forged = json.loads(plan.to_json())
    forged["earlier"][0]["scales"] = [forged["earlier"][0]["scales"][0] / 2]
    with pytest.raises(PlanFormatError):
        es.Plan.from_json(json.dumps(forged))
    with pytest.raises(PlanFormatError):
        es.Plan.from_json(json.dumps(content | {"earlier": []}))


def test_what_may_not_come_before_a_minimum_is_refused():
    plan = es.plan(LOGISTIC, es.Pure(1.0), "sequential")
    other = replace(LOGISTIC, n=LOGISTIC.n + 1)
    gaussian = plan_objective(LOGISTIC, es.Approximate(0.01, 1e-9), mechanism="gaussian")
    for earlier in (plan, plan_objective(other, es.Pure(0.01)), gaussian):
        with pytest.raises(ValueError, match="earlier minima must be pure, with none before them, and of the same"):
            replace(plan, budget=es.Approximate(9.0, 1e-3), earlier=(earlier,))


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
    assert "2 minima, each once, the last is the model" in page
    assert f"minimum 1 has ridge {plan.earlier[0].ridge:g}" in page
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
def test_an_estimator_publishes_its_minima_and_the_last_is_the_model(delta):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (3000, 3))
    y = X @ (3.0, -2.0, 1.0) + 0.3 * rng.standard_normal(3000) > 1
    model = es.PrivateLogisticRegression(
        2.0, delta=delta, bounds=(0, 1), classes=(0, 1), release="iterates", random_state=1
    ).fit(X, y)
    assert model.plan_.method == "sequential objective perturbation"
    assert model.path_.shape == (2, 4)
    np.testing.assert_allclose(model.path_[1], [*model.coef_.ravel(), *np.atleast_1d(model.intercept_)])
    assert model.n_iter_ == 2
    assert len(model.confint_) == len(model.path_[1])
    assert model.score(X, y) > 0.75
