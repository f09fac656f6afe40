"""What every database has to do: many things of one kind in one go, and looks that cost little when little changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from router.state.errors import ExistsError, MissingError
from router.state.records import Attempt, NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.state_suite import StateSuite, together
from tests.support.state_values import HOUR, NOW, attempt, node, shortage

NOTICE = NoticeRecord("a1", 0, "n-1", "interruption", "aws", 117.25, "the machine will be told to go", NOW)


def running(before: Attempt) -> Attempt:
    """Runs now."""
    return replace(before, phase=Phase.RUNNING, met_at=NOW, order_seconds=0.1 + 0.2)


class ManySuite(StateSuite):
    """Many at once."""

    def test_attempts_are_added_all_or_none(self, store: StateStore) -> None:
        made = [(attempt(f"a{n}"), [node(f"a{n}", rank) for rank in range(2)]) for n in range(700)]
        store.add_attempts(made)
        assert {one.id for one in store.attempts()} == {f"a{n}" for n in range(700)}
        assert store.nodes("a699") == (node("a699", 0), node("a699", 1))
        with pytest.raises(ExistsError):
            store.add_attempts([(attempt("new"), [node("new")]), (attempt("a7"), [])])
        assert store.attempt("new") is None
        store.add_attempts([])

    def test_attempts_are_changed_all_or_none(self, store: StateStore) -> None:
        store.add_attempts([(attempt(f"a{n}"), []) for n in range(700)])
        changes = {f"a{n}": running if n % 2 else lambda _: None for n in range(700)}
        found = store.update_all(changes)
        assert list(found) == list(changes)
        assert found == {one.id: one for one in store.attempts()}
        assert (found["a1"].phase, found["a1"].version) == (Phase.RUNNING, 2)
        assert (found["a2"].phase, found["a2"].version) == (Phase.PLANNED, 1)
        with pytest.raises(MissingError):
            store.update_all({"a2": running, "none": running})
        assert store.attempt("a2") == found["a2"]
        assert store.update_all({}) == {}

    def test_changes_of_many_threads_all_count(self, store: StateStore) -> None:
        names = [f"a{n}" for n in range(5)]
        store.add_attempts([(attempt(name), []) for name in names])

        def count(_: int) -> None:
            for _again in range(10):
                store.update_all({name: lambda a: replace(a, first_step=a.first_step + 1) for name in names})

        together(4, count)
        assert [one.first_step for one in store.attempts()] == [40] * 5

    def test_notes_about_many(self, store: StateStore) -> None:
        store.note("a0", "first", NOW)
        store.note_all([("a1", {"n": 1}), ("a2", {"n": 2})], "leaving", NOW + HOUR)
        store.note_all([], "leaving", NOW)
        found = [(e.seq, e.attempt, e.what, e.details) for e in store.journal()]
        assert found == [(1, "a0", "first", {}), (2, "a1", "leaving", {"n": 1}), (3, "a2", "leaving", {"n": 2})]
        with pytest.raises(TypeError):
            store.note_all([("a3", {}), ("a4", {"n": object()})], "leaving", NOW)
        assert store.journal("a3") == ()

    def test_a_note_and_what_it_says_of_a_machine_come_together(self, store: StateStore) -> None:
        store.add_attempt(attempt(), [node()])
        store.note_with_node("a1", 0, {"saved_step": 7, "saved_at": NOW}, "saved", NOW, {"rank": 0, "saved_step": 7})
        assert store.nodes("a1") == (node(saved_step=7, saved_at=NOW),)
        assert [(e.what, e.details) for e in store.journal()] == [("saved", {"rank": 0, "saved_step": 7})]
        with pytest.raises(MissingError):
            store.note_with_node("a1", 1, {"saved_step": 8}, "saved", NOW, {})
        with pytest.raises(TypeError):
            store.note_with_node("a1", 0, {"saved_step": 8}, "saved", NOW, {"what": object()})
        assert (store.nodes("a1")[0].saved_step, len(store.journal())) == (7, 1)

    def test_pools_that_are_short_together(self, store: StateStore) -> None:
        both = (shortage("us-east-1a", hours=3), shortage("us-east-1b", hours=3))
        store.remember_short(*both)
        store.remember_short()
        assert store.shortages(NOW) == both

    def test_what_did_not_change_is_the_same_value(self, store: StateStore) -> None:
        store.add_attempts([(attempt(name), [node(name), node(name, 1)]) for name in ("a1", "a2")])
        before = store.overview.alive()
        store.set_node("a1", 1, step=7, heard_at=NOW + HOUR)
        store.update("a2", running)
        after = store.overview.alive()
        assert after == (store.attempts(), (*store.nodes("a1"), *store.nodes("a2")))
        same = [[one is other for one, other in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)]
        assert same == [[True, False], [True, False, True, True]]

    def test_notices_to_those_that_are_not_over(self, store: StateStore) -> None:
        for name, phase in (("a1", Phase.RUNNING), ("a2", Phase.FAILED), ("a3", Phase.RELEASING)):
            store.add_attempt(attempt(name, phase=phase), [node(name, 0), node(name, 1)])
        earlier = replace(NOTICE, attempt="a3", rank=1, seconds=None, heard_at=NOW - timedelta(microseconds=1))
        for notice in (NOTICE, replace(NOTICE, attempt="a2"), earlier):
            store.add_notice(notice)
        assert store.overview.notices() == (earlier, NOTICE)
        assert store.overview.notices()[1] is store.overview.notices()[1]

    def test_all_lives_of_jobs(self, store: StateStore) -> None:
        first, second = attempt(phase=Phase.FAILED, gone_at=NOW), attempt("a2", number=2)
        store.add_attempts([(first, [node()]), (second, [node("a2")]), (attempt("b1", job="other"), [node("b1")])])
        found, nodes = store.overview.lives(["llama", *(f"none-{n}" for n in range(1200))])
        assert (sorted(found, key=lambda a: a.id), nodes) == ([first, second], (node(), node("a2")))
        assert store.overview.lives([]) == ((), ())
