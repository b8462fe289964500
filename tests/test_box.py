"""Boxes and one-hot blocks: what is projected where, in floats and in integers, dense and sparse."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.sparse import csr_array

import epsteps as es
from epsteps.data import encoding
from epsteps.problem.grid import STEPS

MIXED = es.Box((-2.0, 0.0, 0.0, 0.0, 0.0, 0.5), (1.0, 3.0, 1.0, 1.0, 1.0, 2.0), one_hot=[(2, 5)])
HOLDS_ZERO = es.Box((-2.0, 0.0, -1.0, 0.0, 0.0, -0.1), (1.0, 3.0, 1.0, 1.0, 1.0, 2.0), one_hot=[(2, 5)])
ANYTHING = st.floats(-1e300, 1e300) | st.floats(-2, 2) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0, 1 / 3])
rows_of_six = npst.arrays(float, st.tuples(st.integers(1, 8), st.just(6)), elements=ANYTHING)


def vertices(box):
    """Yield the extreme records of a box with six columns, of which 2 to 4 are one category."""
    low, high = np.broadcast_to(box.low, 6), np.broadcast_to(box.high, 6)
    for ends in itertools.product((0, 1), repeat=3):
        for block in (*np.eye(3), np.zeros(3)):
            free = np.where(ends, high[[0, 1, 5]], low[[0, 1, 5]])
            yield np.array([free[0], free[1], *block, free[2]])


@np.errstate(all="ignore")
@given(rows_of_six)
def test_projected_rows_are_inside_and_inside_rows_stay(rows):
    found = MIXED.project(rows)
    low, high = np.array(MIXED.low), np.array(MIXED.high)
    assert np.all((found >= low) & (found <= high))
    assert np.all(found[:, 2:5].sum(axis=1) <= 1 + 1e-15)
    assert not np.any(MIXED.outside(found))
    np.testing.assert_array_equal(MIXED.project(found), found)
    moved = ~np.all(found == rows, axis=1)
    assert np.all(moved[MIXED.outside(rows)])
    assert not np.any(moved & ~MIXED.outside(rows) & (rows[:, 2:5].sum(axis=1) <= 1))


@given(rows_of_six)
def test_integers_are_exactly_inside_and_nearest(rows):
    units = MIXED.units(6)
    np.testing.assert_array_equal(units, [2.0, 3.0, 1.0, 1.0, 1.0, 2.0])
    found = MIXED.integers(rows, STEPS)
    assert np.all(found == np.rint(found))
    assert np.all(found >= np.array([-1, 0, 0, 0, 0, 0.25]) * STEPS)
    assert np.all(found <= np.array([0.5, 1, 1, 1, 1, 1]) * STEPS)
    assert np.all(found[:, 2:5].sum(axis=1) <= STEPS)
    assert np.all(np.abs(found - MIXED.project(rows) * STEPS / units) <= 1)


@given(rows_of_six)
def test_sparse_rows_are_treated_as_dense_ones(rows):
    problem = es.Problem(es.Logistic(), HOLDS_ZERO, ridge=0.1, n=max(len(rows), 2), d=6)
    sparse = csr_array(np.where(rows == 0, 0.0, rows))
    np.testing.assert_array_equal(
        encoding.integers_sparse(problem, sparse).toarray(), encoding.integers(problem, rows).astype(np.float32)
    )
    np.testing.assert_array_equal(encoding.projected_sparse(problem, sparse).toarray(), HOLDS_ZERO.project(rows))
    marks = HOLDS_ZERO.outside_entries(sparse.data, sparse.indices, sparse.indptr)
    np.testing.assert_array_equal(marks, HOLDS_ZERO.outside(rows))


def test_sparse_rows_need_a_box_that_holds_zero():
    problem = es.Problem(es.Logistic(), MIXED, ridge=0.1, n=2, d=6)
    with pytest.raises(ValueError, match="a box that holds 0 in every column"):
        encoding.integers_sparse(problem, csr_array(np.eye(6)[:2]))


@pytest.mark.parametrize("box", [MIXED, HOLDS_ZERO, es.Box(-1, 2, one_hot=[(2, 5)])])
def test_sizes_and_reach_are_attained_at_a_vertex(box):
    corners = np.array(list(vertices(es.Box(np.broadcast_to(box.low, 6), np.broadcast_to(box.high, 6), box.one_hot))))
    for norm in (1, 2, np.inf):
        assert box.size(norm, 6) == pytest.approx(np.linalg.norm(corners, ord=norm, axis=1).max())
    x = np.random.default_rng(0).standard_normal((6, 20))
    np.testing.assert_allclose(box.reach(x), np.abs(corners @ x).max(axis=0))


def test_gradients_fill_the_body_of_the_box():
    """Every record times a slope of at most 1 lies in the body, and extreme ones on its surface."""
    for box in (es.Box(0, 1), es.Box(0, 1, one_hot=[(2, 5)]), es.Box(-1, 1, one_hot=[(2, 5)]), MIXED):
        problem = es.Problem(es.Logistic(), box, ridge=0.1, n=10, d=6, intercept=True)
        wide = es.Box(np.broadcast_to(box.low, 6), np.broadcast_to(box.high, 6), box.one_hot or [(2, 5)])
        corners = np.column_stack([list(vertices(wide)), np.ones(32)])
        gauges = problem.hull.gauge((corners / problem.units).T)
        assert np.all(gauges <= 1 + 1e-12)
        assert gauges.max() == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low": 1, "high": 1}, "low must be below high"),
        ({"low": (0, 0), "high": (1, 1, 1)}, "must have the same length"),
        ({"low": np.nan}, "low must be finite"),
        ({"high": "1"}, "high must be a number"),
        ({"one_hot": [(3, 3)]}, "do not overlap, with start < stop"),
        ({"one_hot": [(0, 3), (2, 4)]}, "do not overlap, with start < stop"),
        ({"one_hot": [(0, 3, 4)]}, "pairs"),
    ],
)
def test_bad_boxes_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        es.Box(**arguments)


def test_a_box_must_have_the_problems_columns():
    with pytest.raises(ValueError, match="one entry for each of the d=3 features, got 2"):
        es.Problem(es.Logistic(), es.Box((0, 0), 1), ridge=0.1, n=10, d=3)
    with pytest.raises(ValueError, match="one_hot must stay within the d=3 features"):
        es.Problem(es.Logistic(), es.Box(one_hot=[(1, 5)]), ridge=0.1, n=10, d=3)


def test_a_plan_with_a_box_reads_back():
    problem = es.Problem(es.Logistic(), MIXED, ridge=0.1, n=100, d=6)
    plan = es.plan(problem, es.Pure(1.0), es.gd, iterations=3)
    assert es.Plan.from_json(plan.to_json()) == plan
    assert "a box of 6 ranges with 1 one-hot block" in " ".join(str(plan).split())
