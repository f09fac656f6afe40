"""Define the section ``webhooks`` of the deploy file: programs that are told what happened."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from router.agent.protocol import LOOPBACK
from router.deploy.console_settings import SecretReference
from router.jobs.fields import RefusedError, Spec, Text, as_many


class WebhookEvent(StrEnum):
    """The kinds of events that programs can be told of."""

    PLAN_MADE = "plan.made"
    PLAN_APPROVED = "plan.approved"
    PLAN_APPLIED = "plan.applied"
    JOB_INTERRUPTED = "job.interrupted"
    MONTH_CLOSED = "month.closed"


def _check_url(value: str) -> str:
    # The value is not shown: addresses of some services are secrets themselves.
    remedy = "write https://HOST/PATH; http is for loopback alone"
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise RefusedError("is no URL", remedy) from None
    is_plain = parts.scheme == "http" and parts.hostname in LOOPBACK
    if not parts.hostname or (parts.scheme != "https" and not is_plain):
        raise RefusedError("is no https URL", remedy)
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise RefusedError("holds more than host, path and query", "give the secret as `secret`")
    return value


class WebhookEntry(Spec):
    """A program that is told of events by signed POST requests (docs/console.md)."""

    url: Annotated[Text, AfterValidator(_check_url)] = Field(
        description="Where events are sent; https, or http on loopback.", examples=["https://ci.example.com/stepfare"]
    )
    events: Annotated[tuple[WebhookEvent, ...], BeforeValidator(as_many)] = Field(
        default=tuple(WebhookEvent), description="Events to send; left out: all."
    )
    secret: SecretReference = Field(
        description="Key of the signatures, at least 24 characters.", examples=["env:STEPFARE_WEBHOOK_SECRET"]
    )
