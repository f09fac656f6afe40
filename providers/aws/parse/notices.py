"""Parser of EventBridge events about spot machines, as an SQS queue holds them. Pure.

Their form: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html and
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from providers.protocol import NoticeKind, ProviderNotice

_KINDS = {
    "EC2 Spot Instance Interruption Warning": NoticeKind.INTERRUPTION,
    "EC2 Instance Rebalance Recommendation": NoticeKind.REBALANCE,
}
# The warning is given two minutes before the machine is stopped or terminated; hibernation begins at once.
_WARNING = timedelta(minutes=2)
_ZONE_NAME = re.compile(r"arn:[\w-]+:ec2:(?P<zone>[a-z0-9-]+\d[a-z]):instance/")


def read_notices(
    cloud: str, bodies: Iterable[str], zone_of: Callable[[str, str], str | None]
) -> tuple[ProviderNotice, ...]:
    """Return the notices among message ``bodies``, oldest first, each once; other messages are ignored.

    ``zone_of`` gives the zone id for a region and a zone name, None where it is not known.
    """
    notices: dict[str, ProviderNotice] = {}
    for body in bodies:
        notice = _read(cloud, body, zone_of)
        if notice is not None:
            notices.setdefault(notice.id, notice)
    return tuple(sorted(notices.values(), key=lambda notice: (notice.at, notice.id)))


def _read(cloud: str, body: str, zone_of: Callable[[str, str], str | None]) -> ProviderNotice | None:
    try:
        event: Any = json.loads(body)
        kind = _KINDS[event["detail-type"]]
        at = datetime.fromisoformat(event["time"]).astimezone(UTC)
        detail = event["detail"]
        region, machine, name = str(event["region"]), str(detail["instance-id"]), str(event["id"])
        arns = [str(arn) for arn in event.get("resources", ())]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    zones = [match["zone"] for arn in arns if (match := _ZONE_NAME.match(arn))]
    effect = None
    if kind is NoticeKind.INTERRUPTION:
        effect = at if detail.get("instance-action") == "hibernate" else at + _WARNING
    return ProviderNotice(
        id=name,
        kind=kind,
        cloud=cloud,
        region=region,
        zone=zone_of(region, zones[0]) if zones else None,
        machine_id=machine,
        at=at,
        takes_effect=effect,
    )
