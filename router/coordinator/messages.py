"""The bodies of the messages, as checked values. Whatever a node sends is either one of these or a :class:`BadBody`;
keys that are not known are ignored. What may be shown to a person is free of control characters."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from router.agent import states

# A piece of output is at most this long, in bytes. JSON writes a byte that is not text as up to six.
LARGEST_TEXT = 65_536
LARGEST_BODY = 512 * 1024
LARGEST_NUMBER = 2**62
LARGEST_CODE = 2**31 - 1
LONGEST_NAME = 255
LONGEST_MESSAGE = 2_000
LONGEST_PATH = 4_096
LONGEST_ID = 200
LARGEST_PORT = 65_535
# So long a request for orders is held; what lies on the way ends connections that are silent for a minute.
LONGEST_WAIT = 25.0

_INCARNATION = re.compile(r"[0-9A-Za-z_-]{1,64}")
_SOURCE = re.compile(r"[0-9a-z_-]{1,32}")
# A host name or an address; it becomes MASTER_ADDR on the other machines.
_ADDRESS = re.compile(r"[0-9A-Za-z.:%_\[\]-]{1,255}")
_STATES = (states.STARTING, states.WAITING, states.RUNNING, states.ENDED, states.FAILED)
_REPLACED = "\ufffd"
# A replacement character is three bytes of UTF-8 and stands for one to three bytes of output.
_MOST_SLACK = 2


class BadBody(Exception):  # noqa: N818  (a verdict on what a node sent)
    """The body is not what the message has to be; the text names the key and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A rank is there. ``master_port``: where it would lead; None where everybody was told beforehand."""

    incarnation: str
    nodes: int
    host: str
    engine: str
    address: str
    master_port: int | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A rank lives. The rest is what its training said of itself, None where it did not: the step that it is at, and
    the last that it saved."""

    incarnation: str
    state: str
    step: int | None = None
    step_seconds: float | None = None
    saved_step: int | None = None
    saved_manifest: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Output: ``size`` bytes of it from byte ``offset`` on, shown as ``text``."""

    offset: int
    size: int
    text: str

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.offset + self.size

    def after(self, skip: int) -> str:
        """The text without its first ``skip`` bytes of output; a character that they cut goes whole."""
        slack = len(self.text.encode()) - self.size
        for index, character in enumerate(self.text):
            if skip <= 0:
                return self.text[index:]
            less = min(_MOST_SLACK, slack) if character == _REPLACED else 0
            slack -= less
            skip -= len(character.encode()) - less
        return ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rank went; ``state`` follows from ``reason``."""

    incarnation: str
    state: str
    reason: str
    exit_code: int | None
    signal: int | None
    message: str
    log_bytes_lost: int


@dataclass(frozen=True, slots=True)
class Notice:
    """What was announced to a rank's machine. ``id``: the same whenever it is told again; ``seconds``: how long is
    left; None: not known."""

    incarnation: str
    id: str
    kind: str
    source: str
    seconds: float | None
    what: str


@dataclass(frozen=True, slots=True)
class Orders:
    """A rank asks what it is to do, and can wait so many seconds for something new. ``seen``: the last order that it
    got, "" for none."""

    incarnation: str
    seen: str
    wait: float


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is complete, or (``failed``) did not come about. ``id``: of what asked for it, "" where nobody did;
    ``seconds``: what it took."""

    incarnation: str
    id: str
    step: int | None = None
    manifest: str | None = None
    seconds: float | None = None
    failed: str = ""


def decoded(data: bytes) -> dict[str, Any]:
    """The object in ``data``. Raises :class:`BadBody`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise BadBody("not JSON") from None
    if not isinstance(content, dict):
        raise BadBody("not an object")
    return content


def hello(body: dict[str, Any]) -> Hello:
    """Raises :class:`BadBody`."""
    _protocol(body)
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
    """Raises :class:`BadBody`."""
    _protocol(body)
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
    """Raises :class:`BadBody`, also when ``text`` cannot be ``bytes`` bytes of output."""
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
    """Raises :class:`BadBody`, also when state and reason contradict each other."""
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
    """Raises :class:`BadBody`."""
    _protocol(body)
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
    """Raises :class:`BadBody`."""
    _protocol(body)
    seen = shown(_text(body, "seen"), LONGEST_ID)
    return Orders(_matching(body, "incarnation", _INCARNATION), seen, min(_duration(body, "wait"), LONGEST_WAIT))


def saved(body: dict[str, Any]) -> Saved:
    """Raises :class:`BadBody`."""
    _protocol(body)
    who, id_ = _matching(body, "incarnation", _INCARNATION), shown(_text(body, "id"), LONGEST_ID)
    if "failed" in body:
        return Saved(who, id_, failed=shown(_text(body, "failed"), LONGEST_MESSAGE) or "?")
    seconds = None if body.get("seconds") is None else _duration(body, "seconds")
    return Saved(who, id_, _step(body, "step"), _manifest(body, "manifest"), seconds)


def shown(text: str, longest: int) -> str:
    """At most that many characters, and nothing that a terminal or a database would trip over."""
    return "".join(c if c.isprintable() else " " for c in text[:longest])


def _protocol(body: dict[str, Any]) -> None:
    _number(body, "protocol", states.PROTOCOL, states.PROTOCOL)


def _number(body: dict[str, Any], key: str, least: int, most: int) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadBody(key)
    return value


def _step(body: dict[str, Any], key: str) -> int:
    return _number(body, key, 0, LARGEST_NUMBER)


def _manifest(body: dict[str, Any], key: str) -> str:
    """A path or a URL; one that cannot be shown as it is, is none that could be used."""
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
