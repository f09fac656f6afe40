"""Explanations of plans as text of 80 columns, and what changes to a job and its rules are worth. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pricing.carbon import GRAMS_PER_TONNE
from pricing.money import ZERO, Usd
from pricing.units import format_count, to_percent
from router.planning.document.plan import Alternative, JobSummary, Line, LineFallback, Plan
from router.planning.document.plan_facts import main_placement
from router.render.cost_terms_text import job_terms_text
from router.render.figures import stamp
from router.render.plan_text import (
    describe_fallback,
    describe_placed,
    describe_relaxation,
    describe_shadow_price,
    describe_standing,
    measuring_lines,
)
from router.render.speed_text import describe_speed
from router.render.tables import (
    MARKETS,
    PLAIN,
    Screen,
    describe_price_date,
    format_day_time,
    format_difference,
    format_step_price,
    format_table,
    format_timestamp,
    format_usd,
    wrap_text,
)

if TYPE_CHECKING:
    from router.planning.what_if.constraint_prices import ConstraintPrice
    from router.planning.what_if.gang_worth import GangCase, GangFigures, GangWorth

DROPPED_WORDS = {
    "advisory": "cannot be ordered from here",
    "capacity": "too few machines to be had",
    "cloud": "cloud not allowed",
    "core": "no on-demand core beside it",
    "egress cap": "over the egress cap",
    "egress unknown": "cost of moving the data unknown",
    "fabric": "no RDMA fabric",
    "limit": "gang larger than a limit",
    "market": "market not wanted",
    "max price": "dearer than max_price",
    "placement": "against its placement",
    "reservation": "in no reservation of its cloud",
    "residency": "not where the data may be",
    "shape": "another number of machines",
    "size": "gang is no whole number of machines",
    "speed": "speed unknown or does not fit in memory",
    "too risky": "interrupted too often",
    "too slow": "over 90 days of run time",
}

_WORTH_RIGHT = frozenset({"COST", "MORE", "FALLBACK", "SURE"})
_HALF_CENT = 5_000_000  # nano-dollars
_NUMBERS = ("on_time_probability", "fallback_probability", "interruptions_per_hour")
_HOURS = {"+1h": "deadline an hour later", "-1h": "deadline an hour earlier"}
_ENDS = {"low": "pool at the lower end", "high": "pool at the upper end"}
_WAITS = 1.05  # of the expected speed, from which a gang's speed without waits is named


def plan_text(plan: Plan) -> str:
    """Return the reason of each placement in a sentence or two, followed by the limits."""
    parts = [_summary(plan, job) for job in plan.jobs]
    if plan.shadow_prices:
        lines = ["What more of a limit would bring over the plan:"]
        lines += [wrap_text(f"{describe_shadow_price(price)}: {price.limit}", "  ") for price in plan.shadow_prices]
        parts.append("\n".join(lines))
    parts.append("stepfare explain FILE JOB says more of one job")
    return "\n\n".join(parts) + "\n"


def _summary(plan: Plan, job: JobSummary) -> str:
    place = main_placement(plan.lines, job.job)
    if place is None:
        unplaced = next(u for u in plan.unplaced if u.job == job.job)
        preempted = f"; {job.preemption}" if job.preemption is not None else ""
        return wrap_text(f"{job.job}: left out: {unplaced.reason}{preempted}")
    text = f"{job.job}: {place}, {format_usd(job.cost_usd)}"
    if job.late is not None:
        text += f"; {job.late}"
    if job.preemption is not None:
        text += f"; {job.preemption}"
    if job.runner_up is not None:
        text += f"; {_compare(plan, job, job.runner_up)}"
    costly_rules = [c for c in job.constraint_costs if c.saving_usd.nanos > 0]
    if costly_rules:
        text += "; " + ", ".join(f"its {c.rule} costs {format_usd(c.saving_usd)}" for c in costly_rules)
    return wrap_text(text)


def _compare(plan: Plan, job: JobSummary, second: Alternative) -> str:
    more = second.cost_usd - job.cost_usd
    name = f"{second.cloud}/{second.region} {second.mix or second.instance_type} {second.market}"
    if more.nanos < 0 and not second.lacks and second.carbon_usd is not None and job.carbon_usd is not None:
        extra = second.carbon_usd - job.carbon_usd
        return f"{name} would save {format_usd(-more)}, and its carbon counts {format_usd(extra)} more"
    covered = covered_of(plan, job.job)
    if covered.nanos and not second.lacks:
        left = format_usd(job.cost_usd - covered)
        return f"next best {name} for {format_usd(second.cost_usd)}, where {left} is left to pay here"
    if more.nanos < 0:
        return f"{name} would save {format_usd(-more)}" + (
            f" but {second.lacks}" if second.lacks else ", within the gap of the plan"
        )
    return f"next best {name}, {format_usd(more)} dearer"


def covered_of(plan: Plan, job: str) -> Usd:
    """Return how much of a job's cost commitments cover."""
    return Usd.total(part.covered_usd for use in plan.commitments for part in use.jobs if part.job == job)


def job_text(plan: Plan, name: str, quoted: str = "", screen: Screen = PLAIN) -> str:
    """Return the full explanation of one job.

    It covers the placement, the runner-up, alternatives, costs of rules, rejected offers and doubts. ``quoted`` is the
    comparison with a quote.
    """
    job = next(j for j in plan.jobs if j.job == name)
    parts = [_result(plan, job)]
    lines = [x for x in plan.lines if x.job == name]
    if lines:
        speeds = dict.fromkeys(describe_speed(speed) for speed in plan.usage.speeds if speed.job == name)
        own = [_lines(lines, screen, due=job.deadline is not None), *(wrap_text(words, "  ") for words in speeds)]
        parts.append("\n".join([*own, *measuring_lines(plan, name), *_learned(plan, lines)]))
    terms = job_terms_text(plan, name)
    if terms:
        parts.append(terms)
    moves = [m for m in plan.moves if m.job == name]
    if moves:
        rows = [(m.what, m.source, m.to, f"{m.gib:,.1f}", format_usd(m.cost_usd)) for m in moves]
        header = ("MOVES", "FROM", "TO", "GIB", "COST")
        parts.append(format_table(header, rows, frozenset({"GIB", "COST"}), {}, screen))
    if job.alternatives:
        parts.append(_alternatives(job, screen))
    parts += _rules(job)
    if job.dropped:
        parts.append(_dropped(job))
    if job.notes:
        parts.append("\n".join(["What to doubt", *(wrap_text(note, "  ") for note in job.notes)]))
    if quoted:
        parts.append(wrap_text(quoted))
    return "\n\n".join(parts) + "\n"


def _result(plan: Plan, job: JobSummary) -> str:
    head = [f"{job.job} (team {job.team})"]
    if job.preemption is not None:
        head.append(wrap_text(str(job.preemption), "  "))
    head += [f"  fair share of {describe_standing(team)}" for team in plan.fair_share if team.team == job.team]
    if job.finish is None:
        unplaced = next(u for u in plan.unplaced if u.job == job.job)
        head.append(wrap_text(f"left out: {unplaced.reason}", "  "))
        head += _placement_type(plan, job.job)
        head += [wrap_text(describe_relaxation(r), "  ") for r in unplaced.relaxations]
        return "\n".join(head)
    steps = format_count(job.steps, "step")
    head += _placement_type(plan, job.job)
    head.append(f"  {steps} for {format_usd(job.cost_usd)}, {format_step_price(job.usd_per_step)} $/step")
    for use in plan.commitments:
        covered = next((part.covered_usd for part in use.jobs if part.job == job.job), None)
        if covered is not None:
            head.append(wrap_text(f"commitment {use.commitment} covers {format_usd(covered)} of it", "  "))
    if job.late is not None and job.deadline is not None:
        head.append(wrap_text(str(job.late), "  "))
        head.append(
            f"  reserved until {format_timestamp(job.finish)}, planned with the deadline "
            f"{format_timestamp(job.late.planned_deadline)};\n"
            f"  {job.on_time_probability or 0:.1%} sure to be done by its own, {format_timestamp(job.deadline)}"
        )
    elif job.deadline is not None and job.on_time_probability is not None:
        head.append(
            f"  reserved until {format_timestamp(job.finish)}, deadline {format_timestamp(job.deadline)}; "
            f"at least {job.on_time_probability:.1%}\n"
            f"  sure to be done by the deadline ({to_percent(job.confidence)} asked)"
        )
    else:
        head.append(f"  reserved until {format_timestamp(job.finish)}, no deadline")
    if job.grams_co2e is not None and job.carbon_usd is not None:
        counted = format_usd(job.carbon_usd)
        head.append(f"  {job.grams_co2e / GRAMS_PER_TONNE:,.3f} t CO2e, counted as {counted} and never paid")
    if job.runner_up is not None:
        head.append(wrap_text(_compare(plan, job, job.runner_up), "  "))
    return "\n".join(head)


def _placement_type(plan: Plan, job: str) -> list[str]:
    found = next((t for t in plan.usage.placement_types if t.job == job), None)
    if found is None:
        return []
    if found.type == "none":
        return ["  no placement rule: the job file says so"]
    words = ""
    if found.basis == "derived" and found.type != "compute":
        words = "; gangs against it are left out" if found.used else "; advice, nothing is ruled out"
    return [wrap_text(f"{found.type}-bound ({found.basis}): {found.why}{words}", "  ")]


def _learned(plan: Plan, lines: list[Line]) -> list[str]:
    if plan.learned is None:
        return []
    gangs = {(line.job, line.accelerator, line.accelerators) for line in lines}
    found = [
        f"speed on {row.accelerators} {row.accelerator} measured on {row.basis}: {row.steps_per_hour:,.5g} steps/h, "
        f"±{row.spread:.0%} from run to run"
        for row in plan.learned.speeds
        if (row.job, row.accelerator, row.accelerators) in gangs
    ]
    places = {(line.cloud, line.region, line.zone, line.instance_type, line.market) for line in lines}
    for cloud, region, zone, instance_type, market in sorted(places, key=lambda place: tuple(p or "" for p in place)):
        rows = [
            row
            for row in plan.learned.pools
            if (row.cloud, row.region, row.instance_type, row.market) == (cloud, region, instance_type, market)
            and (row.zone is None or zone is None or row.zone == zone)
        ]
        if rows:
            found.append(
                f"{cloud}/{zone or region} {instance_type} {MARKETS[market]}: {sum(r.interruptions for r in rows):.1f} "
                f"interruptions counted in {sum(r.hours for r in rows):,.1f} hours of "
                f"{format_count(sum(r.runs for r in rows), 'gang')}"
            )
    return [wrap_text(words, "  ") for words in found]


def _lines(lines: list[Line], screen: Screen, *, due: bool) -> str:
    behind = merged_fallbacks(lines)
    bought: list[tuple[str, Line | LineFallback, Usd]] = [
        (x.kind, x, x.cost_usd if x.fallback is None else x.cost_usd - x.fallback.cost_usd) for x in lines
    ]
    bought += [("fallback", f, f.cost_usd) for f in behind]
    rows = [
        (
            kind,
            f"{x.cloud}/{x.region}",
            f"{x.machines}x {x.instance_type}",
            MARKETS[x.market],
            f"{float(x.hours):,.2f}",
            format_usd(Usd(x.usd_per_hour.nanos)),
            format_usd(cost),
        )
        for kind, x, cost in bought
    ]
    header = ("WHY HERE", "WHERE", "MACHINES", "BUY", "HOURS", "$/H", "COST")
    text = format_table(header, rows, frozenset({"HOURS", "$/H", "COST"}), {"WHERE": 18, "MACHINES": 20}, screen)
    first = lines[0]
    share = first.on_time_steps_per_hour / first.steps_per_hour
    speed = f"{first.steps_per_hour:,.5g} steps/h expected"
    paid = float(first.hours) + (0.0 if first.fallback is None else float(first.fallback.hours))
    # A gang that may have to wait for its machines is far faster while it has them.
    if paid > 0 and first.steps > _WAITS * paid * first.steps_per_hour:
        speed = f"{first.steps / paid:,.5g} steps/h while it has machines, {speed} with the waits for them"
    if share < 0.9999:
        speed += f"; time is reserved at {first.on_time_steps_per_hour:,.5g} steps/h so that the deadline holds"
    notes = [speed, f"{describe_price_date(first.price_as_of)}: {first.price_source}"]
    orders = {key: f.cost_usd for key, f in _by_place([line for line in lines if line.kind == "order"]).items()}
    notes += [describe_fallback(f, orders.get(key, ZERO), due=due) for key, f in _by_place(lines).items()]
    return "\n".join([text, *(wrap_text(note, "  ") for note in notes)])


def merged_fallbacks(lines: Sequence[Line]) -> list[LineFallback]:
    """Return each fallback of the lines once, with the hours and dollars of all of them."""
    return list(_by_place(lines).values())


def _by_place(lines: Sequence[Line]) -> dict[tuple[str, str, str], LineFallback]:
    fallbacks: dict[tuple[str, str, str], list[LineFallback]] = {}
    for f in (line.fallback for line in lines if line.fallback is not None):
        fallbacks.setdefault((f.cloud, f.region, f.instance_type), []).append(f)
    return {
        place: replace(
            same[0],
            hours=sum((f.hours for f in same), Fraction(0)),
            cost_usd=Usd.total(f.cost_usd for f in same),
        )
        for place, same in fallbacks.items()
    }


def _alternatives(job: JobSummary, screen: Screen) -> str:
    rows = [
        (
            f"{a.cloud}/{a.region}",
            f"{a.machines} of two types" if a.mix else f"{a.machines}x {a.instance_type}",
            MARKETS[a.market],
            format_usd(a.cost_usd),
            format_difference(a.cost_usd - job.cost_usd) if job.finish else "",
            str(number) if a.lacks or a.mix else "",
        )
        for number, a in enumerate(job.alternatives, start=1)
    ]
    header = ("OTHERWISE", "MACHINES", "BUY", "COST", "MORE", "")
    text = format_table(header, rows, frozenset({"COST", "MORE"}), {"OTHERWISE": 20, "MACHINES": 24}, screen)
    words = ("; ".join(filter(None, (a.mix, a.lacks))) for a in job.alternatives)
    notes = [wrap_text(f"{number} {note}", "  ") for number, note in enumerate(words, start=1) if note]
    return "\n".join([text, *notes])


def _rules(job: JobSummary) -> list[str]:
    if not job.constraint_costs:
        return []
    lines = ["What its rules cost, the other jobs held in place"]
    for rule in job.constraint_costs:
        if rule.saving_usd.nanos:
            lines.append(wrap_text(f"{rule.rule}: {format_usd(rule.saving_usd)}, else {rule.instead}", "  "))
        else:
            lines.append(f"  {rule.rule}: nothing")
    return ["\n".join(lines)]


def _dropped(job: JobSummary) -> str:
    lines = ["Offers that cannot serve it"]
    lines += [
        wrap_text(f"{row.offers:>5} {DROPPED_WORDS.get(row.reason, row.reason)}; cheapest {row.example}", "  ")
        for row in job.dropped
    ]
    return "\n".join(lines)


def prices_text(prices: Sequence[ConstraintPrice]) -> str:
    """Return a line for each rule: what the plan gains without it, and how sure that is."""
    if not prices:
        return "It has no rule to price.\n"
    lines = ["What its rules cost the plan, planned again without each; others may move"]
    lines += [wrap_text(f"{price.rule}: {_gain(price)}", "  ") for price in prices]
    return "\n".join(lines) + "\n"


def _gain(price: ConstraintPrice) -> str:
    sure = "" if price.basis == "resolved" else "at least "
    money = format_usd(price.saves_usd) if price.saves_usd.nanos else "nothing"
    gain = sure + (describe_placed(price.places, price.saves_usd) if price.places else money)
    if price.instead:
        gain += f", else {price.instead}"
    if price.basis == "resolved":
        return gain
    return f"{gain} (the search did not close: {format_usd(price.gap_usd)} are open)"


def worth_text(worth: GangWorth, screen: Screen = PLAIN) -> str:
    """Return a row for the gang as planned and for each change, and in words what is refused."""
    title = (
        f"What changes are worth on {worth.gang}, begun {format_day_time(worth.start)}: this gang alone, other jobs "
        f"held fixed"
    )
    if worth.shared:
        title += "; the plan gives some steps to other gangs, here it does them all"
    parts = [wrap_text(title)]
    planned = worth.planned.figures
    if planned is not None:
        rows = [_row(_label(worth, worth.planned), planned, planned)]
        rows += [_row(_label(worth, case), case.figures, planned) for case in worth.changed if case.figures is not None]
        header = ("IF", "COST", "MORE", "FALLBACK", "SURE", "UNTIL")
        parts.append(format_table(header, rows, _WORTH_RIGHT, {}, screen))
        legend = (
            "UNTIL: when the time ends that is reserved for it, in whole slots in a plan; SURE: to be done by then; "
            "lower and upper end: of the 80 % interval of its interruptions; as planned, far worse pools count as well"
        )
        parts.append(wrap_text(legend, "  "))
    refused = [case for case in (worth.planned, *worth.changed) if case.figures is None]
    parts += [wrap_text(f"{_label(worth, case)}: {case.refused}", "  ") for case in refused]
    return "\n".join(parts) + "\n"


def unknown_text(reason: str) -> str:
    """Return why it is not known what changes are worth to a job, and what would tell."""
    words = (
        f"What changes are worth on its gang is not known here: {reason}; --jobs, --limits and --book name the files"
    )
    return wrap_text(words) + "\n"


def _row(label: str, figures: GangFigures, planned: GangFigures) -> tuple[str, ...]:
    more = figures.cost_usd - planned.cost_usd
    if abs(more.nanos) < _HALF_CENT:
        more = ZERO
    fallback = figures.fallback_probability
    return (
        label,
        format_usd(figures.cost_usd),
        "" if figures is planned else format_difference(more),
        "none" if fallback is None else f"{fallback:.1%}",
        f"{figures.on_time_probability:.1%}",
        f"{figures.reserved_until:%m-%d %H:%M}",
    )


def _label(worth: GangWorth, case: GangCase) -> str:
    if case.kind == "none":
        return "all steps on it" if worth.shared else "as planned"
    if case.kind == "deadline":
        return _HOURS[case.value]
    if case.kind == "confidence":
        return f"asked {to_percent(float(case.value))} sure, not {to_percent(worth.confidence)}"
    rate = "" if case.figures is None else f", {case.figures.interruptions_per_hour:.2g}/h"
    return f"{_ENDS[case.value]}{rate}"


def worth_content(worth: GangWorth) -> dict[str, Any]:
    """Return the figures as JSON has them, amounts of money as decimal strings; null where a case is refused."""
    return {
        "job": worth.job,
        "gang": worth.gang,
        "start": stamp(worth.start),
        "shared": worth.shared,
        "cases": [_case_content(case, worth.planned.figures) for case in (worth.planned, *worth.changed)],
    }


def _case_content(case: GangCase, planned: GangFigures | None) -> dict[str, Any]:
    content: dict[str, Any] = {"change": case.kind, "to": case.value, "refused": case.refused}
    names = ("cost_usd", "difference_usd", "reserved_until", *_NUMBERS)
    figures = case.figures
    if figures is None or planned is None:
        return {**content, **dict.fromkeys(names)}
    return {
        **content,
        "cost_usd": str(figures.cost_usd),
        "difference_usd": str(figures.cost_usd - planned.cost_usd),
        "reserved_until": stamp(figures.reserved_until),
        **{name: getattr(figures, name) for name in _NUMBERS},
    }
