"""Quadratics: the exact error against covariance propagation, rates against eigenvalues, the paper's slips."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov

import epsteps as es
from epsteps.bounds.quadratics import exact_by_horizon, exact_quadratic, heavy_ball_quadratic, rate, stationary_variance
from epsteps.bounds.steps import Steps, nesterov_momentum

EXACT = {"rtol": 1e-9, "atol": 0}


def constant(alpha: float, beta: float, gamma: float, T: int) -> Steps:
    return Steps(np.full(T, alpha), np.full(T, beta), np.full(T, gamma), np.zeros(T, dtype=bool))


def step_matrix(lam: float, alpha: float, beta: float, gamma: float, restart: bool = False) -> np.ndarray:
    """(x, x_previous) -> (x+, x), read off the update x+ = x + beta v - alpha lam (x + gamma v)."""

    def update(x: float, previous: float) -> float:
        drift = 0.0 if restart else x - previous
        return x + beta * drift - alpha * lam * (x + gamma * drift)

    return np.array([[update(1, 0), update(0, 1)], [1, 0]])


def propagated_error(steps: Steps, spectrum: np.ndarray, start: np.ndarray, variances: np.ndarray) -> float:
    """E F(x_T) - F* by carrying mean and covariance of (x, x_previous) forward, one eigenvalue at a time."""
    total = 0.0
    for lam, x in zip(spectrum, start, strict=True):
        mean, covariance = np.array([x, x]), np.zeros((2, 2))
        for (alpha, beta, gamma, restart), variance in zip(steps, variances, strict=True):
            A = step_matrix(lam, alpha, beta, gamma, restart)
            mean, covariance = A @ mean, A @ covariance @ A.T + np.diag([alpha**2 * variance, 0])
        total += lam / 2 * (mean[0] ** 2 + covariance[0, 0])
    return total


def number(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_subnormal=False)


@st.composite
def schedules(draw) -> Steps:
    T = draw(st.integers(1, 7))

    def values(low, high):
        return draw(st.lists(number(low, high), min_size=T, max_size=T))

    restart = draw(st.lists(st.booleans(), min_size=T, max_size=T))
    return Steps(values(0.01, 1.5), values(0, 0.95), values(-0.5, 1), restart)


spectra = st.lists(number(0.0, 1.0), min_size=1, max_size=4)


# Test vectors I of the specification: lam = (.1, .4, 1), x0 - x* = (1, -2, .5), Laplace scales b.
SPECTRUM, START = np.array([0.1, 0.4, 1.0]), np.array([1.0, -2.0, 0.5])
SCALES = np.array([0.3, 0.25, 0.2, 0.15, 0.1, 0.05])
STAGES = np.array([1, 1, 1 / 16, 1 / 16, 1 / 16, 1 / 16])
STAGE_BETA = nesterov_momentum(STAGES, 0.1)
VECTORS = {
    "gd": (
        constant(0.8, 0, 0, 6),
        [0.6063550013, 0.09886748262, 6.4e-05],
        [0.03321256903, 0.04455102522, 0.06415775564, 0.101609472, 0.198144, 0.96],
        (0.02620314319, 0.01500753363, 3.112381073),
    ),
    "heavy_ball": (
        constant(0.8, 0.3, 0, 6),
        [0.4951109501, -0.01782097818, 0.025],
        [0.04713704771, 0.0686661544, 0.1267171099, 0.2036356608, 0.50112, 0.96],
        (0.01258893746, 0.02559565571, 3.642109553),
    ),
    "nesterov": (
        constant(0.8, 0.3, 0.3, 6),
        [0.5063497865, 0.02331779093, 0.00019547392],
        [0.04619073971, 0.06406009658, 0.09865874239, 0.1706928402, 0.33486336, 0.96],
        (0.01325448559, 0.02169649481, 3.456621572),
    ),
    "multistage": (
        Steps(STAGES, STAGE_BETA, STAGE_BETA, [False, False, True, False, False, False]),
        [0.7226474024, 0.1874641938, 0],
        [0.3786472748, 0.6308747144, 0.04065177586, 0.03102076893, 0.01822226411, 0.005859375],
        (0.05422522258, 0.07602883379, 2.682594157),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_exact_quadratic_reproduces_the_test_vectors(name):
    steps, transfer, weights, (transient, noise, root_sum) = VECTORS[name]
    g, A = exact_quadratic(steps, SPECTRUM)
    np.testing.assert_allclose(g, transfer, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(A, weights, **EXACT)
    np.testing.assert_allclose(np.sum(SPECTRUM / 2 * g**2 * START**2), transient, **EXACT)
    np.testing.assert_allclose(np.sum(A * SCALES**2), noise, **EXACT)
    np.testing.assert_allclose(np.sum(np.cbrt(A)), root_sum, **EXACT)


@given(schedules(), st.data())
def test_exact_quadratic_is_the_propagated_error(steps, data):
    spectrum = np.array(data.draw(spectra))
    start = np.array(data.draw(st.lists(number(-2, 2), min_size=len(spectrum), max_size=len(spectrum))))
    variances = np.array(data.draw(st.lists(number(0, 3), min_size=len(steps), max_size=len(steps))))
    g, A = exact_quadratic(steps, spectrum)
    error = np.sum(spectrum * g**2 * start**2) / 2 + np.sum(A * variances) / 2
    assert error == pytest.approx(propagated_error(steps, spectrum, start, variances), rel=1e-9, abs=1e-12)


@given(schedules(), spectra)
def test_exact_by_horizon_rows_are_the_prefixes(steps, spectrum):
    transfers, weights = exact_by_horizon(steps, spectrum)
    assert transfers.shape == (len(steps), len(spectrum))
    for T in range(1, len(steps) + 1):
        prefix = Steps(steps.alpha[:T], steps.beta[:T], steps.gamma[:T], steps.restart[:T])
        g, A = exact_quadratic(prefix, spectrum)
        np.testing.assert_allclose(transfers[T - 1], g, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(weights[T - 1, :T], A, rtol=1e-9, atol=1e-12)
        assert not np.any(weights[T - 1, T:])


def test_exact_by_horizon_of_a_long_multistage_run():
    steps, spectrum = es.multistage(0.01, 1, 400), np.geomspace(0.01, 1, 40)
    transfers, weights = exact_by_horizon(steps, spectrum)
    g, A = exact_quadratic(steps, spectrum)
    np.testing.assert_allclose(transfers[-1], g, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(weights[-1], A, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("mu", "L", "alpha", "beta", "heavy_ball", "nesterov"),
    [
        (0.1, 1, 1, 0.5194938532959156, 0.7207592201, 0.683772234),
        (0.1, 1, 0.5, 0.3, 0.9260398645, 0.927832483),
        (0.5, 1, 1, 0, 0.5, 0.5),
        (1, 25, 1 / 9, 4 / 9, 0.6666666667, 2.845569215),
    ],
)
def test_rate_reproduces_the_test_vectors(mu, L, alpha, beta, heavy_ball, nesterov):
    assert rate(es.heavy_ball, mu, L, alpha, beta) == pytest.approx(heavy_ball, rel=1e-9)
    assert rate("nesterov", mu, L, alpha, beta) == pytest.approx(nesterov, rel=1e-9)


@pytest.mark.parametrize("method", [es.gd, es.heavy_ball, es.nesterov])
@given(number(0.0, 1.0), number(0.01, 4), number(0, 0.99))
def test_rate_is_the_largest_eigenvalue_over_the_spectrum(method, mu, alpha, beta):
    beta = 0.0 if method is es.gd else beta
    gamma = beta if method is es.nesterov else 0.0
    grid = np.linspace(mu, 1, 30)
    radii = [max(abs(np.linalg.eigvals(step_matrix(lam, alpha, beta, gamma)))) for lam in grid]
    # near a double root eigenvalues are known to √eps only
    assert rate(method, mu, 1.0, alpha, beta) == pytest.approx(max(radii), abs=1e-6)


@pytest.mark.parametrize(
    ("lam", "alpha", "beta", "variance", "heavy_ball", "nesterov"),
    [
        (0.1, 1, 0.5, 1, 10.34482759, 9.415584416),
        (1, 1, 0.5, 1, 1.5, 1),
        (0.3, 0.7, 0.4, 0.02, 0.04204204204, 0.03707084023),
    ],
)
def test_stationary_variance_reproduces_the_test_vectors(lam, alpha, beta, variance, heavy_ball, nesterov):
    assert stationary_variance(es.heavy_ball, lam, alpha, beta, variance) == pytest.approx(heavy_ball, rel=1e-9)
    assert stationary_variance(es.nesterov, lam, alpha, beta, variance) == pytest.approx(nesterov, rel=1e-9)


def test_stationary_suboptimality_of_the_test_vector():
    lam = np.array([0.1, 1.0])
    variances = stationary_variance("heavy_ball", lam, 1, 0.5, 0.01)
    assert np.sum(lam * variances) / 2 == pytest.approx(0.01267241379, rel=1e-9)
    assert np.sum(variances) > 9 * np.sum(lam * variances) / 2  # the paper's L·m


@pytest.mark.parametrize("method", [es.gd, es.heavy_ball, es.nesterov])
@given(number(0.05, 1), number(0.05, 1.2), number(0, 0.9), number(0.1, 3))
def test_stationary_variance_solves_the_lyapunov_equation(method, lam, alpha, beta, variance):
    beta = 0.0 if method is es.gd else beta
    A = step_matrix(lam, alpha, beta, beta if method is es.nesterov else 0.0)
    expected = solve_discrete_lyapunov(A, np.diag([alpha**2 * variance, 0]))[0, 0]
    assert stationary_variance(method, lam, alpha, beta, variance) == pytest.approx(expected, rel=1e-8)


@given(
    st.lists(number(0.02, 1), min_size=1, max_size=3), number(0.1, 1.9), number(0, 0.9), st.integers(1, 60), st.data()
)
def test_the_corrected_heavy_ball_theorem_is_an_upper_bound(spectrum, alpha, beta, T, data):
    spectrum = np.array(spectrum)
    start = np.array(data.draw(st.lists(number(-2, 2), min_size=len(spectrum), max_size=len(spectrum))))
    variance = data.draw(number(0, 1))
    g, A = exact_quadratic(constant(alpha, beta, 0, T), spectrum)
    exact = np.sum(spectrum * g**2 * start**2) / 2 + np.sum(A) * variance / 2
    gap = float(np.sum(spectrum * start**2) / 2)
    assert heavy_ball_quadratic(spectrum, alpha, beta, T, gap, variance) >= exact * (1 - 1e-9)


def test_the_noise_term_of_the_heavy_ball_theorem_is_the_limit():
    _, A = exact_quadratic(constant(1, 0.5, 0, 300), [0.1, 1.0])
    assert heavy_ball_quadratic([0.1, 1.0], 1, 0.5, 300, 0.0, 1.0) == pytest.approx(np.sum(A) / 2, rel=1e-9)


def test_the_paper_takes_nesterovs_eigenvalues_for_heavy_ball():
    alpha, beta, T = 1.0, float(nesterov_momentum(1.0, 0.1)), 200
    g, _ = exact_quadratic(constant(alpha, beta, 0, T), [0.1, 1.0])
    actual = np.sum([0.1, 1.0] * g**2) / 2  # from x_0 - x* = (1, 1)
    start = 4.0  # |(x_0 - x*, x_{-1} - x*)|², the paper's V
    assert T**2 * rate("nesterov", 0.1, 1, alpha, beta) ** (2 * T) * start < 1e-3 * actual
    assert heavy_ball_quadratic([0.1, 1.0], alpha, beta, T, 0.55, 0.0) >= actual


def test_the_paper_needs_more_than_a_factor_t():
    lam, alpha, beta = 28.1, 1.9 / 28.1, 0.01
    g, _ = exact_quadratic(constant(alpha, beta, 0, 1), [lam])
    actual, rho = lam / 2 * g[0] ** 2, rate("heavy_ball", lam, lam, alpha, beta)
    assert 1**2 * rho**2 * 2 < actual  # as printed: no factor L/2
    assert 1**2 * rho**2 * lam / 2 < actual  # even per unit of F(x_0) - F*
    assert heavy_ball_quadratic([lam], alpha, beta, 1, lam / 2, 0.0) >= actual


def test_divergence_is_refused():
    with pytest.raises(ValueError, match=r"heavy ball does not converge on this spectrum: its rate is 1\.\d+"):
        heavy_ball_quadratic([0.1, 1.0], 3.5, 0.5, 10, 1.0, 0.0)
    with pytest.raises(ValueError, match="no stationary variance: nesterov"):
        stationary_variance("nesterov", np.array([0.1, 1.0]), 1.9, 0.5, 1.0)
    with pytest.raises(ValueError, match="no stationary variance"):
        stationary_variance("gd", 0.0, 1.0, 0.0, 1.0)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="gradient descent has no momentum"):
        rate("gd", 0.1, 1, 1, 0.5)
    with pytest.raises(ValueError, match="method must be one of 'gd', 'heavy_ball', 'nesterov', got 'multistage'"):
        rate(es.multistage, 0.1, 1, 1, 0.5)
    with pytest.raises(ValueError, match="mu must lie between 0 and L=1, got 2"):
        rate("gd", 2, 1, 1)
    with pytest.raises(ValueError, match=r"beta must lie in \[0, 1\), got 1"):
        rate("nesterov", 0.1, 1, 1, 1)
    with pytest.raises(ValueError, match="spectrum must be finite eigenvalues >= 0"):
        exact_quadratic(constant(1, 0, 0, 2), [-1.0])
