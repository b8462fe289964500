"""Clipped descent: what one record can do to a step and to a look, clips and steps from any numbers, and its plan."""

import contextlib
import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
from combinations import rows_of, sources_here
from hypothesis import given, settings
from hypothesis import strategies as st

import epsteps as es
from epsteps.budgets import Rho, mechanisms
from epsteps.methods.clipped import ClippedPlan
from epsteps.methods.clipped import requests as clipping
from epsteps.methods.clipped.requests import CELLS, ClippedGradient, Lengths, Longest, Middle, Pulls, Reaches, Sizes
from epsteps.methods.clipped.rules import Blend, Pace
from epsteps.noise import Source
from epsteps.problem import levels
from epsteps.problem.grid import STEPS, Grid
from epsteps.problem.problem import restated
from epsteps.problem.shapes import Elongated
from epsteps.running.run import Reader
from epsteps.testing import ReplayError, replay

GAUSSIAN = mechanisms.named("gaussian")
LOSSES = (es.Logistic(), es.SmoothedHinge(), es.Softmax(("a", "b", "c")), es.Squared(1.5))
DOMAINS = (es.Ball(2.0), es.Ball(0.7, norm=1), es.Box((0, -3, 0.5, 0, 0), (2, 5, 0.75, 1, 1), one_hot=[(3, 5)]))
PROBLEMS = [
    es.Problem(loss, domain, ridge=0.01, n=60, d=5, intercept=intercept)
    for loss in LOSSES
    for domain in DOMAINS
    for intercept in (False, True)
]


def records_of(problem, seed=0):
    """Records of very different lengths, some beyond the domain, some that are no numbers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(problem.n, problem.d)) * np.exp(2 * rng.normal(size=(problem.n, 1)))
    X[rng.random(X.shape) < 0.3] = 0
    X[:4] = [[np.nan], [np.inf], [-np.inf], [0.0]]
    if not hasattr(problem.loss.targets, "classes"):
        return X, np.append([np.nan, np.inf, -np.inf], 2 * rng.normal(size=problem.n - 3))
    classes = problem.loss.targets.classes
    return X, np.array(classes)[rng.integers(len(classes), size=problem.n)]


def blended(plan):
    """Return a plan with half of its steps' budget, and a blend for less than the rest."""
    halves = tuple(step / 2 for step in plan.steps)
    return dataclasses.replace(plan, steps=halves, blend=(math.fsum(halves) / 5, math.fsum(halves) / 50))


def one_by_one(request, X, y):
    """Return what a request reads of each record by itself: half of what it reads of two of them."""
    alone = dataclasses.replace(request, problem=restated(request.problem, n=2))
    rows = (es.Rows(alone.problem, X[[i, i]], y[[i, i]], engine="numpy") for i in range(len(X)))
    return np.array([alone.read(Reader(each), {}) // 2 for each in rows])


def no_gradient_is_longer_than_its_clip(seed):
    """Of no record, exactly; and some are nearly as long."""
    for number, problem in enumerate(PROBLEMS):
        X, y = records_of(problem, seed + number)
        x = np.random.default_rng(seed).normal(size=problem.dimension) * 3
        for share in (0.02, 0.3):
            clip = share * problem.record_size(2)
            request = ClippedGradient.at(restated(problem, clip=clip), GAUSSIAN, x, 0.1)
            step = [Fraction(float(each)) for each in Grid(problem).gradient_step(float(request.bound[0]))[:, 0]]
            squares = [
                sum((int(entry) * unit) ** 2 for entry, unit in zip(sums[:, 0].tolist(), step, strict=True))
                for sums in one_by_one(request, X, y)
            ]
            size = math.sqrt(max(squares))
            assert max(squares) <= Fraction(clip) ** 2, f"a gradient of {problem} has the size {size}, over {clip}"
            assert size > 0.99 * min(clip, 0.3 * problem.record_size(2))


def test_no_gradient_is_longer_than_its_clip():
    no_gradient_is_longer_than_its_clip(seed=1)


def axes_of(problem, seed):
    """Short ones and long ones, one along the records' middle."""
    rng = np.random.default_rng(seed)
    middle = problem.units[: problem.width] / np.linalg.norm(problem.units[: problem.width])
    random = [length * unit(rng.normal(size=problem.width)) for length in (0.1, 2.0, 30.0)]
    return [clipping.axis_near(problem, axis) for axis in (*random, 5 * middle, 900 * middle)]


def unit(vector):
    return vector / np.linalg.norm(vector)


def no_gradient_is_longer_along_an_axis(seed):
    """In the norm of the noise that protects it, whose square is |z|² - (a'z)²/(1 + |a|²) for each output: exactly."""
    for number, problem in enumerate(PROBLEMS):
        X, y = records_of(problem, seed + number)
        x = np.random.default_rng(seed).normal(size=problem.dimension) * 3
        for axis in axes_of(problem, seed):
            clip = 0.05 * problem.record_size(2)
            request = ClippedGradient.near(restated(problem, clip=clip), x, 0.1, axis)
            assert request._shape.axis == axis
            step = [Fraction(float(each)) for each in Grid(problem).gradient_step(float(request.bound[0]))[:, 0]]
            exact, longest = [Fraction(entry) for entry in axis], Fraction(0)
            for sums in one_by_one(request, X, y):
                z = [int(entry) * each for entry, each in zip(sums[:, 0].tolist(), step, strict=True)]
                longest = max(longest, square_along(z, exact))
            assert longest <= Fraction(clip) ** 2, f"a gradient of {problem} has the size {math.sqrt(longest)}"
            assert longest > Fraction(0.9 * clip) ** 2


def square_along(z, axis):
    """Return the exact square of the norm of a gradient, output by output."""
    total = Fraction(0)
    for begin in range(0, len(z), len(axis)):
        block = z[begin : begin + len(axis)]
        along = sum(entry * each for entry, each in zip(block, axis, strict=True))
        total += sum(entry**2 for entry in block) - along**2 / (1 + sum(each**2 for each in axis))
    return total


def test_no_gradient_is_longer_than_its_clip_along_an_axis():
    no_gradient_is_longer_along_an_axis(seed=1)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_an_axis_on_the_grid_is_the_one_that_was_asked_for(problem):
    asked = 3 * unit(np.random.default_rng(2).normal(size=problem.width))
    found = np.array(clipping.axis_near(problem, asked))
    np.testing.assert_allclose(found, asked, atol=1e-6 / problem.units[: problem.width].min())


def the_mean_is_that_of_the_records(seed):
    """Of all of them, with the noise that it is paid for: 6000 normal numbers deviate by it, but for 5 %."""
    for problem in PROBLEMS:
        X, y = records_of(problem, seed)
        rows = es.Rows(problem, X, y, engine="numpy")
        asked = Middle.of(problem, 0.02)
        still = asked.publish(asked.read(Reader(rows), {}), {"noise": np.zeros((problem.dimension, 1), dtype=int)})
        records = np.concatenate([features for features, _ in rows.blocks()])
        np.testing.assert_allclose(still, records.mean(axis=0), atol=1e-4 * problem.record_size(2))
        assert asked.deviation == pytest.approx(2 * problem.record_size(2) / (problem.n * 0.2), rel=1e-3)
        exact, count = asked.read(Reader(rows), {}), 6000 // problem.width
        drawn = [asked.publish(exact, asked.draw(Source(10_000 * seed + i))) - still for i in range(count)]
        assert np.std(drawn) == pytest.approx(asked.deviation, rel=0.05), f"the mean deviates by {np.std(drawn)}"


def test_the_mean_is_that_of_the_records():
    the_mean_is_that_of_the_records(seed=1)


def directions_of(problem, seed, count=3):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(problem.dimension, count)))[0]


def no_pull_is_longer_than_its_clip(seed):
    """Of no record, exactly: in steps of which the clip has 2^20; and some are nearly as long."""
    for number, problem in enumerate(PROBLEMS):
        X, y = records_of(problem, seed + number)
        x = np.random.default_rng(seed).normal(size=problem.dimension) * 3
        for share in (0.02, 0.2):
            asked = Pulls.at(problem, x, directions_of(problem, seed), share * problem.record_size(2), 0.1)
            pulls = [[int(entry) for entry in row] for row in one_by_one(asked, X, y).tolist()]
            longest = max(sum(entry**2 for entry in row) for row in pulls)
            assert longest <= 2**40, f"a pull of {problem} has the size {math.sqrt(longest) / 2**20}, over its clip"
            assert longest > 0.9 * 2**40


def test_no_pull_is_longer_than_its_clip():
    no_pull_is_longer_than_its_clip(seed=1)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_pulls_are_those_of_the_gradient_along_the_directions(problem):
    X, y = records_of(problem)
    x, directions = np.random.default_rng(3).normal(size=problem.dimension), directions_of(problem, 4)
    rows = es.Rows(problem, X, y, engine="numpy")
    asked = Pulls.at(problem, x, directions, 50 * problem.record_size(2) ** 2, 0.1)
    found = asked.publish(asked.read(Reader(rows), {}), {"noise": np.zeros(3, dtype=int)})
    np.testing.assert_allclose(found, rows.gradient(x) @ directions, atol=1e-4 * problem.record_size(2) ** 2)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_records_reach_as_far_as_their_products(problem):
    X, y = records_of(problem, seed=5)
    directions = directions_of(problem, 6)
    rows = es.Rows(problem, X, y, engine="numpy")
    asked = Reaches.of(problem, directions, 0.1)
    counts = asked.read(Reader(rows), {})
    records = np.concatenate([features for features, _ in rows.blocks()])
    blocks = directions.reshape(problem.loss.outputs, problem.width, -1)
    far = np.max([np.linalg.norm(records @ block, axis=1) for block in blocks], axis=0)
    assert counts.sum() == problem.n
    inside = np.array([np.sum(far <= end * (1 - 1e-6)) for end in asked.ends])
    nearly = np.array([np.sum(far <= end * (1 + 1e-6)) for end in asked.ends])
    below = np.cumsum(counts[::-1])[::-1]
    assert np.all((inside <= below) & (below <= nearly))
    assert far.max() <= asked.ends[0]
    assert asked.beyond(counts, 0.0) == asked.ends[np.flatnonzero(counts)[0]]


def test_too_many_directions_are_refused():
    problem = es.Problem(es.Logistic(), es.Ball(1.0), ridge=0.1, n=100, d=20)
    with pytest.raises(ValueError, match="at most 8 directions, got 9"):
        Pulls.at(problem, np.zeros(20), np.eye(20, 9), 0.1, 0.1)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradients_are_those_that_engines_clip(problem):
    X, y = records_of(problem)
    x = np.random.default_rng(3).normal(size=problem.dimension)
    stated = restated(problem, clip=0.2 * problem.record_size(2))
    request = ClippedGradient.at(stated, GAUSSIAN, x, 0.1)
    sums = request.read(Reader(es.Rows(stated, X, y, engine="numpy")), {})
    points = Grid(stated).points(x[:, None], request.bound)
    expected = es.Rows(stated, X, y, engine="numpy").sums(points)
    np.testing.assert_allclose(sums, expected, atol=1e-6 * problem.n * STEPS * levels.STEPS)


@pytest.mark.parametrize(
    ("loss", "source"),
    [(loss, source) for loss in (es.Logistic(), es.Squared()) for source in sources_here() if source != "gpu"]
    + [(es.Softmax((0, 1, 2)), source) for source in sources_here() if source not in ("gpu", "fast")],
    ids=str,
)
def test_every_engine_and_source_publishes_the_same(source, loss, tmp_path):
    problem = es.Problem(loss, es.Box(-1, 1), ridge=0.01, n=700, d=4, intercept=True)
    X, y = records_of(problem, seed=4)
    y = y.astype(float)
    plan = blended(es.plan(problem, es.Concentrated(1.0), "clipped"))
    assert plan.looks
    assert plan.middle
    rows = [es.Rows(problem, X, y, engine="numpy"), rows_of(source, problem, X, y, tmp_path)]
    first, second = (es.run(plan, each, seed=2) for each in rows)
    np.testing.assert_array_equal(first.path, second.path)
    for name in plan.besides:
        np.testing.assert_array_equal(first.extras[name], second.extras[name])


@pytest.mark.parametrize("loss", LOSSES[1:], ids=str)
def test_a_card_encodes_the_same(loss):
    torch = pytest.importorskip("torch")
    from epsteps.data.gpu.cards import CardChunk

    problem = es.Problem(loss, es.Box(-1, 1), ridge=0.01, n=60, d=5, intercept=True)
    chunk = es.Rows(problem, *records_of(problem), engine="numpy")._engine._chunk(slice(0, problem.n))
    card = CardChunk(torch.from_numpy(chunk.features.T.astype(np.float32).copy()), chunk.targets)
    x = np.random.default_rng(1).normal(size=problem.dimension)
    gradient = ClippedGradient.at(restated(problem, clip=0.5), GAUSSIAN, x, 0.1)
    directions = directions_of(problem, 2)
    pulls = Pulls.at(problem, x, directions, 0.5, 0.1)
    looks = [look(problem, x, 1.0, 1.0) for look in (Sizes, Longest)]
    for request in (gradient, *looks, Reaches.of(problem, directions, 1.0), pulls):
        np.testing.assert_array_equal(request.encode(card), request.encode(chunk))


def every_record_is_in_one_cell(seed):
    """Whatever it holds; of those that are records, in the cell of its gradient's size."""
    for number, problem in enumerate(PROBLEMS):
        X, y = records_of(problem, seed + number)
        x = np.random.default_rng(seed).normal(size=problem.dimension)
        request = Sizes(problem, x, problem.record_size(2), 1.0)
        counts = one_by_one(request, X, y)
        assert np.array_equal(counts.sum(axis=1), np.ones(len(X))), "a record is in another number of cells"
        assert counts.min() == 0
        rows = es.Rows(restated(problem, n=2), X[[9, 9]], y[[9, 9]], engine="numpy")
        size = float(np.linalg.norm(rows.gradient(x) - problem.ridge * x))
        place = int(np.argmax(counts[9]))
        assert size <= request.ends[place] * (1 + 1e-4) or place == 0
        assert place == CELLS - 1 or size >= request.ends[place + 1] * (1 - 1e-4)


def records_are_counted_by_their_length(seed):
    """Each in one cell, whatever it holds: that of its length times the largest slope, in the norm of the axis."""
    for number, problem in enumerate(PROBLEMS):
        X, y = records_of(problem, seed + number)
        rows = es.Rows(problem, X, y, engine="numpy")
        records = np.concatenate([features for features, _ in rows.blocks()])
        for axis in ((), axes_of(problem, seed)[1]):
            asked = Longest(problem, np.zeros(problem.dimension), problem.record_size(2) * 2, 1.0, axis)
            counts = asked.read(Reader(rows), {})
            alone = one_by_one(asked, X, y).sum(axis=1)
            assert np.array_equal(alone, np.ones(len(X))), "a record is in another number of cells"
            sizes = asked.slope * (Elongated(axis).gauge(records.T) if axis else np.linalg.norm(records, axis=1))
            below = np.cumsum(counts[::-1])[::-1]
            room = 0.02 * asked.ends[0]
            assert np.all(np.array([np.sum(sizes <= end - room) for end in asked.ends]) <= below)
            assert np.all(below <= np.array([np.sum(sizes <= end + 1e-9) for end in asked.ends]))


def test_records_are_counted_by_their_length():
    records_are_counted_by_their_length(seed=1)


def test_every_record_is_in_one_cell():
    every_record_is_in_one_cell(seed=1)


def test_lengths_are_rounded_up_and_close():
    for problem in PROBLEMS:
        X, y = records_of(problem, seed=2)
        rows = es.Rows(problem, X, y, engine="numpy")
        lengths = Lengths(problem).of(rows._engine._chunk(slice(0, problem.n)))
        exact = np.concatenate([np.linalg.norm(features, axis=1) for features, _ in rows.blocks()])
        assert np.all(lengths >= exact)
        np.testing.assert_allclose(lengths, exact, atol=1e-4 * problem.record_size(2))
        records = np.concatenate([features for features, _ in rows.blocks()])
        for axis in axes_of(problem, 3):
            lengths = Lengths(problem, axis).of(rows._engine._chunk(slice(0, problem.n)))
            norms = Elongated(axis).gauge(records.T)
            assert np.all(lengths >= norms * (1 - 1e-12))
            np.testing.assert_allclose(lengths, norms, atol=1e-2 * problem.record_size(2))


def replay_clipped_descent(seed):
    """One record becomes the longest, one that is no record, and one without length; looks and clips follow."""
    for loss in (es.Logistic(), es.Softmax((0, 1, 2)), es.Squared(2.0)):
        problem = es.Problem(loss, es.Ball(2.0), ridge=0.01, n=60, d=4)
        plan = ClippedPlan(
            problem, es.Concentrated(43.0), (3.5, 2.5) * 4, (0, 2, 5), (1.0, 0.5, 0.5), 0.05, (1.0, 0.4), 2.0, 1.0
        )

        def fit(data, account, plan=plan):
            return es.run(plan, es.Rows(plan.problem, *data, engine="numpy"), ledger=account, anyway=True)

        X, y = records_of(problem, seed)
        X = 0.02 * np.clip(np.nan_to_num(X), -1, 1)
        most = []
        for row, label in ((np.full(4, 1e9), 1), (np.full(4, np.nan), 7), (np.full(4, 0.0), 0)):
            other, labels = X.copy(), y.copy()
            other[9], labels[9] = row, label
            found = replay(fit, (X, y), (other, labels), costs=[charge.cost.amount for charge in plan.charges])
            assert found.exception == "none", found.exception
            most.append([max(losses) for losses in found.losses])
        assert np.max(most) > 0.2


def test_neighbours_change_nothing_but_the_releases():
    replay_clipped_descent(seed=1)


def audit_clipped_descent(seed):
    """Each kind of release is told apart by nearly what it costs, and by no more.

    But for the mean (the second of them), which no record moves by as much as gradients of either sign are paid for.
    """
    for loss, domain in (
        (es.Logistic(), es.Ball(2.0)),
        (es.Softmax((0, 1, 2)), es.Box(0, 1)),
        (es.Squared(), es.Ball(1.0)),
    ):
        problem = es.Problem(loss, domain, ridge=0.01, n=3000, d=4, intercept=True)
        plan = blended(es.plan(problem, es.Concentrated(0.5), "clipped"))
        found = es.audit(plan, seed=seed)
        assert found.consistent, found.violations
        least = [0.75, 0.4, 0.75, *[0.8] * bool(plan.lengths), 0.8, 0.8, 0.8, 0.8]
        assert len(found.steps) == len(least)
        assert all(step.lower_bound > share * step.claimed for step, share in zip(found.steps, least, strict=True))


def test_audits_cover_steps_and_looks():
    audit_clipped_descent(seed=1)


def looks_have_their_noise_and_no_other(seed):
    """11 200 normal numbers deviate by 10, but for 4 % with a chance of 1e-8; two thirds of it are far outside."""
    problem = es.Problem(es.Logistic(), es.Ball(1.0), ridge=0.01, n=40, d=3)
    request = Sizes.at(problem, np.zeros(3), 1.0, 0.01)
    rows = es.Rows(problem, *records_of(problem), engine="numpy")
    exact = request.read(Reader(rows), {})
    drawn = np.array([request.publish(exact, request.draw(Source(1000 * seed + i))) for i in range(400)]) - exact
    assert drawn.std() == pytest.approx(10.0, rel=0.04), f"the noise of a look deviates by {drawn.std()}"
    assert request.costs[0].amount == pytest.approx(0.01, rel=1e-9)
    assert isinstance(request.costs[0], Rho)


def test_looks_have_their_noise_and_no_other():
    looks_have_their_noise_and_no_other(seed=1)


def pulls_have_their_noise_and_no_other(seed):
    """12 000 normal numbers deviate by their scale, but for 4 % with a chance of 1e-8."""
    problem = es.Problem(es.Softmax((0, 1, 2)), es.Ball(1.0), ridge=0.01, n=40, d=3)
    request = Pulls.at(problem, np.ones(9), directions_of(problem, 1), 0.3, 0.02)
    exact = request.read(Reader(es.Rows(problem, *records_of(problem), engine="numpy")), {})
    still = request.publish(exact, {"noise": np.zeros(3, dtype=int)})
    drawn = [request.publish(exact, request.draw(Source(10_000 * seed + i))) - still for i in range(4000)]
    assert np.std(drawn) == pytest.approx(2 * 0.3 / 40 / math.sqrt(0.04), rel=0.04), f"they deviate by {np.std(drawn)}"
    assert request.costs[0].amount == pytest.approx(0.02, rel=1e-9)


def test_pulls_have_their_noise_and_no_other():
    pulls_have_their_noise_and_no_other(seed=1)


@settings(max_examples=200, deadline=None)
@given(mean=st.lists(st.floats(-1e9, 1e9), min_size=6, max_size=6), place=st.integers(0, len(PROBLEMS) - 1))
def test_an_axis_follows_from_any_mean(mean, place):
    problem = PROBLEMS[place]
    rule = ClippedPlan(problem, es.Concentrated(1.0), (0.05,) * 10, (), (), 0.05).rule
    for deviation in (0.0, 1e-3, 1e6):
        axis = rule.axis(np.array(mean[: problem.width]), deviation)
        assert len(axis) in (0, problem.width)
        if axis:
            assert 0 < Elongated(axis).square < 2**20
            step = rule.levelled(np.ones(problem.dimension), axis)
            noise = Elongated(axis, problem.loss.outputs).covariance.matrix
            np.testing.assert_allclose(noise @ step, np.ones(problem.dimension), rtol=1e-6)


def test_an_axis_costs_least_where_records_are_as_they_are_believed_to_be():
    """Other lengths of it make noise in all other directions, and a tenth of that along it, larger."""
    problem = es.Problem(es.Logistic(), es.Box(0, 1, one_hot=[(0, 10), (10, 30)]), ridge=0.01, n=5000, d=50)
    rule, mean = es.plan(problem, es.Approximate(1.0, 1e-6), "clipped").rule, np.full(50, 0.3)
    spread = 50 * 0.3 * 0.7

    def cost(square):
        clip = spread + mean @ mean / (1 + square)
        return clip * (49 + 1 + square)

    found = Elongated(rule.axis(mean, 0.0)).square
    assert all(cost(found) <= cost(found * factor) for factor in np.geomspace(0.1, 10, 41))
    assert rule.axis(np.zeros(50), 1.0) == ()
    assert rule.axis(0.3 * np.eye(50)[0], 10.0) == ()


@pytest.mark.parametrize("loss", [es.Logistic(), es.Softmax((0, 1, 2))], ids=["one", "several"])
def test_no_other_split_of_the_budget_costs_less(loss):
    problem = es.Problem(loss, es.Box(0, 1), ridge=1e-3, n=5000, d=20)
    plan = es.plan(problem, es.Approximate(1.0, 1e-6), "clipped")
    pace, size = plan._predicted, plan.pace / plan.rule.whole
    influences, shares = pace._followed(size)[1], pace.shares(size)
    assert shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(np.array(plan.steps) / math.fsum(plan.steps), shares)
    cost = np.sum(influences**2 / shares)
    rng = np.random.default_rng(1)
    for _ in range(100):
        other = shares * np.exp(0.3 * rng.normal(size=len(shares)))
        assert np.sum(influences**2 / (other / other.sum())) > cost * 0.999
    assert cost < 0.95 * len(shares) * np.sum(influences**2)


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.lists(st.floats(-1e19, 1e19), min_size=CELLS, max_size=CELLS), min_size=3, max_size=3),
    place=st.integers(0, len(PROBLEMS) - 1),
)
def test_clips_and_steps_follow_from_any_counts(counts, place):
    problem = PROBLEMS[place]
    rule = ClippedPlan(problem, es.Concentrated(1.0), (0.05,) * 10, (), (), 0.05).rule
    bend = rule.unseen.bend
    if rule.has_numbers:
        look = Longest.at(problem, np.zeros(problem.dimension), rule.largest(None), 0.01)
        bend = rule.bent(look, np.array(counts[-1]))
        assert 0 < bend <= problem.loss.curvature * problem.record_size(2) ** 2 * (1 + 1e-9)
    look = Sizes.at(problem, np.zeros(problem.dimension), rule.largest(None), 0.01)
    known = rule.seen(look, np.array(counts[0]), bend)
    least = 0.99 * rule.manner.lowest / rule.manner.first * known.clip
    for each in counts:
        assert 0 < known.radius <= problem.record_size(2) * (1 + 1e-12)
        assert math.isfinite(known.clip)
        assert known.clip >= least
        assert 0 < rule.longest_step(known) < math.inf
        look = Sizes.at(problem, np.zeros(problem.dimension), rule.largest(known), 0.01)
        known = rule.adapted(known, look, np.array(each))


def test_the_clip_follows_the_sizes():
    problem = es.Problem(es.Logistic(), es.Ball(1.0), ridge=0.0, n=100_000, d=10)
    rule = es.plan(problem, es.Approximate(1.0, 1e-6), "clipped").rule
    clips = []
    for cell in (4, 8, 12):
        look = Sizes.at(problem, np.zeros(10), rule.largest(rule.first(0.5, 1.0)), 0.01)
        counts = np.zeros(CELLS)
        counts[cell] = problem.n
        known = rule.adapted(rule.first(0.5, 1.0), look, counts)
        clips.append(known.clip)
        assert known.clip == pytest.approx(max(look.ends[cell], 0.2 * 1.15 * 0.5))
        assert known.mean == pytest.approx(look.ends[cell] * 2**-0.125)
    assert clips[0] > clips[1] > clips[2]


def test_a_plan_is_charged_followed_and_read_back(tmp_path):
    losses, budgets = (es.Logistic(), es.Squared()), (es.Approximate(1.0, 1e-6), es.Concentrated(0.4))
    for loss, budget in itertools.product(losses, budgets):
        problem = es.Problem(loss, es.Box(0, 1), ridge=0.01, n=2000, d=3, intercept=True)
        plan = es.plan(problem, budget, "clipped")
        assert es.Plan.from_json(plan.to_json()) == plan
        assert 0.999999 * budget.amount < plan.spent <= budget.amount
        assert plan.middle
        assert bool(plan.lengths) == (loss == es.Squared())
        assert len(plan.charges) == plan.requests == plan.iterations + len(plan.looks) + 1 + bool(plan.lengths)
        ledger = es.Ledger(tmp_path / f"{type(loss).__name__}-{type(budget).__name__}.db")
        ledger.create("people", budget)
        rows = es.Rows(problem, *records_of(problem))
        run = es.run(plan, rows, ledger=ledger.account("people"), anyway=True)
        assert run.path.shape == (plan.iterations + 2, problem.dimension)
        np.testing.assert_allclose(run.x, run.path[-plan.iterations // 2 - 1 : -1].mean(axis=0))
        assert {name: array.shape for name, array in run.extras.items()} == plan.besides
        assert plan.choices(run.extras)["Clips"].count("step") == len(plan.looks)
        with pytest.raises(es.BudgetExceededError):
            es.run(plan, rows, ledger=ledger.account("people"), anyway=True)
        assert es.run(plan, rows, seed=1, repetitions=2).path.shape == (*run.path.shape, 2)


def test_an_interrupted_run_goes_on(tmp_path):
    problem = es.Problem(es.Softmax((0, 1, 2)), es.Ball(2.0), ridge=0.01, n=60, d=4)
    plan = ClippedPlan(problem, es.Concentrated(30.0), (3.0,) * 6, (0, 3), (1.0, 0.5), 0.05, (), 1.0)
    rows = es.Rows(problem, *records_of(problem))
    whole = es.run(plan, rows, seed=5, checkpoint=tmp_path / "whole")
    for stop in (1, 5):

        def interrupt(number, stop=stop):
            if number == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            es.run(plan, rows, seed=5, checkpoint=tmp_path / f"{stop}", on_step=interrupt)
        resumed = es.run(plan, rows, seed=5, checkpoint=tmp_path / f"{stop}")
        np.testing.assert_array_equal(resumed.path, whole.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"looks": (1,), "prices": (0.1,)}, "first look is before step 0"),
        ({"looks": (0, 9), "prices": (0.1, 0.1)}, "before one of 8 steps"),
        ({"looks": (0, 3, 3), "prices": (0.1,) * 3}, "others follow it"),
        ({"looks": (0,), "prices": ()}, "price each"),
        ({"looks": (0,), "prices": (-0.1,)}, "prices must be"),
        ({"steps": (0.1, 0.0)}, "steps must be"),
        ({"steps": ()}, "the number of steps must be"),
        ({"middle": -0.1}, "middle must be"),
        ({"middle": 0.3}, "more than its budget"),
        ({"pace": -1.0}, "pace must be"),
        ({"blend": (0.1,)}, "a blend has a rho for its look and one"),
        ({"blend": (0.1, -1.0)}, "blend must be"),
        ({"blend": (0.1, 0.1)}, "more than its budget"),
        ({"steps": (0.2,) * 8}, "more than its budget"),
        ({"budget": es.Pure(1.0)}, "Use a budget that has a delta"),
        ({"problem": es.Problem(es.PseudoHuber(), es.Ball(1.0), ridge=0.1, n=100, d=2)}, "classes and squared loss"),
        ({"lengths": -0.1}, "lengths must be"),
        ({"lengths": 0.3}, "more than its budget"),
        ({"problem": es.Problem(es.Logistic(), es.Ball(1.0), ridge=0.1, n=100, d=2, clip=0.1)}, "leave clip out"),
    ],
)
def test_what_is_no_plan_is_refused(change, message):
    problem = es.Problem(es.Logistic(), es.Ball(1.0), ridge=0.1, n=100, d=2)
    plan = ClippedPlan(problem, es.Concentrated(1.0), (0.1,) * 8, (), (), 0.05)
    with pytest.raises((ValueError, TypeError), match=message):
        dataclasses.replace(plan, **change)


def test_more_budget_is_expected_to_be_better():
    for problem in PROBLEMS:
        large = restated(problem, n=5000)
        expected = [
            es.plan(large, es.Approximate(epsilon, 1e-6), "clipped").utility.expected
            for epsilon in np.geomspace(0.01, 100, 15)
        ]
        assert np.all(np.diff(expected) < 0)
        assert expected[0] < es.plan(large, es.Approximate(1.0, 1e-6), "clipped").utility.trivial


@pytest.mark.parametrize(
    "loss", [es.Logistic(), es.Softmax((0, 1, 2)), es.Squared()], ids=["one", "several", "numbers"]
)
def test_what_is_predicted_is_the_mean_over_many_runs_on_the_typical_quadratic(loss):
    """The exact recursion against 4000 simulated runs, whose mean is within 4 % of it but for a chance of 1e-6."""
    problem = es.Problem(loss, es.Box(0, 1), ridge=1e-3, n=5000, d=20, intercept=True)
    pace = Pace(es.plan(problem, es.Approximate(1.0, 1e-6), "clipped").rule, 40)
    lam, gains, powers = (array[:, None] for array in pace._entries)
    rng, size = np.random.default_rng(1), 3 * pace.best
    shares = pace.shares(size)
    deviation = pace.rule.noise(pace.rule.whole) * np.sqrt(powers)
    x = np.tile(np.sqrt(2 * gains / lam), (1, 4000))
    velocity, path = np.zeros_like(x), []
    for share in shares:
        velocity = 0.9 * velocity - size * (lam * x + deviation / np.sqrt(share) * rng.standard_normal(x.shape))
        x = x + velocity
        path.append(x)
    mean = np.mean(path[-pace.last :], axis=0)
    assert np.sum(lam / 2 * mean**2, axis=0).mean() == pytest.approx(pace.error(size), rel=0.04)


@pytest.mark.parametrize("d", [5, 200])
def test_no_other_size_of_steps_is_expected_to_be_better(d):
    """Than the one that steps are a little shorter than, on the typical problem, and that curvature allows."""
    for domain in (es.Ball(2.0), es.Box(0, 1)):
        for loss in LOSSES:
            problem = es.Problem(loss, domain, ridge=0.01, n=5000, d=d)
            rule = es.plan(problem, es.Approximate(1.0, 1e-6), "clipped").rule
            pace = Pace(rule, 300)
            best = pace.typical
            longest = rule.longest_step(rule.unseen) / rule.manner.caution
            others = [size for size in best * 2.0 ** np.linspace(-8, 8, 65) if size <= longest]
            assert pace.best <= rule.longest_step(rule.unseen)
            assert pace.error(best) < 1.02 * min(map(pace.error, others))


@settings(max_examples=200, deadline=None)
@given(counts=st.lists(st.floats(-1e9, 1e9), min_size=CELLS, max_size=CELLS))
def test_shares_follow_from_any_counts(counts):
    problem = PROBLEMS[0]
    look = Sizes.at(problem, np.zeros(problem.dimension), 1.0, 0.01)
    shares = look.shares(np.array(counts))
    assert shares.sum() == pytest.approx(1.0, abs=1e-6)
    assert shares.min() >= 0
    noisy = np.array(counts) / problem.n
    inner = [np.eye(CELLS)[place] - shares for place in range(CELLS)]
    scale = 1 + np.abs(noisy).max()
    assert max(float((noisy - shares) @ way) for way in inner) <= 1e-9 * scale**2  # none of all shares is nearer


def least_squares(seed, n=20_000, d=30):
    """Numbers that records explain but for a sixth of their range, and few of which are near its ends."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d)) ** 2
    y = np.clip((X - 1 / 3) @ rng.normal(size=d) / 4 + 0.15 * rng.standard_t(4, size=n), -1, 1)
    return es.Problem(es.Squared(), es.Box(0, 1), ridge=1e-3, n=n, d=d), X, y


def test_numbers_are_fitted_better_than_by_one_minimum():
    problem, X, y = least_squares(1)
    rows, budget = es.Rows(problem, X, y), es.Approximate(0.3, 1e-6)
    least = rows.value(es.run(es.plan(problem, es.Pure(1e6), "objective"), rows, seed=1).x)

    def left(method):
        plan = es.plan(problem, budget, **method)
        return np.mean([float(rows.value(es.run(plan, rows, seed=seed).x) - least) for seed in range(5)])

    assert es.plan(problem, budget, release="final").method == "clipped descent"
    assert left({"method": "clipped"}) < 0.8 * left({"method": "adaptive"})


@pytest.mark.parametrize("scale", [1.0, 0.02])
def test_steps_end_whatever_the_size_of_the_targets(scale):
    """Targets that are far smaller than declared do not make steps too long: nothing swings up."""
    problem, X, y = least_squares(2)
    rows = es.Rows(problem, X, scale * y)
    run = es.run(es.plan(problem, es.Approximate(8.0, 1e-6), "clipped"), rows, seed=1)
    zero = float(rows.value(np.zeros(problem.dimension)))
    values = [float(rows.value(point)) for point in run.path[10:]]
    assert max(values) < 1.05 * zero
    assert values[-1] < 0.6 * zero


def test_many_classes_are_fitted():
    """Gaussian clusters of 6 classes in 12 dimensions: most of what there is to gain is gained."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 12))
    y = rng.integers(6, size=20_000)
    X = np.clip((centres[y] + rng.normal(size=(20_000, 12))) / 4, -1, 1)
    problem = es.Problem(es.Softmax(tuple(range(6))), es.Box(-1, 1), ridge=1e-4, n=20_000, d=12, intercept=True)
    plan = es.plan(problem, es.Approximate(1.0, 1e-6), "clipped")
    rows = es.Rows(problem, X, y)
    x = es.run(plan, rows, seed=1).x.reshape(6, -1)
    right = np.mean(np.argmax(np.column_stack([X, np.ones(len(X))]) @ x.T, axis=1) == y)
    assert right > 0.8


def separable(seed, n=4000, d=160):
    """Two classes that a hyperplane nearly separates, in a box that is far wider than the records."""
    rng = np.random.default_rng(seed)
    X = 0.2 * rng.normal(size=(n, d)) * np.geomspace(1, 0.05, d)
    y = np.where(X @ np.geomspace(1, 20, d) + 0.05 * rng.normal(size=n) > 0, 1, -1)
    return es.Problem(es.Logistic(), es.Box(-1, 1), ridge=1e-4, n=n, d=d), np.clip(X, -1, 1), y


def test_a_blend_goes_where_the_loss_is_least():
    """Without noise to speak of: in the space of its points, but for what clips and so few steps leave out."""
    problem, X, y = separable(1)
    plan = es.plan(problem, es.Concentrated(1.0), "clipped")
    assert plan.blend
    plan = dataclasses.replace(plan, budget=es.Concentrated(1e9), blend=(1e4, 1e7))
    rows = es.Rows(problem, X, y)
    run = es.run(plan, rows, seed=1)
    mean = run.path[-1 - plan._predicted.last : -1].mean(axis=0)
    blend = plan._blend_of(mean, run.path[:-1])
    np.testing.assert_allclose(blend.directions @ blend.start, mean, atol=1e-12)
    np.testing.assert_allclose(run.extras["blended"][0], mean, atol=1e-12)
    least = scipy.optimize.minimize(lambda place: float(rows.value(blend.directions @ place)), blend.start).fun
    assert rows.value(run.x) - least < 0.3 * (rows.value(mean) - least)


def test_a_blend_makes_up_for_steps_that_were_too_short():
    problem, X, y = separable(2)
    rows, gains = es.Rows(problem, X, y), []
    for seed in range(5):
        run = es.run(es.plan(problem, es.Approximate(1.0, 1e-6), "clipped"), rows, seed=seed)
        gains.append(float(rows.value(run.extras["blended"][0]) - rows.value(run.x)))
    assert np.mean(gains) > 0.03
    assert min(gains) > 0


def test_many_columns_are_fitted_by_a_blend_where_nothing_is_named():
    problem, X, y = separable(3)
    for loss, labels in ((es.Logistic(), y), (es.Softmax((-1, 0, 1)), y)):
        plan = es.plan(restated(problem, loss=loss), es.Approximate(1.0, 1e-6), release="final")
        assert plan.method == "clipped descent"
        assert plan.blend
        rows = es.Rows(plan.problem, X, labels)
        assert rows.value(es.run(plan, rows, seed=1).x) < 0.9 * rows.value(np.zeros(plan.problem.dimension))


def test_points_without_length_are_blended():
    """Whatever was published: a path that stayed at 0 has directions, too."""
    problem = es.Problem(es.Logistic(), es.Box(-1, 1), ridge=1e-4, n=100, d=160)
    blend = Blend(problem, 1.0, np.zeros((160, 3)))
    moves, models = blend.moves(0.5), []

    def followed():
        models.append((yield from moves))

    asked = followed()
    next(asked)
    places = list(itertools.takewhile(lambda place: place is not None, (_sent(asked, np.ones(3)) for _ in range(99))))
    assert np.all(np.isfinite(places))
    assert np.all(np.isfinite(models))
    assert len(models) == 1


def _sent(generator, value):
    """Return what a generator yields next, or None at its end."""
    with contextlib.suppress(StopIteration):
        return generator.send(value)


def not_clipped(patch):
    patch.setattr(clipping.levels, "of_records", lambda *given: right_levels(*given[:4]))


right_levels = levels.of_records


def without_the_intercept(patch):
    right = Lengths._of

    def wrong(self, chunk):
        length, intercept = right(self, chunk), self.problem.intercept
        return np.sqrt(np.maximum(length**2 - intercept, 1e-12))

    patch.setattr(Lengths, "_of", wrong)


def clip_of_the_mean(patch):
    """The sum is clipped, and not each gradient: of one record by itself that is the same, of all it is not."""
    patch.setattr(ClippedGradient, "encode", lambda self, chunk: _all_at_once(self, chunk))


def _all_at_once(request, chunk):
    longest = np.full(len(chunk), request.problem.clip / Lengths(request.problem).of(chunk).mean())
    margins = clipping.encode_products(request._points, request.problem.loss.outputs, chunk)[:, :, 0]
    slopes = right_levels(request.problem.loss, margins, chunk.targets, float(request._points.bound[0]), longest)
    return chunk.gather(slopes).T.reshape(-1, 1)


def counted_twice(patch):
    right = Sizes.encode
    patch.setattr(Sizes, "encode", lambda self, chunk: 2 * right(self, chunk))


def looks_without_noise(patch):
    patch.setattr(Sizes, "publish", lambda self, reading, draw: reading.astype(float))


def half_of_its_noise(patch, kind):
    """Patch a kind of histogram."""

    def draw(self, source):
        return {"noise": source.integers(GAUSSIAN, self.scale / 2, (CELLS,))}

    patch.setattr(kind, "draw", draw, raising=False)


def looks_with_half_their_noise(patch):
    half_of_its_noise(patch, Sizes)


def looks_not_charged(patch):
    right = ClippedPlan.charges.fget
    charges = property(lambda self: [charge for charge in right(self) if "sizes" not in charge.what])
    patch.setattr(ClippedPlan, "charges", charges)


def scaled_for_another_clip(patch):
    def at(cls, problem, mechanism, x, cost):
        half = super(ClippedGradient, cls).at(restated(problem, clip=problem.clip / 2), mechanism, x, cost)
        return dataclasses.replace(half, problem=problem)

    patch.setattr(ClippedGradient, "at", classmethod(at))


def pulls_not_clipped(patch):
    patch.setattr(clipping, "_norms", lambda columns: np.zeros(columns.shape[:-1]))


def pulls_clipped_by_their_largest(patch):
    """Each number is held by itself, so that three of them may be √3 times too long."""
    patch.setattr(clipping, "_norms", lambda columns: np.max(np.abs(columns), axis=-1))


def pulls_with_half_their_noise(patch):
    def draw(self, source):
        return {"noise": source.integers(GAUSSIAN, self.scale / 2, (self.directions.shape[1],))}

    patch.setattr(Pulls, "draw", draw)


def noise_not_along_the_axis(patch):
    """As much of it in every direction: too little along the axis."""
    patch.setattr(ClippedGradient, "draw", lambda self, source: _spherical(self, source))


def _spherical(request, source):
    return {"noise": source.integers(GAUSSIAN, request._release.scale, request._columns.shape)}


def lengths_not_charged(patch):
    right = ClippedPlan.charges.fget
    charges = property(lambda self: [charge for charge in right(self) if "lengths" not in charge.what])
    patch.setattr(ClippedPlan, "charges", charges)


def lengths_with_half_their_noise(patch):
    half_of_its_noise(patch, Longest)


def lengths_along_another_axis(patch):
    right = Lengths._less_along

    def wrong(self, chunk, whole):
        return right(dataclasses.replace(self, axis=tuple(2 * entry for entry in self.axis)), chunk, whole)

    patch.setattr(Lengths, "_less_along", wrong)


def mean_not_charged(patch):
    right = ClippedPlan.charges.fget
    charges = property(lambda self: [charge for charge in right(self) if "mean" not in charge.what])
    patch.setattr(ClippedPlan, "charges", charges)


def mean_with_half_its_noise(patch):
    def draw(self, source):
        return {"noise": source.integers(GAUSSIAN, self._release.scale / 2, self._columns.shape)}

    patch.setattr(Middle, "draw", draw, raising=False)


def mean_of_longer_records(patch):
    right = Middle.encode
    patch.setattr(Middle, "encode", lambda self, chunk: 2 * right(self, chunk))


def pulls_not_charged(patch):
    right = ClippedPlan.charges.fget
    charges = property(lambda self: [charge for charge in right(self) if "pull" not in charge.what])
    patch.setattr(ClippedPlan, "charges", charges)


BUGS = {
    "noise that is not along its axis": (noise_not_along_the_axis, audit_clipped_descent, "mu"),
    "lengths that are not charged": (lengths_not_charged, replay_clipped_descent, "asks for|more than"),
    "lengths with half of their noise": (lengths_with_half_their_noise, audit_clipped_descent, "mu"),
    "lengths along another axis": (lengths_along_another_axis, no_gradient_is_longer_along_an_axis, "has the size"),
    "a mean that is not charged": (mean_not_charged, replay_clipped_descent, "asks for|more than"),
    "a mean with half of its noise": (mean_with_half_its_noise, the_mean_is_that_of_the_records, "deviates by"),
    "a mean with half of its noise, replayed": (mean_with_half_its_noise, replay_clipped_descent, "moved by"),
    "a mean of records that count twice": (mean_of_longer_records, replay_clipped_descent, "moved by"),
    "pulls not clipped": (pulls_not_clipped, no_pull_is_longer_than_its_clip, "has the size"),
    "pulls clipped by their largest": (pulls_clipped_by_their_largest, no_pull_is_longer_than_its_clip, "has the size"),
    "pulls not clipped, replayed": (pulls_not_clipped, replay_clipped_descent, "moved by|asks for|more than"),
    "pulls with half of their noise": (pulls_with_half_their_noise, audit_clipped_descent, "mu"),
    "pulls with half of their noise, by its law": (
        pulls_with_half_their_noise,
        pulls_have_their_noise_and_no_other,
        "deviate by",
    ),
    "pulls that are not charged": (pulls_not_charged, replay_clipped_descent, "asks for|more than"),
    "gradients not clipped": (not_clipped, no_gradient_is_longer_than_its_clip, "has the size"),
    "gradients not clipped, replayed": (not_clipped, replay_clipped_descent, "moved by"),
    "intercept left out of the length": (without_the_intercept, no_gradient_is_longer_than_its_clip, "has the size"),
    "clipped by the mean length": (clip_of_the_mean, replay_clipped_descent, "moved by"),
    "a record counted twice": (counted_twice, every_record_is_in_one_cell, "another number of cells"),
    "a record counted twice, replayed": (counted_twice, replay_clipped_descent, "moved by"),
    "looks without noise": (looks_without_noise, looks_have_their_noise_and_no_other, "deviates by"),
    "looks with half of their noise": (looks_with_half_their_noise, audit_clipped_descent, "mu"),
    "looks with half of their noise, by its law": (
        looks_with_half_their_noise,
        looks_have_their_noise_and_no_other,
        "deviates by",
    ),
    "looks that are not charged": (looks_not_charged, replay_clipped_descent, "asks for|more than"),
    "noise scaled for half the clip": (scaled_for_another_clip, replay_clipped_descent, "asks for|more than"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_bug_is_caught(bug, monkeypatch):
    plant, check, words = BUGS[bug]
    plant(monkeypatch)
    with pytest.raises((AssertionError, ReplayError, es.OverspentError), match=words):
        check(seed=1)
