"""Laws of budgets: what is split adds up, nothing beats the optimal split, amplification inverts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import epsteps as es
from epsteps.budgets.mechanisms import KNorm
from epsteps.problem.sampling import Sampling

weights = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40).map(np.array)
epsilons = st.floats(1e-4, 50)


@st.composite
def sizes(draw):
    n = draw(st.integers(2, 10**7))
    return n, draw(st.integers(1, n))


def noise(costs, a, n, m):
    """Return sum a_t b_t² for unit sensitivity."""
    return np.sum(a * np.array([es.budgets.required_scale(1, cost, n, m) for cost in costs]) ** 2)


@given(weights, epsilons, sizes())
def test_costs_of_the_split_add_up_to_the_budget(a, epsilon, nm):
    costs = es.Pure(epsilon).split(a, *nm)
    scales = [es.budgets.required_scale(3.0, cost, *nm) for cost in costs]
    spent = sum(es.budgets.epsilon_of(3.0, scale, *nm) for scale in scales)
    assert spent == pytest.approx(epsilon, rel=1e-10)


@given(weights, epsilons, sizes(), st.floats(1e-8, 1e8))
def test_split_is_scale_free(a, epsilon, nm, factor):
    np.testing.assert_allclose(es.Pure(epsilon).split(a * factor, *nm), es.Pure(epsilon).split(a, *nm), rtol=1e-8)


@given(weights, epsilons, sizes(), st.integers(0, 10**6))
def test_optimal_split_beats_other_feasible_ones(a, epsilon, nm, seed):
    best = noise(es.Pure(epsilon).split(a, *nm), a, *nm)
    for spread in (1e-3, 0.1, 1.0):
        other = es.Pure(epsilon).split(a, *nm) * np.exp(np.random.default_rng(seed).normal(0, spread, len(a)))
        assert best <= noise(other * epsilon / other.sum(), a, *nm) * (1 + 1e-9)


@given(weights, epsilons, sizes())
def test_the_split_is_stationary(a, epsilon, nm):
    """Moving a little epsilon between any two steps changes the noise to first order by the same amount."""
    costs = es.Pure(epsilon).split(a, *nm)
    q, u = nm[1] / nm[0], Sampling(*nm).base_epsilon(costs)
    slopes = a / u**3 * np.exp(costs) / (q + np.expm1(costs))  # a/u² differentiated by epsilon, over -2
    np.testing.assert_allclose(slopes / slopes.mean(), 1.0, rtol=1e-8)


def test_optimal_split_matters():
    """The law above would hold for any split if noise did not depend on it: here an even one is 30 % worse."""
    a = 0.8 ** np.arange(20)[::-1]
    n, m = 10_000, 100
    even = noise(np.full(20, 1 / 20), a, n, m)
    assert even > 1.3 * noise(es.Pure(1.0).split(a, n, m), a, n, m)


@given(st.floats(1e-9, 700), sizes())
def test_amplification_inverts(epsilon, nm):
    sampling = Sampling(*nm)
    base = sampling.base_epsilon(epsilon)
    assert base >= epsilon * (1 - 1e-12)
    assert float(sampling.amplified_epsilon(base)) == pytest.approx(epsilon, rel=1e-9)


@given(st.integers(2, 6), st.data())
def test_amplification_bounds_the_privacy_loss_by_brute_force(n, data):
    """Laplace noise on the mean of a random subset of 0/1 records, all subsets enumerated."""
    from itertools import combinations

    m = data.draw(st.integers(1, n))
    scale = data.draw(st.floats(0.05, 5))
    first = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n)))
    second = first.copy()
    second[0] = 1 - second[0]
    outputs = np.linspace(-3, 4, 41)

    def density(records):
        means = [records[list(subset)].mean() for subset in combinations(range(n), m)]
        return np.mean([np.exp(-np.abs(outputs - mean) / scale) for mean in means], axis=0)

    loss = np.abs(np.log(density(first) / density(second))).max()
    assert loss <= es.budgets.epsilon_of(1.0, scale, n, m) * (1 + 1e-9)


def test_amplification_is_tight():
    """All records are 0, or one is 1: far out on the right the densities' ratio is the formula's, over all subsets."""
    from itertools import combinations

    n, m, scale = 5, 2, 0.3
    first, second = np.zeros(n), np.eye(n)[0]

    def density(records):
        means = [records[list(subset)].mean() for subset in combinations(range(n), m)]
        return np.mean([np.exp(-abs(10.0 - mean) / scale) for mean in means])

    loss = np.log(density(second) / density(first))
    assert es.budgets.epsilon_of(1.0, scale, n, m) == pytest.approx(loss, rel=1e-12)


@given(weights, epsilons, sizes())
def test_noise_by_horizon_is_the_noise_of_each_split(a, epsilon, nm):
    """All horizons at once against one split at a time."""
    steps = es.nesterov(0.1, 1.0, len(a))
    bound = es.bounds.nesterov(steps, 0.1, 1.0)
    laplace, sampling = KNorm("laplace"), Sampling(*nm)
    for allocation in ("optimal", "uniform"):
        found = laplace.noise_by_horizon(bound, epsilon, allocation, sampling)
        for T in {1, len(a) // 2 + 1, len(a)}:
            w = bound.first(T).weights
            costs = es.Pure(epsilon).split(w, *nm) if allocation == "optimal" else np.full(T, epsilon / T)
            assert found[T - 1] == pytest.approx(noise(costs, w, *nm), rel=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: es.Pure(0), "epsilon must be positive, got 0."),
        (lambda: es.Pure(-1.0), r"epsilon must be positive, got -1\.0\."),
        (lambda: es.Pure(float("inf")), "epsilon must be finite, got inf"),
        (lambda: es.Pure(float("nan")), "epsilon must be finite, got nan"),
        (lambda: es.Pure(1.0).split([]), "one entry per step"),
        (lambda: es.Pure(1.0).split([1.0, -1.0]), "not negative"),
        (lambda: es.Pure(1.0).split([1.0], n=10), "n and m go together"),
        (lambda: es.Pure(1.0).split([1.0], n=10, m=11), "m must be between 1 and 10, got 11"),
        (lambda: es.Pure(1.0).split([1.0], n=10, m=0), "m must be between 1 and 10, got 0"),
        (lambda: es.budgets.epsilon_of(1.0, 0.0, 10, 10), r"scale must be positive, got 0\.0"),
    ],
)
def test_bad_budgets_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_budget_must_be_a_number():
    with pytest.raises(TypeError, match="epsilon must be a number, got '1'"):
        es.Pure("1")  # type: ignore[arg-type]
