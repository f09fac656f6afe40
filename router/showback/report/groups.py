"""Sum costs by the groups of a query, with unallocated costs on lines of their own, or shared."""

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
# Unallocated costs, by kind. What names a team is that team's, idle or not.
_POT = (
    f"CASE WHEN team IS NOT NULL THEN NULL WHEN use IN {_IDLE} AND job IS NULL THEN 'idle' "
    "WHEN category = 'Usage' THEN 'usage' WHEN category = 'Purchase' THEN 'fees' ELSE lower(category) END"
)
TITLES = {
    "team": "Team",
    "project": "Project",
    "cost_center": "Cost center",
    "job": "Job",
    "plan": "Plan",
    "attempt": "Attempt",
    "cloud": "Cloud",
    "account": "Account",
    "region": "Region",
    "instance_type": "Machine type",
    "market": "Market",
    "accelerator": "Accelerator",
    "what": "What",
    "use": "Use",
    "category": "Category",
    "state": "State",
}
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


def groups(context: Setting) -> tuple[Section, Section]:
    """Return the groups, and what was shared between them. In both, the parts of a currency add up to its total."""
    query = context.asked
    rows = _group_sums(context)
    planned = _planned_by_group(context)
    total = {c: _total_of(rows, context.cost, c) for c in sorted({row["currency"] for row in rows})}
    table: list[dict[str, Cell]] = []
    shares: list[dict[str, Cell]] = []
    for currency, whole in total.items():
        currency_rows = [row for row in rows if row["currency"] == currency]
        shared = _share_pots(context, currency_rows, whole)
        after = {row.group: row for row in shared.rows}
        own_lines = {each.pot: each.amount for each in shared.kept}
        for row in currency_rows:
            group = _group_of(context, row)
            if row["pot"] is None:
                received = after[group].shared
            else:
                received = less(own_lines.get(row["pot"], Decimal(0)), zero(row[context.cost])) or Decimal(0)
            table.append(_row_of_group(context, row, whole, received, planned))
        table += _rows_of_shares(context, currency_rows, shared, currency)
        shares += _shared_rows(shared, currency)
    # Where costs are shared everybody has to see it, however narrow the page.
    amounts = tuple(_rank_column(column, hidden=query.share is Method.NONE) for column in AMOUNTS)
    columns = (*(Column(name, TITLES[name], rank=0) for name in query.by), *amounts)
    method = f"Shared, {query.share.value}: " if query.share is not Method.NONE else "Not shared: "
    note = f"{method}idle machines, and what nobody owns, by kind; with a team it is that team's."
    return (
        section("groups", f"By {', '.join(TITLES[name].lower() for name in query.by)}", columns, table),
        section("shared", "Shared costs", SHARED, shares, note),
    )


def _rank_column(column: Column, *, hidden: bool) -> Column:
    if column.name in ("pot", "shared", "after"):
        return replace(column, rank=HIDDEN if hidden else 0)
    return column if hidden or column.name == "currency" else replace(column, rank=max(column.rank, 1))


def _group_sums(context: Setting) -> list[Found]:
    """Return sums by group; where costs are shared, unallocated ones by pot, outside all groups."""
    pot = "NULL" if context.asked.share is Method.NONE else _POT
    names = ", ".join(_group_column(name) for name in context.asked.by)
    cost, waste = context.cost, words(WASTE)
    return context.cubes.ask(
        f"WITH spent AS (SELECT *, ({pot})::VARCHAR AS pot FROM sums WHERE {context.spent}) "
        f"SELECT {names}, currency, pot, sum(billed) AS billed, sum(effective) AS effective, "
        f"sum({cost}) FILTER (use IN {waste}) AS waste, sum(gpu_hours) AS gpu_hours, "
        f"sum({cost}) FILTER (what = 'machine' AND gpu_hours > 0) AS machines, "
        f"sum(gpu_hours) FILTER (what = 'machine' AND {cost} IS NOT NULL) AS priced_hours "
        f"FROM spent GROUP BY ALL ORDER BY currency, sum({cost}) DESC NULLS LAST, {', '.join(context.asked.by)}, pot"
    )


def _group_column(name: str) -> str:
    owner = f"coalesce({name}, '{UNALLOCATED}')" if name in OWNERS else name
    if name in OWNERS:
        return f"CASE WHEN pot IS NULL THEN {owner} ELSE '{UNALLOCATED}' END AS {name}"
    return f"CASE WHEN pot IS NULL THEN {name} END AS {name}"


def _planned_by_group(context: Setting) -> Mapping[tuple[Group, str], Decimal]:
    names = ", ".join(
        f"coalesce({name}, '{UNALLOCATED}') AS {name}" if name in OWNERS else name for name in context.asked.by
    )
    rows = context.cubes.ask(
        f"SELECT {names}, currency, sum({context.cost}) AS planned FROM sums WHERE {context.planned} GROUP BY ALL"
    )
    return {(_group_of(context, row), row["currency"]): row["planned"] for row in rows if row["planned"] is not None}


def _group_of(context: Setting, row: Found) -> Group:
    return tuple("" if row[name] is None else str(row[name]) for name in context.asked.by)


def _total_of(rows: list[Found], cost: str, currency: str) -> Decimal:
    return added(row[cost] for row in rows if row["currency"] == currency) or Decimal(0)


def _share_pots(context: Setting, rows: list[Found], whole: Decimal) -> Shared:
    query = context.asked
    amounts = {_group_of(context, row): zero(row[context.cost]) for row in rows if row["pot"] is None}
    pots = {row["pot"]: zero(row[context.cost]) for row in rows if row["pot"] is not None}
    nobody = frozenset(group for group in amounts if UNALLOCATED in group)
    return share(amounts, pots, query.share, total=whole, fixed=query.fixed, without=nobody)


def _row_of_group(
    context: Setting, row: Found, whole: Decimal, received: Decimal, planned: Mapping[tuple[Group, str], Decimal]
) -> dict[str, Cell]:
    cost = row[context.cost]
    group = (_group_of(context, row), row["currency"])
    return {
        **{name: row[name] for name in (*context.asked.by, "currency", "pot", "billed", "effective", "waste")},
        "share_of_total": ratio(cost, whole),
        "planned": planned.get(group) if row["pot"] is None else None,
        "accelerator_hours": row["gpu_hours"],
        "per_accelerator_hour": ratio(row["machines"], row["priced_hours"]),
        "shared": received,
        "after": added((zero(cost), received)),
    }


def _rows_of_shares(context: Setting, rows: list[Found], shared: Shared, currency: str) -> list[dict[str, Cell]]:
    """Return groups that cost nothing by themselves and got a fixed share."""
    present = {_group_of(context, row) for row in rows}
    return [
        {
            **dict(zip(context.asked.by, row.group, strict=True)),
            "currency": currency,
            "shared": row.shared,
            "after": row.after,
        }
        for row in shared.rows
        if row.group not in present
    ]


def _shared_rows(shared: Shared, currency: str) -> list[dict[str, Cell]]:
    table: list[dict[str, Cell]] = [
        {
            "currency": currency,
            "pot": portion.pot,
            "pot_amount": shared.pots[portion.pot],
            "group": _title_of(row),
            "method": portion.method.value,
            "ratio": ratio(Decimal(portion.ratio.numerator), portion.ratio.denominator),
            "amount": portion.amount,
            "before": row.before,
            "after": row.after,
            "why": portion.why or None,
        }
        for row in shared.rows
        for portion in row.received
    ]
    table += [
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
    return table


def _title_of(row: Row) -> str:
    return " / ".join(part or "not known" for part in row.group)
