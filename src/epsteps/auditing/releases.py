"""Audits of releases that add noise to integers, each on two datasets that differ as much as the domain allows.

A release is made from the request that a plan makes for it. Privacy depends neither on n, which is public, nor on the
points, costs and weights that a run derives from what it has released. So each release is made on as few records as are
replaced, at a point and with weights where they differ most.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, singledispatch
from itertools import islice

import numpy as np

from epsteps.auditing import attacks as intervals
from epsteps.auditing.attacks import Additive, Attack, Choices, Exponentials, Gaussians, Law, Traces
from epsteps.auditing.minima import Crowd, crowds_of
from epsteps.auditing.report import Audit, StepBound
from epsteps.auditing.steps import gaussian_total
from epsteps.auditing.worst_case import Stated, noise_norm, records_of, widest_matrices, widest_vectors, worst_pair
from epsteps.budgets import Cost
from epsteps.budgets.mechanisms import Mechanism
from epsteps.data import encoding
from epsteps.data.chunks import Chunk
from epsteps.data.rows import Rows
from epsteps.methods import OutputPlan
from epsteps.methods.bought import CELLS, Cover, Quantile, Spread
from epsteps.methods.clipped.requests import ClippedGradient
from epsteps.methods.curvature import MATRIX_STEPS
from epsteps.methods.curvature.sums import CONSTANT_STEPS, ColumnMeans, SecondMoment
from epsteps.methods.minimum import Minimum
from epsteps.methods.places import PlaceQuantile
from epsteps.methods.statistics import SecondMoments
from epsteps.methods.together import ColumnEnds
from epsteps.noise import Source
from epsteps.noise.samplers import checked_shape
from epsteps.plans.plan import Example, Plan
from epsteps.plans.requests import Gradient, Request
from epsteps.problem import grid
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import Shape
from epsteps.running.run import Reader

# Runs on each dataset, of a release alone: of pure noise and of Gaussian; and where several are audited.
_RUNS, _RUNS_OF_EACH = (1000, 4000), 1000
_MOST_RECORDS = 2**14
_FULL = Sampling(1, 1)
# What the records that are replaced cost together where a radius is bought, and how many records there are at most.
_RADIUS_DISTANCE, _RADIUS_RECORDS = 2.5, 2**16
# Crowds that are tried: so many, of pairs that are so many places apart in the order of their shares.
_CROWDS, _SPREAD = 24, 8


@dataclass(frozen=True, eq=False)
class Part:
    """One release on two datasets: ``draw(which, source)`` makes it, less the first one's centre, as its law has it.

    ``claimed`` is what one record is said to cost, in scales; ``share`` how much of it these records attain.
    """

    law: Law
    claimed: float
    records: int
    share: float
    away: np.ndarray
    draw: Callable[[int, Source], np.ndarray]
    assumes: str = ""


def examples_of(plan: Plan) -> Sequence[Example]:
    """Return the requests that are audited: those which the plan names, or else those that answers of 0 lead to."""
    if known := plan.examples():
        return known
    examples, conversation, answer = [], plan.conversation(), None
    while True:
        try:
            request = conversation.send(answer)  # pyright: ignore[reportArgumentType]
        except StopIteration:
            return examples
        examples.append(Example(request, request.costs[0]))
        answer = _answer(request)


@singledispatch
def _answer(request: Request) -> np.ndarray:
    """Return 0 in the form in which a request is answered, which two made-up records tell."""
    features, targets = records_of(request.problem)
    few = replace(request.problem, n=2)
    answer = _restated(request, few).publish(_read(request, features, targets, 0, 2), request.draw(Source(0)))
    return np.zeros_like(answer)


@_answer.register
def _(request: Gradient) -> np.ndarray:
    return np.zeros_like(request.x)


@_answer.register
def _(request: Minimum) -> np.ndarray:
    return np.zeros(request.problem.dimension)


@_answer.register
def _(request: Quantile) -> np.ndarray:
    """Return the largest size: none is 0."""
    return request.ends[:1]


def audit_releases(
    plan: Plan,
    examples: Sequence[Example],
    repetitions: int | None,
    confidence: float,
    seed: int,
    on_step: Callable[[int], None],
) -> Audit:
    """Bound from below what each release costs, and all of them together.

    Each is made many times on two datasets and told apart by the likelihood ratio of its noise, or for a Wishart matrix
    by a trace whose law is known. How often that errs bounds the distance of the datasets in scales of the noise.
    """
    parts = [part_of(example.request, example.cost, plan) for example in examples]
    kinds = {part.law.kind for part in parts}
    if len(kinds) != 1:
        raise ValueError(
            "releases that cost different currencies are not audited together. Use epsteps.testing.replay."
        )
    (kind,) = kinds
    runs = repetitions or (kind.either(*_RUNS) if len(parts) == 1 else _RUNS_OF_EACH)
    steps, independence = [], 1.0
    for number, part in enumerate(parts):
        samples = [_sample(part, which, runs, Source(2 * seed + which).at_step(number)) for which in (0, 1)]
        errors = part.law.confused(samples[0], samples[1], part.away)
        bound = part.law.nearest(errors, runs, (1 - confidence) / len(parts)) / part.records
        wrong = sum(errors)
        steps.append(StepBound(part.claimed, bound, part.records, 2 * runs - wrong, wrong, 2 * runs))
        if part.law.independent:
            independence = min(independence, len(parts) * intervals.independence(samples[0]))
        on_step(1)
    bounds, delta = [step.lower_bound for step in steps], plan.budget.delta
    return Audit(
        plan=plan,
        unit=kind.unit if kind.is_pure or not delta else f"epsilon at delta = {delta:g}",
        step_unit=kind.ratio_unit,
        claimed=math.fsum(cost.amount for cost in plan.allowance) if kind.is_pure else plan.spending().amount,
        lower_bound=math.fsum(bounds) if kind.is_pure else gaussian_total(math.hypot(*bounds), delta),
        steps=tuple(steps),
        share=min(part.share for part in parts),
        independence=min(1.0, independence),
        repetitions=runs,
        confidence=confidence,
        seed=seed,
        assumptions=_assumptions(kind, parts, examples),
    )


def _sample(part: Part, which: int, runs: int, source: Source) -> np.ndarray:
    """Return the release on one dataset, one run in each column."""
    return np.stack([part.draw(which, source) for _ in range(runs)], axis=1)


def _assumptions(kind: type[Cost], parts: Sequence[Part], examples: Sequence[Example]) -> tuple[str, ...]:
    assumptions = [
        "runs are independent",
        "group privacy: k records cost k times what one does",
        kind.either(
            "noise is of its law, so that epsilon follows from how well outputs are told apart",
            "noise is Gaussian, so that rho and (epsilon, delta) follow from the mu that is bounded",
        ),
        *dict.fromkeys(each.assumes for each in (*parts, *examples) if each.assumes),
    ]
    if len(examples) > 1:
        assumptions.append("the run makes no other releases, which epsteps.testing.replay checks")
    return tuple(assumptions)


@singledispatch
def part_of(request: Request, claimed: Cost, plan: Plan) -> Part:
    """Return what is audited of a request: here, of one that adds a draw of noise to what it reads of few records."""
    mechanism, scale, shape = _noise_of(request)
    features, targets = records_of(request.problem)
    readings = [_read(request, features, targets, place, 2) for place in range(len(features))]
    chosen, _ = widest_vectors(
        np.array([reading.ravel().astype(float) for reading in readings]), partial(_gauge, shape)
    )
    sums = partial(_chosen_sums, request, features, targets, chosen)
    if len(shape.array) > 1:
        law = Traces(len(readings[0]) + 1) if mechanism.kind.is_pure else Gaussians()
        return _matrix(request, law, claimed.ratio, scale, sums)
    return _vector(request, Attack(mechanism, shape, np.ones(shape.d), _change(sums)), claimed.ratio, scale, sums)


def _gauge(shape: Shape, columns: np.ndarray) -> np.ndarray:
    if len(shape.array) == 1:
        return shape.gauge(columns)
    return np.array([float(shape.gauge(column.reshape(shape.array))) for column in columns.T])


class _Noted(Source):
    """A source that notes the noise which is drawn from it."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.laws: list[tuple[Mechanism, float, Shape]] = []

    def integers(
        self, mechanism: Mechanism, scale: np.ndarray | float, shape: tuple[int, ...], body: Shape | None = None
    ) -> np.ndarray:
        """Note the law, the scale and the shape, and draw."""
        self.laws.append((mechanism, float(np.max(scale)), checked_shape(mechanism, shape, body)))
        return super().integers(mechanism, scale, shape, body)


def _noise_of(request: Request) -> tuple[Mechanism, float, Shape]:
    """Return the law, the scale and the shape of the one draw of noise that a request is protected by, or raise."""
    source = _Noted()
    drawn = request.draw(source)
    if len(source.laws) != 1 or len(drawn) != 1:
        raise TypeError(
            f"{type(request).__name__} is not protected by one draw of integer noise: it cannot be audited. "
            "Check it by epsteps.testing.replay."
        )
    return source.laws[0]


def _read(request: Request, features: np.ndarray, targets: np.ndarray, place: int, records: int) -> np.ndarray:
    """Return what a request reads of so many copies of one record: UNPROTECTED, but nobody's."""
    few = replace(request.problem, n=records)
    rows = Rows(few, features[[place] * records], targets[[place] * records], engine="numpy")
    return _restated(request, few).read(Reader(rows), {})


def _restated(request: Request, problem: Problem) -> Request:
    """Return the same request for so few records, if it has a problem of its own."""
    own = any(field.name == "problem" for field in fields(request))  # pyright: ignore[reportArgumentType]
    return replace(request, problem=problem) if own else request  # pyright: ignore[reportArgumentType]


def _chosen_sums(
    request: Request, features: np.ndarray, targets: np.ndarray, chosen: Sequence[int], which: int, records: int
) -> np.ndarray:
    return _read(request, features, targets, chosen[which], records)


def _change(sums: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Return by how much one record moves a release."""
    return (sums(1, 2) - sums(0, 2)).astype(float) / 2


@part_of.register
def _(request: ColumnMeans, claimed: Cost, plan: Plan) -> Part:
    """Return a mean of the columns, or of their squares."""
    statistic = request.statistic
    features, targets = records_of(request.problem)
    encoded = request.encode(encoding.integers(request.problem, features).astype(float))
    chosen, _ = widest_vectors(encoded, partial(noise_norm, statistic.mechanism, statistic.problem))
    attack = Attack.on(statistic.mechanism, statistic.problem, encoded[chosen[1]] - encoded[chosen[0]])
    sums = partial(_chosen_sums, request, features, targets, chosen)
    return _vector(request, attack, claimed.ratio, statistic.scale * grid.STEPS, sums)


def _vector(
    request: Request, law: Attack, claimed: float, scale: float, sums: Callable[[int, int], np.ndarray]
) -> Part:
    """Return the release of a vector of integers, ``sums(which, records)``, with noise of this scale."""
    return _additive(request, law, claimed, scale, sums, float(law.shape.gauge(law.change / law.units)))


@part_of.register
def _(request: SecondMoments, claimed: Cost, plan: Plan) -> Part:
    """Return second moments of the whole records: two of them nearly at right angles."""
    statistics = request.plan
    features, targets = records_of(statistics.problem)
    integers = encoding.integers(statistics.problem, features)[:, : statistics.problem.d]
    vectors = request.encode(integers, targets) * np.array(statistics.weights, dtype=float)
    law = Traces(len(statistics.weights) + 1) if claimed.is_pure else Gaussians()
    sums = partial(_chosen_sums, request, features, targets, widest_matrices(vectors))
    return _matrix(request, law, claimed.ratio, statistics.scale / statistics.step, sums)


@part_of.register
def _(request: SecondMoment, claimed: Cost, plan: Plan) -> Part:
    """Return the second moment of whitened records, which may be no longer than the longest of those that are tried.

    So these attain all that a record may.
    """
    features, targets = records_of(request.problem)
    whitening, cost = request.whitening, claimed.amount
    lengths = np.sum(((features[:, whitening.columns] - whitening.mean) * whitening.weights) ** 2, axis=1)
    request = replace(request, whitening=replace(whitening, length=min(whitening.length, float(lengths.max()))))
    others = request.encode(encoding.integers(request.problem, features).astype(float))
    vectors = np.column_stack([others, np.full(len(others), CONSTANT_STEPS)])
    sums = partial(_chosen_sums, request, features, targets, widest_matrices(vectors))
    law = Traces(request.k + 1) if claimed.is_pure else Gaussians()
    scale = MATRIX_STEPS**2 / (cost if claimed.is_pure else math.sqrt(cost))
    return _matrix(request, law, claimed.ratio, scale, sums)


def _matrix(
    request: Request, law: Traces | Gaussians, claimed: float, scale: float, sums: Callable[[int, int], np.ndarray]
) -> Part:
    """Return the release of a symmetric matrix of integers, likewise."""
    one, pure = _change(sums), law.kind.is_pure
    size = float(np.linalg.norm(one, ord="nuc") / 2 if pure else np.linalg.norm(one))
    return _additive(request, law, claimed, scale, sums, size, partial(_trace, _sign(one)) if pure else _entries)


def _additive(
    request: Request,
    law: Additive,
    claimed: float,
    scale: float,
    sums: Callable[[int, int], np.ndarray],
    size: float,
    told: Callable[[np.ndarray], np.ndarray] = lambda integers: integers,
) -> Part:
    """Return the release of integers that one record moves by this size; ``told`` is what the law is of."""
    records = _group(law, size / scale)
    readings = [sums(which, records) for which in (0, 1)]

    def draw(which: int, source: Source) -> np.ndarray:
        return told((readings[which] - readings[0] + request.draw(source)["noise"]).astype(float)) / scale

    away = told((readings[1] - readings[0]).astype(float)) / scale
    return Part(law, claimed, records, size / scale / claimed, away, draw)


def _trace(sign: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return np.atleast_1d(np.sum(sign * matrix) / 2)


def _entries(matrix: np.ndarray) -> np.ndarray:
    """Return the entries whose noise is independent, in scales of the diagonal's."""
    rows, columns = np.triu_indices(len(matrix))
    return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))


def _sign(change: np.ndarray) -> np.ndarray:
    """Return the sign of a difference of two outer products: its largest eigenvector's, less that of its smallest."""
    _, basis = np.linalg.eigh(change)
    return np.outer(basis[:, -1], basis[:, -1]) - np.outer(basis[:, 0], basis[:, 0])


@part_of.register
def _(request: Gradient, claimed: Cost, plan: Plan) -> Part:
    """Return a gradient of this cost, at the point where two records differ most in it."""
    problem, noise, cost = request.problem, request.mechanism, claimed.amount
    if not request.sampling.is_full or request.x.size != problem.dimension:
        raise TypeError("a gradient of a sample, or at several points, is not audited. Use epsteps.testing.replay.")
    pair = worst_pair(Stated(problem, noise, "state"))
    sensitivity = float(problem.sensitivity_at(pair.x, noise.norm))
    law = Attack.on(noise, problem, pair.difference)
    scale = float(noise.scales(sensitivity, np.array(cost), _FULL)) * law.units
    size = float(noise_norm(noise, problem, pair.difference)) / float(np.max(scale / law.units))
    records = _group(law, size)
    few = replace(problem, n=records)
    rows = [
        Rows(few, pair.features[[which] * records], pair.targets[[which] * records], engine="numpy") for which in (0, 1)
    ]

    def draw(which: int, source: Source) -> np.ndarray:
        asked = type(request).at(few, noise, pair.x, cost)
        drawn = asked.draw(source)
        gradient = asked.publish(asked.read(Reader(rows[which]), drawn), drawn) - problem.ridge * pair.x
        return records * (gradient - pair.gradients[:, 0]) / scale

    return Part(law, claimed.ratio, records, size / claimed.ratio, records * pair.difference / scale, draw)


@part_of.register
def _(request: ClippedGradient, claimed: Cost, plan: Plan) -> Part:
    """Return a clipped gradient at its point, in its noise's norm: of those tried, the two records farthest apart."""
    release, shape = request._release, request._shape
    scale = release.scale[:, 0]
    features, targets = records_of(request.problem)

    def reading(place: int, records: int) -> np.ndarray:
        return release.rounded(_read(request, features, targets, place, records))[:, 0] / scale

    vectors = np.array([reading(place, 2) / 2 for place in range(len(features))])
    chosen, size = widest_vectors(vectors, shape.gauge)
    law = Attack(request.mechanism, shape, np.ones(shape.d), vectors[chosen[1]] - vectors[chosen[0]])
    records = _group(law, size)
    readings = [reading(place, records) for place in chosen]

    def draw(which: int, source: Source) -> np.ndarray:
        return readings[which] - readings[0] + request.draw(source)["noise"][:, 0] / scale

    return Part(law, claimed.ratio, records, size / claimed.ratio, readings[1] - readings[0], draw)


@part_of.register
def _(request: Minimum, claimed: Cost, plan: Plan) -> Part:
    """Return the minimum with noise: the crowd, of those tried, in which the pair moves it most."""
    tried = islice(crowds_of(plan, _SPREAD), _CROWDS)  # pyright: ignore[reportArgumentType]
    crowds = ((crowd, _minima(crowd)) for crowd in tried)
    crowd, minima = max(crowds, key=_moved_most)
    asked, scale = crowd.audited.minimum, request.goal.scale
    still = {"noise": np.zeros(len(minima[0]), dtype=int)}
    centre, other = (asked.publish(minimum, still) for minimum in minima)
    moved = other - centre

    def draw(which: int, source: Source) -> np.ndarray:
        return (asked.publish(minima[which], asked.draw(source)) - centre) / scale

    share = float(np.linalg.norm(moved)) / (crowd.replaced * claimed.ratio * scale)
    law = Attack.on(request.noise, plan.problem, moved)
    assumes = "privacy depends on n through n times the ridge only"
    return Part(law, claimed.ratio, crowd.replaced, share, moved / scale, draw, assumes)


@part_of.register
def _(request: Quantile, claimed: Cost, plan: Plan) -> Part:
    """Return the choice of a cell: of many records some move from the first cell to the last.

    The others are such that the first cell then loses what all the later ones win.
    """
    features, targets, cells = _of_many_sizes(request)
    rare = min(request.share, 1 - request.share)
    moved = int(np.clip(round(_RADIUS_DISTANCE / claimed.amount), 1, rare * _RADIUS_RECORDS))
    few = replace(request.problem, n=math.ceil(moved / rare) + 2)
    asked = request.among(few)
    others = _beside(asked, cells, moved)

    def read(of_moved: np.intp) -> np.ndarray:
        rows = [of_moved] * moved + others
        return asked.read(Reader(Rows(few, features[rows], targets[rows], engine="numpy")), {})

    readings = read(np.argmin(cells)), read(np.argmax(cells))

    def draw(which: int, source: Source) -> np.ndarray:
        size = asked.publish(readings[which], asked.draw(source))
        return np.flatnonzero(asked.ends == size)

    scale = asked.apart / claimed.amount
    law = Choices(readings, scale)
    return Part(law, claimed.ratio, moved, law.log_ratio(scale) / (moved * claimed.amount), np.zeros(1), draw)


@singledispatch
def _beside(asked: Quantile, cells: np.ndarray, moved: int) -> list[np.intp]:
    """Return which records stay where they are, by their cells, while others move: the quantile is between them.

    As many as move lie in the second cell, and nearly all others in the last one.
    """
    first, last = np.argmin(cells), np.argmax(cells)
    second = np.argmin(np.where(cells > cells[first], cells, cells.max()))
    others = [second] * moved + [last] * (asked.target - moved)
    return others + [first] * (asked.problem.n - moved - len(others))


@_beside.register
def _(asked: Cover, cells: np.ndarray, moved: int) -> list[np.intp]:
    """Return so many in the first cell that its score is that of the last when half of the others have moved."""
    first, last = np.argmin(cells), np.argmax(cells)
    liked = int(asked.liked[cells[last]] - asked.liked[cells[first]])
    beyond = asked.problem.n - asked.target + liked - moved // 2
    return [first] * beyond + [last] * (asked.problem.n - moved - beyond)


@_answer.register
def _(request: ColumnEnds) -> np.ndarray:
    """Return the first cells."""
    return np.zeros(len(request.columns))


@part_of.register
def _(request: ColumnEnds, claimed: Cost, plan: Plan) -> Part:
    """Return the choice of one of the ends, alone: of many records some move from the first cell to the last.

    As many others lie in the second cell, and the rest such that the quantile is between: the first cell loses what all
    the others win.
    """
    share, last = request.shares[0], request.places[0] - 1
    rare = min(share, 1 - share)
    moved = int(np.clip(round(_RADIUS_DISTANCE / claimed.amount), 1, rare * _RADIUS_RECORDS))
    few = replace(request.problem, n=math.ceil(moved / rare) + 2, d=1)
    alone = {"columns": (0,), "places": request.places[:1], "shares": (share,), "labels": request.labels[:1]}
    asked = replace(request, problem=few, **alone)
    target = asked.target_of(0, few.n)
    others = [1] * moved + [last] * (target - moved)
    others += [0] * (few.n - moved - len(others))

    def read(of_moved: int) -> np.ndarray:
        cells = np.array([of_moved] * moved + others, dtype=float)[:, None] / asked.places[0]
        return asked.read(Reader(Rows(few, cells, np.zeros(few.n), engine="numpy")), {})

    readings = read(0), read(last)

    def draw(which: int, source: Source) -> np.ndarray:
        return asked.publish(readings[which], asked.draw(source))

    scale = 2 / claimed.amount
    law = Exponentials((-readings[0], -readings[1]), scale)
    assumes = "of the ends that are chosen together one is chosen alone, for the same price"
    return Part(law, claimed.ratio, moved, law.log_ratio(scale) / (moved * claimed.amount), np.zeros(1), draw, assumes)


@singledispatch
def _of_many_sizes(request: Quantile) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return records of the domain, their targets and their cells: at its ends, and one of them ever shorter."""
    features, targets = records_of(request.problem)
    longest = features[np.argmax(np.abs(features).sum(axis=1))]
    features = np.concatenate([features, np.multiply.outer(2.0 ** (-np.arange(CELLS + 8) / 8), longest), [0 * longest]])
    targets = np.concatenate([targets, np.full(len(features) - len(targets), targets[0])])
    features = request.problem.domain.project(features)
    chunk = Chunk(encoding.integers(request.problem, features), np.zeros(len(features)))
    return features, targets, request.encode_places(chunk)


@_of_many_sizes.register
def _(request: Spread) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one record with ever smaller targets: its residuals are of as many sizes as a point leaves."""
    largest = request.problem.loss.targets.largest
    targets = np.append(largest * 2.0 ** (-np.arange(CELLS + 8) / 4), [0.0, -largest])
    features = request.problem.domain.project(np.zeros((len(targets), request.problem.d)))
    chunk = Chunk(encoding.integers(request.problem, features), targets)
    return features, targets, request.encode_places(chunk)


@_of_many_sizes.register
def _(request: PlaceQuantile) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a record in every cell of the column's grid, and in no cell of others."""
    features = request.examples()
    integers = encoding.integers(request.problem, request.problem.domain.project(features)).astype(float)
    return features, np.zeros(len(features)), request.encode_cells(integers)


def _minima(crowd: Crowd[OutputPlan]) -> list[np.ndarray]:
    return [crowd.audited.minimum.read(Reader(crowd.rows(which)), {}) for which in (0, 1)]


def _moved_most(tried: tuple[Crowd[OutputPlan], list[np.ndarray]]) -> float:
    crowd, (first, second) = tried
    return float(np.linalg.norm((second - first).astype(float))) * crowd.audited.step


def _group(law: Additive, cost: float) -> int:
    """Return how many records are replaced: as many as are told apart best, and the two that a problem has at least."""
    return int(np.clip(round(law.distance / cost), 2, _MOST_RECORDS))
