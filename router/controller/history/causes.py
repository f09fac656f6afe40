"""Classify from Terraform's diagnostics why machines could not be provisioned. Pure.

The patterns are the clouds' own error codes, as their APIs document them; what matches none of them is ``failed``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from terraform.errors import (
    EngineMissingError,
    EngineTooOldError,
    InitFailedError,
    RunDirectoryError,
    RunError,
    StateLockedError,
    StateLostError,
    StoppedError,
    TerraformError,
    TimedOutError,
)


class FailureCause(StrEnum):
    """Why a gang could not be provisioned; the value is stored as an attempt's ``reason``."""

    SHORT = "short"
    QUOTA = "quota"
    PRICE = "price"
    CREDENTIALS = "credentials"
    THROTTLED = "throttled"
    UNHEALTHY = "unhealthy"
    STOPPED = "stopped"
    JOB = "job"
    HERE = "here"
    FAILED = "failed"

    @property
    def tries_elsewhere(self) -> bool:
        """Return whether another placement may help; false when the fault lies with us or with the job."""
        return self not in (FailureCause.CREDENTIALS, FailureCause.STOPPED, FailureCause.HERE, FailureCause.JOB)

    @property
    def is_the_pools(self) -> bool:
        """Return whether the pool is to be remembered as short."""
        return self in (FailureCause.SHORT, FailureCause.QUOTA, FailureCause.UNHEALTHY, FailureCause.PRICE)


# Sources: EC2 API error codes, Compute Engine resource error messages, Azure allocation and quota errors, and what
# their Terraform providers print of them; on Google Cloud that is the message without its code.
_PATTERNS: Final[Mapping[FailureCause, str]] = {
    FailureCause.CREDENTIALS: (
        r"UnauthorizedOperation|AuthFailure|InvalidClientTokenId|ExpiredToken|RequestExpired|SignatureDoesNotMatch"
        r"|AccessDenied|[Nn]o valid credential sources|failed to refresh cached credentials|OptInRequired"
        r"|could not find default credentials|PERMISSION_DENIED|UNAUTHENTICATED|invalid_grant|SERVICE_DISABLED"
        r"|accessNotConfigured|Required '[\w.]+' permission|AuthorizationFailed|InvalidAuthenticationToken"
        r"|unable to build authorizer|AADSTS\d+"
    ),
    FailureCause.SHORT: (
        r"Insufficient\w*Capacity|Insufficient capacity|ReservationCapacityExceeded|UnfulfillableCapacity"
        r"|ZONE_RESOURCE_POOL_EXHAUSTED|does not have enough resources available|STOCKOUT"
        r"|VM instance[^.]* is currently unavailable in the"
        r"|SkuNotAvailable|[Tt]he requested (VM )?size for resource[^\n]* is currently not available|AllocationFailed"
        r"|OverconstrainedAllocation|OverconstrainedZonalAllocation|instance-terminated-no-capacity"
        r"|capacity-not-available|capacity-oversubscribed"
    ),
    FailureCause.QUOTA: (
        r"VcpuLimitExceeded|InstanceLimitExceeded|MaxSpotInstanceCountExceeded|LimitExceededException|QUOTA_EXCEEDED"
        r"|Quota '[\w-]+' exceeded|Quota limit '[\w-]+' has been exceeded|QuotaExceeded|quotaExceeded"
        r"|exceeding approved .* [Qq]uota|exceeding quota limits|without additional quota|AddressLimitExceeded"
        r"|VpcLimitExceeded"
    ),
    FailureCause.PRICE: r"SpotMaxPriceTooLow|price-too-low|instance-(?:terminated|stopped)-by-price",
    FailureCause.THROTTLED: (
        r"RequestLimitExceeded|Throttling|rateLimitExceeded|TooManyRequests|429 Too Many Requests|RequestsThrottled"
        r"|RATE_LIMIT_EXCEEDED|SlowDown"
    ),
}
# Patterns match whole words only: a job may be named no-capacity-not-available or stockout.
_COMPILED: Final[Mapping[FailureCause, re.Pattern[str]]] = {
    cause: re.compile(rf"(?<![\w-])(?:\w*(?:{words}))(?!-[a-z0-9])") for cause, words in _PATTERNS.items()
}
_DISK_FULL = re.compile(r"[Nn]o space left on device|[Dd]isk quota exceeded")


def cause_of(error: TerraformError) -> FailureCause:
    """Return the cause of an error of the Terraform runner."""
    if isinstance(error, EngineMissingError | EngineTooOldError | RunDirectoryError | StateLostError | InitFailedError):
        return FailureCause.HERE
    if isinstance(error, StateLockedError):
        return FailureCause.HERE
    if isinstance(error, StoppedError):
        return FailureCause.STOPPED
    if isinstance(error, RunError):
        text = " ".join(f"{d.summary} {d.detail}" for d in error.diagnostics if d.is_error)
        if _DISK_FULL.search(text):
            return FailureCause.HERE
        cause = cause_in(text)
        if cause is not None:
            return cause
    return FailureCause.UNHEALTHY if isinstance(error, TimedOutError) else FailureCause.FAILED


def cause_in(text: str) -> FailureCause | None:
    """Return the cause that a cloud's own words in the text name; None where they name none."""
    return next((cause for cause, pattern in _COMPILED.items() if pattern.search(text)), None)
