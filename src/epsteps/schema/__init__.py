"""Tables as declared: ranges, codebooks and missing values, and the bounded matrix that they make of a table."""

from epsteps.schema.checking import ColumnCheck, SchemaCheck
from epsteps.schema.columns import Category, Column, Numeric
from epsteps.schema.drafting import draft
from epsteps.schema.files import DELIMITERS, read_columns
from epsteps.schema.schema import Schema

__all__ = [
    "DELIMITERS",
    "Category",
    "Column",
    "ColumnCheck",
    "Numeric",
    "Schema",
    "SchemaCheck",
    "draft",
    "read_columns",
]
