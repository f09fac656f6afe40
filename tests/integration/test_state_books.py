"""Closed books, the chain of the ledger, archives and backups, on every database."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from pricing.money import Usd
from router.ledger.entry import ClosedError, LedgerEntry, LedgerEntryKind
from router.ledger.month import Month
from router.state.errors import ConflictError, ExistsError, StateError
from router.state.ledger_rows import NAMES, parse_entry
from router.state.ledger_table import LedgerColumns, columns_from_rows
from router.state.store import StateStore
from tests.support.books_steps import (
    ARCHIVE,
    BACKUP,
    FIRST,
    LATER,
    NOVEMBER,
    OCTOBER,
    SEPTEMBER,
    STEPS,
    fee,
    go_on,
    of,
    seen,
    views,
)
from tests.support.state_crashes import crash
from tests.support.state_values import HOUR, NOW, NewUrl, attempt, entries, entry, node, together


class TestWhole:
    """Backups of a whole state."""

    def test_a_whole_state_comes_back_just_the_same(self, store: StateStore, new_url: NewUrl, tmp_path: Path) -> None:
        list(views(store, tmp_path))
        store.attempts.add(attempt("a1"), (node("a1", 0), node("a1", 1)))
        store.plans.put_plan("p" * 64, "{}", NOW)
        store.audit.add("anna", "apply", "p" * 64, Usd.parse("3.5"), NOW, gangs=1)
        store.journal.note("a1", "ready", NOW, ranks=2)
        store.whole.write(tmp_path / "state.gz", ())
        store.whole.write(tmp_path / "again.gz", ())
        assert (tmp_path / "state.gz").read_bytes() == (tmp_path / "again.gz").read_bytes()
        with pytest.raises(StateError, match="is no backup but a whole state"):
            store.backups.restore(tmp_path / "state.gz")
        with StateStore.open(new_url(), now=NOW) as other:
            other.whole.restore(tmp_path / "state.gz")
            assert seen(other) == seen(store)
            assert (other.attempts.find(), other.attempts.nodes("a1")) == (
                store.attempts.find(),
                store.attempts.nodes("a1"),
            )
            assert (other.journal.entries(), other.audit.entries()) == (store.journal.entries(), store.audit.entries())

    def test_nothing_is_put_into_a_state_with_something_in_it(
        self, store: StateStore, new_url: NewUrl, tmp_path: Path
    ) -> None:
        store.plans.put_plan("p" * 64, "{}", NOW)
        store.whole.write(tmp_path / "state.gz", ())
        with StateStore.open(new_url(), now=NOW) as other:
            other.attempts.add(attempt("b1"), (node("b1", 0), node("b1", 1)))
            with pytest.raises(ExistsError, match="is not empty"):
                other.whole.restore(tmp_path / "state.gz")
            assert ([a.id for a in other.attempts.find()], other.plans.plan("p" * 64)) == (["b1"], None)


DAY = timedelta(days=1)


class TestClosing:
    """Closed months, and what becomes known afterwards."""

    @pytest.fixture
    def closed(self, store: StateStore) -> StateStore:
        store.ledger.add(FIRST)
        store.periods.close(SEPTEMBER, who="anna", at=NOW)
        return store

    def test_who_closed_it_when_and_what_was_the_last_entry(self, closed: StateStore) -> None:
        (one,) = closed.periods.closings()
        (*_, last) = next(closed.ledger.batches())
        assert (one.period, one.who, one.closed_at, one.head, one.hash) == (SEPTEMBER, "anna", NOW, 7, last[-1])

    def test_months_are_closed_once_in_order_when_they_are_over(self, closed: StateStore) -> None:
        with pytest.raises(ExistsError, match="2026-09 are closed already"):
            closed.periods.close(SEPTEMBER, who="bob", at=NOW)
        with pytest.raises(ExistsError):
            closed.periods.close(Month(2026, 8), who="bob", at=NOW)
        with pytest.raises(StateError, match="2026-11 is not over") as caught:
            closed.periods.close(NOVEMBER, who="bob", at=NOVEMBER.ends - timedelta(microseconds=1))
        assert "2026-12-01 00:00" in caught.value.remedy
        with pytest.raises(StateError, match="2026-10 has entries and is open") as caught:
            closed.periods.close(NOVEMBER, who="bob", at=NOVEMBER.ends)
        assert "ledger close 2026-10" in caught.value.remedy
        closed.periods.close(OCTOBER, who="bob", at=OCTOBER.ends)
        assert [one.period for one in closed.periods.closings()] == [SEPTEMBER, OCTOBER]

    def test_a_month_without_entries_is_closed_along(self, store: StateStore) -> None:
        store.ledger.add([of(11, "n1")])
        store.periods.close(OCTOBER, who="anna", at=NOW)
        store.ledger.add([of(8, "very late")])
        (_, late) = store.ledger.entries()
        assert (late.period, late.corrects) == (NOVEMBER, "2026-08")

    def test_what_is_metered_late_is_a_correction_in_open_books(self, closed: StateStore) -> None:
        before = closed.periods.sums()
        assert closed.ledger.add([of(9, "late", 9), of(10, "in time", 9)]) == 9
        late, in_time = closed.ledger.entries()[-2:]
        assert (late.period, late.corrects, late.start.month) == (NOVEMBER, "2026-09", 9)
        assert (in_time.period, in_time.corrects) == (OCTOBER, "")
        after = closed.periods.sums()
        assert [s for s in after if s.period == SEPTEMBER] == [s for s in before if s.period == SEPTEMBER]
        # The same again is skipped, and so is what was there before the month was closed.
        assert closed.ledger.add([of(9, "late", 9, recorded_at=NOW + HOUR), of(9, "s1")]) == 9
        assert closed.ledger.verify().problems == ()

    def test_what_a_person_adds_to_closed_books_is_refused(self, closed: StateStore) -> None:
        with pytest.raises(ClosedError, match=r"`period: 2026-10` with `corrects: 2026-09`"):
            closed.ledger.add([of(11, "n9"), fee("f9", 9)])
        assert closed.ledger.head() == 7
        assert closed.ledger.add([fee("f9", 9, period=NOVEMBER, corrects="2026-09", usd=Usd(-5)), fee("f1", 9)]) == 8

    def test_a_correction_names_what_there_is(self, closed: StateStore) -> None:
        for nothing in ("2026-10", "no such key", "2026-9", "\0"):
            with pytest.raises(ConflictError, match="neither the key of an entry nor a closed month"):
                closed.ledger.add([fee("f9", corrects=nothing)])
        for named in ("2026-09", "2026-02", "s1", "f8"):
            closed.ledger.add([fee("f8"), fee(f"f9 {named}", corrects=named)])
        assert closed.ledger.head() == 12

    def test_of_closing_and_appending_at_once_either_is_first(self, store: StateStore, url: str) -> None:
        store.ledger.add(FIRST)
        with StateStore.open(url, now=NOW) as other:

            def work(index: int) -> None:
                if index == 0:
                    other.periods.close(SEPTEMBER, who="anna", at=NOW)
                else:
                    for number in range(10):
                        store.ledger.add([of(9, f"{index}-{number}")])

            together(4, work)
        (closing,) = store.periods.closings()
        for row in next(store.ledger.batches()):
            one = parse_entry(row[1:-2])
            assert (one.period == NOVEMBER and one.corrects == "2026-09") is (row[0] > closing.head) or row[0] <= 7
        assert store.ledger.head() == 37
        assert store.ledger.verify().problems == ()

    @settings(max_examples=15)
    @given(st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=12))
    def test_no_order_of_closing_and_adding_changes_closed_sums(
        self, new_url: NewUrl, done: list[tuple[int, bool]]
    ) -> None:
        with StateStore.open(new_url(), now=NOW) as store:
            fixed: dict[Month, list[object]] = {}
            for number, (month, closes) in enumerate(done):
                period = Month(2025, month + 1)
                if closes:
                    try:
                        store.periods.close(period, who="anna", at=NOW)
                    except StateError:
                        continue
                    sums = store.periods.sums()
                    fixed |= {
                        one.period: [s for s in sums if s.period == one.period] for one in store.periods.closings()
                    }
                else:
                    start = period.begins + number * HOUR
                    store.ledger.add([entry(f"k{number}", start=start, end=start + HOUR)])
                sums = store.periods.sums()
                assert {period: [s for s in sums if s.period == period] for period in fixed} == fixed
            assert store.ledger.verify().problems == ()
            metered = [one.usd for one in store.ledger.entries() if one.kind is LedgerEntryKind.METERED]
            assert Usd.total(metered) == Usd.total(one.usd for one in store.periods.sums())

    @pytest.mark.parametrize("table", ["ledger_periods", "ledger_archives", "ledger_archived"])
    @pytest.mark.parametrize("statement", ["UPDATE {0} SET seq = seq + 9", "DELETE FROM {0}"])
    def test_what_was_closed_or_archived_stays(
        self, store: StateStore, tmp_path: Path, table: str, statement: str
    ) -> None:
        list(views(store, tmp_path))
        before = seen(store)
        with pytest.raises(StateError, match="append-only"), store._database.write() as connection:
            connection.execute(text(statement.format(table)))
        with pytest.raises(StateError, match="append-only"), store._database.write() as connection:
            connection.execute(text("DELETE FROM ledger"))
        assert seen(store) == before


class TestArchive:
    """Archives and backups."""

    def test_of_what_was_archived_the_chain_the_sums_and_the_keys_stay(self, store: StateStore, tmp_path: Path) -> None:
        *before, _ = views(store, tmp_path)
        sums: Any = before[-1][2]
        assert [(s.period, s.kind, s.entries, s.usd) for s in sums] == [
            (s.period, s.kind, s.entries, s.usd) for s in store.periods.sums()
        ]
        checked = store.ledger.verify()
        assert (checked.entries, checked.archived, checked.head, checked.problems) == (5, 6, 11, ())
        first, later = store.archives.all()
        assert (first.before, first.entries, later.before, later.entries) == (OCTOBER, 4, NOVEMBER, 2)
        assert store.archives.check(tmp_path / ARCHIVE) == first
        assert store.archives.check(tmp_path / LATER) == later
        # Each key once, be it archived; and what was archived can be corrected.
        assert store.ledger.add([of(9, "s1"), of(10, "o2", 2, team="ops")]) == 11
        months = store.ledger.months_of(["s1", "n1"])
        assert months["s1"] < months["n1"] == NOVEMBER
        assert store.ledger.add([fee("f7", corrects="s2")]) == 12
        assert store.ledger.head() == 12

    def test_only_closed_months_are_archived(self, store: StateStore, tmp_path: Path) -> None:
        store.ledger.add(FIRST)
        for closed in ("no month is closed", "only months up to 2026-09 are closed"):
            with pytest.raises(StateError, match=closed):
                store.archives.archive(NOVEMBER, tmp_path / ARCHIVE, who="anna", at=NOW)
            if closed.startswith("no"):
                store.periods.close(SEPTEMBER, who="anna", at=NOW)
        with pytest.raises(StateError, match="no entries in the books of months before 2026-09"):
            store.archives.archive(SEPTEMBER, tmp_path / ARCHIVE, who="anna", at=NOW)
        assert list(tmp_path.iterdir()) == []
        assert store.ledger.verify().entries == 7

    def test_of_two_who_archive_while_others_append_one_does(self, store: StateStore, url: str, tmp_path: Path) -> None:
        store.ledger.add(FIRST)
        store.periods.close(SEPTEMBER, who="anna", at=NOW)
        failed: list[StateError] = []
        with StateStore.open(url, now=NOW) as other:

            def work(index: int) -> None:
                if index < 2:
                    try:
                        (store, other)[index].archives.archive(OCTOBER, tmp_path / f"{index}.gz", who="anna", at=NOW)
                    except StateError as error:
                        failed.append(error)
                else:
                    for number in range(10):
                        other.ledger.add([of(9, f"{index}-{number}")])

            together(4, work)
        (done,) = store.archives.all()
        assert len(failed) == 1
        assert (done.entries, store.archives.check(tmp_path / done.file)) == (4, done)
        checked = store.ledger.verify()
        assert (checked.entries, checked.archived, checked.problems) == (23, 4, ())

    def test_no_file_is_written_over(self, store: StateStore, tmp_path: Path) -> None:
        *_, last = views(store, tmp_path)
        contents = {path: path.read_bytes() for path in tmp_path.iterdir()}
        assert len(contents) == 3
        with pytest.raises(ExistsError, match="is there already"):
            store.backups.write(tmp_path / BACKUP)
        store.periods.close(NOVEMBER, who="anna", at=NOVEMBER.ends)
        with pytest.raises(ExistsError, match="is there already"):
            store.archives.archive(Month(2026, 12), tmp_path / ARCHIVE, who="anna", at=NOW)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == contents
        assert last[0] == seen(store)[0]

    def test_a_backup_comes_back_just_the_same(self, store: StateStore, new_url: NewUrl, tmp_path: Path) -> None:
        *_, last = views(store, tmp_path)
        store.backups.write(tmp_path / "a.gz")
        store.backups.write(tmp_path / "b.gz")
        assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
        with StateStore.open(new_url(), now=NOW) as other:
            found = other.backups.restore(tmp_path / "a.gz")
            assert seen(other) == last
            assert found == store.ledger.verify()
            assert other.archives.check(tmp_path / LATER).file == LATER
            with pytest.raises(ExistsError, match="is not empty"):
                other.backups.restore(tmp_path / "a.gz")
            # It goes on as the first one would.
            assert other.ledger.add([of(9, "s2", 2), of(10, "new")]) == store.ledger.add([of(10, "new")]) == 12
            assert seen(other) == seen(store)

    def test_of_nothing(self, store: StateStore, new_url: NewUrl, tmp_path: Path) -> None:
        assert store.backups.write(tmp_path / "a.gz").head == 0
        with StateStore.open(new_url(), now=NOW) as other:
            assert other.backups.restore(tmp_path / "a.gz").head == 0
            assert other.ledger.add([entry()]) == 1

    @settings(max_examples=10)
    @given(st.lists(entries(st.uuids().map(str)), max_size=6, unique_by=lambda e: e.key))
    def test_any_entries_come_back_from_a_backup(
        self, new_url: NewUrl, tmp_path_factory: pytest.TempPathFactory, given_entries: list[object]
    ) -> None:
        file = tmp_path_factory.mktemp("backups") / "a.gz"
        with StateStore.open(new_url(), now=NOW) as store, StateStore.open(new_url(), now=NOW) as other:
            store.ledger.add(given_entries)  # type: ignore[arg-type]
            store.backups.write(file)
            other.backups.restore(file)
            assert other.ledger.entries() == tuple(given_entries)

    def test_books_that_were_changed_are_not_backed_up(self, store: StateStore, tmp_path: Path) -> None:
        store.ledger.add(FIRST)
        tamper(store, "UPDATE ledger SET usd_nanos = usd_nanos + 1 WHERE seq = 3")
        assert store.ledger.verify().problems == ("entry 3 is not what was written: somebody changed or removed one",)
        with pytest.raises(StateError, match="entry 3 is not what was written"):
            store.backups.write(tmp_path / BACKUP)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("statement", "problem"),
        [
            ("DELETE FROM ledger WHERE seq = 4", "entry 5 is not what was written"),
            ("DELETE FROM ledger WHERE seq = 7", "when 2026-09 was closed there were 7 entries, now 6"),
            ("UPDATE ledger SET hash = 'x' WHERE seq = 7", "when 2026-09 was closed, entry 7 was another one"),
            ("UPDATE ledger SET team = '' WHERE seq = 0", ""),
            ("UPDATE ledger SET period = '2026-09' WHERE seq = 5", "entry 5 is not what was written"),
            ("UPDATE ledger SET reason = 'x' WHERE seq = 1", "entry 1 is not what was written"),
        ],
    )
    def test_what_was_changed_behind_its_back_shows(self, store: StateStore, statement: str, problem: str) -> None:
        store.ledger.add(FIRST)
        store.periods.close(SEPTEMBER, who="anna", at=NOW)
        tamper(store, statement)
        problems = store.ledger.verify().problems
        assert problem in (problems[-1] if problem.startswith("when") else "".join(problems[:1]))
        assert bool(problems) is bool(problem)

    def test_batches_bring_every_row_once_in_order(self, store: StateStore) -> None:
        store.ledger.add([entry(f"k{number}") for number in range(57)])
        batches = list(store.ledger.batches(7, size=20))
        assert [len(batch) for batch in batches] == [20, 20, 10]
        rows = [row for batch in batches for row in batch]
        assert [row[0] for row in rows] == list(range(8, 58))
        assert [parse_entry(row[1:-2]) for row in rows] == list(store.ledger.entries()[7:])
        assert list(store.ledger.batches(57)) == []

    @settings(max_examples=10)
    @given(st.lists(entries(st.uuids().map(str)), min_size=1, max_size=9, unique_by=lambda e: e.key))
    def test_columns_say_what_rows_say(self, new_url: NewUrl, given_entries: list[LedgerEntry]) -> None:
        with StateStore.open(new_url(), now=NOW) as store:
            store.ledger.add(given_entries)
            rows = list(next(store.ledger.batches()))
            found = list(store.ledger.columns(size=4))
            assert list(store.ledger.columns(len(rows))) == []
        said = {name: [value for columns in found for value in _each(columns, name)] for name in NAMES}
        assert said == dict(zip(NAMES, list(map(list, zip(*rows, strict=True)))[1:-2], strict=True))
        assert said == {name: _each(columns_from_rows(rows), name) for name in NAMES}
        assert [seq for columns in found for seq in columns.seqs] == [row[0] for row in rows]


def _each(columns: LedgerColumns, name: str) -> list[Any]:
    if name in columns.single:
        return list(columns.single[name])
    said = columns.said(name)
    return [said[place] for place in columns.places]


class TestBooksCrash:
    """Killed processes, as in test_state_crashes."""

    @pytest.mark.parametrize("stride", [37, pytest.param(1, marks=pytest.mark.slow)])
    def test_killed_anywhere_nothing_is_lost_and_nothing_doubled(
        self, new_url: NewUrl, ready_url: NewUrl, tmp_path: Path, stride: int
    ) -> None:
        (tmp_path / "whole").mkdir()
        with StateStore.open(new_url(), now=NOW) as store:
            expected = list(views(store, tmp_path / "whole"))
        died_after = []
        for number, (url, done, died) in enumerate(
            crash(ready_url, what="books", where=tmp_path / "cut", stride=stride)
        ):
            folder = tmp_path / "cut" / str(number * stride)
            with StateStore.open(url, now=NOW) as store:
                assert seen(store) in (expected[done], *expected[done + 1 :][:1])
                go_on(store, folder, done)
                assert seen(store) == expected[-1]
                for name in (ARCHIVE, LATER):
                    store.archives.check(folder / name)
            assert died or done == len(STEPS)
            died_after.append(done)
        assert stride > 1 or set(died_after) == set(range(len(STEPS) + 1))

    @pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
    def test_killed_while_restoring(self, new_url: NewUrl, ready_url: NewUrl, tmp_path: Path, stride: int) -> None:
        with StateStore.open(new_url(), now=NOW) as store:
            *_, last = views(store, tmp_path)
            store.backups.write(tmp_path / "all.gz")
        died_at = 0
        for url, done, died in crash(ready_url, what="restore", where=tmp_path / "all.gz", stride=stride):
            with StateStore.open(url, now=NOW) as store:
                if store.ledger.head() == 0:
                    assert (done, seen(store)[:4]) == (0, ([], (), (), ()))
                    store.backups.restore(tmp_path / "all.gz")
                assert seen(store) == last
            died_at += died
        assert died_at >= 3


def tamper(store: StateStore, statement: str) -> None:
    """As who owns the database may: takes the triggers away, and puts none back."""
    with store._database.write() as connection:
        if store._database.is_file:
            for name in ("keeps_rows", "loses_no_rows"):
                connection.execute(text(f"DROP TRIGGER ledger_{name}"))
        else:
            connection.execute(text("ALTER TABLE ledger DISABLE TRIGGER USER"))
        connection.execute(text(statement))
