"""The report of a reproduction: what was run, what came out, and which of the paper's conclusions hold.

It is written as Markdown and as one self-contained HTML page.
"""

import base64
import html
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from epsteps.paper.compare import versions
from epsteps.paper.published import DEVIATIONS, published_curves
from epsteps.paper.statements import verdicts
from epsteps.paper.sweep import PUBLISHED, Curve, Sweep

HOW_TO_JUDGE = "Run epsteps reproduce without --quick and with its own T and repetitions to check them (some minutes)."

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #ccc; padding: .25rem .6rem; text-align: left; font-variant-numeric: tabular-nums; }
th { background: #f3f3f3; }
img { max-width: 100%; height: auto; }
.note { border-left: 4px solid #d55e00; background: #fff4ec; padding: .6rem 1rem; }
"""


@dataclass
class Document:
    """A title and blocks of text, tables and pictures."""

    title: str
    _markdown: list[str] = field(default_factory=list)
    _html: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Add a heading."""
        self._markdown.append(f"## {text}")
        self._html.append(f"<h2>{html.escape(text)}</h2>")

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._markdown.append(text)
        self._html.append(f"<p>{html.escape(text)}</p>")

    def note(self, text: str) -> None:
        """Add a paragraph that nobody should miss."""
        self._markdown.append(f"> **Note.** {text}")
        self._html.append(f'<p class="note"><strong>Note.</strong> {html.escape(text)}</p>')

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table."""
        lines = [header, ["---"] * len(header), *rows]
        self._markdown.append(
            "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        )
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
        self._html.append(f"<table><thead><tr>{cells}</tr></thead>\n<tbody>{body}</tbody></table>")

    def image(self, path: Path, caption: str) -> None:
        """Add a PNG: linked in Markdown, embedded in HTML."""
        self._markdown.append(f"![{caption}]({path.name})")
        data = base64.b64encode(path.read_bytes()).decode()
        self._html.append(
            f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )

    def write(self, out: Path) -> list[Path]:
        """Write report.md and report.html, and return their paths."""
        paths = [out / "report.md", out / "report.html"]
        paths[0].write_text("\n\n".join([f"# {self.title}", *self._markdown]) + "\n", encoding="utf-8")
        title = html.escape(self.title)
        head = f'<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
        body = "\n".join([f"<h1>{title}</h1>", *self._html])
        page = (
            f'<!doctype html>\n<html lang="en">{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
        )
        paths[1].write_text(page, encoding="utf-8")
        return paths


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


def add_sweep(document: Document, curves: list[Curve], pictures: list[Path], too_small: Sequence[str] = ()) -> None:
    """Add figures 3 and 4: pictures, conclusions, epsilon that was really spent, and final gaps.

    Where the sweep is ``too_small``, for these reasons, nothing is concluded.
    """
    add_pictures(document, "Figures 3 and 4", pictures)
    _add_spending(document, curves)
    if too_small:
        document.heading("What the paper concludes: not checked")
        document.paragraph(
            f"This sweep says nothing about the paper's conclusions: {'; '.join(too_small)}. {HOW_TO_JUDGE}"
        )
    else:
        _add_verdicts(document, curves)
    document.heading("Final gaps")
    header = ["variant", "m", "c", "algorithm", "T", "T used", "epsilon spent", "final gap", "± standard error"]
    document.table([*header, "published", "ours/published"], [_row(curve) for curve in curves])
    _add_agreement(document, [curve for curve in curves if curve.configuration.variant == PUBLISHED])


def _add_verdicts(document: Document, curves: list[Curve]) -> None:
    document.heading("What the paper concludes, checked")
    for variant in dict.fromkeys(curve.configuration.variant for curve in curves):
        document.paragraph(f"{variant}:")
        judged = verdicts([curve for curve in curves if curve.configuration.variant == variant])
        rows = [["holds" if each.holds else "DOES NOT HOLD", each.statement, each.evidence] for each in judged]
        document.table(["", "statement", "mean final gaps or other numbers"], rows)


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
    line = curve.configuration
    settings = [line.variant, str(line.m), f"{line.c:g}", line.algorithm, str(line.T), str(curve.iterations)]
    numbers = [f"{curve.spent:.6f}", f"{curve.final:.4g}", f"{curve.standard_error[-1]:.1g}"]
    return [*settings, *numbers, *_published_cells(curve)]


def _published_cells(curve: Curve) -> list[str]:
    ratio = published_ratio(curve) if curve.configuration.variant == PUBLISHED else None
    return ["", ""] if ratio is None else [f"{curve.final / ratio:.4g}", f"{ratio:.2f}"]


def add_settings(document: Document, sweep: Sweep, seconds: float) -> None:
    """Add settings, versions and wall time."""
    document.heading("How this was made")
    settings = {name: str(value) for name, value in asdict(sweep).items()}
    facts = settings | versions() | {"python": platform.python_version(), "wall time": f"{seconds:.1f} s"}
    document.table(["what", "value"], [[name, value] for name, value in facts.items()])
