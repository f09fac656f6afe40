"""A plan as text: a table of 80 columns, a wide one with every line and move. Pure: a plan in, one string out."""

from __future__ import annotations

from pricing.money import Usd
from router.cli.text import MARKETS, columns, dollars, small_dollars, stamp, when, wrapped
from router.planning.changes import main_place
from router.planning.plan import JobSummary, Line, Plan
from router.planning.plan_json import plan_content

_SHOWN_LIMITS = 5


def table(plan: Plan) -> str:
    """One row a job, what was left out and how it could be placed, the limits that cost money."""
    rows = [_row(plan, job) for job in sorted(plan.jobs, key=_by_start) if job.finish is not None]
    header = ("JOB", "WHERE", "GPUS", "BUY", "START", "$/STEP", "COST")
    parts = [_head(plan)]
    if rows:
        widths = {"JOB": 19, "WHERE": 16, "GPUS": 9}
        parts.append(columns(header, rows, frozenset({"$/STEP", "COST"}), widths))
    parts.append(_totals(plan))
    parts += _footnotes(plan)
    parts += _left_out(plan)
    parts += _limits(plan)
    return "\n\n".join(p for p in parts if p) + "\n"


def wide(plan: Plan) -> str:
    """Every line and move, as wide as it needs to be."""
    header = (
        "JOB", "KIND", "WHERE", "MACHINE", "N", "BUY", "START", "END", "BILLED H",
        "$/H", "STEPS", "$/STEP", "COST", "PRICED",
    )  # fmt: skip
    rows = [_wide_row(line) for line in plan.lines]
    right = frozenset({"N", "BILLED H", "$/H", "STEPS", "$/STEP", "COST"})
    parts = [_head(plan), columns(header, rows, right, {})]
    if plan.moves:
        moves = [(m.job, m.what, m.source, m.to, f"{m.gib:,.1f}", m.month, dollars(m.cost_usd)) for m in plan.moves]
        parts.append(
            columns(("JOB", "MOVES", "FROM", "TO", "GIB", "MONTH", "COST"), moves, frozenset({"GIB", "COST"}), {})
        )
    parts += [_totals(plan), *_left_out(plan), *_limits(plan)]
    return "\n\n".join(p for p in parts if p) + "\n"


def _by_start(job: JobSummary) -> tuple[str, str]:
    return (job.start.isoformat() if job.start else "", job.job)


def _row(plan: Plan, job: JobSummary) -> tuple[str, ...]:
    own = [x for x in plan.lines if x.job == job.job]
    place = main_place(plan.lines, job.job)
    if place is None:
        return (job.job, "", "", "", "", "", "")
    kind = next(x.accelerator for x in own)
    gang = [x for x in own if x.gang == own[0].gang]
    market = "mix" if len(gang) > 1 else MARKETS[place.market]
    later = "" if any(x.kind == "order" for x in own) else "*"
    weak = "~" if any(x.weak for x in own) else ""
    return (
        job.job, f"{place.cloud}/{place.region}", f"{place.accelerators}x{kind.removesuffix('GB')}", market,
        when(job.start) + later, small_dollars(job.usd_per_step), weak + dollars(job.cost_usd).lstrip("$"),
    )  # fmt: skip


def _wide_row(line: Line) -> tuple[str, ...]:
    where = "/".join(p for p in (line.cloud, line.region, line.zone) if p)
    share = "" if line.share >= 1 else f" {line.share:.0%}"
    return (
        line.job, line.kind + share, where, line.instance_type, str(line.machines), line.market,
        stamp(line.start), stamp(line.end), f"{float(line.hours):.2f}",
        dollars(Usd(line.usd_per_hour.nanos)), f"{line.steps:,}",
        small_dollars(line.usd_per_step), ("~" if line.weak else "") + dollars(line.cost_usd), line.price_as_of,
    )  # fmt: skip


def _head(plan: Plan) -> str:
    name = plan_content(plan)["plan_id"]
    days = (plan.as_of - plan.book_as_of).days
    age = f", {days} days old" if days > 1 else ""
    return (
        f"{name} made for {stamp(plan.as_of)}, good until {stamp(plan.expires_at)}\n"
        f"prices of book {plan.book_digest[:12]}, {plan.book_as_of:%Y-%m-%d}{age}; "
        f"orders until {plan.horizon_end:%d %H:%MZ}, then outlook"
    )


def _totals(plan: Plan) -> str:
    placed = sum(1 for job in plan.jobs if job.finish is not None)
    words = {
        "optimal": "optimal within the gap asked",
        "feasible": "feasible",
        "infeasible": "nothing could be placed",
        "time_limit": "no plan found within the time limit",
    }[plan.status]
    if plan.unplaced and plan.lines and not plan.stage_one_proven:
        words += "; that no more could be placed is not proven"
    lines = [
        f"{placed} of {len(plan.jobs)} jobs placed, {words}"
        + ("; the time limit cut the search short" if plan.time_limit_hit else "")
    ]
    if not plan.lines:
        return lines[0]
    moves = Usd.total(m.cost_usd for m in plan.moves)
    lines += [
        f"total    {dollars(plan.cost_usd):>13}   orders {dollars(plan.orders_usd)}, moving data {dollars(moves)}",
        f"at least {dollars(plan.bound_usd):>13}   proven bound, gap {plan.gap:.2%}, asked {plan.gap_asked:.2%}",
    ]
    if plan.threshold_usd.nanos:
        lines.append(f"counted  {dollars(plan.threshold_usd):>13}   in the gap for stopping and starting (min_saving)")
    return "\n".join(lines)


def _footnotes(plan: Plan) -> list[str]:
    notes = []
    kinds = {job.job: {x.kind for x in plan.lines if x.job == job.job} for job in plan.jobs}
    if any(found == {"outlook"} for found in kinds.values()):
        notes.append("* starts after tonight's orders: an outlook")
    if any(x.weak for x in plan.lines):
        notes.append("~ rests on a weak price or risk: stepfare explain says why")
    if plan.lines:
        notes.append("START is day of the month and UTC; $/STEP counts reservations at their own price")
    return ["\n".join(notes)] if notes else []


def _left_out(plan: Plan) -> list[str]:
    if not plan.unplaced:
        return []
    parts = ["LEFT OUT"]
    for job in plan.unplaced:
        parts.append(wrapped(f"{job.job}: {job.reason}"))
        for r in job.relaxations:
            cost = f" ({dollars(r.cost_usd)})" if r.cost_usd is not None else ""
            parts.append(wrapped(f"it would fit with {r.change}: {r.detail}{cost}", "    "))
        if not job.relaxations:
            parts.append("    no change of a single rule is enough")
    return ["\n".join(parts)]


def _limits(plan: Plan) -> list[str]:
    shown = plan.shadow_prices[:_SHOWN_LIMITS]
    if not shown:
        return []
    lines = ["LIMITS THAT COST MONEY (what one more would save over the plan)"]
    for price in shown:
        basis = "" if price.basis == "resolved" else ", LP estimate"
        lines.append(
            wrapped(f"{dollars(price.usd_per_unit)} a {price.unit.removesuffix('s')}: {price.limit}{basis}", "  ")
        )
    return ["\n".join(lines)]
