"""Pages of the repository that stand outside of docs/, on the site too; and links that lead right in both places.

Copies of those pages are made at each build, in docs/repository/, which git ignores. A link of a page is resolved where
the page is stored. What it leads to is then linked from where the page is read.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
COPIES = DOCS / "repository"
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "benchmarks/results/**/*.md")
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^(```|~~~).*?^\1", flags=re.MULTILINE | re.DOTALL)
ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$', flags=re.MULTILINE)


def stored() -> list[Path]:
    """Return the pages outside of docs/, relative to the repository."""
    return sorted(path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern))


def copy_pages(app: Sphinx, config: Any) -> None:
    """Write the copies anew."""
    shutil.rmtree(COPIES, ignore_errors=True)
    for path in stored():
        (COPIES / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, COPIES / path)


def place_on_site(path: Path) -> Path:
    """Return where the file of the repository is read: its copy, if it has one."""
    return COPIES / path.relative_to(ROOT) if path.relative_to(ROOT) in stored() else path


def led(text: str, origin: Path, place: Path) -> str:
    """Return the text of a page that is stored at origin and read at place, with links that lead from there."""

    def moved(link: re.Match[str]) -> str:
        target = (origin.parent / link[1]).resolve()
        if not target.is_relative_to(ROOT):
            raise ValueError(f"{origin}: {link[1]} leads out of the repository.")
        return os.path.relpath(place_on_site(target), place.parent) + (link[2] or "")

    parts, end = [], 0
    for fence in FENCE.finditer(text):  # code is left as it is
        parts += [LINK.sub(moved, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(moved, text[end:])])


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Mend a page's links, make targets of its HTML anchors and formulas of its math, and title a table without one."""
    place = Path(app.env.doc2path(docname))
    if place.suffix != ".md":
        return
    origin = ROOT / place.relative_to(COPIES) if place.is_relative_to(COPIES) else place
    text = ANCHOR.sub(r"(\1)=", led(source[0], origin, place)).replace("\n```math\n", "\n```{math}\n")
    source[0] = text if re.match(r"# ", text) else f"# {origin.relative_to(ROOT).with_suffix('')}\n\n{text}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("config-inited", copy_pages)
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
