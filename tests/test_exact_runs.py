"""Private runs: integers with integer noise, of the planned law, and the same run whatever the engine."""

import numpy as np
import pytest
from conftest import gamma_of, noise_of, records, small_problem
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import epsteps as es
from epsteps.problem.grid import Grid
from epsteps.problem.shapes import L1, L2

# Every statistical test accepts at p > 1e-4. Seeds are fixed.
LEVEL = 1e-4
SQUARED = es.Problem(es.Squared(), es.Ball(2.0), ridge=0.3, n=300, d=3, intercept=True)


@pytest.mark.parametrize("problem", [small_problem(n=300), SQUARED], ids=["logistic", "squared"])
@pytest.mark.parametrize(
    ("budget", "mechanism", "law"),
    [(es.Pure(1.0), "laplace", stats.laplace), (es.Concentrated(0.1), "gaussian", stats.norm)],
)
def test_noise_follows_the_planned_law_and_no_other(problem, budget, mechanism, law):
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, budget, es.gd, iterations=60, mechanism=mechanism)
    sample = noise_of(es.run(plan, rows, seed=1, repetitions=25, arithmetic="exact"), rows)
    accepted = [stats.kstest(sample, law(scale=scale).cdf).pvalue > LEVEL for scale in (1, 2 / 3, 3 / 2)]
    assert accepted == [True, False, False]


# Columns in units of their own, one of either sign; and a category.
BOX = es.Problem(es.Logistic(), es.Box((0, 0, -1, 0), (1, 3, 2, 1)), ridge=0.3, n=300, d=4)
CATEGORY = es.Problem(es.Logistic(), es.Box(0, 2, one_hot=[(1, 4)]), ridge=0.3, n=300, d=4, intercept=True)


@pytest.mark.parametrize("problem", [small_problem(n=300), BOX, CATEGORY], ids=["cube", "box", "category"])
@pytest.mark.parametrize("mechanism", ["l2", "linf", "hull", "blocks", "ellipsoid"])
def test_the_norm_of_noise_of_a_norm_is_gamma_distributed_and_no_other(problem, mechanism):
    """Whatever the body, the gauge of noise ~ exp(-gauge) is Gamma(d); that of a Gaussian is chi(d)."""
    rows = es.Rows(problem, *records(problem))
    budget = es.Concentrated(0.1) if mechanism == "ellipsoid" else es.Pure(1.0)
    plan = es.plan(problem, budget, es.gd, iterations=20, mechanism=mechanism)
    sample = gamma_of(es.run(plan, rows, seed=1, repetitions=15, arithmetic="exact"), rows)
    law = stats.chi if mechanism == "ellipsoid" else stats.gamma
    accepted = [
        stats.kstest(sample, law(problem.dimension, scale=scale).cdf).pvalue > LEVEL for scale in (1, 2 / 3, 3 / 2)
    ]
    assert accepted == [True, False, False]


@pytest.mark.parametrize("batch", [None, 50])
@pytest.mark.parametrize("mechanism", ["laplace", "hull"])
def test_a_private_run_publishes_whole_numbers_of_grid_steps(batch, mechanism):
    """What leaves a step is an integer: nothing of a record hides in low bits."""
    problem = small_problem(n=300)
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), es.gd, iterations=1, batch=batch, mechanism=mechanism)
    release = Grid(problem).release(plan.scales[0] * plan.batch, 1.0, plan.mechanism.shape(problem))
    path = es.run(plan, rows, repetitions=50, anyway=True).path
    integers = (path[0] - path[1]) / plan.steps.alpha[0] / (release.step / plan.batch)
    assert np.all(release.shift > 0)
    np.testing.assert_allclose(integers, np.rint(integers), atol=1e-3)
    assert len(np.unique(np.rint(integers))) > 100


def test_exact_and_float_runs_differ_by_their_noise_alone():
    problem = small_problem(n=2000)
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1e13), es.nesterov, iterations=100)
    paths = [es.run(plan, rows, seed=1, arithmetic=kind).path for kind in ("exact", "float")]
    np.testing.assert_allclose(*paths, atol=1e-5)


@pytest.mark.parametrize("loss", [es.Logistic(), es.Squared()])
@pytest.mark.parametrize("batch", [None, 40])
def test_a_private_run_is_the_same_in_every_engine(loss, batch):
    pytest.importorskip("numba", reason="the fast engine needs numba")
    problem = es.Problem(loss, es.Ball(1, norm=2), ridge=0.1, n=500, d=7, intercept=True)
    X, y = records(problem)
    plan = es.plan(problem, es.Pure(1.0), es.multistage, iterations=40, batch=batch)
    paths = [
        es.run(plan, es.Rows(problem, X, y, engine=name), seed=1, repetitions=3, arithmetic="exact").path
        for name in ("numpy", "fast")
    ]
    np.testing.assert_array_equal(*paths)


def test_floats_are_refused_without_a_seed():
    problem = small_problem()
    plan, rows = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=2), es.Rows(problem, *records(problem))
    with pytest.raises(ValueError, match="arithmetic='float' is not private, and takes a seed"):
        es.run(plan, rows, arithmetic="float", anyway=True)
    with pytest.raises(ValueError, match="arithmetic must be one of 'auto', 'exact', 'float', got 'fixed'"):
        es.run(plan, rows, arithmetic="fixed", anyway=True)


@given(
    epsilon=st.sampled_from([1e-6, 1e-2, 1.0, 100.0]),
    norm=st.sampled_from([1, 2]),
    domain=st.sampled_from([es.Ball(0.3, norm=np.inf), es.Ball(7.0, norm=2), es.Ball(1, norm=1)]),
    d=st.integers(1, 50),
    bound=st.sampled_from([0.5, 1.0, 1e3]),
    seed=st.integers(0, 10**6),
)
def test_rounding_a_sum_costs_no_privacy(epsilon, norm, domain, d, bound, seed):
    """Any two neighbouring sums, rounded: their distance over the scales is at most what was planned."""
    rng = np.random.default_rng(seed)
    problem = es.Problem(es.Logistic(), domain, ridge=0.1, n=100, d=d, intercept=True)
    grid, sensitivity = Grid(problem), 2 * bound * problem.record_size(norm)
    release = grid.release(sensitivity / epsilon, bound, {1: L1, 2: L2}[norm](d + 1))
    ends = [_end(problem, rng) * 2**20 for _ in range(2)]
    first = rng.integers(-(2**60), 2**60, (problem.dimension, 1))
    second = first - ends[0] + ends[1]
    moved = (release.rounded(first) - release.rounded(second)).astype(float)
    assert np.linalg.norm(moved / release.scale, ord=norm) <= epsilon
    assert np.all(release.scale * release.step <= sensitivity / epsilon * (1 + 1e-2 / epsilon + 1e-5))


def _end(problem, rng):
    """Return an integer record as far out as the domain goes, its sign at random."""
    d, norm = problem.d, problem.domain.norm
    ones = rng.choice([-1, 1], d)
    if norm == np.inf:
        u = ones * 2**20
    elif norm == 2:
        u = (ones * 2**20 / np.sqrt(d)).astype(np.int64)
    else:
        u = ones * (2**20 // d)
    return (np.append(u, 2**20) * rng.choice([-1, 1]))[:, None]


@given(epsilon=st.floats(1e-6, 10), d=st.integers(1, 100))
def test_rounding_costs_little_accuracy_on_a_cube(epsilon, d):
    problem = small_problem(d=d)
    release = Grid(problem).release(problem.sensitivity(1) / epsilon, 1.0, L1(problem.dimension))
    grown = np.max(release.scale * release.step) / (problem.sensitivity(1) / epsilon) - 1
    assert 0 <= grown <= d / (2**35 * epsilon) + 1e-11


def test_tiny_budgets_run():
    problem = small_problem()
    plan = es.plan(problem, es.Pure(1e-9), es.nesterov, iterations=30)
    assert np.all(np.isfinite(es.run(plan, es.Rows(problem, *records(problem)), anyway=True).path))
