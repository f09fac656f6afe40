"""Azure's Scheduled Events: evictions, reboots and redeployments of this machine.

https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events: ask every second; an eviction is announced at
least 30 s before; the first question turns the service on and may take two minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from router.agent.imds import (
    LINK_LOCAL,
    OK,
    MachineNotice,
    MetadataAnswer,
    MetadataClient,
    NoticeSourceError,
    NoticeWatch,
    status_error,
)
from router.agent.protocol import INTERRUPTION, MAINTENANCE

EVERY = 1.0
TIMEOUT, FIRST_TIMEOUT = 5.0, 130.0
HEADERS = {"Metadata": "true"}
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
# These events end the machine; the others pause, restart or move it.
ENDS = ("Preempt", "Terminate")


def watches(source: str, url: str | None, every: float | None, _: Path) -> list[NoticeWatch]:
    """Return the sources of notices on a machine of this cloud."""
    return [ScheduledEventsWatch(source, MetadataClient(url or LINK_LOCAL, seconds=TIMEOUT), every or EVERY)]


class ScheduledEventsWatch:
    """The scheduled events that name this machine."""

    name = "the metadata service"

    def __init__(self, source: str, service: MetadataClient, every: float) -> None:
        self._source, self._service, self._every = source, service, every
        self._own_name = ""
        self._incarnation: object = None
        self._answered = False

    def look(self, tell: Callable[[MachineNotice], None]) -> float:
        """Report new events. An incarnation of the document that was read before is not read again."""
        began = time.monotonic()
        if not self._own_name:
            self._own_name = self._service.get(NAME, HEADERS).text.strip().lower()
        answer = self._service.get(EVENTS, HEADERS, seconds=None if self._answered else FIRST_TIMEOUT)
        self._answered = True
        document = _decode_document(answer)
        incarnation = document.get("DocumentIncarnation")
        if incarnation is None or incarnation != self._incarnation:
            events = document.get("Events")
            for event in events if isinstance(events, list) else []:
                if isinstance(event, dict) and self._is_ours(event):
                    tell(self._notice(event, answer))
            self._incarnation = incarnation
        return self._every - (time.monotonic() - began)

    def acknowledge(self, event: str) -> None:
        """Let the event begin now, for all machines that it names. Raises :class:`NoticeSourceError`.

        Call this only once the work of those machines is safe.
        """
        body = json.dumps({"StartRequests": [{"EventId": event}]}).encode()
        answer = self._service.ask(EVENTS, {**HEADERS, "Content-Type": "application/json"}, method="POST", body=body)
        if answer.status != OK:
            raise status_error(EVENTS, answer)

    def _is_ours(self, event: dict[str, Any]) -> bool:
        resources = event.get("Resources")
        return (
            isinstance(event.get("EventId"), str)
            and isinstance(resources, list)
            and self._own_name in [str(name).lower() for name in resources]
            and event.get("EventStatus") not in ("Completed", "Canceled")
        )

    def _notice(self, event: dict[str, Any], answer: MetadataAnswer) -> MachineNotice:
        kind = str(event.get("EventType"))
        # An event that has begun has no start time any more.
        left = 0.0 if event.get("EventStatus") == "Started" else answer.left(event.get("NotBefore"))
        what = f"{kind}, not before {event.get('NotBefore')}: {event.get('Description') or ''}".rstrip(": ")
        word = INTERRUPTION if kind in ENDS else MAINTENANCE
        # Approval counts for all machines that an event names, and the state of the others is not known here. A machine
        # that is to be restarted is not approved either, because the job may prefer to leave it first.
        is_ours_alone = (
            word == INTERRUPTION and len(event["Resources"]) == 1 and event.get("EventStatus") == "Scheduled"
        )
        return MachineNotice(event["EventId"], word, self._source, left, what, answer.at, waits=is_ours_alone)


def _decode_document(answer: MetadataAnswer) -> dict[str, Any]:
    try:
        document = json.loads(answer.text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise NoticeSourceError("scheduled events: not an object of JSON")
    return document
