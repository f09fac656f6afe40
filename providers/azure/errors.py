"""Table from Azure's error codes to provider errors.

Codes: "Troubleshoot common Azure deployment errors", "Resolve errors for SKU not available" and "Throttling Resource
Manager requests" (Microsoft Learn), and the ARM error body ``{"error": {"code"}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
    index_words,
)

_LOGIN = "sign in again: az login, or renew the secret or certificate of the service principal"
_SUBSCRIPTION = "check the option `subscription`, and that this identity may see it: az account list"
_REGISTER = "az provider register --namespace Microsoft.Compute"

KINDS = index_words(
    {
        CredentialsError: """
            AuthenticationFailed AuthenticationFailedMissingToken ExpiredAuthenticationToken InvalidAuthenticationToken
            InvalidAuthenticationTokenAudience InvalidAuthenticationTokenTenant InvalidSubscriptionId
            SubscriptionNotFound""",
        PermissionDeniedError: """
            AuthorizationFailed DisallowedByPolicy Forbidden LinkedAuthorizationFailed MissingSubscriptionRegistration
            ReadOnlyDisabledSubscription RequestDisallowedByAzure RequestDisallowedByPolicy""",
        RegionOffError: """
            InvalidLocation LocationNotAvailableForResourceType LocationNotSupported NoRegisteredProviderFound""",
        # Azure gives SkuNotAvailable for spot with no capacity left too, in the same words as for a size that it never
        # had.
        NotForSaleError: "SkuNotAvailable NotAvailableForSubscription",
        NoCapacityError: """
            AllocationFailed OverconstrainedAllocationRequest OverconstrainedZonalAllocationRequest
            ZonalAllocationFailed""",
        QuotaError: "QuotaExceeded",
        ThrottledError: """
            ResourceCollectionRequestsThrottled ResourceRequestsThrottled SubscriptionRequestsThrottled
            TenantRequestsThrottled TooManyRequests""",
        TransientError: """
            BadGateway GatewayTimeout InternalError InternalExecutionError InternalServerError RetryableError ServerBusy
            ServerTimeout ServiceUnavailable""",
    }
)

_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "AuthenticationFailed": _LOGIN,
        "ExpiredAuthenticationToken": _LOGIN,
        "InvalidAuthenticationToken": _LOGIN,
        "InvalidAuthenticationTokenTenant": "this identity belongs to another tenant: check the option `tenant`",
        "InvalidSubscriptionId": _SUBSCRIPTION,
        "SubscriptionNotFound": _SUBSCRIPTION,
        "MissingSubscriptionRegistration": _REGISTER,
    }
)

_BY_STATUS: Mapping[int, type[ProviderError]] = MappingProxyType(
    {401: CredentialsError, 403: PermissionDeniedError, 408: TransientError, 429: ThrottledError}
)


def error_for(
    cloud: str,
    subject: str,
    status: int | None,
    code: str,
    message: str = "",
    *,
    permission: str = "",
    retry_after_s: float | None = None,
    role: str = "role.json",
) -> ProviderError:
    """Return the provider error for a refused call about ``subject``.

    ``permission`` is the action it needs, ``role`` the file beside this one that grants it. ``message`` is only
    examined (a quota and a throttled call may both be OperationNotAllowed), never repeated. A server that names a time
    to come back is throttling, whatever its status.
    """
    kind = _kind(status, code, message, retry_after_s)
    what = subject if code else f"{subject}: HTTP {status}"
    if kind is ThrottledError:
        return ThrottledError(cloud, what, retry_after_s=retry_after_s, code=code)
    if kind is PermissionDeniedError:
        remedy = _REMEDIES.get(code, f"grant {permission}: providers/azure/{role} lists all" if permission else "")
        return PermissionDeniedError(cloud, what, permission=permission, code=code, remedy=remedy)
    return kind(cloud, what, code=code, remedy=_REMEDIES.get(code, ""))


def _kind(status: int | None, code: str, message: str, retry_after_s: float | None) -> type[ProviderError]:
    if status == 429 or (status is not None and status >= 500 and retry_after_s is not None):
        return ThrottledError
    if code == "OperationNotAllowed" and "quota" in message.lower():
        return QuotaError
    if code in KINDS:
        return KINDS[code]
    if status is not None and status >= 500:
        return TransientError
    return _BY_STATUS.get(status or 0, ProviderError)
