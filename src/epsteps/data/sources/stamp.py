"""Files that must stay as they are while they are read again and again."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stamp:
    """Size and time of a file when it was opened."""

    path: Path
    size: int
    time: int

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        """Return the stamp of a file that is there, or raise."""
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}.")
        status = path.stat()
        return cls(path, status.st_size, status.st_mtime_ns)

    def require_same(self) -> None:
        """Raise if the file is another one by now."""
        if Stamp.of(self.path) != self:
            raise OSError(f"{self.path} has changed since it was opened: make new Rows of it.")
