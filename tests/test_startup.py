"""What is not needed is not imported: the library's names, and the modules behind the quick commands."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import epsteps as es

HEAVY = ("numpy", "scipy", "pandas", "sklearn", "torch", "numba", "matplotlib", "rich.progress", "epsteps.problem")


def imported(code: str, *arguments: str) -> set[str]:
    """Return the modules that a fresh Python has imported after this."""
    end = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    done = subprocess.run(
        [sys.executable, "-c", f"{end}\n{code}", *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


COMMAND = "from epsteps.cli import main; main()"


@pytest.mark.parametrize(
    ("code", "arguments", "absent"),
    [
        ("import epsteps", [], HEAVY),
        (COMMAND, ["--version"], HEAVY),
        (COMMAND, ["--help"], HEAVY),
        (COMMAND, ["plan", "-h"], HEAVY),
        (COMMAND, ["compare", "-h"], HEAVY),
        # A ledger counts with NumPy, and with nothing that plans or runs.
        (COMMAND, ["ledger", "show", "LEDGER"], ("scipy.special", "scipy.optimize", "scipy.sparse", "epsteps.methods")),
        (
            COMMAND,
            ["ledger", "show", "LEDGER"],
            ("epsteps.problem.problem", "epsteps.bounds", "epsteps.data", "pandas"),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_quick_commands_import_little(code, arguments, absent, tmp_path):
    es.Ledger(tmp_path / "budget.db").create("people", es.Pure(1.0))
    arguments = [str(tmp_path / "budget.db") if word == "LEDGER" else word for word in arguments]
    assert imported(code, *arguments) & set(absent) == set()


def test_a_plan_is_read_by_whoever_asks_for_nothing_else():
    """All kinds of plans, losses and domains are known as soon as one of them is."""
    text = es.plan(es.Problem(es.Squared(), es.Box(0, 1), ridge=0.1, n=99, d=2), es.Pure(1.0), "statistics").to_json()
    code = "import sys, epsteps as es; print(es.Plan.from_json(sys.argv[1]).method)"
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "sufficient statistics", done.stderr


def test_type_checkers_see_the_names_that_are_imported_when_asked_for():
    """The imports for type checkers are those of the tables, name by name."""
    tree = ast.parse(Path(es.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {(node.module, alias.name) for node in block.body for alias in node.names}
    rooms = {(place, name) for place, name in seen if place == "epsteps"}
    tables = {(place, name) for table in (es._ALONE, es._TOGETHER) for place, names in table.items() for name in names}
    assert seen - rooms == tables
    assert sorted(name for _, name in seen) == sorted(es.__all__)
    assert {name for _, name in rooms} <= set(es._ROOMS)


def test_every_public_name_is_there_and_no_other():
    assert all(hasattr(es, name) for name in es.__all__)
    assert set(es.__all__) <= set(dir(es))
    assert es.tables.Schema is es.Schema
    with pytest.raises(AttributeError, match="module 'epsteps' has no attribute 'plann'"):
        es.plann  # noqa: B018
