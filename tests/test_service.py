"""Two parties over a wire: what an analyst gets is what a local run gives, bit for bit with the same draws."""

import json
import re
import shutil
import socket
import sqlite3
import struct
import time

import numpy as np
import pytest
from service_kit import N, make_site, rows, serving, table
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app
from epsteps.noise import Source
from epsteps.plans.requests import Gradient
from epsteps.running.run import Reader
from epsteps.service import tokens
from epsteps.service.client import RefusedError
from epsteps.service.holder import mock
from epsteps.service.store import Store, beside

SEED = 7


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = make_site(tmp_path_factory.mktemp("service"), es.Pure(1000.0), source_seed=SEED)
    with serving(site):
        yield site


@pytest.fixture(scope="module")
def people(site):
    return site.people()


@pytest.fixture(scope="module")
def problem(people):
    return people.problem(0.1)


PLANS = {
    "nesterov": {"method": es.nesterov},
    "state": {"method": es.nesterov, "sensitivity": "state"},
    "batches": {"method": es.gd, "batch": 50},
}


def steps(problem, iterations=5, budget=None, method=es.nesterov, **options):
    return es.plan(problem, budget or es.Pure(3.0), method, iterations=iterations, **options)


@pytest.mark.parametrize("options", PLANS.values(), ids=list(PLANS))
def test_an_analysts_method_over_a_session_is_a_local_run_bit_for_bit(people, problem, options):
    plan = steps(problem, **options)
    local = es.run(plan, rows(problem), seed=SEED, arithmetic="exact", anyway=True)
    with_session = es.run(plan, people.session(problem, es.Pure(3.0)), anyway=True)
    assert np.array_equal(with_session.path, local.path)
    assert with_session.seeded


@pytest.mark.parametrize("method", ["steps", "objective", "statistics"])
def test_a_posted_plan_gives_the_same_run(people, problem, method):
    if method == "statistics":
        target = people.select(["region", "bought"], target="age")
        problem = target.problem(0.1)
        plan = es.plan(problem, es.Pure(20.0), method="statistics")
        records = table()
        local_rows = es.Rows(problem, target.schema.encode(records), target.schema.encode_target(records))
    else:
        target, local_rows = people, rows(problem)
        plan = steps(problem) if method == "steps" else es.plan(problem, es.Pure(3.0), method="objective")
    local = es.run(plan, local_rows, seed=SEED, arithmetic="exact", anyway=True)
    remote = es.run(plan, target, anyway=True)
    assert np.array_equal(remote.path, local.path)
    assert list(remote.extras) == list(local.extras)
    assert all(np.array_equal(remote.extras[name], local.extras[name]) for name in local.extras)
    assert remote.spent == local.spent


def test_a_gradient_for_a_cost_is_that_of_the_librarys_request(people, problem):
    x = np.linspace(-1, 1, problem.dimension)
    session = people.session(problem, es.Pure(1.0))
    answer = session.gradient(x, 0.5)
    from epsteps.budgets import Epsilon, mechanisms

    asked = Gradient.at(problem, mechanisms.smallest(problem, Epsilon), x, 0.5)
    draw = asked.draw(Source(SEED))
    expected = asked.publish(asked.read(Reader(rows(problem)), draw), draw)
    assert np.array_equal(answer, expected)
    assert 0.5 * (1 - 1e-9) < session.charged[0].epsilon <= 0.5


def test_any_optimiser_of_the_analysts_own_works(people, problem):
    session = people.session(problem, es.Pure(100.0))
    x = np.zeros(problem.dimension)
    for _ in range(3):
        x = x - session.gradient(x, 30.0)
    assert np.isfinite(x).all()
    assert len(session.charged) == 3
    session.close()
    with pytest.raises(RefusedError, match="not open"):
        session.gradient(x, 0.5)


def test_a_session_keeps_to_its_allowance_and_nothing_is_charged_beyond(site, people, problem):
    session = people.session(problem, es.Pure(1.0))
    x = np.zeros(problem.dimension)
    session.gradient(x, 0.6)
    before = people.remaining
    with pytest.raises(es.BudgetExceededError, match="allowance of the session") as refused:
        session.gradient(x, 0.6)
    assert refused.value.members["remaining"] == pytest.approx(0.4, rel=1e-9)
    assert people.remaining == before
    session.gradient(x, 0.3999)


def test_a_key_gives_the_same_bytes_again_and_is_paid_once(site, people, problem):
    session = people.session(problem, es.Pure(1.0))
    path = f"{site.url}/v1/sessions/{session.id}/gradients"
    headers = {"Authorization": f"Bearer {site.secrets['alice']}", "Idempotency-Key": "the same"}
    body = json.dumps({"x": text_of(np.zeros(problem.dimension)), "cost": 0.1}).encode()
    first = site.http.post(path, content=body, headers=headers)
    spent = site.ledger.spent("people")
    again = site.http.post(path, content=body, headers=headers)
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    assert site.ledger.spent("people") == spent
    other = site.http.post(path, content=body.replace(b"0.1", b"0.2"), headers=headers)
    assert (other.status_code, other.json()["type"]) == (409, "urn:epsteps:problem:key-reused")
    # Another analyst's keys are their own, and so are their sessions.
    stranger = headers | {"Authorization": f"Bearer {site.secrets['bob']}"}
    assert site.http.post(path, content=body, headers=stranger).status_code == 404


def test_a_client_that_dies_before_the_reply_gets_the_same_bytes_later(site, people, problem):
    session = people.session(problem, es.Pure(1.0))
    path = f"/v1/sessions/{session.id}/gradients"
    body = json.dumps({"x": text_of(np.ones(problem.dimension)), "cost": 0.2}).encode()
    headers = {"Authorization": f"Bearer {site.secrets['alice']}", "Idempotency-Key": "lost"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", site.port)) as dying:
        request = f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(body)}\r\n\r\n"
        dying.sendall(request.encode() + body)
        dying.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with Store(beside(site.ledger.path)) as store:
        stored, deadline = None, time.monotonic() + 10
        while stored is None and time.monotonic() < deadline:
            found = [each for each in store.requests(kinds=("gradient",)) if each.key == "lost"]
            stored = found[0].answer if found else None
    spent = site.ledger.spent("people")
    replies = [site.http.post(site.url + path, content=body, headers=headers) for _ in range(2)]
    assert [reply.content for reply in replies] == [stored, stored]
    assert site.ledger.spent("people") == spent


def text_of(x):
    from epsteps.service.wire import point_text

    return point_text(x)


def test_a_plan_without_hope_is_refused_before_the_charge(people, problem):
    plan = steps(problem, budget=es.Pure(1e-3))
    before = people.remaining
    with pytest.raises(es.HopelessError):
        es.run(plan, people)
    assert people.remaining == before


def test_what_the_budget_cannot_hold_is_refused(people, problem):
    with pytest.raises(es.BudgetExceededError) as refused:
        es.run(steps(problem, budget=es.Pure(5000.0)), people, anyway=True)
    assert refused.value.kind == "budget-exceeded"
    assert refused.value.members["remaining"] == people.remaining
    with pytest.raises(RefusedError, match="promises less"):
        es.run(steps(problem, budget=es.Approximate(1.0, 1e-6)), people, anyway=True)


def test_options_for_records_at_hand_are_refused(people, problem, tmp_path):
    with pytest.raises(ValueError, match="seed is for records on this machine"):
        es.run(steps(problem), people, seed=1)
    with pytest.raises(ValueError, match="checkpoint is for records on this machine"):
        es.run(steps(problem), people, checkpoint=tmp_path / "c")


def test_mock_records_follow_from_the_schema_alone(people, problem):
    records = people.mock(50)
    assert set(records) == {"age", "region", "bought"}
    assert all(len(column) == 50 for column in records.values())
    assert people.schema.check(records).any is False
    assert {name: list(column) for name, column in records.items()} == {
        name: list(column) for name, column in mock(people.schema, 50).items()
    }
    assert es.run(steps(problem), people.mock_rows(problem), seed=1).path.shape == (6, problem.dimension)


def test_the_pages_of_a_service(site):
    assert site.http.get(f"{site.url}/healthz").json() == {"status": "ok"}
    assert site.http.get(f"{site.url}/readyz").status_code == 200
    page = site.http.get(f"{site.url}/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<code>POST /v1/sessions/{id}/gradients</code>" in page.text
    # Nothing of it comes from another machine, or runs.
    assert not re.search(r"//|<script|<link|<img|src=", page.text)
    assert site.http.get(f"{site.url}/redoc").status_code == 404
    paths = site.http.get(f"{site.url}/openapi.json").json()["paths"]
    assert "/v1/sessions/{id}/gradients" in paths
    metrics = site.http.get(f"{site.admin_url}/metrics").text
    assert 'epsteps_budget{dataset="people",unit="epsilon"} 1000.0' in metrics
    assert site.http.get(f"{site.url}/metrics").status_code == 404


def test_the_row_of_a_token_comes_before_what_is_asked_with_it(site, problem):
    site.secrets["dora"], token = tokens.make(site.tokens, "dora", ["read", "session"], 1)
    site.people("dora").session(problem, es.Pure(0.1))
    with Store(beside(site.ledger.path)) as store:
        rows = [(event.what, event.decision) for event in store.events() if event.analyst == "dora"]
    assert rows[0] == (
        "token",
        f"{token.id} made by the file of tokens: read, session until {token.expires}",
    )
    assert rows[1] == ("session", "arrived")


def test_the_facts_of_a_dataset(people):
    facts = people.facts()
    assert (facts["n"], facts["unit"], facts["composition"]) == (N, "epsilon", "adaptive")
    assert list(people.connection) == ["people"]
    assert people.budget == es.Pure(1000.0)
    assert facts["remaining"] == people.remaining <= 1000.0


def test_the_chain_covers_every_request_and_shows_what_was_changed(site, people, problem, tmp_path):
    people.session(problem, es.Pure(1.0)).gradient(np.zeros(problem.dimension), 0.1)
    head = site.verify()
    result = CliRunner().invoke(app, ["ledger", "verify", site.setup.ledger])
    assert result.exit_code == 0
    assert f"their head is {head}" in result.output
    for line in (
        "UPDATE requests SET answer = x'00' WHERE state = 'published' AND kind = 'gradient'",
        "UPDATE audit SET analyst = 'mallory' WHERE seq = 2",
        "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)",
        "UPDATE requests SET paid = NULL WHERE kind = 'gradient'",
    ):
        copied = tmp_path / "copy.db"
        shutil.copy(site.setup.ledger, copied)
        with sqlite3.connect(f"{site.setup.ledger}.service") as source, sqlite3.connect(f"{copied}.service") as target:
            source.backup(target)
        target.execute(line)
        target.commit()
        target.close(), source.close()
        result = CliRunner().invoke(app, ["ledger", "verify", str(copied)])
        assert result.exit_code == 1, line
        assert "cannot be trusted" in result.output
        (tmp_path / "copy.db.service").unlink()
