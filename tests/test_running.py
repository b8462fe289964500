"""The loop executes its plan: the noise follows its law, subsets are fresh and uniform, seeds repeat."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from conftest import noise_of, records, small_problem
from scipy import stats

import epsteps as es
from epsteps.data import chunks, engine, stream
from epsteps.data import sources as records_from
from epsteps.noise import Source, uniform
from epsteps.problem.sampling import Sampling
from epsteps.running import floats

METHODS = (es.gd, es.heavy_ball, es.nesterov, es.multistage)

# Every statistical test accepts at p > 1e-4: on right code it would fail for one seed in ten thousand. Seeds are fixed.
LEVEL = 1e-4


def follows_laplace(sample, scale=1.0):
    return stats.kstest(sample, stats.laplace(scale=scale).cdf).pvalue > LEVEL


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [1, None])
def test_noise_follows_laplace_of_the_planned_scale_and_no_other(method, seed):
    problem = small_problem(n=300)
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), method, iterations=40, allocation="uniform", mechanism="laplace")
    sample = noise_of(es.run(plan, rows, seed=seed, repetitions=25, anyway=True), rows)
    assert follows_laplace(sample)
    assert not follows_laplace(sample, 2 / 3)
    assert not follows_laplace(sample, 3 / 2)
    assert not follows_laplace(sample, 1 / np.sqrt(2))
    assert np.var(sample) == pytest.approx(2, rel=0.2)


def test_each_step_has_its_own_scale():
    problem = small_problem(n=300)
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=60, mechanism="laplace")
    assert plan.scales[0] > 5 * plan.scales[-1]
    sample = noise_of(es.run(plan, rows, seed=3, repetitions=40), rows).reshape(60, -1)
    assert follows_laplace(sample[:5].ravel())
    assert follows_laplace(sample[-5:].ravel())


def test_state_dependent_noise_has_the_scale_at_its_point():
    problem = es.Problem(es.Squared(), es.Ball(1), ridge=0.3, n=300, d=3)
    X, y = records(problem)
    rows = es.Rows(problem, 0.5 * X, 0.5 * y)
    plan = es.plan(problem, es.Pure(1.0), es.gd, iterations=20, mechanism="laplace")
    sample = noise_of(es.run(plan, rows, seed=4, repetitions=40, start=3.0), rows)
    assert follows_laplace(sample)
    assert not follows_laplace(sample, 3 / 2)


def test_noise_of_a_sampled_run_follows_its_law():
    """All records are the same, so that every subset has the same gradient and the noise can be measured."""
    problem = small_problem(n=300)
    rows = es.Rows(problem, np.full((300, 3), 0.5), np.ones(300))
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=40, batch=30, mechanism="laplace")
    sample = noise_of(es.run(plan, rows, seed=5, repetitions=25), rows)
    assert follows_laplace(sample)
    assert not follows_laplace(sample, 2 / 3)
    assert not follows_laplace(sample, 3 / 2)


def test_noise_is_independent_over_steps_coordinates_and_repetitions():
    problem = small_problem(n=300)
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), es.gd, iterations=200, allocation="uniform", mechanism="laplace")
    sample = noise_of(es.run(plan, rows, seed=6, repetitions=5), rows).reshape(200, 3, 5)
    for first, second in (
        (sample[1:], sample[:-1]),
        (sample[:, 0], sample[:, 1]),
        (sample[:, :, 0], sample[:, :, 1]),
    ):
        assert stats.pearsonr(first.ravel(), second.ravel()).pvalue > LEVEL


@pytest.mark.parametrize("seed", [7, None])
def test_subsets_are_uniform_without_replacement(seed):
    source, sampling = Source(seed), Sampling(n=8, m=3)
    draws = [source.subset(sampling) for _ in range(4000)]
    assert all(len(set(draw.tolist())) == 3 for draw in draws)
    codes = [sum(1 << int(i) for i in draw) for draw in draws]
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 56
    assert stats.chisquare(counts).pvalue > LEVEL


@pytest.mark.parametrize(("n", "m"), [(8, 3), (8, 5), (6, 1), (6, 6)])
def test_subsets_of_experiments_are_uniform_without_replacement(n, m):
    found = Source(7).subsets(Sampling(n, m), 10_000)
    assert found.shape == (10_000, m)
    assert found.dtype == np.int64
    member = np.zeros((10_000, n), dtype=int)
    np.put_along_axis(member, found, 1, axis=1)
    assert np.all(member.sum(axis=1) == m)
    codes, counts = np.unique(member @ (1 << np.arange(n)), return_counts=True)
    assert len(codes) == math.comb(n, m)
    assert len(codes) == 1 or stats.chisquare(counts).pvalue > LEVEL
    assert np.any(Source(8).subsets(Sampling(n, m), 100) != found[:100]) or n == m


def floyd_by_hand(words, n):
    """Floyd's algorithm as it is published, in Python's integers."""
    found, m = [], len(words)
    for j, word in zip(range(n - m, n), words.tolist(), strict=True):
        value = word * (j + 1) >> 64
        found.append(j if value in found else value)
    return found


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (9, 7), (1000, 30), (2**40, 20), (2**63 - 1, 3)])
def test_subsets_of_experiments_are_floyds(n, m):
    words = np.random.default_rng(n % 1000).integers(2**64, size=(40, m), dtype=np.uint64)
    words[0], words[1] = 0, 2**64 - 1
    np.testing.assert_array_equal(uniform.floyd(words, n), [floyd_by_hand(row, n) for row in words])


def test_private_subsets_are_not_drawn_as_those_of_experiments(monkeypatch):
    with pytest.raises(ValueError, match="subsets are for experiments, and take a seed"):
        Source().subsets(Sampling(8, 3), 1)

    def no_subsets(*_):
        raise AssertionError("subsets were drawn for an experiment")

    monkeypatch.setattr(Source, "subsets", no_subsets)
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=3, batch=20)
    for options in ({}, {"seed": 1, "arithmetic": "exact"}):
        es.run(plan, rows, **options, anyway=True)
    with pytest.raises(AssertionError, match="drawn for an experiment"):
        es.run(plan, rows, seed=1)


def test_a_run_reads_a_fresh_uniform_subset_at_each_step():
    """One-hot records without noise: the gradient of a step says which records it read."""
    n, m, T = 6, 2, 600
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=n, d=n)
    rows = es.Rows(problem, np.eye(n), np.ones(n))
    plan = es.plan(problem, es.Pure(1e9), es.gd, iterations=T, allocation="uniform", batch=m)
    run = es.run(plan, rows, seed=8, repetitions=2)
    gradients = (run.path[:-1] - run.path[1:]) / plan.steps.alpha[0] - problem.ridge * run.path[:-1]
    read = gradients < -0.01
    assert np.all(read.sum(axis=1) == m)
    codes = (read * (1 << np.arange(n))[None, :, None]).sum(axis=1)
    assert np.any(codes[:, 0] != codes[:, 1])
    for column in codes.T:
        assert stats.chisquare(np.unique(column, return_counts=True)[1]).pvalue > LEVEL
        repeats = np.mean(column[1:] == column[:-1])
        assert repeats < 3 / 15


@pytest.mark.parametrize("batch", [None, 20])
def test_seeded_runs_repeat_and_unseeded_ones_do_not(batch):
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=10, batch=batch)
    first, again, other = (es.run(plan, rows, seed=seed, anyway=True) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.path, again.path)
    assert not np.any(first.path[1:] == other.path[1:])
    assert first.seeded
    free, free_again = es.run(plan, rows, anyway=True), es.run(plan, rows, anyway=True)
    assert not np.any(free.path[1:] == free_again.path[1:])
    assert not free.seeded


def test_repetitions_are_runs_of_their_own():
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), es.multistage, iterations=30)
    run = es.run(plan, rows, seed=1, repetitions=3, start=2.0)
    assert run.path.shape == (31, 3, 3)
    assert run.x.shape == (3, 3)
    np.testing.assert_array_equal(run.path[0], 2.0)
    assert run.spent == pytest.approx(3 * plan.spent)
    single = es.run(plan, rows, seed=1)
    assert single.path.shape == (31, 3)
    assert single.spent == plan.spent


@pytest.mark.parametrize("method", METHODS)
def test_the_loop_is_the_textbooks_recursion(method):
    """Written out as the textbooks do, from the same noise."""
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), method, iterations=60, allocation="uniform", mechanism="laplace")
    path = es.run(plan, rows, seed=3, start=1.0).path
    noises = plan.scales[:, None] * Source(3).draw(plan.mechanism, 1.0, (60, 3))
    x = past = np.ones(3)
    for t, (alpha, beta, _, restart) in enumerate(plan.steps):
        noise = noises[t]
        past = x if restart else past
        z = (1 + beta) * x - beta * past if method in (es.nesterov, es.multistage) else x
        momentum = beta * (x - past) if method is es.heavy_ball else 0.0
        x, past = z - alpha * (rows.gradient(z) + noise) + momentum, x
        np.testing.assert_allclose(path[t + 1], x, atol=1e-12)


def test_the_whole_loop_stays_below_its_bound():
    """Simulated mean error against the theorem, on the plan that it chose (400 runs: three standard errors)."""
    problem = small_problem(n=2000, d=3, ridge=0.2)
    rows = es.Rows(problem, *records(problem))
    lowest = float(rows.value(es.run(es.plan(problem, es.Pure(1e14), es.nesterov, iterations=300), rows, seed=0).x))
    for method in (es.gd, es.nesterov, es.multistage):
        plan = es.plan(problem, es.Pure(1.0), method, start_gap=problem.start_gap)
        gaps = rows.value(es.run(plan, rows, seed=1, repetitions=400).x) - lowest
        assert gaps.mean() - 3 * gaps.std() / 20 <= plan.error
        assert gaps.mean() > 0


class Account:
    def __init__(self, limit):
        self.limit, self.charges = limit, []

    def charge(self, cost, *, note, key=None):
        if cost.epsilon > self.limit:
            raise ValueError(f"only {self.limit} is left")
        self.charges.append((cost.epsilon, note))


def test_the_account_is_charged_before_noise_is_drawn(monkeypatch):
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=5)
    account = Account(limit=3.0)
    es.run(plan, rows, ledger=account, repetitions=2, anyway=True)
    assert account.charges[0][0] == pytest.approx(2.0)

    def no_noise(*_):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(Source, "integers", no_noise)
    with pytest.raises(ValueError, match=r"only 0.5 is left"):
        es.run(plan, rows, ledger=Account(limit=0.5), anyway=True)
    account = Account(limit=3.0)
    with pytest.raises(AssertionError, match="noise was drawn"):
        es.run(plan, rows, ledger=account, anyway=True)
    assert len(account.charges) == 1


@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("batch", [20, None])
def test_progress_hears_of_every_step(seed, batch):
    problem = small_problem()
    plan, heard = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=4, batch=batch), []
    es.run(plan, es.Rows(problem, *records(problem)), seed=seed, on_step=heard.append, anyway=True)
    assert heard == [1, 2, 3, 4]


def passes_of(shares):
    """Return the shares that were heard of, divided where they do not rise."""
    ends = [0, *(i for i in range(1, len(shares)) if shares[i] <= shares[i - 1]), len(shares)]
    return [shares[start:stop] for start, stop in pairwise(ends)]


@pytest.fixture
def at_once(monkeypatch):
    """Let every part of every pass be heard of, however short."""
    monkeypatch.setattr(chunks, "_SECONDS", 0)


@pytest.fixture
def streamed(monkeypatch, tmp_path):
    """Return what makes rows of a problem that are read from files, in blocks of 20 records."""
    monkeypatch.setattr(records_from, "KEPT", 0)

    def streamed(problem, **options):
        monkeypatch.setattr(stream, "BLOCK", 20 * problem.d)
        X, y = records(problem)
        np.save(tmp_path / "X.npy", X)
        return es.Rows(problem, tmp_path / "X.npy", y, **options)

    return streamed


def same_run_heard(plan, rows, **options):
    """Return the passes that a watcher hears of, in the run's own thread; checks that watching changes no bit."""
    shares, threads = [], set()

    def hear(*arguments):
        (share,) = arguments
        assert type(share) is float
        shares.append(share)
        threads.add(threading.get_ident())

    watched = es.run(plan, rows, seed=3, on_read=hear, **options)
    alone = es.run(plan, rows, seed=3, **options)
    np.testing.assert_array_equal(watched.path, alone.path)
    assert threads == {threading.get_ident()}
    passes = passes_of(shares)
    assert all(each[0] > 0 and each[-1] == 1 for each in passes)
    return passes


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", ["numpy", "fast"])
def test_every_block_of_a_streamed_pass_is_heard_of(at_once, streamed, tmp_path, kind, kept):
    problem = small_problem(n=205)
    rows = streamed(problem, engine=kind, cache=tmp_path if kept else None)
    first = [*np.arange(20, 205, 20) / 205, 1.0]
    later = [*np.arange(80, 205, 80) / 205, 1.0] if kept else first
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=3)
    assert same_run_heard(plan, rows, arithmetic="exact") == [first, later, later, later]
    batches = same_run_heard(
        es.plan(problem, es.Pure(1.0), es.nesterov, iterations=3, batch=50), rows, arithmetic="exact"
    )
    assert len(batches) == 3  # what is prepared stays so
    floats = same_run_heard(plan, rows, arithmetic="float")
    assert floats == [first] * 3


def test_the_passes_of_a_minimum_are_heard_of_in_memory_and_from_files(at_once, streamed, monkeypatch):
    monkeypatch.setattr(engine, "_CHUNKS", 1)
    problem = small_problem(n=205)
    plan = es.plan(problem, es.Pure(1.0), "objective")
    assert {len(each) for each in same_run_heard(plan, streamed(problem))} >= {11}
    problem = es.Problem(es.Squared(), es.Ball(1), ridge=0.1, n=70_000, d=20)
    rows = es.Rows(problem, *records(problem), engine="numpy")
    for method in ("objective", "statistics"):
        assert max(map(len, same_run_heard(es.plan(problem, es.Pure(1.0), method), rows))) >= 20


def test_sums_do_not_depend_on_the_number_of_parts(monkeypatch):
    problem = small_problem(n=70_000)
    rows = es.Rows(problem, *records(problem))
    expected = rows.second_moment()
    monkeypatch.setattr(engine, "_CHUNKS", 1)
    np.testing.assert_array_equal(rows.second_moment(), expected)
    each = np.array([2**61, -(2**61), 2**60 + 1])  # 64 bits hold the sums of three records
    for sizes in ([1, 1, 1], [3, 2, 0, 1], [1, 3, 1, 3], [3], [2] * 9):
        found = chunks.added(((size, size * each) for size in sizes), sum(sizes), 3)
        assert found.tolist() == [sum(sizes) * int(number) for number in each]


def test_short_passes_are_not_heard_of_and_long_ones_ten_times_a_second(monkeypatch):
    now = 0.0
    monkeypatch.setattr(chunks, "monotonic", lambda: now)

    def parts(count, seconds):
        nonlocal now
        for _ in range(count):
            now += seconds
            yield 1, None

    told = []
    with chunks.watching(lambda share: told.append((share, now))):
        list(chunks.heard(parts(9, 0.01), 9))
        assert told == []
        list(chunks.heard(parts(1000, 0.011), 1000))
    shares, times = zip(*told, strict=True)
    assert shares[0] == 0.01
    assert list(shares) == sorted(set(shares))
    assert shares[-1] == 1
    gaps = np.diff(times)
    assert np.all(gaps[:-1] >= 0.1)
    assert np.all(gaps <= 0.1101)


def test_where_nobody_watches_a_pass_is_as_it_was(at_once):
    parts = (each for each in [(1, "a"), (1, "b")])
    assert chunks.heard(parts, 2) is parts
    with chunks.watching([].append):
        assert chunks.heard(parts, 2) is not parts
        with chunks.watching(None):
            assert chunks.heard(parts, 2) is parts
    assert not chunks.watched()


def test_a_pass_inside_a_pass_is_not_heard_of(at_once):
    def outer():
        for _ in range(4):
            assert list(chunks.heard(((1, None) for _ in range(7)), 7))
            yield 1, None

    with chunks.watching((told := []).append):
        for _ in chunks.heard(outer(), 4):
            assert chunks.watched()
        assert list(chunks.heard((each for each in [(0, None)]), 0)) == [(0, None)]
    assert told == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_runs_in_threads_hear_of_their_own_passes(at_once):
    """One reads five hundred records and one two thousand, at the same time: each hears of its own."""

    def run(n):
        problem = small_problem(n=n)
        rows, plan = es.Rows(problem, *records(problem)), es.plan(problem, es.Pure(1.0), es.nesterov, iterations=20)
        return len(same_run_heard(plan, rows, arithmetic="exact"))

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(run, [500, 2000] * 4))) == 1


@pytest.mark.parametrize("at", [1, 14])
def test_what_a_watcher_raises_ends_the_run_as_it_is(at_once, streamed, at):
    """In the eleven blocks that are prepared nothing is charged; afterwards what was charged stays charged."""
    problem, heard, account = small_problem(n=205), [], Account(limit=3.0)
    rows, plan = streamed(problem), es.plan(problem, es.Pure(1.0), es.nesterov, iterations=3)
    own = OSError("no more")
    own.__cause__ = KeyError("why")

    def stop(share):
        heard.append(share)
        if len(heard) == at:
            raise own

    with pytest.raises(OSError, match="no more") as caught:
        es.run(plan, rows, ledger=account, on_read=stop, anyway=True)
    assert caught.value is own
    assert type(own.__cause__) is KeyError
    assert len(heard) == at
    assert len(account.charges) == (at > 11)
    assert not chunks.watched()
    assert es.run(plan, rows, on_read=[].append, anyway=True).path.shape == (4, 3)


def test_parts_in_threads_are_let_go_of_when_a_watcher_raises(at_once):
    def parts():
        yield 1, None
        yield 1, None

    def stop(share):
        raise ValueError("no more")

    begun = parts()
    with pytest.raises(ValueError, match="no more"), chunks.watching(stop):
        list(chunks.heard(begun, 2))
    assert begun.gi_frame is None


@pytest.mark.parametrize("batch", [20, None])
def test_draws_do_not_miss_or_repeat_a_step_between_blocks(monkeypatch, batch):
    """Blocks of one, seven and all steps: each follows the law, and no noise or subset comes twice."""
    problem = small_problem()
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=40, batch=batch, mechanism="laplace")
    for steps in (1, 7, 100):
        monkeypatch.setattr(floats, "_BLOCK_BYTES", steps * 8 * 2 * (3 + (batch or 0)))
        draws = floats.FloatDraws(plan, Source(5), 2)
        assert draws.steps == steps
        found = [draws.at_step(t) for t in range(40)]
        noise = np.array([draw.noise for draw in found])
        assert noise.shape == (40, 3, 2)
        assert len(np.unique(noise)) == noise.size
        assert follows_laplace(noise.ravel())
        if batch is not None:
            assert len({tuple(rows) for draw in found for rows in draw.subsets.tolist()}) == 80


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"repetitions": 0}, ValueError, "repetitions must be at least 1, got 0"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": 1.5}, TypeError, "seed must be a whole number, got 1.5"),
        ({"start": np.ones(4)}, ValueError, r"start must be a finite number or a vector of length 3, got shape \(4,\)"),
        ({"start": np.nan}, ValueError, "start must be a finite number"),
        ({"seed": 1, "checkpoint": "file"}, ValueError, "checkpoint is for exact runs"),
        ({"seed": 1, "arithmetic": "float", "checkpoint": "file"}, ValueError, "checkpoint is for exact runs"),
    ],
)
def test_bad_runs_are_refused(options, error, message):
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))
    with pytest.raises(error, match=message):
        es.run(es.plan(problem, es.Pure(1.0), es.nesterov, iterations=2), rows, **options, anyway=True)


def test_a_plan_for_other_records_is_refused():
    problem = small_problem()
    for other in (small_problem(n=201), es.Problem(es.Logistic(), es.Ball(2, norm=np.inf), ridge=0.1, n=200, d=3)):
        rows = es.Rows(other, *records(other))
        with pytest.raises(ValueError, match=r"the plan is for Problem.* but the records are for Problem"):
            es.run(es.plan(problem, es.Pure(1.0), es.nesterov, iterations=2), rows, anyway=True)


@pytest.mark.parametrize("arithmetic", ["exact", "float"])
def test_a_plan_with_another_ridge_runs_with_its_own(arithmetic):
    """The ridge is public and no part of a record: the plan's is used, whatever the records were opened with."""
    problem, other = small_problem(), small_problem(ridge=0.3)
    X, y = records(problem)
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=20)
    paths = [es.run(plan, es.Rows(p, X, y), seed=1, arithmetic=arithmetic).path for p in (problem, other)]
    np.testing.assert_allclose(*paths, rtol=1e-9, atol=1e-12)


def test_a_plan_with_another_smoothness_runs_on_the_same_records():
    problem = small_problem()
    plan = es.plan(small_problem(smoothness=0.5), es.Pure(1.0), es.nesterov, iterations=2)
    assert es.run(plan, es.Rows(problem, *records(problem)), seed=1).path.shape == (3, 3)
