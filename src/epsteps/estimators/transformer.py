"""A schema as a step of scikit-learn's pipelines."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from epsteps.tables.schema import Schema


class SchemaTransformer(TransformerMixin, BaseEstimator):
    """Turns tables into the features that a schema declares. It learns nothing: fitting it costs no privacy.

    Parameters
    ----------
    schema : Schema
        The declared columns. Its target, if there is one, is not among the features; tables need not have it.

    >>> from epsteps.tables import Numeric
    >>> step = SchemaTransformer(Schema({"age": Numeric(0, 100)}))
    >>> step.fit_transform({"age": [20, 150]})
    array([[0.2],
           [1. ]])
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(self, X: Any, y: Any = None) -> "SchemaTransformer":
        """Check that there is a schema; the table is not read."""
        if not isinstance(self.schema, Schema):
            raise TypeError(f"schema must be a Schema, got {self.schema!r}.")
        self.feature_names_in_ = np.array(list(self.schema.features), dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of a table, one row for each of its rows."""
        return self.schema.encode(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the features' names, whatever the table's columns are called."""
        return np.array(self.schema.names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags
