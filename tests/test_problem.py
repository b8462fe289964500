"""The public facts hold: sensitivities that neighbouring data cannot exceed, smoothness, projection."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import epsteps as es

norms = st.sampled_from([1, 2, np.inf])
losses = st.sampled_from([es.Logistic(), es.Squared(0.7)])
values = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300]))


@st.composite
def problems(draw, n=2):
    return es.Problem(
        draw(losses),
        es.Ball(draw(st.floats(0.1, 20)), norm=draw(norms)),
        ridge=draw(st.one_of(st.just(0.0), st.floats(1e-100, 1))),
        n=n,
        d=draw(st.integers(1, 5)),
        intercept=draw(st.booleans()),
    )


@st.composite
def neighbours(draw):
    """A problem, two datasets that differ in one record, and a point."""
    problem = draw(problems())
    rows = st.lists(values, min_size=problem.d, max_size=problem.d).map(np.array)
    X, other = np.array([draw(rows), draw(rows)]), np.array([draw(rows), draw(rows)])
    other[1] = X[1]
    y = np.array([draw(values), draw(values)])
    y[0] = draw(st.sampled_from([-1.0, 1.0, y[0]]))
    other_y = np.array([draw(st.sampled_from([-1.0, 1.0, 0.2])), y[1]])
    size = draw(st.sampled_from([0.0, 0.01, 1.0, 30.0]))
    x = size * np.array([draw(st.floats(-1, 1)) for _ in range(problem.dimension)])
    return problem, (X, y), (other, other_y), x


@given(neighbours(), norms)
def test_neighbours_never_move_a_gradient_by_more_than_the_sensitivity(case, norm):
    problem, first, second, x = case
    moved = es.Rows(problem, *first).gradient(x) - es.Rows(problem, *second).gradient(x)
    distance = problem.n * np.linalg.norm(moved, ord=norm)
    rounding = 1e-9 * max(1.0, np.abs(x).max(initial=0))
    assert distance <= problem.sensitivity_at(x, norm) + rounding
    assert problem.sensitivity_at(x, norm) <= problem.sensitivity(norm)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_the_sensitivity_is_approached(norm):
    """Two opposite corners of the L1 ball at a far point: a smaller constant would be broken."""
    problem = es.Problem(es.Logistic(), es.Ball(2, norm=1), ridge=0.1, n=2, d=2)
    x = np.array([50.0, -50.0])
    first = es.Rows(problem, np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([-1, 1]))
    second = es.Rows(problem, np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([1, 1]))
    moved = problem.n * np.linalg.norm(first.gradient(x) - second.gradient(x), ord=norm)
    expected = {1: 4.0, 2: 2 * np.sqrt(2), np.inf: 2.0}[norm]
    assert moved == pytest.approx(expected)
    assert moved <= problem.sensitivity(norm)
    if norm == 1:
        assert moved > 0.999 * problem.sensitivity(norm)


def test_squared_sensitivity_at_a_point_is_attained():
    problem = es.Problem(es.Squared(0.5), es.Ball(2, norm=1), ridge=0.1, n=2, d=2)
    x = np.array([3.0, 1.0])
    first = es.Rows(problem, np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([-0.5, 0.0]))
    second = es.Rows(problem, np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([0.5, 0.0]))
    assert np.isinf(problem.sensitivity(1))
    size = [problem.n * np.abs(rows.gradient(x) - problem.ridge * x).sum() for rows in (first, second)]
    assert max(size) == pytest.approx(problem.sensitivity_at(x, 1) / 2)


def test_the_intercept_counts_in_the_sensitivity_at_a_point():
    """Far along the intercept, two opposite small rows move by more than the features alone would allow."""
    problem = es.Problem(es.Squared(0.5), es.Ball(0.1), ridge=0.1, n=2, d=1, intercept=True)
    x = np.array([0.0, 10.0])
    first = es.Rows(problem, np.array([[0.1], [0.0]]), np.array([-0.5, 0.0]))
    second = es.Rows(problem, np.array([[-0.1], [0.0]]), np.array([-0.5, 0.0]))
    moved = problem.n * np.abs(first.gradient(x) - second.gradient(x)).sum()
    assert moved == pytest.approx(2 * 10.5 * 0.1)
    assert 2 * 0.5 * problem.record_size(1) < moved <= problem.sensitivity_at(x, 1)


@given(problems(n=5), st.integers(0, 1000))
def test_objective_is_no_smoother_than_L_and_no_flatter_than_mu(problem, seed):
    rng = np.random.default_rng(seed)
    X, y = 10 * rng.standard_normal((5, problem.d)), rng.choice([-1, 1], 5)
    rows = es.Rows(problem, X, y)
    a, b = rng.standard_normal((2, problem.dimension))
    product = (rows.gradient(a) - rows.gradient(b)) @ (a - b)
    squared = np.sum((a - b) ** 2)
    assert problem.mu * squared * (1 - 1e-9) <= product <= problem.L * squared * (1 + 1e-9)


def test_L_has_the_factor_one_quarter(paper):
    assert pytest.approx(20 / 4 + 0.02) == paper.L
    assert paper.mu == 0.02
    assert paper.sensitivity(1) == 40
    assert es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=5, d=3, smoothness=0.2).L == 0.2
    assert pytest.approx(5 / 4 + 0.1) == es.Problem(es.Logistic(), es.Ball(2), ridge=0.1, n=5, d=3, intercept=True).L


def test_L_is_attained():
    """A corner of the cube at margin 0 has exactly that curvature."""
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=2, d=4)
    rows = es.Rows(problem, np.ones((2, 4)), np.array([1, -1]))
    direction = np.full(4, 1e-4)
    change = rows.gradient(direction) - rows.gradient(-direction)
    assert change @ direction / (2 * direction @ direction) == pytest.approx(problem.L, rel=1e-6)


@given(st.integers(1, 6), norms, st.floats(1e-3, 1e3), st.data())
@example(3, 2, 1.0, None)
def test_projection_lands_inside_and_leaves_insiders_alone(d, norm, radius, data):
    ball = es.Ball(radius, norm=norm)
    if data is None:
        rows = np.full((1, d), 1e300)
    else:
        rows = np.array([[data.draw(values) for _ in range(d)] for _ in range(3)])
    inside = ball.project(rows)
    lengths = np.linalg.norm(inside, ord=norm, axis=1)
    assert np.all(lengths <= radius)
    half = 0.5 * inside
    np.testing.assert_array_equal(ball.project(half), half)
    assert not np.any(ball.outside(inside))


def test_projection_of_a_long_row_keeps_its_direction():
    np.testing.assert_allclose(es.Ball(1).project(np.array([[3.0, 4.0]])), [[0.6, 0.8]])
    np.testing.assert_allclose(es.Ball(1, norm=1).project(np.array([[3.0, 1.0]])), [[0.75, 0.25]])
    np.testing.assert_allclose(es.Ball(1, norm=np.inf).project(np.array([[3.0, 0.5]])), [[1.0, 0.5]])


@given(problems(), st.integers(0, 100))
def test_start_gap_bounds_the_gap_at_zero(problem, seed):
    rng = np.random.default_rng(seed)
    rows = es.Rows(problem, rng.standard_normal((2, problem.d)), rng.choice([-1, 1], 2))
    assert rows.value(np.zeros(problem.dimension)) <= problem.start_gap * (1 + 1e-12)


@pytest.mark.parametrize(
    ("facts", "error", "message"),
    [
        ({"ridge": -0.1}, ValueError, "ridge must not be negative, got -0.1"),
        ({"ridge": float("nan")}, ValueError, "ridge must be finite, got nan"),
        ({"n": 1}, ValueError, "n must be at least 2, got 1"),
        ({"n": 10.5}, TypeError, "n must be a whole number, got 10.5"),
        ({"d": 0}, ValueError, "d must be at least 1, got 0"),
        ({"intercept": 1}, TypeError, "intercept must be True or False, got 1"),
        ({"smoothness": 0.05}, ValueError, "smoothness must be at least ridge=0.1, got 0.05"),
        ({"smoothness": 0}, ValueError, "smoothness must be positive, got 0"),
    ],
)
def test_bad_facts_are_refused(facts, error, message):
    with pytest.raises(error, match=message):
        es.Problem(es.Logistic(), es.Ball(1), **({"ridge": 0.1, "n": 10, "d": 2} | facts))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: es.Ball(0), "radius must be positive, got 0"),
        (lambda: es.Ball(-1.0), "radius must be positive, got -1.0"),
        (lambda: es.Ball(1, norm=3), "norm must be 1, 2 or numpy.inf, got 3"),
        (lambda: es.Squared(0), "bound must be positive, got 0"),
        (lambda: es.Logistic((1, 1)), r"classes must be two different labels, got \(1, 1\)"),
    ],
)
def test_bad_domains_and_losses_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: es.Ball(1e-305, norm=np.inf), "radius must lie between 1e-100 and 1e\\+100, got 1e-305"),
        (lambda: es.Ball(1e200), "radius must lie between"),
        (lambda: es.Box(1e-320, 2e-320), r"the larger of \|low\| and \|high\| must lie between"),
        (lambda: es.Box((0, -1e200), (1, 1)), r"the larger of \|low\| and \|high\| must lie between"),
        (lambda: es.Squared(bound=1e39), "bound must lie between 1e-30 and 1e\\+30, got 1e\\+39"),
        (lambda: es.PseudoHuber(c=1e-200), "c must lie between"),
        (lambda: es.SmoothedHinge(width=1e-300), "width must lie between"),
        (lambda: declared(ridge=1e-305), "ridge must lie between"),
        (lambda: declared(clip=1e-305), "clip must lie between"),
        (lambda: declared(n=2**60), r"n must be at most 2\*\*53"),
        (lambda: declared(d=2**31), "at most 4000000 coordinates"),
        (lambda: declared(smoothness=1e305), "L is too large or too small to compute with: 1e\\+305"),
    ],
)
def test_sizes_that_floats_do_not_hold_are_refused_where_they_are_declared(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def declared(loss=None, **facts):
    return es.Problem(loss or es.Logistic(), es.Ball(1), **({"ridge": 0.1, "n": 10, "d": 2} | facts))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"slope": np.nan}, "slope must be finite, got nan"),
        ({"slope": -1.0}, "slope must be positive, got -1"),
        ({"slope": 0.0}, "slope must be positive, got 0"),
        ({"typical_slope": np.inf}, "typical_slope must be finite, got inf"),
        ({"curvature": 1e200}, "curvature must lie between"),
        ({"joint_slope": lambda self, norm: np.nan}, r"joint_slope\(1\) must be finite, got nan"),
        ({"outputs": 0}, "outputs must be at least 1"),
    ],
)
def test_a_loss_from_outside_whose_constants_are_none_is_refused(facts, message):
    """What a loss says of itself is public, and decides all sensitivities: it is looked at before any record is."""
    with pytest.raises((ValueError, TypeError), match=message):
        declared(type("Outside", (es.Logistic,), facts)())


def test_a_slope_at_a_point_is_never_above_the_declared_one():
    """Whatever a loss from outside says of a point, and whatever the point: noise is scaled for the smaller slope."""
    for answer in (7.0, np.nan, np.inf, -3.0, 0.0):
        loss = type("Outside", (es.Logistic,), {"slope_at": lambda self, reach, a=answer: np.full(reach.shape, a)})()
        for x in (np.zeros((2, 1)), np.full((2, 1), np.inf), np.full((2, 1), np.nan)):
            found = declared(loss).slope_at(x)
            assert np.all((found > 0) & (found <= 1))
    assert np.all(np.isfinite(declared(es.Squared()).sensitivity_at(np.array([[np.inf], [-1e308]]))))
