"""Parse the bodies of agents' messages into checked values.

A body is either one of these values or an :class:`InvalidBodyError`; unknown keys are ignored. Text that may be shown
to a person is free of control characters.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from router.agent import protocol

# The largest piece of output in bytes. JSON writes a byte that is not text as up to six.
LARGEST_TEXT = 65_536
LARGEST_BODY = 512 * 1024
LARGEST_NUMBER = 2**62
LARGEST_CODE = 2**31 - 1
LONGEST_NAME = 255
LONGEST_MESSAGE = 2_000
LONGEST_LAST_LINES = 4_000
MOST_CHECKS = 16
LONGEST_PATH = 4_096
LONGEST_ID = 200
LARGEST_PORT = 65_535
# The longest time in seconds that a request for orders is held; proxies end connections that are silent for a minute.
LONGEST_WAIT = 25.0

_REPLACEMENT = "\ufffd"
# A replacement character is three bytes of UTF-8 and stands for one to three bytes of output.
_MOST_SLACK = 2


class InvalidBodyError(Exception):
    """The body does not fit the message; the text names the key and quotes nothing."""


def printable_text(text: str, longest: int) -> str:
    """Return at most ``longest`` characters, without any that a terminal or a database cannot show."""
    return "".join(c if c.isprintable() else " " for c in text[:longest])


def _shown(longest: int, *, least: int = 0) -> AfterValidator:
    def check(text: str) -> str:
        if len(text) < least:
            raise ValueError("is too short")
        return printable_text(text, longest)

    return AfterValidator(check)


def _last_lines(text: str) -> str:
    """Return the end of an output as lines that can be shown; a first line that is cut is left out."""
    kept = text[-LONGEST_LAST_LINES:]
    if len(kept) < len(text):
        kept = kept.partition("\n")[2] or kept
    return "\n".join(printable_text(line, LONGEST_LAST_LINES).rstrip() for line in kept.splitlines())


def _one_of(words: tuple[str, ...]) -> AfterValidator:
    def check(text: str) -> str:
        if text not in words:
            raise ValueError("is none of the words")
        return text

    return AfterValidator(check)


def _check_manifest(text: str) -> str:
    if not text or printable_text(text, LONGEST_PATH) != text:
        raise ValueError("has characters that cannot be shown")
    return text


Count = Annotated[int, Field(ge=0, le=LARGEST_NUMBER)]
Seconds = Annotated[float, Field(ge=0, le=LARGEST_NUMBER)]
Name = Annotated[str, _shown(LONGEST_NAME)]
OrderId = Annotated[str, _shown(LONGEST_ID)]
Sentence = Annotated[str, _shown(LONGEST_MESSAGE)]
# A path or a URL.
Manifest = Annotated[str, AfterValidator(_check_manifest)]
_STATES = (protocol.STARTING, protocol.WAITING, protocol.RUNNING, protocol.ENDED, protocol.FAILED)


class AgentMessage(BaseModel):
    """The body of a message."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class _RankBody(AgentMessage):
    protocol: Annotated[int, Field(ge=protocol.PROTOCOL, le=protocol.PROTOCOL)]
    incarnation: Annotated[str, StringConstraints(pattern=r"\A[0-9A-Za-z_-]{1,64}\z")]


class PreflightMessage(AgentMessage):
    """A check of a rank's machine; ``problem`` is "" where it is fit."""

    name: Name
    problem: Sentence
    what: Sentence


class HelloMessage(_RankBody):
    """A rank is up.

    ``master_port``: the port if it becomes the leader; None where everybody was told beforehand. ``preflight``: the
    checks of its machine; none are made where the deploy file says so. ``measures``: whether it still has to take
    part in an all-reduce of the gang before it trains; None where there is none.
    """

    nodes: Annotated[int, Field(ge=1, le=LARGEST_CODE)]
    host: Name
    engine: Name
    # A host name or an address, which becomes MASTER_ADDR on the other machines.
    address: Annotated[str, StringConstraints(pattern=r"\A[0-9A-Za-z.:%_\[\]-]{1,255}\z")]
    master_port: Annotated[int, Field(ge=1, le=LARGEST_PORT)] | None = None
    preflight: Annotated[list[PreflightMessage], Field(max_length=MOST_CHECKS)] = []
    measures: bool | None = None


class MeasuredMessage(_RankBody, PreflightMessage):
    """The all-reduce of the gang as a check: bus bandwidth in GB/s, None where it was not measured, and the plan's."""

    gb_per_s: Annotated[float, Field(gt=0, le=LARGEST_NUMBER)] | None
    assumed_gb_per_s: Annotated[float, Field(gt=0, le=LARGEST_NUMBER)] | None


class HeartbeatMessage(_RankBody):
    """A rank is alive.

    The last four fields are what its training reported, None where it did not: the current step, its duration, and the
    last checkpoint.
    """

    state: Annotated[str, _one_of(_STATES)]
    sequence: Count
    uptime_seconds: Seconds
    step: Count | None = None
    step_seconds: Seconds | None = None
    saved_step: Count | None = None
    saved_manifest: Manifest | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_checkpoint(cls, body: dict[str, Any]) -> dict[str, Any]:
        if "saved_step" not in body:
            return {**body, "saved_manifest": None}
        if body["saved_step"] is None or body.get("saved_manifest") is None:
            raise ValueError("a checkpoint is a step and a manifest")
        return body


class LogPiece(AgentMessage):
    """Output of a rank: ``size`` bytes from byte ``offset`` on, shown as ``text``."""

    offset: Count
    size: int = Field(validation_alias="bytes", ge=0, le=LARGEST_TEXT)
    text: str

    @model_validator(mode="after")
    def _check_size(self) -> LogPiece:
        # Text that cannot be encoded raises UnicodeEncodeError, a ValueError.
        if not len(self.text) <= self.size <= len(self.text.encode()):
            raise ValueError("cannot be so many bytes")
        return self

    @property
    def end(self) -> int:
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


class EndedMessage(HeartbeatMessage):
    """The end of a rank; ``state`` follows from ``reason``, ``last_lines`` end the output of one that crashed."""

    reason: Annotated[str, _one_of(tuple(protocol.EXIT_CODES))]
    exit_code: Annotated[int, Field(ge=-LARGEST_CODE, le=LARGEST_CODE)] | None = None
    signal: Annotated[int, Field(ge=0, le=LARGEST_CODE)] | None = None
    message: Sentence
    last_lines: Annotated[str, AfterValidator(_last_lines)] = ""
    log_bytes_lost: Count

    @model_validator(mode="after")
    def _check_state(self) -> EndedMessage:
        is_good = self.reason in (protocol.FINISHED, protocol.STOPPED)
        if self.state != (protocol.ENDED if is_good else protocol.FAILED):
            raise ValueError("state and reason contradict each other")
        return self


class NoticeMessage(_RankBody):
    """A notice to a rank's machine.

    ``id``: the same in every repetition; ``seconds``: the time left; None: not known.
    """

    id: Annotated[str, _shown(LONGEST_ID, least=1)]
    kind: Annotated[str, _one_of(protocol.NOTICES)]
    source: Annotated[str, StringConstraints(pattern=r"\A[0-9a-z_-]{1,32}\z")]
    seconds: Seconds | None = None
    what: Sentence


class OrdersRequest(_RankBody):
    """A rank asks for its orders, and can wait ``wait`` seconds for a new one.

    ``seen``: the last order that it received, "" for none.
    """

    seen: OrderId
    wait: Annotated[Seconds, AfterValidator(lambda seconds: min(seconds, LONGEST_WAIT))]


class SavedMessage(_RankBody):
    """A checkpoint is complete, or (``failed``) could not be saved.

    ``id``: the order that asked for it, "" without one; ``seconds``: how long it took.
    """

    id: OrderId
    step: Count | None = None
    manifest: Manifest | None = None
    seconds: Seconds | None = None
    failed: Annotated[Sentence, AfterValidator(lambda text: text or "?")] = ""

    @model_validator(mode="before")
    @classmethod
    def _check_checkpoint(cls, body: dict[str, Any]) -> dict[str, Any]:
        if "failed" in body:
            return {**body, "step": None, "manifest": None, "seconds": None}
        if body.get("step") is None or body.get("manifest") is None:
            raise ValueError("a checkpoint is a step and a manifest")
        return body


Message = TypeVar("Message", bound=AgentMessage)


def decode_body(data: bytes) -> dict[str, Any]:
    """Return the JSON object in ``data``. Raises :class:`InvalidBodyError`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidBodyError("not JSON") from None
    if not isinstance(content, dict):
        raise InvalidBodyError("not an object")
    return content


def parse_body(kind: type[Message], body: dict[str, Any]) -> Message:
    """Return the body as a message of that kind. Raises :class:`InvalidBodyError`."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise InvalidBodyError(".".join(map(str, problem["loc"][:1]))) from None
