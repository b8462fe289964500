"""Real tables in one form: columns in [0, 1] or as declared, categories as one-hot blocks. Written once to a folder.

Ranges of the tables that are read here are taken from the tables themselves (least and largest value). That is not
private; in these experiments they stand for ranges that somebody declared.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from accuracy_parts import tables as declared
from accuracy_parts.encodings import Encoding, from_names

import epsteps as es

MOST_ROWS = 20_000
PAPER_ROWS, PAPER_FEATURES = 100_000, 20
# Tables that predictions may be tuned on. All others are held out: nobody looks at their cells while choosing formulas.
FIRST = ("paper", "adult", "bank", "bike", "breast_cancer", "wine", "diabetes", "fair", "diamonds", "california")
# Of the standing benchmark, its design tables but those above and HealthInsurance, which is `insurance` here.
DESIGN = (
    *("spambase", "german", "nassCDS", "wa_churn", "credit_data", "TV16", "Fertility2", "email"),
    *("letter", "marketing", "hpc_data", "covertype7", "Chem97", "GSSvocab", "Computers", "gss_wages"),
)
TUNED = FIRST + DESIGN


@dataclass(frozen=True, eq=False)
class Table:
    """Records as they are declared. ``kind`` of the targets is "labels" (-1, 1), "classes" (0, 1, ...) or "range"."""

    name: str
    kind: str
    encoding: Encoding
    X: np.ndarray
    y: np.ndarray

    @property
    def box(self) -> "es.Box":
        """The declared domain."""
        return self.encoding.box()

    def save(self, folder: Path) -> None:
        """Write the table to its file, at most so many rows, in an order that does not depend on the machine."""
        X, y = self.X, self.y
        if self.name != "paper" and len(y) > MOST_ROWS:
            rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
            X, y = X[rows], y[rows]
        low, high, blocks = self.encoding.low, self.encoding.high, np.array(self.encoding.one_hot).reshape(-1, 2)
        stored = {"X": X.astype(np.float32), "y": y, "low": low, "high": high, "blocks": blocks, "kind": self.kind}
        np.savez_compressed(folder / f"{self.name}.npz", **stored)


def load(path: Path) -> Table:
    """Read a table that was saved."""
    with np.load(path) as stored:
        blocks = tuple((int(start), int(stop)) for start, stop in stored["blocks"])
        low, high = (tuple(map(float, stored[side])) for side in ("low", "high"))
        X, y, kind = stored["X"].astype(float), stored["y"].astype(float), str(stored["kind"])
    return Table(path.stem, kind, Encoding(low, high, blocks), X, y)


def write(data: Path | None, csvs: list[Path], packages: Path | None, out: Path) -> Iterator[str]:
    """Write every table that can be found, and yield a line about each: its size, or that it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    for name, make in _makers(data, csvs, packages).items():
        table = make()
        if table is None:
            yield f"{name}: missing, left out"
            continue
        table.save(out)
        yield f"{name}: {len(table.y)} records, {table.encoding.d} columns, {table.kind}"


def _makers(data: Path | None, csvs: list[Path], packages: Path | None) -> dict[str, Callable[[], Table | None]]:
    makers: dict[str, Callable[[], Table | None]] = {"paper": _paper}
    for name in ("adult", "bank", "covertype", "ijcnn1", "mnist_3v8", "bike", "california"):
        makers[name] = lambda name=name: _prepared(name, data)
    for name in ("breast_cancer", "wine", "digits", "diabetes", "iris"):
        makers[name] = lambda name=name: _builtin(name)
    for sheet in SHEETS:
        makers[sheet.name] = lambda sheet=sheet: sheet.read(csvs)
    for name in DESIGN:
        makers[name] = lambda name=name: _designed(name, data, packages)
    return makers


def _paper() -> Table:
    """Return the paper's problem on fresh records: uniform features, y = sign(Xw) for a normal w."""
    rng = np.random.default_rng([11, 2])
    X = rng.random((PAPER_ROWS, PAPER_FEATURES))
    y = np.where(X @ rng.standard_normal(PAPER_FEATURES) >= 0, 1.0, -1.0)
    return Table("paper", "labels", _cube(PAPER_FEATURES), X, y)


def _cube(d: int) -> Encoding:
    return Encoding((0.0,) * d, (1.0,) * d)


def _prepared(name: str, data: Path | None) -> Table | None:
    """Return a table that was encoded by public ranges, from a folder of them."""
    if data is None or not (path := data / f"{name}.npz").exists():
        return None
    with np.load(path) as stored:
        X, y, names = stored["X_train"], stored["y_train"], [str(name) for name in stored["feature_names"]]
    return Table(name, "labels" if y.dtype.kind == "i" else "range", from_names(name, names), X, y.astype(float))


def _designed(name: str, data: Path | None, packages: Path | None) -> Table | None:
    """Return a design table of the standing benchmark, by the ranges that are declared there."""
    try:
        task = declared.tables()[name].task(declared.Sources(data, packages), most=None)
    except FileNotFoundError:
        return None
    kinds = {"binary": "labels", "classes": "classes", "regression": "range"}
    return Table(name, kinds[declared.tables()[name].kind], task.encoding, task.X, task.y)


def _builtin(name: str) -> Table:
    """Return one of scikit-learn's tables."""
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{name}")()
    X, y = scaled(found.data), np.asarray(found.target, dtype=float)
    kinds = {"breast_cancer": "labels", "diabetes": "range"}
    return Table(name, kinds.get(name, "classes"), _cube(X.shape[1]), X, _targets(y, kinds.get(name, "classes")))


def scaled(columns: np.ndarray) -> np.ndarray:
    """Return each column in [0, 1]; one that is constant becomes 0."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    return (columns - low) / np.where(high > low, high - low, 1.0)


def _targets(y: np.ndarray, kind: str) -> np.ndarray:
    if kind == "range":
        return 2 * scaled(y[:, None])[:, 0] - 1
    return np.where(y > 0, 1.0, -1.0) if kind == "labels" else y


@dataclass(frozen=True)
class Sheet:
    """A CSV file: its target, which is a label (above the cut) or a number, and the columns that are left out."""

    name: str
    file: str
    target: str
    cut: float | str | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    log: bool = False
    separator: str = ","

    def read(self, folders: list[Path]) -> Table | None:
        """Return the table of the first such file below these folders."""
        import pandas as pd

        path = next((path for folder in folders for path in sorted(folder.rglob(self.file))), None)
        if path is None:
            return None
        frame = pd.read_csv(path, sep=self.separator, quotechar="'" if self.separator != "," else '"')
        frame = frame.drop(columns=[c for c in frame if c in self.drop or str(c).startswith("Unnamed")]).dropna()
        y = frame.pop(self.target)
        parts, blocks, width = [], [], 0
        for column in frame:
            is_category = column in self.categories or not pd.api.types.is_numeric_dtype(frame[column])
            if is_category:
                part = pd.get_dummies(frame[column]).to_numpy(dtype=float)
                part = part[:, :1] if part.shape[1] == 2 else part
            else:
                part = scaled(frame[[column]].to_numpy(dtype=float))
            if part.shape[1] > 1:
                blocks.append((width, width + part.shape[1]))
            width += part.shape[1]
            parts.append(part)
        encoding = Encoding((0.0,) * width, (1.0,) * width, tuple(blocks))
        kind = "range" if self.cut is None else "labels"
        return Table(self.name, kind, encoding, np.hstack(parts), _targets(self._numbers(y.to_numpy()), kind))

    def _numbers(self, y: np.ndarray) -> np.ndarray:
        if isinstance(self.cut, str):
            return (y == self.cut).astype(float)
        y = np.log1p(y.astype(float)) if self.log else y.astype(float)
        return y if self.cut is None else y - self.cut


SHEETS = (
    Sheet("fair", "fair.csv", "affairs", cut=0.0, categories=("occupation", "occupation_husb")),
    Sheet("diamonds", "diamonds.csv", "price", log=True),
    Sheet("anes96", "anes96.csv", "vote", cut=0.5, separator="\t"),
    Sheet("randhie", "randhie.csv", "mdvis", log=True),
    Sheet("spector", "spector.csv", "GRADE", cut=0.5, drop=("OBS",), separator=" "),
    Sheet("flchain", "flchain.csv", "death", cut=0.5, drop=("chapter", "futime", "sample.yr")),
    Sheet("males", "Males.csv", "wage", drop=("nr",), categories=("year",)),
    Sheet("benefits", "Benefits.csv", "ui", cut="yes", drop=("state",), categories=("yrdispl",)),
    Sheet("insurance", "HI.csv", "whi", cut="yes", drop=("wght", "hhi2")),
    # Named before any was fitted, and fitted when the rule for what runs expect was fixed.
    Sheet("food", "BudgetFood.csv", "wfood", categories=("town",)),
    Sheet("vietnam", "VietNamH.csv", "lntotal", drop=("commune", "lnmed", "lnrlfood", "lnexp12m")),
    Sheet("wages", "Wages.csv", "lwage"),
    Sheet("star", "Star.csv", "tmathssk", drop=("treadssk", "schidkn")),
    Sheet("visits", "OFP.csv", "ofp", log=True),
    Sheet("housing", "Housing.csv", "price", log=True),
    Sheet("hedonic", "Hedonic.csv", "mv", drop=("townid",)),
    Sheet("mortgages", "Hdma.csv", "deny", cut="yes"),
    Sheet("participation", "Participation.csv", "lfp", cut="yes"),
)
