"""Records: values are projected in silence, structure raises, and the data holder's look counts both."""

import os
import select
from dataclasses import replace

import numpy as np
import pytest
from conftest import ENGINES, records, small_problem
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import epsteps as es
from epsteps.data.engine import ArrayEngine
from epsteps.data.sparse import SparseEngine
from epsteps.problem.grid import STEPS
from epsteps.problem.losses import PseudoHuber, SmoothedHinge


def test_values_outside_the_domain_are_projected():
    problem = small_problem(n=4, d=2)
    X = np.array([[5.0, -7.0], [np.nan, 0.5], [np.inf, -np.inf], [0.2, 0.3]])
    y = np.array([1, -1, 3, np.nan])
    expected = es.Rows(problem, [[1, -1], [0, 0.5], [1, -1], [0.2, 0.3]], [1, -1, -1, -1])
    x = np.array([0.3, -0.4])
    np.testing.assert_array_equal(es.Rows(problem, X, y).gradient(x), expected.gradient(x))


def test_input_is_not_modified():
    problem = small_problem(n=4, d=2)
    X, y = np.full((4, 2), 9.0), np.full(4, 7.0)
    es.Rows(problem, X, y)
    assert np.all(X == 9.0)
    assert np.all(y == 7.0)


def test_check_counts_what_would_be_projected():
    problem = small_problem(n=4, d=2)
    X = np.array([[5.0, 0.0], [np.nan, 0.5], [np.inf, -np.inf], [1.0, -1.0]])
    found = es.check(problem, X, np.array([1, -1, 3, np.nan]))
    assert (found.rows_outside, found.not_a_number, found.infinite, found.targets_outside) == (3, 1, 2, 2)
    assert found.any
    assert "3 rows outside the domain (1 values are NaN, 2 infinite), 2 targets" in str(found)
    assert not es.check(problem, *records(problem)).any


def test_validate_raises_for_the_data_holder():
    problem = small_problem(n=4, d=2)
    with pytest.raises(ValueError, match="1 rows outside the domain"):
        es.Rows(problem, [[5, 0], [0, 0], [0, 0], [0, 0]], [1, 1, 1, 1], validate=True)
    es.Rows(problem, *records(problem), validate=True)


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        (
            np.zeros((3, 2)),
            np.ones(4),
            ValueError,
            r"X must have the problem's shape \(n, d\) = \(4, 2\), got \(3, 2\)",
        ),
        (np.zeros((4, 3)), np.ones(4), ValueError, r"= \(4, 2\), got \(4, 3\)"),
        (np.zeros(4), np.ones(4), ValueError, r"= \(4, 2\), got \(4,\)"),
        (np.zeros((4, 2)), np.ones(3), ValueError, r"y must have the problem's shape \(n,\) = \(4,\), got \(3,\)"),
        (np.zeros((4, 2)), np.ones((4, 1)), ValueError, r"= \(4,\), got \(4, 1\)"),
        (np.full((4, 2), "a"), np.ones(4), TypeError, "X must be numeric, got dtype <U1"),
        (np.zeros((4, 2)), np.full(4, "a"), TypeError, "y must be numeric, got dtype <U1"),
        (np.zeros((4, 2), dtype="M8[s]"), np.ones(4), TypeError, "X must be numeric, got dtype datetime64"),
        (np.zeros((4, 2), dtype=complex), np.ones(4), TypeError, "X must be numeric, got dtype complex128"),
    ],
)
def test_structure_raises(X, y, error, message):
    with pytest.raises(error, match=message):
        es.Rows(small_problem(n=4, d=2), X, y)


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match=r"engine must be one of 'auto', 'numpy', 'fast'.*, got 'warp'"):
        es.Rows(small_problem(n=4, d=2), np.zeros((4, 2)), np.ones(4), engine="warp")


def test_labels_may_be_text():
    problem = es.Problem(es.Logistic(("no", "yes")), es.Ball(1), ridge=0.1, n=3, d=1)
    X, x = np.array([[0.1], [0.2], [0.3]]), np.array([0.5])
    named = es.Rows(problem, X, np.array(["yes", "no", "perhaps"]))
    numbered = es.Rows(es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=3, d=1), X, np.array([1, -1, -1]))
    np.testing.assert_array_equal(named.gradient(x), numbered.gradient(x))
    assert es.check(problem, X, np.array(["yes", "no", "perhaps"])).targets_outside == 1


@given(
    st.integers(1, 700),
    st.sampled_from([1, 3, 20]),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([es.Logistic(), es.Squared()]),
)
def test_gradient_and_value_equal_their_definitions(n, d, columns, intercept, loss):
    """Blocked sums against one line of NumPy each, and the gradient against differences of the value."""
    problem = es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.3, n=max(n, 2), d=d, intercept=intercept)
    X, y = records(problem, seed=n)
    rows = es.Rows(problem, X, y)
    x = np.random.default_rng(n).standard_normal((problem.dimension, columns))
    U = np.column_stack([X, np.ones(problem.n)]) if intercept else X
    margins = U @ x
    if isinstance(loss, es.Logistic):
        losses, slopes = np.logaddexp(0, -y[:, None] * margins), -y[:, None] / (1 + np.exp(y[:, None] * margins))
    else:
        losses, slopes = (margins - y[:, None]) ** 2 / 2, margins - y[:, None]
    np.testing.assert_allclose(rows.value(x), losses.mean(axis=0) + 0.15 * (x**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(rows.gradient(x), U.T @ slopes / problem.n + 0.3 * x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rows.gradient(x[:, 0]), rows.gradient(x)[:, 0], rtol=1e-10, atol=1e-12)
    assert float(rows.value(x[:, 0])) == pytest.approx(rows.value(x)[0], rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
@pytest.mark.parametrize(
    "loss",
    [es.Logistic(), es.Squared(), PseudoHuber(c=0.4, power=8), SmoothedHinge(width=0.3), es.CappedLogistic()],
    ids=repr,
)
def test_the_hessian_equals_its_definition(engine, intercept, loss):
    """Against one line of NumPy, and against differences of the gradient."""
    problem = es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.3, n=5001, d=7, intercept=intercept)
    X, y = records(problem)
    rows = es.Rows(problem, X, y, engine=engine)
    U = np.column_stack([X, np.ones(problem.n)]) if intercept else X
    x = np.random.default_rng(1).standard_normal(problem.dimension)
    found = rows.hessian(x)
    expected = np.einsum("i,ij,ik->jk", loss.second(U @ x, y.astype(float)), U, U) / problem.n
    np.testing.assert_allclose(found, expected + 0.3 * np.eye(problem.dimension), rtol=1e-11, atol=1e-13)
    step = 1e-5 * np.eye(problem.dimension)
    differences = rows.gradient(x[:, None] + step) - rows.gradient(x[:, None] - step)
    np.testing.assert_allclose(found, differences / 2e-5, atol=1e-8)


def test_a_hessian_is_taken_at_one_point():
    rows = es.Rows(small_problem(n=4, d=2), np.ones((4, 2)), [1, -1, 1, -1])
    with pytest.raises(ValueError, match=r"x must be one point for a Hessian, got shape \(2, 1\)"):
        rows.hessian(np.ones((2, 1)))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("ball", [es.Ball(1, norm=np.inf), es.Ball(0.5, norm=2), es.Ball(2, norm=1)], ids=repr)
def test_blocks_are_all_prepared_records_in_order_and_inside_the_domain(ball, kind):
    problem = es.Problem(es.Logistic(), ball, ridge=0.1, n=777, d=5, intercept=True)
    rng = np.random.default_rng(0)
    X, y = (rng.standard_normal((777, 5)) * 3).astype(kind), rng.integers(-1, 3, 777)
    blocks = list(es.Rows(problem, X, y).blocks())
    features, targets = (np.concatenate(part) for part in zip(*blocks, strict=True))
    assert features.dtype == np.float64
    integers = ball.integers(X, STEPS)
    np.testing.assert_array_equal(features, np.column_stack([integers * (ball.radius / STEPS), np.ones(777)]))
    np.testing.assert_allclose(features[:, :5], ball.project(X.astype(float)), atol=ball.radius / STEPS)
    np.testing.assert_array_equal(targets, np.where(y == 1, 1.0, -1.0))
    assert np.linalg.norm(features[:, :5], ord=ball.norm, axis=1).max() <= ball.radius


def test_a_subset_gives_the_gradient_of_those_records():
    problem = small_problem(n=50)
    X, y = records(problem)
    subset = np.array([3, 7, 40])
    part = es.Rows(small_problem(n=3), X[subset], y[subset])
    x = np.array([0.1, 0.2, -0.3])
    np.testing.assert_allclose(es.Rows(problem, X, y).gradient(x, subset), part.gradient(x), atol=1e-15)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=60_000, d=3)
    rows = es.Rows(problem, *records(problem))
    x = np.random.default_rng(0).standard_normal((3, 20))
    both = rows.gradient(x), rows.value(x)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    np.testing.assert_array_equal(rows.gradient(x), both[0])
    np.testing.assert_array_equal(rows.value(x), both[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Pythons advise against what is tested
@pytest.mark.parametrize("engine", ["numpy", "fast"])
def test_gradients_work_in_a_forked_process(engine):
    """Threads do not survive a fork: the child must start its own."""
    if engine == "fast":
        pytest.importorskip("numba", reason="the fast engine needs numba")
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=60_000, d=4)
    rows = es.Rows(problem, *records(problem), engine=engine)
    x = np.ones((4, 20))
    expected = rows.gradient(x)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, rows.gradient(x).tobytes())
        finally:
            os._exit(0)
    ready, _, _ = select.select([reader], [], [], 60)
    assert ready, "the child hangs"
    assert os.read(reader, 10_000) == expected.tobytes()
    os.waitpid(child, 0)


def test_large_margins_neither_overflow_nor_warn():
    problem = small_problem(n=4, d=2)
    rows = es.Rows(problem, np.ones((4, 2)), [1, -1, 1, -1])
    x = np.array([1e6, 1e6])
    assert np.all(np.isfinite(rows.gradient(x)))
    assert rows.value(x) == pytest.approx(1e6 + 0.05 * 2e12)


def test_points_of_the_wrong_length_are_refused():
    rows = es.Rows(small_problem(n=4, d=2), np.ones((4, 2)), [1, -1, 1, -1])
    with pytest.raises(ValueError, match=r"x must have length 2 \(or that many rows\), got shape \(3,\)"):
        rows.gradient(np.ones(3))


@pytest.mark.parametrize(("kind", "engine"), [(np.asarray, ArrayEngine), (csr_array, SparseEngine)])
def test_a_sequence_of_minima_prepares_records_once_whatever_their_loss(kind, engine, monkeypatch):
    prepared, right = [], engine._rounded
    monkeypatch.setattr(engine, "_rounded", lambda *given: prepared.append(given[-2].n) or right(*given[-2:]))
    problem = small_problem()
    X, y = records(problem)
    hinge = replace(problem, loss=es.SmoothedHinge())
    stated = [problem, replace(problem, ridge=0.7), hinge, replace(hinge, ridge=0.7), hinge, problem]
    plans, rows = [es.plan(each, es.Pure(1.0), "output") for each in stated], es.Rows(problem, kind(X), y)
    found = [es.run(plan, rows, seed=1).path for plan in plans]
    assert prepared.count(problem.n) == 1  # others are those of the engine's own test
    for plan, path in zip(plans, found, strict=True):
        np.testing.assert_array_equal(path, es.run(plan, es.Rows(plan.problem, kind(X), y), seed=1).path)


def test_records_are_not_restated_for_another_domain():
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))
    with pytest.raises(ValueError, match="cannot be read as"):
        rows.restated(replace(problem, domain=es.Ball(2.0)))
