"""Laws of single releases, each against a computation of its own: exact densities, exact gradients, integers counted.

Each law takes a seed and raises AssertionError; planted bugs are held against them (``test_planted_bugs``). Where a law
must look inside a release, it does so in one place, named by a comment.
"""

import dataclasses
import itertools
import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, softmax
from test_replay import charged_amounts

import epsteps as es
from epsteps.budgets import mechanisms
from epsteps.methods import ObjectivePlan, OutputPlan, plan_objective
from epsteps.methods.minimum import Minimised
from epsteps.noise import Source
from epsteps.problem.losses import PseudoHuber, SmoothedHinge, Softmax
from epsteps.problem.shapes import Nuclear
from epsteps.running import passes, solver
from epsteps.running.run import Reader
from epsteps.testing import replay

LEVEL = 1e-5
SHAPED = ("linf", "hull", "blocks", "ellipsoid")
# Each loss with its slope and curvature at a margin, and the targets that a record may have.
SMOOTH = {
    "half-exponential": (
        es.HalfExponential(),
        lambda m, y: -y * np.exp(-np.maximum(y * m, 0)),
        lambda m, y: np.exp(-np.maximum(y * m, 0)) * (y * m > 0),
        (-1.0, 1.0),
    ),
    **{
        f"capped-{cap}": (
            es.CappedLogistic(cap=cap),
            lambda m, y, c=cap: -y * np.minimum(expit(-y * m), c),
            lambda m, y, c=cap: expit(m) * expit(-m) * (expit(-y * m) < c),
            (-1.0, 1.0),
        )
        for cap in (0.35, 0.7)
    },
    "logistic": (es.Logistic(), lambda m, y: -y * expit(-y * m), lambda m, y: expit(m) * expit(-m), (-1.0, 1.0)),
    **{
        f"hinge-{width}": (
            SmoothedHinge(width=width),
            lambda m, y, w=width: -y * expit((1 - y * m) / w),
            lambda m, y, w=width: expit((1 - y * m) / w) * expit(-(1 - y * m) / w) / w,
            (-1.0, 1.0),
        )
        for width in (0.1, 0.5, 2.0)
    },
    **{
        f"huber-{c}-{p}": (
            PseudoHuber(3.0, c, p),
            lambda m, y, c=c, p=p: (m - y) / (1 + np.abs((m - y) / c) ** p) ** (1 / p),
            lambda m, y, c=c, p=p: (1 + np.abs((m - y) / c) ** p) ** (-1 - 1 / p),
            (-3.0, -1.0, 0.0, 1.0, 3.0),
        )
        for c, p in ((0.3, 2), (2.0, 2), (0.3, 4), (0.3, 8), (2.0, 8))
    },
}
# Domains of one column: its ends.
DOMAINS = {es.Ball(1): (-1.0, 1.0), es.Ball(7): (-7.0, 7.0), es.Box(0, 10): (0.0, 10.0), es.Box(-3, 5): (-3.0, 5.0)}


def points_of(dimension, seed):
    """Return points at which densities are compared: near 0 and far out, in every direction."""
    near = np.geomspace(1e-4, 1e4, 700)
    if dimension == 1:
        return np.concatenate([-near, near])[:, None]
    directions = np.random.default_rng(seed).standard_normal((len(near) * 4, dimension))
    return directions / np.linalg.norm(directions, axis=1, keepdims=True) * np.tile(near, 4)[:, None]


def size_of(name, b, units):
    """Return the norm that the tilt's density falls with, for one column and perhaps an intercept."""
    if name == "laplace":
        return np.abs(b).sum(axis=-1)
    return np.linalg.norm(b, axis=-1) if name == "l2" else np.abs(b / units).max(axis=-1)


def log_densities(plan, x, slopes, curvatures, records):
    """Return the logarithm of the density of the exact minimum at each x, for each record among records that are 0.

    x minimises n F + b'x for b = -n ∇F(x), so that its density is that of b times the determinant of n F's second
    derivatives: the change of variables.
    """
    units = np.append(max(map(abs, DOMAINS[plan.problem.domain])), np.ones(int(plan.problem.intercept)))
    found = []
    for u, y in records:
        margins = x @ u
        heavy = plan.problem.n * plan.ridge
        b = heavy * x + slopes(margins, y)[:, None] * u
        rest = np.zeros(len(x)) + heavy
        if plan.problem.intercept:  # the other records are (0, 1), all of one class
            others, last = plan.problem.n - 1, x[:, -1]
            b[:, -1] += others * slopes(last, 1.0)
            rest = rest + others * curvatures(last, 1.0)
        corner = np.zeros((len(x), len(u), len(u)))
        corner[:, range(len(u)), range(len(u))] = heavy
        corner[:, -1, -1] = rest if plan.problem.intercept else heavy
        hessian = corner + curvatures(margins, y)[:, None, None] * np.outer(u, u)
        log_volume = np.linalg.slogdet(hessian)[1]
        found.append(log_volume - size_of(plan.mechanism, b, units) / plan.scales[0])
    return np.array(found)


def largest_ratio(plan, name, seed):
    """Return the largest log-ratio of the densities that a search over points and pairs of records finds."""
    _, slopes, curvatures, targets = SMOOTH[name]
    low, high = DOMAINS[plan.problem.domain]
    one = [1.0] * plan.problem.intercept
    records = [(np.array([u, *one]), y) for u in (low, 0.0, high) for y in targets]
    x = points_of(plan.problem.dimension, seed)
    found = log_densities(plan, x, slopes, curvatures, records)
    return float(np.max(found.max(axis=0) - found.min(axis=0)))


def by_hand(problem, name, ridge, scale):
    """Return a plan of one minimum whose solver and output cost nothing to speak of."""
    return ObjectivePlan(problem, es.Pure(1e9), name, ridge, (scale,), (1e6,), 1e-9)


def minima_cost_no_less_than_their_densities_show(seed, names=tuple(SMOOTH)):
    """Every loss x domain x noise, with and without an intercept, where the ridge is light and where it is heavy.

    A pair that is found is a real pair, so that a cost below its log-ratio is a wrong claim.
    """
    for name in names:
        reached = []
        for (domain, ends), intercept in itertools.product(DOMAINS.items(), (False, True)):
            problem = es.Problem(SMOOTH[name][0], domain, ridge=1e-6, n=2, d=1, intercept=intercept)
            size, slope = max(map(abs, ends)), problem.loss.slope
            for mechanism, light, epsilon in itertools.product(("laplace", "l2", "linf"), (0.05, 20.0), (0.2, 3.0)):
                if mechanism == "linf" and isinstance(domain, es.Ball):
                    continue
                unit = 1.0 if mechanism in SHAPED else size
                plan = by_hand(problem, mechanism, size**2 / light / 2, 2 * slope * unit / epsilon)
                found = largest_ratio(plan, name, seed)
                assert found <= plan.costs[0] * (1 + 1e-7), (
                    f"{name} over {domain}, {mechanism}: log-ratio {found:.6g} at a cost of {plan.costs[0]:.6g}"
                )
                reached.append(found / plan.costs[0])
        assert max(reached) > 0.8, f"{name}: the search finds only {max(reached):.3g} of a cost"


def softmax_minima_cost_no_less_than_their_densities_show(seed):
    """One column and four classes: n F's second derivatives are n ridge I + u² (diag p - pp')."""
    rng, classes = np.random.default_rng(seed), 4
    reached = []
    for size, light, epsilon in itertools.product((1.0, 7.0), (1.0, 50.0), (0.2, 2.0)):
        problem = es.Problem(Softmax(classes=tuple(range(classes))), es.Ball(size), ridge=1e-6, n=2, d=1)
        for mechanism in ("laplace", "l2"):
            joint = 2.0 if mechanism == "laplace" else math.sqrt(2)  # the norm of p - e_y
            plan = by_hand(problem, mechanism, size**2 / light / 2, 2 * joint * size / epsilon)
            x = rng.standard_normal((4000, classes)) * np.geomspace(1e-3, 1e3, 4000)[:, None] / size
            found = []
            for u, y in itertools.product((-size, 0.0, size), range(classes)):
                p = softmax(x * u, axis=1)
                b = 2 * plan.ridge * x + u * (p - np.eye(classes)[y])
                bend = np.einsum("pi,ij->pij", p, np.eye(classes)) - p[:, :, None] * p[:, None, :]
                volume = np.linalg.slogdet(2 * plan.ridge * np.eye(classes) + u**2 * bend)[1]
                found.append(volume - size_of(mechanism, b, 1.0) / plan.scales[0])
            ratio = float(np.max(np.max(found, axis=0) - np.min(found, axis=0)))
            assert ratio <= plan.costs[0] * (1 + 1e-7), f"log-ratio {ratio:.6g} at a cost of {plan.costs[0]:.6g}"
            reached.append(ratio / plan.costs[0])
    assert max(reached) > 0.6


def tilts_have_their_declared_size(seed):
    """What was added to the objective, b = -n ∇F at the published point, is as large as the plan's scale says.

    In one dimension every pure noise has the density ~ exp(-|b|/scale), in the domain's units where it has a shape, so
    that the sum of |b| over runs is a Gamma variable.
    """
    runs = 50
    for domain, mechanism in itertools.product((es.Box(0, 10), es.Box(0, 0.1)), ("laplace", "l2", "linf", "hull")):
        problem = es.Problem(es.Logistic(), domain, ridge=1.0, n=50, d=1)
        u, y = np.linspace(0, domain.high, 50), np.where(np.arange(50) % 3 == 0, -1.0, 1.0)
        plan = plan_objective(problem, es.Pure(0.5), mechanism=mechanism)
        found = es.run(plan, es.Rows(problem, u[:, None], y), seed=seed, repetitions=runs).path[-1, 0]
        b = [50 * plan.ridge * x + np.sum(-y * u * expit(-y * u * x)) for x in found]
        unit = domain.high if mechanism in SHAPED else 1.0
        total = float(np.sum(np.abs(b))) / (plan.scales[0] * unit)
        chance = 2 * min(stats.gamma.cdf(total, runs), stats.gamma.sf(total, runs))
        assert chance > LEVEL, f"{mechanism} over {domain}: tilts are {total / runs:.3g} times their declared size"


def exactly(number):
    """Return a float of any kind, or an integer, as a decimal."""
    numerator, denominator = number.as_integer_ratio()
    return Decimal(numerator) / Decimal(denominator)


def exact_gradient(plan, rows, x, tilt):
    """Return ``n ∇F(x) + tilt`` of the logistic loss in 50 digits, for records as they are stored; x is in decimals."""
    ridge = Decimal(plan.problem.n) * Decimal(plan.ridge)
    total = [ridge * entry + part for entry, part in zip(x, tilt, strict=True)]
    for features, targets in rows.blocks():
        for u, z in zip(features, targets, strict=True):
            z = Decimal(float(z))
            margin = sum(Decimal(float(a)) * b for a, b in zip(u, x, strict=True))
            slope = -z / (1 + (z * margin).exp())
            total = [entry + slope * Decimal(float(a)) for entry, a in zip(total, u, strict=True)]
    return total


def length(vector):
    return sum(entry**2 for entry in vector).sqrt()


def exact_minimum(plan, rows, tilt):
    """Return the minimum of the tilted sum by gradient descent with the public constants, to 30 digits."""
    smoothness = plan.problem.n * (plan.problem.loss.curvature * plan.problem.record_size(2) ** 2 + plan.ridge)
    x = [Decimal(0)] * plan.problem.dimension
    for _ in range(500):
        gradient = exact_gradient(plan, rows, x, tilt)
        if length(gradient) < Decimal(10) ** -30 * (1 + length(tilt)):
            return x
        x = [entry - part / Decimal(smoothness) for entry, part in zip(x, gradient, strict=True)]
    raise AssertionError("gradient descent did not converge")


def slow_solver(plan, rows):
    """Return a solver that comes from afar in small steps around, so that the first point taken is just good enough."""
    rng = np.random.default_rng(0)

    def polished(self, *_):
        minimum = exact_minimum(plan, rows, [exactly(part) for part in self.tilted.tilt])
        near = np.array([float(entry) for entry in minimum])
        hessian = plan.problem.n * passes.hessian(rows, self.goal.objective, near, None)
        for share in np.linspace(1.6, 0, 401):
            direction = rng.standard_normal(len(minimum))
            away = np.linalg.solve(hessian, share * plan.tolerance * direction / np.linalg.norm(direction))
            x = [(a + Decimal(b)) / Decimal(self.goal.step) for a, b in zip(minimum, away.tolist(), strict=True)]
            point = np.array([np.longdouble(str(entry.to_integral_value())) for entry in x])
            if self.is_met(self.gradient(point, self.goal.tolerance / 8)):
                return point
        raise RuntimeError("no point was good enough.")

    return polished


def released_point(request, plan, rows, **drawn):
    """Return the integers that a request reads where its solver is slow, or None where no point is good enough for it.

    Looks inside: the solver's steps are ``polished`` of the grid's search, which asks ``is_met`` of a ``gradient``.
    """
    with patch.object(solver._Search, "polished", slow_solver(plan, rows)):
        try:
            return request.read(Reader(rows), drawn)
        except RuntimeError:
            return None


# A scale of the tilt, a tolerance and a scale of the output such that what matters is: the output's grid, the cells of
# the tilt, the rounding errors of floats. The last are too small for a plan to be run, but their certificates hold.
TOLERANCES = (
    *[(1e-3, 1e-3, 2.0**17)] * 4,
    (2.0**20, 3.6e-4, 16.0),
    *[(1e-9, 6e-17, 2.0**-28)] * 6,
)


def minima_are_within_their_tolerance(seed):
    """Whatever way the solver took, at the point of the grid that it returns the exact gradient is small enough.

    For a tilt anywhere within half a cell of the one that was drawn: the theorem's is spread over the cell.
    """
    rng, taken, n = np.random.default_rng(seed), 0, 7
    with localcontext(prec=50):
        for (scale, tolerance, output_scale), intercept in itertools.product(TOLERANCES, (False, True)):
            problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.3, n=n, d=1, intercept=intercept)
            rows = es.Rows(problem, rng.uniform(0.3, 1, (n, 1)), np.where(rng.random(n) < 0.9, 1, -1))
            plan = ObjectivePlan(problem, es.Pure(1e12), "laplace", 0.3, (scale,), (output_scale,), tolerance)
            noisy = OutputPlan(problem, es.Pure(1e12), "l2", 0.3, output_scale, tolerance)
            if tolerance > 1e-9:
                plan.require_executable()
                noisy.require_executable()
            step = plan.tilt_steps[0]
            tilt = rng.integers(1, 4, problem.dimension) * round(min(1 / step, 2.0**40))
            found = released_point(plan.minima[0], plan, rows, tilt=tilt)
            taken += judge(plan, rows, found, plan.output_steps[0], tilt, step)
            found = released_point(noisy.minimum, noisy, rows)
            taken += judge(noisy, rows, found, noisy.step, np.zeros(problem.dimension, dtype=int), 0.0)
    long = np.finfo(np.longdouble).eps < 1e-18
    assert taken == 4 * sum(long or tolerance > 1e-9 for _, tolerance, _ in TOLERANCES), "not every point was taken"


def gradients_are_within_their_error(seed):
    """Sums of the same number err on the same side, and a large tilt that the ridge cancels leaves its rounding.

    Looks inside: ``certified_gradient`` returns a gradient and a bound on its error, for every precision.
    """
    rng = np.random.default_rng(seed)
    with localcontext(prec=50):
        for n, tilt, precision in itertools.product((7, 60), (0.0, 1e6), (*solver._LADDER, passes.LONG)):
            problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.3, n=n, d=2, intercept=True)
            rows = es.Rows(problem, np.tile(rng.uniform(0.2, 0.7, 2), (n, 1)), np.ones(n))
            pull = tilt * rng.uniform(0.5, 1, 3)
            x = rng.uniform(-1, 1, 3) - pull / (n * 0.3)
            found = passes.certified_gradient(rows, Minimised(problem, 0.3), x, pull, precision)
            exact = exact_gradient(
                by_hand(problem, "l2", 0.3, 1.0), rows, *([*map(exactly, each)] for each in (x, pull))
            )
            off = length([exactly(a) - b for a, b in zip(found.gradient, exact, strict=True)])
            assert off <= Decimal(found.error), f"a gradient is off by {off:.3g}, its bound is {found.error:.3g}"


def judge(plan, rows, found, grid, tilt, cell):
    """Return whether a point was taken; raise if its exact gradient is too large for a tilt of the cell."""
    if found is None:
        return False
    x = [Decimal(int(entry)) * Decimal(grid) for entry in found]
    worst = Decimal(0)
    for signs in itertools.product((-1, 1), repeat=len(x)):
        real = [(Decimal(int(t)) + Decimal(sign) / 2) * Decimal(cell) for t, sign in zip(tilt, signs, strict=True)]
        worst = max(worst, length(exact_gradient(plan, rows, x, real)))
    assert worst <= Decimal(plan.tolerance), f"the gradient is {worst:.6g} where {plan.tolerance:.6g} was certified"
    return True


def cells_of_the_tilt_are_charged(seed):
    """A tilt in integers, spread over cells: a shift moves it by up to one cell more in every coordinate.

    Counted exactly. A ridge so heavy that the Jacobian is free, and a tolerance so small that the output is.
    """
    for d, mechanism in itertools.product((1, 3), ("laplace", "linf", "hull")):
        problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=1e9, n=10, d=d)
        for scale in (1.0, 2.7, 1000.3):
            plan = ObjectivePlan(problem, es.Pure(1e9), mechanism, 1e9, (scale,), (1e12,), 1e-6)
            shift = np.full(d, 2.0) if mechanism == "laplace" else np.append(np.full(d - 1, 1e-3), 2.0)
            if mechanism == "hull" and d > 1:  # columns of the other sign count besides
                shift[0] = -1e-6
                shift[-1] = 2.0 - 1e-6
            cells = [Fraction(entry) / Fraction(plan.tilt_steps[0]) for entry in shift]
            moved = [math.copysign(1, cell) * (math.floor(abs(cell)) + 1) for cell in cells]
            gauge = gauge_of(mechanism, [Fraction(entry) for entry in moved]) * Fraction(plan.tilt_steps[0])
            exact = gauge / Fraction(scale)
            assert Fraction(plan.costs[0]) >= exact, f"{mechanism}, d = {d}: moves {float(exact)!r} of its scale"
            assert plan.costs[0] < float(exact) * (1 + 1e-5)


def gauge_of(mechanism, moved):
    """Return the norm of a whole vector: the hull of the unit cube and its mirror image counts both signs."""
    if mechanism == "laplace":
        return sum(map(abs, moved))
    if mechanism == "linf":
        return max(map(abs, moved))
    return max(0, *moved) + max(0, *(-entry for entry in moved))


def neighbours_of(problem, seed, count):
    """Yield datasets that differ in one record, at the domain's ends and anywhere, with targets inside and outside."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        X = rng.uniform(-2, 2, (problem.n, problem.d))
        y = rng.uniform(-1, 1, problem.n)
        other, labels = X.copy(), y.copy()
        other[3], labels[3] = 1e3 * rng.choice([-1, 1], problem.d), 1e9 * rng.choice([-1, 1])
        yield (X, y), (other, labels)


def statistics_count_their_rounding(seed):
    """Under very large noise, sums are rounded so coarsely that rounding moves them as far as a record does."""
    for budget, domain in itertools.product((es.Pure(1.0), es.Concentrated(0.5)), (es.Ball(1), es.Box(0, 3))):
        problem = es.Problem(es.Squared(0.7), domain, ridge=0.2, n=12, d=4)
        plan = es.plan(problem, budget, "statistics")
        for bits in (35, 37, 39):
            replay_plan(dataclasses.replace(plan, scale=plan.scale * 2.0**bits), neighbours_of(problem, seed, 4))


def replay_plan(plan, pairs):
    def fit(data, account):
        return es.run(plan, es.Rows(plan.problem, *data), ledger=account, anyway=True)

    for pair in pairs:
        replay(fit, *pair, costs=charged_amounts(plan))


def halves(n):
    """Yield records of one column, all but two of them 0, whose sum of squares is half a step more than a whole one.

    In steps of 2^-20 of the largest square: two records j/2^20 with j = 2^9 odd have 2 j²/2^40 = odd²/2 of them.
    """
    for odd in range(501, 701, 2):
        X = np.zeros((n, 1))
        X[:2] = odd * 2.0**-11
        yield X


def the_bought_constant_counts_its_rounding(seed):
    """Sums of squares that lie between two steps: floats round them either way, and the release moves one step more."""
    for n, budget in itertools.product((7, 11, 41), (es.Pure(1.0), es.Concentrated(0.1))):
        problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.2, n=n, d=1)

        def fit(data, account, problem=problem, budget=budget):
            return es.estimate_smoothness(es.Rows(problem, *data), budget, ledger=account)

        for X in itertools.islice(halves(n), seed % 7, None, 4):
            other = X.copy()
            other[3] = 1.0
            replay(fit, (X, np.ones(n)), (other, np.ones(n)), costs=[budget.amount])


def gradients_count_their_rounding(seed):
    """Under very large noise, sums of gradients are rounded coarsely, and each coordinate moves by a part of a step."""
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=1), ridge=0.2, n=5, d=3)
    plan = es.plan(problem, es.Pure(1e-10), es.gd, iterations=1, mechanism="laplace")

    def fit(data, account):
        return es.run(plan, es.Rows(problem, *data), start=50.0, ledger=account, anyway=True)

    rng = np.random.default_rng(seed)
    for _ in range(5):
        X = rng.uniform(-0.3, 0.3, (5, 3))
        other = X.copy()
        X[2], other[2] = (*rng.dirichlet(np.ones(2)), 0.0), (0.0, 0.0, 1.0)
        replay(fit, (X, np.full(5, -1.0)), (other, np.full(5, -1.0)), costs=plan.costs)


def solvers_are_paid_for(seed):
    """A solver that stops d earlier costs 2 d/(n ridge) of the output's scale more, in every kind of budget."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.5, n=40, d=2)
    for budget, mechanism in ((es.Pure(1.0), "l2"), (es.Approximate(1.0, 1e-5), "gaussian")):
        plan = plan_objective(problem, budget, mechanism=mechanism, shares=(0.4, 0.6))
        generous = dataclasses.replace(plan, budget=type(budget)(1e3, *dataclasses.astuple(budget)[1:]))
        found = [dataclasses.replace(generous, tolerance=factor * plan.tolerance) for factor in (1.0, 40.0)]
        more = 2 * 39 * plan.tolerance / (40 * plan.ridge) * sum(1 / scale for scale in plan.output_scales)
        assert found[1].spent - found[0].spent >= more * (1 - 1e-6), f"{mechanism}: the tolerance is not paid for"
        outputs = [es.plan(problem, budget, "output"), 0]
        outputs[1] = dataclasses.replace(
            outputs[0], budget=type(budget)(1e3, *dataclasses.astuple(budget)[1:]), tolerance=2 * outputs[0].tolerance
        )
        assert outputs[1].cost > outputs[0].cost


def every_run_is_charged(seed):
    """Repetitions and minima are releases of their own: what is charged covers all of them together."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.5, n=40, d=2)
    squared = dataclasses.replace(problem, loss=es.Squared())
    plans = [
        *(es.plan(problem, budget, es.gd, iterations=3) for budget in (es.Pure(1.0), es.Concentrated(0.1))),
        *(es.plan(squared, budget, "statistics") for budget in (es.Pure(1.0), es.Concentrated(0.1))),
        *(es.plan(problem, budget, "output") for budget in (es.Pure(1.0), es.Concentrated(0.1))),
        es.plan(problem, es.Pure(1.0), "curvature"),
    ]
    for plan in plans:
        one, four = plan.spending().amount, plan.spending(4).amount
        assert four >= 4 * one * (1 - 1e-9), f"{plan.method}: four runs cost {four!r}, one costs {one!r}"
    for shares in ((1.0,), (0.3, 0.7), (0.2, 0.3, 0.5)):
        plan = plan_objective(problem, es.Pure(1.0), shares=shares)
        assert plan.spent >= math.fsum(plan.costs), f"{plan.spent!r} are charged for {plan.costs!r}"
    for budget, mechanism in ((es.Pure(1.0), "l2"), (es.Approximate(1.0, 1e-5), "gaussian")):
        plan = es.plan(problem, budget, "sequential", mechanism=mechanism)
        alone, first = dataclasses.replace(plan, earlier=()).spent, math.fsum(plan.earlier[0].costs)
        for spent in (plan.spent, plan.cost.epsilon(1.0, 1e-5) if budget.delta else plan.cost.amount):
            charged = f"{spent!r} are charged, and {alone!r} without, for a minimum of {first!r} before"
            assert spent >= alone + 0.999 * first, charged
    expense = es.Expense("bought before", 0.25, "epsilon")
    plan = es.plan(problem, es.Pure(1.0), es.gd, iterations=4, expenses=[expense])
    assert plan.spent >= 0.25 + math.fsum(plan.costs)


def edited_plans_are_refused(seed):
    """A file whose noise was made smaller, or whose certificate was, is not read."""
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.5, n=40, d=2)
    squared = dataclasses.replace(problem, loss=es.Squared())
    objective_plan = plan_objective(problem, es.Pure(1.0))
    plans = [
        (es.plan(problem, es.Pure(1.0), es.gd, iterations=3), "scales"),
        (es.plan(squared, es.Pure(1.0), "statistics"), "scale"),
        (es.plan(problem, es.Pure(1.0), "output"), "scale"),
        (objective_plan, "scales"),
        (objective_plan, "output_scales"),
    ]
    for plan, name in plans:
        assert type(plan).from_json(plan.to_json()).spent == plan.spent
        for factor in (0.5, 2.0):
            content = json.loads(plan.to_json())
            content[name] = np.multiply(content[name], factor).tolist()
            assert refused(type(plan), json.dumps(content)), f"{plan.method}: {name} times {factor} were read"


def refused(kind, text):
    try:
        kind.from_json(text)
    except ValueError:
        return True
    return False


def whole_noise_has_its_law(seed):
    """Small integers often enough to count: two-sided geometric, and for one Wishart difference a rounded Laplace."""
    source, count = Source(seed), 4000
    scale = 1.3
    found = source.integers(mechanisms.named("laplace"), scale, (count,))
    ratio = math.exp(-1 / scale)
    chances = [(1 - ratio) / (1 + ratio) * ratio ** abs(k) for k in range(-4, 5)]
    assert_counts(found, dict(zip(range(-4, 5), chances, strict=True)), "laplace")
    found = np.array([source.shaped(Nuclear(1), 2.0)[0, 0] for _ in range(count // 4)])
    ends = [stats.laplace.cdf([k - 0.5, k + 0.5], scale=4.0) for k in range(-9, 10)]
    assert_counts(found, {k: high - low for k, (low, high) in zip(range(-9, 10), ends, strict=True)}, "wishart")


def assert_counts(found, chances, name):
    counts = [int(np.sum(found == k)) for k in chances]
    observed = [*counts, len(found) - sum(counts)]
    expected = np.array([*chances.values(), 1 - sum(chances.values())]) * len(found)
    assert stats.chisquare(observed, expected).pvalue > LEVEL, f"{name}: {observed} for {np.rint(expected).tolist()}"


LAWS = (
    minima_cost_no_less_than_their_densities_show,
    softmax_minima_cost_no_less_than_their_densities_show,
    tilts_have_their_declared_size,
    minima_are_within_their_tolerance,
    gradients_are_within_their_error,
    cells_of_the_tilt_are_charged,
    statistics_count_their_rounding,
    the_bought_constant_counts_its_rounding,
    gradients_count_their_rounding,
    solvers_are_paid_for,
    every_run_is_charged,
    edited_plans_are_refused,
    whole_noise_has_its_law,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_law_holds(law):
    law(seed=1)
