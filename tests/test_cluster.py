"""The dask engine: the same integers however records are divided and whichever worker dies; only sums come back."""

import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from conftest import records, small_problem

import epsteps as es
from epsteps.data import cluster, engine
from epsteps.data.cluster import parts as cluster_parts
from epsteps.data.cluster import parts as connection
from epsteps.data.dense import DenseEngine
from epsteps.data.engine import SelfTestError
from epsteps.problem.grid import Grid
from epsteps.problem.losses import Softmax

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


@pytest.mark.parametrize(
    "loss", [es.Logistic(), es.Squared(bound=1.5), Softmax((-1, 0, 1))], ids=["logistic", "squared", "softmax"]
)
@pytest.mark.parametrize(
    ("chunks", "engine"),
    [((500, 503), "numpy"), ((1003,), "auto"), ((1, 2, 900, 0, 100), "numpy"), ((103, *(100,) * 9), "numpy")],
    ids=["two", "one", "uneven", "many"],
)
def test_results_are_those_of_one_process_however_records_are_divided(client, monkeypatch, loss, chunks, engine):
    monkeypatch.setattr(cluster_parts, "_FEW", 3)  # ten partitions are many then
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
    np.testing.assert_array_equal(found.engine().second_moment(), expected.second_moment())
    assert found.engine().sums(points).dtype == np.int64
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(found.engine().mean_gradient(x), expected.mean_gradient(x), **close)
    np.testing.assert_allclose(
        found.engine().mean_gradient(x[:, 0], subset), expected.mean_gradient(x[:, 0], subset), **close
    )
    np.testing.assert_allclose(found.engine().mean_loss(x), expected.mean_loss(x), **close)
    np.testing.assert_allclose(found.engine().hessian(x[:, 0]), expected.hessian(x[:, 0]), **close)
    with pytest.raises(ValueError, match="records in dask workers are not brought here"):
        found.blocks()
    found.close()
    with pytest.raises(RuntimeError, match=r"these records are closed\. Open them again"):
        found.engine().sums(points)


def test_a_subset_keeps_its_order_and_repetitions(client):
    problem = small_problem(n=10, d=2)
    X, y = records(problem)
    found = cluster.open_records(problem, da.from_array(X, chunks=(4, 2)), da.from_array(y, chunks=3), scheduler=client)
    pieces = found.engine()._integers._pieces(np.array([9, 1, 5, 1, 4, 8]))
    assert [(i, rows.tolist()) for i, rows in pieces] == [(0, [1, 1]), (1, [1, 0]), (2, [1, 0])]
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


def test_a_worker_lost_in_the_middle_changes_nothing(client, tmp_path):
    """One worker is killed between two calls, the other one during a step: same sums, same path, one charge."""
    problem = small_problem(n=4000, d=3)
    X, y = records(problem)
    write_parquet(tmp_path / "t.parquet", X, y, row_group_size=500)
    data = es.Rows(problem, tmp_path / "t.parquet", "label", engine="dask", scheduler=client)
    plan, options = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=12), {"seed": 3, "arithmetic": "exact"}
    expected = es.run(plan, es.Rows(problem, X, y), **options).path
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
    run = es.run(plan, data, **options, ledger=account, on_step=lambda t: timer.start() if t == 3 else None)
    timer.join()
    np.testing.assert_array_equal(run.path, expected)
    assert len(ledger.history("people")) == 1
    client.wait_for_workers(2, timeout=60)
    assert not {first, second} & set(client.run(os.getpid).values())


def test_parts_are_made_again_from_sources_and_sources_that_vanished_end_in_an_error(client, tmp_path):
    problem = small_problem(n=100, d=2)
    X, y = records(problem)
    write_parquet(tmp_path / "t.parquet", X, y)
    found = cluster.open_records(problem, tmp_path / "t.parquet", "label", scheduler=client)
    _, points = points_of(problem)
    expected = found.engine().sums(points)
    (tmp_path / "t.parquet").rename(tmp_path / "away")
    client.cancel(found.engine()._integers._futures, force=True)
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
    found.engine().second_moment()
    found.engine().mean_gradient(x, np.arange(150))
    found.engine().mean_loss(x)
    answers = [answer for batch in seen for answer in batch if answer is not None]
    assert len(answers) == 5 + 5 + 2 + 5
    assert {answer.shape for answer in answers} == {(3, 2), (3, 3), (2,)}
    sizes = client.run_on_scheduler(lambda dask_scheduler: {k: t.nbytes for k, t in dask_scheduler.tasks.items()})
    held = [sizes[future.key] for future in found.engine()._integers._futures]
    assert min(held) >= 4 * 100 * 4  # dask knows that the parts are the large things, and leaves them where they are


def test_an_engine_is_tested_in_the_process_that_adds(monkeypatch):
    def fails(*_):
        raise SelfTestError("it does not add")

    problem = small_problem(n=8, d=2)
    part = cluster_parts.make_part(problem, "numpy", True, 0, 8, lambda: (np.zeros((8, 2)), np.ones(8)))
    _, points = points_of(problem)
    assert not cluster_parts.exact_sum("sums", part, (points,), None).any()
    monkeypatch.setattr(engine, "require_exact", fails)
    for what, arguments in (("sums", (points,)), ("second_moment", ())):
        with pytest.raises(SelfTestError, match="it does not add"):
            cluster_parts.exact_sum(what, part, arguments, None)


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
        cluster.ClusterEngine(problem, [], "numpy", connection.Connection(client)).prepare()


def test_a_scheduler_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(connection, "_SECONDS", 0.5)
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


def test_without_dask_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(es.MissingExtraError, match=r"The dask engine needs distributed.*epsteps\[dask\]"):
        cluster.connect()
