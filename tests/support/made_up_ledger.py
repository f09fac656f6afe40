"""Ledgers as metering makes them from attempts that nobody would have by hand, and what people add to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.controller.history.metering import TrainingRecord, disk_entries, metered_entries, transfer_entries
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse, book_entry
from router.ledger.month import Month
from router.state.records import Attempt, JournalEntry, NodeRecord
from tests.support.state_values import attempt, node

OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
LATER = datetime(2026, 12, 1, tzinfo=UTC)
_FROM = datetime(2026, 10, 25, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DAY = 86_400 * 10**6

_MOMENTS = st.integers(0, 30 * _DAY).map(lambda ticks: _FROM + timedelta(microseconds=ticks))
_LENGTHS = st.integers(1, 3 * _DAY).map(lambda ticks: timedelta(microseconds=ticks))
_RATES = st.integers(0, 200 * 10**9).map(UsdPerHour)
_WORDS = st.sampled_from(["research", "speech", "=cmd", "ö☃", "-x"])
_PLACES = st.sampled_from([("aws", "us-east-1"), ("gcp", "us-central1")])
_COURSES = st.builds(
    TrainingRecord,
    met_at=st.none() | _MOMENTS,
    ended_at=st.none() | _MOMENTS,
    finished=st.booleans(),
    told=st.booleans(),
    first_step=st.just(0),
    last_step=st.integers(0, 10**6),
    kept_step=st.integers(0, 10**6),
    step_seconds=st.none() | st.floats(0.001, 100),
    saving=st.integers(0, 10**4).map(lambda s: s * _SECOND),
    deadline=st.none() | _MOMENTS,
)


@st.composite
def lives(draw: st.DrawFn, number: int) -> list[LedgerEntry]:
    """All that one attempt leaves behind: machines, disks, what was copied to it."""
    cloud, region = draw(_PLACES)
    name = f"a{number}"
    begun = draw(_MOMENTS)
    machines = [_machine(draw, name, rank, begun) for rank in range(draw(st.integers(1, 2)))]
    of: Attempt = attempt(
        name,
        cloud=cloud,
        region=region,
        team=draw(_WORDS),
        project=draw(st.none() | _WORDS),
        job=draw(_WORDS),
        cost_center=draw(st.none() | _WORDS),
        kept_step=draw(st.none() | st.integers(0, 10**6)),
        last_step=draw(st.none() | st.integers(10**6, 10**7)),
    )
    journal = [_copied(draw, name, begun)] if draw(st.booleans()) else []
    return [
        *metered_entries(of, machines, LATER, draw(_COURSES)),
        *disk_entries(of, machines, draw(st.none() | st.integers(1, 500)), LATER),
        *transfer_entries(of, journal, LATER),
    ]


def _machine(draw: st.DrawFn, name: str, rank: int, begun: datetime) -> NodeRecord:
    made = begun + draw(_LENGTHS)
    return node(
        name,
        rank,
        machine_id=draw(st.none() | st.just(f"i-{name}-{rank}")),
        market=draw(st.sampled_from(Market)),
        usd_per_hour=draw(_RATES),
        on_demand_usd_per_hour=draw(st.none() | _RATES),
        accelerators=draw(st.sampled_from([0, 1, 8])),
        made_at=made,
        gone_at=draw(st.none() | _LENGTHS.map(made.__add__)),
        price_source=draw(st.sampled_from(["", "book"])),
        price_as_of=draw(st.sampled_from(["", "undated", "2026-10-20"])),
    )


def _copied(draw: st.DrawFn, name: str, at: datetime) -> JournalEntry:
    usd = draw(st.none() | st.integers(0, 10**12).map(lambda nanos: str(Usd(nanos))))
    details: dict[str, object] = {
        "from": f"s3://{name}",
        "to": "gs://b",
        "origin": "aws/us-east-1",
        "bytes": draw(st.integers(1, 10**13)),
        "seconds": 7.5,
        "usd": usd,
    }
    return JournalEntry(1, at, name, "copied", details)


@st.composite
def added(draw: st.DrawFn, number: int) -> LedgerEntry:
    """What a person adds, in the books of October or November."""
    kind = draw(
        st.sampled_from([LedgerEntryKind.FEE, LedgerEntryKind.CREDIT, LedgerEntryKind.TAX, LedgerEntryKind.ADJUSTMENT])
    )
    month = draw(st.sampled_from([OCTOBER, NOVEMBER]))
    nanos = draw(st.integers(-(10**12), 10**12))
    usd = {LedgerEntryKind.FEE: abs(nanos), LedgerEntryKind.CREDIT: -abs(nanos)}.get(kind, nanos)
    known = draw(st.booleans())
    fields: dict[str, Any] = {
        "what": draw(st.sampled_from(CostItem)),
        "use": draw(st.sampled_from([None, MachineUse.RESERVATION_UNUSED])),
        "quantity": Fraction(draw(st.integers(0, 10**9)), 1000) if known else Fraction(0),
        "unit": draw(st.sampled_from(["Hours", "Months", "7"])) if known else "",
        "cloud": draw(st.sampled_from(["", "aws"])),
        "team": draw(st.just("") | _WORDS),
        "machines": draw(st.integers(1, 3)),
    }
    return LedgerEntry(
        key=f"added {number}",
        kind=kind,
        recorded_at=LATER,
        period=month,
        start=month.begins,
        end=month.ends,
        usd=Usd(usd),
        who="anna",
        reason=draw(_WORDS),
        **fields,
    )


@st.composite
def ledgers(draw: st.DrawFn) -> list[LedgerEntry]:
    """Entries as they are appended: some of October, which is open still."""
    found = [one for number in range(draw(st.integers(0, 4))) for one in draw(lives(number))]
    found += [draw(added(number)) for number in range(draw(st.integers(0, 3)))]
    return found


def after_closing(entries: Iterable[LedgerEntry], closed: Month) -> list[LedgerEntry]:
    """The same entries as they would be booked once books up to ``closed`` are closed. Metered ones alone."""
    late = (
        replace(one, key=f"late {one.key}", recorded_at=LATER) for one in entries if one.kind is LedgerEntryKind.METERED
    )
    return [book_entry(one, closed) for one in late]
