"""What planning is told: a release or a method, options by their names and types, and nothing else."""

import json
import subprocess
import sys

import pytest
from combinations import covered
from conftest import small_problem

import epsteps as es
from epsteps.methods import choice, options

PROBLEM, BUDGET = small_problem(), es.Pure(1.0)
REQUIRED = {"required_epsilon": es.required_epsilon, "required_n": es.required_n}


def test_planning_asks_what_is_published():
    with pytest.raises(TypeError) as asked:
        es.plan(PROBLEM, BUDGET)
    for way in ("plan needs", "release='final'", "release='iterates'", "epsteps.nesterov", "gd, heavy_ball"):
        assert way in str(asked.value)
    assert str(asked.value).count(". ") == 0  # one sentence
    with pytest.raises(TypeError, match="plan needs to know what is published"):
        es.plan(PROBLEM, BUDGET, iterations=3)
    for name, function in REQUIRED.items():
        with pytest.raises(TypeError, match=f"^{name} needs to know what is published"):
            function(PROBLEM, error=0.1)
    assert isinstance(es.plan(PROBLEM, BUDGET, intervals=0.9), es.IntervalPlan)  # which one method buys


@pytest.mark.parametrize("method", [es.gd, es.nesterov, es.heavy_ball, *options.METHODS])
def test_a_release_and_a_method_that_publishes_something_else_are_refused(method):
    published = "iterates" if callable(method) else options.METHODS[method]
    other = {"final": "iterates", "iterates": "final"}[published]
    for plan in (
        lambda: es.plan(PROBLEM, BUDGET, method, release=other),
        lambda: es.required_epsilon(PROBLEM, error=0.1, method=method, release=other),
    ):
        with pytest.raises(ValueError, match=r"leave the method out|Use release='final'"):
            plan()
    if not callable(method) and method != "statistics":
        budget = covered(method, 1.0)
        assert es.plan(PROBLEM, budget, method, release=published) == es.plan(PROBLEM, budget, method)


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "message"),
    [
        ((PROBLEM, 1.0), {}, TypeError, r"plan needs a budget: epsteps.Pure\(1.0\) .* got 1.0"),
        ((PROBLEM, True), {}, TypeError, "plan needs a budget"),
        ((PROBLEM, "1"), {"release": "final"}, TypeError, "plan needs a budget: .* got '1'"),
        ((BUDGET, PROBLEM), {}, TypeError, "plan needs a problem first"),
        ((PROBLEM, BUDGET, es.gd), {"T": 10}, TypeError, "'gd' has no option 'T': did you mean 'iterations'"),
        ((PROBLEM, BUDGET, es.gd), {"m": 10}, TypeError, "no option 'm': did you mean 'batch'"),
        ((PROBLEM, BUDGET), {"iteration": 10}, TypeError, "plan has no option 'iteration': did you mean 'iterations'"),
        (
            (PROBLEM, BUDGET),
            {"release": "final", "mecanism": "hull"},
            TypeError,
            "plan has .* did you mean 'mechanism'",
        ),
        ((PROBLEM, BUDGET, "output"), {"iteration": 1}, TypeError, "no option 'iteration': it takes mechanism"),
        ((PROBLEM, BUDGET, "adaptive"), {"mechanism": "l2"}, TypeError, "'adaptive' has no option .* it takes none"),
        (
            (PROBLEM, BUDGET, es.gd),
            {"epsilon": 1.0},
            TypeError,
            r"'epsilon': it is declared by the budget, epsteps.Pure",
        ),
        ((PROBLEM, BUDGET, es.gd), {"ridge": 1.0}, TypeError, "'ridge': it is declared by the problem"),
        (
            (PROBLEM, BUDGET),
            {"release": "final", "batch": 9},
            TypeError,
            r"has no option 'batch', which is for method='des",
        ),
        ((PROBLEM, BUDGET), {"release": "last"}, ValueError, "release must be one of 'final', 'iterates', got 'last'"),
        ((PROBLEM, BUDGET, "nesterov"), {}, ValueError, "are functions: pass epsteps.nesterov, without quotes"),
        ((PROBLEM, BUDGET, "heavy-ball"), {"iterations": 3}, ValueError, "pass epsteps.heavy_ball"),
        ((PROBLEM, BUDGET, "final"), {}, ValueError, "What is published is release='final'"),
        ((PROBLEM, BUDGET, 3), {}, TypeError, "method must be a name or a function such as epsteps.nesterov, got 3"),
        ((PROBLEM, BUDGET, es.gd), {"iterations": "10"}, ValueError, "iterations must be a whole number or 'auto'"),
        ((PROBLEM, BUDGET, es.gd), {"batch": 2.5}, TypeError, "batch must be a whole number, got 2.5"),
        ((PROBLEM, BUDGET, es.gd), {"c": "1"}, TypeError, "c must be a number, got '1'"),
        ((PROBLEM, BUDGET), {"intervals": "yes"}, TypeError, "intervals must be a number, got 'yes'"),
    ],
)
def test_a_mistake_is_answered_in_the_words_of_the_call(arguments, keywords, error, message):
    with pytest.raises(error, match=message):
        es.plan(*arguments, **keywords)


@pytest.mark.parametrize("name", REQUIRED)
def test_planning_backwards_answers_in_its_own_words(name):
    function = REQUIRED[name]
    for keywords, message in (
        ({"release": "final", "T": 3}, f"^{name} has no option 'T': did you mean 'iterations'"),
        ({"method": es.gd, "iteration": 3}, "^method 'gd' has no option 'iteration': did you mean 'iterations'"),
        ({"release": "final", "max_iterations": 3}, "release='final' has no option 'max_iterations'"),
    ):
        with pytest.raises(TypeError, match=message):
            function(PROBLEM, error=0.1, **keywords)
    with pytest.raises(TypeError, match=f"^{name} needs a problem first"):
        function(1.0, error=0.1, release="final")


def test_the_types_have_the_options_of_every_method_and_no_other():
    assert set(options.NAMES) == {name for method in (es.gd, *options.METHODS) for name in choice.options_of(method)}
    for method in (es.gd, "descent"):
        assert set(options.StepsOptions.__annotations__) == set(choice.options_of(method))
    for method in ("objective", "sequential", "output", "statistics", "curvature", "adaptive"):
        assert set(choice.options_of(method)) <= set(options.MinimumOptions.__annotations__)


RIGHT = """\
import numpy as np

import epsteps as es

problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=1000, d=3)
budget = es.Pure(1.0)
noise: str = "laplace"
steps: es.StepsPlan = es.plan(problem, budget, es.nesterov, iterations=10, mechanism=noise, start_gap=1.0)
descent: es.StepsPlan = es.plan(problem, budget, "descent", max_iterations=50)
final: es.Plan = es.plan(problem, budget, release="final")
bought = es.plan(problem, es.Approximate(1.0, 1e-6), release="final", intervals=0.95, robust=True)
either = es.plan(problem, es.Concentrated(0.1), "sequential", shares=(0.5, 0.5))
epsilon: float = es.required_epsilon(problem, error=0.05, release="final")
n: int = es.required_n(problem, verdict="useful", method=es.gd, max_iterations=9, epsilon=epsilon)
rows = es.Rows(problem, np.zeros((1000, 3)), np.ones(1000))
run: es.Run = es.run(final, rows, ledger=es.Ledger("budget.db").account("people"))
print(run.x, final.utility.verdict, es.audit(steps).lower_bound, es.Plan.from_json(final.to_json()).spent)
model = es.PrivateLogisticRegression(1.0, bounds=(0, 1))
schema = es.Schema({"age": es.Numeric(0, 100), "y": es.Category([0, 1])}, target="y")
"""
WRONG = [
    "es.plan(problem, budget, es.nesterov, iteration=10)",
    "es.plan(problem, budget, es.nesterov, T=10)",
    "es.plan(problem, budget, release='final', mecanism='hull')",
    "es.plan(problem, budget, es.gd, shares=(1.0,))",
    "es.plan(problem, 1.0, release='final')",
    "es.plan(problem, budget, es.gd, c='1')",
    "es.plan(problem, budget, es.gd, release='final').iterations",
    "es.required_epsilon(problem, error=0.1, release='final', iteration=3)",
    "es.required_n(problem, error=0.1, release='final', intervall=0.95)",
    "es.plann(problem, budget)",
]


def test_a_type_checker_accepts_right_code_and_finds_each_mistake(tmp_path):
    """In one run of pyright, over what a user writes."""
    pytest.importorskip("pyright")
    lines = RIGHT.splitlines()
    path = tmp_path / "user.py"
    path.write_text("\n".join([*lines, *WRONG]) + "\n")
    source = str(es.__file__).rsplit("/epsteps/", 1)[0]
    settings = {"include": ["user.py"], "extraPaths": [source], "pythonVersion": "3.11", "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)["generalDiagnostics"]
    mistakes = {entry["range"]["start"]["line"] for entry in found if entry["severity"] == "error"}
    assert [entry for entry in found if entry["range"]["start"]["line"] < len(lines)] == []
    assert mistakes == set(range(len(lines), len(lines) + len(WRONG)))
