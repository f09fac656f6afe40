"""What the clouds of the example month send for November 2026. Made up, like all of it: no invoice of anybody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pricing.places import Market
from router.ledger.month import Month
from router.state.records import Attempt, NodeRecord
from tests.support.made_up_bill import Account, Row, days, hours, of_attempt, tagged, write_bill

NOVEMBER = Month(2026, 11)
AWS = Account(
    issuer="Example AWS (made up)",
    provider="AWS",
    number="111122223333",
    sub_account="000044445555",
    month=NOVEMBER,
    invoice="MADE-UP-2026-11",
)
GCP = Account(
    issuer="Example Google Cloud (made up)",
    provider="Google Cloud",
    number="01A2B3-C4D5E6-F7A8B9",
    sub_account="training-prod",
    month=NOVEMBER,
)
AZURE = Account(
    issuer="Example Microsoft (made up)",
    provider="Microsoft Azure",
    number="made-up-eu-9",
    sub_account="catalogue",
    month=NOVEMBER,
    currency="EUR",
    invoice="MADE-UP-EU-11",
)
# Until when they have the month by now.
_AWS_UNTIL, _GCP_UNTIL = datetime.fromisoformat("2026-11-29T00:00Z"), datetime.fromisoformat("2026-11-28T00:00Z")
_DISK, _OBJECTS = ("Storage", "Block Storage", "Disks"), ("Storage", "Object Storage", "Objects")
_NETWORK, _MACHINE = ("Networking", "Network Connectivity", "Traffic"), ("Compute", "Virtual Machines", "Machines")
_SUPPORT = ("Management and Governance", "Support", "Support")
_RESERVED = "55.04"
Machines = Sequence[tuple[Attempt, NodeRecord]]


def write_bills(folder: Path, machines: Machines) -> None:
    """``bill-aws.csv``, ``bill-gcp.csv``, ``bill-azure.csv``."""
    ours = [(a, n) for a, n in machines if n.gone_at is not None and n.gone_at > NOVEMBER.begins]
    rows = {"aws": _aws(ours), "gcp": _gcp(ours), "azure": _azure(ours)}
    for cloud, made in rows.items():
        write_bill(folder / f"bill-{cloud}.csv", sorted(made, key=lambda row: row["ChargePeriodStart"]))


def _of(cloud: str, machines: Machines) -> Machines:
    return [(attempt, node) for attempt, node in machines if attempt.cloud == cloud]


def _aws(machines: Machines) -> Iterator[Row]:
    ours = _of("aws", machines)
    for attempt, node in ours:
        if node.market is Market.RESERVED:
            yield from _used_block(attempt, node)
            continue
        # Spot of the region was four percent dearer for a week than the price book had it.
        moved = node.market is Market.SPOT and attempt.region == "us-east-1" and _in(node, 10, 17)
        price = node.usd_per_hour.nanos * (104 if moved else 100) // 100
        yield from AWS.machine(attempt, node, _dollars(price), "Machines", _AWS_UNTIL)
        yield from _disk(AWS, attempt, node, _AWS_UNTIL)
    yield from _block(ours)
    yield from _aws_rest()


def _in(node: NodeRecord, first: int, before: int) -> bool:
    return node.made_at is not None and node.made_at.month == NOVEMBER.month and first <= node.made_at.day < before


def _disk(account: Account, attempt: Attempt, node: NodeRecord, until: datetime) -> Iterator[Row]:
    assert node.made_at is not None
    assert node.gone_at is not None
    for start, end in days(max(node.made_at, NOVEMBER.begins), min(node.gone_at, until)):
        size = Decimal(hours(end - start)) * 500
        yield account.used(
            start,
            end,
            f"{size.normalize():f}",
            "GB-Hours",
            "0.00011",
            _DISK,
            "disk-ssd",
            ResourceId=f"vol-{node.name}",
            ResourceType="Disk",
            RegionId=attempt.region,
            Tags=of_attempt(attempt),
        )


def _used_block(attempt: Attempt, node: NodeRecord) -> Iterator[Row]:
    """Covered by the block: nothing to pay any more, and worth what an hour of the block cost."""
    for row in AWS.machine(attempt, node, _RESERVED, "Machines"):
        yield {
            **row,
            "BilledCost": "0",
            "CapacityReservationId": "cr-made-up",
            "CapacityReservationStatus": "Used",
            "PricingCategory": "Standard",
        }


def _block(machines: Machines) -> Iterator[Row]:
    """168 hours from the ninth were bought at once; what nobody used has rows of its own."""
    start, end = datetime.fromisoformat("2026-11-09T00:00Z"), datetime.fromisoformat("2026-11-16T00:00Z")
    used = sorted(
        (n.made_at, n.gone_at) for _, n in machines if n.market is Market.RESERVED and n.made_at and n.gone_at
    )
    said = {"RegionId": "us-east-2", "Tags": tagged(team="vision", project="medical")}
    yield AWS.used(
        start,
        end,
        "168",
        "Hours",
        _RESERVED,
        _MACHINE,
        "block",
        ChargeCategory="Purchase",
        ChargeFrequency="One-Time",
        ChargeDescription="block of 168 hours",
        EffectiveCost="0",
        PricingCurrencyEffectiveCost="0",
        ConsumedQuantity="",
        ConsumedUnit="",
        **said,
    )
    edges = [start, *(moment for pair in used for moment in pair), end]
    for begin, stop in zip(edges[::2], edges[1::2], strict=True):
        for one, other in days(begin, stop):
            idle = hours(other - one)
            yield AWS.used(
                one,
                other,
                idle,
                "Hours",
                _RESERVED,
                _MACHINE,
                "p5.48xlarge",
                BilledCost="0",
                ConsumedQuantity="",
                ConsumedUnit="",
                CapacityReservationId="cr-made-up",
                CapacityReservationStatus="Unused",
                **said,
            )


def _aws_rest() -> Iterator[Row]:
    """What no plan explains, and what is about the whole account."""
    for number in range(28):
        day = NOVEMBER.begins + timedelta(days=number)
        yield AWS.used(
            day,
            day + timedelta(days=1),
            "72",
            "Hours",
            "0.005",
            _NETWORK,
            "public-address",
            ChargeDescription="public addresses",
            RegionId="us-east-1",
        )
    for number in range(11, 17):  # a machine that somebody made by hand, and nothing of ours metered
        day = NOVEMBER.begins + timedelta(days=number)
        yield AWS.used(
            day,
            day + timedelta(days=1),
            "24",
            "Hours",
            "4.60",
            _MACHINE,
            "g6.12xlarge",
            ResourceId="i-0badc0ffee0badc0f",
            RegionId="us-east-1",
            Tags=tagged(owner="lee"),
        )
    yield AWS.used(
        NOVEMBER.begins,
        _AWS_UNTIL,
        "21400",
        "GB-Months",
        "0.021",
        _OBJECTS,
        "objects",
        ResourceId="made-up-east",
        RegionId="us-east-1",
        Tags=tagged(team="speech", project="asr"),
    )
    for at, store, region, gigabytes, price in (
        ("2026-11-04T00:00Z", "made-up-west", "us-west-2", "140", "0.02"),
        ("2026-11-06T00:00Z", "made-up-east", "us-east-1", "12", "0.02"),
        ("2026-11-14T00:00Z", "made-up-east", "us-east-1", "12", "0.02"),
        ("2026-11-23T00:00Z", "made-up-east", "us-east-1", "12", "0.02"),
    ):
        day = datetime.fromisoformat(at)
        yield AWS.used(
            day,
            day + timedelta(days=1),
            gigabytes,
            "GB",
            price,
            _NETWORK,
            "between-regions",
            ResourceId=store,
            RegionId=region,
        )
    month = (NOVEMBER.begins, NOVEMBER.ends)
    yield AWS.row(
        *month,
        Decimal("1000"),
        _SUPPORT,
        ChargeCategory="Purchase",
        ChargeFrequency="Recurring",
        ChargeDescription="support, a month",
    )
    yield AWS.row(
        *month,
        Decimal("-750"),
        _MACHINE,
        ChargeCategory="Credit",
        ChargeFrequency="One-Time",
        ChargeDescription="credit for new accounts",
    )
    yield AWS.row(
        *month, Decimal("312.44"), _MACHINE, ChargeCategory="Tax", ChargeFrequency="One-Time", ChargeDescription="tax"
    )
    yield AWS.row(
        *month,
        Decimal("-42.18"),
        _MACHINE,
        ChargeClass="Correction",
        ChargeCategory="Credit",
        ChargeFrequency="One-Time",
        ChargeDescription="October: hours that were charged twice",
        Tags=tagged(team="speech", project="asr"),
    )


def _gcp(machines: Machines) -> Iterator[Row]:
    for attempt, node in _of("gcp", machines):
        yield from GCP.machine(attempt, node, _dollars(node.usd_per_hour.nanos), "Machines", _GCP_UNTIL)
        yield from _disk(GCP, attempt, node, _GCP_UNTIL)
    for at, store, region, price in (
        ("2026-11-03T00:00Z", "made-up-us", "us-central1", "0.08"),
        ("2026-11-04T00:00Z", "made-up-eu", "europe-west4", "0.12"),
    ):
        day = datetime.fromisoformat(at)
        yield GCP.used(
            day,
            day + timedelta(days=1),
            "140",
            "GB",
            price,
            _NETWORK,
            "between-places",
            RegionId=region,
            ResourceId=f"//storage.example/projects/_/buckets/{store}",
        )
    yield GCP.used(
        NOVEMBER.begins,
        _GCP_UNTIL,
        "8200",
        "GB-Months",
        "0.02",
        _OBJECTS,
        "objects",
        ResourceId="made-up-eu",
        RegionId="europe-west4",
        Tags=tagged(team="research"),
    )


def _azure(machines: Machines) -> Iterator[Row]:
    """In euros, at what the contract says: 0.92 of the dollar prices."""
    for attempt, node in _of("azure", machines):
        yield from AZURE.machine(attempt, node, _dollars(node.usd_per_hour.nanos * 92 // 100), "Machines")
    tax = Decimal("301.73")
    yield AZURE.row(
        NOVEMBER.begins,
        NOVEMBER.ends,
        tax,
        _MACHINE,
        ChargeCategory="Tax",
        ChargeFrequency="One-Time",
        ChargeDescription="VAT",
    )


def _dollars(nanos: int) -> str:
    return f"{(Decimal(nanos) / 10**9).normalize():f}"
