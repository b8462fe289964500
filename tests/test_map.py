"""The map of the library is that of the tree: what it names exists, and what exists has a place on it."""

import ast
import re
import textwrap
from pathlib import Path

import pytest
from test_architecture import PUBLIC, ROOMS, SOURCE

ROOT = Path(__file__).parent.parent
MAP = ROOT / "docs" / "how-it-is-built.md"
PAGES = (MAP, ROOT / "CONTRIBUTING.md")
# `room/file.py` and `room/` stand below src/epsteps/, `tests/...` and `docs/...` below the repository.
PATH = re.compile(r"`((?:[\w-]+/)*[\w-]+(?:\.py|\.md|\.toml|/))`")
ITEM = re.compile(r"^\d+\. `([\w/]+\.py)`(.*?)(?=^\d+\. |^#|\Z)", flags=re.MULTILINE | re.DOTALL)
ORDER = re.compile(r"^(problem -> .*)$", flags=re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def section(title: str) -> str:
    """Return what the map says below a heading."""
    return text_of(MAP).split(f"\n## {title}\n")[1].split("\n## ")[0]


def definitions(source: str) -> set[str]:
    """Return the names that a file defines at its top, and members of its classes."""
    names: set[str] = set()

    def add(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    add(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    add(ast.parse(source).body, "")
    return names


def missing_paths(text: str) -> list[str]:
    """Return the files and folders that a page names and the tree has not."""
    return [path for path in PATH.findall(text) if not any((base / path).exists() for base in (SOURCE, ROOT))]


def missing_names(text: str) -> list[str]:
    """Return what the spine tells to read first, and its files do not define."""
    missing = []
    for path, rest in ITEM.findall(text):
        known = definitions(text_of(SOURCE / path))
        missing += [f"{path}: {name}" for name in read_first(rest) if name not in known]
    return missing


def read_first(item: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", re.split(r"Read\s+first:", item)[1].split(". ")[0])


def unplaced(text: str) -> list[str]:
    """Return the files of the library that stand neither in the spine nor in the table of rooms."""
    spine = {path for path, _ in ITEM.findall(text)}
    rows = {room: set(re.findall(r"`(\w+)`", files)) for room, files in table_of_rooms(text)}
    files = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    return [str(path) for path in files if str(path) not in spine and not _has(rows, path)]


def table_of_rooms(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^\| `([a-z]+)(?:/|\.py)` \|.*\|([^|]*)\|$", text, flags=re.MULTILINE)


def _has(rows: dict[str, set[str]], path: Path) -> bool:
    room, *inner = path.with_suffix("").parts
    return room in rows and (not inner or inner[0] in rows[room])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page):
    assert missing_paths(text_of(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_both_pages_have_the_rooms_in_their_order_with_the_wall(page):
    (line,) = ORDER.findall(text_of(page))
    left, right = line.split(" || ")
    assert (left.split(" -> "), right.split(" -> ")) == (PUBLIC.split(), ROOMS[len(PUBLIC.split()) :])


def test_the_rooms_are_those_of_the_tree():
    tree = {
        path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or any(path.rglob("*.py"))
    }
    assert tree - {"__init__", "__pycache__"} == set(ROOMS)
    assert [room for room, _ in table_of_rooms(text_of(MAP))] == ROOMS


def test_the_spine_is_as_long_as_the_map_says():
    spine = section("The spine")
    files, lines = map(int, re.findall(r"^(\d+) files, about (\d+) lines", spine, flags=re.MULTILINE)[0])
    paths = [path for path, _ in ITEM.findall(spine)]
    assert len(set(paths)) == len(paths) == files
    assert sum(len(text_of(SOURCE / path).splitlines()) for path in paths) == pytest.approx(lines, rel=0.1)


def test_what_is_to_be_read_first_stands_in_its_file():
    assert missing_names(section("The spine")) == []
    assert all(read_first(rest) for _, rest in ITEM.findall(section("The spine")))


def test_every_file_has_a_place_on_the_map_and_every_place_a_file():
    assert unplaced(text_of(MAP)) == []
    for room, names in table_of_rooms(text_of(MAP)):
        for name in re.findall(r"`(\w+)`", names):
            assert (SOURCE / room / name).is_dir() or (SOURCE / room / f"{name}.py").exists(), (room, name)


def test_classes_and_tables_that_the_map_names_are_defined():
    names = re.findall(r"`([A-Z]\w*(?:\.\w+)*)`", text_of(MAP))
    assert len(names) > 40
    # Most files define none of them, and parsing all takes seconds.
    tops = "|".join({name.partition(".")[0] for name in names})
    defining = re.compile(rf"^(?:class |def )?(?:{tops})\b", flags=re.MULTILINE)
    sources = map(text_of, [*SOURCE.rglob("*.py"), *(ROOT / "tests").glob("*.py")])
    known = set().union(*(definitions(text) for text in sources if defining.search(text)))
    assert [name for name in names if name not in known] == []


def test_the_method_that_is_shown_is_the_librarys():
    (code,) = re.findall(r"```python\n(.*?)```", section("One idea"), flags=re.DOTALL)
    assert textwrap.indent(code, "    ", str.strip) in text_of(SOURCE / "methods" / "steps.py")


def test_whatever_can_be_added_is_added_by_a_test():
    rows = re.findall(r"^\| ([a-z ]+) \| .*\| ([^|]*) \|$", section("To add something"), flags=re.MULTILINE)
    assert {kind for kind, _ in rows} == {"loss", "domain", "noise shape", "method", "engine", "budget kind"}
    for kind, tests in rows:
        path, name = re.findall(r"`(tests/\w+\.py)` \(`(\w+)`\)", tests)[0]
        assert name in definitions(text_of(ROOT / path)), kind


def test_the_check_finds_what_is_not_there():
    assert missing_paths("`problem/nothing.py`, `nowhere/`, `tests/test_map.py`, `plans/`, `docs/nothing.md`") == [
        "problem/nothing.py",
        "nowhere/",
        "docs/nothing.md",
    ]
    assert missing_names("1. `plans/plan.py`: it. Read first: `Plan`, `Plan.nothing`. Never\n") == [
        "plans/plan.py: Plan.nothing"
    ]
    without = re.sub(r"^\| `bounds/`.*$", "", text_of(MAP), flags=re.MULTILINE)
    assert sorted(unplaced(without)) == ["bounds/certificates.py", "bounds/quadratics.py"]
