"""``epsteps ledger`` as a person calls it: tables, JSON, exit codes, one-line errors."""

import json
import sqlite3
from contextlib import closing

import pytest
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app


def call(*arguments):
    return CliRunner().invoke(app, ["ledger", *map(str, arguments)])


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "budget.db"
    assert call("create", path, "people", "--epsilon", 1).exit_code == 0
    es.Ledger(path).charge("people", es.Pure(0.25), note="a first [red]look", key="run 1")
    return path


def test_create_declares_every_kind_of_budget(tmp_path):
    path = tmp_path / "budget.db"
    assert (
        "dataset a may spend pure epsilon = 1, for one record replaced"
        in call("create", path, "a", "--epsilon", 1).output
    )
    call("create", path, "b", "--rho", 0.5)
    call("create", path, "c", "--epsilon", 2, "--delta", 1e-6, "--composition", "numerical", "--note", "why")
    ledger = es.Ledger(path)
    assert [book.budget for book in ledger.books()] == [es.Pure(1.0), es.Concentrated(0.5), es.Approximate(2.0, 1e-6)]
    assert ledger.book("c").terms.composition == "numerical"
    assert ledger.entries()[-1].note == "why"
    assert json.loads(call("create", path, "d", "--epsilon", 1, "--json").output)["seq"] == 4


def test_show_prints_a_table_without_colours(path):
    result = call("show", path)
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    line = next(line for line in result.output.splitlines() if "people" in line)
    for text in ("pure epsilon = 1", "0.25", "0.75", "█████ ", "25.0%"):
        assert text in line


def test_show_prints_json(path):
    assert json.loads(call("show", path, "--json").output) == [
        {
            "dataset": "people",
            "budget": {"kind": "pure", "epsilon": 1.0},
            "composition": "adaptive",
            "charges": 1,
            "unit": "epsilon",
            "spent": 0.25,
            "remaining": 0.75,
        }
    ]


def test_history_lists_charges(path):
    text = call("history", path, "people").output
    for part in (
        "pure epsilon = 0.25",
        "a first [red]look",
        "run 1",
        "Spent 0.25, remaining 0.75, of pure epsilon = 1.",
    ):
        assert part in text
    found = json.loads(call("history", path, "people", "--json").output)
    assert found["remaining"] == 0.75
    assert found["history"] == [entry.to_dict() for entry in es.Ledger(path).history("people")]


def test_names_cannot_steer_the_terminal(path, monkeypatch):
    with monkeypatch.context() as patch:  # as ledgers could have them before
        patch.setattr("epsteps.ledger.ledger.require_plain", lambda name: None)
        es.Ledger(path).create("\x1b[31mred\n", es.Pure(1.0))
    es.Ledger(path).charge("people", es.Pure(0.1), note="\x1b]0;title\x07")
    for output in (call("show", path).output, call("history", path, "people").output):
        assert "\x1b" not in output
        assert "\\x1b" in output


def test_export_and_verify_go_together(path, tmp_path):
    document = json.loads(call("export", path).output)
    assert document["head"] == es.Ledger(path).head()
    assert [entry["action"] for entry in document["entries"]] == ["create", "charge"]
    out = tmp_path / "export.json"
    assert document["head"] in call("export", path, "--out", out).output
    assert json.loads(out.read_text()) == document
    assert json.loads(call("export", path, "--out", out, "--force", "--json").output)["entries"] == 2
    assert f"is valid; its head is {document['head']}" in call("verify", path, "--head", document["head"]).output
    assert json.loads(call("verify", path, "--json").output) == {"valid": True, "head": document["head"]}


def assert_one_line(result, code, message):
    assert result.exit_code == code
    assert result.output.startswith("Error: ")
    assert len(result.output.strip().splitlines()) == 1
    assert message in result.output


def test_an_edited_ledger_fails_every_command(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET terms = replace(terms, '0.25', '0.01')")
    for arguments in (["show"], ["verify"], ["export"]):
        assert_one_line(call(*arguments, path), 1, "cannot be trusted: entry 2 was changed")
    assert_one_line(call("history", path, "people"), 1, "cannot be trusted: entry 2 was changed")
    assert_one_line(call("create", path, "new", "--epsilon", 1), 1, "cannot be trusted: entry 2 was changed")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["create", "new"], 2, "either --epsilon or --rho"),
        (["create", "new", "--epsilon", 1, "--rho", 1], 2, "either --epsilon or --rho"),
        (["create", "new", "--rho", 1, "--delta", 0.1], 2, "--rho and --delta do not go together"),
        (["create", "new", "--epsilon", -1], 2, "epsilon must be positive, got -1.0"),
        (["create", "new", "--epsilon", 1, "--composition", "x"], 2, "composition must be one of"),
        (["create", "people", "--epsilon", 1], 2, "dataset 'people' exists"),
        (["create", "", "--epsilon", 1], 2, "name must have 1 to 200 characters"),
        (["history", "peple"], 2, "no dataset 'peple'; it has 'people'"),
        (["verify", "--head", "ff"], 1, "no entry has the hash 'ff' that was kept"),
    ],
)
def test_bad_arguments_give_one_line(path, arguments, code, message):
    assert_one_line(call(arguments[0], path, *arguments[1:]), code, message)


@pytest.mark.parametrize("arguments", [["show"], ["verify"], ["export"], ["history"]])
def test_a_missing_ledger_gives_one_line(tmp_path, arguments):
    name = ["people"] if arguments == ["history"] else []
    assert_one_line(call(*arguments, tmp_path / "none.db", *name), 1, "there is no ledger")
    assert list(tmp_path.iterdir()) == []


def test_help_explains_the_commands():
    text = " ".join(call("--help").output.split())
    for command in ("create", "show", "history", "verify", "export", "charged before it draws noise"):
        assert command in text
