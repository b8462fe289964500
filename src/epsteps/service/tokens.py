"""Tokens: who may ask for what, and until when. The file keeps their hashes; a token itself is shown once."""

import base64
import hashlib
import hmac
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from epsteps.ledger import databases
from epsteps.noise.bits import secret_bytes
from epsteps.problem import validate
from epsteps.service.wire import Refusal

SCOPES = ("read", "plan", "session", "admin")
_BYTES = 32
_ANALYST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True)
class Token:
    """What is known of a token: its short name, whose it is, its SHA-256, what it is for, and when it ends."""

    id: str
    analyst: str
    sha256: str
    scopes: tuple[str, ...]
    expires: datetime

    def __post_init__(self) -> None:
        if not _ANALYST.fullmatch(self.analyst):
            raise ValueError(f"an analyst's name must be letters, digits and . _ @ -, got {self.analyst!r}.")
        if not self.scopes:
            raise ValueError("a token needs a scope: read, plan, session or admin.")
        for scope in self.scopes:
            validate.choice("scope", scope, SCOPES)
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"token {self.id!r} has no SHA-256.")
        if self.expires.tzinfo is None:
            raise ValueError(
                f"token {self.id!r} must say when it expires with its time zone, such as 2030-01-01T00:00Z."
            )

    def require(self, scope: str) -> None:
        """Refuse what the token is not for."""
        if scope not in self.scopes:
            raise Refusal(403, "narrower-token", f"this needs a token with the scope {scope!r}.", scope=scope)

    def to_toml(self) -> str:
        """Return the token's lines in the file."""
        facts = {"id": self.id, "analyst": self.analyst, "sha256": self.sha256, "scopes": list(self.scopes)}
        lines = [f"{name} = {json.dumps(value)}" for name, value in facts.items()]
        return "\n".join(["[[token]]", *lines, f"expires = {self.expires.isoformat()}"])


class Tokens:
    """The tokens of a file, read again when it changes: a revoked one is refused from then on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._listed: tuple[Token, ...] = ()
        self.listed()

    def listed(self) -> tuple[Token, ...]:
        """Return all tokens of the file."""
        found = self.path.stat()
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._stamp:
            self._listed, self._stamp = read(self.path), stamp
        return self._listed

    def of(self, header: str | None) -> Token:
        """Return whose token a header carries, or refuse it: all are compared, each in constant time."""
        scheme, _, secret = (header or "").partition(" ")
        sent, found = _hash(secret.strip()), None
        for token in self.listed():
            if hmac.compare_digest(token.sha256, sent):
                found = token
        if scheme.lower() != "bearer" or found is None or found.expires <= datetime.now(UTC):
            # The same for no token, a wrong one and one that has expired: what is wrong with it is nobody's business.
            raise Refusal(401, "unauthorised", "send a valid token: Authorization: Bearer ...")
        return found


def make(path: Path, analyst: str, scopes: Iterable[str], days: float) -> tuple[str, Token]:
    """Add a token to the file, which is made if there is none, and return it: nobody can tell it again."""
    secret = "eps_" + base64.urlsafe_b64encode(secret_bytes(_BYTES)).decode("ascii").rstrip("=")
    expires = (datetime.now(UTC) + timedelta(days=validate.positive("days", days))).replace(microsecond=0)
    hashed = _hash(secret)
    token = Token(hashed[:8], analyst, hashed, tuple(dict.fromkeys(scopes)), expires)
    with _alone(path):
        known = read(path) if path.exists() else ()
        _write(path, [*known, token])
    return secret, token


def revoke(path: Path, id: str) -> Token:
    """Remove a token from the file."""
    with _alone(path):
        known = read(path)
        gone = [token for token in known if token.id == id]
        if not gone:
            raise ValueError(f"there is no token {id!r} in {path}: see epsteps tokens list.")
        _write(path, [token for token in known if token.id != id])
    return gone[0]


def read(path: Path) -> tuple[Token, ...]:
    """Return the tokens of a file."""
    if not path.is_file():
        raise FileNotFoundError(f"there are no tokens {path}: make one with epsteps tokens make {path} NAME.")
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("token", [])
        return tuple(Token(**{**entry, "scopes": tuple(entry["scopes"])}) for entry in entries)
    except (tomllib.TOMLDecodeError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Become the only one who changes the file: what two change at once would lose a token, or bring one back."""
    path = databases.real_path(path)
    lock = path.with_name(f".{path.name}.lock")
    with closing(databases.exclusive(lock, f"somebody else is changing {path}. Try again.")):
        yield


def _write(path: Path, listed: Iterable[Token]) -> None:
    """Put the whole file in its place at once, for its owner alone."""
    path = databases.real_path(path)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    databases.create_private(part)
    part.write_text("\n\n".join(token.to_toml() for token in listed) + "\n", encoding="utf-8")
    os.replace(part, path)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", errors="surrogatepass")).hexdigest()
