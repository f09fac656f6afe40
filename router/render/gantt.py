"""Arrange a plan for a picture: places as rows, runs of jobs with their bars, limits as ceilings. Pure functions.

The page and the terminal draw the same :class:`Gantt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from pricing.money import Usd
from router.planning.document.plan import Line, LineFallback, Plan, ShadowPrice
from router.planning.document.plan_usage import LimitUsage, UseStep
from router.planning.document.usage_totals import add_up_use
from router.render.figures import MARKET_LETTERS, amount_of, money

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
