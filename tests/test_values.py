"""How values enter: any cell counts as a number or as missing, in silence; and nothing is written to."""

import csv
import datetime
import warnings
from collections import UserList
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from conftest import records, small_problem
from scipy import sparse

import epsteps as es
from epsteps.data import values

SECRET = "S3CRET"
N, D = 12, 3


class Hostile:
    """An object all of whose methods raise, with what it holds in the error."""

    def _raise(self, *_):
        raise RuntimeError(SECRET)

    __float__ = __int__ = __index__ = __complex__ = __str__ = __repr__ = __hash__ = __array__ = __len__ = _raise
    __eq__ = __ne__ = __lt__ = __gt__ = __bool__ = __add__ = __iter__ = __getitem__ = _raise


class HostileClass:
    """An object that does not even tell its class."""

    @property
    def __class__(self):
        raise RuntimeError(SECRET)


class HostileFloat(float):
    """A number that is none."""

    def __float__(self):
        raise RuntimeError(SECRET)


class HostileText(str):
    """A text that is none."""

    __slots__ = ()

    def __float__(self):
        raise RuntimeError(SECRET)

    strip = lower = __str__ = __float__


class Warns(Fraction):
    """A number that warns when it is read."""

    def __float__(self):
        warnings.warn(SECRET, stacklevel=1)
        return 0.25


# A cell, and the number that it counts as.
ODD = {
    "text": (SECRET, np.nan),
    "number in text": ("0.25", 0.25),
    "blank": (" ", np.nan),
    "word": ("true", 1.0),
    "bytes": (SECRET.encode(), np.nan),
    "bytes that are no text": (b"\xff\xfe" + SECRET.encode(), np.nan),
    "surrogate": (SECRET + "\udcff", np.nan),
    "none": (None, np.nan),
    "nan": (float("nan"), np.nan),
    "infinity": (float("-inf"), -np.inf),
    "boolean": (True, 1.0),
    "huge integer": (10**400, np.inf),
    "huge negative integer": (-(10**5000), -np.inf),
    "decimal": (Decimal("0.25"), 0.25),
    "huge decimal": (Decimal("-1e400"), -np.inf),
    "signalling nan": (Decimal("sNaN"), np.nan),
    "fraction": (Fraction(1, 4), 0.25),
    "huge fraction": (Fraction(10**400, 3), np.inf),
    "complex": (1 + 2j, np.nan),
    "complex that is real": (0.25 + 0j, 0.25),
    "long double": (np.longdouble("1e400"), np.inf),
    "float16": (np.float16(0.25), 0.25),
    "numpy integer": (np.int8(1), 1.0),
    "numpy boolean": (np.bool_(True), 1.0),
    "numpy text": (np.str_(SECRET), np.nan),
    "time": (np.datetime64("2024-01-01"), np.nan),
    "no time": (np.datetime64("NaT"), np.nan),
    "duration": (np.timedelta64(3, "s"), np.nan),
    "date": (datetime.date(2024, 1, 1), np.nan),
    "void": (np.void(SECRET.encode()), np.nan),
    "list": ([SECRET, 1], np.nan),
    "tuple": ((1.0,), np.nan),
    "dict": ({SECRET: SECRET}, np.nan),
    "array": (np.ones((2, 2)), np.nan),
    "array of nothing": (np.array(0.25), np.nan),
    "function": (print, np.nan),
    "hostile": (Hostile(), np.nan),
    "hostile class": (HostileClass(), np.nan),
    "hostile float": (HostileFloat(0.25), np.nan),
    "hostile text": (HostileText(SECRET), np.nan),
    "warning": (Warns(1, 4), 0.25),
}
try:
    import pandas as pd

    ODD |= {"NA": (pd.NA, np.nan), "NaT": (pd.NaT, np.nan), "timestamp": (pd.Timestamp("2024-01-01"), np.nan)}
except ImportError:
    pd = None


def object_array(table):
    """Return rows as an array of objects, whatever the cells are."""
    found = np.empty((len(table), len(table[0])), dtype=object)
    for i, row in enumerate(table):
        for j, cell in enumerate(row):
            found[i, j] = cell
    return found


def frame_of(table):
    return pd.DataFrame(
        {name: pd.Series(column, dtype=object) for name, column in zip("abc", columns(table), strict=True)}
    )


def polars_of(table):
    pl = pytest.importorskip("polars")
    return pl.DataFrame(
        [pl.Series(name, column, dtype=pl.Object) for name, column in zip("abc", columns(table), strict=True)]
    )


def columns(table):
    return [[row[j] for row in table] for j in range(len(table[0]))]


CONTAINERS = {
    "list": lambda table: table,
    "user list": lambda table: UserList(map(tuple, table)),
    "objects": object_array,
    "pandas": frame_of,
    "polars": polars_of,
}


def ordinary():
    """Return rows in [0, 1], in multiples of 1/8, and labels 0 and 1."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 9, (N, D)) / 8, rng.integers(0, 2, N)


def with_cell(cell, place):
    X, _ = ordinary()
    table = X.tolist()
    table[place[0]][place[1]] = cell
    return table


def column_with(cell, place):
    cells = [float(label) for label in ordinary()[1]]
    cells[place] = cell
    return cells


def as_objects(cells):
    return object_array([[cell] for cell in cells])[:, 0]


@pytest.fixture(autouse=True)
def silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


PROBLEM = es.Problem(es.Logistic((0, 1)), es.Box(0, 1), ridge=0.1, n=N, d=D, intercept=True)
NUMBERS = es.Problem(es.Squared(1.0), es.Box(0, 1), ridge=0.1, n=N, d=D, intercept=True)
TEXTS = es.Problem(es.Logistic(("no", "yes")), es.Box(0, 1), ridge=0.1, n=N, d=D, intercept=True)
PLACES = ((0, 0), (N - 1, D - 1))


def blocks(problem, X, y):
    return [part for block in es.Rows(problem, X, y).blocks() for part in block]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", ODD)
def test_a_cell_counts_as_its_number_or_as_missing(name, container):
    """In the features of Rows and ``check``, and in a schema's columns."""
    if (container == "pandas" and pd is None) or (container, name) == ("polars", "hostile class"):
        pytest.skip("there is no such table")
    cell, number = ODD[name]
    y = ordinary()[1]
    schema = es.Schema({column: es.Numeric(0, 1, missing=True) for column in "abc"})
    for place in PLACES:
        table, typed = CONTAINERS[container](with_cell(cell, place)), np.array(with_cell(number, place))
        assert_same(blocks(PROBLEM, table, y), blocks(PROBLEM, typed, y))
        assert es.check(PROBLEM, table, y) == es.check(PROBLEM, typed, y)
        np.testing.assert_array_equal(schema.encode(table), schema.encode(typed))
        assert schema.check(table).rows == N


@pytest.mark.parametrize("name", ODD)
def test_a_target_counts_as_its_number_or_as_missing(name):
    cell, number = ODD[name]
    X, _ = ordinary()
    text = str.__str__(cell) if type(cell) in (str, np.str_, HostileText) else ""
    for place in (0, N - 1):
        cells, typed = column_with(cell, place), np.array(column_with(number, place))
        labels = ["yes" if value == 1 else "no" for value in ordinary()[1]]
        labels[place] = cell
        named = np.array([text if i == place else label for i, label in enumerate(labels)])
        for make in (list, tuple, as_objects):
            assert_same(blocks(PROBLEM, X, make(cells)), blocks(PROBLEM, X, typed))
            assert_same(blocks(NUMBERS, X, make(cells)), blocks(NUMBERS, X, typed))
            assert_same(blocks(TEXTS, X, make(labels)), blocks(TEXTS, X, named))
            assert es.check(NUMBERS, X, make(cells)) == es.check(NUMBERS, X, typed)
        schema = es.Schema({"a": es.Numeric(0, 1), "y": es.Category([0, 1])}, target="y")
        np.testing.assert_array_equal(
            schema.encode_target({"y": cells}), [1 if value == 1 else 0 for value in typed.tolist()]
        )


@cache
def estimators():
    pytest.importorskip("sklearn")
    options = {"bounds": (0, 1), "random_state": 3, "method": "output"}
    return {
        "logistic": es.PrivateLogisticRegression(**options, classes=(0, 1), anyway=True),
        "huber": es.PrivateHuberRegressor(**options, target_bounds=(-1, 1), anyway=True),
        "text": es.PrivateLogisticRegression(**options, classes=("no", "yes"), anyway=True),
    }


def fresh(name):
    from sklearn.base import clone

    return clone(estimators()[name])


@cache
def fitted(name, framed=False):
    X, y = ordinary()
    return fresh(name).fit(frame_of(X.tolist()) if framed else X, y)


def told(model, X, y):
    """Return all numbers that a fitted model tells of these records."""
    found = [model.predict(X), np.array(model.score(X, y)), np.array(str(model.check(X, y)))]
    for name in ("predict_proba", "decision_function"):
        if hasattr(model, name):
            found.append(getattr(model, name)(X))
    return found


def evaluated(model, X, y):
    scores = es.unprotected_scores(model, X, y)
    return [np.array([*scores.scores.values(), scores.targets_outside])]


def fit(model, X, y):
    return [model.fit(X, y).path_]


def search(X, y):
    model = fresh("logistic").set_params(random_state=None)
    found = es.PrivateSearch(model, {"ridge": [0.1]}, trials=1, random_state=1).fit(X, y)
    return [found.best_score_, found.best_estimator_.path_, found.predict(X), found.score(X, y)]


@pytest.mark.parametrize("container", ["list", "objects", "pandas"])
@pytest.mark.parametrize("name", ODD)
def test_fitted_models_take_any_cell(name, container):
    if container == "pandas" and pd is None:
        pytest.skip("needs pandas")
    cell, number = ODD[name]
    y = ordinary()[1]
    for place in PLACES[len(name) % 2 :][:1]:
        table, typed = CONTAINERS[container](with_cell(cell, place)), np.array(with_cell(number, place))
        model = fitted("logistic", container == "pandas")
        assert_same(told(model, table, y), told(model, CONTAINERS[container](typed.tolist()), y))


@pytest.mark.parametrize("kind", ["logistic", "huber"])
@pytest.mark.parametrize("name", ODD)
def test_fitted_models_take_any_target(name, kind):
    cell, number = ODD[name]
    X, model = ordinary()[0], fitted(kind)
    for place in (0, N - 1)[len(name) % 2 :][:1]:
        cells, typed = column_with(cell, place), np.array(column_with(number, place))
        for make in (list, as_objects):
            assert_same(told(model, X, make(cells)), told(model, X, typed))


SERIES = {"list": list, "objects": as_objects, "pandas": lambda cells: pd.Series(cells, dtype=object)}


@pytest.mark.parametrize("container", SERIES)
@pytest.mark.parametrize("call", ["logistic", "huber", "evaluate", "search"])
def test_fits_take_any_cells(call, container):
    """A table of all odd cells, beside ordinary ones, as features and as targets: fits are those of their numbers."""
    pytest.importorskip("sklearn")
    if container == "pandas" and pd is None:
        pytest.skip("needs pandas")
    cells, numbers = ([pair[k] for pair in ODD.values()] for k in range(2))
    rows = [[(1.0, 0.5, cell)[(i + j) % 3] for j in range(D)] for i, cell in enumerate(cells)]
    typed = [[(1.0, 0.5, number)[(i + j) % 3] for j in range(D)] for i, number in enumerate(numbers)]
    labels = [0.0, 1.0] * 5
    make, of = CONTAINERS[container], SERIES[container]
    calls = {
        "logistic": lambda X, y: fit(fresh("logistic"), X, y),
        "huber": lambda X, y: fit(fresh("huber"), X, y),
        "evaluate": lambda X, y: (
            evaluated(fresh("huber").fit(X, y), X, y) + evaluated(fresh("logistic").fit(X, y), X, y)
        ),
        "search": search,
    }
    assert_same(
        calls[call](make(rows + typed[:10]), of(cells + labels)),
        calls[call](np.array(typed + typed[:10]), np.array(numbers + labels)),
    )


def test_text_labels_may_be_anything():
    pytest.importorskip("sklearn")
    cells = [cell for cell, _ in ODD.values()] + ["yes", "no"] * 5
    X = np.random.default_rng(0).uniform(0, 1, (len(cells), D))
    typed = np.array(["yes" if type(cell) is str and cell == "yes" else "no" for cell in cells])
    assert_same(fit(fresh("text"), X, cells), fit(fresh("text"), X, typed))
    assert fresh("text").fit(X, cells).check(X, cells).targets_outside == len(ODD)


def test_labels_are_never_texts_that_were_made_up():
    """What is no text equals no class, not even that of no characters."""
    problem = es.Problem(es.Logistic(("no", "")), es.Ball(1), ridge=0.1, n=3, d=1)
    np.testing.assert_array_equal(blocks(problem, np.ones((3, 1)), [None, "", 0])[1], [-1, 1, -1])


TEXT_CELLS = [SECRET, f'"{SECRET}', "1e400", "-1e400", "nan", "None", "", " ", "1_0", "٣", "\x00", "0x10", "ÿ" * 300]


@pytest.mark.parametrize("cell", TEXT_CELLS, ids=range(len(TEXT_CELLS)))
def test_cells_of_files_are_read_in_silence(tmp_path, cell):
    schema = es.Schema({"a": es.Numeric(0, 1), "b": es.Category(["x", "z"]), "y": es.Category([0, 1])}, target="y")
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "y"], [0.5, "x", 1], [cell, cell, cell], [0.25, "z", 0]])
    table = schema.load(path)
    np.testing.assert_array_equal(schema.encode(table)[[0, 2]], [[0.5, 0], [0.25, 1]])
    np.testing.assert_array_equal(schema.encode_target(table)[[0, 2]], [1, 0])


def arrow_text(cells):
    """Return a column of texts that may be none: pyarrow does not look."""
    pa = pytest.importorskip("pyarrow")
    return pa.Array.from_buffers(pa.string(), len(cells), pa.array(cells, type=pa.binary()).buffers())


def test_texts_of_files_that_are_no_unicode_are_unknown(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    bad = b"\xff\xfe" + SECRET.encode()
    texts = arrow_text([b"x", bad, b"z"])
    table = pa.table({"a": arrow_text([b"0.5", bad, b"0.25"]), "b": texts, "d": texts.dictionary_encode(), "y": texts})
    parquet.write_table(table, tmp_path / "t.parquet")
    kinds = {"a": es.Numeric(0, 1), "b": es.Category(["x", "z"]), "d": es.Category(["x", "z"], missing=True)}
    schema = es.Schema(kinds | {"y": es.Category(["x", "z"])}, target="y")
    for source in (schema.load(tmp_path / "t.parquet"), table):
        np.testing.assert_array_equal(schema.encode(source), [[0.5, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0.25, 1, 0, 1, 0]])
        assert schema.encode_target(source).tolist() == ["x", "x", "z"]
        assert schema.check(source).any
    parquet.write_table(pa.table({"u": [0.5, 0.25, 0.0], "y": texts}), tmp_path / "r.parquet")
    problem = es.Problem(es.Logistic(("x", "z")), es.Box(0, 1), ridge=0.1, n=3, d=1)
    assert_same([blocks(problem, tmp_path / "r.parquet", "y")[1]], [[-1, -1, 1]])


@pytest.mark.skipif(pd is None, reason="needs pandas")
def test_columns_of_frames_count_by_their_type():
    pa = pytest.importorskip("pyarrow")
    X = np.array([[0.5, 1, 0.25], [np.nan, 0, 0.75]])
    frames = [
        pd.DataFrame(
            {"a": pd.array([0.5, None], "Float64"), "b": [True, False], "c": pd.Series([0.25, 0.75], dtype="f4")}
        ),
        pd.DataFrame(
            {"a": pd.Series([0.5, None], dtype="category"), "b": [1, 0], "c": [Decimal("0.25"), Decimal("0.75")]}
        ),
        pa.table({"a": [0.5, None], "b": [True, False], "c": [Decimal("0.25"), Decimal("0.75")]}),
        pd.DataFrame(X).astype(pd.SparseDtype(float, np.nan)),
        pd.DataFrame(X).astype(pd.SparseDtype(float, 0)),
    ]
    for frame in frames:
        found = values.matrix(frame)
        np.testing.assert_array_equal(found.toarray() if sparse.issparse(found) else found, X)
    dates = pd.to_datetime(["2020", "2021"])
    for column in (pd.Series(["x", "z"], dtype="string"), dates, dates.tz_localize("UTC"), dates.to_period("D")):
        with pytest.raises(TypeError, match="X must be numeric, got column 'a' of type"):
            values.matrix(pd.DataFrame({"b": [1, 2], "a": column}))
    with pytest.raises(TypeError, match="X must be numeric, got a column of type list"):
        values.matrix(pa.table({"a": [[1], [2]]}))


def test_masked_cells_are_missing():
    X = np.ma.masked_array(np.ones((2, 2)), [[True, False], [False, False]])
    np.testing.assert_array_equal(values.matrix(X), [[np.nan, 1], [1, 1]])
    assert values.column(X[0].astype(object)).tolist() == [None, 1.0]


def said(error):
    """Return every text that an exception brings along."""
    found = []
    while error is not None:
        found += [str(error), repr(error), repr(error.args)]
        error = error.__cause__ or error.__context__
    return "\n".join(found)


MARK = 123456.75  # a number that would be seen


def refused_inputs():
    ragged = np.full((N, D), MARK).tolist()
    ragged[4] = [SECRET, MARK]
    yield "ragged", ragged
    for name, row in (("no row", MARK), ("text for a row", SECRET), ("hostile row", Hostile()), ("dict", {SECRET: 1})):
        yield name, [*np.full((N - 1, D), MARK).tolist(), row]
    yield "deep", np.full((N, D, 1), MARK)
    yield "deep rows", [np.full((D, 1), MARK) for _ in range(N)]
    yield "flat", np.full(N, MARK)
    yield "flat list", [MARK] * N
    yield "flat objects", as_objects([SECRET] * N)
    yield "complex", np.full((N, D), MARK + 1j)
    yield "text", np.full((N, D), SECRET)
    yield "bytes", np.full((N, D), SECRET.encode())
    yield "structured", np.full((N, D), MARK).view([("a", float)])
    yield "flat sparse", sparse.coo_array(np.full(N, MARK))
    yield "complex sparse", sparse.csr_array(np.full((N, D), MARK + 1j))
    if pd is not None:
        yield "text column", pd.DataFrame({"a": [SECRET] * N, "b": [MARK] * N, "c": 1.0}).astype({"a": "string"})


REFUSED = dict(refused_inputs())


@pytest.mark.parametrize("name", REFUSED)
def test_what_structure_refuses_is_not_quoted(name):
    pytest.importorskip("sklearn")
    X, y = ordinary()
    model = fresh("logistic").fit(X, y)
    given = REFUSED[name]
    for call in (
        lambda: es.Rows(PROBLEM, given, y),
        lambda: es.check(PROBLEM, given, y),
        lambda: fresh("logistic").fit(given, y),
        lambda: model.predict(given),
        lambda: model.score(given, y),
        lambda: es.unprotected_scores(model, given, y),
        lambda: es.PrivateSearch(fresh("logistic").set_params(random_state=None), {"ridge": [0.1]}).fit(given, y),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        assert SECRET not in said(caught.value)
        assert "123456" not in said(caught.value)


@pytest.mark.parametrize(
    "y", [np.full(N, MARK + 1j), np.full((N, 2), MARK), np.full(N - 1, SECRET), np.full(N, "a", "S9")]
)
def test_targets_that_structure_refuses_are_not_quoted(y):
    pytest.importorskip("sklearn")
    X, _ = ordinary()
    for call in (
        lambda: es.Rows(NUMBERS, X, y),
        lambda: fresh("logistic").fit(X, y),
        lambda: fresh("huber").fit(X, y),
        lambda: fresh("huber").fit(X, ordinary()[1]).score(X, y),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        assert SECRET not in said(caught.value)
        assert "123456" not in said(caught.value)


def test_lines_that_structure_refuses_are_not_quoted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"a,b\n1,2\n{SECRET},{SECRET},{SECRET}\n")
    with pytest.raises(ValueError, match="row 2: 3 fields") as caught:
        es.Schema({"a": es.Numeric(0, 1), "b": es.Numeric(0, 1)}).load(path)
    assert SECRET not in said(caught.value)


@pytest.mark.parametrize("kind", [np.longdouble])
def test_long_doubles_that_are_too_long_are_infinite(kind, tmp_path):
    X, y = ordinary()
    wide = X.astype(kind)
    wide[2, 1], wide[3, 2] = kind("1e4000"), kind("-1e4000")
    typed = X.copy()
    typed[2, 1], typed[3, 2] = np.inf, -np.inf
    path = tmp_path / "x.npy"
    np.save(path, wide)
    targets = y.astype(kind)
    targets[0] = kind("1e4000")
    expected = np.append(np.inf, y[1:])
    for given in (wide, np.load(path, mmap_mode="r"), path, sparse.csr_array(wide)):
        assert_same(blocks(NUMBERS, given, targets), blocks(NUMBERS, typed, expected))
        assert es.check(NUMBERS, given, targets) == es.check(NUMBERS, typed, expected)
        rows = es.Rows(NUMBERS, given, targets)
        np.testing.assert_array_equal(
            rows.gradient(np.ones(D + 1)), es.Rows(NUMBERS, typed, expected).gradient(np.ones(D + 1))
        )
    for loss in (es.Squared(), es.PseudoHuber()):
        assert loss.outside(targets) == 1
        assert loss.encode(targets)[0] == 1
    assert_same(fit(fresh("huber"), wide, targets), fit(fresh("huber"), typed, expected))


# --- Sparse matrices: entries in one place are added up, row by row.


def with_duplicates(seed=0, n=N, d=40):
    """Return CSR arrays of rows that are unsorted and hold several entries in one place, zeros and NaN among them."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 60, n)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    data = rng.choice(
        [0.0, 1e-17, 0.1, 0.3, -0.7, 1e16, -1e16, np.nan], counts.sum(), p=[0.1, 0.2, 0.2, 0.2, 0.2, 0.04, 0.04, 0.02]
    )
    return data, rng.integers(0, d, counts.sum()).astype(np.int32), starts


def formats(data, indices, starts, shape):
    csr = sparse.csr_array((data, indices, starts), shape=shape)
    rows = np.repeat(np.arange(shape[0]), np.diff(starts))
    yield csr
    yield sparse.csr_matrix((data, indices, starts), shape=shape)
    yield sparse.coo_array((data, (rows, indices)), shape=shape)
    order = np.argsort(indices, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(indices, minlength=shape[1]))])
    yield sparse.csc_array((data[order], rows[order], ends), shape=shape)


def test_entries_in_one_place_are_added_up_as_in_a_dense_array():
    """To the last bit, in every format: 1e16 + 0.1 - 1e16 depends on the order."""
    for seed in range(5):
        arrays = with_duplicates(seed)
        expected = sparse.csr_array(arrays, shape=(N, 40)).toarray()
        for matrix in formats(*arrays, (N, 40)):
            for _ in range(2):
                found = values.canonical(matrix)
                np.testing.assert_array_equal(found.toarray(), expected)
                assert found.has_canonical_format
        small = [array.astype(np.float32) if array.dtype == float else array for array in arrays]
        thin = sparse.csr_array(tuple(small), shape=(N, 40))
        np.testing.assert_array_equal(values.canonical(thin).toarray(), thin.toarray())


def test_other_rows_do_not_change_what_a_row_adds_up_to():
    """A row that is in order stays as it is, and one that is not is sorted for itself, whatever the others are."""
    data, indices, starts = with_duplicates(7)
    order = np.lexsort((indices, np.repeat(np.arange(N), np.diff(starts))))
    data, indices = data[order], indices[order]  # sorted, with duplicates
    before = values.canonical(sparse.csr_array((data, indices, starts), shape=(N, 40))).toarray()
    other = indices.copy()
    last = slice(starts[-2], starts[-1])
    other[last] = other[last][::-1]
    after = values.canonical(sparse.csr_array((data, other, starts), shape=(N, 40))).toarray()
    np.testing.assert_array_equal(after[:-1], before[:-1])


def test_estimators_see_one_matrix_however_often_they_are_asked():
    pytest.importorskip("sklearn")
    arrays = with_duplicates(1, d=D)
    y = ordinary()[1]
    dense = sparse.csr_array(arrays, shape=(N, D)).toarray()
    expected, path = told(fitted("logistic"), dense, y), fit(fresh("logistic"), dense, y)
    for matrix in formats(*arrays, (N, D)):
        np.testing.assert_allclose(fit(fresh("logistic"), matrix, y), path, rtol=1e-9, atol=1e-12)
        for _ in range(3):
            found = told(fitted("logistic"), matrix, y)
            assert_same(found[:3], expected[:3])
            for one, other in zip(found[3:], expected[3:], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


# --- Nothing is written to.


def state(thing):
    """Return all that a caller could see change in what was passed."""
    if sparse.issparse(thing):
        return {name: state(part) if isinstance(part, np.ndarray) else repr(part) for name, part in vars(thing).items()}
    if isinstance(thing, np.ndarray):
        cells = list(map(repr, thing.ravel().tolist())) if thing.dtype == object else thing.tobytes()
        return cells, thing.dtype, thing.shape, thing.strides, thing.flags.writeable
    if isinstance(thing, list | tuple):
        return [id(part) if not isinstance(part, list) else state(part) for part in thing]
    if isinstance(thing, dict):
        return {name: state(part) for name, part in thing.items()}
    return state(thing.to_numpy()), list(map(str, thing.dtypes)), [state(thing.iloc[:, j].to_numpy()) for j in range(D)]


def locked(array):
    array.flags.writeable = False
    return array


def messy_rows():
    X = np.random.default_rng(0).uniform(-1, 2, (N, D))
    X[0], X[1, 1] = 7.0, np.nan
    return X


def sparse_inputs(lock):
    data, indices, starts = with_duplicates(3, d=D)
    for number, matrix in enumerate(formats(data, indices, starts, (N, D))):
        if lock:
            for part in vars(matrix).values():
                if isinstance(part, np.ndarray):
                    part.flags.writeable = False
            for part in getattr(matrix, "coords", ()):
                part.flags.writeable = False
        yield f"{matrix.format} {number}{' locked' * lock}", matrix


@cache
def inputs(folder):
    X = messy_rows()
    path = folder / "x.npy"
    np.save(path, X)
    found = {
        "C": X.copy(),
        "F": np.asfortranarray(X),
        "float32": X.astype(np.float32),
        "integers": np.rint(np.nan_to_num(X)).astype(int),
        "booleans": X > 0,
        "strided": np.repeat(X, 2, axis=0)[::2],
        "locked": locked(X.copy()),
        "locked F": locked(np.asfortranarray(X)),
        "objects": object_array(X.tolist()),
        "list": X.tolist(),
        "map": np.load(path, mmap_mode="r"),
        "private map": np.load(path, mmap_mode="c"),
        **dict(sparse_inputs(False)),
        **dict(sparse_inputs(True)),
    }
    if pd is not None:
        found["pandas"] = pd.DataFrame(X, columns=list("abc"))
        found["mixed pandas"] = pd.DataFrame({"a": X[:, 0], "b": X[:, 1].astype("f4"), "c": X[:, 2] > 0})
    return found


STEPS = es.plan(
    es.Problem(es.Logistic((0, 1)), es.Ball(1, norm=np.inf), ridge=0.1, n=N, d=D),
    es.Pure(1.0),
    es.nesterov,
    iterations=2,
)
OUTPUT = es.plan(PROBLEM, es.Pure(1.0), "output")
STATISTICS = es.plan(NUMBERS, es.Pure(1.0), "statistics")
INPUTS = [
    *("C", "F", "float32", "integers", "booleans", "strided", "locked", "locked F", "objects", "list", "map"),
    *("private map", "csr 0", "csr 1", "coo 2", "csc 3", "csr 0 locked", "csr 1 locked", "coo 2 locked"),
    *("csc 3 locked", "pandas", "mixed pandas"),
]


@pytest.mark.parametrize("name", INPUTS)
def test_nothing_that_is_passed_is_written_to(tmp_path_factory, name):
    pytest.importorskip("sklearn")
    if "pandas" in name and pd is None:
        pytest.skip("needs pandas")
    X = inputs(tmp_path_factory.getbasetemp())[name]
    y = locked(ordinary()[1].astype(float)) if "locked" in name else ordinary()[1].astype(float)
    before = state(X), state(y)
    rows = es.Rows(PROBLEM, X, y)
    rows.prepare()
    x = locked(np.full(D + 1, 0.5))
    rows.gradient(x), rows.value(x), rows.hessian(x), rows.second_moment(), list(rows.blocks())
    es.check(PROBLEM, X, y)
    es.run(STEPS, es.Rows(STEPS.problem, X, y), anyway=True)
    es.run(OUTPUT, rows, anyway=True)
    es.run(STATISTICS, es.Rows(NUMBERS, X, y), anyway=True)
    es.estimate_smoothness(rows, es.Pure(1.0))
    assert (state(X), state(y)) == before
    for kind in ("logistic", "huber"):
        model = fresh(kind)
        fit(model, X, y), told(model, X, y), evaluated(model, X, y)
        assert (state(X), state(y)) == before, kind
    search(X, y)
    assert (state(X), state(y)) == before
    if not sparse.issparse(X):
        schema = es.Schema({column: es.Numeric(0, 1, missing=True) for column in "abc"})
        schema.encode(X), schema.check(X), schema.fit_transform(X)
        assert (state(X), state(y)) == before


def test_public_arrays_are_not_written_to_either():
    problem = small_problem(n=N, d=D)
    X, y = records(problem)
    start, low, high = np.full(D, 0.25), np.zeros(D), np.ones(D)
    spectrum, shares = np.array([0.1, 0.3]), np.array([1.0, 2.0])
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=2)
    for lock in (False, True):
        arrays = [locked(array.copy()) if lock else array for array in (start, low, high, spectrum, shares)]
        before = list(map(state, arrays))
        es.run(plan, es.Rows(problem, X, y), start=arrays[0], anyway=True)
        es.run(plan, es.Rows(problem, X, y), start=arrays[0], seed=1, repetitions=2)
        box = es.Box(arrays[1], arrays[2])
        es.plan(es.Problem(es.Logistic(), box, ridge=0.1, n=N, d=D), es.Pure(1.0), es.nesterov, iterations=2)
        es.bounds.exact_quadratic(plan.steps, arrays[3])
        assert list(map(state, arrays)) == before
