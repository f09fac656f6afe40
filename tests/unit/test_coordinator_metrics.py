"""What a Prometheus server reads: written out, read back by the library's own parser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pricing.places import Market
from router.coordinator.metrics import FRESH_SECONDS, MAX_NAMED_JOBS, OTHER_JOBS, SILENT_SECONDS, Metrics, StateCounters
from router.ledger.entry import CostItem, LedgerEntryKind, MachineUse
from router.state.records import NodeRecord, NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW, attempt, entry, node

SECOND = timedelta(seconds=1)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped:
    """A state, and what is read of it at moments of a clock that the test moves."""

    def __init__(self, store: StateStore) -> None:
        self.store, self.seconds = store, 0.0
        self.metrics = self.fresh()

    def fresh(self) -> Metrics:
        """As after a restart."""
        return Metrics(
            self.store,
            lambda: NOW + self.seconds * SECOND,
            lambda: NOW + self.seconds * SECOND,
            version="1.2",
            ticks=lambda: self.seconds,
        )

    def samples(self, *, after: float = FRESH_SECONDS) -> Samples:
        """All samples so many seconds later."""
        self.seconds += after
        return read(self.metrics.text().decode())

    def gang(self, name: str, machines: int = 2, **changes: Any) -> None:
        """An attempt whose machines exist and train."""
        made = attempt(name, **{"phase": Phase.RUNNING, "machines": machines, "met_at": NOW, **changes})
        up: dict[str, Any] = {"made_at": NOW, "agent": "running", "heard_at": NOW}
        self.store.attempts.add(made, [node(name, rank, **up) for rank in range(machines)])

    def notice(self, name: str, rank: int, id_: str, seconds: float, kind: str = "interruption") -> None:
        """An announcement, heard so many seconds after the start."""
        heard_at = NOW + seconds * SECOND
        self.store.notices.add(NoticeRecord(name, rank, id_, kind, "aws", 120.0, "preempted", heard_at))

    def saved(self, name: str, id_: str, seconds: float, what: str = "saved") -> None:
        """A checkpoint for that order or announcement."""
        self.store.journal.note(name, what, NOW + seconds * SECOND, rank=0, id=id_)


def read(text: str) -> Samples:
    """By name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return f"stepfare_{name}", frozenset(labels.items())


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Scraped]:
    with open_state(tmp_path / "state.db", NOW) as store:
        yield Scraped(store)


def test_an_empty_state_has_every_name(state: Scraped) -> None:
    found = state.samples()
    assert found[key("info", version="1.2")] == 1
    assert found[key("attempts", phase="running")] == 0
    assert found[key("notices_total", kind="interruption")] == 0
    assert found[key("notice_to_checkpoint_seconds_count", kind="rebalance")] == 0
    assert found[key("wasted_usd_total", kind="restart_lost_work")] == 0
    assert found[key("nodes")] == found[key("orders_open")] == found[key("checkpoints_failed_total")] == 0


def test_attempts_by_phase_and_reason(state: Scraped) -> None:
    state.gang("a1")
    state.gang("a2", phase=Phase.PROVISIONING)
    for name, reason in (("a3", "short"), ("a4", "short"), ("a5", "interrupted")):
        state.store.attempts.add(attempt(name, phase=Phase.FAILED, reason=reason), [])
    found = state.samples()
    assert (found[key("attempts", phase="running")], found[key("attempts", phase="provisioning")]) == (1, 1)
    assert found[key("attempts_over", reason="short")] == 2
    assert found[key("attempts_over", reason="interrupted")] == 1
    assert found[key("gangs_late")] == 0
    assert state.samples(after=6 * 3600)[key("gangs_late")] == 2


def test_machines_and_what_they_cost(state: Scraped) -> None:
    state.gang("a1", machines=3)
    state.store.attempts.set_node("a1", 1, agent="waiting")
    state.store.attempts.set_node("a1", 2, gone_at=NOW)
    state.gang("a2", cloud="gcp", result="finished")
    found = state.samples()
    assert found[key("nodes")] == 4
    assert (found[key("accelerators", cloud="aws")], found[key("idle_accelerators", cloud="aws")]) == (16, 8)
    assert (found[key("accelerators", cloud="gcp")], found[key("idle_accelerators", cloud="gcp")]) == (16, 16)
    assert found[key("spending_usd_per_hour", cloud="aws")] == pytest.approx(55.04)


def test_who_is_silent_is_judged_by_this_machines_counter(state: Scraped) -> None:
    state.gang("a1")
    assert state.samples()[key("nodes_silent")] == 0
    state.store.attempts.set_node("a1", 0, heard_at=NOW + HOUR)
    assert state.samples(after=SILENT_SECONDS)[key("nodes_silent")] == 1
    state.store.attempts.set_node("a1", 1, heard_at=NOW + HOUR)
    assert state.samples()[key("nodes_silent")] == 0
    state.store.attempts.set_node("a1", 1, agent="ended")
    assert state.samples(after=SILENT_SECONDS)[key("nodes_silent")] == 1


def test_from_an_announcement_to_its_first_checkpoint(state: Scraped) -> None:
    state.gang("a1")
    state.notice("a1", 0, "n-1", 10)
    state.samples()
    state.saved("a1", "n-1", 13)
    state.saved("a1", "n-1", 19)
    state.saved("a1", "", 14)
    found = state.samples()
    kind = {"kind": "interruption"}
    assert found[key("notice_to_checkpoint_seconds_count", **kind)] == 1
    assert found[key("notice_to_checkpoint_seconds_sum", **kind)] == 3
    assert found[key("notice_to_checkpoint_seconds_bucket", **kind, le="2.0")] == 0
    assert found[key("notice_to_checkpoint_seconds_bucket", **kind, le="3.5")] == 1
    state.notice("a1", 1, "n-1", 11)
    found = state.samples()
    assert (found[key("notices_total", **kind)], found[key("notice_to_checkpoint_seconds_count", **kind)]) == (2, 1)


def test_a_checkpoint_that_is_told_before_its_announcement_took_no_time(state: Scraped) -> None:
    state.gang("a1")
    state.saved("a1", "n-1", 5)
    state.samples()
    state.notice("a1", 0, "n-1", 8, kind="rebalance")
    found = state.samples()
    assert found[key("notice_to_checkpoint_seconds_count", kind="rebalance")] == 1
    assert found[key("notice_to_checkpoint_seconds_sum", kind="rebalance")] == 0


def test_a_restart_counts_the_same(state: Scraped) -> None:
    state.gang("a1")
    for number in range(5):
        state.notice("a1", 0, f"n-{number}", 700 * number)
        state.saved("a1", f"n-{number}", 700 * number + number, "not_saved" if number == 3 else "saved")
        state.samples()
    state.store.ledger.add([entry(lost_steps=3)])
    before = state.samples()
    state.metrics = state.fresh()
    assert state.samples() == before
    assert before[key("notices_total", kind="interruption")] == 5
    assert before[key("checkpoints_failed_total")] == 1


def test_orders_are_open_until_somebody_saved(state: Scraped) -> None:
    order: dict[str, Any] = {"order_id": "o-1", "order_seconds": 30.0, "ordered_at": NOW, "phase": Phase.CHECKPOINTING}
    state.gang("a1", **order)
    state.gang("a2", **{**order, "phase": Phase.RELEASING})
    found = state.samples()
    assert (found[key("orders_open")], found[key("orders_overdue")]) == (1, 0)
    assert state.samples(after=30)[key("orders_overdue")] == 1
    state.saved("a1", "o-1", 40)
    found = state.samples()
    assert (found[key("orders_open")], found[key("orders_overdue")]) == (0, 0)


def test_lost_steps_by_job_for_a_bounded_number_of_jobs(state: Scraped) -> None:
    state.store.ledger.add([entry(f"k{i}", job=f"job-{i}", lost_steps=2) for i in range(MAX_NAMED_JOBS + 5)])
    state.store.ledger.add([entry("again", job="job-0", lost_steps=1), entry("none", job="new", steps=5)])
    found = state.samples()
    jobs = [labels for name, labels in found if name == "stepfare_lost_steps_total"]
    assert len(jobs) == MAX_NAMED_JOBS + 1
    assert found[key("lost_steps_total", job="job-0")] == 3
    assert found[key("lost_steps_total", job=OTHER_JOBS)] == 10


def test_money_metered_and_wasted(state: Scraped) -> None:
    state.store.ledger.add(
        [
            entry("m1"),
            entry("m2", use=MachineUse.WORK),
            entry("m3", use=MachineUse.STARTUP),
            entry("p", kind=LedgerEntryKind.PLANNED, attempt="", rank=None),
            entry("e", what=CostItem.EGRESS, rank=None, market=None, machines=0),
        ]
    )
    state.samples()
    state.store.ledger.add(
        [
            entry("m4", rank=1, market=Market.ON_DEMAND, use=MachineUse.STARTUP),
            entry("m5", use=MachineUse.RESTART_LOST_WORK),
        ]
    )
    found = state.samples()
    assert found[key("metered_usd_total", cloud="aws", market="spot")] == pytest.approx(4 * 27.52)
    assert found[key("metered_usd_total", cloud="aws", market="on_demand")] == pytest.approx(27.52)
    wasted = {use: found[key("wasted_usd_total", kind=use.value)] for use in MachineUse if use.is_waste}
    assert wasted.pop(MachineUse.STARTUP) == pytest.approx(2 * 27.52)
    assert wasted.pop(MachineUse.RESTART_LOST_WORK) == pytest.approx(27.52)
    assert set(wasted.values()) == {0}


def test_what_is_remembered_of_announcements_is_bounded(state: Scraped) -> None:
    tallies = StateCounters(state.store)
    state.gang("a1")
    for number in range(40):
        state.notice("a1", 0, f"n-{number}", 100.0 * number)
    tallies.look()
    assert len(tallies._seen) < 10
    tallies.look()
    assert tallies.totals.notices["interruption"] == 40


def test_scrapes_at_once_read_the_state_once(state: Scraped, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    alive = state.store.overview.alive

    def counted() -> Any:
        looks.append(1)
        return alive()

    monkeypatch.setattr(state.store.overview, "alive", counted)
    threads = [threading.Thread(target=state.metrics.text) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(looks) == 1


def test_who_may_see_it(state: Scraped) -> None:
    closed = state.metrics
    assert closed.admits("", is_local=True)
    assert not closed.admits("", is_local=False)
    assert not closed.admits("Bearer ", is_local=False)
    opened = Metrics(state.store, lambda: NOW, lambda: NOW, token="secret-1")
    assert opened.admits("Bearer secret-1", is_local=False)
    for wrong in ("", "secret-1", "Bearer", "Bearer secret-2", "Bearer secret-\xe9", "Basic secret-1"):
        assert not opened.admits(wrong, is_local=False)


def test_nothing_that_names_a_machine_or_a_secret_is_shown(state: Scraped) -> None:
    state.gang("a1")
    where: dict[str, Any] = {"machine_id": "i-canary", "address": "203.0.113.9", "agent_address": "10.9.8.7"}
    state.store.attempts.set_node("a1", 0, **where, ended_message="canary")
    state.store.attempts.update(
        "a1", lambda one: replace(one, message="canary", token_hash="canary", order_id="canary")
    )
    text = state.metrics.text().decode()
    assert not [word for word in ("canary", "203.0.113.9", "10.9.8.7") if word in text]
    assert NodeRecord.__name__ not in text
