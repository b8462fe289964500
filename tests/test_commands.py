"""The command line as a whole: its page, help, completion, --quiet, and errors in the words of its options."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app
from epsteps.cli.words import in_words

ROOT = Path(__file__).parent.parent
_SPEC = importlib.util.spec_from_file_location("commands_page", ROOT / "docs" / "commands.py")
assert _SPEC is not None
assert _SPEC.loader is not None
commands_page = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(commands_page)
COMMANDS = {path: command for path, command, _ in commands_page.commands(get_command(app), "epsteps")}


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_page_of_commands_is_that_of_the_commands():
    """If it is not: python docs/commands.py."""
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == commands_page.page()
    assert {"epsteps plan", "epsteps verify", "epsteps ledger show", "epsteps schema draft"} <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_help_quiet_and_a_whole_summary(path):
    words = path.split()[1:]
    long, short = call(*words, "--help"), call(*words, "-h")
    assert (long.exit_code, long.output) == (0, short.output)
    assert "--quiet" in long.output
    assert "-h, --help" in long.output
    group = " ".join(call(*words[:-1], "-h").output.split())
    summary = " ".join(COMMANDS[path].help.split("\n\n")[0].split())
    assert summary in group
    assert "..." not in group.split("Commands:")[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_values(shell):
    """As the script that --show-completion prints asks for it."""

    def completed(*words):
        asked = {
            "bash": {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)},
            "zsh": {"_TYPER_COMPLETE_ARGS": " ".join(words)},
            "fish": {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        }[shell]
        code = "import sys; sys.argv = ['epsteps']; from epsteps.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | asked | {"_EPSTEPS_COMPLETE": f"complete_{shell}"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout

    assert "ledger" in completed("epsteps", "led")
    assert "--epsilon" in completed("epsteps", "plan", "--eps")
    assert "half-exponential" in completed("epsteps", "plan", "--loss", "half")
    script = call("--show-completion", shell)
    if script.exit_code == 0:  # where the shell is asked of the terminal instead, it may not be known
        assert "_EPSTEPS_COMPLETE" in script.output


def test_quiet_leaves_results_and_errors(tmp_path):
    ledger, out = tmp_path / "budget.db", tmp_path / "plan.json"
    assert call("ledger", "create", ledger, "people", "--epsilon", 1, "--quiet").output == ""
    assert "people" in call("ledger", "show", ledger, "-q").output
    assert call("ledger", "export", ledger, "--out", tmp_path / "export.json", "-q").output == ""
    plan = ("plan", "--n", 100, "--d", 2, "--release", "final")
    assert call(*plan, "-q").output == call(*plan).output != ""
    assert call(*plan, "-q", "--out", out).output == ""
    assert es.Plan.from_json(out.read_text()).problem.n == 100
    refused = call(*plan, "-q", "--out", out)
    assert (refused.exit_code, refused.output[:7]) == (1, "Error: ")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("epsilon must be positive, got 0.0.", "--epsilon must be positive, got 0.0."),
        ("Use method='descent', or epsteps.nesterov.", "Use --method descent, or --method nesterov."),
        ("robust=True is for intervals: pass intervals=0.95.", "--robust is for intervals: pass --intervals 0.95."),
        ("or iterations=<a number> and allocation='uniform'", "or --iterations <a number> and --allocation uniform"),
        ("Leave max_iterations out.", "Leave --max-iterations out."),
        (
            "there is no ledger x: make one with Ledger.create",
            "there is no ledger x: make one with epsteps ledger create",
        ),
        ("Make it anew with epsteps.plan.", "Make it anew with epsteps plan."),
        ("Pure(epsilon=4.0) does not fit", "epsilon = 4.0 does not fit"),
        ("Approximate(epsilon=4.0, delta=1e-06) does not fit", "epsilon = 4.0 with delta = 1e-06 does not fit"),
        ("Shape(epsilon=4.0) stays", "Shape(epsilon=4.0) stays"),
        ("L=0.52 and mu=0.02 stay as they are", "L=0.52 and mu=0.02 stay as they are"),
        ("the name 'epsilon must' of a column stays", "the name 'epsilon must' of a column stays"),
    ],
)
def test_errors_are_in_the_words_of_options(message, said):
    names = ("epsilon", "method", "robust", "intervals", "iterations", "allocation", "max_iterations")
    assert in_words(message, {name: f"--{name.replace('_', '-')}" for name in names}) == said


# What is typed wrong, and where: no answer may name the library's own functions and arguments.
WRONG = [
    ("plan", "--n", 100, "--d", 2),
    ("plan", "--n", 100, "--release", "final"),
    ("plan", "--n", 100, "--d", 2, "--release", "final", "--T", 5),
    ("plan", "--n", 100, "--d", 2, "--method", "gd", "--release", "final"),
    ("plan", "--n", 100, "--d", 2, "--method", "gd", "--batch", 101),
    ("plan", "--n", 100, "--d", 2, "--method", "gd", "--intervals", 0.9),
    ("plan", "--n", 100, "--d", 2, "--release", "final", "--epsilon", -1),
    ("plan", "--n", 100, "--d", 2, "--release", "final", "--delta", 2),
    ("plan", "--n", 100, "--d", 2, "--method", "objective", "--robust"),
    ("plan", "--n", 100, "--d", 2, "--method", "statistics"),
    ("plan", "--n", 100, "--d", 2, "--method", "heavy-ball"),
    ("plan", "--n", 100, "--d", 2, "--method", "nesterov", "--ridge", 0),
    ("audit", "--d", 2, "--release", "final", "--repetitions", 0),
    ("audit", "PLAN"),
    ("ledger", "show", "NONE"),
    ("ledger", "history", "LEDGER", "peple"),
    ("ledger", "create", "LEDGER", "new"),
    ("ledger", "create", "LEDGER", "new", "--epsilon", 1, "--composition", "numerical"),
    ("verify", "NONE"),
    ("predict", "NONE", "NONE"),
    ("fit", "TABLE", "--schema", "SCHEMA", "--epsilon", 1),
    ("fit", "TABLE", "--schema", "SCHEMA", "--epsilon", 1, "--target", "y", "--yes"),
    ("schema", "draft", "TABLE"),
]
_OF_THE_LIBRARY = re.compile(
    r"\b(epsteps|es)\.[a-zA-Z]|\bLedger\.|to_json|\b[a-z_]+='|\b[a-z_]+=(True|False|\d|<|\.\.\.)"
)


@pytest.mark.parametrize("arguments", WRONG, ids=lambda arguments: " ".join(map(str, arguments)))
def test_no_error_names_what_only_the_library_has(arguments, tmp_path):
    paths = {name: tmp_path / name.lower() for name in ("PLAN", "NONE", "LEDGER")}
    paths |= {"TABLE": tmp_path / "table.csv", "SCHEMA": tmp_path / "schema.toml"}
    paths["PLAN"].write_text("{}")
    es.Ledger(paths["LEDGER"]).create("people", es.Pure(1.0))
    paths["TABLE"].write_text("a;y\n1;2\n")
    columns = "".join(f'[columns.{name}]\ntype = "numeric"\nlow = 0\nhigh = 1\n' for name in "ay")
    paths["SCHEMA"].write_text(columns)
    result = call(*(paths.get(str(word), word) for word in arguments))
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in (1, 2)
    assert len(result.output.strip().splitlines()) == 1
    said = result.output.replace(str(tmp_path), "")
    said = re.sub(r"\b(alpha|beta|mu|L)=\S+", "", said)  # the symbols of theorems
    assert not _OF_THE_LIBRARY.search(said), said
