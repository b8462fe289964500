"""The default on designs that break solvers: no run raises or warns after its charge, and its model is finite.

A design is columns that a data holder could have: alike, constant, of units that are far apart, heavy-tailed, all zero,
more of them than records; and targets that are separable, of one class, or not numbers at all.
"""

import warnings

import numpy as np
import pytest

import epsteps as es

LARGEST_D = 300


def columns(kind, n, d, rng):
    """Return records of n rows and d columns, within the unit box or far outside of it."""
    X = rng.uniform(-1, 1, (n, d))
    match kind:
        case "alike":
            return X[:, :1] + 1e-9 * X
        case "constant":
            return np.ones((n, d))
        case "units":
            return X * 10.0 ** rng.uniform(-12, 0, d)
        case "heavy tails":
            return 1e-3 * rng.standard_cauchy((n, d))
        case "zeros":
            return np.zeros((n, d))
        case "one record":
            return np.where(np.arange(n)[:, None] == 0, 1e300, 1e-6 * X)
        case "low rank":
            return X[:, :1] @ rng.normal(size=(1, d))
        case "holes":
            return np.where(rng.random((n, d)) < 0.5, np.nan, X)
        case "corners":
            return np.sign(X)
    return X


COLUMNS = ("even", "alike", "constant", "units", "heavy tails", "zeros", "one record", "low rank", "holes", "corners")
TARGETS = ("separable", "one class", "random", "no numbers")
LOSSES = (es.Logistic(), es.Softmax((0, 1, 2)), es.Squared(1.0), es.PseudoHuber(1.0, 0.1, 8))
BUDGETS = (es.Pure, lambda epsilon: es.Approximate(epsilon, 1e-6), lambda epsilon: es.Concentrated(epsilon**2 / 8))


def targets(kind, loss, X, rng):
    """Return targets for the records, which may be none."""
    classes = getattr(loss.targets, "classes", None)
    margin = np.nan_to_num(X[:, 0], posinf=1.0, neginf=-1.0)
    if kind == "no numbers":
        return np.where(rng.random(len(X)) < 0.5, np.nan, 1e308)
    if classes is None:
        return np.ones(len(X)) if kind == "one class" else margin if kind == "separable" else rng.uniform(-2, 2, len(X))
    places = {"separable": (margin > 0).astype(int), "one class": np.zeros(len(X), dtype=int)}
    return np.array(classes)[places.get(kind, rng.integers(len(classes), size=len(X)))]


def domain_of(d, rng):
    """Return a ball, a box of units that are far apart, or one with a category."""
    kinds = [es.Ball(1.0), es.Ball(3.0, norm=1), es.Box(-1, 1), es.Box(-(10.0 ** rng.uniform(-6, 6, d)), 1)]
    return (kinds + ([es.Box(0, 1, one_hot=[(0, d // 2)])] if d > 3 else []))[rng.integers(5 if d > 3 else 4)]


def one_run(seed):
    """Run the default on a design, and return which it was, with what was published; warnings are errors."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice([1, 2, 5, 20, 80, LARGEST_D]))
    n = int(rng.choice([2, 30, 400, 3000] if d < LARGEST_D else [30, 400]))
    loss, kinds = LOSSES[rng.integers(len(LOSSES))], (str(rng.choice(COLUMNS)), str(rng.choice(TARGETS)))
    intercept, release = bool(rng.integers(2)), str(rng.choice(["final", "iterates"]))
    problem = es.Problem(loss, domain_of(d, rng), ridge=10.0 ** rng.uniform(-4, 0), n=n, d=d, intercept=intercept)
    budget = BUDGETS[rng.integers(len(BUDGETS))](10.0 ** rng.uniform(-2, 1.5))
    plan = es.plan(problem, budget, release=release)
    with np.errstate(all="ignore"):
        X = columns(kinds[0], n, d, rng)
        y = targets(kinds[1], loss, X, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = es.run(plan, es.Rows(problem, X, y), seed=seed, anyway=True)
    return f"{kinds}, {problem}, {budget}, {release}: {plan.method}", plan, run


def runs_end(seeds):
    """Hold every run against what its plan said before: a finite model, and the shapes of all that is published."""
    for seed in seeds:
        what, plan, run = one_run(seed)
        assert np.all(np.isfinite(run.x)), what
        assert {name: np.shape(run.extras[name]) for name in plan.besides} == plan.besides, what
        assert plan.spent <= plan.budget.amount, what


@pytest.mark.parametrize("part", range(8))
def test_designs_that_break_solvers(part):
    runs_end(range(8 * part, 8 * part + 8))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_a_thousand_designs_that_break_solvers(part):
    runs_end(range(1000 + 20 * part, 1020 + 20 * part))
