"""The standing accuracy benchmark: its split cannot be drawn again, its peers clip, no line is measured twice."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import epsteps as es

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from accuracy_parts import clipped_descent, standing, verdicts
from accuracy_parts.encodings import Encoding
from accuracy_parts.tables import Sources, Table, of_role, roles, tables
from accuracy_parts.tasks import Task

# As the split was first committed. A judge may become design (somebody looked); nothing may become a judge.
JUDGES = (
    *("SmokeBan", "lending_club", "Arrests", "k401ksubs", "magic", "mushroom"),
    *("penbased", "satimage", "WVS", "CPS1988", "hotel_rates", "nlswork"),
)
NOWHERE = Sources(None, None)


def task(loss: es.Loss, y: np.ndarray, d: int = 3) -> Task:
    X = np.random.default_rng(0).random((len(y), d))
    return Task("small", None, loss, 0.002, Encoding((0.0,) * d, (1.0,) * d), X, y, X, y)


TASKS = {
    "logistic": task(es.Logistic(), np.array([1.0, -1.0, 1.0, 1.0])),
    "softmax": task(es.Softmax((0.0, 1.0, 2.0)), np.array([0.0, 2.0, 1.0, 2.0])),
    "squared": task(es.Squared(1.0), np.array([0.5, -1.0, 1.0, 0.0])),
}


def test_nothing_becomes_a_judge() -> None:
    judges = {table.name for table in of_role("judge")}
    assert judges <= set(JUDGES)
    assert {tables()[name].kind for name in judges} == {"binary", "classes", "regression"}
    assert len(judges) >= 8
    assert all(role == "design" for name, role in roles().items() if "seen" in tables()[name].declared)


def test_judges_are_not_to_be_had_between_releases(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match="magic is a judge"):
        tables()["magic"].task(NOWHERE)
    for sets, match in ((["magic"], "measured all together"), (["judge"], "say which with --release")):
        with pytest.raises(SystemExit, match=match):
            list(standing.measure(options(tmp_path / "lines.jsonl", sets=sets)))


def test_peers_of_judges_need_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "JUDGED", tmp_path / "judged.jsonl")
    for methods, found in ((["dp-gd"], FileNotFoundError), (["dp-gd", "final"], SystemExit)):
        with pytest.raises(found):  # no package is there: the first of the tables is asked for
            list(
                standing.measure(options(tmp_path / "lines.jsonl", sets=["judge"], budgets=["delta"], methods=methods))
            )
    assert not standing.JUDGED.exists()


def test_a_release_is_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "JUDGED", tmp_path / "judged.jsonl")
    monkeypatch.setattr(standing, "commit", lambda: "one")
    asked = options(tmp_path / "lines.jsonl", release="1.0")
    standing.enter_judgement(asked)
    standing.enter_judgement(asked)  # an interrupted one goes on
    assert len(standing.JUDGED.read_text().splitlines()) == 1
    monkeypatch.setattr(standing, "commit", lambda: "two")
    with pytest.raises(SystemExit, match="was judged at one"):
        standing.enter_judgement(asked)
    monkeypatch.setattr(standing, "commit", lambda: "two+changes")
    with pytest.raises(SystemExit, match="not committed"):
        standing.enter_judgement(options(tmp_path / "lines.jsonl", release="1.1"))


def test_what_lies_outside_the_declared_domain_is_clipped() -> None:
    declared = {
        "numbers": {"age": [0, 100]},
        "logs": {"money": 99},
        "flags": {"sex": "m"},
        "categories": {"town": ["a", "b"]},
        "target": {"column": "wage", "range": [0, 10]},
    }
    frame = pd.DataFrame(
        {"age": [50, 1000], "money": [9.0, -1.0], "sex": ["m", "f"], "town": ["b", "?"], "wage": [5, 99]}
    )
    encoding, X, y = Table("people", declared).encoded(frame)
    assert encoding.one_hot == ((3, 5),)
    np.testing.assert_allclose(X, [[0.5, 0.5, 1, 0, 1], [1, 0, 0, 0, 0]])
    np.testing.assert_allclose(y, [0, 1])


def test_the_grid_has_78_candidates() -> None:
    assert len(set(clipped_descent.GRID)) == 78


@pytest.mark.parametrize("kind", TASKS)
def test_descent_takes_the_gradient_and_clips_each_record(kind: str) -> None:
    task = TASKS[kind]
    x = np.random.default_rng(1).standard_normal((task.dimension, 2))
    one = [
        clipped_descent.clipped_sum(
            Task("one", None, task.loss, 0.0, task.encoding, task.X[i : i + 1], task.y[i : i + 1], task.X, task.y),
            x.astype(np.float32),
            np.array([1e9, 0.05], dtype=np.float32),
        )
        for i in range(task.n)
    ]
    assert max(np.linalg.norm(gradient[:, 1]) for gradient in one) <= 0.05 * (1 + 1e-5)
    step = 1e-5 * np.eye(task.dimension)
    slopes = [(task.rows.value(x[:, 0] + h) - task.rows.value(x[:, 0] - h)) / 2e-5 for h in step]
    np.testing.assert_allclose(sum(one)[:, 0] / task.n + task.ridge * x[:, 0], slopes, atol=1e-5)


def options(out: Path, **changed: object) -> Namespace:
    asked = {
        "sets": ["breast_cancer"],
        "epsilon": [1.0],
        "budgets": ["pure"],
        "delta": 1e-5,
        "methods": ["final"],
        "runs": 2,
        "release": None,
        "out": out,
        "data": None,
        "packages": None,
    }
    return Namespace(**asked | changed)


def test_lines_are_measured_once_per_seed_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "lines.jsonl"
    monkeypatch.setattr(standing, "commit", lambda: "one")
    assert len(list(standing.measure(options(out)))) == 1
    assert list(standing.measure(options(out))) == []
    list(standing.measure(options(out, runs=3)))
    assert len(standing.read([out])) == 3
    monkeypatch.setattr(standing, "commit", lambda: "two")
    list(standing.measure(options(out)))
    lines = standing.read([out])
    assert [line["commit"] for line in lines] == ["one"] * 3 + ["two"] * 2
    assert [line["excess"] for line in lines[:2]] == [line["excess"] for line in lines[3:]]  # of the same seeds


def line(method: str, epsilon: float, excess: float, commit: str = "c", budget: str = "delta") -> dict:
    facts = {"kind": "regression", "zero": 1.0, "limit_pure": 0.5, "limit_delta": 0.5, "delta": 1e-5, "set": "bike"}
    return facts | {"method": method, "epsilon": epsilon, "budget": budget, "commit": commit, "excess": excess}


LINES = standing.JUDGED.parent / "lines"
PAGE = Path(__file__).parent.parent / "docs" / "accuracy.md"


@pytest.mark.parametrize(("role", "results"), [("judge", "judge.md"), ("design", "standing.md")])
def test_the_page_is_what_kept_lines_say(role: str, results: str) -> None:
    """The tables on the page, and every cell beside it, follow from the lines of the release that was judged last."""
    release = json.loads(standing.JUDGED.read_text().splitlines()[-1])
    kept = [LINES / f"{release['release']}.jsonl.xz", LINES / "peers.jsonl.xz"]
    assert {line["commit"] for line in standing.read(kept)} == {release["commit"], standing.PEERS}
    asked = Namespace(lines=kept, commit=None, role=role, against=LINES / "f4cb354c2.jsonl.xz", against_commit=None)
    text = verdicts.page(asked)
    assert (standing.JUDGED.parent / results).read_text() == text + "\n"
    assert text.split("**Every cell**")[0].rstrip() in PAGE.read_text()


def test_the_report_counts_ratios_and_steps_up(tmp_path: Path) -> None:
    runs = [(0.1, 2.0), (0.1, 2.2), (1.0, 0.1), (1.0, 0.1), (2.0, 0.4), (2.0, 0.4)]
    lines = [line("final", epsilon, excess) | {"seed": seed} for seed, (epsilon, excess) in enumerate(runs)]
    lines += [line("dp-gd", e, 0.2, standing.PEERS) | {"seed": s} for e in (0.1, 1.0, 2.0) for s in (0, 1)]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    asked = Namespace(lines=[path], commit=None, against=None, against_commit=None, role=None)
    page = verdicts.page(asked)
    # Ratios 10.5, 0.5 and 2: a geometric mean of 10.5^(1/3), and two above 1.5.
    assert "| final, δ / dp-gd | 1 of 3 | 2.19 ± 0.03 | 2.00 | bike, ε = 0.1, delta: 10.50 ± 0.50 | 2 |" in page
    assert "| final | 1 of 3 | bike 0.1 delta (2.1x) |" in page
    assert "| final, regression | 1 of 2 | bike delta 1 to 2 (0.1 to 0.4) |" in page
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(json.dumps(entry | {"commit": "old"}) for entry in lines if entry["method"] == "final"))
    page = verdicts.page(Namespace(**vars(asked) | {"against": other}))
    assert "| final, delta | 3 of 3 | 1.00 ± 0.02 | 1.00 |" in page  # √2 · 0.0476 over three cells
