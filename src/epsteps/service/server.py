"""The server: authenticates, takes requests in, waits for the one process that computes, and answers on the clock.

The event loop computes nothing and reads no record: it knows the store, and a pipe to the process over which ids go.
"""

import asyncio
import ipaddress
import json
import logging
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import uvicorn
from fastapi import FastAPI, Query
from fastapi import Request as Http
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from epsteps.ledger import Ledger, databases
from epsteps.service import wire
from epsteps.service.holder import Setup, require_filter, setup_text
from epsteps.service.policy import Policy, tally
from epsteps.service.store import Request, Store, beside
from epsteps.service.tokens import Token, Tokens
from epsteps.service.wire import KEY_HEADER, PROBLEM_JSON, Refusal, dumped
from epsteps.tables.schema import Schema

log = logging.getLogger("epsteps.service")
T = TypeVar("T")
# The longest that a reply waits for a change, in seconds.
_LONGEST_WAIT = 60.0
# The longest that the end of the service waits for replies, in whole seconds.
_LONGEST_FAREWELL = 10
# How long a connection may be idle between two requests, in whole seconds: as long as httpx, the client, keeps one.
_LONGEST_IDLE = 5
# Seconds before the process that computes is begun again, and how often it may end before it is ready.
_RESTART, _FAILURES = 0.1, 5


@dataclass
class Counts:
    """What the metrics tell: numbers of requests by what became of them. They are public, as requests are."""

    requests: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    restarts: int = 0


class Desk:
    """What both apps work with: the store, tokens, policy and clock, and the process that computes.

    Parameters
    ----------
    setup : Setup
        What is served.
    tokens : path
        The file of tokens.
    """

    def __init__(self, setup: Setup, tokens: Path) -> None:
        self.setup, self.tokens = setup, Tokens(tokens)
        self.policy = Policy.from_dict(setup.policy)
        self.schema, self.ledger = Schema.read(setup.schema), Ledger(setup.ledger)
        self.terms = require_filter(self.ledger, setup.dataset)
        self.longest = longest_bodies(self.schema, self.policy.limits.body)
        self.counts = Counts()
        self.n, self.tick, self.job_tick = 0, 0.0, 0.0
        self.ready, self.stopped = asyncio.Event(), asyncio.Event()
        self.why = ""
        # The service is told to end: who waits for a change is told what there is, and asks again at its next start.
        self.leaving = False
        self._failures = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._store: Store | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changed: dict[str, asyncio.Event] = {}
        self._busy: dict[str, Counter[str]] = defaultdict(Counter)
        self._buckets: dict[str, tuple[float, float]] = {}
        # Held while tokens are changed and that is written down, so that the row says who it was.
        self._changing_tokens = asyncio.Lock()
        self._noted: tuple[Token, ...] | None = None

    async def note_tokens(self) -> None:
        """Write down in the chain what others changed in the file of tokens since this was last done."""
        async with self._changing_tokens:
            await self._note_tokens("the file of tokens")

    async def change_tokens(self, by: str, change: Callable[[], Awaitable[T]]) -> T:
        """Return what a change of the file of tokens gives, and write down in the chain who made it."""
        async with self._changing_tokens:
            await self._note_tokens("the file of tokens")
            changed = await change()
            await self._note_tokens(by)
        return changed

    async def _note_tokens(self, by: str) -> None:
        listed = self.tokens.listed()
        if listed is not self._noted:
            await self.stored(lambda store: store.note_tokens(listed, by))
            self._noted = listed

    async def stored(self, action: Callable[[Store], T]) -> T:
        """Return what an action on the store gives: in the one thread that has it open, not in the event loop."""

        def act() -> T:
            if self._store is None:
                self._store = Store(beside(self.ledger.path))
            return action(self._store)

        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    async def start(self) -> None:
        """Start the process that computes, and begin it again whenever it ends."""
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End the process; what it was doing goes on at the next start."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._thread.shutdown()

    @property
    def worker(self) -> int | None:
        """The number of the process that computes."""
        return None if self._process is None else self._process.pid

    async def _watch(self) -> None:
        while not self.stopped.is_set():
            arguments, pipe = (sys.executable, "-m", "epsteps.service.holder"), asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe)
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(setup_text(self.setup).encode("ascii"))
                await self._listen(self._process)
            finally:
                self.ready.clear()
                if self._process.returncode is None:
                    with suppress(ProcessLookupError):
                        self._process.kill()
                    await self._process.wait()
            self.counts.restarts += 1
            self._failures += 1
            if self._failures > _FAILURES and not self.stopped.is_set():
                self.why = "the process that reads the records does not start: its messages say why"
                self.stopped.set()
            await asyncio.sleep(_RESTART * self._failures)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Hear what the process tells until it ends."""
        assert process.stdout is not None
        async for line in process.stdout:
            told = json.loads(line)
            if "stop" in told:
                self.why = told["stop"]
                log.error("stopped: %s", self.why)
                self.stopped.set()
            elif "ready" in told:
                self.n, self.tick, self.job_tick = told["n"], told["tick"], told["job_tick"]
                with suppress(OSError, ValueError):  # a file that cannot be read lets nobody in
                    await self.note_tokens()
                self.ready.set()
                self._failures = 0
                for request in await self.stored(unfinished):
                    await self.tell(request.id)
            else:
                if told["id"] in self._changed:
                    self._changed[told["id"]].set()

    def require_running(self) -> None:
        """Refuse what a service that has stopped cannot do any more."""
        if self.stopped.is_set():
            raise Refusal(503, "stopped", "the service has stopped.")

    async def tell(self, id: str) -> None:
        """Let the process know of a request; if it is not there, it finds it when it begins."""
        self.require_running()
        process = self._process
        if self.ready.is_set() and process is not None and process.stdin is not None:
            with suppress(ConnectionError):
                process.stdin.write(f"{id}\n".encode("ascii"))
                await process.stdin.drain()

    def expect(self, id: str) -> None:
        """Hear what the process tells of a request from now on: whoever expects it then waits until it is settled."""
        self._changed.setdefault(id, asyncio.Event())

    async def settled(self, id: str, states: tuple[str, ...], seconds: float) -> Request:
        """Return a request as soon as it is in one of these states, or as it is when the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            event = self._changed.setdefault(id, asyncio.Event())
            # Now and then the store is asked itself: what the process told while it was begun anew is lost.
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), min(max(deadline - time.monotonic(), 0.0), 1.0))
            event.clear()
            request = await self.stored(lambda store: store.request(id))
            over = time.monotonic() >= deadline or self.leaving or self.stopped.is_set()
            if request.state in states or over:
                self._changed.pop(id, None)
                return request

    async def on_the_clock(self, arrived: float) -> None:
        """Wait until the next tick, counted from when the request arrived."""
        if self.tick:
            passed = time.monotonic() - arrived
            await asyncio.sleep((int(passed / self.tick) + 1) * self.tick - passed)

    def admit(self, token: Token) -> None:
        """Refuse a token that asks more often than it may."""
        rate, now = self.policy.limits.rate, time.monotonic()
        left, last = self._buckets.get(token.id, (rate, now))
        left = min(rate, left + (now - last) * rate)
        if left < 1:
            raise Refusal(429, "too-many-requests", f"a token may ask {rate:g} times a second.", rate=rate)
        self._buckets[token.id] = (left - 1, now)

    @asynccontextmanager
    async def only_job(self, token: Token, key: str):
        """Let a token have one answer computed at a time."""
        busy = self._busy[token.id]
        if busy.total() > busy[key]:
            raise Refusal(429, "busy", "this token has a request in progress: wait for its answer.")
        busy[key] += 1
        try:
            yield
        finally:
            busy[key] -= 1
            if not busy[key]:
                del busy[key]

    async def facts(self, analyst: str) -> dict[str, Any]:
        """Return what an analyst may know of the dataset: all of it is public."""
        return await self.stored(lambda store: self._facts(store, analyst))

    def _facts(self, store: Store, analyst: str) -> dict[str, Any]:
        book = self.ledger.book(self.setup.dataset)
        allowance = self.policy.allowance(analyst, book.budget)
        spent = tally(allowance, book.terms, store.prices(analyst=analyst))
        return {
            "name": book.name,
            "n": self.n,
            "schema": self.schema.to_dict(),
            "budget": book.budget.to_dict(),
            "composition": book.terms.composition,
            "unit": book.unit,
            "spent": book.spent,
            "remaining": book.remaining,
            "allowance": {"budget": allowance.to_dict(), "spent": float(spent.spent)},
            "stored": {"bytes": store.held(analyst), "most": self.policy.limits.stored},
            "tick": self.tick,
            "job_tick": self.job_tick,
        }


def longest_bodies(schema: Schema, most: int) -> dict[str, int]:
    """Return how many bytes requests of each kind may have: as many as they need with all columns, and at most so many.

    A gradient is a point of the largest dimension and a few numbers, a session the names of columns and what is
    declared of them. Plans may be long.
    """
    width = 1 + sum(part.width for part in (*schema.columns.values(), *schema.products))
    outputs = max(len(column.classes or ()) for column in schema.columns.values())
    gradient = 4096 + 16 * width * max(outputs, 1)  # base64 has 11 bytes for a number, and JSON may escape some of them
    session = 16384 + 4 * len(dumped(schema.to_dict())) + 128 * width
    return {"gradient": min(gradient, most), "session": min(session, most), "plan": most}


def unfinished(store: Store) -> list[Request]:
    """Return what the process that computes has to do: all that has arrived, was approved, or was interrupted."""
    found = store.requests(states=("arrived", "approved", "running"))
    return [request for request in found if request.kind != "session" or request.state == "arrived"]


def described(request: Request) -> dict[str, Any]:
    """Return what its asker may know of a request now: before its answer is visible, that it is running."""
    hidden = request.finished and request.visible is not None and request.visible > time.time()
    state = "waiting" if request.state == "arrived" else "running" if hidden else request.state
    content: dict[str, Any] = {"id": request.id, "kind": request.kind, "state": state, "page": request.page}
    content["price"] = None if request.price is None else json.loads(request.price)
    if request.answer is not None and not hidden:
        content["status"], content["answer"] = request.status, json.loads(request.answer)
    return content


def problem_reply(refusal: Refusal) -> Response:
    """Return a refusal as a reply."""
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    headers |= {"Retry-After": "1"} if refusal.status in (429, 503) else {}
    return Response(refusal.body, refusal.status, headers, PROBLEM_JSON)


def json_reply(content: Any, status: int = 200) -> Response:
    """Return plain data as a reply."""
    return Response(dumped(content), status, media_type="application/json")


def guarded(app: FastAPI, counts: Counts, name: str) -> None:
    """Let an app answer everything that goes wrong as a problem, without a word of what it was."""

    @app.exception_handler(Refusal)
    async def refused(_: Any, refusal: Refusal) -> Response:
        counts.requests[(name, refusal.status)] += 1
        return problem_reply(refusal)

    @app.exception_handler(HTTPException)
    async def unknown(_: Any, error: Any) -> Response:
        return problem_reply(Refusal(error.status_code, "not-found", "there is nothing here for that."))

    @app.exception_handler(RequestValidationError)
    async def unreadable(*_: Any) -> Response:
        return problem_reply(wire.invalid("the request cannot be read."))

    @app.exception_handler(Exception)
    async def failed(_: Any, error: Exception) -> Response:
        log.error("failed: %s", type(error).__name__)
        return problem_reply(wire.FAILED)


async def whole_body(request: Http, desk: Desk, kind: str = "plan") -> bytes:
    """Return the body of a request; refuse one that is too long for its kind, or that takes too long to arrive."""
    limits, most = desk.policy.limits, desk.longest[kind]
    too_long = Refusal(413, "too-large", f"such a request may have {most} bytes.", most=most)
    if int(request.headers.get("content-length") or 0) > most:
        raise too_long
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.slow):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > most:
                    raise too_long
    except TimeoutError:
        raise Refusal(408, "too-slow", f"a request must arrive within {limits.slow:g} s.") from None
    return b"".join(parts)


class Analysts:
    """What analysts may do: each method is one address of the public app."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def health(self) -> Response:
        """Return that the server lives."""
        return json_reply({"status": "ok"})

    async def readiness(self) -> Response:
        """Return whether it can answer: the process that computes is there, and the file unchanged."""
        if self._desk.ready.is_set() and not self._desk.stopped.is_set():
            return json_reply({"status": "ready"})
        raise Refusal(503, "not-ready", "the service is not ready.")

    async def datasets(self, http: Http) -> Response:
        """Return the names of datasets."""
        self._token(http, "read")
        return self._counted("datasets", json_reply({"datasets": [self._desk.setup.dataset]}))

    async def dataset(self, name: str, http: Http) -> Response:
        """Return schema, n, budget, and what is left."""
        token = self._token(http, "read")
        self._require_dataset(name)
        return self._counted("dataset", json_reply(await self._desk.facts(token.analyst)))

    async def post_plan(self, name: str, http: Http) -> Response:
        """Take a plan in, and return what was decided about it, or that a person will."""
        token = self._token(http, "plan")
        self._require_dataset(name)
        request = await self._ask(http, token, "plan")
        if request.state == "arrived":
            patience = self._desk.policy.limits.certify + _LONGEST_WAIT
            request = await self._desk.settled(request.id, _DECIDED, patience)
        return self._counted("plan", _decision(request))

    async def post_session(self, name: str, http: Http) -> Response:
        """Take a wish for a session in, and return what was decided about it, or that a person will: on the clock."""
        arrived = time.monotonic()
        token = self._token(http, "session")
        self._require_dataset(name)
        request = await self._ask(http, token, "session")
        if request.state == "arrived":
            request = await self._desk.settled(request.id, _DECIDED, _LONGEST_WAIT)
        await self._desk.on_the_clock(arrived)
        return self._counted("session", _decision(request))

    async def post_gradient(self, id: str, http: Http) -> Response:
        """Return a noisy gradient at a point: stored bytes, on the clock."""
        arrived, desk = time.monotonic(), self._desk
        token = self._token(http, "session")
        async with desk.only_job(token, http.headers.get(KEY_HEADER, "")):
            request = await self._ask(http, token, "gradient", id)
            if not request.finished:
                request = await desk.settled(request.id, ("published", "refused"), _LONGEST_WAIT)
            if not request.finished:
                raise Refusal(503, "not-yet", "the answer is not there yet: ask again with the same key.")
            await desk.on_the_clock(arrived)
        kind = "application/json" if request.state == "published" else PROBLEM_JSON
        return self._counted("gradient", Response(request.answer, request.status or 500, media_type=kind))

    async def list_requests(self, http: Http) -> Response:
        """Return one's own plans and sessions, in short."""
        name = self._token(http, "read").analyst
        found = await self._desk.stored(
            lambda store: store.requests(analyst=name, kinds=("plan", "session"), latest=200)
        )
        short = [{fact: described(request)[fact] for fact in ("id", "kind", "state", "price")} for request in found]
        return self._counted("requests", json_reply({"requests": short}))

    async def get_request(
        self, id: str, http: Http, wait: Annotated[float, Query(allow_inf_nan=False)] = 0.0
    ) -> Response:
        """Return what became of a request; waits for a change up to so many seconds."""
        request = await self._own(self._token(http, "read"), id)
        deadline = time.monotonic() + min(max(wait, 0.0), _LONGEST_WAIT)
        while described(request)["state"] not in _ENDS[request.kind] and not self._desk.leaving:
            if (left := deadline - time.monotonic()) <= 0:
                break
            if request.finished and request.visible:
                await asyncio.sleep(min(max(request.visible - time.time(), 0.0) + 0.001, left))
            else:
                request = await self._desk.settled(id, _ENDS[request.kind], left)
        return self._counted("request", json_reply(described(request)))

    async def withdraw(self, id: str, http: Http) -> Response:
        """Withdraw a plan that does not run yet, or close a session."""
        token = self._token(http, "read")
        request = await self._own(token, id)
        token.require(request.kind)
        moved = await self._desk.stored(lambda store: store.move(request, "withdrawn", by=token.analyst))
        if moved.state != "withdrawn":
            raise Refusal(409, "too-late", "it cannot be withdrawn any more.", state=described(moved)["state"])
        return self._counted("withdraw", json_reply(described(moved)))

    def _token(self, http: Http, scope: str) -> Token:
        token = self._desk.tokens.of(http.headers.get("authorization"))
        self._desk.admit(token)
        token.require(scope)
        return token

    def _require_dataset(self, name: str) -> None:
        if name != self._desk.setup.dataset:
            raise Refusal(404, "not-found", "there is no such dataset.")

    async def _own(self, token: Token, id: str) -> Request:
        return await self._desk.stored(lambda store: require_own(store, id, token.analyst, ("plan", "session")))

    def _counted(self, name: str, reply: Response) -> Response:
        self._desk.counts.requests[(name, reply.status_code)] += 1
        return reply

    async def _ask(self, http: Http, token: Token, kind: str, session: str | None = None) -> Request:
        """Take a request in, or find it by its key, and let the process know; refuse when too many wait."""
        desk = self._desk
        await desk.note_tokens()  # the row of a token comes before those of what was asked with it
        body, most = await whole_body(http, desk, kind), desk.policy.limits.stored
        key = http.headers.get(KEY_HEADER, "")
        mark = wire.digest(kind.encode(), http.url.path.encode(), body)
        try:
            if not 1 <= len(key) <= wire.LONGEST_KEY or not (key.isascii() and key.isprintable()):
                raise wire.invalid(f"{KEY_HEADER} must have 1 to {wire.LONGEST_KEY} printable characters.")
            request = await desk.stored(lambda store: self._taken(store, token.analyst, key, kind, mark, body, session))
        except Refusal as refusal:
            why = refusal
            await desk.stored(lambda store: store.note_refused(token.analyst, kind, mark, why, most))
            raise
        if request.state == "arrived":
            desk.expect(request.id)
        if not request.finished:
            await desk.tell(request.id)
        return request

    def _taken(
        self, store: Store, analyst: str, key: str, kind: str, mark: str, body: bytes, session: str | None
    ) -> Request:
        limits = self._desk.policy.limits
        if session is not None:
            require_own(store, session, analyst, ("session",))
        elif store.find(analyst, key) is None:  # what is known already takes no place
            states = ("arrived", "waiting", "approved", "running")
            queued = store.listed(states=states, kinds=("plan", "session"), latest=limits.queue)
            if len(queued) >= limits.queue or sum(each.analyst == analyst for each in queued) >= limits.waiting:
                raise Refusal(503, "queue-full", "too many requests wait: withdraw one, or come back later.")
        return store.ask(analyst, key, kind, mark, body, session=session, most=limits.stored)[0]


# The states of what was decided about, and those in which there is nothing more to wait for.
_DECIDED = ("waiting", "approved", "running", "published", "refused", "withdrawn")
_ENDS = {
    "plan": ("published", "refused", "withdrawn"),
    "session": ("approved", "published", "refused", "withdrawn"),
}
# Addresses of the public app: method, path, what of ``Analysts`` answers, and the members of a body.
_ROUTES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("GET", "/healthz", "health", ()),
    ("GET", "/readyz", "readiness", ()),
    ("GET", "/v1/datasets", "datasets", ()),
    ("GET", "/v1/datasets/{name}", "dataset", ()),
    ("POST", "/v1/datasets/{name}/plans", "post_plan", ("plan", "anyway", "columns", "target")),
    ("POST", "/v1/datasets/{name}/sessions", "post_session", ("problem", "allowance", "columns", "target")),
    (
        "POST",
        "/v1/sessions/{id}/gradients",
        "post_gradient",
        ("x", "cost", "noise", "scale", "bound", "batch", "step"),
    ),
    ("GET", "/v1/requests", "list_requests", ()),
    ("GET", "/v1/requests/{id}", "get_request", ()),
    ("DELETE", "/v1/requests/{id}", "withdraw", ()),
)


def require_own(store: Store, id: str, analyst: str, kinds: tuple[str, ...]) -> Request:
    """Return a request of this analyst's; somebody else's is as unknown as one that never was."""
    try:
        request = store.request(id)
    except KeyError:
        request = None
    if request is None or request.analyst != analyst or request.kind not in kinds:
        raise Refusal(404, "not-found", "there is no such request.")
    return request


class Places:
    """What lets each token have few requests in progress: whoever waits for changes does not keep others out."""

    def __init__(self, app: Any, desk: Desk) -> None:
        self._app, self._desk = app, desk
        self._taken: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or refuse it; one without a valid token is refused at once anyway."""
        most, whose = self._desk.policy.limits.at_once, self._whose(scope)
        if whose is None:
            return await self._app(scope, receive, send)
        if self._taken[whose] >= most:
            detail = f"a token may have {most} requests in progress: wait for their answers."
            return await problem_reply(Refusal(429, "too-many-requests", detail, most=most))(scope, receive, send)
        self._taken[whose] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._taken[whose] -= 1

    def _whose(self, scope: Any) -> str | None:
        if scope["type"] == "http":
            with suppress(Refusal, OSError, ValueError):
                return self._desk.tokens.of(Http(scope).headers.get("authorization")).id
        return None


def public_app(desk: Desk) -> FastAPI:
    """Return the app that analysts speak to; it starts and ends the process that computes."""
    from epsteps.service.pages import html

    @asynccontextmanager
    async def life(_: Any):
        await desk.start()
        yield
        await desk.stop()

    about = "A data holder answers analysts with differential privacy. See docs/two-parties.md of epsteps."
    app = FastAPI(title="epsteps", description=about, version="1", lifespan=life, docs_url=None, redoc_url=None)
    app.add_middleware(Places, desk=desk)
    guarded(app, desk.counts, "public")
    analysts = Analysts(desk)
    for method, path, name, members in _ROUTES:
        extra = _body(*members) if members else None
        app.add_api_route(path, getattr(analysts, name), methods=[method], openapi_extra=extra)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return html("interface.html.jinja", 200, document=app.openapi())

    return app


def _decision(request: Request) -> Response:
    """Return what was decided about a plan or session: a refusal as such, everything else as its state."""
    content = described(request)
    if content["state"] == "refused" and request.answer is not None:
        return Response(request.answer, request.status or 500, media_type=PROBLEM_JSON)
    return json_reply(content, 201)


def _body(*names: str) -> dict[str, Any]:
    """Return what the page of the interface says of a body."""
    properties = {name: {} for name in names}
    schema = {"type": "object", "properties": properties, "required": [names[0]], "additionalProperties": False}
    header = {"name": KEY_HEADER, "in": "header", "required": True, "schema": {"type": "string"}}
    return {
        "parameters": [header],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
    }


def require_safe(host: str, tls: bool, insecure: bool) -> None:
    """Refuse to send tokens and answers in plain text to other machines."""
    if tls or insecure or is_loopback(host):
        return
    raise ValueError(
        f"plain HTTP on {host} would show tokens and answers to the network. Use --tls-cert and --tls-key, serve on "
        "127.0.0.1 behind a reverse proxy, or say --insecure if the network is trusted."
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve(
    desk: Desk,
    *,
    host: str = "127.0.0.1",
    port: int = 8440,
    admin_port: int | None = None,
    tls: tuple[str, str] | None = None,
    on_ready: Callable[[], Awaitable[None] | None] | None = None,
) -> None:
    """Serve both apps until the process is told to end, or the table's file was changed."""
    from epsteps.service.admin import admin_app

    limits = desk.policy.limits
    shared: dict[str, Any] = {
        "http": patient_protocol(limits.slow, longest=limits.slow + limits.certify + 2 * _LONGEST_WAIT),
        "ws": "none",
        "log_config": None,  # its own would close every handler of the process, and with some of them stderr
        "log_level": "critical",
        "access_log": False,
    }
    shared |= {"server_header": False, "date_header": False, "limit_concurrency": limits.connections}
    shared |= {"timeout_keep_alive": _LONGEST_IDLE, "timeout_graceful_shutdown": _LONGEST_FAREWELL}
    secured: dict[str, Any] = {} if tls is None else {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]}
    servers = [_Server(uvicorn.Config(public_app(desk), **shared, **secured), desk)]
    sockets = [listening(host, port)]
    if admin_port is not None:
        servers.append(_Server(uvicorn.Config(admin_app(desk), **shared), desk))
        sockets.append(listening("127.0.0.1", admin_port))

    async def watch() -> None:
        ready = asyncio.create_task(desk.ready.wait())
        stopped = asyncio.create_task(desk.stopped.wait())
        await asyncio.wait((ready, stopped), return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and on_ready is not None:
            on_ready()
        await stopped
        for server in servers:
            server.should_exit = True

    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(server.serve([bound]) for server, bound in zip(servers, sockets, strict=True)))
    watcher.cancel()
    if desk.stopped.is_set():
        raise OSError(f"the service has stopped: {desk.why}")


class _Server(uvicorn.Server):
    """A server that lets those who wait know when it is told to end."""

    def __init__(self, config: uvicorn.Config, desk: Desk) -> None:
        super().__init__(config)
        self._desk = desk

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._desk.leaving = True
        super().handle_exit(sig, frame)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there, or say that somebody else does."""
    # Its protocol is named: asyncio sends small replies at once (TCP_NODELAY) on such sockets alone.
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # where it would let another program take the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen()
    except OSError as error:
        bound.close()
        raise OSError(f"cannot listen on {host}, port {port}: {error.strerror}. Choose another one.") from None
    return bound


def patient_protocol(seconds: float, *, longest: float) -> type:
    """Return uvicorn's protocol that closes a connection whose next request does not begin in time, or is never done.

    Bytes that dribble in put off neither: not headers that come one by one, nor a body that nobody wants any more. A
    request that takes longer than ``longest`` has an asker who does not read its reply.
    """

    class Patient(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(seconds, self._expire, self.cycle)

        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            if self.cycle is not before:
                self.loop.call_later(longest, self._abandon, self.cycle)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # An idle connection ends by itself, and not before its asker gives it up.
            self.loop.call_later(max(seconds, self.timeout_keep_alive), self._expire, self.cycle)

        def _expire(self, last: Any) -> None:
            if self.cycle is last and not self.transport.is_closing():
                self.transport.close()

        def _abandon(self, cycle: Any) -> None:
            if self.cycle is cycle and not cycle.response_complete:
                self.transport.abort()

    return Patient


def real(path: Path) -> str:
    """Return a path that means the same file to every process."""
    return str(databases.real_path(path))
