"""The privacy card: its numbers are those of model.json, it loads nothing, and it opens in a browser."""

import copy
import functools
import hashlib
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.cli import app
from epsteps.methods.figures import linear_ticks, log_ticks, shade, spread
from epsteps.tables import Category, Numeric, Schema
from epsteps.tables.model import centred, held

N = 2000
TARGETS = {"two": Category(["no", "yes"]), "three": Category(["a", "b", "c"]), "number": Numeric(-50, 50)}
# Budget, release and method: one for each kind of plan.
FITS = {
    "objective": ("two", es.Pure(1.0), "final", "auto"),
    "sequential": ("two", es.Approximate(1.0, 1e-6), "iterates", "sequential"),
    "output": ("two", es.Pure(1.0), "final", "output"),
    "curvature": ("two", es.Pure(1.0), "iterates", "auto"),
    "statistics": ("number", es.Pure(1.0), "final", "statistics"),
    "softmax": ("three", es.Pure(1.0), "final", "auto"),
    "descent": ("three", es.Approximate(1.0, 1e-6), "iterates", "descent"),
}


def schema_of(kind):
    columns = {"age": Numeric(18, 90), "job <b>": Category(["x & y", "z", "w"]), "flag": Category([0, 1])}
    return Schema(columns | {"y": TARGETS[kind]}, target="y")


def table_of(kind, n=N, seed=1):
    rng = np.random.default_rng(seed)
    age, job, flag = rng.uniform(18, 90, n), rng.choice(["x & y", "z", "w"], n), rng.integers(0, 2, n)
    score = (age - 54) / 36 + 0.5 * (job == "z") - flag + rng.normal(0, 0.5, n)
    y = {
        "two": np.where(score > 0, "yes", "no"),
        "three": np.array(["a", "b", "c"])[np.digitize(score, [-0.5, 0.5])],
        "number": 20 * score,
    }[kind]
    return {"age": age, "job <b>": job, "flag": flag, "y": y}


def plan_of(name, epsilon=1.0, n=N):
    kind, budget, release, method = FITS[name]
    problem = tables.problem_of(schema_of(kind), n, ridge=1e-3)
    return es.plan(problem, type(budget)(epsilon, *([1e-6] if budget != es.Pure(1.0) else [])), method, release=release)


def content_of(name, seed=None):
    kind, budget, release, method = FITS[name]
    schema, plan = schema_of(kind), plan_of(name)
    model = tables.fit_model(plan, schema, table_of(kind), seed=seed)
    curve = tables.error_curve(budget, lambda other: es.plan(plan.problem, other, method, release=release))
    ledger = {"file": "budget.db", "dataset": "people", "seq": 3, "hash": "ab12"}
    scores = tables.unprotected_scores(model, table_of(kind, 300, seed=2))
    made = {"by": "epsteps 0.1.0", "on": "2026-01-01"}
    found = tables.model_to_dict(model, curve=curve, ledger=ledger, scores=scores, made=made)
    return json.loads(json.dumps(found, allow_nan=False))


class Reader(HTMLParser):
    """Collects the numbers that say where they stand, ticks of axes, and all other text outside styles.

    ``rows`` are the lines of tables: places of their numbers, and what is drawn in them.
    """

    def __init__(self):
        super().__init__()
        self.numbers, self.texts, self.tags, self._open = [], [], [], []
        self.ticks, self.folds, self.rows, self.shapes = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append({"places": [], "shapes": []})
        if tag in ("meta", "path", "rect", "line", "circle"):
            inside = next(
                (found["class"] for name, found in reversed(self._open) if name == "svg" and "class" in found), ""
            )
            self.shapes.append((inside, tag, dict(attributes)))
            if self.rows and any(name == "tr" for name, _ in self._open):
                self.rows[-1]["shapes"].append((tag, dict(attributes)))
        else:
            self._open.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if self._open and self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, data):
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "data":
            self.numbers.append((json.loads(attributes["data-key"]), attributes["value"], data))
            if any(name == "tr" for name, _ in self._open):
                self.rows[-1]["places"].append(tuple(self.numbers[-1][0]))
        elif tag == "text" and "tick" in attributes.get("class", ""):
            self.ticks.append((attributes["class"], attributes, data))
        elif tag == "summary":
            self.folds.append(data)
        elif tag != "style":
            self.texts.append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    return reader


def at(content, place):
    for step in place:
        content = content[step]
    return content


def strings(value):
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for entry in value for text in strings(entry)]
    return [value] if isinstance(value, str) else []


def disagreements(page, content):
    """What on the page is not what model.json says."""
    reader, known = read(page), "\n".join(strings(content))
    wrong = []
    for place, value, shown in reader.numbers:
        stated = at(content, place)
        number = float(shown.rstrip("%")) / (100 if shown.endswith("%") else 1)
        if float(value) != stated or not np.isclose(number, stated, rtol=6e-4, atol=6e-4 if "%" in shown else 0):
            wrong.append((place, value, shown))
    for text in reader.texts:
        wrong += [token for token in re.findall(r"\S*\d\S*", text) if token.strip(".,;:()…") not in known]
    return wrong


@functools.cache
def kept_content(name):
    """The content of a fit that no test changes."""
    return content_of(name)


@pytest.fixture(scope="module", params=FITS)
def fitted(request):
    content = kept_content(request.param)
    return request.param, content, tables.page(content)


def test_every_number_is_that_of_the_model_file(fitted):
    _, content, page = fitted
    assert disagreements(page, content) == []
    numbers = [tuple(place) for place, _, _ in read(page).numbers]
    for place in range(len(content["coefficients"])):
        assert ("coefficients", place, "effect") in numbers
    for place, row in enumerate(content["intervals"]["rows"]):
        assert row["low"] <= row["coef"] <= row["high"]
        told = np.isclose(row["coef"], content["coefficients"][place]["effect"], rtol=1e-9, atol=0)
        wanted = ("low", "high") if told else ("low", "coef", "high")
        assert {("intervals", "rows", place, name) for name in wanted} <= set(numbers)
    utility = ("prediction", "utility")
    for place in (("certificate", "spent"), ("certificate", "epsilon"), (*utility, "expected"), ("ledger", "seq")):
        assert place in numbers
    assert len(content["prediction"]["curve"]) >= 5
    assert ("The published path" in page) == (len(content["points"]) > 1)


def test_a_wrong_number_on_the_page_is_found(fitted):
    _, content, page = fitted
    other = copy.deepcopy(content)
    other["certificate"]["spent"] *= 1.001
    assert disagreements(page, other) != []
    other = copy.deepcopy(content)
    other["plan_page"], other["plan_text"] = {}, ""
    assert disagreements(page, other) != []


def test_the_page_loads_nothing_and_escapes_names(fitted):
    _, _, page = fitted
    reader = read(page)
    assert {tag for tag, _ in reader.tags} & {"script", "link", "img", "iframe", "object", "b"} == set()
    assert not any(name in ("src", "href", "onload", "style") for _, attributes in reader.tags for name in attributes)
    for loaded in ("http:", "https:", "@import", "url("):
        assert loaded not in page
    assert html.escape("job <b>") in page
    assert html.escape("x & y") in page


HOSTILE = """</pre></style><script>alert('x')</script><img src=x onerror="y">{{ card }}"""
# Texts that a page does not show, but asks for.
KINDS = ("numeric", "category", "measured", "provable", "population", "sample", "useful", "marginal", "noise")
KINDS += ("(intercept)",)


def hostile(value):
    """The same content with markup in every text that a page may show, and in the names of columns."""
    if isinstance(value, dict):
        return {key: hostile(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [hostile(entry) for entry in value]
    return value + HOSTILE if isinstance(value, str) and value not in KINDS else value


def test_no_text_becomes_markup(fitted):
    _, content, page = fitted
    other = hostile(content)
    columns = other["schema"]["columns"]
    other["schema"]["columns"] = {name + HOSTILE: column for name, column in columns.items()}
    other["made"] = {"by" + HOSTILE: "x"}
    attacked = read(tables.page(other))
    tags = [(tag, attributes) for tag, attributes in attacked.tags if tag != "data"]
    assert tags == [(tag, attributes) for tag, attributes in read(page).tags if tag != "data"]
    assert "".join(attacked.texts).count("onerror") >= 10


def test_content_that_is_not_complete_has_no_page(fitted):
    _, content, _ = fitted
    for part, name in (("certificate", "method"), ("schema", "columns")):
        other = copy.deepcopy(content)
        del other[part][name]
        with pytest.raises((UndefinedError, KeyError), match=name):
            tables.page(other)


def test_the_split_of_the_budget_is_drawn_to_scale(fitted):
    _, content, page = fitted
    shares = [entry["share"] for entry in content["releases"]]
    assert np.isclose(sum(shares), 1)
    bars = [shape for inside, tag, shape in read(page).shapes if tag == "rect" and inside in ("share", "lines")]
    sizes = np.array([float(bar["width" if len(shares) <= 12 else "height"]) for bar in bars])
    np.testing.assert_allclose(sizes / sizes.max(), np.array(shares) / max(shares), rtol=1e-4, atol=1e-4)


def test_a_page_without_promise_says_so_first():
    content = content_of("objective", seed=5)
    reader = read(tables.page(content))
    assert [tag for tag, attributes in reader.tags if attributes.get("class") == "warn"] == ["p"]
    assert "NOT PRIVATE" in "".join(reader.texts[:3])
    assert not any(attributes.get("class") == "promise" for _, attributes in reader.tags)
    assert disagreements(tables.page(content), content) == []


def test_a_page_needs_neither_ledger_nor_scores():
    kind, *_ = FITS["objective"]
    model = tables.fit_model(plan_of("objective"), schema_of(kind), table_of(kind), seed=1)
    page = tables.page(tables.model_to_dict(model))
    assert "No ledger was named" in page
    assert "Scores on other records" not in page
    assert "measured privately" not in page


def percent(text):
    return float(text.removesuffix("%"))


def scale_of(ticks, log=False):
    """The map from numbers to places that the ticks of an axis state; they must be on one line."""
    values = np.array([float(text.rstrip("%")) for _, text in ticks])
    places = np.array([percent(place) for place, _ in ticks])
    values = np.log(values) if log else values
    slope, start = np.polyfit(values, places, 1)
    np.testing.assert_allclose(start + slope * values, places, atol=0.02)
    return lambda value: start + slope * (np.log(value) if log else value)


def test_effects_stand_where_the_axis_says(fitted):
    """Every value and both ends of its interval: the axis is that of the picture, and the intervals are in it."""
    _, content, page = fitted
    reader = read(page)
    across = [(attributes["x"], text) for kind, attributes, text in reader.ticks if kind == "tick across"]
    count = next(n for n in range(2, len(across)) if across[n] == across[0])
    place_of = scale_of(across[:count])
    drawn = 0
    for row in reader.rows:
        circles = [attributes for tag, attributes in row["shapes"] if tag == "circle"]
        places = [place for place in row["places"] if place[0] in ("coefficients", "intervals")]
        if not circles or not places:
            continue
        index = next(place for place in places if place[0] == "intervals")[2]
        told = content["intervals"]["rows"][index]
        (line,) = [attributes for tag, attributes in row["shapes"] if attributes.get("class") in ("bound", "measured")]
        found = [percent(circles[0]["cx"]), percent(line["x1"]), percent(line["x2"])]
        np.testing.assert_allclose(found, [place_of(told[name]) for name in ("coef", "low", "high")], atol=0.05)
        assert 0 <= found[1] <= found[2] <= 100
        drawn += 1
    assert drawn == len(content["coefficients"])


def test_the_expected_error_stands_where_the_axes_say(fitted):
    _, content, page = fitted
    chart = page.split('aria-label="Expected excess over epsilon"')[1].split("</figure>")[0]
    reader = read(chart)
    ticks = {
        kind: scale_of([(a[axis], text) for found, a, text in reader.ticks if found == kind], log=True)
        for kind, axis in (("tick across", "x"), ("tick up", "y"))
    }
    dots = [attributes for _, tag, attributes in reader.shapes if tag == "circle"]
    curve = content["prediction"]["curve"]
    assert len(dots) == len(curve)
    for dot, entry in zip(dots, curve, strict=True):
        assert np.isclose(percent(dot["cx"]), ticks["tick across"](entry["epsilon"]), atol=0.05)
        assert np.isclose(percent(dot["cy"]), ticks["tick up"](entry["error"]), atol=0.05)
    assert [entry["epsilon"] for dot, entry in zip(dots, curve, strict=True) if "class" in dot] == [1.0]


def many_levels():
    codes = [f"c{i}" for i in range(20)]
    columns = {f"x{i}": Numeric(0, 1) for i in range(12)} | {"code": Category(codes), "y": TARGETS["two"]}
    return Schema(columns, target="y")


def test_effects_are_grouped_sorted_and_folded():
    schema = many_levels()
    plan = es.plan(tables.problem_of(schema, N, ridge=0.1), es.Pure(1.0), "output")
    points = np.random.default_rng(3).normal(size=(1, 1, schema.d + 1))
    content, page = written(tables.Model(schema, plan, points, False))
    assert disagreements(page, content) == []
    groups = re.findall(r"<h3>([^<]+?) ?<", page.split("The model</h2>")[1].split("</section>")[0])
    sizes = {}
    for entry, row in zip(content["coefficients"], content["intervals"]["rows"], strict=True):
        sizes.setdefault(entry["column"], []).append(abs(row["coef"]))
    largest = {name: max(values) for name, values in sizes.items() if name != "(intercept)"}
    assert groups == [*sorted(largest, key=lambda name: -largest[name]), "(intercept)"]
    reader = read(page)
    assert len(reader.folds) >= 2
    assert any(fold.startswith("12 more of code") for fold in reader.folds)
    assert any(fold.startswith("3 more variables") for fold in reader.folds)
    levels = [row["places"] for row in reader.rows if any(place[0] == "intervals" for place in row["places"])]
    order = [next(place[2] for place in places if place[0] == "intervals") for places in levels]
    assert sorted(order) == list(range(len(content["coefficients"])))
    of_code = [index for index in order if content["coefficients"][index]["column"] == "code"]
    shown = [abs(content["intervals"]["rows"][index]["coef"]) for index in of_code]
    assert shown == sorted(shown, reverse=True)


def test_the_signature_holds_digests_that_anybody_can_compute():
    """Of the schema, the plan and what was published; none of them is that of the records."""
    schema, plan = schema_of("two"), plan_of("objective")
    table = table_of("two")
    other = {name: column.copy() for name, column in table.items()}
    other["age"][0], other["y"][0] = 90.0, "no" if other["y"][0] == "yes" else "yes"
    first, second = (
        json.loads(json.dumps(tables.model_to_dict(tables.fit_model(plan, schema, each, seed=1), approved_by="A <b>")))
        for each in (table, other)
    )
    signature = first["signature"]
    parts = {"schema": first["schema"], "plan": first["plan"]}
    parts["model"] = {name: first[name] for name in ("private", "points", "besides")}
    for name, part in parts.items():
        text = json.dumps(part, separators=(",", ":"))
        assert signature[name] == hashlib.sha256(text.encode()).hexdigest()
        assert signature[name] in tables.page(first)
    assert (signature["approved_by"], signature["dataset"]) == ("A <b>", None)
    assert html.escape("A <b>") in tables.page(first)
    assert {name for name in signature if signature[name] != second["signature"][name]} == {"model"}
    assert tables.model_from_dict(first).plan == plan
    for name in parts:
        changed = copy.deepcopy(first)
        changed["signature"][name] = second["signature"]["model"]
        with pytest.raises(tables.ModelFormatError, match=f"its {name} says"):
            tables.model_from_dict(changed)


def test_files_of_earlier_versions_have_a_page():
    content = content_of("objective")
    for name in ("signature", "plan_page", "chosen"):
        del content[name]
    for entry in content["coefficients"]:
        del entry["column"]
    tables.model_from_dict(content)
    page = tables.page(content)
    assert disagreements(page, content) == []
    assert "<pre>" in page


def test_private_numbers_stand_apart_from_scores_that_are_not():
    content = content_of("objective")
    metric = {"name": "roc_auc", "value": 0.8125, "low": 0.79, "high": 0.835, "level": 0.95}
    content["evaluation"] = {"rows": "held out", "spent": 0.25, "metrics": [metric]}
    page = tables.page(content)
    assert disagreements(page, content) == []
    private, unprotected = (
        next(part for part in page.split("<section>") if title in part)
        for title in ("measured privately", "not protected")
    )
    of_private, of_scores = ({place[0] for place, _, _ in read(part).numbers} for part in (private, unprotected))
    assert of_private == {"evaluation"}
    assert of_scores == {"scores"}
    assert "held out" in private
    assert "NOT PRIVATE" not in page
    content["evaluation"]["private"] = False
    assert "NOT PRIVATE: a seed makes the noise of these numbers repeatable" in tables.page(content)


@pytest.mark.parametrize("part", ["schema", "certificate"])
def test_what_was_bought_for_the_schema_stands_with_the_ledger(part):
    content = content_of("objective")
    expenses = [{"note": "range of age", "cost": 0.125, "unit": "epsilon"}]
    if part == "schema":
        content["schema"]["bought"] = expenses
    else:
        content["certificate"] |= {"expenses": expenses, "in_all": 1.125}
    page = tables.page(content)
    assert disagreements(page, content) == []
    first = page.split("<section>")[0]
    assert "range of age: epsilon" in first
    shown = {value for _, value, _ in read(first).numbers}
    assert {"0.125", *(["1.125"] if part == "certificate" else [])} <= shown


def shaped():
    """A schema with whatever may be made of a column, and a person's column."""
    columns = {
        "age": Numeric(18, 90, bins=[30, 65]),
        "pay": Numeric(0, 90_000, transform="log1p", clip=(10, 50_000), missing=True),
        "job": Category(["x", "z"]),
    }
    return Schema(columns | {"y": TARGETS["two"]}, target="y", interactions=[("pay", "job")], person="who <b>")


def test_what_is_made_of_columns_is_declared_on_the_page():
    schema = shaped()
    plan = es.plan(tables.problem_of(schema, N, ridge=0.1), es.Pure(1.0), "output")
    points = np.random.default_rng(3).normal(size=(1, 1, schema.d + 1))
    content, page = written(tables.Model(schema, plan, points, False))
    assert disagreements(page, content) == []
    columns = read(page.split("What was declared of the columns</h2>")[1].split("</section>")[0])
    stated = {tuple(place) for place, _, _ in columns.numbers}
    ends = [("pay", "clip", end) for end in (0, 1)] + [("age", "bins", edge) for edge in (0, 1)]
    assert {("schema", "columns", *place) for place in ends} <= stated
    text = " ".join(" ".join(columns.texts).split())
    for words in ("as its log1p", "in bins at", "pay * job", "who <b>"):
        assert words in text
    effects = page.split("The model</h2>")[1].split("</section>")[0]
    (place,) = [index for index, entry in enumerate(content["coefficients"]) if entry["feature"] == "log1p(pay)"]
    assert ("coefficients", place, "per_unit") in {tuple(found) for found, _, _ in read(effects).numbers}


@pytest.mark.parametrize("seed", [None, 1])
def test_what_a_person_is_promised_stands_with_the_guarantee(tmp_path, seed):
    """The budget is a person's; that of a record, which the plan is for, is not mistaken for it."""
    rng = np.random.default_rng(4)
    table = {"age": rng.uniform(18, 90, N), "pay": rng.uniform(0, 9e4, N), "job": rng.choice(["x", "z"], N)}
    table |= {"who <b>": rng.integers(0, 900, N), "y": rng.choice(["no", "yes"], N)}
    model = es.PrivateLogisticRegression(3.0, schema=shaped(), per_person=3, random_state=seed).fit(table)
    content = json.loads((model.save(tmp_path / "model") / "model.json").read_text())
    page = (tmp_path / "model" / "report.html").read_text()
    assert disagreements(page, content) == []
    first = page.split("<section>")[0]
    shown = html.unescape(page)
    for promised in (content["person"], content["certificate"]):
        assert (promised["guarantee"] in html.unescape(first)) is (seed is None)
    assert content["person"]["epsilon"] == 3.0
    assert np.isclose(content["certificate"]["epsilon"], 1.0)
    numbers = {tuple(place) for place, _, _ in read(page).numbers}
    assert {("person", name) for name in ("per_person", "epsilon", "delta", "spent")} <= numbers
    assert "The column who <b> says whose record it is" in shown
    assert "One record is all that one person has" not in shown


@pytest.mark.parametrize("budget", [es.Pure(3.0), es.Concentrated(2.0), es.Approximate(3.0, 1e-5)])
def test_a_receipt_is_the_account_as_it_was_at_the_charge(tmp_path, budget):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", budget)
    states = [(ledger.spent("people"), ledger.remaining("people"))]
    entries = []
    for cost in (0.25, 0.5, 0.125):
        entries.append(ledger.charge("people", es.Pure(cost)))
        states.append((ledger.spent("people"), ledger.remaining("people")))
    for entry, (before, _), (after, left) in zip(entries, states[:-1], states[1:], strict=True):
        receipt = ledger.receipt(entry)
        assert (receipt["before"], receipt["after"], receipt["left"]) == (before, after, left)
        assert np.isclose(receipt["before"] + receipt["release"], after, rtol=1e-12)
        assert (receipt["budget"], receipt["unit"], receipt["hash"]) == (budget.amount, budget.unit, entry.hash)


def test_the_command_line_names_who_approved_and_draws_the_account(tmp_path):
    schema, table = tmp_path / "s.toml", tmp_path / "t.csv"
    schema.write_text(schema_of("two").to_toml())
    columns = table_of("two")
    lines = zip(*(column.tolist() for column in columns.values()), strict=True)
    table.write_text("\n".join([",".join(columns), *(",".join(map(str, line)) for line in lines)]))
    ledger = tmp_path / "budget.db"
    es.Ledger(ledger).create("people", es.Pure(4.0))
    es.Ledger(ledger).charge("people", es.Pure(1.0))

    def call(*more):
        command = ["fit", table, "--schema", schema, "--epsilon", 1, "--ledger", ledger, "--dataset", "people", "--yes"]
        return CliRunner().invoke(app, [*map(str, command), *more, "--out", str(tmp_path / "model")])

    refused = call("--approved-by", "A\nB")
    assert refused.exit_code == 2
    assert "--approved-by must be a name" in refused.output
    assert es.Ledger(ledger).spent("people") == 1.0
    result = call("--approved-by", "Dr. A. Curie")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    page = (tmp_path / "model" / "report.html").read_text()
    assert disagreements(page, content) == []
    first = page.split("<section>")[0]
    assert "Dr. A. Curie" in first
    assert "people" in first
    widths = [a["width"] for inside, tag, a in read(page).shapes if (inside, tag) == ("ledger", "rect")]
    told = content["ledger"]
    shares = [100 * told[name] / told["budget"] for name in ("before", "release")]
    np.testing.assert_allclose([percent(width) for width in widths], [100, *shares], rtol=1e-5)
    assert told["before"] == 1.0
    assert np.isclose(told["before"] + told["release"] + told["left"], 4.0)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.floats(1e-300, 1e300), st.floats(1.0, 1e6), st.floats(-1e300, 1e300), st.floats(0, 1e300))
def test_ticks_are_few_in_order_and_inside(low, factor, start, span):
    for found, ends in (
        (log_ticks(low, low * factor), (low, low * factor)),
        (linear_ticks(start, start + span), (start, start + span)),
    ):
        assert len(found) <= 6
        assert sorted(set(found)) == found
        assert all(ends[0] <= value <= ends[1] for value in found)
    if span > 1e-6 * abs(start) and span > 1e-200:
        assert len(linear_ticks(start, start + span)) >= 3


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8))
def test_labels_are_spread_and_keep_their_order(places):
    moved = spread(places, 2.0)
    order = sorted(range(len(places)), key=lambda index: places[index])
    gaps = np.diff([moved[index] for index in order])
    assert np.all(gaps >= 2 - 1e-9)
    assert np.isclose(sum(moved), sum(places), atol=1e-6)
    if np.all(np.diff(sorted(places)) >= 2.001):
        np.testing.assert_allclose(moved, places, atol=1e-9)


def test_shades_run_from_light_to_the_colour_itself():
    assert shade("#0072B2", 1.0) == "#0072B2"
    assert shade("#000000", 0.0) > shade("#000000", 0.5) > shade("#000000", 1.0)


def test_more_budget_means_less_error():
    for name in ("objective", "output", "statistics", "softmax"):
        small, large = (plan_of(name, epsilon) for epsilon in (0.5, 2.0))
        assert large.utility.expected < small.utility.expected


EXTREMES = [0.0, -0.0, 1.0, -3.5, 5e-324, 1e-320, -1e-320, 1e-160, 1e150, -1e160, 1.7e308, -1.7e308]


def written(model, **more):
    """Return model.json and the page of a model, without a warning."""
    content = json.loads(json.dumps(tables.model_to_dict(model, **more), allow_nan=False))
    return content, tables.page(content)


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_whatever_was_published_is_written(data):
    """Once a model is paid for, nothing that its numbers are may lose it. Warnings are errors here."""
    name = data.draw(st.sampled_from(sorted(FITS)))
    kind = FITS[name][0]
    plan, schema = planned(name), schema_of(kind)
    shape = (data.draw(st.integers(1, 3)), plan.problem.loss.outputs, plan.problem.width)
    drawn = data.draw(st.lists(st.sampled_from(EXTREMES), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    points = centred(held(np.reshape(drawn, shape)))
    model = tables.Model(schema, plan, points, False, {name: np.ones(size) for name, size in plan.besides.items()})
    content, page = written(model, scores=tables.unprotected_scores(model, table_of(kind, 20, seed=2)))
    assert tables.model_from_dict(content).plan == plan
    assert page.endswith("</html>\n")
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<pre>.*</pre>", "", page, flags=re.DOTALL))


@functools.cache
def planned(name):
    return plan_of(name)


@pytest.mark.parametrize("epsilon", [1e-12, 800.0, 1e100, 1e300])
@pytest.mark.parametrize("name", [name for name in FITS if name != "sequential"])  # is planned slowly at small ones
def test_whatever_budget_has_a_plan_can_be_described(name, epsilon):
    schema = schema_of(FITS[name][0])
    try:
        with np.errstate(all="ignore"):
            plan = plan_of(name, epsilon)
    except (ValueError, ArithmeticError):
        return  # refused before records are opened
    curve = tables.error_curve(plan.budget, lambda budget: plan_of(name, budget.epsilon), factors=(0.25, 4))
    _, page = written(tables.rehearsal(plan, schema), curve=curve)
    assert "How the budget was split" in page


@pytest.mark.parametrize("ends", [(0.0, 1e-320), (-1.7e308, 1.7e308), (1e308, 1.1e308), (-5e-324, 0.0)])
@pytest.mark.parametrize("name", ["objective", "statistics"])
def test_columns_of_any_range_are_described(name, ends):
    try:
        column = Numeric(*ends)
        target = column if name == "statistics" else TARGETS["two"]
        schema = Schema({"x": column, "y": target}, target="y")
    except ValueError:
        return  # refused when it is declared
    plan = es.plan(tables.problem_of(schema, N, ridge=1e-3), es.Pure(1.0), name)
    for size in EXTREMES:
        points = held(np.full((1, 1, 2), size))
        written(tables.Model(schema, plan, points, False))


CONTENT = {}


@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_a_page_is_made_of_any_numbers(data):
    """Numbers of a model's file, any of them at any size or missing: a page, and no error or warning."""
    if not CONTENT:
        CONTENT.update({name: written(tables.rehearsal(planned(name), schema_of(FITS[name][0])))[0] for name in FITS})
    content = copy.deepcopy(CONTENT[data.draw(st.sampled_from(sorted(CONTENT)))])
    content["prediction"]["curve"] = [{"epsilon": 1.0, "error": 0.5}, {"epsilon": 2.0, "error": 0.2}]
    content["points"] = content["points"] * data.draw(st.integers(1, 3))
    content = copy.deepcopy(content)
    extremes = st.sampled_from([value for value in EXTREMES if value > 0])
    for entry in content["coefficients"]:
        entry |= {what: data.draw(st.sampled_from([None, *EXTREMES])) for what in ("effect", "per_unit")}
    for entry in content["intervals"]["rows"]:
        entry |= {what: data.draw(st.sampled_from([None, *EXTREMES])) for what in ("low", "coef", "high", "privacy")}
    for entry in content["releases"]:
        entry |= {"cost": data.draw(extremes), "share": data.draw(st.sampled_from([0.0, 1e-320, 0.5, 1.0]))}
    for entry in content["prediction"]["curve"]:
        entry |= {"epsilon": data.draw(extremes), "error": data.draw(extremes)}
    for point in content["points"]:
        for row in point:
            row[:] = [data.draw(st.sampled_from(EXTREMES)) for _ in row]
    content["prediction"]["error"] = data.draw(st.one_of(st.none(), extremes))
    content["certificate"]["odds"] = data.draw(st.one_of(st.none(), extremes))
    page = tables.page(content)
    shapes = ("path", "rect", "line", "circle", "text")
    drawn = " ".join(str(attributes) for tag, attributes in read(page).tags if tag in shapes)
    assert not re.search(r"nan|inf", drawn)


def in_browser(page, width, folder, *action):
    """Open the page in a frame of this width, in which a script measures how wide its content is."""
    frame = f'<iframe id="f" srcdoc="{html.escape(page)}" style="border:0;width:{width}px;height:6000px"></iframe>'
    script = (
        "<script>onload = () => { const inner = document.getElementById('f').contentDocument.documentElement;"
        "const wide = [...inner.querySelectorAll('body *:not(svg *)')].filter(e => e.scrollWidth > e.clientWidth + 1"
        " && getComputedStyle(e).overflowX != 'visible');"
        "document.body.dataset.scrolled = wide.length;"
        "document.body.dataset.width = inner.scrollWidth; document.body.dataset.height = inner.scrollHeight; }</script>"
    )
    path = folder / f"frame{width}.html"
    path.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:0">{frame}{script}</body>')
    command = [
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", "--no-first-run", "--enable-logging=stderr", "--v=0"),
        *("--hide-scrollbars", f"--window-size={max(width, 500)},6000", f"--user-data-dir={folder / 'profile'}"),
        *(*action, f"file://{path}"),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Debian's package chromium is not installed")
@pytest.mark.parametrize("name", ["objective", "descent"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_in_a_browser_and_fits_its_width(tmp_path, name, width):
    page = tables.page(kept_content(name))
    picture = tmp_path / f"{name}-{width}.png"
    done = in_browser(page, width, tmp_path, "--dump-dom", f"--screenshot={picture}")
    assert f'data-width="{width}"' in done.stdout
    assert 'data-scrolled="0"' in done.stdout
    assert "CONSOLE" not in done.stderr
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.skipif(
    shutil.which("chromium") is None or shutil.which("pdftotext") is None,
    reason="Debian's packages chromium and poppler-utils are not installed",
)
def test_everything_is_printed(tmp_path):
    """On paper nothing is folded, and nothing is cut off: every text of the page is a text of the PDF."""
    schema = many_levels()
    plan = es.plan(tables.problem_of(schema, N, ridge=0.1), es.Approximate(1.0, 1e-6), "descent", release="iterates")
    model = tables.fit_model(plan, schema, {name: ["0.5"] * N for name in schema.columns}, seed=1, anyway=True)
    content, page = written(model)
    (tmp_path / "report.html").write_text(page)
    pdf, text = tmp_path / "report.pdf", tmp_path / "report.txt"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    printing = ["chromium", *options, f"--print-to-pdf={pdf}", f"file://{tmp_path / 'report.html'}"]
    subprocess.run(printing, check=True, capture_output=True, timeout=120)
    subprocess.run(["pdftotext", "-layout", pdf, text], check=True)
    printed = "".join(text.read_text().split())
    for entry in content["coefficients"]:
        assert f"{entry['effect']:.4g}" in printed
    for words in [
        *content["plan_page"]["facts"].values(),
        *(cell for row in content["plan_page"]["rows"] for cell in row),
    ]:
        assert all(word in printed for word in words.split())


def test_a_model_of_very_many_numbers_has_no_table_of_intervals():
    codes = [f"c{i}" for i in range(600)]
    schema = Schema({"code": Category(codes), "y": TARGETS["two"]}, target="y")
    rng = np.random.default_rng(0)
    table = {"code": rng.choice(codes, 700), "y": rng.choice(["no", "yes"], 700)}
    plan = es.plan(tables.problem_of(schema, 700, ridge=0.1), es.Pure(1.0), release="final")
    content = tables.model_to_dict(tables.fit_model(plan, schema, table, seed=1))
    page = tables.page(content)
    assert content["intervals"]["rows"] == []
    assert "There are no intervals: there are more than 500 numbers" in page
    assert disagreements(page, content) == []


@pytest.mark.parametrize("name", ["objective", "softmax"])
def test_the_card_the_file_and_the_summary_say_what_an_adaptive_fit_chose(name):
    """In the words of what was decided, computed from what was published; a plan that decides beforehand says none."""
    content = kept_content(name)
    plan = es.Plan.from_json(json.dumps(content["plan"]))
    decided = plan.decided({key: np.array(values) for key, values in content["besides"].items()})
    chosen = content["chosen"]
    assert list(chosen) == ["Bought", "Noise", "Ridge", "Weights", "Slopes"]
    assert chosen["Noise"].startswith(f"{decided.mechanism}, ")
    assert chosen["Ridge"].startswith(f"{decided.ridge:.3g}, where 0.001 was")
    weighs = decided.weighting is not None and not decided.weighting.held
    assert (chosen["Weights"] == "every record counts the same") is not weighs
    assert (chosen["Slopes"] == "not capped") is (decided.problem.loss.slope == 1)
    after, page = content["prediction"]["after"], html.unescape(tables.page(content))
    points = np.array(content["points"]).reshape(len(content["points"]), -1)
    besides = {key: np.array(values) for key, values in content["besides"].items()}
    assert after == plan.utility_after(points, besides).to_dict()
    assert f"{after['expected']:.4g}" in page
    assert "By what was published, too" in page
    assert "What was chosen" in page
    for text in chosen.values():
        assert text in page
    former = {key: value for key, value in content.items() if key != "chosen"}
    assert "What was chosen" not in tables.page(former)
    assert kept_content("output")["chosen"] == {}
    assert kept_content("output")["prediction"]["after"] is None
    assert "By what was published, too" not in tables.page(kept_content("output"))
    table = table_of(FITS[name][0])
    columns = np.stack([table["age"], table["flag"]], axis=1)
    classes = sorted(set(table["y"].tolist()))
    model = es.PrivateLogisticRegression(1.0, bounds=([18, 0], [90, 1]), classes=classes, random_state=1)
    summary = " ".join(model.fit(columns, table["y"]).summary().split())
    for text in model.plan_.choices(model.run_.extras).values():
        assert text in summary
    assert f"about {model.run_.utility.expected:.3g}, by what was published" in summary
