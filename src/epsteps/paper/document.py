"""A report as blocks, written as Markdown and as one self-contained HTML page."""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
