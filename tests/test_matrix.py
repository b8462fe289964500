"""Every combination is refused in one sentence, or executed and held to its certificate; after the charge none raises.

The combinations are generated (``combinations.py``). For each method, loss and clip, all else is drawn from seeds:
domain, ridge, intercept, n, L, budget, mechanism, option, source, records and how it is run.
"""

import json
import re
import warnings
from collections import Counter
from dataclasses import replace

import combinations
import pytest
from combinations import Combination
from laws import runs

import epsteps as es
from epsteps import MissingExtraError
from epsteps.data import sources as where
from epsteps.data import stream
from epsteps.methods import choice
from epsteps.testing import replay

# What may be said before the charge: by the plan, by the records or by the run.
REFUSALS = (ValueError, TypeError, es.NoBoundError, MissingExtraError)
# Answers of a run that are too many for a quick test.
MANY = 20


class Watched:
    """An account that remembers whether it was charged."""

    def __init__(self, account):
        self.account, self.charged = account, False

    def __repr__(self):
        return "Watched()"

    def charge(self, cost, **options):
        self.account.charge(cost, **options)
        self.charged = True


class RaisedAfterTheChargeError(AssertionError):
    """A run ended in an exception, or warned, although its budget was spent."""


def sentence(error: Exception) -> str:
    """Return what a refusal says, if that is one line that ends as a sentence does."""
    text = str(error)
    own = type(error).__module__.startswith("epsteps") and not isinstance(error, es.OverspentError)
    assert type(error) in REFUSALS or (own and isinstance(error, REFUSALS)), (
        f"refused by {type(error).__name__}: {text}"
    )
    assert re.fullmatch(r"\S.*\.[`'\")]?", text), f"not a sentence: {text!r}"
    return text


def tried(combination: Combination, folder) -> tuple[str, float]:
    """Return "refused" or "executed", and the largest privacy loss measured over what was charged."""
    try:
        problem = combination.problem()
        plan = es.plan(
            problem, combination.budget, combination.method, release=combination.release, **combination.options
        )
        if plan.requests > MANY:  # "auto" chose descent: few of its steps show what all of them do
            plan = es.plan(problem, combination.budget, "descent", **({"max_iterations": 4} | combination.options))
    except Exception as error:
        sentence(error)
        return "refused", 0.0
    assert plan.spent <= combination.budget.amount
    if combination.loss.__class__.__module__.startswith("epsteps."):
        again = type(plan).from_json(plan.to_json())
        assert json.loads(again.to_json()) == json.loads(plan.to_json())
    file = folder / "run.db"
    surface = dict(combination.surface)
    if "seed" in surface:
        surface["arithmetic"] = "exact"  # what a seed draws in floats is no private run
    if "checkpoint" in surface:
        surface["checkpoint"] = file

    def execute(rows, account):
        found = es.run(plan, rows, ledger=account, **surface, anyway=True)
        if found.path.ndim == 2:  # what is told of a model that was paid for raises as little as its run
            assert isinstance(found.utility, es.Utility)
        return found

    charged, shares = plan.spending(surface.get("repetitions", 1)), []
    for pair in combinations.datasets(problem, combination.records, combination.seed):
        try:
            shares.append(measured(combination, problem, execute, charged, pair, file))
        except Refused:
            return "refused", 0.0
    return "executed", max(shares)


class Refused(Exception):
    """The records or the run were refused before the charge."""


def measured(combination: Combination, problem, execute, charged, pair, file) -> float:
    """Return the privacy loss between two neighbours over what was charged for it: at most 1, or the replay raises."""
    ends = []

    def fit(data, account):
        watched = Watched(account)
        file.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                return execute(combinations.rows_of(combination.source, problem, *data, file.parent), watched)
            except Exception as error:
                ends.append((watched.charged, error))
                raise

    try:
        found = replay(fit, *pair)
    finally:
        for after, error in ends:
            if after:
                raise RaisedAfterTheChargeError(f"{type(error).__name__}: {error}")
    for _, error in ends:
        sentence(error)
        raise Refused
    assert found.charges == (charged,)
    assert found.spent >= 0  # and no NaN
    return found.spent / charged.amount


def _name(value) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", str(value))


@pytest.fixture
def small_sources(monkeypatch):
    """Let few records be streamed in several blocks, and let torch compute without a card."""
    monkeypatch.setattr(stream, "BLOCK", 64)
    if "gpu" in combinations.sources_here():
        from epsteps.data.gpu import records as card

        found = card.find_device
        monkeypatch.setattr(card, "find_device", lambda device=None: found(device or "cpu"))


@pytest.mark.parametrize(("method", "release"), combinations.METHODS, ids=_name)
@pytest.mark.usefixtures("small_sources")
def test_every_combination_is_refused_or_keeps_its_certificate(method, release, tmp_path, monkeypatch):
    count, largest = run_all(method, release, tmp_path, monkeypatch, draws=4, seed=1)
    assert count["refused"] > 0
    assert count["executed"] > 2, count  # of statistics, which squared loss alone has
    assert largest > 0.2, largest  # how much of the claim some pair of neighbours shows


@pytest.mark.parametrize(("method", "release"), combinations.METHODS, ids=_name)
@pytest.mark.usefixtures("small_sources")
def test_every_source_publishes_the_same_bits_for_every_loss(method, release, tmp_path, monkeypatch):
    count = same_everywhere(method, release, tmp_path, monkeypatch, combinations.sources_here())
    assert count == len(combinations.LOSSES) if method in combinations.STEPS else count > 0


def same_everywhere(method, release, folder, monkeypatch, sources) -> int:
    """Hold what each source publishes against records in memory; return for how many losses there is a plan."""
    count, few = 0, {"max_iterations": 4} if method == "descent" else {}
    if method in combinations.STEPS:
        few = {"iterations": 4, "allocation": "uniform"}
    for loss in combinations.LOSSES:
        problem = es.Problem(loss, es.Box(0, 2), ridge=0.2, n=50, d=3, intercept=True)
        try:
            plan = es.plan(problem, combinations.covered(method, 1.0), method, release=release, **few)
        except REFUSALS:
            continue
        (records, _), *_ = combinations.datasets(problem, "mild", 1)
        expected = es.run(plan, es.Rows(problem, *records, engine="numpy"), seed=3, arithmetic="exact")
        count += 1
        for source in sources:
            if source == "fast" and loss.outputs > 1:
                continue  # it has no such engine, and says so
            monkeypatch.setattr(where, "KEPT", 0 if source in combinations.IN_BLOCKS else 2**24)
            rows = combinations.rows_of(source, problem, *records, folder)
            runs.same(es.run(plan, rows, seed=3, arithmetic="exact"), expected)
    return count


@pytest.mark.slow
@pytest.mark.parametrize(("method", "release"), combinations.METHODS, ids=_name)
@pytest.mark.usefixtures("small_sources")
def test_very_many_combinations(method, release, tmp_path, monkeypatch):
    """The same with other seeds; `make matrix` prints how many were refused and executed."""
    count, largest = run_all(method, release, tmp_path, monkeypatch, draws=30, seed=2)
    print(f"{_name(method):>20} {release or '':<9} {dict(count)}, largest share of a certificate {largest:.3f}")


@pytest.mark.slow
def test_combinations_in_dask_workers(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="the dask engine needs distributed")
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as workers, distributed.Client(workers, set_as_default=False) as client:
        monkeypatch.setattr(combinations, "SCHEDULER", client)
        for method, release in combinations.METHODS:
            count, _ = run_all(method, release, tmp_path, monkeypatch, draws=1, seed=3, sources=("dask",))
            print(f"{_name(method):>20} {release or '':<9} {dict(count)} in dask workers")
            assert same_everywhere(method, release, tmp_path, monkeypatch, ("dask",)) > 0


def run_all(method, release, tmp_path, monkeypatch, *, draws, seed, sources=None) -> tuple[Counter, float]:
    """Try all that is drawn for a method; raise with every combination that fails."""
    drawn = combinations.drawn(method, release, draws, seed, sources or combinations.sources_here())
    return all_of(drawn, tried, tmp_path, monkeypatch)


def all_of(drawn, attempt, tmp_path, monkeypatch) -> tuple[Counter, float]:
    """Return how many were executed and refused, and the largest share of a certificate; raise with all that fail."""
    count, largest, failures = Counter(), 0.0, []
    for combination in drawn:
        monkeypatch.setattr(where, "KEPT", 0 if combination.source in combinations.IN_BLOCKS else 2**24)
        try:
            outcome, share = attempt(combination, tmp_path)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {str(error).splitlines()[0]}\n    {combination}")
            continue
        count[outcome] += 1
        largest = max(largest, share)
    assert not failures, f"{len(failures)} of {sum(count.values()) + len(failures)}:\n" + "\n".join(failures)
    return count, largest


@pytest.mark.usefixtures("small_sources")
def test_intervals_are_refused_or_keep_their_certificate(tmp_path, monkeypatch):
    """With budgets from which curvature is bought for so few records, too."""
    count, budgets = Counter(), list(combinations.BUDGETS.values())
    for number, drawn in enumerate(combinations.drawn("objective", None, 1, 5, combinations.sources_here())):
        noise = {name: value for name, value in drawn.options.items() if name == "mechanism"}
        combination = replace(
            drawn,
            clip=None,
            budget=budgets[number % 3]((3e3, 40.0, 1e7, 1.0)[number % 4]),
            options=noise | {"intervals": 0.95, "robust": number % 2 == 0},
        )
        monkeypatch.setattr(where, "KEPT", 0 if combination.source == "streamed" else 2**24)
        outcome, _ = tried(combination, tmp_path)
        count[outcome] += 1
        if outcome == "executed":
            count[es.plan(combination.problem(), combination.budget, "objective", **combination.options).mode] += 1
    assert count["refused"] > 0
    assert min(count["measured"], count["provable"]) > 3, count


@pytest.mark.usefixtures("small_sources")
def test_a_bought_smoothness_constant_keeps_its_price_in_every_combination(tmp_path, monkeypatch):
    count = Counter()
    for combination in combinations.drawn(es.gd, None, 2, 4, combinations.sources_here()):
        monkeypatch.setattr(where, "KEPT", 0 if combination.source in combinations.IN_BLOCKS else 2**24)
        count[bought(combination, tmp_path)] += 1
    assert count["refused"] > 0
    assert count["executed"] > 15, count


def bought(combination: Combination, folder) -> str:
    """Buy L on neighbours; return whether that was refused."""

    def buy(rows, account):
        return es.estimate_smoothness(rows, combination.budget, ledger=account)

    problem = combination.problem()
    for pair in combinations.datasets(problem, combination.records, combination.seed):
        try:
            measured(combination, problem, buy, combination.budget, pair, folder / "run.db")
        except Refused:
            return "refused"
    return "executed"


@pytest.mark.parametrize("release", choice.RELEASES)
@pytest.mark.parametrize("method", choice.METHODS)
def test_a_method_publishes_no_more_than_is_asked_for(method, release):
    """A release is asked of a method that publishes it: no more is promised, and no less is hidden."""
    problem = es.Problem(es.Squared() if method == "statistics" else es.Logistic(), es.Box(0, 1), ridge=0.1, n=50, d=2)
    if release != choice.METHODS[method]:
        with pytest.raises(ValueError, match=r"publishes the final model alone|publishes everything"):
            es.plan(problem, combinations.covered(method, 1.0), method, release=release)
    else:
        assert es.plan(problem, combinations.covered(method, 1.0), method, release=release).spent <= 1


def test_whatever_the_library_offers_has_a_place_in_the_matrix():
    assert combinations.without_an_axis() == []


@pytest.mark.parametrize("kind", combinations.PLANNED)
@pytest.mark.usefixtures("small_sources")
def test_every_purchase_of_a_hostile_table_is_refused_or_keeps_its_certificate(kind, tmp_path, monkeypatch):
    count, largest = run_tables(kind, tmp_path, monkeypatch, draws=6, seed=1)
    assert count["refused"] > 3, count
    assert count["executed"] > 10, count
    assert largest > 0.2, largest


@pytest.mark.parametrize("kind", combinations.PLANNED)
@pytest.mark.usefixtures("small_sources")
def test_every_source_publishes_the_same_bits_of_a_hostile_table(kind, tmp_path, monkeypatch):
    assert same_tables(kind, tmp_path, monkeypatch, combinations.sources_here()) > 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", combinations.PLANNED)
@pytest.mark.usefixtures("small_sources")
def test_very_many_purchases_of_hostile_tables(kind, tmp_path, monkeypatch):
    count, largest = run_tables(kind, tmp_path, monkeypatch, draws=40, seed=2)
    print(f"{kind:>20} {dict(count)}, largest share of a certificate {largest:.3f}")


@pytest.mark.slow
def test_purchases_in_dask_workers(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="the dask engine needs distributed")
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as workers, distributed.Client(workers, set_as_default=False) as client:
        monkeypatch.setattr(combinations, "SCHEDULER", client)
        for kind in combinations.PLANNED:
            count, _ = run_tables(kind, tmp_path, monkeypatch, draws=1, seed=3, sources=("dask",))
            print(f"{kind:>20} {dict(count)} in dask workers")
            assert same_tables(kind, tmp_path, monkeypatch, ("dask",)) > 5


def run_tables(kind, tmp_path, monkeypatch, *, draws, seed, sources=None) -> tuple[Counter, float]:
    """Try all that is drawn of a kind; raise with every combination that fails."""
    drawn = combinations.drawn_tables(kind, draws, seed, sources or combinations.sources_here())
    return all_of(drawn, tried_table, tmp_path, monkeypatch)


def tried_table(combination: combinations.TableCombination, folder) -> tuple[str, float]:
    """Return "refused" or "executed", and the largest privacy loss measured over what was charged."""
    try:
        plan = combination.plan()
    except Exception as error:
        sentence(error)
        return "refused", 0.0
    assert plan.spent <= combination.budget.amount
    assert es.Plan.from_json(plan.to_json()) == plan

    def execute(rows, account):
        return es.run(plan, rows, ledger=account)

    shares = []
    for pair in combination.neighbours():
        records = [combination.encoded(plan, table) for table in pair]
        try:
            shares.append(measured(combination, plan.problem, execute, plan.spending(), records, folder / "run.db"))
        except Refused:
            return "refused", 0.0
    return "executed", max(shares)


def same_tables(kind, folder, monkeypatch, sources) -> int:
    """Hold what each source publishes against records in memory; return for how many tables there is a plan."""
    count = 0
    for combination in combinations.drawn_tables(kind, 2, 5, ("numpy",)):
        combination = replace(combination, budget=es.Pure(40.0), n=300)
        try:
            plan = combination.plan()
        except REFUSALS:
            continue
        records = combination.encoded(plan, combination.table())
        expected = es.run(plan, es.Rows(plan.problem, *records, engine="numpy"), seed=3)
        count += 1
        for source in sources:
            if source == "fast" and getattr(plan.problem.loss, "outputs", 1) > 1:
                continue  # it has no such engine, and says so
            monkeypatch.setattr(where, "KEPT", 0 if source in combinations.IN_BLOCKS else 2**24)
            runs.same(es.run(plan, combinations.rows_of(source, plan.problem, *records, folder), seed=3), expected)
    return count
