"""Write HTML pages without external scripts, links or fonts, in light and dark."""

from __future__ import annotations

import html

from router.render.drawing import stylesheet

# Style that all pages share; each page adds its own.
_STYLE = """
body { font: 15px/1.4 sans-serif; margin: 2em auto; padding: 0 1em; color: var(--ink); background: var(--sf) }
svg { max-width: 100%; height: auto }
table { border-collapse: collapse }
"""


def html_document(title: str, style: str, body: str) -> str:
    """Return an HTML document; ``body`` is HTML, ``title`` is text."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{stylesheet()}{_STYLE}{style.lstrip()}</style>
</head>
<body>
{body}
</body>
</html>
"""
