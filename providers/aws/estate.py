"""The calls that find and end what attempts made in an account. ``provisioner.json`` grants them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from providers.aws.client import Client
from providers.errors import UnreadableError
from providers.fleet import ATTEMPT

Row = Mapping[str, Any]

TAGGING = "resourcegroupstaggingapi"
_PAGE = 1000
_TAGGED_PAGE = 100
_ALIVE = ("pending", "running", "shutting-down", "stopping", "stopped")
_FILTER = {"Name": "tag-key", "Values": [ATTEMPT]}


class EstateClient(Client):
    """See :class:`providers.aws.client.Client`. What is listed carries the tag."""

    POLICY = "provisioner.json"

    def instances(self, region: str) -> Sequence[Row]:
        """Reservations with instances that are not terminated."""
        alive = {"Name": "instance-state-name", "Values": list(_ALIVE)}
        return self._all("DescribeInstances", region, "Reservations", Filters=[_FILTER, alive], MaxResults=_PAGE)

    def spot_requests(self, region: str) -> Sequence[Row]:
        """Spot requests in every state that EC2 remembers."""
        return self._all(
            "DescribeSpotInstanceRequests", region, "SpotInstanceRequests", Filters=[_FILTER], MaxResults=_PAGE
        )

    def gateways(self, region: str) -> Sequence[Row]:
        """NAT gateways, deleted ones for an hour."""
        return self._all("DescribeNatGateways", region, "NatGateways", Filters=[_FILTER], MaxResults=_PAGE)

    def addresses(self, region: str) -> Sequence[Row]:
        """Elastic IPs. EC2 gives them all at once."""
        return self._listed("ec2", "DescribeAddresses", region, "Addresses", Filters=[_FILTER])

    def volumes(self, region: str) -> Sequence[Row]:
        """EBS volumes."""
        return self._all("DescribeVolumes", region, "Volumes", Filters=[_FILTER], MaxResults=_PAGE)

    def interfaces(self, region: str) -> Sequence[Row]:
        """Network interfaces."""
        return self._all("DescribeNetworkInterfaces", region, "NetworkInterfaces", Filters=[_FILTER], MaxResults=_PAGE)

    def tagged(self, region: str) -> Sequence[Row]:
        """Everything of the region, of any service, by ARN."""
        rows: list[Row] = []
        seen: set[str] = set()
        token = ""
        while True:
            answer = self._ask(
                TAGGING,
                "GetResources",
                region,
                key="ResourceTagMappingList",
                TagFilters=[{"Key": ATTEMPT}],
                ResourcesPerPage=_TAGGED_PAGE,
                **({"PaginationToken": token} if token else {}),
            )
            rows += answer["ResourceTagMappingList"]
            token = str(answer.get("PaginationToken") or "")
            if not token:
                return rows
            if token in seen:
                raise UnreadableError(self._cloud, f"GetResources in {region}: its pages go round in a circle")
            seen.add(token)

    def requests_of(self, region: str, instance_ids: Sequence[str]) -> Sequence[str]:
        """Ids of the spot requests that these instances fulfil."""
        mine = {"Name": "instance-id", "Values": list(instance_ids)}
        rows = self._all("DescribeSpotInstanceRequests", region, "SpotInstanceRequests", Filters=[mine])
        return [str(row["SpotInstanceRequestId"]) for row in rows if row.get("SpotInstanceRequestId")]

    def in_use(self, region: str, allocation_id: str) -> bool:
        """Whether something uses an elastic IP."""
        rows = self._listed("ec2", "DescribeAddresses", region, "Addresses", AllocationIds=[allocation_id])
        return any(row.get("AssociationId") for row in rows)

    def terminate(self, region: str, instance_ids: Sequence[str]) -> None:
        """All of them or, when one id is refused, none."""
        self._ask("ec2", "TerminateInstances", region, InstanceIds=list(instance_ids))

    def cancel(self, region: str, request_ids: Sequence[str]) -> None:
        """Cancels spot requests; their machines run on."""
        self._ask("ec2", "CancelSpotInstanceRequests", region, SpotInstanceRequestIds=list(request_ids))

    def delete(self, region: str, action: str, parameter: str, id_: str) -> None:
        """One deleting call that takes one id."""
        self._ask("ec2", action, region, **{parameter: id_})

    def _all(self, action: str, region: str, key: str, **parameters: Any) -> Sequence[Row]:
        return [row for page in self._rows(action, region, key, parameters) for row in page]

    def _rows(self, action: str, region: str, key: str, parameters: Mapping[str, Any]) -> Iterator[Sequence[Row]]:
        return self._pages("ec2", action, region, key, **parameters)
