"""Months that are matched one by one, and kept, are those of all books matched at once, whatever came when."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from pricing.money import Usd
from router.app.close_month import book_corrections, make_seal
from router.ledger.entry import LedgerEntry
from router.ledger.month import Month
from router.showback.bills import BillDecisionKind
from tests.support.made_up_bill import Account, Row, tagged
from tests.support.open_months import HOUR, NOW, OpenMonths, machines

MONTHS = tuple(Month(2026, number) for number in range(5, 11))
SECONDS = timedelta(seconds=1)


class MadeUpMonths:
    """A state whose entries and bills name the same few machines, jobs, teams and kinds, some right and some not."""

    def __init__(self, site: OpenMonths, seed: int, months: tuple[Month, ...]) -> None:
        self.site, self.random, self.count, self.months = site, Random(seed), 0, months
        # In some states no id on a bill is one of the ledger, so that kinds and days alone tell what belongs together.
        self.ids = self.random.choice(["i", "i", "arn:x/i", "other"])

    def moment(self, month: Month) -> datetime:
        """On one of four days, two of which are where time runs over into another month."""
        last = (month.ends - month.begins).days
        day = self.random.choice([1, 14, last, last])
        return month.begins + timedelta(days=day - 1, minutes=self.random.randrange(24 * 60))

    def entries(self, month: Month, count: int) -> list[LedgerEntry]:
        return [self.entry(month) for _ in range(count)]

    def entry(self, month: Month) -> LedgerEntry:
        self.count += 1
        start = self.moment(month)
        lasts = timedelta(minutes=self.random.choice([40, 60, 600, 3000]), seconds=self.random.randrange(50))
        name = self.random.randrange(5)
        return replace(
            next(machines(month)),
            key=f"metered {self.count}",
            team=f"team-{name % 3}",
            job=f"job-{name // 4}",
            attempt=f"a-{name}",
            resource=f"i-{name}",
            rank=self.count,
            cloud=self.random.choice(["aws", "aws", "gcp"]),
            instance_type=f"type-{name % 2}",
            start=start,
            end=start + lasts,
            quantity=Fraction(lasts // SECONDS, 3600),
            usd=Usd(self.random.randrange(10**12)),
            recorded_at=min(start + lasts + HOUR, NOW - HOUR),
        )

    def bill(self, month: Month, account: str, count: int) -> Path:
        of = Account(issuer="AWS", provider="AWS", number=account, sub_account="7", month=month)
        return self.site.bill(month, account=account, rows=[self.row(of, month) for _ in range(count)])

    def row(self, of: Account, month: Month) -> Row:
        start, name = self.moment(month), self.random.randrange(7)
        start = start.replace(minute=0)
        hours = self.random.choice([1, 1, 1, 24, 60])
        price = Decimal(self.random.randrange(1, 10**10)).scaleb(-9)
        service = self.random.choice(
            [("Compute", "Virtual Machines", "EC2")] * 4 + [("Other", "Other (Other)", "Help")]
        )
        tags = self.random.choice(["", "", tagged(job=f"job-{name // 4}"), tagged(team=f"team-{name % 3}")])
        known = {"ResourceId": self.random.choice(["", f"{self.ids}-{name}"]), "Tags": tags}
        details = {"InstanceType": f"type-{name % 2}", "GpuCount": 8}
        said = {**known, "SkuPriceDetails": json.dumps(details), "RegionId": "us-east-1"}
        return of.used(start, start + hours * HOUR, str(hours), "Hours", str(price), service, "sku", **said)

    def begin(self) -> None:
        for month in self.months:
            self.site.add(*self.entries(month, 10))
        bills = [self.bill(month, "20", 8) for month in self.months if self.random.random() < 0.8]
        self.site.take(*bills or [self.bill(self.months[0], "20", 8)])

    def change(self) -> str:
        """Change the state as people and machines do; what was done."""
        changes: list[Callable[[], None]] = [
            self.add_entry,
            self.add_entry,
            self.add_bill,
            self.remove_bill,
            self.close,
        ]
        change = self.random.choice(changes)
        change()
        return change.__name__

    def add_entry(self) -> None:
        closed = {each.period for each in self.site.store.periods.closings()}
        self.site.add(self.entry(self.random.choice([month for month in self.months if month not in closed])))

    def add_bill(self) -> None:
        self.count += 1
        self.site.take(self.bill(self.random.choice(self.months), f"late-{self.count}", 2))
        book_corrections(self.site.store, self.site.extracts, self.site.bills.folder, "fin")

    def remove_bill(self) -> None:
        standing = sorted(self.site.bills.standing(), key=lambda each: each.bill.id)
        gone = self.random.choice(standing).bill.id
        self.site.bills.decide(BillDecisionKind.REMOVE, gone, "wrong account", "fin", NOW)
        book_corrections(self.site.store, self.site.extracts, self.site.bills.folder, "fin")

    def close(self) -> None:
        done = {each.period for each in self.site.store.periods.closings()}
        month = next((each for each in self.months if each not in done), None)
        if month is not None and month < self.months[len(self.months) // 2]:
            drafted = make_seal(self.site.store, self.site.extracts, self.site.bills.folder, month, NOW)
            self.site.store.periods.close(month, who="fin", at=NOW - HOUR / 2, seal=drafted.seal, head=drafted.head)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "changes", "months"),
    [(3, 1, MONTHS[-3:]), *(pytest.param(seed, 4, MONTHS, marks=pytest.mark.slow) for seed in (4, 5, 9))],
    ids=["3", "4", "5", "9"],
)
def test_kept_months_are_those_that_are_computed_anew(
    seed: int, changes: int, months: tuple[Month, ...], tmp_path: Path
) -> None:
    site = OpenMonths(tmp_path, empty=True)
    with site.store:
        made = MadeUpMonths(site, seed, months)
        made.begin()
        done = ["begin"]
        for step in range(changes + 1):
            kept = site.matched(months)
            assert kept == site.matched(months, tmp_path / f"fresh-{step}"), done
            for month, sums in kept.items():
                whole = site.whole(month)
                for name in sums:
                    assert sums[name] == whole[name], (done, month, name)
            done.append(made.change())
