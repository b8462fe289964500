"""Attacks on a service: tokens, plans, points, replays and requests that are not what they should be."""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from service_kit import OPEN, holder_of, make_site, schema, serving, table
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app
from epsteps.service import tokens, wire
from epsteps.service.client import connect
from epsteps.service.holder import Setup, Worker, setup_text
from epsteps.service.policy import read_tables
from epsteps.service.server import Analysts, Desk, problem_reply, require_safe
from epsteps.service.store import Store, beside
from epsteps.service.tokens import Token
from epsteps.tables.model import problem_of as model_problem

POLICY = {
    "plans": {"per_plan": 1.0, "per_analyst": 3.0, "per_day": 5.0},
    "sessions": {"per_session": 2.0, "per_step": 0.5},
    "allowances": {"bob": 1.0},
    "allowed": {"losses": ["Logistic"], "targets": ["bought"]},
    "limits": {"body": 50_000, "slow": 0.5, "rate": 40.0, "waiting": 3},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = make_site(tmp_path_factory.mktemp("attacked"), es.Pure(50.0), policy=POLICY)
    for name, scopes in {"reader": ["read"], "planner": ["plan", "read"]}.items():
        site.secrets[name], _ = tokens.make(site.tokens, name, scopes, 1)
    site.secrets["late"], _ = tokens.make(site.tokens, "late", ["read", "session"], 1e-9)
    with serving(site):
        yield site


@pytest.fixture(scope="module")
def problem(site):
    return site.people().problem(0.1)


@pytest.fixture(scope="module")
def session(site, problem):
    return site.people().session(problem, es.Pure(2.0))


def post(site, path, content, who="alice", key=None, **headers):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {
        "Authorization": f"Bearer {site.secrets[who]}",
        "Idempotency-Key": os.urandom(8).hex() if key is None else key,
    } | headers
    return site.http.post(site.url + path, content=body, headers=headers)


def kind_of(reply):
    assert reply.headers["content-type"] == "application/problem+json"
    content = reply.json()
    assert content["status"] == reply.status_code
    return content["type"].removeprefix("urn:epsteps:problem:")


# Tokens


def test_a_wrong_an_expired_and_no_token_get_the_same_bytes(site):
    headers = [{}, {"Authorization": "Bearer eps_wrong"}, {"Authorization": f"Bearer {site.secrets['late']}"}]
    headers += [{"Authorization": f"Basic {site.secrets['alice']}"}, {"Authorization": site.secrets["alice"]}]
    replies = [site.http.get(f"{site.url}/v1/datasets/people", headers=each) for each in headers]
    assert {reply.status_code for reply in replies} == {401}
    assert len({reply.content for reply in replies}) == 1


def test_a_narrower_token_is_refused(site, session, problem):
    point = {"x": wire.point_text(np.zeros(problem.dimension)), "cost": 0.1}
    assert kind_of(post(site, f"/v1/sessions/{session.id}/gradients", point, "reader")) == "narrower-token"
    assert kind_of(post(site, "/v1/datasets/people/plans", {}, "reader")) == "narrower-token"
    assert kind_of(post(site, "/v1/datasets/people/sessions", {}, "planner")) == "narrower-token"
    narrow, _ = tokens.make(site.tokens, "alice", ["read"], 1)
    headers = {"Authorization": f"Bearer {narrow}"}
    assert kind_of(site.http.delete(f"{site.url}/v1/requests/{session.id}", headers=headers)) == "narrower-token"
    asked = site.http.get(f"{site.admin_url}/v1/requests", headers={"Authorization": f"Bearer {site.secrets['alice']}"})
    assert (asked.status_code, kind_of(asked)) == (403, "narrower-token")


def test_a_revoked_token_is_refused_at_once(site):
    secret, token = tokens.make(site.tokens, "mallory", ["read"], 1)
    headers = {"Authorization": f"Bearer {secret}"}
    assert site.http.get(f"{site.url}/v1/datasets", headers=headers).status_code == 200
    tokens.revoke(site.tokens, token.id)
    assert site.http.get(f"{site.url}/v1/datasets", headers=headers).status_code == 401


def test_the_file_of_tokens_holds_hashes_of_256_bits_for_its_owner(site):
    text = site.tokens.read_text()
    assert not any(secret in text for secret in site.secrets.values())
    assert site.tokens.stat().st_mode & 0o077 == 0
    assert all(len(secret) == 4 + 43 for secret in site.secrets.values())


@pytest.mark.parametrize("broken", [{"analyst": "a b"}, {"scopes": ()}, {"scopes": ("all",)}, {"sha256": "00"}])
def test_tokens_that_say_something_else_are_refused(site, broken):
    facts = vars(tokens.read(site.tokens)[0]) | broken
    with pytest.raises(ValueError, match=r"must|needs|has no"):
        Token(**facts)


# Plans


def edited(text, **changes):
    content = json.loads(text)
    content.update(changes)
    return json.dumps(content)


def test_edited_plans_are_refused_and_nothing_is_charged(site, problem):
    plan = es.plan(problem, es.Pure(0.5), es.nesterov, iterations=3)
    text, spent = plan.to_json(), site.ledger.spent("people")
    content = json.loads(text)
    scales = [scale / 10 for scale in content["scales"]]
    certificate = content["certificate"] | {"spent": 0.01}
    for changed in (
        edited(text, scales=scales),
        edited(text, certificate=certificate),
        edited(text, kind="Nothing"),
        edited(text, surprise=1),
        text.replace("1", "NaN", 1),
        "{}",
        "[" * 5000,
    ):
        assert kind_of(post(site, "/v1/datasets/people/plans", {"plan": changed})) == "plan-refused"
    elsewhere = es.plan(
        es.Problem(problem.loss, problem.domain, ridge=0.1, n=problem.n * 100, d=problem.d), es.Pure(0.5), es.nesterov
    )
    assert kind_of(post(site, "/v1/datasets/people/plans", {"plan": elsewhere.to_json()})) == "invalid-request"
    assert kind_of(post(site, "/v1/datasets/people/plans", {"plan": 3})) == "invalid-request"
    assert site.ledger.spent("people") == spent


def test_what_the_policy_does_not_allow_is_refused(site, problem):
    plan = es.plan(
        es.Problem(es.SmoothedHinge(classes=(0, 1)), problem.domain, **facts_of(problem)), es.Pure(0.5), es.nesterov
    )
    assert kind_of(post(site, "/v1/datasets/people/plans", {"plan": plan.to_json()})) == "not-allowed"
    people = site.people().select(["bought", "region"], target="age")
    plan = es.plan(people.problem(0.1), es.Pure(0.5), method="statistics")
    body = {"plan": plan.to_json(), "columns": ["bought", "region"], "target": "age"}
    assert kind_of(post(site, "/v1/datasets/people/plans", body)) == "not-allowed"
    for view in ({"columns": ["nothing"]}, {"columns": ["age", "age"]}, {"columns": "age"}, {"target": 3}):
        assert kind_of(post(site, "/v1/datasets/people/plans", body | view)) == "invalid-request"


def facts_of(problem):
    return {name: getattr(problem, name) for name in ("ridge", "n", "d", "intercept")}


def test_a_plan_that_takes_too_long_to_certify_is_refused(tmp_path, monkeypatch):
    def endless(text):
        try:
            while True:
                sum(range(1000))
        except Exception:
            return None

    holder = holder_of(tmp_path, es.Pure(5.0), policy={"limits": {"certify": 0.1}})
    monkeypatch.setattr(es.Plan, "from_json", endless)
    refused = holder.handle(holder.store.ask("eve", "1", "plan", "", b'{"plan": "{}"}')[0].id)
    assert (refused.state, b"too-long" in refused.answer) == ("refused", True)
    holder.store.close()


def test_a_person_approves_refuses_and_an_analyst_withdraws(site, problem):
    people = site.people()
    plan = es.plan(problem, es.Pure(2.0), es.nesterov, iterations=3)  # above what the policy approves by itself
    admin = httpx.Client(base_url=site.admin_url, headers={"Authorization": f"Bearer {site.secrets['admin']}"})
    with admin:
        posted = people.submit(plan, anyway=True)
        assert posted.state == "waiting"
        (listed,) = admin.get("/v1/requests").json()["requests"]
        assert listed["page"] == str(plan)
        assert admin.post(f"/v1/requests/{posted.id}/approve").json()["state"] == "approved"
        assert posted.result().path.shape == (4, problem.dimension)
        refused = people.submit(plan, anyway=True)
        admin.post(f"/v1/requests/{refused.id}/refuse", params={"reason": "not this year"})
        with pytest.raises(ValueError, match="not this year"):
            refused.result()
        gone = people.submit(plan, anyway=True)
        gone.withdraw()
        assert gone.state == "withdrawn"
        assert kind_of(admin.post(f"/v1/requests/{gone.id}/approve")) == "too-late"
        assert kind_of(admin.post("/v1/requests/nothing/approve")) == "not-found"


def test_an_analysts_allowance_is_kept_below_the_datasets(site, problem):
    people = site.people("bob")
    session = people.session(problem, es.Pure(1.0))
    for _ in range(2):
        session.gradient(np.zeros(problem.dimension), 0.4)
    with pytest.raises(es.BudgetExceededError, match="allowance of the analyst"):
        people.session(problem, es.Pure(1.0)).gradient(np.zeros(problem.dimension), 0.4)
    with pytest.raises(es.BudgetExceededError, match="allowance of the analyst"):
        people.submit(es.plan(problem, es.Pure(0.9), es.nesterov, iterations=3), anyway=True)
    assert people.facts()["allowance"]["spent"] == pytest.approx(0.8)


# Points


def points(length):
    good = np.zeros(length)
    nan, huge, infinite = good.copy(), good.copy(), good.copy()
    nan[0], huge[-1], infinite[0] = np.nan, 1e101, np.inf
    texts = [wire.point_text(x) for x in (nan, huge, infinite, np.zeros(length + 1), np.zeros(length - 1))]
    return [*texts, "", "####", wire.point_text(good) + "\n", 3, None, [0.0] * length, {"x": 1}]


def test_points_that_are_none_are_refused_before_the_charge(site, session, problem):
    path, spent = f"/v1/sessions/{session.id}/gradients", site.ledger.spent("people")
    for x in points(problem.dimension):
        reply = post(site, path, {"x": x, "cost": 0.1})
        assert (reply.status_code, kind_of(reply)) == (422, "invalid-request"), x
    assert site.ledger.spent("people") == spent


def test_requests_for_other_noise_than_there_is_are_refused(site, session, problem):
    time.sleep(0.5)  # a token has a rate
    path, spent = f"/v1/sessions/{session.id}/gradients", site.ledger.spent("people")
    x = wire.point_text(np.zeros(problem.dimension))
    whole = {"x": x, "noise": "laplace", "scale": 2000.0, "bound": 1.0, "batch": problem.n, "step": None}
    broken = [
        {"scale": 0.0},
        {"scale": -1.0},
        {"scale": 1e300},
        {"bound": 0.0},
        {"noise": "none"},
        {"noise": "wishart"},
    ]
    broken += [{"bound": 1e-3}, {"bound": 1e-300, "scale": 1e-300}, {"bound": 2.0}, {"bound": None}]
    broken += [{"batch": 0}, {"batch": problem.n + 1}, {"batch": 1.5}, {"step": -1}, {"scale": "1"}, {"extra": 1}]
    for change in broken:
        reply = post(site, path, whole | change)
        assert kind_of(reply) == "invalid-request", change
    for cost in (0, -1, "1", True, None, [], 1e-300):
        assert kind_of(post(site, path, {"x": x, "cost": cost})) == "invalid-request", cost
    assert kind_of(post(site, path, b'{"x": NaN}')) == "not-json"
    assert site.ledger.spent("people") == spent
    assert post(site, path, whole).status_code == 200  # as it is, it is none of them
    spent = site.ledger.spent("people")
    assert kind_of(post(site, path, b"\xff\xfe")) == "not-json"
    assert kind_of(post(site, path, {"x": x})) == "invalid-request"
    assert kind_of(post(site, path, {"x": x, "cost": 0.6})) == "step-too-dear"
    assert site.ledger.spent("people") == spent


# Replays, sizes and speeds


def test_requests_need_a_key_and_another_body_is_not_paid_with_it(site, session, problem):
    path = f"/v1/sessions/{session.id}/gradients"
    body = {"x": wire.point_text(np.zeros(problem.dimension)), "cost": 0.1}
    for key in ("", "k" * 129):
        assert kind_of(post(site, path, body, key=key)) == "invalid-request"
    first = post(site, path, body, key="replayed")
    spent = site.ledger.spent("people")
    assert {post(site, path, body, key="replayed").content for _ in range(3)} == {first.content}
    assert kind_of(post(site, path, body | {"cost": 0.2}, key="replayed")) == "key-reused"
    assert site.ledger.spent("people") == spent


def test_oversized_requests_are_refused(site, session):
    reply = post(site, f"/v1/sessions/{session.id}/gradients", b" " * 60_000)
    assert kind_of(reply) == "too-large"

    def parts():
        for _ in range(60):
            yield b" " * 1000

    headers = {"Authorization": f"Bearer {site.secrets['alice']}", "Idempotency-Key": "large"}
    reply = site.http.post(f"{site.url}/v1/sessions/{session.id}/gradients", content=parts(), headers=headers)
    assert kind_of(reply) == "too-large"


def test_a_request_for_a_gradient_is_no_longer_than_its_point_needs(site, session, problem):
    """What is too long for it may still be short enough for a plan."""
    path, point = f"/v1/sessions/{session.id}/gradients", wire.point_text(np.zeros(problem.dimension))
    reply = post(site, path, json.dumps({"x": point, "cost": 0.1}).encode() + b" " * 20_000, "bob")
    assert (reply.status_code, kind_of(reply)) == (413, "too-large")
    assert reply.json()["most"] < 10_000
    reply = post(site, "/v1/datasets/people/plans", b"{" + b" " * 20_000, "bob")
    assert kind_of(reply) == "not-json"


def test_bodies_of_what_was_refused_are_not_kept(site, session):
    with Store(beside(site.ledger.path)) as store:
        body = b'{"plan": 3}' + b" " * 40_000
        assert post(site, "/v1/datasets/people/plans", body, "bob", "dropped").status_code == 422
        (refused,) = [each for each in store.requests(states=("refused",)) if each.key == "dropped"]
        assert refused.body == b""
        digest = wire.digest(b"plan", b"/v1/datasets/people/plans", body)
        assert {event.digest for event in store.events_of([refused.id])} == {refused.digest} == {digest}
        # The same request gets the same bytes again, and another one with its key is refused, as ever.
        again = post(site, "/v1/datasets/people/plans", body, "bob", "dropped")
        assert again.content == refused.answer
        assert kind_of(post(site, "/v1/datasets/people/plans", b'{"plan": 3}', "bob", "dropped")) == "key-reused"
    site.verify()


def test_what_an_analyst_may_have_stored_is_bounded(tmp_path):
    """Whatever is sent, and refused or not; what was stored is still answered, and others have room of their own."""
    most = 120_000
    holder = holder_of(tmp_path, es.Pure(5.0), policy=OPEN | {"limits": {"stored": most}})
    store, problem = holder.store, problem_of(holder)
    plan = wire.dumped({"plan": es.plan(problem, es.Pure(0.1), es.nesterov, iterations=2).to_json(), "anyway": True})
    first, _ = store.ask("eve", "first", "plan", "d", plan, most=most)
    asked = holder.handle(first.id)
    assert len(holder.handle(asked.id).answer) + len(plan) < asked.size == store.held("eve")
    # A plan whose answer would be too long is refused before anything is charged, by public numbers.
    long = wire.dumped({"plan": es.plan(problem, es.Pure(0.1), es.nesterov, iterations=700).to_json(), "anyway": True})
    assert len(long) < 100_000
    refused = holder.handle(store.ask("eve", "long", "plan", "l", long, most=most)[0].id)
    content = json.loads(refused.answer)
    assert (refused.status, content["type"]) == (403, "urn:epsteps:problem:storage-exceeded")
    assert content["asked"] > content["remaining"] > 0
    with pytest.raises(wire.Refusal, match="bytes that an analyst may have stored"):
        store.ask("eve", "large", "plan", "x", b" " * most, most=most)
    taken = 0
    with contextlib.suppress(wire.Refusal):
        while taken < 100:  # what is refused takes some room, too, and so does a refusal at the door
            holder.handle(store.ask("eve", f"small {taken}", "plan", "s", b"{" + b" " * 5000, most=most)[0].id)
            store.note_refused("eve", "plan", "s", wire.FAILED, most)
            taken += 1
    assert 15 < taken < 50
    rows = len(store.events())
    for _ in range(100):
        store.note_refused("eve", "plan", "s", wire.FAILED, most)
    assert len(store.events()) < rows + 10
    assert store.held("eve") <= most
    assert store.ask("eve", "first", "plan", "d", plan, most=most)[0].answer == store.request(first.id).answer
    assert store.ask("bob", "first", "plan", "d", plan, most=most)[1]
    store.verify(holder.ledger)
    store.close()


def test_the_server_takes_in_what_fits_its_policy_and_answers_what_it_has(tmp_path):
    site = make_site(tmp_path, es.Pure(1.0), policy={"limits": {"stored": 20_000, "queue": 1}})
    desk = Desk(site.setup, site.tokens)
    analysts, path = Analysts(desk), beside(Path(site.setup.ledger))
    with Store(path) as store:
        with pytest.raises(wire.Refusal, match="20000 bytes"):
            analysts._taken(store, "eve", "1", "plan", "a", b" " * 20_000, None)
        first = analysts._taken(store, "eve", "2", "plan", "a", b"{}", None)
        with pytest.raises(wire.Refusal, match="too many requests wait"):
            analysts._taken(store, "bob", "1", "plan", "a", b"{}", None)
        published = store.move(first, "published", status=200, answer=b"[]")
        assert analysts._taken(store, "bob", "1", "plan", "b", b"{}", None).state == "arrived"
        assert analysts._taken(store, "eve", "2", "plan", "a", b"{}", None) == published  # though the queue is full
        assert desk._facts(store, "eve")["stored"] == {"bytes": first.size, "most": 20_000}


def test_the_room_of_a_run_that_failed_is_not_given_back_before_its_time(tmp_path, monkeypatch):
    from epsteps.running import taps

    holder = holder_of(tmp_path, es.Pure(5.0), job_tick=50.0)
    plan = es.plan(problem_of(holder), es.Pure(1.0), es.nesterov, iterations=2).to_json()
    body = wire.dumped({"plan": plan, "anyway": True})
    posted = holder.handle(holder.store.ask("eve", "3", "plan", "", body)[0].id)
    held = holder.store.held("eve")
    monkeypatch.setattr(taps, "reading", lambda *_: 1 / 0)
    assert holder.handle(posted.id).state == "refused"
    assert holder.store.held("eve") == held
    holder.store.close()


@pytest.mark.parametrize("method", ["steps", "final", "objective", "statistics"])
def test_the_size_of_what_a_plan_publishes_is_known_beforehand(method):
    declared = schema() if method != "statistics" else es.Schema(schema().columns, "age")
    problem = model_problem(declared, 500, 0.1)
    options = {"steps": {"method": es.nesterov, "iterations": 40}, "final": {"release": "final"}}.get(
        method, {"method": method}
    )
    plan = es.plan(problem, es.Pure(20.0), **options)
    rows = es.Rows(problem, declared.encode(table()), declared.encode_target(table()))
    answer = wire.dumped(wire.run_to_dict(es.run(plan, rows, seed=0, anyway=True)))
    assert len(answer) <= wire.run_size(plan) <= 20 * len(answer)


def test_slow_requests_are_refused(site, session):
    """A body that dribbles in gets 408; headers that do, a closed connection."""
    head = f"POST /v1/sessions/{session.id}/gradients HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
    head += f"{site.secrets['alice']}\r\nIdempotency-Key: slow\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=5) as slow:
        slow.sendall(head.encode() + b"{")
        assert b"408" in slow.recv(4096).split(b"\r\n")[0]
    with socket.create_connection(("127.0.0.1", site.port), timeout=5) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert slow.recv(4096) == b""


def test_a_token_has_a_rate_of_its_own(tmp_path, monkeypatch):
    site, now = make_site(tmp_path, es.Pure(1.0), policy=POLICY), [1000.0]
    desk = Desk(site.setup, site.tokens)
    alice, bob, _ = desk.tokens.listed()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in range(40):
        desk.admit(alice)
    with pytest.raises(wire.Refusal, match="40 times a second") as refused:
        desk.admit(alice)
    assert (refused.value.status, problem_reply(refused.value).headers["retry-after"]) == (429, "1")
    desk.admit(bob)
    now[0] += 0.03
    desk.admit(alice)
    with pytest.raises(wire.Refusal, match="40 times a second"):
        desk.admit(alice)


def test_an_analyst_has_a_place_in_the_queue(site, problem):
    plan = es.plan(problem, es.Pure(2.0), es.nesterov, iterations=3).to_json()
    kinds = [post(site, "/v1/datasets/people/plans", {"plan": plan, "anyway": True}, "planner") for _ in range(4)]
    assert [reply.status_code for reply in kinds] == [201, 201, 201, 503]
    assert kind_of(kinds[-1]) == "queue-full"


# What is served, and to whom


def test_plain_http_is_for_this_machine():
    for host in ("127.0.0.1", "::1", "localhost"):
        require_safe(host, tls=False, insecure=False)
    with pytest.raises(ValueError, match="--insecure"):
        require_safe("0.0.0.0", tls=False, insecure=False)
    require_safe("0.0.0.0", tls=True, insecure=False)
    require_safe("0.0.0.0", tls=False, insecure=True)
    with pytest.raises(ValueError, match="https"):
        connect("http://holder.example", token="eps_x")


def test_numerical_composition_is_not_served(tmp_path):
    with pytest.raises(ValueError, match="composes numerically"):
        holder_of(tmp_path, es.Approximate(1.0, 1e-6), composition="numerical")


def test_whoever_decides_has_the_policy_with_which_the_service_began(tmp_path):
    """An edited file takes effect at the next start, not where one of two processes is begun anew."""
    site = make_site(tmp_path, es.Pure(1.0), policy=POLICY)
    desk = Desk(site.setup, site.tokens)
    (site.folder / "policy.toml").write_text("[allowances]\nalice = 0.1\n")
    worker = Worker(Setup(**json.loads(setup_text(desk.setup))), lambda _: None)
    assert worker.holder.policy == desk.policy
    assert worker.holder.policy.allowances == POLICY["allowances"]
    worker.holder.store.close(), worker._lock.close()
    (site.folder / "policy.toml").write_text("[limits]\nbody = 'much'\n")
    with pytest.raises(ValueError, match=r"policy\.toml"):
        read_tables(site.folder / "policy.toml")


def test_another_file_is_not_served_under_the_same_name(tmp_path):
    site = make_site(tmp_path, es.Pure(1.0))
    worker = Worker(site.setup, lambda _: None)
    worker.holder.store.close(), worker._lock.close()
    records = site.folder / "people.csv"
    records.write_text(records.read_text().replace("north", "south", 1))
    with pytest.raises(OSError, match="not the file that dataset 'people' was served from"):
        Worker(site.setup, lambda _: None)


def test_replies_leave_on_the_clock_and_a_changed_file_stops_the_service(tmp_path):
    tick = 0.3
    site = make_site(tmp_path, es.Pure(5.0), tick=tick)
    with serving(site) as state:
        people = site.people()
        problem = people.problem(0.1)
        session = people.session(problem, es.Pure(1.0))
        for _ in range(4):
            begun = time.perf_counter()
            session.gradient(np.zeros(problem.dimension), 0.1)
            passed = time.perf_counter() - begun
            assert tick <= passed + 1e-3
            assert passed % tick < 0.5 * tick  # a moment after a tick, whatever the machine is doing besides
        spent = site.ledger.spent("people")
        records = site.folder / "people.csv"
        records.write_text(records.read_text().replace("north", "south", 1))
        path = f"/v1/sessions/{session.id}/gradients"
        reply = None
        with contextlib.suppress(httpx.TransportError):
            reply = post(site, path, {"x": wire.point_text(np.zeros(problem.dimension)), "cost": 0.1})
        assert reply is None or reply.status_code == 503
        deadline = time.monotonic() + 10
        while "error" not in state and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "file was changed" in str(state["error"])
    assert site.ledger.spent("people") == spent


# What depends on data, and what does not


def hostile():
    """Return tables of the same size: ordinary, constant, empty cells, and cells that are nothing that was declared."""
    ordinary, constant = table(1), table(1)
    constant = {name: np.full_like(column, column[0]) for name, column in constant.items()}
    empty = {name: np.array([None] * len(column), dtype=object) for name, column in ordinary.items()}
    strange = {name: np.array(["\x00", float("nan"), 1e308, -1e308, object()] * 100, dtype=object) for name in ordinary}
    return [ordinary, constant, empty, strange]


def refusals(holder, problem):
    """Return every body and state that an analyst sees who asks for what is refused, charged or not."""
    store, seen = holder.store, []

    def ask(kind, content, session=None):
        body = content if isinstance(content, bytes) else wire.dumped(content)
        request, _ = store.ask("eve", os.urandom(8).hex(), kind, "", body, session=session)
        request = holder.handle(request.id)
        seen.append((kind, request.state, request.status, request.answer, request.price))
        return request

    from epsteps.plans.notation import problem_to_dict

    opened = ask("session", {"problem": problem_to_dict(problem), "allowance": es.Pure(1.0).to_dict()})
    for x in points(problem.dimension):
        ask("gradient", {"x": x, "cost": 0.1}, opened.id)
    good = {"x": wire.point_text(np.zeros(problem.dimension)), "cost": 0.9}
    seen.append(ask("gradient", good, opened.id).state)
    seen.pop(-2)  # the answer itself, which is noisy
    ask("gradient", good, opened.id)
    ask("session", {"problem": problem_to_dict(problem), "allowance": es.Pure(1e6).to_dict()})
    ask("plan", {"plan": es.plan(problem, es.Pure(100.0), es.nesterov, iterations=2).to_json(), "anyway": True})
    ask("plan", {"plan": es.plan(problem, es.Pure(1e-4), es.nesterov, iterations=2).to_json()})
    ask("plan", {"plan": "{}"})
    return seen


def test_refusals_are_the_same_bytes_for_every_content_of_the_data(tmp_path):
    found = []
    for number, records in enumerate(hostile()):
        holder = holder_of(tmp_path / str(number), es.Pure(5.0), records=records)
        found.append(refusals(holder, problem_of(holder)))
        holder.store.close()
    assert all(each == found[0] for each in found)
    assert len(found[0]) > 15


def problem_of(holder):
    from epsteps.tables.model import problem_of

    return problem_of(holder.schema, holder.n, 0.1)


@pytest.mark.parametrize("error", [ValueError("record 17 is 3"), MemoryError(), ZeroDivisionError("age 93")])
def test_whatever_goes_wrong_after_data_was_touched_is_one_constant_body(tmp_path, monkeypatch, capsys, error):
    from epsteps.running import taps

    def broken(*_):
        raise error

    holder = holder_of(tmp_path, es.Pure(5.0))
    problem = problem_of(holder)
    monkeypatch.setattr(taps, "reading", broken)
    from epsteps.plans.notation import problem_to_dict

    body = wire.dumped({"problem": problem_to_dict(problem), "allowance": es.Pure(1.0).to_dict()})
    opened = holder.handle(holder.store.ask("eve", "1", "session", "", body)[0].id)
    asked = wire.dumped({"x": wire.point_text(np.zeros(problem.dimension)), "cost": 0.1})
    gradient = holder.handle(holder.store.ask("eve", "2", "gradient", "", asked, session=opened.id)[0].id)
    plan = wire.dumped({"plan": es.plan(problem, es.Pure(1.0), es.nesterov, iterations=2).to_json(), "anyway": True})
    posted = holder.handle(holder.store.ask("eve", "3", "plan", "", plan)[0].id)
    executed = holder.handle(posted.id)
    for failed in (gradient, executed):
        assert (failed.state, failed.status, failed.answer) == ("refused", 500, wire.FAILED.body)
    said = capsys.readouterr().err
    assert "17" not in said.replace(gradient.id, "").replace(executed.id, "")
    assert gradient.id in said
    assert holder.ledger.spent("people") == pytest.approx(1.1)  # charged before anything was read
    holder.store.close()


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(es.MissingExtraError, match=r"pip install 'epsteps\[remote\]'"):
        es.connect("https://holder.example", token="eps_x")
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = CliRunner().invoke(app, ["serve", "--demo"])
    assert (result.exit_code, "pip install 'epsteps[serve]'" in result.output) == (1, True)


def test_tokens_are_made_listed_and_revoked_on_the_command_line(tmp_path):
    path = str(tmp_path / "tokens.toml")
    made = CliRunner().invoke(app, ["tokens", "make", path, "carol", "--scopes", "read,plan", "--days", "2"])
    assert made.exit_code == 0
    (token,) = tokens.read(tmp_path / "tokens.toml")
    assert (token.analyst, token.scopes) == ("carol", ("read", "plan"))
    listed = CliRunner().invoke(app, ["tokens", "list", path]).output
    assert token.id in listed
    assert "carol" in listed
    assert CliRunner().invoke(app, ["tokens", "revoke", path, "nothing"]).exit_code == 2
    assert CliRunner().invoke(app, ["tokens", "revoke", path, token.id]).exit_code == 0
    assert tokens.read(tmp_path / "tokens.toml") == ()


@pytest.mark.parametrize("change", ["make", "revoke"])
def test_tokens_that_are_changed_by_two_at_once_are_neither_lost_nor_brought_back(tmp_path, monkeypatch, change):
    path = tmp_path / "tokens.toml"
    _, old = tokens.make(path, "alice", ["read"], 1)
    read, others = tokens.read, []

    def other():
        tokens.make(path, "bob", ["read"], 1) if change == "make" else tokens.revoke(path, old.id)

    def reading(path):
        """Let somebody else change the file after it was read, and before it is written."""
        known = read(path)
        if not others:
            others.append(threading.Thread(target=other))
            others[0].start()
            others[0].join(0.3)
        return known

    monkeypatch.setattr(tokens, "read", reading)
    tokens.make(path, "carol", ["read"], 1)
    others[0].join()
    expected = ["alice", "carol", "bob"] if change == "make" else ["carol"]
    assert [token.analyst for token in read(path)] == expected


def test_the_command_says_what_is_missing():
    for arguments, said in (
        (["serve"], "DATA is missing"),
        (["serve", "people.csv"], "--schema is missing"),
        (["serve", "--demo", "--host", "0.0.0.0"], "--insecure"),
        (["serve", "--demo", "--tls-cert", "c.pem"], "go together"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, said in result.output) == (2, True), result.output


def test_a_setup_has_no_seed_on_the_command_line():
    assert "--seed" not in CliRunner().invoke(app, ["serve", "--help"]).output
    assert Setup("a", "b", "c", "d").seed is None
