"""The holder's pages in a real browser, Debian's Chromium: with a mouse, by keyboard, and without scripts."""

import shutil

import numpy as np
import pytest
from service_kit import make_site, serving

import epsteps as es

CHROMIUM = shutil.which("chromium")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed"),
]
WIDTHS = (1280, 390)
# The policy opens small sessions by itself; every plan waits for a person.
POLICY = {"sessions": {"per_session": 0.5}, "allowances": {"alice": 40.0}}


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = make_site(tmp_path_factory.mktemp("dashboard"), es.Pure(100.0), policy=POLICY)
    with serving(site):
        yield site


@pytest.fixture
def people(site):
    return site.people()


def plan(people, epsilon=1.0):
    return es.plan(people.problem(0.1), es.Pure(epsilon), es.nesterov, iterations=3)


def signed_in(chromium, site, width, **options):
    page = chromium.new_page(viewport={"width": width, "height": 800}, **options)
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    page.goto(site.admin_url)
    page.get_by_label("A token with the scope").fill(site.secrets["admin"])
    page.get_by_role("button", name="Sign in").click()
    sync_api.expect(page.get_by_role("heading", level=1)).to_have_text("Datasets")
    page.wait_for_load_state()  # and how it looks
    return page


def spent(page):
    """Return how wide the bar of what is spent is, in pixels, and the number beside it."""
    width = page.locator("section.card svg.budget rect.spent").bounding_box()["width"]
    return width, float(page.locator("data.spent").get_attribute("value"))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_person_approves_and_watches_the_budget_move(chromium, site, people, width):
    posted = people.submit(plan(people, 10.0), anyway=True)
    page, watching = (signed_in(chromium, site, width) for _ in range(2))
    bar, before = spent(watching)
    page.get_by_role("link", name="Queue").click()
    page.get_by_role("link", name=f"Review plan {posted.id[:8]} of alice").click()
    assert "Plan: nesterov, 3 steps" in page.locator(".certified").inner_text()
    assert page.locator(".certified").evaluate("part => part.scrollWidth <= part.clientWidth")
    page.get_by_role("button", name="Approve").click()
    sync_api.expect(page.get_by_role("status")).to_have_text("Approved. It was a plan of alice.")
    assert posted.result().path.shape == (4, people.problem(0.1).dimension)
    # Nobody touches the other page: it asks for news itself.
    sync_api.expect(watching.locator("data.spent")).not_to_have_attribute("value", str(before), timeout=15_000)
    wider, after = spent(watching)
    assert after == pytest.approx(before + 10.0)
    assert wider == pytest.approx(
        bar + 0.1 * watching.locator("section.card svg.budget").bounding_box()["width"], abs=2
    )
    assert "up to date" in watching.get_by_role("status").inner_text()
    assert page.faults == watching.faults == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_person_refuses_and_the_analyst_is_told_why(chromium, site, people, width):
    posted = people.submit(plan(people), anyway=True)
    page = signed_in(chromium, site, width)
    before = spent(page)
    page.goto(f"{site.admin_url}/requests/{posted.id}")
    page.get_by_label("Reason").fill("not this year")
    # News do not take away what is being typed.
    page.wait_for_timeout(5000)
    assert page.get_by_label("Reason").input_value() == "not this year"
    page.get_by_role("button", name="Refuse").click()
    sync_api.expect(page.get_by_role("status")).to_have_text("Refused. It was a plan of alice.")
    with pytest.raises(ValueError, match="not this year"):
        posted.result()
    page.goto(site.admin_url)
    assert spent(page) == before
    assert page.faults == []


def test_everything_works_by_keyboard_alone(chromium, site, people):
    posted = people.submit(plan(people), anyway=True)
    page = signed_in(chromium, site, 1280)
    page.goto(f"{site.admin_url}/queue")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main"
    page.keyboard.press("Enter")

    def reach(name):
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == name:
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline == "solid"
                return
        raise AssertionError(f"{name} cannot be reached")

    reach(f"review-{posted.id}")
    # What has the focus keeps it when news arrive.
    another = people.submit(plan(people), anyway=True)
    page.wait_for_selector(f"#review-{another.id}", timeout=15_000)
    assert page.evaluate("document.activeElement.id") == f"review-{posted.id}"
    page.keyboard.press("Enter")
    page.wait_for_url("**/requests/*")
    reach("approve")
    page.keyboard.press("Enter")
    page.wait_for_url("**/queue")
    assert np.isfinite(posted.result().x).all()
    another.withdraw()


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_works_without_scripts(chromium, site, people, width):
    page = signed_in(chromium, site, width, java_script_enabled=False)
    posted = people.submit(plan(people), anyway=True)
    page.get_by_role("link", name="load it again").click()
    page.get_by_role("link", name="Queue").click()
    page.get_by_role("link", name=f"Review plan {posted.id[:8]} of alice").click()
    page.get_by_role("button", name="Approve").click()
    posted.result()
    page.get_by_role("link", name="Tokens").click()
    page.get_by_label("Whose").fill(f"carol-{width}")
    page.get_by_label("session").uncheck()
    page.get_by_role("button", name="Make it").click()
    secret = page.get_by_label("Token", exact=True).input_value()
    assert secret.startswith("eps_")
    with site_of(site, secret) as connection:
        assert list(connection) == ["people"]
    row = page.get_by_role("row", name=f"carol-{width}")
    row.get_by_role("button", name="Revoke").click()
    sync_api.expect(page.get_by_role("status")).to_contain_text("Revoked token")
    with site_of(site, secret) as connection, pytest.raises(ValueError, match="valid token"):
        list(connection)
    page.get_by_role("link", name="Chain").click()
    page.get_by_role("button", name="Verify").click()
    sync_api.expect(page.get_by_role("status")).to_contain_text(site.verify())
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")


def site_of(site, secret):
    return es.connect(site.url, token=secret)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_screen_and_texts_can_be_read(chromium, site, people, width, scheme):
    posted = people.submit(plan(people), anyway=True)
    page = signed_in(chromium, site, width, color_scheme=scheme)
    for path in ("/", "/queue", f"/requests/{posted.id}", "/history", "/history?answers=1", "/chain", "/tokens"):
        page.goto(site.admin_url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
    assert page.faults == []
    posted.withdraw()


# Texts whose colour has less contrast with what is behind them than WCAG 2 asks of small ones (AA): 4.5.
CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = rgb(getComputedStyle(node).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility()) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${node.tagName}.${node.className}: ${ratio.toFixed(2)}`);
  }
  return faint;
}"""


def test_a_page_says_that_the_service_is_gone(chromium, tmp_path):
    site = make_site(tmp_path / "gone", es.Pure(1.0), policy=POLICY)
    with serving(site):
        page = signed_in(chromium, site, 1280)
        assert page.locator("#lost").is_hidden()
    sync_api.expect(page.locator("#lost")).to_be_visible(timeout=15_000)
