"""The output of a rank in its file: each byte once, whatever comes twice, late, or not at all."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import os
import stat
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.cli.watch import open_service_log
from router.controller.history.events import EventLevel, GangEvent
from router.coordinator import bodies, messages
from router.coordinator.bodies import BodyMemory
from router.coordinator.handlers import log_path, write_log
from router.coordinator.messages import InvalidBodyError, parse_body
from router.deploy.notify_settings import EventKind
from router.state.errors import BusyError
from tests.support.coordinations import ATTEMPT, TOKEN, Scene, agent_body, scene
from tests.support.state_values import NOW

TAKEN: tuple[int, dict[str, Any]] = (200, {})


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, 1) as made:
        yield made


def _send(gang: Scene, offset: int, text: str) -> tuple[int, dict[str, Any]]:
    return gang.say(0, "logs", offset=offset, bytes=len(text.encode()), text=text)


def test_pieces_follow_one_another_and_are_private(one: Scene) -> None:
    for _ in range(2):
        assert _send(one, 0, "step 1\n") == TAKEN
        assert _send(one, 7, "step 2\n") == TAKEN
    assert one.log(0) == "step 1\nstep 2\n"
    assert (one.records[0].log_offset, one.records[0].log_size) == (14, 14)
    path = log_path(one.folder / "logs", ATTEMPT, 0)
    assert path == one.folder / "logs" / ATTEMPT / "rank-0.log"
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_overlapping_pieces_are_cut(one: Scene) -> None:
    _send(one, 0, "0123456789")
    _send(one, 5, "56789abc")
    _send(one, 2, "2345")
    _send(one, 13, "")
    assert one.log(0) == "0123456789abc"


def test_a_gap_is_marked_on_a_line_of_its_own(one: Scene) -> None:
    _send(one, 100, "after\nhalf")
    _send(one, 200, "rest\n")
    _send(one, 110, "late")
    assert one.log(0) == (
        "[stepfare: 100 bytes of output did not arrive]\nafter\nhalf\n"
        "[stepfare: 90 bytes of output did not arrive]\nrest\n"
    )
    assert one.records[0].log_offset == 205


def test_bytes_that_are_not_text_count_as_they_were_sent(one: Scene) -> None:
    one.say(0, "logs", offset=0, bytes=3, text="\ufffda\ufffd")
    _send(one, 3, "b\n")
    assert one.log(0) == "\ufffda\ufffdb\n"
    assert one.records[0].log_offset == 5


def test_what_was_written_but_not_recorded_is_written_over(one: Scene) -> None:
    _send(one, 0, "first\n")
    with patch.object(one.store.attempts, "set_node", side_effect=BusyError("locked")):
        assert _send(one, 6, "second and more\n")[0] == 503
    assert one.log(0) == "first\nsecond and more\n"
    one.attendance = one.fresh()
    assert _send(one, 6, "second\n") == TAKEN
    assert one.log(0) == "first\nsecond\n"


def test_a_file_that_lost_its_end_says_so(one: Scene) -> None:
    _send(one, 0, "0123456789")
    os.truncate(log_path(one.folder / "logs", ATTEMPT, 0), 4)
    _send(one, 10, "abc")
    assert one.log(0) == "0123\n[stepfare: 6 bytes of this file were lost]\nabc"
    _send(one, 13, "d")
    assert one.log(0).endswith("abcd")


def test_a_full_disk_is_said_and_nothing_is_lost(one: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    _send(one, 0, "first\n")
    write = os.pwrite

    def half(descriptor: int, data: bytes, at: int) -> int:
        if at > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:4], at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half)
        for _ in range(2):
            assert _send(one, 6, "second\n") == (507, {})
    assert one.log(0) == "first\n"
    assert one.say(0, "heartbeat") == (200, {"order": "continue"})
    assert _send(one, 6, "second\n") == TAKEN
    assert one.log(0) == "first\nsecond\n"


def test_a_file_that_cannot_be_written(one: Scene) -> None:
    folder = one.folder / "logs" / ATTEMPT
    folder.mkdir(parents=True)
    (folder / "rank-0.log").mkdir()
    assert _send(one, 0, "a") == (507, {})
    (folder / "rank-0.log").rmdir()
    assert _send(one, 0, "a") == TAKEN


def test_a_link_is_not_followed(one: Scene) -> None:
    folder = one.folder / "logs" / ATTEMPT
    folder.mkdir(parents=True)
    (one.folder / "victim").write_text("mine")
    (folder / "rank-0.log").symlink_to(one.folder / "victim")
    assert _send(one, 0, "a") == (507, {})
    assert (one.folder / "victim").read_text() == "mine"


def test_the_token_is_masked_wherever_a_node_says_it(one: Scene) -> None:
    _send(one, 0, f"auth {TOKEN}\n")
    one.failed(0, message=f"bad {TOKEN}", last_lines=f"auth {TOKEN}")
    assert one.log(0) == "auth ***\n"
    assert one.records[0].ended_message == "bad ***\nauth ***"
    assert TOKEN not in str(one.store.journal.entries())


def test_the_last_lines_of_a_crash_are_kept_as_lines_that_can_be_shown(one: Scene) -> None:
    one.failed(0, message="", last_lines="cut\n" + "a" * 3_976 + "\nred \x1b[31m  \nKeyError\n")
    lines = one.records[0].ended_message.splitlines()
    assert lines == ["a" * 3_976, "red  [31m", "KeyError"]


def test_output_is_taken_after_the_end_too(one: Scene) -> None:
    one.say(0, "ended")
    assert _send(one, 0, "late\n") == TAKEN
    assert one.log(0) == "late\n"


def test_ranks_do_not_share_a_file(tmp_path: Path) -> None:
    with scene(tmp_path, 3) as gang:
        for rank in (0, 2):
            gang.say(rank, "logs", offset=0, bytes=1, text=str(rank))
        assert [gang.log(rank) for rank in range(3)] == ["0", "", "2"]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.booleans()), max_size=25))
def test_any_order_of_pieces_gives_each_byte_at_most_once(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[int, int, bool]]
) -> None:
    """Every byte of the output is another character, so that what came twice or in a wrong place would show."""
    output = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
    with scene(tmp_path_factory.mktemp("any"), 1) as gang:
        following = 0
        for offset, size, restart in sent:
            if restart:
                gang.attendance = gang.fresh()
            text = output[offset : offset + size]
            assert gang.say(0, "logs", offset=offset, bytes=len(text), text=text) == TAKEN
            following = max(following, offset + len(text))
        lines = gang.log(0)
        for line in lines.splitlines():
            assert line.startswith("[stepfare: ") or line in output
        shown = "".join(line for line in lines.splitlines() if not line.startswith("["))
        assert list(shown) == sorted(set(shown))
        assert gang.records[0].log_offset == following
        missing = sum(int(line.split()[1]) for line in lines.splitlines() if line.startswith("["))
        assert len(shown) + missing == following
        assert gang.records[0].log_size == len(lines)


def test_the_length_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a" / "rank-0.log"
    assert write_log(path, b"abc", size=0) == 3
    assert write_log(path, b"d", size=1, missing=2) == path.stat().st_size
    assert path.read_bytes() == b"a\n[stepfare: 2 bytes of output did not arrive]\nd"


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


HELLO = agent_body(0, "hello")
ENDED = agent_body(0, "ended", state="failed", reason="crashed", exit_code=1, signal=9)
MESSAGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "hello": (messages.HelloMessage, HELLO),
    "heartbeat": (messages.HeartbeatMessage, agent_body(0, "heartbeat")),
    "ended": (messages.EndedMessage, ENDED),
    "logs": (messages.LogPiece, agent_body(0, "logs")),
    "notice": (messages.NoticeMessage, agent_body(0, "notice")),
}
WRONG: tuple[Any, ...] = (
    True, [], {}, float("nan"), float("inf"), -(2**40), 10**400, "\ud800", "", "\n", "x" * 300
)  # fmt: skip
OPTIONAL = {("hello", "master_port"), ("ended", "exit_code"), ("ended", "signal"), ("notice", "seconds")}


@pytest.mark.parametrize("name", MESSAGES)
def test_every_key_is_needed_and_of_its_type(name: str) -> None:
    kind, whole = MESSAGES[name]
    read = partial(parse_body, kind)
    assert read(whole | {"unknown": [1]}) == read(whole)
    for key in whole:
        without = {k: v for k, v in whole.items() if k != key}
        if (name, key) in OPTIONAL:
            assert getattr(read(without), key) is None
        else:
            with pytest.raises(InvalidBodyError):
                read(without)
        for wrong in WRONG:
            shown = key in ("host", "engine", "message", "text", "what") or (key == "id" and wrong != "")
            if shown and isinstance(wrong, str):
                continue
            with pytest.raises(InvalidBodyError):
                read(whole | {key: wrong})


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": 2},
        {"state": "ended"},
        {"reason": "stopped"},
        {"reason": "bored"},
        {"exit_code": 2**31},
        {"signal": -1},
        {"incarnation": "a b"},
        {"uptime_seconds": -1},
    ],
)
def test_ends_that_make_no_sense(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidBodyError):
        parse_body(messages.EndedMessage, ENDED | change)


@pytest.mark.parametrize("address", ["a;b", "$(id)", "10.0.0.1 x", "é"])
def test_an_address_is_one(address: str) -> None:
    with pytest.raises(InvalidBodyError):
        parse_body(messages.HelloMessage, HELLO | {"address": address})


def test_what_a_person_will_see_holds_no_control_characters_and_has_an_end() -> None:
    said = parse_body(messages.EndedMessage, ENDED | {"message": "a\x1b[2J\x00b\r\n\ud800é" + "x" * 5000})
    assert said.message.startswith("a [2J b   éx")
    assert len(said.message) == messages.LONGEST_MESSAGE


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000])
def test_what_is_no_object(data: bytes) -> None:
    with pytest.raises(InvalidBodyError):
        messages.decode_body(data)


def test_digits_without_end() -> None:
    with pytest.raises(InvalidBodyError):
        messages.decode_body(b'{"offset": ' + b"1" * 100_000 + b"}")


@pytest.mark.parametrize(
    ("size", "text"),
    [(65_537, "a" * 65_537), (1, "ab"), (2, "a"), (4, "\ufffd"), (0, "a"), (3, "\ud800"), (1, "\ud800")],
)
def test_a_piece_whose_text_cannot_be_its_bytes(size: int, text: str) -> None:
    with pytest.raises(InvalidBodyError):
        parse_body(messages.LogPiece, {"offset": 0, "bytes": size, "text": text})


def test_the_largest_piece_that_an_agent_sends_is_taken() -> None:
    import json

    text = b"\xff" * messages.LARGEST_TEXT
    body = json.dumps({"offset": 2**40, "bytes": len(text), "text": text.decode("utf-8", "replace")}).encode()
    assert len(body) <= messages.LARGEST_BODY
    assert parse_body(messages.LogPiece, messages.decode_body(body)).end == 2**40 + messages.LARGEST_TEXT


@given(st.binary(max_size=200), st.integers(0, 220))
@example(b"a\xf0\x9f\x98\x80b", 3)
def test_any_output_cut_anywhere(output: bytes, skip: int) -> None:
    piece = parse_body(
        messages.LogPiece, {"offset": 0, "bytes": len(output), "text": output.decode("utf-8", "replace")}
    )
    rest = piece.after(skip)
    assert piece.text.endswith(rest)
    assert len(rest) <= max(0, len(output) - skip)
    if skip == 0:
        assert rest == piece.text


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=60), st.data())
def test_text_cut_between_characters_loses_none(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    piece = parse_body(messages.LogPiece, {"offset": 0, "bytes": len(text.encode()), "text": text})
    assert piece.after(len(text[:at].encode())) == text[at:]


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_owner_fills_its_share_alone_and_those_that_wait_come_in_order() -> None:
    async def scenario() -> None:
        memory, done = BodyMemory(max_bytes=10, max_bytes_of_one=4), list[str]()
        release = asyncio.Event()

        async def body(owner: str, name: str, size: int) -> None:
            async with memory.reserved(owner, size):
                done.append(name)
                await release.wait()

        tasks = [asyncio.create_task(body("a", name, size)) for name, size in (("a1", 3), ("a2", 3), ("a3", 1))]
        tasks += [asyncio.create_task(body(owner, owner, 4)) for owner in ("b", "c")]
        await _settle()
        # There is room for a3, and a2 came before it; c fits its share, but not the whole.
        assert done == ["a1", "b"]
        release.set()
        await asyncio.gather(*tasks)
        assert sorted(done) == ["a1", "a2", "a3", "b", "c"]
        assert done.index("a2") < done.index("a3")
        assert memory == BodyMemory(max_bytes=10, max_bytes_of_one=4)

    asyncio.run(scenario())


def test_who_gives_up_waiting_leaves_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.01)

    async def scenario() -> None:
        memory = BodyMemory(max_bytes=4, max_bytes_of_one=4)
        async with memory.reserved("a", 4):
            with pytest.raises(TimeoutError):
                async with memory.reserved("a", 1):
                    raise AssertionError
        async with memory.reserved("a", 4):
            pass
        assert memory == BodyMemory(max_bytes=4, max_bytes_of_one=4)

    asyncio.run(scenario())
