"""A sandbox month in which a known amount was put into each bucket of the variance and each kind of waste comes back as
exactly that: from machines that were released into the ledger, through the extract and imported bills, to what
``stepfare bills reconcile`` and ``stepfare showback`` print.

A machine costs 10 an hour where nothing else is said, each job was planned 10
hours of one, and bills say what was metered where nothing else is said. docs/reconcile.md has the formulas; R is 10.

job       what happened                                                     buckets                    actual  invoiced
price     billed at 11.5                                                    price 10 x 1.5 = 15        115     115
quantity  12 h                                                              quantity 20                120     120
short     7 h                                                               quantity -30               70      70
late      of 10 h the bill has 7                                            timing -30                 100     70
mix       6 h, and 4 h on demand in another region at 25                    mix 4 x (25 - 10) = 60     160     160
waste     10 h of work, and 8.25 h: failed_launch 0.25 h 2.5, startup 0.5 h 5, checkpoint_overhead 1 h 10,
          restart_lost_work 2 h 20, overrun 3 h 30, idle_allocated 1.5 h 15  waste 82.5                 182.5   182.5
extras    a disk 4, a copied checkpoint 9, storage 2.3, an address 1.7      unplanned 17               117     117
money     credit -50, tax 36, adjustment -1; a correction of October of     credit -25, timing 10      75      85
          -10 that a person added, so no bill has it
euros     planned 6 h (60), billed 6 h at 9 euros                           USD: credit -60            0       0
                                                                            EUR: credit 54             54      54
both      12 h of work and 1 h of start-up, all billed at 11; a copy        price 12 x 1 = 12,         146     143
          for 3 that is not billed yet                                      quantity 20, waste 11,
                                                                            unplanned 3, timing -3
surprise  2 h that no plan has                                              unplanned 20               20      20
nobody    commitment_unused 40 by the bill, reservation_unused 60 that a    waste 100, unplanned       130.77  62.77
          person added; support 15, a machine that we never metered 7.77,   30.77, timing -68
          a licence of 8 that a person added

Of USD: planned 9 x 100 + 60 = 960. price 27; quantity 20 - 30 + 20 = 10; mix 60; waste 82.5 + 11 + 100 = 193.5;
unplanned 17 + 3 + 20 + 30.77 = 70.77; credit -25 - 60 = -85: actual 960 + 276.27 = 1236.27.
timing -30 + 10 - 3 - 68 = -91: invoiced 1145.27.
Metered 100 + 120 + 70 + 100 + 160 + 182.5 + 109 + 100 + 60 + 133 + 20 = 1154.5.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pricing.places import Market
from router.cli.console import ExitCode
from router.jobs.spec import Job
from router.ledger.month import Month
from router.state.records import Attempt, NodeRecord
from tests.support.command import run
from tests.support.made_up_bill import Account, Row, of_attempt, tagged, write_bill
from tests.support.made_up_jobs import simple_job
from tests.support.metered_stage import HOUR, Life, Place, Stage, planned, stage

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
    """Return the moment ``hour`` hours into that day of November 2026."""
    return datetime(2026, 11, number, tzinfo=UTC) + timedelta(hours=hour)


def _job(name: str, team: str = "speech", **more: Any) -> Job:
    return simple_job(name, ("H100", 8), steps=1000, steps_per_hour=100, team=team, run={"command": "train"}, **more)


class Planted:
    """``machines`` by job, in the order of their lives."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.machines: dict[str, list[tuple[Attempt, NodeRecord]]] = {}

    def play(self) -> None:
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


BUCKETS = ("price", "quantity", "mix", "waste", "unplanned", "credit", "timing")
pytestmark = pytest.mark.usefixtures("home")
WHEN = ("--month", "2026-11", "--now", "2026-12-05T00:00Z", "-o", "json")
# planned, then what is not zero, actual, invoiced

JOBS: dict[tuple[str, str], tuple[str, dict[str, str], str, str]] = {
    ("price", "USD"): ("100", {"price": "15"}, "115", "115"),
    ("quantity", "USD"): ("100", {"quantity": "20"}, "120", "120"),
    ("short", "USD"): ("100", {"quantity": "-30"}, "70", "70"),
    ("late", "USD"): ("100", {"timing": "-30"}, "100", "70"),
    ("mix", "USD"): ("100", {"mix": "60"}, "160", "160"),
    ("waste", "USD"): ("100", {"waste": "82.5"}, "182.5", "182.5"),
    ("extras", "USD"): ("100", {"unplanned": "17"}, "117", "117"),
    ("money", "USD"): ("100", {"credit": "-25", "timing": "10"}, "75", "85"),
    ("euros", "USD"): ("60", {"credit": "-60"}, "0", "0"),
    ("euros", "EUR"): ("0", {"credit": "54"}, "54", "54"),
    ("both", "USD"): (
        "100", {"price": "12", "quantity": "20", "waste": "11", "unplanned": "3", "timing": "-3"}, "146", "143",
    ),
    ("surprise", "USD"): ("0", {"unplanned": "20"}, "20", "20"),
    ("__unallocated__", "USD"): ("0", {"waste": "100", "unplanned": "30.77", "timing": "-68"}, "130.77", "62.77"),
}  # fmt: skip
TOTAL = {
    "planned": "960", "price": "27", "quantity": "10", "mix": "60", "waste": "193.5", "unplanned": "70.77",
    "credit": "-85", "actual": "1236.27", "timing": "-91", "invoiced": "1145.27", "metered": "1154.5",
}  # fmt: skip
WASTE = {
    "startup": "16", "failed_launch": "2.5", "checkpoint_overhead": "10", "restart_lost_work": "20",
    "idle_allocated": "15", "overrun": "30", "commitment_unused": "40", "reservation_unused": "60",
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state in which the month was played, with its bills, by commands where people give them."""
    folder = tmp_path_factory.mktemp("planted") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPFARE_HOME", str(folder))
        with stage(folder, datetime(2026, 11, 1, tzinfo=UTC)) as playing:
            playing.store.periods.close(Month(2026, 10), who="anna", at=playing.now)
            planted = Planted(playing)
            planted.play()
            bills = planted.bills(folder)
        (folder / "added.yaml").write_text(ADDED, encoding="utf-8")
        for words in (
            ("ledger", "add", folder / "added.yaml"),
            ("bills", "import", *bills, "--now", "2026-12-04T00:00Z"),
            ("ledger", "verify"),
        ):
            done = run(*words)
            assert done.exit_code == ExitCode.OK, done.stderr
        yield folder


def asked(*words: object) -> Any:
    done = run(*words, *WHEN)
    assert done.exit_code == ExitCode.OK, done.stderr
    return json.loads(done.stdout)


def bridge(row: dict[str, Any]) -> tuple[str, dict[str, str], str, str]:
    """As ``JOBS`` has it."""
    moved = {name: row[name] for name in BUCKETS if Decimal(row[name] or 0)}
    return row["planned"], moved, row["actual"], row["invoiced"]


def test_each_bucket_has_what_was_planted() -> None:
    found = asked("bills", "reconcile", "--group-by", "job")
    assert {(row["job"] or "__unallocated__", row["currency"]): bridge(row) for row in found["groups"]} == JOBS
    dollars = next(row for row in found["total"] if row["currency"] == "USD")
    assert {name: dollars[name] for name in TOTAL} == TOTAL
    euros = next(row for row in found["total"] if row["currency"] == "EUR")
    assert bridge(euros) == JOBS["euros", "EUR"]


def test_each_kind_of_waste_has_what_was_planted() -> None:
    total = asked("bills", "reconcile")["total"]
    kinds = next(row["kinds"] for row in total if row["currency"] == "USD")
    assert kinds == {
        "waste": WASTE,
        "unplanned": {"disk": "4", "egress": "12", "machine": "27.77", "other": "24.7", "storage": "2.3"},
        "credit": {"credit": "-60", "tax": "36", "adjustment": "-1", "currency": "-60"},
        "timing": {"metered": "-33", "added": "-58"},
    }


def test_showback_has_the_same() -> None:
    sections = asked("showback")["sections"]
    by_job = {(row["job"], row["currency"]): row for row in sections["variance"]["rows"]}
    assert by_job.keys() == JOBS.keys()
    for key, (planned_usd, moved, _, invoiced) in JOBS.items():
        row = by_job[key]
        assert (row["planned"], row["invoiced"]) == (planned_usd, invoiced), key
        assert {name: row[f"by_{name}"] for name in BUCKETS if Decimal(row[f"by_{name}"] or 0)} == moved, key
    totals = {row["currency"]: row["effective"] for row in sections["totals"]["rows"]}
    assert totals == {"USD": TOTAL["actual"], "EUR": "54"}
    assert {row["use"]: row["effective"] for row in sections["waste"]["rows"]} == WASTE
    jobs = {(row["job"], row["currency"]): row["effective"] for row in sections["jobs"]["rows"] if row["effective"]}
    assert {key: actual for key, (_, _, actual, _) in JOBS.items() if actual != "0"} == {
        **jobs,
        ("__unallocated__", "USD"): "130.77",
    }
    (correction,) = sections["corrections"]["rows"]
    assert (correction["corrects"], correction["job"], correction["effective"]) == ("2026-10", "money", "-10")


def test_without_bills_only_what_was_metered_and_added_is_there(home: Path, tmp_path: Path) -> None:
    """Then price, currency and what only a bill knows are gone: 1154.5 metered, and 60 + 8 - 10 added."""
    shutil.copytree(home, tmp_path / "home", ignore=shutil.ignore_patterns("bills", "extract"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
        (total,) = asked("showback")["sections"]["totals"]["rows"]
        assert total["effective"] == "1212.5"
        (dollars,) = asked("bills", "reconcile")["total"]
    assert (dollars["actual"], dollars["invoiced"], dollars["timing"]) == ("1212.5", "0", "-1212.5")
    # 82.5 of waste, an hour of start-up of both at 10, and the reservation.
    assert (dollars["price"], dollars["waste"]) == ("0", "152.5")
