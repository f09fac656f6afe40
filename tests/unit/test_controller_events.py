"""What people are told of a gang's life."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd
from router.controller.history.events import EventLevel, GangEvent, find_events, render_message
from router.controller.history.lifecycle import GAVE_UP
from router.deploy.notify_settings import EventKind
from router.state.records import JournalEntry, NoticeRecord, Phase
from tests.support.state_values import HOUR, NOW, attempt, node


def told(*attempts: Any, now: Any = NOW, **more: Any) -> dict[EventKind, str]:
    """What is said of one or more attempts, by what it is."""
    parts: dict[str, Any] = {"nodes": {}, "notices": (), "notes": (), **more}
    events = find_events(attempts, parts["nodes"], parts["notices"], parts["notes"], now)
    return {event.what: event.text.partition(") ")[2] for event in events}


def notice(kind: str = "interruption", seconds: float | None = 112.4, name: str = "a1") -> NoticeRecord:
    return NoticeRecord(name, 1, "n", kind, "aws", seconds, "2 bad rows", NOW)


RUNNING: dict[str, Any] = {"phase": Phase.RUNNING, "met_at": NOW}


@pytest.mark.parametrize("phase", Phase)
def test_a_gang_that_does_well_is_no_news(phase: Phase) -> None:
    reason = "finished" if phase in (Phase.RELEASING, Phase.FINISHED) else "short" if phase is Phase.FAILED else ""
    assert told(attempt(phase=phase, reason=reason)) == {}


def test_a_machine_that_is_taken_back() -> None:
    text = "is interrupted in aws us-east-1: the machine of rank 1 is preempted in 112 s"
    assert told(attempt(**RUNNING), notices=[notice()]) == {EventKind.INTERRUPTED: text}
    assert told(attempt(**RUNNING), notices=[notice(seconds=None)]) == {
        EventKind.INTERRUPTED: text[: -len(" in 112 s")]
    }
    assert told(attempt(**RUNNING), notices=[notice("rebalance"), notice(name="a2")]) == {}


@pytest.mark.parametrize("reason", ["interrupted", "lost"])
@pytest.mark.parametrize("phase", [Phase.RELEASING, Phase.FAILED])
def test_one_that_was_lost_without_a_word(reason: str, phase: Phase) -> None:
    said = told(attempt(phase=phase, reason=reason, message="rank 1 was lost"))
    assert said == {EventKind.INTERRUPTED: "was interrupted in aws us-east-1: rank 1 was lost"}


def test_where_it_goes_on() -> None:
    before = attempt(phase=Phase.FAILED, reason="moved", last_step=130, kept_step=120)
    after = attempt("a2", **RUNNING, resumes="a1", first_step=120, region="us-west-2")
    price = f"at {after.usd_per_hour} USD an hour"
    assert told(after) == {EventKind.MOVED: f"resumed in aws us-west-2 after step 120, {price}"}
    assert told(before, after)[EventKind.MOVED].endswith(f"{price}; 10 steps were lost")
    assert told(attempt("a2", phase=Phase.READY, resumes="a1")) == {}


def test_a_training_that_failed() -> None:
    said = told(attempt(phase=Phase.RELEASING, reason="failed", message="rank 0 crashed with exit code 7"))
    assert said == {EventKind.FAILED: "failed: rank 0 crashed with exit code 7; see `stepfare logs llama`"}
    assert set(told(attempt(phase=Phase.FAILED, reason="credentials"))) == {EventKind.FAILED}


def test_a_job_that_is_given_up() -> None:
    short = attempt(phase=Phase.FAILED, reason="short")
    note = JournalEntry(7, NOW, "a1", GAVE_UP, {"why": "nothing is left before the deadline"})
    text = "is given up: nothing is left before the deadline; see `stepfare status`"
    assert told(short, notes=[note]) == {EventKind.FAILED: text}


def test_unhealthy_machines() -> None:
    said = told(attempt(**RUNNING), notices=[notice("health", None)])
    assert said == {EventKind.UNHEALTHY: "has an unhealthy machine, rank 1 in aws us-east-1: 2 bad rows"}
    left = told(attempt(phase=Phase.FAILED, reason="unhealthy", message="rank 0 never called"))
    assert left == {EventKind.UNHEALTHY: "left unhealthy machines in aws us-east-1: rank 0 never called"}


def test_past_its_planned_end() -> None:
    one = attempt(**RUNNING)
    assert told(one, now=one.end) == {}
    assert set(told(one, now=one.end + timedelta(seconds=1))) == {EventKind.LATE}
    assert told(attempt(phase=Phase.RELEASING, reason="finished"), now=one.end + HOUR) == {}


def test_near_what_was_agreed_to() -> None:
    nodes = {"a1": [node(rank=rank, made_at=NOW) for rank in (0, 1)]}
    one = attempt(**RUNNING, at_risk_usd=Usd.parse("110.08"))
    assert told(one, nodes=nodes, now=NOW + HOUR) == {}
    said = told(one, nodes=nodes, now=NOW + 2 * HOUR)
    assert said == {EventKind.BUDGET: "has cost 110.08 USD of the 110.08 USD that were agreed to"}
    assert told(attempt(**RUNNING, at_risk_usd=Usd(0)), nodes=nodes, now=NOW + HOUR) == {}


def event(number: int, level: EventLevel = EventLevel.INFO, job: str = "llama") -> GangEvent:
    return GangEvent(f"a{number}", job, EventKind.MOVED, level, f"{job} (a{number}) moved")


def test_one_event_is_a_message_of_its_own() -> None:
    assert render_message([event(1)], 5) == ("stepfare: llama: moved", "llama (a1) moved", EventLevel.INFO)


def test_many_events_are_one_message_worst_first() -> None:
    events = [*(event(i) for i in range(30)), event(99, EventLevel.ERROR, "bert")]
    title, text, level = render_message(events, 5)
    lines = text.splitlines()
    assert (title, level, len(lines)) == ("stepfare: 31 events", EventLevel.ERROR, 6)
    assert lines[0] == "- bert (a99) moved"
    assert lines[-1] == "- and 26 more; see `stepfare status`"


@given(st.lists(st.sampled_from(EventLevel), min_size=1, max_size=40), st.integers(1, 30))
def test_a_message_names_no_more_than_it_may(levels: list[EventLevel], most: int) -> None:
    title, text, level = render_message([event(i, one) for i, one in enumerate(levels)], most)
    assert len(text.splitlines()) <= most + 1
    assert level in levels
    assert "\n" not in title
