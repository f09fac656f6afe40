"""Kept sums of open months are those of all books matched at once, and of a state that keeps none."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from router.app import matched_months
from router.app.close_month import book_corrections, make_seal
from router.app.kept_months import NAMES, SUMMED, read_kept_month
from router.app.month_books import month_costs
from router.ledger.month import Month
from router.showback.bill_import import import_bills
from router.showback.bills import BillDecisionKind, DeliveryKind
from tests.support.made_up_bill import Account, Row
from tests.support.open_months import FIRST, HOUR, MONTHS, NOVEMBER, NOW, OLD, OpenMonths, billed_hour, machines
from tests.support.repository import ROOT, ran


@pytest.fixture
def site(tmp_path: Path) -> Iterator[OpenMonths]:
    made = OpenMonths(tmp_path)
    with made.store:
        yield made


@pytest.fixture(scope="module")
def matched_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a state whose months are matched and kept."""
    folder = tmp_path_factory.mktemp("matched")
    made = OpenMonths(folder)
    with made.store:
        made.matched((FIRST, OLD))
    return folder


@pytest.fixture
def kept_site(matched_folder: Path, tmp_path: Path) -> Iterator[OpenMonths]:
    """A copy of that state, as another process would open it."""
    copied = OpenMonths(shutil.copytree(matched_folder, tmp_path / "copied"), empty=True)
    with copied.store:
        yield copied


def late_bill(site: OpenMonths) -> None:
    site.take(site.bill(OLD, account="2", rows=_late_rows("2")))


def _late_rows(account: str) -> list[Row]:
    of = Account(issuer="AWS", provider="AWS", number=account, sub_account="7", month=OLD)
    forgotten = list(machines(OLD))[4]
    return [billed_hour(of, forgotten.start, "31.25", forgotten.resource or "", forgotten.instance_type or "")]


def restated_bill(site: OpenMonths) -> None:
    site.take(site.bill(OLD, less=1), kind=DeliveryKind.VERSION)


def further_part(site: OpenMonths) -> None:
    site.take(site.bill(OLD, rows=_late_rows("1")), kind=DeliveryKind.PART)


def removed_bill(site: OpenMonths) -> None:
    (standing,) = [each for each in site.bills.standing() if (each.bill.start or "").startswith(str(OLD))]
    site.bills.decide(BillDecisionKind.REMOVE, standing.bill.id, "wrong account", "fin", NOW)


def late_charge_on_a_later_bill(site: OpenMonths) -> None:
    of = Account(issuer="AWS", provider="AWS", number="3", sub_account="7", month=Month(2026, 9))
    forgotten = list(machines(OLD))[4]
    rows = [billed_hour(of, forgotten.start, "11.5", forgotten.resource or "", forgotten.instance_type or "")]
    site.take(site.bill(Month(2026, 9), account="3", rows=rows))


def new_entry(site: OpenMonths) -> None:
    first = next(machines(OLD))
    site.add(replace(first, key="metered late", start=first.start + 2 * HOUR, end=first.end + 2 * HOUR))


def settled_gang(site: OpenMonths) -> None:
    """A gang whose machines nobody had metered is, with the hours of the unknown one on the bill."""
    start = OLD.begins + 9 * HOUR
    named = {"team": "team-0", "job": "settled", "attempt": "settled", "resource": f"i-nobody-{OLD}"}
    site.add(replace(next(machines(OLD)), key="metered settled", start=start, end=start + HOUR, **named))  # type: ignore[arg-type]


CHANGES = (
    late_bill,
    restated_bill,
    further_part,
    removed_bill,
    late_charge_on_a_later_bill,
    new_entry,
    settled_gang,
)


def check(site: OpenMonths, *more: Month) -> None:
    """Sums of open months are those of all books."""
    months = (FIRST, OLD, *more)
    matched = site.matched(months)
    whole = {month: site.whole(month) for month in months}
    assert matched == {month: sums for month, sums in whole.items() if sums["sums"]}
    assert set(site.kept()) >= {str(month) for month in matched}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_kept_costs_are_those_of_all_books_after_a_change(
    change: Callable[[OpenMonths], None], kept_site: OpenMonths
) -> None:
    site = kept_site
    before = site.matched((FIRST, OLD))[OLD]
    kept = site.kept()
    change(site)
    check(site)
    assert site.matched((OLD,))[OLD] != before
    # What is of another time is not matched again.
    assert site.kept()[str(FIRST)] == kept[str(FIRST)]


@pytest.mark.slow
def test_a_state_that_keeps_none_says_the_same(site: OpenMonths, tmp_path: Path) -> None:
    site.before()
    for change in (late_bill, restated_bill, late_charge_on_a_later_bill, new_entry, settled_gang):
        change(site)
    for basis, team in (("effective", None), ("billed", "team-1")):
        assert site.before(basis=basis, team=team) == site.before(tmp_path / "fresh", basis, team)
    assert set(site.kept()) == {str(month) for month in MONTHS[:-2]}


@pytest.mark.slow
def test_a_new_entry_of_today_leaves_what_is_kept_and_it_is_read(
    site: OpenMonths, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs, kept = site.costs(), site.kept()
    last = next(machines(NOVEMBER))
    site.add(replace(last, key="metered today", start=last.start + 2 * HOUR, end=last.end + 2 * HOUR))
    assert site.costs() == costs
    assert site.kept() == kept
    monkeypatch.setattr(matched_months, "reconcile", unexpected)
    assert site.costs() == costs
    # The entry has been looked at, and is not looked at again.
    manifests = [json.loads(path.read_text()) for path in (site.extracts / site.store.id / "costs").glob("*.json")]
    assert {each["head"] for each in manifests} == {site.store.ledger.head()}


def unexpected(*_: object, **__: object) -> None:
    pytest.fail("a kept month was matched again")


@pytest.mark.parametrize("what", ["FORMAT", "release"])
def test_another_rule_of_matching_computes_them_again(
    what: str, kept_site: OpenMonths, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = kept_site
    said, kept = site.costs(), site.kept()
    if what == "FORMAT":
        monkeypatch.setattr(matched_months, "FORMAT", matched_months.FORMAT + 1)
    else:
        monkeypatch.setattr(matched_months, "installed_version", lambda: "999")
    assert site.costs() == said
    assert all(site.kept()[month] != text for month, text in kept.items())


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def of_another_month(path: Path) -> None:
    (other,) = path.parent.glob(f"{FIRST}.*.{path.name.split('.', 2)[2]}")
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (f"{OLD}.json", lambda path: path.write_text("")),
        (f"{OLD}.json", lambda path: path.write_text("[]")),
        (f"{OLD}.json", Path.unlink),
        (f"{OLD}.*.sums.parquet", Path.unlink),
        (f"{OLD}.*.days.parquet", cut_short),
        (f"{OLD}.*.sides.parquet", of_another_month),
        (f"{OLD}.*.names.parquet", of_another_month),
    ],
)
def test_damaged_kept_months_are_matched_again(
    name: str, damage: Callable[[Path], None], kept_site: OpenMonths
) -> None:
    site = kept_site
    matched, kept = site.matched((FIRST, OLD)), site.kept()
    folder = site.extracts / site.store.id / "costs"
    (path,) = folder.glob(name)
    damage(path)
    assert site.matched((FIRST, OLD)) == matched
    assert site.kept()[str(FIRST)] == kept[str(FIRST)]
    assert site.kept()[str(OLD)] != kept[str(OLD)]
    assert {each.name.split(".")[1] for each in folder.glob("*.parquet")} == set(site.kept().values())


@pytest.mark.slow
def test_ids_that_bills_of_other_months_know_tell_another_machine(site: OpenMonths) -> None:
    """The first row of a month is of a machine that nobody metered: it takes no time of another one of its kind."""
    of = Account(issuer="AWS", provider="AWS", number="1", sub_account="7", month=NOVEMBER)
    machine = next(machines(NOVEMBER))
    row = billed_hour(of, machine.start, "31.25", "i-forgotten", machine.instance_type or "")
    site.take(site.bill(NOVEMBER, rows=[{**row, "PricingCategory": "Dynamic"}]))
    check(site, NOVEMBER)
    kept = read_kept_month(site.extracts / site.store.id / "costs", NOVEMBER, SUMMED)
    assert kept is not None
    assert kept.known_elsewhere == {(machine.cloud, "machine"): True}
    for standing in site.bills.standing():
        if standing.bill.start is not None and not standing.bill.start.startswith(str(NOVEMBER)):
            site.bills.decide(BillDecisionKind.REMOVE, standing.bill.id, "of another company", "fin", NOW)
    check(site, NOVEMBER)
    kept = read_kept_month(site.extracts / site.store.id / "costs", NOVEMBER, SUMMED)
    assert kept is not None
    assert kept.known_elsewhere == {(machine.cloud, "machine"): False}


@pytest.mark.slow
def test_closing_and_what_corrects_it_afterwards(kept_site: OpenMonths) -> None:
    site = kept_site
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
    sums = [sum(row["billed"] for row in rows) for rows in (before, after)]
    assert sums[1] - sums[0] == 12


@pytest.mark.slow
def test_costs_as_of_a_moment_are_not_kept_for_another(site: OpenMonths, tmp_path: Path) -> None:
    costs, kept = site.costs(), site.kept()
    unbilled = list(machines(OLD))[4]
    site.add(replace(unbilled, key="metered later", rank=1, resource="i-later", recorded_at=NOW + HOUR))
    places = (site.extracts, tmp_path / "fresh")
    of_then, fresh = (site.costs(place, (OLD,), NOW)[OLD] for place in places)
    assert site.kept() == kept
    assert of_then == costs[OLD] == fresh
    check(site)
    assert site.costs()[OLD] != of_then


@pytest.mark.slow
def test_periods_of_the_ledger_say_the_same(site: OpenMonths) -> None:
    before = {each.month: each.cost for each in site.before()}
    costs, _ = month_costs(site.store, MONTHS, site.extracts, site.bills.folder, basis="effective", now=NOW, as_of=None)
    assert {str(month): each.spent["USD"] for month, each in costs.items() if str(month) in before} == before
    for month, rows in site.costs(months=MONTHS).items():
        assert costs[month].spent["USD"] == sum(row["effective"] for row in rows)


KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from router.app import matched_months, month_books
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

inside, keep = 0, matched_months.keep_month

def keeping(*arguments):
    global inside
    inside = 1
    kept = keep(*arguments)
    inside = 0
    return kept

matched_months.keep_month = keeping
for owner, name in ((Path, "replace"), (Path, "mkdir"), (os, "open"), (os, "fsync")):
    setattr(owner, name, counted(getattr(owner, name)))
now = datetime(2026, 11, 22, 12, tzinfo=UTC)
with StateStore.open(f"sqlite:///{home}/state.db", now=now) as store:
    *_, still_open = segments(store, home / "bills")
    months = [Month(2026, 4), Month(2026, 6)]
    month_books.open_costs(store, months, home / "extract", home / "bills", still_open, "billed", None)
print("done")
"""


@pytest.mark.slow
def test_a_process_killed_while_it_keeps_them_leaves_what_was_or_what_is(site: OpenMonths, tmp_path: Path) -> None:
    old, folder = site.costs(), site.extracts / site.store.id / "costs"
    late_bill(site)
    new = site.costs(tmp_path / "fresh")
    assert new != old
    for step in range(1, 60):
        done = ran([sys.executable, "-c", KILLED, str(step), str(site.folder)], cwd=ROOT)  # fmt: skip
        assert done.stdout == "done\n" or done.returncode == -signal.SIGKILL, done.stderr
        for month in (FIRST, OLD):
            assert read_kept_month(folder, month, (NAMES, *SUMMED)) is not None, (step, month)
        if done.stdout:
            break
    else:
        pytest.fail("it was never done")
    assert step > 15
    assert site.costs() == new
    new_entry(site)
    site.costs()
    assert {each.name.split(".")[1] for each in folder.glob("*.parquet")} == set(site.kept().values())
    assert not list(folder.glob(".*.part"))
