"""Arrange a plan for a picture, and draw it as SVG: places as rows, runs of jobs, limits as ceilings. Pure."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

from pricing.money import Usd
from pricing.units import format_count
from router.planning.document.plan import Line, LineFallback, Plan, ShadowPrice
from router.planning.document.plan_usage import LimitUsage, UseStep
from router.planning.document.usage_totals import add_up_use
from router.render import drawing
from router.render.axes import LaneLayout, TimeScale, free_ticks
from router.render.drawing import fit_text, line, rect, text, text_width
from router.render.figures import MARKET_LETTERS, MARKET_WORDS, amount_of, clock, day, day_clock, money, stamp
from router.render.tables import clip_text

MOST_LANES = 40
SMALL_SHARE = 0.01
_MARKET_ORDER = {"reserved": 0, "on_demand": 1, "spot": 2}


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in which a job holds the same machines; ``lines`` of the plan touch in it."""

    start: datetime
    end: datetime
    outlook: bool
    cost_usd: Usd
    lines: int


@dataclass(frozen=True, slots=True)
class JobRun:
    """The bars of one job in one place on the same machines of one market, in time order."""

    job: str
    cloud: str
    region: str
    market: str
    accelerators: int
    accelerator: str
    bars: tuple[Bar, ...]

    @property
    def letter(self) -> str:
        return MARKET_LETTERS[self.market]

    @property
    def size(self) -> str:
        """Return the accelerators, such as ``32 H100``."""
        return f"{self.accelerators:,} {self.accelerator}"

    @property
    def cost_usd(self) -> Usd:
        return Usd.total(bar.cost_usd for bar in self.bars)

    @property
    def start(self) -> datetime:
        return self.bars[0].start

    @property
    def end(self) -> datetime:
        return self.bars[-1].end


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A limit that is full at some time or has a worth; ``worth`` says in words what more of it brings.

    ``is_part`` says that the use is that of some teams' jobs alone, ``kept`` in words which of it no bar
    shows: machines that are kept for fallbacks.
    """

    limit: LimitUsage
    worth: str
    is_part: bool
    kept: str

    @property
    def name(self) -> str:
        return limit_name(self.limit.limit)

    @property
    def size(self) -> str:
        """Return the amount with its unit, such as ``768 vCPUs`` or ``1 machine``."""
        return sized(self.limit.amount, self.limit.unit)


@dataclass(frozen=True, slots=True)
class Row:
    """A place; ``region`` is "" for limits of a whole cloud, and ``cloud`` "" for those of all clouds."""

    cloud: str
    region: str
    runs: tuple[JobRun, ...]
    ceilings: tuple[Ceiling, ...]


@dataclass(frozen=True, slots=True)
class Folded:
    """The places that are left out of a large picture because all their jobs are small; the table lists them.

    ``load`` is the number of accelerators that they hold.
    """

    places: int
    jobs: int
    cost_usd: Usd
    load: tuple[UseStep, ...]


@dataclass(frozen=True, slots=True)
class Gantt:
    """The picture of a plan: ``end`` is the last end of anything in it, at least the horizon."""

    plan: Plan
    end: datetime
    rows: tuple[Row, ...]
    folded: Folded | None = None


def gantt_of(plan: Plan) -> Gantt:
    """Return the picture of a plan.

    With more than :data:`MOST_LANES` runs, places whose jobs all cost under a hundredth of the orders are folded,
    cheapest first, until so many are left; a place whose limit has a worth stays. Where that is not enough, small jobs
    of the places that stay are folded too, cheapest first.
    """
    runs = runs_of(plan.lines)
    ceilings = _ceilings(plan)
    places = sorted({(run.cloud, run.region) for run in runs} | {place for place, _ in ceilings}, key=_by_place)
    rows = tuple(
        Row(
            *place,
            tuple(run for run in runs if (run.cloud, run.region) == place),
            tuple(ceiling for at, ceiling in ceilings if at == place),
        )
        for place in places
    )
    end = max([plan.horizon_end, *(line.end for line in plan.lines)])
    return _fold(Gantt(plan, end, rows))


def runs_of(lines: Iterable[Line]) -> tuple[JobRun, ...]:
    """Return the runs of all jobs by place, market, start and job.

    Lines of one gang and time are one bar (a gang may lie in several zones, or be of two machine types); bars that
    touch are one.
    """

    def key(x: Line) -> tuple[str, str, str, int, bool, str, datetime, datetime]:
        market = _MARKET_ORDER[x.market]
        return (x.job, x.cloud, x.region, market, x.kind == "outlook", x.gang, x.start, x.end)

    found: dict[tuple[str, str, str, str, int, str], list[Bar]] = {}
    for _, group in groupby(sorted(lines, key=key), key):
        gang = tuple(group)
        first = gang[0]
        size, kinds = sum(x.accelerators for x in gang), " + ".join(dict.fromkeys(x.accelerator for x in gang))
        bar = Bar(first.start, first.end, first.kind == "outlook", Usd.total(x.cost_usd for x in gang), len(gang))
        found.setdefault((first.job, first.cloud, first.region, first.market, size, kinds), []).append(bar)
    runs = (JobRun(*what, _joined(lane)) for what, bars in found.items() for lane in _without_overlaps(bars))
    return tuple(sorted(runs, key=lambda r: (*_by_place((r.cloud, r.region)), _MARKET_ORDER[r.market], r.start, r.job)))


def _without_overlaps(bars: Iterable[Bar]) -> Iterable[tuple[Bar, ...]]:
    groups: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda b: (b.start, b.end, b.outlook)):
        group = next((each for each in groups if each[-1].end <= bar.start), None)
        if group is None:
            groups.append([bar])
        else:
            group.append(bar)
    return (tuple(group) for group in groups)


def _joined(bars: Iterable[Bar]) -> tuple[Bar, ...]:
    joined: list[Bar] = []
    for bar in sorted(bars, key=lambda b: (b.start, b.end, b.outlook)):
        last = joined[-1] if joined else None
        if last is not None and last.end == bar.start and last.outlook == bar.outlook:
            joined[-1] = Bar(last.start, bar.end, bar.outlook, last.cost_usd + bar.cost_usd, last.lines + bar.lines)
        else:
            joined.append(bar)
    return tuple(joined)


def _by_place(place: tuple[str, str]) -> tuple[bool, str, bool, str]:
    """Return the order of places: by cloud and region, what holds for a whole cloud or for all clouds last."""
    cloud, region = place
    return (not cloud, cloud, not region, region)


def _ceilings(plan: Plan) -> tuple[tuple[tuple[str, str], Ceiling], ...]:
    prices = {price.limit: price for price in plan.shadow_prices}
    ordered = sorted(plan.usage.limits, key=lambda limit: (limit.limit not in prices, limit.limit))
    return tuple(
        (
            (each.cloud or "", each.region or ""),
            Ceiling(
                each,
                worth_in_words(prices[each.limit]) if each.limit in prices else "",
                bool(plan.restricted_to),
                _kept_words(each, plan.lines),
            ),
        )
        for each in ordered
    )


def _kept_words(limit: LimitUsage, lines: Sequence[Line]) -> str:
    """Return in words which use of a region's limit is kept for fallbacks: that while no line is under it."""

    def is_under(line: Line | LineFallback) -> bool:
        return (line.cloud, line.region) == (limit.cloud, limit.region) and limit.market in (None, line.market)

    if not any(x.fallback is not None and x.fallback.reserved and is_under(x.fallback) for x in lines):
        return ""
    under = [x for x in lines if is_under(x)]
    if all(any(x.start < step.end and step.start < x.end for x in under) for step in limit.use if step.used):
        return ""  # Which limits a line uses is not recorded: lines there may be all of it.
    return "kept for fallbacks where no bar is" if under else "kept for fallbacks"


def limit_name(name: str) -> str:
    """Return a limit's name as people know it: a reservation's own, an offer's place and machine."""
    if name.startswith("capacity ") and name.endswith(")") and "(" in name:
        return name[name.index("(") + 1 : -1]
    return name


def worth_in_words(price: ShadowPrice) -> str:
    """Return what more of a limit would bring, such as ``one machine more would save $270.50``."""
    unit = price.unit.removesuffix("s")
    if price.basis == "lp_estimate" or price.saves_usd is None:
        mark = "~" if price.basis == "lp_estimate" else ""
        return f"one {_unit(unit)} more would save {mark}{money(price.usd_per_unit)}"
    many = price.machines or price.raised_by
    noun = "machine" if price.machines else unit
    more = f"${price.raised_by:,} more" if noun == "USD" else f"{_number(many)} {_unit(noun)}{'s' * (many != 1)} more"
    saved = f"save {'' if price.basis == 'resolved' else '~'}{money(price.saves_usd)}"
    if not price.places:
        return f"{more} would {saved}"
    jobs = f"{_number(price.places)} more job{'s' * (price.places != 1)}"
    bill = saved if price.saves_usd.nanos >= 0 else f"add {money(-price.saves_usd)} to the bill"
    return f"{more} would place {jobs} and {bill}"


def sized(amount: float, unit: str) -> str:
    """Return an amount with its unit, such as ``768 vCPUs``."""
    noun = _unit(unit.removesuffix("s"))
    return f"{amount_of(amount)} {noun}{'' if amount == 1 else 's'}"


def _unit(unit: str) -> str:
    return {"vcpu": "vCPU", "USD": "dollar"}.get(unit, unit)


def _number(count: int) -> str:
    return "one" if count == 1 else f"{count:,}"


def _fold(gantt: Gantt) -> Gantt:
    lanes = sum(len(row.runs) for row in gantt.rows)
    if lanes <= MOST_LANES:
        return gantt
    costs = {job.job: job.cost_usd for job in gantt.plan.jobs}
    most = gantt.plan.orders_usd.dollars() * SMALL_SHARE
    folded: list[Row] = []
    for row in sorted(gantt.rows, key=lambda row: (Usd.total(run.cost_usd for run in row.runs), row.cloud, row.region)):
        if lanes <= MOST_LANES:
            break
        small = all(costs[run.job].dollars() < most for run in row.runs)
        if row.runs and small and not any(ceiling.worth for ceiling in row.ceilings):
            folded.append(row)
            lanes -= len(row.runs)
    rest = tuple(row for row in gantt.rows if row not in folded)
    small_runs = [run for row in rest for run in row.runs if costs[run.job].dollars() < most]
    small_runs.sort(key=lambda run: (run.cost_usd, run.job, run.start))
    others = frozenset(small_runs[: max(0, lanes - MOST_LANES)])
    if not folded and not others:
        return gantt
    rows = tuple(replace(row, runs=tuple(run for run in row.runs if run not in others)) for row in rest)
    return replace(
        gantt,
        rows=tuple(row for row in rows if row.runs or row.ceilings),
        folded=_folded([*(run for row in folded for run in row.runs), *others]),
    )


def _folded(runs: Sequence[JobRun]) -> Folded:
    load = add_up_use([UseStep(bar.start, bar.end, run.accelerators) for run in runs for bar in run.bars])
    places = len({(run.cloud, run.region) for run in runs})
    return Folded(places, len({run.job for run in runs}), Usd.total(run.cost_usd for run in runs), load)


_TOP = 40.0
_LANE = 23.0
_BAR = 16.5
_NARROWEST = 3.0
_STRIP = 13.0
_NOTE = 15.0
_LONGEST_NAME = 28
_APART = 10.0  # between what shares a lane
GANTTS = (LaneLayout(1078, 150, 66), LaneLayout(692, 150, 62), LaneLayout(340, 0, 46, narrow=True))


@dataclass(frozen=True, slots=True)
class _Label:
    """Words beside or in a bar; ``x`` is where they begin, or end for ``anchor`` e."""

    words: str
    x: float
    anchor: str
    left_x: float
    right_x: float
    halo: bool = True


@dataclass(frozen=True, slots=True)
class _PlacedRun:
    run: JobRun
    label: _Label
    left_x: float
    right_x: float


def draw_gantt(gantt: Gantt, layout: LaneLayout, job_url: Callable[[str], str] | None = None) -> str:
    """Return the picture as an SVG element. Each bar has data attributes with its job, place, market and times.

    With ``job_url`` the bars of a job lead there, for a pointer; for a keyboard the table of jobs does.
    """
    scale = TimeScale(gantt.plan.horizon_start, gantt.plan.horizon_end, gantt.end, layout.gutter, float(layout.width))
    y, body = _TOP, []
    for row in gantt.rows:
        parts, y = _draw_row(row, scale, layout, y, job_url)
        body += parts
    if gantt.folded is not None:
        parts, y = _draw_folded(gantt.folded, scale, layout, y)
        body += parts
    name = (
        "Gantt chart of the plan: rows are clouds and regions, bars are jobs coloured and lettered by market. "
        "The table of jobs below holds the same figures."
    )
    parts = [*_draw_axis(scale, layout, y), *body]
    return drawing.picture(name, layout.width, y + 2, parts, has_links=job_url is not None)


def _draw_axis(scale: TimeScale, layout: LaneLayout, bottom: float) -> list[str]:
    """Return the lines and words of both scales: the moment of the plan, round times, the horizon."""
    top = _TOP - 6
    parts = [line(scale.left_x, top, scale.left_x, bottom, "mk")]
    outlook = scale.has_outlook
    ends = "orders" if layout.narrow else f"orders end {clock(scale.horizon)}"
    free_from = scale.left_x + 34
    if layout.narrow:
        parts.append(text(scale.left_x, 12, f"plan {clock(scale.start)}", "b"))
        free_from = scale.left_x + 70
    else:
        parts += [text(scale.left_x, 12, "plan", "b"), text(scale.left_x, 28, clock(scale.start), "s")]
    free_to = scale.horizon_at - text_width(ends) - 10
    taken = scale.left_x if layout.narrow else scale.left_x + 36
    middle = (scale.horizon_at + scale.outlook_at) / 2
    ticks = [(x, _tick_words(moment, scale, layout)) for x, moment in scale.ticks(layout.spacing)]
    for x, (name, date) in free_ticks(ticks, itemgetter(0), taken, layout.width, middle):
        parts += [line(x, top, x, bottom, "g"), text(x, 28, name, "s m")]
        if date and free_from < x - text_width(date) / 2 and x + text_width(date) / 2 < free_to:
            parts.append(text(x, 12, date, "s m"))
    if outlook:
        words = "outlook" if layout.narrow else f"outlook to {day(scale.end)}"
        parts += [
            line(middle, 6, middle, bottom, "hz"),
            text(middle - 5, 12, ends, "s e"),
            text(middle + 5, 12, words, "s"),
        ]
    return parts


def _tick_words(moment: datetime, scale: TimeScale, layout: LaneLayout) -> tuple[str, str]:
    """Return the words of a tick, and the date above it where a day begins among hours."""
    midnight = clock(moment) == "00:00"
    if moment >= scale.horizon or (scale.horizon - scale.start > timedelta(days=4) and midnight):
        return day(moment), ""
    if not midnight:
        return clock(moment), ""
    return (day(moment), "") if layout.narrow else ("00:00", f"{moment:%a} {day(moment)}")


def _draw_row(
    row: Row, scale: TimeScale, layout: LaneLayout, y: float, job_url: Callable[[str], str] | None
) -> tuple[list[str], float]:
    parts = [line(0, y, layout.width, y, "g"), _place_name(row, layout, y)]
    at = y + (18 if layout.narrow else 0)
    lanes = _pack([_place_run(run, scale, layout) for run in row.runs])
    for number, lane in enumerate(lanes):
        for placed in lane:
            drawn = _draw_run(placed, scale, at + number * _LANE)
            if job_url is not None:
                drawn = [drawing.element("a", "".join(drawn), href=job_url(placed.run.job), tabindex="-1")]
            parts += drawn
    at += len(lanes) * _LANE
    for ceiling in row.ceilings:
        # The first strip of a place without jobs lies beside the name of the place.
        named = not layout.narrow and at > y
        drawn, at = _draw_ceiling(ceiling, scale, at, named=named)
        parts += drawn
    least = y + (18 if layout.narrow else _LANE)
    return parts, max(at, least) + 9


def _place_name(row: Row, layout: LaneLayout, y: float) -> str:
    cloud, region = row.cloud or "all clouds", row.region or ("all regions" if row.cloud else "")
    room = (layout.width if layout.narrow else layout.gutter) - text_width(cloud) - 20
    words = drawing.element("tspan", html.escape(f"{cloud} "), cls="s") + html.escape(fit_text(region, room, bold=True))
    return drawing.element("text", words, x=6.0 if layout.narrow else 0.0, y=y + (14 if layout.narrow else 17), cls="b")


def _place_run(run: JobRun, scale: TimeScale, layout: LaneLayout) -> _PlacedRun:
    """Return a run with its label where it fits: in the longest bar, right of the last, left of the first."""
    drawn = [(span, bar.outlook) for bar in run.bars for span in _bar_spans(bar, scale)]
    spans = [span for span, _ in drawn]
    left, right = min(x for x, _ in spans), max(x for _, x in spans)
    name = clip_text(run.job, _LONGEST_NAME)
    short = f"{run.letter}  {name}"
    full = short if layout.narrow else f"{short} · {run.size}"
    widest, hatched = max(drawn, key=lambda pair: pair[0][1] - pair[0][0])
    for words in (full, short):
        if text_width(words) + 10 <= widest[1] - widest[0]:
            label = _Label(words, widest[0] + 6, "", *widest, halo=hatched)
            return _PlacedRun(run, label, left, right)
    for words in (full, short):
        need = text_width(words)
        if right + 6 + need <= scale.right_x:
            label = _Label(words, right + 6, "", right + 6, right + 6 + need)
            return _PlacedRun(run, label, left, label.right_x)
        if left - 6 - need >= scale.left_x:
            label = _Label(words, left - 6, "e", left - 6 - need, left - 6)
            return _PlacedRun(run, label, label.left_x, right)
    before, after = left - 6 - scale.left_x, scale.right_x - right - 6
    words = fit_text(short, max(before, after, 30.0))
    if after >= before:
        return _PlacedRun(run, _Label(words, right + 6, "", right + 6, scale.right_x), left, scale.right_x)
    return _PlacedRun(run, _Label(words, left - 6, "e", scale.left_x, left - 6), scale.left_x, right)


def _bar_spans(bar: Bar, scale: TimeScale) -> list[tuple[float, float]]:
    """Return where a bar is drawn, at least as wide as the narrowest."""
    spans = []
    for x1, x2 in scale.spans(bar.start, bar.end):
        left = min(x1, scale.right_x - _NARROWEST)
        spans.append((left, max(x2, left + _NARROWEST)))
    return spans


def _pack(runs: Sequence[_PlacedRun]) -> list[list[_PlacedRun]]:
    """Return the runs in as few lanes as go without anything meeting; a lane has runs of one market only."""
    lanes: list[list[_PlacedRun]] = []
    first = 0
    for number, placed in enumerate(runs):
        if number and placed.run.market != runs[number - 1].run.market:
            first = len(lanes)
        for at in range(first, len(lanes)):
            if all(
                placed.left_x >= other.right_x + _APART or placed.right_x + _APART <= other.left_x
                for other in lanes[at]
            ):
                lanes[at].append(placed)
                break
        else:
            lanes.append([placed])
    return lanes


def _draw_run(placed: _PlacedRun, scale: TimeScale, y: float) -> list[str]:
    run, parts = placed.run, []
    before: float | None = None
    for bar in run.bars:
        spans = _bar_spans(bar, scale)
        if before is not None and spans[0][0] - before > 1:
            parts.append(line(before, y + 13, spans[0][0], y + 13, "dash"))
        for x1, x2 in spans:
            width = max(x2 - x1 - 1.5, _NARROWEST - 1.5)
            words = drawing.title(_tooltip(run, bar))
            place = f"{run.cloud}/{run.region}"
            data = {"data_job": run.job, "data_place": place, "data_market": run.market, "data_size": run.size}
            times = {"data_start": stamp(bar.start), "data_end": stamp(bar.end), "data_lines": bar.lines}
            shape = "out" if bar.outlook else "bar"
            cls = f"{shape} {run.market}"
            parts.append(rect(x1 + 0.75, y + 4.75, width, _BAR, cls, words, rx=3, **data, **times))
        before = spans[-1][1]
    label = placed.label
    parts.append(text(label.x, y + 17, label.words, " ".join(filter(None, ("halo" * label.halo, label.anchor)))))
    return parts


def _tooltip(run: JobRun, bar: Bar) -> str:
    kind = ", outlook" if bar.outlook else ""
    times = f"{day_clock(bar.start)} to {day_clock(bar.end)} UTC"
    return f"{run.job}: {run.size}, {MARKET_WORDS[run.market]}{kind}, {times}, {money(bar.cost_usd)}"


def ceiling_in_words(ceiling: Ceiling) -> str:
    """Return a limit with its size and worth, such as ``Ceiling: p5, 1 machine; one machine more would save $2.00``."""
    rest = "the use of these jobs alone" if ceiling.is_part else ceiling.worth
    rest = rest or ("full at times; no worth was found" if ceiling.limit.full else "never full")
    kept = f"in use: {ceiling.kept}; " if ceiling.kept else ""
    return f"Ceiling: {ceiling.name}, {ceiling.size}; {kept}{rest}"


def _draw_ceiling(ceiling: Ceiling, scale: TimeScale, y: float, *, named: bool) -> tuple[list[str], float]:
    """Return the strip of use under a heavy line at the limit with its words, and where it ends."""
    top, bottom = y + 5, y + 5 + _STRIP
    parts = [text(0, bottom - 2, "in use", "s")] if named else []
    parts += _draw_use(ceiling.limit.use, ceiling.limit.amount, scale, bottom, ceiling.limit.market or "met")
    for x1, x2 in scale.spans(scale.start, scale.end):
        parts += [line(x1, top, x2, top, "mk"), line(x1, bottom, x2, bottom, "ax")]
    notes = _draw_note(ceiling_in_words(ceiling), scale, bottom - 1)
    return [*parts, *notes], bottom - 1 + _NOTE * len(notes) + 3


def _draw_use(use: Sequence[UseStep], whole: float, scale: TimeScale, bottom: float, cls: str) -> Iterator[str]:
    """Yield a bar for each step of a use over time, as high as its share of the whole."""
    for step in use:
        height = max(_STRIP * (min(step.used / whole, 1.0) if whole else 1.0), 0.5)
        for x1, x2 in scale.spans(step.start, step.end):
            yield rect(x1, bottom - height, max(x2 - x1, 0.5), height, f"use {cls}")


def _draw_note(words: str, scale: TimeScale, y: float) -> list[str]:
    lines = drawing.wrap_to_width(words, scale.right_x - scale.left_x - 12)
    return [text(scale.left_x + 6, y + _NOTE * number, line_words, "s") for number, line_words in enumerate(lines, 1)]


def _draw_folded(folded: Folded, scale: TimeScale, layout: LaneLayout, y: float) -> tuple[list[str], float]:
    """Return one row for all places with small jobs: how many, and the accelerators that they hold over time."""
    most = max((step.used for step in folded.load), default=0.0)
    words = (
        f"{format_count(folded.jobs, 'small job')} in {format_count(folded.places, 'place')}, "
        f"{money(folded.cost_usd)}, up to {most:,.0f} accelerators at once; the table lists them"
    )
    parts = [line(0, y, layout.width, y, "g")]
    if not layout.narrow:
        parts.append(text(0, y + 17, "small jobs", "b"))
    bottom = y + 5 + _STRIP
    notes = _draw_note(words, scale, bottom)
    return [*parts, *_draw_use(folded.load, most, scale, bottom, "met"), *notes], bottom + _NOTE * len(notes) + 9
