"""The ledger's extract: grows with the ledger, is made anew where it is another one, keeps what was archived."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.app.showback import add_archive
from router.files.duckdb_session import connect
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.showback import rollups
from router.showback.ledger_extract import FORMAT, SCHEMA, ExtractManifest, LedgerExtract, facts_of_rows, read_manifest
from router.state.ledger_rows import BEGINNING, chain_rows, entry_values
from router.state.ledger_table import columns_from_rows
from router.state.store import StateStore
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW, entries, entry

OCTOBER = datetime(2026, 10, 5, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with open_state(tmp_path / "state.db", NOW) as opened:
        yield opened


@pytest.fixture
def extract(store: StateStore, tmp_path: Path) -> LedgerExtract:
    return LedgerExtract(tmp_path / "extract", store.id)


def fact_of(*given: LedgerEntry) -> dict[str, Any]:
    fact: dict[str, Any] = facts_table(*given).to_pylist()[0]
    return fact


def facts_table(*given: LedgerEntry) -> pa.Table:
    return facts_of_rows(columns_from_rows(list(chain_rows([entry_values(each) for each in given], 0, BEGINNING))))


def told(extract: LedgerExtract, manifest: ExtractManifest, kind: str = "facts") -> pa.Table:
    return pa.concat_tables([pq.read_table(part.path(extract.folder, kind)) for part in manifest.parts])


def spent(extract: LedgerExtract, manifest: ExtractManifest) -> Decimal:
    found: Decimal = pc.sum(told(extract, manifest)["billed"]).as_py()
    return found


def hours(first: int, count: int, at: datetime = NOW) -> list[LedgerEntry]:
    """That many hours of machines at $27.52, numbered."""
    return [entry(str(n), rank=n, start=at, end=at + HOUR) for n in range(first, first + count)]


def test_a_row_is_read_as_the_entry_that_it_is() -> None:
    given_entry = entry(
        quantity=Fraction(1, 3),
        usd=Usd.parse("9.173333333"),
        steps=40,
        lost_steps=7,
        use=MachineUse.WORK,
        market=Market.ON_DEMAND,
        machines=1,
    )
    fact = fact_of(given_entry)
    assert fact["source"] == "metered"
    assert fact["state"] == "Estimated"
    assert fact["category"] == "Usage"
    assert fact["billed"] == fact["effective"] == fact["on_demand"] == Decimal("9.173333333")
    assert fact["quantity"] == fact["hours"] == Decimal("0.333333333333333333")
    assert fact["gpu_hours"] == Decimal("2.666666666666666667")
    assert (fact["useful"], fact["useful_unit"], fact["lost"]) == (40, "Steps", 7)
    assert fact["start"] == given_entry.start
    assert fact["end"] == given_entry.end
    assert (fact["team"], fact["project"], fact["cost_center"], fact["corrects"]) == ("research", None, "cc-7", None)


def test_what_has_no_price_has_no_amount() -> None:
    disk = entry(
        what=CostItem.DISK, unit="GiB-Hours", unpriced=True, usd=Usd(0), usd_per_hour=None, quantity=Fraction(200)
    )
    fact = fact_of(disk)
    assert fact["unpriced"] is True
    assert [fact[name] for name in ("billed", "effective", "list", "on_demand", "hours")] == [None] * 5
    assert fact["quantity"] == 200


def test_on_demand_is_the_list_price_of_all_the_machines() -> None:
    """Half an hour of three spot machines whose on-demand price is 55; the plan's line has 24 accelerators in all."""
    planned = entry(
        kind=LedgerEntryKind.PLANNED,
        machines=3,
        accelerators=24,
        quantity=Fraction(1, 2),
        usd=Usd.parse("30"),
        rank=None,
        on_demand_usd_per_hour=UsdPerHour.parse("55"),
    )
    fact = fact_of(planned)
    assert (fact["on_demand"], fact["hours"], fact["gpu_hours"]) == (Decimal("82.5"), Decimal("1.5"), 12)


@pytest.mark.parametrize(
    ("kind", "said", "category"),
    [
        (LedgerEntryKind.FEE, {}, "Purchase"),
        (LedgerEntryKind.FEE, {"use": MachineUse.RESERVATION_UNUSED}, "Purchase"),
        (LedgerEntryKind.CREDIT, {"usd": Usd.parse("-5")}, "Credit"),
        (LedgerEntryKind.TAX, {}, "Tax"),
        (LedgerEntryKind.ADJUSTMENT, {}, "Adjustment"),
    ],
    ids=["fee", "fee-of-a-machine", "credit", "tax", "adjustment"],
)
def test_what_people_add_has_the_category_of_focus(kind: LedgerEntryKind, said: dict[str, Any], category: str) -> None:
    added = entry(kind=kind, who="ada", reason="because", **said)
    fact = fact_of(added)
    assert (fact["source"], fact["category"]) == ("added", category)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(entries(st.just("k")), min_size=1, max_size=8))
def test_any_entry_becomes_a_fact_with_its_money(given_entries: list[LedgerEntry]) -> None:
    table = facts_table(*given_entries)
    assert table.schema == SCHEMA
    for fact, each in zip(table.to_pylist(), given_entries, strict=True):
        assert fact["billed"] == (None if each.unpriced else Decimal(each.usd.nanos).scaleb(-9))
        assert fact["start"] == each.start
        assert fact["end"] == each.end
        assert fact["month"] == str(each.period)


def test_it_grows_by_what_is_new(store: StateStore, extract: LedgerExtract) -> None:
    store.ledger.append(hours(0, 10), after=0)
    with extract.current(store.ledger) as first:
        assert spent(extract, first) == Decimal("275.2")
        files = {path: path.stat().st_mtime_ns for path in extract.folder.rglob("*.parquet")}
    store.ledger.append(hours(10, 5), after=10)
    with extract.current(store.ledger) as second:
        assert (second.head, spent(extract, second)) == (15, Decimal("412.8"))
        for path, written in files.items():
            assert path.stat().st_mtime_ns == written
    with extract.current(store.ledger) as third:
        assert third == second


@pytest.mark.slow
def test_many_small_parts_become_few_and_say_the_same(store: StateStore, extract: LedgerExtract) -> None:
    for number in range(40):
        store.ledger.append(hours(number, 1, NOW + number * HOUR), after=number)
        with extract.current(store.ledger):
            pass
    with extract.current(store.ledger) as manifest:
        assert len(manifest.parts) < 16
        assert sorted(told(extract, manifest)["row"].to_pylist()) == list(range(1, 41))
        assert pc.sum(told(extract, manifest, "sums")["billed"]).as_py() == Decimal("1100.8")
        assert pc.sum(told(extract, manifest, "days")["billed"]).as_py() == Decimal("1100.8")
        assert len(list(extract.folder.rglob("*.parquet"))) == 3 * len(manifest.parts)


def test_deleted_it_is_made_again(store: StateStore, extract: LedgerExtract) -> None:
    store.ledger.append(hours(0, 10), after=0)
    with extract.current(store.ledger) as before:
        pass
    shutil.rmtree(extract.folder)
    with extract.current(store.ledger) as after:
        assert (after.head, after.hash, spent(extract, after)) == (before.head, before.hash, Decimal("275.2"))


def test_a_file_that_is_gone_makes_all_anew(store: StateStore, extract: LedgerExtract) -> None:
    store.ledger.append(hours(0, 10), after=0)
    with extract.current(store.ledger) as manifest:
        gone = manifest.parts[0].path(extract.folder, "sums")
    gone.unlink()
    with extract.current(store.ledger) as again:
        assert spent(extract, again) == Decimal("275.2")


def test_another_ledger_is_never_taken_for_this_one(store: StateStore, extract: LedgerExtract, tmp_path: Path) -> None:
    """A state that was restored from an older backup and went on another way: same id, same numbers, other hashes."""
    store.ledger.append(hours(0, 10), after=0)
    with extract.current(store.ledger):
        pass
    with open_state(tmp_path / "other.db", NOW) as other:
        other.ledger.append([entry("x", usd=Usd.parse("1")), *hours(1, 11)], after=0)
        with extract.current(other.ledger) as manifest:
            assert (manifest.head, spent(extract, manifest)) == (12, Decimal("303.72"))
            assert manifest.hash == other.ledger.hash_at(12)


def test_what_a_killed_one_left_is_swept(store: StateStore, extract: LedgerExtract) -> None:
    store.ledger.append(hours(0, 3), after=0)
    with extract.current(store.ledger) as manifest:
        left = extract.folder / "month=2026-11" / "000000009-000000009-deadbeef.facts.parquet"
        shutil.copy(manifest.parts[0].path(extract.folder, "facts"), left)
    with extract.current(store.ledger):
        assert not left.exists()


def archived(store: StateStore, path: Path) -> None:
    """October has three entries, is closed and archived; November has two."""
    store.ledger.append([*hours(0, 3, OCTOBER), *hours(3, 2)], after=0)
    store.periods.close(Month(2026, 10), who="ada", at=NOW)
    store.archives.archive(Month(2026, 11), path, who="ada", at=NOW)


def test_archived_rows_stay_in_an_extract_that_had_them(
    store: StateStore, extract: LedgerExtract, tmp_path: Path
) -> None:
    store.ledger.append([*hours(0, 3, OCTOBER), *hours(3, 2)], after=0)
    with extract.current(store.ledger) as before:
        assert spent(extract, before) == Decimal("137.6")
    store.periods.close(Month(2026, 10), who="ada", at=NOW)
    store.archives.archive(Month(2026, 11), tmp_path / "2026.gz", who="ada", at=NOW)
    store.ledger.append(hours(9, 1), after=5)
    with extract.current(store.ledger) as after:
        assert (spent(extract, after), after.gaps) == (Decimal("165.12"), ())


def test_archived_rows_that_were_never_read_are_gaps_until_the_file_is_given(
    store: StateStore, extract: LedgerExtract, tmp_path: Path
) -> None:
    archived(store, tmp_path / "2026.gz")
    with extract.current(store.ledger) as manifest:
        assert (manifest.gaps, spent(extract, manifest)) == (((1, 3),), Decimal("55.04"))
    for _ in range(2):  # again adds nothing
        add_archive(store, tmp_path / "extract", tmp_path / "2026.gz")
        with extract.current(store.ledger) as manifest:
            assert (manifest.gaps, spent(extract, manifest)) == ((), Decimal("137.6"))


def test_an_extract_of_another_format_is_made_anew(store: StateStore, extract: LedgerExtract) -> None:
    store.ledger.append(hours(0, 3), after=0)
    with extract.current(store.ledger):
        pass
    manifest = extract.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"format": {FORMAT}', '"format": 0'))
    assert read_manifest(extract.folder) is None
    with extract.current(store.ledger) as again:
        assert spent(extract, again) == Decimal("82.56")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.integers(-(10**15), 10**15),
    st.integers(0, 40 * 86_400),
    st.integers(1, 20 * 86_400 * 10**6),
)
def test_the_days_of_a_fact_add_up_to_it(usd: int, begins: int, lasts: int) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=begins)
    end = start + timedelta(microseconds=lasts)
    kind: dict[str, Any] = {"kind": LedgerEntryKind.ADJUSTMENT, "who": "ada", "reason": "because"}
    one = entry(start=start, end=end, usd=Usd(usd), **kind)
    table = facts_table(one)
    with connect() as connection:
        connection.register("facts", table)
        days = connection.sql(rollups.days_sql("facts")).to_arrow_table()
    assert pc.sum(days["billed"]).as_py() == Decimal(usd).scaleb(-9)
    assert pc.sum(days["count"]).as_py() == 1
    last = end - timedelta(microseconds=1)
    assert days.num_rows == (last.date() - start.date()).days + 1
