"""Scores that are bought: what is counted, what it costs, what follows from it, and what neighbours can tell.

Laws of the releases take a seed and raise AssertionError: planted bugs are held against them at the end.
"""

import dataclasses
import itertools
import json
import math
import warnings

import combinations
import numpy as np
import pytest
from combinations import rows_of, sources_here
from scipy import stats
from scipy.special import expit, softmax

import epsteps as es
from epsteps.budgets import mechanisms
from epsteps.ledger.parts import Disjoint, price_of_parts, split
from epsteps.methods import evaluation as releases
from epsteps.methods.evaluation import (
    FLOOR,
    LARGEST_LOSS,
    STEPS,
    Confusion,
    Errors,
    ErrorSizes,
    EvaluationPlan,
    Losses,
    Scores,
    plan_evaluation,
)
from epsteps.noise import Source
from epsteps.running.run import Reader
from epsteps.tables.evaluation import Evaluation
from epsteps.testing import ReplayError, replay

LAPLACE, GAUSSIAN = (mechanisms.named(name) for name in ("laplace", "gaussian"))
BUDGETS = (es.Pure(1.0), es.Concentrated(0.1), es.Approximate(1.0, 1e-6))
LOSSES = {
    "two": es.Logistic(),
    "hinge": es.SmoothedHinge(),
    "several": es.Softmax((0, 1, 2)),
    "numbers": es.Squared(2.0),
}


def problem_of(kind, n, d=2):
    return es.Problem(LOSSES[kind], es.Box(-1, 2), ridge=0.1, n=n, d=d, intercept=True)


def point_of(problem, seed=0):
    return np.random.default_rng(seed).normal(size=problem.dimension)


def records_of(problem, seed=0):
    """Return records, some beyond the domain, and targets, some beyond the declared range."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.2, 2.2, (problem.n, problem.d))
    classes = getattr(problem.loss.targets, "classes", None)
    return X, rng.normal(0, 2, problem.n) if classes is None else rng.choice(np.array(classes), problem.n)


def requests_of(kind, n, noise=LAPLACE, cost=0.5):
    """Return every release that a model with such targets may be evaluated by."""
    problem = problem_of(kind, n)
    given = (problem, point_of(problem), noise, cost)
    if kind == "several":
        return [Confusion(*given, 2), Losses(*given)]
    if kind == "numbers":
        return [ErrorSizes(*given, np.array([0.3, 1.0, 2.0])), Errors(*given, 1.5)]
    return [Scores(*given, np.array([-0.5, 0.0, 1.0]), by_class) for by_class in (False, True)]


def read(request, X, y):
    return request.read(Reader(es.Rows(request.problem, X, y, engine="numpy")), {})


def margins_of(problem, x, X):
    rows = np.column_stack([problem.domain.project(X), np.ones(len(X))])
    return rows @ x.reshape(problem.loss.outputs, problem.width).T


# --- laws of the releases -------------------------------------------------------------------------------------------


def corners(problem):
    """Return records at the ends of the domain and inside it, with every class, or targets at both ends and between."""
    ends = np.array(list(itertools.product((-1.0, 0.4, 2.0), repeat=problem.d)))
    targets = getattr(problem.loss.targets, "classes", (-2.0, 0.0, 0.7, 2.0))
    return [(row, target) for row in ends for target in targets]


def neighbours_cost_what_they_are_said_to(seed):
    """Enumerate all pairs of records among the ends: what one moves, in the noise's own law, is never above the cost.

    Noise is additive, so that the log-ratio of two laws is largest far out: the norm of the change over the scale.
    """
    for kind, noise in itertools.product(LOSSES, (LAPLACE, GAUSSIAN)):
        for request in requests_of(kind, 2, noise):
            problem = request.problem
            other = (np.zeros(problem.d), corners(problem)[0][1])
            known = np.array(
                [
                    read(request, np.array([row, other[0]]), np.array([target, other[1]]))
                    for row, target in corners(problem)
                ]
            ).astype(float)
            moved = known[:, None] - known[None, :]
            sizes = np.abs(moved).sum(axis=2) if noise is LAPLACE else np.sqrt((moved**2).sum(axis=2))
            drawn = noise_scale(request)
            worst = sizes.max() / drawn
            worst = worst if noise is LAPLACE else worst**2 / 2
            (cost,) = request.costs
            assert worst <= cost.amount * (1 + 1e-9), f"{request.what}: {worst:.6g} of {cost.amount:.6g}"
            assert cost.amount <= 0.5 * (1 + 1e-9)
            if kind != "numbers":
                assert worst > 0.8 * cost.amount, f"{request.what}: the claim is far from attained, {worst:.6g}"


def noise_scale(request):
    """Return the scale of the noise that a request draws, by what it asks its source for."""
    asked = []

    class Listening(Source):
        def integers(self, mechanism, scale, shape, body=None):
            asked.append(scale)
            return super().integers(mechanism, scale, shape, body)

    request.draw(Listening(0))
    (scale,) = asked
    return float(scale)


def test_neighbours_cost_what_they_are_said_to():
    neighbours_cost_what_they_are_said_to(seed=1)


def laws_are_those_of_enumeration(seed):
    """Publish a histogram of two records many times: every outcome is as likely as its law says (error rate 1e-6)."""
    problem = problem_of("two", 2)
    request = Scores(problem, point_of(problem), LAPLACE, 2.0, np.array([0.0]), False)
    X, y = records_of(problem)
    counts = read(request, X, y)
    runs = np.array([request.publish(counts, request.draw(Source(1000 * seed + i))) for i in range(4000)])
    support = np.arange(-12, 13)
    q = math.exp(-1 / request.scale)
    law = (1 - q) / (1 + q) * q ** np.abs(support)
    for place in range(2):
        found = np.array([np.sum(runs[:, place] - counts[place] == k) for k in support])
        kept = law * len(runs) > 5
        rest = len(runs) - found[kept].sum(), len(runs) * (1 - law[kept].sum())
        observed, expected = np.append(found[kept], rest[0]), np.append(law[kept] * len(runs), rest[1])
        assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-6


def test_laws_are_those_of_enumeration():
    laws_are_those_of_enumeration(seed=1)


@pytest.mark.parametrize("kind", LOSSES)
def test_what_is_counted_is_what_is_computed_by_hand(kind):
    n = 300
    first, second = requests_of(kind, n)
    problem, x = first.problem, first.x
    X, y = records_of(problem)
    margins, targets = margins_of(problem, x, X), problem.loss.encode(np.asarray(y, dtype=float))
    if kind == "several":
        likely = softmax(margins, axis=1)
        place = (y.astype(int) * 3 + margins.argmax(axis=1)) * 2 + (likely.max(axis=1) >= 2 / 3)
        np.testing.assert_array_equal(read(first, X, y), np.bincount(place, minlength=18))
        losses = -np.log(np.maximum(likely[np.arange(n), y.astype(int)], FLOOR)) / LARGEST_LOSS
        np.testing.assert_allclose(read(second, X, y)[0] / STEPS, losses.sum(), atol=0.01)
    elif kind == "numbers":
        errors = np.abs(np.clip(margins[:, 0], -2, 2) - targets)
        sizes = [np.sum((errors > low) & (errors <= high)) for low, high in ((-1, 0.3), (0.3, 1), (1, 2), (2, 9))]
        np.testing.assert_array_equal(read(first, X, y), sizes)
        held, t = np.minimum(errors / 1.5, 1), targets / 2
        wanted = [np.sum(held**2), np.sum(held), np.sum((t + 1) / 2), np.sum(t**2)]
        np.testing.assert_allclose(read(second, X, y) / STEPS, wanted, atol=0.01)
    else:
        buckets = np.digitize(margins[:, 0], [-0.5, 0.0, 1.0], right=True)
        np.testing.assert_array_equal(read(first, X, y), np.bincount(buckets, minlength=4))
        np.testing.assert_array_equal(read(second, X, y), np.bincount(buckets + 4 * (targets > 0), minlength=8))


@pytest.fixture
def _without_a_card(monkeypatch):
    """Let torch compute without a card."""
    if "gpu" in sources_here():
        from epsteps.data.gpu import records as card

        found = card.find_device
        monkeypatch.setattr(card, "find_device", lambda device=None: found(device or "cpu"))


def sources_for(problem):
    """Return the sources that such records are read from: compiled kernels compute one margin."""
    return [source for source in sources_here() if source != "fast" or problem.loss.outputs == 1]


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.usefixtures("_without_a_card")
def test_all_sources_and_engines_count_the_same(kind, tmp_path):
    for request in requests_of(kind, 200):
        X, y = records_of(request.problem)
        sources = sources_for(request.problem)
        answers = [request.read(Reader(rows_of(source, request.problem, X, y, tmp_path)), {}) for source in sources]
        for answer in answers[1:]:
            np.testing.assert_array_equal(answer, answers[0])


def run_of(plan, rows, **options):
    return es.run(plan, rows, anyway=True, **options)


def replay_evaluations(seed):
    """Replay on the worst neighbours of every kind of target and budget: none moves by more than it costs."""
    for kind, budget in itertools.product(LOSSES, BUDGETS):
        problem = problem_of(kind, 400)
        plan = plan_evaluation(problem, budget, point_of(problem, seed))
        X, y = records_of(problem, seed)
        largest = 0.0
        ends = corners(problem)
        for one, other in ((ends[0], ends[-1]), (ends[-1], ends[1]), (ends[2], (np.full(2, np.nan), np.nan))):
            data = [(X.copy(), np.array(y, dtype=float)) for _ in range(2)]
            for (rows, targets), (row, target) in zip(data, (one, other), strict=True):
                rows[7], targets[7] = row, target
            found = replay(
                lambda given, account, plan=plan, p=problem: run_of(plan, es.Rows(p, *given), ledger=account), *data
            )
            assert found.charges == (plan.spending(),)
            largest = max(largest, found.spent / plan.spending().amount)
        assert largest > (0.3 if kind == "numbers" else 0.6), (kind, budget, largest)


def test_replay_evaluations():
    replay_evaluations(seed=1)


def audit_evaluations(seed):
    for kind, budget in (("two", es.Pure(1.0)), ("several", es.Concentrated(0.1)), ("numbers", es.Pure(1.0))):
        problem = problem_of(kind, 300)
        plan = plan_evaluation(problem, budget, point_of(problem))
        found = es.audit(plan, repetitions=300, seed=seed)
        assert found.consistent, (kind, found.violations)


def test_audit_evaluations():
    audit_evaluations(seed=1)


def _drawn_plan(rng):
    """Return a problem, a budget, a model and options, all drawn from the axes of the library's combinations."""

    def one(values):
        return values[int(rng.integers(len(values)))]

    loss = one([loss for loss in combinations.LOSSES if loss.__class__.__module__.startswith("epsteps.")])
    domain, d = one(one(list(combinations.DOMAINS.values())))
    facts = {name: one(values) for name, values in combinations.FACTS.items() if name != "smoothness"}
    problem = es.Problem(loss, domain, d=d, **facts)
    budget = one(list(combinations.BUDGETS.values()))(one(combinations.AMOUNTS))
    x = rng.normal(size=problem.dimension) * one((0.0, 1.0, 1e3, 1e150))
    options = (
        one(({}, {"buckets": 2}, {"buckets": 9}))
        if hasattr(loss.targets, "classes")
        else one(({}, {"error_bound": 0.1}))
    )
    return problem, budget, x, options


def executable(problem, budget, x, options):
    """Return the plan, or None where it is refused, which takes a sentence."""
    try:
        plan = plan_evaluation(problem, budget, x, **options)
        plan.require_executable()
    except ValueError as error:
        return None if str(error).endswith(".") else pytest.fail(str(error))
    return plan


@pytest.mark.usefixtures("_without_a_card")
def test_every_combination_is_refused_or_keeps_its_certificate(tmp_path):
    """Losses, domains, budgets, sources, models and hostile records: after the charge nothing raises or warns."""
    rng, executed, largest = np.random.default_rng(5), 0, 0.0
    for _ in range(40):
        problem, budget, x, options = _drawn_plan(rng)
        source = str(rng.choice(sources_for(problem)))
        if (plan := executable(problem, budget, x, options)) is None:
            continue
        assert EvaluationPlan.from_json(plan.to_json()) == plan
        for pair in combinations.datasets(problem, str(rng.choice(combinations.RECORDS)), int(rng.integers(2**31))):

            def fit(data, account, plan=plan, problem=problem, source=source):
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    result = run_of(plan, rows_of(source, problem, *data, tmp_path), ledger=account)
                    Evaluation(plan, result.extras, "held out").to_dict()
                    return result

            found = replay(fit, *pair)
            assert found.exception == "none", found.exception
            executed, largest = executed + 1, max(largest, found.spent / plan.spending().amount)
    assert executed > 40
    assert largest > 0.6


@pytest.mark.parametrize("kind", LOSSES)
def test_an_interrupted_evaluation_goes_on_from_its_checkpoint(kind, tmp_path):
    problem = problem_of(kind, 400)
    plan, (X, y) = plan_evaluation(problem, es.Pure(1.0), point_of(problem)), records_of(problem)
    file = tmp_path / "run.db"
    first = run_of(plan, es.Rows(problem, X, y), checkpoint=file)
    again = run_of(plan, es.Rows(problem, X, y), checkpoint=file)
    for name, values in first.extras.items():
        np.testing.assert_array_equal(again.extras[name], values)


# --- plans ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "budget"), list(itertools.product(LOSSES, BUDGETS)), ids=str)
def test_plans_are_made_before_records_and_read_back(kind, budget):
    problem = problem_of(kind, 3000)
    plan = plan_evaluation(problem, budget, point_of(problem), unit=3.0)
    assert 0.99 * budget.amount < plan.spent <= budget.amount
    assert es.Plan.from_json(plan.to_json()) == plan
    assert max(map(len, str(plan).split("\n"))) <= 80
    changed = json.loads(plan.to_json())
    changed["certificate"]["spent"] *= 0.5
    with pytest.raises(es.PlanFormatError, match="changed"):
        es.Plan.from_json(json.dumps(changed))


def test_the_quieter_noise_is_chosen():
    problem = problem_of("two", 3000)
    x = point_of(problem)
    chosen = [plan_evaluation(problem, budget, x).mechanism for budget in (*BUDGETS, es.Approximate(1.0, 0.3))]
    assert chosen == ["laplace", "gaussian", "laplace", "gaussian"]


def test_more_records_or_budget_mean_more_buckets():
    buckets = [
        plan_evaluation(problem_of("two", n), es.Pure(epsilon), np.ones(3)).buckets
        for n, epsilon in ((100, 0.1), (1000, 0.2), (1000, 1.0), (100_000, 1.0))
    ]
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1]) == (2, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": (1.0,)}, "finite numbers"),
        ({"x": (math.nan, 1.0, 1.0)}, "finite numbers"),
        ({"buckets": 1}, "buckets"),
        ({"placing": 1.0}, "placing"),
        ({"mechanism": "l2"}, "mechanism"),
        ({"unit": 0.0}, "unit"),
        ({"probabilities": "yes"}, "probabilities"),
    ],
)
def test_plans_that_are_none_are_refused(change, message):
    plan = plan_evaluation(problem_of("two", 300), es.Pure(1.0), np.ones(3))
    with pytest.raises((ValueError, TypeError), match=message):
        dataclasses.replace(plan, **change)


def test_options_are_for_their_targets():
    with pytest.raises(ValueError, match="buckets are for classes"):
        plan_evaluation(problem_of("numbers", 300), es.Pure(1.0), np.ones(3), buckets=4)
    with pytest.raises(ValueError, match="error_bound is for targets"):
        plan_evaluation(problem_of("two", 300), es.Pure(1.0), np.ones(3), error_bound=1.0)


# --- scores ---------------------------------------------------------------------------------------------------------

sklearn = pytest.importorskip("sklearn")
from epsteps.estimators import (  # noqa: E402
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearch,
    UnprotectedScores,
)


def estimators():
    """Return fitted estimators by name, and records that they were not fitted to."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 1, (6000, 3))
    margins = X @ [4.0, -3.0, 1.0] - 1 + rng.logistic(size=6000)
    y = {
        "logistic": (margins > 0).astype(int),
        "svc": (margins > 0).astype(int),
        "softmax": np.digitize(margins, [-1, 1]),
        "ridge": 20 + 10 * X[:, 0] + rng.normal(0, 2, 6000),
    }
    given = {"bounds": (0, 1), "epsilon": 50.0, "random_state": 1, "anyway": True}
    models = {
        "logistic": PrivateLogisticRegression(classes=(0, 1), **given),
        "svc": PrivateLinearSVC(classes=(0, 1), **given),
        "softmax": PrivateLogisticRegression(classes=(0, 1, 2), **given),
        "ridge": PrivateRidge(target_bounds=(0, 50), **given),
    }
    return {name: (model.fit(X[:3000], y[name][:3000]), (X[3000:], y[name][3000:])) for name, model in models.items()}


@pytest.fixture(scope="module")
def fitted():
    return estimators()


@pytest.mark.parametrize("name", ["logistic", "svc", "softmax", "ridge"])
def test_without_noise_to_speak_of_scores_are_the_unprotected_ones(fitted, name):
    model, data = fitted[name]
    truth = es.unprotected_scores(model, *data)
    assert isinstance(truth, UnprotectedScores)
    found = es.evaluate(model, data, es.Pure(1e5))
    told = {metric.name: metric for metric in found.metrics("sample")}
    assert set(told) == set(truth.scores)
    for score, value in truth.scores.items():
        assert told[score].low - 1e-3 <= value <= told[score].high + 1e-3, (score, value, told[score])
        assert told[score].value == pytest.approx(value, rel=0.02), score
    if name == "ridge":
        assert found.calibration == []
        with pytest.raises(ValueError, match="no confusion"):
            found.confusion  # noqa: B018
    else:
        predicted, y = model.predict(data[0]), data[1]
        by_hand = [[np.sum((y == a) & (predicted == b)) for b in model.classes_] for a in model.classes_]
        np.testing.assert_allclose(found.confusion, by_hand, atol=0.1)
        assert bool(found.calibration) == (name != "svc")


def test_the_calibration_curve_is_the_share_of_the_second_class(fitted):
    model, (X, y) = fitted["logistic"]
    found = es.evaluate(model, (X, y), es.Pure(1e5))
    likely = expit(model.decision_function(X))
    assert len(found.calibration) >= 8
    for point in found.calibration:
        held = (likely > point["from"]) & (likely <= point["to"])
        assert point["share"] == pytest.approx(np.mean(y[held]), abs=1e-3)
        assert point["low"] <= point["share"] <= point["high"]


def test_intervals_cover_what_they_say(fitted):
    """Over 40 evaluations each: at 95 % fewer than 33 would happen by chance less than once in 10^3."""
    for name, (model, data) in fitted.items():
        truth = es.unprotected_scores(model, *data).scores
        covered = dict.fromkeys(truth, 0)
        for seed in range(40):
            found = es.evaluate(model, data, es.Pure(0.5), seed=seed)
            for metric in found.metrics("sample"):
                covered[metric.name] += metric.low <= truth[metric.name] <= metric.high
        assert min(covered.values()) > 32, (name, covered)


def test_an_evaluation_is_shown_and_written(fitted):
    model, data = fitted["softmax"]
    found = es.evaluate(model, data, es.Concentrated(0.5), rows="training")
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (content["rows"], content["private"], content["unit"]) == ("training", True, "rho")
    assert content["spent"] == found.plan.spent <= 0.5
    assert {"name", "value", "low", "high", "level"} <= set(content["metrics"][0])
    assert np.shape(content["confusion"]["counts"]) == (3, 3)
    text = str(found)
    assert "too good" in text
    assert "accuracy" in text
    assert "<table>" in found._repr_html_()
    assert found["accuracy"].low < found["accuracy"].value < found["accuracy"].high
    with pytest.raises(KeyError, match="no 'auc' here"):
        found["auc"]
    assert "NOT PRIVATE" in str(es.evaluate(model, data, es.Pure(0.5), seed=1))


def test_an_evaluation_is_drawn(fitted):
    pytest.importorskip("matplotlib").use("agg")
    for name in ("logistic", "ridge"):
        model, data = fitted[name]
        assert es.evaluate(model, data, es.Pure(5.0)).plot() is not None


def test_a_plan_is_approved_and_then_executed(fitted, tmp_path):
    model, data = fitted["logistic"]
    ledger = es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", es.Pure(1.0))
    plan = es.evaluation_plan(model, len(data[1]), es.Pure(0.25))
    assert es.evaluate(model, data, plan=plan, ledger=ledger.account("people")).plan is plan
    assert ledger.spent("people") == pytest.approx(0.25, rel=1e-6)
    with pytest.raises(ValueError, match="another model, or for 3000 records"):
        es.evaluate(model, (data[0][:50], data[1][:50]), plan=plan)
    with pytest.raises(ValueError, match="leave them out"):
        es.evaluate(model, data, plan=plan, buckets=2)
    with pytest.raises(TypeError, match="what may be spent"):
        es.evaluate(model, data)


def test_a_search_is_evaluated_as_its_best_model(fitted):
    X, y = fitted["logistic"][1]
    model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), anyway=True)
    search = PrivateSearch(model, {"ridge": [0.01, 0.1]}, trials=2)
    found = es.evaluate(search.fit(X, y), (X, y), es.Pure(1.0), rows="training")
    assert 0 <= found["accuracy"].value <= 1


# --- bad input ------------------------------------------------------------------------------------------------------


def test_targets_in_place_of_a_budget_are_refused_and_not_shown(fitted):
    model, (X, y) = fitted["logistic"]
    with pytest.raises(TypeError, match=r"not of type ndarray.*unprotected_scores"):
        es.evaluate(model, (X, y), y)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (lambda X, y: (X[:1], y[:1]), {}, "n must be"),
        (lambda X, y: (X[:3], y[:3]), {}, "nothing would be learned"),
        (lambda X, y: X, {}, r"pair \(X, y\)"),
        (lambda X, y: (X[:, :2], y), {}, "features"),
        (lambda X, y: (X, y[:-1]), {}, "3000|2999|inconsistent"),
        (lambda X, y: (X, y), {"rows": "test"}, "rows must be"),
        (lambda X, y: (X, y), {"level": 1.0}, "level must lie"),
        (lambda X, y: (X, y), {"buckets": 1}, "buckets"),
    ],
)
def test_bad_input_is_refused_before_the_charge(fitted, data, options, message, tmp_path):
    model, records = fitted["logistic"]
    ledger = es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", es.Pure(1.0))
    with pytest.raises((ValueError, TypeError), match=message):
        es.evaluate(model, data(*records), es.Pure(0.5), ledger=ledger.account("people"), **options)
    assert ledger.spent("people") == 0


@pytest.mark.parametrize("name", ["logistic", "softmax", "ridge"])
@pytest.mark.parametrize("records", ["missing", "one class", "unknown labels", "vast"])
def test_no_record_shows(fitted, name, records):
    """Whatever records hold, what is told has the same form, and nothing is raised or warned of."""
    model, (X, y) = fitted[name]
    shown = []
    for given in (None, records):
        rows, targets = X[:500].copy(), np.array(y[:500], dtype=float)
        if given == "missing":
            rows[:], targets[:] = np.nan, np.nan
        elif given == "one class":
            targets[:] = 0
        elif given == "unknown labels":
            targets[:] = -77
        elif given == "vast":
            rows, targets = rows * 1e300, targets * 1e300
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = es.evaluate(model, (rows, targets), es.Pure(2.0))
            content = found.to_dict()
        shown.append((list(content), [metric["name"] for metric in content["metrics"]], content["spent"]))
        for metric in found.metrics():
            assert metric.low <= metric.value <= metric.high
    assert shown[0] == shown[1]


def test_with_one_class_alone_the_area_is_not_told(fitted):
    model, (X, _) = fitted["logistic"]
    found = es.evaluate(model, (X, np.zeros(len(X))), es.Pure(1.0))
    assert (found["roc_auc"].low, found["roc_auc"].high) == (0.0, 1.0)


# --- records held out -----------------------------------------------------------------------------------------------


def test_each_record_is_in_one_part_by_its_place_alone():
    for n, share, seed in ((4, 0.5, 0), (1000, 0.2, 7), (1001, 0.999, 3)):
        training, held = split(n, share, seed)
        assert sorted([*training, *held]) == list(range(n))
        assert min(len(training), len(held)) >= 2
        np.testing.assert_array_equal(split(n, share, seed)[1], held)
    assert abs(len(split(1000, 0.2, 7)[1]) - 200) <= 1
    assert not np.array_equal(split(1000, 0.2, 7)[1], split(1000, 0.2, 8)[1])
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="hold_out"):
            split(100, share, 0)


class Witness:
    """An account that remembers its charges."""

    def __init__(self):
        self.charges = []

    def charge(self, cost, *, note="", key=None):
        self.charges.append(cost)


def test_parts_are_charged_once_the_largest_price_and_each_once():
    witness = Witness()
    parts = Disjoint(witness, (es.Pure(0.5), es.Pure(0.8)), "both")
    with pytest.raises(ValueError, match="opened for"):
        parts.part(0).charge(es.Pure(0.51))
    with pytest.raises(ValueError, match="opened for"):
        parts.part(1).charge(es.Approximate(0.1, 1e-9))
    assert witness.charges == []
    parts.part(0).charge(es.Pure(0.5))
    parts.part(1).charge(es.Pure(0.7))
    assert witness.charges == [es.Pure(0.8)]
    with pytest.raises(ValueError, match="charged already"):
        parts.part(0).charge(es.Pure(0.1))
    with pytest.raises(ValueError, match="checkpoint"):
        Disjoint(witness, (es.Pure(0.5),), "").part(0).charge(es.Pure(0.1), key="k")
    for prices in ((es.Pure(1.0), es.Concentrated(1.0)), (es.Approximate(1, 1e-6), es.Approximate(1, 1e-5))):
        with pytest.raises(TypeError, match="one kind"):
            price_of_parts(prices)


@pytest.mark.parametrize("model", ["logistic", "ridge"])
def test_a_fit_with_records_held_out_costs_the_larger_price(model):
    """Replayed on neighbours in either part: all releases together stay within the one charge."""
    rng = np.random.default_rng(1)
    X, y = rng.uniform(0, 1, (400, 2)), rng.integers(0, 2, 400).astype(float)
    given = {"bounds": (0, 1), "epsilon": 1.0, "anyway": True, "method": "objective"}
    estimator = (
        PrivateLogisticRegression(classes=(0, 1), **given)
        if model == "logistic"
        else PrivateRidge(target_bounds=(0, 1), **given)
    )
    for place in (split(400, 0.3, 5)[0][3], split(400, 0.3, 5)[1][3]):
        other, targets = X.copy(), y.copy()
        other[place], targets[place] = 1 - np.round(X[place]), 1 - y[place]

        def fit(data, account):
            fresh = sklearn.base.clone(estimator).set_params(ledger=account)
            found, evaluation = es.fit_held_out(fresh, *data, es.Pure(0.9), hold_out=0.3, split_seed=5)
            return found.coef_, evaluation.published

        found = replay(fit, (X, y), (other, targets))
        (charge,) = found.charges
        assert 0.999 < charge.epsilon <= 1.0
        assert 0 < found.spent <= charge.epsilon


def test_fits_with_records_held_out_refuse_before_they_charge(tmp_path):
    ledger = es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", es.Pure(1.0))
    X, y = np.random.default_rng(0).uniform(0, 1, (40, 2)), np.arange(40) % 2
    model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), epsilon=0.5, ledger=ledger.account("people"))
    with pytest.raises(es.HopelessError):
        es.fit_held_out(model, X, y, hold_out=0.1)
    with pytest.raises(TypeError, match="one kind"):
        es.fit_held_out(model.set_params(anyway=True), X, y, es.Concentrated(0.1))
    assert ledger.spent("people") == 0


# --- bugs planted on purpose ----------------------------------------------------------------------------------------


def smaller_noise(patch):
    right = releases.Tally.draw
    patch.setattr(
        releases.Tally, "draw", lambda self, source: right(dataclasses.replace(self, cost=2 * self.cost), source)
    )


def sensitivity_of_adding_a_record(patch):
    patch.setattr(releases.Counts, "sensitivity", 1.0)


def sensitivity_of_one_sum(patch):
    patch.setattr(releases.Errors, "sensitivity", float(STEPS))


def unbounded_errors(patch):
    def encode(self, chunk):
        errors = np.abs(self.encode_margins(chunk)[:, 0] - chunk.targets) / self.bound
        shares = np.stack([errors**2, errors, errors, errors])
        return np.rint(shares * STEPS).astype(np.int64).sum(axis=1)

    patch.setattr(releases.Errors, "encode", encode)


def counted_twice(patch):
    right = releases.Counts.encode
    patch.setattr(releases.Counts, "encode", lambda self, chunk: 2 * right(self, chunk))


def gaussian_scaled_as_laplace(patch):
    patch.setattr(releases.Counts, "sensitivity", property(lambda self: 2.0 if self.mechanism is LAPLACE else 1.0))


def noise_is_drawn_once(patch):
    right, known = releases.Tally.draw, {}
    patch.setattr(releases.Tally, "draw", lambda self, source: known.setdefault(self.size, right(self, source)))


@pytest.mark.parametrize(
    ("bug", "checks"),
    [
        (smaller_noise, (neighbours_cost_what_they_are_said_to, replay_evaluations, audit_evaluations)),
        (sensitivity_of_adding_a_record, (neighbours_cost_what_they_are_said_to, replay_evaluations)),
        (sensitivity_of_one_sum, (neighbours_cost_what_they_are_said_to, replay_evaluations)),
        (unbounded_errors, (neighbours_cost_what_they_are_said_to, replay_evaluations)),
        (counted_twice, (neighbours_cost_what_they_are_said_to, replay_evaluations)),
        (gaussian_scaled_as_laplace, (neighbours_cost_what_they_are_said_to, replay_evaluations)),
        (noise_is_drawn_once, (laws_are_those_of_enumeration,)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_planted_bugs_are_found(bug, checks, monkeypatch):
    bug(monkeypatch)
    for check in checks:
        with pytest.raises((AssertionError, ReplayError, es.OverspentError)):
            check(seed=1)
