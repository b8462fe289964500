"""Hostile analysts and networks: what they send to keep others out, to be let through, or to bring the process down."""

import asyncio
import json
import logging
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from service_kit import OPEN, holder_of, make_site, schema, serving

import epsteps as es
from epsteps.plans.notation import problem_to_dict
from epsteps.service import holder as holders
from epsteps.service import server as servers
from epsteps.service import tokens, wire
from epsteps.service.holder import Worker
from epsteps.service.server import Desk, patient_protocol
from epsteps.service.store import Store, beside
from epsteps.tables.model import problem_of

POLICY = OPEN | {"limits": {"slow": 0.5, "at_once": 4, "rate": 1000.0}}
PERSON = {"limits": {"waiting": 20}}
IDLE = 1  # seconds


def problem(ridge=0.1):
    return problem_of(schema(), 500, ridge)


def session_body(allowance=None, **more):
    content = {"problem": problem_to_dict(problem()), "allowance": (allowance or es.Pure(1.0)).to_dict()}
    return wire.dumped(content | more)


def plan_body(epsilon=1.0, iterations=2):
    plan = es.plan(problem(), es.Pure(epsilon), es.nesterov, iterations=iterations)
    return wire.dumped({"plan": plan.to_json(), "anyway": True})


def step_body(cost=0.1):
    return wire.dumped({"x": wire.point_text(np.zeros(problem().dimension)), "cost": cost})


def taken(holder, kind, body, who="eve", session=None):
    request, _ = holder.store.ask(who, os.urandom(8).hex(), kind, "", body, session=session)
    return holder.handle(request.id)


class Kept(logging.Handler):
    """A handler of the process that serves, which tells whether somebody closed it."""

    closed = False

    def close(self):
        self.closed = True
        super().close()


@pytest.fixture(scope="module")
def handler():
    kept = Kept()
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory, handler):
    site = make_site(tmp_path_factory.mktemp("hostile"), es.Pure(50.0), policy=POLICY)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(servers, "_LONGEST_IDLE", IDLE)
        with serving(site):
            yield site


@pytest.fixture
def headers(site):
    """Return those of a token of its own, so that no test has the rate of another one."""
    secret, _ = tokens.make(site.tokens, f"eve{os.urandom(4).hex()}", ["read", "plan", "session"], 1)
    return {"Authorization": f"Bearer {secret}", "Idempotency-Key": os.urandom(8).hex()}


def test_serving_leaves_the_logs_of_its_process_alone(site, handler):
    """Some handlers close their stream with them, and that is stderr for whatever runs there besides."""
    assert not handler.closed


# The network


@pytest.mark.parametrize("wait", ["nan", "inf", "-inf", "x"])
def test_a_wait_that_is_no_time_is_refused(site, headers, wait):
    """NaN would be neither over nor not, and would stand in the way of every other timer of the server."""
    posted = site.http.post(f"{site.url}/v1/datasets/people/sessions", content=session_body(), headers=headers)
    reply = site.http.get(f"{site.url}/v1/requests/{posted.json()['id']}?wait={wait}", headers=headers, timeout=5)
    assert (reply.status_code, reply.json()["type"]) == (422, "urn:epsteps:problem:invalid-request")


def idle_end(port, first, then, pause):
    """Return after how many seconds the server ends a connection that sends one request, and dribbles afterwards."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as slow:
        slow.sendall(first)
        assert slow.recv(65536)
        begun = time.monotonic()
        slow.settimeout(pause)
        while time.monotonic() - begun < 8:
            try:
                slow.sendall(then)
                if slow.recv(65536) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        return time.monotonic() - begun


@pytest.mark.parametrize("kind", ["headers of a second request", "body of a request that was refused"])
def test_a_connection_that_was_answered_once_cannot_dribble_for_ever(site, kind):
    """Each byte would put off the end of an idle connection, and whoever has no token could take all there are."""
    if kind.startswith("headers"):
        first, then = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"G"
    else:
        first = b"POST /v1/datasets/people/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
        then = b" "
    assert idle_end(site.port, first, then, 0.25) < IDLE + 3


def test_a_reply_that_nobody_reads_does_not_hold_its_connection():
    import uvicorn

    async def endless(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(10_000):
            await send({"type": "http.response.body", "body": b" " * 65536, "more_body": True})

    config = uvicorn.Config(endless, http=patient_protocol(0.2, longest=0.5), log_config=None, lifespan="off")
    server, bound = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    with socket.create_connection(bound.getsockname(), timeout=5) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        deadline = time.monotonic() + 5
        while not server.server_state.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        while server.server_state.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not server.server_state.connections
    server.should_exit = True
    thread.join(10)


def test_a_token_that_waits_leaves_connections_to_others(site, headers):
    posted = site.http.post(f"{site.url}/v1/datasets/people/sessions", content=session_body(), headers=headers)
    assert posted.status_code == 201
    statuses, threads = [], []

    def wait():
        # A body that does not arrive is waited for until the time is over.
        with socket.create_connection(("127.0.0.1", site.port), timeout=20) as waiting:
            head = f"POST /v1/sessions/{posted.json()['id']}/gradients HTTP/1.1\r\nHost: x\r\n"
            head += f"Authorization: {headers['Authorization']}\r\nIdempotency-Key: k\r\nContent-Length: 50\r\n\r\n{{"
            waiting.sendall(head.encode())
            statuses.append(int(waiting.recv(4096).split()[1]))

    for _ in range(10):
        threads.append(threading.Thread(target=wait))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [408] * 4 + [429] * 6
    # All of them are given back.
    assert site.http.get(f"{site.url}/v1/datasets", headers=headers).status_code == 200


def test_a_refusal_does_not_let_a_token_have_two_answers_computed_at_once(tmp_path):
    site = make_site(tmp_path, es.Pure(1.0))
    desk = Desk(site.setup, site.tokens)
    (token, *_) = desk.tokens.listed()

    async def attack():
        async with desk.only_job(token, "first"):
            async with desk.only_job(token, "first"):
                pass  # the same request again, which is answered or refused at once
            with pytest.raises(wire.Refusal, match="in progress"):
                async with desk.only_job(token, "second"):
                    pass
        async with desk.only_job(token, "second"):
            pass

    asyncio.run(attack())


def test_a_session_is_asked_for_in_few_bytes(site, headers):
    reply = site.http.post(f"{site.url}/v1/datasets/people/sessions", content=b"{" + b" " * 300_000, headers=headers)
    assert (reply.status_code, reply.json()["type"]) == (413, "urn:epsteps:problem:too-large")


# Approval


def test_plans_that_are_approved_at_once_count_for_each_other(tmp_path):
    """They are charged later, one after the other: whoever posts them all at once gets no more by that."""
    policy = {"plans": {"per_plan": 1.0, "per_analyst": 2.5, "per_day": 4.5}}
    holder = holder_of(tmp_path, es.Pure(50.0), policy=policy)
    states = [taken(holder, "plan", plan_body(), who).state for who in ("eve", "eve", "eve", "bob", "carol", "dora")]
    assert states == ["approved", "approved", "waiting", "approved", "approved", "waiting"]
    for request in holder.store.requests(states=("approved",)):
        assert holder.handle(request.id).state == "published"
    assert taken(holder, "plan", plan_body(0.4)).state == "approved"  # and once charged they count once
    holder.store.close()


def test_a_plan_is_charged_what_was_approved_or_not_at_all(tmp_path, monkeypatch):
    """Another version of the library might find another price for the same text: approved is the one on the page."""
    holder = holder_of(tmp_path, es.Pure(5.0))
    posted = taken(holder, "plan", plan_body())
    kind = type(es.plan(problem(), es.Pure(1.0), es.nesterov, iterations=2))
    monkeypatch.setattr(kind, "spending", lambda *_: es.Pure(0.999))
    refused = holder.handle(posted.id)
    assert (refused.state, json.loads(refused.answer)["type"]) == ("refused", "urn:epsteps:problem:price-changed")
    assert holder.ledger.spent("people") == 0
    holder.store.close()


def test_what_was_approved_meanwhile_is_not_refused(tmp_path):
    holder = holder_of(tmp_path, es.Pure(5.0), policy=PERSON)
    waiting = taken(holder, "plan", plan_body())
    assert waiting.state == "waiting"
    holder.store.move(waiting, "approved", by="one", only_from="waiting")
    assert holder.store.move(waiting, "refused", by="another", only_from="waiting").state == "approved"
    holder.store.close()


def test_no_record_is_read_for_a_session_that_waits(tmp_path, monkeypatch):
    holder = holder_of(tmp_path, es.Pure(5.0), policy=PERSON)
    with monkeypatch.context() as patched:
        patched.setattr(holders, "Rows", lambda *_: pytest.fail("records were read before anybody approved"))
        waiting = taken(holder, "session", session_body())
        assert waiting.state == "waiting"
    holder.store.move(waiting, "approved", by="holder")
    holder.handle(waiting.id)
    assert holder._sessions[waiting.id].reader is not None
    holder.store.close()


# The process


class Killed(BaseException):
    """Stands for a process that ends: nothing may catch it."""


@pytest.mark.parametrize("kind", ["plan", "session", "gradient"])
def test_what_ends_the_process_again_and_again_is_refused(tmp_path, monkeypatch, kind):
    """Else one request would keep everybody out: the process begins with what has arrived, and ends again."""

    def killed(*_, **__):
        raise Killed

    holder = holder_of(tmp_path, es.Pure(5.0))
    opened = taken(holder, "session", session_body())
    body = {"plan": plan_body(), "session": session_body(), "gradient": step_body()}[kind]
    owner, name = {
        "plan": (holders.Holder, "_certified"),
        "session": (holders.Holder, "_require_payable"),
        "gradient": (holders.Holder, "_asked"),
    }[kind]
    monkeypatch.setattr(owner, name, killed)
    with pytest.raises(Killed):
        taken(holder, kind, body, session=opened.id if kind == "gradient" else None)
    (killer,) = holder.store.requests(states=("arrived",))
    for _ in range(10):
        holder.store.close()
        holder = holder_of(tmp_path, es.Pure(5.0))
        try:
            refused = holder.handle(killer.id)
            break
        except Killed:
            continue
    assert (refused.state, refused.answer) == ("refused", wire.FAILED.body)
    assert 3 <= refused.attempts <= 8
    holder.store.close()


def test_what_was_paid_goes_on_however_long_its_check_takes(tmp_path, monkeypatch):
    from epsteps.running import taps

    holder = holder_of(tmp_path, es.Pure(5.0))
    posted = taken(holder, "plan", plan_body())
    with monkeypatch.context() as patched:
        patched.setattr(taps, "reading", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            holder.handle(posted.id)
    holder.store.close()
    holder = holder_of(tmp_path, es.Pure(5.0), policy=OPEN | {"limits": {"certify": 1e-6}})
    assert holder.handle(posted.id).state == "published"
    assert len(holder.ledger.history("people")) == 1
    holder.store.close()


@pytest.mark.parametrize("where", ["_rows", "run_to_dict"])
def test_what_goes_wrong_around_a_run_is_told_on_the_clock_too(tmp_path, monkeypatch, where):
    holder = holder_of(tmp_path, es.Pure(5.0), job_tick=50.0)
    posted = taken(holder, "plan", plan_body())
    owner = wire if where == "run_to_dict" else holders.Holder
    monkeypatch.setattr(owner, where, lambda *_: 1 / 0)
    failed = holder.handle(posted.id)
    assert (failed.state, failed.answer) == ("refused", wire.FAILED.body)
    assert failed.visible > time.time() + 40
    holder.store.close()


def test_a_file_that_changes_while_it_is_read_is_not_served(tmp_path, monkeypatch):
    """Within the granularity of times, and with its length kept, the change shows in its contents alone."""
    site = make_site(tmp_path, es.Pure(1.0))
    records, load = Path(site.setup.data), es.Schema.load

    def changing(declared, path, **options):
        times = records.stat()
        records.write_text(records.read_text().replace("north", "south", 1))
        os.utime(records, ns=(times.st_atime_ns, times.st_mtime_ns))
        return load(declared, path, **options)

    monkeypatch.setattr(es.Schema, "load", changing)
    with pytest.raises(OSError, match="was changed while it was read"):
        Worker(site.setup, lambda _: None)


# Numbers and texts


HUGE = 10**400
NESTED = json.loads("[" * 200 + "]" * 200)
ODD = [None, True, "\ud800", -1, 5e-324, 1e308, HUGE, [], NESTED, {"type": NESTED}]


def replaced(content, value):
    """Yield an object with each of its members, and of those below it, replaced by a value."""
    for name, known in content.items():
        yield content | {name: value}
        if isinstance(known, dict):
            yield from (content | {name: below} for below in replaced(known, value))


def test_whatever_is_sent_is_refused_in_public_words_and_for_nothing(tmp_path):
    """No body leads to the constant answer of what fails once records were touched, or to a charge beyond its cost."""
    holder = holder_of(tmp_path, es.Pure(5.0), policy=OPEN)
    opened, read, view = taken(holder, "session", session_body()), json.loads, {"columns": ["age"], "target": "bought"}
    whole = {"noise": "laplace", "scale": 2000.0, "bound": 1.0, "batch": 500, "step": None}
    bodies = [("session", read(session_body(**view))), ("plan", read(plan_body()) | view)]
    bodies += [("gradient", read(step_body())), ("gradient", {"x": read(step_body())["x"]} | whole)]
    tried = 0
    for kind, content in bodies:
        for value in ODD:
            for odd in replaced(content, value):
                body = json.dumps(odd).encode()
                reply = taken(holder, kind, body, session=opened.id if kind == "gradient" else None)
                assert reply.answer != wire.FAILED.body, (kind, body[:300])
                assert reply.state in ("approved", "published", "waiting", "refused")
                tried += 1
                if kind == "gradient" and reply.state == "published":
                    cost = odd.get("cost", 1.0)
                    assert 0 < read(reply.answer)["charged"]["epsilon"] <= cost
    assert tried > 200
    assert holder.ledger.spent("people") <= 1.0  # the session's allowance
    holder.store.verify(holder.ledger)
    holder.store.close()


def test_names_of_datasets_are_quoted_in_metrics(tmp_path):
    from epsteps.service.admin import label_text

    assert label_text('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_no_change_is_waited_for_that_nobody_asked_about(tmp_path):
    """What is approved, or told again after a new start, leaves nothing behind in the server."""
    site = make_site(tmp_path, es.Pure(1.0))
    desk = Desk(site.setup, site.tokens)
    with Store(beside(Path(site.setup.ledger))) as store:
        ids = [store.ask("eve", str(number), "plan", "", plan_body())[0].id for number in range(5)]

    async def told():
        for id in ids:
            await desk.tell(id)

    asyncio.run(told())
    assert desk._changed == {}
