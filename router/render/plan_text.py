"""Plans as a table that fits the screen, as a wide table with every line and move, or in part: some jobs, and sums."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pricing.money import ZERO, Usd
from pricing.places import mixes_simulated_and_real
from pricing.units import format_count
from router.planning.document.gang_speeds import MOST_ADVISED
from router.planning.document.plan import (
    CommitmentUse,
    JobSummary,
    Line,
    LineFallback,
    Plan,
    Relaxation,
    ShadowPrice,
    TeamStanding,
    describe_mix,
)
from router.planning.document.plan_facts import EXPECTED_ONLY, main_placement
from router.planning.document.plan_json import plan_content
from router.planning.document.plan_usage import GangSpeed
from router.render.cost_terms_text import job_terms_table, team_terms_table
from router.render.record_table import RecordTable, TableColumn
from router.render.speed_text import advise_measuring
from router.render.tables import (
    MARKETS,
    PLAIN,
    Screen,
    format_day_time,
    format_step_price,
    format_table,
    format_timestamp,
    format_usd,
    wrap_text,
)

_SHOWN_LIMITS = 5
MIXED_CLOUDS_WARNING = (
    "this plan mixes a made-up cloud (sandbox) with real ones: its total is no money that anybody would bill"
)


def table(plan: Plan, screen: Screen = PLAIN) -> str:
    """Return one row per job, the unplaced jobs with what would place them, and the limits that cost money."""
    parts = [_head(plan), jobs_table(plan, plan.jobs, screen), _totals(plan)]
    parts += _footnotes(plan)
    parts += _late(plan)
    parts += _left_out(plan)
    parts += fair_share_lines(plan)
    parts += _limits(plan)
    return "\n\n".join(p for p in parts if p) + "\n"


def jobs_table(plan: Plan, jobs: Sequence[JobSummary], screen: Screen) -> str:
    """Return one row for each placed job of these; "" without any."""
    rows = [
        _row(plan, job)
        for job in sorted(jobs, key=lambda job: (job.start.isoformat() if job.start else "", job.job))
        if job.finish is not None
    ]
    header = ("JOB", "WHERE", "GPUS", "BUY", "START", "$/STEP", "COST")
    widths = {"JOB": 19, "WHERE": 16, "GPUS": 9}
    return format_table(header, rows, frozenset({"$/STEP", "COST"}), widths, screen) if rows else ""


def wide(plan: Plan, screen: Screen = PLAIN) -> str:
    """Return every line and move, as wide as needed."""
    speeds = {speed.gang: speed for speed in plan.usage.speeds}
    columns = _LINE_COLUMNS
    if speeds:
        columns = (*columns, TableColumn("", lambda line: speeds.get(line.gang), "SPEED", _speed_cell))
    if any(line.fallback is not None for line in plan.lines):
        columns = (*columns, TableColumn("", lambda line: line.fallback, "FALLBACK", _wide_fallback))
    parts = [_head(plan), RecordTable(columns).text(plan.lines, screen, wide=True)]
    if plan.moves:
        moves = [(m.job, m.what, m.source, m.to, f"{m.gib:,.1f}", m.month, format_usd(m.cost_usd)) for m in plan.moves]
        names = ("JOB", "MOVES", "FROM", "TO", "GIB", "MONTH", "COST")
        parts.append(format_table(names, moves, frozenset({"GIB", "COST"}), {}, screen))
    mixed = [MIXED_CLOUDS_WARNING] if mixes_simulated_and_real(x.cloud for x in plan.lines) else []
    parts += [
        _totals(plan),
        job_terms_table(plan, screen),
        team_terms_table(plan, screen),
        *mixed,
        *_unbounded(plan, "? "),
        *measuring_lines(plan),
        *_late(plan),
        *_left_out(plan),
        *fair_share_lines(plan),
        *_limits(plan),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _row(plan: Plan, job: JobSummary) -> tuple[str, ...]:
    own = [x for x in plan.lines if x.job == job.job]
    place = main_placement(plan.lines, job.job)
    if place is None:
        return (job.job, "", "", "", "", "", "")
    gang = [x for x in own if x.gang == own[0].gang]
    kinds = {x.accelerator.removesuffix("GB") for x in gang}
    # A gang of two machine types has accelerators of one family.
    kind = kinds.pop() if len(kinds) == 1 else min(kinds).split("-")[0]
    market = MARKETS[place.market] if len(gang) == 1 and len({x.market for x in own}) == 1 else "mix"
    later = "" if any(x.kind == "order" for x in own) else "*"
    weak = "~" if any(x.weak for x in own) else ""
    return (
        job.job,
        f"{place.cloud}/{place.region}",
        f"{place.accelerators}x{kind}",
        market,
        format_day_time(job.start) + later,
        format_step_price(job.usd_per_step),
        weak + format_usd(job.cost_usd).lstrip("$"),
    )


def _wide_fallback(fallback: LineFallback) -> str:
    where = f"{fallback.cloud}/{fallback.zone or fallback.region}"
    return f"{where} {fallback.machines}x {fallback.instance_type} {fallback.probability:.0%}"


def _speed_cell(speed: GangSpeed) -> str:
    return f"{speed.speed_evidence} ±{speed.relative_error:.0%}"


def measuring_lines(plan: Plan, job: str | None = None) -> list[str]:
    """Return a line for each job, or for one, whose speed is worth measuring before its money is spent."""
    speeds = [speed for speed in plan.usage.speeds if speed.points and job in (None, speed.job)]
    advice = [advise_measuring(speed.job, speed.points) for speed in speeds]
    if len(advice) >= MOST_ADVISED:
        advice.append("of cheaper jobs `stepfare profile FILE --job NAME` says what to measure")
    return [wrap_text(words, "  ").lstrip() for words in advice]


_LINE_COLUMNS: tuple[TableColumn[Line], ...] = (
    TableColumn("", lambda line: line.job, "JOB"),
    TableColumn("", lambda line: line.kind + ("" if line.share >= 1 else f" {line.share:.0%}"), "KIND"),
    TableColumn("", lambda line: "/".join(p for p in (line.cloud, line.region, line.zone) if p), "WHERE"),
    TableColumn("", lambda line: line.instance_type, "MACHINE"),
    TableColumn("", lambda line: f"{line.machines}{'?' if line.capacity else ''}", "N", right=True),
    TableColumn("", lambda line: line.market, "BUY"),
    TableColumn("", lambda line: line.start, "START", format_timestamp),
    TableColumn("", lambda line: line.end, "END", format_timestamp),
    TableColumn("", lambda line: float(line.hours), "BILLED H", "{:.2f}".format, right=True),
    TableColumn("", lambda line: Usd(line.usd_per_hour.nanos), "$/H", format_usd, right=True),
    TableColumn("", lambda line: line.steps, "STEPS", "{:,}".format, right=True),
    TableColumn("", lambda line: line.usd_per_step, "$/STEP", format_step_price, right=True),
    TableColumn("", lambda line: ("~" if line.weak else "") + format_usd(line.cost_usd), "COST", right=True),
    TableColumn("", lambda line: line.price_as_of, "PRICED"),
)


def _head(plan: Plan) -> str:
    name = plan_content(plan)["plan_id"]
    days = (plan.as_of - plan.book_as_of).days
    age = f", {days} days old" if days > 1 else ""
    return (
        f"{name} made for {format_timestamp(plan.as_of)}, good until {format_timestamp(plan.expires_at)}\n"
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
    lines = [wrap_text(f"{placed} of {len(plan.jobs)} jobs placed, {words}{_cut_short(plan)}")]
    if not plan.lines:
        return lines[0]
    moves = Usd.total(m.cost_usd for m in plan.moves)
    lines += [
        (
            f"total    {format_usd(plan.cost_usd):>13}   orders {format_usd(plan.orders_usd)}, "
            f"moving data {format_usd(moves)}"
        ),
    ]
    counted = _counted(plan)
    if counted:
        lines.append(f"counted  {format_usd(plan.objective_usd):>13}   {counted}")
    bound = f"proven bound{' of what is counted' if counted else ''}"
    lines.append(f"at least {format_usd(plan.bound_usd):>13}   {bound}, gap {plan.gap:.2%}, asked {plan.gap_asked:.2%}")
    if plan.carbon is not None:
        words = f"{plan.carbon.tonnes:,.3f} t CO2e at {format_usd(plan.carbon.usd_per_tonne)} a tonne, never paid"
        lines.append(f"carbon   {format_usd(plan.carbon.carbon_usd):>13}   {words}")
    if plan.commitments:
        rest = format_usd(plan.cost_usd - plan.covered_usd)
        words = f"of the total, by committed spend that is paid anyway; {rest} is left to pay"
        lines.append(f"covered  {format_usd(plan.covered_usd):>13}   {words}")
        lines += [wrap_text(describe_commitment(use), "  ") for use in plan.commitments]
    return "\n".join(lines)


def _counted(plan: Plan) -> str:
    """Return how what the search minimised differs from the total; empty where it does not."""
    words = []
    if plan.threshold_usd.nanos:
        words.append(f"with min_saving {format_usd(plan.threshold_usd)}, which is never paid")
    if plan.carbon is not None:
        words.append("with carbon")
    if plan.covered_usd.nanos:
        words.append("less commitments")
    return ", ".join(words)


def describe_commitment(use: CommitmentUse) -> str:
    """Return how much of a commitment the orders use, in words."""
    return (
        f"commitment {use.commitment}: {format_usd(use.used_usd)} of {format_usd(use.committed_usd)} used, "
        f"{format_usd(use.unused_usd)} lost; it covers {format_usd(use.covered_usd)} of on-demand prices"
    )


def _cut_short(plan: Plan) -> str:
    out_of_time = [cut.phase for cut in plan.cuts if cut.by == "time"]
    out_of_work = [cut.phase for cut in plan.cuts if cut.by == "work"]
    failed = [cut.phase for cut in plan.cuts if cut.by == "failure"]
    words = f"; the solver failed in: {', '.join(failed)}" if failed else ""
    if plan.time_limit_hit:
        words += f"; the time limit cut short: {', '.join(out_of_time) or 'the search'}"
    return words + (f"; stopped at a count of rounds or nodes: {', '.join(out_of_work)}" if out_of_work else "")


def _footnotes(plan: Plan) -> list[str]:
    notes = []
    kinds = {job.job: {x.kind for x in plan.lines if x.job == job.job} for job in plan.jobs}
    if any(found == {"outlook"} for found in kinds.values()):
        notes.append("* starts after tonight's orders: an outlook")
    if any(x.weak for x in plan.lines):
        notes.append("~ rests on a weak price or risk: stepfare explain says why")
    if mixes_simulated_and_real(x.cloud for x in plan.lines):
        notes.append(MIXED_CLOUDS_WARNING)
    notes += _fallbacks(plan)
    notes += _over_budgets(plan)
    notes += _mixed_gangs(plan)
    notes += _unbounded(plan)
    notes += _reserved(plan)
    if plan.lines:
        notes.append("START is day of the month and UTC; $/STEP counts reservations at their own price")
    return ["\n".join(notes)] if notes else []


_LEAST_TOLD = 0.005  # of runs, below which a share is not rounded


def describe_fallback(fallback: LineFallback, ordered: Usd, *, due: bool) -> str:
    """Return the on-demand gang behind a spot line, how often it is needed, and what that is expected to cost.

    ``ordered`` is what of its cost the plan counts to the orders. ``due``: the job has a deadline.
    """
    where = f"{fallback.machines}x {fallback.instance_type} in {fallback.cloud}/{fallback.zone or fallback.region}"
    cause = "the pool fails too often" + (" or no more time is left for spot" if due else "")
    words = f"falls back on {where} {MARKETS[fallback.market]} where {cause}: in "
    often = f"{fallback.probability:.0%}" if fallback.probability >= _LEAST_TOLD else "under 1%"
    words += f"{often} of runs; {float(fallback.hours):,.2f} h expected, "
    words += f"{format_usd(fallback.cost_usd)} of the cost, at {format_usd(Usd(fallback.usd_per_hour.nanos))} an hour"
    if ZERO < ordered < fallback.cost_usd:
        words += f"; the plan counts {format_usd(ordered)} of it to the orders, the rest to the outlook"
    if fallback.refusal_probability:
        words += f"; taken to be refused {fallback.refusal_probability:.0%} of the times, which nobody measured"
    return words


def _fallbacks(plan: Plan) -> list[str]:
    """Return what the jobs on spot are expected to cost on demand, for their deadlines or where their pools fail."""
    behind = [line for line in plan.lines if line.fallback is not None]
    if not behind:
        return []
    jobs = len({line.job for line in behind})
    usd = Usd.total(line.fallback.cost_usd for line in behind if line.fallback is not None)
    due = {job.job for job in plan.jobs if job.deadline is not None}
    cause = "to be in time" if any(line.job in due for line in behind) else "where its pool fails"
    words = f"{format_count(jobs, 'job')} on spot may end on demand {cause}: {format_usd(usd)} of the total is "
    return [wrap_text(words + "expected for that; jobs of one pool may need it at once", "  ").lstrip()]


def _over_budgets(plan: Plan) -> list[str]:
    return [
        wrap_text(f"{job.job}: {note}", "  ").lstrip()
        for job in plan.jobs
        for note in job.notes
        if EXPECTED_ONLY in note
    ]


def _mixed_gangs(plan: Plan) -> list[str]:
    gangs: dict[tuple[str, str], list[Line]] = {}
    for line in plan.lines:
        gangs.setdefault((line.job, line.gang), []).append(line)
    mixes: dict[str, dict[str, None]] = {}
    for (job, _), gang in gangs.items():
        mix = describe_mix((line.machines, line.instance_type) for line in gang)
        if mix:
            mixes.setdefault(job, {})[mix] = None
    return [wrap_text(f"{job}: one gang of {'; '.join(found)}", "  ").lstrip() for job, found in mixes.items()]


def _unbounded(plan: Plan, mark: str = "") -> list[str]:
    """Return a sentence on machines that the plan counts on without knowing how many there are."""
    lines = [line for line in plan.lines if line.capacity]
    if not lines:
        return []
    jobs = len({line.job for line in lines})
    gangs = {(line.job, line.cloud, line.region, line.zone, line.instance_type, line.market): line for line in lines}
    count = sum(line.accelerators for line in gangs.values())
    some = format_count(jobs, "job")
    words = f"{some} on {format_count(count, 'accelerator')} of which nobody said how many there are: the plan "
    words += "counts on all of them"
    return [wrap_text(f"{mark}{words} (set limits or default_cap_machines in the limits file)", "  ").lstrip()]


def _reserved(plan: Plan) -> list[str]:
    lines_by_source: dict[str, list[Line]] = {}
    for line in plan.lines:
        if line.reservation_cost:
            lines_by_source.setdefault(line.price_source, []).append(line)
    return [
        wrap_text(f"{name}: nothing more to pay; {_price_of(lines)}", "  ").lstrip()
        for name, lines in lines_by_source.items()
    ]


def _price_of(lines: Sequence[Line]) -> str:
    cost, rate = lines[0].reservation_cost, lines[0].amortised_usd_per_hour
    if cost == "unknown" or rate is None:
        return "what it really costs is unknown (usd_per_hour or sunk in the limits file)"
    if cost == "sunk":
        return "sunk: its price is not counted any more"
    each = Usd(rate.nanos // lines[0].machines)
    total = Usd.total(usd for x in lines if (usd := x.amortised_usd) is not None)
    return f"amortised at {format_usd(each)} an hour a machine, {format_usd(total)} here"


def _late(plan: Plan) -> list[str]:
    late = late_lines(plan)
    return ["\n".join(["LATE, as their files allow", *late])] if late else []


def late_lines(plan: Plan) -> list[str]:
    """Return a line for each job that is placed late."""
    return [wrap_text(f"{job.job}: {job.late}") for job in plan.jobs if job.late is not None]


def _left_out(plan: Plan) -> list[str]:
    if not plan.unplaced:
        return []
    parts = ["LEFT OUT"]
    for job in plan.unplaced:
        parts.append(wrap_text(f"{job.job}: {job.reason}"))
        parts += [wrap_text(describe_relaxation(r), "    ") for r in job.relaxations]
        if not job.relaxations:
            parts.append("    no change of a single rule is enough")
    if any(job.relaxations for job in plan.unplaced):
        parts.append("with all other jobs where they are: planned again, less may do")
    return ["\n".join(parts)]


def describe_relaxation(relaxation: Relaxation) -> str:
    """Return what would place a job, and what it would cost at most."""
    cost = f" ({format_usd(relaxation.cost_usd)} expected, or less)" if relaxation.cost_usd is not None else ""
    return f"it would fit with {relaxation.change}: {relaxation.detail}{cost}"


def fair_share_lines(plan: Plan) -> list[str]:
    """Return the standings of teams in one part, nearest to being left out last; nothing without shares."""
    if not plan.fair_share:
        return []
    ordered = sorted(plan.fair_share, key=lambda team: (team.band, -team.factor, team.team))
    lines = ["FAIR SHARE (within a priority, waiting jobs of band 1 are left out last)"]
    lines += [f"  {describe_standing(team)}" for team in ordered]
    return ["\n".join(lines)]


def describe_standing(team: TeamStanding) -> str:
    """Return a team's band and factor with what they follow from, in words."""
    return (
        f"{team.team}: band {team.band}, factor {team.factor:.2f}; used {format_usd(team.recent_usd)} lately, "
        f"share {team.share:g}"
    )


def _limits(plan: Plan) -> list[str]:
    shown = plan.shadow_prices[:_SHOWN_LIMITS]
    if not shown:
        return []
    what = "JOBS OR MONEY" if any(price.places for price in shown) else "MONEY"
    lines = [f"LIMITS THAT COST {what} (what more of them would bring over the plan)"]
    lines += [wrap_text(f"{describe_shadow_price(price)}: {price.limit}", "  ") for price in shown]
    return ["\n".join(lines)]


_ONE_MORE = {"accelerators": "an accelerator", "USD": "a dollar"}


def describe_shadow_price(price: ShadowPrice) -> str:
    """Return what more of a limit would bring, in words: jobs first, then money."""
    unit = _ONE_MORE.get(price.unit, f"a {price.unit.removesuffix('s')}")
    if price.basis == "lp_estimate":
        return f"{format_usd(price.usd_per_unit)} {unit} by an LP estimate, not solved again"
    if price.saves_usd is None:
        return f"{format_usd(price.usd_per_unit)} {unit}"
    many = price.machines != 1
    more = f"{format_count(price.machines, 'machine')} more" if price.machines else f"${price.raised_by:,} more"
    if price.unit not in ("machines", "USD"):
        more += f" ({price.raised_by:,} {price.unit})"
    verb = "" if many and price.machines else "s"
    money = price.saves_usd
    if price.basis != "resolved":
        about = "at least" if price.basis == "lp_at_least" else "about"
        return f"{more} save{verb} {about} {format_usd(money)} (an LP, solved again)"
    if not price.places:
        return f"{more} save{verb} {format_usd(money)}"
    return f"{more} place{verb} {describe_placed(price.places, money)}"


def describe_placed(jobs: int, saves: Usd) -> str:
    """Return how many more jobs a plan places, and what it then costs more or less, in words."""
    bill = f"{format_usd(-saves)} more" if saves.nanos < 0 else f"{format_usd(saves)} less"
    return f"{format_count(jobs, 'more job')}, and the plan then costs {bill}"


SumsBy = Literal["team", "pool"]
_MOVES: Final = "moving data"


@dataclass(frozen=True, slots=True)
class PlanSum:
    """The jobs of one team, or the lines in one pool, summed up; ``gpu_hours`` are those expected to be billed."""

    name: str
    jobs: frozenset[str]
    left_out: frozenset[str]
    gpu_hours: float
    cost_usd: Usd


def jobs_of(plan: Plan, teams: Collection[str], names: Collection[str]) -> tuple[JobSummary, ...]:
    """Return the jobs of these teams and of these names; an empty collection rules nothing out."""
    return tuple(job for job in plan.jobs if (not teams or job.team in teams) and (not names or job.job in names))


def plan_sums(plan: Plan, jobs: Sequence[JobSummary], by: SumsBy) -> tuple[PlanSum, ...]:
    """Return sums over the jobs, dearest first; those by pool have moves of data in a row of their own."""
    team = {job.job: job.team for job in jobs}
    sums: dict[str, PlanSum] = {}

    def add(name: str, job: str, gpu_hours: float, usd: Usd, *, placed: bool = True) -> None:
        old = sums.get(name, PlanSum(name, frozenset(), frozenset(), 0.0, Usd(0)))
        jobs, left_out = (old.jobs | {job}, old.left_out) if placed else (old.jobs, old.left_out | {job})
        sums[name] = PlanSum(name, jobs, left_out, old.gpu_hours + gpu_hours, old.cost_usd + usd)

    for line in (line for line in plan.lines if line.job in team):
        pool = f"{line.cloud}/{line.region} {line.accelerator} {MARKETS[line.market]}"
        hours = float(line.hours) * line.accelerators
        add(pool if by == "pool" else team[line.job], line.job, hours, line.cost_usd)
    for move in (move for move in plan.moves if move.job in team):
        add(_MOVES if by == "pool" else team[move.job], move.job, 0.0, move.cost_usd)
    for left in (left for left in plan.unplaced if left.job in team and by == "team"):
        add(left.team, left.job, 0.0, Usd(0), placed=False)
    return tuple(sorted(sums.values(), key=lambda row: (-row.cost_usd.nanos, row.name)))


def sums_text(plan: Plan, jobs: Sequence[JobSummary], by: SumsBy, screen: Screen = PLAIN) -> str:
    """Return a table of the sums, and what they come to of the plan's total."""
    return f"{_sums_table(by).text(plan_sums(plan, jobs, by), screen)}\n\n{_share_of_plan(plan, jobs)}\n"


def sums_json(plan: Plan, jobs: Sequence[JobSummary], by: SumsBy) -> str:
    """Return the sums as a list of objects; dollars are decimal text."""
    return json.dumps(_sums_table(by).records(plan_sums(plan, jobs, by)), indent=2) + "\n"


def _sums_table(by: SumsBy) -> RecordTable[PlanSum]:
    left: TableColumn[PlanSum] = TableColumn(
        "left_out", lambda row: row.left_out, "LEFT OUT", _count, right=True, plain=sorted
    )
    return RecordTable(
        (
            TableColumn(by, lambda row: row.name, by.upper()),
            TableColumn("jobs", lambda row: row.jobs, "JOBS", _count, right=True, plain=sorted),
            *([left] if by == "team" else []),
            TableColumn(
                "gpu_hours",
                lambda row: row.gpu_hours,
                "GPU HOURS",
                "{:,.0f}".format,
                right=True,
                plain=lambda hours: round(hours, 6),
            ),
            TableColumn("cost_usd", lambda row: row.cost_usd, "COST", format_usd, right=True),
        )
    )


def _count(names: frozenset[str]) -> str:
    return str(len(names))


def jobs_text(plan: Plan, jobs: Sequence[JobSummary], screen: Screen = PLAIN) -> str:
    """Return the rows of some jobs, why others of them are left out, and what they come to of the plan's total."""
    names = {job.job for job in jobs}
    left = [wrap_text(f"left out: {each.job}, {each.reason}", "  ") for each in plan.unplaced if each.job in names]
    parts = [jobs_table(plan, jobs, screen), "\n".join(left), _share_of_plan(plan, jobs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _share_of_plan(plan: Plan, jobs: Sequence[JobSummary]) -> str:
    cost = Usd.total(job.cost_usd for job in jobs)
    own = f"{len(jobs)} of " if len(jobs) < len(plan.jobs) else ""
    return f"{own}{format_count(len(plan.jobs), 'job')}: {format_usd(cost)} of {format_usd(plan.cost_usd)}"
