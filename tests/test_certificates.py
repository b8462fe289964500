"""Certificates: the inequality written out a second time, cvxpy and PEPit as judges, exact errors as the floor."""

import sys
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PEPit import PEP
from PEPit.functions import SmoothStronglyConvexFunction

import epsteps as es
from epsteps.bounds.certificates import Certificate, best_certificate, certificate
from epsteps.bounds.quadratics import exact_quadratic
from epsteps.bounds.steps import Steps, nesterov_momentum
from epsteps.bounds.theorems import heavy_ball


def momentum(alpha: float, mu: float) -> float:
    return float(nesterov_momentum(alpha, mu))


def constant(alpha: float, beta: float, gamma: float, T: int) -> Steps:
    return Steps(np.full(T, alpha), np.full(T, beta), np.full(T, gamma), np.zeros(T, dtype=bool))


def left_side(method, alpha, beta, mu, L, rho, P, c, c0, sign=-1.0):
    """c0 X0 + c X - Φ, entry by entry as in the specification; numpy or cvxpy. sign=+1 is the paper's B."""
    A, B = np.array([[1 + beta, -beta], [1, 0]]), np.array([[sign * alpha], [0]])
    AB, first_two = np.hstack([A, B]), np.eye(2, 3)
    phi = AB.T @ P @ AB - rho**2 * (first_two.T @ P @ first_two)
    C = np.array([[1.0, 0.0]]) if method == "heavy_ball" else np.array([[1 + beta, -beta]])
    X0 = np.block([[2 * mu * L * C.T @ C, -(mu + L) * C.T], [-(mu + L) * C, np.array([[2.0]])]])
    b2, descent = beta**2, alpha * (2 - L * alpha)
    if method == "heavy_ball":
        k = (1 - L * alpha) * beta
        X1 = np.array([[-L * b2, L * b2, -k], [L * b2, -L * b2, k], [-k, k, descent]]) / 2
        X2 = np.array([[mu, 0, -1], [0, 0, 0], [-1, 0, 0]]) / 2
        X = X1 + (1 - rho**2) * X2
    else:
        X1 = np.array([[b2 * mu, -b2 * mu, -beta], [-b2 * mu, b2 * mu, beta], [-beta, beta, descent]]) / 2
        cross = beta * (1 + beta) * mu
        corner = (1 + beta) ** 2 * mu
        X2 = np.array([[corner, -cross, -(1 + beta)], [-cross, b2 * mu, beta], [-(1 + beta), beta, descent]]) / 2
        X = rho**2 * X1 + (1 - rho**2) * X2
    return c0 * X0 + c * X - phi


def widest_slack(method, alpha, beta, mu, L, rho, sign=-1.0):
    """The largest slack for c + tr P = 1, by cvxpy, and the P and c that reach it."""
    P, c, c0, slack = cp.Variable((2, 2), symmetric=True), cp.Variable(), cp.Variable(), cp.Variable()
    left = left_side(method, alpha, beta, mu, L, rho, P, c, c0, sign)
    constraints = [(left + left.T) / 2 >> slack * np.eye(3), P >> 0, c >= 0, c0 >= 0, c + cp.trace(P) == 1]
    cp.Problem(cp.Maximize(slack), constraints).solve(solver=cp.CLARABEL)
    return slack.value.item(), P.value, c.value.item()


def growth(P, c, rho, alpha, beta, gamma, lam):
    """The largest eigenvalue of V+ - rho² V on the quadratic with curvature lam: above 0, V is no Lyapunov function."""
    step = np.array([[1 + beta - alpha * lam * (1 + gamma), -beta + alpha * lam * gamma], [1, 0]])
    V = P + c * lam / 2 * np.diag([1.0, 0.0])
    return np.linalg.eigvalsh(step.T @ V @ step - rho**2 * V)[-1]


# Test vectors F of the specification: L = 1, mu = .1, c = 1, |x0 - x*|² = 9, F0 - F* = 2.475, W = .2, t = 30.
START = (9.0, 2.475)
VECTORS = [
    (
        ("heavy_ball", 1.0, 0.2),
        0.9,
        [[0.202174, -0.067798], [-0.067798, 0.039347]],
        0.073012,
        (9.966645584e-05, 3.428325, 1.170705343, 0.5997871317, 0.6354827375),
    ),
    (
        ("heavy_ball", 0.5, 0.5),
        0.93,
        [[0.410694, -0.320249], [-0.320249, 0.265365]],
        0.007057,
        (9.975222359e-05, 2.795049, 1.048419281, 0.2171588257, 0.3516104137),
    ),
    (
        ("nesterov", 1.0, momentum(1, 0.1)),
        0.85,
        [[0.391105, -0.261537], [-0.261537, 0.174894]],
        0.0,
        (9.960393234e-05, 2.861325, 1.000003608, 0.891101785, 0.6423647343),
    ),
]


@pytest.mark.parametrize(("method", "rho", "P", "c0", "expected"), VECTORS)
def test_a_certificate_reproduces_the_test_vectors(method, rho, P, c0, expected):
    slack, start, den, gain, error = expected
    found = Certificate(rho, np.array(P), 1.0, c0, *method, 0.1, 1.0)
    assert found.slack == pytest.approx(slack, abs=1e-13)
    assert found.holds
    assert found.start_value(*START) == pytest.approx(start, rel=1e-9)
    assert found.den == pytest.approx(den, rel=1e-9)
    found_gain = found.R
    assert found_gain == pytest.approx(gain, rel=1e-9)
    assert found.error(30, 0.2, *START) == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize(("method", "rho", "P", "c0", "expected"), VECTORS)
def test_the_bound_of_a_certificate_is_its_error_unrolled(method, rho, P, c0, expected):
    found = Certificate(rho, np.array(P), 1.0, c0, *method, 0.1, 1.0)
    bound, (_, start, den, _, error) = found.bound(30), expected
    assert bound.decay * start / den + np.sum(bound.weights) * 0.2 / 2 == pytest.approx(error, rel=1e-9)
    farthest = 2 / 0.1 * np.sum(P) + 1  # |x_0 - x*|² is at most 2/mu per unit of F(x_0) - F*
    assert bound.start_factor == pytest.approx(farthest / den, rel=1e-9)


def test_the_papers_sign_of_B_is_another_inequality():
    method, rho, P, c0, _ = VECTORS[0]
    wrong = left_side(*method, 0.1, 1.0, rho, np.array(P), 1.0, c0, sign=1.0)
    assert np.linalg.eigvalsh(wrong)[0] == pytest.approx(-0.194469293, rel=1e-8)


def test_the_papers_sign_of_B_certifies_what_is_no_lyapunov_function():
    setting, rho = (1.0, 0.5, 0.5, 1.0), 0.78  # alpha, beta, mu, L
    slack, P, c = widest_slack("heavy_ball", *setting, rho, sign=1.0)
    assert slack > 1e-4
    assert max(growth(P, c, rho, 1.0, 0.5, 0.0, lam) for lam in np.linspace(0.5, 1, 11)) > 0.05
    with pytest.raises(es.NoBoundError, match=r"no certificate exists for these parameters: heavy_ball.*rho=0\.78"):
        certificate("heavy_ball", *setting, rho=rho)


@given(st.floats(0.01, 1), st.floats(0.01, 0.95))
def test_nesterovs_closed_form_is_on_the_boundary(alpha, mu):  # L = 1
    p = np.array([np.sqrt(1 / (2 * alpha)), np.sqrt(mu / 2) - np.sqrt(1 / (2 * alpha))])
    rho = np.sqrt(1 - np.sqrt(alpha * mu))
    closed = Certificate(rho, np.outer(p, p), 1.0, 0.0, "nesterov", alpha, momentum(alpha, mu), mu, 1.0)
    assert closed.slack == pytest.approx(0, abs=1e-12 / alpha)
    gain = closed.R
    assert gain == pytest.approx(alpha * (1 + alpha) / 2, rel=1e-9)  # that of es.bounds.nesterov
    assert closed.start_value(2 / mu, 1.0) == pytest.approx(2, rel=1e-9)
    assert Certificate(0.999 * rho, np.outer(p, p), 1.0, 0.0, "nesterov", alpha, closed.beta, mu, 1.0).slack < 0


def test_nesterovs_closed_form_of_the_test_vector():
    p = np.array([np.sqrt(10), np.sqrt(0.5) - np.sqrt(10)])
    np.testing.assert_allclose(np.outer(p, p), [[10, -7.763932023], [-7.763932023, 6.027864045]], rtol=1e-9)
    rho = np.sqrt(1 - np.sqrt(0.05))
    assert abs(Certificate(rho, np.outer(p, p), 1, 0, "nesterov", 0.05, momentum(0.05, 1), 1, 20).slack) < 1e-12


SMALLEST = [
    ("heavy_ball", 1, 0.2, 0.1, 0.876037),
    ("heavy_ball", 0.5, 0.5, 0.1, 0.908031),
    ("heavy_ball", 1, 0.3, 0.01, 0.985768),
    ("heavy_ball", 1, 0.1, 0.5, 0.500107),
    ("nesterov", 1, momentum(1, 0.1), 0.1, 0.822582),
    ("nesterov", 1, momentum(1, 0.01), 0.01, 0.948557),
]


@pytest.mark.parametrize(("method", "alpha", "beta", "mu", "smallest"), SMALLEST)
def test_the_smallest_rate(method, alpha, beta, mu, smallest):
    found = certificate(getattr(es, method), alpha, beta, mu, 1)
    assert found.rho == pytest.approx(smallest, abs=1e-5)
    assert found.holds
    left = left_side(method, alpha, beta, mu, 1, found.rho, found.P, found.c, found.c0)
    assert 0 <= np.linalg.eigvalsh(left)[0] == pytest.approx(found.slack, abs=1e-14)
    assert widest_slack(method, alpha, beta, mu, 1, found.rho - 1e-4)[0] < 0 < found.slack


@pytest.mark.parametrize("setting", [("heavy_ball", 1, 0.2, 0.1, 1), ("nesterov", 0.5, 0.6, 0.05, 1)])
def test_a_certificate_at_a_given_rate_has_the_largest_slack(setting):
    found = certificate(*setting, rho=0.95)
    assert found.rho == 0.95
    assert found.slack == pytest.approx(widest_slack(*setting, 0.95)[0], abs=1e-6)


@pytest.mark.parametrize(
    ("kappa", "alpha", "beta"),
    [
        (10, 1, 0.7),
        (100, 1, 0.81),
        (255, 1, 0.52),
        (64.5, 1, momentum(1, 1 / 64.5)),
        (100, 1, momentum(1, 1 / 100)),
        (255, 1, momentum(1, 1 / 255)),
        (1000, 1, momentum(1, 1 / 1000)),
        (255, 0.1, momentum(0.1, 1 / 255)),
    ],
)
def test_heavy_ball_has_no_certificate_at_the_papers_settings(kappa, alpha, beta):
    with pytest.raises(es.NoBoundError, match="no certificate exists for these parameters"):
        certificate("heavy_ball", alpha, beta, 1 / kappa, 1)
    assert widest_slack("heavy_ball", alpha, beta, 1 / kappa, 1, 1.0)[0] < -1e-6  # cvxpy agrees
    with pytest.raises(es.NoBoundError):
        heavy_ball(constant(alpha, beta, 0, 10), 1 / kappa, 1)


def test_heavy_ball_has_a_certificate_at_a_tenth_of_the_step():
    found = certificate("heavy_ball", 0.1, momentum(0.1, 1 / 64.5), 1 / 64.5, 1)
    assert found.rho == pytest.approx(0.99005, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 20.0, 1e5])
def test_certificates_do_not_depend_on_the_units(scale):
    unit = certificate("heavy_ball", 1, 0.2, 0.1, 1)
    scaled = certificate("heavy_ball", 1 / scale, 0.2, 0.1 * scale, scale)
    assert scaled.holds
    assert scaled.rho == pytest.approx(unit.rho, abs=1e-6)
    assert scaled.R * scale == pytest.approx(unit.R, rel=1e-3)
    assert scaled.bound(3).start_factor == pytest.approx(unit.bound(3).start_factor, rel=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_a_certificate_that_is_no_proof_does_not_hold(scale):
    good = certificate("heavy_ball", 1 / scale, 0.2, 0.1 * scale, scale, rho=0.9)
    assert good.holds
    P, rest = good.P, ("heavy_ball", 1 / scale, 0.2, 0.1 * scale, scale)
    assert not Certificate(0.87, P, good.c, good.c0, *rest).holds  # too fast
    assert not Certificate(0.9, P, good.c, -1e-6, *rest).holds  # a wrong sign
    assert not Certificate(1.0, P, good.c, good.c0, *rest).holds  # no contraction


def test_an_indefinite_P_is_no_proof():
    method, rho, P, c0, _ = VECTORS[2]
    indefinite = np.array(P) - np.diag([0, 1e-5])
    found = Certificate(rho, indefinite, 1.0, c0, *method, 0.1, 1.0)
    assert found.slack > 0
    assert np.linalg.eigvalsh(indefinite)[0] < 0
    assert not found.holds


def test_den_without_momentum():
    assert Certificate(0.95, np.diag([3.0, 0.0]), 1.0, 0.1, "heavy_ball", 1, 0, 0.1, 2.0).den == 4.0


@pytest.mark.parametrize(("method", "rho", "P", "c0", "expected"), VECTORS)
def test_the_best_certificate_beats_every_other(method, rho, P, c0, expected):
    best = best_certificate(*method, 0.1, 1.0, 30, 0.2, *START)
    assert best.holds
    assert best.error(30, 0.2, *START) <= expected[-1] * (1 - 1e-3)  # the test vectors are nearly the best
    assert best.error(30, 0.2, *START) >= expected[-1] * 0.9
    for other in np.linspace(certificate(*method, 0.1, 1.0).rho, 0.999, 9):
        assert best.error(30, 0.2, *START) <= certificate(*method, 0.1, 1.0, rho=float(other)).error(30, 0.2, *START)


def cheapest(method, alpha, beta, mu, L, rho, start, noise, distance_squared=0.0, gap=0.0):
    """The smallest start V_0 + noise alpha² (P11 + c L/2) per unit of den among certificates at rate rho, by cvxpy."""
    P, c, c0, s = cp.Variable((2, 2), symmetric=True), cp.Variable(), cp.Variable(), cp.Variable()
    left = left_side(method, alpha, beta, mu, L, rho, P, c, c0)
    schur = P - s * np.diag([1.0, 0.0])  # psd: s is at most |P|/P22
    cost = start * (cp.sum(P) * distance_squared + c * gap) + noise * alpha**2 * (P[0, 0] + c * L / 2)
    constraints = [(left + left.T) / 2 >> 0, schur >> 0, c >= 0, c0 >= 0, s >= 0, c + 2 / L * s == 1]
    return cp.Problem(cp.Minimize(cost), constraints).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("L", [1.0, 4.0])
@pytest.mark.parametrize(("method", "step", "beta"), [("heavy_ball", 0.5, 0.5), ("nesterov", 0.8, 0.3)])
@pytest.mark.parametrize(("T", "noise"), [(3, 0.5), (30, 0.05)])
def test_the_best_certificate_is_the_best(method, step, beta, L, T, noise):
    setting, start = (method, step / L, beta, 0.1 * L, L), (9.0, 2.0 * L)
    best = best_certificate(*setting, T, noise * L**2, *start)
    smallest = certificate(*setting).rho
    errors = []
    for rho in 1 - np.linspace(0.1, 0.995, 25) * (1 - smallest):
        decay = rho ** (2 * T)
        errors.append(cheapest(*setting, rho, decay, (1 - decay) / (1 - rho**2) * noise * L**2, *start))
    assert best.error(T, noise * L**2, *start) <= min(errors) * (1 + 1e-5)
    assert best.error(T, noise * L**2, *start) == pytest.approx(min(errors), rel=3e-3)  # as fine as the grid


def test_the_best_certificate_trades_rate_for_noise():
    setting = ("heavy_ball", 1, 0.3, 0.01, 1)
    quiet, loud = (best_certificate(*setting, 100, trace, 9.0, 2.0) for trace in (0.0, 10.0))
    assert quiet.rho < loud.rho
    assert loud.R < quiet.R


@pytest.mark.parametrize(("alpha", "beta", "kappa"), [(1, 0.2, 10), (0.5, 0.5, 10), (1, 0.3, 100)])
def test_the_heavy_ball_bound_has_the_smallest_noise_under_the_best_split(alpha, beta, kappa):
    bound = heavy_ball(constant(alpha, beta, 0, 5), 1 / kappa, 1)
    assert len(bound.gain) == 5
    chosen = bound.gain[0] / 2 / (1 - np.cbrt(bound.contraction[0])) ** 3
    smallest = certificate("heavy_ball", alpha, beta, 1 / kappa, 1).rho
    rates = 1 - np.linspace(0.9, 0.995, 25) * (1 - smallest)
    gains = np.array([cheapest("heavy_ball", alpha, beta, 1 / kappa, 1, rho, 0.0, 1.0) for rho in rates])
    limits = gains / (1 - rates ** (2 / 3)) ** 3
    assert chosen == pytest.approx(min(limits), rel=1e-3)


def test_the_heavy_ball_bound_covers_heavy_ball_only():
    varying = Steps([1, 0.5], [0.2, 0.2], [0, 0], [False, False])
    for steps in (varying, constant(1, 0.2, 0.2, 2), constant(1, 0, 0, 2)):
        with pytest.raises(es.NoBoundError, match=r"heavy ball needs gamma = 0|may change only at a restart"):
            heavy_ball(steps, 0.1, 1)


def test_the_solver_is_an_optional_dependency(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(es.MissingExtraError, match=r"pip install 'epsteps\[theory\]'"):
        certificate("heavy_ball", 1, 0.2, 0.1, 1)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="method must be one of 'heavy_ball', 'nesterov', got 'gd'"):
        certificate(es.gd, 1, 0, 0.1, 1)
    with pytest.raises(ValueError, match="mu must be positive, got 0"):
        certificate("nesterov", 1, 0.2, 0, 1)
    with pytest.raises(ValueError, match="mu must be at most L=1, got 2"):
        certificate("nesterov", 1, 0.2, 2, 1)
    with pytest.raises(ValueError, match=r"trace must not be negative, got -1"):
        best_certificate("nesterov", 1, 0.2, 0.1, 1, 10, -1.0, 1.0, 1.0)
    with pytest.raises(es.NoBoundError, match="no certificate exists"):
        certificate("heavy_ball", 3.0, 0.1, 0.1, 1)  # diverges on quadratics already


# Against the exact error: settings drawn once from a list (each costs a program), the quadratic drawn by hypothesis.
SETTINGS = [
    ("heavy_ball", 1.0, 0.2, 0.1),
    ("heavy_ball", 0.5, 0.5, 0.1),
    ("heavy_ball", 1.0, 0.4, 0.02),
    ("heavy_ball", 0.1, 0.9, 1 / 64.5),
    ("nesterov", 1.0, momentum(1, 0.1), 0.1),
    ("nesterov", 0.5, 0.5, 0.02),
]


@cache
def smallest_certificate(method: str, alpha: float, beta: float, mu: float) -> Certificate:
    return certificate(method, alpha, beta, mu, 1.0)


@pytest.mark.parametrize("setting", SETTINGS)
@given(data=st.data(), T=st.integers(1, 60))
def test_the_bounds_are_at_least_the_exact_error(setting, data, T):
    method, alpha, beta, mu = setting
    fractions = data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=4))
    spectrum = np.array([mu ** (1 - f) for f in fractions])  # in [mu, 1]
    start = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=len(spectrum), max_size=len(spectrum))))
    variances = np.array(data.draw(st.lists(st.floats(0, 1), min_size=T, max_size=T)))
    g, A = exact_quadratic(constant(alpha, beta, beta if method == "nesterov" else 0, T), spectrum)
    transient = np.sum(spectrum * g**2 * start**2) / 2
    exact = transient + np.sum(A * variances) / 2
    gap, power = float(np.sum(spectrum * start**2) / 2), len(spectrum) * variances / 2
    found = smallest_certificate(*setting)
    assert found.bound(T).error(gap, power) >= exact * (1 - 1e-9)
    if method == "heavy_ball":
        assert heavy_ball(constant(alpha, beta, 0, T), mu, 1).error(gap, power) >= exact * (1 - 1e-9)
    steady, trace = variances.max(), len(spectrum) * variances.max()
    assert found.error(T, trace, np.sum(start**2), gap) >= (transient + np.sum(A) * steady / 2) * (1 - 1e-9)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_certified_value_falls_on_every_quadratic(setting):
    method, alpha, beta, mu = setting
    found, gamma = smallest_certificate(*setting), beta if method == "nesterov" else 0.0
    grid = np.geomspace(mu, 1, 50)
    worst = max(growth(found.P, found.c, found.rho, alpha, beta, gamma, lam) for lam in grid)
    assert worst <= 1e-12
    assert max(growth(found.P, found.c, 0.9 * found.rho, alpha, beta, gamma, lam) for lam in grid) > 0


def worst_case(steps: Steps, mu: float) -> float:
    """The largest F(x_T) - F* without noise over S(mu, 1), F(x_0) - F* <= 1 and x_{-1} = x_0 (PEPit, tight)."""
    problem = PEP()
    F = problem.declare_function(SmoothStronglyConvexFunction, mu=mu, L=1.0)
    optimum, x = F.stationary_point(), problem.set_initial_point()
    problem.set_initial_condition(F(x) - F(optimum) <= 1)
    drift = x - x
    for alpha, beta, gamma, _ in steps:
        after = x + float(beta) * drift - float(alpha) * F.gradient(x + float(gamma) * drift)
        x, drift = after, after - x
    problem.set_performance_metric(F(x) - F(optimum))
    return problem.solve(wrapper="cvxpy", solver="CLARABEL", verbose=0)


@pytest.mark.parametrize("kappa", [2, 10, 50])
@pytest.mark.parametrize("T", [1, 2, 5])
def test_noise_free_decay_holds_over_all_smooth_strongly_convex_functions(T, kappa):
    mu = 1 / kappa
    gd, nesterov, ball = es.gd(mu, 1, T), es.nesterov(mu, 1, T), constant(1, 0.2, 0, T)
    assert worst_case(gd, mu) <= es.bounds.gd(gd, mu, 1).error(1.0, 0.0)
    assert worst_case(nesterov, mu) <= es.bounds.nesterov(nesterov, mu, 1).error(1.0, 0.0)
    assert worst_case(ball, mu) <= heavy_ball(ball, mu, 1).error(1.0, 0.0)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_certified_value_falls_on_all_smooth_strongly_convex_functions(setting):
    """One step from any two points with V = 1: PEPit's worst V+ is below rho², and not by much."""
    method, alpha, beta, mu = setting
    found, gamma = smallest_certificate(*setting), beta if method == "nesterov" else 0.0
    problem = PEP()
    F = problem.declare_function(SmoothStronglyConvexFunction, mu=mu, L=1.0)
    optimum, before, x = F.stationary_point(), problem.set_initial_point(), problem.set_initial_point()

    def value(now, previous):
        a, b = now - optimum, previous - optimum
        quadratic = found.P[0, 0] * a * a + 2 * found.P[0, 1] * a * b + found.P[1, 1] * b * b
        return quadratic + found.c * (F(now) - F(optimum))

    problem.set_initial_condition(value(x, before) <= 1)
    drift = x - before
    after = x + beta * drift - alpha * F.gradient(x + gamma * drift)
    problem.set_performance_metric(value(after, x))
    worst = problem.solve(wrapper="cvxpy", solver="CLARABEL", verbose=0)
    assert 0.95 * found.rho**2 < worst <= found.rho**2 * (1 + 1e-5)
