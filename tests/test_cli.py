"""The command line, as a person calls it: output, files, exit codes, one-line errors."""

import builtins
import csv
import io
import json
from typing import get_args

import numpy as np
import pytest
from conftest import records, small_problem
from rich.console import Console
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.cli import app, common
from epsteps.data import chunks
from epsteps.methods import options

SMALL = ["--n", "500", "--d", "3", "--T", "20", "--repetitions", "3", "--ridge", "0.2"]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_compare_writes_table_and_files(tmp_path):
    result = call("compare", *SMALL, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for name in ("DP-GD", "DP-HB", "DP-NAG", "DP-MASG", "DP-NAG-opt", "DP-MASG-opt", "nothing here is private"):
        assert name in result.output
    with (tmp_path / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["algorithm"] for row in rows} == {name for name in result.output.split() if name.startswith("DP-")}
    assert all(float(row["gap_mean"]) > 0 for row in rows)
    summary = json.loads((tmp_path / "compare.json").read_text())
    assert summary["private"] is False
    assert len(summary["algorithms"]) == 6
    for entry in summary["algorithms"]:
        assert entry["epsilon_certified"] <= 1.0
        last = [row for row in rows if row["algorithm"] == entry["algorithm"]][-1]
        assert float(last["gap_mean"]) == entry["gap"]
        assert int(last["iteration"]) == entry["iterations"]
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_compare_repeats_under_its_seed(tmp_path):
    first, again, other = (
        json.loads(call("compare", *SMALL, "--out", tmp_path, "--seed", seed, "--json").output)["algorithms"]
        for seed in (1, 1, 2)
    )
    assert [entry["gap"] for entry in first] == [entry["gap"] for entry in again]
    assert [entry["gap"] for entry in first] != [entry["gap"] for entry in other]


@pytest.mark.parametrize(
    "options", [["--m", "50"], ["--start", "zero"], ["--c", "0.1"], ["--start", "2.5"], ["--delta", "1e-5"]]
)
def test_compare_takes_its_options(tmp_path, options):
    result = call("compare", *SMALL, *options, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    settings = json.loads(result.output)["settings"]
    expected = {"--m": ("batch", 50), "--c": ("c", 0.1), "--delta": ("delta", 1e-5)}.get(options[0])
    if expected:
        assert settings[expected[0]] == expected[1]
    if options == ["--start", "zero"]:
        assert settings["start"] == 0
        assert settings["start_gap"] == pytest.approx(np.log(2))


def write(path, X, y):
    if path.suffix == ".npz":
        np.savez(path, X=X, y=y)
        return
    names = [f"x{i}" for i in range(X.shape[1])] + ["label"]
    table = np.column_stack([X, y])
    if path.suffix == ".csv":
        np.savetxt(path, table, delimiter=",", header=",".join(names), comments="")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(dict(zip(names, table.T, strict=True))), path)


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_compare_reads_files(tmp_path, ending):
    problem = small_problem(n=300, d=3)
    path = tmp_path / f"people.{ending}"
    write(path, *records(problem))
    arguments = ["compare", "--data", path, "--T", 10, "--repetitions", 2, "--out", tmp_path, "--json"]
    result = call(*arguments, "--radius", 1, "--norm", "inf")
    assert result.exit_code == 0, result.output
    assert "n=300, d=3" in json.loads(result.output)["problem"]
    refused = call(*arguments)
    assert refused.exit_code == 2
    assert "--radius is required with --data" in refused.output


@pytest.mark.parametrize(
    ("name", "content", "options", "code", "message"),
    [
        ("a.csv", "x,y\n1,1\n", ["--target", "z"], 2, "has no column 'z'; it has x, y"),
        ("a.csv", "x,y\n1,red\n", [], 2, "line 2: a field is no number. Encode text columns"),
        ("a.csv", "x,y\n1\n", [], 2, "line 2: 1 fields, but the header names 2 columns"),
        ("a.csv", "", [], 2, "needs rows"),
        ("a.csv", "x,y\n", [], 2, "needs rows"),
        ("a.txt", "x", [], 2, "its ending must be one of .npz, .csv, .parquet"),
        (None, "", [], 1, "there is no file"),
    ],
)
def test_bad_files_give_one_line(tmp_path, name, content, options, code, message):
    path = tmp_path / (name or "missing.csv")
    if name:
        path.write_text(content)
    result = call("compare", "--data", path, "--radius", 1, *options)
    assert result.exit_code == code
    assert result.output.startswith("Error: ")
    assert len(result.output.strip().splitlines()) == 1
    assert message in result.output


def test_plan_prints_a_table_and_json(tmp_path):
    arguments = ["plan", "--n", 100_000, "--d", 20, "--method", "nesterov", "--mechanism", "laplace"]
    text = call(*arguments)
    assert text.exit_code == 0
    assert "Plan: nesterov, 120 steps" in text.output
    result = call(*arguments, "--json", "--out", tmp_path / "plan.json")
    plan = es.Plan.from_json(result.output)
    assert plan == es.Plan.from_json((tmp_path / "plan.json").read_text())
    assert plan.iterations == 120


def test_plan_finds_epsilon_for_a_target_error():
    result = call("plan", "--n", 100_000, "--d", 20, "--target-error", 0.05, "--release", "final", "--json")
    plan = es.Plan.from_json(result.output)
    assert plan.method == "adaptive objective perturbation"
    assert plan.utility.expected <= 0.05 / 1.5
    assert plan.utility.expected == pytest.approx(0.05 / 1.5, rel=1e-3)


def test_plan_finds_what_a_target_asks_for():
    usual = ("plan", "--n", 100_000, "--d", 20, "--json")
    steps = es.Plan.from_json(call(*usual, "--target-error", 0.05, "--method", "nesterov", "--proved").output)
    assert 0.0499 < steps.error <= 0.05
    rho = es.Plan.from_json(call(*usual, "--target-verdict", "useful", "--rho", 1, "--release", "iterates").output)
    assert rho.budget.rho < 1
    assert rho.utility.verdict == "useful"
    for wrong in (("--proved",), ("--method", "objective", "--T", 5), ("--method", "gd", "--release", "final")):
        assert call(*usual, *wrong).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "budget", "mechanism"),
    [
        (["--delta", "1e-6"], es.Approximate(1.0, 1e-6), "gaussian"),
        (["--rho", "0.1"], es.Concentrated(0.1), "gaussian"),
        (["--epsilon", "2"], es.Pure(2.0), "linf"),
    ],
)
def test_plan_takes_every_kind_of_budget(arguments, budget, mechanism):
    result = call("plan", "--n", 1000, "--d", 3, "--method", "nesterov", *arguments, "--objective", "exact", "--json")
    plan = es.Plan.from_json(result.output)
    assert (plan.budget, plan.mechanism.name, plan.objective) == (budget, mechanism, "exact")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rho", "1", "--delta", "1e-6"], "--rho and --delta do not go together"),
        (
            ["--target-error", "0.1", "--target-verdict", "useful"],
            "--target-error and --target-verdict do not go together",
        ),
        (["--mechanism", "gaussian"], "does not cover gaussian noise"),
        (["--delta", "2"], "delta must lie between 0 and 1, got 2.0"),
        (["--epsilon", "0"], "--epsilon must be positive, got 0.0"),
        (["--epsilon", "nan"], "--epsilon must be finite, got nan"),
        (["--iterations", "some"], "--iterations must be a whole number or auto, got 'some'"),
        (["--iterations", "0"], "--iterations must be at least 1, got 0"),
        (["--batch", "101"], "--batch must be between 1 and 100, got 101"),
        (["--radius", "-1"], "--radius must be positive, got -1.0"),
        (["--ridge", "0"], "nesterov needs strong convexity"),
        (["--c", "2"], "nesterov needs a step of at most 1/L"),
        (["--method", "heavy-ball"], "pass --objective exact, or --iterations <a number> and --allocation uniform"),
        (
            ["--target-error", "1e-12", "--max-iterations", "9", "--method", "nesterov", "--proved"],
            "no epsilon promises an error of 1e-12",
        ),
        (
            ["--target-error", "0.1", "--max-iterations", "9", "--method", "auto"],
            "--release final has no option --max-iterations, which is for --method descent and the paper's steps",
        ),
        (["--method", "gd", "--release", "final"], "--release final does not go with --method gd"),
        (["--method", "output", "--release", "iterates"], "--method output publishes the final model alone"),
        (["--method", "objective", "--robust"], "--robust is for intervals: pass --intervals 0.95 with it"),
        (["--loss", "logistic", "--loss-shape", "2"], "--loss-shape is for capped-logistic, smoothed-hinge"),
        (["--loss", "squared", "--classes", "0,1"], "--classes are for losses of labels, not for squared"),
        (["--classes", "0,1,2"], "--classes must be two numbers with a comma, such as 0,1; got '0,1,2'"),
        (["--classes", "a,b"], "--classes must be numbers with commas, such as 0,1; got 'a,b'"),
        (["--target", "y"], "--target is a column of a schema: add --schema"),
    ],
)
def test_bad_arguments_give_one_line(arguments, message):
    result = call("plan", "--n", 100, "--d", 2, "--method", "nesterov", *arguments)
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert len(result.output.strip().splitlines()) == 1
    assert message in result.output


def test_a_plan_asks_what_is_published():
    for command in (["plan", "--n", 100, "--d", 2], ["audit", "--d", 2], ["plan", "--n", 100, "--d", 2, "--T", 3]):
        result = call(*command)
        assert result.exit_code == 2
        for way in ("--release final", "--release iterates", "--method nesterov"):
            assert way in result.output


SCHEMA = """\
[columns.age]
type = "numeric"
low = 0
high = 120

[columns.job]
type = "category"
values = ["clerk", "nurse", "other"]

[columns.y]
type = "category"
values = ["well", "ill"]
"""


def test_a_plan_of_a_schema_needs_no_data(tmp_path):
    """And is the plan that epsteps fit makes for so many rows."""
    path = tmp_path / "s.toml"
    path.write_text(SCHEMA)
    options = ["--schema", path, "--target", "y", "--epsilon", 1]
    plan = es.Plan.from_json(call("plan", *options, "--n", 39_073, "--release", "final", "--json").output)
    schema = es.Schema.read(path).with_target("y")
    assert plan.problem == tables.problem_of(schema, 39_073, 1e-4)
    assert "Plan: adaptive" in call("plan", *options, "--n", 39_073, "--release", "final").output
    rows = "".join(f"{20 + i},{'clerk' if i % 2 else 'nurse'},{'ill' if i % 3 else 'well'}\n" for i in range(60))
    (tmp_path / "data.csv").write_text("age,job,y\n" + rows)
    fitted = call("fit", tmp_path / "data.csv", *options, "--yes", "--anyway", "--out", tmp_path / "model", "--quiet")
    assert (fitted.exit_code, fitted.output) == (0, "")
    again = call("plan", *options, "--n", 60, "--release", "final", "--json").output
    assert es.Plan.from_json(again) == tables.load_model(tmp_path / "model").plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--d", 3], "the schema declares what --d would say"),
        (["--loss", "squared"], "the schema declares what --loss would say"),
        (["--radius", 2], "the schema declares what --radius would say"),
        (["--target", "z"], "target 'z' is not among the columns"),
        ([], "no target: name the column to predict with --target"),
    ],
)
def test_what_a_schema_declares_is_not_declared_again(tmp_path, arguments, message):
    (tmp_path / "s.toml").write_text(SCHEMA)
    target = [] if not arguments or arguments[0] == "--target" else ["--target", "y"]
    result = call("plan", "--schema", tmp_path / "s.toml", "--n", 100, "--release", "final", *target, *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_the_command_line_knows_every_method_and_loss_of_the_library():
    assert set(get_args(common.LossName)) == set(common.LOSSES)
    losses = [getattr(es, name) for name in es.__all__]
    losses = {loss.__name__ for loss in losses if isinstance(loss, type) and issubclass(loss, es.Loss)} - {"Loss"}
    assert set(common.LOSSES.values()) == losses
    methods = {name.replace("-", "_") for name in get_args(common.AnyMethod)}
    assert methods == {"auto", *options.METHODS, *options.PAPER}


@pytest.mark.parametrize("loss", common.LOSSES)
def test_every_loss_is_planned(loss):
    result = call("plan", "--n", 500, "--d", 2, "--loss", loss, "--method", "gd", "--T", 2, "--c", 0.5, "--json")
    assert type(es.Plan.from_json(result.output).problem.loss).__name__ == common.LOSSES[loss]


@pytest.mark.parametrize("method", get_args(common.AnyMethod))
def test_every_method_is_planned_or_refused_in_one_line(method):
    loss = "squared" if method == "statistics" else "logistic"
    rho = ["--rho", 0.1] if method == "clipped" else []
    result = call("plan", "--n", 500, "--d", 2, "--loss", loss, "--method", method, "--json", *rho)
    if method == "heavy-ball":  # no theorem chooses its steps
        assert (result.exit_code, len(result.output.strip().splitlines())) == (2, 1)
    else:
        assert es.Plan.from_json(result.output).problem.n == 500


BIG = 10**400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--n", BIG, "--d", 2], "n must be at most 2**53"),
        (["plan", "--n", 100, "--d", 10**9], "at most 4000000 coordinates, got 1000000000"),
        (["plan", "--n", 100, "--d", 10**11, "--mechanism", "hull"], "at most 4000000 coordinates"),
        (["plan", "--n", 100, "--d", BIG], "at most 4000000 coordinates"),
        (["plan", "--n", 100, "--d", 2, "--T", BIG], "iterations must be at most 1000000"),
        (["plan", "--n", 100, "--d", 2, "--T", 10**9], "iterations must be at most 1000000, got 1000000000"),
        (["plan", "--n", 100, "--d", 2, "--max-iterations", 10**9], "iterations must be at most 1000000"),
        (
            ["plan", "--n", 100, "--d", 2, "--max-iterations", 10**6, "--objective", "exact"],
            "--max-iterations must be at most 10000 with --objective exact or a batch, got 1000000",
        ),
        (["plan", "--n", 100, "--d", 10**6, "--T", 10**5], "numbers that a run may publish"),
        (["plan", "--n", 100, "--d", 2, "--epsilon", "1e400"], "--epsilon must be finite"),
        (["audit", "--n", BIG, "--d", 2], "n must be at most 2**53"),
        (["audit", "--d", 10**9], "at most 4000000 coordinates"),
        (["audit", "--d", 2, "--T", 10**9], "iterations must be at most 1000000"),
        (["compare", "--n", BIG, "--d", 2], "n must be at most 2**53"),
        (["compare", "--n", 30, "--d", 10**9], "at most 4000000 coordinates"),
        (["compare", "--n", 10**9, "--d", 1000], "made-up records may have at most"),
        (["compare", "--n", 30, "--d", 2, "--T", 10**9], "iterations must be at most 1000000"),
        (["compare", "--n", 30, "--d", 2, "--T", 3, "--repetitions", BIG], "runs is more than the 268435456 numbers"),
    ],
)
def test_what_no_memory_holds_is_refused_at_once(arguments, message, tmp_path):
    more = ["--out", tmp_path / "out"] if arguments[0] == "compare" else ["--method", "nesterov"]
    result = call(*arguments, *more)
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1
    assert message in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("epsilon", ["1e300", "1e-12", "5e-324"])
@pytest.mark.parametrize("budget", [[], ["--delta", "1e-6"]])
@pytest.mark.parametrize(
    "command",
    [
        ["plan", "--n", "100", "--d", "2", "--method", "nesterov", "--T", "4"],
        ["audit", "--d", "2", "--method", "nesterov", "--T", "2", "--repetitions", "3"],
        ["ledger", "create", "ledger.db", "people"],
    ],
    ids=["plan", "audit", "ledger"],
)
def test_extreme_budgets_give_a_result_or_one_line(command, budget, epsilon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with np.errstate(all="ignore"):
        result = call(*command, "--epsilon", epsilon, *budget)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in (0, 1, 2)
    if result.exit_code == 2:
        assert result.output.startswith("Error: ")
        assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"epsteps_plan": ' + "9" * 5000 + "}", "\x00", '{"epsteps_plan": 1, "scales": [1e400]}']
)
def test_a_file_that_is_no_plan_gives_one_line(text, tmp_path):
    (tmp_path / "plan.json").write_text(text)
    result = call("audit", tmp_path / "plan.json")
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "x = " + "9" * 5000, "[columns.a]\nlow = " + "9" * 400])
def test_a_file_that_is_no_schema_gives_one_line(text, tmp_path):
    (tmp_path / "schema.toml").write_text(text)
    result = call("schema", "show", tmp_path / "schema.toml")
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1


def test_a_refused_budget_is_not_a_wrong_argument(tmp_path, monkeypatch):
    """The exit code is 1, as for whatever is missing; wrong arguments have 2."""
    monkeypatch.setattr(es.Ledger, "create", refuse)
    result = call("ledger", "create", tmp_path / "ledger.db", "people", "--epsilon", 1)
    assert result.exit_code == 1
    assert result.output == "Error: 3 do not fit into 2.\n"


def refuse(*_, **__):
    raise es.BudgetExceededError("3 do not fit into 2.")


def test_compare_refuses_a_start_that_is_no_number():
    result = call("compare", "--start", "far")
    assert result.exit_code == 2
    assert "--start must be zero, ten or a number, got 'far'" in result.output


def test_version_and_help():
    assert call("--version").output.strip() == f"epsteps {es.__version__}"
    assert "compare" in call("--help").output
    assert "no data is read" in " ".join(call("plan", "--help").output.split())


def test_a_missing_extra_names_the_command_that_installs_it(tmp_path, monkeypatch):
    found = builtins.__import__

    def without_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr("epsteps.problem.validate.import_module", lambda name: without_matplotlib(name))
    result = call("compare", *SMALL, "--out", tmp_path)
    assert result.exit_code == 1
    assert "pip install 'epsteps[plots]'" in result.output


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("long", [0.0, 60.0])
def test_a_line_shows_what_a_long_pass_has_read_while_it_lasts(monkeypatch, terminal, long):
    screen = io.StringIO()
    monkeypatch.setattr(common, "Console", lambda stderr: Console(file=screen, force_terminal=terminal, width=100))
    monkeypatch.setattr(common, "_LONG", long)
    monkeypatch.setattr(chunks, "_SECONDS", 0)
    problem = small_problem()
    plan = es.plan(problem, es.Pure(1.0), "objective")
    with common.progress_bar("fit", plan.requests) as advance:
        assert chunks.watched() == terminal
        es.run(plan, es.Rows(problem, *records(problem)), on_step=advance, anyway=True)
    assert not chunks.watched()
    seen = screen.getvalue()
    assert ("reading records" in seen) == (terminal and long == 0)
    assert ("fit " in seen) == terminal
    assert "reading records" not in seen.rsplit("fit ", 1)[-1]  # as it stays on the screen
