"""SQLite files that are trusted or secret: which file a path means, who may read it, what wrote it, what is in it.

Files are never opened here except through SQLite: closing a file that SQLite has open elsewhere in the same process
would take its locks away (sqlite.org/howtocorrupt.html, 2.2).
"""

import os
import sqlite3
import stat
from contextlib import closing, suppress
from functools import cache
from os import PathLike
from pathlib import Path

# What SQLite places beside a file, under its name and with its mode, and how that begins (sqlite.org/fileformat.html;
# a journal with zeros until it counts). The index of a log, -shm, has no mark of its own.
SIDECARS = {
    "-journal": (bytes.fromhex("d9d505f920a163d7"), bytes(8)),
    "-wal": (bytes.fromhex("377f0682"), bytes.fromhex("377f0683")),
    "-shm": (),
}

# The kinds of file that hold state of the library, by the number that SQLite keeps in the header for applications.
LEDGER = 0x65707374  # "epst"
CHECKPOINT = 0x65706370  # "epcp"
SERVICE = 0x65707376  # "epsv"

SchemaRow = tuple[str, str, str, str | None]


def real_path(path: str | PathLike[str]) -> Path:
    """Return the one path that is meant now: whoever changes folder or a symbolic link later still means this file."""
    return Path(path).resolve()


def identity(path: Path) -> tuple[int, int]:
    """Return what tells this file from all others, whatever they are called."""
    found = path.stat()
    return found.st_dev, found.st_ino


def names(path: Path) -> int:
    """Return how many names (hard links) the file has; SQLite needs it to be one, since sidecars follow the name."""
    return path.stat().st_nlink


def create_private(path: Path) -> None:
    """Make an empty file that only its owner can read, unless there is one: SQLite gives sidecars the same mode.

    To SQLite an empty file is an empty database. Without SQLite's own creation there is no moment at which others can
    open it.
    """
    with suppress(FileExistsError):
        try:
            os.mknod(path, stat.S_IFREG | 0o600)  # without a descriptor, whose closing could cost another thread's lock
        except (AttributeError, PermissionError):  # macOS lets only root call it, and Windows does not have it
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def make_private(path: Path) -> None:
    """Take the file and its sidecars away from everyone but the owner."""
    for each in (path, *sidecars(path)):
        with suppress(FileNotFoundError):
            each.chmod(0o600)


def sidecars(path: Path) -> list[Path]:
    """Return where SQLite places sidecars."""
    return [path.with_name(path.name + ending) for ending in SIDECARS]


def foreign_sidecar(path: Path) -> Path | None:
    """Return a file that lies where SQLite would place a sidecar, and overwrite or delete it, but is none."""
    for beside, marks in zip(sidecars(path), SIDECARS.values(), strict=True):
        if beside.is_symlink() and not beside.exists():
            return beside
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(beside.stat().st_mode):  # asked once: another process may make and remove a sidecar
                return beside
            if not marks:
                continue
            with beside.open("rb") as file:  # SQLite locks neither journals nor logs
                begin = file.read(8)
            if begin and not begin.startswith(marks):
                return beside
    return None


def application_id(path: Path) -> int | None:
    """Return the number with which an application marked its file, None if it is no SQLite file; changes nothing.

    The file is read as it lies there, without locks, sidecars or repairs. Only its header counts, also where a process
    was killed before the pages behind it were written: the second line allows for that.
    """
    with closing(connect(path, "mode=ro&immutable=1")) as connection:
        try:
            connection.execute("PRAGMA writable_schema = ON")
            return connection.execute("PRAGMA application_id").fetchone()[0]
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return None


def connect(path: Path, options: str, *, timeout: float = 0.0) -> sqlite3.Connection:
    """Open a file with the options of an SQLite address, such as "mode=rw"."""
    return sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, isolation_level=None, timeout=timeout)


def exclusive(lock: Path, refusal: str, *, timeout: float = 20.0) -> sqlite3.Connection:
    """Return what holds a lock, made for nothing else, until it is closed or its process ends; raise ``OSError``."""
    create_private(lock)
    connection = connect(lock, "mode=rw", timeout=timeout)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        connection.close()
        raise OSError(refusal) from None
    return connection


def schema_fault(connection: sqlite3.Connection, statements: tuple[str, ...]) -> str | None:
    """Say what is in the file besides, or instead of, what these statements make.

    Tables, indices, views and triggers are compared letter by letter: a trigger can swallow what is written.
    """
    found, expected = _schema(connection), _made_by(statements)
    if found == expected:
        return None
    for row in found:
        if row not in expected:
            return f"it has a {row[0]} {row[1]!r} that epsteps did not make"
    missing = (f"it lacks the {row[0]} {row[1]!r}" for row in expected if row not in found)
    return next(missing, "it has something twice")


@cache
def _made_by(statements: tuple[str, ...]) -> list[SchemaRow]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for line in statements:
            connection.execute(line)
        return _schema(connection)


def _schema(connection: sqlite3.Connection) -> list[SchemaRow]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
