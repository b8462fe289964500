"""Tables as declared: ranges, codebooks and missing values, and the bounded matrix that they make of a table."""

from epsteps.tables.schema.checking import ColumnCheck, SchemaCheck
from epsteps.tables.schema.columns import Category, Column, Numeric
from epsteps.tables.schema.drafting import draft
from epsteps.tables.schema.files import DELIMITERS, read_columns
from epsteps.tables.schema.schema import Schema

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
