"""Table from Google's error codes and reasons to provider errors.

The words are the ``reason`` of ``error.errors[]`` (Compute Engine), the ``status`` and ``details[].reason`` of
google.rpc (Cloud Billing), and the codes of failed operations, as the public error references list them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
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

_THROTTLED = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "concurrentLimitExceeded", "RATE_LIMIT_EXCEEDED"}
    | {"RESOURCE_EXHAUSTED", "OPERATION_RATE_EXCEEDED", "RESOURCE_OPERATION_RATE_EXCEEDED"}
)
_QUOTA = frozenset({"quotaExceeded", "QUOTA_EXCEEDED", "dailyLimitExceeded", "limitExceeded"})
_SIGNED_OUT = frozenset(
    {"authError", "required", "UNAUTHENTICATED", "ACCESS_TOKEN_EXPIRED", "ACCESS_TOKEN_TYPE_UNSUPPORTED"}
    | {"CREDENTIALS_MISSING", "ACCOUNT_STATE_INVALID", "invalidCredentials", "expired", "invalid_grant"}
)
_API_OFF = frozenset({"accessNotConfigured", "SERVICE_DISABLED", "API_DISABLED"})
_NO_BILLING = frozenset({"BILLING_DISABLED", "billingNotEnabled"})
_SCOPE = frozenset({"ACCESS_TOKEN_SCOPE_INSUFFICIENT", "insufficientScopes"})
_FORBIDDEN = frozenset(
    {"forbidden", "insufficientPermissions", "PERMISSION_DENIED", "IAM_PERMISSION_DENIED", "USER_PROJECT_DENIED"}
)
_EXHAUSTED = frozenset(
    {"ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "STOCKOUT"}
    | {"REGION_RESOURCE_POOL_EXHAUSTED", "resourcePoolExhausted", "insufficientCapacity"}
)
_REGION_OFF = frozenset({"LOCATION_POLICY_VIOLATED", "locationPolicyViolated", "LOCATION_NOT_AVAILABLE"})
_TRANSIENT = frozenset(
    {"backendError", "internalError", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "serverError"}
)
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
        return _region_off(cloud, failure, code)
    for words, make in _TABLE:
        found = next((word for word in failure.codes if word in words), "")
        if found:
            return make(cloud, failure, found)
    return _by_status(cloud, failure, code)


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


def _by_status(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    status = failure.status
    if status == 401:
        return _signed_out(cloud, failure, code)
    if status == 403:
        return _forbidden(cloud, failure, code)
    if status in (404, 410):
        return NotForSaleError(cloud, failure.subject, code=code)
    if status == 429:
        return _throttled(cloud, failure, code)
    if status in (408, 409) or status >= 500:
        return _transient(cloud, failure, code)
    return ProviderError(cloud, failure.subject, code=code)


def _throttled(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    wait = parse_retry_after(failure.retry_after, failure.date)
    return ThrottledError(cloud, failure.subject, retry_after_s=wait, code=code)


def _transient(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    wait = parse_retry_after(failure.retry_after, failure.date)
    if wait is not None:  # A 503 that says when to come back is treated as a 429.
        return ThrottledError(cloud, failure.subject, retry_after_s=wait, code=code)
    return TransientError(cloud, failure.subject, code=code)


def _signed_out(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    return CredentialsError(cloud, f"{failure.subject}: the token is not accepted", code=code, remedy=SIGN_IN)


def _forbidden(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    hint = f"(providers/gcp/{failure.role} holds all of them)"
    remedy = f"grant {failure.permission} {hint}" if failure.permission else ""
    return PermissionDeniedError(cloud, failure.subject, permission=failure.permission, code=code, remedy=remedy)


def _api_off(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    remedy = f"gcloud services enable {failure.api}"
    return PermissionDeniedError(
        cloud, f"{failure.subject}: {failure.api} is not switched on in the project", code=code, remedy=remedy
    )


def _no_billing(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    return PermissionDeniedError(
        cloud, f"{failure.subject}: the project has no billing account", code=code, remedy="link a billing account"
    )


def _scope(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    remedy = "sign in again with the scope https://www.googleapis.com/auth/cloud-platform"
    return PermissionDeniedError(
        cloud, failure.subject, permission="https://www.googleapis.com/auth/cloud-platform", code=code, remedy=remedy
    )


def _region_off(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    return RegionOffError(cloud, failure.subject, code=code, remedy="ask for access to the region in the project")


def _quota(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    return QuotaError(cloud, failure.subject, code=code, remedy="ask for more quota in the project")


def _exhausted(cloud: str, failure: GcpFailure, code: str) -> ProviderError:
    return NoCapacityError(cloud, failure.subject, code=code)


_Make = Callable[[str, GcpFailure, str], ProviderError]
# The first match wins: a 403 may say both "forbidden" and that the API is off.
_TABLE: tuple[tuple[frozenset[str], _Make], ...] = (
    (_EXHAUSTED, _exhausted),
    (_API_OFF, _api_off),
    (_NO_BILLING, _no_billing),
    (_SCOPE, _scope),
    (_REGION_OFF, _region_off),
    (_SIGNED_OUT, _signed_out),
    (_QUOTA, _quota),
    (_THROTTLED, _throttled),
    (_FORBIDDEN, _forbidden),
    (_TRANSIENT, _transient),
)
