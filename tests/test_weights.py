"""Weights of long records: no record pulls harder than noise is scaled for, and what is minimised is what is stated."""

import itertools
import json
import math
from dataclasses import dataclass, replace
from decimal import localcontext
from fractions import Fraction
from functools import cache, cached_property
from typing import ClassVar

import numpy as np
import pytest
import test_replay
from scipy.optimize import minimize
from scipy.sparse import csr_array
from test_solver import decimal, exact_slopes, labelled, length

import epsteps as es
from epsteps.auditing.minima import crowds_of, log_ratio, recovered_tilts
from epsteps.budgets import mechanisms
from epsteps.data import sources, stream
from epsteps.data.chunks import Chunk
from epsteps.methods import ObjectivePlan
from epsteps.methods.minimum import (
    LONG,
    Goal,
    Minimised,
    Minimum,
    Tilt,
    least_tolerance,
    rounding,
    tilt_length,
)
from epsteps.plans.notation import PlanFormatError, weighting_from_dict, weighting_to_dict
from epsteps.problem.grid import STEPS
from epsteps.problem.weighting import Weighting
from epsteps.running import passes
from epsteps.running.solver import Start, Tilted, grid_minimum

UNEQUAL = es.Box([-3.0, -1.0, 0.0, -0.01], [3.0, 0.5, 7.0, 0.01])
DOMAINS = {
    "cube": es.Ball(2.0, norm=np.inf),
    "ball": es.Ball(5.0),
    "cross": es.Ball(5.0, norm=1),
    "box": UNEQUAL,
    "categories": es.Box(0, 1, one_hot=[(0, 3)]),
}
WEIGHTED = [(name, norm, share) for name in DOMAINS for norm in (1, 2) for share in (1 / 64, 0.2, 0.7, 1.5)]


def problem_of(name="box", n=60, intercept=True, loss=None, **facts):
    loss = es.Logistic() if loss is None else loss
    return es.Problem(loss, DOMAINS[name], **({"ridge": 0.1, "n": n, "d": 4, "intercept": intercept} | facts))


def objective_of(problem, norm, share, mean=0.6, ridge=0.2):
    """Return an objective in which records count in full up to this share of the longest one's length."""
    return Minimised(problem, ridge, Weighting(norm, share * problem.record_size(norm), mean))


HELD = [(name, norm, share, cap) for name in DOMAINS for norm in (1, 2) for share in (0.2, 1.0) for cap in (0.1, 0.7)]


def held_of(problem, norm, share, cap, ridge=0.2):
    """Return an objective that holds slopes at this cap where records are as long as this share of the longest one."""
    stated = replace(problem, loss=problem.loss.capped(cap))
    return Minimised(stated, ridge, Weighting(norm, share * problem.record_size(norm), held=True))


def all_lengths(problem, n, seed=0):
    """Return records of every length, from 0 to far outside the domain, half of them with zeros; and labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, problem.d)) * 10.0 ** rng.uniform(-4, 3, (n, 1)) * problem.units[: problem.d]
    X[::2] *= rng.choice([0.0, 1.0], (len(X[::2]), problem.d))
    X[1], X[2], X[3] = [np.nan, np.inf, -np.inf, 1e300][: problem.d], 1e300, -1e9
    X[4], X[5] = 0.0, problem.units[: problem.d]
    return X, labelled(problem.loss, rng, n)


def stored(rows):
    """Return the records as they are summed, with the intercept's column, and their targets."""
    blocks = list(rows.blocks())
    return np.concatenate([features for features, _ in blocks]), np.concatenate([targets for _, targets in blocks])


def counted(objective, rows):
    """Return the shares of the records, from their integers."""
    problem, measure = objective.problem, objective.measure
    integers = np.rint(stored(rows)[0] * STEPS / problem.units[: problem.width])
    return integers, measure.shares(
        Chunk(integers, integers[:, 0]).row_sums(measure.factors, measure.most, measure.norm)
    )


@pytest.mark.parametrize(("name", "norm", "share"), WEIGHTED)
@pytest.mark.parametrize("intercept", [False, True])
def test_no_record_counts_more_than_the_radius_allows_in_fractions(name, norm, share, intercept):
    """And none much less: what lengths are rounded up by, and weights down, is small."""
    problem = problem_of(name, intercept=intercept)
    objective = objective_of(problem, norm, share)
    integers, (weights, shortening, caps) = counted(objective, es.Rows(problem, *all_lengths(problem, 60)))
    assert caps is None
    radius, units = Fraction(objective.weighting.radius), [Fraction(unit) for unit in problem.units.tolist()]
    assert np.all((weights >= 0) & (weights <= 1) & (weights * 2**20 % 1 == 0) & (shortening * 2**20 % 1 == 0))
    for row, weight, short in zip(integers.tolist(), weights.tolist(), shortening.tolist(), strict=True):
        entries = [Fraction(entry) * unit / STEPS for entry, unit in zip(row, units, strict=True)]
        power = sum(entry**2 for entry in entries) if norm == 2 else sum(map(abs, entries)) ** 2
        assert Fraction(weight * short) ** 2 * power <= radius**2
        usual = min(1.0, float(radius) / math.sqrt(max(power, 1e-100)))
        assert weight >= max(usual, 0.5 * (norm == 2)) * (1 - 2e-3) - 2.0**-19
        assert norm == 2 or short == 1
        if norm == 2:
            assert Fraction(short) ** 2 * power <= 4 * radius**2
            assert short >= min(1, 2 * usual) * (1 - 2e-3) - 2.0**-19 or usual == 1


@pytest.mark.parametrize(("name", "norm", "share", "cap"), HELD)
def test_no_record_pulls_harder_than_its_own_cap_allows_in_fractions(name, norm, share, cap):
    """No cap is below the loss's, and none much lower than it may be; no record is longer than the radius."""
    problem = problem_of(name)
    objective = held_of(problem, norm, share, cap)
    integers, (weights, shortening, caps) = counted(objective, es.Rows(problem, *all_lengths(problem, 60)))
    radius, units = Fraction(objective.weighting.radius), [Fraction(unit) for unit in problem.units.tolist()]
    assert np.all(weights == 1)
    assert np.all((caps >= cap) & (caps <= 1))
    for row, own, short in zip(integers.tolist(), caps.tolist(), shortening.tolist(), strict=True):
        entries = [Fraction(entry) * unit / STEPS for entry, unit in zip(row, units, strict=True)]
        power = sum(entry**2 for entry in entries) if norm == 2 else sum(map(abs, entries)) ** 2
        square = sum(entry**2 for entry in entries)
        assert Fraction(short) ** 2 * power <= radius**2
        assert Fraction(own) ** 2 * Fraction(short) ** 2 * power <= Fraction(cap) ** 2 * radius**2
        assert Fraction(own) * Fraction(short) ** 2 * square <= Fraction(cap) * Fraction(objective.square)
        usual = float(radius) / math.sqrt(max(power, 1e-100))
        assert short >= min(1, usual) * (1 - 2e-3) - 2.0**-19
        assert own >= min(1, max(cap * usual, cap)) * (1 - 2e-3) - 2.0**-19
    assert objective.gradient_size == pytest.approx(cap * objective.weighting.radius)


@pytest.mark.parametrize(("name", "norm", "share", "cap"), HELD)
@pytest.mark.parametrize("loss", [es.Logistic(), es.Softmax(classes=(-1, 0, 1))], ids=["logistic", "softmax"])
def test_replaced_records_move_no_more_than_is_declared_where_slopes_are_held(name, norm, share, cap, loss):
    """The gradient by at most the sensitivity, ln det of the Hessian by at most kappa's, and no gradient is longer."""
    objective = held_of(problem_of(name, n=2, loss=loss), norm, share, cap)
    problem = objective.problem
    X, y = all_lengths(problem, 24)
    rng, largest = np.random.default_rng(1), objective.saturation.largest(objective.kappa, 0.0)
    for i in range(6, 24, 2):
        other = (X[[0, (5 * i) % 24]], y[[0, (5 * i) % 24]])
        x = rng.standard_normal(problem.dimension) * 10.0 ** rng.uniform(-2, 2)
        (first, one), (second, two) = (sides(problem, objective, *each, x) for each in ((X[[0, i]], y[[0, i]]), other))
        assert np.linalg.norm(first - second, ord=norm) <= objective.sensitivity(norm)
        assert abs(np.linalg.slogdet(one)[1] - np.linalg.slogdet(two)[1]) <= largest + 1e-5
        assert np.linalg.norm(first - 0.4 * x) <= 2 * objective.gradient_size
        assert np.linalg.norm(one, ord=2) <= 2 * objective.L * (1 + 1e-5)


def sides(problem, objective, X, y, x):
    """Return the gradient and the Hessian of the sum, as the solver's passes have them."""
    rows = es.Rows(problem, X, y, engine="numpy")
    gradient = passes.certified_gradient(rows, objective, x, np.zeros(len(x)), passes.FINE).gradient.astype(float)
    return gradient, problem.n * passes.hessian(rows, objective, x, None)


@pytest.mark.parametrize(("name", "norm", "share"), WEIGHTED)
def test_replaced_records_of_every_length_move_no_more_than_is_declared(name, norm, share):
    """The gradient by at most the sensitivity, ln det of the Hessian by at most kappa's, and no gradient is longer."""
    problem = problem_of(name, n=2)
    objective = objective_of(problem, norm, share)
    X, y = all_lengths(problem, 24)
    rng, moved, pulled = np.random.default_rng(1), [], []
    largest = objective.saturation.largest(objective.kappa, 0.0)
    for i in range(6, 24):
        other = (X[[0, (5 * i) % 24]], y[[0, (5 * i) % 24]])
        x = rng.standard_normal(problem.dimension) * 10.0 ** rng.uniform(-2, 2)
        (first, one), (second, two) = (sides(problem, objective, *each, x) for each in ((X[[0, i]], y[[0, i]]), other))
        moved.append(np.linalg.norm(first - second, ord=norm) / objective.sensitivity(norm))
        assert abs(np.linalg.slogdet(one)[1] - np.linalg.slogdet(two)[1]) <= largest + 1e-5
        pulled.append(np.linalg.norm(first - 0.4 * x) / (2 * objective.gradient_size))
        assert np.linalg.norm(one, ord=2) <= 2 * objective.L * (1 + 1e-5)
    assert max(moved) <= 1
    assert max(pulled) <= 1


@pytest.mark.parametrize("share", [1 / 16, 0.4])
@pytest.mark.parametrize("norm", [1, 2])
def test_the_declared_sensitivity_and_kappa_are_attained(norm, share):
    """Two records that lean together a little, far out; and a record as long as it may be, where its slope is 1/2."""
    problem = es.Problem(es.Logistic(), es.Ball(8.0), ridge=1e-9, n=2, d=2)
    objective = objective_of(problem, norm, share, ridge=1e-3)
    pair = 1.9 * objective.weighting.radius * np.array([[1.0, 0.01], [-1.0, 0.01]])
    first, second = (sides(problem, objective, pair[[k, k]], [1, 1], np.array([0.0, -1e5]))[0] / 2 for k in (0, 1))
    assert 0.98 < np.linalg.norm(first - second, ord=norm) / objective.sensitivity(norm) <= 1
    long = min(2 * objective.weighting.radius, 8.0) * (1 - 1e-4) if norm == 2 else 8.0
    hessian = sides(problem, objective, np.array([[long, 0.0]] * 2), [1, 1], np.zeros(2))[1]
    weighed = (hessian[0, 0] / (2e-3) - 1) / 2  # two such records, with a curvature of 1/4 each
    assert 0.98 < 4 * weighed / objective.kappa <= 1


def held_value(objective, features, targets, x):
    """Return n F(x) where slopes are held, by lengths and losses in plain floats: of logistic loss."""
    radius, norm, cap = objective.weighting.radius, objective.weighting.norm, objective.loss.cap
    lengths = np.linalg.norm(features, ord=norm, axis=1)
    s = np.minimum(1, radius / np.maximum(lengths, 1e-300))
    caps = np.minimum(1, cap * radius / np.maximum(s * lengths, 1e-300))
    agreed, kinks = targets * s * (features @ x), np.log(1 / caps - 1 + 1e-300)
    losses = np.logaddexp(0, -np.maximum(agreed, kinks)) + caps * (np.maximum(agreed, kinks) - agreed)
    return losses.sum() + objective.n * objective.ridge / 2 * x @ x


def weighted_value(objective, features, targets, x):
    """Return n F(x), by lengths and losses in plain floats."""
    weighting = objective.weighting
    if weighting.held:
        return held_value(objective, features, targets, x)
    lengths = np.linalg.norm(features, ord=weighting.norm, axis=1)
    s = np.minimum(1, 2 * weighting.radius / np.maximum(lengths, 1e-300)) if weighting.norm == 2 else 1.0
    v = np.minimum(1, weighting.radius / np.maximum(s * lengths, 1e-300)) / weighting.mean
    losses = np.logaddexp(0, -targets * s * (features @ x))
    return v @ losses + objective.n * objective.ridge / 2 * x @ x


@pytest.mark.parametrize("cap", [None, 0.15, 0.7])
@pytest.mark.parametrize(("norm", "share"), [(1, 0.05), (1, 0.4), (2, 0.05), (2, 0.4)])
def test_gradients_hessians_and_minima_are_those_of_the_weighted_sum(norm, share, cap):
    """By differences, by rough Hessians, and by SciPy: to what weights on a grid of 2^-20 leave open."""
    objective = objective_of(problem_of(n=300), norm, share)
    if cap is not None:
        objective = held_of(problem_of(n=300), norm, share, cap)
    problem = objective.problem
    rows = es.Rows(problem, *all_lengths(problem, 300))
    features, targets = stored(rows)
    rng, h = np.random.default_rng(2), 1e-4
    tilted = Tilted(objective, rows, rng.standard_normal(problem.dimension).astype(np.longdouble))

    def value(x):
        return weighted_value(objective, features, targets, x) + float(tilted.tilt @ x)

    x = 0.3 * rng.standard_normal(problem.dimension)
    steps = h * np.eye(problem.dimension)
    slopes = np.array([(value(x + e) - value(x - e)) / (2 * h) for e in steps])
    assert tilted.certified(x, passes.FINE).gradient.astype(float) == pytest.approx(slopes, rel=1e-4, abs=2e-2)
    gradients = [
        tilted.certified(x + e, passes.FINE).gradient - tilted.certified(x - e, passes.FINE).gradient for e in steps
    ]
    curves = np.array(gradients).astype(float) / (2 * h * problem.n)
    assert passes.hessian(rows, objective, x, None) == pytest.approx(curves, rel=1e-4, abs=1e-5)
    sizes = passes.column_sizes(rows, None)
    rough = passes.rough_hessian(rows, objective, x, sizes, None, whole=True)[0]
    assert np.linalg.norm(rough - curves) <= 0.05 * np.linalg.norm(curves)
    found = minimum_of(tilted) * 2.0**-40
    best = minimize(value, np.zeros(problem.dimension), method="BFGS", options={"gtol": 1e-7})
    assert found == pytest.approx(best.x, abs=2e-4)
    assert value(found) <= best.fun + 1e-5


def minimum_of(tilted):
    """Return the solver's minimum in integers of 2^-40."""
    tilt = float(np.linalg.norm(tilted.tilt.astype(float)))
    goal = Goal(tilted.objective, 2.0**-40, 1e-6, 1.0, tilt=tilt)
    goal.require_reachable()
    return grid_minimum(tilted, goal).astype(float)


def exact_weighted(objective, rows, x):
    """Return the gradient of the sum in 60 digits, with the shares that the library computed."""
    problem, loss = objective.problem, objective.loss
    integers, (weights, shortening, caps) = counted(objective, rows)
    targets = stored(rows)[1].tolist()
    steps = [Fraction(unit) / STEPS for unit in problem.units[: problem.width].tolist()]
    point = np.array([Fraction(*entry.as_integer_ratio()) for entry in x], dtype=object)
    with localcontext() as context:
        context.prec = 60
        total = [decimal(Fraction(objective.ridge) * problem.n * entry) for entry in point]
        own = [loss] * len(targets) if caps is None else [replace(loss, cap=cap) for cap in caps.tolist()]
        for row, target, weight, short, held in zip(integers, targets, weights, shortening, own, strict=True):
            u = [Fraction(entry) * step * Fraction(short) for entry, step in zip(row.tolist(), steps, strict=True)]
            blocks = point.reshape(loss.outputs, problem.width)
            margins = [decimal(sum(a * b for a, b in zip(u, block, strict=True))) for block in blocks]
            scale = Fraction(weight) / Fraction(objective.mean)
            terms = [slope * decimal(scale * entry) for slope in exact_slopes(held, margins, target) for entry in u]
            total = [a + b for a, b in zip(total, terms, strict=True)]
    return total


@pytest.mark.parametrize("loss", [es.Logistic(), es.Softmax(classes=(-1, 0, 1))], ids=["logistic", "softmax"])
@pytest.mark.parametrize(("norm", "share", "mean"), [(1, 0.1, 0.3), (2, 0.02, 0.05), (2, 0.6, 1.0)])
def test_certified_gradients_are_within_their_bound(loss, norm, share, mean):
    """Against 60 digits; and long doubles are as near as plans leave room for."""
    problem = problem_of(n=60, loss=loss)
    objective = objective_of(problem, norm, share, mean)
    certified_gradients_are_within_their_bound(objective)


@pytest.mark.parametrize("loss", [es.Logistic(), es.Softmax(classes=(-1, 0, 1))], ids=["logistic", "softmax"])
@pytest.mark.parametrize(("norm", "share", "cap"), [(1, 0.1, 0.05), (2, 0.3, 0.1), (2, 1.0, 0.7)])
def test_certified_gradients_of_held_slopes_are_within_their_bound(loss, norm, share, cap):
    """Each record with its own cap."""
    certified_gradients_are_within_their_bound(held_of(problem_of(n=60, loss=loss), norm, share, cap))


def certified_gradients_are_within_their_bound(objective):
    problem = objective.problem
    rows = es.Rows(problem, *all_lengths(problem, 60))
    x = np.random.default_rng(3).standard_normal(problem.dimension).astype(np.longdouble)
    exact, size = exact_weighted(objective, rows, x), float(np.linalg.norm(x))
    for precision in (passes.ROUGH, passes.MIDDLE, passes.FINE, passes.LONG):
        found = passes.certified_gradient(rows, objective, x, np.zeros(problem.dimension), precision)
        assert float(length([decimal(a) - b for a, b in zip(found.gradient, exact, strict=True)])) <= found.error
    assert found.error <= rounding(objective, size, 0.0, max(LONG, float(np.finfo(np.longdouble).eps)))


def test_no_point_beyond_the_reach_is_below_the_start():
    for norm, mean, tilt in itertools.product((1, 2), (0.1, 1.0, None), (0.0, 5.0)):
        problem = problem_of(n=30)
        objective = objective_of(problem, norm, 0.2, mean) if mean else held_of(problem, norm, 0.2, 0.1)
        features, targets = stored(es.Rows(problem, *all_lengths(problem, 30)))
        reach = objective.reach(tilt)
        for direction in np.random.default_rng(4).standard_normal((50, problem.dimension)):
            x = reach * direction / np.linalg.norm(direction)
            here, there = (weighted_value(objective, features, targets, point) for point in (0 * x, x))
            assert there - tilt * reach > here


def opened(problem, X, y, folder, monkeypatch):
    """Yield the same records in every engine and source of this process, the reference first."""
    yield es.Rows(problem, X, y, engine="numpy")
    pytest.importorskip("numba")
    yield es.Rows(problem, X, y, engine="fast")
    yield es.Rows(problem, csr_array(X), y)
    np.save(folder / "X.npy", X)
    monkeypatch.setattr(sources, "KEPT", 0)
    monkeypatch.setattr(stream, "BLOCK", 1000)
    for engine in ("numpy", "fast"):
        yield es.Rows(problem, np.load(folder / "X.npy", mmap_mode="r"), y, engine=engine)


@pytest.mark.parametrize("loss", [es.Logistic(), es.Softmax(classes=(-1, 0, 1))], ids=["logistic", "softmax"])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("held", [False, True], ids=["weights", "held"])
def test_every_engine_and_source_has_the_same_bits(tmp_path, monkeypatch, held, norm, loss):
    """Gradients of all precisions, Hessians, and the minimum that is found; units of the columns are no powers of 2."""
    problem = problem_of(n=700, loss=loss)
    X, y = all_lengths(problem, 700)
    X[1:4] = 1e6  # sparse matrices hold no missing values here
    objective = held_of(problem, norm, 0.3, 0.4) if held else objective_of(problem, norm, 0.1)
    problem, x = objective.problem, np.random.default_rng(5).standard_normal(problem.dimension)

    def bits(rows):
        zero = np.zeros(problem.dimension)
        for precision in (passes.ROUGH, passes.FINE, passes.LONG):
            yield passes.certified_gradient(rows, objective, x, zero, precision).gradient
        yield passes.hessian(rows, objective, x, None)
        yield passes.rough_hessian(rows, objective, x, np.ones(problem.width) * STEPS / 8, None, whole=True)
        yield minimum_of(Tilted(objective, rows, zero.astype(np.longdouble)))

    reference, *others = (
        opened(problem, X, y, tmp_path, monkeypatch)
        if loss.outputs == 1
        else [
            es.Rows(problem, X, y, engine="numpy"),
            es.Rows(problem, csr_array(X), y),
        ]
    )
    expected = list(bits(reference))
    for rows in others:
        for one, other in zip(bits(rows), expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("engine", ["numpy", "fast"])
def test_what_records_count_is_kept_for_one_weighting_at_a_time(engine):
    """Passes for one objective and for another, in turns, have the bits of passes over records that keep nothing."""
    if engine == "fast":
        pytest.importorskip("numba")
    problem = problem_of(n=700)
    X, y = all_lengths(problem, problem.n)
    rows, x = es.Rows(problem, X, y, engine=engine), np.linspace(-0.5, 0.4, problem.dimension)
    objectives = [objective_of(problem, norm, share) for norm in (1, 2) for share in (0.2, 0.7)]
    objectives += [replace(each, weighting=replace(each.weighting, mean=1.0)) for each in objectives[:1]]
    found = set()
    for objective in [*objectives, *objectives[::-1], objectives[0], objectives[2]]:
        fresh = es.Rows(problem, X, y, engine=engine)
        for part in (None, np.arange(0, 700, 3)):
            again, once = (
                passes.certified_gradient(data, objective, x, np.zeros(len(x)), passes.FINE, part).gradient
                for data in (rows, fresh)
            )
            assert np.array_equal(again, once)
            found.add(again.astype(float).tobytes())
    assert len(found) == 2 * len(objectives)


def test_sparse_records_stay_sparse(monkeypatch):
    """Looks inside: the dense records of a chunk are asked for by nobody."""
    problem = problem_of("cube", n=50, intercept=True)
    X, y = all_lengths(problem, 50)
    rows = es.Rows(problem, csr_array(np.nan_to_num(X)), y)
    from epsteps.data.chunks import SparseChunk

    monkeypatch.setattr(SparseChunk, "features", property(lambda self: pytest.fail("a chunk became dense")))
    for norm in (1, 2):
        minimum_of(Tilted(objective_of(problem, norm, 0.3), rows, np.zeros(5, dtype=np.longdouble)))


# What a minimum claims, against the exact densities of neighbours.


def tilted_minimum(objective, mechanism, noise_epsilon):
    """Return the request for a minimum with a tilt of this epsilon, whose output noise costs nearly nothing."""
    noise = mechanisms.named(mechanism)
    scale = objective.sensitivity(noise.norm) / noise_epsilon
    tolerance = 1e-9
    goal = Goal(objective, 2.0**-40, tolerance, 2e6 * objective.radius(tolerance))
    return Minimum(goal, mechanisms.named("l2"), Tilt(noise, scale, scale * 2.0**-36))


def attacked(request, pairs, points):
    """Return the largest share of the cost that neighbours at these points show; raise if it is above 1."""
    objective, cost, best = request.goal.objective, request.costs[0].amount, 0.0

    @cache
    def log_density(records, x):
        """Return ln of the density of the minimum x over these records, but for a constant."""
        gradient, hessian = sides(objective.problem, objective, np.array(records), np.ones(len(records)), np.array(x))
        size = np.linalg.norm(gradient, ord=request.tilt.mechanism.norm)
        return np.linalg.slogdet(hessian)[1] - size / request.tilt.scale

    for (first, second), x in itertools.product(pairs, points):
        found = abs(log_density(first, x) - log_density(second, x))
        # Second derivatives of these checks have 20 bits.
        assert found <= cost * (1 + 1e-5) + 2e-6, f"log-ratio {found:.6g} at a cost of {cost:.6g}"
        best = max(best, found / cost)
    return best


def weighted_minima_cost_no_less_than_their_densities_show(seed):
    """On a line with noise of the L2 norm, with light and heavy ridges; and in a plane with Laplace noise.

    On the line records of every length take each other's place, beside one that is opposite or 0. In the plane a record
    and its successor lie along different axes, the successor and all others far out: all that is claimed is reached.
    """
    reached, radius = [], 0.5
    ends = [sign * size for sign in (1, -1) for size in (radius / 2, radius, 1.9999 * radius, 8.0)]
    pairs = [(((a,), (c,)), ((b,), (c,))) for a, b, c in itertools.product(ends[:4], [*ends[4:], 0.0], (0.0, -1.0))]
    for light, epsilon in ((2.0, 0.02), (0.5, 1.0), (0.02, 2.0)):
        problem = es.Problem(es.Logistic(), es.Ball(8.0), ridge=1e-9, n=2, d=1)
        weighting = Weighting(2, radius, 0.7)
        objective = Minimised(problem, weighting.square(problem) / (2 * light), weighting)
        points = [(x,) for x in (-30.0, -0.3, 1e-3, 0.3, 3.0, 30.0)]
        reached.append(attacked(tilted_minimum(objective, "l2", epsilon), pairs, points))
    assert max(reached) > 0.95, reached
    pair = tuple((end, *[(-2.0, -2.0)] * 63) for end in ((4.0, 0.0), (0.0, -4.0)))
    for light, epsilon in ((2.0, 0.5), (0.4, 2.0)):
        problem = es.Problem(es.Logistic(), es.Ball(4.0, norm=1), ridge=1e-9, n=64, d=2)
        weighting = Weighting(1, radius, 0.7)
        objective = Minimised(problem, weighting.square(problem) / (64 * light), weighting)
        points = [(x, 1e3) for x in np.linspace(-1.5, 1.5, 31).tolist()]
        found = attacked(tilted_minimum(objective, "laplace", epsilon), [pair], points)
        assert found > 0.99, found


def test_weighted_minima_cost_no_less_than_their_densities_show():
    weighted_minima_cost_no_less_than_their_densities_show(0)


def held_minima_cost_no_less_than_their_densities_show(seed):
    """Where slopes are held: on a line with noise of the L2 norm, and in a plane with Laplace noise.

    Records of every length take each other's place, those with a cap of their own among them, beside one whose gradient
    keeps the sum on one side of 0. At the kink of a record, where its slope is its cap, all that is claimed is reached.
    """
    reached, radius = [], 0.5
    sizes = (0.1 * radius, 0.35 * radius, 0.6 * radius, radius, 8.0)
    for cap, (light, epsilon) in itertools.product((0.1, 0.35, 0.8), ((2.0, 0.02), (0.5, 1.0), (0.02, 2.0))):
        problem = es.Problem(es.CappedLogistic(cap=cap), es.Ball(8.0), ridge=1e-9, n=2, d=1)
        weighting = Weighting(2, radius, held=True)
        objective = Minimised(problem, weighting.square(problem) / (2 * light), weighting)
        pairs = [(((a,), (c,)), ((-b,), (c,))) for a, b, c in itertools.product(sizes, sizes, (0.0, -8.0))]
        kinks = [math.log((1 - own) / own) / size for size in sizes[:4] if (own := min(1, cap * radius / size)) < 1]
        points = [(x,) for kink in [*kinks, 0.3, 3.0, 30.0] for x in (-kink, kink * (1 + 1e-6), kink)]
        reached.append(attacked(tilted_minimum(objective, "l2", epsilon), pairs, points))
    assert max(reached) > 0.95, reached
    pair = tuple((end, *[(-2.0, -2.0)] * 63) for end in ((0.5, 0.0), (0.0, -0.5)))
    for cap, (light, epsilon) in itertools.product((0.2, 0.8), ((2.0, 0.5), (0.4, 2.0))):
        problem = es.Problem(es.CappedLogistic(cap=cap), es.Ball(4.0, norm=1), ridge=1e-9, n=64, d=2)
        weighting = Weighting(1, radius, held=True)
        objective = Minimised(problem, weighting.square(problem) / (64 * light), weighting)
        points = [(x, 1e3) for x in np.linspace(-9, 9, 61).tolist()]
        attacked(tilted_minimum(objective, "laplace", epsilon), [pair], points)


def test_held_minima_cost_no_less_than_their_densities_show():
    held_minima_cost_no_less_than_their_densities_show(0)


@dataclass(frozen=True, eq=False, repr=False)
class Weighted(ObjectivePlan):
    """Objective perturbation with weights, as a plan would have them."""

    readers: ClassVar = {"weighting": weighting_from_dict}
    writers: ClassVar = {"weighting": weighting_to_dict}

    weighting: Weighting | None = None

    @cached_property
    def objective(self):
        return Minimised(self.problem, self.ridge, self.weighting)


def weighted_plan(problem, budget, mechanism, weighting, ridge=0.3, share=0.5):
    objective, noise = Minimised(problem, ridge, weighting), mechanisms.named(mechanism)
    scale = objective.sensitivity(noise.norm) / (share * 0.6)
    tolerance = 4 * max(1e-9, least_tolerance(objective, 1.01 * tilt_length(objective, noise, scale), 2.0**30))
    output = objective.radius(tolerance) * 2 / 0.05
    return Weighted(problem, budget, mechanism, ridge, (scale,), (output,), tolerance, weighting=weighting)


REPLAYED = [
    ("l2", 2, es.Pure(1.0)),
    ("laplace", 1, es.Pure(1.0)),
    ("gaussian", 2, es.Approximate(1.0, 1e-5)),
]


def replay_weighted_minima(seed):
    """Neighbours of which one record differs, by whatever a file may hold: long ones count less, and are shortened."""
    for (mechanism, norm, budget), held in itertools.product(REPLAYED, (False, True)):
        loss = es.CappedLogistic(cap=0.3) if held else es.Logistic()
        problem = test_replay.problem_of(loss, test_replay.BOXES[1], True)
        weighting = Weighting(norm, 0.3 * problem.record_size(norm), *([1.0, True] if held else [0.6]))
        plan = weighted_plan(problem, budget, mechanism, weighting, share=0.5 if budget.delta == 0 else 0.2)

        def fit(data, account, plan=plan):
            return es.run(plan, es.Rows(plan.problem, *data), ledger=account, anyway=True)

        test_replay.replay_all((problem, fit, test_replay.charged_amounts(plan)), seed)


def test_replays_of_weighted_minima_cost_what_is_claimed():
    replay_weighted_minima(0)


@pytest.mark.parametrize(("loss", "facts"), [(es.Logistic(), (0.6,)), (es.CappedLogistic(cap=0.5), (1.0, True))])
def test_audits_attack_the_weighted_sum(loss, facts):
    """Crowds move most of the sensitivity, and no released minimum has a larger log-ratio than its group costs."""
    problem = es.Problem(loss, es.Ball(1.0, norm=np.inf), ridge=0.1, n=40, d=2)
    plan = weighted_plan(problem, es.Pure(1.0), "l2", Weighting(2, 0.4 * problem.record_size(2), *facts))
    crowd = next(crowds_of(plan))
    assert 0.8 < crowd.share <= 1
    minima = es.run(crowd.audited, crowd.rows(0), seed=0, repetitions=30, anyway=True).path[0]
    ratios = np.abs(log_ratio(crowd, 0, minima)) / (crowd.replaced * plan.costs[0])
    assert 0.3 < np.max(ratios) <= 1
    tilts = recovered_tilts(crowd, 0, minima) / plan.scales[0]
    assert 1.0 < np.mean(np.linalg.norm(tilts, axis=0)) < 4.0  # of noise in two dimensions: 2


@pytest.mark.parametrize(("mechanism", "norm"), [("laplace", 2), ("linf", 2), ("hull", 1), ("l2", 1), ("gaussian", 1)])
def test_noise_of_another_norm_than_the_weights_is_refused(mechanism, norm):
    objective = objective_of(problem_of(), norm, 0.3)
    noise = mechanisms.named(mechanism)
    with pytest.raises(ValueError, match=f"weights by the L{norm} norm"):
        objective.sensitivity(noise.norm)
    with pytest.raises(ValueError, match=f"weights by the L{norm} norm"):
        Minimum(Goal(objective, 2.0**-40, 1e-6, 1.0), mechanisms.named("l2"), Tilt(noise, 1.0, 2.0**-30))


def test_a_search_has_one_objective_and_a_weighted_one_is_no_problem():
    problem = problem_of()
    rows, weighted, zero = es.Rows(problem, *all_lengths(problem, 60)), objective_of(problem, 2, 0.3), np.zeros(5)
    plain = Minimised(problem, weighted.ridge)
    for tilted, aim, begin in itertools.product((plain, weighted), repeat=3):
        if not tilted == aim == begin:
            with pytest.raises(ValueError, match="must have one objective"):
                grid_minimum(Tilted(tilted, rows, zero), Goal(aim, 2.0**-30, 1e-3, 1.0), Start(begin, rows))
    plan = weighted_plan(problem, es.Pure(1.0), "l2", weighted.weighting)
    with pytest.raises(ValueError, match="no problem of its own"):
        _ = plan.minimised


def test_long_weights_of_1_are_the_objective_without_them():
    """A radius that no record reaches, and a mean of 1: every bound, up to its rounding, and the gradient."""
    problem = problem_of()
    rows, x = es.Rows(problem, *all_lengths(problem, 60)), np.arange(5.0)
    plain = Minimised(problem, 0.2)
    for norm in (1, 2):
        weighted = objective_of(problem, norm, 1.5, mean=1.0)
        assert weighted.sensitivity(norm) == pytest.approx(plain.sensitivity(norm), rel=1e-11)
        assert weighted.kappa == pytest.approx(plain.kappa, rel=1e-11)
        assert (weighted.L, weighted.reach(1.0)) == pytest.approx((plain.L, plain.reach(1.0)), rel=1e-11)
        assert weighted.gradient_size == pytest.approx(plain.gradient_size, rel=1e-11)
        found, expected = (passes.certified_gradient(rows, each, x, 0 * x, passes.LONG) for each in (weighted, plain))
        np.testing.assert_array_equal(found.gradient, expected.gradient)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"norm": 3}, "norm must be 1 or 2"),
        ({"norm": True}, "norm must be 1 or 2"),
        ({"norm": math.inf}, "norm must be 1 or 2"),
        ({"radius": 0.0}, "radius must be positive"),
        ({"radius": math.nan}, "radius must be finite"),
        ({"mean": 0.0}, "mean must be positive"),
        ({"mean": 1.0001}, "mean must be at most 1"),
        ({"held": True}, "count 1 each"),
    ],
)
def test_what_is_no_weighting_is_refused(facts, said):
    with pytest.raises(ValueError, match=said):
        Weighting(**({"norm": 2, "radius": 1.0, "mean": 0.5} | facts))


def test_a_plan_with_weights_is_written_and_read_and_a_changed_one_refused():
    problem = problem_of("cube")
    plan = weighted_plan(problem, es.Pure(1.0), "l2", Weighting(2, 0.7, 0.6))
    text = plan.to_json()
    again = es.Plan.from_json(text)
    assert again.weighting == plan.weighting
    assert again.to_json() == text
    for name, value in (("radius", 0.8), ("mean", 0.5), ("norm", 1), ("length", 1.0), ("held", True), ("held", 0)):
        content = json.loads(text)
        content["weighting"][name] = value
        with pytest.raises(PlanFormatError):
            es.Plan.from_json(json.dumps(content))
    assert weighting_from_dict(weighting_to_dict(None)) is None
    assert replace(plan, budget=es.Pure(9.0), weighting=None).costs[0] > plan.costs[0]


def test_slopes_are_held_only_of_losses_and_records_that_are_covered():
    problem = problem_of()
    with pytest.raises(ValueError, match="SmoothedHinge cannot be held"):
        Minimised(replace(problem, loss=es.SmoothedHinge()), 0.2, Weighting(2, 0.5, held=True))
    with pytest.raises(ValueError, match="at most"):
        Minimised(problem, 0.2, Weighting(2, 1.01 * problem.record_size(2), held=True))
    with pytest.raises(TypeError, match="held must be"):
        Weighting(2, 0.5, 1.0, held=1)


def test_slopes_that_are_held_nowhere_are_those_of_the_loss():
    """With a cap of 1 records are shortened, and that is all; a radius that all reach leaves the cap as it is."""
    problem = problem_of("ball", intercept=False)
    rows, x = es.Rows(problem, *all_lengths(problem, 60)), np.linspace(-1, 1, 4)
    shares = held_of(problem, 2, 0.5, 1.0).measure.shares(np.geomspace(1, 2.0**40, 30))
    assert shares.caps is None
    plain = Minimised(problem, 0.2)
    whole = held_of(problem, 2, 1.0, 1.0)
    found, expected = (passes.certified_gradient(rows, each, x, 0 * x, passes.FINE) for each in (whole, plain))
    assert found.gradient.astype(float) == pytest.approx(expected.gradient.astype(float), rel=1e-5, abs=1e-5)
    assert whole.kappa == pytest.approx(plain.kappa, rel=1e-11)
