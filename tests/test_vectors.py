"""Numbers computed independently of this library: privacy, noise power, coefficients, splits, best horizons."""

import numpy as np
import pytest

import epsteps as es
from epsteps.problem.sampling import Sampling


def close(value, rel=1e-9):
    return pytest.approx(value, rel=rel, abs=0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((40, 0.0575, 100_000, 1000), 0.009999995629),
        ((40, 0.04, 100_000, 100_000), 0.01),
        ((1, 0.001, 1000, 10), 95.39482981),
        ((2, 0.5, 7, 3), 0.7872230719),
        ((40, 1e-5, 100_000, 1000), 3995.39483),
    ],
)
def test_epsilon_of_a_step(arguments, expected):
    assert es.budgets.epsilon_of(*arguments) == close(expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0.01, 100_000, 1000), 0.6956523941),
        ((0.01, 100_000, 100_000), 0.01),
        ((1, 1000, 10), 5.152297938),
        ((5, 1000, 10), 9.598477271),
        ((1e-8, 100_000, 1000), 9.99999505e-07),
        ((800, 1000, 10), 804.6051702),
    ],
)
def test_base_epsilon(arguments, expected):
    assert es.budgets.base_epsilon(*arguments) == close(expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((40, 0.01, 100_000, 1000), 0.0574999818),
        ((40, 0.01, 100_000, 100_000), 0.04),
        ((1, 0.5, 1000, 10), 0.02387936872),
    ],
)
def test_required_scale(arguments, expected):
    assert es.budgets.required_scale(*arguments) == close(expected)


@pytest.mark.parametrize(
    ("n", "m", "T", "expected"),
    [(10**5, 10**5, 100, 1.414213562), (10**5, 10**3, 100, 1.660736363), (10**5, 10**3, 1000, 1.442647258)],
)
def test_epsilon_that_the_authors_code_really_spends(n, m, T, expected):
    scale = es.budgets.required_scale(40, 1 / T, n, m) / np.sqrt(2)
    assert T * es.budgets.epsilon_of(40, scale, n, m) == close(expected)


@pytest.mark.parametrize(
    ("sensitivity", "n", "m", "expected"),
    [(40, 100_000, 1000, 0.39600396), (40, 100_000, 100_000, 0.0), (1, 10, 3, 0.06481481481)],
)
def test_sampling_variance(sensitivity, n, m, expected):
    assert Sampling(n, m).variance(sensitivity / 2) == close(expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((40, 1, 100, 100_000, 1000, 20), 0.5282538763),
        ((40, 1, 100, 100_000, 100_000, 20), 0.064),
        ((1, 0.5, 7, 1000, 10, 3), 0.03801551326),
    ],
)
def test_noise_trace(arguments, expected):
    assert es.bounds.noise_trace(*arguments) == close(expected)


@pytest.mark.parametrize(("size", "expected"), [(0, 20), (0.05, 29.24234315), (0.5, 39.99818409)])
def test_state_dependent_sensitivity(size, expected):
    problem = es.Problem(es.Logistic(), es.Ball(20, norm=1), ridge=0.02, n=10, d=4)
    assert problem.sensitivity_at(size * np.array([0.1, -1, 0.5, 0]), norm=1) == close(expected)


def test_nesterov_coefficients():
    steps = es.nesterov(1, 20, 5)
    bound = es.bounds.nesterov(steps, 1, 20)
    assert steps.beta[0] == close(0.6345120047)
    assert bound.decay == close(0.2821035954)
    assert bound.weights == close([0.03633514495, 0.04679992669, 0.06027864045, 0.07763932023, 0.1])


def test_gd_coefficients():
    bound = es.bounds.gd(es.gd(1, 20, 5), 1, 20)
    assert bound.decay == close(0.7737809375)
    assert bound.weights == close([0.0407253125, 0.04286875, 0.045125, 0.0475, 0.05])


def test_multistage_coefficients():
    steps = es.multistage(1, 20, 300)
    assert np.flatnonzero(steps.restart).tolist() == [14, 54, 134, 294]
    first = np.array([1, 15, 55, 135, 295]) - 1
    assert steps.alpha[first] == close([0.05, 0.003125, 0.00078125, 0.0001953125, 4.8828125e-05])
    assert steps.beta[first] == close([0.6345120047, 0.8941157127, 0.9456183149, 0.9724343914, 0.9861215537])
    bound = es.bounds.multistage(steps, 1, 20)
    assert bound.decay == close(0.0004839235535)
    assert bound.weights[np.array([1, 14, 15, 54, 55, 134, 135, 294, 295, 300]) - 1] == close(
        [
            6.232969996e-05,
            0.001673526606,
            2.942824547e-05,
            0.0002773913734,
            3.409723657e-05,
            0.0003201469809,
            4.011727817e-05,
            0.0003759940113,
            4.71918572e-05,
            4.887580872e-05,
        ]
    )
    assert np.cbrt(bound.weights).sum() == close(15.07375541)


def test_multistage_coefficients_of_a_worse_conditioned_problem():
    steps = es.multistage(0.02, 5, 500)
    assert np.flatnonzero(steps.restart).tolist() == [88, 88 + 4 * 33, 88 + 12 * 33]
    bound = es.bounds.multistage(steps, 0.02, 5)
    assert bound.decay == close(0.0003588859513)
    assert np.cbrt(bound.weights).sum() == close(67.45252404)


def test_full_batch_split():
    weights = es.bounds.nesterov(es.nesterov(1, 20, 5), 1, 20).weights
    costs = es.Pure(1.0).split(weights)
    assert costs == close([0.1677508769, 0.1825173793, 0.1985837235, 0.2160643298, 0.2350836906])
    scales = np.array([es.budgets.required_scale(40, cost, 100_000, 100_000) for cost in costs])
    assert scales == close([0.002384488281, 0.002191572121, 0.002014263772, 0.001851300492, 0.001701521697])
    assert np.sum(weights * scales**2) == close(1.231551231e-06)


def square_problem(mu, L, d, sensitivity, n):
    """A problem with these constants: the plan needs nothing else."""
    radius = sensitivity / 2
    return es.Problem(es.Logistic(), es.Ball(radius, norm=1), ridge=mu, n=n, d=d, smoothness=L)


@pytest.mark.parametrize(
    ("facts", "method", "allocation", "T", "error", "longest"),
    [
        ((0.02, 5, 20, 40, 100_000), es.nesterov, "optimal", 120, 0.1097670803, 1000),
        ((0.02, 5, 20, 40, 100_000), es.nesterov, "uniform", 90, 0.2193662269, 1000),
        ((1, 20, 3, 1, 1000), es.nesterov, "optimal", 54, 0.0005546314047, 1000),
        ((1, 20, 3, 1, 1000), es.nesterov, "uniform", 37, 0.002265091219, 1000),
        ((1, 20, 3, 1, 1000), es.multistage, "optimal", 294, 0.006390873667, 699),
    ],
)
def test_best_horizon(facts, method, allocation, T, error, longest):
    start_gap = 10.0 if facts[0] == 0.02 else 2.5
    plan = es.plan(
        square_problem(*facts),
        es.Pure(1.0),
        method,
        allocation=allocation,
        max_iterations=longest,
        start_gap=start_gap,
    )
    assert plan.iterations == T
    assert plan.error == close(error)


@pytest.mark.parametrize(
    ("facts", "method", "T", "start_gap", "error"),
    [
        ((0.02, 5, 20, 40, 100_000), es.nesterov, 50, 10.0, 0.8000201023),
        ((1, 20, 3, 1, 1000), es.nesterov, 50, 2.5, 0.0005578052528),
        ((1, 20, 3, 1, 1000), es.multistage, 100, 2.5, 0.01776687521),
    ],
)
def test_error_at_a_given_horizon(facts, method, T, start_gap, error):
    plan = es.plan(square_problem(*facts), es.Pure(1.0), method, iterations=T, start_gap=start_gap)
    assert plan.error == close(error)


@pytest.mark.parametrize(
    ("facts", "V0", "horizon", "best", "floor"),
    [
        ((0.02, 5, 20, 40, 100_000), 20, 119.5047045, 0.1097640577, 0.1280311011),
        ((1, 20, 3, 1, 1000), 5, 53.97144743, 0.0005546313022, 0.0005665014224),
    ],
)
def test_closed_form_of_nesterovs_best_horizon(facts, V0, horizon, best, floor):
    """bound(T) = y³ V0 + (1 - y)³ K with y = q^(T/3): a second way to the plan's choice."""
    mu, L, d, sensitivity, n = facts
    q, alpha = 1 - np.sqrt(mu / L), 1 / L
    K = d * (sensitivity / n) ** 2 * alpha * (1 + alpha * L) / (1 - np.cbrt(q)) ** 3
    y = np.sqrt(K) / (np.sqrt(K) + np.sqrt(V0))
    assert 3 * np.log(y) / np.log(q) == close(horizon)
    assert V0 * K / (np.sqrt(V0) + np.sqrt(K)) ** 2 == close(best)
    assert close(floor) == K
    plan = es.plan(square_problem(*facts), es.Pure(1.0), es.nesterov, start_gap=V0 / 2)
    assert abs(plan.iterations - horizon) < 1
    assert best <= plan.error < best * 1.0001


@pytest.mark.parametrize(
    ("n", "m", "epsilon", "costs", "scales", "noise", "noise_of_cube_roots"),
    [
        (
            1000,
            10,
            0.5,
            [0.07700353084, 0.08691158276, 0.09828290794, 0.1113621736, 0.1264398049],
            [0.04550140498, 0.04327963475, 0.04119918949, 0.03924833358, 0.03741621384],
            0.0005248004003,
            0.0005261018541,
        ),
        (
            1000,
            10,
            5,
            [0.6956471569, 0.8188702752, 0.9678315592, 1.148680935, 1.368970074],
            [0.02164471752, 0.02061678555, 0.01960313253, 0.01859723886, 0.01759317693],
            0.0001178833429,
            0.000118651859,
        ),
        (
            100_000,
            1000,
            1,
            [0.150110264, 0.1712900554, 0.1959045657, 0.2245877752, 0.2581073397],
            [0.0003515320895, 0.0003355951944, 0.0003205368597, 0.0003062767522, 0.0002927389367],
            3.180677097e-08,
            3.190953182e-08,
        ),
    ],
)
def test_subsampled_split(n, m, epsilon, costs, scales, noise, noise_of_cube_roots):
    weights = es.bounds.nesterov(es.nesterov(1, 20, 5), 1, 20).weights
    split = es.Pure(epsilon).split(weights, n, m)
    assert split == close(costs)
    found = np.array([es.budgets.required_scale(1, cost, n, m) for cost in split])
    assert found == close(scales)
    assert np.sum(weights * found**2) == close(noise)
    simple = np.array([es.budgets.required_scale(1, cost, n, m) for cost in es.Pure(epsilon).split(weights)])
    assert np.sum(weights * simple**2) == close(noise_of_cube_roots)
