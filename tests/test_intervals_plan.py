"""A minimum with intervals: what each release moves by against what it costs, what all cost together, what follows."""

import dataclasses
import itertools
import json
import math
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse
from combinations import DOMAINS

import epsteps as es
from epsteps.auditing.releases import _noise_of
from epsteps.budgets import Epsilon, Rho
from epsteps.budgets.corners import GAUSSIAN, composed
from epsteps.data import encoding
from epsteps.methods import plan_objective
from epsteps.methods.intervals.plan import IntervalPlan, headline, plan_intervals
from epsteps.methods.intervals.sums import Dispersion, Layout, Mean, statistic
from epsteps.methods.minima import best_corners
from epsteps.noise import Source
from epsteps.plans.plan import OverspentError
from epsteps.problem.losses import PseudoHuber, SmoothedHinge
from epsteps.testing import replay

LOSSES = (
    es.Logistic(),
    PseudoHuber(0.7, 0.4),
    PseudoHuber(0.7, 0.4, 8),
    SmoothedHinge(width=0.3),
    es.CappedLogistic(cap=0.3),
)
KINDS = [pair for pairs in DOMAINS.values() for pair in pairs]
KINDS += [(es.Box(0, 1, one_hot=[(0, 3)]), 3), (es.Box(0, 1, one_hot=[(0, 1)]), 1), (es.Box(-2, 2), 2)]
# Numbers that may be missing, beside a category and alone.
KINDS += [(es.Box(0, 1, one_hot=[(1, 3), (3, 6)], numbers=[1]), 6), (es.Box(-1, 1, one_hot=[(0, 2)], numbers=[0]), 2)]
BUDGETS = (es.Pure(1.0), es.Approximate(1.0, 1e-6), es.Concentrated(0.1))
STEPS = 2**20


def problem_of(loss, domain, d, intercept=True, n=200_000):
    return es.Problem(loss, domain, ridge=1e-3, n=n, d=d, intercept=intercept)


def plan_of(loss, domain, d, intercept=True, kind=Epsilon, robust=True):
    """Return a plan of which every release is bought, in this currency."""
    budget = es.Pure(1.0) if kind is Epsilon else es.Approximate(1.0, 1e-6)
    mechanism = "laplace" if kind is Epsilon else "gaussian"
    plan = plan_intervals(problem_of(loss, domain, d, intercept), budget, mechanism=mechanism, robust=robust)
    assert plan.mode == "measured"
    return plan


def prepared(problem, seed, count=40):
    """Return integers and targets of records: random, at the ends, of no or of several categories, and no numbers."""
    rng = np.random.default_rng(seed)
    d = problem.d
    rows = [
        rng.uniform(-8, 8, (count, d)),
        1e9 * rng.choice([-1.0, 0.0, 1.0], (count, d)),
        np.where(rng.random((count // 2, d)) < 0.3, np.nan, rng.normal(size=(count // 2, d))),
        np.zeros((1, d)),
        np.ones((1, d)),
    ]
    for start, stop in problem.domain.one_hot:
        for block in rows[:2]:
            block[:, start:stop] = np.eye(stop - start)[rng.integers(stop - start, size=count)]
            block[: count // 8, start:stop] = 0.3  # a category that is not complete
    features = np.concatenate(rows)
    targets = problem.loss.encode(rng.choice(problem.loss.targets.extremes, len(features)).astype(float))
    return encoding.integers(problem, features).astype(float), targets.astype(np.float32)


def models(problem, seed):
    """Yield models: ordinary ones, 0, and such as no solver finds, but a release could be."""
    rng = np.random.default_rng(seed)
    for size in (1.0, 30.0, 0.0, 1e-300, 1e60, 1e300):
        yield size * rng.normal(size=problem.dimension)


def requests_of(plan, x, seed):
    """Return every request at a model, with a frame from sizes that are as wrong as noise may be."""
    rng = np.random.default_rng(seed)
    count = sum(each.problem.dimension for each in plan.statistics)
    sizes = rng.choice([0.01, 0.3, 5.0]) * rng.normal(size=count)
    curvature = plan.curvature_at(x, plan.frame(sizes))
    matrix = rng.choice([0.001, 1.0, 1e3]) * rng.normal(size=(curvature.frame.k,) * 2)
    levers = plan.levers(curvature.frame, matrix + matrix.T, curvature.deviation)
    assert np.all(np.isfinite(levers))
    dispersions = [plan.dispersion_at(x, levers), plan.dispersion_at(x, rng.normal(size=levers.shape) * 1e6)]
    return [*plan.sizes_at(x), curvature, *dispersions, one_dispersion(plan, x)]


def one_dispersion(plan, x):
    """Return the request of a plan that is not robust: two means, without levers."""
    spread = statistic(es.Box(-0.5, 0.5), plan.problem.n, 2, False, plan.kind, plan.dispersion)
    return Dispersion(plan.problem, x, spread)


def moves_at_most(request, features, targets):
    """Raise if a replaced record moves the sum by more of its noise than it costs; return the share that it does."""
    _, scale, shape = _noise_of(request)
    few = slice(None, None, 2)
    rows = np.array([request.block(u[None], y[None]) for u, y in zip(features[few], targets[few], strict=True)])
    places = np.array(list(itertools.combinations(range(len(rows)), 2))).T
    if isinstance(request, Mean):
        moved = (rows[places[0]] - rows[places[1]]).astype(float) / 2.0 ** int(request._release.shift.max())
        worst = float(shape.gauge(moved.T).max()) / scale
    else:  # the norms of a a' - b b' of all pairs, and of the worst pair from its matrix
        a = request.encode(features[few], targets[few])
        np.testing.assert_array_equal(np.einsum("ni,nj->nij", a, a), rows)
        products = a @ a.T
        squares = np.diag(products)
        sums = squares[:, None] + squares
        twice = 4 if request.kind is Epsilon else 2
        sizes = (sums**2 if request.kind is Epsilon else squares[:, None] ** 2 + squares**2) - twice * products**2
        first, second = np.unravel_index(np.argmax(sizes), sizes.shape)
        worst = float(shape.gauge((rows[first] - rows[second]).astype(float))) / scale
    (cost,) = request.costs
    allowed = cost.ratio
    assert worst <= allowed * (1 + 1e-9), f"{type(request).__name__} moves by {worst:.6g}, and costs {allowed:.6g}"
    return worst / allowed


def every_request_moves_by_at_most_what_it_costs(seed, kinds=KINDS):
    """The law that planted bugs must break: over all domains and losses, at models of all sizes."""
    shares: dict[str, float] = {}
    for number, (domain, d) in enumerate(kinds):
        for kind, intercept in ((Epsilon, bool(number % 2)), (Rho, not number % 2)):
            plan = plan_of(LOSSES[(number + seed) % 3], domain, d, intercept, kind)
            features, targets = prepared(plan.problem, seed)
            for place, x in enumerate(models(plan.problem, seed)):
                for request in requests_of(plan, x, [seed, place]):
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        share = moves_at_most(request, features, targets)
                    name = type(request).__name__
                    shares[name] = max(shares.get(name, 0.0), share)
    return shares


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2, 3))])
def test_every_request_moves_by_at_most_what_it_costs(seed):
    shares = every_request_moves_by_at_most_what_it_costs(seed)
    # And some pair of records moves it by nearly as much: no noise is wasted, and the check sees what is wrong.
    assert min(shares.values()) > 0.99, shares


def frames_hold_whatever_was_released(seed):
    """Sizes are negative, zero, huge or tiny: the frame is finite, and its lengths and weights are positive."""
    rng = np.random.default_rng(seed)
    for (domain, d), intercept in itertools.product(KINDS, (False, True)):
        layout = Layout(problem_of(es.Logistic(), domain, d, intercept))
        statistics = layout.statistics(Epsilon, 0.03)
        count = sum(each.problem.dimension for each in statistics)
        noise = np.concatenate([each.deviations for each in statistics])
        assert np.all(noise > 0)
        for size in (0.0, 1e-300, 1e-3, 1.0, 1e6, 1e290):
            for sizes in (size * rng.normal(size=count), np.full(count, -size), np.full(count, size)):
                frame = layout.frame(layout.sizes(sizes, statistics))
                assert frame.k == layout.k == frame.T.shape[1]
                numbers = np.concatenate([frame.weights, frame.guess, [frame.length]])
                assert np.all(np.isfinite(numbers))
                assert np.all(numbers > 0)
                assert np.all(np.isfinite(frame.T))
                assert frame.constant >= 0
                assert (frame.constant > 0) == layout.has_constant


def test_frames_hold_whatever_was_released():
    frames_hold_whatever_was_released(1)


@pytest.mark.parametrize(("domain", "d"), KINDS, ids=str)
@pytest.mark.parametrize("intercept", [False, True])
def test_complete_records_follow_from_their_frame_and_others_count_as_0(domain, d, intercept):
    plan = plan_of(es.Logistic(), domain, d, intercept)
    features, targets = prepared(plan.problem, 3)
    x = 0.3 * np.random.default_rng(3).normal(size=plan.problem.dimension)
    layout = plan.layout
    frame = dataclasses.replace(layout.frame(layout.even()), length=1e3)  # no record is shortened
    request = plan.curvature_at(x, frame)
    a = request.encode(features, targets) * math.sqrt(frame.length) / 2**16
    complete = np.ones(len(features), dtype=bool)
    for start, stop in domain.categories:
        complete &= np.sum(features[:, start:stop] == STEPS, axis=1) == 1
    real = features * plan.problem.units / STEPS
    bend = plan.problem.loss.second(real @ x, targets)
    assert complete.sum() > 5
    assert bool(domain.categories) == bool((~complete).any())
    expected = np.sqrt(bend)[:, None] * real
    np.testing.assert_allclose(a[complete] @ frame.T.T, expected[complete], atol=2e-3 * plan.problem.units.max() * 4)
    assert not a[~complete].any()
    for mean in plan.sizes_at(x):
        of_none = mean.block(features[~complete], targets[~complete])
        assert np.all(of_none == (-np.sum(~complete) * 2**40 if type(mean).__name__ == "Squares" else 0))


@pytest.mark.parametrize("loss", [*LOSSES, es.Squared(2.0)], ids=lambda loss: type(loss).__name__)
def test_shares_of_the_curvature_are_those_of_the_second_derivative(loss):
    margins = np.concatenate([np.linspace(-20, 20, 4001), [0.0, 1e30, -1e300, np.nan]])
    for target in loss.encode(loss.targets.extremes.astype(float)):
        targets = np.full(margins.shape, target, dtype=np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            shares = loss.bend_shares(margins, targets)
        known = slice(0, -3)
        np.testing.assert_allclose(
            shares[known] * loss.curvature, loss.second(margins, targets)[known], rtol=2e-6, atol=1e-9 * loss.curvature
        )
        assert np.all((shares >= 0) & (shares <= 1))


def noise_has_its_declared_size(seed):
    """Scales by hand, and the mean square of what is drawn against them."""
    for kind in (Epsilon, Rho):
        plan = plan_of(es.Logistic(), es.Box(-2, 2), 2, True, kind)
        x = np.zeros(3)
        means, squares = plan.sizes_at(x)
        # A record moves (q z, q) by 2 in each coordinate, q z² by 1, and what is spread by 1: in L1, or in L2.
        by_hand = {Epsilon: (6.0, 2.0, 2.0), Rho: (2 * 3**0.5, 2**0.5, 2**0.5)}[kind]
        for request, size in zip((means, squares, one_dispersion(plan, x)), by_hand, strict=True):
            noise = request.statistic.mechanism
            body = noise.norm == "body"
            assert request.statistic.problem.sensitivity(noise.norm) == pytest.approx(2.0 if body else size)
            (cost,) = request.costs
            assert cost.amount == pytest.approx(request.statistic.cost, rel=1e-9)
            drawn = _drawn(request, seed, 300) * request._release.step[:, 0]
            expected = (request.statistic.deviations * plan.problem.n) ** 2
            ratio = np.mean(drawn**2, axis=0) / expected
            assert np.all(np.abs(ratio - 1) < 0.6), f"noise of {noise.name} has {ratio} times its variance"
    for kind in (Epsilon, Rho):
        plan = plan_of(es.Logistic(), es.Box(-2, 2), 2, False, kind)
        curvature = plan.curvature_at(np.zeros(2), plan.layout.frame(plan.layout.even()))
        k, share, count = plan.layout.k, plan.curvature, 1200
        assert curvature.frame.k == k == 2
        scale = 2.0**32 / (share if kind is Epsilon else math.sqrt(share))
        traces = _drawn(curvature, seed, count).reshape(count, k, k).trace(axis1=1, axis2=2) / scale
        # That of a Wishart matrix of k + 1 degrees is c times a chi-squared variable of k (k + 1).
        ratio = float(np.mean(traces**2)) / (4 * k * (k + 1) if kind is Epsilon else k)
        assert abs(ratio - 1) < 0.24, f"noise of the curvature has {ratio:.3f} times the variance of its trace"


def _drawn(request, seed, count):
    source = Source(seed)
    return np.array([request.draw(source)["noise"].ravel().astype(float) for _ in range(count)])


def test_noise_has_its_declared_size():
    noise_has_its_declared_size(1)


def records(problem, seed=0):
    rng = np.random.default_rng(seed)
    X = problem.domain.project(rng.uniform(-1, 1, (problem.n, problem.d)) * problem.domain.units(problem.d))
    for start, stop in problem.domain.one_hot:
        X[:, start:stop] = np.eye(stop - start)[rng.integers(stop - start, size=problem.n)]
        X[::7, start:stop] = 0.0
    signal = X @ np.ones(problem.d) / problem.units[: problem.d].sum() + 0.3 * rng.normal(size=problem.n)
    classes = getattr(problem.loss, "classes", None)
    return X, np.where(signal > 0, 1, -1) if classes else signal


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_engines_agree_bit_for_bit(loss, tmp_path):
    pytest.importorskip("numba")
    problem = problem_of(loss, es.Box(-1, 6, one_hot=[(0, 2), (2, 5)]), 6, n=20_011)
    X, y = records(problem)
    np.save(tmp_path / "X.npy", X)
    streamed = np.load(tmp_path / "X.npy", mmap_mode="r")
    plan = es.plan(problem, es.Pure(2.0), "objective", intervals=0.95, robust=True)
    sources = [(X, "numpy"), (X, "fast"), (scipy.sparse.csr_array(X), "auto"), (streamed, "numpy")]
    first, *others = (es.run(plan, es.Rows(problem, A, y, engine=engine), seed=4) for A, engine in sources)
    assert set(first.extras) == {"sizes", "curvature", "dispersion"}
    for run in others:
        np.testing.assert_array_equal(run.path, first.path)
        for name, published in first.extras.items():
            np.testing.assert_array_equal(run.extras[name], published)


def test_blocks_of_any_size_add_up_to_the_same():
    for domain, d in KINDS[-5:]:
        plan = plan_of(LOSSES[0], domain, d)
        features, targets = prepared(plan.problem, 5, count=3000)
        for request in requests_of(plan, next(models(plan.problem, 5)), 5):
            whole = request.block(features, targets)
            assert whole.dtype == np.int64
            for size in (1, 7, 1000):
                count = 200 if size < 10 else len(features)
                ends = [*range(0, count, size), count]
                parts = [request.block(features[i:j], targets[i:j]) for i, j in itertools.pairwise(ends)]
                expected = whole if count == len(features) else request.block(features[:count], targets[:count])
                np.testing.assert_array_equal(np.sum(parts, axis=0), expected)


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: type(budget).__name__)
@pytest.mark.parametrize("loss", [*LOSSES, es.Squared(0.7)], ids=lambda loss: type(loss).__name__)
def test_costs_add_up_and_a_plan_that_overspends_is_refused(budget, loss):
    for domain, d in KINDS[::3]:
        problem = problem_of(loss, domain, d)
        plan = es.plan(problem, budget, "objective", intervals=0.9)
        assert isinstance(plan, IntervalPlan)
        assert plan.mode == "measured"
        assert 0.999 * budget.amount < plan.spent <= budget.amount
        assert (plan.dispersion > 0) == (not isinstance(loss, es.Logistic))
        assert es.Plan.from_json(plan.to_json()) == plan
        alone = es.plan(problem, budget, "objective", mechanism=plan.mechanism)
        assert plan.utility.expected >= alone.utility.expected
        if plan.is_pure:
            total = math.fsum([*plan.costs, plan.sizes, plan.curvature, plan.dispersion])
            assert total <= budget.capacity(Epsilon)
            assert math.fsum(cost.amount for cost in plan.allowance) == pytest.approx(total, rel=1e-12)
        for name in ("sizes", "curvature", *(["dispersion"] if plan.dispersion else [])):
            with pytest.raises(OverspentError, match="more than its budget"):
                dataclasses.replace(plan, **{name: 1.1 * getattr(plan, name)})
            edited = json.loads(plan.to_json()) | {name: 0.9 * getattr(plan, name)}
            with pytest.raises(es.PlanFormatError, match="was changed"):
                es.Plan.from_json(json.dumps(edited))


def gaussian_releases_are_composed_with_the_tilt(seed):
    """The certificate against corners that are composed here; sharing rho as if the tilt were Gaussian overspends."""
    for loss, (domain, d) in itertools.product(LOSSES, (KINDS[0], KINDS[8])):
        budget = es.Approximate(1.0, 1e-6)
        plan = plan_intervals(problem_of(loss, domain, d, n=20_000), budget, mechanism="gaussian")
        assert plan.mode == "measured"
        rho = math.fsum([plan.sizes, plan.curvature, plan.dispersion])
        first = plan.of_the_minimum
        assert plan.spent <= composed([first.cost, GAUSSIAN.scaled(math.sqrt(2 * rho))]).epsilon(1.0, 1e-6) * (1 + 1e-9)
        left = 1.0 - plan.output_costs[0]
        best = best_corners(plan.saturation, plan.kappa, math.hypot(plan.costs[0], math.sqrt(2 * rho)), left)
        whole = composed([best.scaled(plan.costs[0]), GAUSSIAN.scaled(math.sqrt(2 * rho))])
        assert plan.spent == pytest.approx(whole.epsilon(1.0, 1e-6) + plan.output_costs[0], rel=1e-6)
        assert first.spent < 0.98 * plan.spent
        assert 0.999 < plan.spent <= 1.0
        assert plan.cost.epsilon(1.0, 1e-6) == pytest.approx(plan.spent, rel=1e-6)
        units = {cost.unit: cost.amount for cost in plan.allowance if cost.unit != "rho"}
        assert units.keys() == {"mu", "epsilon"}
        assert math.fsum(cost.amount for cost in plan.allowance if cost.unit == "rho") == pytest.approx(rho)


def test_gaussian_releases_are_composed_with_the_tilt():
    gaussian_releases_are_composed_with_the_tilt(1)


@pytest.mark.parametrize("budget", [es.Pure(1.0), es.Approximate(1.0, 1e-6)], ids=lambda budget: type(budget).__name__)
def test_a_ledger_is_charged_for_all_of_it(budget, tmp_path):
    problem = problem_of(es.Logistic(), es.Box(0, 1), 2, n=5000)
    ledger = es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", budget)
    account = ledger.account("people")
    mechanism = "gaussian" if budget.delta else "auto"
    plan = es.plan(problem, budget, "objective", intervals=0.95, mechanism=mechanism)
    rows = es.Rows(problem, *records(problem))
    es.run(plan, rows, ledger=account)
    with pytest.raises(es.BudgetExceededError):
        es.run(plan, rows, ledger=account)
    ledger.create("few", dataclasses.replace(budget, epsilon=0.99))
    with pytest.raises(es.BudgetExceededError):
        ledger.account("few").charge(plan.cost, note="less than all of it")


def test_shares_are_those_of_the_public_rule():
    problem = problem_of(es.Logistic(), es.Box(0, 1), 5, n=10_000)
    plan = es.plan(problem, es.Pure(1.0), "objective", intervals=True)
    k = 6
    whole = 3.33 * k**2 * (1 + 3 * math.sqrt(2 / k)) / 10_000
    share = 0.7 * math.sqrt(whole)
    assert plan.level == 0.95
    assert plan.layout.k == k
    assert plan.share == pytest.approx(share, rel=1e-8)
    assert plan.r == pytest.approx(whole / share, rel=1e-8)
    assert plan.sizes == pytest.approx(0.03, rel=1e-8)
    rho = headline(problem, Rho, 0.02)
    whole = math.sqrt(2) * k**1.5 * (1 + 3 * math.sqrt(2 / k)) / 10_000 / math.sqrt(0.02)
    assert rho.r == pytest.approx(whole / math.sqrt(rho.share))
    assert rho.share == pytest.approx(min(max(0.7 * whole, 0.05), 0.3))


def test_coordinates_are_counted_as_they_are_executed():
    counted = {
        (es.Box(-1, 1), 4, False): 4,
        (es.Box(-1, 1), 4, True): 5,
        (es.Box(0, 1), 4, False): 5,
        (es.Ball(1.0), 4, False): 4,
        (es.Box(-1, 1, one_hot=[(0, 3)]), 4, False): 4,
        (es.Box(0, 1, one_hot=[(0, 3)]), 3, False): 3,
        (es.Box(0, 1, one_hot=[(0, 2), (2, 4)]), 4, True): 3,
    }
    for (domain, d, intercept), k in counted.items():
        assert plan_of(es.Logistic(), domain, d, intercept).layout.k == k


def test_where_noise_drowns_the_curvature_nothing_is_bought():
    for loss, n, reason in (
        (es.Logistic(), 300, "r = "),
        (es.Softmax(), 100_000, "several outputs"),
        (PseudoHuber(1.0, 0.4), 300, "r = "),
    ):
        problem = problem_of(loss, es.Box(0, 1), 5, n=n)
        for budget in BUDGETS:
            plan = es.plan(problem, budget, "objective", intervals=0.95)
            alone = plan_objective(problem, budget)
            assert plan.mode == "provable"
            assert (plan.share, plan.sizes, plan.curvature, plan.dispersion) == (0, 0, 0, 0)
            assert plan.r > 1
            assert plan.scales == alone.scales
            assert plan.spent == alone.spent
            assert reason in plan.facts["Intervals"]
            assert es.Plan.from_json(plan.to_json()) == plan
        X, y = records(problem_of(es.Logistic(), es.Box(0, 1), 5, n=n))
        run = es.run(plan, es.Rows(problem, X, y), seed=1)
        assert run.extras == {}
        assert plan.released(run.x, run.extras, no_tilts).matrix is None
        assert run.x.shape == (problem.dimension,)


def test_what_has_no_intervals_says_what_to_do():
    problem = problem_of(es.Logistic(), es.Box(0, 1), 3)
    for method in ("output", "curvature", "descent", "sequential", es.nesterov):
        with pytest.raises(TypeError, match="buys no intervals: use method='objective'"):
            es.plan(problem, es.Pure(1.0), method, intervals=0.95)
    for wrong in (0, 1, 1.5, -0.1, math.nan):
        with pytest.raises(ValueError, match="intervals"):
            es.plan(problem, es.Pure(1.0), "objective", intervals=wrong)
    with pytest.raises(TypeError, match="intervals"):
        es.plan(problem, es.Pure(1.0), "objective", intervals="0.95")
    with pytest.raises(ValueError, match="leave shares out"):
        es.plan(problem, es.Pure(1.0), "objective", intervals=0.95, shares=(0.5, 0.5))
    with pytest.raises(ValueError, match="robust=True is for intervals"):
        es.plan(problem, es.Pure(1.0), "objective", robust=True)
    assert es.plan(problem, es.Pure(1.0), "objective", intervals=False) == plan_objective(problem, es.Pure(1.0))
    assert es.plan(problem, es.Pure(1.0), release="final", intervals=0.5).level == 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {"level": 1.0},
        {"level": math.nan},
        {"robust": 1},
        {"sizes": -0.01},
        {"sizes": 0.0},
        {"dispersion": 0.0},
        {"curvature": math.inf},
        {"scales": (1.0, 1.0), "output_scales": (1.0, 1.0)},
    ],
    ids=str,
)
def test_plans_that_make_no_sense_are_refused(changes):
    plan = plan_of(es.Logistic(), es.Box(0, 1), 3)
    with pytest.raises((ValueError, TypeError)):
        dataclasses.replace(plan, **changes)


class Many:
    """Records of which there are too many for 64 bits: their sums are Python's integers."""

    def __init__(self, each):
        self.each = each

    def total(self, block):
        one = block(*self.each)
        return one.astype(object) * 2**26


@pytest.mark.parametrize("kind", [Epsilon, Rho])
def test_sums_of_more_records_than_64_bits_hold_are_released_as_well(kind):
    n = 2**26
    budget = es.Pure(0.01) if kind is Epsilon else es.Approximate(0.01, 1e-6)
    mechanism = "laplace" if kind is Epsilon else "gaussian"
    problem = problem_of(es.Logistic(), es.Box(-1, 1), 2, n=n)
    plan = plan_intervals(problem, budget, mechanism=mechanism, robust=True)
    record = encoding.integers(problem, np.array([[0.5, -1.0]])).astype(float), np.ones(1, dtype=np.float32)
    x, frame = np.zeros(3), plan.layout.frame(plan.layout.even())
    means, squares = plan.sizes_at(x)
    # At x = 0 a record has the largest weight, 1, and a slope of 1/2.
    expected = {means: [0.5, -1.0, 1.0], squares: [0.25 - 0.5, 0.5], one_dispersion(plan, x): [0.25 - 0.5, 0.5]}
    of_each = plan.dispersion_at(x, 3 * np.eye(3))
    counts = 9 * np.array([0.25, 1.0, 1.0]) / of_each.cap
    expected[of_each] = np.append(0.25 * counts, counts) - 0.5
    for request, mean in expected.items():
        reading = request.read(Many(record), {})
        assert reading.dtype == np.int64
        found = request.publish(reading, {"noise": np.zeros(len(reading), dtype=np.int64)})
        np.testing.assert_allclose(found, mean, atol=1e-5)
    request = plan.curvature_at(x, frame)
    reading = request.read(Many(record), {})
    (a,) = request.encode(*record) * math.sqrt(frame.length) / 2**16
    found = request.publish(reading, {"noise": np.zeros((3, 3), dtype=np.int64)})
    np.testing.assert_allclose(found, np.outer(a, a), rtol=1e-9)
    assert pickle.loads(pickle.dumps(request.block))(*record).tolist() == request.block(*record).tolist()


def fits(seed):
    """Yield plans of every loss, over columns of all kinds, and in each currency, for few records."""
    rng = np.random.default_rng(seed)
    budgets = (es.Pure(300.0), es.Approximate(200.0, 1e-5), es.Concentrated(2000.0))
    for number, (domain, d) in enumerate(KINDS):
        loss, budget = (*LOSSES, es.Squared(0.7))[number % 4], budgets[number % 3]
        problem = es.Problem(loss, domain, ridge=0.2, n=40, d=d, intercept=bool(rng.integers(2)))
        mechanism = "gaussian" if budget.delta else "auto"
        yield problem, es.plan(problem, budget, "objective", intervals=0.95, mechanism=mechanism, robust=True)


def replay_intervals(seed):
    """Everything that is released, replayed on a neighbour: at the ends of the domain, and of no category."""
    rng = np.random.default_rng(seed)
    for problem, plan in fits(seed):
        assert plan.mode == "measured"
        ends = 1e6 * rng.choice([-1.0, 1.0], (problem.n, problem.d))
        y = rng.choice(problem.loss.targets.extremes, problem.n).astype(float)
        for other in (-ends[7], np.full(problem.d, np.nan)):
            X, labels = ends.copy(), y.copy()
            X[7], labels[7] = other, problem.loss.targets.extremes[0]

            def fit(data, account, plan=plan, problem=problem):
                return es.run(plan, es.Rows(problem, *data), ledger=account)

            found = replay(fit, (ends, y), (X, labels), costs=_amounts(plan))
            assert found.exception == "none"
            assert [event.kind for event in found.events][-1] == "reading by"


def _amounts(plan):
    return [charge.cost.amount if isinstance(charge.cost, Epsilon) else charge.cost.rho for charge in plan.charges]


def test_everything_is_replayed_on_a_neighbour():
    replay_intervals(1)


def test_nothing_after_the_last_release_reads_records():
    """What is published is handed over after the records are gone."""
    problem = problem_of(es.Logistic(), es.Box(0, 1), 2, n=5000)
    plan = es.plan(problem, es.Pure(1.0), "objective", intervals=0.95)
    X, y = records(problem)
    run = es.run(plan, es.Rows(problem, X, y), seed=1)
    conversation = plan.conversation()
    next(conversation)
    answers = [run.x, *np.split(run.extras["sizes"], [3]), run.extras["curvature"]]
    for answer in answers[:-1]:
        conversation.send(answer)
    with pytest.raises(StopIteration) as end:
        conversation.send(answers[-1])
    np.testing.assert_array_equal(end.value.value.extras["curvature"], run.extras["curvature"])


def no_tilts(generator, count):
    raise AssertionError("nothing is drawn before intervals are asked for")


@pytest.mark.parametrize("mechanism", ["hull", "gaussian"])
def test_what_is_released_is_the_curvature_and_the_dispersion(mechanism):
    """With a large budget T A T' + ridge is the Hessian, and phi what slopes vary by along each row of its inverse."""
    for loss in LOSSES:
        problem = problem_of(loss, es.Box(-1, 6, one_hot=[(0, 2), (2, 5)]), 6, n=20_000)
        X, y = records(problem)
        X[::7, :5] = 0.0
        X[::7, [0, 2]] = 1.0
        plan = es.plan(
            problem, es.Approximate(1e4, 1e-6), "objective", intervals=0.95, robust=True, mechanism=mechanism
        )
        rows = es.Rows(problem, X, y)
        run = es.run(plan, rows, seed=1)
        known = plan.released(run.x, run.extras, no_tilts)
        hessian = rows.hessian(run.x) + (plan.ridge - problem.ridge) * np.eye(problem.dimension)
        found = known.T @ known.matrix @ known.T.T + plan.ridge * np.eye(problem.dimension)
        assert np.abs(found - hessian).max() < 0.02 * np.abs(hessian).max()
        features, targets = (np.concatenate(parts) for parts in zip(*rows.blocks(), strict=True))
        margins = features @ run.x
        slopes, bends = loss.derivative(margins, targets), loss.second(margins, targets)
        rows = np.linalg.inv(hessian)
        along = [rows @ (features.T * weights) @ features @ rows.T for weights in (slopes**2, bends)]
        phi, scale = known.dispersion
        np.testing.assert_allclose(phi, np.diag(along[0]) / np.diag(along[1]), rtol=0.03)
        assert np.all(scale < 0.02 * phi)


def dispersions_are_capped_record_by_record(seed):
    """With a lever far above the cap on one column, a record counts the cap where that is not 0, and else nothing."""
    plan = plan_of(es.Logistic(), es.Box(0, 1), 2)
    features, targets = prepared(plan.problem, seed)
    x = np.array([-3.0, 2.0, 1.0])
    request = plan.dispersion_at(x, np.diag([1e6, 0.0, 0.0]))
    assert request.cap >= 6
    assert request.cap == pytest.approx(math.sqrt(plan.problem.n * plan.dispersion / 6))
    few = [request.block(features[i : i + 1], targets[i : i + 1]) for i in range(20)]
    assert np.all(np.abs(few) <= 2**40)
    assert {int(each[3]) for each in few} == {-(2**40), 2**40}
    assert {int(number) for each in few for number in each[[1, 2, 4, 5]]} == {-(2**40)}
    assert np.array_equal(np.sum(few, axis=0), request.block(features[:20], targets[:20]))
    small = plan.dispersion_at(x, 0.03 * np.eye(3)).block(features, targets)
    assert np.all(small < 0.9 * len(features) * 2**40)


def test_dispersions_are_capped_record_by_record():
    dispersions_are_capped_record_by_record(1)


@pytest.mark.parametrize(("loss", "budget"), [(LOSSES[0], es.Pure(1.0)), (LOSSES[1], es.Approximate(1.0, 1e-5))])
def test_audits_cover_every_release(loss, budget):
    problem = es.Problem(loss, es.Ball(1, norm=np.inf), ridge=0.1, n=4000, d=2)
    mechanism = "gaussian" if budget.delta else "auto"
    plan = es.plan(problem, budget, "objective", intervals=0.95, mechanism=mechanism, robust=True)
    heard = []
    found = es.audit(plan, repetitions=150, on_step=heard.append)
    assert found.consistent, found.violations
    assert len(found.steps) == len(plan.charges) == plan.requests
    assert sum(heard) == es.auditing.work(plan)
    assert 0.2 * found.claimed < found.lower_bound <= found.claimed
    assert found.claimed == pytest.approx(budget.amount, rel=1e-3)


def test_repetitions_and_checkpoints(tmp_path):
    problem = problem_of(es.Logistic(), es.Box(0, 1), 2, n=5000)
    plan = es.plan(problem, es.Pure(1.0), "objective", intervals=0.95)
    X, y = records(problem)
    several = es.run(plan, es.Rows(problem, X, y), seed=1, repetitions=2)
    assert several.extras["curvature"].shape == (3, 3, 2)
    assert several.spent == pytest.approx(2.0, rel=1e-6)
    saved = es.run(plan, es.Rows(problem, X, y), checkpoint=tmp_path / "run.db")
    again = es.run(plan, es.Rows(problem, X, y), checkpoint=tmp_path / "run.db")
    for name in saved.extras:
        np.testing.assert_array_equal(saved.extras[name], again.extras[name])


def test_the_page_has_a_line_for_every_release_and_says_which_intervals_it_leads_to():
    plan = plan_of(LOSSES[1], es.Box(0, 1, one_hot=[(0, 2)]), 4)
    page = str(plan)
    for words in ("weighed means", "weighed squares", "curvature", "dispersion", "measured", "r ="):
        assert words in page
    assert plan.certificate()["intervals"] == "measured"
    assert len([name for name in plan.certificate() if name.startswith("release")]) == 5
