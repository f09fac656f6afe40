"""Kept costs of open months are those of all books matched at once, and of a state that keeps none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from pricing.money import Usd
from router.app import open_costs
from router.app.bill_views import segments, view_of
from router.app.close_month import make_seal
from router.app.corrections import book_corrections
from router.app.month_books import costs_before, month_costs
from router.app.open_costs import TeamCost
from router.app.reconcile import open_matched_books
from router.files.duckdb_session import rows_of
from router.ledger.entry import LedgerEntry
from router.ledger.month import Month
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore
from router.showback.bills import BillDecisionKind, DeliveryKind
from router.showback.report.query import CostBasis, MonthCost, ReportQuery
from tests.support.made_up_bill import Account, Row, tagged, write_bill
from tests.support.new_state import open_state
from tests.support.repository import ROOT
from tests.support.state_values import entry

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NOVEMBER, OLD, FIRST = Month(2026, 11), Month(2026, 6), Month(2026, 4)
HOUR = timedelta(hours=1)
MONTHS = tuple(Month(2026, number) for number in range(4, 12))
COMPUTE = ("Compute", "Virtual Machines", "EC2")


class Site:
    """A state with machines of three teams in eight open months, and bills of all but the last."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, open_state(folder / "state.db", NOW)
        self.extracts, self.bills = folder / "extract", BillStore(folder / "bills")
        self.add(*(machine for month in MONTHS for machine in _machines(month)))
        self.take(*(self.bill(month) for month in MONTHS[:-1]))

    def add(self, *entries: LedgerEntry) -> None:
        self.store.ledger.append(list(entries), after=self.store.ledger.head())

    def bill(self, month: Month, *, less: int = 0, account: str = "1", rows: list[Row] | None = None) -> Path:
        path = self.folder / f"{month}-{account}-{less}-{'rows' if rows else ''}.csv"
        write_bill(path, _billed(month, account)[less:] if rows is None else rows)
        return path

    def take(self, *paths: Path, kind: DeliveryKind | None = None) -> None:
        import_bills(paths, self.bills, NOW - HOUR, kind=kind)

    def before(
        self, extracts: Path | None = None, basis: str = "effective", team: str | None = None
    ) -> tuple[MonthCost, ...]:
        teams = None if team is None else frozenset({team})
        asked = ReportQuery(month=NOVEMBER, now=NOW, basis=CostBasis(basis), teams=teams)
        return costs_before(self.store, asked, extracts or self.extracts, self.bills.folder)

    def costs(
        self, extracts: Path | None = None, months: tuple[Month, ...] = (FIRST, OLD)
    ) -> dict[Month, tuple[TeamCost, ...]]:
        """Return the costs of a month that changes, and of one that does not."""
        *_, still_open = segments(self.store, self.bills.folder)
        return open_costs.open_costs(self.store, months, extracts or self.extracts, self.bills.folder, still_open)

    def kept(self) -> dict[str, bytes]:
        folder = self.extracts / self.store.id / "costs"
        return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.json"))}


def _machines(month: Month) -> Iterator[LedgerEntry]:
    """Each with an hour and a half on one day, of which the bill's hours tell another price; the last runs over."""
    for number in range(6):
        start = month.begins + timedelta(days=4 * number + 5, hours=number)
        ends = start + 3 * HOUR / 2
        if number == 5:
            start, ends = month.ends - HOUR, month.ends + HOUR / 2
        hours = Fraction((ends - start) // timedelta(seconds=1), 3600)
        yield entry(
            f"metered {month} {number}",
            team=f"team-{number % 3}",
            job=f"job-{month}-{number // 2}",
            attempt=f"a-{month}-{number}",
            resource=f"i-{month}-{number}",
            start=start,
            end=ends,
            quantity=hours,
            usd=Usd(round(27_520_000_000 * hours)),
            period=month,
            recorded_at=min(start + 2 * HOUR, NOW - HOUR),
        )


def _billed(month: Month, account: str) -> list[Row]:
    """Two hours of each machine but one, an hour of an unknown one, and a fee: team-1's second machine is on none."""
    of = Account(issuer="AWS", provider="AWS", number=account, sub_account="7", month=month)
    rows = []
    for number, machine in enumerate(_machines(month)):
        for hour in () if number == 4 else (0, 1):
            start = machine.start + hour * HOUR
            if start < month.ends:
                price = f"{20 + number}.123456789"
                rows.append(_hour(of, start, price, machine.resource or "", machine.instance_type or ""))
    rows.append(_hour(of, month.begins + 9 * HOUR, "3.07", f"i-nobody-{month}", "m7i.large", tagged(team="team-2")))
    rows.append(of.row(month.begins, month.ends, Decimal("99.5"), ("Other", "Other (Other)", "Support")))
    return rows


def _hour(of: Account, start: datetime, price: str, resource: str, kind: str, tags: str = "") -> Row:
    detail = json.dumps({"InstanceType": kind, "GpuCount": 8})
    named = {"ResourceId": resource, "SkuPriceDetails": detail, "RegionId": "us-east-1", "Tags": tags}
    return of.used(start, start + HOUR, "1", "Hours", price, COMPUTE, kind, **named)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with made.store:
        yield made


def late_bill(site: Site) -> None:
    site.take(site.bill(OLD, account="2", rows=_late_rows("2")))


def _late_rows(account: str) -> list[Row]:
    of = Account(issuer="AWS", provider="AWS", number=account, sub_account="7", month=OLD)
    forgotten = list(_machines(OLD))[4]
    return [_hour(of, forgotten.start, "31.25", forgotten.resource or "", forgotten.instance_type or "")]


def restated_bill(site: Site) -> None:
    site.take(site.bill(OLD, less=1), kind=DeliveryKind.VERSION)


def further_part(site: Site) -> None:
    site.take(site.bill(OLD, rows=_late_rows("1")), kind=DeliveryKind.PART)


def removed_bill(site: Site) -> None:
    (standing,) = [each for each in site.bills.standing() if (each.bill.start or "").startswith(str(OLD))]
    site.bills.decide(BillDecisionKind.REMOVE, standing.bill.id, "wrong account", "fin", NOW)


def late_charge_on_a_later_bill(site: Site) -> None:
    of = Account(issuer="AWS", provider="AWS", number="3", sub_account="7", month=Month(2026, 9))
    forgotten = list(_machines(OLD))[4]
    rows = [_hour(of, forgotten.start, "11.5", forgotten.resource or "", forgotten.instance_type or "")]
    site.take(site.bill(Month(2026, 9), account="3", rows=rows))


def new_entry(site: Site) -> None:
    first = next(_machines(OLD))
    site.add(replace(first, key="metered late", start=first.start + 2 * HOUR, end=first.end + 2 * HOUR))


def settled_gang(site: Site) -> None:
    """A gang whose machines nobody had metered is, with the hours of the unknown one on the bill."""
    start = OLD.begins + 9 * HOUR
    named = {"team": "team-0", "job": "settled", "attempt": "settled", "resource": f"i-nobody-{OLD}"}
    site.add(replace(next(_machines(OLD)), key="metered settled", start=start, end=start + HOUR, **named))  # type: ignore[arg-type]


CHANGES = (
    late_bill,
    restated_bill,
    further_part,
    removed_bill,
    late_charge_on_a_later_bill,
    new_entry,
    settled_gang,
)


def whole(site: Site) -> dict[tuple[str, str | None], tuple[Decimal, Decimal]]:
    """All open books matched at once, as a report matches its own."""
    view = view_of(site.store, site.bills.folder, NOVEMBER)
    query = "SELECT month, team, sum(billed) AS billed, sum(effective) AS effective FROM actual GROUP BY ALL"
    with open_matched_books(site.store, site.folder / "whole", site.bills.folder, MONTHS[0], view) as (connection, *_):
        rows = rows_of(connection.sql(query))
    return {(row["month"], row["team"]): (row["billed"], row["effective"]) for row in rows}


def check(site: Site, *more: Month) -> None:
    """Kept costs of open months are those of all books."""
    open_months, matched = site.costs(months=(FIRST, OLD, *more)), whole(site)
    for month, costs in open_months.items():
        found = {(str(month), each.team): (each.billed, each.effective) for each in costs}
        assert found == {key: sums for key, sums in matched.items() if key[0] == str(month)}, month
    assert open_months
    assert set(site.kept()) >= {str(month) for month in open_months}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_kept_costs_are_those_of_all_books_after_a_change(change: Callable[[Site], None], site: Site) -> None:
    site.costs()
    before = site.kept()
    change(site)
    check(site)
    after = site.kept()
    assert json.loads(after[str(OLD)])["costs"] != json.loads(before[str(OLD)])["costs"]
    # What is of another time is not matched again.
    assert after[str(FIRST)] == before[str(FIRST)]


@pytest.mark.slow
def test_a_state_that_keeps_none_says_the_same(site: Site, tmp_path: Path) -> None:
    site.before()
    for change in (late_bill, restated_bill, late_charge_on_a_later_bill, new_entry, settled_gang):
        change(site)
    for basis, team in (("effective", None), ("billed", "team-1")):
        assert site.before(basis=basis, team=team) == site.before(tmp_path / "fresh", basis, team)
    assert set(site.kept()) == {str(month) for month in MONTHS[:-2]}


def test_a_new_entry_of_today_leaves_what_is_kept_and_it_is_read(site: Site) -> None:
    site.costs()
    kept = site.kept()
    last = next(_machines(NOVEMBER))
    site.add(replace(last, key="metered today", start=last.start + 2 * HOUR, end=last.end + 2 * HOUR))
    site.costs()
    assert site.kept() == kept
    path = site.extracts / site.store.id / "costs" / f"{OLD}.json"
    content = json.loads(kept[str(OLD)])
    content["costs"] = [{"team": None, "currency": "USD", "billed": "1", "effective": "2"}]
    path.write_text(json.dumps(content))
    assert [each.effective for each in site.costs()[OLD]] == [Decimal(2)]


@pytest.mark.parametrize("what", ["FORMAT", "release"])
def test_another_rule_of_matching_computes_them_again(what: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    said, kept = site.costs(), site.kept()
    if what == "FORMAT":
        monkeypatch.setattr(open_costs, "FORMAT", open_costs.FORMAT + 1)
    else:
        monkeypatch.setattr(open_costs, "installed_version", lambda: "999")
    assert site.costs() == said
    assert all(site.kept()[month] != text for month, text in kept.items())


@pytest.mark.parametrize("damage", ["", "[]"])
def test_damaged_kept_costs_are_computed_again(damage: str, site: Site) -> None:
    said, kept = site.costs(), site.kept()
    (site.extracts / site.store.id / "costs" / f"{OLD}.json").write_text(damage)
    assert site.costs() == said
    assert site.kept() == kept


def test_closing_and_what_corrects_it_afterwards(site: Site) -> None:
    check(site)
    closed = (FIRST, FIRST.next)
    for month in closed:
        drafted = make_seal(site.store, site.extracts, site.bills.folder, month, NOW)
        site.store.periods.close(month, who="fin", at=NOW - HOUR / 2, seal=drafted.seal, head=drafted.head)
    check(site)
    of = Account(issuer="AWS", provider="AWS", number="4", sub_account="7", month=FIRST)
    row = of.row(FIRST.begins, FIRST.ends, Decimal(12), ("Other", "Other (Other)", "Support"))
    import_bills([site.bill(FIRST, account="4", rows=[row])], site.bills, NOW)
    before = site.costs(months=(NOVEMBER,))[NOVEMBER]
    correction = book_corrections(site.store, site.extracts, site.bills.folder, "fin")
    assert correction is not None
    assert (correction.corrects, correction.period) == ((str(FIRST),), str(NOVEMBER))
    check(site, NOVEMBER)
    after = site.costs(months=(NOVEMBER,))[NOVEMBER]
    sums = [open_costs.total_costs(each, "billed", None)["USD"] for each in (before, after)]
    assert sums[1] - sums[0] == 12


def test_costs_as_of_a_moment_are_not_kept_for_another(site: Site, tmp_path: Path) -> None:
    site.costs()
    kept = site.kept()
    unbilled = list(_machines(OLD))[4]
    site.add(replace(unbilled, key="metered later", rank=1, resource="i-later", recorded_at=NOW + HOUR))
    *_, then = segments(site.store, site.bills.folder, NOW)
    places = (site.extracts, tmp_path / "fresh")
    of_then, fresh = (open_costs.open_costs(site.store, [OLD], place, site.bills.folder, then)[OLD] for place in places)
    assert site.kept() == kept
    assert {(each.team, f"{each.billed:f}") for each in of_then} == {
        (row["team"], row["billed"]) for row in json.loads(kept[str(OLD)])["costs"]
    }
    assert of_then == fresh
    check(site)
    assert site.costs()[OLD] != of_then


@pytest.mark.slow
def test_periods_of_the_ledger_say_the_same(site: Site) -> None:
    before = {each.month: each.cost for each in site.before()}
    costs, _ = month_costs(site.store, MONTHS, site.extracts, site.bills.folder, basis="effective", now=NOW, as_of=None)
    assert {str(month): each.spent["USD"] for month, each in costs.items() if str(month) in before} == before
    matched = whole(site)
    for month, each in costs.items():
        assert each.spent["USD"] == sum(sums[1] for key, sums in matched.items() if key[0] == str(month))


KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from router.app import open_costs
from router.app.bill_views import segments
from router.ledger.month import Month
from router.state.store import StateStore

die_at, home = int(sys.argv[1]), Path(sys.argv[2])
left = die_at

def counted(function):
    def call(*arguments, **options):
        global left
        left -= inside
        if inside and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

inside, write = 0, open_costs._write

def writing(*arguments):
    global inside
    inside = 1
    write(*arguments)
    inside = 0

open_costs._write = writing
for owner, name in ((Path, "replace"), (Path, "mkdir"), (Path, "open"), (os, "fsync")):
    setattr(owner, name, counted(getattr(owner, name)))
now = datetime(2026, 11, 22, 12, tzinfo=UTC)
with StateStore.open(f"sqlite:///{home}/state.db", now=now) as store:
    *_, still_open = segments(store, home / "bills")
    open_costs.open_costs(store, [Month(2026, 4), Month(2026, 6)], home / "extract", home / "bills", still_open)
print("done")
"""


@pytest.mark.slow
def test_a_process_killed_while_it_keeps_them_leaves_what_was_or_what_is(site: Site, tmp_path: Path) -> None:
    old, before = site.costs(), site.kept()
    late_bill(site)
    new = site.costs(tmp_path / "fresh")
    assert new != old
    after = {path.stem: path.read_bytes() for path in (tmp_path / "fresh" / site.store.id / "costs").glob("*.json")}
    for step in range(1, 30):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(step), str(site.folder)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout == "done\n" or done.returncode == -signal.SIGKILL, done.stderr
        for month, text in site.kept().items():
            assert text in (before[month], after[month]), month
        if done.stdout:
            break
    else:
        pytest.fail("it was never done")
    assert site.costs() == new
    assert site.kept() == after
