"""Azure's codes as ours; the codes are those of the public troubleshooting pages."""

from __future__ import annotations

import pytest

from providers.azure.errors import KINDS, error_for
from providers.errors import (
    CredentialsError,
    NoCapacityError,
    NotForSaleError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RegionOffError,
    ThrottledError,
    TransientError,
)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "ExpiredAuthenticationToken", CredentialsError),
        (401, "InvalidAuthenticationToken", CredentialsError),
        (401, "AuthenticationFailed", CredentialsError),
        (404, "SubscriptionNotFound", CredentialsError),
        (403, "AuthorizationFailed", PermissionDeniedError),
        (403, "RequestDisallowedByPolicy", PermissionDeniedError),
        (409, "MissingSubscriptionRegistration", PermissionDeniedError),
        (400, "LocationNotAvailableForResourceType", RegionOffError),
        (404, "NoRegisteredProviderFound", RegionOffError),
        (409, "SkuNotAvailable", NotForSaleError),
        (409, "AllocationFailed", NoCapacityError),
        (409, "ZonalAllocationFailed", NoCapacityError),
        (409, "OverconstrainedAllocationRequest", NoCapacityError),
        (409, "QuotaExceeded", QuotaError),
        (429, "TooManyRequests", ThrottledError),
        (429, "OperationNotAllowed", ThrottledError),
        (429, "SubscriptionRequestsThrottled", ThrottledError),
        (429, "ResourceCollectionRequestsThrottled", ThrottledError),
        (429, "", ThrottledError),
        (500, "InternalServerError", TransientError),
        (503, "ServerBusy", TransientError),
        (502, "", TransientError),
        (504, "NeverSeen", TransientError),
        (408, "", TransientError),
        (401, "", CredentialsError),
        (403, "NeverSeen", PermissionDeniedError),
        (404, "NeverSeen", ProviderError),
        (409, "OperationNotAllowed", ProviderError),
    ],
)
def test_codes(status: int, code: str, kind: type[ProviderError]) -> None:
    error = error_for("azure", "SKUs of eastus", status, code)
    assert type(error) is kind
    assert error.code == code
    assert "SKUs of eastus" in str(error)


def test_the_words_decide_where_one_code_says_two_things() -> None:
    said = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."
    error = error_for("azure", "a machine", 409, "OperationNotAllowed", said)
    assert type(error) is QuotaError
    assert said not in str(error) + repr(error), "what the cloud said may name anything"


def test_a_server_that_says_when_to_come_back_is_throttling() -> None:
    error = error_for("azure", "prices", 503, "ServiceUnavailable", retry_after_s=4.0)
    assert isinstance(error, ThrottledError)
    assert error.retry_after_s == 4.0


def test_a_missing_permission_is_named_with_what_grants_it() -> None:
    error = error_for("azure", "SKUs", 403, "AuthorizationFailed", permission="Microsoft.Compute/skus/read")
    assert isinstance(error, PermissionDeniedError)
    assert error.permission == "Microsoft.Compute/skus/read"
    assert "Microsoft.Compute/skus/read" in error.remedy


def test_every_kind_is_one_of_ours() -> None:
    assert all(issubclass(kind, ProviderError) for kind in KINDS.values())
