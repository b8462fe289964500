"""A plan decides from public numbers, certifies what it will execute, and cannot be edited into a lie."""

import dataclasses
import json

import numpy as np
import pytest
from conftest import small_problem
from hypothesis import given
from hypothesis import strategies as st
from laws.plans import page

import epsteps as es
from epsteps.budgets.mechanisms import KNorm

methods = st.sampled_from([es.gd, es.nesterov, es.multistage])


@st.composite
def plans(draw):
    n = draw(st.integers(2, 10**6))
    problem = es.Problem(
        draw(st.sampled_from([es.Logistic(), es.Squared(2.0), es.Logistic(("no", "yes"))])),
        es.Ball(draw(st.floats(0.1, 10)), norm=draw(st.sampled_from([1, 2, np.inf]))),
        ridge=draw(st.floats(1e-3, 1.0)),
        n=n,
        d=draw(st.integers(1, 30)),
        intercept=draw(st.booleans()),
    )
    return es.plan(
        problem,
        es.Pure(draw(st.floats(1e-3, 20))),
        draw(methods),
        allocation=draw(st.sampled_from(["optimal", "uniform"])),
        iterations=draw(st.one_of(st.just("auto"), st.integers(1, 60))),
        max_iterations=60,
        batch=draw(st.one_of(st.none(), st.integers(1, n))),
        c=draw(st.floats(0.1, 1.0)),
    )


@given(plans())
def test_a_plan_never_spends_more_than_its_budget_and_hardly_less(plan):
    losses = plan.sensitivity_bound / (plan.batch * plan.scales)
    by_hand = sum(np.log1p(plan.batch / plan.problem.n * np.expm1(losses)))
    assert plan.spent <= plan.budget.epsilon
    assert plan.spent == pytest.approx(by_hand, rel=1e-9)
    assert plan.spent >= plan.budget.epsilon * (1 - 1e-9)


@given(plans())
def test_json_there_and_back(plan):
    again = es.Plan.from_json(plan.to_json())
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.problem == plan.problem
    assert again.spent == plan.spent
    np.testing.assert_array_equal(again.scales, plan.scales)
    assert again.error == plan.error


@given(plans(), st.floats(0.5, 0.999))
def test_a_plan_with_smaller_scales_is_refused(plan, factor):
    with pytest.raises(es.OverspentError, match="more than its budget"):
        dataclasses.replace(plan, scales=plan.scales * factor)
    content = json.loads(plan.to_json())
    content["scales"][-1] *= factor
    with pytest.raises(ValueError, match="more than its budget"):
        es.Plan.from_json(json.dumps(content))


def edited(plan, edit):
    content = json.loads(plan.to_json())
    edit(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda p: p["scales"].__setitem__(0, 10 * p["scales"][0]), "the plan was changed: its 'costs'"),
        (lambda p: p["certificate"].update(spent=0.5), "the plan was changed: its 'spent' says 0.5"),
        (lambda p: p["certificate"].update(error=1e-9), "the plan was changed: its 'error' says 1e-09"),
        (lambda p: p["certificate"].update(adjacency="add or remove"), "the plan was changed: its 'adjacency'"),
        (lambda p: p["certificate"].update(extra=1), "the plan was changed: its 'extra'"),
        (lambda p: p["problem"].update(n=200_000), "the plan was changed|more than its budget"),
        (lambda p: p["problem"].update(n=1000), "m must be between 1 and 1000, got 100000"),
        (lambda p: p["problem"]["domain"].update(radius=2), "more than its budget"),
        (lambda p: p["problem"]["domain"].update(norm=2), "the plan was changed"),
        (lambda p: p.update(batch=1000), "more than its budget|the plan was changed"),
        (lambda p: p["budget"].update(epsilon=0.5), "more than its budget 0.5"),
        (lambda p: p["budget"].update(epsilon=-1), "epsilon must be positive, got -1"),
        (lambda p: p["budget"].update(type="Free"), "not a complete plan: KeyError"),
        (lambda p: p.pop("scales"), "not a complete plan: it lacks 'scales'"),
        (lambda p: p.update(more=1), "not a complete plan: it has an unknown 'more'"),
        (lambda p: p["scales"].pop(), "scales must have one entry for each"),
        (lambda p: p["scales"].__setitem__(0, None), "scales must be positive and finite|not a complete plan"),
        (lambda p: p["scales"].__setitem__(0, -1.0), "scales must be positive and finite"),
        (lambda p: p["steps"].update(alpha=[0.1]), "one entry per step"),
        (lambda p: p.update(epsteps_plan=2), "not a plan of format 1"),
        (lambda p: p.update(mechanism="none"), "mechanism must be one of 'laplace', .* got 'none'"),
        (lambda p: p.update(mechanism="linf"), "the plan was changed: its 'costs'"),
        (lambda p: p.update(sensitivity="none"), "sensitivity must be one of 'global', 'state', got 'none'"),
    ],
)
def test_an_edited_plan_is_refused(paper, edit, message):
    plan = es.plan(paper, es.Pure(1.0), es.nesterov, iterations=7, mechanism="laplace")
    assert es.Plan.from_json(plan.to_json()) == plan
    with pytest.raises(es.PlanFormatError, match=message):
        es.Plan.from_json(edited(plan, edit))


@pytest.mark.parametrize("mechanism", ["linf", "hull"])
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda p: p["scales"].__setitem__(0, 2 * p["scales"][0]), "the plan was changed: its 'costs'"),
        (lambda p: p["problem"]["domain"].update(norm=2), "does not fit|the plan was changed: its 'error'"),
        (lambda p: p.update(mechanism="laplace"), "more than its budget"),
        (lambda p: p.update(mechanism="l2"), "more than its budget"),
        (lambda p: p.update(mechanism="ellipsoid"), "does not cover|more than its budget|the plan was changed"),
    ],
)
def test_an_edited_plan_with_shaped_noise_is_refused(paper, mechanism, edit, message):
    plan = es.plan(paper, es.Pure(1.0), es.nesterov, iterations=7, mechanism=mechanism)
    with pytest.raises(ValueError, match=message):
        es.Plan.from_json(edited(plan, edit))


def test_shaped_noise_grows_with_the_domain(paper):
    """Its scales are in units of the domain: records twice as large get twice the noise, at the same cost."""
    plan = es.plan(paper, es.Pure(1.0), es.nesterov, iterations=7, mechanism="linf")
    wider = dataclasses.replace(paper, domain=es.Ball(2, norm=np.inf))
    power = plan.mechanism.half_power(plan.scales, wider)
    np.testing.assert_allclose(power, 4 * plan.mechanism.half_power(plan.scales, paper))
    assert dataclasses.replace(plan, problem=wider).spent == plan.spent


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"plan"', "{}", '{"epsteps_plan": 1}'])
def test_a_text_that_is_no_plan_is_refused(text):
    with pytest.raises(es.PlanFormatError, match=r"not a (complete )?plan"):
        es.Plan.from_json(text)


def test_a_mechanism_cannot_claim_another_norm(paper):
    """In the cube the sensitivity is 40 in L1 and 2 in Linf: noise for the latter would spend twenty times more."""
    with pytest.raises(TypeError, match="norm"):
        KNorm("laplace", norm=np.inf)  # type: ignore[call-arg]

    @dataclasses.dataclass(frozen=True)
    class Pretended(KNorm):
        norm: float = np.inf  # type: ignore[assignment]

    plan = es.plan(paper, es.Pure(1.0), es.nesterov, iterations=3, mechanism="laplace")
    with pytest.raises(ValueError, match="mechanism must be the library's own"):
        dataclasses.replace(plan, mechanism=Pretended("laplace"), scales=plan.scales / 20)


def test_scales_cannot_be_changed_in_place(paper):
    plan = es.plan(paper, es.Pure(1.0), es.nesterov, iterations=3)
    with pytest.raises(ValueError, match="read-only"):
        plan.scales[0] = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.batch = 7  # type: ignore[misc]


@pytest.mark.parametrize("method", [es.gd, es.nesterov, es.multistage])
@pytest.mark.parametrize("allocation", ["optimal", "uniform"])
@pytest.mark.parametrize("batch", [None, 100])
def test_the_chosen_horizon_has_the_smallest_error(method, allocation, batch):
    problem = small_problem(n=5000, d=5, ridge=0.2)
    options = {"allocation": allocation, "batch": batch, "start_gap": 3.0}
    chosen = es.plan(problem, es.Pure(1.0), method, max_iterations=80, **options)
    errors = [es.plan(problem, es.Pure(1.0), method, iterations=T, **options).error for T in range(1, 81)]
    assert chosen.error == pytest.approx(min(errors), rel=1e-6)


def test_the_optimal_split_promises_less_error_than_the_uniform_one(paper):
    for mechanism, gain in (("laplace", 0.6), ("auto", 0.95)):
        options = {"iterations": 100, "mechanism": mechanism}
        optimal = es.plan(paper, es.Pure(1.0), es.nesterov, **options)
        uniform = es.plan(paper, es.Pure(1.0), es.nesterov, **options, allocation="uniform")
        assert optimal.error < gain * uniform.error


def test_sampling_fewer_records_never_reduces_the_noise(paper):
    """Amplification does not make up for the smaller mean under pure epsilon."""
    full = es.plan(paper, es.Pure(1.0), es.nesterov, iterations=50)
    sampled = es.plan(paper, es.Pure(1.0), es.nesterov, iterations=50, batch=1000)
    assert np.all(sampled.scales > full.scales)
    assert sampled.error > full.error


def test_a_plan_reads_as_text(paper):
    text = page(es.plan(paper, es.Pure(1.0), es.multistage, iterations=100, batch=1000, mechanism="laplace"))
    for fact in (
        "pure epsilon = 1",
        "one record is replaced",
        "n = 100000",
        "Laplace",
        "1000 of 100000",
        "restart",
    ):
        assert fact in text
    assert "no theorem at hand covers" in page(
        es.plan(paper, es.Pure(1.0), es.heavy_ball, iterations=5, allocation="uniform")
    )
    squared = es.Problem(es.Squared(), es.Ball(1), ridge=0.1, n=100, d=2)
    assert "declared range of the target" in page(es.plan(squared, es.Pure(1.0), es.nesterov))


def test_state_dependent_noise_is_never_larger_than_global_noise(paper):
    plan = es.plan(paper, es.Pure(1.0), es.nesterov, iterations=5, sensitivity="state")
    far, zero = np.full(20, 10.0), np.zeros(20)
    assert plan.scale_at(2, zero) == pytest.approx(plan.scales[2] / 2)
    assert plan.scale_at(2, far) <= plan.scales[2]
    assert plan.spent == es.plan(paper, es.Pure(1.0), es.nesterov, iterations=5).spent


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"iterations": 0}, ValueError, "iterations must be at least 1, got 0"),
        ({"iterations": "many"}, ValueError, "iterations must be a whole number or 'auto', got 'many'"),
        ({"iterations": 2.5}, TypeError, "iterations must be a whole number, got 2.5"),
        ({"max_iterations": 0}, ValueError, "max_iterations must be at least 1, got 0"),
        ({"batch": 0}, ValueError, "batch must be between 1 and 100000, got 0"),
        ({"batch": 100_001}, ValueError, "batch must be between 1 and 100000, got 100001. The batch cannot exceed"),
        ({"allocation": "best"}, ValueError, "allocation must be one of 'optimal', 'uniform', got 'best'"),
        (
            {"mechanism": "staircase"},
            ValueError,
            "mechanism must be one of 'auto', 'laplace', .*'ellipsoid', got 'staircase'",
        ),
        ({"sensitivity": "local"}, ValueError, "sensitivity must be one of .* got 'local'"),
        ({"start_gap": 0}, ValueError, "start_gap must be positive, got 0"),
        ({"c": 0}, ValueError, "c must be positive, got 0"),
        ({"c": 1.5}, ValueError, "nesterov needs a step of at most 1/L"),
    ],
)
def test_bad_options_are_refused(paper, options, error, message):
    with pytest.raises(error, match=message):
        es.plan(paper, es.Pure(1.0), es.nesterov, **options)


def test_global_sensitivity_is_refused_where_it_is_infinite():
    problem = es.Problem(es.Squared(), es.Ball(1), ridge=0.1, n=100, d=2)
    with pytest.raises(ValueError, match="Squared has no bounded gradient: use sensitivity='state'"):
        es.plan(problem, es.Pure(1.0), es.nesterov, sensitivity="global")


def test_without_a_theorem_the_remedy_is_named(paper):
    with pytest.raises(es.NoBoundError, match="or iterations=<a number> and allocation='uniform'"):
        es.plan(paper, es.Pure(1.0), es.heavy_ball)
    flat = es.Problem(es.Logistic(), es.Ball(1), ridge=0, n=100, d=2)
    with pytest.raises(es.NoBoundError, match="strong convexity"):
        es.plan(flat, es.Pure(1.0), es.gd)
    assert es.plan(flat, es.Pure(1.0), es.gd, iterations=5, allocation="uniform").error is None


@pytest.mark.parametrize("options", [{}, {"method": es.gd}, {"batch": 2000}, {"allocation": "uniform"}])
def test_required_epsilon_is_enough_and_less_is_not(options):
    problem = small_problem(n=20_000, d=5, ridge=0.2)
    options = {"method": es.nesterov} | options
    epsilon = es.required_epsilon(problem, error=0.05, proved=True, max_iterations=300, **options)
    method = options.get("method", es.nesterov)
    rest = {key: value for key, value in options.items() if key != "method"} | {"max_iterations": 300}
    assert es.plan(problem, es.Pure(epsilon), method, **rest).error <= 0.05
    assert es.plan(problem, es.Pure(epsilon * (1 - 1e-5)), method, **rest).error > 0.05


@pytest.mark.parametrize("options", [{}, {"method": es.multistage}, {"batch": 500}])
def test_required_n_is_enough_and_one_less_is_not(options):
    problem = small_problem(n=2, d=5, ridge=0.2)
    options = {"method": es.nesterov} | options
    n = es.required_n(problem, epsilon=2.0, error=0.05, proved=True, max_iterations=300, **options)
    method = options.get("method", es.nesterov)
    rest = {key: value for key, value in options.items() if key != "method"} | {"max_iterations": 300}

    def promised(n):
        return es.plan(dataclasses.replace(problem, n=n), es.Pure(2.0), method, **rest).error

    assert promised(n) <= 0.05
    assert promised(n - 1) > 0.05


def test_required_n_next_to_the_batch_never_asks_for_fewer_records_than_it():
    problem = small_problem(n=2, d=5, ridge=0.2)
    for error in np.geomspace(0.05, 0.5, 12):
        n = es.required_n(problem, error=error, method=es.nesterov, proved=True, batch=500, max_iterations=100)
        assert n >= 500


def test_a_finite_slope_is_never_replaced_by_a_typical_one():
    """A loss may declare what is typical; where its slope is bounded the noise is for that bound."""

    class Modest(es.Logistic):
        typical_slope = 0.1

    problem = es.Problem(Modest(), es.Ball(1), ridge=0.1, n=100, d=2)
    for mechanism, norm in (("laplace", 1), ("l2", 2), ("linf", "body")):
        plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=3, mechanism=mechanism)
        assert plan.sensitivity_bound == problem.sensitivity(norm)


def test_an_unreachable_error_is_refused(paper):
    with pytest.raises(es.UnreachableError, match=r"no epsilon promises an error of 1e-09.*max_iterations"):
        es.required_epsilon(paper, error=1e-9, method=es.nesterov, proved=True, max_iterations=100)
    with pytest.raises(es.UnreachableError, match=r"no n promises an error of 0.001"):
        es.required_n(paper, error=1e-3, method=es.nesterov, proved=True, batch=100)
    with pytest.raises(es.UnreachableError, match="nothing is proved of heavy_ball"):
        es.required_epsilon(paper, error=0.1, method=es.heavy_ball, proved=True, iterations=5, allocation="uniform")
    with pytest.raises(ValueError, match="error must be positive, got 0"):
        es.required_epsilon(paper, error=0, release="final")


def test_descent_clips_squared_loss_by_its_declared_numbers():
    """To 0.4 of the targets' bound times the longest record, which has a gradient of that length there."""
    problem = es.Problem(es.Squared(2.0), es.Box(0, 3), ridge=0.1, n=1000, d=4)
    plan = es.plan(problem, es.Pure(1.0), "descent", iterations=2)
    assert plan.problem.clip == pytest.approx(0.4 * 2.0 * 6.0)


@pytest.mark.parametrize(("ridge", "raised"), [(0.1, False), (1e-6, True)])
def test_a_page_says_that_the_ridge_was_raised_only_where_it_was(ridge, raised):
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=ridge, n=1000, d=3)
    plan = es.plan(problem, es.Pure(1.0), "objective")
    assert (plan.ridge > problem.ridge, "raised to" in str(plan)) == (raised, raised)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 1e4])
def test_squared_loss_has_a_method_of_its_own_choice(epsilon):
    problem = es.Problem(es.Squared(1.0), es.Box(0, 1), ridge=0.1, n=10_000, d=3)
    methods = {0.1: "objective perturbation", 1.0: "adaptive objective perturbation", 1e4: "sufficient statistics"}
    assert es.plan(problem, es.Pure(epsilon), release="final").method == methods[epsilon]
