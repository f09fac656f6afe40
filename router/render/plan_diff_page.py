"""Draw the comparison of a plan with an earlier one: the cost by kind of change, then each job with its reason."""

from __future__ import annotations

from router.planning.document.plan import Plan
from router.render.drawing import in_widths
from router.render.pages import PageFrame, fill_template
from router.render.since_view import SinceView, bridge_of
from router.render.waterfall_svg import BRIDGES, draw_waterfall

_NAME = "Waterfall of what each kind of change adds to the cost"


def plan_diff_page(plan: Plan, digest: str, since: SinceView, frame: PageFrame | None = None) -> str:
    """Return the page as HTML; the same plans give the same bytes."""
    steps = bridge_of(since)
    return fill_template(
        "plan_diff.html",
        frame=frame,
        plan=plan,
        digest=digest,
        plan_id=f"plan-{digest[:12]}",
        since=since,
        drawings=in_widths(lambda layout: draw_waterfall(steps, "USD", layout, _NAME), BRIDGES),
    )
