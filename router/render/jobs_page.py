"""Draw the pages of jobs: gangs as they are now, a job with its attempts over time, an attempt with all its records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from pricing.money import ZERO, Usd
from pricing.units import format_count
from router.controller.report.report import (
    AttemptReport,
    CostLine,
    GangOutlook,
    JobReport,
    JobsReport,
    sum_by_item,
)
from router.render import drawing
from router.render.axes import LaneLayout, TimeScale, free_ticks, time_words
from router.render.drawing import fit_text, in_widths, line, rect, text, text_width
from router.render.figures import MARKET_LETTERS, MARKET_WORDS, chance, day_clock, hours, money
from router.render.journal_words import describe_entry, describe_notice, describe_state
from router.render.pages import PageFrame, fill_template, time_of
from router.render.quote_page import QuoteListView
from router.render.tonight_page import planned_job_url
from router.state.records import Attempt

# Rows of each table; the rest is counted in words and is in the data.
MOST_LIVE, MOST_OVER, MOST_JOURNAL, MOST_RUNS = 400, 50, 300, 60
# Cells that a search looks at, beside the tags.
_SEARCHED = ("job", "team", "place", "machines", "state")
_ITEMS = {"machine": "machines", "disk": "disks", "egress": "moving data", "storage": "storage", "other": "other"}
_USES = {
    "": "use not recorded",
    "work": "training that counts",
    "startup": "start-up",
    "failed_launch": "failed launch",
    "checkpoint_overhead": "checkpoints",
    "restart_lost_work": "work that was lost",
    "idle_allocated": "idle",
    "overrun": "after the deadline",
    "commitment_unused": "commitment unused",
    "reservation_unused": "reservation unused",
}


def job_url(name: str) -> str:
    """Return the URL of a job's page; its name may hold any characters."""
    return f"/jobs/{quote(name, safe='')}"


def attempt_url(attempt: str) -> str:
    """Return the URL of an attempt's page."""
    return f"/attempts/{quote(attempt, safe='')}"


def gang_row(outlook: GangOutlook) -> dict[str, Any]:
    """Return the cells of a gang's row by name; all are text but its number and tags."""
    gang, attempt = outlook.gang, outlook.gang.attempt
    unknown = gang.unpriced
    tags = [
        word
        for word, holds in (
            ("silent", outlook.is_silent),
            ("under notice", outlook.is_noticed),
            ("late", outlook.is_late or gang.is_late),
            ("over its agreed cost", gang.order.is_over),
            ("stands still", gang.standstill is not None),
        )
        if holds
    ]
    over, is_paced = attempt.gone_at or attempt.created_at, outlook.paced_end is not None
    until = "not said" if outlook.until is None else ("~" if is_paced else "") + time_of(outlook.until)
    return {
        "attempt": attempt.id,
        "job": attempt.job,
        "url": job_url(attempt.job),
        "attempt_url": attempt_url(attempt.id),
        "team": attempt.team or "nobody’s",
        "number": attempt.number,
        "state": describe_state(outlook),
        "tags": tags,
        "place": f"{attempt.cloud}/{attempt.region}",
        "machines": machines_in_words(outlook),
        "ranks": f"{gang.calling} of {attempt.machines}",
        "quiet": "not heard yet" if gang.quiet is None else f"longest unheard {length(gang.quiet)}",
        "step": "not said" if gang.step is None else f"{gang.step:,}{_done(outlook)}",
        "saved": "none saved" if gang.saved_step is None else f"{gang.saved_step:,}",
        "rate": "unknown" if unknown else money(Usd(attempt.usd_per_hour.nanos)),
        "spent": "unknown" if unknown else money(gang.spent_usd),
        "until": until,
        "until_detail": "" if outlook.until is None else "at its pace now" if is_paced else "as planned",
        "deadline": "none" if outlook.deadline is None else time_of(outlook.deadline),
        "chance": _chance(outlook),
        "when": time_of(over),
        "message": "" if attempt.message in ("", attempt.reason) else attempt.message,
    }


def machines_in_words(outlook: GangOutlook) -> str:
    """Return machines with type and market, such as ``4 p5.48xlarge, 32 H100, spot``."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for node in outlook.gang.nodes:
        groups.setdefault((node.instance_type, node.accelerator, node.market.value), []).append(node.accelerators)
    words = [
        f"{len(counts)} {kind}, {sum(counts):,} {accelerator}, {MARKET_WORDS[market]}"
        for (kind, accelerator, market), counts in groups.items()
    ]
    return "; ".join(words) or format_count(outlook.gang.attempt.machines, "machine")


def length(duration: timedelta) -> str:
    """Return a length of time such as ``4 s``, ``12 min`` or ``9.6 h``."""
    seconds = duration.total_seconds()
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min" if seconds < 7200 else hours(duration)


def _done(outlook: GangOutlook) -> str:
    return "" if outlook.done is None else f", {math.floor(100 * outlook.done)} %"


def _chance(outlook: GangOutlook) -> str:
    """Return whether the deadline was met, or how likely the plan said that it would be."""
    if outlook.deadline is None:
        return "no deadline"
    early = outlook.early
    if early is not None:
        return f"missed by {length(-early)}" if early < timedelta(0) else f"met, {length(early)} before"
    if not outlook.is_live and not outlook.gang.waits:
        return "not finished"
    return "chance not said" if outlook.promise.chance is None else f"on time {chance(outlook.promise.chance)}"


def select_gangs(report: JobsReport, search_text: str) -> JobsReport:
    """Return the gangs whose job, team, place, machines or state holds every word of a text, with their sums."""
    words = search_text.casefold().split()

    def fits(outlook: GangOutlook) -> bool:
        row = gang_row(outlook)
        text = " ".join((*(row[name] for name in _SEARCHED), *row["tags"])).casefold()
        return all(word in text for word in words)

    if not words:
        return report
    outlooks = tuple(each for each in report.outlooks if fits(each))
    gangs = tuple(each.gang for each in outlooks)
    return JobsReport(replace(report.status, gangs=gangs, spent_usd=Usd.total(g.spent_usd for g in gangs)), outlooks)


@dataclass(frozen=True, slots=True)
class JobsView:
    """The choice of somebody who looks at the page of jobs: the words that gangs hold, their order, own teams.

    ``sort`` is a key of :data:`SORTS`; any other sorts as "".
    """

    search_text: str = ""
    sort: str = ""
    own_teams: frozenset[str] = frozenset()

    @property
    def query(self) -> str:
        """Return the parts of a URL that ask for the same, "" for none."""
        words = f"&q={quote(self.search_text)}" if self.search_text else ""
        return f"{words}&sort={self.sort}" if self.sort in SORTS else words

    def order(self, outlooks: Iterable[GangOutlook]) -> list[GangOutlook]:
        """Return the gangs in this order; own teams first, then what waits, then the dearest, where none is chosen."""
        by_cost = sorted(outlooks, key=lambda outlook: (outlook.is_live, -outlook.gang.attempt.usd_per_hour.nanos))
        if self.sort in SORTS:
            return sorted(by_cost, key=SORTS[self.sort][1])
        return sorted(by_cost, key=lambda outlook: outlook.gang.attempt.team not in self.own_teams)


_LAST_OF_ALL = datetime.max.replace(tzinfo=UTC)
SORTS: Final[Mapping[str, tuple[str, Callable[[GangOutlook], tuple[object, ...]]]]] = {
    "job": ("job", lambda outlook: (outlook.gang.attempt.job,)),
    "team": ("team", lambda outlook: (outlook.gang.attempt.team, outlook.gang.attempt.job)),
    "place": ("place", lambda outlook: (outlook.gang.attempt.cloud, outlook.gang.attempt.region)),
    "until": ("end, the next first", lambda outlook: (outlook.until or _LAST_OF_ALL,)),
    "deadline": ("deadline, the next first", lambda outlook: (outlook.deadline or _LAST_OF_ALL,)),
    "spent": ("money spent, most first", lambda outlook: (-outlook.gang.spent_usd.nanos,)),
}


def live_view(report: JobsReport, view: JobsView) -> dict[str, object]:
    """Return what the part of the page that is refreshed is filled with."""
    live = sorted(report.live, key=lambda outlook: -outlook.gang.attempt.usd_per_hour.nanos)
    both = view.order((*report.waiting, *report.live))
    shown = both[:MOST_LIVE]
    return {
        "report": report,
        "wanted": view.search_text,
        "sort": view.sort if view.sort in SORTS else "",
        "sorts": {"": "waiting first, then dearest", **{name: words for name, (words, _) in SORTS.items()}},
        "order": _order_words(view),
        "query": view.query,
        "now": report.status.now,
        "rows": [gang_row(each) for each in shown],
        "more": len(both) - len(shown),
        "silent": [each for each in live if each.is_silent],
        "noticed": [each for each in live if each.is_noticed],
        "late": [each for each in (*live, *report.waiting) if each.is_late],
    }


def _order_words(view: JobsView) -> str:
    if view.sort in SORTS:
        return f"Sorted by {SORTS[view.sort][0]}"
    own = " and ".join(sorted(view.own_teams))
    return f"Team {own} first; what waits first, then dearest first" if own else "What waits first, then dearest first"


def jobs_fragment(report: JobsReport, *, refreshing: bool, view: JobsView | None = None) -> str:
    """Return the part of the page of jobs that changes: sentence, tiles, and the table of gangs."""
    view = view or JobsView()
    found = select_gangs(report, view.search_text)
    return fill_template("jobs_live.html", refreshing=refreshing, polls=True, **live_view(found, view))


def jobs_page(
    report: JobsReport, frame: PageFrame | None = None, *, refreshing: bool = True, view: JobsView | None = None
) -> str:
    """Return the page of all gangs, or of those that somebody looks at; with a frame it refreshes itself."""
    view = view or JobsView()
    report = select_gangs(report, view.search_text)
    over = report.over
    return fill_template(
        "jobs.html",
        frame=frame,
        refreshing=refreshing and frame is not None,
        polls=frame is not None,
        over=[gang_row(each) for each in over[:MOST_OVER]],
        more_over=len(over) - len(over[:MOST_OVER]),
        **live_view(report, view),
    )


def timeline_of(run: Sequence[AttemptReport], now: datetime) -> Timeline:
    """Return the attempts of one order as a timeline."""
    bars = []
    for report in run:
        outlook, attempt = report.outlook, report.outlook.gang.attempt
        nodes = outlook.gang.nodes
        start = attempt.made_at or attempt.created_at
        end = (attempt.gone_at or start) if attempt.phase.is_over else max(now, start)
        accelerators = sum(node.accelerators for node in nodes)
        bars.append(
            TimelineBar(
                number=attempt.number,
                place=f"{attempt.cloud}/{attempt.region}",
                market=nodes[0].market.value if nodes else "on_demand",
                size=f"{accelerators:,} {nodes[0].accelerator}" if nodes else format_count(attempt.machines, "machine"),
                start=start,
                end=max(end, start),
                is_live=outlook.is_live,
                notices=tuple(notice.heard_at for notice in report.notices),
                saves=tuple(entry.at for entry in report.journal if entry.what == "saved"),
            )
        )
    last = run[-1].outlook
    runs_on = last.is_live or last.gang.waits
    return Timeline(tuple(bars), now if runs_on else None, last.deadline, last.gang.waits)


def job_page(
    report: JobReport,
    frame: PageFrame | None = None,
    tonight_url: str = "",
    quotes: QuoteListView | None = None,
) -> str:
    """Return the page of a job: where it runs and until when, its attempts over time, and what they cost.

    ``tonight_url``: where tonight's plan shows it, if that is not the plan that ordered its last run. ``quotes`` are
    those of the job.
    """
    run = report.runs[-1]
    timeline = timeline_of(run, report.now)
    earlier = list(reversed(report.runs[:-1]))
    return fill_template(
        "job.html",
        frame=frame,
        report=report,
        last=report.last,
        row=gang_row(report.last.outlook),
        attempts=[(gang_row(each.outlook), each, _span(each), _waste(each.costs)) for each in run],
        notices=[(each, describe_notice(each)) for one in run for each in one.notices],
        saves=sum(len(bar.saves) for bar in timeline.bars),
        timeline=timeline,
        markets=[(market, MARKET_WORDS[market], MARKET_LETTERS[market]) for market in markets_drawn(timeline.bars)],
        drawings=in_widths(lambda layout: draw_timeline(timeline, layout), TIMELINES),
        earlier=[(gang_row(one[-1].outlook), one, _total(one)) for one in earlier[:MOST_RUNS]],
        more_earlier=len(earlier) - len(earlier[:MOST_RUNS]),
        items=_item_rows(run),
        run_usd=_total(run),
        attempt_url=attempt_url,
        quotes=quotes,
        tonight_url=tonight_url,
        planned_url=planned_job_url(f"plan-{run[-1].outlook.gang.attempt.plan[:12]}", report.name),
    )


def attempt_page(report: AttemptReport, now: datetime, frame: PageFrame | None = None) -> str:
    """Return the page of an attempt: machines, notices, the journal in words, exact costs by item."""
    attempt = report.outlook.gang.attempt
    journal = report.journal[-MOST_JOURNAL:]
    return fill_template(
        "attempt.html",
        frame=frame,
        report=report,
        attempt=attempt,
        now=now,
        row=gang_row(report.outlook),
        span=_span(report),
        notices=[(each, describe_notice(each)) for each in report.notices],
        journal=[(entry.at, describe_entry(entry), entry.what) for entry in journal],
        more_journal=len(report.journal) - len(journal),
        costs=[_cost_cells(line) for line in report.costs],
        sums=_item_sums(report.costs),
        market_words=MARKET_WORDS,
        fields=_raw_fields(attempt),
        attempt_url=attempt_url,
    )


def _span(report: AttemptReport) -> tuple[str, str, str]:
    attempt = report.outlook.gang.attempt
    if attempt.made_at is None:
        return "no machine", "no machine", "none"
    if attempt.gone_at is None:
        return time_of(attempt.made_at), "runs", "so far"
    return time_of(attempt.made_at), time_of(attempt.gone_at), length(attempt.gone_at - attempt.made_at)


def _waste(costs: Sequence[CostLine]) -> str:
    wasted = [line for line in costs if line.waste]
    if not costs:
        return "not metered yet"
    return money(Usd.total(line.usd for line in wasted)) if wasted else "none"


def _total(run: Sequence[AttemptReport]) -> Usd:
    return Usd.total(each.spent_usd for each in run)


def _item_sums(costs: Sequence[CostLine]) -> list[tuple[str, Usd | None]]:
    """Return the sum of each item; None where no entry of it has a known price."""
    unknown = {item for item in {line.item for line in costs} if all(one.unpriced for one in costs if one.item == item)}
    return [(_ITEMS.get(item, item), None if item in unknown else usd) for item, usd in sum_by_item(costs).items()]


def _item_rows(run: Sequence[AttemptReport]) -> list[tuple[str, str, Usd | None, str]]:
    """Return attempt, item and money (None: unknown) of each item; an unmetered attempt has its machines so far."""
    rows: list[tuple[str, str, Usd | None, str]] = []
    for each in run:
        name = each.outlook.gang.attempt.id
        if not each.costs:
            rows.append((name, "machines until now, not metered yet", each.spent_usd, ""))
        for item, usd in sum_by_item(each.costs).items():
            unpriced = sum(line.unpriced for line in each.costs if line.item == item)
            note = format_count(unpriced, "entry", "entries") if unpriced else ""
            rows.append((name, _ITEMS.get(item, item), None if unpriced and usd == ZERO else usd, note))
    return rows


def _cost_cells(line: CostLine) -> tuple[CostLine, str, str, str]:
    use = _USES.get(line.use, line.use) if line.item == "machine" else ""
    return line, _ITEMS.get(line.item, line.item), use, f"{float(line.quantity):,.2f} {line.unit}"


_RAW_FIELDS = (
    *(
        "id",
        "plan",
        "gang",
        "start",
        "end",
        "choice",
        "number",
        "phase",
        "reason",
        "result",
        "engine",
        "policy",
        "resumes",
    ),
    *("first_step", "last_step", "kept_step", "usd_per_hour", "max_usd_per_hour", "at_risk_usd"),
)
_EMPTY_WORDS = {"policy": "not recorded", "last_step": "not said", "kept_step": "not said"}


def _raw_fields(attempt: Attempt) -> Iterator[tuple[str, str]]:
    for name in _RAW_FIELDS:
        value = getattr(attempt, name)
        if value in ("", None):
            yield name, _EMPTY_WORDS.get(name, "none")
        else:
            yield name, value.isoformat() if isinstance(value, datetime) else str(value)


_TOP = 40.0
_LANE = 34.0
_BAR = 17.0
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One attempt: its number, place, market and machines from ``start`` to ``end``, with marks in between."""

    number: int
    place: str
    market: str
    size: str
    start: datetime
    end: datetime
    is_live: bool
    notices: tuple[datetime, ...]
    saves: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Attempts in order; ``now`` is drawn where the job is not over, the deadline where it has one."""

    bars: tuple[TimelineBar, ...]
    now: datetime | None
    deadline: datetime | None
    waits: bool

    @property
    def start(self) -> datetime:
        return min(bar.start for bar in self.bars)

    @property
    def end(self) -> datetime:
        """Return where the axis ends; a deadline far beyond the attempts is left to the words."""
        last = max([bar.end for bar in self.bars] + ([self.now] if self.now else []))
        last = max(last, self.start + _MINUTE)
        near = last + (last - self.start)
        return self.deadline if self.deadline is not None and last < self.deadline <= near else last


TIMELINES = (LaneLayout(1078, 190, 70), LaneLayout(692, 170, 66), LaneLayout(340, 0, 56, narrow=True))


def draw_timeline(timeline: Timeline, layout: LaneLayout) -> str:
    """Return the picture as an SVG element; a row is a place and market."""
    scale = TimeScale(timeline.start, timeline.end, timeline.end, layout.gutter, float(layout.width) - 8)
    places = list(dict.fromkeys((bar.place, bar.market) for bar in timeline.bars))
    row = _LANE + (16 if layout.narrow else 0)
    bottom = _TOP + len(places) * row
    parts = _draw_axis(timeline, scale, layout, bottom)
    names: list[str] = []
    tops = {place: _TOP + at * row for at, place in enumerate(places)}
    for (place, market), top in tops.items():
        parts.append(line(0, top, layout.width, top, "g"))
        words = fit_text(place, layout.width - 40 if layout.narrow else layout.gutter - 26, bold=True)
        y = top + (13 if layout.narrow else 20)
        names.append(text(6 if layout.narrow else 0, y, words, "b halo"))
        x = layout.width - 14 if layout.narrow else scale.left_x - 10
        names.append(text(x, y, MARKET_LETTERS[market], "s e halo"))
    shift = 16.0 if layout.narrow else 0.0
    before: tuple[float, float] | None = None
    for bar in timeline.bars:
        y = tops[bar.place, bar.market] + shift + 7
        left = scale.at(bar.start)
        if before is not None:
            parts += _draw_wait(before, (left, y + _BAR / 2))
        right = max(scale.at(bar.end), left + 3)
        parts += _draw_bar(bar, left, right, y, scale)
        before = (right, y + _BAR / 2)
    if timeline.waits and timeline.now is not None and before is not None:
        parts += _draw_wait(before, (scale.at(timeline.now), before[1]))
    parts += names
    name = (
        "Attempts of the job over time: rows are places, bars are attempts numbered in order, triangles are notices, "
        "ticks are checkpoints saved, dotted lines are waiting. The table below holds the same figures."
    )
    return drawing.picture(name, layout.width, bottom + 4, parts)


def _draw_wait(start: tuple[float, float], end: tuple[float, float]) -> list[str]:
    (x1, y1), (x2, y2) = start, end
    parts = [line(x1, y1, x2, y1, "hz")] if x2 - x1 > 1 else []
    return [*parts, line(x2, y1, x2, y2, "hz")] if abs(y2 - y1) > 1 else parts


def _draw_bar(bar: TimelineBar, left_x: float, right_x: float, y: float, scale: TimeScale) -> list[str]:
    until = "now" if bar.is_live else f"{day_clock(bar.end)} UTC"
    words = f"Attempt {bar.number}: {bar.size}, {bar.place}, {day_clock(bar.start)} to {until}"
    data = {"data_attempt": bar.number, "data_start": bar.start.isoformat(), "data_end": bar.end.isoformat()}
    parts = [rect(left_x, y, right_x - left_x, _BAR, f"bar {bar.market}", drawing.title(words), rx=3, **data)]
    labels = (f"{bar.number} · {bar.size}", f"{bar.number}")
    label = next((words for words in labels if text_width(words) + 10 <= right_x - left_x), None)
    if label is not None:
        parts.append(text(left_x + 6, y + 13, label))
    for at in bar.saves:
        x = scale.at(at)
        parts.append(line(x, y + _BAR - 4, x, y + _BAR + 3, "mkl"))
    return parts + [drawing.mark("drop", scale.at(at), y - 6, 4, "full inv") for at in bar.notices]


def _draw_axis(timeline: Timeline, scale: TimeScale, layout: LaneLayout, bottom: float) -> list[str]:
    top, parts = _TOP - 6, [line(scale.left_x, _TOP - 6, scale.left_x, bottom, "ax")]
    heavy = []
    if timeline.now is not None:
        heavy.append((scale.at(timeline.now), "now"))
    if timeline.deadline is not None and timeline.start <= timeline.deadline <= timeline.end:
        heavy.append((scale.at(timeline.deadline), "deadline"))
    taken = scale.left_x + (0 if layout.narrow else -20)
    for x, moment in free_ticks(scale.ticks(layout.spacing), time_words, taken, layout.width):
        parts += [line(x, top, x, bottom, "g"), text(x, 28, time_words(moment), "s m")]
    start = day_clock(timeline.start)
    parts.append(text(scale.left_x if layout.narrow else 0, 12, f"from {start}", "s"))
    free = (scale.left_x if layout.narrow else 0) + text_width(f"from {start}") + 8
    for x, words in sorted(heavy):
        half = text_width(words, bold=True) / 2
        at = min(x, layout.width - half)
        parts.append(line(x, top - 2, x, bottom, "mk"))
        if at - half >= free:
            parts.append(text(at, 12, words, "b m"))
            free = at + half + 8
    return parts


def markets_drawn(bars: Sequence[TimelineBar]) -> tuple[str, ...]:
    """Return the markets of the bars, for the key."""
    return tuple(market for market in MARKET_LETTERS if any(bar.market == market for bar in bars))
