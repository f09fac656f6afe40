"""Why machines could not be made, from what Terraform's diagnostics say. Pure.

The words are the clouds' own error codes, as their APIs document them; what none of them fits is ``failed``.
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


class Cause(StrEnum):
    """Why; the value is what an attempt's ``reason`` says."""

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
        """Whether another place may help: not when the trouble is ours, or the job's."""
        return self not in (Cause.CREDENTIALS, Cause.STOPPED, Cause.HERE, Cause.JOB)

    @property
    def is_the_pools(self) -> bool:
        """Whether the pool is to be remembered as short."""
        return self in (Cause.SHORT, Cause.QUOTA, Cause.UNHEALTHY, Cause.PRICE)


# Sources: EC2 API error codes; Compute Engine resource error messages; Azure allocation and quota errors.
_WORDS: Final[Mapping[Cause, str]] = {
    Cause.CREDENTIALS: (
        r"UnauthorizedOperation|AuthFailure|InvalidClientTokenId|ExpiredToken|SignatureDoesNotMatch|AccessDenied"
        r"|No valid credential sources|could not find default credentials|PERMISSION_DENIED|AuthorizationFailed"
        r"|InvalidAuthenticationToken|unable to build authorizer|OptInRequired"
    ),
    Cause.SHORT: (
        r"Insufficient\w*Capacity|Insufficient capacity|ReservationCapacityExceeded|ZONE_RESOURCE_POOL_EXHAUSTED"
        r"|stockout|resource pool exhausted|SkuNotAvailable|AllocationFailed|ZonalAllocationFailed"
        r"|OverconstrainedAllocation|OverconstrainedZonalAllocation|no capacity|SpotPreempted|capacity-not-available"
        r"|instance-terminated-no-capacity|UnfulfillableCapacity"
    ),
    Cause.QUOTA: (
        r"VcpuLimitExceeded|InstanceLimitExceeded|MaxSpotInstanceCountExceeded|LimitExceededException|QUOTA_EXCEEDED"
        r"|Quota '\w+' exceeded|QuotaExceeded|quotaExceeded|exceeding approved .* [Qq]uota|AddressLimitExceeded"
        r"|VpcLimitExceeded"
    ),
    Cause.PRICE: r"SpotMaxPriceTooLow|price-too-low",
    Cause.THROTTLED: r"RequestLimitExceeded|Throttling|rateLimitExceeded|TooManyRequests|RATE_LIMIT_EXCEEDED|SlowDown",
}


def cause_of(error: TerraformError) -> Cause:
    """The cause of an error of the runner."""
    if isinstance(error, EngineMissingError | EngineTooOldError | RunDirectoryError | StateLostError | InitFailedError):
        return Cause.HERE
    if isinstance(error, StateLockedError):
        return Cause.HERE
    if isinstance(error, StoppedError):
        return Cause.STOPPED
    if isinstance(error, RunError):
        said = " ".join(f"{d.summary} {d.detail}" for d in error.diagnostics if d.is_error)
        if "o space left on device" in said:
            return Cause.HERE
        for cause, words in _WORDS.items():
            if re.search(words, said):
                return cause
    return Cause.UNHEALTHY if isinstance(error, TimedOutError) else Cause.FAILED
