"""Arrange and draw the page "tonight" of a plan, and the page of each of its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from urllib.parse import quote

from markupsafe import Markup

from pricing.money import ZERO, Usd
from pricing.units import format_count
from router.jobs.spec import is_less_sure
from router.planning.document.cost_terms import add_terms
from router.planning.document.limit_peaks import LimitPeak, limit_peaks
from router.planning.document.plan import JobSummary, Line, LineFallback, Plan, Unplaced
from router.planning.document.plan_facts import JobPlacement, main_placement
from router.planning.document.plan_json import plan_content
from router.planning.document.plan_usage import JobCostTerms, TeamUsage
from router.planning.document.usage_totals import end_of_month
from router.render.cost_terms_text import SHORT_COLUMNS
from router.render.drawing import element, in_widths
from router.render.explain_text import DROPPED_WORDS, merged_fallbacks
from router.render.figures import MARKET_WORDS, amount_of, chance, day_clock, hours, percent, signed_money
from router.render.gantt import GANTTS, Gantt, draw_gantt, gantt_of, limit_name, sized, worth_in_words
from router.render.pages import PageFrame, PageParts, fill_parts, fill_template
from router.render.quote_page import QuoteListView
from router.render.since_view import SinceView

ROWS = 100


@dataclass(frozen=True, slots=True)
class PlanUrls:
    """The URLs of a plan's comparison, its jobs as CSV, itself as JSON, and all its rows; "" is none.

    Its ``jobs`` have pages of their own where the console shows it.
    """

    diff: str = ""
    csv: str = ""
    json: str = ""
    all: str = ""
    jobs: bool = False


def tonight_page(plan: Plan, since: SinceView | None = None) -> str:
    """Return the page as HTML; the same plan gives the same bytes. Rows beyond :data:`ROWS` are folded."""
    return fill_template("tonight.html", frame=None, **_values(plan, since, "", PlanUrls(), ROWS))


def tonight_parts(plan: Plan, digest: str, since: SinceView | None, urls: PlanUrls, rows: int = ROWS) -> PageParts:
    """Return the parts of the page for the console; ``digest`` is that of the whole plan."""
    return fill_parts("tonight.html", **_values(plan, since, digest, urls, rows))


def _values(plan: Plan, since: SinceView | None, digest: str, urls: PlanUrls, rows: int) -> dict[str, object]:
    night = tonight_of(plan, digest)

    def job_url(job: str) -> str:
        return planned_job_url(night.digest, job)

    link = job_url if urls.jobs else None
    return {
        "night": night,
        "since": since,
        "urls": urls,
        "rows": rows,
        "cost_columns": SHORT_COLUMNS,
        "stated": stated_words,
        "hours": hours,
        "job_url": job_url if urls.jobs else lambda _: "",
        "drawings": in_widths(lambda layout: draw_gantt(night.gantt, layout, link), GANTTS),
        "budget_bar": lambda row: Markup(draw_budget(row)),
        "fields": _raw_fields(night),
    }


def draw_budget(row: BudgetRow) -> str:
    """Return the bar of a budget: spent, orders and outlook on a track of the whole budget.

    Where they pass the budget, the track ends earlier and the bar goes on to the edge.
    """
    total = sum(row.parts)
    scale = 1 / max(total, 1.0)
    track = element("rect", width=f"{scale:.2%}", height=12, y=1, rx=2, style="fill:var(--grid)")
    at, bars = 0.0, [track]
    for share, cls in zip(row.parts, ("full met", "bar plan", "out plan"), strict=True):
        width = share * scale
        bars.append(element("rect", y=1, height=12, x=f"{at:.2%}", width=f"{width:.2%}", cls=cls))
        at += width
    if row.over:
        end = f"{scale:.2%}"
        bars.append(element("line", x1=end, x2=end, y1=-1, y2=15, cls="mk"))
    return element("svg", "".join(bars), height=14, width="100%", aria_hidden="true")


_FIELDS = (
    *("status", "stage_one_proven", "time_limit_hit", "solver"),
    *("cost_usd", "orders_usd", "usage.at_risk_usd", "threshold_usd"),
)
_CARBON = ("carbon.usd_per_tonne", "carbon.grams_co2e", "carbon.carbon_usd")
_OF_WHOLE_PLAN = frozenset({"threshold_usd", "bound_usd"})


def _raw_fields(night: Tonight) -> tuple[tuple[str, str], ...]:
    plan = night.plan

    def fields(*names: str) -> Iterator[tuple[str, str]]:
        for name in names:
            value = attrgetter(name)(plan)
            unknown = plan.restricted_to and name in _OF_WHOLE_PLAN
            words = str(value).lower() if isinstance(value, bool) else str(value)
            yield name, "known of the whole plan alone" if unknown else words

    whole = () if plan.restricted_to else ("committed_usd", "used_usd", "unused_usd")
    return (
        ("plan_id", night.plan_id),
        ("digest", night.digest),
        *fields(*_FIELDS, *(_CARBON if plan.carbon is not None else ())),
        *(
            (f"commitments.{use.commitment}.{name}", str(getattr(use, name)))
            for use in plan.commitments
            for name in (*whole, "covered_usd")
        ),
        *fields("bound_usd", "gap", "gap_asked"),
        ("book.digest", plan.book_digest),
        ("cuts", ", ".join(f"{cut.phase} by {cut.by}" for cut in plan.cuts) or "none"),
    )


_SHOWN_AT_RISK = 8
_SHOWN_RULES = 12
WORTH_SHOWING = 0.005  # dollars


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A team's budget; ``parts`` are the shares spent, ordered and in the outlook, ``share`` their sum.

    ``share`` is None where the budget is zero and something is spent.
    """

    usage: TeamUsage
    over: bool
    share: float | None
    parts: tuple[float, float, float]

    @property
    def together(self) -> str:
        """Return the share of the budget that is used up with orders and outlook, in words."""
        return "more than all" if self.share is None else f"~{percent(self.share)}"


@dataclass(frozen=True, slots=True)
class LateRow:
    """A job that ends ``after`` its deadline, or is less sure to be on time than it asks."""

    job: JobSummary
    after: timedelta

    @property
    def is_late(self) -> bool:
        return self.after > timedelta(0)


@dataclass(frozen=True, slots=True)
class RiskRow:
    """The expected cost of a job's orders, and the most that they may cost."""

    job: str
    where: str
    expected_usd: Usd
    at_risk_usd: Usd


@dataclass(frozen=True, slots=True)
class WorthRow:
    """A limit or a rule of a job, what the plan could do without it, and what that would save."""

    name: str
    detail: str
    instead: str
    done: str
    saves_usd: Usd
    mark: str = ""


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit that is full, nearly full or worth money: its size, its most use, for how long it is full, its worth."""

    name: str
    size: str
    used: str
    full_for: str
    worth: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A placed job of the table, with its lines of the plan."""

    job: JobSummary
    lines: Sequence[Line]

    @property
    def place(self) -> JobPlacement | None:
        return main_placement(self.lines, self.job.job)

    @property
    def where(self) -> str:
        return f"{self.place.cloud} {self.place.region}" if self.place is not None else "none"

    @property
    def machines(self) -> str:
        """Return accelerators, types and markets of the gang, such as ``32 H100, spot``."""
        if self.place is None:
            return "none"
        gang = [line for line in self.lines if line.gang == self.lines[0].gang]
        markets = " + ".join(dict.fromkeys(MARKET_WORDS[line.market] for line in gang))
        kinds = " + ".join(dict.fromkeys(line.accelerator for line in gang))
        mix = f" ({self.place.mix})" if self.place.mix else ""
        return f"{self.place.accelerators:,} {kinds}{mix}, {markets}"

    @property
    def weak(self) -> bool:
        return any(line.weak for line in self.lines)

    @property
    def outlook(self) -> bool:
        return not any(line.kind == "order" for line in self.lines)


@dataclass(frozen=True, slots=True)
class Tonight:
    """Everything that the page says, in its order."""

    plan: Plan
    plan_id: str
    digest: str
    gantt: Gantt
    jobs: tuple[JobRow, ...]
    left_out: tuple[Unplaced, ...]
    ordered_jobs: int
    order_moves_usd: Usd
    moves_usd: Usd
    expected_usd: Usd
    late: tuple[LateRow, ...]
    late_jobs: int
    least_sure: str
    budgets: tuple[BudgetRow, ...]
    without_budget: tuple[tuple[str, Usd], ...]
    at_risk: tuple[RiskRow, ...]
    other_risks: int
    other_risks_usd: Usd
    worths: tuple[WorthRow, ...]
    other_worths: int
    limits: tuple[LimitRow, ...]
    costs: tuple[JobCostTerms, ...]
    all_costs: JobCostTerms | None
    notes: tuple[str, ...]

    @property
    def placed(self) -> int:
        return len(self.jobs)

    @property
    def passed(self) -> int:
        return sum(row.over for row in self.budgets)

    @property
    def nearest(self) -> BudgetRow | None:
        """Return the budget of which the greatest share is used up."""
        return self.budgets[0] if self.budgets else None

    @property
    def month_end(self) -> datetime:
        """Return the first instant after the month for which budgets are counted."""
        return end_of_month(self.plan.as_of)


def tonight_of(plan: Plan, digest: str = "") -> Tonight:
    """Return what the page says about a plan; ``digest`` is that of the whole plan, where this is a part of it."""
    digest = digest or plan_content(plan)["digest"]
    lines_by_job = _lines_by_job(plan)
    placed = sorted((job for job in plan.jobs if job.finish is not None), key=lambda j: (j.start or plan.as_of, j.job))
    ordered = {line.job for line in plan.lines if line.kind == "order"}
    lines_usd = Usd.total(line.cost_usd for line in plan.lines if line.kind == "order")
    late = tuple(row for job in placed if (row := _late(job)) is not None)
    risks = _risks(lines_by_job)
    worths, costs = _worths(plan), plan.usage.cost_terms
    return Tonight(
        plan=plan,
        plan_id=f"plan-{digest[:12]}",
        digest=digest,
        gantt=gantt_of(plan),
        jobs=tuple(JobRow(job, lines_by_job.get(job.job, ())) for job in placed),
        left_out=plan.unplaced,
        ordered_jobs=len(ordered),
        order_moves_usd=plan.orders_usd - lines_usd,
        moves_usd=Usd.total(move.cost_usd for move in plan.moves),
        expected_usd=Usd.total(line.cost_usd for line in plan.lines if line.orderable),
        late=late,
        late_jobs=sum(row.is_late for row in late),
        least_sure=_least_sure(placed),
        budgets=_budgets(plan),
        without_budget=_without_budget(plan, lines_by_job),
        at_risk=risks[:_SHOWN_AT_RISK],
        other_risks=len(risks[_SHOWN_AT_RISK:]),
        other_risks_usd=Usd.total(row.at_risk_usd for row in risks[_SHOWN_AT_RISK:]),
        worths=worths[:_SHOWN_RULES],
        other_worths=len(worths[_SHOWN_RULES:]),
        limits=_limits(plan),
        costs=tuple(sorted(costs, key=lambda terms: (-terms.together_usd.nanos, terms.job))),
        all_costs=add_terms(costs, "All") if costs else None,
        notes=_notes(plan, lines_by_job),
    )


def _lines_by_job(plan: Plan) -> dict[str, tuple[Line, ...]]:
    own: dict[str, list[Line]] = {}
    for line in plan.lines:
        own.setdefault(line.job, []).append(line)
    return {job: tuple(lines) for job, lines in own.items()}


def _late(job: JobSummary) -> LateRow | None:
    """Return the job's row where it ends after its deadline or is less sure than it asks."""
    if job.finish is None or job.deadline is None:
        return None
    row = LateRow(job, job.finish - job.deadline)
    return row if row.is_late or is_less_sure(job.on_time_probability, job.confidence) else None


def _least_sure(placed: Sequence[JobSummary]) -> str:
    """Return the job that is least sure to be on time, with its chance; "" where no job has a deadline."""
    known = [(p, job) for job in placed if (p := job.on_time_probability) is not None]
    if not known:
        return ""
    probability, job = min(known, key=lambda pair: (pair[0], pair[1].job))
    as_asked = f"{chance(job.confidence)} asked" if is_less_sure(probability, job.confidence) else "as asked"
    return f"{job.job}, {chance(probability)}, {as_asked}"


def _budgets(plan: Plan) -> tuple[BudgetRow, ...]:
    rows = [_budget_row(team) for team in plan.usage.teams]
    return tuple(sorted(rows, key=lambda row: (row.share is not None, -(row.share or 0.0), row.usage.team)))


def _budget_row(team: TeamUsage) -> BudgetRow:
    over = team.together_usd > team.budget_usd
    whole = team.budget_usd.nanos
    if whole <= 0:
        return BudgetRow(team, over, None if over else 0.0, (0.0, 0.0, 0.0))
    parts = (team.spent_usd.nanos / whole, team.orders_usd.nanos / whole, team.outlook_usd.nanos / whole)
    return BudgetRow(team, over, team.together_usd.nanos / whole, parts)


def _without_budget(plan: Plan, lines_by_job: dict[str, tuple[Line, ...]]) -> tuple[tuple[str, Usd], ...]:
    """Return the teams without a budget that order something, with the cost of the orders' lines, dearest first."""
    known = {team.team for team in plan.usage.teams}
    sums: dict[str, Usd] = {}
    for job in plan.jobs:
        orders = [line.cost_usd for line in lines_by_job.get(job.job, ()) if line.kind == "order"]
        if job.team not in known and orders:
            sums[job.team] = sums.get(job.team, ZERO) + Usd.total(orders)
    return tuple(sorted(sums.items(), key=lambda item: (-item[1].nanos, item[0])))


def _risks(lines_by_job: dict[str, tuple[Line, ...]]) -> tuple[RiskRow, ...]:
    """Return what the orders of each job may cost at most, dearest first."""
    rows = []
    for job, lines in lines_by_job.items():
        orders = [line for line in lines if line.orderable]
        place = main_placement(orders, job)
        if place is not None:
            expected, most = (Usd.total(getattr(x, name) for x in orders) for name in ("cost_usd", "at_risk_usd"))
            rows.append(RiskRow(job, f"{place.cloud} {place.region}", expected, most))
    return tuple(sorted(rows, key=lambda row: (-row.at_risk_usd.nanos, row.job)))


def _worths(plan: Plan) -> tuple[WorthRow, ...]:
    """Return limits with a worth as the plan sorts them, then rules of jobs that cost money, dearest first."""
    details = {
        each.limit: ", ".join(
            filter(None, (each.kind, f"{each.cloud or ''} {each.region or ''}".strip(), sized(each.amount, each.unit)))
        )
        for each in plan.usage.limits
    }
    limits = [
        WorthRow(
            limit_name(price.limit),
            details.get(price.limit, "budget of a team" if price.unit == "USD" else "limit"),
            worth_in_words(price) if price.places else worth_in_words(price).split(" would ")[0],
            "",
            price.usd_per_unit if price.saves_usd is None else price.saves_usd,
            "" if price.basis == "resolved" else "~",
        )
        for price in plan.shadow_prices
    ]
    rules = [
        WorthRow(job.job, rule.rule, *_instead(rule.instead), rule.saving_usd)
        for job in plan.jobs
        for rule in job.constraint_costs
        if rule.saving_usd.dollars() >= WORTH_SHOWING
    ]
    rules.sort(key=lambda row: (-row.saves_usd.nanos, row.name, row.detail))
    return (*limits, *rules)


def _instead(words: str) -> tuple[str, str]:
    """Return where a job would run without a rule, and when it would be done, from the plan's words."""
    place, _, done = words.partition(", done ")
    parts = place.split("/")
    if len(parts) < 4:
        return place or "not said", done
    market = next((words for name, words in MARKET_WORDS.items() if parts[-1].startswith(name)), parts[-1])
    return f"{parts[0]} {' '.join(parts[1:-1])}, {market}", f"done {done}" if done else ""


def _limits(plan: Plan) -> tuple[LimitRow, ...]:
    ordered = sorted(limit_peaks(plan), key=lambda peak: (peak.price is None, -peak.share, peak.limit))
    return tuple(_limit_row(peak, restricted=bool(plan.restricted_to)) for peak in ordered)


def _limit_row(peak: LimitPeak, *, restricted: bool) -> LimitRow:
    unknown = "known of the whole plan alone" if restricted else "none found"
    return LimitRow(
        name=limit_name(peak.limit),
        size=sized(peak.amount, peak.unit),
        used=f"{amount_of(round(peak.peak, 1))}, {percent(peak.share)}",
        full_for=hours(peak.full_for) if peak.full_for else "not by these jobs" if restricted else "never",
        worth=unknown if peak.price is None else worth_in_words(peak.price),
    )


def stated_words(terms: JobCostTerms) -> str:
    """Return what the job file states in place of a default or a model."""
    return ", ".join(dict.fromkeys(f"{each.field} {each.value}" for each in terms.stated if not each.is_input))


def _notes(plan: Plan, lines_by_job: dict[str, tuple[Line, ...]]) -> tuple[str, ...]:
    notes = [f"Orders until {day_clock(plan.horizon_end)}"]
    if any(line.kind == "outlook" for line in plan.lines):
        notes[0] += ", then an outlook on a tighter scale"
    limits = [price for price in plan.shadow_prices if price.unit != "USD"]
    if len(limits) == 1:
        notes.append(f"One limit costs money: {limit_name(limits[0].limit)}")
    elif plan.lines and not plan.restricted_to:
        notes.append(f"{len(limits)} limits cost money" if limits else "No limit costs money")
    weak = sum(any(line.weak for line in lines) for lines in lines_by_job.values())
    if weak:
        notes.append(f"{format_count(weak, 'job')} {'rests' if weak == 1 else 'rest'} on weak price or risk data")
    return tuple(notes)


def planned_job_url(digest: str, job: str) -> str:
    """Return the URL of a job's page within a plan; its name may hold any characters."""
    return f"/plans/{digest}/jobs/{quote(job, safe='')}"


def planned_job_page(
    plan: Plan, digest: str, job: JobSummary, runs_url: str | None, frame: PageFrame, quotes: QuoteListView | None
) -> str:
    """Return the page of a job of the plan as HTML.

    ``runs_url`` is "" if it never ran, None if the reader may not know. ``quotes`` are those of the job.
    """
    name = job.job
    lines = [line for line in plan.lines if line.job == name]
    moves = [move for move in plan.moves if move.job == name]
    more, second = _next_best(job)
    left = next((left for left in plan.unplaced if left.job == name), None)
    return fill_template(
        "planned_job.html",
        frame=frame,
        plan=plan,
        plan_id=f"plan-{digest[:12]}",
        plan_url=f"/plans/{digest}",
        runs_url=runs_url,
        job=job,
        left=left,
        place=_place(lines, name),
        chance=chance(job.on_time_probability),
        asked=chance(job.confidence),
        next_more=more,
        next_words=second,
        bought=_bought(lines),
        market_words=MARKET_WORDS,
        moves_usd=Usd.total(move.cost_usd for move in moves),
        rules=[rule for rule in job.constraint_costs if rule.saving_usd.dollars() >= WORTH_SHOWING],
        dropped=[(row.offers, DROPPED_WORDS.get(row.reason, row.reason), row.example) for row in job.dropped],
        quotes=quotes,
        doubts=[note for note in job.notes if note],
    )


def _place(lines: Sequence[Line], name: str) -> str:
    place = main_placement(lines, name)
    if place is None:
        return ""
    kinds = " + ".join(dict.fromkeys(line.accelerator for line in lines if line.gang == lines[0].gang))
    return f"{place.cloud} {place.region} on {place.accelerators:,} {kinds}"


def _bought(lines: Sequence[Line]) -> list[tuple[str, Line | LineFallback, str, Usd]]:
    """Return what the plan buys for the job, then what it keeps behind it: the kind, the machines, when, the cost."""
    rows: list[tuple[str, Line | LineFallback, str, Usd]] = [
        (
            "order" if line.orderable else line.kind,
            line,
            f"{day_clock(line.start)} to {day_clock(line.end)}",
            line.cost_usd if line.fallback is None else line.cost_usd - line.fallback.cost_usd,
        )
        for line in lines
    ]
    rows += [("fallback", each, f"{each.probability:.0%} likely", each.cost_usd) for each in merged_fallbacks(lines)]
    return rows


def _next_best(job: JobSummary) -> tuple[str, str]:
    """Return how much more the best alternative costs and which it is, in words; "" where there is none."""
    second = job.runner_up
    if second is None or job.finish is None:
        return "", "nothing else serves it"
    where = f"{second.cloud} {second.region}, {second.accelerators:,} {second.accelerator}"
    words = f"{where}, {MARKET_WORDS[second.market]}"
    return signed_money(second.cost_usd - job.cost_usd), f"{words}; {second.lacks}" if second.lacks else words
