"""November 2026 as the sandbox would meter it, with round figures: what the ledger holds, by hand.

``speech`` trains on two spot machines at 24 dollars (60 on demand) for eight hours until they are taken, then on
demand with a discount (54 for 60) for three; ``vision`` has one that never met, for six minutes, and three hours on a
reservation. A checkpoint of 2.5 GB is copied for 0.225; the disks have no price. People add support, a credit, a tax,
an adjustment, and correct October by a credit. A machine of October is metered when that is closed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.controller.history.metering import TrainingRecord, disk_entries, metered_entries, transfer_entries
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse, book_entry
from router.ledger.month import Month
from router.showback.accounts import Account, Services, Showback
from router.state.records import JournalEntry, NodeRecord
from tests.support.state_values import attempt, node

OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
START = datetime(2026, 11, 3, tzinfo=UTC)
RECORDED = datetime(2026, 11, 30, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
ACCOUNTS = Showback(
    accounts={
        "aws": Account(
            billing_account_id="111122223333",
            billing_account_name="Training",
            billing_account_type="Payer Account",
            sub_account_id="000044445555",
            sub_account_name="research",
            sub_account_type="Linked Account",
            provider="AWS",
            regions={"us-east-1": "US East (N. Virginia)"},
            services=Services(machine="Amazon EC2", disk="Amazon EBS", egress="AWS Data Transfer"),
        ),
        "gcp": Account(
            billing_account_id="01A2B3-C4D5E6-F7A8B9", billing_account_type="Billing Account", provider="Google Cloud"
        ),
    }
)
_COURSE = TrainingRecord(None, None, finished=False, told=True, first_step=0, last_step=0, kept_step=0)


def _node(of: str, rank: int, made: datetime, gone: datetime, **changes: Any) -> NodeRecord:
    fields: dict[str, Any] = {
        "machine_id": f"i-{of}-{rank}", "zone": "us-east-1a", "market": Market.SPOT, "made_at": made, "gone_at": gone,
        "usd_per_hour": UsdPerHour.parse("24"), "on_demand_usd_per_hour": UsdPerHour.parse("60"),
        "price_as_of": "2026-11-02", "price_source": "price book 3f2a90c1",
    }  # fmt: skip
    return node(of, rank, **{**fields, **changes})


def _spot() -> list[LedgerEntry]:
    """Half an hour until they met, six of work, half an hour of saving, one lost."""
    gone = START + 8 * HOUR
    of = attempt("spot", team="speech", project="asr", job="whisper", kept_step=5000, last_step=6000)
    machines = [_node("spot", rank, START, gone) for rank in (0, 1)]
    course = replace(
        _COURSE,
        met_at=START + HOUR / 2,
        ended_at=gone,
        last_step=6000,
        kept_step=5000,
        step_seconds=3.6,
        saving=HOUR / 2,
    )
    copied: dict[str, object] = {
        "from": "s3://east",
        "to": "gs://west",
        "origin": "aws/us-east-1",
        "bytes": 2_500_000_000,
        "seconds": 60,
        "usd": "0.225",
    }
    journal = [JournalEntry(1, gone + 2 * MINUTE, "spot", "copied", copied)]
    return [
        *metered_entries(of, machines, RECORDED, course),
        *disk_entries(of, machines, 100, RECORDED),
        *transfer_entries(of, journal, RECORDED),
    ]


def _on_demand() -> list[LedgerEntry]:
    """Three hours, all work, at a price with a discount."""
    begun = START + 9 * HOUR
    of = attempt("later", team="speech", project="asr", job="whisper", kept_step=2000, last_step=2000)
    machine = _node("later", 0, begun, begun + 3 * HOUR, market=Market.ON_DEMAND, usd_per_hour=UsdPerHour.parse("54"))
    course = replace(_COURSE, met_at=begun, ended_at=begun + 3 * HOUR, finished=True, last_step=2000, kept_step=2000)
    return list(metered_entries(of, [machine], RECORDED, course))


def _vision() -> list[LedgerEntry]:
    failed, reserved = (
        attempt(name, team="vision", job="vit", cloud="gcp", region="us-central1") for name in ("failed", "kept")
    )
    gone, begun = START + 6 * MINUTE, START + HOUR
    one = _node("failed", 0, START, gone, usd_per_hour=UsdPerHour.parse("25"), zone=None)
    other = _node(
        "kept", 0, begun, begun + 3 * HOUR, market=Market.RESERVED, usd_per_hour=UsdPerHour(0), reservation_cost="sunk"
    )
    held = replace(_COURSE, met_at=begun, ended_at=begun + 3 * HOUR, finished=True)
    return [
        *metered_entries(failed, [one], RECORDED, _COURSE),
        *metered_entries(reserved, [other], RECORDED, held),
    ]


def _late() -> LedgerEntry:
    """An hour of the last day of October, whose books are closed."""
    begun = OCTOBER.ends - 2 * HOUR
    of = attempt("late", team="speech", job="whisper")
    machine = _node("late", 0, begun, begun + HOUR)
    (one,) = metered_entries(of, [machine], RECORDED, replace(_COURSE, met_at=begun, finished=True))
    return book_entry(one, OCTOBER)


def _added(key: str, kind: LedgerEntryKind, usd: str, **changes: Any) -> LedgerEntry:
    fields: dict[str, Any] = {
        "what": CostItem.OTHER, "period": NOVEMBER, "start": NOVEMBER.begins, "end": NOVEMBER.ends, "who": "anna",
        "reason": key, "cloud": "aws", "unit": "",
    }  # fmt: skip
    return LedgerEntry(key=key, kind=kind, recorded_at=RECORDED, usd=Usd.parse(usd), **{**fields, **changes})


def month() -> list[LedgerEntry]:
    """All of it, in the order in which it was appended."""
    october = {"start": OCTOBER.begins, "end": OCTOBER.ends, "corrects": "2026-10"}
    return [
        *_spot(), *_on_demand(), *_vision(), _late(),
        _added("support", LedgerEntryKind.FEE, "15"),
        _added("block was idle", LedgerEntryKind.FEE, "800", what=CostItem.MACHINE, use=MachineUse.RESERVATION_UNUSED,
               quantity=168, unit="Hours", machines=1, team="vision"),
        _added("promised", LedgerEntryKind.CREDIT, "-50"),
        _added("VAT", LedgerEntryKind.TAX, "36"),
        _added("rounding", LedgerEntryKind.ADJUSTMENT, "-1", cloud=""),
        _added("October was too dear", LedgerEntryKind.CREDIT, "-10", **october),
    ]  # fmt: skip
