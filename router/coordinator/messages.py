"""Parse the bodies of agents' messages into checked values.

A body is either one of these values or an :class:`InvalidBodyError`; unknown keys are ignored. Text that may be shown
to a person is free of control characters.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from router.agent import protocol

# The largest piece of output in bytes. JSON writes a byte that is not text as up to six.
LARGEST_TEXT = 65_536
LARGEST_BODY = 512 * 1024
LARGEST_NUMBER = 2**62
LARGEST_CODE = 2**31 - 1
LONGEST_NAME = 255
LONGEST_MESSAGE = 2_000
LONGEST_PATH = 4_096
LONGEST_ID = 200
LARGEST_PORT = 65_535
# The longest time in seconds that a request for orders is held; proxies end connections that are silent for a minute.
LONGEST_WAIT = 25.0

_INCARNATION = re.compile(r"[0-9A-Za-z_-]{1,64}")
_SOURCE = re.compile(r"[0-9a-z_-]{1,32}")
# A host name or an address, which becomes MASTER_ADDR on the other machines.
_ADDRESS = re.compile(r"[0-9A-Za-z.:%_\[\]-]{1,255}")
_STATES = (protocol.STARTING, protocol.WAITING, protocol.RUNNING, protocol.ENDED, protocol.FAILED)
_REPLACEMENT = "\ufffd"
# A replacement character is three bytes of UTF-8 and stands for one to three bytes of output.
_MOST_SLACK = 2


class InvalidBodyError(Exception):
    """The body does not fit the message; the text names the key and quotes nothing."""


@dataclass(frozen=True, slots=True)
class HelloMessage:
    """A rank is up.

    ``master_port``: the port if it becomes the leader; None where everybody was told beforehand.
    """

    incarnation: str
    nodes: int
    host: str
    engine: str
    address: str
    master_port: int | None


@dataclass(frozen=True, slots=True)
class HeartbeatMessage:
    """A rank is alive.

    The other fields are what its training reported, None where it did not: the current step, its duration, and the last
    checkpoint.
    """

    incarnation: str
    state: str
    step: int | None = None
    step_seconds: float | None = None
    saved_step: int | None = None
    saved_manifest: str | None = None


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Output of a rank: ``size`` bytes from byte ``offset`` on, shown as ``text``."""

    offset: int
    size: int
    text: str

    @property
    def end(self) -> int:
        """Return the byte after the last one."""
        return self.offset + self.size

    def after(self, skip: int) -> str:
        """Return the text without its first ``skip`` bytes of output; a character that this cuts is dropped."""
        slack = len(self.text.encode()) - self.size
        for index, character in enumerate(self.text):
            if skip <= 0:
                return self.text[index:]
            less_bytes = min(_MOST_SLACK, slack) if character == _REPLACEMENT else 0
            slack -= less_bytes
            skip -= len(character.encode()) - less_bytes
        return ""


@dataclass(frozen=True, slots=True)
class EndedMessage:
    """The end of a rank; ``state`` follows from ``reason``."""

    incarnation: str
    state: str
    reason: str
    exit_code: int | None
    signal: int | None
    message: str
    log_bytes_lost: int


@dataclass(frozen=True, slots=True)
class NoticeMessage:
    """A notice to a rank's machine.

    ``id``: the same in every repetition; ``seconds``: the time left; None: not known.
    """

    incarnation: str
    id: str
    kind: str
    source: str
    seconds: float | None
    what: str


@dataclass(frozen=True, slots=True)
class OrdersRequest:
    """A rank asks for its orders, and can wait ``wait`` seconds for a new one.

    ``seen``: the last order that it received, "" for none.
    """

    incarnation: str
    seen: str
    wait: float


@dataclass(frozen=True, slots=True)
class SavedMessage:
    """A checkpoint is complete, or (``failed``) could not be saved.

    ``id``: the order that asked for it, "" without one; ``seconds``: how long it took.
    """

    incarnation: str
    id: str
    step: int | None = None
    manifest: str | None = None
    seconds: float | None = None
    failed: str = ""


def decode_body(data: bytes) -> dict[str, Any]:
    """Return the JSON object in ``data``. Raises :class:`InvalidBodyError`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidBodyError("not JSON") from None
    if not isinstance(content, dict):
        raise InvalidBodyError("not an object")
    return content


def parse_hello(body: dict[str, Any]) -> HelloMessage:
    """Return the body as a hello. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    port = None if body.get("master_port") is None else _number(body, "master_port", 1, LARGEST_PORT)
    return HelloMessage(
        _matching(body, "incarnation", _INCARNATION),
        _number(body, "nodes", 1, LARGEST_CODE),
        printable_text(_text(body, "host"), LONGEST_NAME),
        printable_text(_text(body, "engine"), LONGEST_NAME),
        _matching(body, "address", _ADDRESS),
        port,
    )


def parse_heartbeat(body: dict[str, Any]) -> HeartbeatMessage:
    """Return the body as a heartbeat. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    _number(body, "sequence", 0, LARGEST_NUMBER)
    _duration(body, "uptime_seconds")
    saved = (_step(body, "saved_step"), _manifest(body, "saved_manifest")) if "saved_step" in body else (None, None)
    return HeartbeatMessage(
        _matching(body, "incarnation", _INCARNATION),
        _one_of(body, "state", _STATES),
        None if body.get("step") is None else _step(body, "step"),
        None if body.get("step_seconds") is None else _duration(body, "step_seconds"),
        *saved,
    )


def parse_logs(body: dict[str, Any]) -> LogPiece:
    """Return the body as output. Raises :class:`InvalidBodyError`, also when ``text`` cannot be ``bytes`` bytes."""
    offset = _number(body, "offset", 0, LARGEST_NUMBER)
    size = _number(body, "bytes", 0, LARGEST_TEXT)
    text = _text(body, "text")
    if not len(text) <= size <= len(text.encode("utf-8", "replace")):
        raise InvalidBodyError("bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidBodyError("text") from None
    return LogPiece(offset, size, text)


def parse_ended(body: dict[str, Any]) -> EndedMessage:
    """Return the body as the end of a rank.

    Raises :class:`InvalidBodyError`, also when state and reason contradict each other.
    """
    beat = parse_heartbeat(body)
    reason = _one_of(body, "reason", tuple(protocol.EXIT_CODES))
    if beat.state != (protocol.ENDED if reason in (protocol.FINISHED, protocol.STOPPED) else protocol.FAILED):
        raise InvalidBodyError("state")
    code = None if body.get("exit_code") is None else _number(body, "exit_code", -LARGEST_CODE, LARGEST_CODE)
    signal = None if body.get("signal") is None else _number(body, "signal", 0, LARGEST_CODE)
    lost = _number(body, "log_bytes_lost", 0, LARGEST_NUMBER)
    message = printable_text(_text(body, "message"), LONGEST_MESSAGE)
    return EndedMessage(beat.incarnation, beat.state, reason, code, signal, message, lost)


def parse_notice(body: dict[str, Any]) -> NoticeMessage:
    """Return the body as a notice. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    id_ = printable_text(_text(body, "id"), LONGEST_ID)
    if not id_:
        raise InvalidBodyError("id")
    return NoticeMessage(
        _matching(body, "incarnation", _INCARNATION),
        id_,
        _one_of(body, "kind", protocol.NOTICES),
        _matching(body, "source", _SOURCE),
        None if body.get("seconds") is None else _duration(body, "seconds"),
        printable_text(_text(body, "what"), LONGEST_MESSAGE),
    )


def parse_orders(body: dict[str, Any]) -> OrdersRequest:
    """Return the body as a request for orders. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    seen = printable_text(_text(body, "seen"), LONGEST_ID)
    return OrdersRequest(_matching(body, "incarnation", _INCARNATION), seen, min(_duration(body, "wait"), LONGEST_WAIT))


def parse_saved(body: dict[str, Any]) -> SavedMessage:
    """Return the body as the report of a checkpoint. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    incarnation, id_ = _matching(body, "incarnation", _INCARNATION), printable_text(_text(body, "id"), LONGEST_ID)
    if "failed" in body:
        return SavedMessage(incarnation, id_, failed=printable_text(_text(body, "failed"), LONGEST_MESSAGE) or "?")
    seconds = None if body.get("seconds") is None else _duration(body, "seconds")
    return SavedMessage(incarnation, id_, _step(body, "step"), _manifest(body, "manifest"), seconds)


def printable_text(text: str, longest: int) -> str:
    """Return at most ``longest`` characters, without any that a terminal or a database cannot show."""
    return "".join(c if c.isprintable() else " " for c in text[:longest])


def _check_protocol(body: dict[str, Any]) -> None:
    _number(body, "protocol", protocol.PROTOCOL, protocol.PROTOCOL)


def _number(body: dict[str, Any], key: str, least: int, greatest: int) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
        raise InvalidBodyError(key)
    return value


def _step(body: dict[str, Any], key: str) -> int:
    return _number(body, key, 0, LARGEST_NUMBER)


def _manifest(body: dict[str, Any], key: str) -> str:
    """Return a path or a URL; one with characters that cannot be shown is rejected."""
    text = _text(body, key)
    if not text or printable_text(text, LONGEST_PATH) != text:
        raise InvalidBodyError(key)
    return text


def _duration(body: dict[str, Any], key: str) -> float:
    value = body.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LARGEST_NUMBER:
        raise InvalidBodyError(key)
    return float(value)


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise InvalidBodyError(key)
    return value


def _matching(body: dict[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = _text(body, key)
    if not pattern.fullmatch(value):
        raise InvalidBodyError(key)
    return value


def _one_of(body: dict[str, Any], key: str, words: tuple[str, ...]) -> str:
    value = _text(body, key)
    if value not in words:
        raise InvalidBodyError(key)
    return value
