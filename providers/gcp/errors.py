"""Table from Google's error codes and reasons to provider errors.

The words are the ``reason`` of ``error.errors[]`` (Compute Engine), the ``status`` and ``details[].reason`` of
google.rpc (Cloud Billing), and the codes of failed operations, as the public error references list them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from providers.caller import parse_retry_after
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
)


class FailureKind(Enum):
    """The kind of a failure, which the client derives from the exception's type."""

    ANSWER = auto()  # The service answered, with an error.
    NO_IDENTITY = auto()  # No credentials were found.
    REFUSED_IDENTITY = auto()  # Credentials were found and gave no token.
    NO_CONNECTION = auto()
    BROKEN_CONNECTION = auto()
    UNREADABLE = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class GcpFailure:
    """One failed call as plain facts.

    ``codes`` are the service's words for it, the most specific first; ``message`` is examined and never shown, since it
    may repeat what was sent.
    """

    kind: FailureKind
    subject: str
    status: int = 0
    codes: tuple[str, ...] = ()
    message: str = ""
    retry_after: str = ""
    date: str = ""
    permission: str = ""
    api: str = ""
    role: str = "role.yaml"


SIGN_IN = (
    "sign in with `gcloud auth application-default login`, or name a service account's key file in "
    "GOOGLE_APPLICATION_CREDENTIALS"
)
# Google has no price list that can be read without an account; catalogue files hold its public prices.
WITHOUT_ACCOUNT = (
    "or take Google's public prices from gpuhunt's catalogue, a file, with `stepfare prices import FILE` "
    "(SkyPilot's prices machines and accelerators apart)"
)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The error that some of Google's words mean, with what it adds to the subject, its remedy and its permission."""

    kind: type[ProviderError]
    words: frozenset[str] = frozenset()
    more: str = ""
    remedy: str = ""
    permission: str = ""


_CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
_REGION_OFF = _Meaning(
    RegionOffError,
    frozenset({"LOCATION_POLICY_VIOLATED", "locationPolicyViolated", "LOCATION_NOT_AVAILABLE"}),
    remedy="ask for access to the region in the project",
)
_SIGNED_OUT = _Meaning(
    CredentialsError,
    frozenset({"authError", "required", "UNAUTHENTICATED", "ACCESS_TOKEN_EXPIRED", "ACCESS_TOKEN_TYPE_UNSUPPORTED"})
    | {"CREDENTIALS_MISSING", "ACCOUNT_STATE_INVALID", "invalidCredentials", "expired", "invalid_grant"},
    ": the token is not accepted",
    SIGN_IN,
)
_THROTTLED = _Meaning(
    ThrottledError,
    frozenset({"rateLimitExceeded", "userRateLimitExceeded", "concurrentLimitExceeded", "RATE_LIMIT_EXCEEDED"})
    | {"RESOURCE_EXHAUSTED", "OPERATION_RATE_EXCEEDED", "RESOURCE_OPERATION_RATE_EXCEEDED"},
)
_FORBIDDEN = _Meaning(
    PermissionDeniedError,
    frozenset({"forbidden", "insufficientPermissions", "PERMISSION_DENIED", "IAM_PERMISSION_DENIED"})
    | {"USER_PROJECT_DENIED"},
    remedy="grant {failure.permission} (providers/gcp/{failure.role} holds all of them)",
    permission="{failure.permission}",
)
_TRANSIENT = _Meaning(
    TransientError,
    frozenset({"backendError", "internalError", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED"})
    | {"serverError"},
)
_NOT_FOR_SALE, _OTHER = _Meaning(NotForSaleError), _Meaning(ProviderError)
# The first match wins: a 403 may say both "forbidden" and that the API is off.
_MEANINGS = (
    _Meaning(
        NoCapacityError,
        frozenset({"ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "STOCKOUT"})
        | {"REGION_RESOURCE_POOL_EXHAUSTED", "resourcePoolExhausted", "insufficientCapacity"},
    ),
    _Meaning(
        PermissionDeniedError,
        frozenset({"accessNotConfigured", "SERVICE_DISABLED", "API_DISABLED"}),
        ": {failure.api} is not switched on in the project",
        "gcloud services enable {failure.api}",
    ),
    _Meaning(
        PermissionDeniedError,
        frozenset({"BILLING_DISABLED", "billingNotEnabled"}),
        ": the project has no billing account",
        "link a billing account",
    ),
    _Meaning(
        PermissionDeniedError,
        frozenset({"ACCESS_TOKEN_SCOPE_INSUFFICIENT", "insufficientScopes"}),
        remedy=f"sign in again with the scope {_CLOUD_PLATFORM}",
        permission=_CLOUD_PLATFORM,
    ),
    _REGION_OFF,
    _SIGNED_OUT,
    _Meaning(
        QuotaError,
        frozenset({"quotaExceeded", "QUOTA_EXCEEDED", "dailyLimitExceeded", "limitExceeded"}),
        remedy="ask for more quota in the project",
    ),
    _THROTTLED,
    _FORBIDDEN,
    _TRANSIENT,
)
_BY_STATUS = {
    401: _SIGNED_OUT,
    403: _FORBIDDEN,
    404: _NOT_FOR_SALE,
    408: _TRANSIENT,
    409: _TRANSIENT,
    410: _NOT_FOR_SALE,
    429: _THROTTLED,
}
_LOCATION = re.compile(r"on '?locations/|[Uu]nknown (zone|region)\b|/(zones|regions)/[a-z0-9-]+'? was not found")


# Names of exception classes of google-auth, requests, urllib3 and protobuf; the first group that has one wins.
_KINDS: tuple[tuple[FailureKind, frozenset[str]], ...] = (
    # The token cannot be renewed; in google-auth that is a DefaultCredentialsError as well.
    (FailureKind.REFUSED_IDENTITY, frozenset({"InvalidOperation"})),
    (FailureKind.NO_IDENTITY, frozenset({"DefaultCredentialsError"})),
    (
        FailureKind.NO_CONNECTION,
        frozenset({"NewConnectionError", "ConnectTimeout", "ConnectTimeoutError", "ProxyError", "SSLError"}),
    ),
    (
        FailureKind.UNREADABLE,
        frozenset({"ParseError", "JSONDecodeError", "ChunkedEncodingError", "ContentDecodingError", "DecodeError"}),
    ),
    (FailureKind.BROKEN_CONNECTION, frozenset({"TransportError", "ConnectionError", "Timeout"})),
    (FailureKind.REFUSED_IDENTITY, frozenset({"GoogleAuthError"})),
)
_WORD = re.compile(r"\w{1,64}")


def classify_exception(names: Collection[str]) -> FailureKind:
    """Return the kind of an exception that is no answer, by the names of its classes and its causes'."""
    return next((kind for kind, known in _KINDS if not known.isdisjoint(names)), FailureKind.OTHER)


def parse_error_body(body: str) -> tuple[tuple[str, ...], str]:
    """Return the codes in the body of an error answer, the most specific first, and its message."""
    try:
        error = json.loads(body)["error"]
        entries = [*error.get("details", ()), *error.get("errors", ())]
        words = [entry.get("reason") for entry in entries] + [error.get("status")]
        message = str(error.get("message", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return (), ""
    return tuple(word for word in words if isinstance(word, str) and _WORD.fullmatch(word)), message


def to_error(cloud: str, failure: GcpFailure) -> ProviderError:
    """Return the provider error for a failed call.

    Its text holds the call and Google's code, never Google's message.
    """
    code = failure.codes[0] if failure.codes else (str(failure.status) if failure.status else "")
    if failure.kind is not FailureKind.ANSWER:
        return _unanswered(cloud, failure, code)
    if failure.status in (400, 403, 404) and _LOCATION.search(failure.message):
        return _make(cloud, failure, _REGION_OFF, code)
    for meaning in _MEANINGS:
        found = next((word for word in failure.codes if word in meaning.words), "")
        if found:
            return _make(cloud, failure, meaning, found)
    unknown = _TRANSIENT if failure.status >= 500 else _OTHER
    return _make(cloud, failure, _BY_STATUS.get(failure.status, unknown), code)


def _unanswered(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    subject = failure.subject
    match failure.kind:
        case FailureKind.NO_IDENTITY:
            return CredentialsError(
                cloud, "no Google credentials were found", none_found=True, remedy=f"{SIGN_IN}; {WITHOUT_ACCOUNT}"
            )
        case FailureKind.REFUSED_IDENTITY:
            what = f"{subject}: Google does not accept the credentials that were found"
            return CredentialsError(cloud, what, code=code, remedy=SIGN_IN)
        case FailureKind.NO_CONNECTION:
            return NotReachedError(cloud, subject, code=code)
        case FailureKind.BROKEN_CONNECTION:
            return TransientError(cloud, f"{subject}: the connection broke", code=code)
        case FailureKind.UNREADABLE:
            return UnreadableError(cloud, subject, code=code)
        case _:
            return ProviderError(cloud, subject, code=code)


def _make(cloud: str, failure: GcpFailure, meaning: _Meaning, code: str) -> ProviderError:
    what = failure.subject + meaning.more.format(failure=failure)
    wait = parse_retry_after(failure.retry_after, failure.date)
    # A 503 that says when to come back is treated as a 429.
    if meaning.kind is ThrottledError or (meaning.kind is TransientError and wait is not None):
        return ThrottledError(cloud, what, retry_after_s=wait, code=code)
    permission = meaning.permission.format(failure=failure)
    remedy = "" if meaning.permission and not permission else meaning.remedy.format(failure=failure)
    if meaning.kind is PermissionDeniedError:
        return PermissionDeniedError(cloud, what, permission=permission, code=code, remedy=remedy)
    return meaning.kind(cloud, what, code=code, remedy=remedy)
