"""The counters of ``benchmarks/house.py`` find what was planted, where it is not at home, and nothing else."""

import importlib
from collections import Counter
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "house.py"
SOURCE = SCRIPT.parents[1] / "src" / "epsteps"
HOMES = {
    "losses/classification.py": "class Logistic: ...\nclass Squared: ...\nOWN = (Logistic, Squared)\n",
    "planning.py": "class Plan: ...\nclass FreshPlan(Plan): ...\n",
    "methods/output.py": "class OutputPlan: ...\n",
    "noise/reals.py": "class Ball: ...\n",
    "domain/ball.py": "class Ball: ...\n",
}


@pytest.fixture(scope="module")
def house():
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(SCRIPT.parent)
        return importlib.import_module("house")


def families_in(house, source, path="running.py"):
    return [place.kind for place in house.type_tests(house.Tree({**HOMES, path: source}))]


@pytest.mark.parametrize(
    ("source", "families"),
    [
        ("isinstance(x, Logistic)", ["losses"]),
        ("isinstance(x, es.Plan)", ["plans"]),
        ("isinstance(x, Logistic | Squared)", ["losses"]),
        ("isinstance(x, (Plan, Ball))", ["domains", "plans"]),
        ("isinstance(x, FreshPlan)", ["plans"]),
        ("type(x) is Ball", ["domains"]),
        ("isinstance(recipe, Clipping)", ["domains"]),
        ("type(x) not in (Logistic, Squared)", ["losses"]),
        ("x.__class__ == Plan", ["plans"]),
        ("type(x).__name__ == 'Logistic'", ["losses"]),
        ("{Logistic: 1, Squared: 2}[type(x)]", ["losses"]),
        ("@draw.register(Hull)\ndef _(x): ...", ["shapes"]),
        ("match x:\n    case Pure(): ...", ["budgets"]),
        ("KINDS = {'a': Pure}\ntype(x) in KINDS.values()", ["budgets"]),
        ("from epsteps.losses import OWN\ntype(x) in OWN", ["losses"]),
        ("def check(x, kinds): isinstance(x, kinds)\ncheck(1, (Pure,))", ["budgets"]),
        ("[x for kind in (Pure, Hull) if type(x) is kind]", ["budgets", "shapes"]),
    ],
)
def test_a_planted_type_test_is_found(house, source, families):
    assert families_in(house, source) == families


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(x, str | Path)",
        "Logistic()",
        "kind = Ball(1)\nisinstance(x, kind)",
        "type(x) is type(y)",
        "KINDS = {'logistic': Logistic}",
        "from array import array\nisinstance(x, array)",
        "from epsteps.noise.reals import Ball\nisinstance(x, Ball)",
        "'Logistic' == word",
        "def run(plan: Plan) -> Logistic: ...",
    ],
)
def test_what_tests_no_type_of_a_family_is_not_counted(house, source):
    assert families_in(house, source) == []


@pytest.mark.parametrize(
    ("path", "source", "families"),
    [
        ("losses/tables.py", "isinstance(x, Logistic)", []),
        ("losses/deep/tables.py", "isinstance(x, Logistic)", []),
        ("losses/tables.py", "isinstance(x, Plan)", ["plans"]),
        ("losses.py", "isinstance(x, Logistic)", ["losses"]),
        ("planning.py", "class Plan:\n    def __eq__(self, x): return isinstance(x, Plan)", []),
        ("methods/output.py", "class OutputPlan: ...\nisinstance(x, OutputPlan)", []),
        ("methods/steps.py", "isinstance(x, OutputPlan)", ["plans"]),
    ],
)
def test_a_test_in_its_own_room_is_not_counted(house, path, source, families):
    assert families_in(house, source, path) == families


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ('if noise.unit == "rho": ...', ["units"]),
        ('"epsilon" != unit', ["units"]),
        ('unit in ("rho", "mu")', ["units"]),
        ('match unit:\n    case "rho": ...', ["units"]),
        ('{"epsilon": 1.5, "rho": 3.0}[unit]', ["unit tables"]),
        ("noise.unit != plan.unit", ["units with units"]),
        ('{"epsilon": 1.0, "delta": 0.0}', []),
        ('positive("epsilon", epsilon)', []),
        ('name == "epsilon"', []),
        ("unit == 1", []),
        ("rho == epsilon", []),
    ],
)
def test_comparisons_of_units_are_found_outside_budgets(house, source, kinds):
    for path, expected in (("plans/output.py", kinds), ("budgets/kinds.py", [])):
        assert [place.kind for place in house.unit_comparisons(house.Tree({path: source}))] == expected


def test_lines_of_code_are_neither_docstrings_nor_comments_nor_empty(house):
    text = '"""A file."""\n\n# why\ndef f():\n    """Do it."""\n    return """a\n    b"""  # so\n'
    assert house.code_lines(text, house.Tree({"a.py": text}).nodes["a.py"]) == {4, 6, 7}


def test_the_longest_chain_of_rooms(house):
    chain = {"a.py": "", "b/x.py": "from epsteps.a import y", "c.py": "from epsteps import b", "d.py": "import a"}
    assert house.longest_chain(house.Tree({"__init__.py": "from epsteps.c import z", **chain})) == 3


def test_this_tree_is_measured(house):
    rows, places = house.measure(SOURCE)
    assert rows["files / lines / code lines"].startswith(f"{len(list(SOURCE.rglob('*.py')))} / ")
    counted = Counter(place.kind for place in places)
    families = rows["type tests on " + " / ".join(house.FAMILIES)]
    assert families == " / ".join(str(counted[family]) for family in house.FAMILIES)
    texts = {place: (SOURCE / place.path).read_text().splitlines()[place.line - 1] for place in places}
    assert all(place.code in text for place, text in texts.items())


def test_a_walk_visits_files_of_the_given_tree(house):
    files, changes = house.walk(SOURCE, "Nesterov's method")
    assert 10 < files <= len(list(SOURCE.rglob("*.py")))
    assert changes >= files - 1
