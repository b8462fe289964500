"""``epsteps compare --schema``: everything on one's own table, said to be an experiment; and how methods are drawn."""

import csv
import itertools
import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from epsteps.cli import app
from epsteps.methods import figures
from epsteps.paper import compare, own_table
from epsteps.paper.own_table import OwnTable, TableSettings, compare_table, contenders, table_summary
from epsteps.tables import Category, Numeric, Schema

N = 1500
TARGETS = {"two": Category(["no", "yes"]), "three": Category(["a", "b", "c"]), "number": Numeric(-3, 3)}


def schema_of(kind):
    return Schema({"x": Numeric(0, 10), "c": Category(["u", "v", "w"]), "y": TARGETS[kind]}, target="y")


def table_of(kind):
    rng = np.random.default_rng(1)
    x, c = rng.uniform(0, 10, N), rng.choice(["u", "v", "w"], N)
    score = (x - 5) / 4 + (c == "v") + rng.normal(0, 0.4, N)
    found = {"two": np.where(score > 0, "yes", "no"), "number": score}
    found["three"] = np.array(["a", "b", "c"])[np.digitize(score, [-0.5, 0.7])]
    return {"x": x, "c": c, "y": found[kind]}


@pytest.fixture(scope="module", params=["two", "three", "number"])
def compared(request):
    settings = TableSettings((0.5, 4.0), iterations=20, repetitions=2, ridge=1e-3, tuned=request.param != "number")
    table = OwnTable.of(schema_of(request.param), table_of(request.param), settings)
    cells = compare_table(table, settings)
    return request.param, table, cells, table_summary(cells, table, settings)


def test_every_method_is_run_or_left_out_with_a_reason(compared):
    kind, _, cells, told = compared
    names = [*contenders(TableSettings(tuned=kind != "number"))]
    assert [(cell.method, cell.epsilon) for cell in cells] == list(itertools.product(names, (0.5, 4.0)))
    left_out = {cell.method for cell in cells if cell.left_out}
    assert left_out <= {"diffprivlib"}
    for cell, entry in zip(cells, told["results"], strict=True):
        assert len(cell.excess) == len(cell.scores) == entry["runs"] == (0 if cell.left_out else 2)
        assert ("left out: " in cell.note) is cell.left_out
        assert np.all(cell.excess >= -1e-9)
        if not cell.left_out:
            assert entry["score"] == pytest.approx(np.mean(cell.scores))
            assert entry["excess_standard_error"] == pytest.approx(abs(np.diff(cell.excess)[0]) / 2)
    assert told["private"] is False


def test_more_budget_is_better_for_ours_and_the_tuned_peer(compared):
    _, table, cells, _ = compared
    means = {(cell.method, cell.epsilon): np.mean(cell.excess) for cell in cells if not cell.left_out}
    for name in (own_table.FINAL, own_table.TUNED):
        if (name, 0.5) in means:
            assert means[name, 4.0] < means[name, 0.5]
    assert means[own_table.FINAL, 4.0] < table.excess(np.zeros(table.problem.dimension))[0] / 4


def test_the_fit_without_privacy_is_scikit_learns(compared):
    linear = pytest.importorskip("sklearn.linear_model")
    kind, table, _, told = compared
    assert table.excess(table.minimum)[0] == 0
    if kind == "number":
        model = linear.Ridge(alpha=table.problem.n * table.problem.ridge, fit_intercept=False)
        found = model.fit(table.design, table.targets).coef_
    else:
        model = linear.LogisticRegression(C=1 / (table.problem.n * table.problem.ridge), fit_intercept=False, tol=1e-8)
        found = model.fit(table.design, table.y).coef_
    np.testing.assert_allclose(np.ravel(found), table.minimum, atol=2e-3)
    assert told["constant_model"] < told["not_private"] <= 1


def files(tmp_path, kind="two"):
    table = table_of(kind)
    lines = zip(*(column.tolist() for column in table.values()), strict=True)
    (tmp_path / "t.csv").write_text("\n".join([",".join(table), *(",".join(map(str, line)) for line in lines)]))
    (tmp_path / "s.toml").write_text(Schema(schema_of(kind).columns).to_toml())
    return ["compare", "--data", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--target", "y"]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_writes_files_that_agree_and_says_loudly_what_it_is(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffprivlib", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "diffprivlib.models", None)
    out = tmp_path / "results"
    command = [*files(tmp_path), "--epsilons", "2,1", "--repetitions", 2, "--T", 10, "--out", out]
    result = call(*command)
    assert result.exit_code == 0, result.output
    assert "NOT PRIVATE: this experiment reads the records" in result.stderr
    assert "diffprivlib was left out: it cannot be imported" in result.stdout
    told = json.loads((out / "compare.json").read_text())
    assert told["settings"]["epsilons"] == [1.0, 2.0]
    with (out / "compare.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(told["results"]) == 2 * 9
    for row, entry in zip(rows, told["results"], strict=True):
        assert (row["method"], float(row["epsilon"])) == (entry["method"], entry["epsilon"])
        assert row["score"] == ("" if entry["score"] is None else str(entry["score"]))
        assert row["method"] in result.stdout
        if entry["score"] is not None:
            assert f"{entry['score']:.4f}" in result.stdout
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert all(compare.is_own(path) for path in compare.paths(out))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--epsilons", "1,zero"], "--epsilons must be positive numbers with commas"),
        (["--epsilons", "0,1"], "--epsilons must be positive numbers with commas"),
        (["--held-out", "1"], "--held-out must be a share between 0 and 1"),
        (["--held-out", "0.0001"], "of 1500 records leaves none"),
        (["--repetitions", "0"], "--repetitions and --iterations must be positive"),
    ],
)
def test_wrong_options_are_refused_in_one_line(tmp_path, more, message):
    result = call(*files(tmp_path), *more, "--out", tmp_path / "results")
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "results").exists()


def test_a_schema_needs_its_table(tmp_path):
    _, _, _, _, schema, *_ = files(tmp_path)
    result = call("compare", "--schema", schema, "--out", tmp_path / "results")
    assert result.exit_code == 2
    assert "--schema needs --data" in result.output


def test_every_method_has_a_style_of_its_own():
    names = [*compare.ALGORITHMS, *contenders(TableSettings(tuned=True))]
    styles = [figures.STYLES[name] for name in dict.fromkeys(names)]
    looks = [(style.colour, str(style.dashes)) for style in styles]
    assert len(set(looks)) == len(looks)
    for plain, optimal in (("DP-NAG", "DP-NAG-opt"), ("DP-MASG", "DP-MASG-opt")):
        assert figures.STYLES[plain].colour == figures.STYLES[optimal].colour


# Machado, Oliveira and Fernandes (2009): linear RGB as people see it without red, without green, and without blue.
SIGHTS = {
    "all colours": (1, 0, 0, 0, 1, 0, 0, 0, 1),
    "no red": (0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998),
    "no green": (0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881),
    "no blue": (1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900),
}


def lab(colour, sight):
    """CIE L*a*b* of a colour, as it is seen."""
    rgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.reshape(sight, (3, 3)) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_are_told_apart_by_all_readers(sight):
    """By a distance of 10 at least, of which 2 can be seen; red and green of one lightness would fail."""
    used = {style.colour for style in figures.STYLES.values()} | set(figures.LINES)
    for first, second in itertools.combinations(sorted(used), 2):
        assert np.linalg.norm(lab(first, SIGHTS[sight]) - lab(second, SIGHTS[sight])) > 10, (first, second)
    confusing = np.linalg.norm(lab("#C00000", SIGHTS["no green"]) - lab("#606000", SIGHTS["no green"]))
    assert confusing < 10
