"""The page that describes the analysts' interface: plain text, made here, which loads nothing from anywhere."""

from collections.abc import Iterator
from html import escape
from typing import Any

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page(document: dict[str, Any]) -> str:
    """Return an OpenAPI document as a page: each address with what it does, and what its requests carry."""
    about, sections = document["info"], "\n".join(_sections(document["paths"]))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(about["title"])}</title>
</head>
<body>
<main>
<h1>{escape(about["title"])}</h1>
<p>{escape(about["description"])}</p>
<p>Every address under /v1 needs the header Authorization: Bearer TOKEN. Programs read
<a href="/openapi.json">/openapi.json</a>.</p>
{sections}
</main>
</body>
</html>
"""


def _sections(paths: dict[str, Any]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, told in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>\n<p>{escape(told.get('description', ''))}</p>"
            for parameter in told.get("parameters", []):
                yield f"<p>In the {escape(parameter['in'])}: <code>{escape(parameter['name'])}</code></p>"
            if "requestBody" in told:
                schema = told["requestBody"]["content"]["application/json"]["schema"]
                members = ", ".join(f"<code>{escape(name)}</code>" for name in schema["properties"])
                yield f"<p>A JSON object with {members}; <code>{escape(schema['required'][0])}</code> is needed.</p>"
