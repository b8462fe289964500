"""Files that commands leave behind: opened before anything is spent, and written whole or not at all."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

FORCE = typer.Option(False, "--force", help="Replace files that are there already.")


class Output:
    """A file of this name, to be written once: until then it is another one beside it, which is there already.

    Whoever else wants to write the same file finds that one, and is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name}.part")
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
            os.fsync(file.fileno())
        os.replace(self._part, self.path)

    def discard(self) -> None:
        """Leave nothing behind, if nothing was written."""
        with suppress(OSError):
            self._file.close()
        self._part.unlink(missing_ok=True)


def require_free(paths: Sequence[Path], force: bool) -> None:
    """Raise if one of the files is there already, and is not to be replaced, or cannot be."""
    for path in paths:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: name another place with --out, or remove it first.")
        if not force and os.path.lexists(path):
            raise FileExistsError(f"{path} exists already: name another place with --out, or replace it with --force.")


@contextmanager
def opened(paths: Sequence[Path], force: bool) -> Iterator[list[Output]]:
    """Open files, and their folders, for what is written later; leave nothing behind of what is not."""
    require_free(paths, force)
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


def write(path: Path, text: str, *, force: bool) -> None:
    """Write one file, whole or not at all."""
    with opened([path], force) as (output,):
        output.write(text)


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder, and return those that were not there before, the outermost first."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]
