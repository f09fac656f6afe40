"""Reconciliation of planned, metered and invoiced costs as a table, CSV and JSON. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from router.files.csv_text import csv_text
from router.render.record_table import SCHEMA_VERSION
from router.render.tables import PLAIN, Screen, clip_text, format_table, format_timestamp, wrap_text
from router.showback.apportion import exact_sum
from router.showback.facts import UNALLOCATED
from router.showback.focus.texts import decimal_text
from router.showback.reconcile.findings import ReconcileFinding
from router.showback.reconcile.levels import MatchLevel
from router.showback.reconcile.outcome import ExchangeRate, MatchOutcome, UnmatchedItem
from router.showback.reconcile.variance import VarianceBridge, VarianceBucket
from router.showback.report.query import MonthQuery
from router.showback.report.values import replace_unprintable

_LEVELS = {
    MatchLevel.RESOURCE: "resource and hour",
    MatchLevel.TAGS: "tags",
    MatchLevel.DAY: "kind and day",
    MatchLevel.NONE: "nothing",
}
_GROUP_WIDTH = 26
_MILLE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileQuery(MonthQuery):
    """The query of a month with its time, and exchange rates."""

    now: datetime
    rates: Mapping[str, ExchangeRate]


@dataclass(frozen=True, slots=True)
class ReconcileView:
    """Contents of the report: the query and all results."""

    query: ReconcileQuery
    outcome: MatchOutcome
    groups: tuple[VarianceBridge, ...]
    month: tuple[VarianceBridge, ...]
    findings: tuple[ReconcileFinding, ...]


def as_table(view: ReconcileView, max_rows: int, screen: Screen = PLAIN) -> str:
    """Return the report as text that fits the screen, with at most ``max_rows`` rows without counterpart."""
    query = view.query
    lines = [f"{query.month} as of {format_timestamp(query.now)}, {query.basis} cost"]
    lines += _coverage(view.outcome)
    lines += [
        f"{name} at {rate.rate} {rate.into} of {rate.as_of}, {replace_unprintable(rate.source)}"
        for name, rate in query.rates.items()
    ]
    if view.outcome.levels:
        rows = [
            (_LEVELS[each.level], f"{each.rows:,}", format_amount(each.amount), each.currency)
            for each in view.outcome.levels
        ]
        lines += [
            "",
            format_table(
                ("BILL ROWS MATCHED BY", "ROWS", "AMOUNT", ""), rows, frozenset({"ROWS", "AMOUNT"}), {}, screen
            ),
        ]
    lines += ["", *_bridges(view, screen)]
    lines += _unmatched_rows("ON A BILL, NOT METERED", view.outcome.unmatched, max_rows, screen)
    lines += _unmatched_rows("METERED, NOT ON A BILL", view.outcome.unbilled, max_rows, screen)
    if view.findings:
        lines += ["", "FINDINGS", *(wrap_text(_finding(each), "  ") for each in view.findings)]
    else:
        lines += ["", "no findings"]
    return "\n".join(lines)


def _coverage(outcome: MatchOutcome) -> Iterator[str]:
    for each in outcome.reaches:
        words = [replace_unprintable(word) for word in (each.cloud, each.account) if word]
        account = " ".join(words) or "unnamed account"
        yield f"bills of {account} through {format_timestamp(each.through)}"
    for currency, share in outcome.estimated.items():
        yield f"{currency}: {format_percent(share)} of what was spent is estimated"


def _bridges(view: ReconcileView, screen: Screen) -> Iterator[str]:
    header = (",".join(view.query.by).upper(), "PLANNED", "METERED", "ACTUAL", "INVOICED", "")
    every = [*((_named(each.group), each) for each in view.groups), *(("all", each) for each in view.month)]
    rows = [
        (name, *map(format_amount, (each.planned, each.metered, each.actual, each.invoiced)), each.currency)
        for name, each in every
    ]
    if not rows:
        yield "nothing was planned, metered or billed in this month"
        return
    right = frozenset({"PLANNED", "METERED", "ACTUAL", "INVOICED"})
    table = format_table(header, rows, right, {header[0]: _GROUP_WIDTH}, screen).splitlines()
    yield table[0]
    for line, (_, each) in zip(table[1:], every, strict=True):
        yield line
        why = _why(each)
        if why:
            yield wrap_text(why, "    ")


def _why(variance: VarianceBridge) -> str:
    reasons = []
    for bucket in VarianceBucket:
        if amount := variance.buckets.get(bucket):
            kinds = [(kind, part) for (of, kind), part in variance.kinds.items() if of is bucket]
            parts = [f"{kind} {format_signed(part)}" if len(kinds) > 1 else kind for kind, part in kinds]
            reasons.append(f"{bucket.value} {format_signed(amount)}" + (f" ({', '.join(parts)})" if parts else ""))
    if variance.unpriced:
        reasons.append(f"{variance.unpriced} without a known price")
    return ", ".join(reasons)


def _unmatched_rows(title: str, unmatched: Sequence[UnmatchedItem], max_rows: int, screen: Screen) -> Iterator[str]:
    if not unmatched:
        return
    yield ""
    things = _things(unmatched)
    rows = [
        (
            f"{min(each.start for each in rows):%Y-%m-%d}",
            f"{len(rows):,}",
            *words,
            "unknown" if amount is None else format_amount(amount),
            rows[0].currency,
        )
        for words, amount, rows in things[:max_rows]
    ]
    header = ("SINCE", "ROWS", "", "WHAT", "WHOSE", "AMOUNT", " ")
    if rows:
        yield title
        yield format_table(header, rows, frozenset({"AMOUNT", "ROWS"}), {"WHAT": 18, "WHOSE": 20}, screen)
    if len(things) > max_rows:
        more = len(things) - max_rows
        yield f"... {more:,} more; -o json has all rows" if rows else f"{title}: {more:,}; -o json has all rows"


def _things(
    unmatched: Sequence[UnmatchedItem],
) -> list[tuple[tuple[str, str, str], Decimal | None, list[UnmatchedItem]]]:
    """Return one entry per billed thing, with its rows, because a machine has a row for each hour or day.

    Things without a known price come first, then the dearest.
    """
    groups: dict[tuple[tuple[str, str, str], str, bool], list[UnmatchedItem]] = {}
    for each in unmatched:
        words = (each.what, _thing(each), clip_text(_named((each.team, each.job)), _GROUP_WIDTH))
        groups.setdefault((words, each.currency, each.amount is None), []).append(each)
    summed: list[tuple[tuple[str, str, str], Decimal | None, list[UnmatchedItem]]] = [
        (words, None if unknown else exact_sum(each.amount for each in rows if each.amount is not None), rows)
        for (words, _, unknown), rows in groups.items()
    ]
    return sorted(summed, key=lambda row: (row[1] is not None, -abs(row[1] or Decimal(0)), row[0]))


def _thing(unmatched: UnmatchedItem) -> str:
    kind = "" if unmatched.category == "Usage" else unmatched.category.lower()
    return replace_unprintable(
        unmatched.resource
        or unmatched.sku
        or unmatched.instance_type
        or unmatched.attempt
        or kind
        or unmatched.cloud
        or ""
    )


def _finding(finding: ReconcileFinding) -> str:
    of = "" if finding.expected is None or not finding.expected else f" of {format_amount(finding.expected)}"
    amount = "" if finding.difference is None else f" {format_signed(finding.difference)}{of} {finding.currency}"
    return f"{finding.kind.value}: {replace_unprintable(finding.where)}:{amount} {finding.why}".rstrip()


def as_csv(view: ReconcileView) -> str:
    """Return CSV with one row per group and currency, exact; text cannot act as a spreadsheet formula."""
    amounts = (
        "planned",
        *(bucket.value for bucket in VarianceBucket if bucket is not VarianceBucket.TIMING),
        "actual",
        "timing",
        "invoiced",
    )
    rows = []
    for each in view.groups:
        named = [UNALLOCATED if word is None else word for word in each.group]
        record = _record(each, view.query.by)
        sums = [record[name] for name in amounts]
        rows.append([str(view.query.month), *named, each.currency, *sums, record["metered"], each.unpriced])
    return csv_text(["month", *view.query.by, "currency", *amounts, "metered", "unpriced"], rows)


def as_json(view: ReconcileView) -> str:
    """Return everything as JSON; amounts are exact text, null is unknown."""
    query, outcome = view.query, view.outcome
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "month": str(query.month),
        "as_of": query.now.isoformat(),
        "basis": query.basis,
        "by": list(query.by),
        "rates": {name: asdict(rate) for name, rate in query.rates.items()},
        "bills_through": [asdict(each) for each in outcome.reaches],
        "estimated": {name: None if share is None else float(share) for name, share in outcome.estimated.items()},
        "levels": [asdict(each) for each in outcome.levels],
        "groups": [_record(each, query.by) for each in view.groups],
        "total": [_record(each, ()) for each in view.month],
        "bill_prices": [asdict(each) for each in outcome.compared],
        "on_a_bill_not_metered": [asdict(each) for each in outcome.unmatched],
        "metered_not_on_a_bill": [asdict(each) for each in outcome.unbilled],
        "findings": [asdict(each) for each in view.findings],
    }
    return json.dumps(record, indent=2, default=_encode, ensure_ascii=False)


def _record(bridge: VarianceBridge, by: Sequence[str]) -> dict[str, Any]:
    kinds: dict[str, dict[str, str]] = {}
    for (bucket, kind), amount in bridge.kinds.items():
        kinds.setdefault(bucket.value, {})[kind] = decimal_text(amount)
    return {
        **dict(zip(by, bridge.group, strict=True)),
        "currency": bridge.currency,
        "planned": decimal_text(bridge.planned),
        **{bucket.value: decimal_text(bridge.buckets.get(bucket, Decimal(0))) for bucket in VarianceBucket},
        "actual": decimal_text(bridge.actual),
        "invoiced": decimal_text(bridge.invoiced),
        "metered": decimal_text(bridge.metered),
        "kinds": kinds,
        "unpriced": bridge.unpriced,
    }


def _encode(value: object) -> object:
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def format_amount(amount: Decimal) -> str:
    """Return an amount such as ``1,234.56``."""
    return f"{amount:,.2f}"


def format_signed(amount: Decimal) -> str:
    """Return a signed amount such as ``+12.50``."""
    return f"{amount:+,.2f}"


def format_percent(share: Fraction | None) -> str:
    """Return a share such as ``2.1 %``."""
    return "an unknown part" if share is None else f"{round(share * _MILLE) / 10:.1f} %"


def _named(group: Sequence[str | None]) -> str:
    if group and not any(group):
        return UNALLOCATED
    return "/".join(replace_unprintable(UNALLOCATED if word is None else word) for word in group) or "all"
