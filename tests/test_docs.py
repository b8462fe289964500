"""The pages of the documentation run as they are printed: every block that is marked as tested."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app
from epsteps.tables.model_file import model_from_dict

pytest.importorskip("sklearn")
pandas = pytest.importorskip("pandas")

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"<!-- tested -->\n```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", flags=re.DOTALL)
BLOCKS = {
    "algorithms.md": 2,
    "describe.md": 3,
    "evaluate.md": 3,
    "how-to-choose.md": 7,
    "index.md": 1,
    "inference.md": 2,
    "moving-from-diffprivlib.md": 5,
    "own-method.md": 8,
    "running.md": 6,
    "scale.md": 1,
    "tutorial.md": 9,
}
# Blocks of Python that no test executes, by page, and why.
UNTESTED = {
    "how-it-is-built.md": 1,  # an excerpt, which tests/test_map.py holds against the source
    "moving-from-diffprivlib.md": 3,  # two of diffprivlib, which needs an older scikit-learn; the last has its own test
    "tutorial.md": 1,  # a download
    "two-parties.md": 1,  # tests/test_two_parties.py types the lines that the demo prints
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


def test_every_block_of_python_is_tested_or_says_why_not():
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        blocks, marked = (re.findall(pattern, text) for pattern in (r"\n```python\n", r"<!-- tested -->\n```python\n"))
        assert len(blocks) - len(marked) == UNTESTED.get(page.name, 0), page.name


# Blocks of a page of commands: Python, commands, and files, in their order; some commands must be refused, with a text.
STEP = re.compile(r"<!-- (tested|refused)(?:: (.*?))? -->\n```(python|bash|toml)\n(.*?)```", flags=re.DOTALL)


def follow(page: str) -> None:
    """Do what a page of commands says, in the present folder."""
    for number, (kind, said, language, text) in enumerate(STEP.findall((DOCS / page).read_text()), start=1):
        if language == "python":
            exec(compile(text, f"{page}, block {number}", "exec"), {})
        elif language == "toml":
            Path(said).write_text(text)
        else:
            for line in text.splitlines():
                result = CliRunner().invoke(app, shlex.split(line)[1:])
                assert (result.exit_code == 0) == (kind == "tested"), f"{line}: {result.output}"
                assert said in result.output


def test_the_tutorial_of_a_csv_goes_from_a_table_to_a_card(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    follow("tutorial-csv.md")
    with open("clinic.csv") as file:
        header, *rows = (line.rstrip("\n").split(",") for line in file)
    assert len(header) == 12
    assert any("" in row for row in rows)
    card = Path("model/report.html").read_text(encoding="utf-8")
    model = json.loads(Path("model/model.json").read_text(encoding="utf-8"))
    assert model["ledger"]["hash"] in card
    assert not model_from_dict(model).seeded
    assert model["scores"]["accuracy"] > 0.7  # those who are not readmitted are 58 %
    assert len(Path("predictions.csv").read_text().splitlines()) == 4001
    assert es.Ledger("ledger.db").spent("clinic") == pytest.approx(1.0)


def test_the_page_of_the_model_file_names_every_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schema = es.Schema({"a": es.Numeric(0, 1), "y": es.Category([0, 1])}, target="y")
    Path("schema.toml").write_text(schema.to_toml())
    Path("data.csv").write_text("a,y\n" + "0.2,1\n0.7,0\n" * 2000)
    fitted = CliRunner().invoke(app, shlex.split("fit data.csv --schema schema.toml --epsilon 1 --hold-out 0.2 --yes"))
    assert fitted.exit_code == 0, fitted.output
    model = json.loads(Path("model/model.json").read_text())
    whole, certificate = (DOCS / "model-file.md").read_text().split("The keys of `certificate`:")
    assert keys_of(whole) == set(model)
    assert keys_of(certificate) == set(model["certificate"])


def test_the_page_of_the_schema_file_names_every_key(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "schema-file.md").read_text()
    follow("schema-file.md")
    assert capsys.readouterr().out == BLOCK.findall(page)[0][1]
    with pytest.raises(ValueError, match="It may have ") as refused:
        es.Schema.from_toml("[columns.a]\ntype = 'numeric'\nhigher = 2")
    numeric = str(refused.value).rpartition("It may have ")[2]
    with pytest.raises(ValueError, match="It may have ") as refused:
        es.Schema.from_toml("[columns.a]\ntype = 'category'\nhigher = 2")
    category = str(refused.value).rpartition("It may have ")[2]
    with pytest.raises(ValueError, match="It may have ") as refused:
        es.Schema.from_toml("[columns.a]\ntype = 'unbounded'\nhigher = 2")
    known = set(re.findall(r"\w+", numeric + category + str(refused.value).rpartition("It may have ")[2]))
    assert keys_of(page.split("## Keys of a column")[1].split("## ")[0]) == known


def keys_of(text: str) -> set[str]:
    """Return the names in the first column of a table."""
    cells = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


GALLERY = sorted((DOCS / "gallery").glob("plot_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("example", GALLERY, ids=lambda path: path.stem)
def test_an_example_of_the_gallery_runs_within_a_minute(example, tmp_path):
    environment = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    command = [sys.executable, "-W", "error:::epsteps", str(example)]
    subprocess.run(command, check=True, timeout=60, cwd=tmp_path, env=environment)


def test_every_public_name_has_its_place_in_the_reference():
    lists = re.findall(r":toctree: generated\n\n(.*?)```", (DOCS / "api.md").read_text(), flags=re.DOTALL)
    names = [name for listed in lists for name in listed.split()]
    assert sorted(names) == sorted(es.__all__)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
            made = target.startswith("auto_gallery/")  # by `make docs`
            assert made or (page.parent / target).exists(), f"{page.name}: {target}"


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
