"""The ledger: charges are kept, add up exactly, are never above the budget, and are refused clearly."""

import json
import math
import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest
from conftest import records, small_problem
from hypothesis import given, settings
from hypothesis import strategies as st

import epsteps as es
from epsteps.ledger import store


@pytest.fixture
def ledger(tmp_path):
    made = es.Ledger(tmp_path / "budget.db")
    made.create("people", es.Pure(1.0))
    return made


def test_charges_are_kept_and_add_up(ledger):
    first = ledger.charge("people", es.Pure(0.25), note="a first look")
    ledger.charge("people", es.Pure(0.5))
    again = es.Ledger(str(ledger.path))
    assert again.spent("people") == 0.75
    assert again.remaining("people") == 0.25
    assert [entry.cost for entry in again.history("people")] == [es.Pure(0.25), es.Pure(0.5)]
    assert again.history("people")[0] == first
    assert (first.seq, first.dataset, first.note, first.key) == (2, "people", "a first look", None)
    assert again.verify() == again.head() == again.history("people")[-1].hash
    terms = json.loads(ledger.entries()[0].terms)
    assert (terms["adjacency"], terms["amounts"]) == ("replace-one", "decimal")


def test_a_charge_that_does_not_fit_is_refused_and_changes_nothing(ledger):
    ledger.charge("people", es.Pure(0.75))
    before = ledger.entries()
    message = (
        r"Pure\(epsilon=0.5\) does not fit: dataset 'people' has epsilon = 0.25 of 1.0 left. Plan with epsilon of at"
    )
    with pytest.raises(es.BudgetExceededError, match=message):
        ledger.charge("people", es.Pure(0.5))
    assert ledger.entries() == before
    ledger.charge("people", es.Pure(0.25))
    assert ledger.remaining("people") == 0
    with pytest.raises(ValueError, match="does not fit"):
        ledger.charge("people", es.Pure(5e-324))


def test_ten_tenths_are_the_whole_and_nothing_more_fits(ledger):
    """Floats add up to 0.9999999999999999, and the float 0.1 is above a tenth: what counts is what was written."""
    for number in range(1, 11):
        ledger.charge("people", es.Pure(0.1))
        assert ledger.spent("people") == number / 10
        assert ledger.remaining("people") == (10 - number) / 10
    with pytest.raises(es.BudgetExceededError, match=r"has epsilon = 0.0 of 1.0 left"):
        ledger.charge("people", es.Pure(1e-300))
    ledger.verify()


@pytest.mark.parametrize("epsilons", [[0.1] * 7, [0.3] * 3, [1 / 3, 1e-9, 0.2]])
def test_what_remains_can_be_charged(ledger, epsilons):
    for epsilon in epsilons:
        ledger.charge("people", es.Pure(epsilon))
    ledger.charge("people", es.Pure(ledger.remaining("people")))
    assert 1 - 1e-16 <= ledger.spent("people") <= 1
    ledger.verify()


def test_a_key_charges_once(ledger):
    first = ledger.charge("people", es.Pure(0.6), note="run 7", key="run 7")
    assert ledger.charge("people", es.Pure(0.6), note="resumed", key="run 7") == first
    assert ledger.spent("people") == 0.6
    ledger.create("others", es.Pure(1.0))
    for name, cost in (("people", es.Pure(0.1)), ("others", es.Pure(0.6)), ("others", es.Concentrated(0.6))):
        with pytest.raises(ValueError, match=r"key 'run 7' was used for Pure.epsilon=0.6. on dataset 'people'"):
            ledger.charge(name, cost, key="run 7")
    assert len(ledger.entries()) == 3


def test_a_charge_is_on_the_disk_before_it_returns(ledger, monkeypatch):
    statements, connect = [], store._connect

    def traced(path, options):
        connection = connect(path, options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(store, "_connect", traced)
    ledger.charge("people", es.Pure(0.1))
    order = [statements.index(line) for line in ("PRAGMA synchronous = FULL", "BEGIN EXCLUSIVE", "COMMIT")]
    assert order == sorted(order)
    written = next(i for i, line in enumerate(statements) if line.startswith("INSERT INTO entries"))
    assert order[1] < written < order[2]
    assert any("FROM entries" in line for line in statements[written + 1 : order[2]])  # read back before it counts
    with closing(sqlite3.connect(ledger.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_an_account_is_charged_before_a_run(ledger):
    problem = small_problem()
    plan = es.plan(problem, es.Pure(0.75), es.nesterov, iterations=5)
    data = es.Rows(problem, *records(problem))
    account = ledger.account("people")
    es.run(plan, data, ledger=account, anyway=True)
    assert ledger.spent("people") == plan.spending().amount
    assert ledger.history("people")[0].note == "nesterov, 5 steps, 1 run(s)"
    steps = []
    with pytest.raises(es.BudgetExceededError):
        es.run(plan, data, ledger=account, on_step=steps.append, anyway=True)
    assert steps == []
    es.estimate_smoothness(data, es.Pure(0.01), ledger=account)
    assert ledger.history("people")[-1].note == "smoothness"
    account.charge(es.Pure(0.01), note="by hand", key="once")
    account.charge(es.Pure(0.01), note="by hand", key="once")
    assert len(ledger.history("people")) == 3


@pytest.mark.parametrize("name", ["'; DROP TABLE entries; --", "Zoë 數據 🎲", "❤\ufe0f", "%s {0}", "x" * 200])
def test_names_are_any_printable_text(tmp_path, name):
    ledger = es.Ledger(tmp_path / "odd ?#%20 name.db")
    ledger.create(name, es.Pure(1.0))
    ledger.charge(name, es.Pure(0.5), note=name, key=name)
    assert ledger.history(name)[0].note == name
    assert ledger.path.exists()


@pytest.mark.parametrize(
    "name",
    [
        "p ",
        " p",
        "\tp",
        "p\n",
        "e\u0301",
        "\u212b",
        "a\x00b",
        "\x1b[31m",
        "a\u200bb",
        "a\xa0b",
        "\u202ep",
        "\ufeffp",
        "\xad",
    ],
)
def test_names_with_a_second_spelling_are_refused(ledger, name):
    with pytest.raises(ValueError, match=r"name must (be composed|have printable)"):
        ledger.create(name, es.Pure(1.0))
    assert len(ledger.books()) == 1


@pytest.mark.parametrize(
    "alike", ["PEOPLE", "people\u3164", "ｐｅｏｐｌｅ", "peop\u034fle", "people\ufe0f", "ᵖeople", "People"]
)
def test_names_that_look_like_another_are_refused(ledger, alike):
    with pytest.raises(ValueError, match=r"looks like 'people', which exists, with pure epsilon = 1"):
        ledger.create(alike, es.Pure(1.0))
    with pytest.raises(ValueError, match="no dataset"):
        ledger.charge(alike, es.Pure(0.1))
    ledger.create("people of 2024", es.Pure(1.0))
    with pytest.raises(ValueError, match="looks like"):
        ledger.create("people  of 2024", es.Pure(1.0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda b: b.charge("peple", es.Pure(1)), ValueError, "no dataset 'peple'; it has 'people'"),
        (lambda b: b.account("peple"), ValueError, "no dataset 'peple'"),
        (lambda b: b.create("people", es.Pure(2)), ValueError, "'people' exists, with pure epsilon = 1"),
        (lambda b: b.charge("people", 0.1), TypeError, "cost must be Pure.epsilon., Concentrated"),
        (lambda b: b.create("x", 0.1), TypeError, "budget must be Pure.epsilon., Concentrated"),
        (lambda b: b.charge("people", es.Concentrated(0.1)), TypeError, "cannot be charged to a dataset with pure"),
        (lambda b: b.charge("people", es.Approximate(0.1, 1e-6)), TypeError, "Plan with Pure"),
        (lambda b: b.create("", es.Pure(1)), ValueError, "name must have 1 to 200 characters, got 0"),
        (lambda b: b.create("x" * 201, es.Pure(1)), ValueError, "name must have 1 to 200 characters, got 201"),
        (lambda b: b.create("\ud800", es.Pure(1)), ValueError, "UTF-8"),
        (lambda b: b.create(3, es.Pure(1)), TypeError, "name must be text, got 3"),
        (lambda b: b.charge("people", es.Pure(0.1), key=""), ValueError, "key must have 1 to 200"),
        (lambda b: b.charge("people", es.Pure(0.1), note="x" * 2001), ValueError, "note must have 0 to 2000"),
        (
            lambda b: b.create("x", es.Pure(1), composition="sharp"),
            ValueError,
            "'adaptive', 'plain', 'numerical', got 'sharp'",
        ),
        (lambda b: b.create("x", es.Pure(1), composition="numerical"), ValueError, "is for Approximate"),
    ],
)
def test_wrong_arguments_are_refused(ledger, call, error, message):
    before = ledger.entries()
    with pytest.raises(error, match=message):
        call(ledger)
    assert ledger.entries() == before


@settings(max_examples=15)
@given(costs=st.lists(st.floats(1e-12, 2.0), max_size=6))
def test_spent_and_remaining_round_toward_privacy(tmp_path_factory, costs):
    ledger = es.Ledger(tmp_path_factory.mktemp("law") / "budget.db")
    ledger.create("people", es.Pure(1.1))
    spent = Fraction(0)
    for epsilon in costs:
        fits = spent + Fraction(repr(epsilon)) <= Fraction("1.1")
        try:
            ledger.charge("people", es.Pure(epsilon))
        except es.BudgetExceededError:
            assert not fits
        else:
            assert fits
            spent += Fraction(repr(epsilon))
    shown, remaining = ledger.spent("people"), ledger.remaining("people")
    assert Fraction(repr(shown)) >= spent > Fraction(repr(math.nextafter(shown, -1)))
    assert Fraction(repr(remaining)) <= Fraction("1.1") - spent < Fraction(repr(math.nextafter(remaining, 9)))
