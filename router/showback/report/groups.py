"""Costs by whatever is asked, and what nobody owns: on lines of its own, or shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from router.ledger.entry import Use
from router.showback.facts import UNALLOCATED
from router.showback.report.context import WASTE, Setting, words
from router.showback.report.query import OWNERS
from router.showback.report.rollup_tables import Found, zero
from router.showback.report.values import HIDDEN, Cell, Column, Kind, Section, added, less, ratio, section
from router.showback.shared_costs import Group, Method, Row, Shared, share

_IDLE = words((Use.IDLE_ALLOCATED.value, Use.COMMITMENT_UNUSED.value, Use.RESERVATION_UNUSED.value))
# Nobody's costs, by kind. What a team is named for is that team's, idle or not.
_POT = (
    f"CASE WHEN team IS NOT NULL THEN NULL WHEN use IN {_IDLE} AND job IS NULL THEN 'idle' "
    "WHEN category = 'Usage' THEN 'usage' WHEN category = 'Purchase' THEN 'fees' ELSE lower(category) END"
)
TITLES = {
    "team": "Team", "project": "Project", "cost_center": "Cost center", "job": "Job", "plan": "Plan",
    "attempt": "Attempt", "cloud": "Cloud", "account": "Account", "region": "Region", "instance_type": "Machine type",
    "market": "Market", "accelerator": "Accelerator", "what": "What", "use": "Use", "category": "Category",
    "state": "State",
}  # fmt: skip
AMOUNTS = (
    Column("currency", "Currency", rank=0),
    Column("pot", "Pot", rank=3),
    Column("billed", "Billed", Kind.MONEY, 0),
    Column("effective", "Effective", Kind.MONEY, 0),
    Column("share_of_total", "Share", Kind.SHARE, 1),
    Column("planned", "Planned", Kind.MONEY, 3),
    Column("waste", "Waste", Kind.MONEY, 2),
    Column("accelerator_hours", "Acc. hours", Kind.AMOUNT, 2),
    Column("per_accelerator_hour", "Per acc. hour", Kind.RATE, 3),
    Column("shared", "Shared", Kind.MONEY, 4),
    Column("after", "After sharing", Kind.MONEY, 4),
)
SHARED = (
    Column("currency", "Currency", rank=0),
    Column("pot", "Shared cost", rank=0),
    Column("pot_amount", "All of it", Kind.MONEY, 2),
    Column("group", "Goes to", rank=0),
    Column("method", "By", rank=1),
    Column("ratio", "Ratio", Kind.SHARE, 2),
    Column("amount", "Amount", Kind.MONEY, 0),
    Column("before", "Before", Kind.MONEY, 1),
    Column("after", "After", Kind.MONEY, 1),
    Column("why", "Remark", rank=3),
)


def groups(setting: Setting) -> tuple[Section, Section]:
    """The groups, and what was shared between them. In both, the parts of a currency add up to its total."""
    asked = setting.asked
    rows = _asked(setting)
    planned = _planned(setting)
    total = {c: _whole(rows, setting.cost, c) for c in sorted({row["currency"] for row in rows})}
    made: list[dict[str, Cell]] = []
    handed: list[dict[str, Cell]] = []
    for currency, whole in total.items():
        some = [row for row in rows if row["currency"] == currency]
        shared = _shared(setting, some, whole)
        after = {row.group: row for row in shared.rows}
        kept = {each.pot: each.amount for each in shared.kept}
        for row in some:
            group = _group(setting, row)
            if row["pot"] is None:
                got = after[group].shared
            else:
                got = less(kept.get(row["pot"], Decimal(0)), zero(row[setting.cost])) or Decimal(0)
            made.append(_line(setting, row, whole, got, planned))
        made += _only_shared(setting, some, shared, currency)
        handed += _handings(shared, currency)
    # Where costs are shared everybody has to see it, however narrow the page.
    amounts = tuple(_ranked(column, hidden=asked.share is Method.NONE) for column in AMOUNTS)
    columns = (*(Column(name, TITLES[name], rank=0) for name in asked.by), *amounts)
    method = f"Shared, {asked.share.value}: " if asked.share is not Method.NONE else "Not shared: "
    note = f"{method}idle machines, and what nobody owns, by kind; with a team it is that team's."
    return (
        section("groups", f"By {', '.join(TITLES[name].lower() for name in asked.by)}", columns, made),
        section("shared", "Shared costs", SHARED, handed, note),
    )


def _ranked(column: Column, *, hidden: bool) -> Column:
    if column.name in ("pot", "shared", "after"):
        return replace(column, rank=HIDDEN if hidden else 0)
    return column if hidden or column.name == "currency" else replace(column, rank=max(column.rank, 1))


def _asked(setting: Setting) -> list[Found]:
    """Sums by group; where costs are shared those of nobody by pot, outside all groups."""
    pot = "NULL" if setting.asked.share is Method.NONE else _POT
    names = ", ".join(_named(name) for name in setting.asked.by)
    cost, waste = setting.cost, words(WASTE)
    return setting.cubes.ask(
        f"WITH spent AS (SELECT *, ({pot})::VARCHAR AS pot FROM sums WHERE {setting.spent}) "
        f"SELECT {names}, currency, pot, sum(billed) AS billed, sum(effective) AS effective, "
        f"sum({cost}) FILTER (use IN {waste}) AS waste, sum(gpu_hours) AS gpu_hours, "
        f"sum({cost}) FILTER (what = 'machine' AND gpu_hours > 0) AS machines, "
        f"sum(gpu_hours) FILTER (what = 'machine' AND {cost} IS NOT NULL) AS priced_hours "
        f"FROM spent GROUP BY ALL ORDER BY currency, sum({cost}) DESC NULLS LAST, {', '.join(setting.asked.by)}, pot"
    )


def _named(name: str) -> str:
    known = f"coalesce({name}, '{UNALLOCATED}')" if name in OWNERS else name
    if name in OWNERS:
        return f"CASE WHEN pot IS NULL THEN {known} ELSE '{UNALLOCATED}' END AS {name}"
    return f"CASE WHEN pot IS NULL THEN {name} END AS {name}"


def _planned(setting: Setting) -> Mapping[tuple[Group, str], Decimal]:
    names = ", ".join(
        f"coalesce({name}, '{UNALLOCATED}') AS {name}" if name in OWNERS else name for name in setting.asked.by
    )
    rows = setting.cubes.ask(
        f"SELECT {names}, currency, sum({setting.cost}) AS planned FROM sums WHERE {setting.planned} GROUP BY ALL"
    )
    return {(_group(setting, row), row["currency"]): row["planned"] for row in rows if row["planned"] is not None}


def _group(setting: Setting, row: Found) -> Group:
    return tuple("" if row[name] is None else str(row[name]) for name in setting.asked.by)


def _whole(rows: list[Found], cost: str, currency: str) -> Decimal:
    return added(row[cost] for row in rows if row["currency"] == currency) or Decimal(0)


def _shared(setting: Setting, rows: list[Found], whole: Decimal) -> Shared:
    asked = setting.asked
    amounts = {_group(setting, row): zero(row[setting.cost]) for row in rows if row["pot"] is None}
    pots = {row["pot"]: zero(row[setting.cost]) for row in rows if row["pot"] is not None}
    nobody = frozenset(group for group in amounts if UNALLOCATED in group)
    return share(amounts, pots, asked.share, total=whole, fixed=asked.fixed, without=nobody)


def _line(
    setting: Setting, row: Found, whole: Decimal, got: Decimal, planned: Mapping[tuple[Group, str], Decimal]
) -> dict[str, Cell]:
    cost = row[setting.cost]
    group = (_group(setting, row), row["currency"])
    return {
        **{name: row[name] for name in (*setting.asked.by, "currency", "pot", "billed", "effective", "waste")},
        "share_of_total": ratio(cost, whole),
        "planned": planned.get(group) if row["pot"] is None else None,
        "accelerator_hours": row["gpu_hours"],
        "per_accelerator_hour": ratio(row["machines"], row["priced_hours"]),
        "shared": got,
        "after": added((zero(cost), got)),
    }


def _only_shared(setting: Setting, rows: list[Found], shared: Shared, currency: str) -> list[dict[str, Cell]]:
    """Groups that cost nothing by themselves and got a fixed share."""
    there = {_group(setting, row) for row in rows}
    return [
        {
            **dict(zip(setting.asked.by, row.group, strict=True)),
            "currency": currency,
            "shared": row.shared,
            "after": row.after,
        }
        for row in shared.rows
        if row.group not in there
    ]


def _handings(shared: Shared, currency: str) -> list[dict[str, Cell]]:
    found: list[dict[str, Cell]] = [
        {
            "currency": currency,
            "pot": got.pot,
            "pot_amount": shared.pots[got.pot],
            "group": _called(row),
            "method": got.method.value,
            "ratio": ratio(Decimal(got.ratio.numerator), got.ratio.denominator),
            "amount": got.amount,
            "before": row.before,
            "after": row.after,
            "why": got.why or None,
        }
        for row in shared.rows
        for got in row.received
    ]
    found += [
        {
            "currency": currency,
            "pot": each.pot,
            "pot_amount": shared.pots[each.pot],
            "group": UNALLOCATED,
            "method": Method.NONE.value,
            "amount": each.amount,
            "why": each.why,
        }
        for each in shared.kept
    ]
    return found


def _called(row: Row) -> str:
    return " / ".join(part or "not known" for part in row.group)
