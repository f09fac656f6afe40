"""Client of Google's SDKs: calls in, plain data out. The one module that imports them (over a second).

Compute Engine is called through google-cloud-compute, which keeps up with the wire format; lists are paged here, so
that one lost page is asked for again and not the whole list. The price catalogue is read through google.auth's HTTP
session: reading its 30,000 SKUs as JSON takes an eighth of the time that google-cloud-billing needs to make messages of
them, and only the fields in use are asked for. The SDKs' own retries are off: :class:`providers.caller.Caller`
retries.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import google.auth
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud import compute_v1
from google.protobuf import json_format

from providers.caller import Once, parse_http_date
from providers.errors import AccountNotUsedError, CredentialsError, ProviderError, UnreadableError
from providers.gcp import permissions
from providers.gcp.errors import to_error
from providers.gcp.permissions import ApiCall
from providers.gcp.series import MACHINE_TYPE_FILTER
from providers.gcp.wire import ConnectTimeoutAdapter, describe_failure, find_endpoint, is_anonymous
from providers.session import Session

# google.auth warns on standard error about problems that this module raises as errors.
logging.getLogger("google.auth").setLevel(logging.ERROR)

T = TypeVar("T")
Row = dict[str, Any]

# Spot advice needs this scope. The role, not the token, limits what may be done.
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
COMPUTE_ENGINE = "services/6F81-5844-456A"
SKU_FIELDS = (
    "nextPageToken,skus(skuId,description,category(usageType),serviceRegions,"
    "pricingInfo(effectiveTime,pricingExpression(usageUnit,tieredRates)))"
)
_UNREACHABLE = "UNREACHABLE"
_PAGE = 500
_SKU_PAGE = 5000
# On a Google machine the metadata service answers at once; elsewhere the check must not delay the command.
_METADATA_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class GoogleIdentity:
    """The caller's identity, in words without a secret, and the project that is asked."""

    name: str
    project: str
    credentials: Any


class GcpClient:
    """Call Google's APIs; safe for threads.

    Methods raise ProviderError and nothing else; network calls go through the session's caller.
    """

    def __init__(self, cloud: str, session: Session) -> None:
        self._cloud = cloud
        self._session = session
        self._lock = threading.Lock()
        self._identity = Once(self._find_identity)
        self._clients: dict[type, Any] = {}
        self._catalogue: AuthorizedSession | None = None
        self.fastest: timedelta | None = None

    @property
    def identity(self) -> GoogleIdentity:
        """Return the identity, found once in Google's order.

        The order is environment, gcloud's login, the machine's service account.
        """
        return self._identity.get()

    def regions(self) -> list[Row]:
        """Return all regions of the project, with their zones and quotas."""
        return self.listed(permissions.REGIONS)

    def machine_types(self, zone: str) -> tuple[list[Row], int]:
        """Return machine types with accelerators in a zone, and how many rows were read to find them."""
        found: list[Row] = []
        read = 0
        for page in self._pages(permissions.MACHINE_TYPES, f" in {zone}", zone=zone, filter=MACHINE_TYPE_FILTER):
            read += len(page.items)
            found += [_plain(row) for row in page.items if row.accelerators]
        return found, read

    def accelerator_types(self) -> dict[str, list[str]]:
        """Return names of the accelerators of each zone that has any."""
        names_by_zone: dict[str, list[str]] = {}
        for page in self._pages(permissions.ACCELERATOR_TYPES):
            for scope, part in page.items.items():
                if part.accelerator_types:
                    names_by_zone.setdefault(scope.rpartition("/")[2], []).extend(
                        a.name for a in part.accelerator_types
                    )
        return names_by_zone

    def reservations(self) -> tuple[list[Row], list[str]]:
        """Return the project's reservations, and the places that did not answer."""
        rows: list[Row] = []
        silent: list[str] = []
        for page in self._pages(permissions.RESERVATIONS):
            rows += [_plain(row) for part in page.items.values() for row in part.reservations]
            silent += [place.rpartition("/")[2] for place in page.unreachables]
        return rows, silent

    def everywhere(self, call: ApiCall, field: str, row_filter: str = "") -> tuple[list[Row], list[str]]:
        """Return all rows of an aggregated list under ``field``, and the places that did not answer.

        ``row_filter`` selects the rows.
        """
        rows: list[Row] = []
        silent: list[str] = []
        for page in self._pages(call, filter=row_filter):
            for scope, part in page.items.items():
                rows += [_plain(row) for row in getattr(part, field)]
                if part.warning.code == _UNREACHABLE:
                    silent.append(scope.rpartition("/")[2])
            silent += [place.rpartition("/")[2] for place in page.unreachables]
        return rows, sorted(set(silent))

    def listed(self, call: ApiCall) -> list[Row]:
        """Return all rows of a list that is not divided by places."""
        return [_plain(row) for page in self._pages(call) for row in page.items]

    def single(self, call: ApiCall, **names: str) -> Row:
        """Return one resource, or the operation that ends it; ``names`` are the fields of the call's address."""
        kind, method, request = _find_method(call)
        wanted = request(project=self.identity.project, **names)
        where = f" for {' '.join(names.values())}" if names else ""
        return _plain(_message(self._call(call, self._ask(kind, method, wanted), where)))

    def project(self) -> Row:
        """Return the project's own entry, with the quotas that hold over all regions."""
        return self.single(permissions.PROJECT)

    def capacity(self, region: str, machine_type: str, machines: int) -> Row:
        """Return Google's advice on starting ``machines`` Spot machines in one zone of a region."""
        body = {
            "distribution_policy": {"target_shape": "ANY_SINGLE_ZONE"},
            "instance_flexibility_policy": {"instance_selections": {"wanted": {"machine_types": [machine_type]}}},
            "instance_properties": {"scheduling": {"provisioning_model": "SPOT"}},
            "size": machines,
        }
        where = f" for {machine_type} in {region}"
        return self._advise(permissions.ADVICE, "CapacityAdviceRpcRequest", "capacity_advice", region, body, where)

    def capacity_history(self, region: str, machine_type: str) -> Row:
        """Return Spot prices of one machine type in a region over the past year."""
        return self._history(region, machine_type, region, {"types": ["PRICE"]})

    def preemption_history(self, region: str, zone: str, machine_type: str) -> Row:
        """Return the daily shares of stopped Spot machines of one type in a zone that were preempted."""
        fields = {"location_policy": {"location": f"zones/{zone}"}, "types": ["PREEMPTION"]}
        return self._history(region, machine_type, zone, fields)

    def _history(self, region: str, machine_type: str, place: str, fields: Row) -> Row:
        properties = {"machine_type": machine_type, "scheduling": {"provisioning_model": "SPOT"}}
        body, where = {"instance_properties": properties, **fields}, f" for {machine_type} in {place}"
        return self._advise(
            permissions.HISTORY, "CapacityHistoryAdviceRequest", "capacity_history", region, body, where
        )

    def skus(self) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield the price catalogue of Compute Engine, page by page."""
        token = ""
        while True:
            page = self._call(permissions.SKUS, partial(self._sku_page, _SKU_PAGE, token))
            yield page.get("skus", ())
            token = page.get("nextPageToken", "")
            if not token:
                return

    def try_list(self, call: ApiCall, **fields: Any) -> None:
        """Ask for one row of a list, to see whether that is permitted."""
        self._page(call, "", 1, "", fields)

    def try_skus(self) -> None:
        """Ask for one SKU, to see whether prices can be read."""
        self._call(permissions.SKUS, partial(self._sku_page, 1, ""))

    def _pages(self, call: ApiCall, where: str = "", **fields: Any) -> Iterator[Any]:
        token = ""
        while True:
            message = self._page(call, where, _PAGE, token, fields)
            yield message
            token = message.next_page_token
            if not token:
                return

    def _page(self, call: ApiCall, where: str, size: int, token: str, fields: Mapping[str, Any]) -> Any:
        kind, method, request = _find_method(call)
        paging = {"page_token": token} if token else {}
        wanted = request(project=self.identity.project, max_results=size, **paging, **fields)
        pager = self._call(call, self._ask(kind, method, wanted), where)
        return _message(next(pager.pages))  # Only the page that has come: the pager would fetch more without retries.

    def _advise(self, call: ApiCall, request: str, field: str, region: str, body: Row, where: str) -> Row:
        kind = getattr(compute_v1, request, None)
        if kind is None:
            what = "the installed google-cloud-compute knows no Spot advice"
            raise ProviderError(self._cloud, what, remedy="pip install 'google-cloud-compute>=1.56'")
        wanted = kind(project=self.identity.project, region=region, **{f"{field}_request_resource": body})
        method = call.method.removeprefix("advice.").replace("capacityHistory", "capacity_history")
        return _plain(_message(self._call(call, self._ask(compute_v1.AdviceClient, method, wanted), where)))

    def _ask(self, kind: type, method: str, request: Any) -> Callable[[], Any]:
        timeout = self._session.settings.read_timeout_s
        return partial(getattr(self._client(kind), method), request=request, retry=None, timeout=timeout)

    def _call(self, call: ApiCall, ask: Callable[[], T], where: str = "") -> T:
        def translate(error: Exception) -> ProviderError:
            return to_error(self._cloud, describe_failure(error, call, f"{call.method}{where}"))

        return self._session.caller.call(call.service, ask, translate)

    def _client(self, kind: type) -> Any:
        identity = self.identity
        with self._lock:
            if kind not in self._clients:
                url = find_endpoint(self._cloud, permissions.COMPUTE, self._session.settings)
                credentials = _anonymous() if is_anonymous(url) else identity.credentials
                client = kind(credentials=credentials, client_options={"api_endpoint": url})
                self._watch(getattr(client.transport, "_session", None))
                self._clients[kind] = client
            return self._clients[kind]

    def _sku_page(self, size: int, token: str) -> Mapping[str, Any]:
        identity = self.identity
        settings = self._session.settings
        url = find_endpoint(self._cloud, permissions.BILLING, settings)
        with self._lock:
            if self._catalogue is None:
                credentials = _anonymous() if is_anonymous(url) else identity.credentials
                self._catalogue = _signed_session(credentials)
                self._watch(self._catalogue)
        query = {"pageSize": str(size), "fields": SKU_FIELDS, "currencyCode": "USD"}
        if token:
            query["pageToken"] = token
        answer = self._catalogue.get(f"{url}/v1/{COMPUTE_ENGINE}/skus", params=query, timeout=settings.read_timeout_s)
        if answer.status_code >= 400:
            raise requests.HTTPError(response=answer)
        page = answer.json()
        if not isinstance(page, dict) or not isinstance(page.get("skus", []), list):
            raise UnreadableError(self._cloud, f"{permissions.SKUS.method}: not a list of SKUs")
        return page

    def _watch(self, http: requests.Session | None) -> None:
        """Limit the time to connect, and record answer times and the server's clock.

        The SDKs take one time limit for all of a call; a host that does not answer at all is given up sooner.
        """
        if http is not None:
            adapter = ConnectTimeoutAdapter(self._session.settings.connect_timeout_s)
            http.mount("https://", adapter)
            http.mount("http://", adapter)
            http.hooks["response"].append(self._note)

    def _note(self, answer: requests.Response, *_: object, **__: object) -> None:
        date = parse_http_date(answer.headers.get("Date", ""))
        with self._lock:
            self.fastest = min(answer.elapsed, self.fastest or answer.elapsed)
        if date is not None:
            self._session.caller.heard(date)

    def _find_identity(self) -> GoogleIdentity:
        settings = self._session.settings
        if not settings.credentials:
            raise AccountNotUsedError(self._cloud, "Google Cloud itself shows no prices without it")
        project = settings.options.get("project", "")
        try:
            urls = [find_endpoint(self._cloud, service, settings) for service in permissions.ENDPOINTS]
            if all(is_anonymous(url) for url in urls):
                return _make_identity(self._cloud, "nobody (a service on this machine)", project, _anonymous())
            credentials, own = google.auth.default(
                scopes=SCOPES,
                request=_BriefRequest(requests.Session()),
                quota_project_id=settings.options.get("quota_project"),
            )
            return _make_identity(self._cloud, _name(credentials), project or own or "", credentials)
        except ProviderError:
            raise
        except Exception as error:
            failure = describe_failure(error, permissions.REGIONS, "google.auth.default")
            raise to_error(self._cloud, failure) from None


def _find_method(call: ApiCall) -> tuple[type, str, type]:
    """Return the SDK's client, method and request of a call: it names them after the methods of the REST API."""
    noun, verb = (word[0].upper() + word[1:] for word in call.method.split("."))
    subject = noun if verb.endswith("List") else noun.removesuffix("s")
    # "unary" methods skip the SDK's own waiting, which asks a host of its own choice.
    method = {"AggregatedList": "aggregated_list", "Delete": "delete_unary"}.get(verb, verb.lower())
    return getattr(compute_v1, f"{noun}Client"), method, getattr(compute_v1, f"{verb}{subject}Request")


def _make_identity(cloud: str, name: str, project: str, credentials: Any) -> GoogleIdentity:
    if project:
        return GoogleIdentity(name, project, credentials)
    remedy = "name it as option `project` of this cloud in the clouds file, or in GOOGLE_CLOUD_PROJECT"
    raise CredentialsError(cloud, "no Google Cloud project is named", none_found=True, remedy=remedy)


def _anonymous() -> Any:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]


def _signed_session(credentials: Any) -> AuthorizedSession:
    return AuthorizedSession(credentials, auth_request=Request(requests.Session()))  # type: ignore[no-untyped-call]


class _BriefRequest(Request):
    """Give up soon on the metadata service, the only one that is asked over plain http."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: Any = None,
        headers: Any = None,
        timeout: Any = 120,
        **kwargs: Any,
    ) -> Any:
        limit = min(timeout, _METADATA_TIMEOUT_S) if url.startswith("http://") else timeout
        return super().__call__(url, method, body, headers, limit, **kwargs)  # type: ignore[no-untyped-call]


def _message(wrapped: Any) -> Any:
    """Return the protocol message inside proto-plus's wrapper, which is slow to read from."""
    return type(wrapped).pb(wrapped)


def _plain(message: Any) -> Row:
    return dict(json_format.MessageToDict(message))


def _name(credentials: Any) -> str:
    email = getattr(credentials, "service_account_email", None)
    return str(email) if email and email != "default" else type(credentials).__module__.rpartition(".")[2]
