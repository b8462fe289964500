"""Every estimator with parameters of all kinds is refused in one sentence, or fits and keeps its certificate.

Parameters are found in the estimators; one without values here fails the first test.
"""

import contextlib
import dataclasses
import math
import warnings
from collections import Counter

import combinations
import numpy as np
import pytest
from test_matrix import RaisedAfterTheChargeError, Watched, sentence

pytest.importorskip("sklearn")

import epsteps as es
from epsteps import estimators
from epsteps.budgets import mechanisms
from epsteps.estimators.base import PrivateLinearModel
from epsteps.methods import choice
from epsteps.testing import replay

MODELS = [
    found
    for name in estimators.__all__
    if isinstance(found := getattr(estimators, name), type) and issubclass(found, PrivateLinearModel)
]
COLUMNS = {
    "a": es.Numeric(0, 1, missing=True, transform="log1p"),
    "b": es.Numeric(-1, 1e6, bins=[0, 0.5, 2]),
    "c": es.Numeric(-5, 1000, clip=(0, 2)),
}
# The first value of each is taken half of the time.
VALUES = {
    "epsilon": (1.0, 0.05, 30.0),
    "delta": (0.0, 1e-6),
    "schema": (
        None,
        es.Schema(COLUMNS | {"y": es.Category([0, 1])}, "y", [("a", "b"), ("b", "c")]),
        es.Schema(COLUMNS | {"y": es.Numeric(-1, 7)}, "y", [("a", "c")]),
    ),
    "bounds": (None, (0, 1), (-2, 30), ([0, -1, 5], [1, 1, 6]), (1e-3, 1e3), (-1e-9, 1e-9)),
    "one_hot": ((), [(0, 2)]),
    "row_norm": (None, 5.0, 1e-6),
    "norm": (2, 1, math.inf),
    "domain": (None, es.Box(-3, 4), es.Ball(2.0, norm=1)),
    "ridge": (1e-4, 0.0, 3.0),
    "intercept": (True, False),
    "method": ("auto", *choice.METHODS, *combinations.STEPS),
    "iterations": ("auto", 3),
    "allocation": ("optimal", "uniform"),
    "batch": (None, 7),
    "mechanism": ("auto", *mechanisms.NAMES),
    "release": choice.RELEASES,
    "engine": tuple(name for name in combinations.sources_here() if name in ("auto", "numpy", "fast")),
    "ledger": (None,),  # set below
    "random_state": (None, 5),
    "anyway": (True,),
    "intervals": (False, 0.95, True),
    "robust": (False, True),
    "per_person": (1, 2, 5),
    "classes": ((0, 1), (1, 0), (0, 1, 2), ("no", "yes")),
    "width": (0.5, 0.05, 4.0),
    "target_bounds": ((-1.0, 1.0), (0.0, 1e6), (5.0, 5.001)),
    "transition": (None, 0.3),
}


def test_every_parameter_has_values():
    parameters = {field.name for model in MODELS for field in dataclasses.fields(model)} - {"_"}
    assert parameters == set(VALUES)


def parameters_of(model, rng):
    """Draw a model's parameters: a few are changed."""
    found = {}
    for name in (field.name for field in dataclasses.fields(model)):
        values = VALUES[name]
        if rng.random() < 0.25 and values[0] is not None:
            found[name] = values[int(rng.integers(len(values)))]
    declared = ("bounds", "row_norm", "domain", "schema")[int(rng.integers(4))]
    found[declared] = VALUES[declared][int(rng.integers(len(VALUES[declared])))]
    if found.get("schema") is not None:  # it declares alone; what else would is mostly left out
        alone = ("bounds", "one_hot", "row_norm", "norm", "domain", "intercept", "classes", "target_bounds")
        return {name: value for name, value in found.items() if name not in alone or rng.random() < 0.05}
    for name in ("classes", "target_bounds"):  # mostly declared: without, every fit is refused
        if name in {field.name for field in dataclasses.fields(model)} and rng.random() < 0.95:
            found.setdefault(name, VALUES[name][0])
    return found


def datasets(model, rng, n=30, d=3):
    """Yield two neighbours: ordinary records, one of which is replaced by what is none."""
    X = rng.uniform(-1, 2, (n, d)) * rng.choice([0.0, 1.0, 1e3, 1e300])
    labels = getattr(model, "classes", None) or (-1.0, 0.3, 7.0)
    kind = str if isinstance(labels[0], str) else float
    y = rng.choice(np.array(labels, dtype=kind), n)
    other, targets = X.copy(), y.copy()
    other[4], targets[4] = [np.nan, np.inf, -1e308], targets[5] if kind is str else np.nan
    return (X, y), (other, targets)


def published(model):
    """Return what a fit published."""
    return {name: value for name, value in vars(model).items() if name.endswith("_") and name != "plan_"}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_estimators_are_refused_or_keep_their_certificate(model):
    rng, count = np.random.default_rng(7), Counter()
    for _ in range(30):
        options = parameters_of(model, rng)
        pair = datasets(model(**options), rng)
        count[tried(model, options, pair)] += 1
    assert count["refused"] > 0
    assert count["executed"] > 5, count


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_no_search_raises_after_its_charge(model):
    rng, count = np.random.default_rng(8), Counter()
    searched = ("epsilon", "delta", "random_state", "release")
    for number in range(12):
        options = {name: value for name, value in parameters_of(model, rng).items() if name not in searched}
        data, other = datasets(model(**options), rng)

        def fit(data, account, options=options, number=number):
            budget = (None, es.Approximate(1.0, 1e-6), es.Concentrated(0.2))[number % 3]
            search = es.PrivateSearch(
                model(**options | {"anyway": True}),
                {"ridge": [1e-3, 1.0]},
                budget=budget,
                eta=(1.0, 0.5)[number // 3 % 2],
                trials=2,
                ledger=account,
            )
            return search.set_params(random_state=number if number % 2 else None).fit(*data)

        for records in (data, other):
            ends = []
            with contextlib.suppress(Exception):
                watched_fit(fit, records, _Free(), ends)
            count[outcome(ends, f"PrivateSearch of {model.__name__}({options})")] += 1
    assert count["executed"] > 5, count


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_no_fit_with_records_held_out_raises_after_its_charge(model):
    rng, count = np.random.default_rng(9), Counter()
    for _ in range(12):
        options = parameters_of(model, rng) | {"anyway": True}
        data, other = datasets(model(**options), rng)

        def fit(data, account, options=options):
            found, evaluation = es.fit_held_out(model(**options | {"ledger": account}), *data, hold_out=0.3)
            return found, evaluation.to_dict()

        for records in (data, other):
            ends = []
            with contextlib.suppress(Exception):
                watched_fit(fit, records, _Free(), ends)
            count[outcome(ends, f"fit_held_out of {model.__name__}({options})")] += 1
    assert count["executed"] > 2, count


def watched_fit(fit, data, account, ends):
    """Fit with warnings as errors, and remember how it ended: whether it had charged, and the error."""
    watched = Watched(account)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return fit(data, watched)
        except Exception as error:
            ends.append((watched.charged, error))
            raise


def outcome(ends, what):
    """Return "refused" or "executed", or raise if a fit ended after its charge, or said no sentence."""
    for charged, error in ends:
        if charged:
            raise RaisedAfterTheChargeError(f"{type(error).__name__}: {error}\n    {what}")
        sentence(error)
        return "refused"
    return "executed"


def tried(model, options, pair):
    """Fit to both neighbours; predict, too, which no record may stop."""
    ends = []

    def fit(data, account):
        fitted = model(**options | {"anyway": True}, ledger=account).fit(*data)
        fitted.predict(data[0])
        return published(fitted)

    try:
        if options.get("random_state") is None:
            replay(lambda data, account: watched_fit(fit, data, account, ends), *pair)
        else:
            for data in pair:
                watched_fit(fit, data, _Free(), ends)
    except Exception:
        if not ends:
            raise
    return outcome(ends, f"{model.__name__}({options})")


class _Free:
    """An account that takes everything: for experiments."""

    def charge(self, cost, **options):
        pass
