"""What a service says, for a person and for a program."""

from __future__ import annotations

import io
import json
import logging
from datetime import datetime
from typing import Any

import pytest

from router.cli.watch import open_service_log
from router.controller.history.events import EventLevel, GangEvent
from router.deploy.notify_settings import EventKind
from tests.support.state_values import NOW

EVENT = GangEvent("llama-0123456789", "llama", EventKind.LATE, EventLevel.WARNING, "llama (llama-0123456789) is late")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The objects, without their times, each of which is one in UTC."""
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert all(datetime.fromisoformat(one.pop("at")).utcoffset() is not None for one in found)
    return found


def test_an_object_a_line() -> None:
    stream = io.StringIO()
    with open_service_log("json", lambda: NOW, stream) as log:
        log.tell("llama", "llama-0123456789 runs on 2 machines")
        log.tell("llama", "line 1\nline 2 \u00fc % s")
        log.event(EVENT)
        log.note("the state cannot be used", "error")
    nothing = {"job": "", "attempt": "", "event": ""}
    named = {"job": "llama", "attempt": "llama-0123456789"}
    assert lines(stream) == [
        {**nothing, **named, "level": "info", "text": "llama-0123456789 runs on 2 machines"},
        {**nothing, "level": "info", "job": "llama", "text": "line 1\nline 2 \u00fc % s"},
        {**named, "level": "warning", "event": "late", "text": EVENT.text},
        {**nothing, "level": "error", "text": "the state cannot be used"},
    ]


@pytest.mark.parametrize(
    ("text", "attempt"),
    [
        ("releasing my-job-0a1b2c3d4e, which was interrupted", "my-job-0a1b2c3d4e"),
        ("my-job-0a1b2c3d4e: rank 1 was lost", "my-job-0a1b2c3d4e"),
        ("making p5 in us-east-1 as my-job-0a1b2c3d4e", "my-job-0a1b2c3d4e"),
        ("waits for a place: aws us-east-1 is short", ""),
        ("the log is in /x/my-job-0a1b2c3d4e/rank-0.log", ""),
    ],
)
def test_the_attempt_is_found_in_what_is_said(text: str, attempt: str) -> None:
    stream = io.StringIO()
    with open_service_log("json", lambda: NOW, stream) as log:
        log.tell("my-job", text)
    assert lines(stream)[0]["attempt"] == attempt


def test_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    with open_service_log("text", lambda: NOW) as log:
        log.tell("llama", "runs")
        log.event(EVENT)
        log.note("listening")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "18:00:00 llama: runs\nlistening\n")


def test_warnings_of_the_program_are_lines_too_and_only_meanwhile() -> None:
    stream = io.StringIO()
    own = logging.getLogger("router.coordinator.handlers")
    with open_service_log("json", lambda: NOW, stream):
        own.warning("%s: %s", "heartbeat", "locked")
        own.info("nothing")
    own.warning("later")
    (line,) = lines(stream)
    assert (line["level"], line["text"], line["logger"]) == ("warning", "heartbeat: locked", own.name)
    assert logging.getLogger("stepfare").handlers == logging.getLogger("router").handlers == []
    assert logging.getLogger("router").propagate
