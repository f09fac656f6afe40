"""HTML page of a back-test, with charts and all figures, without external scripts, links or fonts."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from router.backtest.timeline import PolicyTimeline, ShownWindow
from router.backtest.windows import WindowLayout
from router.render import backtest_plot
from router.render.backtest_text import ScoredCells, score_rows, title
from router.render.pages import html_document, html_table
from router.spot.simulator.inputs import HOUR_S

_STYLE = """
body { max-width: 66em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em } h3 { font-size: 1em; margin: 1.6em 0 0.3em }
th, td { text-align: right; padding: 0.2em 0 0.2em 1.4em; border-bottom: 1px solid var(--line) }
td { font-variant-numeric: tabular-nums }
th:first-child, td:first-child, .left { text-align: left }
th:first-child, td:first-child { padding-left: 0 }
tr.reference td { color: var(--ink2) }
p.small { color: var(--ink2); font-size: 0.92em }
"""
_HEADER = ("policy", "mean USD", "of on-demand", "over optimum", "less", "difference, 90 %", "effective n", "missed")
_LEFT = {"less", "difference, 90 %"}


def page(scored: ScoredCells, windows: WindowLayout, example: ShownWindow, runs: Sequence[PolicyTimeline]) -> str:
    """Return the page as HTML."""
    parts = []
    if svg := backtest_plot.deadline_charts(scored):
        parts.append(f"<h2>Cost against deadline</h2>\n{svg}")
        parts.append('<p class="small">Mean over windows; bars: 90 % intervals, by resampling stretches of time.</p>')
    if svg := backtest_plot.zone_charts(scored):
        parts.append(f"<h2>Cost against number of zones</h2>\n{svg}")
        parts.append('<p class="small">Mean over windows of one job.</p>')
    site = example.cell.sites[example.site]
    start_h = example.start * site.series.tick_s / HOUR_S
    parts.append(f"<h2>One run</h2>\n{backtest_plot.runs_chart(example, runs)}")
    parts.append(
        f'<p class="small">{html.escape(title(example.cell))}; {html.escape(site.name)}, from hour {start_h:.1f} '
        f"of the traces: a window in which policies differ more than in four of five.</p>"
    )
    parts.append("<h2>Figures</h2>")
    for pooled, scores in scored:
        rows = [
            (cells, "" if number < len(scores) else "reference")
            for number, cells in enumerate(score_rows(pooled, scores))
        ]
        stretches = np.unique(pooled.stretch).size
        parts.append(
            f'<h3>{html.escape(title(pooled.cell))}</h3>\n<p class="small">{pooled.start.size} windows in {stretches} '
            f"stretches of time</p>\n{html_table(_HEADER, rows, _LEFT)}"
        )
    note = (
        f"Windows begin every {windows.every_s / HOUR_S:.4g} h. Traces are cut into {windows.blocks} blocks of time; "
        "what is learned comes from the blocks before a window's. Optimum: the least that each window could have cost, "
        "found with its availability known. Difference: to the cheapest of the other policies on the same windows, as "
        "a share of on-demand. Effective n: number of independent windows as informative. Missed: windows past their "
        "deadline."
    )
    body = "\n".join(["<h1>Back-test</h1>", *parts, f'<p class="small">{note}</p>'])
    return html_document("Back-test", _STYLE, body)
