"""Sufficient statistics: what one record moves, what the noise is, what a plan certifies, and how good the model is."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from laws.plans import survives_json
from laws.releases import asked, noise, published, reading
from scipy import stats
from scipy.sparse import csr_array

import epsteps as es
from epsteps.budgets import gaussian_mu
from epsteps.data import encoding
from epsteps.methods.statistics import solved, uncentred
from epsteps.noise import Source
from epsteps.problem.grid import STEPS

# Statistical tests accept at p > 1e-4: on right code they would fail for one seed in ten thousand. Seeds are fixed.
LEVEL = 1e-4
BUDGETS = (es.Pure(0.7), es.Approximate(0.7, 1e-6), es.Concentrated(0.02))
DOMAINS = {
    "l2": es.Ball(2.0),
    "l1": es.Ball(3.0, norm=1),
    "cube": es.Ball(0.5, norm=math.inf),
    "box": es.Box((0.0, -1.0, 2.0, 0.0, 0.0), (1.0, 4.0, 3.0, 1.0, 1.0), one_hot=[(3, 5)]),
}


def problem_of(domain="box", n=30, **facts):
    return es.Problem(es.Squared(bound=2.5), DOMAINS[domain], **({"ridge": 0.1, "n": n, "d": 5} | facts))


def odd_records(rng, n, d=5):
    """Return records of every kind: ordinary ones, huge ones, corners of the domain, NaN and infinities."""
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 5, (n, 1))
    X[rng.random((n, d)) < 0.1] = np.nan
    X[rng.random((n, d)) < 0.1] = np.inf
    X[rng.random((n, d)) < 0.1] = -1e300
    corners = rng.random(n) < 0.4
    X[corners] = rng.choice([-1e9, 0.0, 1e9], (int(corners.sum()), d))
    y = rng.choice([np.nan, np.inf, -1e308, -2.5, 2.5, 0.3], n)
    return X, y


def moved(plan, X, y, record, target):
    """Return the change of the released integers when the first record is replaced."""
    request = asked(plan)
    before = reading(request, es.Rows(plan.problem, X, y))
    X, y = X.copy(), y.copy()
    X[0], y[0] = record, target
    return (before - reading(request, es.Rows(plan.problem, X, y))).astype(float)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_plan_spends_its_budget_and_survives_json(domain, intercept, budget):
    plan = es.plan(problem_of(domain, intercept=intercept), budget, "statistics")
    assert budget.amount * (1 - 1e-6) < plan.spent <= budget.amount
    survives_json(plan)
    with pytest.raises(es.OverspentError, match="Make the plan anew"):
        replace(plan, scale=plan.scale * (1 - 1e-5))
    changed = json.loads(plan.to_json())
    for factor, error in ((0.5, es.OverspentError), (2.0, es.PlanFormatError)):
        with pytest.raises(error):
            es.StatisticsPlan.from_json(json.dumps(changed | {"scale": factor * plan.scale}))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("domain", DOMAINS)
def test_no_replaced_record_moves_the_integers_by_more_than_the_sensitivity(domain, budget):
    """The nuclear norm for Wishart noise, Frobenius's for Gaussian noise; whatever the records are."""
    rng = np.random.default_rng(1)
    problem = problem_of(domain, n=3)
    plan = es.plan(problem, budget, "statistics")
    X, y = odd_records(rng, 800)
    largest = 0.0
    for i in range(0, 798, 4):
        change = moved(plan, X[i : i + 3], y[i : i + 3], X[i + 3], y[i + 3])
        sizes = np.abs(np.linalg.eigvalsh(change))
        largest = max(largest, float(sizes.sum() if plan.mechanism == "wishart" else np.linalg.norm(change)))
    assert 0.5 * plan.sensitivity < largest <= plan.sensitivity


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_longest_vector_is_that_of_a_corner_of_the_domain(domain):
    plan = es.plan(problem_of(domain), es.Pure(1.0), "statistics")
    ends = [(-1e9, 1e9)] * 5 if domain in ("cube", "box") else [(0.0,)] * 5
    corners = np.array([*itertools.product(*ends), *(1e9 * np.eye(5)), *(-1e9 * np.eye(5))])
    features = plan.problem.domain.integers(corners, STEPS)
    vectors = asked(plan).encode(features, np.full(len(corners), 2.5)).astype(int).astype(object)
    longest = max(sum(entry**2 for entry in vector) for vector in vectors * np.array(plan.weights, object))
    assert plan.vectors.square * (1 - 1e-5) < longest <= plan.vectors.square


@pytest.mark.parametrize("domain", ["l2", "cube"])
def test_the_sensitivity_is_attained_by_orthogonal_records(domain):
    """Opposite targets cancel the constants, and orthogonal features make the vectors so: nothing is given away."""
    problem = problem_of(domain, n=2, d=2, intercept=True)
    weights = (10, 10, 10, 10)
    for mechanism, budget in (("wishart", es.Pure(1.0)), ("gaussian", es.Concentrated(0.5))):
        made = es.plan(problem, budget, "statistics", mechanism=mechanism)
        plan = replace(made, weights=weights, scale=made.scale * 10)
        if domain == "l2":
            pair = (np.array([2.0, 0.0]), np.array([0.0, 2.0]))
        else:
            pair = (np.array([0.5, 0.5]), np.array([0.5, -0.5]))
        change = moved(plan, np.array([pair[0]] * 2), np.array([2.5, 0.0]), pair[1], -2.5)
        sizes = np.abs(np.linalg.eigvalsh(change))
        size = sizes.sum() if mechanism == "wishart" else np.linalg.norm(change)
        assert plan.sensitivity * (1 - 1e-5) < size <= plan.sensitivity


def test_sparse_records_give_the_same_integers():
    rng = np.random.default_rng(6)
    problem = es.Problem(es.Squared(), es.Ball(1.0), ridge=0.1, n=400, d=5, intercept=True)
    plan = es.plan(problem, es.Pure(1.0), "statistics")
    X, y = odd_records(rng, 400)
    X[rng.random(X.shape) < 0.5] = 0.0
    dense, sparse = (reading(asked(plan), es.Rows(problem, each, y)) for each in (X, csr_array(X)))
    assert np.all(dense == sparse)


def test_gaussian_costs_are_those_of_moments_and_products_together():
    """The matrix of (features, target) is that of moments and products together, at the same mu.

    Replacing (u, y) by (v, w) changes the moments by uu' - vv', whose squared Frobenius norm is |u|⁴ + |v|⁴ - 2 (u'v)²,
    and the products by yu - wv: A (1 - c²) + Q (1 + c) at full length, for u'v = c |u|², largest at c = min(Q/2A, 1).
    """
    problem = problem_of("l2", n=50)
    plan = es.plan(problem, es.Approximate(1.0, 1e-5), "statistics")
    constant, *features, target = plan.weights
    size = math.hypot(constant, max(features))  # in units of the matrix
    A, Q = 2 * (size**2 / plan.scale) ** 2, 4 * (size * target / plan.scale) ** 2
    c = min(Q / (2 * A), 1.0)
    mu = math.sqrt(A * (1 - c**2) + Q * (1 + c))
    assert plan.cost == pytest.approx(mu, rel=1e-6)
    assert plan.cost == pytest.approx(gaussian_mu(1.0, 1e-5), rel=1e-6)
    assert plan.cost >= mu * (1 - 1e-9)


def test_sums_are_exact_and_do_not_depend_on_order_or_layout():
    rng = np.random.default_rng(2)
    problem = problem_of("box", n=5000)
    plan = es.plan(problem, es.Pure(1.0), "statistics")
    X, y = odd_records(rng, 5000)
    request = asked(plan)
    found = reading(request, es.Rows(problem, X, y))
    order = rng.permutation(5000)
    assert np.all(found == reading(request, es.Rows(problem, np.asfortranarray(X[order]), y[order])))
    features, targets = encoding.integers(problem, X)[:, :5], problem.loss.encode(y)
    vectors = request.encode(features, targets).astype(int).astype(object) * np.array(plan.weights, object)
    exact = vectors.T.dot(vectors)
    assert np.all(found == (exact + 2 ** (plan.shift - 1)) // 2**plan.shift)
    assert max(sum(entry**2 for entry in vector) for vector in vectors) <= plan.vectors.square


@pytest.mark.parametrize("domain", DOMAINS)
def test_sums_of_however_many_records_fit_and_leave_room_for_the_noise(domain):
    """Within 62 bits, signs apart: the noise, itself within 62 bits, is added modulo 2^64 and must not wrap around."""
    coarsened = set()
    for n, epsilon in itertools.product((2, 10**6, 10**9, 10**12, 10**15), (1e-3, 1.0, 1e3, 1e6)):
        plan = es.plan(problem_of(domain, n=n), es.Pure(epsilon), "statistics")
        assert n * plan.vectors.square < 2**62 << plan.shift
        assert plan.scale / plan.step < 2.0**37
        coarsened.add(n * plan.vectors.square >= 2**61 << plan.shift)
    assert coarsened == {False, True}  # and no coarser than that


@pytest.mark.parametrize("budget", BUDGETS[:2], ids=str)
def test_noise_has_the_planned_scale_and_no_other(budget):
    """Traces of the noise: sums of independent exponentials for Wishart noise, Gaussian otherwise."""
    plan = es.plan(
        problem_of("cube", d=1), budget, "statistics", mechanism="auto" if budget is BUDGETS[0] else "gaussian"
    )
    request, source, k = asked(plan), Source(3), plan.vectors.size
    draws = np.array([noise(request, source).astype(float) * plan.step for _ in range(800)])
    assert np.all(draws == draws.transpose(0, 2, 1))
    if plan.mechanism == "gaussian":
        ideal = stats.norm.cdf
        samples = (draws[:, 0, 0], draws[:, 1, 1], draws[:, 0, 1] * math.sqrt(2), draws[:, 1, 2] * math.sqrt(2))
    else:  # the trace of W is 2c Gamma(k(k+1)/2); kstest compares two samples
        gammas = np.random.default_rng(0).gamma(k * (k + 1) / 2, size=(2, 20_000))
        ideal, samples = 2 * (gammas[0] - gammas[1]), (np.trace(draws, axis1=1, axis2=2),)
    for sample in samples:
        assert stats.kstest(sample / plan.scale, ideal).pvalue > LEVEL
        assert stats.kstest(sample / plan.scale * 1.4, ideal).pvalue < LEVEL
        assert stats.kstest(sample / plan.scale / 1.4, ideal).pvalue < LEVEL
    assert np.var(draws[:, 0, 0]) == pytest.approx(plan.deviation**2, rel=0.35)


def regression(rng, n, d=5):
    X = np.hstack([rng.random((n, d - 2)), np.eye(2)[rng.integers(2, size=n)]])
    y = np.clip(X @ np.linspace(-1, 1, d) + 0.3 + 0.1 * rng.normal(size=n), -2.5, 2.5)
    return X, y


@pytest.mark.parametrize("intercept", [False, True])
def test_without_noise_the_model_is_the_ridge_regression(intercept):
    rng = np.random.default_rng(4)
    domain = es.Box(0, 1, one_hot=[(3, 5)])
    problem = es.Problem(es.Squared(2.5), domain, ridge=0.01, n=2000, d=5, intercept=intercept)
    plan = replace(es.plan(problem, es.Pure(1.0), "statistics"), floor=1e-9)
    X, y = regression(rng, 2000)
    request, rows = asked(plan), es.Rows(problem, X, y)
    moments = reading(request, rows)
    x = solved(plan, published(request, moments, 0 * moments))
    assert np.linalg.norm(rows.gradient(x)) < 1e-5


def test_without_noise_directions_that_no_record_has_are_left_to_the_ridge():
    """Records that are all the same, or copies of two: sums of low rank are possible sums, and are not changed."""
    problem = es.Problem(es.Squared(2.5), es.Box(0, 1), ridge=0.01, n=20, d=4)
    plan = replace(es.plan(problem, es.Pure(1.0), "statistics"), floor=1e-9)
    for X in (np.full((20, 4), 0.7), np.repeat([[1.0, 0.0, 0.5, 0.2], [0.0, 1.0, 0.5, 0.2]], 10, axis=0)):
        request, rows = asked(plan), es.Rows(problem, X, X @ [1.0, -1.0, 0.5, 0.0])
        moments = reading(request, rows)
        x = solved(plan, published(request, moments, 0 * moments))
        assert np.linalg.norm(rows.gradient(x)) < 1e-5


@pytest.mark.parametrize("budget", [es.Pure(2.0), es.Approximate(2.0, 1e-6)], ids=str)
def test_the_model_is_good_where_records_are_many_and_the_prediction_tells_so(budget):
    rng = np.random.default_rng(5)
    domain = es.Box(0, 1, one_hot=[(3, 5)])
    problem = es.Problem(es.Squared(2.5), domain, ridge=0.01, n=100_000, d=5, intercept=True)
    rows = es.Rows(problem, *regression(rng, 100_000))
    plan = es.plan(problem, budget, "statistics")
    best = np.linalg.solve(rows.hessian(np.zeros(6)), -rows.gradient(np.zeros(6)))
    lowest = float(rows.value(best))
    found = [es.run(plan, rows, seed=seed) for seed in range(5)]
    excess = np.mean([float(rows.value(run.x)) - lowest for run in found])
    assert excess < 0.01 * (float(rows.value(np.zeros(6))) - lowest)
    assert 0.02 < excess / plan.utility.expected < 50
    path, extras = found[0].path, found[0].extras
    assert path.shape == (1, 6)
    assert extras["moments"].shape == (7, 7)
    assert extras["moments"][0, 0] == pytest.approx(100_000)
    assert extras["moments"][1:6, 1:6] / 100_000 == pytest.approx(rows.second_moment()[:5, :5], abs=0.05)


def test_features_that_vary_little_beside_their_size_have_the_weights_of_others():
    """The least weight is 32, so that rounding moves none by more than 1/64; only ratios of the weights matter."""
    for low in (0.0, 1e3, 1e6):
        domain = es.Box(np.full(3, low), low + np.array([1.0, 2.0, 16.0]))
        weights = np.array(
            es.plan(es.Problem(es.Squared(), domain, ridge=0.1, n=100, d=3), es.Pure(1.0), "statistics").weights
        )
        deviations = np.array([1.0, 2.0, 16.0]) / domain.units(3)
        assert weights[1:-1].min() == 32
        assert weights[1:-1] / 32 == pytest.approx(np.sqrt(deviations.max() / deviations), rel=1 / 60)


def test_centring_lowers_the_noise_of_features_that_are_never_negative():
    """Twenty features in [0, 1]: their centred half-ranges make vectors a quarter as long, squared."""
    problem = es.Problem(es.Squared(), es.Box(0, 1), ridge=0.01, n=1000, d=20)
    plan = es.plan(problem, es.Pure(1.0), "statistics")
    plain = sum(weight**2 for weight in plan.weights[1:-1])
    assert plan.vectors.square / STEPS**2 == pytest.approx(1.35 * plain / 4, rel=0.05)


def test_more_runs_cost_more():
    problem = problem_of()
    assert es.plan(problem, es.Pure(0.5), "statistics").spending(3).amount == pytest.approx(1.5)
    assert es.plan(problem, es.Concentrated(0.5), "statistics").spending(3).amount == pytest.approx(1.5)
    many = es.plan(problem, es.Approximate(0.5, 1e-6), "statistics", mechanism="gaussian").spending(4)
    assert gaussian_mu(many.amount, 1e-6) == pytest.approx(2 * gaussian_mu(0.5, 1e-6), rel=1e-6)


def test_few_features_take_pure_noise_under_a_delta_and_many_take_gaussian():
    few, many = (es.Problem(es.Squared(), es.Ball(1), ridge=0.1, n=100, d=d) for d in (1, 50))
    assert es.plan(few, es.Approximate(1.0, 1e-6), "statistics").mechanism == "wishart"
    assert es.plan(many, es.Approximate(1.0, 1e-6), "statistics").mechanism == "gaussian"


def test_what_it_does_not_cover_is_refused():
    with pytest.raises(ValueError, match="those of Squared"):
        es.plan(es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=10, d=2), es.Pure(1.0), "statistics")
    with pytest.raises(ValueError, match="clip is for gradients"):
        es.plan(problem_of(clip=1.0), es.Pure(1.0), "statistics")
    with pytest.raises(ValueError, match="does not cover Gaussian noise"):
        es.plan(problem_of(), es.Pure(1.0), "statistics", mechanism="gaussian")
    plan = es.plan(problem_of("l2"), es.Pure(1.0), "statistics")
    with pytest.raises(ValueError, match="0 in a ball"):
        replace(plan, centre=(1, 0, 0, 0, 0))
    with pytest.raises(ValueError, match="weights must"):
        replace(plan, weights=(0, *plan.weights[1:]))


def test_a_run_publishes_the_model_and_its_moments_and_charges_first(tmp_path):
    rng = np.random.default_rng(7)
    problem = es.Problem(es.Squared(2.5), es.Box(0, 1, one_hot=[(3, 5)]), ridge=0.01, n=3000, d=5)
    rows = es.Rows(problem, *regression(rng, 3000))
    plan = es.plan(problem, es.Pure(2.0), "statistics")
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Pure(3.0))
    found = es.run(plan, rows, ledger=ledger.account("people"), anyway=True)
    assert found.path.shape == (1, 5)
    assert found.extras["moments"].shape == (7, 7)
    assert not found.seeded
    assert ledger.remaining("people") == pytest.approx(1.0)
    assert np.array_equal(es.run(plan, rows, seed=1).x, es.run(plan, rows, seed=1).x)
    assert es.run(plan, rows, seed=1, repetitions=3).path.shape == (1, 5, 3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "budget", [es.Pure(1e-7), es.Pure(800.0), es.Concentrated(1e-16), es.Approximate(0.5, 1e-6)], ids=str
)
@pytest.mark.parametrize(("d", "n", "ridge"), [(1, 2, 0.0), (5, 2, 1e-12), (5, 10**9, 0.1), (60, 2, 1e6)])
def test_whatever_is_released_the_model_is_finite_and_no_longer_than_the_ridge_allows(budget, d, n, ridge):
    """Symmetric matrices of every size and rank in place of the noisy sums: no exception and no warning."""
    domain = es.Box(np.full(d, -1e-6), np.geomspace(1e-6, 1e6, d), one_hot=[])
    problem = es.Problem(es.Squared(1e3), domain, ridge=ridge, n=n, d=d, intercept=d == 5)
    plan = es.plan(problem, budget, "statistics")
    rng = np.random.default_rng(d)
    for size in (0.0, 1e-30, 1.0, 1e12, 1e60):
        k = plan.vectors.size
        entries = size * rng.choice([-1.0, 0.0, 1.0], (k, k)) * 10.0 ** rng.uniform(-6, 0, (k, k))
        for noisy in (np.tril(entries) + np.tril(entries, -1).T, size * np.ones((k, k)), -size * np.eye(k)):
            x = solved(plan, noisy)
            assert np.all(np.isfinite(x))
            assert np.all(np.isfinite(uncentred(plan, noisy)))
            assert np.linalg.norm(x) <= plan.radius * (1 + 1e-9)


@pytest.mark.filterwarnings("error")
def test_a_floor_far_below_the_sums_leaves_a_model():
    """Sums of one direction alone have no inverse in floats: the solver must not need one."""
    problem = es.Problem(es.Squared(1.0), es.Box(0, 1), ridge=0.0, n=1000, d=3)
    plan = replace(es.plan(problem, es.Pure(1e6), "statistics"), floor=1e-300)
    x = solved(plan, 1e5 * np.ones((5, 5)))
    assert np.all(np.isfinite(x))


def test_a_budget_whose_noise_cannot_be_drawn_is_refused_with_the_plan():
    for budget in (es.Pure(1e-12), es.Concentrated(1e-30)):
        with pytest.raises(ValueError, match="too small: its noise does not fit the released integers"):
            es.plan(problem_of(), budget, "statistics")


def test_units_whose_squares_are_no_numbers_are_refused_with_the_plan():
    problem = es.Problem(es.Squared(1.0), es.Box(0, 1e-30), ridge=0.1, n=100, d=2)
    with pytest.raises(ValueError, match="Declare them in other units"):
        es.plan(problem, es.Pure(1.0), "statistics")
