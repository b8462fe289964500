"""What commands write replaces nothing unasked, and never a ledger or a checkpoint."""

import os
from pathlib import Path

import pytest
from conftest import records, small_problem
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app

COMPARE = ("compare", "--n", 30, "--d", 2, "--T", 3, "--repetitions", 2)
PLAN = ("plan", "--n", 1000, "--d", 3, "--method", "nesterov", "--T", 5)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_refused(result, message):
    assert result.exit_code == 1
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.fixture
def ledger(tmp_path):
    made = es.Ledger(tmp_path / "budget.db")
    made.create("people", es.Pure(1.0))
    made.charge("people", es.Pure(0.25))
    return made


def names(ledger, tmp_path):
    """Return other names for the ledger's file; the last one makes it unusable as a ledger, not as a target."""
    (tmp_path / "symbolic").symlink_to(ledger.path)
    yield ledger.path
    yield tmp_path / "symbolic"
    yield tmp_path / "." / "budget.db"
    os.link(ledger.path, tmp_path / "hard")
    yield tmp_path / "hard"


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_no_command_replaces_a_ledger_under_any_name(ledger, tmp_path, force):
    before = ledger.path.read_bytes()
    for name in names(ledger, tmp_path):
        assert_refused(call(*PLAN, "--out", name, *force), "it is never replaced")
        if name.name != "hard":
            assert_refused(call("ledger", "export", ledger.path, "--out", name, *force), "it is never replaced")
    for ending in ("csv", "json", "png"):
        (tmp_path / f"compare.{ending}").symlink_to(ledger.path)
        assert_refused(call(*COMPARE, "--out", tmp_path, *force), "it is never replaced")
        (tmp_path / f"compare.{ending}").unlink()
    assert ledger.path.read_bytes() == before
    (tmp_path / "hard").unlink()
    assert ledger.remaining("people") == 0.75


def test_no_command_replaces_a_checkpoint_or_its_journal(tmp_path):
    problem = small_problem(n=100)
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=2)
    refused = []

    def attack(t):
        for name in ("run", "run-journal"):
            refused.append(call(*PLAN, "--out", tmp_path / name, "--force"))

    es.run(plan, es.Rows(problem, *records(problem)), checkpoint=tmp_path / "run", on_step=attack, anyway=True)
    assert len(refused) == 4
    for result in refused:
        assert_refused(result, "it is never replaced")


@pytest.mark.parametrize("command", [PLAN, ("ledger", "export", "LEDGER")])
def test_an_existing_file_is_replaced_only_with_force(ledger, tmp_path, command):
    command = [ledger.path if word == "LEDGER" else word for word in command]
    out = tmp_path / "out.json"
    out.write_text("mine")
    assert_refused(call(*command, "--out", out), "exists, and was left as it is. Name another place with --out, or")
    assert out.read_text() == "mine"
    assert call(*command, "--out", out, "--force").exit_code == 0
    assert out.read_text().startswith("{")
    assert call(*command, "--out", tmp_path / "new.json").exit_code == 0
    assert (tmp_path / "new.json").read_text() == out.read_text()
    assert_refused(call(*command, "--out", tmp_path), "is a folder: name another place")
    assert call(*command, "--out", os.devnull).exit_code == 0
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    assert_refused(call(*command, "--out", tmp_path / "nowhere"), "exists, and was left as it is")
    assert not (tmp_path / "missing").exists()


def test_a_comparison_replaces_its_own_files_and_no_others(tmp_path):
    pytest.importorskip("matplotlib")
    for seed in (1, 2):
        assert call(*COMPARE, "--seed", seed, "--out", tmp_path).exit_code == 0
    own = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert own.keys() == {"compare.csv", "compare.json", "compare.png"}
    for name in own:
        (tmp_path / name).write_text("mine, 1\n")
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert_refused(call(*COMPARE, "--out", tmp_path), f"{Path(name)} exists, and was left as it is")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        (tmp_path / name).write_bytes(own[name])
    (tmp_path / "compare.csv").write_text("mine")
    assert call(*COMPARE, "--out", tmp_path, "--force").exit_code == 0
    assert (tmp_path / "compare.csv").read_text().startswith("algorithm,")
    assert_refused(call(*COMPARE, "--out", tmp_path / "compare.csv"), "--out must be a folder, got the file")


def test_a_comparison_keeps_a_picture_without_its_summary(tmp_path):
    (tmp_path / "compare.png").write_bytes(b"\x89PNG\r\n\x1a\n, a holiday")
    assert_refused(call(*COMPARE, "--out", tmp_path), "compare.png exists, and was left as it is")
