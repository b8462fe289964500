"""Records on the grid: the compiled pass gives NumPy's bits, and both keep the rule by which a ball rounds."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import epsteps as es
from epsteps.data import encoding
from epsteps.data.engine import pool
from epsteps.data.fast import FastEngine
from epsteps.problem.domain import sum_in_order
from epsteps.problem.grid import STEPS

numba = pytest.importorskip("numba")
from epsteps.data.fast import _prepare  # noqa: E402

KINDS = [np.float64, np.float32, np.float16, np.int64, np.uint64, np.int8, bool, ">f8"]
WIDTHS = [1, 2, 7, 8, 9, 20, 33, 64, 65, 130, 1000]
ROWS = 45


def domains(d):
    """Return balls, boxes and indicators of d columns."""
    half = max(1, d // 2)
    mixed = es.Box(-np.arange(1.0, d + 1), np.arange(1.0, d + 1) / 3, one_hot=[(0, half)])
    blocks = es.Box(0, 1, one_hot=[(0, 1), (d - half, d)] if d > 2 else [])
    balls = [es.Ball(radius, norm=norm) for norm in (1, 2, np.inf) for radius in (1, 0.3, 1e-30, 1e30)]
    return [es.Box(-1, 1), es.Box(0, 1), es.Box(-3, -1), mixed, blocks, *balls]


def hostile(domain, d, seed=0):
    """Return rows on the border, far outside, of no size, and halfway between integers; NaN and infinity."""
    rng, radius = np.random.default_rng(seed), getattr(domain, "radius", 1.0)
    rows = rng.standard_normal((ROWS, d))
    rows[:20] *= (radius / np.linalg.norm(rows[:20], ord=getattr(domain, "norm", 1), axis=1))[:, None]
    rows[20:24] *= np.array([[1e-310], [1e200], [1e-160], [1e20]])
    specials = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e308, 1, -1, 0.5, radius, -radius, radius / d]
    rows[24:30] = rng.choice(specials, size=(6, d))
    rows[30:34] = (rng.integers(max(2, 2 * STEPS // d), size=(4, d)) + 0.5 + 1e-9) * radius / STEPS
    rows[34], rows[35], rows[36] = radius / d, -radius / np.sqrt(d), radius
    return rows


@np.errstate(all="ignore")
def converted(rows, kind):
    """Return rows of another kind; integers are small ones."""
    return rows.astype(kind) if np.dtype(kind).kind == "f" else (np.nan_to_num(rows) % 120).astype(kind)


def problem_of(domain, d, intercept=True):
    return es.Problem(es.Logistic(), domain, ridge=0.1, n=ROWS, d=d, intercept=intercept)


def layouts(rows, kinds):
    """Yield rows of these kinds, in C and Fortran order and with gaps."""
    for kind in kinds:
        given = converted(rows, kind)
        yield from (given, np.asfortranarray(given), given[::-2])


def differences(d, kinds):
    """Yield the cases of d columns in which the compiled pass gives other bits than NumPy."""
    for domain in domains(d):
        for i, rows in enumerate(layouts(hostile(domain, d), kinds)):
            problem = problem_of(domain, d, intercept=i % 2 == 0)
            if encoding.integers(problem, rows).tobytes() != _prepare.integers(problem, rows).tobytes():
                yield domain, rows.dtype, rows.flags.f_contiguous


@pytest.mark.parametrize("d", WIDTHS)
def test_the_compiled_pass_gives_the_bits_of_numpy(d):
    assert list(differences(d, KINDS if d < 100 else KINDS[:4])) == []


@numba.njit
def lengths(features, places, d, squares, totals):
    _prepare._lengths(features, 0, places, 0, d, squares, -1e150, 1e150, totals, 0)


@pytest.mark.parametrize("d", WIDTHS)
def test_lengths_are_sums_one_number_after_the_other(d):
    """To the last bit, which integers would hardly ever show."""
    rows, totals = np.random.default_rng(d).standard_normal((8, d)), np.empty(8)
    for squares in (False, True):
        lengths(rows.reshape(-1), np.arange(8) * d, d, squares, totals)
        powers = rows**2 if squares else np.abs(rows)
        np.testing.assert_array_equal(totals, np.add.accumulate(powers, axis=1)[:, -1])
        np.testing.assert_array_equal(totals, sum_in_order(powers))
        np.testing.assert_array_equal(totals[:1], sum_in_order(powers[:1]))


def replaced(patch, name, change):
    """Let a kernel see other rows, or compute with other numbers."""
    right = getattr(_prepare, name)

    def kernel(features, *rest):
        features, *rest = change(features, *rest)
        features.flags.writeable = False
        right(features, *rest)

    patch.setattr(_prepare, name, kernel)


def nan_counts_as_one(patch):
    for name in ("shortened", "clipped"):
        replaced(patch, name, lambda features, *rest: (np.where(np.isnan(features), 1.0, features), *rest))


def never_shortened(patch):
    """Nearest integers, whether or not they leave the ball."""
    replaced(patch, "shortened", lambda *given: (*given[:8], np.inf, *given[9:]))


def a_bit_shorter(patch):
    """Rows are shortened to less than the radius."""
    replaced(patch, "shortened", lambda *given: (*given[:6], given[6] * (1 - 1e-7), *given[7:]))


def blocks_forgotten(patch):
    """Indicators are clipped as other columns are."""
    replaced(patch, "clipped", lambda *given: (*given[:5], given[5][:0], *given[6:]))


@pytest.mark.parametrize("plant", [nan_counts_as_one, never_shortened, a_bit_shorter, blocks_forgotten])
@pytest.mark.parametrize("d", [9, 130])
def test_the_comparison_finds_a_wrong_kernel(plant, d, monkeypatch):
    plant(monkeypatch)
    assert any(differences(d, kinds=[np.float64]))


def by_the_rule(ball, row):
    """Return the integers of a projected row, an entry at a time: the rule in ``Ball.integers``, written down plainly.

    Distances are compared in steps of 2^-31.
    """
    real = ball.project(row[None])[0] * (STEPS / ball.radius)
    whole = [int(value) for value in np.rint(real)]
    power = 2 if ball.norm == 2 else 1
    order = sorted(range(len(row)), key=lambda j: (round((abs(real[j]) - abs(whole[j])) * 2**31), j))
    for j in order:
        if sum(abs(value) ** power for value in whole) > STEPS**power and abs(whole[j]) > abs(real[j]):
            whole[j] -= 1 if whole[j] > 0 else -1
    return whole


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("d", [3, 40, 150])
def test_both_ways_keep_the_rule(norm, d):
    """Rows of which few entries are rounded toward 0, and rows of which nearly all are, some of them equally far."""
    ball, rng = es.Ball(1, norm=norm), np.random.default_rng(d)
    rows = rng.standard_normal((30, d))
    rows[::3] = rng.integers(1, STEPS // d, size=rows[::3].shape) + rng.choice([0.5, 0.75, 0.98], size=rows[::3].shape)
    rows[1::3] = 1.0
    rows *= (1 / np.linalg.norm(rows, ord=norm, axis=1))[:, None]
    rows[::3] = np.rint(rows[::3] * STEPS) / STEPS + rng.choice([0.4, 0.25, 0.02], size=rows[::3].shape) * -1 / STEPS
    expected = [by_the_rule(ball, row) for row in rows]
    problem = problem_of(ball, d, intercept=False)
    np.testing.assert_array_equal(encoding.integers(problem, rows), expected)
    np.testing.assert_array_equal(_prepare.integers(problem, rows), expected)


@dataclass(frozen=True)
class Halved(es.Ball):
    """A ball whose integers are its own: what its base declares for compiled code does not count."""

    def integers(self, rows, steps):
        return np.rint(super().integers(rows, steps) / 2)


def test_a_derived_domain_is_asked_itself():
    problem, rows = problem_of(Halved(1), 5), hostile(es.Ball(1), 5)
    found = FastEngine(problem, rows, np.ones(ROWS))._rounded(problem, rows)
    np.testing.assert_array_equal(found, encoding.integers(problem, rows))
    assert np.abs(found[:, :5]).max() <= STEPS / 2


class Told(es.Box):
    """A box that gives its numbers to the kernel of this name, in a recipe of another kind, and counts its answers."""

    kernel, asked = "clip", 0

    def integers(self, rows, steps):
        type(self).asked += 1
        return super().integers(rows, steps)

    def recipe(self, d, steps):
        numbers = super().recipe(d, steps)
        return SimpleNamespace(kernel=self.kernel, ends=numbers.ends, one_hot=numbers.one_hot)


@pytest.mark.parametrize(("kernel", "asked"), [("clip", 0), ("of nobody", 1)])
def test_a_recipe_of_any_kind_names_its_kernel_and_without_one_the_domain_is_asked(kernel, asked, monkeypatch):
    monkeypatch.setattr(Told, "kernel", kernel)
    monkeypatch.setattr(Told, "asked", 0)
    told, box = (problem_of(kind(0, 2, one_hot=[(1, 3)]), 4) for kind in (Told, es.Box))
    rows = hostile(box.domain, 4)
    assert _prepare.integers(told, rows).tobytes() == encoding.integers(box, rows).tobytes()
    assert Told.asked == asked


def test_records_that_cannot_be_written_in_parts_and_in_the_threads_of_the_pool():
    """A thread that waits for others of its own pool would wait forever."""
    rows = np.random.default_rng(0).standard_normal((60_001, 20))
    rows.flags.writeable = False
    problem = problem_of(es.Ball(1), 20)
    expected = encoding.integers(problem, rows).tobytes()
    assert _prepare.integers(problem, rows).tobytes() == expected
    waiting = [pool().submit(_prepare.integers, problem, rows) for _ in range(4)]
    assert all(found.result(timeout=60).tobytes() == expected for found in waiting)


def test_no_records_and_columns_that_do_not_fit():
    problem = problem_of(es.Ball(1), 3)
    assert _prepare.integers(problem, np.empty((0, 3))).shape == (0, 4)
    with pytest.raises(ValueError, match="must have d=3 columns"):
        _prepare.integers(problem, np.ones((2, 4)))
