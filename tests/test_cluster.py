"""The dask engine: the same integers however records are divided and whichever worker dies; only sums come back."""

import copy
import gc
import os
import pickle
import signal
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import methodcaller

import numpy as np
import pytest
from conftest import records, small_problem

import epsteps as es
from epsteps.data import chunks, cluster, engine
from epsteps.data.cluster import parts as cluster_parts
from epsteps.data.cluster import workers
from epsteps.data.cluster.workers import Question, Runs
from epsteps.data.dense import DenseEngine
from epsteps.data.engine import SelfTestError
from epsteps.methods.bought import SmoothnessPlan
from epsteps.methods.minimum import Minimised
from epsteps.problem import grid
from epsteps.problem.grid import Grid
from epsteps.problem.losses import Softmax
from epsteps.problem.weighting import Weighting
from epsteps.running import passes, taps
from epsteps.running.run import Reader

distributed = pytest.importorskip("distributed", reason="the dask engine needs distributed")
da = pytest.importorskip("dask.array", reason="the dask engine needs dask")

ARRAY = da.zeros((8, 2), chunks=(4, 2))


@pytest.fixture(scope="module")
def client():
    before = set(os.environ)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as workers, distributed.Client(workers, set_as_default=False) as client:
        yield client
    for name in set(os.environ) - before:  # dask leaves its limits of threads behind
        del os.environ[name]


def problem_of(loss, n=1003, d=4):
    return es.Problem(loss, es.Ball(0.8, norm=2), ridge=0.1, n=n, d=d, intercept=True)


def whole(problem, X, y):
    """Return the reference engine over all records in this process."""
    return DenseEngine(problem, X, problem.loss.encode(y))


def points_of(problem, columns=3):
    x = np.random.default_rng(1).standard_normal((problem.dimension, columns))
    return x, Grid(problem).points(x, problem.slope_at(x))


def every_partition_by_itself(owners, counts, threads):
    """Keep partitions apart, as if each were in a thread of its own."""
    return [cluster_parts.Thread(worker, [i], counts[i]) for i, worker in owners.items()]


@pytest.mark.parametrize(
    "loss", [es.Logistic(), es.Squared(bound=1.5), Softmax((-1, 0, 1))], ids=["logistic", "squared", "softmax"]
)
@pytest.mark.parametrize(
    ("chunks", "engine"),
    [((500, 503), "numpy"), ((1003,), "auto"), ((1, 2, 900, 0, 100), "numpy"), ((103, *(100,) * 9), "numpy")],
    ids=["two", "one", "uneven", "many"],
)
def test_results_are_those_of_one_process_however_records_are_divided(client, monkeypatch, loss, chunks, engine):
    if len(chunks) > 5:  # a tree of three levels
        monkeypatch.setattr(cluster_parts, "FAN", 3)
        monkeypatch.setattr(cluster_parts, "shared", every_partition_by_itself)
    problem = problem_of(loss)
    X, y = records(problem)
    X[::50, 0], X[1::50, 1] = np.nan, 1e9
    expected = whole(problem, X, y)
    found = cluster.open_records(problem, da.from_array(X, chunks=(chunks, 2)), y, scheduler=client, engine=engine)
    x, points = points_of(problem)
    subset = np.random.default_rng(2).permutation(problem.n)[:300]
    np.testing.assert_array_equal(found.engine().sums(points), expected.sums(points))
    np.testing.assert_array_equal(found.engine().sums(points, subset), expected.sums(points, subset))
    np.testing.assert_array_equal(found.engine().sums(points, subset[:1]), expected.sums(points, subset[:1]))
    np.testing.assert_array_equal(found.engine().total(methodcaller("moment")), expected.total(methodcaller("moment")))
    assert found.engine().sums(points).dtype == np.int64
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(found.engine().mean_gradient(x), expected.mean_gradient(x), **close)
    np.testing.assert_allclose(
        found.engine().mean_gradient(x[:, 0], subset), expected.mean_gradient(x[:, 0], subset), **close
    )
    np.testing.assert_allclose(found.engine().mean_loss(x), expected.mean_loss(x), **close)
    np.testing.assert_allclose(found.engine().hessian(x[:, 0]), expected.hessian(x[:, 0]), **close)
    with pytest.raises(ValueError, match="records in dask workers are not brought here"):
        found.engine().blocks()
    found.close()
    with pytest.raises(RuntimeError, match=r"these records are closed\. Open them again"):
        found.engine().sums(points)


def test_a_subset_keeps_its_order_and_repetitions(client):
    problem = small_problem(n=10, d=2)
    X, y = records(problem)
    found = cluster.open_records(problem, da.from_array(X, chunks=(4, 2)), da.from_array(y, chunks=3), scheduler=client)
    parts = found.engine()._integers
    for rows, expected in (
        ([9, 1, 5, 1, 4, 8], [[1, 1], [1, 0], [1, 0]]),
        ([1, 1, 4, 5, 8, 9], [[1, 1], [0, 1], [0, 1]]),
        ([5], [[], [1], []]),
    ):
        assert [part.tolist() for part in parts._by_partition(np.array(rows))] == expected
        pieces = parts._pieces(parts._by_partition(np.array(rows)))
        assert sum(piece.count for piece in pieces) == len(rows)
    _, points = points_of(problem)
    assert not found.engine().sums(points, np.array([], dtype=int)).any()
    for wrong in ([10], [-1]):
        with pytest.raises(IndexError, match="rows must be between 0 and 9"):
            found.engine().sums(points, np.array(wrong))


def test_many_points_are_sent_once_and_without_warnings(client):
    problem = small_problem(n=20, d=30)
    X, y = records(problem)
    found = cluster.open_records(problem, da.from_array(X, chunks=(10, -1)), y, scheduler=client)
    x, points = points_of(problem, columns=45_000)
    assert x.nbytes > 10_000_000  # where dask begins to warn
    np.testing.assert_array_equal(found.engine().sums(points), whole(problem, X, y).sums(points))


def write_parquet(path, X, y, **options):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {f"x{j}": pyarrow.array(column, from_pandas=True) for j, column in enumerate(X.T)}
    parquet.write_table(pyarrow.table({"label": y} | table), path, **options)


def test_workers_read_parquet_by_themselves(client, tmp_path):
    problem = es.Problem(es.Logistic(("no", "yes")), es.Ball(1, norm=np.inf), ridge=0.1, n=1000, d=3)
    X, y = records(problem)
    X[::70, 1] = np.nan  # a null in the file
    y = np.where(y > 0, "yes", "no")
    write_parquet(tmp_path / "a.parquet", X[:600], y[:600], row_group_size=90)
    write_parquet(tmp_path / "b.parquet", X[600:], [None if i == 0 else v for i, v in enumerate(y[600:])])
    y[600] = "no"
    (tmp_path / "_SUCCESS").touch()
    x, points = points_of(problem)
    expected = whole(problem, X, y)
    found = cluster.open_records(problem, tmp_path, "label", scheduler=client)
    np.testing.assert_array_equal(found.engine().sums(points), expected.sums(points))
    np.testing.assert_allclose(found.engine().mean_gradient(x), expected.mean_gradient(x), rtol=1e-12)
    swapped = cluster.open_records(problem, tmp_path, "label", scheduler=client, columns=["x2", "x1", "x0"])
    reverse = whole(problem, X[:, ::-1], y)
    np.testing.assert_array_equal(swapped.engine().sums(points), reverse.sums(points))


def test_whole_numbers_flags_and_nulls_in_parquet_are_numbers(client, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"a": [1, None, 2**60 + 1], "b": [True, None, False], "y": pyarrow.array([1, None, -1], pyarrow.int8())}
    parquet.write_table(pyarrow.table(table), tmp_path / "t.parquet")
    problem = small_problem(n=3, d=2)
    _, points = points_of(problem)
    expected = whole(problem, np.array([[1, 1], [0, 0], [1, 0]]), np.array([1, 0, -1])).sums(points)
    found = cluster.open_records(problem, str(tmp_path / "t.parquet"), "y", scheduler=client)
    np.testing.assert_array_equal(found.engine().sums(points), expected)


def test_frames(client):
    frames, pandas = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    problem = small_problem(n=300, d=2)
    X, y = records(problem)
    table = pandas.DataFrame({"id": np.arange(300).astype(str), "a": X[:, 0], "y": y, "b": X[:, 1].astype(np.float32)})
    table["y"] = table["y"].astype("Int64")
    frame = frames.from_pandas(table, npartitions=3, sort=False)
    X[:, 1] = X[:, 1].astype(np.float32)
    _, points = points_of(problem)
    found = cluster.open_records(problem, frame, "y", scheduler=client, columns=["a", "b"])
    np.testing.assert_array_equal(found.engine().sums(points), whole(problem, X, y).sums(points))
    for columns, error, message in (
        (None, ValueError, "d = 2 feature columns, got 3"),
        (["a", "id"], ValueError, "column 'id' must be numeric"),
        (["a", "y"], ValueError, "columns must be different ones, and none of them the target 'y'"),
        (["a", "c"], ValueError, "X has no column 'c'; it has id, a, y, b"),
    ):
        with pytest.raises(error, match=message):
            cluster.open_records(problem, frame, "y", scheduler=client, columns=columns)
    with pytest.raises(ValueError, match=r"n = 200 rows, got 300"):
        cluster.open_records(small_problem(n=200, d=2), frame, "y", scheduler=client, columns=["a", "b"])
    with pytest.raises(TypeError, match="y must be the name of the target's column, got Series"):
        cluster.open_records(problem, frame, frame["y"], scheduler=client)


# Partitions of odd sizes, of which each worker keeps several.
SIZES = (1, 7001, 2, 4099, 8900, 8)
LOSSES = {
    "logistic": es.Logistic(),
    "pseudo-Huber": es.PseudoHuber(bound=1.5),
    "sharp pseudo-Huber": es.PseudoHuber(bound=1.5, power=8),
    "capped": es.CappedLogistic(cap=0.3),
    "hinge": es.SmoothedHinge(),
    "softmax": Softmax((-1, 0, 1)),
    "squared": es.Squared(bound=1.5),
}
# Every kind of release, and the losses that have it.
RELEASES = {
    "steps": (partial(es.plan, method=es.nesterov, iterations=5), set(LOSSES)),
    "batches": (partial(es.plan, method=es.gd, iterations=5, batch=500), set(LOSSES)),
    "curvature": (partial(es.plan, method="curvature"), {"logistic", "squared"}),
    "objective": (partial(es.plan, method="objective"), set(LOSSES)),
    "sequential": (partial(es.plan, method="sequential"), set(LOSSES)),
    "output": (partial(es.plan, method="output"), set(LOSSES) - {"squared"}),
    "statistics": (partial(es.plan, method="statistics"), {"squared"}),
    "smoothness": (partial(SmoothnessPlan, confidence=0.999), set(LOSSES)),
}
OPTIONS = {"seed": 3, "arithmetic": "exact"}


def both(client, loss):
    """Return the same records in this process and, in odd partitions, in workers."""
    problem = problem_of(loss, n=sum(SIZES))
    X, y = records(problem)
    X[::50, 0], X[1::50, 1] = np.nan, 1e9
    there = es.Rows(problem, da.from_array(X, chunks=(SIZES, 2)), y, engine="dask", scheduler=client)
    return es.Rows(problem, X, y, engine="numpy"), there


def assert_same_release(found, expected):
    np.testing.assert_array_equal(found.path, expected.path)
    assert found.extras.keys() == expected.extras.keys()
    for name, published in expected.extras.items():
        np.testing.assert_array_equal(found.extras[name], published)


def test_weights_of_records_are_those_of_one_process(client):
    """Gradients to the last bit: workers measure their own records."""
    here, there = both(client, es.Logistic())
    x = np.linspace(-2.0, 1.0, here.problem.dimension)
    for norm in (1, 2):
        objective = Minimised(here.problem, 0.5, Weighting(norm, 0.4, 0.7))
        found, expected = (passes.certified_gradient(rows, objective, x, 0 * x, passes.FINE) for rows in (there, here))
        np.testing.assert_array_equal(found.gradient, expected.gradient)
    there.close()


class Listener:
    """Counts what is drawn and read, and keeps the noise."""

    def __init__(self):
        self.draws, self.readings, self.noise = 0, 0, []

    def source(self, source):
        heard = copy.copy(source)
        for name in ("integers", "shaped", "subset"):
            setattr(heard, name, partial(self._drawn, getattr(source, name)))
        heard.at_step = lambda t: self.source(source.at_step(t))
        return heard

    def _drawn(self, draw, *args):
        self.draws += 1
        return draw(*args)

    def reading(self, request, records, draw):
        self.readings += 1
        self.noise += [value for name, value in draw.items() if name != "subsets"]
        return request.read(records, draw)


def told(sent, secrets):
    """Return which of many numbers are among bytes, as floats or, if whole, as integers; small ones are anywhere."""
    found = []
    for value in np.concatenate([np.ravel(secret) for secret in secrets]).tolist():
        whole = value == int(value)
        kinds = (np.float64, np.longdouble, np.int64) if whole else (np.float64, np.longdouble)
        if not whole or 2**24 < abs(value) < 2**63:
            found += [value for kind in kinds if kind(value).tobytes()[:10] in sent]  # a long double has ten bytes
    return found


@pytest.mark.parametrize("loss", LOSSES)
def test_every_release_is_that_of_one_process_and_noise_stays_here(client, monkeypatch, loss):
    here, there = both(client, LOSSES[loss])
    listener, pickled, minimum = Listener(), cluster_parts._pickled, Reader.minimum
    sent, tilts = [], [np.zeros(0)]
    monkeypatch.setattr(cluster_parts, "_pickled", lambda question: sent.append(pickled(question)) or sent[-1])
    monkeypatch.setattr(Reader, "minimum", lambda self, goal, tilt: tilts.append(tilt) or minimum(self, goal, tilt))
    for planned, losses in RELEASES.values():
        if loss in losses:
            plan = planned(here.problem, budget=es.Pure(1.0))
            with taps.listening(listener):
                found = es.run(plan, there, **OPTIONS, anyway=True)
            assert_same_release(found, es.run(plan, here, **OPTIONS, anyway=True))
    there.close()
    assert len(sent) > 10
    assert len(listener.noise) >= listener.readings > 10
    assert told(b"".join(sent), listener.noise) == []
    assert told(b"".join(sent), tilts) == []
    assert told(pickle.dumps(listener.noise[0]), listener.noise)  # it would be seen


def dying(folder, moment, part, question, rows):
    """Answer in a worker; the call with this number, among those of all workers, ends the process instead."""
    found = workers.answer(part, question, rows)
    with open(f"{folder}/calls", "ab", buffering=0) as calls:
        calls.write(b".")
        if calls.tell() == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    return found


@pytest.mark.parametrize(
    "release",
    [name if name == "objective" else pytest.param(name, marks=pytest.mark.slow) for name in RELEASES],
)
def test_a_worker_that_dies_in_the_middle_of_a_release_loses_nothing(client, monkeypatch, tmp_path, release):
    """It has read, computed and not answered: same numbers, one charge, and no draw more than without its death."""
    planned, losses = RELEASES[release]
    here, there = both(client, LOSSES["logistic" if "logistic" in losses else "squared"])
    plan, ledger = planned(here.problem, budget=es.Pure(1.0)), es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", es.Pure(3.0))
    expected, listeners, calls = es.run(plan, here, **OPTIONS, anyway=True), [], 0
    processes = set(client.run(os.getpid).values())
    for attempt, moment in enumerate(("never", "middle"), start=1):
        folder = tmp_path / moment
        folder.mkdir()
        middle = calls // 2 + 1 if moment == "middle" else -1
        monkeypatch.setattr(cluster_parts, "answer", partial(dying, str(folder), middle))
        listeners.append(Listener())
        with taps.listening(listeners[-1]):
            assert_same_release(es.run(plan, there, **OPTIONS, ledger=ledger.account("people"), anyway=True), expected)
        assert len(ledger.history("people")) == attempt
        calls, before = (folder / "calls").stat().st_size, calls
    assert calls > before  # what was lost was asked again
    assert listeners[0].draws == listeners[1].draws > 0
    assert listeners[0].readings == listeners[1].readings > 0
    client.wait_for_workers(2, timeout=300)
    assert len(processes & set(client.run(os.getpid).values())) == 1
    there.close()


class Heavy:
    """A term of which 2^20 records fill 63 bits."""

    def __call__(self, chunk):
        return np.array([1, -1, 3]) * (len(chunk) * (2**41 - 1))


def test_sums_beyond_64_bits_are_exact(client):
    counts = (2**20 + 5, 3, 2**20 + 1, 2**19)
    problem = small_problem(n=sum(counts), d=1)
    X = da.zeros((problem.n, 1), chunks=(counts, 1), dtype=np.float32)
    y = da.ones(problem.n, chunks=(counts,))
    found = cluster.open_records(problem, X, y, scheduler=client, engine="numpy").engine()
    few, every = found.total(Heavy(), np.arange(10)), found.total(Heavy())
    assert few.tolist() == [10 * part * (2**41 - 1) for part in (1, -1, 3)]
    assert every.tolist() == [problem.n * part * (2**41 - 1) for part in (1, -1, 3)]
    assert (few.dtype, every.dtype) == (np.int64, object)
    assert every[2] > 2**63


@pytest.mark.parametrize("apart", [False, True])
def test_small_and_large_parts_are_joined_exactly(monkeypatch, apart):
    """Sums of at most 16 records fit 64 bits here: those of larger parts are Python's integers."""
    monkeypatch.setattr(chunks, "ROWS_PER_INT64", 16)
    monkeypatch.setattr(workers, "FAN", 2)
    counts, add = (10, 40, 16, 17, 3), partial(grid.total, most=16)
    problem = small_problem(n=sum(counts), d=2)
    X, y = records(problem)
    edges = np.cumsum([0, *counts]).tolist()
    parts = [
        workers.make_part(problem, "numpy", True, i, high - low, lambda low=low, high=high: (X[low:high], y[low:high]))
        for i, (low, high) in enumerate(pairwise(edges))
    ]
    question = Question("total", add, False, pickle.dumps((Uneven(),)))
    groups = parts if apart else [workers.hold(parts[:2]), workers.hold(parts[2:])]
    answers = [pickle.loads(pickle.dumps(workers.answer(part, question, None))) for part in groups]
    assert {answer.dtype for answer in answers} == ({np.dtype(int), np.dtype(object)} if apart else {np.dtype(object)})
    features = np.concatenate([block.features for block in map(whole_chunk, parts)])
    expected = [sum(int(u) * 2**38 + 1 for u in column) for column in features.T]
    assert add(answers, problem.n).tolist() == expected
    assert add([add(answers[:1], 10), add(answers[1:], 76)], problem.n).tolist() == expected


class Uneven:
    """Sums of records times 2^38, and of ones."""

    def __call__(self, chunk):
        return chunk.gather(np.ones((len(chunk), 1)))[:, 0] * 2**38 + len(chunk)


def whole_chunk(part):
    return part.engines[0]._chunk(slice(None))


@pytest.mark.parametrize("rows", [[], [4], [1, 2, 3, 4, 5], [7, 8, 9, 1, 2, 3, 9, 9], [5, 4, 3, 2, 1, 0], [3, 3, 3]])
def test_runs_of_rows_are_those_rows(rows):
    rows = np.array(rows, dtype=int)
    packed = Runs.of(rows)
    np.testing.assert_array_equal(packed.rows if isinstance(packed, Runs) else packed, rows)
    assert isinstance(Runs.of(np.arange(100, 400)), Runs)


@pytest.mark.parametrize("threads", [{"a": 1, "b": 1}, {"a": 3, "b": 1, "c": 2}, {}])
@pytest.mark.parametrize("owners", ["a", "ab", [None, "gone"]])
def test_every_partition_is_kept_once_and_none_has_much_more_than_its_share(threads, owners):
    counts = np.random.default_rng(0).integers(1, 50, 60).tolist()
    kept = cluster_parts.shared({i: owners[i % len(owners)] for i in range(60)}, counts, threads)
    assert sorted(i for thread in kept for i in thread.partitions) == list(range(60))
    assert all(thread.rows == sum(counts[i] for i in thread.partitions) for thread in kept)
    assert len(kept) == (sum(threads.values()) or 1)
    share = sum(counts) / len(kept)
    assert max(thread.rows for thread in kept) <= share + max(counts)
    if owners == "ab" and threads == {"a": 1, "b": 1}:  # nearly all stays where it is
        assert sum(owners[i % 2] == thread.worker for thread in kept for i in thread.partitions) > 55


def test_what_workers_have_read_is_heard_of_as_they_answer(client, monkeypatch):
    monkeypatch.setattr(chunks, "_SECONDS", 0)
    problem = small_problem(n=1000)
    X, y = records(problem)
    plan, options = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=2), {"seed": 3, "arithmetic": "exact"}
    features, heard = da.from_array(X, chunks=((100, 200, 300, 400), 3)), []
    rows = es.Rows(problem, features, y, engine="dask", scheduler=client)
    run = es.run(plan, rows, **options, on_read=heard.append, anyway=True)
    np.testing.assert_array_equal(run.path, es.run(plan, es.Rows(problem, X, y), **options, anyway=True).path)
    made, asked = heard[:4], heard[4:]
    assert made == sorted(made)
    assert made[-1] == 1
    assert all(1 in (share, following) and share <= 1 for share, following in pairwise(asked))
    assert asked[-1] == 1
    assert asked.count(1) == 2

    def stop(share):
        raise TimeoutError("mine")  # dask has one too, after which questions are asked again

    with pytest.raises(TimeoutError, match="mine"):
        es.run(plan, rows, **options, on_read=stop, anyway=True)
    rows.close()


def test_a_worker_lost_in_the_middle_changes_nothing(client, tmp_path):
    """One worker is killed between two calls, the other one during a step: same sums, same path, one charge."""
    problem = small_problem(n=4000, d=3)
    X, y = records(problem)
    write_parquet(tmp_path / "t.parquet", X, y, row_group_size=500)
    data = es.Rows(problem, tmp_path / "t.parquet", "label", engine="dask", scheduler=client)
    plan, options = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=12), {"seed": 3, "arithmetic": "exact"}
    expected = es.run(plan, es.Rows(problem, X, y), **options, anyway=True).path
    _, points = points_of(problem)
    exact = whole(problem, X, y).sums(points)
    first, second = client.run(os.getpid).values()
    for t in range(6):
        if t == 2:
            os.kill(first, signal.SIGKILL)
        np.testing.assert_array_equal(data.sums(points), exact)
    ledger, timer = es.Ledger(tmp_path / "ledger.db"), threading.Timer(0.01, os.kill, (second, signal.SIGKILL))
    ledger.create("people", es.Pure(1.5))
    account = ledger.account("people")
    run = es.run(
        plan, data, **options, ledger=account, on_step=lambda t: timer.start() if t == 3 else None, anyway=True
    )
    timer.join()
    np.testing.assert_array_equal(run.path, expected)
    assert len(ledger.history("people")) == 1
    client.wait_for_workers(2, timeout=300)
    assert not {first, second} & set(client.run(os.getpid).values())


def test_parts_are_made_again_from_sources_and_sources_that_vanished_end_in_an_error(client, tmp_path):
    problem = small_problem(n=100, d=2)
    X, y = records(problem)
    write_parquet(tmp_path / "t.parquet", X, y)
    found = cluster.open_records(problem, tmp_path / "t.parquet", "label", scheduler=client)
    _, points = points_of(problem)
    expected = found.engine().sums(points)
    (tmp_path / "t.parquet").rename(tmp_path / "away")
    client.cancel([held.future for held in found.engine()._integers._held], force=True)
    with pytest.raises(
        ValueError, match=r"partition 0 of the records could not be read by a worker \(FileNotFoundError\)"
    ):
        found.engine().sums(points)
    (tmp_path / "away").rename(tmp_path / "t.parquet")
    np.testing.assert_array_equal(found.engine().sums(points), expected)


def test_lost_workers_are_tried_again_but_not_for_ever(client):
    problem = small_problem(n=8, d=2)
    parts = cluster.open_records(problem, ARRAY, np.ones(8), scheduler=client).engine()._integers
    lost = distributed.KilledWorker("task", None, 3)
    outcomes = iter([lost, lost, None, lost, lost, lost])

    def work():
        outcome = next(outcomes)
        if outcome is not None:
            raise outcome
        return "done"

    assert parts._persist(work, cluster_parts._lost()) == "done"
    with pytest.raises(OSError, match=r"dask lost its workers 3 times \(KilledWorker\)\. See that they have memory"):
        parts._persist(work, cluster_parts._lost())


def test_nothing_but_sums_reaches_the_client(client, monkeypatch):
    problem = small_problem(n=500, d=3)
    X, y = records(problem)
    seen, gather = [], client.gather
    monkeypatch.setattr(client, "gather", lambda futures: seen.append(gather(futures)) or seen[-1])
    monkeypatch.setattr(distributed.Future, "result", lambda *_: pytest.fail("results come by gather alone"))
    found = cluster.open_records(problem, da.from_array(X, chunks=(100, 3)), y, scheduler=client)
    x, points = points_of(problem, columns=2)
    found.engine().sums(points)
    found.engine().total(methodcaller("moment"))
    found.engine().mean_gradient(x, np.arange(150))
    found.engine().mean_loss(x)
    answers = [answer for batch in seen for answer in batch if answer is not None]
    assert len(answers) == 2 + 2 + 2 + 1  # one of each worker, and one where these were added by workers
    assert {answer.shape for answer in answers} == {(3, 2), (3, 3), (2,)}
    sizes = client.run_on_scheduler(lambda dask_scheduler: {k: t.nbytes for k, t in dask_scheduler.tasks.items()})
    held = [sizes[part.future.key] for part in found.engine()._integers._held]
    assert (
        min(held) >= 2 * 4 * 100 * 4
    )  # dask knows that the parts are the large things, and leaves them where they are


def test_an_engine_is_tested_in_the_process_that_adds(monkeypatch):
    def fails(*_):
        raise SelfTestError("it does not add")

    problem = small_problem(n=8, d=2)
    part = workers.make_part(problem, "numpy", True, 0, 8, lambda: (np.zeros((8, 2)), np.ones(8)))
    _, points = points_of(problem)
    questions = [Question("sums", grid.total, False, pickle.dumps((points,)))]
    questions.append(Question("total", grid.total, False, pickle.dumps((methodcaller("moment"),))))
    questions.append(Question("total", grid.total, False, pickle.dumps((chunks.Chunk.squares,))))
    assert not any(workers.answer(part, question, None).any() for question in questions)
    monkeypatch.setattr(engine, "require_exact", fails)
    for question in questions:
        with pytest.raises(SelfTestError, match="it does not add"):
            workers.answer(part, question, None)


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        (np.zeros((8, 2)), np.ones(8), TypeError, "a dask array or a dask dataframe for the dask engine, got ndarray"),
        (da.zeros((8, 3)), np.ones(8), ValueError, r"shape \(n, d\) = \(8, 2\), got \(8, 3\)"),
        (da.zeros((7, 2)), np.ones(7), ValueError, r"X must have the problem's n = 8 rows, got 7"),
        (ARRAY[ARRAY[:, 0] == 0], np.ones(8), ValueError, r"Use X\.compute_chunk_sizes\(\)"),
        (ARRAY.astype(str), np.ones(8), TypeError, "X must be numeric, got dtype <U"),
        (ARRAY, np.ones(7), ValueError, r"each of the 8 rows of X, got shape \(7,\)"),
        (ARRAY, np.full(8, "a"), TypeError, "y must be numeric, got dtype <U1"),
        ("nowhere.parquet", "y", FileNotFoundError, "no Parquet file at nowhere.parquet for a worker to read"),
        (os.path.dirname(__file__), "y", FileNotFoundError, "no Parquet file at"),
        (__file__, "y", OSError, "is not a Parquet file that a worker can read"),
    ],
)
def test_structure_raises_at_once(client, X, y, error, message):
    with pytest.raises(error, match=message):
        cluster.open_records(small_problem(n=8, d=2), X, y, scheduler=client)


def test_parquet_structure_raises_at_once(client, tmp_path):
    problem = small_problem(n=6, d=2)
    write_parquet(tmp_path / "a.parquet", np.zeros((3, 2)), [1, 1, 1])
    write_parquet(tmp_path / "b.parquet", np.zeros((3, 2)), ["1", "1", "1"])
    for options, y, message in (
        ({}, "label", r"b\.parquet must have a column 'label' of the same kind as .*a\.parquet"),
        ({}, "target", "X has no column 'target'; it has label, x0, x1"),
        ({"columns": ["x0"]}, "label", r"d = 2 feature columns, got 1\. Use columns="),
    ):
        with pytest.raises(ValueError, match=message):
            cluster.open_records(problem, tmp_path, y, scheduler=client, **options)
    with pytest.raises(ValueError, match=r"column 'label' is not numeric"):
        cluster.open_records(problem, tmp_path / "b.parquet", "x0", scheduler=client, columns=["label", "x1"])
    with pytest.raises(ValueError, match=r"n = 6 rows, got 3"):
        cluster.open_records(problem, tmp_path / "a.parquet", "label", scheduler=client)


def test_errors_of_workers_do_not_quote_records(client):
    problem = small_problem(n=8, d=2)
    short = ARRAY.map_blocks(lambda block: block[:-1], dtype=float, chunks=ARRAY.chunks)
    with pytest.raises(ValueError, match=r"partition 0 must have 4 rows of 2 features"):
        cluster.open_records(problem, short, np.ones(8), scheduler=client).engine().prepare()

    def leak(block):
        raise KeyError("a record")

    leaking = ARRAY.map_blocks(leak, dtype=float, meta=np.zeros((0, 0)))
    with pytest.raises(ValueError, match=r"could not be read by a worker \(KeyError\)") as caught:
        cluster.open_records(problem, leaking, np.ones(8), scheduler=client).engine().prepare()
    assert caught.value.__suppress_context__
    with pytest.raises(ValueError, match="partitions must have the problem's n = 8 rows, got 0"):
        cluster.ClusterEngine(problem, [], "numpy", cluster_parts.Connection(client)).prepare()


def test_a_scheduler_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(cluster_parts, "_SECONDS", 0.5)
    for address in ("tcp://127.0.0.1:1", "nonsense://x"):
        with pytest.raises(OSError, match=f"no dask scheduler answers at '{address}'"):
            cluster.open_records(small_problem(n=8, d=2), ARRAY, np.ones(8), scheduler=address)


def test_an_address_is_enough_and_its_workers_survive(client):
    found = cluster.open_records(small_problem(n=8, d=2), ARRAY, np.ones(8), scheduler=client.scheduler.address)
    own = found._connection.client
    _, points = points_of(small_problem(n=8, d=2))
    assert not found.engine().sums(points).any()
    found.close()
    assert own.status == "closed"
    assert client.submit(int, pure=False).result() == 0


def test_workers_started_here_end_with_the_records(monkeypatch):
    monkeypatch.setattr(cluster_parts, "allowed", lambda: 1)
    for name in ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    problem = small_problem(n=8, d=2)
    engine = cluster.open_records(problem, ARRAY, np.ones(8)).engine()
    (process,) = engine._integers._client.run(os.getpid).values()
    (environment,) = engine._integers._client.run(lambda: dict(os.environ)).values()
    assert environment["OMP_NUM_THREADS"] == "1"
    assert "MALLOC_TRIM_THRESHOLD_" not in environment
    assert "OMP_NUM_THREADS" not in os.environ  # this process may still use its threads
    assert not engine.sums(points_of(problem)[1]).any()  # it keeps the workers that it needs
    del engine
    gc.collect()
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{process}") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{process}")


def test_records_under_another_loss_are_in_the_same_workers(client):
    problem = small_problem(n=8, d=2)
    rows, other = es.Rows(problem, ARRAY, np.ones(8), engine="dask", scheduler=client), replace(problem, clip=0.3)
    again = rows.restated(other)
    assert again._engine._connection is rows._engine._connection
    points = points_of(other)[1]
    np.testing.assert_array_equal(again.sums(points), whole(other, ARRAY.compute(), np.ones(8)).sums(points))
    assert rows.restated(replace(other, ridge=0.7))._engine is again._engine


def test_without_dask_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(es.MissingExtraError, match=r"The dask engine needs distributed.*epsteps\[dask\]"):
        cluster.connect()
