"""Reconciliation of planned, metered and invoiced costs as a table, CSV and JSON. Pure functions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from router.ledger.month import Month
from router.render.bills_text import plain
from router.render.tables import clipped, columns, stamp, wrapped
from router.showback.apportion import exact_sum
from router.showback.facts import UNALLOCATED
from router.showback.reconcile.currencies import Rate
from router.showback.reconcile.findings import Finding
from router.showback.reconcile.levels import Level
from router.showback.reconcile.outcome import Alone, Outcome
from router.showback.reconcile.variance import Bucket, Variance
from router.showback.report.text import harmless

SCHEMA_VERSION = 1
_LEVELS = {
    Level.RESOURCE: "resource and hour",
    Level.TAGS: "tags",
    Level.DAY: "kind and day",
    Level.NONE: "nothing",
}
_GROUP_WIDTH = 26
_MILLE = 1000


@dataclass(frozen=True, slots=True)
class Told:
    """Query of a reconciliation: month, time, cost basis, grouping and exchange rates."""

    month: Month
    now: datetime
    basis: str
    by: tuple[str, ...]
    rates: Mapping[str, Rate]


@dataclass(frozen=True, slots=True)
class Shown:
    """Contents of the report: the query and all results."""

    query: Told
    outcome: Outcome
    groups: tuple[Variance, ...]
    month: tuple[Variance, ...]
    findings: tuple[Finding, ...]


def as_table(view: Shown, most: int) -> str:
    """Return the report as text of 80 columns, with at most ``most`` rows without counterpart."""
    query = view.query
    lines = [f"{query.month} as of {stamp(query.now)}, {query.basis} cost"]
    lines += _coverage(view.outcome)
    lines += [
        f"{name} at {rate.rate} {rate.into} of {rate.as_of}, {plain(rate.source)}" for name, rate in query.rates.items()
    ]
    if view.outcome.levels:
        rows = [
            (_LEVELS[each.level], f"{each.rows:,}", money(each.amount), each.currency) for each in view.outcome.levels
        ]
        lines += ["", columns(("BILL ROWS MATCHED BY", "ROWS", "AMOUNT", ""), rows, frozenset({"ROWS", "AMOUNT"}), {})]
    lines += ["", *_bridges(view)]
    lines += _unmatched_rows("ON A BILL, NOT METERED", view.outcome.unmatched, most)
    lines += _unmatched_rows("METERED, NOT ON A BILL", view.outcome.unbilled, most)
    if view.findings:
        lines += ["", "FINDINGS", *(wrapped(_finding(each), "  ") for each in view.findings)]
    else:
        lines += ["", "no findings"]
    return "\n".join(lines)


def _coverage(outcome: Outcome) -> Iterator[str]:
    for each in outcome.reaches:
        account = " ".join(plain(word) for word in (each.cloud, each.account) if word) or "unnamed account"
        yield f"bills of {account} through {stamp(each.through)}"
    for currency, share in outcome.estimated.items():
        yield f"{currency}: {percent(share)} of what was spent is estimated"


def _bridges(view: Shown) -> Iterator[str]:
    header = (",".join(view.query.by).upper(), "PLANNED", "METERED", "ACTUAL", "INVOICED", "")
    every = [*((_named(each.group), each) for each in view.groups), *(("all", each) for each in view.month)]
    rows = [
        (name, money(each.planned), money(each.metered), money(each.actual), money(each.invoiced), each.currency)
        for name, each in every
    ]
    if not rows:
        yield "nothing was planned, metered or billed in this month"
        return
    right = frozenset({"PLANNED", "METERED", "ACTUAL", "INVOICED"})
    table = columns(header, rows, right, {header[0]: _GROUP_WIDTH}).splitlines()
    yield table[0]
    for line, (_, each) in zip(table[1:], every, strict=True):
        yield line
        why = _why(each)
        if why:
            yield wrapped(why, "    ")


def _why(variance: Variance) -> str:
    reasons = []
    for bucket in Bucket:
        if amount := variance.buckets.get(bucket):
            kinds = [(kind, part) for (of, kind), part in variance.kinds.items() if of is bucket]
            parts = "" if not kinds else f" ({', '.join(f'{kind} {signed(part)}' for kind, part in kinds)})"
            reasons.append(
                f"{bucket.value} {signed(amount)}{parts if len(kinds) > 1 else f' ({kinds[0][0]})' if kinds else ''}"
            )
    if variance.unpriced:
        reasons.append(f"{variance.unpriced} without a known price")
    return ", ".join(reasons)


def _unmatched_rows(title: str, found: Sequence[Alone], most: int) -> Iterator[str]:
    if not found:
        return
    yield ""
    things = _things(found)
    rows = [
        (
            f"{min(each.start for each in rows):%Y-%m-%d}",
            f"{len(rows):,}",
            *words,
            "unknown" if amount is None else money(amount),
            rows[0].currency,
        )
        for words, amount, rows in things[:most]
    ]
    header = ("SINCE", "ROWS", "", "WHAT", "WHOSE", "AMOUNT", " ")
    if rows:
        yield title
        yield columns(header, rows, frozenset({"AMOUNT", "ROWS"}), {"WHAT": 18, "WHOSE": 20})
    if len(things) > most:
        more = len(things) - most
        yield f"... {more:,} more; -o json has all rows" if rows else f"{title}: {more:,}; -o json has all rows"


def _things(found: Sequence[Alone]) -> list[tuple[tuple[str, str, str], Decimal | None, list[Alone]]]:
    """Return one entry per billed thing, with its rows, because a machine has a row for each hour or day.

    Things without a known price come first, then the dearest.
    """
    groups: dict[tuple[tuple[str, str, str], str, bool], list[Alone]] = {}
    for each in found:
        words = (each.what, _thing(each), _named((each.team, each.job)))
        groups.setdefault((words, each.currency, each.amount is None), []).append(each)
    summed: list[tuple[tuple[str, str, str], Decimal | None, list[Alone]]] = [
        (words, None if unknown else exact_sum(each.amount for each in rows if each.amount is not None), rows)
        for (words, _, unknown), rows in groups.items()
    ]
    return sorted(summed, key=lambda one: (one[1] is not None, -abs(one[1] or Decimal(0)), one[0]))


def _thing(each: Alone) -> str:
    kind = "" if each.category == "Usage" else each.category.lower()
    return plain(each.resource or each.sku or each.instance_type or each.attempt or kind or each.cloud or "")


def _finding(each: Finding) -> str:
    of = "" if each.expected is None or not each.expected else f" of {money(each.expected)}"
    amount = "" if each.difference is None else f" {signed(each.difference)}{of} {each.currency}"
    return f"{each.kind.value}: {plain(each.where)}:{amount} {each.why}".rstrip()


def as_csv(view: Shown) -> str:
    """Return CSV with one row per group and currency, exact; text cannot act as a spreadsheet formula."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    amounts = (
        "planned",
        *(bucket.value for bucket in Bucket if bucket is not Bucket.TIMING),
        "actual",
        "timing",
        "invoiced",
    )
    writer.writerow(["month", *view.query.by, "currency", *amounts, "metered", "unpriced"])
    for each in view.groups:
        named = [harmless(UNALLOCATED if word is None else word) for word in each.group]
        record = _record(each, view.query.by)
        sums = [record[name] for name in amounts]
        writer.writerow([str(view.query.month), *named, each.currency, *sums, record["metered"], each.unpriced])
    return text.getvalue()


def as_json(view: Shown) -> str:
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


def _record(each: Variance, by: Sequence[str]) -> dict[str, Any]:
    kinds: dict[str, dict[str, str]] = {}
    for (bucket, kind), amount in each.kinds.items():
        kinds.setdefault(bucket.value, {})[kind] = exact(amount)
    return {
        **dict(zip(by, each.group, strict=True)),
        "currency": each.currency,
        "planned": exact(each.planned),
        **{bucket.value: exact(each.buckets.get(bucket, Decimal(0))) for bucket in Bucket},
        "actual": exact(each.actual),
        "invoiced": exact(each.invoiced),
        "metered": exact(each.metered),
        "kinds": kinds,
        "unpriced": each.unpriced,
    }


def _encode(value: object) -> object:
    if isinstance(value, Decimal):
        return exact(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def exact(amount: Decimal) -> str:
    """Return an amount with all its digits and no more, such as ``12.5``."""
    text = f"{amount:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def money(amount: Decimal) -> str:
    """Return an amount such as ``1,234.56``."""
    return f"{amount:,.2f}"


def signed(amount: Decimal) -> str:
    """Return a signed amount such as ``+12.50``."""
    return f"{amount:+,.2f}"


def percent(share: Fraction | None) -> str:
    """Return a share such as ``2.1 %``."""
    return "an unknown part" if share is None else f"{round(share * _MILLE) / 10:.1f} %"


def _named(group: Sequence[str | None]) -> str:
    if group and not any(group):
        return UNALLOCATED
    return clipped("/".join(plain(UNALLOCATED if word is None else word) for word in group), _GROUP_WIDTH) or "all"
