"""Parse the bodies of agents' messages into checked values.

A body is either one of these values or an :class:`InvalidBodyError`; unknown keys are ignored. Text that may be shown
to a person is free of control characters.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from router.agent import states

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
_STATES = (states.STARTING, states.WAITING, states.RUNNING, states.ENDED, states.FAILED)
_REPLACEMENT = "\ufffd"
# A replacement character is three bytes of UTF-8 and stands for one to three bytes of output.
_MOST_SLACK = 2


class BadBody(Exception):  # noqa: N818
    """The body does not fit the message; the text names the key and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Hello:
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
class Heartbeat:
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
class Piece:
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
class Ended:
    """The end of a rank; ``state`` follows from ``reason``."""

    incarnation: str
    state: str
    reason: str
    exit_code: int | None
    signal: int | None
    message: str
    log_bytes_lost: int


@dataclass(frozen=True, slots=True)
class Notice:
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
class Orders:
    """A rank asks for its orders, and can wait ``wait`` seconds for a new one.

    ``seen``: the last order that it received, "" for none.
    """

    incarnation: str
    seen: str
    wait: float


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is complete, or (``failed``) could not be saved.

    ``id``: the order that asked for it, "" without one; ``seconds``: how long it took.
    """

    incarnation: str
    id: str
    step: int | None = None
    manifest: str | None = None
    seconds: float | None = None
    failed: str = ""


def decoded(data: bytes) -> dict[str, Any]:
    """Return the JSON object in ``data``. Raises :class:`InvalidBodyError`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise BadBody("not JSON") from None
    if not isinstance(content, dict):
        raise BadBody("not an object")
    return content


def hello(body: dict[str, Any]) -> Hello:
    """Return the body as a hello. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    port = None if body.get("master_port") is None else _number(body, "master_port", 1, LARGEST_PORT)
    return Hello(
        _matching(body, "incarnation", _INCARNATION),
        _number(body, "nodes", 1, LARGEST_CODE),
        shown(_text(body, "host"), LONGEST_NAME),
        shown(_text(body, "engine"), LONGEST_NAME),
        _matching(body, "address", _ADDRESS),
        port,
    )


def heartbeat(body: dict[str, Any]) -> Heartbeat:
    """Return the body as a heartbeat. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    _number(body, "sequence", 0, LARGEST_NUMBER)
    _duration(body, "uptime_seconds")
    saved = (_step(body, "saved_step"), _manifest(body, "saved_manifest")) if "saved_step" in body else (None, None)
    return Heartbeat(
        _matching(body, "incarnation", _INCARNATION),
        _one_of(body, "state", _STATES),
        None if body.get("step") is None else _step(body, "step"),
        None if body.get("step_seconds") is None else _duration(body, "step_seconds"),
        *saved,
    )


def logs(body: dict[str, Any]) -> Piece:
    """Return the body as output. Raises :class:`InvalidBodyError`, also when ``text`` cannot be ``bytes`` bytes."""
    offset = _number(body, "offset", 0, LARGEST_NUMBER)
    size = _number(body, "bytes", 0, LARGEST_TEXT)
    text = _text(body, "text")
    if not len(text) <= size <= len(text.encode("utf-8", "replace")):
        raise BadBody("bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadBody("text") from None
    return Piece(offset, size, text)


def ended(body: dict[str, Any]) -> Ended:
    """Return the body as the end of a rank.

    Raises :class:`InvalidBodyError`, also when state and reason contradict each other.
    """
    beat = heartbeat(body)
    reason = _one_of(body, "reason", tuple(states.EXIT_CODES))
    if beat.state != (states.ENDED if reason in (states.FINISHED, states.STOPPED) else states.FAILED):
        raise BadBody("state")
    code = None if body.get("exit_code") is None else _number(body, "exit_code", -LARGEST_CODE, LARGEST_CODE)
    signal = None if body.get("signal") is None else _number(body, "signal", 0, LARGEST_CODE)
    lost = _number(body, "log_bytes_lost", 0, LARGEST_NUMBER)
    message = shown(_text(body, "message"), LONGEST_MESSAGE)
    return Ended(beat.incarnation, beat.state, reason, code, signal, message, lost)


def notice(body: dict[str, Any]) -> Notice:
    """Return the body as a notice. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    id_ = shown(_text(body, "id"), LONGEST_ID)
    if not id_:
        raise BadBody("id")
    return Notice(
        _matching(body, "incarnation", _INCARNATION),
        id_,
        _one_of(body, "kind", states.NOTICES),
        _matching(body, "source", _SOURCE),
        None if body.get("seconds") is None else _duration(body, "seconds"),
        shown(_text(body, "what"), LONGEST_MESSAGE),
    )


def orders(body: dict[str, Any]) -> Orders:
    """Return the body as a request for orders. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    seen = shown(_text(body, "seen"), LONGEST_ID)
    return Orders(_matching(body, "incarnation", _INCARNATION), seen, min(_duration(body, "wait"), LONGEST_WAIT))


def saved(body: dict[str, Any]) -> Saved:
    """Return the body as the report of a checkpoint. Raises :class:`InvalidBodyError`."""
    _check_protocol(body)
    incarnation, id_ = _matching(body, "incarnation", _INCARNATION), shown(_text(body, "id"), LONGEST_ID)
    if "failed" in body:
        return Saved(incarnation, id_, failed=shown(_text(body, "failed"), LONGEST_MESSAGE) or "?")
    seconds = None if body.get("seconds") is None else _duration(body, "seconds")
    return Saved(incarnation, id_, _step(body, "step"), _manifest(body, "manifest"), seconds)


def shown(text: str, longest: int) -> str:
    """Return at most ``longest`` characters, without any that a terminal or a database cannot show."""
    return "".join(c if c.isprintable() else " " for c in text[:longest])


def _check_protocol(body: dict[str, Any]) -> None:
    _number(body, "protocol", states.PROTOCOL, states.PROTOCOL)


def _number(body: dict[str, Any], key: str, least: int, most: int) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadBody(key)
    return value


def _step(body: dict[str, Any], key: str) -> int:
    return _number(body, key, 0, LARGEST_NUMBER)


def _manifest(body: dict[str, Any], key: str) -> str:
    """Return a path or a URL; one with characters that cannot be shown is rejected."""
    text = _text(body, key)
    if not text or shown(text, LONGEST_PATH) != text:
        raise BadBody(key)
    return text


def _duration(body: dict[str, Any], key: str) -> float:
    value = body.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LARGEST_NUMBER:
        raise BadBody(key)
    return float(value)


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise BadBody(key)
    return value


def _matching(body: dict[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = _text(body, key)
    if not pattern.fullmatch(value):
        raise BadBody(key)
    return value


def _one_of(body: dict[str, Any], key: str, words: tuple[str, ...]) -> str:
    value = _text(body, key)
    if value not in words:
        raise BadBody(key)
    return value
