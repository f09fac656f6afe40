"""Attempts, their machines and notes in a state, on every database."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from pricing.money import Usd, UsdPerHour
from router.ledger.entry import LedgerEntryKind
from router.state.errors import ConcurrentChangeError, ExistsError, MissingError, StateError
from router.state.records import Attempt, JournalEntry, NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.state_values import HOUR, NOW, NewUrl, attempt, entry, node, shortage, together

NOTICE = NoticeRecord("a1", 0, "n-1", "interruption", "aws", 117.25, "the machine will be told to go", NOW)


def running(before: Attempt) -> Attempt:
    return replace(before, phase=Phase.RUNNING, met_at=NOW, order_seconds=0.1 + 0.2)


class TestMany:
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


class TestOverview:
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


class TestAttempts:
    """Attempts and machines."""

    def test_they_come_back_as_they_were(self, store: StateStore) -> None:
        one = attempt(
            project="vision",
            phase=Phase.READY,
            made_at=NOW + timedelta(microseconds=1),
            message="naïve ☃ 'quote' \"double\" \\ %s :x 100 %",
        )
        nodes = [node(rank=1, market="on_demand"), node(rank=0, exit_code=-9, master_port=29500, log_size=1 << 40)]
        store.attempts.add(one, nodes)
        assert store.attempts.get("a1") == one
        assert store.attempts.nodes("a1") == (nodes[1], nodes[0])
        assert store.attempts.get("a2") is None
        assert store.attempts.nodes("a2") == ()

    def test_an_attempt_is_added_once(self, store: StateStore) -> None:
        store.attempts.add(attempt(), [node()])
        with pytest.raises(ExistsError, match="a1"):
            store.attempts.add(attempt(job="other"), [node(rank=5)])
        assert store.attempts.get("a1") == attempt()
        assert store.attempts.nodes("a1") == (node(),)

    @pytest.mark.parametrize("nodes", [[node("other")], [node(rank=1), node(rank=1)]])
    def test_machines_that_cannot_be_its_own(self, store: StateStore, nodes: list) -> None:  # type: ignore[type-arg]
        with pytest.raises(ValueError, match="a1"):
            store.attempts.add(attempt(), nodes)
        assert store.attempts.find() == ()

    def test_a_time_in_another_zone_is_the_same_moment(self, store: StateStore) -> None:
        there = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
        store.attempts.add(attempt(created_at=there), [])
        found = store.attempts.get("a1")
        assert found is not None
        assert found.created_at == NOW
        assert found.created_at.utcoffset() == timedelta(0)

    def test_a_time_without_a_zone_is_refused(self, store: StateStore) -> None:
        with pytest.raises(ValueError, match="no time zone"):
            store.attempts.add(attempt(created_at=datetime(2026, 11, 21)), [])  # noqa: DTZ001  what is refused
        assert store.attempts.find() == ()

    def test_money_that_does_not_fit_is_refused(self, store: StateStore) -> None:
        with pytest.raises(ValueError, match="nine billion"):
            store.attempts.add(attempt(at_risk_usd=Usd(1 << 63)), [])
        with pytest.raises(TypeError, match="no UsdPerHour"):
            store.attempts.add(attempt(usd_per_hour=Usd(1)), [])
        store.attempts.add(attempt(at_risk_usd=Usd((1 << 63) - 1), usd_per_hour=UsdPerHour(0)), [])

    def test_what_a_crashing_program_printed_is_kept_readably(self, store: StateStore) -> None:
        store.attempts.add(attempt(), [node()])
        changed = store.attempts.change(attempt(), message="before\0after \ud800 ok")
        assert changed.message == "before\ufffdafter \ufffd ok"
        assert store.attempts.get("a1") == changed

    def test_found_by_plan_job_gang_and_whether_they_live(self, store: StateStore) -> None:
        rows = [
            attempt("c", plan="p1", created_at=NOW),
            attempt("b", plan="p1", job="bert", created_at=NOW + HOUR),
            attempt("a", plan="p2", gang="g1", created_at=NOW + HOUR, phase=Phase.FINISHED),
        ]
        for row in rows:
            store.attempts.add(row, [])
        assert [a.id for a in store.attempts.find()] == ["c", "a", "b"]
        assert [a.id for a in store.attempts.find(plan="p1")] == ["c", "b"]
        assert [a.id for a in store.attempts.find(job="bert")] == ["b"]
        assert [a.id for a in store.attempts.find(gang="g1")] == ["a"]
        assert [a.id for a in store.attempts.find(alive=True)] == ["c", "b"]
        assert store.attempts.find(plan="p2", alive=True) == ()

    @pytest.mark.parametrize("phase", Phase)
    def test_over_is_what_the_phase_says(self, store: StateStore, phase: Phase) -> None:
        store.attempts.add(attempt(phase=phase), [])
        assert bool(store.attempts.find(alive=True)) is not phase.is_over

    def test_versions_of_those_that_live(self, store: StateStore) -> None:
        for name in ("a1", "a2", "a3"):
            store.attempts.add(attempt(name), [])
        store.attempts.change(attempt("a2"), phase=Phase.RUNNING)
        store.attempts.change(attempt("a3"), phase=Phase.FAILED)
        assert store.attempts.versions() == {"a1": 1, "a2": 2}

    def test_a_change_needs_the_latest_version(self, store: StateStore) -> None:
        store.attempts.add(attempt(), [])
        first = store.attempts.change(attempt(), phase=Phase.PROVISIONING, made_at=NOW)
        assert first == attempt(phase=Phase.PROVISIONING, made_at=NOW, version=2)
        with pytest.raises(ConcurrentChangeError):
            store.attempts.change(attempt(), phase=Phase.FAILED)
        assert store.attempts.change(first, made_at=None) == attempt(phase=Phase.PROVISIONING, version=3)

    @pytest.mark.parametrize("name", ["id", "version", "colour"])
    def test_what_cannot_be_changed(self, store: StateStore, name: str) -> None:
        store.attempts.add(attempt(), [])
        with pytest.raises(TypeError, match=name):
            store.attempts.change(attempt(), **{name: "x"})

    def test_what_is_not_there(self, store: StateStore) -> None:
        with pytest.raises(MissingError, match="a9"):
            store.attempts.change(attempt("a9"), message="x")
        with pytest.raises(MissingError, match="a9"):
            store.attempts.update("a9", lambda a: a)
        with pytest.raises(MissingError, match="rank 3"):
            store.attempts.set_node("a9", 3, agent="running")

    def test_updates_of_many_threads_all_count(self, store: StateStore) -> None:
        store.attempts.add(attempt(number=0), [])

        def count(_index: int) -> None:
            for _ in range(10):
                store.attempts.update("a1", lambda a: dataclasses.replace(a, number=a.number + 1))

        together(4, count)
        found = store.attempts.get("a1")
        assert found is not None
        assert (found.number, found.version) == (40, 41)

    def test_an_update_may_leave_it(self, store: StateStore) -> None:
        store.attempts.add(attempt(), [])
        assert store.attempts.update("a1", lambda _: None) == attempt()
        assert store.attempts.update("a1", lambda a: a) == attempt()

        def rename(before: Attempt) -> Attempt:
            return dataclasses.replace(before, id="other")

        with pytest.raises(TypeError, match="id"):
            store.attempts.update("a1", rename)

    def test_a_machine_is_changed_alone(self, store: StateStore) -> None:
        store.attempts.add(attempt(), [node(), node(rank=1)])
        store.attempts.set_node("a1", 1, agent="running", heard_at=NOW, exit_code=0, zone="us-east-1a")
        store.attempts.set_node("a1", 1)
        changed = node(rank=1, agent="running", heard_at=NOW, exit_code=0, zone="us-east-1a")
        assert store.attempts.nodes("a1") == (node(), changed)
        with pytest.raises(TypeError, match="attempt"):
            store.attempts.set_node("a1", 1, attempt="a2")
        with pytest.raises(TypeError, match="colour"):
            store.attempts.set_node("a1", 1, colour="red")

    def test_many_machines_are_changed_at_once_or_none(self, store: StateStore) -> None:
        store.attempts.add(attempt(), [node(rank=rank) for rank in range(3)])
        later = NOW + HOUR
        store.attempts.set_nodes(
            {("a1", 0): {"heard_at": NOW}, ("a1", 1): {"heard_at": later}, ("a1", 2): {"exit_code": 1}}
        )
        changed = (node(heard_at=NOW), node(rank=1, heard_at=later), node(rank=2, exit_code=1))
        assert store.attempts.nodes("a1") == changed
        store.attempts.set_nodes({})
        store.attempts.set_nodes({("a1", 0): {}})
        for bad in ("a1", 7), ("a9", 0):
            with pytest.raises(MissingError, match=f"rank {bad[1]} of attempt {bad[0]}"):
                store.attempts.set_nodes(
                    {("a1", 1): {"heard_at": NOW}, bad: {"heard_at": NOW}, ("a1", 2): {"exit_code": 2}}
                )
        assert store.attempts.nodes("a1") == changed


class TestNotes:
    """Facts, plans, jobs, the journal, shortages, the identity."""

    def test_the_identity_is_made_once(self, store: StateStore, url: str, new_url: NewUrl) -> None:
        assert len(store.id) == 11
        assert store.id[0] == "s"
        assert int(store.id[1:], 16) >= 0
        with StateStore.open(url, now=NOW + HOUR) as again, StateStore.open(new_url(), now=NOW) as other:
            assert again.id == store.id
            assert other.id != store.id
        with pytest.raises(ValueError, match="never changes"):
            store.values.set("id", "s0000000000")

    def test_facts(self, store: StateStore) -> None:
        assert store.values.get("coordinator_port") is None
        store.values.set("coordinator_port", "8443")
        store.values.set("coordinator_port", "8444")
        assert store.values.get("coordinator_port") == "8444"

    def test_plans_stay_and_jobs_are_replaced(self, store: StateStore) -> None:
        store.plans.put_plan("d1", '{"lines": []}', NOW)
        store.plans.put_plan("d1", "another text", NOW + HOUR)
        assert store.plans.plan("d1") == '{"lines": []}'
        assert store.plans.plan("d2") is None
        store.plans.put_jobs({"j1": '{"env": {"A": "1"}}', "j2": "{}"}, NOW)
        store.plans.put_jobs({"j1": '{"env": {"A": "2"}}'}, NOW)
        store.plans.put_jobs({}, NOW)
        assert (store.plans.job("j1"), store.plans.job("j2"), store.plans.job("j3")) == (
            '{"env": {"A": "2"}}',
            "{}",
            None,
        )

    def test_the_journal_keeps_the_order(self, store: StateStore) -> None:
        store.journal.note(
            "a1", "applying", NOW, machines=4, where={"zones": ["a", None]}, odd="\0 \ud800 ☃", price=1.5
        )
        store.journal.note("a2", "applying", NOW)
        store.journal.note("a1", "applied", NOW - HOUR)
        details = {"machines": 4, "where": {"zones": ["a", None]}, "odd": "\0 \ud800 ☃", "price": 1.5}
        first = JournalEntry(1, NOW, "a1", "applying", details)
        second, third = JournalEntry(2, NOW, "a2", "applying"), JournalEntry(3, NOW - HOUR, "a1", "applied")
        assert store.journal.entries() == (first, second, third)
        assert store.journal.entries("a1") == (first, third)
        assert store.journal.entries("a3") == ()

    def test_the_journal_is_asked_for_some(self, store: StateStore) -> None:
        odd = 'c_1%"é'
        for what, details in (
            ("saved", {"id": odd}),
            ("saved", {"id": ""}),
            ("not_saved", {"id": odd}),
            ("saved", {"id": "c-2", "manifest": odd}),
            ("saved", {"id": odd + "x"}),
        ):
            store.journal.note("a1", what, NOW, **details)
        store.journal.note("a2", "saved", NOW, id=odd)
        assert [e.seq for e in store.journal.entries("a1", what=("saved",))] == [1, 2, 4, 5]
        assert [e.seq for e in store.journal.entries("a1", what=("saved", "not_saved"), id_=odd)] == [1, 3]
        assert [e.seq for e in store.journal.entries(id_=odd)] == [1, 3, 6]
        assert [e.seq for e in store.journal.entries("a1", id_="")] == [2]
        assert store.journal.entries("a1", what=()) == ()

    @pytest.mark.parametrize("bad", [Usd(1), {1, 2}, b"x", float("nan")])
    def test_details_are_json_data(self, store: StateStore, bad: object) -> None:
        with pytest.raises((TypeError, ValueError)):
            store.journal.note("a1", "applying", NOW, bad=bad)
        with pytest.raises((TypeError, ValueError)):
            store.audit.add("anna", "apply", "d", Usd(1), NOW, bad=bad)
        assert store.journal.entries() == ()
        assert store.audit.entries() == ()

    def test_notes_of_many_threads_have_no_gaps(self, store: StateStore) -> None:

        def write(index: int) -> None:
            for k in range(10):
                store.journal.note(f"a{index}", "x", NOW, k=k)

        together(4, write)
        assert [note.seq for note in store.journal.entries()] == list(range(1, 41))
        assert [note.details["k"] for note in store.journal.entries("a2")] == list(range(10))

    def test_shortages_pass(self, store: StateStore) -> None:
        store.shortages.remember(shortage(hours=1))
        store.shortages.remember(shortage("us-east-1a", hours=3))
        assert store.shortages.in_force(NOW) == (shortage(hours=1), shortage("us-east-1a", hours=3))
        assert store.shortages.in_force(NOW + HOUR) == (shortage("us-east-1a", hours=3),)
        assert store.shortages.found_since(NOW) == (shortage(hours=1), shortage("us-east-1a", hours=3))
        later = shortage("us-east-1b", at=NOW + 26 * HOUR)
        store.shortages.remember(later)
        # What is over for more than a day is forgotten.
        assert store.shortages.found_since(NOW) == (shortage("us-east-1a", hours=3), later)
        assert store.shortages.found_since(NOW + HOUR) == (later,)

    def test_the_newest_attempt_of_a_job_that_failed_is_found(self, store: StateStore) -> None:
        gone = {"phase": Phase.FAILED, "gone_at": NOW + HOUR}
        for one in (
            attempt("first", number=1, **gone),
            attempt("second", number=2, **gone),
            attempt("other", job="other", **gone),
            attempt("fine", job="fine", phase=Phase.FINISHED, gone_at=NOW),
            attempt("before", job="up", number=1, **gone),
            attempt("up", job="up", number=2, phase=Phase.RUNNING),
            attempt("old", job="old", phase=Phase.FAILED, gone_at=NOW - HOUR),
        ):
            store.attempts.add(one, [])
        assert [one.id for one in store.attempts.ended_last(NOW)] == ["other", "second"]
        assert [one.id for one in store.attempts.ended_last(NOW - HOUR)] == ["old", "other", "second"]

    def test_the_newest_of_an_order_is_by_number_though_the_clock_was_set_back(self, store: StateStore) -> None:
        gone = {"phase": Phase.FAILED, "gone_at": NOW + HOUR}
        store.attempts.add(attempt("first", number=1, created_at=NOW + HOUR, **gone), [])
        store.attempts.add(attempt("second", number=2, created_at=NOW, **gone), [])
        assert [one.id for one in store.attempts.ended_last(NOW)] == ["second"]
        # Of two orders it is the one that was made later.
        store.attempts.add(attempt("third", plan="p2", number=1, created_at=NOW + 2 * HOUR, **gone), [])
        assert [one.id for one in store.attempts.ended_last(NOW)] == ["third"]

    def test_what_runs_and_the_newest_of_each_job_of_a_team_are_current(self, store: StateStore) -> None:
        over = {"phase": Phase.FINISHED, "gone_at": NOW + HOUR}
        for one in (
            attempt("runs", phase=Phase.RUNNING),
            attempt("over", created_at=NOW + HOUR, **over),
            attempt("between", created_at=NOW + HOUR / 2, **over),
            attempt("theirs", team="vision", **over),
            attempt("b-same-time", job="b", created_at=NOW + 2 * HOUR, **over),
            attempt("a-same-time", job="b", created_at=NOW + 2 * HOUR, **over),
        ):
            store.attempts.add(one, [])
        assert [one.id for one in store.overview.current()[0]] == ["runs", "theirs", "over", "b-same-time"]

    def test_attempts_are_found_by_any_of_their_names(self, store: StateStore) -> None:
        digest = "0123456789abcdef" * 4
        for one in (attempt("one", plan=digest), attempt("two", job="two-job"), attempt("three", job="one")):
            store.attempts.add(one, [])

        def found(*names: str) -> list[str]:
            return [one.id for one in store.attempts.named(names)]

        assert found("one") == ["one", "three"]
        assert found("two-job", digest[:12]) == ["one", "two"]
        assert found(digest) == ["one"]
        assert found(digest[:11]) == found("a\0b", "\udcff") == found() == []

    def test_a_closed_state_says_so(self, url: str) -> None:
        store = StateStore.open(url, now=NOW)
        store.close()
        store.close()
        with pytest.raises(StateError, match="closed"):
            store.journal.entries()


FIRST = NoticeRecord("a1", 0, "terminate-1", "interruption", "aws", 117.25, "the machine will be told to go", NOW)


class TestNotices:
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
