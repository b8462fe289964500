"""A run on disk, so that it can be interrupted: no step is paid twice, and none meets its records with a second noise.

What an answer will add is written down before the records are read, and each answer together with the next one's noise,
in one transaction. The file holds secret noise while the run lasts, and so does the journal that SQLite keeps beside
it: only their owner can read them, from their creation on, and they belong where the records are.
"""

import io
import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from epsteps.ledger import databases
from epsteps.plans.requests import Draw

_SCHEMA = (
    "CREATE TABLE run (facts TEXT NOT NULL, key TEXT NOT NULL)",
    "CREATE TABLE answers (number INTEGER PRIMARY KEY, answer BLOB NOT NULL)",
    "CREATE TABLE pending (number INTEGER NOT NULL, name TEXT NOT NULL, drawn BLOB NOT NULL)",
)
# Durable at every commit; one process at a time; what is deleted is overwritten, and the journal cut off, which would
# otherwise keep the last step's pages. Nothing goes to temporary files, nor is code run that lies in the file.
_SETTINGS = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = TRUNCATE",
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)
# Lets SQLite remove the empty journal at the end.
_FAREWELL = ("PRAGMA locking_mode = NORMAL", "PRAGMA journal_mode = DELETE")


class CheckpointError(OSError):
    """A checkpoint's file cannot be used: another run's, in use, broken, full or read-only. Nothing was released."""


class Checkpoint:
    """One run's file; made where there is none, and otherwise required to be the same run's.

    Parameters
    ----------
    path : path
        The file.
    facts : dict
        What defines the run, without its records: plan, start, seed. A resumed run must have the same.
    """

    def __init__(self, path: str | Path, facts: dict) -> None:
        self._path = databases.real_path(path)
        with self._clear_errors():
            self._take_place()
            self._connection = databases.connect(self._path, "mode=rw", timeout=1.0)
            try:
                self.key = self._open(facts)
            except BaseException:
                self._connection.close()
                raise

    def answers(self) -> list[np.ndarray]:
        """Return the answers so far; none when the run has not begun."""
        with self._clear_errors():
            rows = self._connection.execute("SELECT answer FROM answers ORDER BY number")
            return [bytes_array(answer) for (answer,) in rows]

    def pending(self, number: int) -> Draw | None:
        """Return what was drawn for a request, counted from 0, that has no answer yet."""
        with self._clear_errors():
            rows = self._connection.execute("SELECT name, drawn FROM pending WHERE number = ?", (number,)).fetchall()
            return {name: bytes_array(drawn) for name, drawn in rows} or None

    def commit(self, number: int, answer: np.ndarray | None, following: Draw | None) -> None:
        """Write the answer before a request (None before the first), and what was drawn for it (None at the end).

        Both are durable when this returns.
        """
        with self._clear_errors():
            self._connection.execute("BEGIN EXCLUSIVE")
            self._connection.execute("DELETE FROM pending")
            if answer is not None:
                self._connection.execute("INSERT INTO answers VALUES (?, ?)", (number - 1, array_bytes(answer)))
            for name, drawn in (following or {}).items():
                self._connection.execute("INSERT INTO pending VALUES (?, ?, ?)", (number, name, array_bytes(drawn)))
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Give the file back."""
        with suppress(sqlite3.Error):
            for line in _FAREWELL:
                self._connection.execute(line)
        self._connection.close()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_place(self) -> None:
        """Make an empty file for a new run; refuse whatever is not a checkpoint, without changing anything about it."""
        if not self._path.parent.is_dir():
            raise CheckpointError(f"checkpoint {self._path}: there is no folder {self._path.parent}. Make it first.")
        if beside := databases.foreign_sidecar(self._path):
            raise CheckpointError(f"checkpoint {self._path} would overwrite {beside}. Use another path.")
        databases.create_private(self._path)
        if not self._path.is_file() or (
            self._path.stat().st_size > 0 and databases.application_id(self._path) != databases.CHECKPOINT
        ):
            raise CheckpointError(f"{self._path} is not a checkpoint; it was left as it is. Use another path.")
        if databases.names(self._path) != 1:
            raise CheckpointError(
                f"checkpoint {self._path} has another name besides (a hard link), under which its journal would not be "
                "found. Remove the other name, or use another path."
            )
        databases.make_private(self._path)

    def _open(self, facts: dict) -> str:
        """Become the only user of the file, require it to be this run's, and return the run's key in the ledger."""
        for line in _SETTINGS:
            self._connection.execute(line)
        self._connection.execute("BEGIN EXCLUSIVE")
        if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            self._create(facts)
        key = self._require_same(facts)
        self._connection.execute("COMMIT")
        return key

    def _create(self, facts: dict) -> None:
        for line in _SCHEMA:
            self._connection.execute(line)
        self._connection.execute(f"PRAGMA application_id = {databases.CHECKPOINT}")
        self._connection.execute("INSERT INTO run VALUES (?, ?)", (json.dumps(facts, sort_keys=True), uuid.uuid4().hex))

    def _require_same(self, facts: dict) -> str:
        """Return the run's key in the ledger, or refuse another run's file, and one with more in it than a run."""
        problem = databases.schema_fault(self._connection, _SCHEMA)
        runs = [] if problem else self._connection.execute("SELECT facts, key FROM run").fetchall()
        if len(runs) != 1:
            problem = problem or f"it holds {len(runs)} runs"
            raise CheckpointError(f"checkpoint {self._path} cannot be trusted: {problem}. Use another path.")
        written, key = runs[0]
        if written != json.dumps(facts, sort_keys=True):
            raise CheckpointError(f"{self._path} belongs to a run with another plan, start or seed. Use another path.")
        return key

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except (sqlite3.Error, OSError) as error:
            hint = "Another run is using it." if "locked" in str(error) else "Nothing was released by this step."
            raise CheckpointError(f"checkpoint {self._path}: {error}. {hint}") from error


def array_bytes(array: np.ndarray) -> bytes:
    """Return an array as bytes; Python's integers, which may be longer than 64 bits, as their digits."""
    buffer = io.BytesIO()
    np.save(buffer, array.astype(str) if array.dtype == object else array, allow_pickle=False)
    return buffer.getvalue()


def bytes_array(data: bytes) -> np.ndarray:
    """Return the array that ``array_bytes`` wrote."""
    array = np.load(io.BytesIO(data), allow_pickle=False)
    if array.dtype.kind != "U":
        return array
    return np.array([int(digits) for digits in array.ravel()], dtype=object).reshape(array.shape)
