"""Shapes and their samplers: what a new one needs, what every shape promises, and the two shapes of matrices."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from conftest import records
from test_shaped_noise import box, chi_squared, only_the_right_scale

import epsteps as es
from epsteps.budgets.costs import Epsilon, Rho
from epsteps.budgets.mechanisms import KNorm, named, of_matrices
from epsteps.noise import SAMPLERS, Sampler, Source, added
from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import rounded_gaussian
from epsteps.noise.laplace import discrete_laplace, float_laplace
from epsteps.problem.shapes import (
    L1,
    L2,
    RULES,
    Body,
    Covariance,
    Ellipsoid,
    Frobenius,
    Hull,
    Nuclear,
    Rule,
    Shape,
    Spherical,
)

CUBE = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=40, d=2)


@dataclass(frozen=True)
class Toy(Shape):
    """A weighted L1 norm, of at most 1 on the cube: a shape that the library does not have."""

    weights: tuple[float, ...]

    @property
    def d(self):
        return len(self.weights)

    @property
    def cube(self):
        return sum(self.weights)

    @property
    def covariance(self):
        return Covariance(2 / np.square(self.weights))

    def gauge(self, z):
        return np.tensordot(self.weights, np.abs(z), axes=1)


def toy_integers(bits, shape, scales):
    each = (scales.T / np.array(shape.weights)).T
    return discrete_laplace(bits, each.reshape(-1)).reshape(scales.shape)


def toy_floats(uniform, shape, form):
    return float_laplace(uniform, shape, form) / np.array(shape.weights)[:, None]


TOY = Toy((1 / 3, 2 / 3))


@pytest.fixture
def toy(monkeypatch):
    """Add the shape with its name, and its sampler: the two things that a new shape needs."""
    monkeypatch.setitem(RULES, "toy", Rule((Toy,), lambda problem: TOY))
    monkeypatch.setitem(SAMPLERS, Toy, Sampler(toy_integers, toy_floats))
    return KNorm("toy")


def test_noise_of_a_toy_shape_has_its_law(toy):
    """All points of a box, and all others together; two thirds and three halves of the scale are rejected."""
    t, side = 1.2, 25
    sample = Source(1).integers(toy, t, (2, 4000), TOY)
    z = box(2, side)
    inside = np.abs(sample).max(axis=0) <= side
    codes = np.ravel_multi_index(tuple(sample[:, inside] + side), (2 * side + 1,) * 2)
    counts = np.append(np.bincount(codes, minlength=z.shape[1]), np.count_nonzero(~inside))

    def pvalue(factor):
        wide = np.exp(-TOY.gauge(box(2, 8 * side)) / (factor * t)).sum()
        law = np.exp(-TOY.gauge(z) / (factor * t)) / wide
        return chi_squared(counts, np.append(law, max(1 - law.sum(), 0)))

    only_the_right_scale(pvalue)


@pytest.mark.parametrize(("factor", "is_private"), [(1, True), (1 / 2, False)])
def test_a_sum_with_noise_of_a_toy_shape_costs_its_gauge(toy, monkeypatch, factor, is_private):
    """P(z + Δ)/P(z) <= exp(gauge(Δ)/t), for sums that Δ apart; noise of half its scale breaks it, beyond any chance.

    The two likeliest outputs say so: a binomial count is within five standard deviations of what the bound allows.
    """
    right, t, draws, change = SAMPLERS[Toy].integers, 2.0, 20_000, np.array([1, -2])
    weak = Sampler(lambda bits, shape, scales: right(bits, shape, factor * scales))
    monkeypatch.setitem(SAMPLERS, Toy, weak)
    sums = np.array([7, -3])
    first, second = (
        added(np.repeat((sums + moved)[:, None], draws, axis=1), Source(seed).integers(toy, t, (2, draws), TOY))
        for seed, moved in ((2, 0 * change), (3, change))
    )
    bound = np.exp(TOY.gauge(change) / t)
    within = []
    for output in (sums, sums + change):
        counts = [np.count_nonzero(np.all(released == output[:, None], axis=0)) for released in (first, second)]
        fewer, more = sorted(counts)
        within.append(more <= bound * fewer + 5 * np.sqrt(more + bound**2 * fewer))
    assert all(within) is is_private


def planned(mechanism):
    plan = es.plan(CUBE, es.Pure(1.0), es.gd, iterations=2, mechanism="linf", sensitivity="global")
    return dataclasses.replace(plan, mechanism=mechanism)


def test_a_plan_runs_with_noise_of_a_toy_shape_in_integers_and_in_floats(toy):
    """It is paid by the toy's gauge, in which the cube is 1: what a plan of "linf" pays."""
    plan, rows = planned(toy), es.Rows(CUBE, *records(CUBE))
    assert plan.spent <= 1
    for arithmetic in ("exact", "float"):
        run = es.run(plan, rows, seed=4, repetitions=2000, arithmetic=arithmetic)
        step = run.path[0] - run.path[1]
        moved = (step - step.mean(axis=1, keepdims=True)) / plan.steps.alpha[0] / plan.scales[0]
        np.testing.assert_allclose(moved.var(axis=1), TOY.variances, rtol=0.2)


def test_a_replay_measures_a_toy_shape_by_its_gauge(toy, monkeypatch):
    from epsteps.testing import ReplayError, replay

    plan = planned(toy)
    X, y = records(CUBE)
    other = X.copy()
    other[0] = -np.sign(X[0])

    def fit(data, account):
        return es.run(plan, es.Rows(CUBE, *data), ledger=account, anyway=True)

    assert replay(fit, (X, y), (other, y), costs=plan.costs).spent <= 1
    monkeypatch.setattr(Toy, "gauge", lambda self, z: 100 * np.tensordot(self.weights, np.abs(z), axes=1))
    with pytest.raises(ReplayError, match=r"moved by .* of its noise, but is declared as"):
        replay(fit, (X, y), (other, y), costs=plan.costs)


def test_floats_of_a_toy_shape_have_its_variances(toy):
    sample = Source(5).draw(toy, 3.0, (2, 20_000), TOY) / 3
    np.testing.assert_allclose(sample.var(axis=1), TOY.variances, rtol=0.1)


def test_shapes_without_a_sampler_are_refused(monkeypatch):
    """Not even where their base has one: its noise is not theirs."""

    class Wider(Body):
        pass

    wider = Wider((), ((0,), (1,)))
    monkeypatch.setitem(RULES, "wider", Rule((Wider,)))
    with pytest.raises(TypeError, match="there is no sampler for Wider"):
        Source(6).integers(KNorm("wider"), 5.0, (2,), wider)
    with pytest.raises(ValueError, match=r"body must be a Body of 2 coordinates for 'linf' noise, got .*Wider"):
        Source(6).integers(named("linf"), 5.0, (2,), wider)
    with pytest.raises(ValueError, match="body must be a L1 of 2 coordinates for 'laplace' noise"):
        Source(6).integers(named("laplace"), 5.0, (2,), wider)


SHAPES = (
    L1(4),
    L2(4),
    Spherical(4),
    Body((0, 2), ((1, 3),)),
    Hull(((0, 1), (2,)), (3,)),
    Ellipsoid((0, 1), (1.0, 2.0, 0.5, 1.0), 0.7),
    Nuclear(4),
    Frobenius(4),
    Frobenius(4, lower=True),
)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_every_shape_is_a_norm_within_its_cube_and_has_a_sampler(shape):
    rng = np.random.default_rng(7)
    for _ in range(50):
        first, second = (rng.uniform(-1, 1, shape.array) for _ in range(2))
        if shape.array == (4, 4):
            first, second = first + first.T, second + second.T
            first, second = first / np.abs(first).max(), second / np.abs(second).max()
        sizes = shape.gauge(first), shape.gauge(second)
        assert min(sizes) > 0
        assert shape.gauge(first + second) <= sum(sizes) * (1 + 1e-12)
        assert shape.gauge(-3 * first) == pytest.approx(3 * sizes[0])
        assert max(sizes) <= shape.cube * (1 + 1e-12)
    assert Source(8).shaped(shape, 50.0).shape == shape.array
    assert len(shape.variances) == shape.d
    assert shape.cell == (0.0 if shape.rounded else shape.cube)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_the_root_of_a_covariance_is_bounded_from_below_and_not_far(shape):
    covariance = shape.covariance
    for units in (np.ones(shape.d), np.random.default_rng(3).uniform(0.2, 5.0, shape.d)):
        exact = np.sum(np.sqrt(np.linalg.eigvalsh(np.outer(units, units) * covariance.matrix)))
        assert 0.5 * exact <= covariance.root_trace(units) <= exact * (1 + 1e-12)


def test_what_is_common_and_negative_is_left_out_of_a_root():
    covariance = Covariance(np.array([2.0, 3.0, 1.0]), (0, 1), -0.9)
    exact = np.sum(np.sqrt(np.linalg.eigvalsh(covariance.matrix)))
    assert 0.5 * exact <= covariance.root_trace(np.ones(3)) <= exact


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.gaussian], ids=repr)
def test_a_gaussian_gauge_is_that_of_its_covariance(shape):
    """√(Δ'Σ⁻¹Δ), over the coordinates that are drawn: of a matrix those of its upper triangle."""
    change = np.random.default_rng(9).standard_normal(shape.array)
    change = change + change.T if change.ndim == 2 else change
    each = change[np.triu_indices(4)] if change.ndim == 2 else change
    expected = np.sqrt(each @ np.linalg.solve(shape.covariance.matrix, each))
    assert shape.gauge(change) == pytest.approx(expected)


@pytest.mark.parametrize("shape", [Nuclear(2), Frobenius(2), Frobenius(2, lower=True)], ids=repr)
def test_matrices_are_symmetric_and_have_their_covariance(shape):
    """Of 400 draws: five standard errors of a sample's correlations, and three of its variances."""
    kind = Rho if shape.gaussian else Epsilon
    source, scale = Source(10), 2.0**20
    draws = [source.integers(of_matrices(kind), scale, shape.array, shape) for _ in range(400)]
    assert all(np.array_equal(draw, draw.T) for draw in draws)
    entries = np.array([draw[np.triu_indices(2)] for draw in draws]).T / scale
    found = np.cov(entries) / np.sqrt(np.outer(shape.variances, shape.variances))
    np.testing.assert_allclose(found, np.eye(shape.d), atol=0.35)
    assert not np.allclose(np.cov(entries / 1.5), shape.covariance.matrix, rtol=0.35)


@pytest.mark.parametrize("lower", [False, True])
def test_a_gaussian_matrix_is_drawn_in_the_order_it_was_published_in(lower):
    """Entry by entry of one triangle; scales off the diagonal are never below scale/√2, up to what the gauge says."""
    k, scale, shape = 5, 2.0**40 / 3, Frobenius(5, lower)
    rows, columns = np.tril_indices(k) if lower else np.triu_indices(k)
    off = scale * np.sqrt(0.5) if lower else np.nextafter(scale * np.sqrt(0.5), np.inf)
    vector = rounded_gaussian(Bits(11), np.where(rows == columns, scale, off))
    np.testing.assert_array_equal(Source(11).shaped(shape, scale)[rows, columns], vector)
    assert not np.array_equal(Source(11).shaped(Frobenius(k, not lower), scale), Source(11).shaped(shape, scale))
    change = 1 - np.eye(k)
    assert shape.gauge(change) / scale >= np.sqrt(k * (k - 1) / 2) / off * (1 - 2.0**-53)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda s, pure: s.integers(pure, 5.0, (3, 3)), "body must be a Nuclear of 3 coordinates for 'wishart' noise"),
        (lambda s, pure: s.integers(pure, 5.0, (3, 2), Nuclear(3)), "body must be a Nuclear of 3 coordinates"),
        (lambda s, pure: s.integers(pure, 5.0, (3, 3), Frobenius(3)), "body must be a Nuclear of 3 coordinates"),
        (
            lambda s, pure: s.integers(pure, 1.0 + np.eye(3), (3, 3), Nuclear(3)),
            "scale must be one number for noise of",
        ),
        (lambda s, pure: s.draw(pure, 1.0, (3, 3), Nuclear(3)), "there is no 'wishart' noise in floats"),
        (lambda s, pure: pure.shape(CUBE), "mechanism 'wishart' does not fit"),
    ],
)
def test_matrices_of_other_forms_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw(Source(12), of_matrices(Epsilon))


def test_matrices_are_no_noise_of_gradients():
    for kind in (Epsilon, Rho):
        assert of_matrices(kind).kind is kind
        assert not of_matrices(kind).covers(CUBE)
        with pytest.raises(ValueError, match="mechanism must be one of 'laplace', 'l2'"):
            named(of_matrices(kind).name)
