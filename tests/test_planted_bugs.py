"""Bugs planted on purpose, of the kinds that libraries have had: each must be caught by the check named beside it.

| planted bug                                          | check that catches it                       |
| ---------------------------------------------------- | ------------------------------------------- |
| Laplace scale b/√2 (the paper's published code)      | audit_laplace: lower bound 1.3 > 1           |
| Gaussian deviation σ/√2                              | audit_gaussian                              |
| sensitivity halved (S1/2 as in the paper's radius)   | audit_laplace                               |
| sensitivity halved in the plan alone                 | replay_runs: the meter refuses              |
| sensitivity measured on the data                     | replay_runs: scales of the draws differ     |
| projection skipped for one row                       | replay_runs: a release moves too far        |
| L computed from the data                             | replay_runs: the path differs               |
| sampling with replacement                            | subsets_are_fresh                           |
| the same subset in every step                        | subsets_are_fresh                           |
| sampler reads more than the accountant believes      | audit_sampled                               |
| accountant believes that fewer records are sampled   | plans_cost_what_is_computed_by_hand         |
| noise reused between steps                           | audit_laplace: test of independence         |
| noise shared by the coordinates                      | audit_laplace: test of independence         |
| unseeded runs use a fixed seed                       | unseeded_runs_differ                        |
| intercept left out of the norm                       | audit_intercept                             |
| composition off by one                               | plans_cost_what_is_computed_by_hand         |
| budget charged after the release                     | replay_runs: order of events                |
| an unknown label raises                              | replay_runs: exceptions differ              |
| a warning about large values                         | replay_runs: warnings differ                |
| slope clamp removed                                  | levels_stay_within_their_limit              |
| accumulator of doubles not flushed in time           | sums_are_exact                              |
| Gaussian scaled by the L∞ sensitivity                | audit_gaussian                              |
| Gaussian scaled by the L1 sensitivity (too much)     | gaussian_noise_is_what_rho_asks_for         |
| hull noise of half its scale                         | audit_hull                                  |
| L2 noise of two thirds of its scale                  | audit_l2                                    |
| L2 noise scaled by the L∞ sensitivity                | audit_l2                                    |
| ellipsoid noise without its common part              | audit_ellipsoid                             |
| ellipsoids of the parts not stretched together       | gradients_stay_within_their_noise           |
| columns of either sign put into the hull             | gradients_stay_within_their_noise           |
| two categories in one block                          | gradients_stay_within_their_noise           |
| a category's indicators not projected                | replay_boxes: a release moves too far       |
| state sensitivity at another point                   | replay_boxes: the meter refuses             |
| scale of the noise fitted to the data                | replay_boxes: the draws differ              |
| tilt scaled by the sensitivity of adding a record    | audit_minimum                               |
| tilt of two thirds of its scale                      | audit_minimum                               |
| tilt reused by the next release                      | replay_minima: noise was drawn once         |
| Gaussian tilt of a quarter of its scale              | replay_minima: a release moves too far      |
| Jacobian of the tilted minimum not charged           | minima_cost_what_is_computed_by_hand        |
| intercept left out of a record's weight              | minima_cost_what_is_computed_by_hand        |
| minimum of another ridge                             | replay_minima: the solver stopped early     |
| solver stops before its tolerance                    | replay_minima: the solver stopped early     |
| noise on the output missing                          | replay_minima: noise was drawn once         |
| noise on the output of a tenth of its scale          | replay_minima: the output costs more        |
| solver's effort published                            | replay_minima: the result differs           |
| noise on a minimum scaled for n, not n times ridge   | audit_output                                |
| tilt scaled for a clip that the minimum ignores      | replay_clipped_minima                       |
| tilt scaled for a clip that no minimum reaches       | replay_minima_below_a_clip: another gradient |
| the last limb of slopes dropped                      | gradients_are_within_their_error            |
| slopes in doubles certified as long doubles          | slopes_keep_all_of_their_digits             |
| noise on a minimum without the solver's tolerance    | outputs_cost_what_is_computed_by_hand       |
| a published minimum's solver stops early             | replay_published: the solver stopped early  |
| one Wishart matrix instead of a difference of two    | audit_statistics                            |
| Wishart noise of half its scale                      | audit_statistics                            |
| second moment's Wishart noise of half its scale      | audit_curvature                             |
| Gaussian matrix with half its noise off the diagonal | audit_matrix                                |
| records not shortened before their second moment     | replay_published: a release moves too far   |
| whitening fitted to the data                         | replay_published: the result differs        |
| shares of the curvature's budget add up above 1      | replay_published: the meter refuses         |
| noise on the columns' moments of half its scale      | replay_published: a release moves too far   |
| sharpness of the hinge inverted                      | minima_cost_no_less_than_their_densities_show |
| softmax taken to have two classes                    | softmax_minima_cost_no_less_than_their_den… |
| slopes of classes that do not add up to 0            | replay_classes: a release moves too far     |
| class part of gradients taken to have norm 1         | replay_classes: a release moves too far     |
| balanced noise halved twice                          | balanced_noise_has_its_size                 |
| pseudo-Huber taken to saturate as the logistic       | minima_cost_no_less_than_their_densities_show |
| a sharp pseudo-Huber loss taken to saturate as usual | minima_cost_no_less_than_their_densities_show |
| a capped slope taken to saturate as a sigmoid        | minima_cost_no_less_than_their_densities_show |
| a capped slope's Jacobian free on its line           | minima_cost_no_less_than_their_densities_show |
| units of the tilt ignored                            | tilts_have_their_declared_size, replay_minima |
| minimum certified before it is rounded               | minima_are_within_their_tolerance           |
| rounding errors of minima left out (two bugs)        | minima_are_within_their_tolerance           |
| doubles certified as long doubles                    | gradients_are_within_their_error            |
| cells of the tilt left out of the tolerance          | minima_are_within_their_tolerance           |
| cells of the tilt left out of the cost               | cells_of_the_tilt_are_charged               |
| rounding of statistics left out                      | statistics_count_their_rounding             |
| rounding of the bought L left out                    | the_bought_constant_counts_its_rounding     |
| rounding of gradients left out                       | gradients_count_their_rounding              |
| noise on the bought L of half its scale              | replay_bought: a release moves too far      |
| intercept left out of the bought L                   | replay_bought: a release moves too far      |
| bought L held below the longest record               | replay_bought: the result differs           |
| ridge of the intercept left out                      | replay_minima: the solver stopped early     |
| a record's weight by its largest entry, n + 1, 1     | minima_cost_what_is_computed_by_hand        |
| noise on the second output missing                   | replay_minima: noise was drawn once         |
| minima weighed by the data                           | replay_minima: the result differs           |
| tilts of the classes unequal                         | replay_classes: a release moves too far     |
| tolerance times n, or relative to the tilt           | minima_are_within_their_tolerance           |
| solver's tolerance not paid for                      | solvers_are_paid_for                        |
| gradients of the curvature bought twice              | replay_published: the meter refuses         |
| gradients of half their noise                        | replay_published: a release moves too far   |
| Wishart matrices of too few degrees                  | whole_noise_has_its_law                     |
| 0 drawn twice as often                               | whole_noise_has_its_law                     |
| gradients not clipped where they are read            | replay_clipped: a release moves too far     |
| targets of statistics not clipped                    | replay_statistics: a release moves too far  |
| statistics centred by the data                       | replay_statistics: a release moves too far  |
| expenses, repetitions, all but one minimum uncharged | every_run_is_charged                        |
| a minimum before a Gaussian tilt not charged         | every_run_is_charged                        |
| a method asks for more than its plan charged         | replay_outside: the meter refuses           |
| a meter that counts nothing                          | methods_are_metered                         |
| a request for other gradients than are read          | replay_runs: the loop refuses, or replay    |
| a sum of more than its noise is scaled for (two)     | replay_outside, replay_published            |
| files of plans not recomputed                        | edited_plans_are_refused                    |
| intervals: noise on the sizes of half its scale      | every_request_moves_by_at_most_what_it_costs |
| intervals: weights of records not held at 1          | every_request_moves_by_at_most_what_it_costs |
| intervals: the constant not shortened                | every_request_moves_by_at_most_what_it_costs |
| intervals: squares in the cross-polytope of a ball   | every_request_moves_by_at_most_what_it_costs |
| intervals: dispersion capped after it is added up    | dispersions_are_capped_record_by_record     |
| intervals: Wishart matrices of k degrees             | noise_has_its_declared_size                 |
| intervals: curvature costs half of what it does      | every_request_moves_by_at_most_what_it_costs |
| intervals: curvature charged at half                 | replay_intervals: the meter refuses         |
| intervals: what follows a Gaussian tilt is free      | gaussian_releases_are_composed_with_the_tilt |
| weights: long records not shortened in the loss      | weighted_minima_cost_no_less_...            |
| weights: kappa from S times the radius, not twice it | weighted_minima_cost_no_less_...            |
| weights: divided by the records' own mean            | weighted_minima_cost_no_less_..., and       |
|                                                      | replay_weighted_minima: the solver          |
| weights: S without the mean that they are divided by | weighted_minima_cost_no_less_...            |
| weights: by the features alone                       | replay_weighted_minima                      |
| held: a sigmoid's Jacobian where slopes are held     | held_minima_cost_no_less_...                |
| held: slopes by the radius, the loss's cap forgotten | held_minima_cost_no_less_..., and           |
|                                                      | replay_weighted_minima                      |
| held: long records not shortened in the loss         | held_minima_cost_no_less_...                |
| held: kappa of records as long as cap times radius   | held_minima_cost_no_less_...                |

Checks are the suite's own, the audit, the replay, and the laws of ``test_release_laws``. They raise AssertionError, and
nothing on right code: tested here and there for one seed, and for twenty by the slow test. An audit accuses right code
with a chance of at most 5 % by its guarantee (in fact below 0.2 %, as its two bounds seldom fail together); those of
single releases and the other statistical checks with at most 1e-4.
"""

import dataclasses
import itertools
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import test_exact_sums
import test_intervals_plan as of_intervals
import test_mechanisms
import test_planning
import test_release_laws as laws
import test_replay
import test_solver
import test_weights as of_weights
from conftest import records, small_problem
from scipy import stats

import epsteps as es
from epsteps import methods
from epsteps.budgets import Epsilon, mechanisms
from epsteps.budgets import budget as budgets
from epsteps.budgets.mechanisms import Gaussian, KNorm, smallest
from epsteps.data import dense, engine
from epsteps.data.chunks import Chunk
from epsteps.data.engine import require_exact
from epsteps.methods import ObjectivePlan, OutputPlan, minima, objective, plan_objective
from epsteps.methods import curvature as designs
from epsteps.methods import minimum as minimised
from epsteps.methods.bought import Eigenvalue
from epsteps.methods.curvature.sums import ColumnMeans, SecondMoment
from epsteps.methods.intervals import plan as interval_plans
from epsteps.methods.intervals import sums
from epsteps.methods.intervals import sums as frames
from epsteps.methods.intervals.plan import IntervalPlan
from epsteps.methods.minimum import Minimised, Minimum, Tilt
from epsteps.methods.statistics import SecondMoments
from epsteps.noise import SAMPLERS, Source, gaussian, matrices
from epsteps.plans import notation
from epsteps.problem import grid, levels, saturations
from epsteps.problem.balanced import BalancedL1
from epsteps.problem.losses import PseudoHuber, SmoothedHinge, Softmax
from epsteps.problem.rounding import up
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import L1, L2, Body, Ellipsoid, Hull, Nuclear, Spherical
from epsteps.problem.weighting import Measure, Weighting
from epsteps.running import passes
from epsteps.running import run as loop
from epsteps.running.solver import Tilted
from epsteps.testing import replay

LEVEL = 1e-4
CUBE = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=1000, d=5)
BOX = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.1, n=1000, d=3)
HEAVY = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=40, d=2)
LEAST_SQUARES = es.Problem(es.Squared(2.0), es.Ball(1, norm=np.inf), ridge=0.1, n=40, d=2)
SMALL_AND_INTERCEPT = es.Problem(es.Logistic(), es.Ball(0.2), ridge=0.1, n=1000, d=2, intercept=True)


def audited(problem, budget, seed, **options):
    plan = es.plan(problem, budget, es.nesterov, **({"iterations": 6} | options))
    found = es.audit(plan, seed=seed)
    assert found.consistent, found.violations
    return found


def audit_laplace(seed):
    return audited(CUBE, es.Pure(1.0), seed, mechanism="laplace")


def audit_gaussian(seed):
    return audited(CUBE, es.Concentrated(0.1), seed, mechanism="gaussian")


def audit_ellipsoid(seed):
    return audited(BOX, es.Concentrated(0.1), seed, mechanism="ellipsoid")


def audit_hull(seed):
    return audited(BOX, es.Pure(1.0), seed, mechanism="hull", iterations=1)


def audit_l2(seed):
    return audited(CUBE, es.Pure(1.0), seed, mechanism="l2", iterations=1)


def audit_sampled(seed):
    return audited(CUBE, es.Pure(1.0), seed, batch=100, iterations=3, mechanism="laplace")


def audit_intercept(seed):
    return audited(SMALL_AND_INTERCEPT, es.Pure(1.0), seed, mechanism="laplace")


def audit_minimum(seed):
    found = es.audit(plan_objective(HEAVY, es.Pure(1.0)), seed=seed, repetitions=700)
    assert found.consistent, found.violations


def gradients_stay_within_their_noise(seed):
    test_mechanisms.gradients_stay_within_the_sensitivity(seed, losses=test_mechanisms.LOSSES[:1])


def replay_boxes(seed):
    """Steps with shaped noise, over columns of all kinds, and with noise for the point of the step."""
    box, category = (test_replay.problem_of(es.Logistic(), box, True) for box in test_replay.BOXES[1:])
    squared = test_replay.problem_of(es.Squared(0.7), test_replay.BOXES[2], True)
    for fit in (
        test_replay.run_of(box, es.Pure(1.0), es.nesterov, None, mechanism="hull"),
        test_replay.run_of(category, es.Concentrated(0.1), es.gd, None, mechanism="ellipsoid"),
        test_replay.run_of(squared, es.Pure(1.0), es.gd, None, mechanism="hull"),
    ):
        test_replay.replay_all(fit, seed)

    replay_a_record_with_every_category()


def replay_a_record_with_every_category():
    """Far out, where its slope is 1: such a record counts as one of a single category."""
    problem = test_replay.problem_of(es.Logistic(), es.Box(0, 1, one_hot=[(0, 3)]))
    plan = es.plan(problem, es.Pure(1.0), es.gd, iterations=1, mechanism="laplace")
    none, every, labels = np.zeros((40, 3)), np.zeros((40, 3)), np.full(40, -1)
    every[test_replay.RECORD] = 1.0

    def fit(X, account):
        return es.run(plan, es.Rows(problem, X, labels), start=50.0, ledger=account, anyway=True)

    replay(fit, none, every, costs=plan.costs)


def replay_minima(seed):
    box = test_replay.problem_of(es.Logistic(), test_replay.BOXES[1], True)
    huber = test_replay.problem_of(PseudoHuber(0.7, 0.4), es.Ball(1.3), True)
    for fit in (
        test_replay.minimum_of(box, es.Pure(1.0), shares=(0.5, 0.5)),
        test_replay.minimum_of(huber, es.Pure(1.0)),
        test_replay.minimum_of(test_replay.PROBLEM, es.Approximate(1.0, 1e-5), mechanism="gaussian"),
    ):
        test_replay.replay_all(fit, seed)


def minima_cost_what_is_computed_by_hand(seed):
    """ε₂/2 + max over a of ln(1 + κ a(1 - a)) + ε₂ a/2, κ = (d + 1)/(n ridge) in a cube with intercept."""
    a = np.linspace(0, 1, 20_001)
    for ridge, scale in ((1.0, 2.0), (0.01, 1.0), (0.001, 0.4)):
        problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=ridge, n=50, d=3, intercept=True)
        plan = ObjectivePlan(problem, es.Pure(1e3), "linf", ridge, (scale,), (1.0,), 1e-6)
        noise, kappa = 2 / scale, 4 / (50 * ridge)
        by_hand = noise / 2 + np.max(np.log1p(kappa * a * (1 - a)) + noise * a / 2)
        assert plan.costs[0] >= by_hand
        assert plan.costs[0] == pytest.approx(by_hand, rel=1e-5)


def audit_release(problem, budget, method, seed, repetitions):
    """Audit at a confidence that accuses right code with a chance of at most 1e-4: a single count decides."""
    found = es.audit(es.plan(problem, budget, method), seed=seed, repetitions=repetitions, confidence=1 - LEVEL)
    assert found.consistent, found.violations


def audit_output(seed):
    audit_release(HEAVY, es.Concentrated(0.1), "output", seed, 1000)


def audit_statistics(seed):
    audit_release(LEAST_SQUARES, es.Pure(1.0), "statistics", seed, 500)


def audit_matrix(seed):
    audit_release(LEAST_SQUARES, es.Concentrated(0.1), "statistics", seed, 2000)


def audit_curvature(seed):
    audit_release(HEAVY, es.Pure(1.0), "curvature", seed, 200)


def outputs_cost_what_is_computed_by_hand(seed):
    """2 (S + tolerance)/(n ridge) over the scale, S = √d + 1 in a cube with intercept: the slope is at most 1."""
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=100, d=3, intercept=True)
    for tolerance, name in ((1e-3, "l2"), (0.5, "gaussian")):
        plan = OutputPlan(problem, es.Approximate(1e3, 1e-5), name, 0.2, 3.0, tolerance)
        by_hand = 2 * (2.0 + tolerance) / (100 * 0.2) / 3.0
        assert plan.cost >= by_hand
        assert plan.cost == pytest.approx(by_hand, rel=1e-9)


def replay_published(seed):
    """Minima, second moments and curvature first; with a large budget it releases the records' second moment, too."""
    box, ball = (test_replay.problem_of(es.Logistic(), domain, True) for domain in (test_replay.BOXES[1], es.Ball(1.3)))
    for fit in (
        test_replay.published_of(ball, es.Pure(1.0), "output", seed),
        test_replay.published_of(box, es.Pure(200.0), "curvature", seed),
        test_replay.published_of(ball, es.Concentrated(500.0), "curvature", seed),
        test_replay.published_of(ball, es.Pure(1.0), "curvature", seed),
    ):
        test_replay.replay_all(fit, seed)


def replay_clipped_minima(seed):
    """Clipped gradients have no minimum: the plan is refused, or else its release is replayed."""
    clipped = dataclasses.replace(test_replay.problem_of(es.Logistic(), es.Ball(1.3)), clip=0.05)
    try:
        fit = test_replay.minimum_of(clipped, es.Pure(1.0))
    except ValueError:
        return
    test_replay.replay_all(fit, seed)


def replay_minima_below_a_clip(seed):
    """At neither minimum is a gradient as long as 0.6, but at that of the first the neighbour's is: tilts are small.

    A tilt of ten times its scale, which could change that, has a chance of e^-10.
    """
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.01, n=2, d=1)
    agree, differ = (np.ones((2, 1)), np.array([1.0, 1.0])), (np.ones((2, 1)), np.array([1.0, -1.0]))
    for clip in (None, 0.6):
        try:
            _, fit, costs = test_replay.minimum_of(dataclasses.replace(problem, clip=clip), es.Pure(100.0))
        except ValueError:
            continue
        found = replay(fit, agree, differ, costs=costs)
        assert found.losses.max() > 10


def slopes_keep_all_of_their_digits(seed):
    """The digits of slopes in long doubles, against exact numbers."""
    for loss in test_solver.LOSSES:
        test_solver.test_every_loss_keeps_the_kind_of_its_margins_and_all_of_its_digits(loss, np.longdouble)


def replay_bought(seed):
    """The private estimate of L: for any record, for the only one that is not 0, and for one against all others."""
    n, d, record = test_replay.N, test_replay.D, test_replay.RECORD
    for intercept, budget in ((False, es.Pure(1.0)), (True, es.Concentrated(0.1))):
        problem = test_replay.problem_of(es.Logistic(), es.Ball(0.3), intercept)
        problem, fit, costs = test_replay.smoothness_of(problem, budget)
        test_replay.replay_all((problem, fit, costs), seed)
        for usual in (0.0, 1.0):
            X, other = np.full((n, d), usual), np.full((n, d), usual)
            other[record] = -1.0
            replay(fit, (X, np.ones(n)), (other, np.ones(n)), costs=costs)


def replay_classes(seed):
    """A minimum of several classes."""
    problem = test_replay.problem_of(Softmax(classes=(-1, 1, 2)), es.Ball(1.3))
    for mechanism in ("l2", "gaussian", *(name for name in mechanisms.TILTS if name not in mechanisms.NAMES)):
        noise = mechanisms.named(mechanism)
        if not noise.covers(problem):
            continue
        budget = noise.kind.either(es.Pure(1.0), es.Approximate(1.0, 1e-5))
        problem, fit, costs = test_replay.minimum_of(problem, budget, mechanism=mechanism)
        X, y = records(problem, seed)
        X = np.concatenate([1e3 * X[: test_replay.N // 2], 0 * X[test_replay.N // 2 :]])
        for label in (-1, 1, 2):
            other, labels = X.copy(), y.copy()
            other[test_replay.RECORD], labels[test_replay.RECORD] = -X[test_replay.RECORD], label
            replay(fit, (X, y), (other, labels), costs=costs)


def replay_clipped(seed):
    """Steps whose gradients are clipped, at a start where most of them are longer."""
    problem = dataclasses.replace(test_replay.problem_of(es.Squared(0.7), es.Ball(1.3)), clip=0.2)
    plan = es.plan(problem, es.Concentrated(0.1), es.gd, iterations=3)

    def fit(data, account):
        return es.run(plan, es.Rows(problem, *data, engine="numpy"), start=3.0, ledger=account, anyway=True)

    for pair in test_replay.neighbours(problem, seed):
        replay(fit, *pair, costs=plan.costs)


def replay_statistics(seed):
    """Second moments of records whose targets may be anything."""
    for domain, budget in ((es.Ball(1.3), es.Pure(1.0)), (es.Box(0, 1), es.Concentrated(0.1))):
        problem = test_replay.problem_of(es.Squared(0.7), domain, True)
        test_replay.replay_all(test_replay.published_of(problem, budget, "statistics"), seed)


def replay_runs(seed):
    """Runs on neighbours, and a release at a point where neighbours are as far apart as they can be."""
    cube, squared = test_replay.PROBLEM, test_replay.problem_of(es.Squared(0.7), es.Ball(1.3), intercept=True)
    for fit in (
        test_replay.run_of(cube, es.Pure(1.0), es.nesterov, None),
        test_replay.run_of(cube, es.Pure(1.0), es.nesterov, 7),
        test_replay.run_of(squared, es.Concentrated(0.1), es.gd, None),
    ):
        test_replay.replay_all(fit, seed)


def replay_outside(seed):
    """Methods that others wrote: they are metered and replayed like ours."""
    for plan in (
        test_replay.PlainDescent(test_replay.PROBLEM, es.Pure(1.0), 3),
        test_replay.VotesPlan(test_replay.PROBLEM, es.Pure(1.0)),
    ):
        test_replay.replay_all(test_replay.outside_of(plan), seed)


def methods_are_metered(seed):
    """A method that asks for more than its plan charged is refused before anything is drawn or read."""
    greedy = test_replay.PlainDescent(test_replay.PROBLEM, es.Pure(1.0), 1, asked=1.5)
    problem, fit, _ = test_replay.outside_of(greedy)
    found = replay(fit, *next(test_replay.neighbours(problem, seed)))
    assert found.exception != "none", "a method that asks for more than it was charged was answered"
    assert [event.kind for event in found.events] == ["charge"]


def subsets_are_fresh(seed):
    """One-hot records, hardly any noise: the gradient of a step says which records it read, and how often."""
    n, m, T = 6, 2, 300
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=n, d=n)
    plan = es.plan(problem, es.Pure(1e6), es.gd, iterations=T, allocation="uniform", batch=m)
    still = dataclasses.replace(plan.steps, alpha=plan.steps.alpha * 1e-6)
    run = es.run(
        dataclasses.replace(plan, steps=still), es.Rows(problem, np.eye(n), np.ones(n)), seed=seed, arithmetic="exact"
    )
    read = np.rint((run.path[1:] - run.path[:-1]) / still.alpha[0] * m / 0.5).astype(int)
    assert np.all(read.sum(axis=1) == m)
    assert np.all((read == 0) | (read == 1)), "a record was read twice"
    codes = read @ (1 << np.arange(n))
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == math.comb(n, m)
    assert stats.chisquare(counts).pvalue > LEVEL
    assert stats.binomtest(int(np.sum(codes[1:] == codes[:-1])), T - 1, 1 / math.comb(n, m)).pvalue > LEVEL


def unseeded_runs_differ(seed):
    problem = small_problem()
    rows = es.Rows(problem, *records(problem, seed))
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=3)
    first, second = es.run(plan, rows, anyway=True).path, es.run(plan, rows, anyway=True).path
    assert not np.any(first[1:] == second[1:])


def plans_cost_what_is_computed_by_hand(seed):
    test_planning.test_a_plan_never_spends_more_than_its_budget_and_hardly_less()


def levels_stay_within_their_limit(seed):
    for loss in test_exact_sums.LOSSES:
        test_exact_sums.test_levels_never_pass_their_limit(loss)


def sums_are_exact(seed):
    """Large records with odd integers, whose products take all 40 bits: a double that takes all of them rounds.

    (With records of exactly 1 all products are multiples of 2^20, and no double would round.)
    """
    n, rng = 60_011, np.random.default_rng(seed)
    problem = small_problem(n=n, d=3)
    X, y = rng.uniform(0.9, 1.0, (n, 3)), np.where(rng.random(n) < 0.01, 1, -1)
    points = grid.Grid(problem).points(np.array([[3.0], [0.3], [0.1]]), 1.0)
    expected = test_exact_sums.by_hand(problem, X, y, points)
    assert max(map(int, expected[:, 0])) > 2**53
    np.testing.assert_array_equal(es.Rows(problem, X, y, engine="numpy").sums(points), expected)


def gaussian_noise_is_what_rho_asks_for(seed):
    """σ = S2/(n √(2ρ)) with S2 = 2√d for the logistic loss over the unit cube."""
    plan = es.plan(CUBE, es.Concentrated(0.1), es.gd, iterations=4, allocation="uniform")
    np.testing.assert_allclose(plan.scales, 2 * math.sqrt(5) / (1000 * math.sqrt(2 * 0.1 / 4)), rtol=1e-9)


def balanced_noise_has_its_size(seed):
    """Norms of balanced noise, in scales, are on average what a Gamma or a chi variable of V's dimension is."""
    problem = es.Problem(Softmax(), es.Box(0, 1), ridge=0.1, n=50, d=3)
    for name in (name for name in mechanisms.TILTS if name not in mechanisms.NAMES):
        shape, source = mechanisms.named(name).shape(problem), Source(seed)
        sizes = shape.gauge(np.stack([source.shaped(shape, 2.0**30) for _ in range(60)], axis=1)) / 2.0**30
        law = (stats.chi if shape.gaussian else stats.gamma)(shape.free)
        off = (sizes.mean() - law.mean()) / (law.std() / math.sqrt(60))
        assert abs(off) < 5, f"{name}: norms are {off:.3g} standard errors off"


CHECKS = (
    audit_laplace,
    audit_gaussian,
    audit_ellipsoid,
    audit_hull,
    audit_l2,
    audit_minimum,
    gradients_stay_within_their_noise,
    replay_boxes,
    replay_minima,
    minima_cost_what_is_computed_by_hand,
    audit_sampled,
    audit_intercept,
    replay_runs,
    subsets_are_fresh,
    unseeded_runs_differ,
    plans_cost_what_is_computed_by_hand,
    levels_stay_within_their_limit,
    sums_are_exact,
    gaussian_noise_is_what_rho_asks_for,
    audit_output,
    audit_statistics,
    audit_matrix,
    audit_curvature,
    outputs_cost_what_is_computed_by_hand,
    replay_published,
    replay_clipped_minima,
    replay_minima_below_a_clip,
    slopes_keep_all_of_their_digits,
    replay_bought,
    replay_classes,
    balanced_noise_has_its_size,
    replay_clipped,
    replay_statistics,
    replay_outside,
    methods_are_metered,
    of_intervals.every_request_moves_by_at_most_what_it_costs,
    of_intervals.noise_has_its_declared_size,
    of_intervals.dispersions_are_capped_record_by_record,
    of_intervals.replay_intervals,
)


def replace_run(patch, change):
    """Plant a bug in ``run``, wherever it is called from."""
    original = es.run

    def run(plan, data, **options):
        return change(original, plan, data, options)

    patch.setattr(es, "run", run)


def drawn_as(patch, kind, integers):
    """Draw integers of this kind of shape by another function of the bits, the shape and the scales."""
    patch.setitem(SAMPLERS, kind, dataclasses.replace(SAMPLERS[kind], integers=integers))


def smaller_scale(factor, *kinds):
    def plant(patch):
        for kind in kinds:
            right = SAMPLERS[kind].integers
            drawn_as(patch, kind, lambda bits, shape, t, right=right: right(bits, shape, factor * t))

    return plant


def halved_sensitivity(patch):
    right = es.Problem.gradient_size
    patch.setattr(es.Problem, "gradient_size", lambda self, slope, norm: right(self, slope, norm) / 2)


def sensitivity_halved_in_the_plan(patch):
    """The plan's scales are for half of the sensitivity that the requests have."""
    right = es.Problem.sensitivity
    patch.setattr(es.Problem, "sensitivity", lambda self, norm=1: right(self, norm) / 2)


def measured_sensitivity(patch):
    def change(run, plan, data, options):
        largest = np.abs(data.gradient(np.zeros(plan.problem.dimension))).max()
        account = options.pop("ledger", None)
        if account is not None:
            account.charge(plan.spending(), note=plan.method)
        return run(dataclasses.replace(plan, scales=plan.scales * (1 + largest)), data, **options)

    replace_run(patch, change)


def one_row_unprojected(patch):
    right = es.Ball.integers

    def integers(self, rows, steps):
        found = right(self, rows, steps)
        found[-1] = np.rint(np.clip(np.nan_to_num(rows[-1]), -1e3, 1e3) * steps / self.radius)
        return found

    patch.setattr(es.Ball, "integers", integers)
    patch.setattr(test_replay, "RECORD", test_replay.N - 1)


def measured_L(patch):
    def change(run, plan, data, options):
        ends = [data.gradient(np.full(plan.problem.dimension, h)) for h in (-0.1, 0.1)]
        L = np.linalg.norm(ends[1] - ends[0]) / (0.2 * math.sqrt(plan.problem.dimension))
        steps = dataclasses.replace(plan.steps, alpha=np.full(plan.iterations, 1 / L))
        return run(dataclasses.replace(plan, steps=steps), data, **options)

    replace_run(patch, change)


def with_replacement(patch):
    rng = np.random.default_rng(0)
    patch.setattr(Source, "subset", lambda self, sampling: np.sort(rng.integers(sampling.n, size=sampling.m)))


def same_subset(patch):
    right, known = Source.subset, {}
    patch.setattr(Source, "subset", lambda self, sampling: known.setdefault(sampling, right(self, sampling)))


def larger_sample(patch):
    right = Source.subset
    patch.setattr(
        Source, "subset", lambda self, sampling: right(self, Sampling(sampling.n, min(2 * sampling.m, sampling.n)))
    )


def imagined_fraction(patch):
    patch.setattr(Sampling, "fraction", property(lambda self: (self.m / self.n) ** 2))


def same_noise_in_every_step(patch):
    right = Source.at_step
    patch.setattr(Source, "at_step", lambda self, t: right(self, 0))


def same_noise_in_every_coordinate(patch):
    right = Source.integers

    def integers(self, mechanism, scale, shape, body=None):
        return np.repeat(right(self, mechanism, np.broadcast_to(scale, shape)[:1], (1, *shape[1:])), shape[0], axis=0)

    patch.setattr(Source, "integers", integers)


def fixed_seed(patch):
    right = Source.__init__
    patch.setattr(
        Source, "__init__", lambda self, seed=None, *rest: right(self, 12345 if seed is None else seed, *rest)
    )


def intercept_forgotten(patch):
    def record_size(self, norm):
        return 1.0 if norm == "body" else self.domain.size(float(norm), self.d)

    patch.setattr(es.Problem, "record_size", record_size)


def one_step_forgotten(patch):
    """T steps share what T - 1 may spend, and the certificate adds T - 1 of them."""
    split, total = es.Pure.allocate, budgets.total

    def allocate(self, weights, T, *rest):
        return split(self, weights, T, *rest) * T / max(T - 1, 1)

    patch.setattr(es.Pure, "allocate", allocate)
    patch.setattr(
        budgets, "total", lambda expenses, costs: total(expenses, np.asarray(costs)[: max(len(costs) - 1, 1)])
    )


def charged_afterwards(patch):
    def change(run, plan, data, options):
        account = options.pop("ledger", None)
        result = run(plan, data, **options)
        if account is not None:
            account.charge(plan.spending(), note=plan.method)
        return result

    replace_run(patch, change)


def unknown_label_raises(patch):
    right = es.Logistic.encode

    def encode(self, y):
        if not np.all(np.isin(y, self.classes)):
            raise ValueError("y holds an unknown label")
        return right(self, y)

    patch.setattr(es.Logistic, "encode", encode)


def overflow_warns(patch):
    right = es.Ball.integers

    def integers(self, rows, steps):
        with np.errstate(over="warn"):
            np.square(np.nan_to_num(rows))
        return right(self, rows, steps)

    patch.setattr(es.Ball, "integers", integers)


def unclamped_slopes(patch):
    def rounded(derivative, bound):
        return np.floor(np.nan_to_num(derivative) * (levels.STEPS / np.asarray(bound, dtype=float)) + 0.5)

    patch.setattr(levels, "rounded", rounded)


def full_accumulators(patch):
    require_exact(dense.DenseEngine, "numpy")  # or the engine's own test, which comes before, would see it
    patch.setattr(grid, "ROWS_PER_DOUBLE", 2**40)
    patch.setattr(dense, "_BLOCK_BYTES", 2**40)
    patch.setattr(engine, "PARTS", 1)


def gaussian_norm(norm):
    return lambda patch: patch.setattr(Gaussian, "norm", norm)


def l2_norm(patch):
    patch.setattr(KNorm, "norm", np.inf)


def no_common_part(patch):
    right = gaussian.tilted
    patch.setattr(gaussian, "tilted", lambda bits, scale, common, form, weights: right(bits, scale, 0.0, form, weights))


def parts_not_stretched(patch):
    right = Body.ellipsoid

    def ellipsoid(self, importance):
        found = right(self, importance)
        return Ellipsoid(found.hull, tuple(s / math.sqrt(2) for s in found.scales), found.common / math.sqrt(2))

    patch.setattr(Body, "ellipsoid", ellipsoid)


def signed_columns_in_the_hull(patch):
    def body(self, d):
        inside = self._in_block(d)
        blocks = tuple(tuple(range(*block)) for block in self.one_hot)
        return Body(tuple(np.flatnonzero(~inside).tolist()), blocks)

    patch.setattr(es.Box, "body", body)
    patch.setattr(es.Box, "hull", body)


def categories_in_one_block(patch):
    def body(self, d):
        inside = self._in_block(d)
        block = tuple(np.flatnonzero(inside).tolist())
        return Body((), ((block,) if block else ()) + tuple((c,) for c in np.flatnonzero(~inside).tolist()))

    patch.setattr(es.Box, "body", body)
    patch.setattr(es.Box, "hull", body)


def category_not_projected(patch):
    def integers(self, rows, steps):
        low, high = self._ends(rows.shape[1])
        return np.rint(np.clip(np.nan_to_num(rows), low, high) * (steps / self.units(rows.shape[1])))

    patch.setattr(es.Box, "integers", integers)


def state_at_another_point(patch):
    right = es.StepsPlan.scale_at
    patch.setattr(es.StepsPlan, "scale_at", lambda self, t, point: right(self, t, 0 * point))


def scale_fitted_to_the_data(patch):
    """The scale of the noise grows a little with the sum that was read before."""
    sums, scale_at, seen = es.Rows.sums, es.StepsPlan.scale_at, {"factor": 1.0}

    def measured(self, points, rows=None):
        found = sums(self, points, rows)
        seen["factor"] = 1 + float(np.abs(found[0, 0])) / 2**60
        return found

    patch.setattr(es.Rows, "sums", measured)
    patch.setattr(es.StepsPlan, "scale_at", lambda self, t, point: scale_at(self, t, point) * seen["factor"])


def other_draws(change):
    """Plant a bug in what is drawn for a tilted minimum: ``change(right, request, source)``."""

    def plant(patch):
        right = Minimum.draw
        patch.setattr(Minimum, "draw", lambda self, source: change(right, self, source))

    return plant


def smaller_tilts(factor):
    def change(right, request, source):
        tilt = dataclasses.replace(request.tilt, scale=factor * request.tilt.scale)
        return right(dataclasses.replace(request, tilt=tilt), source)

    return other_draws(change)


def same_tilt(patch):
    """Every second release has the tilt of the one before it, and draws the noise of its output alone."""
    known = []

    def change(right, request, source):
        if not known:
            known.append(right(request, source))
            return known[0]
        return known.pop() | right(dataclasses.replace(request, tilt=None), source)

    other_draws(change)(patch)


def free_jacobian(patch):
    def total_epsilon(noise_epsilon, kappa, saturation):
        return noise_epsilon

    patch.setattr(minima, "total_epsilon", total_epsilon)


def another_goal(change):
    """Plant a bug in what the solver of tilted minima is asked for: another objective, or another goal."""

    def plant(patch):
        right = loop.grid_minimum
        patch.setattr(loop, "grid_minimum", lambda tilted, goal, start: right(*change(tilted, goal)))

    return plant


def half_the_ridge(tilted, goal):
    """Minimise with half of the ridge that the certificate is computed with."""
    ridge = tilted.objective.ridge / 2
    objective = Minimised(dataclasses.replace(tilted.objective.problem, ridge=ridge), ridge)
    return dataclasses.replace(tilted, objective=objective), dataclasses.replace(goal, objective=objective)


def impatient_solver(factor):
    """The point that the solver returns is moved away by a small part of itself."""

    def plant(patch):
        right = Minimum.read

        def read(self, records, draw):
            return np.array([int(entry * (1 + factor)) for entry in right(self, records, draw)], dtype=object)

        patch.setattr(Minimum, "read", read)

    return plant


def without_output_noise(right, request, source):
    tilt = source.integers(
        request.tilt.mechanism,
        request.tilt.scale / request.tilt.step,
        (request.problem.dimension,),
        request.tilt.mechanism.shape(request.problem),
    )
    return {"tilt": tilt, "noise": np.zeros_like(tilt)}


def smaller_output_noise(right, request, source):
    return right(
        dataclasses.replace(request, goal=dataclasses.replace(request.goal, scale=0.1 * request.goal.scale)), source
    )


def published_iterations(patch):
    def change(run, plan, data, options):
        found = run(plan, data, **options)
        steps = float(np.linalg.norm(data.gradient(np.zeros(plan.problem.dimension))))
        return dataclasses.replace(found, extras={"iterations": np.array(math.ceil(100 * steps))})

    replace_run(patch, change)


def scaled_for_n_alone(patch):
    patch.setattr(minima, "minimum_sensitivity", lambda size, n, ridge: 2 * size / n)


def free_tolerance(patch):
    patch.setattr(minima, "minimum_radius", lambda tolerance, n, ridge: 0.0)


def tilt_for_a_clip(patch):
    """What objective perturbation once did: noise for clipped gradients, and the minimum of the loss."""
    patch.setattr(Minimised, "__post_init__", lambda self: None)
    patch.setattr(Minimised, "require_same_records", lambda self, other: None)


def dropped_limb(patch):
    """Slopes lose their last 20 bits, and gradients are certified as if they had them."""
    right = Chunk.gather_fixed

    def gather_fixed(self, shares, count):
        sums = right(self, shares, count).reshape(-1, shares.shape[1], count)
        sums[:, :, -1] = 0
        return sums.reshape(len(sums), -1)

    patch.setattr(Chunk, "gather_fixed", gather_fixed)


def slopes_in_doubles(patch):
    right = es.SmoothedHinge.derivative
    patch.setattr(es.SmoothedHinge, "derivative", lambda self, m, z: right(self, m.astype(float), z).astype(m.dtype))


def one_wishart(patch):
    rng = np.random.default_rng(0)

    def drawn(bits, shape, scales):
        vectors = rng.standard_normal((shape.k, shape.k + 1))
        return np.rint(scales * (vectors @ vectors.T)).astype(np.int64)

    drawn_as(patch, Nuclear, drawn)


def smaller_off_the_diagonal(patch):
    right = SecondMoments.draw

    def draw(self, source):
        noise = right(self, source)["noise"]
        return {"noise": np.where(np.eye(len(noise), dtype=bool), noise, noise // 2)}

    patch.setattr(SecondMoments, "draw", draw)


def unshortened_records(patch):
    def encode(self, features):
        whitening = self.whitening
        real = (features * (self.problem.units / 2**20))[:, whitening.columns]
        a = (real - whitening.mean) * whitening.weights
        return np.rint(a * (designs.MATRIX_STEPS / np.sqrt(whitening.whole)))

    patch.setattr(SecondMoment, "encode", encode)


def whitening_by_the_data(patch):
    """Records are weighed by their own variances instead of the released ones, and so is what is solved from them."""
    right = SecondMoment.read

    def read(self, records, draw):
        features = np.concatenate([block for block, _ in records.blocks()])
        variances = features[:, self.whitening.columns].var(axis=0)
        object.__setattr__(self.whitening, "weights", 1 / np.sqrt(0.2 * variances + 0.2))
        return right(self, records, draw)

    patch.setattr(SecondMoment, "read", read)


def generous_shares(patch):
    right = designs.divide

    def divide(*facts):
        found = right(*facts)
        return dataclasses.replace(found, gradients=tuple(1.2 * cost for cost in found.gradients))

    patch.setattr(designs, "divide", divide)


def smaller_moments_noise(patch):
    """The noise that is drawn has half the scale that the request's cost is computed from."""
    right = ColumnMeans.draw

    def draw(self, source):
        cheap = SimpleNamespace(**{name: getattr(self.statistic, name) for name in ("problem", "mechanism")})
        cheap.scale = self.statistic.scale / 2
        return right(dataclasses.replace(self, statistic=cheap), source)

    patch.setattr(ColumnMeans, "draw", draw)


def inverted_sharpness(patch):
    right = minimised.saturation_of

    def saturation_of(loss):
        return saturations.Sigmoid(sharpness=loss.width) if isinstance(loss, SmoothedHinge) else right(loss)

    patch.setattr(minimised, "saturation_of", saturation_of)


def other_saturation(kind, planted):
    """Take a loss to saturate as ``planted`` does."""

    def plant(patch):
        right = minimised.saturation_of
        patch.setattr(minimised, "saturation_of", lambda loss: planted if isinstance(loss, kind) else right(loss))

    return plant


class FreeLine(saturations.Capped):
    """The line has no curvature, so that nothing is charged at the cap: as if the curved side did not end there."""

    def largest(self, kappa, pull):
        return pull


def tilt_without_units(patch):
    patch.setattr(Tilt, "units", lambda self, problem: np.full(problem.dimension, self.step))


def certified_before_rounding(patch):
    """The grid is refined until the last moment: points are certified on one of a millionth of its step."""
    right = loop.grid_minimum

    def grid_minimum(tilted, goal, start):
        found = right(tilted, dataclasses.replace(goal, step=goal.step / 2**20))
        return np.array([(int(entry) + 2**19) >> 20 for entry in found], dtype=object)

    patch.setattr(loop, "grid_minimum", grid_minimum)


def rounding_forgotten(tilts):
    """The bound on the error of a gradient is dropped: of an objective with a tilt, or of one without."""

    def plant(patch):
        right = Tilted.certified

        def certified(self, x, precision, rows=None):
            found = right(self, x, precision, rows)
            return found._replace(error=0.0) if np.any(self.tilt) == tilts else found

        patch.setattr(Tilted, "certified", certified)

    return plant


def long_doubles_imagined(patch):
    right = passes.Precision.error
    patch.setattr(passes.Precision, "error", lambda self, *sizes: right(passes.LONG, *sizes))


def no_slack(patch):
    patch.setattr(ObjectivePlan, "tilt_slack", 0.0)


def free_cells(patch):
    patch.setattr(KNorm, "cell", lambda self, problem: 0.0)


def free_statistics_rounding(patch):
    right = methods.statistics.released_sensitivity
    patch.setattr(
        methods.statistics,
        "released_sensitivity",
        lambda vectors, mechanism, shift: right(vectors, mechanism, 0) / 2.0**shift,
    )


def bought_constant(change):
    """Change the sensitivity that the noise on the smoothness constant is scaled for, and its cost computed from."""

    def plant(patch):
        right = Eigenvalue.sensitivity.fget
        patch.setattr(Eigenvalue, "sensitivity", property(lambda self: change(right(self))))

    return plant


def free_gradient_rounding(patch):
    right = grid.Grid.release

    def release(self, scale, bound, shape):
        found = right(self, scale, bound, shape)
        step = self.gradient_step(bound)
        return dataclasses.replace(found, scale=np.broadcast_to(scale, step.shape) / np.ldexp(step, found.shift))

    patch.setattr(grid.Grid, "release", release)


def free_intercept(patch):
    """The solver leaves the ridge of the intercept out: all but a tenth, so that every tilt has a minimum."""
    right = Tilted.certified

    def certified(self, x, precision, rows=None):
        found, last = right(self, x, precision, rows), np.zeros(self.objective.dimension)
        last[-1] = 0.9 * self.objective.ridge * self.objective.problem.intercept
        return found._replace(gradient=found.gradient - self.objective.n * last * x)

    patch.setattr(Tilted, "certified", certified)


def weight(change):
    """Change the kappa of objectives: what a record weighs."""
    return lambda patch: patch.setattr(Minimised, "kappa", property(change))


def second_output_bare(patch):
    count = itertools.count()

    def change(right, request, source):
        return (right if next(count) % 2 == 0 else partial(without_output_noise, right))(request, source)

    other_draws(change)(patch)


def weighed_by_the_data(patch):
    """Of several minima, that with the smallest loss is weighed most."""

    def change(run, plan, data, options):
        found = run(plan, data, **options)
        losses = np.array([float(data.value(x)) for x in found.path[:-1]])
        best = np.exp(-losses / losses.min()) @ found.path[:-1]
        return dataclasses.replace(found, path=np.vstack([found.path[:-1], best]))

    replace_run(patch, change)


def unbalanced_slopes(patch):
    """Records of the first class pull half as much at it: gradients do not add up to 0, and noise in V hides none."""
    right = Softmax.derivative

    def derivative(self, margin, target):
        first = (levels.places_like(margin) == 0) & (target == 0)
        return right(self, margin, target) + first * margin.dtype.type(0.5)

    patch.setattr(Softmax, "derivative", derivative)


def class_part_of_norm_1(patch):
    """p - e_y taken to be no longer than one slope."""
    patch.setattr(Softmax, "joint_slope", lambda self, norm: 1.0)


def balanced_noise_halved_twice(patch):
    """Half of the L1 norm is what the blocks measure: the scale is halved once too often."""
    right = SAMPLERS[BalancedL1]
    patch.setitem(
        SAMPLERS, BalancedL1, dataclasses.replace(right, integers=lambda b, s, t: right.integers(b, s, t / 2))
    )


def unequal_classes(right, request, source):
    """The tilt of the first class has a quarter of its scale."""
    d, tilt = request.problem.dimension, request.tilt
    scales = np.full(d, tilt.scale / tilt.step)
    scales[: request.problem.width] /= 4
    drawn = source.integers(tilt.mechanism, scales, (d,), tilt.mechanism.shape(request.problem))
    return {"tilt": drawn} | right(dataclasses.replace(request, tilt=None), source)


def tolerance_of_the_mean(tilted, goal):
    """The solver stops at another tolerance than the certificate is computed with."""
    return tilted, dataclasses.replace(goal, tolerance=goal.tolerance * goal.objective.n)


def tolerance_of_the_tilt(tilted, goal):
    return tilted, dataclasses.replace(goal, tolerance=goal.tolerance * (1 + float(np.abs(tilted.tilt).max())))


def gradients_bought_twice(patch):
    """Gradients of the curvature method have the noise of twice their cost, and say so."""
    right = es.Gradient.at
    patch.setattr(es.Gradient, "at", lambda problem, noise, x, cost: right(problem, noise, x, 2 * cost))


def gradients_of_half_their_noise(patch):
    """Gradients are drawn with half of the scale that their cost is computed from."""
    right = es.Gradient.draw

    def draw(self, source):
        return right(dataclasses.replace(self, scale=np.asarray(self.scale) / 2), source)

    patch.setattr(es.Gradient, "draw", draw)


def fewer_degrees(patch):
    """Wishart matrices of k degrees of freedom instead of k + 1: the determinant stays in their density."""
    right = matrices.gamma
    patch.setattr(matrices, "gamma", lambda tape, degrees: right(tape, max(degrees - 1, 1)))


def two_zeros(patch):
    """Sign and size are drawn apart, so that 0 is drawn twice as often."""
    rng = np.random.default_rng(0)

    def drawn(bits, shape, scales):
        sizes = rng.geometric(1 - np.exp(-1 / np.asarray(scales))) - 1
        return sizes * rng.choice([-1, 1], sizes.shape)

    drawn_as(patch, L1, drawn)


def constant_held_by_the_data(patch):
    """The estimate of L is held below what the records' own lengths allow."""
    right = es.estimate_smoothness

    def estimate(data, budget, **options):
        found = right(data, budget, **options)
        longest = max(float(np.sum(features**2, axis=1).max()) for features, _ in data.blocks())
        L = min(found.L, data.problem.loss.curvature * longest + data.problem.ridge)
        return dataclasses.replace(found, problem=dataclasses.replace(found.problem, smoothness=L))

    patch.setattr(es, "estimate_smoothness", estimate)


def gradients_not_clipped(patch):
    """The plan knows that gradients are clipped, the engine does not."""
    patch.setattr(dense, "steepest", lambda clip, features, units: None)


def unclipped_targets(patch):
    right = SecondMoments.encode

    def encode(self, features, targets):
        found = right(self, features, targets)
        found[:, -1] = np.rint(np.clip(np.nan_to_num(targets), -1e3, 1e3) * 2**20 / self.plan.problem.loss.bound)
        return found

    patch.setattr(SecondMoments, "encode", encode)
    patch.setattr(es.Squared, "encode", lambda self, y: np.nan_to_num(np.asarray(y, dtype=float)))


def centred_by_the_data(patch):
    right = SecondMoments.encode

    def encode(self, features, targets):
        found = right(self, features, targets)
        found[:, 1:-1] -= np.rint(found[:, 1:-1].mean(axis=0))
        return found

    patch.setattr(SecondMoments, "encode", encode)


def free_expenses(patch):
    def spent(self):
        return self.budget.spending(self.costs, self.mechanism.kind).amount

    patch.setattr(es.StepsPlan, "spent", property(spent))


def free_repetitions(kind):
    def plant(patch):
        right = kind.spending
        patch.setattr(kind, "spending", lambda self, repetitions=1: right(self))

    return plant


def dearest_release_alone(patch):
    patch.setattr(ObjectivePlan, "spending", lambda self, repetitions=1: self.budget.of(Epsilon(max(self.costs))))
    patch.setattr(ObjectivePlan, "spent", property(lambda self: self.spending().amount))


def free_before_a_gaussian_tilt(patch):
    outputs = property(lambda self: math.fsum(request.output_cost for request in self.minima))
    patch.setattr(ObjectivePlan, "pure_cost", outputs)


def free_output(patch):
    patch.setattr(Minimum, "output_cost", 0.0)


def trusting_reader(patch):
    """Files are read without a look at what their scales certify."""
    patch.setattr(notation, "compare", lambda actual, stated: None)


def greedy_method(patch):
    """A method asks for half as much again as its plan was charged for."""
    right = test_replay.PlainDescent.conversation
    patch.setattr(
        test_replay.PlainDescent, "conversation", lambda self: right(dataclasses.replace(self, asked=1.5 * self.asked))
    )


def deaf_meter(patch):
    patch.setattr(loop.Meter, "spend", lambda self, costs: None)


def votes_outside_of_their_domain(patch):
    """A sum encodes records as other integers than its noise is scaled for."""
    right = test_replay.Votes.block
    patch.setattr(test_replay.Votes, "block", lambda self, features, targets: 3 * right(self, features, targets))


def columns_outside_of_their_domain(patch):
    right = ColumnMeans.encode
    patch.setattr(ColumnMeans, "encode", lambda self, features: 3 * right(self, features))


def smaller_noise_on_the_sizes(patch):
    """The noise that is drawn has half the scale that the request's cost is computed from."""
    right = sums.Mean.draw

    def draw(self, source):
        cheap = dataclasses.replace(self)
        release = dataclasses.replace(self._release, scale=self._release.scale / 2)
        vars(cheap)["_release"] = release
        return right(cheap, source)

    patch.setattr(sums.Mean, "draw", draw)


def weights_beyond_1(patch):
    """A loss is more curved than it says, and nothing holds it."""
    patch.setattr(sums, "_steps", lambda shares: np.floor(shares * 2.0**20 + 0.5))
    patch.setattr(levels, "share", lambda numbers: 1.3 * np.nan_to_num(np.asarray(numbers, dtype=float)))


def constant_not_shortened(patch):
    right = sums.Curvature.encode

    def encode(self, features, targets):
        a = right(self, features, targets)
        steps = 2**16 / math.sqrt(self.frame.length)
        bends = self._encode_bends(features, targets)
        if self.frame.constant:
            a[:, -1] = np.rint(steps * self.frame.constant * np.sqrt(self.problem.loss.curvature * bends))
        return a

    patch.setattr(sums.Curvature, "encode", encode)


def squares_in_a_cross_polytope(patch):
    """Squares of a ball lie in the cross-polytope, but their differences lie in twice as much."""
    right = frames.Layout.statistics

    def statistics(self, kind, cost):
        found = right(self, kind, cost)
        domain = es.Ball(0.5, norm=1)
        last = dataclasses.replace(found[-1].problem, domain=domain)
        square = dataclasses.replace(found[-1], problem=last, mechanism=smallest(last, kind))
        return (*found[:-1], square) if isinstance(self.problem.domain, es.Ball) else found

    patch.setattr(frames.Layout, "statistics", statistics)


def dispersion_capped_together(patch):
    def block(self, features, targets):
        loss, whole = self.problem.loss, 2**40
        slopes = np.asarray(loss.levels(self._encode_margins(features), targets, loss.slope), dtype=float)
        bends = self._encode_bends(features, targets) * whole
        levers = np.ones((len(slopes), 1)) if self.levers is None else self._encode_levers(features, self.levers)
        sums = np.concatenate([slopes**2 @ levers, bends @ levers]) / self.cap
        total = np.minimum(sums, len(features) * whole)
        return (2 * total - len(features) * whole).astype(np.int64)

    patch.setattr(sums.Dispersion, "block", block)


def curvature_at_half_its_cost(patch):
    right = sums.Curvature.costs.func
    half = property(lambda self: tuple(type(cost)(cost.amount / 2) for cost in right(self)))
    patch.setattr(sums.Curvature, "costs", half)


def curvature_charged_at_half(patch):
    half = property(lambda self: (self.sizes, self.curvature / 2, self.dispersion))
    patch.setattr(IntervalPlan, "_later", half)


def free_after_the_tilt(patch):
    right = objective.composed_corners
    for module in (objective, interval_plans):
        patch.setattr(module, "composed_corners", lambda *facts, later=0.0: right(*facts[:4]))


def requests_for_a_clip(trusting):
    """Requests are scaled for clipped gradients; records are read as the plan says, whose gradients are not clipped."""

    def plant(patch):
        right = es.StepsPlan._request

        def request(self, t, point):
            honest = right(self, t, point)
            clipped = dataclasses.replace(self.problem, clip=0.05)
            sizes = [problem.gradient_size(honest.bound, honest.mechanism.norm) for problem in (clipped, self.problem)]
            return dataclasses.replace(honest, problem=clipped, scale=honest.scale * sizes[0] / sizes[1])

        patch.setattr(es.StepsPlan, "_request", request)
        if trusting:
            patch.setattr(loop.Reader, "require", lambda self, problem: None)

    return plant


def long_records_not_shortened(patch):
    """Kappa is that of records within twice the radius, and the loss has them as they are."""
    right = Measure.shares
    patch.setattr(Measure, "shares", lambda self, sums: right(self, sums)._replace(shortening=np.ones(len(sums))))


def kappa_of_the_radius(patch):
    """Where records are at most twice as long as it; those of norm 1 are left as they are."""
    right = Weighting.square
    patch.setattr(Weighting, "square", lambda self, problem: right(self, problem) / self.norm)


def mean_of_the_data(patch):
    """Weights are divided by their mean over the records that are there."""

    def measured(data, objective):
        measure = objective.measure

        def added(chunk):
            shares = measure.shares(chunk.row_sums(measure.factors, measure.most, measure.norm)).weights
            return np.array([int(np.sum(shares * 2.0**20))])

        mean = float(data.total(added)[0]) / 2.0**20 / objective.n
        return dataclasses.replace(objective, weighting=dataclasses.replace(objective.weighting, mean=mean))

    for name in ("certified_gradient", "hessian", "rough_hessian"):
        right = getattr(passes, name)

        def changed(data, objective, *facts, right=right, **options):
            return right(data, measured(data, objective) if objective.weighting else objective, *facts, **options)

        patch.setattr(passes, name, changed)


def size_without_the_mean(patch):
    patch.setattr(Weighting, "size", lambda self, problem: up(min(self.radius, problem.record_size(self.norm))))


def weights_by_the_features_alone(patch):
    right = Weighting.measure

    def measure(self, problem):
        found = right(self, problem)
        return dataclasses.replace(found, factors=found.factors * (np.arange(problem.width) < problem.d))

    patch.setattr(Weighting, "measure", measure)


def jacobian_of_a_sigmoid(patch):
    """Slopes that are held have curvature next to their cap: it is not free."""
    patch.setattr(es.CappedLogistic, "saturation", property(lambda self: saturations.Sigmoid()))


def cap_of_the_loss_forgotten(patch):
    """Every record is held at radius/length, as if the loss had no cap."""
    right = Measure.shares

    def shares(self, sums):
        return right(self if self.cap is None else dataclasses.replace(self, cap=1 - 1e-9), sums)

    patch.setattr(Measure, "shares", shares)


def kappa_of_held_records(patch):
    """Kappa is that of the records whose slopes are not held."""
    right = Weighting.square

    def square(self, problem):
        return right(self, problem) * (problem.loss.slope if self.held else 1.0)

    patch.setattr(Weighting, "square", square)


# What checks say. A check that could only fail for one reason, by a comparison of its own, may say anything.
COSTS_MORE = "but claims"
NOT_INDEPENDENT = "the noise is not independent"
MOVES_TOO_FAR = "moved by .* of its noise, but is declared as"
STOPPED_EARLY = "the solver stopped at a gradient of"
RESULT_DIFFERS = "the fit differs on a neighbour: result"
DRAWS_DIFFER = "differs on the neighbour: draw of .* became draw of"
NOISE_MISSING = "a release for which noise was drawn 1 times, not 2"
UNDERPAID = "assert .* >= "
ASKS_FOR_MORE = "the method asks for .* more than is left of what its plan was charged for"
ANY = None
DENSER = "log-ratio .* at a cost of"
WEIGHTED = of_weights.weighted_minima_cost_no_less_than_their_densities_show
HELD = of_weights.held_minima_cost_no_less_than_their_densities_show
MOVES = of_intervals.every_request_moves_by_at_most_what_it_costs

# Each bug with the check that catches it, and the words that it is caught with: a plant that breaks something else,
# say by an exception, would be caught with others.
BUGS = {
    "Laplace scale b/√2": (smaller_scale(math.sqrt(0.5), L1), audit_laplace, COSTS_MORE),
    "Gaussian deviation σ/√2": (smaller_scale(math.sqrt(0.5), Spherical), audit_gaussian, COSTS_MORE),
    "sensitivity halved": (halved_sensitivity, audit_laplace, COSTS_MORE),
    "sensitivity halved in the plan alone": (sensitivity_halved_in_the_plan, replay_runs, ASKS_FOR_MORE),
    "sensitivity measured on the data": (measured_sensitivity, replay_runs, DRAWS_DIFFER),
    "projection skipped for one row": (one_row_unprojected, replay_runs, MOVES_TOO_FAR),
    "L computed from the data": (measured_L, replay_runs, RESULT_DIFFERS),
    "sampling with replacement": (with_replacement, subsets_are_fresh, "a record was read twice"),
    "the same subset in every step": (same_subset, subsets_are_fresh, ANY),
    "sampler reads more than the accountant believes": (larger_sample, audit_sampled, COSTS_MORE),
    "accountant believes that fewer are sampled": (imagined_fraction, plans_cost_what_is_computed_by_hand, ANY),
    "noise reused between steps": (same_noise_in_every_step, audit_laplace, NOT_INDEPENDENT),
    "noise shared by the coordinates": (same_noise_in_every_coordinate, audit_laplace, NOT_INDEPENDENT),
    "unseeded runs use a fixed seed": (fixed_seed, unseeded_runs_differ, ANY),
    "intercept left out of the norm": (intercept_forgotten, audit_intercept, COSTS_MORE),
    "composition off by one": (one_step_forgotten, plans_cost_what_is_computed_by_hand, ANY),
    "budget charged after the release": (charged_afterwards, replay_runs, "happened before anything was charged"),
    "an unknown label raises": (
        unknown_label_raises,
        replay_runs,
        "exception is 'none', then 'ValueError: y holds an unknown label",
    ),
    "a warning about large values": (overflow_warns, replay_runs, "warnings has 0 parts, then 1"),
    "slope clamp removed": (unclamped_slopes, levels_stay_within_their_limit, ANY),
    "accumulator not flushed": (full_accumulators, sums_are_exact, ANY),
    "Gaussian scaled by the L∞ sensitivity": (gaussian_norm(np.inf), audit_gaussian, COSTS_MORE),
    "Gaussian scaled by the L1 sensitivity": (gaussian_norm(1), gaussian_noise_is_what_rho_asks_for, ANY),
    "hull noise of half its scale": (smaller_scale(0.5, Body, Hull), audit_hull, COSTS_MORE),
    "L2 noise of two thirds of its scale": (smaller_scale(2 / 3, L2), audit_l2, COSTS_MORE),
    "L2 noise scaled by the L∞ sensitivity": (l2_norm, audit_l2, COSTS_MORE),
    "ellipsoid noise without its common part": (no_common_part, audit_ellipsoid, COSTS_MORE),
    "ellipsoids of the parts not stretched together": (parts_not_stretched, gradients_stay_within_their_noise, ANY),
    "columns of either sign in the hull": (signed_columns_in_the_hull, gradients_stay_within_their_noise, ANY),
    "two categories in one block": (categories_in_one_block, gradients_stay_within_their_noise, ANY),
    "a category's indicators not projected": (category_not_projected, replay_boxes, MOVES_TOO_FAR),
    "state sensitivity at another point": (state_at_another_point, replay_boxes, ASKS_FOR_MORE),
    "scale fitted to the data": (scale_fitted_to_the_data, replay_boxes, DRAWS_DIFFER),
    "tilt scaled by the sensitivity of adding a record": (halved_sensitivity, audit_minimum, COSTS_MORE),
    "tilt of two thirds of its scale": (smaller_tilts(2 / 3), audit_minimum, COSTS_MORE),
    "tilt reused by the next release": (same_tilt, replay_minima, NOISE_MISSING),
    "Gaussian tilt of a quarter of its scale": (smaller_tilts(1 / 4), replay_minima, MOVES_TOO_FAR),
    "Jacobian of the tilted minimum not charged": (free_jacobian, minima_cost_what_is_computed_by_hand, UNDERPAID),
    "intercept left out of a record's weight": (intercept_forgotten, minima_cost_what_is_computed_by_hand, UNDERPAID),
    "minimum of another ridge": (another_goal(half_the_ridge), replay_minima, STOPPED_EARLY),
    "solver stops before its tolerance": (impatient_solver(1e-5), replay_minima, STOPPED_EARLY),
    "noise on the output missing": (other_draws(without_output_noise), replay_minima, NOISE_MISSING),
    "noise on the output of a tenth of its scale": (
        other_draws(smaller_output_noise),
        replay_minima,
        "the noise on the output costs .* but is declared as",
    ),
    "solver's effort published": (published_iterations, replay_minima, RESULT_DIFFERS),
    "noise on a minimum scaled for n alone": (scaled_for_n_alone, audit_output, COSTS_MORE),
    "noise on a minimum without the solver's tolerance": (
        free_tolerance,
        outputs_cost_what_is_computed_by_hand,
        UNDERPAID,
    ),
    "a published minimum's solver stops early": (impatient_solver(1e-2), replay_published, STOPPED_EARLY),
    "tilt scaled for a clip that the minimum ignores": (tilt_for_a_clip, replay_clipped_minima, STOPPED_EARLY),
    "tilt scaled for a clip that no minimum reaches": (
        tilt_for_a_clip,
        replay_minima_below_a_clip,
        "is not that of what is read",
    ),
    "the last limb of slopes dropped": (
        dropped_limb,
        laws.gradients_are_within_their_error,
        "a gradient is off by .* its bound is",
    ),
    "slopes in doubles certified as long doubles": (slopes_in_doubles, slopes_keep_all_of_their_digits, ANY),
    "one Wishart matrix instead of a difference of two": (one_wishart, audit_statistics, COSTS_MORE),
    "Wishart noise of half its scale": (smaller_scale(0.5, Nuclear), audit_statistics, COSTS_MORE),
    "second moment's Wishart noise of half its scale": (smaller_scale(0.5, Nuclear), audit_curvature, COSTS_MORE),
    "Gaussian matrix with half its noise off the diagonal": (smaller_off_the_diagonal, audit_matrix, COSTS_MORE),
    "records not shortened": (unshortened_records, replay_published, MOVES_TOO_FAR),
    "whitening fitted to the data": (whitening_by_the_data, replay_published, "differs on"),
    "shares of the curvature's budget add up above 1": (generous_shares, replay_published, ASKS_FOR_MORE),
    "noise on the columns' moments of half its scale": (smaller_moments_noise, replay_published, MOVES_TOO_FAR),
    "inverted sharpness of the hinge": (
        inverted_sharpness,
        laws.minima_cost_no_less_than_their_densities_show,
        "log-ratio .* at a cost of",
    ),
    "softmax taken to have two classes": (
        other_saturation(Softmax, saturations.Softmax(2)),
        laws.softmax_minima_cost_no_less_than_their_densities_show,
        "log-ratio .* at a cost of",
    ),
    "pseudo-Huber loss taken to saturate as the logistic": (
        other_saturation(PseudoHuber, saturations.Sigmoid()),
        laws.minima_cost_no_less_than_their_densities_show,
        "log-ratio .* at a cost of",
    ),
    "a sharp pseudo-Huber loss taken to saturate as the usual one": (
        other_saturation(PseudoHuber, saturations.PseudoHuber(2)),
        laws.minima_cost_no_less_than_their_densities_show,
        "huber-.*-4 over .* log-ratio .* at a cost of",
    ),
    "a capped slope taken to saturate as a sigmoid": (
        other_saturation(es.CappedLogistic, saturations.Sigmoid()),
        laws.minima_cost_no_less_than_their_densities_show,
        "capped-.* log-ratio .* at a cost of",
    ),
    "a capped slope's Jacobian free on its line": (
        other_saturation(es.CappedLogistic, FreeLine(0.35)),
        laws.minima_cost_no_less_than_their_densities_show,
        "capped-0.35 .* log-ratio .* at a cost of",
    ),
    "units of the tilt ignored": (tilt_without_units, laws.tilts_have_their_declared_size, "times their declared size"),
    "units of the tilt ignored, replayed": (tilt_without_units, replay_minima, STOPPED_EARLY),
    "minimum certified before it is rounded": (
        certified_before_rounding,
        laws.minima_are_within_their_tolerance,
        "where .* was certified",
    ),
    "rounding errors of a tilted minimum left out": (
        rounding_forgotten(True),
        laws.minima_are_within_their_tolerance,
        "where .* was certified",
    ),
    "rounding errors of a noisy minimum left out": (
        rounding_forgotten(False),
        laws.minima_are_within_their_tolerance,
        "where .* was certified",
    ),
    "doubles certified as long doubles": (
        long_doubles_imagined,
        laws.gradients_are_within_their_error,
        "a gradient is off by .* its bound is",
    ),
    "cells of the tilt left out of the tolerance": (
        no_slack,
        laws.minima_are_within_their_tolerance,
        "where .* was certified",
    ),
    "cells of the tilt left out of the cost": (free_cells, laws.cells_of_the_tilt_are_charged, "moves .* of its scale"),
    "rounding of statistics left out": (free_statistics_rounding, laws.statistics_count_their_rounding, MOVES_TOO_FAR),
    "rounding of the bought L left out": (
        bought_constant(lambda sensitivity: 2**20),
        laws.the_bought_constant_counts_its_rounding,
        MOVES_TOO_FAR,
    ),
    "rounding of gradients left out": (free_gradient_rounding, laws.gradients_count_their_rounding, MOVES_TOO_FAR),
    "noise on the bought L of half its scale": (
        bought_constant(lambda sensitivity: sensitivity / 2),
        replay_bought,
        MOVES_TOO_FAR,
    ),
    "intercept left out of the bought L": (intercept_forgotten, replay_bought, MOVES_TOO_FAR),
    "bought L held below the longest record": (constant_held_by_the_data, replay_bought, RESULT_DIFFERS),
    "ridge of the intercept left out": (free_intercept, replay_minima, STOPPED_EARLY),
    "a record's weight by its largest entry": (
        weight(lambda plan: minima.record_weight(plan.problem.record_size(np.inf), plan.problem.n, plan.ridge)),
        minima_cost_what_is_computed_by_hand,
        UNDERPAID,
    ),
    "a record's weight taken to be 1": (
        weight(lambda plan: minima.record_weight(1.0, plan.problem.n, plan.ridge)),
        laws.minima_cost_no_less_than_their_densities_show,
        "log-ratio .* at a cost of",
    ),
    "a record's weight among n + 1": (
        weight(lambda plan: minima.record_weight(plan.problem.record_size(2), plan.problem.n + 1, plan.ridge)),
        minima_cost_what_is_computed_by_hand,
        UNDERPAID,
    ),
    "noise on the second output missing": (second_output_bare, replay_minima, NOISE_MISSING),
    "minima weighed by the data": (weighed_by_the_data, replay_minima, RESULT_DIFFERS),
    "tilts of the classes unequal": (other_draws(unequal_classes), replay_classes, MOVES_TOO_FAR),
    "gradients that do not add up to 0 under noise that does": (unbalanced_slopes, replay_classes, MOVES_TOO_FAR),
    "class part of gradients taken to have norm 1": (class_part_of_norm_1, replay_classes, MOVES_TOO_FAR),
    "balanced noise halved twice": (
        balanced_noise_halved_twice,
        balanced_noise_has_its_size,
        "balanced laplace: norms are",
    ),
    "tolerance of the mean, not of the sum": (
        another_goal(tolerance_of_the_mean),
        laws.minima_are_within_their_tolerance,
        "where .* was certified",
    ),
    "tolerance relative to the tilt": (
        another_goal(tolerance_of_the_tilt),
        laws.minima_are_within_their_tolerance,
        "where .* was certified",
    ),
    "solver's tolerance not paid for": (free_output, laws.solvers_are_paid_for, "the tolerance is not paid for"),
    "gradients of the curvature bought twice": (gradients_bought_twice, replay_published, ASKS_FOR_MORE),
    "gradients of half their noise": (gradients_of_half_their_noise, replay_published, MOVES_TOO_FAR),
    "Wishart matrices of too few degrees": (fewer_degrees, laws.whole_noise_has_its_law, "wishart: "),
    "0 drawn twice as often": (two_zeros, laws.whole_noise_has_its_law, "laplace: "),
    "gradients not clipped where they are read": (gradients_not_clipped, replay_clipped, MOVES_TOO_FAR),
    "targets of statistics not clipped": (unclipped_targets, replay_statistics, MOVES_TOO_FAR),
    "statistics centred by the data": (centred_by_the_data, replay_statistics, MOVES_TOO_FAR),
    "expenses forgotten": (free_expenses, laws.every_run_is_charged, ">="),
    "repetitions of a path not charged": (free_repetitions(es.StepsPlan), laws.every_run_is_charged, "four runs cost"),
    "repetitions of a release not charged": (free_repetitions(OutputPlan), laws.every_run_is_charged, "four runs cost"),
    "only the dearest minimum charged": (dearest_release_alone, laws.every_run_is_charged, "are charged for"),
    "a minimum before a Gaussian tilt not charged": (
        free_before_a_gaussian_tilt,
        laws.every_run_is_charged,
        "for a minimum of .* before",
    ),
    "a method asks for more than its plan charged": (greedy_method, replay_outside, ASKS_FOR_MORE),
    "a meter that counts nothing": (deaf_meter, methods_are_metered, "a method that asks for more .* was answered"),
    "a request for other gradients than are read": (
        requests_for_a_clip(trusting=False),
        replay_runs,
        "the request is for .* but the records are read as",
    ),
    "a request for other gradients, and a loop that trusts it": (
        requests_for_a_clip(trusting=True),
        replay_runs,
        MOVES_TOO_FAR,
    ),
    "a sum of more than its noise is scaled for": (votes_outside_of_their_domain, replay_outside, MOVES_TOO_FAR),
    "columns outside of their domain": (columns_outside_of_their_domain, replay_published, MOVES_TOO_FAR),
    "files of plans not recomputed": (trusting_reader, laws.edited_plans_are_refused, "were read"),
    "intervals: noise on the sizes of half its scale": (
        smaller_noise_on_the_sizes,
        MOVES,
        "(Means|Squares|Dispersion) moves by",
    ),
    "intervals: weights of records not held at 1": (weights_beyond_1, MOVES, "(Means|Squares|Curvature) moves by"),
    "intervals: the constant not shortened": (constant_not_shortened, MOVES, "Curvature moves by"),
    "intervals: squares in the cross-polytope of a ball": (squares_in_a_cross_polytope, MOVES, "Squares moves by"),
    "intervals: dispersion capped after it is added up": (
        dispersion_capped_together,
        of_intervals.dispersions_are_capped_record_by_record,
        ANY,
    ),
    "intervals: Wishart matrices of k degrees": (
        fewer_degrees,
        of_intervals.noise_has_its_declared_size,
        "noise of the curvature has",
    ),
    "intervals: curvature costs half of what it does": (curvature_at_half_its_cost, MOVES, "Curvature moves by"),
    "intervals: curvature charged at half": (curvature_charged_at_half, of_intervals.replay_intervals, ASKS_FOR_MORE),
    "intervals: what follows a Gaussian tilt is free": (
        free_after_the_tilt,
        of_intervals.gaussian_releases_are_composed_with_the_tilt,
        ANY,
    ),
    "weights: long records not shortened in the loss": (long_records_not_shortened, WEIGHTED, DENSER),
    "weights: kappa from S times the radius": (kappa_of_the_radius, WEIGHTED, DENSER),
    "weights: divided by the records' own mean": (mean_of_the_data, WEIGHTED, DENSER),
    "weights: divided by the records' own mean, replayed": (
        mean_of_the_data,
        of_weights.replay_weighted_minima,
        STOPPED_EARLY,
    ),
    "weights: S without their mean": (size_without_the_mean, WEIGHTED, DENSER),
    "weights: by the features alone": (
        weights_by_the_features_alone,
        of_weights.replay_weighted_minima,
        "counts more than the radius of the weighting allows",
    ),
    "held: a sigmoid's Jacobian where slopes are held": (jacobian_of_a_sigmoid, HELD, DENSER),
    "held: the loss's cap forgotten": (cap_of_the_loss_forgotten, HELD, DENSER),
    "held: the loss's cap forgotten, replayed": (
        cap_of_the_loss_forgotten,
        of_weights.replay_weighted_minima,
        "counts more than the radius of the weighting allows",
    ),
    "held: long records not shortened in the loss": (long_records_not_shortened, HELD, DENSER),
    "held: kappa of records whose slopes are not held": (kappa_of_held_records, HELD, DENSER),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_bug_is_caught(bug, monkeypatch):
    plant, check, words = BUGS[bug]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=words) as caught:
        check(seed=1)
    print(f"{bug}: {check.__name__}: {str(caught.value).splitlines()[0]}")


# Checks of other files are tests there.
@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check.__module__ == __name__], ids=lambda check: check.__name__
)
def test_right_code_raises_no_alarm(check):
    check(seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_right_code_raises_no_alarm_for_other_seeds(seed):
    for check in (*CHECKS, *laws.LAWS):
        check(seed=seed)
