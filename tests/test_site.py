"""The documentation site in a real browser, Debian's Chromium, on a wide and on a narrow screen: `make docs-check`.

Every page is opened from a server of its own. It must load nothing from elsewhere, say nothing in the console, fit the
screen, and each of its links must lead to a page, a file or a place of the site.
"""

import os
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest

SITE = Path(__file__).parent.parent / "docs" / "_build" / "html"
CHROMIUM = shutil.which("chromium")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make docs-check")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed"),
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built: make docs-check"),
]
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
HEIGHT, WIDTHS = 900, (1280, 390)
# Chromium leaks what it keeps of pages: one that opens hundreds is renewed now and then.
PAGES_A_BROWSER = 60
PATIENCE = 120_000  # milliseconds: thousands of formulas on a busy machine

LINKS = "() => [...document.querySelectorAll('a[href]')].map((link) => link.href)"
PLACES = "() => [...document.querySelectorAll('[id], a[name]')].flatMap((node) => [node.id, node.name].filter(Boolean))"
# What sticks out: content that is wider than its element, on the way down from the page, where nothing scrolls. The
# theme cuts such content off, so that the page itself is never too wide.
WIDER = """() => [...document.querySelectorAll('html, main, article, article *')]
    .filter((node) => node.clientWidth && node.scrollWidth > node.clientWidth + 1 && node.checkVisibility())
    .filter((node) => ['visible', 'hidden', 'clip'].includes(getComputedStyle(node).overflowX))
    .filter((node) => !node.closest('svg, mjx-container, .headerlink, .visually-hidden'))
    .slice(-3).map((node) => `${node.tagName}.${node.className}: ${node.textContent.trim().slice(0, 60)}`)"""


class QuietHandler(SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def pages() -> list[str]:
    """Return the paths of all pages, but those that Sphinx makes for itself."""
    found = (path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    return sorted(path for path in found if not path.startswith(("_static/", "_modules/")))


class Visit:
    """What was found on the pages at one width."""

    def __init__(self, address: str, width: int) -> None:
        self.address, self.width = address, width
        self.faults: list[str] = []
        self.links: dict[str, set[str]] = {}
        self.places: dict[str, set[str]] = {}

    def open_all(self, paths: list[str]) -> None:
        """Open the pages, in browsers that are renewed."""
        with sync_api.sync_playwright() as playwright:
            for begin in range(0, len(paths), PAGES_A_BROWSER):
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                page = browser.new_page(viewport={"width": self.width, "height": HEIGHT})
                page.set_default_timeout(PATIENCE)
                self._listen(page)
                for path in paths[begin : begin + PAGES_A_BROWSER]:
                    self._open(page, path)
                browser.close()

    def _listen(self, page) -> None:
        """Note what goes wrong on a page, and what it asks for."""

        def fault(text: str) -> None:
            self.faults.append(f"{page.url}: {text}")

        page.on("pageerror", lambda error: fault(str(error)))
        page.on("console", lambda said: said.type == "error" and fault(said.text))
        page.on("request", lambda asked: self._is_ours(asked.url) or fault(f"asks for {asked.url}"))
        page.on("response", lambda answer: answer.status >= 400 and fault(f"{answer.status} for {answer.url}"))

    def _is_ours(self, url: str) -> bool:
        return url.startswith((self.address, "data:", "blob:"))

    def _open(self, page, path: str) -> None:
        page.goto(f"{self.address}/{path}", wait_until="load")
        if page.locator("script[src*=mathjax]").count():
            page.evaluate("() => window.MathJax && MathJax.startup && MathJax.startup.promise")
        self.links[path] = set(page.evaluate(LINKS))
        self.places[path] = set(page.evaluate(PLACES))
        if wider := page.evaluate(WIDER):
            self.faults.append(f"{path} is wider than {self.width}: {wider}")

    def broken_links(self) -> list[str]:
        """Return links to pages, files or places that the site has not."""
        broken = []
        for path, links in self.links.items():
            for link in links:
                url, place = urldefrag(link)
                parsed = urlparse(url)
                if f"{parsed.scheme}://{parsed.netloc}" != self.address:
                    continue
                target = unquote(parsed.path).lstrip("/") or "index.html"
                known = self.places.get(target)
                if not (SITE / target).is_file() or (known is not None and place and unquote(place) not in known):
                    broken.append(f"{path}: {link}")
        return sorted(broken)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_opens_fits_and_leads_somewhere(address, width):
    visit = Visit(address, width)
    paths = pages()
    assert len(paths) > 100
    visit.open_all(paths)
    assert visit.faults == []
    assert visit.broken_links() == []


def test_the_visit_finds_what_is_wrong(address, tmp_path):
    """A page with a dead link, a dead place, a script that fails, a picture from elsewhere and a line without end."""
    name = f"_visit_{os.getpid()}.html"
    page = SITE / name
    page.write_text(
        "<!doctype html><main><a href='nothing.html'>a</a><a href='#nowhere'>b</a><p style='width: 4000px'>wide</p>"
        "<img src='http://127.0.0.2:9/x.png'><script>throw new Error('planted')</script></main>"
    )
    try:
        visit = Visit(address, 390)
        visit.open_all([name])
    finally:
        page.unlink()
    assert len(visit.broken_links()) == 2
    for text in ("planted", "asks for http://127.0.0.2:9/x.png", "is wider than 390"):
        assert any(text in fault for fault in visit.faults), (text, visit.faults)
