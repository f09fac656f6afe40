"""Bills that were imported, as values: what came in which delivery, and which bill a later one has replaced. Pure.

A delivery is what one command imported, a bill the part of it that has one issuer, account and billing period. Bills
are restated until the month is closed: the newest delivery of the same three is the bill, and the older ones are
history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was imported. ``version`` is that of FOCUS, ``form`` csv, csv.gz or parquet."""

    name: str
    sha256: str
    bytes: int
    form: str
    version: str
    rows: int


@dataclass(frozen=True, slots=True)
class Gap:
    """That a rule of FOCUS is broken ``count`` times in a column of a file; ``row``, ``line`` and ``value`` are the
    first."""

    file: str
    rule: str
    column: str
    count: int
    row: int | None
    line: int | None
    value: str


@dataclass(frozen=True, slots=True)
class Bill:
    """``start`` and ``end`` are the billing period (UTC, ISO), None where the file names none; ``label`` then tells
    bills apart. ``sums`` has exact decimal text by currency ("" where none is named) and cost column, None where no
    row says it. ``data_through`` is the latest end of usage. ``file`` holds the rows, and is the very one that was
    written when its SHA-256 is ``sha256``."""

    id: str
    issuer: str | None
    account: str | None
    start: str | None
    end: str | None
    label: str
    rows: int
    sums: dict[str, dict[str, str | None]]
    data_through: str | None
    file: str
    sha256: str

    @property
    def key(self) -> tuple[str | None, ...]:
        """What a restated bill has in common with the one that it replaces."""
        return (self.issuer, self.account, self.start, self.end, self.label)


@dataclass(frozen=True, slots=True)
class Delivery:
    """``number`` counts from 1, in the order of import; ``digest`` is of the files' contents, whatever their names."""

    number: int
    digest: str
    imported_at: str
    sources: tuple[Source, ...]
    bills: tuple[Bill, ...]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """A bill, the delivery that it came in, the bill that it replaced, and the one that has replaced it."""

    bill: Bill
    delivery: Delivery
    replaces: str | None
    replaced_by: str | None


def standings(deliveries: Iterable[Delivery]) -> tuple[Standing, ...]:
    """All bills, in the order of import."""
    ordered = sorted(deliveries, key=lambda each: each.number)
    history: dict[tuple[str | None, ...], list[str]] = {}
    for delivery in ordered:
        for bill in delivery.bills:
            history.setdefault(bill.key, []).append(bill.id)
    return tuple(_standings(ordered, history))


def _standings(ordered: list[Delivery], history: dict[tuple[str | None, ...], list[str]]) -> Iterator[Standing]:
    for delivery in ordered:
        for bill in delivery.bills:
            line = history[bill.key]
            at = line.index(bill.id)
            before = line[at - 1] if at else None
            yield Standing(bill, delivery, before, line[at + 1] if at + 1 < len(line) else None)


def to_json(delivery: Delivery) -> str:
    """Its manifest."""
    return json.dumps({"format": FORMAT, **asdict(delivery)}, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Delivery:
    """Of a manifest. ValueError, TypeError or KeyError where it is none of ours."""
    found: dict[str, Any] = json.loads(text)
    if found.pop("format") != FORMAT:
        raise ValueError("is of another version of stepfare")
    return Delivery(
        **{
            **found,
            "sources": tuple(Source(**each) for each in found["sources"]),
            "bills": tuple(Bill(**each) for each in found["bills"]),
            "gaps": tuple(Gap(**each) for each in found["gaps"]),
        }
    )
