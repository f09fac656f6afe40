"""Table from AWS error codes and SDK exception names to provider errors. Pure.

Codes: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, and the common errors of the Price
List, Service Quotas, STS and SQS APIs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from providers.caller import parse_http_date
from providers.errors import (
    CredentialsError,
    NoCapacityError,
    NotForSaleError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RegionOffError,
    ThrottledError,
    TransientError,
    UnreadableError,
    index_words,
)

_CODES: Mapping[type[ProviderError], str] = {
    CredentialsError: """
        AuthFailure ExpiredToken ExpiredTokenException IncompleteSignature IncompleteSignatureException
        InvalidAccessKeyId InvalidClientTokenId InvalidSignatureException MissingAuthenticationToken
        MissingAuthenticationTokenException RequestExpired RequestTimeTooSkewed SignatureDoesNotMatch
        UnrecognizedClientException""",
    PermissionDeniedError: """
        AccessDenied AccessDeniedException Blocked DependencyAccessDeniedException NotAuthorized PendingVerification
        UnauthorizedOperation""",
    ThrottledError: """
        BandwidthLimitExceeded EC2ThrottledException LimitExceededException RequestLimitExceeded RequestThrottled
        RequestThrottledException SlowDown ThrottledException Throttling ThrottlingException
        TooManyRequestsException""",
    RegionOffError: "OptInRequired RegionDisabledException",
    NotForSaleError: "InvalidInstanceType Unsupported UnsupportedOperation",
    NoCapacityError: """
        InsufficientCapacity InsufficientHostCapacity InsufficientInstanceCapacity InsufficientReservedInstanceCapacity
        ReservationCapacityExceeded UnfulfillableCapacity""",
    QuotaError: """
        InstanceLimitExceeded MaxConfigLimitExceeded MaxSpotInstanceCountExceeded ResourceLimitExceeded
        VcpuLimitExceeded""",
    TransientError: """
        InternalError InternalErrorException InternalFailure InternalServerError RequestTimeout
        RequestTimeoutException ServerInternal ServiceException ServiceUnavailable ServiceUnavailableException
        Unavailable""",
}

# Names of botocore, urllib3 and requests. An exception is known by the first name in its chain that is listed here.
_EXCEPTIONS: Mapping[type[ProviderError], str] = {
    CredentialsError: """
        ConfigParseError CredentialRetrievalError InvalidConfigError LoginRefreshRequired NoAuthTokenError
        NoCredentialsError PartialCredentialsError ProfileNotFound SSOError SSOTokenLoadError TokenRetrievalError
        UnauthorizedSSOTokenError UnknownCredentialError""",
    NotReachedError: """
        ConnectTimeout ConnectTimeoutError EndpointConnectionError NameResolutionError NewConnectionError
        ProxyConnectionError ProxyError SSLError""",
    UnreadableError: """
        ChunkedEncodingError ContentDecodingError DecodeError IncompleteRead IncompleteReadError JSONDecodeError
        ParseError ResponseParserError ResponseStreamingError UnicodeDecodeError""",
    TransientError: """
        ConnectionClosedError ConnectionResetError HTTPClientError ProtocolError ReadTimeout ReadTimeoutError
        RemoteDisconnected""",
}

BY_CODE = index_words(_CODES)
BY_EXCEPTION = index_words(_EXCEPTIONS)

_CLOCK_CODES = frozenset({"RequestExpired", "RequestTimeTooSkewed"})
_CLOCK = "set this machine's clock (it may differ from the cloud's by minutes), or renew the credentials"
_RENEW = "renew the credentials: the cloud does not accept them, or no longer"
FIND_CREDENTIALS = "give credentials as for the `aws` command (environment, profile, SSO or a role)"
_FIND = "see `aws configure list` for what is found, and where"


def from_code(
    cloud: str,
    what: str,
    code: str,
    *,
    status: int = 0,
    permission: str = "",
    retry_after_s: float | None = None,
    policy: str = "policy.json",
) -> ProviderError:
    """Return the error for a refusal with ``code``; an unknown code is judged by its HTTP ``status``.

    ``what`` says what was asked and where; ``permission`` is what the IAM policy calls it, ``policy`` the file beside
    this one that grants it.
    """
    kind = BY_CODE.get(code) or _by_status(status)
    if kind is ThrottledError:
        return ThrottledError(cloud, what, retry_after_s=retry_after_s, code=code)
    if kind is PermissionDeniedError:
        remedy = f"allow {permission} as providers/aws/{policy} does" if permission else ""
        return PermissionDeniedError(cloud, what, permission=permission, code=code, remedy=remedy)
    if kind is CredentialsError:
        return CredentialsError(cloud, what, code=code, remedy=_CLOCK if code in _CLOCK_CODES else _RENEW)
    if kind is RegionOffError:
        return RegionOffError(cloud, what, code=code, remedy="enable the region in the account's settings")
    return kind(cloud, what, code=code)


def from_exception(cloud: str, what: str, names: Iterable[str]) -> ProviderError:
    """Return the error for an exception without a code, by the class names of it and of its causes."""
    chain = tuple(names)
    for name in chain:
        kind = BY_EXCEPTION.get(name)
        if kind is not None:
            remedy = _FIND if kind is CredentialsError else ""
            return kind(cloud, what, code=name, remedy=remedy)
    return ProviderError(cloud, what, code=chain[0] if chain else "")


def parse_server_time(date: str | None, age: str | None = None) -> datetime | None:
    """Return the moment of a ``Date`` header, plus the ``Age`` of an answer from a cache; None without one."""
    at = parse_http_date(date)
    try:
        return None if at is None else at + timedelta(seconds=int(age or 0))
    except (ValueError, OverflowError):
        return None


def _by_status(status: int) -> type[ProviderError]:
    if status >= 500:
        return TransientError
    return {401: CredentialsError, 403: PermissionDeniedError, 429: ThrottledError}.get(status, ProviderError)
