"""Parser of SQS messages that EventBridge, alone or through SNS, makes of events about EC2 instances. Pure.

Forms: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitor-interruptible-cr.html,
https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html and
https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from providers.notices import CloudNotice, QueueBatch, QueueMessage
from providers.protocol import NoticeKind

WARNING = "EC2 Spot Instance Interruption Warning"
RECLAIMED = "EC2 Capacity Reservation Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
HEALTH = "AWS Health Event"
# Both warnings come this long before the machine is stopped or terminated; hibernation begins at once.
_WARNED_S = 120.0
_HIBERNATE = "hibernate"
_GOING = frozenset({"shutting-down", "stopping", "stopped", "terminated"})
_SCHEDULED, _CLOSED = "scheduledChange", "closed"


def read_messages(cloud: str, messages: Iterable[Mapping[str, Any]]) -> QueueBatch:
    """Return the notices in the messages, in their order. An unreadable message is counted and left out."""
    parsed, unreadable = [], 0
    for message in messages:
        try:
            event = _event(json.loads(message["Body"]))
            parsed.append(QueueMessage(str(message["ReceiptHandle"]), tuple(_notices(cloud, event))))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            unreadable += 1
    return QueueBatch(tuple(parsed), unreadable)


def _event(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the event of a message; SNS puts it as text into an envelope, unless raw delivery is on."""
    if "detail-type" not in body and body.get("Type") == "Notification":
        event: Mapping[str, Any] = json.loads(body["Message"])
        return event
    return body


def _notices(cloud: str, event: Mapping[str, Any]) -> Iterator[CloudNotice]:
    subject, detail = event["detail-type"], event["detail"]
    if subject not in (WARNING, RECLAIMED, REBALANCE, STATE_CHANGE, HEALTH):
        return
    at = datetime.fromisoformat(event["time"])
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    at = at.astimezone(UTC)
    if subject == HEALTH:
        yield from _scheduled_changes(cloud, at, detail)
        return
    machine = _text(detail["instance-id"])
    if subject in (WARNING, RECLAIMED):
        action = _text(detail["instance-action"])
        seconds = 0.0 if action == _HIBERNATE else _WARNED_S
        then = _format_moment(at + timedelta(seconds=seconds))
        what = f"the machine will be told to {action} at {then}"
        yield CloudNotice(cloud, machine, NoticeKind.INTERRUPTION, seconds, at, f"{action}-{then}", what)
    elif subject == REBALANCE:
        what = f"rebalance recommended at {_format_moment(at)}"
        yield CloudNotice(cloud, machine, NoticeKind.REBALANCE, None, at, f"rebalance-{_format_moment(at)}", what)
    elif (state := _text(detail["state"])) in _GOING:
        what, id_ = f"the machine is {state}", f"{state}-{_format_moment(at)}"
        yield CloudNotice(cloud, machine, NoticeKind.INTERRUPTION, 0.0, at, id_, what, is_going=True)


def _scheduled_changes(cloud: str, at: datetime, detail: Mapping[str, Any]) -> Iterator[CloudNotice]:
    """Yield a notice for each machine that AWS Health says will be retired, stopped, rebooted or serviced."""
    if (detail["service"], detail["eventTypeCategory"]) != ("EC2", _SCHEDULED) or detail.get("statusCode") == _CLOSED:
        return
    code = _text(detail["eventTypeCode"])
    start = parsedate_to_datetime(detail["startTime"]).astimezone(UTC)
    for entity in detail["affectedEntities"]:
        seconds = max(0.0, (start - at).total_seconds())
        what, id_ = f"{code} at {_format_moment(start)}", f"{code}-{_format_moment(start)}"
        yield CloudNotice(cloud, _text(entity["entityValue"]), NoticeKind.MAINTENANCE, seconds, at, id_, what)


def _format_moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 64:
        raise ValueError("not a word")
    return value
