"""Ranges that are bought: their law, their neighbours, what they are for hostile tables, and what a schema says."""

import itertools
import json

import numpy as np
import pytest
from combinations import BUDGETS, rows_of, sources_here
from scipy import stats
from sklearn.base import clone
from test_bought import law_of, neighbours
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.cli import app
from epsteps.methods import bought, places
from epsteps.methods.places import ColumnEnd, edges_of, place_problem, places_on, plan_bounds
from epsteps.noise import Source
from epsteps.running.run import Reader
from epsteps.tables import bounds
from epsteps.testing import ReplayError, replay

# Chance that a right sampler fails the test of its law.
LEVEL = 1e-6
HOSTILE = (
    np.nan,
    np.inf,
    -np.inf,
    1e300,
    -1e300,
    5e-324,
    0.0,
    -0.0,
    "x",
    None,
    "",
    "1e5",
    b"\xff",
    10**400,
    [1],
    "NaN",
)


def scores_of(request, cells):
    """Return what is read of records in these cells; the number of cells is the place of what is missing."""
    X = np.asarray(cells, dtype=float)[:, None] / request.places
    return request.read(Reader(es.Rows(request.problem, X, np.zeros(len(X)), engine="numpy")), {})


def choices_cost_what_they_are_said_to(seed=1):
    """All neighbours of few records in few cells, or in none, against the law of the choice."""
    worst = {1.0: 0.0, 0.5: 0.0}
    for n, share in itertools.product((2, 3), (0.1, 0.5, 0.9)):
        request = ColumnEnd(place_problem(n, 1), 0, 3, 0.7, share, "end")
        datasets = list(itertools.combinations_with_replacement(range(4), n))
        scores = {held: scores_of(request, held) for held in datasets}
        for part in worst:
            laws = {held: np.log(law_of(each, part * request.scale)) for held, each in scores.items()}
            pairs = [(a, b) for a, b in itertools.combinations(datasets, 2) if neighbours(a, b)]
            worst[part] = max(worst[part], *(np.max(np.abs(laws[a] - laws[b])) for a, b in pairs))
    assert worst[1.0] <= 0.7 * (1 + 1e-9), f"neighbours are told apart by {worst[1.0]:.6g}, more than 0.7"
    assert worst[0.5] > 1.2 * 0.7, "noise of half the scale is not found"


def test_choices_cost_what_they_are_said_to():
    choices_cost_what_they_are_said_to()


def test_cells_are_chosen_with_their_chances():
    """Seeded: a right sampler fails with probability 1e-6; noise of 3/2 of the scale is found."""
    request = ColumnEnd(place_problem(40, 1), 0, 6, 0.6, 0.7, "end")
    scores = scores_of(request, [0] * 4 + [1] * 6 + [3] * 20 + [5] * 8 + [6] * 2)
    source = Source(3)
    drawn = [int(request.publish(scores, request.draw(source))[0]) for _ in range(4000)]
    counts = np.bincount(drawn, minlength=6)
    assert stats.chisquare(counts, 4000 * law_of(scores, request.scale)).pvalue > LEVEL
    assert stats.chisquare(counts, 4000 * law_of(scores, 1.5 * request.scale)).pvalue < LEVEL


def hostile_table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    cells = np.empty(n, dtype=object)
    cells[:] = rng.normal(size=n).tolist()
    cells[: len(HOSTILE)] = HOSTILE
    return {"a": cells, "b": rng.integers(0, 90, n).astype(float), "c": rng.random(n) * 1000, "y": rng.normal(size=n)}


SCHEMA = es.Schema(
    {
        "a": es.Unbounded(missing=True),
        "b": es.Unbounded(low=0, kind="integer"),
        "c": es.Numeric(0, 1e5),
        "y": es.Unbounded(),
    },
    target="y",
)


def replay_purchases(seed=1):
    """A record is replaced by every hostile cell, and by the ends of the grids, for every kind of budget."""
    table = hostile_table(seed=seed)
    cells = [*HOSTILE, -1e12, 1e12]
    for number, cell in enumerate(cells):
        other = {name: column.copy() for name, column in table.items()}
        place = 20 + number
        other["a"][place], other["b"][place], other["c"][place] = cell, (0.0, 1e9, np.nan)[number % 3], 1e5
        budget = list(BUDGETS.values())[number % len(BUDGETS)](40.0)

        def fit(data, account, budget=budget):
            found = bounds.buy_bounds(SCHEMA, data, budget, columns=["a", "b", "c", "y"], norm=2, ledger=account)
            return found.ranges, found.radius, found.schema.to_toml()

        held = replay(fit, table, other)
        assert held.exception == "none", held.exception
        assert held.spent <= budget.amount


def test_neighbours_are_bought_alike():
    replay_purchases()


def test_every_source_reads_the_same_cells(tmp_path):
    plan = plan_bounds(es.Pure(40.0), 60, {"a": edges_of("number", None, None)}, [("a", "high")])
    X = places_on(plan.grids[0], tables.columns.numbers(hostile_table()["a"]))[:, None] / (len(plan.grids[0]) - 1)
    known = [
        plan.asked[0].read(Reader(rows_of(source, plan.problem, X, np.zeros(60), tmp_path)), {})
        for source in sources_here()
        if source != "gpu"  # whose sums need a card
    ]
    assert all(np.array_equal(known[0], each) for each in known[1:])


@pytest.mark.parametrize("kind", places.KINDS)
@pytest.mark.parametrize("ends", [(None, None), (0.0, None), (None, 0.0), (-3.0, None), (None, 2000.5), (0.0, 1990.0)])
def test_every_number_is_in_the_cell_around_it(kind, ends):
    edges = edges_of(kind, *ends)
    values = np.array([-1e300, -7.3, -1.0, -1e-9, 0.0, 1e-9, 1.0, 2.5, 1987.0, 1e300])
    cells = len(edges) - 2 - places_on(edges, values)
    for value, cell in zip(values, cells, strict=True):
        held = min(max(value, edges[0]), edges[-1])
        assert edges[cell] <= held <= edges[cell + 1]
        inner = min(abs(edges[cell]), abs(edges[cell + 1]))
        spans = edges[cell] < 0 < edges[cell + 1]
        assert spans or abs(held) >= inner
    assert places_on(edges, np.array([np.nan])) == len(edges) - 1


def test_ranges_hold_most_of_the_records_and_no_outliers():
    rng = np.random.default_rng(4)
    n = 20_000
    table = {
        "tails": rng.standard_cauchy(n),
        "integer": rng.integers(18, 90, n),
        "constant": np.full(n, 7.0),
        "zero": np.zeros(n),
        "year": rng.integers(1950, 2020, n),
        "spent": np.where(rng.random(n) < 0.9, 0.0, rng.exponential(500, n)),
        "missing": np.full(n, np.nan),
    }
    table["integer"][:5] = 10**9
    unknown = {name: es.Unbounded() for name in ("tails", "constant", "zero", "missing")}
    unknown |= {
        "integer": es.Unbounded(kind="integer"),
        "year": es.Unbounded(kind="year"),
        "spent": es.Unbounded(low=0),
    }
    found = es.buy_bounds(es.Schema(unknown), table, es.Pure(2.0), seed=1)
    for name in ("tails", "integer", "year", "spent"):
        low, high = found.ranges[name]
        assert 0.95 <= np.mean((table[name] >= low) & (table[name] <= high)) <= 1
    assert found.ranges["integer"] == (16.0, 100.0) or found.ranges["integer"][1] <= 125
    assert found.ranges["constant"] == (6.4, 8.0)
    assert found.ranges["zero"][0] == 0 < found.ranges["zero"][1] <= 1e-5
    assert all(low < high for low, high in found.ranges.values())  # of a column without a number, whatever noise says
    assert found.schema.domain() is not None


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("amount", [1e-3, 1.0, 1e5])
def test_plans_spend_nearly_all_and_never_more(kind, amount):
    plan = es.bounds_plan(SCHEMA, 10**8, BUDGETS[kind](amount), norm=1)
    assert 0.97 * plan.budget.amount <= plan.spent <= plan.budget.amount
    assert es.Plan.from_json(plan.to_json()) == plan
    assert plan.spending(3).amount > plan.spent
    assert "low a" in str(plan)
    changed = json.loads(plan.to_json()) | {"epsilons": [2 * epsilon for epsilon in plan.epsilons]}
    with pytest.raises(es.PlanFormatError):
        es.Plan.from_json(json.dumps(changed))


def test_audits_find_no_more_than_the_claim_and_most_of_it():
    plan = plan_bounds(es.Pure(1.0), 1000, {"a": edges_of("integer", 0, 500)}, [("a", "high")])
    found = es.audit(plan, repetitions=400)
    assert 0.3 < found.lower_bound <= found.claimed == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: es.bounds_plan(SCHEMA, 100, es.Pure(0.01)), "drowns any quantile.*Use a larger budget"),
        (lambda: es.bounds_plan(SCHEMA, 1, es.Pure(1.0)), "n must be"),
        (lambda: es.bounds_plan(SCHEMA, 100, es.Pure(1.0), columns=["bb"]), "no column 'bb'"),
        (lambda: es.bounds_plan(SCHEMA, 100, es.Pure(1.0), columns="a"), "must be a list of names"),
        (lambda: es.bounds_plan(SCHEMA, 10**6, es.Pure(1.0), quantiles=(0.9, 0.1)), "0 < low < high < 1"),
        (lambda: es.bounds_plan(SCHEMA, 10**6, es.Pure(1.0), norm=3), "norm must be 1 or 2"),
        (lambda: es.bounds_plan(es.Schema({"a": es.Numeric(0, 1)}), 100, es.Pure(1.0)), "nothing to buy"),
        (
            lambda: es.bounds_plan(es.Schema({"a": es.Numeric(5, 6)}), 100, es.Pure(1.0), columns=["a"]),
            "cannot have a narrower range",
        ),
        (lambda: es.buy_bounds(SCHEMA, {"a": [], "b": [], "c": [], "y": []}, es.Pure(1.0)), "no rows"),
        (lambda: es.buy_bounds(SCHEMA, {"a": [1.0]}, es.Pure(1.0)), "has no column 'b'"),
        (lambda: SCHEMA.domain(), "column 'a' has no range yet: buy one"),
        (lambda: SCHEMA.encode(hostile_table()), "column 'a' has no range yet"),
        (lambda: SCHEMA.loss(), "has no range yet"),
        (lambda: es.Unbounded(low=0, high=1), "both known"),
        (lambda: es.Unbounded(kind="date"), "kind must be"),
        (lambda: es.describe(SCHEMA, hostile_table(), es.Pure(1.0)), "has no range yet"),
    ],
)
def test_errors_say_what_is_wrong_by_public_facts(ask, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ask()


def test_a_purchase_goes_on_from_its_checkpoint_and_is_charged_once(tmp_path):
    ledger = es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", es.Pure(50.0))
    account = ledger.account("people")
    table = hostile_table()
    options = {"ledger": account, "checkpoint": tmp_path / "noise.db"}
    first = es.buy_bounds(SCHEMA, table, es.Pure(40.0), **options)
    again = es.buy_bounds(SCHEMA, table, es.Pure(40.0), **options)
    assert (first.ranges, len(ledger.history("people"))) == (again.ranges, 1)
    with pytest.raises(es.BudgetExceededError):
        es.buy_bounds(SCHEMA, table, es.Pure(40.0), ledger=account)


def test_a_schema_and_a_model_say_what_was_bought(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b}" for a, b in zip(rng.normal(size=4000), rng.integers(0, 2, 4000), strict=True)]
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "s.toml").write_text(
        'target = "y"\n[columns.a]\ntype = "unbounded"\n[columns.y]\ntype = "category"\nvalues = [0, 1]\n'
    )
    arguments = ["schema", "bounds", "t.csv", "--schema", "s.toml", "--epsilon", "0.5", "--out", "new.toml", "--yes"]
    places = [str(tmp_path / a) if a.endswith((".csv", ".toml")) else a for a in arguments]
    result = CliRunner().invoke(app, places)
    assert result.exit_code == 0, result.output
    schema = es.Schema.read(tmp_path / "new.toml")
    (expense,) = schema.bought
    assert (expense.unit, expense.cost) == ("epsilon", pytest.approx(0.5))
    assert es.Schema.from_dict(schema.to_dict()) == schema == schema.with_target(None).with_target("y")
    assert clone(schema) == schema  # a pipeline's copy has cost what the schema has
    plan = es.plan(tables.problem_of(schema, 4000, 0.01), es.Pure(1.0), method="output")
    model = tables.fit_model(plan, schema, schema.load(tmp_path / "t.csv"), anyway=True)
    content = json.loads(json.dumps(tables.model_to_dict(model)))
    assert content["certificate"]["expenses"] == [vars(expense)]
    assert content["certificate"]["in_all"] == pytest.approx(1.5, rel=1e-6)
    assert "were bought before" in tables.page(content)
    assert tables.model_from_dict(content).schema.bought == schema.bought
    content["certificate"]["in_all"] = 1.0
    with pytest.raises(tables.ModelFormatError, match="in_all"):
        tables.model_from_dict(content)
    steps = es.plan(tables.problem_of(schema, 4000, 0.01), es.Pure(1.5), es.nesterov, expenses=schema.bought)
    assert "bounds of a" in str(steps)
    again = CliRunner().invoke(app, places)
    assert again.exit_code == 1
    assert "exists" in again.output
    assert CliRunner().invoke(app, [*places[:5], *places[7:]]).exit_code == 2  # no budget


def test_what_was_bought_is_not_added_to_what_a_person_is_promised(tmp_path):
    """Both stand there: the person's guarantee with what a person spends, and the sum of what one record does."""
    rng = np.random.default_rng(0)
    lines = [f"{i // 2},{a:.3f},{int(a > 0)}" for i, a in enumerate(rng.normal(size=4000))]
    (tmp_path / "t.csv").write_text("who,a,y\n" + "\n".join(lines) + "\n")
    columns = {"a": es.Numeric(-3, 3), "y": es.Category([0, 1])}
    bought = [es.Expense("bounds of a", 0.25, "epsilon")]
    (tmp_path / "s.toml").write_text(es.Schema(columns, "y", person="who", bought=bought).to_toml())
    places = ["fit", str(tmp_path / "t.csv"), "--schema", str(tmp_path / "s.toml"), "--out", str(tmp_path / "m")]
    result = CliRunner().invoke(app, [*places, "--epsilon", "4", "--per-person", "2", "--yes"])
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    content = json.loads((tmp_path / "m" / "model.json").read_text())
    spent, in_all = content["person"]["spent"], content["certificate"]["in_all"]
    assert in_all == pytest.approx(spent / 2 + 0.25)
    assert f"{content['person']['guarantee']}; spent {spent:.6g}." in said
    assert f"{in_all:.6g} in all, of one record." in said
    page = " ".join((tmp_path / "m" / "report.html").read_text().split())
    assert "Together with the fit, of one record:" in page
    assert "but for those that were bought before" in page


def grid_of_the_data(patch):
    def encode(plan, schema, table):
        columns = [np.nan_to_num(tables.columns.numbers(table[name])[:, None]) for name in plan.names if name in table]
        whole = np.hstack([*columns, columns[0]])[:, : len(plan.names)]
        return (whole - whole.min(axis=0)) / np.maximum(np.ptp(whole, axis=0), 1e-9)

    patch.setattr(bounds, "encode", encode)


def missing_filled_with_the_mean(patch):
    def filled(edges, values):
        return places_on(edges, np.where(np.isnan(values), np.nanmean(np.clip(values, -1e12, 1e12)) * 1e3, values))

    patch.setattr(bounds, "places_on", filled)


def charged_afterwards(patch):
    def run(plan, rows, ledger=None, **options):
        result = es.run(plan, rows, **options)
        ledger.charge(plan.spending(), note=plan.note(1))
        return result

    patch.setattr(bounds, "run", run)


def target_of_the_missing(patch):
    patch.setattr(places.PlaceQuantile, "target_of", lambda self, known: 2 * (self.problem.n - known))


def missing_dropped(patch):
    def encode(plan, schema, table):
        kept = [np.isfinite(tables.columns.numbers(table[n])) for n in ("a", "b", "c")]
        rows = np.flatnonzero(np.all(kept, axis=0))
        return np.zeros((len(rows), len(plan.names)))

    patch.setattr(bounds, "encode", encode)


BUGS = {
    "a grid of the data": (grid_of_the_data, replay_purchases, "moved by"),
    "missing cells filled with the mean of the data": (
        missing_filled_with_the_mean,
        replay_purchases,
        "moved by",
    ),
    "scores that move by 2 as by 1": (lambda patch: patch.setattr(bought, "_APART", 1), replay_purchases, "moved by"),
    "half of the noise": (
        lambda patch: patch.setattr(bought, "_APART", 1),
        choices_cost_what_they_are_said_to,
        "told apart by",
    ),
    "charged after the draw": (charged_afterwards, replay_purchases, "before anything"),
    "a target that moves by 2": (target_of_the_missing, choices_cost_what_they_are_said_to, "told apart by"),
    "records with missing cells dropped": (missing_dropped, replay_purchases, "X must have"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_bug_is_caught(bug, monkeypatch):
    plant, check, words = BUGS[bug]
    plant(monkeypatch)
    with pytest.raises((AssertionError, ReplayError), match=words):
        check()
