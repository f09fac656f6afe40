"""Report of a price refresh as text and JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pricing.units import format_count
from providers.registry import CLOUDS
from router.prices.books import SANDBOX
from router.prices.merge import GateRejection
from router.prices.report import BookReport, CloudReport, RefreshFailure, RefreshReport, RefreshStatus
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import PLAIN, Screen, format_timestamp, wrap_text

_SHOWN = 5


def as_text(report: RefreshReport, screen: Screen = PLAIN) -> str:
    """Return one row per cloud, followed by failures, omitted rows with reasons, and what an account would add."""
    asked = [cloud for cloud in report.clouds if cloud.status is not RefreshStatus.SKIPPED]
    parts = [_CLOUDS.text(asked, screen) + "\n"] if asked else []
    parts += [text for cloud in report.clouds if (text := _details(cloud, stored=report.stored_for(cloud.cloud)))]
    parts += [wrap_text(f"warning: {warning}") + "\n" for warning in report.warnings]
    return "\n".join([*parts, _end(report)])


def _details(cloud: CloudReport, *, stored: bool) -> str:
    lines: list[str] = []
    lines += _failures(cloud.failures)
    if cloud.counts.kept and cloud.failures and stored:
        lines.append(f"  {cloud.counts.kept} older offers stay, marked as not refreshed")
    lines += [wrap_text(f"held back: {held}", "  ") for held in cloud.held[:_SHOWN]]
    if len(cloud.held) > _SHOWN:
        lines.append(f"  ... and {len(cloud.held) - _SHOWN} more held back (-o json lists all)")
    lines += [wrap_text(f"left out: {d.count} x {d.why}, e.g. {d.example}", "  ") for d in cloud.dropped[:_SHOWN]]
    if len(cloud.dropped) > _SHOWN:
        lines.append(f"  ... and {len(cloud.dropped) - _SHOWN} more reasons (-o json lists all)")
    for hint in _distinct(cloud.hints):
        adds = f"; an account would add {hint.would_add}" if hint.would_add else ""
        lines.append(wrap_text(f"{hint.what + ': ' if hint.what else ''}{hint.error}{adds}", "  "))
        if hint.error.remedy:
            lines.append(wrap_text(hint.error.remedy, "    "))
    return "\n".join([f"{cloud.cloud} ({CLOUDS[cloud.cloud].title})", *lines]) + "\n" if lines else ""


def _failures(failures: tuple[RefreshFailure, ...]) -> list[str]:
    """Return the failures as lines; the same failure of many regions is one line."""
    groups: dict[tuple[str, str], list[RefreshFailure]] = {}
    for failure in failures:
        region = failure.where.partition("/")[2]
        text = str(failure.error).replace(region, "it") if region else str(failure.error)
        groups.setdefault((failure.what, text), []).append(failure)
    lines = []
    for (what, error), same in groups.items():
        places = ", ".join(failure.where for failure in same[:3])
        more = f" and {len(same) - 3} more" if len(same) > 3 else ""
        lines.append(wrap_text(f"failed: {places}{more}: {what + ': ' if what else ''}{error}", "  "))
        if same[0].error.remedy:
            lines.append(wrap_text(same[0].error.remedy, "    "))
    return lines


def _distinct(hints: tuple[RefreshFailure, ...]) -> tuple[RefreshFailure, ...]:
    return tuple({(hint.what, str(hint.error), hint.would_add): hint for hint in hints}.values())


def _end(report: RefreshReport) -> str:
    history = f"; {report.history_added} points added to the price history" if report.history_added else ""
    lines = []
    for book in report.books:
        name = f" as --book {book.name}" if book.name == SANDBOX else ""
        if book.stored is None:
            offers = format_count(book.offers, "offer")
            lines.append(f"nothing was stored{name}: the book of before stays ({book.before[:12]}, {offers})")
        else:
            offers = format_count(book.stored.offers, "offer")
            lines.append(f"stored {book.stored.digest[:12]} of {format_timestamp(report.now)}{name}, {offers}")
    return "\n".join(lines) + f"{history}\n"


def as_json(report: RefreshReport) -> str:
    """Return the whole report as JSON, with every failure, dropped reason and held-back row."""
    first = report.books[0]
    document = {
        "now": report.now.isoformat(),
        "complete": report.complete,
        "book": _stored(first),
        "book_before": first.before,
        "books": [{"name": book.name, "stored": _stored(book), "before": book.before} for book in report.books],
        "history_added": report.history_added,
        "warnings": list(report.warnings),
        "clouds": _CLOUDS.records(report.clouds),
    }
    return json_document(document)


def _stored(book: BookReport) -> dict[str, Any] | None:
    return None if book.stored is None else {"digest": book.stored.digest, "offers": book.stored.offers}


_FAILURES: RecordTable[RefreshFailure] = RecordTable(
    (
        *attribute_columns("where", "what"),
        TableColumn("error", lambda failure: str(failure.error)),
        *attribute_columns("code", "remedy", of="error"),
        TableColumn("would_add", lambda failure: failure.would_add),
    )
)
_HELD: RecordTable[GateRejection] = RecordTable((*attribute_columns("gate"), TableColumn("what", str)))


def _count(name: str, heading: str, value: Callable[[CloudReport], int]) -> TableColumn[CloudReport]:
    return TableColumn(name, value, heading, lambda count: str(count) if count else "", right=True)


_CLOUDS: RecordTable[CloudReport] = RecordTable(
    (
        TableColumn("cloud", lambda cloud: cloud.cloud, "CLOUD"),
        TableColumn("status", lambda cloud: cloud.status.value, ""),
        TableColumn("", lambda c: f"{c.scopes_done}/{c.scopes_total}" if c.scopes_total else None, "PARTS", right=True),
        *attribute_columns("scopes_done", "scopes_total"),
        _count("rows_read", "READ", lambda cloud: cloud.rows_read),
        _count("offers", "OFFERS", lambda cloud: cloud.counts.fresh),
        _count("added", "NEW", lambda cloud: cloud.counts.added),
        _count("changed", "MOVED", lambda cloud: cloud.counts.changed),
        _count("removed", "GONE", lambda cloud: cloud.counts.removed),
        _count("kept", "OLD", lambda cloud: cloud.counts.kept),
        TableColumn("failures", lambda cloud: cloud.failures, plain=_FAILURES.records),
        TableColumn("hints", lambda cloud: cloud.hints, plain=_FAILURES.records),
        TableColumn("dropped", lambda cloud: cloud.dropped),
        TableColumn("held_back", lambda cloud: cloud.held, plain=_HELD.records),
        *attribute_columns("calls", "retries"),
        TableColumn(
            "seconds",
            lambda c: c.seconds,
            "TIME",
            "{:.1f}s".format,
            right=True,
            plain=lambda seconds: round(seconds, 3),
        ),
    )
)
