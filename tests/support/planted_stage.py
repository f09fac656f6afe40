"""A month whose every difference was put there by hand, on the stage: planned, run, released, billed in November 2026.
tests/integration/test_sandbox_month.py has the amounts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pricing.places import Market
from router.jobs.spec import Job
from router.ledger.month import Month
from router.state.records import Attempt, NodeRecord
from tests.support.made_up_bill import Account, Row, of_attempt, tagged, write_bill
from tests.support.made_up_jobs import simple_job
from tests.support.metered_stage import HOUR, Life, Place, Stage, planned

NOVEMBER = Month(2026, 11)
EAST = Place("aws", "us-east-1", "us-east-1a", "p5", Market.SPOT, "10", "25")
WEST = Place("aws", "us-west-2", "us-west-2b", "p5", Market.ON_DEMAND, "25", "25")
NORTH = Place("azure", "northeurope", "", "nd96", Market.SPOT, "10", "25")
AWS = Account(
    issuer="Made-up AWS",
    provider="AWS",
    number="111122223333",
    sub_account="000044445555",
    month=NOVEMBER,
    invoice="MADE-UP-1",
)
AZURE = Account(
    issuer="Made-up Azure",
    provider="Microsoft Azure",
    number="made-up-9",
    sub_account="training",
    month=NOVEMBER,
    currency="EUR",
    invoice="MADE-UP-2",
)
MACHINE, NETWORK = ("Compute", "Virtual Machines", "Machines"), ("Networking", "Network Connectivity", "Traffic")
ADDED = """\
entries:
  - {kind: credit, usd: -10, period: 2026-11, corrects: 2026-10, reason: October was too dear, job: money, team: vision, cloud: aws}
  - {kind: fee, usd: 60, start: 2026-11-01T00:00Z, end: 2026-11-08T00:00Z, reason: block was idle, use: reservation_unused, what: machine, quantity: 168, unit: Hours}
  - {kind: fee, usd: 8, period: 2026-11, reason: licence}
"""  # noqa: E501


def day(number: int, hour: float = 0) -> datetime:
    """Of November 2026, and the hour of it."""
    return datetime(2026, 11, number, tzinfo=UTC) + timedelta(hours=hour)


def _job(name: str, team: str = "speech", **more: Any) -> Job:
    return simple_job(name, ("H100", 8), steps=1000, steps_per_hour=100, team=team, run={"command": "train"}, **more)


class Planted:
    """``machines`` by job, in the order of their lives."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.machines: dict[str, list[tuple[Attempt, NodeRecord]]] = {}

    def play(self) -> None:
        """All jobs, a day each."""
        for number, (name, hours) in enumerate({"price": 10, "quantity": 12, "short": 7, "late": 10}.items(), 2):
            self._plain(_job(name), number, hours)
        self._mix(day(6))
        self._waste(day(8))
        job = _job("extras", "vision")
        self._lives(job, self._plan(job, day(11)), EAST, self._ran(day(11), 10, disk_gib=100, copied=_copied("9")))
        self._plain(_job("money", "vision"), 12, 10)
        job = _job("euros", "vision")
        self._lives(job, self._plan(job, day(13), 6, NORTH), NORTH, self._ran(day(13), 6))
        job = _job("both", "vision")
        self._lives(job, self._plan(job, day(14)), EAST, self._ran(day(14), 13, met=day(14, 1), copied=_copied("3")))
        self._lives(_job("surprise", "vision"), "p" * 64, EAST, self._ran(day(16), 2))

    def _plan(self, job: Job, at: datetime, hours: int = 10, place: Place = EAST) -> str:
        return self.stage.accept(at - HOUR, [job], [planned(job, place, at, hours)])

    def _plain(self, job: Job, number: int, hours: int) -> None:
        self._lives(job, self._plan(job, day(number)), EAST, self._ran(day(number), hours))

    def _ran(self, start: datetime, hours: int, met: datetime | None = None, **more: Any) -> Life:
        end = start + hours * HOUR
        return Life(made=start, met=met or start, ended=end, gone=end, step=1000, saved=1000, **more)

    def _mix(self, start: datetime) -> None:
        job = _job("mix")
        plan, moved = self._plan(job, start), start + 6 * HOUR
        taken = Life(made=start, met=start, ended=moved, gone=moved, reason="interrupted", step=600, saved=600)
        self._lives(job, plan, EAST, taken)
        end = moved + 4 * HOUR
        self._lives(job, plan, WEST, Life(made=moved, met=moved, ended=end, gone=end, first=600, step=1000, saved=1000))

    def _waste(self, start: datetime) -> None:
        job = _job("waste", deadline=f"{day(9, 4):%Y-%m-%dT%H:%MZ}")
        plan = self._plan(job, start)
        self._lives(job, plan, EAST, Life(made=start, gone=start + HOUR / 4, reason="short"))
        # Half an hour until all had met; six hours of work, one of saving, two of which nothing is left: 200 x 36 s.
        met, gone = start + 1.5 * HOUR, start + 10.5 * HOUR
        taken = Life(
            made=start + HOUR,
            met=met,
            ended=gone,
            gone=gone,
            reason="interrupted",
            step=800,
            saved=600,
            step_seconds=36,
            saving=(HOUR / 2, HOUR / 2),
        )
        self._lives(job, plan, EAST, taken)
        # Four hours until the deadline, three after it, and an hour and a half until somebody released it.
        again = day(9)
        self._lives(
            job,
            plan,
            EAST,
            Life(
                made=again, met=again, ended=again + 7 * HOUR, gone=again + 8.5 * HOUR, first=600, step=1000, saved=1000
            ),
        )

    def _lives(self, job: Job, plan: str, place: Place, life: Life) -> None:
        before = len(self.stage.machines)
        self.stage.run(plan, job, place, life)
        self.machines.setdefault(job.name, []).extend(self.stage.machines[before:])

    def bills(self, folder: Path) -> list[Path]:
        """What the clouds send."""
        paths = [folder / "aws.csv", folder / "azure.csv"]
        write_bill(paths[0], self._aws())
        ((attempt, node),) = self.machines["euros"]
        write_bill(paths[1], AZURE.machine(attempt, node, "9", "Machines"))
        return paths

    def _aws(self) -> Iterator[Row]:
        prices = {"price": "11.5", "both": "11"}
        for job, machines in self.machines.items():
            until = day(5, 7) if job == "late" else None
            for attempt, node in machines:
                if attempt.cloud == "aws":
                    price = prices.get(job, "25" if node.market is Market.ON_DEMAND else "10")
                    yield from AWS.machine(attempt, node, price, "Machines", until)
        ((extras, _),) = self.machines["extras"]
        disk = ("Storage", "Block Storage", "Disks")
        yield AWS.used(
            day(11), day(12), "40", "GB-Hours", "0.1", disk, "disk", Tags=of_attempt(extras), ResourceId="vol-1"
        )
        yield AWS.used(day(11), day(12), "100", "GB", "0.09", NETWORK, "egress", ResourceId="made-up-east-9")
        by_job = tagged(stepfare_job="extras")
        objects = ("Storage", "Object Storage", "Objects")
        yield AWS.used(day(1), NOVEMBER.ends, "100", "GB-Months", "0.023", objects, "objects", Tags=by_job)
        yield AWS.used(day(11), day(12), "10", "Hours", "0.17", NETWORK, "address", Tags=by_job)
        money = tagged(stepfare_job="money")
        for category, amount in (("Credit", "-50"), ("Tax", "36"), ("Adjustment", "-1")):
            yield AWS.row(
                day(1),
                NOVEMBER.ends,
                Decimal(amount),
                MACHINE,
                ChargeCategory=category,
                Tags=money,
                ChargeFrequency="One-Time",
            )
        yield AWS.used(
            day(1),
            day(2),
            "4",
            "Hours",
            "10",
            MACHINE,
            "plan",
            CommitmentDiscountId="sp-1",
            CommitmentDiscountStatus="Unused",
            PricingCategory="Committed",
        )
        support = ("Management and Governance", "Support", "Support")
        yield AWS.row(
            day(1), NOVEMBER.ends, Decimal(15), support, ChargeCategory="Purchase", ChargeFrequency="Recurring"
        )
        yield AWS.used(day(20), day(20, 1), "1", "Hours", "7.77", MACHINE, "g6", ResourceId="i-nobody-knows")


def _copied(usd: str) -> dict[str, object]:
    return {
        "from": f"s3://made-up-east-{usd}",
        "to": "s3://made-up-west",
        "origin": "aws/us-east-1",
        "bytes": 100_000_000_000,
        "seconds": 600,
        "usd": usd,
    }
