"""Composition in the ledger: exact sums, and bounds that hold even for prices chosen by earlier releases."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from conftest import small_problem
from hypothesis import given
from hypothesis import strategies as st

import epsteps as es
from epsteps.budgets.budget import exact, exact_total, round_down, round_up
from epsteps.budgets.corners import Corners, composed
from epsteps.budgets.filters import accounts, pure_divergence
from epsteps.ledger.chain import Terms, dump_cost, load_cost
from epsteps.methods.minima import calibrated
from epsteps.problem.saturations import Flat, Sigmoid, Softmax

AMOUNTS = st.floats(1e-12, 2.0)
BUDGET = es.Approximate(1.0, 1e-6)
EVERY_KIND = (es.Pure(0.2), es.Concentrated(1e-3), es.Approximate(0.1, 1e-8))


def tally(terms, costs):
    return terms.tally(costs)


def spend(terms, costs):
    """Charge what fits, as a ledger would, without the file."""
    accepted = []
    for cost in costs:
        if tally(terms, [*accepted, cost]).fits:
            accepted.append(cost)
    return accepted


def decimal(value):
    """Return what a person wrote who typed this float: independently of the library, digit by digit."""
    return Fraction(Decimal(repr(value)))


FLOATS = st.floats(min_value=2.3e-308, max_value=1e300)


@given(FLOATS)
def test_a_float_stands_for_what_it_is_written_with(value):
    assert exact(value) == decimal(value)
    assert float(exact(value)) == value
    assert abs(exact(value) - Fraction(value)) <= Fraction(value) / 2**53
    assert exact(value, "binary") == Fraction(value)
    assert exact(math.nextafter(value, math.inf)) > exact(value)


@given(FLOATS, FLOATS)
def test_amounts_are_shown_rounded_toward_privacy(one, other):
    for amounts in ("decimal", "binary"):
        value = exact_total([one, other], amounts)
        up, down = round_up(value, amounts), round_down(value, amounts)
        assert exact(math.nextafter(up, 0), amounts) < value <= exact(up, amounts)
        assert exact(down, amounts) <= value < exact(math.nextafter(down, math.inf), amounts)


@pytest.mark.parametrize("parts", [3, 7, 10, 30, 1000])
@pytest.mark.parametrize("unit", ["0.1", "0.3", "1e-3", "7e-9"])
def test_equal_parts_of_a_budget_fit_it_exactly(parts, unit):
    """As decimals the parts are the whole; the smallest further charge is too much."""
    part, whole = float(unit), float(Decimal(unit) * parts)
    delta = float(Decimal("1e-7") / 1000)
    cases = [
        (Terms(es.Pure(whole)), es.Pure(part), es.Pure(1e-300)),
        (Terms(es.Concentrated(whole)), es.Concentrated(part), es.Concentrated(1e-300)),
        (
            Terms(es.Approximate(whole, float(Decimal("1e-10") * parts)), "plain"),
            es.Approximate(part, delta),
            es.Approximate(1e-300, 1e-300),
        ),
    ]
    for terms, cost, more in cases:
        found = tally(terms, [cost] * parts)
        assert found.fits
        assert found.spent == found.limit
        assert found.delta == found.delta_limit
        assert not tally(terms, [*[cost] * parts, more]).fits


@pytest.mark.parametrize("budget", [es.Pure(1.0), es.Concentrated(1.0)])
def test_ten_plans_for_a_tenth_fit_the_whole(tmp_path, budget):
    plan = es.plan(small_problem(), type(budget)(0.1), es.nesterov, iterations=5)
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", budget)
    for _ in range(10):
        ledger.charge("people", plan.spending())
    assert ledger.spent("people") <= 1
    with pytest.raises(es.BudgetExceededError):
        ledger.charge("people", plan.spending())


@given(st.lists(AMOUNTS, max_size=12), AMOUNTS)
def test_pure_sums_never_exceed_the_budget(epsilons, budget):
    terms = Terms(es.Pure(budget))
    accepted = spend(terms, map(es.Pure, epsilons))
    spent = sum((decimal(cost.epsilon) for cost in accepted), Fraction(0))
    assert tally(terms, accepted).spent == spent <= decimal(budget)
    for refused in set(epsilons) - {cost.epsilon for cost in accepted}:
        assert spent + decimal(refused) > decimal(budget)


@given(st.lists(st.builds(es.Pure, AMOUNTS) | st.builds(es.Concentrated, AMOUNTS), max_size=10), AMOUNTS)
def test_concentrated_sums_never_exceed_the_budget(costs, budget):
    terms = Terms(es.Concentrated(budget))
    accepted = spend(terms, costs)
    rhos = [decimal(c.rho) if isinstance(c, es.Concentrated) else decimal(c.epsilon) ** 2 / 2 for c in accepted]
    assert tally(terms, accepted).spent == sum(rhos, Fraction(0)) <= decimal(budget)
    assert tally(terms, accepted[::-1]) == tally(terms, accepted)


def test_one_plan_may_take_a_whole_approximate_budget(tmp_path):
    ledger = es.Ledger(tmp_path / "budget.db")
    plan = es.plan(small_problem(), BUDGET, es.nesterov, iterations=5)
    for composition in ("adaptive", "numerical"):
        ledger.create(composition, BUDGET, composition=composition)
        ledger.charge(composition, plan.spending())
        assert ledger.spent(composition) == plan.spending().amount
        with pytest.raises(es.BudgetExceededError, match="for the deltas of charges left"):
            ledger.charge(composition, es.Approximate(1e-9, 1e-7))
        with pytest.raises(ValueError, match=r"charges (of rho )?cannot"):
            ledger.charge(composition, es.Concentrated(0.1))


def test_deltas_have_a_quarter_unless_the_first_charge_or_the_terms_need_more():
    large = es.Approximate(0.1, 9e-7)
    assert not tally(Terms(BUDGET), [es.Pure(0.1), large]).fits
    assert tally(Terms(BUDGET, "plain"), [es.Pure(0.1), large]).fits
    assert tally(Terms(BUDGET), [large, es.Pure(0.1)]).fits
    tenths = [es.Approximate(0.09999, 9.999e-8)] * 10
    assert tally(Terms(BUDGET), tenths).fits
    assert not tally(Terms(BUDGET), [*tenths, es.Pure(0.01)]).fits
    small = [es.Approximate(0.01, 1e-10)] * 300
    assert tally(Terms(BUDGET), small).fits
    with pytest.raises(ValueError, match="charges of rho cannot be made to this dataset"):
        tally(Terms(BUDGET, "plain"), [es.Concentrated(1e-9)])


@pytest.mark.parametrize("composition", ["adaptive", "plain", "numerical"])
def test_halves_of_an_approximate_budget_add_up_to_it(composition):
    terms = Terms(BUDGET, composition)
    half = es.Approximate(0.5, 5e-7)
    assert tally(terms, [half, half]).fits
    assert not tally(terms, [half, half, es.Pure(0.1)]).fits
    assert not tally(terms, [half, half, es.Approximate(1e-9, 1e-9)]).fits


@pytest.mark.parametrize("composition", ["adaptive", "numerical"])
@pytest.mark.parametrize("order", list(itertools.permutations(EVERY_KIND)))
def test_approximate_budgets_take_every_kind(composition, order):
    found = tally(Terms(BUDGET, composition), order)
    assert found.fits
    assert found.delta == decimal(1e-8)


def test_many_small_charges_cost_less_than_their_sum():
    many = [es.Pure(0.01)] * 300
    plain, adaptive, numerical = 3.0, *(float(tally(Terms(BUDGET, c), many).spent) for c in ("adaptive", "numerical"))
    assert numerical < adaptive <= 1 < plain


def test_accounts_use_no_more_than_the_whole_delta():
    """Check each limit against the conversion in its other direction, and the shares against 1."""
    for epsilon, delta in itertools.product((1e-3, 0.1, 1.0, 10.0, 100.0), (1e-12, 1e-6, 1e-2)):
        broken = Fraction(delta) / 4
        for account in accounts(epsilon, delta):
            a = account.order
            tail = math.exp(-(a - 1) * account.tail) / (a - 1) * (1 - 1 / a) ** a
            broken += Fraction(tail)
        assert broken <= Fraction(delta) * (1 + Fraction(1, 10**8))


@given(st.floats(1e-6, 50), st.floats(1.05, 1e4))
def test_pure_divergence_is_that_of_randomised_response(epsilon, order):
    p = np.array([1 / (1 + math.exp(-epsilon)), math.exp(-epsilon) / (1 + math.exp(-epsilon))])
    terms = order * np.log(p) + (1 - order) * np.log(p[::-1])
    found = pure_divergence(epsilon, order)
    assert found == pytest.approx(np.logaddexp(*terms) / (order - 1), rel=1e-6, abs=1e-9)
    assert found <= min(epsilon, order * epsilon**2 / 2) * (1 + 1e-9)


@pytest.mark.parametrize("composition", ["adaptive", "numerical"])
def test_accepted_mixtures_are_private_by_an_independent_accountant(composition):
    """Fill the budget with random charges; compose their worst mechanisms, with Gaussian noise for rho."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    common = pytest.importorskip("dp_accounting.pld.common")
    rng = np.random.default_rng(0)
    terms = Terms(BUDGET, composition)
    for _ in range(3):
        kinds = [
            es.Pure(rng.uniform(0.02, 0.1)),
            es.Concentrated(10 ** rng.uniform(-4, -3)),
            es.Approximate(0.05, 5e-9),
        ]
        accepted = spend(terms, [kinds[i] for i in rng.integers(0, 3, 40)])
        whole = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(1e-9, 0.0))
        for cost in accepted:
            if isinstance(cost, es.Concentrated):
                step = pld.from_gaussian_mechanism(1 / math.sqrt(2 * cost.rho), use_connect_dots=True)
            else:
                delta = getattr(cost, "delta", 0.0)
                step = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(cost.epsilon, delta))
            whole = whole.compose(step)
        assert len(accepted) > 5
        assert whole.get_delta_for_epsilon(1.0) <= 1e-6


def strongest_attack(may_go_on, epsilon, sizes):
    """Return the delta of the best player who chooses each next price, out of two, by the losses so far."""
    chances = [1 / (1 + math.exp(-size)) for size in sizes]

    @cache
    def value(a, b):
        ups = np.arange(a + 1)[:, None], np.arange(b + 1)[None, :]
        loss = (2 * ups[0] - a) * sizes[0] + (2 * ups[1] - b) * sizes[1]
        best = np.maximum(0, -np.expm1(epsilon - loss))
        if may_go_on(a + 1, b):
            after = value(a + 1, b)
            best = np.maximum(best, chances[0] * after[1:] + (1 - chances[0]) * after[:-1])
        if may_go_on(a, b + 1):
            after = value(a, b + 1)
            best = np.maximum(best, chances[1] * after[:, 1:] + (1 - chances[1]) * after[:, :-1])
        return best

    return float(value(0, 0)[0, 0])


def fixed_delta(epsilon, sizes, a, b):
    """Return the exact delta of a and b charges of these sizes that were fixed in advance."""
    ups, ways = np.arange(a + 1)[:, None], [[math.comb(n, k) for k in range(n + 1)] for n in (a, b)]
    downs = np.arange(b + 1)[None, :]
    loss = (2 * ups - a) * sizes[0] + (2 * downs - b) * sizes[1]
    p, q = (1 / (1 + math.exp(-size)) for size in sizes)
    weight = np.outer(ways[0], ways[1]) * p**ups * (1 - p) ** (a - ups) * q**downs * (1 - q) ** (b - downs)
    return float((weight * np.maximum(0, -np.expm1(epsilon - loss))).sum())


@pytest.mark.parametrize(("epsilon", "delta", "sizes"), [(2.0, 0.01, (0.15, 0.5)), (1.0, 1e-3, (0.06, 0.2))])
def test_prices_chosen_by_earlier_releases_do_not_break_the_adaptive_rule(epsilon, delta, sizes):
    """They do break the sharpest rule for fixed prices, which shows that the attack is one."""
    terms = Terms(es.Approximate(epsilon, delta))

    @cache
    def adaptive(a, b):
        return tally(terms, [es.Pure(sizes[0])] * a + [es.Pure(sizes[1])] * b).fits

    assert 0 < strongest_attack(adaptive, epsilon, sizes) <= delta
    sharpest = cache(lambda a, b: fixed_delta(epsilon, sizes, a, b) <= delta)
    assert strongest_attack(sharpest, epsilon, sizes) > 1.2 * delta


def calibrated_cost(*arguments):
    minimum = calibrated(*arguments)
    assert minimum is not None
    return minimum.corners.scaled(minimum.mu)


MINIMA = [
    calibrated_cost(0.2, 1e-7, 0.01, Sigmoid()),
    calibrated_cost(0.1, 1e-7, 0.02, Softmax(3)),
    calibrated_cost(0.2, 1e-7, 0.01, Flat(2)),
]


def test_a_tilted_minimum_is_charged_by_its_corners(tmp_path):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", BUDGET)
    for cost in MINIMA:
        ledger.charge("people", cost)
        assert load_cost(dump_cost(cost)) == cost
    assert [entry.cost for entry in ledger.history("people")] == MINIMA
    assert ledger.verify()
    assert 0.2 < ledger.spent("people") < 1
    with pytest.raises(es.BudgetExceededError):
        ledger.charge("people", calibrated_cost(2.0, 1e-7, 0.01, Sigmoid()))


@pytest.mark.parametrize("composition", ["adaptive", "numerical"])
def test_accepted_minima_are_private_by_the_product_of_their_corners(composition):
    """The product holds for prices fixed in advance, as here, and the ledger must not promise more than it."""
    if composition == "numerical":
        pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    rng = np.random.default_rng(0)
    terms = Terms(BUDGET, composition)
    for _ in range(3):
        accepted = spend(terms, [MINIMA[i] for i in rng.integers(0, 3, 7)])
        found = tally(terms, accepted)
        assert len(accepted) > 2
        assert found.fits
        assert composed(accepted).delta(1.0, float(found.spent)) <= BUDGET.delta
    mixed = tally(terms, [*EVERY_KIND, MINIMA[0]])
    assert mixed.fits
    assert mixed.spent > tally(terms, EVERY_KIND).spent


def test_one_minimum_alone_costs_about_what_it_was_calibrated_for():
    pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    cost = calibrated_cost(0.5, 5e-7, 0.01, Sigmoid())
    assert 0.4 < tally(Terms(BUDGET, "numerical"), [cost]).spent < 0.51
    assert 0.4 < tally(Terms(BUDGET), [cost]).spent < 0.8


@pytest.mark.parametrize("terms", [Terms(es.Pure(1.0)), Terms(es.Concentrated(1.0)), Terms(BUDGET, "plain")], ids=str)
def test_corners_are_refused_where_they_promise_less(terms):
    with pytest.raises((TypeError, ValueError), match=r"cannot be (charged|made) to (a|this) dataset with"):
        tally(terms, [MINIMA[0]])


def test_corners_are_no_budget_and_give_nothing_back():
    with pytest.raises(TypeError, match="Corners are the price of a release"):
        Terms(MINIMA[0])
    with pytest.raises(ValueError, match="shifts must not be negative"):
        Corners((1,), (0.1,), (-5.0,))
    for cost in MINIMA:
        assert tally(Terms(BUDGET), [cost, cost]).spent > tally(Terms(BUDGET), [cost]).spent
