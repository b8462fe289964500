"""Every release, replayed on a neighbour with its outputs frozen: nothing else may change, and nothing move too far."""

import dataclasses
import functools
import itertools
import warnings

import numpy as np
import pytest
from conftest import records

import epsteps as es
from epsteps.budgets import Epsilon, Rho, mechanisms
from epsteps.methods import CurvaturePlan, plan_objective
from epsteps.problem.losses import PseudoHuber, Softmax
from epsteps.problem.sampling import Sampling
from epsteps.testing import ReplayError, replay

METHODS = (es.gd, es.heavy_ball, es.nesterov, es.multistage, es.restarted_nesterov)
BUDGETS = (es.Pure(1.0), es.Concentrated(0.1), es.Approximate(1.0, 1e-5))
LOSSES = (es.Logistic(), es.Squared(0.7))
BALLS = (es.Ball(0.8, norm=1), es.Ball(1.3), es.Ball(1, norm=np.inf))
# Columns that are never negative, with units of their own, and with a category; and one of either sign.
BOXES = (es.Box(0, 1), es.Box((0, -1, 0), (2, 1, 0.3)), es.Box(0, 2, one_hot=[(1, 3)]))
N, D, RECORD = 40, 3, 17


def problem_of(loss, domain, intercept=False):
    return es.Problem(loss, domain, ridge=0.2, n=N, d=D, intercept=intercept)


def run_of(problem, budget, method, batch, **options):
    """Return a fit and the costs of its releases."""
    plan = es.plan(problem, budget, method, iterations=6, allocation="uniform", batch=batch, **options)

    def fit(data, account):
        return es.run(plan, es.Rows(problem, *data), ledger=account, anyway=True)

    return problem, fit, plan.costs


def smoothness_of(problem, budget):
    def fit(data, account):
        return es.estimate_smoothness(es.Rows(problem, *data), budget, ledger=account)

    return problem, fit, [budget.amount]


def minimum_of(problem, budget, **options):
    """Return the release of tilted minima; a Gaussian tilt's cost is the rho of its mu."""
    plan = plan_objective(problem, budget, **options)

    def fit(data, account):
        return es.run(plan, es.Rows(problem, *data), ledger=account, anyway=True)

    return problem, fit, charged_amounts(plan)


def published_of(problem, budget, method, seed=None, **options):
    """Return a fit by a named method; the costs of curvature first are published with its result."""
    plan = es.plan(problem, budget, method, **options)

    def fit(data, account):
        return es.run(plan, es.Rows(problem, *data), ledger=account, seed=seed, anyway=True)

    return problem, fit, _published_costs(plan)


def charged_amounts(plan):
    """Return the epsilon or rho of each charge; that of a mu is half its square."""
    return [charge.cost.amount if isinstance(charge.cost, Epsilon) else charge.cost.rho for charge in plan.charges]


def _published_costs(plan):
    if not isinstance(plan, CurvaturePlan):
        return charged_amounts(plan)

    def costs(result):
        curvature, *gradients = result.extras["costs"]
        second = [curvature] * ("released_second_moment" in result.extras)
        return [statistic.cost for statistic in plan.statistics] + second + gradients

    return costs


def name_of(domain):
    if isinstance(domain, es.Ball):
        return f"L{domain.norm}"
    return "Box" + "-units" * isinstance(domain.low, tuple) + "-category" * bool(domain.one_hot)


def fits():
    """Yield every release of the library. A new mechanism or release joins by one line."""
    for loss, ball, intercept in itertools.product(LOSSES, BALLS, (False, True)):
        problem = problem_of(loss, ball, intercept)
        name = f"{type(loss).__name__}-{name_of(ball)}{'-intercept' * intercept}"
        for budget, method in itertools.product(BUDGETS, METHODS):
            mechanism = "laplace" if budget == es.Pure(1.0) else "gaussian"
            yield (
                f"{name}-{type(budget).__name__}-{method.__name__}",
                run_of(problem, budget, method, None, mechanism=mechanism),
            )
        for budget in (es.Pure(1.0), es.Approximate(1.0, 1e-5)):
            yield f"{name}-{type(budget).__name__}-batch", run_of(problem, budget, es.nesterov, 20)
        for budget in BUDGETS[:2]:
            yield f"{name}-smoothness-{type(budget).__name__}", smoothness_of(problem, budget)
    for domain, intercept, mechanism in itertools.product((*BALLS, *BOXES), (False, True), mechanisms.NAMES):
        problem = problem_of(es.Logistic(), domain, intercept)
        budget = next(one for one in BUDGETS if one.kind(Sampling(1, 1)) is mechanisms.named(mechanism).kind)
        name = f"{name_of(domain)}{'-intercept' * intercept}-{mechanism}"
        if mechanisms.named(mechanism).covers(problem):
            yield f"{name}-steps", run_of(problem, budget, es.nesterov, None, mechanism=mechanism)
            yield f"{name}-state", run_of(problem, budget, es.gd, None, mechanism=mechanism, sensitivity="state")
            kind = budget if budget.kind(Sampling(1, 1)) is Epsilon else es.Approximate(1.0, 1e-5)
            yield f"{name}-minimum", minimum_of(problem, kind, mechanism=mechanism)
    for domain, mechanism in itertools.product((*BALLS, *BOXES), mechanisms.TILTS):
        problem, noise = problem_of(Softmax(), domain, True), mechanisms.named(mechanism)
        if mechanism not in mechanisms.NAMES and noise.covers(problem):
            budget = noise.kind.either(es.Pure(1.0), es.Approximate(1.0, 1e-5))
            yield f"{name_of(domain)}-{mechanism}-minimum", minimum_of(problem, budget, mechanism=mechanism)
    for loss in (es.Squared(0.7), Softmax(), PseudoHuber(0.7, 0.4)):
        problem = problem_of(loss, BOXES[2], True)
        for mechanism, batch in (("hull", None), ("hull", 20), ("l2", None)):
            name = f"{type(loss).__name__}-{mechanism}{'-batch' * (batch is not None)}"
            yield name, run_of(problem, es.Pure(1.0), es.nesterov, batch, mechanism=mechanism)
        if not isinstance(loss, es.Squared):
            yield f"{type(loss).__name__}-minimum", minimum_of(problem, es.Pure(1.0))
    cube = problem_of(es.Logistic(), BALLS[2])
    yield "minima-three", minimum_of(cube, es.Pure(1.0), shares=(0.2, 0.3, 0.5))
    yield "minima-Gaussian", minimum_of(cube, es.Approximate(1.0, 1e-5), mechanism="gaussian", shares=(0.5, 0.5))
    yield "minima-rho", minimum_of(cube, es.Concentrated(0.5))
    yield from published_fits()


def published_fits():
    """Yield the methods that make their own choices, over balls and columns of all kinds."""
    large = es.Pure(200.0), es.Concentrated(500.0), es.Approximate(60.0, 1e-5)
    for domain, intercept in ((BALLS[1], True), (BALLS[2], False), (BOXES[1], True), (BOXES[2], False)):
        logistic, squared = (problem_of(loss, domain, intercept) for loss in LOSSES)
        for budget in BUDGETS:
            name = f"{name_of(domain)}-{type(budget).__name__}"
            yield f"{name}-output", published_of(logistic, budget, "output")
            yield f"{name}-statistics", published_of(squared, budget, "statistics")
            yield f"{name}-curvature", published_of(logistic, budget, "curvature")
            yield f"{name}-descent", published_of(logistic, budget, "descent", iterations=4)
        for budget in large:
            yield (
                f"{name_of(domain)}-{type(budget).__name__}-large-curvature",
                published_of(logistic, budget, "curvature"),
            )
            yield (
                f"{name_of(domain)}-{type(budget).__name__}-large-intervals",
                published_of(logistic, budget, "objective", intervals=0.95, robust=True),
            )
        yield f"{name_of(domain)}-Pure-sequential", published_of(logistic, BUDGETS[0], "sequential")
    ball = problem_of(es.Logistic(), BALLS[1], True)
    yield "Approximate-sequential", published_of(ball, BUDGETS[2], "sequential")
    yield "Gaussian-sequential", published_of(ball, BUDGETS[2], "sequential", mechanism="gaussian")
    category = problem_of(es.Squared(0.7), BOXES[2], True)
    clipped = dataclasses.replace(category, clip=0.9)
    for budget in BUDGETS:
        name = type(budget).__name__
        yield f"{name}-squared-curvature", published_of(category, budget, "curvature")
        yield f"{name}-squared-descent", published_of(category, budget, "descent", iterations=4)
        yield f"{name}-clipped-descent", published_of(clipped, budget, "descent", iterations=4)
        for loss in (Softmax(), PseudoHuber(0.7, 0.4)):
            kind = problem_of(loss, BOXES[1], True)
            yield f"{name}-{type(loss).__name__}-output", published_of(kind, budget, "output")
            yield f"{name}-{type(loss).__name__}-objective", published_of(kind, budget, "objective")


FITS = dict(fits())


def neighbours(problem, seed=0):
    """Yield a dataset and neighbours that differ in one record: a mild one, and all that a file may hold."""
    X, y = records(problem, seed)
    y = y.astype(float)
    for row, label in (
        (np.zeros(D), 1.0),
        (np.full(D, 1e3), -1.0),
        (np.full(D, -1e300), 1.0),
        ([np.nan, np.inf, -np.inf], np.nan),
        (X[RECORD], 1e9),
    ):
        other, labels = X.copy(), y.copy()
        other[RECORD], labels[RECORD] = row, label
        yield (X, y), (other, labels)


def replay_all(fit, seed=0):
    """Replay a fit on every neighbour; a check that planted bugs are held against, too."""
    problem, run_fit, costs = fit
    found = [replay(run_fit, *pair, costs=costs) for pair in neighbours(problem, seed)]
    for one in found:
        assert one.exception == "none", one.exception
    return found


@pytest.mark.parametrize("name", FITS)
def test_neighbours_change_nothing_but_the_releases(name):
    found = replay_all(FITS[name])
    assert all(len(one.losses) > 0 for one in found)
    assert all(len(one.charges) == 1 for one in found)
    assert any(np.any(one.losses > 0) for one in found)


@pytest.mark.parametrize("budget", ["Pure", "Concentrated", "Approximate"])
def test_a_large_budget_releases_the_second_moment(budget):
    """So that the fits above hold it against its cost: two statistics, the second moment, gradients."""
    problem, fit, costs = FITS[f"Linf-{budget}-large-curvature"]
    found = replay(fit, *next(neighbours(problem)), costs=costs)
    assert found.result.extras["released_second_moment"].shape == (D + 1, D + 1)
    assert len(found.losses) == 2 + 1 + len(found.result.extras["gradients"])
    assert np.all(found.losses[2] > 0)


def test_costs_that_add_up_to_more_than_the_charge_are_found():
    with pytest.raises(ReplayError, match=r"the releases are declared as 1\.5 together, but only pure epsilon = 1 was"):
        replay(private, *next(neighbours(PROBLEM)), costs=lambda result: 1.5 * result.plan.costs)


def test_epsilons_of_pure_releases_are_added_to_gaussian_ones():
    """As they were charged: where the costs are declared to be more than that, the replay says so."""
    problem, fit, costs = FITS["Gaussian-sequential"]
    pair = next(iter(neighbours(problem)))
    found = replay(fit, *pair, costs=costs)
    (charge,), (first, second) = found.charges, found.losses.ravel()
    assert first > 0
    assert found.spent == pytest.approx(first + (charge.spending(np.array([second]), Rho).amount if second else 0.0))
    assert found.spent <= charge.amount
    with pytest.raises(ReplayError, match=r"the releases are declared as .* together, but only epsilon = "):
        replay(fit, *pair, costs=[charge.amount, *costs[1:]])


def test_a_far_neighbour_uses_most_of_the_sensitivity():
    """The check of losses has teeth: opposite corners at a point where both slopes are 1 take nearly all of it."""
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=1), ridge=0.2, n=2, d=2)
    plan = es.plan(problem, es.Pure(1.0), es.gd, iterations=1)

    def fit(data, account):
        return es.run(plan, es.Rows(problem, *data), start=50.0, ledger=account, anyway=True)

    first, second = (np.array([[1.0, 0.0], [0.0, 0.0]]), [-1, 1]), (np.array([[0.0, 1.0], [0.0, 0.0]]), [-1, 1])
    assert replay(fit, first, second, costs=plan.costs).losses.max() == pytest.approx(1.0, rel=1e-5)


def test_repetitions_and_checkpoints_replay(tmp_path):
    problem = problem_of(es.Logistic(), BALLS[2])
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=4, batch=9)
    files = itertools.count()

    def fit(data, account):
        path = tmp_path / str(next(files))
        return es.run(plan, es.Rows(problem, *data), repetitions=3, ledger=account, checkpoint=path, anyway=True)

    for pair in neighbours(problem):
        assert replay(fit, *pair).losses.shape == (4, 3)


LAPLACE = mechanisms.named("laplace")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PlainDescent(es.Plan):
    """A method from outside: steps of equal cost. What it asks for may be more than what it charges."""

    problem: es.Problem
    budget: es.Pure
    steps: int
    asked: float = 1.0

    method = "plain descent"

    @property
    def charges(self):
        return self.even_charges(self.steps)

    def conversation(self):
        path = [np.zeros(self.problem.dimension)]
        for charge in self.charges:
            asked = dataclasses.replace(charge, cost=Epsilon(self.asked * charge.cost.amount))
            path.append(path[-1] - (yield self.gradient(path[-1], asked)))
        return es.Published(np.array(path))


@dataclasses.dataclass(frozen=True, eq=False)
class Votes(es.Sum):
    """A sum from outside: how many more records are of the second class; each counts 1 or -1, or more if it lies."""

    problem: es.Problem
    epsilon: float
    weight: int = 1

    @functools.cached_property
    def costs(self):
        return (Epsilon(self.epsilon),)

    def draw(self, source):
        return {"noise": source.integers(LAPLACE, 2 / self.epsilon, (1,))}

    def block(self, features, targets):
        return self.weight * np.array([np.sum(targets > 0) - np.sum(targets < 0)])

    def publish(self, reading, draw):
        return (reading + draw["noise"]).astype(float)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class VotesPlan(es.Plan):
    """One such sum, and nothing else."""

    problem: es.Problem
    budget: es.Pure
    weight: int = 1

    reads = (Votes,)
    method = "votes"

    @property
    def charges(self):
        return [es.Charge("votes", Epsilon(self.budget.epsilon), 2 / self.budget.epsilon, "laplace")]

    def spending(self, repetitions=1):
        return self.budget.of(Epsilon(self.budget.epsilon * repetitions))

    def conversation(self):
        votes = yield Votes(self.problem, self.budget.epsilon, self.weight)
        return es.Published(votes[None, :])


def outside_of(plan):
    def fit(data, account):
        return es.run(plan, es.Rows(plan.problem, *data), ledger=account, anyway=True)

    return plan.problem, fit, charged_amounts(plan)


@pytest.mark.parametrize("kind", ["descent", "votes"])
def test_methods_from_outside_are_replayed_and_metered_like_ours(kind):
    plan = PlainDescent(PROBLEM, es.Pure(1.0), 3) if kind == "descent" else VotesPlan(PROBLEM, es.Pure(1.0))
    found = replay_all(outside_of(plan))
    assert all(len(one.losses) == len(plan.charges) for one in found)
    assert any(np.any(one.losses > 0) for one in found)
    assert [event.kind for event in found[0].events[:3]] == ["charge", "draw of integers", "reading by"]


def test_a_method_that_asks_for_more_than_it_charged_is_refused_before_anything_is_drawn_or_read():
    problem, fit, _ = outside_of(PlainDescent(PROBLEM, es.Pure(1.0), steps=1, asked=1.1))
    found = replay(fit, *next(neighbours(problem)))
    assert [event.kind for event in found.events] == ["charge"]
    assert found.exception.startswith("OverspentError: the method asks for epsilon = 1.1, which is more than is left")


def test_a_sum_that_reads_more_than_its_noise_is_scaled_for_is_found():
    with pytest.raises(ReplayError, match=r"release 0 moved by 3 of its noise, but is declared as 1\."):
        replay_each(outside_of(VotesPlan(PROBLEM, es.Pure(1.0), weight=3))[1])


def test_a_request_for_other_records_than_are_read_is_refused():
    """Noise for clipped gradients does not protect those that are read."""
    plan = PlainDescent(dataclasses.replace(PROBLEM, clip=0.05), es.Pure(1.0), 1)

    class Careless(PlainDescent):
        def conversation(self):
            return plan.conversation()

    _, fit, _ = outside_of(Careless(PROBLEM, es.Pure(1.0), 1))
    found = replay(fit, *next(neighbours(PROBLEM)))
    assert [event.kind for event in found.events] == ["charge"]
    assert "ValueError: the request is for" in found.exception
    assert "but the records are read as" in found.exception


# What replay finds: each fit below leaks in one way.
PROBLEM = problem_of(es.Logistic(), BALLS[2])
PLAN = es.plan(PROBLEM, es.Pure(1.0), es.gd, iterations=3)


def private(data, account, **options):
    return es.run(PLAN, es.Rows(PROBLEM, *data), ledger=account, **options, anyway=True)


def publishes_a_mean(data, account):
    return private(data, account), float(np.nanmean(data[1]))


def starts_at_the_data(data, account):
    return private(data, account, start=float(np.nan_to_num(data[0][RECORD, 0])) / 1e4)


def warns_of_large_values(data, account):
    if np.nanmax(data[0]) > 10:
        warnings.warn("large values", stacklevel=1)
    return private(data, account)


def validates(data, account):
    es.Rows(PROBLEM, *data, validate=True)
    return private(data, account)


def stops_early(data, account):
    return private(data, account) if np.all(np.isfinite(data[0])) else None


def draws_twice(data, account):
    private(data, account)
    return private(data, account) if data[1][RECORD] == 1 else None


def charges_nothing(data, account):
    return es.run(PLAN, es.Rows(PROBLEM, *data), anyway=True)


def charges_too_little(data, account):
    account.charge(es.Pure(1e-6), note="cheap")
    return es.run(PLAN, es.Rows(PROBLEM, *data), anyway=True)


def charges_by_the_data(data, account):
    account.charge(es.Pure(1.0 + (data[1][RECORD] == 1)), note="")
    return es.run(PLAN, es.Rows(PROBLEM, *data), anyway=True)


def scales_by_the_data(data, account):
    account.charge(es.Pure(1.0), note="")
    stretched = dataclasses.replace(PLAN, scales=PLAN.scales * (1 + min(np.nanmax(np.abs(data[0])), 2.0)))
    return es.run(stretched, es.Rows(PROBLEM, *data), anyway=True)


def draws_floats(data, account):
    return private(data, account, seed=1, arithmetic="float")


def draws_elsewhere(data, account):
    return private(data, account), np.random.default_rng().random()


def replay_each(fit, **options):
    for pair in neighbours(PROBLEM):
        replay(fit, *pair, **options)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (publishes_a_mean, r"the fit differs on a neighbour: result\.1 is"),
        (starts_at_the_data, "the fit differs on a neighbour: result.path is"),
        (
            warns_of_large_values,
            "the fit differs on a neighbour: warnings has 0 parts, then 1.*UserWarning: large values",
        ),
        (validates, "the fit differs on a neighbour: exception is 'none', then 'ValueError: validate=True"),
        (stops_early, "the fit differs on a neighbour: result is a Run, then a NoneType"),
        (draws_twice, "event .* on the neighbour"),
        (charges_nothing, "charged nothing"),
        (charges_too_little, "together, but only pure epsilon = 1e-06 was charged"),
        (charges_by_the_data, "event 0 differs on the neighbour: charge"),
        (scales_by_the_data, "event 1 differs on the neighbour: draw of integers"),
        (draws_floats, "the fit differs on a neighbour: result.path is"),
        (draws_elsewhere, "the fit differs on the same data: result.1 is"),
    ],
)
def test_leaks_are_found(fit, message):
    with pytest.raises(ReplayError, match=message):
        replay_each(fit)


def test_a_release_that_moves_too_far_is_found():
    with pytest.raises(ReplayError, match=r"release \d moved by .* of its noise, but is declared as"):
        replay_each(private, costs=PLAN.costs / 100)
    with pytest.raises(ReplayError, match="4 releases were declared, but 3 were made"):
        replay(private, *next(neighbours(PROBLEM)), costs=np.ones(4))
