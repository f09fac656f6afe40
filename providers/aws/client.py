"""Client of the AWS SDK, reduced to the calls in use; returns plain dicts, lists and strings.

Moments stay as the API wrote them. Clients come from boto3; botocore below it is configured for reading moments and
pages of prices. Every request goes through the session's caller; the SDK's own retries are off. Credentials come from
the SDK's own chain (environment, profiles, SSO, roles), and appear neither in what is returned nor in an error.
"""

from __future__ import annotations

import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import boto3
import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

from providers.aws.errors import FIND_CREDENTIALS, from_code, from_exception, parse_server_time
from providers.aws.parse.machines import ACCELERATED
from providers.caller import parse_retry_after
from providers.errors import AccountNotUsedError, CredentialsError, ProviderError, UnreadableError
from providers.session import Session

T = TypeVar("T")

DEFAULT_REGION = "us-east-1"
# The Price List API is served from a few regions only, with the prices of all.
_PRICING_REGION = "us-east-1"
_SCORED_REGIONS_A_CALL = 10
_TYPES_A_CALL = 100
_LARGEST_PAGE = 1000
# The name of a service in IAM and in the settings, where it is not the SDK's name.
_POLICY_NAMES = {"service-quotas": "servicequotas", "resourcegroupstaggingapi": "tag"}


class AwsClient:
    """Call the AWS APIs; safe for threads.

    The SDK session and its clients are made at first use, under a lock, since that part of the SDK is not safe for
    threads.
    """

    # The file that grants the calls made here.
    POLICY = "policy.json"

    def __init__(self, cloud: str, session: Session) -> None:
        self._cloud = cloud
        self._settings = session.settings
        self._caller = session.caller
        self._lock = threading.RLock()
        self._session: Any = None
        self._clients: dict[tuple[str, str], Any] = {}

    def has_credentials(self) -> bool:
        """Return whether the SDK's chain finds any; CredentialsError when what it finds cannot be used."""

        def find() -> bool:
            with self._lock:
                return self._sdk().get_credentials() is not None

        return self._caller.call("credentials", find, lambda error: self._translate(error, "credentials", ""))

    def require_credentials(self) -> None:
        """Raise AccountNotUsedError where the settings exclude the account, CredentialsError without credentials."""
        if not self._settings.credentials:
            raise AccountNotUsedError(self._cloud, "the settings say to leave the account alone")
        if not self.has_credentials():
            raise CredentialsError(self._cloud, "none were found", none_found=True, remedy=FIND_CREDENTIALS)

    @property
    def home(self) -> str:
        """Return the region that answers for the account: the option ``region``, else the SDK's own setting."""
        with self._lock:
            return self._settings.options.get("region") or self._sdk().region_name or DEFAULT_REGION

    def identity(self) -> Mapping[str, Any]:
        """Return Account and Arn of the credentials' owner."""
        return self._ask("sts", "GetCallerIdentity", self.home)

    def regions(self) -> Sequence[Mapping[str, Any]]:
        """Return every region with its opt-in status."""
        return self._listed("ec2", "DescribeRegions", self.home, "Regions", AllRegions=True)

    def zones(self, region: str) -> Sequence[Mapping[str, Any]]:
        """Return the zones that the account can use, with name and id."""
        return self._listed("ec2", "DescribeAvailabilityZones", region, "AvailabilityZones")

    def offerings(self, region: str) -> Sequence[Mapping[str, Any]]:
        """Return the instance types with accelerators that each zone sells, by zone id."""
        rows = self._offerings(region, Filters=[{"Name": "instance-type", "Values": list(ACCELERATED)}])
        # A region without any row is implausible: the endpoint may have taken the patterns literally.
        return rows or [
            row
            for row in self._offerings(region)
            if any(fnmatchcase(str(row.get("InstanceType")), pattern) for pattern in ACCELERATED)
        ]

    def offerings_of(self, region: str, instance_types: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Return which zones sell these instance types, by zone id."""
        return self._offerings(region, Filters=[{"Name": "instance-type", "Values": list(instance_types)}])

    def _offerings(self, region: str, **filters: Any) -> list[Mapping[str, Any]]:
        action, key = "DescribeInstanceTypeOfferings", "InstanceTypeOfferings"
        zones = {"LocationType": "availability-zone-id", "MaxResults": _LARGEST_PAGE}
        return self._all("ec2", action, region, key, **zones, **filters)

    def instance_types(self, region: str, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Return the API's description of each of ``names``; NotForSaleError when the region no longer has one."""
        parts = (names[start : start + _TYPES_A_CALL] for start in range(0, len(names), _TYPES_A_CALL))
        return [
            row
            for part in parts
            for row in self._listed("ec2", "DescribeInstanceTypes", region, "InstanceTypes", InstanceTypes=part)
        ]

    def spot_prices(self, region: str, names: Sequence[str], since: datetime) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Return pages of Linux spot prices per zone: those in force at ``since`` and every change after it.

        ``since`` is at most 90 days ago, which is as far as EC2 stores them.
        """
        return self._pages(
            "ec2",
            "DescribeSpotPriceHistory",
            region,
            "SpotPriceHistory",
            InstanceTypes=list(names),
            ProductDescriptions=["Linux/UNIX"],
            StartTime=since,
            MaxResults=_LARGEST_PAGE,
        )

    def placement_scores(
        self, names: Sequence[str], machines: int, regions: Sequence[str]
    ) -> Sequence[Mapping[str, Any]]:
        """Return how likely each zone has N machines of any of the types.

        One call asks for ten regions, as the API allows.
        """
        gang = {"InstanceTypes": list(names), "TargetCapacity": machines, "TargetCapacityUnitType": "units"}
        gang["SingleAvailabilityZone"] = True
        parts = (regions[s : s + _SCORED_REGIONS_A_CALL] for s in range(0, len(regions), _SCORED_REGIONS_A_CALL))
        action, key = "GetSpotPlacementScores", "SpotPlacementScores"
        return [
            row for part in parts for row in self._all("ec2", action, self.home, key, RegionNames=list(part), **gang)
        ]

    def block_offerings(self, region: str, name: str, machines: int, hours: int) -> Sequence[Mapping[str, Any]]:
        """Return capacity blocks for sale that hold this many machines for this many hours."""
        return self._all(
            "ec2",
            "DescribeCapacityBlockOfferings",
            region,
            "CapacityBlockOfferings",
            InstanceType=name,
            InstanceCount=machines,
            CapacityDurationHours=hours,
        )

    def reservations(self, region: str) -> Sequence[Mapping[str, Any]]:
        """Return capacity reservations and blocks, in every state."""
        return self._all("ec2", "DescribeCapacityReservations", region, "CapacityReservations")

    def quotas(self, region: str) -> Sequence[Mapping[str, Any]]:
        """Return EC2's quotas as they apply to the account."""
        return self._all("service-quotas", "ListServiceQuotas", region, "Quotas", ServiceCode="ec2", MaxResults=100)

    def products(self, region: str, name: str | None = None) -> Sequence[str]:
        """Return on-demand products (JSON texts) for Linux, shared tenancy, nothing installed.

        They are those of one instance type, or all that the price list calls GPU instances.
        """
        fields = {
            "regionCode": region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            **({"instanceType": name} if name else {"instanceFamily": "GPU instance"}),
        }
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
        return self._all(
            "pricing",
            "GetProducts",
            _PRICING_REGION,
            "PriceList",
            about=region,
            ServiceCode="AmazonEC2",
            FormatVersion="aws_v1",
            Filters=filters,
        )

    def probe(self, service: str, action: str, **parameters: Any) -> float:
        """Make one call to test it; return the seconds that it took.

        A dry run that would have been allowed counts as answered.
        """
        place = _PRICING_REGION if service == "pricing" else self.home

        def ask() -> float:
            client = self._client(service, place)
            began = time.monotonic()
            try:
                self._note_clock(getattr(client, xform_name(action))(**parameters))
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != "DryRunOperation":
                    raise
                self._note_clock(error.response)
            return time.monotonic() - began

        return self._call(service, action, place, "", ask)

    def _pages(
        self,
        service: str,
        action: str,
        region: str,
        key: str,
        *,
        about: str = "",
        token_name: str = "NextToken",
        **parameters: Any,
    ) -> Iterator[Sequence[Any]]:
        """Yield each page's list under ``key``; ``token_name`` is what the API calls the token of the next.

        UnreadableError for a token that comes twice, which would page for ever.
        """
        seen: set[str] = set()
        while True:
            answer = self._ask(service, action, region, key=key, about=about, **parameters)
            yield answer[key]
            token = answer.get(token_name)
            if not token:
                return
            if token in seen:
                raise UnreadableError(self._cloud, f"{action} in {about or region}: its pages go round in a circle")
            seen.add(token)
            parameters[token_name] = token

    def _all(self, service: str, action: str, region: str, key: str, **parameters: Any) -> list[Any]:
        return [row for page in self._pages(service, action, region, key, **parameters) for row in page]

    def _listed(self, service: str, action: str, region: str, key: str, **parameters: Any) -> Sequence[Any]:
        rows: Sequence[Any] = self._ask(service, action, region, key=key, **parameters)[key]
        return rows

    def _ask(
        self, service: str, action: str, region: str, *, key: str = "", about: str = "", **parameters: Any
    ) -> Mapping[str, Any]:
        def ask() -> Mapping[str, Any]:
            client = self._client(service, region)
            answer: dict[str, Any] = getattr(client, xform_name(action))(**parameters)
            self._note_clock(answer)
            if key and not isinstance(answer.get(key), list):
                raise UnreadableError(self._cloud, f"{action} in {about or region}: the answer has no {key}")
            return answer

        return self._call(service, action, region, about, ask)

    def _call(self, service: str, action: str, region: str, about: str, ask: Callable[[], T]) -> T:
        permission = f"{_POLICY_NAMES.get(service, service)}:{action}"
        asked = f"{action} in {about or region}"
        return self._caller.call(f"{service} {region}", ask, lambda error: self._translate(error, asked, permission))

    def _client(self, service: str, region: str) -> Any:
        with self._lock:
            if (service, region) not in self._clients:
                endpoint = self._settings.endpoints.get(_POLICY_NAMES.get(service, service))
                config = Config(
                    connect_timeout=self._settings.connect_timeout_s,
                    read_timeout=self._settings.read_timeout_s,
                    retries={"total_max_attempts": 1},
                    user_agent_extra="stepfare",
                    max_pool_connections=16,
                )
                self._clients[service, region] = self._sdk().client(
                    service, region_name=region, endpoint_url=endpoint, config=config
                )
            return self._clients[service, region]

    def _sdk(self) -> Any:
        if self._session is None:
            core = botocore.session.Session(profile=self._settings.options.get("profile"))
            # Moments stay text: reading them is half of the work on a page of prices, and the parser does it once.
            core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
            core.register("before-parse.ec2.DescribeSpotPriceHistory", _read_price_page)
            self._session = boto3.session.Session(botocore_session=core)
        return self._session

    def _note_clock(self, answer: Mapping[str, Any]) -> None:
        date = parse_server_time(answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))
        if date is not None:
            self._caller.heard(date)

    def _translate(self, error: Exception, what: str, permission: str) -> ProviderError:
        if not isinstance(error, ClientError):
            return from_exception(self._cloud, what, _chain(error))
        self._note_clock(error.response)
        metadata = error.response.get("ResponseMetadata", {})
        return from_code(
            self._cloud,
            what,
            str(error.response.get("Error", {}).get("Code", "")),
            status=int(metadata.get("HTTPStatusCode", 0)),
            permission=permission,
            retry_after_s=parse_retry_after(metadata.get("HTTPHeaders", {}).get("retry-after")),
            policy=self.POLICY,
        )


def _chain(error: BaseException | None) -> Iterator[str]:
    """Yield class names of an exception and of the exceptions it was raised from."""
    while error is not None:
        yield type(error).__name__
        error = error.__cause__ or error.__context__


def queue_region(url: str) -> str:
    """Return us-east-1 of https://sqs.us-east-1.amazonaws.com/123456789012/notices; "" of any other form."""
    host = url.partition("//")[2].partition("/")[0].split(".")
    return host[1] if len(host) > 3 and host[0] == "sqs" else ""


def _read_price_page(**event: Any) -> None:
    """Read the rows of a page of spot prices and hide them from the SDK's generic reader.

    That reader is seven times as slow. Whatever is not such a page is left to the SDK unchanged.
    """
    response: dict[str, Any] = event["response_dict"]
    if response["status_code"] != 200:
        return
    try:
        root = ET.fromstring(response["body"])
    except ET.ParseError:
        return
    names = {f"{root.tag.partition('}')[0]}}}{tag}": key for tag, key in _PRICE_FIELDS.items()}
    rows: list[dict[str, str | None]] | None = None
    token = ""
    for part in root:
        if part.tag.endswith("}spotPriceHistorySet"):
            rows = [{names[cell.tag]: cell.text for cell in item if cell.tag in names} for item in part]
        elif part.tag.endswith("}nextToken"):
            token = part.text or ""
    if rows is not None:
        event["customized_response_dict"].update(SpotPriceHistory=rows, NextToken=token)
        response["body"] = b"<DescribeSpotPriceHistoryResponse/>"


_PRICE_FIELDS = {
    "availabilityZone": "AvailabilityZone",
    "availabilityZoneId": "AvailabilityZoneId",
    "instanceType": "InstanceType",
    "spotPrice": "SpotPrice",
    "timestamp": "Timestamp",
}
