"""What holds for every plan, of whatever kind."""

import html.parser
import json

import numpy as np
import pytest

import epsteps as es


def page(plan: es.Plan) -> str:
    """Return a plan's page without its line breaks."""
    return " ".join(str(plan).split())


def changed(plan: es.Plan, **content) -> str:
    """Return a plan's JSON with something of its content replaced."""
    return json.dumps(json.loads(plan.to_json()) | content)


def holds(plan: es.Plan) -> None:
    """Check everything that this file knows of a plan."""
    spends_at_most_its_budget(plan)
    survives_json(plan)
    refuses_changed_certificates(plan)
    is_a_page(plan)
    repetitions_cost_more(plan)


def spends_at_most_its_budget(plan: es.Plan, share: float = 0.99) -> None:
    """Check that all of the budget is for use, and no more is used."""
    assert share * plan.budget.amount <= plan.spent <= plan.budget.amount
    assert plan.spending().delta == plan.budget.delta
    assert all(charge.cost.amount > 0 and charge.scale > 0 and charge.what and charge.noise for charge in plan.charges)
    assert plan.allowance
    assert plan.requests > 0
    certificate = plan.certificate()
    assert certificate["spent"] == plan.spent
    assert certificate["adjacency"] == "replace one record"


def survives_json(plan: es.Plan) -> None:
    """Check that a plan can be read back, by the base class and by its own, and is the same plan then."""
    text = plan.to_json()
    for kind in (es.Plan, type(plan)):
        again = kind.from_json(text)
        assert type(again) is type(plan)
        assert again == plan
        assert hash(again) == hash(plan)
        assert again.to_json() == text
        assert str(again) == str(plan)
        assert (again.problem, again.budget, again.spent) == (plan.problem, plan.budget, plan.spent)
        assert (again.charges, again.utility, again.facts) == (plan.charges, plan.utility, plan.facts)
    assert plan != text
    for other in {kind for kind in es.Plan.kinds.values() if not issubclass(type(plan), kind)}:
        with pytest.raises(es.PlanFormatError, match=f"not a plan of the kind {other.__name__}"):
            other.from_json(text)


def refuses_changed_certificates(plan: es.Plan) -> None:
    """Check that a certificate which does not follow from the contents is refused, and so is more or less of them."""
    content = json.loads(plan.to_json())
    for name, value in content["certificate"].items():
        lie = 0.9 * value if isinstance(value, float) else "another"
        if value is None:  # a theorem that may be at hand elsewhere
            continue
        with pytest.raises(es.PlanFormatError, match=f"the plan was changed: its '{name}'"):
            es.Plan.from_json(changed(plan, certificate=content["certificate"] | {name: lie}))
    with pytest.raises(es.PlanFormatError, match="the plan was changed: its 'more'"):
        es.Plan.from_json(changed(plan, certificate=content["certificate"] | {"more": 1.0}))
    with pytest.raises(es.PlanFormatError, match="it has an unknown 'more'"):
        es.Plan.from_json(changed(plan, more=1.0))
    for name in ("problem", "budget", "certificate"):
        with pytest.raises(es.PlanFormatError, match="not a complete plan"):
            es.Plan.from_json(json.dumps({key: value for key, value in content.items() if key != name}))


def is_a_page(plan: es.Plan) -> None:
    """Check that a data holder can read the plan: in 80 columns, in one line, and in a notebook."""
    assert max(map(len, str(plan).splitlines())) <= 80
    assert str(plan.budget) in page(plan)
    assert f"spends {plan.spent:.12g}" in page(plan)
    assert len(repr(plan)) <= 200
    assert "\n" not in repr(plan)
    tags, texts = parsed(plan._repr_html_())
    assert set(tags) == {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert f"Plan: {plan.title}" in texts
    for fact in plan.facts.values():
        assert fact in texts


def parsed(text: str) -> tuple[list[str], list[str]]:
    """Return the tags of some HTML, which must have no attributes, and its texts as a reader sees them."""
    tags, texts = [], []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            assert not attributes
            tags.append(tag)

        def handle_data(self, data):
            texts.append(data)

    parser = Parser()
    parser.feed(text)
    parser.close()
    return tags, texts


def repetitions_cost_more(plan: es.Plan) -> None:
    """Check that more runs cost more, and k of them no more than k times one, as a budget of the same kind.

    Epsilons may add up before they become a rho, which is then k² times that of one.
    """
    one, amounts = plan.spending(), [plan.spending(k).amount for k in (1, 2, 5)]
    power = 2 if isinstance(plan.budget, es.Concentrated) else 1
    assert amounts[0] == one.amount
    assert np.all(np.diff(amounts) > 0)
    assert amounts[1] <= 2**power * one.amount * (1 + 1e-9)
    assert amounts[2] <= 5**power * one.amount * (1 + 1e-9)
    assert type(plan.spending(2)) is type(plan.budget)
