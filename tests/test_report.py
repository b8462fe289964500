"""The privacy card: its numbers are those of model.json, it loads nothing, and it opens in a browser."""

import copy
import functools
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

import epsteps as es
from epsteps import tables
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
    scores = tables.score(model, table_of(kind, 300, seed=2))
    made = {"by": "epsteps 0.1.0", "on": "2026-01-01"}
    found = tables.model_to_dict(model, curve=curve, ledger=ledger, scores=scores, made=made)
    return json.loads(json.dumps(found, allow_nan=False))


class Reader(HTMLParser):
    """Collects the numbers that say where they stand, and all other text outside styles."""

    def __init__(self):
        super().__init__()
        self.numbers, self.texts, self.tags, self._open = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "path", "rect"):
            self._open.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if self._open and self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, data):
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "data":
            self.numbers.append((json.loads(attributes["data-key"]), attributes["value"], data))
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
        wrong += [token for token in re.findall(r"\S*\d\S*", text) if token.strip(".,;:()") not in known]
    return wrong


@pytest.fixture(scope="module", params=FITS)
def fitted(request):
    content = content_of(request.param)
    return request.param, content, tables.page(content)


def test_every_number_is_that_of_the_model_file(fitted):
    _, content, page = fitted
    assert disagreements(page, content) == []
    numbers = [tuple(place) for place, _, _ in read(page).numbers]
    for place in range(len(content["coefficients"])):
        assert ("coefficients", place, "effect") in numbers
    for place, row in enumerate(content["intervals"]["rows"]):
        assert row["low"] <= row["coef"] <= row["high"]
        assert {("intervals", "rows", place, name) for name in ("low", "coef", "high")} <= set(numbers)
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
    other["plan_text"] = other["plan_text"].replace("noise scale", "").replace("0", "7")
    assert disagreements(page, other) != []


def test_the_page_loads_nothing_and_escapes_names(fitted):
    _, _, page = fitted
    reader = read(page)
    assert {tag for tag, _ in reader.tags} & {"script", "link", "img", "iframe", "object", "b"} == set()
    assert not any(name in ("src", "href", "onload", "style") for _, attributes in reader.tags for name in attributes)
    for loaded in ("http:", "https:", "@import", "url("):
        assert loaded not in page
    assert html.escape("job <b>=x & y") in page


HOSTILE = """</pre></style><script>alert('x')</script><img src=x onerror="y">{{ card }}"""
# Texts that a page does not show, but asks for.
KINDS = ("numeric", "category", "measured", "provable", "population", "sample")


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
        with pytest.raises(UndefinedError, match=name):
            tables.page(other)


def test_the_split_of_the_budget_is_drawn_to_scale(fitted):
    _, content, page = fitted
    shares = [entry["share"] for entry in content["releases"]]
    assert np.isclose(sum(shares), 1)
    bars = [attributes for tag, attributes in read(page).tags if tag == "rect"]
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
    content, page = written(model, scores=tables.score(model, table_of(kind, 20, seed=2)))
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
    drawn = " ".join(str(attributes) for tag, attributes in read(page).tags if tag in ("path", "rect"))
    assert not re.search(r"nan|inf", drawn)


def in_browser(page, width, folder, *action):
    """Open the page in a frame of this width, in which a script measures how wide its content is."""
    frame = f'<iframe id="f" srcdoc="{html.escape(page)}" style="border:0;width:{width}px;height:6000px"></iframe>'
    script = (
        "<script>onload = () => { const inner = document.getElementById('f').contentDocument.documentElement;"
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
    page = tables.page(content_of(name))
    done = in_browser(page, width, tmp_path, "--dump-dom")
    assert f'data-width="{width}"' in done.stdout
    assert "CONSOLE" not in done.stderr
    picture = tmp_path / f"{name}-{width}.png"
    in_browser(page, width, tmp_path, f"--screenshot={picture}")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


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
    content = content_of(name)
    plan = es.Plan.from_json(json.dumps(content["plan"]))
    decided = plan.decided({key: np.array(values) for key, values in content["besides"].items()})
    chosen = content["chosen"]
    assert list(chosen) == ["Bought", "Noise", "Ridge", "Weights", "Slopes"]
    assert chosen["Noise"].startswith(f"{decided.mechanism}, ")
    assert chosen["Ridge"].startswith(f"{decided.ridge:.3g}, where 0.001 was")
    assert (chosen["Weights"] == "every record counts the same") is (decided.weighting is None)
    assert (chosen["Slopes"] == "not capped") is (decided.problem.loss.slope == 1)
    page = html.unescape(tables.page(content))
    assert "What was chosen" in page
    for text in chosen.values():
        assert text in page
    former = {key: value for key, value in content.items() if key != "chosen"}
    assert "What was chosen" not in tables.page(former)
    assert content_of("output")["chosen"] == {}
    table = table_of(FITS[name][0])
    columns = np.stack([table["age"], table["flag"]], axis=1)
    classes = sorted(set(table["y"].tolist()))
    model = es.PrivateLogisticRegression(1.0, bounds=([18, 0], [90, 1]), classes=classes, random_state=1)
    summary = " ".join(model.fit(columns, table["y"]).summary().split())
    for text in model.plan_.choices(model.run_.extras).values():
        assert text in summary
