"""The published experiments: what the authors' code executes, what it really spends, and their figures 1 and 2."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import epsteps as es
from epsteps.paper import compare, published, quadratic_demo

HORIZONS = (100, 200, 500, 1000)
ERRATA = Path(__file__).parents[1] / "docs" / "errata.md"


@pytest.fixture(scope="module")
def records():
    return published.published_data()


@pytest.fixture(scope="module")
def problem(records):
    L = published.paper_smoothness(records[0])
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20, smoothness=L)


def test_the_records_have_the_published_gap_after_one_step(records, problem):
    X, y = records
    assert round(published.published_first_gap(X, y, problem.L), 2) == 29.12
    assert round(problem.L, 9) == 5.100080707
    assert published.true_smoothness(X) == pytest.approx((problem.L - 0.02) / 4 + 0.02)


def test_normals_are_matlabs():
    """Known outputs of MATLAB: rng('default'); randn(1, 10), and the first of rng(1)."""
    known = [0.5376671395, 1.8338850146, -2.2588468610, 0.8621733204, 0.3187652399]
    known += [-1.3076882963, -0.4335920223, 0.3426244665, 3.5783969397, 2.7694370299]
    assert published.matlab_normals(np.random.RandomState(5489), 10) == pytest.approx(known, abs=2e-8)
    assert published.matlab_normals(np.random.RandomState(1), 1) == pytest.approx([-0.649013765], abs=2e-8)


def test_the_first_gap_chooses_among_several_w():
    X, y = published.published_data(500, 20, 3, first_gap=29.12)
    plain = published.published_data(500, 20, 3)
    L = published.paper_smoothness(X)
    assert np.array_equal(X, plain[0])
    chosen, first = (abs(published.published_first_gap(X, labels, L) - 29.12) for labels in (y, plain[1]))
    assert chosen < first / 4


@pytest.mark.parametrize(
    ("algorithm", "c", "chosen"),
    [
        ("DP-NAG-opt", 1.0, (100, 136, 136, 136)),
        ("DP-NAG-opt", 0.1, (100, 200, 396, 396)),
        ("DP-MASG-opt", 1.0, (89, 89, 89, 89)),
        ("DP-MASG-opt", 0.1, (89, 89, 89, 89)),
    ],
)
@pytest.mark.parametrize("m", [1000, 100_000])
def test_published_horizons_are_those_of_the_published_pictures(problem, algorithm, c, chosen, m):
    plans = [published.published_plan(algorithm, problem, T=T, m=m, c=c) for T in HORIZONS]
    assert tuple(plan.iterations for plan in plans) == chosen


@pytest.mark.parametrize("algorithm", compare.ALGORITHMS)
def test_with_all_records_the_published_runs_spend_the_root_of_two(problem, algorithm):
    plan = published.published_plan(algorithm, problem, T=200, m=100_000, c=1.0)
    assert plan.spent == pytest.approx(1.414213562, abs=1e-9)
    assert plan.spent <= plan.budget.amount <= plan.spent * (1 + 2e-12)


@pytest.mark.parametrize(
    ("algorithm", "T", "spent"),
    [
        ("DP-GD", 100, 1.660736363),
        ("DP-HB", 1000, 1.442647258),
        ("DP-NAG", 100, 1.660736363),
        ("DP-MASG", 1000, 1.442647258),
        ("DP-NAG-opt", 1000, 1.692933869),
        ("DP-MASG-opt", 1000, 1.743517206),
    ],
)
def test_with_batches_the_published_runs_spend_more(problem, algorithm, T, spent):
    assert published.published_plan(algorithm, problem, T=T, m=1000, c=1.0).spent == pytest.approx(spent, abs=1e-9)


@pytest.mark.parametrize("m", [1000, 100_000])
@pytest.mark.parametrize("algorithm", compare.ALGORITHMS)
def test_published_scales_are_too_small_by_the_root_of_two(problem, algorithm, m):
    plan = published.published_plan(algorithm, problem, T=300, m=m, c=0.1, epsilon=2.0)
    epsilons = [es.budgets.epsilon_of(40.0, scale * np.sqrt(2), 100_000, m) for scale in plan.scales]
    assert sum(epsilons) == pytest.approx(2.0, rel=1e-9)


def test_published_split_goes_with_the_cube_root_of_the_theorems_weights(problem):
    plan = published.published_plan("DP-MASG-opt", problem, T=500, m=100_000, c=1.0)
    weights = es.bounds.multistage(plan.steps, problem.mu, problem.L).weights
    assert plan.costs == pytest.approx(es.Pure(plan.budget.amount).split(weights), rel=1e-9)


def test_published_plans_survive_json(problem):
    plan = published.published_plan("DP-NAG-opt", problem, T=100, m=1000, c=1.0)
    assert es.Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("algorithm", compare.ALGORITHMS)
def test_corrected_plans_spend_what_they_state(problem, algorithm):
    plan = published.corrected_plan(algorithm, problem, T=200, m=1000, c=1.0)
    assert 1 - 1e-9 < plan.spent <= 1.0
    assert plan.iterations == 200 or algorithm.endswith("-opt")


def test_published_stages_begin_as_in_the_code(problem):
    starts = [
        np.flatnonzero(published.published_plan("DP-MASG", problem, T=1000, m=100_000, c=c).steps.restart).tolist()
        for c in (1.0, 0.1)
    ]
    ours = np.flatnonzero(es.multistage(problem.mu, problem.L, 1000, c=0.1).restart).tolist()
    assert starts == [[89, 225, 497], [89, 225, 497]]
    assert ours == [280, 704]
    assert np.flatnonzero(es.multistage(problem.mu, problem.L, 1000).restart).tolist() == starts[0]


def test_published_steps_have_nesterovs_momentum_and_c_over_L(problem):
    for algorithm in ("DP-HB", "DP-NAG"):
        steps = published.published_plan(algorithm, problem, T=5, m=100_000, c=0.1).steps
        root = np.sqrt(0.1 * problem.mu / problem.L)
        assert steps.alpha == pytest.approx(np.full(5, 0.1 / problem.L))
        assert steps.beta == pytest.approx(np.full(5, (1 - root) / (1 + root)))
        assert steps.gamma == pytest.approx(steps.beta if algorithm == "DP-NAG" else np.zeros(5))


def test_a_published_change_of_stage_at_the_second_step_does_not_restart():
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=1.0, n=1000, d=2, smoothness=1.8)
    steps = published.published_plan("DP-MASG", problem, T=30, m=1000, c=1.0).steps
    assert steps.alpha[1] == steps.alpha[0] / 16
    assert np.flatnonzero(steps.restart).tolist() == [13]
    assert np.flatnonzero(es.multistage(1.0, 1.8, 30).restart).tolist() == [1, 13]


def test_every_deviation_points_into_the_errata():
    anchors = [deviation.errata.partition("#")[2] for deviation in published.DEVIATIONS]
    assert all(f'<a id="{anchor}"></a>' in ERRATA.read_text() for anchor in anchors)
    assert len(set(anchors)) == len(anchors)


def test_the_rate_of_figure_1_is_nesterovs():
    beta = quadratic_demo.optimal_momentum(1.0, published=True)
    assert beta == pytest.approx(0.519493853, abs=1e-9)
    assert quadratic_demo.published_rate(0.1, 1.0, 1.0, beta) == pytest.approx(0.683772234, abs=1e-7)
    assert es.bounds.rate("heavy_ball", 0.1, 1.0, 1.0, beta) == pytest.approx(0.7207592201, abs=1e-9)
    for alpha, beta in ((0.1, 0.3), (0.5, 0.9), (1.0, 0.0), (1.0, 0.5195)):
        nesterov = es.bounds.rate("nesterov", 0.1, 1.0, alpha, beta)
        assert quadratic_demo.published_rate(0.1, 1.0, alpha, beta) == pytest.approx(nesterov, abs=1e-7)


def test_figure_1_marks_the_best_momentum():
    for alpha in quadratic_demo.ALPHAS:
        best = quadratic_demo.optimal_momentum(alpha, published=False)
        rate = es.bounds.rate("heavy_ball", 0.1, 1.0, alpha, best)
        assert rate == pytest.approx(1 - np.sqrt(0.1 * alpha), abs=1e-7)
        assert rate <= quadratic_demo.rates(False)[quadratic_demo.ALPHAS.index(alpha)].min() + 1e-7


def test_the_corrected_bounds_of_figure_1_are_above_the_error():
    assert all(np.all(curve.bound >= curve.exact * (1 - 1e-9)) for curve in quadratic_demo.bounds(False))


def test_figure_2_has_the_published_lengths_and_the_lost_factor_two():
    lengths = [[len(quadratic_demo.split(K, as_is).scale) for K in (2, 3, 4, 5)] for as_is in (True, False)]
    assert lengths == [[53, 133, 293, 613], [54, 134, 294, 614]]
    panel = quadratic_demo.split(3, published=True)
    alpha = 0.05 / np.where(panel.stage > 1, 4.0**panel.stage, 1.0)
    beta = (1 - np.sqrt(alpha)) / (1 + np.sqrt(alpha))
    right = es.bounds.multistage(es.Steps(alpha, beta, beta, np.diff(panel.stage, prepend=1) == 1), 1.0, 20.0).weights
    ratio = right * panel.scale**3
    assert np.flatnonzero(ratio / ratio[0] > 1.5).tolist() == [12, 52]
    assert ratio[12] / ratio[0] == pytest.approx(2.0)


def test_tables_have_the_documented_columns(tmp_path):
    columns = (quadratic_demo.RATE_COLUMNS, quadratic_demo.BOUND_COLUMNS, quadratic_demo.SPLIT_COLUMNS)
    counts = (2 * 3 * 100, 2 * 24 * 250, 53 + 133 + 293 + 613 + 54 + 134 + 294 + 614)
    for path, names, count in zip(quadratic_demo.write_csv(tmp_path), columns, counts, strict=True):
        with path.open() as file:
            rows = list(csv.reader(file))
        assert tuple(rows[0]) == names
        assert len(rows) == count + 1
        assert np.all(np.isfinite([float(row[-1]) for row in rows[1:]]))


@pytest.mark.parametrize("as_published", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_pictures_are_written(tmp_path, as_published):
    pytest.importorskip("matplotlib")
    paths = quadratic_demo.draw(tmp_path, as_published)
    version = "published" if as_published else "corrected"
    names = [f"fig{number}-{version}.{ending}" for number in (1, 2) for ending in ("png", "pdf")]
    assert [path.name for path in paths] == names
    for path in paths:
        assert path.read_bytes()[:4] == (b"\x89PNG" if path.suffix == ".png" else b"%PDF")


def test_the_right_noise_doubles_the_noise_floor():
    """At equal steps the published runs have half the noise variance, and so half the gap once noise dominates.

    400 runs each: the ratio of means has a standard error of about 7 %, and must lie within 15 % of 2 (fixed seed).
    """
    X, y = published.published_data(8_000, 5)
    problem = replace(compare.paper_problem(8_000, 5), smoothness=published.paper_smoothness(X))
    rows = es.Rows(problem, X, y)
    lowest = float(rows.value(compare.minimiser(rows)))
    gaps = []
    for make in (published.published_plan, published.corrected_plan):
        plan = make("DP-NAG", problem, T=150, m=8_000, c=1.0)
        gaps.append(np.mean(rows.value(es.run(plan, rows, seed=3, repetitions=400, start=10.0).x) - lowest))
    assert gaps[1] / gaps[0] == pytest.approx(2.0, rel=0.15)
