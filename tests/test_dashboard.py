"""The holder's pages: whole without scripts, escaped, with forms that nobody else can send."""

import asyncio
import hashlib
import re
import threading
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from service_kit import holder_of, make_site
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app
from epsteps.noise.bits import public_generator
from epsteps.plans import notation
from epsteps.service import overview, pages, tokens
from epsteps.service.store import Store
from epsteps.service.wire import dumped, point_text
from epsteps.tables.model import problem_of

pytest.importorskip("fastapi")
TestClient = pytest.importorskip("starlette.testclient").TestClient

from epsteps.service.admin import admin_app  # noqa: E402
from epsteps.service.server import Desk  # noqa: E402

ORIGIN = "http://127.0.0.1"
PAGES = ("/", "/queue", "/history", "/history?answers=1", "/chain", "/tokens")
POLICY = {"sessions": {"per_session": 0.5}, "allowances": {"bob": 2.0}}
VOID = {"meta", "link", "input", "br", "rect", "path"}


class Page(HTMLParser):
    """A page as its elements: tag, attributes, and the text inside."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", "inside": [each["tag"] for each in self._open], **dict(attrs)}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop()["tag"] == tag

    def handle_data(self, data):
        self.text += data
        for element in self._open:
            element["text"] += data

    def all(self, tag, **attributes):
        return [
            element
            for element in self.elements
            if element["tag"] == tag and all(element.get(name) == value for name, value in attributes.items())
        ]

    def form(self, action):
        """Return what a browser would send of the one form with this action."""
        (form,) = self.all("form", action=action, method="post")
        begun = self.elements.index(form)
        fields = {}
        for element in self.elements[begun + 1 :]:
            if "form" not in element["inside"]:
                break
            if element["tag"] == "input" and (element.get("type") != "checkbox" or "checked" in element):
                fields.setdefault(element["name"], []).append(element.get("value", ""))
        return fields


class House:
    """A service's files, the process that reads records as an object, and a browser without scripts."""

    def __init__(self, folder, budget=None):
        self.site = make_site(folder, budget or es.Pure(4.0), policy=POLICY)
        self.holder = holder_of(folder, es.Pure(4.0), policy=POLICY)
        self.desk = Desk(self.site.setup, self.site.tokens)
        self.desk.n, self.desk.tick, self.desk.job_tick = 500, 0.01, 1.0
        self.desk.ready.set()
        self.problem = problem_of(self.holder.schema, self.holder.n, 0.1)
        self.keys = iter(range(1000))

    def ask(self, kind, content, analyst="alice", session=None):
        key = str(next(self.keys))
        request, _ = self.holder.store.ask(analyst, key, kind, key, dumped(content), session=session)
        return self.holder.handle(request.id)

    def plan(self, epsilon=1.0, analyst="alice"):
        plan = es.plan(self.problem, es.Pure(epsilon), es.nesterov, iterations=3)
        return self.ask("plan", {"plan": plan.to_json(), "anyway": True}, analyst)

    def session(self, epsilon=0.5, analyst="alice"):
        content = {"problem": notation.problem_to_dict(self.problem), "allowance": es.Pure(epsilon).to_dict()}
        return self.ask("session", content, analyst)

    def gradient(self, session, cost=0.1):
        x = point_text(np.zeros(self.problem.dimension))
        return self.ask("gradient", {"x": x, "cost": cost}, session.analyst, session.id)

    def state(self, request):
        return self.holder.store.request(request.id).state


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path / "house")
    yield house
    house.holder.store.close()


@pytest.fixture
def client(house):
    with TestClient(admin_app(house.desk), base_url=ORIGIN) as client:
        yield client


@pytest.fixture
def browser(house, client):
    """A browser that is signed in."""
    reply = client.post("/login", data={"token": house.site.secrets["admin"]})
    assert (reply.status_code, reply.url.path) == (200, "/")
    return client


def seen(browser, path):
    reply = browser.get(path)
    assert reply.status_code == 200, reply.text
    return Page(reply.text)


def send(browser, page, action, **typed):
    """Send a form as a browser does, and return the page to which it leads."""
    reply = browser.post(action, data=page.form(action) | typed, headers={"Origin": ORIGIN})
    assert reply.status_code == 200, reply.text
    assert [each.status_code for each in reply.history] == [303]
    return Page(reply.text)


def numbers(page):
    """Return what is spent, promised and left of the dataset."""
    return [float(element["value"]) for element in page.all("data")[:3]]


def test_nothing_is_shown_without_a_token_of_the_holder(house, client):
    for path in (*PAGES, "/requests/0"):
        reply = client.get(path, follow_redirects=False)
        assert (reply.status_code, reply.headers["location"]) == (303, "/login")
        # A page that was open sends its browser there, too.
        assert client.get(path, headers={"HX-Request": "true"}).headers["hx-redirect"] == "/login"
    for secret in ("", "eps_nothing", house.site.secrets["alice"]):
        reply = client.post("/login", data={"token": secret})
        assert reply.status_code in (401, 403)
        assert pages.COOKIE not in client.cookies
        assert secret == "" or secret not in reply.text


def test_a_sitting_ends_with_its_token_and_when_one_signs_out(house, browser):
    cookie = browser.cookies[pages.COOKIE]
    send(browser, seen(browser, "/"), "/logout")
    browser.cookies.set(pages.COOKIE, cookie, domain="127.0.0.1")
    assert browser.get("/", follow_redirects=False).status_code == 303
    browser.post("/login", data={"token": house.site.secrets["admin"]})
    assert seen(browser, "/").all("h1")[0]["text"] == "Datasets"
    (listed,) = [token for token in tokens.read(house.site.tokens) if "admin" in token.scopes]
    tokens.revoke(house.site.tokens, listed.id)
    assert browser.get("/", follow_redirects=False).headers["location"] == "/login"


def test_the_cookie_is_for_this_app_alone(house, client):
    reply = client.post("/login", data={"token": house.site.secrets["admin"]}, follow_redirects=False)
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert house.site.secrets["admin"].lower() not in cookie


def test_forms_of_others_are_refused(house, browser):
    waiting = house.plan()
    action = f"/requests/{waiting.id}/approve"
    fields = seen(browser, f"/requests/{waiting.id}").form(action)
    assert browser.post(action, data={"form": "0" * 64}).status_code == 403
    assert browser.post(action).status_code == 403
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
    ):
        assert browser.post(action, data=fields, headers=headers).status_code == 403, headers
    assert browser.get(action).status_code == 405
    assert house.state(waiting) == "waiting"
    # What a form must carry belongs to one sitting.
    browser.post("/login", data={"token": house.site.secrets["admin"]})
    assert browser.post(action, data=fields).status_code == 403
    assert house.state(waiting) == "waiting"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8441", "127.0.0.1.evil.example"])
def test_other_names_of_this_machine_are_refused(browser, host):
    assert browser.get("/", headers={"Host": host}).status_code == 400
    assert browser.get("/metrics", headers={"Host": host}).status_code == 400
    assert browser.get("/metrics", headers={"Host": "localhost:8441"}).status_code == 200


@pytest.mark.parametrize("path", [*PAGES, "/login"])
def test_pages_load_nothing_but_this_apps_files_and_hold_no_scripts(house, browser, path):
    house.plan()
    reply = browser.get(path)
    page = Page(reply.text)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["cache-control"] == "no-store"
    for script in page.all("script"):
        assert script["text"] == ""
        assert script["src"].startswith("/static/")
    assert page.all("style") == []
    for element in page.elements:
        assert not [name for name in element if name.startswith("on") or name == "style"], element
    for name in {element.get("src") or element.get("href") for element in page.elements} - {None}:
        assert name.startswith(("/", "#"))
        if name.startswith("/static/"):
            assert browser.get(name).status_code == 200
    assert browser.get("/static/../pages.py").status_code == 404
    assert browser.get("/static/README.md").status_code == 404


@pytest.mark.parametrize("path", [*PAGES, "/login", "/requests/{id}"])
def test_pages_can_be_read_aloud_and_used_by_keyboard(house, browser, path):
    request = house.plan()
    house.gradient(house.session())
    page = seen(browser, path.replace("{id}", request.id))
    assert page.all("html", lang="en")
    assert len(page.all("h1")) == len(page.all("main")) == 1
    assert page.all("title")[0]["text"].strip()
    ids = [element["id"] for element in page.elements if "id" in element]
    assert len(ids) == len(set(ids))
    labelled = {label.get("for") for label in page.all("label")}
    for field in page.all("input"):
        assert field.get("type") == "hidden" or field.get("id") in labelled or "label" in field["inside"], field
    for table in page.all("table"):
        assert page.elements[page.elements.index(table) + 1]["tag"] == "caption"
    assert all(header.get("scope") in ("col", "row") for header in page.all("th"))
    assert all(picture.get("aria-label") for picture in page.all("svg"))
    assert all(element["text"].strip() for tag in ("a", "button", "h1", "h2", "legend") for element in page.all(tag))
    assert all(element.get("tabindex", "0") in ("0", "-1") for element in page.elements)
    for section in page.all("section"):
        assert section["aria-labelledby"] in ids
    if path != "/login":
        assert page.all("nav")[0]["aria-label"]
        assert len([link for link in page.all("a") if link.get("aria-current") == "page"]) == 1
        assert page.all("p", role="status")[0]["aria-live"] == "polite"
        assert page.elements[page.elements.index(page.all("body")[0]) + 1]["href"] == "#main"


def test_a_person_sees_what_it_costs_and_what_is_left_and_approves(house, browser):
    waiting = house.plan(1.0)
    page = seen(browser, "/queue")
    assert page.all("span", id="count")[0]["text"] == "1"
    (link,) = page.all("a", id=f"review-{waiting.id}")
    page = seen(browser, link["href"])
    assert page.all("div", **{"class": "certified"})[0]["text"].split() == waiting.page.split()
    assert page.all("dt")[0]["text"] == "Guarantee"
    assert "age, region" in page.text
    assert "bought" in page.text
    cells = {cell["data-label"]: cell["text"] for cell in page.all("td") if "data-label" in cell}
    assert (cells["Left now"], cells["Left afterwards"]) == ("4", "3")
    assert numbers(seen(browser, "/")) == pytest.approx([0.0, 0.0, 4.0])
    page = send(browser, page, f"/requests/{waiting.id}/approve")
    assert page.all("p", role="status")[0]["text"] == "Approved. It was a plan of alice."
    assert house.state(waiting) == "approved"
    assert numbers(seen(browser, "/")) == pytest.approx([0.0, 1.0, 4.0])
    house.holder.handle(waiting.id)
    assert numbers(seen(browser, "/")) == pytest.approx([1.0, 0.0, 3.0])
    page = seen(browser, "/history")
    row = " ".join(page.all("tr")[1]["text"].split())
    assert re.search(r"plan \w{8} alice .* UTC pure epsilon = 1 pure epsilon = 1 approved by holder published", row)
    # Once it is told, it is told: the page does not say it again.
    assert seen(browser, "/queue").all("p", role="status")[0]["text"] == ""


def test_a_person_refuses_with_a_reason_that_the_analyst_is_told(house, browser):
    waiting = house.plan(1.0)
    page = seen(browser, f"/requests/{waiting.id}")
    send(browser, page, f"/requests/{waiting.id}/refuse", reason="not <this> year & never")
    assert b"not <this> year & never" in house.holder.store.request(waiting.id).answer
    page = seen(browser, f"/requests/{waiting.id}")
    assert "not <this> year & never" in page.text
    assert page.all("button", id="approve") == []
    # Too late: nothing changes, and the page says so.
    reply = browser.post(f"/requests/{waiting.id}/approve", data={"form": page.form("/logout")["form"]})
    assert "Nothing was changed: it does not wait any more." in Page(reply.text).text
    assert house.state(waiting) == "refused"
    assert browser.get("/requests/nothing").status_code == 404


def test_accounts_count_what_is_spent_and_what_is_promised(house, browser):
    session = house.session(0.5, "bob")
    house.gradient(session, 0.1)
    house.gradient(session, 0.1)
    page = seen(browser, "/")
    assert numbers(page) == pytest.approx([0.2, 0.3, 3.8], rel=1e-9)
    rows = {row["text"].split()[0]: row["text"].split()[1:] for row in page.all("tr")[1:]}
    assert rows["bob"] == ["0.2", "0.3", "1.8", "2"]
    assert rows["alice"][-4:] == ["0", "0", "–", "–"]
    assert "2 answers" in seen(browser, "/history").text
    assert len(seen(browser, "/history?answers=1").all("tr")) == 4
    house.holder.store.move(session, "withdrawn", by="bob")
    assert numbers(seen(browser, "/")) == pytest.approx([0.2, 0.0, 3.8], rel=1e-9)


def test_what_would_not_fit_is_said_before_it_is_approved(house, browser):
    first, second = house.plan(2.5), house.plan(2.5)
    for request in (first, second):
        house.holder.store.move(request, "approved", by="holder")
    page = seen(browser, "/")
    assert numbers(page) == pytest.approx([0.0, 5.0, 4.0])
    assert "More is promised" in page.text
    third = house.plan(1.5, "bob")
    house.holder.handle(first.id)
    assert "does not fit" not in seen(browser, f"/requests/{third.id}").text
    house.holder.handle(second.id)
    assert house.state(second) == "refused"
    fourth = house.plan(1.5, "bob")
    house.holder.store.move(third, "approved", by="holder")
    house.holder.handle(third.id)
    page = seen(browser, f"/requests/{fourth.id}")
    assert page.text.count("does not fit") == 2  # the dataset's budget, and bob's allowance
    assert numbers(seen(browser, "/")) == pytest.approx([4.0, 0.0, 0.0], abs=1e-9)


HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\u202eevil\x07"


def test_whatever_anybody_wrote_is_escaped(house, browser):
    store = house.holder.store
    body = {"columns": [HOSTILE], "target": HOSTILE, "plan": "", "anyway": True}
    request, _ = store.ask("mallory", "1", "plan", "1", dumped(body))
    store.move(request, "waiting", by=HOSTILE, page=HOSTILE, price=es.Pure(1.0))
    for path in (*PAGES, f"/requests/{request.id}"):
        text = browser.get(path).text
        assert "<img" not in text
        assert "<script>" not in text
        assert "\u202e" not in text
        assert "\x07" not in text
        Page(text)
    page = seen(browser, f"/requests/{request.id}")
    assert (
        HOSTILE.replace("\u202e", "\\u202e").replace("\x07", "\\u0007")
        in page.all("div", **{"class": "certified"})[0]["text"]
    )


def test_a_page_that_is_open_is_sent_what_is_new_and_nothing_else(house, browser):
    page = seen(browser, "/queue")
    (live,) = page.all("div", id="live")
    assert re.fullmatch(r"every \d+s", live["hx-trigger"])
    mark = re.fullmatch(r'{"seen": "(\w+)"}', live["hx-vals"])[1]
    ask = {"url": live["hx-get"], "headers": {"HX-Request": "true"}}
    assert browser.get(**ask, params={"seen": mark}).status_code == 204
    waiting = house.plan()
    news = browser.get(**ask, params={"seen": mark})
    part = Page(news.text)
    assert part.all("main") == []
    assert part.all("a", id=f"review-{waiting.id}")
    assert part.all("span", id="count")[0]["text"] == "1"
    assert "1 request waits for a decision." in part.all("p", id="status")[0]["text"]
    # What is new has the same shape as on a page that is loaded anew, and its own mark.
    (again,) = part.all("div", id="live")
    assert again["hx-vals"] == seen(browser, "/queue").all("div", id="live")[0]["hx-vals"] != live["hx-vals"]


def test_tokens_are_made_shown_once_and_revoked(house, browser):
    page = seen(browser, "/tokens")
    assert page.form("/tokens")["scope"] == ["read", "plan", "session"]
    page = send(browser, page, "/tokens", analyst="carol", scope=["read"], days="7")
    (shown,) = page.all("input", id="secret")
    secret = shown["value"]
    token = house.desk.tokens.of(f"Bearer {secret}")
    assert (token.analyst, token.scopes) == ("carol", ("read",))
    assert secret not in browser.get("/tokens").text
    assert secret not in house.site.tokens.read_text()
    page = send(browser, seen(browser, "/tokens"), f"/tokens/{token.id}/revoke")
    assert f"Revoked token {token.id} of carol." in page.text
    assert token.id not in [each.id for each in tokens.read(house.site.tokens)]


def test_tokens_that_were_made_and_revoked_are_rows_of_the_chain(house, browser):
    """Those of other programs are, too, when the service next looks: before what is asked with them."""

    def rows():
        return [(event.analyst, event.decision) for event in house.holder.store.events() if event.what == "token"]

    first = tokens.read(house.site.tokens)
    page = send(browser, seen(browser, "/tokens"), "/tokens", analyst="carol", scope=["read", "plan"], days="7")
    secret = page.all("input", id="secret")[0]["value"]
    carol = house.desk.tokens.of(f"Bearer {secret}")
    send(browser, seen(browser, "/tokens"), f"/tokens/{carol.id}/revoke")
    assert [name for name, _ in rows()[: len(first)]] == [token.analyst for token in first]
    assert all(" made by the file of tokens: " in decision for _, decision in rows()[: len(first)])
    assert rows()[len(first) :] == [
        ("carol", f"{carol.id} made by holder: read, plan until {carol.expires}"),
        ("carol", f"{carol.id} revoked by holder"),
    ]
    # Another program changes the file; the desk that starts next, with no memory of its own, says so once.
    _, dave = tokens.make(house.site.tokens, "dave", ["read"], 1)
    before = len(rows())
    for _ in range(2):
        asyncio.run(Desk(house.site.setup, house.site.tokens).note_tokens())
    assert rows()[before:] == [("dave", f"{dave.id} made by the file of tokens: read until {dave.expires}")]
    text = house.site.tokens.read_text()
    house.site.tokens.write_text(text.replace(f"{dave.expires:%Y}-", "2099-"))
    asyncio.run(Desk(house.site.setup, house.site.tokens).note_tokens())
    assert (f"{dave.id} changed by the file of tokens: read until 2099-") in rows()[-1][1]
    assert not any(secret in str(event) or carol.sha256 in str(event) for event in house.holder.store.events())
    house.holder.store.verify(house.holder.ledger)


@pytest.mark.parametrize(
    "typed",
    [
        {"analyst": "<b>", "days": "7"},
        {"analyst": "carol", "days": "soon"},
        {"analyst": "carol", "days": "nan"},
        {"analyst": "carol", "days": "1e99"},
        {"analyst": "carol", "days": "7", "scope": []},
        {"analyst": "carol", "days": "7", "scope": ["root"]},
    ],
)
def test_tokens_that_make_no_sense_are_not_made(house, browser, typed):
    before = house.site.tokens.read_text()
    page = send(browser, seen(browser, "/tokens"), "/tokens", **typed)
    assert "No token was made" in page.text
    assert house.site.tokens.read_text() == before


def test_the_chain_is_listed_whole_and_verified(house, browser):
    session = house.session()
    for _ in range(20):
        house.gradient(session, 0.01)
    events = house.holder.store.events()
    found, path = [], "/chain"
    while path:
        page = seen(browser, path)
        found += [int(row["text"]) for row in page.all("th", scope="row")]
        path = next((link["href"] for link in page.all("a", id="older")), None)
    assert found == [event.seq for event in events][::-1]
    assert len(found) > overview.PAGE
    assert events[-1].hash in seen(browser, "/chain").text
    page = send(browser, seen(browser, "/chain"), "/chain/verify")
    assert "Everything agrees" in page.text
    assert events[-1].hash in page.all("p", role="status")[0]["text"]


def test_a_chain_that_was_changed_is_said_not_to_be_trusted(house, browser):
    house.plan()
    house.holder.store._connection.execute("UPDATE audit SET analyst = 'mallory' WHERE seq = 1")
    page = send(browser, seen(browser, "/chain"), "/chain/verify")
    assert "NOT TO BE TRUSTED" in page.text


@pytest.mark.parametrize("by", ["page", "command"])
def test_what_is_written_while_the_chains_are_read_is_no_fault(house, browser, monkeypatch, by):
    session = house.session()
    read, snapshot, answered = es.Ledger.entries, Store._snapshot, []

    def answer():
        mine, house.holder = house.holder, holder_of(house.site.folder, es.Pure(4.0), policy=POLICY)
        answered.append(house.gradient(session, 0.01).state)
        house.holder.store.close()
        house.holder = mine

    def entries(ledger):
        """Answer a request after each reading of the ledger, and after that of the chain."""
        found = read(ledger)
        answer()
        return found

    def taken(store):
        found = snapshot(store)
        answer()
        return found

    monkeypatch.setattr(es.Ledger, "entries", entries)
    monkeypatch.setattr(Store, "_snapshot", taken)
    if by == "page":
        page = send(browser, seen(browser, "/chain"), "/chain/verify")
        assert "Everything agrees" in page.text
    else:
        result = CliRunner().invoke(app, ["ledger", "verify", house.site.setup.ledger])
        assert result.exit_code == 0, result.output
    assert len(answered) >= 3
    assert set(answered) == {"published"}


def test_nothing_is_approved_by_a_service_that_has_stopped(house, browser):
    waiting = house.plan()
    page = seen(browser, f"/requests/{waiting.id}")
    house.desk.stopped.set()
    page = send(browser, page, f"/requests/{waiting.id}/approve")
    assert "Nothing was changed: the service has stopped." in page.text
    assert house.state(waiting) == "waiting"
    headers = {"Authorization": f"Bearer {house.site.secrets['admin']}"}
    assert browser.post(f"/v1/requests/{waiting.id}/approve", headers=headers).status_code == 503
    assert house.state(waiting) == "waiting"


def test_what_is_approved_while_the_service_stops_is_said_to_be_approved(house, browser, monkeypatch):
    """It is on the disk then, and goes on at the next start."""
    waiting, moved = house.plan(), Store.move

    def move(store, *arguments, **facts):
        house.desk.stopped.set()
        return moved(store, *arguments, **facts)

    monkeypatch.setattr(Store, "move", move)
    page = send(browser, seen(browser, f"/requests/{waiting.id}"), f"/requests/{waiting.id}/approve")
    assert "Approved." in page.text
    assert house.state(waiting) == "approved"


def test_metrics_read_the_ledger_outside_the_event_loop(house, browser, monkeypatch):
    house.plan()
    read, threads = es.Ledger.book, []

    def book(ledger, name):
        threads.append(threading.current_thread().name)
        return read(ledger, name)

    monkeypatch.setattr(es.Ledger, "book", book)
    text = browser.get("/metrics").text
    assert threads
    assert all(name.startswith("store") for name in threads)
    assert 'epsteps_requests{state="waiting"} 1' in text
    assert 'epsteps_requests{state="refused"} 0' in text


def test_history_goes_back_to_the_first_request(house, browser):
    for _ in range(overview.PAGE + 3):
        house.holder.store.ask("alice", f"k{next(house.keys)}", "plan", "d", b"{}")
    page = seen(browser, "/history")
    assert len(page.all("tr")) == 1 + overview.PAGE
    (older,) = page.all("a", id="older")
    assert len(seen(browser, older["href"]).all("tr")) == 1 + 3
    assert browser.get("/history?before=nonsense").status_code == 200


def test_results_that_are_not_visible_yet_are_not_shown_as_published(house, browser):
    waiting = house.plan()
    request = house.holder.store.move(waiting, "approved", by="holder")
    house.holder.store.move(request, "published", status=200, answer=b"{}", visible=4e9)
    assert seen(browser, f"/requests/{waiting.id}").all("span", **{"class": "state running"})


def test_lists_leave_out_bodies_and_answers(house):
    request = house.gradient(house.session())
    (listed,) = house.holder.store.listed(kinds=("gradient",), latest=5)
    assert (listed.id, listed.body, listed.answer) == (request.id, b"", None)
    assert listed._replace(body=request.body, answer=request.answer) == request


def test_htmx_is_the_file_that_its_page_says():
    folder = Path(pages.__file__).parent / "dashboard" / "static"
    about = (folder / "README.md").read_text()
    assert f"`{hashlib.sha256((folder / 'htmx.min.js').read_bytes()).hexdigest()}`" in about
    assert {path.name for path in folder.iterdir()} == {*pages._FILES, "README.md", "htmx.LICENSE.txt"}
    assert re.search(r'version:"2\.0\.11"', (folder / "htmx.min.js").read_text())


def test_text_of_pages_keeps_what_prints():
    generator = public_generator(0)
    text = "".join(map(chr, generator.integers(32, 0xD7FF, 2000)))
    assert all(character.isprintable() for character in pages.plain(text))
    assert pages.plain("α ≤ β\n  x") == "α ≤ β\n  x"
