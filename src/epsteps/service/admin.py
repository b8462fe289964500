"""The holder's own app, on a loopback port: pages, decisions about what waits, and metrics."""

import time
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi import Request as Http
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response

from epsteps.service.pages import Pages
from epsteps.service.server import Desk, described, guarded, json_reply
from epsteps.service.store import Request
from epsteps.service.wire import Refusal


class Decisions:
    """What a person may do: approve or refuse what waits. Pages and programs do it here."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def waiting(self) -> list[Request]:
        """Return the plans and sessions that wait for a person."""
        return await self._desk.stored(lambda store: store.requests(states=("waiting",)))

    async def history(self, latest: int = 200) -> list[Request]:
        """Return the last plans and sessions, in whatever state."""
        return await self._desk.stored(lambda store: store.requests(kinds=("plan", "session"), latest=latest))

    async def approve(self, id: str, by: str) -> Request:
        """Approve what waits; a plan is then executed. A service that has stopped approves nothing."""
        self._desk.require_running()
        request = await self._move(id, "approved", by)
        with suppress(Refusal):  # it stopped in this moment: what was approved goes on at the next start
            await self._desk.tell(id)
        return request

    async def refuse(self, id: str, by: str, reason: str = "") -> Request:
        """Refuse what waits, with a reason that the analyst is told."""
        refusal = Refusal(403, "refused", reason or "the holder refused it.")
        return await self._move(id, "refused", by, status=refusal.status, answer=refusal.body)

    async def _move(self, id: str, state: str, by: str, **answer: Any) -> Request:
        try:
            request = await self._desk.stored(lambda store: store.request(id))
        except KeyError:
            raise Refusal(404, "not-found", "there is no such request.") from None
        if request.state == "waiting":
            request = await self._desk.stored(
                lambda store: store.move(request, state, by=by, only_from="waiting", **answer)
            )
        if request.state != state:
            raise Refusal(409, "too-late", "it does not wait any more.", state=request.state)
        return request


def admin_app(desk: Desk) -> FastAPI:
    """Return the holder's app; everything but health and metrics needs a token with the scope "admin"."""

    @asynccontextmanager
    async def life(_: Any):
        yield
        pages.reading.close()

    app = FastAPI(title="epsteps, for the data holder", lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    # A page of somebody else whose name was made to point at this machine must not become one of this app.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False)
    guarded(app, desk.counts, "admin")
    decisions = Decisions(desk)
    pages = Pages(app, desk, decisions)
    app.state.desk, app.state.decisions = desk, decisions
    metrics_of = _Metrics(desk)

    def admin(http: Http) -> str:
        token = desk.tokens.of(http.headers.get("authorization"))
        token.require("admin")
        return token.analyst

    @app.get("/healthz")
    async def health() -> Response:
        return json_reply({"status": "ok"})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await metrics_of.text(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/requests")
    async def waiting(http: Http) -> Response:
        admin(http)
        found = await decisions.waiting()
        return json_reply({"requests": [described(request) | {"analyst": request.analyst} for request in found]})

    @app.post("/v1/requests/{id}/approve")
    async def approve(id: str, http: Http) -> Response:
        return json_reply(described(await decisions.approve(id, admin(http))))

    @app.post("/v1/requests/{id}/refuse")
    async def refuse(id: str, http: Http, reason: str = "") -> Response:
        return json_reply(described(await decisions.refuse(id, admin(http), reason[:500])))

    return app


def label_text(text: str) -> str:
    """Return text as it stands between the quotes of a label in Prometheus's format."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class _Metrics:
    """Prometheus metrics, made anew no more often than the clock ticks."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._text, self._due = desk, "", 0.0

    async def text(self) -> str:
        """Return the metrics as of the last tick."""
        if time.monotonic() >= self._due:
            self._text = await self._made()
            self._due = time.monotonic() + max(self._desk.job_tick, 1.0)
        return self._text

    async def _made(self) -> str:
        desk = self._desk
        # The whole ledger is read, which is not for the event loop.
        book, states = await desk.stored(lambda store: (desk.ledger.book(desk.setup.dataset), store.states()))
        label = f'dataset="{label_text(desk.setup.dataset)}",unit="{label_text(book.unit)}"'
        lines = [
            "# TYPE epsteps_budget gauge",
            f"epsteps_budget{{{label}}} {book.budget.amount!r}",
            "# TYPE epsteps_spent gauge",
            f"epsteps_spent{{{label}}} {book.spent!r}",
            "# TYPE epsteps_charges_total counter",
            f"epsteps_charges_total{{{label}}} {len(book.charges)}",
            "# TYPE epsteps_ready gauge",
            f"epsteps_ready {int(desk.ready.is_set() and not desk.stopped.is_set())}",
            "# TYPE epsteps_worker_restarts_total counter",
            f"epsteps_worker_restarts_total {desk.counts.restarts}",
            "# TYPE epsteps_requests gauge",
            *(f'epsteps_requests{{state="{state}"}} {count}' for state, count in states.items()),
            "# TYPE epsteps_replies_total counter",
            *(
                f'epsteps_replies_total{{what="{what}",status="{status}"}} {count}'
                for (what, status), count in sorted(desk.counts.requests.items())
            ),
        ]
        return "\n".join(lines) + "\n"
