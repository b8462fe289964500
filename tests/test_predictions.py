"""What plans predict and declare besides their costs, against computations of their own; costs that round outward."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import epsteps as es
from epsteps.budgets import Epsilon, Mu, Rho
from epsteps.budgets.corners import Corners
from epsteps.methods import minima
from epsteps.methods.curvature import Model, predicted_excess
from epsteps.methods.minimum import Minimised
from epsteps.methods.statistics import Vectors
from epsteps.plans.utility import Typical
from epsteps.problem.saturations import PseudoHuber, Sigmoid, Softmax

PROBLEM = es.Problem(es.Logistic(), es.Ball(1), ridge=0.5, n=400, d=3)
OUTPUTS = ("l2", "gaussian")


@pytest.mark.parametrize(("name", "energy", "kind"), [("l2", 3 * 4, Epsilon), ("gaussian", 3, Mu)])
def test_the_error_of_a_noisy_minimum_is_that_of_its_noise(name, energy, kind):
    """|z| of density ~ exp(-|z|/s) is a Gamma(d) variable, so that E|z|² = d (d + 1) s²; Gaussian noise has d s²."""
    plan = es.OutputPlan(PROBLEM, es.Approximate(50.0, 1e-5), name, 0.5, 0.02, 1e-6)
    solver = (1e-6 / 400) ** 2 / (2 * 0.5)
    assert plan.utility.bound == pytest.approx(solver + PROBLEM.L * energy * 0.02**2 / 2)
    assert [type(charge.cost) for charge in plan.charges] == [kind]


def test_noise_on_a_minimum_is_of_the_kind_that_is_smaller():
    """Pure noise in one dimension, Gaussian in many: d (d + 1)/epsilon² against d/mu², at (1, 1e-5)."""
    budget = es.Approximate(1.0, 1e-5)
    names = {}
    for d in (1, 200):
        problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.5, n=10_000, d=d)
        plans = [es.OutputPlan.from_json(es.plan(problem, budget, "output", mechanism=n).to_json()) for n in OUTPUTS]
        names[d] = es.plan(problem, budget, "output").mechanism
        assert names[d] == min(plans, key=lambda plan: plan.utility.expected).mechanism
    assert names == {1: "l2", 200: "gaussian"}


@pytest.mark.parametrize("loss", [es.Logistic(), es.Squared()])
def test_the_models_hessian_is_its_gradients_derivative(loss):
    """Both are quadratures, which differ by 1e-4."""
    rng = np.random.default_rng(1)
    factor = rng.standard_normal((4, 4))
    model = Model(loss, rng.standard_normal(4), factor @ factor.T / 4, 0.1)
    for _ in range(5):
        x, h = rng.standard_normal(4), 1e-5
        apart = [(model.gradient(x + h * e) - model.gradient(x - h * e)) / (2 * h) for e in np.eye(4)]
        np.testing.assert_allclose(model.derivatives(x)[1], np.array(apart).T, rtol=1e-3, atol=1e-4)


def test_what_noise_costs_on_a_model_is_half_a_trace():
    """A step to the minimum with a gradient that is off by w costs w'H⁻¹w/2, whose mean is tr(H⁻¹ Σ)/2."""
    rng = np.random.default_rng(2)
    factor, noise = rng.standard_normal((2, 4, 4))
    model, noise = Model(es.Squared(), rng.standard_normal(4), factor @ factor.T, 0.1), noise @ noise.T
    hessian = model.derivatives(np.zeros(4))[1]
    assert model.noise_cost(np.zeros(4), noise) == pytest.approx(np.trace(np.linalg.solve(hessian, noise)) / 2)


@pytest.mark.parametrize(("kind", "power"), [(Epsilon, 2), (Rho, 1)])
def test_the_predicted_error_of_gradients_is_little_more_than_that_of_one(kind, power):
    """The last gradient gets most of what is left; each step leaves a fifth of the start where noise leaves nothing."""
    steps = kind.either(3, 4)
    for left in (1.0, 0.7, 0.5):
        found = predicted_excess(0.0, kind, 1e-6, 1e-3, left) - 1e-3 * 0.2 ** (2 * steps)
        assert 1e-6 * left**-power < found < 4.2e-6 * (left - 0.04) ** -power
        assert predicted_excess(0.0, kind, 1e-30, 100.0, left) == pytest.approx(100 * 0.2 ** (2 * steps))
    for need, limit in ((1e9, 1e-6), (1e-6, 1e9)):
        assert predicted_excess(need, kind, limit, 100.0, 1.0) == 100.0


def test_weights_that_are_no_small_integers_are_refused():
    problem = es.Problem(es.Squared(), es.Ball(1), ridge=0.5, n=40, d=2)
    Vectors(problem, (0, 0), (1, 1, 2**20, 1))
    for weights in ((1, 1, 2**20 + 1, 1), (1, 0, 1, 1), (1, 1, 1), (1, 1, 1.5, 1)):
        with pytest.raises(ValueError, match="weights must"):
            Vectors(problem, (0, 0), weights)


@pytest.mark.parametrize("runs", [1, 3, 7])
def test_several_runs_cost_no_less_than_the_sum_exactly(runs):
    """In fractions: a sum of pure costs is never rounded down, not by one unit in the last place."""
    squared = es.Problem(es.Squared(), es.Ball(1), ridge=0.5, n=400, d=3)
    budget = es.Pure(0.7)
    single = [es.plan(PROBLEM, budget, "output"), es.plan(squared, budget, "statistics")]
    for plan in single:
        assert Fraction(plan.spending(runs).amount) >= runs * Fraction(plan.cost)
    for plan in (
        es.plan(PROBLEM, budget, es.gd, iterations=5),
        es.plan(PROBLEM, budget, "objective", shares=(0.2, 0.8)),
    ):
        assert Fraction(plan.spending(runs).amount) >= runs * sum(map(Fraction, map(float, plan.costs)))


@pytest.mark.parametrize("shares", [(1.0,), (0.3, 0.7)], ids=str)
def test_the_corners_that_a_ledger_is_charged_hold_every_output_exactly(shares):
    """In fractions: the shift of each corner is at least that of the tilts and of all the outputs together."""
    for epsilon in (0.3, 1.0, 4.0):
        plan = es.plan(PROBLEM, es.Approximate(epsilon, 1e-6), "objective", mechanism="gaussian", shares=shares)
        outputs = sum(map(Fraction, plan.output_costs))
        assert outputs > 0
        for charged, tilts in zip(plan.cost.shifts, plan.corners.shifts, strict=True):
            assert Fraction(tilts) + outputs <= Fraction(charged) <= (Fraction(tilts) + outputs) * (1 + Fraction(1e-9))
        assert plan.cost.ratios == plan.corners.ratios
        assert plan.cost.multiplicities == plan.corners.multiplicities


@pytest.mark.parametrize("saturation", [Sigmoid(), Sigmoid(4.0), Softmax(3), Softmax(6)], ids=str)
def test_the_corners_that_are_taken_are_the_best_of_their_kind(saturation):
    """No other tangent has a smaller delta."""
    for kappa, mu, epsilon in ((0.5, 0.3, 1.0), (3.0, 0.5, 2.0)):
        found = minima.best_corners(saturation, kappa, mu, epsilon).delta(mu, epsilon)
        for tangent in np.linspace(0.01, 1, 34):
            assert found <= Corners(*saturation.corners_at(kappa, tangent)).delta(mu, epsilon) * (1 + 1e-6)


JACOBIANS = {
    Sigmoid(): lambda kappa, a: np.log1p(kappa * a * (1 - a)),
    Sigmoid(5.0): lambda kappa, a: np.log1p(5 * kappa * a * (1 - a)),
    PseudoHuber(): lambda kappa, a: np.log1p(kappa * (1 - a**2) ** 1.5),
    Softmax(4): lambda kappa, a: 2 * np.log1p(kappa * a / 3) + np.log1p(kappa * 4 * a * (1 - a) / 3),
}


@pytest.mark.parametrize("saturation", JACOBIANS, ids=str)
def test_the_largest_charge_is_that_of_a_fine_grid(saturation):
    """The maximum of J(a) + pull a, for weights and pulls of all sizes: never below the grid's, and hardly above."""
    a = np.linspace(0, 1, 4001)
    for kappa in np.geomspace(1e-3, 1e4, 25):
        charge = JACOBIANS[saturation](kappa, a)
        steepest = np.max(-np.diff(charge)) * 4000
        for pull in steepest * np.array([0.0, 0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0, 1.1, 3.0]):
            found, grid = saturation.largest(kappa, pull), float(np.max(charge + pull * a))
            assert grid * (1 - 1e-12) <= found <= grid * (1 + 1e-4) + 1e-9


@pytest.mark.parametrize(("budget", "wishart"), [(es.Pure(1.0), True), (es.Concentrated(0.1), False)])
def test_the_deviation_of_released_statistics_is_that_of_their_noise(budget, wishart):
    """Of a diagonal entry: seeded draws of SciPy's Wishart matrices agree to 3 %, with a chance of 1e-4 to fail."""
    plan = es.plan(es.Problem(es.Squared(), es.Ball(1), ridge=0.5, n=400, d=3), budget, "statistics")
    drawn = stats.wishart(df=6, scale=np.eye(5)).rvs((2, 2000), random_state=1) if wishart else 0
    expected = np.diagonal(drawn[0] - drawn[1], axis1=1, axis2=2).std() if wishart else 1.0
    assert plan.deviation == pytest.approx(plan.scale * expected, rel=0.03)


def test_the_error_of_a_tilted_minimum_is_that_of_its_tilts():
    """E|b|²/(2 n² ridge), where E|b|² = d (d + 1) s² for each; minima count by their precision 1/s²."""
    plan = es.plan(PROBLEM, es.Pure(3.0), "objective", mechanism="l2", shares=(0.2, 0.8))
    first, second = plan.scales
    precisions = np.array([1 / first**2, 1 / second**2])
    assert plan.weights == pytest.approx(precisions / precisions.sum())
    energy = 12 * sum(weight**2 * scale**2 for weight, scale in zip(plan.weights, plan.scales, strict=True))
    assert plan.utility.bound >= energy / (2 * 400**2 * plan.ridge)
    single = es.plan(PROBLEM, es.Pure(3.0), "objective", mechanism="l2")
    assert single.ridge == PROBLEM.ridge
    assert single.utility.bound == pytest.approx(12 * single.scales[0] ** 2 / (2 * 400**2 * 0.5), rel=1e-2)


def test_a_prediction_counts_the_bias_of_more_ridge_than_was_asked_for():
    """The bias along each entry is that of a quadratic, and noise counts by the curvature that was declared."""
    plan = es.plan(PROBLEM, es.Pure(3.0), "objective")
    for less in (0.0, 0.1, 0.4):
        declared = replace(PROBLEM, ridge=PROBLEM.ridge - less)
        typical = Typical(declared)
        power = (plan.scales[0] / 400) ** 2 * typical.gradient_power(plan.noise)
        pulled = less / (typical.curvature + plan.ridge)
        noise = power * (typical.curvature + declared.ridge) / (2 * (typical.curvature + plan.ridge) ** 2)
        expected = np.sum(typical.gains * pulled**2 + noise)
        assert replace(plan, problem=declared).utility.expected == pytest.approx(expected)


def test_costs_in_rho_are_rounded_up_in_fractions():
    """rho = epsilon²/2 = mu²/2."""
    rng = np.random.default_rng(1)
    for cost in (10.0 ** rng.uniform(-6, 3, 200)).tolist():
        for kind in (Epsilon, Mu):
            assert Fraction(es.Concentrated(1.0).of(kind(cost)).amount) >= Fraction(cost) ** 2 / 2
        assert es.Pure(1.0).of(Epsilon(cost)) == es.Pure(cost)


@pytest.mark.parametrize("budget", [es.Pure(1.0), es.Concentrated(0.1)], ids=str)
def test_small_eigenvalues_of_statistics_are_raised_to_a_share_of_the_noises_norm(budget):
    """That norm is about the deviation times √(2k); twice the epsilon, half the noise, half the floor."""
    problem = es.Problem(es.Squared(), es.Ball(1), ridge=0.5, n=400, d=3)
    plan = es.plan(problem, budget, "statistics")
    assert 0.1 < plan.floor / (plan.deviation * np.sqrt(2 * plan.vectors.size)) < 3
    other = es.plan(problem, es.Pure(2.0) if isinstance(budget, es.Pure) else es.Concentrated(0.4), "statistics")
    assert other.floor == pytest.approx(plan.floor / 2, rel=1e-6)


def test_several_gaussian_tilts_fit_their_budget_where_the_ridge_must_grow():
    """Jacobians of two releases cost more than epsilon at a ridge where that of one does not: more ridge is taken."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=1e-3, n=100, d=2)
    plan = es.plan(problem, es.Approximate(0.3, 1e-6), "objective", mechanism="gaussian", shares=(0.5, 0.5))
    assert 0.99 * 0.3 < plan.spent <= 0.3
    assert plan.ridge > problem.ridge


@pytest.mark.parametrize("name", OUTPUTS)
def test_no_other_ridge_of_a_noisy_minimum_is_predicted_to_be_better(name):
    """The same budget at another ridge has noise in proportion to 1/ridge."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=1e-6, n=2000, d=3)
    plan = es.plan(problem, es.Approximate(0.5, 1e-6), "output", mechanism=name)
    for factor in (0.25, 0.8, 1.25, 4.0):
        other = replace(plan, ridge=factor * plan.ridge, scale=plan.scale / factor * (1 + 1e-9))
        assert other.utility.expected > plan.utility.expected


def test_hardly_any_other_ridge_of_a_gaussian_tilt_is_predicted_to_be_better():
    """On the typical problem, at each one's largest mu; they are tried 1.25 apart."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=1e-6, n=300, d=4)
    plan = es.plan(problem, es.Approximate(1.0, 1e-6), "objective", mechanism="gaussian")

    def loss(ridge):
        objective = Minimised(problem, ridge)
        found = minima.calibrated(0.995, 1e-6, objective.kappa, objective.saturation)
        if found is None:
            return np.inf
        typical = Typical(problem)
        power = (objective.sensitivity(2) / found.mu / 300) ** 2 * typical.gradient_power(plan.noise)
        return float(typical.bias(ridge) + typical.noise(power, ridge))

    own = plan.utility.expected
    assert own == pytest.approx(loss(plan.ridge), rel=1e-3)
    assert own <= 1.05 * min(loss(factor * plan.ridge) for factor in np.geomspace(0.1, 10, 15))
