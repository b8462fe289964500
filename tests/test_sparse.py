"""Sparse records: the integers of their dense copy, from the stored entries alone."""

import subprocess
import sys
from operator import methodcaller
from pathlib import Path

import numpy as np
import pytest
from conftest import records, small_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import epsteps as es
from epsteps.data import encoding
from epsteps.data.sparse import SparseEngine
from epsteps.problem.grid import STEPS, Grid

LOSSES = [es.Logistic(), es.Squared(bound=1.5)]
BALLS = [es.Ball(0.7, norm=np.inf), es.Ball(2.5, norm=2), es.Ball(1, norm=1)]


def messy(n, d, seed, density=0.3, kind=np.float64):
    """Return sparse records, some rows empty, many outside the domain, with entries that are no numbers."""
    rng = np.random.default_rng(seed)
    matrix = sparse.csr_array(np.where(rng.random((n, d)) < density, rng.standard_normal((n, d)), 0.0))
    scales = np.repeat(rng.choice([0.1, 1, 30], n), np.diff(matrix.indptr))
    matrix.data = (matrix.data * scales).astype(kind)
    if np.dtype(kind).kind == "f":
        matrix.data[rng.random(matrix.nnz) < 0.02] = np.nan
        matrix.data[rng.random(matrix.nnz) < 0.01] = -np.inf
    matrix.data[rng.random(matrix.nnz) < 0.03] = 0  # a zero may be stored
    return matrix, rng.choice([-1.0, 1.0, np.nan], n)


@pytest.mark.parametrize("ball", BALLS, ids=lambda ball: f"norm {ball.norm}")
@pytest.mark.parametrize("loss", LOSSES, ids=["logistic", "squared"])
@pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
@pytest.mark.parametrize(("n", "d", "kind"), [(1003, 30, float), (50, 700, np.float32), (20, 1, float), (99, 8, int)])
def test_sparse_records_give_the_integers_and_means_of_dense_ones(ball, loss, intercept, n, d, kind):
    problem = es.Problem(loss, ball, ridge=0.1, n=n, d=d, intercept=intercept)
    X, y = messy(n, d, seed=n + d, kind=kind)
    found, dense = es.Rows(problem, X, y), es.Rows(problem, X.toarray(), y, engine="numpy")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((problem.dimension, 3)) * [1e-3, 1, 1e3]
    points, subset = Grid(problem).points(x, 1.0), rng.integers(0, n, 13)
    np.testing.assert_array_equal(found.sums(points), dense.sums(points))
    np.testing.assert_array_equal(found.sums(points, subset), dense.sums(points, subset))
    np.testing.assert_array_equal(found.total(methodcaller("moment")), dense.total(methodcaller("moment")))
    for point in (x, x[:, 1]):
        np.testing.assert_allclose(found.gradient(point), dense.gradient(point), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.value(point), dense.value(point), rtol=1e-12)
        expected = dense.gradient(point, subset)
        np.testing.assert_allclose(found.gradient(point, subset), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.second_moment(), dense.second_moment(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.hessian(x[:, 1]), dense.hessian(x[:, 1]), rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(found.blocks(), dense.blocks(), strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])
    assert es.check(problem, X, y) == es.check(problem, X.toarray(), y)
    assert repr(found) == repr(dense)


@settings(max_examples=60)
@given(st.sampled_from(BALLS), st.integers(1, 60), st.integers(0, 10**6), st.sampled_from([0.05, 0.5, 1.0]))
def test_integer_rows_are_those_of_dense_rows_and_inside(ball, d, seed, density):
    problem = es.Problem(es.Logistic(), ball, ridge=0.1, n=40, d=d)
    X, _ = messy(40, d, seed, density)
    found = encoding.integers_sparse(problem, X)
    np.testing.assert_array_equal(found.toarray(), encoding.integers(problem, X.toarray()))
    np.testing.assert_array_equal(
        encoding.projected_sparse(problem, X).toarray(), encoding.projected(problem, X.toarray())
    )
    power = 2 if ball.norm == 2 else 1
    for row in found:
        sizes = [abs(int(entry)) for entry in row.data]
        inside = max(sizes, default=0) if ball.norm == np.inf else sum(size**power for size in sizes)
        assert inside <= STEPS**power


@given(st.integers(0, 10**6), st.sampled_from(BALLS))
@settings(max_examples=30)
def test_a_row_is_converted_alone(seed, ball):
    """What becomes of a row does not depend on the others, on empty rows or on where it lies."""
    problem = es.Problem(es.Logistic(), ball, ridge=0.1, n=30, d=12)
    X, _ = messy(30, 12, seed)
    whole = encoding.integers_sparse(problem, X).toarray()
    alone = [encoding.integers_sparse(problem, X[[i]]).toarray()[0] for i in range(30)]
    np.testing.assert_array_equal(whole, alone)


def test_small_blocks_of_entries_change_nothing(monkeypatch):
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=200, d=9)
    X, _ = messy(200, 9, seed=1)
    whole = encoding.integers_sparse(problem, X).toarray()
    for size in (1, 5, 64):
        monkeypatch.setattr(encoding, "_BLOCK", size)
        np.testing.assert_array_equal(encoding.integers_sparse(problem, X).toarray(), whole)


def test_accumulators_are_emptied_in_time():
    """All records as large as they may be: a double that takes all of them rounds, and must not."""
    n = 30_011
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=2, intercept=True)
    X, y = np.ones((n, 2)), np.where(np.arange(n) % 1000 == 0, 1, -1)
    points = Grid(problem).points(np.array([[30.0], [0.3], [0.1]]), 1.0)
    found, dense = (es.Rows(problem, features, y) for features in (sparse.csr_array(X), X))
    np.testing.assert_array_equal(found.sums(points), dense.sums(points))
    assert found.sums(points).max() > 2**53
    np.testing.assert_array_equal(found.total(methodcaller("moment")), dense.total(methodcaller("moment")))


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix, sparse.lil_array])
def test_every_format_will_do(make):
    problem = small_problem(n=30)
    X, y = records(problem)
    X[np.abs(X) < 0.5] = 0
    np.testing.assert_allclose(
        es.Rows(problem, make(X), y).gradient(np.ones(3)), es.Rows(problem, X, y).gradient(np.ones(3)), rtol=1e-12
    )


def test_duplicates_are_added_up_and_the_input_is_not_modified():
    """Three entries of 0.5 in one place are one of 1.5, which is projected; not three that fit."""
    data, indices, starts = np.array([0.5, 0.25, 0.5, 0.5, -0.5]), np.array([2, 0, 2, 2, 1]), np.array([0, 4, 5])
    X = sparse.csr_array((data.copy(), indices.copy(), starts.copy()), shape=(2, 3))
    found = es.Rows(small_problem(n=2), X, [1, -1])
    expected = es.Rows(small_problem(n=2), [[0.25, 0, 1], [0, -0.5, 0]], [1, -1])
    np.testing.assert_allclose(found.gradient(np.ones(3)), expected.gradient(np.ones(3)), rtol=1e-15)
    points = Grid(small_problem(n=2)).points(np.ones((3, 1)), 1.0)
    np.testing.assert_array_equal(found.sums(points), expected.sums(points))
    np.testing.assert_array_equal(X.data, data)
    np.testing.assert_array_equal(X.indices, indices)
    np.testing.assert_array_equal(X.indptr, starts)


def test_a_run_is_that_of_dense_records():
    problem = small_problem(n=300, d=5)
    X, y = records(problem)
    X[np.abs(X) < 0.7] = 0
    for options in ({}, {"batch": 20}):
        plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=5, **options)
        paths = [es.run(plan, es.Rows(problem, Z, y), seed=3).path for Z in (sparse.csr_array(X), X)]
        np.testing.assert_allclose(*paths, rtol=1e-9, atol=1e-12)


def broken():
    matrix = sparse.csr_array(np.eye(4, 2))
    matrix.indices[0] = 7
    return matrix


@pytest.mark.parametrize(
    ("X", "options", "error", "message"),
    [
        (sparse.csr_array((3, 2)), {}, ValueError, r"= \(4, 2\), got \(3, 2\)"),
        (sparse.coo_array(np.ones((4, 1))), {}, ValueError, r"= \(4, 2\), got \(4, 1\)"),
        (sparse.csr_array((4, 2), dtype=complex), {}, TypeError, "X must be numeric, got dtype complex128"),
        (
            sparse.csr_array((4, 2)),
            {"engine": "fast"},
            ValueError,
            "computed with SciPy, not 'fast'. Use engine='auto'",
        ),
        (broken(), {}, ValueError, "X is not a sound sparse matrix: "),
    ],
)
def test_structure_raises(X, options, error, message):
    with pytest.raises(error, match=message):
        es.Rows(small_problem(n=4, d=2), X, np.ones(4), **options)


def test_validate_and_check_count_stored_entries():
    problem = small_problem(n=3, d=4)
    X = sparse.csr_array(np.array([[0, 2, 0, np.nan], [0, 0, 0, 1], [np.inf, 0, 0, 0]]))
    found = es.check(problem, X, [1, 1, 5])
    assert (found.rows_outside, found.not_a_number, found.infinite, found.targets_outside) == (2, 1, 1, 1)
    with pytest.raises(ValueError, match="2 rows outside the domain"):
        es.Rows(problem, X, [1, 1, 5], validate=True)


def test_a_large_hessian_is_refused():
    rows = es.Rows(small_problem(n=2, d=20_001), sparse.csr_array((2, 20_001)), [1, -1])
    with pytest.raises(ValueError, match="20001 features is a dense matrix of 20001 x 20001 numbers"):
        rows.hessian(np.zeros(20_001))


def test_sums_in_large_pieces_are_the_same(monkeypatch):
    """Large sums are taken one part after the other."""
    monkeypatch.setattr("epsteps.data.sparse._LARGE_SUM", 0)
    problem = small_problem(n=500)
    X, y = messy(500, 3, seed=2)
    engine = SparseEngine(problem, X, problem.loss.encode(y))
    points = Grid(problem).points(np.ones((3, 2)), 1.0)
    np.testing.assert_array_equal(engine.sums(points), es.Rows(problem, X.toarray(), y).sums(points))


MEASURED = """
from pathlib import Path
import numpy as np
import epsteps as es
from scipy import sparse

rng = np.random.default_rng(0)
places = rng.integers(0, 20_000, 2_000_000), rng.integers(0, 100_000, 2_000_000)
X = sparse.coo_array((rng.random(2_000_000), places), shape=(20_000, 100_000)).tocsr()
y = np.where(np.arange(20_000) % 3 == 0, 1, -1)
problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=20_000, d=100_000, intercept=True)
peak = lambda: int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
before = peak()
data = es.Rows(problem, X, y)
es.run(es.plan(problem, es.Pure(1.0), es.nesterov, iterations=2), data, anyway=True)
data.gradient(np.ones(100_001)), data.value(np.ones(100_001)), es.check(problem, X, y)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak that Linux counts")
def test_many_features_take_little_memory():
    """20000 x 100000 numbers would take 16 GB; those stored take 24 MB."""
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200
