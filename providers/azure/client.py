"""Client of Azure Resource Manager for one subscription. Returns plain data.

Options of the session: ``subscription`` (without one the account is not used) and ``tenant``. An endpoint
``management`` with plain http is a service on this machine, where no real credential is used.

Usages and reservations go through azure-mgmt-compute. SKUs and locations go through the same SDK's pipeline as raw
JSON: its model layer needs 0.76 s for the 1,200 SKU rows of a region, reading the JSON 0.07 s. So does the one query of
Azure Resource Graph (REST reference: "Resources - Resources"), which changes nothing although it is a POST.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from providers.azure.calls import MANAGEMENT, AzureCalls, Page, Row, query
from providers.errors import (
    CredentialsError,
    NotReachedError,
    ProviderError,
    SdkMissingError,
    TransientError,
    UnreadableError,
)

READ_LOCATIONS = "Microsoft.Resources/subscriptions/locations/read"
READ_SKUS = "Microsoft.Compute/skus/read"
READ_USAGES = "Microsoft.Compute/locations/usages/read"
READ_GROUPS = "Microsoft.Compute/capacityReservationGroups/read"
READ_RESERVATIONS = "Microsoft.Compute/capacityReservationGroups/capacityReservations/read"
READ_GRAPH = "Microsoft.ResourceGraph/resources/read"

_SCOPE = "https://management.azure.com/.default"
_LOCATIONS_VERSION = "2022-12-01"
_SKUS_VERSION = "2021-07-01"
_GRAPH = "/providers/Microsoft.ResourceGraph/resources"
_GRAPH_VERSION = "2024-04-01"
_GRAPH_PAGE = 1000
# The table answers for the whole tenant and to no query of a single subscription. Without the id there is no next page.
_EVICTION_RATES = (
    "SpotResources | where type =~ 'microsoft.compute/skuspotevictionrate/location'"
    " | where tostring(sku.name) startswith 'Standard_N'{place}"
    " | project id, skuName = tostring(sku.name), location, evictionRate = tostring(properties.evictionRate)"
    " | order by id asc"
)
_TOKEN_FRESH_S = 60.0

# The SDK would print each credential that is missing; the adapter reports it as an error instead.
logging.getLogger("azure").addHandler(logging.NullHandler())
logging.getLogger("msal").addHandler(logging.NullHandler())


class TokenSource(Protocol):
    """The interface of which the SDK asks a token: its own ``TokenCredential``."""

    def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return an access token for the scopes."""


class AzureAccount:
    """Call Azure Resource Manager for one subscription; safe for threads.

    The SDK is imported with the first call; ``credential`` replaces Azure's own chain.
    """

    # The file that grants the calls made here.
    ROLE = "role.json"

    def __init__(self, calls: AzureCalls, credential: TokenSource | None = None) -> None:
        self._calls = calls
        self._credential = credential
        self._lock = threading.Lock()
        self._pipeline: Any = None
        self._sdk: Any = None

    @property
    def subscription(self) -> str:
        """Return the configured subscription; "" when the account is not to be used."""
        settings = self._calls.settings
        return settings.options.get("subscription", "") if settings.credentials else ""

    def locations(self) -> list[Row]:
        """Return the regions that the subscription sees."""
        return self._raw("locations", "locations", {"api-version": _LOCATIONS_VERSION}, READ_LOCATIONS)

    def skus(self, region: str) -> list[Row]:
        """Return every SKU of a region, of all resource types."""
        parts = {"api-version": _SKUS_VERSION, "$filter": f"location eq '{region}'"}
        return self._raw("providers/Microsoft.Compute/skus", f"SKUs of {region}", parts, READ_SKUS)

    def usages(self, region: str) -> list[Row]:
        """Return limits and use of a region."""
        return self._listed(lambda sdk: sdk.usage.list(region), f"usages of {region}", READ_USAGES)

    def reservation_groups(self) -> list[Row]:
        """Return the subscription's capacity reservation groups."""
        subject = "capacity reservation groups"
        return self._listed(lambda sdk: sdk.capacity_reservation_groups.list_by_subscription(), subject, READ_GROUPS)

    def reservations(self, resource_group: str, name: str) -> list[Row]:
        """Return the reservations of a group."""
        subject = f"capacity reservations of {name}"
        return self._listed(
            lambda sdk: sdk.capacity_reservations.list_by_capacity_reservation_group(resource_group, name),
            subject,
            READ_RESERVATIONS,
        )

    def group_view(self, resource_group: str, name: str) -> Row:
        """Return a group with its instance view: the machines that run in each reservation."""

        def ask() -> Row:
            group = self._compute().capacity_reservation_groups.get(resource_group, name, expand="instanceView")
            return dict(group.as_dict())

        translate = partial(self._error, f"capacity reservation group {name}", READ_GROUPS)
        view: Row = self._calls.once(MANAGEMENT, ask, translate)
        return view

    def eviction_rates(self, regions: Sequence[str] = ()) -> list[Row]:
        """Return the eviction rates of spot machines with accelerators in these regions (none named: everywhere)."""
        names = ", ".join(f"'{region}'" for region in regions)
        asked = _EVICTION_RATES.format(place=f" | where location in~ ({names})" if names else "")
        start = f"{self._calls.base(MANAGEMENT)}{_GRAPH}?{query({'api-version': _GRAPH_VERSION})}"
        translate = partial(self._error, "eviction rates", READ_GRAPH)
        return self._calls.follow(MANAGEMENT, start, partial(self._graph_page, "eviction rates", asked), translate)

    def token(self) -> str:
        """Return the access token, for the claims in it. CredentialsError when there is none."""
        translate = partial(self._error, "sign-in", "")
        token = self._calls.once(MANAGEMENT, lambda: self._source().get_token(_SCOPE), translate)
        return str(token.token)

    def _raw(self, path: str, subject: str, parts: Mapping[str, str], permission: str) -> list[Row]:
        return self._raw_at(f"/subscriptions/{self.subscription}/{path}", subject, parts, permission)

    def _raw_at(self, path: str, subject: str, parts: Mapping[str, str], permission: str) -> list[Row]:
        start = f"{self._calls.base(MANAGEMENT)}{path}?{query(parts)}"
        translate = partial(self._error, subject, permission)
        return self._calls.follow(MANAGEMENT, start, partial(self._raw_page, subject), translate)

    def _raw_page(self, subject: str, url: str) -> Page:
        return self._calls.read_page(subject, self._send("GET", url).content, "value", "nextLink")

    def _graph_page(self, subject: str, kusto_query: str, url: str) -> Page:
        """Return a page of a query; the token of the next one is the fragment of its link, which is never sent."""
        address, _, token = url.partition("#")
        options: dict[str, object] = {"resultFormat": "objectArray", "$top": _GRAPH_PAGE}
        body = {"query": kusto_query, "options": {**options, "$skipToken": token} if token else options}
        rows, following = self._calls.read_page(
            subject, self._send("POST", address, body).content, "data", "$skipToken"
        )
        return rows, f"{address}#{following}" if following else ""

    def _send(self, method: str, url: str, body: object = None) -> Any:
        from azure.core.rest import HttpRequest

        pipeline = self._arm()
        begin = time.monotonic()
        answer = pipeline.send_request(HttpRequest(method, url, json=body))
        self._calls.note(answer.headers.get("Date", ""), begin)
        answer.raise_for_status()
        return answer

    def _listed(self, start: Callable[[Any], Any], subject: str, permission: str) -> list[Row]:
        """Return all items of an SDK listing.

        Each try has a pager of its own: one that could not read its first page would take that for the end.
        """

        def ask(link: str) -> Page:
            pages = start(self._compute()).by_page(link or None)
            rows = [dict(item.as_dict()) for item in next(pages)]
            return rows, pages.continuation_token or ""

        return self._calls.follow(MANAGEMENT, "", ask, partial(self._error, subject, permission))

    def _source(self) -> TokenSource:
        with self._lock:
            if self._credential is None:
                tenant = self._calls.settings.options.get("tenant", "")
                self._credential = _LocalCredential() if self._calls.is_local(MANAGEMENT) else _CredentialChain(tenant)
            return self._credential

    def _arm(self) -> Any:
        from azure.mgmt.core import ARMPipelineClient

        source = self._source()
        with self._lock:
            if self._pipeline is None:
                base = self._calls.base(MANAGEMENT)
                self._pipeline = ARMPipelineClient(base_url=base, **self._options(source))
            return self._pipeline

    def _compute(self) -> Any:
        from azure.mgmt.compute import ComputeManagementClient

        source = self._source()
        with self._lock:
            if self._sdk is None:
                base = self._calls.base(MANAGEMENT)
                self._sdk = ComputeManagementClient(source, self.subscription, base, **self._options(source))
            return self._sdk

    def _options(self, source: TokenSource) -> dict[str, Any]:
        """Return time limits and the only policies to use.

        The SDK's own list of policies would retry by itself, follow redirects, log, parse bodies twice, and register
        the subscription with a provider (a change) when it is not.
        """
        from azure.core.pipeline.policies import HeadersPolicy, ProxyPolicy, UserAgentPolicy
        from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

        sign: Any = ARMChallengeAuthenticationPolicy(source, _SCOPE)
        if self._calls.is_local(MANAGEMENT):
            sign = HeadersPolicy({"Authorization": f"Bearer {source.get_token(_SCOPE).token}"})
        return {
            "policies": [HeadersPolicy(), UserAgentPolicy("stepfare"), ProxyPolicy(), sign],
            "connection_timeout": self._calls.settings.connect_timeout_s,
            "read_timeout": self._calls.settings.read_timeout_s,
        }

    def _error(self, subject: str, permission: str, error: Exception) -> ProviderError:
        cloud = self._calls.cloud
        if isinstance(error, ModuleNotFoundError):
            remedy = "pip install 'stepfare[azure]'"
            return SdkMissingError(cloud, str(error.name), remedy=remedy)
        from azure.core import exceptions as sdk

        if isinstance(error, sdk.ServiceRequestError):
            return NotReachedError(cloud, f"{subject}: no connection")
        if isinstance(error, sdk.ServiceResponseError):
            return TransientError(cloud, f"{subject}: no answer in time, or the connection broke")
        response = getattr(error, "response", None)
        if isinstance(error, sdk.ClientAuthenticationError) and response is None:
            remedy = "az login, or AZURE_TENANT_ID, AZURE_CLIENT_ID and a secret or certificate in the environment"
            return CredentialsError(cloud, "Azure's credential chain gave no token", remedy=remedy)
        if isinstance(error, sdk.HttpResponseError) and response is not None and response.status_code != 200:
            code = str(getattr(error.error, "code", "") or "")
            message = str(getattr(error.error, "message", "") or "")
            status, headers = response.status_code, response.headers
            return self._calls.refused(subject, status, headers, code, message, permission, self.ROLE)
        return UnreadableError(cloud, f"{subject}: {type(error).__name__}")


class _LocalCredential:
    """Stand in for an account at a service on this machine."""

    def get_token(self, *_scopes: str, **_options: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("nobody", 0)


class _CredentialChain:
    """Use Azure's own chain without a browser, asked by one thread at a time.

    A failure to find an identity is stored, because the chain asks metadata services and command-line tools, slowly.
    """

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._lock = threading.Lock()
        self._chain: Any = None
        self._token: Any = None
        self._at = 0.0
        self._failure: Exception | None = None

    def get_token(self, *scopes: str, **options: Any) -> Any:
        from azure.core.exceptions import ClientAuthenticationError

        with self._lock:
            if self._failure is not None:
                raise self._failure
            fresh = self._token is not None and time.monotonic() - self._at < _TOKEN_FRESH_S
            if not fresh or options.get("claims"):
                try:
                    self._token = self._ask(scopes, options)
                except ClientAuthenticationError as error:
                    self._failure = error
                    raise
                self._at = time.monotonic()
            return self._token

    def _ask(self, scopes: tuple[str, ...], options: dict[str, Any]) -> Any:
        from azure.identity import DefaultAzureCredential

        if self._chain is None:
            others = {"additionally_allowed_tenants": [self._tenant]} if self._tenant else {}
            self._chain = DefaultAzureCredential(
                exclude_interactive_browser_credential=True,
                exclude_broker_credential=True,
                exclude_powershell_credential=True,
                exclude_shared_token_cache_credential=True,
                exclude_visual_studio_code_credential=True,
                process_timeout=10,
                retry_total=0,
                **others,
            )
        if self._tenant:
            options = {"tenant_id": self._tenant, **options}
        return self._chain.get_token(*scopes, **options)


# Claims of an Entra access token, the most specific first ("Access token claims reference", Microsoft Learn).
_NAMES = ("upn", "unique_name", "preferred_username", "app_displayname", "appid", "oid")
_LONGEST_NAME = 120


def parse_identity(token: str, subscription: str) -> str:
    """Return the account and tenant that the token names, and the subscription; nothing else of the token."""
    claims = _claims(token)
    name = next((claims[key] for key in _NAMES if claims.get(key)), "")
    parts = (name, f"tenant {claims['tid']}" if claims.get("tid") else "", f"subscription {subscription}")
    return ", ".join(filter(None, parts))


def _claims(token: str) -> dict[str, str]:
    """Return the texts among the claims; the cloud itself checks the signature."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    if not isinstance(claims, dict):
        return {}
    return {str(k): v for k, v in claims.items() if isinstance(v, str) and len(v) <= _LONGEST_NAME}
