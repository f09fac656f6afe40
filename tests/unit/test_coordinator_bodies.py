"""What a node may send, and what is no message."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.coordinator import bodies, messages
from router.coordinator.bodies import BodyMemory
from router.coordinator.messages import InvalidBodyError, parse_body

BEAT = {"protocol": 1, "incarnation": "a1", "state": "running", "sequence": 1, "uptime_seconds": 0.5}
HELLO = {
    "protocol": 1,
    "incarnation": "a1",
    "nodes": 2,
    "host": "h",
    "engine": "ray",
    "address": "10.0.0.1",
    "master_port": 1,
}
ENDED = BEAT | {
    "state": "failed",
    "reason": "crashed",
    "exit_code": 1,
    "signal": 9,
    "message": "m",
    "log_bytes_lost": 0,
}
NOTICE = {
    "protocol": 1,
    "incarnation": "a1",
    "id": "n-1",
    "kind": "interruption",
    "source": "aws",
    "seconds": 117.5,
    "what": "w",
}
LOGS = {"offset": 0, "bytes": 1, "text": "a"}
MESSAGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "hello": (partial(parse_body, messages.HelloMessage), HELLO),
    "heartbeat": (partial(parse_body, messages.HeartbeatMessage), BEAT),
    "ended": (partial(parse_body, messages.EndedMessage), ENDED),
    "logs": (partial(parse_body, messages.LogPiece), LOGS),
    "notice": (partial(parse_body, messages.NoticeMessage), NOTICE),
}
WRONG: tuple[Any, ...] = (
    True, [], {}, float("nan"), float("inf"), -(2**40), 10**400, "\ud800", "", "\n", "x" * 300
)  # fmt: skip
OPTIONAL = {("hello", "master_port"), ("ended", "exit_code"), ("ended", "signal"), ("notice", "seconds")}


@pytest.mark.parametrize("name", MESSAGES)
def test_every_key_is_needed_and_of_its_type(name: str) -> None:
    read, whole = MESSAGES[name]
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
