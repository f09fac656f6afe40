"""Tests that every database passes: notices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from router.state.errors import StateError
from router.state.records import Attempt, NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.state_suite import StateSuite, together
from tests.support.state_values import NOW, attempt, node

FIRST = NoticeRecord("a1", 0, "terminate-1", "interruption", "aws", 117.25, "the machine will be told to go", NOW)


class NoticesSuite(StateSuite):
    """Notices of machines."""

    @pytest.fixture
    def store(self, url: str) -> Iterator[StateStore]:
        with StateStore.open(url, now=NOW) as store:
            for name in ("a1", "a2"):
                store.attempts.add(attempt(name), [node(name, 0), node(name, 1)])
            yield store

    def test_they_come_back_as_they_were_in_the_order_in_which_they_were_heard(self, store: StateStore) -> None:
        later = replace(FIRST, rank=1, seconds=None, heard_at=NOW + timedelta(microseconds=1), what="π\n")
        other = replace(FIRST, attempt="a2", heard_at=NOW - timedelta(seconds=1), seconds=0.1 + 0.2)
        for notice in (later, FIRST, other):
            store.notices.add(notice)
        assert store.notices.find() == (other, FIRST, later)
        assert store.notices.find("a1") == (FIRST, later)
        assert store.notices.find("a1", since=later.heard_at) == (later,)
        assert store.notices.find(since=FIRST.heard_at) == (FIRST, later)
        assert store.notices.find("nobody") == ()

    def test_the_same_again_changes_nothing(self, store: StateStore) -> None:
        store.notices.add(FIRST)
        store.notices.add(replace(FIRST, seconds=3.0, kind="health", heard_at=NOW + timedelta(hours=1)))
        assert store.notices.find() == (FIRST,)
        together(8, lambda _: store.notices.add(replace(FIRST, id="other")))
        assert len(store.notices.find()) == 2

    def test_one_that_changes_its_attempt_does_so_with_it_or_not_at_all(self, store: StateStore) -> None:
        def noticed(before: Attempt) -> Attempt | None:
            if before.order_id:
                return None
            return replace(before, phase=Phase.NOTICED, order_id=FIRST.id, order_seconds=115.25, ordered_at=NOW)

        after = store.joint.add_notice(FIRST, noticed)
        assert (after.phase, after.order_id, after.order_seconds, after.ordered_at, after.version) == (
            Phase.NOTICED,
            FIRST.id,
            115.25,
            NOW,
            2,
        )
        assert store.attempts.get("a1") == after
        assert store.joint.add_notice(replace(FIRST, seconds=3.0), noticed) == after
        assert store.notices.find() == (FIRST,)

        def fails(_: Attempt) -> Attempt:
            raise LookupError("no")

        with pytest.raises(LookupError):
            store.joint.add_notice(replace(FIRST, rank=1), fails)
        assert store.notices.find() == (FIRST,)
        with pytest.raises(StateError):
            store.joint.add_notice(replace(FIRST, attempt="nobody"), noticed)

    def test_those_of_many_threads_are_all_kept_and_one_changes_the_attempt(self, store: StateStore) -> None:
        def first(before: Attempt) -> Attempt | None:
            return None if before.order_id else replace(before, order_id="first")

        def count(before: Attempt) -> Attempt:
            return replace(before, first_step=before.first_step + 1)

        together(8, lambda n: store.joint.add_notice(replace(FIRST, id=f"n-{n}"), first))
        together(8, lambda n: store.joint.add_notice(replace(FIRST, id=f"m-{n}"), count))
        found = store.attempts.get("a1")
        assert found is not None
        assert (len(store.notices.find()), found.version, found.first_step) == (16, 10, 8)

    def test_what_cannot_be_kept(self, store: StateStore) -> None:
        with pytest.raises(StateError):
            store.notices.add(replace(FIRST, attempt="nobody"))
        for seconds in (math.inf, math.nan):
            with pytest.raises(ValueError, match="cannot be stored"):
                store.notices.add(replace(FIRST, seconds=seconds))
        with pytest.raises(TypeError):
            store.notices.add(replace(FIRST, seconds=True))
        assert store.notices.find() == ()
