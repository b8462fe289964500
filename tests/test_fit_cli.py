"""``epsteps fit`` and ``epsteps predict`` as a person calls them, from a CSV file to a model and its predictions."""

import csv
import json
import os
import re
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.cli import app

COLUMNS = """
[columns.age]
type = "numeric"
low = 18
high = 90

[columns.income]
type = "numeric"
low = 0
high = 200000
missing = true

[columns.job]
type = "category"
values = ["clerk", "nurse", "driver"]

[columns.smoker]
type = "category"
values = ["no", "yes"]

[columns.y]
"""
TARGETS = {
    "two": 'type = "category"\nvalues = ["well", "ill"]\n',
    "three": 'type = "category"\nvalues = ["low", "mid", "high"]\n',
    "number": 'type = "numeric"\nlow = 0\nhigh = 100\n',
}


def table(kind, n, seed):
    rng = np.random.default_rng(seed)
    age, income = rng.uniform(18, 90, n).round(1), rng.uniform(0, 200_000, n).round()
    job, smoker = rng.choice(["clerk", "nurse", "driver"], n), rng.choice(["no", "yes"], n)
    score = (age - 54) / 18 + 1.5 * (smoker == "yes") - (job == "nurse") - income / 100_000 + 0.5
    noisy = score + rng.logistic(0, 0.3, n)
    y = {
        "two": np.where(noisy > 0, "ill", "well"),
        "three": np.array(["low", "mid", "high"])[np.digitize(noisy, [-1, 1])],
        "number": np.clip(50 + 12 * noisy, 0, 100).round(2),
    }[kind]
    texts = [f"{value:.0f}" if rng.random() > 0.1 else "" for value in income]
    return [["age", "income", "job", "smoker", "y"], *map(list, zip(age, texts, job, smoker, y, strict=True))]


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def folder_for(folder, kind, n=2000):
    write(folder / "data.csv", table(kind, n, seed=1))
    write(folder / "test.csv", table(kind, 500, seed=2))
    (folder / "schema.toml").write_text(COLUMNS + TARGETS[kind])
    return folder


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def fit(folder, *more, out="model", data="data.csv", schema="schema.toml", epsilon=2):
    arguments = ("fit", folder / data, "--schema", folder / schema, "--epsilon", epsilon, "--out", folder / out)
    return call(*arguments, *more, "--anyway")


def content(folder, out="model"):
    return json.loads((folder / out / "model.json").read_text())


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = folder_for(tmp_path_factory.mktemp("people"), "two")
    result = fit(folder, "--target", "y", "--test", folder / "test.csv", "--yes")
    assert result.exit_code == 0, result.output
    return folder, result.output


def test_the_plan_comes_first_and_the_files_last(people):
    folder, output = people
    assert output.startswith("Plan: objective perturbation")
    assert "differential privacy with pure epsilon = 2, when one record is replaced (n is public)" in " ".join(
        output.split()
    )
    assert output.rstrip().endswith(f"Wrote {folder / 'model' / 'model.json'} and {folder / 'model' / 'report.html'}.")
    assert "For your eyes only" not in output
    found = content(folder)
    assert found["plan_text"] in output
    assert found["certificate"]["spent"] <= 2


@pytest.mark.parametrize("release", ["final", "iterates"])
@pytest.mark.parametrize(("kind", "loss"), [("two", "Logistic"), ("three", "Softmax"), ("number", "Squared")])
def test_the_target_decides_the_model(tmp_path, kind, loss, release):
    folder = folder_for(tmp_path, kind)
    result = fit(folder, "--target", "y", "--release", release, "--delta", 1e-6, "--test", folder / "test.csv", "--yes")
    assert result.exit_code == 0, result.output
    found = content(folder)
    assert found["plan"]["problem"]["loss"]["type"] in ({loss, "PseudoHuber"} if kind == "number" else {loss})
    assert len(found["points"]) == found["certificate"]["points"]
    predicted = call("predict", folder / "model", folder / "test.csv").output.splitlines()
    assert len(predicted) == 501
    truth = [str(row[-1]) for row in table(kind, 500, seed=2)[1:]]
    if kind == "number":
        assert all(0 <= float(value) <= 100 for value in predicted[1:])
        errors = np.array(predicted[1:], dtype=float) - np.array(truth, dtype=float)
        assert np.isclose(found["scores"]["mean_absolute_error"], np.mean(np.abs(errors)))
    else:
        accuracy = np.mean([a == b for a, b in zip(predicted[1:], truth, strict=True)])
        assert np.isclose(found["scores"]["accuracy"], accuracy)


def by_hand(found, row):
    """The first output at a row of the table, from the numbers that people read."""
    columns, own = found["schema"]["columns"], {}
    for name, cell in row.items():
        if columns[name]["type"] == "numeric":
            own[name] = float(cell) - columns[name]["low"] if cell else 0.0
            own[f"{name} is missing"] = float(not cell)
        else:
            own |= {f"{name}={value}": float(cell == value) for value in columns[name]["values"]}
    output = found["coefficients"][0]["output"]
    entries = [entry for entry in found["coefficients"] if entry["output"] == output]
    return sum(entry["per_unit"] * own.get(entry["feature"], 1.0) for entry in entries)


@pytest.mark.parametrize("kind", ["two", "number"])
def test_coefficients_are_in_the_columns_own_units(tmp_path, kind):
    folder = folder_for(tmp_path, kind)
    assert fit(folder, "--target", "y", "--yes").exit_code == 0
    options = ["--proba"] if kind == "two" else []
    predicted = list(
        csv.DictReader(call("predict", folder / "model", folder / "test.csv", *options).output.splitlines())
    )
    with (folder / "test.csv").open() as file:
        rows = [{name: cell for name, cell in row.items() if name != "y"} for row in csv.DictReader(file)]
    for row, found in list(zip(rows, predicted, strict=True))[:50]:
        value = by_hand(content(folder), row)
        if kind == "two":
            assert np.isclose(float(found["y=ill"]), 1 / (1 + np.exp(-value)))
            assert np.isclose(float(found["y=ill"]) + float(found["y=well"]), 1)
            assert found["y"] == ("ill" if value > 0 else "well")
        else:
            assert np.isclose(float(found["y"]), np.clip(value, 0, 100))


def test_a_model_is_read_back_as_it_was_written(people):
    folder, _ = people
    found, model = content(folder), tables.load_model(folder / "model")
    again = tables.model_to_dict(model)
    for name in ("certificate", "schema", "coefficients", "points", "plan", "plan_text", "releases", "private"):
        assert again[name] == found[name]
    assert model.plan.to_json() == tables.load_model(folder / "model" / "model.json").plan.to_json()


def area_by_pairs(truth, chances):
    ill, well = chances[truth == "ill"], chances[truth == "well"]
    return np.mean((ill[:, None] > well) + 0.5 * (ill[:, None] == well))


def test_scores_are_those_of_the_predictions(people):
    folder, output = people
    found = content(folder)["scores"]
    predicted = call("predict", folder / "model", folder / "test.csv", "--proba").output.splitlines()
    chances = np.array([float(row["y=ill"]) for row in csv.DictReader(predicted)])
    truth = np.array([row[-1] for row in table("two", 500, seed=2)[1:]])
    likely = np.where(truth == "ill", chances, 1 - chances)
    assert np.isclose(found["log_loss"], -np.mean(np.log(likely)))
    assert np.isclose(found["roc_auc"], area_by_pairs(truth, chances))
    assert found["records"] == 500
    assert "read without protection" in found["note"]
    assert found["note"] in output


def test_json_is_all_that_goes_to_stdout(people, tmp_path):
    folder, _ = people
    result = fit(folder, "--target", "y", "--yes", "--json", out=tmp_path / "json")
    assert json.loads(result.stdout) == content(folder, tmp_path / "json")
    assert result.stderr.startswith("Plan: ")


def test_values_outside_the_schema_change_no_word(tmp_path):
    folder = folder_for(tmp_path, "two")
    rows = table("two", 2000, seed=1)
    outputs = [fit(folder, "--target", "y", "--yes", out="m0").output]
    for number, odd in enumerate(
        (["1e300", "-7", "pilot", "maybe", "?"], ["", "", "", "", ""], ["x", "nan", "1", "2", "3"])
    ):
        write(folder / "odd.csv", [*rows[:-1], odd])
        outputs.append(fit(folder, "--target", "y", "--yes", data="odd.csv", out=f"m{number + 1}").output)
    assert len({output.replace(f"m{number}/", "m/") for number, output in enumerate(outputs)}) == 1
    for number in range(1, 4):
        first, other = content(folder, "m0"), content(folder, f"m{number}")
        for fitted in (first, other):  # it follows from the points, which have noise of their own
            assert fitted["prediction"].pop("after").keys() == fitted["prediction"]["utility"].keys()
        for name in ("certificate", "schema", "prediction", "releases", "plan", "plan_text"):
            assert first[name] == other[name]
        assert np.shape(first["points"]) == np.shape(other["points"])


def test_without_a_terminal_consent_must_be_given(people, tmp_path):
    folder, _ = people
    result = fit(folder, "--target", "y", out=tmp_path / "none")
    assert result.exit_code == 2
    assert "Add --yes if you agree to the plan" in result.output
    assert not (tmp_path / "none").exists()


def on_terminal(folder, answer, *more):
    """Call ``epsteps fit`` on a terminal of its own; returns what is seen on it, and the exit code."""
    code = "from epsteps.cli import main; main()"
    arguments = ["fit", "data.csv", "--schema", "schema.toml", "--target", "y", "--epsilon", "2", "--anyway"]
    arguments += map(str, more)
    pty = pytest.importorskip("pty")  # not on Windows
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    return seen.decode(), process.wait(timeout=60)


def test_a_terminal_asks_and_shows_its_holder_what_will_be_projected(tmp_path):
    folder = folder_for(tmp_path, "two")
    rows = table("two", 2000, seed=1)
    write(folder / "data.csv", [*rows[:-2], ["17", "5", "pilot", "no", "ill"], ["300", "5", "nurse", "no", "ill"]])
    es.Ledger(folder / "budget.db").create("people", es.Pure(3.0))
    paid = ("--ledger", "budget.db", "--dataset", "people")
    seen, code = on_terminal(folder, "n\n", *paid)
    assert code == 1
    assert "1 below the range, 1 above the range" in seen
    assert "job: 1 not as declared" in seen
    assert "Run this plan?" in seen
    assert es.Ledger(folder / "budget.db").remaining("people") == 3.0
    assert not (folder / "model").exists()
    seen, code = on_terminal(folder, "y\n", *paid)
    assert code == 0, seen
    assert es.Ledger(folder / "budget.db").remaining("people") < 1.001
    assert "pilot" not in (folder / "model" / "model.json").read_text()
    assert "below the range" not in (folder / "model" / "report.html").read_text()


def test_a_ledger_is_charged_once_or_refuses(tmp_path):
    folder = folder_for(tmp_path, "two")
    es.Ledger(folder / "budget.db").create("people", es.Pure(3.0))
    paid = ("--target", "y", "--ledger", folder / "budget.db", "--dataset", "people", "--yes")
    assert fit(folder, *paid, out="first").exit_code == 0
    entry = es.Ledger(folder / "budget.db").history("people")[-1]
    stated = content(folder, "first")["ledger"]
    assert (stated["hash"], stated["seq"], stated["dataset"]) == (entry.hash, entry.seq, "people")
    result = fit(folder, *paid, out="second")
    assert result.exit_code == 1
    assert "Error: " in result.output
    assert not (folder / "second").exists()
    assert len(es.Ledger(folder / "budget.db").history("people")) == 1
    # A folder that is taken is found out before anything is charged.
    result = fit(folder, *paid, out="first", epsilon=0.5)
    assert result.exit_code == 1
    assert "exists, and was left as it is. Name another place with --out" in result.output
    assert len(es.Ledger(folder / "budget.db").history("people")) == 1


PAID = ("--target", "y", "--ledger", "budget.db", "--dataset", "people", "--yes")


def with_ledger(folder, monkeypatch):
    """Go to the folder, with a ledger in it that pays for anything; returns how many charges there were."""
    monkeypatch.chdir(folder)
    ledger = es.Ledger("budget.db")
    ledger.create("people", es.Pure(1e300))
    return lambda: len(ledger.history("people"))


@pytest.mark.parametrize(
    ("release", "epsilon"),
    [("final", 1e-12), ("final", 800), ("final", 1e100), ("final", 1e300), ("iterates", 1e-12), ("iterates", 800)],
)
def test_any_budget_is_refused_before_the_charge_or_gives_a_model(tmp_path, monkeypatch, epsilon, release):
    folder = folder_for(tmp_path, "two", n=50)
    charges = with_ledger(folder, monkeypatch)
    result = fit(folder, *PAID, "--release", release, epsilon=epsilon)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    if result.exit_code == 0:
        assert charges() == 1
        assert tables.load_model(folder / "model").plan.spending().amount <= epsilon
        assert (folder / "model" / "report.html").read_text().count("<section>") >= 5
    else:
        assert charges() == 0
        assert_one_line(result, 2, "Error: ")


def test_a_budget_of_800_gives_a_model_that_says_it_promises_nothing(tmp_path, monkeypatch):
    folder = folder_for(tmp_path, "two", n=50)
    charges = with_ledger(folder, monkeypatch)
    result = fit(folder, *PAID, "--test", folder / "test.csv", epsilon=800)
    assert result.exit_code == 0, result.output
    assert charges() == 1
    assert content(folder)["certificate"]["odds"] is None
    assert "So large an epsilon promises nothing" in (folder / "model" / "report.html").read_text()


@pytest.mark.parametrize(("low", "high"), [("0", "1e-320"), ("-1.7e308", "1.7e308"), ("1e308", "1.5e308")])
@pytest.mark.parametrize("kind", ["two", "number"])
def test_any_range_is_refused_before_the_charge_or_gives_a_model(tmp_path, monkeypatch, kind, low, high):
    folder = folder_for(tmp_path, kind, n=50)
    text = (folder / "schema.toml").read_text().replace("low = 18\nhigh = 90", f"low = {low}\nhigh = {high}")
    if kind == "number":
        text = text.replace("low = 0\nhigh = 100\n", f"low = {low}\nhigh = {high}\n")
    (folder / "schema.toml").write_text(text)
    charges = with_ledger(folder, monkeypatch)
    result = fit(folder, *PAID, "--test", folder / "test.csv")
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert charges() == int(result.exit_code == 0)
    if result.exit_code == 0:
        assert tables.load_model(folder / "model").schema.features["age"].high == float(high)
        assert "<section>" in (folder / "model" / "report.html").read_text()


@pytest.mark.parametrize(
    ("put", "code"),
    [
        (lambda out: out.write_text("a file where the folder should be"), 1),
        (lambda out: (out / "report.html").mkdir(parents=True), 1),
        (lambda out: (out / "model.json").mkdir(parents=True), 1),
        (lambda out: (out.mkdir(), (out / "report.html").symlink_to("/nowhere/report.html")), 1),
        (lambda out: (out.mkdir(), (out / ".model.json.part").write_text("")), 1),
    ],
    ids=["file", "report is a folder", "model is a folder", "link to nowhere", "being written"],
)
@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_outputs_that_cannot_be_written_are_found_out_before_the_charge(tmp_path, monkeypatch, put, code, force):
    folder = folder_for(tmp_path, "two", n=50)
    charges = with_ledger(folder, monkeypatch)
    put(folder / "model")
    result = fit(folder, *PAID, *force)
    if result.exit_code == 0:  # what can be replaced, and may be, is
        assert force
        assert charges() == 1
        assert not (folder / "model" / "report.html").is_symlink()
        tables.load_model(folder / "model")
        return
    assert_one_line(result, code, "Error: ")
    assert charges() == 0


def test_nothing_is_replaced_unless_forced(tmp_path, monkeypatch):
    folder = folder_for(tmp_path, "two", n=50)
    monkeypatch.chdir(folder)
    options = ("--target", "y", "--seed", 1, "--yes")
    assert fit(folder, *options).exit_code == 0
    first = (folder / "model" / "model.json").read_bytes()
    assert_one_line(fit(folder, *options), 1, "exists, and was left")
    assert (folder / "model" / "model.json").read_bytes() == first
    assert fit(folder, "--target", "y", "--seed", 2, "--yes", "--force").exit_code == 0
    assert (folder / "model" / "model.json").read_bytes() != first
    assert sorted(path.name for path in (folder / "model").iterdir()) == ["model.json", "report.html"]
    predict = ("predict", folder / "model", folder / "test.csv", "--out", folder / "out.csv")
    assert call(*predict).exit_code == 0
    assert_one_line(call(*predict), 1, "exists, and was left")
    assert call(*predict, "--force").exit_code == 0


def failing_write(failing):
    """Return a double of ``os.replace`` that fails for the files of this name, as a full disk would."""
    replace = os.replace

    def double(source, target):
        if os.path.basename(target) == failing:
            raise OSError(28, "No space left on device")
        replace(source, target)

    return double


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_a_report_that_fails_leaves_the_model(tmp_path, monkeypatch, force):
    folder = folder_for(tmp_path, "two", n=50)
    charges = with_ledger(folder, monkeypatch)
    if force:
        (folder / "model").mkdir()
        (folder / "model" / "report.html").write_text("about another model")
    monkeypatch.setattr(os, "replace", failing_write("report.html"))
    result = fit(folder, *PAID, *force)
    assert_one_line(result, 1, "model.json was written, but not")
    assert charges() == 1
    tables.load_model(folder / "model")
    assert [path.name for path in (folder / "model").iterdir()] == ["model.json"]


def test_a_model_that_cannot_be_written_after_all_is_printed(tmp_path, monkeypatch):
    folder = folder_for(tmp_path, "two", n=50)
    charges = with_ledger(folder, monkeypatch)
    monkeypatch.setattr(os, "replace", failing_write("model.json"))
    result = fit(folder, *PAID, "--json")
    assert result.exit_code == 1
    assert "keep the model that was printed" in result.stderr
    assert charges() == 1
    tables.model_from_dict(json.loads(result.stdout))
    assert not (folder / "model").exists()


def test_an_interrupted_fit_leaves_no_half_model(tmp_path, monkeypatch):
    folder = folder_for(tmp_path, "two", n=50)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "fit_model", interrupted)
    assert fit(folder, "--target", "y", "--yes").exit_code != 0
    assert not (folder / "model").exists()


def test_thousands_of_classes_are_refused_before_the_charge(tmp_path, monkeypatch):
    folder = folder_for(tmp_path, "two", n=50)
    classes = json.dumps([f"c{i}" for i in range(3000)])
    (folder / "schema.toml").write_text(COLUMNS + f'type = "category"\nvalues = {classes}\n')
    charges = with_ledger(folder, monkeypatch)
    named = ("--method", "objective")
    assert_one_line(
        fit(folder, *PAID, *named), 2, "at most 10000 coordinates for a solver, got 24000 (3000 classes x 8)"
    )
    assert charges() == 0
    assert not (folder / "model").exists()


def test_names_that_are_not_text_do_not_lose_a_model(tmp_path, monkeypatch):
    """The name of a file may hold bytes that are no UTF-8: what was paid for is written nevertheless."""
    folder = folder_for(tmp_path, "two", n=50)
    monkeypatch.chdir(folder)
    odd = os.fsdecode(b"budget-\xff.db")
    es.Ledger(odd).create("people", es.Pure(5.0))
    result = fit(folder, "--target", "y", "--ledger", odd, "--dataset", "people", "--yes")
    assert len(es.Ledger(odd).history("people")) == 1
    assert content(folder)["ledger"]["file"] == odd
    assert "<section>" in (folder / "model" / "report.html").read_text()
    assert result.exit_code in (0, 2)


def test_a_seeded_fit_says_everywhere_that_it_is_not_private(people, tmp_path):
    folder, _ = people
    results = [fit(folder, "--target", "y", "--seed", 7, "--yes", out=tmp_path / name) for name in ("a", "b")]
    assert all("NOT PRIVATE" in result.output for result in results)
    found, again = (content(folder, tmp_path / name) for name in ("a", "b"))
    assert found["points"] == again["points"] != content(folder)["points"]
    assert found["private"] is False
    assert found["certificate"]["seeded"] is True
    assert "NOT PRIVATE" in found["certificate"]["guarantee"]
    assert "NOT PRIVATE" in call("predict", tmp_path / "a", folder / "test.csv").stderr
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("NOT PRIVATE") >= 3
    assert "Guarantee:" not in page
    assert "NOT PRIVATE" not in (folder / "model" / "report.html").read_text()


def changed_point(found):
    found["points"][-1][0][0] += 1.0


def changed_coefficient(found):
    found["coefficients"][0]["effect"] += 1.0


def changed_spending(found):
    found["certificate"]["spent"] = 0.1


def changed_scale(found):
    found["plan"]["scales"][0] *= 2


def changed_seed(found):
    found["private"] = False


def changed_format(found):
    found["epsteps_model"] = 99


def without_plan(found):
    del found["plan"]


def with_another_column(found):
    found["schema"]["columns"]["more"] = {"type": "numeric", "low": 0, "high": 1}


@pytest.mark.parametrize(
    "change",
    [
        changed_point,
        changed_coefficient,
        changed_spending,
        changed_scale,
        changed_seed,
        changed_format,
        without_plan,
        with_another_column,
    ],
)
def test_a_model_that_was_changed_is_refused(people, tmp_path, change):
    folder, _ = people
    found = content(folder)
    change(found)
    (tmp_path / "model.json").write_text(json.dumps(found))
    with pytest.raises(tables.ModelFormatError):
        tables.load_model(tmp_path)
    result = call("predict", tmp_path, folder / "test.csv")
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")


def places_in(value, place=()):
    """Every place of a JSON document."""
    yield place
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, entry in entries:
        yield from places_in(entry, (*place, step))


JUNK = st.sampled_from([None, True, -1, 0, 1e308, 10**400, "", "x", [], [[1.0]], {}, {"type": "numeric"}])


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_other_file_is_refused_with_a_reason(people, tmp_path, data):
    folder, _ = people
    found = {"root": content(folder)}
    names = ("certificate", "schema", "coefficients", "points", "plan", "private", "epsteps_model")
    places = [place for place in places_in(found) if len(place) > 1 and place[1] in names]
    places = [place for place in places if place[1:3] != ("plan", "utility")]  # a guess, which nobody reads again
    *way, last = data.draw(st.sampled_from(places))
    inside = found
    for step in way:
        inside = inside[step]
    junk = data.draw(JUNK)
    same, inside[last] = inside[last] == junk, junk
    (tmp_path / "model.json").write_text(json.dumps(found["root"]))
    if same or way[1:2] == ["schema"] or last in ("schema", "ridge"):
        # Another schema may be one of the same features, and another ridge that of a problem with the same plan.
        with suppress(tables.ModelFormatError):
            tables.load_model(tmp_path)
    else:
        with pytest.raises(tables.ModelFormatError, match=re.escape(str(tmp_path))):
            tables.load_model(tmp_path)


def assert_one_line(result, code, message):
    assert message in result.output
    assert result.exit_code == code
    assert result.output.strip().splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"numeric"', '"numric"', "did you mean 'numeric'?"),
        ("low = 18", "lo = 18", "unknown key 'lo'; did you mean 'low'?"),
        ("low = 18", "low = 118", "low must be below high"),
        ("[columns.age]", "drafted_from_data = true\n[columns.age]", "was drafted from the data"),
        ("[columns.age]", "[columns.ages]", "has no column 'ages'; did you mean 'age'?"),
        ('["well", "ill"]', '["well"]', "column 'y': values must be 2 or more"),
        ("[columns.age]", "[columns.age", "is not valid TOML"),
    ],
)
def test_a_wrong_schema_says_what_to_do(tmp_path, old, new, message):
    folder = folder_for(tmp_path, "two", n=20)
    text = (folder / "schema.toml").read_text()
    (folder / "schema.toml").write_text(text.replace(old, new, 1))
    assert_one_line(fit(folder, "--target", "y", "--yes"), 2, message)
    assert not (folder / "model").exists()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--target", "z"], 2, "target 'z' is not among the columns"),
        ([], 2, "name the column to predict with --target"),
        (["--target", "y", "--epsilon", -1], 2, "epsilon must be positive, got -1.0"),
        (["--target", "y", "--ledger", "none.db"], 2, "add --dataset"),
        (["--target", "y", "--dataset", "people"], 2, "add --ledger"),
        (["--target", "y", "--ledger", "none.db", "--dataset", "people"], 1, "there is no ledger"),
        (["--target", "y", "--schema", "none.toml"], 1, "epsteps schema draft"),
        (["--target", "y", "--method", "objective", "--release", "iterates"], 2, "Use --release final"),
        (["--target", "y", "--test", "none.csv"], 1, "there is no file"),
    ],
)
def test_wrong_options_say_what_to_do(people, tmp_path, options, code, message):
    folder, _ = people
    assert_one_line(fit(folder, "--yes", *options, out=tmp_path / "out"), code, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: its first line must name the columns"),
        ("age,income,job,smoker,y\n", "has no rows below its header"),
        ("age,income,job,y\n20,5,nurse,ill\n", "has no column 'smoker'"),
        ("age;income;job;smoker;y\n20;5;nurse;no;ill\n", "add --delimiter semicolon"),
        ("age,income,job,smoker,y\n20,5\n", "row 1: 2 fields, but the header names 5 columns"),
    ],
)
def test_a_wrong_file_says_what_to_do(people, tmp_path, text, message):
    folder, _ = people
    (tmp_path / "data.csv").write_text(text)
    assert_one_line(fit(folder, "--target", "y", "--yes", data=tmp_path / "data.csv", out=tmp_path / "out"), 2, message)
    assert_one_line(call("predict", folder / "model", tmp_path / "data.csv"), 2, message)


def test_the_records_of_the_fit_are_not_scored(people, tmp_path):
    folder, _ = people
    result = fit(folder, "--target", "y", "--test", folder / "data.csv", "--yes", out=tmp_path / "out")
    assert_one_line(result, 2, "Hold some records out, in another file")


def test_a_schema_may_name_the_target_itself(tmp_path):
    folder = folder_for(tmp_path, "two")
    (folder / "schema.toml").write_text('target = "y"\n' + (folder / "schema.toml").read_text())
    assert fit(folder, "--yes").exit_code == 0
    assert content(folder)["schema"]["target"] == "y"
    assert_one_line(fit(folder, "--target", "smoker", "--yes", out="other"), 2, "but the schema's target is 'y'")


def test_predictions_are_written_once(people, tmp_path):
    folder, _ = people
    write(tmp_path / "new.csv", [row[:-1] for row in table("two", 10, seed=3)])  # without the target
    arguments = ("predict", folder / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert "Wrote 10 predictions" in call(*arguments).output
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 11
    assert_one_line(call(*arguments), 1, "exists, and was left")
    assert_one_line(call("predict", tmp_path / "none", tmp_path / "new.csv"), 1, "there is no model")
    (tmp_path / "model.json").write_text("{")
    assert_one_line(call("predict", tmp_path, tmp_path / "new.csv"), 2, "is not JSON")


def test_numbers_have_no_probabilities(tmp_path):
    folder = folder_for(tmp_path, "number")
    assert fit(folder, "--target", "y", "--yes").exit_code == 0
    result = call("predict", folder / "model", folder / "test.csv", "--proba")
    assert_one_line(result, 2, "there are no probabilities of classes")


def test_help_is_for_newcomers():
    for command in ("fit", "predict"):
        text = " ".join(call(command, "--help").output.split())
        assert "a .csv or .parquet file" in text
    assert "The plan is printed first" in " ".join(call("fit", "--help").output.split())
