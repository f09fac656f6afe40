"""Define the notifications of the deploy file, and references to the environment, where secrets are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from pricing.problems import InvalidInputError
from router.agent.protocol import LOOPBACK
from router.jobs.fields import RefusedError, Spec, Text, as_many

_PREFIX = "env:"
_NAME = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")


def _check_reference(value: str) -> str:
    # The value is not shown: somebody may have written the secret itself.
    if not _NAME.fullmatch(value):
        raise RefusedError("is no reference to the environment", "write env:NAME, and set NAME where the command runs")
    return value


Reference = Annotated[Text, AfterValidator(_check_reference)]


def split_url(value: str, remedy: str, at: tuple[str, ...] = ()) -> SplitResult:
    """Return the parts of a URL, whose port is one. RefusedError shows nothing of it."""
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise RefusedError("is no URL", remedy, at=at) from None
    return parts


def is_encrypted(parts: SplitResult) -> bool:
    """Return whether what is sent there can be read by nobody else: by https, or on this machine."""
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK))


def resolve_reference(reference: str, environment: Mapping[str, str], field: str) -> str:
    """Return the value that ``env:NAME`` refers to.

    InvalidInputError, without any value, when it is not set or empty.
    """
    name = reference.removeprefix(_PREFIX)
    value = environment.get(name, "").strip()
    if not value:
        raise InvalidInputError.single(
            f"refers to the variable {name}, which is not set here", field=field, remedy=f"export {name}"
        )
    return value


class EventKind(StrEnum):
    """The kinds of events that people can be notified of: those of gangs, then those of plans."""

    FAILED = "failed"
    INTERRUPTED = "interrupted"
    MOVED = "moved"
    STANDSTILL = "standstill"
    LATE = "late"
    BUDGET = "budget"
    UNHEALTHY = "unhealthy"
    PLAN = "plan"
    LEFT_OUT = "left_out"
    APPROVAL = "approval"


class NotifyEntry(Spec):
    """Messages to people. Addresses hold secrets, so that the file only says where in the environment they are."""

    urls: Annotated[tuple[Reference, ...], BeforeValidator(as_many)] = Field(
        default=(),
        description="Addresses as the library apprise writes them (slack://..., mailto://..., json://...).",
        examples=[["env:SLACK_URL", "env:MAIL_URL"]],
    )
    events: Annotated[tuple[EventKind, ...], BeforeValidator(as_many)] = Field(
        default=tuple(EventKind), description="Events to report (docs/runbooks.md says when each is); left out: all."
    )

    def addresses(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return the addresses themselves. InvalidInputError for one that is not set."""
        return tuple(resolve_reference(url, environment, f"notify.urls[{i}]") for i, url in enumerate(self.urls))
