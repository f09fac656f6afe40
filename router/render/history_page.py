"""HTML page around a chart of prices."""

from __future__ import annotations

import html

from router.render.history_text import HistoryView, cells, format_place
from router.render.tables import format_timestamp
from router.render.web_page import html_document

_STYLE = """
body { max-width: 70em }
svg { width: 100% }
th, td { text-align: left; padding: 0.2em 0.8em 0.2em 0; border-bottom: 1px solid #ddd }
"""


def page(view: HistoryView, svg: str) -> str:
    """Return a page with the chart and its figures as text, without external scripts, links or fonts."""
    header = ("place", "machine", "market", "last", "lowest", "highest", "mean", "stock", "source")
    rows = [(format_place(s), s.instance_type, s.market.value, *cells(s), s.source) for s in view.series]
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    title = f"Price history, {format_timestamp(view.since)} to {format_timestamp(view.until)}"
    picture = svg[svg.index("<svg") :]
    return html_document(
        title,
        _STYLE,
        f"""<h1>{title}</h1>
{picture}
<p>Dollars an hour of one machine; the mean is over time. Stock: share of observations that found machines.</p>
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>""",
    )
