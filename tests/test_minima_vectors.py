"""Minima released once, against numbers that were computed independently and checked to many digits."""

import math

import numpy as np
import pytest

import epsteps as es
from epsteps.budgets import gaussian_delta, gaussian_mu
from epsteps.budgets.corners import Corners, composed
from epsteps.methods import minima
from epsteps.problem.saturations import Flat, PseudoHuber, Sigmoid, Softmax

CLOSE = 1e-8
SIZE, N, RIDGE, D = math.sqrt(20), 100_000, 0.02, 20


@pytest.mark.parametrize(
    ("mu", "epsilon", "delta"),
    [
        (1, 1, 0.1269367375),
        (0.5, 2, 9.439168635e-06),
        (0.1, 3, 7.304806102e-200),
        (2, -0.5, 0.7568937888),
        (0, -0.5, 1 - math.exp(-0.5)),
        (0, 0.5, 0.0),
        (1e-310, 1, 0.0),
        (1e-310, -1, 1 - math.exp(-1)),
    ],
)
def test_gaussian_deltas(mu, epsilon, delta):
    assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=CLOSE, abs=0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"), [(1, 1e-5, 0.2680511232), (0.1, 1e-5, 0.03252078406), (8, 1e-6, 1.531545118)]
)
def test_gaussian_mus(epsilon, delta, mu):
    assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=CLOSE)


@pytest.mark.parametrize(
    ("noise", "kappa", "saturation", "total"),
    [
        (1, 0.01, Sigmoid(), 1),
        (1, 0.5, Sigmoid(), 1),
        (1, 0.6, Sigmoid(), 1.003320571),
        (1, 2, Sigmoid(), 1.201304673),
        (1, 0.5, Sigmoid(sharpness=4), 1.201304673),
        (0.1, 2, Sigmoid(), 0.4809337483),
        (0.1, 0.05, Sigmoid(), 0.1),
        (5, 40, Sigmoid(), 6.515775114),
        (1, 0.05, Softmax(3), 1.024692613),
        (1, 0.5, Softmax(3), 1.223747586),
        (1, 0.5, Softmax(10), 1.43253777),
        (2, 2, Softmax(5), 3.228187841),
        (1, 0.25, Softmax(2), 1),
    ],
)
def test_pure_totals(noise, kappa, saturation, total):
    assert minima.total_epsilon(noise, kappa, saturation) == pytest.approx(total, rel=CLOSE)


@pytest.mark.parametrize(("noise", "kappa", "total"), [(1, 0.3, 1), (1, 1, 1.275425), (0.1, 2, 1.149237)])
def test_pure_totals_of_pseudo_huber(noise, kappa, total):
    assert minima.total_epsilon(noise, kappa, PseudoHuber()) == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "kappa", "saturation", "noise"),
    [
        (1, 0.01, Sigmoid(), 1),
        (1, 0.5, Sigmoid(), 1),
        (1, 0.6, Sigmoid(), 0.9965622148),
        (1, 2, Sigmoid(), 0.7573316607),
        (0.1, 0.1, Sigmoid(), 0.09303668235),
        (8, 20, Sigmoid(), 7.277028304),
        (1, 0.01, Flat(sides=2), 0.9900496691),
        (1, 0.5, Flat(sides=1), 0.5945348919),
        (0.5, 0.2, Flat(sides=1, curvature=2), 0.1635277634),
        (1, 0.05, Softmax(3), 0.9753073874),
        (1, 0.5, Softmax(3), 0.770035728),
        (1, 0.5, Softmax(10), 0.5674622298),
        (2, 2, Softmax(5), 0.7137667698),
    ],
)
def test_pure_noise(epsilon, kappa, saturation, noise):
    assert minima.noise_epsilon(epsilon, kappa, saturation) == pytest.approx(noise, rel=CLOSE)


def test_a_ridge_that_is_too_small_for_pure_noise():
    assert minima.kappa_limit(0.1, Sigmoid()) == pytest.approx(0.4206836723, rel=CLOSE)
    with pytest.raises(
        ValueError, match=r"kappa must be below 0.420684, got 0.5. Multiply the ridge by more than 1.18"
    ):
        minima.noise_epsilon(0.1, 0.5, Sigmoid())


@pytest.mark.parametrize(
    ("epsilon", "delta", "kappa", "saturation", "mu"),
    [
        (1, 1e-5, 0.01, Sigmoid(), 0.2680511232),
        (1, 1e-5, 0.01, Flat(sides=1), 0.2656210066),
        (1, 1e-5, 0.2, Flat(sides=1), 0.2230960727),
        (1, 1e-5, 0.01, Flat(sides=2), 0.2551051318),
        (1, 1e-5, 0.2, Flat(sides=2), 0.2140220264),
    ],
)
def test_gaussian_noise(epsilon, delta, kappa, saturation, mu):
    assert minima.calibrated(epsilon, delta, kappa, saturation).mu == pytest.approx(mu, rel=CLOSE)


@pytest.mark.parametrize(
    ("epsilon", "delta", "kappa", "saturation", "mu"),
    [
        (1, 1e-5, 0.5, Sigmoid(), 0.266942352),
        (1, 1e-5, 1, Sigmoid(), 0.2507679683),
        (1, 1e-5, 5, Sigmoid(), 0.07316203286),
        (0.1, 1e-5, 0.1, Sigmoid(), 0.02965987993),
        (8, 1e-6, 20, Sigmoid(), 1.40823535),
        (1, 1e-5, 0.01, Softmax(3), 0.2555262337),
        (1, 1e-5, 0.1, Softmax(10), 0.2157662268),
    ],
)
def test_gaussian_noise_with_the_best_tangent(epsilon, delta, kappa, saturation, mu):
    assert minima.calibrated(epsilon, delta, kappa, saturation).mu == pytest.approx(mu, rel=1e-6)


@pytest.mark.parametrize(
    ("kappa", "tangent", "delta"), [(0.5, 1, 7.642056977e-05), (2, 0.75, 0.01615137878), (2, 0.5, 0.00357178776)]
)
def test_deltas_of_fixed_tangents(kappa, tangent, delta):
    assert Corners(*Sigmoid().corners_at(kappa, tangent)).delta(0.3, 1.0) == pytest.approx(delta, rel=CLOSE)


def test_renyi_is_at_most_the_plain_sum():
    found = Corners(*Sigmoid().corners_at(0.1, 1.0)).renyi(np.array([8.0, 32.0]), 0.3)
    assert 0.36 < found[0] < 0.4286813902
    assert found[1] == pytest.approx(1.44, rel=CLOSE)


def test_a_minimum_that_is_not_exact():
    kappa = minima.record_weight(SIZE, N, RIDGE)
    noise = minima.noise_epsilon(0.995, kappa, Sigmoid())
    energy = minima.ball_energy(2 * SIZE / noise, D)
    trace = 0.25 * SIZE**2 + D * RIDGE
    tolerance = minima.gradient_tolerance(math.sqrt(D * energy), D, epsilon_out=0.005, ridge=RIDGE, trace=trace)
    radius = minima.minimum_radius(tolerance, N, RIDGE)
    found = [kappa, noise, energy, tolerance, radius, minima.output_scale(radius, 0.005)]
    expected = [0.01, 0.995, 33938.53691, 5.2641487526e-05, 2.6320743763e-08, 1.0528297505e-05]
    assert found == pytest.approx(expected, rel=CLOSE, abs=0)


def test_splits_over_several_minima():
    assert es.Pure(1.0).split([1, 2, 8]) == pytest.approx([0.2347461346, 0.2957615963, 0.4694922691], rel=CLOSE)
    shares = [0.1907435698, 0.2697521434, 0.5395042868]
    assert es.Concentrated(1.0).split([1, 2, 8]) == pytest.approx(shares, rel=CLOSE)


@pytest.mark.parametrize(
    ("mu", "shares", "delta"),
    [
        (0.26, (1 / 3, 1 / 3, 1 / 3), 8.576333017e-06),
        (0.25, (0.1, 0.2, 0.7), 1.059346056e-05),
        (0.26, (0.5, 0.5), 6.118621248e-06),
    ],
)
def test_deltas_of_several_minima(mu, shares, delta):
    alone = Corners(*Sigmoid().corners_at(0.01, 1.0))
    assert composed([alone.scaled(math.sqrt(share)) for share in shares]).delta(mu, 1.0) == pytest.approx(
        delta, rel=CLOSE
    )


@pytest.mark.parametrize(("times", "mu"), [(3, 0.2621147296), (2, 0.2674678448)])
def test_mu_of_several_minima(times, mu):
    alone = Corners(*Sigmoid().corners_at(0.01, 1.0))
    assert composed([alone.scaled(math.sqrt(1 / times))] * times).mu(1.0, 1e-5) == pytest.approx(mu, rel=CLOSE)


def test_output_perturbation():
    sensitivity = minima.minimum_sensitivity(SIZE, N, RIDGE)
    found = [sensitivity, minima.ball_energy(sensitivity, D)]
    assert found == pytest.approx([0.004472135955, 0.0084], rel=CLOSE)
