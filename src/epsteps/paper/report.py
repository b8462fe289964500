"""The report of a reproduction: what was run, what came out, and which of the paper's conclusions hold."""

import platform
from dataclasses import asdict
from pathlib import Path

import numpy as np
import scipy

import epsteps as es
from epsteps.paper.document import Document
from epsteps.paper.published import DEVIATIONS
from epsteps.paper.published_curves import published_curves
from epsteps.paper.statements import verdicts
from epsteps.paper.sweep import PUBLISHED, Curve, Sweep


def start_report(as_published: bool) -> Document:
    """Return a report that says first what may not be missed."""
    document = Document("The figures of 'Differentially Private Accelerated Optimization Algorithms'")
    document.note("A seeded experiment, measured on synthetic records: nothing here is a private release.")
    if as_published:
        document.paragraph(
            "As published: what the authors' code executed, including these deviations from the paper's proofs."
        )
        rows = [[entry.what, entry.effect, entry.errata] for entry in DEVIATIONS]
        document.table(["deviation", "effect", "errata"], rows)
    return document


def add_pictures(document: Document, heading: str, pictures: list[Path]) -> None:
    """Add a section with pictures."""
    document.heading(heading)
    for path in pictures:
        document.image(path, path.stem)


def add_sweep(document: Document, curves: list[Curve], pictures: list[Path]) -> None:
    """Add figures 3 and 4: pictures, conclusions, epsilon that was really spent, and final gaps."""
    add_pictures(document, "Figures 3 and 4", pictures)
    _add_spending(document, curves)
    document.heading("What the paper concludes, checked")
    for variant in dict.fromkeys(curve.configuration.variant for curve in curves):
        document.paragraph(f"{variant}:")
        found = verdicts([curve for curve in curves if curve.configuration.variant == variant])
        rows = [
            ["holds" if verdict.holds else "DOES NOT HOLD", verdict.statement, verdict.evidence] for verdict in found
        ]
        document.table(["", "statement", "mean final gaps or other numbers"], rows)
    document.heading("Final gaps")
    header = ["variant", "m", "c", "algorithm", "T", "T used", "epsilon spent", "final gap", "± standard error"]
    document.table([*header, "published", "ours/published"], [_row(curve) for curve in curves])
    _add_agreement(document, [curve for curve in curves if curve.configuration.variant == PUBLISHED])


def _add_agreement(document: Document, curves: list[Curve]) -> None:
    """Say how close final gaps are to the published ones."""
    ratios = np.array([ratio for curve in curves if (ratio := published_ratio(curve)) is not None])
    if len(ratios):
        near = int(np.sum((ratios > 0.65) & (ratios < 1.55)))
        document.paragraph(
            f"Final gaps, ours over published: median {np.median(ratios):.3f}; "
            f"{near} of {len(ratios)} between 0.65 and 1.55."
        )


def published_ratio(curve: Curve) -> float | None:
    """Return our final gap over the published one, where that could be read."""
    theirs = published_curves().get(curve.configuration.key)
    return None if theirs is None else curve.final / float(theirs[1][-1])


def _add_spending(document: Document, curves: list[Curve]) -> None:
    spent = {}
    for curve in curves:
        key = (curve.configuration.variant, curve.configuration.m)
        spent.setdefault(key, []).append(curve.spent)
    for (variant, m), values in spent.items():
        text = f"{variant}, m = {m}: epsilon really spent between {min(values):.4f} and {max(values):.4f}."
        if variant == PUBLISHED:
            document.note(text + " The noise drawn is 1/√2 of what the proof needs.")
        else:
            document.paragraph(text)


def _row(curve: Curve) -> list[str]:
    configuration = curve.configuration
    return [
        configuration.variant,
        str(configuration.m),
        f"{configuration.c:g}",
        configuration.algorithm,
        str(configuration.T),
        str(curve.iterations),
        f"{curve.spent:.6f}",
        f"{curve.final:.4g}",
        f"{curve.standard_error[-1]:.1g}",
        *_published_cells(curve),
    ]


def _published_cells(curve: Curve) -> list[str]:
    ratio = published_ratio(curve) if curve.configuration.variant == PUBLISHED else None
    return ["", ""] if ratio is None else [f"{curve.final / ratio:.4g}", f"{ratio:.2f}"]


def add_settings(document: Document, sweep: Sweep, seconds: float) -> None:
    """Add settings, versions and wall time."""
    document.heading("How this was made")
    settings = {name: str(value) for name, value in asdict(sweep).items()}
    versions = {"epsteps": es.__version__, "numpy": np.__version__, "scipy": scipy.__version__}
    facts = settings | versions | {"python": platform.python_version(), "wall time": f"{seconds:.1f} s"}
    document.table(["what", "value"], [[name, value] for name, value in facts.items()])
