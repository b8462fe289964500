"""Private sums: the integers they should be, the same in every engine, and no more sensitive than declared."""

import math

import numpy as np
import pytest
from conftest import ENGINES, small_problem
from hypothesis import given
from hypothesis import strategies as st

import epsteps as es
from epsteps.data import encoding
from epsteps.data.dense import DenseEngine
from epsteps.data.engine import SelfTestError, require_exact
from epsteps.problem import levels
from epsteps.problem.grid import ROWS_PER_INT64, STEPS, Grid, Release, total
from epsteps.problem.losses import PseudoHuber, SmoothedHinge
from epsteps.problem.shapes import L1, L2
from epsteps.testing import replay

LOSSES = [es.Logistic(), es.Squared(bound=1.5), PseudoHuber(bound=1.5, c=0.6), SmoothedHinge(width=0.2)]
LOSSES += [es.CappedLogistic(cap=0.3), es.HalfExponential(), PseudoHuber(bound=1.5, c=0.6, power=4)]
NAMES = ["logistic", "squared", "pseudo-Huber", "smoothed hinge", "capped logistic", "half exponential"]
NAMES += ["sharp pseudo-Huber"]
BALLS = [es.Ball(0.7, norm=np.inf), es.Ball(2.5, norm=2), es.Ball(1, norm=1)]


def random_records(problem, rng):
    """Return records of which many lie outside the domain, on its border, or are no numbers at all."""
    X = rng.standard_normal((problem.n, problem.d)) * rng.choice([0.01, 1, 100], (problem.n, 1))
    X[rng.random(X.shape) < 0.02] = np.nan
    X[rng.random(X.shape) < 0.01] = np.inf
    labels = hasattr(problem.loss, "classes")
    y = rng.choice([-1.0, 1.0], problem.n) if labels else rng.uniform(-2, 2, problem.n)
    return X, y


def by_hand(problem, X, y, points):
    """Return the sum with whole numbers, none of which is rounded or beyond its 64 bits."""
    u = encoding.integers(problem, X).astype(np.int64)
    margins = product(u, points.coefficients.astype(np.int64)).astype(float) * points.step
    targets = problem.loss.encode(y).astype(np.float32)[:, None]
    return product(u.T, problem.loss.levels(margins, targets, points.bound).astype(np.int64)).astype(object)


def product(a, b):
    """Return the product of matrices of integers, after making sure with Python's that no sum can leave 64 bits."""
    assert int(np.abs(a).max()) * int(np.abs(b).max()) * a.shape[1] < 2**63
    return a @ b


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("d", [1, 3, 20, 65, 130])
@pytest.mark.parametrize("n", [7, 1003])
def test_sums_are_the_integers_they_should_be(loss, n, d):
    """In every engine: all of them are held against one sum by hand."""
    rng = np.random.default_rng([n, d])
    for ball in BALLS:
        problem = es.Problem(loss, ball, ridge=0.1, n=n, d=d, intercept=d % 2 == 0)
        X, y = random_records(problem, rng)
        engines = [es.Rows(problem, X, y, engine=engine) for engine in ENGINES]
        for columns in (1, 2, 5, 20) if n * d < 50_000 else (1, 20):
            x = rng.standard_normal((problem.dimension, columns)) * np.geomspace(1e-3, 1e3, columns)
            points = Grid(problem).points(x, 1.0)
            expected = by_hand(problem, X, y, points)
            for data in engines:
                np.testing.assert_array_equal(data.sums(points), expected, err_msg=str(data))
        subset = rng.permutation(n)[: n // 2 + 1]
        expected = by_hand(problem, X[subset], y[subset], points)
        for data in engines:
            np.testing.assert_array_equal(data.sums(points, subset), expected, err_msg=str(data))


@pytest.mark.parametrize("engine", ENGINES)
def test_accumulators_are_emptied_in_time(engine):
    """All records as large as they may be: a double that takes all of them rounds, and must not."""
    n = 60_011
    problem = small_problem(n=n, d=3)
    X, y = np.random.default_rng(0).uniform(0.9, 1, (n, 3)), np.where(np.arange(n) % 1000 == 0, 1, -1)
    points = Grid(problem).points(np.array([[30.0], [0.3], [0.1]]), 1.0)
    expected = by_hand(problem, X, y, points)
    assert max(map(int, expected[:, 0])) > 2**53
    np.testing.assert_array_equal(es.Rows(problem, X, y, engine=engine).sums(points), expected)


def test_sums_beyond_64_bits_keep_all_their_digits():
    parts = [np.array([2**62 - 1, -(2**62) + 1, k], dtype=np.int64) for k in range(9)]
    expected = [9 * (2**62 - 1), -9 * (2**62 - 1), 36]
    assert total(parts, 9 * ROWS_PER_INT64).tolist() == expected
    assert total(parts[:1], ROWS_PER_INT64).dtype == np.int64


@given(st.sampled_from(BALLS), st.integers(1, 40), st.integers(0, 10_000), st.sampled_from([1e-3, 1.0, 1e200]))
def test_integer_rows_lie_in_the_ball_exactly_and_near_the_projected_row(ball, d, seed, size):
    rows = np.random.default_rng(seed).standard_normal((50, d)) * size
    found = ball.integers(rows, STEPS)
    norm = {1: lambda u: sum(map(abs, u)), 2: lambda u: sum(v * v for v in u), math.inf: lambda u: max(map(abs, u))}
    limit = STEPS**2 if ball.norm == 2 else STEPS
    assert all(norm[ball.norm]([int(v) for v in row]) <= limit for row in found)
    assert np.max(np.abs(found - ball.project(rows) * (STEPS / ball.radius))) <= 1


@given(st.integers(1, 5000), st.integers(0, 1000))
def test_margins_at_grid_points_are_exact(d, seed):
    """The worst case: every coordinate as large as the largest, in points and rows."""
    problem = small_problem(d=d)
    x = np.random.default_rng(seed).choice([-1, 1], (d, 1)) * 1.999999
    points = Grid(problem).points(x, 1.0)
    assert d * STEPS * int(np.max(np.abs(points.coefficients))) <= 2**53
    assert np.max(np.abs(points.coefficients[:, 0] * points.step * STEPS - x[:, 0])) <= 2.0 ** -(
        33 - math.ceil(math.log2(d))
    )


@pytest.mark.parametrize("bound", [0.5, 0.9, 1.0])
def test_logistic_levels_are_the_rounded_slopes(bound):
    margin = np.concatenate([np.linspace(-60, 60, 200_001), [1e30, -1e30, 0.0]])
    for z in (-1.0, 1.0):
        found = levels.logistic(margin, np.full(margin.shape, z), bound)
        exact = np.clip(-z / (1 + np.exp(np.clip(z * margin, -700, 700))) * (STEPS / bound), -STEPS, STEPS)
        assert np.max(np.abs(found - exact)) <= 0.5 + 0.2 / bound
        assert np.all(found == np.rint(found))
        assert np.all((-z * found >= 0) & (-z * found <= STEPS))


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_levels_never_pass_their_limit(loss):
    margin = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 1.0])[:, None]
    for target in (-1.0, 1.0):
        with np.errstate(all="ignore"):
            found = loss.levels(margin, np.full((6, 1), target), np.array([0.3]))
        assert np.all(np.abs(np.nan_to_num(found)) <= STEPS)
        assert not np.any(np.isnan(found[1:]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("norm", [1, 2])
@given(seed=st.integers(0, 10**6))
def test_a_neighbour_moves_the_sum_by_no_more_than_declared(engine, norm, seed):
    """One record replaced by anything, at any point: the integers move by one record's two contributions."""
    rng = np.random.default_rng(seed)
    ball, loss = BALLS[rng.integers(3)], LOSSES[rng.integers(4)]
    problem = es.Problem(loss, ball, ridge=0.1, n=60, d=int(rng.integers(1, 9)), intercept=bool(rng.integers(2)))
    X, y = random_records(problem, rng)
    other, labels = X.copy(), y.copy()
    other[17] = rng.choice([0, np.nan, np.inf, 1e300, 1e-310, 1.0], problem.d)
    labels[17] = rng.choice([-1.0, 1.0, np.nan, 1e9])
    x = rng.standard_normal((problem.dimension, 1)) * 10.0 ** rng.integers(-3, 100)
    bound = loss.slope if math.isfinite(loss.slope) else problem.slope_at(x)
    grid = Grid(problem)
    points = grid.points(x, bound)
    first, second = (es.Rows(problem, *pair, engine=engine).sums(points) for pair in ((X, y), (other, labels)))
    moved = np.abs((first - second).astype(object)[:, 0])
    real = moved * grid.gradient_step(1.0)[:, 0]
    assert np.linalg.norm(real.astype(float), ord=norm) <= 2 * problem.record_size(norm) * (1 + 1e-12)
    alone = [by_hand(problem, A[17:18], b[17:18], points) for A, b in ((X, y), (other, labels))]
    np.testing.assert_array_equal(first - second, alone[0] - alone[1])


def extreme_problem(rng):
    """Return a problem whose sizes are anywhere between those that are allowed, its domain's columns alike or not."""
    d = int(rng.integers(1, 5))
    radius = rng.choice([1e-100, 1e-60, 1e-3, 1.0, 1e3, 1e60, 1e100])
    loss = [
        es.Logistic(),
        es.CappedLogistic(cap=rng.choice([1e-30, 0.1, 1.0])),
        SmoothedHinge(width=rng.choice([1e-30, 1.0, 1e30])),
        es.Squared(bound=rng.choice([1e-30, 1.0, 1e30])),
        PseudoHuber(bound=rng.choice([1e-30, 1.0, 1e30]), c=rng.choice([1e-30, 1.0, 1e30])),
        es.Softmax(),
    ][rng.integers(6)]
    box = es.Box(-radius * rng.choice([0.0, 1.0], d), rng.choice([1e-100, 1e-9, 1.0, 1e9, 1e100], d))
    domain = [es.Ball(radius, norm=1), es.Ball(radius), es.Ball(radius, norm=np.inf), box][rng.integers(4)]
    clip = [None, 1e-100, 1.0, 1e100][rng.integers(4)]
    return es.Problem(loss, domain, ridge=0.1, n=30, d=d, intercept=bool(rng.integers(2)), clip=clip)


@pytest.mark.parametrize("engine", ENGINES)
@given(seed=st.integers(0, 10**6))
def test_a_neighbour_moves_the_sum_by_no_more_than_declared_whatever_the_units(engine, seed):
    """Records and points of any floats, of sizes from one end of what may be declared to the other: nothing is NaN."""
    rng = np.random.default_rng(seed)
    problem = extreme_problem(rng)
    unit = problem.units[: problem.d]
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e-150])
    X = unit * rng.uniform(-1.5, 1.5, (30, problem.d))
    X = np.where(rng.random(X.shape) < 0.3, rng.choice(values, X.shape), X)
    classes = getattr(problem.loss, "classes", None)
    y = rng.choice(classes, 30) if classes else rng.choice([0.0, 1e30, -1e-30, np.nan, np.inf, 0.5], 30)
    other, labels = X.copy(), y.copy()
    other[7], labels[7] = (0.0 if rng.integers(2) else rng.choice(values, problem.d)), y[3]
    x = rng.standard_normal((problem.dimension, 3)) / problem.units[:, None]
    x[:, 1] = rng.choice([np.inf, -np.inf, np.nan, 1e308, 5e-324, -1e100, 0.0], problem.dimension)
    x[:, 2] = 10.0 ** rng.uniform(-300, 300, problem.dimension)
    engine = "numpy" if problem.loss.outputs > 1 else engine
    grid, bound = Grid(problem), problem.slope_at(x)
    points = grid.points(x, bound)
    assert np.all(np.isfinite(points.coefficients))
    assert np.all(np.isfinite(points.step))
    assert np.all((bound > 0) & np.isfinite(bound))
    first, second = (es.Rows(problem, *pair, engine=engine).sums(points) for pair in ((X, y), (other, labels)))
    steps = grid.gradient_step(bound)
    for norm in (1, 2):
        shares = (first - second).astype(float) * (steps / problem.sensitivity_at(x, norm))
        assert np.all(np.linalg.norm(shares, ord=norm, axis=0) <= 1 + 1e-9)
        release = grid.release(problem.sensitivity_at(x, norm) / 0.1, bound, {1: L1, 2: L2}[norm](problem.dimension))
        assert np.all((release.scale > 0) & (release.scale < 2**38))
        assert problem.clip is not None or np.all(release.scale > 2**33)
        rounded = np.linalg.norm((release.rounded(first) - release.rounded(second)) / release.scale, ord=norm, axis=0)
        assert np.all(rounded <= 0.1 * (1 + 1e-9))
        assert np.all(np.isfinite(release.noisy(first, np.ones(first.shape, dtype=np.int64))))


@pytest.mark.parametrize("n", [2, 2**22, 2**23, 2**30, 2**45])
def test_a_rounded_sum_of_any_records_fits_the_integers_that_noise_is_added_in(n):
    """And a release is a function of the sum with the whole noise, of which it knows no more than the last 64 bits."""
    release = Grid(small_problem(n=n, d=2)).release(2.0**3, 1.0, L1(2))
    most = n * STEPS * levels.STEPS
    sums = np.array([[most], [-most]], dtype=np.int64 if n <= ROWS_PER_INT64 else object)
    rounded = release.rounded(sums)
    assert rounded.dtype == np.int64
    assert [int(value) for value in rounded[:, 0]] == [
        (s + (1 << shift >> 1)) >> shift for s, shift in zip((most, -most), release.shift[:, 0].tolist(), strict=True)
    ]
    noise = np.array([[2**63 - 1], [-(2**63)]], dtype=np.int64)
    whole = [(int(a) + int(b) + 2**63) % 2**64 - 2**63 for a, b in zip(rounded[:, 0], noise[:, 0], strict=True)]
    np.testing.assert_array_equal(release.noisy(sums, noise)[:, 0], np.array(whole, dtype=float) * release.step[:, 0])


def test_sums_of_a_large_scale_are_rounded_without_overflow():
    release = Release(np.array([[70], [3]]), np.ones((2, 1)), np.ones((2, 1)))
    assert release.rounded(np.array([[2**62], [20]])).tolist() == [[0], [3]]


# What losses from outside may answer that do not hold their own slope.
ANSWERS = {
    "steep": lambda m: 10 * STEPS * np.ones(m.shape),
    "nan": lambda m: np.where(np.arange(len(m))[:, None] % 2, np.nan, -np.inf),
    "fractions": lambda m: STEPS * np.cos(m) + 0.3,
    "wide": lambda m: np.full(m.shape, 2**62),
    "complex": lambda m: np.full(m.shape, 1e9j),
    "text": lambda m: np.full(m.shape, "?"),
    "too few": lambda m: STEPS * np.ones(1),
    "none": lambda m: None,
    "raising where positive": lambda m: _raise() if np.any(m > 0.2) else STEPS * np.ones(m.shape),
    "short where positive": lambda m: STEPS * np.ones(m.shape)[: -1 if np.any(m > 0.2) else None],
}


class Liar(es.Logistic):
    """A loss from outside that does not hold its own slope."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        object.__setattr__(self, "kind", kind)

    def __reduce__(self):
        return Liar, (self.kind,)

    def levels(self, margin, target, bound):
        return ANSWERS[self.kind](margin)


def _raise():
    raise ArithmeticError("a record made me raise")


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("engine", [*ENGINES, "stream", "sparse"])
def test_a_loss_that_does_not_hold_its_slope_moves_a_sum_by_no_more_than_declared(engine, kind, tmp_path):
    """One record is replaced by the opposite corner: at most 2^20 steps from either, whatever the loss answers."""
    problem = es.Problem(Liar(kind), es.Ball(1, norm=np.inf), ridge=0.1, n=40, d=2, clip=None)
    X, y = np.random.default_rng(0).uniform(-1, 1, (40, 2)), np.ones(40)
    other = X.copy()
    X[5], other[5] = 1.0, -1.0
    points = Grid(problem).points(np.array([[0.7], [0.4]]), 1.0)

    def sums(features):
        if engine == "sparse":
            features = pytest.importorskip("scipy.sparse").csr_array(features)
        if engine == "stream":
            np.save(tmp_path / "records.npy", features)
            features = np.load(tmp_path / "records.npy", mmap_mode="r")
        return es.Rows(problem, features, y, engine=engine if engine in ENGINES else "auto").sums(points)

    moved = sums(X) - sums(other)
    assert moved.dtype == np.int64
    assert np.max(np.abs(moved)) <= 2 * STEPS * levels.STEPS
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=3, mechanism="laplace")
    replay(
        lambda Z, account: es.run(plan, es.Rows(problem, Z, y), ledger=account, anyway=True).x,
        X,
        other,
        costs=plan.costs,
    )


class JointLiar(es.Softmax):
    """Three slopes as large as one may be, of one sign: together longer than p - e_y is."""

    def __reduce__(self):
        return JointLiar, ()

    def levels(self, margin, target, bound):
        return STEPS * np.where(target > 0, 1.0, -1.0) * np.ones(margin.shape)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_slopes_of_several_outputs_are_held_together(clip):
    problem = es.Problem(JointLiar(), es.Ball(1, norm=np.inf), ridge=0.1, n=20, d=2, clip=clip)
    X, y = np.ones((20, 2)), np.arange(20) % 3
    other = np.where(np.arange(20) == 5, 0, y)
    grid, x = Grid(problem), np.random.default_rng(2).standard_normal((6, 1))
    points = grid.points(x, 1.0)
    first, second = (es.Rows(problem, X, labels).sums(points) for labels in (y, other))
    moved = (first - second).astype(float) * grid.gradient_step(1.0)
    assert np.any(moved)
    for norm in (1, 2):
        assert np.linalg.norm(moved[:, 0], ord=norm) <= problem.sensitivity(norm)


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_limits_hold_in_integers_and_change_nothing_within_them(outputs, seed):
    rng = np.random.default_rng(seed)
    norms = [float(rng.uniform(0.2, outputs)), float(rng.uniform(0.2, math.sqrt(outputs))), float(rng.uniform(0.2, 1))]
    limits = levels.limits_of(outputs, *norms)
    shape = (50, 2) if outputs == 1 else (50, outputs, 2)
    given = rng.choice([STEPS, -STEPS, np.nan, np.inf, 1e300, 3.0, rng.uniform(-STEPS, STEPS)], shape)
    found = limits.held(given)
    assert np.all(found == np.rint(found))
    apart = found.reshape(50, outputs, 2).astype(np.int64).astype(object)
    one, two, largest = (levels.Fraction(norm) * STEPS for norm in norms)
    assert np.all(np.abs(apart) <= min(largest, STEPS))
    assert all(size <= one for size in np.abs(apart).sum(axis=1).ravel())
    assert all(size <= two**2 for size in (apart * apart).sum(axis=1).ravel())
    np.testing.assert_array_equal(limits.held(found), found)


def test_sums_are_close_to_the_real_gradient(paper):
    rng = np.random.default_rng(0)
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=20_000, d=20)
    X, y = rng.random((20_000, 20)), rng.choice([-1, 1], 20_000)
    data, grid = es.Rows(problem, X, y), Grid(problem)
    x = rng.standard_normal((20, 3))
    points = grid.points(x, 1.0)
    found = data.sums(points) * grid.gradient_step(1.0) / problem.n + problem.ridge * x
    np.testing.assert_allclose(found, data.gradient(x), atol=2e-8)


class Unflushed(DenseEngine):
    """One double takes everything: the mistake that the engines' own test must see."""

    def _exact_sums(self, points, rows=None):
        features, slopes = self._integers
        u, y = (features, slopes.targets) if rows is None else (features[rows], slopes.targets[rows])
        levels = slopes.loss.levels((u.astype(float) @ points.coefficients) * points.step, y[:, None], points.bound)
        return (u.T.astype(float) @ levels.astype(float)).astype(np.int64)


class Sloppy(DenseEngine):
    """Right for all records, wrong for given rows."""

    def _exact_sums(self, points, rows=None):
        return super()._exact_sums(points, rows) + (rows is not None)


class Overfull(DenseEngine):
    """Sums of gradients are right; of what terms are made of, one takes a whole chunk in one double."""

    wrong: str

    def _chunk(self, rows):
        chunk = super()._chunk(rows)
        u = chunk.features
        sums = {"moment": lambda: u.T @ u, "squares": lambda: np.sum(u * u, axis=0), "gather": lambda v: u.T @ v}
        setattr(chunk, self.wrong, lambda *numbers: sums[self.wrong](*numbers).astype(np.int64))
        return chunk


def overfull(name):
    return type(f"Overfull{name}", (Overfull,), {"wrong": name})


@pytest.mark.parametrize("wrong", [Unflushed, Sloppy, *map(overfull, ("moment", "squares", "gather"))])
def test_an_engine_that_adds_wrongly_is_not_used(wrong):
    with pytest.raises(SelfTestError, match="the 'wrong' engine does not add integers exactly"):
        require_exact(wrong, "wrong")
    problem = small_problem(n=4)
    with pytest.raises(SelfTestError, match="does not add integers exactly"):
        wrong(problem, np.zeros((4, 3)), np.ones(4)).sums(Grid(problem).points(np.ones((3, 1)), 1.0))
    require_exact(DenseEngine, "numpy")
