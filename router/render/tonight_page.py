"""Draw the page "tonight" from a plan: what runs where, what it costs, what is late, at risk or left out."""

from __future__ import annotations

from markupsafe import Markup

from router.planning.plan import Plan
from router.render.drawing import element
from router.render.gantt_svg import MIDDLE, NARROW, WIDE, draw_gantt
from router.render.page_frame import PageFrame
from router.render.pages import fill_template
from router.render.tonight_view import BudgetRow, Tonight, tonight_of


def tonight_page(plan: Plan, frame: PageFrame | None = None) -> str:
    """Return the page as HTML; the same plan gives the same bytes."""
    night = tonight_of(plan)
    layouts = {"wide": WIDE, "middle": MIDDLE, "narrow": NARROW}
    return fill_template(
        "tonight.html",
        frame=frame,
        night=night,
        # Safe: every text in a drawing was escaped when it was drawn.
        drawings={name: Markup(draw_gantt(night.gantt, layout)) for name, layout in layouts.items()},
        budget_bar=lambda row: Markup(draw_budget(row)),
        fields=_raw_fields(night),
    )


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


def _carbon_fields(plan: Plan) -> tuple[tuple[str, str], ...]:
    if plan.carbon is None:
        return ()
    carbon = plan.carbon
    return (
        ("carbon.usd_per_tonne", str(carbon.usd_per_tonne)),
        ("carbon.grams_co2e", str(carbon.grams_co2e)),
        ("carbon.carbon_usd", str(carbon.carbon_usd)),
    )


def _commitment_fields(plan: Plan) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"commitments.{use.commitment}.{name}", str(usd))
        for use in plan.commitments
        for name, usd in (
            ("committed_usd", use.committed_usd),
            ("used_usd", use.used_usd),
            ("unused_usd", use.unused_usd),
            ("covered_usd", use.covered_usd),
        )
    )


def _raw_fields(night: Tonight) -> tuple[tuple[str, str], ...]:
    """Return fields of the plan's JSON as they stand there."""
    plan = night.plan
    return (
        ("plan_id", night.plan_id),
        ("digest", night.digest),
        ("status", plan.status),
        ("stage_one_proven", str(plan.stage_one_proven).lower()),
        ("time_limit_hit", str(plan.time_limit_hit).lower()),
        ("solver", plan.solver),
        ("cost_usd", str(plan.cost_usd)),
        ("orders_usd", str(plan.orders_usd)),
        ("usage.at_risk_usd", "none" if plan.usage is None else str(plan.usage.at_risk_usd)),
        ("threshold_usd", str(plan.threshold_usd)),
        *_carbon_fields(plan),
        *_commitment_fields(plan),
        ("bound_usd", str(plan.bound_usd)),
        ("gap", str(plan.gap)),
        ("gap_asked", str(plan.gap_asked)),
        ("book.digest", plan.book_digest),
        ("cuts", ", ".join(f"{cut.phase} by {cut.by}" for cut in plan.cuts) or "none"),
    )
