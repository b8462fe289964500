"""The solver of published minima: its sums keep their bound, and it ends, whatever the records."""

import math
import warnings
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from laws.releases import asked, reading
from scipy import stats

import epsteps as es
from epsteps.budgets import mechanisms
from epsteps.data import encoding
from epsteps.methods.minimum import LONG, Goal, Minimised, least_tolerance, rounding, tilt_length
from epsteps.noise import Source
from epsteps.problem.grid import STEPS
from epsteps.running import passes
from epsteps.running import solver as solving
from epsteps.running.passes import FINE, MIDDLE, ROUGH, certified_gradient
from epsteps.running.solver import Tilted, grid_minimum

KINDS = (np.float64, np.longdouble)
PRECISIONS = (ROUGH, MIDDLE, FINE, passes.LONG)
LOSSES = (
    es.Logistic(),
    es.CappedLogistic(cap=0.05),
    es.HalfExponential(),
    es.SmoothedHinge(width=0.02),
    es.PseudoHuber(bound=1.0, c=0.05),
    es.PseudoHuber(bound=1.0, c=0.1, power=8),
    es.Softmax(classes=(-1, 0, 1)),
)
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
long_doubles = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > LONG, reason="the long doubles of this machine are doubles"
)


def decimal(number):
    """Return a float of any kind, or a fraction, as a decimal of 60 digits."""
    exact = number if isinstance(number, Fraction) else Fraction(*number.as_integer_ratio())
    return Decimal(exact.numerator) / Decimal(exact.denominator)


def exact_slopes(loss, margins, target):
    """Return the derivatives of one record's loss, from decimal margins."""
    if isinstance(loss, es.Softmax):
        powers = [(margin - max(margins)).exp() for margin in margins]
        slopes = [power / sum(powers) - (k == int(target)) for k, power in enumerate(powers)]
        share = min(Decimal(1), decimal(getattr(loss, "cap", 1)) / max(map(abs, slopes)))  # of 1 - p_y, the largest
        return [share * slope for slope in slopes]
    (margin,), target = margins, decimal(target)
    if isinstance(loss, es.PseudoHuber):
        ratio = (margin - target) / decimal(loss.c)
        return [decimal(loss.c) * ratio / (1 + ratio**loss.power) ** (1 / Decimal(loss.power))]
    if isinstance(loss, es.HalfExponential):
        return [-target * (-min(max(target * margin, Decimal(0)), Decimal(10**6))).exp()]
    width, centre = (decimal(loss.width), 1) if isinstance(loss, es.SmoothedHinge) else (1, 0)
    exponent = min((target * margin - centre) / width, Decimal(10**6))
    return [-target * min(1 / (1 + exponent.exp()), decimal(getattr(loss, "cap", 1)))]


def exact_gradient(objective, X, y, x, tilt):
    """Return the gradient of the tilted sum at x in 60 digits, from formulas that share nothing with the library."""
    problem, loss = objective.problem, objective.loss
    u = encoding.integers(problem, X)
    steps = [Fraction(unit) / STEPS for unit in problem.units[: problem.width].tolist()]
    targets = loss.encode(y).astype(np.float32)
    point = np.array([Fraction(*entry.as_integer_ratio()) for entry in x], dtype=object)
    point = point.reshape(loss.outputs, problem.width)
    with localcontext() as context:
        context.prec = 60
        strength = decimal(Fraction(objective.ridge) * problem.n)
        total = [strength * decimal(a) + decimal(b) for a, b in zip(point.ravel(), tilt, strict=True)]
        for row, target in zip(u, targets, strict=True):
            exact = [Fraction(entry) * step for entry, step in zip(row.tolist(), steps, strict=True)]
            margins = [decimal(sum(a * b for a, b in zip(exact, block, strict=True))) for block in point]
            slopes = exact_slopes(loss, margins, float(target))
            terms = [slope * decimal(entry) for slope in slopes for entry in exact]
            total = [a + b for a, b in zip(total, terms, strict=True)]
    return total


def length(vector):
    with localcontext() as context:
        context.prec = 60
        return sum(entry * entry for entry in vector).sqrt()


def labelled(loss, rng, n):
    return rng.choice([-1, 0, 1] if isinstance(loss, es.Softmax) else [-1, 1], n)


@each_loss
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_loss_keeps_the_kind_of_its_margins_and_all_of_its_digits(loss, kind):
    """Slopes are within 20 units of the largest one, as the bound on rounding errors assumes; so is their product."""
    rng, unit = np.random.default_rng(0), float(np.finfo(kind).eps)
    margins = (10.0 ** rng.uniform(-3, 3, 300) * rng.choice([-1, 1], 300)).astype(kind)
    margins += (rng.uniform(-1, 1, 300) * unit).astype(kind)
    targets = loss.encode(labelled(loss, rng, 300))
    several = loss.outputs > 1
    points = np.stack([margins, np.roll(margins, 1), np.roll(margins, 2)], axis=1) if several else margins
    found = loss.derivative(points, targets[:, None] if several else targets)
    assert found.dtype == kind
    with localcontext() as context:
        context.prec = 60
        for margin, target, slopes in zip(points.reshape(300, -1), targets, found.reshape(300, -1), strict=True):
            exact = exact_slopes(loss, [decimal(entry) for entry in margin], float(target))
            for a, b in zip(slopes, exact, strict=True):
                assert abs(float(decimal(a) - b)) <= 20 * unit * loss.slope


@each_loss
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_certified_gradients_are_within_their_bound(loss, size):
    """Against 60 digits, over several blocks, for records of all lengths and points of long doubles far from 0."""
    rng = np.random.default_rng(1)
    problem = es.Problem(loss, es.Ball(size), ridge=0.3, n=600, d=2, intercept=True)
    objective = Minimised(problem, 0.5)
    X = size * rng.standard_normal((600, 2)) * 10.0 ** rng.uniform(-6, 1, (600, 1))
    y = labelled(loss, rng, 600)
    x = (rng.standard_normal(problem.dimension) / min(size, 1.0)).astype(np.longdouble)
    x += x * LONG * 5
    tilt = rng.standard_normal(problem.dimension).astype(np.longdouble) * 100
    exact = exact_gradient(objective, X, y, x, tilt)
    errors = []
    for precision in PRECISIONS:
        found = certified_gradient(es.Rows(problem, X, y), objective, x, tilt, precision)
        errors.append(float(length([decimal(a) - b for a, b in zip(found.gradient, exact, strict=True)])))
        assert errors[-1] <= found.error
        assert found.least <= float(length(exact)) <= found.most
        sizes = float(np.linalg.norm(x)), float(np.linalg.norm(tilt))
        reach = float(np.max(np.abs(x) * problem.units))
        assert found.error == precision.error(objective, *sizes, reach) <= precision.error(objective, *sizes)
    assert sorted(errors, reverse=True) == errors  # finer is nearer
    assert passes.LONG.error(objective, *sizes) <= rounding(objective, *sizes, LONG)  # what plans leave room for


@long_doubles
def test_slopes_in_doubles_are_not_certified_as_long_doubles(monkeypatch):
    """A loss that loses digits is refused in time."""
    right = es.Logistic.derivative
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=300, d=2)
    plan, rng = es.plan(problem, es.Pure(1.0), "output"), np.random.default_rng(2)
    rows = es.Rows(problem, rng.standard_normal((300, 2)), labelled(problem.loss, rng, 300))
    monkeypatch.setattr(es.Logistic, "derivative", lambda self, m, z: right(self, m.astype(float), z))
    account = Account()
    with pytest.raises(ValueError, match=r"Logistic\.derivative must keep the kind of its margins, got float64"):
        es.run(plan, rows, ledger=account, anyway=True)
    assert not account.charged


@each_loss
def test_the_bound_counts_every_rounding_that_its_proof_lists(loss):
    """Of the ridge's term, the tilt, the margins and the slopes, each by itself, in whole units."""
    unit = 2.0**-52
    for ridge, size in ((1e-6, 1.0), (1e3, 1e-3), (1e3, 1.0)):
        problem = es.Problem(loss, es.Ball(size), ridge=ridge, n=600, d=2, intercept=True)
        objective, root = Minimised(problem, ridge), math.sqrt(loss.outputs)
        record, classes = problem.record_size(2), loss.outputs * (loss.outputs > 1)
        at_zero = rounding(objective, 0.0, 0.0, unit)
        assert at_zero >= unit * 600 * record * loss.slope * (256 + 54 + 20 + 2 + classes) * root
        margins = 600 * record**2 * loss.curvature * (problem.width + 2) * root
        assert rounding(objective, 1e9, 0.0, unit) - at_zero >= 1e9 * unit * (margins + 4 * 600 * ridge)
        assert rounding(objective, 0.0, 1e9, unit) - at_zero >= 1e9 * unit * 2
        fixed = 600 * record * root * loss.slope * 2.0**-61
        assert FINE.error(objective, 0.0, 0.0) >= unit * 600 * record * loss.slope * (24 + classes) * root + fixed
        margins = (
            600 * record**2 * loss.curvature * (unit + problem.width * 2.0 ** -FINE.point_bits(problem.width)) * root
        )
        more = FINE.error(objective, 1e9, 0.0) - FINE.error(objective, 0.0, 0.0)
        assert more >= 1e9 * (margins + unit * 4 * 600 * ridge)


@each_loss
def test_no_point_beyond_the_reach_is_below_the_start(loss):
    """G(x) = n F(x) + b'x exceeds G(0) in every direction, for tilts that are short and long against the slopes."""
    rng, n = np.random.default_rng(11), 30
    for ridge, share in [(ridge, share) for ridge in (1e-3, 0.1, 1.0, 100.0) for share in (0.0, 0.3, 0.9, 1.1, 20.0)]:
        problem = es.Problem(loss, es.Ball(1), ridge=ridge, n=n, d=2)
        objective = Minimised(problem, ridge)
        rows = es.Rows(problem, np.tile([1.0, 0.0], (n, 1)), np.ones(n))
        length = share * n * objective.gradient_size
        reach = objective.reach(length)
        for _ in range(5):
            direction = rng.standard_normal(problem.dimension)
            direction[0] = 3 * abs(direction[0])
            direction /= np.linalg.norm(direction)
            for sign in (1.0, -1.0):
                x = sign * reach * direction
                change = n * (rows.value(x) - rows.value(0 * x)) - length * reach
                assert change > 0


class Account:
    """Takes every charge, and knows of it."""

    def __init__(self):
        self.charged = False

    def charge(self, budget, note="", key=None):
        self.charged = True


def hostile(loss, n, d, rng):
    """Yield records on which solvers stumble: flat, separable, far outside, a single one that differs."""
    labels = labelled(loss, rng, n)
    one = np.zeros((n, d))
    one[0] = 1e6
    gaussian = rng.standard_normal((n, d))
    yield "zeros", np.zeros((n, d)), np.ones(n)
    yield "equal", np.ones((n, d)), np.ones(n)
    yield "separable", gaussian, np.sign(gaussian[:, 0])
    yield "extremes", rng.choice([-1e300, np.inf, 1e9], (n, d)), labels
    yield "outlier", one, -np.ones(n)
    yield "tiny", 1e-200 * gaussian, labels


# Number of records and epsilon: products of 1e-5 and 1e15.
AMOUNTS = ((20, 1e-6), (2000, 5e-7), (20, 1e6), (20, 1e14))
METHODS = {
    "objective": {},
    "sequential": {},
    "output": {},
    "gaussian": {"method": "objective", "mechanism": "gaussian"},
    "laplace": {"method": "objective", "mechanism": "laplace"},
}


@each_loss
@pytest.mark.parametrize("method", METHODS)
def test_nothing_raises_or_warns_after_the_charge_whatever_the_records(loss, method):
    """Every amount with small and large ridges, in turns over the dimensions and all the hostile records."""
    rng, turn = np.random.default_rng(3), 7 * LOSSES.index(loss) + list(METHODS).index(method)
    for (n, epsilon), ridge in [(amount, ridge) for amount in AMOUNTS for ridge in (1e-9, 0.3)]:
        turn += 1
        d = (1, 4, 50)[turn % 3] if n == 20 else 1
        problem = es.Problem(loss, es.Box(0, 1) if d == 4 else es.Ball(1), ridge=ridge, n=n, d=d, intercept=d == 4)
        budget = es.Approximate(epsilon, 1e-6) if method == "gaussian" else es.Pure(epsilon)
        plan = es.plan(problem, budget, **({"method": method} | METHODS[method]))
        name, X, y = list(hostile(loss, n, d, rng))[turn % 6]
        rows, account = es.Rows(problem, X, y, engine="numpy"), Account()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = es.run(plan, rows, ledger=account, anyway=True)
        assert account.charged
        assert np.all(np.isfinite(found.path)), name


@each_loss
@pytest.mark.parametrize("amount", [(12, 1e-6), (12, 1.0), (12, 1e14)], ids=str)
def test_the_point_that_is_found_is_near_the_minimum_in_sixty_digits(loss, amount):
    """The certificate, checked again without the library's sums, losses or kinds of float."""
    (n, epsilon), rng = amount, np.random.default_rng(4)
    problem = es.Problem(loss, es.Ball(1), ridge=1e-6, n=n, d=2, intercept=True)
    tilted, plain = es.plan(problem, es.Pure(epsilon), "objective"), es.plan(problem, es.Pure(epsilon), "output")
    for _, X, y in hostile(loss, n, 2, rng):
        rows = es.Rows(problem, X, y)
        for plan in (tilted, plain):
            request = asked(plan)
            draw = request.draw(Source(5))
            x = [Fraction(int(entry)) * Fraction(request.goal.step) for entry in reading(request, rows, draw)]
            exact = exact_gradient(plan.objective, X, y, x, request.tilt_of(draw))
            assert float(length(exact)) <= plan.tolerance


@pytest.mark.parametrize("n", [100, 4 * 10**6, 10**9])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e5])
@pytest.mark.parametrize("method", METHODS)
def test_every_plan_can_be_reached_and_says_so_without_data(n, epsilon, method):
    """The theorem's conditions, for plans of all sizes: also where the output's bits alone made the grid too coarse."""
    for d, ridge in ((1, 0.01), (20, 1e-8), (300, 1e-4)):
        problem = es.Problem(es.Logistic(), es.Ball(1), ridge=ridge, n=n, d=d, smoothness=2.0)
        budget = es.Approximate(epsilon, 1e-9) if method == "gaussian" else es.Pure(epsilon)
        plan = es.plan(problem, budget, **({"method": method} | METHODS[method]))
        goals = [plan.goal] if method == "output" else plan.goals
        for goal in goals:
            goal.require_reachable(LONG)
            smoothness = n * (0.25 + plan.ridge)
            assert smoothness * goal.step * math.sqrt(d) <= goal.tolerance / 4 * (1 + 1e-9)
            assert 4 * LONG * goal.reach <= goal.step
            assert math.log2(goal.step) == round(math.log2(goal.step))


@pytest.mark.parametrize("shares", [(0.01, 0.99), (1e-4, 1 - 1e-4)], ids=str)
def test_minima_of_unequal_shares_can_all_be_reached(shares):
    """One tolerance serves all: it is no smaller than what the finest grid, that of the largest share, needs."""
    for n, epsilon, ridge in ((10, 1e10, 1e-9), (10, 1e10, 0.3), (10**5, 1e10, 0.3), (10**5, 1.0, 1e-3)):
        problem = es.Problem(es.Logistic(), es.Ball(1), ridge=ridge, n=n, d=2)
        plan = es.plan(problem, es.Pure(epsilon), "objective", mechanism="l2", shares=shares)
        plan.require_executable(LONG)
        assert plan.spent <= epsilon


@pytest.mark.parametrize("mechanism", ["l2", "gaussian"])
def test_noise_of_outputs_fits_its_integers_in_every_unit_of_the_records(mechanism):
    """Where records are huge, a grid as fine as the tolerance asks for would leave no room for the noise."""
    for size, n, epsilon in ((1e-12, 10**6, 1e-3), (1e6, 1000, 1e-3), (1e12, 10**6, 1e-3), (1e12, 10, 1.0)):
        problem = es.Problem(es.Logistic(), es.Ball(size), ridge=1e-9, n=n, d=2)
        plan = es.plan(problem, es.Approximate(epsilon, 1e-9), "output", mechanism=mechanism)
        plan.require_executable(LONG)
        assert plan.scale / plan.step * (2 + 40 * math.sqrt(2) + 800) <= 2.0**61


@each_loss
def test_descent_on_the_grid_ends_by_itself_within_the_theorems_steps(loss, monkeypatch):
    """Without Newton's method: what the solver falls back on. And it takes many steps, so that the bound means much."""
    rng, taken = np.random.default_rng(6), []
    problem = es.Problem(loss, es.Ball(1), ridge=1.0, n=40, d=2)
    plan = es.plan(problem, es.Pure(1.0), "output")
    goal, right = plan.goal, solving._Search.gradient
    monkeypatch.setattr(solving._Search, "polished", lambda self, *_: None)

    def gradient(self, point, far):
        taken.append(point)
        return right(self, point, far)

    monkeypatch.setattr(solving._Search, "gradient", gradient)
    rows = es.Rows(problem, *next((X, y) for name, X, y in hostile(loss, 40, 2, rng) if name == "separable"))
    found = reading(asked(plan), rows)
    delta, gap = 21 / 64 * goal.tolerance, 40 * loss.value_at_zero
    condition = plan.objective.L / plan.ridge
    most = 4 / 3 * condition * math.log(goal.smoothness * gap / (2 * delta**2)) + 1
    assert 2 < len(taken) <= most
    assert np.array_equal(taken[-1].astype(object).astype(float), found.astype(float))
    assert max(float(np.linalg.norm(point)) for point in taken) * goal.step <= goal.reach


# Losses whose second derivative jumps, and a margin z m at which it does.
KINKED = {es.CappedLogistic(cap=0.5): 0.0, es.CappedLogistic(cap=0.2): math.log(4), es.HalfExponential(): 0.0}


@pytest.mark.parametrize("loss", KINKED, ids=repr)
@pytest.mark.parametrize("d", [1, 3])
def test_a_minimum_at_the_kink_of_all_records_is_found_in_a_few_steps(loss, d, monkeypatch):
    """Equal rows, and a tilt that puts the minimum where every record is at its kink, or next to it on either side.

    Of half of them, too, the others being elsewhere; and where labels differ, so that one half is curved where the
    other is a line.
    """
    passes_made, right, n, ridge = [], passes.certified_gradient, 600, 0.01
    problem = es.Problem(loss, es.Ball(1), ridge=ridge, n=n, d=d)
    plan = es.plan(problem, es.Pure(1e4), "output")
    monkeypatch.setattr(passes, "certified_gradient", lambda *a, **o: passes_made.append(1) or right(*a, **o))
    rng = np.random.default_rng(15)
    row = rng.standard_normal(d)
    row /= 1.25 * np.linalg.norm(row)
    for part, away, labels in [(p, a, s) for p in (1, 2) for a in (0.0, 1e-9, -1e-9, 1e-3, -1e-3) for s in (1, 2)]:
        X, y = np.tile(row, (n, 1)), np.where(np.arange(n) % labels, -1, 1)
        if part > 1:
            X[::part] = rng.standard_normal((len(X[::part]), d))
        rows = es.Rows(problem, X, y, engine="numpy")
        x = (KINKED[loss] + away) * row / (row @ row)
        goal = replace(plan.goal, tilt=2.0 * n)
        goal.require_reachable()
        free = Tilted(plan.objective, rows, np.zeros(d))
        tilted = replace(free, tilt=-free.certified(x, passes.LONG).gradient)
        passes_made.clear()
        found = grid_minimum(tilted, goal).astype(float) * goal.step
        assert len(passes_made) <= 120, (part, away, labels, len(passes_made))
        assert np.linalg.norm(found - x) <= 1.01 * plan.objective.radius(goal.tolerance) + 1e-15


@pytest.mark.parametrize("failure", [MemoryError, "singular", "negative", "not a number"])
def test_second_derivatives_that_fail_are_done_without(failure, monkeypatch):
    def hessian(data, objective, x, sizes, rows, *, whole):
        if failure is MemoryError:
            raise MemoryError
        size = {"singular": 0.0, "negative": -1.0, "not a number": np.nan}[failure]
        return np.full((1, 3, 3) if whole else (1, 3), size)

    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=1.0, n=30, d=3)
    plan, rng = es.plan(problem, es.Pure(10.0), "objective"), np.random.default_rng(7)
    rows = es.Rows(problem, rng.standard_normal((30, 3)), labelled(problem.loss, rng, 30))
    expected = es.run(plan, rows, seed=1).x
    monkeypatch.setattr(passes, "rough_hessian", hessian)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = es.run(plan, rows, seed=1).x
    assert np.linalg.norm(found - expected) <= 2 * plan.objective.radius(plan.tolerance) * (1 + 1e-9)


@each_loss
def test_gradients_and_second_derivatives_are_those_of_the_value(loss):
    """By differences of 1e-5: the tilt and the ridge that planning added are in the gradient, with their signs."""
    rng = np.random.default_rng(12)
    problem = es.Problem(loss, es.Ball(1), ridge=0.1, n=40, d=2, intercept=True)
    rows = es.Rows(problem, rng.standard_normal((40, 2)), labelled(loss, rng, 40))
    tilted = Tilted(Minimised(problem, 0.7), rows, 30 * rng.standard_normal(problem.dimension))
    x, h = 0.1 * rng.standard_normal(problem.dimension), 1e-5

    def value(x):
        return 40 * (rows.value(x) + 0.3 * float(x @ x)) + float(tilted.tilt @ x)

    pairs = [(x + h * e, x - h * e) for e in np.eye(problem.dimension)]
    slopes = np.array([(value(a) - value(b)) / (2 * h) for a, b in pairs])
    assert tilted.certified(x, FINE).gradient.astype(float) == pytest.approx(slopes, abs=2e-4)
    curves = np.stack([tilted.certified(a, FINE).gradient - tilted.certified(b, FINE).gradient for a, b in pairs])
    sizes = passes.column_sizes(rows, None)
    width = problem.width
    matrices = passes.rough_hessian(rows, tilted.objective, x, sizes, None, whole=True)
    diagonal = passes.rough_hessian(rows, tilted.objective, x, sizes, None, whole=False)
    for k, (matrix, entries) in enumerate(zip(matrices, diagonal, strict=True)):
        block = slice(k * width, (k + 1) * width)
        assert 40 * matrix == pytest.approx((curves[block, block] / (2 * h)).astype(float), rel=0.02, abs=0.2)
        assert entries == pytest.approx(np.diag(matrix), rel=0.5)


@each_loss
def test_the_quasi_newton_method_gets_there_in_a_few_steps(loss, monkeypatch):
    """Descent alone would take thousands at this condition: what is promised of the time that a fit takes."""
    counts = dict.fromkeys(("certified_gradient", "rough_hessian", "hessian"), 0)

    def counted(name, function):
        def found(*arguments, **options):
            counts[name] += 1
            return function(*arguments, **options)

        return found

    rng = np.random.default_rng(13)
    problem = es.Problem(loss, es.Ball(1), ridge=1e-5, n=2000, d=3)
    plan = es.plan(problem, es.Pure(50.0), "objective")
    assert plan.objective.L / plan.ridge > 1000
    rows = es.Rows(problem, rng.standard_normal((2000, 3)), labelled(loss, rng, 2000))
    for name in counts:
        monkeypatch.setattr(passes, name, counted(name, getattr(passes, name)))
    request = asked(plan)
    reading(request, rows, request.draw(Source(14)))
    assert 2 <= counts["certified_gradient"] <= 50
    assert 2 <= counts["rough_hessian"] + counts["hessian"] <= 4


@pytest.mark.parametrize("size", [1e-6, 1e-100])
def test_steps_that_lead_far_out_are_shortened_to_the_reach(size, monkeypatch):
    """Second derivatives that are far too small: no gradient is taken beyond the goal's reach."""
    looked = []

    def watched(method):
        def found(self, x, *more):
            looked.append(float(np.linalg.norm(x)))
            return method(self, x, *more)

        return found

    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=1e-4, n=30, d=3)
    plan, rng = es.plan(problem, es.Pure(10.0), "output"), np.random.default_rng(10)
    rows = es.Rows(problem, rng.standard_normal((30, 3)), labelled(problem.loss, rng, 30))
    monkeypatch.setattr(passes, "rough_hessian", lambda *_, **__: np.full((1, 3), size))
    monkeypatch.setattr(Tilted, "certified", watched(Tilted.certified))
    reading(asked(plan), rows)
    assert 0.99 * plan.goal.reach < max(looked) <= plan.goal.reach * (1 + 1e-12) + 2 * plan.goal.step


def test_a_plan_that_cannot_be_reached_is_refused_before_the_charge():
    rng = np.random.default_rng(8)
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=1000, d=2)
    rows = es.Rows(problem, rng.standard_normal((1000, 2)), labelled(problem.loss, rng, 1000))
    for method in ("objective", "output"):
        plan, account = es.plan(problem, es.Pure(1.0), method), Account()
        finer = replace(plan, tolerance=plan.tolerance * 1e-12)
        with pytest.raises(ValueError, match="too coarse for the plan"):
            es.run(finer, rows, ledger=account, anyway=True)
        assert not account.charged
        assert type(plan).from_json(finer.to_json()) == finer  # a plan of another machine can be read here
        with pytest.raises(ValueError, match="too coarse"):
            plan.require_executable(2.0**-30)
    objective = Minimised(problem, 0.1)
    tolerance = 1.001 * least_tolerance(objective, 0.0)
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        Goal(objective, 2.0**-50, 1.0, scale=1e6).require_reachable()
    with pytest.raises(
        ValueError, match=r"a tilt that is known to 0\.0667, is too coarse for the plan's tolerance of 1\."
    ):
        Goal(objective, 2.0**-50, 1.0, scale=1e-3, slack=1 / 15).require_reachable()
    Goal(objective, 2.0**-50, 1.0, scale=1e-3, slack=1 / 17).require_reachable()
    with pytest.raises(ValueError, match=r"a grid of 1, .* is too coarse for the plan's tolerance of 1\."):
        Goal(objective, 1.0, 1.0, scale=1e6).require_reachable()
    Goal(objective, 2.0**-50, tolerance * 2**20, scale=1e-3).require_reachable()


def test_guesses_and_declared_smoothness_never_enter_the_cost(monkeypatch):
    """The same scales cost the same, whatever is guessed of typical slopes and curvatures."""
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.1, n=50, d=3, intercept=True)
    plans = [
        es.plan(problem, es.Approximate(1.0, 1e-6), "objective", mechanism=name) for name in ("hull", "ellipsoid", "l2")
    ]
    plans += [es.plan(problem, es.Pure(1.0), "sequential"), es.plan(problem, es.Pure(1.0), "output")]
    texts = [plan.to_json() for plan in plans]
    right = es.Problem.guessed_curvature.func
    monkeypatch.setattr(es.Logistic, "typical_slope", property(lambda self: 1e-9))
    monkeypatch.setattr(es.Problem, "guessed_curvature", property(lambda self: (1e6 * right(self)[0], right(self)[1])))
    for plan, text in zip(plans, texts, strict=True):
        other = replace(plan, problem=replace(problem, smoothness=0.2))
        assert other.spent == plan.spent == type(plan).from_json(text).spent
        assert other.spending(3) == plan.spending(3)


@pytest.mark.parametrize("mechanism", mechanisms.NAMES)
def test_tilts_are_as_long_as_is_assumed_and_hardly_shorter(mechanism):
    """300 draws against the quantile of 1 - 1e-9 of the law in the bound: a chance of 3e-7 to fail; and it is no waste.

    What the plan assumes is the same law's quantile of 1 - 1e-300.
    """
    for domain, intercept in ((es.Box((0, -1, 0, 0), (2, 1, 0.3, 1), one_hot=[(2, 4)]), True), (es.Box(0, 3), False)):
        problem = es.Problem(es.Logistic(), domain, ridge=0.1, n=100, d=4, intercept=intercept)
        noise, objective = mechanisms.named(mechanism), Minimised(problem, 0.1)
        shape, d = noise.shape(problem), problem.dimension
        source, scale = Source(3), 2.0**20
        draws = np.stack([source.integers(noise, scale, (d,), shape).astype(float) for _ in range(300)], axis=1)
        lengths = np.linalg.norm(draws * noise.units(problem)[:, None], axis=0)
        assumed = tilt_length(objective, noise, scale)
        if noise.kind is es.budgets.Rho:
            typical = assumed / (math.sqrt(d) + 40) * stats.chi(d).isf(1e-9)
        else:
            typical = assumed / (d + 42 + 40 * math.sqrt(d + 2) + 800) * stats.gamma(d + 2).isf(1e-9)
        assert typical / 100 < lengths.max() < typical
    tails = [stats.gamma(d + 2).logsf(d + 42 + 40 * math.sqrt(d + 2) + 800) for d in (1, 10, 1000, 10**5)]
    assert max(tails) < -300 * math.log(10)
    assert max(stats.chi(d).logsf(math.sqrt(d) + 40) for d in (1, 10, 1000)) < -300 * math.log(10)


def test_tiny_products_of_n_and_epsilon_reach_their_tolerance_every_time():
    """A third of these runs once raised after the charge."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.01, n=1000, d=1)
    plan, rng = es.plan(problem, es.Pure(5e-7), "objective"), np.random.default_rng(9)
    rows = es.Rows(problem, rng.standard_normal((1000, 1)), labelled(problem.loss, rng, 1000))
    assert np.all(np.isfinite(es.run(plan, rows, repetitions=30, anyway=True).path))


@pytest.mark.parametrize("method", ["objective", "output"])
def test_labels_may_be_texts(method):
    for loss in (es.Logistic(("no", "yes")), es.SmoothedHinge(("no", "yes")), es.Softmax(("a", "b", "no"))):
        problem = es.Problem(loss, es.Ball(1), ridge=0.1, n=20, d=2)
        rows = es.Rows(problem, np.ones((20, 2)), np.array(["no"] * 20))
        assert np.all(np.isfinite(es.run(es.plan(problem, es.Pure(1.0), method), rows, anyway=True).x))


def test_the_minimum_of_another_function_is_not_read():
    """Records must be those that noise was scaled for; what is minimised is the plan's own, whatever theirs is."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=20, d=2)
    plan, X, y = es.plan(problem, es.Pure(1.0), "output"), np.ones((20, 2)), np.ones(20)
    with pytest.raises(ValueError, match="the minimum is that of"):
        Tilted(plan.objective, es.Rows(replace(problem, domain=es.Ball(2)), X, y), np.zeros(2))
    same = Tilted(plan.objective, es.Rows(problem, X, y), np.zeros(2))
    for changes in ({"clip": 0.1}, {"loss": es.SmoothedHinge()}, {"ridge": 0.02, "smoothness": 0.5}):
        tilted = Tilted(plan.objective, es.Rows(replace(problem, **changes), X, y), np.zeros(2))
        assert np.array_equal(grid_minimum(tilted, plan.goal), grid_minimum(same, plan.goal))


def test_noise_in_many_dimensions_needs_more_room_in_its_integers():
    """The length of L2 noise grows with d, not only with its root."""
    objective = Minimised(es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=1000, d=8100), 0.1)
    largest = 2.0**61 * 2.0**-50 / (8100 + 40 * 90 + 800)
    Goal(objective, 2.0**-50, 1.0, scale=0.99 * largest).require_reachable()
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        Goal(objective, 2.0**-50, 1.0, scale=1.01 * largest).require_reachable()
