"""Charts of a back-test as SVG: cost against deadline, cost against zones, one replayed window."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from router.backtest.scores import PooledWindows
from router.backtest.timeline import PolicyTimeline, ShownWindow
from router.render.backtest_text import ScoredCells
from router.render.history_plot import DASHES
from router.render.svg import COLOURS
from router.spot.simulator.bootstrap import bootstrap_interval
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.simulation import IDLE, ON_DEMAND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = "osD^vP*X"
_DEMAND, _DOWN, _UP, _OPTIMUM = "#3a3a3a", "#f3f1ec", "#b9dfc9", "#777777"
_MOST_FACETS = 6
_MOST_TICKS = 13  # labelled one by one
_MOST_ZONES = 16  # strips of availability
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # a name may hold dollar signs
}
Facet = Sequence[tuple[float, PooledWindows]]  # along the axis


def deadline_charts(scored: ScoredCells) -> str:
    """Return one chart per job and place with several deadlines, or "" without any."""
    facets: dict[str, list[tuple[float, PooledWindows]]] = {}
    for pooled, _ in scored:
        cell = pooled.cell
        at = cell.task.deadline_s / cell.task.work_s
        facets.setdefault(f"{cell.job}, {cell.place}", []).append((at, pooled))
    return _lines(facets, "deadline over work", "share of on-demand", shares=True)


def zone_charts(scored: ScoredCells) -> str:
    """Return one chart per job and deadline with several numbers of zones, or "" without any."""
    facets: dict[str, list[tuple[float, PooledWindows]]] = {}
    for pooled, _ in scored:
        cell = pooled.cell
        ratio = cell.task.deadline_s / cell.task.work_s
        facets.setdefault(f"{cell.job}, deadline {ratio:.3g} x work", []).append((float(cell.zones), pooled))
    return _lines(facets, "zones that may be used", "dollars a window", shares=False)


def _lines(facets: Mapping[str, Facet], along: str, up: str, *, shares: bool) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = {name: points for name, points in facets.items() if len({at for at, _ in points}) > 1}
    shown = dict(list(drawn.items())[:_MOST_FACETS])
    if not shown:
        return ""
    across = min(2, len(shown))
    down = -(-len(shown) // across)
    with mpl.rc_context({**_STYLE, "svg.hashsalt": f"stepfare {along}"}):
        figure = Figure(figsize=(4.9 * across + (1.6 if across == 1 else 0), 3.1 * down + 0.5), layout="constrained")
        axes = figure.subplots(down, across, squeeze=False).ravel()
        for ax in axes[len(shown) :]:
            ax.set_visible(False)
        for ax, (name, points) in zip(axes, shown.items(), strict=False):
            _facet(ax, sorted(points, key=lambda p: p[0]), shares=shares)
            ax.set_title(name, fontsize=9, loc="left")
            ax.set_xlabel(along)
            ax.set_ylabel(up)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False)
        chart = _svg(figure)
    if len(shown) < len(drawn):
        chart += f'<p class="small">{len(shown)} of {len(drawn)} charts of cost against {along} are shown.</p>'
    return chart


def _facet(ax: Axes, points: Facet, *, shares: bool) -> None:
    """Draw one line per policy."""
    names = list(points[0][1].played)
    spread = (points[-1][0] - points[0][0]) * 0.006
    for number, name in enumerate(names):
        x, y, low, high = [], [], [], []
        for at, pooled in points:
            usd = pooled.played[name].usd / (pooled.demand_usd if shares else 1.0)
            cost = bootstrap_interval(usd, pooled.stretch)
            x.append(at + spread * (number - (len(names) - 1) / 2))
            y.append(cost.mean)
            low.append(cost.mean - cost.low)
            high.append(cost.high - cost.mean)
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "ls": DASHES[number // len(COLOURS) % len(DASHES)],
            "marker": _MARKS[number % len(_MARKS)],
            "ms": 4,
            "lw": 1.3,
            "label": name,
        }
        if shares:
            ax.errorbar(x, y, yerr=(low, high), fmt="none", ecolor=style["color"], elinewidth=0.9, alpha=0.45)
        ax.plot(x, y, **style)
    least = [float((p.least_usd / (p.demand_usd if shares else 1.0)).mean()) for _, p in points]
    ax.plot([at for at, _ in points], least, color=_OPTIMUM, ls=":", lw=1.4, label="optimum")
    ax.grid(axis="y", color="#dddddd", lw=0.6)
    ax.margins(x=0.05, y=0.08)
    ticks = sorted({at for at, _ in points})
    if len(ticks) <= _MOST_TICKS:
        ax.set_xticks(ticks, [f"{at:.3g}" for at in ticks])
    if not shares:
        ax.yaxis.set_major_formatter("${x:,.0f}")


def runs_chart(example: ShownWindow, timelines: Sequence[PolicyTimeline]) -> str:
    """Return one strip per policy: zone of spot, on-demand, or nothing; ticks mark launches.

    Below, one strip per zone shows when spot was available.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    site = example.cell.sites[example.site]
    hours = site.series.tick_s / HOUR_S
    names = [zone.zone for zone in site.series.zones]
    used = [int(z) for z in dict.fromkeys(np.concatenate([t.zone for t in timelines]).tolist()) if z >= 0]
    zones_shown = sorted(used)[:_MOST_ZONES] or [0]
    hue = {zone: COLOURS[:6][number % 6] for number, zone in enumerate(sorted(used))}
    heights = [0.42 * len(timelines) + 0.1, 0.17 * len(zones_shown) + 0.1]
    with mpl.rc_context({**_STYLE, "svg.hashsalt": "stepfare runs"}):
        figure = Figure(figsize=(9.8, sum(heights) + 1.5), layout="constrained")
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
        for row, line in enumerate(timelines):
            _strip(top, row, line, hours, hue)
        top.set_yticks(range(len(timelines)), [f"{t.policy}  ${t.usd:,.2f}" for t in timelines])
        top.set_ylim(len(timelines) - 0.5, -0.5)
        for row, zone in enumerate(zones_shown):
            for begin, length in _stretches(example.up[zone]):
                below.broken_barh(
                    [(begin * hours, length * hours)], (row - 0.4, 0.8), color=hue.get(zone, _UP), alpha=0.45, lw=0
                )
        below.set_facecolor(_DOWN)
        below.set_yticks(range(len(zones_shown)), [names[zone] for zone in zones_shown], fontsize=8)
        below.set_ylim(len(zones_shown) - 0.5, -0.5)
        below.set_xlabel("hours since the start; below: when spot was available")
        end = example.cell.task.deadline_s / HOUR_S
        for ax in (top, below):
            ax.axvline(end, color="#c0392b", lw=1.2)
            ax.spines["left"].set_visible(False)
            ax.tick_params(axis="y", length=0)
        longest = max(end, max(line.kind.size for line in timelines) * hours)
        below.set_xlim(0, longest * 1.01)
        top.annotate(
            "deadline",
            (end, 1.0),
            xycoords=("data", "axes fraction"),
            ha="right",
            va="bottom",
            fontsize=8,
            color="#c0392b",
        )
        patches = [Patch(color=hue[zone], label=f"spot {names[zone]}") for zone in sorted(used)[:8]]
        patches += [
            Patch(color=_DEMAND, label="on demand"),
            Patch(facecolor="white", edgecolor="#bbbbbb", label="nothing"),
        ]
        figure.legend(handles=patches, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
        return _svg(figure)


def _strip(ax: Axes, row: int, line: PolicyTimeline, hours: float, hue: Mapping[int, str]) -> None:
    state = np.where(line.kind == ON_DEMAND, -2, np.where(line.kind == IDLE, -3, line.zone))
    edges = [0, *(np.flatnonzero(np.diff(state)) + 1).tolist(), state.size]
    for begin, after in pairwise(edges):
        zone = int(state[begin])
        if zone != -3:
            colour = _DEMAND if zone == -2 else hue[zone]
            ax.broken_barh([(begin * hours, (after - begin) * hours)], (row - 0.34, 0.68), color=colour, lw=0)
    ax.plot([0, state.size * hours], [row + 0.36] * 2, color="#bbbbbb", lw=0.6)
    at = np.flatnonzero(line.fresh) * hours
    ax.plot(at, np.full(at.size, row - 0.41), ls="", marker="v", ms=3, color="#222222", clip_on=False)


def _stretches(up: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Return begin and length of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], up, [False]]).astype(np.int8)))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _svg(figure: Figure) -> str:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Creator": None, "Date": None, "Format": None, "Type": None})
    text = stream.getvalue().decode()
    return text[text.index("<svg") :]
