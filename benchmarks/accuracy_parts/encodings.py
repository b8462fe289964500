"""The public domain of a dataset: ranges and one-hot blocks, read off how its columns are encoded, never off values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import epsteps as es


@dataclass(frozen=True)
class Encoding:
    """Each column lies in [low, high]; the columns of a block are not negative and sum to at most 1."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    one_hot: tuple[tuple[int, int], ...] = ()

    @property
    def d(self) -> int:
        """Number of columns."""
        return len(self.low)

    @property
    def singles(self) -> tuple[int, ...]:
        """Columns that belong to no block."""
        blocked = {column for start, stop in self.one_hot for column in range(start, stop)}
        return tuple(column for column in range(self.d) if column not in blocked)

    def largest(self, norm: float) -> float:
        """Return the largest L1 or L2 norm of a record."""
        sizes = [max(abs(self.low[j]), abs(self.high[j])) for j in self.singles] + [1.0] * len(self.one_hot)
        return sum(size**norm for size in sizes) ** (1 / norm)

    def box(self) -> "es.Box":
        """Return the library's domain."""
        return es.Box(self.low, self.high, one_hot=self.one_hot)


def unit_cube(d: int) -> Encoding:
    """Return [0, 1]^d."""
    return Encoding((0.0,) * d, (1.0,) * d)


def from_names(dataset: str, names: Sequence[str]) -> Encoding:
    """Return the encoding that the columns' names and the data's description state.

    Columns named "attribute=value" are the one-hot columns of that attribute, unless there is only one. The first ten
    columns of ijcnn1 are one attribute, and its other twelve are signed; so is one column of bank, one of covertype.
    """
    if dataset == "ijcnn1":
        names = [*(f"indicator={k}" for k in range(10)), *(f"signed_{k}" for k in range(len(names) - 10))]
    blocks, start = [], 0
    for attribute, group in groupby(names, key=lambda name: name.partition("=")[0] if "=" in name else name):
        stop = start + len(list(group))
        if stop - start > 1 and "=" in names[start]:
            blocks.append((start, stop))
        elif stop - start > 1:
            raise ValueError(f"{dataset}: {stop - start} columns are called {attribute!r}; names must differ.")
        start = stop
    low = tuple(-1.0 if name.startswith(("signed_", "slog_", "v_dist_")) else 0.0 for name in names)
    return Encoding(low, (1.0,) * len(names), tuple(blocks))


def check_norm_bound(encoding: Encoding, stated: float) -> None:
    """Raise if the encoding disagrees with the norm bound that comes with the data."""
    if not math.isclose(encoding.largest(2), stated, rel_tol=1e-6):
        raise ValueError(f"the encoding's largest record has norm {encoding.largest(2)}, but the data says {stated}.")
