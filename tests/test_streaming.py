"""Records in files: the same sums as in memory however they are cut, little memory, and structure that raises early."""

import gc
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from combinations import covered
from conftest import ENGINES, records, small_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import runs

import epsteps as es
from epsteps.data import sources as records_from
from epsteps.data import stream
from epsteps.data.chunks import Chunk
from epsteps.data.dense import DenseEngine
from epsteps.data.sources import read_table
from epsteps.methods import choice
from epsteps.methods.bought import SmoothnessPlan
from epsteps.problem.grid import ROWS_PER_INT64, Grid

LOSSES = [es.Logistic(), es.Squared(bound=1.5)]
BALLS = [es.Ball(0.7, norm=np.inf), es.Ball(2.5, norm=2), es.Ball(1, norm=1)]
TEXT = es.Logistic(("no", "yes"))


def messy(problem, seed=0, kind=np.float64):
    """Return records of which many lie outside the domain or are no numbers at all."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((problem.n, problem.d)) * rng.choice([0.1, 1, 30], (problem.n, 1))).astype(kind)
    if np.dtype(kind).kind == "f":
        X[rng.random(X.shape) < 0.03] = np.nan
        X[rng.random(X.shape) < 0.02] = np.inf
    y = rng.choice([-1.0, 1.0, 3.0], problem.n)
    return X, y


def write_table(path, X, y, groups=7, names=None, **columns):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = names or [f"x{j}" for j in range(X.shape[1])]
    table = pa.table({"label": y} | dict(zip(names, X.T, strict=True)) | columns)
    pq.write_table(table, path, row_group_size=groups)
    return path


@pytest.fixture
def cut(monkeypatch):
    """Make everything that comes from a file stream, in blocks of so many numbers."""

    def cut(block):
        monkeypatch.setattr(records_from, "KEPT", 0)
        monkeypatch.setattr(stream, "BLOCK", block)

    return cut


def sources(folder, X, y):
    """Return the same records as memory map, .npy files, one Parquet file and a folder of them."""
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    yield np.load(folder / "X.npy", mmap_mode="r"), y
    yield folder / "X.npy", str(folder / "y.npy")
    np.save(folder / "F.npy", np.asfortranarray(X))
    yield str(folder / "F.npy"), np.load(folder / "y.npy", mmap_mode="r")
    yield write_table(folder / "one.parquet", X, y), "label"
    (folder / "many").mkdir()
    third = len(X) // 3
    write_table(folder / "many" / "a.parquet", X[:third], y[:third])
    write_table(folder / "many" / "b.parquet", X[:0], y[:0])
    write_table(folder / "many" / "c.parquet", X[third:], y[third:], groups=1000)
    yield folder / "many", "label"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("block", [1, 50, 10**6])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16])
def test_every_source_gives_the_integers_and_means_of_memory(tmp_path, cut, engine, block, kind):
    cut(block)
    loss, ball = LOSSES[block % 2], BALLS[block % 3]
    problem = es.Problem(loss, ball, ridge=0.1, n=101, d=4, intercept=kind == np.float32)
    X, y = messy(problem, seed=block, kind=kind)
    memory = es.Rows(problem, X, y, engine=engine)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((problem.dimension, 3))
    points, subset = Grid(problem).points(x, 1.0), rng.permutation(101)[:40]
    error = 1e-6 if kind == np.float32 and engine == "fast" else 1e-12  # the kernels keep float32 records in float32
    for features, targets in sources(tmp_path, X, y):
        found = es.Rows(problem, features, targets, engine=engine)
        np.testing.assert_array_equal(found.sums(points), memory.sums(points))
        np.testing.assert_array_equal(found.sums(points, subset), memory.sums(points, subset))
        np.testing.assert_array_equal(found.total(methodcaller("moment")), memory.total(methodcaller("moment")))
        np.testing.assert_allclose(found.gradient(x), memory.gradient(x), rtol=1e-12, atol=error)
        np.testing.assert_allclose(found.gradient(x[:, 0], subset), memory.gradient(x[:, 0], subset), atol=error)
        np.testing.assert_allclose(found.value(x), memory.value(x), rtol=error)
        np.testing.assert_allclose(found.second_moment(), memory.second_moment(), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.hessian(x[:, 0]), memory.hessian(x[:, 0]), rtol=error, atol=error)
        for ours, theirs in zip(zip(*found.blocks(), strict=True), zip(*memory.blocks(), strict=True), strict=True):
            np.testing.assert_array_equal(np.concatenate(ours), np.concatenate(theirs))
        assert es.check(problem, features, targets) == es.check(problem, X, y)
        assert repr(found) == repr(memory)


class Pieces:
    """Records in memory that are read in pieces of given sizes."""

    def __init__(self, X, y, edges):
        self.shape, self._X, self._y, self._edges = X.shape, X, y, edges

    def blocks(self, size, rows=None):
        del size
        for start, stop in zip(self._edges[:-1], self._edges[1:], strict=True):
            here = np.arange(start, stop) if rows is None else rows[(rows >= start) & (rows < stop)]
            if len(here):
                yield lambda here=here: (self._X[here], self._y[here])


@settings(max_examples=30)
@given(st.sets(st.integers(1, 199)), st.integers(0, 100), st.sampled_from(BALLS), st.sampled_from(LOSSES))
def test_any_cut_gives_the_same_integers(edges, seed, ball, loss):
    problem = es.Problem(loss, ball, ridge=0.1, n=200, d=3)
    X, y = messy(problem, seed)
    points = Grid(problem).points(np.random.default_rng(seed).standard_normal((3, 2)), 1.0)
    whole = es.Rows(problem, X, y, engine="numpy")
    pieces = stream.StreamEngine(problem, Pieces(X, y, [0, *sorted(edges), 200]), DenseEngine)
    np.testing.assert_array_equal(pieces.sums(points), whole.sums(points))


def test_sums_of_many_records_do_not_overflow():
    """Blocks whose sums are near 2^62: added in 64 bits up to 2^22 records, by Python's integers above."""

    class Huge:
        shape = (3 * ROWS_PER_INT64, 1)

        def blocks(self, size, rows=None):
            for _ in range(6):
                yield lambda: (np.broadcast_to(0.0, (ROWS_PER_INT64 // 2, 1)), np.broadcast_to(0, ROWS_PER_INT64 // 2))

    class Part(DenseEngine):
        def sums(self, points, rows=None):
            return np.array([2**61, -(2**61)])

    found = stream.StreamEngine(small_problem(n=3 * ROWS_PER_INT64, d=1), Huge(), Part).sums(None)
    assert found.tolist() == [6 * 2**61, -6 * 2**61]


def test_a_run_from_files_is_that_from_memory(tmp_path, cut):
    cut(100)
    problem = small_problem(n=300, d=3)
    X, y = records(problem)
    for options in ({}, {"batch": 20}):
        plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=5, **options)
        expected = es.run(plan, es.Rows(problem, X, y), seed=3).path
        folder = tmp_path / str(len(options))
        folder.mkdir()
        for features, targets in sources(folder, X, y):
            found = es.run(plan, es.Rows(problem, features, targets), seed=3).path
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("clip", [None, 0.5])
def test_kept_records_are_the_integers_of_memory(tmp_path, cut, engine, clip):
    cut(60)
    problem = es.Problem(es.Squared(bound=1.5), es.Ball(2.5), ridge=0.1, n=301, d=4, intercept=True, clip=clip)
    X, y = messy(problem)
    memory = es.Rows(problem, X, y, engine=engine)
    rng, store = np.random.default_rng(0), tmp_path / "kept"
    store.mkdir()
    points, subset = Grid(problem).points(rng.standard_normal((5, 3)), 1.0), rng.integers(0, 301, 80)
    for features, targets in sources(tmp_path, X, y):
        found = es.Rows(problem, features, targets, engine=engine, cache=store)
        for part in (points, points.column(0)):
            np.testing.assert_array_equal(found.sums(part), memory.sums(part))
            np.testing.assert_array_equal(found.sums(part, subset), memory.sums(part, subset))
        np.testing.assert_array_equal(found.total(methodcaller("moment")), memory.total(methodcaller("moment")))
        for rows in (None, subset, subset[:0]):
            np.testing.assert_array_equal(found.total(Chunk.squares, rows), memory.total(Chunk.squares, rows))
        for ours, theirs in zip(zip(*found.blocks(), strict=True), zip(*memory.blocks(), strict=True), strict=True):
            np.testing.assert_array_equal(np.concatenate(ours), np.concatenate(theirs))
        np.testing.assert_allclose(found.gradient(np.ones(5)), memory.gradient(np.ones(5)), rtol=1e-12)


@pytest.mark.parametrize("method", [*choice.METHODS, "batch", "smoothness"])
def test_every_release_is_that_from_memory(tmp_path, cut, method):
    """Blocks are those of a few records, and the solver's samples are not all of them."""
    cut(4000)
    loss = es.Squared(bound=1.0) if method == "statistics" else es.Logistic()
    problem = es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.1, n=2**14 + 700, d=3)
    X, y = messy(problem)
    np.save(tmp_path / "X.npy", X)
    budget, options = covered(method, 1.0), {"iterations": 4} if method in ("descent", "batch") else {}
    if method == "smoothness":
        plan = SmoothnessPlan(problem, budget, 0.9)
    elif method == "batch":
        plan = es.plan(problem, budget, es.nesterov, batch=50, **options)
    else:
        plan = es.plan(problem, budget, method, **options)
    expected = es.run(plan, es.Rows(problem, X, y, engine="numpy"), seed=3, arithmetic="exact")
    for cache in (None, tmp_path):
        found = es.Rows(problem, tmp_path / "X.npy", y, cache=cache)
        runs.same(es.run(plan, found, seed=3, arithmetic="exact"), expected)


def open_files(folder):
    """Return the modes and numbers of links of this process's files in a folder, with a name or without."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    found = [link.stat() for link in links if os.readlink(link).startswith(f"{folder}{os.sep}")]
    return [(stat.S_IMODE(each.st_mode), each.st_nlink, each.st_size) for each in found]


@pytest.fixture
def kept(tmp_path, cut):
    """Return records of a file, with a folder for what is prepared of them."""
    cut(30)
    problem = small_problem(n=100)
    X, y = records(problem)
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "kept").mkdir()
    return es.Rows(problem, tmp_path / "X.npy", y, cache=tmp_path / "kept")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the list of open files that Linux has")
def test_the_file_of_kept_records_is_private_and_goes_with_them(kept, tmp_path):
    store, points = tmp_path / "kept", Grid(kept.problem).points(np.ones((3, 1)), 1.0)
    assert open_files(store) == []
    before = kept.sums(points)
    assert set(open_files(store)) == {(0o600, 0, 1200), (0o600, 0, 400)}  # no name at all: nobody can open them
    assert list(store.iterdir()) == []
    kept.close()
    gc.collect()
    assert open_files(store) == []
    np.testing.assert_array_equal(kept.sums(points), before)
    assert len(open_files(store)) > 0
    del kept._opened, kept._records
    gc.collect()
    assert open_files(store) == []


def test_later_passes_read_the_kept_records_alone(kept, tmp_path):
    points = Grid(kept.problem).points(np.ones((3, 1)), 1.0)
    before = kept.sums(points)
    (tmp_path / "X.npy").unlink()
    np.testing.assert_array_equal(kept.sums(points), before)
    kept.close()
    with pytest.raises(FileNotFoundError):
        kept.sums(points)


@pytest.mark.parametrize("method", ["descent", "objective"])
def test_too_little_disk_is_refused_before_the_charge(kept, tmp_path, monkeypatch, method):
    """The numbers that are named are public: those of the problem, and of the disk."""
    account, plan = runs.Account(), es.plan(kept.problem, es.Pure(5.0), method)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1599))
    with pytest.raises(OSError, match=r"take 1600 bytes in .*kept, which has 1599 free"):
        es.run(plan, kept, ledger=account, anyway=True)
    assert account.charges == []
    assert list((tmp_path / "kept").iterdir()) == []


def test_cache_is_a_folder_of_this_machine(kept, tmp_path):
    y = np.ones(100)
    with pytest.raises(NotADirectoryError, match=r"cache must be a folder that is there, got .*X\.npy"):
        es.Rows(kept.problem, tmp_path / "X.npy", y, cache=tmp_path / "X.npy")
    with pytest.raises(ValueError, match="cache is for records that this process reads"):
        es.Rows(kept.problem, tmp_path / "X.npy", y, engine="dask", cache=tmp_path)


def test_records_under_another_loss_are_kept_as_well(kept, tmp_path):
    problem = replace(kept.problem, clip=0.3)
    points = Grid(problem).points(np.ones((3, 1)), 1.0)
    expected = es.Rows(problem, np.load(tmp_path / "X.npy"), records(problem)[1]).sums(points)
    other = kept.restated(problem)
    np.testing.assert_array_equal(other.sums(points), expected)
    (tmp_path / "X.npy").unlink()
    np.testing.assert_array_equal(other.sums(points), expected)
    for again in (kept.restated(problem), kept.restated(replace(problem, ridge=0.7))):  # and are prepared once
        np.testing.assert_array_equal(again.sums(points), expected)
        assert again.restated(kept.problem).problem == kept.problem


def test_few_records_are_read_once(tmp_path):
    problem = small_problem(n=40)
    np.save(tmp_path / "X.npy", records(problem)[0])
    rows = es.Rows(problem, tmp_path / "X.npy", records(problem)[1])
    before = rows.gradient(np.ones(3))
    (tmp_path / "X.npy").unlink()
    np.testing.assert_array_equal(rows.gradient(np.ones(3)), before)


def test_views_of_a_map_are_what_they_show(tmp_path, cut):
    cut(7)
    X, y = records(small_problem(n=50, d=4))
    np.save(tmp_path / "X.npy", X)
    view = np.load(tmp_path / "X.npy", mmap_mode="r")[10:40:2, 1:]
    problem = small_problem(n=15)
    rows, memory = (es.Rows(problem, part, y[10:40:2]) for part in (view, X[10:40:2, 1:]))
    np.testing.assert_allclose(rows.gradient(np.ones(3)), memory.gradient(np.ones(3)), rtol=1e-12)
    np.testing.assert_array_equal(view, X[10:40:2, 1:])


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_changes_of_a_map_are_kept(tmp_path, cut, mode):
    cut(7)
    problem = small_problem(n=50)
    X, y = records(problem)
    np.save(tmp_path / "X.npy", X)
    mine = np.load(tmp_path / "X.npy", mmap_mode=mode)
    mine[:] = 0.5
    rows = es.Rows(problem, mine, y)
    for _ in range(2):
        expected = es.Rows(problem, np.full_like(X, 0.5), y).gradient(np.ones(3))
        np.testing.assert_allclose(rows.gradient(np.ones(3)), expected, rtol=1e-12)


def test_missing_values_and_odd_types_in_parquet(tmp_path, cut):
    """Nulls, booleans, integers beyond 2^53, decimals and dictionaries are numbers; nothing in them raises."""
    pa = pytest.importorskip("pyarrow")
    cut(4)
    columns = {
        "a": pa.array([None, 1.5, -0.5, 0.25], pa.float32()),
        "b": pa.array([True, None, False, True]),
        "c": pa.array([2**62 + 1, None, -3, 0], pa.int64()),
        "d": pa.array([1, None, 0, 1], pa.int8()).dictionary_encode(),
        "e": pa.array([None] * 4),
        "f": pa.array([0.5, None, 1, 2]).cast(pa.decimal128(9, 3)),
    }
    table = pa.table(columns | {"label": pa.array(["yes", None, "no", "perhaps" * 10**6]).dictionary_encode()})
    pa.parquet.write_table(table, tmp_path / "odd.parquet")
    problem = es.Problem(TEXT, es.Ball(1, norm=np.inf), ridge=0.1, n=4, d=6)
    X = [[0, 1, 1, 1, 0, 0.5], [1, 0, 0, 0, 0, 0], [-0.5, 0, -1, 0, 0, 1], [0.25, 1, 0, 1, 0, 1]]
    expected = es.Rows(problem, X, np.array(["yes", "no", "no", "no"]))
    found = es.Rows(problem, tmp_path / "odd.parquet", "label")
    np.testing.assert_allclose(found.gradient(np.ones(6)), expected.gradient(np.ones(6)), rtol=1e-12)
    counts = es.check(problem, tmp_path / "odd.parquet", "label")
    assert (counts.rows_outside, counts.not_a_number, counts.targets_outside) == (4, 9, 2)
    with pytest.raises(ValueError, match="4 rows outside the domain"):
        es.Rows(problem, tmp_path / "odd.parquet", "label", validate=True)
    two = es.Problem(TEXT, es.Ball(1, norm=np.inf), ridge=0.1, n=4, d=2)
    chosen = es.Rows(two, tmp_path / "odd.parquet", "label", columns=["d", "a"])
    swapped = es.Rows(two, np.array(X)[:, [3, 0]], np.array(["yes", "no", "no", "no"]))
    np.testing.assert_allclose(chosen.gradient(np.ones(2)), swapped.gradient(np.ones(2)), rtol=1e-12)


def test_labels_that_are_no_text_are_the_first_class(tmp_path):
    pa = pytest.importorskip("pyarrow")
    broken = pa.array([b"yes", b"\xff\xfe", b"no"], pa.binary()).view(pa.string())
    pa.parquet.write_table(pa.table({"x": [0.1, 0.2, 0.3], "label": broken}), tmp_path / "t.parquet")
    problem = es.Problem(TEXT, es.Ball(1), ridge=0.1, n=3, d=1)
    expected = es.Rows(problem, [[0.1], [0.2], [0.3]], np.array(["yes", "no", "no"]))
    found = es.Rows(problem, tmp_path / "t.parquet", "label")
    np.testing.assert_array_equal(found.gradient(np.ones(1)), expected.gradient(np.ones(1)))


def test_only_row_groups_with_wanted_rows_are_read(tmp_path, cut, monkeypatch):
    cut(10**6)
    problem = small_problem(n=100)
    X, y = records(problem)
    rows = es.Rows(problem, write_table(tmp_path / "t.parquet", X, y, groups=10), "label")
    read = []
    batches = rows._records._reader._batches
    monkeypatch.setattr(
        rows._records._reader, "_batches", lambda file, size, groups: read.append(groups) or batches(file, size, groups)
    )
    rows.gradient(np.ones(3), np.array([99, 3, 41, 42, 3]))
    assert read == [[0, 4, 9]]


def damaged(folder):
    """Return a name for each thing that can be wrong with a file, what to open, the error and its text."""
    X, y = records(small_problem(n=20))
    np.save(folder / "good.npy", X)
    whole = (folder / "good.npy").read_bytes()
    table = write_table(folder / "good.parquet", X, y, name=["a"] * 20)
    (folder / "cut.npy").write_bytes(whole[:-8])
    (folder / "text.npy").write_text("x,y\n1,2\n")
    (folder / "empty.npy").write_bytes(b"")
    (folder / "cut.parquet").write_bytes(table.read_bytes()[:-20])
    (folder / "text.parquet").write_text("x,y\n1,2\n")
    (folder / "records.csv").write_text("x,y\n1,2\n")
    np.savez(folder / "archive.npz", X=X)
    (folder / "archive.npy").write_bytes((folder / "archive.npz").read_bytes())
    np.save(folder / "objects.npy", np.array([[None] * 3] * 20), allow_pickle=True)
    np.save(folder / "words.npy", X.astype(str))
    (folder / "none").mkdir()
    three = ["x0", "x1", "x2"]
    return [
        ("missing.npy", y, {}, FileNotFoundError, "there is no file .*missing.npy"),
        ("missing.parquet", "label", {}, FileNotFoundError, "there is no file .*missing.parquet"),
        ("none", "label", {}, FileNotFoundError, "there is no .parquet file in"),
        ("cut.npy", y, {}, ValueError, "cut.npy is not a whole file of NumPy's"),
        ("text.npy", y, {}, ValueError, "text.npy is not a whole file of NumPy's"),
        ("empty.npy", y, {}, ValueError, "empty.npy is not a whole file of NumPy's"),
        ("archive.npy", y, {}, ValueError, "archive.npy is not a .npy file but an archive"),
        ("objects.npy", y, {}, ValueError, "objects.npy is not a whole file of NumPy's"),
        ("words.npy", y, {}, TypeError, "X must be numeric"),
        ("records.csv", y, {}, ValueError, "records come from .npy or .parquet files"),
        ("good.npy", y[:5], {}, ValueError, "y must have the problem's shape"),
        ("good.npy", y.astype(str), {}, TypeError, "y must be numeric"),
        ("good.npy", y, {"columns": three}, ValueError, "columns are for Parquet files"),
        ("cut.parquet", "label", {}, ValueError, "cut.parquet is not a whole Parquet file"),
        ("text.parquet", "label", {}, ValueError, "text.parquet is not a whole Parquet file"),
        ("good.parquet", "target", {}, ValueError, "no column 'target'; it has label, x0, x1, x2, name"),
        ("good.parquet", "label", {}, TypeError, "column 'name' of .*good.parquet must be numeric, got string"),
        ("good.parquet", "label", {"columns": ["x0", "z"]}, ValueError, "no column 'z'; it has"),
        ("good.parquet", "label", {"columns": ["x0", "label"]}, ValueError, "without the target 'label'"),
        ("good.parquet", "label", {"columns": ["x0", "x1"]}, ValueError, r"= \(20, 3\), got \(20, 2\)"),
        ("good.parquet", "name", {"columns": three}, TypeError, "y must be numeric"),
        ("good.parquet", y, {"columns": three}, TypeError, "y must name the target column"),
    ]


def test_structure_raises_in_one_line_before_anything_is_charged(tmp_path):
    problem = small_problem(n=20)
    for name, y, options, error, message in damaged(tmp_path):
        for call in (es.Rows, es.check):
            with pytest.raises(error, match=message) as caught:
                call(problem, tmp_path / name, y, **options)
            assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"= \(21, 3\), got \(20, 3\)"):
        es.Rows(small_problem(n=21), tmp_path / "good.npy", np.ones(21))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("method", ["descent", "curvature", "objective"])
def test_a_file_that_is_damaged_in_its_middle_is_refused_before_the_charge(cut, tmp_path, method, cached):
    problem = small_problem(n=400, ridge=0.1)
    path, account = write_table(tmp_path / "t.parquet", *records(problem), groups=50), runs.Account()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 900] = bytes(900)
    path.write_bytes(content)
    cut(30)
    plan = es.plan(problem, es.Pure(5.0), method)
    (tmp_path / "kept").mkdir()
    rows = es.Rows(problem, path, "label", cache=tmp_path / "kept" if cached else None)
    with pytest.raises(OSError, match=r"cannot read .*t\.parquet"):
        es.run(plan, rows, ledger=account, anyway=True)
    assert account.charges == []
    assert list((tmp_path / "kept").iterdir()) == []


def test_pyarrow_is_asked_for_by_name(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "t.parquet").touch()
    with pytest.raises(
        es.MissingExtraError, match=r"needs pyarrow, which is not installed: pip install 'epsteps\[parq"
    ):
        es.Rows(small_problem(n=20), tmp_path / "t.parquet", "label")


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_file_that_changed_is_not_read(tmp_path, cut, kind):
    cut(30)
    problem = small_problem(n=50)
    X, y = records(problem)
    path = tmp_path / f"X.{kind}"
    if kind == "npy":
        np.save(path, X)
        rows = es.Rows(problem, path, y)
    else:
        rows = es.Rows(problem, write_table(path, X, y), "label")
    rows.gradient(np.ones(3))
    os.utime(path, ns=(1, 1))
    with pytest.raises(OSError, match="has changed since it was opened: make new Rows of it"):
        rows.gradient(np.ones(3))


def test_pages_that_cannot_be_decoded_give_one_line(tmp_path, cut):
    cut(30)
    problem = small_problem(n=5000)
    X, y = records(problem)
    path = write_table(tmp_path / "t.parquet", X, y, groups=5000)
    raw = bytearray(path.read_bytes())
    raw[4:400] = b"\xff" * 396
    path.write_bytes(raw)
    with pytest.raises(OSError, match=r"cannot read .*t\.parquet: ") as caught:
        es.Rows(problem, path, "label").gradient(np.ones(3))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_damaged_tables_are_named(tmp_path, ending):
    X, y = records(small_problem(n=20))
    path = tmp_path / f"t.{ending}"
    if ending == "npz":
        np.savez(path, X=X, y=y)
    else:
        write_table(path, X, y)
    assert read_table(path)[0].shape == (20, 3)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=rf"t\.{ending} is not a whole "):
        read_table(path)


MEASURED = """
import sys
from pathlib import Path
import numpy as np
import epsteps as es
from epsteps.problem.grid import Grid

n, X, y, few_X, few_y = int(sys.argv[1]), *sys.argv[2:6]
problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=n, d=10)
small = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=200, d=10)
few = es.Rows(small, few_X, few_y)  # what the first file of a kind imports is no part of what records take
points = Grid(problem).points(np.ones((10, 1)), 1.0)
few.sums(points), few.gradient(np.ones(10))
peak = lambda: int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
before = peak()
for cache in [None, *sys.argv[6:]]:
    data = es.Rows(problem, X, y, engine="numpy", cache=cache)
    data.sums(points), data.gradient(np.ones(10)), data.sums(points, np.arange(0, n, 50))
print(peak() - before)
"""


def written(folder, kind, X, y):
    """Write records to a folder, and return what names their features and their labels."""
    folder.mkdir()
    if kind == "parquet":
        return [write_table(folder / "X.parquet", X, y, groups=len(y)), "label"]
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return [folder / "X.npy", folder / "y.npy"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak that Linux counts")
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_the_working_set_is_bounded(tmp_path, kind):
    """200 MB of records in a process of their own: the peak, mapped pages included, rises by less than 128 MB."""
    n = 2_500_000
    X = np.tile(np.linspace(-1, 1, 10_000).reshape(1000, 10), (n // 1000, 1))
    y = np.ones(n, dtype=np.int8)
    paths = written(tmp_path / "all", kind, X, y) + written(tmp_path / "few", kind, X[:200], y[:200])
    del X
    caches = [tmp_path] if kind == "npy" else []
    command = [sys.executable, "-c", MEASURED, str(n), *paths, *caches]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 128
