"""The file: SQLite, one table to which entries are only ever added, read and checked whole each time.

Every operation opens a connection of its own and closes it: nothing is shared between threads, nor kept over a fork.
Writers lock the file itself, and what is committed is in it: nothing that was charged lies in a log beside the file,
which would be another one for another name of it. (Ledgers made before had such a log; the first charge folds it in.)
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from epsteps.ledger import databases
from epsteps.ledger.chain import Entry, LedgerError, fault

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
# Entries of each file that were found to be a chain, for processes that charge again and again.
_CHECKED: dict[Path, list[Entry]] = {}
# How long to wait for other processes, in seconds.
_PATIENCE = 60.0
_NAP = 0.002
# On macOS, only a full fsync reaches the disk; elsewhere the third line says nothing.
_SETTINGS = (
    "PRAGMA journal_mode = DELETE",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
)


def read(path: Path) -> list[Entry]:
    """Return all entries, checked; others may write meanwhile."""
    _require_file(path)
    with _clear_errors(path):
        _require_kind(path)
        try:
            return _read(path, "mode=rw")  # the next reader repairs what a killed writer left
        except sqlite3.OperationalError as error:
            if not _is_sealed(path, error):
                raise
            return _read(path, "mode=ro&immutable=1")


def append(path: Path, decide: Callable[[list[Entry]], Entry], *, create: bool = False) -> Entry:
    """Add the entry that ``decide`` returns for those so far; durable when this returns.

    ``decide`` runs while all others wait. If it raises, nothing is written; if it returns an entry that is there
    already, neither.
    """
    if create:
        _make_file(path)
    file = _require_file(path)
    with _clear_errors(path):
        _require_kind(path, or_empty=create)
        with closing(_connect(path, "mode=rw")) as connection:
            _patiently(lambda: _begin_writing(connection))
            try:
                entry = _append(path, connection, decide, create)
                _require_file(path, file)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
    _require_file(path, file)
    return entry


def _read(path: Path, options: str) -> list[Entry]:
    with closing(_connect(path, options)) as connection:
        _patiently(lambda: _begin_reading(connection))
        _require_ledger(path, connection)
        return _load(path, connection)


def _append(path: Path, connection: sqlite3.Connection, decide: Callable[[list[Entry]], Entry], create: bool) -> Entry:
    if create and _is_blank(connection):
        _initialise(connection)
    _require_ledger(path, connection)
    entries = _load(path, connection)
    entry = decide(entries)
    if entry.seq > len(entries):
        connection.execute(f"INSERT INTO entries ({_COLUMNS}) VALUES ({_MARKS})", entry)
        _require_written(path, connection, entry)
    return entry


def _make_file(path: Path) -> None:
    """Make an empty file for a new ledger, for its owner alone, unless there is a file."""
    if not path.parent.is_dir():
        raise LedgerError(f"the ledger {path} cannot be made: there is no folder {path.parent}.")
    if beside := databases.foreign_sidecar(path):
        raise LedgerError(f"the ledger {path} cannot be made: it would overwrite {beside}. Use another path.")
    try:
        databases.create_private(path)
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be made: {error.strerror}.") from error


def _require_file(path: Path, before: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return which file this is, the one of before if that is given; refuse one that has another name besides.

    SQLite finds the journal of a file by its name: under two names, what a killed process left to be undone would be
    found under one of them only.
    """
    try:
        file, names = databases.identity(path), databases.names(path)
    except FileNotFoundError:
        file, names = None, 0
    if before is not None and file != before:
        raise LedgerError(f"the ledger {path} was moved or replaced during the charge. Nothing may be released.")
    if file is None:
        raise LedgerError(f"there is no ledger {path}: make one with Ledger.create, or check the path.")
    if not path.is_file():
        raise LedgerError(f"{path} is not a ledger but a folder or a device. Check the path.")
    if names != 1:
        raise LedgerError(
            f"the ledger {path} has {names} names (hard links), of which it may have one: charges under another name "
            "could be missed. Remove the others; symbolic links may stand in for them. Nothing may be released."
        )
    return file


def _require_kind(path: Path, *, or_empty: bool = False) -> None:
    """Refuse another program's file before anything is opened in a way that could change it."""
    if or_empty and path.stat().st_size == 0:
        return
    if databases.application_id(path) == databases.LEDGER:
        return
    if path.with_name(f"{path.name}-wal").exists():  # of an earlier ledger, even the mark may still be in its log
        with closing(_connect(path, "mode=ro")) as connection:
            _patiently(lambda: _begin_reading(connection))
            if connection.execute("PRAGMA application_id").fetchone() == (databases.LEDGER,):
                return
    raise LedgerError(f"{path} is not a ledger of epsteps; it was left as it is. Check the path.")


def _connect(path: Path, options: str) -> sqlite3.Connection:
    return databases.connect(path, options, timeout=_NAP)


def _is_sealed(path: Path, error: sqlite3.OperationalError) -> bool:
    """Whether the disk is read-only, and an earlier ledger on it.

    Its log wants shared memory beside the file, which SQLite cannot place there, and need not.
    """
    log = path.with_name(f"{path.name}-wal")
    return _primary_code(error) == sqlite3.SQLITE_CANTOPEN and not os.access(path.parent, os.W_OK) and not log.exists()


def _begin_reading(connection: sqlite3.Connection) -> None:
    """Fix one snapshot for all that is read."""
    if not connection.in_transaction:
        connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _begin_writing(connection: sqlite3.Connection) -> None:
    """Become the only one who reads or writes, with commits that reach the disk and the file itself."""
    for line in _SETTINGS:
        connection.execute(line)
    connection.execute("BEGIN EXCLUSIVE")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("delete",):
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("its write-ahead log was switched on meanwhile")


def _is_blank(connection: sqlite3.Connection) -> bool:
    """Whether nothing was ever written to the file."""
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    return empty and connection.execute("PRAGMA application_id").fetchone() == (0,)


def _initialise(connection: sqlite3.Connection) -> None:
    connection.execute(_SCHEMA)
    connection.execute(f"PRAGMA application_id = {databases.LEDGER}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _require_ledger(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse other files, ledgers of another version, and those in which there is more, or less, than the entries."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != databases.LEDGER:
        raise LedgerError(f"{path} is not a ledger of epsteps; it was left as it is. Check the path.")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != _SCHEMA_VERSION:
        raise LedgerError(
            f"{path} is a ledger of version {version}, but this epsteps reads version {_SCHEMA_VERSION}. "
            "Use the epsteps that wrote it, or a newer one."
        )
    if problem := databases.schema_fault(connection, (_SCHEMA,)):
        raise LedgerError(
            f"{path} cannot be trusted: {problem}. Nothing was charged. Restore a copy that only epsteps wrote to."
        )


def _require_written(path: Path, connection: sqlite3.Connection, entry: Entry) -> None:
    """Read back, before it is made durable, that the entry is the last one, as it was given."""
    last = connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    counts = connection.execute("SELECT count(*), (SELECT max(seq) FROM sqlite_sequence) FROM entries").fetchone()
    if last != tuple(entry) or counts != (entry.seq, entry.seq):
        raise LedgerError(f"{path} cannot be trusted: it did not keep entry {entry.seq}. Nothing may be released.")


def _load(path: Path, connection: sqlite3.Connection) -> list[Entry]:
    """Return all entries, checked. Those that were read before and are the same to the letter are not hashed again."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY seq").fetchall()
    known = _CHECKED.get(path, [])
    known = known if rows[: len(known)] == known else []
    entries = known + [Entry._make(row) for row in rows[len(known) :]]
    (issued,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
    problem = fault(entries, issued, len(known))
    if problem:
        raise LedgerError(
            f"{path} cannot be trusted: {problem}. Nothing was charged. Restore a copy whose entries are complete."
        )
    _CHECKED[path] = entries
    return list(entries)


def _patiently(begin: Callable[[], None]) -> None:
    """Repeat while the file is locked: SQLite itself does not always wait, and then naps for up to 0.1 s."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return begin()
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_NAP)


def _primary_code(error: sqlite3.Error) -> int:
    """Return what happened; the bits above say why."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite says into one line with the path and the consequence."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {path} cannot be used: {error}. Nothing may be released.") from error
