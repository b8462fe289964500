"""Evaluations from the command line: what they print, write, charge and refuse."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app

SCHEMA = """
target = "y"
[columns.a]
type = "numeric"
low = 0
high = 50
[columns.c]
type = "category"
values = ["x", "z"]
[columns.y]
"""
TARGETS = {
    "two": 'type = "category"\nvalues = ["no", "yes"]\n',
    "number": 'type = "numeric"\nlow = 0\nhigh = 100\n',
}


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(params=TARGETS)
def folder(request, tmp_path):
    """Return a folder with a table, its schema, a ledger and a model that was fitted to the table."""
    rng = np.random.default_rng(0)
    a, c = rng.uniform(0, 50, 2000), rng.choice(["x", "z"], 2000)
    y = np.where(a + 10 * (c == "x") + rng.normal(0, 10, 2000) > 30, "yes", "no") if request.param == "two" else a + 20
    rows = "\n".join(f"{p:.3f},{q},{r}" for p, q, r in zip(a, c, y, strict=True))
    (tmp_path / "data.csv").write_text(f"a,c,y\n{rows}\n")
    (tmp_path / "schema.toml").write_text(SCHEMA + TARGETS[request.param])
    es.Ledger(tmp_path / "ledger.db").create("people", es.Pure(5.0))
    return tmp_path


def fit(folder, *more):
    fixed = ("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--out", folder / "model")
    ledger = ("--ledger", folder / "ledger.db", "--dataset", "people", "--yes", "--anyway")
    return call(*fixed, *ledger, *more)


def evaluate(folder, *more):
    ledger = ("--ledger", folder / "ledger.db", "--dataset", "people", "--yes")
    return call("evaluate", folder / "model", folder / "data.csv", "--epsilon", 0.5, *ledger, *more)


def content(folder):
    return json.loads((folder / "model" / "model.json").read_text())


def test_an_evaluation_is_charged_and_written_beside_its_model(folder):
    assert fit(folder).exit_code == 0
    before = content(folder)
    result = evaluate(folder, "--rows", "training")
    assert result.exit_code == 0, result.output
    assert "Plan: evaluation" in result.output
    after = content(folder)
    private = after.pop("evaluation")
    assert after == before
    assert private["rows"] == "training"
    assert private["spent"] <= 0.5
    assert all(metric["low"] <= metric["value"] <= metric["high"] for metric in private["metrics"] if metric["low"])
    ledger = es.Ledger(folder / "ledger.db")
    assert ledger.spent("people") == pytest.approx(1.5, rel=1e-6)
    assert "evaluation" in ledger.history("people")[-1].note
    assert private["ledger"]["dataset"] == "people"
    assert es.tables.load_model(folder / "model").plan is not None
    again = evaluate(folder)
    assert again.exit_code != 0
    assert "has private scores already" in again.output
    assert ledger.spent("people") == pytest.approx(1.5, rel=1e-6)
    told = evaluate(folder, "--force", "--json")
    assert json.loads(told.stdout)["rows"] == "held out"


def test_rows_held_out_cost_nothing_more(folder):
    result = fit(folder, "--hold-out", 0.25, "--split-seed", 7)
    assert result.exit_code == 0, result.output
    assert "Private scores on the rows held out" in result.output
    private = content(folder)["evaluation"]
    assert (private["rows"], private["records"]) == ("held out", 500)
    assert content(folder)["certificate"]["records"] == 1500
    assert "as no record is in both" in private["charged"]
    ledger = es.Ledger(folder / "ledger.db")
    assert ledger.spent("people") == pytest.approx(1.0, rel=1e-6)
    assert len(ledger.history("people")) == 1


def test_what_would_tell_nothing_is_refused_before_the_charge(folder):
    assert fit(folder).exit_code == 0
    for more in (("--epsilon", 1e-4), ("--level", 2), ("--epsilon", -1)):
        assert evaluate(folder, *more).exit_code != 0
    assert "evaluation" not in content(folder)
    assert es.Ledger(folder / "ledger.db").spent("people") == pytest.approx(1.0, rel=1e-6)
