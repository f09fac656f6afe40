"""HTML page of quotes without external scripts, links or fonts. Pure functions."""

from __future__ import annotations

import html
from collections.abc import Sequence

from router.quotes.quote import KNEE_RULE, Quote
from router.render.quote_svg import cost_histogram, price_curve, timeline
from router.render.quote_text import line, text
from router.render.web_page import html_document

_STYLE = """
body { max-width: 60em }
svg { width: 100%; max-width: 44em }
pre { font-size: 13px; overflow-x: auto; background: #f6f5f2; padding: 1em }
@media print { pre { white-space: pre-wrap; font-size: 8pt } h2, svg { break-inside: avoid; break-after: avoid } }
"""


def page(quotes: Sequence[tuple[str, Quote]]) -> str:
    """Return a page with one section per quote, with its id."""
    title = "Quote" if len(quotes) == 1 else f"{len(quotes)} quotes"
    return html_document(title, _STYLE, "\n".join(_section(name, q) for name, q in quotes))


def _section(name: str, q: Quote) -> str:
    pictures = [
        (
            "How the cost is spread",
            cost_histogram(q),
            f"{q.draws} simulated scenarios; the ends are the 2.5 % and 97.5 % points.",
        ),
        ("What other deadlines cost", price_curve(q), f"The knee is {KNEE_RULE}."),
        ("One typical run", timeline(q), "The simulated scenario whose cost is nearest to the median. Blue is spot."),
    ]
    drawn = "\n".join(f"<h3>{t}</h3>\n{svg}\n<p>{html.escape(words)}</p>" for t, svg, words in pictures if svg)
    return f"""<h2>{html.escape(q.job)}</h2>
<p>{html.escape(line(q, name))}</p>
{drawn}
<pre>{html.escape(text(q, name))}</pre>"""
