"""Draw the page "tonight" from a plan: what runs where, what it costs, what is late, at risk or left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from markupsafe import Markup

from router.planning.document.plan import Plan
from router.render.cost_terms_text import SHORT_COLUMNS
from router.render.drawing import element, in_widths
from router.render.figures import hours
from router.render.gantt_svg import GANTTS, draw_gantt
from router.render.pages import PageFrame, PageParts, fill_parts, fill_template
from router.render.planned_job_page import planned_job_url
from router.render.since_view import SinceView
from router.render.tonight_view import BudgetRow, Tonight, stated_words, tonight_of

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


def tonight_page(plan: Plan, frame: PageFrame | None = None, since: SinceView | None = None) -> str:
    """Return the page as HTML; the same plan gives the same bytes. Rows beyond :data:`ROWS` are folded."""
    return fill_template("tonight.html", frame=frame, **_values(plan, since, "", PlanUrls(), ROWS))


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
