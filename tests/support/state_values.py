"""Attempts, machines and entries to put into a state, made up; and many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.state.records import Attempt, NodeRecord, Shortage

NewUrl = Callable[[], str]

NOW = datetime(2026, 11, 21, 18, 0, 0, 123456, UTC)
HOUR = timedelta(hours=1)
_MOST = (1 << 63) - 1


def attempt(name: str = "a1", **changes: Any) -> Attempt:
    fields: dict[str, Any] = {
        "id": name,
        "plan": "p" * 64,
        "job": "llama",
        "job_digest": "j" * 64,
        "gang": "g0",
        "start": NOW,
        "end": NOW + 5 * HOUR,
        "choice": 0,
        "number": 1,
        "cloud": "aws",
        "region": "us-east-1",
        "machines": 2,
        "engine": "torchrun",
        "team": "research",
        "project": None,
        "cost_center": "cc-7",
        "usd_per_hour": UsdPerHour.parse("55.040000001"),
        "max_usd_per_hour": UsdPerHour.parse("60.5"),
        "at_risk_usd": Usd.parse("302.5"),
        "directory": "/somewhere/runs/a1",
        "token_hash": "f" * 64,
        "created_at": NOW,
    }
    return Attempt(**{**fields, **changes})


def node(name: str = "a1", rank: int = 0, **changes: Any) -> NodeRecord:
    """A machine of an attempt that nobody has seen yet."""
    fields: dict[str, Any] = {
        "attempt": name,
        "rank": rank,
        "name": f"{name}-{rank}",
        "zone": None,
        "instance_type": "p5.48xlarge",
        "market": Market.SPOT,
        "accelerator": "H100",
        "accelerators": 8,
        "usd_per_hour": UsdPerHour.parse("27.52"),
        "max_usd_per_hour": UsdPerHour.parse("30.25"),
    }
    return NodeRecord(**{**fields, **changes})


def shortage(zone: str | None = None, hours: float = 1, at: datetime = NOW) -> Shortage:
    """A pool that is short for a while."""
    until = at + hours * HOUR
    return Shortage("aws", "us-east-1", zone, "p5.48xlarge", Market.SPOT, 4, at, until, "InsufficientInstanceCapacity")


def entry(key: str = "k1", **changes: Any) -> LedgerEntry:
    """An hour of one machine, metered."""
    fields: dict[str, Any] = {
        "key": key,
        "kind": LedgerEntryKind.METERED,
        "recorded_at": NOW,
        "plan": "p" * 64,
        "job": "llama",
        "job_digest": "j" * 64,
        "team": "research",
        "project": None,
        "cost_center": "cc-7",
        "gang": "g0",
        "attempt": "a1",
        "rank": 0,
        "cloud": "aws",
        "region": "us-east-1",
        "zone": None,
        "instance_type": "p5.48xlarge",
        "market": Market.SPOT,
        "accelerator": "H100",
        "accelerators": 8,
        "machines": 1,
        "start": NOW,
        "end": NOW + HOUR,
        "quantity": Fraction(1),
        "usd_per_hour": UsdPerHour.parse("27.52"),
        "usd": Usd.parse("27.52"),
    }
    given = {**fields, **changes}
    return LedgerEntry(**{"period": Month.of(given["start"]), **given})


_WORDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)
_MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(9990, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  zone given


@st.composite
def entries(draw: st.DrawFn, keys: st.SearchStrategy[str]) -> LedgerEntry:
    """Any entry that there can be, but for what corrects something."""
    kind = draw(st.sampled_from(LedgerEntryKind))
    metered, added = kind is LedgerEntryKind.METERED, kind.is_added
    what = draw(st.sampled_from(CostItem))
    machine = what is CostItem.MACHINE
    start = draw(_MOMENTS)
    unpriced = draw(st.booleans())
    usd = draw(st.integers(0, _MOST)) * (-1 if kind is LedgerEntryKind.CREDIT else 1)
    return entry(
        draw(keys),
        kind=kind,
        what=what,
        use=draw(st.none() | st.sampled_from(MachineUse)),
        recorded_at=draw(_MOMENTS),
        job=draw(_WORDS),
        team=draw(_WORDS),
        project=draw(st.none() | _WORDS),
        attempt=draw(_WORDS.filter(bool) if metered else _WORDS),
        rank=draw(st.integers(0, 1000) if metered and machine else st.none() | st.integers(0, 1000)),
        zone=draw(st.none() | _WORDS),
        market=draw(st.none() | st.sampled_from(Market)),
        machines=1 if metered and machine else draw(st.integers(1, 10_000)),
        start=start,
        end=start + timedelta(microseconds=draw(st.integers(1, 10**14))),
        quantity=draw(st.fractions(0, 10**9)),
        unit=draw(_WORDS),
        usd_per_hour=draw(st.none() | st.integers(0, _MOST).map(UsdPerHour)),
        usd=Usd(0 if unpriced else usd),
        unpriced=unpriced,
        steps=draw(st.integers(0, _MOST)),
        who=draw(_WORDS.filter(bool) if added else _WORDS),
        reason=draw(_WORDS.filter(bool) if added else _WORDS),
        reference=draw(_WORDS),
        resource=draw(_WORDS),
        on_demand_usd_per_hour=draw(st.none() | st.integers(0, _MOST).map(UsdPerHour)),
    )


def together(count: int, work: Callable[[int], object]) -> None:
    """Runs `work(0)`, `work(1)` ... at once; raises what the first of them raised."""
    gate = threading.Barrier(count)
    failures: list[BaseException] = []

    def run(index: int) -> None:
        gate.wait()
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
