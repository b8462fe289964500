"""What the estimators share: their public parameters, the plan that follows from them, and the fit."""

import inspect
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, clone

from epsteps.budgets import Approximate, Budget, Pure
from epsteps.data.rows import Rows, check
from epsteps.data.sources import Check
from epsteps.estimators import _scikit, summaries
from epsteps.estimators.callers import ALONE, Circumstances, circumstances, refuse_weights
from epsteps.estimators.summaries import Telling
from epsteps.ledger.books import Account
from epsteps.ledger.parts import split
from epsteps.methods import plan
from epsteps.methods.intervals.table import Contrasts, Intervals, Terms
from epsteps.methods.options import METHODS
from epsteps.plans.plan import Plan
from epsteps.problem import validate
from epsteps.problem.ball import Ball
from epsteps.problem.box import Box
from epsteps.problem.domain import Domain
from epsteps.problem.losses import Loss
from epsteps.problem.problem import Problem
from epsteps.running.run import Run
from epsteps.tables.evaluation import Evaluation
from epsteps.tables.evaluation import fit_held_out as fit_parts
from epsteps.tables.model import centred, certificate, held, published, unscaled
from epsteps.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class Declared:
    """The set of the scaled records ``(u - shift)/unit``, and the public numbers that scale them.

    Scaling makes the ridge mean the same for a column in metres and in kilometres. Being public and of one record at a
    time, it costs no privacy; records are projected after it.
    """

    domain: Domain
    shift: np.ndarray
    unit: np.ndarray

    def scales_as(self, other: "Declared") -> bool:
        """Tell whether both scale records to the same numbers."""
        return np.array_equal(self.shift, other.shift) and np.array_equal(self.unit, other.unit)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def scaled(self, X: Any) -> Any:
        """Return records in scaled units, as floats; sparse ones, which are canonical, stay so."""
        if issparse(X):
            return self._scaled_sparse(csr_array(X))
        if not self.shift.any() and np.all(self.unit == 1):
            return X
        return (np.asarray(X, dtype=float) - self.shift) / self.unit

    def _scaled_sparse(self, X: csr_array) -> csr_array:
        if self.shift.any():
            raise ValueError(
                "sparse records need bounds that hold 0 in every column: pass dense records, or widen them."
            )
        return csr_array((X.data / self.unit[X.indices], X.indices, X.indptr), shape=X.shape)

    @np.errstate(all="ignore")
    def projected(self, X: Any) -> Any:
        """Return records in scaled units and inside the domain, as a fit sees them."""
        X = self.scaled(X)
        if not issparse(X):
            return self.domain.project(np.asarray(X, dtype=float))
        entries = self.domain.project_entries(X.data, X.indices, X.indptr, X.shape[1])
        return csr_array((entries, X.indices, X.indptr), shape=X.shape)


def declare(
    d: int,
    *,
    bounds: Any,
    one_hot: Sequence[Sequence[int]],
    row_norm: float | None,
    norm: float,
    domain: Domain | None,
    intercept: bool,
) -> Declared:
    """Return what was declared of d columns: one of bounds, row_norm and domain; refused if it is none."""
    options = {"bounds": bounds, "row_norm": row_norm, "domain": domain}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"declare one of bounds, row_norm and domain, got {' and '.join(given)}.")
    if len(one_hot) and bounds is None:
        raise ValueError(f"one_hot goes with bounds. Pass bounds=(low, high), got one_hot={one_hot!r} alone.")
    if norm != 2 and given != ["row_norm"]:
        with_what = f"not with {given[0]}. Leave it out" if given else "which is not given. Pass both"
        raise ValueError(f"norm goes with row_norm, {with_what}, got norm={norm!r}.")
    if bounds is not None:
        return _declare_box(d, bounds, one_hot, intercept)
    if domain is not None:
        domain.require(d)
        return Declared(domain, np.zeros(d), np.ones(d))
    if row_norm is None:
        raise ValueError(
            "nothing is declared of the columns, and noise is scaled by what is. Pass bounds=(low, high), numbers or "
            "one for each column, from public knowledge and never measured on the data; or schema=Schema(...) for a "
            "table with names, row_norm=... or domain=... ."
        )
    radius = Ball(row_norm, norm=norm).radius
    return Declared(Ball(1.0, norm=norm), np.zeros(d), np.full(d, radius))


def _declare_box(d: int, bounds: Any, one_hot: Sequence[Sequence[int]], intercept: bool) -> Declared:
    """Scale each range: one that holds 0 by its larger end, so that 0 stays, and any other onto [0, 1].

    Without an intercept, which would take up the shift, all ranges are scaled by their larger end.
    """
    if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
        raise ValueError(f"bounds must be a pair (low, high) of numbers or of one number per column, got {bounds!r}.")
    box = Box(bounds[0], bounds[1], one_hot)
    box.require(d)
    low, high = (np.array(np.broadcast_to(ends, d), dtype=float) for ends in (box.low, box.high))
    free = np.ones(d, dtype=bool)
    for start, stop in box.one_hot:
        low[start:stop], high[start:stop], free[start:stop] = 0.0, 1.0, False
    apart = ((low > 0) | (high < 0)) & intercept
    shift = np.where(apart, low, 0.0)
    unit = np.where(apart, high - low, np.maximum(np.abs(low), np.abs(high)))
    return Declared(
        Box(_ends((low - shift) / unit, free), _ends(np.where(apart, 1.0, high / unit), free), box.one_hot), shift, unit
    )


def _ends(values: np.ndarray, free: np.ndarray) -> float | Sequence[float]:
    """Return one number where it holds for all columns outside one-hot blocks, which have their own."""
    found = np.unique(values[free])
    return float(found[0]) if len(found) == 1 else values.tolist()


UNPROTECTED = "none: random_state makes the noise repeatable"
# What the parameters that only steps have say where nothing is asked of them.
_STEP_DEFAULTS = {"iterations": "auto", "allocation": "optimal", "batch": None}


@dataclass(eq=False, repr=False)
class PrivateLinearModel(BaseEstimator, metaclass=ABCMeta):
    """Parameters that all estimators have.

    Formal guarantee: with ``random_state=None``, all attributes after ``fit`` are together (epsilon, delta)-private
    when one record is replaced, as ``certificate_`` says. The number of records, the number and names of columns, and
    all parameters are public. A record's values never raise or warn: rows outside the declared set are moved into it,
    NaN counts as 0 (or as the low end of bounds that do not hold 0), an unknown label as the first class. Cells of
    Python's lists and objects are converted one by one: what is no number is NaN. Structure does raise: shapes, types,
    lengths, columns that are not there.

    What the guarantee needs must be declared, and a fit is refused without: of the columns ``schema``, ``bounds``,
    ``row_norm`` or ``domain``; of the targets ``classes`` or ``target_bounds``, unless a schema declares them, too.
    With a schema, ``fit(table, "target")`` and ``predict(table)`` take data frames (pandas, polars, pyarrow) or dicts
    of columns, in any order of columns, and to predict with or without the target.

    Loops of scikit-learn that fit many times (``cross_val_score``, ``GridSearchCV``, ...) are refused unless a ledger
    counts each fit or random_state makes them experiments, and so is a pipeline in which a transformer was fitted to
    the same records. Fits without a ledger are counted by the process, in ``certificate_["without_ledger"]``. What was
    done to the records by hand cannot be seen: it is among ``certificate_["assumptions"]``.

    Parameters
    ----------
    epsilon, delta : float
        The budget of a fit; delta = 0 is pure differential privacy.
    schema : Schema, optional
        What is declared of a table's columns, the target among them; in the place of bounds, one_hot, row_norm, norm,
        domain, classes and target_bounds. Coefficients are those of its features: of a whole declared range (of what a
        transform makes of it), or of an indicator.
    bounds : pair (low, high), optional
        Ranges of the columns: numbers, or one for each. Publicly known, not measured; values outside are clipped.
    one_hot : sequence of (start, stop)
        With bounds: ranges of columns that are the indicators of one category each, which means less noise.
    row_norm : float, optional
        Instead of bounds: the largest ``norm`` (1, 2 or numpy.inf) of a row; longer ones are shortened to it.
    norm : 1, 2 or numpy.inf
        The norm of row_norm.
    domain : Box or Ball, optional
        Instead of both: a domain of the library.
    ridge : float
        Weight of |coefficients|²/2 beside the mean loss, where columns are in units of their declared bounds (rows in
        those of row_norm), the intercept included. The default is small: methods that publish a minimum raise it
        themselves, by public numbers, to what noise of the budget asks for.
    intercept : bool
        Whether the model has a constant.
    method : str or callable
        "auto" is the most accurate one for the loss, the budget and ``release``; others as in ``epsteps.plan``.
    iterations, allocation, batch
        Of methods with steps ("descent", ``epsteps.nesterov``...): their number or "auto", the split of the budget
        over them ("optimal" or "uniform"), and records per step (None: all).
    mechanism : str
        Kind of noise; "auto" is the smallest one.
    release : "final" or "iterates"
        What is published: the model alone, or every point on the way to it, which costs accuracy.
    engine : str
        What computes, as in ``epsteps.Rows``.
    ledger : account, optional
        ``Ledger(...).account(name)``: charged durably before noise is drawn; a fit that does not fit is refused.
    random_state : int, optional
        Makes the fit repeatable, and NOT private: for experiments. ``certificate_`` says so.
    anyway : bool
        Fit even if the plan's verdict is that the model is noise (``plan(n, d).utility``); otherwise such a fit is
        refused with ``HopelessError`` before anything is charged, unless random_state makes it an experiment.
    intervals : float or True, optional
        Level of the intervals for coefficients that a part of the budget buys; True is 0.95. Without it there are upper
        bounds of them at no price (``confint``), of method "objective".
    robust : bool
        With intervals: let the records say how much samples vary, in the place of the model.
    per_person : int
        How many records one person may have. epsilon and delta are then for a person: each record gets the share with
        which so many cost the whole (group privacy), and a ledger is charged for the person. If the schema names the
        column of persons (``Schema(..., person="patient")``) further records of one count as nothing; otherwise that
        nobody has more is an assumption, and the certificate says so.

    Attributes
    ----------
    coef_, intercept_
        The model in the units of the data.
    confint_ : array
        Low and high end of the interval for each coefficient and the intercept after them, in the same units; of
        several classes one after the other. From ``confint()``; missing where the method gives none.
    plan_ : plan
        What was decided before the data was read; ``print(model.plan_)`` is for its holder.
    certificate_ : dict
        What is guaranteed, and what was spent.
    path_ : array
        Published points, one per row: coefficients, then intercepts. The last one is the model.
    points_ : array of shape (points, outputs, coordinates)
        Published points in the units of ``declared_``, finite: what a file holds.
    entry_ : dict or None
        The ledger's entry of the fit, if there is one.
    run_ : Run
        All that was published, in the units of ``declared_``: what intervals are computed from.
    n_iter_ : int
        Number of steps, or of releases of a method without steps: public, and decided by the plan.
    schema_ : Schema or None
        The schema of the fit, with its target.
    declared_ : Declared
        The set that rows are projected into, here and in prediction, and its units.
    n_features_in_, feature_names_in_
        Columns of the data, and their names if they have any; with a schema, those that it makes features of.
    """

    epsilon: float = 1.0
    _: KW_ONLY
    delta: float = 0.0
    schema: Schema | None = None
    bounds: Any = None
    one_hot: Sequence[Sequence[int]] = ()
    row_norm: float | None = None
    norm: float = 2
    domain: Domain | None = None
    ridge: float = 1e-4
    intercept: bool = True
    method: str | Callable[..., Any] = "auto"
    iterations: int | str = "auto"
    allocation: str = "optimal"
    batch: int | None = None
    mechanism: str = "auto"
    release: str = "final"
    engine: str = "auto"
    ledger: Account | None = None
    random_state: int | None = None
    anyway: bool = False
    intervals: float | bool | None = None
    robust: bool = False
    per_person: int = 1
    _most: ClassVar[int]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """Return the same for scikit-learn before 1.6."""
        return {"X_types": ["2darray", "sparse"], "allow_nan": True}

    def plan(self, n: int, d: int | None = None) -> Plan:
        """Return what a fit on n records with d columns would do: for the data holder to read before any data is.

        With a schema d is the number of its features, and can be left out.
        """
        return self._planned(n, d, self._budget().per_record(validate.integer("per_person", self.per_person)))

    def _budget(self) -> Budget:
        """Return the budget of a person."""
        return Pure(self.epsilon) if self.delta == 0 else Approximate(self.epsilon, self.delta)

    def _planned(self, n: int, d: int | None, budget: Budget) -> Plan:
        """Return the plan of such a fit for any budget."""
        problem = self._problem(n, self._width(d))
        # The default release is for methods that can publish the last model alone; others publish everything anyway.
        options: dict[str, Any] = {} if self._publishes_everything else {"release": self.release}
        if self.mechanism != "auto":
            options["mechanism"] = self.mechanism
        inference = {"intervals": self.intervals, "robust": self.robust}
        options |= {name: asked for name, asked in inference.items() if asked is not None and asked is not False}
        of_steps = {name: getattr(self, name) for name, value in _STEP_DEFAULTS.items() if getattr(self, name) != value}
        if callable(self.method):
            options["start_gap"] = problem.start_gap  # every fit starts at 0
        elif of_steps and not hasattr(chosen := plan(problem, budget, self.method, **options), "steps"):
            raise ValueError(
                f"{' and '.join(of_steps)}: for methods with steps only, and {chosen.method} has none. Leave them out, "
                f"or use method='descent' or method=epsteps.nesterov, got {of_steps!r}."
            )
        return plan(problem, budget, self.method, **options, **of_steps)

    @property
    def _publishes_everything(self) -> bool:
        return callable(self.method) or METHODS.get(self.method) == "iterates"

    def _width(self, d: int | None) -> int:
        """Return the number of features."""
        schema = self._schema()
        if schema is None and d is None:
            raise TypeError("plan needs the number of columns d: plan(n, d). A schema would say it.")
        if schema is not None and d not in (None, schema.d):
            raise ValueError(f"the schema declares {schema.d} features, got d={d!r}: leave d out.")
        return schema.d if schema is not None else validate.integer("d", d)

    def _schema(self) -> Schema | None:
        """Return the declared schema; with the target that a fit named, where it declares none itself."""
        if self.schema is None or isinstance(self.schema, Schema):
            named = vars(self).get("schema_")
            if self.schema is not None and self.schema.target is None and named is not None:
                return named if named.with_target(None) == self.schema else self.schema
            return self.schema
        raise TypeError(f"schema must be a Schema, got {self.schema!r}. Read a file of one with Schema.read(path).")

    def _schema_for(self, y: Any) -> Schema | None:
        """Return the declared schema, with the target that y is the name of if it declares none."""
        vars(self).pop("schema_", None)
        schema = self._schema()
        if schema is not None and schema.target is None and isinstance(y, str):
            return schema.with_target(y)
        return schema

    def _problem(self, n: int, d: int) -> Problem:
        return Problem(self.loss(), self._declared(d).domain, ridge=self.ridge, n=n, d=d, intercept=self.intercept)

    def check(self, X: Any, y: Any) -> Check:
        """Count what a fit would project: NOT private, for the data holder's own eyes."""
        blank = type(self)(**self.get_params(deep=False))
        rows, y = blank._records(X, y)
        return check(blank._problem(*rows.shape), blank._declared(rows.shape[1]).scaled(rows), y)

    @abstractmethod
    def loss(self) -> Loss:
        """Return the loss, with what is declared of the targets."""

    @abstractmethod
    def comparable(self, y: np.ndarray) -> np.ndarray:
        """Return the targets as the loss takes them, before it maps them inside."""

    @abstractmethod
    def _telling(self) -> Telling:
        """Return what the loss's outputs are in the terms of the targets."""

    @abstractmethod
    def _gains(self, X: Any, y: np.ndarray) -> np.ndarray:
        """Return what each record adds to the score of a search: a whole number from 0 to ``_most``."""

    @abstractmethod
    def _scores(self, X: Any, y: np.ndarray) -> dict[str, float]:
        """Return scores by their names, without privacy for these records."""

    def _declared(self, d: int) -> Declared:
        if (schema := self._schema()) is not None:
            self._require_schema_alone(bounds=None, one_hot=(), row_norm=None, norm=2, domain=None)
            if not self.intercept:
                raise ValueError(
                    "a schema goes with an intercept, since it scales ranges to [0, 1]: leave intercept out, or "
                    "declare bounds in the place of the schema."
                )
            return Declared(schema.domain(), np.zeros(d), np.ones(d))
        names = ("bounds", "one_hot", "row_norm", "norm", "domain", "intercept")
        return declare(d, **{name: getattr(self, name) for name in names})

    def _require_schema_alone(self, **unset: Any) -> None:
        """Raise if one of these parameters, which are given as they are by default, declares what the schema does."""
        for name, default in unset.items():
            value = getattr(self, name)
            if value is not None and not np.array_equal(value, default):
                raise ValueError(f"the schema declares what {name} would: leave one of them out, got {name}={value!r}.")

    def fit(self, X: Any, y: Any = None, **weights: Any) -> Self:
        """Fit the model privately to rows X with labels or targets y.

        With a schema X is a table, and y the name of its target, the column itself, or None for the declared one.
        """
        refuse_weights(weights)
        name, seeded = type(self).__name__, self.random_state is not None
        around, before = circumstances(name, self.ledger, seeded=seeded), dict(vars(self))
        try:
            X, y = self._records(X, y)
            chosen = self.plan(*X.shape)
            around = around.of_person(self.per_person, None if self.schema_ is None else self.schema_.person)
            return self._fit(chosen, self._rows(chosen.problem, X, y), around)
        except BaseException:  # a fit that is refused leaves the estimator as it was
            vars(self).clear()
            vars(self).update(before)
            raise

    def _records(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """Return features and comparable targets, or raise if their structure is not as declared."""
        self.schema_ = self._schema_for(y)
        features, targets = _scikit.records(self, X, y)
        targets = self.comparable(targets)
        if self.schema_ is None or self.schema_.person is None:
            return features, targets
        kept = self.schema_.kept(X, validate.integer("per_person", self.per_person))
        return features * kept[:, None], np.where(kept, targets, self._nothing())

    @abstractmethod
    def _nothing(self) -> Any:
        """Return the comparable target of a record that counts as nothing: whatever stands there is public."""

    def _rows(self, problem: Problem, X: Any, y: np.ndarray) -> Rows:
        """Return records as a fit reads them; targets are comparable ones."""
        return Rows(problem, self._declared(problem.d).scaled(X), y, engine=self.engine)

    def _fit(self, chosen: Plan, rows: Rows, around: Circumstances = ALONE) -> Self:
        """Execute what was planned on records, and tell of the model."""
        seed = None if self.random_state is None else validate.integer("random_state", self.random_state, low=0)
        self._tell_declared(chosen)
        points, result = published(chosen, rows, seed=seed, ledger=around.account, anyway=self.anyway)
        points = held(points) if self.schema_ is None else centred(held(points))
        self._tell(replace(result, path=points.reshape(len(points), -1)), points, around)
        self.entry_ = around.entry
        return self

    def _tell_declared(self, chosen: Plan) -> None:
        """Set what is known of a fit before its records are read: what cannot be told raises here."""
        self.declared_, self._told = self._declared(chosen.problem.d), self._telling()
        vars(self).setdefault("schema_", self._schema())

    def _tell(self, result: Run, points: np.ndarray, around: Circumstances) -> None:
        """Tell of the model that a run published, at points that are finite."""
        chosen, declared = result.plan, self.declared_
        vars(self).pop("confint_", None)  # of a fit before
        self.points_ = points
        self.run_, self.plan_, self.n_iter_ = result, chosen, len(chosen.charges)
        self.certificate_ = self._certificate(chosen, len(points), result.seeded, around)
        coefficients, constants = self._told.told(*unscaled(chosen.problem, points, declared.shift, declared.unit))
        self.path_ = np.concatenate([part.reshape(len(part), -1) for part in (coefficients, constants)], axis=1)
        self.coef_, self.intercept_ = coefficients[-1], constants[-1]

    @cached_property
    def confint_(self) -> np.ndarray:
        """Ends of the interval for each coefficient, then the intercept: one row each."""
        try:
            found = self.confint()
        except ValueError as error:  # not fitted, or no intervals
            raise AttributeError(str(error)) from None
        return np.column_stack([found.low, found.high])

    def confint(self, level: float | None = None, target: str | None = None, contrasts: Contrasts = None) -> Intervals:
        """Return intervals for ``coef_`` and ``intercept_``, in their units: from what was published, at no price.

        They are measured if ``intervals`` bought what that takes and what was released supports it, and otherwise
        upper bounds. Where the method's releases tell nothing of a minimum it raises ``ValueError``, with what to use.

        Parameters
        ----------
        level : float, optional
            From 0.5 to 0.99; by default that of ``intervals``, or 0.95.
        target : "population" or "sample", optional
            What is covered: the minimum of the population (by default, where it is known how samples vary), or that of
            these records.
        contrasts : "levels", matrix or mapping, optional
            In the place of coefficients: each level of a category (``one_hot``) against the mean of its category's
            levels; or rows of weights for the coefficients, then the intercept, of a matrix or by their names.
        """
        return self._terms().intervals(self._published().intervals, contrasts, level=level, target=target)

    def summary(self, level: float | None = None, target: str | None = None, contrasts: Contrasts = None) -> str:
        """Return a page of text: what was fitted, spent and promised, and the coefficients with their intervals.

        The arguments are those of ``confint``. Where the method gives no intervals, the page says why.
        """
        terms = self._terms()
        try:
            table = str(self.confint(level, target, contrasts))
        except ValueError as error:
            if not all(asked is None for asked in (level, target, contrasts)):
                raise
            table = summaries.without_intervals(terms, self.run_.x, str(error))
        return summaries.page(type(self).__name__, self.run_, self.certificate_, table)

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the fitted model to model.json in a folder, and with a schema its report.html; return the folder.

        The file is text that nothing executes: ``epsteps.load(folder)`` reads it, and with a schema ``epsteps predict``
        does, too. A model that is there already is not replaced without ``force``.
        """
        return _saved().save(self, folder, force=force)

    def card(self, path: str | Path) -> Path:
        """Write the report of the model, the page that ``epsteps fit`` writes: for models with a schema."""
        return _saved().card(self, path)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the fitted model that ``save`` wrote, or ``epsteps fit``: see ``epsteps.load``."""
        model = _saved().load(folder)
        if not isinstance(model, cls):
            raise TypeError(f"{folder} holds a {type(model).__name__}: load it with epsteps.load, or as that.")
        return model

    def _published(self) -> Run:
        """Return the run whose noise has the law that intervals take it to have."""
        if "trial" in self.certificate_:
            raise ValueError(
                "the model is the best of several trials, and being chosen its noise has no known law. Fit once, with "
                "the chosen parameters."
            )
        return self.run_

    def _terms(self) -> Terms:
        """Return how coefficients and intercepts follow from what was published."""
        _scikit.require_fitted(self)
        declared, problem = self.declared_, self.plan_.problem
        columns = getattr(self, "feature_names_in_", [f"x{j}" for j in range(problem.d)])
        columns = columns if self.schema_ is None else self.schema_.names
        labels = getattr(self, "classes_", ())
        return summaries.terms_of(problem, self._told, declared.shift, declared.unit, list(columns), labels)

    def _certificate(self, chosen: Plan, points: int, seeded: bool, around: Circumstances) -> dict[str, Any]:
        unprotected, k = UNPROTECTED if seeded else None, self.per_person
        bought = () if self.schema_ is None else self.schema_.bought
        spent = chosen.spending().of_group(k).amount
        person = certificate(self._budget(), spent, chosen.method, unprotected=unprotected, per_person=k)
        return person | {
            "per_person": k,
            "published": f"{points} point(s) of path_, the last of which is the model",
            "records": str(chosen.problem.domain),
            "ledger": None if self.ledger is None else repr(self.ledger),
            "without_ledger": around.without_ledger,
            "assumptions": list(around.assumptions),
            # Of one record, whoever has several: they were paid for apart from the fit.
            **({"expenses": [vars(expense) for expense in bought]} if bought else {}),
        }

    def evaluated(self, data: Any) -> tuple[Problem, np.ndarray, bool, float, Callable[[], Rows]]:
        """Return what ``epsteps.evaluate`` needs: how records are read, the point, whether it has probabilities.

        And the targets' unit, and what reads the records: a pair (X, y), or with a schema a table that has the target.
        """
        _scikit.require_fitted(self)
        problem, x = self.plan_.problem, held(self.run_.x)
        if data is None:
            return problem, x, hasattr(self, "predict_proba"), self._unit(), lambda: self._no_records(data)
        if not isinstance(data, tuple) or len(data) != 2:
            if self.schema_ is None:
                return self._no_records(data)
            data = (data, None)
        X = _scikit.features(self, data[0], reset=False)
        y = self.comparable(_scikit.targets(self, X if self.schema_ is None else data[0], data[1]))
        problem = replace(problem, n=len(y), clip=None)
        return problem, x, hasattr(self, "predict_proba"), self._unit(), lambda: self._rows(problem, X, y)

    @staticmethod
    def _no_records(data: Any) -> Any:
        raise TypeError(f"data must be a pair (X, y) for an estimator, got {type(data).__name__}.")

    def _unit(self) -> float:
        """Return what 1 of the scaled targets is in their own unit."""
        return 1.0

    def _margins(self, X: Any) -> np.ndarray:
        """Return the model's values at rows, projected as the fit's were; one column for each output."""
        _scikit.require_fitted(self)
        X = self.declared_.projected(_scikit.features(self, X, reset=False))
        coefficients = np.atleast_2d(self.coef_)
        constants = self.intercept_ + coefficients @ self.declared_.shift
        return X @ (coefficients * self.declared_.unit).T + constants


def _saved() -> Any:
    """Return the module of files, which knows every estimator and so comes after them."""
    return import_module("epsteps.estimators.saved")


_E = TypeVar("_E", bound=type)


def with_common_parameters(estimator: _E) -> _E:
    """Add the shared parameters to an estimator's docstring, which ends with its own."""
    own, common = inspect.cleandoc(estimator.__doc__ or ""), inspect.cleandoc(PrivateLinearModel.__doc__ or "")
    summary, _, parameters = common.partition("Parameters\n----------\n")
    guarantee = summary.partition("\n\n")[2]
    head, _, own_parameters = own.partition("Parameters\n----------\n")
    estimator.__doc__ = f"{head}{guarantee}Parameters\n----------\n{own_parameters}\n{parameters}"
    return estimator


_SAME = (
    "NOT private: these are the records of the fit, and a score of them is a new, unprotected release about them. It "
    "is also too good: the model was fitted to them. Keep it to yourself, or score on other records."
)
_OTHER = (
    "The model's guarantee covers the records of the fit. It does not cover those that it was scored on: if they are "
    "private too, so is the score."
)


@dataclass(frozen=True)
class UnprotectedScores:
    """Scores of a model on n records, without privacy for these, and a note on that which belongs beside them.

    ``targets_outside`` counts the labels or targets that are outside the declaration: labels of no declared class can
    only be predicted wrongly.
    """

    scores: dict[str, float]
    n: int
    targets_outside: int
    same_records: bool
    note: str

    def __str__(self) -> str:
        lines = [f"{name:<24} {value:.6g}" for name, value in self.scores.items()]
        lines += [f"{'records':<24} {self.n}", f"{'targets outside':<24} {self.targets_outside}", self.note]
        return "\n".join(lines)


def unprotected_scores(model: Any, X: Any, y: Any, *, same_records: bool = False) -> UnprotectedScores:
    """Score a fitted model on records, without privacy for these; ``epsteps.evaluate`` is what protects them.

    Classifiers get accuracy, logarithmic loss (where they have probabilities) and, of two classes, the area under the
    ROC curve; regressors R², mean absolute error and root mean squared error. A label of no declared class counts as
    the first one, as in a fit, but for accuracy, where it counts as wrong; a target outside the declared range as its
    nearest end, and one that is missing as its middle.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this package.
    X, y
        Records that were not in the fit.
    same_records : bool
        Say True if they were: the result then says that its scores are not private.
    """
    if not isinstance(same_records, bool):
        raise TypeError(f"same_records must be True or False, got {same_records!r}.")
    _scikit.require_fitted(model)
    values = _scikit.targets(model, X, y)
    with np.errstate(all="ignore"):
        scores = model._scores(X, values)
    outside = model.loss().outside(model.comparable(values))
    return UnprotectedScores(scores, len(values), outside, same_records, _SAME if same_records else _OTHER)


def fit_held_out(
    estimator: PrivateLinearModel,
    X: Any,
    y: Any,
    budget: Budget | None = None,
    *,
    hold_out: float = 0.2,
    split_seed: int = 0,
    level: float = 0.95,
) -> tuple[Any, Evaluation]:
    """Fit an estimator to one part of the records and evaluate it on the others, for the larger price of both.

    Formal guarantee: as ``epsteps.tables.evaluation.fit_held_out``. The estimator's ledger is charged once.

    Parameters
    ----------
    estimator : estimator of this package
        It is not changed: a clone is fitted, and returned with its evaluation.
    X, y
        All records; this function divides them.
    budget : Budget, optional
        Of the evaluation; by default that of the estimator, which then costs nothing more.
    hold_out, split_seed
        The share of the records that is held out, and the public seed of the split: it protects nothing.
    level : float
        Of the intervals.

    >>> import numpy as np
    >>> from epsteps.estimators import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).uniform(0, 1, (20_000, 3))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), epsilon=1.0)
    >>> fitted, evaluation = fit_held_out(model, X, y)
    >>> bool(evaluation["accuracy"].value > 0.8), evaluation.rows
    (True, 'held out')
    """
    blank: Any = clone(estimator)
    if blank.per_person != 1:
        raise ValueError(
            f"records of one person may be in both parts, which then have something in common, got "
            f"per_person={blank.per_person!r}. Fit first, and buy scores with epsteps.evaluate."
        )
    if blank.schema is not None:
        raise ValueError(
            "fit_held_out divides arrays: for a table with a schema use epsteps fit --hold-out, or transform it first, "
            "and declare the schema's domain in the place of the schema."
        )
    X = _scikit.features(blank, X, reset=True)
    y = _scikit.targets(blank, X, y)
    training, _ = split(X.shape[0], hold_out, split_seed)
    chosen = blank.plan(len(training), X.shape[1])

    def fit(places: np.ndarray, account: Account | None) -> Any:
        fresh: Any = clone(estimator)
        return fresh.set_params(ledger=account).fit(X[places], y[places])

    return fit_parts(
        fit,
        lambda places: (X[places], y[places]),
        _Rehearsed(blank, chosen.problem),
        X.shape[0],
        chosen.spending(),
        chosen.budget if budget is None else budget,
        hold_out=hold_out,
        split_seed=split_seed,
        level=level,
        ledger=estimator.ledger,
        seed=estimator.random_state,
        anyway=estimator.anyway,
    )


class _Rehearsed:
    """A model of zeros, of which everything that decides is known before there is one."""

    def __init__(self, estimator: Any, problem: Problem) -> None:
        self._estimator, self._problem = estimator, problem

    def evaluated(self, data: Any) -> Any:
        """Return the facts of an evaluation."""
        x = np.zeros(self._problem.dimension)
        return self._problem, x, hasattr(self._estimator, "predict_proba"), self._estimator._unit(), None
