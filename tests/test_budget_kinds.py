"""Concentrated and approximate budgets: splits, exact conversion, composition, and runs under each of them."""

import math

import mpmath
import numpy as np
import pytest
from conftest import records, small_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import epsteps as es
from epsteps.budgets.conversions import _binomial, _log_delta, composed_epsilon, gaussian_epsilon
from epsteps.budgets.mechanisms import Gaussian, named
from epsteps.problem.sampling import Sampling

METHODS = (es.gd, es.heavy_ball, es.nesterov, es.multistage)
BUDGETS = (es.Pure(1.0), es.Concentrated(0.05), es.Approximate(1.0, 1e-6))
weights = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40).map(np.array)


@given(weights, st.floats(1e-4, 10))
def test_rhos_of_the_split_add_up_and_no_other_split_is_better(a, rho):
    costs = es.Concentrated(rho).split(a)
    assert costs.sum() == pytest.approx(rho, rel=1e-12)
    best = np.sum(a / costs)
    assert best == pytest.approx(np.sqrt(a).sum() ** 2 / rho)
    for seed in range(3):
        other = costs * np.exp(np.random.default_rng(seed).normal(0, 0.3, len(a)))
        assert best <= np.sum(a / (other * rho / other.sum())) * (1 + 1e-12)


@given(st.floats(0.01, 3), st.floats(0.01, 5))
def test_the_gaussian_curve_is_the_hockey_stick_of_two_gaussians(mu, epsilon):
    """The formula against numerical integration of max(0, p - e^epsilon q)."""
    cut = epsilon / mu + mu / 2

    def excess(z):
        return stats.norm.pdf(z, mu) - np.exp(epsilon) * stats.norm.pdf(z)

    expected = integrate.quad(excess, cut, cut + 40, epsabs=1e-13, limit=200)[0]
    assert es.budgets.gaussian_delta(mu, epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.0, -0.3), (0.01, -0.001), (0.3, -1.0), (2.0, -0.5), (1.0, -5.0)])
def test_the_gaussian_curve_goes_on_below_zero(mu, epsilon):
    """The chance of the best event, less e^epsilon times its neighbour's: of none at mu = 0."""
    cut = epsilon / mu + mu / 2 if mu else -math.inf
    expected = stats.norm.sf(cut - mu) - math.exp(epsilon) * stats.norm.sf(cut)
    assert es.budgets.gaussian_delta(mu, epsilon) == pytest.approx(expected, rel=1e-12)


@given(st.floats(0.01, 20), st.floats(-12, -0.5))
def test_conversion_inverts_and_beats_the_textbook(epsilon, log_delta):
    delta = 10**log_delta
    mu = es.budgets.gaussian_mu(epsilon, delta)
    assert es.budgets.gaussian_delta(mu, epsilon) <= delta
    assert es.budgets.gaussian_delta(mu * 1.0001, epsilon) > delta
    assert mu**2 / 2 > es.budgets.zcdp_rho(epsilon, delta)


@pytest.mark.parametrize(("epsilon", "gain"), [(0.1, 2.45), (1.0, 1.73), (5.0, 1.40)])
def test_the_exact_conversion_saves_variance(epsilon, gain):
    assert es.Approximate(epsilon, 1e-5).rho / es.budgets.zcdp_rho(epsilon, 1e-5) == pytest.approx(gain, abs=0.01)


@settings(max_examples=15)
@given(st.lists(st.floats(0.001, 0.5), min_size=1, max_size=12), st.floats(-8, -1))
def test_composition_is_never_below_the_exact_one(costs, log_delta):
    """Randomised responses, composed by enumerating all outcomes."""
    delta = 10**log_delta
    found = composed_epsilon(np.array(costs), delta)
    signs = np.array(np.meshgrid(*[[1, -1]] * len(costs))).reshape(len(costs), -1)
    losses = np.array(costs) @ signs
    logs = -np.log1p(np.exp(-signs * np.array(costs)[:, None])).sum(axis=0)
    spent = np.sum(np.exp(logs) * np.maximum(0, -np.expm1(found - losses)))
    assert spent <= delta * (1 + 1e-9)
    assert found <= sum(costs) * (1 + 1e-9)


def responses(costs):
    """Return the losses of randomised responses together and their chances, in 60 digits: those above 0, descending."""
    law = {mpmath.mpf(0): mpmath.mpf(1)}
    for cost in map(mpmath.mpf, costs):
        chance, further = 1 / (1 + mpmath.exp(-cost)), {}
        for loss, before in law.items():
            for moved, share in ((loss + cost, chance), (loss - cost, 1 - chance)):
                further[moved] = further.get(moved, 0) + before * share
        law = further
    return sorted(((loss, chance) for loss, chance in law.items() if loss > 0), reverse=True)


def equal_responses(cost, T):
    """Return the same for T equal costs, by their closed form (Kairouz, Oh, Viswanath 2015)."""
    chance = 1 / (1 + mpmath.exp(-mpmath.mpf(cost)))
    return [
        ((2 * i - T) * mpmath.mpf(cost), mpmath.binomial(T, i) * chance**i * (1 - chance) ** (T - i))
        for i in range(T, T // 2, -1)
    ]


def exact_epsilon(law, delta):
    """Return the smallest epsilon at which the sum of chance x max(0, 1 - exp(epsilon - loss)) is delta."""
    above = weighed = mpmath.mpf(0)
    for place, (loss, chance) in enumerate(law):
        above, weighed = above + chance, weighed + chance * mpmath.exp(-loss)
        lower = law[place + 1][0] if place + 1 < len(law) else mpmath.mpf(0)
        if above - mpmath.exp(lower) * weighed > delta:
            return mpmath.log((above - mpmath.mpf(delta)) / weighed)
    return mpmath.mpf(0)


def exact_delta(law, epsilon):
    return mpmath.fsum(chance * max(0, -mpmath.expm1(epsilon - loss)) for loss, chance in law)


DELTAS = (1e-3, 1e-6, 1e-12, 1e-14, 1e-18, 1e-30, 1e-100)


@pytest.mark.parametrize(("cost", "T"), [(0.01, 100), (0.3, 100), (0.01, 1000), (0.05, 1000), (1.0, 37), (2.5, 3)])
def test_equal_costs_compose_to_the_closed_form_at_any_delta(cost, T):
    """Never below it, and above it by at most 2e-4 of it, where Fourier transforms have lost all digits."""
    with mpmath.workdps(60):
        law = equal_responses(cost, T)
        for delta in DELTAS:
            exact, found = exact_epsilon(law, delta), composed_epsilon(np.full(T, cost), delta)
            assert exact <= found <= exact * (1 + 2e-4)


@pytest.mark.parametrize(("cost", "count"), [(0.3, 1), (2.5, 7), (0.01, 1000), (1.0, 3000)])
def test_chances_of_equal_costs_are_rounded_up(cost, count):
    """Each of them, by no more than a hundred millionth."""
    values, chances, beyond = _binomial(cost, count, 0.0)
    with mpmath.workdps(60):
        law = {float(loss): chance for loss, chance in equal_responses(cost, count)}
        for value, chance in zip(values.tolist(), chances.tolist(), strict=True):
            if value > 0 and law[value] > 1e-300:
                assert law[value] <= chance <= law[value] * (1 + 1e-8)
    assert beyond == 0


@settings(max_examples=25)
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=7), st.floats(1e-3, 5), st.sampled_from(DELTAS))
def test_different_costs_compose_to_the_enumerated_law_at_any_delta(shape, size, delta):
    costs = size * np.array(shape)
    with mpmath.workdps(60):
        exact, found = exact_epsilon(responses(costs), delta), composed_epsilon(costs, delta)
        assert exact <= found <= exact + 1e-3 * max(exact, 0.5 * math.sqrt(np.sum(costs**2)))


def test_another_accountant_composes_to_nearly_the_same():
    """Google's, where delta is large enough for its transforms; it rounds losses up to a grid."""
    distributions = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    common = pytest.importorskip("dp_accounting.pld.common")
    costs, together = 0.02 * np.sqrt(np.geomspace(1e-2, 1, 30)), None
    for cost in costs:
        parameters = common.DifferentialPrivacyParameters(cost, 0.0)
        step = distributions.from_privacy_parameters(parameters, value_discretization_interval=1e-6)
        together = step if together is None else together.compose(step)
    for delta in (1e-3, 1e-6):
        other = together.get_epsilon_for_delta(delta)
        assert other * (1 - 5e-3) <= composed_epsilon(costs, delta) <= other * (1 + 2e-4)


def test_costs_that_are_no_costs_are_refused():
    for costs in ([0.1, np.nan], [-0.1], [np.inf]):
        with pytest.raises(ValueError, match="costs must be finite and not negative"):
            composed_epsilon(np.array(costs), 1e-6)
    assert composed_epsilon(np.zeros(3), 1e-6) == 0
    assert composed_epsilon(np.full(3, 0.1), 1e-310) == pytest.approx(0.3)  # below every float's digits: the sum


@pytest.mark.parametrize("bought", [0.01, 0.1, 0.3, 0.6])
def test_a_plan_may_depend_on_what_was_bought(bought):
    """A randomised response is bought, and its answer decides how many steps share the rest: the worst of each.

    The delta of both together is exact: every step is a randomised response, and so is the purchase.
    """
    budget, laplace = es.Approximate(1.0, 1e-5), named("laplace")
    with mpmath.workdps(40):
        laws = []
        for T in (1, 3, 10, 100, 1000):
            costs = budget.allocate(None, T, laplace, Sampling(10, 10), reserved=bought)
            assert budget.spending(costs, laplace.kind, [bought]).epsilon <= 1
            laws.append(equal_responses(float(costs[0]), T))
        spent = mpmath.mpf(0)
        for loss in (mpmath.mpf(bought), -mpmath.mpf(bought)):
            spent += max(exact_delta(law, 1 - loss) for law in laws) / (1 + mpmath.exp(-loss))
        assert spent <= 1e-5


@pytest.mark.parametrize("bought", [1e-3, 0.5, 0.99, 0.99999])
def test_costs_beside_expenses_fit_where_only_sums_hold(bought):
    """At so small a delta nothing is gained by composition, so that the root is sharp and only rounding leaves room."""
    budget, laplace = es.Approximate(1.0, 1e-299), named("laplace")
    costs = budget.allocate(None, 3, laplace, Sampling(10, 10), reserved=bought)
    assert costs.sum() == pytest.approx(1 - bought, rel=1e-3)
    assert budget.spending(costs, laplace.kind, [bought]).epsilon <= 1


def test_expenses_are_added_to_the_composed_epsilon_of_the_steps(paper):
    expense = es.Expense("L", 0.1, "epsilon")
    plan = es.plan(
        paper, es.Approximate(1.0, 1e-6), es.nesterov, mechanism="laplace", iterations=50, expenses=[expense]
    )
    assert plan.spent == pytest.approx(0.1 + plan.spending().epsilon, rel=1e-9)
    assert 1 - 1e-3 < plan.spent <= 1
    assert es.Plan.from_json(plan.to_json()) == plan


WITH_EXPENSES = [
    (es.Pure(1.0), "laplace"),
    (es.Concentrated(0.05), "gaussian"),
    (es.Approximate(1.0, 1e-6), "gaussian"),
    (es.Approximate(1.0, 1e-6), "laplace"),
]


def available(budget, mechanism):
    """Return what expenses and steps share, in the mechanism's unit."""
    return budget.capacity(mechanism.kind)


@pytest.mark.parametrize("allocation", ["optimal", "uniform"])
@pytest.mark.parametrize(("budget", "name"), WITH_EXPENSES)
def test_a_plan_with_expenses_fits_its_budget_and_uses_nearly_all_of_it(paper, budget, name, allocation):
    for share in (1e-3, 0.4, 0.95, 1 - 1e-6):
        expense = es.Expense("L", share * available(budget, named(name)), named(name).unit)
        options = {"mechanism": name, "allocation": allocation, "iterations": 7, "expenses": [expense]}
        plan = es.plan(paper, budget, es.gd, **options)
        assert budget.amount * (1 - 1e-3) < plan.spent <= budget.amount
        assert plan.costs.sum() < es.plan(paper, budget, es.gd, **options | {"expenses": []}).costs.sum()


@pytest.mark.parametrize("allocation", ["optimal", "uniform"])
@pytest.mark.parametrize(("budget", "name"), WITH_EXPENSES[:3])
def test_noise_by_horizon_is_that_of_the_costs_which_expenses_leave(budget, name, allocation):
    """The number of steps is chosen by it: for every number it is the noise of the scales that would be planned."""
    mechanism, full, bound = named(name), Sampling(50, 50), es.bounds.gd(es.gd(0.1, 1.0, 12), 0.1, 1.0)
    for share in (0.0, 0.4, 0.95):
        reserved = share * available(budget, mechanism)
        found = budget.noise_by_horizon(bound, allocation, mechanism, full, reserved)
        for T in (1, 5, 12):
            weights = bound.first(T).weights
            costs = budget.allocate(weights if allocation == "optimal" else None, T, mechanism, full, reserved)
            scales = mechanism.scales(1.0, costs, full)
            assert found[T - 1] == pytest.approx(np.sum(weights * scales**2), rel=1e-5)


def mp_log_delta(mu, epsilon):
    """Return ln of the Gaussian curve's delta, in digits enough for its cancellation."""
    with mpmath.workdps(120):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        s = epsilon / mu - mu / 2
        near, far = (mpmath.erfc(z / mpmath.sqrt(2)) / 2 for z in (s, s + mu))
        return mpmath.log(near - mpmath.exp(epsilon) * far)


@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.4, 3.0, 1e3, 1e5, 1e7])
def test_logarithms_of_delta_are_within_their_bound(size):
    """Also where epsilon/mu and mu/2 nearly cancel, so that rounding of either moves a far tail by much."""
    rng = np.random.default_rng(36)
    for mu, s in zip(size * rng.uniform(1, 2, 150), rng.uniform(-2, 37, 150), strict=True):
        epsilon = max(mu * (s + mu / 2), 0.0)
        found, error = _log_delta(mu, epsilon)
        assert abs(found - mp_log_delta(mu, epsilon)) <= error


@given(st.floats(-12, 6), st.floats(-300, -0.01))
def test_gaussian_epsilons_are_never_too_small(log_mu, log_delta):
    mu, delta = 10**log_mu, 10**log_delta
    found = gaussian_epsilon(mu, delta)
    assert mp_log_delta(mu, found) <= mpmath.log(delta)
    if found > 0:
        assert mp_log_delta(mu, found * (1 - 1e-6)) > mpmath.log(delta)


@given(st.floats(-9, 6), st.floats(-300, -0.01))
def test_gaussian_mus_are_never_too_large(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    found = es.budgets.gaussian_mu(epsilon, delta)
    assert mp_log_delta(found, epsilon) <= mpmath.log(delta)
    assert mp_log_delta(found * (1 + 1e-6), epsilon) > mpmath.log(delta)


def test_composition_gains_over_the_sum_of_epsilons():
    assert composed_epsilon(np.full(100, 0.01), 1e-6) == pytest.approx(0.392, abs=0.002)
    assert composed_epsilon(np.array([1.0]), 1e-6) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: type(budget).__name__)
def test_every_algorithm_is_planned_and_run_under_every_budget(method, budget):
    problem = small_problem(n=300)
    rows = es.Rows(problem, *records(problem))
    for options in ({"allocation": "uniform", "iterations": 20}, {"objective": "exact", "max_iterations": 50}):
        plan = es.plan(problem, budget, method, **options)
        assert plan.spent <= budget.amount
        assert plan.spent >= budget.amount * (1 - 1e-6)
        assert es.Plan.from_json(plan.to_json()) == plan
        assert str(budget) in str(plan)
        run = es.run(plan, rows, seed=1, repetitions=2)
        assert run.spent >= plan.spent
        assert np.all(np.isfinite(run.path))


def test_gaussian_noise_follows_its_law_and_no_other():
    problem = small_problem(n=300)
    rows = es.Rows(problem, *records(problem))
    for seed in (1, None):
        plan = es.plan(problem, es.Approximate(1.0, 1e-5), es.gd, iterations=50)
        run = es.run(plan, rows, seed=seed, repetitions=20)
        sample = [
            ((run.path[t] - run.path[t + 1]) / plan.steps.alpha[t] - rows.gradient(run.path[t])) / plan.scales[t]
            for t in range(50)
        ]
        sample = np.ravel(sample)
        # Accepted at p > 1e-4: right code fails for one seed in ten thousand.
        assert stats.kstest(sample, stats.norm.cdf).pvalue > 1e-4
        assert stats.kstest(sample, stats.norm(scale=2 / 3).cdf).pvalue < 1e-4
        assert stats.kstest(sample, stats.norm(scale=3 / 2).cdf).pvalue < 1e-4


def test_gaussian_scales_certify_by_hand(paper):
    plan = es.plan(paper, es.Approximate(1.0, 1e-6), es.nesterov, iterations=30)
    mu = np.sqrt(np.sum((paper.sensitivity(2) / (paper.n * plan.scales)) ** 2))
    assert es.budgets.gaussian_delta(mu, 1.0) <= 1e-6
    assert es.budgets.gaussian_delta(mu, 0.9999) > 1e-6


@pytest.mark.parametrize("batch", [None, 50])
def test_laplace_noise_at_positive_delta_spends_more_epsilon_in_sum(batch):
    problem = small_problem(n=1000)
    budget = es.Approximate(1.0, 1e-5)
    plan = es.plan(problem, budget, es.nesterov, iterations=60, mechanism="laplace", batch=batch)
    assert plan.spent <= 1.0
    assert plan.spent > 0.995
    assert plan.costs.sum() > 1.3
    pure = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=60, mechanism="laplace", batch=batch)
    assert plan.error < pure.error
    assert es.Plan.from_json(plan.to_json()) == plan


def test_a_delta_lets_less_noise_in(paper):
    """Most of all where pure noise is independent; shaped like the cube it is smaller, and the gain with it."""
    approximate = es.plan(paper, es.Approximate(1.0, 1e-6), es.nesterov)
    assert approximate.error < es.plan(paper, es.Pure(1.0), es.nesterov, mechanism="laplace").error / 100
    assert approximate.error < es.plan(paper, es.Pure(1.0), es.nesterov).error / 5


def test_required_epsilon_takes_a_delta(paper):
    steps = {"method": es.nesterov, "proved": True, "error": 0.01}
    epsilon = es.required_epsilon(paper, delta=1e-6, **steps)
    assert es.plan(paper, es.Approximate(epsilon, 1e-6), es.nesterov).error <= 0.01
    assert es.plan(paper, es.Approximate(epsilon * (1 - 1e-5), 1e-6), es.nesterov).error > 0.01
    n = es.required_n(paper, delta=1e-6, **steps)
    assert n < es.required_n(paper, **steps)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: es.Concentrated(0), "rho must be positive, got 0"),
        (lambda p: es.Approximate(1.0, 0), r"delta must lie between 0 and 1, got 0\. For delta = 0 use Pure"),
        (lambda p: es.Approximate(1.0, 1.0), "delta must lie between 0 and 1, got 1.0"),
        (lambda p: es.Approximate(-1.0, 1e-6), "epsilon must be positive, got -1.0"),
        (
            lambda p: es.plan(p, es.Pure(1.0), es.nesterov, mechanism="gaussian"),
            "pure epsilon = 1 does not cover gaussian noise",
        ),
        (lambda p: es.plan(p, es.Concentrated(1.0), es.nesterov, mechanism="laplace"), "does not cover laplace noise"),
        (
            lambda p: es.plan(p, es.Concentrated(1.0), es.nesterov, batch=10),
            "Gaussian noise reads all n=100000 records, got batch=10",
        ),
    ],
)
def test_bad_budgets_are_refused(paper, call, message):
    with pytest.raises(ValueError, match=message):
        call(paper)


def test_a_gaussian_plan_with_smaller_scales_is_refused(paper):
    import dataclasses

    for budget in (es.Concentrated(0.1), es.Approximate(1.0, 1e-6)):
        plan = es.plan(paper, budget, es.nesterov, iterations=5)
        with pytest.raises(es.OverspentError, match="more than its budget"):
            dataclasses.replace(plan, scales=plan.scales * 0.999)


def test_composing_twice_is_twice_the_rho(paper):
    plan = es.plan(paper, es.Concentrated(0.1), es.nesterov, iterations=5)
    assert plan.spending(2).amount == pytest.approx(2 * plan.spent)
    both = es.plan(paper, es.Approximate(1.0, 1e-6), es.nesterov, iterations=5).spending(2)
    assert 1.0 < both.amount < 2.0
    assert Gaussian().costs(2.0, np.array([1.0]), Sampling(1, 1)) == pytest.approx(2.0)


def test_nothing_released_costs_nothing():
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
