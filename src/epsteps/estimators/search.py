"""Tuning that is paid for: the best of a random number of private trials over a declared grid."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if

from epsteps.budgets import Budget, Pure, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.budgets.selection import SHARES, Selection
from epsteps.data.rows import Rows
from epsteps.estimators import _scikit
from epsteps.estimators.base import UNPROTECTED, PrivateLinearModel
from epsteps.estimators.callers import Circumstances, circumstances
from epsteps.ledger.books import Account
from epsteps.noise import Source
from epsteps.plans.plan import Plan
from epsteps.problem import validate
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import FULL, Sampling
from epsteps.running.taps import open_source
from epsteps.tables.model import certificate

# By default so many trials for each candidate, on average: each is tried with a chance of 5/6 or more.
_TRIALS_EACH = 5
# The search itself decides these, or they say what the score means.
_NOT_TUNED = (
    "epsilon",
    "delta",
    "ledger",
    "random_state",
    "schema",
    "classes",
    "target_bounds",
    "intervals",
    "robust",
    "per_person",
)


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """What a search will do and cost, from public numbers; ``print`` it for the data holder.

    A trial is one fit to ``fitted`` records and one noisy score of ``held_out`` others. A record is in one part only,
    so that the trial costs the larger of both, not their sum. Trials are pure, or of Gaussian noise and paid in rho:
    ``share`` is what each may cost.
    """

    budget: Budget
    share: Budget
    selection: Selection
    candidates: tuple[dict[str, Any], ...]
    plans: tuple[Plan, ...]
    held_out: int
    unit: int
    scale: float

    @property
    def fitted(self) -> int:
        """Number of records that each trial is fitted to."""
        return self.plans[0].problem.n

    @property
    def expected(self) -> float:
        """What the candidates' models are expected to be off by, in the mean: infinite where nothing is known."""
        errors = [plan.utility.expected for plan in self.plans]
        return sum(math.inf if error is None else error for error in errors) / len(errors)

    @property
    def noise(self) -> Mechanism:
        """The law of the noise on the score."""
        return mechanisms.named(self.share.kinds[0].either("laplace", "gaussian"))

    @property
    def trial(self) -> Budget:
        """What one trial costs, computed from the noise that will be drawn."""
        scored = score_cost(self.noise, self.unit, self.scale)
        return type(self.share)(max(scored, *(plan.spending().amount for plan in self.plans)))  # pyright: ignore

    @property
    def spent(self) -> Budget:
        """What the search costs."""
        return self.selection.cost(self.trial, self.budget)

    def __str__(self) -> str:
        count, eta = len(self.candidates), self.selection.eta
        law = {1.0: "geometric", 0.0: "logarithmic"}.get(eta, f"negative binomial, eta = {eta:g}")
        lines = {
            "Search": f"best of a random number of trials, {self.selection.trials} on average ({law}, kept secret)",
            "grid": f"{count} candidates, one at random in each trial",
            "chance that a candidate is never tried": f"{self.selection.missed(count):.3g}",
            "a trial": f"fit to {self.fitted} records, noisy score of {self.held_out} others",
            "noise of the score": f"{self.scale / self.unit / self.held_out:.3g} ({self.noise.name} scale)",
            "cost of a trial": str(self.trial),
            "cost of the search": str(self.spent),
            "published": "best_params_, best_estimator_ and best_score_: nothing of the other trials",
        }
        width = max(map(len, lines))
        return "\n".join(f"{name:<{width}}  {line}" for name, line in lines.items())


class Trial(NamedTuple):
    """One outcome: a noisy score, in whole units, and what it is the score of."""

    score: int
    outcome: Any


def _has(name: str) -> Callable[[Any], bool]:
    return lambda search: hasattr(search.estimator, name)


class PrivateSearch(MetaEstimatorMixin, BaseEstimator):
    """Choice of an estimator's parameters with differential privacy, paid for by the same budget.

    A random number of trials is made. Each takes a candidate from the grid at random, fits it to a random part of the
    records, the same part in all trials, and scores it on the others with noise. The best trial is published: its
    parameters, its model and its noisy score. Others leave no trace, and nothing is fitted again. The records are
    prepared once for each way in which candidates declare them, and are kept for all trials.

    Formal guarantee: with ``random_state=None`` all attributes after ``fit`` are together private as the budget says
    when one record is replaced. Given the split, a record is in the fit of a trial or in its score and never in both,
    each is private at a trial's price, and the split does not depend on the records. The best of a random number of
    such trials, its score included, costs more, by the law of that number (Liu, Talwar 2019; Papernot, Steinke 2022;
    ``epsteps.budgets.selection.Selection``): of pure trials, 3 times as much for a geometric number; of trials with
    Gaussian noise what the theorem says in Rényi terms. That number must stay secret. It is published nowhere, but
    whoever can time the fit learns about it: let nobody but the data holder do so.

    Under a budget of (epsilon, delta) or of rho, trials are pure or of Gaussian noise, whichever leads to models that
    are expected to be better, by public numbers. Plain ``GridSearchCV`` over private estimators costs epsilon for every
    fit, and its scores are not private at all.

    Parameters
    ----------
    estimator : estimator of this package
        With all that is not tuned. Its epsilon is not used: each trial has its share of the search's.
    param_grid : dict of lists, or list of such dicts
        Candidates, as in scikit-learn; declared without looking at the data.
    epsilon : float
        The budget of the whole search, if it is pure.
    budget : Budget, optional
        In the place of epsilon: ``Pure``, ``Approximate`` or ``Concentrated``.
    eta : float
        The law of the number of trials: 1 is geometric; 0 is logarithmic, whose choice costs less (2 pure trials
        instead of 3) but which is often a single trial and sometimes very many; or between, in 16ths.
    trials : int, optional
        Mean number of trials; five for each candidate by default. It costs time, not privacy.
    holdout : float
        The part of the records that scores, between 0 and 1.
    ledger : account, optional
        ``Ledger(...).account(name)``: charged durably before anything is drawn.
    random_state : int, optional
        Makes the search repeatable, and NOT private: for experiments.

    Attributes
    ----------
    best_params_ : dict
        The chosen candidate.
    best_estimator_ : estimator
        Its model, with the certificate of the search: it was chosen, and that is part of its price.
    best_score_ : float
        Its noisy score on the records held out: accuracy; of regressors, 1 minus the mean squared error in units of the
        targets' range, predictions clipped to it. Being the best of several, it is somewhat too good.
    plan_ : SearchPlan
        What was decided before the data was read.
    certificate_ : dict
        What is guaranteed, and what was spent.

    >>> import numpy as np
    >>> from epsteps.estimators import PrivateLogisticRegression
    >>> from epsteps.estimators.search import PrivateSearch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (20_000, 3))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1))
    >>> search = PrivateSearch(model, {"ridge": [1e-3, 1.0]}, epsilon=1.0, trials=4).fit(X, y)
    >>> bool(search.score(X, y) > 0.7), search.certificate_["spent"] <= 1.0
    (True, True)
    """

    def __init__(
        self,
        estimator: PrivateLinearModel,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        epsilon: float = 1.0,
        budget: Budget | None = None,
        eta: float = 1.0,
        trials: int | None = None,
        holdout: float = 0.2,
        ledger: Account | None = None,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.budget = budget
        self.eta = eta
        self.trials = trials
        self.holdout = holdout
        self.ledger = ledger
        self.random_state = random_state

    def plan(self, n: int, d: int | None = None) -> SearchPlan:
        """Return what a search on n records with d columns would do: for the data holder to read before any data is."""
        budget = Pure(self.epsilon) if self.budget is None else self.budget
        candidates = _candidates(self.estimator, self.param_grid)
        selection = Selection(_TRIALS_EACH * len(candidates) if self.trials is None else self.trials, self.eta)
        decide = partial(self._plan_with, budget, selection, candidates, n, d)
        pure = selection.trial(budget)
        if all(kind.is_pure for kind in budget.kinds):
            return decide(pure)
        found, refused = [], []
        for share in (pure, selection.trial(budget, gaussian=True)):
            try:
                found.append(decide(share))
            except (ValueError, TypeError) as error:  # such as a mechanism that trials of this kind do not have
                refused.append(error)
        if not found:
            raise refused[0]
        return min(found, key=lambda plan: plan.expected)

    def _plan_with(
        self, budget: Budget, selection: Selection, candidates: Any, n: int, d: int | None, share: Budget
    ) -> SearchPlan:
        """Return the search whose trials have this share."""
        held_out, unit = _held_out(self.holdout, n), self.estimator._most
        models = models_of(self.estimator, candidates, share)
        plans = tuple(model._planned(n - held_out, d, share) for model in models)
        scale = outward_scale(unit, share.amount, mechanisms.named(share.kinds[0].either("laplace", "gaussian")))
        return SearchPlan(budget, share, selection, candidates, plans, held_out, unit, scale)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Search privately on rows X with targets y; of an estimator with a schema, on a table that has its target."""
        around = circumstances(type(self).__name__, self.ledger, seeded=self.random_state is not None)
        _candidates(self.estimator, self.param_grid)
        X, y = _scikit.records(self, X, y)
        plan = self.plan(*X.shape)
        models = models_of(self.estimator, plan.candidates, plan.share)
        _require_structure(models, X, y)
        source = open_source(
            None if self.random_state is None else validate.integer("random_state", self.random_state, 0)
        )
        if self.random_state is None and not self.estimator.anyway:
            for each in plan.plans:
                each.utility.require_hope()
        # Of a private search nothing may depend on which candidates its trials were.
        models = [model.set_params(anyway=True) for model in models]
        if around.account is not None:
            around.account.charge(plan.spent, note=f"best of {len(models)} candidates, random number of trials")
        is_held = np.zeros(len(y), dtype=bool)
        is_held[source.subset(Sampling(len(y), plan.held_out))] = True
        fitting, scoring = ((X[part], y[part]) for part in (np.flatnonzero(~is_held), np.flatnonzero(is_held)))
        best = best_of(plan.selection, source, partial(make_trial, plan, models, source, Shared(*fitting), scoring))
        self._publish(plan, best, source.seeded, around)
        return self

    def _publish(self, plan: SearchPlan, best: Trial, seeded: bool, around: Circumstances) -> None:
        place, model = best.outcome
        self.plan_, self.best_params_, self.best_estimator_ = plan, dict(plan.candidates[place]), model
        self.best_score_ = best.score / (plan.unit * plan.held_out)
        self.certificate_ = self._certificate(plan, seeded, around)
        model.certificate_ = dict(self.certificate_)
        if (names := getattr(self, "feature_names_in_", None)) is not None:
            model.feature_names_in_ = names

    def _certificate(self, plan: SearchPlan, seeded: bool, around: Circumstances) -> dict[str, Any]:
        method = (
            f"best of {len(plan.plans)} candidates in a random number of trials, {plan.selection.trials} on average"
        )
        unprotected, when = UNPROTECTED if seeded else None, ", if the number of trials is secret"
        return certificate(plan.budget, plan.spent.amount, method, unprotected=unprotected, when=when) | {
            "trial": plan.trial.amount,
            "published": "best_params_, best_estimator_, best_score_",
            "records": ", ".join(sorted({str(each.problem.domain) for each in plan.plans})),
            "ledger": None if self.ledger is None else repr(self.ledger),
            "without_ledger": around.without_ledger,
            "assumptions": list(around.assumptions),
        }

    @property
    def classes_(self) -> np.ndarray:
        """Labels of the chosen classifier, in order."""
        _scikit.require_fitted(self)
        return self.best_estimator_.classes_

    def predict(self, X: Any) -> np.ndarray:
        """Return the chosen model's predictions."""
        _scikit.require_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return each row's probability of each class."""
        _scikit.require_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the chosen model's margins."""
        _scikit.require_fitted(self)
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the chosen model's accuracy or R², without privacy for these records."""
        _scikit.require_fitted(self)
        return self.best_estimator_.score(X, y)

    def evaluated(self, data: Any) -> Any:
        """Return what ``epsteps.evaluate`` needs: that of the chosen model."""
        _scikit.require_fitted(self)
        return self.best_estimator_.evaluated(data)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import get_tags  # scikit-learn 1.6

        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "input_tags", "target_tags"):
            setattr(tags, name, deepcopy(getattr(own, name)))
        return tags

    @property
    def _estimator_type(self) -> str | None:
        """Return the same for scikit-learn before 1.6."""
        return getattr(self.estimator, "_estimator_type", None)


def _candidates(estimator: Any, grid: Any) -> tuple[dict[str, Any], ...]:
    """Return the grid's candidates, or raise if it or the estimator cannot be searched."""
    if not isinstance(estimator, PrivateLinearModel):
        raise TypeError(
            f"estimator must be a private estimator of this package, got {estimator!r}. Encode tables before the "
            "search: a Schema learns nothing from them."
        )
    if estimator.delta != 0:
        raise ValueError(
            f"the search has the budget, got an estimator with delta={estimator.delta!r}. Set its delta=0, and give "
            "budget=epsteps.Approximate(epsilon, delta) to the search."
        )
    for name in ("ledger", "random_state"):
        if getattr(estimator, name) is not None:
            raise ValueError(f"the estimator has {name}={getattr(estimator, name)!r}: give it to the search instead.")
    if estimator.intervals or estimator.robust:
        raise ValueError(
            "a search gives no intervals: its model is chosen among trials, which changes the law of its noise. Leave "
            "intervals and robust out, and fit once with the chosen parameters for them."
        )
    if estimator.per_person != 1 or (estimator.schema is not None and estimator.schema.person is not None):
        raise ValueError(
            "a search is for people with one record: of several, some may be in the fit and some in the score, and a "
            "trial would cost the sum of both. Leave per_person and the schema's person out, and fit without a search."
        )
    candidates = tuple(ParameterGrid(grid))
    for name in _NOT_TUNED:
        if any(name in candidate for candidate in candidates):
            raise ValueError(f"{name} cannot be tuned. Take it out of param_grid, and set it once.")
    if not candidates:
        raise ValueError(f"param_grid must hold at least one candidate, got {grid!r}.")
    return candidates


def _held_out(holdout: float, n: int) -> int:
    if not 0 < validate.number("holdout", holdout) < 1:
        raise ValueError(f"holdout must lie between 0 and 1, got {holdout!r}.")
    count = max(1, round(holdout * validate.integer("n", n, low=2)))
    return min(count, n - 1)


def _require_structure(models: Sequence[Any], X: Any, y: np.ndarray) -> None:
    """Raise before anything is charged if types or sparsity do not go with what is declared."""
    for model in models:
        model._declared(X.shape[1]).scaled(X[:0])
    models[0].comparable(y)


def best_of(selection: Selection, source: Source, trial: Callable[[], Trial]) -> Trial:
    """Return the best of a random number of trials, the first among equals; see ``Selection`` for what it costs."""
    best = trial()
    for _ in _further(selection, source):
        other = trial()
        best = other if other.score > best.score else best
    return best


def _further(selection: Selection, source: Source) -> Iterator[None]:
    """Yield once for each trial after the first: a geometric number is drawn on the way, others beforehand."""
    if selection.eta < 1:
        yield from [None] * (number_of_trials(selection, source) - 1)
        return
    while source.subset(Sampling(selection.odds, 1))[0] != 0:  # goes on with probability 1 - 1/odds, exactly
        yield


def number_of_trials(selection: Selection, source: Source) -> int:
    """Return a number exactly of the selection's law, by rejection.

    From 1 on it grows by one with probability (1 - 1/odds) (l + eta)/(l + 1), ends with probability 1/odds, and
    otherwise all begins anew: so that k is reached and kept with probabilities proportional to the law's.
    """
    eta, number = round(selection.eta * SHARES), 1
    while source.subset(Sampling(selection.odds, 1))[0] != 0:
        kept = source.subset(Sampling(SHARES * (number + 1), 1))[0] < SHARES * number + eta
        number = number + 1 if kept else 1
    return number


def models_of(estimator: Any, candidates: Sequence[Mapping[str, Any]], share: Budget) -> list[Any]:
    """Return the candidates as estimators; where trials are pure, each with a trial's share as its epsilon."""
    epsilon = share.kinds[0].either(share.amount, estimator.epsilon)
    return [_cloned(estimator).set_params(**candidate, epsilon=epsilon) for candidate in candidates]


def score_cost(noise: Mechanism, unit: int, scale: float) -> float:
    """Return what noise of this scale on a score costs, rounded up: one record moves it by at most the unit."""
    return float(np.nextafter(float(noise.costs(unit, np.array(scale), FULL)), np.inf))


def outward_scale(unit: int, cost: float, noise: Mechanism) -> float:
    """Return the smallest scale of noise on a score whose cost, rounded up, is at most this."""
    scale = float(noise.scales(unit, np.array(cost), FULL))
    while score_cost(noise, unit, scale) > cost:
        scale = float(np.nextafter(scale, np.inf))
    return scale


class Shared:
    """The records that trials are fitted to, prepared once for all candidates that declare the same of them."""

    def __init__(self, X: Any, y: np.ndarray) -> None:
        self.X, self.y = X, y
        self._known: list[tuple[Any, str, Rows]] = []

    def rows(self, model: Any, problem: Problem) -> Rows:
        """Return the records as a candidate reads them for a problem of its own."""
        declared = model._declared(problem.d)
        for known, engine, rows in self._known:
            if known.scales_as(declared) and engine == model.engine and problem.same_records(rows.problem):
                return rows
        self._known.append((declared, model.engine, model._rows(problem, self.X, model.comparable(self.y))))
        return self._known[-1][-1]


def make_trial(plan: SearchPlan, models: Sequence[Any], source: Source, fitting: Shared, scoring: Any) -> Trial:
    """Fit a candidate at random, and score it with noise."""
    place = int(source.subset(Sampling(len(models), 1))[0])
    seed = int(source.subset(Sampling(2**31, 1))[0]) if source.seeded else None
    chosen, model = plan.plans[place], _cloned(models[place]).set_params(random_state=seed)
    model.n_features_in_ = chosen.problem.d
    model._fit(chosen, fitting.rows(model, chosen.problem))
    noise = source.integers(plan.noise, plan.scale, (1,))
    gains = np.clip(model._gains(*scoring), 0, plan.unit)  # what the noise is scaled for, whatever the model
    return Trial(int((noise + np.sum(gains))[0]), (place, model))


def _cloned(model: Any) -> Any:
    return clone(model)
