"""The adaptive plan: radii are bought, and what is minimised is chosen by them; whatever they are, the budget holds."""

import itertools
import json
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import pytest

import epsteps as es
from epsteps.budgets import mechanisms
from epsteps.budgets.costs import Certified
from epsteps.methods import adaptive
from epsteps.methods.adaptive import CertifiedMinimum
from epsteps.methods.bought import Radius
from epsteps.plans.plan import OverspentError
from epsteps.plans.utility import RIDGE_STEP

BUDGETS = {"pure": es.Pure(1.0), "approximate": es.Approximate(1.0, 1e-6), "concentrated": es.Concentrated(0.1)}
LOSSES = {"logistic": es.Logistic(), "softmax": es.Softmax(), "huber": es.PseudoHuber(), "hinge": es.SmoothedHinge()}


def problem_of(loss=None, *, n=20_000, d=12, ridge=1e-3, domain=None):
    return es.Problem(loss or es.Logistic(), domain or es.Box(-1, 1), ridge=ridge, n=n, d=d)


def short_records(problem, seed=0):
    """Return records a twentieth as long as the domain allows, and labels that a logistic model draws."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (problem.n, problem.d)) * 0.05
    chance = 1 / (1 + np.exp(-X @ np.linspace(-60, 60, problem.d)))
    return X, np.where(rng.random(problem.n) < chance, 1, -1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("budget", BUDGETS)
def test_whatever_is_bought_the_minimum_keeps_within_the_rest(budget, loss):
    """For radii of all sizes: the plan that is chosen spends no more than is left, and can be executed."""
    plan = es.plan(problem_of(LOSSES[loss], n=5_000, d=4), BUDGETS[budget], "adaptive")
    assert plan.norms
    assert plan.spent <= plan.budget.amount
    left = plan.budget.of(es.budgets.Epsilon(plan.rest)) if not plan.budget.delta else es.Approximate(plan.rest, 1e-6)
    for cells in itertools.product((0, 3, 17, 48), repeat=len(plan.norms)):
        radii = [request.radii[cell] for request, cell in zip(plan.purchases, cells, strict=True)]
        chosen = plan.chosen(radii).plan
        assert chosen.spending().amount <= left.amount
        chosen.require_executable()
        assert chosen.budget == left


@pytest.mark.parametrize("budget", BUDGETS)
def test_what_is_charged_is_the_sum_of_what_is_released(budget):
    plan = es.plan(problem_of(), BUDGETS[budget], "adaptive")
    costs = [charge.cost.amount for charge in plan.charges]
    assert len(costs) == len(plan.norms) + 1 == plan.requests
    total = plan.budget.of(es.budgets.Epsilon(sum(costs))).amount if not plan.budget.delta else sum(costs)
    assert plan.spent == pytest.approx(total, rel=1e-9)
    assert es.Plan.from_json(plan.to_json()) == plan


def test_a_plan_whose_numbers_were_edited_is_refused():
    plan = es.plan(problem_of(), es.Pure(1.0), "adaptive")
    for name, value in {"rest": 1.0, "price": 0.2, "norms": [1, 1], "price ": None}.items():
        content = json.loads(plan.to_json())
        content[name.strip()] = 0.0 if value is None else value
        with pytest.raises(ValueError, match=r"\w"):
            es.Plan.from_json(json.dumps(content))


def test_a_choice_that_costs_more_than_the_rest_is_stopped_before_anything_is_drawn(monkeypatch):
    """The loop's meter holds what a chosen plan is certified for against what was charged."""
    problem = problem_of(n=3_000, d=3)
    plan = es.plan(problem, es.Pure(1.0), "adaptive")
    more = es.plan(problem, es.Pure(1.1), "adaptive").guessed
    monkeypatch.setattr(type(plan), "chosen", lambda self, radii: more)
    drawn = []
    monkeypatch.setattr(CertifiedMinimum, "draw", lambda self, source: drawn.append(self))
    with pytest.raises(OverspentError, match="more than is left"):
        es.run(plan, es.Rows(problem, *short_records(problem)), seed=1)
    assert not drawn


@pytest.mark.parametrize("budget", [es.Pure(0.5), es.Approximate(0.5, 1e-6)], ids=["pure", "approximate"])
def test_short_records_need_less_noise(budget):
    """The mean of 12 seeded fits is far below that of the declared domain's plan (a tenth of it, measured)."""
    problem = problem_of(ridge=1e-4)
    rows = es.Rows(problem, *short_records(problem))
    best = rows.value(es.run(es.plan(problem, es.Pure(1e6), "objective"), rows, seed=0).x)
    errors = {}
    for method in ("objective", "adaptive"):
        plan = es.plan(problem, budget, method)
        runs = [es.run(plan, rows, seed=seed) for seed in range(12)]
        errors[method] = np.mean([rows.value(run.x) - best for run in runs])
        if method == "adaptive":
            chosen = [plan.decided(run.extras) for run in runs]
            assert all(each.weighting is not None for each in chosen)
            assert all(each.weighting.radius < 0.2 * problem.record_size(each.weighting.norm) for each in chosen)
    assert errors["adaptive"] < 0.5 * errors["objective"]


def test_of_classes_the_next_larger_ridge_is_taken_where_it_is_predicted_to_cost_hardly_more():
    """The plan is that with the least predicted error, or with a ridge one step larger, at most 1.1 times that."""
    larger = 0
    for (name, loss), n, epsilon, short in itertools.product(LOSSES.items(), (1_000, 30_000), (0.2, 2.0), (0.1, 0.8)):
        plan = es.plan(problem_of(loss, n=n), es.Pure(epsilon), "adaptive")
        radii = [short * plan.problem.record_size(norm) for norm in plan.norms]
        chosen = plan.chosen(radii)
        bought = adaptive.consistent(dict(zip(plan.norms, radii, strict=True)), plan.problem)
        least = adaptive.best_of(list(plan._choices(bought)), plan._left)
        assert chosen.expected == least.expected
        if chosen.plan.ridge != pytest.approx(least.plan.ridge, rel=1e-9):
            larger += 1
            assert name != "huber"
            assert chosen.plan.ridge == pytest.approx(RIDGE_STEP * least.plan.ridge, rel=1e-9)
            predicted = chosen.choice.sought.predicted(chosen.plan) + chosen.choice.bias
            assert least.expected < predicted <= 1.1 * least.expected
            assert chosen.plan.noise == least.plan.noise
            assert chosen.plan.problem.loss == least.plan.problem.loss
    assert larger > 4


def test_of_two_radii_that_contradict_each_other_the_shorter_is_made_longer():
    """Whatever the records are, quantiles of their two norms stay as they are; what no records have is mended."""
    rng = np.random.default_rng(0)
    problem = problem_of(d=9)
    for power in (0.1, 1.0, 5.0):
        X = rng.random((1_000, 9)) ** power
        radii = {1: np.quantile(X.sum(axis=1), 0.6), 2: np.quantile(np.linalg.norm(X, axis=1), 0.6)}
        assert adaptive.consistent(radii, problem) == radii
    assert adaptive.consistent({1: 0.1, 2: 2.0}, problem) == {1: 2.0, 2: 2.0}
    assert adaptive.consistent({1: 6.0, 2: 0.1}, problem) == {1: 6.0, 2: 2.0}
    assert adaptive.consistent({1: 0.1}, problem) == {1: 0.1}


@pytest.mark.parametrize("domain", [es.Box(0, 1), es.Box(-1, 3), es.Ball(0.7, norm=1), es.Ball(3.0, norm=2)], ids=repr)
@pytest.mark.parametrize("d", [*range(1, 12), 50, 300])
def test_a_radius_that_is_mended_is_no_longer_than_the_longest_record(domain, d):
    """By rounding it would be, now and then, and a fit would fail after its charge."""
    problem = problem_of(d=d, domain=domain)
    longest = {norm: problem.record_size(norm) for norm in (1, 2)}
    for short, long in ((1, 2), (2, 1)):
        mended = adaptive.consistent({short: longest[short] / 64, long: longest[long]}, problem)
        assert all(mended[norm] <= longest[norm] for norm in (1, 2))
        plan = es.plan(problem, es.Pure(1.0), "adaptive")
        if d < 12 and plan.norms == (1, 2):
            bought = {short: longest[short] / 64, long: longest[long]}
            assert plan.chosen([bought[1], bought[2]]).plan.spent <= plan.rest


@pytest.mark.parametrize(("n", "norms"), [(7_000, (1, 2)), (4_500, (1,))])
def test_a_radius_that_noise_put_where_no_record_is_leaves_a_model_that_is_better_than_none(n, norms):
    """With little of the budget that happens once in a hundred fits; slopes held there made models far worse than 0."""
    rng = np.random.default_rng(1)
    problem = problem_of(n=n, d=20, ridge=0.002, domain=es.Box(0, 1))
    X = rng.uniform(0, 1, (n, 20))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-(X - 0.3) @ np.linspace(-1, 3, 20))), 1, -1)
    plan = es.plan(problem, es.Pure(0.1), "adaptive")
    assert plan.norms == norms
    usual = {norm: 0.7 * problem.record_size(norm) for norm in norms}
    rows = es.Rows(problem, X, y)
    for wrong in itertools.product(norms, (0.01, 0.03, 0.1)):
        radii = usual | {wrong[0]: wrong[1] * problem.record_size(wrong[0])}
        minimum = plan.chosen([radii[norm] for norm in norms]).plan
        runs = [es.run(minimum, rows, seed=seed, anyway=True).x for seed in range(20)]
        costs = [np.mean(np.logaddexp(0, -y * (X @ x))) + 0.001 * x @ x for x in runs]
        assert np.mean(costs) < np.log(2)


def test_nothing_is_bought_that_noise_would_drown():
    plan = es.plan(problem_of(n=100), es.Pure(0.1), "adaptive")
    assert plan.norms == ()
    assert plan.price == 0
    run = es.run(plan, es.Rows(plan.problem, *short_records(plan.problem)), seed=0)
    assert run.extras == {}
    assert len(plan.charges) == 1


def test_a_run_publishes_what_it_bought_and_charges_it(tmp_path):
    problem = problem_of(n=4_000, d=3)
    plan = es.plan(problem, es.Pure(1.0), "adaptive")
    ledger = es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", es.Pure(1.0))
    account = ledger.account("people")
    run = es.run(plan, es.Rows(problem, *short_records(problem)), ledger=account, anyway=True)
    assert ledger.spent("people") == pytest.approx(plan.spent)
    assert set(run.extras["radii"].tolist()) <= {float(r) for request in plan.purchases for r in request.radii}
    assert run.path.shape == (1, 3)
    assert run.intervals().level == 0.95
    several = es.run(plan, es.Rows(problem, *short_records(problem)), seed=0, repetitions=3)
    assert several.path.shape == (1, 3, 3)
    assert several.extras["radii"].shape == (2, 3)


def test_auto_takes_it_where_it_is_expected_to_be_better():
    problem = problem_of(es.Logistic(), n=2_000, d=30)
    plans = {name: es.plan(problem, es.Pure(1.0), name) for name in ("adaptive", "objective")}
    assert plans["adaptive"].utility.expected < plans["objective"].utility.expected
    assert es.plan(problem, es.Pure(1.0), release="final").method == plans["adaptive"].method


def test_the_page_says_what_is_bought_and_what_is_chosen():
    text = str(es.plan(problem_of(), es.Approximate(1.0, 1e-6), "adaptive"))
    assert "a radius that most records lie within (L2 norm)" in " ".join(text.split())
    assert "weights for long records, a cap on slopes, noise and ridge" in " ".join(text.split())


def test_releases_that_are_certified_for_a_delta_are_not_added_up_to_one_of_it():
    """Two of them have that chance each: a plan from outside that asks for two is not certified by their sum."""
    for budget in BUDGETS.values():
        with pytest.raises(ValueError, match=r"delta|Gaussian"):
            budget.spending(np.zeros(0), Certified, [0.4, 0.4])


@dataclass(frozen=True, eq=False, repr=False)
class Sly(es.Plan):
    """A method from outside that asks for what it does not say, after something harmless about the same problem."""

    problem: es.Problem
    budget: es.Pure
    method = "sly"
    reads = (Radius,)

    @property
    def charges(self):
        return [es.Charge(name, es.budgets.Epsilon(0.5), 1.0, "laplace") for name in ("radius", "gradient")]

    def conversation(self):
        yield Radius(self.problem, 2, 0.5, 0.9)
        gradient = yield es.Gradient.at(self.problem, mechanisms.named("laplace"), np.zeros(self.problem.d), 0.5)
        return es.Published(gradient[None])


def test_slopes_are_those_that_noise_is_scaled_for_whatever_was_asked_before():
    """Noise for clipped gradients, and records whose gradients are not clipped."""
    declared = problem_of(n=500, d=3)
    plan = Sly(replace(declared, clip=1e-3), es.Pure(1.1))
    with pytest.raises(ValueError, match="the records are read as"):
        es.run(plan, es.Rows(declared, *short_records(declared)), seed=1, arithmetic="exact")


def test_no_choice_is_left_out_because_it_cannot_be_planned(monkeypatch):
    """What raises there would be passed over, as it runs after the charge: here it is an error."""
    monkeypatch.setattr(adaptive, "suppress", lambda *_: nullcontext())
    domains = [(es.Ball(0.8, norm=1), 3), (es.Ball(3.0), 2), (es.Box(0, 2, one_hot=[(1, 3)]), 4)]
    budgets = [kind(amount) for amount in (1e-7, 1.0, 1e7) for kind in (es.Pure, lambda e: es.Approximate(e, 1e-6))]
    for (domain, d), loss, budget, n in itertools.product(domains, LOSSES.values(), budgets, (12, 10**6)):
        plan = es.plan(problem_of(loss, n=n, d=d, domain=domain), budget, "adaptive")
        for share in (1.0, 2.0**-6):
            plan.chosen([share * request.radii[0] for request in plan.purchases])
