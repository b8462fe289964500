"""The holder's pages: budgets, the queue, history and tokens, for a browser on this machine.

Pages are whole without scripts: forms are posted, and the answer is the way to the next page. With scripts, the part of
a page that can change is asked for again every few seconds, whatever happens, and comes only if it is another one.
Everything that anybody wrote is escaped, and nothing but this machine's own files is loaded.
"""

import asyncio
import hashlib
import hmac
import math
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from fastapi import FastAPI
from fastapi import Request as Http
from starlette.responses import RedirectResponse, Response

from epsteps.noise.bits import secret_bytes
from epsteps.service import overview
from epsteps.service import tokens as token_file
from epsteps.service.overview import Overview
from epsteps.service.server import Desk, whole_body
from epsteps.service.store import Store, beside
from epsteps.service.tokens import SCOPES, Token
from epsteps.service.wire import Refusal

T = TypeVar("T")
_FOLDER = Path(__file__).parent / "dashboard"
_FILES = {
    "htmx.min.js": "text/javascript",
    "dashboard.js": "text/javascript",
    "dashboard.css": "text/css",
    "icon.svg": "image/svg+xml",
}
COOKIE = "epsteps_holder"
# Seconds until one signs in again, how many browsers may be signed in, and how often a page asks for what is new.
_SITTING, _SITTINGS, _POLL = 12 * 3600.0, 64, 2.0
_LONGEST_REASON, _LONGEST_DAYS = 500, 3650.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    # Not "no-referrer", with which a browser would hide where a form comes from.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass
class Sitting:
    """A browser that is signed in: by which token, what its forms must carry, and what its next page tells once."""

    sha256: str
    form: str
    until: float
    said: str = ""
    secret: str = ""

    def told(self) -> dict[str, str]:
        """Return what is told once, and forget it."""
        told = {"said": self.said, "secret": self.secret}
        self.said = self.secret = ""
        return told


class Sittings:
    """The browsers that are signed in, in this process's memory: they end with it, and with their tokens."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._open: dict[str, Sitting] = {}

    def begin(self, secret: str) -> str:
        """Sign in by a token with the scope "admin", and return the cookie."""
        token = self._desk.tokens.of(f"Bearer {secret}")
        token.require("admin")
        while len(self._open) >= _SITTINGS:
            self._open.pop(next(iter(self._open)))
        cookie = secret_bytes(32).hex()
        self._open[cookie] = Sitting(token.sha256, secret_bytes(32).hex(), time.monotonic() + _SITTING)
        return cookie

    def of(self, http: Http) -> tuple[Sitting, Token]:
        """Return who is signed in, or raise ``SignedOutError``; a token that was revoked or has expired is nobody's."""
        cookie = http.cookies.get(COOKIE, "")
        sitting = self._open.get(cookie)
        if sitting is not None and sitting.until > time.monotonic():
            for token in self._desk.tokens.listed():
                known = token.sha256 == sitting.sha256 and "admin" in token.scopes
                if known and token.expires > datetime.now(UTC):
                    return sitting, token
        self._open.pop(cookie, None)
        raise SignedOutError

    def end(self, http: Http) -> None:
        """Sign out."""
        self._open.pop(http.cookies.get(COOKIE, ""), None)


class SignedOutError(Exception):
    """Nobody is signed in."""


class Reading:
    """The service's file, opened for pages by a thread of their own: analysts do not wait for what people look at."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._store = desk, None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pages")

    async def __call__(self, action: Callable[[Overview], T]) -> T:
        """Return what an action makes of the state of things."""

        def act() -> T:
            if self._store is None:
                self._store = Store(beside(self._desk.ledger.path))
            return action(Overview(self._desk, self._store))

        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


@dataclass(frozen=True)
class Asked:
    """One request of a browser that is signed in: what it asked for, who it is, and what a form carried."""

    http: Http
    sitting: Sitting
    token: Token
    form: dict[str, list[str]]

    def field(self, name: str) -> str:
        """Return what was typed into a field."""
        return self.form.get(name, [""])[0].strip()

    def number(self, name: str) -> int | None:
        """Return a number of the address, if it is there and is one."""
        text = self.http.query_params.get(name, "")
        return int(text) if text.isdecimal() and len(text) < 19 else None


Handler = Callable[[Asked], Awaitable[Response]]


class Pages:
    """The pages of one app, and what they have in common."""

    def __init__(self, app: FastAPI, desk: Desk, decisions: Any) -> None:
        self._app, self._desk, self._decisions = app, desk, decisions
        self._sittings, self.reading = Sittings(desk), Reading(desk)
        app.get("/static/{name}")(self._static)
        app.get("/login")(self._login)
        app.post("/login")(self._enter)
        self._add("GET", "/", self._datasets)
        self._add("GET", "/queue", self._queue)
        self._add("GET", "/requests/{id}", self._request)
        self._add("POST", "/requests/{id}/approve", self._approve)
        self._add("POST", "/requests/{id}/refuse", self._refuse)
        self._add("GET", "/history", self._history)
        self._add("GET", "/chain", self._chain)
        self._add("POST", "/chain/verify", self._verify)
        self._add("GET", "/tokens", self._tokens)
        self._add("POST", "/tokens", self._make)
        self._add("POST", "/tokens/{id}/revoke", self._revoke)
        self._add("POST", "/logout", self._leave)

    def _add(self, method: str, path: str, handler: Handler) -> None:
        """Answer a browser that is signed in; a form must carry what this sitting's pages gave it."""

        async def answer(http: Http) -> Response:
            try:
                sitting, token = self._sittings.of(http)
                form = await self._form(http, sitting) if method == "POST" else {}
                return await handler(Asked(http, sitting, token, form))
            except SignedOutError:
                return _way("/login", live="hx-request" in http.headers)
            except Refusal as refusal:
                return html("problem.html.jinja", refusal.status, title="Refused", detail=refusal.detail)

        self._app.add_api_route(path, answer, methods=[method], response_model=None)

    async def _form(self, http: Http, sitting: Sitting | None) -> dict[str, list[str]]:
        """Return what a form carries, or refuse one that another page sent."""
        origin, site = http.headers.get("origin"), http.headers.get("sec-fetch-site", "same-origin")
        foreign = origin not in (None, f"http://{http.headers.get('host')}") or site not in ("same-origin", "none")
        kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if foreign or kind != "application/x-www-form-urlencoded":
            raise Refusal(403, "foreign-form", "this form was not sent by a page of this service.")
        body = await whole_body(http, self._desk)
        try:
            form = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=32)
        except ValueError:
            raise Refusal(400, "unreadable", "the form cannot be read.") from None
        if sitting is not None and not hmac.compare_digest(form.get("form", [""])[0].encode(), sitting.form.encode()):
            raise Refusal(403, "foreign-form", "this form is not of this sitting: load its page again.")
        return form

    async def _page(self, asked: Asked, name: str, here: str, **told: Any) -> Response:
        """Return a page, or what is new of it to a browser that has the rest; 204 if nothing is."""
        waits = await self.reading(lambda known: known.waits())
        about = {
            "dataset": self._desk.setup.dataset,
            "waits": waits,
            "here": here,
            "poll": math.ceil(max(_POLL, self._desk.job_tick)),
            "form": asked.sitting.form,
            "who": asked.token.analyst,
            "ready": self._desk.ready.is_set(),
        }
        template = _templates().get_template(f"{name}.html.jinja")
        part = "".join(template.blocks["live"](template.new_context(about | told)))
        mark = hashlib.sha256(f"{part}{waits}{about['ready']}".encode()).hexdigest()[:16]
        if "hx-request" in asked.http.headers:
            if asked.http.query_params.get("seen") == mark:
                return Response(status_code=204, headers=_HEADERS)
            return html("news.html.jinja", 200, part=part, mark=mark, **about)
        return html(f"{name}.html.jinja", 200, part=part, mark=mark, **about, **told, **asked.sitting.told())

    # Who

    async def _login(self, http: Http) -> Response:
        return html("login.html.jinja", 200, fault="")

    async def _enter(self, http: Http) -> Response:
        try:
            form = await self._form(http, None)
            cookie = self._sittings.begin(form.get("token", [""])[0].strip())
        except Refusal as refusal:
            fault = refusal.detail if refusal.kind == "foreign-form" else "This is no valid token for these pages."
            return html("login.html.jinja", refusal.status, fault=fault)
        reply = _way("/")
        reply.set_cookie(COOKIE, cookie, max_age=int(_SITTING), httponly=True, samesite="strict")
        return reply

    async def _leave(self, asked: Asked) -> Response:
        self._sittings.end(asked.http)
        reply = _way("/login")
        reply.delete_cookie(COOKIE)
        return reply

    # Pages

    async def _datasets(self, asked: Asked) -> Response:
        told = await self.reading(lambda known: known.datasets())
        clock = {"tick": self._desk.tick, "job_tick": self._desk.job_tick, "n": self._desk.n}
        return await self._page(asked, "datasets", "/", **told, **clock)

    async def _queue(self, asked: Asked) -> Response:
        waiting = await self.reading(lambda known: known.waiting())
        return await self._page(asked, "queue", "/queue", waiting=waiting)

    async def _request(self, asked: Asked) -> Response:
        id = asked.http.path_params["id"]
        try:
            told = await self.reading(lambda known: known.request(id))
        except KeyError:
            raise Refusal(404, "not-found", "there is no such request.") from None
        return await self._page(asked, "request", f"/requests/{told['id']}", request=told)

    async def _history(self, asked: Asked) -> Response:
        before, answers = asked.number("before"), asked.http.query_params.get("answers") == "1"
        told = await self.reading(lambda known: known.history(before, answers))
        here = "/history?answers=1" if answers else "/history?answers=0"
        here += "" if before is None else f"&before={before}"
        return await self._page(asked, "history", here, answers=answers, before=before, **told)

    async def _chain(self, asked: Asked) -> Response:
        before = asked.number("before")
        told = await self.reading(lambda known: known.chain(before))
        here = "/chain" if before is None else f"/chain?before={before}"
        return await self._page(asked, "chain", here, before=before, **told)

    async def _tokens(self, asked: Asked) -> Response:
        listed = await self.reading(lambda _: overview.tokens(self._desk))
        told = {"listed": listed, "scopes": SCOPES, "most_days": int(_LONGEST_DAYS)}
        return await self._page(asked, "tokens", "/tokens", **told)

    # What forms do

    async def _approve(self, asked: Asked) -> Response:
        await self._decide(asked, self._decisions.approve, "Approved.")
        return _way("/queue")

    async def _refuse(self, asked: Asked) -> Response:
        reason = asked.field("reason")[:_LONGEST_REASON]
        await self._decide(asked, lambda id, by: self._decisions.refuse(id, by, reason), "Refused.")
        return _way("/queue")

    async def _decide(self, asked: Asked, action: Callable[[str, str], Awaitable[Any]], done: str) -> None:
        try:
            decided = await action(asked.http.path_params["id"], asked.token.analyst)
            asked.sitting.said = f"{done} It was a {decided.kind} of {decided.analyst}."
        except Refusal as refusal:
            asked.sitting.said = f"Nothing was changed: {refusal.detail}"

    async def _verify(self, asked: Asked) -> Response:
        found = await self.reading(lambda known: known.verified())
        good = f"Everything agrees: both chains, every answer and every charge. Head {found.get('head')}."
        asked.sitting.said = f"NOT TO BE TRUSTED: {found['fault']}" if found["fault"] else good
        return _way("/chain")

    async def _make(self, asked: Asked) -> Response:
        def make(_: Overview) -> tuple[str, Token]:
            days = float(asked.field("days"))
            if not 0 < days <= _LONGEST_DAYS:
                raise ValueError(f"days must be above 0 and at most {_LONGEST_DAYS:g}.")
            return token_file.make(self._desk.tokens.path, asked.field("analyst"), asked.form.get("scope", []), days)

        try:
            changed = await self._desk.change_tokens(asked.token.analyst, lambda: self.reading(make))
            asked.sitting.secret, token = changed
            asked.sitting.said = f"Made token {token.id} for {token.analyst}."
        except (ValueError, OSError) as error:
            asked.sitting.said = f"No token was made: {error}"
        return _way("/tokens")

    async def _revoke(self, asked: Asked) -> Response:
        id = asked.http.path_params["id"]
        try:
            gone = await self._desk.change_tokens(
                asked.token.analyst, lambda: self.reading(lambda _: token_file.revoke(self._desk.tokens.path, id))
            )
            asked.sitting.said = f"Revoked token {gone.id} of {gone.analyst}."
        except (ValueError, OSError) as error:
            asked.sitting.said = f"No token was revoked: {error}"
        return _way("/tokens")

    async def _static(self, name: str) -> Response:
        if name not in _FILES:
            raise Refusal(404, "not-found", "there is no such file.")
        content = (_FOLDER / "static" / name).read_bytes()
        return Response(content, headers=_HEADERS | {"Cache-Control": "no-cache"}, media_type=_FILES[name])


def _way(path: str, live: bool = False) -> Response:
    """Send a browser to a page: after a form, so that loading the page again does not send it again."""
    if live:
        return Response(status_code=204, headers=_HEADERS | {"HX-Redirect": path})
    return RedirectResponse(path, 303, headers=_HEADERS)


def html(name: str, status: int, **told: Any) -> Response:
    """Return a page of this folder's templates; it may load this app's own files, and nothing else."""
    return Response(_templates().get_template(name).render(told), status, _HEADERS, "text/html")


@cache
def _templates() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"amount": amount, "plain": plain, "when": when}
    return environment


def amount(value: float) -> str:
    """Return an amount as people read it; what rounding leaves of a spent budget is nothing to them."""
    return f"{value:.4g}" if value >= 1e-9 else "0"


def plain(text: Any) -> str:
    """Return text without what does not print: marks that turn lines around would make a page say something else."""
    return "".join(
        character if character.isprintable() or character == "\n" else f"\\u{ord(character):04x}"
        for character in str(text)
    )


def when(moment: datetime) -> str:
    """Return a time as people read it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
