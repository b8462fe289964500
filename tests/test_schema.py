"""Schemas: features of a record come from its own cells alone and lie in the declared domain, whatever a cell holds."""

import copy
import csv
import dataclasses
import datetime
import io
import json
import math
import pickle
import sys
from decimal import Decimal
from importlib import import_module

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from sklearn.utils import get_tags
from typer.testing import CliRunner

import epsteps as es
from epsteps.tables import Category, Numeric, Schema, draft, read_columns

command = import_module("epsteps.cli.schema")

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

JOBS = ["clerk", "cook", "smith"]
PEOPLE = Schema(
    {
        "age": Numeric(0, 100),
        "income": Numeric(-1e3, 1e5, missing=True),
        "job": Category(JOBS),
        "size": Category([1, 2.5, 40], missing=True),
        "member": Category([False, True]),
        "ill": Category(["no", "yes"]),
    },
    target="ill",
)


def people(n: int = 60, seed: int = 0) -> dict[str, list]:
    """Return a clean table, without missing values."""
    rng = np.random.default_rng(seed)
    return {
        "age": rng.integers(0, 101, n).tolist(),
        "income": rng.uniform(-1e3, 1e5, n).tolist(),
        "job": rng.choice(JOBS, n).tolist(),
        "size": rng.choice([1, 2.5, 40], n).tolist(),
        "member": rng.choice([False, True], n).tolist(),
        "ill": rng.choice(["no", "yes"], n).tolist(),
    }


# --- laws ----------------------------------------------------------------------------------------------------------

words = st.sampled_from(
    ["", " ", "?", "NaN", "inf", "-inf", "1e999", "1", "01", " 2.5 ", "40.0", "true", "FALSE", "cook"]
)
cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(-(10**400)),
    st.floats(),
    st.text(max_size=8),
    words,
    st.binary(max_size=4),
    st.complex_numbers(),
    st.sampled_from(
        [
            pd.NA,
            pd.NaT,
            Decimal("sNaN"),
            Decimal("1e99999"),
            np.datetime64("2020-01-01"),
            np.timedelta64(1, "s"),
            np.float32(2.5),
            np.longdouble("1e4000"),
            datetime.date(2020, 1, 1),
            object(),
            (1, 2),
        ]
    ),
)
texts = st.text(min_size=1, max_size=6).filter(lambda text: text.strip() and not text.strip().lower().startswith("nan"))


@st.composite
def columns(draw):
    missing = draw(st.booleans())
    kind = draw(st.sampled_from(["numeric", "text", "numbers"]))
    if kind == "numeric":
        low, high = sorted(draw(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=2, unique=True)))
        return Numeric(low, high, missing)
    options = texts if kind == "text" else st.one_of(st.booleans(), st.integers(-5, 5), st.floats(-1e9, 1e9))
    values = draw(st.lists(options, min_size=2, max_size=5))
    try:
        return Category(values, missing)
    except ValueError:  # two of them are the same
        return Category(["a", "b", "c"][: 2 + missing], missing)


@st.composite
def schemas(draw):
    return Schema({f"c{i}": column for i, column in enumerate(draw(st.lists(columns(), min_size=1, max_size=4)))})


def rows_of(schema: Schema):
    """Return a strategy of records: cells of any kind, and values that are declared."""
    declared = [
        st.floats(column.low, column.high) if isinstance(column, Numeric) else st.sampled_from(column.values)
        for column in schema.columns.values()
    ]
    return st.tuples(*(st.one_of(cells, values) for values in declared))


def table_of(schema: Schema, rows: list[tuple]) -> dict[str, list]:
    return dict(zip(schema.columns, map(list, zip(*rows, strict=True)), strict=True))


def guessed(table: dict[str, list]) -> dict:
    """Return the table with types that pandas guesses from all cells of a column, where it can."""
    columns = {}
    for name, column in table.items():
        try:
            columns[name] = pd.Series(column)
        except OverflowError:  # old versions cannot take integers that are too long
            columns[name] = pd.Series(column, dtype=object)
    return columns


@settings(suppress_health_check=list(HealthCheck), max_examples=150)
@given(st.data())
def test_no_cell_raises_warns_or_changes_shape_type_or_another_row(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(rows_of(schema), min_size=1, max_size=5))
    place = data.draw(st.integers(0, len(rows) - 1))
    neighbour = [*rows[:place], data.draw(rows_of(schema)), *rows[place + 1 :]]
    tables = table_of(schema, rows), table_of(schema, neighbour)
    encoded = [schema.encode(table) for table in tables]
    encoded += [schema.encode(guessed(table)) for table in tables]
    for features in encoded:
        assert features.shape == (len(rows), schema.d)
        assert features.dtype == np.float64
        np.testing.assert_array_equal(np.delete(features, place, 0), np.delete(encoded[0], place, 0))
    np.testing.assert_array_equal(encoded[2], encoded[0])
    np.testing.assert_array_equal(encoded[3], encoded[1])


@settings(suppress_health_check=list(HealthCheck), max_examples=100)
@given(st.data())
def test_features_lie_in_the_domain_exactly(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(rows_of(schema), min_size=1, max_size=5))
    features, domain = schema.encode(table_of(schema, rows)), schema.domain()
    domain.require(schema.d)
    assert not domain.outside(features).any()
    np.testing.assert_array_equal(domain.project(features), features)
    assert np.all(np.abs(features).sum(axis=1) <= domain.size(1, schema.d))
    for start, stop in domain.one_hot:
        assert np.all(features[:, start:stop].sum(axis=1) <= 1)


@given(st.data())
def test_targets_never_raise_and_lie_where_the_loss_expects_them(data):
    column = data.draw(columns().filter(lambda column: not column.missing))
    schema = Schema({"x": Numeric(0, 1), "y": column}, target="y")
    rows = data.draw(st.lists(cells, min_size=1, max_size=5))
    encoded, loss = schema.encode_target(rows), schema.loss()
    assert encoded.shape == (len(rows),)
    assert encoded.dtype == schema.encode_target([None]).dtype
    assert loss.outside(encoded) == 0
    np.testing.assert_array_equal(encoded, np.concatenate([schema.encode_target([cell]) for cell in rows]))
    np.testing.assert_array_equal(schema.encode_target({"y": rows}), encoded)


def test_a_column_counts_once_in_every_norm_and_the_bound_is_reached():
    domain, d = PEOPLE.domain(), PEOPLE.d
    features = PEOPLE.encode({"age": [100], "income": [None], "job": ["cook"], "size": ["?"], "member": [True]})
    assert domain.size(1, d) == 5 == features.sum()
    assert domain.size(2, d) == pytest.approx(math.sqrt(5)) == np.linalg.norm(features)
    assert domain.one_hot == ((1, 3), (3, 6), (6, 10))


# --- what features are ---------------------------------------------------------------------------------------------


def test_clean_tables_are_encoded_as_scikit_learn_does_with_declared_ranges_and_categories():
    table = people()
    ages = MinMaxScaler(clip=True).fit([[0], [100]]).transform(np.array(table["age"])[:, None])
    incomes = MinMaxScaler(clip=True).fit([[-1e3], [1e5]]).transform(np.array(table["income"])[:, None])
    jobs = OneHotEncoder(categories=[JOBS], sparse_output=False).fit_transform(np.array(table["job"])[:, None])
    sizes = OneHotEncoder(categories=[[1, 2.5, 40]], sparse_output=False).fit_transform(
        np.array(table["size"])[:, None]
    )
    zeros = np.zeros((60, 1))
    expected = np.hstack([ages, incomes, zeros, jobs, sizes, zeros, np.array(table["member"], dtype=float)[:, None]])
    np.testing.assert_allclose(PEOPLE.encode(table), expected, atol=1e-15)


def test_names_say_what_each_feature_is():
    expected = ["age", "income", "income is missing", "job=clerk", "job=cook", "job=smith"]
    expected += ["size=1", "size=2.5", "size=40", "size is missing", "member=True"]
    assert list(PEOPLE.names) == expected
    assert PEOPLE.d == len(expected)


@pytest.mark.parametrize("cell", [1, 1.0, True, "1", "01", " 1.0 ", b"1", "true", np.int8(1), Decimal(1), 1 + 0j])
@pytest.mark.parametrize("values", [(0, 1, 2), ("0", "1", "2"), ("00", "01", "two"), (False, True, 2)])
def test_a_number_and_its_text_are_the_same_category(cell, values):
    np.testing.assert_array_equal(Category(values).encode(np.array([cell], dtype=object)), [[0, 1, 0]])


@pytest.mark.parametrize(
    "huge",
    [10**400, Decimal("1e9999"), np.longdouble("1e4000"), math.inf, "1e999", 1e300],
    ids=lambda huge: type(huge).__name__,
)
def test_huge_numbers_count_as_the_ends_of_the_range(huge):
    column = np.array([huge, f"-{huge}" if isinstance(huge, str) else -huge], dtype=object)
    np.testing.assert_array_equal(Numeric(5, 7, missing=True).encode(column), [[1, 0], [0, 0]])


def test_what_is_unknown_or_missing():
    table = {"age": ["x"], "income": ["x"], "job": ["pope"], "size": [7], "member": ["maybe"]}
    np.testing.assert_array_equal(PEOPLE.encode(table), [[0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0]])
    np.testing.assert_array_equal(PEOPLE.encode_target(["maybe", None, "yes"]), ["no", "no", "yes"])
    weight = Schema({"x": Numeric(0, 1), "weight": Numeric(10, 30)}, target="weight")
    np.testing.assert_array_equal(weight.encode_target([None, 10, 99, "20", 15]), [0, -1, 1, 0, -0.5])


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.lists(st.floats(0, 1), min_size=1))
def test_numeric_targets_come_back(low, width, shares):
    schema = Schema({"x": Numeric(0, 1), "y": Numeric(low, low + width)}, target="y")
    y = np.clip(low + width * np.array(shares), low, low + width)
    np.testing.assert_allclose(schema.decode_target(schema.encode_target(y)), y, atol=1e-9 * (abs(low) + width))
    assert schema.decode_target([-7.0, 7.0]).tolist() == [schema.columns["y"].low, schema.columns["y"].high]


@pytest.mark.parametrize(
    ("column", "loss"),
    [
        (Category(["no", "yes"]), es.Logistic(("no", "yes"))),
        (Category([3, 1, 2]), es.Softmax((3, 1, 2))),
        (Numeric(5, 9), es.Squared(1.0)),
    ],
)
def test_the_target_chooses_the_loss(column, loss):
    assert Schema({"x": Numeric(0, 1), "y": column}).with_target("y").loss() == loss


def test_a_private_run_takes_what_a_schema_makes():
    table = people(200)
    problem = es.Problem(PEOPLE.loss(), PEOPLE.domain(), ridge=0.1, n=200, d=PEOPLE.d, intercept=True)
    X, y = PEOPLE.encode(table), PEOPLE.encode_target(table)
    assert not es.check(problem, X, y).any
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=3)
    assert es.run(plan, es.Rows(problem, X, y), seed=1).x.shape == (PEOPLE.d + 1,)


# --- kinds of tables -----------------------------------------------------------------------------------------------

SOME = {
    "age": [17, 120, None, 40],
    "income": [1.5, None, -1e9, 7.0],
    "job": ["cook", None, "pope", "smith"],
    "size": [1.0, 2.5, None, 3.0],
    "member": [True, None, False, True],
    "ill": ["yes", "no", None, "?"],
}


def written(write, name):
    def make(tmp_path):
        write(tmp_path / name)
        return PEOPLE.load(tmp_path / name)

    return make


def categorical(tmp_path):
    return pd.DataFrame(SOME).astype({"job": "category", "ill": "category"})


TABLES = {
    "dict of lists": lambda _: SOME,
    "dict of arrays": lambda _: {name: np.array(column, dtype=object) for name, column in SOME.items()},
    "dict of masked arrays": lambda _: {
        name: np.ma.array([0 if cell is None else cell for cell in column], mask=[cell is None for cell in column])
        for name, column in SOME.items()
    },
    "pandas": lambda _: pd.DataFrame(SOME),
    "pandas with its own missing value": lambda _: pd.DataFrame(SOME).convert_dtypes(),
    "pandas of objects": lambda _: pd.DataFrame(SOME, dtype=object),
    "pandas with categories": categorical,
    "pandas by pyarrow": lambda _: pd.DataFrame(SOME).convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda _: pl.DataFrame(SOME),
    "polars with categories": lambda _: pl.DataFrame(SOME).with_columns(pl.col("job", "ill").cast(pl.Categorical)),
    "pyarrow": lambda _: pa.table(SOME),
    "pyarrow with dictionaries": lambda _: pa.table(SOME | {"job": pa.array(SOME["job"]).dictionary_encode()}),
    "pyarrow in chunks": lambda _: pa.concat_tables([pa.table(SOME)[:1], pa.table(SOME)[1:]]),
    "pyarrow batch": lambda _: pa.RecordBatch.from_pydict(SOME),
    "array with names": lambda _: np.array(list(zip(*SOME.values(), strict=True)), dtype=[(k, object) for k in SOME]),
    "csv by pandas": written(lambda path: pd.DataFrame(SOME).to_csv(path), "t.csv"),
    "csv by polars": written(lambda path: pl.DataFrame(SOME).write_csv(path), "t.csv"),
    "parquet": written(lambda path: pq.write_table(pa.table(SOME), path), "t.parquet"),
    "parquet by pandas": written(lambda path: pd.DataFrame(SOME).to_parquet(path), "t.parquet"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_gives_the_same_features_and_targets(kind, tmp_path):
    table = TABLES[kind](tmp_path)
    expected = [
        [0.17, 1001.5 / 101000, 0, 0, 1, 0, 1, 0, 0, 0, 1],
        [1.00, 0.0, 1, 0, 0, 0, 0, 1, 0, 0, 0],
        [0.00, 0.0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        [0.40, 1007.0 / 101000, 0, 0, 0, 1, 0, 0, 0, 1, 1],
    ]
    np.testing.assert_array_equal(PEOPLE.encode(table), expected)
    np.testing.assert_array_equal(PEOPLE.encode_target(table), ["yes", "no", "no", "no"])


@pytest.mark.parametrize("make", [np.array, list, pd.Series, pl.Series, pa.array])
def test_a_target_may_come_as_a_column(make):
    np.testing.assert_array_equal(PEOPLE.encode_target(make(["yes", "?", "no"])), ["yes", "no", "no"])


def test_arrays_without_names_hold_the_declared_columns_in_order():
    table = people(5)
    array = np.array([table[name] for name in PEOPLE.features], dtype=object).T
    np.testing.assert_array_equal(PEOPLE.encode(array), PEOPLE.encode(table))
    np.testing.assert_array_equal(PEOPLE.encode(array.tolist()), PEOPLE.encode(table))


def test_columns_that_pandas_takes_for_attributes():
    schema = Schema({name: Numeric(0, 1) for name in ("compute", "collect", "column_names", "shape")})
    frame = pd.DataFrame({name: [0.5] for name in schema.columns})
    np.testing.assert_array_equal(schema.encode(frame), [[0.5] * 4])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"Age": [1]}, "has no column 'age'; did you mean 'Age'. It has 'Age'."),
        ({}, "has no column 'age'. It has none."),
        ({"age": []}, "the table has no rows"),
        (pd.DataFrame([[1, 2]], columns=["age", "age"]), "has 2 columns 'age': rename all but one"),
        (pa.table([[1], [2]], names=["age", "age"]), "has 2 columns 'age'"),
        (np.zeros((3, 2)), r"must have the 1 declared columns, in their order, got shape \(3, 2\)"),
        (np.zeros((0, 1)), "the table has no rows"),
        (np.zeros(3), "got shape"),
        ({"age": np.zeros((2, 2))}, r"'age' must have one dimension, got shape \(2, 2\)"),
    ],
)
def test_structure_raises(table, message):
    with pytest.raises(ValueError, match=message):
        Schema({"age": Numeric(0, 100)}).encode(table)


@pytest.mark.parametrize(
    ("table", "message"),
    [("people.csv", "read the file with load"), (pl.LazyFrame({"age": [1]}), "collect"), (1, "shape")],
)
def test_what_is_no_table_is_refused(table, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Schema({"age": Numeric(0, 100)}).encode(table)


def test_columns_of_different_length_are_refused():
    with pytest.raises(ValueError, match=r"same length, got \[2, 3\]"):
        Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}).encode({"a": [1, 2], "b": [1, 2, 3]})


# --- schemas as text -----------------------------------------------------------------------------------------------


@settings(suppress_health_check=list(HealthCheck))
@given(st.dictionaries(texts, columns(), min_size=2, max_size=4))
def test_schemas_come_back_from_toml_json_and_pickle(declared):
    try:
        schema = Schema(declared)
    except ValueError:  # names of features that are the same
        return
    first, column = next(iter(schema.columns.items()))
    schema = schema if column.missing else schema.with_target(first)
    for same in (
        Schema.from_toml(schema.to_toml()),
        Schema.from_dict(json.loads(json.dumps(schema.to_dict()))),
        pickle.loads(pickle.dumps(schema)),
        copy.deepcopy(schema),
        eval(repr(schema)),
    ):
        assert same == schema
        assert hash(same) == hash(schema)
        assert (same.names, same.columns) == (schema.names, schema.columns)


def test_the_order_of_columns_is_part_of_a_schema():
    assert Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}) != Schema({"b": Numeric(0, 1), "a": Numeric(0, 1)})


def test_a_schema_cannot_be_changed_by_what_it_gives_out():
    schema = Schema({"a": Numeric(0, 1)})
    schema.columns["b"] = Numeric(0, 1)
    assert list(schema.columns) == ["a"]


def test_a_schema_prints_what_it_declares():
    lines = str(PEOPLE).splitlines()
    assert lines[2].split() == ["income", "from", "-1000", "to", "100000,", "or", "missing", "2"]
    assert lines[-1].split() == ["ill", "2", "values:", "no,", "yes", "target"]


AGE = "[columns.age]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the schema has no columns: add it"),
        ("columns = 3", "columns must be a table"),
        ("[columns]", "at least one column"),
        ("[columns]\nage = 3", "column 'age' must be a table with a type"),
        ("[colums.age]\ntype = 'numeric'", "unknown key 'colums'; did you mean 'columns'. It may have columns, target"),
        (AGE + "low = 1", "column 'age': type must be 'numeric', 'category' or 'unbounded', and there is none"),
        (AGE + "type = 'numric'", "got 'numric'; did you mean 'numeric'"),
        (AGE + "type = 'numeric'\nlow = 1", "column 'age' has no high: add it"),
        (AGE + "type = 'numeric'\nlow = 1\nhgih = 2", "column 'age' has an unknown key 'hgih'; did you mean 'high'"),
        (AGE + "type = 'numeric'\nlow = 2\nhigh = 1", "column 'age': low must be below high"),
        (AGE + "type = 'numeric'\nlow = '1'\nhigh = 2", "column 'age': low must be a number, got '1'"),
        (AGE + "type = 'numeric'\nlow = nan\nhigh = 2", "column 'age': low must be finite"),
        (AGE + "type = 'numeric'\nlow = -1.7e308\nhigh = 1.7e308", "high - low finite"),
        (AGE + "type = 'numeric'\nlow = 0\nhigh = 2\nmissing = 1", "missing must be True or False"),
        (AGE + "type = 'category'\nvalues = 'abc'", "values must be a list"),
        (AGE + "type = 'category'\nvalues = ['a']", "values must be 2 or more, .* leave the column out"),
        (AGE + "type = 'category'\nvalues = ['a', 1]", "all text or all numbers"),
        (AGE + "type = 'category'\nvalues = ['1', '01']", "'1' and '01' are the same"),
        (AGE + "type = 'category'\nvalues = ['a', ' a']", "are the same"),
        (AGE + "type = 'category'\nvalues = ['a', ' ']", "must not be blank"),
        (AGE + "type = 'category'\nvalues = ['a', 'NaN']", "declare missing=True"),
        (AGE + "type = 'category'\nvalues = [1, 9007199254740993]", "declare it as text"),
        (
            "target = 'agee'\n" + AGE + "type = 'numeric'\nlow = 0\nhigh = 1",
            "target 'agee' is not .* did you mean 'age'",
        ),
        ("target = 'age'\n" + AGE + "type = 'numeric'\nlow = 0\nhigh = 1", "at least one column beside the target"),
        (AGE + "type = \n", "the schema is not valid TOML: .*line 2"),
    ],
)
def test_a_wrong_schema_is_refused_with_a_remedy(text, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        Schema.from_toml(text)
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises((ValueError, TypeError), match=f"schema.toml: .*{message}"):
        Schema.read(tmp_path / "schema.toml")


def test_more_that_is_refused(tmp_path):
    for make, message in (
        (lambda: Schema([("a", Numeric(0, 1))]), "columns must be a dict"),
        (lambda: Schema({"a": (0, 1)}), "must be Numeric, Category or Unbounded"),
        (lambda: Schema({1: Numeric(0, 1)}), "name must be text, got 1"),
        (lambda: Schema({"a": Numeric(0, 1), " a": Numeric(0, 1)}), "different names"),
        (lambda: Schema({"a": Category(["b", "c", "d"]), "a=b": Numeric(0, 1)}), "two features .* 'a=b'"),
        (lambda: Schema({"\ud800": Numeric(0, 1)}), "Unicode"),
        (lambda: PEOPLE.with_target("income"), "must not have missing=True: .* middle of the range"),
        (lambda: PEOPLE.with_target("size"), "must not have missing=True: .* first class"),
        (lambda: PEOPLE.with_target(None).encode_target(SOME), "declares no target"),
        (lambda: Category({"a", "b"}), "values must be a list, since their order counts"),
        (lambda: Schema.read(tmp_path / "none.toml"), "draft it with epsteps schema draft"),
    ):
        with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
            make()


# --- files ---------------------------------------------------------------------------------------------------------

fields = st.one_of(
    st.text(max_size=5), st.sampled_from(['"', ',"', '"",', "a\nb", "\r\n", ";", "\t", "\x00", "1.5", "é"])
)
lines = st.lists(st.tuples(fields, fields, fields), min_size=1, max_size=6)


def without_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert list(one) == list(other)
    for name in one:
        assert one[name].dtype == other[name].dtype
        np.testing.assert_array_equal(one[name], other[name])


def result(read):
    try:
        return read()
    except ValueError as error:
        return str(error)


@settings(suppress_health_check=list(HealthCheck), max_examples=100)
@given(lines, st.sampled_from(",;\t"), st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["utf-8", "utf-8-sig"]))
def test_csv_files_come_back_by_either_reader(tmp_path_factory, rows, delimiter, ending, encoding):
    rows = [tuple(cell.encode(errors="ignore").decode() for cell in row) for row in rows]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=ending, quoting=csv.QUOTE_ALL).writerows(
        [("a", "b", "c"), *rows]
    )
    path = tmp_path_factory.getbasetemp() / "written.csv"
    path.write_bytes(text.getvalue().encode(encoding))
    by_arrow = read_columns(path, ["c", "a"], delimiter=delimiter)
    assert by_arrow["c"].tolist() == [row[2] for row in rows]
    assert by_arrow["a"].tolist() == [row[0] for row in rows]
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_pyarrow(monkeypatch)
        same(by_arrow, read_columns(path, ["c", "a"], delimiter=delimiter))


@settings(suppress_health_check=list(HealthCheck), max_examples=200)
@given(
    st.lists(st.sampled_from(['"', ",", "\n", "\r", "a", " ", "1", "b,", "1,2\n", "\xff"]), max_size=25).map("".join)
)
def test_either_reader_reads_any_text_the_same_or_refuses_it_with_the_same_words(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"a,b\n" + text.encode("latin-1"))

    def read():
        return read_columns(path, numeric=["b"])

    by_arrow = result(read)
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_pyarrow(monkeypatch)
        by_csv = result(read)
    if isinstance(by_csv, str):
        assert by_csv == by_arrow
    else:
        same(by_csv, by_arrow)


@pytest.mark.parametrize("arrow", [True, False])
def test_large_files_and_long_fields(arrow, tmp_path, monkeypatch):
    """More rows than are read at once, in several blocks, and a field longer than either reader likes."""
    if not arrow:
        without_pyarrow(monkeypatch)
    n = 70_000  # more than 2**16, and of more than 2**22 bytes
    numbers = np.random.default_rng(0).integers(0, 10**6, n)
    path = tmp_path / "large.csv"
    path.write_text("x,t\n" + "".join(f'{x},"some\n\n text {x % 10} {"." * 40}"\n\n' for x in numbers))
    table = read_columns(path, numeric=["x"])
    np.testing.assert_array_equal(table["x"], numbers)
    assert table["t"][7] == f"some\n\n text {numbers[7] % 10} {'.' * 40}"
    with path.open("a") as file:
        file.write("1," + "y" * 5_000_000)
    long = read_columns(path, numeric=["x"])
    np.testing.assert_array_equal(long["x"], [*numbers, 1])
    assert len(long["t"][-1]) == 5_000_000


@pytest.mark.parametrize("arrow", [True, False])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: its first line must name the columns"),
        ("\n\n", "is empty"),
        ("age,job\n", "has no rows"),
        ("age,job\n\n\n", "has no rows"),
        ("Age,job\n1,a\n", "people.csv has no column 'age'; did you mean 'Age'"),
        ("age,job,age\n1,a,2\n", "has 2 columns 'age'"),
        ("age;job\n1;a\n", "has one column 'age;job': declare that the delimiter is ';'"),
        ("age,job\n1,a\n\n2,b,c\n", "row 2: 3 fields, but the header names 2 columns"),
        ("age,job\n1,a\n2\n", "row 2: 1 fields, but the header names 2 columns"),
    ],
)
def test_broken_files_are_refused_with_a_remedy(arrow, content, message, tmp_path, monkeypatch):
    if not arrow:
        without_pyarrow(monkeypatch)
    schema = Schema({"age": Numeric(0, 1), "job": Category(["a", "b"])})
    (tmp_path / "people.csv").write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        schema.load(tmp_path / "people.csv")
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "empty").mkdir()
    for name, error, message in (
        ("people.xlsx", ValueError, "must be .csv or .parquet"),
        ("none.csv", FileNotFoundError, "there is no file"),
        ("none.parquet", FileNotFoundError, "there is no file"),
        ("broken.parquet", ValueError, "not a whole Parquet file"),
        ("empty", FileNotFoundError, "no .parquet file in"),
    ):
        with pytest.raises(error, match=message):
            PEOPLE.load(tmp_path / name)
    with pytest.raises(ValueError, match="delimiter must be one of"):
        PEOPLE.load(tmp_path / "people.csv", delimiter="|")


def test_folders_of_parquet_are_read_in_the_order_of_their_names(tmp_path):
    table = people(10)
    whole = pa.table(table)
    pq.write_table(whole[4:], tmp_path / "b.parquet")
    # in this file ages are texts: that changes nothing for those in the other
    pq.write_table(whole[:4].set_column(0, "age", pa.array(map(str, table["age"][:4]))), tmp_path / "a.parquet")
    np.testing.assert_array_equal(PEOPLE.encode(PEOPLE.load(tmp_path)), PEOPLE.encode(table))


def test_a_file_of_another_type_changes_nothing_for_the_others(tmp_path):
    for name, ages in (("a", [20.0]), ("b", [datetime.datetime(2020, 1, 1)]), ("c", [True])):
        pq.write_table(pa.table({"age": ages}), tmp_path / f"{name}.parquet")
    schema = Schema({"age": Numeric(0, 100, missing=True)})
    np.testing.assert_array_equal(schema.encode(schema.load(tmp_path)), [[0.2, 0], [0, 1], [0.01, 0]])


def test_features_are_read_without_the_target(tmp_path):
    table = people(5)
    pd.DataFrame(table).drop(columns="ill").to_csv(tmp_path / "new.csv")
    np.testing.assert_array_equal(PEOPLE.encode(PEOPLE.load_features(tmp_path / "new.csv")), PEOPLE.encode(people(5)))
    with pytest.raises(ValueError, match="has no column 'ill'"):
        PEOPLE.load(tmp_path / "new.csv")


# --- drafts, and the data holder's look ----------------------------------------------------------------------------


def drafted(tmp_path):
    table = people(300) | {"id": [f"person {i}" for i in range(300)], "same": ["x"] * 300}
    table["income"] = [None, "?", *table["income"][2:]]
    pd.DataFrame(table).to_csv(tmp_path / "people.csv")
    return tmp_path / "people.csv", table


def test_a_draft_is_refused_until_a_person_has_accepted_it(tmp_path):
    path, table = drafted(tmp_path)
    text = draft(path, target="ill")
    assert "READ FROM THE DATA" in text
    with pytest.raises(ValueError, match=r"drafted from the data .* remove the line drafted_from_data"):
        Schema.from_toml(text)
    for broken in ("1", "'no'", "[]"):
        with pytest.raises(ValueError, match="drafted from the data"):
            Schema.from_toml(text.replace("drafted_from_data = true", f"drafted_from_data = {broken}"))
    accepted = Schema.from_toml(text.replace("drafted_from_data = true", "drafted_from_data = false"))
    assert accepted == Schema.from_toml(text.replace("drafted_from_data = true\n", ""))
    incomes = table["income"][2:]
    assert accepted.columns == {
        "age": Numeric(min(table["age"]), max(table["age"])),
        "income": Numeric(min(incomes), max(incomes), missing=True),
        "job": Category(JOBS),
        "size": Numeric(1, 40),
        "member": Category([False, True]),
        "ill": Category(["no", "yes"]),
    }
    assert "values = [false, true]" in text
    assert accepted.target == "ill"
    assert "id] left out: all its values are different" in text
    assert "same] left out: it has fewer than two" in text


def drafted_line(column, name="x"):
    """Return what a draft says of a column first."""
    lines = draft({name: column, "other": [0, 1] * (len(column) // 2)}).split("\n\n")
    return next(line for line in lines if f"[columns.{name}]" in line)


@pytest.mark.parametrize(
    ("column", "name", "is_left_out"),
    [
        ([f"P{i}" for i in range(40)], "x", True),
        (list(range(1000, 1040)), "x", True),
        ([str(i) for i in range(40)], "x", True),
        ([None, *range(39)], "x", True),
        ([i + 0.5 for i in range(40)], "x", False),  # measured
        ([*range(39), 0], "x", False),
        (list(range(6)), "x", False),  # too few to tell
        (list(range(6)), "patient_id", True),
        (list(range(6)), "ID", True),
        (list(range(6)), "humid", False),
    ],
)
def test_a_draft_leaves_out_what_tells_rows_apart(column, name, is_left_out):
    line = drafted_line(column, name)
    assert line.startswith("# ") == is_left_out
    assert ("all its values are different" in line) == is_left_out
    if is_left_out:  # of the target a person has said what it is
        table = {name: column, "other": [0, 1] * (len(column) // 2)}
        assert f"# [columns.{name}]" not in draft(table, target=name) or isinstance(column[0], str)


def test_a_draft_names_decimal_commas():
    numbers = [f"{i},5" for i in range(40)]
    for column in (numbers, [f"1.{i:03},25" for i in range(40)], ["1,5"] * 20 + ["2,5"] * 20):
        assert "its numbers have decimal commas" in drafted_line(column)
    for column in (["1.5"] * 20 + ["2.5"] * 20, ["a,5"] * 20 + ["b,6"] * 20, [str(i % 7) for i in range(40)]):
        assert "decimal commas" not in drafted_line(column)


@pytest.mark.parametrize("arrow", [True, False])
def test_files_in_another_encoding_are_named_with_the_line_or_read_as_declared(arrow, tmp_path, monkeypatch):
    if not arrow:
        without_pyarrow(monkeypatch)
    path, text = tmp_path / "people.csv", "age,town\n1,Bern\n2,Zürich\n3,Genève – €\n"
    path.write_bytes(text.encode("cp1252"))
    with pytest.raises(
        ValueError, match=r"people\.csv, line 3: this is no UTF-8 text: .* declare encoding='latin-1'"
    ) as why:
        read_columns(path)
    assert "rich" not in str(why.value)
    declared = read_columns(path, encoding="latin-1")
    path.write_text(text, encoding="utf-8")
    usual = read_columns(path)
    path.write_text(text, encoding="utf-8-sig")
    for found in (declared, read_columns(path)):
        same(usual, found)
    assert usual["town"][1] == "Zürich"
    path.write_text(text, encoding="utf-16")
    with pytest.raises(ValueError, match="is UTF-16 text: save it as UTF-8"):
        read_columns(path)
    path.write_bytes(b"age,town\n1,\x81\n")
    with pytest.raises(ValueError, match="line 2: this is no LATIN-1 text: save it as UTF-8"):
        read_columns(path, encoding="latin-1")
    with pytest.raises(ValueError, match="encoding must be one of 'utf-8', 'latin-1', got 'ebcdic'"):
        read_columns(path, encoding="ebcdic")


@pytest.mark.parametrize("arrow", [True, False])
@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (['1,"a', "2,b", "3,c"], 2),
        (["1,a", "2,b", '3,"c'], 4),
        (['1,"a', 'b"', '2,"c', "3,d"], 4),
        (['1,5" pipe', "2,b"], None),
        (['1,"a ""quoted"" word"', "2,b"], None),
    ],
)
def test_a_quote_that_is_never_closed_is_named_with_its_line(arrow, rows, line, tmp_path, monkeypatch):
    if not arrow:
        without_pyarrow(monkeypatch)
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["x,t", *rows]) + "\n")
    if line is None:
        assert len(read_columns(path)["x"]) == 2
        return
    with pytest.raises(ValueError, match=f"people\\.csv, line {line}: a quote is opened here and never closed"):
        read_columns(path)


def test_drafts_of_frames_and_files_are_the_same(tmp_path):
    path, table = drafted(tmp_path)
    assert draft(pd.DataFrame(table)) == draft(pl.read_csv(path, infer_schema_length=0).drop(""))
    with pytest.raises(ValueError, match="no column 'il' for the target; did you mean 'ill'"):
        draft(path, target="il")


def test_the_data_holder_sees_what_is_outside():
    found = PEOPLE.check(SOME)
    assert found.rows == 4
    counts = {column.name: (column.empty, column.unknown, column.below, column.above) for column in found.columns}
    assert counts == {
        "age": (1, 0, 0, 1),
        "income": (1, 0, 1, 0),
        "job": (1, 1, 0, 0),
        "size": (1, 1, 0, 0),
        "member": (1, 0, 0, 0),
        "ill": (1, 1, 0, 0),
    }
    assert found.columns[2].examples == ("pope",)
    assert found.any
    assert "job: 1 empty, 1 unknown ('pope')" in str(found)
    clean = PEOPLE.check(people())
    assert not clean.any
    assert "age: all as declared" in str(clean)


# --- scikit-learn --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame])
def test_a_schema_is_a_transformer_that_learns_nothing(make):
    table = make(people())
    assert PEOPLE.fit(None) is PEOPLE
    np.testing.assert_array_equal(PEOPLE.transform(table), PEOPLE.encode(table))
    np.testing.assert_array_equal(clone(PEOPLE).fit_transform(table), PEOPLE.encode(table))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(PEOPLE)).fit(table).transform(table), PEOPLE.encode(table))
    assert clone(PEOPLE) == PEOPLE
    assert list(PEOPLE.get_feature_names_out()) == list(PEOPLE.names)
    assert list(PEOPLE.feature_names_in_) == list(PEOPLE.features)
    assert not get_tags(PEOPLE).requires_fit
    with pytest.raises(TypeError, match="does not change"):
        PEOPLE.set_params(target=None)


def test_a_schema_sets_its_output():
    frame = pd.DataFrame(people(), index=[f"row {i}" for i in range(60)])
    schema = clone(PEOPLE)
    as_pandas = schema.set_output(transform="pandas").fit_transform(frame)
    expected = pd.DataFrame(PEOPLE.encode(frame), index=frame.index, columns=list(PEOPLE.names))
    pd.testing.assert_frame_equal(as_pandas, expected)
    pd.testing.assert_frame_equal(clone(schema).transform(frame), expected)
    as_polars = schema.set_output(transform="polars").fit_transform(pl.DataFrame(people()))
    assert as_polars.columns == list(PEOPLE.names)
    np.testing.assert_array_equal(as_polars.to_numpy(), PEOPLE.encode(frame))
    with config_context(transform_output="pandas"):
        pd.testing.assert_frame_equal(PEOPLE.transform(frame), expected)
    assert isinstance(PEOPLE.transform(frame), np.ndarray)
    with pytest.raises(ValueError, match="transform must be"):
        schema.set_output(transform="excel")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_a_schema_stands_in_pipelines(make):
    table = make(people(200))
    y = PEOPLE.encode_target(table)
    pipeline = make_pipeline(PEOPLE, LogisticRegression())
    by_hand = LogisticRegression().fit(PEOPLE.encode(table), y)
    np.testing.assert_array_equal(pipeline.fit(table, y).predict(table), by_hand.predict(PEOPLE.encode(table)))
    assert list(pipeline[:-1].get_feature_names_out()) == list(PEOPLE.names)
    expected = cross_val_score(LogisticRegression(), PEOPLE.encode(table), y)
    np.testing.assert_array_equal(cross_val_score(pipeline, table, y), expected)
    assert "Schema" in repr(pipeline)
    assert list(clone(pipeline).set_output(transform="pandas")[:-1].fit_transform(table).columns) == list(PEOPLE.names)


# --- transforms and interactions -------------------------------------------------------------------------------------

WORKED = Schema(
    {
        "age": Numeric(0, 100, bins=[18, 30, 65]),
        "income": Numeric(0, 1e6, missing=True, transform="log1p"),
        "hours": Numeric(0, 99, clip=(10, 60)),
        "sex": Category(["f", "m"]),
        "job": Category(["clerk", "nurse", "smith"], missing=True),
        "city": Numeric(-0.5, 5, bins=[1], missing=True),
        "y": Category([0, 1]),
    },
    target="y",
    interactions=[("hours", "sex"), ("income", "job"), ("age", "job"), ("hours", "hours"), ("income", "city")],
)
CELLS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(
        ["", "?", "f", "m", "clerk", "nurse", None, True, 17.999, 18, 30, 65, 1e6, -1, -2, 0, 99, 1e308, "12"]
    ),
    st.text(max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=6, max_size=6), min_size=1, max_size=4))
def test_transformed_records_lie_within_the_declared_set_whatever_their_cells(rows):
    table = {name: [row[place] for row in rows] for place, name in enumerate(WORKED.features)}
    features = WORKED.encode(table)
    assert features.shape == (len(rows), WORKED.d)
    np.testing.assert_array_equal(WORKED.domain().project(features), features)  # the projection has nothing to do
    for start, stop in WORKED.domain().one_hot:
        assert np.all(np.count_nonzero(features[:, start:stop], axis=1) <= 1)
    for place in range(len(rows)):  # and each record speaks for itself alone
        alone = WORKED.encode({name: [column[place]] for name, column in table.items()})
        np.testing.assert_array_equal(alone[0], features[place])


def test_transforms_are_what_their_names_say():
    values = np.array([0.0, 17.5, 18.0, 29.0, 64.0, 65.0, 200.0, np.nan])
    bins = Numeric(0, 100, bins=[18, 30, 65], missing=True)
    assert bins.encode(values).argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 3, 3, 4]
    assert Numeric(0, 100, bins=[18, 30, 65]).encode(values).argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 3, 3, 0]
    assert bins.names("age") == ["age < 18", "18 <= age < 30", "30 <= age < 65", "age >= 65", "age is missing"]
    assert Numeric(0, 9, bins=[5]).encode(values)[:3, 0].tolist() == [0.0, 1.0, 1.0]
    logarithm = Numeric(1, 99, transform="log1p")
    expected = np.log((1 + np.clip(values[:-1], 1, 99)) / 2) / np.log(50)
    np.testing.assert_allclose(logarithm.encode(values)[:-1, 0], expected, atol=1e-15)
    assert logarithm.spans == pytest.approx([np.log(50)])
    assert logarithm.names("pay") == ["log1p(pay)"]
    clipped = Numeric(0, 100, clip=[20, 60])
    np.testing.assert_allclose(clipped.encode(values)[:-1, 0], (np.clip(values[:-1], 20, 60) - 20) / 40)
    assert clipped.check("age", values).above == 1


def test_interactions_are_products_of_features():
    table = {"income": [np.e - 1, None], "job": ["nurse", "nurse"], "hours": [35, 60], "sex": ["m", "f"]}
    table |= {"age": [20, 70], "city": [0, 3]}
    features = dict(zip(WORKED.names, WORKED.encode(table).T, strict=True))
    unit = 1 / np.log1p(1e6)
    assert features["log1p(income) * job=nurse"] == pytest.approx([unit, 0.0])
    assert features["income is missing * job=nurse"].tolist() == [0.0, 1.0]
    assert features["hours * sex=m"].tolist() == [0.5, 0.0]
    assert features["hours * hours"].tolist() == [0.25, 1.0]
    assert features["18 <= age < 30 * job=nurse"].tolist() == [1.0, 0.0]
    assert len(WORKED.spans) == WORKED.d
    assert "hours * sex" in str(WORKED)
    assert WORKED.categories == WORKED.domain().categories


def test_transforms_and_interactions_are_read_from_what_was_written():
    assert Schema.from_toml(WORKED.to_toml()) == WORKED
    assert Schema.from_dict(json.loads(json.dumps(WORKED.to_dict()))) == WORKED
    assert '[[interactions]]\nof = ["hours", "sex"]' in WORKED.to_toml()
    assert eval(repr(WORKED), {"Schema": Schema, "Numeric": Numeric, "Category": Category}) == WORKED
    assert WORKED.only(list(WORKED.features), "y") == WORKED  # as the two parties of a service take it
    narrow = WORKED.only(["age", "hours"], "sex")
    assert narrow.interactions == (("hours", "hours"),)
    assert list(narrow.columns) == ["age", "hours", "sex"]
    for name in ("target", "_columns"):
        with pytest.raises(dataclasses.FrozenInstanceError, match="does not change"):
            setattr(narrow, name, None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Numeric(-1, 5, transform="log1p"), "low end is above -1"),
        (lambda: Numeric(0, 5, transform="sqrt"), "transform must be 'log1p'"),
        (lambda: Numeric(0, 5, clip=(1, 9)), "clip must be a pair"),
        (lambda: Numeric(0, 5, clip=3), "clip must be a pair"),
        (lambda: Numeric(0, 5, bins=[3, 2]), "increasing order"),
        (lambda: Numeric(0, 5, bins=[0, 2]), "increasing order"),
        (lambda: Numeric(0, 5, bins=[2], transform="log1p"), "bins go without"),
        (lambda: WORKED.with_target("hours"), "cannot hold the target|must not have a transform"),
        (lambda: Schema({"a": Numeric(0, 1, clip=(0, 0.5)), "b": Numeric(0, 1)}, "a"), "must not have a transform"),
        (lambda: Schema({"a": Numeric(0, 1)}, interactions=[("a", "c")]), "no column"),
        (lambda: Schema({"a": Numeric(0, 1)}, interactions=["aa"]), "pair of two"),
        (lambda: Schema({"a": Category([0, 1])}, interactions=[("a", "a")]), "tells nothing"),
        (lambda: Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}, None, [("a", "b"), ("b", "a")]), "twice"),
        (lambda: Schema.from_toml("[columns.a]\ntype = 'numeric'\nlow = 0\nhigh = 1\nbin = [0.5]"), "unknown key"),
    ],
)
def test_wrong_transforms_and_interactions_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


# --- the command line ----------------------------------------------------------------------------------------------


def call(*arguments):
    return CliRunner().invoke(command.schema, [str(argument) for argument in arguments])


def test_a_draft_is_written_once_and_loads_when_edited(tmp_path):
    path, _ = drafted(tmp_path)
    out = tmp_path / "schema.toml"
    written = call("draft", path, "--target", "ill", "--out", out)
    assert written.exit_code == 0
    assert "READ FROM THE DATA" in written.output
    assert out.read_text() == draft(path, target="ill")
    assert call("draft", path, "--target", "ill").output.strip() == out.read_text().strip()
    assert "drafted from the data" in call("show", out).output
    refused = call("draft", path, "--out", out)
    assert (refused.exit_code, "exists, and was left" in refused.output) == (1, True)
    out.write_text(out.read_text().replace("drafted_from_data = true", ""))
    shown = call("show", out)
    assert shown.exit_code == 0
    assert "8 features from 5 columns." in shown.output


@pytest.fixture
def files(tmp_path):
    pd.DataFrame(SOME).to_csv(tmp_path / "people.csv", sep=";")
    (tmp_path / "schema.toml").write_text(PEOPLE.to_toml())
    return tmp_path / "people.csv", "--schema", tmp_path / "schema.toml", "--delimiter", "semicolon"


def test_the_data_holders_look_is_shown_on_a_terminal_only(files, monkeypatch):
    hidden = call("check", *files)
    assert hidden.exit_code == 2
    assert "on a terminal only" in hidden.output
    assert "pope" not in hidden.output
    monkeypatch.setattr(command, "on_terminal", lambda: True)
    shown = call("check", *files)
    assert shown.exit_code == 0
    line = next(line for line in shown.output.splitlines() if "job" in line)
    assert [cell.strip() for cell in line.strip("│").split("│")][2:] == ["1", "1", "", "", "pope"]


def test_wrong_arguments_are_one_line(files, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "on_terminal", lambda: True)
    data, _, schema, *_ = files
    (tmp_path / "empty.csv").write_text("")
    for arguments, code, message in (
        (("check", data, "--schema", schema), 2, "add --delimiter semicolon"),
        (("check", tmp_path / "none.csv", "--schema", schema), 1, "there is no file"),
        (("check", data, "--schema", tmp_path / "none.toml"), 1, "there is no schema"),
        (("check", tmp_path / "empty.csv", "--schema", schema), 2, "is empty"),
        (("draft", tmp_path / "empty.csv"), 2, "is empty"),
        (("draft", data, "--delimiter", "semicolon", "--target", "il"), 2, "did you mean 'ill'?"),
    ):
        result = call(*arguments)
        assert result.exit_code == code
        assert message in result.output
        assert len(result.output.strip().splitlines()) == 1
