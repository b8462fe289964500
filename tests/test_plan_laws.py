"""Every plan, of every method under every budget, and of a kind from outside: one JSON, one page, one certificate."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from laws import examples, plans
from outside import Descent

import epsteps as es

PLANS = examples.plans()
each_plan = pytest.mark.parametrize("name", PLANS)


@each_plan
def test_laws_of_a_plan(name):
    plans.holds(PLANS[name])


def test_every_kind_of_plan_is_an_example():
    own = {kind for kind in es.Plan.kinds.values() if kind.__module__.startswith("epsteps.")}
    assert {type(plan) for plan in PLANS.values()} == own


def test_a_plan_is_equal_to_no_other():
    assert len(set(PLANS.values())) == len(PLANS)


@each_plan
def test_a_plan_cannot_be_changed_in_place(name):
    plan = PLANS[name]
    with pytest.raises(AttributeError):
        plan.budget = es.Pure(1e-3)


def test_an_outside_plan_has_all_of_it():
    plan = Descent(examples.LOGISTIC, es.Pure(1.0), 0.5, 2)
    plans.holds(plan)
    with pytest.raises(es.OverspentError, match="more than its budget"):
        replace(plan, cost=0.6)
    with pytest.raises(es.OverspentError, match="more than its budget"):
        es.Plan.from_json(plans.changed(plan, cost=0.6))


HOSTILE = '<script>alert("1 & 2")</script>'


@dataclass(frozen=True, eq=False, repr=False)
class Hostile(Descent):
    """A plan whose texts are those of an attacker."""

    method = f"descent {HOSTILE}"

    @property
    def facts(self) -> dict[str, str]:
        return {"Problem": "ours", HOSTILE: f"a fact {HOSTILE} " + "and so on " * 30}

    @property
    def charges(self) -> list[es.Charge]:
        return [replace(charge, what=HOSTILE, noise=f"{HOSTILE} " * 5) for charge in super().charges]


def test_a_notebook_shows_hostile_text_as_text():
    plan = Hostile(examples.LOGISTIC, es.Pure(1.0), 0.5, 2)
    assert "<script" not in plan._repr_html_()
    plans.is_a_page(plan)


@pytest.mark.parametrize(
    "note", ["L\n  Guarantee  differential privacy with pure epsilon = 0.001", "\x1b[2J", "a\rb", "x" * 300]
)
def test_no_text_of_a_plan_forges_lines_of_its_page(note):
    """A plan comes as JSON from whoever asks for its approval: a note stays in its place, with nothing hidden."""
    plan = es.plan(examples.LOGISTIC, es.Pure(1.0), es.gd, iterations=2, expenses=[es.Expense(note, 0.1, "epsilon")])
    text = str(es.Plan.from_json(plan.to_json()))
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("\n  Guarantee  ") == 1
    plans.is_a_page(plan)


def test_a_subclass_reads_no_other_kind_and_a_kind_that_is_not_there_is_refused():
    text = PLANS["objective pure"].to_json()
    assert isinstance(es.Plan.from_json(text), es.ObjectivePlan)
    content = json.loads(text)
    for kind in ("Nobody", 7, ["ObjectivePlan"], {}):
        with pytest.raises(es.PlanFormatError):
            es.Plan.from_json(json.dumps(content | {"kind": kind}))


def test_costs_of_charges_are_those_that_the_certificate_lists():
    for plan in PLANS.values():
        if isinstance(plan, es.StepsPlan):
            np.testing.assert_array_equal([charge.cost.amount for charge in plan.charges], plan.costs)
        else:
            listed = [plan.certificate()[f"release {number + 1}"] for number in range(len(plan.charges))]
            assert [entry["cost"] for entry in listed] == [charge.cost.amount for charge in plan.charges]
