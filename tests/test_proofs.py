"""The page of proofs names functions that enforce hypotheses, and tests that show theorems: all of them must exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("docs/proofs.md", "docs/theory.md", "docs/errata.md")
# `tests/file.py::test_name`, `src/epsteps/file.py` and `src/epsteps/file.py::Class.method`; a folder ends with a slash.
NAMED = re.compile(r"`((?:tests|src)/[\w./]+?(?:\.py|/))(?:::([\w.]+))?`")


def named(page: str) -> set[tuple[str, str]]:
    """Return the files that a page names, with what it names in them."""
    return set(NAMED.findall((ROOT / page).read_text(encoding="utf-8")))


def fault(path: str, name: str) -> str | None:
    """Return what is wrong with a file and a name in it, if anything."""
    if not (ROOT / path).exists():
        return f"there is no {path}"
    return f"{path} has no {name}" if name and name not in definitions(path) else None


@cache
def definitions(path: str) -> frozenset[str]:
    """Return the names that a file defines: functions, classes, and what classes contain."""
    found: set[str] = set()

    def add(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    add(node.body, f"{prefix}{node.name}.")

    add(ast.parse((ROOT / path).read_text(encoding="utf-8")).body, "")
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page):
    faults = [problem for path, name in sorted(named(page)) if (problem := fault(path, name))]
    assert not faults, f"{page}: {'; '.join(faults)}"


# Shorter pages name `room/file.py` or `room/` of the library, `test_file.py`, and `Class.member`.
SHORT = ("docs/guarantee.md", "SECURITY.md")
MODULE = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?|[a-z_]+\.py)`")
MEMBER = re.compile(r"`([A-Z]\w+\.[a-z_]\w*)[`(]")


def short_faults(text: str) -> list[str]:
    """Return the files, folders and members of classes that a page names and the tree has not."""
    places = (ROOT / "src" / "epsteps", ROOT / "tests", ROOT)
    return [path for path in MODULE.findall(text) if not any((place / path).exists() for place in places)] + [
        name for name in MEMBER.findall(text) if name not in everywhere()
    ]


@cache
def everywhere() -> frozenset[str]:
    """Return the names that the library defines, and the fields of its classes."""
    paths = [str(path.relative_to(ROOT)) for path in (ROOT / "src" / "epsteps").rglob("*.py")]
    return frozenset().union(*map(definitions, paths))


@pytest.mark.parametrize("page", SHORT)
def test_what_a_shorter_page_names_exists(page):
    assert short_faults((ROOT / page).read_text(encoding="utf-8")) == []


def test_the_check_of_shorter_pages_finds_what_is_missing():
    there = "`plans/plan.py`, `data/`, `Grid.release`, `test_proofs.py`"
    text = f"`plans/nothing.py`, `releases/`, `nothing.py`, `Plan.nothing`, {there}"
    assert short_faults(text) == ["plans/nothing.py", "releases/", "nothing.py", "Plan.nothing"]


def test_the_page_of_proofs_names_functions_and_tests():
    """A page whose names were not recognised would pass the test above."""
    found = named("docs/proofs.md")
    assert sum(path.startswith("tests/") and bool(name) for path, name in found) > 100
    assert sum(path.startswith("src/") and bool(name) for path, name in found) > 80


def test_every_lemma_and_theorem_is_followed_by_tests():
    """Between a statement's section and the next one stand the functions that enforce it, and its tests."""
    page = (ROOT / "docs/proofs.md").read_text(encoding="utf-8")
    for section in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
        if re.search(r"^\*\*(?:Lemma|Theorem|Corollary)", section, flags=re.MULTILINE):
            title = section.splitlines()[0]
            assert "**Enforced by.**" in section, f"{title}: no function is named"
            assert "**Tests.**" in section, f"{title}: no test is named"


def test_every_open_gap_says_what_it_can_cost():
    page = (ROOT / "docs/proofs.md").read_text(encoding="utf-8")
    gaps = re.split(r"^\d+\. ", page.split("## 11. Open gaps")[1].split("## References")[0], flags=re.MULTILINE)[1:]
    assert gaps
    for gap in gaps:
        assert "*Cost" in gap, gap[:60]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("`tests/test_nothing.py::test_x`", "there is no tests/test_nothing.py"),
        ("`tests/test_proofs.py::test_nothing`", "tests/test_proofs.py has no test_nothing"),
        ("`src/epsteps/nothing.py`", "there is no src/epsteps/nothing.py"),
        ("`src/epsteps/problem/grid.py::Grid.nothing`", "src/epsteps/problem/grid.py has no Grid.nothing"),
        ("`src/epsteps/problem/grid.py::Grid.release`", None),
        ("`src/epsteps/data/`", None),
    ],
)
def test_the_check_finds_what_is_missing(text, message):
    ((path, name),) = NAMED.findall(text)
    assert fault(path, name) == message


@pytest.mark.parametrize("page", ["docs/proofs.md", "docs/guarantee.md", "SECURITY.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        path, _, part = target.partition("#")
        linked = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert linked.exists(), target
        assert not part or part in anchors(linked), target


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of a page's headings."""
    titles = re.findall(r"^##+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
