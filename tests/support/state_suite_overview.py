"""Tests that every database passes: looks at the whole state."""

from __future__ import annotations

from datetime import timedelta

from router.ledger.entry import LedgerEntryKind
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.state_suite import StateSuite
from tests.support.state_values import HOUR, NOW, attempt, entry, node


class OverviewSuite(StateSuite):
    """The overview."""

    def test_what_is_alive_comes_with_its_machines(self, store: StateStore) -> None:
        later = attempt("a0", created_at=NOW + HOUR, phase=Phase.RUNNING)
        over = attempt("a2", phase=Phase.FAILED, reason="crashed", gone_at=NOW + HOUR)
        store.attempts.add(later, [node("a0", 1), node("a0", 0)])
        store.attempts.add(attempt(), [node()])
        store.attempts.add(over, [node("a2")])
        assert store.overview.alive() == ((attempt(), later), (node("a0", 0), node("a0", 1), node()))

    def test_what_is_over_by_when_it_was_gone(self, store: StateStore) -> None:
        ended = [attempt(f"a{i}", phase=Phase.FINISHED, gone_at=NOW + i * HOUR) for i in (3, 1, 2)]
        for one in (*ended, attempt("a9", phase=Phase.RELEASING)):
            store.attempts.add(one, [])
        assert [one.id for one in store.overview.over_since(NOW + 2 * HOUR)] == ["a2", "a3"]
        assert store.overview.over_since(NOW + 3 * HOUR + timedelta(microseconds=1)) == ()

    def test_attempts_by_id(self, store: StateStore) -> None:
        for name in ("a1", "a2", "a3"):
            store.attempts.add(attempt(name), [])
        many = [f"none-{i}" for i in range(1200)]
        assert store.overview.attempts(["a3", *many, "a1"]) == {"a1": attempt("a1"), "a3": attempt("a3")}
        assert store.overview.attempts([]) == {}

    def test_counts_by_phase_and_reason(self, store: StateStore) -> None:
        assert store.overview.counts() == {}
        for number, reason in enumerate(["short", "short", "crashed"]):
            store.attempts.add(attempt(f"f{number}", phase=Phase.FAILED, reason=reason), [])
        store.attempts.add(attempt(), [])
        assert store.overview.counts() == {
            (Phase.FAILED, "short"): 2,
            (Phase.FAILED, "crashed"): 1,
            (Phase.PLANNED, ""): 1,
        }

    def test_notes_from_where_a_reader_was(self, store: StateStore) -> None:
        for what in ("saved", "hello", "not_saved", "saved"):
            store.journal.note("a1", what, NOW, rank=0)
        assert [(note.seq, note.what) for note in store.overview.notes(("saved", "not_saved"))] == [
            (1, "saved"),
            (3, "not_saved"),
            (4, "saved"),
        ]
        assert [note.seq for note in store.overview.notes(["saved"], after=1)] == [4]
        assert store.overview.notes(["saved"], after=4) == ()

    def test_what_was_metered_from_where_a_reader_was(self, store: StateStore) -> None:
        assert store.overview.metered() == (0, ())
        planned = entry("p1", kind=LedgerEntryKind.PLANNED, attempt="", rank=None)
        first, second = entry("m1"), entry("m2", rank=1)
        store.ledger.add([first, planned, second])
        assert store.overview.metered() == (3, (first, second))
        assert store.overview.metered(after=1) == (3, (second,))
        assert store.overview.metered(after=3) == (3, ())
