"""Parser of SQS messages that EventBridge makes of EC2's events about instances. Pure.

Forms: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html and
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from providers.notices import CloudNotice, QueueBatch, QueueMessage
from providers.protocol import NoticeKind

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
# The warning comes this long before the machine is stopped or terminated; hibernation begins at once.
_WARNED_S = 120.0
_HIBERNATE = "hibernate"
_GOING = frozenset({"shutting-down", "stopping", "stopped", "terminated"})


def read_messages(cloud: str, messages: Iterable[Mapping[str, Any]]) -> QueueBatch:
    """Return the notices in the messages, in their order. An unreadable message is counted and left out."""
    parsed, unreadable = [], 0
    for message in messages:
        try:
            parsed.append(QueueMessage(str(message["ReceiptHandle"]), _notice(cloud, json.loads(message["Body"]))))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            unreadable += 1
    return QueueBatch(tuple(parsed), unreadable)


def _notice(cloud: str, event: Mapping[str, Any]) -> CloudNotice | None:
    subject, detail = event["detail-type"], event["detail"]
    if subject not in (WARNING, REBALANCE, STATE_CHANGE):
        return None
    at = datetime.fromisoformat(event["time"])
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    at, machine = at.astimezone(UTC), _text(detail["instance-id"])
    if subject == WARNING:
        action = _text(detail["instance-action"])
        seconds = 0.0 if action == _HIBERNATE else _WARNED_S
        then = _format_moment(at + timedelta(seconds=seconds))
        what = f"the machine will be told to {action} at {then}"
        return CloudNotice(cloud, machine, NoticeKind.INTERRUPTION, seconds, at, f"{action}-{then}", what)
    if subject == REBALANCE:
        what = f"rebalance recommended at {_format_moment(at)}"
        return CloudNotice(cloud, machine, NoticeKind.REBALANCE, None, at, f"rebalance-{_format_moment(at)}", what)
    state = _text(detail["state"])
    if state not in _GOING:
        return None
    what, id_ = f"the machine is {state}", f"{state}-{_format_moment(at)}"
    return CloudNotice(cloud, machine, NoticeKind.INTERRUPTION, 0.0, at, id_, what, is_going=True)


def _format_moment(at: datetime) -> str:
    """Return the moment as the metadata service writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 64:
        raise ValueError("not a word")
    return value
