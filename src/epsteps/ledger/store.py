"""The file: SQLite, one table to which entries are only ever added, read and checked whole each time.

Every operation opens a connection of its own and closes it: nothing is shared between threads, nor kept over a fork.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from epsteps.ledger.chain import Entry, fault
from epsteps.ledger.errors import LedgerError

_APPLICATION_ID = 0x65707374  # "epst"
_SCHEMA_VERSION = 1
_COLUMNS = ", ".join(Entry._fields)
_MARKS = ", ".join("?" for _ in Entry._fields)
# AUTOINCREMENT keeps the last number given, so that entries deleted from the end are missed.
_SCHEMA = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    action TEXT NOT NULL,
    dataset TEXT NOT NULL,
    terms TEXT NOT NULL,
    note TEXT NOT NULL,
    key TEXT UNIQUE,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
)
"""
# How long to wait for other processes, in seconds.
_PATIENCE = 60.0
_NAP = 0.002
# On macOS, only a full fsync reaches the disk; elsewhere the second line says nothing.
_DURABLE = ("PRAGMA synchronous = FULL", "PRAGMA fullfsync = ON", "PRAGMA foreign_keys = ON")


def read(path: Path) -> list[Entry]:
    """Return all entries, checked; others may write meanwhile."""
    _require_file(path)
    with _clear_errors(path), closing(_connect(path, "ro")) as connection:
        _patiently(lambda: _begin_reading(connection))
        _require_ledger(path, connection)
        return _load(path, connection)


def append(path: Path, decide: Callable[[list[Entry]], Entry], *, create: bool = False) -> Entry:
    """Add the entry that ``decide`` returns for those so far; durable when this returns.

    ``decide`` runs while all other writers wait. If it raises, nothing is written; if it returns an entry that is there
    already, neither.
    """
    if create and not path.parent.is_dir():
        raise LedgerError(f"the ledger {path} cannot be made: there is no folder {path.parent}.")
    if not create:
        _require_file(path)
    with _clear_errors(path), closing(_connect(path, "rwc" if create else "rw")) as connection:
        _patiently(lambda: _begin_writing(connection, create))
        try:
            if create and _is_blank(connection):
                _initialise(connection)
            _require_ledger(path, connection)
            entries = _load(path, connection)
            entry = decide(entries)
            if entry.seq > len(entries):
                connection.execute(f"INSERT INTO entries ({_COLUMNS}) VALUES ({_MARKS})", entry)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return entry


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise LedgerError(f"there is no ledger {path}: make one with Ledger.create, or check the path.")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode={mode}"
    if mode == "ro" and not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
        # Read-only media: SQLite cannot place its shared memory beside the file, and need not.
        address += "&immutable=1"
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=_NAP)


def _begin_reading(connection: sqlite3.Connection) -> None:
    """Fix one snapshot for all that is read; others may go on writing."""
    if not connection.in_transaction:
        connection.execute("BEGIN")
    _is_blank(connection)


def _begin_writing(connection: sqlite3.Connection, create: bool) -> None:
    """Become the only writer, one whose commits reach the disk."""
    if create and _is_blank(connection):
        connection.execute("PRAGMA journal_mode = WAL")
    for line in _DURABLE:
        connection.execute(line)
    connection.execute("BEGIN IMMEDIATE")


def _is_blank(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def _initialise(connection: sqlite3.Connection) -> None:
    connection.execute(_SCHEMA)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _require_ledger(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse other files, and ledgers of another version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != _APPLICATION_ID:
        raise LedgerError(f"{path} is not a ledger of epsteps; it was left as it is. Check the path.")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != _SCHEMA_VERSION:
        raise LedgerError(
            f"{path} is a ledger of version {version}, but this epsteps reads version {_SCHEMA_VERSION}. "
            "Use the epsteps that wrote it, or a newer one."
        )


def _load(path: Path, connection: sqlite3.Connection) -> list[Entry]:
    entries = [Entry._make(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY seq")]
    (issued,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
    problem = fault(entries, issued)
    if problem:
        raise LedgerError(
            f"{path} cannot be trusted: {problem}. Nothing was charged. Restore a copy whose entries are complete."
        )
    return entries


def _patiently(begin: Callable[[], None]) -> None:
    """Repeat while the file is locked: SQLite itself does not always wait, and then naps for up to 0.1 s."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return begin()
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the rest says why
            if not is_busy or time.monotonic() > deadline:
                raise
        time.sleep(_NAP)


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite says into one line with the path and the consequence."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {path} cannot be used: {error}. Nothing may be released.") from error
