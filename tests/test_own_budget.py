"""A kind of budget from outside is one class: it plans, runs, is written as JSON and is charged to a ledger.

It is Gaussian differential privacy (Dong, Roth, Su 2022), of which squares of mu add up exactly.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import pytest
from conftest import records, small_problem

import epsteps as es
from epsteps.budgets import Budget, Mu, Rho
from epsteps.budgets.budget import Parts, Tally, exact


def root(square, amounts):
    """Return the smallest float that stands for at least the root of this fraction."""
    number = math.sqrt(square)
    while exact(number, amounts) ** 2 >= square > 0:
        number = math.nextafter(number, 0)
    while exact(number, amounts) ** 2 < square:
        number = math.nextafter(number, math.inf)
    return number


@dataclass(frozen=True)
class GaussianDP(Budget):
    """A budget of mu-Gaussian differential privacy."""

    mu: float

    kinds = (Rho,)
    unit = "mu"

    def __str__(self):
        return f"mu = {self.mu:g} (Gaussian)"

    @property
    def amount(self):
        return self.mu

    def capacity(self, kind):
        return {Rho: self.mu**2 / 2, Mu: self.mu}.get(kind, 0.0)

    def of(self, cost):
        if cost.pure is not None:
            raise ValueError("pure noise is not Gaussian.")
        return GaussianDP(math.sqrt(2 * cost.rho))

    def spending(self, costs, kind, expenses=()):
        return self.of(kind(math.fsum([*costs, *expenses]) * (1 + 1e-13)))

    @property
    def parts(self):
        return Parts(rho=self.mu**2 / 2 * (1 + 1e-15))

    def tally(self, prices, composition, amounts):
        """Add up squares of mu, of prices of this kind alone: others promise less."""
        if any(type(price) is not GaussianDP for price in prices):
            raise TypeError(f"this cannot be charged to a dataset with {self}: it promises less.")
        square = sum((exact(vars(price)["mu"], amounts) ** 2 for price in prices), Fraction(0))
        limit = exact(self.mu, amounts)
        return Tally(limit if square == limit**2 else exact(root(square, amounts), amounts), limit)


@pytest.fixture(scope="module")
def plan():
    return es.plan(small_problem(), GaussianDP(0.8), es.nesterov, iterations=4)


def test_it_plans_with_gaussian_noise_and_spends_it_all(plan):
    assert plan.mechanism.name == "gaussian"
    assert plan.spending() == GaussianDP(plan.spent)
    assert 0.8 * (1 - 1e-9) < plan.spent <= 0.8
    same = es.plan(small_problem(), es.Concentrated(0.32), es.nesterov, iterations=4, mechanism="gaussian")
    assert plan.scales == pytest.approx(same.scales, rel=1e-9)
    assert "mu = 0.8 (Gaussian)" in str(plan)


def test_it_does_not_cover_pure_noise():
    with pytest.raises(ValueError, match="does not cover laplace noise"):
        es.plan(small_problem(), GaussianDP(0.8), es.nesterov, iterations=4, mechanism="laplace")


def test_a_plan_of_it_is_read_back(plan):
    again = es.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.budget == GaussianDP(0.8)


def test_a_run_is_charged_to_a_ledger_until_nothing_is_left(plan, tmp_path):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", GaussianDP(1.2))
    rows = es.Rows(plan.problem, *records(plan.problem))
    for _ in range(2):
        es.run(plan, rows, ledger=ledger.account("people"), anyway=True)
    assert ledger.spent("people") == pytest.approx(0.8 * math.sqrt(2), rel=1e-9)
    with pytest.raises(es.BudgetExceededError, match=r"dataset 'people' has mu = .* of 1\.2 left"):
        es.run(plan, rows, ledger=ledger.account("people"), anyway=True)
    assert [entry.cost for entry in es.Ledger(ledger.path).history("people")] == [plan.spending()] * 2
    assert ledger.verify()


def test_squares_compose_exactly(tmp_path):
    """3² + 4² = 5² in decimals, in which the smallest further price does not fit."""
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", GaussianDP(0.5))
    for mu in (0.3, 0.4):
        ledger.charge("people", GaussianDP(mu))
    assert ledger.spent("people") == 0.5
    assert ledger.remaining("people") == 0
    with pytest.raises(es.BudgetExceededError):
        ledger.charge("people", GaussianDP(1e-150))


@pytest.mark.parametrize("budget", [es.Concentrated(0.5), es.Approximate(4.0, 1e-6)], ids=str)
def test_other_budgets_take_its_price_as_a_rho(tmp_path, budget):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("by mu", budget)
    ledger.create("by rho", budget)
    ledger.charge("by mu", GaussianDP(0.5))
    ledger.charge("by rho", es.Concentrated(0.125))
    assert ledger.spent("by mu") == pytest.approx(ledger.spent("by rho"), rel=1e-12)
    with pytest.raises(es.BudgetExceededError):
        ledger.charge("by mu", GaussianDP(1.5))


@pytest.mark.parametrize("price", [es.Pure(0.1), es.Concentrated(1e-3), es.Approximate(0.1, 1e-9)], ids=str)
def test_what_promises_less_is_refused(tmp_path, price):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("gaussian", GaussianDP(1.0))
    ledger.create("pure", es.Pure(1.0))
    with pytest.raises(TypeError, match="promises less"):
        ledger.charge("gaussian", price)
    with pytest.raises(TypeError, match="promises less"):
        ledger.charge("pure", GaussianDP(0.1))


def test_a_composition_that_it_does_not_know_is_refused(tmp_path):
    with pytest.raises(ValueError, match="its charges simply add up"):
        es.Ledger(tmp_path / "budget.db").create("people", GaussianDP(1.0), composition="numerical")


def test_the_command_line_shows_it(tmp_path):
    from typer.testing import CliRunner

    from epsteps.cli import app

    path = tmp_path / "budget.db"
    es.Ledger(path).create("people", GaussianDP(1.0))
    shown = CliRunner().invoke(app, ["ledger", "show", str(path), "--json"]).output
    assert '"kind": "gaussiandp"' in shown
    assert '"unit": "mu"' in shown
