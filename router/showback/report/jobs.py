"""Build the sections of jobs: planned and actual cost of each, unit costs, and what spot saved."""

from __future__ import annotations

from decimal import Decimal

from router.showback.facts import UNALLOCATED
from router.showback.report.context import RESTART, STARTUP, WASTE, Setting, words
from router.showback.report.rollup_tables import Found
from router.showback.report.values import Cell, Column, Kind, Section, less, ratio, section

_UNITS = (
    Column("per_accelerator_hour", "Per acc. hour", Kind.RATE, 1),
    Column("per_1000_steps", "Per 1000 steps", Kind.RATE, 1),
    Column("per_1000_samples", "Per 1000 samples", Kind.RATE, 4),
    Column("per_1m_tokens", "Per 1M tokens", Kind.RATE, 2),
)
_SAVINGS = (
    Column("on_demand", "On demand", Kind.MONEY, 3),
    Column("saved", "Saved", Kind.MONEY, 3),
    Column("restart_on_demand", "Of restarts", Kind.MONEY, 4),
    Column("saved_net", "Saved, net", Kind.MONEY, 2),
)
JOBS = (
    Column("job", "Job", rank=0),
    Column("team", "Team", rank=2),
    Column("currency", "Currency", rank=0),
    Column("planned", "Planned", Kind.MONEY, 1),
    Column("billed", "Billed", Kind.MONEY, 0),
    Column("effective", "Effective", Kind.MONEY, 0),
    Column("off_plan", "Off plan", Kind.MONEY, 2),
    Column("machines", "Machines", Kind.MONEY, 4),
    Column("waste", "Waste", Kind.MONEY, 1),
    Column("attempts", "Attempts", Kind.COUNT, 2),
    Column("hours", "Hours", Kind.AMOUNT, 4),
    Column("accelerator_hours", "Acc. hours", Kind.AMOUNT, 2),
    Column("useful", "Done", Kind.AMOUNT, 3),
    Column("useful_unit", "Of", rank=3),
    Column("lost", "Lost", Kind.AMOUNT, 4),
    *_UNITS,
    *_SAVINGS,
    Column("deadline", "Deadline", Kind.MOMENT, 3),
    Column("done_at", "Done at", Kind.MOMENT, 4),
    Column("deadline_met", "On time", Kind.FLAG, 1),
    Column("unpriced", "Unpriced rows", Kind.COUNT, 4),
)
BY_MARKET = (
    Column("job", "Job", rank=0),
    Column("market", "Market", rank=0),
    Column("currency", "Currency", rank=0),
    Column("cost", "Cost", Kind.MONEY, 0),
    Column("accelerator_hours", "Acc. hours", Kind.AMOUNT, 1),
    Column("useful", "Done", Kind.AMOUNT, 2),
    Column("useful_unit", "Of", rank=2),
    *_UNITS,
    *_SAVINGS,
)
BY_CURRENCY = (
    Column("currency", "Currency", rank=0),
    Column("market", "Market", rank=0),
    Column("cost", "Cost", Kind.MONEY, 0),
    *_SAVINGS,
)
_PER = {
    "Steps": ("per_1000_steps", 1000),
    "Samples": ("per_1000_samples", 1000),
    "Tokens": ("per_1m_tokens", 1_000_000),
}


def jobs(context: Setting) -> Section:
    """Return a row for each job and currency; costs without a job are in no row."""
    cost = context.cost
    owner = "CASE WHEN count(DISTINCT team) = 1 THEN max(team) END AS team"
    sums = _query_sums(context, ("job",), "job IS NOT NULL")
    rows = context.cubes.ask(
        f"SELECT job, currency, {owner}, sum(billed) AS billed, sum(effective) AS effective, "
        f"sum({cost}) FILTER (use IN {words(WASTE)}) AS waste, "
        f"count(DISTINCT attempt) FILTER (what = 'machine') AS attempts, sum(lost) AS lost, "
        f"coalesce(sum(facts) FILTER (unpriced), 0)::BIGINT AS unpriced "
        f"FROM sums WHERE {context.spent} AND job IS NOT NULL GROUP BY ALL "
        f"ORDER BY currency, sum({cost}) DESC NULLS LAST, job"
    )
    planned = {
        (row["job"], row["currency"]): row["planned"]
        for row in context.cubes.ask(
            f"SELECT job, currency, sum({cost}) AS planned FROM sums WHERE {context.planned} GROUP BY ALL"
        )
    }
    by_key = {(row["job"], row["currency"]): row for row in sums}
    table = [_job_row(context, row, by_key.get((row["job"], row["currency"])), planned) for row in rows]
    spent = {(row["job"], row["currency"]) for row in rows}
    table += [
        {"job": job, "currency": currency, "planned": amount}
        for (job, currency), amount in sorted(planned.items(), key=lambda item: tuple(map(str, item[0])))
        if (job, currency) not in spent and job is not None
    ]
    return section("jobs", "Jobs", JOBS, table, *_NOTES)


def by_market(context: Setting) -> Section:
    """Return a row for each job and way of buying."""
    rows = _query_sums(context, ("job", "market"), "(what = 'machine' OR useful > 0)")
    table = []
    for row in rows:
        job = UNALLOCATED if row["job"] is None else row["job"]
        table.append(
            {"job": job, "market": row["market"], "cost": row["of_units"], **_unit_costs(row), **_savings_of(row)}
        )
    ordered = sorted(table, key=lambda row: (str(row["currency"]), str(row["job"]), str(row["market"])))
    return section("unit_costs", "What an hour and a thousand steps cost", BY_MARKET, ordered, *_NOTES[:1])


def savings(context: Setting) -> Section:
    """Return a row for each currency and way of buying, of those machines whose on-demand price is known."""
    rows = _query_sums(context, ("market",), "on_demand IS NOT NULL")
    table = [
        {"market": row["market"], "currency": row["currency"], "cost": row["compared"], **_savings_of(row)}
        for row in sorted(rows, key=lambda row: (row["currency"], str(row["market"])))
    ]
    return section("savings", "Savings against on demand", BY_CURRENCY, table, *_NOTES[1:])


_NOTES = (
    "Unit costs: machines alone, and what was bought by the step or token, with the waste of the job in them.",
    (
        "Saved: what the same machine hours cost on demand, less what they cost. Net: less the on-demand price of "
        "hours that only interruptions made (lost work, failed launches, start-ups after the first), too."
    ),
)


def _query_sums(context: Setting, keys: tuple[str, ...], only: str) -> list[Found]:
    """Return sums of machines, and of what has a useful unit, with the base of savings.

    An attempt whose start-up came first would have been there without interruptions; the others' start-ups would not.
    """
    cost, names = context.cost, ", ".join(f"s.{key}" for key in (*keys, "currency"))
    restart = f"(use IN {words(RESTART)} OR (use = '{STARTUP}' AND coalesce(s.attempt <> f.attempt, false)))"
    units = "(what = 'machine' OR useful > 0)"
    return context.cubes.ask(
        f"WITH first AS (SELECT job, arg_min(attempt, first_start) AS attempt FROM sums "
        f"WHERE use = '{STARTUP}' AND source <> 'planned' GROUP BY job) "
        f"SELECT {names}, sum({cost}) FILTER ({units}) AS of_units, sum(hours) AS hours, sum(gpu_hours) AS gpu_hours, "
        f"sum({cost}) FILTER (what = 'machine') AS machines, "
        f"sum({cost}) FILTER (what = 'machine' AND gpu_hours > 0) AS of_hours, "
        f"sum(gpu_hours) FILTER (what = 'machine' AND {cost} IS NOT NULL) AS priced_hours, "
        f"sum(useful) AS useful, list(DISTINCT useful_unit) FILTER (useful > 0) AS units, "
        f"sum(on_demand) AS on_demand, sum({cost}_compared) AS compared, "
        f"sum(on_demand) FILTER ({restart}) AS restarts "
        f"FROM sums s LEFT JOIN first f ON s.job = f.job "
        f"WHERE {context.spent} AND NOT correction AND {only.replace('job ', 's.job ')} GROUP BY ALL"
    )


def _job_row(
    context: Setting, row: Found, sums: Found | None, planned: dict[tuple[str, str], Decimal | None]
) -> dict[str, Cell]:
    deadline = context.beside.dues.get(row["job"])
    plan = planned.get((row["job"], row["currency"]))
    names = ("job", "currency", "team", "billed", "effective", "waste", "attempts", "lost", "unpriced")
    return {
        **{name: row[name] for name in names},
        "planned": plan,
        "off_plan": less(row[context.cost], plan),
        **(
            {}
            if sums is None
            else {**_unit_costs(sums), **_savings_of(sums), "machines": sums["machines"], "hours": sums["hours"]}
        ),
        "deadline": None if deadline is None else deadline.deadline,
        "done_at": None if deadline is None else deadline.done_at,
        "deadline_met": None if deadline is None else deadline.met,
    }


def _unit_costs(row: Found) -> dict[str, Cell]:
    units = row["units"] or []
    unit = units[0] if len(units) == 1 else None
    costs: dict[str, Cell] = {
        "currency": row["currency"],
        "accelerator_hours": row["gpu_hours"],
        "useful": row["useful"] if unit is not None else None,
        "useful_unit": unit,
        "per_accelerator_hour": ratio(row["of_hours"], row["priced_hours"]),
    }
    if unit in _PER:
        name, times = _PER[unit]
        costs[name] = ratio(row["of_units"], row["useful"], times)
    return costs


def _savings_of(row: Found) -> dict[str, Cell]:
    saved = less(row["on_demand"], row["compared"])
    restarts = None if row["on_demand"] is None else row["restarts"] or Decimal(0)
    return {
        "on_demand": row["on_demand"],
        "saved": saved,
        "restart_on_demand": restarts,
        "saved_net": less(saved, restarts),
    }
