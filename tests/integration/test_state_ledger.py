"""The ledger and the audit log, on every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.ledger.entry import LedgerEntryKind
from router.ledger.month import Month
from router.state.audit import verify_chain
from router.state.errors import ConcurrentChangeError, ConflictError, StateError
from router.state.ledger_rows import NAMES
from router.state.store import StateStore
from tests.support.state_values import HOUR, NOW, NewUrl, entries, entry, together

_FEW_KEYS = st.sampled_from(["k1", "k2", "k3", "k4"])
_PLANNED: dict[str, Any] = {
    "kind": LedgerEntryKind.PLANNED,
    "attempt": "",
    "rank": None,
    "machines": 4,
    "market": Market.ON_DEMAND,
    "quantity": Fraction(22, 7),
    "usd_per_hour": UsdPerHour(220_160_000_001),
    "usd": Usd(691_931_428_574),
    "steps": 1 << 60,
    "price_as_of": "2026-11-21",
    "price_source": "book:abc",
}


class TestLedger:
    """The ledger."""

    def test_planned_and_metered_come_back_exactly(self, store: StateStore) -> None:
        planned, metered = entry("p1", **_PLANNED), entry("m1", quantity=Fraction(1, 3), zone="us-east-1a")
        assert store.ledger.head() == 0
        assert store.ledger.append([planned, metered], after=0) == 2
        assert store.ledger.entries() == (planned, metered)
        assert store.ledger.head() == 2

    @settings(max_examples=20)
    @given(st.lists(entries(st.uuids().map(str)), max_size=5, unique_by=lambda e: e.key))
    def test_any_entries_come_back_exactly(self, new_url: NewUrl, given_entries: list[Any]) -> None:
        with StateStore.open(new_url(), now=NOW) as store:
            assert store.ledger.append(given_entries, after=0) == len(given_entries)
            assert store.ledger.entries() == tuple(given_entries)

    def test_rows_of_one_month_and_in_which_month_entries_stand(self, store: StateStore) -> None:
        later = NOW + 31 * 24 * HOUR
        month = {number: later if number % 3 else NOW for number in range(30)}
        store.ledger.add([entry(f"k{n}", start=at, end=at + HOUR) for n, at in month.items()])
        wanted = [f"k{n}" for n, at in month.items() if at == NOW]
        batches = list(store.ledger.batches(period=Month.of(NOW), size=4))
        assert [row[1] for batch in batches for row in batch] == wanted
        assert list(store.ledger.batches(period=Month(2001, 1))) == []
        assert store.ledger.months_of(["k0", "k1", "none"]) == {"k0": Month.of(NOW), "k1": Month.of(later)}
        assert store.ledger.months_of([]) == {}

    def test_whoever_was_second_reads_again(self, store: StateStore) -> None:
        store.ledger.append([entry("k1")], after=0)
        for after in (0, 2, -1):
            with pytest.raises(ConcurrentChangeError, match="1 entries"):
                store.ledger.append([entry("k2")], after=after)
            with pytest.raises(ConcurrentChangeError):
                store.ledger.append([], after=after)
        assert store.ledger.append([entry("k2")], after=1) == 2

    def test_the_same_again_is_skipped_and_another_content_refused(self, store: StateStore) -> None:
        store.ledger.append([entry("k1")], after=0)
        again = entry("k1", recorded_at=NOW + HOUR)
        assert store.ledger.append([again, entry("k2"), entry("k2", recorded_at=NOW - HOUR)], after=1) == 2
        assert store.ledger.entries() == (entry("k1"), entry("k2"))
        for bad in ([entry("k3"), entry("k1", steps=1)], [entry("k3"), entry("k3", team="other")]):
            with pytest.raises(ConflictError, match=r"k[13]"):
                store.ledger.append(bad, after=2)
            with pytest.raises(ConflictError):
                store.ledger.add(bad)
        assert store.ledger.head() == 2

    def test_all_or_none(self, store: StateStore) -> None:
        with pytest.raises(ValueError, match="nine billion"):
            store.ledger.add([entry("k1"), entry("k2", usd=Usd(1 << 63))])
        assert store.ledger.entries() == ()

    def test_many_at_once(self, store: StateStore) -> None:
        many = [entry(f"k{i}", rank=i) for i in range(1200)]
        assert store.ledger.add(many) == 1200
        assert store.ledger.add([*many, entry("new")]) == 1201

    def test_periods_that_overlap(self, store: StateStore) -> None:
        first, second = entry("k1"), entry("k2", start=NOW + HOUR, end=NOW + 2 * HOUR)
        store.ledger.add([second, first])
        tick = timedelta(microseconds=1)
        assert store.ledger.entries(since=NOW + HOUR) == (second,)
        assert store.ledger.entries(since=NOW + HOUR - tick) == (second, first)
        assert store.ledger.entries(until=NOW + HOUR) == (first,)
        assert store.ledger.entries(until=NOW + HOUR + tick) == (second, first)
        assert store.ledger.entries(since=NOW + HOUR, until=NOW + HOUR) == ()
        assert store.ledger.entries(until=NOW) == ()

    def test_by_kind_job_attempt_and_team(self, store: StateStore) -> None:
        one, two = entry("m1"), entry("p1", **{**_PLANNED, "job": "bert", "team": "ops"})
        store.ledger.add([one, two])
        assert store.ledger.entries(kind=LedgerEntryKind.PLANNED) == (two,)
        assert store.ledger.entries(job="llama") == (one,)
        assert store.ledger.entries(attempt="a1", kind=LedgerEntryKind.METERED) == (one,)
        assert store.ledger.entries(team="ops") == (two,)
        assert store.ledger.entries(team="ops", attempt="a1") == ()

    @settings(max_examples=15)
    @given(st.lists(st.lists(entries(_FEW_KEYS), max_size=3), min_size=2, max_size=4))
    def test_concurrent_appends_leave_no_gap_and_no_key_twice(self, new_url: NewUrl, batches: list[list[Any]]) -> None:
        url = new_url()
        with StateStore.open(url, now=NOW) as first, StateStore.open(url, now=NOW) as second:
            outcomes: dict[int, bool] = {}

            def add(index: int) -> None:
                store = (first, second)[index % 2]
                while True:
                    try:
                        store.ledger.append(batches[index], after=store.ledger.head())
                        outcomes[index] = True
                    except ConcurrentChangeError:
                        continue
                    except ConflictError:
                        outcomes[index] = False
                    return

            together(len(batches), add)
            kept = first.ledger.entries()
        keys = [e.key for e in kept]
        assert len(set(keys)) == len(keys)
        content = {e.key: replace(e, recorded_at=NOW) for e in kept}
        for index, batch in enumerate(batches):
            same = [content.get(e.key) == replace(e, recorded_at=NOW) for e in batch]
            assert all(same) is True if outcomes[index] else not all(same)

    def test_many_threads_and_two_connections(self, store: StateStore, url: str) -> None:
        with StateStore.open(url, now=NOW) as other:
            stores = (store, other)
            together(4, lambda i: [stores[i % 2].ledger.add([entry(f"k{i}-{k}")]) for k in range(15)])
        assert store.ledger.head() == 60
        assert {e.key for e in store.ledger.entries()} == {f"k{i}-{k}" for i in range(4) for k in range(15)}


class TestAudit:
    """The audit log."""

    def test_each_entry_carries_the_hash_of_the_one_before(self, store: StateStore) -> None:
        first = store.audit.add("anna", "apply", "d1", Usd.parse("912.60"), NOW, gangs=3, why={"a": [1.5, None, "ü\0"]})
        second = store.audit.add("bö\0b", "destroy", "d1", Usd(-1), NOW.astimezone())
        assert store.audit.entries() == (first, second)
        assert (first.seq, second.seq, second.previous) == (1, 2, first.hash)
        assert second.who == "bö\ufffdb"
        assert verify_chain(store.audit.entries()) is None

    def test_a_time_without_a_zone_is_refused(self, store: StateStore) -> None:
        with pytest.raises(ValueError, match="no time zone"):
            store.audit.add("anna", "apply", "d", Usd(1), NOW.replace(tzinfo=None))
        assert store.audit.entries() == ()

    def test_concurrent_appends_keep_one_chain(self, store: StateStore, url: str) -> None:
        with StateStore.open(url, now=NOW) as other:
            stores = (store, other)
            together(4, lambda i: [stores[i % 2].audit.add("anna", f"{i}", "d", Usd(k), NOW) for k in range(15)])
        log = store.audit.entries()
        assert len(log) == 60
        assert verify_chain(log) is None


class TestAppendOnly:
    """Whoever comes by another way than the store cannot rewrite what was written either."""

    @pytest.fixture
    def filled(self, store: StateStore) -> StateStore:
        store.ledger.add([entry("k1"), entry("k2")])
        store.audit.add("anna", "apply", "d", Usd(1), NOW)
        store.audit.add("anna", "destroy", "d", Usd(1), NOW)
        store.journal.note("a1", "applying", NOW)
        store.journal.note("a1", "applied", NOW)
        return store

    @pytest.mark.parametrize("table", ["ledger", "audit_log", "journal"])
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE {table} SET seq = seq + 10",
            "UPDATE {table} SET at = at WHERE seq = 1",
            "DELETE FROM {table} WHERE seq = 2",
            "DELETE FROM {table}",
            "TRUNCATE {table}",
        ],
    )
    def test_no_row_is_changed_or_removed(self, filled: StateStore, table: str, statement: str) -> None:
        column = "recorded_at" if table == "ledger" else "at"
        if filled._database.is_file:
            statement = statement.replace("TRUNCATE", "DELETE FROM")
        with pytest.raises(StateError, match="append-only"), filled._database.write() as connection:
            connection.execute(text(statement.format(table=table).replace(" at = at ", f" {column} = {column} ")))
        assert (filled.ledger.head(), len(filled.audit.entries()), len(filled.journal.entries())) == (2, 2, 2)

    @pytest.mark.parametrize("seq", [0, 1, 2, 4, -1])
    @pytest.mark.parametrize("table", ["ledger", "audit_log", "journal"])
    def test_no_row_is_put_anywhere_but_after_the_last(self, filled: StateStore, table: str, seq: int) -> None:
        same = {
            "journal": "at, attempt, what, details",
            "audit_log": "at, who, what, digest, usd_nanos, details, previous, hash",
            "ledger": ", ".join((*NAMES, "previous", "hash")),
        }[table]
        values = same.replace("key,", "'k9',", 1)
        copy = f"INSERT INTO {table} (seq, {same}) SELECT {{seq}}, {values} FROM {table} WHERE seq = 1"
        with pytest.raises(StateError, match="after its last row"), filled._database.write() as connection:
            connection.execute(text(copy.format(seq=seq)))
        with filled._database.write() as connection:
            connection.execute(text(copy.format(seq=3)))
        assert 3 in (filled.ledger.head(), len(filled.audit.entries()), len(filled.journal.entries()))
