"""Planning by the exact error: the numbers of known quadratics, and what an honest guess of them is worth."""

import numpy as np
import pytest

import epsteps as es

SQRT_HALF = np.sqrt(0.5)


def quadratic(mu, d, s):
    """A problem with L = 1 and scale unit S1/(n epsilon) = s at epsilon = 1."""
    n = 1_000_000
    return es.Problem(es.Logistic(), es.Ball(s * n / 2, norm=1), ridge=mu, n=n, d=d, smoothness=1.0)


def log_spaced(kappa):
    return np.geomspace(1 / kappa, 1, 20)


@pytest.mark.parametrize(
    ("spectrum", "distance", "s", "T", "error"),
    [
        (np.array([0.5, 1]), np.sqrt(2.5), 1e-4 * SQRT_HALF, 12, 6.62e-8),
        (np.array([0.5, 1]), np.sqrt(2.5), 1e-2 * SQRT_HALF, 6, 6.35e-4),
        (np.array([0.1, 1]), np.sqrt(2.5), 1e-4 * SQRT_HALF, 30, 9.70e-7),
        (np.array([0.1, 1]), np.sqrt(2.5), 1e-2 * SQRT_HALF, 10, 6.71e-3),
        (log_spaced(100), 1.0, 1e-4, 43, 2.79e-4),
        (log_spaced(100), 1.0, 1e-2, 5, 0.1273),
        (log_spaced(1000), 1.0, 1e-4, 48, 2.75e-3),
        (log_spaced(1000), 1.0, 1e-2, 4, 0.1126),
    ],
)
def test_known_quadratics_are_planned_exactly(spectrum, distance, s, T, error):
    """Numbers computed independently; three digits are known."""
    gaps = spectrum / 2 * distance**2
    plan = es.plan(
        quadratic(spectrum[0], len(spectrum), s),
        es.Pure(1.0),
        es.nesterov,
        objective="exact",
        spectrum=spectrum,
        start_shares=gaps,
        start_gap=gaps.sum(),
        max_iterations=300,
    )
    assert plan.iterations == T
    assert plan.error == pytest.approx(error, rel=2e-3)
    assert es.Plan.from_json(plan.to_json()) == plan
    assert "on the assumed quadratic" in str(plan)


@pytest.mark.parametrize(("kappa", "gain"), [(100, 1.6), (1000, 2.4)])
def test_exact_planning_beats_the_bounds_choice_of_steps_and_split(kappa, gain):
    spectrum = log_spaced(kappa)
    gaps = spectrum / 2
    problem = quadratic(1 / kappa, 20, 1e-4)
    exact = es.plan(
        problem,
        es.Pure(1.0),
        es.nesterov,
        objective="exact",
        spectrum=spectrum,
        start_shares=gaps,
        start_gap=gaps.sum(),
    )
    # The bound is given the true Lyapunov value of the start, half of which is its start_gap.
    by_bound = es.plan(problem, es.Pure(1.0), es.nesterov, start_gap=(gaps.sum() + 20 / kappa / 2) / 2)
    transfer, weights = es.bounds.exact_quadratic(by_bound.steps, spectrum)
    error = np.sum(transfer**2 * gaps) + np.sum(weights * by_bound.scales**2)
    assert error / exact.error > gain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spectrum": [0.1, 0.0]}, "spectrum must be a sequence of positive eigenvalues"),
        ({"spectrum": []}, "spectrum must be a sequence of positive eigenvalues"),
        ({"spectrum": [0.1, 1], "start_shares": [1.0]}, "start_shares must be 2 numbers, one per eigenvalue"),
        ({"spectrum": [0.1, 1], "start_shares": [1.0, -1.0]}, "none negative"),
        ({"objective": "guess"}, "objective must be one of 'bound', 'exact', 'typical', got 'guess'"),
    ],
)
def test_bad_guesses_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        es.plan(quadratic(0.1, 2, 1e-4), es.Pure(1.0), es.nesterov, **({"objective": "exact"} | options))


def test_the_default_spectrum_needs_strong_convexity():
    flat = es.Problem(es.Logistic(), es.Ball(1), ridge=0, n=100, d=2)
    with pytest.raises(es.NoBoundError, match=r"pass spectrum=\.\.\., or use ridge > 0"):
        es.plan(flat, es.Pure(1.0), es.gd, objective="exact")
    assert es.plan(flat, es.Pure(1.0), es.gd, objective="exact", spectrum=[0.01, 0.25]).error > 0
