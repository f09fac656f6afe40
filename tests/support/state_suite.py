"""Tests that every database passes.

A test module has a fixture `new_url` (of the module: gives the URL of a database that does not exist yet) and derives
its test classes from these.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest

from pricing.money import Usd, UsdPerHour
from router.state.errors import ConcurrentChangeError, ExistsError, MissingError, StateError
from router.state.records import Attempt, JournalEntry, Phase
from router.state.store import StateStore
from tests.support.state_values import HOUR, NOW, attempt, node, shortage

NewUrl = Callable[[], str]


class StateSuite:
    """A new state for every test."""

    @pytest.fixture
    def url(self, new_url: NewUrl) -> str:
        return new_url()

    @pytest.fixture
    def store(self, url: str) -> Iterator[StateStore]:
        with StateStore.open(url, now=NOW) as store:
            yield store


def together(count: int, work: Callable[[int], object]) -> None:
    """Runs `work(0)`, `work(1)` ... at once; raises what the first of them raised."""
    gate = threading.Barrier(count)
    failures: list[BaseException] = []

    def run(index: int) -> None:
        gate.wait()
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class AttemptsSuite(StateSuite):
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


class NotesSuite(StateSuite):
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
