"""A loss and a domain that somebody writes: one class each; every method that covers them plans, runs and replays."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_array

import epsteps as es
from epsteps.problem.domain import Columns, Domain
from epsteps.problem.losses import Labels, Loss, Range, Surrogate
from epsteps.problem.saturations import Flat
from epsteps.problem.shapes import Body
from epsteps.testing import replay


@dataclass(frozen=True)
class LogCosh(Loss):
    """c² ln cosh(r/c) of the residual r: what a loss has to say at least. Engines hold its slopes, and nothing else."""

    c: float = 0.5

    targets = Range(1.0)
    curvature = 1.0
    slope = property(lambda self: self.c)
    value_at_zero = property(lambda self: float(self.total(np.zeros(1), np.ones(1))))

    def total(self, margin, target):
        ratio = (margin - target) / self.c
        return self.c**2 * (np.logaddexp(2 * ratio, 0) - ratio - math.log(2)).sum(axis=0)

    def derivative(self, margin, target):
        return self.c * np.tanh((margin - target) / self.c)

    def second(self, margin, target):
        return np.cosh(np.clip((margin - target) / self.c, -300, 300)) ** -2


@dataclass(frozen=True)
class Rooted(Loss, name="tests.Rooted", proved=True):
    """(√(1 + m²) - z m)/2 for labels z: a loss with every ability but sufficient statistics."""

    __module__ = "epsteps.problem.rooted"  # as if its file stood in the library: others cannot say that they are proved

    classes: tuple[object, object] = (-1, 1)

    targets = property(lambda self: Labels(self.classes))
    slope, curvature, value_at_zero = 1.0, 0.5, 0.5
    saturation = Flat(sides=1, curvature=0.5)
    surrogate = property(lambda self: Surrogate(0.4, lambda m: (m / np.hypot(1, m) / 2, np.hypot(1, m) ** -3 / 2)))

    def slope_at(self, reach):
        return np.minimum((1 + reach / np.hypot(1, reach)) / 2 * (1 + 2**-50), 1.0)

    def total(self, margin, target):
        return (np.hypot(1, margin) - target * margin).sum(axis=0) / 2

    def derivative(self, margin, target):
        return (margin / np.hypot(1, margin) - target) / 2

    def second(self, margin, target):
        return np.hypot(1, margin) ** -3 / 2


@dataclass(frozen=True)
class Simplex(Domain, name="tests.Simplex"):
    """All u >= 0 that add up to at most ``total``: shares of something."""

    total: float = 1.0

    def units(self, d):
        return np.full(d, self.total)

    def size(self, norm, d):
        return self.total

    def reach(self, x):
        return self.total * np.abs(x).max(axis=0)

    def project(self, rows):
        rows = np.clip(np.nan_to_num(np.asarray(rows, dtype=float)), 0, 1e150)
        allowed = self.total * (1 - (rows.shape[1] + 8) * 2**-52)
        return rows * (allowed / np.maximum(rows.sum(axis=1, keepdims=True), allowed))

    def integers(self, rows, steps):
        real = self.project(rows) * (steps / self.total)
        nearest = np.rint(real)
        return np.where(nearest.sum(axis=1, keepdims=True) > steps, np.floor(real), nearest)

    def body(self, d):
        return Body((), (tuple(range(d)),))

    def even_moments(self, d):
        return np.full(d, self.total / (d + 1)), np.full(d, self.total**2 * d / ((d + 1) ** 2 * (d + 2)))

    def columns(self, d):
        whole = np.full(d, self.total)
        return Columns(Simplex(), 0 * whole, whole, squares=es.Ball(1, norm=1), factor=1, offset=0)

    def largest_square(self, centre, weights, steps):
        empty = [(w * c) ** 2 for w, c in zip(weights, centre, strict=True)]
        full = [(w * (steps - c)) ** 2 for w, c in zip(weights, centre, strict=True)]
        return sum(empty) + max(0, *(f - e for f, e in zip(full, empty, strict=True)))


class Octagon(Domain):
    """The L1 ball of radius 1, with what a domain has to say at least."""

    def units(self, d):
        return np.ones(d)

    def size(self, norm, d):
        return 1.0

    def reach(self, x):
        return np.abs(x).max(axis=0)

    def project(self, rows):
        return es.Ball(1, norm=1).project(rows)

    def integers(self, rows, steps):
        return es.Ball(1, norm=1).integers(rows, steps)


N, D = 60, 3
ALL = ("objective", "sequential", "output", "curvature", "descent")


def problem_of(loss, kind, **options):
    return es.Problem(loss, kind, ridge=0.2, n=N, d=D, **options)


def records(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0, 1, -1)


def replayed(plan):
    """Run a plan on records and on neighbours of them, and return the privacy loss between the two."""
    X, y = records(0)
    other, labels = X.copy(), y.copy()
    other[17], labels[17] = [-1e9, np.nan, 1e9], -y[17]

    def fit(data, account):
        return es.run(plan, es.Rows(plan.problem, *data), ledger=account, anyway=True)

    return replay(fit, (X, y), (other, labels))


@pytest.mark.parametrize(
    "kind", [es.Ball(1.0), es.Box(-1, 1), Simplex(2.0), Octagon()], ids=lambda kind: type(kind).__name__
)
@pytest.mark.parametrize("loss", [LogCosh(), Rooted(), es.Squared()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("budget", [es.Pure(5.0), es.Concentrated(2.0), es.Approximate(5.0, 1e-5)], ids=str)
def test_steps_cover_every_loss_over_every_domain(loss, kind, budget):
    plan = es.plan(problem_of(loss, kind, intercept=True), budget, es.nesterov, iterations=3)
    assert np.max(replayed(plan).losses) > 0


@pytest.mark.parametrize("kind", [es.Box(0, 1), Simplex(2.0)], ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("budget", [es.Pure(200.0), es.Approximate(60.0, 1e-5)], ids=str)
def test_every_method_covers_a_loss_that_has_its_ability(method, kind, budget):
    options = {"iterations": 3} if method == "descent" else {}
    plan = es.plan(problem_of(Rooted(), kind), budget, method, **options)
    assert np.max(replayed(plan).losses) > 0


@pytest.mark.parametrize("budget", [es.Pure(5.0), es.Approximate(5.0, 1e-5)], ids=str)
def test_sufficient_statistics_cover_a_domain_that_knows_its_longest_record(budget):
    plan = es.plan(problem_of(es.Squared(), Simplex(2.0), intercept=True), budget, "statistics")
    assert np.max(replayed(plan).losses) > 0


@pytest.mark.parametrize("release", ["final", "iterates"])
def test_the_choice_of_a_method_looks_at_abilities(release):
    bare = es.plan(problem_of(LogCosh(), es.Box(0, 1)), es.Pure(5.0), release=release, iterations=3)
    assert "nesterov" in bare.method
    able = es.plan(problem_of(Rooted(), es.Box(0, 1)), es.Pure(5.0), release="final")
    assert able.method == "objective perturbation"


@pytest.mark.parametrize(
    ("method", "loss", "kind", "missing"),
    [
        ("objective", LogCosh(), es.Box(0, 1), "got LogCosh, which has no saturation"),
        ("sequential", LogCosh(), es.Box(0, 1), "got LogCosh, which has no saturation"),
        ("output", LogCosh(), es.Box(0, 1), "a minimum is bounded for the library's own losses only, got LogCosh"),
        ("curvature", LogCosh(), es.Box(0, 1), r"got LogCosh\(c=0\.5\)\. Use a plan of steps"),
        ("statistics", Rooted(), es.Box(0, 1), "sufficient statistics are those of Squared, got Rooted"),
        ("curvature", Rooted(), Octagon(), "written for a Ball or a Box, .* which has no columns"),
        ("statistics", es.Squared(), Octagon(), "got Octagon, which has no largest_square"),
    ],
)
def test_what_a_method_does_not_cover_it_refuses_by_the_missing_ability(method, loss, kind, missing):
    with pytest.raises((ValueError, TypeError), match=missing):
        es.plan(problem_of(loss, kind), es.Pure(5.0), method)


def test_sparse_records_are_refused_by_a_domain_that_does_not_know_them():
    X, y = records(0)
    with pytest.raises(ValueError, match=r"Octagon does not cover sparse records.*pass dense records"):
        es.Rows(problem_of(LogCosh(), Octagon()), csr_array(X), y).gradient(np.zeros(D))


def test_a_loss_from_outside_cannot_say_that_it_is_proved():
    """A solver's minimum is read without anything that holds slopes: the library vouches for its own losses alone."""
    with pytest.raises(ValueError, match=r"proved=True is for losses whose proofs are the library's, got .*Trusted"):

        class Trusted(LogCosh, proved=True):
            pass


def test_what_a_class_says_of_itself_it_says_in_its_statement():
    """In its body it would be overwritten, and a kernel never be used."""
    with pytest.raises(TypeError, match=r"kernel and proved belong to the class statement: class Careless\("):

        class Careless(LogCosh):
            kernel = "logistic"


def test_what_is_derived_from_a_loss_or_a_domain_is_another_one():
    """It may compute anything: neither its name, nor its compiled formula, nor its proof is inherited."""

    class Shifted(es.Logistic):
        def derivative(self, margin, target):
            return super().derivative(margin + 1, target)

    class Shorter(es.Ball):
        pass

    assert (es.Logistic.kernel, es.Logistic.proved, Loss.kinds.name_of(es.Logistic())) == ("logistic", True, "Logistic")
    assert (Shifted.kernel, Shifted.proved, Loss.kinds.name_of(Shifted())) == (None, False, None)
    assert (Domain.kinds.name_of(es.Ball(1)), Domain.kinds.name_of(Shorter(1))) == ("Ball", None)
    with pytest.raises(ValueError, match="own losses only, got Shifted"):
        es.plan(problem_of(Shifted(), es.Ball(1)), es.Pure(1.0), "output")
    for kind in (Shifted(), Shorter(1)):
        loss, ball = (kind, es.Ball(1)) if isinstance(kind, Loss) else (es.Logistic(), kind)
        with pytest.raises(TypeError, match="cannot be written"):
            es.plan(problem_of(loss, ball), es.Pure(1.0), es.nesterov, iterations=2).to_json()


def test_names_belong_to_one_class():
    assert Loss.kinds.named("tests.Rooted") is Rooted
    assert Domain.kinds.named("tests.Simplex") is Simplex
    assert {Loss.kinds.named(name).__name__ for name in ("Logistic", "Softmax", "Squared")} == {
        "Logistic",
        "Softmax",
        "Squared",
    }
    with pytest.raises(ValueError, match=r"there is a loss of the name 'Logistic': epsteps\.problem\.losses\.Logistic"):

        class Other(es.Logistic, name="Logistic"):
            pass

    assert Loss.kinds.named("Logistic") is es.Logistic
    with pytest.raises(KeyError):
        Loss.kinds.named("Other")


@pytest.mark.parametrize("loss", [object(), "logistic"])
def test_what_is_no_loss_or_domain_is_refused(loss):
    with pytest.raises(TypeError, match=r"loss must be derived from epsteps\.problem\.losses\.Loss"):
        problem_of(loss, es.Ball(1))
    with pytest.raises(TypeError, match=r"domain must be derived from epsteps\.problem\.domain\.Domain"):
        problem_of(es.Logistic(), loss)


def test_constants_of_a_loss_are_checked():
    class Steep(LogCosh):
        curvature = math.inf

    with pytest.raises(ValueError, match=r"Steep\.curvature must be finite, got inf"):
        problem_of(Steep(), es.Ball(1))


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_a_domain_of_ones_own_keeps_its_promises(norm):
    """Records stay inside, in integers too; their sizes, reach and weighed squares are attained, and not passed."""
    kind, rng = Simplex(2.0), np.random.default_rng(1)
    rows = np.concatenate([rng.normal(size=(200, D)) * 3, 9 * np.eye(D), [[np.nan, np.inf, -np.inf]]])
    inside, x = kind.project(rows), rng.normal(size=D)
    assert np.all(inside >= 0)
    sizes = np.linalg.norm(inside, ord=norm, axis=1)
    assert sizes.max() == pytest.approx(kind.size(norm, D))
    assert sizes.max() <= kind.size(norm, D)
    assert np.abs(inside @ x).max() == pytest.approx(kind.reach(x))
    whole = kind.integers(rows, 2**20).astype(int)
    assert whole.sum(axis=1).max() <= 2**20
    centre, weights = (5, 2**18, 2**19), (3, 1, 7)
    squares = ((np.array(weights) * (whole - np.array(centre))) ** 2).sum(axis=1)
    assert (
        0.999 * kind.largest_square(centre, weights, 2**20)
        <= squares.max()
        <= kind.largest_square(centre, weights, 2**20)
    )
    assert kind.outside(rows[:5]).all()
    assert not kind.outside(inside * 0.5).any()
