"""Diagnosis of the account for `stepfare doctor`: identity, permissions, clock, latency, sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from providers.aws.account import AwsAccount
from providers.aws.public import PublicFiles
from providers.caller import Once
from providers.errors import AccountNotUsedError, ProviderError
from providers.protocol import CallCheck, Diagnosis, check_call
from providers.session import Session

_PRICE_LIST, _ADVISOR = "public price list", "public Spot Advisor file"
_PRICES, _HISTORY = "on-demand prices", "spot prices"
# This type has been sold for many years in common home regions; it is only asked about.
_TYPE = "g4dn.xlarge"


@dataclass(frozen=True, slots=True)
class _Call:
    service: str
    action: str
    needed_for: str
    parameters: Mapping[str, Any]

    @property
    def permission(self) -> str:
        return f"{self.service.replace('-', '')}:{self.action}"


def _calls(now: datetime, queue_url: str | None) -> Iterator[_Call]:
    """Yield one small call for each permission of the policy; those that count or cost are dry runs."""
    linux = {"InstanceTypes": [_TYPE], "ProductDescriptions": ["Linux/UNIX"]}
    yield _Call("ec2", "DescribeRegions", "which regions can be used", {})
    yield _Call("ec2", "DescribeAvailabilityZones", "zones", {})
    yield _Call("ec2", "DescribeInstanceTypeOfferings", "where each type is sold", {"MaxResults": 5})
    yield _Call("ec2", "DescribeInstanceTypes", "new instance types", {"InstanceTypes": [_TYPE]})
    yield _Call("ec2", "DescribeSpotPriceHistory", _HISTORY, {**linux, "StartTime": now, "MaxResults": 1})
    yield _Call("pricing", "GetProducts", _PRICES, {"ServiceCode": "AmazonEC2", "MaxResults": 1})
    scored = {"InstanceTypes": [_TYPE], "TargetCapacity": 1, "SingleAvailabilityZone": True}
    yield _Call("ec2", "GetSpotPlacementScores", "placement scores", {**scored, "DryRun": True})
    block = {"InstanceType": "p5.48xlarge", "InstanceCount": 1, "CapacityDurationHours": 24}
    yield _Call("ec2", "DescribeCapacityBlockOfferings", "capacity blocks for sale", {**block, "DryRun": True})
    yield _Call("ec2", "DescribeCapacityReservations", "reserved capacity", {"MaxResults": 1})
    yield _Call("service-quotas", "ListServiceQuotas", "quotas", {"ServiceCode": "ec2", "MaxResults": 1})
    if queue_url:
        receive = {"QueueUrl": queue_url, "MaxNumberOfMessages": 1, "VisibilityTimeout": 0, "WaitTimeSeconds": 0}
        yield _Call("sqs", "ReceiveMessage", "interruption notices", receive)


def diagnose(session: Session, account: Once[AwsAccount | ProviderError], files: PublicFiles) -> Diagnosis:
    """Return the diagnosis. Raises nothing.

    The clock comes from whatever answered, refusals too: a request from a clock that is far off is refused.
    """
    checks: list[CallCheck] = []
    seconds: list[float] = []

    def check(permission: str, needed_for: str, ask: Callable[[], float]) -> None:
        checks.append(check_call(permission, needed_for, lambda: seconds.append(ask())))

    identity: str | None = None
    identity_error: ProviderError | None = None
    try:
        opened = account.get()
    except ProviderError as error:
        opened = error
    if isinstance(opened, AwsAccount):
        try:
            who = opened.client.identity()
            identity = f"{who.get('Arn')} (account {who.get('Account')})"
        except ProviderError as error:
            identity_error = error
        checks.append(CallCheck("sts:GetCallerIdentity", "who we are", identity_error))
        for call in _calls(session.now, session.settings.options.get("notice_queue_url")):
            probe = partial(opened.client.probe, call.service, call.action, **call.parameters)
            check(call.permission, call.needed_for, probe)
    elif not isinstance(opened, AccountNotUsedError):
        identity_error = opened
    check(_PRICE_LIST, "on-demand prices without an account", files.probe_price_list)
    check(_ADVISOR, "interruption bands, and estimated spot prices without an account", files.probe_advisor)
    return Diagnosis(
        identity=identity,
        identity_error=identity_error,
        checks=tuple(checks),
        clock_ahead=session.caller.clock_ahead(session.now),
        latency=timedelta(seconds=min(seconds)) if seconds else None,
        sources=tuple(_sources(checks, isinstance(opened, AwsAccount))),
    )


def _sources(checks: Iterable[CallCheck], account: bool) -> Iterator[str]:
    works = {check.permission for check in checks if check.error is None}
    if {"ec2:DescribeRegions", "ec2:DescribeInstanceTypeOfferings", "pricing:GetProducts"} <= works:
        yield "on-demand prices per zone, from the Price List API"
    elif _PRICE_LIST in works and not account:
        yield "on-demand prices by region, from the public price list"
    if {"ec2:DescribeRegions", "ec2:DescribeSpotPriceHistory"} <= works:
        yield "spot prices per zone and their history, from EC2"
    elif {_PRICE_LIST, _ADVISOR} <= works and not account:
        yield "spot prices estimated from the Spot Advisor's savings (weak)"
    if "ec2:GetSpotPlacementScores" in works:
        yield "placement scores, from EC2"
    if {"servicequotas:ListServiceQuotas", "ec2:DescribeCapacityReservations"} <= works:
        yield "quotas and reserved capacity"
    if _ADVISOR in works:
        yield "interruption bands, from the public Spot Advisor file"
    if not works:
        yield "nothing: no source could be reached or is permitted"
