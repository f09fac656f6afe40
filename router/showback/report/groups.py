"""Sum costs by the groups of a query, unallocated ones apart or shared; by team beside its budget, and by month."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

from router.files.duckdb_session import sql_list
from router.ledger.entry import UNUSED_USES, MachineUse
from router.showback.apportion import subtract_known, sum_known
from router.showback.facts import UNALLOCATED
from router.showback.labels import label_name
from router.showback.report.outcomes import USED
from router.showback.report.query import GROUPS, OWNERS, ReportContext
from router.showback.report.rollup_tables import RollupRow, sql_of_label, zero_if_unknown
from router.showback.report.values import (
    HIDDEN,
    CellValue,
    ReportColumn,
    ReportSection,
    column_title,
    define_columns,
    divide_known,
)
from router.showback.shared_costs import Group, GroupCost, SharedCosts, SharingMethod, share_costs

_IDLE = sql_list((MachineUse.IDLE_ALLOCATED, *UNUSED_USES))
# Unallocated costs, by kind. What names a team is that team's, idle or not.
_POT = (
    f"CASE WHEN team IS NOT NULL THEN NULL WHEN use IN {_IDLE} AND job IS NULL THEN 'idle' "
    "WHEN category = 'Usage' THEN 'usage' WHEN category = 'Purchase' THEN 'fees' ELSE lower(category) END"
)
_AFTER: Final = "After sharing"
_AMOUNTS: Final = (
    "currency:0 pot:3 billed:0 effective:0 share_of_total planned:3 waste:2 accelerator_hours:2 per_accelerator_hour:3 "
    "shared:4 after:4"
)
# A report has those group columns that its query names, and one for each label of jobs that it names.
BY_GROUP = ReportSection.define(
    "groups", "By group", f"{' '.join(f'{name}:0' for name in GROUPS)} {_AMOUNTS}", after=_AFTER
)
SHARED = ReportSection.define(
    "shared",
    "Shared costs",
    "currency:0 pot:0 pot_amount:2 group:0 method ratio:2 amount:0 before after why:3",
    pot="Shared cost",
    why="Remark",
)


def build_groups(context: ReportContext) -> tuple[ReportSection, ReportSection]:
    """Return the groups, and what was shared between them. In both, the parts of a currency add up to its total."""
    query = context.query
    rows = _group_sums(context)
    planned = _planned_by_group(context)
    total = {c: _total_of(rows, context.cost, c) for c in sorted({row["currency"] for row in rows})}
    table: list[dict[str, CellValue]] = []
    shares: list[dict[str, CellValue]] = []
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
                received = subtract_known(
                    own_lines.get(row["pot"], Decimal(0)), zero_if_unknown(row[context.cost])
                ) or Decimal(0)
            table.append(_row_of_group(context, row, whole, received, planned))
        table += _rows_of_shares(context, currency_rows, shared, currency)
        shares += _shared_rows(shared, currency)
    # Where costs are shared everybody has to see it, however narrow the page.
    amounts = tuple(
        _rank_column(column, hidden=query.share is SharingMethod.NONE)
        for column in define_columns(_AMOUNTS, after=_AFTER)
    )
    columns = (*(ReportColumn(name, column_title(name), rank=0) for name in query.by), *amounts)
    titles = (column_title(name) for name in query.by)
    title = f"By {', '.join(each[0].lower() + each[1:] for each in titles)}"
    method = f"Shared, {query.share.value}: " if query.share is not SharingMethod.NONE else "Not shared: "
    note = f"{method}idle machines, and what nobody owns, by kind; with a team it is that team's."
    return (
        replace(BY_GROUP, title=title, columns=columns).fill(table),
        SHARED.fill(shares, note),
    )


def _rank_column(column: ReportColumn, *, hidden: bool) -> ReportColumn:
    if column.name in ("pot", "shared", "after"):
        return replace(column, rank=HIDDEN if hidden else 0)
    return column if hidden or column.name == "currency" else replace(column, rank=max(column.rank, 1))


def _group_sums(context: ReportContext) -> list[RollupRow]:
    pot = "NULL" if context.query.share is SharingMethod.NONE else _POT
    names = ", ".join(_group_column(name) for name in context.query.by)
    order = ", ".join(map(_alias, context.query.by))
    sums = context.sums_of("billed", "effective", "waste", "accelerator_hours", "accelerators", "priced_hours")
    return context.rollups.ask(
        f"WITH spent AS (SELECT *, ({pot})::VARCHAR AS pot FROM sums WHERE {context.spent}) "
        f"SELECT {names}, currency, pot, {sums} FROM spent GROUP BY ALL "
        f"ORDER BY currency, {context.dearest_first}, {order}, pot"
    )


def _group_column(name: str) -> str:
    if _is_owner(name):
        return f"CASE WHEN pot IS NULL THEN {_owner(name)} ELSE '{UNALLOCATED}' END AS {_alias(name)}"
    return f"CASE WHEN pot IS NULL THEN {name} END AS {name}"


def _is_owner(name: str) -> bool:
    return name in OWNERS or label_name(name) is not None


def _owner(name: str) -> str:
    """Return the SQL of an owner or label, :data:`UNALLOCATED` where nobody is named."""
    label = label_name(name)
    return f"coalesce({name if label is None else sql_of_label(label)}, '{UNALLOCATED}')"


def _alias(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _planned_by_group(context: ReportContext) -> Mapping[tuple[Group, str], Decimal]:
    names = ", ".join(f"{_owner(name)} AS {_alias(name)}" if _is_owner(name) else name for name in context.query.by)
    rows = context.sum_by(f"{names}, currency", "cost", where=context.planned)
    return {(_group_of(context, row), row["currency"]): row["cost"] for row in rows if row["cost"] is not None}


def _group_of(context: ReportContext, row: RollupRow) -> Group:
    return tuple("" if row[name] is None else str(row[name]) for name in context.query.by)


def _total_of(rows: list[RollupRow], cost: str, currency: str) -> Decimal:
    return sum_known(row[cost] for row in rows if row["currency"] == currency) or Decimal(0)


def _share_pots(context: ReportContext, rows: list[RollupRow], whole: Decimal) -> SharedCosts:
    query = context.query
    amounts = {_group_of(context, row): zero_if_unknown(row[context.cost]) for row in rows if row["pot"] is None}
    pots = {row["pot"]: zero_if_unknown(row[context.cost]) for row in rows if row["pot"] is not None}
    nobody = frozenset(group for group in amounts if UNALLOCATED in group)
    return share_costs(amounts, pots, query.share, total=whole, fixed=query.fixed, without=nobody)


def _row_of_group(
    context: ReportContext,
    row: RollupRow,
    whole: Decimal,
    received: Decimal,
    planned: Mapping[tuple[Group, str], Decimal],
) -> dict[str, CellValue]:
    cost = row[context.cost]
    group = (_group_of(context, row), row["currency"])
    return {
        **{name: row[name] for name in (*context.query.by, "currency", "pot")},
        **{name: row[name] for name in ("billed", "effective", "waste", "accelerator_hours")},
        "share_of_total": divide_known(cost, whole),
        "planned": planned.get(group) if row["pot"] is None else None,
        "per_accelerator_hour": divide_known(row["accelerators"], row["priced_hours"]),
        "shared": received,
        "after": sum_known((zero_if_unknown(cost), received)),
    }


def _rows_of_shares(
    context: ReportContext, rows: list[RollupRow], shared: SharedCosts, currency: str
) -> list[dict[str, CellValue]]:
    """Return groups that cost nothing by themselves and got a fixed share."""
    present = {_group_of(context, row) for row in rows}
    return [
        {
            **dict(zip(context.query.by, row.group, strict=True)),
            "currency": currency,
            "shared": row.shared,
            "after": row.after,
        }
        for row in shared.rows
        if row.group not in present
    ]


def _shared_rows(shared: SharedCosts, currency: str) -> list[dict[str, CellValue]]:
    received = [(portion, row) for row in shared.rows for portion in row.received]
    return [
        {
            "currency": currency,
            "pot": portion.pot,
            "pot_amount": shared.pots[portion.pot],
            "group": UNALLOCATED,
            "method": portion.method.value,
            "amount": portion.amount,
            "why": portion.why or None,
            **({} if row is None else _change_of_group(row, portion.ratio)),
        }
        for portion, row in (*received, *((portion, None) for portion in shared.kept))
    ]


def _change_of_group(row: GroupCost, ratio: Fraction) -> dict[str, CellValue]:
    return {
        "group": " / ".join(part or "not known" for part in row.group),
        "ratio": divide_known(Decimal(ratio.numerator), ratio.denominator),
        "before": row.before,
        "after": row.after,
    }


TEAMS = ReportSection.define(
    "teams",
    "Teams",
    "currency:0 team:0 cost:0 share_of_total waste last_month budget:2 budget_used:2 mark:2",
)
MONTHS = ReportSection.define(
    "months",
    "Month by month",
    "currency:0 month:0 cost:0 sealed",
)
MOST_MONTHS = 12


def build_teams(context: ReportContext, budgets: ReportSection) -> ReportSection:
    """Return a row for each currency and team of this month or the last, the dearest first.

    ``cost`` is before anything is shared; 0 where a team has nothing in the month.
    """
    keys = f"month, currency, coalesce(team, '{UNALLOCATED}') AS team"
    rows = context.sum_by(keys, "cost", "waste", where="source <> 'planned'")
    now = {(row["currency"], row["team"]): row for row in rows if row["month"] == context.month}
    before = {(row["currency"], row["team"]): row["cost"] for row in rows if row["month"] == context.before}
    budget_of = {(row["currency"], row["scope"]): row for row in budgets.records()}
    wholes: dict[str, Decimal] = {}
    for (currency, _), row in now.items():
        wholes[currency] = wholes.get(currency, Decimal(0)) + (row["cost"] or Decimal(0))
    table: list[dict[str, CellValue]] = []
    for currency, team in now.keys() | before.keys():
        own = now.get((currency, team))
        spent = Decimal(0) if own is None else own["cost"]
        budget = budget_of.get((currency, f"team {team}"))
        table.append(
            {
                "currency": currency,
                "team": team,
                "cost": spent,
                "share_of_total": divide_known(spent, wholes.get(currency)),
                "waste": None if own is None else own["waste"],
                "last_month": before.get((currency, team)),
                **({} if budget is None else {"budget": budget["budget"], "budget_used": budget["used"]}),
                "mark": None if budget is None else budget["mark"],
            }
        )
    table.sort(key=_dearest_first)
    note = "Before anything is shared. Budgets of projects stand with the budgets."
    used = (USED,) if any(row.get("budget") is not None for row in table) else ()
    return TEAMS.fill(table, note, *used)


def _dearest_first(row: dict[str, CellValue]) -> tuple[str, bool, Decimal, str]:
    cost = row["cost"] if isinstance(row["cost"], Decimal) else None
    return str(row["currency"]), cost is None, -(cost or Decimal(0)), str(row["team"])


def build_months(context: ReportContext) -> ReportSection:
    """Return a row for each currency and month on record, up to twelve and the reported one last."""
    rows = context.sum_by("currency, month", "cost", where="source <> 'planned'")
    known = {(each.month, each.currency): each for each in context.beside.months or ()}
    table: list[dict[str, CellValue]] = [
        {"currency": each.currency, "month": each.month, "cost": each.cost, "sealed": each.sealed}
        for each in known.values()
    ]
    table += [{**row, "sealed": False} for row in rows if (row["month"], row["currency"]) not in known]
    table.sort(key=lambda row: (str(row["currency"]), str(row["month"])))
    note = f"Up to {MOST_MONTHS} months; sealed ones with the figures that they were closed with."
    return MONTHS.fill(table, note)
