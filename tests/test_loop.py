"""The one loop, for every method: it charges, meters, draws, reads and publishes, and can be interrupted anywhere."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from laws import engines, examples, runs
from laws.releases import neighbours_publish_the_same
from outside import Descent, EvenDescent

import epsteps as es
from epsteps.budgets import Epsilon, Mu, Rho, mechanisms
from epsteps.problem.sampling import Sampling
from epsteps.running.run import Meter
from epsteps.testing import replay

PLANS = examples.plans() | {"outside pure": Descent(examples.LOGISTIC, es.Pure(1.0), 0.25, 4)}
PLANS |= {
    f"even {budget}": EvenDescent(examples.LOGISTIC, budget, 3)
    for budget in (es.Pure(1.0), es.Concentrated(0.1), es.Approximate(1.0, 1e-6))
}
each_plan = pytest.mark.parametrize("name", PLANS)


@each_plan
def test_a_seeded_run_is_resumed_after_every_answer(name, tmp_path):
    plan = PLANS[name]
    runs.resumes_after_every_answer(plan, examples.rows_for(plan), tmp_path)


@each_plan
def test_an_unseeded_run_that_dies_while_it_reads_keeps_its_noise_and_pays_once(name, tmp_path):
    plan = PLANS[name]
    runs.resumes_within_every_answer(plan, examples.rows_for(plan), tmp_path)


@pytest.mark.parametrize("name", [name for name in PLANS if name.endswith(" pure")])
def test_repetitions_are_resumed_too(name, tmp_path):
    plan = PLANS[name]
    runs.resumes_after_every_answer(plan, examples.rows_for(plan), tmp_path, repetitions=2)


@each_plan
@pytest.mark.parametrize("seed", [1, None])
def test_progress_hears_of_every_answer_once(name, seed):
    plan = PLANS[name]
    es.run(plan, examples.rows_for(plan), seed=seed, on_step=(heard := []).append, anyway=True)
    assert heard == list(range(1, len(heard) + 1))
    assert 1 <= len(heard) <= plan.requests


@each_plan
def test_repetitions_are_stacked_and_charged_together(name, tmp_path):
    plan, account = PLANS[name], runs.Account()
    rows = examples.rows_for(plan)
    one, three = (es.run(plan, rows, seed=1, arithmetic="exact", repetitions=k, ledger=account) for k in (None, 3))
    assert three.path.shape == (*one.path.shape, 3)
    assert (one.repetitions, three.repetitions) == (1, 3)
    for key, value in one.extras.items():
        assert three.extras[key].shape == (*value.shape, 3)
    assert account.charges == [plan.spending(), plan.spending(3)]
    assert three.spent == plan.spending(3).amount
    if not isinstance(plan, es.BoundsPlan | es.EvaluationPlan):  # whose path is cells, or the model that is scored
        assert len(np.unique(three.path[-1][0])) == 3
    np.testing.assert_array_equal(es.run(plan, rows, seed=1, arithmetic="exact", repetitions=1).path[..., 0], one.path)


@each_plan
def test_a_ledger_that_refuses_is_asked_before_anything_is_drawn_or_read(name):
    class Full:
        def charge(self, cost, *, note, key=None):
            raise es.BudgetExceededError("nothing is left")

    plan = PLANS[name]
    rows = examples.rows_for(plan)
    with runs.taps.listening(Silent()):
        with pytest.raises(es.BudgetExceededError, match="nothing is left"):
            es.run(plan, rows, ledger=Full(), anyway=True)
        with pytest.raises(AssertionError, match="was drawn"):
            es.run(plan, rows, anyway=True)


class Dry:
    """A source that cannot be drawn from."""

    seeded = False

    def __getattr__(self, name: str):
        raise AssertionError(f"{name} was drawn")


class Silent(runs.Listener):
    """Opens a source that cannot be drawn from, and lets nothing be read."""

    def source(self, source):
        return Dry()

    def reading(self, request, records, draw):
        raise AssertionError("records were read")


@dataclass(frozen=True, eq=False, repr=False)
class Greedy(Descent):
    """It is charged for less than it asks for: from the first gradient on, or in sum."""

    share: float = 1.0

    @property
    def asked_cost(self) -> float:
        return self.cost * self.share


@pytest.mark.parametrize(("share", "answered"), [(4.01, 0), (1.35, 2), (1.01, 3), (1 + 1e-6, 3)])
def test_a_method_cannot_spend_more_than_its_plan_was_charged_for(share, answered):
    """It is refused before anything more is drawn or read."""
    plan = Greedy(examples.LOGISTIC, es.Pure(1.0), 0.25, 4, share)
    drawn, listener = [], runs.Listener()
    draw = es.Gradient.draw
    with pytest.MonkeyPatch.context() as patch, runs.taps.listening(listener):
        patch.setattr(es.Gradient, "draw", lambda self, source: drawn.append(self) or draw(self, source))
        with pytest.raises(es.OverspentError, match="more than is left of what its plan was charged for"):
            es.run(plan, examples.rows_for(plan), seed=1)
    assert len(listener.met) == len(drawn) == answered
    with pytest.raises(es.OverspentError, match="more than is left"):
        es.run(plan, examples.rows_for(plan), repetitions=3, seed=1)


def test_what_is_asked_for_in_all_may_be_what_was_charged():
    plan = Greedy(examples.LOGISTIC, es.Pure(1.0), 0.25, 4)
    assert es.run(plan, examples.rows_for(plan), repetitions=2, anyway=True).path.shape == (5, 4, 2)
    assert es.Plan.from_json(plan.to_json()) == plan


@dataclass(frozen=True, eq=False, repr=False)
class Asking(Descent):
    """It asks for one gradient, and changes its request."""

    change: int = 0

    def conversation(self):
        problem, request = CHANGES[self.change]
        asked = es.Gradient.at(problem(self.problem), mechanisms.named("laplace"), np.zeros(4), self.cost)
        gradient = yield request(asked)
        return es.Published(gradient[None, :])


def _same(value):
    return value


MESSAGES = "the request is for|the request samples|must be positive and finite|more than is left"
CHANGES = {
    1: (lambda problem: replace(problem, domain=es.Box(0, 0.5)), _same),
    2: (lambda problem: replace(problem, n=61), _same),
    3: (lambda problem: replace(problem, loss=es.Logistic(("no", "yes"))), _same),
    4: (lambda problem: replace(problem, clip=0.1), _same),
    5: (_same, lambda request: replace(request, sampling=Sampling(10**6, 60))),
    6: (_same, lambda request: replace(request, scale=-request.scale)),
    7: (_same, lambda request: replace(request, scale=math.nan)),
    8: (_same, lambda request: replace(request, scale=math.inf)),
    9: (_same, lambda request: replace(request, bound=2 * request.bound)),
    10: (_same, lambda request: replace(request, bound=-request.bound)),
    11: (_same, lambda request: replace(request, bound=math.nan)),
    12: (_same, lambda request: replace(request, scale=request.scale * np.ones(1) * 0.99)),
    13: (_same, lambda request: replace(request, scale=-request.scale, bound=-request.bound)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_request_that_is_not_what_its_costs_are_for_is_refused(change):
    """Other records, another loss, or numbers that make noise look cheaper than it is."""
    plan = Asking(examples.LOGISTIC, es.Pure(1.0), 1.0, 1, change)
    rows, account = examples.rows_for(plan), runs.Account()
    with runs.taps.listening(Silent()), pytest.raises(ValueError, match=MESSAGES):
        es.run(plan, rows, ledger=account, anyway=True)
    assert len(account.charges) == 1  # whoever writes such a method pays for it


def test_the_meter_keeps_currencies_apart_and_takes_no_negative_cost():
    meter = Meter([Epsilon(1.0), Mu(0.6), Rho(0.5)], 2)
    meter.spend([Epsilon(2.0), Mu(0.6 * math.sqrt(2))])
    for cost in (Epsilon(1e-6), Mu(1e-2), Rho(1.01)):
        with pytest.raises(es.OverspentError):
            meter.spend([cost])
    with pytest.raises((es.OverspentError, ValueError)):
        meter.spend([Epsilon(-1.0)])
    with pytest.raises(es.OverspentError):
        meter.spend([Epsilon(1e-6)])


@each_plan
def test_a_run_is_the_same_in_every_engine(name, tmp_path):
    engines.publish_the_same(PLANS[name], tmp_path)


@each_plan
def test_neighbours_change_nothing_but_what_is_read(name):
    """A record replaced by a far one, and by what is no record: all else is the same, once readings are."""
    plan = PLANS[name]
    X, y = examples.records(plan.problem)
    others = []
    for row, target in ((np.full(plan.problem.d, -1e9), -y[7]), (np.full(plan.problem.d, np.nan), np.nan)):
        other, targets = X.copy(), y.copy()
        other[7], targets[7] = row, target
        others.append(es.Rows(plan.problem, other, targets))
    moved = list(neighbours_publish_the_same(plan, examples.rows_for(plan), others))
    assert moved
    assert any(np.any(change) for _, change in moved) or name.startswith("sampled")


@each_plan
def test_options_of_steps_are_refused_elsewhere_and_say_so(name):
    plan = PLANS[name]
    rows, width = examples.rows_for(plan), plan.problem.dimension
    for options in ({"start": 1.0}, {"start": np.ones(width)}, {"seed": 1, "arithmetic": "float"}):
        if isinstance(plan, es.StepsPlan):
            assert es.run(plan, rows, **options, anyway=True).path.shape == (plan.iterations + 1, width)
        else:
            with pytest.raises(ValueError, match="is for plans of steps, not for"):
                es.run(plan, rows, **options, anyway=True)


@each_plan
def test_another_runs_checkpoint_is_refused(name, tmp_path):
    plan = PLANS[name]
    rows = examples.rows_for(plan)
    es.run(plan, rows, checkpoint=tmp_path / "run", anyway=True)
    for options in ({"seed": 1, "arithmetic": "exact"}, {"repetitions": 2}):
        with pytest.raises(es.CheckpointError, match="belongs to a run with another plan, start or seed"):
            es.run(plan, rows, checkpoint=tmp_path / "run", **options, anyway=True)
    for other in PLANS.values():
        if other != plan and other.problem == plan.problem:
            with pytest.raises(es.CheckpointError, match="belongs to a run with another plan"):
                es.run(other, rows, checkpoint=tmp_path / "run", anyway=True)
            break


@dataclass(frozen=True, eq=False, repr=False)
class Lump(es.Plan):
    """It lists many small releases, and asks for a single one of their total."""

    problem: es.Problem
    budget: es.Approximate

    method = "lump"

    @property
    def charges(self) -> list[es.Charge]:
        return [es.Charge(f"gradient {t}", Epsilon(0.05), 1.0, "laplace") for t in range(400)]

    def conversation(self):
        noise, x = mechanisms.named("laplace"), np.zeros(self.problem.dimension)
        gradient = yield es.Gradient.at(self.problem, noise, x, 400 * 0.05)
        return es.Published(gradient[None])


def test_what_a_method_may_ask_for_at_once_is_what_its_charges_certify():
    """Small epsilons compose to 4.4 at this delta, but a method may spend their total of 20 on one release."""
    with pytest.raises(es.OverspentError, match=r"spend 20\.0"):
        Lump(examples.LOGISTIC, es.Approximate(6.0, 1e-5))
    plan = Lump(examples.LOGISTIC, es.Approximate(20.001, 1e-5))
    assert es.run(plan, examples.rows_for(plan), anyway=True).path.shape == (1, plan.problem.dimension)


TINY = {"laplace": es.Pure(1e-20), "l2": es.Pure(1e-20), "hull": es.Pure(1e-20), "gaussian": es.Concentrated(1e-40)}


@pytest.mark.parametrize("mechanism", TINY)
def test_noise_that_cannot_be_drawn_is_refused_before_the_charge(mechanism):
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.1, n=60, d=30)
    plan = es.plan(problem, TINY[mechanism], es.nesterov, mechanism=mechanism, iterations=3, allocation="uniform")
    account = runs.Account()
    with pytest.raises(ValueError, match="does not fit the integers of a gradient"):
        es.run(plan, examples.rows_for(plan), ledger=account, anyway=True)
    assert account.charges == []


@pytest.mark.parametrize("budget", [es.Pure(1e-14), es.Concentrated(1e-26)])
def test_an_eigenvalue_whose_noise_cannot_be_drawn_is_refused_before_the_charge(budget):
    plan = es.plan(examples.LOGISTIC, es.Pure(1.0), es.nesterov, iterations=1)
    account = runs.Account()
    with pytest.raises(ValueError, match="does not fit the integers of an eigenvalue"):
        es.estimate_smoothness(examples.rows_for(plan), budget, ledger=account)
    assert account.charges == []


def test_the_smallest_noise_of_a_body_is_drawn():
    """Samplers of bodies take no scale near 1 in many dimensions: a huge budget gets more noise, and no error."""
    problem = es.Problem(es.Logistic(), es.Box(0, 1, one_hot=[(0, 150), (150, 300)]), ridge=0.1, n=20, d=300)
    plan = es.plan(problem, es.Pure(9e13), es.nesterov, mechanism="hull", iterations=1, allocation="uniform")
    assert np.all(np.isfinite(es.run(plan, examples.rows_for(plan), anyway=True).x))


@pytest.mark.parametrize("budget", [es.Pure(1e-20), es.Concentrated(1e-40)], ids=str)
def test_a_budget_too_small_for_its_noise_makes_no_plan(budget):
    with pytest.raises(ValueError, match=r"does not fit the integers of a gradient\. Use a larger budget"):
        EvenDescent(examples.LOGISTIC, budget, 3)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("domain", [es.Ball(1.0), es.Ball(1.0, norm=1), es.Box(-1, 2)], ids=str)
@pytest.mark.parametrize(
    "loss", [es.Logistic(), es.SmoothedHinge(), es.Softmax((-1, 0, 1)), es.Squared(), es.PseudoHuber()], ids=str
)
def test_even_charges_meet_every_loss_domain_clip_and_budget(loss, domain, clip):
    """A method from outside keeps its certificate on neighbours, whatever its problem and its budget are."""
    problem = es.Problem(loss, domain, ridge=0.1, n=30, d=2, intercept=True, clip=clip)
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.tile([-1, 1], 15)
    other, labels = X.copy(), y.copy()
    other[3], labels[3] = [1e9, np.nan], -y[3]
    for budget in (es.Pure(1.0), es.Concentrated(0.1), es.Approximate(1.0, 1e-6)):
        plan = EvenDescent(problem, budget, 2)

        def fit(data, account, plan=plan):
            return es.run(plan, es.Rows(plan.problem, *data), ledger=account, anyway=True)

        assert 0 < replay(fit, (X, y), (other, labels)).spent <= plan.spent * (1 + 1e-9)
