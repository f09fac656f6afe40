"""The head of a report, and its sums."""

from __future__ import annotations

from decimal import Decimal

from router.showback.report.context import Setting
from router.showback.report.forecast import Forecast, forecasts
from router.showback.report.query import Basis
from router.showback.report.values import SCHEMA_VERSION, Cell, Column, Kind, Section, added, less, ratio, section

HEAD = (Column("name", "What", rank=0), Column("value", "", rank=0))
TOTALS = (
    Column("currency", "Currency", rank=0),
    Column("billed", "Billed", Kind.MONEY, 0),
    Column("effective", "Effective", Kind.MONEY, 0),
    Column("list", "At list price", Kind.MONEY, 4),
    Column("estimated_share", "Estimated", Kind.SHARE, 1),
    Column("running", "Running", Kind.MONEY, 4),
    Column("budget", "Budget", Kind.MONEY, 2),
    Column("budget_used", "Used", Kind.SHARE, 2),
    Column("last_month", "Last month", Kind.MONEY, 1),
    Column("change", "Change", Kind.MONEY, 1),
    Column("forecast_low", "Forecast from", Kind.MONEY, 3),
    Column("forecast", "Forecast", Kind.MONEY, 3),
    Column("forecast_high", "Forecast to", Kind.MONEY, 3),
    Column("facts", "Rows", Kind.COUNT, 4),
    Column("unpriced", "Unpriced rows", Kind.COUNT, 4),
)
# Everything that says what a month came to means this.
COUNTED = "invoiced where a bill stands, metered elsewhere; what people added"
_BASES = {Basis.BILLED: "billed (cash)", Basis.EFFECTIVE: "effective (accrual)"}


def head(setting: Setting) -> Section:
    """What the report is about, what it was made from, and how far that reaches."""
    asked, beside = setting.asked, setting.beside
    found = setting.cubes.ask(
        f"SELECT max(last_end) FILTER (category = 'Usage') AS through, max(recorded_at) AS recorded, "
        f"list(DISTINCT currency ORDER BY currency) AS currencies, sum(facts)::BIGINT AS facts, "
        f"coalesce(sum(facts) FILTER (unpriced), 0)::BIGINT AS unpriced FROM sums WHERE {setting.spent}"
    )[0]
    through, recorded = found["through"], found["recorded"]
    closed = {True: "closed", False: "open", None: "not known"}[beside.closed]
    said: list[tuple[str, Cell]] = [
        ("schema_version", str(SCHEMA_VERSION)),
        ("month", setting.month),
        ("books", closed),
        ("by", ", ".join(asked.by)),
        ("basis", _BASES[asked.basis]),
        ("counted", COUNTED),
        ("sharing", asked.share.value),
        ("currencies", ", ".join(found["currencies"] or ()) or "none"),
        ("made_from", beside.origin),
        ("input_hash", beside.input_hash),
        ("made_at", _moment(asked.now)),
        ("as_of", "all that is recorded" if asked.as_of is None else _moment(asked.as_of)),
        ("usage_through", "none" if through is None else _moment(through)),
        ("recorded_through", "not known" if recorded is None else _moment(recorded)),
        ("bills_through", "no bill" if beside.bills_through is None else _moment(beside.bills_through)),
        ("rows", f"{found['facts'] or 0}"),
        ("unpriced_rows", f"{found['unpriced'] or 0}"),
        ("utilisation", "not measured"),
    ]
    return section("head", "Showback", HEAD, ({"name": n, "value": v} for n, v in said), *beside.warnings)


def totals(setting: Setting) -> Section:
    """A row for each currency of the month."""
    cost = setting.cost
    rows = setting.cubes.ask(
        f"SELECT month, currency, sum(billed) AS billed, sum(effective) AS effective, sum(list) AS list, "
        f"sum(facts)::BIGINT AS facts, coalesce(sum(facts) FILTER (unpriced), 0)::BIGINT AS unpriced, "
        f"sum({cost}) FILTER (state = 'Estimated' AND source <> 'added') AS estimated "
        f"FROM sums WHERE source <> 'planned' GROUP BY ALL ORDER BY currency"
    )
    before = {row["currency"]: row[cost] for row in rows if row["month"] == setting.before}
    budgets = {each.currency: each for each in setting.beside.budgets or () if each.scope == "all"}
    running = {currency: each.running for currency, each in budgets.items()}
    booked = {
        row["currency"]: added((row[cost], running.get(row["currency"])))
        for row in rows
        if row["month"] == setting.month
    }
    ahead, why = forecasts(setting, booked)
    made = []
    for row in rows:
        if row["month"] != setting.month:
            continue
        currency = row["currency"]
        likely, budget = ahead.get(currency, Forecast(None, None, None)), budgets.get(currency)
        made.append(
            {
                **{name: row[name] for name in ("currency", "billed", "effective", "list", "facts", "unpriced")},
                "estimated_share": ratio(row["estimated"] or Decimal(0), row[cost]),
                "running": running.get(currency),
                "budget": None if budget is None else budget.budget,
                "budget_used": None if budget is None else ratio(booked[currency], budget.budget),
                "last_month": before.get(currency),
                "change": less(row[cost], before.get(currency)),
                "forecast_low": likely.low,
                "forecast": likely.middle,
                "forecast_high": likely.high,
            }
        )
    notes = (
        [why, "Sums leave out unpriced rows: what they cost is not known."]
        if any(row["unpriced"] for row in made)
        else [why]
    )
    return section("totals", "Totals", TOTALS, made, *notes)


def _moment(moment: object) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
