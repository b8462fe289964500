"""The wall: a module imports only from rooms to its left, and only noise/bits.py draws protective randomness."""

import ast
import sys
from pathlib import Path

import pytest

import epsteps

SOURCE = Path(epsteps.__file__).parent
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import house  # noqa: E402

# From left to right: a room imports only from those before it. The wall stands before `noise`.
PUBLIC = "problem bounds budgets plans methods"
ROOMS = f"{PUBLIC} noise data ledger running auditing testing tables estimators service paper cli".split()
PUBLIC_SIDE = set(PUBLIC.split())
RANK = {room: rank for rank, room in enumerate(ROOMS)}
# These use the library as its users do, through `import epsteps`.
OUTSIDE = {"paper", "cli"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(source: str) -> set[str]:
    """Return the rooms that a module imports at run time; '' stands for the whole library."""
    tree = ast.parse(source)
    skipped = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and ast.unparse(test.test) == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    rooms = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for parts in (name.split(".") for name in names):
            if parts[0] == "epsteps":
                rooms.add(parts[1] if len(parts) > 1 else "")
    return rooms


def violations(room: str, source: str) -> set[str]:
    """Return what this module may not import."""
    imported = imported_rooms(source) - {room}
    if room in OUTSIDE:
        imported -= {""}
    return {other for other in imported if other not in RANK or RANK[other] >= RANK[room]}


MODULES = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_import_only_to_their_left(path):
    assert violations(room_of(path), path.read_text()) == set()


@pytest.mark.parametrize(
    ("room", "line", "found"),
    [
        ("problem", "from epsteps.running.run import run", {"running"}),
        ("problem", "from epsteps import data", {"data"}),
        ("problem", "import epsteps.noise", {"noise"}),
        ("plans", "def f():\n    from epsteps.data.dense import DenseEngine", {"data"}),
        ("budgets", "from epsteps.methods import ObjectivePlan", {"methods"}),
        ("bounds", "import epsteps as es", {""}),
        ("running", "from epsteps.cli.common import shown", {"cli"}),
        ("running", "from epsteps.methods.steps import Plan", set()),
        ("paper", "import epsteps as es", set()),
    ],
)
def test_the_check_finds_what_breaks_the_wall(room, line, found):
    assert violations(room, line) == found


def names_in(source: str) -> set[str]:
    """Return the names that a module uses, and their attributes: of `a.b.c` it is `a` and `a.b`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names


RANDOM = {"np.random", "random", "secrets", "os.urandom"}
BITS = SOURCE / "noise" / "bits.py"
# Simulated records, of which nobody is protected.
SIMULATIONS = SOURCE / "auditing" / "experiments.py"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_bits_draw_randomness(path):
    """The samplers of noise read their bits there. Experiments make their data and seeds; they protect nobody."""
    if path not in (BITS, SIMULATIONS) and room_of(path) != "paper":
        assert names_in(path.read_text()) & RANDOM == set()


def test_the_check_finds_randomness():
    assert names_in(BITS.read_text()) & RANDOM == {"np.random", "os.urandom"}
    assert names_in("import secrets\nsecrets.token_bytes(8)") & RANDOM == {"secrets"}
    assert names_in("def f():\n    return random.SystemRandom()") & RANDOM == {"random"}


# Formulas that the loop evaluates on records: what a request reads, which sums it may ask for, how a record is encoded.
# Losses and domains are such formulas altogether.
FORMULAS = ("read", "prepare", "block", "encode", "sums")
DATA = {"X", "y", "data", "rows", "records", "features", "targets"}


def takes_data(source: str) -> list[str]:
    """Return the functions with a parameter for data that are no formulas of requests, and all that ask requests."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    found = []
    for function in functions:
        names = {arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)}
        asks = any(isinstance(node, ast.Yield) for node in ast.walk(function))
        if names & DATA and (asks or not function.name.lstrip("_").startswith(FORMULAS)):
            found.append(function.name)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_on_the_public_side_takes_records(path):
    """Nothing but formulas has a parameter for data; a method, which asks, never has."""
    if room_of(path) in PUBLIC_SIDE and path.stem not in {"losses", "domain", "ball", "box", "levels"}:
        assert takes_data(path.read_text()) == []


def test_the_check_finds_a_method_that_takes_records():
    assert takes_data("def conversation(self, records):\n    x = yield records") == ["conversation"]
    assert takes_data("def read(self, records):\n    x = yield records") == ["read"]
    assert takes_data("def choose(data):\n    return data") == ["choose"]
    assert takes_data("def read(self, records, draw):\n    return records.sums()") == []


def test_no_type_of_a_plan_budget_loss_domain_or_shape_is_tested_outside_its_room():
    """And no unit is compared: what differs by kind is asked of the kind (``benchmarks/house.py`` counts)."""
    _, places = house.measure(SOURCE)
    assert [f"{place.path}:{place.line}: {place.code}" for place in places] == []


def test_the_house_keeps_its_size():
    """What a newcomer has to hold in mind: so many rooms, and so many files in them."""
    rows, _ = house.measure(SOURCE)
    assert int(rows["rooms"]) <= 16
    assert sum(1 for _ in SOURCE.rglob("*.py")) <= 189
