"""Audits find what code really spends: near the claim for right code and never above it, above it for wrong code.

Audits are seeded. By their guarantee at most one seed in twenty accuses right code, in fact fewer than one in 500; one
in a thousand where single releases are audited.
"""

import dataclasses
import json
import math

import numpy as np
import pytest
import test_replay
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

import epsteps as es
from epsteps.auditing import attacks as confidence
from epsteps.auditing import work
from epsteps.auditing.attacks import Traces
from epsteps.auditing.steps import Design
from epsteps.auditing.worst_case import worst_pair
from epsteps.cli import app
from epsteps.methods import plan_objective
from epsteps.methods.bought import SmoothnessPlan
from epsteps.methods.minimum import Minimum
from epsteps.noise import SAMPLERS, Source
from epsteps.problem.losses import PseudoHuber, SmoothedHinge, Softmax
from epsteps.problem.shapes import Nuclear

CUBE = es.Ball(1, norm=np.inf)


def problem_of(loss=None, ball=CUBE, d=5, intercept=False):
    return es.Problem(loss or es.Logistic(), ball, ridge=0.1, n=100_000, d=d, intercept=intercept)


@pytest.fixture
def weak_noise(monkeypatch):
    """Draw scale b/√2 where b was planned, as the paper's published code does."""
    for kind in set(SAMPLERS) - {Nuclear}:
        weaken(monkeypatch, kind, 1 / np.sqrt(2))


def weaken(monkeypatch, kind, factor):
    """Draw noise of this kind of shape with so many times the scale that was asked for."""
    right = SAMPLERS[kind]
    sampler = dataclasses.replace(right, integers=lambda bits, shape, t: right.integers(bits, shape, factor * t))
    monkeypatch.setitem(SAMPLERS, kind, sampler)


@pytest.mark.parametrize("d", [2, 5, 20])
def test_right_code_spends_nearly_its_claim_and_not_more(d):
    found = es.audit(es.plan(problem_of(d=d), es.Pure(1.0), es.nesterov, iterations=15, mechanism="laplace"))
    assert 0.9 < found.lower_bound <= 1
    assert found.claimed == pytest.approx(1)
    assert found.consistent
    assert "consistent with the claim" in str(found)


def test_the_papers_noise_is_found_to_spend_more_than_one(weak_noise):
    """The truth is √2. The audit proves more than 1, and more of every step than it claims."""
    found = es.audit(es.plan(problem_of(), es.Pure(1.0), es.nesterov, iterations=15, mechanism="laplace"))
    assert 1.25 < found.lower_bound <= np.sqrt(2)
    assert not found.consistent
    assert "the run spends epsilon >= 1.3" in found.violations[0]
    assert "15 of 15 steps cost more than claimed" in found.violations[1]


KINDS = {
    "gd": (problem_of(), es.Pure(1.0), es.gd, {}),
    "heavy ball": (problem_of(), es.Pure(0.1), es.heavy_ball, {"allocation": "uniform"}),
    "multistage": (problem_of(), es.Pure(1.0), es.multistage, {"iterations": 25}),
    "L2 ball": (problem_of(ball=es.Ball(3.0)), es.Pure(1.0), es.nesterov, {}),
    "L1 ball": (problem_of(ball=es.Ball(0.5, norm=1)), es.Pure(1.0), es.nesterov, {}),
    "intercept": (problem_of(ball=es.Ball(0.3), intercept=True), es.Pure(1.0), es.nesterov, {}),
    "one feature and intercept": (problem_of(d=1, intercept=True), es.Pure(1.0), es.nesterov, {}),
    "squared": (problem_of(es.Squared(2.0)), es.Pure(1.0), es.nesterov, {}),
    "squared with intercept": (problem_of(es.Squared(2.0), intercept=True), es.Pure(1.0), es.nesterov, {}),
    "state": (problem_of(d=1), es.Pure(1.0), es.nesterov, {"sensitivity": "state"}),
    "sampled": (problem_of(), es.Pure(1.0), es.nesterov, {"batch": 2000, "iterations": 3}),
    "sampled at a delta": (
        problem_of(),
        es.Approximate(1.0, 1e-5),
        es.nesterov,
        {"batch": 2000, "iterations": 3, "mechanism": "laplace"},
    ),
    "rho": (problem_of(), es.Concentrated(0.1), es.nesterov, {}),
    "rho, L1 ball": (problem_of(ball=es.Ball(1, norm=1)), es.Concentrated(0.1), es.nesterov, {}),
    "epsilon at a delta": (problem_of(es.Squared()), es.Approximate(1.0, 1e-5), es.nesterov, {}),
    "tiny": (problem_of(d=2), es.Pure(0.002), es.gd, {"iterations": 2}),
    "large": (problem_of(), es.Pure(30.0), es.gd, {"iterations": 3}),
}


def usual(budget):
    return "laplace" if isinstance(budget, es.Pure) else "gaussian"


def some_slow(kinds, quick):
    """Return kinds as parameters: those that are not quick are for ``make test-slow``."""
    return [kind if kind in quick else pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


@pytest.mark.parametrize(
    "kind",
    some_slow(KINDS, ("gd", "multistage", "intercept", "squared", "state", "sampled", "rho", "epsilon at a delta")),
)
def test_every_kind_of_plan_is_audited(kind):
    problem, budget, method, options = KINDS[kind]
    found = es.audit(es.plan(problem, budget, method, **({"iterations": 8, "mechanism": usual(budget)} | options)))
    assert found.consistent, found.violations
    assert 0.8 * found.claimed < found.lower_bound <= found.claimed
    assert found.share > 0.99
    for step in found.steps:
        assert 0 <= step.lower_bound <= step.claimed
        assert 0 <= step.misses <= step.hits <= step.trials


@pytest.mark.parametrize("kind", ["intercept", "squared", "sampled", "rho", "rho, L1 ball", "epsilon at a delta"])
def test_every_kind_of_weak_noise_is_found(kind, weak_noise):
    problem, budget, method, options = KINDS[kind]
    found = es.audit(es.plan(problem, budget, method, **({"iterations": 8, "mechanism": usual(budget)} | options)))
    assert found.lower_bound > 1.1 * found.claimed
    assert not found.consistent


RANGES = es.Box((0, -1, 0.2, 0, 0), (2, 1, 0.3, 1, 1))
CATEGORY = es.Box(0, 1, one_hot=[(1, 4)])
# One step of each: what it costs does not depend on the others.
SHAPES = {
    "l2": (problem_of(ball=es.Ball(1.3)), {"mechanism": "l2"}),
    "l2 on a box with intercept": (problem_of(ball=es.Box(0, 1), intercept=True), {"mechanism": "l2"}),
    "linf": (problem_of(), {"mechanism": "linf"}),
    "linf, ranges": (problem_of(ball=RANGES), {"mechanism": "linf"}),
    "hull": (problem_of(ball=es.Box(0, 1)), {"mechanism": "hull"}),
    "hull, ranges, intercept": (problem_of(ball=RANGES, intercept=True), {"mechanism": "hull"}),
    "hull, category": (problem_of(ball=CATEGORY, intercept=True), {"mechanism": "hull"}),
    "blocks, category": (problem_of(ball=CATEGORY), {"mechanism": "blocks"}),
    "hull, sampled": (problem_of(ball=es.Box(0, 1)), {"mechanism": "hull", "batch": 2000}),
    "hull, squared": (problem_of(es.Squared(2.0), es.Box(0, 1)), {"mechanism": "hull"}),
    "hull, pseudo-Huber": (problem_of(PseudoHuber(2.0, 0.3), es.Box(0, 1)), {"mechanism": "hull"}),
    "hull, sharp pseudo-Huber": (problem_of(PseudoHuber(2.0, 0.3, 8), es.Box(0, 1)), {"mechanism": "hull"}),
    "linf, softmax": (problem_of(Softmax(), d=2), {"mechanism": "linf"}),
    "hull, state": (problem_of(ball=es.Box(0, 1)), {"mechanism": "hull", "sensitivity": "state"}),
    "ellipsoid": (problem_of(ball=es.Box(0, 1)), {"mechanism": "ellipsoid"}),
    "ellipsoid, category": (problem_of(ball=CATEGORY, intercept=True), {"mechanism": "ellipsoid"}),
}


def shaped_plan(kind):
    problem, options = SHAPES[kind]
    budget = es.Concentrated(0.1) if options["mechanism"] == "ellipsoid" else es.Pure(1.0)
    return es.plan(problem, budget, es.nesterov, iterations=1, **options)


@pytest.mark.parametrize("kind", SHAPES)
def test_noise_of_every_shape_spends_nearly_its_claim_and_not_more(kind):
    found = es.audit(shaped_plan(kind))
    assert found.consistent, found.violations
    assert 0.8 * found.claimed < found.lower_bound <= found.claimed
    assert found.share > (0.9 if kind == "ellipsoid, category" else 0.97)


@pytest.mark.parametrize("kind", ["l2", "linf, ranges", "hull", "hull, category", "ellipsoid", "hull, sampled"])
def test_weak_noise_of_every_shape_is_found(kind, weak_noise):
    found = es.audit(shaped_plan(kind))
    assert found.lower_bound > 1.1 * found.claimed
    assert not found.consistent


def test_steps_of_shaped_noise_add_up_and_are_independent():
    found = es.audit(
        es.plan(problem_of(ball=es.Box(0, 1), d=3), es.Pure(1.0), es.nesterov, iterations=4), repetitions=400
    )
    assert found.plan.mechanism.name == "hull"
    assert found.lower_bound == pytest.approx(sum(step.lower_bound for step in found.steps))
    assert 0.7 < found.lower_bound <= 1
    assert found.independence > 1e-6
    assert any("of its norm's law" in line for line in found.assumptions)


# Few records per ridge, so that a small crowd holds the minimum far out.
HEAVY = es.Problem(es.Logistic(), CUBE, ridge=0.1, n=40, d=2)


def weaker_tilts(monkeypatch, factor, output=1.0):
    """Draw tilts of a smaller scale, and noise on the output too if it is asked for."""
    right = Minimum.draw

    def draw(self, source):
        tilt = dataclasses.replace(self.tilt, scale=factor * self.tilt.scale)
        goal = dataclasses.replace(self.goal, scale=output * self.goal.scale)
        return right(dataclasses.replace(self, goal=goal, tilt=tilt), source)

    monkeypatch.setattr(Minimum, "draw", draw)


def test_a_tilted_minimum_spends_most_of_its_claim_and_not_more():
    found = es.audit(plan_objective(HEAVY, es.Pure(1.0)), repetitions=700)
    assert found.consistent, found.violations
    assert found.share > 0.97
    assert 0.6 < found.lower_bound <= found.claimed <= 1
    assert "objective perturbation, 1 releases" in str(found)
    assert "consistent" in str(found)
    assert json.dumps(found.to_dict())


def test_a_tilted_minimum_of_a_capped_slope_spends_most_of_its_claim_and_not_more():
    """Its Jacobian is not free: what is told apart is that besides the tilt."""
    plan = plan_objective(dataclasses.replace(HEAVY, loss=es.CappedLogistic()), es.Pure(1.0))
    found = es.audit(plan, repetitions=500)
    assert found.consistent, found.violations
    assert 0.6 < found.lower_bound <= found.claimed <= 1


def test_a_weaker_tilt_is_found(monkeypatch):
    weaker_tilts(monkeypatch, 1 / 2)
    found = es.audit(plan_objective(HEAVY, es.Pure(1.0)), repetitions=500)
    assert found.lower_bound > 1.1
    assert not found.consistent


def test_a_gaussian_tilt_is_audited_by_its_corners():
    """They give much away where many records are replaced: such an audit is weak, and replays must do the rest."""
    right = es.audit(plan_objective(HEAVY, es.Approximate(1.0, 1e-5), mechanism="gaussian"), repetitions=200)
    assert right.consistent
    assert 0 < right.lower_bound <= right.claimed
    assert right.unit == "epsilon at delta = 1e-05"
    assert right.step_unit == "mu"


def test_tilts_of_two_releases_are_found_to_depend_on_each_other(monkeypatch):
    plan, right, known = plan_objective(HEAVY, es.Pure(1.0), shares=(0.5, 0.5)), Minimum.draw, []
    assert es.audit(plan, repetitions=100).independence > 1e-6

    def draw(self, source):
        """Draw every second tilt anew, and use it twice."""
        if known:
            return known.pop() | right(dataclasses.replace(self, tilt=None), source)
        known.append(right(self, source))
        return known[0]

    monkeypatch.setattr(Minimum, "draw", draw)
    found = es.audit(plan, repetitions=100)
    assert "not independent" in found.violations[-1]


@pytest.mark.parametrize("budget", [es.Pure(1.0), es.Approximate(1.0, 1e-5)], ids=str)
def test_a_first_minimum_for_little_is_audited_by_itself(budget, monkeypatch):
    plan = es.plan(HEAVY, budget, "sequential", mechanism="gaussian" if budget.delta else "auto")
    steps: list[int] = []
    right = es.audit(plan, repetitions=100, on_step=steps.append)
    assert right.consistent
    assert len(right.steps) == 2
    assert sum(steps) == es.auditing.work(plan)
    assert 0 < right.lower_bound <= right.claimed
    assert 0 < right.steps[0].lower_bound <= plan.costs[0]
    if not budget.delta:
        # Noise on the output has much of so little, and hides a weaker tilt by itself: both are weakened.
        weaker_tilts(monkeypatch, 1 / 8, output=1 / 8)
        assert es.audit(plan, repetitions=100).steps[0].lower_bound > 1.05 * plan.costs[0]


# Other releases, on few columns: exact Wishart noise takes milliseconds a draw.
SMALL_CATEGORY = es.Box((0, 0, 0), (2, 1, 1), one_hot=[(1, 3)])
RELEASES = {
    "output": (problem_of(d=2), "output", es.Pure(1.0), 1000),
    "output, rho": (problem_of(PseudoHuber(0.7, 0.4)), "output", es.Concentrated(0.1), 2000),
    "output, smooth hinge, delta": (
        problem_of(SmoothedHinge(), es.Ball(1.3), d=3, intercept=True),
        "output",
        es.Approximate(1.0, 1e-5),
        1000,
    ),
    "Wishart": (problem_of(es.Squared(2.0), d=2), "statistics", es.Pure(1.0), 400),
    "Wishart, category": (problem_of(es.Squared(2.0), SMALL_CATEGORY, d=3), "statistics", es.Pure(3.0), 250),
    "Gaussian matrix": (
        problem_of(es.Squared(2.0), es.Ball(1.3), intercept=True),
        "statistics",
        es.Concentrated(0.1),
        2000,
    ),
    "Gaussian matrix, delta": (
        problem_of(es.Squared(0.5), es.Box(0, 1)),
        "statistics",
        es.Approximate(1.0, 1e-5),
        2000,
    ),
    "curvature": (problem_of(d=2), "curvature", es.Pure(1.0), 250),
    "curvature, category": (problem_of(ball=SMALL_CATEGORY, d=3), "curvature", es.Pure(1.0), 250),
    "curvature, rho": (
        problem_of(es.Squared(), es.Ball(1.3), d=3, intercept=True),
        "curvature",
        es.Concentrated(0.1),
        400,
    ),
    "curvature, delta": (problem_of(d=3), "curvature", es.Approximate(1.0, 1e-5), 300),
}


@pytest.fixture
def weak_matrices(monkeypatch):
    """Draw Wishart matrices of half the scale."""
    weaken(monkeypatch, Nuclear, 1 / 2)


@pytest.mark.parametrize(
    "kind", some_slow(RELEASES, ("output", "output, smooth hinge, delta", "Wishart", "Gaussian matrix", "curvature"))
)
def test_every_release_spends_most_of_its_claim_and_not_more(kind):
    problem, method, budget, repetitions = RELEASES[kind]
    plan = es.plan(problem, budget, method)
    found = es.audit(plan, repetitions=repetitions)
    assert found.consistent, found.violations
    assert (
        {"output": 0.2, "statistics": 0.8, "curvature": 0.6}[method] * found.claimed
        < found.lower_bound
        <= found.claimed
    )
    assert found.claimed == pytest.approx(budget.amount, rel=1e-6)
    # Minima of so many records lie near 0, where slopes are half of the largest; squares of a ball are not negative.
    assert {"output": 0.45, "statistics": 0.9, "curvature": 0.7}[method] < found.share <= 1 + 1e-6
    assert found.step_unit == ("mu" if found.unit != "epsilon" else "epsilon")
    assert all(0 < step.lower_bound <= step.claimed for step in found.steps)
    assert json.dumps(found.to_dict())
    assert f"Audit of {plan.method}, {len(found.steps)} releases" in str(found)
    if method == "curvature":
        assert len(found.steps) == len(plan.statistics) + 1 + len(plan.expected.gradients)


@pytest.mark.parametrize("kind", ["output, rho", "Gaussian matrix", "Gaussian matrix, delta", "curvature, rho"])
def test_weak_noise_of_every_release_is_found(kind, weak_noise):
    problem, method, budget, repetitions = RELEASES[kind]
    found = es.audit(es.plan(problem, budget, method), repetitions=repetitions)
    assert found.lower_bound > 1.1 * found.claimed
    assert not found.consistent


@pytest.mark.parametrize("kind", ["Wishart", "curvature"])
def test_weak_matrices_are_found(kind, weak_matrices):
    problem, method, budget, repetitions = RELEASES[kind]
    found = es.audit(es.plan(problem, budget, method), repetitions=repetitions)
    above = [number for number, step in enumerate(found.steps) if step.lower_bound > step.claimed]
    assert above == [0 if kind == "Wishart" else 2]
    assert not found.consistent


@pytest.mark.parametrize("m", [2, 5, 30])
def test_the_law_of_a_wishart_trace_is_that_of_exponentials(m):
    """Against 10^6 float draws, five standard errors: wrong with chance 1e-5 at most in all. Another m is refused."""
    rng = np.random.default_rng(m)
    draws = rng.gamma(m, size=10**6) - rng.gamma(m, size=10**6)
    for t in (0.0, 1.0, np.sqrt(2 * m), 3 * np.sqrt(m)):
        p = math.exp(Traces(m).log_tail(t))
        assert np.mean(draws > t) == pytest.approx(p, abs=5e-3 * np.sqrt(p * (1 - p)))
    other = math.exp(Traces(m + 1).log_tail(np.sqrt(2 * m)))
    assert abs(np.mean(draws > np.sqrt(2 * m)) - other) > 5e-3 * np.sqrt(other)
    law = Traces(m)
    assert math.exp(law.log_tail(law.distance / 2)) == pytest.approx(0.1)
    assert law.nearest((500, 500), 1000, 0.01) == 0


def test_traces_of_drawn_wishart_differences_follow_their_law():
    """Signs of orthogonal directions, 2000 exact draws; Kolmogorov's test errs with chance 1e-4. Half a scale fails."""
    source, scale, m = Source(7), 2.0**30, 4
    draws = np.array([source.shaped(Nuclear(m - 1), scale).astype(float) for _ in range(2000)])
    traces = (draws[:, 0, 0] - draws[:, 2, 2]) / (2 * scale)

    def law(t):
        tails = np.array([math.exp(Traces(m).log_tail(abs(value))) for value in t])
        return np.where(t > 0, 1 - tails, tails)

    assert stats.kstest(traces, law).pvalue > 1e-4
    assert stats.kstest(traces / 2, law).pvalue < 1e-4


def test_what_is_no_plan_is_refused():
    with pytest.raises(TypeError, match=r"must come from epsteps\.plan, got str\. Check others by epsteps\.testing"):
        es.audit("plan")


def test_one_feature_attains_half_of_the_logistic_sensitivity():
    """Both slopes cannot be 1 where the two records pull in opposite directions: no audit can find more than half."""
    found = es.audit(es.plan(problem_of(d=1), es.Pure(1.0), es.gd, iterations=3, mechanism="laplace"))
    assert found.share == pytest.approx(0.5)
    assert 0.4 < found.lower_bound <= 0.5
    assert "attain 50.0% of the declared sensitivity" in str(found)


@settings(max_examples=15)
@given(
    st.sampled_from([es.Logistic(), es.Logistic(("no", "yes")), es.Squared(0.3), es.Squared(9.0)]),
    st.sampled_from([1, 2, np.inf]),
    st.floats(0.05, 30),
    st.integers(1, 30),
    st.booleans(),
    st.sampled_from(["laplace", "l2", "linf", "gaussian"]),
)
def test_worst_pairs_lie_in_the_domain_and_attain_the_sensitivity(loss, norm, radius, d, intercept, mechanism):
    problem = problem_of(loss, es.Ball(radius, norm=norm), d, intercept)
    budget = es.Concentrated(0.1) if mechanism == "gaussian" else es.Pure(1.0)
    plan = es.plan(problem, budget, es.gd, iterations=2, mechanism=mechanism)
    pair = worst_pair(plan)
    assert not np.any(problem.domain.outside(pair.features))
    assert problem.loss.outside(pair.targets) == 0
    assert pair.share <= 1 + 1e-9
    assert pair.share > (0.99 if d > 1 or not isinstance(loss, es.Logistic) else 0.49)
    two = dataclasses.replace(problem, n=2)
    gradients = [es.Rows(two, pair.features[[i, i]], pair.targets[[i, i]]).gradient(pair.x) for i in (0, 1)]
    np.testing.assert_allclose(gradients[1] - gradients[0], pair.difference, rtol=1e-6, atol=1e-6 * radius)


@settings(max_examples=30)
@given(st.integers(1, 200), st.floats(1e-9, 1), st.sampled_from([0.001, 0.05, 0.3]))
def test_clopper_and_pearsons_bounds_cover(trials, p, level):
    """Exactly, by summing the binomial law over the counts whose bound is wrong."""
    counts = np.arange(trials + 1)
    law = stats.binom.pmf(counts, trials, p)
    high = np.array([confidence.upper(int(k), trials, level) for k in counts])
    low = np.array([confidence.lower(int(k), trials, level) for k in counts])
    assert law[high < p].sum() <= level * (1 + 1e-9)
    assert law[low > p].sum() <= level * (1 + 1e-9)


def test_dependent_rows_are_found_and_independent_ones_are_not():
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((30, 2000))
    assert confidence.independence(sample) > 1e-3
    sample[7] = 3 * sample[20]
    assert confidence.independence(sample) < 1e-100
    assert confidence.independence(sample[:1]) == 1


def test_audits_repeat_under_their_seed():
    plan = es.plan(problem_of(), es.Pure(1.0), es.gd, iterations=2)
    first, again, other = (es.audit(plan, repetitions=50, seed=seed) for seed in (1, 1, 2))
    assert first.steps == again.steps
    assert first.steps != other.steps


def test_progress_hears_of_every_step():
    plan, heard = es.plan(problem_of(), es.Pure(1.0), es.nesterov, iterations=10, mechanism="laplace"), []
    es.audit(plan, repetitions=5, on_step=heard.append)
    assert sum(heard) == Design(plan).work


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"confidence": 1.0}, ValueError, "confidence must lie between 0 and 1, got 1.0"),
        ({"repetitions": 0}, ValueError, "repetitions must be at least 1, got 0"),
        ({"seed": None}, TypeError, "seed must be a whole number, got None"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        es.audit(es.plan(problem_of(), es.Pure(1.0), es.gd, iterations=2), **options)


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


QUICK = ("--iterations", 4, "--repetitions", 400)


def test_the_command_prints_a_table_and_writes_a_report(tmp_path):
    result = call("audit", "--epsilon", 1, "--method", "nesterov", *QUICK, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "consistent with the claim" in result.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["claimed"] == pytest.approx(1)
    assert 0.5 < report["lower_bound"] <= 1
    assert len(report["steps"]) == 4
    assert report["assumptions"]
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_reads_a_plan(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(es.plan(problem_of(), es.Concentrated(0.1), es.gd, iterations=3).to_json())
    result = call("audit", path, "--repetitions", 300, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["unit"] == "rho"


def test_the_command_fails_for_wrong_code(weak_noise, tmp_path):
    result = call("audit", "--method", "nesterov", "--iterations", 4, "--out", tmp_path)
    assert result.exit_code == 1
    assert "Error: the audit refutes the plan's claim: the run spends epsilon >= 1." in result.output
    assert json.loads((tmp_path / "report.json").read_text())["consistent"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.json"], 1, "No such file"),
        (["--method", "heavy-ball", *QUICK], 0, "consistent"),
        (["--method", "gd", "--confidence", 2, *QUICK], 2, "confidence must lie between 0 and 1, got 2.0"),
        (["--release", "final", "--rho", 1, "--delta", 0.1], 2, "--rho and --delta do not go together"),
    ],
)
def test_the_command_has_clean_errors(arguments, code, message):
    result = call("audit", *arguments)
    assert result.exit_code == code
    assert message in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ["--method", "objective", "--loss", "smoothed-hinge", "--loss-shape", 0.3], marks=pytest.mark.slow
        ),
        ["--method", "output", "--loss", "pseudo-huber"],
        pytest.param(
            ["--method", "curvature", "--loss", "logistic", "--delta", 1e-6, "--d", 1], marks=pytest.mark.slow
        ),
        ["--method", "statistics", "--loss", "squared"],
        ["--method", "descent", "--loss", "half-exponential", "--T", 2],
        ["--release", "iterates", "--loss", "capped-logistic", "--classes", "0,1"],
    ],
    ids=lambda arguments: arguments[1],
)
def test_the_command_knows_every_method_and_loss(arguments, tmp_path):
    """And the plan's file says the same as the options that it was made by."""
    few = ("--repetitions", 100)
    result = call("audit", "--n", 2000, "--d", 2, *arguments, *few, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["consistent"]
    path = tmp_path / "plan.json"
    assert call("plan", "--n", 2000, "--d", 2, *arguments, "--out", path, "--quiet").output == ""
    assert json.loads(call("audit", path, *few, "--json").output) == json.loads(result.output)


def test_the_command_refuses_a_text_that_is_no_plan(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("{}")
    result = call("audit", path)
    assert result.exit_code == 2
    assert result.output.startswith("Error: not a plan")


def test_methods_from_outside_are_audited_by_their_requests(monkeypatch):
    """Of a sum, and of gradients; noise of half its scale is found."""
    plans = [test_replay.VotesPlan(HEAVY, es.Pure(1.0)), test_replay.PlainDescent(HEAVY, es.Pure(1.0), 2)]
    for plan in plans:
        found, heard = es.audit(plan, repetitions=400, on_step=(steps := []).append), work(plan)
        assert found.consistent, found.violations
        assert 0.5 < found.lower_bound <= found.claimed
        assert len(found.steps) == len(plan.charges) == heard == len(steps)
    for kind in set(SAMPLERS) - {Nuclear}:
        weaken(monkeypatch, kind, 1 / 2)
    for plan in plans:
        assert not es.audit(plan, repetitions=400).consistent


def test_the_bought_constant_is_audited():
    for budget in (es.Pure(1.0), es.Concentrated(0.1)):
        found = es.audit(SmoothnessPlan(HEAVY, budget, 0.999), repetitions=1000)
        assert found.consistent, found.violations
        assert 0.7 * budget.amount < found.lower_bound <= found.claimed
        assert found.share == pytest.approx(1, rel=1e-3)


def test_requests_that_no_audit_covers_are_refused_in_a_sentence():
    @dataclasses.dataclass(frozen=True, eq=False)
    class Twice(test_replay.Votes):
        def draw(self, source):
            return super().draw(source) | {"more": super().draw(source)["noise"]}

    class TwicePlan(test_replay.VotesPlan):
        def conversation(self):
            votes = yield Twice(self.problem, self.budget.epsilon)
            return es.Published(votes[None, :])

    with pytest.raises(TypeError, match=r"Twice is not protected by one draw of integer noise: it cannot be audited"):
        es.audit(TwicePlan(HEAVY, es.Pure(1.0)))
