"""Noise that adds up to 0 over the classes: its exact law, its size, what it protects, and what it must not protect."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from test_shaped_noise import chi_squared, only_the_right_scale

import epsteps as es
from epsteps.budgets import Epsilon, Rho, mechanisms
from epsteps.budgets.mechanisms import Gaussian, KNorm, named
from epsteps.methods import minima
from epsteps.methods.minimum import Goal, Minimised, Minimum, Tilt
from epsteps.noise import SAMPLERS, Source
from epsteps.noise.balanced import balanced
from epsteps.plans.requests import Gradient
from epsteps.problem.balanced import (
    BalancedBlocks,
    BalancedEllipsoid,
    BalancedL1,
    BalancedL2,
    BalancedSphere,
)
from epsteps.problem.losses import CappedSoftmax
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import Body

NAMES = tuple(name for name in mechanisms.TILTS if name not in mechanisms.NAMES)
SMALL = {
    "three classes": BalancedBlocks(3, 1, ((0,),)),
    "five classes": BalancedBlocks(5, 1, ((0,),)),
    "two columns": BalancedBlocks(3, 2, ((0,), (1,))),
    "a category": BalancedBlocks(3, 2, ((0, 1),)),
    "two classes": BalancedBlocks(2, 3, ((1,), (0, 2))),
    "L1": BalancedL1(4, 1),
    "L1 of two columns": BalancedL1(3, 2),
}
ELLIPSOID = Body(hull=(0, 2), blocks=((1,),)).ellipsoid(np.array([1.0, 2.0, 0.5]))
SHAPES = [
    *SMALL.values(),
    BalancedBlocks(7, 5, ((0, 3), (1,), (4, 2))),
    BalancedL1(6, 4),
    BalancedL2(4, 3),
    BalancedSphere(4, 3),
    BalancedEllipsoid.around(4, ELLIPSOID),
]
DOMAINS = [es.Ball(2.0), es.Ball(0.7, norm=1), es.Ball(1, norm=np.inf), es.Box((0, -1, 0, 0), (2, 1, 0.3, 1))]
DOMAINS.append(es.Box(0, (2, 1, 1, 1), one_hot=[(1, 4)]))
BUDGETS = [es.Pure(1.0), es.Approximate(1.0, 1e-6)]


def problem_of(domain, k=3, *, n=200, d=4, intercept=True, ridge=0.05):
    return es.Problem(es.Softmax(tuple(range(k))), domain, ridge=ridge, n=n, d=d, intercept=intercept)


def drawn(shape, scale, count, seed=1):
    source = Source(seed)
    return np.stack([source.shaped(shape, scale) for _ in range(count)], axis=1)


def lattice(shape, side):
    """Return all integer vectors that add up to 0 and whose first classes lie within a cube."""
    free = np.array(np.meshgrid(*[np.arange(-side, side + 1)] * shape.free, indexing="ij"))
    free = free.reshape(shape.classes - 1, shape.size, -1)
    return np.concatenate([free, -free.sum(axis=0, keepdims=True)]).reshape(shape.d, -1)


@pytest.mark.parametrize("name", SMALL)
def test_integers_have_exactly_their_law(name):
    """All points of a small gauge, and all others together; two thirds and three halves of the scale are rejected."""
    shape = SMALL[name]
    t = 4.0 if isinstance(shape, BalancedL1) else 2.0
    most = {1: 30, 2: 12, 3: 6, 4: 4}[shape.free]
    points = lattice(shape, most)
    gauges = shape.gauge(points)
    points, gauges = points[:, gauges <= most], gauges[gauges <= most]
    sample = drawn(shape, t, 800)
    assert sample.dtype == np.int64
    assert not sample.reshape(shape.classes, shape.size, -1).sum(axis=0).any()
    place = {tuple(point): i for i, point in enumerate(points.T.tolist())}
    found = np.array([place.get(tuple(z), len(place)) for z in sample.T.tolist()])
    counts = np.bincount(found, minlength=len(place) + 1)

    def pvalue(factor):
        masses = np.exp(-gauges / (factor * t))
        return chi_squared(counts, np.append(masses, outside(shape, most, factor * t)))

    only_the_right_scale(pvalue)


def outside(shape, most, t):
    """Return the sum of exp(-|z|/t) beyond a gauge: by how many points there are of each, a convolution."""
    radii = np.arange(2000)
    single = np.zeros(len(radii))
    for a in range(1, shape.classes):
        k, s = shape.classes, radii[1:].astype(float)
        ways = np.prod([s - i for i in range(1, a)], axis=0) * np.prod([s + i for i in range(1, k - a)], axis=0)
        single[1:] += math.comb(k, a) * ways / math.factorial(a - 1) / math.factorial(k - a - 1)
    single[0] = 1
    halves = shape.halves if isinstance(shape, BalancedL1) else shape
    balls = np.ones(len(radii))
    for block in halves.blocks:
        each = np.eye(1, len(radii))[0]
        for _ in block:
            each = np.convolve(each, single)[: len(radii)]
        balls *= np.cumsum(each)
    spheres = np.diff(balls, prepend=0.0)
    sizes = radii * (2 if isinstance(shape, BalancedL1) else 1)
    return float(np.sum((spheres * np.exp(-sizes / t))[sizes > most]))


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_noise_of_a_large_scale_has_the_size_and_the_covariance_that_are_declared(shape):
    """The gauge is a Gamma(D) or a chi(D) variable; floats and integers have one covariance, that of the shape."""
    count, t = 500, 2.0**36
    z = drawn(shape, t, count)
    assert not z.reshape(shape.classes, shape.size, -1).sum(axis=0).any()
    sizes = shape.gauge(z) / t
    kind = stats.chi if shape.gaussian else stats.gamma
    only_the_right_scale(lambda factor: stats.kstest(sizes, kind(shape.free, scale=factor).cdf).pvalue)
    floats = SAMPLERS[type(shape)].floats(Source(2)._uniform, shape, (2, shape.d, count))
    floats = np.moveaxis(floats, 1, 0).reshape(shape.d, -1)
    only_the_right_scale(lambda factor: stats.kstest(shape.gauge(floats), kind(shape.free, scale=factor).cdf).pvalue)
    for sample in (z / t, floats):
        power = np.mean(sample**2, axis=1)
        np.testing.assert_allclose(power, shape.variances, rtol=0.5)
        assert np.sum(power) == pytest.approx(shape.covariance.trace(np.ones(shape.d)), rel=0.2)
    matrix = shape.covariance.matrix
    np.testing.assert_allclose(np.diag(matrix), shape.variances)
    v = np.random.default_rng(0).standard_normal(shape.d)
    assert shape.covariance.along(v) == pytest.approx(v @ matrix @ v)
    assert shape.covariance.trace(np.ones(shape.d)) == pytest.approx(np.trace(matrix))
    root = np.sum(np.sqrt(np.maximum(np.linalg.eigvalsh(matrix), 0.0)))
    assert 0.5 * root <= shape.covariance.root_trace(np.ones(shape.d)) <= root * (1 + 1e-9)


def test_the_trace_is_smaller_by_what_the_classes_share():
    """Gaussian noise by (k - 1)/k, and Laplace noise by 2.40, 1.44 and 1.29 for 3, 7 and 10 classes."""
    for k, gain in ((3, 2.40), (7, 1.44), (10, 1.29)):
        ones = np.ones(4 * k)
        assert np.sum(BalancedSphere(k, 4).variances) == pytest.approx(4 * (k - 1))
        assert 2 * 4 * k / BalancedL1(k, 4).covariance.trace(ones) == pytest.approx(gain, abs=0.005)
        assert BalancedL2(k, 4).covariance.trace(ones) == 4 * (k - 1) * (4 * (k - 1) + 1)


def test_integers_are_balanced_next_to_their_projection():
    """Within √k/2 of it in each feature, whatever they add up to; a change that is balanced goes through."""
    rng = np.random.default_rng(3)
    for k in (2, 3, 7, 26):
        z = rng.integers(-(2**40), 2**40, (k, 50))
        found = balanced(z.reshape(-1), k).reshape(k, 50)
        assert not found.sum(axis=0).any()
        shift = found - z
        off = shift - shift.mean(axis=0)
        assert np.max(np.sum(off**2, axis=0)) <= k / 4 + 1e-6
        change = rng.integers(-9, 9, (k, 50))
        change[0] -= change.sum(axis=0)
        np.testing.assert_array_equal(balanced((z + change).reshape(-1), k).reshape(k, 50), found + change)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_stay_within_their_share_of_the_sensitivity_and_reach_it(name, domain):
    """For records of the domain at points near and far: |q| <= a sensitivity/2, and twice that between neighbours."""
    noise, rng = named(name), np.random.default_rng(0)
    first, second = np.triu_indices(300, 1)  # a norm: the other order moves by as much
    for k, intercept in itertools.product((3, 5), (False, True)):
        problem = problem_of(domain, k, intercept=intercept)
        if not noise.covers(problem):
            assert domain == DOMAINS[0]
            return
        shape, units = noise.shape(problem), noise.units(problem)[:, None]
        far = domain.project(1e6 * rng.choice([-1.0, 0.0, 1.0], (300, problem.d)))
        rows = np.hstack([far, np.ones((300, int(intercept)))])
        labels, largest = rng.integers(0, k, 300), 0.0
        for size in (0.1, 3.0, 60.0):
            x = size * rng.standard_normal((k, problem.width))
            slopes = problem.loss.derivative((rows @ x.T)[:, :, None], labels[:, None, None])[:, :, 0]
            gradients = (slopes[:, :, None] * rows[:, None, :]).reshape(300, -1).T
            shares = -slopes[np.arange(300), labels]
            sizes = shape.gauge(gradients / units) / problem.sensitivity(noise.norm)
            assert np.all(sizes <= shares / 2 * (1 + 1e-9) + 1e-12)
            moved = shape.gauge((gradients[:, first] - gradients[:, second]) / units)
            largest = max(largest, float(moved.max()) / problem.sensitivity(noise.norm))
        assert (0.3 if name == "balanced ellipsoid" else 0.6) < largest <= 1 + 1e-9


def test_what_all_classes_share_is_not_hidden():
    """A change that does not add up to 0 has no finite cost; the shadow of a vector has."""
    for shape in SHAPES:
        ones = np.ones(shape.d)
        assert shape.gauge(ones) == np.inf
        z = np.random.default_rng(1).standard_normal((shape.d, 3))
        assert np.all(np.isinf(shape.gauge(z)))
        assert np.all(np.isfinite(shape.gauge(shape.shadow(z))))
        np.testing.assert_allclose(shape.shadow(shape.shadow(z)), shape.shadow(z))


def refused(make):
    with pytest.raises(ValueError, match=r"tilts, and protects no sum|does not fit|must be one of"):
        make()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_refused_for_sums_of_gradients_for_outputs_and_for_other_losses(name):
    problem = problem_of(DOMAINS[2], n=40)
    noise = named(name)
    budget = es.Pure(1.0) if noise.kind is Epsilon else es.Concentrated(0.5)
    refused(lambda: es.plan(problem, budget, es.gd, mechanism=name))
    plan = es.plan(problem, budget, es.gd, iterations=2)
    refused(lambda: replace(plan, mechanism=noise))
    x = np.zeros(problem.dimension)
    refused(lambda: Gradient(problem, noise, x, 10.0, 1.0, Sampling(40, 40)).costs)
    refused(lambda: es.plan(problem, es.Pure(1.0), "output", mechanism=name))
    refused(lambda: es.plan(replace(problem, loss=es.Logistic()), BUDGETS[1], "objective", mechanism=name))
    goal = Goal(Minimised(problem, 0.1), 2.0**-30, 1e-3, 1e-2)
    refused(lambda: Minimum(goal, noise))
    other = replace(goal, objective=Minimised(replace(problem, loss=es.Logistic()), 0.1))
    refused(lambda: Minimum(other, KNorm("l2"), Tilt(noise, 1.0, 2.0**-30)))


@pytest.mark.parametrize("method", ["objective", "sequential", "adaptive"])
@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_every_tilt_of_several_classes_is_balanced_and_smaller(domain, method):
    """Plans of the prediction's choice, read back from JSON, run; the model adds up to nearly 0 over the classes."""
    problem = problem_of(domain, 4, n=3000, ridge=1e-3)
    rng = np.random.default_rng(2)
    rows = es.Rows(problem, 3 * rng.standard_normal((3000, 4)), rng.integers(0, 4, 3000))
    for budget in BUDGETS:
        plan = es.plan(problem, budget, method)
        assert plan.mechanism.startswith("balanced ")
        assert es.Plan.from_json(plan.to_json()).spent == plan.spent <= budget.amount
        run = es.run(plan, rows, seed=1, anyway=True)
        model = run.x.reshape(4, -1)
        assert np.abs(model.sum(axis=0)).max() < 0.15 * np.abs(model).max()
    for name, kind in (("laplace", Epsilon), ("l2", Epsilon), ("gaussian", Rho)):
        plain, noise = named(name), mechanisms.for_tilts(name, problem)
        assert noise.kind is kind
        assert noise.half_power(1.0, problem) < plain.half_power(1.0, problem)
    assert isinstance(mechanisms.smallest(problem, Rho), Gaussian)
    assert mechanisms.smallest(problem, Rho).name in mechanisms.NAMES


@pytest.mark.parametrize("name", [*NAMES, "capped"])
def test_the_tilt_of_a_minimum_follows_its_law(name):
    """The minimum says which tilt it had; its norm over the scale is a Gamma or a chi variable of V's dimension."""
    problem = problem_of(DOMAINS[4], n=300, intercept=False)
    if name == "capped":
        problem, name = replace(problem, loss=problem.loss.capped(0.6)), "balanced blocks"
    noise = named(name)
    plan = es.plan(problem, BUDGETS[noise.kind is Rho], "objective", mechanism=name)
    rng = np.random.default_rng(4)
    rows = es.Rows(problem, rng.standard_normal((300, 4)), rng.integers(0, 3, 300))
    x = es.run(plan, rows, seed=1, repetitions=120, anyway=True).x
    shape = noise.shape(problem)
    tilt = -problem.n * (rows.gradient(x) + (plan.ridge - problem.ridge) * x)
    sizes = shape.gauge(shape.shadow(tilt) / noise.units(problem)[:, None]) / plan.scales[0]
    law = (stats.chi if shape.gaussian else stats.gamma)(shape.free)
    only_the_right_scale(lambda factor: stats.kstest(sizes / factor, law.cdf).pvalue)


CAPS = (1.0, 0.8, 0.5)


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("kappa", [0.3, 3.0])
def test_no_pair_of_neighbours_exceeds_the_claim_and_some_come_near_it(cap, kappa):
    """Exact log-ratios of densities on V, one column and three classes: two records, one of which is replaced."""
    k, epsilon, rng = 3, 1.0, np.random.default_rng(5)
    loss = es.Softmax((0, 1, 2)).capped(cap)
    problem = es.Problem(loss, es.Ball(1, norm=np.inf), ridge=1 / (2 * kappa), n=2, d=1)
    noise = named("balanced blocks")
    shape, scale = noise.shape(problem), problem.sensitivity(noise.norm) / epsilon
    claim = minima.total_epsilon(epsilon, Minimised(problem, problem.ridge).kappa, loss.saturation)
    basis = np.linalg.svd(np.ones((1, k)))[2][1:]
    directions = np.vstack([np.eye(k) - np.roll(np.eye(k), 1, axis=0), rng.standard_normal((9, k))])
    x = (np.linspace(-12, 12, 49)[:, None, None] * directions).reshape(-1, k)
    x -= x.mean(axis=1, keepdims=True)

    def log_density(records):
        tilt, hessian = 2 * problem.ridge * x, 2 * problem.ridge * np.eye(k)
        for u, y in records:
            target = np.full((len(x), 1), float(y))
            tilt = tilt + u * loss.derivative(u * x, target)
            hessian = hessian + u * u * loss.second(u * x, target)
        volumes = np.linalg.slogdet(basis @ np.broadcast_to(hessian, (len(x), k, k)) @ basis.T)[1]
        return volumes - shape.gauge(tilt.T) / scale

    largest = 0.0
    for common in ((1.0, 0), (-1.0, 0), (-1.0, 2)):
        logs = [log_density([record, common]) for record in itertools.product((1.0, -1.0, 0.4), range(k))]
        largest = max(largest, float(np.max(np.max(logs, axis=0) - np.min(logs, axis=0))))
    assert 0.55 * claim < largest <= claim * (1 + 1e-9), (largest, claim)


@pytest.mark.parametrize("cap", [0.3, 0.7, 0.9, 1.0])
def test_capped_softmax_is_convex_and_its_derivatives_are_those_of_its_value(cap):
    """In long doubles on both sides of the kink; nothing bends more than is declared, and slopes reach the cap."""
    loss, rng = CappedSoftmax((0, 1, 2, 3), cap), np.random.default_rng(6)
    margins = rng.standard_normal((400, 4)) * rng.choice([0.3, 2, 9], (400, 1))
    target = rng.integers(0, 4, (400, 1)).astype(float)
    slopes, bends = loss.derivative(margins, target), loss.second(margins, target)
    np.testing.assert_allclose(slopes.sum(axis=1), 0, atol=1e-15)
    assert np.all(np.linalg.norm(slopes, axis=1) <= cap * loss.joint_slope(2) * (1 + 1e-12))
    assert -np.min(slopes) == pytest.approx(cap, rel=1e-3)
    values = np.linalg.eigvalsh(bends)
    assert values.min() > -1e-12
    assert values.max() <= loss.curvature
    np.testing.assert_allclose(loss.bends(margins, target), np.einsum("ikk->ik", bends))
    step = 1e-6
    for i in range(40):
        at, to = margins[i : i + 1], target[i : i + 1]
        p = np.exp(at - at.max())
        if abs(1 - (p / p.sum())[0, int(to[0, 0])] - cap) < 1e-4:
            continue
        for j in range(4):
            side = step * np.eye(4)[j : j + 1]
            up, down = (float(loss.total(at + sign * side, to)) for sign in (1, -1))
            assert (up - down) / (2 * step) == pytest.approx(slopes[i, j], abs=1e-7)
            turned = loss.derivative(at + side, to) - loss.derivative(at - side, to)
            np.testing.assert_allclose(turned[0] / (2 * step), bends[i, j], atol=1e-6)
    longer = loss.derivative(margins.astype(np.longdouble), target)
    assert longer.dtype == np.longdouble
    np.testing.assert_allclose(longer.astype(float), slopes, rtol=0, atol=20 * 2.0**-52 * cap)
    zero = float(loss.total(np.zeros((1, 4)), np.zeros((1, 1))))
    assert loss.value_at_zero == pytest.approx(zero, rel=1e-9)
    assert loss.value_at_zero >= zero


@pytest.mark.parametrize("cap", [0.4, 0.8])
def test_capped_softmax_charges_bound_the_determinants_on_both_sides(cap):
    rng, classes = np.random.default_rng(7), 5
    loss = CappedSoftmax(tuple(range(classes)), cap)
    margins = rng.standard_normal((3000, classes)) * rng.choice([0.5, 3, 10], (3000, 1))
    target = np.zeros((3000, 1))
    shares = -loss.derivative(margins, target)[:, 0] / cap
    assert {True, False} == set((shares < 1).tolist())
    for kappa in (0.1, 2.0, 50.0):
        exact = np.linalg.slogdet(np.eye(classes) + kappa * loss.second(margins, target))[1]
        charges = np.array([loss.saturation._charge(kappa, float(min(a, 1)))[0] for a in shares])
        assert np.all(exact <= charges + 1e-12)
