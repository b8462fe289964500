"""Losses: derivatives against differences, constants against what they bound, and integers against many digits."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epsteps.problem.levels import STEPS
from epsteps.problem.losses import (
    CappedLogistic,
    CappedSoftmax,
    HalfExponential,
    Logistic,
    PseudoHuber,
    SmoothedHinge,
    Softmax,
    Squared,
)

SCALAR = [
    Logistic(),
    CappedLogistic(cap=1.0),
    CappedLogistic(cap=0.7),
    CappedLogistic(cap=0.5),
    CappedLogistic(cap=0.03),
    HalfExponential(),
    SmoothedHinge(width=0.5),
    SmoothedHinge(width=0.03),
    Squared(bound=1.5),
    PseudoHuber(bound=2.0, c=0.7),
    PseudoHuber(bound=1.0, c=5.0),
    PseudoHuber(bound=2.0, c=0.7, power=4),
    PseudoHuber(bound=1.0, c=3.0, power=8),
]
BOUNDED = [loss for loss in SCALAR if math.isfinite(loss.slope)]
MARGINS = np.concatenate([np.linspace(-40, 40, 4001), [-1e6, 1e6]])


def targets_of(loss):
    """Return targets from all over the declared range."""
    return [-1.0, 1.0] if hasattr(loss, "classes") else np.linspace(-loss.bound, loss.bound, 7).tolist()


def each(losses):
    return pytest.mark.parametrize("loss", losses, ids=repr)


def kink_of(loss):
    """Return the z m at which the slope is capped; -inf where it never is."""
    if isinstance(loss, HalfExponential):
        return 0.0
    cap = getattr(loss, "cap", 1.0)
    return math.log(1 / cap - 1) if cap < 1 else -math.inf


@each(SCALAR)
def test_derivatives_are_those_of_the_value(loss):
    """By differences: exact to their second order, but next to a kink, where the second derivative jumps."""
    step = 1e-4
    for target in targets_of(loss):
        margin = np.linspace(-6, 6, 401)
        margin = margin[np.abs(target * margin - kink_of(loss)) > step]

        def values(m, target=target):
            return np.array([loss.total(np.array([v]), np.array([target])) for v in m])

        slope = (values(margin + step) - values(margin - step)) / (2 * step)
        np.testing.assert_allclose(loss.derivative(margin, target), slope, atol=1e-8 / getattr(loss, "width", 1) ** 2)
        bend = (loss.derivative(margin + step, target) - loss.derivative(margin - step, target)) / (2 * step)
        np.testing.assert_allclose(loss.second(margin, target), bend, atol=1e-8 / getattr(loss, "width", 1) ** 3)


@each([loss for loss in SCALAR if math.isfinite(kink_of(loss))])
def test_at_a_kink_value_and_slope_are_continuous_and_the_slope_is_the_largest(loss):
    for target in (-1.0, 1.0):
        kink = kink_of(loss)
        margin = target * (kink + np.array([-2e-8, -1e-8, 0.0, 1e-8, 2e-8]))
        values = [float(loss.total(np.array([m]), np.array([target]))) for m in margin]
        slopes, bends = target * loss.derivative(margin, target), loss.second(margin, target)
        assert np.ptp(values) <= 4.1e-8 * loss.slope
        assert np.all(slopes[:2] == -loss.slope)  # the line
        assert slopes == pytest.approx(-loss.slope, rel=3e-8)
        assert np.all(bends[:2] == 0)
        curved = 1.0 if isinstance(loss, HalfExponential) else loss.cap * (1 - loss.cap)
        assert bends[3:] == pytest.approx(curved, rel=1e-6)


def test_a_cap_of_1_is_no_cap():
    margin, target = np.linspace(-30, 30, 601), np.where(np.arange(601) % 2, 1.0, -1.0)
    capped, plain = CappedLogistic(cap=1.0), Logistic()
    for what in ("derivative", "second", "bend_shares"):
        found, expected = (getattr(loss, what)(margin, target) for loss in (capped, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert capped.total(margin, target) == pytest.approx(plain.total(margin, target), rel=1e-14)
    assert (capped.slope, capped.curvature) == (plain.slope, plain.curvature)
    assert capped.value_at_zero == pytest.approx(plain.value_at_zero, rel=1e-15)
    assert capped != CappedLogistic(cap=0.5) != CappedLogistic(cap=0.4)
    assert hash(CappedLogistic(cap=0.5)) == hash(CappedLogistic()) != hash(capped)
    assert repr(CappedLogistic(cap=0.25)) == "CappedLogistic(classes=(-1, 1), cap=0.25)"


@pytest.mark.parametrize("loss", [CappedLogistic(cap=0.4), CappedSoftmax(classes=(0, 1, 2), cap=0.4)])
def test_caps_of_single_records_are_those_of_losses_with_that_cap(loss):
    """Value, slopes and second derivatives, record by record; a cap of 1 is the loss without one."""
    rng, caps = np.random.default_rng(0), np.array([0.05, 0.3, 0.4, 0.5, 0.8, 1.0])
    shape = (len(caps),) if loss.outputs == 1 else (len(caps), loss.outputs)
    margins, targets = 3 * rng.standard_normal((20, *shape)), loss.encode(np.array([0, 1, 2, 0, 1, 2]))
    targets, columns = (targets, caps) if loss.outputs == 1 else (targets[:, None], caps[:, None])
    for margin in margins:
        for what in ("derivative", "second", "bends"):
            found = getattr(loss, what)(margin, targets, columns)
            for place, cap in enumerate(caps.tolist()):
                single = getattr(loss.uncapped.capped(cap), what)(margin[[place]], targets[[place]])
                np.testing.assert_allclose(found[[place]], single, rtol=1e-12, atol=1e-14)
        if loss.outputs == 1:
            found = loss.total(margin[None, :], targets[None, :], caps)
            expected = [
                loss.uncapped.capped(cap).total(margin[[place]], targets[[place]])
                for place, cap in enumerate(caps.tolist())
            ]
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_only_losses_that_can_be_capped_have_caps_of_single_records():
    assert {type(loss.uncapped) for loss in (Logistic(), CappedLogistic(), HalfExponential())} == {Logistic, type(None)}
    assert type(CappedSoftmax(classes=(0, 1, 2)).uncapped) is Softmax


@given(chance=st.floats(0.001, 0.999))
def test_the_half_exponential_loss_is_least_at_the_odds(chance):
    """As the logistic loss is: so a sigmoid turns its margins into chances. A cap moves the minimum."""
    odds = np.array([math.log(chance / (1 - chance))])
    for loss in (HalfExponential(), Logistic(), CappedLogistic(cap=1.0)):
        slope = chance * loss.derivative(odds, 1.0) + (1 - chance) * loss.derivative(odds, -1.0)
        assert slope == pytest.approx(0.0, abs=1e-12)


@each(SCALAR)
def test_a_total_is_the_sum_of_its_records(loss):
    rng = np.random.default_rng(0)
    margin, target = rng.standard_normal((1500, 3)) * 20, rng.choice(targets_of(loss), (1500, 1))
    alone = [loss.total(margin[i : i + 1], target[i : i + 1]) for i in range(1500)]
    np.testing.assert_allclose(loss.total(margin, target), np.sum(alone, axis=0), rtol=1e-12)


@each(SCALAR)
def test_constants_bound_what_they_say_and_are_attained(loss):
    slopes = np.array([np.abs(loss.derivative(MARGINS, target)) for target in targets_of(loss)])
    bends = np.array([loss.second(MARGINS, target) for target in targets_of(loss)])
    assert np.max(slopes) <= loss.slope
    assert math.isinf(loss.slope) or np.max(slopes) == pytest.approx(loss.slope, rel=1e-6)
    assert np.min(bends) >= 0
    assert np.max(bends) <= loss.curvature * (1 + 1e-15)
    assert np.max(bends) == pytest.approx(loss.curvature, rel=0.1)
    at_zero = [float(loss.total(np.zeros(1), np.array([target]))) for target in targets_of(loss)]
    assert max(at_zero) == pytest.approx(loss.value_at_zero, rel=1e-14)
    assert loss.outputs == loss.joint_slope(1) == loss.joint_slope(2) == 1
    assert math.isfinite(loss.typical_slope)


@each(SCALAR)
@given(reach=st.floats(0, 1e3), share=st.floats(-1, 1))
def test_a_slope_within_reach_is_bounded_and_the_bound_attained(loss, reach, share):
    bound = float(loss.slope_at(np.array([reach]))[0])
    slopes = [abs(float(loss.derivative(np.array(share * reach), target))) for target in targets_of(loss)]
    assert max(slopes) <= bound * (1 if not isinstance(loss, Logistic) else 1 + 1e-15)
    assert bound <= loss.slope
    ends = [abs(float(loss.derivative(np.array(end), t))) for t in targets_of(loss) for end in (-reach, reach)]
    assert max(ends) == pytest.approx(bound, rel=1e-12)


@each(BOUNDED)
def test_large_margins_neither_overflow_nor_warn(loss):
    far = np.array([-1e300, -1e30, 1e30, 1e300])
    for target in targets_of(loss):
        slopes = loss.derivative(far, target)
        assert np.all(np.abs(slopes) <= loss.slope)
        assert np.max(np.abs(slopes)) == pytest.approx(loss.slope)
        assert np.all(np.isfinite(loss.total(far[:, None], np.full((4, 1), target))))
        assert np.max(np.abs(loss.levels(far, np.full(4, target), loss.slope))) == STEPS


def exact_slope(loss, margin, target):
    """Return the derivative with fifty digits."""
    m, y = Decimal(margin), Decimal(target)
    if isinstance(loss, PseudoHuber):
        return (m - y) / (1 + ((m - y) / Decimal(loss.c)) ** loss.power) ** (1 / Decimal(loss.power))
    if isinstance(loss, HalfExponential):
        return -y * min(-y * m, Decimal(0)).exp()
    t = (1 - y * m) / Decimal(loss.width) if isinstance(loss, SmoothedHinge) else -y * m
    return -y * min(1 / (1 + (-t).exp()), Decimal(getattr(loss, "cap", 1)))


@each(BOUNDED)
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_levels_are_the_slopes_rounded(loss, share):
    """Against fifty digits: within 0.6 steps for the largest bound, in proportion for a smaller one; in its limits."""
    rng = np.random.default_rng(1)
    margin = np.concatenate([rng.standard_normal(300) * 3, rng.standard_normal(50) * 100, [0.0, 1.0, -1.0]])
    bound = share * loss.slope
    with localcontext() as context:
        context.prec = 50
        for target in targets_of(loss):
            found = loss.levels(margin, np.full(margin.shape, target), bound)
            exact = [exact_slope(loss, m, target) * STEPS / Decimal(bound) for m in margin]
            exact = np.clip(np.array(exact, dtype=float), -STEPS, STEPS)
            assert np.max(np.abs(found - exact)) <= 0.5 + 0.1 / share
            assert np.all(found == np.rint(found))


@each([*SCALAR, PseudoHuber(c=1e-30), SmoothedHinge(width=1e-30), CappedLogistic(cap=1e-30)])
def test_levels_never_pass_their_limit(loss):
    margin = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 1.0])[:, None]
    for target in targets_of(loss):
        found = loss.levels(margin, np.full((6, 1), target), np.array([0.3 * loss.typical_slope]))
        assert np.all(np.abs(np.nan_to_num(found)) <= STEPS)
        assert not np.any(np.isnan(found[1:]))


@each(BOUNDED)
def test_shares_of_the_bend_are_those_of_the_second_derivative(loss):
    """Off by what their floats are, but for margins next to a kink; and never beyond 1, whatever the margin."""
    rng = np.random.default_rng(2)
    margin = np.concatenate([rng.standard_normal(500) * 3, rng.standard_normal(50) * 100])
    for target in targets_of(loss):
        away = np.abs(target * margin - kink_of(loss)) > 1e-6
        found = loss.bend_shares(margin, np.full(margin.shape, target))
        assert found[away] == pytest.approx(loss.second(margin, target)[away] / loss.curvature, abs=2e-6)
        wild = loss.bend_shares(np.array([np.nan, np.inf, -np.inf, 1e300, 0.0]), np.full(5, target))
        assert np.all((wild >= 0) & (wild <= 1))


@pytest.mark.parametrize("make", [Logistic, SmoothedHinge, CappedLogistic, HalfExponential])
def test_labels_are_encoded_and_unknown_ones_counted(make):
    loss = make(classes=("no", "yes"))
    np.testing.assert_array_equal(loss.encode(np.array(["yes", "no", "", "maybe"])), [1, -1, -1, -1])
    assert loss.outside(np.array(["yes", "no", "", "maybe"])) == 2
    np.testing.assert_array_equal(make(classes=(0, 1)).encode(np.array([1, 0, 7, np.nan])), [1, -1, -1, -1])
    assert make(classes=(0, 1)).outside(np.array([1, 0, 7, np.nan])) == 2
    with pytest.raises(TypeError, match="y must be text, got dtype int64"):
        loss.encode(np.array([1, 0]))
    for classes in ((1, 1), (1,), (1, 2, 3)):
        with pytest.raises(ValueError, match="classes must be two different labels"):
            make(classes=classes)
    with pytest.raises(ValueError, match="classes must be all text or all numbers"):
        make(classes=("no", 1))


@pytest.mark.parametrize("make", [Squared, PseudoHuber])
def test_targets_are_clipped_and_those_outside_counted(make):
    loss = make(bound=2.0)
    np.testing.assert_array_equal(loss.encode(np.array([0.5, -7.0, np.nan, np.inf])), [0.5, -2, 0, 2])
    assert loss.outside(np.array([0.5, -7.0, np.nan, np.inf, 2.0])) == 3
    with pytest.raises(TypeError, match="y must be numeric, got dtype <U1"):
        loss.encode(np.array(["a"]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PseudoHuber(bound=0), "bound must be positive, got 0"),
        (lambda: PseudoHuber(c=-1.0), r"c must be positive, got -1\.0"),
        (lambda: SmoothedHinge(width=0.0), r"width must be positive, got 0\.0"),
        (lambda: CappedLogistic(cap=0.0), r"cap must be positive, got 0\.0"),
        (lambda: CappedLogistic(cap=1.0001), r"cap must lie between 1e-30 and 1, .* got 1\.0001"),
        (lambda: CappedLogistic(cap=1e-40), "cap must lie between 1e-30 and 1"),
        (lambda: CappedLogistic(cap=math.nan), "cap must be finite"),
        (lambda: Softmax(classes=(1, 2)), "classes must be 3 or more different labels"),
        (lambda: Softmax(classes=(1, 2, 1)), "classes must be 3 or more different labels"),
        (lambda: Softmax(classes=(1, 2, "a")), "classes must be all text or all numbers"),
    ],
)
def test_senseless_constants_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Three or more classes


def softmax_case(k, seed, size=3.0):
    rng = np.random.default_rng(seed)
    return (
        Softmax(tuple(range(k))),
        rng.standard_normal((40, k, 2)) * size,
        rng.integers(0, k, (40, 1, 1)).astype(float),
    )


@pytest.mark.parametrize("k", [3, 10])
def test_softmax_derivatives_are_those_of_the_value(k):
    loss, margin, place = softmax_case(k, seed=k)
    step = 1e-5 * np.eye(k)[:, None, :, None]
    slope = np.array(
        [[loss.total((margin + sign * s)[[i]], place[[i]]) for s in step] for sign in (1, -1) for i in range(40)]
    )
    slope = (slope[:40] - slope[40:]) / 2e-5
    np.testing.assert_allclose(loss.derivative(margin, place), slope, atol=1e-8)
    flat, places = margin[:, :, 0], place[:, :, 0]
    bend = [loss.derivative(flat + s[0, :, 0], places) - loss.derivative(flat - s[0, :, 0], places) for s in step]
    np.testing.assert_allclose(loss.second(flat, places), np.moveaxis(bend, 0, 1) / 2e-5, atol=1e-8)
    assert np.linalg.eigvalsh(loss.second(flat * 0.0, places)).max() <= loss.curvature


def test_softmax_curvature_and_value_are_attained():
    loss = Softmax(tuple("abcd"))
    even = np.array([[50.0, 50.0, -50.0, -50.0]])
    assert np.linalg.eigvalsh(loss.second(even, np.zeros((1, 1)))).max() == pytest.approx(loss.curvature)
    assert loss.total(np.zeros((1, 4)), np.zeros((1, 1))) == pytest.approx(loss.value_at_zero)


@given(k=st.integers(3, 30), seed=st.integers(0, 10**6), reach=st.floats(0, 30))
def test_softmax_slopes_within_reach_are_bounded(k, seed, reach):
    loss, margin, place = softmax_case(k, seed)
    slopes = loss.derivative(np.clip(margin, -reach, reach), place)
    bound = float(loss.slope_at(np.array(reach)))
    assert np.abs(slopes).max() <= bound
    for norm in (1, 2, np.inf):
        assert np.linalg.norm(slopes, ord=norm, axis=1).max() <= bound * loss.joint_slope(norm) * (1 + 1e-15)
    worst = np.full((1, k), reach)
    worst[0, 1] = -reach
    assert np.abs(loss.derivative(worst, np.ones((1, 1)))).max() == pytest.approx(bound, rel=1e-12)


@given(k=st.integers(3, 300), seed=st.integers(0, 10**6), size=st.sampled_from([1e-3, 1.0, 10.0, 1e200, np.inf]))
def test_softmax_levels_keep_their_joint_limits(k, seed, size):
    loss, margin, place = softmax_case(k, seed)
    bound = np.random.default_rng(seed).uniform(0.01, 1.2, 2)
    with np.errstate(all="ignore"):
        margin = margin * size
    levels = loss.levels(margin, place, bound).astype(np.int64)
    own = np.take_along_axis(levels, place.astype(int), axis=1)
    assert np.all(levels.sum(axis=1) == 0)
    assert np.all((own <= 0) & (own >= -STEPS))
    assert np.abs(levels).sum(axis=1).max() <= 2 * STEPS
    assert np.square(levels).sum(axis=1).max() <= 2 * STEPS**2
    assert np.all((levels >= 0) | (np.arange(k)[:, None] == place))


@pytest.mark.parametrize("k", [3, 20])
def test_softmax_levels_are_the_slopes_rounded(k):
    """Each within 0.6 steps; the class of the record holds the sum of the others' roundings."""
    loss, margin, place = softmax_case(k, seed=k)
    error = loss.levels(margin, place, 1.0) - loss.derivative(margin, place) * STEPS
    other = np.arange(k)[:, None] != place
    assert np.abs(error * other).max() <= 0.6
    assert np.abs(error).max() <= 0.6 * k


def test_softmax_labels_are_encoded_and_unknown_ones_counted():
    loss = Softmax(("a", "b", "c"))
    np.testing.assert_array_equal(loss.encode(np.array(["c", "b", "a", "?"])), [2, 1, 0, 0])
    assert loss.outside(np.array(["c", "b", "a", "?"])) == 1
    np.testing.assert_array_equal(Softmax((0, 5, 7)).encode(np.array([7, 5, 0, np.nan])), [2, 1, 0, 0])
    with pytest.raises(TypeError, match="y must be text"):
        loss.encode(np.array([1, 2]))


@pytest.mark.parametrize("classes", [3, 5])
def test_the_trace_of_second_derivatives_is_bounded_and_the_bound_attained(classes):
    loss = Softmax(tuple(range(classes)))
    margins = np.vstack([3 * np.random.default_rng(classes).standard_normal((500, classes)), np.zeros((1, classes))])
    traces = np.trace(loss.second(margins, np.zeros((501, 1))), axis1=1, axis2=2)
    assert np.max(traces) <= loss.total_curvature * (1 + 1e-15)
    assert np.max(traces) == pytest.approx(loss.total_curvature, rel=1e-14)
    assert Logistic().total_curvature == Logistic().curvature
