"""How values enter: anything array-like becomes numbers or text, and nothing that a cell holds surfaces.

A declared type is structure, and may be refused: the dtype of an array, the type of a data frame's column. Python's
lists and arrays of objects declare none. Their cells are converted one by one: what is no number is missing, NaN.
No cell raises, warns, or changes what becomes of another one. Nothing here writes to what it is given.
"""

from epsteps.data.values.arrays import column, matrix, numbers, texts
from epsteps.data.values.rows import cell_matrix, is_list
from epsteps.data.values.scalars import key_of, number_of, quietly, shown
from epsteps.data.values.sparse import canonical

__all__ = [
    "canonical",
    "cell_matrix",
    "column",
    "is_list",
    "key_of",
    "matrix",
    "number_of",
    "numbers",
    "quietly",
    "shown",
    "texts",
]
