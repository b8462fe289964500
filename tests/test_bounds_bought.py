"""Ranges that are bought: their law, their neighbours, what they are for hostile tables, and what a schema says."""

import dataclasses
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from combinations import BUDGETS, rows_of, sources_here
from scipy import stats
from sklearn.base import clone
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.cli import app
from epsteps.methods import bought, places
from epsteps.methods.places import edges_of, moved_out, needed_tail, place_problem, places_on, plan_bounds
from epsteps.methods.together import ColumnEnds, chosen
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


def distances_of(request, cells):
    """Return what is read of records in these cells; the number of cells is the place of what is missing."""
    X = np.asarray(cells, dtype=float) / request.places
    return request.read(Reader(es.Rows(request.problem, X, np.zeros(len(X)), engine="numpy")), {})


def ends(n, places, epsilon, shares):
    """Return a choice of one end of each of several columns."""
    columns = tuple(range(len(places)))
    return ColumnEnds(place_problem(n, len(places)), columns, places, epsilon, shares, tuple(map(str, columns)))


def law_of(request, distances, part=1.0):
    """Return the chance of each list of cells, by its definition; of another scale for a part that is not 1."""
    each = np.split(distances, np.cumsum(request.places)[:-1])
    farthest = np.array([max(parts) for parts in itertools.product(*each)])
    weights = np.exp(-farthest / (part * request.scale))
    return weights / weights.sum()


def choices_cost_what_they_are_said_to(seed=1):
    """All neighbours of few records with cells in two columns, or in none, against the law of the choice."""
    worst = {1.0: 0.0, 0.5: 0.0}
    cells = list(itertools.product(range(3), range(4)))
    for n, shares in ((2, (0.1, 0.9)), (2, (0.5, 0.5)), (3, (0.9, 0.6))):
        request = ends(n, (2, 3), 0.7, shares)
        others = list(itertools.combinations_with_replacement(cells, n - 1))
        for known in others if n == 2 else others[::7]:
            read = [distances_of(request, [*known, cell]) for cell in cells]
            for part in worst:
                laws = np.log([law_of(request, each, part) for each in read])
                worst[part] = max(worst[part], np.max(np.ptp(laws, axis=0)))
    assert worst[1.0] <= 0.7 * (1 + 1e-9), f"neighbours are told apart by {worst[1.0]:.6g}, more than 0.7"
    assert worst[1.0] > 0.75 * 0.7, "little of the claim is attained"
    assert worst[0.5] > 1.2 * 0.7, "a choice of half the scale is not found"


def test_choices_cost_what_they_are_said_to():
    choices_cost_what_they_are_said_to()


@pytest.mark.parametrize("places", [(5,), (3, 2), (2, 4, 3)])
def test_every_number_decides_for_the_list_whose_turn_it_is(places):
    """All numbers of few bits: each list has its weight's share of them, but for one; together they are all."""
    rng = np.random.default_rng(4)
    distances = [rng.integers(0, 4, count) for count in places]
    levels = np.unique(np.concatenate(distances)).tolist()
    weights = {level: int(rng.integers(1, 40)) for level in levels}
    bits = 14
    counts = dict.fromkeys(itertools.product(*map(range, places)), 0)
    for number in range(2**bits):
        counts[tuple(chosen(distances, levels, [weights[each] for each in levels], number, bits))] += 1
    farthest = {cells: max(each[cell] for each, cell in zip(distances, cells, strict=True)) for cells in counts}
    total = sum(weights[level] for level in farthest.values())
    for cells, count in counts.items():
        assert abs(count - 2**bits * weights[farthest[cells]] / total) < 1, cells


def test_weights_are_what_was_paid_for():
    """Weights of distances next to each other differ by e^(epsilon/2) at most, and by no less than nearly that."""
    for epsilon, cells in ((1e-3, (100,)), (0.5, (182,) * 8), (30.0, (364, 12)), (1e6, (5, 5))):
        request = ends(10**5, cells, epsilon, (0.5,) * len(cells))
        levels = sorted({*range(min(request.farthest, 50)), request.farthest - 1, request.farthest})
        weights = dict(zip(levels, request.weights(levels), strict=True))
        assert weights[request.farthest] >= 2**128
        assert 64 * request.words >= max(weights.values()).bit_length() + math.prod(cells).bit_length() - 1
        ratios = [math.log(Fraction(weights[t], weights[t + 1])) for t in levels if t + 1 in weights]
        assert all(ratio <= epsilon / 2 * (1 + 1e-15) for ratio in ratios)
        assert all(ratio >= min(epsilon / 2, 64) * (1 - 1e-11) for ratio in ratios)


def test_cells_are_chosen_with_their_chances():
    """Seeded: a right sampler fails with probability 1e-6; a choice of 3/2 of the scale is found."""
    request = ends(40, (4, 3), 0.6, (0.7, 0.2))
    cells = [[0, 0]] * 4 + [[1, 2]] * 6 + [[3, 1]] * 20 + [[4, 1]] * 8 + [[2, 3]] * 2
    read, source = distances_of(request, cells), Source(3)
    drawn = [request.publish(read, request.draw(source)) for _ in range(4000)]
    counts = np.bincount([int(3 * first + second) for first, second in drawn], minlength=12)
    assert stats.chisquare(counts, 4000 * law_of(request, read)).pvalue > LEVEL
    assert stats.chisquare(counts, 4000 * law_of(request, read, 1.5)).pvalue < LEVEL


def test_a_list_beyond_the_records_is_as_rare_as_was_proved():
    """Eight columns of equal records, the worst case: with the tail that is planned, the bound of theorem 15.5 holds.

    Seeded; of 2000 choices at most e^-4 fail on average, and a right sampler exceeds 60 with a chance below 1e-4.
    """
    n, places = 4000, (180,) * 8
    tail = needed_tail(n, 0.5, places)
    request = ends(n, places, 0.5, (1 - tail,) * 8)
    read, source = distances_of(request, [[90] * 8] * n), Source(1)
    drawn = np.array([request.publish(read, request.draw(source)) for _ in range(2000)])
    assert np.any(drawn != 90, axis=1).sum() <= 60
    nearer = ends(n, places, 0.5, (1 - 0.7 * tail,) * 8)
    drawn = [nearer.publish(distances_of(nearer, [[90] * 8] * n), nearer.draw(source)) for _ in range(100)]
    assert np.any(np.array(drawn) != 90, axis=1).sum() > 50


def test_ends_are_moved_out_where_many_records_are_left_outside():
    """By public numbers: a tail of up to a tenth moves nothing, nor do quantiles that were asked for."""
    schema = es.Schema({"a": es.Unbounded(low=0), "b": es.Unbounded()})
    few, many = (es.bounds_plan(schema, n, es.Pure(0.05)) for n in (4000, 40_000))
    assert set(few.reaches) == {places.reach_of(few.shares[1])}
    assert few.reaches[0] > 1.1
    assert set(many.reaches) == {1.0}
    assert es.bounds_plan(schema, 4000, es.Pure(0.05), quantiles=(0.2, 0.8)).reaches == ()
    edges = (-8.5, -4.0, -2.0, 2.0, 4.0, 8.5)
    assert moved_out(edges, {"low": -2.0, "high": 2.0}, {"low": 1.5, "high": 2.0}) == (-3.0, 4.0)
    assert moved_out(edges, {"low": -2.0, "high": 4.0}, {"low": 9.0, "high": 9.0}) == (-8.5, 8.5)
    assert moved_out(edges, {"high": 2.0}, {"high": 1.2}) == (None, pytest.approx(4.1))
    with pytest.raises(ValueError, match="a reach must lie in"):
        dataclasses.replace(few, reaches=(0.5,) * 3)


@pytest.mark.parametrize("kind", BUDGETS)
def test_as_many_ends_are_chosen_at_a_time_as_leave_the_fewest_records_outside(kind):
    schema = es.Schema({f"c{i}": es.Unbounded(low=0) for i in range(12)})
    plan = es.bounds_plan(schema, 10**6, BUDGETS[kind](0.5))
    cells = [len(edges) - 1 for edges in plan.grids]
    tails = {}
    for count in range(1, 13):
        choices = -(-12 // count)
        tails[count] = needed_tail(10**6, places.even_epsilons(plan.budget, choices), cells[:count], choices)
    assert tails[plan.together] == min(tails.values())
    assert (plan.together == 12) == (kind is not es.Concentrated)


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
    patch.setattr(ColumnEnds, "target_of", lambda self, end, known: 2 * (self.problem.n - known))


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
    "scores that move by 2 as by 1": (
        lambda patch: patch.setattr(bought.Selection, "apart", 1),
        replay_purchases,
        "moved by",
    ),
    "half of the noise": (
        lambda patch: patch.setattr(bought.Selection, "apart", 1),
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
