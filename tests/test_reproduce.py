"""``epsteps reproduce``: files, report, checked statements, and what is said about the epsilon really spent."""

import csv
import re
import shutil
import subprocess

import numpy as np
import pytest
from conftest import records, small_problem
from typer.testing import CliRunner

import epsteps as es
from epsteps.cli import app
from epsteps.paper.report import Document, add_sweep
from epsteps.paper.statements import too_small, verdicts
from epsteps.paper.sweep import PUBLISHED, Configuration, Curve, Sweep, values


def curve(algorithm, m, c, T, final, used=None):
    gap = np.array([1.0, final])
    return Curve(Configuration("x", m, c, algorithm, T), used or T, 1.0, gap, 0.1 * gap, 0.0)


def ideal_curves(**changed):
    """Final gaps that agree with everything that the paper says, unless changed."""
    best = {"DP-GD": 5.0, "DP-HB": 2.0, "DP-NAG": 2.0, "DP-MASG": 3.0, "DP-NAG-opt": 1.0, "DP-MASG-opt": 1.1} | changed
    curves = []
    for m, worse in ((1000, 1.0), (10, 2.0)):
        for c in (0.1, 1.0):
            for name, value in best.items():
                slow = 10.0 if c == 0.1 and name.startswith("DP-MASG") else 1.0
                long = 4.0 if name in ("DP-HB", "DP-NAG") else 0.9
                for T, factor in ((100, 1.0), (1000, long)):
                    used = 50 if name.endswith("-opt") else T
                    curves.append(curve(name, m, c, T, value * worse * slow * factor, used))
    return curves


def test_statements_hold_where_the_numbers_say_so():
    found = verdicts(ideal_curves())
    assert len(found) == 18
    refuted = [verdict.statement for verdict in found if not verdict.holds]
    assert len(refuted) == 1
    assert "decreases the noise that privacy needs" in refuted[0]


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"DP-HB": 9.0}, "beat DP-GD"),
        ({"DP-NAG-opt": 4.0}, "best results of all"),
        ({"DP-GD": 50.0}, "at T = 1000 DP-GD reaches a smaller error"),
        ({"DP-MASG-opt": 0.01}, "more robust"),
        ({"DP-MASG": 0.5}, "best results of all"),
    ],
)
def test_statements_fail_where_the_numbers_say_so(changed, part):
    found = verdicts(ideal_curves(**changed))
    assert any(part in verdict.statement and not verdict.holds for verdict in found)


def test_the_horizon_at_which_an_algorithm_is_best_is_checked():
    curves = [
        curve("DP-GD", c.configuration.m, c.configuration.c, 1000, 50.0)
        if c.configuration.algorithm == "DP-GD" and c.configuration.T == 1000
        else c
        for c in ideal_curves()
    ]
    refuted = [verdict.statement for verdict in verdicts(curves) if not verdict.holds]
    assert any("DP-GD at T = 1000" in statement for statement in refuted)


def test_values_are_F_at_every_iterate():
    problem = small_problem()
    rows = es.Rows(problem, *records(problem))
    path = np.random.default_rng(0).standard_normal((11, 3, 7))
    expected = np.array([[float(rows.value(path[t, :, r])) for r in range(7)] for t in range(11)])
    np.testing.assert_allclose(values(rows, path), expected, rtol=1e-12)


def test_the_paper_sweeps_96_configurations():
    assert len(Sweep(variants=(PUBLISHED,)).configurations()) == 96


def call(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    out = tmp_path_factory.mktemp("published")
    result = call("all", "--as-published", "--quick", "--out", out)
    assert result.exit_code == 0, result.output
    return out, result.output


def test_as_published_says_what_was_really_spent(published):
    out, text = published
    assert re.search(r"epsilon really spent: 1\.41\d\d to \d\.\d+ where 1 was claimed", text)
    report = (out / "report.md").read_text()
    assert "docs/errata.md#p1" in report
    assert "1/√2 of what the proof needs" in report


def test_a_quick_look_concludes_nothing_and_says_how_to(published):
    """What it would have said: statements that hold in the paper's own runs, and not in four short ones."""
    out, text = published
    for page in (text, (out / "report.md").read_text()):
        assert "it has 10000 records" in page
        assert "means of 4 runs vary too much" in page
        assert "without --quick" in page
        assert "DOES NOT HOLD" not in page
        assert "| holds |" not in page


@pytest.mark.parametrize(
    ("changed", "records", "reason"),
    [
        ({}, 100_000, None),
        ({}, 10_000, "it has 10000 records"),
        ({"repetitions": 9}, 100_000, "means of 9 runs"),
        ({"horizons": (100, 1000)}, 100_000, "T = 200, 500 was not run"),
    ],
)
def test_conclusions_are_drawn_from_the_papers_own_sweep_alone(tmp_path, changed, records, reason):
    reasons = too_small(Sweep(**changed), records)
    assert reasons == [] if reason is None else reason in "; ".join(reasons)
    document = Document("x")
    add_sweep(document, ideal_curves(), [], reasons)
    judged = "| holds |" in document.write(tmp_path)[0].read_text()
    assert judged is (reason is None)


def test_files_agree_with_each_other(published):
    out, _ = published
    with (out / "fig3_fig4_summary.csv").open() as file:
        summary = list(csv.DictReader(file))
    with (out / "fig3_fig4_curves.csv").open() as file:
        curves = list(csv.DictReader(file))
    assert len(summary) == 2 * 2 * 6
    key = ("variant", "m", "c", "algorithm", "T")
    last = {tuple(row[name] for name in key): row for row in curves}
    for row in summary:
        final = last[tuple(row[name] for name in key)]
        assert final["gap_mean"] == row["final_gap"]
        assert final["iteration"] == row["iterations"]
    for name in ("fig1", "fig2", "fig3", "fig4"):
        assert any(path.suffix == ".png" for path in out.glob(f"{name}*"))
        assert any(path.suffix == ".pdf" for path in out.glob(f"{name}*"))


def test_corrected_runs_spend_what_they_claim(tmp_path):
    result = call("fig3", "--quick", "--c", 1, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    with (tmp_path / "fig3_fig4_summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["variant"] for row in rows} == {"corrected, the paper's L", "corrected, the right L"}
    assert all(1 - 1e-9 < float(row["epsilon_spent"]) <= 1 for row in rows)
    assert not list(tmp_path.glob("fig1*"))


def test_an_unknown_figure_is_refused():
    result = call("fig9")
    assert result.exit_code == 2
    assert "figures must be fig1, fig2, fig3, fig4 or all, got fig9" in result.output


def test_a_document_escapes_what_it_is_given(tmp_path):
    document = Document("a < b")
    document.table(["x|y"], [["<script>alert(1)</script>"]])
    markdown, page = (path.read_text() for path in document.write(tmp_path))
    assert "<script>" not in page
    assert "x\\|y" in markdown


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Debian's package chromium is not installed")
def test_the_report_opens_in_a_browser_without_an_error(published, tmp_path):
    out, _ = published
    command = [
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", "--no-first-run", "--enable-logging=stderr", "--v=0"),
        *(f"--user-data-dir={tmp_path}", "--dump-dom", f"file://{out / 'report.html'}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "What the paper concludes: not checked" in done.stdout
    assert "CONSOLE" not in done.stderr
