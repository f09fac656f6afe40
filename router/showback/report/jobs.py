"""Jobs: what each was planned to cost, cost, and came to; what an hour and a thousand steps cost; what spot saved."""

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


def jobs(setting: Setting) -> Section:
    """A row for each job and currency; what no job is named for is in no row."""
    cost = setting.cost
    owner = "CASE WHEN count(DISTINCT team) = 1 THEN max(team) END AS team"
    sums = _summed(setting, ("job",), "job IS NOT NULL")
    rest = setting.cubes.ask(
        f"SELECT job, currency, {owner}, sum(billed) AS billed, sum(effective) AS effective, "
        f"sum({cost}) FILTER (use IN {words(WASTE)}) AS waste, "
        f"count(DISTINCT attempt) FILTER (what = 'machine') AS attempts, sum(lost) AS lost, "
        f"coalesce(sum(facts) FILTER (unpriced), 0)::BIGINT AS unpriced "
        f"FROM sums WHERE {setting.spent} AND job IS NOT NULL GROUP BY ALL "
        f"ORDER BY currency, sum({cost}) DESC NULLS LAST, job"
    )
    planned = {
        (row["job"], row["currency"]): row["planned"]
        for row in setting.cubes.ask(
            f"SELECT job, currency, sum({cost}) AS planned FROM sums WHERE {setting.planned} GROUP BY ALL"
        )
    }
    by_key = {(row["job"], row["currency"]): row for row in sums}
    made = [_job(setting, row, by_key.get((row["job"], row["currency"])), planned) for row in rest]
    spent = {(row["job"], row["currency"]) for row in rest}
    made += [
        {"job": job, "currency": currency, "planned": amount}
        for (job, currency), amount in sorted(planned.items(), key=lambda item: tuple(map(str, item[0])))
        if (job, currency) not in spent and job is not None
    ]
    return section("jobs", "Jobs", JOBS, made, *_NOTES)


def by_market(setting: Setting) -> Section:
    """A row for each job and way of buying."""
    rows = _summed(setting, ("job", "market"), "(what = 'machine' OR useful > 0)")
    made = []
    for row in rows:
        job = UNALLOCATED if row["job"] is None else row["job"]
        made.append({"job": job, "market": row["market"], "cost": row["of_units"], **_units(row), **_saved(row)})
    ordered = sorted(made, key=lambda row: (str(row["currency"]), str(row["job"]), str(row["market"])))
    return section("unit_costs", "What an hour and a thousand steps cost", BY_MARKET, ordered, *_NOTES[:1])


def savings(setting: Setting) -> Section:
    """A row for each currency and way of buying, of those machines whose on-demand price is known."""
    rows = _summed(setting, ("market",), "on_demand IS NOT NULL")
    made = [
        {"market": row["market"], "currency": row["currency"], "cost": row["compared"], **_saved(row)}
        for row in sorted(rows, key=lambda row: (row["currency"], str(row["market"])))
    ]
    return section("savings", "Savings against on demand", BY_CURRENCY, made, *_NOTES[1:])


_NOTES = (
    "Unit costs: machines alone, and what was bought by the step or token, with the waste of the job in them.",
    (
        "Saved: what the same machine hours cost on demand, less what they cost. Net: less the on-demand price of "
        "hours that only interruptions made (lost work, failed launches, start-ups after the first), too."
    ),
)


def _summed(setting: Setting, keys: tuple[str, ...], only: str) -> list[Found]:
    """Sums of machines, and of what has a useful unit, with the base of savings. An attempt whose start-up came first
    would have been there without interruptions; the others' start-ups would not."""
    cost, names = setting.cost, ", ".join(f"s.{key}" for key in (*keys, "currency"))
    restart = f"(use IN {words(RESTART)} OR (use = '{STARTUP}' AND coalesce(s.attempt <> f.attempt, false)))"
    units = "(what = 'machine' OR useful > 0)"
    return setting.cubes.ask(
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
        f"WHERE {setting.spent} AND NOT correction AND {only.replace('job ', 's.job ')} GROUP BY ALL"
    )


def _job(
    setting: Setting, row: Found, sums: Found | None, planned: dict[tuple[str, str], Decimal | None]
) -> dict[str, Cell]:
    due = setting.beside.dues.get(row["job"])
    plan = planned.get((row["job"], row["currency"]))
    names = ("job", "currency", "team", "billed", "effective", "waste", "attempts", "lost", "unpriced")
    return {
        **{name: row[name] for name in names},
        "planned": plan,
        "off_plan": less(row[setting.cost], plan),
        **(
            {}
            if sums is None
            else {**_units(sums), **_saved(sums), "machines": sums["machines"], "hours": sums["hours"]}
        ),
        "deadline": None if due is None else due.deadline,
        "done_at": None if due is None else due.done_at,
        "deadline_met": None if due is None else due.met,
    }


def _units(row: Found) -> dict[str, Cell]:
    units = row["units"] or []
    unit = units[0] if len(units) == 1 else None
    found: dict[str, Cell] = {
        "currency": row["currency"],
        "accelerator_hours": row["gpu_hours"],
        "useful": row["useful"] if unit is not None else None,
        "useful_unit": unit,
        "per_accelerator_hour": ratio(row["of_hours"], row["priced_hours"]),
    }
    if unit in _PER:
        name, times = _PER[unit]
        found[name] = ratio(row["of_units"], row["useful"], times)
    return found


def _saved(row: Found) -> dict[str, Cell]:
    saved = less(row["on_demand"], row["compared"])
    restarts = None if row["on_demand"] is None else row["restarts"] or Decimal(0)
    return {
        "on_demand": row["on_demand"],
        "saved": saved,
        "restart_on_demand": restarts,
        "saved_net": less(saved, restarts),
    }
