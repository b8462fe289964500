"""What plans say their models are worth: laws over methods, losses, domains and budgets; and what follows from them."""

import functools
import json
import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.bounds.quadratics import exact_quadratic, impulse_response
from epsteps.cli import app
from epsteps.methods import choice, objective, steps
from epsteps.plans.utility import Typical, TypicalError, TypicalErrors, least_of, ridge_bias, ridges
from epsteps.problem.problem import restated

LOSSES = [es.Logistic(), es.SmoothedHinge(), es.Squared(2.0), es.PseudoHuber(1.0, c=0.3), es.Softmax((0, 1, 2))]
LOSSES += [es.CappedLogistic(cap=0.35)]
DOMAINS = [
    (es.Box(0, 1), 4),
    (es.Box((0, -3, 0.5), (2, 5, 0.75)), 3),
    (es.Box(-1, 6, one_hot=[(0, 2), (2, 5)]), 6),
    (es.Ball(1.0), 30),
    (es.Ball(0.8, norm=1), 2),
]
BUDGETS = {
    "pure": es.Pure,
    "delta": lambda epsilon: es.Approximate(epsilon, 1e-6),
    "rho": lambda epsilon: es.Concentrated(epsilon**2 / 2),
}
METHODS = [*((name, None) for name in choice.METHODS), *(("auto", release) for release in choice.RELEASES)]
EPSILONS = (1e-3, 0.1, 0.25, 0.5, 1.0, 8.0)
SIZES = (50, 600, 5000, 10**6)
# Certificates may ask for noise that is larger by as much than a choice thought.
SLACK = 1 + 1e-5


def named(value):
    """Return a name that is the same in every process."""
    return getattr(value, "__name__", str(value))


def problems(seed, count, **facts):
    """Yield so many problems of each loss, with domains, ridges and intercepts at random."""
    rng = np.random.default_rng(seed)
    for loss in LOSSES:
        for _ in range(count):
            domain, d = DOMAINS[int(rng.integers(len(DOMAINS)))]
            ridge = float(rng.choice([1e-4, 0.01, 0.5]))
            yield es.Problem(loss, domain, d=d, ridge=ridge, intercept=bool(rng.integers(2)), **({"n": 3000} | facts))


def planned(problem, budget, method, release, **options):
    """Return a plan, or None where the method does not cover the problem or the budget."""
    try:
        return es.plan(problem, budget, method, release=release, **options)
    except (ValueError, TypeError):
        return None


def clipped(problem):
    """Return the problem with bounded gradients: those of squared loss are clipped."""
    return problem if problem.has_bounded_sensitivity else replace(problem, clip=2.0)


def rows_of(answers, problem, method, release, **options):
    """Add the utilities of plans whose budgets, or numbers of records, rise, with what they are the plans of."""
    for name, make in BUDGETS.items():
        for plans in (
            [planned(problem, make(epsilon), method, release, **options) for epsilon in EPSILONS],
            [planned(replace(problem, n=n), make(0.5), method, release, **options) for n in SIZES],
        ):
            if found := [plan.utility for plan in plans if plan is not None]:
                answers.append(((problem, name), found))
    return answers


@cache
def rows(method, release):
    """Return the rows of a method for a problem of each loss."""
    answers = []
    for problem in problems(1, 1):
        rows_of(answers, problem, method, release)
    return answers


def rising(answers):
    """Return what the plans are of whose expected error rises, and how many plans there are."""
    faults = [
        what for what, found in answers for less, more in pairwise(found) if more.expected > less.expected * SLACK
    ]
    return faults, sum(len(found) for _, found in answers)


@pytest.mark.parametrize(
    ("method", "release"),
    [pytest.param(*each, marks=[pytest.mark.slow] if each[0] == "sequential" else []) for each in METHODS],
    ids=named,
)
def test_more_budget_and_more_records_never_make_the_expected_error_larger(method, release):
    faults, seen = rising(rows(method, release))
    assert not faults
    assert seen > 25


STEPS = [
    *((method, {"objective": "typical"}) for method in (es.gd, es.heavy_ball, es.nesterov, es.multistage)),
    (es.restarted_nesterov, {"objective": "typical", "max_iterations": 300}),
    (es.nesterov, {"objective": "typical", "allocation": "uniform"}),
    (es.nesterov, {"objective": "typical", "sensitivity": "state"}),
    (es.nesterov, {"iterations": 30}),
    (es.multistage, {"iterations": 60}),
]


@pytest.mark.parametrize(("method", "options"), STEPS, ids=named)
def test_the_papers_steps_are_worth_more_with_more_if_a_typical_problem_or_you_choose_their_number(method, options):
    answers = []
    for problem in problems(2, 1):
        rows_of(answers, clipped(problem), method, None, **{"max_iterations": 120} | options)
    faults, seen = rising(answers)
    assert not faults
    assert seen > 100


def test_what_rises_would_be_found():
    """Where the paper's bound chooses their number, steps grow in number faster than a typical problem asks for."""
    answers = []
    for problem in problems(2, 1):
        rows_of(answers, clipped(problem), es.nesterov, None)
    faults, seen = rising(answers)
    assert faults
    assert seen > 100


@pytest.mark.parametrize(("method", "release"), METHODS, ids=named)
def test_what_is_expected_is_never_above_what_is_proved(method, release):
    """By theory: the quadratic of a typical problem is one that the bounds are proved for."""
    proved = 0
    for what, found in rows(method, release):
        for utility in found:
            assert 0 < utility.trivial <= utility.trivial_bound / 2
            assert utility.sampling > 0
            assert utility.bound is None or 0 < utility.expected <= utility.bound, what
            proved += utility.bound is not None
    assert (proved > 0) == (method not in ("adaptive", "curvature", "statistics", "clipped"))


@pytest.mark.parametrize("method", [es.gd, es.nesterov, es.multistage], ids=lambda method: method.__name__)
def test_steps_of_the_paper_are_expected_to_do_no_worse_than_their_theorem(method):
    for problem in problems(3, 1):
        for make in BUDGETS.values():
            plans = [planned(problem, make(epsilon), method, None) for epsilon in EPSILONS]
            errors = [plan.error for plan in plans if plan is not None]
            assert all(more <= less * SLACK for less, more in pairwise(errors))
            for utility in (plan.utility for plan in plans if plan is not None):
                assert utility.bound is None or utility.expected <= utility.bound


@pytest.mark.parametrize("method", [es.nesterov, es.multistage, es.restarted_nesterov], ids=named)
def test_a_typical_problem_chooses_the_best_number_of_steps(method):
    """By trying all of them; steps of stages change on the way, which once was overlooked."""
    problem, budget = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.1, n=500, d=3), es.Pure(4.0)
    chosen = es.plan(problem, budget, method, objective="typical", max_iterations=40)
    tried = [es.plan(problem, budget, method, objective="typical", iterations=T) for T in range(1, 41)]
    assert chosen.utility.expected == pytest.approx(min(plan.utility.expected for plan in tried), rel=1e-9)
    assert 1 < chosen.iterations < 40


def test_noise_that_feeds_itself_is_foreseen():
    """Squared loss without clipping has slopes, and so noise, that grow with the point: long runs diverge."""
    rng = np.random.default_rng(6)
    problem = es.Problem(es.Squared(), es.Box(0, 1), ridge=0.002, n=2000, d=8, intercept=True)
    X = rng.random((2000, 8))
    data = es.Rows(problem, X, X @ rng.uniform(-0.2, 0.2, 8))
    zero = float(data.value(np.zeros(9)))
    for epsilon, iterations in ((0.5, 2), (30.0, 10), (4.0, 100), (1.0, 400)):
        plan = es.plan(problem, es.Pure(epsilon), es.nesterov, iterations=iterations)
        measured = float(np.mean(data.value(es.run(plan, data, seed=1, repetitions=40).x)))
        assert (plan.utility.expected > 10 * plan.utility.trivial) == (measured > 10 * zero), (epsilon, iterations)
    assert plan.utility.verdict == "noise"


def test_auto_is_the_best_of_what_covers_the_problem():
    for problem in problems(4, 1):
        for release in choice.RELEASES:
            names = choice._candidates(problem, release)
            for make in BUDGETS.values():
                best = es.plan(problem, make(0.7), release=release).utility.expected
                others = [planned(problem, make(0.7), name, None) for name in names]
                assert best == min(plan.utility.expected for plan in others if plan is not None)


def test_the_bound_on_a_larger_ridge_holds_for_drawn_records():
    """F'* - F* for logistic problems: at most min(v, (ridge'/ridge - 1) v/2)."""
    rng = np.random.default_rng(5)
    for _ in range(5):
        ridge = float(rng.choice([0.01, 0.1]))
        problem = es.Problem(es.Logistic(), es.Ball(3.0), ridge=ridge, n=60, d=3)
        X, y = rng.standard_normal((60, 3)), rng.choice([-1, 1], 60)
        y = np.where(rng.random(60) < 0.8, np.where(X[:, 0] > 0, 1, -1), y)
        lowest = []
        for factor in (1.0, 1.3, 4.0, 100.0):
            plan = es.plan(replace(problem, ridge=factor * ridge), es.Pure(1e9), "objective")
            data = es.Rows(plan.problem, X, y)
            lowest.append(float(data.value(es.run(plan, data, seed=1).x)))
            assert lowest[-1] - lowest[0] <= ridge_bias(problem, factor * ridge) + 1e-6


def test_the_prediction_of_a_minimum_is_that_of_draws_on_the_typical_quadratic():
    """E F(x) - F* where x minimises F' with a tilt of some variance along each entry."""
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.05, n=1000, d=12)
    typical, ridge = Typical(problem), 0.3
    curvature, power = typical.curvature, np.linspace(1e-4, 1e-3, len(typical.curvature))
    solution = np.sqrt(2 * typical.gains / (curvature + problem.ridge))
    rng = np.random.default_rng(6)
    tilts = rng.standard_normal((40_000, len(power))) * np.sqrt(power)
    x = ((curvature + problem.ridge) * solution - tilts) / (curvature + ridge)
    excess = 0.5 * (x - solution) ** 2 @ (curvature + problem.ridge)
    assert np.mean(excess) == pytest.approx(float(typical.bias(ridge) + typical.noise(power, ridge)), rel=0.02)


@pytest.mark.parametrize("loss", [es.Logistic(), es.Squared(1.0), es.Softmax((0, 1, 2))], ids=named)
@pytest.mark.parametrize("name", ["objective", "sequential", "adaptive"])
def test_a_model_of_the_length_that_was_predicted_says_nothing_more(loss, name):
    """By its length alone a longer model is expected to be worse, a shorter one better; the bound holds."""
    problem = es.Problem(loss, es.Box(0, 1), ridge=0.01, n=20_000, d=6)
    plan = es.plan(problem, es.Pure(0.5), name)
    extras, expected = {}, plan.utility.expected
    if name == "adaptive":
        usual = {"radii": np.array(plan._usual_radii)}
        extras = usual | {
            key: np.array([0.5, 0.2][: shape[0]]) for key, shape in plan.besides.items() if key == "sizes"
        }
        chosen = plan._chosen_by(extras)
        parts, expected = chosen.choice.sought.parts(chosen.plan), chosen.expected
    else:
        parts = plan._sought.parts(plan)
    x = np.random.default_rng(0).standard_normal((loss.outputs, problem.width))
    x -= x.mean(axis=0) if loss.outputs > 1 else 0.0
    x *= math.sqrt(parts.length / np.sum(x**2))
    found = [plan.utility_after((factor * x).reshape(1, -1), extras).expected for factor in (0.1, 0.5, 1.0, 2.0, 10.0)]
    assert found[2] == pytest.approx(expected, rel=1e-9)
    assert all(there > here for here, there in pairwise(found[: 3 if plan.utility.bound else 5]))
    assert plan.utility.bound is None or max(found) <= plan.utility.bound
    for broken in (0.0, 1e200, math.inf, math.nan):
        assert math.isfinite(plan.utility_after(np.full((1, problem.dimension), broken), extras).expected)


def test_what_outputs_share_says_nothing_of_the_model():
    problem = es.Problem(es.Softmax((0, 1, 2)), es.Box(0, 1), ridge=0.01, n=20_000, d=6)
    plan = es.plan(problem, es.Pure(0.5), "objective")
    x = np.random.default_rng(0).standard_normal((3, problem.width))
    moved = x + 5 * np.arange(problem.width)
    before, after = (plan.utility_after(each.reshape(1, -1), {}).expected for each in (x, moved))
    assert after == pytest.approx(before, rel=1e-9)


def test_the_length_of_a_minimum_is_that_of_draws_on_the_typical_quadratic():
    """100 000 draws: the mean of |x|² has a relative standard error below half a percent."""
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.01, n=3000, d=4)
    typical, ridge = Typical(problem), 0.05
    power = 1e-4 * (1 + np.arange(len(typical.curvature)))
    minimum = np.sqrt(2 * typical.gains / (typical.curvature + problem.ridge))
    held = typical.curvature + ridge
    draws = np.random.default_rng(0).standard_normal((100_000, len(held))) * np.sqrt(power)
    x = (minimum * (typical.curvature + problem.ridge) + draws) / held
    assert typical.length(power, ridge) == pytest.approx(float(np.mean(np.sum(x**2, axis=1))), rel=0.02)
    assert typical.length(2 * power, ridge) != pytest.approx(float(np.mean(np.sum(x**2, axis=1))), rel=0.02)


def test_a_run_tells_what_it_is_expected_to_be_worth_by_what_it_published():
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.01, n=2000, d=3)
    X = np.random.default_rng(0).random((2000, 3))
    rows = es.Rows(problem, X, np.where(X[:, 0] > X[:, 1], 1.0, -1.0))
    run = es.run(es.plan(problem, es.Pure(1.0), release="final"), rows, seed=1)
    assert run.utility == run.plan.utility_after(run.path, run.extras) != run.plan.utility
    steps_run = es.run(es.plan(problem, es.Pure(1.0), "descent"), rows, seed=1)
    assert steps_run.utility is steps_run.plan.utility
    with pytest.raises(ValueError, match="one run"):
        es.run(run.plan, rows, seed=1, repetitions=2).utility  # noqa: B018 - it raises


def test_noise_has_the_same_power_in_all_entries_together():
    for problem in problems(7, 3):
        typical = Typical(problem)
        for plan in (planned(problem, es.Pure(1.0), "objective", None),):
            if plan is not None:
                power = Typical(plan.problem).gradient_power(plan.noise)
                assert np.sum(power) == pytest.approx(2 * float(plan.noise.half_power(1.0, plan.problem)))
        assert np.sum(typical.gains) == pytest.approx(typical.trivial)
        assert np.all(typical.curvature <= problem.L - problem.ridge)


@pytest.mark.parametrize("method", [es.gd, es.nesterov], ids=lambda method: method.__name__)
def test_errors_of_all_numbers_of_steps_are_those_of_each(method):
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.05, n=1000, d=12)
    noise = es.plan(problem, es.Pure(1.0), es.nesterov).mechanism
    for ridge in (0.05, 0.4):
        other = replace(problem, ridge=ridge)
        whole = TypicalError(method(ridge, other.L, 40), Typical(problem), noise, ridge, other.L)
        for T in (1, 2, 7, 40):
            part = TypicalError(method(ridge, other.L, T), Typical(problem), noise, ridge, other.L)
            assert part.error(1.0, 0.0) == pytest.approx(whole.start_errors(1.0)[T - 1])
            assert np.sum(part._final[1] ** 0.3) == pytest.approx(whole.weight_sums(0.3)[T - 1])
            assert part.weights == pytest.approx(part._final[1])
            assert part._final[0] == pytest.approx(part.error(1.0, 0.0))


def test_impulse_responses_are_those_of_the_recursion():
    rng = np.random.default_rng(8)
    first, second = rng.uniform(-0.9, 0.9, (2, 5))
    found, expected = impulse_response(first, second, 37), [np.ones(5), first]
    while len(expected) < 37:
        expected.append(first * expected[-1] + second * expected[-2])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert impulse_response(first, second, 1).shape == (1, 5)


def test_counts_are_what_squared_distances_count():
    steps = es.nesterov(0.1, 1.0, 6)
    spectrum = np.array([0.1, 0.4, 1.0])
    usual = exact_quadratic(steps, spectrum)[1]
    assert exact_quadratic(steps, spectrum, spectrum)[1] == pytest.approx(usual)
    assert exact_quadratic(steps, spectrum, 3 * spectrum)[1] == pytest.approx(3 * usual)


def test_the_least_of_some_values_is_found_with_few_looks():
    rng = np.random.default_rng(9)
    for _ in range(50):
        values = rng.random(40)
        bounds, looks = values * rng.uniform(0.8, 1.0, 40), []

        def value(place, least, values=values, looks=looks):
            looks.append(place)
            return float(values[place])

        assert least_of(bounds, value) == (int(np.argmin(values)), float(np.min(values)))
        assert len(looks) < 40


def test_ridges_to_choose_among_depend_on_neither_budget_nor_records():
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=1e-3, n=100, d=5)
    assert ridges(problem)[0] == problem.ridge
    np.testing.assert_array_equal(ridges(problem), ridges(replace(problem, n=10**6)))


# --- verdicts, and what they are for ----------------------------------------------------------------------------------

SMALL = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.01, n=200, d=10)
HOPELESS = es.Pure(1e-3)


def records(problem=SMALL):
    rng = np.random.default_rng(3)
    X = rng.random((problem.n, problem.d))
    return es.Rows(problem, X, np.where(X[:, 0] > X[:, 1], 1, -1))


@pytest.mark.parametrize(("share", "verdict"), [(0.0, "useful"), (0.1, "useful"), (0.11, "marginal"), (0.7, "noise")])
def test_verdicts_are_shares_of_what_the_model_0_costs(share, verdict):
    utility = es.Utility(share * 0.3, None, 0.3, 0.7, 0.001)
    assert utility.verdict == verdict
    assert utility.sentence.startswith(f"{verdict}: ")
    assert (utility.beyond("useful") <= 0) == (verdict == "useful")
    assert (utility.beyond("marginal") <= 0) == (verdict != "noise")
    assert es.Utility(None, None, 0.3, 0.7, 0.001).verdict == "unknown"


@pytest.mark.parametrize(("method", "release"), METHODS, ids=named)
def test_a_hopeless_run_is_refused_before_it_is_charged(method, release, tmp_path):
    problem = replace(SMALL, loss=es.Squared()) if method == "statistics" else SMALL
    budget = es.Concentrated(HOPELESS.epsilon**2 / 8) if method == "clipped" else HOPELESS
    plan = es.plan(problem, budget, method, release=release)
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Concentrated(1.0) if method == "clipped" else es.Pure(1.0))
    account = ledger.account("people")
    data = es.Rows(problem, np.random.default_rng(3).random((200, 10)), np.tile([-1, 1], 100))
    with pytest.raises(es.HopelessError, match="anyway=True"):
        es.run(plan, data, ledger=account)
    assert ledger.spent("people") == 0
    assert es.run(plan, data, seed=1).seeded
    assert not es.run(plan, data, ledger=account, anyway=True).seeded
    assert ledger.spent("people") > 0


def test_estimators_and_searches_refuse_hopeless_fits():
    rng = np.random.default_rng(4)
    X, y = rng.random((60, 4)), np.tile([0, 1], 30)
    model = es.PrivateLogisticRegression(1e-3, bounds=(0, 1), classes=(0, 1))
    with pytest.raises(es.HopelessError):
        model.fit(X, y)
    assert not hasattr(model, "coef_")
    assert es.PrivateLogisticRegression(1e-3, bounds=(0, 1), classes=(0, 1), anyway=True).fit(X, y).coef_.shape == (
        1,
        4,
    )
    assert es.PrivateLogisticRegression(1e-3, bounds=(0, 1), classes=(0, 1), random_state=1).fit(X, y).coef_.shape == (
        1,
        4,
    )

    class Account:
        charged = 0

        def charge(self, cost, *, note="", key=None):
            self.charged += 1

    account = Account()
    search = es.PrivateSearch(model, {"ridge": [1e-2, 1.0]}, epsilon=1e-3, trials=1, ledger=account)
    with pytest.raises(es.HopelessError):
        search.fit(X, y)
    assert account.charged == 0
    search.set_params(estimator=model.set_params(anyway=True)).fit(X, y)
    assert account.charged == 1


def test_the_command_line_refuses_a_hopeless_fit_before_it_charges(tmp_path):
    (tmp_path / "data.csv").write_text("age,y\n" + "\n".join(f"{20 + k},{k % 2}" for k in range(40)))
    columns = '[columns.age]\ntype = "numeric"\nlow = 0\nhigh = 100\n[columns.y]\ntype = "category"\nvalues = [0, 1]\n'
    (tmp_path / "schema.toml").write_text(f'target = "y"\n{columns}')
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", es.Pure(1.0))
    usual = ["fit", tmp_path / "data.csv", "--schema", tmp_path / "schema.toml", "--epsilon", 0.001, "--yes"]
    usual += ["--ledger", tmp_path / "budget.db", "--dataset", "people", "--out", tmp_path / "model"]
    refused = CliRunner().invoke(app, [str(each) for each in usual])
    assert refused.exit_code == 2
    assert "the model would be noise" in refused.output
    assert "--anyway" in refused.output
    assert ledger.spent("people") == 0
    assert not (tmp_path / "model" / "model.json").exists()
    assert CliRunner().invoke(app, [str(each) for each in [*usual, "--anyway"]]).exit_code == 0
    assert ledger.spent("people") > 0
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    assert content["prediction"]["utility"]["verdict"] == "noise"
    assert "The verdict: noise." in (tmp_path / "model" / "report.html").read_text()
    for entry in content["coefficients"]:  # a file of an earlier version
        entry |= {"noise": 1.0, "noise_if_never": None}
    content["prediction"].pop("utility")
    assert tables.model_from_dict(content).plan.utility.verdict == "noise"


def test_plans_of_others_are_unknown_and_run():
    plan = es.plan(SMALL, es.Pure(1.0), "objective")
    assert es.Plan.worth(plan).verdict == "unknown"


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["objective", "output", "descent", "curvature", es.nesterov], ids=named)
def test_json_tells_the_utility_and_files_without_it_are_read(method):
    plan = es.plan(SMALL, es.Pure(1.0), method)
    content = json.loads(plan.to_json())
    assert content["utility"] == plan.utility.to_dict()
    assert content["utility"]["verdict"] == plan.utility.verdict
    content.pop("utility")
    for added in ("instead_of", "declared_ridge"):
        content.pop(added, None)
    again = es.Plan.from_json(json.dumps(content))
    assert again.spent == plan.spent
    content["utility"] = {"expected": "whatever"}
    assert es.Plan.from_json(json.dumps(content)).spent == plan.spent
    assert "Utility" in str(plan)


# --- planning backwards -----------------------------------------------------------------------------------------------

QUESTION = es.Problem(es.Logistic(), es.Ball(1, norm=math.inf), ridge=0.02, n=100_000, d=20)


def counted(monkeypatch):
    """Return a list that grows with every plan that is made."""
    made, plan = [], choice.plan
    monkeypatch.setattr(choice, "plan", lambda *args, **options: made.append(1) or plan(*args, **options))
    return made


REQUIRED = [
    *(
        (method, release, "rho" if method == "clipped" else "pure")
        for method, release in [*METHODS, (es.nesterov, None)]
    ),
    *((method, None, kind) for method in ("auto", "curvature", "output") for kind in ("delta", "rho")),
]


@pytest.mark.parametrize(("method", "release", "kind"), REQUIRED, ids=named)
def test_the_required_budget_is_the_smallest_whatever_the_method(method, release, kind, monkeypatch):
    problem = replace(QUESTION, loss=es.Squared(), n=2000) if method == "statistics" else replace(QUESTION, n=2000)
    options = {"delta": 1e-6} if kind == "delta" else {"rho": True} if kind == "rho" else {}
    make = {"pure": es.Pure, "delta": lambda e: es.Approximate(e, 1e-6), "rho": es.Concentrated}[kind]
    error, made = 0.2 * Typical(problem).trivial, counted(monkeypatch)
    found = es.required_epsilon(problem, error=error, margin=1.0, method=method, release=release, **options)
    assert len(made) <= 40
    chosen = {} if callable(method) else {"release": release}
    assert es.plan(problem, make(found), method, **chosen).utility.expected <= error
    assert es.plan(problem, make(found * (1 - 1e-4)), method, **chosen).utility.expected > error * (1 - 1e-3)


def test_the_required_number_of_records_is_the_smallest(monkeypatch):
    made = counted(monkeypatch)
    for options, budget in (
        ({}, es.Pure(1.0)),
        ({"epsilon": 0.3, "delta": 1e-6}, es.Approximate(0.3, 1e-6)),
        ({"rho": 0.1}, es.Concentrated(0.1)),
    ):
        made.clear()
        found = es.required_n(QUESTION, error=0.02, margin=1.0, release="final", **options)
        assert len(made) <= 40
        at, below = (es.plan(replace(QUESTION, n=n), budget, release="final").utility for n in (found, found - 1))
        assert at.expected <= 0.02 < below.expected


def test_a_margin_asks_for_less():
    for required in (es.required_epsilon, es.required_n):
        asked = functools.partial(required, QUESTION, release="final")
        assert asked(error=0.05, margin=2.0) == asked(error=0.025, margin=1.0)
        assert asked(error=0.05) == asked(error=0.05, margin=1.5)
        numbers = functools.partial(required, replace(QUESTION, loss=es.Squared()), release="final")
        assert numbers(error=0.03) == numbers(error=0.01, margin=1.0)
        proved = functools.partial(asked, error=0.05, proved=True)
        assert proved() == proved(margin=1.0)
    for wrong in ({"verdict": "useful"}, {"error": 0.05, "proved": True}, {"width": 0.1}):
        with pytest.raises(ValueError, match="a margin is for an error that is expected"):
            es.required_epsilon(QUESTION, margin=2.0, release="final", **wrong)
    with pytest.raises(ValueError, match="margin must be"):
        es.required_n(QUESTION, error=0.05, margin=0.0, release="final")


def test_a_verdict_and_a_proof_are_required_too():
    epsilon = es.required_epsilon(QUESTION, verdict="useful", release="final")
    assert es.plan(QUESTION, es.Pure(epsilon), release="final").utility.verdict == "useful"
    assert es.plan(QUESTION, es.Pure(0.99 * epsilon), release="final").utility.verdict == "marginal"
    assert es.required_epsilon(QUESTION, verdict="marginal", release="final") < epsilon
    proved = es.required_epsilon(QUESTION, error=0.05, proved=True, release="final")
    assert es.plan(QUESTION, es.Pure(proved), "objective").utility.bound <= 0.05
    assert proved > es.required_epsilon(QUESTION, error=0.05, release="final")
    steps = es.required_epsilon(QUESTION, error=0.11, proved=True, method=es.nesterov)
    assert es.plan(QUESTION, es.Pure(steps), es.nesterov).error <= 0.11
    assert es.required_n(QUESTION, verdict="useful", release="final") < QUESTION.n


def test_what_cannot_be_reached_is_said():
    with pytest.raises(es.UnreachableError, match="nothing is proved of curvature first"):
        es.required_epsilon(QUESTION, error=0.05, proved=True, method="curvature")
    with pytest.raises(es.UnreachableError, match="no epsilon is expected to reach an error of 1e-18"):
        es.required_epsilon(replace(QUESTION, loss=es.Squared()), error=1e-18, method="objective")
    for wrong in ({}, {"error": 0.1, "verdict": "useful"}, {"verdict": "noise"}, {"verdict": "useful", "proved": True}):
        with pytest.raises(ValueError, match=r"error|verdict"):
            es.required_epsilon(QUESTION, release="final", **wrong)
    with pytest.raises(ValueError, match="has no delta"):
        es.required_epsilon(QUESTION, error=0.1, rho=True, delta=1e-6, release="final")


@pytest.mark.parametrize("kind", BUDGETS)
def test_what_no_number_of_steps_reaches_is_bounded_from_below(kind):
    """After more steps than are followed the start leaves no less than is said, and so does every number of them."""
    rng, said = np.random.default_rng(5), []
    for problem in problems(6, 3):
        problem, budget = replace(problem, n=int(rng.choice(SIZES))), BUDGETS[kind](float(rng.choice(EPSILONS)))
        problem, noise = choice._descended(problem, budget)
        typical, every = Typical(problem), ridges(problem, 4.0, 4.0).tolist()
        for ridge in rng.choice(every, 2).tolist():
            stated = problem.with_ridge(ridge)
            few, many = (
                TypicalError(es.nesterov(ridge, stated.L, count), typical, noise, ridge, stated.L) for count in (8, 400)
            )
            assert few.least_start_error() <= np.min(many.start_errors(1.0)[7:]) * (1 + 1e-9) + 1e-300
            error = steps.typical_error(stated, typical, budget, noise, 400)
            for limit in (0.5 * error, 0.99 * error, 1.01 * error):
                beyond = steps.is_beyond(problem, typical, budget, noise, [ridge], limit)
                assert not beyond or error > limit
                said.append(beyond)
    assert 0.2 < np.mean(said) < 0.67  # it says so where it is true, mostly, and never where it is not


@pytest.mark.parametrize("kind", BUDGETS)
def test_ridges_side_by_side_are_followed_as_each_by_itself(kind):
    """The errors of several ridges at once are those of each, and all are beyond a limit where each of them is."""
    for problem in problems(3, 8):
        budget = BUDGETS[kind](1.0)
        problem, noise = choice._descended(problem, budget)
        typical, every = Typical(problem), ridges(problem, 4.0, 4.0).tolist()
        stated = [problem.with_ridge(ridge) for ridge in every]
        each = [TypicalError(es.nesterov(s.mu, s.L, 16), typical, noise, s.mu, s.L) for s in stated]
        mu, L = np.array([[s.mu] for s in stated]), np.array([[s.L] for s in stated])
        both = TypicalErrors([one.steps for one in each], typical, noise, mu, L)
        for ask in (lambda e: e.start_errors(1.0).T, lambda e: e.weight_sums(0.5).T, lambda e: e.least_start_error()):
            np.testing.assert_allclose(ask(both), [ask(one) for one in each], rtol=1e-9, atol=1e-300)
        for limit in (1e-6, 1e-3, 0.1):
            alone = [steps.is_beyond(problem, typical, budget, noise, [ridge], limit) for ridge in every]
            assert steps.is_beyond(problem, typical, budget, noise, every, limit) is all(alone)


@pytest.mark.parametrize("kind", ["pure", "delta"])
def test_no_tilt_is_predicted_to_cost_less_than_its_bound(kind):
    """What planning leaves out by ``least_costs`` would not have been better: bounds are below, and mostly near."""
    rng, shares = np.random.default_rng(7), []
    for problem in problems(8, 2):
        problem, budget = replace(problem, n=int(rng.choice(SIZES))), BUDGETS[kind](float(rng.choice(EPSILONS)))
        losses, instead_of = objective.stand_ins(problem)
        sought = objective.Sought.of_losses(problem, losses, instead_of)[::4]
        offers = [(each, noise) for each in sought for noise in objective.candidates(sought[0].problem, budget, "auto")]
        if sought[0].typical is not sought[-1].typical:
            continue
        for least, (each, noise) in zip(objective.least_costs(offers, budget), offers, strict=True):
            plan = objective.planned(objective.ObjectivePlan, each, budget, noise, (1.0,), instead_of=instead_of)
            assert plan is not None
            shares.append(least / each.predicted(plan))
            assert shares[-1] <= 1
            limited = objective.planned(
                objective.ObjectivePlan, each, budget, noise, (1.0,), limit=each.predicted(plan) * 1.001
            )
            assert limited is not None
            assert limited.ridge == plan.ridge
    assert np.median(shares) > 0.5


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_a_restated_problem_is_the_one_that_is_made_anew(loss):
    for problem in problems(9, 1):
        anew = replace(problem, loss=loss, ridge=0.3)
        again = restated(problem, loss=loss, ridge=0.3)
        assert again == anew
        assert [again.record_size(norm) for norm in (1, 2, math.inf)] == [
            anew.record_size(norm) for norm in (1, 2, math.inf)
        ]
        assert np.array_equal(again.units, anew.units)
        assert (again.hull, again.exact_hull) == (anew.hull, anew.exact_hull)
    with pytest.raises(TypeError, match="the same kind of records"):
        restated(problem, d=3)
    with pytest.raises(ValueError, match="ridge must not be negative"):
        restated(problem, ridge=-1.0)
