"""Build the sections of jobs: planned and actual cost of each, unit costs, and what spot saved."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from decimal import Decimal

from router.files.duckdb_session import sql_list
from router.showback.apportion import subtract_known
from router.showback.facts import UNALLOCATED
from router.showback.report.query import RESTART, STARTUP, ReportContext
from router.showback.report.rollup_tables import RollupRow
from router.showback.report.values import CellValue, ReportSection, divide_known

JOBS = ReportSection.define(
    "jobs",
    "Jobs",
    "job:0 team:2 currency:0 planned billed:0 effective:0 off_plan:2 machines:4 waste attempts:2 hours:4 "
    "accelerator_hours:2 useful:3 useful_unit:3 lost:4 per_accelerator_hour per_1000_steps per_1000_samples:4 "
    "per_1m_tokens:2 on_demand:3 saved:3 restart_on_demand:4 saved_net:2 deadline:3 done_at:4 deadline_met unpriced:4",
)
UNIT_COSTS = ReportSection.define(
    "unit_costs",
    "What an hour and a thousand steps cost",
    "job:0 market:0 currency:0 cost:0 accelerator_hours useful:2 useful_unit:2 per_accelerator_hour per_1000_steps "
    "per_1000_samples:4 per_1m_tokens:2 on_demand:3 saved:3 restart_on_demand:4 saved_net:2",
)
SAVINGS = ReportSection.define(
    "savings",
    "Savings against on demand",
    "currency:0 market:0 cost:0 on_demand:3 saved:3 restart_on_demand:4 saved_net:2",
)
_NAMED = 5
_PER = {
    "Steps": ("per_1000_steps", 1000),
    "Samples": ("per_1000_samples", 1000),
    "Tokens": ("per_1m_tokens", 1_000_000),
}


def build_jobs(context: ReportContext) -> ReportSection:
    """Return a row for each job and currency; costs without a job are in no row."""
    owner = "CASE WHEN count(DISTINCT team) = 1 THEN max(team) END AS team"
    sums = _query_sums(context, ("job",), "job IS NOT NULL")
    attempts = "count(DISTINCT attempt) FILTER (what = 'machine') AS attempts"
    rows = context.sum_by(
        f"job, currency, {owner}, {attempts}",
        *("billed", "effective", "waste", "lost", "unpriced"),
        where=f"{context.spent} AND job IS NOT NULL",
        order=f"currency, {context.dearest_first}, job",
    )
    planned = {
        (row["job"], row["currency"]): row["cost"]
        for row in context.sum_by("job, currency", "cost", where=context.planned)
    }
    by_key = {(row["job"], row["currency"]): row for row in sums}
    table = [_job_row(context, row, by_key.get((row["job"], row["currency"])), planned) for row in rows]
    spent = {(row["job"], row["currency"]) for row in rows}
    table += [
        {"job": job, "currency": currency, "planned": amount}
        for (job, currency), amount in sorted(planned.items(), key=lambda item: tuple(map(str, item[0])))
        if (job, currency) not in spent and job is not None
    ]
    return JOBS.fill(table, *_NOTES, *_due_notes(context, {row["job"] for row in rows}))


def _due_notes(context: ReportContext, jobs: Collection[str]) -> Iterator[str]:
    """Yield which run deadlines are of, and the jobs of which earlier runs were late; nothing where none is known."""
    dues = {job: due for job, due in sorted(context.beside.dues.items()) if job in jobs}
    if any(due.deadline is not None for due in dues.values()):
        yield "Deadline, done at, on time: of the job's last run in the month."
    late = [f"{job} ({due.late_before})" for job, due in dues.items() if due.late_before]
    if late:
        more = f" and of {len(late) - _NAMED} more jobs" if len(late) > _NAMED else ""
        yield f"Earlier runs that were done after their deadlines: of {', '.join(late[:_NAMED])}{more}."


def build_unit_costs(context: ReportContext) -> ReportSection:
    """Return a row for each job and way of buying."""
    rows = _query_sums(context, ("job", "market"), "(what = 'machine' OR useful > 0)")
    table = []
    for row in rows:
        job = UNALLOCATED if row["job"] is None else row["job"]
        table.append(
            {"job": job, "market": row["market"], "cost": row["of_units"], **_unit_costs(row), **_savings_of(row)}
        )
    ordered = sorted(table, key=lambda row: (str(row["currency"]), str(row["job"]), str(row["market"])))
    return UNIT_COSTS.fill(ordered, *_NOTES[:1])


def build_savings(context: ReportContext) -> ReportSection:
    """Return a row for each currency and way of buying, of those machines whose on-demand price is known."""
    rows = _query_sums(context, ("market",), "on_demand IS NOT NULL")
    table = [
        {"market": row["market"], "currency": row["currency"], "cost": row["compared"], **_savings_of(row)}
        for row in sorted(rows, key=lambda row: (row["currency"], str(row["market"])))
    ]
    return SAVINGS.fill(table, *_NOTES[1:])


_NOTES = (
    "Unit costs: machines alone, and what was bought by the step or token, with the waste of the job in them.",
    (
        "Saved: what the same machine hours cost on demand, less what they cost. Net: less the on-demand price of "
        "hours that only interruptions made (lost work, failed launches, start-ups after a run's first), too."
    ),
)


def _query_sums(context: ReportContext, keys: tuple[str, ...], only: str) -> list[RollupRow]:
    """Return sums of machines, and of what has a useful unit, with the base of savings.

    The first start-up of a run, which is what one plan ordered of a job, would have been there without interruptions;
    those of its later attempts would not.
    """
    names = ", ".join(f"s.{key}" for key in (*keys, "currency"))
    restart = f"(use IN {sql_list(RESTART)} OR (use = '{STARTUP}' AND coalesce(s.attempt <> f.attempt, false)))"
    units = "(what = 'machine' OR useful > 0)"
    sums = context.sums_of(
        *("hours", "accelerator_hours", "machines", "accelerators", "priced_hours"),
        *("useful", "on_demand", "compared"),
    )
    return context.rollups.ask(
        f"WITH first AS (SELECT plan, job, arg_min(attempt, first_start) AS attempt FROM sums "
        f"WHERE use = '{STARTUP}' AND source <> 'planned' GROUP BY ALL) "
        f"SELECT {names}, {sums}, sum({context.cost}) FILTER ({units}) AS of_units, "
        f"list(DISTINCT useful_unit) FILTER (useful > 0) AS units, sum(on_demand) FILTER ({restart}) AS restarts "
        f"FROM sums s LEFT JOIN first f ON s.job = f.job AND s.plan IS NOT DISTINCT FROM f.plan "
        f"WHERE {context.spent} AND NOT correction AND {only.replace('job ', 's.job ')} GROUP BY ALL"
    )


def _job_row(
    context: ReportContext, row: RollupRow, sums: RollupRow | None, planned: dict[tuple[str, str], Decimal | None]
) -> dict[str, CellValue]:
    deadline = context.beside.dues.get(row["job"])
    plan = planned.get((row["job"], row["currency"]))
    names = ("job", "currency", "team", "billed", "effective", "waste", "attempts", "lost", "unpriced")
    return {
        **{name: row[name] for name in names},
        "planned": plan,
        "off_plan": subtract_known(row[context.cost], plan),
        **(
            {}
            if sums is None
            else {**_unit_costs(sums), **_savings_of(sums), "machines": sums["machines"], "hours": sums["hours"]}
        ),
        "deadline": None if deadline is None else deadline.deadline,
        "done_at": None if deadline is None else deadline.done_at,
        "deadline_met": None if deadline is None else deadline.met,
    }


def _unit_costs(row: RollupRow) -> dict[str, CellValue]:
    units = row["units"] or []
    unit = units[0] if len(units) == 1 else None
    costs: dict[str, CellValue] = {
        "currency": row["currency"],
        "accelerator_hours": row["accelerator_hours"],
        "useful": row["useful"] if unit is not None else None,
        "useful_unit": unit,
        "per_accelerator_hour": divide_known(row["accelerators"], row["priced_hours"]),
    }
    if unit in _PER:
        name, times = _PER[unit]
        costs[name] = divide_known(row["of_units"], row["useful"], times)
    return costs


def _savings_of(row: RollupRow) -> dict[str, CellValue]:
    saved = subtract_known(row["on_demand"], row["compared"])
    restarts = None if row["on_demand"] is None else row["restarts"] or Decimal(0)
    return {
        "on_demand": row["on_demand"],
        "saved": saved,
        "restart_on_demand": restarts,
        "saved_net": subtract_known(saved, restarts),
    }
