"""Intervals of every method: what is published gives them, or a refusal says what to use in its place.

Simulations are seeded. Of R fits each coefficient is covered at least as often as ``stats.binom.ppf(1e-3/D, R, 0.95)``
says: right code fails with a probability of at most 1e-3 in each test, over all of its coefficients.
"""

import itertools
from dataclasses import replace

import combinations
import numpy as np
import pytest
from scipy import stats

import epsteps as es
from epsteps import tables
from epsteps.auditing import experiments
from epsteps.methods import choice, statistics
from epsteps.methods.intervals import posterior
from epsteps.methods.intervals.posterior import Released
from epsteps.tables import Category, Numeric, Schema

METHODS = (*choice.METHODS, *combinations.STEPS)
# What a refusal must offer: an option, a method or a declaration to use instead.
WAYS_OUT = ("intervals=0.95", "target='sample'")


def name_of(method):
    return method if isinstance(method, str) else method.__name__


# -------------------------------------------------------------------------------------------------------- every method
@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_every_method_gives_intervals_or_says_what_does(method):
    """With every loss; budgets, clips and domains by turns. No record is needed, and nothing else is raised."""
    domains = itertools.cycle([es.Box(0, 1), es.Ball(1), es.Box(-1, 1), es.Box(0, 1, one_hot=[(1, 3)], numbers=[1])])
    budgets, clips = itertools.cycle(combinations.BUDGETS.values()), itertools.cycle([None, None, 1.0])
    few, given, refusals = {"max_iterations": 4} if method in (*combinations.STEPS, "descent") else {}, 0, set()
    for loss in combinations.LOSSES:
        problem = es.Problem(loss, next(domains), ridge=0.05, n=50, d=4, intercept=True, clip=next(clips))
        try:
            plan = es.plan(problem, next(budgets)(2.0), method, **few)
        except (ValueError, TypeError):  # the method does not cover the problem
            continue
        (X, y), _ = next(iter(combinations.datasets(problem, "mild", 3)))
        made = es.run(plan, es.Rows(plan.problem, X, y), seed=1)
        for target in (None, "population", "sample"):
            try:
                found = made.intervals(target=target)
            except ValueError as refusal:
                refusals.add(str(refusal))
            else:
                given += 1
                assert found.kind == "provable"
                assert np.all(np.isfinite([found.low, found.high]))
                assert np.all((found.low < found.coef) & (found.coef < found.high))
                np.testing.assert_array_equal(found.coef, made.x)
    assert (given > 0) == (method != "clipped")  # whose gradients are those of no objective
    assert all(any(way in refusal for way in WAYS_OUT) for refusal in refusals), refusals


@pytest.mark.parametrize(
    ("facts", "options", "said"),
    [
        ({"clip": 1.0}, {}, "clipped gradients are those of no function"),
        ({}, {"batch": 10}, "secret sample"),
        ({"ridge": 0.0}, {}, "without a ridge"),
    ],
)
def test_gradients_that_tell_nothing_of_a_minimum_are_refused(facts, options, said):
    problem = es.Problem(es.Logistic(), es.Box(0, 1), n=100, d=2, **({"ridge": 0.1} | facts))
    plan = es.plan(problem, es.Pure(5.0), es.gd, iterations=3, allocation="uniform", **options)
    rng = np.random.default_rng(0)
    made = es.run(plan, es.Rows(problem, rng.random((100, 2)), rng.choice([-1, 1], 100)), seed=1)
    with pytest.raises(ValueError, match=said):
        made.intervals()


@pytest.mark.parametrize(
    ("method", "kind"),
    [("curvature", "two"), *itertools.product(("output", "sequential", "descent"), ("two", "three"))],
)
def test_estimators_and_files_tell_what_is_proved_of_every_method(method, kind):
    generator = np.random.default_rng(0)
    labels = ("u", "v", "w")[: 2 if kind == "two" else 3]
    X, y = generator.random((2000, 2)), np.array(labels)[generator.integers(0, len(labels), 2000)]
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1), "y": Category(list(labels))}, target="y")
    estimator = es.PrivateLogisticRegression(4.0, bounds=(0, 1), classes=labels, method=method, random_state=1)
    problem = tables.problem_of(schema, 2000, 1e-2)
    text = estimator.fit(X, y).summary()
    assert "at most" in text
    assert "No intervals" not in text
    model = tables.fit_model(
        es.plan(problem, es.Pure(4.0), method), schema, {"a": X[:, 0], "b": X[:, 1], "y": y}, seed=1
    )
    content = tables.model_to_dict(model)
    assert tables.model_from_dict(content).intervals().to_dict() == model.intervals().to_dict()
    assert content["intervals"]["kind"] == "provable"
    # A file of before has no gradients besides, and no signature: it is read, and says why it tells less.
    before = {name: part for name, part in content.items() if name not in ("besides", "signature")}
    former = tables.model_from_dict(before)
    if method == "curvature":
        with pytest.raises(ValueError, match=r"without the released gradients.*use method='objective'"):
            former.intervals()
    else:
        assert former.intervals().to_dict() == model.intervals().to_dict()


# ---------------------------------------------------------------------------------------------------------------- laws
def test_no_hessian_leads_further_than_a_published_gradient_proves_and_one_as_far():
    """x - x0 = shift + H⁻¹ (gradient - noise), for every H that is at least the ridge."""
    generator, D, ridge = np.random.default_rng(2), 4, 0.1
    largest = 0.0
    for _ in range(60):
        gradient, shift, noise, c = generator.standard_normal((4, D))
        noise = 0.5 * noise
        released = Released(
            x=np.zeros(D), n=10, ridge=ridge, tilts=lambda _, count, e=noise: np.tile(e, (count, 1)),
            output_scale=0.0, slack=0.0, likelihood=True, gradient=gradient, shift=shift,
        )  # fmt: skip
        half = float(posterior.proved(released, generator, c[None, :], 0.95, False)[0])
        for strong in (0.0, 1.0, 1e9):
            turned = np.linalg.qr(generator.standard_normal((D, D)))[0]
            H = ridge * np.eye(D) + (turned * (strong * generator.random(D))) @ turned.T
            largest = max(largest, abs(c @ (shift + np.linalg.solve(H, gradient - noise))) / half)
        # The worst H: 1/ridge along the middle of c and the gradient, and 0 across it.
        middle = c / np.linalg.norm(c) + gradient / np.linalg.norm(gradient)
        inverse = np.outer(middle, middle) / (middle @ middle) / ridge
        alone = Released(
            x=np.zeros(D), n=10, ridge=ridge, tilts=lambda _, count: np.zeros((count, D)), output_scale=0.0,
            slack=0.0, likelihood=True, gradient=gradient, shift=np.zeros(D),
        )  # fmt: skip
        bound = float(posterior.proved(alone, generator, c[None, :], 0.95, False)[0])
        if c @ gradient > 0:
            assert c @ inverse @ gradient == pytest.approx(bound, rel=1e-9)
    assert largest <= 1


def test_the_mean_of_several_minima_is_bounded_by_all_their_tilts():
    """Each minimum has a Hessian of its own, so that their bounds add up, and not their tilts."""
    generator, D, ridge = np.random.default_rng(3), 3, 0.2
    first, second, c = generator.standard_normal((3, D))
    tilts = [lambda _, count, b=b: np.tile(b, (count, 1)) for b in (first, second)]
    facts = {"x": np.zeros(D), "n": 10, "ridge": ridge, "output_scale": 0.0, "slack": 0.0, "likelihood": True}
    both = Released(tilts=tilts[0], earlier=(tilts[1],), **facts)
    bound = float(posterior.proved(both, generator, c[None, :], 0.95, False)[0])
    alone = [float(posterior.proved(Released(tilts=b, **facts), generator, c[None, :], 0.95, False)[0]) for b in tilts]
    assert bound == pytest.approx(sum(alone), rel=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_no_noise_on_moments_leads_further_than_its_norm_proves(monkeypatch, intercept):
    """Noise of a known norm, in any direction: its bound holds whatever was drawn. A fiftieth of it is found out."""
    generator = np.random.default_rng(5)
    domain = es.Box([0.0, -3.0], [2.0, 1.0])
    problem = es.Problem(es.Squared(2.0), domain, ridge=0.02, n=500, d=2, intercept=intercept)
    plan = es.plan(problem, es.Pure(3.0), "statistics")
    X = np.column_stack([generator.uniform(0, 2, 500), generator.uniform(-3, 1, 500)])
    y = np.clip(X @ [0.6, -0.2] + 0.2 * generator.standard_normal(500), -2, 2)
    minimum = experiments.minimiser(es.Rows(problem, X, y))
    full = np.column_stack([np.ones(500), X, y])
    ratios = {1.0: [], 0.02: []}
    for _ in range(200):
        noise = generator.standard_normal((4, 4))
        noise = noise + noise.T
        noise[0, 0] = 0.0
        moments = full.T @ full + statistics.uncentred(plan, noise)
        places = [1, 2, 0][: len(minimum)]
        ridge = 500 * problem.ridge * np.eye(len(places))
        x = np.linalg.solve(moments[np.ix_(places, places)] + ridge, moments[places, 3])
        for share, found in ratios.items():
            norm = share * float(np.linalg.norm(noise, 2))
            monkeypatch.setattr(statistics, "_norm", lambda *_, norm=norm: norm)
            half = statistics.proved_widths(plan, x, moments, generator, np.eye(len(x)), 0.95)
            found.append(np.max(np.abs(x - minimum) / half))
    assert np.max(ratios[1.0]) <= 1 + 1e-6
    assert np.max(ratios[0.02]) > 1.5


@pytest.mark.parametrize("budget", [es.Pure(2.0), es.Approximate(2.0, 1e-6)], ids=str)
def test_released_moments_cover_and_are_narrow(budget):
    """For all coefficients at once, and far narrower than what the ridge proves of a tilted minimum."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (6000, 3))
    y = np.clip(X @ [0.4, -0.3, 0.1] + 0.1 + 0.15 * generator.standard_normal(6000), -1, 1)
    problem = es.Problem(es.Squared(1.0), es.Box(-1, 1), ridge=1e-3, n=6000, d=3, intercept=True)
    plan, tilted = (es.plan(problem, budget, method) for method in ("statistics", "objective"))
    found = es.coverage(plan, (X, y), replications=REPLICATIONS)
    assert set(found.rows) == {"sample"}
    assert found.worst("sample").coverage >= LEAST
    rows = es.Rows(problem, X, y)
    narrow, wide = (es.run(each, rows, seed=1).intervals(target="sample") for each in (plan, tilted))
    assert np.all(narrow.high - narrow.low < 0.5 * (wide.high - wide.low))
    plain = es.plan(replace(problem, ridge=0.0), budget, "statistics")
    made = es.run(plain, es.Rows(plain.problem, X, y), seed=1)
    with pytest.raises(ValueError, match="Declare a ridge"):
        made.intervals()


# ------------------------------------------------------------------------------------------------------------ coverage
N, REPLICATIONS = 4000, 30


def people(generator, n):
    X = generator.uniform(0, 1, (n, 3))
    return X, np.where(generator.random(n) < 1 / (1 + np.exp(-(X @ [2.0, -1.0, 0.5] - 0.5))), 1, -1)


PEOPLE = people(np.random.default_rng(7), 6000)
PROBLEM = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.01, n=N, d=3, intercept=True)
LEAST = stats.binom.ppf(1e-3 / 8, REPLICATIONS, 0.95) / REPLICATIONS


@pytest.mark.parametrize(
    ("method", "budget"),
    [
        ("output", es.Pure(1.0)),
        ("output", es.Approximate(1.0, 1e-6)),
        ("sequential", es.Pure(1.0)),
        ("sequential", es.Approximate(1.0, 1e-6)),
        ("curvature", es.Pure(2.0)),
        ("curvature", es.Approximate(2.0, 1e-6)),
        ("descent", es.Pure(2.0)),
        (es.gd, es.Concentrated(0.5)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_is_published_anyway_covers(method, budget):
    plan = es.plan(PROBLEM, budget, method)
    found = es.coverage(plan, PEOPLE, replications=REPLICATIONS)
    assert found.kinds == {"provable": REPLICATIONS}
    for target in ("population", "sample"):
        assert found.worst(target).coverage >= LEAST, target


def test_noise_on_a_minimum_is_known_so_that_its_intervals_are_exact():
    """They cover as often as they say, and no more; half of them far less."""
    plan = es.plan(PROBLEM, es.Pure(1.0), "output")
    X, y = people(np.random.default_rng(1), N)
    rows = es.Rows(PROBLEM, X, y)
    minimum = experiments.minimiser(rows.restated(plan.minimised))
    covered, half = [], []
    for seed in range(200):
        found = es.run(plan, rows, seed=seed).intervals(target="sample")
        distance, width = np.abs(found.coef - minimum), (found.high - found.low) / 2
        covered.append(distance <= width)
        half.append(distance <= width / 2)
    hits = np.sum(covered, axis=0)
    low, high = stats.binom.ppf([1e-3 / 8, 1 - 1e-3 / 8], 200, 0.95)
    assert np.all((hits >= low) & (hits <= high))
    assert np.all(np.sum(half, axis=0) < low)


# ------------------------------------------------------------------------------------------------------------ adaptive
def short(generator, n):
    """Draw records that are mostly far shorter than their domain allows, and a few that are not."""
    X = 0.25 * generator.uniform(-1, 1, (n, 6)) * np.where(generator.random(n) < 0.1, 4.0, 1.0)[:, None]
    return X, np.where(generator.random(n) < 1 / (1 + np.exp(-4 * X[:, 0] + X[:, 1])), 1, -1)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_an_adaptive_plan_covers_the_minimum_of_what_it_chose(epsilon):
    problem = es.Problem(es.Logistic(), es.Box(-1, 1), ridge=1e-3, n=5000, d=6)
    plan = es.plan(problem, es.Pure(epsilon), "adaptive")
    found = es.coverage(plan, short(np.random.default_rng(3), 5000), replications=REPLICATIONS)
    assert found.worst("sample").coverage >= LEAST
    assert all(row.coverage >= LEAST for row in found.rows.get("population", ()))


@pytest.mark.parametrize(
    ("loss", "longer", "ridge", "epsilon", "held"),
    [(es.SmoothedHinge(), 1, 0.05, 0.7, False), (es.Logistic(), 4, 0.005, 1.0, True)],
)
def test_the_target_of_an_adaptive_plan_is_weighted_and_named(loss, longer, ridge, epsilon, held):
    """With hardly any noise its intervals cover the minimum of what it chose, and not that of the declared sum.

    It chooses weights for long records, or slopes that are held record by record.
    """
    problem = es.Problem(loss, es.Box(-1, 1), ridge=ridge, n=5000, d=6)
    plan = es.plan(problem, es.Pure(epsilon), "adaptive")
    X, y = short(np.random.default_rng(4), 5000)
    rows = es.Rows(problem, np.clip(longer * X, -1, 1), y)
    made = es.run(plan, rows, seed=2)
    chosen, aim = plan.decided(made.extras), plan.aim(made.extras)
    assert aim.weighting is not None
    assert aim.weighting.held is held
    found = made.intervals(target="sample")
    said = "slopes of records shorter than" if held else "less weight for records beyond"
    assert f"{said} the L{aim.weighting.norm} norm {aim.weighting.radius:.3g}" in found.notes[0]
    assert f"ridge {chosen.ridge:.3g}" in found.notes[0]
    assert ("slopes up to" in found.notes[0]) == (chosen.problem.loss.slope < 1)
    # The same choice with hardly any noise: at a price that nobody would pay.
    budget, scale = es.Pure(1e9), chosen.scales[0] * 1e-6
    exact = es.run(replace(chosen, budget=budget, scales=(scale,)), rows, seed=1).intervals(target="sample")
    weighted = experiments.minimiser(experiments.exact(aim, rows))
    declared = experiments.minimiser(rows.restated(problem.with_ridge(chosen.ridge)))
    # In half-widths, which are of noise on the output alone: each is exceeded in one case of twenty.
    apart = [np.max(np.abs(exact.coef - each) / (exact.high - exact.coef)) for each in (weighted, declared)]
    assert apart[0] < 4
    assert apart[1] > 30, apart


def test_slopes_that_are_capped_have_no_interval_for_the_population():
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=1e-4, n=300, d=10)
    plan = es.plan(problem, es.Pure(0.3), "adaptive")
    X, y = np.random.default_rng(0).random((300, 10)), np.tile([-1, 1], 150)
    made = es.run(plan, es.Rows(problem, X, y), seed=1)
    assert plan.decided(made.extras).problem.loss.slope < 1
    found = made.intervals()
    assert found.target == "sample"
    assert "slopes up to" in found.notes[0]
    with pytest.raises(ValueError, match="ask for target='sample'"):
        made.intervals(target="population")


def test_long_records_that_count_more_vary_more():
    """No record counts more than 1/mean, and the bound on what sampling adds grows by the root of that."""
    problem = es.Problem(es.SmoothedHinge(), es.Box(-1, 1), ridge=0.05, n=5000, d=6)
    plan = es.plan(problem, es.Pure(0.7), "adaptive")
    made = es.run(plan, es.Rows(problem, *short(np.random.default_rng(4), 5000)), seed=2)
    chosen = plan.decided(made.extras)
    known = chosen.released(made.x, {}, lambda g, count: np.zeros((count, 6)))
    assert known.largest == 1 / chosen.weighting.mean > 1


# ------------------------------------------------------------------------------------------------------- the choice
def test_asking_for_intervals_chooses_the_method_that_measures_them_and_the_page_says_so():
    for asked in ({}, {"release": "final"}, {"method": "auto"}):
        plan = es.plan(PROBLEM, es.Pure(1.0), intervals=0.95, **asked)
        assert isinstance(plan, es.IntervalPlan)
        assert plan.mode == "measured"
    page = " ".join(str(plan).split())
    assert "objective perturbation with intervals" in page
    assert "No other method releases what measuring takes" in page
    with pytest.raises(TypeError, match="use method='objective'"):
        es.plan(PROBLEM, es.Pure(1.0), "adaptive", intervals=0.95)
    with pytest.raises(TypeError, match="use method='objective'"):
        es.plan(PROBLEM, es.Pure(1.0), release="iterates", intervals=0.95)


# ------------------------------------------------------------------------------------------------------- missing values
SCHEMA = Schema(
    {
        "age": Numeric(0, 100, missing=True),
        "job": Category(["a", "b"], missing=True),
        "size": Numeric(0, 10),
        "y": Category(["no", "yes"]),
    },
    target="y",
)


def holes(generator, n):
    """Draw a table of which ages and jobs are missing, and what that says is not nothing."""
    age = np.where(generator.random(n) < 0.3, np.nan, generator.uniform(0, 100, n))
    job, size = generator.choice(["a", "b", ""], n, p=[0.4, 0.35, 0.25]), generator.uniform(0, 10, n)
    score = np.where(np.isnan(age), -0.7, (age - 50) / 40) + 0.8 * (job == "b") - 0.5 * (job == "") + (size - 5) / 5
    return {
        "age": age,
        "job": job,
        "size": size,
        "y": np.where(generator.random(n) < 1 / (1 + np.exp(-score)), "yes", "no"),
    }


def test_missing_values_are_measured_and_covered():
    """The number and its indicator are a coordinate each, and a missing category is one more level."""
    plan = es.plan(tables.problem_of(SCHEMA, 10_000, 1e-4), es.Pure(2.0), intervals=0.95)
    assert plan.layout.k == SCHEMA.d
    table = holes(np.random.default_rng(0), 10_000)
    levels = np.eye(7)
    levels[2:5, 2:5] -= 1 / 3
    levels[6, 2:5] += 1 / 3
    found = es.coverage(
        plan, (SCHEMA.encode(table), SCHEMA.encode_target(table)), replications=REPLICATIONS, contrasts=levels
    )
    assert found.kinds == {"measured": REPLICATIONS}
    for target in ("population", "sample"):
        assert found.worst(target).coverage >= stats.binom.ppf(1e-3 / 14, REPLICATIONS, 0.95) / REPLICATIONS
        assert found.width(target) < 1.1


def test_a_table_with_missing_values_has_measured_intervals_by_name():
    plan = es.plan(tables.problem_of(SCHEMA, 20_000, 1e-4), es.Pure(1.0), intervals=0.95)
    model = tables.fit_model(plan, SCHEMA, holes(np.random.default_rng(1), 20_000), seed=1)
    found = tables.model_from_dict(tables.model_to_dict(model)).intervals(contrasts="levels")
    assert found.kind == "measured"
    assert found.names == ("age", "age is missing", "job=a", "job=b", "job is missing", "size", "(intercept)")
    # Levels of the category are against their mean; the number and its indicator stay what they are.
    assert found.coef[2:5].sum() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(found.coef[:2], model.intervals().coef[:2], rtol=1e-12)


def test_a_box_with_numbers_is_the_same_set_and_is_written():
    marked, plain = es.Box(0, 1, one_hot=[(0, 2)], numbers=[0]), es.Box(0, 1, one_hot=[(0, 2)])
    assert marked == plain
    assert (marked.categories, plain.categories) == ((), ((0, 2),))
    for domain, k in ((marked, 4), (plain, 3)):
        problem = es.Problem(es.Logistic(), domain, ridge=0.01, n=20_000, d=3, intercept=True)
        plan = es.plan(problem, es.Pure(2.0), intervals=0.95)
        assert type(plan).from_json(plan.to_json()).layout.k == plan.layout.k == k
        assert ("numbers" in plan.to_json()) == bool(domain.numbers)
    with pytest.raises(ValueError, match="numbers must be columns of the blocks"):
        es.Box(0, 1, one_hot=[(0, 2)], numbers=[2])


# ------------------------------------------------------------------------------------------------------------- softmax
def test_several_classes_have_upper_bounds_everywhere():
    """Through the default method: in the summary, the report and by simulation."""
    generator = np.random.default_rng(0)
    X = generator.random((3000, 2))
    y = np.array(["u", "v", "w"])[generator.integers(0, 3, 3000)]
    model = es.PrivateLogisticRegression(4.0, bounds=(0, 1), classes=("u", "v", "w"), random_state=1).fit(X, y)
    text = model.summary()
    assert "adaptive objective perturbation" in text
    assert "at most" in text
    assert "No intervals" not in text
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1), "y": Category(["u", "v", "w"])}, target="y")
    plan = es.plan(tables.problem_of(schema, 3000, 1e-3), es.Pure(4.0), release="final")
    content = tables.model_to_dict(tables.fit_model(plan, schema, {"a": X[:, 0], "b": X[:, 1], "y": y}, seed=1))
    assert (content["intervals"]["kind"], content["intervals"]["target"]) == ("provable", "sample")
    assert "At most:" in tables.page(content)
    problem = es.Problem(es.Softmax(("u", "v", "w")), es.Box(0, 1), ridge=0.01, n=3000, d=2, intercept=True)
    found = es.coverage(es.plan(problem, es.Pure(2.0), release="final"), (X, y), replications=20)
    assert found.worst("sample").coverage >= stats.binom.ppf(1e-3 / 9, 20, 0.95) / 20
