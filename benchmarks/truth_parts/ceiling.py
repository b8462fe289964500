"""How far predictions could get: the same formulas with a table's own curvature and minimum for those of a typical one.

What is then still wrong is the formulas' fault; what is wrong with typical ones besides is what public numbers do not
tell. Plans are those that cells were measured with, made again.
"""

from argparse import Namespace
from collections import defaultdict
from unittest import mock

import numpy as np

import epsteps as es
from epsteps.plans.utility import Typical
from truth_parts import tables
from truth_parts.cells import BUDGETS, METHODS, Case, case_of, digest, read
from truth_parts.summary import is_hopeless, ratio, within

# What plans keep of their predictions.
KEPT = ("predicted", "_typical", "_sought", "utility")


def known(case: Case) -> mock._patch:
    """Return a patch by which the typical problem is the table's own, as a quadratic around its minimum."""
    curvature, vectors = np.linalg.eigh(case.rows.hessian(case.minimum))
    gains = curvature * (vectors.T @ case.minimum) ** 2
    zero = case.facts["zero"]
    return mock.patch.multiple(
        Typical,
        trivial=zero,
        curvature=np.maximum(curvature - case.problem.ridge, 0.0),
        gains=gains * zero / np.sum(gains),
        power=lambda _, __, along: np.array([along(vector) for vector in vectors.T]),
    )


def rows(options: Namespace) -> list[tuple[str, bool, dict, dict]]:
    """Return table, whether it was tuned on, and the cell with the prediction as it is and with the table known."""
    found = []
    for cell in read(options.cells):
        if "measured" not in cell or "auto" in cell["method"]:
            continue
        case = case_of(options.data / f"{cell['set']}.npz", cell["loss"])
        plan = es.plan(case.problem, BUDGETS[cell["budget"]](cell["epsilon"]), **METHODS[cell["method"]])
        if digest(plan) != cell["digest"]:
            continue
        public = cell | {"predicted": plan.utility.expected}
        for name in KEPT:
            vars(plan).pop(name, None)
        with known(case):
            own = cell | {"predicted": plan.utility.expected}
        found.append((cell["set"], cell["set"] in tables.TUNED, public, own))
    return found


def markdown(found: list[tuple[str, bool, dict, dict]]) -> str:
    """Return the shares in the band, and how tables differ that public numbers do not tell apart."""
    lines = [
        "| tables | cells | in the band | with the table's own curvature and minimum |",
        "| --- | --- | --- | --- |",
    ]
    for tuned, name in ((True, "tuned on"), (False, "held out")):
        public, own = ([row[place] for row in found if row[1] == tuned] for place in (2, 3))
        public, own = ([cell for cell in cells if not is_hopeless(cell)] for cells in (public, own))
        if public and own:
            lines.append(f"| {name} | {len(public)} | {within(public):.1%} | {within(own):.1%} |")
    medians = defaultdict(list)
    for name, _, public, _ in found:
        if not is_hopeless(public):
            medians[name].append(ratio(public))
    ordered = sorted((float(np.median(values)), name) for name, values in medians.items() if len(values) >= 10)
    (low, least), (high, most) = ordered[0], ordered[-1]
    text = f"The median of predicted over measured is from {low:.2g} ({least}) to {high:.2g} ({most}) on one table."
    return "\n".join([*lines, "", text]) + "\n"
