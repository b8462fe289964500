"""The page of two parties: its tour runs as printed, its commands and policy are real, and so is what is deployed."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from service_kit import Site, free_port, serving
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app
from epsteps.cli.serve import demo_lines, make_demo
from epsteps.plans.plan import Plan
from epsteps.problem.losses import Loss
from epsteps.service.holder import Setup
from epsteps.service.policy import Limits, Policy, read_tables

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "two-parties.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- tested -->\n```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", flags=re.DOTALL)
LINES = re.compile(r"^  (\S.*)$", flags=re.MULTILINE)
SECRET = re.compile(r"eps_[\w-]{43}")


def typed(printed):
    """Return the three lines that the demo prints for an analyst."""
    lines = LINES.findall(printed)
    assert len(lines) == 3
    return lines


def approve_all(url, secret):
    """Approve what waits as a person does, by the forms of the dashboard."""
    with httpx.Client(base_url=url, follow_redirects=True) as browser:
        browser.post("/login", data={"token": secret})
        for path in re.findall(r'href="(/requests/\w+)"', browser.get("/queue").text):
            page = browser.get(path).text
            form = re.search(r'name="form" value="(\w+)"', page)[1]
            assert "Approved." in browser.post(f"{path}/approve", data={"form": form}).text


def take_the_tour(lines, approve, capsys):
    """Type the lines that were printed, and then those of the page; whenever something waits, a person approves it."""
    names = {}
    exec(compile("\n".join(lines), "the demo's lines", "exec"), names)
    assert "[" in capsys.readouterr().out
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == 4
    for number, (code, printed) in enumerate(blocks, start=1):
        exec(compile(code, f"two-parties.md, block {number}", "exec"), names)
        assert capsys.readouterr().out == printed
        if "posted.state" in code:
            approve()
    names["people"].connection.close()
    return names


def test_the_tour_runs_as_printed(tmp_path, capsys):
    data, schema, ledger, _, policy, secrets = make_demo(tmp_path)
    setup = Setup(*map(str, (data, schema, ledger)), "people", read_tables(policy), tick=0.0)
    site = Site(tmp_path, setup, secrets, free_port(), free_port())
    with serving(site):
        lines = typed(demo_lines(site.url, site.admin_url, secrets))
        names = take_the_tour(lines, lambda: approve_all(site.admin_url, secrets["admin"]), capsys)
    assert np.isfinite(names["practice"].x).all()
    assert site.ledger.spent("people") == pytest.approx(3.5)
    site.verify()


def test_the_lines_of_the_page_are_those_of_the_demo():
    lines = typed(demo_lines("http://127.0.0.1:8440", "", {"analyst": "eps_...", "admin": ""}))
    first, *others = lines  # formatters put an empty line below imports
    assert "\n".join(["```python", first, "", *others, "```"]) in PAGE


@pytest.mark.slow
def test_the_demo_starts_in_an_empty_folder_within_a_minute_and_ends_cleanly(tmp_path, capsys):
    folder, scratch = tmp_path / "empty", tmp_path / "scratch"
    folder.mkdir(), scratch.mkdir()
    ports = [str(free_port()), str(free_port())]
    command = [sys.executable, "-c", "from epsteps.cli import main; main()", "serve", "--demo"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path)), "TMPDIR": str(scratch)}
    begun = time.monotonic()
    demo = subprocess.Popen(
        [*command, "--port", ports[0], "--admin-port", ports[1]],
        cwd=folder,
        env=environment | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed = ""
        while "Ctrl-C" not in printed:
            line = demo.stdout.readline()
            assert line, printed
            printed += line
        ready = time.monotonic() - begun
        assert f"http://127.0.0.1:{ports[1]}" in printed
        analyst, admin = SECRET.findall(printed)
        assert analyst in typed(printed)[1]
        take_the_tour(typed(printed), lambda: approve_all(f"http://127.0.0.1:{ports[1]}", admin), capsys)
        toured = time.monotonic() - begun
        assert ready < 60
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=20)
    finally:
        demo.kill()
    assert rest.strip() == "Stopped. The generated records are removed."
    assert demo.returncode == 0
    assert list(folder.iterdir()) == list(scratch.iterdir()) == []
    with capsys.disabled():
        print(f"\nthe demo was ready after {ready:.1f} s, and the tour over after {toured:.1f} s")


def test_whoever_waits_is_told_when_the_service_ends(tmp_path):
    data, schema, ledger, _, policy, secrets = make_demo(tmp_path, n=2000)
    setup = Setup(*map(str, (data, schema, ledger)), "people", read_tables(policy), tick=0.0)
    site = Site(tmp_path, setup, {"alice": secrets["analyst"]}, free_port(), free_port())
    with serving(site) as state:
        people = site.people()
        posted = people.submit(es.plan(people.problem(), es.Pure(2.0), release="final"), anyway=True)
        threading.Timer(0.5, lambda: setattr(state["desk"], "leaving", True)).start()
        begun = time.monotonic()
        reply = people.connection.ask("GET", f"/v1/requests/{posted.id}?wait=30")
        assert reply["state"] == "waiting"
        assert time.monotonic() - begun < 10


def test_a_port_that_is_taken_is_said():
    from epsteps.service import server

    with server.listening("127.0.0.1", 0) as taken:
        assert taken.proto == socket.IPPROTO_TCP  # else each reply waits 40 ms for an acknowledgement
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1, port {port}: .*\w\. Choose another one\."):
            server.listening("127.0.0.1", port)


def commands(text):
    """Return the commands of epsteps in a text, without the remarks behind them."""
    found = re.findall(r"(?:^|holder )(?:epsteps )?((?:schema|ledger|tokens|serve)\b.*)$", text, flags=re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


def test_the_commands_of_the_page_are_real(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_demo(tmp_path)
    for name in ("schema.toml", "budget.db", "tokens.toml"):
        (tmp_path / name).unlink()
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    listed = [command for block in blocks for command in commands(block.replace("epsteps ", ""))]
    assert [command[0] for command in listed] == ["serve", "schema", "ledger", "tokens", "tokens", "serve"]
    for command in listed:
        if command[0] == "serve":
            require_options(command)
        else:
            result = CliRunner().invoke(app, command)
            assert result.exit_code == 0, result.output
    served = dict(zip(listed[-1][2::2], listed[-1][3::2], strict=True))
    assert all((tmp_path / name).is_file() for name in served.values())
    assert es.Ledger("budget.db").remaining("people") == 4.0


def require_options(command):
    """Check that a command has the options that it is given."""
    shown = CliRunner().invoke(app, [command[0], "--help"], env={"COLUMNS": "200"}).output
    for option in (word.partition("=")[0] for word in command if word.startswith("--")):
        assert option in shown, option


def test_the_policy_of_the_page_is_one_and_its_limits_are_the_defaults():
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    policy = Policy.from_dict(tomllib.loads(text))
    assert policy.limits == Limits()
    assert policy.allowance("alice", es.Pure(4.0)) == es.Pure(2.0)
    assert policy.allowance("bob", es.Pure(4.0)) == es.Pure(1.0)
    assert set(policy.allowed.plans) <= {kind.__name__ for kind in kinds(Plan)}
    assert policy.allowed.losses == (Loss.kinds.name_of(es.Logistic()),)


def kinds(kind):
    return {kind, *(lower for below in kind.__subclasses__() for lower in kinds(below))}


def test_links_and_pictures_of_the_page_exist_and_are_small():
    for target in re.findall(r"\]\(([\w./-]+)\)|src=\"([\w./-]+)\"", PAGE):
        path = ROOT / "docs" / "".join(target)
        assert path.exists(), path
        assert path.suffix != ".png" or path.stat().st_size < 150_000


# What is deployed: what can be checked without docker.


@pytest.fixture(scope="module")
def compose():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))


def test_the_service_that_is_deployed_is_reached_through_the_proxy_alone(compose):
    holder, proxy = compose["services"]["holder"], compose["services"]["proxy"]
    require_options(holder["command"])
    options = dict(word.split("=") for word in holder["command"] if "=" in word)
    # On the loopback of the server, in plain HTTP, which is refused elsewhere; and nothing is published.
    assert options["--host"] == "127.0.0.1"
    assert "--insecure" not in holder["command"]
    assert holder["network_mode"] == proxy["network_mode"] == "host"
    assert "ports" not in holder
    assert "ports" not in proxy
    caddy = (ROOT / "deploy" / "Caddyfile").read_text()
    assert re.findall(r"reverse_proxy (\S+)", caddy) == [f"127.0.0.1:{options['--port']}"]
    assert options["--admin-port"] not in caddy
    assert caddy.count("{") == caddy.count("}")


def test_records_are_read_only_and_the_state_is_kept(compose):
    holder = compose["services"]["holder"]
    folders = {volume.split(":")[1]: volume.split(":")[2:] for volume in holder["volumes"]}
    assert folders == {"/data": ["ro"], "/state": []}
    options = dict(word.split("=") for word in holder["command"] if "=" in word)
    assert {options[name].split("/")[1] for name in ("--ledger", "--tokens")} == {"state"}
    assert holder["read_only"] is True
    assert holder["cap_drop"] == ["ALL"]
    ignored = (ROOT / "deploy" / ".gitignore").read_text().split()
    assert {"data/", "state/", ".env"} <= set(ignored)


def test_the_commands_that_set_up_what_is_deployed_are_real(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "deploy" / "compose.yaml").read_text()
    remarks = "\n".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    listed = commands(remarks)
    assert [command[0] for command in listed] == ["ledger", "tokens", "tokens"]
    for command in listed:
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output


def test_the_image_is_built_of_files_that_exist():
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    kept = {line[1:] for line in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().split() if line[0] == "!"}
    assert kept == set(copied)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"/source\[([\w,]+)\]", "\n".join(lines))
    assert set(wanted.split(",")) <= set(extras)
    assert any(line.startswith("USER ") and "root" not in line for line in lines)
