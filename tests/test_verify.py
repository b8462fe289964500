"""``epsteps verify``: a folder that was changed anywhere is found out, and one that was not is not accused."""

import json
import shutil

import pytest
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app

SCHEMA = """\
target = "y"
[columns.age]
type = "numeric"
low = 0
high = 100
[columns.y]
type = "category"
values = [0, 1]
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with a model that was charged to the ledger beside it."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "data.csv").write_text("age,y\n" + "".join(f"{age},{int(age > 50)}\n" for age in range(100)))
    es.Ledger(folder / "budget.db").create("people", es.Pure(3.0))
    paid = ("--ledger", folder / "budget.db", "--dataset", "people")
    command = ("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--method", "output")
    done = call(*command, *paid, "--yes", "--anyway", "--out", folder / "model", "-q")
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def model(fitted, tmp_path):
    return shutil.copytree(fitted / "model", tmp_path / "model")


def checks(*arguments):
    result = call("verify", *arguments, "--json")
    content = json.loads(result.stdout)
    assert content["valid"] == (result.exit_code == 0)
    assert result.exit_code in (0, 1)
    return {check["what"]: check["result"] for check in content["checks"]}, result


def test_what_was_not_changed_matches(fitted):
    ledger = ("--ledger", fitted / "budget.db")
    found, _ = checks(fitted / "model", *ledger)
    assert found == dict.fromkeys(("certificate", "coefficients", "plan", "report", "ledger"), "matches")
    assert checks(fitted / "model" / "model.json", *ledger)[0] == found
    without, _ = checks(fitted / "model")
    assert without == found | {"ledger": "not checked"}
    text = call("verify", fitted / "model", *ledger).output
    assert "spends 1 of pure epsilon = 1" in text
    assert "entry 2 of people" in text


def changed(model, change):
    content = json.loads((model / "model.json").read_text())
    change(content)
    (model / "model.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda content: content["certificate"].update(spent=0.1), {"model.json"}),
        (lambda content: content["certificate"].update(epsilon=0.5), {"model.json"}),
        (lambda content: content["points"][-1][0].__setitem__(0, 9.0), {"model.json"}),
        (lambda content: content["plan"]["budget"].update(epsilon=0.5), {"model.json"}),
        (lambda content: content.pop("plan"), {"model.json"}),
        (lambda content: content.update(plan_text="spends nothing"), {"plan"}),
        (lambda content: content["releases"][0].update(cost=0.1), {"plan", "report"}),
        (lambda content: content["made"].update(on="1999-01-01"), {"report"}),
        (lambda content: content["ledger"].update(note="another"), {"ledger"}),
        (lambda content: content["ledger"].update(seq=7), {"ledger"}),
        (lambda content: content["ledger"].update(hash="0" * 64), {"ledger"}),
        (lambda content: content.update(ledger=None), {"ledger"}),
    ],
)
def test_what_was_changed_is_named(fitted, model, change, wrong):
    changed(model, change)
    found, result = checks(model, "--ledger", fitted / "budget.db")
    named = {what for what, verdict in found.items() if verdict == "DOES NOT MATCH"}
    assert wrong <= named <= wrong | {"report"}  # which shows whatever was changed, if it shows it
    assert result.exit_code == 1
    assert "is not what it says" in result.stderr


def test_a_report_that_was_edited_is_found_and_one_of_another_version_is_not_judged(fitted, model):
    report = model / "report.html"
    report.write_text(report.read_text().replace("epsilon", "epsil0n", 1))
    assert checks(model)[0]["report"] == "DOES NOT MATCH"
    changed(model, lambda content: content["made"].update(by="epsteps 0.0.1"))
    assert checks(model)[0]["report"] == "not checked"
    report.unlink()
    found, result = checks(model)
    assert (found["report"], result.exit_code) == ("not checked", 0)


def test_another_ledger_and_one_that_was_changed_are_named(fitted, model, tmp_path):
    other = es.Ledger(tmp_path / "other.db")
    other.create("people", es.Pure(3.0))
    other.charge("people", es.Pure(1.0))
    assert checks(model, "--ledger", other.path)[0]["ledger"] == "DOES NOT MATCH"
    missing = call("verify", model, "--ledger", tmp_path / "none.db")
    assert (missing.exit_code, "there is no ledger" in missing.output) == (1, True)
    nothing = call("verify", tmp_path / "nowhere")
    assert (nothing.exit_code, "there is no model" in nothing.output) == (1, True)


def test_an_entry_that_paid_for_something_else_is_named(fitted, model, tmp_path):
    """It is a true entry of the ledger, and the model names it; but its cost is not the plan's."""
    copy = shutil.copy(fitted / "budget.db", tmp_path / "budget.db")
    entry = es.Ledger(copy).charge("people", es.Pure(0.25), note="less")
    facts = {name: getattr(entry, name) for name in ("dataset", "seq", "time", "terms", "note", "hash")}
    changed(model, lambda content: content["ledger"].update(facts))
    found, result = checks(model, "--ledger", copy)
    assert found["ledger"] == "DOES NOT MATCH"
    assert "paid pure epsilon = 0.25" in result.stdout


def test_a_seeded_model_is_called_what_it_is(fitted, tmp_path):
    command = ("fit", fitted / "data.csv", "--schema", fitted / "schema.toml", "--epsilon", 1, "--method", "output")
    call(*command, "--seed", 1, "--yes", "--out", tmp_path / "model", "-q")
    assert "NOT PRIVATE" in call("verify", tmp_path / "model").output
