"""Names of datasets: two that people cannot tell apart would be two budgets for the same records."""

import re
import unicodedata
from collections.abc import Mapping

from epsteps.ledger.books import Book

# Letters and marks that print nothing (Unicode's Default_Ignorable_Code_Point, and the empty braille cell), of those
# that count as printable.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def require_plain(name: str) -> None:
    """Refuse a new name that has a second spelling: with spaces around it, composed otherwise, or not printable."""
    plain = unicodedata.normalize("NFC", name).strip()
    if not plain.isprintable():
        raise ValueError(f"name must have printable characters only, got {name!a}.")
    if name != plain:
        raise ValueError(
            f"name must be composed (Unicode NFC) and have no spaces around it, got {name!a}. Use {plain!a} instead."
        )


def require_new(name: str, books: Mapping[str, Book]) -> None:
    """Refuse a name that exists, or that looks like one that does."""
    if name in books:
        raise ValueError(f"dataset {name!r} exists, with {books[name].budget}: a budget is declared once.")
    for other, book in books.items():
        if _look(other) == _look(name):
            raise ValueError(
                f"dataset {name!a} looks like {other!a}, which exists, with {book.budget}: a budget is "
                "declared once. Use a name that is easily told from it."
            )


def _look(name: str) -> str:
    """Return what names have in common that look alike: compatibility forms, capitals, spaces and invisible marks."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    visible = "".join(character for character in text if character.isprintable() or character.isspace())
    return " ".join(_INVISIBLE.sub("", visible).split())
