"""The pages of the documentation run as they are printed: every block that is marked as tested."""

import re
from pathlib import Path

import numpy as np
import pytest

import epsteps as es

pytest.importorskip("sklearn")
pandas = pytest.importorskip("pandas")

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"<!-- tested -->\n```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", flags=re.DOTALL)
BLOCKS = {
    "describe.md": 3,
    "evaluate.md": 3,
    "how-to-choose.md": 7,
    "moving-from-diffprivlib.md": 5,
    "own-method.md": 8,
    "tutorial.md": 9,
}


def adult(n: int = 4000) -> "pandas.DataFrame":
    """Return made-up people in the columns of the tutorial's table, some of them with missing values."""
    rng = np.random.default_rng(0)

    def one_of(*values):
        return np.array(values, dtype=object)[rng.integers(0, len(values), n)]

    return pandas.DataFrame(
        {
            "age": rng.integers(17, 91, n),
            "education-num": rng.integers(1, 17, n),
            "hours-per-week": rng.integers(1, 100, n),
            "capital-gain": rng.integers(0, 2, n) * rng.integers(0, 100_000, n),
            "capital-loss": rng.integers(0, 2, n) * rng.integers(0, 5000, n),
            "workclass": pandas.Categorical(one_of("Private", "State-gov", np.nan)),
            "marital-status": pandas.Categorical(one_of("Divorced", "Widowed", "Never-married")),
            "occupation": pandas.Categorical(one_of("Sales", "Tech-support", np.nan)),
            "relationship": pandas.Categorical(one_of("Wife", "Husband", "Unmarried")),
            "sex": pandas.Categorical(one_of("Female", "Male")),
            "class": pandas.Categorical(one_of("<=50K", ">50K")),
        }
    )


@pytest.mark.parametrize("page", BLOCKS)
def test_pages_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOCS / page).read_text())
    assert len(blocks) == BLOCKS[page]
    names = {"table": adult()} if page == "tutorial.md" else {}
    for number, (code, printed) in enumerate(blocks, start=1):
        exec(compile(code, f"{page}, block {number}", "exec"), names)
        found = capsys.readouterr().out
        if page == "tutorial.md" and number > 1:  # other people, and noise without a seed: other numbers
            assert len(found.splitlines()) == len(printed.splitlines())
        else:
            assert found == printed


def test_the_accuracies_of_the_page_are_those_of_the_repository(monkeypatch, capsys):
    page = (DOCS / "moving-from-diffprivlib.md").read_text()
    code = re.findall(r"```python\n(import csv\n.*?)```", page, flags=re.DOTALL)[0]
    monkeypatch.chdir(DOCS.parent)
    exec(compile(code, "the last snippet", "exec"), {})
    printed = capsys.readouterr().out
    table = page.partition("## Accuracy")[2].partition("This is what")[0]
    listed = re.findall(r"\d\.\d{4} / \d\.\d{4}", table)
    assert len(listed) == 32
    assert [scores for scores in listed if scores not in printed] == []


def test_links_between_pages_lead_somewhere():
    for page in BLOCKS:
        for target in re.findall(r"\]\(([\w./-]+)\)", (DOCS / page).read_text()):
            assert (DOCS / target).exists(), f"{page}: {target}"


PAGES = sorted([*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "SECURITY.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_public_names_that_a_page_mentions_exist(page):
    names = set(re.findall(r"`es\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", page.read_text(encoding="utf-8")))
    assert [name for name in sorted(names) if not has(name)] == []


def has(name: str) -> bool:
    """Whether the library has a public name, or one of its classes a member or a field."""
    value = es
    for part in name.split("."):
        fields = getattr(value, "__dataclass_fields__", {})
        if part not in fields and not hasattr(value, part):
            return False
        value = getattr(value, part, None)
    return True


def test_the_check_finds_names_that_are_not_there():
    assert all(map(has, ("plan", "Plan.from_json", "bounds.Certificate.den", "Problem.ridge", "evaluate")))
    assert not any(map(has, ("nothing", "Plan.nothing", "bounds.nothing")))
