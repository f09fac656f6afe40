"""Google's codes to our errors: bodies as Compute Engine and google.rpc word them."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
from providers.gcp.errors import (
    FailureKind,
    GcpFailure,
    classify_exception,
    parse_error_body,
    to_error,
)

SECRET = "ya29.a-token"


def body(reason: str = "", status: str = "", detail: str = "", message: str = SECRET) -> str:
    error: dict[str, Any] = {"code": 400, "message": message}
    if reason:
        error["errors"] = [{"message": message, "domain": "global", "reason": reason}]
    if status:
        error["status"] = status
    if detail:
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": detail}]
    return json.dumps({"error": error})


def answered(status: int, text: str, **more: str) -> ProviderError:
    codes, message = parse_error_body(text)
    api = "compute.googleapis.com"
    failure = GcpFailure(
        FailureKind.ANSWER, "regions.list", status, codes, message, permission="compute.regions.list", api=api
    )
    changed = {name: getattr(failure, name) for name in failure.__slots__} | more
    return to_error("gcp", GcpFailure(**changed))


@pytest.mark.parametrize(
    ("status", "text", "kind", "code"),
    [
        (403, body("rateLimitExceeded"), ThrottledError, "rateLimitExceeded"),
        (429, body("rateLimitExceeded", "RESOURCE_EXHAUSTED"), ThrottledError, "rateLimitExceeded"),
        (429, body(status="RESOURCE_EXHAUSTED", detail="RATE_LIMIT_EXCEEDED"), ThrottledError, "RATE_LIMIT_EXCEEDED"),
        (429, "", ThrottledError, "429"),
        (403, body("quotaExceeded"), QuotaError, "quotaExceeded"),
        (403, body(detail="QUOTA_EXCEEDED", status="RESOURCE_EXHAUSTED"), QuotaError, "QUOTA_EXCEEDED"),
        (401, body("authError", "UNAUTHENTICATED"), CredentialsError, "authError"),
        (401, body(status="UNAUTHENTICATED", detail="ACCESS_TOKEN_EXPIRED"), CredentialsError, "ACCESS_TOKEN_EXPIRED"),
        (401, "<html>", CredentialsError, "401"),
        (403, body("forbidden", "PERMISSION_DENIED"), PermissionDeniedError, "forbidden"),
        (403, "", PermissionDeniedError, "403"),
        (403, body("accessNotConfigured", detail="SERVICE_DISABLED"), PermissionDeniedError, "SERVICE_DISABLED"),
        (403, body(detail="BILLING_DISABLED", status="PERMISSION_DENIED"), PermissionDeniedError, "BILLING_DISABLED"),
        (404, body("notFound", message="Machine type x is not found"), NotForSaleError, "notFound"),
        (400, body("invalid"), ProviderError, "invalid"),
        (503, body(detail="ZONE_RESOURCE_POOL_EXHAUSTED"), NoCapacityError, "ZONE_RESOURCE_POOL_EXHAUSTED"),
        (
            503,
            body("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
            NoCapacityError,
            "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        ),
        (500, body("internalError"), TransientError, "internalError"),
        (503, body("backendError", "UNAVAILABLE"), TransientError, "backendError"),
        (504, "upstream timed out", TransientError, "504"),
        (412, body(detail="LOCATION_POLICY_VIOLATED"), RegionOffError, "LOCATION_POLICY_VIOLATED"),
    ],
)
def test_answers(status: int, text: str, kind: type[ProviderError], code: str) -> None:
    error = answered(status, text)
    assert type(error) is kind
    assert error.code == code
    assert "regions.list" in str(error)
    assert SECRET not in str(error) + repr(error) + error.remedy


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (403, "forbidden", "Permission denied on 'locations/me-central2' (or it may not exist)."),
        (400, "invalid", "Invalid value for field 'zone': 'me-central2-a'. Unknown zone."),
        (404, "notFound", "The resource 'projects/p/zones/me-central2-a' was not found"),
        (404, "notFound", "The resource 'projects/p/regions/me-central2' was not found"),
    ],
)
def test_a_place_that_the_project_does_not_have(status: int, reason: str, message: str) -> None:
    assert type(answered(status, body(reason, message=message))) is RegionOffError


def test_a_missing_permission_is_named() -> None:
    error = answered(403, body("forbidden"))
    assert isinstance(error, PermissionDeniedError)
    assert error.permission == "compute.regions.list"
    assert "role.yaml" in error.remedy


def test_an_api_that_is_off_is_no_missing_permission() -> None:
    error = answered(403, body("accessNotConfigured", detail="SERVICE_DISABLED"))
    assert isinstance(error, PermissionDeniedError)
    assert (error.permission, error.remedy) == ("", "gcloud services enable compute.googleapis.com")


def test_a_narrow_token_wants_a_wider_one() -> None:
    error = answered(403, body("insufficientPermissions", detail="ACCESS_TOKEN_SCOPE_INSUFFICIENT"))
    assert isinstance(error, PermissionDeniedError)
    assert "cloud-platform" in error.permission


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_heeded(status: int) -> None:
    error = answered(status, "", retry_after="7")
    assert isinstance(error, ThrottledError)
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"error": "no"}', '{"error": {"errors": 3}}', '{"error": {"errors": [3]}}']
)
def test_bodies_of_no_known_form_hold_no_words(text: str) -> None:
    assert parse_error_body(text) == ((), "")


def test_a_code_that_is_no_word_is_not_repeated() -> None:
    assert parse_error_body(body(f"Bearer {SECRET}"))[0] == ()


@pytest.mark.parametrize(
    ("names", "kind", "error"),
    [
        ({"DefaultCredentialsError", "GoogleAuthError"}, FailureKind.NO_IDENTITY, CredentialsError),
        ({"RefreshError", "GoogleAuthError"}, FailureKind.REFUSED_IDENTITY, CredentialsError),
        (
            {"InvalidOperation", "DefaultCredentialsError", "GoogleAuthError"},
            FailureKind.REFUSED_IDENTITY,
            CredentialsError,
        ),
        ({"TransportError", "GoogleAuthError", "ConnectionError"}, FailureKind.BROKEN_CONNECTION, TransientError),
        (
            {"ConnectionError", "MaxRetryError", "NameResolutionError", "NewConnectionError"},
            FailureKind.NO_CONNECTION,
            NotReachedError,
        ),
        ({"ConnectTimeout", "ConnectionError", "Timeout"}, FailureKind.NO_CONNECTION, NotReachedError),
        ({"SSLError", "ConnectionError"}, FailureKind.NO_CONNECTION, NotReachedError),
        ({"ReadTimeout", "Timeout"}, FailureKind.BROKEN_CONNECTION, TransientError),
        ({"ConnectionError", "ProtocolError"}, FailureKind.BROKEN_CONNECTION, TransientError),
        ({"ChunkedEncodingError", "ProtocolError"}, FailureKind.UNREADABLE, UnreadableError),
        ({"ParseError"}, FailureKind.UNREADABLE, UnreadableError),
        ({"JSONDecodeError", "ValueError"}, FailureKind.UNREADABLE, UnreadableError),
        ({"KeyError", "LookupError"}, FailureKind.OTHER, ProviderError),
    ],
)
def test_exceptions_that_are_no_answer(names: set[str], kind: FailureKind, error: type[ProviderError]) -> None:
    assert classify_exception(names) is kind
    assert type(to_error("gcp", GcpFailure(kind, "regions.list"))) is error


def test_without_an_identity_the_remedy_says_what_to_do() -> None:
    error = to_error("gcp", GcpFailure(FailureKind.NO_IDENTITY, ""))
    assert "gcloud auth application-default login" in error.remedy
    assert "stepfare prices import" in error.remedy
