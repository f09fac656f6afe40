"""Tests that every database passes: many things in one go, and looks that cost little when little changed."""

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
        store.attempts.add_all(made)
        assert {one.id for one in store.attempts.find()} == {f"a{n}" for n in range(700)}
        assert store.attempts.nodes("a699") == (node("a699", 0), node("a699", 1))
        with pytest.raises(ExistsError):
            store.attempts.add_all([(attempt("new"), [node("new")]), (attempt("a7"), [])])
        assert store.attempts.get("new") is None
        store.attempts.add_all([])

    def test_attempts_are_changed_all_or_none(self, store: StateStore) -> None:
        store.attempts.add_all([(attempt(f"a{n}"), []) for n in range(700)])
        changes = {f"a{n}": running if n % 2 else lambda _: None for n in range(700)}
        found = store.attempts.update_all(changes)
        assert list(found) == list(changes)
        assert found == {one.id: one for one in store.attempts.find()}
        assert (found["a1"].phase, found["a1"].version) == (Phase.RUNNING, 2)
        assert (found["a2"].phase, found["a2"].version) == (Phase.PLANNED, 1)
        with pytest.raises(MissingError):
            store.attempts.update_all({"a2": running, "none": running})
        assert store.attempts.get("a2") == found["a2"]
        assert store.attempts.update_all({}) == {}

    def test_changes_of_many_threads_all_count(self, store: StateStore) -> None:
        names = [f"a{n}" for n in range(5)]
        store.attempts.add_all([(attempt(name), []) for name in names])

        def count(_: int) -> None:
            for _again in range(10):
                store.attempts.update_all({name: lambda a: replace(a, first_step=a.first_step + 1) for name in names})

        together(4, count)
        assert [one.first_step for one in store.attempts.find()] == [40] * 5

    def test_notes_about_many(self, store: StateStore) -> None:
        store.journal.note("a0", "first", NOW)
        store.journal.note_all([("a1", {"n": 1}), ("a2", {"n": 2})], "leaving", NOW + HOUR)
        store.journal.note_all([], "leaving", NOW)
        found = [(e.seq, e.attempt, e.what, e.details) for e in store.journal.entries()]
        assert found == [(1, "a0", "first", {}), (2, "a1", "leaving", {"n": 1}), (3, "a2", "leaving", {"n": 2})]
        with pytest.raises(TypeError):
            store.journal.note_all([("a3", {}), ("a4", {"n": object()})], "leaving", NOW)
        assert store.journal.entries("a3") == ()

    def test_a_note_and_what_it_says_of_a_machine_come_together(self, store: StateStore) -> None:
        store.attempts.add(attempt(), [node()])
        store.joint.note("a1", 0, {"saved_step": 7, "saved_at": NOW}, "saved", NOW, {"rank": 0, "saved_step": 7})
        assert store.attempts.nodes("a1") == (node(saved_step=7, saved_at=NOW),)
        assert [(e.what, e.details) for e in store.journal.entries()] == [("saved", {"rank": 0, "saved_step": 7})]
        with pytest.raises(MissingError):
            store.joint.note("a1", 1, {"saved_step": 8}, "saved", NOW, {})
        with pytest.raises(TypeError):
            store.joint.note("a1", 0, {"saved_step": 8}, "saved", NOW, {"what": object()})
        assert (store.attempts.nodes("a1")[0].saved_step, len(store.journal.entries())) == (7, 1)

    def test_pools_that_are_short_together(self, store: StateStore) -> None:
        both = (shortage("us-east-1a", hours=3), shortage("us-east-1b", hours=3))
        store.shortages.remember(*both)
        store.shortages.remember()
        assert store.shortages.in_force(NOW) == both

    def test_what_did_not_change_is_the_same_value(self, store: StateStore) -> None:
        store.attempts.add_all([(attempt(name), [node(name), node(name, 1)]) for name in ("a1", "a2")])
        before = store.overview.alive()
        store.attempts.set_node("a1", 1, step=7, heard_at=NOW + HOUR)
        store.attempts.update("a2", running)
        after = store.overview.alive()
        assert after == (store.attempts.find(), (*store.attempts.nodes("a1"), *store.attempts.nodes("a2")))
        same = [[one is other for one, other in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)]
        assert same == [[True, False], [True, False, True, True]]

    def test_notices_to_those_that_are_not_over(self, store: StateStore) -> None:
        for name, phase in (("a1", Phase.RUNNING), ("a2", Phase.FAILED), ("a3", Phase.RELEASING)):
            store.attempts.add(attempt(name, phase=phase), [node(name, 0), node(name, 1)])
        earlier = replace(NOTICE, attempt="a3", rank=1, seconds=None, heard_at=NOW - timedelta(microseconds=1))
        for notice in (NOTICE, replace(NOTICE, attempt="a2"), earlier):
            store.notices.add(notice)
        assert store.overview.notices() == (earlier, NOTICE)
        assert store.overview.notices()[1] is store.overview.notices()[1]

    def test_all_lives_of_jobs(self, store: StateStore) -> None:
        first, second = attempt(phase=Phase.FAILED, gone_at=NOW), attempt("a2", number=2)
        store.attempts.add_all([(first, [node()]), (second, [node("a2")]), (attempt("b1", job="other"), [node("b1")])])
        found, nodes = store.overview.lives(["llama", *(f"none-{n}" for n in range(1200))])
        assert (sorted(found, key=lambda a: a.id), nodes) == ([first, second], (node(), node("a2")))
        assert store.overview.lives([]) == ((), ())
