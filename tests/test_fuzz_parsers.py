"""Whatever text, file or command line arrives: a result, or an error of one line. Never a traceback.

The default run tries about two thousand inputs, the slow one more than a hundred thousand.
"""

import io
import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.plans import is_a_page
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.cli import app
from epsteps.data.sources import read_table
from epsteps.tables import Category, Numeric, Schema

CLEAN = (ValueError, TypeError, OSError)

PLANS = [
    es.plan(problem, budget, method, iterations=3, **options)
    for problem, budget, method, options in (
        (es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=100, d=2), es.Pure(1.0), es.nesterov, {}),
        (es.Problem(es.Squared(), es.Ball(1, norm=1), ridge=0.1, n=100, d=2), es.Concentrated(0.1), es.gd, {}),
        (
            es.Problem(es.Logistic(("a", "b")), es.Ball(2, norm=np.inf), ridge=0.1, n=100, d=2, intercept=True),
            es.Pure(0.5),
            es.gd,
            {"batch": 10, "expenses": (es.Expense("L", 0.1, "epsilon"),)},
        ),
    )
]
SMALL = {"ridge": 0.1, "n": 100, "d": 2}
BOX = es.Box((0, -1), (1, 1))
# One plan of each kind that is not made of steps, and of each kind of noise.
PLANS += [
    es.plan(problem, budget, method)
    for problem, budget, method in (
        (es.Problem(es.Logistic(), BOX, **SMALL), es.Pure(1.0), "objective"),
        (
            es.Problem(es.Softmax("abc"), es.Box(0, 1, one_hot=[(0, 2)]), **SMALL),
            es.Approximate(1.0, 1e-6),
            "objective",
        ),
        (es.Problem(es.Logistic(), BOX, **SMALL), es.Approximate(1.0, 1e-6), "sequential"),
        (es.Problem(es.PseudoHuber(), es.Ball(1), **SMALL), es.Pure(1.0), "output"),
        (es.Problem(es.Logistic(), BOX, **SMALL), es.Concentrated(0.1), "output"),
        (es.Problem(es.Squared(), BOX, intercept=True, **SMALL), es.Pure(1.0), "statistics"),
        (es.Problem(es.Squared(), es.Ball(1), **SMALL), es.Approximate(1.0, 1e-6), "statistics"),
        (es.Problem(es.Logistic(), BOX, **SMALL), es.Pure(1.0), "curvature"),
        (es.Problem(es.Squared(), BOX, **SMALL), es.Approximate(1.0, 1e-6), "curvature"),
    )
]
PLANS += [es.plan(PLANS[0].problem, es.Pure(9000.0), "objective", intervals=0.9, robust=True)]
PLANS += [es.Plan.kinds["SmoothnessPlan"](PLANS[0].problem, es.Pure(0.01), 0.9)]
KINDS = {kind.__name__: kind for kind in (es.Plan, *map(type, PLANS))}


def tries(count, *strategies):
    """Run a test on so many inputs, the same ones every time."""
    quiet = settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    return lambda test: quiet(given(*strategies)(test))


def result_or_clean_error(read, clean=CLEAN):
    """Return what was read, or None after an error that speaks to a person: a sentence on one line."""
    try:
        return read()
    except clean as error:
        message = str(error)
    assert message.strip(), "an error without a word"
    assert "\n" not in message.strip(), message
    return None


# --- plans as JSON -------------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.floats(),
    st.integers(),
    st.sampled_from([0, 1, -1, 2, 10**9, 10**30, -(10**400), 1e308, 5e-324, math.inf, math.nan, 0.1, 100]),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.text(max_size=8),
    st.sampled_from(["Pure", "inf", "rho", "laplace", "ObjectivePlan", "a\nb", "<b>&", "\ud800", "1e400"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["type", "n", "epsilon", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


names = st.text(max_size=5)


def places(value, path=()):
    """Yield the way to every part of a document."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in entries:
        yield from places(part, (*path, key))


@st.composite
def changed_plans(draw):
    """A valid plan of which one to three parts were replaced, deleted or added."""
    plan = draw(st.sampled_from(PLANS))
    content = json.loads(plan.to_json())
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from([path for path in places(content) if path]))
        inside = content
        for key in way[:-1]:
            inside = inside[key]
        action = draw(st.sampled_from(["replace", "replace", "delete", "add"]))
        if action == "replace":
            inside[way[-1]] = draw(values)
        elif action == "delete":
            del inside[way[-1]]
        elif isinstance(inside, dict):
            inside[draw(names)] = draw(values)
        else:
            inside.append(draw(values))
    return type(plan), json.dumps(content)


@st.composite
def damaged_texts(draw):
    """A valid plan's text with a stretch of it replaced."""
    plan = draw(st.sampled_from(PLANS))
    text = json.dumps(json.loads(plan.to_json()))
    start = draw(st.integers(0, len(text)))
    stop = min(len(text), start + draw(st.integers(0, 40)))
    return type(plan), text[:start] + draw(st.text(max_size=6)) + text[stop:]


def any_kind(texts):
    """Texts, each to be read as a plan of any kind."""
    return st.tuples(st.sampled_from(list(KINDS.values())), texts)


def reads_plan(wanted):
    """Whatever the text: a plan that certifies what it says, or one kind of error, in one line."""
    kind, text = wanted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = result_or_clean_error(lambda: kind.from_json(text), (es.PlanFormatError,))
    if plan is None:
        return
    assert 0 < plan.spent <= plan.budget.amount
    assert kind.from_json(plan.to_json()) == plan
    is_a_page(plan)


DEEP = 100_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "[" * DEEP,
        '{"epsteps_plan": 1, "kind": ' + "[" * DEEP + "]" * DEEP + "}",
        '{"x": ' * DEEP + "1" + "}" * DEEP,
        '{"epsteps_plan": 1' + "0" * 5000 + "}",
        '{"epsteps_plan": 1, "epsteps_plan": 1}',
        '{"epsteps_plan": 1e400}',
        '"\ud800"',
        "\ud800",
        "\x00",
        "",
    ],
    ids=["brackets", "list", "objects", "digits", "twice", "infinite", "escaped", "surrogate", "null", "empty"],
)
def test_hopeless_texts_are_refused(kind, text):
    with pytest.raises(es.PlanFormatError) as raised:
        KINDS[kind].from_json(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_nested_too_deeply_is_refused(kind):
    """Less deep than what stops a reader of JSON, and still deeper than what follows may go."""
    plan = next(plan for plan in PLANS if isinstance(plan, KINDS[kind]))
    content = json.loads(plan.to_json())
    for name in ("mechanism", "problem", "budget", "certificate"):
        nested = json.dumps(content | {name: "here"}).replace('"here"', "[" * 900 + "]" * 900)
        with pytest.raises(es.PlanFormatError):
            type(plan).from_json(nested)


@pytest.mark.parametrize("kind", KINDS)
def test_limits_of_memory_hold_for_plans_that_are_read(kind):
    plan = next(plan for plan in PLANS if isinstance(plan, KINDS[kind]))
    content = json.loads(plan.to_json())
    for name, value in (("d", 10**9), ("d", 10**400), ("n", 10**400)):
        content["problem"]["domain"] = {"type": "Ball", "radius": 1, "norm": "inf"}
        changed = json.dumps(content | {"problem": content["problem"] | {name: value}})
        with pytest.raises(es.PlanFormatError, match="at most"):
            type(plan).from_json(changed)


# --- schemas and models --------------------------------------------------------------------------------------------

SCHEMA = Schema(
    {"age": Numeric(0, 100, missing=True), "job": Category(["a", "b"]), "y": Category([0, 1, 2])}, target="y"
)


@st.composite
def changed_schemas(draw):
    """Values of a valid schema of which one to three parts were replaced or deleted."""
    content = {"schema": SCHEMA.to_dict()}
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from([path for path in places(content) if path]))
        inside = content
        for key in way[:-1]:
            inside = inside[key]
        if len(way) > 1 and draw(st.booleans()):
            del inside[way[-1]]
        else:
            inside[way[-1]] = draw(values)
    return content["schema"]


@st.composite
def damaged_toml(draw):
    """A valid schema's text with a stretch of it replaced."""
    text = SCHEMA.to_toml()
    start = draw(st.integers(0, len(text)))
    stop = min(len(text), start + draw(st.integers(0, 40)))
    more = draw(st.one_of(st.text(max_size=6), st.sampled_from(["[" * 3000, "9" * 5000, "1e400", "nan", "1979-05-27"])))
    return text[:start] + more + text[stop:]


def reads_schema(made):
    read = Schema.from_toml if isinstance(made, str) else Schema.from_dict
    schema = result_or_clean_error(lambda: read(made), (ValueError, TypeError))
    if schema is not None:
        assert Schema.from_toml(schema.to_toml()) == schema == Schema.from_dict(schema.to_dict())


def reads_model(content):
    result_or_clean_error(lambda: tables.model_from_dict(content), (tables.ModelFormatError,))


def test_models_nested_too_deeply_are_refused(tmp_path):
    path = tmp_path / "model.json"
    for text in ("[" * DEEP, '{"epsteps_model": 1, "plan": ' + "[" * 900 + "]" * 900 + "}", '{"epsteps_model": 1}'):
        path.write_text(text)
        with pytest.raises(tables.ModelFormatError, match=r"model\.json"):
            tables.load_model(path)


# --- files ---------------------------------------------------------------------------------------------------------


def npz_bytes(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def parquet_bytes():
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"a": [1.0, 2.0, 3.0], "b": [1, 0, 1]}), file)
    return file.getvalue()


SEEDS = {
    ".npz": [npz_bytes(X=np.ones((3, 2)), y=np.ones(3)), npz_bytes(X_train=np.ones((3, 2)), y_train=np.arange(3))],
    ".npy": [npy_bytes(np.ones((3, 2))), npy_bytes(np.ones((3, 2), dtype=np.float32, order="F"))],
    ".csv": [b"a,b\n1,2\n3,\n", b"\xef\xbb\xbfa,b,c\r\n1,2,3\r\n", b'"a","b"\n"1",2\n', b"a,b\n1e400,nan\n"],
    ".parquet": [parquet_bytes()],
}


@st.composite
def files(draw, endings):
    """An ending, and bytes: random ones, or a valid file's with some stretches replaced."""
    ending = draw(st.sampled_from(endings))
    if draw(st.integers(0, 4)) == 0:
        return ending, draw(st.binary(max_size=60))
    content = draw(st.sampled_from(SEEDS[ending]))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.integers(0, 6)))
        content = content[:start] + draw(st.binary(max_size=6)) + content[stop:]
    return ending, content


def reads_table(path, target):
    for array in result_or_clean_error(lambda: read_table(path, target)) or ():
        assert isinstance(array, np.ndarray)


def opens_records(path):
    npy = path.suffix == ".npy"
    problem = es.Problem(es.Logistic(), es.Ball(1), ridge=0.1, n=3, d=2 if npy else 1)

    def read():
        return es.Rows(problem, path, np.ones(3) if npy else "b").gradient(np.zeros(problem.d))

    result_or_clean_error(read)


# --- command lines -------------------------------------------------------------------------------------------------

ODD = "0 1 -1 2 3 0.5 1e-320 1e308 -0.0 nan inf -inf 1e400 100000000000000000000 1_0 ٣ 0x10 1e3"
NAMES = "logistic squared nesterov gd heavy-ball multistage optimal uniform laplace gaussian 1 2 inf"
odd_numbers = st.one_of(st.sampled_from(ODD.split()), st.floats().map(repr), st.integers(-3, 40).map(str))
# Numbers that decide how long a command works stay small.
counts = st.one_of(st.integers(-2, 12).map(str), st.sampled_from(["", "x", "1.5", "nan", "auto", "-"]))
words = st.one_of(st.sampled_from(NAMES.split()), st.text(max_size=4))
OPTIONS = {
    "plan": {
        **dict.fromkeys(["--n", "--d"], st.one_of(counts, st.sampled_from(["1000", "100000000000"]))),
        **dict.fromkeys(
            ["--epsilon", "--delta", "--rho", "--target-error", "--target-bound", "--radius", "--ridge"], odd_numbers
        ),
        **dict.fromkeys(["--smoothness", "--c", "--start-gap"], odd_numbers),
        **dict.fromkeys(["--norm", "--loss", "--method", "--allocation", "--mechanism", "--objective"], words),
        **dict.fromkeys(["--T", "--m", "--max-iterations"], counts),
    },
    "audit": {
        **dict.fromkeys(["--epsilon", "--delta", "--rho", "--radius", "--ridge", "--confidence"], odd_numbers),
        **dict.fromkeys(["--norm", "--loss", "--method"], words),
        **dict.fromkeys(["--T", "--n", "--d", "--m", "--seed"], counts),
    },
    "compare": {
        **dict.fromkeys(["--epsilon", "--delta", "--ridge", "--c", "--start", "--start-gap"], odd_numbers),
        **dict.fromkeys(["--m", "--seed", "--classes", "--norm", "--loss", "--target"], st.one_of(counts, words)),
    },
    "ledger create": dict.fromkeys(["--epsilon", "--delta", "--rho", "--composition", "--note"], odd_numbers),
    "ledger show": {"--json": st.just("")},
    "ledger history": {"--json": st.just("")},
    "ledger verify": {"--head": words},
    "ledger export": {"--json": st.just("")},
}
REQUIRED = {
    "plan": ["--n", "100", "--d", "2", "--method", "nesterov", "--T", "4"],
    "audit": ["--d", "2", "--method", "nesterov", "--T", "2", "--repetitions", "3"],
    "compare": ["--n", "30", "--d", "2", "--T", "3", "--repetitions", "2", "--out", "OUT"],
    "ledger create": ["LEDGER", "people"],
    "ledger show": ["LEDGER"],
    "ledger history": ["LEDGER", "people"],
    "ledger verify": ["LEDGER"],
    "ledger export": ["LEDGER"],
}
COMMON = [name for name in OPTIONS if name != "compare"]  # it draws a picture every time, which takes a while


@st.composite
def command_lines(draw, commands):
    command = draw(st.sampled_from(commands))
    arguments = [*command.split(), *REQUIRED[command]]
    for name in draw(st.lists(st.sampled_from(sorted(OPTIONS[command])), max_size=4)):
        arguments += [name, draw(OPTIONS[command][name])]
    if draw(st.integers(0, 9)) == 0:
        arguments.insert(draw(st.integers(0, len(arguments))), draw(st.text(max_size=6)))
    return arguments


def runs_command(arguments, folder):
    names = {"OUT": str(folder / "out"), "LEDGER": str(folder / "ledger.db")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(app, [names.get(argument, argument) for argument in arguments])
    assert result.exit_code in (0, 1, 2), arguments
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, repr(result.exception))
    assert "Traceback" not in result.output
    if result.exit_code != 0:
        assert any(line.startswith(("Error", "Usage")) for line in result.output.splitlines()), arguments


# --- how many ------------------------------------------------------------------------------------------------------


def often(name, few, many, *rest):
    """Return a case of so many inputs in the default run, and one of many more in the slow one."""
    return [
        pytest.param(few, *rest, id=f"{name}-{few}"),
        pytest.param(many, *rest, id=f"{name}-{many}", marks=pytest.mark.slow),
    ]


@pytest.mark.parametrize(
    ("count", "texts"),
    [
        *often("changed", 400, 10_000, changed_plans()),
        *often("damaged", 500, 30_000, damaged_texts()),
        *often("text", 300, 20_000, any_kind(st.text())),
        *often("json", 300, 20_000, any_kind(values.map(json.dumps))),
    ],
)
def test_plans_are_read_or_refused(count, texts):
    tries(count, texts)(reads_plan)()


@pytest.mark.parametrize(
    ("count", "made"),
    [
        *often("changed", 150, 10_000, changed_schemas()),
        *often("damaged", 150, 10_000, damaged_toml()),
        *often("values", 50, 5_000, values),
    ],
)
def test_schemas_are_read_or_refused(count, made):
    tries(count, made)(reads_schema)()


@pytest.mark.parametrize(
    ("count", "contents"),
    [
        *often("values", 50, 5_000, values),
        *often("with", 100, 10_000, st.fixed_dictionaries({"epsteps_model": st.just(1), "plan": values})),
    ],
)
def test_models_are_read_or_refused(count, contents):
    tries(count, contents)(reads_model)()


@pytest.mark.parametrize(
    ("count", "ending"),
    [*often("npz", 150, 7000, ".npz"), *often("csv", 200, 7000, ".csv"), *often("parquet", 100, 4000, ".parquet")],
)
def test_tables_are_read_or_refused(count, ending, tmp_path):
    @tries(count, files([ending]), st.sampled_from([None, "y", "b", "a", "nowhere"]))
    def check(file, target):
        path = tmp_path / f"table{file[0]}"
        path.write_bytes(file[1])
        reads_table(path, target)

    check()


@pytest.mark.parametrize(
    ("count", "ending"), [*often("npy", 100, 4000, ".npy"), *often("parquet", 60, 2000, ".parquet")]
)
def test_files_of_records_are_opened_or_refused(count, ending, tmp_path):
    @tries(count, files([ending]))
    def check(file):
        path = tmp_path / f"records{file[0]}"
        path.write_bytes(file[1])
        opens_records(path)

    check()


@pytest.mark.parametrize(
    ("count", "commands"), [*often("most", 120, 3000, COMMON), *often("compare", 6, 100, ["compare"])]
)
def test_command_lines_have_clean_errors(count, commands, tmp_path):
    @tries(count, command_lines(commands))
    def check(arguments):
        runs_command(arguments, tmp_path)

    check()
