"""EC2's metadata service (IMDSv2): spot interruptions, rebalance recommendations, scheduled maintenance.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html and, beside it,
rebalance-recommendations.html: ask every 5 s; two minutes' notice, best effort.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from router.agent.imds import (
    LINK_LOCAL,
    MISSING,
    OK,
    UNAUTHORIZED,
    MachineNotice,
    MetadataAnswer,
    MetadataClient,
    NoticeSourceError,
    NoticeWatch,
    status_error,
)
from router.agent.protocol import INTERRUPTION, MAINTENANCE, REBALANCE

EVERY = 5.0
MAINTENANCE_EVERY = 60.0
TIMEOUT = 2.0
TOKEN, TOKEN_TTL = "X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds"
TTL = 21600
# A token is renewed this long before it expires, or a tenth of its life before if that is less.
EARLY = 300.0
SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"
MAINTENANCE_PATH = "/latest/meta-data/events/maintenance/scheduled"
OVER = ("completed", "canceled")


def watches(source: str, url: str | None, every: float | None, _: Path) -> list[NoticeWatch]:
    """Return the sources of notices on a machine of this cloud."""
    return [Ec2InstanceWatch(source, MetadataClient(url or LINK_LOCAL, seconds=TIMEOUT), every or EVERY)]


class Ec2InstanceWatch:
    """All notices that EC2 gives one instance."""

    name = "the metadata service"

    def __init__(self, source: str, service: MetadataClient, every: float) -> None:
        self._source, self._service, self._every = source, service, every
        self._token, self._renew_at = "", 0.0
        self._maintenance_at = 0.0

    def look(self, tell: Callable[[MachineNotice], None]) -> float:
        """Report new notices, the most pressing first."""
        began = time.monotonic()
        if (answer := self._get(SPOT)) is not None:
            tell(self._interruption(answer))
        if (answer := self._get(REBALANCE_PATH)) is not None:
            moment = _decode_object(REBALANCE_PATH, answer).get("noticeTime")
            what = f"rebalance recommended at {moment}"
            tell(MachineNotice(f"rebalance-{moment}", REBALANCE, self._source, None, what, answer.at))
        if began >= self._maintenance_at:
            if (answer := self._get(MAINTENANCE_PATH)) is not None:
                self._maintenance(answer, tell)
            self._maintenance_at = began + MAINTENANCE_EVERY
        return self._every - (time.monotonic() - began)

    def _interruption(self, answer: MetadataAnswer) -> MachineNotice:
        content = _decode_object(SPOT, answer)
        # Some mocks of the service write the second key.
        action, moment = content.get("action") or content.get("instance-action"), content.get("time")
        if not isinstance(action, str):
            raise NoticeSourceError(f"{SPOT}: no action")
        what = f"the machine will be told to {action} at {moment}"
        return MachineNotice(f"{action}-{moment}", INTERRUPTION, self._source, answer.left(moment), what, answer.at)

    def _maintenance(self, answer: MetadataAnswer, tell: Callable[[MachineNotice], None]) -> None:
        events = _decode_json(MAINTENANCE_PATH, answer)
        for event in events if isinstance(events, list) else []:
            if not isinstance(event, dict) or event.get("State") in OVER or not event.get("EventId"):
                continue
            start = event.get("NotBefore")
            what = f"{event.get('Code')} at {start}: {event.get('Description')}"
            id_ = f"{event['EventId']}-{start}"
            tell(MachineNotice(id_, MAINTENANCE, self._source, answer.left(start), what, answer.at))

    def _get(self, path: str) -> MetadataAnswer | None:
        """Return the answer for a path; None if there is no notice there. Raises :class:`NoticeSourceError`."""
        answer = self._service.ask(path, {TOKEN: self._fresh_token()})
        if answer.status == UNAUTHORIZED:
            self._token = ""
            answer = self._service.ask(path, {TOKEN: self._fresh_token()})
        if answer.status == MISSING:
            return None
        if answer.status != OK:
            raise status_error(path, answer)
        return answer

    def _fresh_token(self) -> str:
        if self._token and time.monotonic() < self._renew_at:
            return self._token
        path = "/latest/api/token"
        answer = self._service.ask(path, {TOKEN_TTL: str(TTL)}, method="PUT")
        if answer.status != OK or not answer.text.isprintable():
            raise status_error(path, answer)
        lifetime = str(answer.headers.get(TOKEN_TTL) or "")
        seconds = float(lifetime) if lifetime.isascii() and lifetime.isdigit() else float(TTL)
        self._token, self._renew_at = answer.text, answer.at + seconds - min(EARLY, seconds / 10)
        return self._token


def _decode_json(path: str, answer: MetadataAnswer) -> Any:
    try:
        return json.loads(answer.text)
    except ValueError:
        raise NoticeSourceError(f"{path}: not JSON") from None


def _decode_object(path: str, answer: MetadataAnswer) -> dict[str, Any]:
    content = _decode_json(path, answer)
    if not isinstance(content, dict):
        raise NoticeSourceError(f"{path}: not an object")
    return content
