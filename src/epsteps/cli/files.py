"""Files that commands leave behind: opened before anything is spent, and written whole or not at all.

None replaces another one unasked, and none a ledger or a checkpoint at all.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from epsteps.ledger import databases


class Output:
    """A file of this name, to be written once: until then it is another one beside it, which is there already.

    Whoever else wants to write the same file finds that one, and is refused. Devices and pipes are written to as they
    are: they are never replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = databases.real_path(path)
        self._part = self.path.with_name(f".{self.path.name}.part")
        if _is_device(self.path):
            self._part, self._file = self.path, self.path.open("wb")
            return
        try:
            self._file = self._part.open("xb")
        except FileExistsError:
            raise FileExistsError(
                f"{path} is being written: {self._part} is there. Wait, or remove that file if no command is running."
            ) from None

    def write(self, text: str) -> None:
        """Put the whole text in its place at once, durably. What UTF-8 does not know is written as JSON writes it."""
        with self._file as file:
            file.write(text.encode("utf-8", errors="backslashreplace"))
            file.flush()
            with suppress(OSError):  # devices have nothing to make durable
                os.fsync(file.fileno())
        if self._part != self.path:
            os.replace(self._part, self.path)

    def discard(self) -> None:
        """Leave nothing behind, if nothing was written."""
        with suppress(OSError):
            self._file.close()
        if self._part != self.path:
            self._part.unlink(missing_ok=True)


def require_free(paths: Sequence[Path | None], force: bool, *, never: Path | None = None) -> None:
    """Raise if one of the files is there already, and is not to be replaced, or cannot be; best asked before long work.

    None stands for the screen, which is always free.

    Formal guarantee: with ``force`` or without, no file of SQLite that is a ledger or a checkpoint is replaced, and
    neither is ``never``, whatever names they go by.
    """
    for path in filter(None, paths):
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: name another place with --out, or remove it first.")
        if _holds_state(path, never):
            raise FileExistsError(
                f"{path} holds spent budget or secret noise (a ledger, a checkpoint, or a file beside one): it is "
                "never replaced. Name another file."
            )
        if not force and os.path.lexists(path) and not _is_device(path):
            raise FileExistsError(
                f"{path} exists, and was left as it is. Name another place with --out, or replace it with --force."
            )


def _is_device(path: Path) -> bool:
    """Whether something is there that is no file: a terminal, a pipe."""
    return path.exists() and not path.is_file()


def _holds_state(path: Path, never: Path | None) -> bool:
    """Whether this is a ledger, a checkpoint or a file beside one."""
    file = databases.real_path(path)
    if never is not None and file.exists() and never.exists() and os.path.samefile(file, never):
        return True
    owners = [file.with_name(file.name.removesuffix(end)) for end in databases.SIDECARS if file.name.endswith(end)]
    return any(owner.is_file() and _is_state(owner) for owner in (file, *owners))


def _is_state(path: Path) -> bool:
    try:
        return path.stat().st_size > 0 and databases.application_id(path) in (databases.LEDGER, databases.CHECKPOINT)
    except sqlite3.Error:
        return False


@contextmanager
def opened(paths: Sequence[Path], force: bool, *, never: Path | None = None) -> Iterator[list[Output]]:
    """Open files, and their folders, for what is written later; leave nothing behind of what is not."""
    require_free(paths, force, never=never)
    made: list[Path] = []
    outputs: list[Output] = []
    try:
        for path in paths:
            made += _make_folder(path.parent)
            outputs.append(Output(path))
        yield outputs
    finally:
        for output in outputs:
            output.discard()
        for folder in reversed(made):
            with suppress(OSError):  # something was written to it
                folder.rmdir()


def write(path: Path, text: str, *, force: bool, never: Path | None = None) -> None:
    """Write one file, whole or not at all."""
    with opened([path], force, never=never) as (output,):
        output.write(text)


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder, and return those that were not there before, the outermost first."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]
